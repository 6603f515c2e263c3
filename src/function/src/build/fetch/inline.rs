//! Reads an inline source from the mounted ConfigMap.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use super::error::{Error, Finding};
use super::tree::{Node, Tree};
use crate::runtimes::{Language, Runtime};

/// Keys of the ConfigMap.
const SOURCE: &str = "source";
const DEPENDENCIES: &str = "dependencies";
/// Maximum size of a key's value in bytes. A ConfigMap holds at most 1 MiB.
const BYTES: u64 = 2 << 20;

/// Writes the handler and the dependency file to the empty directory `src`.
pub(super) fn write(runtime: &Runtime, directory: &Path, src: &Path) -> Result<Tree, Error> {
    let handler = read(&directory.join(SOURCE))?;
    let handler = handler.ok_or_else(|| Finding::source("the Function has no source"))?;
    let dependencies = read(&directory.join(DEPENDENCIES))?.unwrap_or_default();
    let empty: &[u8] = match runtime.language {
        Language::NodeJs => b"{}",
        Language::Python => b"",
    };
    let is_blank = dependencies.trim_ascii().is_empty();
    let dependencies = if is_blank { empty } else { &dependencies };
    let mut tree = Tree::default();
    for (name, content) in [(runtime.handler_file(), &*handler), (runtime.dependency_file(), dependencies)] {
        tree.add(name, Node::File { executable: false })?;
        super::write(&src.join(name), content)?;
    }
    Ok(tree)
}

/// Reads the value of a key; `None` if the key does not exist. Mounted keys are symbolic links, which are followed.
fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES + 1).read_to_end(&mut content));
    match read {
        Ok(_) if content.len() as u64 > BYTES => {
            Err(Finding::too_large("the source in the Function is larger than 2 MiB").into())
        }
        Ok(_) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::Read { path: path.to_owned(), cause }),
    }
}
