//! What clients and operators ask: they race on few keys, lose answers and ask again, die, and finish late.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::dice::Dice;
use crate::engine::Unit;
use crate::model::body::{Body, Content};
use crate::model::command::{
    Claim, Command, ExpireWhen, Expiry, Mode, Payload, Set, SetWhen, StringVerb, Verb,
};
use crate::model::key::RecordKey;
use crate::model::outcome::{Outcome, Verdict};
use crate::model::policy::Policy;
use crate::model::record::{KeptResult, OnLeaseEnd, Retention, State, Token, Window};
use crate::model::time::Span;

/// The namespaces, each with a rule of its own.
pub(super) const NAMESPACES: [&str; 4] = ["default", "hold", "slide", "db1"];
pub(super) const KEYS: u64 = 4;

pub(super) fn policies() -> BTreeMap<String, Policy> {
    let short = Policy {
        lease: Span::from_secs(30),
        retention: Retention::For(Span::from_secs(90)),
        max_attempts: 3,
        ..Policy::default()
    };
    let hold = Policy {
        on_lease_end: OnLeaseEnd::Hold,
        ..short.clone()
    };
    let slide = Policy {
        window: Window::Sliding,
        ..short.clone()
    };
    [("default", short), ("hold", hold), ("slide", slide)]
        .map(|(name, policy)| (name.into(), policy))
        .into()
}

/// Every key that anybody ever names.
pub(super) fn all_keys() -> Vec<RecordKey> {
    let names = NAMESPACES.iter();
    names
        .flat_map(|namespace| (0..KEYS).map(|number| key(namespace, number)))
        .collect()
}

fn key(namespace: &str, number: u64) -> RecordKey {
    RecordKey::new(namespace, format!("k{number}").as_bytes()).unwrap()
}

/// A client that holds a claim.
#[derive(Clone, Debug)]
struct Hold {
    key: RecordKey,
    token: Token,
    /// What it asked, to ask again where it lost the answer.
    asked: Command,
}

/// All of them, as far as they know things.
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    holds: Vec<Hold>,
    /// Holders that vanished: some come back late.
    vanished: Vec<(RecordKey, Token)>,
    /// Bodies are as large as a record takes in, so that segments fill.
    pub(super) heavy: bool,
    /// Numbers everything that has to be told apart.
    count: u64,
}

impl Clients {
    /// What somebody asks next.
    pub(super) fn next(&mut self, dice: &mut Dice) -> Unit {
        self.count += 1;
        match dice.below(20) {
            0..7 => Unit::One(self.claim(dice)),
            7..13 => match self.holds.is_empty() {
                true => Unit::One(self.claim(dice)),
                false => Unit::One(self.holder(dice)),
            },
            13 => Unit::One(self.late(dice)),
            14 => self.all(dice),
            15..18 => Unit::One(self.text(dice)),
            18 => Unit::One(Command::new(self.any_key(dice), Verb::Get)),
            _ => Unit::One(self.operator(dice)),
        }
    }

    /// Somebody hears an answer; some lose it.
    pub(super) fn hear(&mut self, command: &Command, outcome: &Outcome, dice: &mut Dice) {
        let (Verdict::Acquired(_), Some(shown)) = (&outcome.verdict, &outcome.record) else {
            return;
        };
        if shown.state == State::Pending && !dice.one_in(8) {
            self.holds.push(Hold {
                key: command.key.clone(),
                token: shown.record.token,
                asked: command.clone(),
            });
        } else if shown.state == State::Pending {
            self.vanished
                .push((command.key.clone(), shown.record.token));
        }
    }

    fn any_key(&self, dice: &mut Dice) -> RecordKey {
        let namespace = *dice.of(&NAMESPACES);
        key(namespace, dice.below(KEYS))
    }

    fn bytes(&self, dice: &mut Dice) -> Bytes {
        let len = match dice.below(12) {
            0 => 4097 + dice.below(1500) as usize,
            1 => 0,
            _ if self.heavy => 1000 + dice.below(3000) as usize,
            _ => 4 + dice.below(60) as usize,
        };
        let text = format!("{} of {};", self.count, dice.roll());
        text.bytes().cycle().take(len).collect()
    }

    fn result(&self, dice: &mut Dice) -> KeptResult {
        KeptResult {
            body: Body {
                content_type: "a/b".into(),
                content: Content::new(self.bytes(dice)),
            },
            status: dice.one_in(3).then_some(201),
        }
    }

    fn claim(&mut self, dice: &mut Dice) -> Command {
        // Again, with the same id: the answer was lost.
        if let Some(hold) = pick(&self.holds, dice)
            && dice.one_in(5)
        {
            return hold.asked.clone();
        }
        let lease = |dice: &mut Dice| Span::from_millis(200 + dice.below(20_000));
        let mut claim = Claim {
            lease: dice.one_in(3).then(|| lease(dice)),
            claim_id: (!dice.one_in(5)).then(|| format!("id-{}", self.count).into()),
            owner: dice.one_in(2).then(|| format!("w{}", self.count).into()),
            ..Claim::default()
        };
        if dice.one_in(5) {
            claim.retention = Some(Retention::For(Span::from_secs(1 + dice.below(200))));
        }
        if dice.one_in(12) {
            claim.retention = Some(Retention::Forever);
        }
        if dice.one_in(8) {
            claim.max_attempts = Some(dice.below(3) as u32);
        }
        if dice.one_in(6) {
            claim.fingerprint = Some(format!("f{}", dice.below(3)).into());
        }
        if dice.one_in(4) {
            claim.payload = Some(Payload::new(self.bytes(dice), "a/b".into()));
            claim.store = dice.one_in(2);
        }
        if dice.one_in(3) {
            claim.wait = Span::from_millis(1 + dice.below(8000));
        }
        if dice.one_in(5) {
            let result = dice.one_in(2).then(|| self.result(dice));
            claim.mode = Mode::Once { result };
        }
        Command::new(self.any_key(dice), Verb::Claim(Box::new(claim)))
    }

    /// One who holds a claim goes on, ends it, or vanishes.
    fn holder(&mut self, dice: &mut Dice) -> Command {
        let at = dice.below(self.holds.len() as u64) as usize;
        let Hold { key, token, asked } = self.holds[at].clone();
        let verb = match dice.below(16) {
            0..2 => Verb::Renew {
                token,
                lease: dice.one_in(2).then(|| Span::from_secs(1 + dice.below(40))),
            },
            2 => Verb::Effect { token },
            3..9 => Verb::Complete {
                token: Some(token),
                result: self.result(dice),
            },
            9..12 => Verb::Fail {
                token: Some(token),
                error: Some(format!("error {}", self.count).into()),
                retry_in: dice.one_in(2).then(|| Span::from_millis(dice.below(5000))),
                bury: dice.one_in(5),
            },
            12 => Verb::Release { token },
            13 => {
                self.vanished.push((key.clone(), token));
                self.holds.swap_remove(at);
                return self.claim(dice);
            }
            _ => return asked,
        };
        // Some say it twice.
        if !matches!(verb, Verb::Renew { .. } | Verb::Effect { .. }) && !dice.one_in(4) {
            self.holds.swap_remove(at);
            if dice.one_in(3) {
                self.vanished.push((key.clone(), token));
            }
        }
        Command::new(key, verb)
    }

    /// One who had vanished comes back.
    fn late(&mut self, dice: &mut Dice) -> Command {
        let Some((key, token)) = pick(&self.vanished, dice).cloned() else {
            return self.claim(dice);
        };
        let verb = match dice.below(4) {
            0 => Verb::Renew { token, lease: None },
            1 => Verb::Release { token },
            _ => Verb::Complete {
                token: Some(token),
                result: self.result(dice),
            },
        };
        Command::new(key, verb)
    }

    /// Set-once claims of several keys that stand or fall together.
    fn all(&mut self, dice: &mut Dice) -> Unit {
        let namespace = *dice.of(&NAMESPACES);
        let first = dice.below(KEYS);
        let claims = (0..2 + dice.below(2)).map(|more| {
            let result = Some(self.result(dice));
            let claim = Claim {
                mode: Mode::Once { result },
                retention: Some(Retention::For(Span::from_secs(1 + dice.below(60)))),
                ..Claim::default()
            };
            let key = key(namespace, (first + more) % KEYS);
            Command::new(key, Verb::Claim(Box::new(claim)))
        });
        Unit::All(claims.collect())
    }

    fn text(&mut self, dice: &mut Dice) -> Command {
        let expiry = match dice.below(3) {
            0 => Expiry::Never,
            1 => Expiry::Keep,
            _ => Expiry::In(Span::from_millis(500 + dice.below(90_000))),
        };
        let verb = match dice.below(8) {
            0..4 => StringVerb::Set(Box::new(Set {
                value: match dice.below(4) {
                    0 => dice.below(100).to_string().into(),
                    _ => self.bytes(dice),
                },
                when: match dice.below(3) {
                    0 => None,
                    1 => Some(SetWhen::Absent),
                    _ => Some(SetWhen::Present),
                },
                get: false,
                expiry,
            })),
            4 => StringVerb::Read,
            5 => StringVerb::Delete { when: None },
            6 => StringVerb::Expire {
                to: Expiry::In(Span::from_millis(500 + dice.below(90_000))),
                when: ExpireWhen::default(),
            },
            _ => StringVerb::Add(dice.below(10) as i64 - 4),
        };
        let namespace = if dice.one_in(4) { "default" } else { "db1" };
        Command::new(key(namespace, dice.below(KEYS)), Verb::String(verb))
    }

    fn operator(&mut self, dice: &mut Dice) -> Command {
        let key = self.any_key(dice);
        let verb = match dice.below(6) {
            0..2 => Verb::Replay {
                generation: dice.one_in(4).then(|| 1 + dice.below(3) as u32),
                force: dice.one_in(2),
            },
            2 => Verb::Forget {
                force: dice.one_in(3),
            },
            3 => Verb::Complete {
                token: None,
                result: self.result(dice),
            },
            _ => Verb::Fail {
                token: None,
                error: Some(format!("by hand {}", self.count).into()),
                retry_in: None,
                bury: dice.one_in(2),
            },
        };
        let by = Some("operator".into());
        Command {
            by,
            ..Command::new(key, verb)
        }
    }
}

/// How long a unit may be held.
pub(super) fn wait_of(unit: &Unit) -> Span {
    match unit {
        Unit::One(command) => crate::engine::waiters::wait_of(command).unwrap_or(Span::ZERO),
        Unit::All(_) => Span::ZERO,
    }
}

/// The same, by somebody who does not wait.
pub(super) fn at_once(mut unit: Unit) -> Unit {
    if let Unit::One(command) = &mut unit
        && let Verb::Claim(claim) = &mut command.verb
    {
        claim.wait = Span::ZERO;
    }
    unit
}

fn pick<'a, T>(all: &'a [T], dice: &mut Dice) -> Option<&'a T> {
    all.get(dice.below(all.len() as u64) as usize)
}
