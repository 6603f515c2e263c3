//! The flags that select a cluster and a user, as in kubectl.

use std::{fs, path::Path, time::Instant};

use devcluster::{Cluster, Options, Serving};
use serde_json::{Value, json};

use mainstay_testkit::{
    external::{External, KUBECONFIG},
    program::executable,
    server::TestServer,
    world::{NAMESPACE, World, config_map},
};

/// The access to the cluster of a world.
struct Way {
    cluster: Value,
    user: Value,
    _serving: Option<Serving>,
}

impl Way {
    async fn to(world: &World) -> Self {
        let TestServer::Embedded(server) = &world.server else {
            let path = std::env::var_os(KUBECONFIG).unwrap();
            let config: Value = serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
            let of = |list: &str, one: &str| config[list][0][one].clone();
            return Self { cluster: of("clusters", "cluster"), user: of("users", "user"), _serving: None };
        };
        let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let cluster = json!({"server": format!("http://{}", serving.address())});
        Self { cluster, user: json!({}), _serving: Some(serving) }
    }

    /// Returns a kubeconfig with this access.
    fn kubeconfig(&self) -> String {
        kubeconfig(&self.cluster, &self.user)
    }
}

/// A kubeconfig with an unreachable current context; `there` is the cluster of the world.
fn kubeconfig(cluster: &Value, user: &Value) -> String {
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
        "clusters": [
            {"name": "there", "cluster": cluster},
            {"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}},
        ],
        "users": [{"name": "admin", "user": user}, {"name": "stranger", "user": {"token": "no-such-token"}}],
        "contexts": [
            {"name": "there", "context": {"cluster": "there", "user": "admin", "namespace": NAMESPACE}},
            {"name": "nowhere", "context": {"cluster": "nowhere", "user": "admin"}},
            {"name": "wrong", "context": {"cluster": "nowhere", "user": "stranger", "namespace": NAMESPACE}},
        ],
    });
    text.to_string()
}

/// Runs a command line. Returns exit code, standard output and standard error.
async fn run(home: &Path, environment: &[(&str, &str)], line: &str) -> (i32, String, String) {
    let mut command = mainstay_testkit::isolated(executable());
    command.args(line.split(' ')).env_clear().env("HOME", home).current_dir(home);
    command.envs(environment.iter().copied());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chooses_the_cluster_and_the_user_as_kubectl_does() {
    let mut world = if External::is_named() {
        World::new().await
    } else {
        World::of(Cluster::new(Options { rbac: true, ..Options::default() }))
    };
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    let way = Way::to(&world).await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config");
    fs::write(&file, way.kubeconfig()).unwrap();
    let file = file.to_str().unwrap();
    // In a pod, whose ServiceAccount must not be used.
    let pod = [("KUBECONFIG", file), ("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", "1")];
    let missing = format!("/nowhere/at/all:{file}");
    let several = [("KUBECONFIG", missing.as_str())];
    for (environment, line) in [
        (&pod[..], "status --context there".to_owned()),
        (&pod, "--context there status".to_owned()),
        (&several, "--context=there status demo".to_owned()),
        (&[], format!("--kubeconfig {file} status --context there")),
        (&pod, "status --context wrong --cluster there --user admin".to_owned()),
        (&pod, format!("-n {NAMESPACE} --cluster there status")),
        (&pod, "--context there --as system:admin --as-group system:masters status".to_owned()),
        (&pod, "--context there status --request-timeout 20s".to_owned()),
        (&pod, "--context there tree".to_owned()),
        (&pod, "--context there events --request-timeout=0".to_owned()),
    ] {
        let (code, out, error) = run(home.path(), environment, &line).await;
        assert_eq!((code, error.as_str()), (0, ""), "{line}: {out}");
    }
    for (line, expected) in [
        ("status", "Connection refused"),
        ("status --context there --as alice", "User \"alice\" cannot"),
        ("--context there trace cm/a --as alice", "User \"alice\" cannot"),
        ("status --context none", "failed to load current context: none"),
    ] {
        let (code, _, error) = run(home.path(), &pod, line).await;
        assert!(code == 2 && error.contains(expected), "{line}: {error}");
    }
    let (code, _, error) = run(home.path(), &pod, "status --as-group x").await;
    assert!(code == 2 && error.contains("--as <USER>"), "{error}");
    drop(way);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_answers_is_waited_for_as_long_as_the_timeout_says() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config");
    let cluster = json!({"server": format!("http://{}", silent.local_addr().unwrap())});
    fs::write(&file, kubeconfig(&cluster, &json!({}))).unwrap();
    let begun = Instant::now();
    let environment = [("KUBECONFIG", file.to_str().unwrap())];
    let (code, _, error) = run(home.path(), &environment, "status --context there --request-timeout 1s").await;
    assert!(code == 2 && begun.elapsed().as_secs() < 50, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_needs_no_cluster_whatever_the_environment_names() {
    let home = tempfile::tempdir().unwrap();
    let broken = home.path().join("broken");
    fs::write(&broken, "{{{").unwrap();
    let exec = home.path().join("exec");
    let user = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere", "interactiveMode": "Never"}});
    let context = json!({"cluster": "c", "user": "u", "namespace": "team"});
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "u", "user": user}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": context}],
    });
    fs::write(&exec, text.to_string()).unwrap();
    for (name, kubeconfig, namespace) in [
        ("a", "/nowhere/at/all", "default"),
        ("b", broken.to_str().unwrap(), "default"),
        ("c", exec.to_str().unwrap(), "team"),
    ] {
        let line = format!("init function --dir {name}");
        let (code, out, error) = run(home.path(), &[("KUBECONFIG", kubeconfig)], &line).await;
        assert_eq!((code, error.as_str()), (0, ""), "{kubeconfig}: {out}");
        let config: Value =
            serde_yaml::from_str(&fs::read_to_string(home.path().join(name).join("config.yaml")).unwrap()).unwrap();
        assert_eq!(config["namespace"], namespace, "{kubeconfig}");
    }
    let (code, _, error) = run(home.path(), &[], "init function --dir d --kubeconfig /nowhere/at/all").await;
    assert!(code == 2 && error.contains("/nowhere/at/all"), "a file that a flag names is read: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_completed_from_the_cluster_of_the_line() {
    let world = World::new().await;
    world.sync("demo", json!({}));
    world.sync("other", json!({}));
    let way = Way::to(&world).await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config");
    fs::write(&file, way.kubeconfig()).unwrap();
    for (line, at, expected) in [
        ("mainstay --context there status d", "4", "demo"),
        ("mainstay get gitsyncs o --context there", "3", "other"),
        ("mainstay get gitrepositories r --context there", "3", "repo"),
        ("mainstay --context there suspend d", "4", "demo"),
        // The current context is unreachable.
        ("mainstay status d", "2", ""),
    ] {
        let environment = [
            ("KUBECONFIG", file.to_str().unwrap()),
            ("COMPLETE", "bash"),
            ("_CLAP_COMPLETE_INDEX", at),
            ("_CLAP_COMPLETE_COMP_TYPE", "9"),
            ("_CLAP_COMPLETE_SPACE", "false"),
            ("_CLAP_IFS", "\n"),
        ];
        let (_, out, error) = run(home.path(), &environment, &format!("-- {line}")).await;
        assert_eq!((out.trim(), error.as_str()), (expected, ""), "{line}");
    }
}
