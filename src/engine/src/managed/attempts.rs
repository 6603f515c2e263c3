//! Futile attempts to make way for an apply: they are not repeated before something has changed.
//!
//! What collides with ours makes way by two writes, one that makes it ours and one that gives it back where the apply is
//! refused all the same. Whoever refuses for ever (an admission policy, a webhook) would have an object rewritten with
//! every try, and everybody who watches it woken. So the refusals are remembered, with what was applied over what.
//!
//! Invariant: as long as the document, the object and the refusals are the same, something makes way in one of
//! [`EVERY`] tries at most. That one is for a server that has changed its mind behind a refusal that comes first.

use std::fmt::Write as _;

use serde_json::Value;

use super::desired::Desired;
use mainstay_cluster::Error;
use mainstay_object::Digest;

/// In one of how many tries something makes way although that did not help before.
const EVERY: u32 = 8;
/// Refusals that are remembered. Whoever finds more different ones refuses each for the same reason.
const MOST: usize = 8;

/// What makes an attempt another one than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempted {
    document: Digest,
    /// Of the object as it was seen, where it was.
    live: Option<Digest>,
}

impl Attempted {
    /// An apply over an object as it was seen.
    pub(crate) fn over(desired: &Desired, seen: Option<&Value>) -> Self {
        Self { document: desired.source(), live: seen.map(content) }
    }
}

/// Digest of what people and controllers wrote in an object.
fn content(live: &Value) -> Digest {
    let fields =
        live.as_object().into_iter().flatten().filter(|(name, _)| !["metadata", "status"].contains(&name.as_str()));
    let metadata = live.get("metadata").and_then(Value::as_object).into_iter().flatten();
    // The rest of the metadata is bookkeeping of the server, and of our own writes.
    let metadata = metadata.filter(|(name, _)| ["labels", "annotations", "uid"].contains(&name.as_str()));
    let text = fields.chain(metadata).fold(String::new(), |mut text, (name, value)| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{name}\0{value}\0");
        text
    });
    Digest::of(text.as_bytes())
}

/// What is the same in refusals for the same reason. Texts may be others every time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    code: Option<u16>,
    /// Reason and field of each cause.
    causes: Vec<(String, String)>,
}

impl Ground {
    /// Of a failed apply.
    pub fn of(error: &Error) -> Self {
        let causes = error.refusal().into_iter().flat_map(|refusal| &refusal.causes);
        let causes = causes.map(|cause| (cause.reason.clone(), cause.field.clone())).collect();
        Self { code: error.code(), causes }
    }
}

/// Attempts that did not help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Futile {
    attempted: Attempted,
    grounds: Vec<Ground>,
    /// Tries since, with this one.
    tries: u32,
}

impl Futile {
    /// The first of them.
    pub(crate) fn new(attempted: Attempted) -> Self {
        Self { attempted, grounds: Vec::new(), tries: 0 }
    }

    /// Whether it is about this attempt.
    pub(crate) fn is_of(&self, attempted: &Attempted) -> bool {
        self.attempted == *attempted
    }

    /// One more try of the same. Whether it goes without anything making way, unless it is refused for a new reason.
    pub(crate) fn holds_back(&mut self) -> bool {
        self.tries = self.tries.wrapping_add(1);
        !self.tries.is_multiple_of(EVERY)
    }

    /// Whether that was refused for this reason before.
    pub(crate) fn knows(&self, ground: &Ground) -> bool {
        self.grounds.len() >= MOST || self.grounds.contains(ground)
    }

    /// It was refused for this reason.
    pub(crate) fn refused(&mut self, ground: Ground) {
        if !self.knows(&ground) {
            self.grounds.push(ground);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ground(field: &str) -> Ground {
        Ground { code: Some(422), causes: vec![("FieldValueInvalid".into(), field.into())] }
    }

    fn futile() -> Futile {
        Futile::new(Attempted { document: Digest::of(b"1"), live: None })
    }

    #[test]
    fn a_failed_attempt_is_repeated_from_time_to_time() {
        let mut futile = futile();
        let made = (0..2 * EVERY).filter(|_| !futile.holds_back()).count();
        assert_eq!(made, 2);
    }

    #[test]
    fn a_new_refusal_is_distinguished_from_a_known_one_until_there_are_too_many() {
        let mut futile = futile();
        for number in 0..MOST {
            let ground = ground(&number.to_string());
            assert!(!futile.knows(&ground));
            futile.refused(ground.clone());
            assert!(futile.knows(&ground));
        }
        assert!(futile.knows(&ground("another")), "whoever makes one up each time");
    }

    #[test]
    fn an_object_is_the_same_whatever_is_written_down_about_its_writers() {
        let live = json!({"metadata": {"uid": "u", "labels": {"a": "b"}, "resourceVersion": "5", "managedFields": [{}]},
            "spec": {"ports": [{"port": 80}]}, "status": {"x": 1}});
        let with = |path: &str, value: Value| {
            let mut other = live.clone();
            *other.pointer_mut(path).unwrap() = value;
            content(&other) == content(&live)
        };
        assert!(with("/metadata/resourceVersion", json!("6")) && with("/metadata/managedFields", json!([])));
        assert!(with("/status/x", json!(2)));
        assert!(!with("/spec/ports/0/port", json!(81)) && !with("/metadata/labels/a", json!("c")));
    }
}
