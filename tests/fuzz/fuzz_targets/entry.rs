//! Entries of the journal, and with them records: what is understood is written again to the same bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use onced::store::{decode_entry, encode_entry};

fuzz_target!(|data: &[u8]| {
    let Ok(entry) = decode_entry(data) else {
        return;
    };
    let mut bytes = Vec::new();
    encode_entry(&entry, &mut bytes).expect("what was read can be written");
    let again = decode_entry(&bytes).expect("what was written can be read");
    assert_eq!(format!("{entry:?}"), format!("{again:?}"));
});
