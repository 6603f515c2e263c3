//! The origins of the objects of a build. The tool writes the file of each object into an annotation.
//!
//! Invariant: only input files of the build are named. Their lines are not named, because lines of the output differ.
//! Invariant: the annotation reaches the cluster only if the kustomization itself requests it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::closure::{Closure, parent, resolve};
use super::kustomization::fields;
use super::patches::Patches;
use crate::{Limits, read_fields};
use mainstay_git::BlobId;
use mainstay_object::{Place, printable};

/// The annotation.
const ORIGIN: &str = "config.kubernetes.io/origin";
/// The field and value of a kustomization that request the annotation.
const METADATA: &str = "buildMetadata";
const ASKED: &str = "originAnnotations";
/// Maximum number of patches that are listed for an object.
const SHOWN_PATCHES: usize = 5;

/// The input files of a build.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// The name that is used for an object without an input file.
    shown: Arc<str>,
    /// The directory of the kustomization.
    directory: String,
    files: BTreeSet<Arc<str>>,
    /// Whether the kustomization itself requests the annotation, so that it is not removed.
    keeps: bool,
    /// The patches. The annotation does not name them.
    patches: Patches,
}

impl Origins {
    pub(super) fn new(shown: &str, file: &str, closure: &Closure, keeps: bool) -> Self {
        // Files that were added for the tool are not in the commit.
        let files = closure.files.iter().filter(|(_, entry)| entry.id != BlobId::NONE);
        Self {
            shown: shown.into(),
            directory: parent(file).to_owned(),
            files: files.map(|(path, _)| path.as_str().into()).collect(),
            keeps,
            patches: Patches::default(),
        }
    }

    /// Adds the patches of the build.
    pub(super) fn patched_by(self, patches: Patches) -> Self {
        Self { patches, ..self }
    }

    /// Returns the origins of a single file.
    pub fn of_file(file: &str) -> Self {
        Self { shown: file.into(), ..Self::default() }
    }

    pub(crate) fn shown(&self) -> &Arc<str> {
        &self.shown
    }

    /// Returns the location of an object in the output, and removes the annotation unless the kustomization requests
    /// it.
    pub(crate) fn take(&self, object: &mut Map<String, Value>) -> Place {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let kind = text(object.get("kind"));
        let name = text(object.get("metadata").and_then(|metadata| metadata.get("name")));
        let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return Place::file(self.shown.clone()) };
        let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
            return Place::file(self.shown.clone());
        };
        let origin = if self.keeps { annotations.get(ORIGIN).cloned() } else { annotations.remove(ORIGIN) };
        if origin.is_some() && annotations.is_empty() {
            metadata.remove("annotations");
        }
        let file = origin.as_ref().and_then(Value::as_str).and_then(|origin| self.file(origin));
        let Some(file) = file.filter(|file| *file != self.shown) else { return Place::file(self.shown.clone()) };
        Place { built_by: Some(self.builder(&self.patches.of(&kind, &name))), ..Place::file(file) }
    }

    /// Returns the description of the file that built an object, with the patches that may have changed the object.
    fn builder(&self, patches: &[&str]) -> Arc<str> {
        match patches {
            [] => self.shown.clone(),
            [only] => format!("{} with the patch {only}", self.shown).into(),
            [first @ .., last] if first.len() < SHOWN_PATCHES => {
                format!("{} with the patches {} and {last}", self.shown, first.join(", ")).into()
            }
            many => format!("{} with {} patches", self.shown, many.len()).into(),
        }
    }

    fn file(&self, origin: &str) -> Option<Arc<str>> {
        let fields = read_fields(origin, &Limits::new(|| Duration::ZERO)).ok()?;
        let path = ["path", "configuredIn"].iter().find_map(|field| fields.get(*field)?.as_str())?;
        self.files.get(&*resolve(&self.directory, path)?).cloned()
    }
}

/// Returns the name of an object in the output, for messages; `None` if the name is unclear.
pub(crate) fn name(object: &Map<String, Value>) -> Option<String> {
    let text = |value: &Value| value.as_str().map(|text| printable(text).chars().take(100).collect::<String>());
    let kind = text(object.get("kind")?)?;
    Some(match object.get("metadata").and_then(|metadata| text(metadata.get("name")?)) {
        Some(name) => format!("{kind} {name}"),
        None => kind,
    })
}

/// A kustomization that requests the annotation.
pub(super) struct Asking {
    /// Whether the kustomization already requested the annotation.
    pub(super) keeps: bool,
    /// The changed content of the kustomization, if any.
    pub(super) content: Option<Vec<u8>>,
}

/// Adds the request for the annotation to a kustomization with these fields. If possible, only a line at the end of the
/// text is added, because the tool looks for deprecated fields in the text.
pub(super) fn asking(content: &[u8], root: &Map<String, Value>) -> Asking {
    let asked = json!([ASKED]);
    let mut changed = root.clone();
    match changed.get_mut(METADATA) {
        Some(Value::Array(all)) if all.iter().any(|one| one == ASKED) => return Asking { keeps: true, content: None },
        Some(Value::Array(all)) => all.push(ASKED.into()),
        None | Some(Value::Null) => {
            changed.insert(METADATA.to_owned(), asked);
            let end = if content.ends_with(b"\n") || content.is_empty() { "" } else { "\n" };
            let line = format!("{end}{METADATA}: [{ASKED}]\n");
            let appended = [content, line.as_bytes()].concat();
            if fields(&appended).is_ok_and(|read| read == changed) {
                return Asking { keeps: false, content: Some(appended) };
            }
        }
        // The tool refuses this value.
        Some(_) => return Asking { keeps: false, content: None },
    }
    Asking { keeps: false, content: Some(Value::Object(changed).to_string().into_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::super::closure::closure;
    use super::super::closure::tests::Files;
    use super::*;

    #[test]
    fn a_kustomization_asks_for_the_annotation_and_stays_as_it_is_otherwise() {
        let check = |text: &str, keeps: bool, expected: Option<&str>| {
            let asking = asking(text.as_bytes(), &fields(text.as_bytes()).unwrap());
            let content = asking.content.map(|content| String::from_utf8(content).unwrap());
            assert_eq!((asking.keeps, content.as_deref()), (keeps, expected), "{text:?}");
        };
        let line = "buildMetadata: [originAnnotations]\n";
        check("", false, Some(line));
        check("patches: [a.yaml]\n", false, Some(&format!("patches: [a.yaml]\n{line}")));
        check("resources:\n- a.yaml", false, Some(&format!("resources:\n- a.yaml\n{line}")));
        check("{namePrefix: a}\n", false, Some(r#"{"buildMetadata":["originAnnotations"],"namePrefix":"a"}"#));
        check(" namePrefix: a\n", false, Some(r#"{"buildMetadata":["originAnnotations"],"namePrefix":"a"}"#));
        check("namePrefix: a\n---\n", false, Some(r#"{"buildMetadata":["originAnnotations"],"namePrefix":"a"}"#));
        check("buildMetadata: [originAnnotations]\n", true, None);
        check(
            "buildMetadata: [managedByLabel]\n",
            false,
            Some(r#"{"buildMetadata":["managedByLabel","originAnnotations"]}"#),
        );
        check("buildMetadata: all\n", false, None);
    }

    #[test]
    fn an_object_is_at_the_file_that_held_it_and_the_annotation_goes() {
        let mut files = Files(vec![
            ("over/kustomization.yaml", "resources: [../base, own.yaml]\n"),
            ("over/own.yaml", "a: b\n"),
            ("base/kustomization.yaml", "resources: [d.yaml]\n"),
            ("base/d.yaml", "a: b\n"),
        ]);
        let read = closure(&mut files, "over/kustomization.yaml").unwrap();
        let check = |annotations: Value, keeps: bool, expected: (&str, Value)| {
            let origins = Origins::new("over/kustomization.yaml", "over/kustomization.yaml", &read, keeps);
            let mut object = json!({"metadata": {"annotations": annotations}});
            let place = origins.take(object.as_object_mut().unwrap());
            assert_eq!((place.to_string(), object["metadata"].clone()), (expected.0.to_owned(), expected.1));
        };
        let from = |path: &str| json!({ORIGIN: format!("path: {path}\n")});
        check(from("../base/d.yaml"), false, ("base/d.yaml, built by over/kustomization.yaml", json!({})));
        check(
            from("own.yaml"),
            true,
            ("over/own.yaml, built by over/kustomization.yaml", json!({"annotations": from("own.yaml")})),
        );
        let configured = "configuredIn: ../base/kustomization.yaml\nconfiguredBy:\n  apiVersion: builtin\n  kind: X\n";
        check(
            json!({ORIGIN: configured, "a": "b"}),
            false,
            ("base/kustomization.yaml, built by over/kustomization.yaml", json!({"annotations": {"a": "b"}})),
        );
        files.0.push(("over/p.yaml", "{kind: Deployment, metadata: {name: web}}"));
        files.0[0].1 = "resources: [../base, own.yaml]\npatches: [{path: p.yaml}]\n";
        let patched = closure(&mut files, "over/kustomization.yaml").unwrap();
        let patches = Patches::read(&mut files, &patched, "over/kustomization.yaml").unwrap();
        let origins = Origins::new("over/kustomization.yaml", "over/kustomization.yaml", &patched, false);
        let origins = origins.patched_by(patches);
        for (name, end) in [("web", " with the patch over/p.yaml"), ("api", "")] {
            let metadata = json!({"name": name, "annotations": from("../base/d.yaml")});
            let mut object = json!({"kind": "Deployment", "metadata": metadata});
            let place = origins.take(object.as_object_mut().unwrap());
            assert_eq!(place.to_string(), format!("base/d.yaml, built by over/kustomization.yaml{end}"));
        }
        // Only input files are named.
        for other in ["../../etc/passwd", "absent.yaml", "[", ""] {
            check(from(other), false, ("over/kustomization.yaml", json!({})));
        }
        check(json!({"a": "b"}), false, ("over/kustomization.yaml", json!({"annotations": {"a": "b"}})));
    }

    #[test]
    fn a_problem_of_what_was_built_names_the_file_and_the_field_and_no_line() {
        let mut files =
            Files(vec![("over/kustomization.yaml", "resources: [own.yaml]\n"), ("over/own.yaml", "a: b\n")]);
        let read = closure(&mut files, "over/kustomization.yaml").unwrap();
        let origins = Origins::new("over/kustomization.yaml", "over/kustomization.yaml", &read, false);
        let decode = |document: &str| {
            let printed = format!("{}---\n{document}", "# line\n".repeat(75));
            let decoded = crate::decode_rendered(&origins, printed.as_bytes(), &Limits::new(|| Duration::ZERO));
            let objects = decoded.objects.iter().map(|object| format!("{} @ {}", object.key, object.place));
            objects.chain(decoded.problems.iter().map(ToString::to_string)).collect::<Vec<_>>().join("\n")
        };
        let annotated = |rest: &str| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations:\n    {ORIGIN}: |\n      path: own.yaml\n{rest}"
            )
        };
        assert_eq!(decode(&annotated("")), "ConfigMap a @ over/own.yaml, built by over/kustomization.yaml");
        assert_eq!(
            decode(&annotated("  labels: {x: 1}\n")),
            "over/own.yaml, built by over/kustomization.yaml: ConfigMap a: metadata.labels.x is a number, not a string (put the value in quotes)"
        );
        assert_eq!(
            decode("a: [\n").split(": ").take(2).collect::<Vec<_>>().join(": "),
            "over/kustomization.yaml: its output is invalid"
        );
    }
}
