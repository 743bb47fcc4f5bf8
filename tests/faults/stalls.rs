//! A disk that stops for a while, under a thread that decides and under the journal thread.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use super::behind;
use crate::support::redis::Reply;
use crate::support::{PATIENCE, Server};

const STALL: Duration = Duration::from_secs(2);

/// Each thread's two hundredth sync takes two seconds.
#[test]
#[ignore = "needs strace: tests/faults/run"]
fn a_disk_that_stalls_is_waited_for_and_trips_no_watchdog() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let inject = format!(
        "inject=fdatasync:delay_enter={}:when=200",
        STALL.as_micros()
    );
    let trace = folder.path().join("trace");
    let arguments = [
        "-D",
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-o",
        trace.to_str().unwrap(),
    ];
    let arguments = [&arguments[..], &["-e", "trace=fdatasync", "-e", &inject]].concat();
    let mut command = behind(
        "strace",
        &arguments,
        folder.path(),
        &folder.path().join("data"),
    );
    command
        .env("NOTIFY_SOCKET", &socket)
        .env("WATCHDOG_USEC", "600000");
    let server = Server::spawn(command).unwrap_or_else(|output| panic!("{output:?}"));
    let pid = server.pid();
    let fed = std::thread::spawn(move || {
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        loop {
            let mut buffer = [0; 1024];
            let length = manager.recv(&mut buffer).expect("a message");
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.contains("WATCHDOG=1") {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            if text.contains("STOPPING=1") {
                return longest;
            }
        }
    });
    let mut redis = server.redis();
    let mut slowest = Duration::ZERO;
    for number in 0..1200 {
        let begun = Instant::now();
        let answer = redis.command(&format!("SET k{number} v NX EX 900"));
        assert_eq!(answer, Reply::Status("OK".into()), "k{number}");
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest >= STALL / 2, "no claim waited: {slowest:?}");
    assert_eq!(server.term().code(), 0);
    let longest = fed.join().unwrap();
    assert!(longest < STALL / 4 * 3, "not fed for {longest:?}");
    // Both of them wrote: the one that decides while the disk is quick, the journal thread when it is not.
    let trace = std::fs::read_to_string(&trace).unwrap();
    let own = trace
        .lines()
        .filter(|line| line.starts_with(&pid.to_string()))
        .count();
    let all = trace
        .lines()
        .filter(|line| line.contains("fdatasync"))
        .count();
    println!(
        "syncs: {own} where commands are decided, {} elsewhere; slowest answer {slowest:?}",
        all - own
    );
    assert!(own > 0 && own < all, "{own} of {all}");
}
