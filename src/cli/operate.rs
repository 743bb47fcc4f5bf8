//! What operators do: `replay`, `forget`.

use std::time::Duration;

use clap::Args;

use super::client::{Request, Server};
use super::holder::Key;
use super::{Exit, Failure, show};

/// Another round, in a new generation
#[derive(Args, Debug)]
pub(super) struct Replay {
    #[command(flatten)]
    key: Key,

    /// The generation that was seen: the record is left alone if there is another by now
    #[arg(long, value_name = "N")]
    generation: u32,

    /// Also a record that is done
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    server: Server,
}

impl Replay {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let mut query = vec![("generation", self.generation.to_string().into_bytes())];
        query.extend(self.force.then(|| ("force", b"true".to_vec())));
        let request = Request {
            method: "POST",
            path: self.key.path("/replay")?,
            query,
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        };
        show::answer(&self.server, &request)
    }
}

/// Remove the record
#[derive(Args, Debug)]
pub(super) struct Forget {
    #[command(flatten)]
    key: Key,

    /// Also while a lease runs
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    server: Server,
}

impl Forget {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let request = Request {
            method: "DELETE",
            path: self.key.path("")?,
            query: self
                .force
                .then(|| ("force", b"true".to_vec()))
                .into_iter()
                .collect(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        };
        show::answer(&self.server, &request)
    }
}
