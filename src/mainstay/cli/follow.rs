//! `--watch`: prints GitSyncs, and prints them again whenever one of them changes.
//!
//! Invariant: only complete states are printed. After a lost connection, the next output follows a complete list.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use futures::StreamExt as _;

use super::{
    Error, output, stop,
    syncs::{self, understand},
};
use mainstay_api::GitSync;
use mainstay_cluster::reflector::{Delta, Name, Shown, name_of};
use mainstay_cluster::{Cluster, Kind, Selection, WatchEvent};
use mainstay_object::failure::chain;

/// The watched GitSyncs, by namespace and name.
pub(super) type Syncs = BTreeMap<String, GitSync>;

/// Calls `changed` with the GitSyncs of the selection, and again after each change of a GitSync. Ends at Ctrl-C, or
/// when `changed` returns `Break`.
pub(super) async fn follow(
    cluster: &Cluster,
    kind: &Arc<Kind>,
    selection: Selection,
    mut changed: impl AsyncFnMut(&Syncs) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let stop = stop::on_signal()?;
    let mut events = cluster.watch(kind, selection);
    let mut state = State::default();
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = events.next() => event,
        };
        let Some(event) = event else { return Ok(()) };
        if state.takes(event)? && changed(&state.known).await?.is_break() {
            return Ok(());
        }
    }
}

/// The GitSyncs seen so far.
#[derive(Default)]
struct State {
    known: Syncs,
    shown: Shown<Name>,
    /// The GitSyncs of a list that is not complete yet.
    listed: BTreeMap<Name, GitSync>,
    /// Whether a state was printed.
    is_shown: bool,
}

impl State {
    /// Applies an event. Returns whether the state is complete and differs from the last one.
    fn takes(&mut self, event: WatchEvent) -> Result<bool, Error> {
        match self.shown.take(event, name_of) {
            Some(Delta::Listed(name, value)) => {
                self.listed.insert(name, understand(value)?);
                Ok(false)
            }
            Some(Delta::Complete(list)) => {
                let all = std::mem::take(&mut self.listed).into_iter().filter(|(name, _)| !list.lacks(name));
                let all: Syncs = all.map(|(_, sync)| (syncs::name(&sync), sync)).collect();
                let differs = !self.is_shown || differ(&self.known, &all);
                (self.known, self.is_shown) = (all, true);
                Ok(differs)
            }
            Some(Delta::Changed(_, value)) => {
                let sync = understand::<GitSync>(value)?;
                let name = syncs::name(&sync);
                let differs = self.known.get(&name).is_none_or(|old| differs(old, &sync));
                self.known.insert(name, sync);
                Ok(differs)
            }
            Some(Delta::Gone(_, value)) => Ok(self.known.remove(&syncs::name(&understand(value)?)).is_some()),
            Some(Delta::Unreadable(_, _, error)) => Err(error.into()),
            Some(Delta::Failed(error)) => {
                output::note(&format!("not connected, trying again: {}\n", chain(&error)));
                Ok(false)
            }
            Some(Delta::Resumed) | None => Ok(false),
        }
    }
}

fn differ(before: &Syncs, after: &Syncs) -> bool {
    before.len() != after.len()
        || after.iter().any(|(name, sync)| before.get(name).is_none_or(|old| differs(old, sync)))
}

/// Returns whether relevant fields differ, not only resource versions and field managers.
fn differs(before: &GitSync, after: &GitSync) -> bool {
    before.spec != after.spec
        || before.status != after.status
        || before.metadata.uid != after.metadata.uid
        || before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sync(name: &str, commit: &str) -> Value {
        json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
            "metadata": { "name": name, "namespace": "apps", "resourceVersion": commit },
            "spec": { "gitRepository": "shop" }, "status": { "appliedCommit": commit },
        })
    }

    #[test]
    fn a_state_is_shown_when_it_is_whole_and_another() {
        let mut state = State::default();
        let mut takes = |event| state.takes(event).unwrap();
        assert!(!takes(WatchEvent::Begin) && !takes(WatchEvent::Initial(sync("a", "1"))));
        assert!(takes(WatchEvent::Synced("1".into())), "the first one");
        assert!(takes(WatchEvent::Applied(sync("b", "1"))) && takes(WatchEvent::Applied(sync("b", "2"))));
        let mut same = sync("b", "2");
        same["metadata"]["resourceVersion"] = json!("9");
        assert!(!takes(WatchEvent::Applied(same)), "nothing of it has changed");
        assert!(!takes(WatchEvent::Resumed));
        // The connection was lost, so a new list begins.
        assert!(!takes(WatchEvent::Begin) && !takes(WatchEvent::Initial(sync("a", "1"))));
        assert!(!takes(WatchEvent::Initial(sync("b", "2"))));
        assert!(!takes(WatchEvent::Synced("2".into())), "all is as before");
        assert!(takes(WatchEvent::Deleted(sync("b", "2"))));
        assert!(!takes(WatchEvent::Begin) && takes(WatchEvent::Synced("3".into())), "what went meanwhile");
        assert!(state.known.is_empty());
    }
}
