//! See [`crate::fuzz`].

use std::sync::Arc;
use std::time::Duration;

use super::file;
use super::ignore::Ignored;
use super::limits::Limits;
use crate::object::{Names, is_unprintable};

/// Documents that are read of one file.
const DOCUMENTS: usize = 100;

/// A file of a repository, as YAML and as JSON: what is wrong with it can be shown, and it has no more documents than are read.
pub fn manifest(bytes: &[u8]) {
    for path in ["a.yaml", "a.json"] {
        let read =
            file::read(&Arc::from(path), bytes, DOCUMENTS, &Limits::new(|| Duration::ZERO), &mut Names::default());
        assert!(read.documents <= DOCUMENTS + 1, "no more documents are read");
        for problem in &read.problems {
            assert!(!problem.to_string().chars().any(is_unprintable), "a problem is text: {problem}");
        }
    }
}

/// A `.mainstayignore`, after a line with a path: whether that is left out is what is said of it.
pub fn ignore(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, rules) = text.split_once('\n').unwrap_or(("apps/web.yaml", &text));
    let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let path = parts.join("/");
    let mut ignored = Ignored::new("");
    ignored.add(".mainstayignore", rules.as_bytes());
    let why = ignored.why(&path);
    assert_eq!(ignored.leaves_out(&path), why.is_some(), "{why:?}");
}
