//! A real Gitea: repositories over HTTPS and SSH, webhooks, commit statuses and packages.

use std::net::SocketAddr;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use mainstay_testkit::listener::metrics_are;
use mainstay_testkit::ssh_server::generate;
use mainstay_testkit::tls::{Pair, PrivateCa};
use mainstay_testkit::webhooks::listening;
use mainstay_testkit::world::{NAMESPACE, World, config_map, free_address};
use mainstay_testkit::{PATIENCE, isolated};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;

use super::sources::{OURS, applied, change, create, packed, push_artifact, push_chart, says, world};
use super::{built, run, serve};

const GIT: &str = "serverless.kyma-project.io/v1alpha1";
const USER: &str = "shop";
const PASSWORD: &str = "sesame-5f2-of-enough-bytes";
/// The token of webhooks.
const HOOK: &str = "token-of-enough-bytes-for-a-hook";

/// A Gitea with the private repository `shop/web`. It uses TLS with a private CA.
struct Gitea {
    directory: TempDir,
    address: SocketAddr,
    ssh: SocketAddr,
    ca: PrivateCa,
    client: reqwest::Client,
    _server: Child,
}

impl Gitea {
    async fn start() -> Self {
        let (directory, address, ssh) = (tempfile::tempdir().unwrap(), free_address(), free_address());
        let ca = PrivateCa::new();
        let Pair { certificate, key } = ca.issue("127.0.0.1");
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("ca.pem"), ca.pem()).unwrap();
        std::fs::write(path("server.pem"), certificate).unwrap();
        std::fs::write(path("key.pem"), key).unwrap();
        let configuration = configuration(&directory, address, ssh);
        std::fs::write(path("app.ini"), configuration).unwrap();
        let gitea = |arguments: &[&str]| {
            let mut command = isolated(built("gitea"));
            command.args(arguments).arg("--config").arg(path("app.ini"));
            command
        };
        run(&mut gitea(&["migrate"]));
        // The built-in host key of Gitea has 4096 bits of RSA, which take seconds.
        generate(&path("host"), "ed25519", &[]);
        let login = ["--username", USER, "--password", PASSWORD, "--email", "shop@example.org"];
        let create = ["admin", "user", "create", "--admin", "--must-change-password=false"];
        run(&mut gitea(&[&create[..], &login[..]].concat()));
        let server = serve(gitea(&["web"]), &path("log"), address).await;
        let authority = reqwest::Certificate::from_pem(ca.pem().as_bytes()).unwrap();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([authority]).build().unwrap();
        let gitea = Self { directory, address, ssh, ca, client, _server: server };
        gitea.post("user/repos", json!({"name": "web", "private": true})).await;
        gitea
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}/{path}", self.address)
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Value {
        let response = request.basic_auth(USER, Some(PASSWORD)).send().await.unwrap();
        let (status, url) = (response.status(), response.url().clone());
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{url}: {status} {text}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    async fn get(&self, path: &str) -> Value {
        self.send(self.client.get(self.url(&format!("api/v1/{path}")))).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.client.post(self.url(&format!("api/v1/{path}")));
        self.send(request.header("content-type", "application/json").body(body.to_string())).await
    }

    /// Pushes the branch `main` of the world's repository, as a developer does.
    fn push(&self, world: &World) {
        let url = format!("https://{USER}:{PASSWORD}@{}/shop/web.git", self.address);
        let authority = format!("http.sslCAInfo={}", self.directory.path().join("ca.pem").display());
        let mut git = isolated("git");
        run(git.args(["-c", &authority, "push", "--quiet", &url, "main"]).current_dir(world.remote.path()));
    }

    /// Registers a new deploy key that may read. Returns the private key.
    async fn deploy_key(&self) -> String {
        let path = self.directory.path().join("deploy");
        generate(&path, "ed25519", &[]);
        let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
        self.post("repos/shop/web/keys", json!({"title": "agent", "key": public, "read_only": true})).await;
        std::fs::read_to_string(path).unwrap()
    }

    /// Returns the line of `ssh-keyscan`.
    fn known_hosts(&self) -> String {
        let public = std::fs::read_to_string(self.directory.path().join("host.pub")).unwrap();
        format!("[127.0.0.1]:{} {public}", self.ssh.port())
    }

    /// Adds a webhook for pushes.
    async fn hook(&self, url: &str, token: &str) {
        let config = json!({"url": url, "content_type": "json", "secret": token});
        let hook = json!({"type": "gitea", "active": true, "events": ["push"], "config": config});
        self.post("repos/shop/web/hooks", hook).await;
    }

    /// Waits until a commit has a status. Returns it.
    async fn status(&self, commit: &str, state: &str) -> Value {
        let found = |all: &[Value]| all.iter().find(|status| status["status"] == state).cloned();
        self.until(&format!("repos/shop/web/commits/{commit}/statuses"), state, found).await
    }

    /// Waits until a comment of a pull request is about a commit. Returns all of its comments.
    async fn comment(&self, comments: &str, commit: &str) -> Vec<Value> {
        let is_about = |comment: &Value| comment["body"].as_str().is_some_and(|body| body.contains(commit));
        self.until(comments, commit, |all| all.iter().any(is_about).then(|| all.to_vec())).await
    }

    /// Lists until `found` returns a value.
    async fn until<T>(&self, list: &str, what: &str, found: impl Fn(&[Value]) -> Option<T>) -> T {
        let listed = async {
            loop {
                let all = self.get(list).await;
                if let Some(found) = all.as_array().and_then(|all| found(all)) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, listed).await.unwrap_or_else(|_| panic!("{list} has no {what}"))
    }

    /// Creates the GitRepository `web` over HTTPS, with its Secret `password`, and the GitSync `demo`, which follows it.
    fn followed_by(&self, world: &World) {
        world.set_secret("password", json!({"username": USER, "password": PASSWORD, "ca.crt": self.ca.pem()}));
        repository(world, "web", &self.url("shop/web.git"), "basic", "password");
        world.sync("demo", json!({"gitRepository": "web", "interval": "10m"}));
    }
}

fn configuration(directory: &TempDir, address: SocketAddr, ssh: SocketAddr) -> String {
    let directory = directory.path().display();
    let files = built("gitea-files");
    format!(
        "WORK_PATH = {directory}\n\
         I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true\n\
         [server]\n\
         PROTOCOL = https\n\
         HTTP_ADDR = 127.0.0.1\n\
         HTTP_PORT = {}\n\
         ROOT_URL = https://{address}/\n\
         CERT_FILE = {directory}/server.pem\n\
         KEY_FILE = {directory}/key.pem\n\
         STATIC_ROOT_PATH = {}\n\
         START_SSH_SERVER = true\n\
         BUILTIN_SSH_SERVER_USER = git\n\
         SSH_DOMAIN = 127.0.0.1\n\
         SSH_LISTEN_HOST = 127.0.0.1\n\
         SSH_PORT = {}\n\
         SSH_SERVER_HOST_KEYS = {directory}/host\n\
         OFFLINE_MODE = true\n\
         [database]\n\
         DB_TYPE = sqlite3\n\
         [security]\n\
         INSTALL_LOCK = true\n\
         [service]\n\
         REQUIRE_SIGNIN_VIEW = true\n\
         [webhook]\n\
         ALLOWED_HOST_LIST = loopback\n\
         [log]\n\
         LEVEL = warn\n",
        address.port(),
        files.display(),
        ssh.port()
    )
}

/// Creates a GitRepository with credentials.
fn repository(world: &World, name: &str, url: &str, kind: &str, secret: &str) {
    let spec = json!({"url": url, "auth": {"type": kind, "secretName": secret}});
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let object = json!({"apiVersion": GIT, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(GIT, "gitrepositories", NAMESPACE, object);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_repository_is_read_with_a_password_and_with_a_deploy_key() {
    let gitea = Gitea::start().await;
    let mut world = World::new().await;
    for name in ["https", "ssh"] {
        world.remote.file(&format!("{name}/map.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    gitea.push(&world);
    let key = gitea.deploy_key().await;
    world.set_secret("https", json!({"username": USER, "password": "wrong", "ca.crt": gitea.ca.pem()}));
    world.set_secret("ssh", json!({"key": key, "known_hosts": gitea.known_hosts()}));
    repository(&world, "https", &gitea.url("shop/web.git"), "basic", "https");
    repository(&world, "ssh", &format!("ssh://git@{}/shop/web.git", gitea.ssh), "key", "ssh");
    for name in ["https", "ssh"] {
        world.sync(name, json!({"gitRepository": name, "baseDir": format!("/{name}")}));
    }
    world.start();
    world.condition_is("https", "Ready", "False GitAuthorizationFailed").await;
    world.set_secret("https", json!({"password": PASSWORD}));
    for name in ["https", "ssh"] {
        world.ready(name).await;
        assert_eq!(world.data(name), "1");
    }
    for name in ["https", "ssh"] {
        world.remote.file(&format!("{name}/map.yaml"), config_map(name, "2"));
    }
    world.remote.commit("two");
    gitea.push(&world);
    for name in ["https", "ssh"] {
        world.ask(name).await;
        world.ready(name).await;
        assert_eq!(world.data(name), "2");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_is_applied_by_a_webhook_and_one_with_another_token_is_refused() {
    let gitea = Gitea::start().await;
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world.receive = Some(listening());
    world.functions.git_interval = Duration::from_secs(600);
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    gitea.push(&world);
    world.set_secret("hook", json!({"token": HOOK}));
    world.receiver("hook", json!({"type": "gitea"}));
    gitea.followed_by(&world);
    world.start();
    world.ready("demo").await;
    let url = world.receiver_url("hook").await;
    gitea.hook(&url, HOOK).await;
    gitea.hook(&url, "another-token-of-enough-bytes").await;
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    gitea.push(&world);
    // The GitSync polls every ten minutes only.
    world.until("the push is applied", |w| w.data("a") == "2").await;
    world.ready("demo").await;
    // Gitea may deliver a push more than once.
    let counted = |text: &str, outcome: &str| {
        let begin = format!("mainstay_receiver_deliveries_total{{type=\"gitea\",outcome=\"{outcome}\"}} ");
        text.lines().any(|line| line.strip_prefix(&begin).is_some_and(|count| count != "0"))
    };
    metrics_are(&world, "both are counted", |text| counted(text, "woken") && counted(text, "refused")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_has_the_status_success_or_failure() {
    let gitea = Gitea::start().await;
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    let first = world.remote.commit("one");
    gitea.push(&world);
    let token = gitea.post("users/shop/tokens", json!({"name": "agent", "scopes": ["write:repository"]})).await;
    world.set_secret("token", json!({"token": token["sha1"]}));
    world.set_secret("ca", json!({"ca.crt": gitea.ca.pem()}));
    let spec = json!({
        "type": "gitea", "address": gitea.url("shop/web"), "secretRef": {"name": "token"}, "certSecretRef": {"name": "ca"},
    });
    create(&world, "Provider", "tick", spec);
    let demo = json!([{"kind": "GitSync", "name": "demo"}]);
    create(&world, "Alert", "tick", json!({"providerRef": {"name": "tick"}, "eventSources": demo}));
    gitea.followed_by(&world);
    world.start();
    world.ready("demo").await;
    let success = gitea.status(&first, "success").await;
    assert!(success["context"].as_str().unwrap().starts_with("gitsync/demo/"), "{success}");
    let broken = world.remote.file("a.yaml", "kind: [").commit("broken");
    gitea.push(&world);
    world.ask("demo").await;
    let failure = gitea.status(&broken, "failure").await;
    assert_eq!(failure["context"], success["context"], "{failure}");
    assert!(failure["description"].as_str().unwrap().starts_with("failed at commit "), "{failure}");
    says(&world, ("Provider", "tick"), "Ready", "True Sending", "127.0.0.1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_request_has_one_comment_with_the_newest_state() {
    let gitea = Gitea::start().await;
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    let first = world.remote.commit("one");
    gitea.push(&world);
    // Gitea notices the first push later.
    gitea.until("repos/shop/web/branches", "branch", |all| (!all.is_empty()).then_some(())).await;
    let branch = json!({"new_branch_name": "preview", "old_branch_name": "main"});
    gitea.post("repos/shop/web/branches", branch).await;
    let content = BASE64_STANDARD.encode(config_map("b", "1"));
    gitea.post("repos/shop/web/contents/b.yaml", json!({"branch": "preview", "content": content})).await;
    let pull = json!({"head": "preview", "base": "main", "title": "A preview"});
    let number = gitea.post("repos/shop/web/pulls", pull).await["number"].as_u64().unwrap();
    let comments = format!("repos/shop/web/issues/{number}/comments");
    gitea.post(&comments, json!({"body": "of a person"})).await;

    let scopes = ["read:user", "write:issue"];
    let token = gitea.post("users/shop/tokens", json!({"name": "agent", "scopes": scopes})).await;
    world.set_secret("token", json!({"token": token["sha1"]}));
    world.set_secret("ca", json!({"ca.crt": gitea.ca.pem()}));
    let spec = json!({
        "type": "giteapullrequestcomment", "address": gitea.url("shop/web"), "secretRef": {"name": "token"},
        "certSecretRef": {"name": "ca"},
    });
    create(&world, "Provider", "pulls", spec);
    let demo = json!([{"kind": "GitSync", "name": "demo"}]);
    create(&world, "Alert", "pulls", json!({"providerRef": {"name": "pulls"}, "eventSources": demo}));
    gitea.followed_by(&world);
    let annotation = json!({"event.toolkit.fluxcd.io/change_request": number.to_string()});
    world.edit(OURS, "gitsyncs", "demo", json!({"metadata": {"annotations": annotation}}));
    world.start();
    world.ready("demo").await;
    let created = gitea.comment(&comments, &first).await;
    let second = world.remote.file("a.yaml", "kind: [").commit("broken");
    gitea.push(&world);
    world.ask("demo").await;
    let edited = gitea.comment(&comments, &second).await;
    assert_eq!((created.len(), edited.len()), (2, 2), "{edited:?}");
    assert_eq!((&edited[0]["body"], &edited[1]["id"]), (&json!("of a person"), &created[1]["id"]), "{edited:?}");
    says(&world, ("Provider", "pulls"), "Ready", "True Sending", "127.0.0.1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifacts_and_charts_are_read_from_its_package_registry_with_a_login() {
    let gitea = Gitea::start().await;
    let authority = gitea.directory.path().join("ca.pem").display().to_string();
    let login = ["--ca-file", &authority, "--username", USER, "--password", PASSWORD];
    let host = gitea.address;
    push_artifact(&format!("{host}/shop/web:latest"), "artifact", &login);
    let spec = json!({"url": format!("oci://{host}/shop/web"), "interval": "10s", "certSecretRef": {"name": "ca"}});
    let world = world("OCIRepository", spec).await;
    world.set_secret("ca", json!({"ca.crt": gitea.ca.pem()}));
    says(&world, ("OCIRepository", "web"), "Ready", "False", "to a request without credentials").await;
    let auth = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let config = json!({"auths": {host.to_string(): {"auth": auth}}}).to_string();
    world.set_secret("docker", json!({".dockerconfigjson": config}));
    change(&world, "OCIRepository", json!({"secretRef": {"name": "docker"}}));
    applied(&world, "artifact").await;

    // A chart in the registry, and one in the chart repository of the same Gitea.
    push_chart(&format!("oci://{host}/shop"), "1.0.0", "registry", &login);
    let upload = gitea.client.post(gitea.url("api/packages/shop/helm/api/charts"));
    let upload = upload.header("content-type", "application/octet-stream").body(packed("1.0.0", "repository"));
    gitea.send(upload).await;
    world.set_secret("login", json!({"username": USER, "password": PASSWORD}));
    let spec = json!({
        "repository": format!("oci://{host}/shop"), "name": "shop", "version": "1.x", "interval": "10s",
        "certSecretRef": {"name": "ca"}, "secretRef": {"name": "login"},
    });
    create(&world, "HelmChart", "web", spec);
    world.edit(OURS, "gitsyncs", "web", json!({"spec": {"sourceRef": {"kind": "HelmChart"}}}));
    applied(&world, "registry").await;
    change(&world, "HelmChart", json!({"repository": gitea.url("api/packages/shop/helm")}));
    applied(&world, "repository").await;
    world.condition_is("web", "Ready", "True").await;
}
