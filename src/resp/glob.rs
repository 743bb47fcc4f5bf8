//! Patterns as Redis matches them: `*`, `?`, `[a-z]`, `[^x]`, and `\` before a byte that means itself.

/// Whether all of `text` matches. Time is at most the product of both lengths.
#[must_use]
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (pattern, text);
    // Where to go on when what follows the last star does not fit: the star takes one byte more.
    let mut retry: Option<(&[u8], &[u8])> = None;
    while let Some((byte, tail)) = t.split_first() {
        if let [b'*', after @ ..] = p {
            retry = Some((after, t));
            p = after;
            continue;
        }
        if let Some(after) = one(p, *byte) {
            (p, t) = (after, tail);
            continue;
        }
        match retry {
            Some((after, [_, skipped @ ..])) => {
                retry = Some((after, skipped));
                (p, t) = (after, skipped);
            }
            _ => return false,
        }
    }
    p.iter().all(|b| *b == b'*')
}

/// The bytes every match begins with.
#[must_use]
pub(super) fn prefix(pattern: &[u8]) -> &[u8] {
    let special = |b: &u8| matches!(b, b'*' | b'?' | b'[' | b'\\');
    let end = pattern.iter().position(special).unwrap_or(pattern.len());
    pattern.get(..end).unwrap_or_default()
}

/// What is left of the pattern after it took this byte; `None` if it does not.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', after @ ..] => Some(after),
        [b'[', class @ ..] => {
            let (holds, after) = in_class(class, byte);
            holds.then_some(after)
        }
        [b'\\', escaped, after @ ..] => (*escaped == byte).then_some(after),
        [plain, after @ ..] => (*plain == byte).then_some(after),
        [] => None,
    }
}

/// Whether the class holds the byte, and what follows it; a class that is not closed ends with the pattern.
fn in_class(class: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    loop {
        rest = match rest {
            [] => return (found != negated, rest),
            [b']', after @ ..] => return (found != negated, after),
            [b'\\', escaped, after @ ..] => {
                found |= *escaped == byte;
                after
            }
            [from, b'-', to, after @ ..] => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                after
            }
            [plain, after @ ..] => {
                found |= *plain == byte;
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let table = [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abbd", false),
            ("*a*b*c*", "xxaxxbxxcxx", true),
            ("*aab", "aaaaaab", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hello", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]", "hb", true),
            ("h[c-a]", "hb", true),
            ("h[a-c]", "hd", false),
            ("h[\\]]", "h]", true),
            ("a[bc", "ac", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\", "a\\", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_prefix_is_what_every_match_begins_with() {
        for (pattern, expected) in [
            ("user:*", "user:"),
            ("*", ""),
            ("a[b]", "a"),
            ("a\\*", "a"),
            ("ab", "ab"),
        ] {
            assert_eq!(prefix(pattern.as_bytes()), expected.as_bytes());
        }
    }
}
