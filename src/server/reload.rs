//! What a reload (SIGHUP, `systemctl reload`) changes: credentials, policies and which log lines are written. All
//! else stays as the process began, and the log says so. What cannot be read or understood changes nothing.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::log::Log;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::Failure;
use crate::http;
use crate::resp;

/// How long reading the file may take.
const READ_TIME: Duration = Duration::from_secs(5);

/// Reads flags, environment and file again.
pub type Source = Arc<dyn Fn() -> Result<Config, Failure> + Send + Sync>;

/// Those whom a reload tells.
pub(super) struct Reload {
    pub(super) source: Source,
    pub(super) engine: Engine,
    pub(super) http: Arc<http::Face>,
    pub(super) redis: Arc<resp::Face>,
    pub(super) log: Log,
}

impl Reload {
    /// Puts in force what can be changed; `config` is what was in force before, and is from here on.
    pub(super) async fn run(&self, config: &mut Config) {
        let source = Arc::clone(&self.source);
        // The file may be on a disk that does not answer: nobody else waits for it, and an end is not held up.
        let read = tokio::task::spawn_blocking(move || source());
        let read = tokio::time::timeout(READ_TIME, read).await;
        let refused: &dyn std::fmt::Display = match &read {
            Ok(Ok(Ok(new))) => {
                self.put_in_force(new, config);
                return;
            }
            Ok(Ok(Err(failure))) => failure,
            Ok(Err(error)) => error,
            Err(_) => &"the configuration file was not read in time; look at its disk",
        };
        tracing::error!("nothing was reloaded, and what was in force stays: {refused}");
    }

    fn put_in_force(&self, new: &Config, config: &mut Config) {
        let access = Arc::new(new.access.clone());
        self.http.set_access(Arc::clone(&access));
        self.redis.set_access(access);
        self.engine.configure(new.policies.clone());
        self.log.set_level(new.log.0);
        let mut changed = Vec::new();
        changed.extend((new.access != config.access).then_some("tokens"));
        changed.extend((new.policies != config.policies).then_some("policies"));
        changed.extend((new.log != config.log).then_some("log"));
        match changed.is_empty() {
            true => tracing::info!("reloaded; nothing changed"),
            false => tracing::info!("reloaded; changed: {}", changed.join(", ")),
        }
        for name in fixed(config, new) {
            tracing::warn!("{name} changes at the next start: restart for it");
        }
        config.access = new.access.clone();
        config.policies = new.policies.clone();
        config.log = new.log;
    }
}

/// The settings that differ and that a reload leaves as they are.
fn fixed(now: &Config, new: &Config) -> Vec<&'static str> {
    type Of = fn(&Config) -> String;
    let differs: [(&str, Of); 10] = [
        ("data_dir", |it| text(&it.data_dir)),
        ("trust_network", |it| text(&it.trust_network)),
        ("threads", |it| text(&it.threads)),
        ("[http] listen", |it| text(&it.http)),
        ("[http] unix", |it| text(&it.unix)),
        ("[http] hosts", |it| text(&it.hosts)),
        ("[redis] listen", |it| text(&it.redis)),
        ("[redis] nx_without_expiry", |it| {
            text(&it.nx_without_expiry)
        }),
        ("[redis] allow_flush", |it| text(&it.allow_flush)),
        ("[limits]", |it| text(&it.limits)),
    ];
    let differs = differs.into_iter().filter(|(_, of)| of(now) != of(new));
    differs.map(|(name, _)| name).collect()
}

fn text(value: &dyn Debug) -> String {
    format!("{value:?}")
}
