//! The outcome of an attempt: the input of the status, and of the next retry.

use std::time::Duration;

use jiff::Timestamp;

use super::windows::Freeze;
use mainstay_api::DriftPolicy;
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::{AppliedCommit, Failure, SharedPlan, Terminating, WindowOverride};
use mainstay_cluster::secrets::Known;
use mainstay_engine::managed::{Listed, Summary};
use mainstay_engine::prevention;
use mainstay_manifest::render;
use mainstay_object::failure::{Class, chain};

/// The outcome of the last attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Reconciliation and drift reverts are suspended.
    Suspended {
        /// The end of the suspension.
        until: Option<Timestamp>,
    },
    /// A new commit waits for a window. The previous commit stays enforced.
    Frozen {
        /// The commit that waits.
        commit: String,
        /// The window that holds the commit.
        freeze: Freeze,
        /// The time when the previous commit was applied.
        since: Timestamp,
    },
    /// A new commit waits for dependencies. The previous commit stays enforced.
    Waiting {
        /// The commit that waits.
        commit: String,
        /// The unmet dependencies.
        on: String,
    },
    /// The attempt failed before any apply.
    Refused {
        /// The class of the failure.
        class: Class,
        /// The condition's reason.
        reason: Reason,
        /// The failure and the remedy.
        message: String,
    },
    /// The commit was applied, in whole or in part.
    Applied {
        /// Objects that failed, with class and reason.
        failures: Vec<(Class, Reason, Failure)>,
        /// Removed objects that are kept, with the reason.
        held: Vec<String>,
        /// Kept objects that a user must release: the object, and its entry in `held`.
        safeguarded: Vec<(String, String)>,
        /// The guard that holds all removed objects, and the remedy.
        guard: Option<String>,
        /// The number of pending deletions.
        pruning: usize,
        /// A remark that is shown although no object failed.
        note: Option<String>,
        /// When the commit was applied.
        since: Timestamp,
    },
}

impl Outcome {
    /// Whether the commit was applied without failures and pending deletions.
    pub(super) fn is_clean(&self) -> bool {
        matches!(self, Self::Applied { failures, pruning: 0, .. } if failures.is_empty())
    }

    /// Whether the commit was applied without failures.
    pub(super) fn has_no_failures(&self) -> bool {
        matches!(self, Self::Applied { failures, .. } if failures.is_empty())
    }

    /// Whether another round follows, because of pending deletions or a rebuilt inventory.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Self::Applied { pruning: 1.., .. } | Self::Applied { note: Some(_), .. })
    }

    /// Moves the start of the health timeout to `time` if `time` is later.
    pub(super) fn began_no_earlier_than(&mut self, time: Option<Timestamp>) {
        if let (Self::Applied { since, .. } | Self::Frozen { since, .. }, Some(time)) = (self, time) {
            *since = time.max(*since);
        }
    }
}

/// The input of a status.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The namespace and the name of the GitSync.
    pub name: (&'a str, &'a str),
    /// `metadata.generation` of the GitSync.
    pub generation: Option<i64>,
    /// The attempted commit.
    pub attempted: Option<&'a str>,
    /// Full name of the reference of that commit.
    pub reference: Option<&'a str>,
    /// Commit and tree that were last applied in full.
    pub applied: Option<(&'a str, &'a str)>,
    /// The last applied commits, newest first; `None` if the status has them.
    pub history: Option<&'a [AppliedCommit]>,
    /// The handled sync request.
    pub request: Option<&'a str>,
    /// The handled request to run a Job or Pod again.
    pub rerun: Option<&'a str>,
    /// The outcome.
    pub outcome: &'a Outcome,
    /// The state of the objects.
    pub summary: &'a Summary,
    /// The drift policy.
    pub drift: DriftPolicy,
    /// The directory of the repository, as in the spec.
    pub base_dir: &'a str,
    /// The reason why all manifests are ignored, if they are.
    pub left_out: Option<&'a str>,
    /// The health timeout, if Ready waits for health.
    pub wait: Option<Duration>,
    /// Whether there are windows.
    pub windows: bool,
    /// Whether an attacker on the network path can replace the content of the repository.
    pub unprotected: bool,
    /// The commit that was applied in spite of a window.
    pub window_override: Option<&'a WindowOverride>,
    /// The error in the annotation that was meant to lift the guards.
    pub refused_permission: Option<&'a str>,
    /// Removed objects that are still being deleted; `None` before the first round.
    pub terminating: Option<&'a Listed<Terminating>>,
    /// Whether manual changes should be prevented.
    pub prevent: bool,
    /// The state of the prevention; `None` if it is inactive.
    pub prevention: Option<&'a prevention::State>,
    /// The remote cluster of the objects.
    pub cluster: Option<&'a str>,
    /// The plan for GitSyncs of other agents; `None` without shards.
    pub shared: Option<&'a SharedPlan>,
}

impl Facts<'_> {
    /// Whether drift is detected. If not, earlier findings are invalid.
    pub(super) fn looks_for_drift(&self) -> bool {
        self.drift != DriftPolicy::Ignore && !matches!(self.outcome, Outcome::Suspended { .. })
    }
}

/// The reason why an attempt failed before any apply.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) class: Class,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// The server's `Retry-After`.
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

impl From<mainstay_cluster::Error> for Refused {
    fn from(error: mainstay_cluster::Error) -> Self {
        let class = error.class();
        let reason = if class == Class::Bug { Reason::InternalError } else { Reason::ClusterUnavailable };
        Self { class, reason, message: chain(&error), retry_after: error.retry_after() }
    }
}

impl From<render::Error> for Refused {
    fn from(error: render::Error) -> Self {
        let class = error.class();
        match error {
            render::Error::Source(error) => error.into(),
            render::Error::Renderer(_) => {
                Self { class, reason: Reason::SourceUnavailable, message: chain(&error), retry_after: None }
            }
        }
    }
}

impl From<mainstay_git::Error> for Refused {
    fn from(error: mainstay_git::Error) -> Self {
        let class = error.class();
        let reason = match class {
            _ if matches!(error.fault(), mainstay_git::Fault::Signature(_)) => Reason::VerificationFailed,
            _ if matches!(error.fault(), mainstay_git::Fault::MissingSecret) => Reason::SecretNotFound,
            Class::Denied => Reason::GitAuthorizationFailed,
            Class::Invalid => Reason::SourceInvalid,
            Class::Bug => Reason::InternalError,
            _ => Reason::SourceUnavailable,
        };
        Self { class, reason, message: chain(&error), retry_after: error.retry_after() }
    }
}

/// Returns the condition's reason for a GitSync that cannot use a Secret in this state.
pub(super) fn reason_of_secret(class: Class, known: &Known) -> Reason {
    match known {
        Known::Absent => Reason::SecretNotFound,
        _ if class == Class::Unavailable => Reason::ClusterUnavailable,
        _ => Reason::SpecInvalid,
    }
}

/// Refuses a Secret with unknown contents; `what` describes the expected contents.
pub(super) fn is_usable(name: &str, what: &str, known: &Known) -> Result<(), Refused> {
    let Some((class, problem)) = known.problem() else { return Ok(()) };
    let reason = reason_of_secret(class, known);
    let message = match known {
        // The contents of a withheld Secret are unknown, so the message does not say `what`.
        Known::Withheld { .. } => format!("Secret {name} {problem}"),
        _ => format!("Secret {name} with the {what} {problem}"),
    };
    Err(Refused { class, reason, message, retry_after: None })
}
