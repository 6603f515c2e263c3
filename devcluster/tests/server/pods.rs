//! Pods as processes: what they are given, how they end, what is said of it.

use crate::machine::{HOST, Machine, PODS, eventually, lives};
use serde_json::{Value, json};

fn state(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_and_its_end_is_told() {
    let machine = Machine::new();
    machine.pod("fine", "echo out; echo err >&2; echo bye > $LAST_WORDS", json!({})).await;
    let pod = machine.phase("fine", "Succeeded").await;
    let ended = &state(&pod)["terminated"];
    assert_eq!(
        (&ended["exitCode"], &ended["reason"], &ended["message"]),
        (&json!(0), &json!("Completed"), &json!("bye\n"))
    );
    let log = machine.log("fine", "").await;
    assert!(log.contains("out\n") && log.contains("err\n"), "{log}");
    machine
        .pod("bad", "echo no; exit 3", json!({"containers": [{"terminationMessagePolicy": "FallbackToLogsOnError"}]}))
        .await;
    let pod = machine.phase("bad", "Failed").await;
    let ended = &state(&pod)["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"], &ended["message"]), (&json!(3), &json!("Error"), &json!("no\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn init_containers_run_one_after_the_other_and_share_volumes() {
    let machine = Machine::new();
    let mounts = json!([{"name": "work", "mountPath": "/work"}]);
    let step = |name: &str, script: &str| {
        json!({"name": name, "image": HOST, "command": ["sh", "-c", script], "volumeMounts": mounts,
               "env": [{"name": "WORK", "value": "/work"}]})
    };
    let spec = |second: &str| {
        json!({
            "volumes": [{"name": "work", "emptyDir": {}}],
            "initContainers": [step("first", "echo 1 > $WORK/file"), step("second", second)],
            "containers": [{"volumeMounts": mounts, "env": [{"name": "WORK", "value": "/work"}]}],
        })
    };
    machine.pod("steps", "cat $WORK/file; env", spec("sed -i s/1/2/ $WORK/file")).await;
    machine.phase("steps", "Succeeded").await;
    assert!(machine.log("steps", "").await.starts_with("2\n"));
    machine.pod("broken", "cat $WORK/file", spec("echo because > $LAST_WORDS; exit 4")).await;
    let pod = machine.phase("broken", "Failed").await;
    let init = &pod["status"]["initContainerStatuses"];
    assert_eq!((&init[0]["ready"], &init[0]["state"]["terminated"]["reason"]), (&json!(true), &json!("Completed")));
    assert_eq!(init[1]["state"]["terminated"]["message"], "because\n");
    assert_eq!(state(&pod)["waiting"]["reason"], "PodInitializing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_is_asked_to_end_and_then_killed_with_its_children() {
    let machine = Machine::new();
    let polite = "trap 'echo asked; exit 0' TERM; echo $$ > $TMPDIR/pid; while :; do sleep 0.05; done";
    machine.pod("polite", polite, json!({})).await;
    machine.pod("deaf", "trap '' TERM; sleep 1000 & echo $!; wait", json!({"terminationGracePeriodSeconds": 1})).await;
    for name in ["polite", "deaf"] {
        machine.phase(name, "Running").await;
    }
    let kubectl = machine.serve().await;
    eventually("the child is told", || !kubectl.command(&["logs", "deaf"]).output().unwrap().stdout.is_empty()).await;
    let child = machine.log("deaf", "").await;
    assert!(lives(&child));
    let follow = kubectl.command(&["logs", "-f", "polite"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    for name in ["polite", "deaf"] {
        machine.world.delete(&format!("{PODS}/{name}"), json!({})).await.expect(200);
    }
    for name in ["polite", "deaf"] {
        machine.until(name, "gone", Value::is_null).await;
    }
    let followed = tokio::task::spawn_blocking(|| follow.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&followed.stdout), "asked\n");
    assert!(!lives(&child));
}
