//! Pod Security: refusals and warnings by the labels of a namespace.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{Answer, World, claim};

/// Creates a namespace with these Pod Security labels and returns its path.
async fn namespace(w: &World, name: &str, labels: &[(&str, &str)]) -> String {
    let name = format!("{}-{name}", w.ns);
    let labels: Value = labels
        .iter()
        .map(|(label, value)| (format!("pod-security.kubernetes.io/{label}"), Value::from(*value)))
        .collect();
    let path = format!("/api/v1/namespaces/{name}");
    w.forget_later(&path);
    w.post("/api/v1/namespaces", json!({"metadata": {"name": name, "labels": labels}})).await.code(201);
    w.until(&format!("{path}/serviceaccounts/default"), "the namespace is furnished", |a| a.code == 200).await;
    path
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// Returns the texts of the warnings.
fn warnings(answer: &Answer) -> Vec<String> {
    answer.warnings().iter().map(|warning| warning.replace("\\\"", "\"")).collect()
}

#[test]
fn a_pod_that_violates_the_enforced_level_is_refused() {
    claim(async |w| {
        let baseline = namespace(w, "b", &[("enforce", "baseline")]).await;
        let refused = w.post(&format!("{baseline}/pods?dryRun=All"), pod("x", json!({"hostNetwork": true}))).await;
        let why =
            "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)";
        let refused = refused.refused(403, "Forbidden", why);
        assert_eq!(refused.body["details"], json!({"name": "x", "kind": "pods"}));
        w.post(&format!("{baseline}/pods?dryRun=All"), pod("x", json!({}))).await.code(201);
        let restricted = namespace(w, "r", &[("enforce", "restricted"), ("enforce-version", "v1.7")]).await;
        let why = "pods \"x\" is forbidden: violates PodSecurity \"restricted:v1.7\": runAsNonRoot != true \
                   (pod or container \"c\" must set securityContext.runAsNonRoot=true)";
        let path = format!("{restricted}/pods?dryRun=All");
        w.post(&path, pod("x", json!({}))).await.refused(403, "Forbidden", why);
        w.post(&path, pod("x", json!({"securityContext": {"runAsNonRoot": true}}))).await.code(201);
    });
}

#[test]
fn a_workload_whose_pods_would_be_refused_is_accepted_with_a_warning() {
    claim(async |w| {
        let path = namespace(w, "b", &[("enforce", "baseline")]).await;
        let deployments = path.replacen("/api/v1", "/apis/apps/v1", 1) + "/deployments";
        let mut object = deployment("d");
        object["spec"]["template"]["spec"]["hostPID"] = true.into();
        let answer = w.post(&deployments, object).await.code(201);
        let says = "299 - \"would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)\"";
        assert_eq!(warnings(&answer), [says]);
        let scaled = w.merge(&format!("{deployments}/d"), json!({"spec": {"replicas": 1}})).await.code(200);
        assert_eq!(warnings(&scaled), [says]);
        let set =
            |a: &Answer| a.body["status"]["conditions"].to_string().contains("is forbidden: violates PodSecurity");
        let at = format!("{deployments}/d");
        let refused = w.until(&at, "the refusal is in the status", set).await;
        assert!(refused.body["status"]["conditions"].to_string().contains("host namespaces (hostPID=true)"));
        let mended = json!({"spec": {"template": {"spec": {"hostPID": false}}}});
        assert!(w.merge(&at, mended).await.code(200).warnings().is_empty());
    });
}

#[test]
fn a_level_to_warn_of_refuses_no_pod() {
    claim(async |w| {
        let labels = [("warn", "restricted"), ("warn-version", "v1.7"), ("audit", "restricted")];
        let path = namespace(w, "w", &labels).await;
        let answer = w.post(&format!("{path}/pods?dryRun=All"), pod("x", json!({}))).await.code(201);
        let says = "299 - \"would violate PodSecurity \"restricted:v1.7\": runAsNonRoot != true (pod or container \"c\" must set \
                    securityContext.runAsNonRoot=true)\"";
        assert_eq!(warnings(&answer), [says]);
    });
}

#[test]
fn labels_that_name_no_level_or_version_are_refused() {
    claim(async |w| {
        let name = format!("{}-x", w.ns);
        let labels =
            json!({"pod-security.kubernetes.io/enforce": "strict", "pod-security.kubernetes.io/warn-version": "1.30"});
        let wrong = w.post("/api/v1/namespaces", json!({"metadata": {"name": name, "labels": labels}})).await;
        assert_eq!((wrong.code, wrong.reason()), (422, "Invalid"), "{}", wrong.text);
        assert_eq!(
            wrong.causes(),
            [
                "FieldValueInvalid metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of \
                 privileged, baseline, restricted",
                "FieldValueInvalid metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.30\": must be \
                 \"latest\" or \"v1.x\"",
            ]
        );
        let own = format!("/api/v1/namespaces/{}", w.ns);
        w.merge(&own, json!({"metadata": {"labels": labels}})).await.code(422);
    });
}

#[test]
fn a_stricter_level_warns_of_the_pods_that_violate_it() {
    claim(async |w| {
        let path = namespace(w, "s", &[]).await;
        let privileged =
            |name: &str| pod(name, json!({"hostPID": true, "schedulingGates": [{"name": "example.com/never"}]}));
        for name in ["b", "a"] {
            w.post(&format!("{path}/pods"), privileged(name)).await.code(201);
        }
        let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
        // Admission of a real server observes new pods with a delay.
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        let name = format!("{}-s", w.ns);
        let expected = [
            format!(
                "299 - \"existing pods in namespace \"{name}\" violate the new PodSecurity enforce level \"baseline:latest\"\""
            ),
            "299 - \"a (and 1 other pod): host namespaces\"".to_owned(),
        ];
        loop {
            let answer = w.merge(&format!("{path}?dryRun=All"), labels.clone()).await.code(200);
            let found = warnings(&answer);
            if found == expected {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "{found:?}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let relaxed = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
        assert!(w.merge(&path, relaxed).await.code(200).warnings().is_empty());
    });
}

#[test]
fn a_pod_that_is_there_may_be_changed_but_not_its_image() {
    claim(async |w| {
        let path = namespace(w, "u", &[]).await;
        let at = format!("{path}/pods/x");
        let gated = json!({"hostPID": true, "schedulingGates": [{"name": "example.com/never"}]});
        w.post(&format!("{path}/pods"), pod("x", gated)).await.code(201);
        let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
        w.merge(&path, labels).await.code(200);
        w.merge(&at, json!({"metadata": {"labels": {"a": "b"}}})).await.code(200);
        let image = json!({"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}});
        let why = "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        // Admission of a real server observes new labels with a delay.
        while w.strategic(&format!("{at}?dryRun=All"), image.clone()).await.code == 200 {
            assert!(tokio::time::Instant::now() < deadline, "the level counts");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        w.strategic(&at, image).await.refused(403, "Forbidden", why);
    });
}
