//! How the process ends: one table of exit codes, and the message that goes with a failure.
//!
//! Codes 1 to 5 and 75 to 77 are the answers of SPEC 8. Those from 10 on name what kept `onced serve` from
//! starting or running, so that a service manager knows which ones another try may cure:
//!
//! | code | what | another try |
//! |---|---|---|
//! | 0 | done, acquired, or stopped as asked | |
//! | 1 | any other failure; `not_found`, `conflict` | |
//! | 2 | wrong usage of the command line | never helps |
//! | 3 | duplicate: the answer is `done` | |
//! | 4 | `stale` | |
//! | 5 | `mismatch` | |
//! | 10 | the configuration is wrong | never helps |
//! | 11 | another process holds the data directory | helps once that one is gone |
//! | 12 | the data directory cannot be used: permissions, not a directory | never helps |
//! | 13 | the store is damaged | never helps |
//! | 14 | an address cannot be listened on | helps once it is free |
//! | 15 | the storage failed, at the start or while running | recovers from what the disk has |
//! | 75 | `busy`, `backoff`, or the server cannot be reached or cannot answer now | helps |
//! | 76 | `in_doubt` | |
//! | 77 | `dead` | |

use std::fmt;
use std::process::ExitCode;

/// An exit code of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, acquired, or stopped as asked.
    Success = 0,
    /// A failure that has no code of its own.
    Failure = 1,
    /// Wrong usage of the command line.
    Usage = 2,
    /// The answer is `done`.
    Duplicate = 3,
    /// The answer is `stale`.
    Stale = 4,
    /// The answer is `mismatch`.
    Mismatch = 5,
    /// The configuration is wrong.
    Configuration = 10,
    /// Another process holds the data directory.
    DirectoryInUse = 11,
    /// The data directory cannot be used.
    DirectoryUnusable = 12,
    /// The store is damaged.
    Damaged = 13,
    /// An address cannot be listened on.
    Address = 14,
    /// The storage failed.
    Storage = 15,
    /// The answer is `busy` or `backoff`, or there is none now.
    Unavailable = 75,
    /// The answer is `in_doubt`.
    InDoubt = 76,
    /// The answer is `dead`.
    Dead = 77,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why the process cannot go on: what was attempted, why it failed, and what to do.
#[derive(Debug)]
pub struct Failure {
    /// The code the process ends with.
    pub exit: Exit,
    text: String,
}

impl Failure {
    /// A failure: "`attempt`: `cause`; `next`" is what people read.
    pub fn new(
        exit: Exit,
        attempt: impl fmt::Display,
        cause: impl fmt::Display,
        next: impl fmt::Display,
    ) -> Failure {
        Failure::told(exit, format_args!("{attempt}: {cause}; {next}"))
    }

    /// A failure whose text says all of that already.
    pub fn told(exit: Exit, text: impl fmt::Display) -> Failure {
        Failure {
            exit,
            text: text.to_string(),
        }
    }
}

/// One line, whatever the causes hold: a service's log shows it whole.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = self
            .text
            .split(char::is_control)
            .filter(|part| !part.is_empty());
        if let Some(first) = parts.next() {
            f.write_str(first)?;
        }
        for part in parts {
            write!(f, " {part}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_cause_and_next_step() {
        let failure = Failure::new(Exit::Address, "cannot listen", "in\nuse", "stop it\r\n");
        assert_eq!(failure.to_string(), "cannot listen: in use; stop it");
    }
}
