//! One record driven by words, and tables of words: how the rules of SPEC 2 to 5 are written down as tests.
//!
//! A row is `given | command | answer | then`. *Given* names a state of [`GIVEN`] or lists commands between
//! semicolons; ` / ` separates several givens for which the row holds. *Answer* is the outcome and facts of
//! the answer, *then* the state and facts of the record as `get` shows it afterwards, or `same` where nothing
//! may have changed. A fact is `name=value`, or `-name` for one that must not be told. In values `_` is a space.

use bytes::Bytes;
use onced::model::body::{Body, Content, DEFAULT_CONTENT_TYPE};
use onced::model::command::{Claim, Command, Mode, Payload, Verb};
use onced::model::key::RecordKey;
use onced::model::outcome::{Field, Fields};
use onced::model::policy::{FingerprintKind, Policy};
use onced::model::record::{KeptResult, OnLeaseEnd, Record, Retention, Token, Window};
use onced::model::time::{BootTime, Now, Span, Timestamp};
use onced::model::transition::{Context, Effect, Step, apply};
use std::sync::Arc;

/// The named states, with the default policy: lease 60s, retention 72h.
pub(super) const GIVEN: &[(&str, &str)] = &[
    ("absent", ""),
    ("pending", "claim id=c1 owner=ann fp=f1"),
    ("announced", "pending; effect 1"),
    ("orphan", "pending; wait 60s"),
    ("backoff", "pending; fail 1 error=boom retry=10s"),
    ("due", "backoff; wait 10s"),
    ("done", "pending; complete 1 result=ok"),
    ("once", "claim once id=c1 fp=f1 result=ok"),
    ("expired", "done; wait 72h"),
    ("in_doubt", "announced; wait 60s"),
    ("held", "claim id=c1 fp=f1 on_lease_end=hold; wait 60s"),
    ("dead", "claim id=c1 fp=f1 max=1; wait 60s"),
    ("failed_dead", "claim id=c1 fp=f1 max=1; fail 1 error=boom"),
    ("buried", "pending; fail 1 bury error=bad"),
    ("replayed", "buried; replay"),
    ("second", "orphan; claim id=c2 owner=bob"),
    ("string", "set v"),
];

/// Where both clocks stand at first; apart, so that no test passes by mixing them up.
const START: (u64, u64) = (1_767_225_600_000, 5_000_000);

/// A store of one key.
pub(super) struct World {
    pub(super) policy: Policy,
    pub(super) record: Option<Arc<Record>>,
    key: RecordKey,
    elapsed: u64,
    next_token: Token,
    full: bool,
}

impl World {
    pub(super) fn new() -> World {
        World::of(b"k")
    }

    /// One of that key.
    pub(super) fn of(key: &[u8]) -> World {
        World {
            policy: Policy::default(),
            record: None,
            key: RecordKey::new("ns", key).unwrap(),
            elapsed: 0,
            next_token: Token::FIRST,
            full: false,
        }
    }

    /// Runs commands between semicolons; the last one's decision, if it was one.
    pub(super) fn run(&mut self, script: &str) -> Option<Step> {
        let mut last = None;
        for command in script
            .split(';')
            .map(str::trim)
            .filter(|command| !command.is_empty())
        {
            last = match GIVEN.iter().find(|(name, _)| *name == command) {
                Some((_, script)) => self.run(script),
                None => self.command(command),
            };
        }
        last
    }

    pub(super) fn now(&self) -> Now {
        Now {
            time: Timestamp::from_millis(START.0 + self.elapsed),
            boot: BootTime::from_millis(START.1 + self.elapsed),
            between: false,
            wall_ahead: 0,
        }
    }

    /// Decides and keeps what was decided.
    fn ask(&mut self, command: &Command) -> Step {
        let context = Context {
            policy: &self.policy,
            now: self.now(),
            token: Some(self.next_token),
            slide: !self.full,
        };
        let step = apply(context, self.record.as_ref(), command);
        if step.granted {
            self.next_token = self.next_token.next().unwrap();
        }
        match &step.effect {
            Effect::None => {}
            Effect::Put(record) => self.record = Some(record.clone()),
            Effect::Remove => self.record = None,
        }
        step
    }

    fn command(&mut self, text: &str) -> Option<Step> {
        let mut words = Words::new(text);
        match words.verb {
            "wait" => self.elapsed += span(words.plain().unwrap()).as_millis(),
            "full" => self.full = true,
            "policy" => self.set_policy(&mut words),
            _ => {
                let (verb, by) = (words.asked(), words.text("by"));
                words.finish();
                return Some(self.ask(&Command {
                    by,
                    ..Command::new(self.key.clone(), verb)
                }));
            }
        }
        words.finish();
        None
    }

    fn set_policy(&mut self, words: &mut Words<'_>) {
        let policy = &mut self.policy;
        let delay = |value: Option<&str>, to: &mut Span| *to = value.map_or(*to, span);
        delay(words.value("lease"), &mut policy.lease);
        delay(words.value("backoff"), &mut policy.backoff);
        delay(words.value("backoff_max"), &mut policy.backoff_max);
        if let Some(value) = words.value("retention") {
            policy.retention = retention(value);
        }
        if let Some(value) = words.value("forget_open_after") {
            policy.forget_open_after = retention(value);
        }
        if let Some(value) = words.value("window") {
            policy.window = Window::parse(value).unwrap();
        }
        if let Some(value) = words.value("max") {
            policy.max_attempts = value.parse().unwrap();
        }
        if let Some(value) = words.value("on_lease_end") {
            policy.on_lease_end = OnLeaseEnd::parse(value).unwrap();
        }
        if let Some(value) = words.value("fingerprint") {
            policy.fingerprint = FingerprintKind::parse(value).unwrap();
        }
    }
}

/// Checks every row of a table, each in a world of its own, and names all that fail.
pub(super) fn check(table: &str) {
    let mut failures = Vec::new();
    let mut rows = 0;
    for line in table
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [givens, command, answer, then] = cells[..] else {
            panic!("not a row of four cells: {line}");
        };
        for given in givens.split(" / ").map(str::trim) {
            rows += 1;
            if let Err(failure) = row(given, command, answer, then) {
                failures.push(format!("{given} | {command}\n    {failure}"));
            }
        }
    }
    assert!(rows > 0, "an empty table proves nothing");
    assert!(
        failures.is_empty(),
        "{} of {rows} rows:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn row(given: &str, command: &str, answer: &str, then: &str) -> Result<(), String> {
    let mut world = World::new();
    world.run(given);
    let before = world.record.clone();
    let step = world.run(command).expect("the last command asks something");
    let refused = step.outcome.verdict.refused();
    if refused && matches!(step.effect, Effect::Put(_)) && step.late.is_none() {
        return Err("a refusal changed the record".into());
    }
    matches("answer", &step.outcome.fields(), answer)?;
    if then == "same" {
        return if matches!(step.effect, Effect::None) && world.record == before {
            Ok(())
        } else {
            Err(format!("not the same: {:?}", world.record))
        };
    }
    let shown = world.run("get").expect("get asks");
    matches("then", &shown.outcome.fields(), then)
}

/// Compares the words expected with the members of an answer; the first word is its outcome or state.
fn matches(what: &str, fields: &Fields, expected: &str) -> Result<(), String> {
    let facts = flatten(fields);
    let fact = |name: &str| {
        facts
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    };
    let mut words = expected.split_whitespace();
    let head = words.next().unwrap_or_default();
    let actual = match (fact("outcome"), fact("state")) {
        (Some("not_found"), None) if head == "absent" => Some("absent"),
        (Some(outcome), _) => Some(outcome),
        (None, state) => state,
    };
    let told = || {
        facts
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    if actual != Some(head) {
        return Err(format!("{what}: expected {head}, got {}", told()));
    }
    for word in words {
        let holds = match (word.strip_prefix('-'), word.split_once('=')) {
            (Some(name), _) => fact(name).is_none(),
            (None, Some((name, value))) => fact(name) == Some(value),
            (None, None) => panic!("not a fact: {word}"),
        };
        if !holds {
            return Err(format!("{what}: expected {word}, got {}", told()));
        }
    }
    Ok(())
}

/// Members as text, those of a member of its own with a dot; times as the span since the start.
fn flatten(fields: &Fields) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    for (name, field) in fields {
        let mut add = |name: String, value: String| facts.push((name, value.replace(' ', "_")));
        let name = (*name).to_owned();
        match field {
            Field::Null => add(name, "null".into()),
            Field::Bool(value) => add(name, value.to_string()),
            Field::Int(value) => add(name, value.to_string()),
            Field::Text(value) => add(name, value.clone()),
            Field::Time(value) => add(
                name,
                value.since(Timestamp::from_millis(START.0)).to_string(),
            ),
            Field::Body { body, status } => {
                add(format!("{name}.type"), body.content_type.to_string());
                add(
                    format!("{name}.status"),
                    status.map_or("null".into(), |status| status.to_string()),
                );
                add(name, text_of(&body.content));
            }
            Field::Handed(content) => add(name, content.as_ref().map_or("false".into(), text_of)),
            Field::Map(inner) => {
                let inner = flatten(inner).into_iter();
                inner.for_each(|(member, value)| add(format!("{name}.{member}"), value));
            }
            Field::List(items) => {
                let column = |member: &str| {
                    let texts = items.iter().filter_map(|item| match item {
                        Field::Map(inner) => flatten(inner)
                            .into_iter()
                            .find(|(known, _)| known == member),
                        _ => None,
                    });
                    texts.map(|(_, value)| value).collect::<Vec<_>>()
                };
                add(format!("{name}.tokens"), column("token").join(","));
                add(
                    format!("{name}.by"),
                    column("by").last().cloned().unwrap_or_default(),
                );
                add(
                    format!("{name}.at"),
                    column("at").last().cloned().unwrap_or_default(),
                );
                add(name, column("event").join(","));
            }
        }
    }
    facts
}

fn text_of(content: &Content) -> String {
    String::from_utf8_lossy(content.bytes().unwrap()).into_owned()
}

/// The words of one command; every one has to be understood.
struct Words<'a> {
    text: &'a str,
    verb: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Words<'a> {
        let mut rest: Vec<&str> = text.split_whitespace().collect();
        let verb = rest.remove(0);
        Words { text, verb, rest }
    }

    fn flag(&mut self, name: &str) -> bool {
        let found = self.rest.iter().position(|word| *word == name);
        found.map(|place| self.rest.remove(place)).is_some()
    }

    fn value(&mut self, name: &str) -> Option<&'a str> {
        let of = |word: &&'a str| {
            word.strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('='))
        };
        let place = self.rest.iter().position(|word| of(word).is_some())?;
        of(&self.rest.remove(place))
    }

    fn text(&mut self, name: &str) -> Option<Box<str>> {
        self.value(name)
            .map(|value| repeated(value).replace('_', " ").into())
    }

    /// The first word that is neither flag nor pair of a name and a value.
    fn plain(&mut self) -> Option<&'a str> {
        let place = self.rest.iter().position(|word| !word.contains('='))?;
        Some(self.rest.remove(place))
    }

    fn token(&mut self) -> Token {
        self.plain()
            .and_then(|word| Token::new(word.parse().ok()?))
            .unwrap_or_else(|| panic!("no token: {}", self.text))
    }

    /// `by_hand` in place of a token.
    fn hand_or_token(&mut self) -> Option<Token> {
        if self.flag("by_hand") {
            None
        } else {
            Some(self.token())
        }
    }

    fn finish(&self) {
        assert!(
            self.rest.is_empty(),
            "not understood: {:?} in {}",
            self.rest,
            self.text
        );
    }

    fn asked(&mut self) -> Verb {
        match self.verb {
            "claim" => Verb::Claim(Box::new(self.claim())),
            "renew" => Verb::Renew {
                token: self.token(),
                lease: self.value("lease").map(span),
            },
            "effect" => Verb::Effect {
                token: self.token(),
            },
            "complete" => {
                let token = self.hand_or_token();
                Verb::Complete {
                    token,
                    result: self.result().unwrap_or_else(|| kept("", None, None)),
                }
            }
            "fail" => {
                let bury = self.flag("bury");
                let (error, retry_in) = (self.text("error"), self.value("retry").map(span));
                Verb::Fail {
                    token: self.hand_or_token(),
                    error,
                    retry_in,
                    bury,
                }
            }
            "release" => Verb::Release {
                token: self.token(),
            },
            "get" => Verb::Get,
            "replay" => Verb::Replay {
                generation: self.value("generation").map(|value| value.parse().unwrap()),
                force: self.flag("force"),
            },
            "forget" => Verb::Forget {
                force: self.flag("force"),
            },
            "set" => Verb::String(self.set()),
            _ => panic!("no such verb: {}", self.text),
        }
    }

    fn claim(&mut self) -> Claim {
        let content_type = self.value("type").unwrap_or("text/plain");
        let payload = self.value("payload").map(|payload| {
            Payload::new(
                Bytes::copy_from_slice(payload.as_bytes()),
                content_type.into(),
            )
        });
        Claim {
            lease: self.value("lease").map(span),
            retention: self.value("retention").map(retention),
            on_lease_end: self
                .value("on_lease_end")
                .map(|value| OnLeaseEnd::parse(value).unwrap()),
            max_attempts: self.value("max").map(|value| value.parse().unwrap()),
            claim_id: self.text("id"),
            owner: self.text("owner"),
            fingerprint: self.text("fp"),
            payload,
            store: self.flag("store"),
            wait: self.value("wait").map_or(Span::ZERO, span),
            mode: if self.flag("once") {
                Mode::Once {
                    result: self.result(),
                }
            } else {
                Mode::Lease
            },
        }
    }

    fn result(&mut self) -> Option<KeptResult> {
        let (content_type, status) = (self.value("result_type"), self.value("status"));
        self.value("result")
            .map(|result| kept(result, content_type, status))
    }

    fn set(&mut self) -> onced::model::command::StringVerb {
        use onced::model::command::{Expiry, Set, StringVerb};
        let value = Bytes::copy_from_slice(self.plain().unwrap().as_bytes());
        StringVerb::Set(Box::new(Set {
            value,
            when: None,
            get: false,
            expiry: Expiry::Never,
        }))
    }
}

fn kept(result: &str, content_type: Option<&str>, status: Option<&str>) -> KeptResult {
    let content_type = content_type.unwrap_or(DEFAULT_CONTENT_TYPE).into();
    let content = Content::new(Bytes::from(repeated(result)));
    KeptResult {
        body: Body {
            content_type,
            content,
        },
        status: status.map(|status| status.parse().unwrap()),
    }
}

/// `x*5` is `xxxxx`, so that limits can be met in a table.
fn repeated(value: &str) -> String {
    match value
        .split_once('*')
        .and_then(|(text, count)| Some(text.repeat(count.parse().ok()?)))
    {
        Some(text) => text,
        None => value.to_owned(),
    }
}

fn span(text: &str) -> Span {
    Span::parse(text).unwrap()
}

fn retention(text: &str) -> Retention {
    if text == "forever" {
        Retention::Forever
    } else {
        Retention::For(span(text))
    }
}
