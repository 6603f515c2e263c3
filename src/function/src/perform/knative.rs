//! Performs the steps of Functions on Knative: transfers of the address, and deletion of unused Revisions.
//!
//! Invariant: no request is sent for a Function without a transfer and without unused Revisions.
//! Invariant: objects of a Knative Service are read again before a decision, because they are not watched.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{Outcome, Performer};
use crate::child_kind::ChildKind;
use crate::child_state::ChildIdentity;
use crate::knative_owner::{Holder, can_be_taken, given_endpoints, given_service, holder, is_controlled_by, taken};
use crate::knative_revisions::{Owners, unneeded};
use mainstay_cluster::{Error, Kind, Part, Scope, Selection};
use mainstay_engine::apply::Version;

const VERSION: &str = "serving.knative.dev/v1";
/// Label of a Revision with the name of its Knative Service.
const SERVICE: &str = "serving.knative.dev/service";
/// Delay if Revisions changed before their deletion, or while their owners are not ready.
const AGAIN: Duration = Duration::from_secs(2);
/// Delay while a Route is missing. The Knative Service usually changes before this delay is over.
const WITHOUT_ROUTE: Duration = Duration::from_secs(60);
/// Delay after a write conflict.
const SOON: Duration = Duration::from_millis(100);

fn kind(name: &str, plural: &str) -> Arc<Kind> {
    Arc::new(Kind::fixed(VERSION, name, plural, Scope::Namespaced))
}

fn endpoints() -> Kind {
    Kind::fixed("v1", "Endpoints", "endpoints", Scope::Namespaced)
}

fn version(object: &Value) -> Version {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    Version { uid: text("uid"), resource_version: text("resourceVersion") }
}

impl Performer<'_> {
    async fn read(&self, kind: &Kind, name: &str) -> Result<Option<Value>, Error> {
        self.context.writer.cluster().get(kind, Some(self.namespace), name).await
    }

    /// Reads the Route of a Knative Service.
    async fn route(&self, knative: &ChildIdentity) -> Result<Option<Value>, Error> {
        let route = self.read(&kind("Route", "routes"), &knative.name).await?;
        Ok(route.filter(|route| is_controlled_by(route, &Value::from(&*knative.uid))))
    }

    /// Makes the Route of the Knative Service the owner of the Service with the Function's name.
    pub(super) async fn give_address(&self, knative: &ChildIdentity, outcome: &mut Outcome) -> Result<(), Error> {
        let services = ChildKind::Service.kind();
        let (writer, name) = (&self.context.writer, &*knative.name);
        let Some(route) = self.route(knative).await? else {
            outcome.look_again(WITHOUT_ROUTE);
            return Ok(());
        };
        let Some(live) = self.read(&services, name).await? else { return Ok(()) };
        if holder(&live, self.uid) == Holder::Function
            && let Some(patch) = given_service(&live, &route)
        {
            // Knative checks the owner of the Service and of the Endpoints.
            let endpoints = endpoints();
            if let Some(patch) = self.read(&endpoints, name).await?.and_then(|live| given_endpoints(&live, &route)) {
                writer.cluster().patch_merge(&endpoints, Some(self.namespace), name, Part::Main, &patch).await?;
            }
            let key = services.key(Some(self.namespace), name);
            match writer.transfer(self.owner, &services, &key, &version(&live), patch).await {
                Err(error) if error.is_conflict() => {
                    outcome.look_again(SOON);
                    return Ok(());
                }
                written => drop(written?),
            }
        }
        // The Function no longer owns the Service.
        self.context.cache.disown(ChildKind::Service, &live);
        Ok(())
    }

    /// Takes the Service with the Function's name back from the Route of a Knative Service. If the Service cannot be
    /// taken back, deletes the Knative Service.
    pub(super) async fn take_address(
        &self,
        document: &Value,
        knative: &[ChildIdentity],
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let services = ChildKind::Service.kind();
        let Some(name) = document.pointer("/metadata/name").and_then(Value::as_str) else { return Ok(()) };
        let live = self.read(&services, name).await?;
        if let Some(live) = &live {
            match holder(live, self.uid) {
                Holder::Function => {
                    self.context.cache.upsert(ChildKind::Service, live);
                    return Ok(());
                }
                Holder::Route(uid) if can_be_taken(live) && self.is_ours(uid, name, knative).await? => {
                    self.release_endpoints(name, uid).await?;
                    let key = services.key(Some(self.namespace), name);
                    let patch = taken(live, document);
                    let writer = &self.context.writer;
                    match writer.transfer(self.owner, &services, &key, &version(live), patch).await {
                        Err(error) if error.is_conflict() => {}
                        written => drop(self.context.cache.upsert(ChildKind::Service, &written?)),
                    }
                    outcome.look_again(SOON);
                    return Ok(());
                }
                Holder::Route(_) | Holder::Other => {}
            }
        }
        for identity in knative {
            self.delete(ChildKind::KnativeService, identity).await?;
        }
        Ok(())
    }

    /// Removes the Route as the owner of the Endpoints, so that they are not deleted with it.
    async fn release_endpoints(&self, name: &str, route: &str) -> Result<(), Error> {
        let (kind, cluster) = (endpoints(), self.context.writer.cluster());
        let live = self.read(&kind, name).await?;
        if live.is_some_and(|live| is_controlled_by(&live, &Value::from(route))) {
            let patch = json!({ "metadata": { "ownerReferences": null } });
            cluster.patch_merge(&kind, Some(self.namespace), name, Part::Main, &patch).await?;
        }
        Ok(())
    }

    /// Whether the Route with this UID belongs to one of these Knative Services.
    async fn is_ours(&self, uid: &str, name: &str, knative: &[ChildIdentity]) -> Result<bool, Error> {
        let Some(of_name) = knative.iter().find(|identity| identity.name == name) else { return Ok(false) };
        Ok(self.route(of_name).await?.is_some_and(|route| route["metadata"]["uid"] == uid))
    }

    /// Deletes the unused Revisions of a Knative Service.
    pub(super) async fn clean_up(&self, knative: &ChildIdentity, outcome: &mut Outcome) -> Result<(), Error> {
        let (revisions, name) = (kind("Revision", "revisions"), &*knative.name);
        let selection = Selection::labelled(SERVICE, name).within(self.namespace);
        // Revisions are listed before the objects that reference them. A Revision that is referenced later has changed
        // since the list, so its deletion fails.
        let listed: Vec<ObjectMeta> =
            self.context.writer.cluster().list_metadata(&revisions, selection).try_collect().await?;
        if listed.len() < 2 {
            return Ok(());
        }
        let configuration = self.read(&kind("Configuration", "configurations"), name).await?;
        let (route, service) = (self.route(knative).await?, self.read(&ChildKind::KnativeService.kind(), name).await?);
        let (Some(service), Some(configuration), Some(route)) = (service, configuration, route) else { return Ok(()) };
        if service["metadata"]["uid"] != *knative.uid {
            return Ok(());
        }
        let owners = Owners { service: &service, configuration: &configuration, route: &route };
        let Some(unneeded) = unneeded(&owners, &listed) else {
            outcome.revisions_left = true;
            outcome.look_again(AGAIN);
            return Ok(());
        };
        for meta in unneeded {
            let (Some(name), Some(uid), Some(at)) = (&meta.name, &meta.uid, &meta.resource_version) else { continue };
            let key = revisions.key(Some(self.namespace), name);
            let found = Version { uid: uid.clone(), resource_version: at.clone() };
            if !self.context.writer.delete_found(&revisions, &key, found).await? {
                outcome.revisions_left = true;
                outcome.look_again(AGAIN);
            }
        }
        Ok(())
    }
}
