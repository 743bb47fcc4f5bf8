//! The rules of SPEC 4, one table each. How rows are read: see [`super::script`].

use super::script::{World, check};
use onced::model::record::Record;
use std::sync::Arc;

#[test]
fn renew_effect_complete_fail_and_release_of_the_holder() {
    // SPEC 4.
    check(
        "
        pending; wait 20s | renew 1                    | renewed state=pending token=1 attempt=1 generation=1 lease_expires_at=80s | pending lease_ms=60000
        pending           | renew 1 lease=5m           | renewed lease_expires_at=5m                  | pending lease_ms=300000
        pending           | renew 1 lease=1s           | renewed lease_expires_at=1s                  | pending lease_ms=1000
        pending; renew 1 lease=5m; wait 1m | renew 1   | renewed lease_expires_at=6m                  | pending lease_ms=300000
        pending; wait 20s | effect 1                   | announced state=pending lease_expires_at=1m  | pending effect_announced=true lease_expires_at=1m
        announced         | renew 1 lease=1m           | renewed                                      | pending effect_announced=true
        pending; wait 20s | complete 1 result=r        | completed state=done token=1 attempt=1 generation=1 expires_at=259220s | done result=r result.type=application/octet-stream result.status=null completed_at=20s
        pending           | complete 1 result=r result_type=a/b status=404 | completed                | done result=r result.type=a/b result.status=404
        pending           | complete 1                 | completed                                    | done result=
        announced         | complete 1 result=r        | completed                                    | done result=r
        claim retention=1h; wait 20s | complete 1      | completed expires_at=3620s                   | done
        claim retention=forever | complete 1           | completed expires_at=null                    | done expires_at=null
        pending; wait 20s | fail 1 error=boom retry=5s | failed state=retry token=1 attempt=1 not_before=25s | retry last_error=boom
        pending           | fail 1 retry=0             | failed state=retry not_before=0ms            | retry last_error=null
        pending           | fail 1 bury error=bad      | failed state=dead -not_before                | dead last_error=bad history=acquired,buried
        announced         | fail 1 retry=0             | failed state=retry                           | retry
        claim max=1       | fail 1 retry=0             | failed state=dead                            | dead history=acquired,failed
        pending           | release 1                  | released state=absent token=1                | absent
        second            | release 2                  | released state=retry attempt=1 not_before=1m | retry attempt=1 history=acquired,lease_ended,taken_over,released
        replayed; claim   | release 2                  | released state=retry attempt=0 generation=2  | retry attempt=0 generation=2
        due; claim        | release 2                  | released state=retry attempt=1 not_before=10s | retry attempt=1
        # The attempt given back can be handed out again.
        claim max=2; fail 1 retry=0; claim; release 2 | claim | acquired reason=retry token=3 attempt=2 | pending
        replayed; claim; release 2        | claim | acquired reason=replay token=3 attempt=1 generation=2 | pending
        announced         | release 1                  | conflict state=pending                       | same
        ",
    );
}

#[test]
fn a_holder_is_heard_after_its_lease_until_somebody_took_over() {
    // SPEC 4: renew, effect, complete, fail and release, also when the record shows as in_doubt or dead.
    check(
        "
        orphan / dead / held            | renew 1               | renewed state=pending lease_expires_at=2m | pending orphaned=false attempt=1
        in_doubt                        | renew 1               | renewed state=pending                    | pending effect_announced=true
        orphan / dead / held            | effect 1              | announced state=in_doubt                 | in_doubt effect_announced=true
        in_doubt                        | effect 1              | announced state=in_doubt                 | same
        orphan / dead / held / in_doubt | complete 1 result=r   | completed state=done                     | done result=r
        orphan / held / in_doubt        | fail 1 retry=0        | failed state=retry                       | retry attempt=1
        dead                            | fail 1 retry=0        | failed state=dead                        | dead
        orphan / dead / held            | fail 1 bury           | failed state=dead                        | dead
        orphan / dead / held            | release 1             | released state=absent                    | absent
        in_doubt                        | release 1             | conflict                                 | same
        dead; renew 1; wait 59s         | claim                 | busy                                     | same
        dead; renew 1; wait 60s         | claim                 | dead                                     | same
        # The end of the lease goes into history, whether it was written down or not.
        orphan                          | complete 1            | completed                                | done history=acquired,lease_ended,completed
        ",
    );
}

#[test]
fn a_verb_sent_twice() {
    // SPEC 4, the column of that name.
    check(
        "
        pending; renew 1                     | renew 1                      | renewed lease_expires_at=1m        | pending
        announced; wait 1s                   | effect 1                     | announced state=pending            | same
        done; wait 1h                        | complete 1 result=ok         | completed state=done expires_at=72h | same
        done; wait 1h                        | complete 1 result=ok result_type=application/octet-stream | completed expires_at=72h | same
        done                                 | complete 1 result=other      | conflict state=done                | same
        done                                 | complete 1 result=ok status=200 | conflict                        | same
        done                                 | complete 1 result=ok result_type=a/b | conflict                   | same
        done                                 | complete 1                   | conflict                           | same
        pending; complete 1                  | complete 1                   | completed                          | same
        pending; complete 1 result=x*5000    | complete 1 result=x*5000     | completed                          | same
        pending; complete 1 result=x*5000    | complete 1 result=x*5001     | conflict                           | same
        backoff; wait 1s                     | fail 1 error=boom retry=10s  | failed state=retry not_before=10s  | same
        backoff; wait 1s                     | fail 1 error=other retry=99s | failed state=retry not_before=10s  | same
        backoff                              | fail 1 bury                  | failed state=retry not_before=10s  | same
        buried / failed_dead                 | fail 1 retry=0               | failed state=dead                  | same
        due; claim                           | fail 1                       | stale                              | same
        replayed                             | fail 1                       | stale                              | same
        pending; release 1                   | release 1                    | stale                              | same
        second; release 2                    | release 2                    | stale                              | same
        pending; release 1; claim            | release 1                    | stale                              | same
        replayed; wait 1m                    | replay                       | replayed not_before=0ms generation=2 | same
        replayed                             | replay generation=1          | replayed generation=2              | same
        replayed                             | replay generation=2          | replayed generation=2              | same
        replayed                             | replay generation=3          | conflict                           | same
        replayed; claim; release 2           | replay generation=1          | replayed generation=2              | same
        replayed; claim; fail 2 retry=0      | replay generation=1          | conflict                           | same
        replayed; claim; fail 2 retry=0      | replay                       | replayed generation=3              | retry attempt=0
        done; forget                         | forget                       | not_found                          | same
        ",
    );
}

#[test]
fn a_fail_is_answered_again_until_the_next_grant_or_replay() {
    // SPEC 4: also when an operator was there in between, and only to who failed before.
    check(
        "
        backoff; fail by_hand retry=20s  | fail 1 | failed state=retry | same
        backoff; fail by_hand bury       | fail 1 | failed state=dead  | same
        in_doubt; fail by_hand retry=20s | fail 1 | stale              | same
        in_doubt; fail by_hand bury      | fail 1 | stale              | same
        in_doubt; fail by_hand retry=0; claim; fail 2; fail by_hand retry=5s | fail 2 | failed not_before=65s | same
        ",
    );
}

#[test]
fn an_ended_token_changes_nothing() {
    // SPEC 4: by takeover, complete, fail, release, bury, replay or forget; or there is no record.
    let ended = "done / backoff / due / buried / replayed / failed_dead / second / pending; release 1 / \
                 pending; forget force / absent / expired / due; claim";
    for verb in ["renew 1", "effect 1", "release 1"] {
        check(&format!("{ended} | {verb} | stale | same"));
    }
    check(
        "
        done / replayed / second / due; claim     | fail 1     | stale                | same
        absent / expired / pending; release 1     | fail 1     | stale                | absent
        absent / pending; release 1               | complete 1 | stale                | absent
        # A token never granted is no better.
        pending / done / backoff / in_doubt       | renew 7    | stale                | same
        pending / done / backoff / in_doubt       | complete 7 | stale                | same
        pending / done / backoff / in_doubt       | fail 7     | stale                | same
        pending / done / backoff / in_doubt       | release 7  | stale                | same
        pending / done / backoff / in_doubt       | effect 7   | stale                | same
        # A string's token is nobody's.
        string                                    | renew 1    | stale                | same
        string                                    | fail 1     | stale                | same
        ",
    );
}

#[test]
fn a_complete_with_an_ended_token_is_counted_once() {
    // SPEC 4: in history and as `late`, and nothing else of the record changes.
    let (counted, noted) = (true, true);
    for (given, token, counted, noted) in [
        ("second", 1, counted, noted),
        ("backoff", 1, counted, noted),
        ("buried", 1, counted, noted),
        ("replayed", 1, counted, noted),
        ("second; complete 2 result=r", 1, counted, noted),
        ("second; wait 60s; claim; complete 1", 2, counted, noted),
        ("second; complete 1", 1, false, false),
        (
            "second; complete 1; complete 2; complete 1",
            1,
            false,
            false,
        ),
        // A record that does not know the grant has no place to note it.
        ("pending; release 1", 1, counted, false),
        ("pending; forget force", 1, counted, false),
        ("pending; forget force; claim", 1, counted, false),
        ("expired; claim", 1, counted, false),
        // Never granted.
        ("second", 7, false, false),
        ("absent", 7, false, false),
    ] {
        let mut world = World::new();
        world.run(given);
        let before = world.record.clone();
        let step = world.run(&format!("complete {token} result=late")).unwrap();
        assert_eq!(step.outcome.verdict.name(), "stale", "{given}");
        assert_eq!(
            step.late.map(|late| late.get()),
            counted.then_some(token),
            "{given}"
        );
        let after = world.record;
        let grown = after.as_ref().map(|record| record.history.len())
            > before.as_ref().map(|record| record.history.len());
        assert_eq!(grown, noted, "{given}");
        let without_history = |record: &Arc<Record>| Record {
            history: Vec::new(),
            ..Record::clone(record)
        };
        assert_eq!(
            after.as_ref().map(without_history),
            before.as_ref().map(without_history),
            "{given}"
        );
    }
    check(
        "
        second; complete 1   | get | pending history=acquired,lease_ended,taken_over,late_completion history.tokens=1,1,2,1 | same
        ",
    );
}

#[test]
fn replay_and_forget() {
    // SPEC 4; refusals in SPEC's order: another generation, lease running, a string record, done without force.
    check(
        "
        absent / expired              | replay                    | not_found                             | absent
        pending / announced           | replay generation=2       | conflict                              | same
        pending / announced           | replay generation=1       | busy                                  | same
        pending / announced           | replay force              | busy                                  | same
        string                        | replay generation=2 force | conflict                              | same
        string                        | replay force              | conflict                              | same
        done                          | replay                    | done result=ok                        | same
        done / once                   | replay generation=1       | done                                  | same
        done; wait 1m                 | replay force by=op        | replayed state=retry attempt=0 generation=2 token=1 not_before=1m | retry result=null earlier_result=ok expires_at=null completed_at=null history.by=op
        done; replay force; claim; complete 2 result=new | replay force | replayed generation=3           | retry earlier_result=new
        done; replay force; claim     | get                       | pending earlier_result=ok result=null | same
        orphan / backoff / due        | replay                    | replayed generation=2 attempt=0       | retry
        in_doubt / held / dead / buried / failed_dead | replay    | replayed generation=2 attempt=0       | retry effect_announced=false
        in_doubt; replay              | claim                     | acquired reason=replay attempt=1 generation=2 token=2 | pending effect_announced=false
        # A replay begins a generation with all its attempts.
        failed_dead; replay; claim    | fail 2 retry=0            | failed state=dead                     | dead generation=2 attempt=1
        absent / expired              | forget                    | not_found                             | absent
        pending / announced           | forget                    | busy                                  | same
        pending / announced           | forget force              | forgotten state=absent                | absent
        orphan / backoff / due / done / once / in_doubt / held / dead / buried / replayed / string | forget | forgotten state=absent token=1 | absent
        # A token is never granted again, a deletion notwithstanding.
        pending; forget force         | claim                     | acquired reason=new token=2 attempt=1 generation=1 | pending history=acquired
        ",
    );
}

#[test]
fn complete_and_fail_by_hand() {
    // SPEC 4: with the operate right, without a token, on in_doubt, dead and retry.
    check(
        "
        in_doubt / held / dead / buried / backoff / due / replayed | complete by_hand by=op result=r | completed state=done | done result=r history.by=op
        in_doubt; wait 1m             | complete by_hand result=r | completed expires_at=4322m            | done completed_at=2m
        in_doubt / held / due         | fail by_hand by=op retry=0 error=x | failed state=retry           | retry last_error=x history.by=op
        in_doubt / held / dead / buried / backoff | fail by_hand by=op bury | failed state=dead           | dead history.by=op
        dead / failed_dead            | fail by_hand retry=0      | failed state=dead                     | dead
        buried                        | fail by_hand retry=0      | failed state=retry                    | retry
        pending / announced           | complete by_hand          | busy                                  | same
        pending / announced           | fail by_hand              | busy                                  | same
        orphan                        | complete by_hand          | conflict                              | same
        orphan                        | fail by_hand              | conflict                              | same
        done                          | fail by_hand              | conflict                              | same
        done                          | complete by_hand result=ok | completed expires_at=72h             | same
        done                          | complete by_hand result=r | conflict                              | same
        absent / expired              | complete by_hand          | not_found                             | absent
        absent / expired              | fail by_hand              | not_found                             | absent
        # The holder lost it to the operator.
        in_doubt; fail by_hand retry=0     | renew 1              | stale                                 | same
        in_doubt; fail by_hand bury        | renew 1              | stale                                 | same
        in_doubt; complete by_hand result=r | renew 1             | stale                                 | same
        in_doubt; complete by_hand result=r | complete 1 result=s | conflict                              | same
        ",
    );
}
