//! Every sequence of commands up to a depth, over two clients, two fingerprints and three instants, against the
//! rules of SPEC 4 and 9, the bookkeeping of [`super::paper`], and once more with every end of a lease written
//! down as soon as anybody looks.
//!
//! Sequences that leave the same record, paper and clients behind are one from there on, and a command that
//! changes nothing leads nowhere new: so what is walked is a graph, level by level, each command tried at
//! each of its nodes. All that goes wrong is gathered, by kind, with the shortest sequence that shows it.

use super::paper::{Ask, BACKOFF, LEASE, ONCE, Paper, Phase, RETENTION, Shows};
use bytes::Bytes;
use onced::model::body::{Body, Content};
use onced::model::command::{Claim, Command, Mode, Verb};
use onced::model::key::RecordKey;
use onced::model::outcome::{Reason, Shown, Verdict};
use onced::model::policy::Policy;
use onced::model::record::{
    Event, Fingerprint, KeptResult, OnLeaseEnd, Record, Retention, State, Token,
};
use onced::model::shown::{settle, show};
use onced::model::time::{BootTime, Now, Span, Timestamp};
use onced::model::transition::{Context, Effect, Step, apply};
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Before the end of a lease and of a backoff begun at the first of them, after it, and after retention.
const INSTANTS: [u64; 3] = [0, 20, 5000];
const START: (u64, u64) = (1_767_225_600_000, 5_000_000);

#[test]
fn every_sequence_with_retry_and_one_attempt() {
    walk(OnLeaseEnd::Retry, 1, 7);
}

#[test]
fn every_sequence_with_retry_and_two_attempts() {
    walk(OnLeaseEnd::Retry, 2, 7);
}

#[test]
fn every_sequence_with_hold_and_one_attempt() {
    walk(OnLeaseEnd::Hold, 1, 7);
}

#[test]
fn every_sequence_with_hold_and_two_attempts() {
    walk(OnLeaseEnd::Hold, 2, 7);
}

/// What a client does, by the last token it got.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// Time goes on to the next instant.
    Wait,
    Claim {
        client: usize,
        print: Option<u8>,
        once: bool,
    },
    Renew(usize),
    Effect(usize),
    Complete(usize, u8),
    Fail(usize),
    Bury(usize),
    Release(usize),
    Operator(Ask),
}

fn alphabet() -> Vec<Move> {
    let mut moves = vec![Move::Wait];
    for client in [0, 1] {
        let claim = |print, once| Move::Claim {
            client,
            print,
            once,
        };
        moves.extend([
            claim(Some(1), false),
            claim(Some(2), false),
            claim(None, false),
            claim(Some(1), true),
            Move::Renew(client),
            Move::Effect(client),
            Move::Complete(client, 1),
            Move::Complete(client, 2),
            Move::Fail(client),
            Move::Bury(client),
            Move::Release(client),
        ]);
    }
    let replay = |generation, force| Ask::Replay { generation, force };
    let operator = [
        Ask::CompleteByHand { result: 1 },
        Ask::FailByHand { bury: false },
        Ask::FailByHand { bury: true },
        Ask::Get,
        replay(None, false),
        replay(None, true),
        replay(Some(1), false),
        replay(Some(2), false),
        Ask::Forget { force: false },
        Ask::Forget { force: true },
    ];
    moves.extend(operator.map(Move::Operator));
    moves
}

/// Where a sequence has led.
#[derive(Clone)]
struct Node {
    instant: usize,
    /// As decisions left it.
    plain: Option<Arc<Record>>,
    /// The same, each end of a lease written down.
    settled: Option<Arc<Record>>,
    paper: Paper,
    /// The last token each client got.
    tokens: [Option<u64>; 2],
    path: Vec<Move>,
}

struct Walk {
    policy: Policy,
    key: RecordKey,
    /// What went wrong, by kind, with the first sequence to show it.
    wrong: BTreeMap<String, String>,
}

fn walk(on_lease_end: OnLeaseEnd, max_attempts: u32, depth: usize) {
    let policy = Policy {
        lease: Span::from_millis(LEASE),
        retention: Retention::For(Span::from_millis(RETENTION)),
        max_attempts,
        on_lease_end,
        backoff: Span::from_millis(BACKOFF),
        ..Policy::default()
    };
    let mut walk = Walk {
        policy,
        key: RecordKey::new("ns", b"k").unwrap(),
        wrong: BTreeMap::new(),
    };
    let hold = on_lease_end == OnLeaseEnd::Hold;
    let paper = Paper {
        hold,
        max_attempts,
        now: INSTANTS[0],
        next_token: 1,
        entry: None,
    };
    let start = Node {
        instant: 0,
        plain: None,
        settled: None,
        paper,
        tokens: [None; 2],
        path: Vec::new(),
    };
    let moves = alphabet();
    let mut seen = HashSet::from([start.mark()]);
    let mut level = vec![start];
    let mut steps = 0_usize;
    for left in (0..depth).rev() {
        let mut next = Vec::new();
        for node in &level {
            walk.tokens_are_fenced(node);
            for made in &moves {
                let Some(after) = walk.step(node, *made) else {
                    continue;
                };
                steps += 1;
                if left > 0 && seen.insert(after.mark()) {
                    next.push(after);
                }
            }
        }
        level = next;
    }
    println!("{steps} steps from {} nodes", seen.len());
    let wrong: Vec<String> = walk
        .wrong
        .iter()
        .map(|(what, path)| format!("{what}\n    after {path}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} kinds of wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

impl Node {
    /// Equal nodes have equal marks; different ones, for 64 bits' sake, different marks.
    fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.instant, &self.paper, self.tokens).hash(&mut hasher);
        for record in [&self.plain, &self.settled] {
            format!("{record:?}").hash(&mut hasher);
        }
        hasher.finish()
    }

    fn now(&self) -> Now {
        Now {
            time: Timestamp::from_millis(START.0 + INSTANTS[self.instant]),
            boot: BootTime::from_millis(START.1 + INSTANTS[self.instant]),
            wall_ahead: 0,
        }
    }

    fn ask(&self, made: Move) -> Option<Ask> {
        Some(match made {
            Move::Wait => return None,
            // An id belongs to one attempt, so a client's claim of another mode has another one.
            Move::Claim {
                client,
                print,
                once,
            } => {
                let id = [['a', 'b'], ['A', 'B']][usize::from(once)][client];
                Ask::Claim { id, print, once }
            }
            Move::Renew(client) => Ask::Renew {
                token: self.tokens[client]?,
            },
            Move::Effect(client) => Ask::Effect {
                token: self.tokens[client]?,
            },
            Move::Complete(client, result) => Ask::Complete {
                token: self.tokens[client]?,
                result,
            },
            Move::Fail(client) => Ask::Fail {
                token: self.tokens[client]?,
                bury: false,
            },
            Move::Bury(client) => Ask::Fail {
                token: self.tokens[client]?,
                bury: true,
            },
            Move::Release(client) => Ask::Release {
                token: self.tokens[client]?,
            },
            Move::Operator(ask) => ask,
        })
    }
}

impl Walk {
    /// Makes one move and checks all there is to check. `None` where it cannot be made, changes nothing, or
    /// went wrong.
    fn step(&mut self, node: &Node, made: Move) -> Option<Node> {
        let mut after = node.clone();
        after.path.push(made);
        if let Move::Wait = made {
            after.instant += 1;
            after.paper.now = *INSTANTS.get(after.instant)?;
            return Some(after);
        }
        let ask = node.ask(made)?;
        let plain = self.decide(node, node.plain.as_ref(), ask);
        let noted = node
            .settled
            .as_ref()
            .map(|record| settle(record, &self.policy, node.now()));
        let settled = self.decide(node, noted.as_ref(), ask);
        let expected = after.paper.answer(ask);
        after.plain = plain.leaves(node.plain.as_ref());
        after.settled = settled.leaves(noted.as_ref());
        if let (true, Move::Claim { client, .. }) = (acquired(&plain), made) {
            after.tokens[client] = plain
                .outcome
                .record
                .as_ref()
                .map(|shown| shown.record.token.get());
        }
        let checks = [
            told(&plain, expected),
            same_answers(&plain, &settled),
            self.same_records(&after),
            self.as_on_paper(&after),
            only_what_may_change(node, &plain),
            grants_are_new(node, &plain, ask),
            late_is_counted_once(node, &plain, ask),
            self.sent_twice(&after, ask, &plain),
        ];
        let kind = kind(ask);
        for wrong in checks.into_iter().filter_map(Result::err) {
            self.wrong
                .entry(format!("{kind}: {wrong}"))
                .or_insert_with(|| format!("{:?}", after.path));
            return None;
        }
        Some(after)
    }

    fn decide(&self, node: &Node, record: Option<&Arc<Record>>, ask: Ask) -> Step {
        let context = Context {
            policy: &self.policy,
            now: node.now(),
            token: Token::new(node.paper.next_token),
            slide: true,
        };
        apply(context, record, &Command::new(self.key.clone(), verb(ask)))
    }

    /// SPEC 2: writing the end of a lease down changes no answer; so both records show alike.
    fn same_records(&self, after: &Node) -> Result<(), String> {
        let shown = |record: &Option<Arc<Record>>| {
            let shown = show(record.as_ref()?, &self.policy, after.now())?;
            Some((shown.state, shown.orphaned, shown.record))
        };
        let (plain, settled) = (shown(&after.plain), shown(&after.settled));
        if plain == settled {
            Ok(())
        } else {
            Err(format!("shows {plain:?} plain, {settled:?} settled"))
        }
    }

    fn as_on_paper(&self, after: &Node) -> Result<(), String> {
        let shown = after
            .plain
            .as_ref()
            .and_then(|record| show(record, &self.policy, after.now()));
        match (shown, after.paper.shows()) {
            (None, None) => Ok(()),
            (Some(shown), Some(_)) => compare(&shown, &after.paper),
            (shown, entry) => Err(format!("shows {shown:?}, on paper {entry:?}")),
        }
    }

    /// SPEC 9: at most one current token; SPEC 4: no other changes the record, but for the late completion
    /// in its history. Every token ever granted is tried, with every verb that takes one.
    fn tokens_are_fenced(&mut self, node: &Node) {
        let holder = node
            .paper
            .shows()
            .and_then(|(entry, _)| entry.held_by(entry.token).then_some(entry.token));
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
                let step = self.decide(node, node.plain.as_ref(), ask);
                if let Ask::Renew { .. } = ask
                    && step.outcome.verdict == Verdict::Renewed
                {
                    accepted.push(token);
                }
                let after = step.leaves(node.plain.as_ref());
                if Some(token) != holder && bare(after.as_ref()) != bare(node.plain.as_ref()) {
                    self.note(ask, "an ended token changed the record", node);
                }
            }
        }
        if accepted != Vec::from_iter(holder) {
            self.note(
                Ask::Get,
                &format!("current tokens {accepted:?}, on paper {holder:?}"),
                node,
            );
        }
    }

    fn note(&mut self, ask: Ask, what: &str, node: &Node) {
        self.wrong
            .entry(format!("{}: {what}", kind(ask)))
            .or_insert_with(|| format!("{:?}", node.path));
    }

    /// SPEC 4's column "sent twice", and SPEC 3's for a claim.
    fn sent_twice(&self, after: &Node, ask: Ask, first: &Step) -> Result<(), String> {
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
fn told(step: &Step, expected: &str) -> Result<(), String> {
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

fn same_answers(plain: &Step, settled: &Step) -> Result<(), String> {
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
        return Err(format!(
            "answers {:?} plain, {:?} settled",
            plain.outcome.fields(),
            settled.outcome.fields()
        ));
    }
    Ok(())
}

fn compare(shown: &Shown, paper: &Paper) -> Result<(), String> {
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

/// A refusal, a duplicate and a look change nothing, the history of a late completion excepted.
fn only_what_may_change(node: &Node, step: &Step) -> Result<(), String> {
    let idle = step.outcome.verdict.refused()
        || matches!(step.outcome.verdict, Verdict::Done | Verdict::Found);
    let after = step.leaves(node.plain.as_ref());
    let same = match step.late {
        Some(_) => bare(after.as_ref()) == bare(node.plain.as_ref()),
        None => step.keeps(node.plain.as_ref()),
    };
    if !idle || same {
        Ok(())
    } else {
        Err("a refusal changed the record".into())
    }
}

/// SPEC 1, 3: one grant, one token, never granted again; an attempt counts when the work is handed out.
fn grants_are_new(node: &Node, step: &Step, ask: Ask) -> Result<(), String> {
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

/// SPEC 4: a complete with an ended token counts, once per token, as long as there is a record to know by.
fn late_is_counted_once(node: &Node, step: &Step, ask: Ask) -> Result<(), String> {
    let shown = node.paper.shows().is_some();
    let history = node
        .plain
        .as_ref()
        .filter(|_| shown)
        .map_or(&[][..], |record| &record.history);
    let late = match ask {
        Ask::Complete { token, .. } if step.outcome.verdict == Verdict::Stale => {
            let of_token = |grants: bool| {
                history.iter().any(|entry| {
                    let wanted = if grants {
                        entry.event.grants()
                    } else {
                        entry.event == Event::LateCompletion
                    };
                    entry.token.get() == token && wanted
                })
            };
            let counts = !shown || of_token(true) && !of_token(false);
            (counts && token < node.paper.next_token).then_some(token)
        }
        _ => None,
    };
    if step.late.map(Token::get) == late {
        Ok(())
    } else {
        Err(format!("late {:?}, SPEC says {late:?}", step.late))
    }
}

fn acquired(step: &Step) -> bool {
    matches!(step.outcome.verdict, Verdict::Acquired(_))
}

trait Leaves {
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

/// The record but for what only tells of its past, and of ends of leases it may or may not have noted.
fn bare(record: Option<&Arc<Record>>) -> Option<Record> {
    record.map(|record| Record {
        history: Vec::new(),
        ..Record::clone(record)
    })
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
fn kind(ask: Ask) -> &'static str {
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
