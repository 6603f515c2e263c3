//! The objects that belong to a Function: its children, the bindings of its Secrets, the subscriptions to events that
//! lead to it, and the APIRules that expose it.
//!
//! Invariant: only the name of a Secret is shown.

use serde_json::Value;

use crate::field::text_at;
use crate::text::{MESSAGE, SHORT, plain};
use crate::tree::Mark;
use mainstay_object::{Health, Key, health};

/// Maximum number of objects of a kind on the page, and of filters and rules of one object.
const MOST: usize = 100;
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

impl Belonging {
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
    Member { key, mark, why: plain(&why, MESSAGE) }
}

/// Adds the objects of a kind that have the label of the Function: its pods, and the objects that it owns.
pub(crate) fn add_children(belonging: &mut Belonging, function: &Value, found: &[(Key, Value)]) {
    let uid = function.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    for (key, live) in found.iter().take(MOST) {
        let mut owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
        let is_owned = !uid.is_empty() && owners.any(|owner| owner["uid"] == uid);
        match &*key.kind {
            "Pod" => belonging.pods.push(member(key.clone(), live)),
            _ if is_owned => belonging.children.push(member(key.clone(), live)),
            _ => {}
        }
    }
}

/// Returns the Secrets that usages bind to the Function. `bindings` are the ServiceBindings of the namespace, if they
/// could be read.
pub(crate) fn bindings(name: &str, usages: &[(Key, Value)], bindings: Option<&[(Key, Value)]>) -> Vec<Binding> {
    let is_of = |live: &&(Key, Value)| {
        let used_by = |field: &str| text_at(&live.1, &format!("/spec/usedBy/{field}"), SHORT);
        used_by("kind") == USAGE_KIND && used_by("name") == name
    };
    let binding = |(key, live): &(Key, Value)| {
        let named = text_at(live, "/spec/serviceBindingRef/name", SHORT);
        let found = bindings.and_then(|all| all.iter().find(|(key, _)| &*key.name == named.as_str()));
        // Without a name of its own, the Secret is named after the binding.
        let secret = found.map(|(_, live)| text_at(live, "/spec/secretName", SHORT));
        Binding {
            usage: member(key.clone(), live),
            secret: secret.map(|own| if own.is_empty() { named.clone() } else { own }),
            bound_by: named,
            prefix: text_at(live, "/spec/parameters/envPrefix/name", SHORT),
        }
    };
    usages.iter().filter(is_of).take(MOST).map(binding).collect()
}

/// Returns the Triggers and Subscriptions that send events to the Function.
pub(crate) fn subscriptions(function: &Key, found: &[(Key, Value)]) -> Vec<Referrer> {
    let namespace = function.namespace.as_deref().unwrap_or_default();
    let sends = |(key, live): &&(Key, Value)| {
        let text = |pointer: &str| text_at(live, pointer, SHORT);
        if &*key.kind == "Subscription" {
            return is_host_of(&text("/spec/sink"), &function.name, namespace);
        }
        match text("/spec/subscriber/ref/kind").as_str() {
            "Service" => text("/spec/subscriber/ref/name") == *function.name,
            "" => is_host_of(&text("/spec/subscriber/uri"), &function.name, namespace),
            _ => false,
        }
    };
    found.iter().filter(sends).take(MOST).map(|(key, live)| referrer(key, live, String::new(), filters(live))).collect()
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

/// Returns the APIRules that expose the Function.
pub(crate) fn rules(name: &str, found: &[(Key, Value)]) -> Vec<Referrer> {
    let list = |live: &Value| live.pointer("/spec/rules").and_then(Value::as_array).cloned().unwrap_or_default();
    let exposes = |(_, live): &&(Key, Value)| {
        let named = |value: &Value| value.pointer("/service/name").and_then(Value::as_str) == Some(name);
        named(&live["spec"]) || list(live).iter().any(named)
    };
    let rule = |(key, live): &(Key, Value)| {
        let hosts = ["/spec/host", "/spec/service/host"].map(|pointer| text_at(live, pointer, SHORT));
        let host = hosts.into_iter().find(|host| !host.is_empty()).unwrap_or_default();
        referrer(key, live, host, list(live).iter().map(summary).collect())
    };
    found.iter().filter(exposes).take(MOST).map(rule).collect()
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

fn referrer(key: &Key, live: &Value, host: String, mut lines: Vec<String>) -> Referrer {
    let more = lines.len().saturating_sub(FILTERS);
    lines.truncate(FILTERS);
    let lines = lines.iter().map(|line| plain(line, SHORT)).collect();
    Referrer { member: member(key.clone(), live), host, lines, more }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str, group: &str, name: &str, spec: Value) -> (Key, Value) {
        let live = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec});
        (Key::new(group, kind, Some("shop"), name), live)
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
        let function = Key::new("serverless.kyma-project.io", "Function", Some("shop"), "web");
        let all = subscriptions(&function, &found);
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
        let secrets = |all: Option<&[(Key, Value)]>| -> Vec<Option<String>> {
            bindings("web", &usages, all).into_iter().map(|one| one.secret).collect()
        };
        assert_eq!(secrets(Some(&all)), [Some("login".to_owned()), Some("b-c".to_owned())]);
        assert_eq!(secrets(None), [None, None]);
        assert_eq!(bindings("web", &usages, None)[0].prefix, "DB_");
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
        let all = rules("web", &found);
        let hosts: Vec<&str> = all.iter().map(|one| one.host.as_str()).collect();
        assert_eq!(hosts, ["web.example.com", "b", ""]);
        assert_eq!(
            (all[0].lines.as_slice(), all[2].lines.len(), all[2].more),
            (&["GET, PUT /a: jwt".to_owned()][..], FILTERS, 20)
        );
    }
}
