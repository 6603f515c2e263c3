//! The cluster under test: the embedded one, or that of `MAINSTAY_TEST_KUBECONFIG`.

use std::sync::OnceLock;

use base64::Engine as _;
use serde_json::Value;

/// URL and credentials of the API server.
pub(crate) struct Cluster {
    /// For example `http://127.0.0.1:1234`, without a final slash.
    pub(crate) url: String,
    token: Option<String>,
    authority: Option<Vec<u8>>,
    identity: Option<Vec<u8>>,
}

static CLUSTER: OnceLock<Cluster> = OnceLock::new();

impl Cluster {
    /// Returns the cluster of this test run.
    pub(crate) fn get() -> &'static Self {
        CLUSTER.get_or_init(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
            match std::env::var("MAINSTAY_TEST_KUBECONFIG") {
                Ok(path) => Self::from_kubeconfig(&path),
                Err(_) => Self { url: embedded(), token: None, authority: None, identity: None },
            }
        })
    }

    /// Builds a client without credentials.
    pub(crate) fn stranger(&self) -> reqwest::Client {
        self.builder().build().expect("the client can be built")
    }

    fn builder(&self) -> reqwest::ClientBuilder {
        let builder = reqwest::Client::builder().user_agent("conformance/1.0").no_proxy();
        // Claims are about each response, including redirects.
        let builder = builder.redirect(reqwest::redirect::Policy::none());
        let Some(authority) = &self.authority else { return builder };
        let certificates = reqwest::Certificate::from_pem_bundle(authority).expect("the kubeconfig's CA is PEM");
        builder.tls_certs_only(certificates)
    }

    /// Builds a client with the cluster's credentials.
    pub(crate) fn client(&self) -> reqwest::Client {
        let mut builder = self.builder();
        if let Some(token) = &self.token {
            let value = format!("Bearer {token}").parse().expect("a token fits into a header");
            builder = builder.default_headers([(reqwest::header::AUTHORIZATION, value)].into_iter().collect());
        }
        if let Some(identity) = &self.identity {
            builder = builder.identity(reqwest::Identity::from_pem(identity).expect("the client certificate is PEM"));
        }
        builder.build().expect("the client can be built")
    }

    fn from_kubeconfig(path: &str) -> Self {
        let text = std::fs::read_to_string(path).expect("MAINSTAY_TEST_KUBECONFIG names a readable file");
        let config: Value = serde_yaml::from_str(&text).expect("the kubeconfig is YAML");
        let named = |list: &str, name: &Value| -> Value {
            let entries = config[list].as_array().cloned().unwrap_or_default();
            entries.into_iter().find(|entry| entry["name"] == *name).unwrap_or_default()
        };
        let context = named("contexts", &config["current-context"])["context"].clone();
        let cluster = named("clusters", &context["cluster"])["cluster"].clone();
        let user = named("users", &context["user"])["user"].clone();
        let content = |object: &Value, field: &str| -> Option<Vec<u8>> {
            if let Some(data) = object[format!("{field}-data")].as_str() {
                return base64::engine::general_purpose::STANDARD.decode(data).ok();
            }
            let file = std::path::Path::new(path).parent()?.join(object[field].as_str()?);
            std::fs::read(file).ok()
        };
        let identity = content(&user, "client-certificate").zip(content(&user, "client-key")).map(|(mut pem, key)| {
            pem.push(b'\n');
            pem.extend(key);
            pem
        });
        Self {
            url: cluster["server"].as_str().expect("the cluster has a server").trim_end_matches('/').to_owned(),
            token: user["token"].as_str().map(str::to_owned),
            authority: content(&cluster, "certificate-authority"),
            identity,
        }
    }
}

/// Starts the embedded cluster on its own thread, for the whole test run.
fn embedded() -> String {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
        runtime.block_on(async {
            let server = devcluster::Cluster::new(devcluster::Options { rbac: true, ..devcluster::Options::default() });
            server.start_controllers();
            let loopback = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            let serving = server.serve(loopback, None).await.expect("the embedded server listens");
            send.send(format!("http://{}", serving.address())).expect("the claims wait for the address");
            std::future::pending::<()>().await;
        });
    });
    receive.recv().expect("the embedded server starts")
}
