//! Knative Serving: a Service becomes a Configuration and a Route, a Configuration a Revision per template, and a Revision a
//! Deployment that an autoscaler sizes by the requests that are under way.
//!
//! It runs where the cluster's options say so. [`DEFINITIONS`] has the kinds; until they are applied there is nothing to do.
//! `services`, `configurations`,
//! `revisions`, `autoscaler`, `routes` and `ingresses` are the controllers, each with what it writes; `conditions`, `traffic`, `scale`,
//! `gc`, `names` and `admission` decide. Requests are led by the node (`devcluster_node`), by what the Ingress says.
//!
//! Invariant: an object that another controls is left alone, and said to be in the way.
//! Invariant: a Deployment's image and variables stay as somebody changes them: Knative looks at neither again.
//!
//! Deliberately absent: TLS, several containers with code, gradual rollouts, and the digests of tags.

pub mod admission;
mod autoscaler;
mod children;
mod conditions;
mod configurations;
mod gc;
mod ingresses;
mod kinds;
mod labeler;
mod names;
mod pod;
mod revisions;
mod routes;
mod scale;
mod services;
mod settings;
mod traffic;

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use self::kinds::{AUTOSCALERS, CONFIGURATIONS, DEPLOYMENTS, INGRESSES, REVISIONS, ROUTES, SERVERLESS, SERVICES};
use super::controller::{Controller, Queue};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::store::{Key, Stored};

/// The definitions of the kinds, as a stream of YAML documents.
pub const DEFINITIONS: &str = include_str!("definitions.yaml");

/// What else an installation has, as a stream of YAML documents: the namespace of its settings, those, and the configurations of its
/// webhooks, which [`admission::answer`] answers.
pub const SETUP: &str = include_str!("setup.yaml");

/// The controllers of Knative Serving.
#[derive(Default)]
pub(super) struct Knative {
    /// What each autoscaler has seen.
    seen: HashMap<Key, scale::Seen>,
}

impl Controller for Knative {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        let storage = &*event.storage;
        let of = |storage: &str, name: &str| Subject::new(storage, event.key.namespace(), name);
        let labelled = |label: &str| event.latest().and_then(|stored| labelled(stored, label));
        match storage {
            SERVICES => queue.add(Subject::of(event)),
            CONFIGURATIONS => {
                queue.add(Subject::of(event));
                // Its Route is called as the Service is.
                let route = of(ROUTES, event.key.name());
                let service = labelled(names::SERVICE).map(|name| of(SERVICES, name));
                // In this order a Service says what a real one says: that the Route waits for the first Revision, and later
                // that requests still go to the one before.
                let is_new = event.change() == Change::Added;
                let all = if is_new { [Some(route), service] } else { [service, Some(route)] };
                for subject in all.into_iter().flatten() {
                    queue.add(subject);
                }
            }
            REVISIONS => {
                queue.add(Subject::of(event));
                add_labelled(event, queue, names::CONFIGURATION, CONFIGURATIONS);
                if let Some(name) = labelled(names::SERVICE) {
                    queue.add(of(SERVICES, name));
                    queue.add(of(ROUTES, name));
                }
            }
            ROUTES => {
                queue.add(Subject::of(event));
                add_labelled(event, queue, names::SERVICE, SERVICES);
            }
            AUTOSCALERS | SERVERLESS => {
                queue.add(of(AUTOSCALERS, event.key.name()));
                add_labelled(event, queue, names::REVISION, REVISIONS);
            }
            INGRESSES => {
                queue.add(Subject::of(event));
                add_labelled(event, queue, names::ROUTE, ROUTES);
            }
            DEPLOYMENTS => {
                if let Some(name) = labelled(names::REVISION) {
                    queue.add(of(REVISIONS, name));
                    queue.add(of(AUTOSCALERS, name));
                }
            }
            "services" | "endpoints" => {
                // Also of one that has just been given away.
                for stored in event.old.iter().chain(&event.new) {
                    for owner in stored.owners.iter().filter(|owner| owner.controls) {
                        match &*owner.kind {
                            "Route" => queue.add(of(ROUTES, &owner.name)),
                            "ServerlessService" => queue.add(of(AUTOSCALERS, &owner.name)),
                            _ => {}
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn waited_for(&mut self, revisions: &BTreeSet<Key>, queue: &mut Queue<'_>) {
        for revision in revisions {
            queue.add(autoscaler::of(revision));
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(object) = client.get(subject) else {
            if &*subject.storage == AUTOSCALERS {
                self.seen.remove(&subject.key);
                client.server().requests().forget(&subject.key);
            }
            return;
        };
        match &*subject.storage {
            SERVICES => services::reconcile(client, subject, &object),
            CONFIGURATIONS => configurations::reconcile(client, subject, &object),
            REVISIONS => revisions::reconcile(client, subject, &object),
            AUTOSCALERS => {
                let seen = self.seen.entry(subject.key.clone()).or_insert_with(|| scale::Seen::since(Instant::now()));
                autoscaler::reconcile(client, subject, &object, seen, queue);
            }
            ROUTES => routes::reconcile(client, subject, &object, queue),
            INGRESSES => ingresses::reconcile(client, subject, &object),
            _ => {}
        }
    }
}

/// Adds the object of a storage that a label names.
fn add_labelled(event: &Event, queue: &mut Queue<'_>, label: &str, storage: &str) {
    if let Some(name) = event.latest().and_then(|stored| labelled(stored, label)) {
        queue.add(Subject::new(storage, event.key.namespace(), name));
    }
}

fn labelled<'s>(stored: &'s Stored, label: &str) -> Option<&'s str> {
    stored.labels.iter().find(|(name, _)| name == label).map(|(_, value)| &**value)
}
