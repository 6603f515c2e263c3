//! The documented sample Functions on a cluster with only the book's two commands: no registry, login or base image.
//!
//! Pods and builds are simulated here; `dev_functions` really builds them.

use std::fs;

use serde_json::json;

use super::HOME;
use mainstay_testkit::{git_server::GitServer, remote, remote::Remote, shell::Shell};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples");
/// Objects that the samples require according to the documentation: a ConfigMap, and a repository with a login.
const GIVEN: [(&str, &str); 2] = [("env-from-config-map.yaml", "my-vars-cm"), ("git.yaml", "auth-basic")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_documented_function_runs_unchanged_after_two_commands() {
    let shell = Shell::new(HOME, &[]).await;
    let mut remote = Remote::new();
    remote.file("handler.js", "module.exports = { main: () => 'hi' }").file("package.json", "{}").commit("one");
    remote.branch("branchA");
    let server = GitServer::start(remote.root()).await;
    server.require("Ada", "hard to guess");
    shell
        .run(&format!("mainstay install --git-url https://git.example.com/shop.git -n {HOME} | kubectl apply -f -"))
        .await;
    // The server of Git Functions is this machine.
    let allow = r#"[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--allow-network=127.0.0.1/32"}]"#;
    shell.run(&format!("kubectl patch deployment mainstay -n {HOME} --type=json -p '{allow}'")).await;
    let _agent = shell.agent("samples").await;
    shell.builds_succeed().await;

    let [(_, map), (_, repository)] = GIVEN;
    let given = [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map}, "data": {"my-var": "x"}}),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": repository},
            "stringData": {"username": "Ada", "password": "hard to guess"},
        }),
        json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository", "metadata": {"name": repository},
            "spec": {"url": server.url(remote::NAME), "auth": {"type": "basic", "secretName": repository}},
        }),
    ];
    for object in given {
        let name = format!("{}.json", object["kind"].as_str().unwrap());
        fs::write(shell.path(&name), object.to_string()).unwrap();
        shell.until(&format!("kubectl apply -n default -f {name}")).await;
    }

    let mut samples: Vec<_> = fs::read_dir(SAMPLES).unwrap().map(|entry| entry.unwrap().path()).collect();
    samples.sort();
    let mut ran = 0;
    for sample in samples {
        let text = fs::read_to_string(&sample).unwrap();
        if !text.contains("kind: Function") {
            continue;
        }
        let file = sample.to_str().unwrap();
        shell.run(&format!("kubectl apply -n default -f {file}")).await;
        for condition in ["ConfigurationReady", "BuildReady", "Running"] {
            let wait = format!("kubectl wait -n default -f {file} --for=condition={condition} --timeout=5s");
            if shell.try_until(&wait).await.is_err() {
                let status = shell.try_run(&format!("kubectl get -n default -f {file} -o yaml")).await.out;
                panic!("{file}: {condition}\n{status}\n{}", fs::read_to_string(shell.path("samples.log")).unwrap());
            }
        }
        let image = shell.run(&format!("kubectl get -n default -f {file} -o jsonpath={{.status.image}}")).await.out;
        assert!(
            image.starts_with("127.0.0.1:32137/"),
            "{file} is pulled from the registry that was installed: {image}"
        );
        shell.run(&format!("kubectl delete -n default -f {file}")).await;
        ran += 1;
    }
    assert_eq!(ran, 6);
}
