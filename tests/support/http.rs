//! A tiny blocking HTTP client: one connection, kept alive.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::PATIENCE;

/// A connection.
pub struct Http {
    stream: BufReader<TcpStream>,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Http {
    pub fn connect(address: SocketAddr) -> Http {
        Http::try_connect(address).expect("a connection")
    }

    /// Sends a request and reads its answer.
    pub fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.try_request(method, path, body).expect("an answer")
    }

    /// A connection to a server that may be gone.
    pub fn try_connect(address: SocketAddr) -> Option<Http> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_nodelay(true).ok()?;
        let stream = BufReader::new(stream);
        Some(Http { stream })
    }

    /// A request to a server that may go; `None` where it went without an answer.
    pub fn try_request(&mut self, method: &str, path: &str, body: &[u8]) -> Option<Answer> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
        );
        let stream = self.stream.get_mut();
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body).ok()?;
        self.answer()
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, b"")
    }

    pub fn post(&mut self, path: &str, body: &[u8]) -> Answer {
        self.request("POST", path, body)
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// The next answer; `None` where the connection ended instead.
    pub fn answer(&mut self) -> Option<Answer> {
        let status = self.line()?;
        let status = status
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
                None => break,
            }
        }
        let mut answer = Answer {
            status: status?,
            headers,
            body: Vec::new(),
        };
        let length = answer
            .header("content-length")
            .and_then(|length| length.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        self.stream.read_exact(&mut body).ok()?;
        answer.body = body;
        Some(answer)
    }

    /// The next answer, where it is there or all but there.
    pub fn soon(&mut self) -> Option<Answer> {
        let short = Some(Duration::from_millis(100));
        self.stream.get_ref().set_read_timeout(short).unwrap();
        self.answer()
    }

    /// Everything until the connection ends.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        rest
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// `Onced-Outcome`.
    pub fn outcome(&self) -> &str {
        self.header("onced-outcome").unwrap_or("")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}
