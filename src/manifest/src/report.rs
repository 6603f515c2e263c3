//! Reports how each file of a listing is used, or why it is ignored.

use std::collections::{BTreeMap, HashMap};

use super::decode::{decode, ignore_rules, is_ignore_file};
use super::ignore::parent;
use super::limits::Deadline;
use super::{DecodeCache, Limits, Problem, decode as decoding, other_files};
use mainstay_git::{Entry, EntryKind};

/// A file and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The path from the root of the repository.
    pub path: String,
    /// The use of the file.
    pub state: FileState,
}

/// The use of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The file is decoded into this many objects.
    Read(usize),
    /// The file defines a kustomization, which is built.
    Built,
    /// The file defines a Helm chart, which is rendered.
    Rendered,
    /// The file is ignored, with the reason.
    LeftOut(String),
    /// The file is invalid, so the commit is not applied.
    Problems(Vec<Problem>),
}

/// Reports the relevant files of a listing, ordered by path.
///
/// # Errors
/// If a file cannot be read.
pub fn report<C: AsRef<[u8]>>(
    listing: &[Entry],
    base_dir: &str,
    read: &mut dyn FnMut(&Entry) -> Result<C, mainstay_git::Error>,
    limits: &Limits,
) -> Result<Vec<FileReport>, mainstay_git::Error> {
    let decoded = decode(listing, base_dir, read, &DecodeCache::default(), limits)?;
    let ignored = ignore_rules(listing, base_dir, read, Deadline::new(limits), &mut Vec::new())?;
    let mut objects: HashMap<&str, usize> = HashMap::new();
    for object in &decoded.objects {
        *objects.entry(&*object.place.file).or_default() += 1;
    }
    let mut problems: BTreeMap<&str, Vec<Problem>> = BTreeMap::new();
    for problem in &decoded.problems {
        problems.entry(&*problem.place.file).or_default().push(problem.clone());
    }
    let wholes = || {
        let whole = decoded.kustomizations.iter().chain(&decoded.charts).map(String::as_str);
        problems.keys().copied().chain(whole)
    };
    let mut reports = Vec::new();
    let mut entries: Vec<&Entry> = listing.iter().collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    for entry in entries {
        let path = &*entry.path;
        let found = problems.get(path);
        let may_matter = entry.kind != EntryKind::File || decoding::reads(path) && !is_ignore_file(path);
        if !may_matter && found.is_none() {
            continue;
        }
        let state = if let Some(problems) = found {
            FileState::Problems(problems.clone())
        } else if let Some(why) = ignored.why(path).filter(|_| !decoded.kustomizations.iter().any(|own| own == path)) {
            FileState::LeftOut(why.to_string())
        } else if let Some(objects) = objects.get(path) {
            FileState::Read(*objects)
        } else if decoded.kustomizations.iter().any(|own| own == path) {
            FileState::Built
        } else if decoded.charts.iter().any(|own| own == path) {
            FileState::Rendered
        } else if let Some(whole) = wholes().find(|file| is_within(path, file)) {
            FileState::LeftOut(format!("it is part of {whole}"))
        } else if entry.kind == EntryKind::Symlink {
            FileState::LeftOut("it is a symbolic link, not a manifest".to_owned())
        } else if other_files::is_of_another_tool(path) {
            FileState::LeftOut("it is a file of another tool".to_owned())
        } else {
            FileState::Read(0)
        };
        reports.push(FileReport { path: path.to_owned(), state });
    }
    Ok(reports)
}

/// Returns whether a path is in the directory of a kustomization or chart that `file` defines.
fn is_within(path: &str, file: &str) -> bool {
    let directory = parent(file);
    let is_below = directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    let is_chart = super::recognise::may_be_chart(file);
    let is_kustomization = super::kustomize::NAMES.contains(&file.rsplit('/').next().unwrap_or_default());
    is_below && (is_chart || is_kustomization)
}
