//! Logs: written to standard error, filtered by `RUST_LOG`.
//!
//! Invariant: the Kubernetes client logs only at ERROR, because lower levels contain whole responses, which may be
//! Secrets. Its messages about failed requests are dropped, because callers report failures. Messages of the SSH
//! client, which contain text of servers, are dropped, too.

use std::io::IsTerminal as _;

use tracing_subscriber::{
    EnvFilter, Layer as _, filter::filter_fn, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// How log lines look.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging. `default` is the filter if `RUST_LOG` is not set.
pub(super) fn start(format: Format, default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let safe = filter_fn(|metadata| match metadata.target() {
        "kube_client::client::builder" => false,
        "kube_client::client::tls" => true,
        target if target.starts_with("russh") => false,
        target => *metadata.level() == tracing::Level::ERROR || !target.starts_with("kube_client::client"),
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        Format::Json => lines.json().boxed(),
    };
    // Fails only if logging was started before; it then continues.
    let _ = tracing_subscriber::registry().with(lines.with_filter(safe)).with(filter).try_init();
}
