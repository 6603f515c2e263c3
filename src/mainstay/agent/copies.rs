//! Copies the logins of the agent's namespace, once the excluded namespaces are known.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::notify::Notifier;
use mainstay_engine::apply::Writer;
use mainstay_engine::propagation::{Propagated, run};
use mainstay_function::registry::guard::of_namespace;

/// Copies Secrets and ServiceAccounts of `home` until `stop`. The task starts once `excluded`, the namespaces without
/// copies, is known.
pub(super) async fn propagate(
    home: String,
    excluded: watch::Receiver<Option<Vec<String>>>,
    writer: Writer,
    notifier: Notifier,
    stop: CancellationToken,
) {
    let copying = [Propagated::secrets(of_namespace), Propagated::service_accounts()].map(|propagated| {
        let notifier = notifier.clone();
        let emit = move |event| notifier.publish(event);
        run(propagated, home.clone(), excluded.clone(), writer.clone(), emit, stop.clone())
    });
    futures::future::join_all(copying).await;
}
