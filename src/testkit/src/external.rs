//! An external cluster: a real API server. The tests use only their own names and namespaces there.
//!
//! Invariant: only objects that the tests created are deleted. These objects are in namespaces with the prefix
//! [`NAMESPACE`], or have a name or API group with this prefix themselves. A cluster on which Mainstay is in use is
//! refused. Invariant: only one world exists at a time, because an agent watches the whole cluster.
//!
//! Objects that stay for the next run have the label [`SCAFFOLDING`]: Mainstay's and other projects' CRDs, the agent's
//! ServiceAccount with its roles, and the two namespaces.

use std::{
    future::Future,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use devcluster::{Action, Call, status::Status, verbs::patch::Form};
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::{
    Config,
    client::{Body, ClientBuilder},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use mainstay_object::Digest;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::{
    runtime::Runtime,
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{UnboundedReceiver, unbounded_channel},
    },
};

use super::world::NAMESPACE;

/// Environment variable with the kubeconfig of the external cluster.
pub const KUBECONFIG: &str = "MAINSTAY_TEST_KUBECONFIG";
/// Namespace of the agent's ServiceAccount, as in `manifests/`.
const AGENT_NAMESPACE: &str = "mainstay-system";
/// Label of objects that stay for the next run.
pub const SCAFFOLDING: &str = "mainstay.dev/tests";
/// Value of that label for CRDs of other projects.
const FOREIGN: &str = "foreign";
/// Annotation with the digest of a CRD's source.
const SOURCE: &str = "mainstay.dev/tests-source";
/// The permissions of the agent and its components.
const RIGHTS: [&str; 4] = [
    include_str!("../../../manifests/rbac.yaml"),
    include_str!("../../../manifests/exposure/rbac.yaml"),
    include_str!("../../../manifests/bindings/rbac.yaml"),
    include_str!("../../../manifests/knative/rbac.yaml"),
];
/// API groups of CRDs that tests create and may delete.
const TEST_GROUPS: [&str; 2] = ["mainstay-tests.example.org", "mainstay-tests.example.com"];
/// ConfigMap in `kube-system` with the simulated outcomes of containers.
const OUTCOMES: &str = "mainstay-tests-outcomes";
/// Timeout for a change of the cluster.
const PATIENCE: Duration = Duration::from_secs(60);
/// Polling interval.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Interval at which an API server refreshes its policies (`policyRefreshInterval` of k8s.io/apiserver). A deleted
/// policy stays in effect until the next refresh.
const POLICIES_ARE_READ_EVERY: Duration = Duration::from_secs(1);

const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");

/// The permit to use the cluster, which only one world can have.
pub type Turn = OwnedSemaphorePermit;

/// The external cluster.
#[derive(Clone, Copy)]
pub struct External(&'static Connection);

struct Connection {
    /// A runtime for synchronous calls of a test, independent of the test's own runtime.
    runtime: Runtime,
    admin: Api,
    config: Config,
    agent: Config,
    turns: Arc<Semaphore>,
}

impl External {
    /// Waits until no other test uses the cluster of `MAINSTAY_TEST_KUBECONFIG`, and returns it; `None` without that
    /// variable.
    pub async fn from_environment() -> Option<(Self, Turn)> {
        static CONNECTION: OnceLock<Connection> = OnceLock::new();
        let path = std::env::var_os(KUBECONFIG)?;
        let external = Self(CONNECTION.get_or_init(|| Connection::open(path.as_ref())));
        let turn = external.0.turns.clone().acquire_owned().await.unwrap();
        external.clean();
        external.wait(async |api| api.define().await);
        Some((external, turn))
    }

    /// Whether [`KUBECONFIG`] is set.
    pub fn is_named() -> bool {
        std::env::var_os(KUBECONFIG).is_some()
    }

    /// Returns a client with the token of the agent's ServiceAccount.
    pub fn agent_client(self) -> kube::Client {
        client(self.0.agent.clone())
    }

    /// Deletes all objects of tests. Their agents must have ended.
    pub fn clean(self) {
        self.wait(async |api| api.clean().await);
    }

    /// Sends a request as a field manager.
    pub fn call(self, manager: &str, call: Call) -> Result<Value, Status> {
        self.wait(async |api| api.call(manager, call).await)
    }

    /// Sends a request as a user with all permissions.
    pub fn call_as(self, user: &str, manager: &str, call: Call) -> Result<Value, Status> {
        let mut config = self.0.config.clone();
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
        self.wait(async |_| Api(client(config)).call(manager, call).await)
    }

    /// Returns the objects of a kind; empty if the kind is not served.
    pub fn objects(self, api_version: &str, resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let path = path_of(api_version, resource, namespace.unwrap_or_default(), "", "");
        self.wait(async |api| api.list(&path, api_version).await).into_iter().map(Arc::new).collect()
    }

    /// Returns a receiver of every later state of the objects of a kind.
    pub fn changes(self, api_version: &str, resource: &str) -> UnboundedReceiver<Value> {
        let path = path_of(api_version, resource, "", "", "");
        let (send, receive) = unbounded_channel();
        let mut answer = self.wait(async |api| api.watch(&path).await);
        self.0.runtime.spawn(async move {
            let mut read = Vec::new();
            while let Some(Ok(frame)) = answer.frame().await {
                read.extend(frame.data_ref().into_iter().flatten());
                while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = read.drain(..=end).collect();
                    if send.send(state(&line)).is_err() {
                        return;
                    }
                }
            }
        });
        receive
    }

    /// Simulates how containers of an image end, if the simulated kubelet of `tests/real` is running.
    pub fn simulate(self, image: &str, container: &str, simulation: &devcluster::Simulation) {
        let entry = json!({
            "namespace": NAMESPACE, "image": image, "container": container, "exitCode": simulation.exit_code,
            "terminationMessage": simulation.termination_message,
            "afterMillis": u64::try_from(simulation.after.as_millis()).unwrap(),
        });
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {container: entry.to_string()},
            "metadata": {"name": OUTCOMES, "namespace": "kube-system", "labels": {"devcluster.dev/outcomes": ""}},
        });
        // Each container has its own field manager, so the entries of other containers stay.
        let apply = Call::new("v1", "configmaps", "kube-system", OUTCOMES, Action::Patch(Form::Apply, map));
        let applied = self.call(&format!("test-{container}"), apply);
        applied.unwrap_or_else(|status| panic!("apply configmaps kube-system/{OUTCOMES}: {status:?}"));
    }

    /// Creates or replaces a CRD. The CRD's versions are served as specified.
    ///
    /// The CRD stays for other tests, because the garbage collector of a real cluster discovers a kind only within half
    /// a minute.
    pub fn define(self, definition: Value) {
        self.wait(async move |api| api.define_foreign(definition).await);
    }

    /// Deletes a CRD of tests, and waits until its kind is no longer served.
    pub fn undefine(self, name: &str) {
        self.wait(async |api| api.undefine_foreign(&[name.to_owned()]).await);
    }

    /// Deletes all CRDs of tests except these.
    pub fn keep_defined(self, names: &[&str]) {
        self.wait(async |api| {
            let all = api.list(&path_of(DEFINITIONS.0, DEFINITIONS.1, "", "", ""), DEFINITIONS.0).await;
            let foreign = all.iter().filter(|one| one["metadata"]["labels"][SCAFFOLDING] == FOREIGN);
            let names_of = foreign.map(|one| one["metadata"]["name"].as_str().unwrap());
            let others: Vec<String> = names_of.filter(|name| !names.contains(name)).map(str::to_owned).collect();
            api.undefine_foreign(&others).await;
        });
    }

    /// Applies the objects of a manifest, which stay for the next run.
    pub fn grant(self, manifest: &str) {
        self.wait(async |api| api.scaffold_all(manifest).await);
    }

    /// Returns a kubeconfig with this token.
    pub fn kubeconfig(token: &str) -> String {
        let text = std::fs::read_to_string(std::env::var_os(KUBECONFIG).unwrap()).unwrap();
        let mut config: Value = serde_yaml::from_str(&text).unwrap();
        for user in config["users"].as_array_mut().unwrap() {
            user["user"] = json!({"token": token});
        }
        config.to_string()
    }

    /// Runs a future on the connection's own runtime and waits for it.
    fn wait<T: Send>(self, work: impl AsyncFnOnce(&Api) -> T + Send) -> T {
        on(&self.0.runtime, || work(&self.0.admin))
    }
}

impl Connection {
    fn open(path: &std::path::Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let file = Kubeconfig::read_from(path).unwrap_or_else(|error| panic!("{KUBECONFIG}: {error}"));
        let (admin, own, agent) = on(&runtime, async || {
            let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            config.default_retry = false;
            config.read_timeout = None;
            let admin = Api(client(config.clone()));
            let token = admin.prepare().await;
            let own = config.clone();
            config.auth_info = serde_json::from_value::<AuthInfo>(json!({"token": token})).unwrap();
            (admin, own, config)
        });
        Self { runtime, admin, config: own, agent, turns: Arc::new(Semaphore::new(1)) }
    }
}

/// Runs a future on a runtime in a separate thread, because a thread of a runtime must not block on another one.
fn on<T: Send, F: Future<Output = T>>(runtime: &Runtime, work: impl FnOnce() -> F + Send) -> T {
    let done = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(work())).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn client(config: Config) -> kube::Client {
    ClientBuilder::try_from(config).unwrap().build()
}

/// Requests to the external cluster.
#[derive(Clone)]
struct Api(kube::Client);

impl Api {
    async fn ask(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Result<Value, Status> {
        let began = Instant::now();
        loop {
            let answer = self.ask_once(method.clone(), path, kind, body.clone()).await;
            // The server returns 429 if the kind was defined recently, or if the server is overloaded.
            let later = matches!(&answer, Err(status) if status.code == 429);
            if !later || began.elapsed() > PATIENCE {
                return answer;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn ask_once(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Result<Value, Status> {
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let request = request.header(header::ACCEPT, "application/json").body(Body::from(body)).unwrap();
        let answer = self.0.send(request).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let value = serde_json::from_slice::<Value>(&body);
        if code < 300 {
            return Ok(value.unwrap());
        }
        let Ok(value) = value else { return Err(Status::new(code, "", String::from_utf8_lossy(&body))) };
        let text = |field: &str| value[field].as_str().unwrap_or_default();
        let mut status = Status::new(code, text("reason"), text("message"));
        status.details = value["details"].as_object().cloned();
        Err(status)
    }

    async fn call(&self, manager: &str, call: Call) -> Result<Value, Status> {
        let is_new = matches!(call.action, Action::Create(_)) && call.subresource.is_empty();
        let name = if is_new { "" } else { &call.name };
        let path = path_of(&call.api_version, &call.resource, &call.namespace, name, &call.subresource);
        let written = format!("{path}?fieldManager={manager}");
        let plain = "application/json";
        match call.action {
            Action::Get => self.ask(Method::GET, &path, plain, Vec::new()).await,
            Action::Create(object) => self.ask(Method::POST, &written, plain, object.to_string().into()).await,
            Action::Update(object) => self.ask(Method::PUT, &written, plain, object.to_string().into()).await,
            Action::Patch(form, patch) => {
                let kind = match form {
                    Form::Merge => "application/merge-patch+json",
                    Form::Json => "application/json-patch+json",
                    Form::Strategic => "application/strategic-merge-patch+json",
                    Form::Apply => "application/apply-patch+yaml",
                };
                self.ask(Method::PATCH, &written, kind, patch.to_string().into()).await
            }
            Action::Delete(options) => {
                let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
                if let Some(seconds) = options.grace {
                    body["gracePeriodSeconds"] = json!(seconds);
                }
                if let Some(propagation) = options.propagation {
                    body["propagationPolicy"] = json!(format!("{propagation:?}"));
                }
                if options.dry_run {
                    body["dryRun"] = json!(["All"]);
                }
                if options.uid.is_some() || options.version.is_some() {
                    body["preconditions"] = json!({"uid": options.uid, "resourceVersion": options.version});
                }
                self.ask(Method::DELETE, &path, plain, body.to_string().into()).await
            }
        }
    }

    async fn get(&self, path: &str) -> Option<Value> {
        match self.ask(Method::GET, path, "application/json", Vec::new()).await {
            Ok(object) => Some(object),
            Err(status) if status.code == 404 => None,
            Err(status) => panic!("{path}: {status:?}"),
        }
    }

    /// Returns the objects of a collection, in the form of a response to GET.
    async fn list(&self, path: &str, version: &str) -> Vec<Value> {
        let Some(mut list) = self.get(path).await else { return Vec::new() };
        let kind = list["kind"].as_str().and_then(|kind| kind.strip_suffix("List")).unwrap_or_default().to_owned();
        let Value::Array(mut items) = list["items"].take() else { return Vec::new() };
        for item in &mut items {
            item["apiVersion"] = json!(version);
            item["kind"] = json!(kind);
        }
        items
    }

    /// Watches a collection from its current version.
    async fn watch(&self, path: &str) -> Body {
        let list = self.get(path).await.expect("a kind that is watched is served");
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let uri = format!("{path}?watch=true&timeoutSeconds=600&resourceVersion={version}");
        let answer = self.0.send(Request::get(uri).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        answer.into_body()
    }

    /// Waits until a condition holds.
    async fn until(&self, what: &str, mut wanted: impl AsyncFnMut() -> bool) {
        let began = Instant::now();
        while !wanted().await {
            assert!(began.elapsed() < PATIENCE, "the cluster was not ready within {PATIENCE:?}: {what}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Creates the namespaces and the agent's ServiceAccount with its roles, and returns its token. Fails if Mainstay
    /// is in use on the cluster.
    async fn prepare(&self) -> String {
        for definition in mainstay_api::definitions() {
            let name = definition.metadata.name.clone().unwrap();
            let Some(found) = self.get(&path_of(DEFINITIONS.0, DEFINITIONS.1, "", &name, "")).await else { continue };
            assert!(is_ours(&found), "this cluster has {name} already: the tests want one without Mainstay");
            let version = format!("{}/{}", definition.spec.group, definition.spec.versions[0].name);
            let path = path_of(&version, &definition.spec.names.plural, "", "", "");
            for object in self.list(&path, &version).await {
                let namespace = object["metadata"]["namespace"].as_str().unwrap();
                assert!(is_test_name(namespace), "this cluster has a {name} of somebody else, in {namespace}");
            }
        }
        for namespace in [NAMESPACE, AGENT_NAMESPACE] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            self.scaffold("namespaces", object).await;
        }
        for manifest in RIGHTS {
            self.scaffold_all(manifest).await;
        }
        for (resource, name) in [("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")] {
            let path = path_of("v1", resource, NAMESPACE, name, "");
            self.until(name, async || self.get(&path).await.is_some()).await;
        }
        let path = path_of("v1", "serviceaccounts", AGENT_NAMESPACE, "mainstay", "token");
        let wanted = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86_400},
        });
        let answer = self.ask(Method::POST, &path, "application/json", wanted.to_string().into()).await.unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    async fn scaffold_all(&self, manifest: &str) {
        for document in serde_yaml::Deserializer::from_str(manifest) {
            let object = Value::deserialize(document).unwrap();
            let resource = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
            self.scaffold(&resource, object).await;
        }
    }

    async fn define_foreign(&self, mut definition: Value) {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        // The conversion is removed, because the conversion webhook does not exist here.
        definition["spec"].as_object_mut().unwrap().remove("conversion");
        let source = Digest::of(definition["spec"].to_string().as_bytes()).to_string();
        let path = path_of(DEFINITIONS.0, DEFINITIONS.1, "", &name, "");
        let found = self.get(&path).await;
        if found.as_ref().is_some_and(|found| found["metadata"]["annotations"][SOURCE] != *source) {
            assert!(found.as_ref().is_some_and(is_ours), "this cluster has {name} already, and not from us");
            self.undefine_foreign(std::slice::from_ref(&name)).await;
        } else if found.is_some() {
            return;
        }
        definition["metadata"]["labels"][SCAFFOLDING] = FOREIGN.into();
        definition["metadata"]["annotations"][SOURCE] = source.into();
        let collection = path_of(DEFINITIONS.0, DEFINITIONS.1, "", "", "");
        self.ask(Method::POST, &collection, "application/json", definition.to_string().into()).await.unwrap();
        let text = |at: &str| definition.pointer(at).and_then(Value::as_str).unwrap().to_owned();
        let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
        let versions = definition["spec"]["versions"].as_array().unwrap();
        for version in versions.iter().filter(|version| version["served"] == true) {
            let served = format!("{group}/{}", version["name"].as_str().unwrap());
            let served = path_of(&served, &plural, "", "", "");
            self.until(&format!("{served} is served"), async || self.get(&served).await.is_some()).await;
        }
    }

    /// Deletes other projects' CRDs, and waits until their kinds are no longer served.
    async fn undefine_foreign(&self, names: &[String]) {
        let paths: Vec<String> = names.iter().map(|name| path_of(DEFINITIONS.0, DEFINITIONS.1, "", name, "")).collect();
        for path in &paths {
            let _ = self.ask(Method::DELETE, path, "application/json", Vec::new()).await;
        }
        for path in &paths {
            self.until(&format!("{path} is gone"), async || self.get(path).await.is_none()).await;
        }
    }

    /// Creates an object that stays for the next run, unless an object of another owner exists.
    async fn scaffold(&self, resource: &str, mut object: Value) {
        object["metadata"]["labels"][SCAFFOLDING] = json!("scaffolding");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, namespace) = (text(&object["apiVersion"]), text(&object["metadata"]["namespace"]));
        let name = text(&object["metadata"]["name"]);
        let path = path_of(&version, resource, &namespace, &name, "");
        let found = self.get(&path).await;
        assert!(
            found.is_none_or(|found| is_ours(&found)),
            "this cluster has {resource} {name} already, and not from us"
        );
        let call = Call::new(&version, resource, &namespace, &name, Action::Patch(Form::Apply, object));
        let applied = self.call("mainstay-tests", call).await;
        applied.unwrap_or_else(|status| panic!("apply {resource} {namespace}/{name}: {status:?}"));
    }

    /// Creates Mainstay's CRDs if they are missing, and waits until they are served.
    async fn define(&self) {
        for definition in mainstay_api::definitions() {
            let (name, spec) = (definition.metadata.name.clone().unwrap(), definition.spec.clone());
            let path = path_of(DEFINITIONS.0, DEFINITIONS.1, "", &name, "");
            let gone = |found: &Value| !found["metadata"]["deletionTimestamp"].is_null();
            self.until(&format!("{name} is gone"), async || !self.get(&path).await.as_ref().is_some_and(gone)).await;
            if self.get(&path).await.is_none() {
                self.scaffold(DEFINITIONS.1, serde_json::to_value(definition).unwrap()).await;
            }
            let served = path_of(&format!("{}/{}", spec.group, spec.versions[0].name), &spec.names.plural, "", "", "");
            self.until(&format!("{name} is served"), async || self.get(&served).await.is_some()).await;
        }
    }

    /// Deletes the objects of tests.
    async fn clean(&self) {
        // Deletes webhooks of an ended agent. Only webhooks of tests have the label.
        for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let path = path_of("admissionregistration.k8s.io/v1", resource, "", super::admission::NAME, "");
            if self.get(&path).await.is_some_and(|live| !live["metadata"]["labels"][SCAFFOLDING].is_null()) {
                let _ = self.ask(Method::DELETE, &path, "application/json", Vec::new()).await;
            }
        }
        // Deletes policies of the tests' GitSyncs, because they would refuse the deletion of the applied objects.
        let mut refuses = false;
        for resource in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
            let collection = path_of("admissionregistration.k8s.io/v1", resource, "", "", "");
            for policy in self.list(&collection, "admissionregistration.k8s.io/v1").await {
                let name = policy["metadata"]["name"].as_str().unwrap();
                if name.starts_with(&format!("mainstay-{NAMESPACE}")) {
                    let _ =
                        self.ask(Method::DELETE, &format!("{collection}/{name}"), "application/json", Vec::new()).await;
                    refuses = true;
                }
            }
        }
        if refuses {
            // The next test's policies have the same names, and the old policies must no longer be in effect.
            tokio::time::sleep(2 * POLICIES_ARE_READ_EVERY).await;
        }
        for resource in ["clusterrolebindings", "clusterroles"] {
            let version = "rbac.authorization.k8s.io/v1";
            for object in self.list(&path_of(version, resource, "", "", ""), version).await {
                let name = object["metadata"]["name"].as_str().unwrap();
                if is_test_name(name) {
                    let path = path_of(version, resource, "", name, "");
                    let _ = self.ask(Method::DELETE, &path, "application/json", Vec::new()).await;
                }
            }
        }
        let outcomes = path_of("v1", "configmaps", "kube-system", OUTCOMES, "");
        if self.get(&outcomes).await.is_some() {
            let _ = self.ask(Method::DELETE, &outcomes, "application/json", Vec::new()).await;
        }
        let kinds = self.namespaced_kinds().await;
        for namespace in self.list("/api/v1/namespaces", "v1").await {
            let name = namespace["metadata"]["name"].as_str().unwrap();
            if is_test_name(name) {
                self.empty(name, &kinds).await;
                self.remove(name).await;
            }
        }
        for definition in self.list(&path_of(DEFINITIONS.0, DEFINITIONS.1, "", "", ""), DEFINITIONS.0).await {
            if !TEST_GROUPS.iter().any(|group| definition["spec"]["group"] == *group) {
                continue;
            }
            let path = path_of(DEFINITIONS.0, DEFINITIONS.1, "", definition["metadata"]["name"].as_str().unwrap(), "");
            let _ = self.ask(Method::DELETE, &path, "application/json", Vec::new()).await;
            self.until(&format!("{path} is gone"), async || self.get(&path).await.is_none()).await;
        }
    }

    /// Returns API version and resource of all namespaced kinds that can be deleted.
    async fn namespaced_kinds(&self) -> Vec<(String, String)> {
        let mut kinds = Vec::new();
        for root in ["/api", "/apis"] {
            let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            let request = Request::get(root).header(header::ACCEPT, accept).body(Body::empty()).unwrap();
            let body = self.0.send(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
            let groups: Value = serde_json::from_slice(&body).unwrap();
            for group in groups["items"].as_array().unwrap() {
                let (name, version) = (group["metadata"]["name"].as_str().unwrap_or_default(), &group["versions"][0]);
                let number = version["version"].as_str().unwrap();
                let api_version = if name.is_empty() { number.to_owned() } else { format!("{name}/{number}") };
                for resource in version["resources"].as_array().unwrap() {
                    let verbs = resource["verbs"].as_array().cloned().unwrap_or_default();
                    let can = |verb: &str| verbs.iter().any(|known| known == verb);
                    // Events are served in two groups with the same objects.
                    let doubled = name == "events.k8s.io";
                    if resource["scope"] == "Namespaced" && can("list") && can("deletecollection") && !doubled {
                        kinds.push((api_version.clone(), resource["resource"].as_str().unwrap().to_owned()));
                    }
                }
            }
        }
        kinds
    }

    /// Deletes all objects in a namespace, including objects with finalizers.
    async fn empty(&self, namespace: &str, kinds: &[(String, String)]) {
        let began = Instant::now();
        loop {
            let left = kinds.iter().map(|(version, resource)| self.discard(namespace, version, resource));
            let left = futures::future::join_all(left).await.concat();
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "these of {namespace} are not gone within {PATIENCE:?}: {left:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Deletes the objects of a kind, and returns the names of the objects that existed.
    async fn discard(&self, namespace: &str, version: &str, resource: &str) -> Vec<String> {
        let collection = path_of(version, resource, namespace, "", "");
        let mut found = self.list(&collection, version).await;
        // The cluster recreates these objects in every namespace.
        found.retain(|object| {
            let name = object["metadata"]["name"].as_str().unwrap();
            !matches!((resource, name), ("configmaps", "kube-root-ca.crt") | ("serviceaccounts", "default"))
        });
        let mut left = Vec::new();
        for object in found {
            let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
            // Errors are ignored: the next round handles conflicts, and other objects may already be deleted.
            if object["metadata"]["finalizers"].is_array() {
                let patch = json!({"metadata": {"finalizers": null}}).to_string();
                let _ = self.ask(Method::PATCH, &path, "application/merge-patch+json", patch.into()).await;
            }
            let options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Background",
            });
            let _ = self.ask(Method::DELETE, &path, "application/json", options.to_string().into()).await;
            left.push(path);
        }
        left
    }

    /// Deletes an empty namespace, except the namespace that all tests share.
    async fn remove(&self, namespace: &str) {
        if namespace == NAMESPACE {
            return;
        }
        let path = path_of("v1", "namespaces", "", namespace, "");
        let _ = self.ask(Method::DELETE, &path, "application/json", Vec::new()).await;
        // The namespace controller would wait 5 s. The namespace is empty, so its finalizer is removed here.
        let whole = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}, "spec": {"finalizers": []},
        });
        let _ = self.ask(Method::PUT, &format!("{path}/finalize"), "application/json", whole.to_string().into()).await;
        self.until(&format!("{namespace} is gone"), async || self.get(&path).await.is_none()).await;
    }
}

/// Returns the object in a line of a watch.
fn state(line: &[u8]) -> Value {
    let mut event: Value = serde_json::from_slice(line).unwrap();
    assert_ne!(event["type"], "ERROR", "the watch ended: {event}");
    event["object"].take()
}

/// Whether the name of a namespace is one that tests use.
fn is_test_name(namespace: &str) -> bool {
    namespace.strip_prefix(NAMESPACE).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Whether an object stays for the next run.
fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"][SCAFFOLDING].is_string()
}

/// Returns the path of a collection, an object or a subresource.
fn path_of(api_version: &str, resource: &str, namespace: &str, name: &str, subresource: &str) -> String {
    let mut path = format!("/{}/{api_version}", if api_version.contains('/') { "apis" } else { "api" });
    if !namespace.is_empty() {
        path += &format!("/namespaces/{namespace}");
    }
    for part in [resource, name, subresource] {
        if !part.is_empty() {
            path += &format!("/{part}");
        }
    }
    path
}
