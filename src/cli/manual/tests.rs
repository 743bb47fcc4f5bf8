//! Tables of the manual that are written from what they tell of. `UPDATE=1` writes them anew.

use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::http::routes::ROUTES;
use crate::http::{MAX_HEADER, batch};
use crate::model::command::{
    MAX_CONTENT_TYPE, MAX_ERROR, MAX_LIST, MAX_NAME, MAX_WAIT, STATUS_RANGE,
};
use crate::model::key::{MAX_KEY, MAX_NAMESPACE};
use crate::model::policy::{LEASE_RANGE, MAX_ATTEMPTS, MAX_BACKOFF, RETENTION_RANGE};
use crate::{config, engine, http, model};

/// Holds that the chapter ends with `expected` after `head`.
fn keep(name: &str, head: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/manual/{name}.md"));
    let text = std::fs::read_to_string(&path).expect("the chapter");
    let (before, found) = text.split_once(head).expect("the head of its table");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, format!("{before}{head}{expected}")).expect("it can be written");
    } else {
        assert_eq!(found, expected, "UPDATE=1 cargo test writes it anew");
    }
}

#[test]
fn the_reference_of_http_is_that_of_the_route_table() {
    let mut text = String::new();
    for route in ROUTES {
        text.push_str(&format!(
            "\n### {} {}\n\n{} Right: {}.",
            route.method,
            route.pattern(),
            route.summary,
            route.right.map_or_else(
                || "none".to_owned(),
                |right| format!("{right:?}").to_lowercase()
            ),
        ));
        let body = match format!("{:?}", route.body).to_lowercase() {
            none if none == "none" => String::new(),
            what => format!(" Body: {what}."),
        };
        text.push_str(&body);
        text.push('\n');
        for (at, param) in route.params.iter().enumerate() {
            if at == 0 {
                text.push_str("\n| parameter | is | |\n|---|---|---|\n");
            }
            let must = if param.required { "; required" } else { "" };
            let is = param.kind.to_string();
            text.push_str(&format!(
                "| `{}` | {is}{must} | {} |\n",
                param.name, param.doc
            ));
        }
    }
    keep("http", "## Reference\n", &text);
}

#[test]
fn the_list_of_verbs_is_that_of_the_command_line() {
    let command = Cli::command();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let rows: String = verbs
        .map(|verb| {
            let about = verb.get_about().map(ToString::to_string);
            format!(
                "| `{}` | {} |\n",
                verb.get_name(),
                about.unwrap_or_default()
            )
        })
        .collect();
    keep(
        "cli",
        "## Verbs\n",
        &format!("\n| verb | |\n|---|---|\n{rows}"),
    );
}

fn bytes(count: usize) -> String {
    match count {
        count if count >= 1 << 20 && count.is_multiple_of(1 << 20) => {
            format!("{} MiB", count >> 20)
        }
        count if count >= 1 << 10 && count.is_multiple_of(1 << 10) => {
            format!("{} KiB", count >> 10)
        }
        count => format!("{count} bytes"),
    }
}

#[test]
fn the_table_of_limits_is_that_of_the_constants() {
    let set = config::Limits::default();
    let wire = crate::resp::Limits::default();
    let face = http::Options::default();
    let policy = model::policy::Policy::default();
    let seconds = |time: std::time::Duration| format!("{} s", time.as_secs());
    let to = |(least, most): (model::time::Span, model::time::Span)| format!("{least} to {most}");
    // HTTP and Redis in one row only where both say the same.
    assert_eq!(
        (face.payload_limit, face.result_limit),
        (set.payload, set.result)
    );
    assert_eq!(
        (wire.payload, wire.result, wire.pipeline),
        (set.payload, set.result, set.pipeline)
    );
    let bad = "`bad_input` (400, `ERR`)";
    let large = "`too_large` (413, `ERR`)";
    let closed = "the connection is closed";
    let rows: Vec<(&str, String, &str, &str)> = vec![
        ("key", format!("1 to {} bytes", MAX_KEY), "", bad),
        (
            "namespace",
            format!("1 to {} characters of `a-z 0-9 . _ -`", MAX_NAMESPACE),
            "",
            bad,
        ),
        (
            "namespaces",
            engine::MAX_NAMESPACES.to_string(),
            "",
            "`bad_input` for a new one",
        ),
        (
            "payload",
            bytes(set.payload),
            "`--max-payload`, up to 32MiB",
            large,
        ),
        (
            "result",
            bytes(set.result),
            "`--max-result`, up to 32MiB",
            "`too_large`: complete again without the body",
        ),
        ("error text", bytes(MAX_ERROR), "", bad),
        (
            "owner, claim id, fingerprint",
            format!("{} bytes each", MAX_NAME),
            "",
            bad,
        ),
        ("content type", bytes(MAX_CONTENT_TYPE), "", bad),
        (
            "status of a result",
            format!("{} to {}", STATUS_RANGE.start(), STATUS_RANGE.end()),
            "",
            bad,
        ),
        (
            "lease",
            format!("{}; {} if not given", to(LEASE_RANGE), policy.lease),
            "policy",
            bad,
        ),
        (
            "retention",
            format!("{}, or `forever`", to(RETENTION_RANGE)),
            "policy",
            bad,
        ),
        (
            "backoff, `retry_in`",
            format!("up to {}", MAX_BACKOFF),
            "policy",
            bad,
        ),
        (
            "`max_attempts`",
            format!(
                "0 (no limit) to {MAX_ATTEMPTS}; {} if not given",
                policy.max_attempts
            ),
            "policy",
            bad,
        ),
        ("`wait`", format!("up to {}", MAX_WAIT), "", bad),
        (
            "claims that wait",
            format!(
                "{} and {} of their keys and bodies",
                engine::MAX_WAITERS,
                bytes(engine::MAX_WAITING_BYTES)
            ),
            "",
            "`unavailable` (503, `TRYAGAIN`)",
        ),
        ("records on a page", format!("1 to {MAX_LIST}"), "", bad),
        (
            "claims of a batch",
            format!("{} and {}", batch::MAX_CLAIMS, bytes(batch::MAX_BATCH)),
            "",
            "`bad_input`, `too_large`",
        ),
        (
            "lines of an import",
            format!(
                "{} and {}, or as many as the largest record takes",
                http::transfer::MAX_LINES,
                bytes(http::transfer::MAX_IMPORT)
            ),
            "",
            "`bad_input`, `too_large`",
        ),
        (
            "document of a policy",
            bytes(http::policy::MAX_POLICY),
            "",
            large,
        ),
        (
            "header of an HTTP request",
            bytes(MAX_HEADER),
            "",
            "`bad_input` (431)",
        ),
        (
            "one Redis request",
            format!("{} arguments, {}", wire.arguments, bytes(wire.request)),
            "",
            closed,
        ),
        ("an inline command", bytes(wire.inline), "", closed),
        (
            "pipelined commands decided together",
            set.pipeline.to_string(),
            "`--max-pipeline`",
            "the rest waits for its turn",
        ),
        (
            "keys of a transaction or script",
            engine::program::MAX_KEYS.to_string(),
            "",
            "`ERR`, nothing stored",
        ),
        (
            "changes of a transaction or script",
            engine::program::MAX_CHANGES.to_string(),
            "",
            "`ERR`, nothing stored",
        ),
        (
            "keys and arguments of a script",
            format!(
                "{}, or twice the limit of results",
                bytes(crate::resp::MAX_GIVEN)
            ),
            "",
            "`ERR`, nothing stored",
        ),
        (
            "large bodies read by one command, transaction, script or batch member",
            format!(
                "{}, or those of the largest record",
                bytes(engine::MAX_READ)
            ),
            "",
            "`too_large` (413, `ERR`)",
        ),
        (
            "readers of the audit trail",
            engine::MAX_READERS.to_string(),
            "",
            "`unavailable` (503)",
        ),
        (
            "connections",
            set.connections.to_string(),
            "`--max-connections`",
            "503, `ERR max number of clients reached`, then closed",
        ),
        (
            "bytes in flight, over all connections",
            bytes(set.in_flight),
            "`--max-in-flight`",
            "reading pauses",
        ),
        (
            "time for a header",
            seconds(set.header_timeout),
            "`--header-timeout`",
            "408, then closed",
        ),
        (
            "time for a body",
            seconds(set.body_timeout),
            "`--body-timeout`",
            "408, then closed",
        ),
        (
            "time in which an HTTP client takes nothing of its answer",
            seconds(set.body_timeout),
            "`--body-timeout`",
            closed,
        ),
        (
            "while bytes in flight are short: silence within a request; a request",
            format!(
                "{}; {}",
                seconds(http::body::QUIET.0 * http::body::QUIET.1),
                seconds(http::body::SLOW)
            ),
            "",
            "408, `ERR`, then closed",
        ),
        (
            "idle HTTP connection",
            seconds(set.idle_timeout),
            "`--idle-timeout`",
            closed,
        ),
        ("idle Redis connection", "none".to_owned(), "", ""),
        (
            "memory for recent writes",
            bytes(set.recent_memory),
            "`--recent-memory`",
            "writes wait, then `unavailable` (503, `TRYAGAIN`)",
        ),
        (
            "memory for pages of the store",
            bytes(set.cache),
            "`--cache`",
            "pages are read again",
        ),
    ];
    let rows: String = rows
        .iter()
        .map(|(what, limit, setting, beyond)| {
            format!("| {what} | {limit} | {setting} | {beyond} |\n")
        })
        .collect();
    keep("limits", "|---|---|---|---|\n", &rows);
}
