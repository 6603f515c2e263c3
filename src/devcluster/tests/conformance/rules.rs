//! Rules of individual built-in kinds: dependent defaults and immutable fields.

use serde_json::{Value, json};

use crate::world::{World, claim, condition};

fn pod(name: &str, container: Value) -> Value {
    let mut body = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}});
    for (field, value) in container.as_object().into_iter().flatten() {
        body["spec"]["containers"][0][field] = value.clone();
    }
    body
}

async fn created(w: &World, pod: Value) -> Value {
    w.post(&w.path("v1", "pods?dryRun=All"), pod).await.code(201).body["spec"]["containers"][0].clone()
}

#[test]
fn images_of_no_version_are_always_pulled() {
    claim(async |w| {
        for (image, policy) in
            [("busybox", "Always"), ("busybox:latest", "Always"), ("busybox:1", "IfNotPresent"), ("h:5000/a", "Always")]
        {
            let made = created(w, pod("p", json!({"image": image}))).await;
            assert_eq!(made["imagePullPolicy"], policy, "{image}");
        }
    });
}

#[test]
fn limits_of_pods_are_their_requests_as_well() {
    claim(async |w| {
        let resources = json!({"limits": {"memory": "1024Mi", "cpu": "1000m"}, "requests": {"cpu": "0.5"}});
        let made = created(w, pod("p", json!({"resources": resources.clone()}))).await;
        let expected = json!({"limits": {"memory": "1Gi", "cpu": "1"}, "requests": {"memory": "1Gi", "cpu": "500m"}});
        assert_eq!(made["resources"], expected);
        let mut body = crate::patches::deployment("d");
        body["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "1Gi"}});
        let made = w.post(&w.path("apps/v1", "deployments?dryRun=All"), body).await.code(201).body;
        let resources = &made["spec"]["template"]["spec"]["containers"][0]["resources"];
        assert_eq!(resources, &json!({"limits": {"memory": "1Gi"}}));
    });
}

#[test]
fn probes_get_their_defaults() {
    claim(async |w| {
        let made = created(
            w,
            pod(
                "p",
                json!({"livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"exec": {"command": ["a"]}}}),
            ),
        )
        .await;
        let common = json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
        let mut live = common.clone();
        live["httpGet"] = json!({"path": "/", "port": 80, "scheme": "HTTP"});
        let mut ready = common;
        ready["exec"] = json!({"command": ["a"]});
        assert_eq!((&made["livenessProbe"], &made["readinessProbe"]), (&live, &ready));
    });
}

#[test]
fn a_pod_changes_in_a_few_fields_only() {
    claim(async |w| {
        let pods = w.path("v1", "pods");
        w.post(&pods, pod("p", json!({}))).await.code(201);
        let path = format!("{pods}/p");
        w.until(&path, "the pod is placed", |a| condition(&a.body, "Ready") == "True").await;
        let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "busybox:2"}]);
        w.json_patch(&path, image).await.code(200);
        w.merge(&path, json!({"spec": {"activeDeadlineSeconds": 1000}})).await.code(200);
        let more = w.merge(&path, json!({"spec": {"activeDeadlineSeconds": 2000}})).await;
        let why = "FieldValueInvalid spec.activeDeadlineSeconds: Invalid value: 2000: must be less than or equal to previous value";
        assert_eq!(more.code(422).causes(), [why]);
        w.json_patch(
            &path,
            json!([{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "k", "operator": "Exists"}}]),
        )
        .await
        .code(200);
        let changed = json!([{"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "A", "value": "b"}]}]);
        let start = "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)";
        w.json_patch(&path, changed).await.refused_like(422, "Invalid", start);
    });
}

#[test]
fn a_load_balancer_has_node_ports_unless_it_wants_none() {
    claim(async |w| {
        let path = w.path("v1", "services");
        let body = json!({"metadata": {"name": "l"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        let made = w.post(&path, body).await.code(201).body;
        assert_eq!(made["spec"]["allocateLoadBalancerNodePorts"], true);
        assert_eq!(made["spec"]["externalTrafficPolicy"], "Cluster");
        assert!(made["spec"]["ports"][0]["nodePort"].as_i64().is_some_and(|port| (30000..=32767).contains(&port)));
        let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 80}]});
        let made = w.post(&path, json!({"metadata": {"name": "n"}, "spec": spec})).await.code(201).body;
        assert_eq!(made["spec"]["ports"][0].get("nodePort"), None);
    });
}

#[test]
fn an_address_is_for_one_service_until_it_is_gone() {
    claim(async |w| {
        let path = w.path("v1", "services");
        let service = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
        let made = w.post(&path, service("a", json!({"ports": [{"port": 80}]}))).await.code(201).body;
        let ip = made["spec"]["clusterIP"].as_str().unwrap().to_owned();
        let wants = json!({"clusterIP": ip, "ports": [{"port": 80}]});
        let answer = w.post(&path, service("b", wants.clone())).await;
        let cause = format!(
            "FieldValueInvalid spec.clusterIPs: Invalid value: [\"{ip}\"]: failed to allocate IP {ip}: provided IP is already allocated"
        );
        assert_eq!(answer.code(422).causes(), [cause]);
        w.delete(&format!("{path}/a"), json!({})).await.code(200);
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
        while w.post(&path, service("b", wants.clone())).await.code != 201 {
            assert!(tokio::time::Instant::now() < deadline, "the address of a deleted Service is free");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn a_claim_is_bound_and_does_not_change() {
    claim(async |w| {
        let path = w.path("v1", "persistentvolumeclaims");
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let made = w.post(&path, json!({"metadata": {"name": "c"}, "spec": spec})).await.code(201).body;
        assert_eq!(made["status"], json!({"phase": "Pending"}));
        let bound = |a: &crate::world::Answer| a.body["status"]["phase"] == "Bound";
        let live = w.until(&format!("{path}/c"), "the claim is bound", bound).await.body;
        assert_eq!(live["status"]["capacity"], json!({"storage": "1Gi"}));
        assert_eq!(live["status"]["accessModes"], json!(["ReadWriteOnce"]));
        let name = live["spec"]["volumeName"].as_str().unwrap();
        let volume = w.until(&format!("/api/v1/persistentvolumes/{name}"), "the volume is bound", bound).await.body;
        assert_eq!(volume["spec"]["claimRef"]["uid"], made["metadata"]["uid"]);
        let start = "PersistentVolumeClaim \"c\" is invalid: spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        let change = json!({"spec": {"accessModes": ["ReadWriteMany"]}});
        w.merge(&format!("{path}/c"), change).await.refused_like(422, "Invalid", start);
    });
}

#[test]
fn network_policies_say_what_they_are_about() {
    claim(async |w| {
        let path = w.path("networking.k8s.io/v1", "networkpolicies?dryRun=All");
        for (spec, types) in [
            (json!({"podSelector": {}}), json!(["Ingress"])),
            (json!({"podSelector": {}, "egress": [{}]}), json!(["Ingress", "Egress"])),
            (json!({"podSelector": {}, "policyTypes": ["Egress"]}), json!(["Egress"])),
        ] {
            let made = w.post(&path, json!({"metadata": {"name": "n"}, "spec": spec})).await.code(201).body;
            assert_eq!(made["spec"]["policyTypes"], types);
        }
    });
}

#[test]
fn a_set_of_pods_must_be_able_to_select_them() {
    claim(async |w| {
        for (version, kind, plural) in [
            ("apps/v1", "StatefulSet", "statefulsets"),
            ("apps/v1", "DaemonSet", "daemonsets"),
            ("apps/v1", "ReplicaSet", "replicasets"),
        ] {
            let mut body = crate::patches::deployment("s");
            body["kind"] = kind.into();
            body["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
            let fields = body["spec"].as_object_mut().unwrap();
            fields.remove("strategy");
            if kind == "DaemonSet" {
                fields.remove("replicas");
            }
            let answer = w.post(&w.path(version, plural), body).await.code(422);
            let why = "FieldValueInvalid spec.template.metadata.labels: Invalid value: {\"app\":\"s\"}: `selector` does not match template `labels`";
            assert!(answer.causes().iter().any(|cause| cause == why), "{kind}: {:?}", answer.causes());
        }
    });
}
