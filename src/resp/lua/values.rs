//! Lua's values and Redis's replies, each as the other, as Redis 7 does it.

use bytes::Bytes;
use mlua::{Lua, MultiValue, Table, Value};

use crate::resp::reply::Writer;

/// How deep a returned table may nest.
const MAX_DEPTH: usize = 32;
/// How many values a script may return.
const MAX_VALUES: usize = 100_000;
/// How many bytes a script may return.
const MAX_BYTES: usize = 16 << 20;

/// Bytes that one command of a script may be given.
const MAX_ARGUMENTS: usize = 16 << 20;

/// The arguments of `redis.call`.
pub(super) fn arguments(args: MultiValue) -> Result<Vec<Bytes>, &'static str> {
    if args.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    // Before anything is copied: outside Lua its limit on memory does not count.
    let len = |value: &Value| match value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    };
    if args.iter().map(len).sum::<usize>() > MAX_ARGUMENTS {
        return Err("ERR the arguments of one command of a script have at most 16 MiB");
    }
    let argument = |value: &Value| match value {
        Value::String(text) => Some(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(number) => Some(number.to_string().into()),
        Value::Number(number) => Some(number_text(*number).into()),
        _ => None,
    };
    let args: Option<Vec<Bytes>> = args.iter().map(argument).collect();
    args.ok_or("ERR Lua redis lib command arguments must be strings or integers")
}

/// A number as C's `%.17g` writes it.
pub(super) fn number_text(number: f64) -> String {
    if !number.is_finite() {
        return match number {
            number if number.is_nan() => "nan".to_owned(),
            number if number < 0.0 => "-inf".to_owned(),
            _ => "inf".to_owned(),
        };
    }
    let written = format!("{number:.16e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-5..17).contains(&exponent) {
        let places = usize::try_from(16_i32.saturating_sub(exponent)).unwrap_or(0);
        return trimmed(&format!("{number:.places$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs())
}

fn trimmed(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

/// A reply as Lua sees it. It is one of ours, in RESP2.
pub(super) fn read(lua: &Lua, reply: &[u8]) -> mlua::Result<Value> {
    let mut open: Vec<(Table, usize)> = Vec::new();
    let mut rest = reply;
    loop {
        let end = rest
            .windows(2)
            .position(|pair| pair == b"\r\n")
            .unwrap_or(rest.len());
        let line = rest.get(..end).unwrap_or_default();
        rest = rest.get(end.saturating_add(2)..).unwrap_or_default();
        let text = line.get(1..).unwrap_or_default();
        let number = || {
            std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
        };
        let len = || number().and_then(|len| usize::try_from(len).ok());
        let named = |name: &str| {
            let table = lua.create_table()?;
            table.raw_set(name, lua.create_string(text)?)?;
            mlua::Result::Ok(Value::Table(table))
        };
        let mut value = match (line.first(), len()) {
            (Some(b'+'), _) => named("ok")?,
            (Some(b'-'), _) => named("err")?,
            (Some(b':'), _) => Value::Number(number().unwrap_or(0) as f64),
            (Some(b'$'), Some(len)) => {
                let bytes = rest.get(..len).unwrap_or_default();
                rest = rest.get(len.saturating_add(2)..).unwrap_or_default();
                Value::String(lua.create_string(bytes)?)
            }
            (Some(b'*'), Some(len)) => {
                let table = lua.create_table_with_capacity(len.min(MAX_VALUES), 0)?;
                if len > 0 {
                    open.push((table, len));
                    continue;
                }
                Value::Table(table)
            }
            // A missing value.
            _ => Value::Boolean(false),
        };
        loop {
            let Some((table, missing)) = open.last_mut() else {
                return Ok(value);
            };
            table.raw_push(value)?;
            *missing = missing.saturating_sub(1);
            if *missing > 0 {
                break;
            }
            value = match open.pop() {
                Some((table, _)) => Value::Table(table),
                None => Value::Nil,
            };
        }
    }
}

/// Writes what a script returned.
///
/// # Errors
/// It is larger or deeper than a reply may be; what was written is to be thrown away.
pub(super) fn write(value: &Value, reply: &mut Writer<'_>) -> Result<(), &'static str> {
    let mut open: Vec<(Table, usize, usize)> = Vec::new();
    let (mut values, mut bytes) = (0_usize, 0_usize);
    let mut next = Some(value.clone());
    loop {
        let value = match next.take() {
            Some(value) => value,
            None => match open.last_mut() {
                None => return Ok(()),
                Some((_, at, len)) if at == len => {
                    open.pop();
                    continue;
                }
                Some((table, at, _)) => {
                    *at = at.saturating_add(1);
                    table.raw_get(*at).unwrap_or(Value::Nil)
                }
            },
        };
        values = values.saturating_add(1);
        if values > MAX_VALUES || bytes > MAX_BYTES {
            return Err(
                "ERR the script returns more than 100000 values or 16 MiB; nothing of it was stored",
            );
        }
        match value {
            Value::String(text) => {
                bytes = bytes.saturating_add(text.as_bytes().len());
                reply.bulk(&text.as_bytes());
            }
            Value::Integer(number) => reply.int(number),
            Value::Number(number) => reply.int(truncated(number)),
            Value::Boolean(true) => reply.int(1),
            Value::Table(table) => {
                if open.len() >= MAX_DEPTH {
                    return Err(
                        "ERR the script returns tables in more than 32 levels; nothing of it was stored",
                    );
                }
                if !special(&table, reply) {
                    let mut len = 0_usize;
                    while len <= MAX_VALUES
                        && !matches!(
                            table.raw_get(len.saturating_add(1)),
                            Ok(Value::Nil) | Err(_)
                        )
                    {
                        len = len.saturating_add(1);
                    }
                    reply.array(len);
                    open.push((table, 0, len));
                }
            }
            _ => reply.null(),
        }
    }
}

/// Tables that stand for one reply.
fn special(table: &Table, reply: &mut Writer<'_>) -> bool {
    let named = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
    if let Value::String(text) = named("err") {
        reply.error(&text.as_bytes());
        return true;
    }
    if let Value::String(text) = named("ok") {
        reply.status_text(&text.as_bytes());
        return true;
    }
    let number = match named("double") {
        Value::Number(number) => number,
        Value::Integer(number) => number as f64,
        _ => return false,
    };
    reply.bulk(number_text(number).as_bytes());
    true
}

/// As C converts it: what does not fit is the smallest number.
fn truncated(number: f64) -> i64 {
    // 2^63, exactly.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    match (-BEYOND..BEYOND).contains(&number) {
        true => number as i64,
        false => i64::MIN,
    }
}

/// A value in an error text.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => String::from_utf8_lossy(&text.as_bytes()).into_owned(),
        Value::Error(error) => cause(error),
        other => other.type_name().to_owned(),
    }
}

/// An error reply on its way through Lua.
#[derive(Debug)]
pub(super) struct Raised(Vec<u8>);

impl Raised {
    /// The error that raises this text.
    pub(super) fn error(text: &[u8]) -> mlua::Error {
        mlua::Error::external(Raised(text.to_vec()))
    }
}

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for Raised {}

/// The text of an error value; an error reply has its first word already.
pub(super) fn raised(value: &Value, worded: bool) -> Vec<u8> {
    if let Value::Error(error) = value {
        let mut error = &**error;
        while let mlua::Error::CallbackError { cause, .. } = error {
            error = cause;
        }
        if let Some(Raised(text)) = error.downcast_ref() {
            return text.clone();
        }
    }
    let word = if worded { "ERR " } else { "" };
    format!("{word}{}", shown(value)).into_bytes()
}

/// What was wrong at the bottom of it, without the calls on the way.
fn cause(error: &mlua::Error) -> String {
    let mut error = error;
    while let mlua::Error::CallbackError { cause, .. } = error {
        error = cause;
    }
    match error {
        mlua::Error::RuntimeError(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (number, text) in [
            (0.1, "0.10000000000000001"),
            (12.5, "12.5"),
            (1e20, "1e+20"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (-3.25e-7, "-3.2500000000000001e-07"),
            (0.0001, "0.0001"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(number_text(number), text);
        }
    }
}
