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

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::object::text;
use devcluster_apiserver::store::{Key, Stored};

/// The definitions of the kinds, as a stream of YAML documents.
pub const DEFINITIONS: &str = include_str!("definitions.yaml");

/// What else an installation has, as a stream of YAML documents: the namespace of its settings, those, and the configurations of its
/// webhooks, which [`admission::answer`] answers.
pub const SETUP: &str = include_str!("setup.yaml");

/// The namespace of the settings.
const NAMESPACE: &str = "knative-serving";
/// The manager of what is written here.
const MANAGER: &str = "controller";

const SERVICES: &str = "services.serving.knative.dev";
const CONFIGURATIONS: &str = "configurations.serving.knative.dev";
const REVISIONS: &str = "revisions.serving.knative.dev";
const ROUTES: &str = "routes.serving.knative.dev";
const AUTOSCALERS: &str = "podautoscalers.autoscaling.internal.knative.dev";
const SERVERLESS: &str = "serverlessservices.networking.internal.knative.dev";
const INGRESSES: &str = "ingresses.networking.internal.knative.dev";
const IMAGES: &str = "images.caching.internal.knative.dev";
const DEPLOYMENTS: &str = "deployments.apps";

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
                all.into_iter().flatten().for_each(|subject| queue.add(subject));
            }
            REVISIONS => {
                queue.add(Subject::of(event));
                labelled(names::CONFIGURATION).into_iter().for_each(|name| queue.add(of(CONFIGURATIONS, name)));
                if let Some(name) = labelled(names::SERVICE) {
                    queue.add(of(SERVICES, name));
                    queue.add(of(ROUTES, name));
                }
            }
            ROUTES => {
                queue.add(Subject::of(event));
                labelled(names::SERVICE).into_iter().for_each(|name| queue.add(of(SERVICES, name)));
            }
            AUTOSCALERS | SERVERLESS => {
                queue.add(of(AUTOSCALERS, event.key.name()));
                labelled(names::REVISION).into_iter().for_each(|name| queue.add(of(REVISIONS, name)));
            }
            INGRESSES => {
                queue.add(Subject::of(event));
                labelled(names::ROUTE).into_iter().for_each(|name| queue.add(of(ROUTES, name)));
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
        revisions.iter().for_each(|revision| queue.add(autoscaler::of(revision)));
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

fn labelled<'s>(stored: &'s Stored, label: &str) -> Option<&'s str> {
    stored.labels.iter().find(|(name, _)| name == label).map(|(_, value)| &**value)
}

/// The namespace and the name of an object.
fn place(object: &serde_json::Value) -> (&str, &str) {
    (text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}
