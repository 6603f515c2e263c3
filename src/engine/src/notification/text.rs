//! Texts of messages without subject and object.

use super::message::{Message, WhyPruned};
use mainstay_api::git_sync::{AllowedBy, UNKNOWN, WHOLE_OBJECT};
use mainstay_api::names::{ALLOW_PRUNE, DELETE_OBJECTS, ENABLED, ON_DELETE, REPLACE, RERUN};
use mainstay_api::short_id;

impl Message {
    /// Returns the text of the message. May have several lines.
    pub(super) fn text(&self) -> String {
        match self {
            Self::CommitSeen { commit, .. } => format!("commit {} seen", short_id(commit)),
            Self::BranchRewritten { branch, old, new, .. } => {
                let (old, new) = (short_id(old), short_id(new));
                format!(
                    "branch {branch} was rewritten: {old} → {new}; the new commit does not descend from the old one"
                )
            }
            Self::CommitApplied { commit, created, changed, unchanged, pruned, millis, .. } => {
                let counts = format!("{created} created, {changed} changed, {unchanged} unchanged, {pruned} pruned");
                format!("commit {} applied: {counts} ({millis} ms)", short_id(commit))
            }
            Self::Recovered { commit, .. } => format!("commit {}: all objects are healthy again", short_id(commit)),
            Self::NoManifests { commit, why, .. } | Self::Unhealthy { commit, why, .. } => {
                format!("commit {}: {why}", short_id(commit))
            }
            Self::CommitHeld { why, .. } | Self::AnnotationInvalid { problem: why, .. } => why.clone(),
            Self::WindowOverridden { commit, window, who, claimed_user, .. } => {
                overridden(commit, window, who, claimed_user.as_deref())
            }
            Self::Reverted { fields, who, millis, .. } => reverted(fields, who, *millis),
            Self::DriftSeen { fields, who, .. } => {
                format!("differs in {} (changed by {who}), not reverted by policy", fields.join(", "))
            }
            Self::DriftMissed { fields, .. } if fields == &[WHOLE_OBJECT] => {
                "is missing (found by an audit)".to_owned()
            }
            Self::DriftMissed { fields, who, .. } => {
                format!("differs in {} (changed by {who}; found by an audit)", fields.join(", "))
            }
            Self::AuditRefused { cause, .. } => {
                format!("it and others of its kind cannot be audited by dry runs: {cause}")
            }
            Self::Contended { fields, who, .. } => {
                format!("{who} keeps writing to {}: reverts slow down", fields.join(", "))
            }
            Self::NotPutBack { fields, cause, .. } => format!("cannot revert {}: {cause}", fields.join(", ")),
            Self::TakenOver { from, fields, .. } => taken_over(from, fields),
            Self::NotRemoved { cause, .. } => format!("fields that other tools left in it cannot be removed: {cause}"),
            Self::Unreadable { cause, .. } => {
                format!("cannot be decoded; the agent skips it until it changes: {cause}")
            }
            Self::NotKept { why, .. } => format!("reconciliation is paused: {why}"),
            Self::Pruned { why, .. } => pruned(why),
            Self::NotPruned { why, .. } => format!("removed from the repository but not deleted: {why}"),
            Self::Replaced { fields, allowed_by, .. } => replaced(fields, *allowed_by),
            Self::DeletionStuck { finalizers, since, .. } => {
                format!("is still being deleted, since {since}: it {}", waits_for(finalizers))
            }
            Self::LeftBehind { cluster, why, .. } => left_behind(cluster, why),
            Self::Failed { commit, problems, .. } => failed(commit.as_deref(), problems),
            Self::Stage { message, .. } | Self::Noticed { message, .. } => message.clone(),
            Self::DeliveryRefused { why, .. } => format!("a delivery was refused: {why}"),
            Self::DeliveryIncomplete { why, .. } => format!("a delivery had no effect on some objects: {why}"),
            Self::Paused { problem: Some(problem), .. } => format!("paused; {problem}"),
            Self::Paused { paused, .. } => if *paused { "paused" } else { "resumed" }.to_owned(),
        }
    }
}

fn left_behind(cluster: &str, why: &str) -> String {
    format!("the objects in cluster {cluster} are orphaned: labelled by Mainstay, owned by no GitSync: {why}")
}

fn overridden(commit: &str, window: &str, who: &str, claimed_user: Option<&str>) -> String {
    let claimed = claimed_user.map(|user| format!(" (claimed user: {user})")).unwrap_or_default();
    format!("commit {} is applied although {window}: requested by {who}{claimed}", short_id(commit))
}

fn reverted(fields: &[String], who: &str, millis: f64) -> String {
    if fields == [WHOLE_OBJECT] {
        let who = if who == UNKNOWN { "somebody" } else { who };
        format!("recreated (deleted by {who}, {millis:.1} ms)")
    } else {
        format!("reverted {} (changed by {who}, {millis:.1} ms)", fields.join(", "))
    }
}

fn taken_over(from: &[String], fields: &[String]) -> String {
    let from = from.join(", ");
    match fields {
        [] => format!("taken over from {from}; removed no field"),
        fields => format!("taken over from {from}; removed {} (not in the manifest)", fields.join(", ")),
    }
}

fn pruned(why: &WhyPruned) -> String {
    match why {
        WhyPruned::Left(commit) => format!("pruned: not in commit {}", short_id(commit)),
        WhyPruned::LeftAndAllowed(commit) => {
            format!("pruned: not in commit {}, and {ALLOW_PRUNE} allows it", short_id(commit))
        }
        WhyPruned::WithItsGitSync => format!("pruned with its GitSync ({ON_DELETE}: {DELETE_OBJECTS})"),
        WhyPruned::RunsAgain => format!("deleted, to run again ({RERUN})"),
    }
}

fn replaced(fields: &[String], allowed_by: AllowedBy) -> String {
    let fields = if fields.is_empty() { "a field".to_owned() } else { fields.join(", ") };
    let by = match allowed_by {
        AllowedBy::Annotation => format!("{REPLACE}: {ENABLED}"),
        AllowedBy::Spec => "spec.replace".to_owned(),
    };
    format!("replaced: {fields} cannot be changed ({by})")
}

fn failed(commit: Option<&str>, problems: &[String]) -> String {
    let at = commit.map(|commit| format!(" at commit {}", short_id(commit))).unwrap_or_default();
    match problems {
        [one] => format!("failed{at}: {one}"),
        several => format!("failed{at}: {} problems:\n{}", several.len(), several.join("\n")),
    }
}

/// Describes the finalizers that block a deletion.
pub fn waits_for(finalizers: &[String]) -> String {
    match finalizers {
        [] => "waits for its grace period or for its dependents".to_owned(),
        [one] => format!("waits for the finalizer {one}, which only its controller should take off"),
        several => {
            format!("waits for the finalizers {}, which only their controllers should take off", several.join(", "))
        }
    }
}
