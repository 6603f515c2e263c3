//! What the README has in blocks: the commands of those marked `sh`, and manifests.

use mainstay_testkit::markdown;

/// The README's commands, in order.
pub(super) fn commands() -> Vec<String> {
    let blocks = markdown::blocks(include_str!("../../../README.md"));
    let scripts = blocks.iter().filter(|block| block.language == "sh");
    scripts.flat_map(|block| markdown::commands(&block.text)).collect()
}

/// The block marked `yaml` with this in it.
pub(super) fn manifest(with: &str) -> String {
    let blocks = markdown::blocks(include_str!("../../../README.md"));
    let found = blocks.into_iter().find(|block| block.language == "yaml" && block.text.contains(with));
    found.unwrap_or_else(|| panic!("no manifest of the README has {with}")).text
}
