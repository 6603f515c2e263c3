//! Decodes the files of a commit into desired objects and problems.
//!
//! Invariant: objects are ordered by path, document and item, so equal trees give equal results.
//! Invariant: all problems are reported, up to a limit, and a problem never hides an object of another file. Only a
//! commit that takes too long is not read to its end.
//!
//! Decoding blocks the thread. One document at a time is in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;

use super::decode_cache::Reading;
use super::directories::Directories;
use super::encrypted::{encrypted_content, may_be_encrypted};
use super::ignore::{Ignored, Why};
use super::kustomize;
use super::limits::{Deadline, Kept, larger_than, size};
use super::other_files;
use super::render::Origins;
use super::single::read_fields;
use super::verified::verified;
use super::{DecodeCache, Limits, Problem, file, links, recognise};
use crate::sops::Sealed;
use mainstay_api::names;
use mainstay_git::{Entry, EntryKind, PathFlaw};
use mainstay_object::{Key, Names, Object, Place, printable};

/// Maximum size of a `Chart.yaml` that is checked for a Helm chart, in bytes.
const MAX_CHART: u64 = 64 * 1024;

/// The decoded content of a commit.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The desired objects, normalised unless they are encrypted. They must not be used if there is a problem.
    pub objects: Vec<Arc<Object>>,
    /// The encrypted files of the objects, needed for decryption.
    pub sealed: Vec<Arc<Sealed>>,
    /// All problems of the commit.
    pub problems: Vec<Problem>,
    /// Files of kustomizations. Their directories are built, not read.
    pub kustomizations: Vec<String>,
    /// Files of Helm charts. Their directories are rendered, not read.
    pub charts: Vec<String>,
    /// If all manifests are ignored, the reason: `12 files are left out, apps/a.yaml by the rule "*"
    /// (.mainstayignore:1)`.
    pub left_out: Option<String>,
}

/// Decodes a listing. All of its paths are relative to the repository's root. They are below the base directory, except
/// for those of ignore files.
///
/// # Errors
/// If a file cannot be read. Invalid content is a problem.
pub fn decode<C: AsRef<[u8]>>(
    listing: &[Entry],
    base_dir: &str,
    read: &mut dyn FnMut(&Entry) -> Result<C, mainstay_git::Error>,
    cache: &DecodeCache,
    limits: &Limits,
) -> Result<Decoded, mainstay_git::Error> {
    let mut decoded = Decoded::default();
    let deadline = Deadline::new(limits);
    let mut ignored = ignore_rules(listing, base_dir, read, deadline, &mut decoded.problems)?;
    // `.git` and `..` are not hidden but invalid names, so only a rule can ignore them.
    let mut leaves_out = |entry: &Entry| match entry.flaw {
        Some(PathFlaw::Reserved) => matches!(ignored.why(&entry.path), Some(Why::Rule { .. })),
        _ => ignored.leaves_out(&entry.path),
    };
    let is_in = |entry: &&Entry| deadline.is_over() || !leaves_out(entry);
    let mut entries: Vec<&Entry> = listing.iter().filter(is_in).collect();
    if !entries.iter().any(|entry| reads(&entry.path) && !is_ignore_file(&entry.path)) {
        decoded.left_out = left_out(listing, &ignored);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let kustomizations = kustomize::among(entries.iter().map(|entry| &*entry.path));
    let charts = charts(&entries, &kustomizations, read, deadline, limits)?;
    // A kustomization inside a chart belongs to the chart.
    let is_own = |file: &&str| !charts.contains(file);
    decoded.kustomizations = kustomizations.files().filter(is_own).map(str::to_owned).collect();
    decoded.charts = charts.files().map(str::to_owned).collect();
    let listed = entries.clone();
    entries.retain(|entry| !kustomizations.contains(&entry.path) || entry.flaw.is_some());

    let (shared, kept) = (Names::default(), Kept::new(limits));
    let mut files = Files { read, cache, limits, listed, decoded, shared, documents: 0, kept };
    for entry in entries {
        if deadline.is_over() {
            files.decoded.problems.push(takes_too_long(entry));
            break;
        }
        let is_of_chart = entry.flaw.is_none() && charts.contains(&entry.path);
        if !is_of_chart && files.add(entry)? == Room::None {
            break;
        }
    }
    let Files { mut decoded, .. } = files;
    decoded.problems.extend(duplicates(decoded.objects.iter().map(|object| (&object.key, &**object))));
    cache.drop_unused();
    shorten(&mut decoded.problems, limits.problems);
    Ok(decoded)
}

/// Whether there is memory for further objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Left,
    None,
}

/// The files of a commit while they are decoded.
struct Files<'d, C> {
    read: &'d mut dyn FnMut(&Entry) -> Result<C, mainstay_git::Error>,
    cache: &'d DecodeCache,
    limits: &'d Limits,
    listed: Vec<&'d Entry>,
    decoded: Decoded,
    shared: Names,
    /// Number of documents so far.
    documents: usize,
    kept: Kept<'d>,
}

impl<C: AsRef<[u8]>> Files<'_, C> {
    fn problem(&mut self, place: Place, what: impl Into<String>, hint: &str) {
        self.decoded.problems.push(Problem::new(place, what, Some(hint)));
    }

    /// Adds the objects and problems of an entry.
    fn add(&mut self, entry: &Entry) -> Result<Room, mainstay_git::Error> {
        if let Some(flaw) = entry.flaw {
            self.problem(Place::file(&*entry.path), flaw.what(), "rename it, or list it in .mainstayignore");
            return Ok(Room::Left);
        }
        if entry.kind != EntryKind::File {
            if let Some((what, hint)) = not_a_file(entry, &self.listed, self.read)? {
                self.problem(Place::file(&*entry.path), what, hint);
            }
            return Ok(Room::Left);
        }
        if !is_manifest(&entry.path) || self.documents > self.limits.documents {
            return Ok(Room::Left);
        }
        let path = self.shared.intern(&entry.path);
        let is_of_another_tool = other_files::is_of_another_tool(&path);
        if entry.size > self.limits.file {
            if !is_of_another_tool {
                let most = usize::try_from(self.limits.file).unwrap_or(usize::MAX);
                self.problem(Place::file(path), format!("the file is {}", larger_than(most)), "split it");
            }
            return Ok(Room::Left);
        }
        let cached = self.cache.get(entry.id, &path, self.limits.form, self.limits.decryption.key_id());
        if let Some((objects, sealed)) = cached {
            self.documents += objects.len();
            let is_over = self.documents > self.limits.documents;
            let problems = is_over.then(|| file::too_many_documents(&path, self.limits.documents));
            return Ok(self.keep(&path, objects, sealed, problems));
        }
        let content = (self.read)(entry)?;
        let content = content.as_ref();
        if is_of_another_tool && !other_files::may_be_manifest(content) {
            return Ok(Room::Left);
        }
        if let Some(hint) = recognise::pointer(content) {
            let hint = format!("{hint}, or list it in .mainstayignore");
            self.decoded.problems.push(not_fetched(Place::file(path), &hint));
            return Ok(Room::Left);
        }
        Ok(self.decode(entry, &path, content))
    }

    /// Decodes a file and caches it.
    fn decode(&mut self, entry: &Entry, path: &Arc<str>, content: &[u8]) -> Room {
        let limits = self.limits;
        let left = limits.documents.saturating_sub(self.documents);
        let mut found = file::read(path, content, left, limits, &mut self.shared);
        self.documents += found.documents;
        let sealed = sealed(path, content, &mut found, limits);
        if found.problems.is_empty() {
            let reading = match limits.decryption.key_id() {
                _ if !may_be_encrypted(content) => Reading::Plain,
                Some(keys) => Reading::Verified(keys),
                None => Reading::Unverified,
            };
            self.cache.insert(entry.id, path, limits.form, reading, (found.objects.clone(), sealed.clone()));
        }
        self.keep(path, found.objects, sealed, found.problems)
    }

    fn keep(
        &mut self,
        path: &Arc<str>,
        objects: Vec<Arc<Object>>,
        sealed: Vec<Arc<Sealed>>,
        problems: impl IntoIterator<Item = Problem>,
    ) -> Room {
        let may_be_kept = self.kept.add(&objects);
        self.decoded.sealed.extend(sealed);
        self.decoded.objects.extend(objects);
        self.decoded.problems.extend(problems);
        if may_be_kept {
            return Room::Left;
        }
        self.decoded.problems.push(too_many(path, self.kept.bytes()));
        Room::None
    }
}

/// Returns the reason that all manifests of a listing are ignored; `None` if the listing has no manifests.
fn left_out(listing: &[Entry], ignored: &Ignored) -> Option<String> {
    let manifests = listing.iter().filter(|entry| reads(&entry.path) && !is_ignore_file(&entry.path));
    let mut by_rules = manifests.filter_map(|entry| match ignored.why(&entry.path)? {
        why @ Why::Rule { .. } => Some((&*entry.path, why)),
        Why::Hidden(_) => None,
    });
    let (path, why) = by_rules.next()?;
    let path = printable(path);
    Some(match by_rules.count() {
        0 => format!("{path} is left out by {why}"),
        more => format!("{} files are left out, {path} by {why}", more + 1),
    })
}

/// Verifies a file with encrypted objects, and returns the file for decryption. Its errors are added to the problems of
/// the file.
fn sealed(path: &Arc<str>, content: &[u8], found: &mut file::Read, limits: &Limits) -> Vec<Arc<Sealed>> {
    let Some(keys) = limits.decryption.keys() else { return Vec::new() };
    if !found.problems.is_empty() || !found.objects.iter().any(|object| encrypted_content(object).is_some()) {
        return Vec::new();
    }
    verified(path, content, keys, limits).unwrap_or_else(|problems| {
        found.problems = problems;
        Vec::new()
    })
}

/// Decodes the output of a kustomization. Each object gets the location of its original file.
pub fn decode_rendered(origins: &Origins, documents: &[u8], limits: &Limits) -> Decoded {
    let file::Read { objects, problems, .. } = file::read_printed(origins, documents, limits);
    Decoded { objects, problems, ..Decoded::default() }
}

/// Decodes the output of a chart. Templates are not recognized in the output. Locations are positions in the output.
pub(crate) fn decode_manifests(file: &str, documents: &[u8], limits: &Limits) -> Decoded {
    let file::Read { objects, problems, .. } =
        file::read_manifests(&file.into(), documents, limits.documents, limits, &mut Names::default());
    Decoded { objects, problems, ..Decoded::default() }
}

/// Returns the files that [`decode`] reads.
///
/// # Errors
/// If an ignore file cannot be read.
pub fn not_ignored<C: AsRef<[u8]>>(
    mut listing: Vec<Entry>,
    base_dir: &str,
    read: &mut dyn FnMut(&Entry) -> Result<C, mainstay_git::Error>,
    limits: &Limits,
) -> Result<Vec<Entry>, mainstay_git::Error> {
    // Decoding reports the problems of the rules.
    let mut ignored = ignore_rules(&listing, base_dir, read, Deadline::new(limits), &mut Vec::new())?;
    // Ignore files are always read.
    listing.retain(|entry| is_ignore_file(&entry.path) || !ignored.leaves_out(&entry.path));
    Ok(listing)
}

/// Returns a problem for every object that is defined twice. The problem names both locations.
pub fn duplicates<'o>(objects: impl Iterator<Item = (&'o Key, &'o Object)>) -> Vec<Problem> {
    let mut first: HashMap<&Key, &Object> = HashMap::new();
    let mut problems = Vec::new();
    for (key, object) in objects {
        match first.entry(key) {
            Slot::Vacant(slot) => {
                slot.insert(object);
            }
            Slot::Occupied(slot) => {
                let what = format!("{key} is defined twice; first at {}", slot.get().place);
                problems.push(Problem::new(object.place.clone(), what, Some("keep one of the two")));
            }
        }
    }
    problems
}

fn not_fetched(place: Place, hint: &str) -> Problem {
    Problem::new(place, "the file is kept in Git LFS, which is not fetched", Some(hint))
}

pub(super) fn ignore_rules<C: AsRef<[u8]>>(
    listing: &[Entry],
    base_dir: &str,
    read: &mut dyn FnMut(&Entry) -> Result<C, mainstay_git::Error>,
    deadline: Deadline<'_>,
    problems: &mut Vec<Problem>,
) -> Result<Ignored, mainstay_git::Error> {
    let mut ignored = Ignored::new(base_dir);
    for entry in listing {
        if entry.kind != EntryKind::File || !is_ignore_file(&entry.path) {
            continue;
        }
        if deadline.is_over() {
            break;
        }
        if entry.size > 1 << 20 {
            problems.push(Problem::new(Place::file(&*entry.path), "the file is too large", None));
            continue;
        }
        let content = read(entry)?;
        let content = content.as_ref();
        if let Some(hint) = recognise::pointer(content) {
            problems.push(not_fetched(Place::file(&*entry.path), hint));
            continue;
        }
        problems.extend(ignored.add(&entry.path, content));
    }
    Ok(ignored)
}

/// Returns whether the content of a `Chart.yaml` makes its directory a chart. A file with a syntax error is judged by
/// its lines, so that Helm reports the error.
fn is_chart(content: &[u8], limits: &Limits) -> bool {
    let Ok(text) = std::str::from_utf8(content) else { return false };
    let has_line =
        |key: &str| text.lines().any(|line| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':')));
    match read_fields(text, limits) {
        Ok(fields) => recognise::is_chart(|key| fields.contains_key(key)),
        Err(_) => recognise::is_chart(has_line),
    }
}

/// Returns the directories that are Helm charts outside of kustomizations. A kustomization in a chart belongs to the
/// chart.
fn charts<C: AsRef<[u8]>>(
    entries: &[&Entry],
    kustomizations: &Directories,
    read: &mut dyn FnMut(&Entry) -> Result<C, mainstay_git::Error>,
    deadline: Deadline<'_>,
    limits: &Limits,
) -> Result<Directories, mainstay_git::Error> {
    let mut found = Vec::new();
    for entry in entries {
        let may_be = recognise::may_be_chart(&entry.path) && entry.kind == EntryKind::File && entry.flaw.is_none();
        let is_free = !kustomizations.contains(&entry.path);
        if may_be
            && is_free
            && entry.size <= MAX_CHART
            && !deadline.is_over()
            && is_chart(read(entry)?.as_ref(), limits)
        {
            found.push(&*entry.path);
        }
    }
    Ok(Directories::of(found.into_iter()))
}

/// Returns the problem that all objects up to the end of this file exceed the memory for objects.
pub fn too_many(path: &Arc<str>, bytes: usize) -> Problem {
    let what = format!(
        "the objects up to this file take {} of memory, more than the agent has left for this namespace",
        size(bytes)
    );
    let hint = "leave out unused objects, or raise limits.memory of the agent's Deployment";
    Problem::new(Place::file(Arc::clone(path)), what, Some(hint))
}

fn takes_too_long(entry: &Entry) -> Problem {
    let hint = "spread the files over several GitSyncs, each with a baseDir of its own";
    Problem::new(Place::file(&*entry.path), "timed out while reading the files, at this one", Some(hint))
}

/// Returns the problem and remedy for an entry that is not a file; `None` if the entry is a file or not relevant.
fn not_a_file<C: AsRef<[u8]>>(
    entry: &Entry,
    listing: &[&Entry],
    read: &mut dyn FnMut(&Entry) -> Result<C, mainstay_git::Error>,
) -> Result<Option<(&'static str, &'static str)>, mainstay_git::Error> {
    Ok(match entry.kind {
        EntryKind::File => None,
        EntryKind::Symlink if reads(&entry.path) => Some(links::NOT_FOLLOWED),
        EntryKind::Symlink if entry.size > links::LONGEST => Some(("the symbolic link is too long", "remove it")),
        EntryKind::Symlink => links::flaw(&entry.path, read(entry)?.as_ref(), listing),
        EntryKind::Submodule => Some((
            "the submodule is not fetched",
            "set `submodules: true` in the GitRepository and list the submodule in .gitmodules, or list it in .mainstayignore",
        )),
    })
}

/// Returns whether a file with this path is relevant for decoding.
pub fn reads(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    is_manifest(path) || name == names::IGNORE_FILE || kustomize::NAMES.contains(&name)
}

pub(super) fn is_ignore_file(path: &str) -> bool {
    path.rsplit('/').next() == Some(names::IGNORE_FILE)
}

/// Checks the extension, ignoring case.
fn is_manifest(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["yaml", "yml", "json"].iter().any(|known| known.eq_ignore_ascii_case(extension))
}

fn shorten(problems: &mut Vec<Problem>, most: usize) {
    problems.sort_by(|a, b| a.place.cmp(&b.place));
    let more = problems.len().saturating_sub(most);
    if more > 0 {
        problems.truncate(most);
        if let Some(last) = problems.last().cloned() {
            problems.push(Problem::new(last.place, format!("{more} more problems are not listed"), None));
        }
    }
}
