//! The metadata that all kinds share: what the server owns, what clients may write, what finalizers mean.
//!
//! Invariant: `uid`, `creationTimestamp`, `deletionTimestamp`, `deletionGracePeriodSeconds` and `generation` of a
//! stored object were set here and nowhere else.
//!
//! Deliberately absent: managedFields (`patch`), and validation (`kinds::hooks`).

use crate::status::Cause;
use serde_json::{Map, Value};

/// Characters of generated names, without those that make words or are misread.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Random characters after `generateName`.
const GENERATED: usize = 5;
/// Longest base of a generated name.
const MAX_BASE: usize = 63 - GENERATED;

/// Fields that only the server writes.
const SERVER_OWNED: [&str; 5] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// `metadata`, which decoding has made an object.
pub fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    object["metadata"].as_object_mut().expect("metadata was just made an object")
}

/// A uid.
pub fn new_uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// A name from a `generateName`; the same one for the same seed and attempt.
pub fn generated_name(base: &str, seed: Option<u64>, attempt: u64) -> String {
    let mut chance = seed.map_or_else(fastrand::Rng::new, |seed| fastrand::Rng::with_seed(seed.wrapping_add(attempt)));
    let end = base.char_indices().map(|(i, _)| i).take_while(|i| *i <= MAX_BASE).last().unwrap_or(0);
    let cut = if base.len() > MAX_BASE { &base[..end] } else { base };
    let random = (0..GENERATED).map(|_| char::from(NAME_ALPHABET[chance.usize(..NAME_ALPHABET.len())]));
    cut.chars().chain(random).collect()
}

/// Sets what the server owns on a new object.
pub fn begin(object: &mut Value, namespace: &str, name: &str, uid: String, now: &str) {
    let metadata = of(object);
    for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), now.into());
    if !name.is_empty() {
        metadata.insert("name".to_owned(), name.into());
    }
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}

/// Why a change is refused that marks an object for deletion, which only a deletion does.
pub(crate) fn marked_by_client(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        let given = &new["metadata"][field];
        if !given.is_null() && old["metadata"][field].is_null() {
            let cause = Cause::invalid(format!("metadata.{field}"), given, "field is immutable");
            // Reported twice, as by a real server: once by the validation of all kinds, and once by that of the kind.
            causes.extend([cause.clone(), cause]);
        }
    }
    causes
}

/// Restores what the server owns from the live object.
pub fn keep(old: &Value, new: &mut Value) {
    let metadata = of(new);
    for field in SERVER_OWNED.iter().chain(&["name", "namespace", "resourceVersion"]) {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert((*field).to_owned(), value.clone()),
            None => metadata.remove(*field),
        };
    }
    metadata.remove("selfLink");
}

/// Restores the managers of the live object where a write does not speak of them.
pub fn keep_managers(old: &Value, new: &mut Value) {
    let metadata = of(new);
    if metadata.get("managedFields").is_none_or(Value::is_null) {
        match old["metadata"].get("managedFields") {
            Some(value) => metadata.insert("managedFields".to_owned(), value.clone()),
            None => metadata.remove("managedFields"),
        };
    }
}

/// Whether the object has been marked for deletion.
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The finalizers of an object.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Adds one to the generation.
pub fn next_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0).saturating_add(1);
    of(object).insert("generation".to_owned(), generation.into());
}
