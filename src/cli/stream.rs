//! An answer that is read while it comes, line by line: HTTP/1.1 with `Transfer-Encoding: chunked` (RFC 9112, 7.1).

use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::time::Duration;

use super::client::{Answer, Request, Server, Stream};
use super::{Exit, Failure};

/// The longest line of a head, and of a chunk's size.
const MAX_LINE: u64 = 16 << 10;
/// The longest refusal that is read.
const MAX_REFUSAL: u64 = 1 << 20;

/// Lines on their way.
pub(super) struct Lines {
    body: BufReader<Chunks>,
}

impl Server {
    /// Sends the request and reads the head of its answer: the lines of a 200, or the whole of a refusal. `patience`
    /// is how long the server may say nothing.
    ///
    /// # Errors
    /// [`Exit::Usage`] for a URL that is none, [`Exit::Unavailable`] where the server cannot be reached or
    /// does not answer.
    pub(super) fn stream(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<Result<Lines, Answer>, Failure> {
        let stream = self.begin(request, patience)?;
        open(stream).map_err(|error| {
            Failure::new(
                Exit::Unavailable,
                "no answer from the server",
                error,
                "run it again",
            )
        })
    }
}

fn open(stream: Box<dyn Stream>) -> io::Result<Result<Lines, Answer>> {
    let mut reader = BufReader::new(stream);
    let broken = || io::Error::new(ErrorKind::InvalidData, "it is no HTTP server that answers");
    let status = line(&mut reader)?;
    let status: u16 = status
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .ok_or_else(broken)?;
    let (mut outcome, mut chunked) = (None, false);
    loop {
        let line = line(&mut reader)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(broken)?;
        if name.eq_ignore_ascii_case("onced-outcome") {
            outcome = Some(value.trim().to_owned());
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.trim().eq_ignore_ascii_case("chunked");
        }
    }
    if status == 200 && chunked {
        let body = BufReader::new(Chunks {
            reader,
            left: 0,
            over: false,
        });
        return Ok(Ok(Lines { body }));
    }
    let mut body = Vec::new();
    // The connection ends with the answer.
    reader.take(MAX_REFUSAL).read_to_end(&mut body)?;
    Ok(Err(Answer {
        status,
        outcome,
        body,
    }))
}

impl Lines {
    /// The next line without its end; `None` at the end of an answer that is whole.
    ///
    /// # Errors
    /// The connection broke, or the answer ended in the middle.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        self.body.read_until(b'\n', &mut line)?;
        match line.pop() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(line)),
            Some(_) => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Whether another line is here already.
    pub(super) fn has_more(&self) -> bool {
        self.body.buffer().contains(&b'\n')
    }
}

/// A chunked body.
struct Chunks {
    reader: BufReader<Box<dyn Stream>>,
    /// Of the chunk in hand.
    left: u64,
    over: bool,
}

impl Chunks {
    /// Goes to the next chunk.
    fn advance(&mut self) -> io::Result<()> {
        let size = line(&mut self.reader)?;
        let digits = size.split(';').next().unwrap_or_default().trim();
        self.left = u64::from_str_radix(digits, 16)
            .map_err(|_| io::Error::new(ErrorKind::InvalidData, "a chunk has no size"))?;
        if self.left == 0 {
            // Our server sends no trailers.
            line(&mut self.reader)?;
            self.over = true;
        }
        Ok(())
    }
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.over {
            self.advance()?;
        }
        if self.over || buffer.is_empty() {
            return Ok(0);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let len = buffer.len().min(most);
        let read = self
            .reader
            .read(buffer.get_mut(..len).unwrap_or_default())?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(read as u64);
        if self.left == 0 && !line(&mut self.reader)?.is_empty() {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "a chunk is longer than it says",
            ));
        }
        Ok(read)
    }
}

/// A line, without its end.
fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    reader.take(MAX_LINE).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).map_err(|_| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write};

    struct Fixed(Cursor<Vec<u8>>);

    impl Read for Fixed {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            // A byte at a time: nothing rests on how the pieces arrive.
            let len = buffer.len().min(1);
            self.0.read(&mut buffer[..len])
        }
    }

    impl Write for Fixed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines, and whether the answer was whole.
    fn read(bytes: &[u8]) -> (Vec<String>, bool) {
        let Ok(Ok(mut lines)) = open(Box::new(Fixed(Cursor::new(bytes.to_vec())))) else {
            return (Vec::new(), false);
        };
        let mut all = Vec::new();
        loop {
            match lines.next() {
                Ok(Some(line)) => all.push(String::from_utf8(line).unwrap()),
                Ok(None) => return (all, true),
                Err(_) => return (all, false),
            }
        }
    }

    #[test]
    fn lines_are_put_together_over_chunks_and_a_cut_is_no_end() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let whole = format!("{head}3\r\na\nb\r\nC;x=y\r\nc\nlonger one\r\n1\r\n\n\r\n0\r\n\r\n");
        let all = ["a", "bc", "longer one"].map(str::to_owned).to_vec();
        assert_eq!(read(whole.as_bytes()), (all, true));
        for end in 0..whole.len() {
            assert!(!read(&whole.as_bytes()[..end]).1, "first {end} bytes");
        }
    }
}
