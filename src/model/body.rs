//! Payloads and results: opaque bytes with a content type.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::record::Lsn;

/// Bodies up to this many bytes live inside their record; larger ones are rows of their own, so that
/// renewing or expiring a record never rewrites them.
pub const INLINE_LIMIT: usize = 4096;

/// The content type of a result that names none (SPEC 4).
pub const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// A SHA-256.
pub type Digest = [u8; 32];

/// Bytes kept for others, with what they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Media type, as its sender gave it.
    pub content_type: Box<str>,
    /// The bytes.
    pub content: Content,
}

/// The bytes of a [`Body`].
#[derive(Clone, Debug)]
pub enum Content {
    /// At most [`INLINE_LIMIT`] bytes, always at hand.
    Inline(Bytes),
    /// More than that. Boxed, so that the many small ones do not pay for the few.
    Large(Box<LargeContent>),
}

/// A body kept beside its record.
#[derive(Clone, Debug)]
pub struct LargeContent {
    /// Length in bytes.
    pub size: u32,
    /// SHA-256 of the bytes: decides equality where the bytes are not at hand.
    pub digest: Digest,
    /// The entry that made the bytes durable; `None` until the engine has journaled them.
    pub lsn: Option<Lsn>,
    /// The bytes, where they are in memory.
    pub bytes: Option<Bytes>,
}

impl Content {
    /// Takes bytes in; hashes them if they are large (so: not under a lock).
    #[must_use]
    pub fn new(bytes: Bytes) -> Content {
        match u32::try_from(bytes.len()) {
            Ok(size) if bytes.len() > INLINE_LIMIT => Content::Large(Box::new(LargeContent {
                size,
                digest: sha256(&bytes),
                lsn: None,
                bytes: Some(bytes),
            })),
            // Limits on bodies are far below 4 GiB; faces refuse more before this is reached.
            _ => Content::Inline(bytes),
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Content::Inline(bytes) => bytes.len(),
            Content::Large(large) => large.size as usize,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are in memory.
    #[must_use]
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Content::Inline(bytes) => Some(bytes),
            Content::Large(large) => large.bytes.as_ref(),
        }
    }
}

/// Equal bytes, wherever they are kept.
impl PartialEq for Content {
    fn eq(&self, other: &Content) -> bool {
        match (self, other) {
            (Content::Inline(a), Content::Inline(b)) => a == b,
            (Content::Large(a), Content::Large(b)) => a.size == b.size && a.digest == b.digest,
            // A body's length decides how it is kept.
            _ => false,
        }
    }
}

impl Eq for Content {}

/// SHA-256 of some bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}
