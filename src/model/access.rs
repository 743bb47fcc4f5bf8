//! Who may do what: the credentials of the configuration, and how a secret is looked for among them.

use super::body::{Digest, sha256};

/// What a credential allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To claim, to work on what was claimed, and to write strings.
    Claim,
    /// To read.
    Read,
    /// To replay, forget, and resolve by hand (SPEC 4).
    Operate,
    /// To take backups and to flush.
    Admin,
}

/// A set of rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// All of them.
    pub const ALL: Rights = Rights(0b1111);

    /// These.
    #[must_use]
    pub fn of(rights: &[Right]) -> Rights {
        Rights(
            rights
                .iter()
                .fold(0, |set, right| set | Rights::bit(*right)),
        )
    }

    /// Whether that one is among them.
    #[must_use]
    pub fn allow(self, right: Right) -> bool {
        self.0 & Rights::bit(right) != 0
    }

    const fn bit(right: Right) -> u8 {
        match right {
            Right::Claim => 1,
            Right::Read => 2,
            Right::Operate => 4,
            Right::Admin => 8,
        }
    }
}

/// A credential: the secret itself is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// For people, and for clients that send a user name.
    pub name: Box<str>,
    /// SHA-256 of the secret.
    pub sha256: Digest,
    /// What it allows.
    pub rights: Rights,
    /// Where; `None` is everywhere.
    pub namespaces: Option<Vec<Box<str>>>,
}

impl Credential {
    /// Whether it is good for that namespace.
    #[must_use]
    pub fn reaches(&self, namespace: &str) -> bool {
        let among = |names: &Vec<Box<str>>| names.iter().any(|name| **name == *namespace);
        self.namespaces.as_ref().is_none_or(among)
    }
}

/// All credentials. Without any, whoever reaches the listener may do everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    credentials: Vec<Credential>,
}

impl Access {
    /// These credentials.
    #[must_use]
    pub fn new(credentials: Vec<Credential>) -> Access {
        Access { credentials }
    }

    /// Whether a secret is asked for at all.
    #[must_use]
    pub fn is_required(&self) -> bool {
        !self.credentials.is_empty()
    }

    /// The credential with this secret; with a name, only the one of that name. It takes the same time
    /// whatever the secret: hashes are compared, each to its end, and all of them.
    #[must_use]
    pub fn find(&self, name: Option<&[u8]>, secret: &[u8]) -> Option<&Credential> {
        let given = sha256(secret);
        let mut found = None;
        for credential in &self.credentials {
            let same = equal(&credential.sha256, &given);
            let named = name.is_none_or(|name| name == credential.name.as_bytes());
            if same & named {
                found = Some(credential);
            }
        }
        found
    }
}

/// Without a branch on what differs where.
fn equal(a: &Digest, b: &Digest) -> bool {
    let difference = a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_under_its_name_or_without_one() {
        let credential = |name: &str, secret: &str| Credential {
            name: name.into(),
            sha256: sha256(secret.as_bytes()),
            rights: Rights::of(&[Right::Read]),
            namespaces: Some(vec!["orders".into()]),
        };
        let access = Access::new(vec![credential("a", "one"), credential("b", "two")]);
        let find = |name: Option<&str>, secret: &str| {
            let found = access.find(name.map(str::as_bytes), secret.as_bytes());
            found.map(|found| found.name.to_string())
        };
        for (name, secret, found) in [
            (None, "one", Some("a")),
            (None, "two", Some("b")),
            (Some("b"), "two", Some("b")),
            (Some("a"), "two", None),
            (None, "three", None),
            (None, "", None),
        ] {
            assert_eq!(find(name, secret).as_deref(), found, "{name:?} {secret}");
        }
        let found = access.find(None, b"one").expect("it is there");
        assert!(found.reaches("orders") && !found.reaches("default"));
        assert!(found.rights.allow(Right::Read) && !found.rights.allow(Right::Claim));
        assert!(access.is_required() && !Access::default().is_required());
    }
}
