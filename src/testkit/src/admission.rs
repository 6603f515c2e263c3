//! The agent's admission webhooks, as they are installed, but by address: an API server outside of the cluster reaches no Service.

use mainstay::agent::Admit;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::external::SCAFFOLDING;
use super::functions::API;
use super::world::{NAMESPACE, World};

const GROUP: &str = "admissionregistration.k8s.io/v1";
/// Name of everything about the webhooks.
pub const NAME: &str = "mainstay-admission";

/// The configurations of `manifests/`, whose webhooks are at this address.
pub fn configurations(address: std::net::SocketAddr) -> Vec<Value> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/webhooks.yaml")).unwrap();
    let all = serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
    let mut all: Vec<_> = all.filter(|object| object["apiVersion"] == GROUP).collect();
    for webhook in all.iter_mut().flat_map(|object| object["webhooks"].as_array_mut().unwrap()) {
        let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap().to_owned();
        webhook["clientConfig"] = json!({"url": format!("https://{address}{path}")});
    }
    all
}

fn resource(object: &Value) -> String {
    format!("{}s", object["kind"].as_str().unwrap().to_lowercase())
}

impl World {
    /// Lets the agent that is started next answer the API server.
    pub fn admit(&mut self) {
        let admit = Admit::bind("127.0.0.1:0".parse().unwrap(), loopback::Reach::SameUser).unwrap();
        for mut configuration in configurations(admit.address().unwrap()) {
            configuration["metadata"]["labels"][SCAFFOLDING] = "true".into();
            self.create(GROUP, &resource(&configuration), "", configuration);
        }
        self.admit = Some(admit);
    }

    /// The live configurations.
    pub fn webhook_configurations(&self) -> Vec<Value> {
        let kinds = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
        let all = kinds.into_iter().filter_map(|kind| self.server.object(GROUP, kind, "", NAME));
        all.map(|object| (*object).clone()).collect()
    }

    /// Waits until API servers trust the webhooks, and these answer.
    pub async fn admitting(&self) {
        let trusted = |w: &Self| {
            let all = w.webhook_configurations();
            let mut webhooks = all.iter().flat_map(|one| one["webhooks"].as_array().unwrap());
            webhooks.all(|webhook| webhook["clientConfig"]["caBundle"].as_str().is_some_and(|pem| !pem.is_empty()))
        };
        self.until_or("the webhooks are trusted", trusted, || format!("{:#?}", self.webhook_configurations())).await;
        // A real server learns of it a little later, and the agent of its certificate.
        let invalid = json!({
            "apiVersion": API, "kind": "Function",
            "metadata": {"name": "probe", "namespace": NAMESPACE}, "spec": {"source": " "},
        });
        let denies = |w: &Self| {
            let created = w.try_create_function(invalid.clone());
            if created.is_ok() {
                w.delete(API, "functions", "probe");
            }
            created.is_err()
        };
        self.until("the webhooks answer", denies).await;
    }

    /// Creates a Function as `test`, or says why not.
    pub fn try_create_function(&self, function: Value) -> Result<Value, devcluster::status::Status> {
        let action = devcluster::Action::Create(function);
        self.try_as("test", devcluster::Call::new(API, "functions", NAMESPACE, "", action))
    }
}
