//! The files of a commit whose images differ from the choices of ImagePolicies.

use std::collections::BTreeMap;
use std::time::Duration;

use super::message::Change;
use mainstay_api::image_policy::ChosenImage;
use mainstay_git::{BaseDir, EntryKind, Snapshot, thread_time};
use mainstay_manifest::{Limits, MarkedFile, MarkedImage, holds_marker, set_images};
use mainstay_object::failure::chain;

/// Maximum size of a file with markers, in bytes.
const FILE_BYTES: u64 = 1 << 20;
/// Maximum size of all changed files, in bytes.
const CHANGED_BYTES: usize = 16 << 20;
/// Maximum number of changed values.
const CHANGES: usize = 2_000;
/// Maximum size of the descriptions of all changes, in bytes. A template has each of them several times.
const DESCRIBED_BYTES: usize = 1 << 20;
/// Maximum time for all files, as CPU time of the thread.
const TIME: Duration = Duration::from_secs(60);
/// Maximum number of reported faults.
const FAULTS: usize = 10;

/// Changed files.
#[derive(Debug, Default)]
pub(super) struct Edited {
    /// The new contents by their paths.
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) changes: Vec<Change>,
    /// The size of the changed files, and that of the descriptions of the changes.
    bytes: usize,
    described: usize,
}

impl Edited {
    /// Adds a file.
    fn add(&mut self, path: String, file: MarkedFile) -> Result<(), String> {
        self.bytes += file.text.len();
        for change in file.changes {
            let object: usize = change.object.iter().map(String::len).sum();
            self.described += path.len() + change.marker.len() + change.old.len() + change.new.len() + object;
            self.changes.push((path.clone(), change));
        }
        if self.bytes > CHANGED_BYTES {
            return Err(format!("the changed files have more than {CHANGED_BYTES} bytes; set spec.update.path"));
        }
        if self.described > DESCRIBED_BYTES {
            return Err(format!(
                "the old and new values have more than {DESCRIBED_BYTES} bytes with their paths; set spec.update.path"
            ));
        }
        self.files.insert(path, file.text.into_bytes());
        Ok(())
    }
}

/// Returns the changed YAML files below a directory. `chosen` has the choices of the namespace. Blocks.
///
/// # Errors
/// The faulty markers with file and line, or the reason why a file cannot be read.
pub(super) fn edited(
    snapshot: &Snapshot,
    directory: &BaseDir,
    namespace: &str,
    chosen: &BTreeMap<String, ChosenImage>,
) -> Result<Edited, String> {
    let (mut edited, mut faults, begun) = (Edited::default(), Vec::new(), thread_time());
    let limits = Limits::new(thread_time);
    let image = |of: &str, name: &str| {
        let image = chosen.get(name).filter(|_| of == namespace)?.clone();
        Some(MarkedImage { name: image.name, tag: image.tag, digest: image.digest })
    };
    let entries = snapshot.entries(directory).map_err(|error| chain(&error))?;
    let is_yaml = |path: &str| matches!(path.rsplit_once('.'), Some((_, "yaml" | "yml")));
    for entry in entries {
        let is_read = entry.kind == EntryKind::File && entry.flaw.is_none() && is_yaml(&entry.path);
        if !is_read || entry.size > FILE_BYTES {
            continue;
        }
        let content = snapshot.read_alone(&entry).map_err(|error| chain(&error))?;
        let Some(text) = std::str::from_utf8(content.as_ref()).ok().filter(|text| holds_marker(text)) else { continue };
        if thread_time().saturating_sub(begun) > TIME {
            return Err(format!("the files take more than {} s of a processor; set spec.update.path", TIME.as_secs()));
        }
        match set_images(text, &limits, CHANGES - edited.changes.len(), image) {
            Ok(None) => {}
            Ok(Some(file)) => edited.add(entry.path, file)?,
            Err(found) => faults.extend(found.into_iter().map(|(line, why)| format!("{}:{line}: {why}", entry.path))),
        }
    }
    if faults.is_empty() {
        return Ok(edited);
    }
    let more = faults.len().saturating_sub(FAULTS);
    faults.truncate(FAULTS);
    faults.extend((more > 0).then(|| format!("and {more} more")));
    Err(faults.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_manifest::MarkedChange;

    #[test]
    fn the_descriptions_of_all_changes_are_bounded() {
        let change = MarkedChange {
            line: 1,
            marker: "team:web:tag".to_owned(),
            old: "x".repeat(1 << 10),
            new: "1.1.0".to_owned(),
            object: Default::default(),
        };
        let file = || MarkedFile { text: "a".to_owned(), changes: vec![change.clone(); 100] };
        let mut edited = Edited::default();
        let added =
            (0..20).map(|number| edited.add(format!("{number}.yaml"), file())).take_while(Result::is_ok).count();
        assert!((5..20).contains(&added), "{added} files");
        let bytes: usize = edited.changes.iter().map(|(_, change)| change.old.len()).sum();
        assert!(bytes < DESCRIBED_BYTES + 200 * (1 << 10), "{bytes} bytes");
        let refused =
            Edited::default().add("a".to_owned(), MarkedFile { text: "a".repeat(CHANGED_BYTES + 1), changes: vec![] });
        assert!(refused.is_err_and(|why| why.contains("set spec.update.path")));
    }
}
