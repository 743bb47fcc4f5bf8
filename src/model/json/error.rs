//! Why bytes are not the JSON a fingerprint can be made of.

use super::{MAX_DEPTH, MAX_EXPONENT};
use std::fmt;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// What.
    pub fault: JsonFault,
    /// The byte of the input, counted from 0; its length where the input ends too early.
    pub at: usize,
}

/// What can be wrong with a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonFault {
    /// The bytes are not UTF-8 (RFC 8259, 8.1).
    NotUtf8,
    /// Something else has to stand here; what.
    Expected(&'static str),
    /// A number is not written as JSON writes one: leading zero or plus, nothing after the point, ...
    Number,
    /// The number's exponent is beyond [`MAX_EXPONENT`].
    Exponent,
    /// The input ends inside a string.
    OpenString,
    /// A character below U+0020 stands in a string without an escape.
    ControlCharacter,
    /// A backslash before what JSON does not escape.
    Escape,
    /// An escaped surrogate without its other half: no text, so no two readers agree on it.
    LoneSurrogate,
    /// The name occurs twice in its object, once unescaped; the byte is where the second begins.
    RepeatedMember,
    /// Nested more than [`MAX_DEPTH`] deep.
    TooDeep,
}

impl JsonFault {
    pub(super) const fn at(self, at: usize) -> JsonError {
        JsonError { fault: self, at }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            JsonFault::NotUtf8 => f.write_str("not UTF-8"),
            JsonFault::Expected(what) => write!(f, "expected {what}"),
            JsonFault::Number => f.write_str("not a number as JSON writes one"),
            JsonFault::Exponent => write!(
                f,
                "a number's exponent is at most {MAX_EXPONENT} either way; send it as a string"
            ),
            JsonFault::OpenString => f.write_str("the string has no end"),
            JsonFault::ControlCharacter => {
                f.write_str("a control character in a string has to be escaped")
            }
            JsonFault::Escape => f.write_str("not an escape that JSON knows"),
            JsonFault::LoneSurrogate => {
                f.write_str("an escaped surrogate lacks its other half, so it is no character")
            }
            JsonFault::RepeatedMember => {
                f.write_str("a member name occurs twice in its object; send each name once")
            }
            JsonFault::TooDeep => write!(
                f,
                "arrays and objects nest at most {MAX_DEPTH} deep; send a flatter text"
            ),
        }?;
        write!(f, " (at byte {})", self.at)
    }
}

impl std::error::Error for JsonError {}
