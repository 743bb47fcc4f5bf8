//! The walls against browsers (SPEC 6): a page that points its own name at this machine, or that sends
//! requests across origins, must not reach the API. Listening on loopback is no wall against the user's own
//! browser, and content types are none either: `curl -d` has to work.

use std::borrow::Cow;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use hyper::http::request::Parts;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request was stopped at the door. Nothing of it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// `Host`, or the host in the request line, is not one of ours.
    Host,
    /// `Origin` is another one.
    Origin,
    /// The browser says that another site sent it.
    Site,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stopped::Host => {
                "this server answers only under localhost, a loopback address or a configured host name, \
                 named once in Host; use one of them, or add the name to the configuration"
            }
            Stopped::Origin => {
                "a web page of another origin sent this request; send it from a program instead"
            }
            Stopped::Site => {
                "a web page of another site sent this request; send it from a program instead"
            }
        })
    }
}

/// The names under which the server is known besides loopback.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<Box<str>>);

impl Hosts {
    /// Names from the configuration; case, a port and a trailing dot do not matter.
    #[must_use]
    pub fn new(names: &[String]) -> Hosts {
        let parse = |name: &String| Authority::parse(name.as_bytes()).map(|it| it.host.into());
        Hosts(names.iter().filter_map(parse).collect())
    }

    fn configured(&self, host: &str) -> bool {
        self.0.iter().any(|name| **name == *host)
    }

    /// Lets a request in or stops it. `X-Forwarded-Host` and kin say nothing.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn check(&self, parts: &Parts) -> Result<(), Stopped> {
        let host = only(&parts.headers, &HOST).flatten().ok_or(Stopped::Host)?;
        let host = Authority::parse(host.as_bytes()).ok_or(Stopped::Host)?;
        if !self.ours(&host) {
            return Err(Stopped::Host);
        }
        if let Some(named) = parts.uri.authority() {
            let named = Authority::parse(named.as_str().as_bytes());
            if !named.is_some_and(|named| self.ours(&named)) {
                return Err(Stopped::Host);
            }
        }
        match only(&parts.headers, &ORIGIN) {
            Some(None) => {}
            Some(Some(origin)) if self.same_origin(origin.as_bytes(), &host) => {}
            _ => return Err(Stopped::Origin),
        }
        match only(&parts.headers, &SEC_FETCH_SITE) {
            Some(None) => Ok(()),
            Some(Some(site)) if matches!(site.as_bytes(), b"none" | b"same-origin") => Ok(()),
            _ => Err(Stopped::Site),
        }
    }

    fn ours(&self, authority: &Authority<'_>) -> bool {
        authority.loopback() || self.configured(&authority.host)
    }

    /// The page came from this very server, or from a name the operator trusts.
    fn same_origin(&self, origin: &[u8], host: &Authority<'_>) -> bool {
        let (rest, port) = if let Some(rest) = origin.strip_prefix(b"http://") {
            (rest, 80)
        } else if let Some(rest) = origin.strip_prefix(b"https://") {
            (rest, 443)
        } else {
            return false;
        };
        let Some(page) = Authority::parse(rest) else {
            return false;
        };
        let same_port = page.port.unwrap_or(port) == host.port.unwrap_or(port);
        self.configured(&page.host) || (page.host == host.host && same_port)
    }
}

/// The header's value: `None` where there are several, `Some(None)` where there is none.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<Option<&'h HeaderValue>> {
    let mut all = headers.get_all(name).iter();
    let first = all.next();
    all.next().is_none().then_some(first)
}

/// A host and a port.
struct Authority<'a> {
    /// Lower case, without a trailing dot; an IPv6 address in its brackets.
    host: Cow<'a, str>,
    port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// `None` for what is no plain `host` or `host:port`, user names included.
    fn parse(bytes: &'a [u8]) -> Option<Authority<'a>> {
        let text = std::str::from_utf8(bytes).ok()?;
        let split = if text.starts_with('[') {
            text.find(']')? + 1
        } else {
            text.find(':').unwrap_or(text.len())
        };
        let (host, port) = text.split_at_checked(split)?;
        let port = match port {
            "" => None,
            port => {
                let digits = port.strip_prefix(':')?;
                let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
                Some(digits.parse().ok().filter(|_| plain)?)
            }
        };
        let host = host.strip_suffix('.').unwrap_or(host);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
        if host.is_empty() || !host.bytes().all(plain) {
            return None;
        }
        let host = if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(host.to_ascii_lowercase())
        } else {
            Cow::Borrowed(host)
        };
        Some(Authority { host, port })
    }

    fn loopback(&self) -> bool {
        let host = &*self.host;
        if let Some(address) = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            return address.parse().is_ok_and(|address: Ipv6Addr| {
                address.is_loopback()
                    || address
                        .to_ipv4_mapped()
                        .is_some_and(|mapped| mapped.is_loopback())
            });
        }
        host == "localhost"
            || host
                .parse()
                .is_ok_and(|address: Ipv4Addr| address.is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    type Headers = [(&'static str, &'static str)];

    fn check(uri: &str, headers: &[(&str, &str)]) -> Result<(), Stopped> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let hosts = Hosts::new(&["Onced.Example.".into(), "10.1.2.3:80".into()]);
        hosts.check(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn only_loopback_and_configured_hosts_are_answered() {
        let ours = [
            "localhost",
            "localhost.",
            "LOCALHOST:6623",
            "localhost.:6623",
            "127.0.0.1",
            "127.0.0.1:6623",
            "127.9.9.9",
            "[::1]",
            "[::1]:6623",
            "[0:0:0:0:0:0:0:1]:1",
            "[::ffff:127.0.0.1]",
            "onced.example",
            "ONCED.example.:443",
            "10.1.2.3:6623",
        ];
        for host in ours {
            assert_eq!(check("/", &[("host", host)]), Ok(()), "{host}");
        }
        let foreign = [
            "",
            "evil.example",
            "evil.example:6623",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil-localhost",
            "localhost..",
            ".localhost",
            "localhost@evil.example",
            "evil.example@localhost",
            "localhost:6623@evil.example",
            "localhost, evil.example",
            "localhost evil.example",
            "localhost/evil.example",
            "localhost\\evil.example",
            "localhost#.evil.example",
            "localhost:",
            "localhost:+1",
            "localhost:99999",
            "localhost:1:2",
            "::1",
            "[::1",
            "[::1]x",
            "[::2]",
            "[fe80::1%25lo]",
            "0.0.0.0",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "128.0.0.1",
            "onced.example.evil",
            "10.1.2.4",
        ];
        for host in foreign {
            assert_eq!(check("/", &[("host", host)]), Err(Stopped::Host), "{host}");
        }
    }

    #[test]
    fn a_missing_or_doubled_host_is_foreign_and_forwarding_headers_widen_nothing() {
        let table: &[(&Headers, Result<(), Stopped>)] = &[
            (&[], Err(Stopped::Host)),
            (
                &[("host", "localhost"), ("host", "localhost")],
                Err(Stopped::Host),
            ),
            (
                &[("host", "localhost"), ("host", "evil.example")],
                Err(Stopped::Host),
            ),
            (
                &[("host", "evil.example"), ("x-forwarded-host", "localhost")],
                Err(Stopped::Host),
            ),
            (
                &[("host", "evil.example"), ("forwarded", "host=localhost")],
                Err(Stopped::Host),
            ),
            (
                &[("host", "localhost"), ("x-forwarded-host", "evil.example")],
                Ok(()),
            ),
        ];
        for (headers, expected) in table {
            assert_eq!(check("/", headers), *expected, "{headers:?}");
        }
    }

    #[test]
    fn a_host_in_the_request_line_must_be_ours_too() {
        let table = [
            ("http://evil.example/healthz", Err(Stopped::Host)),
            ("http://localhost@evil.example/healthz", Err(Stopped::Host)),
            ("http://user@localhost/healthz", Err(Stopped::Host)),
            ("http://localhost:6623/healthz", Ok(())),
            ("http://[::1]/healthz", Ok(())),
        ];
        for (uri, expected) in table {
            assert_eq!(check(uri, &[("host", "localhost")]), expected, "{uri}");
        }
        let foreign = [("host", "evil.example")];
        assert_eq!(check("http://localhost/", &foreign), Err(Stopped::Host));
    }

    #[test]
    fn a_page_of_another_origin_or_site_is_stopped() {
        let table: &[(&Headers, Result<(), Stopped>)] = &[
            (&[("origin", "http://localhost:6623")], Ok(())),
            (&[("origin", "http://LOCALHOST:6623")], Ok(())),
            (&[("origin", "https://onced.example")], Ok(())),
            (&[("origin", "http://localhost:3000")], Err(Stopped::Origin)),
            (&[("origin", "http://localhost")], Err(Stopped::Origin)),
            (&[("origin", "http://127.0.0.1:6623")], Err(Stopped::Origin)),
            (&[("origin", "http://evil.example")], Err(Stopped::Origin)),
            (
                &[("origin", "http://localhost:6623.evil.example")],
                Err(Stopped::Origin),
            ),
            (
                &[("origin", "http://localhost:6623/x")],
                Err(Stopped::Origin),
            ),
            (&[("origin", "null")], Err(Stopped::Origin)),
            (&[("origin", "")], Err(Stopped::Origin)),
            (&[("origin", "file://localhost:6623")], Err(Stopped::Origin)),
            (
                &[
                    ("origin", "http://localhost:6623"),
                    ("origin", "http://evil.example"),
                ],
                Err(Stopped::Origin),
            ),
            (&[("sec-fetch-site", "none")], Ok(())),
            (&[("sec-fetch-site", "same-origin")], Ok(())),
            (&[("sec-fetch-site", "same-site")], Err(Stopped::Site)),
            (&[("sec-fetch-site", "cross-site")], Err(Stopped::Site)),
            (&[("sec-fetch-site", "else")], Err(Stopped::Site)),
        ];
        for (headers, expected) in table {
            let mut all = vec![("host", "localhost:6623")];
            all.extend(headers.iter());
            assert_eq!(check("/", &all), *expected, "{headers:?}");
        }
    }
}
