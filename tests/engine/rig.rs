//! An engine with next to no memory, and commands for it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onced::engine::{Engine, Options, Unavailable, Unit};
use onced::model::body::{Body, Content};
use onced::model::command::{Command, Expiry, Set, StringVerb, Verb};
use onced::model::key::RecordKey;
use onced::model::outcome::{Outcome, StringReply, Verdict};
use onced::model::record::{KeptResult, Token};
use onced::model::time::Span;

/// Bytes of memory for recent writes: about a hundred small records.
const RECENT: usize = 128 << 10;

/// Small and quick: a checkpoint every few dozen records, and every few milliseconds without any.
pub(super) fn options() -> Options {
    let mut options = Options {
        recent_bytes: RECENT,
        body_limit: 12 << 10,
        reserve: 0,
        tick: Duration::from_millis(3),
        ..Options::default()
    };
    options.journal.segment_size = 512 << 10;
    options
}

pub(super) fn open(dir: &Path) -> Engine {
    Engine::open(dir, options()).unwrap().0
}

pub(super) fn key(key: &str) -> RecordKey {
    RecordKey::new("default", key.as_bytes()).unwrap()
}

pub(super) fn unit(name: &str, verb: Verb) -> Unit {
    Unit::One(Command::new(key(name), verb))
}

pub(super) async fn ask(engine: &Engine, name: &str, verb: Verb) -> Result<Outcome, Unavailable> {
    engine.submit(vec![unit(name, verb)]).await.remove(0)
}

pub(super) async fn tell(engine: &Engine, name: &str, verb: Verb) -> Outcome {
    ask(engine, name, verb).await.unwrap()
}

pub(super) fn claim() -> Verb {
    Verb::Claim(Box::default())
}

pub(super) async fn acquire(engine: &Engine, name: &str) -> Token {
    let got = tell(engine, name, claim()).await;
    assert!(
        matches!(got.verdict, Verdict::Acquired(_)),
        "{name}: {got:?}"
    );
    got.record.unwrap().record.token
}

pub(super) fn complete(token: Token, bytes: Vec<u8>) -> Verb {
    let body = Body {
        content_type: "a/b".into(),
        content: Content::new(bytes.into()),
    };
    let result = KeptResult { body, status: None };
    Verb::Complete {
        token: Some(token),
        result,
    }
}

pub(super) fn set(value: &[u8], expiry: Expiry) -> Verb {
    Verb::String(StringVerb::Set(Box::new(Set {
        value: Bytes::copy_from_slice(value),
        when: None,
        get: false,
        expiry,
    })))
}

pub(super) fn expire(span: Span) -> Verb {
    Verb::String(StringVerb::Expire {
        to: Expiry::In(span),
        when: onced::model::command::ExpireWhen::default(),
    })
}

/// The bytes of a string or result; `None` where there is no record.
pub(super) async fn value(engine: &Engine, name: &str) -> Option<Vec<u8>> {
    let got = tell(engine, name, Verb::String(StringVerb::Read)).await;
    let content = got.string_value().ok()?;
    content.map(|content| content.bytes().expect("the bytes with the answer").to_vec())
}

pub(super) async fn add(engine: &Engine, name: &str) -> i64 {
    let got = tell(engine, name, Verb::String(StringVerb::Add(1))).await;
    match got.verdict {
        Verdict::String(StringReply::Number(number)) => number,
        other => panic!("{name}: {other:?}"),
    }
}

/// More new records than memory holds twice: whatever was decided before is in the store then. How many.
pub(super) async fn overfill(engine: &Engine) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let (mut written, mut records) = (0, 0);
    while written < 2 * RECENT {
        let filler = format!("filler-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let value = [b'f'; 4000];
        tell(
            engine,
            &filler,
            set(&value, Expiry::In(Span::from_secs(3600))),
        )
        .await;
        written += value.len();
        records += 1;
    }
    records
}
