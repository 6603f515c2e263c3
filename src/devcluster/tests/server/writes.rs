//! Creating, replacing and patching: server-owned fields, refusals and counters.

use crate::world::{MAPS, World, version};
use serde_json::json;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment() -> serde_json::Value {
    json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
    }})
}

#[tokio::test]
async fn create_sets_what_the_server_owns() {
    let world = World::new();
    let body =
        json!({"metadata": {"name": "a", "uid": "x", "creationTimestamp": "2000-01-01T00:00:00Z", "selfLink": "y"}});
    let made = world.post(MAPS, body).await.expect(201);
    assert_eq!((made["kind"].as_str(), made["apiVersion"].as_str()), (Some("ConfigMap"), Some("v1")));
    assert_eq!(made["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert_ne!(made["metadata"]["creationTimestamp"], "2000-01-01T00:00:00Z");
    assert!(made["metadata"].get("selfLink").is_none() && made["metadata"].get("generation").is_none());
    assert_eq!(made["metadata"]["namespace"], "default");
    world.post(MAPS, json!({"metadata": {"name": "a"}})).await.refused(
        409,
        "AlreadyExists",
        "configmaps \"a\" already exists",
    );
    let generated = world.post(MAPS, json!({"metadata": {"generateName": "x-"}})).await.expect(201);
    assert_eq!(generated["metadata"]["name"].as_str().unwrap().len(), 7);
}

#[tokio::test]
async fn create_refuses_what_does_not_fit() {
    let world = World::new();
    world.post("/api/v1/namespaces/nope/configmaps", json!({"metadata": {"name": "a"}})).await.refused(
        404,
        "NotFound",
        "namespaces \"nope\" not found",
    );
    world.post(MAPS, json!({"metadata": {"name": "a", "namespace": "other"}})).await.refused(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
    world.post(MAPS, json!({"metadata": {}})).await.refused(
        422,
        "Invalid",
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
    );
    world.post(MAPS, json!({"metadata": {"name": "a", "resourceVersion": "1"}})).await.refused(
        500,
        "",
        "resourceVersion should not be set on objects to be created",
    );
    world.ask("POST", MAPS, "application/vnd.kubernetes.protobuf", "", "k8s".to_owned()).await.refused(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: application/json",
    );
    let large = json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(4 << 20)}});
    world.post(MAPS, large).await.refused(413, "RequestEntityTooLarge", "limit is 3145728");
}

#[tokio::test]
async fn update_needs_the_live_version_if_any() {
    let world = World::new();
    let made = world.map("a", json!({"x": "1"})).await;
    let mut next = made.clone();
    next["data"]["k"] = "w".into();
    let path = format!("{MAPS}/a");
    let first = world.put(&path, next.clone()).await.expect(200);
    assert_eq!(version(&first), version(&made) + 1);
    world.put(&path, next).await.refused(409, "Conflict", "the object has been modified; please apply your changes");
    let bare = world.put(&path, json!({"metadata": {"name": "a"}, "data": {"k": "u"}})).await.expect(200);
    assert!(bare["metadata"].get("labels").is_none());
    assert_eq!(bare["metadata"]["uid"], made["metadata"]["uid"]);
    let again = world.put(&path, bare.clone()).await.expect(200);
    assert_eq!(version(&again), version(&bare));
    world.put(&path, json!({"metadata": {"name": "zzz"}})).await.refused(
        400,
        "BadRequest",
        "the name of the object (zzz) does not match the name on the URL (a)",
    );
    world.put(&path, json!({})).await.refused(400, "BadRequest", "(a based on URL) was undeterminable");
    world.put(&format!("{MAPS}/none"), json!({"metadata": {"name": "none"}})).await.refused(404, "NotFound", "");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let made = world.put(lease, json!({"metadata": {"name": "l"}, "spec": {}})).await.expect(201);
    assert_eq!(made["kind"], "Lease");
    world.put(lease, json!({"metadata": {"name": "l"}, "spec": {}})).await.refused(
        422,
        "Invalid",
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
    );
}

#[tokio::test]
async fn concurrent_patches_without_a_version_all_succeed() {
    let world = World::new();
    world.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    let patches = (0..20).map(|i| world.merge(&path, json!({"data": {(format!("k{i}")): "v"}})));
    for answer in futures::future::join_all(patches).await {
        answer.expect(200);
    }
    let object = world.get(&path).await.expect(200);
    assert_eq!(object["data"].as_object().unwrap().len(), 21);
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let world = World::new();
    let mut body = deployment();
    body["status"] = json!({"replicas": 7});
    let made = world.post(DEPLOYMENTS, body).await.expect(201);
    assert_eq!((&made["metadata"]["generation"], made["status"].get("replicas")), (&json!(1), None));
    let path = format!("{DEPLOYMENTS}/d");
    let status =
        world.merge(&format!("{path}/status"), json!({"spec": {"replicas": 9}, "status": {"replicas": 3}})).await;
    let status = status.expect(200);
    assert_eq!((&status["spec"]["replicas"], &status["status"]["replicas"]), (&json!(1), &json!(3)));
    assert_eq!(status["metadata"]["generation"], 1);
    let spec = world.merge(&path, json!({"spec": {"replicas": 2}, "status": {"replicas": 9}})).await.expect(200);
    assert_eq!((&spec["spec"]["replicas"], &spec["status"]["replicas"]), (&json!(2), &json!(3)));
    assert_eq!(spec["metadata"]["generation"], 2);
}

#[tokio::test]
async fn scale_is_a_view_of_replicas() {
    let world = World::new();
    world.post(DEPLOYMENTS, deployment()).await.expect(201);
    let path = format!("{DEPLOYMENTS}/d/scale");
    let scale = world.get(&path).await.expect(200);
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
    assert_eq!(scale["status"]["selector"], "app=d");
    let scaled = world.merge(&path, json!({"spec": {"replicas": 4}})).await.expect(200);
    assert_eq!(scaled["spec"]["replicas"], 4);
    let live = world.get(&format!("{DEPLOYMENTS}/d")).await.expect(200);
    assert_eq!((&live["spec"]["replicas"], &live["metadata"]["generation"]), (&json!(4), &json!(2)));
}

#[tokio::test]
async fn dry_run_stores_nothing() {
    let world = World::new();
    let before = world.server.store().version();
    let made = world.post(&format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "a"}})).await.expect(201);
    assert!(made["metadata"].get("resourceVersion").is_none() && made["metadata"]["uid"].is_string());
    world.get(&format!("{MAPS}/a")).await.expect(404);
    world.map("a", json!({})).await;
    world.delete(&format!("{MAPS}/a"), json!({"dryRun": ["All"]})).await.expect(200);
    world.get(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(world.server.store().version(), before + 1);
    world.post(&format!("{MAPS}?dryRun=Some"), json!({"metadata": {"name": "b"}})).await.refused(
        422,
        "Invalid",
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
    );
}

#[tokio::test]
async fn patches_check_their_form() {
    let world = World::new();
    world.map("a", json!({})).await;
    let path = format!("{MAPS}/a");
    world.ask("PATCH", &path, "application/json", "", "{}".to_owned()).await.refused(
        415,
        "UnsupportedMediaType",
        "415: Unsupported Media Type",
    );
    world.merge(&path, json!([])).await.refused(400, "BadRequest", "error decoding patch");
    world.merge(&path, json!({"metadata": {"resourceVersion": "1"}})).await.refused(409, "Conflict", "");
    world.merge(&path, json!({"metadata": {"name": "b"}})).await.refused(400, "BadRequest", "does not match the name");
    world.merge(&path, json!({"metadata": {"uid": "b"}})).await.refused(422, "Invalid", "metadata.uid: Invalid value");
    world.merge(&format!("{path}?force=true"), json!({})).await.refused(422, "Invalid", "force");
    world.apply(&path, json!({"apiVersion": "v1", "kind": "ConfigMap"})).await.refused(
        422,
        "Invalid",
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    );
    world.apply(&format!("{path}?fieldManager=m"), json!({"apiVersion": "v1", "kind": "Secret"})).await.refused(
        400,
        "BadRequest",
        "invalid object type: /v1, Kind=Secret",
    );
    let absent = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "abc"}});
    world.apply(&format!("{MAPS}/b?fieldManager=m"), absent).await.refused(
        409,
        "Conflict",
        "uid mismatch: the provided object specified uid abc, and no existing object was found",
    );
}

#[tokio::test]
async fn duplicate_fields_are_reported_or_refused() {
    let world = World::new();
    let body = r#"{"metadata":{"name":"a"},"data":{"k":"v","k":"w"}}"#;
    let strict = format!("{MAPS}?fieldValidation=Strict");
    world.ask("POST", &strict, "application/json", "", body.to_owned()).await.refused(
        400,
        "BadRequest",
        "strict decoding error: duplicate field \"data.k\"",
    );
    let made = world.ask("POST", MAPS, "application/json", "", body.to_owned()).await;
    assert_eq!(made.expect(201)["data"]["k"], "w");
    assert_eq!(made.headers["warning"], "299 - \"duplicate field \\\"data.k\\\"\"");
}

#[tokio::test]
async fn metadata_is_validated() {
    let world = World::new();
    let made = |metadata: serde_json::Value| {
        let world = &world;
        async move { world.post(MAPS, json!({"metadata": metadata})).await }
    };
    made(json!({"name": "a", "labels": {"x": "a b"}})).await.refused(
        422,
        "Invalid",
        "metadata.labels: Invalid value: \"a b\"",
    );
    made(json!({"name": "a", "finalizers": ["x"]})).await.refused(422, "Invalid", "Invalid value: \"x\"");
    let long = "x".repeat(300 * 1024);
    made(json!({"name": "a", "annotations": {"x": long}})).await.refused(
        422,
        "Invalid",
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    );
}

#[tokio::test]
async fn faults_and_counts_are_per_request() {
    let world = World::new();
    let fault = json!({"verb": "create", "resource": "configmaps", "code": 403, "times": 1});
    world.post("/devcluster/fail-next", fault).await.expect(200);
    world.post(MAPS, json!({"metadata": {"name": "a"}})).await.refused(
        403,
        "Forbidden",
        "User \"admin\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"",
    );
    world.map("a", json!({})).await;
    world.post("/devcluster/fail-next", json!({"verb": "get", "code": 429})).await.expect(200);
    let busy = world.get(&format!("{MAPS}/a")).await;
    assert_eq!((busy.code, &busy.headers["retry-after"]), (429, &http::HeaderValue::from_static("1")));
    let counters = world.get("/devcluster/counters").await.expect(200);
    let count = counters["requests"].as_array().unwrap().iter().find(|c| c["verb"] == "create").unwrap();
    assert_eq!(count, &json!({"verb": "create", "resource": "configmaps", "userAgent": "tester", "count": 2}));
}
