//! The task of one OCIRepository: looks up the artifact at its interval, and writes the status.
//!
//! Invariant: neither a status nor a log shows a value of a Secret. Invariant: after a failure, GitSyncs keep the last
//! artifact.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::context::{Context, MOST};
use super::download::{self, Found};
use super::status;
use super::wanted::{Wanted, wanted};
use crate::agent::kept::Name;
use crate::agent::own_kinds::{NamedSecrets, Object, State, kind};
use mainstay_api::conditions::Reason;
use mainstay_api::oci_repository::OciArtifact;
use mainstay_api::{OciRepositorySpec, OciRepositoryStatus};
use mainstay_cluster::secrets::{Known, Purpose, SecretData};
use mainstay_cluster::{Kind, Part};
use mainstay_function::registry::{Access, Client, Deadlines, ImageRef, Login, Network, Rights, Scheme, login};
use mainstay_git::{Artifact, Consumer, ConsumerKind, Credentials, Outbound, Packed, Remote, RemoteUrl, Source};
use mainstay_object::failure::chain;

const FAR: Duration = Duration::from_secs(86_400);
/// Maximum wait after a failure.
const AGAIN: Duration = Duration::from_secs(60);
/// The key of a Secret that contains logins.
const LOGINS: &str = ".dockerconfigjson";

/// Returns the URL at which GitSyncs read the artifact.
pub(super) fn address((namespace, name): &Name, object: &Object<OciRepositorySpec>) -> RemoteUrl {
    RemoteUrl::of_artifact(&object.spec.url, format!("{namespace}/{name}/{}", object.uid))
}

/// The task of one OCIRepository.
pub(super) struct Task {
    context: Arc<Context>,
    source: Source,
    kind: Arc<Kind>,
    name: Name,
    consumer: Consumer,
    /// The status as last written.
    written: OciRepositoryStatus,
    /// The last artifact, if the mirror has it.
    artifact: Option<OciArtifact>,
    /// Whether the object is within the maximum number of objects of its namespace.
    fits: bool,
    secrets: NamedSecrets,
    /// The URL of the last artifact, and the facts that determined its commit.
    made: Option<(RemoteUrl, Key)>,
}

/// The facts that determine the commit of an artifact.
type Key = (Found, Option<String>, String);

impl Task {
    pub(super) fn new(
        context: Arc<Context>,
        (name, number): (Name, u64),
        status: OciRepositoryStatus,
        fits: bool,
    ) -> Self {
        // A task of an older object with this name may not have ended yet.
        let consumer = Consumer::new(ConsumerKind::OciRepository, &name.0, &format!("{}/{number}", name.1));
        let (source, kind) = (context.source.for_namespace(&name.0), kind("OCIRepository", "ocirepositories"));
        let (written, artifact, secrets) = (status.clone(), status.artifact, NamedSecrets::default());
        Self { context, source, kind, name, consumer, written, artifact, fits, secrets, made: None }
    }

    /// Runs until the task's feed is closed.
    pub(super) async fn run(mut self, mut input: watch::Receiver<Object<OciRepositorySpec>>) {
        let mut remote: Option<Remote> = None;
        loop {
            let object = input.borrow_and_update().clone();
            let now = Remote::new(address(&self.name, &object), Credentials::Anonymous);
            if remote.as_ref() != Some(&now) {
                self.source.set_remote(&self.consumer, Some(&now));
                self.recall(&now).await;
            }
            let wait = self.turn(&object, remote.insert(now)).await;
            let due = Instant::now() + wait;
            tokio::select! {
                changed = input.changed() => if changed.is_err() { break },
                () = self.secrets.changed() => {}
                () = sleep_until(due) => {}
            }
        }
        self.source.set_remote(&self.consumer, None);
    }

    /// Publishes the artifact that an earlier agent has stored.
    async fn recall(&mut self, remote: &Remote) {
        let Some(known) = &self.artifact else { return };
        let Ok(commit) = known.commit.parse() else { return };
        if self.source.has_artifact(remote, commit).await.is_ok_and(|has| has) {
            let tag = known.revision.split_once('@').map_or("", |(tag, _)| tag).to_owned();
            self.source.set_artifact(remote, Ok(Artifact { commit, tag }));
            self.wake(remote);
        } else {
            self.artifact = None;
        }
    }

    /// Looks up the artifact, and writes the status. Returns the time until the next turn.
    async fn turn(&mut self, object: &Object<OciRepositorySpec>, remote: &Remote) -> Duration {
        if object.spec.suspend {
            let state = State::not_ready(Reason::Suspended, "suspended: nothing is looked up");
            return self.settle(remote, &state, object.generation, FAR).await;
        }
        if !self.fits {
            let message = format!("this namespace has {MOST} OCIRepositories, and the agent keeps no more; delete one");
            return self
                .settle(remote, &State::not_ready(Reason::MemoryExhausted, message), object.generation, FAR)
                .await;
        }
        let wanted = match wanted(&object.spec) {
            Ok(wanted) => wanted,
            Err(problems) => {
                return self
                    .settle(remote, &State::invalid(Reason::SpecInvalid, &problems), object.generation, FAR)
                    .await;
            }
        };
        let (state, wait) = match self.read(&object.spec, &wanted, remote).await {
            Ok(revision) => {
                (State::ready(Reason::ArtifactStored, format!("stored artifact {revision}")), wanted.interval)
            }
            Err(state) => (state, wanted.interval.min(AGAIN)),
        };
        self.settle(remote, &state, object.generation, wait).await
    }

    /// Reads the artifact, unless it is unchanged. Returns its revision.
    async fn read(&mut self, spec: &OciRepositorySpec, wanted: &Wanted, remote: &Remote) -> Result<String, State> {
        let (client, outbound) = self.client(spec, &wanted.image).await?;
        let failed = |why: String| State::not_ready(Reason::ArtifactFailed, format!("{}: {why}", spec.url));
        let reading = outbound.run(self.renew(&client, wanted, remote));
        let read = tokio::time::timeout(wanted.timeout, reading).await;
        let late = |_| failed(format!("it took longer than {} s (spec.timeout)", wanted.timeout.as_secs()));
        read.map_err(late)?.map_err(failed)
    }

    async fn renew(&mut self, client: &Client, wanted: &Wanted, remote: &Remote) -> Result<String, String> {
        let found = download::find(client, wanted).await?;
        let revision = found.revision();
        let key = (remote.url.clone(), (found.clone(), wanted.media_type.clone(), wanted.ignore.clone()));
        if self.made.as_ref() == Some(&key) && self.has_last(remote).await {
            return Ok(revision);
        }
        let layer = download::layer(client, &found, wanted).await?;
        let _downloading = self.source.downloading().await.map_err(|fault| fault.to_string())?;
        let archive = download::download(client, &layer, &self.source).await?;
        let message = format!("{revision}\n\nLayer {} of {}\n", layer.digest, remote.url);
        let packed = Packed { archive, message, ignore: wanted.ignore.clone() };
        let commit = self.source.add_artifact(remote, packed).await.map_err(|fault| fault.to_string())?;
        let is_new = self.artifact.as_ref().is_none_or(|old| old.commit != commit.to_string());
        self.source.set_artifact(remote, Ok(Artifact { commit, tag: found.tag }));
        if is_new {
            self.artifact = Some(OciArtifact {
                revision: revision.clone(),
                digest: layer.digest.to_string(),
                commit: commit.to_string(),
                last_update_time: Time(Timestamp::now()),
            });
        }
        self.made = Some(key);
        self.wake(remote);
        Ok(revision)
    }

    /// Whether the mirror still has the last artifact.
    async fn has_last(&self, remote: &Remote) -> bool {
        let Some(Ok(commit)) = self.artifact.as_ref().map(|last| last.commit.parse()) else { return false };
        self.source.has_artifact(remote, commit).await.unwrap_or(true)
    }

    /// Wakes the GitSyncs that follow the artifact.
    fn wake(&self, remote: &Remote) {
        self.source.pushes().wake(|_, followed| followed.url == remote.url, Instant::now().into_std());
    }

    async fn client(&mut self, spec: &OciRepositorySpec, image: &ImageRef) -> Result<(Client, Outbound), State> {
        let invalid = |why: String| State::not_ready(Reason::SpecInvalid, why);
        let named = [
            (spec.secret_ref.as_ref().map(|named| &*named.name), Purpose::Artifact),
            (spec.cert_secret_ref.as_ref().map(|named| &*named.name), Purpose::Artifact),
            (spec.proxy_secret_ref.as_ref().map(|named| &*named.name), Purpose::Proxy),
        ];
        let [logins, tls, proxy] = self.secrets.read(&self.context.secrets, &self.name, named).await?;
        let login = login_of(spec, data(logins.as_ref()), image).map_err(invalid)?;
        let outbound = self.source.outbound(&self.name.0, data(tls.as_ref()), data(proxy.as_ref()));
        let outbound = outbound.map_err(|fault| invalid(fault.to_string()))?;
        let (own, foreign, check) = outbound.clients();
        let scheme = if spec.insecure { Scheme::Http } else { Scheme::Https };
        let access = Access { scheme, login, authorities: Vec::new() };
        let network = Network { own, foreign, check };
        // The client retries only briefly, because the whole lookup has a deadline and is repeated at the interval.
        let deadlines = Deadlines { patience: Duration::from_secs(5), ..Deadlines::default() };
        let client = Client::within(network, image, access, Rights::Pull, deadlines);
        Ok((client.map_err(|error| invalid(chain(&error)))?, outbound))
    }

    /// Writes the status if it changed. Returns the time until the next turn: `wait`, or less after a refused write.
    async fn settle(&mut self, remote: &Remote, state: &State, generation: Option<i64>, wait: Duration) -> Duration {
        if self.artifact.is_none() {
            self.source.set_artifact(remote, Err(state.message.clone()));
        }
        let artifact = self.artifact.clone();
        let new = status::after(&self.written, state, artifact, generation, Timestamp::now());
        if new == self.written {
            return wait;
        }
        let mut patch = json!({"status": new});
        if new.artifact.is_none() {
            patch["status"]["artifact"] = serde_json::Value::Null;
        }
        let (namespace, name) = (&*self.name.0, &*self.name.1);
        match self.context.cluster.patch_merge(&self.kind, Some(namespace), name, Part::Status, &patch).await {
            Ok(_) => self.written = new,
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(namespace, name, why = chain(&error), "status of this OCIRepository not written");
                return wait.min(AGAIN);
            }
        }
        wait
    }
}

fn data(known: Option<&Known>) -> Option<&SecretData> {
    known.and_then(Known::data)
}

/// Returns the login for the registry of the image.
fn login_of(spec: &OciRepositorySpec, logins: Option<&SecretData>, image: &ImageRef) -> Result<Option<Login>, String> {
    let (Some(named), Some(data)) = (&spec.secret_ref, logins) else { return Ok(None) };
    let name = &named.name;
    let file = data.get(LOGINS).ok_or_else(|| {
        format!("spec.secretRef: the Secret {name} has no key {LOGINS}; create it with `kubectl create secret docker-registry`")
    })?;
    let found = login(&file.0, image);
    let missing = || format!("spec.secretRef: the Secret {name} has no login for {}", image.registry);
    found.map(Some).ok_or_else(missing)
}
