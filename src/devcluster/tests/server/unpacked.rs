//! Pods whose images are in the embedded registry.

use crate::machine::{Machine, PODS};
use crate::process::isolated;
use devcluster::registry::name::Digest;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt as _};

/// Creates a layer by the `tar` of this machine.
fn layer(files: &[(&str, &str, u32)]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    for (name, text, mode) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
    }
    let made = isolated("tar").args(["-cz", "-C"]).arg(directory.path()).arg(".").output().unwrap();
    assert!(made.status.success());
    made.stdout
}

async fn send(machine: &Machine, method: &str, path: &str, media: &str, body: Vec<u8>) {
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let response = machine.world.send(request.body(Full::new(body.into())).unwrap()).await;
    let code = response.status();
    let Ok(said) = response.into_body().collect().await;
    assert_eq!(code, 201, "{said:?}");
}

async fn blob(machine: &Machine, media: &str, bytes: Vec<u8>) -> Value {
    let (digest, size) = (Digest::of(&bytes).as_str().to_owned(), bytes.len());
    send(machine, "POST", &format!("/v2/app/blobs/uploads/?digest={digest}"), "application/octet-stream", bytes).await;
    json!({"mediaType": media, "digest": digest, "size": size})
}

/// Pushes an image and returns its digest.
async fn push(machine: &Machine, config: Value, layers: Vec<Vec<u8>>) -> String {
    let config = json!({"architecture": "amd64", "os": "linux", "config": config});
    let config = blob(machine, "application/vnd.oci.image.config.v1+json", config.to_string().into()).await;
    let mut pushed = Vec::new();
    for layer in layers {
        pushed.push(blob(machine, "application/vnd.oci.image.layer.v1.tar+gzip", layer).await);
    }
    let media = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({"schemaVersion": 2, "mediaType": media, "config": config, "layers": pushed}).to_string();
    let digest = Digest::of(manifest.as_bytes()).as_str().to_owned();
    send(machine, "PUT", "/v2/app/manifests/v1", media, manifest.into()).await;
    digest
}

fn pod(image: &str, change: &Value) -> Value {
    let mut container = json!({"name": "main", "image": image});
    for (field, value) in change.as_object().unwrap() {
        container[field] = value.clone();
    }
    json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never", "containers": [container]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_the_registry_brings_files_and_words() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let run = "#!/bin/sh\ncat $DATA/text \"$1\"; pwd | sed s,.*/app,/app,; echo $MODE; type run\n";
    let low = layer(&[("opt/bin/run", run, 0o755), ("app/text", "low\n", 0o644), ("app/gone", "gone\n", 0o644)]);
    let high = layer(&[("app/text", "high\n", 0o644), ("app/.wh.gone", "", 0o644), ("app/more", "more\n", 0o644)]);
    let config = json!({
        "Env": ["PATH=/opt/bin:/usr/bin:/bin", "DATA=/app", "MODE=image"], "Entrypoint": ["run"], "Cmd": ["/app/more"],
        "WorkingDir": "/app",
    });
    let digest = push(&machine, config, vec![low, high]).await;
    let image = format!("{}/app:v1@{digest}", kubectl.host());
    let env = json!([{"name": "MODE", "value": "pod"}]);
    machine.world.post(PODS, pod(&image, &json!({"env": env}))).await.expect(201);
    let ended = machine.phase("p", "Succeeded").await;
    let log = machine.log("p", "").await;
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(&lines[..4], ["high", "more", "/app", "pod"], "{log}");
    assert!(lines[4].starts_with("run is ") && lines[4].ends_with("opt/bin/run"), "{log}");
    let id = ended["status"]["containerStatuses"][0]["imageID"].as_str().unwrap();
    assert!(id.ends_with(&format!("/app@{digest}")), "{id}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_missing_may_be_pushed_later() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let image = format!("{}/app:v1", kubectl.host());
    machine.world.post(PODS, pod(&image, &json!({"command": ["cat", "/app/text"]}))).await.expect(201);
    let waits = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff";
    machine.until("p", "without its image", waits).await;
    push(&machine, json!({}), vec![layer(&[("app/text", "here\n", 0o644)])]).await;
    machine.phase("p", "Succeeded").await;
    assert_eq!(machine.log("p", "").await, "here\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_leads_outside_is_refused() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("../../../../etc", directory.path().join("app")).unwrap();
    let made = isolated("tar").args(["-cz", "-C"]).arg(directory.path()).arg("app").output().unwrap();
    push(&machine, json!({}), vec![made.stdout]).await;
    machine
        .world
        .post(PODS, pod(&format!("{}/app:v1", kubectl.host()), &json!({"command": ["cat", "/app/passwd"]})))
        .await;
    let refused = |pod: &Value| {
        let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap_or_default();
        message.ends_with("a link leads out of the image")
    };
    machine.until("p", "refused", refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_images_do_not_pile_up() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let image = format!("{}/app:v1", kubectl.host());
    push(&machine, json!({}), vec![layer(&[("app/run", "#!/bin/sh\ntest -e $0 && exec sleep 1000\n", 0o755)])]).await;
    let mut held = pod(&image, &json!({"command": ["/app/run"]}));
    held["metadata"]["name"] = "held".into();
    machine.world.post(PODS, held).await.expect(201);
    machine.phase("held", "Running").await;
    let unpacked = || {
        let nodes = fs::read_dir(machine.directory.path().join("node")).unwrap().flatten();
        nodes.flat_map(|node| fs::read_dir(node.path().join("images")).unwrap().flatten()).count()
    };
    for round in 0..8 {
        push(&machine, json!({}), vec![layer(&[("app/text", &format!("{round}\n"), 0o644)])]).await;
        machine.world.post(PODS, pod(&image, &json!({"command": ["cat", "/app/text"]}))).await.expect(201);
        machine.phase("p", "Succeeded").await;
        assert_eq!(machine.log("p", "").await, format!("{round}\n"));
        machine.world.delete(&format!("{PODS}/p"), json!({})).await.expect(200);
        machine.until("p", "gone", Value::is_null).await;
    }
    crate::machine::eventually("only four are kept, and the one that runs", || unpacked() == 5).await;
    let run = fs::read_dir(machine.directory.path().join("node")).unwrap().flatten().any(|node| {
        fs::read_dir(node.path().join("images")).unwrap().flatten().any(|image| image.path().join("app/run").exists())
    });
    assert!(run);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_image_does_not_see_the_packages_of_this_machine() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let here = isolated("python3").args(["-c", "import pip"]).status();
    assert!(here.expect("`python3` is installed (apt-get install python3 python3-pip)").success());
    let script = "import importlib.util, json, sys\nprint(importlib.util.find_spec('pip'), json.dumps('x'))\nexit(0)\n";
    let config = json!({"Entrypoint": ["python3", "/app/main.py"], "Env": ["PATH=/usr/bin:/bin"]});
    push(&machine, config, vec![layer(&[("app/main.py", script, 0o644)])]).await;
    machine.world.post(PODS, pod(&format!("{}/app:v1", kubectl.host()), &json!({}))).await.expect(201);
    machine.phase("p", "Succeeded").await;
    assert_eq!(machine.log("p", "").await, "None \"x\"\n");
}
