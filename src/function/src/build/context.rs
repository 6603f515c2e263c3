//! Writes Kaniko's build context: a Dockerfile and the files that it copies.
//!
//! ```text
//!     <workspace>/Dockerfile
//!     <workspace>/check.sh       checks the syntax of the handler before the build
//!     <workspace>/server         the runtime server and its packages
//!     <workspace>/empty          an empty directory
//! ```
//!
//! The command that installs contains the digest of its inputs, so Kaniko's cache identifies dependencies by their
//! inputs. The command reads the inputs and the configuration of package registries from mounts, which are not part of
//! a layer.
//!
//! Invariant: the only user input in the Dockerfile is the base image's name, which contains no whitespace. Invariant:
//! the image has the layout, the user and the environment of images that `push` builds.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::fetch::{Error, Finding};
use super::install;
use crate::runtimes::{CODE_DIR, CODE_DIR_ENV, Runtime, SERVER_DIR, libraries};
use mainstay_api::names::{FUNCTION_IMAGE, IMAGE_LABEL};

const DOCKERFILE: &str = "Dockerfile";
const CHECK: &str = "check.sh";
const SERVER: &str = "server";
const EMPTY: &str = "empty";
/// The entries of the workspace that `write` creates.
pub(super) const NAMES: [&str; 4] = [DOCKERFILE, CHECK, SERVER, EMPTY];

/// Writes the build context. `dependencies` is the digest of the inputs of the dependencies; empty without
/// dependencies.
pub(super) fn write(
    workspace: &Path,
    runtime: &Runtime,
    base: &str,
    dependencies: &str,
    libraries: &Path,
) -> Result<(), Error> {
    if base.is_empty() || base == "scratch" || base.starts_with("oci:") || base.chars().any(is_no_name) {
        return Err(Finding::source("Kaniko builds on images in registries only").into());
    }
    write_file(&workspace.join(DOCKERFILE), dockerfile(runtime, base, dependencies).as_bytes())?;
    write_file(&workspace.join(CHECK), install::check(runtime).as_bytes())?;
    create(&workspace.join(EMPTY))?;
    let server = workspace.join(SERVER);
    for file in runtime.server_files() {
        let path = server.join(file.path);
        create(path.parent().unwrap_or(&server))?;
        write_file(&path, file.contents)?;
    }
    let packages = libraries::find(runtime.language, libraries)?;
    copy(&packages, &server.join(libraries::name(runtime.language)))
}

fn is_no_name(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '$' | '\\' | '#')
}

fn dockerfile(runtime: &Runtime, base: &str, dependencies: &str) -> String {
    let install = match dependencies {
        "" => String::new(),
        // The home directory is a build argument, so that caches of package managers in it do not become part of the
        // image.
        digest => {
            format!("ARG HOME=/tmp\nRUN DEPENDENCIES={digest} MAINSTAY_DEPS={CODE_DIR} sh /workspace/install.sh\n")
        }
    };
    let entrypoint = serde_json::Value::from(runtime.entrypoint().to_vec());
    format!(
        "FROM {base}\n\
         HEALTHCHECK NONE\n\
         ENV {CODE_DIR_ENV}={CODE_DIR}\n\
         USER 1000:1000\n\
         WORKDIR {CODE_DIR}\n\
         COPY --chown=1000:1000 {EMPTY} {CODE_DIR}\n\
         {install}\
         COPY --chown=1000:1000 {SERVER} {SERVER_DIR}\n\
         COPY --chown=1000:1000 src {CODE_DIR}\n\
         LABEL {IMAGE_LABEL}={FUNCTION_IMAGE}\n\
         ENTRYPOINT {entrypoint}\n\
         CMD []\n"
    )
}

fn write_file(path: &Path, content: &[u8]) -> Result<(), Error> {
    fs::write(path, content).map_err(|cause| Error::Write { path: path.to_owned(), cause })
}

fn create(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|cause| Error::Write { path: path.to_owned(), cause })
}

/// Copies a directory with its links, and with the file modes of layers that Mainstay's own builder writes.
fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    let unread = |cause| Error::Read { path: from.to_owned(), cause };
    create(to)?;
    let mut open: Vec<(PathBuf, PathBuf)> = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = open.pop() {
        for entry in fs::read_dir(&from).map_err(unread)? {
            let entry = entry.map_err(unread)?;
            let (kind, target) = (entry.file_type().map_err(unread)?, to.join(entry.file_name()));
            if kind.is_dir() {
                create(&target)?;
                open.push((entry.path(), target));
            } else {
                copy_one(&entry.path(), &target, kind.is_symlink())
                    .map_err(|cause| Error::Write { path: target, cause })?;
            }
        }
    }
    Ok(())
}

fn copy_one(from: &Path, to: &Path, is_link: bool) -> io::Result<()> {
    if is_link {
        return symlink(fs::read_link(from)?, to);
    }
    fs::copy(from, to)?;
    let mode = if from.metadata()?.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes;

    const BASE: &str = "h.io/node:22@sha256:0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn the_dockerfile_makes_the_layout_of_our_own_images() {
        let node = runtimes::find("nodejs22").unwrap();
        let expected = format!(
            "FROM {BASE}\nHEALTHCHECK NONE\nENV KUBELESS_INSTALL_VOLUME=/kubeless\nUSER 1000:1000\nWORKDIR /kubeless\n\
             COPY --chown=1000:1000 empty /kubeless\n\
             ARG HOME=/tmp\nRUN DEPENDENCIES=ab12 MAINSTAY_DEPS=/kubeless sh /workspace/install.sh\n\
             COPY --chown=1000:1000 server /kubeless_rt\nCOPY --chown=1000:1000 src /kubeless\n\
             LABEL dev.mainstay.image=function\nENTRYPOINT [\"node\",\"--max-semi-space-size=2\",\"/kubeless_rt/server.js\"]\nCMD []\n"
        );
        assert_eq!(dockerfile(node, BASE, "ab12"), expected);
        let python = dockerfile(runtimes::find("python312").unwrap(), BASE, "");
        assert!(!python.contains("RUN") && !python.contains("ARG"), "without dependencies nothing is run: {python}");
        assert!(python.contains("ENTRYPOINT [\"python3\",\"/kubeless_rt/server.py\"]"), "{python}");
    }

    #[test]
    fn a_base_image_cannot_add_a_line() {
        let room = tempfile::tempdir().unwrap();
        let node = runtimes::find("nodejs22").unwrap();
        for base in ["", "scratch", "oci:/x", "h.io/a:1\nRUN x", "h.io/a:1 AS b", "h.io/$X:1", "h.io/a\\"] {
            let error = write(room.path(), node, base, "", room.path()).unwrap_err();
            assert!(error.to_string().contains("images in registries only"), "{base}");
        }
        let error = write(room.path(), node, BASE, "", room.path()).unwrap_err().to_string();
        assert!(error.contains("`mainstay runtimes fetch`"), "{error}");
    }
}
