//! Tests of the fields that each level allows and refuses.

use serde_json::{Value, json};

use super::checks::evaluate;
use super::labels::{Standard, policy};
use super::pod::{Pod, details};

fn labels(of: &[(&str, &str)]) -> Value {
    of.iter().map(|(name, value)| (format!("pod-security.kubernetes.io/{name}"), Value::from(*value))).collect()
}

/// Parses `level:version`.
fn standard(text: &str) -> Standard {
    let (level, version) = text.split_once(':').unwrap();
    let (policy, causes) = policy(&labels(&[("enforce", level), ("enforce-version", version)]));
    assert!(causes.is_empty(), "{text}");
    policy.enforce
}

/// Returns the findings of a standard for a pod.
fn against(text: &str, pod: &Value) -> String {
    details(&evaluate(standard(text), &Pod::of(pod)))
}

/// Returns a pod without findings, with additional fields in its container and spec.
fn safe(container: Value, spec: Value) -> Value {
    let mut safe = json!({
        "metadata": {},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "a", "image": "i",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    });
    json_patch::merge(&mut safe["spec"]["containers"][0], &container);
    json_patch::merge(&mut safe["spec"], &spec);
    safe
}

fn with_container(container: Value) -> Value {
    safe(container, json!({}))
}

fn with_spec(spec: Value) -> Value {
    safe(json!({}), spec)
}

fn annotated(name: &str, value: &str) -> Value {
    let mut pod = with_spec(json!({}));
    pod["metadata"]["annotations"] = json!({name: value});
    pod
}

#[test]
fn allows_a_safe_pod_at_each_level_and_version() {
    let pod = with_spec(json!({}));
    for level in ["privileged", "baseline", "restricted"] {
        for version in (0..40).map(|minor| format!("v1.{minor}")).chain(["latest".to_owned()]) {
            assert_eq!(against(&format!("{level}:{version}"), &pod), "", "{level}:{version}");
        }
    }
    let everything = with_spec(json!({"hostNetwork": true, "hostPID": true}));
    assert_eq!(against("privileged:latest", &everything), "");
}

#[test]
fn refuses_what_each_check_of_baseline_forbids() {
    let context = |context: Value| with_container(json!({"securityContext": context}));
    for (pod, says) in [
        (
            context(json!({"appArmorProfile": {"type": "Unconfined"}})),
            "forbidden AppArmor profile (container \"a\" must not set AppArmor profile type to \"Unconfined\")",
        ),
        (
            context(json!({"capabilities": {"add": ["NET_RAW", "KILL"]}})),
            "non-default capabilities (container \"a\" must not include \"NET_RAW\" in securityContext.capabilities.add)",
        ),
        (with_spec(json!({"hostNetwork": true, "hostIPC": true})), "host namespaces (hostNetwork=true, hostIPC=true)"),
        (with_spec(json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]})), "hostPath volumes (volume \"v\")"),
        (
            with_container(json!({"ports": [{"hostPort": 9}, {"hostPort": 10}, {"containerPort": 80}]})),
            "hostPort (container \"a\" uses hostPorts 10, 9)",
        ),
        (
            with_container(json!({"livenessProbe": {"tcpSocket": {"port": 1, "host": "10.0.0.1"}}})),
            "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"10.0.0.1\")",
        ),
        (
            context(json!({"privileged": true})),
            "privileged (container \"a\" must not set securityContext.privileged=true)",
        ),
        (
            context(json!({"procMount": "Unmasked"})),
            "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
        ),
        (
            with_spec(json!({"securityContext": {"seLinuxOptions": {"type": "t", "user": "u", "role": "r"}}})),
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"t\"; user may not be set; role may not be set)",
        ),
        (
            with_spec(json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})),
            "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
        ),
        (
            with_spec(
                json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_wmem"}]}}),
            ),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            with_spec(json!({"securityContext": {"windowsOptions": {"hostProcess": true}}})),
            "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
        ),
        (
            annotated("container.apparmor.security.beta.kubernetes.io/a", "unconfined"),
            "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
             \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")",
        ),
    ] {
        assert_eq!(against("baseline:latest", &pod), says, "{pod}");
    }
}

#[test]
fn refuses_what_each_check_of_restricted_demands() {
    let context = |context: Value| with_container(json!({"securityContext": context}));
    for (pod, says) in [
        (
            context(json!({"allowPrivilegeEscalation": null})),
            "allowPrivilegeEscalation != false (container \"a\" must set securityContext.allowPrivilegeEscalation=false)",
        ),
        (
            context(json!({"capabilities": {"drop": ["NET_RAW"], "add": ["CHOWN"]}})),
            "unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]; \
             container \"a\" must not include \"CHOWN\" in securityContext.capabilities.add)",
        ),
        (
            with_spec(
                json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "n", "nfs": {}}, {"name": "c", "configMap": {}}]}),
            ),
            "restricted volume types (volumes \"v\", \"n\" use restricted volume types \"hostPath\", \"nfs\")",
        ),
        (
            with_spec(json!({"securityContext": {"runAsNonRoot": null}})),
            "runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true)",
        ),
        (
            safe(
                json!({"securityContext": {"runAsNonRoot": false}}),
                json!({"securityContext": {"runAsNonRoot": false}}),
            ),
            "runAsNonRoot != true (pod and container \"a\" must not set securityContext.runAsNonRoot=false)",
        ),
        (context(json!({"runAsUser": 0})), "runAsUser=0 (container \"a\" must not set runAsUser=0)"),
        (
            with_spec(json!({"securityContext": {"seccompProfile": null}})),
            "seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        ),
        (
            safe(json!({"securityContext": {"procMount": "Unmasked"}}), json!({"hostUsers": false})),
            "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")",
        ),
    ] {
        assert_eq!(against("restricted:latest", &pod), says, "{pod}");
    }
}

#[test]
fn judges_by_the_checks_of_the_version_that_a_namespace_names() {
    let context = |context: Value| with_container(json!({"securityContext": context}));
    let sysctl = |name: &str| with_spec(json!({"securityContext": {"sysctls": [{"name": name}]}}));
    let windows = json!({"os": {"name": "windows"}, "securityContext": {"seccompProfile": null}});
    let windows = safe(json!({"securityContext": {"allowPrivilegeEscalation": null, "capabilities": null}}), windows);
    let own_users = safe(
        json!({"securityContext": {"runAsUser": 0, "runAsNonRoot": false, "procMount": "Unmasked"}}),
        json!({"hostUsers": false}),
    );
    let engine = with_spec(json!({"securityContext": {"seLinuxOptions": {"type": "container_engine_t"}}}));
    let host = with_container(json!({"startupProbe": {"httpGet": {"port": 1, "host": "h"}}}));
    let seccomp = annotated("seccomp.security.alpha.kubernetes.io/pod", "unconfined");
    for (level, pod, allowed, refused) in [
        ("baseline", &host, "v1.33", "v1.34"),
        ("baseline", &own_users, "v1.35", "v1.34"),
        ("baseline", &engine, "v1.31", "v1.30"),
        ("baseline", &seccomp, "v1.19", "v1.18"),
        ("baseline", &sysctl("net.ipv4.ip_local_reserved_ports"), "v1.27", "v1.26"),
        ("baseline", &sysctl("net.ipv4.tcp_fin_timeout"), "v1.29", "v1.28"),
        ("baseline", &sysctl("net.ipv4.tcp_rmem"), "v1.32", "v1.31"),
        ("restricted", &context(json!({"allowPrivilegeEscalation": true})), "v1.7", "v1.8"),
        ("restricted", &context(json!({"capabilities": null})), "v1.21", "v1.22"),
        ("restricted", &context(json!({"runAsUser": 0})), "v1.22", "v1.23"),
        ("restricted", &with_spec(json!({"securityContext": {"seccompProfile": null}})), "v1.18", "v1.19"),
        ("restricted", &windows, "v1.25", "v1.24"),
    ] {
        assert_eq!(against(&format!("{level}:{allowed}"), pod), "", "{level}:{allowed} {pod}");
        assert_ne!(against(&format!("{level}:{refused}"), pod), "", "{level}:{refused} {pod}");
    }
    let both = against("restricted:v1.34", &own_users);
    assert!(both.starts_with("procMount (") && both.contains("runAsNonRoot") && both.contains("runAsUser=0"), "{both}");
    assert!(against("restricted:v1.35", &own_users).starts_with("procMount ("));
}

#[test]
fn names_all_containers_and_all_findings() {
    let mut pod = json!({"metadata": {}, "spec": {
        "initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b", "securityContext": {"privileged": true}}],
        "ephemeralContainers": [{"name": "e"}], "hostPID": true,
    }});
    assert_eq!(
        against("baseline:latest", &pod),
        "host namespaces (hostPID=true), privileged (container \"b\" must not set securityContext.privileged=true)"
    );
    pod["spec"]["hostPID"] = Value::Null;
    pod["spec"]["containers"][1] = Value::Null;
    pod["spec"]["containers"].as_array_mut().unwrap().pop();
    let says = against("restricted:v1.8", &pod);
    assert!(says.starts_with("allowPrivilegeEscalation != false (containers \"i\", \"a\", \"e\" must set"), "{says}");
}

#[test]
fn reads_the_policy_of_a_namespace() {
    for (set, enforce, warn) in [
        (&[][..], "privileged:latest", "privileged:latest"),
        (&[("enforce", "baseline")], "baseline:latest", "baseline:latest"),
        (&[("enforce", "restricted"), ("enforce-version", "v1.25")], "restricted:v1.25", "restricted:v1.25"),
        (&[("enforce", "restricted"), ("warn", "privileged")], "restricted:latest", "privileged:latest"),
        (&[("enforce", "baseline"), ("warn-version", "v1.0")], "baseline:latest", "baseline:v1.0"),
        (&[("warn", "restricted"), ("warn-version", "v1.7")], "privileged:latest", "restricted:v1.7"),
        (&[("audit", "restricted")], "privileged:latest", "privileged:latest"),
    ] {
        let (policy, causes) = policy(&labels(set));
        assert_eq!((policy.enforce.to_string().as_str(), policy.warn.to_string().as_str()), (enforce, warn), "{set:?}");
        assert!(causes.is_empty(), "{set:?}");
    }
}

#[test]
fn names_the_labels_of_a_namespace_that_are_wrong() {
    let wrong = [("enforce", "Baseline"), ("audit", ""), ("warn", "none"), ("enforce-version", "1.25")];
    let (policy, causes) = policy(&labels(&wrong));
    assert_eq!(
        (policy.enforce.to_string(), policy.warn.to_string()),
        ("restricted:latest".into(), "privileged:latest".into())
    );
    let found: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    let level = "must be one of privileged, baseline, restricted";
    assert_eq!(
        found,
        [
            format!("metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"Baseline\": {level}"),
            "metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: \"1.25\": must be \"latest\" or \"v1.x\"".to_owned(),
            format!("metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"\": {level}"),
            format!("metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"none\": {level}"),
        ]
    );
    for version in ["v1.", "v1.01", "v1.x", "v2.0", "v1.+1", "v1.99999999999999999999", "Latest", ""] {
        let (_, causes) = super::labels::policy(&labels(&[("warn-version", version)]));
        assert_eq!(causes.len(), 1, "{version}");
    }
}
