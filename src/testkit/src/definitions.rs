//! CRDs of other projects. An external cluster gets the CRDs that `.ci/real` extracted from the projects' Go modules.
//! The embedded cluster gets its built-in CRDs.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use devcluster::verbs::delete::DeleteOptions;
use devcluster::{Action, Call};
use serde::Deserialize as _;
use serde_json::Value;

use super::external::External;
use super::server::TestServer;
use super::world::World;

/// Environment variable with the directory of the projects' CRDs, as YAML files.
const DIRECTORY: &str = "MAINSTAY_TEST_DEFINITIONS";
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");

/// Returns a CRD by its name from a stream of documents.
pub fn of_stream(name: &str, documents: &str) -> Value {
    let all = serde_yaml::Deserializer::from_str(documents).map(|one| Value::deserialize(one).unwrap());
    let found = all.into_iter().find(|one| one["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("there is no definition {name}"))
}

/// Returns the CRD of a project for any cluster; `None` if no module has it, or `.ci/real` did not run.
pub fn of_project(name: &str) -> Option<Value> {
    static ALL: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
    ALL.get_or_init(read).get(name).cloned()
}

fn read() -> BTreeMap<String, Value> {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document = Value::deserialize(document).unwrap();
            if document["kind"] == "CustomResourceDefinition" {
                all.insert(document["metadata"]["name"].as_str().unwrap().to_owned(), document);
            }
        }
    }
    all
}

/// Returns the project's own CRD for an external cluster, or the CRD in these documents for the embedded cluster.
pub fn definition(name: &str, embedded: &str) -> Value {
    let own = if External::is_named() { of_project(name) } else { None };
    own.unwrap_or_else(|| of_stream(name, embedded))
}

impl World {
    /// Creates a CRD.
    pub fn define(&self, definition: Value) {
        match &self.server {
            TestServer::External(external) => external.define(definition),
            TestServer::Embedded(_) => drop(self.create(DEFINITIONS.0, DEFINITIONS.1, "", definition)),
        }
    }

    /// Deletes a CRD.
    pub fn undefine(&self, name: &str) {
        match &self.server {
            TestServer::External(external) => external.undefine(name),
            TestServer::Embedded(_) => {
                let action = Action::Delete(DeleteOptions::default());
                self.write_as("kubectl", Call::new(DEFINITIONS.0, DEFINITIONS.1, "", name, action));
            }
        }
    }

    /// Creates these CRDs, and deletes other CRDs from earlier tests.
    pub fn define_only(&self, definitions: Vec<Value>) {
        if let TestServer::External(external) = &self.server {
            let names: Vec<&str> = definitions.iter().map(|one| one["metadata"]["name"].as_str().unwrap()).collect();
            external.keep_defined(&names);
        }
        for definition in definitions {
            self.define(definition);
        }
    }
}
