//! The hostile inputs, each alone and then together.

use std::{
    io::{Read as _, Write as _},
    time::Duration,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use devcluster::{Action, Call, verbs::delete::DeleteOptions};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use mainstay_api::names::{INVENTORY_KEY, INVENTORY_LABEL, SYNC_LABEL};
use mainstay_engine::managed::inventory::{Entry, Inventory, uid_bytes};
use mainstay_object::{Digest, Key};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};

use super::{Envelope, HOSTILE, follow, lease::packs_beside_the_lease, packs, ready, repository};
use crate::artifacts::{CONTENT, Pushed, packed};
use crate::chart_sources::Repository;
use mainstay_testkit::{
    docker_registry::Served,
    git_server::{Fault, GitServer, On},
    limited_agent::LimitedAgent,
    remote::{NAME, Remote},
    world::{World, condition_of},
};

const A_WHILE: Duration = Duration::from_secs(4);
const FUNCTIONS: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "functions");

/// Clients of the listener open connections and send most of a request head on each.
fn half_sent_heads(agent: &LimitedAgent) -> JoinSet<()> {
    let (mut clients, address) = (JoinSet::new(), agent.listen);
    for _ in 0..300 {
        clients.spawn(async move {
            loop {
                let Ok(mut stream) = TcpStream::connect(address).await else { continue };
                let head = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(350 << 10));
                let _ = stream.write_all(head.as_bytes()).await;
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        });
    }
    clients
}

/// Returns a server's response with this pack, instead of the requested one.
pub(super) fn answer(pack: &[u8]) -> Vec<u8> {
    let mut answer = b"000dpackfile\n".to_vec();
    for piece in pack.chunks(60_000) {
        answer.extend(format!("{:04x}\x01", piece.len() + 5).bytes());
        answer.extend(piece);
    }
    answer.extend(b"0000");
    answer
}

/// Several repositories whose packs are bombs.
struct Packs {
    _servers: Vec<GitServer>,
    _remote: Remote,
}

const PACKS: usize = 4;

async fn expanding_packs(world: &World) -> Packs {
    let mut remote = Remote::new();
    remote.file("a.yaml", "").commit("one");
    let mut servers = Vec::new();
    let pack = answer(&packs::expanding(3));
    for number in 0..PACKS {
        // Each address has its own mirror.
        let server = GitServer::start(remote.root()).await;
        server.fail(On::Packs, Fault::Answer(pack.clone()));
        follow(world, HOSTILE, &format!("pack-{number}"), &server.url(NAME), json!({}));
        servers.push(server);
    }
    Packs { _servers: servers, _remote: remote }
}

fn packs_are_named(world: &World) -> bool {
    (0..PACKS).all(|number| ready(world, HOSTILE, &format!("pack-{number}")).contains("larger than"))
}

/// Adds files that need many times their size while they are parsed: `count` GitSyncs with one file each.
fn large_files(world: &World, count: usize) -> Remote {
    let mut remote = Remote::new();
    // The file contains no object, so that parsing it is useless.
    let document = format!("a:\n{}", "- 1\n".repeat(700_000));
    for number in 0..count {
        let text = format!("---\n{document}---\n{document}---\n{document}---\n{document}---\n{document}# {number}\n");
        remote.file(&format!("{number}/large.yaml"), text);
    }
    remote.commit("all");
    for number in 0..count {
        let spec = json!({"baseDir": format!("/{number}")});
        follow(world, HOSTILE, &format!("file-{number}"), &remote.path().display().to_string(), spec);
    }
    remote
}

const FILES: usize = 6;

fn files_are_named(world: &World) -> bool {
    (0..FILES).all(|number| {
        let ready = ready(world, HOSTILE, &format!("file-{number}"));
        ready.contains("ManifestInvalid") && ready.contains(&format!("{number}/large.yaml"))
    })
}

fn archive_of_60_mib(directory: &str) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    let files: Vec<(String, Vec<u8>)> = ["a", "b", "c", "d"]
        .map(|name| {
            let mut content = vec![0; 15 << 20];
            random.fill(&mut content);
            (format!("{directory}/{name}.bin"), content)
        })
        .into();
    packed(&files.iter().map(|(path, content)| (&**path, &**content)).collect::<Vec<_>>())
}

/// Adds an artifact of 60 MiB that cannot be compressed for each of several OCIRepositories, and GitSyncs that follow
/// them.
async fn large_artifacts(world: &World) -> Pushed {
    let pushed = Pushed::start(Served::Plainly).await;
    pushed.push("latest", &[(CONTENT, &archive_of_60_mib("web"))]).await;
    for number in 0..ARTIFACTS {
        let (version, name) = ("mainstay.dev/v1alpha1", format!("artifact-{number}"));
        let object = |kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": HOSTILE}, "spec": spec});
        let spec = json!({"url": pushed.url(), "insecure": true, "interval": "1h"});
        world.create(version, "ocirepositories", HOSTILE, object("OCIRepository", spec));
        let spec = json!({"sourceRef": {"kind": "OCIRepository", "name": name}, "interval": "1h"});
        world.create(version, "gitsyncs", HOSTILE, object("GitSync", spec));
    }
    pushed
}

/// Adds a chart of 60 MiB that cannot be compressed, with an index of 45 MiB, for each of several HelmCharts.
async fn large_charts(world: &World) -> (Repository, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("shop.tgz"), archive_of_60_mib("shop")).unwrap();
    let entry = |number: usize| {
        let version = format!("  - version: 1.0.{number}\n    urls: [shop.tgz]\n    created: {number:0>350}\n");
        version + "    description: |\n" + &format!("      {}\n", "x".repeat(80)).repeat(45)
    };
    let entries: String = (0..9_900).map(entry).collect();
    std::fs::write(directory.path().join("index.yaml"), format!("entries:\n  shop:\n{entries}")).unwrap();
    let repository = Repository::start(directory.path()).await;
    for number in 0..ARTIFACTS {
        let version = "mainstay.dev/v1alpha1";
        let metadata = json!({"name": format!("artifact-{number}"), "namespace": HOSTILE});
        let spec = json!({"repository": repository.url(), "name": "shop", "insecure": true, "interval": "10s", "timeout": "5m"});
        let object = json!({"apiVersion": version, "kind": "HelmChart", "metadata": metadata, "spec": spec});
        world.create(version, "helmcharts", HOSTILE, object);
    }
    (repository, directory)
}

const ARTIFACTS: usize = 4;

fn artifacts_are_read(world: &World, kind: &str) -> bool {
    (0..ARTIFACTS).all(|number| {
        let name = format!("artifact-{number}");
        let live = world.server.object("mainstay.dev/v1alpha1", kind, HOSTILE, &name);
        live.is_some_and(|live| condition_of(&live["status"], "Ready").starts_with("True"))
    })
}

/// Adds objects of 1 MB each for one GitSync.
fn fat_objects(world: &World, name: &str, count: usize) -> Remote {
    let mut remote = Remote::new();
    for number in 0..count {
        let filler = "0123456789".repeat(100_000);
        let text = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}-{number}}}\ndata: {{a: \"{filler}\"}}\n"
        );
        remote.file(&format!("{number}.yaml"), text);
    }
    remote.commit("all");
    follow(world, HOSTILE, name, &remote.path().display().to_string(), json!({}));
    remote
}

/// Adds more objects than the agent can keep.
fn many_objects(world: &World) -> Remote {
    fat_objects(world, "objects", 240)
}

fn objects_are_named(world: &World) -> bool {
    ready(world, HOSTILE, "objects").starts_with("False MemoryExhausted: ")
}

/// Adds a directory with very many files, deeply nested.
fn long_paths(world: &World) -> Remote {
    let mut remote = Remote::new();
    let blob = remote.blob(b"");
    let names: Vec<_> = (0..99_000).map(|number| format!("{number:05}.yaml")).collect();
    let entries: Vec<_> = names.iter().map(|name| ("100644", name.as_bytes(), blob)).collect();
    let mut tree = remote.tree_of(&entries);
    for _ in 0..15 {
        tree = remote.tree_of(&[("40000", "d".repeat(250).as_bytes(), tree)]);
    }
    remote.commit_tree(tree);
    for name in ["paths-0", "paths-1"] {
        follow(world, HOSTILE, name, &remote.path().display().to_string(), json!({}));
    }
    remote
}

fn paths_are_named(world: &World) -> bool {
    ["paths-0", "paths-1"].iter().all(|name| ready(world, HOSTILE, name).contains("paths"))
}

/// Adds Functions with the maximum amount of source.
fn functions(world: &World) {
    world.registry(HOSTILE, "registry.example.org");
    for number in 0..60 {
        let source = format!(
            "// {number}\n{}",
            (0..24_000)
                .map(|line| format!("const a{line} = '{:020x}';", line * 7919 + number))
                .collect::<Vec<_>>()
                .join("\n")
        );
        let function = json!({
            "apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": {"name": format!("fat-{number}"), "namespace": HOSTILE},
            "spec": {"runtime": "nodejs22", "source": &source[..1_000_000.min(source.len())]},
        });
        world.create(FUNCTIONS.0, FUNCTIONS.1, HOSTILE, function);
    }
}

/// Returns whether all Functions have a condition, and at least one is refused as too large.
fn functions_are_named(world: &World) -> bool {
    let all = world.server.objects(FUNCTIONS.0, FUNCTIONS.1, Some(HOSTILE));
    let said = |one: &Value| condition_of(&one["status"], "ConfigurationReady");
    all.iter().all(|one| said(one) != "absent") && all.iter().any(|one| said(one).contains("MiB"))
}

/// Whether each Function has its ConfigMap, or a condition that names the missing memory.
fn functions_are_answered(world: &World) -> bool {
    let all = world.server.objects(FUNCTIONS.0, FUNCTIONS.1, Some(HOSTILE));
    let said = |one: &Value| condition_of(&one["status"], "ConfigurationReady");
    all.iter().map(|one| said(one)).all(|said| said.starts_with("True") || said.contains("MiB"))
}

const RESOURCES: usize = 200;

/// Adds GitSyncs with maximal relevant annotations, and GitRepositories with maximal irrelevant annotations.
fn fat_resources(world: &World) {
    let text = "a".repeat(250 << 10);
    repository(world, HOSTILE, "long", &format!("https://example.org/{}", &text[..100 << 10]));
    for number in 0..RESOURCES {
        let (name, version) = (format!("fat-{number}"), "serverless.kyma-project.io/v1alpha1");
        let repository = json!({
            "apiVersion": version, "kind": "GitRepository",
            "metadata": {"name": name, "namespace": HOSTILE, "annotations": {"example.org/note": text}},
            "spec": {"url": "https://example.org/a.git"},
        });
        world.create(version, "gitrepositories", HOSTILE, repository);
        let version = "mainstay.dev/v1alpha1";
        let sync = json!({
            "apiVersion": version, "kind": "GitSync",
            "metadata": {"name": name, "namespace": HOSTILE, "annotations": {"mainstay.dev/requestedAt": text}},
            "spec": {"gitRepository": "long", "suspend": number > 0},
        });
        world.create(version, "gitsyncs", HOSTILE, sync);
    }
}

/// Returns whether each GitSync has a condition, and some report the lack of memory.
fn resources_are_named(world: &World) -> bool {
    let all = (0..RESOURCES).map(|number| ready(world, HOSTILE, &format!("fat-{number}"))).collect::<Vec<_>>();
    let is_refused = |ready: &&String| ready.contains("MemoryExhausted") && ready.contains("limits.memory");
    let long = ready(world, HOSTILE, "fat-0");
    all.iter().all(|ready| !ready.is_empty()) && all.iter().any(|one| is_refused(&one)) && long.contains("2 KiB")
}

/// Adds objects with maximal annotations, in the listed namespace and with the listed label.
fn fat_lists(world: &World) -> Remote {
    for number in 0..400 {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": format!("listed-{number}"), "namespace": HOSTILE,
                "labels": {SYNC_LABEL: format!("{HOSTILE}.lists")}, "annotations": {"a": "a".repeat(255 << 10)},
            },
        });
        world.create("v1", "configmaps", HOSTILE, object);
    }
    let mut remote = Remote::new();
    for name in ["list-a", "list-b", "list-c"] {
        remote.file(&format!("{name}.yaml"), mainstay_testkit::world::config_map(name, "1"));
    }
    remote.commit("all");
    follow(world, HOSTILE, "lists", &remote.path().display().to_string(), json!({}));
    remote
}

fn lists_are_read(world: &World) -> bool {
    ready(world, HOSTILE, "lists").starts_with("True")
}

/// Adds a forged inventory with an unrealistic number of objects.
fn forged_inventory(world: &World) -> Remote {
    let mut remote = Remote::new();
    for name in ["a", "b"] {
        remote.file(&format!("{name}.yaml"), mainstay_testkit::world::config_map(name, "1"));
    }
    remote.commit("all");
    follow(world, HOSTILE, "forged", &remote.path().display().to_string(), json!({"interval": "2s"}));
    let sync = world.server.object("mainstay.dev/v1alpha1", "gitsyncs", HOSTILE, "forged").unwrap();
    let entry = |number: usize| {
        let digest = Digest::of(&number.to_le_bytes());
        Entry {
            version: "v1".into(),
            uid: Some(uid_bytes(&format!("{number}"))),
            digest: Some(digest),
            ..Entry::default()
        }
    };
    let key = |number: usize| Key::new("", "ConfigMap", Some(HOSTILE), format!("settings-@@-{number:>0100}"));
    let inventory = Inventory((0..17_000).map(|number| (key(number), entry(number))).collect());
    let mut shard = Vec::new();
    GzDecoder::new(&*inventory.encode()[0].content).read_to_end(&mut shard).unwrap();
    let numbers = shard.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let names: Vec<_> = shard.windows(2).enumerate().filter(|(_, two)| *two == b"@@").map(|(at, _)| at).collect();
    for index in 0..64_u32 {
        shard[numbers..numbers + 4].copy_from_slice(&index.to_le_bytes());
        shard[numbers + 4..numbers + 8].copy_from_slice(&64_u32.to_le_bytes());
        for at in &names {
            shard[*at..at + 2].copy_from_slice(format!("{index:02}").as_bytes());
        }
        let mut content = GzEncoder::new(Vec::new(), Compression::fast());
        content.write_all(&shard).unwrap();
        let content = content.finish().unwrap();
        let name = format!("mainstay-inventory-forged-{index}");
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": HOSTILE, "labels": {INVENTORY_LABEL: format!("{HOSTILE}.forged")},
                "ownerReferences": [{
                    "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "name": "forged",
                    "uid": sync["metadata"]["uid"],
                }],
            },
            "binaryData": {INVENTORY_KEY: BASE64_STANDARD.encode(&content)},
        });
        world.create("v1", "configmaps", HOSTILE, map);
    }
    remote
}

fn inventory_is_named(_: &World, agent: &LimitedAgent) -> bool {
    agent.has_logged("forged")
}

/// One test runs all inputs in sequence. Each uses the whole machine for a while, and waiting tests would block others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_input_alone_nor_all_together_leave_the_envelope() {
    Box::pin(packs_beside_the_lease()).await;
    Box::pin(heads_that_are_never_complete()).await;
    Box::pin(packs_that_expand()).await;
    Box::pin(files_that_are_large_once_they_are_read()).await;
    Box::pin(more_objects_than_can_be_kept()).await;
    Box::pin(a_commit_that_waits_for_memory()).await;
    Box::pin(very_many_files_far_down()).await;
    Box::pin(artifacts_of_large_files()).await;
    Box::pin(charts_of_large_files()).await;
    Box::pin(functions_with_very_much_source()).await;
    Box::pin(resources_that_are_fat_themselves()).await;
    Box::pin(lists_of_fat_objects()).await;
    Box::pin(a_forged_inventory()).await;
    Box::pin(all_of_it_together()).await;
}

async fn heads_that_are_never_complete() {
    let mut envelope = Envelope::new().await;
    let _clients = half_sent_heads(&envelope.agent);
    envelope.during("heads", A_WHILE, |_, _| true).await;
    envelope.judge("half-sent heads");
}

async fn packs_that_expand() {
    let mut envelope = Envelope::new().await;
    let _packs = expanding_packs(&envelope.world).await;
    envelope.during("packs", A_WHILE, |world, _| packs_are_named(world)).await;
    envelope.judge("packs whose deltas expand");
}

async fn files_that_are_large_once_they_are_read() {
    let mut envelope = Envelope::new().await;
    let _remote = large_files(&envelope.world, FILES);
    envelope.during("files", A_WHILE, |world, _| files_are_named(world)).await;
    envelope.judge("files of 14 MiB of YAML");
}

async fn more_objects_than_can_be_kept() {
    let mut envelope = Envelope::new().await;
    let _remote = many_objects(&envelope.world);
    envelope.during("objects", A_WHILE, |world, _| objects_are_named(world)).await;
    envelope.judge("240 MiB of objects");
}

/// A commit without enough memory is applied once there is enough, even without a push and with a long interval.
async fn a_commit_that_waits_for_memory() {
    let mut envelope = Envelope::new().await;
    let world = &envelope.world;
    let _first = fat_objects(world, "first", 25);
    envelope.until_calmly("the first", |world| ready(world, HOSTILE, "first").starts_with("True")).await;
    let _second = fat_objects(&envelope.world, "second", 25);
    let waits = |world: &World| {
        let ready = ready(world, HOSTILE, "second");
        ready.starts_with("False MemoryExhausted") && ready.contains("MiB")
    };
    envelope.until_calmly("the second waits", waits).await;
    let deletion = Action::Delete(DeleteOptions::default());
    let first = Call::new("mainstay.dev/v1alpha1", "gitsyncs", HOSTILE, "first", deletion);
    envelope.world.try_as("kubectl", first).unwrap();
    let applied = |world: &World, _: &LimitedAgent| ready(world, HOSTILE, "second").starts_with("True");
    envelope.during("the first is gone", A_WHILE, applied).await;
    envelope.judge("two commits of 25 MB, one after the other");
}

async fn very_many_files_far_down() {
    let mut envelope = Envelope::new().await;
    let _remote = long_paths(&envelope.world);
    envelope.during("paths", A_WHILE, |world, _| paths_are_named(world)).await;
    envelope.judge("99 000 paths of 4 KiB");
}

async fn artifacts_of_large_files() {
    let mut envelope = Envelope::new().await;
    let _pushed = large_artifacts(&envelope.world).await;
    envelope.during("artifacts", A_WHILE, |world, _| artifacts_are_read(world, "ocirepositories")).await;
    envelope.judge("artifacts of four files of 15 MiB");
    // If libgit2 held ten objects to search for deltas, these would be about 150 MiB, which the container just holds.
    assert!(envelope.own <= 100, "{} MiB", envelope.own);
}

async fn charts_of_large_files() {
    let mut envelope = Envelope::new().await;
    let _charts = large_charts(&envelope.world).await;
    envelope.during("charts", A_WHILE, |world, _| artifacts_are_read(world, "helmcharts")).await;
    envelope.judge("charts of 60 MiB with an index of 45 MiB");
}

async fn functions_with_very_much_source() {
    let mut envelope = Envelope::new().await;
    functions(&envelope.world);
    envelope.during("Functions", A_WHILE, |world, _| functions_are_named(world)).await;
    envelope.judge("60 Functions of 1 MB");
}

async fn resources_that_are_fat_themselves() {
    let mut envelope = Envelope::new().await;
    fat_resources(&envelope.world);
    envelope.during("resources", A_WHILE, |world, _| resources_are_named(world)).await;
    envelope.judge("200 GitSyncs and GitRepositories with 250 KiB of annotations");
}

async fn lists_of_fat_objects() {
    let mut envelope = Envelope::new().await;
    let _remote = fat_lists(&envelope.world);
    envelope.during("lists", A_WHILE, |world, _| lists_are_read(world)).await;
    envelope.judge("400 objects with 255 KiB of annotations");
}

async fn a_forged_inventory() {
    let mut remote = None;
    let mut envelope = Envelope::after(|world| remote = Some(forged_inventory(world))).await;
    envelope.during("inventory", A_WHILE, inventory_is_named).await;
    envelope.judge("an inventory of 64 shards");
}

/// All inputs together. The input that fills the budget of kept objects comes last, so that the others have started.
async fn all_of_it_together() {
    let mut forged = None;
    let mut envelope = Envelope::after(|world| forged = Some(forged_inventory(world))).await;
    let _clients = half_sent_heads(&envelope.agent);
    let _packs = expanding_packs(&envelope.world).await;
    let world = &envelope.world;
    let _remotes = [fat_lists(world), long_paths(world), large_files(world, FILES), many_objects(world)];
    functions(world);
    let named = |world: &World, agent: &LimitedAgent| {
        let at_once = packs_are_named(world) && files_are_named(world) && paths_are_named(world);
        // The GitSync whose objects do not fit holds no memory, so the Functions may all fit.
        let kept = objects_are_named(world) && functions_are_answered(world);
        // The GitSync `lists` may be refused if its objects arrived when their namespace had no memory left.
        let lists = lists_are_read(world) || ready(world, HOSTILE, "lists").contains("MiB");
        at_once && kept && lists && inventory_is_named(world, agent)
    };
    envelope.during("all of it", A_WHILE, named).await;
    envelope.judge("all of it together");
}
