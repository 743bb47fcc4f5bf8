//! What is decided as one: the commands of a transaction, or one script.

use bytes::{Bytes, BytesMut};

use super::commands::{self, Connection, Question, Refusal};
use super::face::Face;
use super::lua::{self, Prepared};
use super::render::{Answer, Decision, unavailable};
use super::reply::{Protocol, Writer};
use crate::engine::program::{Program, Steps, Watch};
use crate::engine::{Engine, Unit};
use crate::model::command::Payload;
use crate::model::key::RecordKey;
use crate::model::policy::FingerprintKind;

/// Bytes of replies after which the others of a transaction are errors: they are all held until the last is
/// decided.
const MAX_REPLIES: usize = 64 << 20;

/// Commands that are decided as one, and what has to hold before.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
    /// A transaction: its replies are one array, and there is none if a watched key changed.
    pub(super) transaction: Option<Vec<Watch>>,
    pub(super) protocol: Protocol,
    /// The connection's state before, for a transaction that is not run.
    pub(super) before: Option<Box<Connection>>,
}

/// One command of a plan.
#[derive(Debug)]
pub(super) enum Item {
    /// Answered already.
    Replied(BytesMut),
    /// Decided by the engine, for the command of that name.
    Decide(Vec<Unit>, Answer, &'static str),
    /// Asked beside decisions, after them.
    Ask(Question),
    /// A script.
    Script(Box<Script>),
}

/// A script and what it is given.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: Bytes,
    pub(super) sha: String,
    pub(super) keys: Vec<Bytes>,
    pub(super) argv: Vec<Bytes>,
    /// It may not write.
    pub(super) reads: bool,
    /// The connection it runs for, as it was then.
    pub(super) connection: Connection,
    /// Read for the next run.
    pub(super) prepared: Option<Result<Prepared, Vec<u8>>>,
}

/// What came of an item.
enum Piece {
    Bytes(BytesMut),
    /// The next of the questions.
    Ask,
}

struct Running<'a> {
    plan: Plan,
    keys: Vec<RecordKey>,
    face: &'a Face,
}

impl Program for Running<'_> {
    /// `None`: a watched key changed.
    type Answer = Option<Vec<Piece>>;

    fn keys(&self) -> &[RecordKey] {
        &self.keys
    }

    fn prepare(&mut self) {
        for item in &mut self.plan.items {
            match item {
                Item::Script(script) => {
                    let limits = lua::Limits::SCRIPT;
                    let Script {
                        text, keys, argv, ..
                    } = &**script;
                    script.prepared = Some(Prepared::new(text, keys, argv, limits));
                }
                Item::Decide(units, ..) => units
                    .iter()
                    .flat_map(Unit::commands)
                    .filter_map(|command| command.verb.payload())
                    .for_each(hash),
                _ => {}
            }
        }
    }

    fn run(&mut self, steps: &mut Steps<'_>) -> Self::Answer {
        let mut watches = self.plan.transaction.iter().flatten();
        if !watches.all(|watch| steps.unchanged(watch)) {
            return None;
        }
        let protocol = self.plan.protocol;
        let mut size = 0_usize;
        let mut pieces = Vec::with_capacity(self.plan.items.len());
        for item in &mut self.plan.items {
            let mut bytes = BytesMut::new();
            let mut reply = Writer::new(&mut bytes, protocol);
            match item {
                Item::Replied(replied) => reply.raw(replied),
                Item::Decide(units, answer, name) => {
                    let decisions = decide(units, steps);
                    answer.write(&decisions, name, &mut reply);
                }
                Item::Ask(question) => {
                    if !question.answer_at(steps.now(), &mut reply) {
                        pieces.push(Piece::Ask);
                        continue;
                    }
                }
                Item::Script(script) => run_script(script, self.face, steps, &mut bytes, protocol),
            }
            size = size.saturating_add(bytes.len());
            if size > MAX_REPLIES {
                bytes.clear();
                Writer::new(&mut bytes, protocol).error(
                    b"ERR the replies of this transaction are more than 64 MiB; it was run all the same",
                );
            }
            pieces.push(Piece::Bytes(bytes));
        }
        Some(pieces)
    }
}

fn decide(units: &[Unit], steps: &mut Steps<'_>) -> Vec<Decision> {
    units.iter().flat_map(|unit| steps.decide(unit)).collect()
}

/// Fingerprints of large payloads are not computed under the lock.
fn hash(payload: &Payload) {
    for kind in [FingerprintKind::Raw, FingerprintKind::Json] {
        // What cannot be read as that kind is decided, like everything, by the model.
        let _ = payload.fingerprint(kind);
    }
}

/// A script that ends in an error has done nothing.
fn run_script(
    script: &mut Script,
    face: &Face,
    steps: &mut Steps<'_>,
    out: &mut BytesMut,
    protocol: Protocol,
) {
    let prepared = match script.prepared.take() {
        Some(Ok(prepared)) => prepared,
        Some(Err(text)) => return Writer::new(out, protocol).error(&text),
        None => return Writer::new(out, protocol).error(b"ERR the script was not read"),
    };
    let before = steps.mark();
    let (reads, connection) = (script.reads, &mut script.connection);
    let ended = prepared.run(
        &script.sha,
        &mut |args| one_command(&args, reads, connection, face, steps),
        out,
        protocol,
    );
    if !ended {
        steps.undo(before);
    }
}

/// A command that a script calls: its reply in RESP2.
fn one_command(
    args: &[Bytes],
    reads: bool,
    connection: &mut Connection,
    face: &Face,
    steps: &mut Steps<'_>,
) -> BytesMut {
    let mut bytes = BytesMut::new();
    let refused = |refusal: Refusal, bytes: &mut BytesMut| {
        bytes.clear();
        Writer::new(bytes, Protocol::Resp2).error(refusal.text());
    };
    match commands::in_script(args, reads, connection, face) {
        Err(refusal) => refused(refusal, &mut bytes),
        Ok(Item::Replied(replied)) => return replied,
        Ok(Item::Decide(units, answer, name)) => {
            let decisions = decide(&units, steps);
            answer.write(
                &decisions,
                name,
                &mut Writer::new(&mut bytes, Protocol::Resp2),
            );
        }
        Ok(Item::Ask(question)) => {
            let mut reply = Writer::new(&mut bytes, Protocol::Resp2);
            if !question.answer_at(steps.now(), &mut reply) {
                refused(commands::NOT_FROM_SCRIPT, &mut bytes);
            }
        }
        Ok(Item::Script(_)) => refused(commands::NOT_FROM_SCRIPT, &mut bytes),
    }
    bytes
}

impl Plan {
    /// Runs it, and writes its replies once it is durable.
    pub(super) async fn answer(
        mut self,
        face: &Face,
        engine: &Engine,
        connection: &mut Connection,
        reply: &mut Writer<'_>,
    ) {
        let (before, transaction) = (self.before.take(), self.transaction.is_some());
        let keys = self.keys();
        let questions: Vec<Question> = self.items.iter().filter_map(Item::question).collect();
        let mut questions = questions.into_iter();
        let plan = self;
        let running = Running { plan, keys, face };
        let pieces = match engine.run(running).await {
            Ok(Some(pieces)) => pieces,
            not_run => {
                if let Some(before) = before {
                    *connection = *before;
                }
                return match not_run {
                    Err(why) => reply.error(&unavailable(why)),
                    Ok(_) => reply.null_array(),
                };
            }
        };
        if transaction {
            reply.array(pieces.len());
        }
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => reply.raw(&bytes),
                Piece::Ask => {
                    if let Some(question) = questions.next() {
                        Box::pin(question.answer(face, engine, connection, reply)).await;
                    }
                }
            }
        }
    }

    fn keys(&self) -> Vec<RecordKey> {
        let watched = self
            .transaction
            .iter()
            .flatten()
            .flat_map(Watch::keys)
            .cloned();
        let mut keys: Vec<RecordKey> = watched.collect();
        for item in &self.items {
            match item {
                Item::Decide(units, ..) => {
                    let commands = units.iter().flat_map(Unit::commands);
                    keys.extend(commands.map(|command| command.key.clone()));
                }
                Item::Script(script) => keys.extend(script.record_keys()),
                Item::Replied(_) | Item::Ask(_) => {}
            }
        }
        keys
    }
}

impl Item {
    /// What is asked after the decision: not the time, which is that of the decision.
    fn question(&self) -> Option<Question> {
        match self {
            Item::Ask(Question::Size(namespace)) => Some(Question::Size(namespace)),
            Item::Ask(Question::Info {
                sections,
                databases,
            }) => Some(Question::Info {
                sections: sections.clone(),
                databases: databases.clone(),
            }),
            Item::Ask(Question::Flush(namespaces)) => Some(Question::Flush(namespaces.clone())),
            Item::Ask(Question::Scan(scan)) => Some(Question::Scan(scan.clone())),
            _ => None,
        }
    }
}

impl Script {
    /// What is no key of a record is refused where a command uses it.
    fn record_keys(&self) -> impl Iterator<Item = RecordKey> {
        let namespace = self.connection.namespace();
        let key = move |key: &Bytes| RecordKey::new(namespace, key).ok();
        self.keys.iter().filter_map(key)
    }
}
