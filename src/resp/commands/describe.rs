//! `COMMAND`: the table of commands, told as Redis 7.0 tells it.

use bytes::Bytes;

use super::table::COMMANDS;
use super::{Call, Description, Next, Refusal, find};
use crate::resp::glob;
use crate::resp::reply::Writer;

/// Names in one request: each is answered with far more bytes than it takes to ask.
const MAX_NAMES: usize = 1000;

pub(super) fn command(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let mut reply = call.reply();
    reply.array(COMMANDS.len());
    for command in COMMANDS {
        describe(&mut reply, command);
    }
    Ok(Next::Replied)
}

pub(super) fn count(call: &mut Call<'_>) -> Result<Next, Refusal> {
    call.reply().uint(COMMANDS.len() as u64);
    Ok(Next::Replied)
}

pub(super) fn info(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let names = names(call)?;
    if names.is_empty() {
        return command(call);
    }
    let mut reply = call.reply();
    reply.array(names.len());
    for name in names {
        match named(name) {
            Some(found) => describe(&mut reply, found),
            None => reply.null(),
        }
    }
    Ok(Next::Replied)
}

pub(super) fn docs(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let names = names(call)?;
    let found: Vec<&Description> = match names {
        [] => COMMANDS.iter().collect(),
        names => names.iter().filter_map(|name| named(name)).collect(),
    };
    let mut reply = call.reply();
    reply.map(found.len());
    for command in found {
        document(&mut reply, command);
    }
    Ok(Next::Replied)
}

/// `COMMAND LIST [FILTERBY MODULE m | ACLCAT c | PATTERN p]`.
pub(super) fn list(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let filter = match call.args.get(2..).unwrap_or_default() {
        [] => None,
        [by, kind, value] if by.eq_ignore_ascii_case(b"filterby") => {
            Some((kind.to_ascii_lowercase(), value.to_ascii_lowercase()))
        }
        _ => return Err(Refusal::SYNTAX),
    };
    let mut wanted: Vec<&str> = Vec::new();
    for command in COMMANDS {
        let wants = match &filter {
            None => true,
            Some((kind, value)) => match kind.as_slice() {
                b"pattern" => glob::matches(value, command.name.as_bytes()),
                b"aclcat" => {
                    words(command.categories).any(|c| c.as_bytes().get(1..) == Some(value))
                }
                b"module" => false,
                _ => return Err(Refusal::SYNTAX),
            },
        };
        if wants {
            wanted.push(command.name);
        }
    }
    let mut reply = call.reply();
    reply.array(wanted.len());
    for name in wanted {
        reply.bulk(name.as_bytes());
    }
    Ok(Next::Replied)
}

fn names<'a>(call: &Call<'a>) -> Result<&'a [Bytes], Refusal> {
    let names = call.args.get(2..).unwrap_or_default();
    if names.len() > MAX_NAMES {
        return Err(Refusal::new(
            "ERR at most 1000 names in one request; without names all commands are described",
        ));
    }
    Ok(names)
}

/// A command, or with a bar a subcommand.
fn named(name: &[u8]) -> Option<&'static Description> {
    let mut parts = name.splitn(2, |b| *b == b'|');
    let command = find(COMMANDS, parts.next()?)?;
    match parts.next() {
        None => Some(command),
        Some(own) => find(command.subcommands, own),
    }
}

fn describe(reply: &mut Writer<'_>, command: &Description) {
    head(reply, command);
    reply.set(command.subcommands.len());
    for subcommand in command.subcommands {
        // Subcommands have none themselves.
        head(reply, subcommand);
        reply.set(0);
    }
}

fn head(reply: &mut Writer<'_>, command: &Description) {
    let keys = command.keys;
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.int(command.arity);
    statuses(reply, command.flags);
    let ranged = keys.filter(|keys| !keys.counted);
    reply.int(ranged.map_or(0, |keys| keys.first));
    reply.int(ranged.map_or(0, |keys| keys.last));
    reply.int(ranged.map_or(0, |keys| keys.step));
    statuses(reply, command.categories);
    // Tips for clusters.
    reply.set(0);
    reply.set(keys.iter().count());
    if let Some(keys) = keys {
        reply.map(3);
        reply.bulk(b"flags");
        statuses(reply, keys.access);
        reply.bulk(b"begin_search");
        reply.map(2);
        reply.bulk(b"type");
        reply.bulk(b"index");
        reply.bulk(b"spec");
        reply.map(1);
        reply.bulk(b"index");
        reply.int(keys.first);
        reply.bulk(b"find_keys");
        reply.map(2);
        reply.bulk(b"type");
        if keys.counted {
            reply.bulk(b"keynum");
            reply.bulk(b"spec");
            reply.map(3);
            for (name, number) in [("keynumidx", 0), ("firstkey", 1), ("keystep", keys.step)] {
                reply.bulk(name.as_bytes());
                reply.int(number);
            }
            return;
        }
        reply.bulk(b"range");
        reply.bulk(b"spec");
        reply.map(3);
        reply.bulk(b"lastkey");
        // Counted from the first key, unless from the end.
        reply.int(if keys.last < 0 {
            keys.last
        } else {
            keys.last.saturating_sub(keys.first)
        });
        reply.bulk(b"keystep");
        reply.int(keys.step);
        reply.bulk(b"limit");
        reply.int(0);
    }
}

fn document(reply: &mut Writer<'_>, command: &Description) {
    let subcommands = command.subcommands;
    reply.bulk(command.name.as_bytes());
    reply.map(if subcommands.is_empty() { 3 } else { 4 });
    facts(reply, command);
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        for subcommand in subcommands {
            reply.bulk(subcommand.name.as_bytes());
            reply.map(3);
            facts(reply, subcommand);
        }
    }
}

fn facts(reply: &mut Writer<'_>, command: &Description) {
    for (name, value) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

fn statuses(reply: &mut Writer<'_>, list: &'static str) {
    reply.set(words(list).count());
    words(list).for_each(|word| reply.status(word));
}

fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_ascii_whitespace()
}
