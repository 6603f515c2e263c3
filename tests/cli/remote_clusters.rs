//! Commands that read a remote cluster, whose address a tenant writes into a Secret.

use serde_json::{Value, json};

use mainstay_testkit::{
    git_server::GitServer,
    program::Program,
    remote::NAME,
    world::{NAMESPACE, World, config_map},
};

/// Creates a GitSync with a kubeconfig for this server and this user.
fn sync_to(world: &World, name: &str, server: &str, user: &Value) {
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "far",
        "clusters": [{"name": "far", "cluster": {"server": server}}],
        "users": [{"name": "far", "user": user}],
        "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}],
    });
    world.set_secret(name, json!({"value": kubeconfig.to_string()}));
    world.sync(name, json!({"kubeConfig": {"secretRef": {"name": name}}}));
}

/// Runs the three commands that read remote clusters. Returns each command with its output.
async fn outputs(program: &Program, name: &str) -> Vec<(String, String)> {
    let commands: [&[&str]; 3] = [&["tree", name], &["diff", name, "--revision", "main"], &["sync", name, "--dry-run"]];
    let mut all = Vec::new();
    for command in commands {
        let (code, text, error) = program.run(&[command, &["-n", NAMESPACE]].concat()).await;
        assert_ne!(code, 0, "{command:?}: {text}{error}");
        all.push((command.join(" "), format!("{text}{error}")));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_of_a_tenant_leads_no_command_to_the_users_machine() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    let server = GitServer::start(world.remote.root()).await;
    let address = server.url(NAME);
    let token = json!({"token": "canary-token"});
    sync_to(&world, "far", &address, &token);
    sync_to(&world, "named", &address.replace("127.0.0.1", "localhost"), &token);
    sync_to(&world, "metadata", "http://169.254.169.254/latest", &token);
    let program = Program::of(&world).await;
    let machine = "connections to this machine are refused";
    for (name, refusal) in [("far", machine), ("named", machine), ("metadata", "link-local and metadata addresses")] {
        let git_sync = format!("{NAMESPACE}/{name}");
        let secret = format!("the cluster of Secret {name} (spec.kubeConfig) cannot be reached");
        for (command, text) in outputs(&program, name).await {
            for part in [&*git_sync, &*secret, refusal, "into the kubeconfig of the Secret"] {
                assert!(text.contains(part), "{command}: {part}: {text}");
            }
            assert!(!text.contains("canary-token"), "{command}: {text}");
        }
    }
    assert!(server.arrivals().is_empty(), "a request was sent");

    // The servers of `mainstay dev` are on this machine.
    program.set_dev_run(&world.remote.path());
    for (command, text) in outputs(&program, "far").await {
        assert!(!text.contains(machine), "{command}: {text}");
    }
    assert!(!server.arrivals().is_empty(), "no request was sent");
    for (command, text) in outputs(&program, "metadata").await {
        assert!(text.contains("link-local and metadata addresses"), "{command}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kubeconfig_of_a_tenant_runs_no_program_and_reads_no_file_of_the_user() {
    let world = World::new().await;
    let marks = tempfile::tempdir().unwrap();
    let mark = marks.path().join("ran");
    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [mark]});
    let program = Program::of(&world).await;
    for (name, user, field) in [
        ("program", json!({"exec": exec}), "users[0].user.exec: is not allowed"),
        ("file", json!({"tokenFile": "/etc/hostname"}), "users[0].user.tokenFile: is not allowed"),
    ] {
        sync_to(&world, name, "https://api.example.com", &user);
        for (command, text) in outputs(&program, name).await {
            assert!(text.contains(field) && text.contains(&format!("Secret {name}")), "{command}: {text}");
        }
    }
    assert!(!mark.exists(), "the program ran");
}
