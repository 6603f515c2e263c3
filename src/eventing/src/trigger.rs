//! A Trigger of Knative (`eventing.knative.dev/v1alpha1`): read, and its status.
//!
//! Invariant: a Trigger leads to a Service of its own namespace, and nowhere else.

use std::collections::BTreeMap;

use http::Uri;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::subscriber::{Filter, IN_FLIGHT, Subscriber, SubscriberId, SubscriberKind, Target};

/// The Broker of a Trigger that names none.
pub(super) const DEFAULT_BROKER: &str = "default";

/// The conditions that have to be true for `Ready`.
const PARTS: [&str; 4] = ["BrokerReady", "DependencyReady", "SubscriberResolved", "Subscribed"];

/// A Trigger, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trigger {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) broker: String,
    filter: BTreeMap<String, String>,
    target: Result<Target, String>,
}

impl Trigger {
    /// Reads an object. Whatever is missing is as if it were empty.
    pub(super) fn read(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let namespace = text("/metadata/namespace");
        let broker = Some(text("/spec/broker")).filter(|name| !name.is_empty());
        Self {
            target: target(&object["spec"]["subscriber"], &namespace),
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            broker: broker.unwrap_or_else(|| DEFAULT_BROKER.to_owned()),
            filter: filter(&object["spec"]["filter"]),
            namespace,
        }
    }

    /// What it subscribes to, where its Broker exists.
    pub(super) fn subscriber(&self, has_broker: bool) -> Subscriber {
        let target = self.target.as_ref().ok().filter(|_| has_broker);
        Subscriber {
            id: SubscriberId::new(SubscriberKind::Trigger, &self.namespace, &self.name),
            uid: self.uid.clone(),
            broker: Some(self.broker.clone()),
            route: target.map(|target| (Filter::Attributes(self.filter.clone()), target.clone())),
            in_flight: IN_FLIGHT,
        }
    }

    /// Its status after `old`.
    pub(super) fn status(&self, has_broker: bool, generation: &Value, old: &Value, now: Timestamp) -> Value {
        let fine = ("True", "", "");
        let unknown = ("Unknown", "", "");
        let broker = if has_broker { fine } else { ("False", "DoesNotExist", "Broker does not exist") };
        let resolved = match &self.target {
            _ if !has_broker => unknown,
            Ok(_) => fine,
            Err(why) => ("False", "Unable to get the Subscriber's URI", why.as_str()),
        };
        let rest = if !has_broker || resolved.0 != "True" { unknown } else { fine };
        let dependency = if has_broker { fine } else { unknown };
        let parts = [broker, dependency, resolved, rest];
        let failing =
            parts.iter().find(|part| part.0 == "False").or_else(|| parts.iter().find(|part| part.0 != "True"));
        let ready = failing.copied().unwrap_or(fine);
        let all = PARTS.into_iter().zip(parts).chain([("Ready", ready)]);
        let conditions: Vec<Value> = all.map(|(kind, said)| condition(kind, said, old, now)).collect();
        let uri = self.target.as_ref().ok().filter(|_| has_broker).map(Target::url);
        json!({"observedGeneration": generation, "conditions": conditions, "subscriberURI": uri})
    }
}

/// A condition; the time at which it began is kept.
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

/// Where it leads; its own namespace counts, whatever the reference says.
fn target(subscriber: &Value, namespace: &str) -> Result<Target, String> {
    let (reference, uri) = (&subscriber["ref"], subscriber["uri"].as_str());
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let mut target = match (text("kind"), text("apiVersion")) {
        ("Service", version) if version == "v1" || version.starts_with("serving.knative.dev/") => {
            Target::service(namespace, text("name"))
        }
        ("", "") => match uri {
            Some(uri) => return absolute(uri, namespace),
            None => {
                return Err("expected at least one, got none: spec.subscriber.ref, spec.subscriber.uri".to_owned());
            }
        },
        (kind, version) => return Err(format!("{kind} of {version} is not resolved here: name a Service of v1")),
    };
    if let Some(path) = uri.filter(|uri| !uri.is_empty()) {
        let path = format!("/{}", path.trim_start_matches('/'));
        path.parse::<Uri>().map_err(|error| format!("spec.subscriber.uri: {error}"))?;
        target.path = path;
    }
    Ok(target)
}

fn absolute(text: &str, namespace: &str) -> Result<Target, String> {
    let uri: Uri = text.parse().map_err(|error| format!("spec.subscriber.uri: {error}"))?;
    let is_tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => {
            return Err(
                "spec.subscriber.uri: without spec.subscriber.ref it begins with http:// or https://".to_owned()
            );
        }
    };
    let host = uri.host().unwrap_or_default().trim_end_matches('.');
    let short = host.strip_suffix(".svc.cluster.local").or_else(|| host.strip_suffix(".svc"));
    let Some((service, of)) = short.and_then(|short| short.split_once('.')) else {
        return Err(format!("spec.subscriber.uri: {host} is not the name of a Service in the cluster"));
    };
    if of != namespace {
        return Err(format!(
            "spec.subscriber.uri: the Service is in the namespace {of}, and this Trigger is in {namespace}"
        ));
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    Ok(Target { is_tls, service: service.to_owned(), namespace: namespace.to_owned(), port, path })
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
            assert_eq!(target.map_or_else(|why| why, |target| target.url()), expected);
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
        let ready = trigger.status(true, &json!(1), &json!({}), now);
        assert_eq!(
            shown(&ready),
            "BrokerReady True -, DependencyReady True -, SubscriberResolved True -, Subscribed True -, Ready True -"
        );
        assert_eq!(ready["subscriberURI"], "http://f.default.svc.cluster.local/");
        assert_eq!(trigger.status(true, &json!(1), &ready, Timestamp::MAX), ready, "it is the same later on");
        let without = trigger.status(false, &json!(1), &json!({}), now);
        assert_eq!(
            shown(&without),
            "BrokerReady False DoesNotExist, DependencyReady Unknown -, SubscriberResolved Unknown -, Subscribed Unknown -, Ready False DoesNotExist"
        );
        assert_eq!(without["conditions"][0]["message"], "Broker does not exist");
    }
}
