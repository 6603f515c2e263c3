//! Symbolic links among the files of a commit. The links are not followed, and a link that would be read as a manifest
//! is a problem.
//!
//! Invariant: no link hides a manifest. A link that may point to a directory is a problem.
//!
//! Not here: links in kustomizations and charts, which are checked with the other inputs.

use mainstay_git::Entry;

use super::ignore::parent;

/// Maximum length of a link's target, in bytes.
pub(super) const LONGEST: u64 = 4096;

/// The problem of a link, and its remedy.
pub(super) const NOT_FOLLOWED: (&str, &str) =
    ("symbolic links are not followed", "put the files themselves there, or list it in .mainstayignore");

/// Returns the problem and remedy of a link whose name is not that of a manifest; `None` if the link hides no manifest.
pub(super) fn flaw(path: &str, target: &[u8], listing: &[&Entry]) -> Option<(&'static str, &'static str)> {
    let Ok(target) = std::str::from_utf8(target) else { return Some(NOT_FOLLOWED) };
    let Some(target) = resolved(parent(path), target) else { return Some(NOT_FOLLOWED) };
    let is_file = listing.iter().any(|entry| entry.path == target);
    let below = format!("{target}/");
    let is_directory = target.is_empty() || listing.iter().any(|entry| entry.path.starts_with(&below));
    // A target outside of the listing counts as a file if its name looks like that of a file.
    let is_named_like_a_file = target.rsplit('/').next().is_some_and(|name| name.trim_start_matches('.').contains('.'));
    let is_harmless = !is_directory && (is_file || is_named_like_a_file);
    (!is_harmless).then_some(NOT_FOLLOWED)
}

/// Returns the path of a link's target, from the root of the repository; `None` if it is outside of the repository.
fn resolved(directory: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use mainstay_git::EntryKind;
    use mainstay_object::Digest;

    use super::*;

    fn check(path: &str, target: &str, expected: &str) {
        let entry = |path: &str| Entry {
            path: path.to_owned(),
            id: format!("{}00000000", Digest::of(path.as_bytes())).parse().unwrap(),
            size: 1,
            kind: EntryKind::File,
            executable: false,
            flaw: None,
        };
        let files = ["app/a.yaml", "app/notes/LICENSE", "base/b.yaml"].map(entry);
        let found = flaw(path, target.as_bytes(), &files.iter().collect::<Vec<_>>());
        let said = found.map_or("", |(what, _)| what);
        assert_eq!(said, expected, "{path} -> {target}");
    }

    #[test]
    fn a_link_is_a_problem_if_manifests_may_be_behind_it_or_it_leaves_the_repository() {
        let not_followed = NOT_FOLLOWED.0;
        for (path, target, expected) in [
            ("app/README.md", "../README.md", ""),
            ("README.md", "docs/README.md", ""),
            ("app/README.md", "missing.md", ""),
            ("app/LICENSE", "notes/LICENSE", ""),
            ("app/current", "a.yaml", ""),
            ("app/base", "../base", not_followed),
            ("app/base.d", "../base/", not_followed),
            ("app/all", "..", not_followed),
            ("app/LICENSE", "../LICENSE", not_followed),
            ("app/hidden", "../.hidden", not_followed),
            ("app/README.md", "/etc/motd.md", not_followed),
            ("app/README.md", "../../README.md", not_followed),
            ("README.md", "..", not_followed),
        ] {
            check(path, target, expected);
        }
    }
}
