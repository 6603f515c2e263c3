//! The cluster of a GitSync's objects, as far as it is known, and the watched Secret with its kubeconfig.
//!
//! Not here: the move to the cluster (`place`), and the connection (`clusters`).

use std::borrow::Cow;
use std::sync::Arc;

use super::clusters::{Engine, SecretKey};
use super::context::Context;
use super::outcome::{Refused, is_usable};
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::GitSyncStatus;
use mainstay_cluster::secrets::{Contents, Followed, Known, Purpose, Secrets};
use mainstay_cluster::{Kubeconfig, PlainHttp};

/// Keys of a Secret with a kubeconfig, by preference.
const KEYS: [&str; 2] = ["value", "value.yaml"];
/// The cluster of the objects.
pub(super) enum Place {
    /// The cluster of the GitSync.
    Home,
    /// The cluster is not known yet.
    Nowhere,
    /// This remote cluster.
    Elsewhere(Arc<Engine<Context>>),
}

/// A parsed kubeconfig, or its error, which completes a sentence that begins with the name of the Secret.
type Parsed = Result<Arc<Kubeconfig>, String>;

/// The watched Secret with a kubeconfig; none by default.
#[derive(Default)]
pub(super) struct FollowedKubeconfig {
    followed: Option<Followed>,
    /// The last parsed contents, with the key.
    parsed: Option<(Arc<Contents>, Option<String>, Parsed)>,
}

impl FollowedKubeconfig {
    /// Watches only the Secret that a GitSync references, and returns its kubeconfig; `None` if it references none.
    ///
    /// # Errors
    ///
    /// The Secret does not exist, cannot be read, or has no usable kubeconfig.
    pub(super) async fn of(
        &mut self,
        secrets: &Secrets,
        sync: &GitSync,
        plain: PlainHttp,
    ) -> Result<Option<(SecretKey, Arc<Kubeconfig>)>, Refused> {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let wanted = sync.spec.kube_config.as_ref().map(|config| &config.secret_ref);
        if self.followed.as_ref().map(Followed::of) != wanted.map(|secret| (namespace, &*secret.name)) {
            self.followed = wanted.map(|secret| secrets.follow(namespace, &secret.name, Purpose::KubeConfig));
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

    /// Returns the watched Secret, to wait for changes.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.followed.iter_mut()
    }
}

/// Parses the kubeconfig under a key, or under the first default key.
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

/// Whether local servers may be used without TLS.
pub(super) fn plain_http(allows_local: bool) -> PlainHttp {
    if allows_local { PlainHttp::Allowed } else { PlainHttp::Refused }
}

/// Returns a GitSync without its status if that status describes a different cluster. `id` is the present cluster;
/// `None` means the GitSync's own cluster.
pub(super) fn as_known_in<'s>(sync: &'s GitSync, id: Option<&str>) -> Cow<'s, GitSync> {
    let is_of_it = sync.status.as_ref().is_none_or(|status| status.cluster.as_deref() == id);
    if is_of_it {
        return Cow::Borrowed(sync);
    }
    let mut sync = sync.clone();
    sync.status = sync.status.map(|status| GitSyncStatus {
        applied_commit: None,
        short_commit: None,
        history: Vec::new(),
        applied_tree_id: None,
        objects: 0,
        held: Vec::new(),
        held_objects: 0,
        unread: Vec::new(),
        terminating: Vec::new(),
        terminating_objects: 0,
        drifted: Vec::new(),
        drifted_objects: 0,
        paused: Vec::new(),
        paused_objects: 0,
        last_decisions: Vec::new(),
        frozen: None,
        shared: None,
        ..status
    });
    Cow::Owned(sync)
}

/// Whether a GitSync may have objects, by its status.
pub(super) fn has_objects(sync: &GitSync) -> bool {
    sync.status.as_ref().is_some_and(|status| {
        status.applied_commit.is_some() || status.attempted_commit.is_some() || status.objects > 0
    })
}

/// Returns the context of a GitSync while only the id of its last cluster is known.
pub(super) fn nowhere(home: &Context, sync: &GitSync) -> Arc<Context> {
    let id = sync.status.as_ref().and_then(|status| status.cluster.as_deref());
    let registry = id.map_or_else(Arc::default, |id| home.clusters.registry(id));
    Arc::new(home.elsewhere(home.writer.clone(), registry, None))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_decisions_and_pauses_of_another_cluster_are_not_known() {
        let mut sync = GitSync::new("shop", serde_json::from_value(json!({"gitRepository": "shop"})).unwrap());
        let decided =
            json!({"object": "ConfigMap shop/a", "decided": "Paused", "times": 1, "when": "2030-01-01T00:00:00Z"});
        let status = json!({
            "cluster": "one", "lastDecisions": [decided], "paused": [{"object": "ConfigMap shop/a"}], "pausedObjects": 1,
        });
        sync.status = Some(serde_json::from_value(status).unwrap());
        let known = |id: Option<&str>| {
            let status = as_known_in(&sync, id).into_owned().status.unwrap();
            (status.last_decisions.len(), status.paused.len(), status.paused_objects)
        };
        assert_eq!(known(Some("one")), (1, 1, 1));
        assert_eq!([known(Some("two")), known(None)], [(0, 0, 0); 2]);
    }
}
