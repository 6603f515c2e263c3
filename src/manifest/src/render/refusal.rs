//! Converts the error messages of kustomize into problems.
//!
//! The tool quotes unreadable input, which may be a Secret. So only known kinds of names in its messages are shown:
//! paths, field names, and kinds and names of objects.

use super::closure::{join, parent};
use super::patches::Patches;
use crate::Problem;
use mainstay_object::{Place, printable};

/// Maximum length of a displayed name, in characters.
const LONGEST: usize = 200;
/// The problem for an unknown message.
const UNKNOWN: &str = "kustomize refuses it";

/// Strings before and after a name in the tool's messages, the problem (`{}` stands for the name), and the remedy.
const KNOWN: &[(&str, &str, &str, &str)] = &[
    ("unknown field \"", "\"", "the kustomization has no field {}", "correct its name"),
    (
        "already registered id: ",
        "'",
        "two of the documents that it names are {}",
        "keep one of the two, or make the other one a patch",
    ),
    (
        "unable to parse SM or JSON patch from [path: \"",
        "\"",
        "the patch {} is neither an object nor a list of operations",
        "give it apiVersion, kind and metadata.name, or write operations with op and path",
    ),
    (
        "unable to parse SM or JSON patch from [patch: ",
        "",
        "an inline patch is neither an object nor a list of operations",
        "give it apiVersion, kind and metadata.name, or write operations with op and path",
    ),
    (
        "must specify a target for JSON patch [path: \"",
        "\"",
        "the patch {} has operations and no target",
        "name its object in `target`, beside `path`",
    ),
    (
        "operation does not apply: ",
        "",
        "a patch changes a field that the object does not have",
        "correct `path` in the patch, or use the operation add",
    ),
    (
        "error in remove for path: ",
        "",
        "a patch changes a field that the object does not have",
        "correct `path` in the patch, or remove the operation",
    ),
    (
        "error in move for path: ",
        "",
        "a patch moves a field that the object does not have",
        "correct `from` in the patch, or remove the operation",
    ),
    (
        " failed: test failed",
        "",
        "a patch tests a value that the object does not have",
        "correct `value` in the patch, or remove the operation",
    ),
    ("Unexpected kind: ", "", "a patch has an unknown operation", "write add, remove, replace, move, copy or test"),
    (
        "wrong node kind: expected ",
        "",
        "a patch has a map where the object has a list, or the reverse",
        "compare the patch with the object",
    ),
    (
        "no resource matches strategic merge patch \"",
        "\"",
        "a patch is for {}, which is not among the documents",
        "correct the name or the namespace in the patch, or add the document",
    ),
    (
        "no matches for Id ",
        ";",
        "a patch or replacement targets {}, which is not among the documents",
        "correct the name",
    ),
    (
        "security; file '",
        "'",
        "it reads the file {}, which is not in or below its directory",
        "move the file there, or make its directory a kustomization and name the directory",
    ),
    ("cycle detected: candidate root '", "'", "the kustomization {} refers to itself in a cycle", "break the cycle"),
    ("unable to load external plugin '", "'", "it asks for the plug-in {}, and plug-ins are not run", "remove it"),
    ("but got 'Kustomization'", "", "it names a kustomization as a component", "name it among the resources"),
    ("but got 'Component'", "", "it names a component as a resource", "name it among the components"),
    ("missing metadata.name in object", "", "one of the documents that it names has no name", "give it metadata.name"),
    ("missing Resource metadata", "", "one of the documents that it names has no metadata", "give it a name"),
    ("kustomization.yaml is empty", "", "the kustomization is empty", "name its files under `resources`"),
    (
        "socket: permission denied",
        "",
        "it references a remote resource, which is not fetched",
        "commit a copy, or add the repository as a submodule",
    ),
    (
        "must specify --enable-helm",
        "",
        "it inflates Helm charts, which is not supported",
        "commit the output of `helm template`",
    ),
];

/// Returns the problem of a kustomization with this error message. `root` is the directory of the copied inputs.
pub(super) fn refusal<'f>(
    file: &str,
    root: &str,
    words: &str,
    files: impl Iterator<Item = &'f str>,
    patches: &Patches,
) -> Problem {
    // Some versions of the tool quote their messages.
    let words = words.replace("\\\"", "\"").replace(&format!("{}/", root.trim_end_matches('/')), "");
    if let Some((at, path)) = malformed(&words) {
        let place = Place { line: at, ..Place::file(whole(path, file, files)) };
        return Problem::new(place, "the document is not valid YAML", Some("correct it"));
    }
    for (before, after, what, hint) in KNOWN {
        let Some((_, rest)) = words.split_once(before) else { continue };
        let name = if after.is_empty() { "" } else { name(rest, after) };
        let name: String = printable(name).chars().take(LONGEST).collect();
        let place = match patches.refused(&words) {
            Some(patch) => Place { built_by: Some(file.into()), ..Place::file(patch) },
            None => Place::file(file),
        };
        return Problem::new(place, what.replace("{}", &name), Some(hint));
    }
    let hint =
        "run `kubectl kustomize` in a checkout to see why: its message may quote Secrets, so it is not shown here";
    Problem::new(Place::file(file), UNKNOWN, Some(hint))
}

/// Returns the name at the beginning of a message. The name ends before `after`, or before whitespace if `after` is
/// missing.
fn name<'w>(rest: &'w str, after: &str) -> &'w str {
    let word = || rest.split(|c: char| c.is_whitespace() || c == '"').next().unwrap_or_default();
    rest.split_once(after).map_or_else(word, |(name, _)| name)
}

/// Returns the line and the file in `MalformedYAMLError: yaml: line 3: … in File: web.yaml`.
fn malformed(words: &str) -> Option<(u32, &str)> {
    let (_, rest) = words.split_once("MalformedYAMLError: yaml: line ")?;
    let line = rest.split(':').next()?.parse().ok()?;
    let (_, file) = rest.split_once(" in File: ")?;
    let end = file.find(['\'', '"', ' ', '\n']).unwrap_or(file.len());
    Some((line, file.get(..end)?))
}

/// Returns the path of a file in the repository. `path` is relative to the kustomization that references the file, and
/// that kustomization is unknown.
fn whole<'f>(path: &str, kustomization: &str, mut files: impl Iterator<Item = &'f str>) -> String {
    let beside = join(parent(kustomization), path);
    let mut found = files
        .by_ref()
        .filter(|file| file.strip_suffix(path).is_some_and(|rest| rest.is_empty() || rest.ends_with('/')));
    match (found.next(), found.next()) {
        (Some(only), None) => only.to_owned(),
        _ => beside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_and_nothing_else() {
        let words = r#"E1123 16:05:46.9 4335 run.go:72] "command failed" err="invalid Kustomization: json: unknown field \"foo\"""#;
        let files = ["a/kustomization.yaml", "b/c/w.yaml", "a/v.yaml", "b/v.yaml"];
        let said = |words: &str| {
            refusal("a/kustomization.yaml", "/scratch/x", words, files.into_iter(), &Patches::default()).to_string()
        };
        assert_eq!(said(words), "a/kustomization.yaml: the kustomization has no field foo (correct its name)");
        assert_eq!(
            said(
                "Error: accumulating resources: accumulation err='merging resources from 'cm.yaml': may not add resource \
                  with an already registered id: ConfigMap.v1.[noGrp]/a.[noNs]': must build at directory: 'x'"
            ),
            "a/kustomization.yaml: two of the documents that it names are ConfigMap.v1.[noGrp]/a.[noNs] (keep one of the \
             two, or make the other one a patch)"
        );
        // The quotation mark is missing if the id is in the last of several nested errors.
        for end in ["", "\"", "\n"] {
            let last = said(&format!(
                "recursed merging from path '../b': already registered id: Deployment.v1.apps/web.[noNs]{end}"
            ));
            assert!(last.contains("that it names are Deployment.v1.apps/web.[noNs] (keep"), "{last}");
        }
        let quoted = "missing metadata.name in object {{v1 Secret} hush}";
        assert!(said(quoted).contains("has no name") && !said(quoted).contains("hush"));
        let unknown = "error in something: '/data/hush': hush";
        assert!(said(unknown).contains("refuses it") && !said(unknown).contains("hush"));
        let removed = "error in remove for path: '/data/hush': Unable to remove nonexistent key: hush: missing value";
        assert!(said(removed).contains("a patch changes a field") && !said(removed).contains("hush"));
        let parsed = "trouble configuring builtin PatchTransformer with config: `\npath: p.yaml\n`: unable to parse SM \
                      or JSON patch from [path: \"p.yaml\"]";
        assert!(said(parsed).contains("the patch p.yaml is neither"), "{}", said(parsed));
        let inline = "unable to parse SM or JSON patch from [patch: \"hush\"]";
        assert!(said(inline).contains("an inline patch") && !said(inline).contains("hush"));
        assert_eq!(
            said("accumulating resources from 'w.yaml': MalformedYAMLError: yaml: line 3: hush in File: w.yaml': x"),
            "b/c/w.yaml, line 3: the document is not valid YAML (correct it)"
        );
        let two = said("MalformedYAMLError: yaml: line 3: hush in File: v.yaml");
        assert_eq!(two, "a/v.yaml, line 3: the document is not valid YAML (correct it)");
        assert!(
            said("security; file '/scratch/x/b/f' is not in or below '/scratch/x/a'").contains("reads the file b/f,")
        );
    }
}
