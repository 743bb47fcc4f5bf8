//! A small file system of a test's own, filled and freed by somebody else.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Output, Server, onced};

/// A file system in memory that only this test's processes see.
pub struct SmallDisk {
    dir: tempfile::TempDir,
    holder: Child,
}

impl SmallDisk {
    /// One of that size.
    pub fn new(mebibytes: u32) -> SmallDisk {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "mount -t tmpfs -o size={mebibytes}m tmpfs {0} && echo mounted && exec cat",
            dir.path().display()
        );
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare, of util-linux");
        let mut line = String::new();
        let stdout = holder.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert_eq!(
            line, "mounted\n",
            "this test has to be allowed user namespaces"
        );
        SmallDisk { dir, holder }
    }

    /// The data directory on it.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The file system as seen from outside.
    pub fn outside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.id()));
        root.join(self.dir.path().strip_prefix("/").unwrap())
    }

    fn ballast(&self) -> PathBuf {
        self.outside().join("ballast")
    }

    /// Uses up what is free.
    pub fn fill(&self) {
        let mut file = open(&self.ballast());
        for piece in [1 << 20, 4096, 1] {
            while file
                .write(&vec![b'x'; piece])
                .is_ok_and(|written| written == piece)
            {}
        }
    }

    /// Gives it back.
    pub fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    /// Makes it read-only, or writable again (`ro`, `rw`); nobody may have files of it open for writing.
    pub fn remount(&self, how: &str) {
        let status = Command::new("nsenter")
            .args(["--user", "--mount", "--preserve-credentials", "--target"])
            .arg(self.holder.id().to_string())
            .args(["mount", "-o", &format!("remount,{how}")])
            .arg(self.dir.path())
            .status();
        assert!(status.unwrap().success(), "remount,{how}");
    }

    /// Starts a server on it.
    pub fn serve(&self) -> Server {
        match self.try_serve() {
            Ok(server) => server,
            Err(output) => panic!("the server did not start: {output:?}"),
        }
    }

    /// The same, where it may refuse to start.
    pub fn try_serve(&self) -> Result<Server, Output> {
        let limits = "max_payload = \"64KiB\"\nmax_result = \"64KiB\"\nrecent_memory = \"1MiB\"\n";
        self.serve_with(limits)
    }

    /// The same, with limits of the test's own.
    pub fn serve_with(&self, limits: &str) -> Result<Server, Output> {
        let config = self.dir.path().with_extension("toml");
        let text = format!("[limits]\n{limits}[namespace.default]\nlease = \"1h\"\n");
        std::fs::write(&config, text).unwrap();
        let inside = onced();
        let mut command = Command::new("nsenter");
        command
            .args(["--user", "--mount", "--preserve-credentials", "--target"])
            .arg(self.holder.id().to_string())
            .arg(inside.get_program())
            .args(["serve", "--http", "0", "--redis", "0", "--data-dir"])
            .arg(self.data())
            .arg("--config")
            .arg(&config)
            .env_remove("NOTIFY_SOCKET");
        let server = Server::spawn(command);
        std::fs::remove_file(&config).unwrap();
        server
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap()
}
