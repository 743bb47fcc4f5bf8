//! Commands about the server, and what the engine is asked beside decisions.

use bytes::Bytes;

use super::scan::{self, Scan};
use super::{Call, Connection, Next, Refusal, string_command};
use crate::engine::{Engine, Unavailable, Unit};
use crate::model::command::{List, MAX_LIST, StringVerb};
use crate::model::key::RecordKey;
use crate::model::outcome::Outcome;
use crate::model::record::Kind;
use crate::model::time::Now;
use crate::resp::frame::integer;
use crate::resp::program::Plan;
use crate::resp::render::unavailable;
use crate::resp::reply::Writer;
use crate::resp::{DATABASES, Face, REDIS_VERSION, glob};

/// What is asked of the engine beside decisions. It is answered after all that came before it.
#[derive(Debug)]
pub(in crate::resp) enum Question {
    /// `DBSIZE`, of a namespace.
    Size(&'static str),
    /// `TIME`.
    Time,
    /// `INFO`: which sections, and the databases whose keys may be counted.
    Info {
        sections: Vec<&'static str>,
        databases: Vec<usize>,
    },
    /// `SCAN`.
    Scan(Scan),
    /// `FLUSHDB` and `FLUSHALL`, of these namespaces.
    Flush(Vec<&'static str>),
    /// `WATCH`, of keys that are not watched yet.
    Watch(Vec<RecordKey>),
    /// `EXEC`, or a script.
    Plan(Box<Plan>),
}

impl Question {
    /// Writes the reply, if the instant is all it needs.
    pub(in crate::resp) fn answer_at(&self, now: Now, reply: &mut Writer<'_>) -> bool {
        if !matches!(self, Question::Time) {
            return false;
        }
        let millis = now.to_wall(now.time).as_millis();
        reply.array(2);
        reply.bulk((millis / 1000).to_string().as_bytes());
        reply.bulk((millis % 1000 * 1000).to_string().as_bytes());
        true
    }

    /// Asks, and writes the reply.
    pub(in crate::resp) async fn answer(
        self,
        face: &Face,
        engine: &Engine,
        connection: &mut Connection,
        reply: &mut Writer<'_>,
    ) {
        match self {
            Question::Flush(namespaces) => match flush_all(namespaces, engine).await {
                Ok(()) => reply.status("OK"),
                Err(error) => reply.error(&unavailable(error)),
            },
            Question::Watch(keys) => match engine.watch(keys).await {
                Ok(watch) => {
                    connection.watches.push(watch);
                    reply.status("OK");
                }
                Err(error) => reply.error(&unavailable(error)),
            },
            Question::Plan(plan) => plan.answer(face, engine, connection, reply).await,
            Question::Size(namespace) => match engine.count(namespace).await {
                Ok(count) => reply.uint(count),
                Err(error) => reply.error(&unavailable(error)),
            },
            Question::Time => {
                self.answer_at(engine.now(), reply);
            }
            Question::Info {
                sections,
                databases,
            } => {
                let text = info_text(&sections, &databases, face, engine).await;
                reply.verbatim(text.as_bytes());
            }
            Question::Scan(scan) => scan::answer(scan, face, engine, reply).await,
        }
    }
}

pub(super) fn dbsize(call: &mut Call<'_>) -> Result<Next, Refusal> {
    Ok(Next::Ask(Question::Size(call.connection.namespace())))
}

pub(super) fn time(_: &mut Call<'_>) -> Result<Next, Refusal> {
    Ok(Next::Ask(Question::Time))
}

const SECTIONS: [&str; 6] = [
    "server",
    "clients",
    "persistence",
    "replication",
    "cluster",
    "keyspace",
];

pub(super) fn info(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let asked = call.args.get(1..).unwrap_or_default();
    let all = asked.is_empty()
        || ["default", "all", "everything"].iter().any(|word| {
            let same = |section: &bytes::Bytes| section.eq_ignore_ascii_case(word.as_bytes());
            asked.iter().any(same)
        });
    let wanted = |section: &&str| {
        let same = |word: &bytes::Bytes| word.eq_ignore_ascii_case(section.as_bytes());
        all || asked.iter().any(same)
    };
    let sections = SECTIONS.into_iter().filter(wanted).collect();
    // Counts are read: whoever may not is shown none, here as by `DBSIZE`.
    let databases = (0..DATABASES).filter(|database| call.connection.counts(*database));
    let databases = databases.collect();
    Ok(Next::Ask(Question::Info {
        sections,
        databases,
    }))
}

async fn info_text(
    sections: &[&'static str],
    databases: &[usize],
    face: &Face,
    engine: &Engine,
) -> String {
    let mut texts = Vec::new();
    for section in sections {
        texts.push(match *section {
            "server" => format!(
                "# Server\r\nredis_version:{REDIS_VERSION}\r\nserver_name:onced\r\n\
                 onced_version:{}\r\nredis_mode:standalone\r\narch_bits:{}\r\nprocess_id:{}\r\n",
                env!("CARGO_PKG_VERSION"),
                usize::BITS,
                std::process::id()
            ),
            "clients" => format!("# Clients\r\nconnected_clients:{}\r\n", face.connected()),
            "persistence" => "# Persistence\r\nloading:0\r\n".to_owned(),
            "replication" => "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n".to_owned(),
            "cluster" => "# Cluster\r\ncluster_enabled:0\r\n".to_owned(),
            _ => keyspace(databases, engine).await,
        });
    }
    texts.join("\r\n")
}

/// Databases with records in them. How many of them will expire is not known without reading them all.
async fn keyspace(databases: &[usize], engine: &Engine) -> String {
    let mut text = "# Keyspace\r\n".to_owned();
    for database in databases {
        let Some(namespace) = super::connection::namespace(*database) else {
            continue;
        };
        if let Ok(count @ 1..) = engine.count(namespace).await {
            text.push_str(&format!(
                "db{database}:keys={count},expires=0,avg_ttl=0\r\n"
            ));
        }
    }
    text
}

/// What `CONFIG GET` knows: settings that clients ask for, and whose answer is true here.
fn settings(face: &Face) -> Vec<(&'static str, String)> {
    vec![
        ("timeout", "0".into()),
        ("maxmemory", "0".into()),
        ("maxmemory-policy", "noeviction".into()),
        ("databases", DATABASES.to_string()),
        ("appendonly", "yes".into()),
        ("appendfsync", "always".into()),
        ("save", String::new()),
        ("proto-max-bulk-len", face.options.limits.bulk.to_string()),
    ]
}

pub(super) fn config_get(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let patterns = call.args.get(2..).unwrap_or_default();
    let mut wanted = settings(call.face);
    wanted.retain(|(name, _)| {
        patterns
            .iter()
            .any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    });
    let mut reply = call.reply();
    reply.map(wanted.len());
    for (name, value) in wanted {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(Next::Replied)
}

/// Settings are the configuration's, not the clients'.
pub(super) fn config_set(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let name = call.arg(2);
    let known = settings(call.face)
        .iter()
        .any(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    Err(match known {
        true => Refusal::quoting(
            "ERR CONFIG SET failed (possibly related to argument '%') - can't set immutable config",
            name,
        ),
        false => Refusal::quoting(
            "ERR Unknown option or number of arguments for CONFIG SET - '%'",
            name,
        ),
    })
}

pub(super) fn no_cluster(_: &mut Call<'_>) -> Result<Next, Refusal> {
    Err(Refusal::new(
        "ERR This instance has cluster support disabled",
    ))
}

/// There are no replicas, so none has acknowledged anything, and none ever will.
pub(super) fn wait(call: &mut Call<'_>) -> Result<Next, Refusal> {
    call.int(1)?;
    match integer(call.arg(2)) {
        None => {
            return Err(Refusal::new(
                "ERR timeout is not an integer or out of range",
            ));
        }
        Some(..0) => return Err(Refusal::new("ERR timeout is negative")),
        Some(_) => {}
    }
    call.reply().uint(0);
    Ok(Next::Replied)
}

pub(super) fn role(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let mut reply = call.reply();
    reply.array(3);
    reply.bulk(b"master");
    reply.uint(0);
    reply.array(0);
    Ok(Next::Replied)
}

/// Removes strings, and leaves the records of claims alone (SPEC 7).
pub(super) fn flush(call: &mut Call<'_>) -> Result<Next, Refusal> {
    match call.args {
        [_] => {}
        [_, mode] if mode.eq_ignore_ascii_case(b"async") || mode.eq_ignore_ascii_case(b"sync") => {}
        _ => return Err(Refusal::SYNTAX),
    }
    if !call.face.options.allow_flush {
        let name = call.name.to_ascii_uppercase();
        return Err(Refusal::from(format!(
            "ERR {name} is refused: it needs onced to be started with --allow-flush; DEL removes single keys"
        )));
    }
    Ok(Next::Ask(Question::Flush(match call.name {
        "flushdb" => vec![call.connection.namespace()],
        _ => (0..DATABASES)
            .filter_map(super::connection::namespace)
            .collect(),
    })))
}

/// Page by page: what is written behind it meanwhile stays, and what is written before it goes.
async fn flush_all(namespaces: Vec<&'static str>, engine: &Engine) -> Result<(), Unavailable> {
    for namespace in namespaces {
        let mut after = None;
        loop {
            let list = List {
                namespace: namespace.into(),
                state: None,
                prefix: Bytes::new(),
                due: false,
                after,
                limit: MAX_LIST,
            };
            let page = engine.list(list).await?;
            let is_string = |outcome: &Outcome| {
                let shown = outcome.record.as_ref();
                shown.is_some_and(|shown| shown.record.kind == Kind::String)
            };
            let strings = page
                .records
                .into_iter()
                .filter(|(_, outcome)| is_string(outcome));
            let delete = |(key, _)| {
                Unit::One(string_command(key, StringVerb::Delete { when: None }).without_bodies())
            };
            for answer in engine.submit(strings.map(delete).collect()).await {
                answer?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(())
}
