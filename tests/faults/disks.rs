//! A file system of its own on a loop device: it turns read-only, or fills and is freed, under load.

use std::path::{Path, PathBuf};

use super::{must, start};
use crate::process::Load;
use crate::support::{Random, onced};

/// 64 MiB of ext4 in a file, unmounted when dropped.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Disk {
        let disk = Disk {
            folder: tempfile::tempdir().unwrap(),
        };
        let image = disk.path("image");
        must("truncate", &["-s", "64M", &image]);
        must("mkfs.ext4", &["-q", "-F", &image]);
        std::fs::create_dir(disk.path("mount")).unwrap();
        disk.mount();
        disk
    }

    fn path(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("mount/data")
    }

    fn mount(&self) {
        must(
            "mount",
            &["-o", "loop", &self.path("image"), &self.path("mount")],
        );
    }

    fn unmount(&self) {
        must("umount", &[&self.path("mount")]);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmount = std::process::Command::new("umount")
            .arg(self.path("mount"))
            .output();
        // A mount that stayed would keep the folder.
        let _ = unmount;
    }
}

#[test]
#[ignore = "needs root and loop devices: tests/faults/run"]
fn a_file_system_that_turns_read_only_under_load_stops_the_process_and_loses_nothing() {
    let mut random = Random::from_env();
    let disk = Disk::new();
    let mut load = Load::new(&random);
    for round in 0..5 {
        let server =
            start(disk.folder.path(), &disk.data()).unwrap_or_else(|output| panic!("{output:?}"));
        load.settle(&server);
        let running = load.run(&server);
        running.until(200 + random.below(2000));
        // As after an error of the device: also for files that are open for writing.
        must("mount", &["-o", "remount,abort", &disk.path("mount")]);
        let output = server.wait();
        assert_eq!(output.code(), 15, "round {round}: {output:?}");
        let mount = disk.path("mount");
        assert!(
            output.stderr.contains(&mount),
            "it names the file: {output:?}"
        );
        (load, _) = running.end();
        let Err(output) = start(disk.folder.path(), &disk.data()) else {
            panic!("it starts on a read-only file system");
        };
        assert!([12, 15].contains(&output.code()), "{output:?}");
        disk.unmount();
        disk.mount();
    }
    let server =
        start(disk.folder.path(), &disk.data()).unwrap_or_else(|output| panic!("{output:?}"));
    load.settle(&server);
    assert_eq!(server.term().code(), 0);
    sound(&disk.data());
}

#[test]
#[ignore = "needs root and loop devices: tests/faults/run"]
fn a_file_system_that_is_filled_and_freed_under_load_loses_nothing() {
    let mut random = Random::from_env();
    let disk = Disk::new();
    let mut load = Load::new(&random);
    for round in 0..5 {
        let server =
            start(disk.folder.path(), &disk.data()).unwrap_or_else(|output| panic!("{output:?}"));
        load.settle(&server);
        let running = load.run(&server);
        running.until(200 + random.below(1000));
        let ballast = disk.folder.path().join("mount/ballast");
        fill(&ballast);
        // Clients end when they are refused, or are answered from what is allocated.
        running.until(20_000);
        (load, _) = running.end();
        assert!(!load_is_lost(&server), "round {round}");
        if round % 2 == 0 {
            server.kill9();
            let full = start(disk.folder.path(), &disk.data());
            let full = full.unwrap_or_else(|output| panic!("round {round}, full: {output:?}"));
            load.settle(&full);
            std::fs::remove_file(&ballast).unwrap();
            normal(&full);
            full.kill9();
        } else {
            std::fs::remove_file(&ballast).unwrap();
            normal(&server);
            assert_eq!(server.term().code(), 0);
        }
    }
    let server =
        start(disk.folder.path(), &disk.data()).unwrap_or_else(|output| panic!("{output:?}"));
    load.settle(&server);
    assert_eq!(server.term().code(), 0);
    sound(&disk.data());
}

/// Known keys are answered on a full disk.
fn load_is_lost(server: &crate::support::Server) -> bool {
    server.http().get("/v1/claims/default?limit=10").status != 200
}

fn normal(server: &crate::support::Server) {
    let begun = std::time::Instant::now();
    let mut http = server.http();
    while http
        .post("/v1/claims/default/normal-again?mode=once", b"")
        .status
        >= 500
    {
        assert!(begun.elapsed() < crate::support::PATIENCE, "it stays full");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn fill(path: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(path).unwrap();
    for piece in [1 << 20, 4096, 1] {
        let bytes = vec![b'x'; piece];
        while file.write(&bytes).is_ok_and(|written| written == piece) {}
    }
    let _ = file.sync_all();
}

fn sound(data: &Path) {
    let output = onced()
        .args(["check", "--data-dir"])
        .arg(data)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
