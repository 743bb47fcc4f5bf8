//! Chance that can be repeated: a seed is printed, and `SEED=n` sets it.

/// A small generator (splitmix64), the same on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Seeded by `SEED`, else by the time; prints which.
    pub fn from_env() -> Random {
        let chosen = std::env::var("SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = chosen.unwrap_or_else(|| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(1, |since| since.as_nanos() as u64)
        });
        println!("SEED={seed}");
        Random(seed)
    }

    /// A generator of its own for part `number`.
    pub fn fork(&self, number: u64) -> Random {
        let mut random = Random(self.0 ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}
