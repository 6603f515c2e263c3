//! Unpacks layers into a directory.
//!
//! Layers are untrusted archives. Entries and links must stay in the directory, and bytes and entries are limited. The
//! files are read-only, so that containers of one image do not modify each other's programs accidentally.
//!
//! Invariant: the directory gets its name only when it is complete.
//! Invariant: no chain of links points outside the directory. The meaning of `..` behind a link depends on all links,
//! so links are checked at the end.
//!
//! Not here: owners, devices, pipes, extended attributes and zstd.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tar::{Archive, EntryType};

use crate::registry::Layer;

/// Maximum size of an image's files in bytes.
const MOST_BYTES: u64 = 8 << 30;
/// Maximum number of entries in all layers.
const MOST_ENTRIES: u64 = 500_000;
/// Maximum number of links on a path. Kernels stop at 40.
const MOST_HOPS: usize = 64;

/// Unpacks layers, bottom first, into a new directory.
pub(super) fn unpack(layers: &[Layer], place: &Path) -> io::Result<()> {
    let parent = place.parent().ok_or_else(|| refused("no directory for images"))?;
    fs::create_dir_all(parent)?;
    let growing = parent.join(format!(".{:016x}", fastrand::u64(..)));
    fs::create_dir(&growing)?;
    let done = fs::canonicalize(&growing).and_then(|root| {
        let mut tree = Tree { root, bytes: 0, entries: 0, fresh: BTreeSet::new(), links: Vec::new() };
        layers.iter().try_for_each(|layer| tree.add(layer))?;
        tree.check_links()
    });
    let done = done.and_then(|()| fs::rename(&growing, place));
    if done.is_err() {
        // A leftover is removed with the node's directory.
        let _ = fs::remove_dir_all(&growing);
    }
    done
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

struct Tree {
    /// Contains no symbolic links.
    root: PathBuf,
    bytes: u64,
    entries: u64,
    /// Paths written by the current layer; its own whiteouts do not remove them.
    fresh: BTreeSet<PathBuf>,
    /// Created symbolic links. Some may have been replaced since.
    links: Vec<PathBuf>,
}

impl Tree {
    fn add(&mut self, layer: &Layer) -> io::Result<()> {
        let file = BufReader::new(File::open(&layer.path)?);
        let reader: Box<dyn Read> = if layer.media_type.ends_with("zstd") {
            return Err(refused("layers compressed with zstd are not supported"));
        } else if layer.media_type.ends_with("gzip") {
            Box::new(MultiGzDecoder::new(file))
        } else {
            Box::new(file)
        };
        self.fresh.clear();
        // The rest of a layer that is too large is not read.
        let mut archive = Archive::new(reader.take(MOST_BYTES + (1 << 30)));
        for entry in archive.entries()? {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(refused("the image has too many files"));
            }
            self.put(&mut entry?)?;
        }
        Ok(())
    }

    fn put(&mut self, entry: &mut tar::Entry<'_, impl Read>) -> io::Result<()> {
        let Some(relative) = inside(&entry.path()?)? else { return Ok(()) };
        let Some(name) = relative.file_name().map(|name| name.to_string_lossy().into_owned()) else { return Ok(()) };
        let parent = self.parent(&relative)?;
        let target = parent.join(relative.file_name().unwrap_or_default());
        if name == ".wh..wh..opq" {
            return self.clear(&parent);
        }
        if let Some(hidden) = name.strip_prefix(".wh.") {
            return if matches!(hidden, "" | "." | "..") || hidden.contains('/') {
                Err(refused("a whiteout hides nothing"))
            } else {
                remove(&parent.join(hidden))
            };
        }
        let kind = entry.header().entry_type();
        let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
        if kind == EntryType::Directory {
            if fs::symlink_metadata(&target).is_ok_and(|m| !m.is_dir()) {
                fs::remove_file(&target)?;
            }
            fs::create_dir_all(&target)?;
            fs::set_permissions(&target, Permissions::from_mode(mode | 0o700))?;
        } else if matches!(kind, EntryType::Regular | EntryType::Continuous) {
            remove(&target)?;
            self.bytes = self.bytes.saturating_add(entry.size());
            if self.bytes > MOST_BYTES {
                return Err(refused("the image is too large"));
            }
            io::copy(entry, &mut File::create_new(&target)?)?;
            fs::set_permissions(&target, Permissions::from_mode(mode & !0o222 | 0o400))?;
        } else if kind == EntryType::Symlink {
            let link = entry.link_name()?.ok_or_else(|| refused("a link leads nowhere"))?;
            let link = self.lead(&parent, &link)?;
            remove(&target)?;
            symlink(link, &target)?;
            self.links.push(target.clone());
        } else if kind == EntryType::Link {
            let link = entry.link_name()?.ok_or_else(|| refused("a link leads nowhere"))?;
            let source = inside(&link)?.ok_or_else(|| refused("a link leads nowhere"))?;
            let source = self.parent(&source)?.join(source.file_name().unwrap_or_default());
            if !fs::symlink_metadata(&source).is_ok_and(|m| m.is_file()) {
                return Err(refused("a hard link leads to no file"));
            }
            if source != target {
                remove(&target)?;
                fs::hard_link(source, &target)?;
            }
        } else {
            // Devices and pipes require privileges that a node lacks, and programs do not need them.
            return Ok(());
        }
        self.fresh.insert(target);
        Ok(())
    }

    /// Creates the parent directory of an entry within the root.
    fn parent(&self, relative: &Path) -> io::Result<PathBuf> {
        let mut at = self.root.clone();
        for part in relative.parent().into_iter().flat_map(Path::components) {
            at.push(part);
            match fs::symlink_metadata(&at) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(&at)?,
                Err(error) => return Err(error),
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => {
                    at = fs::canonicalize(&at)?;
                    if !at.starts_with(&self.root) || !at.is_dir() {
                        return Err(refused("an entry lies outside of the image"));
                    }
                }
            }
        }
        Ok(at)
    }

    /// Returns the stored target of a symbolic link. An absolute target is made relative to the image's root.
    fn lead(&self, parent: &Path, link: &Path) -> io::Result<PathBuf> {
        let depth = parent.strip_prefix(&self.root).map_err(|_| refused("an entry lies outside of the image"))?;
        let depth = depth.components().count();
        let mut up = if link.is_absolute() { 0 } else { depth };
        let mut parts: Vec<Component<'_>> = Vec::new();
        for part in link.components() {
            match part {
                Component::Normal(_) => {
                    parts.push(part);
                    up += 1;
                }
                Component::ParentDir if up == 0 => return Err(refused("a link leads out of the image")),
                Component::ParentDir => {
                    parts.push(part);
                    up -= 1;
                }
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        let mut stored = PathBuf::new();
        if link.is_absolute() {
            (0..depth).for_each(|_| stored.push(".."));
        }
        stored.extend(parts);
        if stored.as_os_str().is_empty() {
            stored.push(".");
        }
        Ok(stored)
    }

    /// Fails if a link, followed as the kernel does, points outside the root.
    fn check_links(&self) -> io::Result<()> {
        let leads_out = |link: &PathBuf| link.strip_prefix(&self.root).map_or(true, |link| leads_out(&self.root, link));
        if self.links.iter().any(leads_out) { Err(refused("a link leads out of the image")) } else { Ok(()) }
    }

    /// Removes the content of lower layers from a directory.
    fn clear(&self, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if !self.fresh.iter().any(|fresh| fresh.starts_with(&path)) {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Whether a path below `root` points outside `root` after all links are resolved.
fn leads_out(root: &Path, path: &Path) -> bool {
    let words = |path: &Path| path.components().map(|part| part.as_os_str().to_owned()).collect::<VecDeque<_>>();
    let (mut ahead, mut at, mut hops) = (words(path), PathBuf::new(), 0);
    while let Some(word) = ahead.pop_front() {
        if word == "." {
            continue;
        }
        if word == ".." {
            if !at.pop() {
                return true;
            }
            continue;
        }
        at.push(&word);
        let Ok(link) = fs::read_link(root.join(&at)) else { continue };
        hops += 1;
        if link.is_absolute() || hops > MOST_HOPS {
            // Stored links are never absolute, and a cycle has no target.
            return link.is_absolute();
        }
        at.pop();
        let mut next = words(&link);
        next.append(&mut ahead);
        ahead = next;
    }
    false
}

/// Returns an archive path relative to the root; `None` for the root itself.
fn inside(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut relative = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => relative.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(refused("an entry lies outside of the image")),
        }
    }
    Ok((!relative.as_os_str().is_empty()).then_some(relative))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Builds a layer of `path` (directory), `path=text` (file), `path->link` (symbolic link) and `path=>link` (hard
    /// link).
    fn layer(directory: &Path, entries: &[&str]) -> Layer {
        let path = directory.join(format!("{:x}", fastrand::u64(..)));
        let gzip = flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
        let mut archive = tar::Builder::new(gzip);
        for entry in entries {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            let mut put = |name: &str, kind, text: &str, link: &str| {
                header.set_entry_type(kind);
                header.set_size(text.len() as u64);
                // Written directly, because the builder rejects hostile entries.
                let bytes = header.as_mut_bytes();
                bytes[..name.len()].copy_from_slice(name.as_bytes());
                bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
                header.set_cksum();
                archive.append(&header, text.as_bytes()).unwrap();
            };
            if let Some((name, link)) = entry.split_once("->") {
                put(name, EntryType::Symlink, "", link);
            } else if let Some((name, link)) = entry.split_once("=>") {
                put(name, EntryType::Link, "", link);
            } else if let Some((name, text)) = entry.split_once('=') {
                put(name, EntryType::Regular, text, "");
            } else {
                put(entry, EntryType::Directory, "", "");
            }
        }
        archive.into_inner().unwrap().finish().unwrap().flush().unwrap();
        let media_type = "application/vnd.oci.image.layer.v1.tar+gzip".to_owned();
        Layer { digest: String::new(), media_type, size: 0, path }
    }

    fn check(layers: &[&[&str]], expected: Result<&[&str], &str>) {
        let directory = tempfile::tempdir().unwrap();
        let layers: Vec<Layer> = layers.iter().map(|entries| layer(directory.path(), entries)).collect();
        let place = directory.path().join("image");
        let done = unpack(&layers, &place).map_err(|e| e.to_string()).map(|()| {
            let mut found = Vec::new();
            list(&place, &place, &mut found);
            found
        });
        assert_eq!(done, expected.map(|e| e.iter().map(|&s| s.to_owned()).collect()).map_err(str::to_owned));
        assert_eq!(done.is_ok(), place.exists());
    }

    fn list(root: &Path, directory: &Path, found: &mut Vec<String>) {
        let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                found.push(name);
                list(root, &path, found);
            } else if metadata.is_symlink() {
                found.push(format!("{name}->{}", fs::read_link(&path).unwrap().display()));
            } else {
                found.push(format!("{name}={}", fs::read_to_string(&path).unwrap()));
            }
        }
    }

    #[test]
    fn upper_layers_replace_and_hide_lower_ones() {
        check(
            &[&["a", "a/x=1", "a/y=1", "b/z=1", "c=1"], &["a/x=2", "a/.wh.y=", "b/.wh..wh..opq=", "b/n=2", ".wh.c="]],
            Ok(&["a", "a/x=2", "b", "b/n=2"]),
        );
        check(&[&["d/n=1"], &["d/k=2", "d/.wh..wh..opq="]], Ok(&["d", "d/k=2"]));
    }

    #[test]
    fn links_stay_inside() {
        check(
            &[&["usr/lib", "lib->usr/lib", "lib/a=1", "abs->/usr/lib/a", "usr/up->../lib", "h=>usr/lib/a"]],
            Ok(&["abs->usr/lib/a", "h=1", "lib->usr/lib", "usr", "usr/lib", "usr/lib/a=1", "usr/up->../lib"]),
        );
        check(&[&["usr/bin", "usr/bin/a->/etc/a"]], Ok(&["usr", "usr/bin", "usr/bin/a->../../etc/a"]));
        check(&[&["x->../../etc"]], Err("a link leads out of the image"));
        check(&[&["x->a/../../etc"]], Err("a link leads out of the image"));
    }

    #[test]
    fn links_that_change_what_the_next_one_means_stay_inside_together() {
        let out = Err("a link leads out of the image");
        // Each link alone stays inside.
        check(&[&["a/b", "a/b/up->../..", "x->a/b/up/../../.."]], out);
        check(&[&["x->a/b/up/../../..", "a/b", "a/b/up->../.."]], out);
        check(&[&["a/b/c", "x->a/b/c/../../.."], &["a/b/.wh.c=", "a/b/c->../.."]], out);
        // The next layer replaces the link by a file.
        check(&[&["a/b", "a/b/up->../..", "x->a/b/up/../../.."], &[".wh.x=", "a/b/.wh.up="]], Ok(&["a", "a/b"]));
        check(&[&["a->b", "b->a", "c->a/../.."]], out);
        check(&[&["a->b", "b->a"]], Ok(&["a->b", "b->a"]));
        check(&[&["d/e", "s->d/e", "t->s/../e"]], Ok(&["d", "d/e", "s->d/e", "t->s/../e"]));
    }

    #[test]
    fn an_archive_writes_no_file_outside_its_directory() {
        check(&[&["../x=1"]], Err("an entry lies outside of the image"));
        check(&[&["a/../../x=1"]], Err("an entry lies outside of the image"));
        check(&[&["h=>../outside"]], Err("an entry lies outside of the image"));
        check(&[&["h=>absent"]], Err("a hard link leads to no file"));
        check(&[&["/etc/x=1"]], Ok(&["etc", "etc/x=1"]));
    }
}
