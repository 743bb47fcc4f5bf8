//! Requests out of bytes: the same whole, in pieces, and written again.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use onced::resp::{Limits, Parser, ProtocolError, Request};

/// Small limits, so that they are met.
fn limits() -> Limits {
    Limits {
        result: 100,
        payload: 100,
        bulk: 400,
        request: 600,
        arguments: 8,
        inline: 64,
        pipeline: 10,
    }
}

type Parsed = (Vec<Request>, Option<ProtocolError>);

fn parse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Parsed {
    let (limits, mut parser, mut input) = (limits(), Parser::default(), BytesMut::new());
    let mut requests = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            match parser.parse(&mut input, &limits) {
                Ok(Some(request)) => {
                    assert!(!request.args.is_empty(), "a request has a name");
                    assert!(request.size() <= limits.request);
                    requests.push(request);
                }
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
        assert!(parser.pending() <= limits.request);
    }
    (requests, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else {
        return;
    };
    let whole = parse(std::iter::once(bytes));
    let pieces = parse(bytes.chunks(usize::from(*first % 32) + 1));
    assert_eq!(whole, pieces, "pieces make a difference");
    // What was understood is understood again in its plain form.
    for request in &whole.0 {
        let mut wire = format!("*{}\r\n", request.args.len()).into_bytes();
        for word in &request.args {
            wire.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            wire.extend_from_slice(word);
            wire.extend_from_slice(b"\r\n");
        }
        let again = parse(std::iter::once(&wire[..]));
        // An inline request may have more words than an array of these limits.
        if request.args.len() <= limits().arguments {
            assert_eq!(again, (vec![request.clone()], None));
        }
    }
});
