//! Whether a sync of this file system is one: all that is promised rests on it (SPEC 9).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::{Came, Trial};
use crate::cli::{Exit, Failure};
use crate::engine::clock::Timer;

const NAME: &str = "sync";
/// How long is measured.
const TIME: Duration = Duration::from_millis(1500);
/// What is written before each sync.
const BLOCK: usize = 4096;
/// The file is written over again and again within this.
const SPAN: u64 = 4 << 20;
/// No disk brings a block to stable storage sooner; a cache without a battery may say so.
const IMPLAUSIBLE: Duration = Duration::from_micros(15);

/// File systems by the numbers of statfs(2), as far as they say something.
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
const REMOTE: [i64; 4] = [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997];

/// Writes and syncs as the journal does, for a while.
pub(super) fn sync(folder: &Path) -> Result<Trial, Failure> {
    let failed = |error: io::Error| {
        let attempt = format!("cannot write and sync in {}", folder.display());
        Failure::new(
            Exit::Failure,
            attempt,
            error,
            "look at the disk and the kernel's log",
        )
    };
    let kind = rustix::fs::statfs(folder).map_err(|error| failed(error.into()))?;
    let path = folder.join("sync");
    let file = File::create_new(&path).map_err(failed)?;
    let block = vec![0x5a; BLOCK];
    for at in (0..SPAN).step_by(BLOCK) {
        file.write_all_at(&block, at).map_err(failed)?;
    }
    file.sync_all().map_err(failed)?;
    let (begun, mut took) = (Timer::start(), Vec::new());
    let mut at = 0;
    while begun.elapsed() < TIME {
        let one = Timer::start();
        file.write_all_at(&block, at).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        took.push(one.elapsed());
        at = (at + BLOCK as u64) % SPAN;
    }
    let _ = std::fs::remove_file(&path);
    took.sort_unstable();
    let rank = |per_mille: usize| {
        let at = (took.len() * per_mille / 1000).min(took.len().saturating_sub(1));
        took.get(at).copied().unwrap_or_default()
    };
    let (half, most) = (rank(500), rank(990));
    let rate = took.len() as f64 / TIME.as_secs_f64();
    let measured =
        format!("{rate:.0} a second, half of them within {half:.0?}, 99 of 100 within {most:.0?}");
    let (came, text) = judge(kind.f_type, half, &measured);
    Ok(Trial {
        figures: json!({
            "per_second": rate.round(), "median_us": half.as_micros() as u64,
            "p99_us": most.as_micros() as u64,
        }),
        ..Trial::of(NAME, came, text)
    })
}

fn judge(kind: i64, half: Duration, measured: &str) -> (Came, String) {
    if REMOTE.contains(&kind) {
        let text = format!(
            "{measured}; this is a network file system, and what is promised is promised for local disks"
        );
        return (Came::Failed, text);
    }
    if MEMORY.contains(&kind) {
        let text =
            format!("{measured}; this file system is memory: nothing on it survives the machine");
        return (Came::Warning, text);
    }
    if half < IMPLAUSIBLE {
        let text = format!(
            "{measured}; no disk is that fast: a cache that power takes with it, or something that leaves syncs \
             out (eatmydata, nobarrier, a hypervisor's cache mode) answers for it"
        );
        return (Came::Warning, text);
    }
    (Came::Held, measured.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sync_is_worth_is_judged_by_file_system_and_speed() {
        let slow = Duration::from_micros(90);
        let table = [
            (0xef53, slow, Came::Held),
            (0xef53, Duration::from_micros(2), Came::Warning),
            (0x0102_1994, slow, Came::Warning),
            (0x6969, slow, Came::Failed),
        ];
        for (kind, half, expected) in table {
            assert_eq!(judge(kind, half, "").0, expected, "{kind:x} {half:?}");
        }
    }
}
