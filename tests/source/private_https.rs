//! Repositories behind TLS and a proxy, end to end: a GitSync, a Function and the container `fetch` of its build.

use std::time::Duration;

use mainstay_api::build::FailureReason;
use serde_json::json;

use mainstay_testkit::{
    build::{self, Job},
    canary::nothing_is_shown,
    functions::JOBS,
    git_server::GitServer,
    logs,
    proxy::Proxy,
    remote::NAME,
    tls::PrivateCa,
    world::{NAMESPACE, World, config_map, free_address},
};

const API: &str = "serverless.kyma-project.io/v1alpha1";
const SECRETS: &[&str] = &["-tupelo", "PRIVATE KEY"];

/// Returns a server with a private CA that requires a bearer token.
async fn server(root: &std::path::Path) -> (PrivateCa, GitServer) {
    let ca = PrivateCa::new();
    let server = GitServer::start_tls(root, ca.server("127.0.0.1")).await;
    server.require_authorization("Bearer horse-tupelo");
    (ca, server)
}

/// Creates a GitRepository `private` of the world's repository behind that server and a proxy.
async fn private(world: &World) -> (PrivateCa, GitServer, Proxy) {
    let (ca, server) = server(world.remote.root()).await;
    let auth = json!({"type": "basic", "secretName": "git"});
    let spec = json!({"url": server.url(NAME), "auth": auth, "proxySecretRef": {"name": "proxy"}});
    let metadata = json!({"name": "private", "namespace": NAMESPACE});
    let object = json!({"apiVersion": API, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(API, "gitrepositories", NAMESPACE, object);
    (ca, server, Proxy::socks("walker", "cow-tupelo"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_correction_of_the_secrets_works_at_once_and_each_message_names_its_secret() {
    logs::keep();
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    let (ca, server, proxy) = private(&world).await;
    world.sync("demo", json!({"gitRepository": "private", "interval": "1h"}));
    world.start();
    let says = async |expected: &str| world.condition_is("demo", "Ready", expected).await;
    says("False SecretNotFound: Secret git with the credentials does not exist").await;
    world.set_secret("git", json!({"bearerToken": "wrong-tupelo", "tls.crt": ca.issue("robot").certificate}));
    says("False SourceInvalid: read the credentials of the repository: the Secret has tls.crt without tls.key").await;
    world.set_secret("git", json!({"tls.key": "x"}));
    says("False SourceInvalid: read the credentials of the repository: tls.key of the Secret cannot be used: ").await;
    let robot = ca.issue("robot");
    world.set_secret("git", json!({"tls.crt": robot.certificate, "tls.key": robot.key}));
    says("False SecretNotFound: Secret proxy with the proxy does not exist").await;
    world.set_secret("proxy", json!({"username": "walker", "password": "wrong-tupelo"}));
    says("False SourceInvalid: read the proxy of the repository: missing field address").await;
    assert_eq!(server.take_counts().requests, 0);
    world.set_secret("proxy", json!({"address": proxy.address()}));
    let denied = |url: &str, why: &str| format!("False GitAuthorizationFailed: look up main at {url}: {why}");
    let url = server.url(NAME);
    says(&denied(&url, "the proxy requires a valid user name and password")).await;
    world.set_secret("proxy", json!({"password": "cow-tupelo"}));
    says(&denied(&url, "TLS: no CA that is trusted has signed the server's certificate")).await;
    world.set_secret("git", json!({"ca.crt": ca.pem()}));
    says(&denied(&url, "the server answered 401: it does not accept the credentials")).await;
    world.set_secret("git", json!({"bearerToken": "horse-tupelo"}));
    world.until("the object is applied", |w| w.data("a") == "1").await;
    world.ready("demo").await;
    nothing_is_shown(&mut world, SECRETS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_and_its_build_use_the_same_secrets() {
    logs::keep();
    let mut world = World::with_functions().await;
    world.listen = Some(free_address());
    world.functions.git_interval = Duration::from_secs(3600);
    world.functions.git_fetch_requeue = Duration::from_secs(3600);
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    let (ca, server, proxy) = private(&world).await;
    world.set_secret("git", json!({"bearerToken": "horse-tupelo", "ca.crt": ca.pem()}));
    world.git_function_of("private", "hello", "/hello");
    world.start();
    let missing = "False SourceUpdateFailed: Reading git options failed: Secret \"proxy\" does not exist";
    world.says("hello", "ConfigurationReady", missing).await;
    world.set_secret("proxy", json!({"address": proxy.address(), "username": "walker", "password": "cow-tupelo"}));
    world.runs("hello").await;
    let job = world.child("hello", JOBS).to_string();
    for part in ["--auth=basic", "--proxy=/git-proxy", r#""secretName":"git""#, r#""secretName":"proxy""#] {
        assert!(job.contains(part), "{part}: {job}");
    }
    assert!(job.contains(&format!("--url={}", server.url(NAME))), "{job}");
    nothing_is_shown(&mut world, SECRETS).await;
}

#[tokio::test]
async fn the_container_of_a_build_fetches_over_tls_and_a_proxy() {
    let origin = build::Origin::new(|remote| {
        remote.file("handler.js", "module.exports = { main: () => 'hello' };\n").file("package.json", "{}");
    });
    let origin = origin.await;
    let (ca, server) = server(origin.remote.root()).await;
    let proxy = Proxy::socks("walker", "cow-tupelo");
    let job = Job::new();
    std::fs::create_dir(job.path("git-proxy")).unwrap();
    let mut arguments = origin.resolved("/");
    arguments[1] = server.url(NAME);
    let directory = |name: &str| job.path(name).to_str().unwrap().to_owned();
    arguments.extend(["--auth".into(), "basic".into(), "--credentials".into(), directory("git-credentials")]);
    arguments.extend(["--proxy".into(), directory("git-proxy")]);
    let refused = async |expected: &str| {
        let failure = job.failure("fetch", "nodejs22", &arguments).await;
        assert_eq!(failure.reason, FailureReason::GitAuthorization, "{}", failure.message);
        assert!(failure.message.contains(expected), "{}", failure.message);
    };
    refused("missing field username").await;
    job.put("git-credentials/bearerToken", "horse-tupelo\n");
    refused("missing field address").await;
    job.put("git-proxy/address", proxy.address()).put("git-proxy/username", "walker");
    job.put("git-proxy/password", "cow-8172");
    refused("the proxy requires a valid user name and password").await;
    job.put("git-proxy/password", "cow-tupelo\n");
    refused("TLS: no CA that is trusted").await;
    job.put("git-credentials/ca.crt", ca.pem());
    job.fetch("nodejs22", &arguments).await;
    assert_eq!(job.names("workspace/src"), ["handler.js", "package.json"]);
    for content in job.listing("workspace").into_values() {
        assert!(!content.contains(&hex::encode("tupelo")));
    }
}

#[tokio::test]
async fn the_proxies_of_the_environment_lead_to_repositories_but_for_their_exceptions() {
    let origin = build::Origin::new(|remote| {
        remote.file("handler.js", "module.exports = { main: () => 'hello' };\n").file("package.json", "{}");
    });
    let origin = origin.await;
    let (ca, server) = server(origin.remote.root()).await;
    let mut proxy = Proxy::socks("walker", "cow-tupelo");
    let address = proxy.address().replace("socks5://", "socks5h://walker:cow-tupelo@");
    let job = Job::new();
    let mut arguments = origin.resolved("/");
    arguments[1] = server.url(NAME);
    let credentials = job.path("git-credentials").to_str().unwrap().to_owned();
    arguments.extend(["--auth".into(), "basic".into(), "--credentials".into(), credentials]);
    job.put("git-credentials/bearerToken", "horse-tupelo").put("git-credentials/ca.crt", ca.pem());
    let fetch = async |variables: &[(&str, &str)]| job.run_with("fetch", "nodejs22", &arguments, variables).await;
    let through = [("HTTPS_PROXY", &*address)];
    let (said, output) = fetch(&through).await;
    assert!(output.status.success(), "{said}");
    proxy.stop();
    let (said, output) = fetch(&through).await;
    assert!(!output.status.success() && said.contains("no connection: SOCKS error"), "{said}");
    assert!(!said.contains("tupelo") && !String::from_utf8_lossy(&output.stderr).contains("tupelo"), "{said}");
    let (said, output) = fetch(&[through[0], ("NO_PROXY", "10.0.0.0/8,127.0.0.1")]).await;
    assert!(output.status.success(), "{said}");
}
