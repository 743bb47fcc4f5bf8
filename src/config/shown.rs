//! What is in force and who said so, for people and programs: `onced config`. Secrets are not known here, and hashes of
//! them are left out.

use std::fmt::{Display, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as _;
use toml::de::{DeTable, DeValue};

use super::{Config, Settings};
use crate::model::access::Right;
use crate::model::time::Span;

/// Who said a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This flag.
    Flag(String),
    /// This name in the environment.
    Environment(String),
    /// This line of the file.
    File(PathBuf, usize),
    /// Nobody.
    Default,
}

impl Source {
    /// Which of the four.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Source::Flag(_) => "flag",
            Source::Environment(_) => "environment",
            Source::File(..) => "file",
            Source::Default => "default",
        }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Flag(name) | Source::Environment(name) => f.write_str(name),
            Source::File(path, line) => write!(f, "{}:{line}", path.display()),
            Source::Default => f.write_str("default"),
        }
    }
}

/// How a setting was said on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// By its flag.
    Flag,
    /// By its name in the environment.
    Environment,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its place in the file, such as `limits.cache`.
    pub key: String,
    /// Its value as the file writes it; `None`: it is not set, and that is its meaning.
    pub value: Option<String>,
    /// Who said so.
    pub source: Source,
}

/// Every setting of `config`. `said` tells of an argument, by its id, how it was said; `file` is what was read.
#[must_use]
pub fn lines(
    config: &Config,
    said: impl Fn(&str) -> Option<Said>,
    file: Option<(PathBuf, String)>,
) -> Vec<Line> {
    let flags = Settings::augment_args(clap::Command::new("settings"));
    let origin = |key: &str, id: &str| {
        let argument = flags.get_arguments().find(|it| it.get_id() == id);
        let flag = argument.and_then(|it| it.get_long()).unwrap_or_default();
        let name = argument.and_then(|it| it.get_env()).unwrap_or_default();
        match said(id) {
            Some(Said::Flag) => Source::Flag(format!("--{flag}")),
            Some(Said::Environment) => Source::Environment(name.to_string_lossy().into_owned()),
            None => in_file(file.as_ref(), key),
        }
    };
    let limits = &config.limits;
    let settings: [(&str, &str, Option<String>); 22] = [
        (
            "data_dir",
            "data_dir",
            Some(quoted(config.data_dir.display())),
        ),
        (
            "trust_network",
            "trust_network",
            plain(config.trust_network),
        ),
        ("threads", "threads", plain(config.threads)),
        ("log", "log", Some(quoted(config.log))),
        ("http.listen", "http", Some(list(&config.http))),
        (
            "http.unix",
            "unix",
            config.unix.as_ref().map(|unix| quoted(unix.path.display())),
        ),
        (
            "http.unix_mode",
            "unix_mode",
            config.unix.as_ref().map(|unix| quoted(unix.mode)),
        ),
        (
            "http.unix_group",
            "unix_group",
            config
                .unix
                .as_ref()
                .and_then(|unix| unix.group.as_ref())
                .map(quoted),
        ),
        ("http.hosts", "host", Some(list(&config.hosts))),
        ("redis.listen", "redis", Some(list(&config.redis))),
        (
            "redis.nx_without_expiry",
            "nx_without_expiry",
            Some(quoted(config.nx_without_expiry.name())),
        ),
        (
            "redis.allow_flush",
            "allow_flush",
            plain(config.allow_flush),
        ),
        ("limits.max_payload", "max_payload", plain(limits.payload)),
        ("limits.max_result", "max_result", plain(limits.result)),
        (
            "limits.max_connections",
            "max_connections",
            plain(limits.connections),
        ),
        (
            "limits.max_pipeline",
            "max_pipeline",
            plain(limits.pipeline),
        ),
        (
            "limits.max_in_flight",
            "max_in_flight",
            plain(limits.in_flight),
        ),
        (
            "limits.recent_memory",
            "recent_memory",
            plain(limits.recent_memory),
        ),
        ("limits.cache", "cache", plain(limits.cache)),
        (
            "limits.header_timeout",
            "header_timeout",
            span(limits.header_timeout),
        ),
        (
            "limits.body_timeout",
            "body_timeout",
            span(limits.body_timeout),
        ),
        (
            "limits.idle_timeout",
            "idle_timeout",
            span(limits.idle_timeout),
        ),
    ];
    let mut lines: Vec<Line> = (settings.into_iter())
        .map(|(key, id, value)| Line {
            key: key.to_owned(),
            value,
            source: origin(key, id),
        })
        .collect();
    for (name, policy) in &config.policies {
        // A dot in a name would be a table of its own.
        let place = format!("namespace.\"{name}\"");
        for (member, value) in [
            ("lease", quoted(policy.lease)),
            ("retention", quoted(policy.retention)),
            ("window", quoted(policy.window.name())),
            ("max_attempts", policy.max_attempts.to_string()),
            ("on_lease_end", quoted(policy.on_lease_end.name())),
            ("backoff", quoted(policy.backoff)),
            ("backoff_max", quoted(policy.backoff_max)),
            ("fingerprint", quoted(policy.fingerprint.name())),
            ("forget_open_after", quoted(policy.forget_open_after)),
        ] {
            let key = format!("{place}.{member}");
            let source = in_file(file.as_ref(), &key);
            lines.push(Line {
                key,
                value: Some(value),
                source,
            });
        }
    }
    lines
}

/// What may be told of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub rights: Vec<&'static str>,
    /// Where it is good; `None` is everywhere.
    pub namespaces: Option<Vec<String>>,
}

/// Every token of `config`.
#[must_use]
pub fn tokens(config: &Config) -> Vec<Token> {
    let shown = config.access.credentials().map(|it| {
        let namespaces = it.namespaces.as_ref();
        Token {
            name: it.name.to_string(),
            rights: it.rights.iter().map(Right::name).collect(),
            namespaces: namespaces.map(|all| all.iter().map(ToString::to_string).collect()),
        }
    });
    shown.collect()
}

/// The line of the file that sets this key.
fn in_file(file: Option<&(PathBuf, String)>, key: &str) -> Source {
    let found = file.and_then(|(path, text)| {
        let table = DeTable::parse(text).ok()?;
        let mut table = table.get_ref();
        let (names, last) = match key.rsplit_once('.') {
            Some((names, last)) => (names, last),
            None => ("", key),
        };
        // The name of a namespace is in quotes, and may have dots.
        let names: Vec<&str> = match names.split_once('"') {
            Some((before, name)) => vec![before.trim_end_matches('.'), name.trim_end_matches('"')],
            None => names.split('.').filter(|name| !name.is_empty()).collect(),
        };
        for name in names {
            let (_, value) = table.iter().find(|(found, _)| **found.get_ref() == *name)?;
            match value.get_ref() {
                DeValue::Table(next) => table = next,
                _ => return None,
            }
        }
        let (found, _) = table.iter().find(|(found, _)| **found.get_ref() == *last)?;
        let before = text.as_bytes().get(..found.span().start)?;
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Some(Source::File(path.clone(), line))
    });
    found.unwrap_or(Source::Default)
}

fn quoted(value: impl Display) -> String {
    // A basic string of TOML: JSON's escapes are a part of its own.
    serde_json::Value::from(value.to_string()).to_string()
}

fn list<T: Display>(values: &[T]) -> String {
    let mut text = String::from("[");
    for (at, value) in values.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        // Writing to a text cannot fail.
        let _ = write!(text, "{comma}{}", quoted(value));
    }
    text.push(']');
    text
}

fn plain(value: impl Display) -> Option<String> {
    Some(value.to_string())
}

fn span(duration: Duration) -> Option<String> {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Some(quoted(Span::from_millis(millis)))
}
