//! The history of a GitSync in its status: adds completely applied commits, with the first objects that they changed.
//!
//! Invariant: the objects of an entry have a bounded size, also if another client wrote the entry to the status.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::attempt::Attempt;
use super::context::git_syncs;
use super::plan::DesiredState;
use super::tally::Tally;
use mainstay_api::git_sync::{AppliedCommit, ChangedObject, HISTORY, NAMED_BYTES, NAMED_OBJECTS};
use mainstay_object::failure::chain;

/// Maximum length of a subject in the history, in characters.
const SUBJECT: usize = 72;

impl Attempt<'_> {
    /// Adds an applied commit to the history. If the earlier history cannot be read, the commit is not added.
    pub(super) async fn remember(&mut self, desired: &DesiredState, tally: &Tally, duration: Duration) {
        let earlier = match self.state.applied.take_history() {
            Some(known) => known,
            None => match self.stored_history().await {
                Ok(stored) => stored,
                Err(error) => {
                    tracing::warn!(sync = self.owner.resource().as_str(), why = chain(&error), "history not read");
                    return;
                }
            },
        };
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let applied = AppliedCommit {
            commit: desired.commit.to_string(),
            subject: desired.header.subject.chars().take(SUBJECT).collect(),
            author: desired.header.author.clone(),
            authored_at: desired.header.authored.map(Time),
            reference: self.state.branch.reference().map(str::to_owned),
            when: Time(Timestamp::now()),
            duration_ms: i64::try_from(duration.as_millis()).unwrap_or(i64::MAX),
            created: count(tally.created),
            changed: count(tally.changed),
            unchanged: count(tally.unchanged),
            pruned: count(tally.pruned),
            objects: bounded(tally.first()),
        };
        self.state.applied.remember(applied, earlier);
    }

    /// Reads the history in the status, which the cached object does not contain.
    async fn stored_history(&self) -> Result<Vec<AppliedCommit>, mainstay_cluster::Error> {
        if self.sync.status.as_ref().is_none_or(|status| status.applied_commit.is_none()) {
            return Ok(Vec::new());
        }
        let live = self.context.home.get(&git_syncs(), Some(self.namespace()), self.name()).await?;
        let status = live.and_then(|mut live| Some(live.pointer_mut("/status/history")?.take()));
        let stored: Option<Vec<AppliedCommit>> = status.and_then(|history| serde_json::from_value(history).ok());
        let bounds = |entry: AppliedCommit| AppliedCommit { objects: bounded(entry.objects), ..entry };
        Ok(stored.unwrap_or_default().into_iter().take(HISTORY).map(bounds).collect())
    }
}

/// Returns the objects that an entry names: at most [`NAMED_OBJECTS`], with names of at most [`NAMED_BYTES`] together.
fn bounded(objects: impl IntoIterator<Item = ChangedObject>) -> Vec<ChangedObject> {
    let mut left = NAMED_BYTES;
    let mut named = Vec::new();
    for mut one in objects.into_iter().take(NAMED_OBJECTS) {
        if let Some(rest) = left.checked_sub(one.object.len()) {
            left = rest;
            one.object.shrink_to_fit();
            named.push(one);
        }
    }
    named.shrink_to_fit();
    named
}

#[cfg(test)]
mod tests {
    use mainstay_api::git_sync::ObjectChange;

    use super::*;

    fn lengths(lengths: &[usize]) -> Vec<usize> {
        let object = |length: &usize| ChangedObject { object: "x".repeat(*length), change: ObjectChange::Created };
        bounded(lengths.iter().map(object)).iter().map(|one| one.object.len()).collect()
    }

    #[test]
    fn an_entry_names_whole_objects_within_its_bounds() {
        assert_eq!(lengths(&[]), [0; 0]);
        assert_eq!(lengths(&[30; 12]), [30; 10]);
        assert_eq!(lengths(&[640, 1]), [640]);
        assert_eq!(lengths(&[641, 300, 341, 340]), [300, 340]);
    }
}
