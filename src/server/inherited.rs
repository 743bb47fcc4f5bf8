//! Sockets that a service manager listens on for this process (`LISTEN_FDS`, sd_listen_fds(3)). They outlive it: who
//! connects while it restarts waits, and nobody is refused.
//!
//! A socket says what it is for by its name, `FileDescriptorName=` of its unit: `http` or `redis`. A face that is handed
//! sockets binds none of its own.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;

use crate::config::{Address, HTTP_PORT, REDIS_PORT};
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
    /// Warns of addresses that somebody configured and that are not listened on, because the sockets are others.
    pub fn warn_of_unused(&self, http: &[Address], redis: &[Address]) {
        let faces = [
            ("http", HTTP_PORT, &self.http, http),
            ("redis", REDIS_PORT, &self.redis, redis),
        ];
        for (name, port, sockets, configured) in faces {
            let handed: Vec<SocketAddr> =
                sockets.iter().flat_map(TcpListener::local_addr).collect();
            let is_served = |address: &Address| match address {
                Address::Loopback(port) => {
                    let mut handed = handed.iter();
                    handed.any(|it| it.ip().is_loopback() && it.port() == *port)
                }
                Address::Exact(exact) => handed.contains(exact),
            };
            // What nobody configured nobody misses.
            if handed.is_empty() || configured == [Address::Loopback(port)] {
                continue;
            }
            for address in configured.iter().filter(|address| !is_served(address)) {
                tracing::warn!(
                    "{name}.listen has {address}, which is not served: a socket unit listens for {name}; change its \
                     ListenStream= (`systemctl edit`), or disable it"
                );
            }
        }
    }

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
