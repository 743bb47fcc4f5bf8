//! What has to hold after every command: each rule as a function that says what is wrong.

use super::exhaustive::{INSTANTS, Node, START};
use super::paper::{Ask, ONCE, Paper, Phase, Shows};
use bytes::Bytes;
use onced::model::body::{Body, Content};
use onced::model::command::{Claim, Command, Mode, Verb};
use onced::model::key::RecordKey;
use onced::model::outcome::{Reason, Shown, Verdict};
use onced::model::policy::Policy;
use onced::model::record::{Event, Fingerprint, KeptResult, Record, State, Token};
use onced::model::shown::{settle, show};
use onced::model::time::{BootTime, Span, Timestamp};
use onced::model::transition::{Context, Effect, Step, apply};
use std::sync::Arc;

/// The rules under a policy.
pub(super) struct Rules {
    policy: Policy,
    key: RecordKey,
}

/// What is wrong.
pub(super) type Wrong = Result<(), String>;

impl Rules {
    pub(super) fn new(policy: Policy) -> Rules {
        Rules {
            policy,
            key: RecordKey::new("ns", b"k").unwrap(),
        }
    }

    /// All rules of one command that led from `node` to `after`.
    pub(super) fn check(
        &self,
        node: &Node,
        ask: Ask,
        steps: [&Step; 2],
        expected: &str,
        after: &Node,
    ) -> Wrong {
        let [plain, settled] = steps;
        told(plain, expected)?;
        same_answers(plain, settled)?;
        self.same_records(after)?;
        self.as_on_paper(after)?;
        self.only_what_may_change(node, plain)?;
        grants_are_new(node, plain, ask)?;
        late_is_counted_once(node, plain, ask)?;
        self.sent_twice(after, ask, plain)
    }

    pub(super) fn decide(&self, node: &Node, record: Option<&Arc<Record>>, ask: Ask) -> Step {
        let context = Context {
            policy: &self.policy,
            now: node.now(),
            token: Token::new(node.paper.next_token),
            slide: true,
        };
        apply(context, record, &Command::new(self.key.clone(), verb(ask)))
    }

    /// The record with the end of its lease written down.
    pub(super) fn settle(&self, node: &Node, record: &Arc<Record>) -> Arc<Record> {
        settle(record, &self.policy, node.now())
    }

    /// SPEC 2: writing the end of a lease down changes no answer; so both records show alike.
    fn same_records(&self, after: &Node) -> Wrong {
        let shown = |record: &Option<Arc<Record>>| {
            let shown = show(record.as_ref()?, &self.policy, after.now())?;
            Some((shown.state, shown.orphaned, shown.record))
        };
        let (plain, settled) = (shown(&after.plain), shown(&after.settled));
        if plain == settled {
            Ok(())
        } else {
            Err("the record shows otherwise once settled".into())
        }
    }

    fn as_on_paper(&self, after: &Node) -> Wrong {
        let shown = after
            .plain
            .as_ref()
            .and_then(|record| show(record, &self.policy, after.now()));
        match (shown, after.paper.shows()) {
            (None, None) => Ok(()),
            (Some(shown), Some(_)) => compare(&shown, &after.paper),
            (shown, entry) => {
                let (shown, entry) = (
                    shown.map(|shown| shown.state),
                    entry.map(|(_, shows)| shows),
                );
                Err(format!("shows {shown:?}, on paper {entry:?}"))
            }
        }
    }

    /// SPEC 9: at most one current token; SPEC 4: no other changes the record, but for the late completion
    /// in its history. Every token ever granted is tried, with every verb that takes one.
    pub(super) fn tokens_are_fenced(&self, node: &Node) -> Wrong {
        let holder = node
            .paper
            .shows()
            .map(|(entry, _)| entry)
            .filter(|entry| entry.held_by(entry.token));
        let holder = holder.map(|entry| entry.token);
        let before = node.plain.as_ref();
        let mut accepted = Vec::new();
        for token in 1..=node.paper.next_token {
            let asks = [
                Ask::Renew { token },
                Ask::Effect { token },
                Ask::Release { token },
                Ask::Complete { token, result: 2 },
                Ask::Fail { token, bury: false },
                Ask::Fail { token, bury: true },
            ];
            for ask in asks {
                let step = self.decide(node, before, ask);
                if matches!(step.outcome.verdict, Verdict::Renewed) {
                    accepted.push(token);
                }
                let after = step.leaves(before);
                if Some(token) != holder
                    && self.bare(node, after.as_ref()) != self.bare(node, before)
                {
                    return Err(format!(
                        "{} with an ended token changed the record",
                        kind(ask)
                    ));
                }
            }
        }
        if accepted == Vec::from_iter(holder) {
            Ok(())
        } else {
            Err(format!("current tokens {accepted:?}, on paper {holder:?}"))
        }
    }

    /// A refusal, a duplicate and a look change nothing, the history of a late completion excepted.
    fn only_what_may_change(&self, node: &Node, step: &Step) -> Wrong {
        let verdict = &step.outcome.verdict;
        let idle = verdict.refused() || matches!(verdict, Verdict::Done | Verdict::Found);
        let before = node.plain.as_ref();
        let same = match step.late {
            Some(_) => self.bare(node, step.leaves(before).as_ref()) == self.bare(node, before),
            None => step.keeps(before),
        };
        if !idle || same {
            Ok(())
        } else {
            Err("a refusal changed the record".into())
        }
    }

    /// How a record shows, but for its history: a late completion writes the end of a lease down as well.
    fn bare(&self, node: &Node, record: Option<&Arc<Record>>) -> Option<Record> {
        record.map(|record| Record {
            history: Vec::new(),
            ..Record::clone(&self.settle(node, record))
        })
    }

    /// SPEC 4's column "sent twice", and SPEC 3's for a claim.
    fn sent_twice(&self, after: &Node, ask: Ask, first: &Step) -> Wrong {
        if first.outcome.verdict.refused() || matches!(first.outcome.verdict, Verdict::Done) {
            return Ok(());
        }
        let again = |ask| self.decide(after, after.plain.as_ref(), ask);
        let same = |second: &Step| {
            let same = first.outcome.fields() == second.outcome.fields()
                && second.keeps(after.plain.as_ref());
            if same {
                Ok(())
            } else {
                Err(format!(
                    "sent twice, then answered {:?}",
                    second.outcome.verdict
                ))
            }
        };
        let refused = |second: &Step, name: &str| {
            let refused =
                second.outcome.verdict.name() == name && second.keeps(after.plain.as_ref());
            if refused {
                Ok(())
            } else {
                Err(format!(
                    "{ask:?} then answered {:?}",
                    second.outcome.verdict
                ))
            }
        };
        match ask {
            Ask::Claim { .. } => {
                let second = again(ask);
                let token =
                    |step: &Step| step.outcome.record.as_ref().map(|shown| shown.record.token);
                let resumed = second.outcome.verdict == Verdict::Acquired(Reason::Resumed);
                if resumed && token(&second) == token(first) && second.keeps(after.plain.as_ref()) {
                    Ok(())
                } else {
                    Err(format!(
                        "sent twice, then answered {:?}",
                        second.outcome.verdict
                    ))
                }
            }
            Ask::Complete { token, result } => {
                same(&again(ask))?;
                refused(
                    &again(Ask::Complete {
                        token,
                        result: 3 - result,
                    }),
                    "conflict",
                )
            }
            Ask::Fail { token, bury } => {
                same(&again(ask))?;
                same(&again(Ask::Fail { token, bury: !bury }))
            }
            Ask::Renew { .. } | Ask::Effect { .. } | Ask::Get | Ask::Replay { .. } => {
                same(&again(ask))
            }
            Ask::CompleteByHand { .. } => same(&again(ask)),
            Ask::Release { .. } => refused(&again(ask), "stale"),
            Ask::Forget { .. } => refused(&again(ask), "not_found"),
            // Not a repeatable word: SPEC 4 promises nothing.
            Ask::FailByHand { .. } => Ok(()),
        }
    }
}

/// What SPEC says is answered, is answered.
fn told(step: &Step, expected: &str) -> Wrong {
    let verdict = &step.outcome.verdict;
    let told = match verdict {
        Verdict::Acquired(reason) => format!("acquired {}", reason.name()),
        _ => verdict.name().to_owned(),
    };
    if told == expected {
        Ok(())
    } else {
        Err(format!("answered {told}, SPEC says {expected}"))
    }
}

fn same_answers(plain: &Step, settled: &Step) -> Wrong {
    let facts = |step: &Step| {
        (
            step.outcome.verdict.clone(),
            step.outcome.removed,
            step.granted,
            step.late,
        )
    };
    if facts(plain) != facts(settled) {
        return Err(format!("settled, answered {:?}", settled.outcome.verdict));
    }
    if plain.outcome.fields() != settled.outcome.fields() {
        return Err("answered with other members once settled".into());
    }
    Ok(())
}

fn compare(shown: &Shown, paper: &Paper) -> Wrong {
    let Some((entry, shows)) = paper.shows() else {
        return Err("nothing on paper".into());
    };
    let record = &shown.record;
    let state = match shows {
        Shows::Leased => (State::Pending, false),
        Shows::Orphaned => (State::Pending, true),
        Shows::InDoubt => (State::InDoubt, false),
        Shows::Dead => (State::Dead, false),
        Shows::Retry => (State::Retry, false),
        Shows::Done => (State::Done, false),
    };
    let boot = |millis: u64| BootTime::from_millis(START.1 + millis);
    let print = |print: &Fingerprint| print.to_string();
    let byte = |kept: &KeptResult| {
        kept.body
            .content
            .bytes()
            .and_then(|bytes| bytes.first().copied())
    };
    let facts = [
        ("state", (shown.state, shown.orphaned) == state),
        ("token", record.token.get() == entry.token),
        ("attempt", record.attempt == entry.attempt),
        ("generation", record.generation == entry.generation),
        (
            "claim id",
            record.claim_id.as_deref() == Some(entry.id.to_string().as_str()),
        ),
        (
            "fingerprint",
            record.fingerprint.as_ref().map(print) == entry.print.map(|print| print.to_string()),
        ),
        match entry.phase {
            Phase::Granted => (
                "lease",
                record.lease_end == boot(entry.lease_end)
                    && record.effect_announced == entry.effect,
            ),
            // Jitter leaves open when exactly; which side of the instants is what counts.
            Phase::Waiting { due } => (
                "due",
                INSTANTS
                    .iter()
                    .all(|at| (boot(*at) < record.not_before) == (*at < due)),
            ),
            Phase::Finished { result, expires } => (
                "result",
                record.result.as_ref().and_then(byte) == Some(result)
                    && record.expires_at == Some(Timestamp::from_millis(START.0 + expires)),
            ),
            Phase::Dead => ("dead", true),
        },
    ];
    let wrong: Vec<&str> = facts
        .iter()
        .filter(|(_, right)| !right)
        .map(|(name, _)| *name)
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("{} not as on paper", wrong.join(", ")))
    }
}

/// SPEC 1, 3: one grant, one token, never granted again; an attempt counts when the work is handed out.
fn grants_are_new(node: &Node, step: &Step, ask: Ask) -> Wrong {
    let grant =
        matches!(step.outcome.verdict, Verdict::Acquired(reason) if reason != Reason::Resumed);
    if grant != step.granted {
        return Err(format!("granted: {}", step.granted));
    }
    if !grant {
        return Ok(());
    }
    let Some(record) = step.leaves(node.plain.as_ref()) else {
        return Err("granted nothing".into());
    };
    if record.token.get() != node.paper.next_token {
        return Err(format!("granted token {}", record.token));
    }
    // The paper's attempt is compared elsewhere; here it is the record's own count.
    let before = match step.outcome.verdict {
        Verdict::Acquired(Reason::New) => 0,
        _ => node.plain.as_ref().map_or(0, |record| record.attempt),
    };
    let done = matches!(ask, Ask::Claim { once: true, .. });
    if record.attempt == before + 1 && (record.state == State::Done) == done {
        Ok(())
    } else {
        Err(format!(
            "attempt {} after {before}, {:?}",
            record.attempt, record.state
        ))
    }
}

/// SPEC 4: a complete with an ended token counts, once per token where the record knows by its history; of a
/// grant that it does not know it says so each time, and whoever counts tells tokens apart.
fn late_is_counted_once(node: &Node, step: &Step, ask: Ask) -> Wrong {
    let known = node.paper.shows().and(node.plain.as_ref());
    let counted = |token: u64| {
        known.is_some_and(|record| {
            let mut history = record.history.iter();
            history.any(|entry| entry.token.get() == token && entry.event == Event::LateCompletion)
        })
    };
    let late = match ask {
        Ask::Complete { token, .. } if step.outcome.verdict == Verdict::Stale => {
            (token < node.paper.next_token && !counted(token)).then_some(token)
        }
        _ => None,
    };
    if step.late.map(Token::get) == late {
        Ok(())
    } else {
        Err(format!("late {:?}, SPEC says {late:?}", step.late))
    }
}

/// What becomes of a record in a decision.
pub(super) trait Leaves {
    /// The record afterwards.
    fn leaves(&self, before: Option<&Arc<Record>>) -> Option<Arc<Record>>;

    /// Whether the record stays as it was.
    fn keeps(&self, before: Option<&Arc<Record>>) -> bool {
        self.leaves(before).as_ref() == before
    }
}

impl Leaves for Step {
    fn leaves(&self, before: Option<&Arc<Record>>) -> Option<Arc<Record>> {
        match &self.effect {
            Effect::None => before.cloned(),
            Effect::Put(record) => Some(record.clone()),
            Effect::Remove => None,
        }
    }
}

fn verb(ask: Ask) -> Verb {
    match ask {
        Ask::Claim { id, print, once } => Verb::Claim(Box::new(Claim {
            claim_id: Some(id.to_string().into()),
            fingerprint: print.map(|print| print.to_string().into()),
            mode: if once {
                Mode::Once {
                    result: Some(result(ONCE)),
                }
            } else {
                Mode::Lease
            },
            ..Claim::default()
        })),
        Ask::Renew { token } => Verb::Renew {
            token: number(token),
            lease: None,
        },
        Ask::Effect { token } => Verb::Effect {
            token: number(token),
        },
        Ask::Complete {
            token,
            result: byte,
        } => Verb::Complete {
            token: Some(number(token)),
            result: result(byte),
        },
        Ask::Fail { token, bury } => Verb::Fail {
            token: Some(number(token)),
            error: None,
            retry_in: None,
            bury,
        },
        Ask::Release { token } => Verb::Release {
            token: number(token),
        },
        Ask::CompleteByHand { result: byte } => Verb::Complete {
            token: None,
            result: result(byte),
        },
        Ask::FailByHand { bury } => Verb::Fail {
            token: None,
            error: None,
            retry_in: Some(Span::ZERO),
            bury,
        },
        Ask::Get => Verb::Get,
        Ask::Replay { generation, force } => Verb::Replay { generation, force },
        Ask::Forget { force } => Verb::Forget { force },
    }
}

/// Two faults are of one kind when the verb and what went wrong are the same.
pub(super) fn kind(ask: Ask) -> &'static str {
    match ask {
        Ask::CompleteByHand { .. } => "complete by hand",
        Ask::FailByHand { .. } => "fail by hand",
        ask => verb(ask).name(),
    }
}

fn number(token: u64) -> Token {
    Token::new(token).unwrap()
}

fn result(byte: u8) -> KeptResult {
    let content = Content::Inline(Bytes::copy_from_slice(&[byte]));
    KeptResult {
        body: Body {
            content_type: "a/b".into(),
            content,
        },
        status: None,
    }
}
