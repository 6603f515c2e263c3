//! The objects of a world: reads and writes of a test.

use std::sync::Arc;

use devcluster::status::Status;
use devcluster::verbs::delete::{DeleteOptions, Propagation};
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, Caller};
use serde_json::{Value, json};

use super::{NAMESPACE, World};

impl World {
    /// Sends a request as a field manager.
    pub fn try_as(&self, manager: &str, call: Call) -> Result<Value, Status> {
        self.server.call(&Caller::new(manager), call)
    }

    /// Sends a request as a field manager. The request must succeed.
    #[track_caller]
    pub fn write_as(&self, manager: &str, call: Call) -> Value {
        self.server.must_call(manager, call)
    }

    /// Creates an object as `test`.
    #[track_caller]
    pub fn create(&self, api_version: &str, resource: &str, namespace: &str, object: Value) -> Value {
        self.write_as("test", Call::new(api_version, resource, namespace, "", Action::Create(object)))
    }

    /// Merge-patches an object of the namespace, as a user does with `kubectl edit`.
    #[track_caller]
    pub fn edit(&self, api_version: &str, resource: &str, name: &str, patch: Value) -> Value {
        let action = Action::Patch(Form::Merge, patch);
        self.write_as("kubectl-edit", Call::new(api_version, resource, NAMESPACE, name, action))
    }

    /// Merge-patches an object of the namespace, or creates it from the patch if it is missing.
    #[track_caller]
    pub fn edit_or_create(&self, resource: &str, kind: &str, name: &str, patch: Value) {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}});
        json_patch::merge(&mut object, &patch);
        let call = |name, action| Call::new("v1", resource, NAMESPACE, name, action);
        // Another client may create or delete the object between the two requests.
        loop {
            match self.try_as("kubectl-edit", call(name, Action::Patch(Form::Merge, patch.clone()))) {
                Ok(_) => return,
                Err(status) if status.code == 404 => {}
                Err(status) => panic!("patch {resource} {NAMESPACE}/{name}: {status:?}"),
            }
            match self.try_as("test", call("", Action::Create(object.clone()))) {
                Ok(_) => return,
                Err(status) if status.reason == "AlreadyExists" => {}
                Err(status) => panic!("create {resource} {NAMESPACE}/{name}: {status:?}"),
            }
        }
    }

    /// Sets these keys of a Secret in the namespace. Creates it if it is missing.
    #[track_caller]
    pub fn set_secret(&self, name: &str, data: Value) {
        self.edit_or_create("secrets", "Secret", name, json!({"stringData": data}));
    }

    /// Creates the Lease of an agent, as it exists in a cluster. Otherwise, agents of worlds have no Lease.
    pub fn hold_lease(&self) {
        let spec = json!({
            "holderIdentity": "one", "leaseDurationSeconds": 3600, "renewTime": "2099-01-01T00:00:00.000000Z",
        });
        let lease = json!({"metadata": {"name": "mainstay"}, "spec": spec});
        self.create("coordination.k8s.io/v1", "leases", NAMESPACE, lease);
    }

    /// Deletes an object of the namespace, as a user does with `kubectl delete`.
    ///
    /// kubectl names the propagation policy. Without one, a Job of `batch/v1` stays until the garbage collector has
    /// orphaned its pods.
    #[track_caller]
    pub fn delete(&self, api_version: &str, resource: &str, name: &str) {
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        let action = Action::Delete(options);
        self.write_as("kubectl", Call::new(api_version, resource, NAMESPACE, name, action));
    }

    /// Returns an object of the namespace.
    pub fn get(&self, api_version: &str, resource: &str, name: &str) -> Option<Arc<Value>> {
        self.server.object(api_version, resource, NAMESPACE, name)
    }

    /// Returns `data.key` of a ConfigMap in the namespace, or `absent`.
    pub fn data(&self, name: &str) -> String {
        let map = self.get("v1", "configmaps", name);
        map.and_then(|map| map["data"]["key"].as_str().map(str::to_owned)).unwrap_or_else(|| "absent".to_owned())
    }

    /// Returns the UID of an object in the namespace.
    #[track_caller]
    pub fn uid(&self, api_version: &str, resource: &str, name: &str) -> String {
        self.get(api_version, resource, name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Returns the names of ConfigMaps in the namespace, without inventories and the cluster's own.
    pub fn config_maps(&self) -> Vec<String> {
        let all = self.server.objects("v1", "configmaps", Some(NAMESPACE));
        let names = all.iter().map(|map| map["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| !name.starts_with("mainstay-inventory-") && name != "kube-root-ca.crt").collect()
    }
}
