//! Logs: to standard error, filtered by `RUST_LOG`.
//!
//! Invariant: the target of the Kubernetes client stays at ERROR, because below it logs whole answers, which may be
//! Secrets. Its messages about failed requests are filtered out because callers report failures. So are messages of the
//! SSH client, which contain texts of servers.

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

/// Starts logging; `default` is the filter when `RUST_LOG` is not set.
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
    // Fails only if logging was started before, which then continues.
    let _ = tracing_subscriber::registry().with(lines.with_filter(safe)).with(filter).try_init();
}
