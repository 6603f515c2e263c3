//! Evaluates RBAC rules: whether a rule allows a request, and whether rules cover others.
//!
//! Follows `k8s.io/component-helpers/auth/rbac/validation` and the evaluation helpers of `rbac/v1`.
//!
//! Not here: the source of the rules (`rbac`).

use serde::Deserialize;
use serde_json::{Value, json};

/// The attributes of a request that rules evaluate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `create`, …; for paths the HTTP method in lower case.
    pub verb: String,
    /// The target of the request.
    pub place: Place,
}

/// The target of a request: a resource or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An object or collection.
    Resource {
        /// API group, empty for core.
        group: String,
        /// Plural name.
        resource: String,
        /// Subresource, empty for the object.
        subresource: String,
        /// Namespace; empty for cluster-scoped kinds and for all namespaces.
        namespace: String,
        /// Name, empty for collections.
        name: String,
    },
    /// A non-resource path.
    Path(String),
}

impl Request {
    /// Returns the namespace whose RoleBindings apply; empty if none do.
    pub fn namespace(&self) -> &str {
        match &self.place {
            Place::Resource { namespace, .. } => namespace,
            Place::Path(_) => "",
        }
    }
}

/// A rule of a Role or ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// Verbs.
    pub verbs: Vec<String>,
    /// API groups.
    pub api_groups: Vec<String>,
    /// Resources, with a subresource after a slash.
    pub resources: Vec<String>,
    /// Names of objects; empty: all.
    pub resource_names: Vec<String>,
    /// Non-resource paths.
    #[serde(rename = "nonResourceURLs")]
    pub non_resource_urls: Vec<String>,
}

/// Returns the rules of a role.
pub fn rules_of(role: &Value) -> Vec<Rule> {
    let rules = role["rules"].as_array().into_iter().flatten();
    rules.filter_map(|rule| Rule::deserialize(rule).ok()).collect()
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted)
}

fn any_or(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// Returns the rules for all verbs on all resources and paths.
    pub fn everything() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        [
            Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), non_resource_urls: all(), ..Self::default() },
        ]
    }

    /// Returns whether the rule allows a request.
    pub fn allows(&self, request: &Request) -> bool {
        if !any_or(&self.verbs, &request.verb) {
            return false;
        }
        match &request.place {
            Place::Path(path) => self.non_resource_urls.iter().any(|url| path_matches(url, path)),
            Place::Resource { group, resource, subresource, name, .. } => {
                any_or(&self.api_groups, group)
                    && self.resources.iter().any(|r| resource_matches(r, resource, subresource))
                    && (self.resource_names.is_empty() || has(&self.resource_names, name))
            }
        }
    }

    /// Splits the rule into equivalent rules with one verb, one resource and one name each.
    fn breakdown(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut rules = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let rule =
                        Self { verbs: one(verb), api_groups: one(group), resources: one(resource), ..Self::default() };
                    if self.resource_names.is_empty() {
                        rules.push(rule);
                    } else {
                        let named = |name| Self { resource_names: one(name), ..rule.clone() };
                        rules.extend(self.resource_names.iter().map(named));
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            let of = |verb| Self { verbs: one(verb), non_resource_urls: one(url), ..Self::default() };
            rules.extend(self.verbs.iter().map(of));
        }
        rules
    }

    /// Returns whether the rule allows everything that a rule from `breakdown` allows.
    fn covers(&self, other: &Self) -> bool {
        let all = |mine: &[String], theirs: &[String]| has(mine, "*") || theirs.iter().all(|item| has(mine, item));
        let resources = other.resources.iter().all(|path| {
            let starred = path.split_once('/').is_some_and(|(_, sub)| has(&self.resources, &format!("*/{sub}")));
            any_or(&self.resources, path) || starred
        });
        let names = self.resource_names.is_empty()
            || !other.resource_names.is_empty() && other.resource_names.iter().all(|n| has(&self.resource_names, n));
        let urls = other.non_resource_urls.iter().all(|url| self.non_resource_urls.iter().any(|u| url_covers(u, url)));
        all(&self.verbs, &other.verbs) && all(&self.api_groups, &other.api_groups) && resources && names && urls
    }

    /// Formats the rule for messages about missing permissions.
    pub fn text(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let part = |(name, list): &(&str, &Vec<String>)| {
            let items: Vec<String> = list.iter().map(|item| format!("{item:?}")).collect();
            format!("{name}:[{}]", items.join(" "))
        };
        let parts: Vec<String> = parts.iter().filter(|(_, list)| !list.is_empty()).map(part).collect();
        format!("{{{}}}", parts.join(", "))
    }

    /// Returns the rule for a SelfSubjectRulesReview: its resource part and its path part.
    pub fn review(&self) -> (Option<Value>, Option<Value>) {
        let resource = (!self.resources.is_empty()).then(|| {
            let mut rule = json!({"verbs": self.verbs, "apiGroups": self.api_groups, "resources": self.resources});
            if !self.resource_names.is_empty() {
                rule["resourceNames"] = json!(self.resource_names);
            }
            rule
        });
        let path = (!self.non_resource_urls.is_empty())
            .then(|| json!({"verbs": self.verbs, "nonResourceURLs": self.non_resource_urls}));
        (resource, path)
    }
}

/// Returns the rules in `wanted` that `owned` does not cover. Rules that differ in their verbs only are merged.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let mut found: Vec<Rule> = Vec::new();
    for rule in wanted.iter().flat_map(Rule::breakdown) {
        if owned.iter().any(|mine| mine.covers(&rule)) {
            continue;
        }
        let same = |other: &&mut Rule| {
            Rule { verbs: Vec::new(), ..(**other).clone() } == Rule { verbs: Vec::new(), ..rule.clone() }
        };
        match found.iter_mut().find(same) {
            Some(other) => other.verbs.extend(rule.verbs),
            None => found.push(rule),
        }
    }
    found
}

fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    rule.split_once('/').is_some_and(|(r, s)| (r == "*" || r == resource) && s == subresource)
}

fn path_matches(url: &str, path: &str) -> bool {
    url == "*" || url == path || url.ends_with('*') && path.starts_with(url.trim_end_matches('*'))
}

fn url_covers(mine: &str, theirs: &str) -> bool {
    mine == theirs || mine.ends_with('*') && theirs.starts_with(mine.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(value: Value) -> Rule {
        Rule::deserialize(&value).unwrap()
    }

    fn check(rule: &Rule, verb: &str, resource: &str, name: &str, expected: bool) {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let place = Place::Resource {
            group: String::new(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: "a".to_owned(),
            name: name.to_owned(),
        };
        let request = Request { verb: verb.to_owned(), place };
        assert_eq!(rule.allows(&request), expected, "{rule:?} {request:?}");
    }

    #[test]
    fn allows_what_it_names() {
        let pods = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/scale"]}));
        check(&pods, "get", "pods", "a", true);
        check(&pods, "list", "pods", "", false);
        check(&pods, "get", "pods/log", "a", false);
        check(&pods, "get", "anything/scale", "a", true);
        let named = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]}));
        check(&named, "get", "pods/log", "a", true);
        check(&named, "create", "pods", "", false);
    }

    #[test]
    fn names_what_is_missing() {
        let mine = [rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}))];
        let wanted = [rule(json!({"verbs": ["get", "delete", "watch"], "apiGroups": [""], "resources": ["pods"]}))];
        let texts: Vec<String> = missing(&mine, &wanted).iter().map(Rule::text).collect();
        assert_eq!(texts, ["{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}"]);
        assert!(missing(&Rule::everything(), &wanted).is_empty());
    }

    #[test]
    fn a_named_rule_does_not_cover_all_names() {
        let named = [rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}))];
        let all = [rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}))];
        assert!(!missing(&named, &all).is_empty());
        assert!(missing(&all, &named).is_empty());
    }
}
