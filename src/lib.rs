//! onced: a dedupe appliance. Applications ask it *am I the one who does this, or was it done already?*, and
//! the answer is decided and made durable in one atomic step.
//!
//! ```text
//! client                                                                          disk
//!   | bytes                                                                         ^
//!   v                                                                               |
//! resp/  http/   bytes <-> Command, Outcome       journal/  group commit: one write + fdatasync
//!   |      |                                         ^         for all that came in meanwhile
//!   v      v                                         | entries, in LSN order
//! engine/   look the record up --> model::transition::apply --> effect
//!   |         ^ recent records       (pure: no clock, no IO)      |
//!   |         | (memory)                                          v
//!   |         +------------------------------------ recent records <- effect
//!   |                                                    |  checkpoint (background)
//!   |                                                    v
//!   +-- answer, once its LSN is durable         store/  redb: open records, done records by expiry
//! ```
//!
//! In reading order:
//!
//! * [`model`] decides: one pure function from policy, record, command and instant to outcome and effect.
//! * [`journal`] makes decisions durable; [`store`] keeps records, and alone knows redb.
//! * [`engine`] gives the one order of decisions, and lets an answer go once what it rests on is durable.
//! * [`resp`] and [`http`] translate between bytes and the model's vocabulary, nothing else.
//! * [`server`] listens; [`cli`] is the command line; [`config`] and [`error`] are theirs.
//! * [`manual`] is text alone, which `http` and `cli` show; `sync` is what journal and store share about disks.
//!
//! Imports point that way only, never back: model <- journal, store <- engine <- resp, http <- server <- cli.
//! The tests hold that.

#[cfg(feature = "canary")]
pub mod canary;
pub mod cli;
pub mod config;
pub mod engine;
pub mod error;
pub mod http;
pub mod journal;
pub mod manual;
pub mod model;
pub mod resp;
pub mod server;
pub mod store;
mod sync;
