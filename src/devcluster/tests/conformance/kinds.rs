//! Defaults and validation of individual built-in kinds.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{World, claim, rv};

fn job(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}},
        },
    })
}

#[test]
fn a_deployment_gets_its_defaults() {
    claim(async |w| {
        let mut body = deployment("d");
        body["spec"].as_object_mut().unwrap().remove("replicas");
        body["spec"]["template"]["spec"]["containers"][0] = json!({
            "name": "c", "image": "busybox", "ports": [{"containerPort": 80}],
            "readinessProbe": {"httpGet": {"port": 80}}, "env": [{"name": "E", "value": ""}],
        });
        let made = w.post(&w.path("apps/v1", "deployments?dryRun=All"), body).await.code(201).body;
        let spec = &made["spec"];
        assert_eq!(spec["replicas"], 1);
        assert_eq!(spec["revisionHistoryLimit"], 10);
        assert_eq!(spec["progressDeadlineSeconds"], 600);
        assert_eq!(
            spec["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}})
        );
        assert_eq!(
            spec["template"]["spec"],
            json!({
                "containers": [{
                    "name": "c", "image": "busybox", "imagePullPolicy": "Always", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "E"}],
                    "readinessProbe": {
                        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                    },
                }],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
                "securityContext": {}, "schedulerName": "default-scheduler",
            })
        );
        assert_eq!(made["metadata"]["generation"], 1);
        assert_eq!(made["status"], json!({}));
    });
}

#[test]
fn a_deployments_selector_is_immutable() {
    claim(async |w| {
        let path = w.path("apps/v1", "deployments");
        w.post(&path, deployment("d")).await.code(201);
        let patch = json!({"spec": {"selector": {"matchLabels": {"app": "zz"}}, "template": {"metadata": {"labels": {"app": "zz"}}}}});
        let message = "Deployment.apps \"d\" is invalid: spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"zz\"}}: field is immutable";
        let answer = w.merge(&format!("{path}/d"), patch).await.refused(422, "Invalid", message);
        assert_eq!(
            answer.causes(),
            ["FieldValueInvalid spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"zz\"}}: field is immutable"]
        );
        assert_eq!(answer.body["details"]["kind"], "Deployment");
        assert_eq!(answer.body["details"]["group"], "apps");
    });
}

#[test]
fn a_selector_must_match_the_template() {
    claim(async |w| {
        let mut body = deployment("d");
        body["spec"]["template"]["metadata"]["labels"] = json!({"app": "other"});
        let answer = w.post(&w.path("apps/v1", "deployments"), body).await;
        answer.invalid("FieldValueInvalid", "spec.template.metadata.labels");
    });
}

#[test]
fn several_faults_are_reported_together() {
    claim(async |w| {
        let mut body = deployment("d");
        body["spec"]["template"]["spec"] = json!({"containers": [{"name": "c"}], "restartPolicy": "Never"});
        let answer = w.post(&w.path("apps/v1", "deployments"), body).await;
        let answer = answer.invalid("FieldValueRequired", "spec.template.spec.containers[0].image");
        let answer = answer.invalid("FieldValueNotSupported", "spec.template.spec.restartPolicy");
        assert!(answer.message().starts_with("Deployment.apps \"d\" is invalid: ["), "{}", answer.text);
    });
}

#[test]
fn deployment_generations_count_spec_and_annotations_but_not_labels_or_status() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        w.post(&w.path("apps/v1", "deployments"), deployment("d")).await.code(201);
        let generation = |object: &Value| object["metadata"]["generation"].as_i64().unwrap();
        let labelled = w.merge(&path, json!({"metadata": {"labels": {"l": "1"}}})).await.ok();
        let base = generation(&labelled);
        let annotated = w.merge(&path, json!({"metadata": {"annotations": {"a": "1"}}})).await.ok();
        assert_eq!(generation(&annotated), base + 1);
        let status = w.merge(&format!("{path}/status"), json!({"status": {"collisionCount": 1}})).await.ok();
        assert_eq!(generation(&status), base + 1);
        let spec = w.merge(&path, json!({"spec": {"paused": true}})).await.ok();
        assert_eq!(generation(&spec), base + 2);
        w.merge(&format!("{path}/scale"), json!({"spec": {"replicas": 0}})).await.ok();
        assert_eq!(generation(&w.get(&path).await.ok()), base + 2);
    });
}

#[test]
fn the_status_endpoint_leaves_the_spec_and_the_main_endpoint_leaves_the_status() {
    claim(async |w| {
        let path = w.path("policy/v1", "poddisruptionbudgets");
        let body = json!({"metadata": {"name": "p"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"no": "pods"}}}, "status": {"expectedPods": 9}});
        let made = w.post(&path, body).await.code(201).body;
        assert_eq!(made["status"]["expectedPods"], 0);
        let patch = json!({"spec": {"minAvailable": 5}, "status": {"disruptionsAllowed": 0}});
        let after = w.merge(&format!("{path}/p/status"), patch).await.code(200).body;
        assert_eq!(after["spec"]["minAvailable"], 1);
        let after = w.merge(&format!("{path}/p"), json!({"status": {"expectedPods": 7}})).await.code(200).body;
        assert_ne!(after["status"]["expectedPods"], 7);
    });
}

#[test]
fn config_maps_and_services_have_no_generation() {
    claim(async |w| {
        let made = w.map("a", json!({"k": "1"})).await;
        assert_eq!(made["metadata"]["generation"], Value::Null);
        let body = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
        let made = w.post(&w.path("v1", "services"), body).await.code(201).body;
        assert_eq!(made["metadata"]["generation"], Value::Null);
    });
}

#[test]
fn a_service_gets_an_address_and_keeps_it() {
    claim(async |w| {
        let path = w.path("v1", "services");
        let body = json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}});
        let made = w.post(&path, body.clone()).await.code(201).body;
        let ip = made["spec"]["clusterIP"].as_str().unwrap().to_owned();
        assert!(ip.parse::<std::net::IpAddr>().is_ok(), "{ip}");
        assert_eq!(
            made["spec"],
            json!({
                "clusterIP": ip, "clusterIPs": [ip], "type": "ClusterIP", "sessionAffinity": "None",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
                "selector": {"app": "x"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            })
        );
        let mut replaced = body;
        replaced["metadata"]["labels"] = json!({"l": "1"});
        let after = w.put(&format!("{path}/s"), replaced).await.code(200).body;
        assert_eq!(after["spec"]["clusterIP"], ip.as_str());
        let answer = w.merge(&format!("{path}/s"), json!({"spec": {"clusterIP": "10.0.0.99"}})).await.code(422);
        let causes = answer.causes();
        let wanted = "FieldValueInvalid spec.clusterIPs[0]: Invalid value: [\"10.0.0.99\"]: may not change once set";
        assert!(causes.iter().any(|c| c == wanted), "{causes:?}");
    });
}

#[test]
fn services_of_other_types_differ_in_addresses_and_ports() {
    claim(async |w| {
        let path = w.path("v1", "services");
        let node = json!({"metadata": {"name": "n"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
        let made = w.post(&path, node).await.code(201).body;
        let port = made["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
        assert!((30000..=32767).contains(&port), "{port}");
        assert_eq!(made["spec"]["externalTrafficPolicy"], "Cluster");
        let taken =
            json!({"metadata": {"name": "t"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}});
        w.post(&path, taken).await.invalid("FieldValueInvalid", "spec.ports[0].nodePort");
        let headless = json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}});
        let made = w.post(&path, headless).await.code(201).body;
        assert_eq!(made["spec"]["clusterIPs"], json!(["None"]));
        let unnamed = json!({"metadata": {"name": "u"}, "spec": {"ports": [{"port": 80}, {"port": 81}]}});
        w.post(&path, unnamed).await.invalid("FieldValueRequired", "spec.ports[0].name");
    });
}

#[test]
fn a_job_gets_selector_and_labels_and_its_template_is_immutable() {
    claim(async |w| {
        let path = w.path("batch/v1", "jobs");
        let made = w.post(&path, job("j")).await.code(201).body;
        let uid = &made["metadata"]["uid"];
        assert_eq!(made["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
        let labels = json!({
            "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "j",
            "controller-uid": uid, "job-name": "j",
        });
        assert_eq!(made["spec"]["template"]["metadata"]["labels"], labels);
        assert_eq!(
            (&made["spec"]["completions"], &made["spec"]["parallelism"], &made["spec"]["backoffLimit"]),
            (&json!(1), &json!(1), &json!(6))
        );
        frozen(w, "j", "spec.template.spec").await;
        w.merge(&format!("{path}/j"), json!({"spec": {"parallelism": 2}})).await.code(200);
        let mut running = job("running");
        running["spec"]["suspend"] = false.into();
        w.post(&path, running).await.code(201);
        frozen(w, "running", "spec.template").await;
    });
}

/// Checks that a new image of a Job is refused at this field.
async fn frozen(w: &World, name: &str, field: &str) {
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "busybox:2"}]);
    let answer = w.json_patch(&w.path("batch/v1", &format!("jobs/{name}")), patch).await.code(422);
    let (causes, start) = (answer.causes(), format!("FieldValueInvalid {field}: Invalid value: "));
    assert!(causes[0].starts_with(&start) && causes[0].ends_with(": field is immutable"), "{causes:?}");
}

#[test]
fn a_suspended_job_takes_other_resources_and_another_place() {
    claim(async |w| {
        let path = w.path("batch/v1", "jobs");
        w.post(&path, job("j")).await.code(201);
        let patch = json!([
            {"op": "add", "path": "/spec/template/spec/containers/0/resources", "value": {"requests": {"cpu": "1"}}},
            {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"disk": "fast"}},
            {"op": "add", "path": "/spec/template/spec/tolerations", "value": [{"operator": "Exists"}]},
            {"op": "add", "path": "/spec/template/metadata/labels/more", "value": "yes"},
            {"op": "add", "path": "/spec/template/spec/affinity", "value": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}],
                },
            }}},
        ]);
        let changed = w.json_patch(&format!("{path}/j"), patch).await.code(200).body;
        assert_eq!(changed["spec"]["template"]["spec"]["nodeSelector"], json!({"disk": "fast"}));
        assert_eq!(
            changed["spec"]["template"]["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "1"}})
        );
        let back = json!([{"op": "remove", "path": "/spec/template/spec/affinity"}]);
        w.json_patch(&format!("{path}/j"), back).await.code(200);
    });
}

#[test]
fn a_job_must_finish_its_pods() {
    claim(async |w| {
        let mut body = job("j");
        body["spec"]["template"]["spec"].as_object_mut().unwrap().remove("restartPolicy");
        let answer = w.post(&w.path("batch/v1", "jobs"), body).await.code(422);
        let causes = answer.causes();
        assert!(causes.iter().any(|c| c.contains("spec.template.spec.restartPolicy")), "{causes:?}");
    });
}

#[test]
fn deleting_a_job_without_a_policy_warns_that_its_pods_stay() {
    claim(async |w| {
        let path = w.path("batch/v1", "jobs");
        w.post(&path, job("j")).await.code(201);
        let answer = w.delete(&format!("{path}/j"), json!({})).await.code(200);
        let warnings = answer.warnings();
        assert!(
            warnings.iter().any(|t| t.contains("child pods are preserved by default when jobs are deleted")),
            "{warnings:?}"
        );
    });
}

#[test]
fn a_cron_schedule_is_read() {
    claim(async |w| {
        let mut template = job("j")["spec"].clone();
        template.as_object_mut().unwrap().remove("suspend");
        let body = json!({"metadata": {"name": "c"}, "spec": {"schedule": "bogus", "suspend": true, "jobTemplate": {"spec": template}}});
        let path = w.path("batch/v1", "cronjobs");
        let answer = w.post(&path, body.clone()).await.code(422);
        assert_eq!(
            answer.causes(),
            ["FieldValueInvalid spec.schedule: Invalid value: \"bogus\": expected exactly 5 fields, found 1: [bogus]"]
        );
        let mut good = body;
        good["spec"]["schedule"] = "*/5 * * * *".into();
        let made = w.post(&path, good).await.code(201).body;
        assert_eq!(
            (&made["spec"]["concurrencyPolicy"], &made["spec"]["successfulJobsHistoryLimit"]),
            (&json!("Allow"), &json!(3))
        );
    });
}

#[test]
fn secrets_fold_string_data_and_keep_their_type() {
    claim(async |w| {
        let path = w.path("v1", "secrets");
        let body = json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"a": "eA==", "c": "ZA=="}});
        let made = w.post(&path, body).await.code(201).body;
        assert_eq!(made["data"], json!({"a": "Yg==", "c": "ZA=="}));
        assert_eq!(made["type"], "Opaque");
        let answer = w.merge(&format!("{path}/s"), json!({"type": "example.com/x"})).await;
        answer.invalid("FieldValueInvalid", "type");
    });
}

#[test]
fn secrets_of_known_types_need_their_keys_and_base64() {
    claim(async |w| {
        let path = w.path("v1", "secrets");
        let body = json!({"metadata": {"name": "s"}, "type": "kubernetes.io/tls", "stringData": {"tls.crt": "x"}});
        w.post(&path, body).await.invalid("FieldValueRequired", "data[tls.key]");
        let body = json!({"metadata": {"name": "s"}, "data": {"a": "not base64!"}});
        w.post(&path, body).await.refused_like(400, "BadRequest", "");
    });
}

#[test]
fn an_immutable_config_map_stays_as_it_is() {
    claim(async |w| {
        let body = json!({"metadata": {"name": "a"}, "immutable": true, "data": {"k": "v"}});
        w.post(&w.maps(""), body).await.code(201);
        let answer = w.merge(&w.maps("a"), json!({"data": {"k": "w"}})).await;
        let message = "ConfigMap \"a\" is invalid: data: Forbidden: field is immutable when `immutable` is set";
        let answer = answer.refused(422, "Invalid", message);
        assert_eq!(
            answer.causes(),
            ["FieldValueForbidden data: Forbidden: field is immutable when `immutable` is set"]
        );
        w.merge(&w.maps("a"), json!({"metadata": {"labels": {"l": "v"}}})).await.code(200);
    });
}

#[test]
fn config_map_keys_have_a_charset() {
    claim(async |w| {
        let answer = w.post(&w.maps(""), json!({"metadata": {"name": "a"}, "data": {"a b": "v"}})).await;
        answer.invalid("FieldValueInvalid", "data[a b]");
    });
}

#[test]
fn a_role_binding_cannot_change_its_role() {
    claim(async |w| {
        let path = w.path("rbac.authorization.k8s.io/v1", "rolebindings");
        let body = json!({
            "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "x"}],
        });
        let made = w.post(&path, body).await.code(201).body;
        assert_eq!(made["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
        assert_eq!(made["subjects"][1]["apiGroup"], Value::Null);
        let answer = w.merge(&format!("{path}/b"), json!({"roleRef": {"name": "edit"}})).await.code(422);
        let causes = answer.causes();
        assert!(
            causes[0].starts_with("FieldValueInvalid roleRef: ") && causes[0].ends_with("cannot change roleRef"),
            "{causes:?}"
        );
    });
}

#[test]
fn a_namespace_keeps_the_label_of_its_name() {
    claim(async |w| {
        let path = format!("/api/v1/namespaces/{}", w.ns);
        let live = w.get(&path).await.ok();
        assert_eq!(live["metadata"]["labels"]["kubernetes.io/metadata.name"], w.ns.as_str());
        assert_eq!(live["spec"]["finalizers"], json!(["kubernetes"]));
        assert_eq!(live["status"]["phase"], "Active");
        let after = w.merge(&path, json!({"metadata": {"labels": {"kubernetes.io/metadata.name": null}}})).await.ok();
        assert_eq!(after["metadata"]["labels"]["kubernetes.io/metadata.name"], w.ns.as_str());
    });
}

#[test]
fn the_default_namespace_cannot_be_deleted() {
    claim(async |w| {
        let answer = w.delete("/api/v1/namespaces/kube-system?dryRun=All", json!({})).await;
        assert_eq!((answer.code, answer.reason()), (403, "Forbidden"), "{}", answer.text);
    });
}

#[test]
fn an_autoscaler_has_two_versions() {
    claim(async |w| {
        let body = json!({
            "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
        });
        let made = w.post(&w.path("autoscaling/v2", "horizontalpodautoscalers"), body).await.code(201).body;
        assert_eq!(made["spec"]["minReplicas"], 1);
        assert_eq!(made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        let v1 = w.get(&format!("{}/h", w.path("autoscaling/v1", "horizontalpodautoscalers"))).await.ok();
        assert_eq!(v1["apiVersion"], "autoscaling/v1");
        assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 80);
        assert_eq!(v1["spec"]["metrics"], Value::Null);
    });
}

#[test]
fn one_event_has_two_versions() {
    claim(async |w| {
        let body = json!({
            "metadata": {"name": "e"}, "regarding": {"kind": "ConfigMap", "name": "a", "namespace": w.ns},
            "eventTime": "2026-01-01T00:00:00.000000Z", "action": "A", "reason": "R", "type": "Normal", "note": "n",
            "reportingController": "c", "reportingInstance": "c-0",
        });
        let path = w.path("events.k8s.io/v1", "events");
        w.post(&path, body).await.code(201);
        let core = w.get(&format!("{}/e", w.path("v1", "events"))).await.ok();
        assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("n"), &json!("a")));
        let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}});
        let after = w.merge(&format!("{path}/e"), series).await.code(200).body;
        assert_eq!(after["series"]["count"], 2);
    });
}

#[test]
fn times_with_micros_need_exactly_six_digits() {
    claim(async |w| {
        let path = w.path("coordination.k8s.io/v1", "leases");
        let body = json!({"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
        let made = w.post(&path, body).await.code(201).body;
        assert_eq!(made["spec"]["renewTime"], "2026-01-01T00:00:00.000000Z");
        let body = json!({"metadata": {"name": "m"}, "spec": {"renewTime": "2026-01-01T00:00:00.000Z"}});
        w.post(&path, body).await.refused_like(400, "BadRequest", "");
    });
}

#[test]
fn an_ingress_path_needs_its_type() {
    claim(async |w| {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        let body = json!({"metadata": {"name": "i"}, "spec": {"rules": [{"http": {"paths": [{"path": "/", "backend": backend}]}}]}});
        let answer = w.post(&w.path("networking.k8s.io/v1", "ingresses"), body).await;
        answer.invalid("FieldValueRequired", "spec.rules[0].http.paths[0].pathType");
    });
}

#[test]
fn empty_labels_and_nulls_are_not_stored() {
    claim(async |w| {
        let body = json!({"metadata": {"name": "a", "labels": {}, "creationTimestamp": null}, "data": {"k": "v"}});
        let made = w.post(&w.maps(""), body).await.code(201).body;
        assert_eq!(made["metadata"].get("labels"), None);
        assert!(rv(&made) > 0);
    });
}
