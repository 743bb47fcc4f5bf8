//! What the server is told: flags, then the environment, then the file, then the defaults (SPEC 8).
//!
//! * [`settings`]: the one table of settings; flags, environment names and file keys all come from it.
//! * [`file`]: the TOML file, and errors that name line and nearest key.
//! * [`policy`]: a namespace's policy in it; [`token`]: its credentials.
//! * [`value`]: the texts that values are written in.
//! * [`shown`]: what is in force, and who said so.
//!
//! [`Settings`] is what was said, [`Config`] what is meant by it.

pub mod file;
pub mod policy;
pub mod settings;
pub mod shown;
pub mod token;
pub mod value;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::settings::Settings;
pub use self::value::{Address, Group, Level, Mode};
use crate::error::{Exit, Failure};
use crate::model::access::Access;
use crate::model::policy::Policy;
use crate::model::time::Span;
use crate::resp::NxWithoutExpiry;

/// The configuration file that is read where there is one and no other is given.
pub const DEFAULT_FILE: &str = "/etc/onced/onced.toml";
/// The port of the HTTP face (SPEC 6).
pub const HTTP_PORT: u16 = 6623;
/// The port of the Redis face (SPEC 7).
pub const REDIS_PORT: u16 = 6624;

/// The largest payload and result that can be configured (SPEC 10).
const MAX_BODY: usize = 32 << 20;
/// More threads than any machine gains from.
const MAX_THREADS: usize = 64;

/// What is in force.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where everything is kept; absolute.
    pub data_dir: PathBuf,
    /// Where HTTP is served.
    pub http: Vec<Address>,
    /// Where the Redis protocol is served.
    pub redis: Vec<Address>,
    /// A Unix socket that serves HTTP too.
    pub unix: Option<UnixOptions>,
    /// Addresses beyond loopback are wanted also without tokens, although whoever reaches them may do everything.
    pub trust_network: bool,
    /// Host names that HTTP clients may use beside the loopback ones.
    pub hosts: Vec<String>,
    /// Threads of the runtime.
    pub threads: usize,
    /// Which log lines are written.
    pub log: Level,
    /// What a `SET NX` without expiry means.
    pub nx_without_expiry: NxWithoutExpiry,
    /// Whether `FLUSHALL` and `FLUSHDB` do anything.
    pub allow_flush: bool,
    /// SPEC 10.
    pub limits: Limits,
    /// Who may do what.
    pub access: Access,
    /// Policies by namespace.
    pub policies: BTreeMap<String, Policy>,
    /// Names in the environment that look like settings and are none: worth a warning. Not an error, as with
    /// keys of the file: Kubernetes puts names of its own there for a service called `onced`.
    pub unknown: Vec<String>,
}

/// A Unix socket and who may connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixOptions {
    /// Its file.
    pub path: PathBuf,
    /// The file's mode.
    pub mode: Mode,
    /// The file's group; `None`: that of the process.
    pub group: Option<Group>,
}

/// The limits of SPEC 10 that can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest payload of a claim, in bytes.
    pub payload: usize,
    /// The longest result, and value of a string, in bytes.
    pub result: usize,
    /// Connections over all faces.
    pub connections: usize,
    /// Commands of one Redis connection that are decided together.
    pub pipeline: usize,
    /// Bytes of requests and replies in flight over all connections; then reading pauses.
    pub in_flight: usize,
    /// Memory for recent writes, in bytes.
    pub recent_memory: usize,
    /// Memory for pages of the store, in bytes.
    pub cache: usize,
    /// How long a request's header may take.
    pub header_timeout: Duration,
    /// How long a request's body may take.
    pub body_timeout: Duration,
    /// How long an HTTP connection may be idle.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            payload: 1 << 20,
            result: 1 << 20,
            connections: 10_000,
            pipeline: 10_000,
            in_flight: 256 << 20,
            recent_memory: 32 << 20,
            cache: 32 << 20,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
        }
    }
}

/// Resolves what flags and environment said (`said`), reading the file they name or the default one.
///
/// # Errors
/// [`Exit::Configuration`]: a file that cannot be read or understood, or values that do not go together.
pub fn resolve(said: Settings, config: Option<&Path>) -> Result<Config, Failure> {
    let file = match file_in_use(config) {
        Some(path) => file::read(path)?,
        None => Settings::default(),
    };
    let environment = |name: &str| std::env::var_os(name);
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let unknown = settings::unknown_names(names);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let config = settle(said.over(file), environment, cores)?;
    Ok(Config { unknown, ..config })
}

/// The file that is read: the one that is given, else the default one if it is there.
#[must_use]
pub fn file_in_use(config: Option<&Path>) -> Option<&Path> {
    let default = Path::new(DEFAULT_FILE);
    config.or_else(|| default.exists().then_some(default))
}

/// Puts the defaults under what was said, and checks what has to go together.
fn settle(
    said: Settings,
    environment: impl Fn(&str) -> Option<OsString>,
    cores: usize,
) -> Result<Config, Failure> {
    let default = Limits::default();
    let limits = Limits {
        payload: (said.limits.max_payload).map_or(default.payload, |size| size.0),
        result: (said.limits.max_result).map_or(default.result, |size| size.0),
        connections: said.limits.max_connections.unwrap_or(default.connections),
        pipeline: said.limits.max_pipeline.unwrap_or(default.pipeline),
        in_flight: (said.limits.max_in_flight).map_or(default.in_flight, |size| size.0),
        recent_memory: (said.limits.recent_memory).map_or(default.recent_memory, |size| size.0),
        cache: said.limits.cache.map_or(default.cache, |size| size.0),
        header_timeout: duration(said.limits.header_timeout, default.header_timeout),
        body_timeout: duration(said.limits.body_timeout, default.body_timeout),
        idle_timeout: duration(said.limits.idle_timeout, default.idle_timeout),
    };
    check(&limits)?;
    let config = Config {
        data_dir: data_dir(said.data_dir, environment)?,
        http: listened("http", said.http.listen, HTTP_PORT)?,
        redis: listened("redis", said.redis.listen, REDIS_PORT)?,
        unix: unix(said.http.unix, said.http.unix_mode, said.http.unix_group)?,
        trust_network: said.trust_network.unwrap_or(false),
        hosts: said.http.hosts.unwrap_or_default(),
        threads: said.threads.unwrap_or_else(|| threads(cores)),
        log: said.log.unwrap_or_default(),
        nx_without_expiry: said
            .redis
            .nx_without_expiry
            .map_or_else(Default::default, |said| said.0),
        allow_flush: said.redis.allow_flush.unwrap_or(false),
        limits,
        access: token::access(said.token)?,
        policies: (said.namespace.into_iter())
            .map(|(name, said)| (name.0, said.policy()))
            .collect(),
        unknown: Vec::new(),
    };
    if !(1..=MAX_THREADS).contains(&config.threads) {
        return Err(wrong(
            "threads",
            config.threads,
            format_args!("give 1 to {MAX_THREADS}, or leave it out"),
        ));
    }
    check_reach(&config)?;
    Ok(config)
}

/// Measured: one thread decides faster than several that share two cores.
fn threads(cores: usize) -> usize {
    if cores < 4 { 1 } else { (cores - 1).min(8) }
}

fn unix(
    path: Option<PathBuf>,
    mode: Option<Mode>,
    group: Option<Group>,
) -> Result<Option<UnixOptions>, Failure> {
    let Some(path) = path else {
        // Somebody believes to have closed a door that is not there.
        let without = |name: &str| {
            let attempt = format!("cannot use {name}");
            let next = "give the socket's path with --unix (or `unix`), or leave this out";
            Failure::new(
                Exit::Configuration,
                attempt,
                "there is no Unix socket",
                next,
            )
        };
        return match (mode, group) {
            (Some(_), _) => Err(without("unix_mode")),
            (_, Some(_)) => Err(without("unix_group")),
            (None, None) => Ok(None),
        };
    };
    Ok(Some(UnixOptions {
        path,
        mode: mode.unwrap_or_default(),
        group,
    }))
}

fn duration(said: Option<value::Positive>, default: Duration) -> Duration {
    said.map_or(default, |span| {
        Duration::from_millis(Span::as_millis(span.0))
    })
}

fn listened(name: &str, said: Option<Vec<Address>>, port: u16) -> Result<Vec<Address>, Failure> {
    match said {
        None => Ok(vec![Address::Loopback(port)]),
        Some(list) if list.is_empty() => Err(wrong(
            format_args!("[{name}] listen"),
            "an empty list",
            "give an address, or leave the setting out",
        )),
        Some(list) => Ok(list),
    }
}

/// Without tokens whoever reaches an address may claim, complete and forget everything, so an address
/// beyond this machine is taken only from somebody who says that this is meant.
fn check_reach(config: &Config) -> Result<(), Failure> {
    let mut all = config.http.iter().chain(&config.redis);
    match all.find(|address| !address.is_loopback()) {
        Some(address) if !config.trust_network && !config.access.is_required() => {
            Err(open_to_others(address))
        }
        _ => Ok(()),
    }
}

/// The refusal of an address that other machines reach where no secret is asked for.
#[must_use]
pub fn open_to_others(address: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Configuration,
        format_args!("cannot listen on {address}"),
        "it can be reached from other machines, and whoever reaches it may do everything",
        "add a [[token]] (`onced token new` makes one), listen on localhost, or give --trust-network if a firewall stands \
         before it",
    )
}

fn check(limits: &Limits) -> Result<(), Failure> {
    for (name, size) in [
        ("max_payload", limits.payload),
        ("max_result", limits.result),
    ] {
        if !(1..=MAX_BODY).contains(&size) {
            return Err(wrong(name, size, "give 1B to 32MiB"));
        }
    }
    let counts = [
        ("max_connections", limits.connections),
        ("max_pipeline", limits.pipeline),
    ];
    for (name, count) in counts {
        if !(1..=1_000_000).contains(&count) {
            return Err(wrong(name, count, "give 1 to 1000000"));
        }
    }
    // A request at its limit has to fit, with something beside it.
    let least = limits
        .payload
        .saturating_add(limits.result)
        .saturating_mul(4);
    if limits.in_flight < least {
        let next = format!("give at least four times max_payload and max_result, {least}");
        return Err(wrong("max_in_flight", limits.in_flight, next));
    }
    Ok(())
}

/// `$STATE_DIRECTORY` is what systemd made for the service; the other two are the user's own.
fn data_dir(
    said: Option<PathBuf>,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, Failure> {
    let absolute = |name| {
        environment(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    // A unit with several state directories gets them separated by colons; the first is ours.
    let state = environment("STATE_DIRECTORY")
        .and_then(|list| std::env::split_paths(&list).find(|path| path.is_absolute()));
    let chosen = said
        .or(state)
        .or_else(|| absolute("XDG_STATE_HOME").map(|path| path.join("onced")))
        .or_else(|| absolute("HOME").map(|path| path.join(".local/state/onced")));
    let unknown = |cause: &dyn std::fmt::Display| {
        let next = "give --data-dir DIR";
        Failure::new(
            Exit::Configuration,
            "cannot choose a data directory",
            cause,
            next,
        )
    };
    let chosen = chosen.ok_or_else(|| {
        unknown(&"none is given, and STATE_DIRECTORY, XDG_STATE_HOME and HOME are not set")
    })?;
    std::path::absolute(chosen).map_err(|cause| unknown(&cause))
}

fn wrong_token(name: &str, cause: &str, next: &str) -> Failure {
    let attempt = format!("cannot use [[token]] {name}");
    Failure::new(Exit::Configuration, attempt, cause, next)
}

fn wrong(
    name: impl std::fmt::Display,
    value: impl std::fmt::Display,
    next: impl std::fmt::Display,
) -> Failure {
    let attempt = format!("cannot use {name}");
    Failure::new(
        Exit::Configuration,
        attempt,
        format_args!("{value} is out of range"),
        next,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle_with(said: Settings) -> Result<Config, Failure> {
        let home = |name: &str| (name == "HOME").then(|| OsString::from("/home/u"));
        settle(said, home, 2)
    }

    #[test]
    fn nothing_said_gives_the_defaults_of_the_contract() {
        let config = settle_with(Settings::default()).unwrap();
        assert_eq!(config.http, [Address::Loopback(6623)]);
        assert_eq!(config.redis, [Address::Loopback(6624)]);
        assert_eq!(config.data_dir, Path::new("/home/u/.local/state/onced"));
        assert_eq!(config.limits, Limits::default());
        assert_eq!(config.threads, 1);
        assert!(!config.trust_network && !config.allow_flush);
    }

    #[test]
    fn the_data_directory_is_the_first_of_four_places() {
        let all = [
            ("STATE_DIRECTORY", "/var/lib/onced:/var/lib/other"),
            ("XDG_STATE_HOME", "/state"),
            ("HOME", "/home/u"),
        ];
        let find = |said: Option<&str>, skip: usize| {
            let environment = |name: &str| {
                let mut left = all.iter().skip(skip);
                left.find(|(n, _)| *n == name)
                    .map(|(_, value)| OsString::from(value))
            };
            data_dir(said.map(PathBuf::from), environment).map(|path| path.display().to_string())
        };
        assert_eq!(find(Some("/given"), 0).unwrap(), "/given");
        assert_eq!(find(None, 0).unwrap(), "/var/lib/onced");
        assert_eq!(find(None, 1).unwrap(), "/state/onced");
        assert_eq!(find(None, 2).unwrap(), "/home/u/.local/state/onced");
        let none = find(None, 3).unwrap_err();
        assert_eq!(none.exit, Exit::Configuration);
        assert!(none.to_string().ends_with("give --data-dir DIR"), "{none}");
    }

    #[test]
    fn addresses_beyond_loopback_need_the_word_for_it() {
        let table = [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("localhost:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.0.2.1:1", false),
        ];
        for (address, local) in table {
            let mut said = Settings::default();
            said.redis.listen = Some(vec![address.parse().unwrap()]);
            assert_eq!(settle_with(said.clone()).is_ok(), local, "{address}");
            said.trust_network = Some(true);
            assert!(settle_with(said).is_ok(), "{address}");
        }
    }

    #[test]
    fn limits_out_of_range_are_refused_with_their_names() {
        let refused = |change: fn(&mut Settings)| {
            let mut said = Settings::default();
            change(&mut said);
            settle_with(said).map(|_| ()).unwrap_err().to_string()
        };
        type Change = fn(&mut Settings);
        let table: [(&str, Change); 6] = [
            ("max_payload", |s| {
                s.limits.max_payload = Some(value::Size(0))
            }),
            ("max_result", |s| {
                s.limits.max_result = Some(value::Size((32 << 20) + 1))
            }),
            ("max_connections", |s| s.limits.max_connections = Some(0)),
            ("max_pipeline", |s| s.limits.max_pipeline = Some(0)),
            ("max_in_flight", |s| {
                s.limits.max_in_flight = Some(value::Size(1 << 20))
            }),
            ("threads", |s| s.threads = Some(0)),
        ];
        for (name, change) in table {
            let text = refused(change);
            assert!(text.starts_with(&format!("cannot use {name}: ")), "{text}");
        }
    }

    #[test]
    fn a_mode_or_group_without_a_socket_is_refused() {
        let mut said = Settings::default();
        said.http.unix_mode = Some(Mode(0o600));
        let failure = settle_with(said.clone()).unwrap_err().to_string();
        assert!(failure.contains("there is no Unix socket"), "{failure}");
        said.http.unix = Some("/run/s".into());
        let unix = settle_with(said).unwrap().unix.unwrap();
        assert_eq!((unix.mode, unix.group), (Mode(0o600), None));
        let mut said = Settings::default();
        said.http.unix_group = Some(Group::Number(7));
        assert!(settle_with(said.clone()).is_err());
        said.http.unix = Some("/run/s".into());
        let unix = settle_with(said).unwrap().unix.unwrap();
        assert_eq!(
            (unix.mode, unix.group),
            (Mode(0o660), Some(Group::Number(7)))
        );
    }

    #[test]
    fn small_machines_get_one_thread() {
        let table = [(1, 1), (2, 1), (3, 1), (4, 3), (8, 7), (9, 8), (64, 8)];
        for (cores, expected) in table {
            assert_eq!(threads(cores), expected, "{cores} cores");
        }
    }
}
