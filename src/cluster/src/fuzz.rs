//! Readers of hostile input, for a fuzzer: each takes any bytes, ends soon, does not panic, and keeps its promise.

use serde_json::Value;

use super::kind::{Kind, Scope};
use super::object::{self, Read};
use super::read::Page;
use super::refusal::Refusal;
use super::watch_decoder::{Decoded, decode};

/// A line of a watch, as of a kind whose values may be shown and of one whose may not. Returns the object that it has.
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
        // The same bytes as an answer, as an object, and as a page of a list.
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
