//! Decodes the output of `helm template` into objects, each with the template that it comes from.
//!
//! Invariant: if objects differ between two runs of the same chart, the chart is refused, and the problem names the
//! objects.
//! Invariant: a hook is never applied like an object that is not a hook.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::chart::{ChartFiles, of_source};
use super::helm::Outputs;
use crate::{Limits, Problem};
use mainstay_api::render::Hooks;
use mainstay_object::{Digest, Key, Object, Place, printable};

/// The annotation of hooks.
const HOOK: &str = "helm.sh/hook";
/// Events of hooks that never occur here. (`crd-install` is obsolete.)
const NEVER: [&str; 6] = ["test", "test-success", "test-failure", "pre-rollback", "post-rollback", "crd-install"];
/// Prefix of the line that names the template of the output below it.
const SOURCE: &str = "# Source: ";
/// Maximum number of objects named in one problem.
const SHOWN: usize = 3;

/// Returns the objects of a chart from the outputs of its runs.
///
/// # Errors
/// All problems that prevent the chart from being applied.
pub fn chart_objects(
    file: &str,
    files: &ChartFiles,
    outputs: &Outputs,
    hooks: Hooks,
    limits: &Limits,
) -> Result<Vec<Arc<Object>>, Vec<Problem>> {
    let first = decode(file, files, &outputs.first, limits)?;
    if let Some(second) = outputs.second.as_deref().filter(|second| *second != outputs.first) {
        let second = decode(file, files, second, limits)?;
        differences(file, &first, &second).map_or(Ok(()), |problem| Err(vec![problem]))?;
    }
    let (mut objects, mut problems) = (Vec::with_capacity(first.len()), Vec::new());
    for object in first {
        match (hook(&object), hooks) {
            (None, _) => objects.push(object),
            (Some(occasions), Hooks::Refuse) if occasions.iter().any(|occasion| !NEVER.contains(&&**occasion)) => {
                let occasions = occasions.join(", ");
                let what = format!("{} is a hook of Helm ({}), which is not run", object.key, printable(&occasions));
                let hint =
                    "turn it off in the values, or leave the chart's hooks out with spec.render.helm.hooks: Omit";
                problems.push(Problem::new(object.place.clone(), what, Some(hint)));
            }
            (Some(_), _) => {}
        }
    }
    if problems.is_empty() { Ok(objects) } else { Err(problems) }
}

/// Returns the events of a hook; `None` if the object is not a hook.
fn hook(object: &Object) -> Option<Vec<String>> {
    let is_possible = object.json().windows(HOOK.len()).any(|part| part == HOOK.as_bytes());
    let value = is_possible.then(|| object.value())?;
    let occasions = value.get("metadata")?.get("annotations")?.get(HOOK).and_then(Value::as_str)?;
    Some(occasions.split(',').map(|occasion| occasion.trim().to_owned()).collect())
}

/// Decodes the output of a run. Problems name the templates.
fn decode(file: &str, files: &ChartFiles, printed: &[u8], limits: &Limits) -> Result<Vec<Arc<Object>>, Vec<Problem>> {
    let sources = Sources::of(file, files, printed);
    let read = crate::decode_manifests(file, printed, limits);
    let at = |place: &Place| Place::file(sources.at(place.line));
    if !read.problems.is_empty() {
        let renamed = read.problems.into_iter().map(|problem| Problem {
            what: match sources.line(problem.place.line) {
                0 => problem.what,
                line => format!("line {line} of its output: {}", problem.what),
            },
            place: at(&problem.place),
            hint: problem.hint,
        });
        return Err(renamed.collect());
    }
    let mut objects = read.objects;
    for object in &mut objects {
        let place = at(&object.place);
        Arc::make_mut(object).place = place;
    }
    Ok(objects)
}

/// The templates of the output, each with the first line of its output.
struct Sources<'s> {
    chart: Arc<str>,
    begin: Vec<(u32, Option<&'s str>)>,
}

impl<'s> Sources<'s> {
    fn of(file: &str, files: &'s ChartFiles, printed: &[u8]) -> Self {
        let mut begin = Vec::new();
        let mut is_separated = true;
        for (line, number) in printed.split(|byte| *byte == b'\n').zip(1u32..) {
            if is_separated && let Some(source) = line.strip_prefix(SOURCE.as_bytes()) {
                let source = String::from_utf8_lossy(source);
                begin.push((number, of_source(file, &files.files, source.trim_end())));
            }
            is_separated = line.starts_with(b"---");
        }
        Self { chart: file.into(), begin }
    }

    fn find(&self, line: u32) -> Option<&(u32, Option<&'s str>)> {
        self.begin.get(self.begin.partition_point(|(begin, _)| *begin <= line).checked_sub(1)?)
    }

    /// Returns the template of a line, or the `Chart.yaml` if there is none.
    fn at(&self, line: u32) -> Arc<str> {
        self.find(line).and_then(|(_, file)| *file).map_or_else(|| Arc::clone(&self.chart), Arc::from)
    }

    /// Returns the number of a line within the output of its template.
    fn line(&self, line: u32) -> u32 {
        self.find(line).map_or(line, |(begin, _)| line - begin)
    }
}

/// Returns the problem that objects differ between two runs.
fn differences(file: &str, first: &[Arc<Object>], second: &[Arc<Object>]) -> Option<Problem> {
    let digests = |objects: &[Arc<Object>]| -> BTreeMap<Key, Digest> {
        objects.iter().map(|object| (object.key.clone(), object.digest)).collect()
    };
    let (before, after) = (digests(first), digests(second));
    let differs = |object: &&Arc<Object>| after.get(&object.key) != Some(&object.digest);
    let mut differing: Vec<&Arc<Object>> = first.iter().filter(differs).collect();
    if differing.is_empty() {
        differing = second.iter().filter(|object| !before.contains_key(&object.key)).collect();
    }
    let place = differing.first().map_or_else(|| Place::file(file), |object| object.place.clone());
    let mut names: Vec<String> = differing.iter().take(SHOWN).map(|object| object.key.to_string()).collect();
    match differing.len().saturating_sub(SHOWN) {
        _ if differing.is_empty() => return None,
        0 => {}
        more => names.push(format!("{more} more")),
    }
    let what = format!("each rendering of the chart gives different values: {}", names.join(", "));
    let hint = "a function such as randAlphaNum, genCA or now is the cause: set its result in the values, from an \
                existing Secret, or remove it";
    Some(Problem::new(place, what, Some(hint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_git::{Entry, EntryKind};

    fn files() -> ChartFiles {
        let mut found = ChartFiles::default();
        for path in ["app/Chart.yaml", "app/templates/a.yaml", "app/templates/b.yaml", "app/charts/db/templates/c.yaml"]
        {
            let id = "0".repeat(40).parse().unwrap();
            let entry = Entry { path: path.into(), id, size: 1, kind: EntryKind::File, executable: false, flaw: None };
            found.files.insert(path.into(), entry);
        }
        found
    }

    fn said(first: &str, second: &str, hooks: Hooks) -> String {
        let outputs = Outputs { first: first.as_bytes().to_vec(), second: Some(second.as_bytes().to_vec()) };
        let limits = Limits::new(|| std::time::Duration::ZERO);
        let lines: Vec<String> = match chart_objects("app/Chart.yaml", &files(), &outputs, hooks, &limits) {
            Ok(objects) => objects.iter().map(|object| format!("{} @ {}", object.key, object.place)).collect(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        };
        lines.join("\n")
    }

    fn document(source: &str, name: &str, more: &str) -> String {
        format!("---\n# Source: {source}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n{more}")
    }

    #[test]
    fn every_object_is_of_its_template() {
        let printed = document("web/templates/a.yaml", "a", "")
            + &document("web/charts/db/templates/c.yaml", "c", "")
            + &document(
                "web/charts/packed/templates/d.yaml",
                "d",
                "data:\n  k: |\n    # Source: web/templates/b.yaml\n",
            )
            + &document("web/../../etc/passwd", "e", "")
            + "---\n# Source: web/templates/b.yaml\n# nothing\n";
        assert_eq!(
            said(&printed, &printed, Hooks::Refuse),
            "ConfigMap a @ app/templates/a.yaml\nConfigMap c @ app/charts/db/templates/c.yaml\nConfigMap d @ \
             app/Chart.yaml\nConfigMap e @ app/Chart.yaml"
        );
        let broken = document("web/templates/a.yaml", "a", "") + &document("web/templates/b.yaml", "a: hush", "");
        assert_eq!(
            said(&broken, &broken, Hooks::Refuse).split(": ").take(2).collect::<Vec<_>>().join(": "),
            "app/templates/b.yaml: line 4 of its output"
        );
    }

    #[test]
    fn hooks_are_refused_by_name_or_left_out() {
        let with = |hook: &str| format!("  annotations: {{\"helm.sh/hook\": \"{hook}\"}}\n");
        let printed = document("web/templates/a.yaml", "a", &with("pre-install, post-upgrade"))
            + &document("web/templates/b.yaml", "b", &with("test"))
            + &document("web/templates/b.yaml", "c", "data: {helm.sh/hook: pre-install}\n");
        assert_eq!(
            said(&printed, &printed, Hooks::Refuse),
            "app/templates/a.yaml: ConfigMap a is a hook of Helm (pre-install, post-upgrade), which is not run (turn \
             it off \
             in the values, or leave the chart's hooks out with spec.render.helm.hooks: Omit)"
        );
        assert_eq!(said(&printed, &printed, Hooks::Omit), "ConfigMap c @ app/templates/b.yaml");
        let printed = document("web/templates/b.yaml", "b", &with("post-rollback,test"));
        assert_eq!(said(&printed, &printed, Hooks::Refuse), "");
    }

    #[test]
    fn objects_that_differ_between_runs_are_refused_by_name_without_values() {
        let run = |value: &str, name: &str| {
            document("web/templates/a.yaml", "a", "")
                + &document("web/templates/b.yaml", name, &format!("data: {{k: {value}}}\n"))
        };
        let why = said(&run("hush1", "b"), &run("hush2", "b"), Hooks::Refuse);
        assert!(
            why.starts_with("app/templates/b.yaml: each rendering of the chart gives different values: ConfigMap b ("),
            "{why}"
        );
        assert!(!why.contains("hush"), "{why}");
        let why = said(&run("x", "b-1"), &run("x", "b-2"), Hooks::Refuse);
        assert!(why.contains("values: ConfigMap b-1 ("), "{why}");
        let more = document("web/templates/b.yaml", "c", "");
        assert!(said(&run("x", "b"), &(run("x", "b") + &more), Hooks::Refuse).contains("values: ConfigMap c ("));
        // Comments are not applied, so they may differ.
        let commented = run("x", "b") + "# rendered at 12:00\n";
        assert_eq!(
            said(&run("x", "b"), &commented, Hooks::Refuse),
            said(&run("x", "b"), &run("x", "b"), Hooks::Refuse)
        );
    }
}
