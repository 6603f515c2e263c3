//! The table of all subscribers. The table finds the subscribers of an event.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cloud_event::CloudEvent;
use super::event_type::{self, Unclean, cleaned};
use super::grants::{Grant, may_receive};
use super::legacy::LegacyEvent;
use super::metrics::Subscribed;
use super::ordering::Ordering;
use super::subscriber::{Filter, Subscriber, SubscriberId, SubscriberKind, Version};

/// All subscribers, and the grants for events of other namespaces.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(pub(super) BTreeMap<SubscriberId, Arc<Subscriber>>, pub(super) Arc<[Grant]>);

/// An event and its subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Routed {
    pub(super) event: CloudEvent,
    pub(super) to: Vec<SubscriberId>,
    /// Those of them that receive the events of each source in order.
    pub(super) ordered: Vec<SubscriberId>,
}

impl Table {
    /// Returns the subscribers for metrics.
    pub(super) fn subscribed(&self) -> Vec<Subscribed> {
        let types = |filter: &Filter| match filter {
            Filter::Types(types) | Filter::Sourced { types, .. } => types.iter().cloned().collect(),
            Filter::Attributes(wanted) => wanted.get("type").filter(|of| !of.is_empty()).cloned().into_iter().collect(),
        };
        let of = |one: &Arc<Subscriber>| Subscribed {
            id: one.id.clone(),
            is_ready: one.route.is_some(),
            types: one.route.as_ref().map(|(filter, _)| types(filter)).unwrap_or_default(),
        };
        self.0.values().map(of).collect()
    }

    /// Returns whether this version of a subscriber, or a later one, receives events.
    pub(super) fn knows(&self, version: &Version) -> bool {
        let known = self.0.get(&version.id).and_then(|one| one.version());
        known.is_some_and(|known| known.uid == version.uid && known.generation >= version.generation)
    }

    /// Finds the subscribers of an event that was published for a namespace. For Subscriptions, a type with Kyma's
    /// prefix is cleaned first.
    pub(super) fn of_namespace(&self, publisher: &str, event: CloudEvent) -> Result<Vec<Routed>, Unclean> {
        let may = |one: &Subscriber| self.may_receive(one, publisher);
        let triggers = self.matching(SubscriberKind::Trigger, &event, may);
        let clean = match cleaned(event.event_type()) {
            Ok(clean) => Some(clean),
            Err(Unclean::NoPrefix(_)) => None,
            Err(unclean) => return Err(unclean),
        };
        let Some(clean) = clean.filter(|clean| clean != event.event_type()) else {
            let subscriptions = self.matching(SubscriberKind::Subscription, &event, may);
            return Ok(self.routed([(event, [triggers, subscriptions].concat())]));
        };
        let cleaned = event.with("type", &clean);
        let subscriptions = self.matching(SubscriberKind::Subscription, &cleaned, may);
        Ok(self.routed([(event, triggers), (cleaned, subscriptions)]))
    }

    /// Finds the subscribers of an event in the older format that was published for a namespace.
    pub(super) fn of_legacy(&self, publisher: &str, event: LegacyEvent) -> Vec<Routed> {
        let may = |one: &Subscriber| self.may_receive(one, publisher);
        let triggers = self.matching(SubscriberKind::Trigger, &event.plain, may);
        let cleaned = event.cleaned.map(|cleaned| {
            let subscriptions = self.matching(SubscriberKind::Subscription, &cleaned, may);
            (cleaned, subscriptions)
        });
        let mut versioned = self.matching(SubscriberKind::Subscription, &event.versioned, may);
        // A Subscription that names both types receives one event.
        versioned.retain(|to| cleaned.as_ref().is_none_or(|(_, others)| !others.contains(to)));
        self.routed([(event.plain, triggers)].into_iter().chain(cleaned).chain([(event.versioned, versioned)]))
    }

    /// Finds the subscribers of an event that was sent to a Broker.
    pub(super) fn of_broker(&self, namespace: &str, broker: &str, event: CloudEvent) -> Vec<Routed> {
        let of_broker = |one: &Subscriber| one.id.parts().1 == namespace && one.broker.as_deref() == Some(broker);
        let triggers = self.matching(SubscriberKind::Trigger, &event, of_broker);
        self.routed([(event, triggers)])
    }

    fn may_receive(&self, one: &Subscriber, publisher: &str) -> bool {
        may_receive(&self.1, one.id.parts().1, publisher)
    }

    /// Returns names and versions of the events of an application that have an allowed subscriber.
    pub(super) fn wanted_of(&self, publisher: &str, application: &str) -> Vec<(String, String)> {
        let clean = event_type::without_marks(application);
        let mut wanted = Vec::new();
        let may = self.0.values().filter(|one| self.may_receive(one, publisher));
        for (filter, _) in may.filter_map(|one| one.route.as_ref()) {
            match filter {
                Filter::Types(types) => {
                    let parts = types.iter().filter_map(|name| event_type::parts(name));
                    let own = parts.filter(|(of, ..)| *of == clean);
                    wanted.extend(own.map(|(_, name, version)| (name.to_owned(), version.to_owned())));
                }
                Filter::Sourced { source, types } if *source == event_type::standard_source(application) => {
                    let parts = types.iter().filter_map(|name| name.rsplit_once('.'));
                    wanted.extend(parts.map(|(name, version)| (name.to_owned(), version.to_owned())));
                }
                Filter::Sourced { .. } => {}
                Filter::Attributes(attributes) => {
                    let value = |name: &str| attributes.get(name).filter(|value| !value.is_empty());
                    if let (Some(source), Some(name)) = (value("source"), value("type"))
                        && source == application
                    {
                        wanted.push((name.clone(), value("eventtypeversion").cloned().unwrap_or_default()));
                    }
                }
            }
        }
        wanted.sort();
        wanted.dedup();
        wanted
    }

    fn routed(&self, all: impl IntoIterator<Item = (CloudEvent, Vec<SubscriberId>)>) -> Vec<Routed> {
        let is_ordered = |to: &&SubscriberId| self.0.get(*to).is_some_and(|one| one.ordering == Ordering::Source);
        let of = |(event, to): (CloudEvent, Vec<SubscriberId>)| {
            let ordered = to.iter().filter(is_ordered).cloned().collect();
            Routed { event, to, ordered }
        };
        all.into_iter().filter(|(_, to)| !to.is_empty()).map(of).collect()
    }

    fn matching(
        &self,
        kind: SubscriberKind,
        event: &CloudEvent,
        also: impl Fn(&Subscriber) -> bool,
    ) -> Vec<SubscriberId> {
        let of_kind = self.0.values().filter(|one| one.id.parts().0 == kind && also(one));
        let passing = of_kind.filter(|one| one.route.as_ref().is_some_and(|(filter, _)| filter.passes(event)));
        passing.map(|one| one.id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::subscription::Subscription;
    use super::super::trigger::Trigger;
    use super::*;

    fn table() -> Table {
        granted(&[])
    }

    fn granted(grants: &[&str]) -> Table {
        let grants: Arc<[Grant]> = grants.iter().map(|text| text.parse().unwrap()).collect();
        let metadata = |name: &str| json!({"namespace": "default", "name": name});
        let trigger = |name: &str, attributes: Value| {
            let reference = json!({"apiVersion": "v1", "kind": "Service", "name": "f"});
            let spec = json!({"filter": {"attributes": attributes}, "subscriber": {"ref": reference}});
            Trigger::read(&json!({"metadata": metadata(name), "spec": spec})).subscriber(true, None)
        };
        let event_type = json!({"eventType": {"value": "sap.kyma.custom.my-app.order.received.v1"}});
        let spec = json!({"sink": "http://f.default.svc.cluster.local", "filter": {"filters": [event_type]}});
        let subscription = Subscription::read(&json!({"metadata": metadata("sub"), "spec": spec})).subscriber(None);
        let all = [trigger("all", json!({})), trigger("one", json!({"type": "t", "source": "mock"})), subscription];
        Table(all.into_iter().map(|one| (one.id.clone(), Arc::new(one))).collect(), grants)
    }

    fn event(event_type: &str) -> CloudEvent {
        let attributes = [("id", "1"), ("source", "s"), ("type", event_type)];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
        CloudEvent { attributes: attributes.into(), ..CloudEvent::default() }
    }

    fn shown(routed: &[Routed]) -> Vec<String> {
        let ids = |to: &[SubscriberId]| to.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        routed.iter().map(|one| format!("{}: {}", one.event.event_type(), ids(&one.to))).collect()
    }

    #[test]
    fn subscriptions_get_clean_names_and_triggers_what_was_written() {
        let check = |name: &str, expected: &[&str]| {
            assert_eq!(shown(&table().of_namespace("default", event(name)).unwrap()), expected);
        };
        check(
            "sap.kyma.custom.my-app.order.received.v1",
            &[
                "sap.kyma.custom.my-app.order.received.v1: trigger/default/all",
                "sap.kyma.custom.myapp.order.received.v1: subscription/default/sub",
            ],
        );
        check(
            "sap.kyma.custom.myapp.order.received.v1",
            &["sap.kyma.custom.myapp.order.received.v1: trigger/default/all subscription/default/sub"],
        );
        check("other", &["other: trigger/default/all"]);
        assert!(table().of_namespace("default", event("sap.kyma.custom.a")).is_err());
    }

    #[test]
    fn events_of_another_namespace_are_received_by_the_operators_word_only() {
        let name = "sap.kyma.custom.myapp.order.received.v1";
        let all = format!("{name}: trigger/default/all subscription/default/sub");
        let check = |grants: &[&str], publisher: &str, expected: &[&str]| {
            let table = granted(grants);
            assert_eq!(shown(&table.of_namespace(publisher, event(name)).unwrap()), expected, "{grants:?} {publisher}");
            assert_eq!(table.wanted_of(publisher, "myapp").is_empty(), expected.is_empty());
        };
        check(&[], "default", &[&all]);
        check(&[], "other", &[]);
        check(&[], "kyma-system", &[]);
        check(&["default=other"], "other", &[&all]);
        check(&["*=kyma-system"], "kyma-system", &[&all]);
        check(&["other=*"], "kyma-system", &[]);
    }

    #[test]
    fn a_broker_has_its_own_triggers() {
        let of = |namespace: &str, broker: &str| table().of_broker(namespace, broker, event("t"));
        assert_eq!(shown(&of("default", "default")), ["t: trigger/default/all"]);
        assert!(of("other", "default").is_empty() && of("default", "other").is_empty());
    }

    #[test]
    fn an_application_learns_what_is_wanted_of_it() {
        let wanted = |application: &str| table().wanted_of("default", application);
        assert_eq!(wanted("my-app"), [("order.received".to_owned(), "v1".to_owned())]);
        assert_eq!(wanted("mock"), [("t".to_owned(), String::new())]);
        assert!(wanted("none").is_empty());
    }

    #[test]
    fn a_subscription_by_source_receives_events_in_each_format_once() {
        let spec = |more: Value| {
            let mut spec = json!({"sink": "http://f.default.svc.cluster.local", "types": ["order.paid.v1"]});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec
        };
        let one = |name: &str, more: Value| {
            let metadata = json!({"namespace": "default", "name": name});
            let read = Subscription::read(&json!({"metadata": metadata, "spec": spec(more)})).subscriber(None);
            (read.id.clone(), Arc::new(read))
        };
        let both = json!(["sap.kyma.custom.myshop.order.paid.v1", "order.paid.v1"]);
        let all = [
            one("exact", json!({"typeMatching": "exact"})),
            one("both", json!({"typeMatching": "exact", "types": both})),
            one("standard", json!({"source": "my.shop"})),
        ];
        let table = Table(all.into_iter().collect(), [].into());
        let from = |source: &str| {
            shown(&table.of_namespace("default", event("order.paid.v1").with("source", source)).unwrap())
        };
        let others = "order.paid.v1: subscription/default/both subscription/default/exact";
        assert_eq!(from("myshop"), [format!("{others} subscription/default/standard")]);
        assert_eq!(from("other"), [others]);
        let body = br#"{"event-type": "order.paid", "event-type-version": "v1", "event-time": "2020-04-02T21:37:00Z", "data": 1}"#;
        let legacy = super::super::legacy::parse("my.shop", body, "1").unwrap();
        assert_eq!(
            shown(&table.of_legacy("default", legacy)),
            [
                "sap.kyma.custom.myshop.order.paid.v1: subscription/default/both",
                "order.paid.v1: subscription/default/exact subscription/default/standard",
            ]
        );
        assert_eq!(table.wanted_of("default", "my.shop"), [("order.paid".to_owned(), "v1".to_owned())]);
    }
}
