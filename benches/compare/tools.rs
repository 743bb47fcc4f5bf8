//! Other people's load generators.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::load::{self, Face, Load};
use crate::peer::{self, Cluster, Server};
use crate::{Outcome, Plan};

/// Keys are drawn from so many: nearly all are new.
const KEYS: u64 = 2_000_000_000;

/// `SET key pending NX EX 86400` by redis-benchmark, or by our own load where there is none; claims per second.
pub fn redis(server: &Server, clients: usize, pipeline: u64, requests: u64) -> Outcome<f64> {
    let Some(program) = peer::find("redis-benchmark") else {
        let load = Load {
            address: server.address,
            face: Face::Resp { seconds: 86_400 },
            clients,
            pipeline,
            // Another stretch of keys for each load.
            first: (clients as u64 * 100 + pipeline) << 32,
            keys: requests,
            time: load::NO_END,
        };
        return Ok(load::run(load, &Arc::default())?.rate());
    };
    // It seeds its chance by time and process id, and two runs may draw the same keys: each load has its own.
    let key = format!("k{:02}:__rand_int__", (clients as u64 + pipeline) % 100);
    let before = load::ask(server.address, "DBSIZE")?;
    let mut command = Command::new(program);
    command
        .args(["-h", "127.0.0.1", "-p", &server.address.port().to_string()])
        .args(["-c", &clients.to_string(), "-P", &pipeline.to_string()])
        .args([
            "-n",
            &requests.to_string(),
            "-r",
            &KEYS.to_string(),
            "--csv",
        ])
        .args(["SET", &key, "pending", "NX", "EX", "86400"]);
    let text = output(&mut command)?;
    // A load that was answered with errors is fast too.
    let stored = load::ask(server.address, "DBSIZE")?.saturating_sub(before);
    if stored < requests / 100 * 95 {
        return Err(format!("of {requests} keys only {stored} were stored").into());
    }
    let line = text.lines().rfind(|line| line.starts_with("\"SET"));
    let rate = line.and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
    rate.ok_or_else(|| format!("no rate in {text:?}").into())
}

/// The table that claims go to, empty.
pub const TABLE: &str = "DROP TABLE IF EXISTS claims; \
    CREATE TABLE claims (key text PRIMARY KEY, value text NOT NULL, expires_at timestamptz NOT NULL)";

/// A prepared `INSERT .. ON CONFLICT DO NOTHING` by pgbench; claims per second.
pub fn postgres(
    plan: &Plan,
    cluster: &Cluster,
    server: &Server,
    clients: usize,
    time: Duration,
) -> Outcome<f64> {
    let script = plan.folder.join("claim.sql");
    let text = format!(
        "\\set key random(0, {})\n\
         INSERT INTO claims VALUES ('key:' || lpad(:key::text, 12, '0'), 'pending', \
         now() + interval '1 day') ON CONFLICT DO NOTHING;\n",
        KEYS - 1
    );
    std::fs::write(&script, text)?;
    let mut command = Command::new(cluster.pgbench());
    command
        .args(["-h", "127.0.0.1", "-p", &server.address.port().to_string()])
        .args(["-U", "postgres", "-n", "-M", "prepared", "-j", "1"])
        .args([
            "-c",
            &clients.to_string(),
            "-T",
            &time.as_secs().max(1).to_string(),
        ])
        .arg("-f")
        .arg(&script)
        .arg("postgres");
    let text = output(&mut command)?;
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = rate.and_then(|rate| rate.split(' ').next()?.parse().ok());
    rate.ok_or_else(|| format!("no rate in {text:?}").into())
}

fn output(command: &mut Command) -> Outcome<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}: {said}", output.status).into())
}
