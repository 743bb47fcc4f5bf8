//! Starting: the ready line, settings and their order, and each start-up failure's code and message.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{data, folder, text};
use crate::support::redis::Reply;
use crate::support::{Http, Output, PATIENCE, Redis, Server, onced};

/// The refusal of a server that must not start.
fn refused(dir: &Path, arguments: &[&str]) -> Output {
    match Server::try_start(dir, arguments) {
        Ok(server) => panic!("it started: {}", server.ready),
        Err(output) => output,
    }
}

/// One line, with these parts, and this exit code.
fn assert_refused(output: &Output, code: i32, parts: &[&str]) {
    assert_eq!(output.code(), code, "{output:?}");
    let told: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.starts_with("onced: "))
        .collect();
    assert_eq!(told.len(), 1, "{output:?}");
    for part in parts {
        assert!(told[0].contains(part), "{part:?} in {output:?}");
    }
}

#[test]
fn the_ready_line_names_both_faces_and_the_directory_and_they_answer() {
    let folder = folder();
    let dir = data(&folder);
    let server = Server::start(&dir);
    let (http, redis) = (server.http_address(), server.redis_address());
    let line = format!(
        "onced ready http={http} redis={redis} data={}",
        dir.display()
    );
    assert_eq!(server.ready, line);
    assert_eq!(server.http().get("/readyz").status, 200);
    assert_eq!(server.redis().command("PING"), Reply::Status("PONG".into()));
}

#[test]
fn a_burst_of_clients_gets_in_while_the_server_waits_for_something() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let most = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let count = most.trim().parse::<usize>().unwrap().min(500);
    server.signal("STOP");
    let connect = |_| {
        // One that found no room would try again after a second.
        let connected =
            TcpStream::connect_timeout(&server.redis_address(), Duration::from_millis(900));
        let mut client = connected.unwrap();
        client.write_all(b"PING\r\n").unwrap();
        client
    };
    let clients: Vec<TcpStream> = (0..count).map(connect).collect();
    server.signal("CONT");
    for client in clients {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = String::new();
        BufReader::new(client).read_line(&mut line).unwrap();
        assert_eq!(line, "+PONG\r\n");
    }
}

#[test]
fn both_loopback_addresses_answer_on_the_same_port() {
    let folder = folder();
    let server = Server::start(&data(&folder));
    let other = |address: SocketAddr| SocketAddr::new("::1".parse().unwrap(), address.port());
    let (http, redis) = (other(server.http_address()), other(server.redis_address()));
    // On a machine without ::1 the same promise is the warning.
    if TcpListener::bind("[::1]:0").is_ok() {
        assert_eq!(Http::connect(http).get("/healthz").status, 200);
        assert_eq!(
            Redis::connect(redis).command("PING"),
            Reply::Status("PONG".into())
        );
    } else {
        assert!(server.term().stderr.contains("this machine has no ::1"));
    }
}

#[test]
fn flags_go_before_the_environment_before_the_file() {
    let folder = folder();
    let file = folder.path().join("onced.toml");
    let dirs = ["by-file", "by-environment", "by-flag"].map(|name| folder.path().join(name));
    let settings = format!(
        "data_dir = {:?}\n[http]\nlisten = [0]\n[redis]\nlisten = [0]\n",
        dirs[0]
    );
    fs::write(&file, settings).unwrap();
    for (said, dir) in dirs.iter().enumerate() {
        let mut command = onced();
        command.arg("serve").env("ONCED_CONFIG", &file);
        if said >= 1 {
            command.env("ONCED_DATA_DIR", &dirs[1]);
        }
        if said >= 2 {
            command.arg("--data-dir").arg(&dirs[2]);
        }
        let server = Server::spawn(command).unwrap_or_else(|output| panic!("{output:?}"));
        assert!(
            server.ready.ends_with(&format!("data={}", dir.display())),
            "{}",
            server.ready
        );
    }
}

#[test]
fn a_typo_in_the_file_is_told_with_its_line_and_the_nearest_name() {
    let folder = folder();
    let file = folder.path().join("onced.toml");
    fs::write(
        &file,
        "threads = 1\n\n[namespace.orders]\nretension = \"7d\"\n",
    )
    .unwrap();
    let output = refused(&data(&folder), &["--config", text(&file)]);
    let parts = [
        text(&file),
        "line 4",
        "`retension`",
        "did you mean `retention`?",
    ];
    assert_refused(&output, 10, &parts);
    assert!(
        !data(&folder).exists(),
        "nothing is made before the configuration is understood"
    );
}

#[test]
fn a_missing_file_that_was_named_is_an_error() {
    let folder = folder();
    let output = refused(&data(&folder), &["--config", "/nowhere/onced.toml"]);
    assert_refused(&output, 10, &["/nowhere/onced.toml", "--config"]);
}

#[test]
fn policies_of_the_file_are_in_force() {
    let folder = folder();
    let file = folder.path().join("onced.toml");
    fs::write(&file, "[namespace.orders]\nmax_attempts = 1\n").unwrap();
    let server = Server::with(&data(&folder), &["--config", text(&file)]);
    let mut http = server.http();
    assert_eq!(http.post("/v1/claims/orders/k", b"").status, 201);
    let record = http.get("/v1/claims/orders/k").json();
    assert_eq!(record["max_attempts"], 1, "{record}");
}

#[test]
fn values_out_of_the_environment_are_checked_and_names_in_it_too() {
    let folder = folder();
    let mut command = onced();
    command
        .args(["serve", "--config", "/dev/null"])
        .env("ONCED_THREADS", "many");
    let Err(output) = Server::spawn(command) else {
        panic!("it started");
    };
    assert_eq!(output.code(), 2, "{output:?}");
    assert!(
        output.stderr.contains("comes from ONCED_THREADS"),
        "{output:?}"
    );

    let mut command = onced();
    command.args([
        "serve",
        "--config",
        "/dev/null",
        "--http",
        "0",
        "--redis",
        "0",
    ]);
    command
        .env("ONCED_DATA_DIR", data(&folder))
        .env("ONCED_THREAD", "2");
    let server = Server::spawn(command).unwrap_or_else(|output| panic!("{output:?}"));
    let stderr = server.term().stderr;
    assert!(
        stderr.contains("ONCED_THREAD (did you mean ONCED_THREADS?)"),
        "{stderr}"
    );
}

#[test]
fn a_second_instance_is_refused_with_directory_and_holder() {
    let folder = folder();
    let dir = data(&folder);
    let first = Server::start(&dir);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    for path in [&dir, &link] {
        let begun = Instant::now();
        let output = refused(path, &[]);
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        let holder = format!("process {} holds it", first.pid());
        assert_refused(&output, 11, &[text(path), &holder, "--data-dir"]);
    }
    assert_eq!(first.redis().command("PING"), Reply::Status("PONG".into()));
}

#[test]
fn a_restart_waits_for_the_process_it_replaces() {
    let folder = folder();
    let dir = data(&folder);
    let first = Server::start(&dir);
    first.signal("TERM");
    let second = Server::start(&dir);
    assert_eq!(second.redis().command("PING"), Reply::Status("PONG".into()));
    assert_eq!(first.wait().code(), 0);
}

#[test]
fn after_kill_9_it_starts_at_once_with_what_was_acknowledged() {
    let folder = folder();
    let dir = data(&folder);
    for round in 0..3 {
        let server = Server::start(&dir);
        let mut redis = server.redis();
        for earlier in 0..round {
            let again = redis.command(&format!("SET k{earlier} again NX EX 1000"));
            assert_eq!(again, Reply::Null, "round {round}, k{earlier}");
        }
        let first = redis.command(&format!("SET k{round} first NX EX 1000"));
        assert_eq!(first, Reply::Status("OK".into()));
        server.kill9();
    }
}

#[test]
fn a_port_in_use_is_told_with_address_and_next_step() {
    let folder = folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let port = address.port().to_string();
    for flag in ["--http", "--redis"] {
        let output = refused(&data(&folder), &[flag, &port]);
        assert_refused(&output, 14, &[&address.to_string(), "in use", flag]);
    }
}

#[test]
fn a_data_directory_that_cannot_be_written_is_refused() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    // The file system of processes takes no folders, from root neither.
    for dir in [&file, &file.join("below"), Path::new("/proc/onced")] {
        let output = refused(dir, &[]);
        assert_refused(&output, 12, &[text(dir), "--data-dir"]);
    }
}

#[test]
fn an_address_beyond_loopback_needs_the_word_for_it() {
    let folder = folder();
    let output = refused(&data(&folder), &["--redis", "0.0.0.0:0"]);
    assert_refused(
        &output,
        10,
        &["0.0.0.0:0", "whoever reaches it", "--trust-network"],
    );
    let server = Server::with(&data(&folder), &["--redis", "0.0.0.0:0", "--trust-network"]);
    let stderr = server.term().stderr;
    assert!(
        stderr.contains("0.0.0.0:0 can be reached from other machines"),
        "{stderr}"
    );
}

#[test]
fn host_names_of_the_configuration_are_answered_to_and_others_are_not() {
    let folder = folder();
    let server = Server::with(&data(&folder), &["--host", "onced.internal"]);
    for (host, status) in [("onced.internal", 200), ("elsewhere.example", 421)] {
        let mut http = server.http();
        let request = format!("GET /v1/claims/default HTTP/1.1\r\nhost: {host}\r\n\r\n");
        http.send(request.as_bytes());
        assert_eq!(http.answer().unwrap().status, status, "{host}");
    }
}

#[test]
fn with_few_files_there_are_fewer_connections_and_the_log_says_so() {
    let folder = folder();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -n 300 && exec \"$@\"", "sh"]);
    command
        .arg(onced().get_program())
        .args(["serve", "--config", "/dev/null"]);
    command
        .args(["--http", "0", "--redis", "0", "--data-dir"])
        .arg(data(&folder));
    let server = Server::spawn(command).unwrap_or_else(|output| panic!("{output:?}"));
    let stderr = server.term().stderr;
    assert!(
        stderr.contains("may open 300 files, so 150 connections instead of 10000"),
        "{stderr}"
    );
}

#[test]
fn a_unix_socket_serves_http_for_user_and_group() {
    let folder = folder();
    let dir = data(&folder);
    let socket = folder.path().join("onced.sock");
    let ask = || {
        let url = format!("unix:{}", socket.display());
        onced()
            .args(["list", "--url", &url])
            .output()
            .unwrap()
            .status
            .code()
    };
    let server = Server::with(&dir, &["--unix", text(&socket)]);
    assert_eq!(
        socket.metadata().unwrap().permissions().mode() & 0o777,
        0o660
    );
    assert_eq!(ask(), Some(0));
    let output = refused(&folder.path().join("other"), &["--unix", text(&socket)]);
    assert_refused(&output, 14, &[text(&socket), "somebody answers there"]);
    server.kill9();
    assert!(socket.exists(), "a killed process leaves its socket");
    let server = Server::with(&dir, &["--unix", text(&socket)]);
    assert_eq!(ask(), Some(0));
    assert_eq!(server.term().code(), 0);
    assert!(UnixStream::connect(&socket).is_err());
    assert!(!socket.exists());
}

#[test]
fn a_unix_socket_has_the_mode_and_group_of_the_configuration() {
    let folder = folder();
    let dir = data(&folder);
    let socket = folder.path().join("onced.sock");
    let own = folder.path().metadata().unwrap().gid().to_string();
    let mut arguments = vec![
        "--unix",
        text(&socket),
        "--unix-mode",
        "0606",
        "--unix-group",
    ];
    arguments.push(&own);
    let server = Server::with(&dir, &arguments);
    let there = socket.metadata().unwrap();
    assert_eq!(there.mode() & 0o7777, 0o606);
    assert_eq!(there.gid().to_string(), own);
    assert_eq!(server.term().code(), 0);

    arguments.pop();
    arguments.push("no-such-group-here");
    let output = refused(&dir, &arguments);
    assert_refused(
        &output,
        14,
        &["no-such-group-here", "/etc/group", "groupadd"],
    );
    assert!(!socket.exists());
    let output = refused(&dir, &["--unix-mode", "0600"]);
    assert_refused(&output, 10, &["unix_mode", "--unix"]);
}

#[test]
fn the_service_manager_is_told_of_start_and_end() {
    let folder = folder();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let mut command = onced();
    command.args([
        "serve",
        "--config",
        "/dev/null",
        "--http",
        "0",
        "--redis",
        "0",
        "--data-dir",
    ]);
    command.arg(data(&folder)).env("NOTIFY_SOCKET", &path);
    let server = Server::spawn(command).unwrap_or_else(|output| panic!("{output:?}"));
    let until = |part: &str| {
        loop {
            let text = told();
            if text.contains(part) {
                return text;
            }
        }
    };
    let ready = until("READY=1\n");
    assert!(ready.contains("STATUS=onced ready"), "{ready}");
    assert_eq!(server.term().code(), 0);
    until("STOPPING=1\n");
}

#[test]
fn nobody_needs_to_read_what_it_prints() {
    let folder = folder();
    let mut command = onced();
    command.args([
        "serve",
        "--config",
        "/dev/null",
        "--http",
        "0",
        "--redis",
        "0",
        "--data-dir",
    ]);
    command.arg(data(&folder)).args(["--log", "trace"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut ready = String::new();
    stdout.read_line(&mut ready).unwrap();
    // From here on whatever it writes meets a broken pipe.
    drop(stdout);
    drop(child.stderr.take());
    let redis = ready
        .split(' ')
        .find_map(|part| part.strip_prefix("redis="))
        .unwrap();
    let redis: SocketAddr = redis.parse().unwrap();
    for _ in 0..3 {
        // Worth a log line each.
        Redis::connect(redis).send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        drop(TcpStream::connect(redis).unwrap());
        let set = Redis::connect(redis).command("SET k v EX 100");
        assert_eq!(set, Reply::Status("OK".into()));
    }
    assert!(child.try_wait().unwrap().is_none(), "it has ended");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The server with its standard error somewhere else, as a shell writes it.
fn serve_with(dir: &Path, redirection: &str) -> (std::process::Child, SocketAddr) {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("exec \"$@\" {redirection}"), "sh"]);
    command.arg(onced().get_program());
    command.args(["serve", "--config", "/dev/null", "--log", "trace"]);
    command.args(["--http", "0", "--redis", "0", "--data-dir"]);
    let mut child = command
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    let redis = ready
        .split(' ')
        .find_map(|part| part.strip_prefix("redis="))
        .unwrap_or_else(|| panic!("{ready:?}"));
    (child, redis.parse().unwrap())
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    // Closed, a full disk, and a pipe that nobody reads: more lines than it holds.
    for redirection in ["2>&-", "2>/dev/full", ""] {
        let folder = folder();
        let (mut child, redis) = serve_with(&data(&folder), redirection);
        let mut client = Redis::connect(redis);
        for number in 0..1000 {
            // Gone with an answer unread: that breaks the connection, and is worth a line.
            let mut broken = TcpStream::connect(redis).unwrap();
            broken.write_all(b"PING\r\n").unwrap();
            broken.peek(&mut [0]).unwrap();
            drop(broken);
            if number % 100 == 0 {
                let set = client.command(&format!("SET k{number} v EX 100"));
                assert_eq!(set, Reply::Status("OK".into()), "{redirection:?}");
            }
        }
        assert!(
            child.try_wait().unwrap().is_none(),
            "{redirection:?}: it has ended"
        );
        let pid = child.id().to_string();
        let kill = std::process::Command::new("kill")
            .args(["-TERM", &pid])
            .status();
        assert!(kill.unwrap().success());
        let begun = Instant::now();
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{redirection:?}: it does not stop"
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended.code(), Some(0), "{redirection:?}");
    }
}
