//! One event, one line: nothing that came from outside begins another one, or speaks to a terminal.

use std::fmt::{self, Write as _};
use std::os::fd::AsFd;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::held::{Held, More, WINDOW};

/// The longest line, in bytes; what is longer is cut.
const MAX_LINE: usize = 8 << 10;

/// How lines begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Style {
    /// With the time and the level's name.
    #[default]
    Plain,
    /// With the level as sd-daemon(3) writes it: the journal notes the time itself.
    Journal,
}

impl Style {
    /// Of standard error: `JOURNAL_STREAM` names the file that it is, where the service manager connected it to
    /// the journal (systemd.exec(5)).
    pub(super) fn of_stderr() -> Style {
        let said = std::env::var("JOURNAL_STREAM").ok();
        let said = said.as_deref().and_then(|said| said.split_once(':'));
        let numbers = said.and_then(|(device, inode)| {
            let numbers: (u64, u64) = (device.parse().ok()?, inode.parse().ok()?);
            Some(numbers)
        });
        match (numbers, rustix::fs::fstat(std::io::stderr().as_fd())) {
            (Some(numbers), Ok(found)) if numbers == (found.st_dev, found.st_ino) => Style::Journal,
            _ => Style::Plain,
        }
    }

    fn begin(self, line: &mut String, level: Level) -> fmt::Result {
        match self {
            Style::Plain => {
                SystemTime.format_time(&mut Writer::new(line))?;
                write!(line, " {level:>5} ")
            }
            Style::Journal => write!(line, "<{}>", priority(level)),
        }
    }

    /// The line of what was held back.
    pub(super) fn more(self, more: &More) -> String {
        let mut line = String::new();
        // Writing into memory does not fail.
        let _ = self.begin(&mut line, more.level);
        let (count, seconds) = (more.count, WINDOW.as_secs());
        let _ = write!(line, "{count} more like this in the last {seconds} s: ");
        escape(&mut line, &more.text);
        line.push('\n');
        line
    }
}

/// The priorities of syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Writes events.
pub(super) struct Lines {
    pub(super) style: Style,
    pub(super) held: Arc<Held>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    /// Writes nothing where the line is held back. Who asks for `debug` gets all of it.
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (level, kind) = (*event.metadata().level(), event.metadata().callsite());
        let admitted = level > Level::INFO || self.held.admits(kind, level, || text_of(event));
        if !admitted {
            return Ok(());
        }
        let mut line = String::new();
        self.style.begin(&mut line, level)?;
        escape(&mut line, &text_of(event));
        line.push('\n');
        writer.write_str(&line)
    }
}

/// The message, then the other fields with their names.
fn text_of(event: &Event<'_>) -> String {
    let mut said = Said::default();
    event.record(&mut said);
    said.message + &said.fields
}

#[derive(Default)]
struct Said {
    message: String,
    fields: String,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing into memory does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// Appends it without control characters, and without those that turn the direction of a text.
fn escape(line: &mut String, text: &str) {
    for c in text.chars() {
        if line.len() >= MAX_LINE {
            line.push_str(" (cut)");
            return;
        }
        match c {
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => line.extend(c.escape_unicode()),
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_and_says_nothing_to_a_terminal() {
        let mut line = String::new();
        escape(&mut line, "a\nb\r\x1b[2J\u{9b}1m\u{202e}ä\t");
        assert_eq!(line, "a\\nb\\r\\u{1b}[2J\\u{9b}1m\\u{202e}ä\\t");
        line.clear();
        escape(&mut line, &"x".repeat(2 * MAX_LINE));
        assert!(line.len() < MAX_LINE + 10 && line.ends_with("(cut)"));
    }

    #[test]
    fn the_journal_gets_levels_by_number_and_no_time() {
        let more = More {
            count: 7,
            level: Level::ERROR,
            text: "no\n".to_owned(),
        };
        assert_eq!(
            Style::Journal.more(&more),
            "<3>7 more like this in the last 10 s: no\\n\n"
        );
        let plain = Style::Plain.more(&more);
        assert!(plain.contains(" ERROR 7 more like this"), "{plain}");
    }
}
