//! Checks the overlay fields of a GitSync, which change the rendered directory, as far as the spec alone shows errors.
//!
//! Not here: the targets of patches and components, which the tool checks.

use std::collections::BTreeMap;

use mainstay_api::git_sync::GitSyncSpec;
use mainstay_api::names::ANNOTATION_PREFIX;
use mainstay_api::overlay::Image;
use mainstay_object::printable;
use mainstay_object::syntax;

/// Returns all errors, one per line, with the allowed values.
pub(super) fn wrong(spec: &GitSyncSpec) -> Option<String> {
    let mut lines = Vec::new();
    for (index, patch) in spec.patches.iter().enumerate().filter(|(_, patch)| patch.patch.trim().is_empty()) {
        let hint =
            if patch.target.is_some() { "a part of an object, or a list of operations" } else { "a part of an object" };
        lines.push(format!("spec.patches[{index}].patch is empty; write {hint}"));
    }
    for (index, image) in spec.images.iter().enumerate() {
        let what = image_problem(image).map(|what| format!("spec.images[{index}]: {what}"));
        lines.extend(what);
    }
    for (name, value) in [("spec.namePrefix", &spec.name_prefix), ("spec.nameSuffix", &spec.name_suffix)] {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        if value.as_ref().is_some_and(|value| value.is_empty() || !value.chars().all(is_name)) {
            lines.push(format!("{name} cannot be part of a name; use lower case letters, digits, `-` and `.`"));
        }
    }
    if let Some(wrong) = spec.override_namespace.as_deref().map(syntax::dns_label).filter(|wrong| !wrong.is_empty()) {
        lines.push(format!("spec.overrideNamespace is not a valid namespace: {}", wrong.join("; ")));
    }
    for (index, _) in spec.components.iter().enumerate().filter(|(_, path)| path.trim().is_empty()) {
        lines.push(format!("spec.components[{index}] is empty; name a directory, relative to baseDir"));
    }
    if let Some(common) = &spec.common_metadata {
        lines.extend(metadata("spec.commonMetadata.labels", &common.labels, syntax::label));
        // Keys of annotations have the syntax of label keys, in either case.
        let annotation = |key: &str, _: &str| syntax::label(&key.to_lowercase(), "");
        lines.extend(metadata("spec.commonMetadata.annotations", &common.annotations, annotation));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn image_problem(image: &Image) -> Option<&'static str> {
    let given = [&image.new_name, &image.new_tag, &image.digest];
    if given.iter().any(|value| value.as_deref() == Some("")) {
        return Some("newName, newTag and digest must not be empty");
    }
    if image.new_tag.is_some() && image.digest.is_some() {
        return Some("it has a newTag and a digest; keep one of the two");
    }
    given.iter().all(|value| value.is_none()).then_some("it changes nothing; give newName, newTag or digest")
}

fn metadata(path: &str, entries: &BTreeMap<String, String>, check: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, value) in entries {
        if key.starts_with(ANNOTATION_PREFIX) {
            lines.push(format!("{path}: {} is Mainstay's own; set it on single objects", printable(key)));
        }
        lines.extend(check(key, value).into_iter().map(|words| format!("{path}: {words}")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(mut spec: Value, expected: &[&str]) {
        spec["gitRepository"] = "shop".into();
        let wrong = wrong(&serde_json::from_value(spec).unwrap()).unwrap_or_default();
        let lines = wrong.lines().collect::<Vec<_>>();
        assert_eq!(lines.len(), expected.len(), "{wrong}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}");
        }
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        check(
            json!({
                "patches": [{"patch": " "}],
                "images": [
                    {"name": "a"}, {"name": "b", "newTag": "1", "digest": "sha256:1"}, {"name": "c", "newTag": ""},
                ],
                "namePrefix": "A_", "overrideNamespace": "a.b", "components": [""],
                "commonMetadata": {"labels": {"mainstay.dev/sync": "x", "team": "a b"}, "annotations": {"a/b/c": ""}},
            }),
            &[
                "spec.patches[0].patch is empty",
                "spec.images[0]: it changes nothing",
                "spec.images[1]: it has a newTag and a digest",
                "spec.images[2]: newName, newTag and digest must not be empty",
                "spec.namePrefix cannot be part of a name",
                "spec.overrideNamespace is not a valid namespace: a DNS-1035 label",
                "spec.components[0] is empty",
                "spec.commonMetadata.labels: mainstay.dev/sync is Mainstay's own",
                "spec.commonMetadata.labels: Invalid value: \"a b\"",
                "spec.commonMetadata.annotations: Invalid value: \"a/b/c\"",
            ],
        );
    }

    #[test]
    fn valid_overlays_are_accepted() {
        check(
            json!({
                "patches": [{"patch": "a: b"}], "images": [{"name": "a", "newName": "b", "newTag": "1"}],
                "namePrefix": "prod-", "nameSuffix": "-v1.2", "overrideNamespace": "shop-2", "components": ["../c"],
                "commonMetadata": {"labels": {"app.kubernetes.io/part-of": "shop"}, "annotations": {"Example.org/Team": "Any text"}},
            }),
            &[],
        );
        check(json!({}), &[]);
    }
}
