//! The environment of the benchmark: a cluster, the agent, both Git servers, and an observer of applied objects.

use std::{
    collections::HashMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    Error,
    git_server::{HttpServer, SshServer},
    observer::{Observer, Seen},
    repository::Repository,
    stand::{DEADLINE, NAMESPACE, Stand},
};
use crate::{
    Product,
    api::{GitRepository, GitSync, REQUESTED_AT, Receiver, SYNC_LABEL},
};

/// Target for the maximum memory of the agent, in MiB.
const MEMORY: f64 = 64.0;
/// Name of the Secret with the SSH key.
const SECRET: &str = "ssh";
/// Name of the Receiver and of its token Secret.
const RECEIVER: &str = "pushes";
/// Token of the Receiver.
const TOKEN: &str = "the-token-of-the-measurement";

/// The environment of a benchmark.
pub(super) struct World {
    pub stand: Stand,
    pub http: HttpServer,
    pub ssh: SshServer,
    pub observer: Observer,
    root: PathBuf,
}

/// Transport of a remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Http,
    Ssh,
}

impl Over {
    /// Returns the display name of the transport.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTP",
            Self::Ssh => "SSH",
        }
    }
}

impl World {
    /// Starts the cluster, the servers and the agent.
    pub(super) async fn start(product: &Product) -> Result<Self, Error> {
        let mut stand = Stand::start(product, None, MEMORY).await?;
        let root = stand.directory().join("remotes");
        std::fs::create_dir_all(&root).map_err(Error::Directory)?;
        let (http, ssh) = (HttpServer::start(&root).await?, SshServer::start(&root).await?);
        let (key, known_hosts) = ssh.secret()?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": SECRET },
            "stringData": { "key": key, "known_hosts": known_hosts },
        });
        stand.apply_named::<Secret>(&secret).await?;
        let observer = Observer::start(Api::namespaced(stand.client.clone(), NAMESPACE), seen).await?;
        stand.start_agent().await?;
        Ok(Self { stand, http, ssh, observer, root })
    }

    /// Creates an empty repository.
    pub(super) fn repository(&self, name: &str) -> Result<Repository, Error> {
        Repository::new(&self.root, name)
    }

    /// Creates a GitSync of a repository.
    pub(super) async fn follow(&self, name: &str, over: Over, interval: &str) -> Result<(), Error> {
        let directory = format!("{name}.git");
        let spec = match over {
            Over::Http => json!({ "url": self.http.url(&directory) }),
            Over::Ssh => {
                json!({ "url": self.ssh.url(&directory), "auth": { "type": "key", "secretName": SECRET } })
            }
        };
        let repository = json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
            "metadata": { "name": name }, "spec": spec,
        });
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": { "name": name },
            "spec": { "gitRepository": name, "reference": "main", "interval": interval },
        });
        self.stand.apply::<GitRepository>(name, &repository).await?;
        self.stand.apply::<GitSync>(name, &sync).await
    }

    /// Waits until the ConfigMaps of these repositories have this revision. Returns the time of each.
    pub(super) async fn reach(
        &mut self,
        names: impl IntoIterator<Item = String>,
        revision: u32,
    ) -> Result<HashMap<String, Instant>, Error> {
        let wanted = names.into_iter().map(|name| (name, revision.to_string())).collect();
        self.observer.all(wanted, DEADLINE).await
    }

    /// Requests a sync of a repository and waits until the status contains the request's token.
    pub(super) async fn sync(&self, name: &str) -> Result<(), Error> {
        let api = Api::<GitSync>::namespaced(self.stand.client.clone(), NAMESPACE);
        let token = self.request(name).await?;
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            let sync = api.get(name).await.map_err(Error::Ask)?;
            if sync.status.and_then(|status| status.last_handled_request).as_ref() == Some(&token) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(Error::NotHandled { seconds: DEADLINE.as_secs() })
    }

    /// Requests a sync of a repository. Returns the token.
    pub(super) async fn request(&self, name: &str) -> Result<String, Error> {
        let api = Api::<GitSync>::namespaced(self.stand.client.clone(), NAMESPACE);
        let token = jiff::Timestamp::now().to_string();
        let patch: Value = json!({ "metadata": { "annotations": { REQUESTED_AT: token } } });
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map_err(Error::Ask)?;
        Ok(token)
    }

    /// Creates a Receiver of GitLab pushes and returns its URL once it is ready.
    pub(super) async fn receiver(&self) -> Result<String, Error> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": RECEIVER }, "stringData": { "token": TOKEN },
        });
        self.stand.apply_named::<Secret>(&secret).await?;
        let receiver = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "Receiver", "metadata": { "name": RECEIVER },
            "spec": { "type": "gitlab", "secretRef": { "name": RECEIVER } },
        });
        self.stand.apply_named::<Receiver>(&receiver).await?;
        let api = Api::<Receiver>::namespaced(self.stand.client.clone(), NAMESPACE);
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            let receiver = api.get(RECEIVER).await.map_err(Error::Ask)?;
            if let Some(path) = receiver.status.and_then(|status| status.webhook_path) {
                return Ok(self.stand.webhook_url(&path));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err(Error::NotReceiving { seconds: DEADLINE.as_secs() })
    }

    /// Reports a push to a repository's branch to the Receiver.
    pub(super) async fn deliver(&self, client: &reqwest::Client, url: &str, name: &str) -> Result<(), Error> {
        let body = json!({
            "event_name": "push", "ref": "refs/heads/main",
            "project": { "git_http_url": self.http.url(&format!("{name}.git")) },
        });
        let request = client.post(url).header("X-Gitlab-Event", "Push Hook").header("X-Gitlab-Token", TOKEN);
        let request = request.header("Content-Type", "application/json").body(body.to_string());
        let answer = request.send().await.and_then(reqwest::Response::error_for_status);
        answer.map(drop).map_err(Error::Deliver)
    }
}

/// Reads the `data.revision` of a managed ConfigMap.
fn seen(object: ConfigMap) -> Option<Seen> {
    object.metadata.labels?.contains_key(SYNC_LABEL).then_some(())?;
    let state = object.data.and_then(|mut data| data.remove("revision")).unwrap_or_default();
    Some(Seen { name: object.metadata.name.unwrap_or_default(), state })
}
