//! The one table of settings: a field here is a flag, a name in the environment and a key of the file.
//!
//! Each field is what one source said, `None` where it said nothing. Flags and environment are read by
//! clap from the attributes (it puts the flag first), the file by serde under the same sections.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;
use serde::Deserialize;

use super::file::nearest_of;
use super::policy::{NamespaceName, PolicySettings};
use super::token::TokenSettings;
use super::value::{Address, Group, Level, Mode, Positive, Size, WithoutExpiry};

/// What one source said.
#[derive(clap::Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where everything is kept [default: $STATE_DIRECTORY, $XDG_STATE_HOME/onced or ~/.local/state/onced]
    #[arg(long, env = "ONCED_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Allow addresses that other machines reach without tokens; whoever reaches them may do everything
    #[arg(long, env = "ONCED_TRUST_NETWORK", value_name = "BOOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub trust_network: Option<bool>,

    /// Threads that serve [default: 1 below 4 cores, else one less than cores, at most 8]
    #[arg(long, env = "ONCED_THREADS", value_name = "N")]
    pub threads: Option<usize>,

    /// Log lines to write: error, warn, info, debug, trace [default: info]
    #[arg(long, env = "ONCED_LOG", value_name = "LEVEL")]
    pub log: Option<Level>,

    /// HTTP
    #[command(flatten)]
    pub http: Http,

    /// Redis protocol
    #[command(flatten)]
    pub redis: Redis,

    /// Limits
    #[command(flatten)]
    pub limits: Limits,

    /// Policies; of the file alone.
    #[arg(skip)]
    pub namespace: BTreeMap<NamespaceName, PolicySettings>,

    /// Credentials; of the file alone.
    #[arg(skip)]
    pub token: Vec<TokenSettings>,
}

/// Section `[http]`.
#[derive(clap::Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Where to serve HTTP; may be repeated [default: localhost:6623]
    #[arg(
        id = "http",
        long = "http",
        env = "ONCED_HTTP",
        value_name = "ADDR",
        value_delimiter = ','
    )]
    pub listen: Option<Vec<Address>>,

    /// Serve HTTP on this Unix socket too
    #[arg(long, env = "ONCED_UNIX", value_name = "PATH")]
    pub unix: Option<PathBuf>,

    /// Who may connect to the Unix socket, as chmod(1) writes it [default: 0660]
    #[arg(long, env = "ONCED_UNIX_MODE", value_name = "MODE")]
    pub unix_mode: Option<Mode>,

    /// The group of the Unix socket, by name or number [default: that of the process]
    #[arg(long, env = "ONCED_UNIX_GROUP", value_name = "GROUP")]
    pub unix_group: Option<Group>,

    /// A Host name that clients may use beside the loopback ones; may be repeated
    #[arg(
        id = "host",
        long = "host",
        env = "ONCED_HOSTS",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub hosts: Option<Vec<String>>,
}

/// Section `[redis]`.
#[derive(clap::Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redis {
    /// Where to serve the Redis protocol; may be repeated [default: localhost:6624]
    #[arg(
        id = "redis",
        long = "redis",
        env = "ONCED_REDIS",
        value_name = "ADDR",
        value_delimiter = ','
    )]
    pub listen: Option<Vec<Address>>,

    /// What SET NX without expiry means: retention, forever or error [default: retention]
    #[arg(long, env = "ONCED_NX_WITHOUT_EXPIRY", value_name = "WHAT")]
    pub nx_without_expiry: Option<WithoutExpiry>,

    /// Let FLUSHALL and FLUSHDB delete
    #[arg(long, env = "ONCED_ALLOW_FLUSH", value_name = "BOOL",
          num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub allow_flush: Option<bool>,
}

/// Section `[limits]` (SPEC 10).
#[derive(clap::Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The longest payload of a claim, up to 32MiB [default: 1MiB]
    #[arg(long, env = "ONCED_MAX_PAYLOAD", value_name = "SIZE")]
    pub max_payload: Option<Size>,

    /// The longest result, and value of a string, up to 32MiB [default: 1MiB]
    #[arg(long, env = "ONCED_MAX_RESULT", value_name = "SIZE")]
    pub max_result: Option<Size>,

    /// Connections over all faces [default: 10000]
    #[arg(long, env = "ONCED_MAX_CONNECTIONS", value_name = "N")]
    pub max_connections: Option<usize>,

    /// Commands of one Redis connection that are decided together [default: 10000]
    #[arg(long, env = "ONCED_MAX_PIPELINE", value_name = "N")]
    pub max_pipeline: Option<usize>,

    /// Bytes in flight over all connections, then reading pauses [default: 256MiB]
    #[arg(long, env = "ONCED_MAX_IN_FLIGHT", value_name = "SIZE")]
    pub max_in_flight: Option<Size>,

    /// Memory for recent writes [default: 32MiB]
    #[arg(long, env = "ONCED_RECENT_MEMORY", value_name = "SIZE")]
    pub recent_memory: Option<Size>,

    /// Memory for pages of the store [default: 32MiB]
    #[arg(long, env = "ONCED_CACHE", value_name = "SIZE")]
    pub cache: Option<Size>,

    /// How long the header of an HTTP request may take [default: 10s]
    #[arg(long, env = "ONCED_HEADER_TIMEOUT", value_name = "DURATION")]
    pub header_timeout: Option<Positive>,

    /// How long the body of an HTTP request may take [default: 30s]
    #[arg(long, env = "ONCED_BODY_TIMEOUT", value_name = "DURATION")]
    pub body_timeout: Option<Positive>,

    /// How long an HTTP connection may be idle [default: 75s]
    #[arg(long, env = "ONCED_IDLE_TIMEOUT", value_name = "DURATION")]
    pub idle_timeout: Option<Positive>,
}

impl Settings {
    /// These, and `lower` where they say nothing.
    #[must_use]
    pub fn over(self, lower: Settings) -> Settings {
        Settings {
            data_dir: self.data_dir.or(lower.data_dir),
            trust_network: self.trust_network.or(lower.trust_network),
            threads: self.threads.or(lower.threads),
            log: self.log.or(lower.log),
            http: Http {
                listen: self.http.listen.or(lower.http.listen),
                unix: self.http.unix.or(lower.http.unix),
                unix_mode: self.http.unix_mode.or(lower.http.unix_mode),
                unix_group: self.http.unix_group.or(lower.http.unix_group),
                hosts: self.http.hosts.or(lower.http.hosts),
            },
            redis: Redis {
                listen: self.redis.listen.or(lower.redis.listen),
                nx_without_expiry: self
                    .redis
                    .nx_without_expiry
                    .or(lower.redis.nx_without_expiry),
                allow_flush: self.redis.allow_flush.or(lower.redis.allow_flush),
            },
            limits: self.limits.over(lower.limits),
            namespace: if self.namespace.is_empty() {
                lower.namespace
            } else {
                self.namespace
            },
            token: if self.token.is_empty() {
                lower.token
            } else {
                self.token
            },
        }
    }
}

impl Limits {
    fn over(self, lower: Limits) -> Limits {
        Limits {
            max_payload: self.max_payload.or(lower.max_payload),
            max_result: self.max_result.or(lower.max_result),
            max_connections: self.max_connections.or(lower.max_connections),
            max_pipeline: self.max_pipeline.or(lower.max_pipeline),
            max_in_flight: self.max_in_flight.or(lower.max_in_flight),
            recent_memory: self.recent_memory.or(lower.recent_memory),
            cache: self.cache.or(lower.cache),
            header_timeout: self.header_timeout.or(lower.header_timeout),
            body_timeout: self.body_timeout.or(lower.body_timeout),
            idle_timeout: self.idle_timeout.or(lower.idle_timeout),
        }
    }
}

/// Names that are for client verbs and for what `onced run` starts.
const OTHERS: [&str; 7] = [
    "ONCED_CONFIG",
    "ONCED_URL",
    "ONCED_SECRET",
    "ONCED_SECRET_FILE",
    "ONCED_TOKEN",
    "ONCED_ATTEMPT",
    "ONCED_KEY",
];

/// Those of `names` that begin like ours and are none, each with the one that may be meant.
pub(super) fn unknown_names(names: impl Iterator<Item = String>) -> Vec<String> {
    let flags = Settings::augment_args(clap::Command::new("names"));
    let ours = flags
        .get_arguments()
        .filter_map(|flag| flag.get_env()?.to_str());
    let known: Vec<&str> = ours.chain(OTHERS).collect();
    let unknown =
        names.filter(|name| name.starts_with("ONCED_") && !known.contains(&name.as_str()));
    let told = unknown.map(|name| {
        let nearest = nearest_of(
            name.trim_start_matches("ONCED_"),
            known.iter().map(|known| known.trim_start_matches("ONCED_")),
        );
        match nearest {
            Some(nearest) => format!("{name} (did you mean ONCED_{nearest}?)"),
            None => name,
        }
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_settings_are_told_with_the_nearest() {
        let names = [
            "ONCED_DATADIR",
            "ONCED_HTTP",
            "ONCED_URL",
            "PATH",
            "ONCED_ZZZ",
        ];
        let told = unknown_names(names.into_iter().map(str::to_owned));
        assert_eq!(
            told,
            ["ONCED_DATADIR (did you mean ONCED_DATA_DIR?)", "ONCED_ZZZ"]
        );
    }
}
