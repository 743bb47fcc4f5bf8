//! What a sync is worth on a file system that gives up.

use std::fs::File;
use std::io;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// Confirms the syncs before, of files in that directory's file system.
///
/// A file system notes beside the data which blocks hold any. After an error of the device ext4 stops to take such
/// notes, and for a moment, until it has told everybody that it is read-only, `fdatasync` says 0 for data in new blocks
/// although their note failed: the next mount reads zeros there. So whoever wrote to new blocks asks for one more
/// note, which costs some ten microseconds: a file without a name. If there is one, those before it were taken.
///
/// Where the file system knows no such files, or has no room for one, nothing is known, and that is no error.
///
/// # Errors
/// The file system takes no notes any more: what was synced may not be there after the next mount.
pub(crate) fn confirm(dir: &File) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    loop {
        return match openat(dir, ".", flags, Mode::RUSR) {
            Ok(_) => Ok(()),
            Err(Errno::INTR) => continue,
            // Unknown to the kernel or the file system.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => Ok(()),
            // Of its own: no inode, no descriptor.
            Err(Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE) => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
}
