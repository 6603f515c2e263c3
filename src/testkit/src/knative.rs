//! The parts of Knative Serving that Functions depend on: its CRDs, and simulated controllers. An external cluster has
//! Knative's own CRDs, and with [`RUNS`] also Knative's own controllers.
//!
//! The schemas here contain only the fields for tests, with the defaults of Knative's admission. The simulated
//! controllers write the states of a Knative Service in order, its Configuration, Revisions and Route, and the Service
//! with the address.

use std::collections::HashMap;

use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, Caller};
use serde_json::{Value, json};

use super::definitions::of_project;
use super::external::External;
use super::server::TestServer;
use super::world::{NAMESPACE, World};

/// Knative's Services.
pub const KNATIVE: (&str, &str) = ("serving.knative.dev/v1", "services");
/// Knative's Routes.
pub const ROUTES: (&str, &str) = ("serving.knative.dev/v1", "routes");
const CONFIGURATIONS: (&str, &str) = ("serving.knative.dev/v1", "configurations");
/// Knative's Revisions.
pub const REVISIONS: (&str, &str) = ("serving.knative.dev/v1", "revisions");
const SERVICES: (&str, &str) = ("v1", "services");
/// Environment variable that is set if Knative's webhook and controllers run in the external cluster.
const RUNS: &str = "MAINSTAY_TEST_KNATIVE";
/// Environment variable of a Function whose Revision fails.
pub const BREAKS: &str = "BREAKS";

fn definition(kind: &str, plural: &str) -> Value {
    let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut container = open();
    container["properties"] = json!({"readinessProbe": open()});
    container["properties"]["readinessProbe"]["default"] = json!({"successThreshold": 1, "tcpSocket": {"port": 0}});
    let mut template = open();
    template["properties"] = json!({"spec": open()});
    template["properties"]["spec"]["properties"] = json!({"containers": {"type": "array", "items": container}});
    let mut spec = open();
    spec["properties"] = json!({"template": template});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.serving.knative.dev")},
        "spec": {
            "group": "serving.knative.dev", "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": open()}}},
            }],
        },
    })
}

/// Whether Knative itself runs instead of the simulation.
pub fn is_real() -> bool {
    std::env::var_os(RUNS).is_some()
}

impl World {
    /// Returns a world with Functions and without Knative.
    pub async fn without_knative() -> Self {
        let world = Self::with_functions().await;
        if !is_real() {
            world.define_only(Vec::new());
        }
        world
    }

    /// Installs Knative's CRDs, unless Knative itself runs.
    pub fn knative_is_installed(&self) {
        if is_real() {
            return;
        }
        let follow = [("Configuration", "configurations"), ("Revision", "revisions"), ("Route", "routes")];
        for (kind, plural) in follow.into_iter().chain([("Service", "services")]) {
            let own = if External::is_named() { of_project(&format!("{plural}.serving.knative.dev")) } else { None };
            self.define(own.unwrap_or_else(|| definition(kind, plural)));
        }
    }

    /// Runs Knative's controllers from now on. The controllers also handle existing objects.
    pub fn knative_runs(&self) {
        if is_real() {
            return;
        }
        let mut of_knative = self.server.changes(KNATIVE.0, KNATIVE.1);
        let (mut routes, mut services) =
            (self.server.changes(ROUTES.0, ROUTES.1), self.server.changes(SERVICES.0, SERVICES.1));
        let mut controller = Controller { server: self.server.clone(), revisions: HashMap::new() };
        let first = self.server.objects(KNATIVE.0, KNATIVE.1, Some(NAMESPACE));
        for service in &first {
            controller.reconcile(service);
        }
        tokio::spawn(async move {
            loop {
                // Changes of other objects matter only if Knative owns the objects.
                let mut changed = tokio::select! {
                    services = of_knative.next() => services,
                    routes = routes.next() => routes,
                    services = services.next() => services.into_iter().filter(is_of_route).collect(),
                };
                changed.dedup_by(|one, other| one["metadata"]["name"] == other["metadata"]["name"]);
                for object in &changed {
                    controller.reconcile(object);
                }
            }
        });
    }
}

fn is_of_route(service: &Value) -> bool {
    service["metadata"]["ownerReferences"][0]["kind"] == "Route"
}

struct Controller {
    server: TestServer,
    /// The template of each Knative Service and its number, by the UID of the Service.
    revisions: HashMap<String, (Value, u32)>,
}

impl Controller {
    /// Moves the Knative Service to its next state.
    fn reconcile(&mut self, seen: &Value) {
        let name = seen["metadata"]["name"].as_str().unwrap();
        let Some(live) = self.server.object(KNATIVE.0, KNATIVE.1, NAMESPACE, name) else { return };
        if !live["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let status = self.next(&live, name);
        if status != live["status"] {
            let patch = Action::Patch(Form::Merge, json!({"status": status}));
            self.call(Call::new(KNATIVE.0, KNATIVE.1, NAMESPACE, name, patch).on("status"));
        }
    }

    fn next(&mut self, live: &Value, name: &str) -> Value {
        let mut status = live["status"].clone();
        if status["observedGeneration"] != live["metadata"]["generation"] {
            let late = "The Configuration is still working to reflect the latest desired specification.";
            status["observedGeneration"] = live["metadata"]["generation"].clone();
            let routes = routes(&status).unwrap_or(("Unknown", "OutOfDate", late));
            set(&mut status, ("Unknown", "OutOfDate", late), routes);
            return status;
        }
        let template = live["spec"]["template"].clone();
        let uid = live["metadata"]["uid"].as_str().unwrap().to_owned();
        let (last, number) = self.revisions.entry(uid).or_insert((template.clone(), 1));
        if *last != template {
            (*last, *number) = (template.clone(), *number + 1);
        }
        let number = *number;
        let revision = format!("{name}-{number:05}");
        let configuration = self.configuration(live, name, &template);
        self.revision(&configuration, &revision, number);
        status["latestCreatedRevisionName"] = revision.as_str().into();
        let variables = template["spec"]["containers"][0]["env"].as_array().into_iter().flatten();
        if variables.clone().any(|variable| variable["name"] == BREAKS) {
            let why = format!("Revision \"{revision}\" failed with message: Container failed with: boom.");
            let none = format!("Configuration \"{name}\" does not have any ready Revision.");
            let routes = routes(&status).unwrap_or(("False", "RevisionMissing", &none));
            set(&mut status, ("False", "RevisionFailed", &why), routes);
            self.follow(CONFIGURATIONS, &configuration, &status);
            return status;
        }
        let private = live["metadata"]["labels"]["networking.knative.dev/visibility"] == "cluster-local";
        let domain = if private { "svc.cluster.local" } else { "example.com" };
        status["url"] = format!("http://{name}.{NAMESPACE}.{domain}").into();
        status["latestReadyRevisionName"] = revision.as_str().into();
        set(&mut status, ("True", "", ""), ("True", "", ""));
        self.follow(CONFIGURATIONS, &configuration, &status);
        let Some(route) = self.route(live, name) else {
            set(&mut status, ("True", "", ""), ("False", "NotOwned", "There is an existing Route that we do not own."));
            return status;
        };
        let targets = route["spec"]["traffic"].as_array().cloned().unwrap_or_default();
        let programmed = targets.into_iter().map(|mut target| {
            if target["revisionName"].is_null() {
                target["revisionName"] = revision.as_str().into();
            }
            target
        });
        let programmed: Vec<_> = programmed.collect();
        let is_there = |target: &&Value| {
            let name = target["revisionName"].as_str().unwrap();
            self.server.object(REVISIONS.0, REVISIONS.1, NAMESPACE, name).is_some()
        };
        if let Some(missing) = programmed.iter().find(|target| !is_there(target)) {
            let text = format!("Revision {} referenced in traffic not found.", missing["revisionName"]);
            set(&mut status, ("True", "", ""), ("False", "RevisionMissing", &text));
        } else if self.has_address(live, name, &route) {
            status["traffic"] = programmed.into();
        } else {
            let foreign = format!("There is an existing placeholder Service \"{name}\" that we do not own.");
            set(&mut status, ("True", "", ""), ("False", "NotOwned", &foreign));
        }
        self.follow(ROUTES, &route, &status);
        status
    }

    /// Writes the Configuration with this template.
    fn configuration(&self, live: &Value, name: &str, template: &Value) -> Value {
        let metadata = owned_by(name, live);
        let spec = json!({"template": template});
        self.put(CONFIGURATIONS, json!({"kind": "Configuration", "metadata": metadata, "spec": spec}))
    }

    /// Writes the Revision with this name.
    fn revision(&self, configuration: &Value, name: &str, number: u32) {
        let mut metadata = owned_by(name, configuration);
        metadata["labels"] = json!({
            "serving.knative.dev/service": configuration["metadata"]["name"],
            "serving.knative.dev/configurationGeneration": number.to_string(),
        });
        if self.server.object(REVISIONS.0, REVISIONS.1, NAMESPACE, name).is_none() {
            self.put(REVISIONS, json!({"kind": "Revision", "metadata": metadata}));
        }
    }

    /// Writes the Route, unless another Knative Service owns it.
    fn route(&self, live: &Value, name: &str) -> Option<Value> {
        let there = self.server.object(ROUTES.0, ROUTES.1, NAMESPACE, name);
        if there.is_some_and(|route| route["metadata"]["ownerReferences"][0]["uid"] != live["metadata"]["uid"]) {
            return None;
        }
        let latest = json!([{"latestRevision": true, "percent": 100}]);
        let traffic = live["spec"]["traffic"].as_array().map_or(latest, |traffic| json!(traffic));
        let route = json!({"kind": "Route", "metadata": owned_by(name, live), "spec": {"traffic": traffic}});
        Some(self.put(ROUTES, route))
    }

    /// Creates an object, or updates its spec.
    fn put(&self, (version, resource): (&str, &str), mut object: Value) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let call = match self.server.object(version, resource, NAMESPACE, &name) {
            None => {
                object["apiVersion"] = version.into();
                Call::new(version, resource, NAMESPACE, "", Action::Create(object))
            }
            Some(live) if live["spec"] == object["spec"] => return Value::clone(&live),
            Some(_) => {
                let patch = json!({"spec": object["spec"]});
                Call::new(version, resource, NAMESPACE, &name, Action::Patch(Form::Merge, patch))
            }
        };
        self.call(call)
    }

    /// Copies the status of a Knative Service to one of its objects: the Revisions to its Configuration, the traffic to
    /// its Route.
    fn follow(&self, (version, resource): (&str, &str), object: &Value, of_service: &Value) {
        // In `next`, the traffic of the status is still the earlier one when the Configuration is written.
        let (kind, fields): (_, &[&str]) = if resource == ROUTES.1 {
            ("RoutesReady", &["traffic"])
        } else {
            ("ConfigurationsReady", &["latestReadyRevisionName", "latestCreatedRevisionName"])
        };
        let mut status = json!({"observedGeneration": object["metadata"]["generation"]});
        for field in fields {
            status[field] = of_service[field].clone();
        }
        let all = of_service["conditions"].as_array().into_iter().flatten();
        let said = all.filter(|condition| condition["type"] == kind).cloned();
        let said = said.map(|mut condition| {
            condition["type"] = "Ready".into();
            condition
        });
        status["conditions"] = said.collect::<Vec<_>>().into();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let patch = Action::Patch(Form::Merge, json!({"status": status}));
        self.call(Call::new(version, resource, NAMESPACE, name, patch).on("status"));
    }

    /// Whether the Route owns the Service with this name. Creates the Service if it is missing.
    fn has_address(&self, live: &Value, name: &str, route: &Value) -> bool {
        let uid = &route["metadata"]["uid"];
        if let Some(service) = self.server.object(SERVICES.0, SERVICES.1, NAMESPACE, name) {
            return service["metadata"]["ownerReferences"][0]["uid"] == *uid;
        }
        let ports = json!([{"name": "http", "port": 80}]);
        let mut service = json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": ports}});
        service["metadata"] = owned_by(name, route);
        service["metadata"]["labels"] = live["metadata"]["labels"].clone();
        service["metadata"]["labels"]["serving.knative.dev/route"] = name.into();
        self.call(Call::new(SERVICES.0, SERVICES.1, NAMESPACE, "", Action::Create(service)));
        true
    }

    /// Sends a write. Ignores conflicts.
    fn call(&self, call: Call) -> Value {
        self.server.call(&Caller::new("knative"), call).unwrap_or_default()
    }
}

/// Returns the metadata of an object with this name and owner.
fn owned_by(name: &str, owner: &Value) -> Value {
    json!({"name": name, "namespace": NAMESPACE, "ownerReferences": [{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]})
}

/// Returns the condition RoutesReady if it is True.
fn routes(status: &Value) -> Option<(&'static str, &'static str, &'static str)> {
    let all = status["conditions"].as_array()?;
    all.iter().any(|c| c["type"] == "RoutesReady" && c["status"] == "True").then_some(("True", "", ""))
}

/// Sets ConfigurationsReady and RoutesReady, and Ready to the worse of them.
fn set(status: &mut Value, configurations: (&str, &str, &str), routes: (&str, &str, &str)) {
    let rank = |(status, ..): &(&str, &str, &str)| ["False", "Unknown", "True"].iter().position(|s| s == status);
    // With equal rank, the condition of the routes is used.
    let ready = if rank(&configurations) < rank(&routes) { configurations } else { routes };
    let all = [("ConfigurationsReady", configurations), ("Ready", ready), ("RoutesReady", routes)];
    let all = all.map(|(kind, (status, reason, message))| {
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    });
    status["conditions"] = json!(all);
}
