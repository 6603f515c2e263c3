//! Bytecode of Python's standard library for an image.
//!
//! The official images of Python contain no bytecode, and a pod cannot write to its image. Each start of a Function
//! would compile the modules that it imports: about 0.3 s of a processor, which take 3 s with the CPU limit of the
//! default preset.
//!
//! Importing modules in each build costs CPU time, too. A Function without dependencies therefore gets the bytecode of
//! only the modules that it imports. Other Functions get the bytecode of the modules that packages usually import.
//!
//! Invariant: a build never fails because of the bytecode. Invariant: the same base image and handler result in the
//! same bytes: modules are imported in a fixed order by one process with a fixed seed.

use crate::runtimes::Language;

/// Directory below the workspace in which the script for an inline source writes the bytecode.
pub(crate) const DIR: &str = "bytecode";

/// The modules that the runtime server and Bottle import.
const SERVER: &str = "base64 calendar collections configparser contextlib ctypes datetime email.utils faulthandler functools hashlib \
    heapq hmac html http.client http.cookies importlib.util inspect io itertools json linecache mimetypes os pickle platform \
    queue re resource selectors signal site socket sys tempfile threading time traceback types unicodedata urllib.parse uuid \
    warnings weakref";

/// The modules that common packages import. Modules that these modules import are compiled, too.
const COMMON: &str = "asyncio concurrent.futures.thread copy csv dataclasses decimal email.message email.parser email.policy enum gzip \
    http.cookiejar importlib.metadata logging pathlib random secrets shutil ssl string subprocess termios textwrap typing \
    urllib.request zipfile zlib zoneinfo";

/// Defines the Python function `library`, which imports modules. Python writes the compiled files below `to`, in
/// directories named after the directories of the modules. The function does nothing if the base image has bytecode.
const LIBRARY: &str = r#"
def library(to, names):
    import importlib.util, os, warnings
    sys.path[:] = [entry for entry in sys.path if entry]
    sys.pycache_prefix = None
    if os.path.exists(importlib.util.cache_from_source(importlib.util.find_spec("socket").origin)):
        return False
    sys.pycache_prefix, sys.dont_write_bytecode = to, False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            try:
                importlib.import_module(name)
            except (Exception, SystemExit):
                pass  # this version of Python, or this base image, does not have the module
    sys.pycache_prefix, sys.dont_write_bytecode = None, True
    return True
"#;

/// Parses a handler. The Python function `imports` returns the handler's imports from the standard library, without
/// modules that do more than define names, and the modules that the server needs for coroutines and for publishing.
const HANDLER: &str = r#"
def parse(path):
    with open(path, "rb") as file:
        source = file.read()
    compile(source, path, "exec")
    return source

def imports(source):
    import _ast
    found, nodes = set(), [compile(source, "handler", "exec", _ast.PyCF_ONLY_AST)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, _ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, _ast.ImportFrom) and not node.level:
            found.update([node.module] + ["%s.%s" % (node.module, alias.name) for alias in node.names])
        elif isinstance(node, _ast.AsyncFunctionDef):
            found.add("asyncio")
        elif isinstance(node, _ast.Attribute) and node.attr.endswith("CloudEvent"):
            found.add("urllib.request")
        for field in node._fields:
            value = getattr(node, field, None)
            nodes.extend(child for child in (value if isinstance(value, list) else [value]) if isinstance(child, _ast.AST))
    known = sys.stdlib_module_names - {"antigravity", "idlelib", "this", "tkinter", "turtle", "turtledemo"}
    return sorted(name for name in found if name.partition(".")[0] in known)
"#;

/// The command that runs a program with these functions. The modules that Python imports at its start are compiled,
/// too. A fixed seed makes the bytes reproducible, and without `site` no file of a package is read.
fn python(to: &str, arguments: &str, program: &str) -> String {
    format!(
        "( [ -z \"$to\" ] || unset PYTHONDONTWRITEBYTECODE\n  PYTHONHASHSEED=0 exec python3 -S -X pycache_prefix={to} - {to} {arguments} <<'PYTHON'\n\
         import sys{program}PYTHON\n)"
    )
}

const NO_BYTECODE: &str = "echo 'no bytecode of the standard library: Functions start more slowly' >&2";

/// The step for a POSIX shell that writes the bytecode in the directory that `to` expands to; empty for other
/// languages.
pub(super) fn step(language: Language, to: &str) -> String {
    let program = ended("", "sys.argv[2:]");
    match language {
        Language::NodeJs => String::new(),
        Language::Python => format!("to={to}\nrm -rf \"$to\"\n{}", guarded(&format!("{SERVER} {COMMON}"), &program)),
    }
}

/// The step that checks the syntax of a handler in Python and writes the bytecode of the modules that the server and
/// the handler import. A build with a syntax error ends with exit code 1.
pub(super) fn check(handler: &str, to: &str) -> String {
    let program = ended(&format!("{HANDLER}source = parse(sys.argv[2])\n"), "sys.argv[3:] + imports(source)");
    format!("to={to}\nrm -rf \"$to\"\n{}", guarded(&format!("{handler} {SERVER}"), &program))
}

/// The program that compiles modules after `before`, with the exit codes that [`guarded`] expects.
fn ended(before: &str, modules: &str) -> String {
    format!(
        "{LIBRARY}{before}try:\n    compiled = library(sys.argv[1], {modules})\n\
         except Exception:\n    sys.exit(4)\n\
         if not compiled:\n    sys.exit(3)\n"
    )
}

/// Runs a program whose exit code 1 makes the build fail. Code 3 means that the base image has bytecode.
fn guarded(arguments: &str, program: &str) -> String {
    format!(
        "code=0\n{} || code=$?\ncase $code in\n  0) ;;\n  1) exit 1 ;;\n  3) rm -rf \"$to\" ;;\n  *) {NO_BYTECODE} ;;\nesac\n",
        python("\"$to\"", arguments, program)
    )
}

/// The step that runs pip and, unless `$to` is empty, first writes the bytecode to the directory `$to` in the same
/// process. pip imports most of these modules, so they are compiled only once.
pub(super) fn pip(arguments: &str) -> String {
    let modules = format!("{SERVER} {COMMON}");
    let program = format!(
        "{LIBRARY}to, count = sys.argv[1], int(sys.argv[2])\n\
         try:\n    if to and not library(to, sys.argv[3:3 + count]):\n        import shutil\n        \
         shutil.rmtree(to, ignore_errors=True)\n\
         except Exception as error:\n    print(\"no bytecode of the standard library: %r\" % error, file=sys.stderr)\n\
         sys.pycache_prefix, sys.dont_write_bytecode = None, True\n\
         import os, runpy, site\nos.environ[\"PYTHONDONTWRITEBYTECODE\"] = \"1\"\nsite.main()\n\
         sys.argv = [\"pip\"] + sys.argv[3 + count:]\n\
         runpy.run_module(\"pip\", run_name=\"__main__\", alter_sys=True)\n"
    );
    let count = modules.split_whitespace().count();
    format!("{}\n", python("\"$to\"", &format!("{count} {modules} {arguments}"), &program))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::runtimes;

    /// Returns the script for an image without bytecode, like the official images.
    fn without_bytecode(script: &str) -> String {
        let found =
            r#"if os.path.exists(importlib.util.cache_from_source(importlib.util.find_spec("socket").origin)):"#;
        assert!(script.contains(found), "{script}");
        script.replace(found, "if False:")
    }

    /// Runs a script in the shell.
    fn sh(room: &Path, script: &str) -> std::process::Output {
        Command::new("sh").args(["-euc", script]).current_dir(room).output().unwrap()
    }

    /// Runs the step. Returns the files that it wrote, with their contents.
    fn run(room: &Path, name: &str, step: &dyn Fn(&str) -> String) -> Vec<(String, Vec<u8>)> {
        let to = room.join(name);
        let output = sh(room, &without_bytecode(&step(&format!("'{}'", to.display()))));
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
        let all = |to: &str| step(Language::Python, to);
        let (one, two) = (run(room.path(), "one", &all), run(room.path(), "two", &all));
        assert!(one.len() > 100, "{}", one.len());
        assert!(one.iter().any(|(path, _)| path.contains("/json/__init__.cpython-")), "{:?}", one.first());
        assert!(one == two);
    }

    #[test]
    fn a_function_has_bytecode_of_the_modules_that_its_handler_imports() {
        let room = tempfile::tempdir().unwrap();
        let has = |files: &[(String, Vec<u8>)], module: &str| files.iter().any(|(path, _)| path.contains(module));
        let of = |source: &str| {
            std::fs::write(room.path().join("handler.py"), source).unwrap();
            run(room.path(), "to", &|to: &str| check("handler.py", to))
        };
        let plain = of("def main(event, context):\n    return 'hello'\n");
        assert!(has(&plain, "/selectors.cpython-") && has(&plain, "/configparser.cpython-"), "{:?}", plain.first());
        assert!(!has(&plain, "/csv.cpython-") && !has(&plain, "/wave.cpython-"));
        assert!(!has(&plain, "/asyncio/") && !has(&plain, "/urllib/request.cpython-"));
        assert!(has(&of("async def main(event, context):\n    return 'hello'\n"), "/asyncio/runners.cpython-"));
        let publishes = of("def main(event, context):\n    event.publishCloudEvent({})\n");
        assert!(has(&publishes, "/urllib/request.cpython-"));
        let source = "import handler, antigravity, missing\nfrom . import own\ndef main(event, context):\n    from csv import reader\n    \
            import wave as sound\n";
        let more = of(source);
        assert!(has(&more, "/csv.cpython-") && has(&more, "/wave.cpython-"));
        assert!(!has(&more, "/antigravity.cpython-") && !has(&more, "handler"));
        assert!(more == of(source), "the same handler gives the same bytes");
    }

    #[test]
    fn a_syntax_error_ends_the_build_and_missing_bytecode_does_not() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("handler.py");
        let script = check("handler.py", "to");
        std::fs::write(&path, "def main(event, context:\n").unwrap();
        let output = sh(room.path(), &script);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("handler.py") && said.contains("SyntaxError"), "{said}");
        std::fs::write(&path, "main = print\n").unwrap();
        for code in ["sys.exit(4)", "raise KeyboardInterrupt", "import os; os.abort()"] {
            let broken = script.replace("compiled = library(", &format!("{code}\n    compiled = library("));
            let output = sh(room.path(), &broken);
            assert!(output.status.success(), "{code}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("no bytecode of the standard library"), "{code}: {said}");
        }
        // If the base image has bytecode, no bytecode is written.
        let has = script.replace("if os.path.exists(", "if True or (");
        assert!(sh(room.path(), &has).status.success() && !room.path().join("to").exists());
    }

    #[test]
    fn pip_runs_in_the_process_that_compiles() {
        let room = tempfile::tempdir().unwrap();
        for to in ["to=", "to='to'"] {
            let output = sh(room.path(), &without_bytecode(&format!("{to}\n{}", pip("--version"))));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && said.starts_with("pip "), "{output:?}");
        }
        let find = Command::new("find").arg(room.path().join("to")).args(["-name", "*.pyc"]).output().unwrap();
        let found = String::from_utf8(find.stdout).unwrap();
        assert!(found.contains("/json/__init__.cpython-") && !found.contains("/pip/"), "{found}");
        let output = sh(room.path(), &format!("to=\n{}", pip("install --no-such-option")));
        assert!(!output.status.success());
    }

    #[test]
    fn all_modules_that_the_server_imports_are_compiled() {
        let known: BTreeSet<&str> = SERVER.split_whitespace().chain(["asyncio", "urllib.request"]).collect();
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
