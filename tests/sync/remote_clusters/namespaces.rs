//! Tenants in several namespaces, each with a Secret of a remote cluster.

use super::*;

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
