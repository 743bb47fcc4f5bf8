//! What it all ran on, and how much of it others used meanwhile.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::{Outcome, Plan};

/// Says what the figures belong to.
pub fn describe(plan: &Plan) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processor = fact("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = fact("/proc/meminfo", "MemTotal").unwrap_or_else(|| "unknown".to_owned());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("machine     {cores} cores, {processor}");
    println!("memory      {memory}");
    println!("kernel      {}", kernel.trim());
    println!("data        {}", mount(&plan.folder));
    println!("onced       {}", plan.onced.display());
    if plan.quick {
        println!("            --quick: small numbers, which show that it works and not how fast");
    }
    println!("noise       {}", noise(plan));
}

/// How fast the disk is and how busy the machine, at the moment.
pub fn noise(plan: &Plan) -> String {
    let time = Duration::from_millis(if plan.quick { 100 } else { 500 });
    let syncs = match syncs_per_second(&plan.folder, time) {
        Ok(rate) => format!("{rate:.0}/s"),
        Err(error) => format!("not measured: {error}"),
    };
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!("fdatasync of 4 KiB {syncs}, load {load}")
}

/// Writes of a page into an allocated file, each followed by a sync.
fn syncs_per_second(folder: &Path, time: Duration) -> Outcome<f64> {
    let path = folder.join("sync-rate");
    let file = File::create(&path)?;
    let page = [0x5a; 4096];
    let pages = 256;
    for at in 0..pages {
        file.write_all_at(&page, at * page.len() as u64)?;
    }
    file.sync_all()?;
    let begun = Instant::now();
    let mut syncs = 0;
    while begun.elapsed() < time {
        file.write_all_at(&page, syncs % pages * page.len() as u64)?;
        file.sync_data()?;
        syncs += 1;
    }
    let rate = syncs as f64 / begun.elapsed().as_secs_f64();
    fs::remove_file(&path)?;
    Ok(rate)
}

/// Lets a peer that runs as another user reach its folder below this one.
pub fn let_others_pass(folder: &Path) -> Outcome<()> {
    Ok(fs::set_permissions(folder, Permissions::from_mode(0o755))?)
}

/// A line of `/proc/PID/status` or `/proc/PID/io`, in its own unit.
pub fn of_process(pid: u32, file: &str, name: &str) -> Outcome<u64> {
    let path = format!("/proc/{pid}/{file}");
    let text = fact(&path, name).ok_or_else(|| format!("{path} has no {name}"))?;
    let number = text.split(' ').next().unwrap_or_default();
    Ok(number.parse()?)
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> Outcome<u64> {
    Ok(of_process(pid, "status", "VmRSS")? * 1024)
}

/// Blocks allocated to a file, or to all files below a folder, in bytes.
pub fn allocated(path: &Path) -> Outcome<u64> {
    let meta = fs::symlink_metadata(path)?;
    let mut bytes = meta.blocks() * 512;
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += allocated(&entry?.path())?;
        }
    }
    Ok(bytes)
}

fn fact(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let (_, value) = line.split_once(':')?;
    Some(value.trim().to_owned())
}

/// The folder, and the file system it is on.
fn mount(folder: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let place = |line: &str| {
        let mut words = line.split(' ');
        let (device, at, kind) = (words.next()?, words.next()?, words.next()?);
        let inside = folder.starts_with(at);
        inside.then(|| (at.len(), format!("{kind} on {device}")))
    };
    let system = mounts.lines().filter_map(place).max();
    let system = system.map_or_else(|| "unknown".to_owned(), |(_, system)| system);
    format!("{} ({system})", folder.display())
}
