//! Recognizes files that are not manifests, and replaces many misleading problems of such a file by one problem with
//! the right remedy.
//!
//! Invariant: a file without problems is never refused here. Conflict markers and templates may be data of a ConfigMap.
//! Invariant: no content of a file is shown.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::Problem;
use super::encrypted::SOPS;
use super::ignore::parent;
use mainstay_object::{Flaw, Place};

/// File name of a Helm chart.
const CHART: &str = "Chart.yaml";
/// First lines of Git LFS pointers, and of pointers of its predecessors.
const POINTERS: [&[u8]; 3] = [
    b"version https://git-lfs.github.com/spec/v1",
    b"version https://hawser.github.com/spec/v1",
    b"version http://git-media.io/v/2",
];
/// Maximum size of a pointer, in bytes.
const POINTER_BYTES: usize = 1024;
/// The problem of a document without apiVersion and kind.
pub(super) const NEITHER: &str = "the document has neither apiVersion nor kind";
const LEAVE_OUT: &str = "list it in .mainstayignore";
const KEPT_OUT: &str = "take it out of the repository: it may hold credentials";
/// Words that occur only in Helm templates.
const HELM_WORDS: [&str; 7] = [".Values", ".Release.", ".Chart.", ".Capabilities.", "include \"", "define \"", "tpl ("];

/// Prefixes of other file formats, with the format and the remedy.
const BEGINNINGS: &[(&[u8], &str, &str)] = &[
    (b"\xff\xfe", "it is UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "it is UTF-16 text", "save it as UTF-8"),
    (b"\x1f\x8b", "it is compressed with gzip", "commit the manifests that are in it"),
    (b"BZh", "it is compressed with bzip2", "commit the manifests that are in it"),
    (b"\xfd7zXZ\0", "it is compressed with xz", "commit the manifests that are in it"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd", "commit the manifests that are in it"),
    (b"PK\x03\x04", "it is a zip archive", "commit the manifests that are in it"),
    (b"\0GITCRYPT\0", "it is encrypted with git-crypt, which is not decrypted", LEAVE_OUT),
    (b"$ANSIBLE_VAULT;", "it is encrypted with Ansible Vault, which is not decrypted", LEAVE_OUT),
    (b"age-encryption.org/", "it is encrypted with age, which is not decrypted", LEAVE_OUT),
    (b"-----BEGIN AGE ENCRYPTED FILE-----", "it is encrypted with age, which is not decrypted", LEAVE_OUT),
    (b"-----BEGIN PGP MESSAGE-----", "it is encrypted with PGP, which is not decrypted", LEAVE_OUT),
    (b"-----BEGIN ", "it is a key or a certificate, not a manifest", KEPT_OUT),
    (b"\x7fELF", "it is a program", LEAVE_OUT),
    (b"\x89PNG", "it is an image", LEAVE_OUT),
    (b"\xff\xd8\xff", "it is an image", LEAVE_OUT),
    (b"%PDF-", "it is a PDF document", LEAVE_OUT),
];

/// Prefixes of HTML and XML, in lower case.
const MARKUP: &[(&str, &str, &str)] = &[
    ("<!doctype html", "it is an HTML page", "download the manifest again: this may be the page of an error"),
    ("<html", "it is an HTML page", "download the manifest again: this may be the page of an error"),
    ("<?xml", "it is XML", LEAVE_OUT),
];

/// Keys of documents that are not manifests, with the name of the format.
const DOCUMENTS: &[(&[&str], &str)] = &[
    (&["openapi", "paths"], "an OpenAPI description"),
    (&["swagger", "paths"], "an OpenAPI description"),
    // YAML 1.1 reads the key `on` as the boolean `true`.
    (&["true", "jobs"], "a workflow of GitHub Actions"),
    (&["on", "jobs"], "a workflow of GitHub Actions"),
    (&["AWSTemplateFormatVersion"], "a CloudFormation template"),
    (&["creation_rules"], "the configuration of SOPS"),
    (&["releases", "repositories"], "a helmfile"),
];

/// API groups of tool configurations. Such a configuration looks like an object but has no name.
const TOOLS: &[(&str, &str)] = &[
    ("kind.x-k8s.io", "the configuration of kind"),
    ("k3d.io", "the configuration of k3d"),
    ("skaffold", "the configuration of Skaffold"),
    ("kubeadm.k8s.io", "the configuration of kubeadm"),
    ("kubelet.config.k8s.io", "the configuration of a kubelet"),
    ("apiserver.config.k8s.io", "the configuration of an API server"),
    ("audit.k8s.io", "the configuration of an API server"),
    ("kustomize.config.k8s.io", "a kustomization, which must be named kustomization.yaml"),
];

/// Returns whether a path is that of a `Chart.yaml`.
pub(super) fn may_be_chart(path: &str) -> bool {
    path.rsplit('/').next() == Some(CHART)
}

/// Returns whether a `Chart.yaml` makes its directory a Helm chart, judging by the keys that the file `has`. A file
/// with a kind is a manifest and does not.
pub(super) fn is_chart(has: impl Fn(&str) -> bool) -> bool {
    has("name") && has("version") && !has("kind")
}

/// Returns whether a file is a pointer to content in Git LFS.
pub(crate) fn is_in_lfs(content: &[u8]) -> bool {
    pointer(content).is_some()
}

/// Returns the remedy for a pointer to Git LFS; `None` if the content is not such a pointer.
pub(super) fn pointer(content: &[u8]) -> Option<&'static str> {
    if content.len() > POINTER_BYTES || !POINTERS.iter().any(|version| content.starts_with(version)) {
        return None;
    }
    let text = String::from_utf8_lossy(content);
    let has = |key: &str| text.lines().any(|line| line.starts_with(key));
    let is_whole = has("oid sha256:") && has("size ") && !text.contains('\r') && content.starts_with(POINTERS[0]);
    Some(if has("ext-") {
        "extensions of Git LFS are not supported: add the file without them"
    } else if is_whole {
        "set `spec.lfs: true` in the GitRepository"
    } else {
        "the pointer is not as Git LFS writes it: add the file again"
    })
}

/// Recognizes a document that lacks apiVersion or kind, or that has both but cannot be applied; `None` if the document
/// may be a manifest.
pub(super) fn document(map: &Map<String, Value>) -> Option<Flaw> {
    let flaw = |what: String, hint| Some(Flaw::new(vec![], what, Some(hint)));
    let text = |key| map.get(key).and_then(Value::as_str);
    let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
        return flaw(format!("it is {}, not a manifest", without_kind(map)?), LEAVE_OUT);
    };
    if map.get("metadata").is_some_and(|metadata| metadata.get("name").is_some()) {
        return None;
    }
    if kind == "Config" && map.contains_key("clusters") && map.contains_key("users") {
        return flaw("it is a kubeconfig, not a manifest".to_owned(), KEPT_OUT);
    }
    let group = api_version.split('/').next().unwrap_or_default();
    let (_, tool) = TOOLS.iter().find(|(known, _)| *known == group)?;
    flaw(format!("it is {tool}"), LEAVE_OUT)
}

fn without_kind(map: &Map<String, Value>) -> Option<&'static str> {
    let mut known = DOCUMENTS.iter();
    if let Some((_, what)) = known.find(|(keys, _)| keys.iter().all(|key| map.contains_key(*key))) {
        return Some(what);
    }
    let services = map.get("services").and_then(Value::as_object).is_some_and(|services| {
        services.values().any(|service| service.get("image").is_some() || service.get("build").is_some())
    });
    if services {
        return Some("a Docker Compose file");
    }
    let schema = map.get("$schema").and_then(Value::as_str)?;
    schema.contains("//json-schema.org/").then_some("a JSON Schema")
}

/// Recognizes the format of a file with these problems; `None` if the problems can be fixed in the manifest.
pub(super) fn file(path: &Arc<str>, bytes: &[u8], problems: &[Problem]) -> Option<Problem> {
    let whole = |what: &str, hint: &str| Some(Problem::new(Place::file(Arc::clone(path)), what, Some(hint)));
    if let Some((_, what, hint)) = BEGINNINGS.iter().find(|(beginning, ..)| bytes.starts_with(beginning)) {
        return whole(what, hint);
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return whole("it is a tar archive", "commit the manifests that are in it");
    }
    let pairs = bytes.as_chunks::<2>().0.iter().take(32);
    if bytes.len() >= 8 && (pairs.clone().all(|pair| pair[0] == 0) || pairs.clone().all(|pair| pair[1] == 0)) {
        return whole("it is UTF-16 text", "save it as UTF-8");
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let beginning: String = text.trim_start().chars().take(20).collect::<String>().to_ascii_lowercase();
    if let Some((_, what, hint)) = MARKUP.iter().find(|(markup, ..)| beginning.starts_with(markup)) {
        return whole(what, hint);
    }
    if let Some(line) = conflict(text) {
        let place = Place { line, ..Place::file(Arc::clone(path)) };
        let hint = "resolve the conflict, and commit the result";
        return Some(Problem::new(place, "a merge conflict is not resolved (`<<<<<<<`)", Some(hint)));
    }
    if let Some(encrypted) = problems.iter().find(|problem| problem.what == SOPS) {
        return Some(encrypted.clone());
    }
    if let Some(line) = template(path, text, problems) {
        let place = Place { line, ..Place::file(Arc::clone(path)) };
        return Some(if HELM_WORDS.iter().any(|word| text.contains(word)) {
            let hint = "put the chart's Chart.yaml above it, with a name and a version, or name the template in .mainstayignore";
            Problem::new(place, "it is a template of a Helm chart, and in no directory with a Chart.yaml", Some(hint))
        } else {
            let hint = "commit the rendered output, and name the template in .mainstayignore";
            Problem::new(place, "it is a template, which is not rendered", Some(hint))
        });
    }
    (is_values(path) && problems.iter().all(|problem| problem.what == NEITHER))
        .then(|| Problem::new(Place::file(Arc::clone(path)), "it is the values of a Helm chart", Some(LEAVE_OUT)))
}

/// Returns the line of the first conflict marker, if all markers of the conflict are present. A marker at the start of
/// a line is not valid YAML.
fn conflict(text: &str) -> Option<u32> {
    let numbered = || text.lines().zip(1u32..);
    let (_, line) = numbered().find(|(line, _)| line.starts_with("<<<<<<< "))?;
    let mut after = numbered().skip_while(|(_, number)| *number <= line).map(|(text, _)| text.trim_end());
    (after.any(|text| text == "=======") && after.any(|text| text.starts_with(">>>>>>> "))).then_some(line)
}

/// Returns the first line in which a template causes a problem.
fn template(path: &str, text: &str, problems: &[Problem]) -> Option<u32> {
    let opens = |line: &str| line.contains("{{") || line.contains("{%");
    if !opens(text) || text.trim_start().starts_with("{\"") {
        return None;
    }
    let is_helm = HELM_WORDS.iter().any(|word| text.contains(word));
    // The parser may report the next line.
    let lines: HashSet<u32> = problems.iter().flat_map(|p| [p.place.line, p.place.line.saturating_sub(1)]).collect();
    let mut numbered = text.lines().zip(1u32..);
    let found =
        numbered.find(|(line, number)| lines.contains(number) && opens(line) && (is_helm || is_instruction(line)));
    // A template may also be part of an invalid value.
    found
        .or_else(|| {
            let is_below = is_helm && parent(path).split('/').any(|directory| directory == "templates");
            text.lines().zip(1u32..).find(|(line, _)| is_below && is_instruction(line))
        })
        .map(|(_, number)| number)
}

/// Returns whether a line, or the value in it, is an unquoted template action. A quoted action would be data.
fn is_instruction(line: &str) -> bool {
    let line = line.trim_start().trim_start_matches("- ");
    let value = line.split_once(": ").map_or("", |(_, value)| value.trim_start());
    [line, value].iter().any(|text| text.starts_with("{{") || text.starts_with("{%"))
}

/// Returns whether files with this name contain values of a Helm chart.
fn is_values(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    stem == "values" || stem == "values.schema" || stem.starts_with("values-") || stem.ends_with("-values")
}
