//! The filters of all tables, and filters over many of them: a new key, the common case, is looked up in a few and
//! not in one for each table.
//!
//! Invariant: a cover holds all keys that are in the filters of its tables and in their last committed state. It
//! forgets nothing when a table goes: what it still holds then costs a look at its tables' own filters, and no read.

use std::collections::{BTreeMap, BTreeSet};

use super::filter::{Filter, Shape};
use super::layout::{Family, Place};
use super::shared::Tables;

/// A cover is made for so many times the keys that the first table in it is made for.
const AHEAD: u64 = 8;
/// Keys of a cover that are held for nothing, beside sixteen times those of its tables, before it is given up.
const STALE: u64 = 1 << 20;

/// A filter over the tables of a family.
struct Cover {
    filter: Filter,
    tables: BTreeSet<Place>,
}

/// The covers, as the writer knows them.
#[derive(Default)]
pub(super) struct Covers(BTreeMap<Family, Cover>);

impl Covers {
    fn of(&self, place: Place) -> Option<&Cover> {
        let cover = self.0.get(&place.family()?)?;
        cover.tables.contains(&place).then_some(cover)
    }

    /// A table comes under its family's cover, which from then on holds these: all that it has. `keys` are to be
    /// expected. Nothing happens to a table that has no family.
    pub(super) fn join(&mut self, place: Place, keys: u64, hashes: &[u64]) {
        let Some(family) = place.family() else {
            return;
        };
        let cover = self.0.entry(family).or_insert_with(|| Cover {
            filter: Filter::new(Shape::Cover, keys.saturating_mul(AHEAD)),
            tables: BTreeSet::new(),
        });
        for hash in hashes {
            cover.filter.insert(*hash);
        }
        cover.tables.insert(place);
    }

    /// A key comes into a table.
    pub(super) fn insert(&mut self, place: Place, hash: u64) {
        if let Some(family) = place.family()
            && let Some(cover) = self.0.get_mut(&family)
            && cover.tables.contains(&place)
        {
            cover.filter.insert(hash);
        }
    }

    /// A table goes.
    pub(super) fn leave(&mut self, place: Place) {
        if let Some(family) = place.family()
            && let Some(cover) = self.0.get_mut(&family)
        {
            cover.tables.remove(&place);
            if cover.tables.is_empty() {
                self.0.remove(&family);
            }
        }
    }

    /// A table that is under no cover though others are of its family: after a start, and when a family begins.
    pub(super) fn loose(&self, tables: &Tables) -> Option<Place> {
        let mut families: BTreeMap<Family, Option<Place>> = BTreeMap::new();
        for place in tables.keys() {
            let Some(family) = place.family() else {
                continue;
            };
            let loose = self.of(*place).is_none().then_some(*place);
            match families.get_mut(&family) {
                None => {
                    families.insert(family, loose);
                }
                // It is not alone.
                Some(first) => {
                    if let Some(found) = first.or(loose) {
                        return Some(found);
                    }
                }
            }
        }
        None
    }

    /// Gives up covers that hold far more than their tables have. Tells whether there were any.
    pub(super) fn give_up_stale(&mut self, tables: &Tables) -> bool {
        let before = self.0.len();
        self.0.retain(|_, cover| {
            let live = cover.tables.iter().filter_map(|place| tables.get(place));
            let rows: u64 = live.map(|live| live.counts.rows).sum();
            cover.filter.taken() <= rows.saturating_mul(16).saturating_add(STALE)
        });
        self.0.len() < before
    }
}

/// The filters as readers see them. A clone of a filter shares its links, so that what the writer inserts later is
/// seen too.
#[derive(Default)]
pub(super) struct Filters {
    loose: Vec<(Place, Filter)>,
    groups: Vec<Group>,
}

/// Tables under one cover.
struct Group {
    cover: Filter,
    tables: Vec<(Place, Filter)>,
}

impl Filters {
    pub(super) fn new(tables: &Tables, covers: &Covers) -> Filters {
        let of = |place: &Place| Some((*place, tables.get(place)?.filter.clone()));
        let groups = covers.0.values().map(|cover| Group {
            cover: cover.filter.clone(),
            tables: cover.tables.iter().filter_map(of).collect(),
        });
        let loose = tables.keys().filter(|place| covers.of(**place).is_none());
        Filters {
            groups: groups.collect(),
            loose: loose.filter_map(of).collect(),
        }
    }

    /// The tables that may hold a key of that hash.
    pub(super) fn places(&self, hash: u64) -> impl Iterator<Item = Place> + '_ {
        let covered = self
            .groups
            .iter()
            .filter(move |group| group.cover.contains(hash));
        self.loose
            .iter()
            .chain(covered.flat_map(|group| &group.tables))
            .filter(move |(_, filter)| filter.contains(hash))
            .map(|(place, _)| *place)
    }

    /// Marks which of some keys any table may hold, by their hashes. Filter by filter, so that the look-ups of a
    /// batch wait for memory together.
    pub(super) fn mark_possible(&self, hashes: &[u64], possible: &mut [bool]) {
        for (_, filter) in &self.loose {
            for (hash, possible) in hashes.iter().zip(&mut *possible) {
                *possible = *possible || filter.contains(*hash);
            }
        }
        for Group { cover, tables } in &self.groups {
            for (hash, possible) in hashes.iter().zip(&mut *possible) {
                let held = || tables.iter().any(|(_, filter)| filter.contains(*hash));
                *possible = *possible || (cover.contains(*hash) && held());
            }
        }
    }

    /// Calls `found` with each table, and the index of each key that it may hold, in order.
    pub(super) fn each_possible(&self, hashes: &[u64], mut found: impl FnMut(Place, usize)) {
        for (place, filter) in &self.loose {
            for (index, hash) in hashes.iter().enumerate() {
                if filter.contains(*hash) {
                    found(*place, index);
                }
            }
        }
        for Group { cover, tables } in &self.groups {
            let all = hashes.iter().enumerate();
            let held: Vec<_> = all.filter(|(_, hash)| cover.contains(**hash)).collect();
            for (place, filter) in tables {
                for (index, hash) in &held {
                    if filter.contains(**hash) {
                        found(*place, *index);
                    }
                }
            }
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let covered = self.groups.iter().flat_map(|group| &group.tables);
        let tables = self.loose.iter().chain(covered).map(|(_, filter)| filter);
        let covers = self.groups.iter().map(|group| &group.cover);
        tables.chain(covers).map(Filter::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::KeyHasher;
    use crate::store::codec::TableCounts;
    use crate::store::shared::Live;

    const KEYS: u64 = 100;

    fn place(name: &str) -> Place {
        Place::parse(name).unwrap()
    }

    /// The hashes of the keys of a table.
    fn keys(of: Place) -> Vec<u64> {
        let hasher = KeyHasher::new(&[7; 16]);
        let key = |n| hasher.hash(format!("{}\0{n}", of.name()).as_bytes());
        (0..KEYS).map(key).collect()
    }

    fn add(tables: &mut Tables, place: Place) {
        let mut filter = Filter::with_capacity(KEYS);
        for hash in keys(place) {
            filter.insert(hash);
        }
        let counts = TableCounts {
            rows: KEYS,
            ..TableCounts::default()
        };
        tables.insert(place, Live { counts, filter });
    }

    #[test]
    fn under_covers_or_not_the_same_tables_may_hold_a_key() {
        let names = [
            "open",
            "done/64/8/0",
            "done/64/9/0",
            "done/64/16/0",
            "done/forever/0",
            "done/forever/1",
        ];
        let places = names.map(place);
        let (mut tables, mut covers) = (Tables::new(), Covers::default());
        for place in places {
            add(&mut tables, place);
        }
        let all: Vec<u64> = places.into_iter().flat_map(keys).collect();
        let mut joined = Vec::new();
        loop {
            let filters = Filters::new(&tables, &covers);
            for of in places {
                assert!(
                    keys(of)
                        .iter()
                        .all(|hash| filters.places(*hash).any(|place| place == of))
                );
            }
            let mut possible = vec![false; all.len()];
            filters.mark_possible(&all, &mut possible);
            assert!(possible.iter().all(|possible| *possible));
            let mut found: BTreeMap<Place, Vec<usize>> = BTreeMap::new();
            filters.each_possible(&all, |place, index| {
                found.entry(place).or_default().push(index)
            });
            for (number, place) in places.iter().enumerate() {
                let own = number * keys(*place).len()..(number + 1) * keys(*place).len();
                let found = found.get(place).unwrap();
                assert!(found.is_sorted() && own.into_iter().all(|index| found.contains(&index)));
            }
            let Some(loose) = covers.loose(&tables) else {
                break;
            };
            covers.join(loose, KEYS, &keys(loose));
            joined.push(loose.name());
        }
        joined.sort();
        assert_eq!(
            joined,
            [
                "done/64/8/0",
                "done/64/9/0",
                "done/forever/0",
                "done/forever/1"
            ],
            "a table without kin is looked up by its own filter"
        );
    }

    #[test]
    fn a_new_key_is_looked_up_in_the_cover_alone() {
        let (mut tables, mut covers) = (Tables::new(), Covers::default());
        for part in 0..80 {
            let part = place(&format!("done/4096/7/{part}"));
            add(&mut tables, part);
            covers.join(part, KEYS, &keys(part));
        }
        let filters = Filters::new(&tables, &covers);
        assert_eq!((filters.loose.len(), filters.groups.len()), (0, 1));
        let cover = &filters.groups.first().unwrap().cover;
        let absent = keys(place("done/4096/7/80"));
        let held = absent.iter().filter(|hash| cover.contains(**hash)).count();
        assert!(held < 3, "{held} of {KEYS} keys that no table has");
    }

    #[test]
    fn a_cover_goes_with_its_last_table_or_when_it_is_stale() {
        let (mut tables, mut covers) = (Tables::new(), Covers::default());
        let parts = [place("done/8/3/0"), place("done/8/3/1")];
        for part in parts {
            add(&mut tables, part);
            covers.join(part, KEYS, &keys(part));
        }
        tables.remove(&parts[0]);
        covers.leave(parts[0]);
        let filters = Filters::new(&tables, &covers);
        for hash in keys(parts[0]) {
            assert_ne!(filters.places(hash).next(), Some(parts[0]));
        }
        assert!(!covers.give_up_stale(&tables));
        let hasher = KeyHasher::new(&[7; 16]);
        // Some of them it takes for known.
        for n in 0..STALE / 8 * 9 {
            covers.insert(parts[1], hasher.hash(&n.to_le_bytes()));
        }
        assert!(covers.give_up_stale(&tables));
        let filters = Filters::new(&tables, &covers);
        let own = keys(parts[1]);
        assert!(own.iter().all(|hash| filters.places(*hash).eq([parts[1]])));

        covers.join(parts[1], KEYS, &own);
        covers.leave(parts[1]);
        assert!(covers.0.is_empty());
    }
}
