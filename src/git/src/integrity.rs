//! Verifies the checksums of a mirror's packs on disk. Everything here blocks.
//!
//! If a file of a commit cannot be read, the cause is either the disk or the remote. It is the remote if every pack
//! exists and its checksum is correct.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _};
use std::path::Path;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use rustix::io::Errno;

/// Length of a checksum, in bytes.
const SUM: usize = 20;
const PIECE: usize = 64 << 10;
const PACK: &str = "pack";
const INDEX: &str = "idx";

/// Returns the packs in a directory that have an index, without their extensions.
pub(super) fn packs(directory: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| is_name(stem));
        if let Some(name) = name
            && path.extension().is_some_and(|end| end == PACK)
            && path.with_extension(INDEX).is_file()
        {
            found.insert(name.to_owned());
        }
    }
    Ok(found)
}

/// Removes the remains of packs whose reception was interrupted.
pub(super) fn remove_unfinished(directory: &Path) -> io::Result<()> {
    let finished = packs(directory)?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_finished = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| finished.contains(stem));
        if !is_finished {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Returns how the packs are damaged; `None` if they are intact.
///
/// # Errors
/// The process lacks a resource for reading the packs. They may be intact or damaged.
pub(super) fn damage(directory: &Path, packs: &BTreeSet<String>) -> io::Result<Option<String>> {
    for name in packs {
        let pack = directory.join(name).with_extension(PACK);
        let index = pack.with_extension(INDEX);
        match (checked(&pack), checked(&index)) {
            (Err(error), _) | (_, Err(error)) if is_passing(&error) => return Err(error),
            (Err(error), _) => return Ok(Some(format!("a pack: {error}"))),
            (_, Err(error)) => return Ok(Some(format!("the index of a pack: {error}"))),
            // An index ends with its pack's checksum and its own.
            (Ok((sum, _)), Ok((_, before))) if sum != before => {
                return Ok(Some("a pack and its index differ".to_owned()));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Returns whether the error is caused by a lack of resources of the process, not by the file.
fn is_passing(error: &io::Error) -> bool {
    let codes = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::AGAIN];
    error.raw_os_error().is_some_and(|code| codes.iter().any(|passing| passing.raw_os_error() == code))
}

/// Verifies the checksum at the end of a file. Returns it together with the 20 bytes that precede it.
fn checked(path: &Path) -> io::Result<([u8; SUM], [u8; SUM])> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let content = length.checked_sub(SUM as u64).filter(|content| *content >= SUM as u64);
    let content = content.ok_or_else(|| wrong("it is cut off"))?;
    let mut reader = BufReader::new(file);
    let mut hash = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    let mut piece = vec![0; PIECE];
    let mut left = content - SUM as u64;
    while left > 0 {
        let length = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        reader.read_exact(&mut piece[..length])?;
        hash.update(&piece[..length]);
        left -= length as u64;
    }
    let mut before = [0; SUM];
    reader.read_exact(&mut before)?;
    hash.update(&before);
    let mut sum = [0; SUM];
    reader.read_exact(&mut sum)?;
    if hash.finish().as_ref() == sum { Ok((sum, before)) } else { Err(wrong("its checksum is wrong")) }
}

fn is_name(stem: &str) -> bool {
    stem.strip_prefix("pack-")
        .is_some_and(|sum| sum.len() == 2 * SUM && sum.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_files_or_memory_is_no_damage() {
        for code in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            assert!(is_passing(&code.into()), "{code}");
        }
        for code in [Errno::NOENT, Errno::IO] {
            assert!(!is_passing(&code.into()), "{code}");
        }
        let directory = tempfile::tempdir().unwrap();
        let missing = BTreeSet::from([format!("pack-{}", "0".repeat(40))]);
        assert!(damage(directory.path(), &missing).unwrap().is_some_and(|what| what.starts_with("a pack: ")));
    }
}
