//! GitSyncs with `spec.kubeConfig`: all operations on their objects happen in another cluster.

mod credentials;
mod departures;
mod namespaces;
mod shared;
mod unavailable;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use devcluster::verbs::delete::DeleteOptions;
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, Caller, Cluster, Options, Serving};
use serde_json::{Value, json};

use mainstay_testkit::ownership::LABEL;
use mainstay_testkit::program::Program;
use mainstay_testkit::world::{NAMESPACE, World, config_map, free_address};

/// The credentials of the other cluster, which must not appear anywhere.
const CANARY: &str = "canary-token-of-another-cluster";
const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");

/// Another cluster, served on a socket.
struct Other {
    server: Cluster,
    address: SocketAddr,
    serving: Option<Serving>,
}

impl Other {
    async fn new() -> Self {
        let server = Cluster::new(Options::default());
        server.start_controllers();
        let mut other = Self { server, address: free_address(), serving: None };
        other.open(CANARY).await;
        other
    }

    /// Serves the cluster without TLS and tokens. The same kubeconfig works for every cluster served this way.
    async fn open_to_all(&mut self) -> String {
        self.serve(None).await;
        plain(&format!("http://{}", self.address), "token: x")
    }

    /// Serves the cluster at the same address, with this token and a new certificate.
    async fn open(&mut self, token: &str) {
        self.serve(Some(token)).await;
    }

    async fn serve(&mut self, token: Option<&str>) {
        self.serving = None;
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        // The port is free once the last connections have ended.
        let serving = loop {
            match self.server.serve(self.address, token.map(str::to_owned)).await {
                Ok(serving) => break serving,
                Err(error) if tokio::time::Instant::now() > end => panic!("{error}"),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        self.serving = Some(serving);
    }

    /// Stops serving the cluster.
    fn close(&mut self) {
        self.serving = None;
    }

    fn kubeconfig(&self, token: &str) -> String {
        self.serving.as_ref().unwrap().kubeconfig(Some(token))
    }

    fn data(&self, name: &str) -> String {
        let map = self.server.object("v1", "configmaps", NAMESPACE, name);
        map.and_then(|map| map["data"]["key"].as_str().map(str::to_owned)).unwrap_or_else(|| "absent".to_owned())
    }

    fn label(&self, name: &str) -> Value {
        let map = self.server.object("v1", "configmaps", NAMESPACE, name);
        map.map_or(Value::Null, |map| map["metadata"]["labels"][LABEL].clone())
    }

    fn call(&self, name: &str, action: Action) {
        let call = Call::new("v1", "configmaps", NAMESPACE, name, action);
        self.server.call(&Caller::new("kubectl-edit"), call).unwrap();
    }

    fn edit(&self, name: &str, value: &str) {
        self.call(name, Action::Patch(Form::Merge, json!({"data": {"key": value}})));
    }

    fn inventories(&self) -> Vec<Arc<Value>> {
        let all = self.server.objects("v1", "configmaps", Some(NAMESPACE));
        all.into_iter().filter(|map| name_of(map).starts_with("mainstay-inventory-")).collect()
    }

    /// Returns the requests so far by `<verb> <resource>`, without watches.
    fn requests(&self) -> Vec<(String, u64)> {
        let counts = self.server.faults().counts();
        let counts = counts.iter().filter(|count| count.verb != "watch");
        counts.map(|count| (format!("{} {}", count.verb, count.resource), count.count)).collect()
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn to(secret: &str) -> Value {
    json!({"kubeConfig": {"secretRef": {"name": secret}}})
}

/// Creates a world and another cluster, whose kubeconfig is in the Secret `other`.
async fn worlds() -> (World, Other) {
    let (world, other) = (World::new().await, Other::new().await);
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    (world, other)
}

/// Creates a world and another cluster, in which the GitSync `demo` has applied `a` and `b`.
async fn applied(spec: Value) -> (World, Other) {
    let (mut world, other) = worlds().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    let mut whole = to("other");
    json_patch::merge(&mut whole, &spec);
    world.synced(whole).await;
    assert_eq!([other.data("a"), other.data("b")], ["1", "1"]);
    (world, other)
}

/// Returns a kubeconfig with these fields of its user.
fn plain(server: &str, user: &str) -> String {
    format!(
        "current-context: it\nclusters: [{{name: it, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: it, user: {{{user}}}}}]\n\
         contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_of_a_git_sync_happens_in_the_cluster_that_its_secret_leads_to() {
    let (mut world, other) = applied(json!({})).await;
    assert_eq!(world.config_maps(), Vec::<String>::new(), "nothing of it is in its own cluster");
    other.edit("a", "edited");
    world.until("it is reverted", |_| other.data("a") == "1").await;
    other.call("b", Action::Delete(DeleteOptions::default()));
    world.until("it is created again", |_| other.data("b") == "1").await;
    world.remote.file("a.yaml", config_map("a", "2")).remove("b.yaml");
    world.commit("demo", "two").await;
    world.until("what left is gone", |_| other.data("b") == "absent").await;
    assert_eq!(other.data("a"), "2");
    let (status, inventories) = (world.status("demo"), other.inventories());
    assert_eq!(status["objects"], 1);
    let system = other.server.object("v1", "namespaces", "", "kube-system").unwrap();
    assert_eq!(status["cluster"], system["metadata"]["uid"]);
    assert_eq!(inventories.len(), 1);
    assert_eq!(inventories[0]["metadata"]["ownerReferences"], Value::Null, "that cluster has no such GitSync");
    let own = world.server.objects("v1", "configmaps", Some(NAMESPACE));
    assert!(!own.iter().any(|map| name_of(map).starts_with("mainstay-inventory-")), "{own:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_applies_nothing_again_in_another_cluster() {
    let (mut world, other) = applied(json!({})).await;
    world.stop().await;
    other.server.faults().reset_counts();
    world.start();
    world.ask("demo").await;
    world.ready("demo").await;
    let requests = other.requests();
    let is_write = |asked: &str| ["get ", "list "].iter().all(|verb| !asked.starts_with(verb));
    assert!(!requests.iter().any(|(asked, _)| is_write(asked)), "{requests:?}");
    let lists: Vec<_> = requests.iter().filter(|(asked, _)| asked.starts_with("list ")).collect();
    assert!(lists.iter().all(|(_, count)| *count == 1), "{lists:?}");
    other.edit("a", "edited");
    world.until("what it knows of it is enough to revert it", |_| other.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_is_one_of_the_other_cluster() {
    let (mut world, mut other) = (World::new().await, Other::new().await);
    other.close();
    other.server = Cluster::new(Options { rbac: true, ..Options::default() });
    other.server.start_controllers();
    other.open(CANARY).await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    let mut spec = to("other");
    spec["serviceAccountName"] = json!("deployer");
    spec["interval"] = json!("1s");
    world.sync("demo", spec);
    world.start();
    world
        .condition_is("demo", "Ready", "False SpecInvalid: ServiceAccount mainstay-tests/deployer does not exist")
        .await;
    let create = |version: &str, resource: &str, namespace: &str, object: Value| {
        other
            .server
            .call(&Caller::new("test"), Call::new(version, resource, namespace, "", Action::Create(object)))
            .unwrap()
    };
    let metadata = json!({"name": "deployer", "namespace": NAMESPACE});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create("v1", "namespaces", "", namespace);
    create(
        "v1",
        "serviceaccounts",
        NAMESPACE,
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
    );
    world.condition_is("demo", "Ready", "False ApplyFailed").await;
    assert_eq!(other.data("a"), "absent");
    let rbac = "rbac.authorization.k8s.io/v1";
    let binding = json!({
        "apiVersion": rbac, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": NAMESPACE}],
    });
    create(rbac, "rolebindings", NAMESPACE, binding);
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(other.data("a"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_sync_waits_for_one_whose_objects_are_in_another_cluster() {
    let (mut world, mut other) = worlds().await;
    other.close();
    world.remote.file("first/a.yaml", config_map("a", "1")).file("then/b.yaml", config_map("b", "1")).commit("one");
    let mut first = to("other");
    (first["baseDir"], first["interval"]) = (json!("first"), json!("1s"));
    world.sync("first", first);
    world.sync("then", json!({"baseDir": "then", "dependsOn": [{"name": "first"}]}));
    world.start();
    world.condition_is("then", "Ready", "False DependencyNotReady").await;
    other.open(CANARY).await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.ready("then").await;
    assert_eq!((other.data("a"), world.data("b"), world.data("a")), ("1".into(), "1".into(), "absent".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_look_into_the_other_cluster_or_say_that_they_do_not() {
    let (mut world, mut other) = applied(json!({})).await;
    let program = Program::of(&world).await;
    // The other cluster is on this machine.
    program.set_dev_run(&world.remote.path());
    let (_, tree, notes) = program.run(&["tree", "demo", "-n", NAMESPACE]).await;
    assert!(
        tree.contains("ConfigMap mainstay-tests/a") && tree.contains("ConfigMap mainstay-tests/b"),
        "{tree}{notes}"
    );
    let (_, status, _) = program.run(&["status", "demo", "-n", NAMESPACE]).await;
    let system = other.server.object("v1", "namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    assert!(status.contains(&format!("remote cluster, from Secret other, {}", system.as_str().unwrap())), "{status}");
    world.remote.file("a.yaml", config_map("a", "3")).commit("two");
    let repository = world.remote.path().display().to_string();
    let diff = ["diff", "demo", "-n", NAMESPACE, "--revision", "main", "--repository", &repository];
    let (code, diff, error) = program.run(&diff).await;
    assert!(code == 1 && diff.contains("ConfigMap mainstay-tests/a") && !diff.contains("created"), "{diff}{error}");
    world.create(
        "v1",
        "configmaps",
        NAMESPACE,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
    );
    let (_, trace, error) = program.run(&["trace", "cm/a", "-n", NAMESPACE]).await;
    assert!(trace.contains("mainstay-tests/demo are in a remote cluster"), "{trace}{error}");
    assert!(!trace.contains("managed by"), "{trace}");
    other.close();
    let (_, tree, error) = program.run(&["tree", "demo", "-n", NAMESPACE]).await;
    let said = format!("{tree}{error}");
    assert!(
        said.contains(
            "the objects of GitSync.mainstay.dev mainstay-tests/demo are in another cluster and are not shown"
        ),
        "{said}"
    );
    assert!(!said.contains(CANARY));
}
