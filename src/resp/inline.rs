//! Inline commands: a line of words, some of them in quotes.

use bytes::Bytes;

/// The words of an inline command, quotes undone; `None` where quotes do not match.
pub(super) fn words(line: &[u8]) -> Option<Vec<Bytes>> {
    // What C calls a blank: ASCII white space and the vertical tab.
    let blank = |b: u8| b.is_ascii_whitespace() || b == 0x0b;
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let Some((_, tail)) = rest.split_first().filter(|(b, _)| blank(**b)) {
            rest = tail;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        loop {
            match rest.split_first() {
                None => break,
                Some((b' ' | b'\n' | b'\r' | b'\t', tail)) => {
                    rest = tail;
                    break;
                }
                Some((quote @ (b'"' | b'\''), tail)) => {
                    rest = unquote(tail, *quote, &mut word)?;
                    if rest.first().is_some_and(|b| !blank(*b)) {
                        return None;
                    }
                    break;
                }
                Some((byte, tail)) => {
                    word.push(*byte);
                    rest = tail;
                }
            }
        }
        words.push(word.into());
    }
}

/// Reads up to the closing quote; what follows it, or `None` without one.
fn unquote<'a>(mut rest: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, tail) = rest.split_first()?;
        rest = match (*byte, quote, tail) {
            (byte, quote, tail) if byte == quote => return Some(tail),
            (b'\\', b'\'', [b'\'', tail @ ..]) => {
                word.push(b'\'');
                tail
            }
            (b'\\', b'"', [b'x', high, low, tail @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) << 4 | hex(*low));
                tail
            }
            (b'\\', b'"', [escaped, tail @ ..]) => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                tail
            }
            (byte, _, tail) => {
                word.push(byte);
                tail
            }
        };
    }
}

fn hex(digit: u8) -> u8 {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_commands_are_split_as_redis_splits_them() {
        let table: &[(&str, Option<&[&[u8]]>)] = &[
            ("", Some(&[])),
            ("   \t ", Some(&[])),
            ("  a\tb  c ", Some(&[b"a", b"b", b"c"])),
            (r#"a "b c" 'd e'"#, Some(&[b"a", b"b c", b"d e"])),
            (r#""" ''"#, Some(&[b"", b""])),
            (
                r#""\x41\xff\x00\n\r\t\b\a\"\\\q""#,
                Some(&[b"A\xff\0\n\r\t\x08\x07\"\\q"]),
            ),
            (r#""\xzz\x4""#, Some(&[b"xzzx4"])),
            (r"'it\'s \n \\ '", Some(&[br"it's \n \\ "])),
            (r"'ends with \\'", None),
            (r#"a"b c" d"#, Some(&[b"ab c", b"d"])),
            ("a\x0bb \x0b c", Some(&[b"a\x0bb", b"c"])),
            (r#""a"b"#, None),
            (r#"'a'"b""#, None),
            (r#""a"#, None),
            (r#""a\""#, None),
            (r"'a", None),
            (r#"a"b"#, None),
        ];
        for (line, expected) in table {
            let expected =
                expected.map(|words| words.iter().map(|w| Bytes::from_static(w)).collect());
            assert_eq!(words(line.as_bytes()), expected, "{line:?}");
        }
    }
}
