//! `onced token`: secrets for clients. The server knows only their hashes, so a secret is shown once.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, Subcommand};

use super::{Exit, Failure, show};
use crate::config::token::{hex, stanza};
use crate::engine::random;
use crate::model::access::{Credential, Right, Rights, check_credential_name};
use crate::model::body::sha256;
use crate::model::key::check_namespace;

/// What every secret begins with, so that tools which look for secrets in files and logs know one.
const PREFIX: &str = "onced_secret_";
/// Nobody guesses 256 bits.
const SECRET_BYTES: usize = 32;

/// Make secrets for clients
#[derive(Args, Debug)]
pub(super) struct Token {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    New(New),
}

/// Make a secret, shown once on standard error, and the lines of the configuration that let it in
#[derive(Args, Debug)]
struct New {
    /// What histories and the audit trail call its holder
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: String,

    /// What it allows: claim, read, operate, admin
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', required = true, value_parser = right)]
    rights: Vec<Right>,

    /// A namespace it is good for; may be repeated [default: all]
    #[arg(long, value_name = "NS", value_parser = namespace)]
    ns: Vec<String>,

    /// Write the secret to this new file, readable for this user only, instead of showing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn name(text: &str) -> Result<String, String> {
    let checked = check_credential_name(text);
    checked.map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

fn right(text: &str) -> Result<Right, &'static str> {
    Right::parse(text).ok_or("a right is claim, read, operate or admin")
}

fn namespace(text: &str) -> Result<String, String> {
    check_namespace(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

impl Token {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self.what {
            What::New(new) => new.run(),
        }
    }
}

impl New {
    fn run(self) -> Result<Exit, Failure> {
        let secret = secret()?;
        let namespaces = self.ns.into_iter().map(Into::into).collect::<Vec<_>>();
        let credential = Credential {
            name: self.name.into(),
            sha256: sha256(secret.as_bytes()),
            rights: Rights::of(&self.rights),
            namespaces: Some(namespaces).filter(|names| !names.is_empty()),
        };
        if let Some(path) = &self.out {
            write(path, &secret)?;
        }
        let shown = self.out.is_none().then_some(&*secret);
        if self.json {
            show::print(json(&credential, shown).as_bytes())?;
            return Ok(Exit::Success);
        }
        if let Some(secret) = shown {
            // Apart from the stanza, so that `>> onced.toml` takes that alone.
            let said = writeln!(
                std::io::stderr(),
                "The secret, for the client; it is shown only now:\n\n{secret}\n\n\
                 For the server's configuration file:\n"
            );
            said.map_err(|error| {
                let next = "name a file for it with --out";
                Failure::new(Exit::Failure, "cannot show the secret", error, next)
            })?;
        }
        show::print(stanza(&credential).as_bytes())?;
        Ok(Exit::Success)
    }
}

fn json(credential: &Credential, secret: Option<&str>) -> String {
    let rights: Vec<&str> = credential.rights.iter().map(Right::name).collect();
    let mut members = serde_json::Map::new();
    members.insert("name".into(), (&*credential.name).into());
    members.insert("sha256".into(), hex(&credential.sha256).into());
    members.insert("rights".into(), rights.into());
    if let Some(namespaces) = &credential.namespaces {
        let names: Vec<&str> = namespaces.iter().map(|name| &**name).collect();
        members.insert("namespaces".into(), names.into());
    }
    if let Some(secret) = secret {
        members.insert("secret".into(), secret.into());
    }
    let mut text = serde_json::Value::from(members).to_string();
    text.push('\n');
    text
}

fn secret() -> Result<String, Failure> {
    let mut bytes = [0; SECRET_BYTES];
    random::fill(&mut bytes).map_err(|error| {
        let attempt = "cannot take random bytes from the system";
        let next = "try again once the machine has started";
        Failure::new(Exit::Failure, attempt, error, next)
    })?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

fn write(path: &Path, secret: &str) -> Result<(), Failure> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| {
            writeln!(file, "{secret}")?;
            file.sync_all()
        });
    written.map_err(|error| {
        let attempt = format!("cannot write the secret to {}", path.display());
        let next = "name a file that is not there yet with --out";
        Failure::new(Exit::Failure, attempt, error, next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_never_the_same() {
        let (one, two) = (secret().unwrap(), secret().unwrap());
        assert_ne!(one, two);
        let random = one.strip_prefix(PREFIX).unwrap();
        assert_eq!(URL_SAFE_NO_PAD.decode(random).unwrap().len(), SECRET_BYTES);
    }
}
