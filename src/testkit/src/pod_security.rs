//! The Pod Security standard `restricted`, field by field, as the Kubernetes documentation lists it (v1.34).
//!
//! A violation is represented by the name of its control. For Windows, only host processes are checked.

use serde_json::Value;

/// Volumes that a restricted pod may have.
const VOLUMES: [&str; 8] =
    ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"];
const SYSCTLS: [&str; 8] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
];
const SELINUX_TYPES: [&str; 5] = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// Returns all controls that the pod violates; empty if it may run in a restricted namespace.
pub fn broken_controls(metadata: &Value, spec: &Value) -> Vec<String> {
    let mut broken = Vec::new();
    let mut wrong = |control: &str, bad: bool| {
        if bad && !broken.iter().any(|known| known == control) {
            broken.push(control.to_owned());
        }
    };
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        wrong("host namespaces", spec[field] == true);
    }
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let sources: Vec<_> = volume.as_object().unwrap().keys().filter(|key| *key != "name").collect();
        wrong("volume types", sources.iter().any(|source| !VOLUMES.contains(&source.as_str())));
        // A volume without a source is an emptyDir.
        wrong("host path", sources.iter().any(|source| *source == "hostPath"));
    }
    for sysctl in spec["securityContext"]["sysctls"].as_array().into_iter().flatten() {
        wrong("sysctls", !SYSCTLS.contains(&sysctl["name"].as_str().unwrap_or_default()));
    }
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        let named = key.starts_with("container.apparmor.security.beta.kubernetes.io/");
        let value = value.as_str().unwrap_or_default();
        wrong("AppArmor", named && value != "runtime/default" && !value.starts_with("localhost/"));
    }
    let pod = &spec["securityContext"];
    shared(pod, &mut wrong);
    for container in containers(spec) {
        let own = &container["securityContext"];
        shared(own, &mut wrong);
        wrong("privileged", own["privileged"] == true);
        wrong("proc mount", !matches!(own["procMount"].as_str(), None | Some("Default")));
        wrong("privilege escalation", own["allowPrivilegeEscalation"] != false);
        let drops_all = own["capabilities"]["drop"].as_array().is_some_and(|all| all.iter().any(|one| one == "ALL"));
        wrong("capabilities", !drops_all);
        let added = own["capabilities"]["add"].as_array().into_iter().flatten();
        wrong("capabilities", added.into_iter().any(|one| one != "NET_BIND_SERVICE"));
        let ports = container["ports"].as_array().into_iter().flatten();
        wrong("host ports", ports.into_iter().any(|port| port["hostPort"].as_i64().unwrap_or(0) != 0));
        for hook in ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]) {
            wrong("probe hosts", host(hook));
        }
        for hook in ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]) {
            wrong("probe hosts", host(hook));
        }
        // The field of a container overrides the field of the pod.
        let first = |field: &str| if own[field].is_null() { pod[field].clone() } else { own[field].clone() };
        wrong("run as non-root", first("runAsNonRoot") != true);
        let profile = first("seccompProfile")["type"].as_str().map(str::to_owned);
        wrong("seccomp", !matches!(profile.as_deref(), Some("RuntimeDefault" | "Localhost")));
    }
    broken
}

/// Checks the fields that pods and containers share.
fn shared(context: &Value, wrong: &mut impl FnMut(&str, bool)) {
    wrong("host process", context["windowsOptions"]["hostProcess"] == true);
    wrong("run as non-root user", context["runAsUser"] == 0);
    wrong("run as non-root", context["runAsNonRoot"] == false);
    let profile = context["seccompProfile"]["type"].as_str();
    wrong("seccomp", !matches!(profile, None | Some("RuntimeDefault" | "Localhost")));
    let armor = context["appArmorProfile"]["type"].as_str();
    wrong("AppArmor", !matches!(armor, None | Some("RuntimeDefault" | "Localhost")));
    let linux = &context["seLinuxOptions"];
    wrong("SELinux", !SELINUX_TYPES.contains(&linux["type"].as_str().unwrap_or_default()));
    wrong("SELinux", ["user", "role"].iter().any(|field| !linux[field].as_str().unwrap_or_default().is_empty()));
}

fn host(hook: &Value) -> bool {
    ["httpGet", "tcpSocket"].iter().any(|kind| !hook[kind]["host"].as_str().unwrap_or_default().is_empty())
}

/// Returns containers of all three types.
pub fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|sort| spec[sort].as_array().into_iter().flatten())
}
