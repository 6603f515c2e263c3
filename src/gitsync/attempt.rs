//! One attempt: from the ref at the remote to the objects in the cluster.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::context::{Context, git_syncs};
use super::inventory_maps::InventoryOwner;
use super::status::Outcome;
use super::sync_state::{DesiredState, SyncRequest, SyncState};
use super::windows::{self, Freeze, Windows};
use crate::api::GitSync;
use crate::api::conditions::Reason;
use crate::api::git_sync::{UNKNOWN, WindowOverride};
use crate::api::names::{ALLOW_PRUNE, OVERRIDE_WINDOW};
use crate::cluster;
use crate::failure::{Class, chain};
use crate::notification::Message;
use crate::object::{Digest, Key, Owner};
use crate::source::{BaseDir, Commit, Reference, Remote, RemoteUrl, Source};

/// Longest value of a label.
const LONGEST_LABEL: usize = 63;

/// Why an attempt did not come to applying anything.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) class: Class,
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
}

impl Refused {
    pub(super) fn invalid(reason: Reason, message: impl Into<String>) -> Self {
        Self { class: Class::Invalid, reason, message: message.into(), retry_after: None }
    }

    pub(super) fn outcome(&self) -> Outcome {
        Outcome::Refused { class: self.class, reason: self.reason, message: self.message.clone() }
    }
}

impl From<cluster::Error> for Refused {
    fn from(error: cluster::Error) -> Self {
        let class = error.class();
        let reason = if class == Class::Bug { Reason::InternalError } else { Reason::ClusterUnavailable };
        Self { class, reason, message: chain(&error), retry_after: error.retry_after() }
    }
}

impl From<crate::source::Error> for Refused {
    fn from(error: crate::source::Error) -> Self {
        let class = error.class();
        let reason = match class {
            Class::Denied => Reason::GitAuthorizationFailed,
            Class::Invalid => Reason::SourceInvalid,
            _ => Reason::SourceUnavailable,
        };
        Self { class, reason, message: chain(&error), retry_after: error.retry_after() }
    }
}

/// One attempt's view of its GitSync.
pub(super) struct Attempt<'a> {
    pub(super) context: &'a Context,
    pub(super) owner: &'a Owner,
    pub(super) sync: &'a GitSync,
    pub(super) label: &'a Arc<str>,
    pub(super) state: &'a mut SyncState,
}

/// Value of the label on everything that a GitSync manages: `<namespace>.<name>`, or, when that is too long, the
/// beginning of the name and a hash. No name contains the `_` between the two, so no GitSync has another one's label.
pub fn label(namespace: &str, name: &str) -> Arc<str> {
    let plain = format!("{namespace}.{name}");
    if plain.len() <= LONGEST_LABEL {
        return plain.into();
    }
    format!("{}_{}", crate::api::conditions::cut(name, 30), Digest::of(plain.as_bytes())).into()
}

/// What a GitSync follows, as one text: what follows the same is planned together.
pub(super) fn branch(url: &RemoteUrl, reference: &str) -> String {
    format!("{url} {reference}")
}

impl Attempt<'_> {
    pub(super) fn namespace(&self) -> &str {
        self.sync.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Git, on behalf of the GitSync's namespace.
    pub(super) fn source(&self) -> Source {
        self.context.source.for_namespace(self.namespace())
    }

    pub(super) fn inventory_owner(&self) -> InventoryOwner<'_> {
        InventoryOwner {
            namespace: self.namespace(),
            name: self.sync.metadata.name.as_deref().unwrap_or_default(),
            uid: self.sync.metadata.uid.as_deref().unwrap_or_default(),
            label: self.label,
        }
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.sync.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether this GitSync may touch an object, whatever its inventory lists: whoever can write ConfigMaps can write
    /// an inventory.
    pub(super) fn reaches(&self, key: &Key) -> bool {
        self.context.reach(self.namespace()).covers(self.namespace(), key)
    }

    /// Looks up the ref and, if there is anything to do, does it. `None`: nothing was to do.
    pub(super) async fn sync(&mut self, remote: &Remote, max_age: Duration) -> Result<Option<Outcome>, Refused> {
        let reference = Reference::parse(&self.sync.spec.reference)?;
        let base_dir = BaseDir::parse(&self.sync.spec.base_dir)?;
        let windows = match Windows::parse(&self.sync.spec) {
            Ok(windows) => windows,
            Err(why) => {
                self.keep_what_was_applied(remote, &base_dir).await;
                return Err(Refused::invalid(Reason::SpecInvalid, why));
            }
        };
        if self.state.seen.is_none() {
            let seen = self.sync.status.as_ref().and_then(|status| status.attempted_commit.as_deref()?.parse().ok());
            if let Some(commit) = seen {
                self.source().hint(remote, &reference, commit);
            }
        }
        let found = match self.source().lookup(remote, &reference, max_age).await {
            Ok(found) => found,
            Err(error) => {
                self.keep_what_was_applied(remote, &base_dir).await;
                return Err(error.into());
            }
        };
        self.state.found_at = found.full_name().map(str::to_owned);
        if self.state.seen.is_none_or(|(commit, _)| commit != found.commit) {
            self.state.seen = Some((found.commit, Instant::now()));
            let message = Message::CommitSeen { subject: self.owner.clone(), commit: found.commit.to_string() };
            self.context.emit(self.owner, &message);
            self.state.failed.clear();
        }
        let sync_request = SyncRequest {
            commit: found.commit,
            generation: self.sync.metadata.generation,
            allow_prune: self.annotation(ALLOW_PRUNE).map(str::to_owned),
        };
        if self.state.settled.as_ref() == Some(&sync_request) {
            return Ok(None);
        }
        let branch = branch(&remote.url, &self.sync.spec.reference);
        let freeze = self.freeze(&windows, found.commit);
        let overridden = self.annotation(OVERRIDE_WINDOW) == Some(&found.commit.to_string());
        if freeze.is_some() && !overridden {
            self.keep_what_was_applied(remote, &base_dir).await;
        }
        let desired = match self.desired(remote, &found, &base_dir, &sync_request).await {
            Ok(desired) => desired,
            Err(refused) => {
                self.keep_what_was_applied(remote, &base_dir).await;
                return Err(refused);
            }
        };
        // A commit that changes nothing in the directory waits for nothing.
        if let Some(freeze) = freeze.filter(|_| !self.is_applied(&desired)) {
            if !overridden {
                let frozen_since = *self.state.frozen_since.get_or_insert_with(Timestamp::now);
                let since = self.state.since.map_or(frozen_since, |(_, since)| since);
                return Ok(Some(Outcome::Frozen { commit: found.commit.to_string(), freeze, since }));
            }
            self.override_window(found.commit, freeze).await;
        }
        self.state.begun = Some(found.commit);
        let keys = desired.objects.iter().map(|d| d.key.clone()).collect::<HashSet<_>>();
        self.context.registry.update(self.owner, |row| {
            row.branch = Some(branch.clone());
            row.desired = Some(Arc::new(keys));
            row.planned = Some(sync_request.commit.to_string());
            row.suspended = false;
        });
        let outcome = self.perform(&desired, &sync_request, &branch).await?;
        let clean = matches!(&outcome, Outcome::Applied { failures, pruning: 0, .. } if failures.is_empty())
            && self.state.paused.is_empty();
        if clean && !self.state.awaits_others && !std::mem::take(&mut self.state.rebuilt) {
            self.state.settled = Some(sync_request);
        }
        Ok(Some(outcome))
    }

    /// What holds a commit back, unless it was begun before.
    fn freeze(&self, windows: &Windows, commit: Commit) -> Option<Freeze> {
        let status = self.sync.status.as_ref();
        let begun = self.state.begun == Some(commit) || windows::was_begun(status, &commit.to_string());
        if begun { None } else { windows.freeze(Timestamp::now()) }
    }

    /// Records that a commit is applied although a window holds it back.
    async fn override_window(&mut self, commit: Commit, freeze: Freeze) {
        // What the agent holds in memory has no managers. Who asked is for the record only, so not knowing stops nothing.
        let InventoryOwner { namespace, name, .. } = self.inventory_owner();
        let live = self.context.drift.cluster().get_metadata(&git_syncs(), Some(namespace), name).await;
        let who = live.ok().flatten().map_or_else(|| UNKNOWN.to_owned(), |meta| windows::who_overrides(&meta));
        let (commit, window, when) = (commit.to_string(), freeze.by, Time(Timestamp::now()));
        let message = Message::WindowOverridden {
            subject: self.owner.clone(),
            commit: commit.clone(),
            window: window.clone(),
            who: who.clone(),
        };
        self.context.emit(self.owner, &message);
        self.state.window_override = Some(WindowOverride { commit, window, who, when });
    }

    /// Whether what is applied is just that.
    fn is_applied(&self, desired: &DesiredState) -> bool {
        let before = self.sync.status.as_ref().and_then(|status| status.applied_tree_id.clone());
        let applied = match self.state.applied {
            Some((_, tree)) => tree.map(|tree| tree.to_string()),
            None => before,
        };
        applied.is_some() && applied == desired.tree.map(|tree| tree.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_git_syncs_have_one_label() {
        assert_eq!(&*label("shop", "web"), "shop.web");
        let long = label("shop", &"a".repeat(60));
        assert!(long.len() <= LONGEST_LABEL && long.ends_with(char::is_alphanumeric), "{long}");
        let (beginning, hash) = long.split_once('_').unwrap();
        assert_ne!(label(beginning, hash), long, "a name that is made up to be the same");
        assert_ne!(label("other", &"a".repeat(60)), long);
    }
}
