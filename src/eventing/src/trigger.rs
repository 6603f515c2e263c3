//! Parses a Trigger of Knative (`eventing.knative.dev/v1alpha1`), and computes its status.
//!
//! Invariant: a Trigger can refer only to a Service of its own namespace.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::address::{self, Fault};
use super::ordering::Ordering;
use super::subscriber::{Filter, IN_FLIGHT, Subscriber, SubscriberId, SubscriberKind, Target};
use mainstay_object::names::{DnsLabel, Scheme, ServiceAddress, ServiceHost, ServiceName, UrlPath};

/// The default Broker of a Trigger.
pub(super) const DEFAULT_BROKER: &str = "default";

/// The conditions that `Ready` depends on.
const PARTS: [&str; 4] = ["BrokerReady", "DependencyReady", "SubscriberResolved", "Subscribed"];

/// A parsed Trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trigger {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    generation: i64,
    pub(super) broker: String,
    filter: BTreeMap<String, String>,
    target: Result<Target, String>,
    ordering: Result<Ordering, String>,
}

impl Trigger {
    /// Parses an object. Missing fields count as empty.
    pub(super) fn read(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let namespace = text("/metadata/namespace");
        let broker = Some(text("/spec/broker")).filter(|name| !name.is_empty());
        Self {
            target: target(&object["spec"]["subscriber"], &namespace),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            generation: object["metadata"]["generation"].as_i64().unwrap_or_default(),
            broker: broker.unwrap_or_else(|| DEFAULT_BROKER.to_owned()),
            filter: filter(&object["spec"]["filter"]),
            ordering: Ordering::read(object),
            namespace,
        }
    }

    /// Returns the target of the Trigger.
    pub(super) fn target(&self) -> Option<&Target> {
        self.target.as_ref().ok()
    }

    /// Returns the subscriber of the Trigger. Without its Broker, with a problem of its target (`flaw`), or with an
    /// invalid order, the subscriber receives no new events.
    pub(super) fn subscriber(&self, has_broker: bool, flaw: Option<&str>) -> Subscriber {
        let target = self.target.as_ref().ok().filter(|_| has_broker && flaw.is_none() && self.ordering.is_ok());
        Subscriber {
            id: SubscriberId::new(SubscriberKind::Trigger, &self.namespace, &self.name),
            uid: self.uid.clone(),
            generation: self.generation,
            broker: Some(self.broker.clone()),
            route: target.map(|target| (Filter::Attributes(self.filter.clone()), target.clone())),
            in_flight: IN_FLIGHT,
            ordering: self.ordering.clone().unwrap_or_default(),
        }
    }

    /// Returns the new status, based on the `old` one. `flaw` is a problem of the target.
    pub(super) fn status(
        &self,
        has_broker: bool,
        flaw: Option<&str>,
        generation: &Value,
        old: &Value,
        now: Timestamp,
    ) -> Value {
        let target = self.target.as_ref().map_err(String::as_str).and_then(|target| flaw.map_or(Ok(target), Err));
        let fine = ("True", "", "");
        let unknown = ("Unknown", "", "");
        let broker = if has_broker { fine } else { ("False", "DoesNotExist", "Broker does not exist") };
        let resolved = match target {
            _ if !has_broker => unknown,
            Ok(_) => fine,
            Err(why) => ("False", "Unable to get the Subscriber's URI", why),
        };
        let rest = if !has_broker || resolved.0 != "True" { unknown } else { fine };
        let dependency = if has_broker { fine } else { unknown };
        let subscribed = match &self.ordering {
            Err(why) if rest.0 == "True" => ("False", "InvalidOrdering", why.as_str()),
            _ => rest,
        };
        let parts = [broker, dependency, resolved, subscribed];
        let failing =
            parts.iter().find(|part| part.0 == "False").or_else(|| parts.iter().find(|part| part.0 != "True"));
        let ready = failing.copied().unwrap_or(fine);
        let all = PARTS.into_iter().zip(parts).chain([("Ready", ready)]);
        let conditions: Vec<Value> = all.map(|(kind, said)| condition(kind, said, old, now)).collect();
        let uri = target.ok().filter(|_| has_broker).map(Target::url);
        json!({"observedGeneration": generation, "conditions": conditions, "subscriberURI": uri})
    }
}

/// Returns a condition. An unchanged status keeps its transition time.
pub(super) fn condition(
    kind: &str,
    (status, reason, message): (&str, &str, &str),
    old: &Value,
    now: Timestamp,
) -> Value {
    let mut known = old["conditions"].as_array().into_iter().flatten();
    let before = known.find(|condition| condition["type"] == kind && condition["status"] == status);
    let since = before.and_then(|condition| condition["lastTransitionTime"].as_str()).map(str::to_owned);
    let since = since.unwrap_or_else(|| now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
    if !reason.is_empty() {
        condition["reason"] = reason.into();
    }
    if !message.is_empty() {
        condition["message"] = message.into();
    }
    condition
}

fn filter(filter: &Value) -> BTreeMap<String, String> {
    let attributes = filter["attributes"].as_object().into_iter().flatten();
    let mut wanted: BTreeMap<String, String> =
        attributes.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
    for name in ["source", "type"] {
        if let Some(value) = filter["sourceAndType"][name].as_str().filter(|value| !value.is_empty()) {
            wanted.insert(name.to_owned(), value.to_owned());
        }
    }
    wanted
}

/// Returns the target. The target's namespace is always that of the Trigger, regardless of the reference.
fn target(subscriber: &Value, namespace: &str) -> Result<Target, String> {
    let (reference, uri) = (&subscriber["ref"], subscriber["uri"].as_str());
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    match (text("kind"), text("apiVersion")) {
        ("Service", version) if version == "v1" || version.starts_with("serving.knative.dev/") => {
            let service = ServiceName::parse(text("name")).map_err(|why| format!("spec.subscriber.ref.name: {why}"))?;
            let namespace = DnsLabel::parse(namespace).map_err(|why| format!("metadata.namespace: {why}"))?;
            let port = NonZeroU16::MIN.saturating_add(79);
            let host = ServiceHost::new(service, namespace);
            let path = uri.filter(|uri| !uri.is_empty()).map(address::path).transpose();
            let path = path.map_err(|why| format!("spec.subscriber.uri: {why}"))?.unwrap_or_else(UrlPath::root);
            Ok(Target::new(ServiceAddress { scheme: Scheme::Http, host, port }, &path))
        }
        ("", "") => match uri {
            Some(uri) => absolute(uri, namespace).map_err(|why| format!("spec.subscriber.uri: {why}")),
            None => Err("expected at least one, got none: spec.subscriber.ref, spec.subscriber.uri".to_owned()),
        },
        (kind, version) => Err(format!("{kind} of {version} is not resolved here: name a Service of v1")),
    }
}

fn absolute(text: &str, namespace: &str) -> Result<Target, String> {
    let parts = address::parse(text).map_err(|fault| match fault {
        Fault::Scheme => "without spec.subscriber.ref it must begin with http:// or https://".to_owned(),
        Fault::Other(why) => why,
    })?;
    let host = ServiceHost::parse(&parts.host);
    let host = host.map_err(|_| format!("{} is not the name of a Service in the cluster", parts.host))?;
    let of = host.namespace().as_str();
    if of != namespace {
        return Err(format!("the Service is in the namespace {of}, and this Trigger is in {namespace}"));
    }
    Ok(Target::new(ServiceAddress { scheme: parts.scheme, host, port: parts.port }, &parts.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(spec: Value) -> Trigger {
        Trigger::read(&json!({"metadata": {"namespace": "default", "name": "mine"}, "spec": spec}))
    }

    fn shown(status: &Value) -> String {
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or("-").to_owned();
        let all = status["conditions"].as_array().unwrap().iter();
        let all = all.map(|one| format!("{} {} {}", text(one, "type"), text(one, "status"), text(one, "reason")));
        all.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn a_reference_leads_to_a_service_of_its_own_namespace() {
        let check = |subscriber: Value, expected: &str| {
            let target = trigger(json!({"subscriber": subscriber})).target;
            assert_eq!(target.map_or_else(|why| why, |target| target.url().to_owned()), expected);
        };
        let of = |version: &str| json!({"ref": {"apiVersion": version, "kind": "Service", "name": "f", "namespace": "other"}});
        check(of("v1"), "http://f.default.svc.cluster.local/");
        check(of("serving.knative.dev/v1"), "http://f.default.svc.cluster.local/");
        check(
            json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": "f"}, "uri": "a/b"}),
            "http://f.default.svc.cluster.local/a/b",
        );
        check(json!({"uri": "http://f.default.svc:8080/x?y"}), "http://f.default.svc.cluster.local:8080/x?y");
        check(
            json!({"uri": "http://169.254.169.254/"}),
            "spec.subscriber.uri: 169.254.169.254 is not the name of a Service in the cluster",
        );
        check(
            json!({"uri": "http://f.other.svc.cluster.local/"}),
            "spec.subscriber.uri: the Service is in the namespace other, and this Trigger is in default",
        );
        check(json!({}), "expected at least one, got none: spec.subscriber.ref, spec.subscriber.uri");
        check(
            json!({"ref": {"apiVersion": "v1", "kind": "Secret", "name": "s"}}),
            "Secret of v1 is not resolved here: name a Service of v1",
        );
    }

    #[test]
    fn it_is_ready_where_its_broker_is() {
        let trigger = trigger(json!({"subscriber": {"ref": {"apiVersion": "v1", "kind": "Service", "name": "f"}}}));
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ready = trigger.status(true, None, &json!(1), &json!({}), now);
        assert_eq!(
            shown(&ready),
            "BrokerReady True -, DependencyReady True -, SubscriberResolved True -, Subscribed True -, Ready True -"
        );
        assert_eq!(ready["subscriberURI"], "http://f.default.svc.cluster.local/");
        assert_eq!(trigger.status(true, None, &json!(1), &ready, Timestamp::MAX), ready, "it is the same later on");
        let without = trigger.status(false, None, &json!(1), &json!({}), now);
        assert_eq!(
            shown(&without),
            "BrokerReady False DoesNotExist, DependencyReady Unknown -, SubscriberResolved Unknown -, Subscribed Unknown -, Ready False DoesNotExist"
        );
        assert_eq!(without["conditions"][0]["message"], "Broker does not exist");
    }

    #[test]
    fn a_flaw_of_its_service_is_the_reason_why_it_is_not_ready() {
        let trigger = trigger(json!({"subscriber": {"ref": {"apiVersion": "v1", "kind": "Service", "name": "f"}}}));
        assert_eq!(trigger.subscriber(true, Some("why")).route, None);
        let status = trigger.status(true, Some("why"), &json!(1), &json!({}), Timestamp::UNIX_EPOCH);
        let ready = status["conditions"].as_array().unwrap().last().unwrap();
        assert_eq!((&ready["status"], &ready["message"]), (&json!("False"), &json!("why")));
        assert_eq!(status["subscriberURI"], json!(null));
    }

    #[test]
    fn a_name_that_would_add_to_an_address_is_refused() {
        let target = |subscriber: Value| trigger(json!({"subscriber": subscriber})).target;
        for name in [
            "127.0.0.1:19999/admin/delete?all=yes&x=",
            "127.0.0.1",
            "169.254.169.254",
            "f.other.svc.cluster.local",
            "f:8080",
            "f/x",
            "f?x=",
            "f#",
            "user@f",
            "F",
            "",
            " f",
        ] {
            let why = target(json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": name}})).unwrap_err();
            assert!(why.starts_with("spec.subscriber.ref.name: must be"), "{name}: {why}");
        }
        let reference = json!({"apiVersion": "v1", "kind": "Service", "name": "f"});
        for uri in ["../admin", "/a/../../b", "/%2e%2e/b", "\\evil", "/a b", "/a#b"] {
            let why = target(json!({"ref": reference, "uri": uri})).unwrap_err();
            assert!(why.starts_with("spec.subscriber.uri: "), "{uri}: {why}");
        }
        for uri in [
            "http://u:p@f.default.svc/",
            "http://f.default.svc@127.0.0.1/",
            "http://f.default.svc:0/",
            "http://f.default.svc:99999/",
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://localhost/",
            "http://a.b.default.svc/",
            "file:///etc/passwd",
            "f",
        ] {
            let why = target(json!({"uri": uri})).unwrap_err();
            assert!(why.starts_with("spec.subscriber.uri: "), "{uri}: {why}");
        }
    }
}
