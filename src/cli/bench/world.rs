//! What is measured and what it is measured with: a cluster, an agent, a load, an observer.

use std::{
    collections::HashMap,
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

use super::{
    Error,
    counters::{Counters, Requests},
    load::{self, Load},
    observer::Observer,
    process::Process,
    table::{Row, Target},
};
use crate::api::{self, GitRepository, GitSync, names};

/// Namespace of the agent and the GitSync.
const NAMESPACE: &str = "mainstay-bench";
/// Name of the GitRepository and the GitSync.
const NAME: &str = "load";
/// Who the measurement's own writes are by.
const MANAGER: &str = "mainstay-bench";
/// Most that anything may take.
pub(super) const DEADLINE: Duration = Duration::from_mins(5);
/// The agent writes status at most once per 5 s: after this long without a request it has done all it had to do.
const SETTLED: Duration = Duration::from_millis(6500);

/// Everything of one measurement.
pub(super) struct World {
    _directory: tempfile::TempDir,
    /// Kept for as long as the embedded cluster is needed.
    _cluster: Option<Process>,
    kubeconfig: PathBuf,
    data: PathBuf,
    port: u16,
    agent: Option<Process>,
    client: Client,
    counters: Counters,
    pub load: Load,
    pub observer: Observer,
}

/// The moment from which a situation is measured.
pub(super) struct Mark {
    requests: Requests,
    processor: f64,
}

impl World {
    /// Starts the cluster (unless one is given) and prepares the load; no agent runs yet.
    pub(super) async fn start(kubeconfig: Option<&Path>, objects: usize) -> Result<Self, Error> {
        let directory = tempfile::tempdir().map_err(Error::Directory)?;
        let port = free_port()?;
        let metrics = format!("http://127.0.0.1:{port}/metrics");
        let (cluster, kubeconfig, counters) = if let Some(path) = kubeconfig {
            (None, path.to_owned(), Counters::Agent(metrics))
        } else {
            let (process, path, counters) = embedded(directory.path()).await?;
            (Some(process), path, counters)
        };
        let client = connect(&kubeconfig).await?;
        let load = Load::new(&directory.path().join("repository"), objects)?;
        install(&client).await?;
        let observer = Observer::start(Api::namespaced(client.clone(), load::NAMESPACE)).await?;
        let data = directory.path().join("agent");
        Ok(Self {
            _directory: directory,
            _cluster: cluster,
            kubeconfig,
            data,
            port,
            agent: None,
            client,
            counters,
            load,
            observer,
        })
    }

    /// Starts the agent; returns how long it took until it said that it is ready.
    pub(super) async fn start_agent(&mut self) -> Result<Duration, Error> {
        let mut arguments: Vec<std::ffi::OsString> =
            ["agent", "--allow-local", "--identity", "bench", "-n", NAMESPACE].map(Into::into).to_vec();
        arguments.push(format!("--listen=127.0.0.1:{}", self.port).into());
        arguments.extend(["--kubeconfig".into(), self.kubeconfig.clone().into()]);
        arguments.extend(["--data".into(), self.data.clone().into()]);
        let mut agent = Process::start(&arguments)?;
        let ready = agent.answers(&format!("http://127.0.0.1:{}/readyz", self.port)).await?;
        self.agent = Some(agent);
        Ok(ready)
    }

    /// `kill -9`.
    pub(super) async fn kill_agent(&mut self) -> Result<(), Error> {
        match self.agent.take() {
            Some(mut agent) => agent.kill().await,
            None => Ok(()),
        }
    }

    /// Begins a situation.
    pub(super) async fn mark(&mut self) -> Result<Mark, Error> {
        self.observer.forget();
        if let Some(agent) = &self.agent {
            agent.forget_peak()?;
            Ok(Mark { requests: self.counters.read().await?, processor: agent.processor_seconds()? })
        } else {
            // An agent that is yet to start begins its own counters at 0; the server's go on.
            let requests = match &self.counters {
                Counters::Agent(_) => Requests::default(),
                Counters::Server(_) => self.counters.read().await?,
            };
            Ok(Mark { requests, processor: 0.0 })
        }
    }

    /// Ends a situation as soon as the agent has nothing more to ask.
    pub(super) async fn row(
        &self,
        mark: Mark,
        situation: impl Into<String>,
        wall: String,
        targets: impl FnOnce(&Requests) -> Vec<Target>,
    ) -> Result<Row, Error> {
        self.settle().await?;
        let requests = self.counters.read().await?.since(&mark.requests);
        let (peak_mib, processor) = match &self.agent {
            Some(agent) => (agent.peak_mib()?, agent.processor_seconds()?),
            None => (0.0, 0.0),
        };
        let mut targets = targets(&requests);
        targets.push(Target::new("≤ 64 MiB", peak_mib <= 64.0));
        let processor_seconds = processor - mark.processor;
        Ok(Row { situation: situation.into(), wall, requests, peak_mib, processor_seconds, targets })
    }

    async fn settle(&self) -> Result<(), Error> {
        let end = Instant::now() + DEADLINE;
        let mut last = self.counters.read().await?;
        let mut since = Instant::now();
        while since.elapsed() < SETTLED && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let now = self.counters.read().await?;
            if now.since(&last).total() > 0 {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Creates GitRepository and GitSync; returns when the GitSync was there.
    pub(super) async fn follow_load(&self) -> Result<Instant, Error> {
        let url = self.load.directory().display().to_string();
        let repository = json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
            "metadata": { "name": NAME }, "spec": { "url": url },
        });
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
            "metadata": { "name": NAME }, "spec": { "gitRepository": NAME, "reference": "main" },
        });
        let how = PatchParams::apply(MANAGER);
        let repositories = Api::<GitRepository>::namespaced(self.client.clone(), NAMESPACE);
        repositories.patch(NAME, &how, &Patch::Apply(&repository)).await.map_err(Error::Ask)?;
        self.syncs().patch(NAME, &how, &Patch::Apply(&sync)).await.map_err(Error::Ask)?;
        Ok(Instant::now())
    }

    /// Asks for a sync; returns when the request was there, and its value.
    pub(super) async fn request(&self) -> Result<(Instant, String), Error> {
        let token = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "annotations": { names::REQUESTED_AT: token } } });
        self.syncs().patch(NAME, &PatchParams::default(), &Patch::Merge(&patch)).await.map_err(Error::Ask)?;
        Ok((Instant::now(), token))
    }

    /// Waits until the status names a request; returns when that was seen.
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

    /// Name and revision of these ConfigMaps, as the branch says.
    pub(super) fn wanted(&self, numbers: impl IntoIterator<Item = usize>) -> HashMap<String, String> {
        numbers.into_iter().map(|number| (Load::name(number), self.load.revision(number))).collect()
    }

    /// The load, as whoever edits by hand sees it.
    pub(super) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), load::NAMESPACE)
    }

    fn syncs(&self) -> Api<GitSync> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Takes everything away again, from a cluster that is not ours.
    pub(super) async fn clean(&mut self) -> Result<(), Error> {
        let absent = |result: kube::Result<()>| match result {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            result => result.map_err(Error::Ask),
        };
        // While an agent runs: it has a finalizer to take off.
        if self.agent.is_none() {
            self.start_agent().await?;
        }
        absent(self.syncs().delete(NAME, &DeleteParams::default()).await.map(drop))?;
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end && self.syncs().get_opt(NAME).await.map_err(Error::Ask)?.is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.kill_agent().await?;
        let namespaces = Api::<Namespace>::all(self.client.clone());
        for namespace in [load::NAMESPACE, NAMESPACE] {
            absent(namespaces.delete(namespace, &DeleteParams::default()).await.map(drop))?;
        }
        Ok(())
    }
}

/// An embedded cluster in a process of its own.
async fn embedded(directory: &Path) -> Result<(Process, PathBuf, Counters), Error> {
    let path = directory.join("kubeconfig");
    let mut arguments: Vec<std::ffi::OsString> = ["dev", "--cluster-only", "--output=json"].map(Into::into).to_vec();
    arguments.extend(["--kubeconfig".into(), path.clone().into()]);
    let mut process = Process::start(&arguments)?;
    let line = process.first_line().await?;
    let started: serde_json::Value = serde_json::from_str(&line).map_err(Error::Counts)?;
    let server = started["server"].as_str().ok_or(Error::NotStarted)?;
    let counters = Counters::Server(format!("{server}/devcluster/counters"));
    Ok((process, path, counters))
}

async fn connect(kubeconfig: &Path) -> Result<Client, Error> {
    let file = Kubeconfig::read_from(kubeconfig).map_err(Error::Kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.map_err(Error::Kubeconfig)?).map_err(Error::Ask)
}

/// The definitions and the agent's namespace.
async fn install(client: &Client) -> Result<(), Error> {
    let how = PatchParams::apply(MANAGER).force();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in api::definitions() {
        let name = definition.name_any();
        let body = serde_json::to_value(&definition).map_err(Error::Counts)?;
        definitions.patch(&name, &how, &Patch::Apply(&body)).await.map_err(Error::Ask)?;
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end && !is_established(&definitions.get(&name).await.map_err(Error::Ask)?) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.patch(NAMESPACE, &how, &Patch::Apply(&namespace)).await.map_err(Error::Ask)?;
    Ok(())
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Established" && one.status == "True"))
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::Start)?;
    Ok(listener.local_addr().map_err(Error::Start)?.port())
}
