//! The environment of the benchmark: a cluster, a Git server, the agent, and the renderer beside it as in the pod.

use std::{
    collections::HashMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    Error,
    git_server::HttpServer,
    load::Load,
    memory_limit::MemoryLimit,
    observer::{Observer, Seen},
    place::Place,
    process::Process,
    ready_syncs,
    stand::{DEADLINE, NAMESPACE, Stand},
};
use crate::{
    Product,
    api::{GitRepository, GitSync, REQUESTED_AT, SYNC_LABEL},
};

/// Target for the maximum memory of the agent, in MiB: the limit of its container.
const MEMORY: f64 = 160.0;
/// Maximum memory of renderer and tool together in MiB: the limit of their container.
pub(super) const RENDERER_MEMORY: u64 = 512;
/// Maximum number of concurrent creations.
const IN_FLIGHT: usize = 16;
/// Name of the repository and of its GitRepository.
const REPOSITORY: &str = "many";

/// The environment of a benchmark.
pub(super) struct World {
    pub stand: Stand,
    pub load: Load,
    pub git: HttpServer,
    pub observer: Observer,
    pub renderer: Process,
    /// `None` if this machine has no writable cgroup.
    pub renderer_limit: Option<MemoryLimit>,
    root: PathBuf,
}

impl World {
    /// Starts everything.
    pub(super) async fn start(product: &Product, place: &Place, syncs: usize) -> Result<Self, Error> {
        let mut stand = Stand::start(product, place.kubeconfig.as_deref(), MEMORY).await?;
        if let Some(memory) = &place.memory {
            stand.set("MAINSTAY_MEMORY", memory);
        }
        let root = stand.directory().join("repositories");
        std::fs::create_dir_all(&root).map_err(Error::Directory)?;
        let load = Load::new(&root.join(REPOSITORY), syncs, place.form)?;
        let git = HttpServer::start(&root).await?;
        let observer = Observer::start(Api::namespaced(stand.client.clone(), NAMESPACE), seen).await?;
        let shared = stand.directory().join("renderer");
        std::fs::create_dir_all(&shared).map_err(Error::Directory)?;
        let arguments = ["renderer".into(), "--shared".into(), shared.clone().into_os_string()];
        let renderer = Process::start(&arguments, &[], stand.directory())?;
        let renderer_limit = MemoryLimit::set(renderer.id(), RENDERER_MEMORY);
        stand.set("MAINSTAY_RENDERER", shared);
        stand.start_agent().await?;
        Ok(Self { stand, load, git, observer, renderer, renderer_limit, root })
    }

    /// Returns the directory and the URL of a repository.
    pub(super) fn repository(&self, name: &str) -> (PathBuf, String) {
        (self.root.join(name), self.git.url(name))
    }

    /// Creates all GitSyncs.
    pub(super) async fn follow_all(&self) -> Result<(), Error> {
        let url = self.repository(REPOSITORY).1;
        self.follow_repository(REPOSITORY, &url).await?;
        let created = stream::iter(0..self.load.len())
            .map(|number| async move { self.create(&Load::name(number), self.load.spec(number, REPOSITORY)).await });
        created.buffer_unordered(IN_FLIGHT).try_for_each(|()| std::future::ready(Ok(()))).await
    }

    /// Creates a GitRepository.
    pub(super) async fn follow_repository(&self, name: &str, url: &str) -> Result<(), Error> {
        let repository = json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
            "metadata": { "name": name }, "spec": { "url": url },
        });
        self.stand.apply::<GitRepository>(name, &repository).await
    }

    /// Creates a GitSync.
    pub(super) async fn follow(&self, name: &str, repository: &str, base_dir: &str) -> Result<(), Error> {
        let spec = json!({ "gitRepository": repository, "reference": "main", "baseDir": base_dir });
        self.create(name, spec).await
    }

    async fn create(&self, name: &str, spec: Value) -> Result<(), Error> {
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": { "name": name }, "spec": spec,
        });
        self.stand.apply::<GitSync>(name, &sync).await
    }

    /// Observes when GitSyncs become Ready, or are refused for lack of memory.
    pub(super) async fn observe_syncs(&self) -> Result<Observer, Error> {
        Observer::start(self.syncs(), settled).await
    }

    /// Returns the names of the Ready GitSyncs of the load, in their order.
    pub(super) async fn ready_names(&self) -> Result<Vec<String>, Error> {
        let all = self.syncs().list(&ListParams::default()).await.map_err(Error::Ask)?;
        let ours = all.into_iter().filter(|sync| sync.name_any().starts_with(REPOSITORY));
        let mut ready: Vec<_> = ours
            .filter_map(|sync| ready_syncs::readiness(sync).filter(|seen| seen.state == "True"))
            .map(|seen| seen.name)
            .collect();
        ready.sort();
        Ok(ready)
    }

    /// Requests a sync. Returns the time and the request's token.
    pub(super) async fn request(&self, name: &str) -> Result<(Instant, String), Error> {
        let token = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { REQUESTED_AT: token } } });
        let start = Instant::now();
        self.syncs().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map_err(Error::Ask)?;
        Ok((start, token))
    }

    /// Waits until the status contains a token.
    pub(super) async fn handled(&self, name: &str, token: &str) -> Result<(), Error> {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            let sync = self.syncs().get(name).await.map_err(Error::Ask)?;
            if sync.status.and_then(|status| status.last_handled_request).as_deref() == Some(token) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(Error::NotHandled { seconds: DEADLINE.as_secs() })
    }

    /// Waits until every GitSync has applied a commit.
    pub(super) async fn all_at(&self, commit: &str) -> Result<(), Error> {
        let end = Instant::now() + DEADLINE;
        let is_at =
            |sync: &GitSync| sync.status.as_ref().and_then(|status| status.applied_commit.as_deref()) == Some(commit);
        while Instant::now() < end {
            let all = self.syncs().list(&ListParams::default()).await.map_err(Error::Ask)?;
            if all.iter().filter(|sync| sync.name_any().starts_with(REPOSITORY)).all(is_at) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(Error::NotHandled { seconds: DEADLINE.as_secs() })
    }

    /// Waits until a ConfigMap has this revision. Returns the time.
    pub(super) async fn reach(&mut self, name: String, revision: String) -> Result<Instant, Error> {
        let reached = self.observer.all(HashMap::from([(name.clone(), revision)]), DEADLINE).await?;
        Ok(reached[&name])
    }

    /// Returns the API of ConfigMaps.
    pub(super) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.stand.client.clone(), NAMESPACE)
    }

    fn syncs(&self) -> Api<GitSync> {
        Api::namespaced(self.stand.client.clone(), NAMESPACE)
    }
}

/// State of a GitSync that is Ready or was refused for lack of memory.
pub(super) const SETTLED: &str = "settled";

fn settled(sync: GitSync) -> Option<Seen> {
    let ready = sync.status?.conditions.into_iter().find(|condition| condition.kind == "Ready")?;
    let is_settled = ready.status == "True" || ready.reason == "MemoryExhausted";
    let state = if is_settled { SETTLED } else { "" }.to_owned();
    Some(Seen { name: sync.metadata.name?, state })
}

/// Reads the `data.revision` of a managed ConfigMap.
fn seen(object: ConfigMap) -> Option<Seen> {
    object.metadata.labels?.contains_key(SYNC_LABEL).then_some(())?;
    let state = object.data.and_then(|mut data| data.remove("revision")).unwrap_or_default();
    Some(Seen { name: object.metadata.name.unwrap_or_default(), state })
}
