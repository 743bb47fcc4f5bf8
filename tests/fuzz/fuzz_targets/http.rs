//! An HTTP connection in front of an engine: whatever comes, what goes back is whole answers that the contract
//! knows, and never a fault of the server's.

#![no_main]

mod house;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use onced::http::{Face, MAX_IN_FLIGHT, Options, Readiness, connection, params, percent, routes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::sync::{Semaphore, watch};

use house::House;

thread_local! {
    static HOUSE: RefCell<Option<House>> = const { RefCell::new(None) };
}

const KNOWN: [u16; 22] = [
    100, 200, 201, 400, 401, 403, 404, 405, 408, 409, 410, 411, 412, 413, 415, 417, 421, 422, 431,
    503, 505, 507,
];

fn converse(house: &House, bytes: &[u8], piece: usize) -> Vec<u8> {
    let (_ready, readiness) = watch::channel(Readiness::Ready);
    let options = Options {
        payload_limit: 1000,
        result_limit: 1000,
        header_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let room = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    let face = Arc::new(Face::new(house.engine.clone(), options, readiness, room));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.expect("a runtime").block_on(async {
        let (mut client, server) = duplex(1 << 16);
        let (_stop, shutdown) = watch::channel(false);
        let serve = connection::serve(server, face, shutdown);
        let talk = async {
            for piece in bytes.chunks(piece) {
                if client.write_all(piece).await.is_err() {
                    break;
                }
            }
            let _ = client.shutdown().await;
            let mut all = Vec::new();
            let _ = client.read_to_end(&mut all).await;
            all
        };
        let both = async { tokio::join!(serve, talk).1 };
        let both = tokio::time::timeout(Duration::from_secs(5), both);
        both.await.expect("a connection whose client has gone ends")
    })
}

/// Every answer is whole and has a status that is known.
fn check(mut answers: &[u8]) {
    while !answers.is_empty() {
        let end = answers.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("cut: {}", answers.escape_ascii()));
        let head = std::str::from_utf8(&answers[..end]).expect("a head is text");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse::<u16>().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {head}"));
        assert!(KNOWN.contains(&status), "{head}");
        answers = &answers[end + 4..];
        if status == 100 {
            continue;
        }
        assert!(
            head.to_lowercase().contains("\r\nonced-outcome: "),
            "{head}"
        );
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
        // An answer to HEAD has the length and no body.
        if answers.len() >= length && !answers.starts_with(b"HTTP/1.") {
            answers = &answers[length..];
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    if let Ok(text) = std::str::from_utf8(bytes) {
        for plus in [percent::Plus::Space, percent::Plus::Plus] {
            if let Ok(decoded) = percent::decode(text, plus) {
                assert!(decoded.len() <= text.len());
            }
        }
        for route in routes::ROUTES {
            if let Ok(parsed) = params::Params::parse(route.params, Some(text)) {
                for param in route.params {
                    assert!(!param.required || text.contains('='), "{}", param.name);
                }
                drop(parsed);
            }
        }
    }
    HOUSE.with_borrow_mut(|house| {
        let house = house.get_or_insert_with(House::new);
        house.visit();
        let piece = if *first < 128 {
            usize::MAX
        } else {
            usize::from(*first) - 127
        };
        check(&converse(house, bytes, piece));
    });
});
