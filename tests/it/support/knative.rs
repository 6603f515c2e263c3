//! What of Knative Serving a Function depends on: two definitions, and what its controllers write. On another cluster the
//! definitions are Knative's own, and where it runs, its controllers are, too ([`RUNS`]).
//!
//! The schemas here have no more than tests need, and the defaults that Knative's admission sets. Of the controllers there are the states
//! of a Knative Service in their order, one write each; the Route; and the Service that has the address.

use std::collections::HashMap;

use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, Caller};
use serde_json::{Value, json};

use super::definitions::of_project;
use super::external::External;
use super::server::TestServer;
use super::world::{NAMESPACE, World};

/// Knative's Services.
pub(crate) const KNATIVE: (&str, &str) = ("serving.knative.dev/v1", "services");
const ROUTES: (&str, &str) = ("serving.knative.dev/v1", "routes");
const SERVICES: (&str, &str) = ("v1", "services");
/// Says that Knative's webhook and controllers run in the cluster that is named.
const RUNS: &str = "MAINSTAY_TEST_KNATIVE";
/// The variable of a Function whose Revision fails.
pub(crate) const BREAKS: &str = "BREAKS";

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

/// Whether Knative itself runs, and nothing stands for it.
pub(crate) fn is_real() -> bool {
    std::env::var_os(RUNS).is_some()
}

impl World {
    /// A world with Functions in which nothing of Knative is installed.
    pub(crate) async fn without_knative() -> Self {
        let world = Self::with_functions().await;
        if !is_real() {
            world.define_only(Vec::new());
        }
        world
    }

    /// Installs Knative's definitions.
    pub(crate) fn knative_is_installed(&self) {
        if is_real() {
            return;
        }
        for (kind, plural) in [("Service", "services"), ("Route", "routes")] {
            let own = if External::is_named() { of_project(&format!("{plural}.serving.knative.dev")) } else { None };
            self.define(own.unwrap_or_else(|| definition(kind, plural)));
        }
    }

    /// Runs Knative's controllers from now on; what is there already, too.
    pub(crate) fn knative_runs(&self) {
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
                // Of other objects, only those that are Knative's own are looked at.
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
    /// By UID: the template, and its number.
    revisions: HashMap<String, (Value, u32)>,
}

impl Controller {
    /// Brings the Knative Service one state further.
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
        let revision = format!("{name}-{number:05}");
        status["latestCreatedRevisionName"] = revision.as_str().into();
        let variables = template["spec"]["containers"][0]["env"].as_array().into_iter().flatten();
        if variables.clone().any(|variable| variable["name"] == BREAKS) {
            let why = format!("Revision \"{revision}\" failed with message: Container failed with: boom.");
            let none = format!("Configuration \"{name}\" does not have any ready Revision.");
            let routes = routes(&status).unwrap_or(("False", "RevisionMissing", &none));
            set(&mut status, ("False", "RevisionFailed", &why), routes);
            return status;
        }
        let private = live["metadata"]["labels"]["networking.knative.dev/visibility"] == "cluster-local";
        let domain = if private { "svc.cluster.local" } else { "example.com" };
        status["url"] = format!("http://{name}.{NAMESPACE}.{domain}").into();
        status["latestReadyRevisionName"] = revision.as_str().into();
        let owned = self.has_address(live, name);
        let foreign = format!("There is an existing placeholder Service \"{name}\" that we do not own.");
        set(&mut status, ("True", "", ""), if owned { ("True", "", "") } else { ("False", "NotOwned", &foreign) });
        status
    }

    /// Whether the Service of this name is the Route's, which creates it if there is none.
    fn has_address(&self, live: &Value, name: &str) -> bool {
        let owned_by = |version: &str, kind: &str, uid: &Value| {
            json!({"name": name, "namespace": NAMESPACE, "ownerReferences": [
                {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true}
            ]})
        };
        let route = self.server.object(ROUTES.0, ROUTES.1, NAMESPACE, name).map_or_else(
            || {
                let metadata = owned_by(KNATIVE.0, "Service", &live["metadata"]["uid"]);
                let route = json!({"apiVersion": ROUTES.0, "kind": "Route", "metadata": metadata});
                self.call(Call::new(ROUTES.0, ROUTES.1, NAMESPACE, "", Action::Create(route)))
            },
            |route| Value::clone(&route),
        );
        if route["metadata"]["ownerReferences"][0]["uid"] != live["metadata"]["uid"] {
            return false;
        }
        let uid = &route["metadata"]["uid"];
        if let Some(service) = self.server.object(SERVICES.0, SERVICES.1, NAMESPACE, name) {
            return service["metadata"]["ownerReferences"][0]["uid"] == *uid;
        }
        let ports = json!([{"name": "http", "port": 80}]);
        let mut service = json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": ports}});
        service["metadata"] = owned_by(ROUTES.0, "Route", uid);
        service["metadata"]["labels"] = live["metadata"]["labels"].clone();
        self.call(Call::new(SERVICES.0, SERVICES.1, NAMESPACE, "", Action::Create(service)));
        true
    }

    /// A write; one that comes too late is none.
    fn call(&self, call: Call) -> Value {
        self.server.call(&Caller::new("knative"), call).unwrap_or_default()
    }
}

/// What is said of the routes that serve.
fn routes(status: &Value) -> Option<(&'static str, &'static str, &'static str)> {
    let all = status["conditions"].as_array()?;
    all.iter().any(|c| c["type"] == "RoutesReady" && c["status"] == "True").then_some(("True", "", ""))
}

/// Sets ConfigurationsReady and RoutesReady, and Ready by the worse of them.
fn set(status: &mut Value, configurations: (&str, &str, &str), routes: (&str, &str, &str)) {
    let rank = |(status, ..): &(&str, &str, &str)| ["False", "Unknown", "True"].iter().position(|s| s == status);
    // The routes are said last.
    let ready = if rank(&configurations) < rank(&routes) { configurations } else { routes };
    let all = [("ConfigurationsReady", configurations), ("Ready", ready), ("RoutesReady", routes)];
    let all = all.map(|(kind, (status, reason, message))| {
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    });
    status["conditions"] = json!(all);
}
