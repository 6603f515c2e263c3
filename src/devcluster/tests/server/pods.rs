//! Pods as processes: their inputs, their end and their status.

use crate::machine::{HOST, Machine, PODS, eventually, lives};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};

fn state(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_and_its_end_is_reported() {
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
    let tmp = json!({"volumes": [{"name": "tmp", "emptyDir": {}}], "containers": [{"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}]});
    machine.pod("temporary", "echo $TMPDIR > $LAST_WORDS", tmp).await;
    let pod = machine.phase("temporary", "Succeeded").await;
    let message = state(&pod)["terminated"]["message"].as_str().unwrap_or_default();
    assert!(message.ends_with("/volumes/tmp\n"), "{message}");
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
    let polite = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    machine.pod("polite", polite, json!({})).await;
    machine.pod("deaf", "trap '' TERM; sleep 1000 & echo $!; wait", json!({"terminationGracePeriodSeconds": 1})).await;
    for name in ["polite", "deaf"] {
        machine.phase(name, "Running").await;
    }
    let kubectl = machine.serve().await;
    eventually("the child is told", || !kubectl.command(&["logs", "deaf"]).output().unwrap().stdout.is_empty()).await;
    let child = machine.log("deaf", "").await;
    assert!(lives(&child));
    let mut follow = kubectl.command(&["logs", "-f", "polite"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = move || lines.next().map(Result::unwrap);
    assert_eq!(next().unwrap(), "ready");
    for name in ["polite", "deaf"] {
        machine.world.delete(&format!("{PODS}/{name}"), json!({})).await.expect(200);
    }
    for name in ["polite", "deaf"] {
        machine.until(name, "gone", Value::is_null).await;
    }
    let end = tokio::task::spawn_blocking(move || (next(), next(), follow.wait().unwrap().success())).await.unwrap();
    assert_eq!(end, (Some("asked".to_owned()), None, true));
    assert!(!lives(&child));
}

#[tokio::test(flavor = "multi_thread")]
async fn references_of_a_container_may_be_created_later() {
    let machine = Machine::new();
    let from = |kind: &str, name: &str, key: &str| json!({"name": name.to_uppercase(), "valueFrom": {kind: {"name": name, "key": key}}});
    let env = json!([from("configMapKeyRef", "map", "k"), from("secretKeyRef", "hidden", "k")]);
    machine.pod("late", "echo $MAP $HIDDEN", json!({"containers": [{"env": env}]})).await;
    let waits = |message: &'static str| {
        move |pod: &Value| {
            let waiting = &state(pod)["waiting"];
            waiting["reason"] == "CreateContainerConfigError" && waiting["message"] == message
        }
    };
    machine.until("late", "without its ConfigMap", waits("configmap \"map\" not found")).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    machine.world.post(maps, json!({"metadata": {"name": "map"}, "data": {"other": "x"}})).await.expect(201);
    machine.until("late", "without its key", waits("couldn't find key k in ConfigMap default/map")).await;
    machine.world.merge(&format!("{maps}/map"), json!({"data": {"k": "v"}})).await.expect(200);
    machine.until("late", "without its Secret", waits("secret \"hidden\" not found")).await;
    let secrets = "/api/v1/namespaces/default/secrets";
    machine.world.post(secrets, json!({"metadata": {"name": "hidden"}, "stringData": {"k": "s"}})).await.expect(201);
    machine.phase("late", "Succeeded").await;
    assert_eq!(machine.log("late", "").await, "v s\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_objects_are_files_that_change_with_them() {
    let machine = Machine::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "map"}, "data": {"a": "1", "b": "2"}});
    machine.world.post(maps, map).await.expect(201);
    let change = json!({
        "volumes": [
            {"name": "all", "configMap": {"name": "map"}},
            {"name": "some", "configMap": {"name": "map", "items": [{"key": "a", "path": "deep/x"}]}},
        ],
        "containers": [{
            "env": [{"name": "ALL", "value": "/all"}, {"name": "SOME", "value": "/some:/other"}, {"name": "ONE", "value": "/one"}],
            "volumeMounts": [
                {"name": "all", "mountPath": "/all"}, {"name": "some", "mountPath": "/some"},
                {"name": "all", "mountPath": "/one", "subPath": "b"},
            ],
        }],
    });
    let script =
        "ls $ALL; cat ${SOME%%:*}/deep/x $ONE; echo; until [ \"$(cat $ALL/a)\" = 9 ]; do sleep 0.05; done; ls $ALL";
    machine.pod("files", script, change).await;
    machine.phase("files", "Running").await;
    machine.until_log("files", "12\n").await;
    machine.world.merge(&format!("{maps}/map"), json!({"data": {"a": "9", "b": null, "c": "3"}})).await.expect(200);
    machine.phase("files", "Succeeded").await;
    assert_eq!(machine.log("files", "").await, "a\nb\n12\na\nc\n");
    machine.pod("refused", "true", json!({"volumes": [{"name": "p", "hostPath": {"path": "/"}}]})).await;
    let told = || {
        let events = machine.world.server.objects("v1", "events", Some("default"));
        let message =
            "MountVolume.SetUp failed for volume \"p\" : volumes of type hostPath are not supported by this node";
        events.iter().any(|event| event["reason"] == "FailedMount" && event["message"] == message)
    };
    eventually("the volume is refused", told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_on_disk_only_while_a_container_runs_that_has_it() {
    let machine = Machine::new();
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["first", "last"] {
        let secret = json!({"metadata": {"name": name}, "stringData": {"word": format!("the {name} secret")}});
        machine.world.post(secrets, secret).await.expect(201);
    }
    // Lists every secret that a container finds in the volumes of its pod.
    let look = "grep -rhs 'the .* secret' \"$TMPDIR/../volumes\" | sort | tr '\\n' ' '";
    let container = |name: &str, mounts: Value| json!({"name": name, "image": HOST, "command": ["sh", "-c", look], "volumeMounts": mounts});
    let mount = |name: &str| json!([{"name": name, "mountPath": format!("/{name}")}]);
    let volume = |name: &str| json!({"name": name, "secret": {"secretName": name}});
    let spec = json!({
        "restartPolicy": "Never", "volumes": [volume("first"), volume("last")],
        "initContainers": [container("a", mount("first")), container("b", json!([]))],
        "containers": [container("c", mount("last"))],
    });
    machine.world.post(PODS, json!({"metadata": {"name": "p"}, "spec": spec})).await.expect(201);
    machine.phase("p", "Succeeded").await;
    let mut seen = Vec::new();
    for container in ["a", "b", "c"] {
        seen.push(machine.log("p", &format!("container={container}")).await.trim().to_owned());
    }
    assert_eq!(seen, ["the first secret", "", "the last secret"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_has_the_environment_of_its_pod_and_no_other() {
    let machine = Machine::new();
    let change = json!({"containers": [{
        "env": [
            {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "AT", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"name": "BOTH", "value": "$(WHO)@$(AT)"},
        ],
    }]});
    machine.pod("clean", "env | cut -d= -f1 | sort | tr '\\n' ' '; echo; echo $BOTH $POD_ADDRESS", change).await;
    let pod = machine.phase("clean", "Succeeded").await;
    let address = pod["status"]["podIP"].as_str().unwrap();
    let log = machine.log("clean", "").await;
    let names = "AT BOTH DEVCLUSTER_CONTAINER HOME HOSTNAME LAST_WORDS PATH POD_ADDRESS PWD TMPDIR WHO ";
    assert_eq!(log, format!("{names}\nclean@{address} {address}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_decide_what_is_started_ready_and_alive() {
    let machine = Machine::new();
    let exec =
        |script: &str| json!({"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": 1});
    let change = json!({"restartPolicy": "Always", "containers": [{
        "startupProbe": {"exec": {"command": ["sh", "-c", "test -e $TMPDIR/up"]}, "periodSeconds": 1, "failureThreshold": 30},
        "readinessProbe": exec("test ! -e $TMPDIR/busy"), "livenessProbe": exec("test ! -e $TMPDIR/dead"),
    }]});
    let script = "echo $TMPDIR; rm -f $TMPDIR/dead; exec sleep 1000";
    machine.pod("probed", script, change).await;
    let container = |pod: &Value| pod["status"]["containerStatuses"][0].clone();
    let pod = machine.phase("probed", "Running").await;
    assert_eq!((&container(&pod)["started"], &container(&pod)["ready"]), (&json!(false), &json!(false)));
    eventually("the place is told", || {
        let nodes = machine.directory.path().join("node");
        std::fs::read_dir(nodes).unwrap().flatten().any(|node| {
            let pod = node.path().join("pods").join(pod["metadata"]["uid"].as_str().unwrap());
            std::fs::write(pod.join("tmp/up"), "").is_ok()
        })
    })
    .await;
    machine.until("probed", "ready", |pod| container(pod)["ready"] == true && container(pod)["started"] == true).await;
    let place = machine.log("probed", "").await;
    let place = std::path::Path::new(place.trim());
    std::fs::write(place.join("busy"), "").unwrap();
    machine.until("probed", "no longer ready", |pod| container(pod)["ready"] == false).await;
    std::fs::remove_file(place.join("busy")).unwrap();
    machine.until("probed", "ready again", |pod| container(pod)["ready"] == true).await;
    std::fs::write(place.join("dead"), "").unwrap();
    machine
        .until("probed", "restarted", |pod| container(pod)["restartCount"] == 1 && container(pod)["ready"] == true)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_init_containers_ends_as_on_a_real_cluster() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let step = |name: &str, script: &str| json!({"name": name, "image": HOST, "command": ["sh", "-c", script]});
    let job = |name: &str, script: &str, more: Value| {
        let mut spec = json!({"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "initContainers": [step("a", "true")], "containers": [step("b", script)],
            "terminationGracePeriodSeconds": 1,
        }}});
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for (name, script, more) in [
        ("good", "true", json!({})),
        ("bad", "exit 7", json!({})),
        ("slow", "sleep 1000", json!({"activeDeadlineSeconds": 1})),
        ("short", "true", json!({"ttlSecondsAfterFinished": 0})),
    ] {
        machine.world.post(jobs, job(name, script, more)).await.expect(201);
    }
    kubectl.run(&["wait", "--for=condition=complete", "job/good", "--timeout=30s"]).await;
    kubectl.run(&["wait", "--for=condition=failed", "job/bad", "job/slow", "--timeout=30s"]).await;
    kubectl.run(&["wait", "--for=delete", "job/short", "--timeout=30s"]).await;
    let reason = |name: &str| {
        let job = machine.world.server.object("batch/v1", "jobs", "default", name).unwrap();
        let conditions = job["status"]["conditions"].as_array().unwrap().clone();
        let failed = conditions.into_iter().find(|c| c["type"] == "Failed").unwrap();
        failed["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!((reason("bad"), reason("slow")), ("BackoffLimitExceeded".into(), "DeadlineExceeded".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_no_file_is_none() {
    let machine = Machine::new();
    machine.pod("pipe", "rm $LAST_WORDS; mkfifo $LAST_WORDS", json!({})).await;
    machine.pod("link", "ln -sf /etc/passwd $LAST_WORDS", json!({})).await;
    machine.pod("flood", "yes > $LAST_WORDS & until [ -s $LAST_WORDS ]; do sleep 0.05; done", json!({})).await;
    for (name, length) in [("pipe", 0), ("link", 0), ("flood", 4096)] {
        let pod = machine.phase(name, "Succeeded").await;
        let message = state(&pod)["terminated"]["message"].as_str().unwrap_or_default();
        assert_eq!(message.len(), length, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_a_failed_attempt() {
    let machine = Machine::new();
    let container = json!({"name": "main", "image": HOST, "command": ["no-such-program"]});
    let pod = json!({"metadata": {"name": "none"}, "spec": {"restartPolicy": "Never", "containers": [container]}});
    machine.world.post(PODS, pod).await.expect(201);
    let pod = machine.phase("none", "Failed").await;
    let ended = &state(&pod)["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("StartError"), &json!(128)));
    assert_eq!(ended["message"], "exec: \"no-such-program\": executable file not found in $PATH");
}
