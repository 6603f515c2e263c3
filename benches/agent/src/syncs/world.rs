//! The environment of the benchmark: the load, its observer, and requests for a sync.

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use super::{
    Error,
    load::{self, Load},
    observer::{Observer, Seen},
    ready_syncs,
    stand::{DEADLINE, Mark, NAMESPACE, Stand},
};
use crate::{
    Product,
    api::{GitRepository, GitSync, REQUESTED_AT, SYNC_LABEL},
};

/// Name of the GitRepository and the GitSync.
const NAME: &str = "load";
/// Target for the maximum memory of the agent, in MiB.
const MEMORY: f64 = 64.0;

/// The environment of a benchmark.
pub(super) struct World {
    pub stand: Stand,
    pub load: Load,
    pub observer: Observer,
}

impl World {
    /// Starts the cluster (unless one is given) and prepares the load. The agent is not started.
    pub(super) async fn start(product: &Product, kubeconfig: Option<&Path>, objects: usize) -> Result<Self, Error> {
        let stand = Stand::start(product, kubeconfig, MEMORY).await?;
        let load = Load::new(&stand.directory().join("repository"), objects)?;
        let observer = Observer::start(Api::namespaced(stand.client.clone(), load::NAMESPACE), seen).await?;
        Ok(Self { stand, load, observer })
    }

    /// Starts a situation.
    pub(super) async fn mark(&mut self) -> Result<Mark, Error> {
        self.observer.forget();
        self.stand.mark().await
    }

    /// Observes when GitSyncs become Ready.
    pub(super) async fn observe_syncs(&self) -> Result<Observer, Error> {
        Observer::start(self.syncs(), ready_syncs::readiness).await
    }

    /// The load's GitSync in the state Ready.
    pub(super) fn ready() -> HashMap<String, String> {
        [(NAME.to_owned(), "True".to_owned())].into()
    }

    /// Creates GitRepository and GitSync. Returns the time when the GitSync existed.
    pub(super) async fn follow_load(&self) -> Result<Instant, Error> {
        self.follow(NAME, self.load.directory()).await
    }

    /// Creates GitRepository and GitSync of another repository. Returns the time when the GitSync existed.
    pub(super) async fn follow(&self, name: &str, directory: &Path) -> Result<Instant, Error> {
        let url = directory.display().to_string();
        let repository = json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
            "metadata": { "name": name }, "spec": { "url": url },
        });
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
            "metadata": { "name": name }, "spec": { "gitRepository": name, "reference": "main" },
        });
        self.stand.apply::<GitRepository>(name, &repository).await?;
        self.stand.apply::<GitSync>(name, &sync).await?;
        Ok(Instant::now())
    }

    /// Requests a sync. Returns the time of the response and the token.
    pub(super) async fn request(&self) -> Result<(Instant, String), Error> {
        self.request_of(NAME).await
    }

    /// Requests a sync of another GitSync. Returns the time of the response and the token.
    pub(super) async fn request_of(&self, name: &str) -> Result<(Instant, String), Error> {
        let token = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { REQUESTED_AT: token } } });
        self.syncs().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map_err(Error::Ask)?;
        Ok((Instant::now(), token))
    }

    /// Waits until the status contains a token. Returns the time.
    pub(super) async fn handled(&self, token: &str) -> Result<Instant, Error> {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            let sync = self.syncs().get(NAME).await.map_err(Error::Ask)?;
            if sync.status.and_then(|status| status.last_handled_request).as_deref() == Some(token) {
                return Ok(Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(Error::NotHandled { seconds: DEADLINE.as_secs() })
    }

    /// Returns the committed revisions of these ConfigMaps by name.
    pub(super) fn wanted(&self, numbers: impl IntoIterator<Item = usize>) -> HashMap<String, String> {
        numbers.into_iter().map(|number| (Load::name(number), self.load.revision(number))).collect()
    }

    /// Returns the API of the load's ConfigMaps.
    pub(super) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.stand.client.clone(), load::NAMESPACE)
    }

    fn syncs(&self) -> Api<GitSync> {
        Api::namespaced(self.stand.client.clone(), NAMESPACE)
    }

    /// Removes all objects from a cluster that is not embedded.
    pub(super) async fn clean(&mut self) -> Result<(), Error> {
        let absent = |result: kube::Result<()>| match result {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map_err(Error::Ask),
        };
        // A running agent releases the objects.
        if !self.stand.has_agent() {
            self.stand.start_agent().await?;
        }
        absent(self.syncs().delete(NAME, &DeleteParams::default()).await.map(drop))?;
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end && self.syncs().get_opt(NAME).await.map_err(Error::Ask)?.is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.stand.kill_agent().await?;
        let namespaces = Api::<Namespace>::all(self.stand.client.clone());
        for namespace in [load::NAMESPACE, NAMESPACE] {
            absent(namespaces.delete(namespace, &DeleteParams::default()).await.map(drop))?;
        }
        Ok(())
    }
}

/// Reads the `data.revision` of a managed ConfigMap of the load.
pub(super) fn seen(object: ConfigMap) -> Option<Seen> {
    object.metadata.labels?.contains_key(SYNC_LABEL).then_some(())?;
    let state = object.data.and_then(|mut data| data.remove("revision")).unwrap_or_default();
    Some(Seen { name: object.metadata.name.unwrap_or_default(), state })
}
