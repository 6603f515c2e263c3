//! Writes the script of the container `install`, and computes the digest of its inputs.
//!
//! A [`Plan`] lists the source files that the package manager reads. Exactly these files are copied to the workspace's
//! `inputs`, and their digest identifies the resulting dependencies. If the previous image was built from the same
//! inputs, no packages are installed.
//!
//! Invariant: the script contains no user input, so it needs no quoting. Invariant: the hashed files are the copied
//! files. No other file of the source affects the dependencies. Not here: running the script. It runs third-party code
//! in a container whose only credentials are those of the package registry.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::fetch::{BEGUN, DEPS, Error, Finding, Node, Tree};
use crate::runtimes::{Language, Runtime};
use mainstay_api::build::IMAGE_FORMAT;

pub(super) mod bytecode;
mod npm;
mod pip;

/// Maximum size in bytes of a file that is parsed.
pub(super) const FILE_BYTES: u64 = 4 << 20;

/// Reads a file of the source by its path.
type Reader<'a> = dyn FnMut(&str) -> Result<Vec<u8>, Error> + 'a;

/// The files of the source that the package manager may read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inputs(pub(super) Tree);

/// The dependencies to install.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// No dependencies: no package manager is needed.
    Nothing,
    /// Packages of npm.
    Npm {
        inputs: Inputs,
        /// Whether there is a lock file.
        locked: bool,
        /// Whether the source contains all packages, so that no registry is needed.
        offline: bool,
    },
    /// Packages of pip.
    Pip { inputs: Inputs },
}

/// The environment that dependencies are installed for.
#[derive(Clone, Debug)]
pub struct Platform {
    /// The base image of the install container.
    pub base: String,
    /// Operating system and architecture, for example `linux/amd64`.
    pub platform: String,
}

/// Plans the installation of the dependency file of a source in `directory`. `at` is the file's path in the repository.
pub(super) fn plan(runtime: &Runtime, tree: &Tree, directory: &Path, at: &str) -> Result<Plan, Error> {
    let mut read = |path: &str| read_file(directory, path);
    let file = runtime.dependency_file();
    match runtime.language {
        Language::NodeJs => npm::plan(tree, file, at, &mut read),
        Language::Python => pip::plan(tree, file, at, &mut read),
    }
}

fn read_file(directory: &Path, path: &str) -> Result<Vec<u8>, Error> {
    let full = directory.join(path);
    let read_error = |cause| Error::Read { path: full.clone(), cause };
    let bytes = fs::metadata(&full).map_err(read_error)?.len();
    if bytes > FILE_BYTES {
        return Err(Finding::dependencies(format!("{path} has {bytes} bytes; the limit is {FILE_BYTES}")).into());
    }
    fs::read(&full).map_err(read_error)
}

impl Plan {
    fn inputs(&self) -> Option<&Inputs> {
        match self {
            Self::Nothing => None,
            Self::Npm { inputs, .. } | Self::Pip { inputs } => Some(inputs),
        }
    }

    /// Returns the digest of the inputs in hexadecimal digits; empty without dependencies.
    pub(super) fn digest(&self, runtime: &Runtime, on: &Platform, directory: &Path) -> Result<String, Error> {
        let Some(Inputs(tree)) = self.inputs() else { return Ok(String::new()) };
        let mut digest = Sha256::new();
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        for text in [format(runtime.language), &IMAGE_FORMAT.to_string(), runtime.runs_as, &on.base, &on.platform] {
            add(text.as_bytes());
        }
        for (path, node) in tree.iter() {
            add(path.as_bytes());
            match node {
                Node::Directory => add(b"directory"),
                Node::Symlink { target } => {
                    add(b"link");
                    add(target.as_bytes());
                }
                Node::File { executable } => {
                    add(if *executable { b"program" } else { b"file" });
                    add(&content_digest(&directory.join(path))?);
                }
            }
        }
        Ok(hex::encode(digest.finalize()))
    }

    /// Copies the inputs from `directory` to the empty directory `to`.
    pub(super) fn copy_inputs(&self, directory: &Path, to: &Path) -> Result<(), Error> {
        let Some(Inputs(tree)) = self.inputs() else { return Ok(()) };
        for (path, node) in tree.iter() {
            let target = to.join(path);
            let copied = match node {
                Node::Directory => fs::create_dir(&target),
                Node::Symlink { target: leads } => symlink(leads, &target),
                Node::File { .. } => fs::copy(directory.join(path), &target).map(drop),
            };
            copied.map_err(|cause| Error::Write { path: target, cause })?;
        }
        Ok(())
    }

    /// Returns the script for a POSIX shell.
    pub(super) fn script(&self, runtime: &Runtime) -> String {
        match self {
            Self::Nothing => no_script(runtime, "no dependencies"),
            Self::Npm { .. } | Self::Pip { .. } => {
                format!("{}deps=${{MAINSTAY_DEPS:-$PWD/{DEPS}}}\n{}", begin(runtime), self.steps())
            }
        }
    }

    /// Returns the steps that install the files of `inputs` into the directory `$deps`.
    fn steps(&self) -> String {
        let steps = match self {
            Self::Nothing => return String::new(),
            Self::Npm { locked, offline, .. } => {
                let command = if *locked { "ci" } else { "install" };
                let offline = if *offline { " --offline" } else { "" };
                NPM.replace("@COMMAND@", command).replace("@OFFLINE@", offline)
            }
            // Bytecode of the standard library is possible only in a layer of Mainstay's own builder.
            Self::Pip { .. } => {
                let to =
                    format!("to=\"$deps/{}\"\n[ -z \"${{MAINSTAY_DEPS:-}}\" ] || to=\nrm -rf \"$to\"\n", bytecode::DIR);
                PIP.replace("@PIP@", &format!("{to}{}", bytecode::pip(PIP_ARGUMENTS)))
            }
        };
        format!("{PREPARE}{steps}")
    }
}

/// Returns a script that prints why no packages are installed.
pub(super) fn no_script(runtime: &Runtime, why: &'static str) -> String {
    format!("{}{}echo '{why}'\n", begin(runtime), library(runtime))
}

/// The step that compiles the standard library. Only a layer of Mainstay's own builder can contain the bytecode.
fn library(runtime: &Runtime) -> String {
    match bytecode::step(runtime.language, &format!("\"$PWD/{DEPS}/{}\"", bytecode::DIR)) {
        step if step.is_empty() => step,
        step => format!("if [ -z \"${{MAINSTAY_DEPS:-}}\" ]; then\n{step}fi\n"),
    }
}

/// The version of the script. It changes when the same inputs result in different dependencies.
fn format(language: Language) -> &'static str {
    match language {
        Language::NodeJs => "dependencies 1",
        Language::Python => "dependencies 2",
    }
}

/// Returns a script that only checks the syntax of the handler.
pub(super) fn check(runtime: &Runtime) -> String {
    begin(runtime)
}

/// The preparation of an inline source without the container `fetch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inline {
    /// No package is installed: the script only checks the syntax of the handler.
    Check(String),
    /// The script installs packages that the dependency file lists.
    Install(String),
}

/// Returns the script for an inline Function with this dependency file. The script copies the files from directory `$1`
/// to directory `$2`. `$3` is the workspace, or its directory for dependencies if packages are installed. `None` if the
/// file is invalid or references files of the source; `fetch` handles these.
pub(crate) fn inline(runtime: &Runtime, dependencies: &str) -> Option<Inline> {
    let mut tree = Tree::default();
    let (handler, file) = (runtime.handler_file(), runtime.dependency_file());
    for name in [handler, file] {
        tree.add(name, Node::File { executable: false }).ok()?;
    }
    let mut read = |_: &str| Ok(dependencies.as_bytes().to_vec());
    let plan = match runtime.language {
        Language::NodeJs => npm::plan(&tree, file, file, &mut read),
        Language::Python => pip::plan(&tree, file, file, &mut read),
    };
    let plan = plan.ok()?;
    match plan.inputs() {
        None => Some(Inline::Check(check_inline(runtime))),
        Some(Inputs(tree)) if tree.iter().map(|(path, _)| path).eq([file]) => {
            Some(Inline::Install(install_inline(runtime, &plan)))
        }
        Some(_) => None,
    }
}

fn check_inline(runtime: &Runtime) -> String {
    let (handler, dependencies) = (runtime.handler_file(), runtime.dependency_file());
    let check = match runtime.language {
        Language::NodeJs => format!("{}\n", parses(runtime)),
        Language::Python => bytecode::check(&format!("src/{handler}"), &format!("\"$3/{}\"", bytecode::DIR)),
    };
    format!(
        "set -eu\nmkdir -p \"$2/src\"\ncp \"$1/source\" \"$2/src/{handler}\"\n\
         if [ -f \"$1/dependencies\" ]; then cp \"$1/dependencies\" \"$2/src/{dependencies}\"; fi\n\
         cd \"$2\"\n{check}"
    )
}

fn install_inline(runtime: &Runtime, plan: &Plan) -> String {
    let (handler, dependencies) = (runtime.handler_file(), runtime.dependency_file());
    format!(
        "set -eu\numask 022\n: >\"$3/{BEGUN}\"\nmkdir -p \"$2/src\" \"$2/inputs\"\ncp \"$1/source\" \"$2/src/{handler}\"\n\
         cp \"$1/dependencies\" \"$2/inputs/{dependencies}\"\ndeps=$3\ncd \"$2\"\n{}\n{}",
        parses(runtime),
        plan.steps()
    )
}

/// Returns the command that checks the syntax of the handler.
fn parses(runtime: &Runtime) -> String {
    let check = match runtime.language {
        Language::NodeJs => "node --check",
        Language::Python => r#"python3 -c 'import sys; compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec")'"#,
    };
    format!("{check} src/{}", runtime.handler_file())
}

/// Returns the beginning of every script, which checks the syntax of the handler.
fn begin(runtime: &Runtime) -> String {
    format!("#!/bin/sh\nset -eu\numask 022\ncd \"${{0%/*}}\"\n{}\n", parses(runtime))
}

fn content_digest(path: &Path) -> Result<[u8; 32], Error> {
    let read = File::open(path).and_then(|mut file| {
        let mut digest = Sha256::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(digest.finalize().into()),
                length => digest.update(&piece[..length]),
            }
        }
    });
    read.map_err(|cause| Error::Read { path: path.to_owned(), cause })
}

/// Returns the directory of a file.
fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The package manager works on a copy of the inputs. The copy contains credentials and is removed when the script
/// ends. Times are fixed, so results are reproducible.
const PREPARE: &str = r#"registry=${MAINSTAY_PACKAGE_REGISTRY:-/package-registry}
work=$deps/.work
export HOME="${HOME:-/tmp}" SOURCE_DATE_EPOCH=315532800
export TMPDIR="$HOME"
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
rm -rf "$work" "$deps/node_modules" "$deps/lib"
mkdir -p "$work"
cp -RP inputs/. "$work"
cd "$work"
"#;

/// The package registry's configuration is appended, so it takes precedence. Some npm versions link local packages
/// regardless of the options, so local packages are copied here. `.package-lock.json` is npm's internal state, which an
/// image does not need.
const NPM: &str = r#"if [ -f "$registry/.npmrc" ]; then
  umask 077
  { [ ! -f .npmrc ] || cat .npmrc; echo; cat "$registry/.npmrc"; } >.npmrc.new
  mv -f .npmrc.new .npmrc
  umask 022
fi
export npm_config_cache="$HOME/.npm" npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
export npm_config_progress=false npm_config_logs_max=0
npm @COMMAND@ --install-links --omit=dev@OFFLINE@
rm -f .npmrc
[ -d node_modules ] || exit 0
rm -rf node_modules/.package-lock.json node_modules/.cache
root=$(pwd -P)
for link in node_modules/* node_modules/@*/*; do
  [ -L "$link" ] || continue
  target=$(cd "$link" && pwd -P)
  case $target in
    "$root"/*) ;;
    *) echo "$link leads out of the Function's directory" >&2; exit 1 ;;
  esac
  rm "$link"
  cp -RP "$target" "$link"
done
mv node_modules "$deps/node_modules"
"#;

const PIP_ARGUMENTS: &str = r#"install --target "$deps/lib/python" --no-compile --no-cache-dir --no-warn-script-location \
    -r requirements.txt"#;

/// `direct_url.json` contains the path of a local package's source, so it is removed.
///
/// Packages are compiled here, because a pod cannot write to its image and would compile all imports at every start.
/// The bytecode identifies its source by an unchecked hash instead of a time, and by its final path. One process with a
/// fixed seed compiles the files in order, so the same packages produce the same bytes.
const PIP: &str = r#"if [ -f "$registry/pip.conf" ]; then
  export PIP_CONFIG_FILE="$registry/pip.conf"
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
@PIP@lib=$deps/lib/python
[ -d "$lib" ] || exit 0
find "$lib" -type d -name __pycache__ -prune -exec rm -rf {} +
for record in "$lib"/*.dist-info/RECORD; do
  [ -f "${record%RECORD}direct_url.json" ] || continue
  rm "${record%RECORD}direct_url.json"
  sed '/\.dist-info\/direct_url\.json,/d' "$record" >"$record.new"
  mv "$record.new" "$record"
done
python3 -S -W ignore - "$lib" /kubeless/lib/python <<'COMPILE'
import os, py_compile, sys
root, place = sys.argv[1:]
for folder, folders, files in os.walk(root):
    folders.sort()
    for name in sorted(files):
        path = os.path.join(folder, name)
        if not name.endswith(".py") or os.path.islink(path) or not os.path.isfile(path):
            continue
        try:
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(path, dfile=place + path[len(root):], doraise=True, invalidation_mode=mode)
        except py_compile.PyCompileError:
            pass  # for another version of Python, or none at all: who imports it is told
COMPILE
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes;

    #[test]
    fn dependencies_end_where_the_runtime_looks_for_them() {
        for runtime in runtimes::all() {
            let inputs = Inputs::default();
            let plan = match runtime.language {
                Language::NodeJs => Plan::Npm { inputs, locked: true, offline: false },
                Language::Python => Plan::Pip { inputs },
            };
            let place = format!("\"$deps/{}\"", runtime.dependency_dir());
            assert!(plan.script(runtime).contains(&place), "{}", runtime.name);
            let compiled = format!("\"$lib\" {}/{} <<", runtimes::CODE_DIR, runtime.dependency_dir());
            let is_compiled = runtime.language == Language::Python;
            assert_eq!(plan.script(runtime).contains(&compiled), is_compiled, "{}", runtime.name);
        }
    }

    #[test]
    fn an_inline_function_is_known_to_install_nothing() {
        let nothing =
            |name: &str, file: &str| matches!(inline(runtimes::find(name).unwrap(), file), Some(Inline::Check(_)));
        assert!(nothing("nodejs22", "{}") && nothing("nodejs22", r#"{"type": "module", "dependencies": {}}"#));
        assert!(nothing("python312", "") && nothing("python312", "# none\n"));
        assert!(!nothing("nodejs22", r#"{"dependencies": {"greeting": "1"}}"#) && !nothing("python312", "requests"));
        assert!(!nothing("nodejs22", "{") && !nothing("python312", "-r other.txt"), "fetch says what is wrong");
    }

    #[test]
    fn an_inline_function_whose_dependencies_read_no_source_needs_no_fetch() {
        let script = |name: &str, file: &str| match inline(runtimes::find(name).unwrap(), file) {
            Some(Inline::Install(script)) => script,
            other => format!("{other:?}"),
        };
        let npm = script("nodejs22", r#"{"dependencies": {"secret-name": "1"}}"#);
        assert!(npm.contains("npm install") && !npm.contains("secret-name"), "{npm}");
        assert!(script("python312", "requests").contains("\"pip\""));
        // The package manager may read the handler, or the file is invalid.
        for file in [
            r#"{"dependencies": {"greeting": "1"}, "scripts": {"prepare": "cat handler.js"}}"#,
            r#"{"dependencies": {"greeting": "1"}, "workspaces": ["a"]}"#,
            "{",
        ] {
            assert_eq!(script("nodejs22", file), "None", "{file}");
        }
        assert_eq!(script("python312", "-e ."), "None");
        assert_eq!(script("python312", "-r other.txt"), "None");
    }

    #[test]
    fn the_digest_tells_apart_what_gives_other_dependencies() {
        let room = tempfile::tempdir().unwrap();
        let on = |base: &str| Platform { base: base.into(), platform: "linux/amd64".into() };
        let digest = |name: &str, base: &str, content: &str, executable: bool| {
            fs::write(room.path().join("package.json"), content).unwrap();
            let mut tree = Tree::default();
            tree.add("package.json", Node::File { executable }).unwrap();
            let plan = Plan::Npm { inputs: Inputs(tree), locked: false, offline: false };
            plan.digest(runtimes::find(name).unwrap(), &on(base), room.path()).unwrap()
        };
        let first = digest("nodejs22", "scratch", "{}", false);
        assert_eq!(first, digest("nodejs12", "scratch", "{}", false), "it runs on the same");
        for other in [
            digest("python312", "scratch", "{}", false),
            digest("nodejs22", "base@sha256:00", "{}", false),
            digest("nodejs22", "scratch", "{ }", false),
            digest("nodejs22", "scratch", "{}", true),
        ] {
            assert_ne!(first, other);
        }
    }

    /// Plans for a source with these files. Compares the commands and inputs, or the error, with `expected`.
    #[track_caller]
    pub(super) fn check(file: &str, files: &[(&str, &str)], expected: &str) {
        let mut tree = Tree::default();
        for (path, _) in files {
            tree.add(path, Node::File { executable: false }).unwrap();
        }
        let mut read = |path: &str| Ok(files.iter().find(|(name, _)| *name == path).unwrap().1.as_bytes().to_vec());
        let plan = match file {
            "package.json" => npm::plan(&tree, file, file, &mut read),
            _ => pip::plan(&tree, file, file, &mut read),
        };
        let got = match plan {
            Ok(plan) => {
                let what = match &plan {
                    Plan::Nothing => "nothing",
                    Plan::Npm { locked: true, offline: true, .. } => "ci --offline",
                    Plan::Npm { locked: true, offline: false, .. } => "ci",
                    Plan::Npm { locked: false, offline: true, .. } => "install --offline",
                    Plan::Npm { locked: false, offline: false, .. } => "install",
                    Plan::Pip { .. } => "pip",
                };
                let paths = plan.inputs().map(|Inputs(tree)| tree.iter().map(|(path, _)| path).collect::<Vec<_>>());
                paths.map_or(what.to_owned(), |paths| format!("{what}: {}", paths.join(" ")))
            }
            Err(error) => {
                let failure = error.failure();
                format!("{:?}: {}", failure.reason, failure.message)
            }
        };
        assert_eq!(got, expected);
    }
}
