//! Reads a commit: fetched, decoded, and placed in the cluster.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::observe;
use super::placement::{self, Placing};
use super::refused::Refused;
use super::resolve::{Directory, ResolvedSync, SyncRequest};
use super::sync_state::DesiredState;
use crate::api::conditions::Reason;
use crate::api::names::ALLOW_PRUNE;
use crate::failure::Class;
use crate::managed::Desired;
use crate::manifest::{self, Problem};
use crate::source::{Reference, Remote, ResolvedRef, Snapshot};

/// Problems that one message names.
const SHOWN_PROBLEMS: usize = 20;

impl Attempt<'_> {
    /// What the commit wants: as it was decoded before, or decoded now.
    pub(super) async fn desired(
        &mut self,
        remote: &Remote,
        found: &ResolvedRef,
        resolved: &ResolvedSync,
        request: &SyncRequest,
    ) -> Result<DesiredState, Refused> {
        let (generation, base_dir) = (request.generation, &resolved.directory.base_dir);
        let known = self.state.desired.as_ref().filter(|w| w.generation == generation && w.tree.is_some());
        if let Some(desired) = known.filter(|w| w.commit == found.commit) {
            return Ok(desired.clone());
        }
        // Held no longer than it is read: an open mirror is memory.
        let snapshot = self.source().fetch(remote, found).await?;
        let tree = match snapshot.tree(base_dir).await? {
            Some(tree) => Some(tree),
            None if request.allows_prune() => None,
            None => {
                return Err(Refused::invalid(
                    Reason::SourceInvalid,
                    format!(
                        "baseDir {base_dir} does not exist at commit {}; nothing is deleted. Put it back, or set the \
                         annotation {ALLOW_PRUNE} to the commit to delete everything",
                        found.commit
                    ),
                ));
            }
        };
        if let Some(desired) = self.state.desired.as_mut().filter(|w| w.tree == tree && w.generation == generation) {
            desired.commit = found.commit;
            return Ok(desired.clone());
        }
        let objects = if tree.is_none() { Vec::new() } else { self.decode(&snapshot, &resolved.directory).await? };
        let desired = DesiredState { commit: found.commit, tree, generation, objects };
        self.state.desired = Some(desired.clone());
        Ok(desired)
    }

    async fn decode(&self, snapshot: &Snapshot, directory: &Directory) -> Result<Vec<Arc<Desired>>, Refused> {
        let (memory, limits) = (Arc::clone(&self.context.memory), self.context.limits.clone());
        let base_dir = directory.base_dir.clone();
        let decoded = snapshot
            .blocking(move |snapshot| {
                let listing = snapshot.entries(&base_dir)?;
                manifest::decode(&listing, &mut |entry| snapshot.read(entry), &memory, &limits)
            })
            .await??;
        if !decoded.problems.is_empty() {
            return Err(refused_for(&decoded.problems));
        }
        let served = observe::served(self.context.writer.cluster(), &decoded.objects).await?;
        let placing = Placing {
            own_namespace: self.namespace(),
            target_namespace: &directory.target_namespace,
            label: self.label,
            reach: self.context.reach(self.namespace()),
        };
        placement::place(&decoded.objects, &served, &placing).map_err(|problems| refused_for(&problems))
    }

    /// A new agent that cannot use the newest commit goes on keeping what the last one applied.
    pub(super) async fn keep_what_was_applied(&mut self, remote: &Remote, directory: &Directory) {
        let applied = self.sync.status.as_ref().and_then(|status| status.applied_commit.clone());
        let (None, Some(commit), false) = (self.state.begun, applied, self.state.looked_back) else { return };
        // It was verified when it was applied. Keys that expire or leave the Secret since do not undo that.
        let remote = &remote.without_verification();
        let kept = async {
            let reference = Reference::parse(&commit)?;
            let found = self.source().lookup(remote, &reference, Duration::MAX).await?;
            let snapshot = self.source().fetch(remote, &found).await?;
            self.decode(&snapshot, directory).await
        };
        match kept.await {
            Ok(objects) => {
                self.state.looked_back = true;
                self.context.writer.accept(self.owner, &objects, []);
            }
            Err(refused) => {
                // What passes is tried again with the next attempt.
                self.state.looked_back = refused.class == Class::Invalid;
                tracing::warn!(
                    sync = self.owner.resource().as_str(),
                    why = refused.message,
                    "what was applied before cannot be read"
                );
            }
        }
    }
}

fn refused_for(problems: &[Problem]) -> Refused {
    let mut lines = problems.iter().take(SHOWN_PROBLEMS).map(ToString::to_string).collect::<Vec<_>>();
    if problems.len() > SHOWN_PROBLEMS {
        lines.push(format!("and {} more", problems.len() - SHOWN_PROBLEMS));
    }
    Refused::invalid(Reason::ManifestInvalid, lines.join("\n"))
}
