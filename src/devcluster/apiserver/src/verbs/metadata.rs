//! The metadata of all kinds: server-owned fields and finalizers.
//!
//! Invariant: `uid`, `creationTimestamp`, `deletionTimestamp`, `deletionGracePeriodSeconds` and `generation` of a
//! stored object are set only here.
//!
//! Not here: managedFields (`patch`) and validation (`kinds::hooks`).

use crate::status::Cause;
use serde_json::{Map, Value};

/// Characters of generated names. Vowels and ambiguous characters are excluded.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Number of random characters after `generateName`.
const GENERATED: usize = 5;
/// Maximum length of the base of a generated name.
const MAX_BASE: usize = 63 - GENERATED;

/// Fields that only the server writes.
const SERVER_OWNED: [&str; 5] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Returns `metadata`. Decoding ensures that it is an object.
pub fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    object["metadata"].as_object_mut().expect("metadata was just made an object")
}

/// Generates a UID.
pub fn new_uid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Generates a name from a `generateName`. The same seed and attempt yield the same name.
pub fn generated_name(base: &str, seed: Option<u64>, attempt: u64) -> String {
    let mut chance = seed.map_or_else(fastrand::Rng::new, |seed| fastrand::Rng::with_seed(seed.wrapping_add(attempt)));
    let end = base.char_indices().map(|(i, _)| i).take_while(|i| *i <= MAX_BASE).last().unwrap_or(0);
    let cut = if base.len() > MAX_BASE { &base[..end] } else { base };
    let random = (0..GENERATED).map(|_| char::from(NAME_ALPHABET[chance.usize(..NAME_ALPHABET.len())]));
    cut.chars().chain(random).collect()
}

/// Sets the server-owned fields of a new object.
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

/// Validates that an update does not mark an object for deletion.
pub(crate) fn marked_by_client(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        let given = &new["metadata"][field];
        if !given.is_null() && old["metadata"][field].is_null() {
            let cause = Cause::invalid(format!("metadata.{field}"), given, "field is immutable");
            // Reported twice, as by a real server: by the general validation and by the validation of the kind.
            causes.extend([cause.clone(), cause]);
        }
    }
    causes
}

/// Restores the server-owned fields from the live object.
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

/// Restores the managers of the live object if the new state has none.
pub fn keep_managers(old: &Value, new: &mut Value) {
    let metadata = of(new);
    if metadata.get("managedFields").is_none_or(Value::is_null) {
        match old["metadata"].get("managedFields") {
            Some(value) => metadata.insert("managedFields".to_owned(), value.clone()),
            None => metadata.remove("managedFields"),
        };
    }
}

/// Returns whether the object is marked for deletion.
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns the finalizers of an object.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Increments the generation.
pub fn next_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0).saturating_add(1);
    of(object).insert("generation".to_owned(), generation.into());
}
