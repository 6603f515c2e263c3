//! Requests for one APIRule that the API server refuses: when each request is retried, and the message until the retry.
//!
//! Reads and writes are treated the same. The caller asks [`Refusals::may_try`] before a request, and records the
//! result of the request.
//!
//! Invariant: a refused request is retried only after its delay, even if the APIRule is reconciled earlier. This
//! matters because a write of the status causes a reconcile. Invariant: messages do not vary. The first message with
//! the same cause stays. Invariant: if the agent lacks a permission, the message contains the manifests that grant it.

use std::time::Duration;

use super::child::{Child, ChildKind};
use mainstay_cluster::{Denial, Error};
use mainstay_engine::managed::attempts::Ground;
use mainstay_object::Digest;
use mainstay_object::failure::{Class, chain};

/// The wait without a planned retry.
pub(super) const FAR: Duration = Duration::from_secs(86_400);

/// The reason why a request is not done, and how long to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotDone {
    pub(super) why: String,
    pub(super) wait: Duration,
}

impl NotDone {
    /// Returns a failure that only a change can fix.
    pub(super) fn until_a_change(why: String) -> Self {
        Self { why, wait: FAR }
    }

    /// Appends a string to the message.
    pub(super) fn with(self, more: &str) -> Self {
        Self { why: self.why + more, ..self }
    }
}

/// A request for one APIRule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Read a Service.
    Read(String),
    /// Apply the object with this digest.
    Apply(ChildKind, String, Digest),
    /// Delete an object.
    Delete(ChildKind, String),
}

impl Request {
    /// Whether the request concerns the same object as another request.
    fn replaces(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Read(name), Self::Read(known)) => name == known,
            (
                Self::Apply(kind, name, _) | Self::Delete(kind, name),
                Self::Apply(known_kind, known, _) | Self::Delete(known_kind, known),
            ) => kind == known_kind && name == known,
            _ => false,
        }
    }

    /// Whether a request is still needed for these desired objects.
    pub(super) fn is_of(&self, wanted: &[Child]) -> bool {
        match self {
            Self::Apply(kind, name, _) => wanted.iter().any(|child| child.kind == *kind && child.name == *name),
            Self::Read(_) | Self::Delete(..) => true,
        }
    }
}

/// Number of consecutive failures.
#[derive(Debug, Default)]
pub(super) struct Failures(u32);

impl Failures {
    /// Records a failure. Returns how long to wait.
    pub(super) fn add(&mut self, class: Class, retry_after: Option<Duration>, chance: f64) -> Duration {
        self.0 = self.0.saturating_add(1);
        class.status_delay(self.0, retry_after, chance)
    }

    /// Records a failure with this error. Returns how long to wait.
    pub(super) fn add_error(&mut self, error: &Error, chance: f64) -> Duration {
        self.add(error.class(), error.retry_after(), chance)
    }

    /// Records a success.
    pub(super) fn reset(&mut self) {
        self.0 = 0;
    }
}

/// The refused requests since the last complete success.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    refused: Vec<Refused>,
    pub(super) failures: Failures,
}

/// A request that was refused.
#[derive(Debug)]
struct Refused {
    request: Request,
    /// When the request is retried, in seconds on the caller's clock.
    until: f64,
    ground: Ground,
    why: String,
}

impl Refusals {
    /// Returns an error while the request has to wait.
    pub(super) fn may_try(&self, request: &Request, now: f64) -> Result<(), NotDone> {
        let is_held = |refused: &&Refused| refused.request == *request && now < refused.until;
        self.refused.iter().find(is_held).map_or(Ok(()), |refused| {
            let wait = Duration::from_secs_f64(refused.until - now);
            Err(NotDone { why: refused.why.clone(), wait })
        })
    }

    /// Records a refused request. `chance` (0 to 1) adds jitter.
    pub(super) fn refuse(&mut self, request: Request, error: &Error, now: f64, chance: f64) -> NotDone {
        let (wait, ground) = (self.failures.add_error(error, chance), Ground::of(error));
        let known = self.refused.iter().find(|known| known.request == request && known.ground == ground);
        let why = known.map_or_else(|| explain(error), |known| known.why.clone());
        self.refused.retain(|known| !request.replaces(&known.request));
        self.refused.push(Refused { request, until: now + wait.as_secs_f64(), ground, why: why.clone() });
        NotDone { why, wait }
    }

    /// Forgets requests that are no longer needed.
    pub(super) fn keep(&mut self, counts: impl Fn(&Request) -> bool) {
        self.refused.retain(|refused| counts(&refused.request));
    }

    /// Records a successful request.
    pub(super) fn succeeded(&mut self, request: &Request) {
        self.refused.retain(|refused| refused.request != *request);
        self.failures.reset();
    }

    /// Records that all requests succeeded.
    pub(super) fn clear(&mut self) {
        self.refused.clear();
        self.failures.reset();
    }
}

/// Returns the error with its causes. Mentions the manifests if the agent lacks a permission.
pub(super) fn explain(error: &Error) -> String {
    let is_unpermitted = error.refusal().is_some_and(|refusal| refusal.denial == Some(Denial::Permission));
    let hint = if is_unpermitted { "; install manifests/exposure to grant the permissions" } else { "" };
    format!("{}{hint}", chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_cluster::{Attempt, Cause, Target};

    /// Returns an error. Errors with different `seconds` have the same cause and a different message.
    fn timed_out(seconds: u64) -> Error {
        let cause = Box::new(Cause::TimedOut(Duration::from_secs(seconds)));
        Error { attempt: Attempt::Apply, subject: Box::new(Target::Cluster), cause }
    }

    fn apply(text: &str) -> Request {
        Request::Apply(ChildKind::VirtualService, "web-0a1b2".to_owned(), Digest::of(text.as_bytes()))
    }

    #[test]
    fn a_refused_write_waits_for_its_retry_and_keeps_its_first_message() {
        let mut refusals = Refusals::default();
        for request in [Request::Read("web".to_owned()), apply("a")] {
            assert_eq!(refusals.may_try(&request, 0.0), Ok(()));
            let first = refusals.refuse(request.clone(), &timed_out(1), 100.0, 0.5);
            let held = refusals.may_try(&request, 101.0).unwrap_err();
            assert_eq!((held.why, held.wait), (first.why.clone(), first.wait.saturating_sub(Duration::from_secs(1))));
            assert_eq!(refusals.may_try(&request, 100.0 + first.wait.as_secs_f64()), Ok(()));
            assert_eq!(refusals.refuse(request, &timed_out(2), 200.0, 0.5).why, first.why);
        }
        refusals.clear();
        assert_eq!(refusals.may_try(&apply("a"), 200.0), Ok(()));
    }

    #[test]
    fn another_version_of_an_object_is_tried_at_once_and_takes_the_place_of_the_one_before() {
        let (mut refusals, old, new) = (Refusals::default(), apply("old"), apply("new"));
        let first = refusals.refuse(old.clone(), &timed_out(1), 0.0, 0.5);
        assert_eq!(refusals.may_try(&new, 0.0), Ok(()));
        assert_ne!(refusals.refuse(new.clone(), &timed_out(2), 0.0, 0.5).why, first.why, "it was not said of this one");
        assert_eq!(refusals.may_try(&old, 0.0), Ok(()));
        assert!(refusals.may_try(&new, 0.0).is_err());
    }

    #[test]
    fn an_object_that_is_not_wanted_any_more_has_no_refusal_and_a_deletion_keeps_its_own() {
        let (mut refusals, applied) = (Refusals::default(), apply("a"));
        let deleted = Request::Delete(ChildKind::AccessRule, "web-1".to_owned());
        for request in [&applied, &deleted] {
            refusals.refuse(request.clone(), &timed_out(1), 0.0, 0.5);
        }
        refusals.keep(|request| request.is_of(&[]));
        assert_eq!(refusals.may_try(&applied, 0.0), Ok(()));
        assert!(refusals.may_try(&deleted, 0.0).is_err());
    }

    #[test]
    fn a_read_that_goes_well_does_not_free_another_one() {
        let (mut refusals, [web, api]) =
            (Refusals::default(), ["web", "api"].map(|name| Request::Read(name.to_owned())));
        let first = refusals.refuse(web.clone(), &timed_out(1), 0.0, 0.5);
        assert_eq!(refusals.may_try(&api, 0.0), Ok(()));
        assert_ne!(refusals.refuse(api.clone(), &timed_out(2), 0.0, 0.5).why, first.why);
        refusals.succeeded(&api);
        assert_eq!(refusals.may_try(&api, 0.0), Ok(()));
        assert!(refusals.may_try(&web, 0.0).is_err());
    }
}
