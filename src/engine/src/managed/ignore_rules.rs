//! Parses `spec.ignore` into [`IgnoreRules`]: the ignored fields of each object.
//!
//! Invariant: fields that identify an object or its owner are never ignored.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use mainstay_api::ignore::IgnoreRule;
use mainstay_api::names::ANNOTATION_PREFIX;
use mainstay_api::overlay::PatchTarget;
use mainstay_object::{Key, Object, Pointer, Selector, pattern_fault, printable};

/// Maximum memory of a compiled regular expression, in bytes.
const PATTERN: usize = 1 << 17;
/// Maximum length of a regular expression, in bytes.
const LONGEST: usize = 1024;
/// Maximum number of rules, and of paths of one rule. [`Which`] has a bit for each rule.
const MOST: usize = 50;
/// Maximum number of paths of all rules.
const MOST_PATHS: usize = 500;
/// Metadata that identifies an object or that the API server writes.
const IDENTITY: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "generateName",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "managedFields",
];

/// The ignored fields, with the objects to which they apply.
#[derive(Clone, Debug, Default)]
pub struct IgnoreRules(Arc<[Rule]>);

/// A subset of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Which(u64);

#[derive(Debug)]
struct Rule {
    pointers: Vec<Pointer>,
    target: Target,
}

/// The objects of a rule. A missing field matches all.
#[derive(Debug, Default)]
struct Target {
    group: Option<Regex>,
    version: Option<Regex>,
    kind: Option<Regex>,
    name: Option<Regex>,
    namespace: Option<Regex>,
    labels: Selector,
    annotations: Selector,
}

impl IgnoreRules {
    /// Parses the rules.
    ///
    /// # Errors
    /// All problems, one per line, each with its field and the remedy.
    pub fn parse(rules: &[IgnoreRule]) -> Result<Self, String> {
        let mut wrong = Vec::new();
        if rules.len() > MOST {
            wrong.push(format!("spec.ignore has {} rules; at most {MOST} are allowed", rules.len()));
        }
        let paths = rules.iter().map(|rule| rule.paths.len()).sum::<usize>();
        if paths > MOST_PATHS {
            wrong.push(format!("spec.ignore names {paths} fields; at most {MOST_PATHS} are allowed"));
        }
        let read = |(at, rule): (usize, &IgnoreRule)| {
            let place = format!("spec.ignore[{at}]");
            if rule.paths.is_empty() || rule.paths.len() > MOST {
                wrong.push(format!("{place}.paths names {} fields; name 1 to {MOST}", rule.paths.len()));
            }
            let mut pointers = Vec::new();
            for (at, path) in rule.paths.iter().enumerate().take(MOST) {
                match pointer(path) {
                    Ok(pointer) => pointers.push(pointer),
                    Err(why) => wrong.push(format!("{place}.paths[{at}] ({}): {why}", printable(path))),
                }
            }
            let target = rule.target.as_ref().map(|target| Target::read(target, &place, &mut wrong));
            Rule { pointers, target: target.unwrap_or_default() }
        };
        let rules = rules.iter().enumerate().take(MOST).map(read).collect();
        if wrong.is_empty() { Ok(Self(rules)) } else { Err(wrong.join("\n")) }
    }

    /// Returns the rules whose target matches an object with this key; `None` if there are none.
    pub(super) fn which(&self, key: &Key, object: &Object) -> Option<Which> {
        let all = self.0.iter().enumerate();
        let which =
            all.filter(|(_, rule)| rule.target.matches(key, object)).fold(0, |which, (at, _)| which | (1 << at));
        (which != 0).then_some(Which(which))
    }

    /// Returns the fields of these rules in reverse document order, without duplicates.
    pub(super) fn pointers(&self, Which(which): Which) -> Vec<&Pointer> {
        let some = self.0.iter().enumerate().filter(|(at, _)| which & (1 << at) != 0);
        let mut pointers = some.flat_map(|(_, rule)| &rule.pointers).collect::<Vec<_>>();
        pointers.sort_by(|one, other| other.by_place(one));
        pointers.dedup();
        pointers
    }
}

impl Target {
    fn read(target: &PatchTarget, place: &str, wrong: &mut Vec<String>) -> Self {
        let mut regex = |field: &str, text: &Option<String>| {
            let text = text.as_deref().filter(|text| !text.is_empty())?;
            let is_long = text.len() > LONGEST;
            let built = if is_long { Err("it is longer than 1024 bytes".to_owned()) } else { whole(text) };
            built.map_err(|why| wrong.push(format!("{place}.target.{field} ({}): {why}", printable(text)))).ok()
        };
        let (group, version) = (regex("group", &target.group), regex("version", &target.version));
        let (kind, name) = (regex("kind", &target.kind), regex("name", &target.name));
        let namespace = regex("namespace", &target.namespace);
        let mut selector = |field: &str, text: &Option<String>| {
            let read = Selector::parse(text.as_deref().unwrap_or_default());
            read.map_err(|why| wrong.push(format!("{place}.target.{field}: {}", printable(&why)))).unwrap_or_default()
        };
        let labels = selector("labelSelector", &target.label_selector);
        let annotations = selector("annotationSelector", &target.annotation_selector);
        Self { group, version, kind, name, namespace, labels, annotations }
    }

    fn matches(&self, key: &Key, object: &Object) -> bool {
        let is = |regex: &Option<Regex>, text: &str| regex.as_ref().is_none_or(|regex| regex.is_match(text));
        if !(is(&self.kind, &key.kind)
            && is(&self.name, &key.name)
            && is(&self.namespace, key.namespace.as_deref().unwrap_or_default())
            && is(&self.group, &key.group)
            && is(&self.version, object.version()))
        {
            return false;
        }
        if self.labels.is_empty() && self.annotations.is_empty() {
            return true;
        }
        let document = object.value();
        let metadata = |field: &str| document.get("metadata")?.get(field)?.as_object();
        let (labels, annotations): (Option<&Map<String, Value>>, _) = (metadata("labels"), metadata("annotations"));
        self.labels.selects(labels) && self.annotations.selects(annotations)
    }
}

/// Compiles a regular expression that matches a whole name.
fn whole(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(&format!("^(?:{text})$")).size_limit(PATTERN).dfa_size_limit(PATTERN).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the compiled regular expression is too large".to_owned(),
        _ => match pattern_fault(text) {
            Some(fault) => format!("it is not a regular expression (the syntax is RE2's): {fault}"),
            None => "it is not a regular expression (the syntax is RE2's)".to_owned(),
        },
    })
}

fn pointer(path: &str) -> Result<Pointer, String> {
    let pointer = Pointer::parse(path)?;
    let tokens = pointer.tokens().iter().map(|token| &**token).collect::<Vec<_>>();
    match tokens.as_slice() {
        ["apiVersion" | "kind"] | ["apiVersion" | "kind", ..] => Err("it identifies the object".to_owned()),
        ["metadata"] => Err("it identifies the object; name a field in it, such as /metadata/labels/team".to_owned()),
        ["metadata", field, ..] if IDENTITY.contains(field) => {
            Err("it identifies the object, or is written by the API server".to_owned())
        }
        ["metadata", field @ ("labels" | "annotations")] => {
            Err(format!("it includes keys that Mainstay sets and reads; name each key, such as /metadata/{field}/team"))
        }
        ["metadata", "labels" | "annotations", name, ..] if name.starts_with(ANNOTATION_PREFIX) => {
            Err("it is Mainstay's own".to_owned())
        }
        _ => Ok(pointer),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mainstay_object::Place;

    fn parse(rules: Value) -> Result<IgnoreRules, String> {
        IgnoreRules::parse(&serde_json::from_value::<Vec<IgnoreRule>>(rules).unwrap())
    }

    #[test]
    fn all_problems_are_reported_with_their_places() {
        let wrong = parse(json!([
            {"paths": ["/spec/replicas", "spec/replicas", "/a~", "/kind", "/metadata", "/metadata/name", "/metadata/labels",
                       "/metadata/annotations/mainstay.dev~1prune", ""]},
            {"paths": [], "target": {"name": "(", "kind": "a{1000}{1000}{1000}", "labelSelector": "a=b,", "namespace": "x".repeat(1025)}},
        ]));
        let wrong = wrong.unwrap_err();
        for (line, expected) in wrong.lines().zip([
            "spec.ignore[0].paths[1] (spec/replicas): a JSON pointer must begin with `/`",
            "spec.ignore[0].paths[2] (/a~): `~` must be followed by",
            "spec.ignore[0].paths[3] (/kind): it identifies the object",
            "spec.ignore[0].paths[4] (/metadata): it identifies the object",
            "spec.ignore[0].paths[5] (/metadata/name): it identifies the object",
            "spec.ignore[0].paths[6] (/metadata/labels): it includes keys that Mainstay",
            "spec.ignore[0].paths[7] (/metadata/annotations/mainstay.dev~1prune): it is Mainstay's own",
            "spec.ignore[0].paths[8] (): it names the whole object",
            "spec.ignore[1].paths names 0 fields",
            "spec.ignore[1].target.kind (a{1000}{1000}{1000}): the compiled regular expression is too large",
            "spec.ignore[1].target.name ((): it is not a regular expression (the syntax is RE2's): line 1, column 1: unclosed group",
            "spec.ignore[1].target.namespace (xxx",
            "spec.ignore[1].target.labelSelector: write `a=b`",
        ]) {
            assert!(line.starts_with(expected), "{line}\n{expected}");
        }
        assert_eq!(wrong.lines().count(), 13, "{wrong}");
    }

    fn check(target: Value, expected: bool) {
        let document = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"note": "x"}},
        });
        let object = Object::from_value(&document, Place::file("a.yaml")).unwrap();
        let key = Key::new("apps", "Deployment", Some("shop"), "web");
        let rules = parse(json!([{"paths": ["/spec/replicas"], "target": target}])).unwrap();
        assert_eq!(rules.which(&key, &object).is_some(), expected, "{target}");
    }

    #[test]
    fn an_object_matches_a_rule_if_all_its_fields_match_as_a_whole() {
        for (target, expected) in [
            (json!({}), true),
            (json!(null), true),
            (json!({"kind": "Deployment", "name": "web", "namespace": "shop", "group": "apps", "version": "v1"}), true),
            (json!({"kind": "Deploy"}), false),
            (json!({"kind": "Deploy.*"}), true),
            (json!({"name": "api|web"}), true),
            (json!({"name": "we|eb"}), false),
            (json!({"group": ""}), true),
            (json!({"group": "extensions"}), false),
            (json!({"namespace": "other"}), false),
            (json!({"labelSelector": "app=web"}), true),
            (json!({"labelSelector": "app!=web"}), false),
            (json!({"annotationSelector": "note in (x, y)"}), true),
            (json!({"kind": "Deployment", "annotationSelector": "!note"}), false),
        ] {
            check(target, expected);
        }
    }
}
