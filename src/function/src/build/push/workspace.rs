//! Reads the workspace of the earlier containers and the Secret, without trusting them.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::ByteString;

use super::{Error, plain_file};
use crate::build::fetch::{BEGUN, DEPENDENCIES, DEPS, REUSED};
use crate::build::install::bytecode;
use crate::registry::SecretData;
use crate::runtimes::Runtime;

/// Maximum size in bytes of the value of a Secret's key in the API.
const MAX_KEY: u64 = 1 << 20;
/// The keys that are read.
const KEYS: [&str; 9] = [
    ".dockerconfigjson",
    "ca.crt",
    "isInternal",
    "password",
    "pushRegAddr",
    "registryAddress",
    "registryLogins",
    "serverAddress",
    "username",
];

/// Returns the digest of the inputs of the dependencies; empty if the Function has no dependencies.
pub(super) fn dependencies(workspace: &Path) -> String {
    digest(&workspace.join(DEPENDENCIES)).unwrap_or_default()
}

/// Returns the digest of the inputs of the dependencies if the dependencies of the previous image are reused.
pub(super) fn reused(workspace: &Path) -> Option<String> {
    digest(&workspace.join(REUSED))
}

/// Returns the time since the first container started; `None` if unknown. Code from packages can change it to any value
/// up to a day.
pub(super) fn age(workspace: &Path) -> Option<Duration> {
    let age = |begun: PathBuf| {
        let begun = begun.symlink_metadata().ok()?.modified().ok()?;
        begun.elapsed().ok().filter(|age| *age < Duration::from_hours(24))
    };
    // `install` runs first if the Job has no container `fetch`.
    age(workspace.join(DEPS).join(BEGUN)).max(age(workspace.join(BEGUN)))
}

fn digest(path: &Path) -> Option<String> {
    let text = String::from_utf8(plain_file(path, 128)?).ok()?;
    let text = text.trim();
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text.to_owned())
}

/// Returns the directory of the dependencies, if no part of its path is a link.
pub(super) fn dependency_folder(workspace: &Path, runtime: &Runtime) -> Option<PathBuf> {
    let inside = Path::new(DEPS).join(runtime.dependency_dir());
    let mut folder = workspace.to_owned();
    for part in &inside {
        folder.push(part);
        folder.symlink_metadata().ok().filter(fs::Metadata::is_dir)?;
    }
    Some(folder)
}

/// Returns the directory of the standard library's bytecode, if no part of its path is a link.
pub(super) fn bytecode_folder(workspace: &Path) -> Option<PathBuf> {
    let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
    let deps = Some(workspace.join(DEPS)).filter(|deps| is_folder(deps));
    let above = deps.into_iter().chain([workspace.to_owned()]);
    above.map(|above| above.join(bytecode::DIR)).find(|folder| is_folder(folder))
}

/// Reads the mounted registry Secret.
pub(super) fn secret(directory: &Path) -> Result<SecretData, Error> {
    let mut data = SecretData::new();
    for key in KEYS {
        let path = directory.join(key);
        let unread = |cause| Error::ReadSecret { path: path.clone(), cause };
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(unread(error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_KEY).read_to_end(&mut bytes).map_err(unread)?;
        data.insert(key.to_owned(), ByteString(bytes));
    }
    Ok(data)
}
