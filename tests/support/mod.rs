//! What suites share: the real binary in a fresh folder, and clients that see every byte.

// Shared with suites of this binary, and with nobody else.
#![allow(unreachable_pub)]

pub mod http;
pub mod process;
pub mod random;
pub mod redis;
pub mod small_disk;

pub use http::Http;
pub use process::{Output, Server, onced};
pub use random::Random;
pub use redis::Redis;
pub use small_disk::SmallDisk;

use std::time::Duration;

/// How long anything may take before a test gives up; no test waits for it when all is well.
pub const PATIENCE: Duration = Duration::from_secs(30);
