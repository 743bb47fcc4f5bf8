//! The rules of SPEC 2, 3 and 5, one table each. How rows are read: see [`super::script`].

use super::script::{GIVEN, World, check};
use onced::model::record::State;
use onced::model::shown::show;
use std::collections::HashSet;

#[test]
fn the_named_states_are_what_they_say() {
    // SPEC 2.
    check(
        "
        absent      | get | not_found                            | absent
        pending     | get | pending orphaned=false               | same
        announced   | get | pending effect_announced=true        | same
        orphan      | get | pending orphaned=true attempt=1      | same
        backoff     | get | retry attempt=1 not_before=10s       | same
        due         | get | retry attempt=1 not_before=10s       | same
        done        | get | done result=ok expires_at=72h        | same
        once        | get | done result=ok expires_at=72h        | same
        expired     | get | not_found                            | absent
        in_doubt    | get | in_doubt orphaned=false              | same
        held        | get | in_doubt effect_announced=false      | same
        dead        | get | dead last_error=lease_ended          | same
        failed_dead | get | dead last_error=boom                 | same
        buried      | get | dead last_error=bad                  | same
        replayed    | get | retry attempt=0 generation=2         | same
        second      | get | pending attempt=2 token=2 owner=bob  | same
        string      | get | done kind=string expires_at=null     | same
        ",
    );
    for state in State::ALL {
        let shows = |(_, script): &(&str, &str)| {
            let mut world = World::new();
            world.run(script);
            let record = world.record.as_ref();
            record
                .and_then(|record| show(record, &world.policy, world.now()))
                .map(|shown| shown.state)
        };
        assert!(
            GIVEN.iter().any(|given| shows(given) == Some(state)),
            "no given is {state:?}"
        );
    }
}

#[test]
fn a_claim_is_decided_by_state() {
    // SPEC 3, step 5.
    check(
        "
        absent            | claim id=c9 owner=eve | acquired reason=new token=1 attempt=1 generation=1 payload=false lease_expires_at=1m   | pending owner=eve claim_id=c9 claimed_at=0ms lease_ms=60000 history=acquired
        pending / announced | claim id=c9 owner=eve | busy state=pending owner=ann attempt=1 lease_left_ms=60000 retry_after_ms=60000 -token -claim_id | same
        orphan            | claim id=c9 owner=eve | acquired reason=takeover token=2 attempt=2 lease_expires_at=2m                        | pending owner=eve claim_id=c9 last_error=lease_ended history=acquired,lease_ended,taken_over history.tokens=1,1,2
        in_doubt / held     | claim id=c9           | in_doubt state=in_doubt attempt=1 -retry_after_ms -token                              | same
        dead              | claim id=c9           | dead state=dead attempt=1 -retry_after_ms -token                                      | same
        failed_dead       | claim id=c9           | dead                                                                                  | same
        buried            | claim id=c9           | dead                                                                                  | same
        backoff           | claim id=c9           | backoff state=retry attempt=1 retry_after_ms=10000 -token                             | same
        due               | claim id=c9           | acquired reason=retry token=2 attempt=2 generation=1                                  | pending last_error=boom history=acquired,failed,retried
        replayed          | claim id=c9           | acquired reason=replay token=2 attempt=1 generation=2                                 | pending history=acquired,buried,replayed,acquired_by_replay
        replayed; claim; fail 2 retry=0 | claim id=c9 | acquired reason=retry token=3 attempt=2 generation=2                               | pending
        done              | claim id=c9           | done token=1 attempt=1 generation=1 completed_at=0ms expires_at=72h result=ok result.type=application/octet-stream result.status=null | same
        expired           | claim id=c9           | acquired reason=new token=2 attempt=1 generation=1                                    | pending history=acquired fingerprint=null
        string            | claim id=c9           | done result=v expires_at=null                                                         | same
        second            | claim id=c9           | busy owner=bob attempt=2                                                              | same
        ",
    );
}

#[test]
fn a_lease_and_a_retention_end_at_their_instant() {
    // SPEC 2: by record and clock, whoever asks.
    check(
        "
        pending; wait 59999ms  | claim          | busy retry_after_ms=1       | same
        pending; wait 60000ms  | claim          | acquired reason=takeover    | pending attempt=2
        pending; wait 59999ms  | get            | pending orphaned=false lease_left_ms=1 | same
        pending; wait 60000ms  | get            | pending orphaned=true lease_left_ms=0  | same
        backoff; wait 9999ms   | claim          | backoff retry_after_ms=1    | same
        backoff; wait 10000ms  | claim          | acquired reason=retry       | pending attempt=2
        done; wait 259199999ms | claim          | done expires_at=72h         | same
        done; wait 259200000ms | claim          | acquired reason=new         | pending attempt=1
        done; wait 259200000ms | get            | not_found                   | absent
        done; wait 259200000ms | replay force   | not_found                   | absent
        done; wait 259200000ms | forget         | not_found                   | absent
        done; wait 259200000ms | complete 1 result=ok | stale                 | absent
        # Open records never go by age, unless the policy says so; in_doubt never does.
        orphan; wait 3000d     | claim          | acquired reason=takeover    | pending attempt=2
        due; wait 3000d        | claim          | acquired reason=retry       | pending attempt=2
        dead; wait 3000d       | claim          | dead                        | same
        in_doubt; wait 3000d   | claim          | in_doubt                    | same
        policy forget_open_after=1h; buried; wait 3599s  | claim | dead                     | same
        policy forget_open_after=1h; buried; wait 1h     | claim | acquired reason=new      | pending attempt=1 generation=1
        policy forget_open_after=1h; backoff; wait 1h    | claim | acquired reason=new      | pending attempt=1 generation=1
        policy forget_open_after=1h; pending; wait 1h    | claim | acquired reason=new      | pending attempt=1 generation=1
        policy forget_open_after=1h; in_doubt; wait 3000d| claim | in_doubt                 | same
        policy forget_open_after=1m; claim lease=1h; wait 5m | claim | busy                 | same
        ",
    );
}

#[test]
fn a_claim_is_decided_in_order() {
    // SPEC 3: bad input, retention over, mismatch, resumed, state. Each row is right for the later steps too.
    check(
        "
        pending / done / dead  | claim id=c1 fp=f2 lease=0 | bad_input                       | same
        expired              | claim id=c1 fp=f2         | acquired reason=new             | pending fingerprint.value=f2
        pending              | claim id=c1 fp=f2         | mismatch state=pending owner=ann -token | same
        pending              | claim fp=f2               | mismatch                        | same
        orphan / due          | claim fp=f2               | mismatch                        | same
        backoff / done / once  | claim fp=f2               | mismatch                        | same
        in_doubt / dead       | claim fp=f2               | mismatch                        | same
        buried / replayed     | claim fp=f2               | mismatch                        | same
        once                 | claim once id=c1 fp=f2    | mismatch                        | same
        pending              | claim id=c1 fp=f1         | acquired reason=resumed token=1 | same
        ",
    );
}

#[test]
fn fingerprints_are_compared_by_the_kind_kept() {
    // SPEC 1, 3, 5.
    check(
        r#"
        absent                     | claim fp=f1              | acquired    | pending fingerprint.kind=given fingerprint.value=f1
        absent                     | claim fp=f1 payload=body | acquired    | pending fingerprint.kind=given fingerprint.value=f1
        absent                     | claim payload=abc        | acquired    | pending fingerprint.kind=raw fingerprint.value=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad
        absent                     | claim                    | acquired    | pending fingerprint=null
        # Only one of both has a fingerprint: no mismatch.
        claim fp=f1                | claim                    | busy        | same
        claim                      | claim fp=f1              | busy        | same
        claim                      | claim payload=b          | busy        | same
        # Given against given, raw against raw.
        claim fp=f1                | claim fp=f1              | busy        | same
        claim fp=f1                | claim fp=f1 payload=x    | busy        | same
        claim fp=f1                | claim fp=F1              | mismatch    | same
        claim payload=b            | claim payload=b          | busy        | same
        claim payload=b            | claim payload=b type=a/b | busy        | same
        claim payload=b            | claim payload=c          | mismatch    | same
        # A given one and a computed one never match.
        claim payload=abc          | claim fp=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad | mismatch | same
        claim fp=f1                | claim payload=f1         | mismatch    | same
        # The first claim that acquires with one sets it; a refused one does not.
        claim; fail 1 retry=0      | claim fp=f1              | acquired    | pending fingerprint.value=f1
        claim; claim fp=f1         | claim fp=f2              | busy        | same
        claim fp=f1; fail 1 retry=0| claim                    | acquired    | pending fingerprint.value=f1
        # A replay keeps it.
        replayed                   | claim fp=f2              | mismatch    | same
        done; replay force; claim  | get                      | pending fingerprint.value=f1 | same
        # JSON: by what it says. A record is compared by its own kind, whatever the policy is by now.
        policy fingerprint=json                                        | claim payload={"a":1}        | acquired  | pending fingerprint.kind=json
        policy fingerprint=json; claim payload={"b":1.0,"a":[1]}       | claim payload={"a":[1],"b":1}| busy      | same
        policy fingerprint=json; claim payload={"a":9007199254740993}  | claim payload={"a":9007199254740992} | mismatch | same
        policy fingerprint=json; claim payload={"a":1}; policy fingerprint=raw | claim payload={"a":1.0}  | busy     | same
        policy fingerprint=json; claim payload={"a":1}; policy fingerprint=raw | claim payload={"a":2}    | mismatch | same
        claim payload={"a":1}; policy fingerprint=json                 | claim payload={"a":1}        | busy      | same
        claim payload={"a":1}; policy fingerprint=json                 | claim payload={"a":1.0}      | mismatch  | same
        # What is not JSON is bad input, on every state, unless a fingerprint is given.
        policy fingerprint=json; absent                                | claim payload={"a":1,"a":1}  | bad_input | absent
        policy fingerprint=json; absent                                | claim payload={              | bad_input | absent
        policy fingerprint=json; done                                  | claim payload=[1,            | bad_input | same
        policy fingerprint=json                                        | claim payload={ fp=f1        | acquired  | pending fingerprint.kind=given
        "#,
    );
}

#[test]
fn the_same_claim_again_is_resumed_while_its_lease_runs() {
    // SPEC 3, step 4: same token, same attempt; nothing else of the request counts.
    check(
        "
        pending                       | claim id=c1              | acquired reason=resumed token=1 attempt=1 lease_expires_at=1m | same
        pending; wait 20s             | claim id=c1              | acquired reason=resumed token=1 attempt=1 lease_expires_at=80s | pending token=1 attempt=1 owner=ann history=acquired claimed_at=0ms
        # The lease granted runs from now and never gets shorter.
        pending; renew 1 lease=10m; wait 20s | claim id=c1       | acquired reason=resumed lease_expires_at=620s | pending lease_ms=600000
        claim id=c1 lease=10m; wait 9m | claim id=c1 lease=1s    | acquired reason=resumed lease_expires_at=19m  | pending lease_ms=600000
        # Mode and options are ignored.
        pending; wait 20s             | claim id=c1 once result=r lease=1h owner=eve max=9 retention=1h on_lease_end=hold | acquired reason=resumed lease_expires_at=80s | pending owner=ann max_attempts=5 lease_ms=60000 result=null
        # Only by its id, only before the lease is over, only before the side effect is announced.
        claim; claim                  | claim                    | busy                              | same
        pending; wait 60s             | claim id=c1              | acquired reason=takeover token=2 attempt=2 | pending
        announced                     | claim id=c1              | busy                              | same
        in_doubt / held               | claim id=c1              | in_doubt                          | same
        second                        | claim id=c1              | busy                              | same
        second                        | claim id=c2              | acquired reason=resumed token=2 attempt=2 | same
        # An id of the past is no right.
        due                           | claim id=c1              | acquired reason=retry token=2     | pending
        backoff                       | claim id=c1              | backoff                           | same
        done                          | claim id=c1              | done                              | same
        dead / buried                 | claim id=c1              | dead                              | same
        ",
    );
}

#[test]
fn once_is_done_in_the_step_that_acquires() {
    // SPEC 3, mode `once`.
    check(
        "
        absent            | claim once result=r payload=b   | acquired reason=new token=1 completed_at=0ms expires_at=72h -lease_expires_at payload=false | done result=r fingerprint.kind=raw history=acquired,completed
        absent            | claim once                      | acquired reason=new                      | done result=null
        absent            | claim once retention=1h status=201 result=r result_type=a/b | acquired expires_at=1h | done result.type=a/b result.status=201
        absent            | claim once retention=forever    | acquired expires_at=null                 | done expires_at=null
        orphan            | claim once result=r             | acquired reason=takeover token=2 attempt=2 | done result=r
        due               | claim once result=r             | acquired reason=retry token=2 attempt=2  | done result=r
        replayed          | claim once result=r             | acquired reason=replay token=2           | done result=r generation=2
        pending           | claim once                      | busy                                     | same
        backoff           | claim once                      | backoff                                  | same
        in_doubt          | claim once                      | in_doubt                                 | same
        dead              | claim once                      | dead                                     | same
        done / once       | claim once result=other         | done result=ok                           | same
        once              | claim                           | done result=ok                           | same
        # The same claim again: its answer was lost.
        once              | claim once id=c1 result=other   | acquired reason=resumed token=1 expires_at=72h | same
        once; wait 1h     | claim once id=c1 fp=f1           | acquired reason=resumed token=1 expires_at=72h | same
        once              | claim once id=c9                | done                                     | same
        done              | claim once id=c1                | done                                     | same
        once; wait 72h    | claim once id=c1                | acquired reason=new token=2              | done
        once; replay force | claim once id=c1 result=r      | acquired reason=replay token=2           | done result=r earlier_result=ok
        # The token of a once is a token: completed as it is.
        once              | complete 1 result=ok            | completed token=1 expires_at=72h         | same
        once              | complete 1 result=other         | conflict                                 | same
        claim once        | complete 1                      | completed                                | same
        claim once        | complete 1 result=r             | conflict                                 | same
        once              | renew 1                         | stale                                    | same
        once              | effect 1                        | stale                                    | same
        once              | fail 1                          | stale                                    | same
        once              | release 1                       | stale                                    | same
        ",
    );
}

#[test]
fn the_end_of_a_lease_means_what_was_said_before() {
    // SPEC 2, 3: in_doubt goes before dead; an attempt counts when it is handed out.
    check(
        "
        claim; wait 60s                                       | get   | pending orphaned=true attempt=1  | same
        claim; effect 1; wait 60s                             | get   | in_doubt last_error=lease_ended  | same
        claim on_lease_end=hold; wait 60s                     | get   | in_doubt last_error=lease_ended  | same
        claim max=1; wait 60s                                 | get   | dead last_error=lease_ended      | same
        claim max=1; effect 1; wait 60s                       | get   | in_doubt                         | same
        claim max=1 on_lease_end=hold; wait 60s               | get   | in_doubt                         | same
        claim max=2; wait 60s; claim; wait 60s                | claim | dead attempt=2                   | same
        claim max=2; wait 60s; claim; wait 60s                | get   | dead attempt=2 token=2           | same
        claim max=0; wait 60s; claim; wait 60s                | claim | acquired reason=takeover attempt=3 | pending
        policy max=1; claim; wait 60s                         | claim | dead                             | same
        policy on_lease_end=hold; claim; wait 60s             | claim | in_doubt                         | same
        policy on_lease_end=hold; claim on_lease_end=retry; wait 60s | claim | acquired reason=takeover  | pending
        # It is a fact of its history, once for each lease, however the state it leads to may change.
        orphan; effect 1                                      | get   | in_doubt history=acquired,lease_ended,effect_announced | same
        orphan; effect 1; effect 1; renew 1; wait 60s         | get   | in_doubt history=acquired,lease_ended,effect_announced,lease_ended | same
        orphan; renew 1; wait 60s                             | get   | pending orphaned=true history=acquired,lease_ended,lease_ended | same
        dead; renew 1; renew 1; wait 60s                      | get   | dead history=acquired,lease_ended,lease_ended | same
        # A policy changed while nobody looked is in force, and so is one changed after.
        orphan; policy max=1                                  | claim | dead attempt=1                   | same
        policy max=1; orphan; effect 1; policy max=5          | claim | in_doubt                         | same
        policy max=1; orphan; policy max=5                    | claim | acquired reason=takeover         | pending
        # A takeover begins anew: what the holder before announced is not this one's.
        policy on_lease_end=hold; claim; wait 60s; fail 1 retry=0; claim on_lease_end=retry; wait 60s | claim | acquired reason=takeover | pending effect_announced=false
        announced; fail 1 retry=0; claim; wait 60s            | claim | acquired reason=takeover         | pending effect_announced=false
        # Retry and its limits.
        claim max=1; fail 1                                   | claim | dead                             | same
        claim max=2; fail 1 retry=0; claim; fail 2 retry=0    | claim | dead attempt=2                   | same
        claim max=2; fail 1 retry=0; claim; wait 60s          | claim | dead attempt=2                   | same
        ",
    );
}

#[test]
fn attempts_used_up_show_as_retry_until_they_are_due() {
    // SPEC 3: a lower limit of the policy comes into force while a retry waits.
    check(
        "
        backoff; policy max=1           | claim      | backoff                         | same
        due; policy max=1               | claim      | dead attempt=1                  | same
        due; policy max=1               | get        | retry attempt=1 max_attempts=1  | same
        due; policy max=1; claim; policy max=2 | claim | acquired reason=retry attempt=2 | pending
        due; policy max=1               | replay     | replayed generation=2 attempt=0 | retry
        ",
    );
}

#[test]
fn options_go_before_the_policy_and_stay_with_the_claim() {
    // SPEC 3, 5.
    check(
        "
        policy lease=10s retention=1h        | claim                     | acquired lease_expires_at=10s     | pending
        policy lease=10s                     | claim lease=20s           | acquired lease_expires_at=20s     | pending
        claim; policy lease=10s              | renew 1                   | renewed lease_expires_at=1m       | pending
        claim; policy retention=1h           | complete 1                | completed expires_at=72h          | done
        policy retention=1h; claim           | complete 1                | completed expires_at=1h           | done
        policy retention=forever; claim      | complete 1                | completed expires_at=null         | done
        policy retention=1h; claim retention=forever | complete 1        | completed expires_at=null         | done
        claim; policy on_lease_end=hold; wait 60s | claim                | acquired reason=takeover          | pending
        # max_attempts: with the record from the grant that brought it, else read when used.
        claim; policy max=1                  | fail 1                    | failed state=dead                 | dead
        claim max=3; policy max=1            | fail 1                    | failed state=retry                | retry max_attempts=3
        claim max=3; fail 1 retry=0; claim   | get                       | pending max_attempts=3            | same
        claim max=3; fail 1 retry=0; claim max=2 | fail 2                | failed state=dead                 | dead max_attempts=2
        claim max=0; policy max=1            | fail 1                    | failed state=retry                | retry max_attempts=0
        claim; claim max=1                   | get                       | pending max_attempts=5            | same
        # Each grant resolves its own lease and retention.
        claim lease=10s retention=1h; fail 1 retry=0; claim | complete 2 | completed expires_at=72h          | done lease_ms=60000
        ",
    );
}

#[test]
fn a_payload_is_kept_if_asked_and_handed_to_later_holders() {
    // SPEC 3.
    check(
        "
        absent                                  | claim payload=p store            | acquired payload=p     | pending payload=p payload.type=text/plain
        absent                                  | claim payload=p                  | acquired payload=false | pending payload=null
        absent                                  | claim store                      | acquired payload=false | pending payload=null
        claim payload=p store; wait 60s         | claim                            | acquired reason=takeover payload=p | pending payload=p
        claim payload=p store; fail 1 retry=0   | claim                            | acquired reason=retry payload=p    | pending payload=p
        claim payload=p store; complete 1; replay force | claim                    | acquired reason=replay payload=p   | pending payload=p
        claim id=c payload=p store              | claim id=c                       | acquired reason=resumed payload=p  | same
        claim                                   | claim payload=p store            | busy                   | same
        claim; fail 1 retry=0                   | claim payload=p store            | acquired payload=p     | pending payload=p
        ",
    );
}

#[test]
fn a_sliding_window_restarts_by_eighths() {
    // SPEC 5: a duplicate restarts retention; mismatch and get do not; on a full store the old expiry is answered.
    check(
        "
        policy retention=8h; done; wait 2h                     | claim       | done expires_at=8h   | same
        policy retention=8h window=sliding; done; wait 59m     | claim       | done expires_at=8h   | same
        policy retention=8h window=sliding; done; wait 1h      | claim       | done expires_at=9h   | done expires_at=9h result=ok history=acquired,completed
        policy retention=8h window=sliding; once; wait 1h      | claim once  | done expires_at=9h   | done
        policy retention=8h window=sliding; done; wait 1h      | claim fp=f2 | mismatch             | same
        policy retention=8h window=sliding; done; wait 1h      | get         | done expires_at=8h   | same
        policy retention=8h window=sliding; done; wait 1h; full | claim      | done expires_at=8h   | same
        policy retention=8h window=sliding; done; wait 8h      | claim       | acquired reason=new  | pending
        policy retention=8h window=sliding; done; wait 7h; claim; wait 7h | claim | done expires_at=22h | done
        policy retention=forever window=sliding; done; wait 9h | claim       | done expires_at=null | same
        # Resolved when the claim was acquired.
        policy retention=8h window=sliding; done; policy window=fixed; wait 1h | claim | done expires_at=9h | done
        policy retention=8h; done; policy window=sliding; wait 1h | claim    | done expires_at=8h   | same
        # A complete sent twice is no duplicate.
        policy retention=8h window=sliding; done; wait 1h      | complete 1 result=ok | completed expires_at=8h | same
        ",
    );
}

#[test]
fn bad_input_is_refused_and_nothing_is_stored() {
    // SPEC 5, 10.
    let good = "absent | claim id=x*128 owner=x*128 fp=x*128 lease=1ms retention=1s max=1000000 wait=60s | acquired | pending
                absent | claim lease=24h retention=3650d | acquired | pending
                absent | claim once result=r status=100  | acquired | done
                pending | fail 1 error=x*4096 retry=3650d | failed  | retry";
    check(good);
    for bad in [
        "claim id=x*129",
        "claim id=",
        "claim owner=x*129",
        "claim owner=",
        "claim fp=x*129",
        "claim fp=",
        "claim lease=0",
        "claim lease=86400001ms",
        "claim retention=0",
        "claim retention=999ms",
        "claim retention=315360000001ms",
        "claim max=1000001",
        "claim wait=60001ms",
        "claim payload=p type=",
        "claim payload=p type=ä/b",
        "claim once result=r status=99",
        "claim once result=r result_type=",
        "renew 1 lease=0",
        "renew 1 lease=86400001ms",
        "complete 1 status=600 result=r",
        "complete 1 result=r result_type=",
        "complete by_hand status=99 result=r",
        "fail 1 error=x*4097",
        "fail 1 retry=315360000001ms",
        "fail by_hand error=x*4097",
    ] {
        check(&format!(
            "absent / pending / done / in_doubt | {bad} | bad_input -state | same"
        ));
    }
}

#[test]
fn backoff_doubles_to_its_limit_with_a_fifth_of_spread() {
    // SPEC 5: 10s doubling to 1h, 20 % jitter from key and attempt, not from chance.
    let delays = |name: &[u8]| {
        let mut world = World::of(name);
        world.run("policy max=0");
        let mut delays = Vec::new();
        for token in 1..=12 {
            let step = world.run(&format!("claim; fail {token}")).unwrap();
            let wait = step
                .outcome
                .record
                .unwrap()
                .record
                .not_before
                .since(world.now().boot);
            delays.push(wait.as_millis());
            world.run(&format!("wait {wait}"));
        }
        delays
    };
    let first = delays(b"k");
    assert_eq!(first, delays(b"k"), "the same key waits the same");
    assert_ne!(first, delays(b"other"), "another key waits otherwise");
    for (doublings, delay) in first.iter().enumerate() {
        let base = (10_000_u64 << doublings).min(3_600_000);
        assert!(
            (base * 8 / 10..=base * 12 / 10).contains(delay),
            "attempt {}: {delay}",
            doublings + 1
        );
    }
    // At the limit too, or all that failed in an outage would come back at once.
    let capped: HashSet<&u64> = first.iter().skip(9).collect();
    assert!(capped.len() > 1, "no spread at the limit: {capped:?}");
}
