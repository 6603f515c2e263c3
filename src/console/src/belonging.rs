//! The objects that belong to a Function: its children, the bindings of its Secrets, the subscriptions to events that
//! lead to it, and the APIRules that expose it.
//!
//! Invariant: only the name of a Secret is shown. Invariant: an object is reduced to a part of limited size.

use std::collections::HashMap;

use serde_json::Value;

use crate::facts::Facts;
use crate::field::text_at;
use crate::text::{MESSAGE, SHORT, plain};
use crate::tree::Mark;
use mainstay_object::{Health, Key, health};

/// Maximum number of filters and rules of one object.
const FILTERS: usize = 10;
/// The name by which ServiceBindingUsages call Functions.
const USAGE_KIND: &str = "serverless-function";

/// An object with its health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) key: Key,
    pub(crate) mark: Mark,
    /// The reason for the mark; empty if the object is healthy.
    pub(crate) why: String,
    /// Its addresses, if it is a Service or an APIRule.
    pub(crate) facts: Facts,
}

/// A Secret whose keys are variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) usage: Member,
    /// The name of the Secret, or `None` if the ServiceBinding could not be read.
    pub(crate) secret: Option<String>,
    /// The name of the ServiceBinding.
    pub(crate) bound_by: String,
    /// The prefix of the variables.
    pub(crate) prefix: String,
}

/// A Trigger, a Subscription or an APIRule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Referrer {
    pub(crate) member: Member,
    /// The host of an APIRule.
    pub(crate) host: String,
    /// The filter of events, or the rules, each in one line.
    pub(crate) lines: Vec<String>,
    /// Number of further lines.
    pub(crate) more: usize,
}

/// The objects that belong to a Function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Belonging {
    pub(crate) children: Vec<Member>,
    /// The pods among the children.
    pub(crate) pods: Vec<Member>,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) subscriptions: Vec<Referrer>,
    pub(crate) rules: Vec<Referrer>,
    /// Notes about objects that are missing.
    pub(crate) notes: Vec<String>,
}

/// The relation of the objects of a list to a Function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Pods, and objects that the Function owns.
    Child,
    /// ServiceBindingUsages.
    Usage,
    /// ServiceBindings of the namespace.
    Binding,
    /// Triggers and Subscriptions.
    Sender,
    /// APIRules.
    Rule,
}

/// The part of the page that is made of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Pod(Member),
    Child(Member),
    Usage(Binding),
    /// The name of a ServiceBinding, and the name of its Secret, which may be empty.
    Secret(String, String),
    Sender(Referrer),
    Rule(Referrer),
}

impl Part {
    /// Returns the part of an object; `None` if the object does not belong to the Function with this UID.
    pub(crate) fn of(role: Role, (function, uid): (&Key, &str), key: Key, live: &Value) -> Option<Self> {
        match role {
            Role::Child => child(uid, key, live),
            Role::Usage => usage(&function.name, key, live).map(Self::Usage),
            Role::Binding => Some(Self::Secret(key.name.to_string(), text_at(live, "/spec/secretName", SHORT))),
            Role::Sender => sender(function, key, live).map(Self::Sender),
            Role::Rule => rule(&function.name, key, live).map(Self::Rule),
        }
    }

    /// Returns its approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let member = |one: &Member| one.key.name.len() + one.why.len() + one.facts.bytes();
        let referrer = |one: &Referrer| {
            member(&one.member)
                + one.host.len()
                + one.lines.iter().map(|line| size_of::<String>() + line.len()).sum::<usize>()
        };
        let texts = match self {
            Self::Pod(one) | Self::Child(one) => member(one),
            Self::Usage(one) => member(&one.usage) + 2 * one.bound_by.len() + one.prefix.len(),
            Self::Secret(binding, secret) => binding.len() + secret.len(),
            Self::Sender(one) | Self::Rule(one) => referrer(one),
        };
        size_of::<Self>() + texts
    }
}

impl Belonging {
    /// Arranges the parts of a page.
    pub(crate) fn of(parts: impl IntoIterator<Item = Part>, notes: Vec<String>) -> Self {
        let mut all = Self { notes, ..Self::default() };
        let mut secrets = HashMap::new();
        for part in parts {
            match part {
                Part::Pod(one) => all.pods.push(one),
                Part::Child(one) => all.children.push(one),
                Part::Usage(one) => all.bindings.push(one),
                Part::Secret(binding, secret) => {
                    secrets.insert(binding, secret);
                }
                Part::Sender(one) => all.subscriptions.push(one),
                Part::Rule(one) => all.rules.push(one),
            }
        }
        for one in &mut all.bindings {
            // Without a name of its own, the Secret is named after the binding.
            let own = secrets.get(&one.bound_by);
            one.secret = own.map(|own| if own.is_empty() { one.bound_by.clone() } else { own.clone() });
        }
        all
    }

    /// Returns the Service of the Function, if it exists and may be listed.
    pub(crate) fn service(&self) -> Option<&Member> {
        self.children.iter().find(|child| child.key.is("", "Service"))
    }

    /// Returns the health of a pod; `None` if it is not known.
    pub(crate) fn pod(&self, name: &str) -> Option<&Member> {
        self.pods.iter().find(|pod| &*pod.key.name == name)
    }
}

fn member(key: Key, live: &Value) -> Member {
    let (mark, why) = match health(&key, live) {
        Health::Healthy => (Mark::Healthy, String::new()),
        Health::Progressing(why) => (Mark::Waiting, why),
        Health::Failed(why) => (Mark::Failed, why),
    };
    let facts = Facts::of(&key, live);
    Member { key, mark, why: plain(&why, MESSAGE), facts }
}

/// Returns a pod, or an object that the Function owns.
fn child(uid: &str, key: Key, live: &Value) -> Option<Part> {
    if key.is("", "Pod") {
        return Some(Part::Pod(member(key, live)));
    }
    let mut owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let is_owned = !uid.is_empty() && owners.any(|owner| owner["uid"] == uid);
    is_owned.then(|| Part::Child(member(key, live)))
}

/// Returns a usage that binds a Secret to the Function. The Secret is not known yet.
fn usage(function: &str, key: Key, live: &Value) -> Option<Binding> {
    let used_by = |field: &str| text_at(live, &format!("/spec/usedBy/{field}"), SHORT);
    if used_by("kind") != USAGE_KIND || used_by("name") != function {
        return None;
    }
    Some(Binding {
        usage: member(key, live),
        secret: None,
        bound_by: text_at(live, "/spec/serviceBindingRef/name", SHORT),
        prefix: text_at(live, "/spec/parameters/envPrefix/name", SHORT),
    })
}

/// Returns a Trigger or a Subscription that sends events to the Function.
fn sender(function: &Key, key: Key, live: &Value) -> Option<Referrer> {
    let namespace = function.namespace.as_deref().unwrap_or_default();
    let text = |pointer: &str| text_at(live, pointer, SHORT);
    let sends = if &*key.kind == "Subscription" {
        is_host_of(&text("/spec/sink"), &function.name, namespace)
    } else {
        match text("/spec/subscriber/ref/kind").as_str() {
            "Service" => text("/spec/subscriber/ref/name") == *function.name,
            "" => is_host_of(&text("/spec/subscriber/uri"), &function.name, namespace),
            _ => false,
        }
    };
    sends.then(|| referrer(key, live, String::new(), filters(live).into_iter()))
}

/// Returns whether a URL leads to the Service of this name.
fn is_host_of(url: &str, name: &str, namespace: &str) -> bool {
    let authority =
        url.split_once("://").map_or("", |(_, rest)| rest).split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let mut labels = host.split('.');
    (labels.next(), labels.next()) == (Some(name), Some(namespace)) && matches!(labels.next(), None | Some("svc"))
}

/// Returns the filter of a Trigger or a Subscription, one line for each alternative.
fn filters(live: &Value) -> Vec<String> {
    let spec = &live["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    let attributes = spec["filter"]["attributes"].as_object().into_iter().flatten();
    let attributes: Vec<String> = attributes.map(|(name, value)| format!("{name}={}", text(value))).collect();
    lines.extend((!attributes.is_empty()).then(|| attributes.join(", ")));
    for filter in spec["filter"]["filters"].as_array().into_iter().flatten() {
        let source = text(&filter["eventSource"]["value"]);
        let source = if source.is_empty() { source } else { format!(", source={source}") };
        lines.push(format!("type={}{source}", text(&filter["eventType"]["value"])));
    }
    let source = text(&spec["source"]);
    for kind in spec["types"].as_array().into_iter().flatten() {
        lines.push(format!("type={}, source={source}", text(kind)));
    }
    if lines.is_empty() {
        lines.push("all events".to_owned());
    }
    lines
}

/// Returns an APIRule that exposes the Function.
fn rule(function: &str, key: Key, live: &Value) -> Option<Referrer> {
    let named = |value: &Value| value.pointer("/service/name").and_then(Value::as_str) == Some(function);
    let rules = || live.pointer("/spec/rules").and_then(Value::as_array).into_iter().flatten();
    if !named(&live["spec"]) && !rules().any(named) {
        return None;
    }
    let hosts = ["/spec/host", "/spec/service/host"].map(|pointer| text_at(live, pointer, SHORT));
    let host = hosts.into_iter().find(|host| !host.is_empty()).unwrap_or_default();
    Some(referrer(key, live, host, rules().map(summary)))
}

/// Returns a rule in one line: its methods, its path and its access strategies.
fn summary(rule: &Value) -> String {
    let texts = |value: &Value, field: &str| {
        let all = value.as_array().into_iter().flatten().take(20);
        let all = all.map(|one| if field.is_empty() { one } else { &one[field] }).filter_map(Value::as_str);
        all.collect::<Vec<_>>().join(", ")
    };
    let path = rule["path"].as_str().unwrap_or_default();
    format!("{} {path}: {}", texts(&rule["methods"], ""), texts(&rule["accessStrategies"], "handler"))
}

fn referrer(key: Key, live: &Value, host: String, mut lines: impl Iterator<Item = String>) -> Referrer {
    let first = lines.by_ref().take(FILTERS).map(|line| plain(&line, SHORT)).collect();
    Referrer { member: member(key, live), host, lines: first, more: lines.count() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str, group: &str, name: &str, spec: Value) -> (Key, Value) {
        let live = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        (Key::new(group, kind, Some("shop"), name), live)
    }

    /// Returns what the page of the Function `web` shows of the objects of some lists.
    fn belonging(lists: &[(Role, &[(Key, Value)])]) -> Belonging {
        let function = Key::new("serverless.kyma-project.io", "Function", Some("shop"), "web");
        let all =
            lists.iter().flat_map(|(role, found)| found.iter().map(move |(key, live)| (*role, key.clone(), live)));
        Belonging::of(all.filter_map(|(role, key, live)| Part::of(role, (&function, "u"), key, live)), Vec::new())
    }

    #[test]
    fn events_reach_the_function_by_its_service_only() {
        let trigger = |name: &str, subscriber: Value| {
            of(
                "Trigger",
                "eventing.knative.dev",
                name,
                json!({"subscriber": subscriber, "filter": {"attributes": {"type": "t"}}}),
            )
        };
        let subscription = |name: &str, sink: &str| {
            of(
                "Subscription",
                "eventing.kyma-project.io",
                name,
                json!({"sink": sink, "source": "s", "types": ["a", "b"]}),
            )
        };
        let service = |name: &str| json!({"ref": {"kind": "Service", "name": name}});
        let found = [
            trigger("by-name", service("web")),
            trigger("other", service("api")),
            trigger("of-another-kind", json!({"ref": {"kind": "Broker", "name": "web"}})),
            trigger("by-url", json!({"uri": "http://web.shop.svc:8080/x"})),
            subscription("own", "http://web.shop.svc.cluster.local"),
            subscription("of-another-namespace", "http://web.blog.svc.cluster.local"),
            subscription("of-another-host", "http://web.shop.example.com"),
            subscription("not-a-url", "web.shop"),
        ];
        let all = belonging(&[(Role::Sender, &found)]).subscriptions;
        let names: Vec<&str> = all.iter().map(|one| &*one.member.key.name).collect();
        assert_eq!(names, ["by-name", "by-url", "own"]);
        assert_eq!(
            (&all[0].lines, &all[2].lines),
            (&vec!["type=t".to_owned()], &vec!["type=a, source=s".to_owned(), "type=b, source=s".to_owned()])
        );
    }

    #[test]
    fn a_binding_names_its_secret_and_a_prefix() {
        let usage = |name: &str, kind: &str, user: &str| {
            of(
                "ServiceBindingUsage",
                "g",
                name,
                json!({
                    "usedBy": {"kind": kind, "name": user}, "serviceBindingRef": {"name": format!("b-{name}")},
                    "parameters": {"envPrefix": {"name": "DB_"}},
                }),
            )
        };
        let usages = [
            usage("a", "serverless-function", "web"),
            usage("b", "deployment", "web"),
            usage("c", "serverless-function", "web"),
        ];
        let all = [
            of("ServiceBinding", "g", "b-a", json!({"secretName": "login"})),
            of("ServiceBinding", "g", "b-c", json!({})),
        ];
        let secrets = |lists: &[(Role, &[(Key, Value)])]| -> Vec<Option<String>> {
            belonging(lists).bindings.into_iter().map(|one| one.secret).collect()
        };
        let known = secrets(&[(Role::Usage, &usages), (Role::Binding, &all)]);
        assert_eq!(known, [Some("login".to_owned()), Some("b-c".to_owned())]);
        assert_eq!(secrets(&[(Role::Usage, &usages)]), [None, None]);
        assert_eq!(belonging(&[(Role::Usage, &usages)]).bindings[0].prefix, "DB_");
    }

    #[test]
    fn a_rule_is_one_line_and_a_hostile_one_is_limited() {
        let rule = json!({"path": "/a", "methods": ["GET", "PUT"], "accessStrategies": [{"handler": "jwt"}, {}, 7]});
        let many = vec![rule.clone(); 30];
        let found = [
            of("APIRule", "g", "one", json!({"service": {"name": "web", "host": "web.example.com"}, "rules": [rule]})),
            of("APIRule", "g", "two", json!({"host": "b", "rules": [{"service": {"name": "web"}}, null]})),
            of("APIRule", "g", "many", json!({"service": {"name": "web"}, "rules": many})),
            of("APIRule", "g", "other", json!({"service": {"name": "api"}, "rules": "web"})),
        ];
        let all = belonging(&[(Role::Rule, &found)]).rules;
        let hosts: Vec<&str> = all.iter().map(|one| one.host.as_str()).collect();
        assert_eq!(hosts, ["web.example.com", "b", ""]);
        assert_eq!(
            (all[0].lines.as_slice(), all[2].lines.len(), all[2].more),
            (&["GET, PUT /a: jwt".to_owned()][..], FILTERS, 20)
        );
    }

    #[test]
    fn the_service_of_a_function_has_its_address() {
        let (key, mut live) = of("Service", "", "web", json!({"ports": [{"port": 80}]}));
        assert_eq!(belonging(&[(Role::Child, &[(key.clone(), live.clone())])]).service(), None);
        live["metadata"]["ownerReferences"] = json!([{"uid": "u"}]);
        let all = belonging(&[(Role::Child, &[(key.clone(), live.clone())])]);
        assert_eq!(all.service().map(|one| &one.facts), Some(&Facts::of(&key, &live)));
    }

    #[test]
    fn pods_and_owned_objects_are_parts_of_limited_size() {
        let long = "x".repeat(1 << 20);
        let object = |group: &str, kind: &str, name: &str, uid: &str| {
            let owner = json!([{"uid": "other"}, {"uid": uid}]);
            let live = json!({
                "metadata": {"name": name, "namespace": "shop", "annotations": {"a": long}, "ownerReferences": owner},
                "spec": {"host": long, "service": {"name": "web"}, "rules": vec![json!({"path": long}); 3]},
                "status": {"phase": "Failed", "message": long, "reason": long},
            });
            (Key::new(group, kind, Some("shop"), name), live)
        };
        let children =
            [object("", "Pod", "a", "p"), object("apps", "Deployment", "b", "u"), object("", "Service", "c", "x")];
        let all = belonging(&[(Role::Child, &children)]);
        let names = |all: &[Member]| -> Vec<String> { all.iter().map(|one| one.key.name.to_string()).collect() };
        assert_eq!((names(&all.pods), names(&all.children)), (vec!["a".to_owned()], vec!["b".to_owned()]));
        let function = Key::new("serverless.kyma-project.io", "Function", Some("shop"), "web");
        for (role, (key, live)) in
            [(Role::Child, object("", "Pod", "a", "p")), (Role::Rule, object("g", "APIRule", "r", "x"))]
        {
            let part = Part::of(role, (&function, "u"), key, &live).unwrap();
            assert!(part.bytes() > 100 && part.bytes() < 16 << 10, "{}", part.bytes());
        }
    }
}
