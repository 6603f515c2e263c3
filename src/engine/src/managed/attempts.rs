//! Futile attempts to resolve a collision. They are not repeated until the circumstances change.
//!
//! Resolving a collision takes two writes: one claims the colliding fields, and one returns them if the apply is
//! refused again. A permanent refusal, such as by an admission policy, would repeat both writes and wake every watcher.
//! So the store remembers the refusals, with the document and the object of the attempt.
//!
//! Invariant: for the same document, object and refusals, at most one of [`EVERY`] retries claims fields. This retry is
//! needed because an unchanged first refusal may hide changes of later ones.

use std::fmt::Write as _;

use serde_json::Value;

use super::desired::Desired;
use mainstay_cluster::Error;
use mainstay_object::Digest;

/// Each retry whose number is a multiple of this claims fields again, although claiming them failed before.
const EVERY: u32 = 8;
/// Maximum number of stored refusals. When it is reached, every further refusal counts as known.
const MOST: usize = 8;

/// The circumstances of an attempt to claim fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attempted {
    document: Digest,
    /// Digest of the live object, if there was one.
    live: Option<Digest>,
}

impl Attempted {
    /// Returns the attempt of an apply over this live object.
    pub(crate) fn over(desired: &Desired, seen: Option<&Value>) -> Self {
        Self { document: desired.source(), live: seen.map(content) }
    }
}

/// Returns the digest of the fields that people and controllers write.
fn content(live: &Value) -> Digest {
    let fields =
        live.as_object().into_iter().flatten().filter(|(name, _)| !["metadata", "status"].contains(&name.as_str()));
    let metadata = live.get("metadata").and_then(Value::as_object).into_iter().flatten();
    // The server and Mainstay's own writes change the rest of the metadata.
    let metadata = metadata.filter(|(name, _)| ["labels", "annotations", "uid"].contains(&name.as_str()));
    let text = fields.chain(metadata).fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "{name}\0{value}\0");
        text
    });
    Digest::of(text.as_bytes())
}

/// The part of a refusal that stays the same. Its messages may differ each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    code: Option<u16>,
    /// Reason and field of each cause.
    causes: Vec<(String, String)>,
    /// Whether the cluster does not serve the kind.
    pub(crate) is_kind_unserved: bool,
}

impl Ground {
    /// Returns the ground of a failed apply.
    pub fn of(error: &Error) -> Self {
        let causes = error.refusal().into_iter().flat_map(|refusal| &refusal.causes);
        let causes = causes.map(|cause| (cause.reason.clone(), cause.field.clone())).collect();
        Self { code: error.code(), causes, is_kind_unserved: error.is_kind_unserved() }
    }
}

/// Attempts that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Futile {
    attempted: Attempted,
    grounds: Vec<Ground>,
    /// Retries so far, including the current one.
    tries: u32,
}

impl Futile {
    /// Returns the record of a first attempt.
    pub(crate) fn new(attempted: Attempted) -> Self {
        Self { attempted, grounds: Vec::new(), tries: 0 }
    }

    /// Whether the record has the same circumstances as this attempt.
    pub(crate) fn is_of(&self, attempted: &Attempted) -> bool {
        self.attempted == *attempted
    }

    /// Counts a retry. Returns whether this retry must not claim fields, unless its refusal is new.
    pub(crate) fn holds_back(&mut self) -> bool {
        self.tries = self.tries.wrapping_add(1);
        !self.tries.is_multiple_of(EVERY)
    }

    /// Whether an attempt was refused for this reason before.
    pub(crate) fn knows(&self, ground: &Ground) -> bool {
        self.grounds.len() >= MOST || self.grounds.contains(ground)
    }

    /// Records a refusal.
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
        Ground { code: Some(422), causes: vec![("FieldValueInvalid".into(), field.into())], ..Ground::default() }
    }

    fn futile() -> Futile {
        Futile::new(Attempted { document: Digest::of(b"1"), live: None })
    }

    #[test]
    fn a_futile_attempt_is_repeated_in_one_of_several_retries() {
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
    fn an_object_is_the_same_whatever_its_managed_fields_are() {
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
