//! Strings: read with every escape of RFC 8259, written with those of RFC 8785 (3.2.2.2) alone.

use super::error::{JsonError, JsonFault};
use super::reader::Reader;

/// Reads the string whose opening quote is next, and appends what it says.
pub(super) fn read(reader: &mut Reader<'_>, decoded: &mut String) -> Result<(), JsonError> {
    reader.skip();
    loop {
        decoded.push_str(reader.take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)));
        match reader.peek() {
            Some(b'"') => {
                reader.skip();
                return Ok(());
            }
            Some(b'\\') => decoded.push(escape(reader)?),
            Some(_) => return Err(JsonFault::ControlCharacter.at(reader.at())),
            None => return Err(JsonFault::OpenString.at(reader.at())),
        }
    }
}

/// Appends a string with its quotes: quote, backslash and control characters escaped, the rest as it is.
pub(super) fn write(decoded: &str, out: &mut String) {
    out.push('"');
    for run in decoded.split_inclusive(|c: char| needs_escape(c)) {
        let Some(last) = run.chars().next_back().filter(|c| needs_escape(*c)) else {
            out.push_str(run);
            continue;
        };
        out.push_str(run.strip_suffix(last).unwrap_or_default());
        match last {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            control => {
                out.push_str("\\u00");
                for shift in [4, 0] {
                    out.extend(char::from_digit((control as u32 >> shift) & 0xf, 16));
                }
            }
        }
    }
    out.push('"');
}

fn needs_escape(c: char) -> bool {
    matches!(c, '"' | '\\' | '\0'..'\u{20}')
}

/// The character of the escape whose backslash is next.
fn escape(reader: &mut Reader<'_>) -> Result<char, JsonError> {
    let at = reader.at();
    reader.skip();
    let character = match reader.peek() {
        Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            reader.skip();
            return unicode(reader, at);
        }
        _ => return Err(JsonFault::Escape.at(at)),
    };
    reader.skip();
    Ok(character)
}

/// The character of a `\u` escape that began at `at`, or of the two that make a surrogate pair.
fn unicode(reader: &mut Reader<'_>, at: usize) -> Result<char, JsonError> {
    let lone = JsonFault::LoneSurrogate.at(at);
    let first = code_unit(reader, at)?;
    if !matches!(first, 0xd800..0xdc00) {
        // Half a pair is no `char`, which is the whole check for a low surrogate out of place.
        return char::from_u32(first).ok_or(lone);
    }
    let second_at = reader.at();
    if !reader.take_word("\\u") {
        return Err(lone);
    }
    match code_unit(reader, second_at)? {
        second @ 0xdc00..0xe000 => {
            let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            char::from_u32(code).ok_or(lone)
        }
        _ => Err(lone),
    }
}

/// Exactly four hexadecimal digits.
fn code_unit(reader: &mut Reader<'_>, at: usize) -> Result<u32, JsonError> {
    let mut unit = 0;
    for _ in 0..4 {
        let digit = reader.peek().and_then(|byte| char::from(byte).to_digit(16));
        unit = (unit << 4) | digit.ok_or(JsonFault::Escape.at(at))?;
        reader.skip();
    }
    Ok(unit)
}
