//! Transactions: commands that are queued, and decided as one at `EXEC`.
//!
//! What belongs to a transaction never runs by itself: after a `MULTI` that was refused everything is, up to
//! its `EXEC`. Closing would not do: clients that connect again by themselves would send the rest on a fresh
//! connection, where it would run.

use bytes::{Bytes, BytesMut};

use super::{Call, Description, Next, Question, Refusal};
use crate::model::key::RecordKey;
use crate::resp::frame::memory;
use crate::resp::program::{Item, Plan};

/// Commands in one transaction.
const MAX_QUEUED: usize = 10_000;
/// Bytes of memory that all arguments in one transaction take.
const MAX_QUEUED_BYTES: usize = 16 << 20;
/// Keys that one connection watches.
const MAX_WATCHED: usize = 1000;

const ABORTED: Refusal =
    Refusal::new("EXECABORT Transaction discarded because of previous errors.");

/// Where a connection stands.
#[derive(Clone, Debug, Default)]
pub(in crate::resp) enum Transaction {
    /// In none.
    #[default]
    None,
    /// `MULTI` was refused: what follows belongs to it, and is refused too.
    Barred,
    /// Commands are queued.
    Open(Queue),
}

/// What `EXEC` will run.
#[derive(Clone, Debug, Default)]
pub(in crate::resp) struct Queue {
    commands: Vec<(Vec<Bytes>, &'static Description)>,
    bytes: usize,
    /// One of them could not be queued.
    failed: bool,
}

impl Transaction {
    /// Bytes that are held.
    pub(in crate::resp) fn size(&self) -> usize {
        match self {
            Transaction::Open(queue) => queue.bytes,
            _ => 0,
        }
    }

    /// An open transaction cannot be executed any more.
    pub(super) fn fail(&mut self) {
        if let Transaction::Open(queue) = self {
            queue.failed = true;
            queue.commands.clear();
        }
    }
}

/// Whether a command acts at once, in a transaction too.
fn at_once(name: &str) -> bool {
    matches!(
        name,
        "multi" | "exec" | "discard" | "watch" | "quit" | "reset"
    )
}

/// What a transaction cannot hold: it answers another number of times, or changes how replies are written.
fn apart(name: &str) -> bool {
    name.ends_with("subscribe") || matches!(name, "hello" | "auth" | "client|reply")
}

/// Queues a command, if it is to be queued.
pub(super) fn queue(
    call: &mut Call<'_>,
    command: &'static Description,
) -> Option<Result<Next, Refusal>> {
    let Transaction::Open(queue) = &mut call.connection.transaction else {
        return None;
    };
    if at_once(command.name) {
        return None;
    }
    if apart(command.name) {
        return Some(Err(Refusal::new(
            "ERR Command not allowed inside a transaction",
        )));
    }
    queue.bytes = queue.bytes.saturating_add(memory(call.args));
    if queue.commands.len() >= MAX_QUEUED {
        return Some(Err(Refusal::new(
            "ERR a transaction has at most 10000 commands",
        )));
    }
    if queue.bytes > MAX_QUEUED_BYTES {
        return Some(Err(Refusal::new(
            "ERR a transaction has at most 16 MiB of arguments",
        )));
    }
    if !queue.failed {
        queue.commands.push((call.args.to_vec(), command));
    }
    call.reply().status("QUEUED");
    Some(Ok(Next::Replied))
}

/// After a refused `MULTI`.
pub(super) fn barred(call: &mut Call<'_>) -> Option<Result<Next, Refusal>> {
    if !matches!(call.connection.transaction, Transaction::Barred) {
        return None;
    }
    match call.arg(0).to_ascii_lowercase().as_slice() {
        b"exec" => {
            call.connection.end_transaction();
            Some(Err(ABORTED))
        }
        b"discard" => {
            call.connection.end_transaction();
            call.reply().status("OK");
            Some(Ok(Next::Replied))
        }
        b"reset" | b"quit" | b"auth" | b"hello" => None,
        _ => Some(Err(Refusal::new(
            "ERR MULTI was refused, so this command of its transaction was not run; send DISCARD, or reconnect",
        ))),
    }
}

pub(super) fn multi(call: &mut Call<'_>) -> Result<Next, Refusal> {
    if matches!(call.connection.transaction, Transaction::Open(_)) {
        return Err(Refusal::new("ERR MULTI calls can not be nested"));
    }
    call.connection.transaction = Transaction::Open(Queue::default());
    call.ok()
}

pub(super) fn discard(call: &mut Call<'_>) -> Result<Next, Refusal> {
    if !matches!(call.connection.transaction, Transaction::Open(_)) {
        return Err(Refusal::new("ERR DISCARD without MULTI"));
    }
    call.connection.end_transaction();
    call.ok()
}

pub(super) fn exec(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let Transaction::Open(queue) = std::mem::take(&mut call.connection.transaction) else {
        return Err(Refusal::new("ERR EXEC without MULTI"));
    };
    let watches = std::mem::take(&mut call.connection.watches);
    if queue.failed {
        return Err(ABORTED);
    }
    let before = Box::new(call.connection.copy());
    let mut items = Vec::with_capacity(queue.commands.len());
    for (args, command) in &queue.commands {
        items.push(plan(call, args, command));
    }
    Ok(Next::Ask(Question::Plan(Box::new(Plan {
        items,
        transaction: Some(watches),
        protocol: call.connection.protocol,
        before: Some(before),
    }))))
}

/// What a queued command asks for. What it changes about the connection is in force for those after it.
fn plan(call: &mut Call<'_>, args: &[Bytes], command: &'static Description) -> Item {
    let (mut units, mut local) = (Vec::new(), BytesMut::new());
    let mut own = Call {
        args,
        name: command.name,
        connection: call.connection,
        face: call.face,
        units: &mut units,
        local: &mut local,
    };
    match super::run_checked(&mut own, command) {
        Ok(Next::Decide(answer) | Next::Wait(answer)) => Item::Decide(units, answer, command.name),
        Ok(Next::Ask(Question::Plan(plan))) => {
            let mut items = plan.items;
            items.pop().unwrap_or(Item::Replied(local))
        }
        Ok(Next::Ask(question)) => Item::Ask(question),
        Ok(Next::Replied | Next::Close) => Item::Replied(local),
        Err(refusal) => {
            local.clear();
            let mut writer = crate::resp::reply::Writer::new(&mut local, call.connection.protocol);
            writer.error(refusal.text());
            Item::Replied(local)
        }
    }
}

pub(super) fn watch(call: &mut Call<'_>) -> Result<Next, Refusal> {
    if matches!(call.connection.transaction, Transaction::Open(_)) {
        return Err(Refusal::new("ERR WATCH inside MULTI is not allowed"));
    }
    let mut keys: Vec<RecordKey> = Vec::new();
    let watched = |key: &RecordKey, call: &Call<'_>| {
        call.connection
            .watches
            .iter()
            .any(|watch| watch.keys().any(|one| one == key))
    };
    for at in 1..call.args.len() {
        let key = call.key(at)?;
        if !keys.contains(&key) && !watched(&key, call) {
            keys.push(key);
        }
        let held = call
            .connection
            .watches
            .iter()
            .map(|watch| watch.keys().count());
        if held.sum::<usize>().saturating_add(keys.len()) > MAX_WATCHED {
            return Err(Refusal::new("ERR a connection watches at most 1000 keys"));
        }
    }
    Ok(Next::Ask(Question::Watch(keys)))
}

pub(super) fn unwatch(call: &mut Call<'_>) -> Result<Next, Refusal> {
    call.connection.watches.clear();
    call.ok()
}
