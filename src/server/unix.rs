//! The Unix socket: who may connect to it is decided before anybody can.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use tokio::net::UnixListener;

use super::listen::{BACKLOG, unusable};
use crate::config::{Group, UnixOptions};
use crate::error::{Exit, Failure};

/// The longest path of a Unix socket (unix(7): 108 with its end).
const MAX_PATH: usize = 107;
/// Where groups have their names.
const GROUPS: &str = "/etc/group";

/// A Unix socket that is listened on; its file goes when this does.
#[derive(Debug)]
pub struct UnixSocket {
    /// `None`: the file is somebody else's.
    _file: Option<OwnFile>,
    /// What accepts.
    pub listener: UnixListener,
}

impl UnixSocket {
    /// Binds the path, with that mode and group. A socket that a dead process left is replaced.
    ///
    /// Between `bind` and `listen` every connection is refused, so mode and group are in force before the first one.
    ///
    /// # Errors
    /// [`Exit::Address`]: somebody answers there, the path cannot be used, or the group not be given.
    pub fn bind(options: &UnixOptions) -> Result<UnixSocket, Failure> {
        let path = options.path.as_path();
        let refused = |cause: &dyn std::fmt::Display, next: &str| {
            let attempt = format!("cannot serve HTTP on the socket {}", path.display());
            Failure::new(Exit::Address, attempt, cause, next)
        };
        let elsewhere = "give another path with --unix";
        let group = options.group.as_ref().map(number).transpose()?;
        let length = path.as_os_str().len();
        if length > MAX_PATH {
            let cause =
                format!("the path has {length} bytes, and a socket's has at most {MAX_PATH}");
            return Err(refused(&cause, "give a shorter one with --unix"));
        }
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(refused(&error, elsewhere)),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(refused(&"the path exists and is no socket", elsewhere));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(|error| refused(&error, elsewhere))?;
                }
                Err(error) => return Err(refused(&error, elsewhere)),
                Ok(_) => {
                    let next =
                        "stop the process that listens there, or give another path with --unix";
                    return Err(refused(&"somebody answers there", next));
                }
            },
        }
        let next = "its directory has to exist and be writable; or give another path with --unix";
        let socket = tokio::net::UnixSocket::new_stream().map_err(|error| refused(&error, next))?;
        socket.bind(path).map_err(|error| refused(&error, next))?;
        // From here on the file is ours, and goes also where the rest fails.
        let file = OwnFile(path.to_owned());
        if let Some(group) = group {
            std::os::unix::fs::chown(path, None, Some(group)).map_err(|error| {
                let next = "start as root or as a member of that group, or leave unix_group out";
                refused(&format!("its group cannot be {group}: {error}"), next)
            })?;
        }
        // After the group: giving a file away may take bits of its mode.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(options.mode.0))
            .map_err(|error| refused(&error, elsewhere))?;
        let listener = socket
            .listen(BACKLOG)
            .map_err(|error| refused(&error, elsewhere))?;
        Ok(UnixSocket {
            _file: Some(file),
            listener,
        })
    }

    /// A socket that was handed over.
    ///
    /// # Errors
    /// [`Exit::Address`]: it is none that can be listened on.
    pub fn of_somebody_else(
        socket: std::os::unix::net::UnixListener,
    ) -> Result<UnixSocket, Failure> {
        let listener = socket
            .set_nonblocking(true)
            .and_then(|()| UnixListener::from_std(socket))
            .map_err(|error| unusable(&error))?;
        Ok(UnixSocket {
            _file: None,
            listener,
        })
    }
}

/// The file of a socket of our own: it goes with the socket.
#[derive(Debug)]
struct OwnFile(PathBuf);

impl Drop for OwnFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            tracing::warn!("cannot remove the socket {}: {error}", self.0.display());
        }
    }
}

/// The number of a group. Names are looked up in /etc/group alone: a static program has no name service.
fn number(group: &Group) -> Result<u32, Failure> {
    let refused = |name: &str, cause: &dyn std::fmt::Display| {
        let attempt = format!("cannot give the socket to the group {name}");
        let next = format!(
            "create it with `groupadd --system {name}`, give its number (`getent group {name}`), or leave unix_group out"
        );
        Failure::new(Exit::Address, attempt, cause, next)
    };
    match group {
        Group::Number(number) => Ok(*number),
        Group::Name(name) => {
            let text = std::fs::read(GROUPS)
                .map_err(|error| refused(name, &format!("{GROUPS}: {error}")))?;
            find(&text, name).ok_or_else(|| refused(name, &format!("{GROUPS} has no such group")))
        }
    }
}

/// The number of that name in the text of group(5): `name:password:number:members`.
fn find(text: &[u8], name: &str) -> Option<u32> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut parts = line.split(|byte| *byte == b':');
        let is_it = parts.next()? == name.as_bytes();
        let number = std::str::from_utf8(parts.nth(1)?).ok()?.parse().ok()?;
        is_it.then_some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    fn bind(path: &Path, mode: u32, group: Option<Group>) -> Result<UnixSocket, Failure> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let options = UnixOptions {
            path: path.to_owned(),
            mode: Mode(mode),
            group,
        };
        let bound = async { UnixSocket::bind(&options) };
        runtime.enable_all().build().unwrap().block_on(bound)
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = bind(&path, 0o660, None).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
        let failure = bind(&path, 0o660, None).unwrap_err().to_string();
        assert!(failure.contains("somebody answers there"), "{failure}");
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, "mine").unwrap();
        let failure = bind(&path, 0o660, None).unwrap_err().to_string();
        assert!(failure.contains("is no socket"), "{failure}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        let long = dir.path().join("s".repeat(MAX_PATH));
        let failure = bind(&long, 0o660, None).unwrap_err().to_string();
        assert!(failure.contains("at most 107"), "{failure}");
    }

    #[test]
    fn mode_and_group_are_those_that_were_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        // Everybody may give what is his to a group of his own.
        let own = dir.path().metadata().unwrap().gid();
        for mode in [0o600, 0o666, 0o620] {
            let socket = bind(&path, mode, Some(Group::Number(own))).unwrap();
            let there = path.metadata().unwrap();
            assert_eq!((there.mode() & 0o7777, there.gid()), (mode, own));
            drop(socket);
        }
    }

    #[test]
    fn a_group_that_is_not_there_is_refused_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let group = Group::Name("no-such-group-here".into());
        let failure = bind(&path, 0o660, Some(group)).unwrap_err();
        assert_eq!(failure.exit, Exit::Address);
        let failure = failure.to_string();
        for part in ["no-such-group-here", "/etc/group", "groupadd"] {
            assert!(failure.contains(part), "{failure}");
        }
        assert!(!path.exists());
    }

    #[test]
    fn groups_are_found_by_their_whole_name() {
        let text = b"root:x:0:\n# a comment\nbad\nonced:x:998:alice,bob\nonced2::7:\nodd:x:many:\n";
        let table = [
            ("root", Some(0)),
            ("onced", Some(998)),
            ("onced2", Some(7)),
            ("once", None),
            ("odd", None),
            ("alice", None),
            ("", None),
        ];
        for (name, expected) in table {
            assert_eq!(find(text, name), expected, "{name}");
        }
    }
}
