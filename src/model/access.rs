//! Who may do what: the credentials of the configuration, and how a secret is looked for among them.

use std::fmt;
use std::sync::Arc;

use super::body::{Digest, sha256};

/// The longest name of a credential, in bytes.
pub const MAX_CREDENTIAL_NAME: usize = 64;

/// What a credential allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To claim, to work on what was claimed, and to write strings.
    Claim,
    /// To read.
    Read,
    /// To replay, forget, and resolve by hand (SPEC 4).
    Operate,
    /// To set policies, to take backups and to flush.
    Admin,
}

impl Right {
    /// All of them.
    pub const ALL: [Right; 4] = [Right::Claim, Right::Read, Right::Operate, Right::Admin];

    /// Its name in the configuration and in refusals.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Right::Claim => "claim",
            Right::Read => "read",
            Right::Operate => "operate",
            Right::Admin => "admin",
        }
    }

    /// The right of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Right> {
        Right::ALL.into_iter().find(|right| right.name() == name)
    }
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

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL
            .into_iter()
            .filter(move |right| self.allow(*right))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
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

/// Why a name is no credential's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadName;

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a credential's name is 1 to {MAX_CREDENTIAL_NAME} of the characters a-z A-Z 0-9 . _ @ -, and not \
             \"default\""
        )
    }
}

impl std::error::Error for BadName {}

/// Whether a credential may have that name: it is shown in histories and sent as a user name. `default` is what
/// Redis clients send when they are given none.
///
/// # Errors
/// [`BadName`].
pub fn check_credential_name(name: &str) -> Result<(), BadName> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    let fits = (1..=MAX_CREDENTIAL_NAME).contains(&name.len());
    match fits && name.bytes().all(plain) && name != "default" {
        true => Ok(()),
        false => Err(BadName),
    }
}

/// Who asks, as a face found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller(Option<Arc<Credential>>);

impl Caller {
    /// Whoever reaches a listener where no secret is asked for: he may do everything.
    pub const ANYBODY: Caller = Caller(None);

    /// The holder of that credential.
    #[must_use]
    pub fn known(credential: Arc<Credential>) -> Caller {
        Caller(Some(credential))
    }

    /// Whether he has that right.
    #[must_use]
    pub fn may(&self, right: Right) -> bool {
        self.0
            .as_ref()
            .is_none_or(|known| known.rights.allow(right))
    }

    /// Whether his credential is good for that namespace.
    #[must_use]
    pub fn reaches(&self, namespace: &str) -> bool {
        self.0.as_ref().is_none_or(|known| known.reaches(namespace))
    }

    /// Whether his credential is good for all namespaces, those to come included.
    #[must_use]
    pub fn reaches_all(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|known| known.namespaces.is_none())
    }

    /// What he is called in histories and in the audit trail.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|known| &*known.name)
    }
}

/// All credentials. Without any, whoever reaches the listener may do everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    credentials: Vec<Arc<Credential>>,
}

impl Access {
    /// These credentials.
    #[must_use]
    pub fn new(credentials: Vec<Credential>) -> Access {
        Access {
            credentials: credentials.into_iter().map(Arc::new).collect(),
        }
    }

    /// All of them.
    pub fn credentials(&self) -> impl Iterator<Item = &Credential> {
        self.credentials.iter().map(|credential| &**credential)
    }

    /// Whether a secret is asked for at all.
    #[must_use]
    pub fn is_required(&self) -> bool {
        !self.credentials.is_empty()
    }

    /// The credential with this secret; with a name, only the one of that name. It takes the same time
    /// whatever the secret: hashes are compared, each to its end, and all of them.
    #[must_use]
    pub fn find(&self, name: Option<&[u8]>, secret: &[u8]) -> Option<&Arc<Credential>> {
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

    /// What became of a credential that was found in another set: the one of the same name and secret. `None`
    /// where it was taken away.
    #[must_use]
    pub fn again(&self, known: &Credential) -> Option<&Arc<Credential>> {
        let same = |it: &&Arc<Credential>| it.name == known.name && it.sha256 == known.sha256;
        self.credentials.iter().find(same)
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

    #[test]
    fn a_changed_set_keeps_who_has_the_same_secret_with_the_rights_of_now() {
        let credential = |name: &str, secret: &str, right| Credential {
            name: name.into(),
            sha256: sha256(secret.as_bytes()),
            rights: Rights::of(&[right]),
            namespaces: None,
        };
        let before = Access::new(vec![
            credential("a", "one", Right::Read),
            credential("b", "two", Right::Read),
        ]);
        let after = Access::new(vec![
            credential("a", "one", Right::Claim),
            credential("b", "new", Right::Read),
        ]);
        let again = |secret: &str| {
            let known = before.find(None, secret.as_bytes()).expect("it is there");
            after.again(known).map(|now| now.rights)
        };
        assert_eq!(again("one"), Some(Rights::of(&[Right::Claim])));
        assert_eq!(again("two"), None);
    }

    #[test]
    fn names_are_plain_text_and_never_the_name_of_nobody() {
        for good in ["a", "worker-1", "Ops@site.example", &"n".repeat(64)] {
            assert_eq!(check_credential_name(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "default",
            "a b",
            "a:b",
            "\u{e9}",
            "a\n",
            &"n".repeat(65),
        ] {
            assert_eq!(check_credential_name(bad), Err(BadName), "{bad:?}");
        }
    }

    #[test]
    fn whoever_is_not_asked_for_a_secret_may_do_everything() {
        let anybody = Caller::ANYBODY;
        assert!(Right::ALL.into_iter().all(|right| anybody.may(right)));
        assert!(anybody.reaches("orders") && anybody.reaches_all());
        assert_eq!(anybody.name(), None);
        for right in Right::ALL {
            assert_eq!(Right::parse(right.name()), Some(right));
            assert_eq!(Rights::of(&[right]).iter().collect::<Vec<_>>(), [right]);
        }
        assert_eq!(Right::parse("use"), None);
    }
}
