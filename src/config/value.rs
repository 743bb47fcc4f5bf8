//! The texts that settings are written in; the same as flag, in the environment and in the file.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserializer, de};

use crate::model::time::Span;
use crate::resp::NxWithoutExpiry;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The loopback addresses of both families, 127.0.0.1 and ::1, on this port.
    Loopback(u16),
    /// This one.
    Exact(SocketAddr),
}

impl Address {
    /// Whether nothing but this machine can reach it.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self {
            Address::Loopback(_) => true,
            Address::Exact(address) => address.ip().to_canonical().is_loopback(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Loopback(port) => write!(f, "localhost:{port}"),
            Address::Exact(address) => address.fmt(f),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let port = text.strip_prefix("localhost:").unwrap_or(text);
        if let Ok(port) = port.parse() {
            return Ok(Address::Loopback(port));
        }
        if let Ok(address) = text.parse() {
            return Ok(Address::Exact(address));
        }
        Err(if text.parse::<IpAddr>().is_ok() || text == "localhost" {
            format!("the port is missing: write {text}:PORT, an IPv6 address in brackets")
        } else {
            "not an address: write PORT, localhost:PORT, 127.0.0.1:PORT or [::1]:PORT".to_owned()
        })
    }
}

/// A number of bytes: `1048576`, `64KiB`, `32MiB`, `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Size, &'static str> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let factor = match unit {
            "" | "B" => 1_usize,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err("not a size: write bytes, 64KiB, 32MiB or 1GiB"),
        };
        if number.is_empty() {
            return Err("not a size: write bytes, 64KiB, 32MiB or 1GiB");
        }
        let number = number.parse::<usize>().ok();
        number
            .and_then(|number| number.checked_mul(factor))
            .map(Size)
            .ok_or("more bytes than this machine can count")
    }
}

/// A duration that is not zero: zero never means "no limit" (SPEC 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positive(pub Span);

impl FromStr for Positive {
    type Err = String;

    fn from_str(text: &str) -> Result<Positive, String> {
        match Span::parse(text) {
            Ok(Span::ZERO) => Err("a duration of 0 is no duration".to_owned()),
            Ok(span) => Ok(Positive(span)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What a `SET NX` without expiry means (SPEC 7), by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithoutExpiry(pub NxWithoutExpiry);

impl FromStr for WithoutExpiry {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<WithoutExpiry, &'static str> {
        NxWithoutExpiry::parse(text)
            .map(WithoutExpiry)
            .ok_or("write \"retention\", \"forever\" or \"error\"")
    }
}

/// The least grave of the log lines that are written: `info` leaves out `debug` and `trace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(pub tracing::Level);

impl Level {
    const NAMES: [(&'static str, tracing::Level); 5] = [
        ("error", tracing::Level::ERROR),
        ("warn", tracing::Level::WARN),
        ("info", tracing::Level::INFO),
        ("debug", tracing::Level::DEBUG),
        ("trace", tracing::Level::TRACE),
    ];
}

impl Default for Level {
    fn default() -> Level {
        Level(tracing::Level::INFO)
    }
}

impl FromStr for Level {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Level, &'static str> {
        let mut names = Level::NAMES.iter();
        names
            .find(|(name, _)| name.eq_ignore_ascii_case(text))
            .map(|(_, level)| Level(*level))
            .ok_or("write \"error\", \"warn\", \"info\", \"debug\" or \"trace\"")
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Level::NAMES.iter();
        let name = names.find(|(_, level)| *level == self.0);
        f.write_str(name.map_or("info", |(name, _)| name))
    }
}

/// The permissions of a file, as chmod(1) writes them: `0660`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

/// For this user and group.
impl Default for Mode {
    fn default() -> Mode {
        Mode(0o660)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for Mode {
    type Err = &'static str;

    /// The leading zero is asked for: a number of the file would come here in decimal digits, `0o660` as 432.
    fn from_str(text: &str) -> Result<Mode, &'static str> {
        let octal = text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok();
        mode.filter(|mode| octal && (1..=0o777).contains(mode))
            .map(Mode)
            .ok_or("not a mode: write it in octal digits with a leading zero, as text: \"0660\"")
    }
}

/// A group of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    /// By its number.
    Number(u32),
    /// By its name in /etc/group.
    Name(String),
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Number(number) => number.fmt(f),
            Group::Name(name) => f.write_str(name),
        }
    }
}

impl FromStr for Group {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Group, &'static str> {
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        if text.is_empty() || !text.bytes().all(plain) {
            return Err("not a group: write its name or its number");
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            // chown(2) takes the largest number for "leave it as it is".
            let number = text.parse().ok().filter(|number| *number != u32::MAX);
            return number
                .map(Group::Number)
                .ok_or("no group has a number that large");
        }
        Ok(Group::Name(text.to_owned()))
    }
}

/// Reads a value of the file by its text form; whole numbers stand for their digits.
pub(super) fn from_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    struct Text<T>(std::marker::PhantomData<T>);

    impl<T: FromStr<Err: fmt::Display>> de::Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text or a whole number")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            text.parse()
                .map_err(|error| E::custom(format_args!("{text:?}: {error}")))
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }
    }

    deserializer.deserialize_any(Text(std::marker::PhantomData))
}

macro_rules! read_from_text {
    ($($name:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                $crate::config::value::from_text(deserializer)
            }
        }
    )*};
}

pub(super) use read_from_text;

read_from_text!(Address, Size, Positive, Level, WithoutExpiry, Mode, Group);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_parse_in_four_forms() {
        let exact = |text: &str| Some(Address::Exact(text.parse().unwrap()));
        let table = [
            ("6623", Some(Address::Loopback(6623))),
            ("localhost:0", Some(Address::Loopback(0))),
            ("127.0.0.1:80", exact("127.0.0.1:80")),
            ("[::1]:80", exact("[::1]:80")),
            ("", None),
            ("65536", None),
            ("localhost", None),
            ("127.0.0.1", None),
            ("::1", None),
            ("example.com:80", None),
            ("127.0.0.1:", None),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<Address>().ok(), expected, "{text:?}");
        }
        let error = "127.0.0.1".parse::<Address>().unwrap_err();
        assert!(error.starts_with("the port is missing"), "{error}");
    }

    #[test]
    fn sizes_parse_with_binary_units() {
        let table = [
            ("0", Some(0)),
            ("1048576", Some(1 << 20)),
            ("7B", Some(7)),
            ("64KiB", Some(64 << 10)),
            ("32MiB", Some(32 << 20)),
            ("1GiB", Some(1 << 30)),
            ("", None),
            ("MiB", None),
            ("1MB", None),
            ("1.5MiB", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("18446744073709551615GiB", None),
        ];
        for (text, expected) in table {
            assert_eq!(
                text.parse().ok().map(|Size(size)| size),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_timeout_of_zero_is_refused() {
        for bad in ["0", "0s", "", "-1s", "1.5s"] {
            assert!(bad.parse::<Positive>().is_err(), "{bad:?}");
        }
        assert_eq!("10s".parse(), Ok(Positive(Span::from_secs(10))));
    }

    #[test]
    fn levels_have_five_names() {
        for name in ["error", "warn", "info", "debug", "trace"] {
            let level = name.parse::<Level>().unwrap();
            assert_eq!(level.to_string(), name);
            assert_eq!(name.to_uppercase().parse(), Ok(level));
        }
        for bad in ["", "loud", "off", "5", "onced=debug", "info,debug"] {
            assert!(bad.parse::<Level>().is_err(), "{bad:?}");
        }
        assert_eq!(Level::default().to_string(), "info");
    }

    #[test]
    fn modes_are_octal_and_say_so() {
        let table = [
            ("0660", Some(0o660)),
            ("0600", Some(0o600)),
            ("0777", Some(0o777)),
            ("00666", Some(0o666)),
            ("660", None),
            ("432", None),
            ("0", None),
            ("0000", None),
            ("01777", None),
            ("0689", None),
            ("0o660", None),
            ("u=rw", None),
            ("", None),
            ("+660", None),
        ];
        for (text, expected) in table {
            let mode = text.parse().ok().map(|Mode(mode)| mode);
            assert_eq!(mode, expected, "{text:?}");
        }
        assert_eq!(Mode(0o60).to_string(), "0060");
    }

    #[test]
    fn groups_are_numbers_or_names() {
        let table = [
            ("0", Some(Group::Number(0))),
            ("998", Some(Group::Number(998))),
            ("onced", Some(Group::Name("onced".into()))),
            ("www-data", Some(Group::Name("www-data".into()))),
            ("4294967295", None),
            ("99999999999", None),
            ("", None),
            ("a b", None),
            ("a:b", None),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse().ok(), expected, "{text:?}");
        }
    }
}
