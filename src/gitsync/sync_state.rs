//! What a GitSync remembers from attempt to attempt.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use jiff::Timestamp;

use super::failures::Failures;
use super::plan::DesiredState;
use super::resolve::SyncRequest;
use crate::api::git_sync::WindowOverride;
use crate::object::{Digest, Key};
use crate::source::{Commit, RemoteUrl, TreeId};

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
    pub(super) failed: Failures,
    /// The last request that was carried out in full.
    pub(super) settled: Option<SyncRequest>,
    /// Objects that this commit changes and that are under break glass.
    pub(super) paused: HashSet<Key>,
    /// Something is awaited from another GitSync.
    pub(super) awaits_others: bool,
    /// Something that another GitSync lists still carries our label. No event comes when that one has put it right.
    pub(super) still_labelled: bool,
    /// The commit that was seen last, and when.
    pub(super) seen: Option<(Commit, Instant)>,
    /// The full name of the reference at which that was.
    pub(super) found_at: Option<String>,
    /// The commit that was read last, the full name of the reference at which it was, and where that was.
    pub(super) read: Option<(Commit, String, RemoteUrl)>,
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
