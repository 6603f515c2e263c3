//! `kubectl logs` of processes.

use crate::machine::{Machine, PODS};
use serde_json::json;
use std::process::Stdio;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_logs_of_a_deployment_whole_and_in_part() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let script = "echo one; echo two; echo three; exec sleep 1000";
    let template = json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "host", "command": ["sh", "-c", script]}]},
    });
    let spec = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template});
    machine
        .world
        .post("/apis/apps/v1/namespaces/default/deployments", json!({"metadata": {"name": "x"}, "spec": spec}))
        .await;
    kubectl.run(&["rollout", "status", "deployment/x", "--timeout=30s"]).await;
    let mut follow = kubectl.command(&["logs", "-f", "deploy/x"]).stdout(Stdio::piped()).spawn().unwrap();
    let three = tokio::task::spawn_blocking(move || {
        use std::io::BufRead as _;
        let lines = std::io::BufReader::new(follow.stdout.take().unwrap()).lines();
        let read: Vec<String> = lines.take(3).map(Result::unwrap).collect();
        follow.kill().unwrap();
        follow.wait().unwrap();
        read
    });
    assert_eq!(three.await.unwrap(), ["one", "two", "three"]);
    for (args, expected) in [
        (vec!["--tail=2"], "two\nthree\n"),
        (vec!["--tail=0"], ""),
        (vec!["--limit-bytes=5"], "one\nt"),
        (vec!["--since=1h", "-c", "main"], "one\ntwo\nthree\n"),
        (vec!["--since-time=2100-01-01T00:00:00Z"], ""),
    ] {
        let args = [vec!["logs", "deploy/x"], args].concat();
        assert_eq!(kubectl.run(&args).await, expected, "{args:?}");
    }
    let stamped = kubectl.run(&["logs", "deploy/x", "--timestamps", "--tail=1"]).await;
    let (time, text) = stamped.split_once(' ').unwrap();
    assert!(time.len() == 30 && time.ends_with('Z') && text == "three\n", "{stamped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_the_attempt_before_is_kept() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let script = "cat $TMPDIR/n 2>/dev/null || echo first; echo second > $TMPDIR/n; exit 1";
    machine.pod("again", script, json!({"restartPolicy": "Always"})).await;
    let waits = |pod: &serde_json::Value| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let pod = machine.until("again", "crashing", waits).await;
    let status = &pod["status"]["containerStatuses"][0];
    assert_eq!((&status["restartCount"], &status["lastState"]["terminated"]["exitCode"]), (&json!(1), &json!(1)));
    assert!(status["state"]["waiting"]["message"].as_str().unwrap().starts_with("back-off 10s restarting failed"));
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(kubectl.run(&["logs", "again"]).await, "second\n");
    assert_eq!(kubectl.run(&["logs", "--previous", "again"]).await, "first\n");
    machine.pod("once", "exit 0", json!({})).await;
    machine.phase("once", "Succeeded").await;
    let refused = kubectl.output(&["logs", "--previous", "once"]).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains(r#"previous terminated container "main" in pod "once" not found"#), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_must_be_named_when_there_are_several() {
    let machine = Machine::new();
    let containers = json!([
        {"name": "a", "image": "host", "command": ["echo", "from a"]},
        {"name": "b", "image": "host", "command": ["echo", "from b"]},
    ]);
    machine.pod("two", "", json!({"containers": containers})).await;
    machine.phase("two", "Succeeded").await;
    let refused = machine.world.get(&format!("{PODS}/two/log")).await;
    refused.refused(400, "BadRequest", "a container name must be specified for pod two, choose one of: [a b]");
    let refused = machine.world.get(&format!("{PODS}/two/log?container=c")).await;
    refused.refused(400, "BadRequest", "container c is not valid for pod two");
    assert_eq!(machine.log("two", "container=b").await, "from b\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_only_simulated_has_written_its_name() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    machine.pod("other", "echo x", json!({"containers": [{"image": "elsewhere/x:1"}]})).await;
    machine.phase("other", "Succeeded").await;
    assert_eq!(kubectl.run(&["logs", "other"]).await, "main of default/other\n");
}
