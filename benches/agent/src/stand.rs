//! The environment of every benchmark: a cluster, the agent as a process, a client, and request counts.

use std::{
    ffi::OsString,
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{Namespace, ServiceAccount},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use super::{
    Error,
    counters::{Counters, Requests},
    embedded::Embedded,
    memory_limit::MemoryLimit,
    process::Process,
    table::{Row, Target},
};
use crate::Product;

/// Namespace of the agent.
pub(super) const NAMESPACE: &str = "mainstay-bench";
/// Field manager of the benchmark's own writes.
pub(super) const MANAGER: &str = "mainstay-bench";
/// Deadline of every wait.
pub(super) const DEADLINE: Duration = Duration::from_mins(5);
/// The agent writes a status's counters at most once per 5 s. After this time without a request it is idle.
const SETTLED: Duration = Duration::from_millis(6500);

/// A cluster and the measured agent.
pub(super) struct Stand {
    directory: tempfile::TempDir,
    /// Runs as long as the embedded cluster is needed.
    _cluster: Option<Process>,
    /// The embedded cluster; `None` for another cluster.
    pub server: Option<Embedded>,
    kubeconfig: PathBuf,
    port: u16,
    /// Port of the agent's webhook receivers.
    receive: u16,
    /// Address of the agent's admission webhooks; `None` if they are not configured.
    admit: Option<SocketAddr>,
    environment: Vec<(OsString, OsString)>,
    agent: Option<Process>,
    /// The memory limit of the agent, if there is one.
    limit: Option<MemoryLimit>,
    pub client: Client,
    counters: Counters,
    /// Target for the maximum memory of the agent, in MiB.
    memory: f64,
}

/// The start of a situation.
pub(super) struct Mark {
    requests: Requests,
    processor: f64,
}

impl Stand {
    /// Starts the cluster (unless one is given) and installs the CRDs. The agent is not started.
    pub(super) async fn start(product: &Product, kubeconfig: Option<&Path>, memory: f64) -> Result<Self, Error> {
        let directory = tempfile::tempdir().map_err(Error::Directory)?;
        let (port, receive) = (free_port()?, free_port()?);
        let metrics = format!("http://127.0.0.1:{port}/metrics");
        let (cluster, server, kubeconfig, counters) = if let Some(path) = kubeconfig {
            (None, None, path.to_owned(), Counters::Agent(metrics))
        } else {
            let (process, path, server) = embedded(directory.path()).await?;
            let counters = Counters::Server(server.clone());
            (Some(process), Some(server), path, counters)
        };
        let client = connect(&kubeconfig).await?;
        install(&client, &product.definitions).await?;
        Ok(Self {
            directory,
            _cluster: cluster,
            server,
            kubeconfig,
            port,
            receive,
            admit: None,
            // As in `manifests/deployment.yaml`.
            environment: vec![
                ("MALLOC_ARENA_MAX".into(), "1".into()),
                ("MALLOC_TRIM_THRESHOLD_".into(), "131072".into()),
            ],
            agent: None,
            limit: None,
            client,
            counters,
            memory,
        })
    }

    /// Installs further CRDs.
    pub(super) async fn define(&self, definitions: &[CustomResourceDefinition]) -> Result<(), Error> {
        install(&self.client, definitions).await
    }

    /// Returns the kubeconfig of the cluster.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a directory that is removed after the benchmark.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the URL of the agent's webhook receiver for a path.
    pub(super) fn webhook_url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.receive)
    }

    /// Returns the environment variables of agents.
    pub(super) fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// Sets an environment variable for agents that are started later.
    pub(super) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.environment.push((name.into(), value.into()));
    }

    /// Configures the API server to call the agent's admission webhooks.
    pub(super) async fn admit(&mut self, product: &Product) -> Result<(), Error> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let how = PatchParams::apply(MANAGER).force();
        for configuration in (product.webhooks)(address) {
            let kind = GroupVersionKind::gvk(
                "admissionregistration.k8s.io",
                "v1",
                configuration["kind"].as_str().unwrap_or_default(),
            );
            let api = Api::<DynamicObject>::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
            let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
            api.patch(name, &how, &Patch::Apply(&configuration)).await.map_err(Error::Ask)?;
        }
        self.admit = Some(address);
        Ok(())
    }

    /// Starts the agent. Returns the time until it is ready.
    pub(super) async fn start_agent(&mut self) -> Result<Duration, Error> {
        let mut arguments: Vec<OsString> = ["agent", "--allow-local", "-n", NAMESPACE].map(Into::into).to_vec();
        arguments.push(format!("--listen=127.0.0.1:{}", self.port).into());
        // The audit's dry runs occur at arbitrary times and would distort the counts.
        arguments.push("--audit-interval=0".into());
        arguments.push(format!("--receive=127.0.0.1:{}", self.receive).into());
        arguments.extend(["--kubeconfig".into(), self.kubeconfig.clone().into()]);
        arguments.extend(["--data".into(), self.directory.path().join("agent").into()]);
        arguments.extend(self.admit.map(|address| format!("--admit={address}").into()));
        let mut agent = Process::start(&arguments, &self.environment, self.directory.path())?;
        let ready = agent.answers(&format!("http://127.0.0.1:{}/readyz", self.port)).await?;
        self.agent = Some(agent);
        Ok(ready)
    }

    /// Starts a console instead of the agent. Returns its address.
    pub(super) async fn start_console(&mut self) -> Result<String, Error> {
        let (console, address) = self.console().await?;
        self.agent = Some(console);
        Ok(address)
    }

    /// Starts a console, with TLS to the cluster as in its pod. Returns its address. It ends when it is dropped.
    pub(super) async fn console(&self) -> Result<(Process, String), Error> {
        let encrypted = self.directory.path().join("console-kubeconfig");
        let written = fs::read_to_string(&self.kubeconfig).map_err(Error::Directory)?;
        fs::write(&encrypted, written.replace("server: \"http://", "server: \"https://")).map_err(Error::Directory)?;
        let mut arguments: Vec<OsString> = ["console", "--listen=127.0.0.1:0"].map(Into::into).to_vec();
        arguments.extend(["--kubeconfig".into(), encrypted.into()]);
        // As in `manifests/console/deployment.yaml`.
        let environment = [("MALLOC_ARENA_MAX".into(), "1".into())];
        let mut console = Process::start(&arguments, &environment, self.directory.path())?;
        let line = console.first_line().await?;
        Ok((console, line.trim().rsplit(' ').next().unwrap_or_default().to_owned()))
    }

    /// Returns the memory of the agent or console without pages of files, in MiB.
    pub(super) fn own_mib(&self) -> Result<f64, Error> {
        self.agent.as_ref().map_or(Ok(0.0), Process::own_mib)
    }

    /// Returns a token of a new ServiceAccount.
    pub(super) async fn user_token(&self, name: &str) -> Result<String, Error> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        self.apply_named::<ServiceAccount>(&account).await?;
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token");
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(wanted.to_string().into_bytes()).map_err(|_| Error::NotStarted)?;
        let answer: Value = self.client.request(request).await.map_err(Error::Ask)?;
        Ok(answer["status"]["token"].as_str().ok_or(Error::NotStarted)?.to_owned())
    }

    /// Sets the promised maximum memory of the agent in MiB.
    pub(super) fn promise_memory(&mut self, mib: f64) {
        self.memory = mib;
    }

    /// Limits the agent's memory by a cgroup. Returns false if this machine does not permit it.
    pub(super) fn limit_memory(&mut self, mib: u32) -> bool {
        self.memory = f64::from(mib);
        let process = self.agent.as_ref().map(Process::id);
        self.limit = process.and_then(|process| MemoryLimit::set(process, mib.into()));
        self.limit.is_some()
    }

    /// Whether an agent was started and not killed.
    pub(super) fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// Kills the agent.
    pub(super) async fn kill_agent(&mut self) -> Result<(), Error> {
        match self.agent.take() {
            Some(mut agent) => agent.kill().await,
            None => Ok(()),
        }
    }

    /// Starts a situation.
    pub(super) async fn mark(&self) -> Result<Mark, Error> {
        if let Some(agent) = &self.agent {
            agent.forget_peak()?;
            Ok(Mark { requests: self.counters.read().await?, processor: agent.processor_seconds()? })
        } else {
            // A new agent's counters start at 0; the server's continue.
            let requests = match &self.counters {
                Counters::Agent(_) => Requests::default(),
                Counters::Server(_) => self.counters.read().await?,
            };
            Ok(Mark { requests, processor: 0.0 })
        }
    }

    /// Starts a situation in which other processes of Mainstay send requests, too: those of the agent are counted by its
    /// own metrics.
    pub(super) async fn mark_of_agent(&self) -> Result<Mark, Error> {
        let requests = self.requests_of_agent().await?;
        Ok(Mark { requests, ..self.mark().await? })
    }

    async fn requests_of_agent(&self) -> Result<Requests, Error> {
        Counters::Agent(format!("http://127.0.0.1:{}/metrics", self.port)).read().await
    }

    /// Ends such a situation at once.
    pub(super) async fn row_of_agent(
        &self,
        mark: Mark,
        situation: impl Into<String>,
        wall: String,
        targets: impl FnOnce(&Requests) -> Vec<Target>,
    ) -> Result<Row, Error> {
        let asked = self.requests_of_agent().await?.since(&mark.requests);
        self.row_with(&mark, &asked, situation.into(), wall, targets(&asked))
    }

    /// Returns the agent's CPU time since its start in seconds.
    pub(super) fn processor_seconds(&self) -> Result<f64, Error> {
        self.agent.as_ref().map_or(Ok(0.0), Process::processor_seconds)
    }

    /// Ends a situation once the agent sends only Events. Events are rate limited and may take minutes after a storm,
    /// so rows do not wait for them. Each row contains the number of Events written during it.
    pub(super) async fn row(
        &self,
        mark: Mark,
        situation: impl Into<String>,
        wall: String,
        targets: impl FnOnce(&Requests) -> Vec<Target>,
    ) -> Result<Row, Error> {
        self.settle(|asked| asked.without_events().0.total()).await?;
        let asked = self.counters.read().await?.since(&mark.requests);
        self.row_with(&mark, &asked, situation.into(), wall, targets(&asked))
    }

    fn row_with(
        &self,
        mark: &Mark,
        asked: &Requests,
        situation: String,
        wall: String,
        mut targets: Vec<Target>,
    ) -> Result<Row, Error> {
        let (requests, events) = asked.without_events();
        let (peak_mib, processor) = match &self.agent {
            Some(agent) => (agent.peak_mib()?, agent.processor_seconds()?),
            None => (0.0, 0.0),
        };
        targets.push(Target::new(format!("≤ {} MiB", self.memory), peak_mib <= self.memory));
        let processor_seconds = processor - mark.processor;
        Ok(Row { situation, wall, requests, events, peak_mib, processor_seconds, targets })
    }

    /// Returns a counter of the agent without labels; 0 if it is missing.
    pub(super) async fn metric(&self, name: &str) -> Result<u64, Error> {
        let answer = reqwest::get(format!("http://127.0.0.1:{}/metrics", self.port)).await.map_err(Error::Count)?;
        let text = answer.error_for_status().map_err(Error::Count)?.text().await.map_err(Error::Count)?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        Ok(value.unwrap_or(0))
    }

    /// Waits until the agent has also written its Events.
    pub(super) async fn until_silent(&self) -> Result<(), Error> {
        self.settle(Requests::total).await
    }

    /// Waits until the requests that `counts` selects stop.
    async fn settle(&self, counts: impl Fn(&Requests) -> u64) -> Result<(), Error> {
        let end = Instant::now() + DEADLINE;
        let mut last = self.counters.read().await?;
        let mut since = Instant::now();
        while since.elapsed() < SETTLED && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let now = self.counters.read().await?;
            if counts(&now.since(&last)) > 0 {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Simulates pods with this image. Their containers report this termination message.
    pub(super) async fn simulate(&self, image: &str, report: &str) -> Result<(), Error> {
        let Some(Embedded { url, token }) = &self.server else { return Ok(()) };
        let simulation = json!({ "image": image, "terminationMessage": report }).to_string();
        let asked =
            reqwest::Client::new().post(format!("{url}/devcluster/simulate")).bearer_auth(token).body(simulation);
        asked.send().await.and_then(reqwest::Response::error_for_status).map(drop).map_err(Error::Simulate)
    }

    /// Applies an object by its own name.
    pub(super) async fn apply_named<K>(&self, object: &Value) -> Result<(), Error>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        self.apply::<K>(object["metadata"]["name"].as_str().unwrap_or_default(), object).await
    }

    /// Applies an object in the agent's namespace.
    pub(super) async fn apply<K>(&self, name: &str, object: &Value) -> Result<(), Error>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug,
    {
        let api = Api::<K>::namespaced(self.client.clone(), NAMESPACE);
        let how = PatchParams::apply(MANAGER).force();
        api.patch(name, &how, &Patch::Apply(object)).await.map(drop).map_err(Error::Ask)
    }
}

/// Starts an embedded cluster as a process. Returns the process, its kubeconfig and access to it.
async fn embedded(directory: &Path) -> Result<(Process, PathBuf, Embedded), Error> {
    let path = directory.join("kubeconfig");
    // If this directory exists, pods and images are stored in it.
    fs::create_dir_all(directory.join(".mainstay")).map_err(Error::Directory)?;
    let mut arguments: Vec<OsString> = ["dev", "--cluster-only", "--output=json"].map(Into::into).to_vec();
    arguments.extend(["--kubeconfig".into(), path.clone().into()]);
    let mut process = Process::start(&arguments, &[], directory)?;
    let line = process.first_line().await?;
    let started: Value = serde_json::from_str(&line).map_err(Error::Counts)?;
    let url = started["server"].as_str().ok_or(Error::NotStarted)?.to_owned();
    let written = fs::read_to_string(&path).map_err(Error::Directory)?;
    let token = written.split_once("token: \"").and_then(|(_, rest)| rest.split_once('"')).ok_or(Error::NotStarted)?.0;
    // The cost of TLS is not the agent's.
    fs::write(&path, written.replace("server: \"https://", "server: \"http://")).map_err(Error::Directory)?;
    Ok((process, path, Embedded { url, token: token.to_owned() }))
}

pub(super) async fn connect(kubeconfig: &Path) -> Result<Client, Error> {
    let file = Kubeconfig::read_from(kubeconfig).map_err(Error::Kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    Client::try_from(config.map_err(Error::Kubeconfig)?).map_err(Error::Ask)
}

/// Installs the CRDs and creates the agent's namespace.
async fn install(client: &Client, wanted: &[CustomResourceDefinition]) -> Result<(), Error> {
    let how = PatchParams::apply(MANAGER).force();
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in wanted {
        let name = definition.name_any();
        let body = serde_json::to_value(definition).map_err(Error::Counts)?;
        definitions.patch(&name, &how, &Patch::Apply(&body)).await.map_err(Error::Ask)?;
        let end = Instant::now() + DEADLINE;
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

/// Returns a port that was free just now.
pub(super) fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::Start)?;
    Ok(listener.local_addr().map_err(Error::Start)?.port())
}
