//! GitSyncs with `spec.kubeConfig`: all operations on their objects happen in another cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use devcluster::fault_injection::Fault;
use devcluster::verbs::{delete::DeleteOptions, patch::Form};
use devcluster::{Action, Call, Caller, Cluster, Options, Serving};
use serde_json::{Value, json};

use mainstay_testkit::canary;
use mainstay_testkit::logs;
use mainstay_testkit::ownership::LABEL;
use mainstay_testkit::program::Program;
use mainstay_testkit::world::{NAMESPACE, World, config_map, free_address, git_sync};

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
async fn new_credentials_for_the_same_cluster_are_used_at_once_and_nothing_is_forgotten() {
    let (mut world, mut other) = applied(json!({"interval": "1s"})).await;
    other.open("the-next-token").await;
    world.condition_is("demo", "Ready", "False ClusterUnavailable").await;
    let wrong = other.kubeconfig("a-wrong-token");
    world.set_secret("other", json!({"value": wrong}));
    let refused =
        "False ClusterUnavailable: the cluster does not accept the credentials in Secret other (spec.kubeConfig)";
    world.condition_is("demo", "Ready", refused).await;
    let uid = || other.server.object("v1", "configmaps", NAMESPACE, "a").unwrap()["metadata"]["uid"].clone();
    let before = uid();
    world.set_secret("other", json!({"value": other.kubeconfig("the-next-token")}));
    world.ready("demo").await;
    other.edit("a", "edited");
    world.until("it is reverted", |_| other.data("a") == "1").await;
    world.remote.remove("b.yaml");
    world.commit("demo", "two").await;
    world.until("what left is gone", |_| other.data("b") == "absent").await;
    assert_eq!(uid(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_goes_away_and_comes_back_is_kept_as_before() {
    let (world, mut other) = applied(json!({"interval": "1s"})).await;
    other.close();
    other.edit("a", "edited");
    world.condition_is("demo", "Ready", "False ClusterUnavailable: the cluster of Secret other").await;
    assert_eq!(world.status("demo")["objects"], 2, "they are still there");
    other.open(CANARY).await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.ready("demo").await;
    world.until("it is reverted", |_| other.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_finds_a_cluster_away_knows_of_the_objects_what_it_knew() {
    let (mut world, mut other) = applied(json!({"interval": "1s"})).await;
    world.stop().await;
    other.close();
    world.start();
    world.condition_is("demo", "Ready", "False ClusterUnavailable").await;
    let status = world.status("demo");
    assert_eq!((&status["objects"], &status["appliedCommit"]), (&json!(2), &json!(world.remote.head())));
    other.open(CANARY).await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.ready("demo").await;
    assert_eq!(world.status("demo")["objects"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_never_answers_delays_no_other_git_sync() {
    let mut world = World::new().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let knocked = Arc::new(tokio::sync::Notify::new());
    let heard = Arc::clone(&knocked);
    std::thread::spawn(move || {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            held.push(stream);
            heard.notify_one();
        }
    });
    world.set_secret("silent", json!({"value": plain(&format!("http://{address}"), "token: x")}));
    world.remote.file("own/a.yaml", config_map("a", "1")).file("own/b.yaml", config_map("b", "1"));
    world.remote.file("there/a.yaml", config_map("a", "2")).commit("one");
    let mut spec = to("silent");
    spec["baseDir"] = json!("there");
    world.sync("silent", spec);
    world.synced(json!({"baseDir": "own"})).await;
    knocked.notified().await;
    let begun = std::time::Instant::now();
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    world.until("it is reverted", |w| w.data("a") == "1").await;
    world.remote.remove("own/b.yaml");
    world.commit("demo", "two").await;
    world.until("what left is gone", |w| w.data("b") == "absent").await;
    assert!(begun.elapsed() < Duration::from_secs(10), "it waited for the other one: {:?}", begun.elapsed());
}

/// Returns a kubeconfig with these fields of its user.
fn plain(server: &str, user: &str) -> String {
    format!(
        "current-context: it\nclusters: [{{name: it, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: it, user: {{{user}}}}}]\n\
         contexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_cannot_be_used_is_refused_with_what_to_do() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", to("other"));
    world.start();
    world.condition_is("demo", "Ready", "False SecretNotFound: Secret other with the kubeconfig does not exist").await;
    world.set_secret("other", json!({"config": "x"}));
    let no_key =
        "False SpecInvalid: Secret other (spec.kubeConfig) has no key value or value.yaml; put the kubeconfig there";
    world.condition_is("demo", "Ready", no_key).await;
    let program = plain("https://192.0.2.1", "exec: {command: /bin/sh, args: [-c, 'touch /tmp/mainstay-was-here']}");
    world.set_secret("other", json!({"value.yaml": program}));
    let refused = "False SpecInvalid: Secret other (spec.kubeConfig) in value.yaml: users[0].user.exec: is not allowed";
    world.condition_is("demo", "Ready", refused).await;
    let other = Other::new().await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.ready("demo").await;
    assert_eq!((other.data("a"), world.data("a")), ("1".into(), "absent".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_another_cluster_are_shown_nowhere() {
    logs::keep();
    let (mut world, mut other) = applied(json!({"interval": "1s"})).await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY).replace("token:", "tokem:")}));
    world
        .condition_is(
            "demo",
            "Ready",
            "False SpecInvalid: Secret other (spec.kubeConfig) in value: users[0].user.tokem",
        )
        .await;
    world.set_secret("other", json!({"value": format!("a: [{CANARY}")}));
    world
        .condition_is("demo", "Ready", "False SpecInvalid: Secret other (spec.kubeConfig) in value: is not valid YAML")
        .await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.ready("demo").await;
    other.open("another-token").await;
    world.condition_is("demo", "Ready", "False ClusterUnavailable").await;
    canary::nothing_is_shown(&mut world, &[CANARY]).await;
    assert!(!other.inventories().iter().any(|map| map.to_string().contains(CANARY)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_leads_to_another_cluster_leaves_everything_in_the_first_one() {
    let (mut world, first) = applied(json!({})).await;
    let second = Other::new().await;
    world.set_secret("other", json!({"value": second.kubeconfig(CANARY)}));
    world.until("it is applied there", |_| second.data("a") == "1" && second.data("b") == "1").await;
    let system = second.server.object("v1", "namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    world.until("the status says so", |w| w.status("demo")["cluster"] == system).await;
    world.remote.remove("b.yaml");
    world.commit("demo", "two").await;
    world.until("what left is gone there", |_| second.data("b") == "absent").await;
    assert_eq!([first.data("a"), first.data("b")], ["1", "1"], "nothing is deleted where it was left");
    let said = std::iter::from_fn(|| world.messages.try_recv().ok()).map(|message| message.to_string());
    let said: Vec<_> = said.filter(|text| text.contains("are orphaned")).collect();
    assert!(said.len() == 1 && said[0].contains("its Secret now contains a different cluster"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_stay_without_an_owner_in_a_cluster_that_a_git_sync_leaves() {
    let (mut world, other) = worlds().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    let label = |w: &World| w.get("v1", "configmaps", "a").unwrap()["metadata"]["labels"][LABEL].clone();
    assert!(!label(&world).is_null());
    world.change("demo", to("other")).await;
    world.until("it is applied there", |_| other.data("a") == "1").await;
    world.ready("demo").await;
    assert_eq!((world.data("a"), label(&world)), ("1".into(), Value::Null));
    assert!(!other.label("a").is_null());
    world.change("demo", json!({"kubeConfig": null})).await;
    world.until("it is kept here again", |w| !label(w).is_null()).await;
    world.ready("demo").await;
    assert_eq!((other.data("a"), other.label("a")), ("1".into(), Value::Null));
    assert_eq!(world.status("demo")["cluster"], Value::Null);
    assert_eq!(other.inventories().len(), 0);
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    world.until("it is reverted", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_sync_that_is_deleted_lets_go_of_its_objects_or_takes_them_with_it() {
    let (mut world, other) = worlds().await;
    world.remote.file("stays/a.yaml", config_map("a", "1")).file("goes/b.yaml", config_map("b", "1"));
    let mut goes: Value = serde_json::from_str(&git_sync("goes", "goes")).unwrap();
    goes["metadata"]["namespace"] = json!(NAMESPACE);
    goes["spec"]["kubeConfig"] = to("other")["kubeConfig"].clone();
    world.remote.commit("one");
    world.create(SYNCS.0, SYNCS.1, NAMESPACE, goes);
    let mut stays = to("other");
    stays["baseDir"] = json!("stays");
    world.synced(stays).await;
    world.ready("goes").await;
    world.delete(SYNCS.0, SYNCS.1, "demo");
    world.delete(SYNCS.0, SYNCS.1, "goes");
    world.until("both are gone", |w| w.get(SYNCS.0, SYNCS.1, "goes").is_none() && other.inventories().is_empty()).await;
    assert_eq!((other.data("a"), other.label("a"), other.data("b")), ("1".into(), Value::Null, "absent".into()));
}

/// A GitSync whose remote cluster is lost can still be deleted.
async fn goes_without(lose: impl FnOnce(&mut Other)) {
    let (mut world, mut other) = worlds().await;
    world.remote.file("goes/b.yaml", config_map("b", "1")).commit("one");
    let mut goes: Value = serde_json::from_str(&git_sync("goes", "goes")).unwrap();
    goes["metadata"]["namespace"] = json!(NAMESPACE);
    goes["spec"]["kubeConfig"] = to("other")["kubeConfig"].clone();
    goes["spec"]["timeout"] = json!("2s");
    world.create(SYNCS.0, SYNCS.1, NAMESPACE, goes);
    world.start();
    world.ready("goes").await;
    lose(&mut other);
    world.delete(SYNCS.0, SYNCS.1, "goes");
    world.until("it is let go", |w| w.get(SYNCS.0, SYNCS.1, "goes").is_none()).await;
    assert_eq!(other.data("b"), "1");
    let said = async { while !world.messages.recv().await.unwrap().to_string().contains("are orphaned") {} };
    tokio::time::timeout(mainstay_testkit::PATIENCE, said).await.expect("what becomes of the objects is said");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_gone_for_ever_keeps_no_git_sync_from_being_deleted() {
    goes_without(Other::close).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_in_whose_place_everything_is_refused_keeps_no_git_sync_from_being_deleted() {
    let refusal = Fault { code: 503, message: "no backend".into(), times: 1_000_000, ..Fault::default() };
    goes_without(|other| other.server.faults().fail_next(refusal)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_whose_git_syncs_have_one_name_do_not_share_a_third_one() {
    let (world, other) = applied(json!({})).await;
    let mut second = World::new().await;
    second.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    second.remote.file("a.yaml", config_map("a", "9")).commit("one");
    second.sync("demo", to("other"));
    second.start();
    let home = world.server.object("v1", "namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    second.condition_is("demo", "Ready", "False OwnershipConflict: another GitSync mainstay-tests/demo").await;
    let said = second.condition("demo", "Ready");
    assert!(said.contains(home.as_str().unwrap()) && said.contains("give one of them a different name"), "{said}");
    assert_eq!(other.data("a"), "1");
    assert_eq!(other.inventories().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_leads_back_causes_no_conflict() {
    let mut world = World::new().await;
    let serving = world.server.embedded().serve(free_address(), Some(CANARY.to_owned())).await.unwrap();
    world.set_secret("self", json!({"value": serving.kubeconfig(Some(CANARY))}));
    world.remote.file("a/a.yaml", config_map("a", "1")).file("b/b.yaml", config_map("b", "1"));
    world.remote.file("both/a.yaml", config_map("a", "2")).file("both/c.yaml", config_map("c", "2")).commit("one");
    let through = |directory: &str| json!({"baseDir": directory, "kubeConfig": to("self")["kubeConfig"]});
    world.sync("there", through("b"));
    world.synced(json!({"baseDir": "a"})).await;
    world.ready("there").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    world.edit("v1", "configmaps", "b", json!({"data": {"key": "edited"}}));
    world.until("both are reverted", |w| w.data("a") == "1" && w.data("b") == "1").await;
    world.sync("both", through("both"));
    world.condition_is("both", "Ready", "False OwnershipConflict").await;
    assert_eq!((world.data("a"), world.data("c")), ("1".into(), "2".into()));
    // Changing from one connection to the other keeps the inventory.
    world.change("there", json!({"kubeConfig": null})).await;
    world.ready("there").await;
    assert!(!world.get("v1", "configmaps", "b").unwrap()["metadata"]["labels"][LABEL].is_null());
    assert_eq!(world.status("there")["cluster"], Value::Null);
}

/// Adds a namespace with the repository, and a GitSync in it.
fn tenant(world: &World, namespace: &str, spec: Value) {
    world.create(
        "v1",
        "namespaces",
        "",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
    );
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "repo", "namespace": namespace}, "spec": {"url": world.remote.path().display().to_string()},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", namespace, repository);
    let mut whole = json!({"gitRepository": "repo", "interval": "1h"});
    json_patch::merge(&mut whole, &spec);
    let metadata = json!({"name": "demo", "namespace": namespace});
    world.create(
        SYNCS.0,
        SYNCS.1,
        namespace,
        json!({"apiVersion": SYNCS.0, "kind": "GitSync", "metadata": metadata, "spec": whole}),
    );
}

fn secret(world: &World, namespace: &str, name: &str, kubeconfig: &str) {
    let metadata = json!({"name": name, "namespace": namespace});
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"value": kubeconfig}});
    world.create("v1", "secrets", namespace, secret);
}

fn ready_of(world: &World, namespace: &str) -> String {
    let sync = world.server.object(SYNCS.0, SYNCS.1, namespace, "demo").unwrap();
    mainstay_testkit::world::condition_of(&sync["status"], "Ready")
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_apply_to_clusters_of_their_own_and_know_nothing_of_each_other() {
    let (mut world, first, second) = (World::new().await, Other::new().await, Other::new().await);
    world.remote.file("one/a.yaml", config_map("a", "1")).file("two/a.yaml", config_map("a", "2"));
    // A namespace with another name: the remote cluster decides about permissions there.
    let in_default =
        |name: &str, value: &str| config_map(name, value).replace("metadata:\n", "metadata:\n  namespace: default\n");
    world.remote.file("one/d.yaml", in_default("d", "1")).file("two/d.yaml", in_default("d", "2")).commit("one");
    for (team, directory, other) in [("mainstay-tests-one", "one", &first), ("mainstay-tests-two", "two", &second)] {
        let mut spec = to("mine");
        spec["baseDir"] = json!(directory);
        tenant(&world, team, spec);
        secret(&world, team, "mine", &other.kubeconfig(CANARY));
    }
    world.start();
    let data = |other: &Other, namespace: &str, name: &str| {
        other
            .server
            .object("v1", "configmaps", namespace, name)
            .map(|map| map["data"]["key"].clone())
            .unwrap_or_default()
    };
    for (team, value, other) in [("mainstay-tests-one", "1", &first), ("mainstay-tests-two", "2", &second)] {
        world.until("it is ready", |w| ready_of(w, team).starts_with("True")).await;
        assert_eq!((data(other, team, "a"), data(other, "default", "d")), (json!(value), json!(value)));
    }
    assert_eq!(data(&first, "mainstay-tests-two", "a"), Value::Null);
    // A GitSync without its own connection does not get the connection of another namespace.
    let mut spec = to("mine");
    spec["baseDir"] = json!("one");
    tenant(&world, "mainstay-tests-three", spec);
    world
        .until("it is refused", |w| ready_of(w, "mainstay-tests-three").contains("does not exist in this namespace"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_secret_leads_to_no_address_inside_of_the_network() {
    let mut world = World::new().await;
    world.allow_networks = Vec::new();
    let knocked = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    knocked.set_nonblocking(true).unwrap();
    let address = knocked.local_addr().unwrap();
    for (team, server) in [
        ("mainstay-tests-one", format!("https://{address}")),
        ("mainstay-tests-two", format!("https://localhost:{}", address.port())),
        ("mainstay-tests-three", "https://169.254.169.254".to_owned()),
    ] {
        tenant(&world, team, to("mine"));
        secret(&world, team, "mine", &plain(&server, "token: x"));
    }
    world.start();
    for team in ["mainstay-tests-one", "mainstay-tests-two"] {
        let words = "to which the agent does not connect for this namespace";
        world.until("it is refused", |w| ready_of(w, team).contains(words)).await;
    }
    world
        .until("so are a machine's own credentials", |w| ready_of(w, "mainstay-tests-three").contains("link-local"))
        .await;
    assert!(knocked.accept().is_err(), "nobody has knocked");
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

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_let_go_of_where_they_are_when_their_git_sync_cannot_go_where_it_should() {
    let (mut world, other) = worlds().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    world.sync("there", to("other"));
    world.ready("there").await;
    world.change("demo", to("nobody")).await;
    world.condition_is("demo", "Ready", "False SecretNotFound: Secret nobody").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    world.until("it is kept where it is", |w| w.data("a") == "1").await;
    // In the order of `kubectl delete -f`: the Secret is deleted first.
    world.delete("v1", "secrets", "other");
    world.condition_is("there", "Ready", "False SecretNotFound: Secret other with the kubeconfig does not exist").await;
    other.edit("a", "edited");
    world.until("the last credentials do as long as the agent has them", |_| other.data("a") == "1").await;
    world.delete(SYNCS.0, SYNCS.1, "demo");
    world.delete(SYNCS.0, SYNCS.1, "there");
    let own = |w: &World| w.get("v1", "configmaps", "a").unwrap()["metadata"]["labels"][LABEL].clone();
    world.until("both have let go", |w| own(w).is_null() && other.label("a").is_null()).await;
    assert_eq!((world.data("a"), other.data("a")), ("1".into(), "1".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_secrets_that_lead_to_one_cluster_lead_to_the_same_objects() {
    let (world, other) = applied(json!({})).await;
    world.set_secret("again", json!({"value": other.kubeconfig(CANARY)}));
    world.sync("second", to("again"));
    world.condition_is("second", "Ready", "False OwnershipConflict").await;
    let failure = world.failure("second", "ConfigMap mainstay-tests/a");
    assert!(failure.contains("mainstay-tests/demo"), "{failure}");
    let before = other.server.object("v1", "configmaps", NAMESPACE, "a").unwrap()["metadata"].clone();
    world.change("demo", to("again")).await;
    world.ready("demo").await;
    let after = other.server.object("v1", "configmaps", NAMESPACE, "a").unwrap()["metadata"].clone();
    assert_eq!((&after["uid"], &after["labels"][LABEL]), (&before["uid"], &before["labels"][LABEL]));
    assert_eq!(after["resourceVersion"], before["resourceVersion"], "nothing was written");
    other.edit("a", "edited");
    world.until("it is reverted", |_| other.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_created_again_at_the_same_address_is_another_one() {
    let (mut world, mut other) = applied(json!({"interval": "1s"})).await;
    let kubeconfig = other.open_to_all().await;
    world.set_secret("other", json!({"value": kubeconfig}));
    world.ready("demo").await;
    other.close();
    world.condition_is("demo", "Ready", "False ClusterUnavailable").await;
    let first = world.status("demo")["cluster"].clone();
    other.server = Cluster::new(Options::default());
    other.server.start_controllers();
    assert_eq!(other.open_to_all().await, kubeconfig, "the Secret has nothing new to say");
    world.until("everything is applied again", |_| other.data("a") == "1" && other.data("b") == "1").await;
    world.ready("demo").await;
    assert_ne!(world.status("demo")["cluster"], first);
    world.remote.remove("b.yaml");
    world.commit("demo", "two").await;
    world.until("what left is gone", |_| other.data("b") == "absent").await;
}
