//! Percent-decoding, exactly once (SPEC 6).

use std::borrow::Cow;
use std::fmt;

/// What a plus stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plus {
    /// Itself: in paths.
    Plus,
    /// A space: in queries.
    Space,
}

/// A percent sign without two hex digits behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadEscape;

impl fmt::Display for BadEscape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a percent sign needs two hex digits behind it; write %25 for the sign itself")
    }
}

impl std::error::Error for BadEscape {}

/// The bytes that `raw` stands for; borrowed where nothing is escaped.
///
/// # Errors
/// [`BadEscape`].
pub fn decode(raw: &str, plus: Plus) -> Result<Cow<'_, [u8]>, BadEscape> {
    let special = |byte: &u8| *byte == b'%' || (*byte == b'+' && plus == Plus::Space);
    if !raw.as_bytes().iter().any(special) {
        return Ok(Cow::Borrowed(raw.as_bytes()));
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => match (bytes.next().and_then(hex), bytes.next().and_then(hex)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(BadEscape),
            },
            b'+' if plus == Plus::Space => b' ',
            byte => byte,
        });
    }
    Ok(Cow::Owned(out))
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_decoded_exactly_once() {
        type Decoded = Result<&'static [u8], BadEscape>;
        let table: &[(&str, Plus, Decoded)] = &[
            ("", Plus::Plus, Ok(b"")),
            ("plain", Plus::Plus, Ok(b"plain")),
            ("a%2Fb", Plus::Plus, Ok(b"a/b")),
            ("a%2fb", Plus::Plus, Ok(b"a/b")),
            ("a%252Fb", Plus::Plus, Ok(b"a%2Fb")),
            ("a+b", Plus::Plus, Ok(b"a+b")),
            ("a+b", Plus::Space, Ok(b"a b")),
            ("a%2Bb", Plus::Space, Ok(b"a+b")),
            ("%00%ff", Plus::Plus, Ok(b"\0\xff")),
            ("%C3%A9", Plus::Plus, Ok("é".as_bytes())),
            ("é", Plus::Plus, Ok("é".as_bytes())),
            ("%", Plus::Plus, Err(BadEscape)),
            ("a%", Plus::Space, Err(BadEscape)),
            ("%2", Plus::Plus, Err(BadEscape)),
            ("%zz", Plus::Plus, Err(BadEscape)),
            ("%+1", Plus::Plus, Err(BadEscape)),
            ("%é", Plus::Plus, Err(BadEscape)),
        ];
        for (raw, plus, expected) in table {
            let decoded = decode(raw, *plus);
            assert_eq!(decoded.as_deref(), expected.as_ref().copied(), "{raw:?}");
        }
    }
}
