//! Fuzz targets for parsers of untrusted input. Each target accepts any bytes, ends soon, does not panic, and checks an
//! invariant.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::file;
use super::ignore::Ignored;
use super::limits::Limits;
use super::{DecodeCache, decode, report};
use mainstay_git::{BlobId, Entry, EntryKind};
use mainstay_object::{Names, Object, is_unprintable};

/// Maximum number of documents of a file.
const DOCUMENTS: usize = 100;
/// Maximum depth of directories. Deeper files are not listed.
const DEPTH: usize = 100;
/// Prefix of a line that ends a file and names the next one.
const FILE: &str = "#file:";

/// Reads the bytes as YAML and as JSON. Problems can be displayed, the number of documents is bounded, and each object
/// equals the one that its own JSON describes. The same bytes are read as several files of a repository.
pub fn manifest(bytes: &[u8]) {
    for path in ["a.yaml", "a.json"] {
        let read =
            file::read(&Arc::from(path), bytes, DOCUMENTS, &Limits::new(|| Duration::ZERO), &mut Names::default());
        assert!(read.documents <= DOCUMENTS + 1, "no more documents are read");
        for problem in &read.problems {
            assert!(!problem.to_string().chars().any(is_unprintable), "a problem is text: {problem}");
        }
        for object in &read.objects {
            let again = Object::from_value(&object.value(), object.place.clone());
            assert_eq!(again.as_ref(), Ok(&**object), "an object is what its JSON says");
        }
    }
    repository(bytes);
}

/// Reads the index of a chart repository. The problem can be displayed.
pub fn chart_index(bytes: &[u8]) {
    if let Err(problem) = super::chart_versions(bytes, "shop") {
        assert!(!problem.chars().any(is_unprintable), "a problem is text: {problem}");
    }
}

/// Checks that cached and fresh files are decoded into equal results, and that each file is reported at most once.
fn repository(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains(FILE) {
        return;
    }
    let files: Vec<_> = text.split(FILE).map(|file| file.split_once('\n').unwrap_or((file, ""))).collect();
    let entries: Vec<_> =
        files.iter().enumerate().filter_map(|(number, (path, text))| entry(number, path, text)).collect();
    let mut read = |entry: &Entry| {
        let number = entry.id.to_string();
        let file = usize::from_str_radix(&number[24..], 16).ok().and_then(|number| files.get(number));
        Ok(file.map_or("", |(_, text)| *text))
    };
    let (cache, limits) = (DecodeCache::default(), Limits { documents: DOCUMENTS, ..Limits::new(|| Duration::ZERO) });
    let Ok(fresh) = decode(&entries, "", &mut read, &DecodeCache::default(), &limits) else { return };
    // Fills the cache from single files.
    let alone: Vec<_> =
        entries.iter().filter_map(|one| decode(slice::from_ref(one), "", &mut read, &cache, &limits).ok()).collect();
    let Ok(cached) = decode(&entries, "", &mut read, &cache, &limits) else { return };
    assert!(!fresh.problems.is_empty() || cached.problems.is_empty(), "{:?}", cached.problems);
    assert!(!fresh.problems.is_empty() || fresh.objects == cached.objects, "a file is read as it was before");
    assert!(!cached.problems.is_empty() || cached.objects.len() <= DOCUMENTS, "the limit is that of all files");
    drop(alone);
    let reports = report(&entries, "", &mut read, &limits);
    assert!(reports.is_ok_and(|reports| reports.len() <= entries.len()), "a file is told about once");
}

/// Returns a file whose blob id is this number.
fn entry(number: usize, path: &str, text: &str) -> Option<Entry> {
    let parts = path.trim().split('/').filter(|part| !matches!(*part, "" | "." | "..")).take(DEPTH);
    let path = parts.collect::<Vec<_>>().join("/");
    let id: BlobId = format!("{number:040x}").parse().ok()?;
    let is_text = !path.is_empty() && !path.chars().any(char::is_control);
    is_text.then_some(Entry { path, id, size: text.len() as u64, kind: EntryKind::File, executable: false, flaw: None })
}

/// Parses a `.mainstayignore`. Its rules follow a line with a path, and both functions must agree on whether the path
/// is ignored.
pub fn ignore(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, rules) = text.split_once('\n').unwrap_or(("apps/web.yaml", &text));
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).take(DEPTH);
    let path = parts.collect::<Vec<_>>().join("/");
    let mut ignored = Ignored::new("");
    ignored.add(".mainstayignore", rules.as_bytes());
    let why = ignored.why(&path);
    assert_eq!(ignored.leaves_out(&path), why.is_some(), "{why:?}");
}
