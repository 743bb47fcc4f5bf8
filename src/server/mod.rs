//! `onced serve`: from a configuration to faces that answer, and to the end.
//!
//! * [`data_dir`]: the data directory and its lock.
//! * [`listen`] binds addresses, [`unix`] the Unix socket; [`inherited`] takes those that a service manager listens on.
//! * [`accept`]: from a listening socket to connections.
//! * [`connection`]: from the socket to the face and back.
//! * [`limits`]: what all connections share.
//! * [`storage`]: the engine's start and end.
//! * [`reload`]: what the configuration may change while it runs.
//! * [`shutdown`], [`systemd`], [`log`], [`panic`]: how the process ends and what it tells.
//!
//! The order at the start: the lock, the addresses, the store, the faces, the ready line. So what a second
//! instance or a port in use has to say is said at once, and clients that connect while the store recovers
//! wait instead of being refused.

mod accept;
pub mod connection;
pub mod data_dir;
pub mod inherited;
pub mod limits;
pub mod listen;
pub mod log;
pub mod panic;
pub mod reload;
pub mod shutdown;
pub mod storage;
pub mod systemd;
pub mod unix;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::accept::{Doors, Refusals};
use self::connection::Redis;
use self::data_dir::DataDir;
use self::inherited::Inherited;
use self::limits::{Budget, Connections, Met};
use self::listen::Face;
use self::reload::{Reload, Source};
use self::shutdown::{Asked, GRACE, Signals};
use self::unix::UnixSocket;
use crate::config::Config;
use crate::engine;
use crate::error::{Exit, Failure};
use crate::http::metrics::Live;
use crate::http::{self, Readiness};
use crate::resp;

/// Serves until a signal ends it. `source` reads the configuration, again at each reload.
///
/// # Errors
/// What kept it from starting, or from going on.
pub fn run(source: &Source) -> Result<(), Failure> {
    let config = source()?;
    let inherited = inherited::take()?;
    let log = log::Log::start(config.log.0);
    panic::ends_the_process();
    for name in &config.unknown {
        tracing::warn!("the environment has a name that is no setting: {name}");
    }
    let served = hold_and_serve(config, inherited, source, &log);
    log.flush();
    served
}

fn hold_and_serve(
    config: Config,
    inherited: Inherited,
    source: &Source,
    log: &log::Log,
) -> Result<(), Failure> {
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
    let served = runtime.block_on(serve(config, inherited, source, &dir, log));
    // Connections that outstayed their grace are dropped here, not waited for.
    runtime.shutdown_background();
    served
}

async fn serve(
    mut config: Config,
    inherited: Inherited,
    source: &Source,
    dir: &DataDir,
    log: &log::Log,
) -> Result<(), Failure> {
    let sockets = Sockets::bind(&config, inherited).await?;
    let budget = Budget::new(config.limits.in_flight);
    let starting = systemd::Patience::ask("recovering the store");
    let engine = storage::open(&config, dir, &budget)?;
    drop(starting);
    // Until here a signal ends the process at once, which the store recovers from.
    let mut signals = Signals::listen()?;
    let ready = sockets.ready_line(dir)?;

    let connections = Connections::new(limits::open_files(config.limits.connections));
    let (stopper, stop) = shutdown::stop();
    let (readiness, ready_now) = watch::channel(Readiness::Ready);
    let http = Arc::new(http::Face::new(
        engine.clone(),
        http_options(&config),
        ready_now,
        budget.bytes(),
    ));
    let (seats, bytes, most) = (connections.clone(), budget.bytes(), config.limits.in_flight);
    let met = Arc::new(Met::default());
    let seen = Arc::clone(&met);
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    http.show(move || Live {
        refused: (load(&seen.http_refused), load(&seen.redis_refused)),
        let_go: (load(&seen.slow), load(&seen.deaf)),
        connections: seats.open() as u64,
        in_flight: most.saturating_sub(bytes.available_permits()) as u64,
    });
    let redis = Arc::new(resp::Face::new(redis_options(&config)));
    let reload = Reload {
        source: Arc::clone(source),
        engine: engine.clone(),
        http: Arc::clone(&http),
        redis: Arc::clone(&redis),
        log: log.clone(),
    };
    let accepting = sockets.serve(&Doors {
        redis: Redis {
            engine: engine.clone().facing(engine::Face::Redis),
            face: redis,
            patience: config.limits.body_timeout,
            met,
        },
        http,
        connections: connections.clone(),
        budget,
        stop,
        refusals: Refusals::default(),
    });
    announce(&ready);
    let watchdog = systemd::watchdog(&engine);

    let name = loop {
        let asked = tokio::select! {
            asked = signals.next() => asked,
            failure = storage::failed(&engine) => return Err(failure),
        };
        match asked {
            Asked::Stop(name, _) => break name,
            Asked::Reload => {
                systemd::reloading();
                reload.run(&mut config).await;
                systemd::ready(&ready);
            }
        }
    };
    tracing::info!("{name}: answering what is in hand, then stopping; a second one stops at once");
    systemd::stopping();
    let stopping = systemd::Patience::ask("answering what is in hand, then the last checkpoint");
    readiness.send_replace(Readiness::Stopping);
    // Nobody is kept waiting by a server that stops: `busy`, and another one may be asked.
    engine.stop_waiting();
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
        (name, code) = signals.stop() => {
            tracing::warn!("{name} again: stopping at once");
            std::process::exit(code);
        }
    }
    watchdog.abort();
    drop(stopping);
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
    async fn bind(config: &Config, inherited: Inherited) -> Result<Sockets, Failure> {
        let guarded = config.access.is_required();
        if !guarded && !config.trust_network {
            inherited.check_reach()?;
        }
        inherited.warn_of_unused(&config.http, &config.redis);
        let mut http = listen::handed_over(inherited.http)?;
        if http.is_empty() {
            for address in &config.http {
                http.extend(listen::tcp(Face::Http, address, guarded).await?);
            }
        }
        let mut redis = listen::handed_over(inherited.redis)?;
        if redis.is_empty() {
            for address in &config.redis {
                redis.extend(listen::tcp(Face::Redis, address, guarded).await?);
            }
        }
        let unix = match inherited.unix {
            Some(socket) => Some(UnixSocket::of_somebody_else(socket)?),
            None => config.unix.as_ref().map(UnixSocket::bind).transpose()?,
        };
        Ok(Sockets { http, redis, unix })
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
        access: config.access.clone(),
        limits: resp::Limits {
            payload: config.limits.payload,
            result: config.limits.result,
            pipeline: config.limits.pipeline,
            ..resp::Limits::default()
        },
    }
}

fn http_options(config: &Config) -> http::Options {
    http::Options {
        payload_limit: config.limits.payload,
        result_limit: config.limits.result,
        hosts: config.hosts.clone(),
        access: config.access.clone(),
        header_timeout: config.limits.header_timeout,
        body_timeout: config.limits.body_timeout,
        idle_timeout: config.limits.idle_timeout,
    }
}
