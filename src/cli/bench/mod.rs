//! `onced bench`: what a server takes on this machine.
//!
//! * [`load`]: the load.

mod load;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use self::load::{Done, Face, Load, RETENTION_MS};
use super::client::{Request, Server};
use super::own::{Folder, Own};
use super::progress::Progress;
use super::{Exit, Failure, show};
use crate::engine::clock::Source;
use crate::model::key::check_namespace;

/// Clients and pipeline of each turn, as in `benches/compare`.
const TURNS: [(usize, u64); 3] = [(1, 1), (64, 1), (64, 16)];

/// Measure durable claims per second on this machine, with a server of its own or against one that runs
#[derive(Args, Debug)]
pub(super) struct Bench {
    /// A folder on the file system to measure [default: the folder for temporary files]
    #[arg(long, value_name = "DIR", conflicts_with = "running")]
    dir: Option<PathBuf>,

    /// Against the server of --url, in a namespace of its own
    #[arg(long)]
    running: bool,

    /// Its Redis face, HOST:PORT; without it, only HTTP is measured there
    #[arg(long, value_name = "ADDR", requires = "running")]
    redis: Option<String>,

    /// The namespace; one that has records is refused
    #[arg(long, value_name = "NS", default_value = "onced-bench")]
    ns: String,

    /// How long all of it takes
    #[arg(long, value_name = "SECONDS", default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,

    #[command(flatten)]
    server: Server,
}

impl Bench {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        check_namespace(&self.ns).map_err(|error| {
            let attempt = format!("cannot use the namespace {}", self.ns);
            Failure::new(Exit::Usage, attempt, error, "give another one")
        })?;
        if self.running {
            self.refuse_used()?;
            let http = self.server.tcp()?;
            let secret = self.server.secret()?;
            return self.measure(Some(http), self.redis.clone(), secret);
        }
        let inside = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = Folder::create(&inside, "onced-bench")?;
        let own = Own::start(&folder.path().join("data"))?;
        self.measure(Some(own.http.clone()), Some(own.redis.clone()), None)
    }

    /// Nobody's keys are met, and nobody's figures are spoilt.
    fn refuse_used(&self) -> Result<(), Failure> {
        let request = Request {
            method: "GET",
            path: format!("/v1/namespaces/{}", self.ns),
            query: Vec::new(),
            body: Vec::new(),
            content_type: None,
            wait: Duration::ZERO,
        };
        let answer = self.server.send(&request)?;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match body["records"].as_u64() {
            Some(0) => Ok(()),
            Some(records) => Err(Failure::new(
                Exit::Usage,
                format_args!("cannot measure in the namespace {}", self.ns),
                format_args!("it has {records} records"),
                "give one that nobody uses with --ns; those of another bench are gone within half a minute",
            )),
            None => Err(Failure::new(
                show::exit(&answer),
                format_args!("cannot look at the namespace {}", self.ns),
                String::from_utf8_lossy(&answer.body),
                "it needs the rights read and claim",
            )),
        }
    }

    fn measure(
        &self,
        http: Option<String>,
        redis: Option<String>,
        secret: Option<String>,
    ) -> Result<Exit, Failure> {
        let faces: Vec<(Face, String)> = [(Face::Resp, redis), (Face::Http, http)]
            .into_iter()
            .filter_map(|(face, address)| Some((face, address?)))
            .collect();
        let turns = u32::try_from(faces.len() * TURNS.len()).unwrap_or(1);
        let time = Duration::from_secs(self.seconds) / turns.max(1);
        let run = Source::system().wall_micros();
        let mut all = Vec::new();
        if !self.server.json {
            show::print(heading().as_bytes())?;
        }
        for (face, address) in faces {
            for (clients, pipeline) in TURNS {
                let progress = Progress::of("claiming", None);
                let done = load::run(Load {
                    address: address.clone(),
                    face,
                    clients,
                    pipeline,
                    time,
                    namespace: self.ns.clone(),
                    prefix: format!("{run:x}-{}", all.len()),
                    secret: secret.clone(),
                });
                drop(progress);
                let done = done.map_err(|why| {
                    let attempt = format!("cannot measure {} at {address}", name(face));
                    let next = "look at the server and its log";
                    Failure::new(Exit::Failure, attempt, why, next)
                })?;
                if !self.server.json {
                    show::print(row(face, clients, pipeline, &done).as_bytes())?;
                }
                all.push(figures(face, clients, pipeline, &done));
            }
        }
        if self.server.json {
            let text = json!({
                "namespace": self.ns, "retention_ms": RETENTION_MS, "seconds": self.seconds, "turns": all,
            });
            show::print(format!("{text}\n").as_bytes())?;
        }
        Ok(Exit::Success)
    }
}

const fn name(face: Face) -> &'static str {
    match face {
        Face::Resp => "redis",
        Face::Http => "http",
    }
}

fn heading() -> String {
    format!(
        "{:<6} {:>8} {:>9} {:>10} {:>9} {:>9} {:>9}\n",
        "face", "clients", "pipeline", "claims/s", "p50 ms", "p99 ms", "p99.9 ms"
    )
}

fn row(face: Face, clients: usize, pipeline: u64, done: &Done) -> String {
    let millis = |rank| f64::from(done.per_mille(rank)) / 1000.0;
    format!(
        "{:<6} {clients:>8} {pipeline:>9} {:>10.0} {:>9.2} {:>9.2} {:>9.2}\n",
        name(face),
        done.rate(),
        millis(500),
        millis(990),
        millis(999),
    )
}

fn figures(face: Face, clients: usize, pipeline: u64, done: &Done) -> Value {
    json!({
        "face": name(face), "clients": clients, "pipeline": pipeline, "claims": done.answered,
        "per_second": done.rate().round(), "p50_us": done.per_mille(500),
        "p99_us": done.per_mille(990), "p999_us": done.per_mille(999),
    })
}
