//! The inputs of a kustomization: its own file, the files that it references, and recursively the inputs of the
//! directories that it references.
//!
//! Invariant: all paths in a closure point to files of the commit. Any other reference in a kustomization is a problem
//! with its line: an external address, a link, or a missing file.
//!
//! Not here: files that are referenced by configurations of built-in generators in separate files. The tool does not
//! find these files, and reports them.

use std::collections::{BTreeMap, BTreeSet};

use super::kustomization::{Reference, Target, Unread, fields, is_remote, line_of, references};
use crate::Problem;
use mainstay_git::{BaseDir, Entry, EntryKind, Found};
use mainstay_object::{Digest, Place, printable};

/// File names of kustomizations.
pub(super) const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Maximum number of files that a kustomization reads.
const MOST_FILES: usize = 5_000;
/// Maximum total size of the files that a kustomization reads, in bytes.
const MOST_BYTES: u64 = 32 << 20;
/// Maximum size of a kustomization's own file, in bytes.
const KUSTOMIZATION_BYTES: u64 = 1 << 20;
/// The inputs of a kustomization.
#[derive(Debug, Default)]
pub struct Closure {
    /// The files, by path.
    pub files: BTreeMap<String, Entry>,
    /// The problems of the inputs. A kustomization with problems is not built.
    pub problems: Vec<Problem>,
    directories: BTreeSet<String>,
    bytes: u64,
}

impl Closure {
    /// Returns a closure that contains only problems.
    pub(super) fn of_problems(problems: Vec<Problem>) -> Self {
        Self { problems, ..Self::default() }
    }

    /// Returns a digest of all inputs. Equal digests mean equal results.
    pub fn digest(&self) -> Digest {
        let lines = self.files.iter().map(|(path, entry)| format!("{} {path}\n", entry.id));
        Digest::of(lines.collect::<String>().as_bytes())
    }
}

/// A source of files.
pub trait Tree {
    /// Returns the file, directory or link at a path.
    ///
    /// # Errors
    /// If the repository cannot be read.
    fn at(&mut self, path: &str) -> Result<Found, mainstay_git::Error>;

    /// Returns all entries in and below a directory.
    ///
    /// # Errors
    /// If the repository cannot be read.
    fn below(&mut self, directory: &str) -> Result<Vec<Entry>, mainstay_git::Error>;

    /// Returns the content of a file.
    ///
    /// # Errors
    /// If the repository cannot be read.
    fn read(&mut self, entry: &Entry) -> Result<Vec<u8>, mainstay_git::Error>;
}

impl Tree for &mainstay_git::Snapshot {
    fn at(&mut self, path: &str) -> Result<Found, mainstay_git::Error> {
        mainstay_git::Snapshot::at(self, path)
    }

    fn below(&mut self, directory: &str) -> Result<Vec<Entry>, mainstay_git::Error> {
        self.entries(&BaseDir::parse(directory)?)
    }

    fn read(&mut self, entry: &Entry) -> Result<Vec<u8>, mainstay_git::Error> {
        mainstay_git::Snapshot::read(self, entry)
    }
}

/// Returns the inputs of the kustomization in a file.
///
/// # Errors
/// If the repository cannot be read.
pub fn closure(tree: &mut impl Tree, file: &str) -> Result<Closure, mainstay_git::Error> {
    let mut closure = Closure::default();
    let mut open = vec![(parent(file).to_owned(), Place::file(file))];
    while let Some((directory, named_at)) = open.pop() {
        if !closure.directories.insert(directory.clone()) || closure.is_full(&named_at) {
            continue;
        }
        let mut found = Vec::new();
        for name in NAMES {
            if let Found::File(entry) = tree.at(&join(&directory, name))? {
                found.push(entry);
            }
        }
        let [entry] = &*found else {
            let shown = printable(if directory.is_empty() { "." } else { &directory });
            let what = match &*found {
                [] => format!("it names the directory {shown}, which has no kustomization.yaml"),
                _ => format!("the directory {shown} has more than one kustomization"),
            };
            let place = if found.is_empty() { named_at } else { Place::file(&*found[0].path) };
            closure.problem(place, what, "keep one file of that kind in the directory");
            continue;
        };
        closure.files.insert(entry.path.clone(), entry.clone());
        closure.bytes += entry.size;
        if entry.size > KUSTOMIZATION_BYTES {
            closure.problem(Place::file(&*entry.path), "the kustomization is larger than 1 MiB", "split it");
            continue;
        }
        let content = tree.read(entry)?;
        let text = String::from_utf8_lossy(&content);
        let parsed = match fields(&content) {
            Ok(parsed) => parsed,
            Err(Unread { line: at, what, hint }) => {
                closure.problem(line(&entry.path, at), what, &hint);
                continue;
            }
        };
        for reference in references(&parsed) {
            let at = line(&entry.path, line_of(&text, reference.path));
            if let Some(directory) = closure.follow(tree, &directory, &reference, &at)? {
                open.push((directory, at));
            }
        }
        if ["helmCharts", "helmChartInflationGenerator"].iter().any(|key| parsed.contains_key(*key)) {
            let at = line(&entry.path, line_of(&text, "helmChart"));
            closure.problem(
                at,
                "it inflates Helm charts, which is not supported",
                "commit the output of `helm template`",
            );
        }
    }
    Ok(closure)
}

/// Returns the problems of the components that a GitSync references below a directory.
///
/// # Errors
/// If the repository cannot be read.
pub(super) fn components(
    tree: &mut impl Tree,
    base: &str,
    named: &[String],
) -> Result<Vec<Problem>, mainstay_git::Error> {
    let mut closure = Closure::default();
    for (index, path) in named.iter().enumerate() {
        let at = Place::file(format!("spec.components[{index}]"));
        let before = closure.problems.len();
        let found = closure.follow(tree, base, &Reference { path, to: named_by_sync(path) }, &at)?;
        if found.is_none() && closure.problems.len() == before {
            let what = format!("it names {}, which is not a directory", printable(path));
            closure.problem(at, what, "name a directory with a kustomization.yaml of the kind Component");
        }
    }
    Ok(closure.problems)
}

fn named_by_sync(path: &str) -> Target {
    if is_remote(path) { Target::Elsewhere } else { Target::FileOrDirectory }
}

impl Closure {
    fn problem(&mut self, place: Place, what: impl Into<String>, hint: &str) {
        self.problems.push(Problem::new(place, what, Some(hint)));
    }

    /// Returns whether the inputs exceed a limit. The first time, a problem is reported.
    fn is_full(&mut self, at: &Place) -> bool {
        let is_full = self.files.len() > MOST_FILES || self.bytes > MOST_BYTES;
        if is_full && self.problems.is_empty() {
            let what = format!("the kustomization reads more than {MOST_FILES} files, or more than 32 MiB");
            self.problem(at.clone(), what, "split it");
        }
        is_full
    }

    /// Adds a referenced file, or returns the referenced directory to visit.
    fn follow(
        &mut self,
        tree: &mut impl Tree,
        base: &str,
        named: &Reference<'_>,
        at: &Place,
    ) -> Result<Option<String>, mainstay_git::Error> {
        let shown = printable(named.path).into_owned();
        match named.to {
            Target::Elsewhere => {
                // The address is not shown, because it may contain a password.
                let what = "it references a remote resource, which is not fetched";
                self.problem(at.clone(), what, "commit a copy, or add the repository as a submodule");
                return Ok(None);
            }
            Target::Unclear(field) => {
                let what = format!("one of its {field} is neither a path nor an object");
                self.problem(at.clone(), what, "give the object apiVersion, kind and metadata.name");
                return Ok(None);
            }
            Target::File | Target::FileOrDirectory => {}
        }
        let Some(path) = resolve(base, named.path) else {
            let what = format!("it names {shown}, which is not in the repository");
            self.problem(at.clone(), what, "name a path that is relative to the kustomization");
            return Ok(None);
        };
        match tree.at(&path)? {
            Found::Directory if named.to == Target::FileOrDirectory => return Ok(Some(path)),
            Found::Directory => {
                self.problem(at.clone(), format!("it names {shown}, which is a directory"), "name a file");
            }
            Found::File(entry) => {
                self.bytes += entry.size;
                self.files.insert(path, entry);
                self.is_full(at);
            }
            Found::Other(EntryKind::Submodule) => {
                let hint = "set `submodules: true` in the GitRepository, and list the submodule in .gitmodules";
                self.problem(at.clone(), format!("it names {shown}, a submodule that is not fetched"), hint);
            }
            Found::Other(_) => {
                let what = format!("it names {shown}, a symbolic link, and links are not followed");
                self.problem(at.clone(), what, "put the file itself there");
            }
            Found::Nothing => {
                self.problem(at.clone(), format!("it names {shown}, which is not there"), "correct the path");
            }
        }
        Ok(None)
    }
}

/// Returns a referenced path from the root of the repository; `None` if the path is outside of the repository.
pub(super) fn resolve(base: &str, named: &str) -> Option<String> {
    if named.starts_with('/') || named.contains(['\0', '\\']) || named.len() > 4096 {
        return None;
    }
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in named.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop()?,
            part if part.eq_ignore_ascii_case(".git") => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns the directory of a file.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

pub(super) fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

fn line(file: &str, line: usize) -> Place {
    Place { line: u32::try_from(line).unwrap_or(u32::MAX), ..Place::file(file) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A commit with these files. A content that begins with `->` is a symbolic link.
    pub(crate) struct Files(pub(crate) Vec<(&'static str, &'static str)>);

    impl Tree for Files {
        fn at(&mut self, path: &str) -> Result<Found, mainstay_git::Error> {
            let found = self.0.iter().find(|(own, _)| *own == path);
            Ok(match found {
                Some((_, "->")) => Found::Other(EntryKind::Symlink),
                Some((_, content)) => Found::File(Entry {
                    path: path.to_owned(),
                    id: "0123456789012345678901234567890123456789".parse().unwrap(),
                    size: content.len() as u64,
                    kind: EntryKind::File,
                    executable: false,
                    flaw: None,
                }),
                None if self.0.iter().any(|(own, _)| own.starts_with(&format!("{path}/"))) => Found::Directory,
                None => Found::Nothing,
            })
        }

        fn below(&mut self, directory: &str) -> Result<Vec<Entry>, mainstay_git::Error> {
            let mut found = Vec::new();
            for (path, content) in self.0.clone() {
                let kind = if content == "->" { EntryKind::Symlink } else { EntryKind::File };
                let (id, size) = ("0".repeat(40).parse().unwrap(), content.len() as u64);
                if path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')) {
                    found.push(Entry { path: path.to_owned(), id, size, kind, executable: false, flaw: None });
                }
            }
            Ok(found)
        }

        fn read(&mut self, entry: &Entry) -> Result<Vec<u8>, mainstay_git::Error> {
            Ok(self.0.iter().find(|(path, _)| *path == entry.path).unwrap().1.as_bytes().to_vec())
        }
    }

    fn read(file: &str, files: &[(&'static str, &'static str)]) -> (Vec<String>, Vec<String>) {
        let closure = closure(&mut Files(files.to_vec()), file).unwrap();
        (closure.files.into_keys().collect(), closure.problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn has_everything_that_is_named_and_nothing_else() {
        let all = "resources: [../base, web.yaml]\ncomponents: [../parts]\ngenerators:\n- |\n  kind: Inline\n  metadata: {name: x}\n\
                   patches: [{path: p.yaml}, {patch: 'a: b'}]\npatchesStrategicMerge: [m.yaml, '{kind: a, metadata: {name: b}}']\n\
                   patchesJson6902: [{path: j.yaml}]\nreplacements: [{path: r.yaml}]\nopenapi: {path: o.json}\n\
                   crds: [c.json]\nconfigMapGenerator:\n- {files: [k=f.txt, g.txt], envs: [e.env], env: d.env}\n";
        let files = [
            ("app/kustomization.yaml", all),
            ("app/web.yaml", "w"),
            ("app/unread.yaml", "w"),
            ("base/Kustomization", "resources: [a.yaml]"),
            ("base/a.yaml", "a"),
            ("parts/kustomization.yml", "kind: Component"),
            ("app/p.yaml", ""),
            ("app/m.yaml", ""),
            ("app/j.yaml", ""),
            ("app/r.yaml", ""),
            ("app/o.json", ""),
            ("app/c.json", ""),
            ("app/f.txt", ""),
            ("app/g.txt", ""),
            ("app/e.env", ""),
            ("app/d.env", ""),
        ];
        let (found, problems) = read("app/kustomization.yaml", &files);
        assert_eq!(problems, [""; 0]);
        let mut expected: Vec<&str> = files.iter().map(|(path, _)| *path).filter(|p| *p != "app/unread.yaml").collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn remote_references_are_a_problem_with_a_line_and_without_an_address() {
        for remote in [
            "https://user:hush@example.com/x.yaml",
            "HTTPS://example.com/x",
            "git@github.com:a/b",
            "github.com/a/b?ref=hush",
            "git::https://example.com/hush",
            "gh:a/b",
            "ssh://git@example.com/hush",
            "file:///etc/hush",
        ] {
            let text: &'static str = format!("# a\nresources:\n- {remote}\n").leak();
            let (_, problems) = read("kustomization.yaml", &[("kustomization.yaml", text)]);
            assert_eq!(
                problems,
                ["kustomization.yaml, line 3: it references a remote resource, which is not fetched (commit a copy, \
                  or add the repository as a submodule)"],
                "{remote}"
            );
        }
        for outside in ["../x.yaml", "/etc/passwd", "a/../../x", ".git/config"] {
            let text: &'static str = format!("resources: ['{outside}']").leak();
            let (_, problems) = read("kustomization.yaml", &[("kustomization.yaml", text), ("a/b", "")]);
            assert!(problems[0].contains("which is not in the repository"), "{problems:?}");
        }
    }

    #[test]
    fn links_missing_files_and_circles_do_no_harm() {
        let files = [
            (
                "a/kustomization.yaml",
                "resources:\n- ../b\n- link.yaml\n- nothing.yaml\n- empty\npatches:\n- path: ../b\n",
            ),
            ("a/link.yaml", "->"),
            ("a/empty/x.yaml", ""),
            ("b/kustomization.yaml", "resources: [../a]"),
        ];
        let (_, problems) = read("a/kustomization.yaml", &files);
        assert_eq!(
            problems,
            [
                "a/kustomization.yaml, line 3: it names link.yaml, a symbolic link, and links are not followed (put the file \
                 itself there)",
                "a/kustomization.yaml, line 4: it names nothing.yaml, which is not there (correct the path)",
                "a/kustomization.yaml, line 2: it names ../b, which is a directory (name a file)",
                "a/kustomization.yaml, line 5: it names the directory a/empty, which has no kustomization.yaml (keep one \
                 file of that kind in the directory)",
            ]
        );
        let two = [("kustomization.yaml", ""), ("Kustomization", "")];
        assert!(read("kustomization.yaml", &two).1[0].contains("more than one kustomization"));
        let broken = [("kustomization.yaml", "resources: [\n")];
        assert!(read("kustomization.yaml", &broken).1[0].contains("not valid YAML"));
        let charts = [("kustomization.yaml", "helmCharts: [{name: a}]\n")];
        assert!(read("kustomization.yaml", &charts).1[0].starts_with("kustomization.yaml, line 1: it inflates Helm"));
    }
}
