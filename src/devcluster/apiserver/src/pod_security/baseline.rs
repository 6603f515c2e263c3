//! The checks of the level `baseline`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pod::{Finding, Pod, items, named, plural, quoted, setters, texts};
use crate::object::text;

const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Capabilities that containers may add.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that a pod may set, each with the first minor version that allows it.
const SYSCTLS: [(u64, &str); 12] = [
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
];

/// Returns a field of the security context of a pod or container; null if missing.
fn context<'a>(of: &'a Value, field: &str) -> &'a Value {
    &of["securityContext"][field]
}

/// Checks the types in a field such as `seccompProfile`. Returns whether the pod sets a forbidden type, the containers
/// that do, and the types.
pub(super) fn profiles<'a>(pod: &Pod<'a>, field: &str, allowed: &[&str]) -> (bool, Vec<&'a str>, BTreeSet<&'a str>) {
    let mut wrong = BTreeSet::new();
    let mut is_wrong = |of: &'a Value| {
        let profile = context(of, field);
        let kind = text(profile, "/type");
        let is_wrong = !profile.is_null() && !allowed.contains(&kind);
        if is_wrong {
            wrong.insert(kind);
        }
        is_wrong
    };
    let of_pod = is_wrong(pod.spec);
    let containers = pod.containers().filter(|container| is_wrong(container));
    let containers: Vec<&str> = containers.map(|container| text(container, "/name")).collect();
    (of_pod, containers, wrong)
}

pub(super) fn app_armor_profile(pod: &Pod<'_>) -> Option<Finding> {
    let (of_pod, containers, wrong) = profiles(pod, "appArmorProfile", &["RuntimeDefault", "Localhost"]);
    let allowed = |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let annotations = pod.annotations.as_object().into_iter().flatten();
    let annotations = annotations.filter_map(|(name, value)| Some((name, value.as_str()?)));
    let annotations = annotations.filter(|(name, value)| name.starts_with(APP_ARMOR) && !allowed(value));
    let mut annotations: Vec<String> = annotations.map(|(name, value)| format!("{name}={value:?}")).collect();
    annotations.sort();
    let annotated =
        (!annotations.is_empty()).then(|| plural(annotations.len(), "annotation", "annotations").to_owned());
    let setters: Vec<String> = setters(of_pod, &containers).into_iter().chain(annotated).collect();
    if setters.is_empty() {
        return None;
    }
    let values: Vec<&str> = wrong.into_iter().chain(annotations.iter().map(String::as_str)).collect();
    let reason = plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles");
    let detail = format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(values));
    Some(Finding::new(reason, detail))
}

/// Returns the containers that add forbidden capabilities, and those capabilities.
pub(super) fn added<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let others = |container: &'a Value| {
        texts(&context(container, "capabilities")["add"]).filter(|added| !allowed.contains(added)).collect::<Vec<_>>()
    };
    let containers = pod.containers().filter(|container| !others(container).is_empty());
    let containers = containers.map(|container| text(container, "/name")).collect();
    (containers, pod.containers().flat_map(others).collect())
}

pub(super) fn capabilities(pod: &Pod<'_>) -> Option<Finding> {
    let (containers, others) = added(pod, &CAPABILITIES);
    let detail =
        || format!("{} must not include {} in securityContext.capabilities.add", named(&containers), quoted(&others));
    (!containers.is_empty()).then(|| Finding::new("non-default capabilities", detail()))
}

pub(super) fn host_namespaces(pod: &Pod<'_>) -> Option<Finding> {
    let set = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[*field] == true);
    let set: Vec<String> = set.map(|field| format!("{field}=true")).collect();
    (!set.is_empty()).then(|| Finding::new("host namespaces", set.join(", ")))
}

pub(super) fn host_path_volumes(pod: &Pod<'_>) -> Option<Finding> {
    let volumes = items(&pod.spec["volumes"]).filter(|volume| !volume["hostPath"].is_null());
    let volumes: Vec<&str> = volumes.map(|volume| text(volume, "/name")).collect();
    let detail = || format!("{} {}", plural(volumes.len(), "volume", "volumes"), quoted(&volumes));
    (!volumes.is_empty()).then(|| Finding::new("hostPath volumes", detail()))
}

pub(super) fn host_ports(pod: &Pod<'_>) -> Option<Finding> {
    let ports = |container: &Value| {
        let ports = items(&container["ports"]).filter_map(|port| port["hostPort"].as_i64());
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect::<Vec<_>>()
    };
    let containers = pod.containers_that(|container| !ports(container).is_empty());
    let used: BTreeSet<String> = pod.containers().flat_map(ports).collect();
    let detail = || {
        let uses = plural(containers.len(), "uses", "use");
        let ports = plural(used.len(), "hostPort", "hostPorts");
        format!("{} {uses} {ports} {}", named(&containers), used.iter().cloned().collect::<Vec<_>>().join(", "))
    };
    (!containers.is_empty()).then(|| Finding::new("hostPort", detail()))
}

pub(super) fn hosts_of_probes(pod: &Pod<'_>) -> Option<Finding> {
    let hosts = |container: &'_ Value| -> Vec<String> {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
        let hooks = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
        let actions = probes.into_iter().chain(hooks).flat_map(|of| [&of["httpGet"], &of["tcpSocket"]]);
        actions.map(|action| text(action, "/host").to_owned()).filter(|host| !host.is_empty()).collect()
    };
    let containers: BTreeSet<&str> =
        pod.containers_that(|container| !hosts(container).is_empty()).into_iter().collect();
    let containers: Vec<&str> = containers.into_iter().collect();
    let used: BTreeSet<String> = pod.containers().flat_map(hosts).collect();
    let detail = || {
        let uses = plural(containers.len(), "uses", "use");
        let what = plural(used.len(), "probe or lifecycle host", "probe or lifecycle hosts");
        format!("{} {uses} {what} {}", named(&containers), quoted(&used))
    };
    (!containers.is_empty()).then(|| Finding::new("probe or lifecycle host", detail()))
}

pub(super) fn privileged(pod: &Pod<'_>) -> Option<Finding> {
    let containers = pod.containers_that(|container| context(container, "privileged") == true);
    let detail = || format!("{} must not set securityContext.privileged=true", named(&containers));
    (!containers.is_empty()).then(|| Finding::new("privileged", detail()))
}

pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<Finding> {
    let other = |container: &Value| {
        let mount = context(container, "procMount");
        mount.as_str().filter(|mount| *mount != "Default").map(str::to_owned)
    };
    let containers = pod.containers_that(|container| other(container).is_some());
    let others: BTreeSet<String> = pod.containers().filter_map(other).collect();
    let detail = || format!("{} must not set securityContext.procMount to {}", named(&containers), quoted(&others));
    (!containers.is_empty()).then(|| Finding::new("procMount", detail()))
}

pub(super) fn proc_mount_of_host_users(pod: &Pod<'_>) -> Option<Finding> {
    if pod.has_own_users() { None } else { proc_mount(pod) }
}

pub(super) fn se_linux_options(pod: &Pod<'_>) -> Option<Finding> {
    se_linux(pod, &["", "container_t", "container_init_t", "container_kvm_t"])
}

pub(super) fn se_linux_options_1_31(pod: &Pod<'_>) -> Option<Finding> {
    se_linux(pod, &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"])
}

fn se_linux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Finding> {
    let options = |of| context(of, "seLinuxOptions");
    let has = |of, field: &str| !text(options(of), field).is_empty();
    let has_wrong_type = |of| !allowed.contains(&text(options(of), "/type"));
    let is_wrong = |of| has_wrong_type(of) || has(of, "/user") || has(of, "/role");
    let containers = pod.containers_that(is_wrong);
    let setters = setters(is_wrong(pod.spec), &containers)?;
    let all = || std::iter::once(pod.spec).chain(pod.containers());
    let types: BTreeSet<&str> = all().filter(|of| has_wrong_type(of)).map(|of| text(options(of), "/type")).collect();
    let mut wrong = Vec::new();
    if !types.is_empty() {
        wrong.push(format!("{} {}", plural(types.len(), "type", "types"), quoted(&types)));
    }
    for field in ["user", "role"] {
        if all().any(|of| has(of, &format!("/{field}"))) {
            wrong.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {}", wrong.join("; "));
    Some(Finding::new("seLinuxOptions", detail))
}

pub(super) fn seccomp_annotations(pod: &Pod<'_>) -> Option<Finding> {
    let allowed =
        |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let of_containers = pod.containers().map(|container| format!("{SECCOMP_OF_CONTAINER}{}", text(container, "/name")));
    let annotations = std::iter::once(SECCOMP_OF_POD.to_owned()).chain(of_containers);
    let wrong: BTreeSet<String> = annotations
        .filter_map(|name| {
            let value = pod.annotations[&name].as_str().filter(|value| !allowed(value))?;
            Some(format!("{name}={value:?}"))
        })
        .collect();
    let detail = || {
        let list = wrong.iter().cloned().collect::<Vec<_>>().join(", ");
        format!("forbidden {} {list}", plural(wrong.len(), "annotation", "annotations"))
    };
    (!wrong.is_empty()).then(|| Finding::new("seccompProfile", detail()))
}

/// The seccomp profiles that pods and containers may use.
pub(super) const SECCOMP: [&str; 2] = ["RuntimeDefault", "Localhost"];

pub(super) fn seccomp_profile(pod: &Pod<'_>) -> Option<Finding> {
    let (of_pod, containers, wrong) = profiles(pod, "seccompProfile", &SECCOMP);
    let setters = setters(of_pod, &containers)?;
    let detail = format!("{setters} must not set securityContext.seccompProfile.type to {}", quoted(wrong));
    Some(Finding::new("seccompProfile", detail))
}

pub(super) fn sysctls(pod: &Pod<'_>) -> Option<Finding> {
    sysctls_since(pod, 0)
}

pub(super) fn sysctls_1_27(pod: &Pod<'_>) -> Option<Finding> {
    sysctls_since(pod, 27)
}

pub(super) fn sysctls_1_29(pod: &Pod<'_>) -> Option<Finding> {
    sysctls_since(pod, 29)
}

pub(super) fn sysctls_1_32(pod: &Pod<'_>) -> Option<Finding> {
    sysctls_since(pod, 32)
}

fn sysctls_since(pod: &Pod<'_>, version: u64) -> Option<Finding> {
    let allowed = |name: &str| SYSCTLS.iter().any(|(since, known)| *since <= version && *known == name);
    let names = items(context(pod.spec, "sysctls")).map(|sysctl| text(sysctl, "/name"));
    let names: Vec<&str> = names.filter(|name| !allowed(name)).collect();
    (!names.is_empty()).then(|| Finding::new("forbidden sysctls", names.join(", ")))
}

pub(super) fn windows_host_process(pod: &Pod<'_>) -> Option<Finding> {
    let is_set = |of: &Value| context(of, "windowsOptions")["hostProcess"] == true;
    let setters = setters(is_set(pod.spec), &pod.containers_that(is_set))?;
    let detail = format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Finding::new("hostProcess", detail))
}
