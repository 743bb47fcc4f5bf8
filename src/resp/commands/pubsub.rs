//! Channels that never carry a message: enough for clients that subscribe as part of their handshake.

use bytes::Bytes;

use super::{Call, Next, Refusal};

/// How many subscriptions a connection may have.
const MAX_SUBSCRIPTIONS: usize = 1000;
/// The longest channel name or pattern, in bytes.
const MAX_CHANNEL: usize = 1024;

/// The three kinds of subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::resp) enum Channel {
    Plain,
    Pattern,
    Shard,
}

/// What a RESP2 connection with subscriptions may still send.
pub(super) fn allowed(name: &str) -> bool {
    name.ends_with("subscribe") || matches!(name, "ping" | "quit" | "reset")
}

pub(super) fn subscribe(call: &mut Call<'_>) -> Result<Next, Refusal> {
    change(call, Channel::Plain, true)
}

pub(super) fn psubscribe(call: &mut Call<'_>) -> Result<Next, Refusal> {
    change(call, Channel::Pattern, true)
}

pub(super) fn ssubscribe(call: &mut Call<'_>) -> Result<Next, Refusal> {
    change(call, Channel::Shard, true)
}

pub(super) fn unsubscribe(call: &mut Call<'_>) -> Result<Next, Refusal> {
    change(call, Channel::Plain, false)
}

pub(super) fn punsubscribe(call: &mut Call<'_>) -> Result<Next, Refusal> {
    change(call, Channel::Pattern, false)
}

pub(super) fn sunsubscribe(call: &mut Call<'_>) -> Result<Next, Refusal> {
    change(call, Channel::Shard, false)
}

/// Nobody hears it.
pub(super) fn publish(call: &mut Call<'_>) -> Result<Next, Refusal> {
    call.reply().uint(0);
    Ok(Next::Replied)
}

/// One reply for each name; `UNSUBSCRIBE` without names means all of them, and answers once even if there
/// are none.
fn change(call: &mut Call<'_>, channel: Channel, add: bool) -> Result<Next, Refusal> {
    let mut names: Vec<Option<Bytes>> = Vec::new();
    for name in call.args.iter().skip(1) {
        if name.len() > MAX_CHANNEL {
            return Err(Refusal::new("ERR a channel name has at most 1024 bytes"));
        }
        names.push(Some(Bytes::copy_from_slice(name)));
    }
    if names.is_empty() {
        let own = call.connection.subscriptions.iter();
        names.extend(
            own.filter(|(kind, _)| *kind == channel)
                .map(|(_, name)| Some(name.clone())),
        );
    }
    if names.is_empty() {
        names.push(None);
    }
    let present = call.connection.subscriptions.len();
    let after = if add {
        present.saturating_add(names.len())
    } else {
        names.len()
    };
    if after > MAX_SUBSCRIPTIONS {
        return Err(Refusal::new(
            "ERR a connection has at most 1000 subscriptions; no message is ever sent to them here",
        ));
    }
    for name in names {
        if let Some(name) = &name {
            let subscription = (channel, name.clone());
            match add {
                true => call.connection.subscriptions.insert(subscription),
                false => call.connection.subscriptions.remove(&subscription),
            };
        }
        // Shard channels are counted by themselves.
        let together = |kind| (kind == Channel::Shard) == (channel == Channel::Shard);
        let count = call.connection.subscribed(together);
        let verb = call.name;
        let mut reply = call.reply();
        reply.push(3);
        reply.bulk(verb.as_bytes());
        match &name {
            Some(name) => reply.bulk(name),
            None => reply.null(),
        }
        reply.uint(count as u64);
    }
    Ok(Next::Replied)
}
