//! The known Triggers, Subscriptions, Brokers and namespaces. They determine the subscribers and the needed writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::grants::Grant;
pub(super) use super::services::Name;
use super::services::Services;
use super::subscriber::{Subscriber, Target, Version};
use super::subscription::Subscription;
use super::table::Table;
use super::trigger::{DEFAULT_BROKER, Trigger, condition};
use mainstay_api::names::{AGENT_MANAGER, BROKER_LABEL};
use mainstay_cluster::reflector::List;

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    Triggers,
    Subscriptions,
    Brokers,
    /// Namespaces with the label that requests a Broker.
    Namespaces,
    Services,
    /// EndpointSlices that the cluster's controller did not write.
    Written,
}

impl Watched {
    pub(super) const ALL: [Self; 6] =
        [Self::Triggers, Self::Subscriptions, Self::Brokers, Self::Namespaces, Self::Services, Self::Written];
}

/// A needed write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Write {
    /// The status, and the version of a subscriber that is ready according to it.
    Status(Value, Option<Version>),
    /// The label of a Trigger with its Broker.
    Label(String),
    /// The Broker `default`.
    Broker,
}

/// The remembered state of an object.
#[derive(Clone, Debug)]
struct Live {
    generation: Value,
    status: Value,
    label: Option<String>,
    /// Whether another controller writes the status of the object.
    is_foreign: bool,
    read: Read,
}

#[derive(Clone, Debug)]
enum Read {
    Trigger(Trigger),
    Subscription(Subscription),
    Nothing,
}

/// The known state.
#[derive(Debug, Default)]
pub(super) struct Seen {
    objects: BTreeMap<Watched, BTreeMap<Name, Live>>,
    complete: BTreeSet<Watched>,
    services: Arc<Services>,
    grants: Arc<[Grant]>,
}

impl Seen {
    pub(super) fn new(services: Arc<Services>, grants: Arc<[Grant]>) -> Self {
        Self { services, grants, ..Self::default() }
    }

    /// Adds or updates an object. Returns whether the table or the needed writes may change.
    pub(super) fn see(&mut self, watched: Watched, object: &Value) -> bool {
        let name = name_of(object);
        match watched {
            Watched::Services => return self.services.see(name, object),
            Watched::Written => return self.services.see_written(name, object),
            _ => {}
        }
        let mut writers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
        let live = Live {
            generation: object["metadata"]["generation"].clone(),
            status: object["status"].clone(),
            label: object["metadata"]["labels"][BROKER_LABEL].as_str().map(str::to_owned),
            is_foreign: writers.any(|one| one["subresource"] == "status" && one["manager"] != AGENT_MANAGER),
            read: match watched {
                Watched::Triggers => Read::Trigger(Trigger::read(object)),
                Watched::Subscriptions => Read::Subscription(Subscription::read(object)),
                _ => Read::Nothing,
            },
        };
        self.objects.entry(watched).or_default().insert(name, live);
        true
    }

    /// Removes a deleted object.
    pub(super) fn gone(&mut self, watched: Watched, object: &Value) {
        self.forget(watched, &name_of(object));
    }

    fn forget(&mut self, watched: Watched, name: &Name) {
        match watched {
            Watched::Services => self.services.gone(name),
            Watched::Written => self.services.gone_written(name),
            _ => drop(self.objects.entry(watched).or_default().remove(name)),
        }
    }

    /// Returns why a target is not valid.
    fn flaw(&self, target: Option<&Target>) -> Option<String> {
        target.and_then(|target| self.services.flaw(target.host()))
    }

    /// Completes a list: removes the objects that the list lacks.
    pub(super) fn complete(&mut self, watched: Watched, list: &List<Name>) {
        let known: Vec<Name> = match watched {
            Watched::Services => self.services.names(),
            Watched::Written => self.services.names_written(),
            _ => self.objects.entry(watched).or_default().keys().cloned().collect(),
        };
        for name in known.iter().filter(|name| list.lacks(name)) {
            self.forget(watched, name);
        }
        self.complete.insert(watched);
    }

    /// Whether all lists have been complete once.
    pub(super) fn is_complete(&self) -> bool {
        Watched::ALL.iter().all(|watched| self.complete.contains(watched))
    }

    /// Returns the number of objects that are left to other controllers.
    pub(super) fn foreign(&self) -> usize {
        self.objects.values().flat_map(BTreeMap::values).filter(|live| live.is_foreign).count()
    }

    /// Returns the subscribers.
    pub(super) fn table(&self) -> Table {
        let all = self.objects.values().flat_map(BTreeMap::values).filter_map(|live| self.subscriber(live));
        Table(all.map(|one| (one.id.clone(), Arc::new(one))).collect(), Arc::clone(&self.grants))
    }

    fn subscriber(&self, live: &Live) -> Option<Subscriber> {
        match &live.read {
            _ if live.is_foreign => None,
            Read::Trigger(trigger) => {
                let flaw = self.flaw(trigger.target());
                Some(trigger.subscriber(self.has_broker(trigger), flaw.as_deref()))
            }
            Read::Subscription(subscription) => {
                Some(subscription.subscriber(self.flaw(subscription.target()).as_deref()))
            }
            Read::Nothing => None,
        }
    }

    /// Returns the needed writes.
    pub(super) fn writes(&self, now: Timestamp) -> Vec<(Watched, Name, Write)> {
        let mut writes = Vec::new();
        for (watched, name, live) in self.own() {
            let status = match &live.read {
                Read::Trigger(trigger) => {
                    if live.label.as_ref() != Some(&trigger.broker) {
                        writes.push((watched, name.clone(), Write::Label(trigger.broker.clone())));
                    }
                    let flaw = self.flaw(trigger.target());
                    trigger.status(self.has_broker(trigger), flaw.as_deref(), &live.generation, &live.status, now)
                }
                Read::Subscription(subscription) => {
                    let flaw = self.flaw(subscription.target());
                    subscription.status(flaw.as_deref(), &live.generation, &live.status, now)
                }
                Read::Nothing if watched == Watched::Brokers => broker_status(name, &live.status, now),
                Read::Nothing => continue,
            };
            let differs = |(field, value): (&String, &Value)| live.status[field.as_str()] != *value;
            if status.as_object().is_some_and(|fields| fields.iter().any(differs)) {
                let version = self.subscriber(live).and_then(|one| one.version());
                writes.push((watched, name.clone(), Write::Status(status, version)));
            }
        }
        for namespace in self.without_broker() {
            writes.push((Watched::Brokers, (namespace, DEFAULT_BROKER.to_owned()), Write::Broker));
        }
        writes
    }

    fn own(&self) -> impl Iterator<Item = (Watched, &Name, &Live)> {
        let all = self.objects.iter().flat_map(|(watched, all)| all.iter().map(|(name, live)| (*watched, name, live)));
        all.filter(|(.., live)| !live.is_foreign)
    }

    /// Returns the namespaces that need the Broker `default` and lack it.
    fn without_broker(&self) -> BTreeSet<String> {
        let wanted = self.own().filter_map(|(watched, name, live)| match &live.read {
            Read::Trigger(trigger) if trigger.broker == DEFAULT_BROKER => Some(name.0.clone()),
            Read::Nothing if watched == Watched::Namespaces => Some(name.1.clone()),
            _ => None,
        });
        wanted.filter(|namespace| !self.is_there(namespace, DEFAULT_BROKER)).collect()
    }

    fn has_broker(&self, trigger: &Trigger) -> bool {
        self.is_there(&trigger.namespace, &trigger.broker)
    }

    fn is_there(&self, namespace: &str, broker: &str) -> bool {
        let brokers = self.objects.get(&Watched::Brokers);
        brokers.is_some_and(|all| all.contains_key(&(namespace.to_owned(), broker.to_owned())))
    }
}

fn broker_status((namespace, name): &Name, old: &Value, now: Timestamp) -> Value {
    let url = format!("http://eventing-publisher-proxy.kyma-system.svc.cluster.local/brokers/{namespace}/{name}");
    json!({"conditions": [condition("Ready", ("True", "", ""), old, now)], "address": {"url": url}})
}

fn name_of(object: &Value) -> Name {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn trigger(broker: &str) -> Value {
        let reference = json!({"apiVersion": "v1", "kind": "Service", "name": "f"});
        json!({
            "metadata": {"namespace": "team", "name": "mine", "labels": {BROKER_LABEL: broker}},
            "spec": {"broker": broker, "subscriber": {"ref": reference}},
        })
    }

    fn broker() -> Value {
        json!({"metadata": {"namespace": "team", "name": "default"}})
    }

    fn shown(seen: &Seen) -> Vec<String> {
        let all = seen.writes(NOW).into_iter();
        let all = all.map(|(watched, (namespace, name), write)| {
            let what = match write {
                Write::Status(status, _) => {
                    let all = status["conditions"].as_array().unwrap();
                    format!("status {}", all.last().unwrap()["status"].as_str().unwrap())
                }
                Write::Label(label) => format!("label {label}"),
                Write::Broker => "broker".to_owned(),
            };
            format!("{watched:?} {namespace}/{name}: {what}")
        });
        all.collect()
    }

    #[test]
    fn a_trigger_gets_a_default_broker_and_then_events() {
        let mut seen = Seen::default();
        seen.see(Watched::Triggers, &trigger("default"));
        assert_eq!(shown(&seen), ["Triggers team/mine: status False", "Brokers team/default: broker"]);
        assert!(seen.table().0.values().all(|one| one.route.is_none()));
        seen.see(Watched::Brokers, &broker());
        assert_eq!(shown(&seen), ["Triggers team/mine: status True", "Brokers team/default: status True"]);
        assert!(seen.table().0.values().all(|one| one.route.is_some()));
        let mut written = trigger("default");
        for (watched, _, write) in seen.writes(NOW) {
            if let (Watched::Triggers, Write::Status(status, _)) = (watched, write) {
                written["status"] = status;
            }
        }
        seen.see(Watched::Triggers, &written);
        assert_eq!(shown(&seen), ["Brokers team/default: status True"], "what is written is not written again");
    }

    #[test]
    fn a_service_that_changes_its_type_gets_no_events_any_more() {
        let mut seen = Seen::default();
        seen.see(Watched::Triggers, &trigger("default"));
        seen.see(Watched::Brokers, &broker());
        let service = |spec: Value| json!({"metadata": {"namespace": "team", "name": "f"}, "spec": spec});
        let good = service(json!({"selector": {"app": "f"}, "clusterIP": "10.0.0.1"}));
        assert!(seen.see(Watched::Services, &good) && !seen.see(Watched::Services, &good));
        let routes = |seen: &Seen| seen.table().0.values().filter(|one| one.route.is_some()).count();
        assert_eq!((routes(&seen), shown(&seen)[0].as_str()), (1, "Triggers team/mine: status True"));
        let external = service(json!({"type": "ExternalName", "externalName": "kubernetes.default"}));
        assert!(seen.see(Watched::Services, &external));
        assert_eq!((routes(&seen), shown(&seen)[0].as_str()), (0, "Triggers team/mine: status False"));
        seen.gone(Watched::Services, &external);
        assert_eq!(routes(&seen), 1, "its events wait for one that may come");
    }

    #[test]
    fn another_broker_has_to_be_there_by_itself() {
        let mut seen = Seen::default();
        let mut one = trigger("other");
        one["metadata"]["labels"] = json!({});
        seen.see(Watched::Triggers, &one);
        assert_eq!(shown(&seen), ["Triggers team/mine: label other", "Triggers team/mine: status False"]);
    }

    #[test]
    fn a_labelled_namespace_gets_a_broker() {
        let mut seen = Seen::default();
        seen.see(Watched::Namespaces, &json!({"metadata": {"name": "team"}}));
        assert_eq!(shown(&seen), ["Brokers team/default: broker"]);
        seen.gone(Watched::Namespaces, &json!({"metadata": {"name": "team"}}));
        assert!(shown(&seen).is_empty());
    }

    #[test]
    fn changes_of_another_controller_are_left_to_it() {
        let mut seen = Seen::default();
        let mut one = trigger("default");
        one["metadata"]["managedFields"] = json!([{"manager": "controller", "subresource": "status"}]);
        seen.see(Watched::Triggers, &one);
        assert_eq!((shown(&seen), seen.table().0.len(), seen.foreign()), (vec![], 0, 1));
    }

    #[test]
    fn objects_absent_from_a_new_list_are_gone() {
        let mut seen = Seen::default();
        seen.see(Watched::Triggers, &trigger("default"));
        assert_eq!(seen.table().0.len(), 1);
        seen.complete(Watched::Triggers, &List::default());
        assert_eq!((seen.table().0.len(), seen.is_complete()), (0, false));
    }
}
