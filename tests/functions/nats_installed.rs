//! The NATS of `mainstay install --nats embedded`: its configuration with real servers, and the agent that makes their login
//! with the permissions of the installation.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::eventing_on_nats::kills::Kills;
use crate::eventing_on_nats::{Events, HOME, TYPE, own_sink};
use crate::permissions::{create_rights, with_permissions};
use mainstay_testkit::nats_server::{Installed, NatsServers};
use mainstay_testkit::world::World;

const NATS: &str = "mainstay-nats";

/// Returns the objects of an installation with this number of servers.
fn objects(servers: usize) -> Vec<Value> {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    command.args(["install", "--git-url=https://h/x", "--components=sync,eventing", "--nats=embedded"]);
    let output = command.arg(format!("--nats-replicas={servers}")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    serde_yaml::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap()).collect()
}

fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    objects.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name).unwrap()
}

/// Returns the data of the Secret, which the agent completes.
async fn secret(objects: &[Value]) -> BTreeMap<String, String> {
    let mut world = with_permissions(&["mainstay-applies"]);
    world.create("v1", "namespaces", "", json!({"metadata": {"name": HOME}}));
    create_rights(&world, find(objects, "Role", NATS).clone());
    create_rights(&world, find(objects, "RoleBinding", NATS).clone());
    world.create("v1", "secrets", HOME, find(objects, "Secret", NATS).clone());
    world.start();
    let stored = |world: &World| world.server.object("v1", "secrets", HOME, NATS);
    world
        .until("the Secret has a login", |world| stored(world).is_some_and(|s| s["data"]["tls.key"].is_string()))
        .await;
    // Another apply of the installation keeps the login.
    let before = stored(&world).unwrap();
    let apply = Action::Patch(Form::Apply, find(objects, "Secret", NATS).clone());
    world.write_as("kubectl", Call::new("v1", "secrets", HOME, NATS, apply));
    assert_eq!(stored(&world).unwrap()["data"], before["data"]);
    assert_eq!(world.gate.forbidden(), [""; 0]);
    world.stop().await;
    let data: BTreeMap<String, String> = serde_json::from_value(before["data"].clone()).unwrap();
    let text = |text: String| String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap();
    data.into_iter().map(|(key, value)| (key, text(value))).collect()
}

/// Returns the files of a mounted Secret, by its keys.
fn files(workload: &Value) -> Vec<(String, String)> {
    let volumes = workload["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let secret = volumes.iter().find(|volume| volume["secret"]["secretName"] == NATS).unwrap();
    let items = secret["secret"]["items"].as_array().unwrap();
    let text = |item: &Value, field: &str| item[field].as_str().unwrap().to_owned();
    items.iter().map(|item| (text(item, "key"), text(item, "path"))).collect()
}

/// Starts the servers of an installation, and returns the stopped process that keeps its events there.
async fn installed(servers: usize) -> Events {
    let objects = objects(servers);
    let set = find(&objects, "StatefulSet", NATS);
    assert_eq!(set["spec"]["replicas"], servers);
    let publisher = find(&objects, "Deployment", "mainstay-eventing-publisher");
    let address = &publisher["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"];
    assert_eq!(address.as_str().unwrap().split(',').count(), servers);
    let (of_servers, of_clients) = (files(set), files(publisher));
    assert!(of_clients.iter().all(|(key, _)| key != "tls.key"), "clients do not get the key of the servers");
    let nats = NatsServers::installed(&Installed {
        servers,
        configuration: find(&objects, "ConfigMap", NATS)["data"]["nats.conf"].as_str().unwrap(),
        secret: &secret(&objects).await,
        files: [&of_servers, &of_clients],
    });
    for (number, peers) in nats.peers().into_iter().enumerate() {
        let others = (0..servers).filter(|other| *other != number).map(|other| format!("{NATS}-{other}"));
        assert_eq!(peers, others.collect::<Vec<_>>(), "of server {number}");
    }
    let is_alone = servers == 1;
    for (interval, is_always) in nats.syncs() {
        assert!(is_always == is_alone && interval <= 120_000_000_000, "{interval} ns, always: {is_always}");
    }
    let mut events = Events::stopped_on(Some(nats)).await;
    events.arguments.push(format!("--nats-replicas={servers}"));
    events
}

async fn delivers(servers: usize) {
    let mut events = installed(servers).await;
    events.sink.start().await;
    events.start().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    assert_eq!(events.publish("one", TYPE, "data").await, 204);
    events.seen(1).await;
    assert_eq!(events.sink.bodies(), ["data"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_delivered_through_the_installed_server() {
    delivers(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_delivered_through_three_installed_servers() {
    delivers(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_events_survive_kills_of_processes_and_of_one_of_three_servers() {
    installed(3).await.survive(Kills { count: 20, between: 10..60, clients: 4 }).await;
}
