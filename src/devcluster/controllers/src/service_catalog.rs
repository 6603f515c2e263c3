//! Service bindings: makes service instances ready and gives their bindings Secrets with credentials.
//!
//! The controller serves two APIs: that of the service catalog, and the later API of SAP's operator. [`FIXTURES`]
//! defines the credentials of each class and plan. No service runs behind an instance.
//!
//! Not here: brokers, parameters, transforms of Secrets, and uses of a binding.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::object::{is_terminating, text};

/// CRDs of the served kinds and of the kinds that use a binding, as a stream of YAML documents.
pub const DEFINITIONS: &str = include_str!("service_catalog/definitions.yaml");

/// Field manager of this controller's writes.
const MANAGER: &str = "service-catalog-controller-manager";

/// A class and plan, with the credentials of its bindings.
struct Fixture {
    class: &'static str,
    plan: &'static str,
    credentials: fn(&Instance<'_>) -> Vec<(&'static str, String)>,
}

/// All classes and plans.
const FIXTURES: [Fixture; 1] = [Fixture {
    class: "redis",
    plan: "micro",
    credentials: |instance| {
        vec![
            ("HOST", format!("{}-redis.{}.svc.cluster.local", instance.name, instance.namespace)),
            ("PORT", "6379".to_owned()),
            ("REDIS_PASSWORD", instance.password()),
        ]
    },
}];

/// A service instance.
struct Instance<'i> {
    namespace: &'i str,
    name: &'i str,
    uid: &'i str,
}

impl Instance<'_> {
    /// A password derived from the instance's UID.
    fn password(&self) -> String {
        hex::encode(&Sha256::digest(format!("password of {}", self.uid))[..12])
    }
}

/// The names that one of the two APIs uses.
struct Form {
    instances: &'static str,
    bindings: &'static str,
    api_version: &'static str,
    /// JSON pointers to an instance's class and plan.
    class: [&'static str; 2],
    /// JSON pointer to the name of a binding's instance.
    instance: &'static str,
}

const FORMS: [Form; 2] = [
    Form {
        instances: "serviceinstances.servicecatalog.k8s.io",
        bindings: "servicebindings.servicecatalog.k8s.io",
        api_version: "servicecatalog.k8s.io/v1beta1",
        class: ["/spec/serviceClassExternalName", "/spec/servicePlanExternalName"],
        instance: "/spec/instanceRef/name",
    },
    Form {
        instances: "serviceinstances.services.cloud.sap.com",
        bindings: "servicebindings.services.cloud.sap.com",
        api_version: "services.cloud.sap.com/v1",
        class: ["/spec/serviceOfferingName", "/spec/servicePlanName"],
        instance: "/spec/serviceInstanceName",
    },
];

impl Form {
    fn is_later(&self) -> bool {
        self.api_version.starts_with("services.cloud.sap.com")
    }

    fn fixture(&self, instance: &Value) -> Option<&'static Fixture> {
        let [class, plan] = self.class.map(|path| text(instance, path));
        FIXTURES.iter().find(|fixture| fixture.class == class && fixture.plan == plan)
    }

    /// Returns the status with the outcome. A condition with an unchanged status keeps its transition time.
    fn status(&self, old: &Value, outcome: &Outcome, now: &Value) -> Value {
        let status = if outcome.is_ready { "True" } else { "False" };
        let said = &old["status"]["conditions"];
        let said_before = |kind: &str| said.as_array().into_iter().flatten().find(|one| one["type"] == kind);
        let condition = |kind: &str| {
            let since = said_before(kind).filter(|one| one["status"] == status).map(|one| &one["lastTransitionTime"]);
            json!({
                "type": kind, "status": status, "reason": outcome.reason, "message": outcome.message,
                "lastTransitionTime": since.unwrap_or(now),
            })
        };
        if self.is_later() {
            return json!({"ready": status, "conditions": [condition("Succeeded"), condition("Ready")]});
        }
        let state = if outcome.is_ready { "Ready" } else { outcome.reason };
        json!({"conditions": [condition("Ready")], "asyncOpInProgress": false, "lastConditionState": state})
    }
}

/// The outcome of an instance or binding.
struct Outcome {
    is_ready: bool,
    reason: &'static str,
    message: String,
}

impl Outcome {
    fn ready(reason: &'static str, message: &str) -> Self {
        Self { is_ready: true, reason, message: message.to_owned() }
    }

    fn failed(reason: &'static str, message: String) -> Self {
        Self { is_ready: false, reason, message }
    }
}

/// The controller of service instances and bindings.
pub(super) struct ServiceCatalog;

impl Controller for ServiceCatalog {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        if &*event.storage == "secrets" {
            if event.change() != Change::Deleted {
                return;
            }
            let Some(secret) = event.old.as_ref().map(|stored| stored.value()) else { return };
            for (form, owner) in FORMS.iter().filter_map(|form| Some((form, controller(&secret)?))) {
                if owner["apiVersion"] == form.api_version {
                    queue.add(Subject::new(form.bindings, event.key.namespace(), text(owner, "/name")));
                }
            }
            return;
        }
        if FORMS.iter().any(|form| [form.instances, form.bindings].contains(&&*event.storage)) {
            queue.add(Subject::of(event));
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(form) = FORMS.iter().find(|form| [form.instances, form.bindings].contains(&&*subject.storage)) else {
            return;
        };
        let object = client.get(subject).filter(|object| !is_terminating(object));
        if *subject.storage == *form.instances {
            if let Some(instance) = &object {
                let outcome = provision(form, instance);
                client.set_status(MANAGER, subject, instance, form.status(instance, &outcome, &client.stamp()));
            }
            let namespace = subject.key.namespace();
            let bindings = client.list(form.bindings, namespace);
            let of_instance = bindings.iter().filter(|binding| text(binding, form.instance) == subject.key.name());
            of_instance.for_each(|one| queue.add(Subject::new(form.bindings, namespace, text(one, "/metadata/name"))));
        } else if let Some(binding) = object {
            let Some(outcome) = bind(client, form, subject, &binding) else { return };
            client.set_status(MANAGER, subject, &binding, form.status(&binding, &outcome, &client.stamp()));
        }
    }
}

fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

fn provision(form: &Form, instance: &Value) -> Outcome {
    if form.fixture(instance).is_some() {
        let reason = if form.is_later() { "Created" } else { "ProvisionedSuccessfully" };
        return Outcome::ready(reason, "The instance was provisioned successfully");
    }
    let [class, plan] = form.class.map(|path| text(instance, path));
    let known: Vec<String> = FIXTURES.iter().map(|one| format!("{} with plan {}", one.class, one.plan)).collect();
    let message = format!("there is no class \"{class}\" with plan \"{plan}\" here; there is {}", known.join(", "));
    Outcome::failed("ReferencesNonexistentServiceClass", message)
}

/// Creates the Secret of a binding; `None` if the binding is deleted.
fn bind(client: &Client, form: &Form, subject: &Subject, binding: &Value) -> Option<Outcome> {
    let (namespace, name) = (subject.key.namespace(), text(binding, form.instance));
    let instance = client.get(&Subject::new(form.instances, namespace, name)).filter(|one| !is_terminating(one));
    let Some(instance) = instance else {
        let conditions = binding["status"]["conditions"].as_array().into_iter().flatten();
        if conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True") {
            // The instance is deleted, so its binding is deleted, too.
            client.delete(subject, binding, None, None);
            return None;
        }
        let message = format!("The binding references an Instance that does not exist: {name}");
        return Some(Outcome::failed("ReferencesNonexistentInstance", message));
    };
    let Some(fixture) = form.fixture(&instance) else {
        return Some(Outcome::failed("InstanceNotReady", format!("Instance \"{name}\" is not ready")));
    };
    let done = |outcome: Result<(), String>| match outcome {
        Ok(()) if form.is_later() => Outcome::ready("Created", "Binding was created"),
        Ok(()) => Outcome::ready("InjectedBindResult", "Injected bind result"),
        Err(message) => Outcome::failed("ErrorInjectingBindResult", message),
    };
    let uid = text(&instance, "/metadata/uid");
    let credentials = (fixture.credentials)(&Instance { namespace, name, uid });
    let data = if form.is_later() { later_data(binding, fixture, name, uid, &credentials) } else { data(&credentials) };
    Some(done(inject(client, form, binding, data)))
}

fn data(credentials: &[(&'static str, String)]) -> BTreeMap<String, String> {
    credentials.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

/// The Secret's data in the later API.
fn later_data(
    binding: &Value,
    fixture: &Fixture,
    instance: &str,
    uid: &str,
    credentials: &[(&'static str, String)],
) -> BTreeMap<String, String> {
    let mut all = data(credentials);
    let about = [("instance_guid", uid), ("instance_name", instance), ("plan", fixture.plan), ("type", fixture.class)];
    let (key, root) = (text(binding, "/spec/secretKey"), text(binding, "/spec/secretRootKey"));
    if !key.is_empty() {
        let whole: Map<String, Value> = all.into_iter().map(|(key, value)| (key, value.into())).collect();
        all = BTreeMap::from([(key.to_owned(), Value::from(whole).to_string())]);
    }
    all.extend(about.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if !root.is_empty() {
        let whole: Map<String, Value> = all.into_iter().map(|(key, value)| (key, value.into())).collect();
        all = BTreeMap::from([(root.to_owned(), Value::from(whole).to_string())]);
    }
    all
}

/// Creates the Secret of a binding unless it exists. An unowned Secret is adopted and keeps its values.
fn inject(client: &Client, form: &Form, binding: &Value, data: BTreeMap<String, String>) -> Result<(), String> {
    let (namespace, own) = (text(binding, "/metadata/namespace"), text(binding, "/metadata/name"));
    let name = Some(text(binding, "/spec/secretName")).filter(|name| !name.is_empty()).unwrap_or(own);
    let owner = json!({
        "apiVersion": form.api_version, "kind": "ServiceBinding", "name": own, "uid": binding["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true,
    });
    let Some(known) = client.get(&Subject::new("secrets", namespace, name)) else {
        let metadata = json!({"name": name, "namespace": namespace, "ownerReferences": [owner]});
        let secret = json!({"metadata": metadata, "type": "Opaque", "stringData": data});
        return client.create(MANAGER, "secrets", namespace, secret).map(drop).map_err(|status| status.message);
    };
    match controller(&known) {
        Some(known) if known["uid"] == owner["uid"] => Ok(()),
        Some(other) => {
            Err(format!("Secret \"{namespace}/{name}\" is not owned by ServiceBinding, controllerRef: {other}"))
        }
        None => {
            let mut owners = known["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            owners.push(owner);
            let missing: BTreeMap<String, String> =
                data.into_iter().filter(|(key, _)| known["data"].get(key).is_none()).collect();
            let patch = json!({"metadata": {"ownerReferences": owners}, "stringData": missing});
            let is_done = client.merge(MANAGER, &Subject::new("secrets", namespace, name), patch);
            if is_done { Ok(()) } else { Err(format!("Secret \"{namespace}/{name}\" cannot be written")) }
        }
    }
}
