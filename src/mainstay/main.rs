//! The `mainstay` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // This fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    mainstay::cli::run()
}
