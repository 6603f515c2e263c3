//! The checks of dependencies and images: CI runs them, and every image of another project has a digest.

use std::{collections::BTreeSet, fs};

use super::files;

/// Checks, and the file that runs each.
const CHECKS: [(&str, &str); 5] = [
    (".ci/run", "cargo deny check bans licenses sources"),
    (".ci/run", ".ci/base-images --check"),
    (".github/workflows/advisories.yml", "- run: cargo deny check advisories"),
    (".github/workflows/release.yml", "run: .ci/sbom "),
    ("deny.toml", "multiple-versions = \"deny\""),
];

/// The image of this project, which a release names by its digest.
const OWN: &str = "mainstay:";

#[test]
fn dependencies_are_checked_and_a_release_has_a_bill_of_materials() {
    for (file, check) in CHECKS {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.lines().any(|line| line.trim_start().starts_with(check)), "{file} does not contain `{check}`");
    }
}

/// Returns the images of other projects in a Dockerfile or a manifest, without the stages of the Dockerfile.
fn images(text: &str) -> Vec<&str> {
    let words = |line| str::split_whitespace(line).filter(|word| *word != "-").collect::<Vec<_>>();
    let (mut stages, mut found) = (BTreeSet::from(["scratch"]), Vec::new());
    for words in text.lines().map(words) {
        match words[..] {
            ["FROM", image, ref rest @ ..] => {
                found.push(image);
                stages.extend(rest.get(1).copied());
            }
            ["image:", image, ..] => found.push(image),
            _ => {}
        }
    }
    found.retain(|image| !stages.contains(image) && !image.starts_with(OWN) && !image.starts_with('$'));
    found
}

#[test]
fn images_of_other_projects_have_digests() {
    let mut all = files("manifests", "yaml");
    all.retain(|path| !path.starts_with("manifests/chart"));
    all.push("manifests/Dockerfile".into());
    let mut count = 0;
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        for image in images(&text) {
            let digest = image.split_once("@sha256:").map(|(_, digest)| digest.len());
            assert_eq!(digest, Some(64), "{}: {image} has no digest", path.display());
            count += 1;
        }
    }
    assert!(count > 8, "{count} images");
}

#[test]
fn images_are_found_in_both_kinds_of_files() {
    let text = "FROM a:1 AS one\nFROM scratch\nFROM ${ARG}\nFROM one\n  - image: b:2\n    image: mainstay:0.1.0\n# image: c:3\n";
    assert_eq!(images(text), ["a:1", "b:2"]);
}
