//! Entry points for a fuzzer. Each accepts any bytes, terminates soon, does not panic, and checks its invariants.

use serde_json::Value;

use super::kind::{Kind, Scope};
use super::object::{self, Read};
use super::read::Page;
use super::refusal::Refusal;
use super::watch_decoder::{Decoded, decode};

/// Decodes a line of a watch, for a kind with confidential values and one without. Returns its object.
pub fn watch_line(bytes: &[u8]) -> Option<Value> {
    let mut seen = None;
    for (kind, plural) in [("ConfigMap", "configmaps"), ("Secret", "secrets")] {
        let kind = Kind::fixed("v1", kind, plural, Scope::Namespaced);
        let key = kind.key(Some("shop"), "web");
        match decode(&key, bytes) {
            Ok(Decoded::Refused(refusal)) => assert!(refusal.message.len() <= 4096, "a refusal is short"),
            Ok(Decoded::Applied { object, .. } | Decoded::Deleted { object, .. }) => seen = Some(object),
            _ => {}
        }
        // The same bytes are read as an error response, as an object, and as a page of a list.
        let _ = Refusal::read(&key, 422, None, bytes).to_string();
        let _ = object::read_metadata(bytes);
        for item in Page::read(bytes, 1).into_iter().flat_map(|page| page.items) {
            if let Ok(Read::Whole(object)) = object::read_item(&kind, item.get()) {
                assert!(!object.is_object() || object.get("kind").is_some(), "an item says what it is");
            }
        }
    }
    seen
}
