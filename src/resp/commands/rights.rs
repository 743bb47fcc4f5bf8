//! Who may run what.

use super::{Connection, Description, Question, Refusal};
use crate::engine::Unit;
use crate::model::access::Right;
use crate::resp::program::Item;

const NO_AUTH: Refusal = Refusal::new("NOAUTH Authentication required.");
const NO_KEY: Refusal = Refusal::new("NOPERM No permissions to access a key");

/// What a command needs; `None`: nothing but to be known.
fn needed(command: &Description) -> Option<Right> {
    match command.name {
        "once.replay" | "once.forget" => Some(Right::Operate),
        "once.get" => Some(Right::Read),
        "flushall" | "flushdb" | "config|set" => Some(Right::Admin),
        "eval" | "evalsha" | "script|load" | "script|flush" => Some(Right::Claim),
        _ if command.group == "once" || command.is("write") => Some(Right::Claim),
        _ if command.is("readonly") => Some(Right::Read),
        _ => None,
    }
}

/// Whether the connection may run a command at all.
pub(super) fn check(connection: &Connection, command: &Description) -> Result<(), Refusal> {
    if !connection.access.is_required() || command.is("no_auth") {
        return Ok(());
    }
    let credential = connection.credential.as_ref().ok_or(NO_AUTH)?;
    match needed(command) {
        Some(right) if !credential.rights.allow(right) => Err(Refusal::from(format!(
            "NOPERM User {} has no permissions to run the '{}' command",
            credential.name, command.name
        ))),
        _ => Ok(()),
    }
}

/// Whether it may do that in these namespaces; if so, the commands say whose they are.
pub(super) fn sign_units(connection: &Connection, units: &mut [Unit]) -> Result<(), Refusal> {
    let Some(credential) = &connection.credential else {
        return Ok(());
    };
    for command in units.iter_mut().flat_map(Unit::commands_mut) {
        if !credential.reaches(command.key.namespace()) {
            return Err(NO_KEY);
        }
        command.by = Some(credential.name.clone());
    }
    Ok(())
}

/// The same of what is asked beside decisions.
pub(super) fn check_question(connection: &Connection, question: &Question) -> Result<(), Refusal> {
    let Some(credential) = &connection.credential else {
        return Ok(());
    };
    let reaches = match question {
        Question::Size(namespace) => credential.reaches(namespace),
        Question::Scan(scan) => credential.reaches(scan.namespace()),
        Question::Flush(namespaces) => namespaces.iter().all(|name| credential.reaches(name)),
        Question::Watch(keys) => keys.iter().all(|key| credential.reaches(key.namespace())),
        Question::Plan(plan) => {
            let allowed = |item: &Item| match item {
                Item::Script(script) => credential.reaches(script.connection.namespace()),
                _ => true,
            };
            plan.items.iter().all(allowed)
        }
        Question::Time | Question::Info { .. } => true,
    };
    match reaches {
        true => Ok(()),
        false => Err(NO_KEY),
    }
}
