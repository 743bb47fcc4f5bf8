//! `onced run --wait`: a key in somebody's hands.

use std::time::Instant;

use super::*;

/// Claims the key by hand; its token.
fn held(house: &House) -> u64 {
    let answer = house
        .server
        .http()
        .post("/v1/claims/default/k?lease=1h", b"");
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["token"].as_u64().unwrap()
}

/// Waits until the run has come to the server. Whether its claim is decided by then makes no difference to what
/// becomes of it.
fn somebody_waits(house: &House) {
    until("a claim waits", || {
        let figures = house.server.http().get("/metrics");
        let text = String::from_utf8(figures.body).unwrap();
        let mut lines = text.lines();
        let open = lines.find_map(|line| line.strip_prefix("onced_connections "));
        // One of them asks for this figure.
        open.and_then(|open| open.parse().ok())
            .is_some_and(|open: f64| open >= 2.0)
    });
}

fn tell(house: &House, path: &str) {
    let answer = house
        .server
        .http()
        .post(&format!("/v1/claims/default/k/{path}"), b"");
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn a_key_that_is_busy_ends_the_run_at_once_without_a_wait() {
    let house = House::new();
    held(&house);
    let ran = house.run(&[], "echo ran >> log");
    assert_eq!(ran.code, 75, "{ran:?}");
    assert!(!house.path("log").exists());
}

#[test]
fn a_wait_ends_with_the_key_busy_still_and_nothing_ran() {
    let house = House::new();
    held(&house);
    let begun = Instant::now();
    let ran = house.run(&["--wait", "300ms"], "echo ran >> log");
    assert_eq!(ran.code, 75, "{ran:?}");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(!house.path("log").exists());
}

#[test]
fn a_holder_that_completes_ends_the_wait_as_a_duplicate() {
    let house = House::new();
    let token = held(&house);
    let mut run = house.start(&["--wait", "30s"], "echo ran >> log");
    somebody_waits(&house);
    tell(&house, &format!("complete?token={token}"));
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert!(!house.path("log").exists());
}

#[test]
fn a_holder_that_gives_the_key_back_hands_it_to_who_waits() {
    let house = House::new();
    for how in ["release", "fail"] {
        let token = held(&house);
        let mut run = house.start(&["--wait", "30s"], &format!("echo {how} >> log"));
        somebody_waits(&house);
        let more = if how == "fail" { "&retry_in=0" } else { "" };
        tell(&house, &format!("{how}?token={token}{more}"));
        assert_eq!(run.wait().unwrap().code(), Some(0), "{how}");
        assert!(house.written("log").ends_with(how));
        assert_eq!(house.record()["state"], "done");
        let forgotten = house
            .server
            .http()
            .request("DELETE", "/v1/claims/default/k", b"");
        assert_eq!(forgotten.status, 200);
    }
}

#[test]
fn who_is_told_to_stop_while_it_waits_gives_its_place_up() {
    let house = House::new();
    let token = held(&house);
    let mut run = house.start(&["--wait", "30s"], "echo ran >> log");
    somebody_waits(&house);
    let begun = Instant::now();
    signal(run.id(), "TERM");
    assert_ne!(run.wait().unwrap().code(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "it did not wait on"
    );
    tell(&house, &format!("release?token={token}"));
    // Nobody is handed the key who is not there.
    let again = house.server.http().post("/v1/claims/default/k", b"");
    assert_eq!((again.status, again.outcome()), (201, "acquired"));
    assert!(!house.path("log").exists());
}
