//! The images that objects of the cluster use.
//!
//! Invariant: an image is in use if a field for images names it, by its digest or by its name with the tag. The host is
//! ignored, because a registry has several addresses. A digest in any other string keeps the image in repositories of
//! the object's own namespace, and in repositories of no namespace.
//!
//! Invariant: a namespace that uses too many images keeps all images of its own repositories. Its further images count
//! in no repository of another namespace. So no namespace can fill the policy.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::registry::Digest;

/// Number of hexadecimal digits of a digest that are kept. Digests with the same prefix count as used, too.
const PREFIX: usize = 16;
const ALGORITHM: &str = "sha256:";
/// Maximum bytes of the images in a namespace's fields, and of the digests in its other strings.
const OF_NAMESPACE: usize = 64 << 10;
/// Maximum bytes of the images of all namespaces. A policy has twice as many, with the images of the previous policy.
const OF_ALL: usize = 320 << 10;
/// Bytes of an entry in a policy in addition to its text: quotes and a comma.
const ENTRY: usize = 3;
/// Maximum bytes of a repository's name with a tag. A registry refuses longer names.
const NAME: usize = 384;

/// Images in use, by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used(BTreeMap<String, OfNamespace>);

/// The images that a namespace uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OfNamespace {
    /// The images in fields for images.
    images: Bounded<Image>,
    /// The prefixes of digests in other strings.
    texts: Bounded<String>,
}

/// A set of at most [`OF_NAMESPACE`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bounded<T> {
    all: BTreeSet<T>,
    bytes: usize,
    /// Whether an entry did not fit.
    is_cut: bool,
}

/// A reference to an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Image {
    /// The prefix of a digest.
    Digest(String),
    /// `REPOSITORY:TAG` of a reference without a digest.
    Name(String),
    /// A tag, in any repository.
    Tag(String),
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
    /// Prefixes of digests that are in use in the repositories of a namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    texts: BTreeMap<String, BTreeSet<String>>,
    /// Namespaces with too many images, whose repositories are kept as a whole.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    whole: BTreeSet<String>,
}

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self { all: BTreeSet::new(), bytes: 0, is_cut: false }
    }
}

impl<T: Ord> Bounded<T> {
    fn insert(&mut self, entry: T, length: usize) {
        if self.all.contains(&entry) {
            return;
        }
        let bytes = self.bytes + length + ENTRY;
        if bytes > OF_NAMESPACE {
            self.is_cut = true;
        } else {
            self.bytes = bytes;
            self.all.insert(entry);
        }
    }
}

impl Image {
    fn text(&self) -> &str {
        match self {
            Self::Digest(text) | Self::Name(text) | Self::Tag(text) => text,
        }
    }
}

impl Used {
    /// Adds all images in the specification or the status of an object.
    pub fn add(&mut self, object: &Value) {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let of_namespace = self.0.entry(namespace.to_owned()).or_default();
        of_namespace.add_all(&object["spec"], false);
        of_namespace.add_all(&object["status"], false);
    }

    /// Adds all images with this tag, for an object of the namespace.
    pub fn add_tag(&mut self, namespace: &str, tag: &str) {
        self.0.entry(namespace.to_owned()).or_default().add_image(Image::Tag(tag.to_owned()));
    }

    /// Returns the images for a policy. The namespaces with the fewest images come first, so a namespace with very many
    /// replaces no images of another one.
    pub(super) fn kept(&self) -> Kept {
        let mut kept = Kept::default();
        let mut free = OF_ALL;
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, of)| of.images.bytes);
        for &(namespace, of) in &all {
            let more: Vec<&Image> = of.images.all.iter().filter(|image| !kept.contains(image)).collect();
            let bytes = more.iter().map(|image| image.text().len() + ENTRY).sum::<usize>();
            if of.images.is_cut || bytes > free {
                kept.whole.insert(namespace.clone());
            }
            if bytes <= free {
                free -= bytes;
                for image in more {
                    kept.insert(image.clone());
                }
            }
        }
        all.sort_by_key(|(_, of)| of.texts.bytes);
        for (namespace, of) in all.into_iter().filter(|(_, of)| !of.texts.all.is_empty()) {
            let bytes = of.texts.bytes + namespace.len() + 2 * ENTRY;
            if of.texts.is_cut || bytes > free {
                kept.whole.insert(namespace.clone());
            } else {
                free -= bytes;
                kept.texts.insert(namespace.clone(), of.texts.all.clone());
            }
        }
        kept
    }
}

impl OfNamespace {
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
                    self.add_image(Image::Digest(digits));
                } else {
                    self.texts.insert(digits, PREFIX);
                }
            }
        }
        if is_image && !has_digest {
            let (path, tag) = match text.rsplit_once(':') {
                Some((path, tag)) if !tag.contains('/') => (path, tag),
                _ => (text, "latest"),
            };
            self.add_image(Image::Name(format!("{path}:{tag}")));
            if let Some((_, path)) = path.split_once('/') {
                self.add_image(Image::Name(format!("{path}:{tag}")));
            }
        }
    }

    /// Adds an image, unless no image of a registry can have this name.
    fn add_image(&mut self, image: Image) {
        let text = image.text();
        let length = text.len();
        if length <= NAME && text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\')) {
            self.images.insert(image, length);
        }
    }
}

impl Kept {
    fn contains(&self, image: &Image) -> bool {
        match image {
            Image::Digest(digest) => self.digests.contains(digest),
            Image::Name(name) => self.names.contains(name),
            Image::Tag(tag) => self.tags.contains(tag),
        }
    }

    fn insert(&mut self, image: Image) {
        match image {
            Image::Digest(digest) => self.digests.insert(digest),
            Image::Name(name) => self.names.insert(name),
            Image::Tag(tag) => self.tags.insert(tag),
        };
    }

    /// Whether a manifest that has these tags in a repository is in use.
    pub(super) fn has<'t>(&self, repository: &str, digest: &Digest, tags: impl IntoIterator<Item = &'t str>) -> bool {
        let prefix = &digest.hex()[..PREFIX];
        let named = |tag: &str| self.tags.contains(tag) || self.names.contains(&format!("{repository}:{tag}"));
        self.digests.contains(prefix) || self.keeps_own(repository, prefix) || tags.into_iter().any(named)
    }

    /// Whether a namespace keeps an image in a repository of its own, or in one of no namespace.
    fn keeps_own(&self, repository: &str, prefix: &str) -> bool {
        let owners = owners(repository);
        if owners.is_empty() {
            return !self.whole.is_empty() || self.texts.values().any(|digests| digests.contains(prefix));
        }
        let names = |owner: &str| self.texts.get(owner).is_some_and(|digests| digests.contains(prefix));
        owners.into_iter().any(|owner| self.whole.contains(owner) || names(owner))
    }

    /// Returns the images that `other` lacks.
    pub(super) fn without(&self, other: &Self) -> Self {
        let rest = |one: &BTreeSet<String>, other: &BTreeSet<String>| one.difference(other).cloned().collect();
        let none = BTreeSet::new();
        let texts = self.texts.iter().map(|(namespace, digests)| {
            let of_other = other.texts.get(namespace).unwrap_or(&none);
            (namespace.clone(), digests.difference(of_other).cloned().collect::<BTreeSet<String>>())
        });
        Self {
            digests: rest(&self.digests, &other.digests),
            names: rest(&self.names, &other.names),
            tags: rest(&self.tags, &other.tags),
            texts: texts.filter(|(_, digests)| !digests.is_empty()).collect(),
            whole: rest(&self.whole, &other.whole),
        }
    }
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
        used.add_tag("any", "t7");
        assert!(used.kept().has("any", &digest("5"), ["t7"]));
        assert_eq!(kept.without(&kept), Kept::default());
    }

    #[test]
    fn a_digest_in_a_string_keeps_only_images_of_its_own_namespace() {
        let mut used = Used::default();
        used.add(&object("team-a", "value", &digests(1..2)));
        used.add(&object("team-b", "image", &digests(2..3)));
        let kept = used.kept();
        let has = |repository: &str, number: usize| kept.has(repository, &digest(number), []);
        assert!(has("team-a_fn", 1) && has("team-a-fn", 1) && has("team-a_fn/cache", 1));
        assert!(has("tools/app", 1), "a repository of no namespace");
        assert!(!has("team-b_fn", 1) && !has("shop-fn", 1));
        assert!(has("team-a_fn", 2) && has("shop-fn", 2), "a field for images counts everywhere");
        assert_eq!(kept.without(&kept), Kept::default());
        assert!(kept.without(&Kept::default()).has("team-a_fn", &digest(1), []));
    }

    #[test]
    fn a_namespace_with_too_many_digests_keeps_its_own_repositories_only() {
        for field in ["value", "image"] {
            let mut used = Used::default();
            used.add(&object("shop", "image", &digests(90_000..90_001)));
            used.add(&object("evil", field, &digests(0..45_000)));
            used.add(&object("evil", field, &digests(45_000..90_000)));
            used.add(&object("evil", "image", &["x".repeat(500_000)]));
            let kept = used.kept();
            let bytes = serde_json::to_string(&kept).unwrap().len();
            assert!(bytes < OF_ALL + (1 << 10), "{field}: {bytes} bytes");
            let has = |repository: &str, number: usize| kept.has(repository, &digest(number), []);
            assert!(has("evil-fn", 90_002) && has("shop-fn", 90_000), "{field}");
            assert!(!has("shop-fn", 89_999) && !has("shop-fn", 90_002) && !has("evi-fn", 90_002), "{field}");
        }
    }

    #[test]
    fn many_namespaces_with_many_images_replace_none_of_a_small_one() {
        let mut used = Used::default();
        for number in 0..40 {
            let (from, name) = (number * 3_000, format!("evil{number}"));
            used.add(&object(&name, "image", &digests(from..from + 3_000)));
            used.add(&object(&name, "value", &digests(from..from + 3_000)));
        }
        used.add(&object("shop", "image", &digests(900_000..900_010)));
        let kept = used.kept();
        let bytes = serde_json::to_string(&kept).unwrap().len();
        assert!(bytes < OF_ALL + (4 << 10), "{bytes} bytes");
        assert!((900_000..900_010).all(|number| kept.has("shop-fn", &digest(number), [])));
        assert!((0..120_000).all(|number| kept.has(&format!("evil{}-fn", number / 3_000), &digest(number), [])));
        assert!(!kept.has("shop-fn", &digest(900_010), []));
    }
}
