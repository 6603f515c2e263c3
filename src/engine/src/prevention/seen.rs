//! The state of a live policy or binding.
//!
//! Not here: the content of the object. Only a digest is kept.

use serde_json::Value;

use mainstay_api::names::{AGENT_MANAGER, PREVENTION_LABEL};
use mainstay_object::Digest;

/// The two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    /// The policy, which has the rules.
    Policy,
    /// The binding, which has the namespaces.
    Binding,
}

impl Part {
    /// Both kinds in the order of their creation.
    pub(super) const ALL: [Self; 2] = [Self::Policy, Self::Binding];

    /// The value of the field `kind`.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Policy => "ValidatingAdmissionPolicy",
            Self::Binding => "ValidatingAdmissionPolicyBinding",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) resource_version: String,
    /// The digest of the object's spec and label.
    pub(super) digest: Digest,
    /// Whether the object has Mainstay's label and Mainstay's entry in `managedFields`.
    pub(super) is_ours: bool,
    pub(super) is_terminating: bool,
}

impl Seen {
    /// Reads a live object; `None` if it has no name.
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

/// Returns the digest of a desired or live object.
pub(super) fn digest(object: &Value) -> Digest {
    let says = [&object["spec"], &object["metadata"]["labels"][PREVENTION_LABEL]];
    Digest::of(Value::from_iter(says.map(Value::clone)).to_string().as_bytes())
}

/// Whether `managedFields` has an entry of the agent.
pub(super) fn is_made_by_us(live: &Value) -> bool {
    let entries = live["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().any(|entry| entry["manager"] == AGENT_MANAGER)
}
