//! The server answers every request: it never panics, hangs or returns an empty error.
//!
//! Valid requests are mutated randomly in path, query, media type and body (seeded; `DEVCLUSTER_HOSTILE` sets their
//! number). The server runs in process, so its panics fail the test.

use crate::world::World;
use devcluster::Options;
use fastrand::Rng;
use futures::FutureExt as _;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MEDIA: [&str; 10] = [
    "application/json",
    "application/yaml",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "",
    "text/csv",
    ";;=",
];
const QUERIES: [&str; 30] = [
    "watch=1",
    "watch",
    "limit=-1",
    "limit=18446744073709551615",
    "limit=1",
    "continue=%00",
    "continue=eyJydiI6MTg0NDY3NDQwNzM3MDk1NTE2MTUsIm5hbWVzcGFjZSI6IiIsIm5hbWUiOiIifQ",
    "resourceVersion=0",
    "resourceVersion=18446744073709551615",
    "resourceVersion=x",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=true",
    "allowWatchBookmarks=true",
    "timeoutSeconds=18446744073709551615",
    "timeoutSeconds=0",
    "labelSelector=a%20in%20(",
    "labelSelector=!,,=(%F0%9F%92%A5)%3E1",
    "labelSelector=x%3E99999999999999999999",
    "fieldSelector=%3D%3D!%3D",
    "fieldSelector=metadata.name%3D",
    "fieldManager=m",
    "fieldManager=%C3%A9%0A",
    "force=true",
    "dryRun=All",
    "fieldValidation=Strict",
    "propagationPolicy=Foreground",
    "propagationPolicy=Orphan",
    "gracePeriodSeconds=9223372036854775807",
    "%&=&&==%zz%",
];

fn definition() -> Value {
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
            "additionalPrinterColumns": [{"name": "N", "type": "date", "jsonPath": ".spec.l[?(@.k=='x')].v"}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {
                    "n": {"type": "integer", "minimum": 1, "multipleOf": 2, "default": 2},
                    "p": {"type": "string", "pattern": "^a+$", "maxLength": 9, "format": "date-time"},
                    "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                        "items": {"type": "object", "required": ["k"],
                            "properties": {"k": {"type": "string"}, "v": {"x-kubernetes-int-or-string": true}}}},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }, "x-kubernetes-validations": [{"rule": "!has(self.n) || self.n * 2 < 100"}]},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        }],
    }})
}

/// Valid requests: the path of a collection, and an object for it.
fn good() -> Vec<(&'static str, Value)> {
    let pod = json!({"containers": [{"name": "c", "image": "x:1", "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}},
        "readinessProbe": {"httpGet": {"port": 80}}}], "volumes": [{"name": "v", "configMap": {"name": "x"}}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = "Never".into();
    let selector =
        json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"});
    let in_default = |group: &'static str, kind: &str, spec: Value| {
        let api_version = group.split('/').skip(2).take_while(|p| *p != "namespaces").collect::<Vec<_>>().join("/");
        (
            group,
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "labels": {"l": "v"},
            "annotations": {"n": "1"}, "finalizers": ["a.b/c"]}, "spec": spec}),
        )
    };
    let mut all = vec![
        in_default("/api/v1/namespaces/default/pods", "Pod", template["spec"].clone()),
        in_default(
            "/api/v1/namespaces/default/services",
            "Service",
            json!({"type": "NodePort", "ports": [{"port": 80}]}),
        ),
        in_default(
            "/apis/apps/v1/namespaces/default/deployments",
            "Deployment",
            json!({"replicas": 1, "selector": selector, "template": template}),
        ),
        in_default(
            "/apis/apps/v1/namespaces/default/statefulsets",
            "StatefulSet",
            json!({"serviceName": "s", "selector": selector, "template": template}),
        ),
        in_default("/apis/batch/v1/namespaces/default/jobs", "Job", json!({"template": once})),
        in_default(
            "/apis/batch/v1/namespaces/default/cronjobs",
            "CronJob",
            json!({"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": once}}}),
        ),
        in_default(
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            json!({"maxReplicas": 3, "scaleTargetRef": target,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}]}),
        ),
        in_default(
            "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
            "HorizontalPodAutoscaler",
            json!({"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 60}),
        ),
        in_default(
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            "PodDisruptionBudget",
            json!({"minAvailable": "50%", "selector": selector}),
        ),
        in_default(
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            "Ingress",
            json!({"rules": [{"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}),
        ),
        in_default(
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            "Lease",
            json!({"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15}),
        ),
        in_default(
            "/api/v1/namespaces/default/persistentvolumeclaims",
            "PersistentVolumeClaim",
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
        ),
        in_default("/api/v1/namespaces", "Namespace", json!({"finalizers": ["kubernetes"]})),
        in_default(
            "/apis/example.com/v1/namespaces/default/widgets",
            "Widget",
            json!({"n": 2, "p": "a", "l": [{"k": "x", "v": "2026-01-01T00:00:00Z"}], "free": {"a": {"b": [1, 2]}}}),
        ),
    ];
    all.push(("/api/v1/namespaces/default/configmaps",
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": "v"}, "binaryData": {"b": "AA=="}})));
    all.push(("/api/v1/namespaces/default/secrets",
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "é-"}, "stringData": {"k": "v"}, "type": "Opaque"})));
    all.push((
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        json!({"metadata": {"name": "a:b"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    ));
    all.push((
        "/apis/events.k8s.io/v1/namespaces/default/events",
        json!({"metadata": {"name": "x"}, "regarding": {"kind": "ConfigMap", "name": "a", "namespace": "default"},
            "eventTime": "2026-01-01T00:00:00.000000Z", "action": "A", "reason": "R", "type": "Normal",
            "reportingController": "c", "reportingInstance": "c-0"}),
    ));
    all.push(("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json!({"spec": {"resourceAttributes": {}}})));
    all.push((
        "/devcluster/fail-next",
        json!({"verb": "get", "resource": "none", "code": 429, "body": "x", "times": 1}),
    ));
    let mut other = definition();
    other["metadata"]["name"] = "gadgets.example.com".into();
    other["spec"]["names"] = json!({"plural": "gadgets", "kind": "Gadget"});
    all.push((DEFINITIONS, other));
    all
}

fn odd(rng: &mut Rng) -> Value {
    match rng.u8(..18) {
        0 => Value::Null,
        1 => json!(i64::MAX),
        2 => json!(i64::MIN),
        3 => json!(u64::MAX),
        4 => json!(1e308),
        5 => json!(-0.0),
        6 => json!(""),
        7 => json!("\u{0}\u{10ffff}\u{e9}/~1%"),
        8 => json!([]),
        9 => json!({}),
        10 => json!([null, {}, [[]], {"name": null}]),
        11 => json!({"": {"": ""}, "$patch": "delete", "name": 1}),
        12 => (0..100).fold(json!("deep"), |inner, _| json!({"a": inner})),
        13 => (0..100).fold(json!([]), |inner, _| json!([inner])),
        14 => json!("9".repeat(400)),
        15 => json!("1e99999999Ei"),
        16 => json!(true),
        _ => json!("-"),
    }
}

/// Replaces, removes or adds a random value.
fn damage(value: &mut Value, rng: &mut Rng) {
    let inside = rng.u8(..5) > 0;
    match value {
        Value::Object(map) if inside && !map.is_empty() => {
            let key = map.keys().nth(rng.usize(..map.len())).cloned().unwrap_or_default();
            match rng.u8(..12) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert("bogus".to_owned(), odd(rng))),
                2 => drop(map.insert("$retainKeys".to_owned(), odd(rng))),
                3 => drop(map.insert(format!("$setElementOrder/{key}"), odd(rng))),
                4 => drop(map.insert(format!("$deleteFromPrimitiveList/{key}"), odd(rng))),
                _ => damage(map.get_mut(&key).expect("the key was just found"), rng),
            }
        }
        Value::Array(items) if inside && !items.is_empty() => {
            let at = rng.usize(..items.len());
            match rng.u8(..6) {
                0 => items.push(odd(rng)),
                1 => items.push(items[at].clone()),
                _ => damage(&mut items[at], rng),
            }
        }
        other => *other = odd(rng),
    }
}

/// A random JSON patch, which may be invalid.
fn operations(rng: &mut Rng) -> Value {
    let paths = [
        "",
        "/",
        "/metadata",
        "/metadata/name",
        "/spec",
        "/spec/template/spec/containers/0",
        "/spec/free/a/b/-",
        "/metadata/managedFields",
        "/metadata/managedFields/0/fieldsV1",
        "/metadata/finalizers",
        "/a~1b~",
        "/spec/free/x",
    ];
    let one = |rng: &mut Rng| {
        let op = ["add", "remove", "replace", "move", "copy", "test", "jump"][rng.usize(..7)];
        json!({"op": op, "path": paths[rng.usize(..paths.len())], "from": paths[rng.usize(..paths.len())], "value": odd(rng)})
    };
    (0..rng.usize(..6)).map(|_| one(rng)).collect()
}

fn request(good: &[(&str, Value)], rng: &mut Rng) -> Option<Request<Full<bytes::Bytes>>> {
    let (path, object) = &good[rng.usize(..good.len())];
    let method = ["GET", "POST", "PUT", "PATCH", "PATCH", "PATCH", "DELETE", "HEAD", "OPTIONS"][rng.usize(..9)];
    let mut path = (*path).to_owned();
    if method != "POST" || rng.u8(..10) == 0 {
        path.push_str(
            ["/x", "/x", "/x", "/x", "/x", "/x", "/a:b", "/default", "/widgets.example.com", "/%00", "/..", ""]
                [rng.usize(..12)],
        );
    }
    if rng.u8(..6) == 0 {
        path.push_str(["/status", "/scale", "/finalize", "/eviction", "/log", "/nothing", "/a/b/c"][rng.usize(..7)]);
    }
    if rng.u8(..12) == 0 {
        let at = rng.usize(1..path.len());
        path.replace_range(at..=at, ["/", "%", "%zz", "//", "é", ""][rng.usize(..6)]);
    }
    let mut queries: Vec<&str> = (0..rng.usize(..4)).map(|_| QUERIES[rng.usize(..QUERIES.len())]).collect();
    if rng.bool() {
        queries.push("fieldManager=m&force=true");
    }
    let path = format!("{path}?{}", queries.join("&"));
    let mut body = object.clone();
    for _ in 0..rng.usize(..3) {
        damage(&mut body, rng);
    }
    let mut media = if method == "PATCH" { MEDIA[rng.usize(2..6)] } else { "application/json" };
    if media == "application/json-patch+json" {
        body = operations(rng);
    }
    if rng.u8(..10) == 0 {
        media = MEDIA[rng.usize(..MEDIA.len())];
    }
    let mut bytes = body.to_string().into_bytes();
    match rng.u8(..12) {
        0 => bytes.truncate(rng.usize(..=bytes.len())),
        1 if !bytes.is_empty() => {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        2 => bytes.splice(0..0, b"k8s\0".iter().copied()).for_each(drop),
        _ => {}
    }
    let accept = [
        "",
        "application/json;as=Table;g=meta.k8s.io;v=v1",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "application/xml",
        ";,;",
    ][rng.usize(..6)];
    let request = Request::builder().method(method).uri(path).header("content-type", media).header("accept", accept);
    request.body(Full::new(bytes.into())).ok()
}

#[tokio::test]
async fn every_request_is_answered() {
    let rounds = std::env::var("DEVCLUSTER_HOSTILE").ok().and_then(|n| n.parse().ok()).unwrap_or(2_500_u64);
    let world = World::with(Options { future_wait: Duration::from_millis(1), ..Options::default() });
    world.server.start_controllers();
    world.post(DEFINITIONS, definition()).await.expect(201);
    let good = good();
    let mut codes = std::collections::BTreeMap::<u16, u32>::new();
    for seed in 0..rounds {
        if seed % 100 == 0 {
            for (path, object) in &good {
                world.post(path, object.clone()).await;
            }
        }
        let Some(request) = request(&good, &mut Rng::with_seed(seed)) else { continue };
        let shown = format!("seed {seed}: {} {}", request.method(), request.uri());
        let answer = tokio::time::timeout(Duration::from_secs(10), world.send(request)).await;
        let response = answer.unwrap_or_else(|_| panic!("{shown} is not answered"));
        let code = response.status().as_u16();
        *codes.entry(code).or_default() += 1;
        // A watch does not end; its beginning suffices.
        if let Some(whole) = response.into_body().collect().now_or_never() {
            let Ok(whole) = whole;
            let bytes = whole.to_bytes();
            let answered = code < 400 || !bytes.is_empty();
            assert!(answered, "{shown} is refused without a word");
        }
    }
    controllers_go_on(&world).await;
    for code in [200, 201, 400, 404, 405, 406, 409, 415, 422, 500] {
        assert!(codes.contains_key(&code), "no request led to a {code}: {codes:?}");
    }
}

/// Checks that a Deployment still creates a ReplicaSet and pods.
async fn controllers_go_on(world: &World) {
    world.ask("DELETE", "/devcluster/fail-next", "", "", String::new()).await.expect(200);
    world.post("/api/v1/namespaces", json!({"metadata": {"name": "after"}})).await.expect(201);
    let body = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}}});
    world.post("/apis/apps/v1/namespaces/after/deployments", body).await.expect(201);
    let mut pods = world.watch("/api/v1/namespaces/after/pods?watch=1").await;
    assert!(pods.short().await.starts_with("ADDED d-"));
}

#[tokio::test]
async fn an_object_that_could_not_be_read_back_is_not_stored() {
    let world = World::new();
    world.post(DEFINITIONS, definition()).await.expect(201);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let nested = |levels: usize| (0..levels).fold(json!("x"), |inner, _| json!({"a": inner}));
    let widget = |levels| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"free": nested(levels)}});
    world.post(widgets, widget(118)).await.expect(400);
    world.post(widgets, widget(60)).await.expect(201);
    let path = format!("{widgets}/x");
    let deeper = json!([{"op": "add", "path": format!("/spec/free{}/b", "/a".repeat(59)), "value": nested(60)}]);
    world.ask("PATCH", &path, "application/json-patch+json", "", deeper.to_string()).await.expect(422);
    // Each operation copies the whole spec into its own deepest level.
    let grow: Value = (0..400)
        .map(|n| json!({"op": "copy", "from": "/spec", "path": format!("/spec/free{}/b", "/b/free".repeat(n))}))
        .collect();
    world.ask("PATCH", &path, "application/json-patch+json", "", grow.to_string()).await.expect(422);
    let mut watch = world.watch(&format!("{widgets}?watch=1")).await;
    assert_eq!(watch.short().await, "ADDED x");
    world.merge(&path, json!({"spec": {"n": 4}})).await.expect(200);
    world.delete(&path, json!({})).await.expect(200);
    assert_eq!((watch.short().await, watch.short().await), ("MODIFIED x".to_owned(), "DELETED x".to_owned()));
}

#[tokio::test]
async fn a_mistyped_replica_count_does_not_fill_the_memory() {
    let world = World::with(Options { most_pods: 200, ..Options::default() });
    world.server.start_controllers();
    let body = json!({"metadata": {"name": "d"}, "spec": {"replicas": 2_000_000_000, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}}});
    world.post("/apis/apps/v1/namespaces/default/deployments", body).await.expect(201);
    let mut events = world.watch("/api/v1/namespaces/default/events?watch=1").await;
    loop {
        let event = events.next().await.expect("the watch goes on");
        if event["object"]["reason"] == "FailedCreate" {
            assert!(event["object"]["message"].as_str().unwrap().contains("room for"), "{event}");
            break;
        }
    }
    assert!(world.server.store().count("pods") <= 200);
}

#[tokio::test]
async fn the_body_may_not_be_a_bomb() {
    let world = World::new();
    let maps = crate::world::MAPS;
    let levels: Vec<String> =
        (1..12).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 10].join(","))).collect();
    let bomb = format!("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n{}data: *a11\n", levels.concat());
    let answer = world.ask("POST", maps, "application/yaml", "", bomb).await;
    assert!((400..500).contains(&answer.code), "{}", answer.code);
    let brackets = "[".repeat(1 << 20);
    for (media, code) in [("application/json", 400), ("application/yaml", 413)] {
        let answer = world.ask("POST", maps, media, "", brackets.clone()).await;
        assert_eq!(answer.code, code, "{media}");
    }
    let many: serde_json::Map<String, Value> = (0..50_000).map(|n| (format!("f{n}"), Value::Null)).collect();
    let mut body = Value::Object(many);
    body["metadata"] = json!({"name": "a"});
    let answer = world.post(maps, body).await;
    let warnings = answer.headers.get_all("warning").iter().count();
    assert!(answer.code == 201 && (1..100).contains(&warnings), "{} {warnings}", answer.code);
}
