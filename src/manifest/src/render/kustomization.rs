//! Parses the text of a kustomization into its fields, and the fields into references to inputs.
//!
//! Invariant: the tool reads the same fields. A text that the tool may read differently is a problem, since the tool
//! would read, and fetch, unchecked inputs. Examples are line breaks that exist only in YAML 1.1, tags with escapes,
//! and alternative spellings of a field's name that the tool accepts (`Resources`, or the Kelvin sign for a K).
//!
//! Not here: whether the inputs exist.

use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::{Limits, read_documents, read_fields};
use mainstay_object::printable;

/// Prefixes of references to other hosts, in lower case.
const REMOTE: [&str; 10] =
    ["git::", "gh:", "ssh:", "https:", "http:", "git@", "github.com:", "github.com/", "file:", "s3::"];
/// Line breaks of YAML 1.1.
const OLD_BREAKS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];
/// Fields that reference inputs.
const FIELDS: [&str; 18] = [
    "resources",
    "bases",
    "components",
    "generators",
    "transformers",
    "validators",
    "patchesStrategicMerge",
    "patchesJson6902",
    "patches",
    "replacements",
    "crds",
    "configurations",
    "openapi",
    "configMapGenerator",
    "secretGenerator",
    "helmCharts",
    "helmChartInflationGenerator",
    "helmGlobals",
];
/// Nested fields that reference inputs.
const WITHIN: [&str; 5] = ["path", "paths", "files", "envs", "env"];

/// The reason that a kustomization is not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unread {
    /// The line, from 1; 0 if the line is not known.
    pub(super) line: usize,
    pub(super) what: String,
    pub(super) hint: String,
}

/// A reference to an input in a kustomization.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reference<'v> {
    pub(super) path: &'v str,
    pub(super) to: Target,
}

/// The kind of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    File,
    FileOrDirectory,
    /// An address on another host.
    Elsewhere,
    /// Neither a path nor an object, in the field with this name.
    Unclear(&'static str),
}

fn limits() -> Limits {
    // The memory limit also bounds the time.
    Limits::new(|| Duration::ZERO)
}

/// Parses the fields of a kustomization. An empty text has no fields.
pub(super) fn fields(content: &[u8]) -> Result<Map<String, Value>, Unread> {
    let unread = |line, what: &str, hint: &str| Unread { line, what: what.to_owned(), hint: hint.to_owned() };
    let Ok(text) = std::str::from_utf8(content) else {
        return Err(unread(0, "the kustomization is not UTF-8 text", "save it as UTF-8"));
    };
    let line_with = |wrong: &dyn Fn(&str) -> bool| text.lines().position(wrong).map(|index| index + 1);
    if let Some(line) = line_with(&|line| line.contains(OLD_BREAKS)) {
        let what = "the kustomization has a line break that not all readers of YAML know: U+0085, U+2028 or U+2029";
        return Err(unread(line, what, "remove it"));
    }
    // JSON has no tags.
    let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
    if let Some(line) = line_with(&has_unclear_tag).filter(|_| !is_json) {
        let what = "the kustomization has a YAML tag in escaped or verbatim form (`!<…>`), or a `%TAG` directive";
        return Err(unread(line, what, "write the value without it"));
    }
    let fields = read_fields(text, &limits()).map_err(|(line, what)| {
        unread(line as usize, &format!("the kustomization is not valid YAML: {what}"), "correct it")
    })?;
    match misspelled(&fields) {
        Some((key, known)) => Err(Unread {
            line: line_of(text, key),
            what: format!("the kustomization has the field {}, which is misspelled", printable(key)),
            hint: format!("write {known}"),
        }),
        None => Ok(fields),
    }
}

/// Returns whether a line may contain a YAML tag that parsers read differently.
fn has_unclear_tag(line: &str) -> bool {
    let is_between = |c: char| c.is_whitespace() || ",[]{}:?-".contains(c);
    let is_unclear = |word: &str| word.starts_with("!<") || word.starts_with('!') && word.contains('%');
    line.starts_with("%TAG") || line.split(is_between).any(is_unclear)
}

/// Returns a name in the form in which the tool compares names: in lower case, with the long s and the Kelvin sign
/// replaced by the ASCII letters whose case variants they are.
fn folded(name: &str) -> String {
    let letter = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    name.chars().map(letter).collect()
}

/// Returns the first field with an undocumented spelling, and its documented name.
fn misspelled(fields: &Map<String, Value>) -> Option<(&str, &'static str)> {
    let among = |map: &'_ Map<String, Value>, known: &[&'static str]| -> Option<(String, &'static str)> {
        map.keys().find_map(|key| {
            let own = known.iter().find(|own| **own != key && folded(own) == folded(key))?;
            Some((key.clone(), *own))
        })
    };
    let found = among(fields, &FIELDS).or_else(|| {
        let named = FIELDS.iter().filter_map(|field| fields.get(*field));
        let items = named.flat_map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
        items.filter_map(Value::as_object).find_map(|item| among(item, &WITHIN))
    });
    let (key, known) = found?;
    // The name is looked up again so that it is borrowed from `fields`.
    let all = fields.values().flat_map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
    let mut keys = fields.keys().chain(all.filter_map(Value::as_object).flat_map(Map::keys));
    keys.find(|own| **own == key).map(|own| (own.as_str(), known))
}

/// Returns the inputs of a kustomization, in order.
pub(super) fn references(kustomization: &Map<String, Value>) -> Vec<Reference<'_>> {
    let mut all = Vec::new();
    let list = |key: &str| kustomization.get(key).and_then(Value::as_array).into_iter().flatten();
    let texts = |key: &'static str| list(key).filter_map(Value::as_str);
    let mut name = |path, to| all.push(Reference { path, to: if is_remote(path) { Target::Elsewhere } else { to } });
    for key in ["resources", "bases", "components"] {
        texts(key).for_each(|path| name(path, Target::FileOrDirectory));
    }
    // These fields contain paths or inline documents.
    for (key, to) in [
        ("generators", Target::FileOrDirectory),
        ("transformers", Target::FileOrDirectory),
        ("validators", Target::FileOrDirectory),
        ("patchesStrategicMerge", Target::File),
    ] {
        for text in texts(key) {
            match written(text) {
                Written::Path => name(text, to),
                Written::Objects { reads_elsewhere: false } => {}
                Written::Objects { reads_elsewhere: true } => name(text, Target::Elsewhere),
                Written::Neither => name(text, Target::Unclear(key)),
            }
        }
    }
    for key in ["crds", "configurations"] {
        texts(key).for_each(|path| name(path, Target::File));
    }
    for key in ["patches", "patchesJson6902", "replacements"] {
        list(key).filter_map(|item| item.get("path")?.as_str()).for_each(|path| name(path, Target::File));
    }
    if let Some(path) = kustomization.get("openapi").and_then(|openapi| openapi.get("path")?.as_str()) {
        name(path, Target::File);
    }
    for key in ["configMapGenerator", "secretGenerator"] {
        for generator in list(key) {
            let named = |field: &str| generator.get(field).and_then(Value::as_array).into_iter().flatten();
            for path in named("files").filter_map(Value::as_str) {
                // In `key=path`, only the path is an input. A remote address may contain `=` anywhere.
                let behind = path.split_once('=').map_or(path, |(_, path)| path);
                name(if is_remote(path) { path } else { behind }, Target::File);
            }
            named("envs").filter_map(Value::as_str).for_each(|path| name(path, Target::File));
            if let Some(path) = generator.get("env").and_then(Value::as_str) {
                name(path, Target::File);
            }
        }
    }
    all
}

/// The meaning of a string in a field for paths or objects.
enum Written {
    Path,
    Objects { reads_elsewhere: bool },
    Neither,
}

/// Classifies a string. The tool treats a string that is not an object as a path.
fn written(text: &str) -> Written {
    let documents = read_documents(text, &limits()).unwrap_or_default();
    let is_object = |document: &Value| {
        let text = |pointer: &str| document.pointer(pointer).is_some_and(Value::is_string);
        text("/kind") && text("/metadata/name")
    };
    if !documents.is_empty() && documents.iter().all(is_object) {
        return Written::Objects { reads_elsewhere: documents.iter().any(|one| reads_elsewhere(one, false)) };
    }
    // The string is not shown, because it may contain a Secret.
    let is_long = text.contains('\n') || text.contains(": ") || text.starts_with('{');
    if is_long && !is_remote(text) { Written::Neither } else { Written::Path }
}

/// Returns whether the configuration of a generator or transformer contains an address on another host.
fn reads_elsewhere(value: &Value, is_path: bool) -> bool {
    match value {
        Value::String(text) => is_path && is_remote(text),
        Value::Array(items) => items.iter().any(|item| reads_elsewhere(item, is_path)),
        Value::Object(map) => map.iter().any(|(key, value)| reads_elsewhere(value, WITHIN.contains(&&*folded(key)))),
        _ => false,
    }
}

/// Returns whether an input is on another host.
pub(super) fn is_remote(named: &str) -> bool {
    let lower = named.trim_start().to_ascii_lowercase();
    REMOTE.iter().any(|begin| lower.starts_with(begin)) || is_address(&lower)
}

/// Returns whether a string contains an address. A string with several lines is a document, not an address.
fn is_address(lower: &str) -> bool {
    lower.contains("://") && !lower.contains('\n')
}

/// Returns the number of the first line that contains a string, from 1; 0 if there is none.
pub(super) fn line_of(text: &str, wanted: &str) -> usize {
    text.lines().position(|line| line.contains(wanted)).map_or(0, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unread(text: &str) -> String {
        let Err(Unread { line, what, hint }) = fields(text.as_bytes()) else { panic!("it is read: {text}") };
        format!("{line} {what} ({hint})")
    }

    #[test]
    fn constructs_that_the_tool_reads_otherwise_are_a_problem() {
        let spelled = |text: &str| unread(text).contains("which is misspelled (write ");
        for text in [
            "Resources: [a]",
            "RESOURCES: [a]",
            "re\u{17f}ources: [a]",
            "resource\u{17f}: [a]",
            "Helmcharts: [{name: a}]",
            "patches: [{Path: a}]",
            "secretGenerator: [{name: a, FILES: [a]}]",
            "openapi: {Path: a}",
        ] {
            assert!(spelled(text), "{text}");
        }
        assert_eq!(
            unread("a: 1\nBa\u{17f}es: [x]"),
            "2 the kustomization has the field Baſes, which is misspelled (write bases)"
        );
        assert!(folded("Kinds\u{212a}") == "kindsk");
        for text in ["# a\u{85}resources: [x]", "# a\u{2028}resources: [x]", "a: 1\u{2029}resources: [x]"] {
            assert!(unread(text).starts_with("1 the kustomization has a line break"), "{text}");
        }
        for text in [
            "resources: [!!bin%61ry eA==]",
            "resources:\n- !<tag:yaml.org,2002:bin%61ry> eA==",
            "%TAG !e! tag:yaml.org,2002:\n---\nresources: [!e!binary eA==]",
        ] {
            assert!(unread(text).contains("a YAML tag in escaped"), "{text}");
        }
        assert!(
            unread("resources: [a]\nresources: [b]\n").starts_with("2 the kustomization is not valid YAML: the key")
        );
        assert!(unread("resources: [a]\n---\nresources: [b]\n").contains("more than one document"));
        assert!(fields(b"\xff\xfer\0").is_err());
        // Other syntax is read in the same way as by the tool.
        let read =
            fields(b"---\n<<: {resources: [!!binary aHR0cDovL2E=]}\nconfigMapGenerator: [{literals: ['a=!b 5%']}]\n")
                .unwrap();
        assert_eq!(read["resources"], serde_json::json!(["http://a"]));
    }

    #[test]
    fn a_reference_is_a_path_an_inline_object_or_remote() {
        let named = |text: &str| {
            let fields = fields(text.as_bytes()).unwrap();
            references(&fields).iter().map(|one| format!("{:?}", one.to)).collect::<Vec<_>>().join(" ")
        };
        let object = "kind: ConfigMapGenerator\n  metadata: {name: x}\n";
        assert_eq!(named(&format!("generators:\n- |\n  {object}  files: [a=b.txt]\n")), "");
        for files in ["files: [a=http://h/x]", "Envs: [HTTP://h/x]", "env: https:x", "more: [{paths: [ssh://h]}]"] {
            assert_eq!(named(&format!("transformers:\n- |\n  {object}  {files}\n")), "Elsewhere", "{files}");
        }
        assert_eq!(
            named("generators: [a.yaml, 'http://h/x#: y', 'a: b', '{a: b}']"),
            "FileOrDirectory Elsewhere Unclear(\"generators\") Unclear(\"generators\")"
        );
        assert_eq!(
            named("configMapGenerator: [{envs: ['http://h/x?a=b'], files: ['http://h/x?a=b', 'a=b']}]"),
            "Elsewhere File Elsewhere"
        );
        assert_eq!(named("configMapGenerator: [{env: a=b, envs: [a=b]}]"), "File File");
        assert_eq!(named("resources: [' https://h', 'http:h/x', 'a=b']"), "Elsewhere Elsewhere FileOrDirectory");
    }
}
