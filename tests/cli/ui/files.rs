//! The page of the files of a Function with code in Git.

use mainstay_testkit::{
    git_server::GitServer,
    program::Program,
    remote::NAME,
    world::{NAMESPACE, World},
};
use serde_json::{Value, json};

use super::{FUNCTIONS, HOSTILE, browser::Browser, set_status};

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
