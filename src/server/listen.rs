//! Addresses: bound before the store is opened, so that a port in use is told at once, and served after.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

use crate::config::Address;
use crate::error::{Exit, Failure};

/// How many free ports are tried until one is free in both families.
const TRIES: usize = 32;
/// Connections that wait to be accepted; the system takes fewer where it says so.
pub(super) const BACKLOG: u32 = 4096;

/// Which face an address serves: its name in messages, and the flag that moves it.
#[derive(Clone, Copy, Debug)]
pub enum Face {
    /// HTTP.
    Http,
    /// The Redis protocol.
    Redis,
}

impl Face {
    const fn name(self) -> &'static str {
        match self {
            Face::Http => "HTTP",
            Face::Redis => "Redis protocol",
        }
    }

    const fn flag(self) -> &'static str {
        match self {
            Face::Http => "--http",
            Face::Redis => "--redis",
        }
    }
}

/// The sockets of one address; two where it is both loopback addresses, IPv4's first. `guarded`: a secret is
/// asked for there.
///
/// # Errors
/// [`Exit::Address`] with address, cause and what to do.
pub async fn tcp(
    face: Face,
    address: &Address,
    guarded: bool,
) -> Result<Vec<TcpListener>, Failure> {
    match address {
        Address::Exact(address) => {
            if !address.ip().to_canonical().is_loopback() {
                let danger = match guarded {
                    true => "secrets and answers cross the network as they are: put TLS before it",
                    false => "whoever reaches it may do everything",
                };
                tracing::warn!(
                    "{} on {address} can be reached from other machines; {danger}",
                    face.name()
                );
            }
            let socket = bind(*address);
            Ok(vec![
                socket.map_err(|error| refused(face, *address, &error))?,
            ])
        }
        Address::Loopback(port) => loopback(face, *port).await,
    }
}

/// Sockets that were handed over, for this runtime.
///
/// # Errors
/// [`Exit::Address`]: one of them is none that can be listened on.
pub fn handed_over(sockets: Vec<std::net::TcpListener>) -> Result<Vec<TcpListener>, Failure> {
    let ready = |socket: std::net::TcpListener| {
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket)
    };
    let listeners: io::Result<Vec<_>> = sockets.into_iter().map(ready).collect();
    listeners.map_err(|error| unusable(&error))
}

pub(super) fn unusable(error: &io::Error) -> Failure {
    let attempt = "cannot use a socket of the service manager";
    let next = "its unit needs ListenStream= and Accept=no";
    Failure::new(Exit::Address, attempt, error, next)
}

async fn loopback(face: Face, port: u16) -> Result<Vec<TcpListener>, Failure> {
    let mut tries = if port == 0 { TRIES } else { 1 };
    loop {
        tries -= 1;
        let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let first = bind(v4).map_err(|error| refused(face, v4, &error))?;
        let port = first
            .local_addr()
            .map_err(|error| refused(face, v4, &error))?
            .port();
        let v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port);
        match bind(v6) {
            Ok(second) => return Ok(vec![first, second]),
            Err(error) if is_missing(&error) => {
                tracing::warn!(
                    "this machine has no ::1: {} is served on {v4} alone; clients that try only IPv6 for \
                     localhost will not find it",
                    face.name()
                );
                return Ok(vec![first]);
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse && tries > 0 => {}
            Err(error) => return Err(refused(face, v6, &error)),
        }
    }
}

/// Listens, with room for a burst while the disk is waited for: a client that finds none tries again only after a
/// second. Takes an address over from connections of an earlier process that still linger.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// IPv6 is switched off, or the loopback device has no address of it.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

fn refused(face: Face, address: SocketAddr, error: &io::Error) -> Failure {
    let (port, flag) = (address.port(), face.flag());
    let next = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "stop what uses it (`ss -ltnp 'sport = :{port}'` shows it), or give another port with {flag}"
        ),
        ErrorKind::PermissionDenied => format!("give a port above 1023 with {flag}"),
        ErrorKind::AddrNotAvailable => {
            format!("give an address that this machine has (`ip address`) with {flag}")
        }
        _ => format!("give another address with {flag}"),
    };
    let attempt = format!("cannot serve {} on {address}", face.name());
    Failure::new(Exit::Address, attempt, error, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn a_free_port_is_the_same_on_both_loopback_addresses() {
        run(async {
            let sockets = tcp(Face::Http, &Address::Loopback(0), false).await.unwrap();
            let at: Vec<SocketAddr> = sockets.iter().map(|s| s.local_addr().unwrap()).collect();
            assert_ne!(at[0].port(), 0);
            assert!(
                at.iter()
                    .all(|a| a.port() == at[0].port() && a.ip().is_loopback()),
                "{at:?}"
            );
        });
    }

    #[test]
    fn a_port_in_use_is_refused_with_address_cause_and_next_step() {
        run(async {
            let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = taken.local_addr().unwrap().port();
            let failure = tcp(Face::Redis, &Address::Loopback(port), false)
                .await
                .unwrap_err();
            assert_eq!(failure.exit, Exit::Address);
            let text = failure.to_string();
            for part in [&format!("127.0.0.1:{port}"), "in use", "--redis"] {
                assert!(text.contains(part), "{text}");
            }
        });
    }
}
