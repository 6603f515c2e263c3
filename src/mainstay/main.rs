//! The `mainstay` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // An error only says that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    mainstay::cli::run()
}
