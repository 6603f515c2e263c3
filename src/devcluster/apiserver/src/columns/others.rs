//! Cells of all kinds except workloads.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::text::{each, labels, or_none, scalar, selector, str_at};

fn created(object: &Value, now: Timestamp) -> Value {
    age::since(&object["metadata"]["creationTimestamp"], now).into()
}

fn len(value: &Value) -> usize {
    value.as_array().map_or_else(|| value.as_object().map_or(0, serde_json::Map::len), Vec::len)
}

pub(super) fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![(len(&object["data"]) + len(&object["binaryData"])).into(), created(object, now)]
}

pub(super) fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![object["type"].clone(), len(&object["data"]).into(), created(object, now)]
}

pub(super) fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![str_at(object, "/status/phase").into(), created(object, now)]
}

pub(super) fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let kind = str_at(object, "/spec/type");
    let ports: Vec<String> = object["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|p| {
            let protocol = p["protocol"].as_str().unwrap_or("TCP");
            match p["nodePort"].as_i64() {
                Some(node) => format!("{}:{node}/{protocol}", p["port"]),
                None => format!("{}/{protocol}", p["port"]),
            }
        })
        .collect();
    let ingress = object.pointer("/status/loadBalancer/ingress").unwrap_or(&Value::Null);
    let balanced: Vec<&str> = each(ingress, "ip").chain(each(ingress, "hostname")).collect();
    let external: Vec<&str> =
        object["spec"]["externalIPs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let address = match kind {
        "ExternalName" => or_none(str_at(object, "/spec/externalName")),
        "LoadBalancer" if balanced.is_empty() && external.is_empty() => "<pending>".to_owned(),
        "LoadBalancer" => balanced.into_iter().chain(external).collect::<Vec<_>>().join(","),
        _ => or_none(&external.join(",")),
    };
    vec![
        kind.into(),
        or_none(str_at(object, "/spec/clusterIP")).into(),
        address.into(),
        or_none(&ports.join(",")).into(),
        created(object, now),
        labels(&object["spec"]["selector"]).into(),
    ]
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut pairs = Vec::new();
    for subset in object["subsets"].as_array().into_iter().flatten() {
        for ip in each(&subset["addresses"], "ip") {
            let ports: Vec<&Value> = subset["ports"].as_array().into_iter().flatten().collect();
            pairs.extend(ports.iter().map(|p| format!("{ip}:{}", p["port"])));
            if ports.is_empty() {
                pairs.push(ip.to_owned());
            }
        }
    }
    vec![shortened(&pairs, 3).into(), created(object, now)]
}

/// Joins the first `limit` items of a list, and counts the rest.
fn shortened(list: &[String], limit: usize) -> String {
    if list.len() > limit {
        format!("{} + {} more...", list[..limit].join(","), list.len() - limit)
    } else {
        or_none(&list.join(","))
    }
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = object["ports"].as_array().into_iter().flatten().map(|p| scalar(&p["port"])).collect();
    let addresses: Vec<String> = object["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|e| e["addresses"].as_array().into_iter().flatten().map(scalar))
        .collect();
    let unset = |text: String| if text == "<none>" { "<unset>".to_owned() } else { text };
    vec![
        object["addressType"].clone(),
        unset(shortened(&ports, 3)).into(),
        unset(shortened(&addresses, 3)).into(),
        created(object, now),
    ]
}

/// Events of either version.
pub(super) fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |a: &str, b: &str| if object[a].is_null() { object[b].clone() } else { object[a].clone() };
    let about = either("involvedObject", "regarding");
    let source = either("source", "deprecatedSource");
    let first = either("firstTimestamp", "deprecatedFirstTimestamp");
    let last = either("lastTimestamp", "deprecatedLastTimestamp");
    let count = either("count", "deprecatedCount");
    let reporter = either("reportingComponent", "reportingController");
    let time = |value: &Value| if value.is_null() { &object["eventTime"] } else { value }.clone();
    let ago = |value: Value| age::since(&value, now);
    let last_seen = match object["series"]["lastObservedTime"].clone() {
        Value::Null => ago(time(&last)),
        seen => ago(seen),
    };
    let mut component = scalar(&source["component"]);
    if component.is_empty() {
        component = scalar(&reporter);
    }
    let host = scalar(&source["host"]);
    if !host.is_empty() {
        component = format!("{component}, {host}");
    }
    let times = object["series"]["count"].as_i64().or(count.as_i64()).filter(|n| *n > 0).unwrap_or(1);
    vec![
        last_seen.into(),
        scalar(&object["type"]).into(),
        scalar(&object["reason"]).into(),
        format!("{}/{}", scalar(&about["kind"]).to_lowercase(), scalar(&about["name"])).into(),
        scalar(&about["fieldPath"]).into(),
        component.into(),
        scalar(&either("message", "note")).trim().into(),
        ago(time(&first)).into(),
        times.into(),
        object["metadata"]["name"].clone(),
    ]
}

pub(super) fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = object["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready");
    let mut status = match ready.map(|c| c["status"] == "True") {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let roles: Vec<&str> = object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flat_map(|l| l.keys())
        .filter_map(|key| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let address = |kind: &str| {
        let list = object["status"]["addresses"].as_array().into_iter().flatten();
        or_none(list.clone().find(|a| a["type"] == kind).map_or("", |a| str_at(a, "/address")))
    };
    let info = |field: &str| {
        let text = str_at(&object["status"]["nodeInfo"], &format!("/{field}"));
        if text.is_empty() { "<unknown>".to_owned() } else { text.to_owned() }
    };
    vec![
        status.into(),
        or_none(&roles.join(",")).into(),
        created(object, now),
        str_at(object, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        info("osImage").into(),
        info("kernelVersion").into(),
        info("containerRuntimeVersion").into(),
    ]
}

fn access_modes(list: &Value) -> String {
    let short = |mode: &Value| match mode.as_str() {
        Some("ReadWriteOnce") => "RWO",
        Some("ReadOnlyMany") => "ROX",
        Some("ReadWriteMany") => "RWX",
        Some("ReadWriteOncePod") => "RWOP",
        _ => "",
    };
    list.as_array().into_iter().flatten().map(short).collect::<Vec<_>>().join(",")
}

/// PersistentVolumeClaims.
pub(super) fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = !str_at(object, "/spec/volumeName").is_empty();
    let deleted = !object["metadata"]["deletionTimestamp"].is_null();
    vec![
        if deleted { "Terminating" } else { str_at(object, "/status/phase") }.into(),
        str_at(object, "/spec/volumeName").into(),
        if bound { str_at(object, "/status/capacity/storage") } else { "" }.into(),
        if bound { access_modes(&object["status"]["accessModes"]) } else { String::new() }.into(),
        str_at(object, "/spec/storageClassName").into(),
        "<unset>".into(),
        created(object, now),
        or_none(str_at(object, "/spec/volumeMode")).into(),
    ]
}

/// PersistentVolumes.
pub(super) fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = &object["spec"]["claimRef"];
    let claim = if claim.is_null() {
        String::new()
    } else {
        format!("{}/{}", scalar(&claim["namespace"]), scalar(&claim["name"]))
    };
    let deleted = !object["metadata"]["deletionTimestamp"].is_null();
    vec![
        str_at(object, "/spec/capacity/storage").into(),
        access_modes(&object["spec"]["accessModes"]).into(),
        str_at(object, "/spec/persistentVolumeReclaimPolicy").into(),
        if deleted { "Terminating" } else { str_at(object, "/status/phase") }.into(),
        claim.into(),
        str_at(object, "/spec/storageClassName").into(),
        "<unset>".into(),
        str_at(object, "/status/reason").into(),
        created(object, now),
        or_none(str_at(object, "/spec/volumeMode")).into(),
    ]
}

/// StorageClasses.
pub(super) fn storage_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        object["provisioner"].clone(),
        object["reclaimPolicy"].clone(),
        object["volumeBindingMode"].clone(),
        (object["allowVolumeExpansion"] == true).into(),
        created(object, now),
    ]
}

/// Ingresses.
pub(super) fn ingress(object: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<String> = each(&object["spec"]["rules"], "host").map(str::to_owned).collect();
    let hosts = if hosts.is_empty() { "*".to_owned() } else { shortened(&hosts, 3) };
    let balancer = object.pointer("/status/loadBalancer/ingress").unwrap_or(&Value::Null);
    let addresses: Vec<&str> = each(balancer, "ip").chain(each(balancer, "hostname")).collect();
    vec![
        or_none(str_at(object, "/spec/ingressClassName")).into(),
        hosts.into(),
        addresses.join(",").into(),
        if len(&object["spec"]["tls"]) > 0 { "80, 443" } else { "80" }.into(),
        created(object, now),
    ]
}

/// IngressClasses.
pub(super) fn ingress_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = &object["spec"]["parameters"];
    let reference = if parameters.is_null() {
        "<none>".to_owned()
    } else {
        let group = scalar(&parameters["apiGroup"]);
        let kind = scalar(&parameters["kind"]);
        let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
        format!("{kind}/{}", scalar(&parameters["name"]))
    };
    vec![str_at(object, "/spec/controller").into(), reference.into(), created(object, now)]
}

/// NetworkPolicies.
pub(super) fn network_policy(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![selector(&object["spec"]["podSelector"]).into(), created(object, now)]
}

/// PodDisruptionBudgets.
pub(super) fn budget(object: &Value, now: Timestamp) -> Vec<Value> {
    let limit = |field: &str| match &object["spec"][field] {
        Value::Null => "N/A".to_owned(),
        value => scalar(value),
    };
    vec![
        limit("minAvailable").into(),
        limit("maxUnavailable").into(),
        object.pointer("/status/disruptionsAllowed").cloned().unwrap_or(0.into()),
        created(object, now),
    ]
}

/// RoleBindings and ClusterRoleBindings.
pub(super) fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| -> String {
        let list = object["subjects"].as_array().into_iter().flatten().filter(|s| s["kind"] == kind);
        let names: Vec<String> = list
            .map(|s| match (kind, s["namespace"].as_str()) {
                ("ServiceAccount", Some(namespace)) => format!("{namespace}/{}", scalar(&s["name"])),
                _ => scalar(&s["name"]),
            })
            .collect();
        names.join(", ")
    };
    vec![
        format!("{}/{}", str_at(object, "/roleRef/kind"), str_at(object, "/roleRef/name")).into(),
        created(object, now),
        subjects("User").into(),
        subjects("Group").into(),
        subjects("ServiceAccount").into(),
    ]
}

/// Roles, CRDs and other kinds with only a creation time.
pub(super) fn created_at(object: &Value) -> Vec<Value> {
    vec![object["metadata"]["creationTimestamp"].clone()]
}

/// Kinds with only an age.
pub(super) fn age_only(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![created(object, now)]
}

pub(super) fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![str_at(object, "/spec/holderIdentity").into(), created(object, now)]
}

/// PriorityClasses.
pub(super) fn priority_class(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        object["value"].clone(),
        (object["globalDefault"] == true).into(),
        created(object, now),
        object["preemptionPolicy"].clone(),
    ]
}

/// Webhook configurations.
pub(super) fn webhooks(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![len(&object["webhooks"]).into(), created(object, now)]
}

/// ResourceQuotas.
pub(super) fn quota(object: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in object["status"]["hard"].as_object().into_iter().flatten() {
        let used = scalar(&object["status"]["used"][name]);
        let line = format!("{name}: {}/{}", if used.is_empty() { "0" } else { &used }, scalar(hard));
        if name.starts_with("limits.") { limits.push(line) } else { requests.push(line) }
    }
    vec![requests.join(", ").into(), limits.join(", ").into(), created(object, now)]
}

pub(super) fn pod_template(object: &Value) -> Vec<Value> {
    let containers = object.pointer("/template/spec/containers").unwrap_or(&Value::Null);
    vec![
        each(containers, "name").collect::<Vec<_>>().join(",").into(),
        each(containers, "image").collect::<Vec<_>>().join(",").into(),
        labels(&object["template"]["metadata"]["labels"]).into(),
    ]
}

/// ControllerRevisions.
pub(super) fn revision(object: &Value, now: Timestamp) -> Vec<Value> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let controller = owners.clone().find(|o| o["controller"] == true);
    let name = controller.map_or_else(
        || "<none>".to_owned(),
        |o| {
            let group = str_at(o, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
            let kind = str_at(o, "/kind").to_lowercase();
            let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
            format!("{kind}/{}", str_at(o, "/name"))
        },
    );
    vec![name.into(), object["revision"].clone(), created(object, now)]
}

/// HorizontalPodAutoscalers of `autoscaling/v2`.
pub(super) fn autoscaler(object: &Value, now: Timestamp) -> Vec<Value> {
    let reference = &object["spec"]["scaleTargetRef"];
    let current = &object["status"]["currentMetrics"];
    let targets: Vec<String> = object["spec"]["metrics"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(index, metric)| target(metric, &current[index]))
        .collect();
    let targets = if targets.len() > 2 {
        format!("{} + {} more...", targets[..2].join(", "), targets.len() - 2)
    } else {
        or_none(&targets.join(", "))
    };
    vec![
        format!("{}/{}", scalar(&reference["kind"]), scalar(&reference["name"])).into(),
        targets.into(),
        object["spec"]["minReplicas"].as_i64().map_or("<unset>".to_owned(), |n| n.to_string()).into(),
        object["spec"]["maxReplicas"].clone(),
        object.pointer("/status/currentReplicas").cloned().unwrap_or(json!(0)),
        created(object, now),
    ]
}

fn target(metric: &Value, current: &Value) -> String {
    let source = match metric["type"].as_str().unwrap_or_default() {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return "<unknown type>".to_owned(),
    };
    let goal = &metric[source]["target"];
    let now = &current[source]["current"];
    let known = |value: &Value, suffix: &str| {
        if value.is_null() { "<unknown>".to_owned() } else { format!("{}{suffix}", scalar(value)) }
    };
    let text = if !goal["averageUtilization"].is_null() {
        format!("{}/{}%", known(&now["averageUtilization"], "%"), goal["averageUtilization"])
    } else if !goal["averageValue"].is_null() {
        format!("{}/{}", known(&now["averageValue"], ""), scalar(&goal["averageValue"]))
    } else {
        format!("{}/{}", known(&now["value"], ""), scalar(&goal["value"]))
    };
    if source.ends_with("esource") { format!("{}: {text}", scalar(&metric[source]["name"])) } else { text }
}
