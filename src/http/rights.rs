//! What a caller may do.

/// A right. Each includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nothing is needed: health.
    Public,
    /// To claim, to work on what was claimed, to read.
    Use,
    /// To replay, forget, and resolve by hand (SPEC 4).
    Operate,
    /// To take backups.
    Admin,
}

/// The rights of one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    highest: Right,
}

impl Rights {
    /// Everybody who reaches the local listener, as long as there are no credentials.
    pub const LOCAL: Rights = Rights::up_to(Right::Admin);

    /// This right and all it includes.
    #[must_use]
    pub const fn up_to(highest: Right) -> Rights {
        Rights { highest }
    }

    /// Whether the caller has that right.
    #[must_use]
    pub fn allow(self, right: Right) -> bool {
        right <= self.highest
    }
}
