//! Names of records: a namespace and a key, kept as one byte string.

use bytes::Bytes;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The longest namespace name, in bytes (SPEC 1).
pub const MAX_NAMESPACE: usize = 64;
/// The longest key, in bytes (SPEC 1, SPEC 10).
pub const MAX_KEY: usize = 1024;
/// The namespace where none is given.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The full name of a record: `namespace 0x00 key`. A namespace never holds a zero byte, so two names are
/// equal only when both parts are, whatever bytes a key has (field case FO-08).
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct RecordKey {
    joined: Bytes,
    /// Length of the namespace; at most [`MAX_NAMESPACE`].
    split: u8,
}

/// The joined bytes are the name; where they split follows from them.
impl PartialEq for RecordKey {
    fn eq(&self, other: &RecordKey) -> bool {
        self.joined == other.joined
    }
}

impl Hash for RecordKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.joined.hash(state);
    }
}

/// Why a namespace or key is refused. Nothing was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The namespace does not match `[a-z0-9][a-z0-9._-]{0,63}`.
    Namespace,
    /// The key is empty.
    EmptyKey,
    /// The key has more than [`MAX_KEY`] bytes; the number it has.
    LongKey(usize),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Namespace => f.write_str(
                "a namespace is 1 to 64 characters of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
            ),
            KeyError::EmptyKey => f.write_str("a key has at least 1 byte"),
            KeyError::LongKey(len) => write!(
                f,
                "a key has at most {MAX_KEY} bytes, this one has {len}; use a hash of it"
            ),
        }
    }
}

impl std::error::Error for KeyError {}

/// Checks a namespace name (SPEC 1).
///
/// # Errors
/// [`KeyError::Namespace`].
pub fn check_namespace(name: &str) -> Result<(), KeyError> {
    let bytes = name.as_bytes();
    let first = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let rest = |b: &u8| first(b) || matches!(b, b'.' | b'_' | b'-');
    match bytes.split_first() {
        Some((head, tail))
            if bytes.len() <= MAX_NAMESPACE && first(head) && tail.iter().all(rest) =>
        {
            Ok(())
        }
        _ => Err(KeyError::Namespace),
    }
}

impl RecordKey {
    /// Joins a namespace and a key.
    ///
    /// # Errors
    /// What SPEC 1 does not allow: see [`KeyError`].
    pub fn new(namespace: &str, key: &[u8]) -> Result<RecordKey, KeyError> {
        check_namespace(namespace)?;
        if key.is_empty() {
            return Err(KeyError::EmptyKey);
        }
        if key.len() > MAX_KEY {
            return Err(KeyError::LongKey(key.len()));
        }
        let mut joined = Vec::with_capacity(namespace.len() + 1 + key.len());
        joined.extend_from_slice(namespace.as_bytes());
        joined.push(0);
        joined.extend_from_slice(key);
        #[allow(clippy::cast_possible_truncation)] // checked: at most 64
        let split = namespace.len() as u8;
        Ok(RecordKey {
            joined: joined.into(),
            split,
        })
    }

    /// Takes a joined name apart again, as found on disk. `None` where it is not one.
    #[must_use]
    pub fn from_joined(joined: Bytes) -> Option<RecordKey> {
        let split = joined
            .iter()
            .take(MAX_NAMESPACE + 1)
            .position(|b| *b == 0)?;
        let namespace = std::str::from_utf8(joined.get(..split)?).ok()?;
        check_namespace(namespace).ok()?;
        let key = joined.len().checked_sub(split + 1)?;
        let split = u8::try_from(split).ok()?;
        (1..=MAX_KEY)
            .contains(&key)
            .then_some(RecordKey { joined, split })
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        // A namespace was checked to be ASCII when the name was made.
        std::str::from_utf8(
            self.joined
                .get(..usize::from(self.split))
                .unwrap_or_default(),
        )
        .unwrap_or_default()
    }

    /// The key alone.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.joined
            .get(usize::from(self.split) + 1..)
            .unwrap_or_default()
    }

    /// `namespace 0x00 key`: how maps, tables and filters know the record.
    #[must_use]
    pub fn joined(&self) -> &Bytes {
        &self.joined
    }
}

/// Escaped, so that no key can forge a log line.
impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace(), self.key().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_checked() {
        for good in ["a", "0", "default", "db15", "a.b_c-d", &"x".repeat(64)] {
            assert_eq!(check_namespace(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            ".a",
            "-a",
            "_a",
            "A",
            "a/b",
            "a b",
            "ä",
            "a\0",
            &"x".repeat(65),
        ] {
            assert_eq!(check_namespace(bad), Err(KeyError::Namespace), "{bad}");
        }
    }

    #[test]
    fn names_split_where_they_were_joined() {
        for key in [&b"k"[..], b"\0", b"a\0b", &[0xff, 0xfe], &[b'x'; MAX_KEY]] {
            let name = RecordKey::new("ns", key).unwrap();
            assert_eq!((name.namespace(), name.key()), ("ns", key));
            assert_eq!(RecordKey::from_joined(name.joined().clone()), Some(name));
        }
        assert_eq!(RecordKey::new("ns", b""), Err(KeyError::EmptyKey));
        assert_eq!(
            RecordKey::new("ns", &[0; 1025]),
            Err(KeyError::LongKey(1025))
        );
        for bad in [&b""[..], b"ns", b"ns\0", b"\0k", b"NS\0k"] {
            assert_eq!(RecordKey::from_joined(Bytes::copy_from_slice(bad)), None);
        }
    }
}
