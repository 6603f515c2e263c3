//! Loads files with a cluster's objects into an embedded cluster, for a preview without access to the original
//! cluster.
//!
//! Invariant: all objects of the files are loaded, or the command fails. Otherwise a missing object would appear as an
//! object to create. Invariant: no controller runs, so no object changes.
//!
//! Not here: objects created by controllers (the Pods of a ReplicaSet, Events). Such objects are never compared.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io, path::Path};

use devcluster::status::Status;
use devcluster::verbs::{delete::DeleteOptions, patch::Form};
use devcluster::{Action, Call, Caller, Options};
use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_cluster::{Cluster, Kind};
use mainstay_function::admission::{Version, convert};
use mainstay_object::{Key, redact_server_text, split_api_version};

/// Field manager of objects whose files contain no field manager.
const MANAGER: &str = "snapshot";
/// Metadata that only the server sets.
const OF_SERVER: [&str; 7] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");
const GIT_SYNCS: (&str, &str) = ("mainstay.dev", "GitSync");

/// Why saved objects cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("could not read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("could not read {}", .0.display())]
    Parse(PathBuf, #[source] serde_yaml::Error),
    #[error("could not write the definitions")]
    Definitions(#[source] serde_json::Error),
    #[error("could not load {what}: {why}")]
    Object { what: String, why: String },
    #[error(transparent)]
    Cluster(#[from] mainstay_cluster::Error),
}

/// A cluster with the saved objects.
pub(in crate::cli) struct Snapshot {
    pub(in crate::cli) cluster: Cluster,
    /// Warnings about data that is missing in the files.
    pub(in crate::cli) notes: Vec<String>,
}

/// Loads files of YAML or JSON documents and lists, as printed by `kubectl get -o yaml`.
///
/// # Errors
/// Fails if a file cannot be read, or if one of its objects cannot be loaded.
pub(in crate::cli) async fn load(files: &[PathBuf]) -> Result<Snapshot, Error> {
    let mut objects = Vec::new();
    for file in files {
        read(file, &mut objects)?;
    }
    // Owners come first, so that the UIDs of owners in this cluster are known.
    objects.sort_by_key(rank);
    let options = Options { converter: Some(converted), ..Options::default() };
    let server = devcluster::Cluster::new(options);
    let client = || kube::Client::new(server.client_service(), "default");
    let cluster = Cluster::from_clients(client(), client());
    let mut loading = Loading { server, cluster, uids: HashMap::new(), is_tracked: true };
    for definition in mainstay_api::definitions() {
        loading.add(serde_json::to_value(definition).map_err(Error::Definitions)?).await?;
    }
    for object in objects {
        loading.add(object).await?;
    }
    let untracked = "the snapshot has no managedFields (kubectl get --show-managed-fields), so removed fields are not \
                     shown, and nothing is deleted";
    let notes = if loading.is_tracked { Vec::new() } else { vec![untracked.to_owned()] };
    Ok(Snapshot { cluster: loading.cluster, notes })
}

/// Converts Functions, as the agent's webhook does in other clusters.
fn converted(object: &mut Value, to: &str) {
    if let Some(version) = Version::of(to) {
        convert(object, version);
    }
}

/// Reads the objects of a file, and unpacks lists.
fn read(file: &Path, objects: &mut Vec<Value>) -> Result<(), Error> {
    let text = fs::read_to_string(file).map_err(|cause| Error::Read(file.to_owned(), cause))?;
    for document in serde_yaml::Deserializer::from_str(&text) {
        let document = Value::deserialize(document).map_err(|cause| Error::Parse(file.to_owned(), cause))?;
        match document {
            Value::Null => {}
            Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
                if let Some(Value::Array(items)) = list.remove("items") {
                    objects.extend(items);
                }
            }
            object => objects.push(object),
        }
    }
    Ok(())
}

fn rank(object: &Value) -> u8 {
    let (group, kind) = group_and_kind(object);
    match kind {
        "Namespace" => 0,
        kind if (group, kind) == DEFINITIONS => 1,
        kind if (group, kind) == GIT_SYNCS => 2,
        _ => 3,
    }
}

fn group_and_kind(object: &Value) -> (&str, &str) {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    (split_api_version(text("apiVersion")).0, text("kind"))
}

struct Loading {
    server: devcluster::Cluster,
    cluster: Cluster,
    /// Maps UIDs in the original cluster to the UIDs in this cluster.
    uids: HashMap<String, String>,
    /// Whether every object has `managedFields`.
    is_tracked: bool,
}

impl Loading {
    async fn add(&mut self, mut object: Value) -> Result<(), Error> {
        let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let (group, word) = group_and_kind(&object);
        if word == "Event" || owners.iter().any(|owner| owner["controller"] == true) {
            return Ok(());
        }
        let is_definition = (group, word) == DEFINITIONS;
        let (version, word) = (object["apiVersion"].as_str().unwrap_or_default().to_owned(), word.to_owned());
        let Some(kind) = self.cluster.kind(&version, &word).await? else {
            return Err(Error::Object {
                what: format!("{version} {word}"),
                why: "its kind is not known; add its CustomResourceDefinition to the snapshot".to_owned(),
            });
        };
        let Some(key) = kind.key_of(&object) else {
            let why = "an object has no metadata.name".to_owned();
            return Err(Error::Object { what: format!("{version} {word}"), why });
        };
        let (uid, tracked) = self.move_here(&mut object["metadata"]);
        let status = object["status"].clone();
        self.name_space(&key);
        if key.is("", "Service") {
            give_up_addresses(&mut object);
        }
        let Some(created) = self.create(&kind, &key, object, is_definition)? else { return Ok(()) };
        if let (Some(there), Some(here)) = (uid, created["metadata"]["uid"].as_str()) {
            self.uids.insert(there, here.to_owned());
        }
        if (&*key.group, &*key.kind) == GIT_SYNCS && !status.is_null() {
            let patch = json!({"status": status});
            self.call(&kind, &key, "status", Action::Patch(Form::Merge, patch))
                .map_err(|status| refused(&key, &status))?;
        }
        if tracked.is_array() {
            let patch = json!([{"op": "add", "path": "/metadata/managedFields", "value": tracked}]);
            self.call(&kind, &key, "", Action::Patch(Form::Json, patch)).map_err(|status| refused(&key, &status))?;
        } else if created["metadata"]["labels"].get(mainstay_api::names::SYNC_LABEL).is_some() {
            self.is_tracked = false;
        }
        if is_definition {
            self.cluster.kinds_changed();
        }
        Ok(())
    }

    /// Removes the fields that the original server set, and maps the UIDs of owners to those of this cluster. Returns
    /// the original UID and `managedFields`.
    fn move_here(&self, metadata: &mut Value) -> (Option<String>, Value) {
        let uid = metadata["uid"].as_str().map(str::to_owned);
        let tracked = metadata["managedFields"].take();
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.retain(|field, _| field != "managedFields" && !OF_SERVER.contains(&&**field));
        }
        for owner in metadata["ownerReferences"].as_array_mut().into_iter().flatten() {
            if let Some(here) = owner["uid"].as_str().and_then(|there| self.uids.get(there)) {
                owner["uid"] = json!(here);
            }
        }
        if metadata["ownerReferences"].is_null()
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.remove("ownerReferences");
        }
        (uid, tracked)
    }

    /// Creates an object. Returns `None` if the object is built into this program.
    fn create(&self, kind: &Arc<Kind>, key: &Key, object: Value, is_definition: bool) -> Result<Option<Value>, Error> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let is_there = self.server.object(&kind.api_version(), &kind.plural, namespace, &key.name).is_some();
        let created = match (is_there, is_definition) {
            (false, _) => self.call(kind, key, "", Action::Create(object)),
            // These CRDs are built into this program.
            (true, true) => return Ok(None),
            // A namespace is not deleted and recreated, because no controller would finish its deletion.
            (true, false) if key.is("", "Namespace") => {
                let metadata = &object["metadata"];
                let metadata = json!({"labels": metadata["labels"], "annotations": metadata["annotations"]});
                self.call(kind, key, "", Action::Patch(Form::Merge, json!({"metadata": metadata})))
            }
            // Some objects exist in a new cluster, so they are replaced.
            (true, false) => {
                let gone = self.call(kind, key, "", Action::Delete(DeleteOptions::default()));
                gone.and_then(|_| self.call(kind, key, "", Action::Create(object)))
            }
        };
        created.map(Some).map_err(|status| refused(key, &status))
    }

    /// Creates the namespace of an object, whether that namespace was saved or not.
    fn name_space(&self, key: &Key) {
        let Some(name) = &key.namespace else { return };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": &**name}});
        let call = Call::new("v1", "namespaces", "", name, Action::Create(namespace));
        // An error is ignored, because the namespace usually exists already.
        let _ = self.server.call(&Caller::new(MANAGER), call);
    }

    fn call(&self, kind: &Kind, key: &Key, subresource: &str, action: Action) -> Result<Value, Status> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let call = Call::new(&kind.api_version(), &kind.plural, namespace, &key.name, action).on(subresource);
        self.server.call(&Caller::new(MANAGER), call)
    }
}

/// Removes addresses of a Service, because a different cluster may have different ranges. The result is the same,
/// because fields that Git does not set are not compared.
fn give_up_addresses(service: &mut Value) {
    let Some(spec) = service["spec"].as_object_mut() else { return };
    spec.remove("ipFamilies");
    if spec.get("clusterIP").is_some_and(|address| address != "None") {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
}

fn refused(key: &Key, status: &Status) -> Error {
    Error::Object { what: key.to_string(), why: redact_server_text(key, &status.message) }
}
