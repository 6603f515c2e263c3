//! Reports the Receivers that accept no deliveries, or whose deliveries have no effect, from their statuses.

use super::repository::{Finding, MAINSTAY, list, wrong};
use crate::cli::Error;
use mainstay_api::Receiver;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_cluster::Cluster;
use mainstay_object::printable;

/// Returns a finding for each Receiver of the namespace that has a status. Without permission to read them, there is no
/// finding.
pub(super) async fn findings(cluster: &Cluster, namespace: &str) -> Result<Vec<Finding>, Error> {
    let receivers = match list::<Receiver>(cluster, MAINSTAY, "Receiver", namespace).await {
        Err(Error::Cluster(error)) if error.is_forbidden() => return Ok(Vec::new()),
        found => found?,
    };
    Ok(receivers.into_iter().filter_map(Result::ok).filter_map(|receiver| finding(namespace, &receiver)).collect())
}

fn finding(namespace: &str, receiver: &Receiver) -> Option<Finding> {
    let name = receiver.metadata.name.as_deref().unwrap_or_default();
    let ready = conditions::status(&receiver.status.as_ref()?.conditions, Type::Ready)?;
    let text = format!("Receiver {namespace}/{name}: {}", printable(&ready.message));
    let is_fine = [Reason::Receiving, Reason::Suspended].iter().any(|reason| ready.reason == reason.name());
    if is_fine {
        return Some(Ok(text));
    }
    let reason = Reason::ALL.iter().find(|reason| ready.reason == reason.name());
    Some(wrong(text, reason.map(|reason| reason.remedy()).unwrap_or_default()))
}
