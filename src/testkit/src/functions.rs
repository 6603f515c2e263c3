//! Functions in a [`World`]: registries, simulated builds, and helpers for statuses.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use devcluster::{
    Cluster as EmbeddedCluster, Options,
    fault_injection::{FaultInjection, Simulation},
};
use mainstay_engine::notification::Message;
use mainstay_object::Owner;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::world::{NAMESPACE, World, condition_of};

pub const API: &str = "serverless.kyma-project.io/v1alpha1";
/// Label with the name of the Function on its children.
const NAME: &str = "serverless.kyma-project.io/function-name";

/// Reasons of a Function that waits for other controllers.
const AWAITED: [&str; 3] = ["JobRunning", "DeploymentWaiting", "ServiceWaiting"];

/// API version and resource of a kind of children.
pub type Kind = (&'static str, &'static str);

pub const CONFIG_MAPS: Kind = ("v1", "configmaps");
pub const JOBS: Kind = ("batch/v1", "jobs");
pub const PODS: Kind = ("v1", "pods");
pub const DEPLOYMENTS: Kind = ("apps/v1", "deployments");
pub const SERVICES: Kind = ("v1", "services");
pub const AUTOSCALERS: Kind = ("autoscaling/v1", "horizontalpodautoscalers");

/// Returns the spec of an inline Function for Node.js with one pod.
pub fn inline(source: &str) -> Value {
    json!({"runtime": "nodejs22", "source": source, "minReplicas": 1, "maxReplicas": 1})
}

/// Returns the same spec with up to three pods and an autoscaler.
pub fn scaled(source: &str) -> Value {
    let mut spec = inline(source);
    spec["maxReplicas"] = json!(3);
    spec
}

impl World {
    /// Returns a world in which the Function `hello` is running.
    pub async fn running(spec: Value) -> Self {
        let mut world = Self::with_functions().await;
        world.start();
        world.function("hello", spec);
        world.runs("hello").await;
        world
    }

    /// Returns a world whose builds succeed immediately, with a registry for its namespace. The agent does not run yet.
    pub async fn with_functions() -> Self {
        Self::new().await.for_functions()
    }

    /// Returns such a world on its own embedded cluster.
    pub fn with_functions_on(options: Options) -> Self {
        Self::of(EmbeddedCluster::new(options)).for_functions()
    }

    fn for_functions(self) -> Self {
        self.builds_succeed();
        self.registry(NAMESPACE, "registry.example.org");
        self
    }

    /// Makes builds succeed immediately, with a digest that depends on their inputs.
    pub fn builds_succeed(&self) {
        self.builds_end("push", 0, r#"{"digest":"{digest}","reused":false,"seconds":0.1}"#, Duration::ZERO);
    }

    /// Makes builds wait until the test changes their outcome.
    pub fn builds_wait(&self) {
        self.builds_end("push", 0, "", Duration::from_secs(86_400));
    }

    /// Sets how a container of builds ends.
    pub fn builds_end(&self, container: &str, exit_code: i32, message: &str, after: Duration) {
        let simulation = Simulation { exit_code, termination_message: Some(message.to_owned()), after };
        self.server.simulate(&self.functions.builder_image, container, simulation);
    }

    /// Sets the registry of a namespace.
    pub fn registry(&self, namespace: &str, address: &str) {
        self.registry_for(namespace, address, "u", "p");
    }

    /// Sets the registry of a namespace with a user name and a password.
    pub fn registry_for(&self, namespace: &str, address: &str, username: &str, password: &str) {
        let data = json!({
            "registryAddress": address, "serverAddress": address, "isInternal": "false", "username": username,
            "password": password,
        });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"name": "serverless-registry-config-default", "namespace": namespace},
        });
        self.create("v1", "secrets", namespace, secret);
    }

    /// Creates a Function.
    #[track_caller]
    pub fn function(&self, name: &str, spec: Value) -> Value {
        self.function_in(NAMESPACE, name, spec)
    }

    /// Creates a Function in another namespace.
    #[track_caller]
    pub fn function_in(&self, namespace: &str, name: &str, spec: Value) -> Value {
        let metadata = json!({"name": name, "namespace": namespace});
        let function = json!({"apiVersion": API, "kind": "Function", "metadata": metadata, "spec": spec});
        self.create(API, "functions", namespace, function)
    }

    /// Changes a Function as a user; `patch` is a merge patch.
    #[track_caller]
    pub fn edit_function(&self, name: &str, patch: Value) -> Value {
        self.edit(API, "functions", name, patch)
    }

    /// Deletes a Function.
    pub fn delete_function(&self, name: &str) {
        self.delete(API, "functions", name);
    }

    /// Returns the Function.
    pub fn function_now(&self, name: &str) -> Option<Arc<Value>> {
        self.get(API, "functions", name)
    }

    /// Returns the status of a Function; null without a status.
    pub fn function_status(&self, name: &str) -> Value {
        self.function_now(name).map(|function| function["status"].clone()).unwrap_or_default()
    }

    /// Returns `<status> <reason>: <message>` of a Function's condition; `absent` without it.
    pub fn said(&self, name: &str, condition: &str) -> String {
        condition_of(&self.function_status(name), condition)
    }

    /// Waits until a Function's condition begins with a string.
    pub async fn says(&self, name: &str, condition: &str, beginning: &str) {
        let what = format!("{condition} of {name} to begin with {beginning:?}");
        self.until_function(&what, |w| w.said(name, condition).starts_with(beginning)).await;
    }

    /// Waits until a Function runs with its newest generation.
    pub async fn runs(&self, name: &str) {
        self.until_function(&format!("{name} to run"), |w| w.is_running(name)).await;
    }

    /// Whether a Function runs with its newest generation, and no rollout is in progress.
    pub fn is_running(&self, name: &str) -> bool {
        let Some(function) = self.function_now(name) else { return false };
        let generation = &function["metadata"]["generation"];
        let all = function["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_rolled_out = |c: &Value| c["type"] != "Running" || c["reason"] == "DeploymentReady";
        let is_done = |c: &Value| c["status"] == "True" && c["observedGeneration"] == *generation && is_rolled_out(c);
        all.len() == 3 && all.iter().all(is_done)
    }

    /// Waits until a condition holds. Shows the Functions if it fails.
    pub async fn until_function(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let shown = || {
            let functions = self.server.objects(API, "functions", None);
            functions.iter().map(|f| format!("{}: {:#}", f["metadata"]["name"], f["status"])).collect::<Vec<_>>()
        };
        self.until_or(what, wanted, || shown().join("\n")).await;
    }

    /// Returns a Function's children of a kind, by name.
    pub fn children(&self, function: &str, (version, resource): Kind) -> Vec<Arc<Value>> {
        let all = self.server.objects(version, resource, Some(NAMESPACE));
        all.into_iter().filter(|object| object["metadata"]["labels"][NAME] == function).collect()
    }

    /// Returns the only child of a kind.
    #[track_caller]
    pub fn child(&self, function: &str, kind: Kind) -> Arc<Value> {
        let mut all = self.children(function, kind);
        assert_eq!(all.len(), 1, "{kind:?} of {function}");
        all.remove(0)
    }

    /// Returns the name of the only child of a kind.
    #[track_caller]
    pub fn child_name(&self, function: &str, kind: Kind) -> String {
        self.child(function, kind)["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// Waits until the Function's messages since the last call have these reasons, in this order.
    ///
    /// Controllers may be done before the agent sees the waiting state, so a reason that only reports waiting may be
    /// missing.
    pub async fn told(&mut self, function: &str, expected: &[&str]) {
        let owner = Owner::function(NAMESPACE, function);
        let counts = |reason: &str| !AWAITED.contains(&reason);
        let expected: Vec<&str> = expected.iter().copied().filter(|reason| counts(reason)).collect();
        let mut reasons: Vec<String> = Vec::new();
        while reasons.len() < expected.len() {
            let heard = tokio::time::timeout(crate::PATIENCE, self.messages.recv()).await;
            let Ok(Ok(message)) = heard else { break };
            if let Message::Stage { subject, reason, .. } = message
                && subject == owner
                && counts(reason.as_str())
            {
                reasons.push(reason.to_string());
            }
        }
        assert_eq!(reasons, expected, "{:#}", self.function_status(function));
    }

    /// Tracks the lowest number of replicas of a Function's Deployment from now on.
    pub fn lowest_replicas(&self, function: &str) -> impl Fn() -> i64 + use<> {
        let (lowest, name) = (Arc::new(AtomicI64::new(i64::MAX)), self.child_name(function, DEPLOYMENTS));
        let (mut changes, seen) = (self.server.changes(DEPLOYMENTS.0, DEPLOYMENTS.1), Arc::clone(&lowest));
        tokio::spawn(async move {
            loop {
                for object in changes.next().await {
                    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|_| is_named(&object, &name)) {
                        seen.fetch_min(replicas, Ordering::Relaxed);
                    }
                }
            }
        });
        move || lowest.load(Ordering::Relaxed)
    }

    /// Waits until the server received no requests for a while in which this thread was scheduled. On an overloaded
    /// machine, elapsed time alone proves nothing. Times with a late wake-up are not counted, within limits.
    pub async fn quiet(&self) {
        const TURNS: u32 = 6;
        const TURN: Duration = Duration::from_millis(50);
        const PATIENCE: Duration = Duration::from_secs(3);
        let (mut before, mut turns) = (self.requests(), 0);
        let began = Instant::now();
        while turns < TURNS {
            let asked = Instant::now();
            tokio::time::sleep(TURN).await;
            let (is_late, now) = (asked.elapsed() > TURN * 3 / 2, self.requests());
            turns = match now == before {
                true if is_late && began.elapsed() < PATIENCE => turns,
                true => turns + 1,
                false => 0,
            };
            before = now;
        }
    }

    /// Checks that no watch starts and no requests are sent, except for the Lease, during `traffic` and for three
    /// seconds afterwards. First waits for two seconds without requests. `counted` contains the requests of this
    /// world's agent, or of all processes.
    pub async fn is_silent_while(&self, counted: &FaultInjection, traffic: impl AsyncFnOnce()) {
        let asked = || -> Vec<(String, u64)> {
            let counts = counted.counts().into_iter().filter(|count| !count.resource.starts_with("leases"));
            counts
                .map(|count| (format!("{} {} {}", count.verb, count.resource, count.user_agent), count.count))
                .collect()
        };
        let last = std::cell::RefCell::new((asked(), Instant::now()));
        let is_settled = |_: &World| {
            let mut last = last.borrow_mut();
            let now = asked();
            if now != last.0 {
                *last = (now, Instant::now());
            }
            last.1.elapsed() > Duration::from_secs(2)
        };
        self.until("two seconds without a request", is_settled).await;
        let before = asked();
        assert!(before.iter().any(|(what, _)| what.starts_with("watch ")), "these requests are counted: {before:?}");
        traffic().await;
        let began = Instant::now();
        self.until("three seconds have gone", |_| began.elapsed() > Duration::from_secs(3)).await;
        assert_eq!(asked(), before);
    }

    /// Whether a Function has the pods that its Deployment specifies.
    pub fn is_rolled_out(&self, function: &str) -> bool {
        self.children(function, DEPLOYMENTS).iter().all(|deployment| {
            let (spec, status) = (&deployment["spec"], &deployment["status"]);
            let has_all = |field: &str| status[field] == spec["replicas"];
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && has_all("replicas")
                && has_all("updatedReplicas")
                && has_all("availableReplicas")
        })
    }

    /// Records builds from now on.
    pub fn builds(&self) -> Builds {
        let builds = Builds::default();
        let (mut events, seen, server) = (self.server.embedded().subscribe(), builds.clone(), self.server.clone());
        tokio::spawn(async move {
            loop {
                let batch = events.next().await;
                for event in batch.events.iter().filter(|event| &*event.storage == "jobs.batch") {
                    let Some(job) = event.new.as_ref().filter(|_| event.old.is_none()) else { continue };
                    seen.created(&job.value());
                }
                let jobs = server.objects("batch/v1", "jobs", None);
                let running = jobs.iter().filter(|job| is_unfinished(job)).count();
                let mut inner = seen.0.lock();
                inner.most = inner.most.max(running);
            }
        });
        builds
    }

    /// Creates a Git Function for a directory in the world's repository.
    pub fn git_function(&self, name: &str, base_dir: &str) {
        self.git_function_of("repo", name, base_dir);
    }

    /// Creates a Git Function for a directory in another GitRepository.
    pub fn git_function_of(&self, repository: &str, name: &str, base_dir: &str) {
        self.function(
            name,
            json!({
                "runtime": "nodejs22", "type": "git", "source": repository, "reference": "main", "baseDir": base_dir,
                "minReplicas": 1, "maxReplicas": 1,
            }),
        );
    }
}

/// Whether an object in the tests' namespace has this name.
fn is_named(object: &Value, name: &str) -> bool {
    object["metadata"]["namespace"] == NAMESPACE && object["metadata"]["name"] == name
}

fn is_unfinished(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
    job["metadata"]["deletionTimestamp"].is_null()
        && !conditions
            .iter()
            .any(|c| matches!(c["type"].as_str(), Some("Complete" | "Failed")) && c["status"] == "True")
}

/// The recorded builds.
#[derive(Clone, Default)]
pub struct Builds(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// Images that were built, with all Jobs for each.
    jobs: BTreeMap<String, Vec<String>>,
    most: usize,
}

impl Builds {
    fn created(&self, job: &Value) {
        let args = job["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
        let image = args.iter().find_map(|arg| arg.as_str().unwrap().strip_prefix("--image=")).unwrap();
        let name = job["metadata"]["name"].as_str().unwrap().to_owned();
        self.0.lock().jobs.entry(image.to_owned()).or_default().push(name);
    }

    /// Returns the maximum number of concurrent builds.
    pub fn most(&self) -> usize {
        self.0.lock().most
    }

    /// Returns all images with their Jobs.
    pub fn all(&self) -> BTreeMap<String, Vec<String>> {
        self.0.lock().jobs.clone()
    }
}
