//! One connection without its socket: requests out of a buffer, replies into another.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;

use bytes::BytesMut;

use super::Limits;
use super::commands::{self, Call, Connection, Next, Question, Quiet, Refusal};
use super::face::Face;
use super::frame::{Parser, ProtocolError, Request};
use super::render::{Answer, Decision};
use super::reply::{Protocol, Writer};
use crate::engine::{Engine, Unit};

/// Argument bytes after which a batch ends, and reply bytes after which [`Session::serve`] lets the caller
/// write: a long pipeline then waits in its socket, not in memory.
const ENOUGH: usize = 1 << 20;

/// What to do after [`Session::serve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Write the replies, read more, call again.
    Continue,
    /// Write the replies and call again before reading: there is more in the input, or a request that may
    /// take its time waits for the replies before it to be sent.
    More,
    /// Write the replies, then close.
    Close,
}

/// Requests that are decided together, and what their replies will be made of.
#[derive(Debug, Default)]
pub struct Batch {
    units: Vec<Unit>,
    slots: Vec<Slot>,
    /// The replies that need no engine, one behind the other.
    local: BytesMut,
    /// Asked once everything else is answered.
    question: Option<Slot<Question>>,
    size: usize,
    /// It is one claim that may be held.
    waits: bool,
    close: bool,
    /// Nothing of this batch is answered.
    silent: bool,
}

#[derive(Debug)]
struct Slot<What = Reply> {
    what: What,
    protocol: Protocol,
    quiet: bool,
}

#[derive(Debug)]
enum Reply {
    /// So many bytes of the replies that need no engine.
    Local(usize),
    /// Made of decisions, for the command of that name.
    Decided(Answer, &'static str),
}

impl Batch {
    /// What the engine is to decide, once.
    pub fn units(&mut self) -> Vec<Unit> {
        std::mem::take(&mut self.units)
    }

    /// Whether another request may join, by number, by bytes read, and by bytes answered already.
    fn has_room(&self, limits: &Limits) -> bool {
        self.slots.len() < limits.pipeline && self.size < ENOUGH && self.local.len() < ENOUGH
    }

    /// Whether nothing was read.
    fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.question.is_none() && self.size == 0
    }
}

/// Read, and not all decided and written yet.
#[derive(Debug)]
struct Unsent {
    slots: std::vec::IntoIter<Slot>,
    units: Vec<Unit>,
    /// How many units are decided.
    decided: usize,
    /// What became of the last of those.
    decisions: Vec<Decision>,
    /// How many of these are written.
    used: usize,
    local: BytesMut,
    /// How many bytes of those that need no engine are written.
    told: usize,
    question: Option<Slot<Question>>,
    /// It is one claim that may be held.
    waits: bool,
    close: bool,
    silent: bool,
}

impl Unsent {
    fn new(mut batch: Batch) -> Unsent {
        Unsent {
            units: batch.units(),
            decided: 0,
            slots: batch.slots.into_iter(),
            decisions: Vec::new(),
            used: 0,
            local: batch.local,
            told: 0,
            question: batch.question,
            waits: batch.waits,
            close: batch.close,
            silent: batch.silent,
        }
    }

    /// The units that are not decided yet.
    fn undecided(&self) -> &[Unit] {
        self.units.get(self.decided..).unwrap_or_default()
    }

    /// So many more units are decided.
    fn decide(&mut self, units: usize, decisions: Vec<Decision>) {
        self.decided = self.decided.saturating_add(units);
        (self.decisions, self.used) = (decisions, 0);
    }

    /// Writes replies in order, until `output` is longer than `most` or those of what is decided are all written;
    /// whether they are.
    fn write(&mut self, output: &mut BytesMut, most: usize) -> bool {
        if self.silent {
            return true;
        }
        while output.len() <= most {
            if !self.is_next_decided() {
                return true;
            }
            let Some(slot) = self.slots.next() else {
                return true;
            };
            let mut reply = Writer::new(output, slot.protocol);
            match slot.what {
                Reply::Local(len) => {
                    let end = self.told.saturating_add(len);
                    let bytes = self.local.get(self.told..end).unwrap_or_default();
                    self.told = end;
                    if !slot.quiet {
                        reply.raw(bytes);
                    }
                }
                Reply::Decided(answer, command) => {
                    let end = self.used.saturating_add(answer.width());
                    let decisions = self.decisions.get(self.used..end).unwrap_or_default();
                    self.used = end;
                    if !slot.quiet {
                        answer.write(decisions, command, &mut reply);
                    }
                }
            }
        }
        !self.is_next_decided()
    }

    /// Whether there is a next reply, and all it is made of.
    fn is_next_decided(&self) -> bool {
        match self.slots.as_slice().first().map(|slot| &slot.what) {
            None => false,
            Some(Reply::Local(_)) => true,
            Some(Reply::Decided(answer, _)) => {
                self.used.saturating_add(answer.width()) <= self.decisions.len()
            }
        }
    }
}

/// One connection of the Redis face.
#[derive(Debug)]
pub struct Session {
    face: Arc<Face>,
    parser: Parser,
    connection: Connection,
    /// A request that may take its time, read while others were in the batch.
    held: Option<Request>,
    unsent: Option<Unsent>,
    closed: bool,
    /// HTTP was read, and is to be warned of.
    http: bool,
}

impl Session {
    /// A new connection; `peer` is who is at the other end, for `CLIENT INFO` and the log.
    #[must_use]
    pub fn new(face: Arc<Face>, peer: String) -> Session {
        let connection = Connection::new(face.enter(), peer, face.access());
        Session {
            face,
            parser: Parser::default(),
            connection,
            held: None,
            unsent: None,
            closed: false,
            http: false,
        }
    }

    /// Its id, as `CLIENT ID` tells it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.connection.id
    }

    /// Bytes that were taken out of the input and are not decided yet: a request that is still arriving, or
    /// one that waits for the replies before it to be sent.
    #[must_use]
    pub fn pending(&self) -> usize {
        let held = self.held.as_ref().map_or(0, Request::memory);
        let queued = self.connection.transaction.size();
        self.parser
            .pending()
            .saturating_add(held)
            .saturating_add(queued)
    }

    /// Whether memory goes into the request that is arriving much faster than bytes come in.
    #[must_use]
    pub fn is_growing(&self) -> bool {
        self.parser.has_many()
    }

    /// Answers the requests in `input`, in order, at the end of `output`.
    ///
    /// To be dropped where it waits only when the connection ends.
    pub async fn serve(
        &mut self,
        engine: &Engine,
        input: &mut BytesMut,
        output: &mut BytesMut,
    ) -> Flow {
        self.serve_while(engine, input, output, pending()).await
    }

    /// The same for a client that may go: where a claim is to be held, it ends with `gone`, so that nobody is
    /// handed work who is not there.
    pub async fn serve_while(
        &mut self,
        engine: &Engine,
        input: &mut BytesMut,
        output: &mut BytesMut,
        gone: impl Future<Output = ()>,
    ) -> Flow {
        let mut gone = pin!(gone);
        let most = output.len().saturating_add(ENOUGH);
        loop {
            if let Some(unsent) = &mut self.unsent {
                if !unsent.write(output, most) {
                    return Flow::More;
                }
                if !unsent.undecided().is_empty() {
                    // What they were is written: its memory goes before more of it comes.
                    unsent.decisions = Vec::new();
                    if output.len() > most || (unsent.waits && !output.is_empty()) {
                        return Flow::More;
                    }
                    let submitted = engine.submit_some(unsent.undecided());
                    let some = if unsent.waits {
                        tokio::select! {
                            biased;
                            () = &mut gone => return Flow::Close,
                            some = submitted => some,
                        }
                    } else {
                        submitted.await
                    };
                    unsent.decide(some.units, some.answers);
                    continue;
                }
                let question = unsent.question.take();
                let close = unsent.close;
                self.unsent = None;
                if let Some(question) = question {
                    let mut unheard = BytesMut::new();
                    let out = if question.quiet {
                        &mut unheard
                    } else {
                        &mut *output
                    };
                    let mut reply = Writer::new(out, question.protocol);
                    let (face, connection) = (&self.face, &mut self.connection);
                    question
                        .what
                        .answer(face, engine, connection, &mut reply)
                        .await;
                }
                if close {
                    return Flow::Close;
                }
                if output.len() > most {
                    return Flow::More;
                }
            }
            if self.held.is_some() && !output.is_empty() {
                return Flow::More;
            }
            let batch = self.read(input);
            if batch.is_empty() && !batch.close {
                return Flow::Continue;
            }
            if std::mem::take(&mut self.http) {
                self.warn(engine);
            }
            self.unsent = Some(Unsent::new(batch));
        }
    }

    /// Takes complete requests out of `input`, up to what is decided together; the rest stays there. Whatever
    /// they change about the connection itself is in force for the requests after them.
    pub fn read(&mut self, input: &mut BytesMut) -> Batch {
        let mut batch = Batch::default();
        let face = self.face.clone();
        self.connection.set_access(face.access());
        let (limits, few) = (&face.options.limits, unknown_limits(&face.options.limits));
        while !self.closed && batch.has_room(limits) {
            let request = match self.held.take() {
                Some(request) => request,
                None => match self.parser.parse(
                    input,
                    match self.is_unknown() {
                        true => &few,
                        false => limits,
                    },
                ) {
                    Ok(Some(request)) => request,
                    Ok(None) => break,
                    Err(error) => {
                        self.refuse(error, &mut batch);
                        break;
                    }
                },
            };
            batch.size = batch.size.saturating_add(request.memory());
            if !self.take(request, &mut batch) {
                break;
            }
        }
        batch.close |= self.closed;
        batch
    }

    /// Writes the replies of a batch, all but that of a question, which only [`Session::serve`] can ask.
    pub fn answer(&mut self, batch: Batch, decisions: Vec<Decision>, output: &mut BytesMut) {
        let mut unsent = Unsent::new(batch);
        unsent.decide(usize::MAX, decisions);
        unsent.write(output, usize::MAX);
    }

    /// Takes one request into the batch; whether another may follow it there.
    fn take(&mut self, request: Request, batch: &mut Batch) -> bool {
        let (units, local) = (batch.units.len(), batch.local.len());
        let quiet_before = self.connection.quiet;
        if quiet_before == Quiet::Next {
            self.connection.quiet = Quiet::This;
        }
        let mut call = Call {
            args: &request.args,
            name: "",
            connection: &mut self.connection,
            face: &self.face,
            units: &mut batch.units,
            local: &mut batch.local,
        };
        let next = commands::run(&mut call);
        let name = call.name;
        if matches!(next, Ok(Next::Wait(_))) && !batch.slots.is_empty() {
            batch.units.truncate(units);
            self.connection.quiet = quiet_before;
            self.held = Some(request);
            return false;
        }
        let quiet = self.connection.quiet.silences();
        if self.connection.quiet == Quiet::This {
            self.connection.quiet = Quiet::No;
        }
        let protocol = self.connection.protocol;
        let more = matches!(next, Ok(Next::Replied | Next::Decide(_)) | Err(_));
        batch.waits = matches!(next, Ok(Next::Wait(_)));
        let what = match next {
            Ok(Next::Decide(answer) | Next::Wait(answer)) => Reply::Decided(answer, name),
            Ok(Next::Ask(what)) => {
                batch.question = Some(Slot {
                    what,
                    protocol,
                    quiet,
                });
                return false;
            }
            Ok(Next::Replied) => Reply::Local(batch.local.len().saturating_sub(local)),
            Ok(Next::Close) => {
                self.closed = true;
                Reply::Local(batch.local.len().saturating_sub(local))
            }
            Err(refusal) => {
                batch.units.truncate(units);
                batch.local.truncate(local);
                self.error(&refusal, batch)
            }
        };
        batch.slots.push(Slot {
            what,
            protocol,
            quiet,
        });
        more
    }

    fn refuse(&mut self, error: ProtocolError, batch: &mut Batch) {
        self.closed = true;
        if error == ProtocolError::Http {
            self.http = true;
            batch.silent = true;
            return;
        }
        let text = match error {
            ProtocolError::Arguments(_) if self.is_unknown() => {
                "ERR Protocol error: unauthenticated multibulk length".to_owned()
            }
            ProtocolError::BulkLength if self.is_unknown() => {
                "ERR Protocol error: unauthenticated bulk length".to_owned()
            }
            error => format!("ERR {error}"),
        };
        let what = self.error(&Refusal::from(text), batch);
        batch.slots.push(Slot {
            what,
            protocol: self.connection.protocol,
            quiet: self.connection.quiet == Quiet::All,
        });
    }

    /// Whether a secret is asked for, and none was given yet.
    fn is_unknown(&self) -> bool {
        !self.connection.is_known()
    }

    fn error(&self, refusal: &Refusal, batch: &mut Batch) -> Reply {
        let before = batch.local.len();
        Writer::new(&mut batch.local, self.connection.protocol).error(refusal.text());
        Reply::Local(batch.local.len().saturating_sub(before))
    }

    /// A web page may be trying to reach this port; the log says who it was.
    fn warn(&self, engine: &Engine) {
        if let Some(held_back) = self.face.warning_due(engine.now().boot) {
            tracing::warn!(
                peer = %self.connection.peer,
                held_back,
                "closed a connection that spoke HTTP on the Redis port"
            );
        }
    }
}

/// What a connection may send before it has given a secret, as in Redis.
fn unknown_limits(limits: &Limits) -> Limits {
    Limits {
        bulk: limits.bulk.min(16 << 10),
        arguments: limits.arguments.min(10),
        ..limits.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.face.leave();
    }
}
