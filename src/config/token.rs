//! Credentials as the file writes them, `[[token]]`: the secret itself is never in it, only its SHA-256.

use std::fmt::Write as _;
use std::str::FromStr;

use serde::Deserialize;

use super::file::nearest_of;
use super::policy::NamespaceName;
use super::value::read_from_text;
use super::wrong_token;
use crate::error::Failure;
use crate::model::access::{Access, Credential, Right, Rights, check_credential_name};
use crate::model::body::{Digest, sha256};

/// One entry of `[[token]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenSettings {
    name: Name,
    sha256: Hash,
    rights: Vec<Named>,
    /// Where it is good; everywhere if it is left out.
    namespaces: Option<Vec<NamespaceName>>,
}

/// The credentials of all entries.
///
/// # Errors
/// Two of the same name or secret, one without rights or for no namespace.
pub(super) fn access(said: Vec<TokenSettings>) -> Result<Access, Failure> {
    let mut all: Vec<Credential> = Vec::with_capacity(said.len());
    for token in said {
        let name = token.name.0;
        if all.iter().any(|other| *other.name == *name) {
            return Err(wrong_token(
                &name,
                "the name is there twice",
                "give each token a name of its own, so that histories tell them apart",
            ));
        }
        if let Some(other) = all.iter().find(|other| other.sha256 == token.sha256.0) {
            let cause = format!("{} has the same secret", other.name);
            return Err(wrong_token(
                &name,
                &cause,
                "make another with `onced token new`",
            ));
        }
        let rights: Vec<Right> = token.rights.into_iter().map(|right| right.0).collect();
        if rights.is_empty() {
            let next = "give at least one of claim, read, operate and admin";
            return Err(wrong_token(&name, "it has no rights", next));
        }
        if token.namespaces.as_ref().is_some_and(Vec::is_empty) {
            let next = "name some, or leave namespaces out for all";
            return Err(wrong_token(&name, "it is for no namespace", next));
        }
        let namespaces = token
            .namespaces
            .map(|names| names.into_iter().map(|name| name.0.into()).collect());
        all.push(Credential {
            name: name.into(),
            sha256: token.sha256.0,
            rights: Rights::of(&rights),
            namespaces,
        });
    }
    Ok(Access::new(all))
}

/// What the file says of a credential; it has no secret in it.
#[must_use]
pub fn stanza(credential: &Credential) -> String {
    let quoted = |names: Vec<&str>| {
        let names: Vec<String> = names
            .into_iter()
            .map(|name| format!("\"{name}\""))
            .collect();
        names.join(", ")
    };
    let rights = quoted(credential.rights.iter().map(Right::name).collect());
    let mut text = format!(
        "[[token]]\nname = \"{}\"\nsha256 = \"{}\"\nrights = [{rights}]\n",
        credential.name,
        hex(&credential.sha256),
    );
    if let Some(namespaces) = &credential.namespaces {
        let names = quoted(namespaces.iter().map(|name| &**name).collect());
        // Writing to a text cannot fail.
        let _ = writeln!(text, "namespaces = [{names}]");
    }
    text
}

/// A digest as the file writes it.
#[must_use]
pub fn hex(digest: &Digest) -> String {
    let mut text = String::with_capacity(2 * digest.len());
    for byte in digest {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[derive(Clone, Debug)]
struct Name(String);

#[derive(Clone, Debug)]
struct Hash(Digest);

#[derive(Clone, Copy, Debug)]
struct Named(Right);

impl FromStr for Name {
    type Err = crate::model::access::BadName;

    fn from_str(text: &str) -> Result<Name, Self::Err> {
        check_credential_name(text).map(|()| Name(text.to_owned()))
    }
}

impl FromStr for Hash {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Hash, &'static str> {
        const ADVICE: &str = "write the SHA-256 of the secret in 64 hexadecimal digits, as `onced token new` prints it";
        let mut digest: Digest = [0; 32];
        let digits = text.as_bytes();
        if digits.len() != 2 * digest.len() {
            return Err(ADVICE);
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            let value = pair
                .iter()
                .try_fold(0, |sum, d| Some(sum * 16 + digit(*d)?));
            *byte = value
                .and_then(|value| value.try_into().ok())
                .ok_or(ADVICE)?;
        }
        if digest == sha256(b"") {
            return Err("this is the hash of an empty secret, which everybody has");
        }
        Ok(Hash(digest))
    }
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        let names = Right::ALL.into_iter().map(Right::name);
        Right::parse(text).map(Named).ok_or_else(|| {
            let meant = nearest_of(text, names)
                .map(|name| format!("; did you mean `{name}`?"))
                .unwrap_or_default();
            format!("a right is claim, read, operate or admin{meant}")
        })
    }
}

read_from_text!(Name, Hash, Named);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn parse(text: &str) -> Result<Access, String> {
        let settings: Settings = toml::from_str(text).map_err(|error| error.to_string())?;
        access(settings.token).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_stanza_reads_back_as_the_credential_it_was_made_of() {
        for namespaces in [None, Some(vec!["orders".into(), "web.hooks".into()])] {
            let credential = Credential {
                name: "worker-1".into(),
                sha256: sha256(b"secret"),
                rights: Rights::of(&[Right::Read, Right::Claim]),
                namespaces,
            };
            let access = parse(&stanza(&credential)).unwrap();
            assert_eq!(access, Access::new(vec![credential]));
        }
    }

    #[test]
    fn a_token_that_could_mean_something_else_is_refused() {
        let (a, b) = (hex(&sha256(b"a")), hex(&sha256(b"b")));
        let one = |name: &str, hash: &str, rest: &str| {
            format!("[[token]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n{rest}\n")
        };
        let claim = "rights = [\"claim\"]";
        let table = [
            (one("x", &a, claim) + &one("x", &b, claim), "there twice"),
            (
                one("x", &a, claim) + &one("y", &a, claim),
                "x has the same secret",
            ),
            (one("x", &a, "rights = []"), "it has no rights"),
            (one("x", &a, ""), "missing field `rights`"),
            (one("x", &a, "rights = [\"clam\"]"), "did you mean `claim`?"),
            (
                one("x", &a, &format!("{claim}\nnamespaces = []")),
                "for no namespace",
            ),
            (
                one("x", &a, &format!("{claim}\nnamespaces = [\"A\"]")),
                "a namespace is",
            ),
            (one("default", &a, claim), "a credential's name is"),
            (one("x", &a[1..], claim), "64 hexadecimal digits"),
            (
                one("x", &format!("+{}", &a[1..]), claim),
                "64 hexadecimal digits",
            ),
            (one("x", &hex(&sha256(b"")), claim), "an empty secret"),
            (
                one("x", &a, &format!("{claim}\nsecret = \"a\"")),
                "unknown field `secret`",
            ),
        ];
        for (text, expected) in table {
            let refused = parse(&text).unwrap_err();
            assert!(refused.contains(expected), "{text}\n{refused}");
        }
        assert!(!parse("").unwrap().is_required());
    }
}
