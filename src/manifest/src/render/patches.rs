//! The patches of a kustomization and of the kustomizations that it references. They are needed to name the files that
//! may have changed an object, and the file that the tool refuses. The tool names neither.
//!
//! Invariant: the patches of a build take at most about 8 MiB, whatever a kustomization contains.
//!
//! Not here: labels in a patch's target. A patch with labels in its target counts for all objects with the target's
//! kind and name.

use std::collections::BTreeSet;
use std::time::Duration;

use regex::bytes::{RegexSet, RegexSetBuilder, SetMatches};
use serde_json::{Map, Value};

use super::closure::{Closure, NAMES, Tree, parent, resolve};
use super::kustomization::fields;
use crate::{Limits, read_documents};

/// Maximum size of a patch, in bytes, and maximum number of patches. Patches beyond the limits are not named.
const LARGEST: u64 = 1 << 20;
const MOST: usize = 1_000;
/// Maximum size of all patches that are read, in bytes. A file counts for each patch that names it.
const TEXT: u64 = 32 << 20;
/// Maximum memory of the paths and targets of all patches, in bytes.
const KEPT: usize = 2 << 20;
/// Maximum length of a regular expression, its maximum compiled size, and the maximum compiled size of all, in bytes.
const EXPRESSION: usize = 1 << 10;
const COMPILED: usize = 32 << 10;
const ALL_COMPILED: usize = 256 << 10;
/// Maximum number of regular expressions.
const EXPRESSIONS: usize = 256;
/// The operations of a JSON patch.
const OPERATIONS: [&str; 6] = ["add", "remove", "replace", "move", "copy", "test"];

/// The patches of a build.
#[derive(Clone, Debug, Default)]
pub(super) struct Patches {
    all: Vec<Patch>,
    /// The regular expressions of the targets; `None` if they are too large together. Then each matches every text.
    expressions: Option<RegexSet>,
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
    /// The text in the patch itself.
    Exactly(String),
    /// A regular expression that matches only its own text.
    Literal(String),
    /// The regular expression at this index of [`Patches::expressions`].
    Matching(usize),
}

impl Pattern {
    fn matches(&self, text: &str, found: Option<&SetMatches>) -> bool {
        match self {
            Self::Exactly(own) | Self::Literal(own) => own == text,
            Self::Matching(at) => found.is_none_or(|found| found.matched(*at)),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Exactly(own) | Self::Literal(own) => own.len(),
            Self::Matching(_) => 0,
        }
    }
}

/// The regular expressions of all targets.
#[derive(Default)]
struct Expressions {
    valid: Vec<String>,
    /// Number of expressions that were compiled, including invalid ones.
    compiled: usize,
}

impl Expressions {
    /// Returns the pattern of a `target`; `None` if it cannot be parsed or exceeds a limit.
    fn add(&mut self, target: &Map<String, Value>, field: &str) -> Option<Pattern> {
        let text = target.get(field)?.as_str().filter(|text| !text.is_empty())?;
        if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
            return Some(Pattern::Literal(text.to_owned()));
        }
        if text.len() > EXPRESSION {
            return None;
        }
        let whole = format!("^(?:{text})$");
        if let Some(at) = self.valid.iter().position(|known| *known == whole) {
            return Some(Pattern::Matching(at));
        }
        if self.compiled >= EXPRESSIONS {
            return None;
        }
        self.compiled += 1;
        compile(std::slice::from_ref(&whole), COMPILED)?;
        self.valid.push(whole);
        Some(Pattern::Matching(self.valid.len() - 1))
    }
}

/// Compiles regular expressions into one set, so that one limit holds for all of them. Without Unicode, `\w` and `.` take
/// little memory. The tool reads `\w` without Unicode, too, and names of objects are ASCII.
fn compile(expressions: &[String], limit: usize) -> Option<RegexSet> {
    RegexSetBuilder::new(expressions).unicode(false).size_limit(limit).dfa_size_limit(limit).build().ok()
}

/// An object of the output, and the regular expressions that match its kind and its name.
struct Selected<'o> {
    kind: &'o str,
    name: &'o str,
    of_kind: Option<SetMatches>,
    of_name: Option<SetMatches>,
}

impl Target {
    fn of(document: &Value) -> Self {
        let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
        let exactly = |pointer: &str| text(pointer).map(|text| Pattern::Exactly(text.to_owned()));
        Self { kind: exactly("/kind"), name: exactly("/metadata/name") }
    }

    fn selects(&self, object: &Selected<'_>, renames: bool) -> bool {
        let is_named = self.name.as_ref().is_none_or(|own| match own {
            Pattern::Exactly(own) if renames => object.name.contains(own.as_str()),
            Pattern::Literal(_) | Pattern::Matching(_) if renames => true,
            own => own.matches(object.name, object.of_name.as_ref()),
        });
        is_named && self.kind.as_ref().is_none_or(|own| own.matches(object.kind, object.of_kind.as_ref()))
    }

    fn bytes(&self) -> usize {
        let texts = [&self.kind, &self.name].into_iter().flatten().map(Pattern::bytes);
        size_of::<Self>() + texts.sum::<usize>()
    }
}

/// The remaining limits of a build.
struct Left {
    patches: usize,
    text: u64,
    kept: usize,
}

impl Left {
    /// Takes a patch of this size. Returns whether it is within the limits.
    fn take(&mut self, size: u64) -> bool {
        let (Some(patches), Some(text)) = (self.patches.checked_sub(1), self.text.checked_sub(size)) else {
            return false;
        };
        if size > LARGEST || self.kept == 0 {
            return false;
        }
        (self.patches, self.text) = (patches, text);
        true
    }
}

impl Patches {
    /// Reads the patches of all kustomizations among the inputs of the kustomization in `root`.
    pub(super) fn read(tree: &mut impl Tree, closure: &Closure, root: &str) -> Result<Self, mainstay_git::Error> {
        let mut patches = Self::default();
        let (mut expressions, mut left) = (Expressions::default(), Left { patches: MOST, text: TEXT, kept: KEPT });
        for (path, entry) in &closure.files {
            if !NAMES.contains(&path.rsplit('/').next().unwrap_or_default()) {
                continue;
            }
            let Ok(fields) = fields(&tree.read(entry)?) else { continue };
            let is_set = |field: &&str| fields.get(*field).is_some_and(|value| value.as_str() != Some(""));
            let renaming = ["namePrefix", "nameSuffix", "configMapGenerator", "secretGenerator"];
            patches.renames |= renaming.iter().any(is_set);
            for named in named(&fields) {
                let content = match named.written {
                    Written::Inline(text) if path != root => {
                        left.take(text.len() as u64).then(|| (path.clone(), text.as_bytes().to_vec()))
                    }
                    // An inline patch is in the kustomization, which is named anyway.
                    Written::Inline(_) => None,
                    Written::File(file) => {
                        let file = resolve(parent(path), file);
                        let found = file.and_then(|file| closure.files.get_key_value(&file));
                        match found.filter(|(_, entry)| left.take(entry.size)) {
                            Some((file, entry)) => Some((file.clone(), tree.read(entry)?)),
                            None => None,
                        }
                    }
                };
                let Some((file, content)) = content else { continue };
                let Some(patch) = Patch::parse(file, &content, named.target, &mut expressions) else { continue };
                left.kept = left.kept.saturating_sub(patch.bytes());
                patches.all.push(patch);
            }
        }
        patches.expressions = compile(&expressions.valid, ALL_COMPILED);
        Ok(patches)
    }

    /// Returns an object with the regular expressions that match it.
    fn selected<'o>(&self, kind: &'o str, name: &'o str) -> Selected<'o> {
        let found = |text: &str| self.expressions.as_ref().map(|expressions| expressions.matches(text.as_bytes()));
        Selected { kind, name, of_kind: found(kind), of_name: found(name) }
    }

    /// Returns the files of the patches that may have changed an object of the output.
    pub(super) fn of(&self, kind: &str, name: &str) -> Vec<&str> {
        let object = self.selected(kind, name);
        let is_for = |patch: &&Patch| patch.targets.iter().any(|target| target.selects(&object, self.renames));
        let files: BTreeSet<_> = self.all.iter().filter(is_for).map(|patch| patch.file.as_str()).collect();
        files.into_iter().collect()
    }

    /// Returns the file of the patch that the tool's message refers to; `None` if that is unclear.
    pub(super) fn refused(&self, words: &str) -> Option<&str> {
        let object = id(words).map(|(kind, name)| self.selected(kind, name));
        let is_it = |patch: &&Patch| match &object {
            Some(object) => {
                let is_exact =
                    |target: &Target| matches!(&target.name, Some(Pattern::Exactly(own)) if own == object.name);
                patch.targets.iter().any(|target| is_exact(target) && target.selects(object, false))
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
    fn parse(
        file: String,
        content: &[u8],
        target: Option<&Map<String, Value>>,
        expressions: &mut Expressions,
    ) -> Option<Self> {
        let documents = read_documents(std::str::from_utf8(content).ok()?, &Limits::new(|| Duration::ZERO)).ok()?;
        let operations: Vec<_> = documents.iter().filter_map(Value::as_array).flatten().collect();
        let text = |operation: &Value, field: &str| operation.get(field)?.as_str().map(str::to_owned);
        let is_unknown = |operation: &&Value| text(operation, "op").is_none_or(|op| !OPERATIONS.contains(&&*op));
        let targets = match target {
            Some(target) => {
                vec![Target { kind: expressions.add(target, "kind"), name: expressions.add(target, "name") }]
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

    /// Returns the approximate memory of the patch.
    fn bytes(&self) -> usize {
        let paths: usize = self.paths.iter().map(|path| 2 * size_of::<String>() + path.len()).sum();
        let targets: usize = self.targets.iter().map(Target::bytes).sum();
        size_of::<Self>() + self.file.len() + paths + targets
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

    const OPS: (&str, &str) = ("over/ops.yaml", "- {op: replace, path: /spec/none, value: 1}\n");

    /// Returns the patches of a kustomization with a patch for each of these names.
    fn targeting(names: impl IntoIterator<Item = String>) -> Patches {
        let lines = names.into_iter().map(|name| format!("- {{path: ops.yaml, target: {{name: '{name}'}}}}\n"));
        let text = format!("patches:\n{}", lines.collect::<String>());
        read(&[("over/kustomization.yaml", &*text.leak()), OPS])
    }

    fn selects(target: &str, name: &str) -> bool {
        !targeting([target.to_owned()]).of("Deployment", name).is_empty()
    }

    #[test]
    fn a_target_is_a_regular_expression_of_the_whole_name() {
        for (target, name, expected) in [
            ("web", "web", true),
            ("web", "web-2", false),
            ("my_web-2", "my_web-2", true),
            ("w.b", "web", true),
            (".*", "web", true),
            ("^(a|b).*-web$", "a-1-web", true),
            ("^(a|b).*-web$", "c-1-web", false),
            (r"\w+", "web", true),
            (r"\w+", "my-web", false),
            ("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "my-web", true),
            ("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "my.web", false),
        ] {
            assert_eq!(selects(target, name), expected, "{target} {name}");
        }
    }

    #[test]
    fn a_target_that_is_invalid_or_beyond_a_limit_matches_each_name() {
        let long = format!("({})", "a".repeat(EXPRESSION));
        for target in ["(", "[a-z]{1,1000}", r"(\w{100}){100}", &long] {
            assert!(selects(target, "web-1"), "{target}");
        }
        let are_named = |patches: &Patches| !patches.of("Deployment", "web").is_empty();
        let many = |count: usize| targeting((0..count).map(|number| format!("a{number}.*")));
        assert!(!are_named(&many(EXPRESSIONS)));
        assert!(are_named(&many(EXPRESSIONS + 1)));
        // Each is small enough, and all together are not.
        assert!(are_named(&targeting((0..200).map(|number| format!("[ab]{{1,100}}{number}")))));
        // Equal and literal names take no memory of others.
        assert!(!are_named(&targeting((0..500).map(|_| "a.*".to_owned()))));
        assert!(!are_named(&targeting((0..500).map(|number| format!("a{number}")))));
    }

    /// A commit that counts the reads of its files.
    struct Counting(Files, usize);

    impl Tree for Counting {
        fn at(&mut self, path: &str) -> Result<mainstay_git::Found, mainstay_git::Error> {
            self.0.at(path)
        }

        fn below(&mut self, directory: &str) -> Result<Vec<mainstay_git::Entry>, mainstay_git::Error> {
            self.0.below(directory)
        }

        fn read(&mut self, entry: &mainstay_git::Entry) -> Result<Vec<u8>, mainstay_git::Error> {
            self.1 += 1;
            self.0.read(entry)
        }
    }

    #[test]
    fn patches_beyond_the_limits_are_neither_read_nor_kept() {
        let line = "- {path: ops.yaml, target: {kind: Deployment}}\n";
        let read = |count: usize, patch: String| {
            let text = format!("patches:\n{}", line.repeat(count));
            let files = vec![("over/kustomization.yaml", &*text.leak()), ("over/ops.yaml", &*patch.leak())];
            let mut files = Counting(Files(files), 0);
            let closure = closure(&mut files, "over/kustomization.yaml").unwrap();
            files.1 = 0;
            let patches = Patches::read(&mut files, &closure, "over/kustomization.yaml").unwrap();
            (files.1 - 1, patches.all.len(), patches.all.iter().map(Patch::bytes).sum::<usize>())
        };
        let (reads, kept, _) = read(MOST + 100, OPS.1.to_owned());
        assert_eq!((reads, kept), (MOST, MOST));
        let (reads, _, bytes) = read(100, format!("- {{op: add, path: /{}}}\n", "x".repeat(700 << 10)));
        assert!(reads < 10, "{reads}");
        assert!(bytes < KEPT + (1 << 20), "{bytes}");
        let (reads, ..) = read(100, format!("# {}\n", "x".repeat(1_000_000)));
        assert_eq!(reads, 33);
        let (reads, ..) = read(100, format!("# {}\n", "x".repeat(2_000_000)));
        assert_eq!(reads, 0);
    }
}
