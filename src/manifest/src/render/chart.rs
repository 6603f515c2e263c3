//! The inputs of a chart: all files in its directory, and the values files of the GitSync.
//!
//! Invariant: all paths point to files of the commit. A link, a submodule that was not fetched, and a schema with
//! external references are problems.
//!
//! Not here: whether Helm uses a file (`.helmignore`). A change of an unused file renders the chart again.

use std::collections::BTreeMap;

use super::closure::{Tree, join, parent, resolve};
use super::kustomization::is_remote;
use super::schema;
use crate::Problem;
use mainstay_api::render::Helm;
use mainstay_git::{Entry, EntryKind, Found};
use mainstay_object::{Digest, Place, printable};

/// Maximum number of files of a chart.
const MOST_FILES: usize = 5_000;
/// Maximum total size of a chart's files, in bytes.
const MOST_BYTES: u64 = 32 << 20;
/// Maximum size of a values file, in bytes.
const VALUES_BYTES: u64 = 1 << 20;
/// The file with the schema of a chart's values.
const SCHEMA: &str = "values.schema.json";
/// Maximum length of a release name in Helm.
const LONGEST_RELEASE: usize = 53;

/// The options for rendering a chart.
#[derive(Clone, Debug)]
pub struct ChartOptions {
    /// The name of the release if `helm` sets none.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
    /// The Helm settings of the GitSync.
    pub helm: Helm,
    /// Digest of the values as if those of Secrets were unknown; `None` if no value is from a Secret. With values from
    /// Secrets, the output is not stored on disk, and the tool's messages are reduced.
    pub decoy: Option<Digest>,
}

/// The inputs of a chart.
#[derive(Debug, Default)]
pub struct ChartFiles {
    /// The chart's own files, by path in the repository.
    pub files: BTreeMap<String, Entry>,
    /// The values files, in order.
    pub values: Vec<Entry>,
    /// The problems of the inputs. A chart with problems is not rendered.
    pub problems: Vec<Problem>,
}

impl ChartOptions {
    /// Returns the name of the release.
    pub fn release(&self) -> &str {
        self.helm.release_name.as_deref().unwrap_or(&self.name)
    }

    /// Returns the inline values of the GitSync as the content of a file; `None` if the GitSync has none.
    pub(super) fn values(&self) -> Option<Vec<u8>> {
        // Serializing a map of values cannot fail.
        self.helm.values.as_ref().and_then(|values| serde_json::to_vec(values).ok())
    }
}

impl ChartFiles {
    /// Returns all input files.
    pub fn all(&self) -> impl Iterator<Item = &Entry> {
        self.files.values().chain(&self.values)
    }

    /// Returns a digest of all inputs except for the cluster's capabilities.
    pub fn digest(&self, options: &ChartOptions) -> Digest {
        let mut text = String::new();
        for entry in self.all() {
            text += &format!("{} {}\n", entry.id, entry.path);
        }
        text += &format!("{}\n{}\n{:?}\n{:?}\n", options.release(), options.namespace, options.helm, options.decoy);
        Digest::of(text.as_bytes())
    }

    fn problem(&mut self, place: Place, what: impl Into<String>, hint: &str) {
        self.problems.push(Problem::new(place, what, Some(hint)));
    }
}

/// Returns whether a file is documentation, judging by its name.
fn is_for_people(path: &str) -> bool {
    const NAMES: [&str; 6] = ["changelog", "contributing", "license", "notice", "owners", "readme"];
    let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    let stem = name.strip_suffix(".md").unwrap_or(&name);
    NAMES.contains(&stem)
}

/// Returns the inputs of the chart with this `Chart.yaml`.
///
/// # Errors
/// If the repository cannot be read.
pub(crate) fn chart_files(
    tree: &mut impl Tree,
    file: &str,
    options: &ChartOptions,
) -> Result<ChartFiles, mainstay_git::Error> {
    let directory = parent(file);
    let mut found = ChartFiles::default();
    if !is_release(options.release()) {
        let what = format!("{} is not a valid name of a release", printable(options.release()));
        let hint = "let spec.render.helm.releaseName be at most 53 lower-case letters, digits, `-` and `.`";
        found.problem(Place::file(file), what, hint);
    }
    let mut bytes = 0;
    for entry in tree.below(directory)? {
        let place = || Place::file(&*entry.path);
        if let Some(flaw) = entry.flaw {
            found.problem(place(), flaw.what(), "rename it");
            continue;
        }
        match entry.kind {
            EntryKind::File => {}
            // Documentation does not affect a chart.
            EntryKind::Symlink if is_for_people(&entry.path) => continue,
            EntryKind::Symlink => {
                let what = "it is a symbolic link in a chart, and links are not followed";
                found.problem(place(), what, "put the file itself there");
                continue;
            }
            EntryKind::Submodule => {
                let hint = "set `submodules: true` in the GitRepository, and list the submodule in .gitmodules";
                found.problem(place(), "it is a submodule in a chart, and is not fetched", hint);
                continue;
            }
        }
        bytes += entry.size;
        if bytes > MOST_BYTES || found.files.len() >= MOST_FILES {
            let what = format!("the chart has more than {MOST_FILES} files, or more than 32 MiB");
            found.problem(Place::file(file), what, "remove files that do not belong to it");
            return Ok(found);
        }
        found.files.insert(entry.path.clone(), entry);
    }
    for named in &options.helm.values_files {
        add_values(&mut found, tree, file, named)?;
    }
    refuse_schemas(&mut found, tree, file)?;
    Ok(found)
}

/// Adds a problem for each values schema that cannot be checked or has external references, also in packed charts.
fn refuse_schemas(found: &mut ChartFiles, tree: &mut impl Tree, file: &str) -> Result<(), mainstay_git::Error> {
    let (entries, archives) = (found.files.values().cloned().collect::<Vec<_>>(), schema::Archives::new(SCHEMA));
    for entry in entries {
        let refused = if entry.path.rsplit('/').next() == Some(SCHEMA) {
            schema::refused(&tree.read(&entry)?)
        } else if is_archive(&entry.path) && within(file, &entry.path).split('/').any(|part| part == "charts") {
            let content = tree.read(&entry)?;
            // A pointer to Git LFS is reported when the file is copied.
            if crate::is_in_lfs(&content) { None } else { archives.refused(&content) }
        } else {
            None
        };
        if let Some((what, hint)) = refused {
            found.problem(Place::file(&*entry.path), what, hint);
        }
    }
    Ok(())
}

/// Adds a values file.
fn add_values(
    found: &mut ChartFiles,
    tree: &mut impl Tree,
    chart: &str,
    named: &str,
) -> Result<(), mainstay_git::Error> {
    let shown = format!("spec.render.helm.valuesFiles names {}", printable(named));
    let here = Place::file(chart);
    if is_remote(named) {
        // The address is not shown, because it may contain a password.
        let what = "spec.render.helm.valuesFiles references a remote file, which is not fetched";
        found.problem(here, what, "commit a copy, and name the copy");
        return Ok(());
    }
    let path = match named.strip_prefix('/') {
        Some(from_root) => resolve("", from_root),
        None => resolve(parent(chart), named),
    };
    let Some(path) = path else {
        let hint = "name a path that is relative to the chart, or from the root of the repository with a `/` before it";
        found.problem(here, format!("{shown}, which is not in the repository"), hint);
        return Ok(());
    };
    match tree.at(&path)? {
        Found::File(entry) if entry.size > VALUES_BYTES => {
            found.problem(Place::file(&*entry.path), "the file with values is larger than 1 MiB", "split it");
        }
        Found::File(entry) => found.values.push(entry),
        Found::Directory => found.problem(here, format!("{shown}, which is a directory"), "name a file"),
        Found::Other(EntryKind::Submodule) => {
            let hint = "set `submodules: true` in the GitRepository, and list the submodule in .gitmodules";
            found.problem(here, format!("{shown}, a submodule that is not fetched"), hint);
        }
        Found::Other(_) => {
            let what = format!("{shown}, a symbolic link, and links are not followed");
            found.problem(here, what, "put the file itself there");
        }
        Found::Nothing => found.problem(here, format!("{shown}, which is not there"), "correct the path"),
    }
    Ok(())
}

/// Returns whether Helm accepts a release name. No valid name begins with `-`.
fn is_release(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.chars().all(|c| is_plain(c) || c == '-') && label.starts_with(is_plain) && label.ends_with(is_plain)
    };
    name.len() <= LONGEST_RELEASE && name.split('.').all(is_label)
}

/// Returns whether a file of a chart is a packed chart.
pub(super) fn is_archive(path: &str) -> bool {
    [".tgz", ".tar.gz"].iter().any(|end| path.ends_with(end))
}

/// Returns the path that a file of the repository has in the copy of its chart.
pub(super) fn within<'p>(chart: &str, path: &'p str) -> &'p str {
    path.strip_prefix(parent(chart)).map_or(path, |rest| rest.trim_start_matches('/'))
}

/// Returns the file of the repository that Helm calls `CHART/templates/web.yaml`; `None` if it is not among `files`.
pub(super) fn of_source<'f>(chart: &str, files: &'f BTreeMap<String, Entry>, source: &str) -> Option<&'f str> {
    let (_, path) = source.split_once('/')?;
    files.get_key_value(&join(parent(chart), path)).map(|(path, _)| path.as_str())
}

#[cfg(test)]
mod tests {
    use super::super::closure::tests::Files;
    use super::*;

    fn options(helm: Helm) -> ChartOptions {
        ChartOptions { name: "web".into(), namespace: "shop".into(), helm, decoy: None }
    }

    fn read(helm: Helm, files: &[(&'static str, &'static str)]) -> (Vec<String>, Vec<String>) {
        let found = chart_files(&mut Files(files.to_vec()), "app/Chart.yaml", &options(helm)).unwrap();
        let paths = found.all().map(|entry| entry.path.clone()).collect();
        (paths, found.problems.iter().map(ToString::to_string).collect())
    }

    const CHART: (&str, &str) = ("app/Chart.yaml", "name: a\nversion: 1\n");

    #[test]
    fn has_the_whole_directory_and_the_values_that_are_named() {
        let files = [
            CHART,
            ("app/templates/a.yaml", "a"),
            ("apps/other.yaml", "a"),
            ("app/prod.yaml", ""),
            ("values/a.yaml", ""),
        ];
        let helm = Helm { values_files: vec!["prod.yaml".into(), "../values/a.yaml".into()], ..Helm::default() };
        let (paths, problems) = read(helm, &files);
        assert_eq!(problems, [""; 0]);
        assert_eq!(
            paths,
            ["app/Chart.yaml", "app/prod.yaml", "app/templates/a.yaml", "app/prod.yaml", "values/a.yaml"]
        );
        let helm = Helm { values_files: vec!["/values/a.yaml".into()], ..Helm::default() };
        assert_eq!(read(helm, &files).1, [""; 0]);
    }

    #[test]
    fn links_and_what_is_not_in_the_repository_are_problems() {
        let links = [("app/README.md", "->"), ("app/LICENSE", "->"), ("app/templates/a.yaml", "->")];
        let files = [&[CHART][..], &links, &[("app/b", ""), ("app/c/d", "")]].concat();
        let named = ["../../etc/passwd", "/../x", "-f", "c", "https://u:hush@h/x.yaml", ".git/config"];
        let helm = Helm { values_files: named.map(str::to_owned).to_vec(), ..Helm::default() };
        let (_, problems) = read(helm, &files);
        let hint =
            "(name a path that is relative to the chart, or from the root of the repository with a `/` before it)";
        let values = "app/Chart.yaml: spec.render.helm.valuesFiles names";
        assert_eq!(
            problems,
            [
                "app/templates/a.yaml: it is a symbolic link in a chart, and links are not followed (put the file itself \
                 there)"
                    .to_owned(),
                format!("{values} ../../etc/passwd, which is not in the repository {hint}"),
                format!("{values} /../x, which is not in the repository {hint}"),
                format!("{values} -f, which is not there (correct the path)"),
                format!("{values} c, which is a directory (name a file)"),
                "app/Chart.yaml: spec.render.helm.valuesFiles references a remote file, which is not fetched (commit \
                 a copy, and name the copy)".to_owned(),
                format!("{values} .git/config, which is not in the repository {hint}"),
            ]
        );
    }

    #[test]
    fn names_of_releases_are_those_of_helm() {
        for good in ["a", "web-1", "a.b", &"a".repeat(53)] {
            assert!(is_release(good), "{good}");
        }
        for bad in ["", "-f", "--post-renderer=x", "a-", "A", "a..b", "a b", "a/b", &"a".repeat(54)] {
            assert!(!is_release(bad), "{bad}");
        }
    }

    #[test]
    fn everything_that_counts_changes_the_digest() {
        let digest = |helm: Helm| {
            let options = options(helm);
            chart_files(&mut Files(vec![CHART]), "app/Chart.yaml", &options).unwrap().digest(&options)
        };
        let plain = digest(Helm::default());
        assert_eq!(plain, digest(Helm::default()));
        let values = serde_json::from_str(r#"{"a": 1}"#).ok();
        for helm in [
            Helm { values, ..Helm::default() },
            Helm { include_crds: false, ..Helm::default() },
            Helm { release_name: Some("b".into()), ..Helm::default() },
        ] {
            assert_ne!(digest(helm), plain);
        }
        let options = ChartOptions { decoy: Some(Digest::of(b"")), ..options(Helm::default()) };
        let files = chart_files(&mut Files(vec![CHART]), "app/Chart.yaml", &options).unwrap();
        assert_ne!(files.digest(&options), plain);
    }
}
