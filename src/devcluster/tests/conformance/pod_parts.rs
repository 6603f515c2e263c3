//! Mutable parts of a pod: ephemeral containers and resources, each through a subresource.

use reqwest::Method;
use serde_json::{Value, json};

use crate::accounts::token;
use crate::bindings::{unplaced, unplaced_with};
use crate::connections::{core, refused, refusing};
use crate::world::{Answer, World, claim, fields, managers};

fn debug(name: &str, more: Value) -> Value {
    let mut container = json!({"name": name, "image": "busybox"});
    for (field, value) in more.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    json!({"spec": {"ephemeralContainers": [container]}})
}

fn resources(resources: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})
}

/// Creates a pod that no scheduler binds, with an init container, requests and limits.
async fn sized(w: &World, name: &str) -> Value {
    let requests = json!({"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"});
    let main = json!({"requests": requests, "limits": {"cpu": "200m", "memory": "128Mi"}});
    let more = json!({
        "containers": [{"name": "c", "image": "nginx:1", "resources": main}],
        "initContainers": [{"name": "i", "image": "nginx:1", "resources": {"requests": {"cpu": "100m"}}}],
    });
    unplaced_with(w, name, more).await
}

async fn own(w: &World, path: &str, patch: Value) -> Answer {
    w.strategic(&format!("{path}?fieldManager=me"), patch).await
}

#[test]
fn an_ephemeral_container_is_added_once() {
    claim(async |w| {
        unplaced(w, "p").await;
        let path = w.path("v1", "pods/p/ephemeralcontainers");
        let patch = debug("d", json!({"targetContainerName": "c", "stdin": true}));
        let added = own(w, &path, patch.clone()).await.ok();
        let complete = json!([{
            "name": "d", "image": "busybox", "targetContainerName": "c", "stdin": true, "resources": {},
            "imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        }]);
        assert_eq!((&added["spec"]["ephemeralContainers"], &added["metadata"]["generation"]), (&complete, &json!(2)));
        assert!(managers(&added).contains(&"me/Update/ephemeralcontainers".to_owned()), "{added}");
        let owned = json!({"f:spec": {"f:ephemeralContainers": {".": {}, "k:{\"name\":\"d\"}": {
            ".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {}, "f:stdin": {},
            "f:targetContainerName": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
        }}}});
        assert_eq!(fields(&added, "me", "Update"), owned);
        assert_eq!(own(w, &path, patch).await.ok(), added, "the same again changes nothing");
        assert_eq!(w.get(&path).await.ok(), added);
        let dry = w.strategic(&format!("{path}?dryRun=All"), debug("e", json!({}))).await.ok();
        let names: Vec<&Value> =
            dry["spec"]["ephemeralContainers"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        assert_eq!((names, &dry["metadata"]["generation"]), (vec![&json!("e"), &json!("d")], &json!(3)));
        assert_eq!(w.get(&w.path("v1", "pods/p")).await.ok(), added);
    });
}

#[test]
fn ephemeral_containers_neither_change_nor_go() {
    claim(async |w| {
        unplaced(w, "p").await;
        let path = w.path("v1", "pods/p/ephemeralcontainers");
        w.strategic(&path, debug("d", json!({}))).await.code(200);
        let forbidden = |what: &str| {
            format!(
                "Pod \"p\" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be {what}\n"
            )
        };
        let changed = w.strategic(&path, debug("d", json!({"image": "other"}))).await;
        changed.refused_like(422, "Invalid", &forbidden("changed"));
        for none in [json!([]), Value::Null] {
            let patch = json!({"spec": {"ephemeralContainers": none}});
            w.merge(&path, patch).await.refused(422, "Invalid", &forbidden("removed"));
        }
        let mut pod = w.get(&path).await.ok();
        pod["spec"]["ephemeralContainers"] =
            json!([{"name": "d", "image": "busybox", "imagePullPolicy": "Always"}, {"name": "e", "image": "x:1"}]);
        let done = w.put(&path, pod.clone()).await.ok();
        assert_eq!(done["spec"]["ephemeralContainers"][1]["name"], "e");
        let stale = "Operation cannot be fulfilled on pods \"p\": the object has been modified; please apply your changes to the latest version and try again";
        w.put(&path, pod).await.refused(409, "Conflict", stale);
    });
}

#[test]
fn only_ephemeral_containers_change_there_and_only_there() {
    claim(async |w| {
        let before = unplaced(w, "p").await;
        let path = w.path("v1", "pods/p/ephemeralcontainers");
        let mut patch = debug("d", json!({}));
        patch["spec"]["containers"] = json!([{"name": "c", "image": "changed"}]);
        patch["metadata"] = json!({"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.b/c"]});
        patch["status"] = json!({"phase": "Failed"});
        let after = w.strategic(&path, patch).await.ok();
        assert_eq!(after["spec"]["ephemeralContainers"][0]["name"], "d");
        assert_eq!(after["spec"]["containers"], before["spec"]["containers"]);
        for field in ["labels", "annotations", "finalizers"] {
            assert_eq!(after["metadata"][field], before["metadata"][field], "{field}");
        }
        assert_eq!(after["status"], before["status"]);
        let main = w.strategic(&w.path("v1", "pods/p"), debug("e", json!({}))).await;
        main.refused_like(422, "Invalid", "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`");
        let mut pod = json!({"metadata": {"name": "q"}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
        pod["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "x"}]);
        let message = "Pod \"q\" is invalid: spec.ephemeralContainers: Forbidden: cannot be set on create";
        w.post(&w.path("v1", "pods"), pod).await.refused(422, "Invalid", message);
    });
}

#[test]
fn an_ephemeral_container_has_no_services() {
    claim(async |w| {
        unplaced(w, "p").await;
        let path = w.path("v1", "pods/p/ephemeralcontainers");
        let at = "spec.ephemeralContainers[0]";
        let not = "Forbidden: cannot be set for an Ephemeral Container";
        let probe = json!({"exec": {"command": ["a"]}});
        let serving = json!({
            "ports": [{"containerPort": 1}], "resources": {"limits": {"cpu": "1"}}, "livenessProbe": probe,
            "readinessProbe": probe, "startupProbe": probe, "lifecycle": {"preStop": probe},
        });
        let many: Vec<String> = ["ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"]
            .iter()
            .map(|field| format!("{at}.{field}: {not}"))
            .collect();
        for (patch, why) in [
            (debug("c", json!({})), format!("{at}.name: Duplicate value: \"c\"")),
            (debug("d", json!({"targetContainerName": "z"})), format!("{at}.targetContainerName: Not found: \"z\"")),
            (debug("d", serving), format!("[{}]", many.join(", "))),
            (debug("d", json!({"image": ""})), format!("{at}.image: Required value")),
            (
                debug("d", json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a"}]})),
                format!("[{at}.volumeMounts[0].name: Not found: \"v\", {at}.volumeMounts[0].subPath: {not}]"),
            ),
        ] {
            let message = format!("Pod \"p\" is invalid: {why}");
            w.strategic(&path, patch).await.refused(422, "Invalid", &message);
        }
        w.strategic(&path, debug("N_1", json!({}))).await.invalid("FieldValueInvalid", &format!("{at}.name"));
        let missing = w.path("v1", "pods/q/ephemeralcontainers");
        w.strategic(&missing, debug("d", json!({}))).await.refused(404, "NotFound", "pods \"q\" not found");
    });
}

#[test]
fn an_ephemeral_container_can_be_applied() {
    claim(async |w| {
        unplaced(w, "p").await;
        let path = w.path("v1", "pods/p/ephemeralcontainers");
        let mut config = debug("d", json!({}));
        config["apiVersion"] = "v1".into();
        config["kind"] = "Pod".into();
        let applied = w.apply(&path, "me", config).await.ok();
        assert_eq!(applied["spec"]["ephemeralContainers"][0]["name"], "d");
        assert_eq!(applied["metadata"]["generation"], 2);
        assert!(managers(&applied).contains(&"me/Apply/ephemeralcontainers".to_owned()), "{applied}");
    });
}

#[test]
fn a_resize_changes_resources_and_nothing_else() {
    claim(async |w| {
        let before = sized(w, "p").await;
        let path = w.path("v1", "pods/p/resize");
        let mut patch = resources(json!({"requests": {"cpu": "150m"}}));
        let first = own(w, &path, patch.clone()).await.ok();
        let requests = json!({"cpu": "150m", "memory": "64Mi", "ephemeral-storage": "1Gi"});
        assert_eq!(first["spec"]["containers"][0]["resources"]["requests"], requests);
        assert_eq!((&first["metadata"]["generation"], &first["status"]), (&json!(2), &before["status"]));
        let owned =
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:resources": {"f:requests": {"f:cpu": {}}}}}}});
        assert_eq!(fields(&first, "me", "Update"), owned);
        assert!(managers(&first).contains(&"me/Update/resize".to_owned()), "{first}");
        assert_eq!(own(w, &path, patch.clone()).await.ok(), first, "the same again changes nothing");
        patch["spec"]["containers"][0]["image"] = "changed".into();
        patch["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "256Mi"}});
        patch["spec"]["activeDeadlineSeconds"] = 5.into();
        patch["metadata"] = json!({"labels": {"a": "b"}});
        let second = w.strategic(&path, patch).await.ok();
        assert_eq!(second["spec"]["containers"][0]["image"], "nginx:1");
        assert_eq!(second["spec"]["containers"][0]["resources"]["limits"], json!({"cpu": "200m", "memory": "256Mi"}));
        assert_eq!(
            (&second["spec"]["activeDeadlineSeconds"], &second["metadata"]["labels"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(second["metadata"]["generation"], 3);
        let unasked = w.strategic(&path, resources(json!({"requests": {"cpu": null}}))).await.ok();
        assert_eq!(
            unasked["spec"]["containers"][0]["resources"]["requests"]["cpu"], "200m",
            "the limit is what is asked for"
        );
        let init = json!({"spec": {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]}});
        assert_eq!(
            w.strategic(&path, init).await.ok()["spec"]["initContainers"][0]["resources"]["requests"]["cpu"],
            "1"
        );
        let mut config = resources(json!({"requests": {"cpu": "170m"}}));
        config["apiVersion"] = "v1".into();
        config["kind"] = "Pod".into();
        let applied = w.force(&path, "applier", config).await.ok();
        assert_eq!(applied["spec"]["containers"][0]["resources"]["requests"]["cpu"], "170m");
        assert!(managers(&applied).contains(&"applier/Apply/resize".to_owned()), "{applied}");
    });
}

#[test]
fn a_running_container_says_what_it_has() {
    claim(async |w| {
        let container = json!({"name": "c", "image": "nginx:1", "resources": {"requests": {"cpu": "100m"}}});
        let spec = json!({"terminationGracePeriodSeconds": 0, "containers": [container]});
        w.post(&w.path("v1", "pods"), json!({"metadata": {"name": "p"}, "spec": spec})).await.code(201);
        let path = w.path("v1", "pods/p");
        let has = |cpu: &'static str| {
            let wanted = json!({"requests": {"cpu": cpu}});
            move |a: &Answer| a.body["status"]["containerStatuses"][0]["resources"] == wanted
        };
        let pod = w.until(&path, "the container has what it asks for", has("100m")).await;
        assert_eq!(pod.body["status"]["containerStatuses"][0]["allocatedResources"], json!({"cpu": "100m"}));
        let resized =
            w.strategic(&format!("{path}/resize"), resources(json!({"requests": {"cpu": "200m"}}))).await.ok();
        assert_eq!(resized["metadata"]["generation"], 2);
        w.until(&path, "the container has what it asks for now", has("200m")).await;
        let observed = |a: &Answer| a.body["status"]["observedGeneration"] == 2;
        w.until(&path, "the resize has been seen", observed).await;
    });
}

#[test]
fn forbidden_changes_by_a_resize_are_refused() {
    claim(async |w| {
        sized(w, "p").await;
        let path = w.path("v1", "pods/p/resize");
        let at = "spec.containers[0].resources";
        let only = "spec: Forbidden: only cpu and memory resources are mutable";
        for (wanted, why) in [
            (
                json!({"requests": {"cpu": "300m"}}),
                format!("{at}.requests: Invalid value: \"300m\": must be less than or equal to cpu limit of 200m"),
            ),
            (json!({"limits": {"cpu": null}}), format!("{at}.limits: Forbidden: resource limits cannot be removed")),
            (json!({"requests": {"ephemeral-storage": "2Gi"}}), only.to_owned()),
            (
                json!({"requests": {"cpu": "-1"}}),
                format!("{at}.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"),
            ),
        ] {
            let message = format!("Pod \"p\" is invalid: {why}");
            w.strategic(&path, resources(wanted)).await.refused(422, "Invalid", &message);
        }
        let policy = |resource: &str, restart: &str| json!({"spec": {"containers": [{"name": "c", "resizePolicy": [{"resourceName": resource, "restartPolicy": restart}]}]}});
        let message = format!("Pod \"p\" is invalid: {only}");
        w.strategic(&path, policy("cpu", "RestartContainer")).await.refused(422, "Invalid", &message);
        let field = "spec.containers[0].resizePolicy";
        let message = format!(
            "Pod \"p\" is invalid: [{field}: Unsupported value: \"disk\": supported values: \"cpu\", \"memory\", {field}: \
             Unsupported value: \"Foo\": supported values: \"NotRequired\", \"RestartContainer\", {only}]"
        );
        w.strategic(&path, policy("disk", "Foo")).await.refused(422, "Invalid", &message);
        let other = json!({"spec": {"containers": [{"name": "d", "image": "x"}]}});
        let message =
            "Pod \"p\" is invalid: spec.containers: Forbidden: containers may not be added or removed on resize";
        w.strategic(&path, other.clone()).await.refused(422, "Invalid", message);
        let none = json!({"spec": {"initContainers": []}});
        w.merge(&path, none).await.invalid("FieldValueForbidden", "spec.initContainers");
        let through = w.strategic(&w.path("v1", "pods/p"), resources(json!({"requests": {"cpu": "160m"}}))).await;
        through.refused_like(
            422,
            "Invalid",
            "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than",
        );
        let missing = w.path("v1", "pods/q/resize");
        w.strategic(&missing, resources(json!({}))).await.refused(404, "NotFound", "pods \"q\" not found");
        assert_eq!(w.get(&w.path("v1", "pods/p")).await.ok()["metadata"]["generation"], 1);
    });
}

#[test]
fn a_resize_renames_no_container_and_changes_no_class() {
    claim(async |w| {
        unplaced(w, "p").await;
        let path = w.path("v1", "pods/p/resize");
        let class = "spec: Invalid value: \"BestEffort\": Pod QOS Class may not change as a result of resizing";
        let message = format!("Pod \"p\" is invalid: {class}");
        w.strategic(&path, resources(json!({"requests": {"cpu": "1"}}))).await.refused(422, "Invalid", &message);
        let other = json!({"spec": {"containers": [{"name": "d", "image": "x"}]}});
        let message = "Pod \"p\" is invalid: spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize";
        w.merge(&path, other).await.refused(422, "Invalid", message);
    });
}

#[test]
fn a_pod_that_is_never_restarted_has_no_resize_that_restarts() {
    claim(async |w| {
        let policy = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
        let container = json!({"name": "c", "image": "x:1", "resizePolicy": policy});
        let pod = json!({"metadata": {"name": "p"}, "spec": {"restartPolicy": "Never", "containers": [container]}});
        let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
        let message = format!(
            "Pod \"p\" is invalid: spec.containers[0].resizePolicy: Invalid value: \"RestartContainer\": {why}"
        );
        w.post(&w.path("v1", "pods"), pod).await.refused(422, "Invalid", &message);
    });
}

#[test]
fn static_pods_stay_as_they_are() {
    claim(async |w| {
        let nodes = w.get("/api/v1/nodes?limit=1").await.ok();
        let pod = json!({
            "metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": "x"}},
            "spec": {"nodeName": nodes["items"][0]["metadata"]["name"], "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "x:1"}]},
        });
        w.post(&w.path("v1", "pods"), pod).await.code(201);
        let debugged = w.strategic(&w.path("v1", "pods/p/ephemeralcontainers"), debug("d", json!({}))).await;
        debugged.refused(
            422,
            "Invalid",
            "Pod \"p\" is invalid: []: Forbidden: static pods do not support ephemeral containers",
        );
        let resized = w.strategic(&w.path("v1", "pods/p/resize"), resources(json!({"limits": {"cpu": "1"}}))).await;
        resized.refused(422, "Invalid", "Pod \"p\" is invalid: []: Forbidden: static pods cannot be resized");
    });
}

#[test]
fn webhooks_judge_changes_of_parts() {
    claim(async |w| {
        unplaced(w, "e").await;
        sized(w, "r").await;
        let hooks = refusing(w, json!(["UPDATE"]), json!(["pods/ephemeralcontainers", "pods/resize"])).await;
        for (path, body, sub) in [
            ("pods/e/ephemeralcontainers", debug("d", json!({})), "ephemeralcontainers"),
            ("pods/r/resize", resources(json!({"requests": {"cpu": "150m"}})), "resize"),
        ] {
            let mut pod = w.get(&w.path("v1", path)).await.ok();
            let mut merged = pod["spec"].clone();
            for (field, value) in body["spec"].as_object().unwrap() {
                merged[field] = value.clone();
            }
            if sub == "resize" {
                merged["containers"] = pod["spec"]["containers"].clone();
                merged["containers"][0]["resources"]["requests"]["cpu"] = "150m".into();
            }
            pod["spec"] = merged;
            let request = refused(w, &hooks, Method::PUT, &w.path("v1", path), pod).await;
            assert_eq!((&request["kind"], &request["operation"]), (&core("Pod"), &json!("UPDATE")));
            assert_eq!((&request["subResource"], &request["options"]["kind"]), (&json!(sub), &json!("UpdateOptions")));
            assert_eq!(request["oldObject"]["metadata"]["generation"], 1);
            let pod = w.get(&w.path("v1", path)).await.ok();
            assert_eq!(pod["metadata"]["generation"], 1, "{sub}");
        }
    });
}

#[test]
fn a_user_without_rights_on_a_subresource_is_refused() {
    claim(async |w| {
        let token = token(w, "a").await;
        let user = format!("system:serviceaccount:{}:a", w.ns);
        for part in ["ephemeralcontainers", "resize"] {
            for (method, verb) in [(Method::GET, "get"), (Method::PUT, "update"), (Method::PATCH, "patch")] {
                let message = format!(
                    "pods \"p\" is forbidden: User \"{user}\" cannot {verb} resource \"pods/{part}\" in API group \"\" in the namespace \"{}\"",
                    w.ns
                );
                let path = w.path("v1", &format!("pods/p/{part}"));
                w.bear(&token, method, &path, json!({})).await.refused(403, "Forbidden", &message);
            }
        }
        let post = w.post(&w.path("v1", "pods/p/resize"), json!({})).await;
        post.refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
    });
}
