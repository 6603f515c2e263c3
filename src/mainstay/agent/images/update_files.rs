//! The files of a commit whose images differ from the choices of ImagePolicies.

use std::collections::BTreeMap;

use super::message::Change;
use mainstay_api::image_policy::ChosenImage;
use mainstay_git::{BaseDir, EntryKind, Snapshot, thread_time};
use mainstay_manifest::{Limits, MarkedImage, holds_marker, set_images};
use mainstay_object::failure::chain;

/// Maximum size of a file with markers, in bytes.
const FILE_BYTES: u64 = 1 << 20;
/// Maximum size of all changed files, in bytes.
const CHANGED_BYTES: usize = 16 << 20;
/// Maximum number of reported faults.
const FAULTS: usize = 10;

/// Changed files.
#[derive(Debug, Default)]
pub(super) struct Edited {
    /// The new contents by their paths.
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) changes: Vec<Change>,
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
    let (mut edited, mut faults, mut bytes) = (Edited::default(), Vec::new(), 0);
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
        match set_images(text, &limits, image) {
            Ok(None) => {}
            Ok(Some(file)) => {
                bytes += file.text.len();
                if bytes > CHANGED_BYTES {
                    return Err(format!(
                        "the changed files have more than {CHANGED_BYTES} bytes; set spec.update.path"
                    ));
                }
                edited.changes.extend(file.changes.into_iter().map(|change| (entry.path.clone(), change)));
                edited.files.insert(entry.path, file.text.into_bytes());
            }
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
