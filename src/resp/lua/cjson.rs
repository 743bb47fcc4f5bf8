//! The library `cjson`: JSON in scripts, as far as its two functions and `null` go.

use std::cell::Cell;
use std::sync::Arc;

use mlua::{LightUserData, Lua, Table, Value};
use serde_json::{Map, Number, Value as Json};

use super::budget::Budget;

/// What a script may build of JSON at once, in bytes: outside Lua its limit on memory does not count.
const MAX_JSON: usize = 1 << 20;
/// What a byte of JSON takes to be read, and one of a value to be written, in steps of the budget.
const READ: u64 = 20;
const WRITE: u64 = 5;
/// What a value takes beside its text.
const NODE: usize = 64;
/// How deep values may nest, in both directions.
const MAX_DEPTH: usize = 32;

pub(super) fn table(lua: &Lua, budget: &Arc<Budget>) -> mlua::Result<Table> {
    let cjson = lua.create_table()?;
    cjson.raw_set(
        "null",
        Value::LightUserData(LightUserData(std::ptr::null_mut())),
    )?;
    let written = budget.clone();
    cjson.raw_set(
        "encode",
        lua.create_function(move |lua, value: Value| {
            let left = Cell::new(MAX_JSON);
            let json = encode(&value, MAX_DEPTH, &left)?;
            written.weigh(MAX_JSON.saturating_sub(left.get()), WRITE)?;
            lua.create_string(json.to_string())
        })?,
    )?;
    let read = budget.clone();
    cjson.raw_set(
        "decode",
        lua.create_function(move |lua, text: mlua::LuaString| {
            read.weigh(text.as_bytes().len(), READ)?;
            let json = serde_json::from_slice(&text.as_bytes());
            let json: Json =
                json.map_err(|error| mlua::Error::runtime(format!("JSON: {error}")))?;
            decode(lua, &json, MAX_DEPTH)
        })?,
    )?;
    Ok(cjson)
}

fn too_deep() -> mlua::Error {
    mlua::Error::runtime("JSON: more than 32 levels")
}

/// A table with keys 1 to n is an array, as is an empty one's opposite in cjson: `{}`.
fn encode(value: &Value, depth: usize, left: &Cell<usize>) -> mlua::Result<Json> {
    let len = match value {
        // A byte that is escaped takes six.
        Value::String(text) => text.as_bytes().len().saturating_mul(6),
        _ => 0,
    };
    let rest = left.get().checked_sub(len.saturating_add(NODE));
    left.set(rest.ok_or_else(|| mlua::Error::runtime("JSON: more than a script may build"))?);
    Ok(match value {
        Value::Nil | Value::LightUserData(_) => Json::Null,
        Value::Boolean(value) => Json::Bool(*value),
        Value::Integer(number) => Json::Number((*number).into()),
        Value::Number(number) => {
            let whole = number.trunc() == *number && number.abs() < 1e15;
            match whole {
                true => Json::Number((*number as i64).into()),
                false => Number::from_f64(*number).map(Json::Number).ok_or_else(|| {
                    mlua::Error::runtime("JSON: Cannot serialise number: must not be NaN or Inf")
                })?,
            }
        }
        Value::String(text) => Json::String(String::from_utf8_lossy(&text.as_bytes()).into_owned()),
        Value::Table(table) => {
            let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
            let len = table.raw_len();
            if len > 0 {
                let items = table.sequence_values::<Value>();
                let items = items.map(|item| encode(&item?, depth, left));
                return Ok(Json::Array(items.collect::<mlua::Result<_>>()?));
            }
            let mut map = Map::new();
            for pair in table.pairs::<Value, Value>() {
                let (name, value) = pair?;
                let name = match &name {
                    Value::Integer(number) => number.to_string(),
                    Value::Number(number) => super::values::number_text(*number),
                    name => super::values::shown(name),
                };
                map.insert(name, encode(&value, depth, left)?);
            }
            Json::Object(map)
        }
        other => {
            let text = format!("JSON: Cannot serialise {}", other.type_name());
            return Err(mlua::Error::runtime(text));
        }
    })
}

fn decode(lua: &Lua, json: &Json, depth: usize) -> mlua::Result<Value> {
    Ok(match json {
        Json::Null => Value::LightUserData(LightUserData(std::ptr::null_mut())),
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => Value::Number(number.as_f64().unwrap_or(0.0)),
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(items) => {
            let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
            let table = lua.create_table()?;
            for item in items {
                table.raw_push(decode(lua, item, depth)?)?;
            }
            Value::Table(table)
        }
        Json::Object(map) => {
            let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
            let table = lua.create_table()?;
            for (name, item) in map {
                table.raw_set(lua.create_string(name)?, decode(lua, item, depth)?)?;
            }
            Value::Table(table)
        }
    })
}
