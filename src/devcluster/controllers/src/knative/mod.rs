//! Knative Serving: Services, Configurations, Routes and Revisions, and autoscaling by concurrent requests.
//!
//! A Service creates a Configuration and a Route, a Configuration a Revision per template, and a Revision a Deployment.
//! The controllers are `services`, `configurations`, `revisions`, `autoscaler`, `routes` and `ingresses`. The modules
//! `conditions`, `traffic`, `scale`, `gc`, `names` and `admission` decide. The node (`devcluster_node`) routes requests
//! according to the Ingress. Knative runs if the cluster's options enable it and [`DEFINITIONS`] are applied.
//!
//! Invariant: an object that another object controls is not changed; the status reports the name conflict.
//! Invariant: changes of a Deployment's image and variables are kept, because Knative does not compare them.
//!
//! Not here: TLS, several containers with code, gradual rollouts, and resolution of tags to digests.

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

/// CRDs of Knative Serving, as a stream of YAML documents.
pub const DEFINITIONS: &str = include_str!("definitions.yaml");

/// The other objects of an installation, as a stream of YAML documents: namespace, settings and webhook configurations.
/// [`admission::answer`] serves the webhooks.
pub const SETUP: &str = include_str!("setup.yaml");

/// The controllers of Knative Serving.
#[derive(Default)]
pub(super) struct Knative {
    /// The recent load of each autoscaler's Revision.
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
                // The Route and the Service share the Configuration's name.
                let route = of(ROUTES, event.key.name());
                let service = labelled(names::SERVICE).map(|name| of(SERVICES, name));
                // This order yields the status of a real Service: first the Route waits for the first Revision, later
                // requests still go to the previous Revision.
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
                // The owner before the write is included, because the write may have removed the owner reference.
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

/// Enqueues the object that a label names.
fn add_labelled(event: &Event, queue: &mut Queue<'_>, label: &str, storage: &str) {
    if let Some(name) = event.latest().and_then(|stored| labelled(stored, label)) {
        queue.add(Subject::new(storage, event.key.namespace(), name));
    }
}

fn labelled<'s>(stored: &'s Stored, label: &str) -> Option<&'s str> {
    stored.labels.iter().find(|(name, _)| name == label).map(|(_, value)| &**value)
}
