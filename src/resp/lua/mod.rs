//! Lua 5.1 for scripts (SPEC 7): a world for one script, bounded in what it may take.
//!
//! In reading order: this file makes that world and runs a script in it, [`budget`] bounds it, [`values`]
//! translates between Lua's values and Redis's replies, [`tools`] is what the world offers beside `redis.call`.
//!
//! A script runs under the engine's lock, so nothing in it may take long: instructions and the time of the
//! processor are counted, memory is limited, and the functions whose time does not show in instructions
//! (patterns) are weighed first. A state runs one script and is dropped: no global outlives it, and no script
//! sees another.
//!
//! Deliberately absent: `os`, `io`, `debug`, `package`, coroutines, and byte code in any form.

mod budget;
mod cjson;
mod tools;
mod values;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

use self::budget::Budget;
pub(super) use self::budget::Limits;
use super::reply::{Protocol, Writer};
pub(super) use tools::sha1hex;

const PRELUDE: &str = include_str!("prelude.lua");
/// What a script is called in its errors, as in Redis.
const CHUNK: &str = "@user_script";
/// What this world's own part is called, and what a script reads itself.
const OWN: &str = "@onced";
const LOADED: &str = "=loadstring";
const NAMES: [&[u8]; 3] = [CHUNK.as_bytes(), OWN.as_bytes(), LOADED.as_bytes()];

/// A script that was read and waits to be run, once.
pub(super) struct Prepared {
    /// Keeps the state alive; the others refer into it.
    lua: Lua,
    script: Function,
    run: Function,
    budget: Arc<Budget>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Prepared")
    }
}

/// Runs one command for a script: its reply in RESP2.
pub(super) type Run<'a> = dyn FnMut(Vec<Bytes>) -> BytesMut + 'a;

impl Prepared {
    /// Reads a script.
    ///
    /// # Errors
    /// The error to reply: it is no Lua, or too large.
    pub(super) fn new(
        text: &[u8],
        keys: &[Bytes],
        argv: &[Bytes],
        limits: Limits,
    ) -> Result<Prepared, Vec<u8>> {
        let given = keys.iter().chain(argv).map(Bytes::len).sum::<usize>();
        let budget = Arc::new(Budget::new(limits, text.len().saturating_add(given)));
        let made = make(text, keys, argv, &budget);
        made.map_err(|error| match &error {
            mlua::Error::SyntaxError { message, .. } => {
                format!("ERR Error compiling script (new function): {message}").into_bytes()
            }
            _ => budget.refusal(&error.to_string()),
        })
    }

    /// Runs it, and writes what it returns; whether it came to its end. `sha` is its name in errors.
    pub(super) fn run(
        self,
        sha: &str,
        run: &mut Run<'_>,
        out: &mut BytesMut,
        protocol: Protocol,
    ) -> bool {
        let ended = match self.call(run) {
            Ok(Ok(value)) => values::write(&value, &mut Writer::new(out, protocol))
                .map_err(|text| text.as_bytes().to_vec()),
            Ok(Err(mut text)) => {
                if let Some(line) = line(&mut text) {
                    text.extend_from_slice(
                        format!(" script: {sha}, on {CHUNK}:{line}.").as_bytes(),
                    );
                }
                Err(text)
            }
            Err(error) => Err(self.budget.refusal(&error.to_string())),
        };
        if let Err(text) = &ended {
            out.clear();
            Writer::new(out, protocol).error(text);
        }
        ended.is_ok()
    }

    /// The value it returned, or the error it raised.
    fn call(&self, run: &mut Run<'_>) -> mlua::Result<Result<Value, Vec<u8>>> {
        self.budget.begin(&self.lua)?;
        let run = RefCell::new(run);
        let reply_to = |args: MultiValue| match values::arguments(args) {
            // A script does not call scripts, so nobody else has it.
            Ok(args) => run.try_borrow_mut().map_or_else(
                |_| BytesMut::from(&b"-ERR a script cannot call itself\r\n"[..]),
                |mut run| run(args),
            ),
            Err(text) => {
                let mut reply = BytesMut::new();
                Writer::new(&mut reply, Protocol::Resp2).error(text.as_bytes());
                reply
            }
        };
        let reply_to = &reply_to;
        let ended = self.lua.scope(|scope| {
            let caught = scope.create_function(move |lua, args: MultiValue| {
                self.budget.look()?;
                values::read(lua, &reply_to(args))
            })?;
            let call = scope.create_function(move |lua, args: MultiValue| {
                self.budget.look()?;
                let reply = reply_to(args);
                match reply.strip_prefix(b"-") {
                    Some(text) => Err(values::Raised::error(
                        text.strip_suffix(b"\r\n").unwrap_or(text),
                    )),
                    None => values::read(lua, &reply),
                }
            })?;
            self.run.call::<(bool, Value)>((&self.script, call, caught))
        });
        self.lua.remove_hook();
        if let Some(text) = self.budget.over() {
            return Ok(Err(text));
        }
        Ok(match ended? {
            (true, value) => Ok(value),
            (false, Value::Table(error)) => Err(text_of(&error)),
            (false, other) => Err(self.budget.refusal(&values::shown(&other))),
        })
    }
}

/// Reads a script to see whether it is one.
///
/// # Errors
/// As [`Prepared::new`].
pub(super) fn check(text: &[u8]) -> Result<(), Vec<u8>> {
    Prepared::new(text, &[], &[], Limits::SCRIPT).map(|_| ())
}

/// The line of an error; it stands behind the text, after a zero byte.
fn line(text: &mut Vec<u8>) -> Option<String> {
    let at = text.iter().rposition(|b| *b == 0)?;
    let line = text.split_off(at);
    let line = String::from_utf8(line).ok()?;
    Some(line.trim_start_matches('\0').to_owned())
}

/// The text of an error table, its line behind it.
fn text_of(error: &Table) -> Vec<u8> {
    let mut text = error.raw_get::<mlua::LuaString>("err").map_or_else(
        |_| b"ERR unknown error".to_vec(),
        |text| text.as_bytes().to_vec(),
    );
    if let Ok(line) = error.raw_get::<u32>("line") {
        text.push(0);
        text.extend_from_slice(line.to_string().as_bytes());
    }
    text
}

fn make(
    text: &[u8],
    keys: &[Bytes],
    argv: &[Bytes],
    budget: &Arc<Budget>,
) -> mlua::Result<Prepared> {
    let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
    let options = LuaOptions::new().catch_rust_panics(false);
    let lua = Lua::new_with(libraries, options)?;
    lua.set_memory_limit(budget.memory())?;
    // Lua 5.1 does not hold on to a chunk's name while it reads the chunk (CVE-2025-49844): held here, it is the
    // same text and never collected.
    lua.set_named_registry_value("names", strings(&lua, &NAMES.map(Bytes::from_static))?)?;
    let tools = tools::table(&lua, budget)?;
    let prelude = lua
        .load(PRELUDE)
        .set_name(OWN)
        .set_mode(mlua::chunk::ChunkMode::Text);
    let (env, run): (Table, Function) = prelude.call(tools)?;
    env.raw_set("KEYS", strings(&lua, keys)?)?;
    env.raw_set("ARGV", strings(&lua, argv)?)?;
    lua.set_named_registry_value(tools::ENVIRONMENT, &env)?;
    let script = lua
        .load(text)
        .set_name(CHUNK)
        .set_mode(mlua::chunk::ChunkMode::Text)
        .set_environment(env)
        .into_function()?;
    Ok(Prepared {
        lua,
        script,
        run,
        budget: budget.clone(),
    })
}

fn strings(lua: &Lua, all: &[Bytes]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(all.len(), 0)?;
    for bytes in all {
        table.raw_push(lua.create_string(bytes)?)?;
    }
    Ok(table)
}
