//! What an attempt does: whether its commit is applied now, and the plan for it.
//!
//! Deliberately absent: reading and writing. The one thing that changes here is the registry, in which the objects of the
//! plan are reserved in the same step in which it is checked that no other GitSync has them.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::plan::{self, Facts, Observed, Plan};
use super::prune::Prune;
use super::registry::{Registry, Row};
use super::resolve::ResolvedSync;
use super::sync_state::Candidate;
use super::windows::Freeze;
use crate::object::Owner;
use crate::source::Commit;

/// Whether a commit is applied now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is.
    Open,
    /// It is, although a window holds it back: somebody asked for that.
    Overridden(Freeze),
    /// It is not.
    Held(Freeze),
}

/// Whether the windows let a commit in at `now`. One that was `begun` before they closed is finished.
pub(super) fn admit(resolved: &ResolvedSync, commit: Commit, begun: bool, now: Timestamp) -> Admission {
    match resolved.windows.freeze(now).filter(|_| !begun) {
        None => Admission::Open,
        Some(freeze) if resolved.overrides_window(commit) => Admission::Overridden(freeze),
        Some(freeze) => Admission::Held(freeze),
    }
}

/// The plan for a commit; objects that left are deleted if `prune` says so. From now on its objects count as `owner`'s,
/// before another GitSync can plan to apply them.
pub(super) fn decide(
    registry: &Registry,
    owner: &Owner,
    prune: bool,
    candidate: &Candidate,
    observed: &Observed,
    now: Timestamp,
) -> Plan {
    let Candidate { request, branch, desired } = candidate;
    let commit = request.commit.to_string();
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    registry.with(owner, |view| {
        let prune = Prune::of(prune, view.siblings_pending(branch, &commit), request.allows_prune());
        let plan = plan::plan(&Facts {
            desired: &desired.objects,
            observed,
            claimed: &|key, label| view.claim(key, label, branch, &commit),
            desired_elsewhere: &|key| view.desired_elsewhere(key),
            prune,
            now: &now,
        });
        reserve(view.own(), &plan);
        plan
    })
}

fn reserve(row: &mut Row, plan: &Plan) {
    let mut managed: HashSet<_> = row.managed.as_deref().cloned().unwrap_or_default();
    let before = managed.len();
    managed.extend(plan.stages.values().flatten().map(|step| step.desired.key.clone()));
    if managed.len() != before {
        row.managed = Some(Arc::new(managed));
    }
}
