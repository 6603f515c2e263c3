//! See [`crate::fuzz`].

use super::kind::{Kind, Scope};
use super::refusal::Refusal;
use super::watch_decoder::{Decoded, decode};

/// A line of a watch, as of a kind whose values may be shown and of one whose may not.
pub fn watch_line(bytes: &[u8]) {
    for (kind, plural) in [("ConfigMap", "configmaps"), ("Secret", "secrets")] {
        let key = Kind::fixed("v1", kind, plural, Scope::Namespaced).key(Some("shop"), "web");
        if let Ok(Decoded::Refused(refusal)) = decode(&key, bytes) {
            assert!(refusal.message.len() <= 4096, "a refusal is short");
        }
        // The same bytes as an answer.
        let _ = Refusal::read(&key, 422, None, bytes).to_string();
    }
}
