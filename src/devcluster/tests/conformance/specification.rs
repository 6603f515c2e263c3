//! Further claims: initial objects, directives of strategic merge patches, stored fields of individual kinds, and
//! validation of CRDs.

use crate::world::{claim, rv};
use reqwest::Method;
use serde_json::{Value, json};

#[test]
fn a_new_cluster_has_its_namespaces_service_and_priorities() {
    claim(async |w| {
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            let namespace = w.get(&format!("/api/v1/namespaces/{name}")).await.ok();
            assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], name);
        }
        let service = w.get("/api/v1/namespaces/default/services/kubernetes").await.ok();
        assert_eq!(service["spec"]["ports"][0]["name"], "https");
        for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
            let class = w.get(&format!("/apis/scheduling.k8s.io/v1/priorityclasses/{name}")).await.ok();
            assert_eq!(class["value"], value);
        }
    });
}

#[test]
fn a_watch_from_the_future_is_silent() {
    claim(async |w| {
        let now = rv(&w.get(&w.maps("")).await.ok());
        let path = w.maps(&format!("?watch=true&timeoutSeconds=1&resourceVersion={}", now + 1_000_000));
        let mut watch = w.watch(&path).await;
        w.map("a", json!({})).await;
        assert_eq!(watch.next().await, None);
    });
}

#[test]
fn a_strategic_patch_orders_replaces_keys_and_removes_from_plain_lists() {
    claim(async |w| {
        let container = |name: &str| json!({"name": name, "image": "i"});
        let template = json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [container("a"), container("b")], "volumes": [{"name": "v", "emptyDir": {}}]},
        });
        let spec = json!({"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template});
        let path = w.path("apps/v1", "deployments");
        let object = json!({"metadata": {"name": "d", "finalizers": ["a.b/c", "a.b/d"]}, "spec": spec});
        w.post(&path, object).await.code(201);
        let path = format!("{path}/d");
        let names = |object: &Value| -> Vec<String> {
            let containers = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
            containers.iter().map(|c| c["name"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let within = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
        // New elements come first unless an order is given.
        let added = w.strategic(&path, within(json!({"containers": [container("c")]}))).await.ok();
        assert_eq!(names(&added), ["c", "a", "b"]);
        let order = json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}, {"name": "c"}], "containers": [{"name": "a", "image": "j"}]});
        assert_eq!(names(&w.strategic(&path, within(order)).await.ok()), ["b", "a", "c"]);
        let kept =
            json!({"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m"}}]});
        let volume = w.strategic(&path, within(kept)).await.ok()["spec"]["template"]["spec"]["volumes"][0].clone();
        assert_eq!((volume.get("emptyDir"), &volume["configMap"]["name"]), (None, &json!("m")));
        let less = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/c"]}});
        assert_eq!(w.strategic(&path, less).await.ok()["metadata"]["finalizers"], json!(["a.b/d"]));
        w.merge(&path, json!({"metadata": {"finalizers": null}})).await.ok();
    });
}

#[test]
fn pods_are_selected_by_their_fields() {
    claim(async |w| {
        w.until(&w.path("v1", "serviceaccounts/default"), "the account is there", |a| a.code == 200).await;
        let pod = json!({"metadata": {"name": "p"}, "spec": {
            "nodeName": "nowhere", "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }});
        w.post(&w.path("v1", "pods"), pod).await.code(201);
        for (selector, found) in [
            ("spec.nodeName%3Dnowhere", 1),
            ("spec.nodeName!%3Dnowhere", 0),
            ("spec.restartPolicy%3DNever,spec.schedulerName%3Ddefault-scheduler", 1),
            ("spec.serviceAccountName%3Ddefault", 1),
            ("spec.hostNetwork%3Dfalse", 1),
            ("spec.hostNetwork%3Dtrue", 0),
            ("status.podIP%3D1.2.3.4", 0),
        ] {
            let list = w.get(&w.path("v1", &format!("pods?fieldSelector={selector}"))).await.ok();
            assert_eq!(list["items"].as_array().map(Vec::len), Some(found), "{selector}");
        }
        w.delete(&w.path("v1", "pods/p"), json!({"gracePeriodSeconds": 0})).await.code(200);
        w.get(&w.path("v1", "pods/p")).await.code(404);
    });
}

#[test]
fn a_pod_that_has_no_node_goes_at_once() {
    claim(async |w| {
        w.until(&w.path("v1", "serviceaccounts/default"), "the account is there", |a| a.code == 200).await;
        let spec = json!({"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]});
        w.post(&w.path("v1", "pods"), json!({"metadata": {"name": "p"}, "spec": spec})).await.code(201);
        let answer = w.send(Method::DELETE, &w.path("v1", "pods/p"), &[], "").await.ok();
        assert_eq!(answer["kind"], "Pod");
        w.get(&w.path("v1", "pods/p")).await.code(404);
    });
}

#[test]
fn classes_keep_what_they_are() {
    claim(async |w| {
        let name = format!("class-{}", w.ns);
        let priorities = "/apis/scheduling.k8s.io/v1/priorityclasses";
        w.forget_later(&format!("{priorities}/{name}"));
        w.post(priorities, json!({"metadata": {"name": name}, "value": 5})).await.code(201);
        let changed = w.merge(&format!("{priorities}/{name}"), json!({"value": 6})).await;
        changed.invalid("FieldValueForbidden", "value");
        let storage = "/apis/storage.k8s.io/v1/storageclasses";
        w.forget_later(&format!("{storage}/{name}"));
        let class = w.post(storage, json!({"metadata": {"name": name}, "provisioner": "a.b/c"})).await.ok();
        assert_eq!((&class["reclaimPolicy"], &class["volumeBindingMode"]), (&json!("Delete"), &json!("Immediate")));
        let changed = w.merge(&format!("{storage}/{name}"), json!({"provisioner": "a.b/d"})).await;
        assert_eq!(changed.causes(), ["FieldValueInvalid provisioner: Invalid value: \"a.b/d\": field is immutable"]);
        let wrong = w.post(priorities, json!({"metadata": {"name": "system-x"}, "value": 5})).await;
        wrong.invalid("FieldValueForbidden", "metadata.name");
    });
}

#[test]
fn a_group_of_kubernetes_needs_an_approval() {
    claim(async |w| {
        let definition = json!({
            "metadata": {"name": "widgets.claim.k8s.io"},
            "spec": {
                "group": "claim.k8s.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
        let refused = w.post(path, definition).await;
        refused.invalid("FieldValueRequired", "metadata.annotations[api-approved.kubernetes.io]");
    });
}

#[test]
fn custom_resources_are_selected_by_declared_fields() {
    claim(async |w| {
        let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
        let widgets = w.custom(schema, json!({"selectableFields": [{"jsonPath": ".spec.colour"}]})).await;
        for (name, colour) in [("a", "red"), ("b", "blue")] {
            w.post(&widgets.path, widgets.widget(name, json!({"colour": colour}))).await.code(201);
        }
        let list = w.get(&format!("{}?fieldSelector=spec.colour%3Dred", widgets.path)).await.ok();
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
        assert_eq!(list["items"][0]["metadata"]["name"], "a");
        let unknown = w.get(&format!("{}?fieldSelector=spec.size%3D1", widgets.path)).await;
        unknown.refused(400, "BadRequest", "field label not supported: spec.size");
    });
}

#[test]
fn fields_of_custom_resources_may_be_texts_or_numbers_and_keep_what_is_unknown() {
    claim(async |w| {
        let schema = json!({"type": "object", "properties": {
            "port": {"x-kubernetes-int-or-string": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "maybe": {"type": "string", "nullable": true},
        }});
        let widgets = w.custom(schema, json!({})).await;
        let spec = json!({"port": "http", "free": {"a": {"b": [1]}}, "maybe": null, "gone": 1});
        let made = w.post(&widgets.path, widgets.widget("a", spec)).await.ok();
        assert_eq!(made["spec"], json!({"port": "http", "free": {"a": {"b": [1]}}, "maybe": null}));
        w.post(&widgets.path, widgets.widget("b", json!({"port": 80}))).await.code(201);
        let wrong = w.post(&widgets.path, widgets.widget("c", json!({"port": true}))).await;
        wrong.invalid("FieldValueTypeInvalid", "spec.port");
    });
}

#[test]
fn deleting_what_is_being_deleted_changes_nothing() {
    claim(async |w| {
        let object = json!({"metadata": {"name": "a", "finalizers": ["a.b/c"]}});
        w.post(&w.maps(""), object).await.code(201);
        let first = w.delete(&w.maps("a"), json!({})).await.ok();
        let second = w.delete(&w.maps("a"), json!({})).await.ok();
        assert_eq!(first, second);
        assert!(!first["metadata"]["deletionTimestamp"].is_null(), "{first}");
        w.merge(&w.maps("a"), json!({"metadata": {"finalizers": null}})).await.ok();
        w.get(&w.maps("a")).await.code(404);
    });
}

#[test]
fn objects_of_all_kinds_can_be_made() {
    claim(async |w| {
        let pod = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        for (api_version, resource, rest) in [
            ("v1", "limitranges", json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}})),
            ("v1", "podtemplates", json!({"template": pod})),
            ("v1", "replicationcontrollers", json!({"spec": {"replicas": 0, "selector": {"a": "b"}, "template": pod}})),
            ("apps/v1", "controllerrevisions", json!({"revision": 1, "data": {"a": 1}})),
            (
                "discovery.k8s.io/v1",
                "endpointslices",
                json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}),
            ),
        ] {
            let mut object = rest;
            object["metadata"] = json!({"name": "a"});
            let path = w.path(api_version, resource);
            let made = w.post(&path, object).await.ok();
            assert_eq!(made["apiVersion"], api_version, "{resource}");
            let table = w.get_as(&path, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
            assert!(table["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{resource}");
            w.delete(&format!("{path}/a"), json!({"propagationPolicy": "Background"})).await.code(200);
        }
    });
}
