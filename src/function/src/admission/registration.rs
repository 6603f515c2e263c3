//! Manages the certificates of the webhooks, and writes their CA bundle for the API servers.
//!
//! [`follow`] runs in every replica: it serves the Secret's certificate and the configured paths. [`lead`] runs in the
//! leader: it creates and renews certificates, and writes `caBundle` into the webhook configurations.
//!
//! Invariant: a certificate is served only after its CA has been in `caBundle` of all configurations for
//! [`Lifetimes::announced`], except the first certificate. Invariant: the Secret is updated only if it is unchanged
//! since it was read, so two leaders do not overwrite each other. Invariant: without changes, only the watches send
//! requests. Invariant: reverts of changes by other clients back off. Invariant: the CRD of Function receives the CA
//! bundle too, if its conversion uses Mainstay's webhook. Invariant: only `caBundle` of existing configurations is
//! written. Deleting a configuration disables its webhooks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures::StreamExt;
use futures::stream::{Stream, select_all};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::hook::{CONVERT, Hook};
use super::server::Admission;
use mainstay_api::names::{ADMISSION, ADMISSION_MANAGER, FUNCTION_DEFINITION};
use mainstay_cluster::certificate::{self, Certificates, Lifetimes, Step, Usage, certified};
use mainstay_cluster::reflector::Change;
use mainstay_cluster::{Apply, Cluster, Error, Kind, Scope, Selection};
use mainstay_object::failure::{Backoff, chain};

/// Backoff after a failed write.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// Time without changes by other clients after which the backoff of reverts resets.
const PEACE: Duration = Duration::from_secs(600);
/// Maximum time between checks. The checks also detect changes of the clock.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

const GROUP: &str = "admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "apiextensions.k8s.io/v1";

/// The names and addresses that the certificates are issued for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Namespace of the Secret.
    pub namespace: String,
    /// DNS names and IP addresses of the webhooks.
    pub names: Vec<String>,
    /// Lifetimes of certificates.
    pub lifetimes: Lifetimes,
    /// Whether there are webhooks for Functions.
    pub with_functions: bool,
}

fn secrets() -> Arc<Kind> {
    Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced))
}

/// The objects with a `caBundle` for API servers: both webhook configurations, and the CRD of Function.
fn readers(with_functions: bool) -> Vec<(Arc<Kind>, &'static str)> {
    let kind = |version, kind, plural| Arc::new(Kind::fixed(version, kind, plural, Scope::Cluster));
    let mut readers =
        vec![(kind(GROUP, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"), ADMISSION)];
    if with_functions {
        readers.push((kind(GROUP, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"), ADMISSION));
        let definitions = kind(DEFINITIONS, "CustomResourceDefinition", "customresourcedefinitions");
        readers.push((definitions, FUNCTION_DEFINITION));
    }
    readers
}

/// Serves the Secret's certificate and the configured webhooks until `stop`. After a failed read, the last known state
/// stays in effect.
pub async fn follow(
    admission: Arc<Admission>,
    cluster: Cluster,
    namespace: String,
    with_functions: bool,
    stop: CancellationToken,
) {
    let mut changes = watches(&cluster, &namespace, with_functions);
    let count = readers(with_functions).len();
    let mut configured = vec![BTreeSet::<Hook>::new(); count];
    while let Some(Some((at, change))) = stop.run_until_cancelled(changes.next()).await {
        match (at, change) {
            (None, Change::Changed { live: secret, .. }) => {
                let certificates = Certificates::read(&data_of(&secret));
                let current = certificates.current.as_ref();
                admission.served.set(current.and_then(|pair| certified(&pair.certificate, &pair.key)));
                continue;
            }
            (Some(at), Change::Changed { live, .. }) => {
                let hooks = Hook::configured(&live).into_iter();
                configured[at] = hooks.filter(|hook| with_functions || !hook.is_of_functions()).collect();
            }
            (Some(at), Change::Gone { .. }) => configured[at].clear(),
            (Some(_), Change::Complete { .. }) => {}
            _ => continue,
        }
        admission.set_configured(configured.iter().flatten().copied().collect());
    }
}

/// Watches the Secret, and the objects of [`readers`] with their index.
fn watches(
    cluster: &Cluster,
    namespace: &str,
    with_functions: bool,
) -> impl Stream<Item = (Option<usize>, Change<()>)> + Unpin + use<> {
    let secret = cluster.states(&secrets(), Selection::named(Some(namespace), ADMISSION));
    let secret = secret.into_stream().map(|change| (None, change)).boxed();
    let readers = readers(with_functions).into_iter().enumerate().map(|(at, (kind, name))| {
        let states = cluster.states(&kind, Selection::named(None, name));
        states.into_stream().map(move |change| (Some(at), change)).boxed()
    });
    select_all(readers.chain([secret]))
}

/// Creates certificates and writes their CA bundle until `stop`.
pub async fn lead(registration: Registration, cluster: Cluster, stop: CancellationToken) {
    let mut changes = watches(&cluster, &registration.namespace, registration.with_functions);
    let count = readers(registration.with_functions).len();
    let mut leader = Leader {
        registration: &registration,
        cluster: &cluster,
        secret: None,
        readers: vec![None; count],
        listed: vec![false; count],
    };
    // The number of consecutive failures, the number of reverts with the time of the last one, and whether the last
    // wait ended with a change.
    let (mut failures, mut put_back, mut was_changed) = (0, (0, Instant::now()), false);
    loop {
        let wait = match leader.advance().await {
            Ok((due, has_written)) => {
                failures = 0;
                if has_written && was_changed {
                    let earlier = if put_back.1.elapsed() > PEACE { 0 } else { put_back.0 };
                    put_back = (earlier + 1, Instant::now());
                }
                Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default().min(LOOK_EVERY)
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(
                    why = chain(&error),
                    "the webhooks are not ready: Functions are validated only when they are reconciled"
                );
                AGAIN.delay(failures)
            }
        };
        // After a failure, events do not cause a retry, because some events are effects of the agent's own writes.
        let waiting = leader.observe(&mut changes, Instant::now() + wait, failures == 0);
        let Some(changed) = stop.run_until_cancelled(waiting).await else { return };
        was_changed = changed;
        let (times, last) = put_back;
        if was_changed && times > 0 {
            let waiting = leader.observe(&mut changes, last + AGAIN.delay(times), false);
            if stop.run_until_cancelled(waiting).await.is_none() {
                return;
            }
        }
    }
}

struct Leader<'a> {
    registration: &'a Registration,
    cluster: &'a Cluster,
    /// The Secret, once it was listed: `Some(None)` if it does not exist.
    secret: Option<Option<Value>>,
    /// The state of each object of [`readers`].
    readers: Vec<Option<Reader>>,
    /// Whether each of these objects has been listed. The CA bundle is written after all have been.
    listed: Vec<bool>,
}

/// The needed fields of an object with a `caBundle`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reader {
    uid: Value,
    /// The webhooks by name, with `clientConfig`. A conversion webhook has the name null.
    clients: Vec<(Value, Value)>,
}

impl Reader {
    fn of(live: &Value) -> Self {
        let uid = live["metadata"]["uid"].clone();
        let webhooks = live["webhooks"].as_array().into_iter().flatten();
        let webhooks = webhooks.map(|one| (one["name"].clone(), one["clientConfig"].clone()));
        // The configuration of a foreign conversion webhook is left unchanged.
        let conversion = Some(&live["spec"]["conversion"]["webhook"]["clientConfig"]).filter(|client| is_ours(client));
        let clients = webhooks.chain(conversion.map(|client| (Value::Null, client.clone()))).collect();
        Self { uid, clients }
    }

    /// Returns a patch that sets this bundle in all webhooks.
    fn told(&self, bundle: &str) -> Value {
        let client = json!({"caBundle": bundle});
        if let [(Value::Null, _)] = &*self.clients {
            return json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client}}}});
        }
        let webhooks = self.clients.iter().map(|(name, _)| json!({"name": name, "clientConfig": client}));
        json!({"webhooks": webhooks.collect::<Vec<_>>()})
    }
}

impl Leader<'_> {
    /// Processes changes until `deadline`. Returns true if a change ended the wait earlier.
    async fn observe(
        &mut self,
        changes: &mut (impl Stream<Item = (Option<usize>, Change<()>)> + Unpin),
        deadline: Instant,
        until_changed: bool,
    ) -> bool {
        loop {
            let Ok(next) = timeout_at(deadline, changes.next()).await else { return false };
            // Watches do not end, so this task has nothing more to wait for.
            let Some((at, change)) = next else { return std::future::pending().await };
            if self.observe_one(at, change) && until_changed {
                return true;
            }
        }
    }

    /// Processes one change. Returns whether it may require a write.
    fn observe_one(&mut self, at: Option<usize>, change: Change<()>) -> bool {
        match (at, change) {
            (None, Change::Changed { live: secret, .. }) => self.secret = Some(Some(secret)),
            (None, Change::Gone { .. }) => self.secret = Some(None),
            (None, Change::Complete { .. }) if self.secret.is_none() => self.secret = Some(None),
            (Some(at), Change::Changed { live, .. }) => {
                let reader = Some(Reader::of(&live));
                return std::mem::replace(&mut self.readers[at], reader.clone()) != reader;
            }
            (Some(at), Change::Gone { .. }) => self.readers[at] = None,
            (Some(at), Change::Complete { .. } | Change::Failed(_)) => {
                return !std::mem::replace(&mut self.listed[at], true);
            }
            _ => return false,
        }
        true
    }

    /// Performs the due steps. Returns when the next step is due, and whether something was written.
    async fn advance(&mut self) -> Result<(Timestamp, bool), Error> {
        let mut has_written = false;
        loop {
            let later = Timestamp::now().checked_add(LOOK_EVERY).unwrap_or(Timestamp::MAX);
            let Some(secret) = self.secret.as_ref().filter(|_| self.listed.iter().all(|listed| *listed)) else {
                return Ok((later, has_written));
            };
            let certificates = Certificates::read(&secret.as_ref().map(data_of).unwrap_or_default());
            let now = Timestamp::now();
            let Registration { names, lifetimes, .. } = self.registration;
            let step = certificates.step(names, *lifetimes, now);
            if matches!(step, Step::Promote | Step::Wait(_)) {
                has_written |= self.announce(&certificates.bundle(now)).await?;
            }
            if let Step::Wait(due) = step {
                return Ok((due, has_written));
            }
            let made = || match certificate::make("mainstay admission", names, Usage::Server, lifetimes.valid, now) {
                Ok(pair) => Some(pair),
                Err(error) => {
                    tracing::error!(why = error.to_string(), "no certificate can be made for the webhooks");
                    None
                }
            };
            let Some(certificates) = certificates.after(step, made) else { return Ok((later, has_written)) };
            self.store(&certificates).await?;
            has_written = true;
        }
    }

    /// Writes the Secret if its resource version is still the known one.
    async fn store(&mut self, certificates: &Certificates) -> Result<(), Error> {
        let encoded =
            certificates.write().into_iter().map(|(key, value)| (key, BASE64_STANDARD.encode(value.expose())));
        let namespace = &self.registration.namespace;
        let mut body = json!({
            "apiVersion": "v1", "kind": "Secret", "data": encoded.collect::<BTreeMap<_, _>>(),
            "metadata": {"name": ADMISSION, "namespace": namespace, "labels": {"app.kubernetes.io/name": "mainstay"}},
        });
        if let Some(Some(known)) = &self.secret {
            body["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"].clone();
        }
        let how = Apply::forced(ADMISSION_MANAGER);
        let stored = self.cluster.apply(&secrets(), Some(namespace), ADMISSION, &body, how).await?;
        self.secret = Some(Some(stored));
        Ok(())
    }

    /// Writes the bundle wherever a different bundle is set. Returns whether there was such a place.
    async fn announce(&mut self, bundle: &str) -> Result<bool, Error> {
        let mut has_written = false;
        let bundle = BASE64_STANDARD.encode(bundle);
        for ((kind, name), known) in readers(self.registration.with_functions).into_iter().zip(&mut self.readers) {
            let Some(reader) = known else { continue };
            if reader.clients.iter().all(|(_, client)| client["caBundle"] == *bundle) {
                continue;
            }
            let mut body = reader.told(&bundle);
            body["apiVersion"] = (&*kind.api_version()).into();
            body["kind"] = (&*kind.kind).into();
            // The UID prevents the apply from recreating a deleted object.
            body["metadata"] = json!({"name": name, "uid": reader.uid});
            let live = self.cluster.apply(&kind, None, name, &body, Apply::forced(ADMISSION_MANAGER)).await?;
            *reader = Reader::of(&live);
            has_written = true;
            tracing::info!("{} {name} trusts the certificates of the webhooks", kind.kind);
        }
        Ok(has_written)
    }
}

/// Whether a client configuration points to Mainstay's webhook: by Mainstay's Service, or by a URL with the path of a
/// webhook.
fn is_ours(client: &Value) -> bool {
    let (service, url) = (&client["service"], client["url"].as_str().unwrap_or_default());
    service["name"] == ADMISSION && service["path"] == CONVERT || url.starts_with("https://") && url.ends_with(CONVERT)
}

/// Returns the data of a Secret, without keys whose values cannot be decoded.
fn data_of(secret: &Value) -> BTreeMap<String, Vec<u8>> {
    let data = secret["data"].as_object().into_iter().flatten();
    data.filter_map(|(key, value)| Some((key.clone(), BASE64_STANDARD.decode(value.as_str()?).ok()?))).collect()
}
