//! Query parameters, read by the route's table: what is unknown, repeated, empty or of the wrong kind is bad
//! input (SPEC 6). Ranges of durations and lengths of texts stand here for the reference alone: they are checked where
//! every face has them, in the model. Lengths of bytes are checked here: a prefix has no other place.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

use super::percent::{BadEscape, Plus, decode};
use crate::model::record::{Retention, State, Token};
use crate::model::time::{Span, SpanError};

/// A parameter of a route.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether it must be there.
    pub required: bool,
    /// One sentence for the reference.
    pub doc: &'static str,
}

/// What a parameter holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A duration from the first to the second.
    Span(Span, Span),
    /// A duration from the first to the second, or `forever`.
    Retention(Span, Span),
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// A token.
    Token,
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A record's state.
    State,
    /// UTF-8 text of at most so many bytes.
    Text(usize),
    /// Any bytes, at most so many.
    Bytes(usize),
    /// The name of a namespace.
    Namespace,
    /// Where a listing goes on.
    Cursor,
}

/// As the reference says it.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Span(least, most) => write!(f, "duration, {least} to {most}"),
            Kind::Retention(least, most) => {
                write!(f, "duration, {least} to {most}, or `forever`")
            }
            Kind::Number(least, most) => write!(f, "{least} to {most}"),
            Kind::Token => f.write_str("token"),
            Kind::Flag => f.write_str("`true` or `false`"),
            Kind::Choice(words) => write!(f, "`{}`", words.join("` or `")),
            Kind::State => f.write_str("state"),
            Kind::Text(most) => write!(f, "text, up to {most} bytes"),
            Kind::Bytes(most) => write!(f, "up to {most} bytes"),
            Kind::Namespace => f.write_str("namespace"),
            Kind::Cursor => f.write_str("cursor"),
        }
    }
}

#[derive(Debug)]
enum Value<'q> {
    Span(Span),
    Retention(Retention),
    Number(u64),
    Token(Token),
    Flag(bool),
    Word(&'static str),
    State(State),
    Text(Cow<'q, str>),
    Bytes(Cow<'q, [u8]>),
}

/// The parameters of a request, each of its kind.
#[derive(Debug, Default)]
pub struct Params<'q> {
    values: Vec<(&'static str, Value<'q>)>,
}

/// Why a query is refused; the text says what to send instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamError(String);

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParamError {}

impl From<BadEscape> for ParamError {
    fn from(error: BadEscape) -> ParamError {
        ParamError(format!("in the query, {error}"))
    }
}

impl<'q> Params<'q> {
    /// Reads a raw query by a route's table.
    ///
    /// # Errors
    /// [`ParamError`].
    pub fn parse(
        table: &'static [Param],
        query: Option<&'q str>,
    ) -> Result<Params<'q>, ParamError> {
        let mut params = Params::default();
        for pair in query.unwrap_or_default().split('&') {
            if pair.is_empty() && query.is_none_or(str::is_empty) {
                break;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name, Plus::Space)?;
            let Some(param) = table.iter().find(|param| param.name.as_bytes() == &*name) else {
                return Err(unknown(table, &name));
            };
            let name = param.name;
            if params.values.iter().any(|(given, _)| *given == name) {
                return Err(ParamError(format!("{name} is given twice; give it once")));
            }
            if value.is_empty() {
                return Err(ParamError(format!(
                    "{name} is empty; give it a value or leave it out"
                )));
            }
            let value = param.read(decode(value, Plus::Space)?)?;
            params.values.push((name, value));
        }
        let missing = |param: &&Param| param.required && params.value(param.name).is_none();
        if let Some(param) = table.iter().find(missing) {
            let (name, doc) = (param.name, param.doc);
            return Err(ParamError(format!("{name} is missing: {doc}")));
        }
        Ok(params)
    }

    fn value(&self, name: &str) -> Option<&Value<'q>> {
        let found = self.values.iter().find(|(given, _)| *given == name);
        found.map(|(_, value)| value)
    }

    /// A duration.
    #[must_use]
    pub fn span(&self, name: &str) -> Option<Span> {
        match self.value(name)? {
            Value::Span(span) => Some(*span),
            _ => None,
        }
    }

    /// A retention.
    #[must_use]
    pub fn retention(&self, name: &str) -> Option<Retention> {
        match self.value(name)? {
            Value::Retention(retention) => Some(*retention),
            _ => None,
        }
    }

    /// A number, where the table's range fits the type asked for.
    #[must_use]
    pub fn number<N: TryFrom<u64>>(&self, name: &str) -> Option<N> {
        match self.value(name)? {
            Value::Number(number) => N::try_from(*number).ok(),
            _ => None,
        }
    }

    /// A token.
    #[must_use]
    pub fn token(&self, name: &str) -> Option<Token> {
        match self.value(name)? {
            Value::Token(token) => Some(*token),
            _ => None,
        }
    }

    /// A flag; false if it is not given.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Flag(true)))
    }

    /// One of the table's words.
    #[must_use]
    pub fn word(&self, name: &str) -> Option<&'static str> {
        match self.value(name)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// A state.
    #[must_use]
    pub fn state(&self, name: &str) -> Option<State> {
        match self.value(name)? {
            Value::State(state) => Some(*state),
            _ => None,
        }
    }

    /// A text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Bytes, or a cursor's.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        match self.value(name)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// A cursor that goes on after this key.
#[must_use]
pub fn cursor(key: &Bytes) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

impl Param {
    fn read<'q>(&self, raw: Cow<'q, [u8]>) -> Result<Value<'q>, ParamError> {
        let name = self.name;
        let bad = |what: &dyn fmt::Display| ParamError(format!("{name}: {what}"));
        if let Kind::Bytes(most) = self.kind {
            if raw.len() > most {
                let size = raw.len();
                return Err(bad(&format_args!(
                    "at most {most} bytes, and these are {size}"
                )));
            }
            return Ok(Value::Bytes(raw));
        }
        let text = match raw {
            Cow::Borrowed(raw) => std::str::from_utf8(raw).map(Cow::Borrowed).ok(),
            Cow::Owned(raw) => String::from_utf8(raw).map(Cow::Owned).ok(),
        };
        let text = text.ok_or_else(|| bad(&"not UTF-8 text"))?;
        let span = |text: &str| Span::parse(text).map_err(|error: SpanError| bad(&error));
        Ok(match self.kind {
            Kind::Span(..) => Value::Span(span(&text)?),
            Kind::Retention(..) if text == "forever" => Value::Retention(Retention::Forever),
            Kind::Retention(..) => Value::Retention(Retention::For(span(&text)?)),
            Kind::Number(least, most) => digits(&text)
                .filter(|number| (least..=most).contains(number))
                .map(Value::Number)
                .ok_or_else(|| bad(&format_args!("a whole number from {least} to {most}")))?,
            Kind::Token => digits(&text)
                .and_then(Token::new)
                .map(Value::Token)
                .ok_or_else(|| bad(&"a token is a whole number from 1 to 2^53 - 1"))?,
            Kind::Flag => match &*text {
                "true" => Value::Flag(true),
                "false" => Value::Flag(false),
                _ => return Err(bad(&"true or false")),
            },
            Kind::Choice(words) => words
                .iter()
                .find(|word| **word == text)
                .map(|word| Value::Word(word))
                .ok_or_else(|| bad(&words.join(" or ")))?,
            Kind::State => State::parse(&text)
                .map(Value::State)
                .ok_or_else(|| bad(&State::ALL.map(State::name).join(" or ")))?,
            Kind::Cursor => URL_SAFE_NO_PAD
                .decode(text.as_bytes())
                .map(|key| Value::Bytes(Cow::Owned(key)))
                .map_err(|_| bad(&"not a cursor; pass `next` of the page before as it is"))?,
            Kind::Text(_) | Kind::Bytes(_) | Kind::Namespace => Value::Text(text),
        })
    }
}

/// A number of digits alone: no sign, no blank, nothing that overflows.
fn digits(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn unknown(table: &[Param], name: &[u8]) -> ParamError {
    if name.is_empty() {
        return ParamError("the query holds a parameter without a name".into());
    }
    // Enough to recognise it; what the client sent may be long and hold anything.
    let shown = name.get(..name.len().min(64)).unwrap_or_default();
    let known: Vec<_> = table.iter().map(|param| param.name).collect();
    let known = if known.is_empty() {
        "no parameters".into()
    } else {
        known.join(", ")
    };
    ParamError(format!(
        "unknown parameter {}; this route takes {known}",
        shown.escape_ascii()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Param] = &[
        p("span", Kind::Span(Span::ZERO, Span::from_secs(60))),
        p("keep", Kind::Retention(Span::ZERO, Span::from_secs(60))),
        p("n", Kind::Number(1, 1000)),
        p("token", Kind::Token),
        p("flag", Kind::Flag),
        p("word", Kind::Choice(&["lease", "once"])),
        p("state", Kind::State),
        p("text", Kind::Text(128)),
        p("bytes", Kind::Bytes(128)),
        p("cursor", Kind::Cursor),
    ];

    const fn p(name: &'static str, kind: Kind) -> Param {
        Param {
            name,
            kind,
            required: false,
            doc: "doc",
        }
    }

    #[test]
    fn a_query_is_read_by_the_table() {
        let query = "span=30s&keep=forever&n=1000&token=9007199254740991&flag=true&word=once\
                     &state=in_doubt&text=a+b%2B%C3%A9&bytes=%FF%00+&cursor=YS9i";
        let params = Params::parse(TABLE, Some(query)).unwrap();
        assert_eq!(params.span("span"), Some(Span::from_secs(30)));
        assert_eq!(params.retention("keep"), Some(Retention::Forever));
        assert_eq!(params.number("n"), Some(1000_u32));
        assert_eq!(params.token("token"), Some(Token::MAX));
        assert!(params.flag("flag"));
        assert_eq!(params.word("word"), Some("once"));
        assert_eq!(params.state("state"), Some(State::InDoubt));
        assert_eq!(params.text("text"), Some("a b+é"));
        assert_eq!(params.bytes("bytes"), Some(&b"\xff\0 "[..]));
        assert_eq!(params.bytes("cursor"), Some(&b"a/b"[..]));
        assert_eq!(cursor(&Bytes::from_static(b"a/b")), "YS9i");
        for empty in [None, Some("")] {
            assert!(Params::parse(TABLE, empty).unwrap().values.is_empty());
        }
    }

    #[test]
    fn what_the_table_does_not_allow_is_bad_input_and_says_why() {
        let table = [
            ("other=1", "unknown parameter other"),
            ("Span=1", "unknown parameter Span"),
            ("n=1&n=2", "n is given twice"),
            ("n=1&%6E=1", "n is given twice"),
            ("n=", "n is empty"),
            ("flag", "flag is empty"),
            ("&", "without a name"),
            ("n=1&", "without a name"),
            ("=1", "without a name"),
            ("n=0", "n: a whole number from 1 to 1000"),
            ("n=1001", "n: a whole number"),
            ("n=-1", "n: a whole number"),
            ("n=+1", "n: a whole number"),
            ("n=1.0", "n: a whole number"),
            ("n=99999999999999999999", "n: a whole number"),
            ("token=0", "token: a token is"),
            ("token=9007199254740992", "token: a token is"),
            ("flag=TRUE", "flag: true or false"),
            ("flag=1", "flag: true or false"),
            ("word=twice", "word: lease or once"),
            ("state=open", "state: pending or retry"),
            ("span=1.5", "span: not a duration"),
            ("text=%FF", "text: not UTF-8"),
            ("text=%zz", "two hex digits"),
            ("cursor=a/b", "cursor: not a cursor"),
        ];
        for (query, expected) in table {
            let error = Params::parse(TABLE, Some(query)).unwrap_err().to_string();
            assert!(error.contains(expected), "{query}: {error}");
        }
        let long = "x".repeat(5000);
        let error = Params::parse(TABLE, Some(&long)).unwrap_err().to_string();
        assert!(error.len() < 300, "what is echoed is bounded");
    }

    #[test]
    fn a_required_parameter_must_be_there() {
        const NEEDED: &[Param] = &[Param {
            required: true,
            ..p("token", Kind::Token)
        }];
        let error = Params::parse(NEEDED, None).unwrap_err().to_string();
        assert_eq!(error, "token is missing: doc");
        assert!(Params::parse(NEEDED, Some("token=1")).is_ok());
    }
}
