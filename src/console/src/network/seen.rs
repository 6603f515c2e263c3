//! The values of the objects that were read, what could not be read, and the application that a picture is about.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::object::{Object, Pod, Policy, Service, Slice};
use super::route::Route;
use crate::tree::Node;
use mainstay_object::Key;

/// Kinds that make pods, as a tree has them above their pods.
const WORKLOADS: [(&str, &str); 6] = [
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("apps", "ReplicaSet"),
    ("batch", "CronJob"),
    ("batch", "Job"),
];

/// The lists that a picture needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Listed {
    Routes,
    Services,
    Slices,
    Pods,
    Policies,
}

/// The part of an object that a picture needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Route(Route),
    Object(Object),
}

impl Part {
    /// Returns the part of an object; `None` if a picture does not need it.
    pub(crate) fn of(listed: Listed, key: Key, live: &Value) -> Option<Self> {
        match listed {
            Listed::Routes => Route::of(key, live).map(Self::Route),
            Listed::Services | Listed::Slices | Listed::Pods | Listed::Policies => {
                Object::of(key, live).map(Self::Object)
            }
        }
    }

    /// Returns its approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Route(route) => route.bytes(),
            Self::Object(object) => object.bytes(),
        }
    }
}

/// The values that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(super) routes: Vec<Route>,
    pub(super) services: BTreeMap<Key, Service>,
    pub(super) slices: Vec<Slice>,
    pub(super) pods: BTreeMap<Key, Pod>,
    pub(super) policies: Vec<Policy>,
    /// The lists of namespaces: `None` if the list was read as a whole, or the reason why it was not.
    lists: HashMap<Listed, BTreeMap<String, Option<String>>>,
}

impl Seen {
    /// Adds the part of an object.
    pub(crate) fn add(&mut self, part: Part) {
        match part {
            Part::Route(route) => self.routes.push(route),
            Part::Object(Object::Service(service)) => {
                self.services.insert(service.key.clone(), service);
            }
            Part::Object(Object::Slice(slice)) => self.slices.push(slice),
            Part::Object(Object::Pod(pod)) => {
                self.pods.insert(pod.key.clone(), pod);
            }
            Part::Object(Object::Policy(policy)) => self.policies.push(policy),
        }
    }

    /// Records that a list of a namespace was read, or the reason why not all of it was.
    pub(crate) fn set_read(&mut self, listed: Listed, namespace: &str, unread: Option<String>) {
        let of_list = self.lists.entry(listed).or_default();
        let known = of_list.entry(namespace.to_owned()).or_default();
        if known.is_none() {
            *known = unread;
        }
    }

    /// Returns why a list of the namespace of an object was not read as a whole; `None` if it was.
    pub(super) fn unread(&self, listed: Listed, key: &Key) -> Option<&str> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        match self.lists.get(&listed).and_then(|lists| lists.get(namespace)) {
            Some(why) => why.as_deref(),
            None => Some("this page does not read its namespace"),
        }
    }

    /// Returns the namespaces of Services that routes of the application name.
    pub(crate) fn namespaces_of_backends(&self, subject: &Subject) -> BTreeSet<String> {
        let own = self.routes.iter().filter(|route| subject.own.contains(&route.key));
        own.flat_map(Route::services).filter_map(|key| key.namespace.as_deref().map(str::to_owned)).collect()
    }
}

/// The application of a picture.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject {
    /// Its objects.
    pub(super) own: BTreeSet<Key>,
    /// The workloads of its pods, as far as a tree knows them.
    pub(super) workloads: BTreeMap<Key, Key>,
}

impl Subject {
    /// Returns the objects of a tree.
    pub(crate) fn of_tree(objects: &[Node]) -> Self {
        let mut subject = Self::default();
        for node in objects {
            subject.add(node, None);
        }
        subject
    }

    /// Returns the objects of a Function that receive requests.
    pub(crate) fn of_function(function: &Key) -> Self {
        let namespace = function.namespace.as_deref();
        let keys = ["", "serving.knative.dev"].map(|group| Key::new(group, "Service", namespace, &*function.name));
        Self { own: keys.into(), ..Self::default() }
    }

    /// Returns the namespaces of the application.
    pub(crate) fn namespaces(&self) -> BTreeSet<&str> {
        self.own.iter().filter_map(|key| key.namespace.as_deref()).collect()
    }

    fn add(&mut self, node: &Node, workload: Option<&Key>) {
        let is_workload = WORKLOADS.iter().any(|(group, kind)| node.key.is(group, kind));
        let workload = workload.or_else(|| is_workload.then_some(&node.key));
        if let Some(workload) = workload.filter(|_| node.key.is("", "Pod")) {
            self.workloads.insert(node.key.clone(), workload.clone());
        }
        self.own.insert(node.key.clone());
        for child in &node.children {
            self.add(child, workload);
        }
    }
}
