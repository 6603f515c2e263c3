//! The patches of a kustomization and of the kustomizations that it references. They are needed to name the files that
//! may have changed an object, and the file that the tool refuses. The tool names neither.
//!
//! Not here: labels in a patch's target. A patch with labels in its target counts for all objects with the target's
//! kind and name.

use std::collections::BTreeSet;
use std::time::Duration;

use regex::Regex;
use serde_json::{Map, Value};

use super::closure::{Closure, NAMES, Tree, parent, resolve};
use super::kustomization::fields;
use crate::{Limits, read_documents};

/// Maximum size of a patch, in bytes, and maximum number of patches. Patches beyond the limits are not named.
const LARGEST: u64 = 1 << 20;
const MOST: usize = 1_000;
/// The operations of a JSON patch.
const OPERATIONS: [&str; 6] = ["add", "remove", "replace", "move", "copy", "test"];

/// The patches of a build.
#[derive(Clone, Debug, Default)]
pub(super) struct Patches {
    all: Vec<Patch>,
    /// Whether the names of objects get a prefix or suffix after the patches.
    renames: bool,
}

#[derive(Clone, Debug)]
struct Patch {
    /// The file of the patch. For an inline patch, it is the file of the kustomization.
    file: String,
    targets: Vec<Target>,
    /// The paths of the operations in a JSON patch.
    paths: BTreeSet<String>,
    is_json: bool,
    has_unknown_operation: bool,
}

/// The objects that a patch changes. `None` matches every kind or name.
#[derive(Clone, Debug)]
struct Target {
    kind: Option<Pattern>,
    name: Option<Pattern>,
}

#[derive(Clone, Debug)]
enum Pattern {
    Exactly(String),
    Matching(Regex),
}

impl Pattern {
    /// Returns the pattern of a `target`; `None` if it cannot be parsed.
    fn of_target(target: &Map<String, Value>, field: &str) -> Option<Self> {
        let text = target.get(field)?.as_str().filter(|text| !text.is_empty())?;
        Regex::new(&format!("^(?:{text})$")).ok().map(Self::Matching)
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exactly(own) => own == text,
            Self::Matching(pattern) => pattern.is_match(text),
        }
    }
}

impl Target {
    fn of(document: &Value) -> Self {
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
        let exactly = |pointer: &str| text(pointer).map(|text| Pattern::Exactly(text.to_owned()));
        Self { kind: exactly("/kind"), name: exactly("/metadata/name") }
    }

    fn selects(&self, kind: &str, name: &str, renames: bool) -> bool {
        let is_named = self.name.as_ref().is_none_or(|own| match own {
            Pattern::Exactly(own) if renames => name.contains(own.as_str()),
            Pattern::Matching(_) if renames => true,
            own => own.matches(name),
        });
        is_named && self.kind.as_ref().is_none_or(|own| own.matches(kind))
    }
}

impl Patches {
    /// Reads the patches of all kustomizations among the inputs of the kustomization in `root`.
    pub(super) fn read(tree: &mut impl Tree, closure: &Closure, root: &str) -> Result<Self, mainstay_git::Error> {
        let mut patches = Self::default();
        for (path, entry) in &closure.files {
            if !NAMES.contains(&path.rsplit('/').next().unwrap_or_default()) {
                continue;
            }
            let Ok(fields) = fields(&tree.read(entry)?) else { continue };
            let is_set = |field: &&str| fields.get(*field).is_some_and(|value| value.as_str() != Some(""));
            let renaming = ["namePrefix", "nameSuffix", "configMapGenerator", "secretGenerator"];
            patches.renames |= renaming.iter().any(is_set);
            for named in named(&fields) {
                let written = match named.written {
                    Written::Inline(text) if path != root => Some((path.clone(), text.as_bytes().to_vec())),
                    // An inline patch is in the kustomization, which is named anyway.
                    Written::Inline(_) => None,
                    Written::File(file) => {
                        let file = resolve(parent(path), file).filter(|file| closure.files.contains_key(file));
                        let entry = file.as_ref().and_then(|file| closure.files.get(file));
                        let content = entry.filter(|entry| entry.size <= LARGEST).map(|entry| tree.read(entry));
                        file.zip(content.transpose()?)
                    }
                };
                let patch = written.and_then(|(file, content)| Patch::parse(file, &content, named.target));
                patches.all.extend(patch.filter(|_| patches.all.len() < MOST));
            }
        }
        Ok(patches)
    }

    /// Returns the files of the patches that may have changed an object of the output.
    pub(super) fn of(&self, kind: &str, name: &str) -> Vec<&str> {
        let is_for = |patch: &&Patch| patch.targets.iter().any(|target| target.selects(kind, name, self.renames));
        let files: BTreeSet<_> = self.all.iter().filter(is_for).map(|patch| patch.file.as_str()).collect();
        files.into_iter().collect()
    }

    /// Returns the file of the patch that the tool's message refers to; `None` if that is unclear.
    pub(super) fn refused(&self, words: &str) -> Option<&str> {
        let is_it = |patch: &&Patch| match id(words) {
            Some((kind, name)) => {
                let is_exact = |target: &Target| matches!(&target.name, Some(Pattern::Exactly(own)) if own == name);
                patch.targets.iter().any(|target| is_exact(target) && target.selects(kind, name, false))
            }
            None if words.contains("Unexpected kind: ") => patch.has_unknown_operation,
            None if words.contains("wrong node kind: ") => !patch.is_json,
            None => {
                let is_quoted = |path: &String| {
                    let forms = [format!("{path}:"), format!("'{path}'"), format!("\"{path}\"")];
                    let is_path = forms.iter().any(|form| words.contains(&format!("path: {form}")));
                    is_path || words.contains(&format!("testing value {path} failed"))
                };
                patch.paths.iter().any(is_quoted)
            }
        };
        let mut found = self.all.iter().filter(is_it);
        let first = found.next()?;
        found.all(|patch| patch.file == first.file).then_some(&first.file)
    }
}

/// Returns kind and name of `no matches for Id Deployment.v1.apps/web.[noNs]`.
fn id(words: &str) -> Option<(&str, &str)> {
    let (_, id) = words.split_once("no matches for Id ")?;
    let (kind, rest) = id.split_once('.')?;
    let (_, rest) = rest.split_once('/')?;
    let end = rest.find([';', ' ', '"']).unwrap_or(rest.len());
    let (name, _) = rest[..end].rsplit_once('.')?;
    Some((kind, name))
}

/// A patch in a kustomization.
struct Named<'k> {
    written: Written<'k>,
    target: Option<&'k Map<String, Value>>,
}

enum Written<'k> {
    File(&'k str),
    Inline(&'k str),
}

fn named(kustomization: &Map<String, Value>) -> Vec<Named<'_>> {
    let list = |key: &str| kustomization.get(key).and_then(Value::as_array).into_iter().flatten();
    let with_target = ["patches", "patchesJson6902"].into_iter().flat_map(list).filter_map(|item| {
        let text = |field: &str| item.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let written = text("path").map(Written::File).or_else(|| text("patch").map(Written::Inline))?;
        Some(Named { written, target: item.get("target").and_then(Value::as_object) })
    });
    let merged = list("patchesStrategicMerge").filter_map(Value::as_str).map(|text| {
        let is_inline = text.contains(['\n', '{']);
        Named { written: if is_inline { Written::Inline(text) } else { Written::File(text) }, target: None }
    });
    with_target.chain(merged).collect()
}

impl Patch {
    fn parse(file: String, content: &[u8], target: Option<&Map<String, Value>>) -> Option<Self> {
        let documents = read_documents(std::str::from_utf8(content).ok()?, &Limits::new(|| Duration::ZERO)).ok()?;
        let operations: Vec<_> = documents.iter().filter_map(Value::as_array).flatten().collect();
        let text = |operation: &Value, field: &str| operation.get(field)?.as_str().map(str::to_owned);
        let is_unknown = |operation: &&Value| text(operation, "op").is_none_or(|op| !OPERATIONS.contains(&&*op));
        let targets = match target {
            Some(target) => {
                vec![Target { kind: Pattern::of_target(target, "kind"), name: Pattern::of_target(target, "name") }]
            }
            None => documents.iter().filter(|document| document.is_object()).map(Target::of).collect(),
        };
        Some(Self {
            file,
            targets,
            paths: operations.iter().filter_map(|operation| text(operation, "path")).collect(),
            is_json: !operations.is_empty(),
            has_unknown_operation: operations.iter().any(is_unknown),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::closure::closure;
    use super::super::closure::tests::Files;
    use super::*;

    fn read(files: &[(&'static str, &'static str)]) -> Patches {
        let mut files = Files(files.to_vec());
        let read = closure(&mut files, "over/kustomization.yaml").unwrap();
        assert!(read.problems.is_empty(), "{:?}", read.problems);
        Patches::read(&mut files, &read, "over/kustomization.yaml").unwrap()
    }

    const OVER: (&str, &str) = (
        "over/kustomization.yaml",
        "resources: [../base]\npatches:\n- path: web.yaml\n- {path: ops.yaml, target: {kind: Deployment, name: w.*}}\n\
         - {path: all.yaml, target: {kind: Service}}\n- {patch: '{kind: Deployment, metadata: {name: web}}'}\n\
         patchesStrategicMerge: [old.yaml]\n",
    );
    const FILES: [(&str, &str); 7] = [
        ("over/web.yaml", "kind: Deployment\nmetadata: {name: web}\nspec: {replicas: three}\n"),
        ("over/ops.yaml", "- {op: replace, path: /spec/none, value: 1}\n"),
        ("over/all.yaml", "- {op: replac, path: /spec/type, value: 1}\n"),
        ("over/old.yaml", "kind: ConfigMap\nmetadata: {name: a}\n---\nkind: ConfigMap\nmetadata: {name: b}\n"),
        ("base/d.yaml", "a: b"),
        (
            "base/kustomization.yaml",
            "resources: [d.yaml]\npatches: [{patch: '{kind: Deployment, metadata: {name: api}}'}]\n",
        ),
        ("base/unnamed.yaml", "kind: Deployment\nmetadata: {name: web}\n"),
    ];

    #[test]
    fn an_object_has_the_patches_of_its_kind_and_name() {
        let patches = read(&[&[OVER], &FILES[..]].concat());
        for (object, expected) in [
            ("Deployment web", "over/ops.yaml over/web.yaml"),
            ("Deployment w", "over/ops.yaml"),
            ("Deployment api", "base/kustomization.yaml"),
            ("Service any", "over/all.yaml"),
            ("ConfigMap b", "over/old.yaml"),
            ("ConfigMap c", ""),
            ("Deployment my-web", ""),
        ] {
            let (kind, name) = object.split_once(' ').unwrap();
            assert_eq!(patches.of(kind, name).join(" "), expected, "{object}");
        }
        let renamed = OVER.1.replace("resources: [../base]", "namePrefix: my-\nresources: [../base]");
        let patches = read(&[&[(OVER.0, &*renamed.leak())], &FILES[..]].concat());
        assert_eq!(patches.of("Deployment", "my-web").join(" "), "over/ops.yaml over/web.yaml");
    }

    #[test]
    fn a_message_is_about_the_patch_that_it_quotes() {
        let patches = read(&[&[OVER], &FILES[..]].concat());
        for (words, expected) in [
            (
                "no resource matches strategic merge patch \"Deployment.v1.apps/web.[noNs]\": no matches for Id \
                 Deployment.v1.apps/web.[noNs]; failed to find unique target for patch Deployment.v1.apps/web.[noNs]",
                Some("over/web.yaml"),
            ),
            ("no matches for Id ConfigMap.v1.[noGrp]/a.shop; failed to find", Some("over/old.yaml")),
            ("no matches for Id Deployment.v1.apps/other.[noNs]; failed", None),
            ("replace operation does not apply: doc is missing path: /spec/none: missing value", Some("over/ops.yaml")),
            ("error in remove for path: '/spec/none': Unable to remove nonexistent key", Some("over/ops.yaml")),
            ("add operation does not apply: doc is missing path: \"/spec/none\": missing value", Some("over/ops.yaml")),
            ("testing value /spec/none failed: test failed", Some("over/ops.yaml")),
            ("replace operation does not apply: doc is missing path: /spec: missing value", None),
            ("Unexpected kind: replac", Some("over/all.yaml")),
            // Two files contain strategic patches, so the message is ambiguous.
            ("wrong node kind: expected SequenceNode but got MappingNode: node contents:\n{name: x}", None),
            ("", None),
        ] {
            assert_eq!(patches.refused(words), expected, "{words}");
        }
    }
}
