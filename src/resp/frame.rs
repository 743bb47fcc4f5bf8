//! Requests out of bytes: arrays of bulk strings, and inline commands.
//!
//! The errors, and when a connection is closed, are Redis's own. Different from Redis: the line end after an
//! argument is checked, so that a wrong length is an error and not a shifted stream; and one request has a
//! bound on its arguments and bytes.
//!
//! A parser remembers how far it came, so a request that arrives one byte at a time costs as much as one that
//! arrives at once. Memory is taken for what arrived, never for what was announced. Arguments are slices of
//! the buffer they came in.

use bytes::{Buf, Bytes, BytesMut};
use std::fmt;

use super::Limits;
use super::inline::words;

/// The most arguments that may be announced.
const MAX_ANNOUNCED: i64 = i32::MAX as i64;

/// A request: a command name and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// At least one, the first the name.
    pub args: Vec<Bytes>,
}

impl Request {
    /// Bytes of all arguments.
    #[must_use]
    pub fn size(&self) -> usize {
        self.args.iter().map(Bytes::len).sum()
    }

    /// Bytes of memory that it takes: a short argument takes more than it has.
    #[must_use]
    pub fn memory(&self) -> usize {
        memory(&self.args)
    }
}

/// Bytes of memory that arguments take.
pub(super) fn memory(args: &[Bytes]) -> usize {
    let bytes = args.iter().map(Bytes::len).sum::<usize>();
    bytes.saturating_add(each(args.len()))
}

/// Bytes of memory that so many arguments take beside their own: what points to each, and its head, which stays
/// where it was read.
const fn each(arguments: usize) -> usize {
    const HEAD: usize = 8;
    arguments.saturating_mul(size_of::<Bytes>() + HEAD)
}

/// Why a connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// The head of an array is not a number in range.
    ArrayLength,
    /// The head of an argument is not a number in range.
    BulkLength,
    /// An argument began with another byte than `$`.
    ExpectedBulk(u8),
    /// The head of an array does not end.
    LongArrayHead,
    /// The head of an argument does not end.
    LongBulkHead,
    /// An inline command does not end.
    LongInline,
    /// Quotes of an inline command do not match.
    Quotes,
    /// An argument is not followed by a line end.
    LineEnd,
    /// More arguments than that in one request.
    Arguments(usize),
    /// More bytes than that in one request.
    Request(usize),
    /// This is HTTP: closed without a word (field case FO-19).
    Http,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            ProtocolError::ArrayLength => f.write_str("invalid multibulk length"),
            ProtocolError::BulkLength => f.write_str("invalid bulk length"),
            ProtocolError::ExpectedBulk(byte) if (b' '..=b'~').contains(byte) => {
                write!(f, "expected '$', got '{}'", char::from(*byte))
            }
            ProtocolError::ExpectedBulk(byte) => {
                write!(f, "expected '$', got '{}'", byte.escape_ascii())
            }
            ProtocolError::LongArrayHead => f.write_str("too big mbulk count string"),
            ProtocolError::LongBulkHead => f.write_str("too big bulk count string"),
            ProtocolError::LongInline => f.write_str("too big inline request"),
            ProtocolError::Quotes => f.write_str("unbalanced quotes in request"),
            ProtocolError::LineEnd => f.write_str("invalid CRLF in request"),
            ProtocolError::Arguments(most) => {
                write!(
                    f,
                    "more than {most} arguments in one request; send several requests"
                )
            }
            ProtocolError::Request(most) => {
                write!(
                    f,
                    "more than {most} bytes in one request; send several requests"
                )
            }
            ProtocolError::Http => f.write_str("HTTP on the Redis port"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// From so many arguments on there is room for a sixteenth more, not for as many again.
const MANY: usize = 1024;

/// Takes requests out of the buffer of one connection.
#[derive(Debug, Default)]
pub struct Parser {
    /// Arguments of the request that is arriving.
    args: Vec<Bytes>,
    /// Their bytes.
    size: usize,
    /// How many are still to come; 0 between requests.
    missing: usize,
    /// The length of the argument whose head was read.
    bulk: Option<usize>,
    /// So many bytes of the buffer hold no line end.
    scanned: usize,
}

impl Parser {
    /// Bytes of memory that the request takes that is arriving, as far as it was taken out of the input.
    #[must_use]
    pub fn pending(&self) -> usize {
        // The argument that is arriving was announced, but its bytes are still in the input, or not even there.
        let size = self.size.saturating_sub(self.bulk.unwrap_or(0));
        // There is room for more arguments than there are.
        size.saturating_add(each(self.args.capacity()))
    }

    /// Whether the request that is arriving has so many arguments that memory goes into them much faster than bytes
    /// come in.
    #[must_use]
    pub fn has_many(&self) -> bool {
        self.args.len() >= MANY
    }

    /// The next request, if all of it is there; what was read is taken out of `input`.
    ///
    /// # Errors
    /// The connection cannot go on; do not call again.
    pub fn parse(
        &mut self,
        input: &mut BytesMut,
        limits: &Limits,
    ) -> Result<Option<Request>, ProtocolError> {
        loop {
            let step = match (self.bulk, self.missing) {
                (Some(len), _) => self.argument(input, len)?,
                (None, 0) => match input.first() {
                    None => Step::More,
                    Some(b'*') => self.array_head(input, limits)?,
                    Some(_) => self.inline(input, limits)?,
                },
                (None, _) => self.bulk_head(input, limits)?,
            };
            match step {
                Step::On => {}
                Step::More => return Ok(None),
                Step::Request(request) => return Ok(Some(request)),
            }
        }
    }

    /// `*n`. No arguments, or less: ignored, as in Redis.
    fn array_head(&mut self, input: &mut BytesMut, limits: &Limits) -> Result<Step, ProtocolError> {
        let (long, wrong) = (ProtocolError::LongArrayHead, ProtocolError::ArrayLength);
        let Some(announced) = self.head(input, limits, long, wrong)? else {
            return Ok(Step::More);
        };
        if announced > MAX_ANNOUNCED {
            return Err(wrong);
        }
        self.missing = usize::try_from(announced).unwrap_or(0);
        Ok(Step::On)
    }

    /// `$n`.
    fn bulk_head(&mut self, input: &mut BytesMut, limits: &Limits) -> Result<Step, ProtocolError> {
        match input.first() {
            None => return Ok(Step::More),
            Some(b'$') => {}
            Some(byte) => return Err(ProtocolError::ExpectedBulk(*byte)),
        }
        let (long, wrong) = (ProtocolError::LongBulkHead, ProtocolError::BulkLength);
        let Some(announced) = self.head(input, limits, long, wrong)? else {
            return Ok(Step::More);
        };
        let len = usize::try_from(announced).map_err(|_| wrong)?;
        if len > limits.bulk {
            return Err(wrong);
        }
        if self.args.len() >= limits.arguments {
            return Err(ProtocolError::Arguments(limits.arguments));
        }
        self.size = self.size.saturating_add(len);
        if self.size > limits.request {
            return Err(ProtocolError::Request(limits.request));
        }
        self.bulk = Some(len);
        Ok(Step::On)
    }

    /// The bytes of an argument and its line end.
    fn argument(&mut self, input: &mut BytesMut, len: usize) -> Result<Step, ProtocolError> {
        match input.get(len..len.saturating_add(2)) {
            None => return Ok(Step::More),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::LineEnd),
        }
        let argument = input.split_to(len).freeze();
        input.advance(2);
        if self.has_many() && self.args.len() == self.args.capacity() {
            self.args.reserve_exact(self.args.len() / 16);
        }
        self.args.push(argument);
        self.bulk = None;
        self.missing = self.missing.saturating_sub(1);
        if self.missing > 0 {
            return Ok(Step::On);
        }
        self.size = 0;
        let args = std::mem::take(&mut self.args);
        match args.first() {
            Some(name) if http(name) => Err(ProtocolError::Http),
            _ => Ok(Step::Request(Request { args })),
        }
    }

    /// The number of a head line; its first byte was looked at.
    fn head(
        &mut self,
        input: &mut BytesMut,
        limits: &Limits,
        long: ProtocolError,
        wrong: ProtocolError,
    ) -> Result<Option<i64>, ProtocolError> {
        let Some(end) = self.find(input, b'\r') else {
            return if input.len() > limits.inline {
                Err(long)
            } else {
                Ok(None)
            };
        };
        if end > limits.inline {
            return Err(long);
        }
        let Some(newline) = input.get(end.saturating_add(1)) else {
            self.scanned = end;
            return Ok(None);
        };
        if *newline != b'\n' {
            return Err(wrong);
        }
        let number = input.get(1..end).and_then(integer).ok_or(wrong)?;
        input.advance(end.saturating_add(2));
        Ok(Some(number))
    }

    /// A line of words. An empty one is ignored.
    fn inline(&mut self, input: &mut BytesMut, limits: &Limits) -> Result<Step, ProtocolError> {
        let end = self.find(input, b'\n');
        if end.unwrap_or(input.len()) > limits.inline {
            return Err(ProtocolError::LongInline);
        }
        let Some(end) = end else {
            return Ok(Step::More);
        };
        let line = input.split_to(end);
        input.advance(1);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        let trimmed = line.trim_ascii_start();
        let first = trimmed.split(u8::is_ascii_whitespace).next();
        if first.is_some_and(http) {
            return Err(ProtocolError::Http);
        }
        let args = words(line).ok_or(ProtocolError::Quotes)?;
        Ok(match args.is_empty() {
            true => Step::On,
            false => Step::Request(Request { args }),
        })
    }

    /// Where `byte` is first, looking at no byte of the buffer twice.
    fn find(&mut self, input: &[u8], byte: u8) -> Option<usize> {
        let fresh = input.get(self.scanned..).unwrap_or_default();
        let at = fresh.iter().position(|b| *b == byte);
        let found = at.map(|at| at.saturating_add(self.scanned));
        self.scanned = if found.is_some() { 0 } else { input.len() };
        found
    }
}

enum Step {
    /// Something was read, and there may be more to read.
    On,
    /// Nothing can be read before more bytes arrive.
    More,
    Request(Request),
}

/// Whether a first word is the head of an HTTP request: a web page may have sent it.
fn http(word: &[u8]) -> bool {
    let host = word.get(..5);
    word.eq_ignore_ascii_case(b"post") || host.is_some_and(|w| w.eq_ignore_ascii_case(b"host:"))
}

/// A number as Redis reads one: no sign but minus, no blanks, no leading zeros.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if text.len() == 1 => Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(text).ok()?.parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that can be read when the bytes arrive in pieces of that size.
    fn read(
        bytes: &[u8],
        piece: usize,
        limits: &Limits,
    ) -> (Vec<Vec<Bytes>>, Option<ProtocolError>) {
        let (mut parser, mut input, mut requests) = (Parser::default(), BytesMut::new(), vec![]);
        for piece in bytes.chunks(piece) {
            input.extend_from_slice(piece);
            loop {
                match parser.parse(&mut input, limits) {
                    Ok(Some(request)) => requests.push(request.args),
                    Ok(None) => break,
                    Err(error) => return (requests, Some(error)),
                }
            }
        }
        (requests, None)
    }

    #[test]
    fn numbers_are_read_as_redis_reads_them() {
        let table = [
            ("0", Some(0)),
            ("7", Some(7)),
            ("-10", Some(-10)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("99999999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("1 ", None),
            ("1.5", None),
            ("1\0", None),
        ];
        for (text, expected) in table {
            assert_eq!(integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn each_limit_has_its_own_error() {
        let limits = Limits {
            bulk: 10,
            request: 25,
            arguments: 5,
            inline: 30,
            ..Limits::default()
        };
        let long = "1".repeat(40);
        let table = [
            ("*1\r\n$10\r\n0123456789\r\n".to_owned(), None),
            ("*1\r\n$11\r\n".to_owned(), Some(ProtocolError::BulkLength)),
            (
                "*3\r\n$10\r\n0123456789\r\n$10\r\n0123456789\r\n$6\r\n".to_owned(),
                Some(ProtocolError::Request(25)),
            ),
            (
                format!("*6\r\n{}", "$0\r\n\r\n".repeat(6)),
                Some(ProtocolError::Arguments(5)),
            ),
            (format!("*5\r\n{}", "$0\r\n\r\n".repeat(5)), None),
            (format!("*{long}"), Some(ProtocolError::LongArrayHead)),
            (format!("*1\r\n${long}"), Some(ProtocolError::LongBulkHead)),
            (long.clone(), Some(ProtocolError::LongInline)),
            (format!("{long}\r\n"), Some(ProtocolError::LongInline)),
        ];
        for (bytes, expected) in table {
            for piece in [1, 7, usize::MAX] {
                let (_, error) = read(bytes.as_bytes(), piece, &limits);
                assert_eq!(error, expected, "{bytes:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_count_that_is_announced_takes_no_memory() {
        let mut parser = Parser::default();
        let mut input = BytesMut::from(&b"*2147483647\r\n$67108864\r\nab"[..]);
        assert_eq!(parser.parse(&mut input, &Limits::default()), Ok(None));
        assert_eq!(parser.args.capacity(), 0);
        assert!(input.capacity() < 100);
    }

    #[test]
    fn what_is_announced_does_not_count_as_pending_before_it_is_there() {
        let mut parser = Parser::default();
        let mut input = BytesMut::from(&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$67108860\r\nab"[..]);
        assert_eq!(parser.parse(&mut input, &Limits::default()), Ok(None));
        let pending = 4 + each(parser.args.capacity());
        assert_eq!((parser.pending(), &input[..]), (pending, &b"ab"[..]));
    }

    #[test]
    fn arguments_without_bytes_count_for_what_holds_them() {
        let mut parser = Parser::default();
        let mut input = BytesMut::from(&b"*100001\r\n"[..]);
        input.extend_from_slice(&b"$0\r\n\r\n".repeat(100_000));
        let limits = Limits::default();
        assert_eq!(parser.parse(&mut input, &limits), Ok(None));
        let holds = parser.args.capacity() * size_of::<Bytes>();
        assert!((holds..2 * holds).contains(&parser.pending()), "{holds}");
        input.extend_from_slice(b"$0\r\n\r\n");
        let request = parser.parse(&mut input, &limits).unwrap().unwrap();
        let least = 100_001 * size_of::<Bytes>();
        assert!((least..2 * least).contains(&request.memory()));
        assert_eq!((request.size(), parser.pending()), (0, 0));
    }

    #[test]
    fn no_byte_is_looked_at_twice_in_search_of_a_line_end() {
        let mut parser = Parser::default();
        let mut input = BytesMut::new();
        for len in 1..=60_000 {
            input.extend_from_slice(b"x");
            assert_eq!(parser.parse(&mut input, &Limits::default()), Ok(None));
            assert_eq!(parser.scanned, len);
        }
    }

    #[test]
    fn arguments_are_slices_of_the_buffer_they_came_in() {
        let mut input = BytesMut::from(&b"*1\r\n$3\r\nabc\r\n"[..]);
        let at = input.as_ptr() as usize;
        let request = Parser::default().parse(&mut input, &Limits::default());
        let args = request.unwrap().unwrap().args;
        assert_eq!(args[0].as_ptr() as usize, at + 8);
    }

    #[test]
    fn http_is_recognised_inline_and_as_an_array() {
        for bytes in [
            "POST / HTTP/1.1\r\n",
            "post /\"x HTTP/1.1\r\n",
            "Host: localhost\r\n",
            "hOsT:evil.example\r\n",
            "*2\r\n$4\r\nPoSt\r\n$1\r\nx\r\n",
            "*1\r\n$5\r\nhost:\r\n",
        ] {
            let (requests, error) = read(bytes.as_bytes(), 1, &Limits::default());
            assert_eq!(
                (requests.len(), error),
                (0, Some(ProtocolError::Http)),
                "{bytes:?}"
            );
        }
        for bytes in ["POSTER x\r\n", "GET post host:\r\n"] {
            let (requests, error) = read(bytes.as_bytes(), 1, &Limits::default());
            assert_eq!((requests.len(), error), (1, None), "{bytes:?}");
        }
    }

    /// Valid requests, changed at random places and fed in random pieces: never a panic, and the pieces make
    /// no difference.
    #[test]
    fn changed_bytes_never_panic_and_pieces_make_no_difference() {
        let seed: u64 = std::env::var("SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or(11);
        println!("SEED={seed}");
        let mut random = seed;
        let mut next = move |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % below
        };
        let seeds: [&[u8]; 5] = [
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nPING\r\n",
            b"SET \"a b\" 'c d'\r\nGET \"\\x41\\n\"\r\n\r\nPING\n",
            b"*0\r\n*-1\r\n*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET pwn 1\r\n",
            b"*1\r\n$10\r\n0123456789\r\nPING\r\n$3\r\n",
        ];
        let alphabet = b"*$:+-\r\n 0123456789\"'\\x\0\xffaZ";
        let limits = Limits {
            bulk: 64,
            request: 100,
            arguments: 8,
            inline: 50,
            ..Limits::default()
        };
        for _ in 0..20_000 {
            let mut bytes = seeds[next(seeds.len())].to_vec();
            for _ in 0..next(5) {
                let at = next(bytes.len());
                let byte = alphabet[next(alphabet.len())];
                match next(3) {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    _ => drop(bytes.remove(at)),
                }
            }
            let whole = read(&bytes, usize::MAX, &limits);
            assert_eq!(read(&bytes, 1, &limits), whole, "{}", bytes.escape_ascii());
            assert_eq!(
                read(&bytes, 1 + next(9), &limits),
                whole,
                "{}",
                bytes.escape_ascii()
            );
            for request in &whole.0 {
                assert!(!request.is_empty() && request.len() <= limits.inline);
            }
        }
    }
}
