//! Runs cases on drivers and tells what did not hold.

use std::fmt;

use onced::model::policy::Policy;
use onced::model::time::{Span, Timestamp};

use super::answer::Answer;
use super::expected::Names;
use super::script::{Case, Request, Script, What};

/// When every case begins: 2026-01-01.
pub(super) const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// What can be asked the questions of a script; a new one has an empty store.
pub(super) trait Driver {
    /// The whole policy of a namespace, from now on.
    fn set_policy(&mut self, namespace: &str, policy: Policy);
    /// Time passes.
    fn advance(&mut self, span: Span);
    /// What its clock shows.
    fn now(&self) -> Timestamp;
    /// One question.
    fn run(&mut self, request: &Request) -> Answer;
}

/// A driver by its name.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) create: fn() -> Box<dyn Driver>,
}

/// What did not hold.
#[derive(Debug)]
pub(super) struct Failure {
    script: String,
    line: usize,
    driver: String,
    case: String,
    step: String,
    expected: String,
    got: String,
    answer: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{} on {}: {}\n    {}\n    expected: {}\n    got:      {}\n    answer:   {}",
            self.script,
            self.line,
            self.driver,
            self.case,
            self.step,
            self.expected,
            self.got,
            self.answer
        )
    }
}

/// How many cases ran, and how many were not for the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) ran: usize,
    pub(super) left_out: usize,
    pub(super) steps: usize,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count {
            ran,
            left_out,
            steps,
        } = self;
        write!(f, "{ran} cases ({steps} steps), {left_out} not for it")
    }
}

/// Runs every case that is for the driver.
pub(super) fn run(scripts: &[Script], kind: &Kind) -> (Count, Vec<Failure>) {
    let mut count = Count::default();
    let mut failures = Vec::new();
    for script in scripts {
        for case in &script.cases {
            if case.not_for.iter().any(|name| name == kind.name) {
                count.left_out += 1;
                continue;
            }
            count.ran += 1;
            match run_case(script, case, kind) {
                Ok(steps) => count.steps += steps,
                Err(failure) => failures.push(*failure),
            }
        }
    }
    (count, failures)
}

/// Up to the first step that does not hold: later ones build on it.
fn run_case(script: &Script, case: &Case, kind: &Kind) -> Result<usize, Box<Failure>> {
    let mut driver = (kind.create)();
    let mut names = Names::new();
    let mut steps = 0;
    for line in &case.lines {
        let fail = |expected: String, got: String, answer: String| {
            Box::new(Failure {
                script: script.name.clone(),
                line: line.number,
                driver: kind.name.to_owned(),
                case: case.title.clone(),
                step: line.text.clone(),
                expected,
                got,
                answer,
            })
        };
        match &line.what {
            What::Policy(namespace, policy) => driver.set_policy(namespace, Policy::clone(policy)),
            What::Advance(span) => driver.advance(*span),
            What::Step(step, expected) => {
                steps += 1;
                let request = step
                    .resolve(&names)
                    .map_err(|problem| fail("a question".to_owned(), problem, "none".to_owned()))?;
                let answer = driver.run(&request);
                expected
                    .check(&answer, driver.now(), &mut names)
                    .map_err(|(expected, got)| fail(expected, got, answer.to_string()))?;
            }
        }
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::model::Model;

    const MODEL: Kind = Kind {
        name: "model",
        create: || Box::new(Model::new()),
    };

    /// Runs `text` as a script of one case.
    fn outcome(text: &str) -> Result<Count, String> {
        let script = Script::parse("wrong.txt", &format!("== a case\n{text}"), &["model"])?;
        let (count, failures) = run(&[script], &MODEL);
        match failures.as_slice() {
            [] => Ok(count),
            failures => Err(failures.iter().map(ToString::to_string).collect()),
        }
    }

    #[test]
    fn a_script_that_is_wrong_is_reported_with_script_line_driver_and_both_sides() {
        let table = [
            (
                "claim k -> busy",
                "wrong.txt:2 on model: a case",
                "expected: busy",
                "got:      acquired",
            ),
            (
                "claim k -> acquired reason=retry",
                ":2 on",
                "reason=retry",
                "reason=new",
            ),
            (
                "claim k -> acquired attempt=2",
                ":2 on",
                "attempt=2",
                "attempt=1",
            ),
            ("claim k -> acquired -token", ":2 on", "-token", "token=1"),
            (
                "claim k -> acquired owner=a",
                ":2 on",
                "owner=a",
                "acquired",
            ),
            (
                "claim k -> acquired lease_expires_at=now+61s",
                ":2 on",
                "00:01:01.000Z",
                "00:01:00.000Z",
            ),
            (
                "claim k -> acquired lease_expires_at=now+61s..now+62s",
                ":2 on",
                "00:01:01.000Z..",
                "00:01:00.000Z",
            ),
            (
                "claim k -> acquired token=5..9",
                ":2 on",
                "token=5..9",
                "token=1",
            ),
            (
                "claim k -> acquired T2>T1",
                ":2 on",
                "T2 is not given yet",
                "token=1",
            ),
            (
                "claim k -> acquired token=T1\nclaim j -> acquired token=T1",
                ":3 on",
                "token=T1 (1)",
                "token=2",
            ),
            (
                "claim k -> acquired token=T1\nclaim j -> acquired token=T2 T1>T2",
                ":3 on",
                "T1 is 1, T2 is 2",
                "token=2",
            ),
            (
                "complete k token=T1 -> completed",
                ":2 on",
                "a question",
                "T1 stands for nothing yet",
            ),
            (
                "claim k -> acquired\nget k -> ok history=acquired,completed",
                ":3 on",
                "acquired,completed",
                "event=acquired",
            ),
            (
                "claim k -> acquired\n+59s\nclaim k -> acquired",
                ":4 on",
                "expected: acquired",
                "busy",
            ),
            ("GET k -> value value=v", ":2 on", "value", "nil"),
        ];
        for (text, place, expected, got) in table {
            let report = outcome(text).expect_err(text);
            for part in [place, expected, got] {
                assert!(report.contains(part), "{text}\n{report}\nlacks {part}");
            }
        }
    }

    #[test]
    fn a_script_that_is_right_is_counted() {
        let text = "claim k -> acquired token=T1\n+1s\nclaim k -> busy retry_after_ms=59000";
        assert_eq!(
            outcome(text),
            Ok(Count {
                ran: 1,
                left_out: 0,
                steps: 2
            })
        );
    }

    #[test]
    fn a_script_that_cannot_be_understood_is_refused() {
        let table = [
            ("", "expects nothing"),
            ("+1s", "expects nothing"),
            ("claim k", "no ->"),
            ("claim k ->", "nothing is expected"),
            ("claim k -> owner=a", "the outcome"),
            ("claim k -> acquired reason", "name=value"),
            ("claim k -> acquired at=nowish", "not an instant"),
            ("claim k -> acquired n=1..b", "not a number"),
            ("claim -> acquired", "one key"),
            ("claim k j -> acquired", "one key"),
            ("claim owner=a k -> acquired", "one key"),
            ("list k -> ok", "one key"),
            ("clam k -> acquired", "no verb"),
            ("claim k colour=red -> acquired", "no option colour"),
            ("claim k owner=a owner=b -> acquired", "twice"),
            ("claim \"k -> acquired", "not closed"),
            ("+1x", "not a duration"),
            ("+1s claim", "nothing else"),
            ("policy lease=0", "a lease is"),
            ("policy colour=red", "no part of a policy"),
            (
                "not for model: it runs nowhere\nclaim k -> acquired",
                "no driver is left",
            ),
            (
                "not for mars: far\nclaim k -> acquired",
                "no driver is called mars",
            ),
            ("not for model\nclaim k -> acquired", "reason"),
            ("== a case\nclaim k -> acquired", "stands above"),
        ];
        for (text, part) in table {
            let report = outcome(text).expect_err(text);
            assert!(
                report.contains("wrong.txt:") && report.contains(part),
                "{text}\n{report}"
            );
        }
        assert!(Script::parse("empty.txt", "# nothing\n", &["model"]).is_err());
        assert!(Script::parse("headless.txt", "claim k -> acquired\n", &["model"]).is_err());
    }
}
