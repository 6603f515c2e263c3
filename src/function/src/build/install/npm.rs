//! Plans an npm installation from a `package.json`, and finds the files that it reads.
//!
//! Not here: resolving versions and comparing lock files with `package.json`. npm does both.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{Inputs, Plan, Reader, parent};
use crate::build::fetch::{Error, Finding, Place, Tree};

/// Files beside `package.json` that npm reads.
const BESIDE: [&str; 3] = ["npm-shrinkwrap.json", "package-lock.json", ".npmrc"];
/// Scripts of the project that npm runs during installation. They may read any file.
const SCRIPTS: [&str; 7] =
    ["preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare"];
/// Kinds of dependencies that npm reads. npm does not install the last kind.
const OWN: [&str; 4] = ["dependencies", "optionalDependencies", "peerDependencies", "devDependencies"];
/// Maximum number of packages in the source that depend on each other.
const PACKAGES: usize = 1000;

/// Reads the `package.json` named `file` at `at`, and the `package.json` files of local packages that it depends on.
pub(super) fn plan(tree: &Tree, file: &str, at: &str, read: &mut Reader) -> Result<Plan, Error> {
    let own = object(file, &read(at)?)?;
    let has = |kind: &str| own.get(kind).and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    let has_workspaces = own.get("workspaces").is_some_and(|workspaces| !workspaces.is_null());
    for kind in OWN {
        check_kind(file, &own, kind)?;
    }
    if !OWN[..3].iter().any(|kind| has(kind)) && !has_workspaces {
        return Ok(Plan::Nothing);
    }
    let mut packages = Packages { tree, read, open: Vec::new(), paths: BTreeSet::new(), only_local: true };
    packages.specs(file, "", &own, &OWN)?;
    packages.overrides(file, own.get("overrides"))?;
    packages.follow()?;
    let Packages { mut paths, only_local, .. } = packages;
    let runs_scripts = own
        .get("scripts")
        .and_then(Value::as_object)
        .is_some_and(|scripts| SCRIPTS.iter().any(|name| scripts.contains_key(*name)));
    if runs_scripts || has_workspaces {
        paths.insert(String::new());
    }
    let locked = BESIDE[..2].iter().any(|name| matches!(tree.resolve(name), Place::At(_)));
    paths.insert(file.to_owned());
    paths.extend(BESIDE.map(str::to_owned));
    let offline = only_local && !has_workspaces;
    Ok(Plan::Npm { inputs: Inputs(tree.closure(paths)), locked, offline })
}

struct Packages<'a, 'r> {
    tree: &'a Tree,
    read: &'a mut Reader<'r>,
    /// Directories of packages whose `package.json` remains to be read.
    open: Vec<String>,
    paths: BTreeSet<String>,
    only_local: bool,
}

impl Packages<'_, '_> {
    /// Adds the requirements of the package in `directory`.
    fn specs(
        &mut self,
        file: &str,
        directory: &str,
        package: &Map<String, Value>,
        kinds: &[&str],
    ) -> Result<(), Error> {
        for kind in kinds {
            for (name, spec) in package.get(*kind).and_then(Value::as_object).into_iter().flatten() {
                let Some(spec) = spec.as_str() else {
                    let text = format!("{file}: the version of `{name}` in `{kind}` is not a string");
                    return Err(Finding::dependencies(text).into());
                };
                self.spec(file, directory, name, spec)?;
            }
        }
        Ok(())
    }

    fn spec(&mut self, file: &str, directory: &str, name: &str, spec: &str) -> Result<(), Error> {
        let Some(local) = local(spec) else {
            self.only_local = false;
            return Ok(());
        };
        let path = if directory.is_empty() { local.path.to_owned() } else { format!("{directory}/{}", local.path) };
        let place = if local.path.starts_with(['/', '~']) { Place::Outside } else { self.tree.resolve(&path) };
        match place {
            Place::At(at) => {
                // npm unpacks archives itself.
                self.only_local &= self.tree.is_directory(&at);
                if self.paths.insert(path) && self.tree.is_directory(&at) {
                    self.open.push(at);
                }
                Ok(())
            }
            Place::Nowhere if local.is_certain => Err(Finding::source(format!(
                "{file}: the dependency `{name}` is `{spec}`, and there is no such file or directory in the source"
            ))
            .into()),
            Place::Nowhere => {
                self.only_local = false;
                Ok(())
            }
            Place::Outside | Place::Loop => Err(Finding::source(format!(
                "{file}: the dependency `{name}` is `{spec}`, which lies outside of the Function's directory; move the \
                 package into it, or let `baseDir` name a directory that holds both"
            ))
            .into()),
        }
    }

    /// Adds all paths in overrides, which can be nested.
    fn overrides(&mut self, file: &str, overrides: Option<&Value>) -> Result<(), Error> {
        for (name, value) in overrides.and_then(Value::as_object).into_iter().flatten() {
            match value {
                Value::String(spec) => self.spec(file, "", name, spec)?,
                // Recursion is safe, because the parser limits the nesting.
                nested => self.overrides(file, Some(nested))?,
            }
        }
        Ok(())
    }

    fn follow(&mut self) -> Result<(), Error> {
        let mut followed = BTreeSet::new();
        while let Some(directory) = self.open.pop() {
            if !followed.insert(directory.clone()) {
                continue;
            }
            if followed.len() > PACKAGES {
                return Err(Finding::dependencies("more than 1000 packages of the source depend on one another").into());
            }
            let file =
                if directory.is_empty() { "package.json".to_owned() } else { format!("{directory}/package.json") };
            let Place::At(at) = self.tree.resolve(&file) else {
                return Err(Finding::source(format!("the dependency in `{directory}` has no package.json")).into());
            };
            if self.tree.is_directory(&at) {
                return Err(Finding::source(format!("`{file}` is a directory")).into());
            }
            let package = object(&file, &(self.read)(&at)?)?;
            self.specs(&file, parent(&file), &package, &OWN[..3])?;
        }
        Ok(())
    }
}

/// A dependency that may be a path.
struct Local<'a> {
    path: &'a str,
    /// Whether the dependency can only be a path.
    is_certain: bool,
}

/// Parses a dependency as npm does; `None` if it is not local.
fn local(spec: &str) -> Option<Local<'_>> {
    let certain = |path| Some(Local { path, is_certain: true });
    let prefix = spec.get(..5).filter(|prefix| prefix.eq_ignore_ascii_case("file:") || *prefix == "link:");
    if prefix.is_some() {
        let path = &spec[5..];
        return match path.strip_prefix("//") {
            Some(rest) if !rest.starts_with('.') => certain(&path[1..]),
            Some(rest) => certain(rest),
            None => certain(path),
        };
    }
    if spec.starts_with(['.', '/']) || spec.starts_with("~/") {
        return certain(spec);
    }
    let lower = spec.to_ascii_lowercase();
    let is_archive = [".tgz", ".tar.gz", ".tar"].iter().any(|end| lower.ends_with(end));
    let may_be = !spec.contains(':') && (is_archive || spec.matches('/').count() > 1);
    may_be.then_some(Local { path: spec, is_certain: false })
}

fn check_kind(file: &str, package: &Map<String, Value>, kind: &str) -> Result<(), Finding> {
    match package.get(kind) {
        None | Some(Value::Null | Value::Object(_)) => Ok(()),
        Some(_) => Err(Finding::dependencies(format!("{file}: `{kind}` is not a JSON object of names and versions"))),
    }
}

/// The fields of a `package.json` that determine the installed packages.
const READ: [&str; 7] = [
    "dependencies",
    "optionalDependencies",
    "peerDependencies",
    "devDependencies",
    "workspaces",
    "overrides",
    "scripts",
];

/// A `package.json`, parsed as npm does. Other fields may contain values that only JavaScript accepts: infinite
/// numbers, unpaired surrogates, any depth. The last one of duplicate fields is used. A list counts as an empty
/// package.
struct Package(Map<String, Value>);

impl<'de> Deserialize<'de> for Package {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PackageVisitor).map(Package)
    }
}

struct PackageVisitor;

impl<'de> Visitor<'de> for PackageVisitor {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if READ.contains(&&*name) {
                read.insert(name, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(read)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Map::new())
    }
}

/// Parses the needed fields of the file. A blank file counts as an empty object.
fn object(file: &str, bytes: &[u8]) -> Result<Map<String, Value>, Finding> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    // npm replaces invalid UTF-8 too.
    serde_json::from_str(&String::from_utf8_lossy(bytes)).map(|Package(fields)| fields).map_err(|error| {
        Finding::dependencies(if error.is_data() {
            format!("{file} is not a JSON object")
        } else {
            // The error message ends with line and column.
            format!(
                "{file} is not JSON: {error}; npm refuses it (EJSONPARSE): {file} must be actual JSON, not just JavaScript"
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    const EMPTY: &str = "nothing";

    #[test]
    fn an_empty_package_needs_no_npm() {
        for text in ["", " \n", "{}", "\u{feff}{}", r#"{"dependencies":{}}"#, r#"{"devDependencies":{"a":"1"}}"#] {
            check("package.json", &[("package.json", text)], EMPTY);
        }
    }

    #[test]
    fn takes_whatever_npm_takes() {
        let depth = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        for text in [
            "[]",
            r#"["a", {}]"#,
            r#"{"name": 5, "version": [], "description": "\ud800", "x": 1e999, "dependencies": {}}"#,
            r#"{"dependencies": {"a": "1"}, "dependencies": {}}"#,
            &format!(r#"{{"config": {depth}}}"#),
        ] {
            check("package.json", &[("package.json", text)], EMPTY);
        }
    }

    #[test]
    fn says_where_the_file_is_not_json() {
        check(
            "package.json",
            &[("package.json", "{\n  \"a\": 1,\n}")],
            "DependencyInvalid: package.json is not JSON: trailing comma at line 3 column 1; npm refuses it (EJSONPARSE): \
             package.json must be actual JSON, not just JavaScript",
        );
        for text in ["null", "\"x\"", "5"] {
            check("package.json", &[("package.json", text)], "DependencyInvalid: package.json is not a JSON object");
        }
        check(
            "package.json",
            &[("package.json", r#"{"dependencies":["a"]}"#)],
            "DependencyInvalid: package.json: `dependencies` is not a JSON object of names and versions",
        );
        check(
            "package.json",
            &[("package.json", r#"{"dependencies":{"a":1}}"#)],
            "DependencyInvalid: package.json: the version of `a` in `dependencies` is not a string",
        );
    }

    #[test]
    fn takes_the_lock_file_the_configuration_and_nothing_of_the_source() {
        let package = r#"{"dependencies":{"a":"^1.0.0"}}"#;
        check("package.json", &[("package.json", package), ("handler.js", "")], "install: package.json");
        check(
            "package.json",
            &[("package.json", package), ("package-lock.json", "{}"), (".npmrc", ""), ("lib/x.js", "")],
            "ci: .npmrc package-lock.json package.json",
        );
    }

    #[test]
    fn follows_packages_of_the_source_to_one_another() {
        check(
            "package.json",
            &[
                ("package.json", r#"{"dependencies":{"a":"file:./libs/a"}}"#),
                ("libs/a/package.json", r#"{"dependencies":{"b":"file:../b"},"devDependencies":{"z":"1"}}"#),
                ("libs/b/package.json", r#"{"dependencies":{"a":"file:../a"}}"#),
                ("libs/c/package.json", "{}"),
            ],
            "install --offline: libs libs/a libs/a/package.json libs/b libs/b/package.json package.json",
        );
        check(
            "package.json",
            &[("package.json", r#"{"dependencies":{"a":"file:a-1.0.0.tgz"}}"#), ("a-1.0.0.tgz", "")],
            "install: a-1.0.0.tgz package.json",
        );
    }

    #[test]
    fn gives_scripts_of_the_project_the_whole_source() {
        let package = r#"{"dependencies":{"a":"1"},"scripts":{"postinstall":"node tools/x.js"}}"#;
        let files = [("package.json", package), ("tools/x.js", "")];
        check("package.json", &files, "install: package.json tools tools/x.js");
    }

    #[test]
    fn refuses_packages_outside_of_the_directory() {
        for spec in ["file:../x", "../x", "file:///x", "/x", "~/x", "file:./a/../../x", "link:../x"] {
            let package = format!(r#"{{"dependencies":{{"x":"{spec}"}}}}"#);
            let words = format!(
                "SourceInvalid: package.json: the dependency `x` is `{spec}`, which lies outside of the Function's \
                 directory; move the package into it, or let `baseDir` name a directory that holds both"
            );
            check("package.json", &[("package.json", &package)], &words);
        }
        check(
            "package.json",
            &[("package.json", r#"{"dependencies":{"x":"file:x"}}"#)],
            "SourceInvalid: package.json: the dependency `x` is `file:x`, and there is no such file or directory in the \
             source",
        );
    }
}
