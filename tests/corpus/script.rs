//! The format of scripts; `tests/scripts/README.md` tells it to their readers.

use std::collections::BTreeMap;

use onced::model::policy::{
    FingerprintKind, Policy, check_attempts, check_delay, check_lease, check_retention,
};
use onced::model::record::{OnLeaseEnd, Retention, Window};
use onced::model::time::Span;

use super::expected::{Expected, Names};
use super::words::{Word, split};

/// A file of cases.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: String,
    pub(super) cases: Vec<Case>,
}

/// Lines that run on a store of their own.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) title: String,
    pub(super) line: usize,
    /// Drivers that it is not for.
    pub(super) not_for: Vec<String>,
    pub(super) lines: Vec<Line>,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) text: String,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// `policy [ns=..] name=value ..`: the whole policy of a namespace.
    Policy(String, Box<Policy>),
    /// `+10s`: time passes.
    Advance(Span),
    /// `verb .. -> outcome ..`
    Step(Step, Expected),
}

/// The left side of a step, with names for values not resolved yet.
#[derive(Debug)]
pub(super) struct Step {
    words: Vec<Word>,
}

/// What a driver is asked: the words of a step.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) verb: String,
    pub(super) namespace: String,
    /// Empty for a listing.
    pub(super) key: Vec<u8>,
    /// By name; texts as any face gets them, not checked.
    pub(super) options: BTreeMap<String, Vec<u8>>,
    /// Of a Redis string command, itself included.
    pub(super) redis: Vec<Vec<u8>>,
}

/// The options of each verb, so that a slip of the pen is not taken for bad input.
const VERBS: &[(&str, &[&str])] = &[
    (
        "claim",
        &[
            "lease",
            "retention",
            "on_lease_end",
            "max_attempts",
            "claim_id",
            "owner",
            "fingerprint",
            "payload",
            "type",
            "store",
            "mode",
            "result",
        ],
    ),
    ("renew", &["token", "lease"]),
    ("effect", &["token"]),
    ("complete", &["token", "result", "type", "status"]),
    ("fail", &["token", "error", "retry_in", "bury"]),
    ("release", &["token"]),
    ("get", &[]),
    ("replay", &["generation", "force"]),
    ("forget", &["force"]),
    ("list", &["state", "prefix", "due", "cursor", "limit"]),
];

/// The Redis commands a script may use.
const REDIS: &[&str] = &[
    "SET", "GET", "DEL", "EXISTS", "PTTL", "TYPE", "INCR", "PEXPIRE", "PERSIST", "DELEX",
    "DELIFEQ", "DIGEST",
];

impl Script {
    /// # Errors
    /// `file:line: what is wrong`.
    pub(super) fn parse(name: &str, text: &str, drivers: &[&str]) -> Result<Script, String> {
        let mut cases: Vec<Case> = Vec::new();
        for (number, line) in logical_lines(text) {
            let at = |problem: String| format!("{name}:{number}: {problem}\n    {line}");
            if let Some(title) = line.strip_prefix("== ") {
                let title = title.trim().to_owned();
                if cases.iter().any(|case| case.title == title) {
                    return Err(at("a case of that title stands above".into()));
                }
                cases.push(Case {
                    title,
                    line: number,
                    not_for: Vec::new(),
                    lines: Vec::new(),
                });
                continue;
            }
            let Some(case) = cases.last_mut() else {
                return Err(at("a case begins with a headline: == what it shows".into()));
            };
            if let Some(limit) = driver_limit(&line, drivers).map_err(at)? {
                case.not_for.extend(limit);
                continue;
            }
            let what = What::parse(&line).map_err(at)?;
            case.lines.push(Line {
                number,
                text: line.clone(),
                what,
            });
        }
        for case in &cases {
            let at =
                |problem: &str| Err(format!("{name}:{}: {}: {problem}", case.line, case.title));
            if drivers
                .iter()
                .all(|driver| case.not_for.iter().any(|not| not == driver))
            {
                return at("no driver is left to run it");
            }
            if !case
                .lines
                .iter()
                .any(|line| matches!(line.what, What::Step(..)))
            {
                return at("it expects nothing");
            }
        }
        if cases.is_empty() {
            return Err(format!("{name}: no cases"));
        }
        Ok(Script {
            name: name.to_owned(),
            cases,
        })
    }
}

/// Lines with what is indented below them, without empty ones and comments.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        match lines.last_mut() {
            Some((_, last)) if line.starts_with(' ') => {
                last.push(' ');
                last.push_str(trimmed);
            }
            _ => lines.push((index + 1, trimmed.to_owned())),
        }
    }
    lines
}

/// `not for http, resp: reason`, `only for model, engine: reason`; the drivers that are out. A driver's name
/// without its last digit means all of its kind.
fn driver_limit(line: &str, drivers: &[&str]) -> Result<Option<Vec<String>>, String> {
    let (only, rest) = match (
        line.strip_prefix("not for "),
        line.strip_prefix("only for "),
    ) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Ok(None),
    };
    let (named, reason) = rest
        .split_once(':')
        .ok_or("a reason is missing: ... : why")?;
    if reason.trim().is_empty() {
        return Err("a reason is missing: ... : why".into());
    }
    let mut found = Vec::new();
    for name in named.split(',').map(str::trim) {
        let kind = |driver: &&&str| driver.trim_end_matches(|c: char| c.is_ascii_digit()) == name;
        let before = found.len();
        found.extend(
            drivers
                .iter()
                .filter(|driver| **driver == name || kind(driver)),
        );
        if found.len() == before {
            return Err(format!(
                "no driver is called {name}; there are {}",
                drivers.join(", ")
            ));
        }
    }
    let out = drivers
        .iter()
        .filter(|driver| found.contains(driver) != only);
    Ok(Some(out.map(|driver| (*driver).to_owned()).collect()))
}

impl What {
    fn parse(line: &str) -> Result<What, String> {
        let words = split(line)?;
        if let Some(span) = line.strip_prefix('+') {
            let span = split(span)?;
            let [span] = span.as_slice() else {
                return Err("+10s and nothing else".into());
            };
            let span = Span::parse(span.text()?).map_err(|error| error.to_string())?;
            return Ok(What::Advance(span));
        }
        if words.first().is_some_and(|word| word.is("policy")) {
            return policy(&words[1..]);
        }
        let arrow = words
            .iter()
            .position(|word| word.is("->"))
            .ok_or("no -> and what is expected")?;
        let (left, right) = (&words[..arrow], &words[arrow + 1..]);
        Ok(What::Step(Step::parse(left)?, Expected::parse(right)?))
    }
}

fn policy(words: &[Word]) -> Result<What, String> {
    let mut policy = Policy::default();
    let mut namespace = "default".to_owned();
    for word in words {
        let name = word.name.as_deref().ok_or("policy name=value ..")?;
        let text = word.text()?;
        let bad = || format!("{name}={text} is no part of a policy");
        let span = || Span::parse(text).map_err(|error| error.to_string());
        let retention = || match text {
            "forever" => Ok(Retention::Forever),
            _ => span().map(Retention::For),
        };
        let range = |error: onced::model::policy::RangeError| error.to_string();
        match name {
            "ns" => text.clone_into(&mut namespace),
            "lease" => policy.lease = check_lease(span()?).map_err(range)?,
            "retention" => policy.retention = check_retention(retention()?).map_err(range)?,
            "window" => policy.window = Window::parse(text).ok_or_else(bad)?,
            "max_attempts" => {
                let number = text.parse().map_err(|_| bad())?;
                policy.max_attempts = check_attempts(number).map_err(range)?;
            }
            "on_lease_end" => policy.on_lease_end = OnLeaseEnd::parse(text).ok_or_else(bad)?,
            "backoff" => policy.backoff = check_delay(span()?).map_err(range)?,
            "backoff_max" => policy.backoff_max = check_delay(span()?).map_err(range)?,
            "fingerprint" => policy.fingerprint = FingerprintKind::parse(text).ok_or_else(bad)?,
            "forget_open_after" => policy.forget_open_after = retention()?,
            _ => return Err(bad()),
        }
    }
    Ok(What::Policy(namespace, Box::new(policy)))
}

impl Step {
    fn parse(words: &[Word]) -> Result<Step, String> {
        let (verb, rest) = words.split_first().ok_or("no verb")?;
        let verb = verb.text()?;
        if REDIS.contains(&verb) {
            return Ok(Step {
                words: words.to_vec(),
            });
        }
        let known = VERBS.iter().find(|(known, _)| *known == verb);
        let (_, options) = known.ok_or_else(|| format!("no verb is called {verb}"))?;
        let keys = rest.iter().filter(|word| word.name.is_none()).count();
        if keys != usize::from(verb != "list")
            || rest.iter().position(|word| word.name.is_none()) > Some(0)
        {
            return Err("one key stands behind the verb (none in a list), then name=value".into());
        }
        let mut seen = Vec::new();
        for name in rest.iter().filter_map(|word| word.name.as_deref()) {
            if !options.contains(&name) && name != "ns" {
                return Err(format!(
                    "{verb} has no option {name}; it has {}",
                    options.join(", ")
                ));
            }
            if seen.contains(&name) {
                return Err(format!("{name} stands there twice"));
            }
            seen.push(name);
        }
        Ok(Step {
            words: words.to_vec(),
        })
    }

    /// The words as a driver gets them.
    ///
    /// # Errors
    /// A name stands for nothing yet.
    pub(super) fn resolve(&self, names: &Names) -> Result<Request, String> {
        let (verb, rest) = self.words.split_first().ok_or("no verb")?;
        let mut request = Request {
            verb: verb.text()?.to_owned(),
            namespace: "default".into(),
            key: Vec::new(),
            options: BTreeMap::new(),
            redis: Vec::new(),
        };
        if REDIS.contains(&verb.text()?) {
            request.redis = self.words.iter().map(|word| word.bytes.clone()).collect();
            request.key = rest
                .first()
                .map(|word| word.bytes.clone())
                .unwrap_or_default();
            return Ok(request);
        }
        for word in rest {
            let value = match word.placeholder() {
                Some(name) => names
                    .get(name)
                    .ok_or_else(|| format!("{name} stands for nothing yet"))?,
                None => &word.bytes,
            };
            match word.name.as_deref() {
                None => request.key.clone_from(value),
                Some("ns") => word.text()?.clone_into(&mut request.namespace),
                Some(name) => {
                    request.options.insert(name.to_owned(), value.clone());
                }
            }
        }
        Ok(request)
    }
}

impl Request {
    /// An option's bytes.
    pub(super) fn option(&self, name: &str) -> Option<&[u8]> {
        self.options.get(name).map(Vec::as_slice)
    }
}
