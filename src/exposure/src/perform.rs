//! Writes the objects of one APIRule, and deletes objects that are no longer desired.
//!
//! Invariant: a path is not routed while its guarding policy is missing, for any reason.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::child::{Child, ChildKind, Place};
use super::context::Context;
use super::decide::{Applied, Put, Reverts, is_made_for, old_rules, put, unwanted};
use super::refusals::{FAR, NotDone, Refusals, Request};
use super::resolve::{Identity, Resolved};
use mainstay_api::names::EXPOSURE_MANAGER;
use mainstay_cluster::Apply;
use mainstay_engine::apply::Version;
use mainstay_object::{Digest, Owner};

/// Delay if an object was deleted before the response to its write arrived.
const SOON: Duration = Duration::from_secs(1);

/// The written objects of one APIRule.
pub(super) struct Objects {
    context: Arc<Context>,
    owner: Owner,
    began: Instant,
    applied: HashMap<(ChildKind, String), Applied>,
    reverts: Reverts,
    /// Refused requests since the last complete success.
    pub(super) refusals: Refusals,
}

impl Objects {
    /// Returns a state without written objects.
    pub(super) fn new(context: Arc<Context>, owner: Owner) -> Self {
        let (applied, reverts, refusals) = (HashMap::new(), Reverts::default(), Refusals::default());
        Self { context, owner, began: Instant::now(), applied, reverts, refusals }
    }

    /// Returns the seconds since the start of the task.
    pub(super) fn clock(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Forgets the written objects.
    pub(super) fn forget(&mut self) {
        self.applied.clear();
    }

    /// Writes the guards of routes. Fails with the reason.
    pub(super) async fn guard(&mut self, good: &Resolved, children: &[Child]) -> Result<(), NotDone> {
        for child in children.iter().filter(|child| child.kind.guards()) {
            let what = format!("{} {}", child.kind.names().1, child.name);
            if let Some(wait) = self.put(good, child).await? {
                let why = format!("{what} keeps being changed or deleted, and is reverted later");
                return Err(NotDone { why, wait });
            }
            if self.context.seen(&place(good, child)).is_none_or(|seen| seen.is_terminating) {
                return Err(NotDone::until_a_change(format!("{what} is being deleted")));
            }
        }
        Ok(())
    }

    /// Writes the routes and deletes objects that are no longer desired. Returns how long reverts have to wait.
    pub(super) async fn route(&mut self, good: &Resolved, children: &[Child]) -> Result<Duration, NotDone> {
        let mut wait = FAR;
        let (routes, access_rules): (Vec<&Child>, Vec<&Child>) =
            children.iter().filter(|child| !child.kind.guards()).partition(|child| child.kind != ChildKind::AccessRule);
        for child in routes {
            let later = self
                .put(good, child)
                .await
                .map_err(|failed| failed.with(&old_rules(self.context.children(&self.owner, &good.identity.uid))))?;
            wait = wait.min(later.unwrap_or(FAR));
        }
        // Old Rules are deleted before the new Rules are written, so that no old Rule applies if a new Rule is refused.
        let pruned = self.prune(&good.identity, children).await;
        for child in access_rules {
            wait = wait.min(self.put(good, child).await?.unwrap_or(FAR));
        }
        pruned.map(|()| wait)
    }

    /// Writes an object unless it is unchanged. Returns how long the write has to wait, if it was not sent.
    async fn put(&mut self, good: &Resolved, child: &Child) -> Result<Option<Duration>, NotDone> {
        let (place, key) = (place(good, child), (child.kind, child.name.clone()));
        let desired = Digest::of(child.body.to_string().as_bytes());
        let (seen, now) = (self.context.seen(&place), self.clock());
        let (applied, whose) = (self.applied.get(&key), (&self.owner, good.identity.uid.as_str()));
        let put = put(desired, applied, seen.as_ref(), whose, self.reverts.wait(now));
        match put {
            Put::Nothing => return Ok(None),
            Put::Later(wait) => return Ok(Some(wait)),
            Put::Taken => {
                let why = format!("{} {} is not this APIRule's", child.kind.names().1, child.name);
                return Err(NotDone::until_a_change(why));
            }
            Put::Write | Put::Revert => {}
        }
        let Some(served) = self.context.served(child.kind) else { return Ok(None) };
        let mut body = child.body.clone();
        body["apiVersion"] = served.kind.api_version().into();
        if let Some(seen) = &seen {
            body["metadata"]["uid"] = Value::from(&*seen.uid);
        }
        let request = Request::Apply(child.kind, child.name.clone(), desired);
        self.refusals.may_try(&request, self.clock())?;
        let context = Arc::clone(&self.context);
        // The semaphore is never closed.
        let _permit = context.permits.acquire().await;
        let (namespace, how) = (Some(place.1.as_str()), Apply::forced(EXPOSURE_MANAGER));
        let live = context.writer.cluster().apply(&served.kind, namespace, &child.name, &body, how).await;
        let live = live.map_err(|error| self.refusals.refuse(request, &error, self.clock(), fastrand::f64()))?;
        let Some(seen) = context.wrote(child.kind, &live) else {
            self.applied.remove(&key);
            return Ok(Some(SOON));
        };
        self.applied.insert(key, Applied { desired, fingerprint: seen.fingerprint });
        if put == Put::Revert {
            self.reverts.add(now);
            tracing::info!(apirule = self.owner.resource().as_str(), "reverted {} {}", served.kind.kind, child.name);
        }
        Ok(None)
    }

    /// Deletes objects that this agent created for the APIRule and that are no longer desired.
    pub(super) async fn prune(&mut self, identity: &Identity, wanted: &[Child]) -> Result<(), NotDone> {
        for (place, seen) in unwanted(self.context.children(&self.owner, &identity.uid), wanted) {
            let Some(served) = self.context.served(place.0) else { continue };
            let request = Request::Delete(place.0, place.2.clone());
            self.refusals.may_try(&request, self.clock())?;
            let key = served.kind.key(Some(&place.1), &place.2);
            let version = Version { uid: seen.uid.into(), resource_version: seen.resource_version.into() };
            let judge = |meta: &ObjectMeta| if is_made_for(&identity.uid, meta) { Ok(()) } else { Err(()) };
            let done = self.context.writer.delete_unowned(&served.kind, &key, Some(version), judge).await;
            done.map_err(|error| self.refusals.refuse(request, &error, self.clock(), fastrand::f64()))?;
            self.applied.remove(&(place.0, place.2));
        }
        Ok(())
    }
}

/// Returns kind, namespace and name of an object of an APIRule.
pub(super) fn place(good: &Resolved, child: &Child) -> Place {
    (child.kind, good.identity.namespace.clone(), child.name.clone())
}
