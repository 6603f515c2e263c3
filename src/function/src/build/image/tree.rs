//! Walks a directory and returns the entries of a layer, in an order that depends only on their names.
//!
//! Invariant: no symbolic link is followed, and no link whose path points outside of the tree is included. Invariant:
//! memory use depends on the depth and the largest directory, not on the number of files.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Maximum depth of directories.
const DEEPEST: usize = 100;

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    /// A regular file with its size, and whether it is executable.
    File(u64, bool),
    /// A symbolic link to this path.
    Link(PathBuf),
}

/// An entry: its path and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
}

/// Why a tree cannot be part of an image.
#[derive(Debug, thiserror::Error)]
pub(in crate::build) enum Unfit {
    #[error("{path} is {what}, and only files, folders and symbolic links can be in an image", path = .path.display())]
    Special { path: PathBuf, what: &'static str },
    #[error("{path} is a symbolic link that points outside the image's folder", path = .path.display())]
    LeadsOut { path: PathBuf },
    #[error("{path} is in too many folders", path = .path.display())]
    TooDeep { path: PathBuf },
    #[error("could not read {path}", path = .path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
}

/// Calls `take` for every entry below `root`: directories before their contents, siblings by name.
pub(super) fn walk<E: From<Unfit>>(root: &Path, take: &mut impl FnMut(&Path, Entry) -> Result<(), E>) -> Result<(), E> {
    folder(root, Path::new(""), 0, take)
}

fn folder<E: From<Unfit>>(
    root: &Path,
    inside: &Path,
    depth: usize,
    take: &mut impl FnMut(&Path, Entry) -> Result<(), E>,
) -> Result<(), E> {
    if depth > DEEPEST {
        return Err(Unfit::TooDeep { path: inside.to_owned() }.into());
    }
    let on_disk = root.join(inside);
    let unread = |cause| Unfit::Read { path: inside.to_owned(), cause };
    let mut names = Vec::new();
    for found in fs::read_dir(&on_disk).map_err(unread)? {
        names.push(found.map_err(unread)?.file_name());
    }
    names.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    for name in names {
        let path = inside.join(&name);
        let on_disk = on_disk.join(&name);
        let kind = kind(&path, &on_disk)?;
        let is_folder = kind == Kind::Folder;
        take(&on_disk, Entry { path: path.clone(), kind })?;
        if is_folder {
            folder(root, &path, depth + 1, take)?;
        }
    }
    Ok(())
}

fn kind(path: &Path, on_disk: &Path) -> Result<Kind, Unfit> {
    let unread = |cause| Unfit::Read { path: path.to_owned(), cause };
    let metadata = fs::symlink_metadata(on_disk).map_err(unread)?;
    let file_type = metadata.file_type();
    if file_type.is_dir() {
        Ok(Kind::Folder)
    } else if file_type.is_file() {
        Ok(Kind::File(metadata.len(), metadata.permissions().mode() & 0o111 != 0))
    } else if file_type.is_symlink() {
        let target = fs::read_link(on_disk).map_err(unread)?;
        if stays_inside(path, &target) {
            Ok(Kind::Link(target))
        } else {
            Err(Unfit::LeadsOut { path: path.to_owned() })
        }
    } else {
        Err(Unfit::Special { path: path.to_owned(), what: special(&metadata) })
    }
}

fn special(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    let file_type = metadata.file_type();
    if file_type.is_fifo() {
        "a named pipe"
    } else if file_type.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Whether the target of a link at `path` stays in the tree, judged by the path alone. After another link, `..` may
/// resolve outside of the tree. Such a link is included unchanged, because it cannot resolve outside of an image.
fn stays_inside(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    !target.as_os_str().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn listed(root: &Path) -> Result<Vec<String>, Unfit> {
        let mut all = Vec::new();
        walk(root, &mut |_, entry: Entry| {
            all.push(format!("{} {:?}", entry.path.display(), entry.kind));
            Ok::<_, Unfit>(())
        })?;
        Ok(all)
    }

    #[test]
    fn lists_by_name_and_folders_first() {
        let root = tempfile::tempdir().unwrap();
        for file in ["b", "a.txt", "a/x", "a/B"] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        symlink("../b", root.path().join("a/link")).unwrap();
        let expected = [
            "a Folder",
            "a/B File(1, false)",
            "a/link Link(\"../b\")",
            "a/x File(1, false)",
            "a.txt File(1, false)",
            "b File(1, false)",
        ];
        assert_eq!(listed(root.path()).unwrap(), expected);
    }

    #[test]
    fn takes_nothing_from_outside_by_links_that_change_what_the_next_one_means() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "hunter2").unwrap();
        let root = outside.path().join("tree");
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("../..", root.join("a/b/up")).unwrap();
        // Judged by its path, the link stays inside the tree. A kernel that follows the link reaches the secret. In an
        // image, the link resolves to a path below the image's root.
        symlink("a/b/up/../secret", root.join("x")).unwrap();
        assert_eq!(fs::read_to_string(root.join("x")).unwrap(), "hunter2");
        let expected = ["a Folder", "a/b Folder", "a/b/up Link(\"../..\")", "x Link(\"a/b/up/../secret\")"];
        assert_eq!(listed(&root).unwrap(), expected, "links stay links: what they lead to is not read");
    }

    #[test]
    fn takes_no_link_that_leads_out_and_nothing_special() {
        for target in ["/etc/passwd", "..", "a/../../b", "./../x"] {
            assert!(!stays_inside(Path::new("link"), Path::new(target)), "{target}");
        }
        for target in ["b", "../b", "x/../../b", "."] {
            assert!(stays_inside(Path::new("a/link"), Path::new(target)), "{target}");
        }
        let root = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.path().join("s")).unwrap();
        assert!(listed(root.path()).unwrap_err().to_string().contains("a socket"));
        let fifo = root.path().join("p");
        fs::remove_file(root.path().join("s")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(listed(root.path()).unwrap_err().to_string().contains("a named pipe"));
        fs::remove_file(fifo).unwrap();
        // A loop of links is not followed.
        symlink(".", root.path().join("loop")).unwrap();
        assert_eq!(listed(root.path()).unwrap().len(), 1);
    }
}
