//! Canonical JSON, for fingerprints that ignore how a request was spelled (SPEC 5).
//!
//! Two texts get the same canonical form exactly when they say the same:
//! * members are ordered by the UTF-16 code units of their names, and nothing is spaced (RFC 8785, 3.2.1
//!   and 3.2.3), so order and layout of the sender's library do not count;
//! * strings are escaped in one way (RFC 8785, 3.2.2.2); nothing is normalised, as no Unicode form is;
//! * numbers count by their exact decimal value, never by a float's: their spelling is written down in `number.rs`.
//!
//! What is deliberately refused, because two readers could take it for two different requests: a member
//! name that occurs twice, and an escaped surrogate without its other half. Everything else is RFC 8259
//! to the letter, over the whole input: UTF-8 without a byte order mark, no comments, no trailing commas.
//!
//! The bytes come from outside, so there is no recursion; depth and exponents have limits of their own
//! ([`MAX_DEPTH`], [`MAX_EXPONENT`]). Time is linear in the input but for sorting, and memory a small multiple.

mod draft;
mod error;
mod number;
mod reader;
mod string;

pub use error::{JsonError, JsonFault};
pub use number::MAX_EXPONENT;

use draft::{Draft, Opened};
use reader::Reader;

/// The deepest nesting of arrays and objects: what common libraries read without being told to.
pub const MAX_DEPTH: usize = 128;

/// The canonical form of one JSON text.
///
/// It is a JSON text with the same meaning, and its own canonical form. Where no number has more than 15
/// significant digits or leaves the range of a double, it is what RFC 8785 makes of the text.
///
/// # Errors
/// What is wrong, and at which byte: see [`JsonFault`].
pub fn canonical(text: &[u8]) -> Result<Vec<u8>, JsonError> {
    let text =
        std::str::from_utf8(text).map_err(|error| JsonFault::NotUtf8.at(error.valid_up_to()))?;
    let mut walk = Walk {
        reader: Reader::new(text),
        draft: Draft::default(),
        open: Vec::new(),
    };
    loop {
        walk.begin_value()?;
        if walk.go_on()? == Next::End {
            return Ok(walk.draft.finish());
        }
    }
}

/// A walk over the text with the containers that are open around it.
struct Walk<'a> {
    reader: Reader<'a>,
    draft: Draft,
    open: Vec<Container>,
}

/// Something that holds values.
enum Container {
    Array,
    Object(Opened),
}

/// What follows a value.
#[derive(PartialEq, Eq)]
enum Next {
    Value,
    End,
}

impl Walk<'_> {
    /// Reads a scalar, or the beginnings of containers up to the first scalar or empty container.
    fn begin_value(&mut self) -> Result<(), JsonError> {
        loop {
            self.reader.skip_space();
            let inside = match self.reader.peek() {
                Some(b'{') => self.open_object()?,
                Some(b'[') => self.open_array()?,
                Some(b'"') => return self.string(),
                Some(b'-' | b'0'..=b'9') => {
                    return number::read(&mut self.reader, &mut self.draft.text);
                }
                Some(b't') => return self.word("true"),
                Some(b'f') => return self.word("false"),
                Some(b'n') => return self.word("null"),
                _ => return Err(self.reader.expected("a value")),
            };
            if !inside {
                return Ok(());
            }
        }
    }

    /// After a value: closes what ends here, and finds out whether another value follows.
    fn go_on(&mut self) -> Result<Next, JsonError> {
        loop {
            self.reader.skip_space();
            match self.open.last() {
                None if self.reader.peek().is_none() => return Ok(Next::End),
                None => return Err(self.reader.expected("nothing after the value")),
                Some(Container::Array) => {
                    if self.reader.take(b',') {
                        self.draft.text.push(',');
                        return Ok(Next::Value);
                    }
                    if !self.reader.take(b']') {
                        return Err(self.reader.expected("',' or ']' after an item"));
                    }
                }
                Some(Container::Object(_)) => {
                    self.draft.end_member();
                    if self.reader.take(b',') {
                        self.draft.text.push(',');
                        self.name()?;
                        return Ok(Next::Value);
                    }
                    if !self.reader.take(b'}') {
                        return Err(self.reader.expected("',' or '}' after a member"));
                    }
                }
            }
            self.close()?;
        }
    }

    /// Opens an array; whether there is anything inside.
    fn open_array(&mut self) -> Result<bool, JsonError> {
        self.descend(Container::Array)?;
        self.draft.text.push('[');
        self.reader.skip_space();
        if self.reader.take(b']') {
            self.close()?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Opens an object and reads its first name; whether there is anything inside.
    fn open_object(&mut self) -> Result<bool, JsonError> {
        self.descend(Container::Object(self.draft.mark()))?;
        self.draft.text.push('{');
        self.reader.skip_space();
        if self.reader.take(b'}') {
            self.close()?;
            return Ok(false);
        }
        self.name()?;
        Ok(true)
    }

    fn descend(&mut self, container: Container) -> Result<(), JsonError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(JsonFault::TooDeep.at(self.reader.at()));
        }
        self.reader.skip();
        self.open.push(container);
        Ok(())
    }

    /// The end of the innermost container, already read.
    fn close(&mut self) -> Result<(), JsonError> {
        match self.open.pop() {
            Some(Container::Object(opened)) => self.draft.close_object(&opened),
            _ => {
                self.draft.text.push(']');
                Ok(())
            }
        }
    }

    /// A member's name and the colon after it.
    fn name(&mut self) -> Result<(), JsonError> {
        self.reader.skip_space();
        if self.reader.peek() != Some(b'"') {
            return Err(self.reader.expected("a member name in quotes"));
        }
        let at = self.reader.at();
        let start = self.draft.names.len();
        string::read(&mut self.reader, &mut self.draft.names)?;
        self.draft.begin_member(start, at);
        self.reader.skip_space();
        if !self.reader.take(b':') {
            return Err(self.reader.expected("':' after a member name"));
        }
        self.draft.text.push(':');
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        let mut decoded = String::new();
        string::read(&mut self.reader, &mut decoded)?;
        string::write(&decoded, &mut self.draft.text);
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> Result<(), JsonError> {
        if !self.reader.take_word(word) {
            return Err(self.reader.expected("true, false, null or another value"));
        }
        self.draft.text.push_str(word);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
