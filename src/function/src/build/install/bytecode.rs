//! Bytecode of Python's standard library for an image.
//!
//! The official images of Python contain none, and a pod cannot write to its image. Each start of a Function would compile the
//! modules that it imports: about 0.3 s of a processor, which take 3 s with the CPU limit of the default preset.
//!
//! Invariant: a build never fails because of this.
//! Invariant: the same base image gives the same bytes: modules are imported in a fixed order by one process with a fixed seed.

use crate::runtimes::Language;

/// Directory below the workspace in which the script for an inline source leaves the bytecode.
pub(crate) const DIR: &str = "bytecode";

/// The modules that are imported: those of the runtime server, and those that Functions and common packages import.
/// Modules that they import are compiled, too.
const MODULES: &str = "asyncio base64 calendar collections concurrent.futures.thread configparser contextlib copy csv ctypes \
    dataclasses datetime decimal email.message email.parser email.policy email.utils enum faulthandler functools gzip hashlib \
    hmac html http.client http.cookiejar http.cookies importlib.metadata importlib.util inspect io json linecache logging \
    mimetypes os pathlib pickle platform queue random re resource secrets selectors shutil signal site socket ssl string \
    subprocess sys tempfile termios textwrap threading time traceback types typing unicodedata urllib.parse urllib.request uuid \
    warnings weakref zipfile zlib zoneinfo";

/// Succeeds if the base image has bytecode. `-I` keeps the user's files and variables away.
const HAS_BYTECODE: &str = r#"python3 -I -S -c 'import importlib.util as util, os, sys
sys.exit(not os.path.exists(util.cache_from_source(util.find_spec("socket").origin)))'"#;

/// Python writes what it compiles below `$to`, in directories named after those of the modules.
const COMPILE: &str = r#"unset PYTHONDONTWRITEBYTECODE
  PYTHONHASHSEED=0 python3 -S -W ignore -X pycache_prefix="$to" - @MODULES@ <<'BYTECODE'
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        pass  # this version of Python, or this base image, does not have the module
BYTECODE
"#;

/// The step for a POSIX shell that leaves the bytecode in the directory that `to` expands to; empty for other languages.
pub(super) fn step(language: Language, to: &str) -> String {
    match language {
        Language::NodeJs => String::new(),
        Language::Python => format!(
            "to={to}\nrm -rf \"$to\"\n( {HAS_BYTECODE} || {{\n  {}}} ) ||\n  \
             echo 'no bytecode of the standard library: Functions start more slowly' >&2\n",
            COMPILE.replace("@MODULES@", MODULES)
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::runtimes;

    /// Runs the step; the files that it leaves, with their contents.
    fn run(room: &Path, name: &str) -> Vec<(String, Vec<u8>)> {
        let to = room.join(name);
        // As in official images, which have none.
        let script = step(Language::Python, &format!("'{}'", to.display())).replace(HAS_BYTECODE, "false");
        let output = Command::new("sh").args(["-euc", &script]).current_dir(room).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let find = Command::new("find").arg(&to).args(["-name", "*.pyc"]).output().unwrap();
        let mut found: Vec<_> = String::from_utf8(find.stdout)
            .unwrap()
            .lines()
            .map(|path| (path.trim_start_matches(to.to_str().unwrap()).to_owned(), std::fs::read(path).unwrap()))
            .collect();
        found.sort();
        found
    }

    #[test]
    fn the_same_library_gives_the_same_bytecode() {
        let room = tempfile::tempdir().unwrap();
        // Files of a user do not hide modules of the library.
        std::fs::write(room.path().join("json.py"), "raise SystemExit(1)").unwrap();
        let (one, two) = (run(room.path(), "one"), run(room.path(), "two"));
        assert!(one.len() > 100, "{}", one.len());
        assert!(one.iter().any(|(path, _)| path.contains("/json/__init__.cpython-")), "{:?}", one.first());
        assert!(one == two);
    }

    #[test]
    fn all_modules_that_the_server_imports_are_compiled() {
        let known: BTreeSet<&str> = MODULES.split_whitespace().collect();
        let server = runtimes::find("python312").unwrap().server_files();
        let mut missing = BTreeSet::new();
        for file in server.iter().filter(|file| file.path.rsplit('.').next() == Some("py")) {
            for line in String::from_utf8_lossy(file.contents).lines().map(str::trim) {
                let imported =
                    line.strip_prefix("import ").or_else(|| line.strip_prefix("from ")?.split(" import ").next());
                let name = imported.unwrap_or_default().split([' ', ',']).next().unwrap_or_default();
                let is_own = name.is_empty() || name.starts_with(['.', '_']) || name.starts_with("function_server");
                let is_known = known.iter().any(|known| *known == name || known.starts_with(&format!("{name}.")));
                if !is_own && !is_known && name != "bottle" {
                    missing.insert(name.to_owned());
                }
            }
        }
        assert_eq!(missing, BTreeSet::new());
    }
}
