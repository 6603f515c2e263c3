//! The agent's admission webhooks at a URL, because the agent of a test runs outside of the cluster and has no Service.

use std::{net::SocketAddr, sync::Arc};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use mainstay::agent::Admit;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::external::SCAFFOLDING;
use super::functions::API;
use super::tls::Pair;
use super::world::{NAMESPACE, World};

const GROUP: &str = "admissionregistration.k8s.io/v1";
/// Name of the webhooks' objects.
pub const NAME: &str = "mainstay-admission";

/// Returns the webhook configurations of `manifests/`, with URLs at this address and the longest timeout.
pub fn configurations(address: SocketAddr) -> Vec<Value> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/webhooks.yaml")).unwrap();
    let all = serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
    let mut all: Vec<_> = all.filter(|object| object["apiVersion"] == GROUP).collect();
    for webhook in all.iter_mut().flat_map(|object| object["webhooks"].as_array_mut().unwrap()) {
        let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap().to_owned();
        webhook["clientConfig"] = json!({"url": format!("https://{address}{path}")});
        // An API server skips a webhook after its timeout, and a machine with other work must not cause this.
        webhook["timeoutSeconds"] = 30.into();
    }
    all
}

fn resource(object: &Value) -> String {
    format!("{}s", object["kind"].as_str().unwrap().to_lowercase())
}

/// A client of the webhooks. The client trusts the CA bundle that API servers receive.
#[derive(Clone, Debug)]
pub struct WebhookClient {
    address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl WebhookClient {
    /// Returns a client, with this client certificate if one is given; `None` while the configurations have no CA
    /// bundle.
    pub fn new(world: &World, address: SocketAddr, certificate: Option<&Pair>) -> Option<Self> {
        let all = world.webhook_configurations();
        let bundle = all.first()?["webhooks"][0]["clientConfig"]["caBundle"].as_str()?;
        let pem = BASE64_STANDARD.decode(bundle).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).map(Result::unwrap));
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = ClientConfig::builder().with_root_certificates(roots);
        let config = match certificate.map(Pair::der) {
            None => config.with_no_client_auth(),
            Some((certificates, key)) => config.with_client_auth_cert(certificates, key).unwrap(),
        };
        Some(Self { address, config: Arc::new(config) })
    }

    /// Connects. Returns `None` if the handshake fails.
    pub async fn connect(&self) -> Option<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector.connect(self.address.ip().into(), stream).await.ok()
    }

    /// Sends a request. Returns status and body of the response; empty without a response.
    pub async fn send(&self, method: &str, path: &str, head: &str, body: &[u8]) -> String {
        let Some(mut stream) = self.connect().await else { return String::new() };
        let request = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{head}\r\n");
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.write_all(body).await;
        let _ = stream.flush().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let code = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        format!("{code} {}", answer.split_once("\r\n\r\n").map_or("", |(_, text)| text).trim())
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: &[u8]) -> String {
        let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        self.send("POST", path, &head, body).await
    }
}

impl World {
    /// Enables the webhooks of the next agent.
    pub fn admit(&mut self) {
        let admit = Admit::bind("127.0.0.1:0".parse().unwrap(), loopback::Reach::SameUser).unwrap();
        self.configure_webhooks(admit.address().unwrap());
        self.admit = Some(admit);
    }

    /// Creates webhook configurations for this address.
    pub fn configure_webhooks(&self, address: SocketAddr) {
        for mut configuration in configurations(address) {
            configuration["metadata"]["labels"][SCAFFOLDING] = "true".into();
            self.create(GROUP, &resource(&configuration), "", configuration);
        }
    }

    /// Sets the conversion webhook of Functions; `None` removes it.
    pub fn convert_at(&self, url: Option<String>) {
        let conversion = url.map_or(json!({"strategy": "None", "webhook": null}), |url| {
            json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": url}}})
        });
        let action = devcluster::Action::Patch(
            devcluster::verbs::patch::Form::Merge,
            json!({"spec": {"conversion": conversion}}),
        );
        let (definitions, name) =
            (("apiextensions.k8s.io/v1", "customresourcedefinitions"), "functions.serverless.kyma-project.io");
        self.try_as("test", devcluster::Call::new(definitions.0, definitions.1, "", name, action)).unwrap();
    }

    /// Returns the current configurations.
    pub fn webhook_configurations(&self) -> Vec<Value> {
        let kinds = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
        let all = kinds.into_iter().filter_map(|kind| self.server.object(GROUP, kind, "", NAME));
        all.map(|object| (*object).clone()).collect()
    }

    /// Waits until API servers trust the webhooks and receive responses.
    pub async fn admitting(&self) {
        let trusted = |w: &Self| {
            let all = w.webhook_configurations();
            let mut webhooks = all.iter().flat_map(|one| one["webhooks"].as_array().unwrap());
            webhooks.all(|webhook| webhook["clientConfig"]["caBundle"].as_str().is_some_and(|pem| !pem.is_empty()))
        };
        self.until_or("the webhooks are trusted", trusted, || format!("{:#?}", self.webhook_configurations())).await;
        // A real API server reads the configuration a little later, and the agent reads its certificate a little later.
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

    /// Creates a Function as `test`, or returns the refusal.
    pub fn try_create_function(&self, function: Value) -> Result<Value, devcluster::status::Status> {
        let action = devcluster::Action::Create(function);
        self.try_as("test", devcluster::Call::new(API, "functions", NAMESPACE, "", action))
    }
}
