//! Lines of a script as words: quoting, repetition, comments.

/// A word, or the value behind a name: `owner=a` is the word `a` named `owner`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// What stands before the first bare `=`.
    pub(super) name: Option<String>,
    /// Its bytes, with quotes and repetition resolved.
    pub(super) bytes: Vec<u8>,
    /// Whether it was written without quotes, so that it may mean more than its letters.
    pub(super) bare: bool,
}

impl Word {
    /// The bytes as text, where they are some.
    pub(super) fn text(&self) -> Result<&str, String> {
        std::str::from_utf8(&self.bytes)
            .map_err(|_| format!("not text: {}", self.bytes.escape_ascii()))
    }

    /// Whether it is this bare word without a name.
    pub(super) fn is(&self, text: &str) -> bool {
        self.bare && self.name.is_none() && self.bytes == text.as_bytes()
    }

    /// The name it stands for: a capital letter and digits, unquoted.
    pub(super) fn placeholder(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.bytes).ok()?;
        (self.bare && is_placeholder(text)).then_some(text)
    }
}

/// `T1`, `E2`: a name that a script gives to a value.
pub(super) fn is_placeholder(text: &str) -> bool {
    let mut letters = text.bytes();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_uppercase())
        && text.len() > 1
        && letters.all(|b| b.is_ascii_digit())
}

/// Splits a line; a bare `#` begins a comment.
pub(super) fn split(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

fn word(text: &str) -> Result<(Word, &str), String> {
    let mut word = Word {
        name: None,
        bytes: Vec::new(),
        bare: true,
    };
    let mut rest = text;
    while let Some(first) = rest.chars().next().filter(|c| !c.is_whitespace()) {
        match first {
            '"' | '\'' => {
                let (piece, after) = quoted(rest, first)?;
                let (times, after) = repetition(after)?;
                word.bytes.extend(piece.repeat(times));
                word.bare = false;
                rest = after;
            }
            '=' if word.bare && word.name.is_none() && is_name(&word.bytes) => {
                word.name = Some(String::from_utf8(std::mem::take(&mut word.bytes)).unwrap());
                rest = &rest[1..];
            }
            _ => {
                let (letter, after) = rest.split_at(first.len_utf8());
                word.bytes.extend_from_slice(letter.as_bytes());
                rest = after;
            }
        }
    }
    Ok((word, rest))
}

fn is_name(bytes: &[u8]) -> bool {
    let fits = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.');
    !bytes.is_empty() && bytes.iter().all(fits)
}

/// `"..."` with escapes, `'...'` as it stands.
fn quoted(text: &str, quote: char) -> Result<(Vec<u8>, &str), String> {
    let mut bytes = Vec::new();
    let mut rest = &text[1..];
    loop {
        let Some(letter) = rest.chars().next() else {
            return Err(format!("a quote is not closed: {text}"));
        };
        rest = &rest[letter.len_utf8()..];
        match letter {
            _ if letter == quote => return Ok((bytes, rest)),
            '\\' if quote == '"' => {
                let (byte, after) = escape(rest)?;
                bytes.push(byte);
                rest = after;
            }
            _ => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

fn escape(rest: &str) -> Result<(u8, &str), String> {
    let bad = || format!("not an escape: \\{rest}");
    let letter = rest.chars().next().ok_or_else(bad)?;
    let after = &rest[letter.len_utf8()..];
    let byte = match letter {
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        '0' => 0,
        '\\' => b'\\',
        '"' => b'"',
        'x' => {
            let digits = after.get(..2).ok_or_else(bad)?;
            let byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
            return Ok((byte, &after[2..]));
        }
        _ => return Err(bad()),
    };
    Ok((byte, after))
}

/// `*1024` behind a quoted piece.
fn repetition(rest: &str) -> Result<(usize, &str), String> {
    let Some(rest) = rest.strip_prefix('*') else {
        return Ok((1, rest));
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, after) = rest.split_at(digits);
    let times = number
        .parse()
        .map_err(|_| format!("not a number of repetitions: *{rest}"))?;
    Ok((times, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_splits_into_words_values_and_quoted_bytes() {
        let words =
            split(r#"claim "a b" owner='x "y"' key="\xff\0"*2 x=1=2 T1 "T1"   # a comment "#);
        let show = |word: &Word| {
            (
                word.name.clone().unwrap_or_default(),
                word.bytes.clone(),
                word.bare,
            )
        };
        let expected: [(&str, &[u8], bool); 7] = [
            ("", b"claim", true),
            ("", b"a b", false),
            ("owner", b"x \"y\"", false),
            ("key", b"\xff\0\xff\0", false),
            ("x", b"1=2", true),
            ("", b"T1", true),
            ("", b"T1", false),
        ];
        let expected = expected.map(|(name, bytes, bare)| (name.to_owned(), bytes.to_vec(), bare));
        let words = words.unwrap();
        assert_eq!(words.iter().map(show).collect::<Vec<_>>(), expected);
        let placeholders: Vec<_> = words.iter().filter_map(Word::placeholder).collect();
        assert_eq!(placeholders, ["T1"]);
        for bad in ["\"a", "'a", r#""\q""#, r#""\x4""#, "\"a\"*b"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }
}
