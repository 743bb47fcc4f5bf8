//! A tiny blocking client of the Redis protocol: RESP2, one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::PATIENCE;

/// A connection.
pub struct Redis {
    stream: BufReader<TcpStream>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Bytes(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    /// The connection ended instead.
    End,
}

impl Redis {
    pub fn connect(address: SocketAddr) -> Redis {
        Redis::try_connect(address).expect("a connection")
    }

    /// A connection to a server that may be gone.
    pub fn try_connect(address: SocketAddr) -> Option<Redis> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.set_nodelay(true).ok()?;
        let stream = BufReader::new(stream);
        Some(Redis { stream })
    }

    /// Sends one command to a server that may go, and reads its reply.
    pub fn try_words(&mut self, words: &[&[u8]]) -> Reply {
        if self.try_send(&encode(words)) {
            self.reply()
        } else {
            Reply::End
        }
    }

    /// Sends one command, its words split at blanks, and reads its reply.
    pub fn command(&mut self, line: &str) -> Reply {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send(&encode(&words));
        self.reply()
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends bytes as far as the server takes them, and tells whether it took them all.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Nothing more will be sent.
    pub fn half_close(&mut self) {
        self.stream.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply {
        let mut line = String::new();
        if self.stream.read_line(&mut line).unwrap_or(0) == 0 {
            return Reply::End;
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).unwrap_or(("", ""));
        match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(rest.parse().unwrap()),
            "$" | "*" if rest == "-1" => Reply::Null,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                if self.stream.read_exact(&mut bytes).is_err() {
                    return Reply::End;
                }
                bytes.truncate(bytes.len() - 2);
                Reply::Bytes(bytes)
            }
            "*" => {
                let members: Vec<_> = (0..rest.parse().unwrap()).map(|_| self.reply()).collect();
                let cut = members.last() == Some(&Reply::End);
                if cut {
                    Reply::End
                } else {
                    Reply::Array(members)
                }
            }
            _ => panic!("not a reply: {line:?}"),
        }
    }

    /// Everything until the connection ends.
    pub fn rest(&mut self) -> String {
        String::from_utf8_lossy(&self.rest_bytes()).into_owned()
    }

    /// The same, as bytes.
    pub fn rest_bytes(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }
}

/// One command in its wire form.
pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
