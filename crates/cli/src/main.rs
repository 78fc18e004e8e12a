//! The command `toolwright`. Everything is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolwright_cli::main(std::env::args_os()).into()
}
