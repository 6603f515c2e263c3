//! All kinds of addresses with all kinds of authentication, in all states: the condition of each combination.

use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::json;

use mainstay_testkit::{
    canary::nothing_is_shown,
    git_daemon::GitDaemon,
    git_server::GitServer,
    golden::check_golden,
    logs,
    remote::NAME,
    ssh_server::{SshServer, USER, fingerprint, generate},
    tls::PrivateCa,
    world::{NAMESPACE, World, config_map, free_address},
};

const SCHEMES: [&str; 6] = ["https", "http", "ssh", "scp", "git", "local"];
const AUTHS: [&str; 5] = ["none", "basic", "token", "key", "passphrase"];
const SERVERLESS: &str = "serverless.kyma-project.io/v1alpha1";

/// All servers, with the same repository.
struct Servers {
    ca: PrivateCa,
    https: GitServer,
    http: GitServer,
    /// One server on another port, and one server on port 22.
    ssh: [SshServer; 2],
    git: GitDaemon,
}

impl Servers {
    fn url(&self, world: &World, scheme: &str) -> String {
        match scheme {
            "https" => self.https.url(NAME),
            "http" => self.http.url(NAME),
            "ssh" => self.ssh[0].url(NAME),
            "scp" => self.ssh[1].scp(NAME),
            "git" => self.git.url(NAME),
            _ => world.remote.path().display().to_string(),
        }
    }

    /// Makes HTTP servers accept this password and this token from now on.
    fn require(&self, word: &str) {
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("robot:{word}")));
        for server in [&self.https, &self.http] {
            server.require_any(&[&basic, &format!("Bearer {word}")]);
        }
    }

    /// Returns a message without the parts that differ between runs.
    fn plain(&self, world: &World, message: &str) -> String {
        let mut text = message.to_owned();
        let mut put = |from: &str, to: &str| text = text.replace(from, to);
        for (scheme, name) in SCHEMES.iter().zip(["HTTPS", "HTTP", "SSH", "SCP", "GIT", "PATH"]) {
            put(&self.url(world, scheme), name);
        }
        for (server, name) in self.ssh.iter().zip(["SSH", "SCP"]) {
            put(&server.fingerprint("ed25519"), &format!("<key of {name}>"));
            put(&format!("[{}]:{}", server.ip(), server.port()), &format!("<host of {name}>"));
            put(&format!("ssh-keyscan -p {} {}", server.port(), server.ip()), &format!("ssh-keyscan <{name}>"));
            put(&server.ip().to_string(), &format!("<host of {name}>"));
        }
        put(&format!("for the user {USER}:"), "for the user <user>:");
        text
    }
}

/// Returns a private key and the fingerprint of its public key.
fn key(world: &World, name: &str, more: &[&str], servers: Option<&Servers>) -> (String, String) {
    let path = world.remote.root().join(name);
    generate(&path, "ed25519", more);
    let public = fs::read_to_string(path.with_extension("pub")).unwrap();
    for server in servers.iter().flat_map(|servers| &servers.ssh) {
        server.authorize(&public);
    }
    (fs::read_to_string(&path).unwrap(), fingerprint(&path.with_extension("pub")))
}

fn name(scheme: &str, auth: &str) -> String {
    format!("{scheme}-{auth}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_cell_has_its_condition() {
    logs::keep();
    let mut world = World::new().await;
    world.listen = Some(free_address());
    // Each GitSync has its own directory, so that no two apply the same object.
    for name in SCHEMES.iter().flat_map(|scheme| AUTHS.map(|auth| name(scheme, auth))) {
        world.remote.file(&format!("{name}/map.yaml"), config_map(&name, "1"));
    }
    let commit = world.remote.commit("one");
    let ca = PrivateCa::new();
    let root = world.remote.root().to_owned();
    let servers = Servers {
        https: GitServer::start_tls(&root, ca.server("127.0.0.1")).await,
        http: GitServer::start(&root).await,
        ssh: [SshServer::start(&root).await, SshServer::start_on_port_22(&root).await],
        git: GitDaemon::start(&root),
        ca,
    };
    servers.require("good-tupelo");
    let good = key(&world, "good", &[], Some(&servers));
    let sealed = key(&world, "sealed", &["-N", "good-tupelo"], Some(&servers));
    let wrong = key(&world, "wrong", &[], None);
    for scheme in SCHEMES {
        for auth in AUTHS {
            let kind = if matches!(auth, "key" | "passphrase") { "key" } else { "basic" };
            let mut spec = json!({"url": servers.url(&world, scheme)});
            if auth != "none" {
                spec["auth"] = json!({"type": kind, "secretName": name(scheme, auth)});
            }
            let metadata = json!({"name": name(scheme, auth), "namespace": NAMESPACE});
            let object = json!({"apiVersion": SERVERLESS, "kind": "GitRepository", "metadata": metadata, "spec": spec});
            world.create(SERVERLESS, "gitrepositories", NAMESPACE, object);
            let directory = format!("/{}", name(scheme, auth));
            world.sync(&name(scheme, auth), json!({"gitRepository": name(scheme, auth), "baseDir": directory}));
        }
    }
    world.start();
    let mut cells = Vec::new();
    look(&world, &servers, "missing", &mut cells).await;

    let hosts =
        |servers: &Servers| servers.ssh.iter().map(|server| server.known_hosts(&["ed25519"])).collect::<String>();
    let secrets = |word: &str, key: &str, passphrase: &str| {
        let (ca, known) = (servers.ca.pem(), hosts(&servers));
        let data = [
            ("basic", json!({"username": "robot", "password": word, "ca.crt": ca})),
            ("token", json!({"bearerToken": word, "ca.crt": ca})),
            ("key", json!({"key": key, "known_hosts": known})),
            ("passphrase", json!({"key": sealed.0, "password": passphrase, "known_hosts": known})),
        ];
        for (scheme, (auth, data)) in SCHEMES.iter().flat_map(|scheme| data.iter().map(move |cell| (scheme, cell))) {
            world.set_secret(&name(scheme, auth), data.clone());
        }
    };
    secrets("wrong-tupelo", &wrong.0, "wrong-tupelo");
    look(&world, &servers, "wrong", &mut cells).await;
    secrets("good-tupelo", &good.0, "good-tupelo");
    look(&world, &servers, "good", &mut cells).await;
    let old = [0, 1].map(|at| servers.ssh[at].fingerprint("ed25519"));
    servers.require("new-tupelo");
    for server in &servers.ssh {
        server.rotate(&["ed25519"]);
    }
    look(&world, &servers, "rotated", &mut cells).await;

    cells.sort_by_key(|(scheme, auth, _, _)| {
        (SCHEMES.iter().position(|s| s == scheme), AUTHS.iter().position(|a| a == auth))
    });
    let mut table = String::new();
    for (scheme, auth, state, said) in cells {
        let said = said.replace(&old[0], "<old key of SSH>").replace(&old[1], "<old key of SCP>");
        let said = said.replace(&good.1, "<key>").replace(&sealed.1, "<key>").replace(&wrong.1, "<wrong key>");
        let said = said.replace(&commit, "<commit>").replace(&commit[..7], "<commit>");
        assert!(!said.contains("tupelo"), "{said}");
        table.push_str(&format!("{scheme:5} {auth:10} {state:8} {said}\n"));
    }
    check_golden("private_git/conditions.txt", &table);
    let keys = [&good.0, &sealed.0, &wrong.0].map(|key| key.lines().filter(|line| !line.starts_with("-----")));
    let hidden = ["-tupelo", "PRIVATE KEY"].into_iter().chain(keys.into_iter().flatten()).collect::<Vec<_>>();
    nothing_is_shown(&mut world, &hidden).await;
}

/// Makes each GitSync retry, and records its message.
async fn look(
    world: &World,
    servers: &Servers,
    state: &'static str,
    cells: &mut Vec<(&'static str, &'static str, &'static str, String)>,
) {
    for scheme in SCHEMES {
        for auth in AUTHS {
            world.ask(&name(scheme, auth)).await;
            let said = servers.plain(world, &world.condition(&name(scheme, auth), "Ready"));
            cells.push((scheme, auth, state, said.lines().collect::<Vec<_>>().join(" ")));
        }
    }
}
