//! T8: the disk that fills, the store that is open already, the file system that turns read-only.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Case, claim, ok, token};
use crate::support::redis::{Reply, encode};
use crate::support::{Http, PATIENCE, Server, SmallDisk, onced};

fn complete(http: &mut Http, key: &str, token: u64, result: &[u8]) -> String {
    let path = format!("/v1/claims/default/{key}/complete?token={token}");
    http.post(&path, result).outcome().to_owned()
}

/// A full disk is refused with the reason, what is known is answered, and nothing is lost or evicted by it.
#[test]
fn fo_21_a_full_disk_refuses_new_work_and_loses_nothing() {
    let disk = SmallDisk::new(128);
    let server = disk.serve();
    let mut http = server.http();
    for number in 0..1000 {
        let key = format!("old-{number}");
        let held = token(&claim(&mut http, &key, ""));
        let result = format!("result of {number}");
        assert_eq!(
            complete(&mut http, &key, held, result.as_bytes()),
            "completed"
        );
    }
    let open = token(&claim(&mut http, "open", "lease=1h"));
    disk.fill();
    // Segments that are allocated already take some more.
    let payload = vec![b'p'; 60_000];
    let begun = Instant::now();
    let mut taken = 0;
    let refused = loop {
        let answer = http.post(
            &format!("/v1/claims/default/new-{taken}?store=true"),
            &payload,
        );
        match answer.status {
            201 => taken += 1,
            _ => break answer,
        }
        assert!(begun.elapsed() < PATIENCE, "it never got full");
    };
    assert_eq!((refused.status, refused.outcome()), (507, "full"));
    assert!(refused.header("retry-after").is_some());
    let misconf =
        |reply: &Reply| matches!(reply, Reply::Error(text) if text.starts_with("MISCONF"));
    assert!(misconf(&server.redis().command("SET new v NX EX 100")));
    let check = |http: &mut Http| {
        for number in (0..999).step_by(37) {
            let answer = claim(http, &format!("old-{number}"), "");
            assert_eq!(answer.outcome(), "done", "{number}");
        }
    };
    check(&mut http);
    assert_eq!(complete(&mut http, "open", open, b"finished"), "completed");
    assert_eq!(
        http.request("DELETE", "/v1/claims/default/old-999", b"")
            .outcome(),
        "forgotten"
    );
    assert_eq!(http.get("/healthz").status, 200);
    server.kill9();
    let server = disk.serve();
    let mut http = server.http();
    check(&mut http);
    let answer = claim(&mut http, "still-full", "store=true");
    assert!(matches!(answer.status, 201 | 507), "{answer:?}");
    disk.free();
    let begun = Instant::now();
    while claim(&mut http, "normal-again", "").status != 201 {
        assert!(begun.elapsed() < PATIENCE, "it stays full");
        std::thread::sleep(Duration::from_millis(20));
    }
    for number in 0..999 {
        let answer = claim(&mut http, &format!("old-{number}"), "");
        assert_eq!(answer.outcome(), "done", "{number}");
        let body = answer.json()["result"]["body"].clone();
        assert_eq!(body, format!("result of {number}"));
    }
    assert_eq!(http.get("/v1/claims/default/open/result").body, b"finished");
    assert_eq!(http.get("/v1/claims/default/old-999").status, 404);
}

/// Clients that write until they are told to stop, across restarts: how many answers they had.
struct Busy {
    stop: Arc<AtomicBool>,
    address: Arc<std::sync::Mutex<std::net::SocketAddr>>,
    acknowledged: Vec<(String, Arc<AtomicU64>)>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Busy {
    fn start(server: &Server) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let address = Arc::new(std::sync::Mutex::new(server.redis_address()));
        let (mut acknowledged, mut threads) = (Vec::new(), Vec::new());
        for client in 0..4 {
            let name = format!("busy-{client}");
            let count = Arc::new(AtomicU64::new(0));
            acknowledged.push((name.clone(), count.clone()));
            let (stop, address) = (stop.clone(), address.clone());
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let now = *address.lock().unwrap();
                    let Some(mut redis) = crate::support::Redis::try_connect(now) else {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    while !stop.load(Ordering::Relaxed) {
                        let number = count.load(Ordering::Relaxed);
                        let key = format!("{name}-{number}");
                        // Whoever does not know whether his first try counted sends it again: both are fine.
                        match redis.try_words(&[b"SET", key.as_bytes(), b"v", b"NX", b"EX", b"900"])
                        {
                            Reply::Status(_) | Reply::Null => {
                                count.fetch_add(1, Ordering::Relaxed);
                            }
                            Reply::End => break,
                            other => panic!("{other:?}"),
                        }
                    }
                }
            }));
        }
        Busy {
            stop,
            address,
            acknowledged,
            threads,
        }
    }

    fn total(&self) -> u64 {
        let counts = self.acknowledged.iter();
        counts.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    fn until_more(&self) {
        let (begun, before) = (Instant::now(), self.total());
        while self.total() < before + 40 {
            assert!(begun.elapsed() < PATIENCE, "the load stands still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(self, server: &Server) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let mut redis = server.redis();
        for (name, count) in self.acknowledged {
            for number in 0..count.load(Ordering::Relaxed) {
                redis.send(&encode(&[b"EXISTS", format!("{name}-{number}").as_bytes()]));
                assert_eq!(redis.reply(), Reply::Integer(1), "{name}-{number}");
            }
        }
    }
}

/// One process per directory, whatever its path; a lock dies with its holder; tools keep away.
#[test]
fn fo_22_a_directory_has_one_process_and_its_lock_dies_with_it() {
    let mut case = Case::start();
    let dir = case.folder.path().join("data");
    let link = case.folder.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    let bound = case.folder.path().join("bound");
    std::fs::create_dir(&bound).unwrap();
    let load = Busy::start(case.server());
    for path in [&dir, &link, &bound] {
        load.until_more();
        let begun = Instant::now();
        let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args([
                "--user",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                script,
                "sh",
            ])
            .args([&dir, &bound])
            .arg(onced().get_program())
            .args([
                "serve",
                "--config",
                "/dev/null",
                "--http",
                "0",
                "--redis",
                "0",
            ])
            .arg("--data-dir")
            .arg(path);
        let Err(output) = Server::spawn(command) else {
            panic!("a second one started on {}", path.display());
        };
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(output.code(), 11, "{output:?}");
        let holder = format!("process {} holds it", case.server().pid());
        assert!(output.stderr.contains(&holder), "{output:?}");
        assert!(output.stderr.contains(path.to_str().unwrap()), "{output:?}");
    }
    for tool in ["check", "compact"] {
        let output = onced()
            .args([tool, "--data-dir"])
            .arg(&dir)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(11), "{tool}: {output:?}");
    }
    load.until_more();
    // kill -9 and a start at once, then politely, again and again, under load.
    case.crash();
    *load.address.lock().unwrap() = case.server().redis_address();
    for _ in 0..10 {
        load.until_more();
        case.server().signal("TERM");
        // The new one is there before the old one has gone.
        let next = Server::start(&dir);
        let old = case.server.replace(next).unwrap();
        assert_eq!(old.wait().code(), 0);
        *load.address.lock().unwrap() = case.server().redis_address();
    }
    load.until_more();
    load.end(case.server());
}

/// A directory that cannot be written is refused with its path, and is as it was once it can be.
#[test]
fn fo_23_a_read_only_store_is_refused_and_kept() {
    let disk = SmallDisk::new(64);
    let server = disk.serve();
    let mut redis = server.redis();
    for number in 0..100 {
        assert_eq!(redis.command(&format!("SET k{number} v NX EX 900")), ok());
    }
    server.kill9();
    disk.remount("ro");
    let Err(output) = disk.try_serve() else {
        panic!("it started on a read-only file system");
    };
    assert!([12, 15].contains(&output.code()), "{output:?}");
    let path = disk.data();
    assert!(output.stderr.contains(path.to_str().unwrap()), "{output:?}");
    assert!(output.stderr.contains("ead-only"), "{output:?}");
    disk.remount("rw");
    let server = disk.serve();
    let mut redis = server.redis();
    for number in 0..100 {
        assert_eq!(
            redis.command(&format!("SET k{number} other NX EX 900")),
            Reply::Null
        );
    }
}
