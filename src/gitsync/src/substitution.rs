//! Substitutes variables in the decoded objects of a commit. Each object is printed as kustomize prints it,
//! substituted, and decoded again like any other document.
//!
//! Invariant: an object without a `$` does not change, and costs one scan of its bytes.
//! Invariant: a message contains the object, the field and the beginning of the expression. It contains no value, no
//! string with a value of a Secret, and no encrypted string.
//! Invariant: a value of a Secret, or a decrypted value, becomes only the value of the field with the variable: never a
//! key, a name or a different field. The parts of objects that are shown therefore contain no such value.
//!
//! Not here: the sources of values (`values`), and the syntax (`render`).

use std::sync::Arc;

use serde_json::{Map, Value};

use super::values::Values;
use mainstay_api::names::{ANNOTATION_PREFIX, FLUX_SUBSTITUTE};
use mainstay_manifest::render::{ExpressionFault, Undefined, may_hold_expressions, normal_form, substitute};
use mainstay_manifest::{Limits, Problem, read_object, read_value};
use mainstay_object::{Object, Retyped, Step, path_text};

const DEFINE: &str = "define it in spec.substitute or in what spec.substituteFrom names, give it a default (`${name:=default}`), \
    or write `$${` for a plain `${`";
/// Maximum number of remembered fields per object that are no longer strings, and of characters of each.
const MAX_RETYPED: usize = 20;
const SHOWN: usize = 100;
const WITHHELD: &str = "the result cannot be applied (the error is withheld: it may quote a Secret)";
const DECRYPTED: &str =
    "an expression in it cannot be replaced by its value (the error is withheld: the object was encrypted)";
const FROM_SECRET: &str = "put that value into a ConfigMap or spec.substitute: keys and names are shown everywhere";

/// The objects of a commit with their values.
#[derive(Debug, Default)]
pub(super) struct Substituted {
    /// All objects in order.
    pub(super) objects: Vec<Arc<Object>>,
    pub(super) problems: Vec<Problem>,
    /// The objects with expressions before substitution, for the next substitution.
    pub(super) with_expressions: Vec<Arc<Object>>,
}

/// Substitutes variables in objects.
pub(super) fn with_values(objects: Vec<Arc<Object>>, values: &Values, limits: &Limits) -> Substituted {
    let mut all = Substituted::default();
    let until = (limits.clock)().saturating_add(limits.time);
    for object in objects {
        if !may_hold_expressions(object.json()) {
            all.objects.push(object);
            continue;
        }
        if (limits.clock)() > until {
            let hint = "spread the files over several GitSyncs, each with a baseDir of its own";
            all.problems.push(Problem::new(
                object.place.clone(),
                "timed out while variables were substituted",
                Some(hint),
            ));
            break;
        }
        match one(&object, values, limits) {
            Ok(substituted) => all.objects.extend(substituted),
            Err(problems) => all.problems.extend(problems),
        }
        // A decrypted object differs from the one that was read.
        if !object.is_from_secret() {
            all.with_expressions.push(object);
        }
    }
    all
}

/// Substitutes variables in one object; `None` if the object is omitted.
fn one(object: &Object, values: &Values, limits: &Limits) -> Result<Option<Arc<Object>>, Vec<Problem>> {
    let problem =
        |what: String, hint: Option<&str>| Problem::new(object.place.clone(), format!("{}: {what}", object.key), hint);
    let Value::Object(map) = object.value() else { return Ok(None) };
    let is_decrypted = object.is_from_secret();
    let found = if values.are_substituted() && !is_disabled(&map) { text_with_values(&map, values) } else { Ok(None) };
    let (hidden, is_confidential, new) = match found {
        Err(_) if is_decrypted => return Err(vec![problem(DECRYPTED.to_owned(), Some(DEFINE))]),
        Err(faults) => return Err(faults.into_iter().map(|(what, hint)| problem(what, hint)).collect()),
        Ok(None) => (Vec::new(), is_decrypted, map),
        Ok(Some((text, used))) => {
            let hidden: Vec<_> = used.into_iter().filter(|name| values.is_secret(name)).collect();
            let is_confidential = is_decrypted || !hidden.is_empty();
            let shown = |what: String| if is_confidential { WITHHELD.to_owned() } else { after(&what) };
            let new = read_value(&text, limits).map_err(|what| vec![problem(shown(what), None)])?;
            if is_confidential {
                let (old, new) = (Value::Object(map), Value::Object(new.clone()));
                let confined = Confined { values, is_decrypted, path: Vec::new() }.check(&old, &new);
                confined.map_err(|what| vec![problem(what, Some(FROM_SECRET))])?;
            }
            (hidden, is_confidential, new)
        }
    };
    let mut retyped = if is_decrypted { Vec::new() } else { retyped(&object.value(), &new) };
    // The type of a value of a Secret stays hidden.
    retyped.retain(|field| !hidden.iter().any(|name| field.written.contains(&**name)));
    let after = |what: &String| Problem { hint: Retyped::hint(&retyped, what), ..problem(after(what), None) };
    match read_object(new, &object.place) {
        Ok(Some(read)) if is_confidential => {
            Ok(Some(Arc::new(Arc::unwrap_or_clone(read).from_secret().with_retyped(retyped))))
        }
        Ok(read) => Ok(read.map(|read| match &*retyped {
            [] => read,
            _ => Arc::new(Arc::unwrap_or_clone(read).with_retyped(retyped)),
        })),
        Err(flaws) if is_confidential => {
            let hint = flaws.iter().find_map(|what| Retyped::hint(&retyped, what));
            Err(vec![Problem { hint, ..problem(WITHHELD.to_owned(), None) }])
        }
        Err(flaws) => Err(flaws.iter().map(after).collect()),
    }
}

/// Returns the strings with variables that became another type.
fn retyped(before: &Value, after: &Map<String, Value>) -> Vec<Retyped> {
    let Value::Object(before) = before else { return Vec::new() };
    let mut found = Vec::new();
    strings(before, &mut Vec::new(), &mut |path, written| {
        let Some(is_now) = at(after, path).and_then(name_of_type) else { return };
        if found.len() < MAX_RETYPED {
            let written = written.chars().take(SHOWN).collect();
            found.push(Retyped { field: path_text(path), written, is_now });
        }
    });
    found
}

fn at<'v>(map: &'v Map<String, Value>, path: &[Step]) -> Option<&'v Value> {
    let [Step::Key(first), rest @ ..] = path else { return None };
    rest.iter().try_fold(map.get(first)?, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Item(number) => value.get(number),
    })
}

/// Returns the name of a value's type; `None` for a string.
fn name_of_type(value: &Value) -> Option<&'static str> {
    match value {
        Value::String(_) => None,
        Value::Null => Some("null"),
        Value::Bool(_) => Some("true or false"),
        Value::Number(_) => Some("a number"),
        Value::Array(_) => Some("a list"),
        Value::Object(_) => Some("a map"),
    }
}

fn after(what: &str) -> String {
    format!("after substitution {what}")
}

/// Whether Flux's label or annotation disables substitution.
fn is_disabled(map: &Map<String, Value>) -> bool {
    let in_metadata = |field: &str| map.get("metadata")?.get(field)?.get(FLUX_SUBSTITUTE)?.as_str();
    ["labels", "annotations"].iter().any(|field| in_metadata(field) == Some("disabled"))
}

type Faults = Vec<(String, Option<&'static str>)>;
type Used = std::collections::BTreeSet<String>;

/// Returns the text of an object after substitution, and its variables; `None` if nothing changes.
fn text_with_values(map: &Map<String, Value>, values: &Values) -> Result<Option<(String, Used)>, Faults> {
    let text = normal_form(map);
    let get = |name: &str| values.get(name);
    match substitute(&text, &get, values.undefined) {
        Ok(substituted) if substituted.text == text => Ok(None),
        Ok(substituted) => Ok(Some((substituted.text, substituted.used))),
        Err(faults) => {
            let mut located = Faults::new();
            let mut path = Vec::new();
            strings(map, &mut path, &mut |path, string| {
                let found = substitute(string, &get, values.undefined).err().unwrap_or_default();
                located.extend(found.into_iter().map(|fault| reported(Some(path), &fault)));
            });
            if located.is_empty() {
                located.extend(faults.iter().map(|fault| reported(None, fault)));
            }
            Err(located)
        }
    }
}

fn reported(path: Option<&[Step]>, fault: &ExpressionFault) -> (String, Option<&'static str>) {
    let at = path.map(|path| format!("{}: ", path_text(path))).unwrap_or_default();
    (format!("{at}{}: {}", fault.expression, fault.what), Some(DEFINE))
}

/// Visits every string and key of a map that may contain an expression, with its path.
fn strings(map: &Map<String, Value>, path: &mut Vec<Step>, see: &mut dyn FnMut(&[Step], &str)) {
    for (key, value) in map {
        path.push(Step::Key(key.clone()));
        if key.contains('$') {
            see(path, key);
        }
        strings_of(value, path, see);
        path.pop();
    }
}

fn strings_of(value: &Value, path: &mut Vec<Step>, see: &mut dyn FnMut(&[Step], &str)) {
    match value {
        Value::Object(map) => strings(map, path, see),
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                path.push(Step::Item(number));
                strings_of(item, path, see);
                path.pop();
            }
        }
        Value::String(text) if text.contains('$') => see(path, text),
        _ => {}
    }
}

/// Checks that values of Secrets stay in the fields that reference them.
struct Confined<'v> {
    values: &'v Values,
    /// Whether every hidden string may have been encrypted.
    is_decrypted: bool,
    path: Vec<Step>,
}

impl Confined<'_> {
    /// Whether a string references a variable whose value is from a Secret.
    fn is_from_secret(&self, text: &str) -> bool {
        let get = |name: &str| self.values.get(name);
        let used = substitute(text, &get, Undefined::Empty).map(|substituted| substituted.used);
        // A string that is no valid expression may be part of an expression that spans several strings.
        used.map_or(text.contains('$'), |used| used.iter().any(|name| self.values.is_secret(name)))
    }

    fn check(&mut self, old: &Value, new: &Value) -> Result<(), String> {
        match (old, new) {
            (Value::Object(before), Value::Object(after)) if before.len() == after.len() => {
                for (key, value) in before {
                    self.path.push(Step::Key(key.clone()));
                    let found = self.key(key).and_then(|key| after.get(&key));
                    let found = found.ok_or_else(|| {
                        self.reported("a key would contain a value of a Secret, or become a different key")
                    })?;
                    self.check(value, found)?;
                    self.path.pop();
                }
                Ok(())
            }
            (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
                for (number, (old, new)) in before.iter().zip(after).enumerate() {
                    self.path.push(Step::Item(number));
                    self.check(old, new)?;
                    self.path.pop();
                }
                Ok(())
            }
            (Value::String(text), new)
                if self.is_from_secret(text) || self.is_decrypted && !self.is_shown() && text.contains('$') =>
            {
                if self.is_shown() {
                    return Err(self.reported("it would hold a value of a Secret"));
                }
                let is_one = !matches!(new, Value::Object(_) | Value::Array(_));
                if is_one { Ok(()) } else { Err(self.reported("a value of a Secret would become a map or a list")) }
            }
            (Value::String(text), _) if text.contains('$') => Ok(()),
            (old, new) if old == new => Ok(()),
            _ => Err(self.reported("a value of a Secret would change another field")),
        }
    }

    /// Returns the substituted key; `None` if it contains a value of a Secret.
    fn key(&self, key: &str) -> Option<String> {
        if !key.contains('$') {
            return Some(key.to_owned());
        }
        let get = |name: &str| self.values.get(name);
        let substituted = substitute(key, &get, Undefined::Empty).ok()?;
        substituted.used.iter().all(|name| !self.values.is_secret(name)).then_some(substituted.text)
    }

    /// Whether the field at this path is shown: metadata without labels and annotations, except for Mainstay's
    /// annotations.
    fn is_shown(&self) -> bool {
        let step = |at: usize| match self.path.get(at) {
            Some(Step::Key(key)) => &**key,
            _ => "",
        };
        match (step(0), step(1)) {
            ("metadata", "labels" | "annotations") => step(2).starts_with(ANNOTATION_PREFIX),
            ("apiVersion" | "kind" | "metadata", _) => true,
            _ => false,
        }
    }

    fn reported(&self, what: &str) -> String {
        format!("{}: {what}", path_text(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use mainstay_cluster::secrets::{Contents, Known};
    use mainstay_manifest::render::Origins;
    use mainstay_manifest::{Form, decode_rendered};

    /// Substitutes a document with values of the spec and of a Secret.
    fn check(document: &str) -> String {
        let spec = json!({
            "gitRepository": "r", "substitute": {"V": "x", "N": "1", "MAP": "{k: v}", "QUOTE": "\"", "EMPTY": ""},
            "substituteFrom": [{"kind": "Secret", "name": "s"}],
        });
        let secret = [("S", "hunter2"), ("SMAP", "{hunter2: 1}"), ("SQUOTE", "', hunter2: '"), ("SDASH", "- hunter2")];
        let data = secret.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        let known = Known::Data(Arc::new(Contents { data: data.collect(), ..Contents::default() }));
        let values = Values::of(&serde_json::from_value(spec).unwrap(), &[known]).unwrap().unwrap();
        let limits = Limits { form: Form::WithExpressions, ..Limits::new(|| Duration::ZERO) };
        let text = format!("apiVersion: v1\nkind: X\nmetadata: {{name: a}}\n{document}\n");
        let decoded = decode_rendered(&Origins::of_file("a.yaml"), text.as_bytes(), &limits);
        assert_eq!(decoded.problems, []);
        let found = with_values(decoded.objects, &values, &limits);
        if let [problem] = &*found.problems {
            assert!(!problem.to_string().contains("hunter2"), "{problem}");
            return problem.what.clone();
        }
        let mut value = found.objects[0].value();
        let map = value.as_object_mut().unwrap();
        map.retain(|key, _| !["apiVersion", "kind", "metadata"].contains(&&**key));
        let mark = if found.objects[0].is_confidential() { " (confidential)" } else { "" };
        format!("{value}{mark}")
    }

    #[test]
    fn types_are_inferred_again() {
        assert_eq!(
            check("spec: {a: \"${N}\", b: '${QUOTE}${N}${QUOTE}', c: \"${EMPTY}\"}"),
            r#"{"spec":{"a":1,"b":"1","c":null}}"#
        );
        assert_eq!(check("spec: {a: \"${MAP}\", \"${V}\": 2}"), r#"{"spec":{"a":{"k":"v"},"x":2}}"#);
        assert_eq!(check("spec: |\n  a ${V}\n   $$ ${V}\n"), r#"{"spec":"a x\n $ x\n"}"#);
        assert_eq!(check("spec: {a: $(V) $V}"), r#"{"spec":{"a":"$(V) $V"}}"#);
    }

    #[test]
    fn a_text_with_a_secret_value_is_confidential_and_the_variable_keeps_its_place() {
        assert_eq!(check("spec: {a: \"x-${S}\"}"), r#"{"spec":{"a":"x-hunter2"}} (confidential)"#);
        assert_eq!(check("spec: {a: \"${S} x: y\", b: [\"${SMAP}}\"]}"), format!("X a: {WITHHELD}"));
        assert_eq!(
            check("spec: {b: [\"${SDASH}\"]}"),
            "X a: spec.b[0]: a value of a Secret would become a map or a list"
        );
        assert_eq!(check("spec: {a: \"${S:0:0}${V}\"}"), r#"{"spec":{"a":"x"}} (confidential)"#);
        assert_eq!(
            check("spec: {\"${S}\": 1}"),
            "X a: spec[\"${S}\"]: a key would contain a value of a Secret, or become a different key"
        );
        assert_eq!(check("spec: {a: \"${SMAP}\"}"), "X a: spec.a: a value of a Secret would become a map or a list");
        assert_eq!(check("spec: {a: [\"'${SQUOTE}\"]}"), format!("X a: {WITHHELD}"));
    }

    #[test]
    fn a_string_that_becomes_a_number_names_the_variable_and_the_quoting() {
        let spec = json!({"gitRepository": "r", "substitute": {"SHA": "83e2019d"}});
        let values = Values::of(&serde_json::from_value(spec).unwrap(), &[]).unwrap().unwrap();
        let limits = Limits { form: Form::WithExpressions, ..Limits::new(|| Duration::ZERO) };
        let found = |metadata: &str, more: &str| {
            let text = format!("apiVersion: v1\nkind: X\nmetadata: {{name: a{metadata}}}\n{more}\n");
            let decoded = decode_rendered(&Origins::of_file("a.yaml"), text.as_bytes(), &limits);
            with_values(decoded.objects, &values, &limits)
        };
        let refused = found(", labels: {sha: \"${SHA:0:6}\"}", "");
        let problem = refused.problems[0].to_string();
        let hint = "sha: ${SHA:0:6} became a number: write ${quote}${SHA:0:6}${quote}, and set `quote: '\"'` in spec.substitute";
        assert!(problem.starts_with("a.yaml: X a: after substitution ") && problem.contains(hint), "{problem}");
        // For other fields, only the server knows the type.
        let read = found("", "data: {sha: \"${SHA:0:6}\", text: \"x${SHA}\"}");
        let object = &read.objects[0];
        let said = object.quoting_hint(".data.sha: expected string, got 8.3e+202").unwrap();
        assert!(said.starts_with("data.sha: ${SHA:0:6} became a number: write "), "{said}");
        assert_eq!(object.quoting_hint(".data.text: expected string, got 1"), None);
    }

    #[test]
    fn a_string_beside_a_secret_value_names_the_quoting_but_the_secret_value_does_not() {
        let spec = json!({
            "gitRepository": "r", "substitute": {"SHA": "83e2019d"}, "substituteFrom": [{"kind": "Secret", "name": "s"}],
        });
        let data = [("PIN".to_owned(), ByteString(b"4711".to_vec()))];
        let known = Known::Data(Arc::new(Contents { data: data.into(), ..Contents::default() }));
        let values = Values::of(&serde_json::from_value(spec).unwrap(), &[known]).unwrap().unwrap();
        let limits = Limits { form: Form::WithExpressions, ..Limits::new(|| Duration::ZERO) };
        let found = |metadata: &str| {
            let text = format!(
                "apiVersion: v1\nkind: X\nmetadata: {{name: a{metadata}}}\ndata: {{pin: \"${{PIN}}\", sha: \"${{SHA:0:6}}\"}}\n"
            );
            let decoded = decode_rendered(&Origins::of_file("a.yaml"), text.as_bytes(), &limits);
            with_values(decoded.objects, &values, &limits)
        };
        let object = &found("").objects[0];
        assert!(object.is_confidential());
        let said = object.quoting_hint(".data.sha: expected string, got 8.3e+202").unwrap();
        assert!(said.starts_with("data.sha: ${SHA:0:6} became a number: write "), "{said}");
        assert_eq!(object.quoting_hint(".data.pin: expected string, got 4711"), None);
        let problem = found(", labels: {sha: \"${SHA:0:6}\"}").problems[0].to_string();
        assert!(problem.contains(WITHHELD) && problem.contains("sha: ${SHA:0:6} became a number"), "{problem}");
        let problem = found(", labels: {pin: \"${PIN}\"}").problems[0].to_string();
        assert!(problem.contains(WITHHELD) && !problem.contains("became"), "{problem}");
    }

    #[test]
    fn faults_name_the_field() {
        assert_eq!(check("spec: {a: [1, \"${W}\"]}"), "X a: spec.a[1]: ${W}: the variable is not defined");
        assert_eq!(
            check("spec: {a: \"${V\"}"),
            "X a: spec.a: ${V: the closing brace is missing, or an invalid operator follows the name"
        );
        assert_eq!(
            check("spec: {a: \"${MAP} x\"}"),
            "X a: after substitution invalid YAML: while parsing a block mapping, did not find expected key"
        );
    }
}
