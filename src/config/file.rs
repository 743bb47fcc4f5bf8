//! The configuration file. A key that is not known is an error: a policy with a typo in it would protect
//! less than its author believes.

use std::path::Path;

use super::settings::Settings;
use crate::error::{Exit, Failure};

/// Reads the file.
///
/// # Errors
/// [`Exit::Configuration`], with line and, for an unknown key, the nearest known one.
pub fn read(path: &Path) -> Result<Settings, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let attempt = format!("cannot read the configuration file {}", path.display());
        Failure::new(
            Exit::Configuration,
            attempt,
            error,
            "make it readable for this user, or name another with --config",
        )
    })?;
    parse(&text).map_err(|error| {
        let attempt = format!("cannot use {}", path.display());
        let cause = format!("line {}: {}", error.line, error.cause);
        Failure::new(Exit::Configuration, attempt, cause, error.next)
    })
}

/// What is wrong in the text of a file.
#[derive(Debug)]
struct Wrong {
    line: usize,
    cause: String,
    next: String,
}

fn parse(text: &str) -> Result<Settings, Wrong> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let before = text.as_bytes().get(..start).unwrap_or_default();
        let cause = error.message().trim().to_owned();
        let next = match nearest(&cause) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "correct it, or leave it out".to_owned(),
        };
        Wrong {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            cause,
            next,
        }
    })
}

/// The expected name nearest to the one that was found. Serde writes both in backticks, what was found
/// first.
fn nearest(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field ")?;
    let mut names = message.split('`').skip(1).step_by(2);
    let found = names.next()?;
    nearest_of(found, names)
}

/// The name nearest to `found`, if one is near enough to be meant.
pub(super) fn nearest_of<'a>(found: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::jaro_winkler(found, name), name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::{Address, Group, Mode, Size, WithoutExpiry};
    use crate::model::policy::{FingerprintKind, Policy};
    use crate::model::record::{OnLeaseEnd, Retention, Window};
    use crate::model::time::Span;
    use crate::resp::NxWithoutExpiry;

    const WHOLE: &str = r#"
        data_dir = "/var/lib/onced"
        trust_network = true
        threads = 2
        log = "debug"
        [http]
        listen = ["127.0.0.1:1", "localhost:2"]
        unix = "/run/onced.sock"
        unix_mode = "0600"
        unix_group = "onced"
        hosts = ["onced.internal"]
        [redis]
        listen = [3]
        nx_without_expiry = "error"
        allow_flush = true
        [limits]
        max_payload = "4MiB"
        max_result = "2MiB"
        max_connections = 5
        max_pipeline = 6
        max_in_flight = 67108864
        recent_memory = "64MiB"
        cache = "16MiB"
        header_timeout = "1s"
        body_timeout = 2000
        idle_timeout = "3s"
        [namespace.orders]
        lease = "90s"
        retention = "7d"
        window = "sliding"
        max_attempts = 0
        on_lease_end = "hold"
        backoff = 1500
        backoff_max = "1m"
        fingerprint = "json"
        forget_open_after = "30d"
        [namespace."web.hooks"]
        retention = "forever"
    "#;

    #[test]
    fn every_setting_can_be_written_in_the_file() {
        let settings = parse(WHOLE).unwrap();
        assert_eq!(settings.threads, Some(2));
        assert_eq!(settings.http.listen.unwrap()[1], Address::Loopback(2));
        assert_eq!(settings.http.unix_mode, Some(Mode(0o600)));
        assert_eq!(settings.http.unix_group, Some(Group::Name("onced".into())));
        assert_eq!(settings.http.hosts.unwrap(), ["onced.internal"]);
        assert_eq!(settings.redis.listen.unwrap(), [Address::Loopback(3)]);
        assert_eq!(
            settings.redis.nx_without_expiry,
            Some(WithoutExpiry(NxWithoutExpiry::Error))
        );
        assert_eq!(settings.limits.max_payload, Some(Size(4 << 20)));
        let policies: Vec<Policy> = (settings.namespace.into_values())
            .map(super::super::policy::PolicySettings::policy)
            .collect();
        let orders = Policy {
            lease: Span::from_secs(90),
            retention: Retention::For(Span::from_secs(7 * 86_400)),
            window: Window::Sliding,
            max_attempts: 0,
            on_lease_end: OnLeaseEnd::Hold,
            backoff: Span::from_millis(1500),
            backoff_max: Span::from_secs(60),
            fingerprint: FingerprintKind::Json,
            forget_open_after: Retention::For(Span::from_secs(30 * 86_400)),
        };
        let hooks = Policy {
            retention: Retention::Forever,
            ..Policy::default()
        };
        assert_eq!(policies, [orders, hooks]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_the_nearest_name() {
        let table = [
            (
                "data_dri = \"x\"",
                1,
                "unknown field `data_dri`",
                "`data_dir`",
            ),
            (
                "\n[http]\nlissen = [1]",
                3,
                "unknown field `lissen`",
                "`listen`",
            ),
            (
                "[namespace.a]\nleese = 1",
                2,
                "unknown field `leese`",
                "`lease`",
            ),
            (
                "[namespaces.a]\nlease = 1",
                1,
                "unknown field `namespaces`",
                "`namespace`",
            ),
            (
                "[namespace.a]\nlease = 0",
                2,
                "a lease is 1ms to 24h",
                "correct",
            ),
            (
                "[namespace.a]\nlease = \"48h\"",
                2,
                "a lease is 1ms to 24h",
                "correct",
            ),
            (
                "[namespace.a]\nlease = 1.5",
                2,
                "a text or a whole number",
                "correct",
            ),
            ("[namespace.a]\nlease = -5", 2, "not a duration", "correct"),
            (
                "[namespace.a]\nretention = \"ever\"",
                2,
                "not a duration",
                "correct",
            ),
            (
                "[namespace.a]\nbackoff = 0",
                2,
                "a duration of 0",
                "correct",
            ),
            (
                "[namespace.a]\nmax_attempts = -1",
                2,
                "invalid digit",
                "correct",
            ),
            (
                "[namespace.a]\nwindow = \"slide\"",
                2,
                "\"sliding\"",
                "correct",
            ),
            (
                "[namespace.Orders]\nlease = 1",
                1,
                "a namespace is",
                "correct",
            ),
            ("[limits]\nmax_result = \"1MB\"", 2, "not a size", "correct"),
            ("threads = 1\nthreads = 2", 2, "duplicate key", "correct"),
            ("\n= 1", 2, "", "correct"),
        ];
        for (text, line, cause, next) in table {
            let wrong = parse(text).unwrap_err();
            assert_eq!(wrong.line, line, "{text:?}: {wrong:?}");
            assert!(wrong.cause.contains(cause), "{text:?}: {wrong:?}");
            assert!(wrong.next.contains(next), "{text:?}: {wrong:?}");
        }
    }
}
