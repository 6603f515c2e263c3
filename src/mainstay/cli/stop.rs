//! SIGINT and SIGTERM cancel a token.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Error;

/// Returns a token that the first SIGINT or SIGTERM cancels. The second signal exits the process immediately.
pub(super) fn on_signal() -> Result<CancellationToken, Error> {
    let mut interrupts = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let mut terminations = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        for seen in 0.. {
            tokio::select! { _ = interrupts.recv() => {}, _ = terminations.recv() => {} }
            if seen > 0 {
                std::process::exit(130);
            }
            token.cancel();
        }
    });
    Ok(stop)
}
