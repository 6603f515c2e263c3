//! State that is kept from one reconcile of a Function to the next.

use std::collections::BTreeSet;

use jiff::Timestamp;

use crate::refusals::RefusedWrite;

/// A Job that is retried ahead of its backoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryNow {
    /// Name of the Job.
    pub job: String,
    /// The change.
    pub cause: RetryCause,
}

/// The change after which a failed build is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// Credentials, or the registry: any failure may pass.
    Credentials,
    /// Other fields of the Function, such as its resources. A failure that only other code mends stays.
    Spec,
}

/// State that is kept from one reconcile to the next. A new agent starts without it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReconcileState {
    /// When the position in the queue was last reported.
    pub queue_reported: Option<Timestamp>,
    /// UID of a complete Job whose report is missing, and the time since when it is awaited.
    pub report_awaited: Option<(String, Timestamp)>,
    /// UID of a Job, and the last problem of its pods. The problem is kept because the pods are deleted at the Job's
    /// deadline.
    pub problem: Option<(String, String)>,
    /// The Job whose inputs or credentials have changed since it started. The Job is replaced as soon as it fails or is
    /// held up.
    pub retry_now: Option<RetryNow>,
    /// Tag of an image, and why its last build failed. The next build reports this failure while it runs.
    pub failed: Option<(String, String)>,
    /// The last refused write.
    pub refused: Option<RefusedWrite>,
    /// Secrets that the Function references and that do not exist.
    pub missing_secrets: BTreeSet<String>,
    /// State of the Knative Service at the last cleanup that left no Revision to delete.
    pub cleaned_up: Option<String>,
}

impl ReconcileState {
    /// Returns the change after which this Job is retried, if there was one.
    pub(super) fn retry_cause(&self, job: &str) -> Option<RetryCause> {
        self.retry_now.as_ref().filter(|retry| retry.job == job).map(|retry| retry.cause)
    }
}
