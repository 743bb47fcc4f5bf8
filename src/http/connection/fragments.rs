//! Request lines whose target has a `#`.
//!
//! Hyper hands on a target without its `#` and what follows, and says nothing: `order#1` and `order#2` would be
//! one key, and a key is never cut (SPEC 1). RFC 9112 allows no `#` there, so such a request is refused. Only
//! hyper knows where a request begins, so all bytes below it are looked at, those of bodies too: what is found
//! says that some line was like that, and a request is refused when its own target is what stood before a `#`.

use crate::http::MAX_HEADER;

/// What comes behind a target and a blank.
const VERSION: &[u8] = b"HTTP/1.";

/// Looks for a blank, a target with a `#`, a blank and `HTTP/1.`, in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    place: Place,
    /// The target up to its `#`, while one is being read.
    target: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Where a blank may follow.
    #[default]
    Elsewhere,
    /// Behind a blank: a target may begin.
    Blank,
    /// In what may be a target.
    Target,
    /// In its fragment.
    Fragment,
    /// Behind a target with a fragment, and so far into [`VERSION`].
    Version(usize),
}

impl Fragments {
    /// Looks at the next bytes; `found` is told each target, without its fragment.
    pub(super) fn look(&mut self, bytes: &[u8], mut found: impl FnMut(&[u8])) {
        let mut rest = bytes;
        if self.place == Place::Elsewhere && !bytes.contains(&b'#') {
            // Only a target that has not ended yet can still get its fragment.
            let last = bytes.iter().rposition(|byte| *byte == b' ');
            rest = last.and_then(|at| bytes.get(at..)).unwrap_or_default();
        }
        for byte in rest {
            self.place = self.step(*byte);
            if self.place == Place::Version(VERSION.len()) {
                found(&self.target);
                self.place = Place::Elsewhere;
            }
        }
        if matches!(self.place, Place::Elsewhere | Place::Blank) {
            // An idle connection holds no buffer.
            self.target = Vec::new();
        }
    }

    fn step(&mut self, byte: u8) -> Place {
        match (self.place, byte) {
            (Place::Blank, b'/' | b'h' | b'H') => {
                self.target.clear();
                self.target.push(byte);
                Place::Target
            }
            (Place::Target, b'#') => Place::Fragment,
            (Place::Target, 0x21..) if self.target.len() < MAX_HEADER => {
                self.target.push(byte);
                Place::Target
            }
            (Place::Fragment, 0x21..) => Place::Fragment,
            (Place::Fragment, b' ') => Place::Version(0),
            (Place::Version(at), _) if VERSION.get(at) == Some(&byte) => {
                Place::Version(at.saturating_add(1))
            }
            (_, b' ') => Place::Blank,
            _ => Place::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found where `text` comes in pieces of that size.
    fn found(text: &[u8], size: usize) -> Vec<String> {
        let mut fragments = Fragments::default();
        let mut all = Vec::new();
        for piece in text.chunks(size) {
            fragments.look(piece, |target| {
                all.push(String::from_utf8_lossy(target).into_owned());
            });
        }
        all
    }

    #[test]
    fn a_target_with_a_fragment_is_found_in_pieces_of_any_size() {
        let long = format!("POST /{}#x HTTP/1.1\r\n", "k".repeat(MAX_HEADER));
        let table: &[(&str, &[&str])] = &[
            ("POST /a HTTP/1.1\r\n\r\n", &[]),
            ("POST /a#1 HTTP/1.1\r\n\r\n", &["/a"]),
            ("GET /a?b=c#d#e HTTP/1.0\r\n", &["/a?b=c"]),
            ("GET /#/ HTTP/1.1\n", &["/"]),
            (
                "GET http://localhost/a# HTTP/1.1\r\n",
                &["http://localhost/a"],
            ),
            (
                "POST /a HTTP/1.1\r\n\r\nbodyPOST /b#1 HTTP/1.1\r\n\r\n#POST /c#2 HTTP/1.1",
                &["/b", "/c"],
            ),
            ("GET /a%231 HTTP/1.1\r\nReferer: /a#1\r\n", &[]),
            ("a comment: see /a#1 for more", &[]),
            ("see /a#1  HTTP/1.1 /b#1 HTTP/2 /c#1 HTTP/1.1", &["/c"]),
            ("/a#1 HTTP/1.1", &[]),
            ("GET /a #1 HTTP/1.1", &[]),
            (&long, &[]),
        ];
        for (text, expected) in table {
            for size in [1, 2, 3, 7, usize::MAX] {
                assert_eq!(
                    found(text.as_bytes(), size),
                    *expected,
                    "{text:.60} by {size}"
                );
            }
        }
    }
}
