//! Names of files and directories that no Git client creates.
//!
//! Invariant: the displayed form of a name has no control characters, and distinct names have distinct forms.

use std::fmt::Write as _;

/// The reason why a path is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFlaw {
    /// A part of the path is not UTF-8, or contains control characters. Both are escaped in the path.
    NotText,
    /// A part of the path is `.git`, `.`, `..` or empty, or contains a `/`.
    Reserved,
    /// A part of the path exists more than once in its directory.
    Twice,
}

impl PathFlaw {
    /// Returns why a single name is invalid; `None` if it is valid.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        if matches!(name, b"" | b"." | b"..") || name.eq_ignore_ascii_case(b".git") || name.contains(&b'/') {
            Some(Self::Reserved)
        } else if is_text(name) {
            None
        } else {
            Some(Self::NotText)
        }
    }

    /// Returns the reason as a sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::NotText => "the name is not plain UTF-8 text",
            Self::Reserved => "the name is reserved by Git",
            Self::Twice => "the name is there twice in its directory",
        }
    }
}

fn is_text(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|text| !text.chars().any(char::is_control))
}

/// Returns the displayed form of a name. Invalid bytes and control characters are escaped, as in `\xff`.
pub(crate) fn shown(name: &[u8]) -> String {
    if is_text(name) {
        return String::from_utf8_lossy(name).into_owned();
    }
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
        }
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_no_client_writes_are_found_and_shown() {
        let check = |name: &[u8], expected: Option<PathFlaw>, as_shown: &str| {
            assert_eq!((PathFlaw::of(name), &*shown(name)), (expected, as_shown));
        };
        check("größe.yaml".as_bytes(), None, "größe.yaml");
        check(b"..x", None, "..x");
        check(b".gitignore", None, ".gitignore");
        check(b"\xff.yaml", Some(PathFlaw::NotText), "\\xff.yaml");
        check(b"a\xc3\n", Some(PathFlaw::NotText), "a\\xc3\\n");
        check(b"\x1b[31m", Some(PathFlaw::NotText), "\\u{1b}[31m");
        for name in ["", ".", "..", ".git", ".GiT", "a/b"] {
            check(name.as_bytes(), Some(PathFlaw::Reserved), name);
        }
    }

    proptest! {
        #[test]
        fn any_name_is_shown_without_control_characters(name: Vec<u8>) {
            prop_assert!(!shown(&name).chars().any(char::is_control));
        }
    }
}
