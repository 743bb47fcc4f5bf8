//! SPEC 2 to 4 kept on paper: the plainest bookkeeping that answers as SPEC says, to hold the decision against.
//!
//! It shares no code and no trick with it: no record, no history, no noted lease ends. Times are milliseconds
//! since the start. A default backoff is 15, which is all a reader of SPEC 5 can say of it with its jitter.

pub(super) const LEASE: u64 = 10;
pub(super) const RETENTION: u64 = 1000;
pub(super) const BACKOFF: u64 = 15;

/// What is asked; `token` where it is a holder's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    Claim {
        id: char,
        print: Option<u8>,
        once: bool,
    },
    Renew {
        token: u64,
    },
    Effect {
        token: u64,
    },
    Complete {
        token: u64,
        result: u8,
    },
    Fail {
        token: u64,
        bury: bool,
    },
    Release {
        token: u64,
    },
    CompleteByHand {
        result: u8,
    },
    /// The next attempt is due at once, unless there is none.
    FailByHand {
        bury: bool,
    },
    Get,
    Replay {
        generation: Option<u32>,
        force: bool,
    },
    Forget {
        force: bool,
    },
}

/// The result of every claim in mode `once`.
pub(super) const ONCE: u8 = 1;

/// Policy, clock and record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Paper {
    pub(super) hold: bool,
    pub(super) max_attempts: u32,
    pub(super) now: u64,
    pub(super) next_token: u64,
    pub(super) entry: Option<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) phase: Phase,
    pub(super) token: u64,
    pub(super) attempt: u32,
    pub(super) generation: u32,
    pub(super) id: char,
    pub(super) print: Option<u8>,
    pub(super) lease_end: u64,
    pub(super) effect: bool,
    once: bool,
    /// The holder itself failed, and there was no grant and no replay since.
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Granted, and its holder has not ended it.
    Granted,
    Waiting {
        due: u64,
    },
    Finished {
        result: u8,
        expires: u64,
    },
    Dead,
}

/// How the entry shows (SPEC 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Leased,
    Orphaned,
    InDoubt,
    Dead,
    Retry,
    Done,
}

impl Paper {
    /// The entry and how it shows now; `None` where it counts as absent.
    pub(super) fn shows(&self) -> Option<(&Entry, Shows)> {
        let entry = self.entry.as_ref()?;
        let shows = match entry.phase {
            Phase::Finished { expires, .. } if expires <= self.now => return None,
            Phase::Finished { .. } => Shows::Done,
            Phase::Waiting { .. } => Shows::Retry,
            Phase::Dead => Shows::Dead,
            Phase::Granted if self.now < entry.lease_end => Shows::Leased,
            Phase::Granted if entry.effect || self.hold => Shows::InDoubt,
            Phase::Granted if self.used_up(entry) => Shows::Dead,
            Phase::Granted => Shows::Orphaned,
        };
        Some((entry, shows))
    }

    fn used_up(&self, entry: &Entry) -> bool {
        self.max_attempts != 0 && entry.attempt >= self.max_attempts
    }

    /// The answer's outcome (with the reason, where it has one); what it changes is written down.
    pub(super) fn answer(&mut self, ask: Ask) -> &'static str {
        let Some((entry, shows)) = self.shows().map(|(entry, shows)| (entry.clone(), shows)) else {
            self.entry = None;
            return match ask {
                Ask::Claim { id, print, once } => {
                    self.grant(None, id, print, once);
                    "acquired new"
                }
                Ask::CompleteByHand { .. } | Ask::FailByHand { .. } => "not_found",
                Ask::Get | Ask::Replay { .. } | Ask::Forget { .. } => "not_found",
                _ => "stale",
            };
        };
        match ask {
            Ask::Claim { id, print, once } => self.claim(entry, shows, id, print, once),
            Ask::Renew { token } | Ask::Effect { token } | Ask::Release { token }
                if !entry.held_by(token) =>
            {
                "stale"
            }
            Ask::Renew { .. } => {
                let lease_end = self.now + LEASE;
                self.write(Entry { lease_end, ..entry }, "renewed")
            }
            Ask::Effect { .. } => self.write(
                Entry {
                    effect: true,
                    ..entry
                },
                "announced",
            ),
            Ask::Release { .. } if entry.effect => "conflict",
            Ask::Release { .. } if entry.attempt == 1 && entry.generation == 1 => {
                self.entry = None;
                "released"
            }
            Ask::Release { .. } => {
                let (phase, attempt) = (Phase::Waiting { due: self.now }, entry.attempt - 1);
                self.write(
                    Entry {
                        phase,
                        attempt,
                        ..entry
                    },
                    "released",
                )
            }
            Ask::Complete { token, result } if entry.held_by(token) => self.finish(entry, result),
            Ask::Complete { token, result } if entry.token == token && shows == Shows::Done => {
                entry.repeated(result)
            }
            Ask::Complete { .. } => "stale",
            Ask::Fail { token, bury } if entry.held_by(token) => {
                let due = self.now + BACKOFF;
                self.put_aside(
                    Entry {
                        failed: true,
                        ..entry
                    },
                    bury,
                    due,
                )
            }
            Ask::Fail { token, .. }
                if entry.token == token && entry.failed && shows != Shows::Done =>
            {
                "failed"
            }
            Ask::Fail { .. } => "stale",
            Ask::CompleteByHand { .. } | Ask::FailByHand { .. } if shows == Shows::Leased => "busy",
            Ask::CompleteByHand { .. } | Ask::FailByHand { .. } if shows == Shows::Orphaned => {
                "conflict"
            }
            Ask::CompleteByHand { result } if shows == Shows::Done => entry.repeated(result),
            Ask::CompleteByHand { result } => self.finish(entry, result),
            Ask::FailByHand { .. } if shows == Shows::Done => "conflict",
            Ask::FailByHand { bury } => self.put_aside(entry, bury, self.now),
            Ask::Get => "ok",
            Ask::Replay { generation, force } => self.replay(entry, shows, generation, force),
            Ask::Forget { force } if shows == Shows::Leased && !force => "busy",
            Ask::Forget { .. } => {
                self.entry = None;
                "forgotten"
            }
        }
    }

    fn claim(
        &mut self,
        entry: Entry,
        shows: Shows,
        id: char,
        print: Option<u8>,
        once: bool,
    ) -> &'static str {
        if entry.print.is_some() && print.is_some() && entry.print != print {
            return "mismatch";
        }
        match shows {
            Shows::Leased if entry.id == id && !entry.effect => {
                let lease_end = entry.lease_end.max(self.now + LEASE);
                self.write(Entry { lease_end, ..entry }, "acquired resumed")
            }
            Shows::Leased => "busy",
            Shows::Done if entry.once && entry.id == id => "acquired resumed",
            Shows::Done => "done",
            Shows::InDoubt => "in_doubt",
            Shows::Dead => "dead",
            Shows::Orphaned => {
                self.grant(Some(entry), id, print, once);
                "acquired takeover"
            }
            Shows::Retry if matches!(entry.phase, Phase::Waiting { due } if self.now < due) => {
                "backoff"
            }
            Shows::Retry if self.used_up(&entry) => "dead",
            Shows::Retry => {
                let first = entry.attempt == 0 && entry.generation > 1;
                self.grant(Some(entry), id, print, once);
                if first {
                    "acquired replay"
                } else {
                    "acquired retry"
                }
            }
        }
    }

    fn grant(&mut self, entry: Option<Entry>, id: char, print: Option<u8>, once: bool) {
        let expires = self.now + RETENTION;
        let phase = if once {
            Phase::Finished {
                result: ONCE,
                expires,
            }
        } else {
            Phase::Granted
        };
        self.entry = Some(Entry {
            phase,
            token: self.next_token,
            attempt: entry.as_ref().map_or(0, |entry| entry.attempt) + 1,
            generation: entry.as_ref().map_or(1, |entry| entry.generation),
            id,
            print: entry.and_then(|entry| entry.print).or(print),
            lease_end: self.now + LEASE,
            effect: false,
            once,
            failed: false,
        });
        self.next_token += 1;
    }

    fn finish(&mut self, entry: Entry, result: u8) -> &'static str {
        let phase = Phase::Finished {
            result,
            expires: self.now + RETENTION,
        };
        self.write(Entry { phase, ..entry }, "completed")
    }

    fn put_aside(&mut self, entry: Entry, bury: bool, due: u64) -> &'static str {
        let dead = bury || self.used_up(&entry);
        let phase = if dead {
            Phase::Dead
        } else {
            Phase::Waiting { due }
        };
        self.write(Entry { phase, ..entry }, "failed")
    }

    fn replay(
        &mut self,
        entry: Entry,
        shows: Shows,
        generation: Option<u32>,
        force: bool,
    ) -> &'static str {
        let own = entry.generation;
        let unclaimed = shows == Shows::Retry && entry.attempt == 0 && own > 1;
        match generation {
            None if unclaimed => "replayed",
            Some(asked) if unclaimed && (asked == own || asked + 1 == own) => "replayed",
            Some(asked) if asked != own => "conflict",
            _ if shows == Shows::Leased => "busy",
            _ if shows == Shows::Done && !force => "done",
            _ => {
                let phase = Phase::Waiting { due: self.now };
                let fresh = Entry {
                    phase,
                    attempt: 0,
                    generation: own + 1,
                    effect: false,
                    once: false,
                    failed: false,
                    ..entry
                };
                self.write(fresh, "replayed")
            }
        }
    }

    fn write(&mut self, entry: Entry, answer: &'static str) -> &'static str {
        self.entry = Some(entry);
        answer
    }
}

impl Entry {
    /// The token has not ended (SPEC 4); the end of the lease does not end it.
    pub(super) fn held_by(&self, token: u64) -> bool {
        self.token == token && self.phase == Phase::Granted
    }

    fn repeated(&self, asked: u8) -> &'static str {
        match self.phase {
            Phase::Finished { result, .. } if result == asked => "completed",
            _ => "conflict",
        }
    }
}
