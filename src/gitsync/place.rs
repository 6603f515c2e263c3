//! Which cluster the objects of a GitSync are in: its own, or the one that `spec.kubeConfig` leads to; and what becomes of those
//! that it leaves behind when that changes.
//!
//! Invariant: nothing is deleted in a cluster because a GitSync went to another one.
//! Invariant: as long as it is not known which cluster it is, nothing is read or written in any.
//! Invariant: what a cluster held says nothing about another one: a GitSync that comes to one begins as if it were new, or with
//! the inventory that it has there.
//!
//! Deliberately absent: connecting (`clusters`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::clusters::{Clusters, Engine, SecretKey, unreached};
use super::context::Context;
use super::outcome::{Refused, is_usable};
use super::reconcile::Task;
use crate::api::GitSync;
use crate::api::conditions::Reason;
use crate::api::git_sync::GitSyncStatus;
use crate::cluster::{Kubeconfig, PlainHttp};
use crate::notification::Message;
use crate::secrets::{Contents, Followed, Known, Secrets};

/// Keys of a Secret with a kubeconfig, in the order of preference.
const KEYS: [&str; 2] = ["value", "value.yaml"];
/// How long objects may take to be let go of in a cluster that is left.
const RELEASED_WITHIN: Duration = Duration::from_secs(60);

/// Where the objects are.
pub(super) enum Place {
    /// In the cluster of the GitSync.
    Home,
    /// It is not known yet in which.
    Nowhere,
    /// In this one.
    Elsewhere(Arc<Engine>),
}

/// What a kubeconfig says, or what is wrong with it, as the end of a sentence that begins with the name of the Secret.
type Parsed = Result<Arc<Kubeconfig>, String>;

/// The followed Secret with a kubeconfig; of none by default.
#[derive(Default)]
pub(super) struct FollowedKubeconfig {
    followed: Option<Followed>,
    /// What it held when it was parsed last, and under which key.
    parsed: Option<(Arc<Contents>, Option<String>, Parsed)>,
}

impl FollowedKubeconfig {
    /// From now on the Secret that a GitSync names is followed, and no other; what its kubeconfig says. `None`: it names none.
    ///
    /// # Errors
    /// It does not exist, cannot be read, or holds no kubeconfig that may be used.
    async fn of(
        &mut self,
        secrets: &Secrets,
        sync: &GitSync,
        plain: PlainHttp,
    ) -> Result<Option<(SecretKey, Arc<Kubeconfig>)>, Refused> {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let wanted = sync.spec.kube_config.as_ref().map(|config| &config.secret_ref);
        if self.followed.as_ref().map(Followed::of) != wanted.map(|secret| (namespace, &*secret.name)) {
            self.followed = wanted.map(|secret| secrets.follow(namespace, &secret.name));
            self.parsed = None;
        }
        let (Some(followed), Some(secret)) = (&mut self.followed, wanted) else { return Ok(None) };
        let known = followed.known().await;
        is_usable(&secret.name, "kubeconfig", &known)?;
        let Known::Data(contents) = known else { return Ok(None) };
        let is_same =
            |(before, key, _): &(Arc<Contents>, Option<String>, Parsed)| *before == contents && *key == secret.key;
        let parsed = match self.parsed.take().filter(is_same) {
            Some((_, _, parsed)) => parsed,
            None => parsed(&contents, secret.key.as_deref(), plain).map(Arc::new),
        };
        let (_, _, parsed) = self.parsed.insert((contents, secret.key.clone(), parsed));
        let of = SecretKey { namespace: namespace.to_owned(), name: secret.name.clone(), key: secret.key.clone() };
        parsed.clone().map(|parsed| Some((of, parsed))).map_err(|why| wrong(&secret.name, &why))
    }

    /// It, to wait for changes.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.followed.iter_mut()
    }
}

/// The kubeconfig under a key, or under the one that is meant without one.
pub(super) fn parsed(contents: &Contents, key: Option<&str>, plain: PlainHttp) -> Result<Kubeconfig, String> {
    let found = match key {
        Some(key) => contents.data.get(key).map(|value| (key, value)),
        None => KEYS.iter().find_map(|key| Some((*key, contents.data.get(*key)?))),
    };
    let Some((key, value)) = found else {
        let keys = key.map_or_else(|| KEYS.join(" or "), str::to_owned);
        return Err(format!("has no key {keys}; put the kubeconfig there"));
    };
    Kubeconfig::parse(&value.0, plain).map_err(|why| format!("in {key}: {why}"))
}

pub(super) fn wrong(name: &str, why: &str) -> Refused {
    Refused::invalid(Reason::SpecInvalid, format!("Secret {name} (spec.kubeConfig) {why}"))
}

/// Whether local servers may be spoken to without TLS.
pub(super) fn plain_http(allows_local: bool) -> PlainHttp {
    if allows_local { PlainHttp::Allowed } else { PlainHttp::Refused }
}

/// A GitSync as the cluster with this id knows it (`None`: its own): what its status says of another one does not count.
pub(super) fn as_known_in<'s>(sync: &'s GitSync, id: Option<&str>) -> Cow<'s, GitSync> {
    let is_of_it = sync.status.as_ref().is_none_or(|status| status.cluster.as_deref() == id);
    if is_of_it {
        return Cow::Borrowed(sync);
    }
    let mut sync = sync.clone();
    sync.status = sync.status.map(|status| GitSyncStatus {
        applied_commit: None,
        applied_tree_id: None,
        objects: 0,
        held: Vec::new(),
        held_objects: 0,
        unread: Vec::new(),
        terminating: Vec::new(),
        terminating_objects: 0,
        drifted: Vec::new(),
        drifted_objects: 0,
        frozen: None,
        ..status
    });
    Cow::Owned(sync)
}

/// Whether there may be objects of a GitSync, by its status.
pub(super) fn has_objects(sync: &GitSync) -> bool {
    sync.status.as_ref().is_some_and(|status| {
        status.applied_commit.is_some() || status.attempted_commit.is_some() || status.objects > 0
    })
}

/// The context of a GitSync as long as nothing is known of its cluster but which one it was.
pub(super) fn nowhere(home: &Context, clusters: &Clusters, sync: &GitSync) -> Arc<Context> {
    let id = sync.status.as_ref().and_then(|status| status.cluster.as_deref());
    let registry = id.map_or_else(Arc::default, |id| clusters.registry(id));
    Arc::new(home.elsewhere(home.writer.clone(), registry, None))
}

impl Task {
    /// The id of the cluster in which the objects are, where it is another one.
    pub(super) fn cluster_id<'a>(&'a self, sync: &'a GitSync) -> Option<&'a str> {
        match &self.place {
            Place::Home => None,
            Place::Elsewhere(engine) => Some(engine.id()),
            Place::Nowhere => sync.status.as_ref().and_then(|status| status.cluster.as_deref()),
        }
    }

    /// Goes to the cluster that the GitSync names now.
    ///
    /// # Errors
    /// It is not known which one that is, or it does not answer. What was applied before stays enforced where that can be done.
    pub(super) async fn settle_place(&mut self, sync: &GitSync) -> Result<(), Refused> {
        let home = Arc::clone(&self.home);
        let plain = plain_http(home.source.allows_local());
        let Some((of, by)) = self.kubeconfig.of(&home.secrets, sync, plain).await? else {
            return self.go_home(sync).await;
        };
        let mut engine = home.clusters.engine(&home, &self.owner, &of, &by).await?;
        if engine.context.writer.cluster().is_in_trouble() {
            let id = engine.context.writer.cluster().id().await.map_err(|error| unreached(&of, &error))?;
            if id != engine.id() {
                // At the same address, and with the same credentials, there is another cluster now.
                engine.retire();
                engine = home.clusters.engine(&home, &self.owner, &of, &by).await?;
            }
        }
        self.go_to(sync, engine).await
    }

    async fn go_to(&mut self, sync: &GitSync, engine: Arc<Engine>) -> Result<(), Refused> {
        let is_home = engine.context.place.as_ref().is_some_and(|place| place.home.is_none());
        let was = self.cluster_id(sync).map(str::to_owned);
        let is_same = was.as_deref().map_or(is_home, |was| was == engine.id());
        match &self.place {
            Place::Elsewhere(before) if Arc::ptr_eq(before, &engine) => return Ok(()),
            _ if is_same => {}
            Place::Elsewhere(before) if before.of != engine.of => self.release_there(sync, &Arc::clone(before)).await,
            _ if was.is_some() => self.say_left(was.as_deref(), "its Secret leads to another cluster now"),
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
                if before.context.place.as_ref().is_some_and(|place| place.home.is_some()) {
                    self.release_there(sync, &before).await;
                }
            }
            Place::Nowhere => {
                if let Some(was) = &was
                    && *was != self.home.home.id().await?
                {
                    self.say_left(Some(was), "spec.kubeConfig was taken out while no agent was connected to it");
                }
            }
        }
        let home = Arc::clone(&self.home);
        self.arrive(Place::Home, home);
        Ok(())
    }

    /// From now on everything is done in this cluster.
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

    /// Lets go of the objects in the GitSync's own cluster, which it leaves.
    async fn release_home(&mut self, sync: &GitSync) -> Result<(), Refused> {
        if !has_objects(sync) {
            return Ok(());
        }
        let home = Arc::clone(&self.home);
        self.release_in(sync, &home, None).await
    }

    /// Lets go of the objects in a cluster that the GitSync leaves, as far as that one can be reached.
    async fn release_there(&mut self, sync: &GitSync, engine: &Arc<Engine>) {
        let released = self.release_in(sync, &engine.context, Some(engine.id()));
        let released = tokio::time::timeout(RELEASED_WITHIN, Box::pin(released)).await;
        let why = match released {
            Ok(Ok(())) => return,
            Ok(Err(refused)) => refused.message,
            Err(_) => "it does not answer".to_owned(),
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

    /// Says that objects stay as they are in a cluster.
    pub(super) fn say_left(&self, id: Option<&str>, why: &str) {
        let cluster = id.unwrap_or("whose id is not known").to_owned();
        let message = Message::LeftBehind { subject: self.owner.clone(), cluster, why: why.to_owned() };
        self.context.emit(&self.owner, &message);
    }
}
