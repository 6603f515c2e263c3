//! The registry that `mainstay install` brings: the agent makes its login, which Docker's registry lets in, builds push with it,
//! and nobody else is let in.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::process::Child;
use tokio::time::timeout;

use mainstay_testkit::{
    functions::{DEPLOYMENTS, inline},
    logs,
    registry::DockerRegistry,
    world::{NAMESPACE, World, free_address},
};

const ASKING: &str = "serverless-docker-registry";
const DEFAULT: &str = "serverless-registry-config-default";

/// What these tests do with a world.
trait LoginWorld {
    /// The Secret of `manifests/registry` that asks for a login, for a registry at this address.
    fn ask_for_login(&self, address: &str);
    /// The same for one whose address for builds is another one.
    fn ask_for_login_at(&self, push: &str, pull: &str);
    /// What a Secret has under a key, in base64; "absent" without it.
    fn stored(&self, secret: &str, key: &str) -> String;
    fn decoded(&self, secret: &str, key: &str) -> String;
}

impl LoginWorld for World {
    fn ask_for_login(&self, address: &str) {
        self.ask_for_login_at(address, address);
    }

    fn ask_for_login_at(&self, push: &str, pull: &str) {
        let text = include_str!("../../manifests/registry/registry.yaml");
        let mut secret = Value::deserialize(serde_yaml::Deserializer::from_str(text).next().unwrap()).unwrap();
        secret["metadata"]["namespace"] = NAMESPACE.into();
        for (annotation, address) in [("mainstay.dev/push-address", push), ("mainstay.dev/pull-address", pull)] {
            secret["metadata"]["annotations"][annotation] = address.into();
        }
        self.create("v1", "secrets", NAMESPACE, secret);
    }

    fn stored(&self, secret: &str, key: &str) -> String {
        let found = self.get("v1", "secrets", secret);
        found.and_then(|secret| Some(secret["data"][key].as_str()?.to_owned())).unwrap_or_else(|| "absent".to_owned())
    }

    fn decoded(&self, secret: &str, key: &str) -> String {
        use base64::prelude::{BASE64_STANDARD, Engine as _};
        String::from_utf8(BASE64_STANDARD.decode(self.stored(secret, key)).unwrap()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builds_push_to_dockers_registry_with_a_login_that_the_agent_has_made() {
    logs::keep();
    let mut world = World::with_processes().await;
    world.delete("v1", "secrets", DEFAULT);
    let address = free_address();
    world.ask_for_login(&address.to_string());
    world.start();
    world.until("a login", |w| w.stored(DEFAULT, ".dockerconfigjson") != "absent").await;
    let registry = DockerRegistry::letting_in(&world.decoded(ASKING, "htpasswd"), address).await;
    let (user, password) = (world.decoded(DEFAULT, "username"), world.decoded(DEFAULT, "password"));
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = || client.get(format!("http://{}/v2/", registry.host()));
    let status = async |request: reqwest::RequestBuilder| request.send().await.unwrap().status().as_u16();
    assert_eq!(status(ask()).await, 401);
    assert_eq!(status(ask().basic_auth(&user, Some("another"))).await, 401);
    assert_eq!(status(ask().basic_auth(&user, Some(&password))).await, 200);
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let image = world.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert!(image.as_str().unwrap().starts_with(&registry.host()), "{image}");
    let found = world.whereabouts(&password);
    assert!(found.is_empty(), "{found:?}");
}

/// Writes the files of the Secret, as a kubelet does.
fn mount(world: &World, directory: &Path) {
    for key in ["htpasswd", "tls.crt", "tls.key"] {
        std::fs::write(directory.join(key), world.decoded(ASKING, key)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builds_push_over_tls_and_the_registry_restarts_itself_for_its_next_certificate() {
    logs::keep();
    let mut world = World::with_processes().await;
    world.delete("v1", "secrets", DEFAULT);
    let address = free_address();
    world.ask_for_login_at(&format!("https://{address}"), &address.to_string());
    world.start();
    world.until("a certificate", |w| w.stored(DEFAULT, "ca.crt") != "absent").await;
    let files = tempfile::tempdir().unwrap();
    mount(&world, files.path());
    let mut registry = installed(files.path(), address).await;
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let image = world.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0]["image"].clone();
    assert!(image.as_str().unwrap().starts_with(&address.to_string()), "{image}");
    // As if the certificate had ended.
    let before = (world.stored(ASKING, "tls.crt"), world.stored(DEFAULT, "ca.crt"));
    world.edit("v1", "secrets", ASKING, json!({"data": {"tls.json": null}}));
    let next = "another certificate, whose authority builds know";
    world.until(next, |w| w.stored(ASKING, "tls.crt") != before.0 && w.stored(DEFAULT, "ca.crt") != before.1).await;
    mount(&world, files.path());
    let ended = timeout(Duration::from_secs(60), registry.wait()).await.expect("it ends by itself").unwrap();
    assert!(ended.success(), "{ended}");
    let mut registry = installed(files.path(), address).await;
    world.function("other", inline("2"));
    world.runs("other").await;
    let id = registry.id().unwrap().to_string();
    assert!(mainstay_testkit::isolated_async("kill").args(["-TERM", &id]).status().await.unwrap().success());
    timeout(Duration::from_secs(60), registry.wait()).await.expect("it ends when it is told to").unwrap();
    let found = world.whereabouts(&world.decoded(ASKING, "tls.key"));
    assert!(found.is_empty(), "{found:?}");
}

/// The registry as the container of `manifests/registry` runs it, with the files of its Secret in a directory.
async fn installed(files: &Path, address: SocketAddr) -> Child {
    let text = include_str!("../../manifests/registry/registry.yaml");
    let mut documents = serde_yaml::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap());
    let deployment = documents.find(|document| document["kind"] == "Deployment").unwrap();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let directory = files.display().to_string();
    let temporary = files.join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let placed = |text: &Value| {
        let text = text.as_str().unwrap().replace("/etc/registry/", &format!("{directory}/"));
        let text = text.replace("/tmp/tls.crt", &temporary.join("tls.crt").display().to_string());
        text.replace("/etc/docker/registry/config.yml", &format!("{directory}/config.yml"))
            .replace("sleep 10", "sleep 0.2")
    };
    // As in the image.
    std::fs::write(
        files.join("config.yml"),
        format!("version: 0.1\nstorage: {{filesystem: {{}}}}\nhttp: {{addr: {address}}}\n"),
    )
    .unwrap();
    let tool = mainstay_testkit::isolated_async("sh")
        .args(["-c", "command -v docker-registry"])
        .output()
        .await
        .unwrap()
        .stdout;
    let _ = std::os::unix::fs::symlink(String::from_utf8(tool).unwrap().trim(), files.join("registry"));
    let command: Vec<String> = container["command"].as_array().unwrap().iter().map(placed).collect();
    let env = container["env"].as_array().unwrap().iter();
    let env = env.map(|one| (one["name"].as_str().unwrap(), placed(&one["value"])));
    let mut process = mainstay_testkit::isolated_async(&command[0]);
    process.args(&command[1..]).env_clear().envs(env).kill_on_drop(true);
    process.env("REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY", files.join("images"));
    process.env("PATH", format!("{directory}:{}", std::env::var("PATH").unwrap()));
    let process = process.spawn().unwrap();
    let listens = async {
        while tokio::net::TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), listens).await.expect("it listens in time");
    process
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_made_once_and_the_secret_with_it_comes_back() {
    let mut world = World::new().await;
    world.ask_for_login("127.0.0.1:32137");
    world.start();
    world.until("a login", |w| w.stored(DEFAULT, "password") != "absent").await;
    let password = world.stored(DEFAULT, "password");
    assert_eq!(world.stored(ASKING, "password"), password);
    world.stop().await;
    world.start();
    world.delete("v1", "secrets", DEFAULT);
    world.until("it is back", |w| w.stored(DEFAULT, "password") == password).await;
    // Another login, by whoever runs the cluster.
    world.edit("v1", "secrets", ASKING, json!({"stringData": {"username": "me", "password": "mine"}}));
    world.until("it is taken over", |w| w.stored(DEFAULT, "password") == w.stored(ASKING, "password")).await;
    assert_eq!(world.decoded(DEFAULT, "password"), "mine");
    world.until("the registry lets it in", |w| w.decoded(ASKING, "htpasswd").starts_with("me:$2y$")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_secret_of_somebody_else_stays_as_it_is() {
    let mut world = World::new().await;
    world.registry_for(NAMESPACE, "registry.example.org", "theirs", "theirs");
    let before = world.get("v1", "secrets", DEFAULT).unwrap();
    world.ask_for_login("127.0.0.1:32137");
    world.start();
    world.until("a login", |w| w.stored(ASKING, "htpasswd") != "absent").await;
    world.quiet().await;
    assert_eq!(world.get("v1", "secrets", DEFAULT).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_keeps_changing_the_default_secret_is_answered_ever_less_often() {
    let mut world = World::new().await;
    // Copies follow each change, as they should.
    world.functions.excluded_namespaces.push("default".to_owned());
    world.ask_for_login("127.0.0.1:32137");
    world.start();
    world.until("a login", |w| w.stored(DEFAULT, "password") != "absent").await;
    let password = world.stored(DEFAULT, "password");
    let applies = |world: &World| {
        let requests = world.requests();
        requests.iter().filter(|(what, _)| what == "apply secrets").map(|(_, count)| *count).sum::<u64>()
    };
    let (before, began) = (applies(&world), std::time::Instant::now());
    for number in 0..60 {
        world.edit("v1", "secrets", DEFAULT, json!({"stringData": {"password": format!("changed-{number}")}}));
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    world.until("it is put back", |w| w.stored(DEFAULT, "password") == password).await;
    let put_back = applies(&world) - before;
    // The waits between are 1 s, 2 s, 4 s …
    let most = 1.0 + (1.0 + began.elapsed().as_secs_f64()).log2();
    assert!((1.0..=most).contains(&(put_back as f64)), "{put_back} writes for 60 changes in {:?}", began.elapsed());
}
