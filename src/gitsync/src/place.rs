//! The move of a GitSync to a different cluster: its own, or the one of `spec.kubeConfig`. The objects in the previous
//! cluster are released.
//!
//! Invariant: no object is deleted because a GitSync moved to a different cluster.
//! Invariant: while the cluster is unknown, nothing is read or written in any cluster.
//! Invariant: the state of one cluster is never applied to a different one. In a new cluster, a GitSync starts as new,
//! or with the inventory that it has there.
//!
//! Not here: the connection (`clusters`).

use std::sync::Arc;
use std::time::Duration;

use super::clusters::{Engine, unreached};
use super::context::Context;
use super::outcome::Refused;
use super::reconcile::Task;
use super::whereabouts::{Place, as_known_in, has_objects, plain_http};
use mainstay_api::GitSync;
use mainstay_engine::notification::Message;

/// Maximum time to release objects in a cluster that is left.
const RELEASED_WITHIN: Duration = Duration::from_secs(60);

impl Task {
    /// Returns the id of the remote cluster of the objects, if there is one.
    pub(super) fn cluster_id<'a>(&'a self, sync: &'a GitSync) -> Option<&'a str> {
        match &self.place {
            Place::Home => None,
            Place::Elsewhere(engine) => Some(engine.id()),
            Place::Nowhere => sync.status.as_ref().and_then(|status| status.cluster.as_deref()),
        }
    }

    /// Moves to the cluster that the spec selects.
    ///
    /// # Errors
    ///
    /// The cluster is unknown or does not respond. The last applied commit stays enforced if possible.
    pub(super) async fn settle_place(&mut self, sync: &GitSync) -> Result<(), Refused> {
        let home = Arc::clone(&self.home);
        let plain = plain_http(home.source.allows_local());
        let Some((of, by)) = self.sources.kubeconfig(&home.secrets, sync, plain).await? else {
            return self.go_home(sync).await;
        };
        let mut engine = home.engine(&self.owner, &of, &by, home.addresses(&of.namespace)).await?;
        if engine.cluster.is_in_trouble() {
            let id = engine.cluster.id().await.map_err(|error| unreached(&of, &error))?;
            if id != engine.id() {
                // The same address and credentials may reach a different cluster now.
                engine.retire();
                engine = home.engine(&self.owner, &of, &by, home.addresses(&of.namespace)).await?;
            }
        }
        self.go_to(sync, engine).await
    }

    async fn go_to(&mut self, sync: &GitSync, engine: Arc<Engine<Context>>) -> Result<(), Refused> {
        let is_home = engine.place.home.is_none();
        let was = self.cluster_id(sync).map(str::to_owned);
        let is_same = was.as_deref().map_or(is_home, |was| was == engine.id());
        match &self.place {
            Place::Elsewhere(before) if Arc::ptr_eq(before, &engine) => return Ok(()),
            _ if is_same => {}
            Place::Elsewhere(before) if before.of != engine.of => self.release_there(sync, &Arc::clone(before)).await,
            _ if was.is_some() => self.say_left(was.as_deref(), "its Secret now contains a different cluster"),
            Place::Home | Place::Nowhere | Place::Elsewhere(_) => self.release_home(sync).await?,
        }
        let context = Arc::clone(&engine.context);
        self.arrive(Place::Elsewhere(engine), context);
        Ok(())
    }

    async fn go_home(&mut self, sync: &GitSync) -> Result<(), Refused> {
        let was = self.cluster_id(sync).map(str::to_owned);
        match &self.place {
            Place::Home => return Ok(()),
            Place::Elsewhere(before) => {
                let before = Arc::clone(before);
                if before.place.home.is_some() {
                    self.release_there(sync, &before).await;
                }
            }
            Place::Nowhere => {
                if let Some(was) = &was
                    && *was != self.home.home.id().await?
                {
                    self.say_left(Some(was), "spec.kubeConfig was removed while no agent was connected to it");
                }
            }
        }
        let home = Arc::clone(&self.home);
        self.arrive(Place::Home, home);
        Ok(())
    }

    /// Uses this cluster from now on.
    fn arrive(&mut self, place: Place, context: Arc<Context>) {
        let before = std::mem::replace(&mut self.context, context);
        self.place = place;
        before.writer.forget_owner(&self.owner);
        if !Arc::ptr_eq(&before.registry, &self.context.registry) {
            before.registry.remove(&self.owner);
        }
        let namespace = self.owner.resource().namespace().to_owned();
        let name = self.owner.resource().name().to_owned();
        self.context.enter_at(&self.context.registry, &self.owner, &namespace, &name);
        self.forget_cluster();
    }

    /// Releases the objects in the GitSync's own cluster, which the GitSync leaves.
    async fn release_home(&mut self, sync: &GitSync) -> Result<(), Refused> {
        if !has_objects(sync) {
            return Ok(());
        }
        let home = Arc::clone(&self.home);
        self.release_in(sync, &home, None).await
    }

    /// Releases the objects in a cluster that the GitSync leaves, if that cluster can be reached.
    async fn release_there(&mut self, sync: &GitSync, engine: &Arc<Engine<Context>>) {
        let released = self.release_in(sync, &engine.context, Some(engine.id()));
        let released = tokio::time::timeout(RELEASED_WITHIN, Box::pin(released)).await;
        let why = match released {
            Ok(Ok(())) => return,
            Ok(Err(refused)) => refused.message,
            Err(_) => "it does not respond".to_owned(),
        };
        self.say_left(Some(engine.id()), &why);
    }

    async fn release_in(&mut self, sync: &GitSync, context: &Arc<Context>, id: Option<&str>) -> Result<(), Refused> {
        let before = std::mem::replace(&mut self.context, Arc::clone(context));
        let (namespace, name) = (self.owner.resource().namespace().to_owned(), self.owner.resource().name().to_owned());
        context.enter_at(&context.registry, &self.owner, &namespace, &name);
        let sync = as_known_in(sync, id);
        let released = match self.settle_policy(&sync) {
            Ok(()) => self.attempt(&sync).move_out().await,
            Err(refused) => Err(refused),
        };
        if released.is_err() {
            if !Arc::ptr_eq(&before.registry, &context.registry) {
                context.registry.remove(&self.owner);
            }
            self.context = before;
        }
        released
    }

    /// Emits a message that objects stay in a cluster.
    pub(super) fn say_left(&self, id: Option<&str>, why: &str) {
        let cluster = id.unwrap_or("whose id is not known").to_owned();
        let message = Message::LeftBehind { subject: self.owner.clone(), cluster, why: why.to_owned() };
        self.context.emit(&self.owner, &message);
    }
}
