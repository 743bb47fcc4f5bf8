//! Sockets that a service manager listens on, and restarts behind them.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};

use super::{data, folder};
use crate::support::redis::Reply;
use crate::support::{Http, Output, Redis, Server, onced};

/// A server that is handed this socket under that name, as sd_listen_fds(3) says.
fn handed(
    folder: &tempfile::TempDir,
    socket: impl Into<OwnedFd>,
    name: &str,
    rest: &[&str],
) -> Result<Server, Output> {
    let mut command = Command::new("sh");
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    command.args(["-c", script, "sh"]);
    command.arg(onced().get_program());
    command.args(["serve", "--config", "/dev/null"]).args(rest);
    command.arg("--data-dir").arg(data(folder));
    command.env("LISTEN_FDNAMES", name);
    command.stdin(Stdio::from(socket.into()));
    Server::spawn(command)
}

#[test]
fn who_connects_while_it_restarts_waits_and_nobody_is_refused() {
    let folder = folder();
    for name in ["http", "redis"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = || {
            let socket = listener.try_clone().unwrap();
            let other = if name == "http" { "--redis" } else { "--http" };
            handed(&folder, socket, name, &[other, "0"]).unwrap_or_else(|o| panic!("{o:?}"))
        };
        let server = serve();
        assert!(
            server.ready.contains(&format!("{name}={address}")),
            "{}",
            server.ready
        );
        server.kill9();
        // Nobody serves now.
        match name {
            "http" => {
                let mut early = Http::connect(address);
                early.send(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n");
                let server = serve();
                assert_eq!(early.answer().unwrap().status, 200);
                assert_eq!(server.term().code(), 0);
            }
            _ => {
                let mut early = Redis::connect(address);
                early.send(b"SET early v NX\r\n");
                let server = serve();
                assert_eq!(early.reply(), Reply::Status("OK".into()));
                assert_eq!(server.term().code(), 0);
            }
        }
        Http::connect(address);
    }
}

#[test]
fn an_address_that_a_handed_over_socket_stands_in_for_is_warned_of() {
    let folder = folder();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().to_string();
    for (address, warned) in [(own.as_str(), false), ("127.0.0.1:1", true)] {
        let rest = ["--http", address, "--redis", "0"];
        let server = handed(&folder, listener.try_clone().unwrap(), "http", &rest);
        let stderr = server.unwrap_or_else(|o| panic!("{o:?}")).term().stderr;
        let said = "http.listen has 127.0.0.1:1, which is not served";
        assert_eq!(stderr.contains(said), warned, "{stderr}");
        assert_eq!(stderr.contains("WARN"), warned, "{stderr}");
    }
}

#[test]
fn a_unix_socket_that_was_handed_over_is_served_and_left_where_it_is() {
    let folder = folder();
    let path = folder.path().join("http.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let rest = ["--http", "0", "--redis", "0"];
    let server = handed(&folder, listener, "http", &rest).unwrap_or_else(|o| panic!("{o:?}"));
    let url = format!("unix:{}", path.display());
    let list = onced().args(["list", "--url", &url]).output().unwrap();
    assert_eq!(list.status.code(), Some(0), "{list:?}");
    assert_eq!(server.term().code(), 0);
    assert!(path.exists());
}

#[test]
fn a_socket_that_nobody_knows_or_that_others_reach_is_refused() {
    let folder = folder();
    let local = || TcpListener::bind("127.0.0.1:0").unwrap();
    let open = TcpListener::bind("0.0.0.0:0").unwrap();
    let rest = ["--http", "0", "--redis", "0"];
    for (socket, name, code, said) in [
        (local(), "onced.socket", 14, "FileDescriptorName=http"),
        (local(), "", 14, "nobody knows"),
        (open.try_clone().unwrap(), "redis", 10, "whoever reaches it"),
    ] {
        let Err(output) = handed(&folder, socket, name, &rest) else {
            panic!("{name:?}: it started");
        };
        assert_eq!(output.code(), code, "{output:?}");
        assert!(output.stderr.contains(said), "{output:?}");
    }
    let unix = UnixListener::bind(folder.path().join("s")).unwrap();
    let Err(output) = handed(&folder, unix, "redis", &rest) else {
        panic!("it started");
    };
    assert_eq!(output.code(), 14, "{output:?}");
}
