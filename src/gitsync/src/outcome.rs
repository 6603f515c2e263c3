//! How an attempt ended: what the status is made from, and when it is tried again.

use std::time::Duration;

use jiff::Timestamp;

use super::windows::Freeze;
use mainstay_api::DriftPolicy;
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::{Failure, Terminating, WindowOverride};
use mainstay_cluster::secrets::Known;
use mainstay_engine::managed::{Listed, Summary};
use mainstay_engine::prevention;
use mainstay_manifest::render;
use mainstay_object::failure::{Class, chain};

/// How the last attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Both loops are stopped.
    Suspended {
        /// When they go on by themselves.
        until: Option<Timestamp>,
    },
    /// A new commit waits for a window; what was applied before stays enforced.
    Frozen {
        /// The commit that waits.
        commit: String,
        /// What holds it back.
        freeze: Freeze,
        /// When the commit before it was applied.
        since: Timestamp,
    },
    /// A new commit waits for GitSyncs on which this one depends; what was applied before stays enforced.
    Waiting {
        /// The commit that waits.
        commit: String,
        /// What it waits for.
        on: String,
    },
    /// It did not come to applying anything.
    Refused {
        /// What kind of failure it was.
        class: Class,
        /// Its word.
        reason: Reason,
        /// What happened and what to do.
        message: String,
    },
    /// The commit was applied, in whole or in part.
    Applied {
        /// Objects that failed: with the class, and what to show.
        failures: Vec<(Class, Reason, Failure)>,
        /// Objects that left and are kept, with the reason.
        held: Vec<String>,
        /// Those of them that somebody has to release: each object, and what it says in `held`.
        safeguarded: Vec<(String, String)>,
        /// What holds all of them, and what to do.
        guard: Option<String>,
        /// Deletions that are under way.
        pruning: usize,
        /// Something worth saying although nothing failed.
        note: Option<String>,
        /// When the commit was applied.
        since: Timestamp,
    },
}

impl Outcome {
    /// Whether a commit was applied and nothing failed; nothing is being deleted any more.
    pub(super) fn is_clean(&self) -> bool {
        matches!(self, Self::Applied { failures, pruning: 0, .. } if failures.is_empty())
    }

    /// Whether another round follows: deletions are under way, or an inventory was put together.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Self::Applied { pruning: 1.., .. } | Self::Applied { note: Some(_), .. })
    }

    /// Counts the time in which objects have to become healthy from this time, if that is later.
    pub(super) fn began_no_earlier_than(&mut self, time: Option<Timestamp>) {
        if let (Self::Applied { since, .. } | Self::Frozen { since, .. }, Some(time)) = (self, time) {
            *since = time.max(*since);
        }
    }
}

/// What a status is made from.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// `metadata.generation` of the GitSync.
    pub generation: Option<i64>,
    /// Commit that was tried.
    pub attempted: Option<&'a str>,
    /// Full name of the reference at which it was found.
    pub reference: Option<&'a str>,
    /// Commit and tree that were last applied in full.
    pub applied: Option<(&'a str, &'a str)>,
    /// Request that was acted on.
    pub request: Option<&'a str>,
    /// Request to run something again that was acted on.
    pub rerun: Option<&'a str>,
    /// How it ended.
    pub outcome: &'a Outcome,
    /// What is known of the objects.
    pub summary: &'a Summary,
    /// What is done about drift.
    pub drift: DriftPolicy,
    /// The directory of the repository, as the spec writes it.
    pub base_dir: &'a str,
    /// What leaves out its manifests, if it has no others.
    pub left_out: Option<&'a str>,
    /// Whether Ready waits for health, and for how long.
    pub wait: Option<Duration>,
    /// Whether there are windows.
    pub windows: bool,
    /// Whether anybody on the way to the repository can put another one in its place.
    pub unprotected: bool,
    /// The commit that was applied although a window held it back.
    pub window_override: Option<&'a WindowOverride>,
    /// What is wrong with the annotation that is to lift the guards.
    pub refused_permission: Option<&'a str>,
    /// Objects that left and are still being deleted; `None` when nobody has looked yet.
    pub terminating: Option<&'a Listed<Terminating>>,
    /// Whether hand edits are to be prevented.
    pub prevent: bool,
    /// What has become of that; `None` if it is not done now.
    pub prevention: Option<&'a prevention::State>,
    /// The other cluster that the objects are in.
    pub cluster: Option<&'a str>,
}

impl Facts<'_> {
    /// Whether anybody looks for drift. What was known of it before says nothing any more.
    pub(super) fn looks_for_drift(&self) -> bool {
        self.drift != DriftPolicy::Ignore && !matches!(self.outcome, Outcome::Suspended { .. })
    }
}

/// Why an attempt did not come to applying anything.
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

/// The reason of a GitSync that cannot use a Secret of which this is known.
pub(super) fn reason_of_secret(class: Class, known: &Known) -> Reason {
    match known {
        Known::Absent => Reason::SecretNotFound,
        _ if class == Class::Unavailable => Reason::ClusterUnavailable,
        _ => Reason::SpecInvalid,
    }
}

/// Refuses if nothing is known of a Secret; `what` is what it holds.
pub(super) fn is_usable(name: &str, what: &str, known: &Known) -> Result<(), Refused> {
    let Some((class, problem)) = known.problem() else { return Ok(()) };
    let reason = reason_of_secret(class, known);
    let message = match known {
        // What it holds is something else.
        Known::Withheld { .. } => format!("Secret {name} {problem}"),
        _ => format!("Secret {name} with the {what} {problem}"),
    };
    Err(Refused { class, reason, message, retry_after: None })
}
