//! The configuration file: understood, or refused with the line and what to do.

#![no_main]

use std::cell::RefCell;
use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use onced::config::{Settings, resolve};

thread_local! {
    static FILE: RefCell<Option<tempfile::NamedTempFile>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    FILE.with_borrow_mut(|file| {
        let file = file.get_or_insert_with(|| {
            tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory")
        });
        std::fs::write(file.path(), data).expect("written");
        file.flush().expect("written");
        match resolve(Settings::default(), Some(file.path())) {
            Ok(config) => {
                assert!(config.threads >= 1);
                assert!(config.limits.recent_memory >= 4 * config.limits.payload);
                for policy in config.policies.values() {
                    assert!(policy.lease.as_millis() >= 1);
                }
            }
            Err(failure) => {
                let text = failure.to_string();
                assert!(text.contains("; "), "it does not say what to do: {text}");
                assert!(!text.contains('\n'), "more than a line: {text}");
            }
        }
    });
});
