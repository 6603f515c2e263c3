//! Directories of test files.

use std::path::Path;

/// Returns the files of a directory, with relative paths.
pub fn files_below(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let relative = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                found.push((relative, std::fs::read(&path).unwrap()));
            }
        }
    }
    found
}
