//! What the world of a script offers beside `redis.call`.

use std::sync::Arc;

use mlua::{Function, Lua, MultiValue, Table, Value, Variadic};
use sha1::{Digest as _, Sha1};

use super::budget::{Budget, TOO_LONG};
use super::{CHUNK, LOADED, values};
use crate::resp::REDIS_VERSION;

/// Where the environment of the script is found again.
pub(super) const ENVIRONMENT: &str = "environment";
/// What a byte takes, in steps of the budget: to be read as Lua, and to be hashed.
const READ: u64 = 40;
const HASH: u64 = 4;
/// The longest text of one `redis.log`, in bytes.
const MAX_LOG: usize = 1024;

/// SHA-1 in hexadecimal digits: what a script is called by.
pub(in crate::resp) fn sha1hex(bytes: &[u8]) -> String {
    let digest = Sha1::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn table(lua: &Lua, budget: &Arc<Budget>) -> mlua::Result<Table> {
    let tools = lua.create_table()?;
    tools.raw_set("version", REDIS_VERSION)?;
    tools.raw_set("version_number", version_number())?;
    let checked = budget.clone();
    tools.raw_set("check", lua.create_function(move |_, ()| checked.check())?)?;
    let weighed = budget.clone();
    let weigh = move |_: &Lua, (text, pattern, plain): (Value, Value, Option<Value>)| {
        let plain = !matches!(plain, None | Some(Value::Nil | Value::Boolean(false)));
        let steps = steps(&bytes(&text), &bytes(&pattern), plain);
        Ok((!weighed.take(steps)).then_some(TOO_LONG))
    };
    tools.raw_set("weigh", lua.create_function(weigh)?)?;
    let weighed = budget.clone();
    let weigh_rep = move |_: &Lua, (text, count): (Value, f64)| {
        // It adds the text so many times, one by one.
        let each = (bytes(&text).len() as u64) / 16 + 1;
        let steps = (count.max(0.0) as u64).saturating_mul(each);
        Ok((!weighed.take(steps)).then_some(TOO_LONG))
    };
    tools.raw_set("weigh_rep", lua.create_function(weigh_rep)?)?;
    tools.raw_set("has_blank", lua.create_function(has_blank)?)?;
    let weighed = budget.clone();
    let hash = move |_: &Lua, args: MultiValue| sha1hex_of(&weighed, &args);
    tools.raw_set("sha1hex", lua.create_function(hash)?)?;
    tools.raw_set("shown", lua.create_function(shown)?)?;
    tools.raw_set("log", lua.create_function(log)?)?;
    tools.raw_set("line", lua.create_function(line)?)?;
    let weighed = budget.clone();
    let load = move |lua: &Lua, text: mlua::LuaString| {
        weighed.weigh(text.as_bytes().len(), READ)?;
        load(lua, text)
    };
    tools.raw_set("load", lua.create_function(load)?)?;
    tools.raw_set("bit", bit(lua)?)?;
    tools.raw_set("cjson", super::cjson::table(lua, budget)?)?;
    Ok(tools)
}

fn version_number() -> u32 {
    let parts = REDIS_VERSION
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    parts.fold(0, |number, part| (number << 8) | part)
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into_bytes(),
        Value::Number(number) => values::number_text(*number).into_bytes(),
        _ => Vec::new(),
    }
}

/// What matching may take: each repetition can try every length, at every place.
fn steps(text: &[u8], pattern: &[u8], plain: bool) -> u64 {
    let len = (text.len() as u64).saturating_add(1);
    if plain {
        // A search for the first byte, and a comparison where it is found: seldom more.
        return len.saturating_add((pattern.len() as u64).saturating_mul(len) / 16);
    }
    let mut repetitions = 0_u32;
    let mut escaped = false;
    for byte in pattern {
        repetitions = repetitions.saturating_add(match (escaped, byte) {
            (true, b'b' | b'f') | (false, b'*' | b'+' | b'-' | b'?') => 1,
            _ => 0,
        });
        escaped = !escaped && *byte == b'%';
    }
    let anchored = pattern.first() == Some(&b'^');
    let places = if anchored { 1 } else { len };
    len.saturating_pow(repetitions)
        .saturating_mul(places)
        .saturating_add((pattern.len() as u64).saturating_mul(len))
}

fn has_blank(_: &Lua, text: mlua::LuaString) -> mlua::Result<bool> {
    Ok(text.as_bytes().contains(&b' '))
}

fn sha1hex_of(budget: &Budget, args: &MultiValue) -> mlua::Result<String> {
    match args.iter().collect::<Vec<_>>().as_slice() {
        [one] => {
            let bytes = bytes(one);
            budget.weigh(bytes.len(), HASH)?;
            Ok(sha1hex(&bytes))
        }
        _ => Err(values::Raised::error(b"ERR wrong number of arguments")),
    }
}

/// The text of an error that is no text of Lua's; with its first word, if so asked.
fn shown(lua: &Lua, (value, worded): (Value, Option<bool>)) -> mlua::Result<mlua::LuaString> {
    lua.create_string(values::raised(&value, worded.unwrap_or(false)))
}

/// A line of the server's log.
fn log(_: &Lua, (level, parts): (f64, Variadic<Value>)) -> mlua::Result<()> {
    let mut text = String::new();
    for part in parts.iter() {
        if text.len() > MAX_LOG {
            break;
        }
        text.push_str(if text.is_empty() { "" } else { " " });
        text.push_str(&values::shown(part));
    }
    text.truncate(text.floor_char_boundary(MAX_LOG));
    // One call is one line of the log.
    let text = text.replace(|letter: char| letter.is_control(), " ");
    match level {
        level if level >= 3.0 => tracing::warn!(target: "script", "{text}"),
        level if level >= 2.0 => tracing::info!(target: "script", "{text}"),
        _ => tracing::debug!(target: "script", "{text}"),
    }
    Ok(())
}

/// The line of the script that is being run.
fn line(lua: &Lua, (): ()) -> mlua::Result<Option<usize>> {
    for level in 0..32 {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let own = source.source.as_deref() == Some(CHUNK);
            own.then(|| debug.current_line()).flatten()
        });
        match found {
            None => break,
            Some(Some(line)) => return Ok(Some(line)),
            Some(None) => {}
        }
    }
    Ok(None)
}

/// `loadstring`: text alone, in the script's own world.
fn load(lua: &Lua, text: mlua::LuaString) -> mlua::Result<MultiValue> {
    let env: Table = lua.named_registry_value(ENVIRONMENT)?;
    let text = text.as_bytes().to_vec();
    let chunk = lua.load(text).set_name(LOADED);
    let loaded = chunk
        .set_mode(mlua::chunk::ChunkMode::Text)
        .set_environment(env)
        .into_function();
    Ok(match loaded {
        Ok(function) => MultiValue::from_iter([Value::Function(function)]),
        Err(error) => {
            let text = lua.create_string(error.to_string())?;
            MultiValue::from_iter([Value::Nil, Value::String(text)])
        }
    })
}

/// The library `bit`: numbers of 32 bits, with a sign.
fn bit(lua: &Lua) -> mlua::Result<Table> {
    let bit = lua.create_table()?;
    let fold = |name: &str, join: fn(u32, u32) -> u32| -> mlua::Result<()> {
        let function: Function = lua.create_function(move |_, all: Variadic<f64>| {
            let mut all = all.iter().map(|number| word(*number));
            let first = all.next().unwrap_or(0);
            Ok(signed(all.fold(first, join)))
        })?;
        bit.raw_set(name, function)
    };
    fold("tobit", |a, _| a)?;
    fold("band", |a, b| a & b)?;
    fold("bor", |a, b| a | b)?;
    fold("bxor", |a, b| a ^ b)?;
    fold("lshift", |a, n| a.wrapping_shl(n))?;
    fold("rshift", |a, n| a.wrapping_shr(n))?;
    fold("arshift", |a, n| {
        a.cast_signed().wrapping_shr(n).cast_unsigned()
    })?;
    fold("rol", u32::rotate_left_by)?;
    fold("ror", u32::rotate_right_by)?;
    bit.raw_set(
        "bnot",
        lua.create_function(|_, number: f64| Ok(signed(!word(number))))?,
    )?;
    bit.raw_set(
        "bswap",
        lua.create_function(|_, number: f64| Ok(signed(word(number).swap_bytes())))?,
    )?;
    bit.raw_set(
        "tohex",
        lua.create_function(|_, number: f64| Ok(format!("{:08x}", word(number))))?,
    )?;
    Ok(bit)
}

trait Rotate {
    fn rotate_left_by(self, by: u32) -> u32;
    fn rotate_right_by(self, by: u32) -> u32;
}

impl Rotate for u32 {
    fn rotate_left_by(self, by: u32) -> u32 {
        self.rotate_left(by % 32)
    }

    fn rotate_right_by(self, by: u32) -> u32 {
        self.rotate_right(by % 32)
    }
}

/// The low 32 bits of a number.
fn word(number: f64) -> u32 {
    (number.rem_euclid(4_294_967_296.0)) as u32
}

fn signed(word: u32) -> f64 {
    f64::from(word.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pattern_may_take_grows_with_its_repetitions() {
        let text = [b'x'; 99];
        for (pattern, plain, most) in [
            ("xyz", true, 200),
            ("xyz", false, 500),
            ("^%d+$", false, 1_000),
            ("%d+", false, 11_000),
            ("%-%*%%", false, 1_000),
            (".-.-.-b", false, 110_000_000),
        ] {
            let steps = steps(&text, pattern.as_bytes(), plain);
            assert!(steps <= most && steps > most / 20, "{pattern}: {steps}");
        }
    }
}
