//! Numbers by exact decimal value.
//!
//! A float would make one of 9007199254740993 and 9007199254740992, and a changed amount would pass for a
//! repeated request. So a number is its significant digits and a decimal exponent, nothing is ever computed
//! from the digits, and an exponent costs what it takes to write it: `1e999999999` stays a dozen bytes.
//!
//! The canonical spelling takes those digits, without leading and trailing zeros, and lays them out as
//! ECMAScript does, which is what RFC 8785 (3.2.2.3) asks for. With d digits in all, the first worth 10^p:
//!
//! | p | spelling | example |
//! |---|---|---|
//! | 0 to 20 | plain | `100`, `-4.5` |
//! | -6 to -1 | plain, after `0.` | `0.000001` |
//! | any other | first digit, point and the others if d > 1, `e`, sign, p | `1e+21`, `1.5e-7` |
//!
//! So a number that any double carries (up to 15 digits) is spelled as RFC 8785 spells it, and one with more
//! digits keeps them. Zero is `0`, whatever its sign, scale or exponent.

use super::error::{JsonError, JsonFault};
use super::reader::Reader;

/// The largest power of ten, up or down, that a number's first significant digit may be worth.
pub const MAX_EXPONENT: i64 = 999_999_999_999_999_999;

/// Reads the number that begins here, and appends its canonical spelling.
pub(super) fn read(reader: &mut Reader<'_>, out: &mut String) -> Result<(), JsonError> {
    let at = reader.at();
    let negative = reader.take(b'-');
    let whole = digits(reader)?;
    if whole.len() > 1 && whole.starts_with('0') {
        return Err(JsonFault::Number.at(at));
    }
    let fraction = if reader.take(b'.') {
        digits(reader)?
    } else {
        ""
    };
    let exponent = exponent(reader)?;

    let mut all = String::with_capacity(whole.len().saturating_add(fraction.len()));
    all.push_str(whole);
    all.push_str(fraction);
    let leading = all.bytes().take_while(|digit| *digit == b'0').count();
    let significant = all.trim_matches('0');
    if significant.is_empty() {
        out.push('0');
        return Ok(());
    }
    // The first digit of `all` is worth 10^(whole - 1), each zero before the first significant one a tenth.
    let power = length(whole.len())
        .saturating_sub(length(leading).saturating_add(1))
        .saturating_add(exponent);
    if power.unsigned_abs() > MAX_EXPONENT.unsigned_abs() {
        return Err(JsonFault::Exponent.at(at));
    }
    if negative {
        out.push('-');
    }
    write(significant, power, out);
    Ok(())
}

/// At least one digit.
fn digits<'a>(reader: &mut Reader<'a>) -> Result<&'a str, JsonError> {
    let digits = reader.take_while(|byte| byte.is_ascii_digit());
    if digits.is_empty() {
        Err(JsonFault::Number.at(reader.at()))
    } else {
        Ok(digits)
    }
}

/// The exponent written after a number, or 0. Saturates: one so large is refused whatever the digits before
/// it, for these are too few to bring it back.
fn exponent(reader: &mut Reader<'_>) -> Result<i64, JsonError> {
    if !reader.take(b'e') && !reader.take(b'E') {
        return Ok(0);
    }
    let negative = reader.take(b'-');
    if !negative {
        reader.take(b'+');
    }
    let size = digits(reader)?.bytes().fold(0_i64, |size, digit| {
        size.saturating_mul(10)
            .saturating_add(i64::from(digit.saturating_sub(b'0')))
    });
    Ok(if negative {
        size.saturating_neg()
    } else {
        size
    })
}

/// Lays out significant digits of which the first is worth 10^power.
fn write(significant: &str, power: i64, out: &mut String) {
    let plain = match power {
        0..=20 => usize::try_from(power)
            .ok()
            .map(|power| power.saturating_add(1)),
        -6..=-1 => {
            out.push_str("0.");
            (power..-1).for_each(|_| out.push('0'));
            out.push_str(significant);
            return;
        }
        _ => None,
    };
    let point = plain.unwrap_or(1);
    match significant.split_at_checked(point) {
        Some((whole, "")) => out.push_str(whole),
        Some((whole, fraction)) => {
            out.push_str(whole);
            out.push('.');
            out.push_str(fraction);
        }
        None => {
            out.push_str(significant);
            (significant.len()..point).for_each(|_| out.push('0'));
        }
    }
    if plain.is_none() {
        out.push_str(if power < 0 { "e" } else { "e+" });
        out.push_str(&power.to_string());
    }
}

/// A count of digits: no text has more than an `i64` holds.
fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
