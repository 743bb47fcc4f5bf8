//! Counts completes that came with an ended token: possible double executions (SPEC 4).

use std::collections::{HashSet, VecDeque};

use crate::model::record::Token;

/// How many of the last counted tokens are told apart.
const REMEMBERED: usize = 4096;

/// The counter. Each token counts once, as far as it is remembered.
#[derive(Debug, Default)]
pub(super) struct Late {
    count: u64,
    known: HashSet<Token>,
    order: VecDeque<Token>,
}

impl Late {
    /// Counts a token, if it was not counted yet. Whether it was new.
    pub(super) fn add(&mut self, token: Token) -> bool {
        if !self.known.insert(token) {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.order.push_back(token);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }

    /// How many there were since the start.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_counts_once() {
        let mut late = Late::default();
        for number in [1, 2, 1, 1, 3, 2] {
            late.add(Token::new(number).unwrap());
        }
        assert_eq!(late.count(), 3);
    }
}
