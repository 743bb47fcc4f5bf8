//! Sockets that a service manager listens on for this process (`LISTEN_FDS`, sd_listen_fds(3)). They outlive it: who
//! connects while it restarts waits, and nobody is refused.
//!
//! A socket says what it is for by its name, `FileDescriptorName=` of its unit: `http` or `redis`. A face that is handed
//! sockets binds none of its own.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;

use crate::error::{Exit, Failure};

/// What was handed over.
#[derive(Debug, Default)]
pub struct Inherited {
    /// For HTTP.
    pub http: Vec<TcpListener>,
    /// For the Redis protocol.
    pub redis: Vec<TcpListener>,
    /// For HTTP too.
    pub unix: Option<UnixListener>,
}

/// Takes what is there. To be called before there are threads: what says it leaves the environment.
///
/// # Errors
/// [`Exit::Address`]: a socket without a name that is known, or of another kind.
pub fn take() -> Result<Inherited, Failure> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut sockets = ListenFd::from_env();
    let mut inherited = Inherited::default();
    for at in 0..sockets.len() {
        let name = names.next().unwrap_or_default();
        let refused = |cause: &dyn std::fmt::Display| {
            let attempt = format!("cannot use the socket {name:?} of the service manager");
            let next = "a socket unit has FileDescriptorName=http or redis, and ListenStream=";
            Failure::new(Exit::Address, attempt, cause, next)
        };
        match name {
            "http" => match sockets.take_tcp_listener(at) {
                Ok(listener) => inherited.http.extend(listener),
                Err(tcp) => {
                    let unix = sockets.take_unix_listener(at);
                    let unix = unix.map_err(|error| refused(&format!("{tcp}, {error}")))?;
                    if std::mem::replace(&mut inherited.unix, unix).is_some() {
                        return Err(refused(&"there is another Unix socket already"));
                    }
                }
            },
            "redis" => {
                let listener = sockets.take_tcp_listener(at);
                inherited.redis.extend(listener.map_err(|e| refused(&e))?);
            }
            _ => return Err(refused(&"nobody knows what it is for")),
        }
    }
    Ok(inherited)
}

impl Inherited {
    /// Refuses sockets that other machines reach where no secret is asked for.
    ///
    /// # Errors
    /// [`Exit::Configuration`] with the address.
    pub fn check_reach(&self) -> Result<(), Failure> {
        let addresses = self.http.iter().chain(&self.redis);
        let beyond = addresses
            .filter_map(|listener| listener.local_addr().ok())
            .find(|address: &SocketAddr| !address.ip().to_canonical().is_loopback());
        beyond.map_or(Ok(()), |address| {
            Err(crate::config::open_to_others(&address))
        })
    }
}
