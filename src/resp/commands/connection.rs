//! Commands about the connection itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::transactions::Transaction;
use super::{Call, Channel, Next, Refusal};
use crate::engine::program::Watch;
use crate::model::access::{Access, Credential, Right};
use crate::model::key::DEFAULT_NAMESPACE;
use crate::resp::frame::integer;
use crate::resp::reply::Protocol;
use crate::resp::{DATABASES, REDIS_VERSION};

/// The longest name of a client or its library, in bytes.
const MAX_CLIENT_NAME: usize = 1024;

/// The namespaces of databases 0 to 15 (SPEC 7).
const NAMESPACES: [&str; DATABASES] = [
    DEFAULT_NAMESPACE,
    "db1",
    "db2",
    "db3",
    "db4",
    "db5",
    "db6",
    "db7",
    "db8",
    "db9",
    "db10",
    "db11",
    "db12",
    "db13",
    "db14",
    "db15",
];

const NOT_A_NAME: Refusal =
    Refusal::new("ERR Client names cannot contain spaces, newlines or special characters.");
const WRONG_PASSWORD: Refusal =
    Refusal::new("WRONGPASS invalid username-password pair or user is disabled.");
const LONG_NAME: Refusal = Refusal::new("ERR a client name has at most 1024 bytes");

/// What is known of one connection.
#[derive(Debug, Default)]
pub(in crate::resp) struct Connection {
    pub(in crate::resp) id: u64,
    /// Who is at the other end, for people.
    pub(in crate::resp) peer: String,
    pub(in crate::resp) protocol: Protocol,
    pub(in crate::resp) quiet: Quiet,
    pub(in crate::resp) transaction: Transaction,
    /// Who may do what, as of the batch that is being read.
    pub(super) access: Arc<Access>,
    /// Who it is, where that is asked.
    pub(super) credential: Option<Arc<Credential>>,
    /// Keys that `EXEC` looks at first.
    pub(in crate::resp) watches: Vec<Watch>,
    pub(super) subscriptions: BTreeSet<(Channel, Bytes)>,
    database: usize,
    name: Bytes,
    library: Bytes,
    library_version: Bytes,
}

/// `CLIENT REPLY`: which requests are not answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::resp) enum Quiet {
    /// None.
    #[default]
    No,
    /// The next one.
    Next,
    /// The one that is being run.
    This,
    /// All.
    All,
}

impl Quiet {
    /// Whether what was run just now goes without a reply.
    pub(in crate::resp) const fn silences(self) -> bool {
        matches!(self, Quiet::This | Quiet::All)
    }
}

impl Connection {
    /// A connection as it begins.
    pub(in crate::resp) fn new(id: u64, peer: String, access: Arc<Access>) -> Connection {
        Connection {
            id,
            peer,
            access,
            ..Connection::default()
        }
    }

    /// The namespace of the selected database.
    pub(in crate::resp) fn namespace(&self) -> &'static str {
        namespace(self.database).unwrap_or(DEFAULT_NAMESPACE)
    }

    /// Whether it has given a secret, or none is asked for.
    pub(in crate::resp) fn is_known(&self) -> bool {
        self.credential.is_some() || !self.access.is_required()
    }

    /// Whether it may see how many keys a database has.
    pub(super) fn counts(&self, database: usize) -> bool {
        let Some(credential) = &self.credential else {
            return true;
        };
        let reached = namespace(database).is_some_and(|name| credential.reaches(name));
        reached && credential.rights.allow(Right::Read)
    }

    /// The credentials that are in force. Who it was, it is as far as that credential is still among them, with
    /// what it allows now.
    pub(in crate::resp) fn set_access(&mut self, access: Arc<Access>) {
        if Arc::ptr_eq(&access, &self.access) {
            return;
        }
        let known = self.credential.take();
        self.credential = known.and_then(|known| access.again(&known).cloned());
        self.access = access;
    }

    /// As it is, without what `EXEC` ends.
    pub(super) fn copy(&self) -> Connection {
        Connection {
            id: self.id,
            peer: self.peer.clone(),
            protocol: self.protocol,
            quiet: self.quiet,
            transaction: Transaction::None,
            access: self.access.clone(),
            credential: self.credential.clone(),
            watches: Vec::new(),
            subscriptions: self.subscriptions.clone(),
            database: self.database,
            name: self.name.clone(),
            library: self.library.clone(),
            library_version: self.library_version.clone(),
        }
    }

    /// For the commands of a script: they are answered in RESP2, and select for themselves alone.
    pub(super) fn for_script(&self) -> Connection {
        Connection {
            id: self.id,
            database: self.database,
            access: self.access.clone(),
            credential: self.credential.clone(),
            ..Connection::default()
        }
    }

    /// The transaction is over, and nothing is watched any more.
    pub(super) fn end_transaction(&mut self) {
        self.transaction = Transaction::None;
        self.watches.clear();
    }

    /// A command was refused. In a transaction that aborts it; and of a `MULTI` what follows must not run.
    pub(super) fn refused(&mut self, name: &[u8]) {
        if name.eq_ignore_ascii_case(b"exec") {
            self.end_transaction();
            return;
        }
        let nested = matches!(self.transaction, Transaction::Open(_));
        if name.eq_ignore_ascii_case(b"multi") && !nested {
            self.transaction = Transaction::Barred;
        } else if !["multi", "watch"]
            .iter()
            .any(|word| name.eq_ignore_ascii_case(word.as_bytes()))
        {
            self.transaction.fail();
        }
    }

    /// In RESP2 a connection with subscriptions can do little else.
    pub(super) fn only_subscribes(&self) -> bool {
        self.protocol == Protocol::Resp2 && !self.subscriptions.is_empty()
    }

    pub(super) fn subscribed(&self, to: impl Fn(Channel) -> bool) -> usize {
        self.subscriptions
            .iter()
            .filter(|(channel, _)| to(*channel))
            .count()
    }
}

/// The namespace of a database, if there is such a database.
pub(super) fn namespace(database: usize) -> Option<&'static str> {
    NAMESPACES.get(database).copied()
}

pub(super) fn ping(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let args = call.args;
    let subscribed = call.connection.only_subscribes();
    let mut reply = call.reply();
    match (subscribed, args) {
        (_, [_, _, _, ..]) => return Err(super::wrong_number(call.name)),
        (true, args) => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(args.get(1).map_or(&[], |message| message));
        }
        (false, [_, message]) => reply.bulk(message),
        (false, _) => reply.status("PONG"),
    }
    Ok(Next::Replied)
}

pub(super) fn echo(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let args = call.args;
    call.reply()
        .bulk(args.get(1).map_or(&[], |message| message));
    Ok(Next::Replied)
}

pub(super) fn quit(call: &mut Call<'_>) -> Result<Next, Refusal> {
    call.reply().status("OK");
    Ok(Next::Close)
}

pub(super) fn select(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let Ok(number) = i32::try_from(call.int(1)?) else {
        return Err(Refusal::new(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    };
    let database = usize::try_from(number).ok().filter(|db| *db < DATABASES);
    call.connection.database = database.ok_or(Refusal::new("ERR DB index is out of range"))?;
    call.ok()
}

/// Without credentials in the configuration any password of the user `default` is right, as in Redis.
pub(super) fn auth(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let (user, secret) = match call.args {
        [_, secret] => (None, secret),
        [_, user, secret] => (Some(user), secret),
        _ => return Err(Refusal::SYNTAX),
    };
    if user.is_none() && !call.connection.access.is_required() {
        return Err(Refusal::new(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        ));
    }
    log_in(call, user, secret)?;
    call.ok()
}

/// The user `default` is whoever has the secret.
fn log_in(call: &mut Call<'_>, user: Option<&Bytes>, secret: &[u8]) -> Result<(), Refusal> {
    let name = user
        .map(|name| &name[..])
        .filter(|name| *name != b"default");
    let access = &call.connection.access;
    if !access.is_required() {
        return name.map_or(Ok(()), |_| Err(WRONG_PASSWORD));
    }
    let found = access.find(name, secret).ok_or(WRONG_PASSWORD)?;
    call.connection.credential = Some(found.clone());
    Ok(())
}

pub(super) fn hello(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let mut protocol = call.connection.protocol;
    if let Some(version) = call.args.get(1) {
        protocol = match integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(Refusal::new("NOPROTO unsupported protocol version")),
            None => {
                return Err(Refusal::new(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        };
    }
    let (mut name, mut user) = (None, None);
    let mut options = call.args.get(2..).unwrap_or_default();
    while let Some((option, rest)) = options.split_first() {
        options = match (option.to_ascii_uppercase().as_slice(), rest) {
            (b"AUTH", [given, secret, rest @ ..]) => {
                user = Some((given, secret));
                rest
            }
            (b"SETNAME", [given, rest @ ..]) => {
                name = Some(check_name(given, NOT_A_NAME)?);
                rest
            }
            _ => {
                return Err(Refusal::quoting(
                    "ERR Syntax error in HELLO option '%'",
                    option,
                ));
            }
        };
    }
    if let Some((user, secret)) = user {
        log_in(call, Some(user), secret)?;
    } else if !call.connection.is_known() {
        return Err(Refusal::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
             AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
             protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        call.connection.name = name;
    }
    call.connection.protocol = protocol;
    let id = call.connection.id;
    let mut reply = call.reply();
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.uint(protocol.number());
    reply.bulk(b"id");
    reply.uint(id);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
    Ok(Next::Replied)
}

pub(super) fn reset(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let Connection {
        protocol,
        quiet,
        transaction,
        credential,
        watches,
        subscriptions,
        database,
        name,
        ..
    } = &mut *call.connection;
    *protocol = Protocol::default();
    *quiet = Quiet::No;
    *transaction = Transaction::None;
    watches.clear();
    *credential = None;
    subscriptions.clear();
    *database = 0;
    *name = Bytes::new();
    call.reply().status("RESET");
    Ok(Next::Replied)
}

pub(super) fn set_name(call: &mut Call<'_>) -> Result<Next, Refusal> {
    call.connection.name = check_name(call.arg(2), NOT_A_NAME)?;
    call.ok()
}

pub(super) fn get_name(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let name = call.connection.name.clone();
    match name.is_empty() {
        true => call.reply().null(),
        false => call.reply().bulk(&name),
    }
    Ok(Next::Replied)
}

pub(super) fn id(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let id = call.connection.id;
    call.reply().uint(id);
    Ok(Next::Replied)
}

pub(super) fn set_info(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let option = call.arg(2);
    let value = || {
        let refusal = Refusal::quoting(
            "ERR % cannot contain spaces, newlines or special characters.",
            option,
        );
        check_name(call.arg(3), refusal)
    };
    if option.eq_ignore_ascii_case(b"lib-name") {
        call.connection.library = value()?;
    } else if option.eq_ignore_ascii_case(b"lib-ver") {
        call.connection.library_version = value()?;
    } else {
        return Err(Refusal::quoting("ERR Unrecognized option '%'", option));
    }
    call.ok()
}

/// Printable ASCII without blanks, or nothing.
fn check_name(name: &[u8], refusal: Refusal) -> Result<Bytes, Refusal> {
    if !name.iter().all(u8::is_ascii_graphic) {
        return Err(refusal);
    }
    if name.len() > MAX_CLIENT_NAME {
        return Err(LONG_NAME);
    }
    Ok(Bytes::copy_from_slice(name))
}

/// `CLIENT INFO`, and `CLIENT LIST` too: a connection sees itself alone.
pub(super) fn info(call: &mut Call<'_>) -> Result<Next, Refusal> {
    let line = line(call.connection, call.name);
    call.reply().verbatim(line.as_bytes());
    Ok(Next::Replied)
}

pub(super) fn list(call: &mut Call<'_>) -> Result<Next, Refusal> {
    if call.args.len() > 2 {
        return Err(Refusal::new(
            "ERR syntax error: CLIENT LIST takes no options here, a connection sees itself alone",
        ));
    }
    info(call)
}

fn line(connection: &Connection, command: &str) -> String {
    // Names were checked to be printable ASCII.
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "id={} addr={} name={} flags={} db={} sub={} psub={} ssub={} multi=-1 cmd={command} \
         user={} resp={} lib-name={} lib-ver={}\n",
        connection.id,
        connection.peer,
        text(&connection.name),
        if connection.subscriptions.is_empty() {
            "N"
        } else {
            "P"
        },
        connection.database,
        connection.subscribed(|channel| channel == Channel::Plain),
        connection.subscribed(|channel| channel == Channel::Pattern),
        connection.subscribed(|channel| channel == Channel::Shard),
        connection
            .credential
            .as_ref()
            .map_or("default", |credential| &*credential.name),
        connection.protocol.number(),
        text(&connection.library),
        text(&connection.library_version),
    )
}

/// `CLIENT NO-EVICT` and `CLIENT NO-TOUCH`: nothing is ever evicted, so both hold already.
pub(super) fn on_off(call: &mut Call<'_>) -> Result<Next, Refusal> {
    match call.arg(2).to_ascii_uppercase().as_slice() {
        b"ON" | b"OFF" => call.ok(),
        _ => Err(Refusal::SYNTAX),
    }
}

/// Takes effect for the next request; only `ON` has a reply itself.
pub(super) fn reply(call: &mut Call<'_>) -> Result<Next, Refusal> {
    match call.arg(2).to_ascii_uppercase().as_slice() {
        b"ON" => {
            call.connection.quiet = Quiet::No;
            return call.ok();
        }
        b"OFF" => call.connection.quiet = Quiet::All,
        b"SKIP" if call.connection.quiet != Quiet::All => call.connection.quiet = Quiet::Next,
        b"SKIP" => {}
        _ => return Err(Refusal::SYNTAX),
    }
    Ok(Next::Replied)
}
