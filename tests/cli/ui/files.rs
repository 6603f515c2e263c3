//! The page of the files of a Function with code in Git.

use devcluster::{Cluster, Options};
use mainstay_testkit::{
    git_server::GitServer,
    program::Program,
    remote::NAME,
    world::{NAMESPACE, World},
};
use serde_json::{Value, json};

use super::{FUNCTIONS, HOSTILE, browser::Browser, condition, set_status};

const CODE: &str = "module.exports = { main: () => 'one' }\n";

/// Creates a Function with code in the GitRepository `web`.
fn function(world: &World, name: &str, spec: Value) {
    let mut whole = json!({"type": "git", "source": "web", "reference": "main", "baseDir": "f", "runtime": "nodejs22"});
    json_patch::merge(&mut whole, &spec);
    let function = json!({"apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": {"name": name}, "spec": whole});
    world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, function);
}

fn page(name: &str, file: &str) -> String {
    format!("/function/{NAMESPACE}/{name}/files?file={file}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_the_built_commit_are_listed_and_shown() {
    let mut world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    server.require("robot", "hunter2-canary");
    world.repository("web", &server.url(NAME));
    let auth = json!({"spec": {"auth": {"type": "basic", "secretName": "git"}}});
    world.edit(FUNCTIONS.0, "gitrepositories", "web", auth);
    world.remote.file("f/handler.js", CODE).file("f/hostile.txt", HOSTILE).file("other/secret.txt", "outside");
    let built = world.remote.commit("one");
    world.remote.file("f/handler.js", "later");
    world.remote.commit("two");
    function(&world, "web", json!({}));
    set_status(&world, FUNCTIONS, "web", &json!({"commit": built}));
    let program = Program::of(&world).await;
    // The server of the test is on this machine.
    program.set_dev_run(&world.remote.path());
    let browser = Browser::open(&program, &[]).await;

    let refused = browser.get(&page("web", "")).await.text;
    assert!(refused.contains("The Secret git does not exist in this namespace."), "{refused}");
    world.set_secret("git", json!({"username": "robot", "password": "hunter2-canary"}));
    let link = browser.get(&format!("/function/{NAMESPACE}/web")).await.text;
    assert!(link.contains("Files of this commit"), "{link}");
    let list = browser.get(&page("web", "")).await.text;
    for text in [&built[..12], "f/handler.js", "f/hostile.txt", "39 bytes"] {
        assert!(list.contains(text), "{text}: {list}");
    }
    assert!(!list.contains("other/secret.txt") && !list.contains("hunter2"), "{list}");
    let code = browser.get(&page("web", "f%2Fhandler.js")).await.text;
    assert!(code.contains("<span class=\"st\">'one'</span>") && !code.contains("later"), "{code}");
    let hostile = browser.get(&page("web", "f%2Fhostile.txt")).await.text;
    assert!(hostile.contains("&lt;script&gt;alert(1)") && !hostile.contains("<script>"), "{hostile}");
    for path in ["other%2Fsecret.txt", "f%2F..%2Fother%2Fsecret.txt", "%2Fetc%2Fpasswd", "f"] {
        let page = browser.get(&page("web", path)).await.text;
        assert!(page.contains("no such file") && !page.contains("outside"), "{path}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_on_a_disk_is_not_read_and_inline_code_has_no_files() {
    let mut world = World::new().await;
    world.remote.file("f/handler.js", CODE).commit("one");
    let path = world.remote.path().display().to_string();
    world.repository("web", &path);
    function(&world, "web", json!({}));
    function(&world, "inline", json!({"type": "inline", "source": CODE}));
    let program = Program::of(&world).await;
    let browser = Browser::open(&program, &[]).await;
    let refused = browser.get(&page("web", "f%2Fhandler.js")).await.text;
    assert!(refused.contains("The repository is a directory of"), "{refused}");
    let inline = browser.get(&page("inline", "")).await.text;
    assert!(inline.contains("is not in Git"), "{inline}");
    assert_eq!(browser.get(&page("none", "")).await.code, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_users_machine_gets_no_request() {
    let world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    let address = server.url(NAME);
    world.repository("web", &address);
    world.repository("named", &address.replace("127.0.0.1", "localhost"));
    function(&world, "web", json!({}));
    function(&world, "named", json!({"source": "named"}));
    let program = Program::of(&world).await;
    let browser = Browser::open(&program, &[]).await;
    for name in ["web", "named"] {
        let refused = browser.get(&page(name, "")).await.text;
        assert!(refused.contains("connections to this machine are refused"), "{refused}");
    }
    assert!(server.arrivals().is_empty(), "a request was sent");
}

/// A GitRepository at an address that a tenant chose, with a Secret that another object uses as a kubeconfig.
fn tempting(world: &World, url: &str) {
    world.repository("web", url);
    let auth = json!({"spec": {"auth": {"type": "basic", "secretName": "clusters"}}});
    world.edit(FUNCTIONS.0, "gitrepositories", "web", auth);
    world.set_secret("clusters", json!({"username": "robot", "password": "hunter2-canary"}));
    world.sync("far", json!({"kubeConfig": {"secretRef": {"name": "clusters"}}}));
    function(world, "web", json!({}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_with_another_purpose_is_not_sent_to_an_address_of_a_tenant() {
    let world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    tempting(&world, &server.url(NAME));
    let auth = json!({"type": "basic", "secretName": "clusters"});
    let own = |auth: &Value| json!({"source": "", "gitRepository": {"url": server.url(NAME), "auth": auth}});
    function(&world, "own", own(&auth));
    function(&world, "fresh", own(&json!({"type": "basic", "secretName": "login"})));
    world.set_secret("login", json!({"username": "robot", "password": "hunter2-canary"}));
    let program = Program::of(&world).await;
    let browser = Browser::open(&program, &[]).await;
    let refused = browser.get(&page("web", "")).await.text;
    assert!(refused.contains("The Secret clusters holds the credentials for another cluster"), "{refused}");
    for name in ["own", "fresh"] {
        let refused = browser.get(&page(name, "")).await.text;
        assert!(refused.contains("the agent has not read it for the current spec"), "{refused}");
    }
    // The agent refuses the Secret of `own`, so only a forged status says that it built the Function.
    let mut ready = condition("ConfigurationReady", "True", "SourceUpdated", "");
    ready["observedGeneration"] = json!(1);
    let status = json!({"commit": "a".repeat(40), "observedGeneration": 1, "conditions": [ready]});
    set_status(&world, FUNCTIONS, "own", &status);
    let refused = browser.get(&page("own", "")).await.text;
    assert!(refused.contains("The Secret clusters holds the credentials for another cluster"), "{refused}");
    assert!(server.arrivals().is_empty(), "a request was sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_sent_if_its_other_purposes_are_unknown() {
    let world = World::of(Cluster::new(Options { rbac: true, ..Options::default() }));
    let server = GitServer::start(world.remote.root()).await;
    tempting(&world, &server.url(NAME));
    let rbac = "rbac.authorization.k8s.io/v1";
    let verbs = ["get", "list", "watch"];
    // The role does not permit lists of GitSyncs. The GitSync uses the Secret.
    let role = json!({
        "apiVersion": rbac, "kind": "Role", "metadata": {"name": "reads"},
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": verbs},
            {"apiGroups": ["serverless.kyma-project.io"], "resources": ["*"], "verbs": verbs},
        ],
    });
    world.create(rbac, "roles", NAMESPACE, role);
    let binding = json!({
        "apiVersion": rbac, "kind": "RoleBinding", "metadata": {"name": "reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    world.create(rbac, "rolebindings", NAMESPACE, binding);
    let program = Program::of(&world).await;
    let alice = Browser::open(&program, &["--as", "alice", "-n", NAMESPACE]).await;
    let refused = alice.get(&page("web", "")).await.text;
    assert!(refused.contains("No Secret is sent to the repository") && refused.contains("GitSyncs"), "{refused}");
    assert!(server.arrivals().is_empty(), "a request was sent");
}
