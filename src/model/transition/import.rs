//! A record of another store (SPEC 8): taken over once, never over another one.

use super::{Context, Step};
use crate::model::imported::{Import, same};
use crate::model::outcome::{Conflict, Imported, Shown, Verdict};
use crate::model::record::State;

/// In this order:
/// 1. past its retention already: left out;
/// 2. nothing here: stored, its instants as they are;
/// 3. the same here: no change, so that an import which is run again goes on where it ended;
/// 4. another one here: `conflict`, which is never written over.
pub(super) fn decide(context: Context<'_>, shown: Option<Shown>, import: &Import) -> Step {
    let record = import.settled(context.now);
    let over =
        record.state == State::Done && record.expires_at.is_some_and(|end| end <= context.now.time);
    match shown {
        _ if over => context.refuse(Verdict::Imported(Imported::Expired), None),
        None => context.put_as_is(Verdict::Imported(Imported::Stored), record),
        Some(shown) if same(&shown.record, &record) => {
            context.refuse(Verdict::Imported(Imported::There), Some(shown))
        }
        Some(shown) => context.refuse(Verdict::Conflict(Conflict::OtherRecord), Some(shown)),
    }
}
