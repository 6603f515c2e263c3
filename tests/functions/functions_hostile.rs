//! Malicious and broken Functions, built and run by real processes. Each ends with its own reason and finds no data of
//! others.

use std::{fs, time::Duration};

use serde_json::json;

use mainstay_testkit::{
    functions::{DEPLOYMENTS, PODS, inline},
    git_server::GitServer,
    logs,
    machine::REGISTRY_PASSWORD,
    remote::{NAME, Remote},
    world::{NAMESPACE, World},
};

const NEVER: Duration = Duration::from_secs(3600);

/// Adds a Function in a directory of the repository, with one package that runs a script during installation.
fn package(remote: &mut Remote, name: &str, script: &str) {
    remote.file(&format!("{name}/handler.js"), format!("module.exports = {{ main: () => '{name}' }}"));
    remote.file(&format!("{name}/package.json"), r#"{"dependencies":{"guest":"file:./guest"}}"#);
    let package = json!({"name": "guest", "version": "1.0.0", "scripts": {"preinstall": script}});
    remote.file(&format!("{name}/guest/package.json"), package.to_string());
}

/// A script that searches its environment, the environments of its parent processes, and all files of the node for
/// words, and saves the names of the words that it finds. The words are written backwards, so that the script does not
/// find itself.
const HUNT: &str = r"
const fs = require('fs'), path = require('path');
const words = JSON.parse(fs.readFileSync('words.json', 'utf8'));
const found = new Set();
const look = (file) => {
  let text;
  try { text = file === '' ? JSON.stringify(process.env) : fs.readFileSync(file, 'latin1') } catch { return }
  for (const [name, drow] of Object.entries(words)) {
    const word = [...drow].reverse().join('');
    if (text.includes(word) || text.includes(Buffer.from(word).toString('base64'))) found.add(name);
  }
};
look('');
for (let pid = process.pid; pid > 1;) {
  look(`/proc/${pid}/environ`);
  look(`/proc/${pid}/cmdline`);
  pid = Number(fs.readFileSync(`/proc/${pid}/stat`, 'latin1').replace(/.*\)/s, '').trim().split(' ')[1]);
}
let top = process.cwd();
while (!fs.existsSync(path.join(top, 'containers'))) top = path.dirname(top);
const walk = (directory) => {
  for (const entry of fs.readdirSync(directory, { withFileTypes: true })) {
    const file = path.join(directory, entry.name);
    try { if (entry.isDirectory()) walk(file); else if (fs.statSync(file).size < 1 << 20) look(file) } catch {}
  }
};
walk(path.join(top, '..', '..', '..'));
fs.writeFileSync('found', [...found].sort().join(' '));
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_that_hunts_for_credentials_finds_only_those_of_package_registries() {
    logs::keep();
    let (git, packages) = ("the-word-for-git-7c1", "the-word-for-packages-7c1");
    let mut world = World::with_processes().await;
    let backwards = |word: &str| word.chars().rev().collect::<String>();
    let words = json!({
        "git": backwards(git), "packages": backwards(packages), "registry": backwards(REGISTRY_PASSWORD),
        "source": backwards("the-word-in-the-source-7c1"),
    });
    package(&mut world.remote, "hunter", "node hunt.js");
    let answer = "module.exports = { main: () => require('fs').readFileSync(require.resolve('guest/found'), 'utf8') }";
    world.remote.file("hunter/handler.js", format!("{answer} // the-word-in-the-source-7c1"));
    world.remote.file("hunter/guest/hunt.js", HUNT).file("hunter/guest/words.json", words.to_string()).commit("one");
    let server = GitServer::start(world.remote.root()).await;
    server.require("u", git);
    world.secret("git", json!({"username": "u", "password": git}));
    let config = json!({".npmrc": format!("//packages.example.org/:_authToken={packages}\n")});
    world.secret("serverless-package-registry-config", config);
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "private", "namespace": NAMESPACE},
        "spec": {"url": server.url(NAME), "auth": {"type": "basic", "secretName": "git"}},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", NAMESPACE, repository);
    world.start();
    world.git_function_of("private", "hunter", "/hunter");
    world.runs("hunter").await;
    // The script finds only the allowed words.
    world.answers("hunter", "200 packages source").await;

    // A build that fails because of the password does not reveal it either.
    server.require("u", "another one");
    world.remote.file("hunter/handler.js", "2").commit("two");
    world.look();
    world.says("hunter", "ConfigurationReady", "False GitAuthorizationFailed").await;
    for word in [git, packages, REGISTRY_PASSWORD] {
        let found = world.whereabouts(word);
        assert!(found.is_empty(), "{word} is in {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_that_forks_without_end_or_fills_the_disk_ends_its_own_build_only() {
    let mut world = World::with_node(|node| {
        node.tasks = 150;
        node.pod_disk = 64 << 20;
    })
    .await;
    world.functions.requeue = NEVER;
    package(&mut world.remote, "forks", "for i in $(seq 300); do sleep 1000 & done; wait");
    package(&mut world.remote, "fills", "dd if=/dev/zero of=zeros bs=1M count=200; sleep 1000");
    package(&mut world.remote, "guest", "true");
    world.remote.commit("one");
    world.start();
    for name in ["forks", "fills", "guest"] {
        world.git_function(name, &format!("/{name}"));
    }
    world.runs("guest").await;
    world.says("forks", "BuildReady", "False JobFailed").await;
    let said = world.said("forks", "BuildReady");
    assert!(said.contains("install ended") && said.contains("processes and threads, where 150 are allowed"), "{said}");
    world.says("fills", "BuildReady", "False JobFailed").await;
    let said = world.said("fills", "BuildReady");
    assert!(said.contains("Evicted: Pod ephemeral local storage usage exceeds the total limit"), "{said}");
    world.answers("guest", "200 guest").await;
    // The corrected Function is built.
    package(&mut world.remote, "fills", "true");
    world.remote.commit("two");
    world.look();
    world.runs("fills").await;
    world.answers("fills", "200 fills").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_package_that_hangs_is_ended_by_the_deadline_with_all_that_it_has_started() {
    let mut world = World::with_processes().await;
    world.functions.requeue = NEVER;
    world.functions.build_deadline = Duration::from_secs(8);
    package(&mut world.remote, "hangs", "setsid -f sleep 1000; sleep 1000");
    world.remote.commit("one");
    world.start();
    world.git_function("hangs", "/hangs");
    world.says("hangs", "BuildReady", "False JobFailed").await;
    let said = world.said("hangs", "BuildReady");
    assert!(said.contains("DeadlineExceeded"), "{said}");
    world.until_function("nothing runs any more", |w| w.machine().processes().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_of_a_function_are_reported_or_answered() {
    let mut world = World::with_processes().await;
    world.start();
    let ends = "module.exports = { main: (e) => e.extensions.request.path === '/end' ? process.exit(7) : 'here' }";
    let sources = [
        ("missing", "exports.other = () => 1"),
        ("throws", "exports.main = () => { throw new Error('on purpose') }"),
        ("waits", "exports.main = () => new Promise(() => {})"),
        ("ends", ends),
        ("dies", "process.exit(3)"),
        ("chatters", "setInterval(() => console.log('x'.repeat(4096)), 5); exports.main = () => 'here'"),
    ];
    for (name, source) in sources {
        let mut spec = inline(source);
        spec["env"] = json!([{"name": "FUNC_TIMEOUT", "value": "1"}]);
        world.function(name, spec);
    }
    world.function("snake", json!({"runtime": "python312", "source": "x = 1", "minReplicas": 1, "maxReplicas": 1}));
    for name in ["throws", "waits", "ends", "chatters"] {
        world.runs(name).await;
    }
    for (name, answer) in [("throws", "500 "), ("waits", "408 "), ("chatters", "200 here")] {
        let said = world.call(name).await;
        assert!(said.starts_with(answer), "{name}: {said}");
        assert!(world.is_running(name), "{name}: {}", world.said(name, "Running"));
    }
    assert!(!world.call("ends/end").await.starts_with("200"));
    world.answers("ends", "200 here").await;
    world.runs("ends").await;
    for (name, code, why) in [
        ("dies", 3, "the process ended with exit code 3 during it"),
        ("snake", 1, "the module 'handler' has no function 'main'"),
        ("missing", 1, "the module exports no function \"main\""),
    ] {
        let words = [
            format!("CrashLoopBackOff: container function: the function cannot be loaded: {why}"),
            format!("it ended with exit code {code}"),
        ];
        let told = |w: &World| {
            let said = w.said(name, "Running");
            said.starts_with("Unknown DeploymentWaiting") && words.iter().all(|words| said.contains(words))
        };
        world.until_function(&format!("{words:?}"), told).await;
        assert!(world.said(name, "BuildReady").starts_with("True"), "{}", world.said(name, "BuildReady"));
    }
    world.edit_function("dies", json!({"spec": {"source": "exports.main = () => 'mended'"}}));
    world.runs("dies").await;
    world.answers("dies", "200 mended").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maximum_sizes_are_built_and_similar_names_differ() {
    let mut world = World::with_processes().await;
    world.start();
    let code = "exports.main = () => `${process.env.LARGE.length} ${require('fs').statSync(__filename).size}`//";
    let mut large = inline(&format!("{code}{}", "x".repeat((1 << 20) - code.len() - "{}".len())));
    let value = "y".repeat(128 * 1024 - "LARGE=".len() - 1);
    large["env"] = json!([{"name": "LARGE", "value": value}]);
    world.function("large", large);
    for (namespace, name) in [("a-b", "c"), ("a", "b-c")] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        world.create("v1", "namespaces", "", object);
        world.registry_for(namespace, &world.machine().registry(), "mainstay", REGISTRY_PASSWORD);
        world.function_in(namespace, name, inline(&format!("exports.main = () => 'this is {namespace}'")));
    }
    world.answers_in("a-b", "c", "200 this is a-b").await;
    world.answers_in("a", "b-c", "200 this is a").await;
    world.runs("large").await;
    world.answers("large", &format!("200 {} {}", value.len(), (1 << 20) - "{}".len())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_loses_the_image_is_reported_until_the_next_build() {
    let mut world = World::with_processes().await;
    world.start();
    world.function("hello", inline("exports.main = () => 'here'"));
    world.runs("hello").await;
    world.answers("hello", "200 here").await;
    fs::remove_dir_all(world.machine().images().join("mainstay-tests_hello")).unwrap();
    let serving = |w: &World| {
        let pods = w.children("hello", PODS);
        let names = pods.iter().filter(|pod| pod["spec"]["restartPolicy"] == "Always");
        names.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = serving(&world);
    world.delete("v1", "pods", &before[0]);
    let cause = "ImagePullBackOff: container function: ";
    let told =
        |w: &World| w.said("hello", "Running").contains(cause) && w.said("hello", "Running").starts_with("Unknown");
    world.until_function("the cause", told).await;
    let version = world.function_now("hello").unwrap()["metadata"]["resourceVersion"].clone();
    // The node retries, which changes no status.
    let tries = world.server.objects("v1", "pods", Some(NAMESPACE)).len();
    world.quiet().await;
    assert_eq!(world.function_now("hello").unwrap()["metadata"]["resourceVersion"], version, "{tries}");
    world.edit_function("hello", json!({"metadata": {"annotations": {"mainstay.dev/rebuild": "1"}}}));
    world.runs("hello").await;
    world.answers("hello", "200 here").await;
    assert!(world.said("hello", "BuildReady").contains("REQUESTED"), "{}", world.said("hello", "BuildReady"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_is_rewritten_before_the_fetch_is_built_at_its_new_commit() {
    let mut world = World::with_processes().await;
    world.functions.git_interval = NEVER;
    world.functions.requeue = NEVER;
    world.functions.max_simultaneous_jobs = 1;
    let go = world.machine().node().with_file_name("go");
    package(&mut world.remote, "first", &format!("until [ -e '{}' ]; do sleep 0.05; done", go.display()));
    world.remote.file("moved/handler.js", "exports.main = () => 'one'").file("moved/package.json", "{}").commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("web", &server.url(NAME));
    let builds = world.builds();
    world.start();
    world.git_function("first", "/first");
    let fetched = |w: &World| {
        let pods = w.children("first", PODS);
        pods.iter().any(|pod| pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0)
    };
    world.until_function("the first has its source", fetched).await;
    world.git_function_of("web", "moved", "/moved");
    world.says("moved", "BuildReady", "Unknown JobQueued").await;
    // The recorded commit is gone when the build starts.
    server.speak_version_zero();
    let second = world.remote.file("moved/handler.js", "exports.main = () => 'two'").orphan("another history");
    fs::write(&go, "").unwrap();
    world.runs("moved").await;
    world.answers("moved", "200 two").await;
    assert_eq!(world.function_status("moved")["commit"], *second);
    let images = builds.all().into_keys().filter(|image| image.contains("mainstay-tests_moved:")).count();
    assert_eq!(images, 2, "the build has noticed it");
    assert_eq!(world.children("moved", DEPLOYMENTS).len(), 1);
}
