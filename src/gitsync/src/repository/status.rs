//! The status of a GitRepository after a lookup, or after a failure before one.
//!
//! Invariant: equal findings give equal statuses, which are not written again.
//! Invariant: a message has at most 1 KiB, because the agent keeps GitRepositories in memory.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::outcome::Refused;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::git_repository::{GitRepositorySpec, GitRepositoryStatus};
use mainstay_api::short_id;
use mainstay_object::failure::Class;
use mainstay_object::printable_lines;

/// Maximum size of a message, in bytes.
const MESSAGE: usize = 1 << 10;

/// The result for a repository.
#[derive(Clone, Copy, Debug)]
pub(super) enum Finding<'a> {
    /// The lookup succeeded.
    Resolved(Head<'a>),
    /// The lookup failed, or was not possible.
    Refused(&'a Refused),
}

/// The HEAD of the remote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    /// Short name of the branch, or HEAD.
    pub(super) name: &'a str,
    pub(super) commit: &'a str,
    /// The accepted host key.
    pub(super) host_key: Option<&'a str>,
}

/// A finding with its time.
pub(super) struct Judged<'a> {
    pub(super) spec: &'a GitRepositorySpec,
    pub(super) generation: Option<i64>,
    pub(super) found: Finding<'a>,
    pub(super) at: Timestamp,
}

/// Returns the status with the finding, or the old status if it says the same.
pub(super) fn after(old: &GitRepositoryStatus, judged: &Judged<'_>, now: Timestamp) -> GitRepositoryStatus {
    let mut new = old.clone();
    new.observed_generation = judged.generation;
    let mut set = |kind: Type, status: &str, reason: Reason, message: &str| {
        let message = printable_lines(conditions::cut(message, MESSAGE)).into_owned();
        // Messages about an unavailable server vary, so the first one is kept.
        let before = conditions::status(&new.conditions, kind);
        let is_same = before.is_some_and(|old| old.status == status && old.reason == reason.as_str());
        let kept = before.filter(|_| is_same && reason == Reason::SourceUnavailable).map(|old| old.message.clone());
        let message = kept.unwrap_or(message);
        conditions::set(&mut new.conditions, kind, status, reason, &message, judged.generation, now);
    };
    match judged.found {
        Finding::Resolved(head) => {
            let how = how(judged.spec);
            let key = head.host_key.map(|key| format!("; host key {key}")).unwrap_or_default();
            set(Type::Resolved, "True", Reason::Resolved, &format!("HEAD is {}", head.name));
            set(Type::Authenticated, "True", Reason::Authenticated, &how);
            set(Type::Ready, "True", Reason::Resolved, &format!("{how}{key}"));
            new.revision = Some(format!("{}@sha1:{}", head.name, head.commit));
            new.short_revision = Some(format!("{}@sha1:{}", head.name, short_id(head.commit)));
            new.host_key = head.host_key.map(str::to_owned);
        }
        Finding::Refused(refused) => {
            let unknown = ("Unknown", refused.reason);
            let (authenticated, resolved) = match refused.class {
                Class::Denied if refused.reason == Reason::GitAuthorizationFailed => {
                    (("False", refused.reason), unknown)
                }
                Class::Invalid if refused.reason == Reason::SourceInvalid => (unknown, ("False", refused.reason)),
                _ => (unknown, unknown),
            };
            set(Type::Resolved, resolved.0, resolved.1, "");
            set(Type::Authenticated, authenticated.0, authenticated.1, "");
            set(Type::Ready, "False", refused.reason, &refused.message);
        }
    }
    if new != *old {
        new.last_lookup = Some(Time(judged.at));
    }
    new
}

/// Returns how the repository is accessed, for the message.
fn how(spec: &GitRepositorySpec) -> String {
    let how = match &spec.auth {
        Some(auth) => format!("read with Secret {}", auth.secret_name),
        None => "read without a Secret".to_owned(),
    };
    let proxy = spec.proxy_secret_ref.as_ref();
    proxy.map_or_else(|| how.clone(), |proxy| format!("{how}, through the proxy of Secret {}", proxy.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn judge(old: &GitRepositoryStatus, found: Finding<'_>, second: i64) -> GitRepositoryStatus {
        let spec = GitRepositorySpec::default();
        after(old, &Judged { spec: &spec, generation: Some(2), found, at: at(second) }, at(second))
    }

    fn shown(status: &GitRepositoryStatus) -> String {
        let condition = |kind| {
            conditions::status(&status.conditions, kind)
                .map_or("-".to_owned(), |c| format!("{} {}", c.status, c.reason))
        };
        [Type::Ready, Type::Authenticated, Type::Resolved].map(condition).join(", ")
    }

    fn head(commit: &str) -> Finding<'_> {
        Finding::Resolved(Head { name: "main", commit, host_key: Some("SHA256:abc (ED25519)") })
    }

    fn refused(class: Class, reason: Reason, message: &str) -> Refused {
        Refused { class, reason, message: message.to_owned(), retry_after: None }
    }

    #[test]
    fn says_what_a_lookup_has_found() {
        let found = judge(&GitRepositoryStatus::default(), head(COMMIT), 5);
        assert_eq!(shown(&found), "True Resolved, True Authenticated, True Resolved");
        assert_eq!(found.revision, Some(format!("main@sha1:{COMMIT}")));
        assert_eq!(found.short_revision.as_deref(), Some("main@sha1:0123456789ab"));
        let ready = conditions::status(&found.conditions, Type::Ready).unwrap();
        assert_eq!(ready.message, "read without a Secret; host key SHA256:abc (ED25519)");
        assert_eq!((found.last_lookup.as_ref().map(|at| at.0), found.observed_generation), (Some(at(5)), Some(2)));
        let denied = refused(Class::Denied, Reason::GitAuthorizationFailed, "401");
        let denied = judge(&found, Finding::Refused(&denied), 6);
        assert_eq!(
            shown(&denied),
            "False GitAuthorizationFailed, False GitAuthorizationFailed, Unknown GitAuthorizationFailed"
        );
        assert_eq!(denied.revision, found.revision, "what was seen last");
        let empty = refused(Class::Invalid, Reason::SourceInvalid, "it is empty");
        let empty = judge(&denied, Finding::Refused(&empty), 7);
        assert_eq!(shown(&empty), "False SourceInvalid, Unknown SourceInvalid, False SourceInvalid");
    }

    #[test]
    fn the_same_finding_gives_the_same_status() {
        let found = judge(&GitRepositoryStatus::default(), head(COMMIT), 5);
        assert_eq!(judge(&found, head(COMMIT), 600), found);
        assert_ne!(judge(&found, head(&COMMIT.replace('0', "9")), 600), found);
        let away = |message: &str| refused(Class::Unavailable, Reason::SourceUnavailable, message);
        let silent = judge(&found, Finding::Refused(&away("no route to 192.0.2.1")), 700);
        assert_ne!(silent, found);
        assert_eq!(judge(&silent, Finding::Refused(&away("timed out after 10 s")), 800), silent, "other words");
        let long = judge(&found, Finding::Refused(&away(&"x".repeat(5000))), 700);
        assert_eq!(conditions::status(&long.conditions, Type::Ready).unwrap().message.len(), MESSAGE);
    }
}
