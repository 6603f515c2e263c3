//! Logs: written to standard error, filtered by `RUST_LOG`.
//!
//! Invariant: the Kubernetes client logs only at ERROR, because lower levels contain whole responses, which may be
//! Secrets. The client's messages about failed requests are dropped, because callers report failures. Messages of the
//! SSH client, which contain strings from servers, are dropped, too.

use std::io::IsTerminal as _;

use tracing_subscriber::{
    EnvFilter, Layer as _,
    filter::{FilterExt as _, filter_fn},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::log_file::LogFile;

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
    start_with(format, default, None);
}

/// Starts logging for users, and logging to a file. The filter for the file is `RUST_LOG`, or INFO if that is not set.
#[cfg(feature = "dev")]
pub(super) fn start_with_file(default: &str) -> LogFile {
    let file = LogFile::default();
    start_with(Format::Text, default, Some(file.clone()));
    file
}

fn start_with(format: Format, default: &str, file: Option<LogFile>) {
    let safe = filter_fn(|metadata| match metadata.target() {
        "kube_client::client::builder" => false,
        "kube_client::client::tls" => true,
        target if target.starts_with("russh") => false,
        target => *metadata.level() == tracing::Level::ERROR || !target.starts_with("kube_client::client"),
    });
    let filter = |default: &str| EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        Format::Json => lines.json().boxed(),
    };
    let in_file = file.map(|file| {
        let lines = tracing_subscriber::fmt::layer().with_writer(move || file.clone()).with_ansi(false);
        lines.with_filter(safe.clone().and(filter("info")))
    });
    let registry = tracing_subscriber::registry().with(lines.with_filter(safe.and(filter(default))));
    // This fails only if logging was started before. In that case, the earlier logging continues.
    let _ = registry.with(in_file).try_init();
}
