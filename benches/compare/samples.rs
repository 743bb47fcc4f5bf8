//! Latencies and medians.

use std::time::Duration;

/// Latencies, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u32>);

impl Latencies {
    pub fn add(&mut self, latency: Duration) {
        self.0
            .push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
    }

    pub fn extend(&mut self, other: Latencies) {
        self.0.extend(other.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// In milliseconds: what so many of a thousand are not above. 0 where there are none.
    pub fn per_mille(&self, rank: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * rank / 1000).min(sorted.len().saturating_sub(1));
        sorted
            .get(at)
            .map_or(0.0, |micros| f64::from(*micros) / 1000.0)
    }

    pub fn worst(&self) -> f64 {
        self.per_mille(1000)
    }
}

/// The middle one, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Lowest and highest.
pub fn range(values: &[f64]) -> (f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    (low, high)
}

/// Keys that follow each other for us, and lie anywhere for a tree: twelve digits, as redis-benchmark's.
pub fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % 1_000_000_000_000
}
