//! Repository addresses in a restricted namespace: the messages, and the absence of requests.

use serde_json::{Value, json};

use mainstay_testkit::{
    git_server::GitServer,
    remote::NAME,
    world::{World, condition_of, config_map},
};

const SHOP: &str = "mainstay-tests-shop";
const REPOSITORIES: &str = "serverless.kyma-project.io/v1alpha1";
const SYNCS: &str = "mainstay.dev/v1alpha1";
const REFUSED: &str = "the host is not found, or has an address of the cluster, of the machine or of a private network, which \
                       repositories of this namespace are not read from; the operator of the agent allows networks with --allow-network";

fn status(world: &World, api: &str, resource: &str, name: &str) -> Value {
    world.server.object(api, resource, SHOP, name).map(|object| object["status"].clone()).unwrap_or_default()
}

fn create(world: &World, api: &str, (kind, resource): (&str, &str), name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": SHOP});
    world.create(api, resource, SHOP, json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}));
}

/// Creates a world with a namespace besides the agent's, in which a GitSync and a Function follow this address.
async fn confined(url: &str) -> World {
    let mut world = World::with_functions().await;
    world.allow_networks.clear();
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}});
    world.create("v1", "namespaces", "", shop);
    world.registry(SHOP, "registry.example:5000");
    create(&world, REPOSITORIES, ("GitRepository", "gitrepositories"), "inside", json!({"url": url}));
    create(&world, SYNCS, ("GitSync", "gitsyncs"), "inside", json!({"gitRepository": "inside", "interval": "1h"}));
    let spec = json!({"runtime": "nodejs22", "type": "git", "source": "inside", "reference": "main", "baseDir": "/"});
    world.function_in(SHOP, "inside", spec);
    let own = json!({"runtime": "nodejs22", "type": "git", "source": "", "gitRepository": {"url": url}, "reference": "main", "baseDir": "/"});
    world.function_in(SHOP, "own", own);
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_and_a_function_of_a_tenant_do_not_have_an_internal_address_asked() {
    let mut origin = mainstay_testkit::remote::Remote::new();
    origin.file("a.yaml", config_map("inside", "1")).commit("one");
    let server = GitServer::start(origin.root()).await;
    let mut world = confined(&server.url(NAME).replace("127.0.0.1", "git.inside.example")).await;
    world.hosts = [("git.inside.example".to_owned(), "127.0.0.1:0".parse().unwrap())].into();
    world.start();
    let ready = |w: &World| condition_of(&status(w, SYNCS, "gitsyncs", "inside"), "Ready");
    world.until_or("the GitSync is refused", |w| ready(w).contains(REFUSED), || ready(&world)).await;
    for name in ["inside", "own"] {
        let configured = |w: &World| condition_of(&status(w, REPOSITORIES, "functions", name), "ConfigurationReady");
        world.until_or("the Function is refused", |w| configured(w).contains(REFUSED), || configured(&world)).await;
    }
    assert_eq!(server.take_counts().requests, 0, "{}", ready(&world));
    // In the agent's own namespace, only operators write addresses.
    world.repository("inside", &server.url(NAME));
    world.sync("inside", json!({"gitRepository": "inside"}));
    world.until("the agent's own namespace reads it", |w| w.get("v1", "configmaps", "inside").is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_in_the_address_of_a_repository_are_refused() {
    let mut world = World::new().await;
    world.repository("open", "https://robot:horse-tupelo@git.example.com/shop.git");
    world.sync("open", json!({"gitRepository": "open"}));
    world.start();
    world.condition_is("open", "Ready", "False").await;
    world
        .until("it is said where they belong", |w| w.condition("open", "Ready").contains("name it in spec.auth"))
        .await;
    assert!(!world.status("open").to_string().contains("tupelo"));
}
