//! Finds the objects of a chart that depend on values of Secrets, and marks them.
//!
//! A chart can transform a value in any way, such as by `b64enc`. So the chart is also rendered with a decoy: other
//! strings and numbers in place of those of Secrets. An object that is the same in both renderings contains no value of a
//! Secret.
//!
//! Invariant: an object that differs, or that only one rendering has, is marked. If the rendering with the decoy fails,
//! all objects are marked.
//! Invariant: no name or namespace of an object contains a value of a Secret, because names are shown everywhere.
//! Invariant: a problem of the objects is shown only if the rendering with the decoy has the same one.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_manifest::Problem;
use mainstay_object::{Key, Object, Place};

/// Minimum length in bytes of a value that is searched in names. Shorter values, such as `prod`, are also parts of names
/// that do not depend on them.
const SEARCHED: usize = 6;
const HINT: &str = "name the object by a value of a ConfigMap, or by `values`";

/// Replaces the words of a problem, which may quote a value.
const WITHHELD: &str = "its output with the values of Secrets is invalid; the message is withheld";
const WITHHELD_HINT: &str = "run `helm template` with these values in a checkout";

/// The objects of a chart, or its problems.
pub(super) type Rendered = Result<Vec<Arc<Object>>, Vec<Problem>>;

/// Marks the objects that differ from those of the decoy, and withholds problems that differ. `decoy` is `None` if Helm
/// refuses it. `texts` are the values of Secrets.
///
/// # Errors
/// The problems of the chart, and one for each object whose name or namespace contains a value of a Secret.
pub(super) fn marked(rendered: Rendered, decoy: Option<&Rendered>, texts: &[String]) -> Rendered {
    let objects = rendered.map_err(|problems| {
        let known = decoy.and_then(|decoy| decoy.as_ref().err()).map(Vec::as_slice).unwrap_or_default();
        problems.into_iter().map(|problem| shown(problem, known)).collect::<Vec<_>>()
    })?;
    let same = decoy.and_then(|decoy| decoy.as_ref().ok()).into_iter().flatten();
    let same: HashMap<&Key, &Arc<Object>> = same.map(|object| (&object.key, object)).collect();
    let texts: Vec<String> =
        texts.iter().filter(|text| text.len() >= SEARCHED).map(|text| text.to_ascii_lowercase()).collect();
    let shows = |key: &Key| {
        let parts = [Some(&*key.name), key.namespace.as_deref()];
        parts.into_iter().flatten().any(|part| texts.iter().any(|text| part.to_ascii_lowercase().contains(&**text)))
    };
    let (mut all, mut problems) = (Vec::with_capacity(objects.len()), Vec::new());
    for object in objects {
        match same.get(&object.key) {
            Some(other) if other.json() == object.json() => all.push(object),
            None if shows(&object.key) => {
                let what = format!(
                    "the name or namespace of an object of the kind {} contains a value of a Secret of \
                     spec.render.helm.valuesFrom",
                    object.key.kind
                );
                problems.push(Problem::new(object.place.clone(), what, Some(HINT)));
            }
            _ => all.push(Arc::new(Arc::unwrap_or_clone(object).from_secret())),
        }
    }
    if problems.is_empty() { Ok(all) } else { Err(problems) }
}

/// Returns a problem, without its words unless it is one of the known problems.
fn shown(problem: Problem, known: &[Problem]) -> Problem {
    if known.contains(&problem) {
        return problem;
    }
    Problem::new(Place::file(&*problem.place.file), WITHHELD, Some(WITHHELD_HINT))
}

/// Returns the problem of objects with values of Secrets that the GitSync changes. The tool that makes the changes reads
/// files.
pub(super) fn unwritable(objects: &[Arc<Object>]) -> Option<Problem> {
    let object = objects.iter().find(|object| object.is_from_secret())?;
    let what = format!(
        "{}: it contains a value of a Secret, and `patches`, `images`, `components` and changes of names or namespaces of \
         the GitSync are made by a tool that reads files",
        object.key
    );
    let hint = "make these changes by values of the chart, or let the chart reference an existing Secret";
    Some(Problem::new(object.place.clone(), what, Some(hint)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(name: &str, data: &str) -> Arc<Object> {
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": data}});
        Arc::new(Object::from_value(&value, Place::file("chart/templates/a.yaml")).unwrap())
    }

    fn names(objects: &[Arc<Object>]) -> Vec<String> {
        let mark = |object: &Arc<Object>| if object.is_from_secret() { "*" } else { "" };
        objects.iter().map(|object| format!("{}{}", object.key.name, mark(object))).collect()
    }

    #[test]
    fn an_object_is_marked_unless_the_decoy_has_the_same() {
        let objects = || vec![map("same", "1"), map("other", "hunter22"), map("only", "1")];
        let decoy = Ok(vec![map("same", "1"), map("other", "decoy")]);
        let texts = ["hunter22".to_owned(), "on".to_owned()];
        assert_eq!(names(&marked(Ok(objects()), Some(&decoy), &texts).unwrap()), ["same", "other*", "only*"]);
        assert_eq!(names(&marked(Ok(objects()), None, &texts).unwrap()), ["same*", "other*", "only*"]);
    }

    #[test]
    fn a_name_with_a_value_of_a_secret_is_refused_without_the_value() {
        let texts = ["Hunter22".to_owned()];
        let decoy = Ok(vec![map("decoy-a", "1"), map("hunter22-fixed", "1")]);
        let objects = vec![map("hunter22-a", "1"), map("hunter22-fixed", "1")];
        let problems = marked(Ok(objects), Some(&decoy), &texts).unwrap_err();
        let [problem] = &*problems else { panic!("{problems:?}") };
        assert!(problem.to_string().contains("ConfigMap contains a value of a Secret"), "{problem}");
        assert!(!problem.to_string().contains("hunter22"), "{problem}");
    }

    #[test]
    fn a_problem_is_shown_only_if_the_decoy_has_it() {
        let problem = |what: &str| Problem::new(Place::file("chart/templates/a.yaml"), what, Some("correct it"));
        let found = || Err(vec![problem("a hook of Helm"), problem("key hunter22 is duplicated")]);
        let said = |decoy: Option<&Rendered>| {
            marked(found(), decoy, &[]).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let both = said(Some(&Err(vec![problem("a hook of Helm"), problem("key decoy is duplicated")])));
        assert!(both.contains("a hook of Helm") && both.contains("withheld") && !both.contains("hunter22"), "{both}");
        for decoy in [None, Some(&Ok(Vec::new()))] {
            assert!(!said(decoy).contains("hook"), "{}", said(decoy));
        }
    }
}
