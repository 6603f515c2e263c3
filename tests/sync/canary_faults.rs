//! Misbehaving servers, with every kind of credentials: each attempt fails with a specific error, and no secret appears
//! anywhere.

use std::{fs, path::Path, time::Duration};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures::future::join_all;
use serde_json::{Value, json};

use mainstay_testkit::{
    canary::nothing_is_shown,
    git_server::{Fault, GitServer, On},
    logs,
    proxy::Proxy,
    remote::NAME,
    ssh_server::{Fault as SshFault, SshServer, generate},
    tls::PrivateCa,
    world::{NAMESPACE, World, config_map, free_address},
};

const SERVERLESS: &str = "serverless.kyma-project.io/v1alpha1";
const PASSWORD: &str = "horse-tupelo";
const OVER_HTTP: [&str; 5] = ["basic", "bearer", "app", "client", "proxy"];
const ALL: [&str; 6] = ["basic", "bearer", "app", "client", "proxy", "ssh"];

/// Creates a GitRepository, a GitSync and their Secret.
fn followed(world: &World, name: &str, url: &str, data: Value) {
    let kind = if name == "ssh" { "key" } else { "basic" };
    world.set_secret(name, data);
    let mut spec = json!({"url": url, "auth": {"type": kind, "secretName": name}});
    if name == "proxy" {
        spec["proxySecretRef"] = json!({"name": "through"});
    }
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let object = json!({"apiVersion": SERVERLESS, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(SERVERLESS, "gitrepositories", NAMESPACE, object);
    world.sync(name, json!({"gitRepository": name, "baseDir": format!("/{name}"), "interval": "1h"}));
}

/// Returns the secret lines of a key.
fn lines(key: &str) -> impl Iterator<Item = &str> {
    key.lines().filter(|line| !line.starts_with("-----") && !line.is_empty())
}

/// Generates a private key of a GitHub App.
fn app_key() -> String {
    let made = mainstay_testkit::isolated("openssl").args(["genrsa", "-traditional", "2048"]).output();
    String::from_utf8(made.expect("`openssl` is installed (apt-get install openssl)").stdout).unwrap()
}

/// Generates an SSH key with a passphrase.
fn sealed_key(directory: &Path, server: &SshServer) -> String {
    let path = directory.join("sealed");
    generate(&path, "ed25519", &["-N", PASSWORD]);
    server.authorize(&fs::read_to_string(path.with_extension("pub")).unwrap());
    fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_of_a_server_shows_anything_of_any_kind_of_credentials() {
    logs::keep();
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world.deadlines.silence = Duration::from_millis(1500);
    world.deadlines.lookup = Duration::from_secs(4);
    world.deadlines.fetch = Duration::from_secs(6);
    for name in ALL {
        world.remote.file(&format!("{name}/map.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    let (root, ca) = (world.remote.root().to_owned(), PrivateCa::new());
    let https = GitServer::start_tls(&root, ca.server("127.0.0.1")).await;
    let tokens = GitServer::start_tls(&root, ca.server("127.0.0.1")).await;
    let mutual = GitServer::start_tls(&root, ca.server_for_clients("127.0.0.1")).await;
    // Requests are redirected to this server, which answers 401.
    let elsewhere = GitServer::start_tls(&root, ca.server("127.0.0.1")).await;
    elsewhere.fail(On::Everything, Fault::Status(401));
    let (proxy, ssh) = (Proxy::http("walker", "cow-tupelo"), SshServer::start(&root).await);
    let login = BASE64_STANDARD.encode(format!("robot:{PASSWORD}"));
    https.require_authorization(&format!("Basic {login}"));
    tokens.require_authorization("Bearer token-tupelo");
    let (app, sealed, robot) = (app_key(), sealed_key(&root, &ssh), ca.issue("robot"));

    let (url, pem) = (https.url(NAME), ca.pem());
    world.set_secret("through", json!({"address": proxy.address(), "username": "walker", "password": "cow-tupelo"}));
    let basic = json!({"username": "robot", "password": PASSWORD, "ca.crt": pem});
    followed(&world, "basic", &url, basic.clone());
    followed(&world, "proxy", &url, basic);
    followed(&world, "bearer", &tokens.url(NAME), json!({"bearerToken": "token-tupelo", "ca.crt": pem}));
    let of_app = json!({
        "githubAppID": "17", "githubAppInstallationID": "29", "githubAppPrivateKey": app,
        "githubAppBaseURL": format!("{}/api/v3", tokens.base()), "ca.crt": pem,
    });
    followed(&world, "app", &tokens.url(NAME), of_app);
    let of_client = json!({"tls.crt": robot.certificate, "tls.key": robot.key, "ca.crt": pem});
    followed(&world, "client", &mutual.url(NAME), of_client);
    let of_ssh = json!({"key": sealed, "password": PASSWORD, "known_hosts": ssh.known_hosts(&["ed25519"])});
    followed(&world, "ssh", &ssh.url(NAME), of_ssh);

    let echo = |word: &str| format!("{:04x}ERR is it {word}?", word.len() + 15).into_bytes();
    let faults = [
        Fault::Status(401),
        Fault::Status(403),
        Fault::Status(404),
        Fault::Status(500),
        Fault::Html,
        Fault::Answer(b"zzzz".to_vec()),
        Fault::Endless(Vec::new(), b"0001".repeat(1000)),
        Fault::Truncate(20),
        Fault::Redirect("http://127.0.0.1:1".into()),
        Fault::Redirect(elsewhere.base()),
        Fault::Redirect("http://169.254.169.254".into()),
        Fault::Drip(Duration::from_millis(50)),
        Fault::Stall,
    ];
    let servers = [&https, &tokens, &mutual];
    for server in servers {
        server.fail(On::Everything, Fault::Status(503));
    }
    ssh.fail(SshFault::CutAfter(0));
    world.start();
    // Each server echoes the credentials that it received.
    let said = [PASSWORD, "token-tupelo", "anybody"].map(|word| Fault::Answer(echo(word)));
    let encoded = [login.as_str(), "token-tupelo", "anybody"].map(|word| Fault::Answer(echo(word)));
    for fault in faults.map(|fault| [fault.clone(), fault.clone(), fault]).into_iter().chain([said, encoded]) {
        for (server, fault) in servers.iter().zip(&fault) {
            server.fail(On::Everything, fault.clone());
        }
        join_all(OVER_HTTP.map(|name| world.ask(name))).await;
        for name in OVER_HTTP {
            let ready = world.condition(name, "Ready");
            assert!(ready.starts_with("False "), "{name} {fault:?}: {ready}");
        }
    }
    let said = b"who is there?\r\n".repeat(10);
    let cuts = [45, 1800, 2600].map(SshFault::CutAfter);
    for fault in cuts.into_iter().chain([SshFault::StallAfter(1200), SshFault::Say(said)]) {
        ssh.fail(fault.clone());
        world.ask("ssh").await;
        let ready = world.condition("ssh", "Ready");
        assert!(ready.starts_with("False "), "{fault:?}: {ready}");
    }
    // The credentials were valid, and so were sent.
    for server in servers {
        server.heal();
    }
    ssh.fail(None);
    for name in ALL.into_iter().filter(|name| *name != "app") {
        world.ask(name).await;
        world.ready(name).await;
        assert_eq!(world.data(name), "1");
    }
    let fixed = ["-tupelo", "PRIVATE KEY", "Bearer eyJ", login.as_str()];
    let words: Vec<&str> =
        fixed.into_iter().chain(lines(&app)).chain(lines(&sealed)).chain(lines(&robot.key)).collect();
    nothing_is_shown(&mut world, &words).await;
}
