//! Labels the pod of the leading agent, so that the Service of Receivers routes to it and not to a standby.
//!
//! Invariant: only the leader writes. It removes the label from all other pods, where an earlier leader may have left
//! it.
//! Invariant: its own pod comes first. A failure to remove another label does not block other work.
//! Invariant: without changes, the watch is the only request.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::tasks::name_of;
use mainstay_api::names::{LEADER, LEADS};
use mainstay_cluster::{Cluster, Error, Kind, Part, Scope, Selection, WatchEvent};
use mainstay_object::failure::{Backoff, chain};

/// Delay after labels could not be written.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Keeps the label on this pod, and off all others of the namespace, until `stop`.
pub(super) async fn keep(cluster: Cluster, namespace: String, pod: String, stop: CancellationToken) {
    let kind = std::sync::Arc::new(Kind::fixed("v1", "Pod", "pods", Scope::Namespaced));
    // Consecutive failures.
    let mut failures = 0;
    loop {
        let mut events = cluster.watch(&kind, Selection::labelled(LEADER, LEADS).within(&namespace));
        let mut listed = Listed::default();
        // Time of the next attempt, with a new list, after labels could not be written.
        let mut again = None;
        while let Some(event) = next(&mut events, again, &stop).await {
            let is_list = matches!(event, WatchEvent::Synced(_));
            let mut failed = false;
            for (other, value) in listed.writes(event, &namespace, &pod) {
                if let Err(error) = label(&cluster, &kind, &other, value).await {
                    let (pod, why) = (name_of(&other).map(|(_, name)| name), chain(&error));
                    tracing::warn!(
                        pod,
                        why,
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

/// Returns the next event; `None` if the watch has ended, at the time of a retry, or at `stop`.
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

/// The pods with the label.
#[derive(Debug, Default)]
struct Listed {
    has_own: bool,
    /// The other pods, until the list is complete.
    others: Vec<Value>,
    is_complete: bool,
}

impl Listed {
    /// Returns the pods to label now, in order, with the label's value.
    fn writes(&mut self, event: WatchEvent, namespace: &str, pod: &str) -> Vec<(Value, Value)> {
        let own = || (json!({"metadata": {"namespace": namespace, "name": pod}}), Value::from(LEADS));
        match event {
            WatchEvent::Begin => *self = Self::default(),
            WatchEvent::Initial(other) | WatchEvent::Applied(other) => match is_this(&other, pod) {
                Some(true) => self.has_own = true,
                Some(false) if self.is_complete => return vec![(other, Value::Null)],
                Some(false) => self.others.push(other),
                None => {}
            },
            WatchEvent::Synced(_) => {
                self.is_complete = true;
                let own = (!self.has_own).then(own);
                let others = std::mem::take(&mut self.others).into_iter().map(|other| (other, Value::Null));
                return own.into_iter().chain(others).collect();
            }
            WatchEvent::Deleted(other) if is_this(&other, pod) == Some(true) => return vec![own()],
            _ => {}
        }
        Vec::new()
    }
}

/// Returns whether a pod is the one with this name.
fn is_this(pod: &Value, name: &str) -> Option<bool> {
    name_of(pod).map(|(_, other)| other == name)
}

async fn label(cluster: &Cluster, kind: &Kind, pod: &Value, value: Value) -> Result<(), Error> {
    let Some((namespace, name)) = name_of(pod) else { return Ok(()) };
    let patch = json!({"metadata": {"labels": {LEADER: value}}});
    match cluster.patch_merge(kind, Some(&namespace), &name, Part::Main, &patch).await {
        Ok(_) => Ok(()),
        // A deleted pod needs no label.
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(listed: &mut Listed, event: WatchEvent) -> Vec<(String, Value)> {
        let written = listed.writes(event, "flux", "own");
        written.into_iter().map(|(pod, value)| (name_of(&pod).unwrap().1, value)).collect()
    }

    #[test]
    fn labels_its_own_pod_before_it_takes_the_label_off_others() {
        let pod = |name: &str| json!({"metadata": {"namespace": "flux", "name": name}});
        let (mut listed, leads) = (Listed::default(), Value::from(LEADS));
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
