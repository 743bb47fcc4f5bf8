//! Where large bodies go in a checkpoint: those still referred to go where their record goes, the others go,
//! and only new ones are written.

use redb::WriteTransaction;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::checkpoint::Plan;
use super::codec::{BodyRef, TableCounts, body_key, encode_body};
use super::layout::Place;
use super::shared::{Fault, bytewise, damage};

/// Where the bodies of a record lay that was replaced or removed, by index of the change.
pub(super) type OldBodies = HashMap<usize, Vec<(Place, BodyRef)>>;

/// Brings the bodies of all changes to where they belong.
pub(super) fn write_bodies(
    transaction: &WriteTransaction,
    plan: &Plan<'_>,
    old: &OldBodies,
    counts: &mut BTreeMap<Place, TableCounts>,
) -> Result<(), Fault> {
    let mut moves = body_moves(plan, old)?;
    // Sorted, so that each pair of tables is opened once and written in order.
    moves.sort_unstable_by(|a, b| (a.from, a.to, &a.key).cmp(&(b.from, b.to, &b.key)));
    for group in moves.chunk_by(|a, b| (a.from, a.to) == (b.from, b.to)) {
        move_bodies(transaction, group, counts)?;
    }
    Ok(())
}

/// A row of a body table that comes, goes or moves.
struct BodyMove {
    from: Option<Place>,
    to: Option<Place>,
    key: Vec<u8>,
    /// Where it comes from nowhere.
    value: Option<Vec<u8>>,
}

/// What happens to bodies: those still referred to go where their record goes, the others go, and only
/// new ones are written.
fn body_moves(plan: &Plan<'_>, old: &OldBodies) -> Result<Vec<BodyMove>, Fault> {
    let mut moves = Vec::new();
    let concerned: BTreeSet<usize> = plan.refs.keys().chain(old.keys()).copied().collect();
    for index in concerned {
        let Some(row) = plan.changes.get(index) else {
            continue;
        };
        let target = plan.targets.get(index).copied().flatten();
        let mut wanted = plan.refs.get(&index).cloned().unwrap_or_default();
        for (place, body) in old.get(&index).into_iter().flatten() {
            let before = wanted.len();
            wanted.retain(|large| (large.part, large.lsn) != (body.part, body.lsn));
            let to = if wanted.len() < before { target } else { None };
            if to != Some(*place) {
                let key = body_key(row.key, body.lsn, body.part);
                moves.push(BodyMove {
                    from: Some(*place),
                    to,
                    key,
                    value: None,
                });
            }
        }
        for body in wanted {
            let Some(bytes) = row.body(&body) else {
                let reason = format!(
                    "it refers to a body of LSN {} that is not there",
                    body.lsn.0
                );
                let place = target.map(Place::name).unwrap_or_default();
                return Err(damage(&place, Some(row.key), reason));
            };
            let key = body_key(row.key, body.lsn, body.part);
            let value = Some(encode_body(&key, bytes));
            moves.push(BodyMove {
                from: None,
                to: target,
                key,
                value,
            });
        }
    }
    Ok(moves)
}

/// Carries out moves that have the same tables.
fn move_bodies(
    transaction: &WriteTransaction,
    moves: &[BodyMove],
    counts: &mut BTreeMap<Place, TableCounts>,
) -> Result<(), Fault> {
    let Some(BodyMove { from, to, .. }) = moves.first() else {
        return Ok(());
    };
    let (from_name, to_name) = (from.map(Place::body_name), to.map(Place::body_name));
    let open = |name: &Option<String>| match name {
        Some(name) => transaction.open_table(bytewise(name)).map(Some),
        None => Ok(None),
    };
    let (mut source, mut target) = (open(&from_name)?, open(&to_name)?);
    for step in moves {
        let key = step.key.as_slice();
        let old = match &mut source {
            Some(table) => {
                let missing = || {
                    damage(
                        from_name.as_deref().unwrap_or_default(),
                        Some(key),
                        "missing",
                    )
                };
                Some(table.remove(key)?.ok_or_else(missing)?)
            }
            None => None,
        };
        let value = match (&step.value, &old) {
            (Some(value), _) => value,
            (None, Some(old)) => old.value(),
            (None, None) => continue,
        };
        if let Some(table) = &mut target
            && table.insert(key, value)?.is_some()
        {
            let name = to_name.as_deref().unwrap_or_default();
            return Err(damage(name, Some(key), "a body that no record refers to"));
        }
    }
    let moved = moves.len() as u64;
    if let Some(counts) = from.and_then(|place| counts.get_mut(&place)) {
        counts.bodies = counts.bodies.saturating_sub(moved);
    }
    if let Some(counts) = to.and_then(|place| counts.get_mut(&place)) {
        counts.bodies += moved;
    }
    Ok(())
}
