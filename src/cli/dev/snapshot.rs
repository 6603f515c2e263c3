//! Files with the objects of a cluster become a cluster of this process, against which a preview is made without the other one.
//!
//! Invariant: what is in the files is in it, or the command fails: an object that is missing would count as one to create.
//! Invariant: no controller runs, so nothing in it moves.
//!
//! Deliberately absent: what controllers made from others (the Pods of a ReplicaSet, Events); nothing of it is ever compared.

use std::collections::HashMap;
use std::path::PathBuf;
use std::{fs, path::Path};

use devcluster::status::Status;
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, Caller, Options};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::api;
use crate::cli::Error;
use crate::cluster::{Cluster, Kind};
use crate::object::{Key, redact_server_text, split_api_version};

/// Who has created what is in the files, where they do not say so.
const MANAGER: &str = "snapshot";
/// Fields of the metadata that only the server of an object sets.
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

/// A cluster with what was saved.
pub(in crate::cli) struct Snapshot {
    pub(in crate::cli) cluster: Cluster,
    /// What the files lack.
    pub(in crate::cli) notes: Vec<String>,
}

/// Loads files of YAML or JSON documents and lists, such as `kubectl get -o yaml` prints.
///
/// # Errors
/// A file cannot be read, or an object in it cannot be loaded.
pub(in crate::cli) async fn load(files: &[PathBuf]) -> Result<Snapshot, Error> {
    let mut objects = Vec::new();
    for file in files {
        read(file, &mut objects)?;
    }
    // What others need comes first; their owners are known by a uid of this cluster then.
    objects.sort_by_key(rank);
    let options = Options { converter: Some(super::embedded::converted), ..Options::default() };
    let server = devcluster::Cluster::new(options);
    let client = || kube::Client::new(server.client_service(), "default");
    let cluster = Cluster::from_clients(client(), client());
    let mut loading = Loading { server, cluster, uids: HashMap::new(), is_tracked: true };
    for definition in api::definitions() {
        let definition = serde_json::to_value(definition);
        let definition = definition.map_err(|cause| Error::Understand { what: "the definitions".to_owned(), cause })?;
        loading.add(definition).await?;
    }
    for object in objects {
        loading.add(object).await?;
    }
    let untracked = "the snapshot does not say who owns which fields (kubectl get --show-managed-fields), so what the repository \
        no longer has in an object is not seen, and nothing is deleted";
    let notes = if loading.is_tracked { Vec::new() } else { vec![untracked.to_owned()] };
    Ok(Snapshot { cluster: loading.cluster, notes })
}

/// The objects of a file; lists are unpacked.
fn read(file: &Path, objects: &mut Vec<Value>) -> Result<(), Error> {
    let text = fs::read_to_string(file).map_err(|cause| Error::ReadFile { path: file.to_owned(), cause })?;
    for document in serde_yaml::Deserializer::from_str(&text) {
        let document =
            Value::deserialize(document).map_err(|cause| Error::ReadYaml { path: file.to_owned(), cause })?;
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
    /// What objects are known by here, by what they were known by there.
    uids: HashMap<String, String>,
    /// Whether every object says who owns which of its fields.
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
            return Err(Error::Snapshot {
                what: format!("{version} {word}"),
                why: "its kind is not known; add its CustomResourceDefinition to the snapshot".to_owned(),
            });
        };
        let Some(key) = kind.key_of(&object) else {
            let why = "an object has no metadata.name".to_owned();
            return Err(Error::Snapshot { what: format!("{version} {word}"), why });
        };
        let metadata = &mut object["metadata"];
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
        let status = object["status"].clone();
        self.name_space(&key);
        let created = match self.call(&kind, &key, "", Action::Create(object)) {
            // A cluster has some objects from its beginning, and our definitions are those of this program.
            Err(status) if status.code == 409 => return Ok(()),
            created => created.map_err(|status| refused(&key, &status))?,
        };
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
        } else if created["metadata"]["labels"].get(api::names::SYNC_LABEL).is_some() {
            self.is_tracked = false;
        }
        if is_definition {
            self.cluster.kinds_changed();
        }
        Ok(())
    }

    /// A namespace that has something is there, whether it was saved or not.
    fn name_space(&self, key: &Key) {
        let Some(name) = &key.namespace else { return };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": &**name}});
        let call = Call::new("v1", "namespaces", "", name, Action::Create(namespace));
        // Most are there already.
        let _ = self.server.call(&Caller::new(MANAGER), call);
    }

    fn call(&self, kind: &Kind, key: &Key, subresource: &str, action: Action) -> Result<Value, Status> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let call = Call::new(&kind.api_version(), &kind.plural, namespace, &key.name, action).on(subresource);
        self.server.call(&Caller::new(MANAGER), call)
    }
}

fn refused(key: &Key, status: &Status) -> Error {
    Error::Snapshot { what: key.to_string(), why: redact_server_text(key, &status.message) }
}
