//! The images that objects of the cluster use.
//!
//! Invariant: an image is in use if any string of an object contains its digest or its name with the tag. The host is
//! ignored, because a registry has several addresses.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::registry::Digest;

/// Number of hexadecimal digits of a digest that are kept. Digests with the same prefix count as used, too.
const PREFIX: usize = 16;
const ALGORITHM: &str = "sha256:";

/// Images in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Used {
    /// Prefixes of digests.
    digests: BTreeSet<String>,
    /// `REPOSITORY:TAG` of references without a digest.
    names: BTreeSet<String>,
    /// Tags that are in use in any repository.
    tags: BTreeSet<String>,
}

impl Used {
    /// Adds all images in the specification or the status of an object.
    pub fn add(&mut self, object: &Value) {
        self.add_all(&object["spec"], false);
        self.add_all(&object["status"], false);
    }

    /// Adds all images with this tag.
    pub fn add_tag(&mut self, tag: &str) {
        self.tags.insert(tag.to_owned());
    }

    fn add_all(&mut self, value: &Value, is_image: bool) {
        match value {
            Value::String(text) => self.add_text(text, is_image),
            Value::Array(items) => items.iter().for_each(|item| self.add_all(item, is_image)),
            // Containers have an `image`, container statuses an `imageID`, and image volumes a `reference`.
            Value::Object(fields) => fields.iter().for_each(|(name, field)| {
                self.add_all(field, matches!(name.as_str(), "image" | "imageID" | "reference"));
            }),
            _ => {}
        }
    }

    fn add_text(&mut self, text: &str, is_image: bool) {
        let mut has_digest = false;
        for (at, _) in text.match_indices(ALGORITHM) {
            let digits = text[at + ALGORITHM.len()..].bytes().take_while(u8::is_ascii_hexdigit).take(PREFIX);
            let digits: String = digits.map(|digit| char::from(digit.to_ascii_lowercase())).collect();
            if digits.len() == PREFIX {
                has_digest = true;
                self.digests.insert(digits);
            }
        }
        if is_image && !has_digest {
            let (path, tag) = match text.rsplit_once(':') {
                Some((path, tag)) if !tag.contains('/') => (path, tag),
                _ => (text, "latest"),
            };
            self.names.insert(format!("{path}:{tag}"));
            if let Some((_, path)) = path.split_once('/') {
                self.names.insert(format!("{path}:{tag}"));
            }
        }
    }

    /// Whether a manifest that has these tags in a repository is in use.
    pub(super) fn has<'t>(&self, repository: &str, digest: &Digest, tags: impl IntoIterator<Item = &'t str>) -> bool {
        let named = |tag: &str| self.tags.contains(tag) || self.names.contains(&format!("{repository}:{tag}"));
        self.digests.contains(&digest.hex()[..PREFIX]) || tags.into_iter().any(named)
    }

    /// Returns the images that `other` lacks.
    pub(super) fn without(&self, other: &Self) -> Self {
        let rest = |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect();
        Self {
            digests: rest(&self.digests, &other.digests),
            names: rest(&self.names, &other.names),
            tags: rest(&self.tags, &other.tags),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_used_whichever_way_they_are_named() {
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64)).parse::<Digest>().unwrap();
        let object = json!({
            "metadata": {"annotations": {"old": digest("9").as_str()}},
            "spec": {
                "template": {"spec": {
                    "containers": [{"image": format!("r.io:5000/a-b:t@{}", digest("1")), "env": [{"value": "a:b"}]}],
                    "initContainers": [{"image": "127.0.0.1:32137/web/a:T1"}, {"image": "localhost/b"}],
                    "volumes": [{"image": {"reference": format!("r/x@{}", digest("2"))}}],
                }},
            },
            "status": {"containerStatuses": [{"imageID": "docker-pullable://r/x"}, {
                "imageID": format!("r/x@SHA256:{0} {1}", "3".repeat(64), digest("4"))
            }]},
        });
        let mut used = Used::default();
        used.add(&object);
        let by_digest = |digit: &str| used.has("none", &digest(digit), []);
        assert!(by_digest("1") && by_digest("2") && by_digest("4"));
        assert!(!by_digest("9"), "what only an annotation names is not used");
        assert!(used.has("web/a", &digest("5"), ["x", "T1"]) && used.has("b", &digest("5"), ["latest"]));
        assert!(!used.has("web/b", &digest("5"), ["T1"]) && !used.has("a", &digest("5"), ["b"]));
        used.add_tag("t7");
        assert!(used.has("any", &digest("5"), ["t7"]));
        assert_eq!(used.without(&used), Used::default());
    }
}
