//! The outcome of the last attempt, and how far users know it.
//!
//! Not here: the report of an attempt (`report`).

use super::conditions;
use super::context::SyncFacts;
use super::health_report::HealthReport;
use super::inventory_save::InventorySave;
use super::outcome::Outcome;
use super::status_turn::StatusTurn;
use super::written_status::WrittenStatus;
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;

/// The reports of one task.
#[derive(Default)]
pub(super) struct Reported {
    /// The outcome of the last attempt.
    pub(super) outcome: Option<Outcome>,
    pub(super) status: WrittenStatus,
    pub(super) health: HealthReport,
    pub(super) save: InventorySave,
    /// The facts for metrics.
    pub(super) facts: SyncFacts,
}

impl Reported {
    pub(super) fn new(turn: StatusTurn) -> Self {
        Self { status: WrittenStatus::new(turn), ..Self::default() }
    }

    /// Forgets the reports about objects in a different cluster. The status is that of the GitSync.
    pub(super) fn forget_cluster(&mut self) {
        (self.outcome, self.save) = (None, InventorySave::Free);
        self.health.forget_cluster();
    }

    /// Whether the last outcome refuses the manifests of the commit.
    pub(super) fn has_invalid_manifests(&self) -> bool {
        matches!(&self.outcome, Some(Outcome::Refused { reason: Reason::ManifestInvalid, .. }))
    }

    /// Whether the last attempt had no failures. Before the first one, the written status shows it.
    pub(super) fn has_succeeded(&self, sync: &GitSync) -> bool {
        match &self.outcome {
            Some(Outcome::Applied { failures, guard, .. }) => failures.is_empty() && guard.is_none(),
            Some(_) => false,
            None => sync.status.as_ref().is_some_and(conditions::is_ready),
        }
    }

    /// Whether the GitSync is suspended.
    pub(super) fn is_suspended(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Suspended { .. }))
    }

    /// Whether a window holds a commit back.
    pub(super) fn is_frozen(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Frozen { .. }))
    }

    /// Whether a commit waits for dependencies, or its dependencies form a cycle.
    pub(super) fn waits_for_dependencies(&self) -> bool {
        match &self.outcome {
            Some(Outcome::Waiting { .. }) => true,
            Some(Outcome::Refused { reason, .. }) => *reason == Reason::DependencyCycle,
            _ => false,
        }
    }
}
