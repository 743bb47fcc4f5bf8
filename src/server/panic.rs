//! A panic is a defect, and ends the process: what it left half done must not answer.

use std::backtrace::Backtrace;
use std::io::Write;

/// From here on a panic of any thread says what to attach to a report, and ends the process.
pub fn ends_the_process() {
    std::panic::set_hook(Box::new(|panic| {
        let backtrace = Backtrace::force_capture();
        let thread = std::thread::current();
        let mut stderr = std::io::stderr();
        // One write, so that nothing comes between; and nobody is there to tell if it fails.
        let text = format!(
            "onced {version} stopped itself, in thread {name}: {panic}\n\
             This is a defect of onced. What it acknowledged is kept: start it again.\n\
             To report it, attach this message and the log lines before it, the configuration, and the output \
             of `uname -a`.\n{backtrace}\n",
            version = env!("CARGO_PKG_VERSION"),
            name = thread.name().unwrap_or("unnamed"),
        );
        let _ = stderr.write_all(text.as_bytes());
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Runs in a process of its own, started by the test below.
    #[test]
    #[ignore = "ends its process"]
    fn panics() {
        super::ends_the_process();
        let _ = std::thread::spawn(|| panic!("the reason")).join();
    }

    #[test]
    fn a_panic_of_any_thread_ends_the_process_and_says_what_to_attach() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "server::panic::tests::panics",
                "--ignored",
                "--nocapture",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(6), "{text}");
        for part in ["the reason", "src/server/panic.rs", "attach this message"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
