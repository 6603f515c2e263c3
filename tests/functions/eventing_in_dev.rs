//! The tutorial of events in the embedded cluster.

use crate::eventing::legacy;
use mainstay_testkit::dev::{Dev, wait_until};

const FUNCTION: &str = r#"
apiVersion: serverless.kyma-project.io/v1alpha1
kind: Function
metadata: {name: my-function, namespace: default}
spec:
  runtime: nodejs22
  minReplicas: 1
  maxReplicas: 1
  source: |
    module.exports = { main: (event) => { console.log("User created: ", event.data); } }
---
apiVersion: eventing.knative.dev/v1alpha1
kind: Trigger
metadata: {name: my-function-the-source, namespace: default}
spec:
  filter: {attributes: {eventtypeversion: v1, source: mock, type: user.created}}
  subscriber: {ref: {apiVersion: v1, kind: Service, name: my-function, namespace: default}}
"#;

#[test]
fn a_function_of_the_embedded_cluster_logs_an_event_of_an_application() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("repo")).unwrap();
    std::fs::write(home.path().join("repo/all.yaml"), FUNCTION).unwrap();
    let dev = Dev::start(home.path(), &["repo", "--work-tree", "--gateway", "127.0.0.1:0"]);
    let ready = [
        "get",
        "triggers",
        "my-function-the-source",
        "--ignore-not-found",
        "-o",
        r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#,
    ];
    wait_until("the Trigger is ready", || dev.try_kubectl(&ready).is_ok_and(|said| said == "True"));
    let gateway = dev.gateway.strip_prefix("http://").unwrap();
    let port = gateway.rsplit_once(':').unwrap().1;
    let output = mainstay_testkit::isolated("curl")
        .args(["-sS", "--noproxy", "*", "--connect-to", &format!("gateway.localhost:{port}:{gateway}")])
        .args(["-H", "Content-Type: application/json", "-d", &legacy("v1")])
        .arg(format!("http://gateway.localhost:{port}/mock/v1/events"))
        .output()
        .expect("curl is needed: https://curl.se/download.html");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("{\"event-id\":\""), "{said}");
    let logs = ["logs", "-l", "serverless.kyma-project.io/function-name=my-function"];
    wait_until("the Function logs it", || {
        dev.try_kubectl(&logs).is_ok_and(|said| said.lines().any(|line| line == "User created:  123456789"))
    });
}
