//! Labels the pod of the leading agent, so that the Service of Receivers routes to the leader and not to a standby.
//!
//! Invariant: only the leader writes. The leader removes the label from all other pods, where an earlier leader may
//! have left it. Invariant: the leader labels its own pod first. A failure to remove another label does not block other
//! work. Invariant: without changes, the watch is the only request.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::kept::Name;
use mainstay_api::names::{LEADER, LEADS};
use mainstay_cluster::reflector::{Delta, Shown, name_of};
use mainstay_cluster::{Cluster, Error, Kind, Part, Scope, Selection, WatchEvent};
use mainstay_object::failure::{Backoff, chain};

/// Delay after labels could not be written.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Keeps the label on this pod, and removes it from all other pods of the namespace, until `stop`.
pub(super) async fn keep(cluster: Cluster, namespace: String, pod: String, stop: CancellationToken) {
    let kind = std::sync::Arc::new(Kind::fixed("v1", "Pod", "pods", Scope::Namespaced));
    let own = (namespace, pod);
    // Number of consecutive failures.
    let mut failures = 0;
    loop {
        let mut events = cluster.watch(&kind, Selection::labelled(LEADER, LEADS).within(&own.0));
        let mut shown = Shown::default();
        // Time of the next attempt, with a new list, after labels could not be written.
        let mut again = None;
        while let Some(event) = next(&mut events, again, &stop).await {
            let Some(delta) = shown.take(event, name_of) else { continue };
            let is_list = matches!(delta, Delta::Complete(_));
            let mut failed = false;
            for (pod, value) in writes(delta, &own) {
                if let Err(error) = label(&cluster, &kind, &pod, value).await {
                    tracing::warn!(
                        pod = pod.1,
                        why = chain(&error),
                        "deliveries to Receivers may not reach this agent: a pod was not labelled"
                    );
                    failed = true;
                }
            }
            if failed && again.is_none() {
                failures += 1;
                again = Some(Instant::now() + AGAIN.delay(failures));
            } else if is_list {
                failures = 0;
            }
        }
        let again = again.unwrap_or_else(|| Instant::now() + AGAIN.delay(1));
        if stop.run_until_cancelled(sleep_until(again)).await.is_none() {
            return;
        }
    }
}

/// Returns the next event. Returns `None` if the watch has ended, when a retry is due, or at `stop`.
async fn next(
    events: &mut BoxStream<'static, WatchEvent>,
    again: Option<Instant>,
    stop: &CancellationToken,
) -> Option<WatchEvent> {
    let event = stop.run_until_cancelled(async {
        match again {
            Some(at) => timeout_at(at, events.next()).await.ok().flatten(),
            None => events.next().await,
        }
    });
    event.await.flatten()
}

/// Returns the pods whose label is to be written now, in order, each with the new value of the label. Null removes the
/// label.
fn writes(delta: Delta<Name>, own: &Name) -> Vec<(Name, Value)> {
    match delta {
        Delta::Changed(pod, _) if pod != *own => vec![(pod, Value::Null)],
        Delta::Complete(list) => {
            let own_first = list.lacks(own).then(|| (own.clone(), Value::from(LEADS)));
            let mut others: Vec<Name> = list.shown().iter().filter(|pod| *pod != own).cloned().collect();
            others.sort();
            own_first.into_iter().chain(others.into_iter().map(|pod| (pod, Value::Null))).collect()
        }
        Delta::Gone(pod, _) if pod == *own => vec![(pod, Value::from(LEADS))],
        _ => Vec::new(),
    }
}

async fn label(cluster: &Cluster, kind: &Kind, (namespace, name): &Name, value: Value) -> Result<(), Error> {
    let patch = json!({"metadata": {"labels": {LEADER: value}}});
    match cluster.patch_merge(kind, Some(namespace), name, Part::Main, &patch).await {
        Ok(_) => Ok(()),
        // A deleted pod needs no label.
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(listed: &mut Shown<Name>, event: WatchEvent) -> Vec<(String, Value)> {
        let delta = listed.take(event, name_of);
        let written = delta.map(|delta| writes(delta, &("flux".to_owned(), "own".to_owned()))).unwrap_or_default();
        written.into_iter().map(|((_, pod), value)| (pod, value)).collect()
    }

    #[test]
    fn labels_its_own_pod_before_it_takes_the_label_off_others() {
        let pod = |name: &str| json!({"metadata": {"namespace": "flux", "name": name}});
        let (mut listed, leads) = (Shown::default(), Value::from(LEADS));
        assert_eq!(written(&mut listed, WatchEvent::Initial(pod("a"))), []);
        assert_eq!(written(&mut listed, WatchEvent::Initial(pod("b"))), []);
        let all = [("own".to_owned(), leads.clone()), ("a".to_owned(), Value::Null), ("b".to_owned(), Value::Null)];
        assert_eq!(written(&mut listed, WatchEvent::Synced(String::new())), all);
        assert_eq!(written(&mut listed, WatchEvent::Applied(pod("own"))), []);
        assert_eq!(written(&mut listed, WatchEvent::Applied(pod("c"))), [("c".to_owned(), Value::Null)]);
        assert_eq!(written(&mut listed, WatchEvent::Deleted(pod("own"))), [("own".to_owned(), leads)]);
        written(&mut listed, WatchEvent::Begin);
        written(&mut listed, WatchEvent::Initial(pod("own")));
        assert_eq!(written(&mut listed, WatchEvent::Synced(String::new())), []);
    }
}
