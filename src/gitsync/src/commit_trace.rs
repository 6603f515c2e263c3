//! The trace of a GitSync's newest commit: its steps over all attempts, until its objects are healthy.
//!
//! Invariant: it exists only while tracing is on. Invariant: a commit has at most [`MOST`] spans, however often its
//! attempts are repeated.

use std::time::SystemTime;

use super::outcome::{Outcome, Refused};
use mainstay_git::{Commit, Consumer};
use mainstay_traces::{KeyValue, Parent, Span, parent_of};

/// Maximum number of spans of one commit.
const MOST: usize = 100;

/// The name of the step from the end of an attempt until all objects are healthy.
const HEALTH: &str = "health";
/// The outcome of an attempt that applied all objects.
const APPLIED: &str = "Applied";

/// The trace of a commit.
#[derive(Debug)]
pub(super) struct CommitTrace {
    consumer: Consumer,
    /// The begin of the lookup of the running attempt.
    looked_up: SystemTime,
    commit: Option<Commit>,
    /// The span of the commit, until its attempt has ended and its objects are healthy.
    root: Option<Span>,
    /// The same span as the parent of the steps, which may be repeated later.
    parent: Option<Parent>,
    step: Option<(&'static str, Span)>,
    spans: usize,
    /// The span of log lines, which gets the id of the trace.
    log: tracing::Span,
}

impl CommitTrace {
    pub(super) fn new(consumer: &Consumer) -> Self {
        Self {
            consumer: consumer.clone(),
            looked_up: SystemTime::now(),
            commit: None,
            root: None,
            parent: None,
            step: None,
            spans: 0,
            log: tracing::Span::none(),
        }
    }

    /// Returns the name under which a Receiver leaves the cause of a push.
    pub(super) fn cause(consumer: &Consumer) -> String {
        format!("{:?}/{}/{}", consumer.kind, consumer.namespace, consumer.name)
    }

    /// Begins an attempt. Returns the span for its log lines, which gets the id of the trace once it is known.
    pub(super) fn look_up(&mut self) -> tracing::Span {
        self.looked_up = SystemTime::now();
        self.log = tracing::error_span!("trace", trace_id = tracing::field::Empty);
        self.log.clone()
    }

    /// Ends the last step, and begins a step for a commit.
    pub(super) fn begin(&mut self, name: &'static str, commit: Commit, attributes: impl FnOnce() -> Vec<KeyValue>) {
        self.step = None;
        if self.commit != Some(commit) {
            self.open(commit);
        }
        // A second record would repeat the field.
        let log = std::mem::replace(&mut self.log, tracing::Span::none());
        if let Some(parent) = &self.parent {
            log.record("trace_id", parent.trace_id());
        }
        self.spans += 1;
        if let Some(parent) = self.parent.as_ref().filter(|_| self.spans <= MOST) {
            self.step = Span::child(name, SystemTime::now(), parent, attributes).map(|span| (name, span));
        }
    }

    /// Opens the trace of a new commit. It begins with the lookup that found the commit.
    fn open(&mut self, commit: Commit) {
        if let Some(mut superseded) = self.root.take() {
            superseded.set("mainstay.outcome", "Superseded");
        }
        let cause = parent_of(&Self::cause(&self.consumer));
        let attributes = || {
            vec![
                KeyValue::new("mainstay.namespace", self.consumer.namespace.clone()),
                KeyValue::new("mainstay.gitsync", self.consumer.name.clone()),
                KeyValue::new("mainstay.commit", commit.to_string()),
            ]
        };
        let root = Span::root("commit", self.looked_up, cause.as_ref(), attributes);
        (self.commit, self.spans) = (Some(commit), 1);
        self.parent = root.as_ref().map(Span::as_parent);
        // The lookup ended before the commit was known to be new.
        let lookup = self.parent.as_ref().and_then(|root| Span::child("lookup", self.looked_up, root, Vec::new));
        drop(lookup);
        self.root = root;
    }

    /// Ends an attempt. After a success, the wait for the objects' health begins.
    pub(super) fn ended(&mut self, attempted: &Result<Option<Outcome>, Refused>) {
        let outcome = match attempted {
            // There was no work.
            Ok(None) => return,
            Err(refused) => Err(refused.reason.as_str()),
            Ok(Some(Outcome::Applied { failures, .. })) if !failures.is_empty() => Err(failures[0].1.as_str()),
            Ok(Some(Outcome::Applied { .. })) => Ok(APPLIED),
            Ok(Some(Outcome::Frozen { .. })) => Ok("Frozen"),
            Ok(Some(Outcome::Waiting { .. })) => Ok("Waiting"),
            Ok(Some(Outcome::Suspended { .. })) => Ok("Suspended"),
            Ok(Some(Outcome::Refused { reason, .. })) => Err(reason.as_str()),
        };
        if let (Err(reason), Some((_, step))) = (&outcome, &mut self.step) {
            step.fail(reason.clone());
        }
        self.step = None;
        if let Some(root) = &mut self.root {
            match &outcome {
                Ok(outcome) => root.set("mainstay.outcome", *outcome),
                Err(reason) => root.fail(reason.clone()),
            }
        }
        match self.commit.filter(|_| self.root.is_some() && outcome == Ok(APPLIED)) {
            Some(commit) => self.begin(HEALTH, commit, Vec::new),
            None => self.root = None,
        }
    }

    /// Ends the trace if it waits for the objects' health.
    pub(super) fn healthy(&mut self) {
        if self.step.as_ref().is_some_and(|(name, _)| *name == HEALTH) {
            (self.step, self.root) = (None, None);
        }
    }
}
