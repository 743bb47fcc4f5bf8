//! Random bytes for ids and secrets, from the kernel itself: in a root of nothing but the binary there is no /dev.

use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes`. Waits, early after the machine's start, until the kernel has collected enough.
///
/// # Errors
/// What the system call says; a kernel before 3.17 has none.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match getrandom(&mut *rest, GetRandomFlags::empty()) {
            Ok(got) => rest = rest.get_mut(got..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
