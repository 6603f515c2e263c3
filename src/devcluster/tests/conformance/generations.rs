//! Changes that increment the generation, kinds that PUT creates, and the maximum size of objects.

use serde_json::{Value, json};

use crate::world::{World, claim};

/// Creates and patches an object. Returns its generation after each step.
async fn generations(w: &World, path: &str, body: Value, patches: &[Value]) -> Vec<Value> {
    let mut body = body;
    let name = format!("g-{}", w.ns);
    body["metadata"] = json!({"name": name});
    let at = format!("{path}/{name}");
    w.forget_later(&at);
    let made = w.post(path, body).await.code(201).body;
    let mut found = vec![made["metadata"]["generation"].clone()];
    for patch in patches {
        let after = w.merge(&at, patch.clone()).await.code(200).body;
        found.push(after["metadata"]["generation"].clone());
    }
    found
}

#[test]
fn a_changed_spec_is_a_new_generation_and_changed_metadata_is_not() {
    claim(async |w| {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
        let service = |name: &str| json!({"service": {"name": name, "port": {"number": 1}}});
        for (api, resource, body, change) in [
            (
                "apps/v1",
                "statefulsets",
                json!({"spec": {"replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template}}),
                json!({"spec": {"minReadySeconds": 3}}),
            ),
            (
                "networking.k8s.io/v1",
                "ingresses",
                json!({"spec": {"defaultBackend": service("x")}}),
                json!({"spec": {"defaultBackend": service("y")}}),
            ),
            (
                "networking.k8s.io/v1",
                "networkpolicies",
                json!({"spec": {"podSelector": {}}}),
                json!({"spec": {"policyTypes": ["Egress"]}}),
            ),
            (
                "policy/v1",
                "poddisruptionbudgets",
                json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"z": "z"}}}}),
                json!({"spec": {"minAvailable": 2}}),
            ),
            (
                "batch/v1",
                "cronjobs",
                json!({"spec": {"schedule": "0 0 1 1 *", "jobTemplate": job}}),
                json!({"spec": {"suspend": true}}),
            ),
        ] {
            let annotated = json!({"metadata": {"annotations": {"x": "y"}}});
            let labelled = json!({"metadata": {"labels": {"x": "y"}}});
            let found = generations(w, &w.path(api, resource), body, &[annotated, labelled, change]).await;
            assert_eq!(found, [1, 1, 1, 2], "{resource}");
        }
    });
}

#[test]
fn some_kinds_have_no_generations() {
    claim(async |w| {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"});
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
        for (path, body, change) in [
            (
                w.path("autoscaling/v2", "horizontalpodautoscalers"),
                json!({"spec": {"scaleTargetRef": target, "maxReplicas": 1}}),
                json!({"spec": {"maxReplicas": 2}}),
            ),
            (w.path("rbac.authorization.k8s.io/v1", "roles"), json!({"rules": []}), json!({"rules": [rule]})),
            (
                w.path("coordination.k8s.io/v1", "leases"),
                json!({"spec": {"holderIdentity": "x"}}),
                json!({"spec": {"holderIdentity": "y"}}),
            ),
            (
                "/apis/storage.k8s.io/v1/storageclasses".to_owned(),
                json!({"provisioner": "x"}),
                json!({"allowVolumeExpansion": true}),
            ),
            (w.path("v1", "secrets"), json!({}), json!({"stringData": {"a": "b"}})),
        ] {
            let found = generations(w, &path, body, &[change]).await;
            assert_eq!(found, [Value::Null, Value::Null], "{path}");
        }
        let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
        let found = generations(w, classes, json!({"value": 5}), &[json!({"description": "x"})]).await;
        assert_eq!(found, [1, 1], "a priority class has only one");
    });
}

#[test]
fn a_replacement_creates_objects_of_some_kinds() {
    claim(async |w| {
        let role = json!({"kind": "Role", "name": "x", "apiGroup": "rbac.authorization.k8s.io"});
        for (api, resource, code, body) in [
            ("v1", "services", 201, json!({"spec": {"ports": [{"port": 1}]}})),
            ("v1", "endpoints", 201, json!({})),
            ("v1", "limitranges", 201, json!({"spec": {"limits": [{"type": "Pod"}]}})),
            ("v1", "events", 201, json!({"involvedObject": {"namespace": w.ns}})),
            ("rbac.authorization.k8s.io/v1", "roles", 201, json!({})),
            ("rbac.authorization.k8s.io/v1", "rolebindings", 201, json!({"roleRef": role})),
            ("v1", "secrets", 404, json!({})),
            ("v1", "serviceaccounts", 404, json!({})),
            ("v1", "resourcequotas", 404, json!({})),
            ("v1", "podtemplates", 404, json!({})),
            ("policy/v1", "poddisruptionbudgets", 404, json!({"spec": {"minAvailable": 1}})),
        ] {
            let mut body = body;
            body["metadata"] = json!({"name": "u"});
            let answer = w.put(&format!("{}/u", w.path(api, resource)), body).await;
            assert_eq!(answer.code, code, "{resource}: {}", answer.text);
        }
    });
}

#[test]
fn objects_may_only_be_so_large() {
    claim(async |w| {
        let map = |length: usize| json!({"metadata": {"name": "big"}, "data": {"k": "x".repeat(length)}});
        let answer = w.post(&w.maps(""), map((1 << 20) + 1)).await.code(422);
        assert_eq!(answer.causes()[0].split(':').next(), Some("FieldValueTooLong []"), "{}", answer.causes()[0]);
        w.post(&w.maps(""), map((1 << 20) - 10)).await.code(201);
        let container = json!({"name": "c", "image": "i", "args": ["x".repeat(1_700_000)]});
        let pod = json!({"metadata": {"name": "huge"}, "spec": {"containers": [container]}});
        let answer = w.post(&w.path("v1", "pods"), pod).await;
        assert_eq!((answer.code, answer.message()), (500, "etcdserver: request is too large"));
    });
}

#[test]
fn objects_in_a_terminating_namespace_can_still_change() {
    claim(async |w| {
        let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
        w.post(&w.maps(""), held).await.code(201);
        w.delete(&format!("/api/v1/namespaces/{}", w.ns), json!({})).await.code(200);
        let changed = w.merge(&w.maps("held"), json!({"data": {"a": "b"}})).await.code(200).body;
        assert_eq!(changed["data"], json!({"a": "b"}));
        let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
        let message = format!(
            "configmaps \"new\" is forbidden: unable to create new content in namespace {} because it is being terminated",
            w.ns
        );
        w.apply(&w.maps("new"), "m", config).await.refused(403, "Forbidden", &message);
        let freed = w.merge(&w.maps("held"), json!({"metadata": {"finalizers": null}})).await;
        assert!(matches!(freed.code, 200), "{}", freed.text);
    });
}
