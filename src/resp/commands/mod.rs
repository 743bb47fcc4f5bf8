//! What each request asks for. One table describes every command: it is where names are looked up, where the
//! number of arguments is checked, and what `COMMAND` tells.

mod connection;
mod describe;
mod keys;
mod once;
mod pubsub;
mod rights;
mod scan;
pub(super) mod scripts;
mod server;
mod strings;
mod table;
mod transactions;

use std::borrow::Cow;
use std::fmt;

use bytes::{Bytes, BytesMut};

pub(super) use self::connection::{Connection, Quiet};
pub(super) use self::pubsub::Channel;
pub(super) use self::scan::Positions;
pub(super) use self::scripts::Scripts;
pub(super) use self::server::Question;
use self::table::COMMANDS;
use super::face::Face;
use super::frame::integer;
use super::program::Item;
use super::render::Answer;
use super::reply::Writer;
use crate::engine::Unit;
use crate::model::command::{Command, StringVerb, Verb};
use crate::model::key::{KeyError, RecordKey};

/// What `COMMAND` tells of a command, and what runs it.
#[derive(Debug)]
pub(super) struct Description {
    /// In lower case; of a subcommand with its container: `client|id`.
    name: &'static str,
    /// The number of arguments, the name counted; negative: at least so many.
    arity: i64,
    run: Run,
    flags: &'static str,
    keys: Option<Keys>,
    /// Categories, without the at sign.
    categories: &'static str,
    summary: &'static str,
    since: &'static str,
    group: &'static str,
    subcommands: &'static [Description],
}

/// Which arguments are keys, and what is done to them.
#[derive(Clone, Copy, Debug)]
struct Keys {
    first: i64,
    last: i64,
    step: i64,
    /// The first argument of them says how many there are.
    counted: bool,
    access: &'static str,
}

type Run = fn(&mut Call<'_>) -> Result<Next, Refusal>;

impl Description {
    const fn new(name: &'static str, arity: i64, run: Run) -> Description {
        Description {
            name,
            arity,
            run,
            flags: "",
            keys: None,
            categories: "",
            summary: "",
            since: "",
            group: "",
            subcommands: &[],
        }
    }

    const fn flags(mut self, flags: &'static str, categories: &'static str) -> Description {
        self.flags = flags;
        self.categories = categories;
        self
    }

    /// Keys from the first argument to the `last` (negative: counted from the end), every `step`th.
    const fn keys(mut self, last: i64, step: i64, access: &'static str) -> Description {
        self.keys = Some(Keys {
            first: 1,
            last,
            step,
            counted: false,
            access,
        });
        self
    }

    /// So many keys as argument `count` says, behind it, every `step`th.
    const fn counted_keys(mut self, count: i64, step: i64, access: &'static str) -> Description {
        self.keys = Some(Keys {
            first: count,
            last: 0,
            step,
            counted: true,
            access,
        });
        self
    }

    const fn says(
        mut self,
        group: &'static str,
        since: &'static str,
        summary: &'static str,
    ) -> Description {
        self.group = group;
        self.since = since;
        self.summary = summary;
        self
    }

    const fn contains(mut self, subcommands: &'static [Description]) -> Description {
        self.subcommands = subcommands;
        self
    }

    /// Whether it has that flag.
    fn is(&self, flag: &str) -> bool {
        self.flags.split_ascii_whitespace().any(|one| one == flag)
    }

    /// The name without its container.
    fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    fn takes(&self, args: usize) -> bool {
        let args = i64::try_from(args).unwrap_or(i64::MAX);
        if self.arity < 0 {
            args >= self.arity.saturating_neg()
        } else {
            args == self.arity
        }
    }
}

/// A request on its way to an answer.
pub(super) struct Call<'a> {
    /// The request, its name first.
    pub(super) args: &'a [Bytes],
    /// The command's name for texts.
    pub(super) name: &'static str,
    /// Whose request it is.
    pub(super) connection: &'a mut Connection,
    /// What all connections share.
    pub(super) face: &'a Face,
    /// What the engine will decide.
    pub(super) units: &'a mut Vec<Unit>,
    /// Replies that need no engine.
    pub(super) local: &'a mut BytesMut,
}

/// How a request goes on.
#[derive(Debug)]
pub(super) enum Next {
    /// Its reply, if it has one, is in [`Call::local`].
    Replied,
    /// The engine decides, and this makes a reply of it.
    Decide(Answer),
    /// The same, but the decision may take its time: nothing else is decided with it.
    Wait(Answer),
    /// The engine is asked something else.
    Ask(Question),
    /// The reply is in [`Call::local`], and nothing after this request is looked at.
    Close,
}

/// An error reply: the first word, and a text. Nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal(Cow<'static, [u8]>);

impl Refusal {
    pub(super) const SYNTAX: Refusal = Refusal::new("ERR syntax error");
    pub(super) const NOT_AN_INTEGER: Refusal =
        Refusal::new("ERR value is not an integer or out of range");
    pub(super) const TOO_LONG: Refusal =
        Refusal::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");

    pub(super) const fn new(text: &'static str) -> Refusal {
        Refusal(Cow::Borrowed(text.as_bytes()))
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.0
    }

    /// As it is told of an `EXEC` that was not understood: its transaction is gone.
    fn as_aborted(&self) -> Refusal {
        let why = self
            .text()
            .strip_prefix(b"ERR wrong")
            .map(|rest| [b"wrong", rest].concat());
        match why {
            Some(why) => Refusal(Cow::Owned(
                [b"EXECABORT Transaction discarded because of: ", &why[..]].concat(),
            )),
            None => self.clone(),
        }
    }

    fn expiry(name: &str) -> Refusal {
        Refusal::from(format!("ERR invalid expire time in '{name}' command"))
    }

    /// `text` with outside bytes at its `%`, which Redis shows up to a zero byte.
    fn quoting(text: &str, shown: &[u8]) -> Refusal {
        let (before, after) = text.split_once('%').unwrap_or((text, ""));
        Refusal(Cow::Owned(
            [before.as_bytes(), clip(shown, 128), after.as_bytes()].concat(),
        ))
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal(Cow::Owned(text.into_bytes()))
    }
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Refusal {
        Refusal::from(format!("ERR {error}"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// Every command with its summary and the version it is of, for the manual; subcommands in place of their
/// containers.
#[cfg(test)]
pub(super) fn listed() -> impl Iterator<Item = (String, &'static str, &'static str)> {
    let each = COMMANDS
        .iter()
        .flat_map(|command| match command.subcommands {
            [] => std::slice::from_ref(command),
            subcommands => subcommands,
        });
    each.map(|command| {
        let name = command.name.to_ascii_uppercase().replace('|', " ");
        let since = if command.group == "once" {
            ""
        } else {
            command.since
        };
        (name, command.summary, since)
    })
}

/// Runs one request. What it leaves in `units` and `local` after an error is to be thrown away.
pub(super) fn run(call: &mut Call<'_>) -> Result<Next, Refusal> {
    if let Some(answer) = transactions::barred(call) {
        return answer;
    }
    let mut answer = run_or_queue(call);
    if let Err(refusal) = &mut answer {
        let name = call.args.first().map_or(&[][..], |name| name);
        call.connection.refused(name);
        if name.eq_ignore_ascii_case(b"exec") {
            *refusal = refusal.as_aborted();
        }
    }
    answer
}

fn run_or_queue(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let (found, command) = described(call.args)?;
    call.name = command.name;
    rights::check(call.connection, command)?;
    if call.connection.only_subscribes() && !pubsub::allowed(found.name) {
        return Err(Refusal::from(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are allowed in this context",
            command.name
        )));
    }
    if let Some(queued) = transactions::queue(call, command) {
        return queued;
    }
    run_checked(call, command)
}

/// Runs it, if it stays where the connection may go.
fn run_checked(call: &mut Call<'_>, command: &Description) -> Result<Next, Refusal> {
    let before = call.units.len();
    let next = (command.run)(call)?;
    rights::sign_units(
        call.connection,
        call.units.get_mut(before..).unwrap_or_default(),
    )?;
    if let Next::Ask(question) = &next {
        rights::check_question(call.connection, question)?;
    }
    Ok(next)
}

/// The command of a request and the subcommand, which is the same where there is none.
fn described(args: &[Bytes]) -> Result<(&'static Description, &'static Description), Refusal> {
    let arg = |at: usize| args.get(at).map_or(&[][..], |bytes| bytes);
    let found = find(COMMANDS, arg(0)).ok_or_else(|| unknown(args))?;
    let mut command = found;
    if !found.subcommands.is_empty() && args.len() > 1 {
        command = find(found.subcommands, arg(1)).ok_or_else(|| {
            let container = found.name.to_ascii_uppercase();
            Refusal::quoting(
                &format!("ERR unknown subcommand '%'. Try {container} HELP."),
                arg(1),
            )
        })?;
    }
    if !command.takes(args.len()) {
        return Err(wrong_number(command.name));
    }
    Ok((found, command))
}

/// What scripts cannot do.
pub(super) const NOT_FROM_SCRIPT: Refusal =
    Refusal::new("ERR This Redis command is not allowed from script");

/// What a command asks for that a script calls.
pub(super) fn in_script(
    args: &[Bytes],
    reads: bool,
    connection: &mut Connection,
    face: &Face,
) -> Result<Item, Refusal> {
    let name = args.first().map_or(&[][..], |name| name);
    if find(COMMANDS, name).is_none() {
        return Err(Refusal::new("ERR Unknown Redis command called from script"));
    }
    let (_, command) = described(args).map_err(|refusal| match refusal {
        refusal if refusal.text().starts_with(b"ERR wrong number") => {
            Refusal::new("ERR Wrong number of args calling Redis command from script")
        }
        refusal => refusal,
    })?;
    // Claims have no place there: their holder is a process, and a script has ended before it could work.
    if command.is("noscript") || command.group == "once" {
        return Err(NOT_FROM_SCRIPT);
    }
    rights::check(connection, command)?;
    if reads && command.is("write") {
        return Err(Refusal::new(
            "ERR Write commands are not allowed from read-only scripts.",
        ));
    }
    let (mut units, mut local) = (Vec::new(), BytesMut::new());
    let mut call = Call {
        args,
        name: command.name,
        connection,
        face,
        units: &mut units,
        local: &mut local,
    };
    Ok(match run_checked(&mut call, command)? {
        Next::Decide(answer) | Next::Wait(answer) => Item::Decide(units, answer, command.name),
        Next::Ask(question) => Item::Ask(question),
        Next::Replied | Next::Close => Item::Replied(local),
    })
}

/// Looks a name up, in any case; the slice is sorted by name.
fn find(among: &'static [Description], name: &[u8]) -> Option<&'static Description> {
    let lower = |b: &u8| b.to_ascii_lowercase();
    among
        .binary_search_by(|command| command.own_name().bytes().cmp(name.iter().map(lower)))
        .ok()
        .and_then(|at| among.get(at))
}

fn wrong_number(name: &str) -> Refusal {
    Refusal::from(format!(
        "ERR wrong number of arguments for '{name}' command"
    ))
}

/// Redis's text, with as much of the request as it shows.
fn unknown(args: &[Bytes]) -> Refusal {
    const SHOWN: usize = 128;
    let name = args.first().map_or(&[][..], |name| clip(name, SHOWN));
    let mut shown = Vec::new();
    for argument in args.iter().skip(1) {
        let room = SHOWN.saturating_sub(shown.len());
        if room == 0 {
            break;
        }
        shown.push(b'\'');
        shown.extend_from_slice(clip(argument, room));
        shown.extend_from_slice(b"' ");
    }
    let parts = [
        b"ERR unknown command '",
        name,
        b"', with args beginning with: ",
        &shown,
    ];
    Refusal(Cow::Owned(parts.concat()))
}

/// At most so many bytes, and none from a zero byte on: what Redis shows of an argument.
fn clip(bytes: &[u8], most: usize) -> &[u8] {
    let end = bytes.iter().take(most).position(|b| *b == 0);
    bytes
        .get(..end.unwrap_or(bytes.len().min(most)))
        .unwrap_or_default()
}

impl Call<'_> {
    /// An argument, the name being number 0; none is as good as an empty one.
    pub(super) fn arg(&self, at: usize) -> &[u8] {
        self.args.get(at).map_or(&[], |bytes| bytes)
    }

    /// Where a reply goes that needs no engine.
    pub(super) fn reply(&mut self) -> Writer<'_> {
        Writer::new(self.local, self.connection.protocol)
    }

    fn ok(&mut self) -> Result<Next, Refusal> {
        self.reply().status("OK");
        Ok(Next::Replied)
    }

    /// The record of an argument, in the selected database's namespace.
    fn key(&self, at: usize) -> Result<RecordKey, Refusal> {
        Ok(RecordKey::new(self.connection.namespace(), self.arg(at))?)
    }

    /// An argument that is kept as a value or result.
    fn value(&self, at: usize) -> Result<Bytes, Refusal> {
        kept(self.args.get(at), self.face.options.limits.result)
    }

    fn int(&self, at: usize) -> Result<i64, Refusal> {
        integer(self.arg(at)).ok_or(Refusal::NOT_AN_INTEGER)
    }

    /// Asks the engine what is known of a value, without its bytes.
    fn look(&mut self, key: RecordKey) {
        self.units.push(Unit::One(look(key)));
    }

    /// One string command for the engine.
    fn one(&mut self, key: RecordKey, verb: StringVerb) {
        self.units.push(Unit::One(string_command(key, verb)));
    }
}

fn look(key: RecordKey) -> Command {
    string_command(key, StringVerb::Read).without_bodies()
}

fn string_command(key: RecordKey, verb: StringVerb) -> Command {
    Command::new(key, Verb::String(verb))
}

/// Bytes that will be kept for long. Small ones are copied: a slice would keep the whole buffer it came in.
fn kept(argument: Option<&Bytes>, most: usize) -> Result<Bytes, Refusal> {
    let bytes = argument.cloned().unwrap_or_default();
    match bytes.len() {
        len if len > most => Err(Refusal::TOO_LONG),
        len if len <= crate::model::body::INLINE_LIMIT => Ok(Bytes::copy_from_slice(&bytes)),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_so_that_every_name_is_found() {
        for commands in std::iter::once(COMMANDS).chain(COMMANDS.iter().map(|c| c.subcommands)) {
            assert!(commands.is_sorted_by_key(Description::own_name));
            for command in commands {
                let upper = command.own_name().to_ascii_uppercase();
                let found = find(commands, upper.as_bytes()).expect("it is there");
                assert_eq!(found.name, command.name);
                assert!(!command.summary.is_empty() && !command.since.is_empty());
            }
        }
        assert!(find(COMMANDS, b"nosuch").is_none());
        assert!(find(COMMANDS, b"").is_none());
    }
}
