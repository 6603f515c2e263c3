//! Parses and validates a Subscription of Kyma (`eventing.kyma-project.io`), and computes its status.
//!
//! `v1alpha1` has `filter`, and `v1alpha2` has `source`, `types` and `typeMatching` (`subscribed_types`). Both versions of
//! the definition have the fields of both, so the API server converts without a webhook and loses nothing.
//!
//! Invariant: a Subscription can refer only to a Service of its own namespace.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::address::{self, Fault};
use super::ordering::Ordering;
use super::subscribed_types::SubscribedTypes;
use super::subscriber::{IN_FLIGHT, MOST_IN_FLIGHT, Subscriber, SubscriberId, SubscriberKind, Target};
use super::trigger::condition;
use mainstay_object::names::{ServiceAddress, ServiceHost};

/// Maximum number of ignored fields in a status.
const MOST_IGNORED: usize = 20;

/// A parsed Subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) namespace: String,
    pub(super) name: String,
    uid: String,
    generation: i64,
    in_flight: usize,
    ordering: Ordering,
    /// The set fields that have no effect.
    ignored: Vec<String>,
    /// The types and their target, or why the Subscription is not valid.
    pub(super) route: Result<(SubscribedTypes, Target), String>,
}

impl Subscription {
    /// Parses an object. Missing fields count as empty.
    pub(super) fn read(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let namespace = text("/metadata/namespace");
        let spec = &object["spec"];
        let in_flight = in_flight(&spec["config"]["maxInFlightMessages"]);
        let ordering = Ordering::read(object);
        let target = target(spec["sink"].as_str().unwrap_or_default(), &namespace);
        let route = target.and_then(|target| Ok((SubscribedTypes::read(spec)?, target)));
        Self {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            generation: object["metadata"]["generation"].as_i64().unwrap_or_default(),
            ignored: ignored(spec),
            route: in_flight.clone().and_then(|_| ordering.clone()).and(route),
            ordering: ordering.unwrap_or_default(),
            in_flight: in_flight.unwrap_or(IN_FLIGHT),
            namespace,
        }
    }

    /// Returns the target of the Subscription.
    pub(super) fn target(&self) -> Option<&Target> {
        self.route.as_ref().ok().map(|(_, target)| target)
    }

    /// Returns the subscriber of the Subscription. With a problem of its target (`flaw`), the subscriber receives no
    /// new events.
    pub(super) fn subscriber(&self, flaw: Option<&str>) -> Subscriber {
        let route = self.route.as_ref().ok().filter(|_| flaw.is_none());
        Subscriber {
            id: SubscriberId::new(SubscriberKind::Subscription, &self.namespace, &self.name),
            uid: self.uid.clone(),
            generation: self.generation,
            broker: None,
            route: route.map(|(types, target)| (types.filter.clone(), target.clone())),
            in_flight: self.in_flight.min(MOST_IN_FLIGHT),
            ordering: self.ordering,
        }
    }

    /// Returns the new status, based on the `old` one. `flaw` is a problem of the target.
    pub(super) fn status(&self, flaw: Option<&str>, generation: &Value, old: &Value, now: Timestamp) -> Value {
        let route = self.route.as_ref().map_err(String::as_str).and_then(|route| match flaw {
            Some(why) => Err(why),
            None => Ok(route),
        });
        // Kyma uses the same reason in both cases.
        let reason = "NATS Subscription active";
        let said = match &route {
            Ok(_) => ("True", reason, ""),
            Err(why) => ("False", reason, *why),
        };
        let types = route.map(|(types, _)| types.named.as_slice()).unwrap_or_default();
        let clean: BTreeSet<&String> = types.iter().map(|(_, clean)| clean).collect();
        let of = |(original, clean): &(String, String)| json!({"originalType": original, "cleanType": clean});
        let mut conditions = vec![condition("Subscription active", said, old, now)];
        if !self.ignored.is_empty() {
            let why = format!("no effect: {}; remove these fields", self.ignored.join(", "));
            conditions.push(condition("Fields supported", ("False", "Fields not supported", &why), old, now));
        }
        json!({
            "observedGeneration": generation,
            "ready": route.is_ok(),
            "conditions": conditions,
            "config": {"maxInFlightMessages": self.in_flight},
            "cleanEventTypes": clean,
            "types": types.iter().map(of).collect::<Vec<_>>(),
        })
    }
}

/// Returns the maximum number of concurrent deliveries: a number in `v1alpha1`, a string in `v1alpha2`.
fn in_flight(written: &Value) -> Result<usize, String> {
    let number = match written {
        Value::Null => return Ok(IN_FLIGHT),
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().and_then(|number| usize::try_from(number).ok()),
    };
    let number = number.filter(|number| *number > 0);
    number.ok_or_else(|| "spec.config.maxInFlightMessages: must be a stringified int value of at least 1".to_owned())
}

/// Returns the set fields that have no effect. Fields outside of the definition do not get here: the API server refuses
/// or removes them.
fn ignored(spec: &Value) -> Vec<String> {
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    let fields = ["id", "protocol", "protocolsettings"].into_iter().filter(|field| is_set(&spec[*field]));
    let fields = fields.map(|field| format!("spec.{field}"));
    let dialect = is_set(&spec["filter"]["dialect"]).then(|| "spec.filter.dialect".to_owned());
    let settings = spec["config"].as_object().into_iter().flatten();
    let settings = settings.filter(|(name, value)| *name != "maxInFlightMessages" && is_set(value));
    let settings = settings.map(|(name, _)| format!("spec.config.{}", name.chars().take(63).collect::<String>()));
    fields.chain(dialect).chain(settings).take(MOST_IGNORED).collect()
}

/// Returns the target of a sink. Errors are in Kyma's words.
fn target(sink: &str, namespace: &str) -> Result<Target, String> {
    let parts = address::parse(sink).map_err(|fault| match fault {
        Fault::Scheme => "sink URL scheme should be 'http' or 'https'".to_owned(),
        Fault::Other(why) => format!("not able to parse sink url with error: {why}"),
    })?;
    let host = parts.host.as_str();
    if !host.ends_with("svc.cluster.local") {
        return Err("sink does not contain suffix: svc.cluster.local in the URL".to_owned());
    }
    let labels: Vec<&str> = host.split('.').collect();
    let [service, of, ..] = labels.as_slice() else {
        return Err(format!("sink should contain 5 sub-domains: {host}"));
    };
    if labels.len() != 5 || service.is_empty() {
        return Err(format!("sink should contain 5 sub-domains: {host}"));
    }
    if *of != namespace {
        return Err(format!(
            "namespace of subscription: {namespace} and the namespace of subscriber: {of} are different"
        ));
    }
    let host = ServiceHost::parse(host);
    let host = host.map_err(|why| format!("sink is not valid cluster local svc, failed with error: {why}"))?;
    Ok(Target::new(ServiceAddress { scheme: parts.scheme, host, port: parts.port }, &parts.path))
}

#[cfg(test)]
mod tests {
    use super::super::subscriber::Filter;
    use super::*;

    const SINK: &str = "http://lastorder.default.svc.cluster.local";
    const TYPE: &str = "sap.kyma.custom.my-app.order.received.v1";

    fn subscription(sink: &str, types: &[&str]) -> Subscription {
        let filter = |name: &&str| {
            let value = |property: &str, value: &str| json!({"property": property, "type": "exact", "value": value});
            json!({"eventSource": value("source", ""), "eventType": value("type", name)})
        };
        let filters: Vec<Value> = types.iter().map(filter).collect();
        let spec = json!({"sink": sink, "filter": {"filters": filters}});
        Subscription::read(&json!({"metadata": {"namespace": "default", "name": "sub"}, "spec": spec}))
    }

    #[test]
    fn a_sink_is_a_service_of_the_same_namespace() {
        let check = |sink: &str, expected: &str| {
            let route = subscription(sink, &[TYPE]).route;
            assert_eq!(route.map_or_else(|why| why, |(_, target)| target.url().to_owned()), expected, "{sink}");
        };
        check(SINK, "http://lastorder.default.svc.cluster.local/");
        check(&format!("{SINK}:8080/a?b"), "http://lastorder.default.svc.cluster.local:8080/a?b");
        check("lastorder", "sink URL scheme should be 'http' or 'https'");
        let user =
            "not able to parse sink url with error: it has a user, which is not sent; remove the part before the @";
        check("http://u:p@lastorder.default.svc.cluster.local", user);
        check("http://lastorder.default.svc.cluster.local@127.0.0.1/", user);
        check("http://127.0.0.1/?svc.cluster.local", "sink does not contain suffix: svc.cluster.local in the URL");
        check(
            "http://1a.default.svc.cluster.local",
            "sink is not valid cluster local svc, failed with error: must be the host of a Service in the cluster, NAME.NAMESPACE.svc.cluster.local",
        );
        check(
            &format!("{SINK}/a/%2e%2e/b"),
            "not able to parse sink url with error: its path has a segment . or .. or a backslash; write the resolved \
             path",
        );
        check(
            &format!("{SINK}:70000/"),
            "not able to parse sink url with error: its port must be a number from 1 to 65535",
        );
        check("ftp://a", "sink URL scheme should be 'http' or 'https'");
        check("http://a b", "not able to parse sink url with error: invalid uri character");
        check("http://example.com", "sink does not contain suffix: svc.cluster.local in the URL");
        check("http://svc.cluster.local", "sink should contain 5 sub-domains: svc.cluster.local");
        check("http://a.b.c.svc.cluster.local", "sink should contain 5 sub-domains: a.b.c.svc.cluster.local");
        check(
            "http://lastorder.other.svc.cluster.local",
            "namespace of subscription: default and the namespace of subscriber: other are different",
        );
    }

    #[test]
    fn types_are_cleaned_and_judged() {
        let types = |written: &[&str]| subscription(SINK, written).route.map(|(types, _)| types.filter);
        let clean = "sap.kyma.custom.myapp.order.received.v1";
        assert_eq!(types(&[TYPE, clean]), Ok(Filter::Types([clean.to_owned()].into())), "equal ones are one");
        assert_eq!(types(&[""]), Err("nats: invalid subject".into()));
        assert_eq!(types(&["a.b"]), Err("parse event-type [a.b] failed, prefix [sap.kyma.custom] not found".into()));
        assert_eq!(types(&["sap.kyma.custom.a.b"]), Err("parse event-type [a.b] failed, invalid format".into()));
    }

    #[test]
    fn its_status_says_ready_or_why_not() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let ready = subscription(SINK, &[TYPE]).status(None, &json!(1), &json!({}), now);
        assert_eq!(
            ready,
            json!({
                "observedGeneration": 1,
                "ready": true,
                "conditions": [{
                    "type": "Subscription active", "status": "True", "reason": "NATS Subscription active",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "config": {"maxInFlightMessages": 10},
                "cleanEventTypes": ["sap.kyma.custom.myapp.order.received.v1"],
                "types": [{"originalType": TYPE, "cleanType": "sap.kyma.custom.myapp.order.received.v1"}],
            })
        );
        let flawed = subscription(SINK, &[TYPE]);
        assert_eq!(flawed.subscriber(Some("why")).route, None);
        let status = flawed.status(Some("why"), &json!(1), &ready, now);
        assert_eq!((&status["ready"], &status["conditions"][0]["message"]), (&json!(false), &json!("why")));
        let wrong = subscription("x", &[TYPE]).status(None, &json!(1), &ready, Timestamp::MAX);
        assert_eq!((&wrong["ready"], &wrong["cleanEventTypes"]), (&json!(false), &json!([])));
        assert_eq!(wrong["conditions"][0]["message"], "sink URL scheme should be 'http' or 'https'");
    }
    #[test]
    fn a_limit_is_a_number_or_its_text() {
        let check = |written: Value, expected: Option<usize>| {
            let spec =
                json!({"sink": SINK, "source": "s", "types": ["a.b"], "config": {"maxInFlightMessages": written}});
            let read = Subscription::read(&json!({"metadata": {"namespace": "default", "name": "sub"}, "spec": spec}));
            assert_eq!(read.route.as_ref().ok().map(|_| read.in_flight), expected, "{written}");
        };
        check(json!(null), Some(10));
        check(json!(7), Some(7));
        check(json!("12"), Some(12));
        for wrong in [json!("ten"), json!("0"), json!(0), json!(-1), json!("")] {
            check(wrong, None);
        }
    }

    #[test]
    fn a_field_without_effect_has_a_condition() {
        let read = |spec: Value| {
            let status =
                Subscription::read(&json!({"metadata": {"namespace": "default", "name": "sub"}, "spec": spec}));
            status.status(None, &json!(1), &json!({}), Timestamp::UNIX_EPOCH)
        };
        let base = json!({"sink": SINK, "source": "s", "types": ["a.b"], "protocol": "", "protocolsettings": {}});
        assert_eq!(read(base.clone())["conditions"].as_array().unwrap().len(), 1, "empty ones are as if absent");
        let mut spec = base;
        spec["protocol"] = "BEB".into();
        spec["config"] = json!({"maxInFlightMessages": "3", "qos": "AT_LEAST_ONCE"});
        let status = read(spec);
        assert_eq!(status["ready"], true, "the rest is honoured");
        let condition = &status["conditions"][1];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("Fields supported"), &json!("False")));
        assert_eq!(condition["message"], "no effect: spec.protocol, spec.config.qos; remove these fields");
    }
}
