//! The `onced` binary; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    onced::cli::main()
}
