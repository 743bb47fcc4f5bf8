//! What the workers saw, written down outside the server: the judge.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// One grant, as its worker knows it.
#[derive(Debug)]
struct Grant {
    token: u64,
    claim_id: String,
    /// From when on it surely held the key: the answer was there.
    from: Instant,
    /// Until when it surely did: the complete was sent, or the lease, counted from before the claim was
    /// sent, was over.
    until: Instant,
}

/// Everything that was acknowledged.
#[derive(Debug, Default)]
pub struct Ledger {
    grants: BTreeMap<String, Vec<Grant>>,
    work: HashSet<(String, u64)>,
    completed: HashSet<String>,
    pub duplicates: usize,
    pub deaths: usize,
    pub repeats: usize,
}

impl Ledger {
    pub fn granted(
        &mut self,
        key: &str,
        token: u64,
        claim_id: &str,
        sent: Instant,
        lease: Duration,
    ) {
        let grant = Grant {
            token,
            claim_id: claim_id.to_owned(),
            from: Instant::now(),
            until: sent + lease,
        };
        self.grants.entry(key.to_owned()).or_default().push(grant);
    }

    /// The side effect happened under this token.
    pub fn work(&mut self, key: &str, token: u64) {
        self.work.insert((key.to_owned(), token));
    }

    /// The complete is about to be sent: from here on the key may be done.
    pub fn completing(&mut self, key: &str, token: u64) {
        let grants = self.grants.get_mut(key).into_iter().flatten();
        for grant in grants.filter(|grant| grant.token == token) {
            grant.until = grant.until.min(Instant::now());
        }
    }

    pub fn completed(&mut self, key: &str) {
        self.completed.insert(key.to_owned());
    }

    pub fn completed_count(&self) -> usize {
        self.completed.len()
    }

    pub fn worked(&self, key: &str, token: u64) -> bool {
        self.work.contains(&(key.to_owned(), token))
    }

    pub fn grants(&self) -> usize {
        self.grants.values().map(Vec::len).sum()
    }

    /// Every token was granted to one claim id only, and tokens of a key grow.
    pub fn check_tokens(&self) {
        let mut owners: HashMap<u64, (&str, &str)> = HashMap::new();
        for (key, grants) in &self.grants {
            for grant in grants {
                let owner = (key.as_str(), grant.claim_id.as_str());
                let first = owners.insert(grant.token, owner);
                assert!(
                    first.is_none_or(|first| first == owner),
                    "token {} was granted to {first:?} and to {owner:?}",
                    grant.token
                );
            }
        }
    }

    /// Two current holders never existed at one time.
    pub fn check_holders(&self) {
        for (key, grants) in &self.grants {
            for (at, one) in grants.iter().enumerate() {
                for two in &grants[at + 1..] {
                    let overlap = one.from < two.until && two.from < one.until;
                    assert!(
                        one.token == two.token || !overlap,
                        "{key}: two holders at one time: {one:?} and {two:?}"
                    );
                }
            }
        }
    }
}
