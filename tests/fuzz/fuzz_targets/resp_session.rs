//! A connection of the Redis protocol in front of an engine: whatever comes, each request has one well-formed
//! reply, and pieces make no difference to how many there are.

#![no_main]

mod house;

use std::cell::RefCell;
use std::sync::Arc;

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use onced::resp::{Face, Flow, Options, Session};

use house::House;

thread_local! {
    static HOUSE: RefCell<Option<House>> = const { RefCell::new(None) };
}

/// The replies in `bytes`; `None` where one is malformed or cut.
fn replies(mut bytes: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !bytes.is_empty() {
        bytes = after(bytes, 0)?;
        count += 1;
    }
    Some(count)
}

/// What follows the first reply.
fn after(bytes: &[u8], depth: u32) -> Option<&[u8]> {
    if depth > 8 {
        return None;
    }
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let (head, rest) = (&bytes[..end], &bytes[end + 2..]);
    let (kind, text) = head.split_first()?;
    let number = || std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    match kind {
        b'+' | b'-' | b'_' | b'#' | b',' | b'(' => Some(rest),
        b':' => number().map(|_| rest),
        b'$' | b'=' => match number()? {
            -1 => Some(rest),
            length => {
                let length = usize::try_from(length).ok()?;
                let rest = rest.get(length..)?;
                rest.strip_prefix(b"\r\n")
            }
        },
        b'*' | b'%' | b'~' | b'>' => {
            let members = match number()? {
                -1 => 0,
                members if *kind == b'%' => members * 2,
                members => members,
            };
            let mut rest = rest;
            for _ in 0..members {
                rest = after(rest, depth + 1)?;
            }
            Some(rest)
        }
        _ => None,
    }
}

fn talk(house: &House, pieces: &mut dyn Iterator<Item = &[u8]>) -> Vec<u8> {
    let face = Arc::new(Face::new(Options {
        allow_flush: false,
        ..Options::default()
    }));
    let mut session = Session::new(face, "peer".to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime");
    let (mut input, mut all) = (BytesMut::new(), Vec::new());
    runtime.block_on(async {
        for piece in pieces {
            input.extend_from_slice(piece);
            loop {
                let mut output = BytesMut::new();
                let served = session.serve(&house.engine, &mut input, &mut output);
                let flow = tokio::time::timeout(std::time::Duration::from_millis(50), served).await;
                all.extend_from_slice(&output);
                match flow {
                    Ok(Flow::More) => {}
                    Ok(Flow::Continue) => break,
                    // A claim that waits, as it may.
                    Ok(Flow::Close) | Err(_) => return,
                }
            }
        }
    });
    all
}

fuzz_target!(|data: &[u8]| {
    HOUSE.with_borrow_mut(|house| {
        let house = house.get_or_insert_with(House::new);
        house.visit();
        let (first, bytes) = data.split_first().unwrap_or((&0, &[]));
        let all = match first {
            0..128 => talk(house, &mut std::iter::once(bytes)),
            size => talk(house, &mut bytes.chunks(usize::from(*size - 127))),
        };
        assert!(replies(&all).is_some(), "malformed: {}", all.escape_ascii());
    });
});
