//! Providers, Alerts and OCIRepositories: how they are read, their state with its conditions, and the Secrets that they
//! reference.
//!
//! Invariant: equal facts result in equal conditions, which are not written again. Not here: the use of these objects
//! (`notifications`, `artifacts`).

use std::collections::BTreeMap;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use super::kept::{Name, memory};
use super::notify::event_metadata;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::names::{FLUX_REQUESTED_AT, REQUESTED_AT};
use mainstay_cluster::secrets::{Followed, Known, Purpose, Secrets};
use mainstay_notification::Identity;

/// Maximum memory of a spec, in bytes.
const LONGEST: usize = 32 << 10;
/// Maximum memory of the labels, in bytes.
const LABELS: usize = 8 << 10;
/// Maximum length of a message, in bytes.
const MESSAGE: usize = 1 << 10;
/// Length to which the value of a request is cut, in bytes.
const REQUEST: usize = 64;

/// An object without its status.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object<S> {
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
    /// Its labels; none if they are very large.
    pub(super) labels: BTreeMap<String, String>,
    /// The fields of messages about it.
    pub(super) event_metadata: BTreeMap<String, String>,
    /// The annotations that request a lookup. A new value is a change of the object, so its task has another turn.
    pub(super) requested: [String; 2],
    pub(super) spec: S,
}

impl<S> Object<S> {
    /// Returns the identity of the object with this name.
    pub(super) fn identity<'o>(&'o self, name: &'o Name) -> Identity<'o> {
        Identity { namespace: &name.0, name: &name.1, uid: &self.uid, labels: Some(&self.labels) }
    }
}

/// The task of an object.
pub(super) struct Running<S> {
    pub(super) feed: watch::Sender<Object<S>>,
    /// Whether the object is within the maximum number of objects of its namespace.
    pub(super) fits: bool,
}

/// Returns whether the namespace may have another object besides those within the maximum. `most` is the maximum number
/// of objects.
pub(super) fn fits<S>(running: &BTreeMap<Name, Running<S>>, name: &Name, most: usize) -> bool {
    let others = running.iter().filter(|(other, running)| other.0 == name.0 && *other != name && running.fits);
    others.count() < most
}

/// Returns an object of a namespace that exceeded the maximum.
pub(super) fn without_room<S: Clone>(
    running: &BTreeMap<Name, Running<S>>,
    namespace: &str,
) -> Option<(Name, Object<S>)> {
    let waiting = running.iter().find(|(name, running)| name.0 == namespace && !running.fits);
    waiting.map(|(name, running)| (name.clone(), running.feed.borrow().clone()))
}

/// Reads an object of a watch.
pub(super) fn read<S: DeserializeOwned>(live: &Value) -> Result<Option<Object<S>>, String> {
    let spec = &live["spec"];
    if memory(spec) > LONGEST {
        return Err("its spec is larger than 32 KiB".to_owned());
    }
    // The error may quote a value.
    let spec = S::deserialize(spec).map_err(|_| "a field does not match the schema of the CRD".to_owned())?;
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    let labels = live.pointer("/metadata/labels").filter(|labels| memory(labels) <= LABELS);
    let labels = labels.and_then(|labels| BTreeMap::deserialize(labels).ok()).unwrap_or_default();
    let annotations = live.pointer("/metadata/annotations").and_then(Value::as_object);
    let annotations = annotations.into_iter().flatten().filter_map(|(name, value)| Some((name, value.as_str()?)));
    let event_metadata = event_metadata(annotations.map(|(name, value)| (name.as_str(), value)));
    let requested = [REQUESTED_AT, FLUX_REQUESTED_AT].map(|name| {
        let value = live["metadata"]["annotations"][name].as_str().unwrap_or_default();
        conditions::cut(value, REQUEST).to_owned()
    });
    let generation = live.pointer("/metadata/generation").and_then(Value::as_i64);
    Ok(Some(Object { uid, generation, labels, event_metadata, requested, spec }))
}

/// The state that the conditions of an object show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) reason: Reason,
    pub(super) message: String,
    is_ready: bool,
    /// Whether only a change of the spec can fix the problem.
    is_stalled: bool,
}

impl State {
    pub(super) fn ready(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_ready: true, is_stalled: false }
    }

    pub(super) fn not_ready(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_ready: false, is_stalled: false }
    }

    pub(super) fn invalid(reason: Reason, problems: &[String]) -> Self {
        Self { reason, message: problems.join("; "), is_ready: false, is_stalled: true }
    }

    /// Returns whether it shows that the object does not work.
    pub(super) fn is_failure(&self) -> bool {
        !self.is_ready && self.reason != Reason::Suspended
    }

    /// Returns the conditions that show this state, based on the `old` ones.
    pub(super) fn conditions(&self, old: &[Condition], generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
        let mut new = old.to_vec();
        let (ready, message) = (if self.is_ready { "True" } else { "False" }, conditions::cut(&self.message, MESSAGE));
        conditions::set(&mut new, Type::Ready, ready, self.reason, message, generation, now);
        new.retain(|condition| self.is_stalled || condition.type_ != Type::Stalled.as_str());
        if self.is_stalled {
            conditions::set(&mut new, Type::Stalled, "True", self.reason, message, generation, now);
        }
        new
    }
}

/// The Secrets that an object references, in the order of [`FIELDS`].
#[derive(Debug, Default)]
pub(super) struct NamedSecrets {
    followed: [Option<Followed>; FIELDS.len()],
}

/// The fields with the names of Secrets.
const FIELDS: [&str; 5] = [
    "spec.secretRef",
    "spec.certSecretRef",
    "spec.proxySecretRef",
    "spec.verify.secretRef",
    "spec.verify.trustedRootSecretRef",
];

impl NamedSecrets {
    /// Follows the referenced Secrets, each for its purpose, and returns their state; `None` for a field that is not
    /// set.
    ///
    /// # Errors
    /// Fails with the first Secret that is missing, or that must not be used for its purpose.
    pub(super) async fn read<const N: usize>(
        &mut self,
        secrets: &Secrets,
        owner: &Name,
        named: [(Option<&str>, Purpose); N],
    ) -> Result<[Option<Known>; N], State> {
        let all = self.follow(secrets, owner, named).await;
        usable(named, all)
    }

    /// Follows the referenced Secrets, each for its purpose, and returns the state of each, also if one cannot be used.
    pub(super) async fn follow<const N: usize>(
        &mut self,
        secrets: &Secrets,
        owner: &Name,
        named: [(Option<&str>, Purpose); N],
    ) -> [Option<Known>; N] {
        const { assert!(N <= FIELDS.len()) };
        for (followed, (name, used_for)) in self.followed.iter_mut().zip(named) {
            let Some(name) = name else {
                *followed = None;
                continue;
            };
            if followed.as_ref().map(Followed::of) != Some((&owner.0, name)) {
                *followed = Some(secrets.follow(&owner.0, name, used_for));
            }
        }
        // Each may take some seconds.
        let reads: Vec<_> = self.followed.iter_mut().take(N).map(state_of).collect();
        let mut all = [const { None }; N];
        for (state, read) in all.iter_mut().zip(join_all(reads).await) {
            *state = read;
        }
        all
    }

    /// Waits until one of the Secrets changes.
    pub(super) async fn changed(&mut self) {
        Followed::any_changed(self.followed.iter_mut().flatten()).await;
    }
}

async fn state_of(followed: &mut Option<Followed>) -> Option<Known> {
    match followed {
        Some(followed) => Some(followed.known().await),
        None => None,
    }
}

/// Returns the states of the Secrets, named in the order of [`FIELDS`], if all of them can be used.
///
/// # Errors
/// Fails with the first Secret that is missing, or that must not be used for its purpose.
pub(super) fn usable<const N: usize>(
    named: [(Option<&str>, Purpose); N],
    all: [Option<Known>; N],
) -> Result<[Option<Known>; N], State> {
    for (field, ((name, _), known)) in FIELDS.iter().zip(named.iter().zip(&all)) {
        let (Some(name), Some(known)) = (name, known) else { continue };
        if let Some((_, why)) = known.problem() {
            let reason = if *known == Known::Absent { Reason::SecretNotFound } else { Reason::SpecInvalid };
            return Err(State::not_ready(reason, format!("{field}: the Secret {name} {why}")));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_first_secret_that_cannot_be_used_is_reported() {
        let named = [(None, Purpose::Artifact), (Some("ca"), Purpose::Artifact), (Some("proxy"), Purpose::Proxy)];
        let said = |all: [Option<Known>; 3]| usable(named, all).map_err(|state| (state.reason, state.message));
        let missing = "spec.certSecretRef: the Secret ca does not exist in this namespace".to_owned();
        assert_eq!(said([None, Some(Known::Absent), Some(Known::Nothing)]), Err((Reason::SecretNotFound, missing)));
        let data = Known::Data(Arc::default());
        let unread = "spec.proxySecretRef: the Secret proxy cannot be read yet".to_owned();
        assert_eq!(said([None, Some(data.clone()), Some(Known::Nothing)]), Err((Reason::SpecInvalid, unread)));
        let all = [None, Some(data.clone()), Some(data)];
        assert_eq!(said(all.clone()), Ok(all));
    }
}
