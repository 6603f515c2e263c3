//! A policy or a binding as it was seen, as far as it matters.
//!
//! Deliberately absent: its content, of which only a digest is kept.

use serde_json::Value;

use mainstay_api::names::{AGENT_MANAGER, PREVENTION_LABEL};
use mainstay_object::Digest;

/// The two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// Says what is refused.
    Policy,
    /// Says where that counts.
    Binding,
}

impl Part {
    /// In the order in which they are created.
    pub(super) const ALL: [Self; 2] = [Self::Policy, Self::Binding];

    /// The word in `kind`.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Policy => "ValidatingAdmissionPolicy",
            Self::Binding => "ValidatingAdmissionPolicyBinding",
        }
    }
}

/// An object of one of these kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) resource_version: String,
    /// Of what it says.
    pub(super) digest: Digest,
    /// Whether we have made it: it has our label, and our entry in `managedFields`.
    pub(super) is_ours: bool,
    /// Whether it is being deleted.
    pub(super) is_terminating: bool,
}

impl Seen {
    /// What an answer or an event of a watch says; `None` if it has no name.
    pub(super) fn of(live: &Value) -> Option<(String, Self)> {
        let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = Some(text("/metadata/name")).filter(|name| !name.is_empty())?;
        let seen = Self {
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            digest: digest(live),
            is_ours: live["metadata"]["labels"].get(PREVENTION_LABEL).is_some() && is_made_by_us(live),
            is_terminating: live["metadata"].get("deletionTimestamp").is_some(),
        };
        Some((name, seen))
    }
}

/// Of what an object must be, or is.
pub(super) fn digest(object: &Value) -> Digest {
    let says = [&object["spec"], &object["metadata"]["labels"][PREVENTION_LABEL]];
    Digest::of(Value::from_iter(says.map(Value::clone)).to_string().as_bytes())
}

/// Whether our own entry says that we have written an object.
pub(super) fn is_made_by_us(live: &Value) -> bool {
    let entries = live["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().any(|entry| entry["manager"] == AGENT_MANAGER)
}
