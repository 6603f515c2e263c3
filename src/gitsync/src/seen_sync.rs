//! The GitSync and its repository as the last attempt read them, and the requests in its annotations.
//!
//! Not here: the time of the next attempt (`timers`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use super::context::Input;
use super::outcome::Refused;
use super::resolve::ResolvedSync;
use mainstay_api::{GitRepository, GitRepositoryStatus, GitSync};
use mainstay_engine::apply::Writer;
use mainstay_git::RemoteUrl;

/// The GitSync at the last attempt; empty before the first one.
#[derive(Default)]
pub(super) struct SeenSync {
    /// The GitSync as the watch shows it now; `None` for a preview.
    newest: Option<Input>,
    /// The writer of the attempt.
    writer: Arc<Mutex<Option<Writer>>>,
    seen: Option<Box<Seen>>,
    /// The GitSync as resolved then.
    resolved: Option<Result<ResolvedSync, Refused>>,
    /// The sync request that is being handled.
    request: Option<String>,
    /// The last handled request to run a Job or Pod again.
    rerun: Option<String>,
}

/// The parts of a GitSync whose change causes an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    uid: Option<String>,
    generation: Option<i64>,
    annotations: Option<BTreeMap<String, String>>,
    deleting: bool,
    repository: Option<GitRepository>,
    /// The artifact of the OCIRepository or HelmChart.
    artifact: Option<RemoteUrl>,
    /// The reason why the repository is unknown.
    unread: Option<String>,
}

impl Seen {
    /// Returns the parts of a GitSync with the artifact that it follows, or the reason (`unread`) why its repository is
    /// unknown.
    pub(super) fn of(
        sync: &GitSync,
        repository: Option<&GitRepository>,
        artifact: Option<RemoteUrl>,
        unread: Option<String>,
    ) -> Self {
        Self {
            uid: sync.metadata.uid.clone(),
            generation: sync.metadata.generation,
            annotations: sync.metadata.annotations.clone(),
            deleting: sync.metadata.deletion_timestamp.is_some(),
            repository: repository.cloned().map(without_bookkeeping),
            artifact,
            unread,
        }
    }
}

impl SeenSync {
    /// Returns the state of a new task.
    pub(super) fn new(newest: &Input) -> Self {
        Self { newest: Some(newest.clone()), ..Self::default() }
    }

    /// Records the writer of the objects' cluster.
    pub(super) fn set_writer(&self, writer: &Writer) {
        *self.writer.lock() = Some(writer.clone());
    }

    /// Returns the writer of the present attempt, which may still select its cluster.
    pub(super) fn writer(&self) -> Arc<Mutex<Option<Writer>>> {
        Arc::clone(&self.writer)
    }

    /// Returns the end of the suspension of a GitSync, also if it was suspended after it was read for this attempt.
    pub(super) fn suspension(&self, sync: &GitSync, now: Timestamp) -> Option<Option<Timestamp>> {
        let newest = self.newest.as_ref().and_then(|newest| newest.borrow().as_ref()?.spec.suspended(now));
        newest.or_else(|| sync.spec.suspended(now))
    }

    /// Whether a change causes an attempt.
    pub(super) fn differs_from(&self, now: &Seen) -> bool {
        self.seen.as_deref() != Some(now)
    }

    /// Whether the GitSync was deleted and recreated since the last attempt.
    pub(super) fn is_of_another(&self, now: &Seen) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.uid != now.uid)
    }

    /// Records the GitSync of an attempt.
    pub(super) fn see(&mut self, seen: Seen) {
        self.seen = Some(Box::new(seen));
    }

    /// Causes an attempt as after a change.
    pub(super) fn forget(&mut self) {
        self.seen = None;
    }

    /// Resolves the GitSync after a change.
    pub(super) fn resolve(&mut self, sync: &GitSync) {
        self.resolved = Some(ResolvedSync::of(sync));
    }

    /// Returns the resolved GitSync, if it is valid.
    pub(super) fn resolved(&self) -> Option<&ResolvedSync> {
        self.resolved.as_ref()?.as_ref().ok()
    }

    /// Returns the resolved GitSync.
    ///
    /// # Errors
    ///
    /// The first invalid field.
    pub(super) fn resolved_or_refused(&self, sync: &GitSync) -> Result<ResolvedSync, Refused> {
        self.resolved.clone().unwrap_or_else(|| ResolvedSync::of(sync))
    }

    /// Whether a host key of the repository was pinned at first use.
    pub(super) fn is_pinned(&self) -> bool {
        let status = self.repository().and_then(|repository| repository.status.as_ref());
        status.is_some_and(|status| !status.pinned_host_keys.is_empty())
    }

    /// Whether an attacker on the network path can replace the repository without an invalid signature.
    pub(super) fn is_unprotected(&self) -> bool {
        self.repository().is_some_and(|one| {
            one.spec.verify.is_none() && RemoteUrl::parse(&one.spec.url).is_ok_and(|url| url.is_unprotected())
        })
    }

    fn repository(&self) -> Option<&GitRepository> {
        self.seen.as_ref()?.repository.as_ref()
    }

    /// Records the sync request that is not handled yet. Returns whether it differs from the one before.
    pub(super) fn set_request(&mut self, request: Option<String>) -> bool {
        let is_new = self.request != request;
        self.request = request;
        is_new
    }

    /// Returns the sync request that is being handled.
    pub(super) fn request(&self) -> Option<&str> {
        self.request.as_deref()
    }

    /// Records a handled request to run a Job or Pod again.
    pub(super) fn set_rerun(&mut self, value: String) {
        self.rerun = Some(value);
    }

    /// Returns the last request to run a Job or Pod again that this agent has handled.
    pub(super) fn rerun(&self) -> Option<&str> {
        self.rerun.as_deref()
    }

    /// Returns the last request to run a Job or Pod again that this agent or an earlier one has handled.
    pub(super) fn last_rerun<'a>(&'a self, sync: &'a GitSync) -> Option<&'a str> {
        self.rerun().or_else(|| sync.status.as_ref()?.last_handled_rerun.as_deref())
    }
}

/// Removes the fields of a GitRepository that are irrelevant here.
fn without_bookkeeping(mut repository: GitRepository) -> GitRepository {
    repository.metadata = ObjectMeta { uid: repository.metadata.uid, ..ObjectMeta::default() };
    // The result of a lookup does not change the repository, even if there was no status before.
    let pinned_host_keys = repository.status.map(|status| status.pinned_host_keys).unwrap_or_default();
    let has_pins = !pinned_host_keys.is_empty();
    repository.status = has_pins.then(|| GitRepositoryStatus { pinned_host_keys, ..Default::default() });
    repository
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sync() -> GitSync {
        GitSync::new("shop", serde_json::from_value(json!({"gitRepository": "shop"})).unwrap())
    }

    #[test]
    fn a_change_of_the_git_sync_or_of_its_repository_causes_an_attempt() {
        let (mut sync, mut seen) = (sync(), SeenSync::default());
        let now = Seen::of(&sync, None, None, None);
        assert!(seen.differs_from(&now));
        seen.see(now.clone());
        assert!(!seen.differs_from(&now));
        assert!(seen.differs_from(&Seen::of(&sync, None, None, Some("not listed".to_owned()))));
        sync.metadata.generation = Some(2);
        assert!(seen.differs_from(&Seen::of(&sync, None, None, None)));
        seen.forget();
        assert!(seen.differs_from(&now));
    }

    #[test]
    fn a_recreated_git_sync_is_another_one() {
        let (mut sync, mut seen) = (sync(), SeenSync::default());
        sync.metadata.uid = Some("u1".to_owned());
        let first = Seen::of(&sync, None, None, None);
        assert!(!seen.is_of_another(&first));
        seen.see(first.clone());
        assert!(!seen.is_of_another(&first));
        sync.metadata.uid = Some("u2".to_owned());
        assert!(seen.is_of_another(&Seen::of(&sync, None, None, None)));
    }

    #[test]
    fn a_rerun_of_this_agent_is_newer_than_that_of_the_status() {
        let (mut sync, mut seen) = (sync(), SeenSync::default());
        assert_eq!(seen.last_rerun(&sync), None);
        let last_handled_rerun = Some("migrate 1".to_owned());
        sync.status = Some(mainstay_api::git_sync::GitSyncStatus { last_handled_rerun, ..Default::default() });
        assert_eq!((seen.rerun(), seen.last_rerun(&sync)), (None, Some("migrate 1")));
        seen.set_rerun("migrate 2".to_owned());
        assert_eq!((seen.rerun(), seen.last_rerun(&sync)), (Some("migrate 2"), Some("migrate 2")));
    }

    #[test]
    fn a_request_is_new_until_it_is_recorded() {
        let mut seen = SeenSync::default();
        assert!(seen.set_request(Some("now".to_owned())));
        assert!(!seen.set_request(Some("now".to_owned())));
        assert_eq!(seen.request(), Some("now"));
        assert!(seen.set_request(None));
    }
}
