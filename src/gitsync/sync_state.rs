//! What a GitSync remembers from attempt to attempt.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::resolve::SyncRequest;
use crate::api::conditions::Reason;
use crate::api::git_sync::{Failure, WindowOverride};
use crate::failure::Class;
use crate::managed::Desired;
use crate::object::{Digest, Key};
use crate::source::{Commit, TreeId};

/// An object that failed, and when it is tried again.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) class: Class,
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) attempts: u32,
    pub(super) again: Instant,
}

/// What a GitSync remembers from attempt to attempt.
#[derive(Default)]
pub(super) struct SyncState {
    /// Digests of the inventory's ConfigMaps as they are written.
    pub(super) written: BTreeMap<usize, Digest>,
    /// The inventory was put together from labels: nothing is pruned in this round.
    pub(super) rebuilt: bool,
    /// The desired state of the last commit that was decoded.
    pub(super) desired: Option<DesiredState>,
    /// Objects whose last apply or deletion failed.
    pub(super) failed: HashMap<Key, Failed>,
    /// The last request that was carried out in full.
    pub(super) settled: Option<SyncRequest>,
    /// Objects that this commit changes and that are under break glass.
    pub(super) paused: HashSet<Key>,
    /// Something is awaited from another GitSync.
    pub(super) awaits_others: bool,
    /// Something that another GitSync lists still carries our label. Nobody tells when that one has put it right.
    pub(super) still_labelled: bool,
    /// The commit that was seen last, and when.
    pub(super) seen: Option<(Commit, Instant)>,
    /// The full name of the reference at which that was.
    pub(super) found_at: Option<String>,
    /// Commit and tree that are applied in full.
    pub(super) applied: Option<(Commit, Option<TreeId>)>,
    /// What an earlier agent applied was looked for.
    pub(super) looked_back: bool,
    /// When the present outcome of applying began.
    pub(super) since: Option<(Commit, Timestamp)>,
    /// The commit that this agent began to apply last. A window that closes meanwhile does not stop it.
    pub(super) begun: Option<Commit>,
    /// When this agent first held a commit back.
    pub(super) frozen_since: Option<Timestamp>,
    /// The last commit that was applied although a window held it back.
    pub(super) window_override: Option<WindowOverride>,
}

/// A commit that an attempt is about.
pub(super) struct Candidate {
    /// What is asked for with it.
    pub(super) request: SyncRequest,
    /// What the GitSync follows, as one text.
    pub(super) branch: String,
    /// What it wants.
    pub(super) desired: DesiredState,
}

/// The desired state of a commit.
#[derive(Clone)]
pub(super) struct DesiredState {
    pub(super) commit: Commit,
    /// Tree of `baseDir`; `None` when the directory is gone and its deletion was allowed.
    pub(super) tree: Option<TreeId>,
    pub(super) generation: Option<i64>,
    pub(super) objects: Vec<Arc<Desired>>,
}

impl SyncState {
    /// The objects that failed, in the order of their keys.
    pub(super) fn failures(&self) -> Vec<(Class, Reason, Failure)> {
        let mut all = self.failed.iter().collect::<Vec<_>>();
        all.sort_by_key(|(key, _)| *key);
        let shown = |(key, failed): (&Key, &Failed)| {
            let reason = failed.reason.as_str();
            let message = failed.message.clone();
            (failed.class, failed.reason, Failure { object: key.to_string(), reason, message })
        };
        all.into_iter().map(shown).collect()
    }
}
