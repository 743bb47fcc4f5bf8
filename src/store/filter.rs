//! Membership filters: so that a new key, the common case, is answered without a read.

use fastbloom::{AtomicBloomFilter, BloomFilter, DefaultHasher};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a filter is over, so how it is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One table: a "maybe" is a read, and there are a hundred of them at ten million keys. 20 bits for each key a
    /// link is made for, of which 12 are set: a full link says "maybe" to 1 of 14 000 absent keys.
    Table,
    /// Many tables: a "maybe" is a look at their own filters. 16 bits and 8: 1 of 1700.
    Cover,
}

impl Shape {
    /// Bits for each key, and how many of them are set.
    const fn bits(self) -> (u64, u32) {
        match self {
            Shape::Table => (20, 12),
            Shape::Cover => (16, 8),
        }
    }

    /// Bits for so many keys, and how many are set for each.
    fn size(self, keys: u64) -> (usize, u32) {
        let (per_key, hashes) = self.bits();
        let bits = usize::try_from(keys.saturating_mul(per_key)).unwrap_or(usize::MAX);
        (bits, hashes)
    }
}

/// What the smallest link is made for: 8 KiB.
const LEAST: u64 = 4096;
/// A chain longer than this is made anew as one link, so that the links' errors do not add up.
const MOST_LINKS: usize = 2;

/// Hashes keys once for all filters and for the sums in `meta`: SipHash-1-3 keyed by the store's id, so
/// that nobody who does not know the id can choose keys that collide.
#[derive(Clone)]
pub struct KeyHasher(DefaultHasher);

impl KeyHasher {
    /// The hasher of the store of that id.
    #[must_use]
    pub fn new(store_id: &[u8; 16]) -> KeyHasher {
        KeyHasher(DefaultHasher::seeded(store_id))
    }

    /// The hash of a joined key. It is on disk, in sums: it must never change.
    #[must_use]
    pub fn hash(&self, joined: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(joined);
        hasher.finish()
    }
}

#[cfg(test)]
thread_local! {
    static WITHOUT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether filters of this thread say "maybe" to everything: no answer depends on them.
#[cfg(test)]
pub(crate) fn without_filters(without: bool) {
    WITHOUT.set(without);
}

struct Link {
    bloom: AtomicBloomFilter,
    capacity: u64,
    taken: AtomicU64,
}

impl Link {
    fn new(shape: Shape, capacity: u64) -> Arc<Link> {
        let (bits, hashes) = shape.size(capacity);
        let bloom = AtomicBloomFilter::with_num_bits(bits).hashes(hashes);
        Arc::new(Link {
            bloom,
            capacity,
            taken: AtomicU64::new(0),
        })
    }
}

/// A filter of a table while nobody reads it yet: bits are set without atomic steps, which take longer than all else
/// that the scan at start does for a key.
pub(super) struct Unshared {
    bloom: BloomFilter,
    capacity: u64,
    taken: u64,
}

impl Unshared {
    /// An empty filter of a table for about that many keys.
    pub(super) fn with_capacity(keys: u64) -> Unshared {
        let capacity = keys.max(LEAST);
        let (bits, hashes) = Shape::Table.size(capacity);
        Unshared {
            bloom: BloomFilter::with_num_bits(bits).hashes(hashes),
            capacity,
            taken: 0,
        }
    }

    /// From here on the hash is contained.
    pub(super) fn insert(&mut self, hash: u64) {
        self.taken += u64::from(!self.bloom.insert_hash(hash));
    }

    /// The filter as readers share it.
    pub(super) fn share(self) -> Filter {
        let (_, hashes) = Shape::Table.size(0);
        let bits = self.bloom.as_slice().to_vec();
        Filter {
            shape: Shape::Table,
            links: vec![Arc::new(Link {
                bloom: AtomicBloomFilter::from_vec(bits).hashes(hashes),
                capacity: self.capacity,
                taken: AtomicU64::new(self.taken),
            })],
        }
    }
}

/// A filter: a chain of links, each made for twice the keys of the last. A clone shares the
/// links, so that readers see what the writer inserts at once. It forgets nothing.
#[derive(Clone)]
pub(super) struct Filter {
    shape: Shape,
    links: Vec<Arc<Link>>,
}

impl Filter {
    /// An empty filter of a table for about that many keys.
    pub(super) fn with_capacity(keys: u64) -> Filter {
        Filter::new(Shape::Table, keys)
    }

    /// An empty filter for about that many keys.
    pub(super) fn new(shape: Shape, keys: u64) -> Filter {
        Filter {
            shape,
            links: vec![Link::new(shape, keys.max(LEAST))],
        }
    }

    /// `false` is certain, `true` is "maybe".
    pub(super) fn contains(&self, hash: u64) -> bool {
        #[cfg(test)]
        if WITHOUT.get() {
            return true;
        }
        self.links.iter().any(|link| link.bloom.contains_hash(hash))
    }

    /// From here on the hash is contained.
    pub(super) fn insert(&mut self, hash: u64) {
        let older = self.links.split_last().map_or(&[][..], |(_, older)| older);
        if older.iter().any(|link| link.bloom.contains_hash(hash)) {
            return;
        }
        if self.room() == 0 {
            if self.contains(hash) {
                return;
            }
            let last = self.links.last().map_or(LEAST, |link| link.capacity);
            self.links
                .push(Link::new(self.shape, last.saturating_mul(2)));
        }
        if let Some(link) = self.links.last()
            && !link.bloom.insert_hash(hash)
        {
            link.taken.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many more keys the last link takes.
    fn room(&self) -> u64 {
        self.links.last().map_or(0, |link| {
            link.capacity
                .saturating_sub(link.taken.load(Ordering::Relaxed))
        })
    }

    /// Keys taken since it was made, those that left the table since included.
    pub(super) fn taken(&self) -> u64 {
        self.links
            .iter()
            .map(|link| link.taken.load(Ordering::Relaxed))
            .sum()
    }

    /// Whether it should be made anew before it takes `more` keys, for a table that has `rows`: because it
    /// remembers more keys that left than there are, or because the chain gets long.
    pub(super) fn is_worn(&self, rows: u64, more: u64) -> bool {
        let next = self
            .links
            .last()
            .map_or(0, |link| link.capacity.saturating_mul(2));
        more > self.room()
            && (self.links.len() >= MOST_LINKS
                || self.taken() > rows.saturating_mul(2)
                || more > self.room().saturating_add(next))
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        self.links
            .iter()
            .map(|link| link.bloom.num_bits() as u64 / 8)
            .sum()
    }
}

/// How well the filters do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterStats {
    /// Look-ups in a table because its filter said "maybe".
    pub positives: u64,
    /// Those of them that found nothing.
    pub false_positives: u64,
    /// Memory of all filters.
    pub bytes: u64,
}

/// Counts what filters answered, over all tables.
#[derive(Default)]
pub(super) struct FilterCounters {
    positives: AtomicU64,
    false_positives: AtomicU64,
}

impl FilterCounters {
    pub(super) fn count(&self, found: bool) {
        self.positives.fetch_add(1, Ordering::Relaxed);
        if !found {
            self.false_positives.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn stats(&self, bytes: u64) -> FilterStats {
        FilterStats {
            positives: self.positives.load(Ordering::Relaxed),
            false_positives: self.false_positives.load(Ordering::Relaxed),
            bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(hasher: &KeyHasher, from: u64, count: u64) -> impl Iterator<Item = u64> {
        (from..from + count).map(move |n| hasher.hash(format!("ns\0key-{n}").as_bytes()))
    }

    #[test]
    fn the_hash_of_a_key_is_fixed_for_ever() {
        let hasher = KeyHasher::new(b"0123456789abcdef");
        assert_eq!(hasher.hash(b"orders\0evt_1"), 9_540_945_467_746_538_504);
    }

    #[test]
    fn a_filter_never_forgets_and_is_seldom_wrong() {
        let hasher = KeyHasher::new(&[7; 16]);
        let mut filter = Filter::with_capacity(0);
        let reader = filter.clone();
        for hash in hashes(&hasher, 0, 12_000) {
            filter.insert(hash);
        }
        assert_eq!(filter.links.len(), 2, "4096 + 8192 keys fill two links");
        assert!(hashes(&hasher, 0, 12_000).all(|hash| filter.contains(hash)));
        assert!(
            hashes(&hasher, 0, 4000).all(|hash| reader.contains(hash)),
            "a clone shares links"
        );
        let wrong = hashes(&hasher, 1_000_000, 100_000)
            .filter(|hash| filter.contains(*hash))
            .count();
        assert!(wrong < 150, "{wrong} of 100000 absent keys held possible");
    }

    #[test]
    fn a_filter_is_worn_when_it_is_full_and_remembers_too_much() {
        let hasher = KeyHasher::new(&[7; 16]);
        let mut filter = Filter::with_capacity(0);
        for hash in hashes(&hasher, 0, 4090) {
            filter.insert(hash);
        }
        let taken = filter.taken();
        assert!(!filter.is_worn(0, 4096 - taken), "there is room");
        assert!(
            !filter.is_worn(taken, 4096),
            "it remembers what is there: a second link will do"
        );
        assert!(
            filter.is_worn(taken / 2 - 1, 4096),
            "most of what it remembers is gone"
        );
        for hash in hashes(&hasher, 4090, 8190) {
            filter.insert(hash);
        }
        assert!(filter.is_worn(12_280, 4096), "a third link would be needed");
    }
}
