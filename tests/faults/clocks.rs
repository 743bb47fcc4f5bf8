//! Clocks that step under the real process: the wall clock by faketime, the boot clock by a time namespace.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{behind, start};
use crate::support::redis::Reply;
use crate::support::{Http, PATIENCE, Server};

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// A server whose wall clock is moved by what a file says.
fn with_wall(folder: &Path, data: &Path) -> Server {
    let preload = format!("LD_PRELOAD={FAKETIME}");
    let file = format!(
        "FAKETIME_TIMESTAMP_FILE={}",
        folder.join("offset").display()
    );
    let arguments = [
        &preload,
        &file,
        "FAKETIME_NO_CACHE=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
    ];
    assert!(
        std::env::var_os("ONCED_OF_LIBC").is_some(),
        "needs a build of its own: tests/faults/run nightly"
    );
    let server = Server::spawn(behind("env", &arguments, folder, data));
    server.unwrap_or_else(|output| panic!("{output:?}"))
}

fn left(http: &mut Http, key: &str) -> u64 {
    let record = http.get(&format!("/v1/claims/default/{key}")).json();
    record["lease_left_ms"]
        .as_u64()
        .unwrap_or_else(|| panic!("{record}"))
}

#[test]
#[ignore = "needs faketime: tests/faults/run"]
fn a_step_of_the_wall_clock_frees_no_lease_and_forgets_nothing_and_is_logged() {
    for (step, restart) in [
        ("+400d", false),
        ("-1d", false),
        ("+400d", true),
        ("-1d", true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let offset = |text: &str| std::fs::write(folder.path().join("offset"), text).unwrap();
        offset("+0");
        let mut server = with_wall(folder.path(), &data);
        let mut http = server.http();
        let claim = http.post("/v1/claims/default/short?lease=3s", b"");
        let (begun, token) = (Instant::now(), claim.json()["token"].as_u64().unwrap());
        assert_eq!(
            http.post("/v1/claims/default/long?lease=1h", b"").status,
            201
        );
        assert_eq!(
            http.post("/v1/claims/default/done?mode=once&retention=24h", b"")
                .status,
            201
        );
        assert_eq!(
            server.redis().command("SET s v NX PX 60000"),
            Reply::Status("OK".into())
        );
        offset(step);
        let mut log = String::new();
        if restart {
            log = server.term().stderr;
            server = with_wall(folder.path(), &data);
            http = server.http();
        }
        let mut before = left(&mut http, "long");
        assert!(before <= 3_600_000);
        loop {
            let answer = http.post("/v1/claims/default/short?lease=3s", b"");
            assert_eq!(
                http.post("/v1/claims/default/long", b"").outcome(),
                "busy",
                "{step}"
            );
            assert_eq!(
                http.post("/v1/claims/default/done?mode=once", b"")
                    .outcome(),
                "done"
            );
            let now = left(&mut http, "long");
            assert!(
                now <= before,
                "{step}: the lease grew from {before} to {now}"
            );
            before = now;
            match server.redis().command("PTTL s") {
                Reply::Integer(left) => {
                    assert!((1..=60_000).contains(&left), "{step}: PTTL {left}")
                }
                other => panic!("{other:?}"),
            }
            if answer.outcome() == "acquired" {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{step}: never acquired");
            std::thread::sleep(Duration::from_millis(50));
        }
        let took = begun.elapsed();
        assert!(
            took >= Duration::from_millis(2950),
            "{step}: taken over after {took:?}"
        );
        assert!(
            took < Duration::from_secs(6),
            "{step}: taken over only after {took:?}"
        );
        let late = http.post(
            &format!("/v1/claims/default/short/complete?token={token}"),
            b"",
        );
        assert_eq!(
            late.outcome(),
            "stale",
            "never both: lease gone and token good"
        );
        // The clock is right again: as if nothing had been.
        offset("+0");
        assert_eq!(
            http.post("/v1/claims/default/done?mode=once", b"")
                .outcome(),
            "done"
        );
        log.push_str(&server.term().stderr);
        let told = log.contains("clock");
        assert!(
            told,
            "{step}, restart {restart}: the step is not in the log: {log}"
        );
    }
}

/// The machine's boot clock as another process would see it in a container, or after a migration.
#[test]
#[ignore = "needs time namespaces: tests/faults/run"]
fn another_boot_clock_at_a_restart_never_turns_time_back() {
    for offset in ["0", "100000", "-10"] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let server = start(folder.path(), &data).unwrap();
        let mut http = server.http();
        let first = http.post("/v1/claims/default/k?lease=1h", b"");
        let token = first.json()["token"].as_u64().unwrap();
        assert_eq!(
            http.post("/v1/claims/default/done?mode=once&retention=24h", b"")
                .status,
            201
        );
        let before = left(&mut http, "k");
        server.kill9();
        let arguments = ["--time", "--fork", "--kill-child", "--boottime", offset];
        let server = Server::spawn(behind("unshare", &arguments, folder.path(), &data));
        let server = server.unwrap_or_else(|output| panic!("{offset}: {output:?}"));
        let mut http = server.http();
        let record = http.get("/v1/claims/default/k").json();
        assert_eq!(record["token"], token);
        let now = left(&mut http, "k");
        assert!(
            now <= before,
            "{offset}: the lease grew from {before} to {now}"
        );
        let again = http.post("/v1/claims/default/k?lease=1h", b"");
        match again.outcome() {
            // So long passed by the clock that counts.
            "acquired" => {
                assert_eq!(offset, "100000");
                assert!(again.json()["token"].as_u64().unwrap() > token);
            }
            "busy" => assert_ne!(offset, "100000"),
            other => panic!("{offset}: {other}"),
        }
        let done = http.post("/v1/claims/default/done?mode=once", b"");
        assert!(
            done.outcome() == "done" || offset == "100000",
            "{offset}: {}",
            done.outcome()
        );
    }
}
