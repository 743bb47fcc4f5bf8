//! How far long work has come: on standard error and on a terminal only, so that pipes, files and scripts get none
//! of it.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often the line is drawn anew while nothing is told.
const TICK: Duration = Duration::from_millis(200);

/// A line that says what is being done; gone when it is dropped.
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    /// Work of which nobody knows how much there is; with `counted`, what is counted: "records", "bytes".
    pub(super) fn of(what: &str, counted: Option<&'static str>) -> Progress {
        let shown = match counted {
            Some("bytes") => " {binary_bytes}",
            Some(_) => " {human_pos}",
            None => "",
        };
        let counted = counted.filter(|counted| *counted != "bytes").unwrap_or("");
        let template = format!("{{spinner}} {{msg}}{shown} {counted} {{elapsed}}");
        Progress::begin(ProgressBar::new_spinner(), &template, what)
    }

    /// Work on so many lines or records.
    pub(super) fn through(what: &str, total: u64) -> Progress {
        let template = "{msg} [{bar:30}] {human_pos} of {human_len} {eta}";
        Progress::begin(ProgressBar::new(total), template, what)
    }

    fn begin(bar: ProgressBar, template: &str, what: &str) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress(None);
        }
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(TICK);
        Progress(Some(bar))
    }

    /// So much more was done.
    pub(super) fn add(&self, count: u64) {
        if let Some(bar) = &self.0 {
            bar.inc(count);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
