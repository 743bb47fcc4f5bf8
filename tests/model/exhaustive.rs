//! Every sequence of commands up to a depth, over two clients, two fingerprints and three instants, against the
//! rules of SPEC 4 and 9, the bookkeeping of [`super::paper`], and once more with every end of a lease written
//! down as soon as anybody looks.
//!
//! Sequences that leave the same record, paper and clients behind are one from there on, and a command that
//! changes nothing leads nowhere new: so what is walked is a graph, level by level, each command tried at
//! each of its nodes. All that goes wrong is gathered, by kind, with the shortest sequence that shows it.

use super::paper::{Ask, BACKOFF, LEASE, Paper, RETENTION};
use super::rules::{Leaves, Rules, kind};
use onced::model::outcome::Verdict;
use onced::model::policy::Policy;
use onced::model::record::{OnLeaseEnd, Record, Retention};
use onced::model::time::{BootTime, Now, Span, Timestamp};
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Before the end of a lease and of a backoff begun at the first of them, after it, and after retention.
pub(super) const INSTANTS: [u64; 3] = [0, 20, 5000];
/// Where both clocks stand at the first instant; apart, so that no mix-up passes.
pub(super) const START: (u64, u64) = (1_767_225_600_000, 5_000_000);

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
    Fail(usize, bool),
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
            Move::Fail(client, false),
            Move::Fail(client, true),
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
pub(super) struct Node {
    instant: usize,
    /// As decisions left it.
    pub(super) plain: Option<Arc<Record>>,
    /// The same, each end of a lease written down.
    pub(super) settled: Option<Arc<Record>>,
    pub(super) paper: Paper,
    /// The last token each client got.
    tokens: [Option<u64>; 2],
    path: Vec<Move>,
}

struct Walk {
    rules: Rules,
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
        rules: Rules::new(policy),
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
            if let Err(wrong) = walk.rules.tokens_are_fenced(node) {
                walk.note(&wrong, &node.path);
            }
            for made in &moves {
                steps += 1;
                if let Some(after) = walk.step(node, *made)
                    && left > 0
                    && seen.insert(after.mark())
                {
                    next.push(after);
                }
            }
        }
        level = next;
    }
    assert!(
        steps > 1_000_000,
        "only {steps} steps: the walk has lost its way"
    );
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

    /// Whether what was kept is the very same; cheaper than two marks, and most commands change nothing.
    fn same(&self, other: &Node) -> bool {
        let kept = |a: &Option<Arc<Record>>, b: &Option<Arc<Record>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        kept(&self.plain, &other.plain)
            && kept(&self.settled, &other.settled)
            && self.paper == other.paper
            && self.tokens == other.tokens
    }

    pub(super) fn now(&self) -> Now {
        Now {
            time: Timestamp::from_millis(START.0 + INSTANTS[self.instant]),
            boot: BootTime::from_millis(START.1 + INSTANTS[self.instant]),
            between: false,
            wall_ahead: 0,
        }
    }

    /// What the move asks, or `None` in it where time goes on; `None` where a client has no token.
    fn ask(&self, made: Move) -> Option<Option<Ask>> {
        let token = |client: usize| self.tokens[client];
        let ask = match made {
            Move::Wait => return Some(None),
            Move::Claim {
                client,
                print,
                once,
            } => {
                // An id belongs to one attempt, so a client's claim of another mode has another one.
                let id = [['a', 'b'], ['A', 'B']][usize::from(once)][client];
                Ask::Claim { id, print, once }
            }
            Move::Renew(client) => Ask::Renew {
                token: token(client)?,
            },
            Move::Effect(client) => Ask::Effect {
                token: token(client)?,
            },
            Move::Complete(client, result) => Ask::Complete {
                token: token(client)?,
                result,
            },
            Move::Fail(client, bury) => Ask::Fail {
                token: token(client)?,
                bury,
            },
            Move::Release(client) => Ask::Release {
                token: token(client)?,
            },
            Move::Operator(ask) => ask,
        };
        Some(Some(ask))
    }
}

impl Walk {
    /// Makes one move and checks all rules. `None` where it cannot be made, changes nothing or went wrong.
    fn step(&mut self, node: &Node, made: Move) -> Option<Node> {
        let mut after = node.clone();
        after.path.push(made);
        let Some(ask) = node.ask(made)? else {
            after.instant += 1;
            after.paper.now = *INSTANTS.get(after.instant)?;
            return Some(after);
        };
        let noted = node
            .settled
            .as_ref()
            .map(|record| self.rules.settle(node, record));
        let plain = self.rules.decide(node, node.plain.as_ref(), ask);
        let settled = self.rules.decide(node, noted.as_ref(), ask);
        let expected = after.paper.answer(ask);
        after.plain = plain.leaves(node.plain.as_ref());
        after.settled = settled.leaves(noted.as_ref());
        if let (Move::Claim { client, .. }, Verdict::Acquired(_)) = (made, &plain.outcome.verdict) {
            after.tokens[client] = after.plain.as_ref().map(|record| record.token.get());
        }
        match self
            .rules
            .check(node, ask, [&plain, &settled], expected, &after)
        {
            Ok(()) => (!after.same(node)).then_some(after),
            Err(wrong) => {
                self.note(&format!("{}: {wrong}", kind(ask)), &after.path);
                None
            }
        }
    }

    fn note(&mut self, wrong: &str, path: &[Move]) {
        self.wrong
            .entry(wrong.to_owned())
            .or_insert_with(|| format!("{path:?}"));
    }
}
