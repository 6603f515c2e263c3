//! Labels and annotations are defined in one table, and the manifests use no others.

use std::{fs, path::Path};

use mainstay_api::metadata::{METADATA, METRICS, PRUNE};
use mainstay_api::names::{ANNOTATION_PREFIX, EVENTING_REPORTER, FINALIZER, KEEPS, REPORTER, SERVERLESS_PREFIX};

use super::{PRODUCT, files, production, sources};

/// The table.
const TABLE: &str = "src/api/src/metadata.rs";
/// Prefixes of the keys that Mainstay defines.
const PREFIXES: [&str; 3] = [ANNOTATION_PREFIX, SERVERLESS_PREFIX, "dev.mainstay."];
/// Names with such a prefix that are not keys of labels and annotations.
const OTHERS: [&str; 4] =
    [FINALIZER, REPORTER, EVENTING_REPORTER, "serverless.kyma-project.io/finalizer-registry-config"];

/// Returns the keys with one of Mainstay's prefixes in a string, without versions of the API.
fn keys(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for prefix in PREFIXES {
        let starts = text.match_indices(prefix).map(|(at, _)| at);
        // `internal.mainstay.dev/` is another domain.
        for at in starts.filter(|at| !text[..*at].ends_with('.')) {
            let rest = &text[at + prefix.len()..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(rest.len());
            if end > 0 && !rest.starts_with("v1alpha") {
                found.push(format!("{prefix}{}", &rest[..end]));
            }
        }
    }
    found
}

fn is_in_the_table(key: &str) -> bool {
    METADATA.iter().any(|row| row.key == key)
}

/// A key that is defined elsewhere could not be renamed in one place, and the reference would lack it. Messages may
/// name known keys.
#[test]
fn labels_and_annotations_are_defined_in_one_table() {
    let mut wrong = Vec::new();
    for path in PRODUCT.into_iter().flat_map(sources).filter(|path| !path.ends_with("tests.rs")) {
        let is_test = path.iter().any(|part| part == "tests");
        if is_test || path == Path::new(TABLE) {
            continue;
        }
        let code = production(&path);
        for key in keys(&code) {
            let is_constant = code.contains(&format!("\"{key}\"")) && !OTHERS.contains(&&*key);
            if is_constant || !(is_in_the_table(&key) || OTHERS.contains(&&*key)) {
                wrong.push(format!("{}: {key}", path.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "these keys belong in {TABLE}, with their texts");
}

#[test]
fn keys_of_the_manifests_are_in_the_table() {
    let texts = files("manifests", "yaml").into_iter().map(|path| fs::read_to_string(path).unwrap());
    let used: Vec<_> = texts.flat_map(|text| keys(&text)).collect();
    assert!(used.iter().any(|key| key == METRICS), "{used:?}");
    let ours = used.into_iter().filter(|key| key.starts_with(ANNOTATION_PREFIX));
    let unknown: Vec<_> = ours.filter(|key| !is_in_the_table(key)).collect();
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn the_first_annotation_that_keeps_an_object_is_ours() {
    assert_eq!(KEEPS[0], format!("{PRUNE}: disabled"));
}

#[test]
fn keys_are_found_in_texts() {
    let text = "a mainstay.dev/sync: b, `mainstay.dev/…`, mainstay.dev/v1alpha1, internal.mainstay.dev/number, \
                \"dev.mainstay.layer\"";
    assert_eq!(keys(text), ["mainstay.dev/sync", "dev.mainstay.layer"]);
}
