//! OCIRepositories: artifacts of a real registry are applied like commits.

use std::io::Write as _;
use std::time::Duration;

use flate2::{Compression, write::GzEncoder};
use mainstay_engine::notification::Message;
use mainstay_testkit::PATIENCE;
use mainstay_testkit::docker_registry::{DockerRegistry, PASSWORD, Served, USER};
use mainstay_testkit::listener::metrics;
use mainstay_testkit::webhooks::{client, listening, send};
use mainstay_testkit::world::{NAMESPACE, World, condition_of, config_map, free_address};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};
use tokio::net::{TcpListener, TcpStream};

const OURS: &str = "mainstay.dev/v1alpha1";
/// The media types of `flux push artifact`.
const CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
pub(super) const CONTENT: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A registry, and a client that pushes to it.
pub(super) struct Pushed {
    pub(super) registry: DockerRegistry,
    client: reqwest::Client,
}

impl Pushed {
    pub(super) async fn start(served: Served) -> Self {
        let registry = DockerRegistry::start(served).await;
        // Fails only if another test has installed the provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = reqwest::Client::builder().no_proxy();
        if served == Served::Safely {
            let authority = reqwest::Certificate::from_pem(registry.authority().as_bytes()).unwrap();
            client = client.tls_certs_only([authority]);
        }
        Self { client: client.build().unwrap(), registry }
    }

    pub(super) fn url(&self) -> String {
        format!("oci://{}/shop/web", self.registry.host())
    }

    pub(super) fn authority(&self) -> &str {
        self.registry.authority()
    }

    pub(super) async fn kill(&mut self) {
        self.registry.kill().await;
    }

    fn address(&self, path: &str) -> String {
        let scheme = if self.registry.authority().is_empty() { "http" } else { "https" };
        format!("{scheme}://{}/v2/shop/web/{path}", self.registry.host())
    }

    /// Pushes bytes. Returns their digest and size.
    pub(super) async fn blob(&self, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        let begun = self.client.post(self.address("blobs/uploads/")).basic_auth(USER, Some(PASSWORD));
        let begun = begun.send().await.unwrap().error_for_status().unwrap();
        let at = begun.headers()["location"].to_str().unwrap().to_owned();
        let mut at = begun.url().join(&at).unwrap();
        at.query_pairs_mut().append_pair("digest", &digest);
        let put = self.client.put(at).basic_auth(USER, Some(PASSWORD));
        put.body(bytes.to_vec()).send().await.unwrap().error_for_status().unwrap();
        json!({"digest": digest, "size": bytes.len()})
    }

    /// Pushes layers, each a media type and its bytes, under a tag. Returns the digest of the manifest.
    pub(super) async fn push(&self, tag: &str, layers: &[(&str, &[u8])]) -> String {
        let mut config = self.blob(b"{}").await;
        config["mediaType"] = CONFIG.into();
        let mut listed = Vec::new();
        for (media_type, bytes) in layers {
            let mut layer = self.blob(bytes).await;
            layer["mediaType"] = (*media_type).into();
            listed.push(layer);
        }
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": listed});
        self.put(tag, MANIFEST, &manifest).await
    }

    /// Pushes a manifest under a tag or its digest. Returns the digest.
    pub(super) async fn put(&self, reference: &str, media_type: &str, manifest: &Value) -> String {
        let manifest = manifest.to_string();
        let put = self.client.put(self.address(&format!("manifests/{reference}"))).basic_auth(USER, Some(PASSWORD));
        let put = put.header("content-type", media_type).body(manifest.clone());
        put.send().await.unwrap().error_for_status().unwrap();
        digest(manifest.as_bytes())
    }

    /// Returns the size of a manifest.
    pub(super) async fn size(&self, digest: &str) -> usize {
        let get = self.client.get(self.address(&format!("manifests/{digest}"))).basic_auth(USER, Some(PASSWORD));
        let sent = get.header("accept", MANIFEST).send().await.unwrap().error_for_status().unwrap();
        sent.bytes().await.unwrap().len()
    }

    /// Pushes an artifact with a ConfigMap `web` of this value.
    pub(super) async fn push_value(&self, tag: &str, value: &str) -> String {
        self.push(tag, &[(CONTENT, &packed(&[("web.yaml", config_map("web", value).as_bytes())]))]).await
    }
}

pub(super) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn entry(path: &str, kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size as u64);
    header.set_cksum();
    header
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// Returns an archive of these files.
pub(super) fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, content) in files {
        builder.append(&entry(path, EntryType::Regular, content.len()), *content).unwrap();
    }
    gzip(&builder.into_inner().unwrap())
}

/// Returns a world with the OCIRepository `web` of a registry without TLS, and a GitSync that follows it.
pub(super) async fn world(pushed: &Pushed, spec: Value) -> World {
    let mut world = World::new().await;
    let mut whole = json!({"url": pushed.url(), "insecure": true, "interval": "10s"});
    json_patch::merge(&mut whole, &spec);
    create(&world, whole);
    world.sync("web", json!({"gitRepository": null, "sourceRef": {"kind": "OCIRepository", "name": "web"}}));
    world.start();
    world
}

fn create(world: &World, spec: Value) {
    let object = json!({
        "apiVersion": OURS, "kind": "OCIRepository", "metadata": {"name": "web", "namespace": NAMESPACE}, "spec": spec,
    });
    world.create(OURS, "ocirepositories", NAMESPACE, object);
}

pub(super) fn status(world: &World) -> Value {
    world.get(OURS, "ocirepositories", "web").map_or(Value::Null, |live| live["status"].clone())
}

fn ready(world: &World) -> String {
    condition_of(&status(world), "Ready")
}

/// Waits until the OCIRepository is not ready for this reason.
pub(super) async fn refused(world: &World, part: &str) {
    world.until_or(part, |world| ready(world).contains(part), || format!("{}", status(world))).await;
}

/// Waits until the ConfigMap has this value.
pub(super) async fn applied(world: &World, value: &str) {
    let shown = || format!("{} {}", status(world), world.status("web"));
    world
        .until_or(value, |world| world.config_maps().contains(&"web".to_owned()) && world.data("web") == value, shown)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn applies_the_artifact_of_a_tag_and_follows_the_tag() {
    let pushed = Pushed::start(Served::Plainly).await;
    let first = pushed.push_value("latest", "one").await;
    let world = world(&pushed, json!({})).await;
    applied(&world, "one").await;
    world.condition_is("web", "Ready", "True").await;
    world.until("status", |world| status(world)["artifact"]["revision"] == format!("latest@{first}")).await;
    let artifact = status(&world)["artifact"].clone();
    assert_eq!(world.status("web")["appliedCommit"], artifact["commit"]);
    assert_eq!(world.status("web")["attemptedReference"], "refs/tags/latest");
    let second = pushed.push_value("latest", "two").await;
    applied(&world, "two").await;
    world.until("status", |world| status(world)["artifact"]["revision"] == format!("latest@{second}")).await;
    // The files that an artifact no longer has are pruned.
    pushed.push("latest", &[(CONTENT, &packed(&[("other.yaml", config_map("other", "x").as_bytes())]))]).await;
    world.until("pruned", |world| world.config_maps().contains(&"other".to_owned())).await;
    world.until("pruned", |world| !world.config_maps().contains(&"web".to_owned())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_requests_a_lookup() {
    let pushed = Pushed::start(Served::Plainly).await;
    pushed.push_value("latest", "one").await;
    let world = world(&pushed, json!({"interval": "1h"})).await;
    applied(&world, "one").await;
    for (annotation, value) in [("mainstay.dev/requestedAt", "two"), ("reconcile.fluxcd.io/requestedAt", "three")] {
        pushed.push_value("latest", value).await;
        let annotations = json!({"metadata": {"annotations": {annotation: value}}});
        world.edit(OURS, "ocirepositories", "web", annotations);
        applied(&world, value).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_of_an_object_that_is_gone_is_not_announced() {
    const STATUS: &str = "ocirepositories.mainstay.dev/status";
    let pushed = Pushed::start(Served::Plainly).await;
    pushed.push_value("latest", "one").await;
    let mut world = World::new().await;
    create(&world, json!({"url": pushed.url(), "insecure": true, "interval": "1h"}));
    // The server responds as if the object was deleted during the lookup.
    world.fail_next("patch", STATUS, "web", 404, 1);
    world.start();
    let is_written = |world: &World| world.requests().iter().any(|(what, _)| *what == format!("patch {STATUS}"));
    world.until("the status of the artifact is written", is_written).await;
    world.edit(OURS, "ocirepositories", "web", json!({"spec": {"ref": {"tag": "none"}}}));
    let first = async {
        loop {
            if let Message::Stage { status, message, .. } = world.messages.recv().await.unwrap() {
                return (status, message);
            }
        }
    };
    let (status, message) = tokio::time::timeout(PATIENCE, first).await.expect("a message comes");
    assert_eq!(status, "False", "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chooses_a_version_a_digest_a_layer_and_files() {
    let pushed = Pushed::start(Served::Plainly).await;
    let old = pushed.push_value("v1.0.0", "old").await;
    pushed.push_value("1.2.0", "range").await;
    pushed.push_value("1.3.0-rc.1", "candidate").await;
    pushed.push_value("2.0.0", "too new").await;
    let (chart, other) =
        (packed(&[("web.yaml", b"{")]), packed(&[("web.yaml", config_map("web", "layer").as_bytes())]));
    pushed.push("layers", &[("application/vnd.example.chart", &chart), (CONTENT, &other)]).await;
    let files = packed(&[("web.yaml", config_map("web", "files").as_bytes()), ("docs/bad.yaml", b"{")]);
    pushed.push("files", &[(CONTENT, &files)]).await;
    let world = world(&pushed, json!({"ref": {"semver": ">=1.0 <2"}})).await;
    applied(&world, "range").await;
    let change = |spec: Value| world.edit(OURS, "ocirepositories", "web", json!({"spec": spec}));
    change(json!({"ref": {"semver": ">=1.0.0-0 <2.0.0", "semverFilter": "-rc"}}));
    applied(&world, "candidate").await;
    change(json!({"ref": {"digest": old}}));
    applied(&world, "old").await;
    world.until("its digest", |world| ready(world).contains(&format!("stored artifact {old}"))).await;
    change(
        json!({"ref": {"digest": null, "semver": null, "semverFilter": null, "tag": "layers"}, "layerSelector": {"mediaType": CONTENT, "operation": "extract"}}),
    );
    applied(&world, "layer").await;
    change(json!({"ref": {"tag": "files"}, "layerSelector": null, "ignore": "docs/\n"}));
    applied(&world, "files").await;
    world.condition_is("web", "Ready", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_in_with_a_secret_of_its_own_and_no_other() {
    let pushed = Pushed::start(Served::Safely).await;
    pushed.push_value("latest", "private").await;
    let mut world = World::new().await;
    let encoded = |text: &str| {
        use base64::Engine as _;
        base64::prelude::BASE64_STANDARD.encode(text)
    };
    let login = |host: &str| {
        let auth = encoded(&format!("{USER}:{PASSWORD}"));
        json!({".dockerconfigjson": json!({"auths": {host: {"auth": auth}}}).to_string()})
    };
    world.set_secret("ca", json!({"ca.crt": pushed.registry.authority()}));
    create(&world, json!({"url": pushed.url(), "interval": "10s", "certSecretRef": {"name": "ca"}}));
    world.sync("web", json!({"gitRepository": null, "sourceRef": {"kind": "OCIRepository", "name": "web"}}));
    world.start();
    refused(&world, "to a request without credentials").await;
    world.until("no artifact", |world| world.condition("web", "Ready").contains("has no artifact")).await;
    let change = |spec: Value| world.edit(OURS, "ocirepositories", "web", json!({"spec": spec}));
    change(json!({"secretRef": {"name": "login"}}));
    refused(&world, "the Secret login does not exist").await;
    world.set_secret("login", login("other.example.org"));
    refused(&world, "has no login for 127.0.0.1").await;
    world.set_secret("login", login(&pushed.registry.host()));
    applied(&world, "private").await;
    // A Secret with another purpose is not sent to the address.
    world.set_secret("values", login(&pushed.registry.host()));
    world.sync("other", json!({"substituteFrom": [{"kind": "Secret", "name": "values"}]}));
    change(json!({"secretRef": {"name": "values"}}));
    refused(&world, "the variables or charts of a GitSync").await;
    assert!(!ready(&world).contains(PASSWORD));
    assert_eq!(world.data("web"), "private", "the last artifact stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_archives_and_layers_and_keeps_the_last_artifact() {
    let mut pushed = Pushed::start(Served::Plainly).await;
    pushed.push_value("good", "good").await;
    let archive = |path: &str, kind: EntryType| {
        let mut builder = Builder::new(Vec::new());
        builder.append(&entry(path, kind, 0), &b""[..]).unwrap();
        gzip(&builder.into_inner().unwrap())
    };
    let mut bomb = entry("a", EntryType::Directory, 200 << 20).as_bytes().to_vec();
    bomb.resize(200 << 20, 0);
    pushed.push("outside", &[(CONTENT, &archive("../web.yaml", EntryType::Regular))]).await;
    pushed.push("link", &[(CONTENT, &archive("web.yaml", EntryType::Symlink))]).await;
    pushed.push("bomb", &[(CONTENT, &gzip(&bomb))]).await;
    pushed.push("text", &[("text/plain", b"hello")]).await;
    pushed.push_value("changed", "changed").await;
    let world = world(&pushed, json!({"ref": {"tag": "good"}})).await;
    applied(&world, "good").await;
    let follow = |reference: Value| {
        let spec = json!({"ref": {"tag": null, "digest": null}});
        world.edit(OURS, "ocirepositories", "web", json!({"spec": spec}));
        world.edit(OURS, "ocirepositories", "web", json!({"spec": {"ref": reference}}));
    };
    for (tag, part) in [
        ("outside", "outside the artifact"),
        ("link", "is a link"),
        ("bomb", "the unpacked artifact in bytes is larger"),
        ("text", "it is not a tar file"),
        ("missing", "the registry has no tag missing"),
    ] {
        follow(json!({"tag": tag}));
        refused(&world, part).await;
    }
    follow(json!({"digest": format!("sha256:{}", "0".repeat(64))}));
    refused(&world, "404").await;
    // The registry serves other bytes under the digest of a layer.
    let layer = packed(&[("web.yaml", config_map("web", "changed").as_bytes())]);
    let named = digest(&layer);
    let blob = format!("docker/registry/v2/blobs/sha256/{}/{}/data", &named[7..9], &named[7..]);
    std::fs::write(pushed.registry.images().join(blob), vec![b'x'; layer.len()]).unwrap();
    follow(json!({"tag": "changed"}));
    refused(&world, "the layer was not read").await;
    world.edit(OURS, "ocirepositories", "web", json!({"spec": {"verify": {"provider": "cosign"}}}));
    refused(&world, "spec.verify.secretRef: is missing; name a Secret with public keys").await;
    assert!(condition_of(&status(&world), "Stalled").starts_with("True"));
    world.edit(OURS, "ocirepositories", "web", json!({"spec": {"verify": null}}));
    pushed.registry.kill().await;
    follow(json!({"tag": "good"}));
    refused(&world, "ArtifactFailed").await;
    assert_eq!(world.data("web"), "good");
    assert!(world.condition("web", "Ready").starts_with("True"), "{}", world.condition("web", "Ready"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applies_the_image_of_an_index() {
    const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    let pushed = Pushed::start(Served::Plainly).await;
    let mut members = Vec::new();
    for (tag, platform) in [("arm", "arm64"), ("intel", "amd64"), ("attestation", "unknown")] {
        let digest = pushed.push_value(tag, tag).await;
        let size = pushed.client.get(pushed.address(&format!("manifests/{digest}"))).header("accept", MANIFEST);
        let size = size.send().await.unwrap().bytes().await.unwrap().len();
        let os = if platform == "unknown" { "unknown" } else { "linux" };
        let platform = json!({"os": os, "architecture": platform});
        members.push(json!({"mediaType": MANIFEST, "digest": digest, "size": size, "platform": platform}));
    }
    let put = async |tag: &str, members: &[Value]| {
        pushed.put(tag, INDEX, &json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": members})).await
    };
    let index = put("latest", &members).await;
    let world = world(&pushed, json!({})).await;
    applied(&world, "intel").await;
    world.until("its digest", |world| status(world)["artifact"]["revision"] == format!("latest@{index}")).await;
    put("latest", &[members[0].clone(), members[2].clone()]).await;
    applied(&world, "arm").await;
    put("latest", &members[2..]).await;
    refused(&world, "none is for linux/amd64").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_keeps_the_last_artifact_while_the_registry_is_away() {
    let mut pushed = Pushed::start(Served::Plainly).await;
    pushed.push_value("latest", "one").await;
    let mut world = world(&pushed, json!({})).await;
    applied(&world, "one").await;
    world.condition_is("web", "Ready", "True").await;
    let commit = world.status("web")["appliedCommit"].clone();
    world.stop().await;
    pushed.registry.kill().await;
    world.edit("v1", "configmaps", "web", json!({"data": {"key": "changed"}}));
    world.start();
    refused(&world, "ArtifactFailed").await;
    applied(&world, "one").await;
    assert_eq!(status(&world)["artifact"]["commit"], commit, "{}", status(&world));
    // Another agent without these files deletes nothing.
    world.stop().await;
    for agent in std::fs::read_dir(world.disk()).unwrap() {
        std::fs::remove_dir_all(agent.unwrap().path()).unwrap();
    }
    world.start();
    world.until("no artifact", |world| world.condition("web", "Ready").contains("has no artifact")).await;
    assert_eq!(world.data("web"), "one");
    pushed.registry.restart().await;
    world.condition_is("web", "Ready", "True").await;
    assert_eq!((world.status("web")["appliedCommit"].clone(), world.data("web")), (commit, "one".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_of_the_registry_wakes_an_oci_repository() {
    let mut pushed = Pushed::start(Served::Plainly).await;
    pushed.push_value("latest", "one").await;
    let mut world = World::new().await;
    world.receive = Some(listening());
    world.set_secret("hook", json!({"token": "0123456789abcdef"}));
    world.receiver("hook", json!({"type": "generic"}));
    create(&world, json!({"url": pushed.url(), "insecure": true, "interval": "1h"}));
    world.sync("web", json!({"gitRepository": null, "sourceRef": {"kind": "OCIRepository", "name": "web"}}));
    world.start();
    applied(&world, "one").await;
    let url = world.receiver_url("hook").await;
    let (status, text) = send(client().post(&url)).await;
    assert_eq!((status, text.contains("OCIRepository web") && !text.contains("web/")), (200, true), "{text}");
    pushed.registry.notify(&url).await;
    pushed.push_value("latest", "two").await;
    applied(&world, "two").await;
    world.change_receiver("hook", json!({"repositories": ["other"]}));
    let is_narrow = |world: &World| {
        let live = world.get(OURS, "receivers", "hook").unwrap();
        live["status"]["observedGeneration"] == live["metadata"]["generation"]
    };
    world.until("the Receiver is read", is_narrow).await;
    assert!(send(client().post(&url)).await.1.starts_with("nothing to do"));
}

/// The GitSync looks the artifact up before it was read, as after a start of the agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_waits_for_the_first_read_of_its_artifact() {
    let pushed = Pushed::start(Served::Plainly).await;
    pushed.push_value("latest", "1").await;
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("oci://{}/shop/web", door.local_addr().unwrap());
    let mut world = World::new().await;
    world.listen = Some(free_address());
    create(&world, json!({"url": url, "insecure": true, "interval": "10s"}));
    world.sync("web", json!({"gitRepository": null, "sourceRef": {"kind": "OCIRepository", "name": "web"}}));
    world.start();
    let (mut held, _) = door.accept().await.unwrap();
    while !metrics(&world).await.lines().any(|line| line.starts_with("mainstay_git_lookups_total 1")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let registry = pushed.registry.host();
    tokio::spawn(async move {
        loop {
            let mut to = TcpStream::connect(&registry).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut held, &mut to).await });
            (held, _) = door.accept().await.unwrap();
        }
    });
    world.condition_is("web", "Ready", "True").await;
    let events = world.server.objects("v1", "events", Some(NAMESPACE));
    let failures =
        events.iter().filter(|event| event["type"] == "Warning" && event["involvedObject"]["kind"] == "GitSync");
    assert_eq!(failures.map(|event| event["message"].to_string()).collect::<Vec<_>>(), Vec::<String>::new());
}
