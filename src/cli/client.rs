//! One request to the server and its answer. HTTP/1.1 as our own server speaks it: an answer has a
//! `Content-Length`, or ends with the connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Exit, Failure};

/// Where a secret is looked for that no file holds. Not `ONCED_TOKEN`: that is a fencing token.
const SECRET: &str = "ONCED_SECRET";
/// The longest answer that is read: a page of a listing, or a result at its limit.
const MAX_ANSWER: u64 = 256 << 20;
/// How long an answer may take to begin, besides what the request itself waits for.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest head of an answer whose body is handed on, with what comes along of that.
const LONGEST_HEAD: usize = 256 << 10;

/// Where the server is, and how to show its answer.
#[derive(Args, Debug)]
pub(super) struct Server {
    /// The server: http://HOST:PORT, or unix:PATH
    #[arg(
        long,
        env = "ONCED_URL",
        value_name = "URL",
        default_value = "http://localhost:6623"
    )]
    url: String,

    /// A file with the secret, where the server asks for one; or the secret itself in ONCED_SECRET
    #[arg(long, env = "ONCED_SECRET_FILE", value_name = "FILE")]
    secret_file: Option<PathBuf>,

    /// Print the body of the answer as it is
    #[arg(long)]
    pub(super) json: bool,
}

/// A request: `query` is written in its order.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    pub(super) content_type: Option<String>,
    /// How long the request itself asks to be held.
    pub(super) wait: Duration,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// `Onced-Outcome`; absent where something else answered.
    pub(super) outcome: Option<String>,
    pub(super) body: Vec<u8>,
}

impl Server {
    /// The one at that URL.
    pub(super) fn at(url: String) -> Server {
        Server {
            url,
            secret_file: None,
            json: false,
        }
    }

    /// Its URL.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The same server by each of its addresses, where `localhost` means two.
    pub(super) fn ways(&self) -> Vec<Server> {
        let to = |host: &str, port: &str| Server {
            url: format!("http://{host}:{port}"),
            secret_file: self.secret_file.clone(),
            json: self.json,
        };
        match self
            .url
            .trim_end_matches('/')
            .strip_prefix("http://localhost:")
        {
            Some(port) => vec![to("127.0.0.1", port), to("[::1]", port)],
            None => vec![Server {
                url: self.url.clone(),
                secret_file: self.secret_file.clone(),
                json: self.json,
            }],
        }
    }

    /// Host and port, for who speaks to it in another way.
    ///
    /// # Errors
    /// [`Exit::Usage`]: it has none.
    pub(super) fn tcp(&self) -> Result<String, Failure> {
        let rest = self.url.trim_end_matches('/').strip_prefix("http://");
        let found = rest.filter(|rest| rest.contains(':'));
        found.map(str::to_owned).ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format_args!("cannot use the URL {}", self.url),
                "host and port are needed here",
                "write it like http://localhost:6623",
            )
        })
    }

    /// Whether nobody listens there.
    pub(super) fn is_deaf(&self) -> bool {
        self.connect(PATIENCE).is_err()
    }

    /// Sends the request and reads the answer.
    ///
    /// # Errors
    /// [`Exit::Usage`] for a URL that is none, [`Exit::Unavailable`] where the server cannot be reached or
    /// does not answer.
    pub(super) fn send(&self, request: &Request) -> Result<Answer, Failure> {
        let secret = self.secret()?;
        let (mut stream, host) = self.connect(PATIENCE.saturating_add(request.wait))?;
        let exchanged = exchange(&mut *stream, host, secret.as_deref(), request);
        exchanged.map_err(|error| {
            let next = "whether it was decided is not known; ask again, with the same claim id for a claim";
            let timed_out = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            let cause = if timed_out {
                "it did not answer in time".to_owned()
            } else {
                error.to_string()
            };
            let attempt = format!("no answer from {}", self.url);
            Failure::new(Exit::Unavailable, attempt, cause, next)
        })
    }

    /// Sends a request without a body, and leaves the answer to be read.
    ///
    /// # Errors
    /// As [`Server::send`].
    pub(super) fn begin(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<Box<dyn Stream>, Failure> {
        let secret = self.secret()?;
        let (mut stream, host) = self.connect(patience)?;
        let sent = stream.write_all(head(host, secret.as_deref(), request).as_bytes());
        sent.map_err(|error| {
            let attempt = format!("no answer from {}", self.url);
            Failure::new(Exit::Unavailable, attempt, error, "run it again")
        })?;
        Ok(stream)
    }

    /// The secret of this client, if it has one. The file goes first.
    pub(super) fn secret(&self) -> Result<Option<String>, Failure> {
        let (said, source) = match &self.secret_file {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    let attempt = format!("cannot read the secret in {}", path.display());
                    let next = "make it readable for this user, or name another with --secret-file";
                    Failure::new(Exit::Usage, attempt, error, next)
                })?;
                (text, path.display().to_string())
            }
            None => match std::env::var(SECRET) {
                Ok(text) => (text, SECRET.to_owned()),
                Err(std::env::VarError::NotPresent) => return Ok(None),
                Err(std::env::VarError::NotUnicode(_)) => (String::new(), SECRET.to_owned()),
            },
        };
        let secret = said.trim();
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::new(
                Exit::Usage,
                format_args!("cannot use the secret of {source}"),
                "a secret is one line of visible ASCII characters",
                "give it as `onced token new` printed it",
            ));
        }
        Ok(Some(secret.to_owned()))
    }

    /// Sends the request and hands the body of a good answer on as it comes, to its end: whether that is all of it,
    /// the body itself has to say. Any other answer is handed back.
    ///
    /// # Errors
    /// As [`Server::send`], and what `sink` says.
    pub(super) fn download(
        &self,
        request: &Request,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<Option<Answer>, Failure> {
        let secret = self.secret()?;
        let (mut stream, host) = self.connect(PATIENCE)?;
        let broken = |error: io::Error| {
            let attempt = format!("the answer from {} broke off", self.url);
            Failure::new(
                Exit::Unavailable,
                attempt,
                error,
                "look at its log, and try again",
            )
        };
        // In the older version a body of unknown length is the bytes themselves.
        let head = head(host, secret.as_deref(), request).replacen("HTTP/1.1", "HTTP/1.0", 1);
        stream.write_all(head.as_bytes()).map_err(broken)?;
        let mut buffer = vec![0; 64 << 10];
        let mut begun = Vec::new();
        while parse(&begun).is_none() {
            let read = stream.read(&mut buffer).map_err(broken)?;
            begun.extend_from_slice(buffer.get(..read).unwrap_or_default());
            if read == 0 || begun.len() > LONGEST_HEAD {
                return Err(broken(ErrorKind::UnexpectedEof.into()));
            }
        }
        let first = parse(&begun).ok_or_else(|| broken(ErrorKind::InvalidData.into()))?;
        if first.status != 200 {
            return Ok(Some(first));
        }
        sink(&first.body)?;
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(read) => sink(buffer.get(..read).unwrap_or_default())?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }

    fn connect(&self, patience: Duration) -> Result<(Box<dyn Stream>, &str), Failure> {
        let unreachable = |error: io::Error| {
            let attempt = format!("cannot reach the server at {}", self.url);
            let next = "start it with `onced serve`, or say where it is with --url or ONCED_URL";
            Failure::new(Exit::Unavailable, attempt, error, next)
        };
        if let Some(path) = self.url.strip_prefix("unix:") {
            let stream = UnixStream::connect(path).map_err(unreachable)?;
            stream
                .set_read_timeout(Some(patience))
                .map_err(unreachable)?;
            return Ok((Box::new(stream), "localhost"));
        }
        let host = self
            .url
            .strip_prefix("http://")
            .map(|rest| rest.trim_end_matches('/'));
        let Some(host) = host.filter(|host| !host.is_empty() && !host.contains(['/', '@', '?']))
        else {
            return Err(Failure::new(
                Exit::Usage,
                format_args!("cannot use the URL {}", self.url),
                "it is neither http://HOST:PORT nor unix:PATH",
                "write it like http://localhost:6623",
            ));
        };
        let bare = host
            .rsplit_once(':')
            .is_none_or(|(_, port)| port.contains(']'));
        let stream = if bare {
            TcpStream::connect(format!("{host}:80"))
        } else if let Some(port) = host
            .strip_prefix("localhost:")
            .and_then(|port| port.parse().ok())
        {
            // Loopback by its definition (RFC 6761), also where nothing is there to look names up.
            let loopback = [
                IpAddr::from(Ipv4Addr::LOCALHOST),
                Ipv6Addr::LOCALHOST.into(),
            ];
            TcpStream::connect(&loopback.map(|address| SocketAddr::new(address, port))[..])
        } else {
            TcpStream::connect(host)
        };
        let stream = stream.map_err(unreachable)?;
        stream
            .set_read_timeout(Some(patience))
            .map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        Ok((Box::new(stream), host))
    }
}

/// A connection.
pub(super) trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

fn exchange(
    stream: &mut dyn Stream,
    host: &str,
    secret: Option<&str>,
    request: &Request,
) -> io::Result<Answer> {
    let mut bytes = head(host, secret, request).into_bytes();
    bytes.extend_from_slice(&request.body);
    // A server that refuses early may close before it has read everything; its answer still counts.
    let sent = stream.write_all(&bytes);
    let mut answer = Vec::new();
    let read = stream.take(MAX_ANSWER).read_to_end(&mut answer);
    match parse(&answer) {
        Some(answer) => Ok(answer),
        None => {
            sent?;
            read?;
            Err(io::Error::new(
                ErrorKind::InvalidData,
                "what answers there is no HTTP server",
            ))
        }
    }
}

fn head(host: &str, secret: Option<&str>, request: &Request) -> String {
    let mut head = format!("{} {}", request.method, request.path);
    for (index, (name, value)) in request.query.iter().enumerate() {
        head.push(if index == 0 { '?' } else { '&' });
        head.push_str(name);
        head.push('=');
        head.push_str(&escape(value));
    }
    head.push_str(" HTTP/1.1\r\nhost: ");
    head.push_str(host);
    head.push_str("\r\nconnection: close\r\n");
    if let Some(secret) = secret {
        head.push_str("authorization: Bearer ");
        head.push_str(secret);
        head.push_str("\r\n");
    }
    if let Some(content_type) = &request.content_type {
        head.push_str("content-type: ");
        head.push_str(content_type);
        head.push_str("\r\n");
    }
    if request.method != "GET" {
        head.push_str(&format!("content-length: {}\r\n", request.body.len()));
    }
    head.push_str("\r\n");
    head
}

/// Percent-encodes everything but the characters that mean themselves anywhere in a URL.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// The answer, if it is whole.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, rest) = bytes.split_at_checked(end)?;
    let body = rest.get(4..)?;
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let status = lines
        .next()?
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    let (mut outcome, mut length) = (None, None);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("onced-outcome") {
            outcome = Some(value.trim().to_owned());
        } else if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse::<usize>().ok()?);
        }
    }
    let body = match length {
        Some(length) => body.get(..length)?,
        None => body,
    };
    Some(Answer {
        status,
        outcome,
        body: body.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_only_when_it_is_whole() {
        let whole =
            b"HTTP/1.1 201 Created\r\nOnced-Outcome: acquired\r\nContent-Length: 2\r\n\r\n{}";
        let answer = parse(whole).unwrap();
        assert_eq!(
            (answer.status, answer.outcome.as_deref()),
            (201, Some("acquired"))
        );
        assert_eq!(answer.body, b"{}");
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "first {end} bytes");
        }
        for other in [
            &b"-ERR no\r\n\r\n"[..],
            b"HTTP/1.1 abc\r\n\r\n",
            b"\r\n\r\n",
        ] {
            assert_eq!(parse(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn keys_of_any_bytes_are_escaped_once() {
        assert_eq!(escape(b"a/b +%\xff.."), "a%2Fb%20%2B%25%FF..");
    }
}
