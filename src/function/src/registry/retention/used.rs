//! The images that objects of the cluster use.
//!
//! Invariant: an image is in use if any string of an object contains its digest, or a field for images its name with the tag. The
//! host is ignored, because a registry has several addresses.
//!
//! Invariant: a namespace with too many digests in strings that are no fields for images keeps all images of its own
//! repositories. Its strings keep no image of another namespace. So no namespace can fill the policy with them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::registry::Digest;

/// Number of hexadecimal digits of a digest that are kept. Digests with the same prefix count as used, too.
const PREFIX: usize = 16;
const ALGORITHM: &str = "sha256:";
/// Maximum number of digests in a namespace's strings, except in fields for images.
const OF_NAMESPACE: usize = 3000;
/// Maximum number of such digests of all namespaces. A policy has twice as many, with those of the previous policy.
const OF_ALL: usize = 15_000;

/// Maximum bytes of the name of an image with its host and tag.
const LONGEST_NAME: usize = 512;

/// Images in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// The images in fields for images.
    images: Kept,
    /// The prefixes of digests in other strings, by namespace. More than [`OF_NAMESPACE`] are not counted further.
    texts: BTreeMap<String, BTreeSet<String>>,
}

/// Images in use, as a policy stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    /// Prefixes of digests.
    digests: BTreeSet<String>,
    /// `REPOSITORY:TAG` of references without a digest.
    names: BTreeSet<String>,
    /// Tags that are in use in any repository.
    tags: BTreeSet<String>,
    /// Namespaces with too many digests, whose repositories are kept as a whole.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    whole: BTreeSet<String>,
}

impl Used {
    /// Adds all images in the specification or the status of an object.
    pub fn add(&mut self, object: &Value) {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let Self { images, texts } = self;
        let mut found = Found { images, texts: texts.entry(namespace.to_owned()).or_default() };
        found.add_all(&object["spec"], false);
        found.add_all(&object["status"], false);
    }

    /// Adds all images with this tag.
    pub fn add_tag(&mut self, tag: &str) {
        self.images.tags.insert(tag.to_owned());
    }

    /// Returns the images for a policy. Digests of the namespaces with the fewest count first, so a namespace with very many
    /// replaces none of another one.
    pub(super) fn kept(&self) -> Kept {
        let mut kept = self.images.clone();
        let mut all: Vec<_> = self.texts.iter().collect();
        all.sort_by_key(|(_, digests)| digests.len());
        let mut free = OF_ALL;
        for (namespace, digests) in all {
            match free.checked_sub(digests.len()) {
                Some(left) if digests.len() <= OF_NAMESPACE => {
                    free = left;
                    kept.digests.extend(digests.iter().cloned());
                }
                _ => {
                    kept.whole.insert(namespace.clone());
                }
            }
        }
        kept
    }
}

/// The images that are found in an object.
struct Found<'u> {
    images: &'u mut Kept,
    texts: &'u mut BTreeSet<String>,
}

impl Found<'_> {
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
                if is_image {
                    self.images.digests.insert(digits);
                } else if self.texts.len() <= OF_NAMESPACE {
                    self.texts.insert(digits);
                }
            }
        }
        if is_image && !has_digest {
            let (path, tag) = match text.rsplit_once(':') {
                Some((path, tag)) if !tag.contains('/') => (path, tag),
                _ => (text, "latest"),
            };
            let name = format!("{path}:{tag}");
            if !may_exist(&name) {
                return;
            }
            if let Some((_, path)) = name.split_once('/').filter(|_| path.contains('/')) {
                self.images.names.insert(path.to_owned());
            }
            self.images.names.insert(name);
        }
    }
}

impl Kept {
    /// Whether a manifest that has these tags in a repository is in use.
    pub(super) fn has<'t>(&self, repository: &str, digest: &Digest, tags: impl IntoIterator<Item = &'t str>) -> bool {
        let named = |tag: &str| self.tags.contains(tag) || self.names.contains(&format!("{repository}:{tag}"));
        self.digests.contains(&digest.hex()[..PREFIX]) || self.keeps_whole(repository) || tags.into_iter().any(named)
    }

    /// Whether all images of a repository are kept. A repository of no namespace may belong to any of them.
    fn keeps_whole(&self, repository: &str) -> bool {
        let owners = owners(repository);
        if owners.is_empty() {
            !self.whole.is_empty()
        } else {
            owners.into_iter().any(|owner| self.whole.contains(owner))
        }
    }

    /// Returns the namespaces whose repositories are kept as a whole.
    pub(super) fn whole(&self) -> &BTreeSet<String> {
        &self.whole
    }

    /// Returns the images that `other` lacks.
    pub(super) fn without(&self, other: &Self) -> Self {
        let rest = |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect();
        Self {
            digests: rest(&self.digests, &other.digests),
            names: rest(&self.names, &other.names),
            tags: rest(&self.tags, &other.tags),
            whole: rest(&self.whole, &other.whole),
        }
    }
}

/// Whether an image of a registry can have this name. A registry refuses longer names and other characters.
fn may_exist(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    name.len() <= LONGEST_NAME && name.bytes().all(is_valid)
}

/// Returns the namespaces to which a repository may belong. The names of earlier releases are ambiguous: `a-b-c` may
/// belong to `a` or to `a-b`.
fn owners(repository: &str) -> Vec<&str> {
    let name = repository.split('/').next().unwrap_or_default();
    match name.split_once('_') {
        Some((namespace, _)) => vec![namespace],
        None => name.match_indices('-').map(|(at, _)| &name[..at]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a digest of this number.
    fn digest(number: usize) -> Digest {
        format!("sha256:{number:016x}{}", "0".repeat(48)).parse().unwrap()
    }

    /// Returns an object of a namespace whose field has these values.
    fn object(namespace: &str, field: &str, values: &[String]) -> Value {
        let all: Vec<Value> = values.iter().map(|value| json!({ field: value })).collect();
        json!({"metadata": {"namespace": namespace}, "spec": {"all": all}})
    }

    fn digests(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| digest(number).to_string()).collect()
    }

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
        let kept = used.kept();
        let by_digest = |digit: &str| kept.has("none", &digest(digit), []);
        assert!(by_digest("1") && by_digest("2") && by_digest("4"));
        assert!(!by_digest("9"), "what only an annotation names is not used");
        assert!(kept.has("web/a", &digest("5"), ["x", "T1"]) && kept.has("b", &digest("5"), ["latest"]));
        assert!(!kept.has("web/b", &digest("5"), ["T1"]) && !kept.has("a", &digest("5"), ["b"]));
        used.add_tag("t7");
        assert!(used.kept().has("any", &digest("5"), ["t7"]));
        assert_eq!(kept.without(&kept), Kept::default());
    }

    #[test]
    fn a_namespace_with_too_many_digests_in_strings_keeps_its_own_repositories_only() {
        let mut used = Used::default();
        used.add(&object("shop", "value", &digests(90_000..90_001)));
        used.add(&object("evil", "value", &digests(0..45_000)));
        used.add(&object("evil", "value", &digests(45_000..90_000)));
        let kept = used.kept();
        assert_eq!((kept.digests.len(), kept.whole.iter().map(String::as_str).collect()), (1, vec!["evil"]));
        let has = |repository: &str, number: usize| kept.has(repository, &digest(number), []);
        assert!(has("evil-fn", 90_002) && has("evil_fn/cache", 90_002), "its own repositories");
        assert!(has("shop-fn", 90_000) && has("any-fn", 90_000), "a digest counts in all repositories");
        assert!(!has("shop-fn", 89_999) && !has("shop-fn", 90_002) && !has("evi-fn", 90_002));
        assert!(has("tools", 1), "a repository of no namespace");
    }

    #[test]
    fn an_image_in_a_field_for_images_is_kept_however_many_there_are() {
        let mut used = Used::default();
        used.add(&object("shop", "image", &digests(0..20_000)));
        used.add(&object("shop", "value", &digests(20_000..30_000)));
        let kept = used.kept();
        assert!((0..20_000).all(|number| kept.has("any-fn", &digest(number), [])));
        assert!((20_000..30_000).all(|number| kept.has("shop-fn", &digest(number), [])));
        assert_eq!(kept.without(&kept), Kept::default());
    }

    #[test]
    fn a_name_that_no_registry_accepts_takes_no_space() {
        let mut used = Used::default();
        let accepted = format!("r.io/{}:t", "x".repeat(255));
        used.add(&object("shop", "image", &[format!("a/{}", "x".repeat(500_000)), "a/\u{e9}\"".to_owned(), accepted]));
        assert_eq!(used.kept().names.len(), 2, "one name with its host, and without it");
    }

    #[test]
    fn many_namespaces_with_many_digests_replace_none_of_a_small_one() {
        let mut used = Used::default();
        for number in 0..40 {
            used.add(&object(&format!("evil{number}"), "value", &digests(number * 3000..(number + 1) * 3000)));
        }
        used.add(&object("shop", "value", &digests(900_000..900_010)));
        let kept = used.kept();
        assert!(kept.digests.len() <= OF_ALL, "{} digests", kept.digests.len());
        assert!((900_000..900_010).all(|number| kept.has("shop-fn", &digest(number), [])));
        assert!((0..120_000).all(|number| kept.has(&format!("evil{}-fn", number / 3000), &digest(number), [])));
        assert!(!kept.has("shop-fn", &digest(900_010), []));
    }
}
