//! `onced selftest`: what onced promises, tried on this machine, in under a minute.
//!
//! * [`disk`]: whether a sync is one.
//! * [`served`]: a server of its own, asked by many at once, killed, and on a full disk.
//! * [`reach`]: the server that runs here, and the clock.

mod disk;
mod reach;
mod served;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::client::Server;
use super::own::Folder;
use super::progress::Progress;
use super::{Exit, Failure, show};

/// Try on this machine what onced promises: syncs, one winner, kill -9, a full disk, the clock, the ports
#[derive(Args, Debug)]
pub(super) struct Selftest {
    /// A folder on the file system to try, such as that of the data directory [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    server: Server,
}

/// What came of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Held,
    /// It held, and there is something to know.
    Warning,
    /// It could not be tried.
    Skipped,
    Failed,
}

impl Came {
    const fn name(self) -> &'static str {
        match self {
            Came::Held => "held",
            Came::Warning => "warning",
            Came::Skipped => "skipped",
            Came::Failed => "failed",
        }
    }
}

/// A trial and what it showed.
#[derive(Debug)]
struct Trial {
    name: &'static str,
    came: Came,
    /// One sentence.
    text: String,
    /// What was measured.
    figures: Value,
}

impl Trial {
    fn of(name: &'static str, came: Came, text: impl Into<String>) -> Trial {
        Trial {
            name,
            came,
            text: text.into(),
            figures: Value::Null,
        }
    }
}

/// What could not be done at all has failed.
fn tried(name: &'static str, trial: Result<Trial, Failure>) -> Trial {
    trial.unwrap_or_else(|failure| Trial::of(name, Came::Failed, failure.to_string()))
}

impl Selftest {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let inside = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = Folder::create(&inside, "onced-selftest")?;
        let path = folder.path();
        let mut trials = Vec::new();
        let mut done = |trial: Trial| -> Result<(), Failure> {
            if !self.server.json {
                let line = format!("{:<8} {}: {}\n", trial.came.name(), trial.name, trial.text);
                show::print(line.as_bytes())?;
            }
            trials.push(trial);
            Ok(())
        };
        type Try<'a> = (&'static str, &'a dyn Fn() -> Result<Trial, Failure>);
        let all: [Try<'_>; 5] = [
            ("sync", &|| disk::sync(path)),
            ("one winner", &|| served::one_winner(path)),
            ("kill -9", &|| served::kill(path)),
            ("full disk", &|| served::full(path)),
            ("clock", &|| Ok(reach::clock())),
        ];
        for (name, work) in all {
            let progress = Progress::of(name, None);
            let trial = tried(name, work());
            drop(progress);
            done(trial)?;
        }
        for trial in reach::server(&self.server) {
            done(trial)?;
        }
        let failed = trials.iter().filter(|it| it.came == Came::Failed).count();
        let text = if self.server.json {
            let each = |it: &Trial| {
                json!({
                    "name": it.name, "result": it.came.name(), "text": it.text, "figures": it.figures,
                })
            };
            let trials: Vec<Value> = trials.iter().map(each).collect();
            format!("{}\n", json!({"held": failed == 0, "trials": trials}))
        } else if failed == 0 {
            "what was tried holds on this machine\n".to_owned()
        } else {
            format!(
                "{failed} of {} did not hold on this machine\n",
                trials.len()
            )
        };
        show::print(text.as_bytes())?;
        Ok(if failed == 0 {
            Exit::Success
        } else {
            Exit::Failure
        })
    }
}
