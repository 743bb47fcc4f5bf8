//! What one decision takes: no clock, no disk, no bytes.

// The macros of the harness make functions that nobody documents.
#![allow(missing_docs)]
// A bench may fail loudly.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, criterion_group, criterion_main};
use onced::model::body::{Body, Content, DEFAULT_CONTENT_TYPE};
use onced::model::command::{Claim, Command, Expiry, Set, SetWhen, StringVerb, Verb};
use onced::model::key::RecordKey;
use onced::model::policy::Policy;
use onced::model::record::{KeptResult, Record, Token};
use onced::model::time::{BootTime, Now, Span, Timestamp};
use onced::model::transition::{Context, Effect, apply};

fn key() -> RecordKey {
    RecordKey::new("default", b"key:000000000042").unwrap()
}

fn context(policy: &Policy) -> Context<'_> {
    let now = Now {
        time: Timestamp::from_millis(1_767_323_045_678),
        boot: BootTime::from_millis(1_000_000),
        ..Now::default()
    };
    Context {
        policy,
        now,
        token: Some(Token::FIRST),
        slide: true,
    }
}

fn claim() -> Command {
    Command::new(key(), Verb::Claim(Box::default()))
}

fn complete() -> Command {
    let result = KeptResult {
        body: Body {
            content_type: DEFAULT_CONTENT_TYPE.into(),
            content: Content::new(Bytes::from_static(b"{\"ok\":true}")),
        },
        status: None,
    };
    let token = Some(Token::FIRST);
    Command::new(key(), Verb::Complete { token, result })
}

fn set_nx() -> Command {
    let set = Set {
        value: Bytes::from_static(b"pending"),
        when: Some(SetWhen::Absent),
        get: false,
        expiry: Expiry::In(Span::from_secs(86_400)),
    };
    Command::new(key(), Verb::String(StringVerb::Set(Box::new(set))))
}

/// The record after that command.
fn after(context: Context<'_>, record: Option<&Arc<Record>>, command: &Command) -> Arc<Record> {
    match apply(context, record, command).effect {
        Effect::Put(record) => record,
        other => panic!("{command:?} made {other:?}"),
    }
}

fn decisions(criterion: &mut Criterion) {
    let policy = Policy::default();
    let context = context(&policy);
    let owned = Claim {
        owner: Some("worker-1".into()),
        claim_id: Some("b6a7b9a1".into()),
        ..Claim::default()
    };
    let owned = Command::new(key(), Verb::Claim(Box::new(owned)));
    let (claim, complete, set) = (claim(), complete(), set_nx());
    let pending = after(context, None, &claim);
    let done = after(context, Some(&pending), &complete);
    let string = after(context, None, &set);
    let table = [
        ("claim, new", None, &claim),
        ("claim with owner and id, new", None, &owned),
        ("claim, busy", Some(&pending), &claim),
        ("claim, done", Some(&done), &claim),
        ("complete", Some(&pending), &complete),
        ("complete, again", Some(&done), &complete),
        ("set nx, new", None, &set),
        ("set nx, duplicate", Some(&string), &set),
    ];
    let mut group = criterion.benchmark_group("model");
    for (name, record, command) in table {
        group.bench_function(name, |bencher| {
            bencher.iter(|| apply(black_box(context), black_box(record), black_box(command)));
        });
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
