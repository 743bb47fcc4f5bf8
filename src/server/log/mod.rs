//! Log lines on standard error, written by a thread of their own: whoever reads them may be slow or gone
//! without holding up an answer. Lines that find no room are counted and the count is logged.
//!
//! * [`line`]: from an event to its line.
//! * [`held`]: how many of a kind are written.

mod held;
mod line;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::{fmt, registry, reload};

use self::held::{Held, WINDOW};
use self::line::{Lines, Style};

/// Lines that wait for their reader.
const WAITING: usize = 1024;
/// How long the last lines may take at the end of the process.
const LAST: Duration = Duration::from_secs(1);
/// How often is looked whether there is something to tell of lines that were held back.
const LOOK: Duration = Duration::from_secs(1);

/// The log of this process; see [`Log::flush`].
#[derive(Clone)]
pub struct Log {
    lines: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
    /// Changes which lines are written.
    leveled: Arc<dyn Fn(Level) + Send + Sync>,
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

impl Log {
    /// Begins to log what is at least as grave as `level`.
    #[must_use]
    pub fn start(level: Level) -> Log {
        let (mut log, entries) = Log::new();
        let (style, held) = (Style::of_stderr(), Arc::<Held>::default());
        let rest = Rest {
            lost: Arc::clone(&log.lost),
            held: Arc::clone(&held),
            style,
        };
        std::thread::spawn(move || write_all(&entries, &rest, &mut io::stderr()));
        let writer = log.clone();
        // A second start in one process keeps the first log; only tests do that.
        let lines = fmt::layer()
            .log_internal_errors(false)
            .event_format(Lines { style, held })
            .with_writer(move || writer.clone());
        let (filter, handle) = reload::Layer::new(LevelFilter::from_level(level));
        log.leveled = Arc::new(move |level| {
            // It fails only where no subscriber is left, and then nobody reads lines.
            let _ = handle.reload(LevelFilter::from_level(level));
        });
        let _ = registry().with(lines).with(filter).try_init();
        log
    }

    /// From here on these lines are written.
    pub fn set_level(&self, level: Level) {
        (self.leveled)(level);
    }

    fn new() -> (Log, Receiver<Entry>) {
        let (lines, entries) = sync_channel(WAITING);
        let lost = Arc::default();
        let log = Log {
            lines,
            lost,
            leveled: Arc::new(|_| {}),
        };
        (log, entries)
    }

    /// Waits until what was logged so far is written, but not for long.
    pub fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.lines.try_send(Entry::Flush(done)).is_ok() {
            let _ = written.recv_timeout(LAST);
        }
    }
}

/// One call is one line.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Entry::Line(line.to_vec())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is told of lines that are not there.
#[derive(Default)]
struct Rest {
    lost: Arc<AtomicU64>,
    held: Arc<Held>,
    style: Style,
}

impl Rest {
    fn tell(&self, out: &mut impl Write, window: Duration) {
        let lines = self.lost.swap(0, Ordering::Relaxed);
        if lines > 0 {
            let _ = writeln!(
                out,
                "{lines} log lines are missing here: they were not read in time"
            );
        }
        for more in self.held.close(window) {
            let _ = out.write_all(self.style.more(&more).as_bytes());
        }
    }

    /// The next entry. `None`: it is time to tell.
    fn next(&self, entries: &Receiver<Entry>) -> Result<Option<Entry>, RecvTimeoutError> {
        if self.held.is_empty() {
            let entry = entries.recv().map_err(|_| RecvTimeoutError::Disconnected);
            return entry.map(Some);
        }
        match entries.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            entry => entry.map(Some),
        }
    }
}

/// Errors of `out` are passed over: there is nobody left to tell.
fn write_all(entries: &Receiver<Entry>, rest: &Rest, out: &mut impl Write) {
    while let Ok(entry) = rest.next(entries) {
        match entry {
            Some(Entry::Line(line)) => {
                let _ = out.write_all(&line);
            }
            Some(Entry::Flush(done)) => {
                rest.tell(out, Duration::ZERO);
                let _ = done.send(());
            }
            None => {}
        }
        rest.tell(out, WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest_of(log: &Log) -> Rest {
        Rest {
            lost: Arc::clone(&log.lost),
            ..Rest::default()
        }
    }

    #[test]
    fn a_flood_of_one_kind_is_cut_and_counted_and_others_are_written() {
        let (log, entries) = Log::new();
        let rest = rest_of(&log);
        let lines = Lines {
            style: Style::Plain,
            held: Arc::clone(&rest.held),
        };
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(lines)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..held::ALLOWED + 5 {
                tracing::warn!(number, "garbage: {}", "a\nb");
            }
            tracing::warn!("something else");
        });
        let _ = log.lines.send(Entry::Flush(sync_channel(1).0));
        drop(log);
        let mut out = Vec::new();
        write_all(&entries, &rest, &mut out);
        let text = String::from_utf8(out).unwrap();
        {
            let written = text
                .lines()
                .filter(|line| line.contains(" WARN garbage: a\\nb number="));
            assert_eq!(written.count() as u64, held::ALLOWED, "{text}");
            assert!(
                text.contains("5 more like this in the last 10 s: garbage: a\\nb number=24"),
                "{text}"
            );
            assert_eq!(text.matches("something else").count(), 1, "{text}");
        }
    }

    #[test]
    fn lines_without_room_are_counted_and_never_block() {
        let (mut log, entries) = Log::new();
        for _ in 0..WAITING + 3 {
            log.write_all(b"line\n").unwrap();
        }
        let rest = rest_of(&log);
        drop(log);
        let mut out = Vec::new();
        write_all(&entries, &rest, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("line\n").count(), WAITING);
        assert!(text.contains("3 log lines are missing here"), "{text}");
    }

    #[test]
    fn a_reader_that_is_gone_stops_nothing() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (mut log, entries) = Log::new();
        log.write_all(b"line\n").unwrap();
        let flushed = log.clone();
        let rest = rest_of(&log);
        let writer = std::thread::spawn(move || write_all(&entries, &rest, &mut Gone));
        flushed.flush();
        drop((log, flushed));
        writer.join().unwrap();
    }
}
