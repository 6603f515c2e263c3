//! The content of copies, and the owner of an object that has the name of a base in a different namespace.
//!
//! Invariant: copies get only the labels of the Serverless API, and no annotations of the base. Otherwise a tool that
//! applied the base would claim its copies.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::apply::Version;
use crate::managed::PauseEnd;
use crate::managed::verdict::{is_controlled, pause_of};
use mainstay_api::names::{
    CONFIG, COPY_OF, CREDENTIALS, GENERATE, MANAGED_BY, PROPAGATED, PROPAGATED_FROM, PROPAGATION_MANAGER,
    SERVERLESS_PREFIX, SERVICE_ACCOUNT, SYNC_LABEL, USER,
};
use mainstay_cluster::{Kind, Scope};

/// A kind that is copied.
#[derive(Clone, Debug)]
pub struct Propagated {
    pub(super) kind: Arc<Kind>,
    /// The value of the label [`CONFIG`] on bases.
    pub(super) label: &'static str,
    /// The fields that are copied in addition to labels.
    pub(super) fields: &'static [&'static str],
    /// Returns the `data` of a namespace's copy where it differs from the base.
    own_data: Option<OwnData>,
}

/// A function from the `data` of a Secret and a namespace to the `data` of the copy; `None` if both are the same.
#[derive(Clone, Copy, Debug)]
struct OwnData(fn(&Value, &str) -> Option<Value>);

impl PartialEq for OwnData {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Propagated {
    /// Returns the kind Secret. `own_data` returns the `data` of the copy for a namespace, or `None` if it equals that
    /// of the base.
    pub fn secrets(own_data: fn(&Value, &str) -> Option<Value>) -> Self {
        let kind = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
        Self { kind, label: CREDENTIALS, fields: &["type", "data"], own_data: Some(OwnData(own_data)) }
    }

    /// Returns the kind ServiceAccount. Tokens are not copied.
    pub fn service_accounts() -> Self {
        let kind = Arc::new(Kind::fixed("v1", "ServiceAccount", "serviceaccounts", Scope::Namespaced));
        let fields = &["imagePullSecrets", "automountServiceAccountToken"];
        Self { kind, label: SERVICE_ACCOUNT, fields, own_data: None }
    }
}

/// A labelled object in the agent's namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Base {
    pub(super) uid: String,
    /// The digest of the copied content.
    pub(super) digest: String,
    /// The copy without its namespace and without `data` of its own.
    body: Value,
    own_data: Option<OwnData>,
    /// Why the base is not copied, and the label to remove from it.
    pub(super) refused: Option<(&'static str, &'static str)>,
}

impl Base {
    /// Reads a base; `None` if it is being deleted or has no name.
    pub(super) fn read(propagated: &Propagated, home: &str, live: &Value) -> Option<Self> {
        let text = |path: &str| live.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
        if name.is_empty() || !live["metadata"]["deletionTimestamp"].is_null() {
            return None;
        }
        let labels = live["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.filter(|(label, _)| label.starts_with(SERVERLESS_PREFIX) && *label != MANAGED_BY);
        let mut labels: Map<String, Value> = labels.map(|(label, value)| (label.clone(), value.clone())).collect();
        labels.insert(PROPAGATED_FROM.to_owned(), home.into());
        let mut body = json!({
            "apiVersion": propagated.kind.api_version(), "kind": &*propagated.kind.kind,
            "metadata": {"name": name, "labels": labels},
        });
        for field in propagated.fields.iter().filter(|field| !live[**field].is_null()) {
            body[*field] = live[*field].clone();
        }
        // The UID is a salt: without it, the digest would allow guesses of secret values.
        let digest = hex::encode(Sha256::digest(format!("{uid} {body}")))[..32].to_owned();
        let kind = &propagated.kind.kind;
        let about = format!(
            "{kind} {home}/{name}; to keep a content of your own here: kubectl label {} {name} {MANAGED_BY}={USER}",
            kind.to_lowercase()
        );
        body["metadata"]["annotations"] = json!({PROPAGATED: digest, COPY_OF: about});
        Some(Self { uid: uid.to_owned(), digest, body, own_data: propagated.own_data, refused: refused(live) })
    }

    /// Returns the copy for a namespace.
    pub(super) fn copy(&self, namespace: &str) -> Value {
        let mut body = self.body.clone();
        body["metadata"]["namespace"] = namespace.into();
        if let Some(data) = self.own_data.and_then(|own| own.0(&body["data"], namespace)) {
            body["data"] = data;
        }
        body
    }

    /// The type of a Secret.
    pub(super) fn of_type(&self) -> Option<&str> {
        self.body["type"].as_str()
    }
}

/// Returns why a labelled object is not copied, and the label to remove from it.
fn refused(live: &Value) -> Option<(&'static str, &'static str)> {
    if matches!(live["type"].as_str(), Some("kubernetes.io/service-account-token" | "bootstrap.kubernetes.io/token")) {
        Some(("it is a token; its copies would be invalid, or would give others the permissions of the agent", CONFIG))
    } else if !live["metadata"]["labels"][GENERATE].is_null() {
        Some(("it is a key that the agent has made for a Git repository", CONFIG))
    } else if !live["metadata"]["labels"][PROPAGATED_FROM].is_null() {
        // An agent of a different namespace left the object, or a user created it.
        Some(("its label marks it as a copy", PROPAGATED_FROM))
    } else {
        None
    }
}

/// The owner of an object with the name of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// A copy made by Mainstay.
    Ours,
    /// A copy made by Mainstay that is paused until this time.
    Paused(Timestamp),
    /// An object of another client, or a copy that a user took over.
    Theirs,
}

/// Returns the owner of an object by its metadata.
pub(super) fn whose(home: &str, meta: &ObjectMeta, now: Timestamp) -> Whose {
    let label = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name)).map(String::as_str);
    let is_theirs = label(PROPAGATED_FROM) != Some(home)
        || label(MANAGED_BY) == Some(USER)
        || label(SYNC_LABEL).is_some()
        || is_controlled(meta);
    if is_theirs || entry(meta, "Apply").or(entry(meta, "Update")).is_none() {
        return Whose::Theirs;
    }
    match pause_of(meta, now).map(PauseEnd::time) {
        None => Whose::Ours,
        Some(Some(end)) => Whose::Paused(end),
        Some(None) => Whose::Theirs,
    }
}

/// Returns the index of Mainstay's entry in `managedFields`. A creation leaves an `Update` entry, a later apply an
/// `Apply` entry.
fn entry(meta: &ObjectMeta, operation: &str) -> Option<usize> {
    meta.managed_fields.iter().flatten().position(|entry| {
        entry.manager.as_deref() == Some(PROPAGATION_MANAGER) && entry.operation.as_deref() == Some(operation)
    })
}

pub(super) fn version(meta: &ObjectMeta) -> Version {
    Version {
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
    }
}

/// An object with the name of a base in a different namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) version: Version,
    pub(super) whose: Whose,
    /// The index of Mainstay's `Update` entry in `managedFields` if the object was never applied.
    pub(super) created: Option<usize>,
    /// The digest of the base if the copy has all of its content.
    pub(super) copy_of: Option<String>,
    /// The type of a Secret.
    pub(super) of_type: Option<String>,
    pub(super) is_immutable: bool,
    pub(super) is_terminating: bool,
}

impl Found {
    /// Reads an object and compares it with the base.
    pub(super) fn read(home: &str, base: Option<&Base>, live: &Value, now: Timestamp) -> Self {
        let meta: ObjectMeta = serde_json::from_value(live["metadata"].clone()).unwrap_or_default();
        let is_copy = |base: &&Base| contains(live, &base.copy(meta.namespace.as_deref().unwrap_or_default()));
        Self {
            version: version(&meta),
            whose: whose(home, &meta, now),
            created: if entry(&meta, "Apply").is_some() { None } else { entry(&meta, "Update") },
            copy_of: base.filter(is_copy).map(|base| base.digest.clone()),
            of_type: live["type"].as_str().map(str::to_owned),
            is_immutable: live["immutable"] == true,
            is_terminating: meta.deletion_timestamp.is_some(),
        }
    }
}

/// Whether `live` contains all of `wanted`.
fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| live.get(name).is_some_and(|live| contains(live, wanted)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| live.iter().any(|live| contains(live, wanted)))
        }
        _ => live == wanted,
    }
}

/// Returns a JSON patch that turns Mainstay's `Update` entry into an `Apply` entry. Only then does an apply remove
/// fields that the base lacks. `created` is the index of the entry in `managedFields` at this version.
pub(super) fn as_applied(created: usize, resource_version: &str) -> Value {
    json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version},
        {"op": "replace", "path": format!("/metadata/managedFields/{created}/operation"), "value": "Apply"},
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `data` that differs per namespace, for a Secret with the item `key`.
    fn own_data(data: &Value, namespace: &str) -> Option<Value> {
        data.get("key")?;
        Some(json!({"password": format!("of {namespace}")}))
    }

    fn base(live: &Value) -> Base {
        Base::read(&Propagated::secrets(own_data), "home", live).unwrap()
    }

    fn secret() -> Value {
        json!({
            "metadata": {
                "name": "a", "namespace": "home", "uid": "u", "resourceVersion": "1",
                "labels": {
                    "serverless.kyma-project.io/config": "credentials", "mainstay.dev/sync": "home.platform",
                    "serverless.kyma-project.io/managed-by": "user",
                },
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
            },
            "type": "Opaque", "immutable": true, "data": {"password": "eA=="},
        })
    }

    #[test]
    fn copies_have_the_labels_of_functions_and_no_marks_of_their_applier() {
        let copy = base(&secret()).copy("shop");
        let digest = copy["metadata"]["annotations"][PROPAGATED].clone();
        let about = "Secret home/a; to keep a content of your own here: kubectl label secret a \
                     serverless.kyma-project.io/managed-by=user";
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"password": "eA=="},
            "metadata": {
                "name": "a", "namespace": "shop", "annotations": {PROPAGATED: digest, COPY_OF: about},
                "labels": {"serverless.kyma-project.io/config": "credentials", PROPAGATED_FROM: "home"},
            },
        });
        assert_eq!(copy, expected);
        let mut other = secret();
        other["metadata"]["annotations"] = json!({});
        assert_eq!(base(&other), base(&secret()), "what is not copied changes nothing");
        other["data"]["password"] = "eQ==".into();
        assert_ne!(base(&other).digest, base(&secret()).digest);
        other["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(Base::read(&Propagated::secrets(own_data), "home", &other), None);
    }

    #[test]
    fn copies_of_others_are_recognized_by_any_sign() {
        let ours = json!({
            "labels": {PROPAGATED_FROM: "home"}, "annotations": {},
            "managedFields": [{"manager": PROPAGATION_MANAGER, "operation": "Apply"}],
        });
        let check = |path: &str, value: Value, expected: Whose| {
            let mut meta = ours.clone();
            if !path.is_empty() {
                *meta.pointer_mut(path).unwrap() = value;
            }
            let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            assert_eq!(whose("home", &meta, Timestamp::UNIX_EPOCH), expected, "{meta:?}");
        };
        check("", Value::Null, Whose::Ours);
        check("/managedFields", json!([]), Whose::Theirs);
        check("/managedFields/0/operation", "Update".into(), Whose::Ours);
        check("/managedFields/0/manager", "mainstay".into(), Whose::Theirs);
        let paused = |until: &str| json!({"mainstay.dev/reconcile": "disabled", "mainstay.dev/until": until});
        check("/annotations", paused("1970-01-01T00:00:01Z"), Whose::Paused(Timestamp::from_second(1).unwrap()));
        check("/annotations", paused("1969-01-01T00:00:00Z"), Whose::Ours);
        check("/annotations", paused("tomorrow"), Whose::Theirs);
        check("/labels", json!({}), Whose::Theirs);
        check("/labels", json!({PROPAGATED_FROM: "elsewhere"}), Whose::Theirs);
        check("/labels", json!({PROPAGATED_FROM: "home", MANAGED_BY: USER}), Whose::Theirs);
        check("/labels", json!({PROPAGATED_FROM: "home", SYNC_LABEL: "shop.demo"}), Whose::Theirs);
    }

    #[test]
    fn a_namespace_may_have_data_of_its_own() {
        let mut live = secret();
        live["data"]["key"] = "a2V5".into();
        let own = base(&live);
        assert_ne!(own.digest, base(&secret()).digest);
        let (shop, blog) = (own.copy("shop"), own.copy("blog"));
        assert_eq!((&shop["data"], &blog["data"]), (&json!({"password": "of shop"}), &json!({"password": "of blog"})));
        let found = |live: &Value| Found::read("home", Some(&own), live, Timestamp::UNIX_EPOCH).copy_of;
        assert_eq!(found(&shop).as_deref(), Some(&*own.digest));
        let mut moved = blog;
        moved["metadata"]["namespace"] = "shop".into();
        assert_eq!(found(&moved), None, "it has the data of another namespace");
    }

    #[test]
    fn a_copy_may_have_more_than_its_base() {
        let base = base(&secret());
        let mut live = base.copy("shop");
        live["metadata"]["labels"]["team"] = "x".into();
        live["data"]["more"] = "eA==".into();
        let found = Found::read("home", Some(&base), &live, Timestamp::UNIX_EPOCH);
        assert_eq!(found.copy_of.as_deref(), Some(&*base.digest));
        live["data"]["password"] = "eQ==".into();
        assert_eq!(Found::read("home", Some(&base), &live, Timestamp::UNIX_EPOCH).copy_of, None);
    }
}
