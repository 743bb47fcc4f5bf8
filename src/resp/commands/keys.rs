//! Commands about keys whatever their value.

use std::collections::HashSet;

use super::strings::{TimeUnit, end};
use super::{Call, Next, Refusal, look, string_command};
use crate::engine::Unit;
use crate::model::command::{Command, ExpireWhen, Expiry, StringVerb};
use crate::model::key::RecordKey;
use crate::resp::render::{Answer, Ends};

/// All keys are removed, or none: where one is a claim's record, nothing changes (SPEC 7).
pub(super) fn del(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let mut seen = HashSet::new();
    let mut commands = Vec::new();
    for at in 1..call.args.len() {
        let key = call.key(at)?;
        if seen.insert(key.clone()) {
            let delete = string_command(key, StringVerb::Delete { when: None });
            commands.push(delete.without_bodies());
        }
    }
    let count = commands.len();
    call.units.push(match <[_; 1]>::try_from(commands) {
        Ok([one]) => Unit::One(one),
        Err(several) => Unit::All(several),
    });
    Ok(Next::Decide(Answer::Deleted(count)))
}

/// A key given twice counts twice, as in Redis.
pub(super) fn exists(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let looks = each(call, look)?;
    let count = looks.len();
    call.units.push(Unit::All(looks));
    Ok(Next::Decide(Answer::Present(count)))
}

/// A command for the key of every argument.
pub(super) fn each(
    call: &Call<'_>,
    ask: impl Fn(RecordKey) -> Command,
) -> Result<Vec<Command>, Refusal> {
    (1..call.args.len())
        .map(|at| call.key(at).map(&ask))
        .collect()
}

pub(super) fn kind(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    call.look(key);
    Ok(Next::Decide(Answer::Kind))
}

pub(super) fn ttl(call: &mut Call<'_>) -> Result<Next, Refusal> {
    ends(call, TimeUnit::Seconds, false)
}

pub(super) fn pttl(call: &mut Call<'_>) -> Result<Next, Refusal> {
    ends(call, TimeUnit::Millis, false)
}

pub(super) fn expiretime(call: &mut Call<'_>) -> Result<Next, Refusal> {
    ends(call, TimeUnit::Seconds, true)
}

pub(super) fn pexpiretime(call: &mut Call<'_>) -> Result<Next, Refusal> {
    ends(call, TimeUnit::Millis, true)
}

fn ends(call: &mut Call<'_>, unit: TimeUnit, absolute: bool) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    call.look(key);
    let seconds = unit == TimeUnit::Seconds;
    Ok(Next::Decide(Answer::Ends(Ends { seconds, absolute })))
}

pub(super) fn expire(call: &mut Call<'_>) -> Result<Next, Refusal> {
    expire_to(call, TimeUnit::Seconds, false)
}

pub(super) fn pexpire(call: &mut Call<'_>) -> Result<Next, Refusal> {
    expire_to(call, TimeUnit::Millis, false)
}

pub(super) fn expireat(call: &mut Call<'_>) -> Result<Next, Refusal> {
    expire_to(call, TimeUnit::Seconds, true)
}

pub(super) fn pexpireat(call: &mut Call<'_>) -> Result<Next, Refusal> {
    expire_to(call, TimeUnit::Millis, true)
}

pub(super) fn persist(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let key = call.key(1)?;
    let (to, when) = (Expiry::Never, ExpireWhen::default());
    let expire = string_command(key, StringVerb::Expire { to, when });
    call.units.push(Unit::One(expire.without_bodies()));
    Ok(Next::Decide(Answer::Expired(to)))
}

/// Options are looked at before the number, as in Redis. An end that is past removes the key.
fn expire_to(call: &mut Call<'_>, unit: TimeUnit, absolute: bool) -> Result<Next, Refusal> {
    let when = expire_when(call)?;
    let number = call.int(2)?;
    let millis = unit
        .millis(number)
        .ok_or_else(|| Refusal::expiry(call.name))?;
    let key = call.key(1)?;
    let to = match u64::try_from(millis) {
        Ok(millis) => end(millis, absolute),
        Err(_) => end(0, absolute),
    };
    let expire = string_command(key, StringVerb::Expire { to, when });
    call.units.push(Unit::One(expire.without_bodies()));
    Ok(Next::Decide(Answer::Expired(to)))
}

fn expire_when(call: &Call<'_>) -> Result<ExpireWhen, Refusal> {
    let mut when = ExpireWhen::default();
    for option in call.args.iter().skip(3) {
        match option.to_ascii_uppercase().as_slice() {
            b"NX" => when.without_end = true,
            b"XX" => when.with_end = true,
            b"GT" => when.later = true,
            b"LT" => when.earlier = true,
            _ => return Err(Refusal::quoting("ERR Unsupported option %", option)),
        }
    }
    if when.without_end && (when.with_end || when.later || when.earlier) {
        return Err(Refusal::new(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if when.later && when.earlier {
        return Err(Refusal::new(
            "ERR GT and LT options at the same time are not compatible",
        ));
    }
    Ok(when)
}
