//! GitSyncs with `spec.kubeConfig`: their objects are in another cluster, and everything about them happens there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use devcluster::verbs::{delete::DeleteOptions, patch::Form};
use devcluster::{Action, Call, Caller, Cluster, Options, Serving};
use serde_json::{Value, json};

use crate::support::canary;
use crate::support::logs;
use crate::support::ownership::LABEL;
use crate::support::world::{NAMESPACE, World, config_map, free_address, git_sync};

/// What opens the other cluster, and is shown nowhere.
const CANARY: &str = "canary-token-of-another-cluster";
const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");

/// Another cluster, on a socket.
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

    /// Serves it, with this token and a new certificate, where it was served before.
    async fn open(&mut self, token: &str) {
        self.serving = None;
        let end = tokio::time::Instant::now() + Duration::from_secs(10);
        // The port is free once the last connections have ended.
        let serving = loop {
            match self.server.serve(self.address, Some(token.to_owned())).await {
                Ok(serving) => break serving,
                Err(error) if tokio::time::Instant::now() > end => panic!("{error}"),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        self.serving = Some(serving);
    }

    /// Whoever knocks finds nobody.
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

    /// Requests so far, by `<verb> <resource>`, without watches.
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

/// A world and another cluster, which the Secret `other` leads to.
async fn worlds() -> (World, Other) {
    let (world, other) = (World::new().await, Other::new().await);
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    (world, other)
}

/// The same with the GitSync `demo`, which has applied `a` and `b` there.
async fn applied(spec: Value) -> (World, Other) {
    let (mut world, other) = worlds().await;
    world.remote.file("a.yaml", &config_map("a", "1")).file("b.yaml", &config_map("b", "1")).commit("one");
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
    world.until("it is put back", |_| other.data("a") == "1").await;
    other.call("b", Action::Delete(DeleteOptions::default()));
    world.until("it is created again", |_| other.data("b") == "1").await;
    world.remote.file("a.yaml", &config_map("a", "2")).remove("b.yaml");
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
