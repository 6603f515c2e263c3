//! ServiceAccount admission: checks the account of a new pod and adds the volume with its token.
//!
//! Not here: refusing a pod in a new namespace whose account `default` is still missing. A controller creates the
//! account shortly after.

use super::{Settings, Target, metadata, text};
use crate::{server::Server, status::Status, store::Key};
use serde_json::{Value, json};

/// Mount path of the token.
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const PREFIX: &str = "kube-api-access-";
/// Lifetime of a token in seconds. The odd number marks tokens of this kind.
const LIFETIME: i64 = 3607;

/// Adds the token volume and its mounts, unless pod or account opt out; 403 if the account is missing.
pub(crate) fn admit(server: &Server, target: &Target, settings: &Settings, pod: &mut Value) -> Result<(), Status> {
    let kind = &target.kind;
    if !(kind.group.is_empty() && kind.plural == "pods") {
        return Ok(());
    }
    exists(server, target, settings, pod)?;
    if wants_token(server, target, pod) {
        add_token(settings, pod);
    }
    Ok(())
}

/// Fails with 403 if the pod's account is missing. Mirror pods have no account.
fn exists(server: &Server, target: &Target, settings: &Settings, pod: &Value) -> Result<(), Status> {
    let (namespace, account) = (&target.namespace, text(pod, "/spec/serviceAccountName"));
    let mirror = pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some();
    if mirror || matches!(account, "" | "default") {
        return Ok(());
    }
    if server.store().get("serviceaccounts", &Key::new(namespace, account)).is_some() {
        return Ok(());
    }
    let why = format!("error looking up service account {namespace}/{account}: serviceaccount {account:?} not found");
    // A generated name is not known yet.
    let name = text(pod, if settings.generated { "/metadata/generateName" } else { "/metadata/name" });
    Err(Status::forbidden(&target.kind.group_resource(), name, &why))
}

fn add_token(settings: &Settings, pod: &mut Value) {
    let has_mount = |container: &Value| {
        let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
        mounts.any(|mount| text(mount, "/mountPath") == MOUNT)
    };
    let given = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let known = given.map(|volume| text(volume, "/name")).find(|name| name.starts_with(PREFIX)).map(ToOwned::to_owned);
    let name = known.clone().unwrap_or_else(|| metadata::generated_name(PREFIX, settings.seed, 0));
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter(|c| !has_mount(c)) {
            let mount = json!({"name": name, "readOnly": true, "mountPath": MOUNT});
            if push(container, "volumeMounts", mount) {
                mounted = true;
            }
        }
    }
    if mounted && known.is_none() {
        push(&mut pod["spec"], "volumes", volume(&name));
    }
}

/// Appends to a list of an object, and creates the list if it is missing. Returns whether it succeeded.
fn push(object: &mut Value, list: &str, item: Value) -> bool {
    let Some(object) = object.as_object_mut() else { return false };
    match object.entry(list).or_insert_with(|| json!([])) {
        Value::Array(items) => items.push(item),
        absent @ Value::Null => *absent = json!([item]),
        _ => return false,
    }
    true
}

fn wants_token(server: &Server, target: &Target, pod: &Value) -> bool {
    if let Some(wanted) = pod["spec"]["automountServiceAccountToken"].as_bool() {
        return wanted;
    }
    let account = match text(pod, "/spec/serviceAccountName") {
        "" => "default",
        name => name,
    };
    let account = server.store().get("serviceaccounts", &Key::new(&target.namespace, account));
    account.is_none_or(|account| account.value()["automountServiceAccountToken"] != false)
}

fn volume(name: &str) -> Value {
    let namespace = json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    json!({"name": name, "projected": {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": LIFETIME, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
    }})
}
