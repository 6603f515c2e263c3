//! Receivers, and the requests of Git hosts.

use mainstay::agent::Receive;
use mainstay_gitsync::receiver::BaseUrl;
use ring::hmac;
use serde_json::{Value, json};

use super::{
    listener,
    world::{NAMESPACE, World, condition_of},
};

const RECEIVERS: (&str, &str) = ("mainstay.dev/v1alpha1", "receivers");

/// Returns a listener on a free port of loopback.
pub fn listening() -> Receive {
    let mut receive =
        Receive::bind("127.0.0.1:0".parse().unwrap(), loopback::Reach::SameUser, BaseUrl::Unknown).unwrap();
    receive.base = BaseUrl::Known(format!("http://{}", receive.address().unwrap()));
    receive
}

/// Returns the body of GitHub's push event.
pub fn push(repository: &str, reference: &str) -> String {
    json!({"ref": reference, "repository": {"clone_url": repository, "default_branch": "main"}}).to_string()
}

/// Returns GitHub's signature of a body.
pub fn signature(token: &str, body: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes()), body.as_bytes());
    format!("sha256={}", hex::encode(tag))
}

impl World {
    /// Creates a Receiver in the namespace with the Secret `hook`.
    pub fn receiver(&self, name: &str, spec: Value) {
        let mut whole = json!({"type": "github", "secretRef": {"name": "hook"}});
        json_patch::merge(&mut whole, &spec);
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let object = json!({
            "apiVersion": RECEIVERS.0, "kind": "Receiver", "metadata": metadata, "spec": whole,
        });
        self.create(RECEIVERS.0, RECEIVERS.1, NAMESPACE, object);
    }

    /// Changes the spec of a Receiver.
    pub fn change_receiver(&self, name: &str, spec: Value) {
        self.edit(RECEIVERS.0, RECEIVERS.1, name, json!({"spec": spec}));
    }

    /// Returns the status of a Receiver; null without a status.
    pub fn receiver_status(&self, name: &str) -> Value {
        self.get(RECEIVERS.0, RECEIVERS.1, name).map(|receiver| receiver["status"].clone()).unwrap_or_default()
    }

    /// Waits until the condition Ready of a Receiver begins with a string.
    pub async fn receiver_is(&self, name: &str, beginning: &str) {
        let ready = |w: &Self| condition_of(&w.receiver_status(name), "Ready");
        self.until_or(&format!("receiver {name}: {beginning}"), |w| ready(w).starts_with(beginning), || ready(self))
            .await;
    }

    /// Waits until a Receiver is ready and returns its URL.
    pub async fn receiver_url(&self, name: &str) -> String {
        self.receiver_is(name, "True ").await;
        self.receiver_status(name)["url"].as_str().unwrap().to_owned()
    }

    /// Returns the number of the agent's lookups. First waits until each GitRepository has a status: the agent looks up
    /// a GitRepository without a consumer three seconds after its creation.
    pub async fn lookups(&self) -> u64 {
        let kind = ("serverless.kyma-project.io/v1alpha1", "gitrepositories");
        let has_status = |r: &Value| r["status"]["observedGeneration"] == r["metadata"]["generation"];
        self.until("each GitRepository has a status", |w| {
            w.server.objects(kind.0, kind.1, None).iter().all(|repository| has_status(repository))
        })
        .await;
        let metrics = listener::metrics(self).await;
        let line = metrics.lines().find_map(|line| line.strip_prefix("mainstay_git_lookups_total "));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no number of lookups in {metrics}"))
    }
}

/// Sends a request. Returns status and body of the response.
pub async fn send(request: reqwest::RequestBuilder) -> (u16, String) {
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap().trim_end().to_owned())
}

/// Returns an HTTP client.
pub fn client() -> reqwest::Client {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Delivers a push event as GitHub does.
pub async fn deliver(url: &str, token: &str, body: &str) -> (u16, String) {
    let request = client().post(url).header("X-GitHub-Event", "push").header("Content-Type", "application/json");
    send(request.header("X-Hub-Signature-256", signature(token, body)).body(body.to_owned())).await
}
