//! Replies as bytes, in RESP2 or RESP3.

use bytes::BytesMut;

/// Which protocol a connection speaks; `HELLO` changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every connection begins with.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

impl Protocol {
    /// Its number in `HELLO`.
    #[must_use]
    pub const fn number(self) -> u64 {
        match self {
            Protocol::Resp2 => 2,
            Protocol::Resp3 => 3,
        }
    }
}

/// Appends replies to a buffer. What RESP2 lacks is written as Redis writes it there.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut BytesMut,
    protocol: Protocol,
}

impl Writer<'_> {
    /// A writer of that protocol.
    pub fn new(out: &mut BytesMut, protocol: Protocol) -> Writer<'_> {
        Writer { out, protocol }
    }

    /// Bytes that are replies already.
    pub fn raw(&mut self, replies: &[u8]) {
        self.out.extend_from_slice(replies);
    }

    /// `+OK` and kin: words of the program, never outside text.
    pub fn status(&mut self, word: &'static str) {
        self.line(b'+', word.as_bytes());
    }

    /// A status that a script made; line ends inside become blanks.
    pub fn status_text(&mut self, text: &[u8]) {
        self.text(b'+', text);
    }

    /// An error: its text begins with the word clients dispatch on. Line ends inside become blanks.
    pub fn error(&mut self, text: &[u8]) {
        self.text(b'-', text);
    }

    /// A signed number.
    pub fn int(&mut self, number: i64) {
        self.out.extend_from_slice(b":");
        if number < 0 {
            self.out.extend_from_slice(b"-");
        }
        self.digits(number.unsigned_abs());
    }

    /// A count or a token.
    pub fn uint(&mut self, number: u64) {
        self.number(b':', number);
    }

    /// A string of any bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// A missing value.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// A missing array: the reply of a transaction that was not run.
    pub fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.out.extend_from_slice(b"*-1\r\n"),
            Protocol::Resp3 => self.null(),
        }
    }

    /// True or false; 1 or 0 in RESP2.
    pub fn bool(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// The head of so many replies.
    pub fn array(&mut self, len: usize) {
        self.number(b'*', len as u64);
    }

    /// The head of so many pairs; in RESP2 an array of twice as many.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(pairs.saturating_mul(2)),
            Protocol::Resp3 => self.number(b'%', pairs as u64),
        }
    }

    /// The head of so many replies in no order.
    pub fn set(&mut self, len: usize) {
        self.unordered(b'~', len);
    }

    /// The head of a message that answers no request; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        self.unordered(b'>', len);
    }

    /// Text for people; a plain string in RESP2.
    pub fn verbatim(&mut self, text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.number(b'=', text.len().saturating_add(4) as u64);
                self.out.extend_from_slice(b"txt:");
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    fn unordered(&mut self, mark: u8, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(len),
            Protocol::Resp3 => self.number(mark, len as u64),
        }
    }

    fn text(&mut self, mark: u8, text: &[u8]) {
        self.out.extend_from_slice(&[mark]);
        let clean = text.iter().map(|b| match b {
            b'\r' | b'\n' => b' ',
            other => *other,
        });
        self.out.extend(clean);
        self.out.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, mark: u8, text: &[u8]) {
        self.out.extend_from_slice(&[mark]);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, mark: u8, number: u64) {
        self.out.extend_from_slice(&[mark]);
        self.digits(number);
    }

    /// The hot path of every reply: no formatting machinery.
    fn digits(&mut self, mut number: u64) {
        // 20 digits hold every u64.
        let mut buffer = *b"00000000000000000000\r\n";
        let mut used = 2;
        for slot in buffer.iter_mut().rev().skip(2) {
            *slot = b'0' + (number % 10) as u8;
            number /= 10;
            used += 1;
            if number == 0 {
                break;
            }
        }
        let start = buffer.len().saturating_sub(used);
        self.out
            .extend_from_slice(buffer.get(start..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut Writer<'_>)) -> [String; 2] {
        [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
            let mut out = BytesMut::new();
            write(&mut Writer::new(&mut out, protocol));
            out.escape_ascii().to_string()
        })
    }

    #[test]
    fn values_are_written_in_both_protocols() {
        type Write = fn(&mut Writer<'_>);
        let table: &[(Write, &str, &str)] = &[
            (|w| w.status("OK"), r"+OK\r\n", r"+OK\r\n"),
            (
                |w| w.error(b"ERR a\r\nb"),
                r"-ERR a  b\r\n",
                r"-ERR a  b\r\n",
            ),
            (|w| w.int(0), r":0\r\n", r":0\r\n"),
            (|w| w.int(-10), r":-10\r\n", r":-10\r\n"),
            (
                |w| w.int(i64::MIN),
                r":-9223372036854775808\r\n",
                r":-9223372036854775808\r\n",
            ),
            (
                |w| w.uint(u64::MAX),
                r":18446744073709551615\r\n",
                r":18446744073709551615\r\n",
            ),
            (|w| w.bulk(b""), r"$0\r\n\r\n", r"$0\r\n\r\n"),
            (
                |w| w.bulk(b"a\r\n\0"),
                r"$4\r\na\r\n\x00\r\n",
                r"$4\r\na\r\n\x00\r\n",
            ),
            (|w| w.null(), r"$-1\r\n", r"_\r\n"),
            (|w| w.bool(true), r":1\r\n", r"#t\r\n"),
            (|w| w.bool(false), r":0\r\n", r"#f\r\n"),
            (|w| w.array(3), r"*3\r\n", r"*3\r\n"),
            (|w| w.map(3), r"*6\r\n", r"%3\r\n"),
            (|w| w.set(3), r"*3\r\n", r"~3\r\n"),
            (|w| w.push(3), r"*3\r\n", r">3\r\n"),
            (|w| w.verbatim(b"hi"), r"$2\r\nhi\r\n", r"=6\r\ntxt:hi\r\n"),
        ];
        for (write, resp2, resp3) in table {
            assert_eq!(both(write), [*resp2, *resp3]);
        }
    }
}
