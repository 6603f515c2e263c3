//! Creates login and certificate of the in-cluster registry for the Secret of the agent's namespace with the label
//! [`GENERATE`]. Also creates the Secret `serverless-registry-config-default` with the login and the CAs of the
//! certificates, which is copied to all namespaces. The guard in front of the registry reloads login and certificate
//! when they are replaced.
//!
//! Invariant: a login is added only to a Secret without a login, and only if the Secret is unchanged since it was read.
//! Invariant: a certificate is replaced only after builds have had the CA of the new certificate for
//! [`LIFETIMES`]`.announced`. Invariant: a default Secret of another owner is not changed. Invariant: no part of a
//! login or a key is logged.
//!
//! Not here: the copies (`propagation`), and the registry itself, which is a Deployment of `mainstay install`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use mainstay_api::names::{AGENT_MANAGER, DEFAULT_REGISTRY_SECRET, GENERATE, REGISTRY_LOGIN};
use mainstay_cluster::certificate::{Certificates, KEYS, Lifetimes, Usage};
use mainstay_cluster::reflector::{Change, name_of};
use mainstay_cluster::{Apply, Cluster, Error, Kind, Part, Scope, Selection};
use mainstay_function::registry::{InternalRegistry, SEED_BYTES};
use mainstay_object::Secret;
use mainstay_object::failure::{Backoff, chain};

/// Delay after a write, because a write may be refused, or undone by another client.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// Time without a write after which the delay is reset.
const PEACE: Duration = Duration::from_secs(600);
/// Maximum time between checks of a certificate's end, in case the clock is changed.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// A running build knows only the CAs from its start. So the next certificate is served only after such a build has
/// ended or reached its deadline.
const LIFETIMES: Lifetimes = Lifetimes {
    valid: Duration::from_secs(90 * 24 * 3600),
    renew_before: Duration::from_secs(30 * 24 * 3600),
    announced: Duration::from_secs(3600),
};

/// Watches the Secret that requests a login, and the default Secret, until `stop`.
pub(super) async fn make(cluster: Cluster, namespace: String, stop: CancellationToken) {
    let kind = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
    let asking = Selection::labelled(GENERATE, REGISTRY_LOGIN).within(&namespace);
    let default = Selection::named(Some(&namespace), DEFAULT_REGISTRY_SECRET);
    let mut maker = Maker { cluster: &cluster, kind: &kind, asking: None, default: None, due: None };
    let (mut asking, mut default) = (cluster.states(&kind, asking), cluster.states(&kind, default));
    // Consecutive writes, and the time of the last one. The delay grows while writes are refused or undone.
    let (mut writes, mut last) = (0, Instant::now());
    loop {
        let next = (writes > 0).then(|| last + AGAIN.delay(writes));
        tokio::select! {
            () = stop.cancelled() => return,
            change = asking.next() => maker.observe_asking(change),
            change = default.next() => maker.observe_default(change),
            () = sleep_until(next.unwrap_or(last)), if next.is_some_and(|next| next > Instant::now()) => {}
            () = maker.is_due() => {}
        }
        if next.is_some_and(|next| next > Instant::now()) {
            continue;
        }
        match maker.perform().await {
            Ok(Performed::Nothing) => {
                if last.elapsed() > PEACE {
                    writes = 0;
                }
                continue;
            }
            Ok(Performed::Written) => {}
            // Another client has written; the watch shows the change.
            Err(error) if error.is_conflict() || error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(why = chain(&error), "the login of the registry in the cluster could not be stored");
            }
        }
        (writes, last) = (writes + 1, Instant::now());
    }
}

/// Optional keys of the default Secret, for registries with TLS, or with one login per namespace.
const OPTIONAL: [&str; 2] = ["ca.crt", "namespaceKey"];

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Performed {
    /// No write was needed.
    Nothing,
    /// An object was written.
    Written,
}

struct Maker<'a> {
    cluster: &'a Cluster,
    kind: &'a Arc<Kind>,
    /// The Secret that requests a login.
    asking: Option<Value>,
    /// The default Secret, once listed; `Some(None)` if it does not exist.
    default: Option<Option<Value>>,
    /// When the next certificate is created or served.
    due: Option<Timestamp>,
}

impl Maker<'_> {
    fn observe_asking(&mut self, change: Change<()>) {
        match change {
            Change::Changed { live, .. } => self.asking = Some(live),
            Change::Gone { .. } => self.asking = None,
            Change::Unreadable { .. } | Change::Complete { .. } | Change::Failed(_) | Change::Resumed => {}
        }
    }

    fn observe_default(&mut self, change: Change<()>) {
        match change {
            Change::Changed { live, .. } => self.default = Some(Some(live)),
            Change::Gone { .. } => self.default = Some(None),
            Change::Complete { .. } => _ = self.default.get_or_insert(None),
            Change::Unreadable { .. } | Change::Failed(_) | Change::Resumed => {}
        }
    }

    /// Waits until a certificate is due.
    async fn is_due(&self) {
        let Some(due) = self.due else { return std::future::pending().await };
        let wait = Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default();
        sleep(wait.clamp(Duration::from_secs(1), LOOK_EVERY)).await;
    }

    async fn perform(&mut self) -> Result<Performed, Error> {
        let Some(asking) = self.asking.as_ref().filter(|asking| asking["metadata"]["deletionTimestamp"].is_null())
        else {
            return Ok(Performed::Nothing);
        };
        let registry = match InternalRegistry::read(asking) {
            Ok(registry) => registry,
            Err(problem) => {
                let name = asking["metadata"]["name"].as_str().unwrap_or_default();
                tracing::warn!(secret = name, %problem, "no login for the registry in the cluster");
                return Ok(Performed::Nothing);
            }
        };
        let (missing, authorities) = match lacking(&registry, asking) {
            Ok(Lacking { data, authorities, due }) => {
                self.due = due;
                (data, authorities)
            }
            Err(why) => {
                tracing::error!(why, "no login or certificate is made for the registry in the cluster");
                return Ok(Performed::Nothing);
            }
        };
        if !missing.is_empty() {
            let Some((namespace, name)) = name_of(asking) else { return Ok(Performed::Nothing) };
            let version = &asking["metadata"]["resourceVersion"];
            let patch = json!({"metadata": {"resourceVersion": version}, "data": missing});
            self.cluster.patch_merge(self.kind, Some(&namespace), &name, Part::Main, &patch).await?;
            tracing::info!(secret = name, "made a login or a certificate for the registry in the cluster");
            // The watch shows the written Secret.
            return Ok(Performed::Written);
        }
        let (Some(live), Some(wanted)) = (&self.default, registry.default_secret(asking, authorities.as_deref()))
        else {
            return Ok(Performed::Nothing);
        };
        let is_ours = |live: &Value| {
            let entries = live["metadata"]["managedFields"].as_array();
            entries.into_iter().flatten().any(|e| e["manager"] == AGENT_MANAGER && e["operation"] == "Apply")
        };
        if live.as_ref().is_some_and(|live| {
            !is_ours(live)
                || (holds(live, &wanted) && OPTIONAL.iter().all(|key| live["data"][key] == wanted["data"][key]))
        }) {
            return Ok(Performed::Nothing);
        }
        let namespace = wanted["metadata"]["namespace"].as_str();
        // If the default Secret exists, it is Mainstay's own, and its fields are reverted. If another client has
        // created a Secret in the meantime, that Secret is not changed.
        let how = if live.is_some() { Apply::forced(AGENT_MANAGER) } else { Apply::unforced(AGENT_MANAGER) };
        let stored = self.cluster.apply(self.kind, namespace, DEFAULT_REGISTRY_SECRET, &wanted, how).await?;
        self.default = Some(Some(stored));
        Ok(Performed::Written)
    }
}

/// The changes to the Secret that requests a login.
struct Lacking {
    /// The new data of the Secret. Null removes a key.
    data: BTreeMap<&'static str, Value>,
    /// The CAs for builds, in PEM format; `None` for plain HTTP.
    authorities: Option<String>,
    /// Time of the next change.
    due: Option<Timestamp>,
}

/// Determines the missing data of the Secret, and creates them.
fn lacking(registry: &InternalRegistry, asking: &Value) -> Result<Lacking, String> {
    let mut seed = [0; SEED_BYTES];
    SystemRandom::new().fill(&mut seed).map_err(|_| "the system provides no random numbers".to_owned())?;
    let login = registry.missing(&Secret::new(seed));
    let mut data: BTreeMap<_, _> = login.into_iter().map(|(key, value)| (key, json!(value))).collect();
    let Some(names) = registry.names() else { return Ok(Lacking { data, authorities: None, due: None }) };
    let now = Timestamp::now();
    let stored: BTreeMap<String, ByteString> = serde_json::from_value(asking["data"].clone()).unwrap_or_default();
    let stored = stored.into_iter().map(|(key, value)| (key, value.0)).collect();
    let kept = Certificates::read(&stored);
    let (certificates, due) = kept.clone().renewed("mainstay registry", &names, Usage::Server, LIFETIMES, now)?;
    if certificates != kept {
        let wanted = certificates.write();
        data.extend(KEYS.map(|key| {
            (key, wanted.get(key).map_or(Value::Null, |text| BASE64_STANDARD.encode(text.expose()).into()))
        }));
    }
    Ok(Lacking { data, authorities: Some(certificates.bundle(now)), due: Some(due) })
}

/// Returns whether an object has all wanted fields.
fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| live.get(name).is_some_and(|live| holds(live, wanted)))
        }
        (live, wanted) => live == wanted,
    }
}
