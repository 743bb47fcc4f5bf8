//! Waiting, step by step: clients are polled by hand, so that each interleaving is the one its test names.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::{MAX_WAITERS, MAX_WAITING_BYTES};
use crate::engine::clock::{ManualClock, Source, Timer};
use crate::engine::{Engine, Options, Unavailable, Unit};
use crate::model::body::{Body, Content};
use crate::model::command::{Claim, Command, Mode, Payload, Verb};
use crate::model::key::RecordKey;
use crate::model::outcome::{Outcome, Reason, Verdict};
use crate::model::policy::Policy;
use crate::model::record::{KeptResult, Retention, Token};
use crate::model::time::Span;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(30);
const MINUTE: Span = Span::from_secs(60);

type Answer = Result<Outcome, Unavailable>;

/// How often a client was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Somebody who waits and does nothing by himself.
struct Client {
    future: Pin<Box<dyn Future<Output = Vec<Answer>> + Send>>,
    woken: Arc<Count>,
}

impl Client {
    /// Asks, and is held.
    fn held(engine: &Engine, key: &str, claim: Claim) -> Client {
        let mut client = Client::new(engine, key, claim);
        assert!(client.poll().is_none(), "{key} is not held");
        client
    }

    fn new(engine: &Engine, key: &str, claim: Claim) -> Client {
        let (engine, unit) = (engine.clone(), unit(key, Verb::Claim(claim.into())));
        Client {
            future: Box::pin(async move { engine.submit(vec![unit]).await }),
            woken: Arc::default(),
        }
    }

    fn poll(&mut self) -> Option<Answer> {
        let waker = Waker::from(self.woken.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(mut answers) => Some(answers.remove(0)),
            Poll::Pending => None,
        }
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::SeqCst)
    }

    /// Goes on whenever it is woken, until it is answered.
    fn answer(&mut self) -> Answer {
        let (begun, mut seen) = (Timer::start(), 0);
        loop {
            assert!(begun.elapsed() < PATIENCE, "nobody told it");
            let woken = self.woken();
            if woken > seen {
                seen = woken;
                if let Some(answer) = self.poll() {
                    return answer;
                }
            }
            std::thread::yield_now();
        }
    }

    #[track_caller]
    fn verdict(&mut self) -> Verdict {
        self.answer().unwrap().verdict
    }
}

fn unit(key: &str, verb: Verb) -> Unit {
    Unit::One(Command::new(
        RecordKey::new("default", key.as_bytes()).unwrap(),
        verb,
    ))
}

/// A runtime of its own: nobody who is polled by hand is on it.
fn ask(engine: &Engine, key: &str, verb: Verb) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut answers = runtime.block_on(engine.submit(vec![unit(key, verb)]));
    answers.remove(0).unwrap()
}

fn acquire(engine: &Engine, key: &str) -> Token {
    let got = ask(engine, key, Verb::Claim(Box::default()));
    assert!(matches!(got.verdict, Verdict::Acquired(_)), "{got:?}");
    got.record.unwrap().record.token
}

fn waiting() -> Claim {
    Claim {
        wait: MINUTE,
        ..Claim::default()
    }
}

fn complete(token: Token) -> Verb {
    let body = Body {
        content_type: "a/b".into(),
        content: Content::new(b"r"[..].into()),
    };
    Verb::Complete {
        token: Some(token),
        result: KeptResult { body, status: None },
    }
}

fn fail(token: Token, retry_in: Span) -> Verb {
    Verb::Fail {
        token: Some(token),
        error: None,
        retry_in: Some(retry_in),
        bury: false,
    }
}

/// An engine whose clock stands still, and how it is moved.
fn house() -> (Engine, Arc<ManualClock>) {
    house_of(Policy::default())
}

fn house_of(policy: Policy) -> (Engine, Arc<ManualClock>) {
    let clock = ManualClock::new(1_767_323_045_000, 1_000_000);
    let engine = Engine::volatile(Options {
        clock: Source::Manual(clock.clone()),
        policies: [("default".to_owned(), policy)].into(),
        // No checkpoint comes between, and the time is kept by hand.
        tick: Duration::from_secs(3600),
        ..Options::default()
    });
    (engine, clock)
}

/// Time passes, and whoever keeps it has looked.
fn pass(engine: &Engine, clock: &ManualClock, span: Span) {
    clock.advance(span);
    super::ring_due(&engine.inner);
}

#[track_caller]
fn assert_nobody_waits(engine: &Engine) {
    let core = engine.inner.core.lock();
    let waiters = &core.waiters;
    let left = (waiters.queues.len(), waiters.timers.len());
    assert_eq!((left, waiters.count, waiters.bytes), ((0, 0), 0, 0));
}

#[test]
fn all_get_the_result_when_the_key_is_done() {
    let (engine, _) = house();
    let token = acquire(&engine, "k");
    let mut clients: Vec<_> = (0..5)
        .map(|_| Client::held(&engine, "k", waiting()))
        .collect();
    ask(&engine, "k", complete(token));
    for client in &mut clients {
        assert_eq!(client.verdict(), Verdict::Done);
    }
    assert_nobody_waits(&engine);
}

#[test]
fn each_event_wakes_one_in_the_order_they_came() {
    let (engine, _) = house();
    let mut token = acquire(&engine, "k");
    let mut clients: Vec<_> = (0..20)
        .map(|_| Client::held(&engine, "k", waiting()))
        .collect();
    for at in 0..clients.len() {
        match at % 3 {
            0 => ask(&engine, "k", Verb::Release { token }),
            1 => ask(&engine, "k", fail(token, Span::ZERO)),
            _ => ask(&engine, "k", Verb::Forget { force: true }),
        };
        let woken: usize = clients[at..].iter().map(Client::woken).sum();
        assert_eq!(woken, 1, "one event, one wake-up");
        let got = clients[at].answer().unwrap();
        assert!(matches!(got.verdict, Verdict::Acquired(_)), "{at}: {got:?}");
        token = got.record.unwrap().record.token;
    }
    assert_nobody_waits(&engine);
}

#[test]
fn what_leaves_the_key_busy_wakes_nobody() {
    let (engine, clock) = house();
    let token = acquire(&engine, "k");
    let client = Client::held(&engine, "k", waiting());
    pass(&engine, &clock, Span::from_secs(50));
    let lease = Some(Span::from_secs(600));
    ask(&engine, "k", Verb::Renew { token, lease });
    ask(&engine, "k", Verb::Get);
    acquire(&engine, "another");
    assert_eq!(client.woken(), 0);
    let timers = engine.inner.core.lock().waiters.timers.len();
    assert_eq!(timers, 2, "its own time, and the end of the lease");
}

#[test]
fn whoever_is_gone_is_skipped_also_in_the_moment_of_its_wake_up() {
    let (engine, _) = house();
    for gone_when_woken in [false, true] {
        let token = acquire(&engine, "k");
        let mut clients: Vec<_> = (0..4)
            .map(|_| Client::held(&engine, "k", waiting()))
            .collect();
        let first = clients.remove(0);
        let second = clients.remove(0);
        drop(second);
        if !gone_when_woken {
            drop(first);
            ask(&engine, "k", Verb::Release { token });
        } else {
            ask(&engine, "k", Verb::Release { token });
            assert_eq!((first.woken(), clients[0].woken()), (1, 0));
            drop(first);
        }
        let got = clients[0].answer().unwrap();
        assert_eq!(got.verdict, Verdict::Acquired(Reason::New));
        assert_eq!(clients[1].woken(), 0);
        drop(clients);
        assert_nobody_waits(&engine);
        let token = got.record.unwrap().record.token;
        ask(&engine, "k", Verb::Release { token });
    }
}

#[test]
fn whoever_is_called_and_finds_the_key_taken_keeps_its_place() {
    let (engine, _) = house();
    let token = acquire(&engine, "k");
    let mut first = Client::held(&engine, "k", waiting());
    let second = Client::held(&engine, "k", waiting());
    ask(&engine, "k", Verb::Release { token });
    assert_eq!((first.woken(), second.woken()), (1, 0));
    // One that does not wait is quicker.
    let token = acquire(&engine, "k");
    assert!(first.poll().is_none());
    let newest = Client::held(&engine, "k", waiting());
    ask(&engine, "k", Verb::Release { token });
    assert_eq!(
        (first.woken(), second.woken(), newest.woken()),
        (2, 0, 0),
        "it is first as before"
    );
    assert!(matches!(first.verdict(), Verdict::Acquired(_)));
}

#[test]
fn whoever_waits_does_not_overtake_those_who_waited_before() {
    let (engine, _) = house();
    let token = acquire(&engine, "k");
    let mut first = Client::held(&engine, "k", waiting());
    ask(&engine, "k", Verb::Release { token });
    // The key is free, and the first was told but has not looked yet.
    let mut second = Client::held(&engine, "k", waiting());
    let got = first.answer().unwrap();
    assert_eq!(got.verdict, Verdict::Acquired(Reason::New));
    assert_eq!(second.woken(), 0);
    let token = got.record.unwrap().record.token;
    ask(&engine, "k", complete(token));
    assert_eq!(second.verdict(), Verdict::Done);
}

#[test]
fn a_decision_that_is_final_for_one_lets_the_next_one_look() {
    let (engine, _) = house();
    let print = |print: &str| Claim {
        fingerprint: Some(print.into()),
        ..waiting()
    };
    let token = acquire(&engine, "k");
    let mut clients: Vec<_> = ["a", "b", "c", "a"]
        .iter()
        .map(|of| Client::held(&engine, "k", print(of)))
        .collect();
    ask(&engine, "k", fail(token, Span::ZERO));
    let got = clients[0].answer().unwrap();
    assert_eq!(got.verdict, Verdict::Acquired(Reason::Retry));
    let token = got.record.unwrap().record.token;
    ask(&engine, "k", fail(token, Span::ZERO));
    assert_eq!(clients[1].verdict(), Verdict::Mismatch);
    assert_eq!(clients[2].verdict(), Verdict::Mismatch);
    assert_eq!(
        clients[3].verdict(),
        Verdict::Acquired(Reason::Retry),
        "the wake-up came to whom it helps"
    );
    assert_nobody_waits(&engine);
}

#[test]
fn in_mode_once_the_first_does_it_and_the_others_are_told() {
    let (engine, _) = house();
    let token = acquire(&engine, "k");
    let once = || Claim {
        mode: Mode::Once { result: None },
        ..waiting()
    };
    let mut clients: Vec<_> = (0..3).map(|_| Client::held(&engine, "k", once())).collect();
    ask(&engine, "k", Verb::Release { token });
    assert_eq!(clients[0].verdict(), Verdict::Acquired(Reason::New));
    assert_eq!(clients[1].verdict(), Verdict::Done);
    assert_eq!(clients[2].verdict(), Verdict::Done);
}

#[test]
fn the_end_of_a_lease_and_of_a_backoff_are_events_on_the_engines_clock() {
    let (engine, clock) = house();
    let lease = Some(Span::from_secs(20));
    let claim = Claim {
        lease,
        ..Claim::default()
    };
    ask(&engine, "k", Verb::Claim(claim.into()));
    let mut first = Client::held(&engine, "k", waiting());
    let second = Client::held(&engine, "k", waiting());
    pass(&engine, &clock, Span::from_millis(19_999));
    assert_eq!(first.woken(), 0);
    pass(&engine, &clock, Span::from_millis(1));
    let got = first.answer().unwrap();
    assert_eq!(got.verdict, Verdict::Acquired(Reason::Takeover));
    let token = got.record.unwrap().record.token;
    ask(&engine, "k", fail(token, Span::from_secs(5)));
    assert_eq!(second.woken(), 0, "not due yet");
    pass(&engine, &clock, Span::from_secs(5));
    let mut second = second;
    assert_eq!(second.verdict(), Verdict::Acquired(Reason::Retry));
    assert_nobody_waits(&engine);
}

#[test]
fn a_lease_under_hold_ends_in_doubt_for_all_who_wait() {
    let (engine, clock) = house();
    let token = acquire(&engine, "k");
    ask(&engine, "k", Verb::Effect { token });
    let mut clients: Vec<_> = (0..3)
        .map(|_| Client::held(&engine, "k", waiting()))
        .collect();
    pass(&engine, &clock, MINUTE);
    for client in &mut clients {
        assert_eq!(client.verdict(), Verdict::InDoubt);
    }
}

#[test]
fn an_open_record_that_goes_by_its_age_is_an_event_too() {
    let (engine, clock) = house_of(Policy {
        forget_open_after: Retention::For(Span::from_secs(30)),
        ..Policy::default()
    });
    let token = acquire(&engine, "k");
    ask(&engine, "k", fail(token, Span::from_secs(3600)));
    let mut client = Client::held(&engine, "k", waiting());
    pass(&engine, &clock, Span::from_secs(30));
    assert_eq!(client.verdict(), Verdict::Acquired(Reason::New));
}

#[test]
fn whoever_has_waited_long_enough_gets_the_answer_of_that_moment() {
    let (engine, clock) = house();
    let lease = Some(Span::from_secs(600));
    let token = acquire(&engine, "k");
    ask(&engine, "k", Verb::Renew { token, lease });
    let wait = |secs| Claim {
        wait: Span::from_secs(secs),
        ..Claim::default()
    };
    let mut long = Client::held(&engine, "k", wait(60));
    let mut short = Client::held(&engine, "k", wait(10));
    pass(&engine, &clock, Span::from_secs(10));
    let got = short.answer().unwrap();
    assert_eq!(got.verdict, Verdict::Busy);
    assert_eq!(
        got.retry_after(),
        Some(Span::from_secs(590)),
        "as it is now"
    );
    assert_eq!(long.woken(), 0);
    ask(&engine, "k", fail(token, Span::from_secs(300)));
    pass(&engine, &clock, Span::from_secs(50));
    assert_eq!(long.verdict(), Verdict::Backoff);
    assert_nobody_waits(&engine);
}

#[test]
fn a_wait_that_ends_with_the_wake_up_loses_neither() {
    let (engine, clock) = house();
    let token = acquire(&engine, "k");
    let mut first = Client::held(&engine, "k", waiting());
    let mut second = Client::held(&engine, "k", waiting());
    // Both end now, and nobody has looked when the key becomes free.
    let lease = Some(Span::from_secs(600));
    ask(&engine, "k", Verb::Renew { token, lease });
    pass(&engine, &clock, MINUTE);
    assert_eq!((first.woken(), second.woken()), (1, 1));
    ask(&engine, "k", Verb::Release { token });
    assert_eq!(first.verdict(), Verdict::Acquired(Reason::New));
    assert_eq!(second.verdict(), Verdict::Busy);
    assert_nobody_waits(&engine);
}

#[test]
fn an_end_of_waiting_answers_busy_at_once_and_holds_nobody_after_it() {
    let (engine, _) = house();
    acquire(&engine, "k");
    let mut clients: Vec<_> = (0..3)
        .map(|_| Client::held(&engine, "k", waiting()))
        .collect();
    engine.stop_waiting();
    for client in &mut clients {
        assert_eq!(client.verdict(), Verdict::Busy);
    }
    let late = ask(&engine, "k", Verb::Claim(waiting().into()));
    assert_eq!(late.verdict, Verdict::Busy);
    assert_nobody_waits(&engine);
}

#[test]
fn a_closed_engine_leaves_nobody_waiting() {
    let (engine, _) = house();
    acquire(&engine, "k");
    let mut client = Client::held(&engine, "k", waiting());
    engine.close().unwrap();
    assert_eq!(client.answer().unwrap_err(), Unavailable::Stopping);
}

#[test]
fn among_others_a_claim_does_not_wait() {
    let (engine, _) = house();
    acquire(&engine, "k");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let claim = || unit("k", Verb::Claim(waiting().into()));
    let answers = runtime.block_on(engine.submit(vec![claim(), unit("k", Verb::Get), claim()]));
    let verdicts: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.unwrap().verdict)
        .collect();
    assert_eq!(verdicts, [Verdict::Busy, Verdict::Found, Verdict::Busy]);
    let Unit::One(command) = claim() else {
        return;
    };
    let answers = runtime.block_on(engine.submit(vec![Unit::All(vec![command])]));
    assert_eq!(answers[0].as_ref().unwrap().verdict, Verdict::Busy);
}

#[test]
fn only_the_last_word_of_a_claim_is_counted() {
    let (engine, _) = house();
    let token = acquire(&engine, "k");
    let mut client = Client::held(&engine, "k", waiting());
    ask(&engine, "k", Verb::Release { token });
    acquire(&engine, "k");
    assert!(client.poll().is_none());
    assert!(engine.inner.core.lock().unchanged.is_empty());
    engine.stop_waiting();
    assert_eq!(client.verdict(), Verdict::Busy);
    assert!(!engine.inner.core.lock().unchanged.is_empty());
}

/// All in one step.
fn ask_all(engine: &Engine, units: Vec<Unit>) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let answers = runtime.block_on(engine.submit(units));
    answers.into_iter().map(Result::unwrap).collect()
}

/// Ten thousand on one key, and as many on keys of their own.
#[test]
fn ten_thousand_wait_and_no_more() {
    let (engine, _) = house();
    let token = acquire(&engine, "k");
    let mut clients: Vec<_> = (0..MAX_WAITERS)
        .map(|_| Client::held(&engine, "k", waiting()))
        .collect();
    let mut one_more = Client::new(&engine, "k", waiting());
    let refused = one_more.poll().unwrap();
    assert_eq!(refused.unwrap_err(), Unavailable::Waiters);
    ask(&engine, "k", complete(token));
    for client in &mut clients {
        assert_eq!(client.verdict(), Verdict::Done);
    }
    assert_nobody_waits(&engine);
    let names: Vec<_> = (0..MAX_WAITERS).map(|at| format!("k{at}")).collect();
    let claims = names
        .iter()
        .map(|key| unit(key, Verb::Claim(Box::default())));
    let tokens = ask_all(&engine, claims.collect());
    let mut clients: Vec<_> = names
        .iter()
        .map(|key| Client::held(&engine, key, waiting()))
        .collect();
    let releases = names.iter().zip(tokens).map(|(key, got)| {
        let token = got.record.unwrap().record.token;
        unit(key, Verb::Release { token })
    });
    ask_all(&engine, releases.collect());
    // Each decides in its turn, and then all wait for the disk together.
    for client in &mut clients {
        assert_eq!(client.woken(), 1);
        let early = client.poll();
        assert!(early.is_none_or(|answer| answer.is_ok()));
    }
    let acquired = |engine: &Engine| engine.inner.core.lock().waiters.is_empty();
    assert!(acquired(&engine), "all have decided");
}

#[test]
fn bodies_that_wait_are_bounded_all_together() {
    let (engine, _) = house();
    acquire(&engine, "k");
    let large = || Claim {
        payload: Some(Payload::new(vec![7; 1 << 20].into(), "a/b".into())),
        ..waiting()
    };
    let mut clients: Vec<_> = (0..MAX_WAITING_BYTES / (1 << 20) - 1)
        .map(|_| Client::held(&engine, "k", large()))
        .collect();
    let mut one_more = Client::new(&engine, "k", large());
    let refused = one_more.poll().unwrap();
    assert_eq!(refused.unwrap_err(), Unavailable::Waiters);
    clients.pop();
    let _held = Client::held(&engine, "k", large());
}
