//! The task of one ImageRepository: lists the tags at its interval and after a delivery to a Receiver, looks up digests for ImagePolicies, and writes the
//! status.
//!
//! Invariant: neither a status nor a log shows a value of a Secret. Invariant: after a failure, ImagePolicies keep the
//! last tags.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::context::{AGAIN, Context, FAR};
use super::report::Reporter;
use super::scans::{Ask, Known, Scan, TAG_BYTES, Tags};
use super::wanted::{Wanted, wanted};
use crate::agent::cloud;
use crate::agent::kept::Name;
use crate::agent::own_kinds::{NamedSecrets, Object, Running, State};
use crate::agent::own_tasks::{Begun, Followed, MOST};
use mainstay_api::conditions::Reason;
use mainstay_api::image_repository::ScanResult;
use mainstay_api::{ImageRepository, ImageRepositorySpec, ImageRepositoryStatus};
use mainstay_cluster::Kind;
use mainstay_cluster::secrets::{Known as Secret, Purpose, Referrer, SecretReferences as _};
use mainstay_function::registry::{Access, Client, Deadlines, Digest, Network, Rights, login};
use mainstay_git::{Consumer, ConsumerKind, Followed as Row, Outbound, Reference, RemoteUrl, Source};
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// The key of a Secret that contains logins.
const LOGINS: &str = ".dockerconfigjson";
/// Number of tags that the status shows.
const SHOWN: usize = 10;

impl Followed for ImageRepositorySpec {
    type Context = Context;
    const REFERRER: Option<Referrer> = Some(Referrer::ImageRepository);

    fn kind() -> Kind {
        Kind::of::<ImageRepository>()
    }

    fn owner(namespace: &str, name: &str) -> Owner {
        Owner::image_repository(namespace, name)
    }

    fn references(&self) -> Vec<(String, Purpose)> {
        self.secret_references()
    }

    fn set_all(context: &Context, all: &BTreeMap<Name, Running<Self>>) {
        context.set_listed::<Self>();
        context.repositories.set_images(all.keys().cloned().collect());
    }

    fn run(
        context: Arc<Context>,
        begun: Begun,
        input: watch::Receiver<Object<Self>>,
    ) -> impl Future<Output = ()> + Send + 'static {
        // ImagePolicies know the object once it is listed, before its task begins.
        let asked = context.scans.open(&begun.name, begun.number);
        async move { Task::new(context, begun).run(input, asked).await }
    }
}

struct Task {
    context: Arc<Context>,
    source: Source,
    /// The subject of deliveries.
    consumer: Consumer,
    begun: Begun,
    reporter: Reporter,
    /// The status as last written.
    written: ImageRepositoryStatus,
    /// The last tags, with the image that has them.
    tags: Option<(String, Arc<Tags>)>,
    /// The state after the last turn.
    state: Option<State>,
    secrets: NamedSecrets,
}

impl Task {
    fn new(context: Arc<Context>, begun: Begun) -> Self {
        let written = serde_json::from_value(begun.status.clone()).unwrap_or_default();
        let reporter = Reporter::new::<ImageRepositorySpec>(&context, &begun.name);
        let source = context.source.for_namespace(&begun.name.0);
        let own = format!("{}/{}", begun.name.1, begun.number);
        let consumer = Consumer::new(ConsumerKind::ImageRepository, &begun.name.0, &own);
        let (tags, state, secrets) = (None, None, NamedSecrets::default());
        Self { context, source, consumer, begun, reporter, written, tags, state, secrets }
    }

    async fn run(mut self, mut input: watch::Receiver<Object<ImageRepositorySpec>>, mut asked: mpsc::Receiver<Ask>) {
        let mut pushed = self.source.pushes().subscribe(&self.consumer);
        loop {
            let object = input.borrow_and_update().clone();
            self.source.pushes().set(&self.consumer, Some(self.row(&object)));
            let wait = self.turn(&object).await;
            let mut due = Instant::now() + wait;
            loop {
                tokio::select! {
                    changed = input.changed() => if changed.is_err() { return self.leave() } else { break },
                    () = self.secrets.changed() => break,
                    Some(ask) = asked.recv() => {
                        let digest = self.digest(&object, &ask.tag).await;
                        // The policy may have changed in the meantime.
                        let _ = ask.reply.send(digest);
                    }
                    () = self.reporter.refusals().passed() => self.settle(&object).await,
                    // A Receiver got a delivery.
                    _ = pushed.changed() => due = pushed.take().map_or(due, |pushed| due.min(pushed.at.into())),
                    () = sleep_until(due) => break,
                }
            }
        }
    }

    /// Returns the row of the object for deliveries, which may wake it.
    fn row(&self, object: &Object<ImageRepositorySpec>) -> Row {
        let (namespace, name) = &self.begun.name;
        let owner = format!("{namespace}/{name}/{}", object.uid);
        let url = RemoteUrl::of_artifact(&format!("oci://{}", object.spec.image), owner);
        Row { repository: name.clone(), url, reference: Reference::head() }
    }

    fn leave(&self) {
        self.source.pushes().remove(&self.consumer);
        self.context.scans.close(&self.begun.name, self.begun.number);
    }

    /// Lists the tags, and writes the status. Returns the time until the next turn.
    async fn turn(&mut self, object: &Object<ImageRepositorySpec>) -> Duration {
        let (state, wait) = self.attempt(&object.spec).await;
        let known = match &self.tags {
            Some((image, tags)) if *image == object.spec.image => Known::Read(Arc::new(Scan {
                image: image.clone(),
                access_from: object.spec.access_from.clone(),
                tags: Arc::clone(tags),
            })),
            _ => {
                self.tags = None;
                Known::Unread(state.message.clone())
            }
        };
        self.context.scans.publish(&self.begun.name, self.begun.number, known);
        self.state = Some(state);
        self.settle(object).await;
        wait
    }

    async fn attempt(&mut self, spec: &ImageRepositorySpec) -> (State, Duration) {
        if spec.suspend {
            return (State::not_ready(Reason::Suspended, "suspended: nothing is listed"), FAR);
        }
        if !self.begun.fits {
            let why = format!("this namespace has {MOST} ImageRepositories, and the agent keeps no more; delete one");
            return (State::not_ready(Reason::MemoryExhausted, why), FAR);
        }
        let wanted = match wanted(spec, &self.begun.name.0) {
            Ok(wanted) => wanted,
            Err(problems) => return (State::invalid(Reason::SpecInvalid, &problems), FAR),
        };
        match self.list(spec, &wanted).await {
            Ok(count) => (State::ready(Reason::TagsListed, format!("found {count} tags")), wanted.interval),
            Err(state) => (state, wanted.interval.min(AGAIN)),
        }
    }

    /// Lists the tags, and returns their number.
    async fn list(&mut self, spec: &ImageRepositorySpec, wanted: &Wanted) -> Result<usize, State> {
        let (client, outbound) = self.client(spec, wanted).await?;
        let failed = |why: String| State::not_ready(Reason::ImageFailed, format!("{}: {why}", spec.image));
        let listing = async {
            // A listing may need much memory, so only a few run at the same time.
            let _listing = self.source.downloading().await.map_err(|fault| fault.to_string())?;
            let tags = client.again(|| client.tags()).await.map_err(|error| chain(&error))?;
            let mut tags = tags.ok_or_else(|| "the registry has no such repository".to_owned())?;
            tags.retain(|tag| is_plain(tag) && !wanted.excluded.iter().any(|excluded| excluded.is_match(tag)));
            tags.sort_unstable();
            tags.dedup();
            let size: usize = tags.iter().map(|tag| tag.len() + 1).sum();
            if size > TAG_BYTES {
                let kib = TAG_BYTES >> 10;
                return Err(format!(
                    "its {} tags have more than {kib} KiB; exclude some in spec.exclusionList",
                    tags.len()
                ));
            }
            Ok((tags.len(), tags.join("\n")))
        };
        let listed = tokio::time::timeout(wanted.timeout, outbound.run(listing)).await;
        if let (Some(identity), Ok(Err(_))) = (&wanted.identity, &listed) {
            // The registry may have refused the login.
            self.source.doubt_registry_login(identity, &wanted.image.registry);
        }
        let late = |_| failed(format!("timed out after {} s (spec.timeout)", wanted.timeout.as_secs()));
        let (count, text) = listed.map_err(late)?.map_err(failed)?;
        if self.tags.as_ref().is_some_and(|(image, tags)| *image == spec.image && tags.text() == text) {
            return Ok(count);
        }
        let full = || State::not_ready(Reason::MemoryExhausted, "the agent has no memory left for more tags");
        let tags = self.context.scans.tags(text).ok_or_else(full)?;
        self.tags = Some((spec.image.clone(), Arc::new(tags)));
        Ok(count)
    }

    /// Looks up the digest of a tag.
    async fn digest(&mut self, object: &Object<ImageRepositorySpec>, tag: &str) -> Result<Digest, String> {
        if object.spec.suspend {
            return Err("the ImageRepository is suspended".to_owned());
        }
        let wanted = wanted(&object.spec, &self.begun.name.0).map_err(|problems| problems.join("; "))?;
        let (client, outbound) = self.client(&object.spec, &wanted).await.map_err(|state| state.message)?;
        let asking = outbound.run(client.again(|| client.points_to(tag)));
        let found = tokio::time::timeout(wanted.timeout, asking).await;
        let late = |_| format!("timed out after {} s (spec.timeout)", wanted.timeout.as_secs());
        let found = found.map_err(late)?.map_err(|error| chain(&error))?;
        found.ok_or_else(|| format!("the registry has no tag {tag} in this repository"))
    }

    /// Returns a client for the registry, with the login and the certificates of the Secrets.
    async fn client(&mut self, spec: &ImageRepositorySpec, wanted: &Wanted) -> Result<(Client, Outbound), State> {
        let invalid = |why: String| State::not_ready(Reason::SpecInvalid, why);
        let name = |secret: &'_ Option<mainstay_api::oci_repository::OciSecretRef>| {
            secret.as_ref().map(|secret| secret.name.clone())
        };
        let names = [name(&spec.secret_ref), name(&spec.cert_secret_ref), name(&spec.proxy_secret_ref)];
        let [login_name, tls, proxy] = [names[0].as_deref(), names[1].as_deref(), names[2].as_deref()];
        let named = [(login_name, Purpose::Artifact), (tls, Purpose::Artifact), (proxy, Purpose::Proxy)];
        let [logins, tls, proxy] = self.secrets.read(&self.context.secrets, &self.begun.name, named).await?;
        let data = |known: &'_ Option<Secret>| known.as_ref().and_then(Secret::data).cloned();
        let (logins, tls, proxy) = (data(&logins), data(&tls), data(&proxy));
        let login = match (login_name, logins) {
            (Some(name), Some(data)) => {
                let file = data.get(LOGINS).ok_or_else(|| {
                    invalid(format!("spec.secretRef: the Secret {name} has no key {LOGINS}; create it with `kubectl create secret docker-registry`"))
                })?;
                let found = login(&file.0, &wanted.image);
                let missing = format!("spec.secretRef: the Secret {name} has no login for {}", wanted.image.registry);
                Some(found.ok_or_else(|| invalid(missing))?)
            }
            _ => None,
        };
        let login = match &wanted.identity {
            Some(identity) => {
                let login = cloud::login(&self.source, identity, &wanted.image.registry, proxy.as_ref()).await;
                let failed = |why| State::not_ready(Reason::ImageFailed, format!("{}: {why}", spec.image));
                Some(login.map_err(failed)?)
            }
            None => login,
        };
        let outbound = match &wanted.identity {
            Some(_) => self.source.cloud_outbound(&self.begun.name.0, proxy.as_ref()),
            None => self.source.outbound(&self.begun.name.0, tls.as_ref(), proxy.as_ref()),
        };
        let outbound = outbound.map_err(|fault| invalid(fault.to_string()))?;
        let (own, foreign, check) = outbound.clients();
        let network = Network { own, foreign, check };
        // The client retries only briefly, because a listing has a deadline and is repeated at the interval.
        let deadlines = Deadlines { patience: Duration::from_secs(5), ..Deadlines::default() };
        let access = Access { scheme: wanted.scheme, login, authorities: Vec::new() };
        let client = Client::within(network, &wanted.image, access, Rights::Pull, deadlines);
        Ok((client.map_err(|error| invalid(chain(&error)))?, outbound))
    }

    /// Writes the status of the last turn if it changed.
    async fn settle(&mut self, object: &Object<ImageRepositorySpec>) {
        let Some(state) = &self.state else { return };
        let now = Timestamp::now();
        let mut new = self.written.clone();
        new.observed_generation = object.generation;
        new.conditions = state.conditions(&self.written.conditions, object.generation, now);
        new.canonical_image_name = wanted(&object.spec, &self.begun.name.0)
            .ok()
            .map(|wanted| format!("{}/{}", wanted.image.registry, wanted.image.repository));
        let listed = self.tags.as_ref().map(|(_, tags)| result(tags, now));
        new.last_scan_result = match (listed, new.last_scan_result.take()) {
            (Some(listed), Some(old)) if listed.revision == old.revision => Some(old),
            (Some(listed), _) => Some(listed),
            // The tags of a new agent are not listed yet, or the listing failed.
            (None, old) => old.filter(|_| new.canonical_image_name == self.written.canonical_image_name),
        };
        if new == self.written {
            return self.reporter.unchanged();
        }
        let mut status = json!(new);
        for field in ["canonicalImageName", "lastScanResult"] {
            if status.get(field).is_none() {
                status[field] = Value::Null;
            }
        }
        if self.reporter.write(&status, &self.written.conditions, state).await {
            self.written = new;
        }
    }
}

/// Whether the text may be a tag. A registry may send anything.
fn is_plain(tag: &str) -> bool {
    !tag.is_empty() && tag.len() <= 128 && tag.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn result(tags: &Tags, now: Timestamp) -> ScanResult {
    ScanResult {
        revision: Digest::of(tags.text().as_bytes()).to_string(),
        tag_count: i64::try_from(tags.iter().count()).unwrap_or(i64::MAX),
        scan_time: Time(now),
        latest_tags: tags.iter().rev().take(SHOWN).map(str::to_owned).collect(),
    }
}
