//! Scripts: text in, one decision out (SPEC 7).

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use super::{Call, Next, Question, Refusal};
use crate::resp::lua;
use crate::resp::program::{Item, Plan, Script};

/// How many scripts are remembered; the one that came first makes room. Clients that find theirs forgotten
/// send it again.
const MAX_SCRIPTS: usize = 1000;
/// Bytes of all remembered scripts.
const MAX_BYTES: usize = 16 << 20;
/// The longest script, in bytes.
const MAX_SCRIPT: usize = 256 << 10;
/// The most keys and arguments of one script.
const MAX_ARGUMENTS: usize = 10_000;
/// The most bytes of them together, or twice what a value may have where that is more.
pub const MAX_GIVEN: usize = 4 << 20;

/// Scripts by the SHA-1 of their text.
#[derive(Debug, Default)]
pub(in crate::resp) struct Scripts {
    texts: HashMap<String, Bytes>,
    order: VecDeque<String>,
    bytes: usize,
}

impl Scripts {
    fn keep(&mut self, sha: &str, text: &Bytes) {
        if self.texts.contains_key(sha) {
            return;
        }
        // A slice would keep the whole buffer it came in.
        let text = Bytes::copy_from_slice(text);
        self.bytes = self.bytes.saturating_add(text.len());
        self.texts.insert(sha.to_owned(), text);
        self.order.push_back(sha.to_owned());
        while self.texts.len() > MAX_SCRIPTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            let gone = self.texts.remove(&oldest).map_or(0, |text| text.len());
            self.bytes = self.bytes.saturating_sub(gone);
        }
    }
}

pub(super) fn eval(call: &mut Call<'_>) -> Result<Next, Refusal> {
    script(call, false, false)
}

pub(super) fn eval_ro(call: &mut Call<'_>) -> Result<Next, Refusal> {
    script(call, false, true)
}

pub(super) fn evalsha(call: &mut Call<'_>) -> Result<Next, Refusal> {
    script(call, true, false)
}

pub(super) fn evalsha_ro(call: &mut Call<'_>) -> Result<Next, Refusal> {
    script(call, true, true)
}

fn script(call: &mut Call<'_>, by_sha: bool, reads: bool) -> Result<Next, Refusal> {
    let count = call.int(2)?;
    let given = call.args.get(3..).unwrap_or_default();
    let count =
        usize::try_from(count).map_err(|_| Refusal::new("ERR Number of keys can't be negative"))?;
    if count > given.len() {
        return Err(Refusal::new(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    if given.len() > MAX_ARGUMENTS {
        return Err(Refusal::new(
            "ERR a script has at most 10000 keys and arguments",
        ));
    }
    // Under the engine's lock one instruction may copy or compare all of it.
    let most = MAX_GIVEN.max(call.face.options.limits.result.saturating_mul(2));
    if given.iter().map(Bytes::len).sum::<usize>() > most {
        return Err(Refusal::from(format!(
            "ERR the keys and arguments of a script have at most {most} bytes together"
        )));
    }
    let (sha, text) = match by_sha {
        true => {
            let sha = String::from_utf8_lossy(call.arg(1)).to_ascii_lowercase();
            let text = call.face.scripts.lock().texts.get(&sha).cloned();
            let text = text.ok_or(Refusal::new(
                "NOSCRIPT No matching script. Please use EVAL.",
            ))?;
            (sha, text)
        }
        false => {
            let text = call.args.get(1).cloned().unwrap_or_default();
            check_length(&text)?;
            let sha = lua::sha1hex(&text);
            call.face.scripts.lock().keep(&sha, &text);
            (sha, text)
        }
    };
    let (text, flagged) = shebang(&text)?;
    let (keys, argv) = given.split_at(count);
    let script = Script {
        text,
        sha,
        keys: keys.to_vec(),
        argv: argv.to_vec(),
        reads: reads || flagged,
        connection: call.connection.for_script(),
        prepared: None,
    };
    Ok(Next::Ask(Question::Plan(Box::new(Plan {
        items: vec![Item::Script(Box::new(script))],
        transaction: None,
        protocol: call.connection.protocol,
        before: None,
    }))))
}

fn check_length(text: &[u8]) -> Result<(), Refusal> {
    match text.len() {
        0..=MAX_SCRIPT => Ok(()),
        _ => Err(Refusal::new("ERR a script has at most 256 KiB")),
    }
}

/// The first line of a script may say what it is: `#!lua flags=no-writes`. It is made empty, so that lines
/// keep their numbers; and whether the script only reads.
fn shebang(text: &Bytes) -> Result<(Bytes, bool), Refusal> {
    if !text.starts_with(b"#!") {
        return Ok((text.clone(), false));
    }
    let end = text.iter().position(|b| *b == b'\n').unwrap_or(text.len());
    let line = String::from_utf8_lossy(text.get(..end).unwrap_or_default()).into_owned();
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(Refusal::from(format!(
            "ERR Unexpected engine in script shebang: {engine}"
        )));
    }
    let mut reads = false;
    for word in words {
        let flags = word
            .strip_prefix("flags=")
            .ok_or_else(|| Refusal::from(format!("ERR Unknown lua shebang option: {word}")))?;
        for flag in flags.split(',') {
            match flag {
                "no-writes" => reads = true,
                // They ask for less than is kept here anyway.
                "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => {
                    return Err(Refusal::from(format!(
                        "ERR Unexpected flag in script shebang: {flag}"
                    )));
                }
            }
        }
    }
    Ok((text.slice(end..), reads))
}

pub(super) fn load(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let text = call.args.get(2).cloned().unwrap_or_default();
    check_length(&text)?;
    let (source, _) = shebang(&text)?;
    lua::check(&source).map_err(|text| Refusal(text.into()))?;
    let sha = lua::sha1hex(&text);
    call.face.scripts.lock().keep(&sha, &text);
    call.reply().bulk(sha.as_bytes());
    Ok(Next::Replied)
}

pub(super) fn exists(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let shas = call.args.get(2..).unwrap_or_default();
    let known: Vec<bool> = {
        let scripts = call.face.scripts.lock();
        let known = |sha: &Bytes| {
            let sha = String::from_utf8_lossy(sha).to_ascii_lowercase();
            scripts.texts.contains_key(&sha)
        };
        shas.iter().map(known).collect()
    };
    let mut reply = call.reply();
    reply.array(known.len());
    known.into_iter().for_each(|known| reply.uint(known.into()));
    Ok(Next::Replied)
}

pub(super) fn flush(call: &mut Call<'_>) -> Result<Next, Refusal> {
    match call.args {
        [_, _] => {}
        [_, _, mode]
            if mode.eq_ignore_ascii_case(b"async") || mode.eq_ignore_ascii_case(b"sync") => {}
        _ => {
            return Err(Refusal::new(
                "ERR SCRIPT FLUSH only support SYNC|ASYNC option",
            ));
        }
    }
    *call.face.scripts.lock() = Scripts::default();
    call.ok()
}
