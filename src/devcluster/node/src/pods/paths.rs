//! Maps paths in a container to paths of this machine.
//!
//! A container has no root file system here. Its mounts and its image are in directories of the node. Absolute paths to
//! them are rewritten in the command, the arguments and the environment. Other paths are those of this machine.
//!
//! Not here: paths within a text, such as a shell script in an argument.

use std::path::{Path, PathBuf};

/// The path mapping of a container.
#[derive(Clone, Debug, Default)]
pub(super) struct Paths {
    /// Absolute path in the container without a final slash, and the path on this machine; longest first.
    roots: Vec<(String, PathBuf)>,
}

impl Paths {
    /// Adds a mapping. The longest matching path wins; of equal paths, the first path wins.
    pub(super) fn add(&mut self, path: &str, place: PathBuf) {
        let path = path.trim_end_matches('/');
        if path.starts_with('/') {
            self.roots.push((path.to_owned(), place));
            self.roots.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        }
    }

    /// Maps a path; `None` if the container has no such path.
    pub(super) fn place(&self, path: &str) -> Option<PathBuf> {
        if !path.starts_with('/') || path.starts_with("//") {
            return None;
        }
        self.roots.iter().find_map(|(root, place)| {
            let rest = path.strip_prefix(root.as_str())?;
            if rest.is_empty() {
                return Some(place.clone());
            }
            let inside = rest.strip_prefix('/')?;
            // Some programs treat a final slash specially.
            Some(if inside.is_empty() { slashed(place) } else { place.join(inside.trim_start_matches('/')) })
        })
    }

    /// Rewrites the paths in a word or value: `/a`, `/a:/b`, `--flag=/a`, `--flag=/a:/b`.
    pub(super) fn rewrite(&self, text: &str) -> String {
        match text.split_once('=') {
            Some((flag, value)) if !flag.contains('/') => format!("{flag}={}", self.list(value)),
            _ => self.list(text),
        }
    }

    fn list(&self, text: &str) -> String {
        let parts = text.split(':').map(|part| match self.place(part) {
            Some(place) => place.to_string_lossy().into_owned(),
            None => part.to_owned(),
        });
        parts.collect::<Vec<_>>().join(":")
    }
}

fn slashed(place: &Path) -> PathBuf {
    place.join("")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let mut paths = Paths::default();
        paths.add("/work", "/m/w".into());
        paths.add("/work/deep", "/m/d".into());
        paths.add("/tmp/", "/m/t".into());
        assert_eq!(paths.rewrite(text), expected, "{text}");
    }

    #[test]
    fn rewrites_what_lies_below_a_mount() {
        check("/work", "/m/w");
        check("/work/", "/m/w/");
        check("/work/src/a", "/m/w/src/a");
        check("/work/deep/a", "/m/d/a");
        check("/work//src", "/m/w/src");
        check("/tmp:/usr/lib:/work/x", "/m/t:/usr/lib:/m/w/x");
        check("--dir=/work/x", "--dir=/m/w/x");
        check("--map=/work:/tmp", "--map=/m/w:/m/t");
        check("DIR=/tmp", "DIR=/m/t");
    }

    #[test]
    fn leaves_everything_else() {
        for text in ["/workspace", "work/src", "http://work/x", "file:///work", "host:80/work", "a /work", "=", ":", ""]
        {
            check(text, text);
        }
        check("oci:/work/x", "oci:/m/w/x");
        check("/work/a=/tmp", "/m/w/a=/tmp");
    }
}
