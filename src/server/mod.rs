//! `onced serve`: from a configuration to faces that answer, and to the end.
//!
//! * [`data_dir`]: the data directory and its lock.
//! * [`listen`] binds addresses.
//! * [`accept`]: from a listening socket to connections.
//! * [`connection`]: from the socket to the face and back.
//! * [`limits`]: what all connections share.
//! * [`storage`]: the engine's start and end.
//! * [`shutdown`], [`systemd`], [`log`], [`panic`]: how the process ends and what it tells.
//!
//! The order at the start: the lock, the addresses, the store, the faces, the ready line. So what a second
//! instance or a port in use has to say is said at once, and clients that connect while the store recovers
//! wait instead of being refused.

mod accept;
pub mod connection;
pub mod data_dir;
pub mod limits;
pub mod listen;
pub mod log;
pub mod panic;
pub mod shutdown;
pub mod storage;
pub mod systemd;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::accept::{Doors, Refusals};
use self::connection::Redis;
use self::data_dir::DataDir;
use self::limits::{Budget, Connections};
use self::listen::{Face, UnixSocket};
use self::shutdown::{GRACE, Signals};
use crate::config::Config;
use crate::engine;
use crate::error::{Exit, Failure};
use crate::http::metrics::Live;
use crate::http::{self, Readiness};
use crate::resp;

/// Serves until a signal ends it.
///
/// # Errors
/// What kept it from starting, or from going on.
pub fn run(config: &Config) -> Result<(), Failure> {
    let log = log::Log::start(&config.log)?;
    panic::ends_the_process();
    for name in &config.unknown {
        tracing::warn!("the environment has a name that is no setting: {name}");
    }
    let served = hold_and_serve(config);
    log.flush();
    served
}

fn hold_and_serve(config: &Config) -> Result<(), Failure> {
    let dir = DataDir::hold(&config.data_dir)?;
    let mut runtime = if config.threads == 1 {
        tokio::runtime::Builder::new_current_thread()
    } else {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(config.threads);
        runtime
    };
    let runtime = runtime.enable_all().build().map_err(|error| {
        let next = "check the limits of this process on threads and open files";
        Failure::new(Exit::Failure, "cannot start the runtime", error, next)
    })?;
    let served = runtime.block_on(serve(config, &dir));
    // Connections that outstayed their grace are dropped here, not waited for.
    runtime.shutdown_background();
    served
}

async fn serve(config: &Config, dir: &DataDir) -> Result<(), Failure> {
    let sockets = Sockets::bind(config).await?;
    let budget = Budget::new(config.limits.in_flight);
    let engine = storage::open(config, dir, &budget)?;
    // Until here a signal ends the process at once, which the store recovers from.
    let mut signals = Signals::listen()?;
    let ready = sockets.ready_line(dir)?;

    let connections = Connections::new(limits::open_files(config.limits.connections));
    let (stopper, stop) = shutdown::stop();
    let (readiness, ready_now) = watch::channel(Readiness::Ready);
    let http = http::Face::new(
        engine.clone(),
        http_options(config),
        ready_now,
        budget.bytes(),
    );
    let (seats, bytes, most) = (connections.clone(), budget.bytes(), config.limits.in_flight);
    http.show(move || Live {
        connections: seats.open() as u64,
        in_flight: most.saturating_sub(bytes.available_permits()) as u64,
    });
    let accepting = sockets.serve(&Doors {
        redis: Redis {
            engine: engine.clone().facing(engine::Face::Redis),
            face: Arc::new(resp::Face::new(redis_options(config))),
            patience: config.limits.body_timeout,
        },
        http: Arc::new(http),
        connections: connections.clone(),
        budget,
        stop,
        refusals: Refusals::default(),
    });
    announce(&ready);

    let name = tokio::select! {
        (name, _) = signals.next() => name,
        failure = storage::failed(&engine) => return Err(failure),
    };
    tracing::info!("{name}: answering what is in hand, then stopping; a second one stops at once");
    systemd::stopping();
    readiness.send_replace(Readiness::Stopping);
    stopper.call();
    let polite = async {
        accepting.join_all().await;
        if tokio::time::timeout(GRACE, connections.all_gone())
            .await
            .is_err()
        {
            let left = connections.open();
            tracing::warn!("{left} connections were cut: they were not answered in {GRACE:?}");
        }
        storage::close(engine).await
    };
    tokio::select! {
        closed = polite => closed?,
        (name, code) = signals.next() => {
            tracing::warn!("{name} again: stopping at once");
            std::process::exit(code);
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// Every face answers. Whoever started the process may have gone, and is not needed.
fn announce(ready: &str) {
    tracing::info!("{ready}");
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{ready}").and_then(|()| stdout.flush());
    systemd::ready(ready);
}

/// All addresses, bound.
struct Sockets {
    http: Vec<TcpListener>,
    redis: Vec<TcpListener>,
    unix: Option<UnixSocket>,
}

impl Sockets {
    async fn bind(config: &Config) -> Result<Sockets, Failure> {
        let mut sockets = Sockets {
            http: Vec::new(),
            redis: Vec::new(),
            unix: None,
        };
        for address in &config.http {
            sockets.http.extend(listen::tcp(Face::Http, address).await?);
        }
        for address in &config.redis {
            sockets
                .redis
                .extend(listen::tcp(Face::Redis, address).await?);
        }
        sockets.unix = config.unix.as_deref().map(UnixSocket::bind).transpose()?;
        Ok(sockets)
    }

    /// What programs that start a server wait for: SPEC 8 gives its form.
    fn ready_line(&self, dir: &DataDir) -> Result<String, Failure> {
        let (http, redis) = (first(&self.http)?, first(&self.redis)?);
        let data = dir.path().display();
        Ok(format!("onced ready http={http} redis={redis} data={data}"))
    }

    /// Begins to accept on all of them.
    fn serve(self, doors: &Doors) -> JoinSet<()> {
        let mut accepting = JoinSet::new();
        for listener in self.http {
            accepting.spawn(doors.clone().http(listener));
        }
        for listener in self.redis {
            accepting.spawn(doors.clone().redis(listener));
        }
        if let Some(socket) = self.unix {
            accepting.spawn(doors.clone().unix(socket));
        }
        accepting
    }
}

fn first(listeners: &[TcpListener]) -> Result<SocketAddr, Failure> {
    // The configuration never holds an empty list of addresses.
    let first = listeners.first().map(TcpListener::local_addr);
    let none = || Err(std::io::ErrorKind::NotFound.into());
    first.unwrap_or_else(none).map_err(|error| {
        let attempt = "cannot tell the address of a socket";
        Failure::new(Exit::Address, attempt, error, "give it with its port")
    })
}

fn redis_options(config: &Config) -> resp::Options {
    resp::Options {
        nx_without_expiry: config.nx_without_expiry,
        allow_flush: config.allow_flush,
        limits: resp::Limits {
            payload: config.limits.payload,
            result: config.limits.result,
            pipeline: config.limits.pipeline,
            ..resp::Limits::default()
        },
        ..resp::Options::default()
    }
}

fn http_options(config: &Config) -> http::Options {
    http::Options {
        payload_limit: config.limits.payload,
        result_limit: config.limits.result,
        hosts: config.hosts.clone(),
        header_timeout: config.limits.header_timeout,
        body_timeout: config.limits.body_timeout,
        idle_timeout: config.limits.idle_timeout,
    }
}
