//! A place in the text.

use super::error::{JsonError, JsonFault};

/// A place in a text, moving forward only.
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Reader<'a> {
        Reader { text, at: 0 }
    }

    /// The byte this place is before.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over one byte, unless at the end.
    pub(super) fn skip(&mut self) {
        self.at = self.text.len().min(self.at.saturating_add(1));
    }

    /// Steps over this byte if it stands here.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        if here {
            self.skip();
        }
        here
    }

    /// Steps over this word if it stands here.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let here = self.rest().starts_with(word.as_bytes());
        if here {
            self.at = self.at.saturating_add(word.len());
        }
        here
    }

    /// Steps over all bytes that are wanted, and gives them. A run ends at ASCII or the end, for what is
    /// wanted either is ASCII or ends at it; so it is text.
    pub(super) fn take_while(&mut self, wanted: impl Fn(u8) -> bool) -> &'a str {
        let count = self.rest().iter().take_while(|byte| wanted(**byte)).count();
        let start = self.at;
        self.at = start.saturating_add(count);
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Steps over what RFC 8259 calls insignificant whitespace.
    pub(super) fn skip_space(&mut self) {
        self.take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    }

    /// The fault of this place.
    pub(super) fn expected(&self, what: &'static str) -> JsonError {
        JsonFault::Expected(what).at(self.at)
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }
}
