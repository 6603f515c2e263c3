//! The task of one OCIRepository or HelmChart: looks up the artifact at its interval, and writes the status.
//!
//! Invariant: neither a status nor a log shows a value of a Secret. Invariant: after a failure, GitSyncs keep the last
//! artifact.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::charts::Chosen;
use super::context::Context;
use super::failure::Failure;
use super::logins::login_of;
use super::named::Named;
use super::reader::{Found, Reader};
use super::signers::Signers;
use super::status::{self, Basis, Verification};
use super::wanted::{Place, Wanted};
use crate::agent::cloud;
use crate::agent::kept::Name;
use crate::agent::leading::Reporting;
use crate::agent::own_kinds::{NamedSecrets, Object, Running, State, usable};
use crate::agent::own_tasks::{Begun, Followed as HasTasks, MOST};
use crate::agent::status_write::{Refusals, StatusWrite};
use mainstay_api::OciRepositoryStatus;
use mainstay_api::conditions::{Reason, Type};
use mainstay_api::oci_repository::OciArtifact;
use mainstay_cluster::Kind;
use mainstay_cluster::secrets::{Known, Purpose, Referrer, SecretData};
use mainstay_engine::apply::Announcement;
use mainstay_engine::notification::Message;
use mainstay_function::registry::{Access, Client, Deadlines, Digest, Network, Rights};
use mainstay_git::{
    Artifact, Consumer, ConsumerKind, Credentials, Followed, Outbound, Packed, Reference, Remote, RemoteUrl, Source,
};
use mainstay_object::Owner;
use mainstay_object::failure::chain;

const FAR: Duration = Duration::from_secs(86_400);
/// Maximum wait after a failure.
const AGAIN: Duration = Duration::from_secs(60);

/// Returns the URL at which GitSyncs read the artifact.
pub(super) fn address<S: Named>((namespace, name): &Name, object: &Object<S>) -> RemoteUrl {
    RemoteUrl::of_artifact(&object.spec.address(), format!("{namespace}/{name}/{}", object.uid))
}

impl<S: Named> HasTasks for S {
    type Context = Context;
    const REFERRER: Option<Referrer> = Some(<S as Named>::REFERRER);

    fn kind() -> Kind {
        <S as Named>::kind()
    }

    fn owner(namespace: &str, name: &str) -> Owner {
        <S as Named>::owner(namespace, name)
    }

    fn references(&self) -> Vec<(String, Purpose)> {
        self.secret_references()
    }

    /// Publishes the URLs of the artifacts for GitSyncs.
    fn set_all(context: &Context, all: &BTreeMap<Name, Running<S>>) {
        let all = all.iter().map(|(name, running)| (name.clone(), address(name, &running.feed.borrow())));
        context.repositories.set_artifacts(S::SOURCE, all.collect());
    }

    async fn run(context: Arc<Context>, begun: Begun, input: watch::Receiver<Object<S>>) {
        Task::<S>::new(context, begun).run(input).await;
    }
}

/// The task of one object.
pub(super) struct Task<S> {
    context: Arc<Context>,
    source: Source,
    kind: Kind,
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
    /// The version that was chosen from the last index of a chart repository.
    chosen: Option<Chosen>,
    verification: Verification,
    /// The basis of `verification`; `None` if the signers were not read.
    basis: Option<Basis>,
    /// The state after the last turn.
    state: Option<State>,
    /// The refused writes of the status.
    refusals: Refusals,
    reporting: Reporting,
    spec: PhantomData<fn() -> S>,
}

/// The facts that determine the commit of an artifact, and who may have signed it.
#[derive(PartialEq)]
struct Key {
    found: Found,
    media_type: Option<String>,
    ignore: String,
    signers: Option<Digest>,
}

impl<S: Named> Task<S> {
    pub(super) fn new(context: Arc<Context>, begun: Begun) -> Self {
        let Begun { name, number, status, fits } = begun;
        let status: OciRepositoryStatus = serde_json::from_value(status).unwrap_or_default();
        // A task of an older object with this name may not have ended yet.
        let consumer = Consumer::new(S::CONSUMER, &name.0, &format!("{}/{number}", name.1));
        let (source, kind) = (context.source.for_namespace(&name.0), <S as Named>::kind());
        let (written, artifact, secrets) = (status.clone(), status.artifact, NamedSecrets::default());
        let reporting = Reporting::new(&context.leads);
        Self {
            context,
            source,
            kind,
            name,
            consumer,
            written,
            artifact,
            fits,
            secrets,
            made: None,
            chosen: None,
            verification: Verification::default(),
            basis: None,
            state: None,
            refusals: Refusals::default(),
            reporting,
            spec: PhantomData,
        }
    }

    /// Runs until the task's feed is closed.
    pub(super) async fn run(mut self, mut input: watch::Receiver<Object<S>>) {
        let mut remote: Option<Remote> = None;
        let mut pushed = self.source.pushes().subscribe(&self.consumer);
        loop {
            let object = input.borrow_and_update().clone();
            let now = Remote::new(address(&self.name, &object), Credentials::Anonymous);
            if remote.as_ref() != Some(&now) {
                self.source.set_remote(&self.consumer, Some(&now));
                self.recall(&now).await;
            }
            self.source.pushes().set(&self.consumer, Some(self.followed(&now)));
            let (began, remote) = (Instant::now(), &*remote.insert(now));
            let wait = self.turn(&object, remote).await;
            self.source.artifact_looked_up(remote, began.into_std());
            let mut due = Instant::now() + wait;
            loop {
                tokio::select! {
                    changed = input.changed() => if changed.is_err() { return self.leave() } else { break },
                    () = self.secrets.changed() => break,
                    () = self.refusals.passed() => self.settle(remote, object.generation).await,
                    () = self.reporting.begins(), if self.refusals.until().is_none() => {
                        self.settle(remote, object.generation).await;
                    }
                    // A Receiver got a delivery.
                    _ = pushed.changed() => due = pushed.take().map_or(due, |pushed| due.min(pushed.at.into())),
                    () = sleep_until(due) => break,
                }
            }
        }
    }

    fn leave(&self) {
        self.source.set_remote(&self.consumer, None);
        self.source.pushes().remove(&self.consumer);
    }

    /// Returns the row of the object for deliveries, which may wake it.
    fn followed(&self, remote: &Remote) -> Followed {
        let (repository, url) = (self.name.1.clone(), remote.url.clone());
        Followed { repository, url, reference: Reference::head() }
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
    async fn turn(&mut self, object: &Object<S>, remote: &Remote) -> Duration {
        let (state, wait) = self.attempt(object, remote).await;
        if state.is_failure() && object.spec.requires_signature() {
            self.verification.end_pending();
        }
        self.state = Some(state);
        self.settle(remote, object.generation).await;
        wait
    }

    async fn attempt(&mut self, object: &Object<S>, remote: &Remote) -> (State, Duration) {
        if object.spec.is_suspended() {
            self.forget();
            return (State::not_ready(Reason::Suspended, "suspended: nothing is looked up"), FAR);
        }
        if !self.fits {
            let kinds = S::REFERRER.plural();
            let message = format!("this namespace has {MOST} {kinds}, and the agent keeps no more; delete one");
            return (State::not_ready(Reason::MemoryExhausted, message), FAR);
        }
        let wanted = match object.spec.wanted(&self.name.0) {
            Ok(wanted) => wanted,
            Err(problems) => {
                self.forget();
                return (State::invalid(Reason::SpecInvalid, &problems), FAR);
            }
        };
        match (&self.verification, &wanted.signed) {
            (_, None) => self.verification = Verification::NotRequired,
            (Verification::NotRequired, Some(_)) => self.verification = Verification::Unverified,
            _ => {}
        }
        match self.read(object, &wanted, remote).await {
            Ok(revision) => {
                (State::ready(Reason::ArtifactStored, format!("stored artifact {revision}")), wanted.interval)
            }
            Err(state) => (state, wanted.interval.min(AGAIN)),
        }
    }

    /// Reads the artifact, unless it is unchanged. Returns its revision.
    async fn read(&mut self, object: &Object<S>, wanted: &Wanted, remote: &Remote) -> Result<String, State> {
        let (reader, outbound, signers) = self.reader(object, wanted, remote).await?;
        let spec = &object.spec;
        let failed = |why: String| State::not_ready(Reason::ArtifactFailed, format!("{}: {why}", spec.address()));
        let reading = outbound.run(self.renew(&reader, wanted, signers.as_ref(), remote));
        let read = tokio::time::timeout(wanted.timeout, reading).await;
        if let (Some(identity), Place::Registry(image), Ok(Err(Failure::Read(_)))) =
            (&wanted.identity, &wanted.place, &read)
        {
            // The registry may have refused the login.
            self.source.doubt_registry_login(identity, &image.repository.registry);
        }
        let late = |_| failed(format!("timed out after {} s (spec.timeout)", wanted.timeout.as_secs()));
        read.map_err(late)?.map_err(|failure| match failure {
            Failure::Read(why) => failed(why),
            Failure::Unsigned(why) => {
                let why = format!("{}: {why}", spec.address());
                self.verification = Verification::Failed(why.clone());
                // The condition has to speak of the last artifact again, once that one is found again.
                self.made = None;
                State::not_ready(Reason::VerificationFailed, why)
            }
        })
    }

    /// Forgets the result of the verification if the signers of this turn are not read.
    fn forget(&mut self) {
        if self.basis.is_some() {
            self.rebase(None);
        }
    }

    /// Sets the basis of the verification; `None` if the signers cannot be read. A result with another basis does not
    /// count any more, and the next lookup verifies the artifact.
    fn rebase(&mut self, basis: Option<Basis>) {
        if self.verification.is_outdated(self.basis.as_ref(), basis.as_ref()) {
            self.verification = Verification::Unverified;
            self.made = None;
        }
        self.basis = basis;
    }

    async fn renew(
        &mut self,
        reader: &Reader<'_>,
        wanted: &Wanted,
        signers: Option<&Signers>,
        remote: &Remote,
    ) -> Result<String, Failure> {
        let found = reader.find(&self.source, &mut self.chosen).await?;
        let media_type = match &wanted.place {
            Place::Registry(image) => image.media_type.clone(),
            Place::Charts(_) => None,
        };
        let (ignore, signers_digest) = (wanted.ignore.clone(), signers.map(|signers| signers.digest.clone()));
        let key = (remote.url.clone(), Key { found, media_type, ignore, signers: signers_digest });
        if self.made.as_ref() == Some(&key)
            && let Some(last) = self.artifact.as_ref().map(|last| last.revision.clone())
            && self.has_last(remote).await
        {
            return Ok(last);
        }
        let downloaded = reader.download(&key.1.found, &self.source, signers).await?;
        let (revision, digest) = (downloaded.revision, downloaded.digest);
        let part = if matches!(wanted.place, Place::Registry(_)) { "Layer" } else { "Chart" };
        let message = format!("{revision}\n\n{part} {digest} of {}\n", remote.url);
        let packed = Packed { archive: downloaded.archive, message, ignore: wanted.ignore.clone(), root: wanted.root };
        let commit = self.source.add_artifact(remote, packed).await.map_err(|fault| chain(&fault))?;
        let is_new = self.artifact.as_ref().is_none_or(|old| old.commit != commit.to_string());
        self.source.set_artifact(remote, Ok(Artifact { commit, tag: downloaded.tag }));
        if is_new {
            self.artifact = Some(OciArtifact {
                revision: revision.clone(),
                digest,
                commit: commit.to_string(),
                last_update_time: Time(Timestamp::now()),
            });
        }
        if let Some(signer) = downloaded.signer {
            self.verification = Verification::Passed(format!("{revision} is signed by {signer}"));
        } else if signers.is_some() {
            self.verification = Verification::Tolerated;
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
        let is_meant = |consumer: &Consumer, followed: &Followed| {
            consumer.kind == ConsumerKind::GitSync && followed.url == remote.url
        };
        self.source.pushes().wake(is_meant, Instant::now().into_std());
    }

    /// Reads the Secrets with the login, the certificates and the proxy, and the signers, which are the basis of the
    /// verification. The basis does not depend on the other Secrets, and stays while the signers cannot be read for the
    /// moment.
    async fn read_secrets(
        &mut self,
        object: &Object<S>,
        wanted: &Wanted,
        remote: &Remote,
    ) -> Result<([Option<Known>; 3], Option<Signers>), State> {
        let [login, tls, proxy, keys, root] = object.spec.secrets();
        let named = [
            (login, Purpose::Artifact),
            (tls, Purpose::Artifact),
            (proxy, Purpose::Proxy),
            (keys, Purpose::SignatureKeys),
            (root, Purpose::SignatureKeys),
        ];
        let all = self.secrets.follow(&self.context.secrets, &self.name, named).await;
        let trusted = all[3].as_ref().or(all[4].as_ref());
        let signers = signers_of(wanted, keys.or(root), trusted);
        let (url, generation) = (&remote.url, object.generation);
        let is_unsettled = trusted.is_some_and(|known| !known.is_settled());
        let stays = is_unsettled && self.basis.as_ref().is_some_and(|basis| basis.is_of(url, generation));
        if !stays {
            let signers = signers.as_ref().ok().and_then(Option::as_ref).map(|signers| signers.digest.clone());
            self.rebase(signers.map(|signers| Basis { url: url.clone(), signers, generation }));
        }
        let [logins, tls, proxy, ..] = usable(named, all)?;
        let signers = signers.map_err(|why| State::not_ready(Reason::SpecInvalid, why))?;
        Ok(([logins, tls, proxy], signers))
    }

    /// Returns a client for the wanted artifact, with the login and the certificates of the Secrets, and the signers.
    async fn reader<'w>(
        &mut self,
        object: &Object<S>,
        wanted: &'w Wanted,
        remote: &Remote,
    ) -> Result<(Reader<'w>, Outbound, Option<Signers>), State> {
        let (invalid, place) = (|why: String| State::not_ready(Reason::SpecInvalid, why), &wanted.place);
        let ([logins, tls, proxy], signers) = self.read_secrets(object, wanted, remote).await?;
        let spec = &object.spec;
        let [login, ..] = spec.secrets();
        let login = login.zip(data(logins.as_ref())).map(|(name, data)| login_of::<S>(name, data, place));
        let login = login.transpose().map_err(invalid)?;
        let login = match (&wanted.identity, place) {
            (Some(identity), Place::Registry(image)) => {
                let (registry, proxy) = (&image.repository.registry, data(proxy.as_ref()));
                let login = cloud::login(&self.source, identity, registry, proxy).await;
                let failed = |why| State::not_ready(Reason::ArtifactFailed, format!("{}: {why}", spec.address()));
                Some(login.map_err(failed)?)
            }
            _ => login,
        };
        let outbound = match &wanted.identity {
            Some(_) => self.source.cloud_outbound(&self.name.0, data(proxy.as_ref())),
            None => self.source.outbound(&self.name.0, data(tls.as_ref()), data(proxy.as_ref())),
        };
        let outbound = outbound.map_err(|fault| invalid(fault.to_string()))?;
        let (own, foreign, check) = outbound.clients();
        let network = Network { own, foreign, check };
        // The client retries only briefly, because the whole lookup has a deadline and is repeated at the interval.
        let deadlines = Deadlines { patience: Duration::from_secs(5), ..Deadlines::default() };
        let reader = match place {
            Place::Registry(image) => {
                let access = Access { scheme: image.scheme, login, authorities: Vec::new() };
                let client = Client::within(network, &image.repository, access, Rights::Pull, deadlines);
                Reader::Registry(client.map_err(|error| invalid(chain(&error)))?, image)
            }
            Place::Charts(chart) => {
                Reader::Charts(Client::of_files(network, &chart.repository, login, deadlines), chart)
            }
        };
        Ok((reader, outbound, signers))
    }

    /// Sends a message about a new state to Events, to the log and to Alerts.
    fn announce(&self, state: &State) {
        let old = self.written.conditions.iter().find(|condition| condition.type_ == Type::Ready.as_str());
        let is_same = old.is_some_and(|old| old.reason == state.reason.as_str() && old.message == state.message);
        if is_same || state.reason == Reason::Suspended {
            return;
        }
        let owner = S::owner(&self.name.0, &self.name.1);
        let status = if state.is_failure() { "False" } else { "True" };
        let message = Message::Stage {
            subject: owner.clone(),
            condition: Type::Ready.as_str().to_owned(),
            status: status.to_owned(),
            reason: state.reason.into(),
            message: state.message.clone(),
        };
        self.context.notifier.notify(&Announcement { owner: &owner, object: None, message: &message });
    }

    /// Reads the status that the former leader has written. Returns whether it is known.
    async fn read_status(&mut self) -> bool {
        let at = (&self.context.cluster, &self.kind);
        let Some(live) = self.refusals.read(at, &self.name).await else { return false };
        self.written = serde_json::from_value(live["status"].clone()).unwrap_or_default();
        self.reporting.set_current();
        true
    }

    /// Writes the status of the last turn if it changed.
    async fn settle(&mut self, remote: &Remote, generation: Option<i64>) {
        let is_known = !self.reporting.must_read() || self.read_status().await;
        let Some(state) = &self.state else { return };
        if self.artifact.is_none() {
            self.source.set_artifact(remote, Err(state.message.clone()));
        }
        if !is_known {
            return;
        }
        let artifact = self.artifact.clone();
        let new = status::after(&self.written, state, &self.verification, artifact, generation, Timestamp::now());
        if new == self.written {
            return self.refusals.end();
        }
        if !self.reporting.is_on() || self.reporting.must_read() {
            self.written = new;
            return;
        }
        let mut patch = json!({"status": new});
        if new.artifact.is_none() {
            patch["status"]["artifact"] = serde_json::Value::Null;
        }
        let outcome = self.refusals.write((&self.context.cluster, &self.kind), &self.name, &patch).await;
        if outcome == StatusWrite::Written {
            self.announce(state);
        }
        if outcome != StatusWrite::Refused {
            self.written = new;
        }
    }
}

fn data(known: Option<&Known>) -> Option<&SecretData> {
    known.and_then(Known::data)
}

/// Returns the signers in the Secret with this name.
fn signers_of(wanted: &Wanted, name: Option<&str>, known: Option<&Known>) -> Result<Option<Signers>, String> {
    let Some(signed) = &wanted.signed else { return Ok(None) };
    let secret = name.zip(data(known));
    if name.is_some() && secret.is_none() {
        return Err("spec.verify: its Secret was not read".to_owned());
    }
    Signers::read(signed, secret).map(Some)
}
