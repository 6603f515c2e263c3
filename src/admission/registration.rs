//! Keeps the certificates in their Secret, and tells API servers whom to trust.
//!
//! [`follow`] is for every replica: it serves what the Secret holds. [`lead`] is for the leader: it makes and replaces
//! certificates, and writes their authorities into `caBundle` of the webhook configurations.
//!
//! Invariant: a certificate is served only after its authority has been in `caBundle` of all configurations for
//! [`Lifetimes::announced`], except the first one.
//! Invariant: the Secret is written only as it was read, so that two leaders do not overwrite each other's certificates.
//! Invariant: while nothing changes, nothing is requested but the watches.
//! Invariant: whoever keeps changing what is written here is answered ever less often.
//! Invariant: a definition of Function that names our webhook for its conversion is told the same way.
//! Invariant: only `caBundle` of a configuration is written, and no configuration is created: whoever deletes one switches its
//! webhooks off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures::StreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::certificate::{self, Certificates, Lifetimes, Step};
use super::hook::CONVERT;
use super::server::Admission;
use super::tls::certified;
use crate::api::names::{ADMISSION, ADMISSION_MANAGER, FUNCTION_DEFINITION};
use crate::cluster::{Apply, Cluster, Error, Kind, Scope, Selection, WatchEvent};
use crate::failure::{Backoff, chain};

/// Wait after something could not be written.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
/// Without a change by others for so long, nobody keeps changing anything.
const PEACE: Duration = Duration::from_secs(600);
/// Longest wait without a look, also where clocks are set.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

const GROUP: &str = "admissionregistration.k8s.io/v1";
const DEFINITIONS: &str = "apiextensions.k8s.io/v1";

/// Whom the certificates are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Names and addresses under which API servers reach the webhooks.
    pub names: Vec<String>,
    /// How long certificates hold.
    pub lifetimes: Lifetimes,
}

fn secrets() -> Arc<Kind> {
    Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced))
}

fn configurations() -> [Arc<Kind>; 2] {
    [
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ]
    .map(|(kind, plural)| Arc::new(Kind::fixed(GROUP, kind, plural, Scope::Cluster)))
}

fn definitions() -> Arc<Kind> {
    Arc::new(Kind::fixed(DEFINITIONS, "CustomResourceDefinition", "customresourcedefinitions", Scope::Cluster))
}

/// Serves the certificate of the Secret until `stop`. While the Secret cannot be read, the last known one is served.
pub async fn follow(admission: Arc<Admission>, cluster: Cluster, namespace: String, stop: CancellationToken) {
    let mut events = cluster.watch(&secrets(), Selection::named(Some(&namespace), ADMISSION));
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        if let WatchEvent::Initial(secret) | WatchEvent::Applied(secret) = event {
            let certificates = Certificates::read(&data_of(&secret));
            let current = certificates.current.as_ref();
            admission.served.set(current.and_then(|pair| certified(&pair.certificate, &pair.key)));
        }
    }
}

/// Makes certificates and announces their authorities until `stop`.
pub async fn lead(registration: Registration, cluster: Cluster, stop: CancellationToken) {
    let mut events = futures::stream::select_all(
        configurations()
            .iter()
            .map(|kind| cluster.watch(kind, Selection::named(None, ADMISSION)))
            .chain([cluster.watch(&definitions(), Selection::named(None, FUNCTION_DEFINITION))])
            .chain([cluster.watch(&secrets(), Selection::named(Some(&registration.namespace), ADMISSION))]),
    );
    // Failures in a row, and changes that were put back, with the time of the last one.
    let (mut failures, mut put_back, mut was_changed) = (0, (0, Instant::now()), false);
    loop {
        let wait = match advance(&registration, &cluster).await {
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
        let changed = async {
            loop {
                match events.next().await {
                    Some(WatchEvent::Initial(_) | WatchEvent::Applied(_) | WatchEvent::Deleted(_)) => return,
                    Some(_) => {}
                    None => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            // What fails is not tried again with each event, some of which are its own.
            () = changed, if failures == 0 => {
                was_changed = true;
                let (times, last) = put_back;
                if times > 0 && stop.run_until_cancelled(sleep_until(last + AGAIN.delay(times))).await.is_none() {
                    return;
                }
            }
            () = sleep(wait) => was_changed = false,
        }
    }
}

/// Does what is due; when there is more to do, and whether something was written.
async fn advance(registration: &Registration, cluster: &Cluster) -> Result<(Timestamp, bool), Error> {
    let mut has_written = false;
    loop {
        let secret = cluster.get(&secrets(), Some(&registration.namespace), ADMISSION).await?;
        let certificates = Certificates::read(&secret.as_ref().map(data_of).unwrap_or_default());
        let now = Timestamp::now();
        let step = certificates.step(&registration.names, registration.lifetimes, now);
        if matches!(step, Step::Promote | Step::Wait(_)) {
            has_written |= announce(cluster, &certificates.bundle(now)).await?;
        }
        if let Step::Wait(due) = step {
            return Ok((due, has_written));
        }
        let made = || match certificate::make(&registration.names, registration.lifetimes.valid, now) {
            Ok(pair) => Some(pair),
            Err(error) => {
                tracing::error!(why = error.to_string(), "no certificate can be made for the webhooks");
                None
            }
        };
        let Some(certificates) = certificates.after(step, made) else {
            return Ok((now.checked_add(LOOK_EVERY).unwrap_or(Timestamp::MAX), has_written));
        };
        store(registration, cluster, secret.as_ref(), &certificates).await?;
        has_written = true;
    }
}

/// Writes the Secret, if it still is the one that was read.
async fn store(
    registration: &Registration,
    cluster: &Cluster,
    read: Option<&Value>,
    certificates: &Certificates,
) -> Result<(), Error> {
    let encoded = certificates.write().into_iter().map(|(key, value)| (key, BASE64_STANDARD.encode(value.expose())));
    let mut body = json!({
        "apiVersion": "v1", "kind": "Secret", "data": encoded.collect::<BTreeMap<_, _>>(),
        "metadata": {
            "name": ADMISSION, "namespace": registration.namespace, "labels": {"app.kubernetes.io/name": "mainstay"},
        },
    });
    if let Some(read) = read {
        body["metadata"]["resourceVersion"] = read["metadata"]["resourceVersion"].clone();
    }
    let how = Apply::forced(ADMISSION_MANAGER);
    cluster.apply(&secrets(), Some(&registration.namespace), ADMISSION, &body, how).await?;
    Ok(())
}

/// Writes the bundle into the configurations that have another one; whether there was one.
async fn announce(cluster: &Cluster, bundle: &str) -> Result<bool, Error> {
    let mut has_written = false;
    let bundle = BASE64_STANDARD.encode(bundle);
    for kind in configurations() {
        let Some(live) = cluster.get(&kind, None, ADMISSION).await? else { continue };
        let webhooks: Vec<&Value> = live["webhooks"].as_array().into_iter().flatten().collect();
        if webhooks.iter().all(|webhook| webhook["clientConfig"]["caBundle"] == *bundle) {
            continue;
        }
        let webhooks: Vec<_> = webhooks
            .into_iter()
            .map(|webhook| json!({"name": webhook["name"], "clientConfig": {"caBundle": bundle}}))
            .collect();
        let body = json!({
            "apiVersion": GROUP, "kind": &*kind.kind, "webhooks": webhooks,
            // It is not created anew.
            "metadata": {"name": ADMISSION, "uid": live["metadata"]["uid"]},
        });
        cluster.apply(&kind, None, ADMISSION, &body, Apply::forced(ADMISSION_MANAGER)).await?;
        has_written = true;
        tracing::info!("{} {ADMISSION} trusts the certificates of the webhooks", kind.kind);
    }
    Ok(announce_conversion(cluster, &bundle).await? || has_written)
}

/// The same for the definition of Function, where it is converted by us: whoever converts it otherwise is left alone.
async fn announce_conversion(cluster: &Cluster, bundle: &str) -> Result<bool, Error> {
    let kind = definitions();
    let Some(live) = cluster.get(&kind, None, FUNCTION_DEFINITION).await? else { return Ok(false) };
    let client = &live["spec"]["conversion"]["webhook"]["clientConfig"];
    if !is_ours(client) || client["caBundle"] == *bundle {
        return Ok(false);
    }
    let body = json!({
        "apiVersion": DEFINITIONS, "kind": &*kind.kind,
        "metadata": {"name": FUNCTION_DEFINITION, "uid": live["metadata"]["uid"]},
        "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": bundle}}}},
    });
    cluster.apply(&kind, None, FUNCTION_DEFINITION, &body, Apply::forced(ADMISSION_MANAGER)).await?;
    tracing::info!("the definition {FUNCTION_DEFINITION} trusts the certificates of the webhooks");
    Ok(true)
}

/// Whether this is how an API server reaches us: by our Service, or by an address with our path.
fn is_ours(client: &Value) -> bool {
    let (service, url) = (&client["service"], client["url"].as_str().unwrap_or_default());
    service["name"] == ADMISSION && service["path"] == CONVERT || url.starts_with("https://") && url.ends_with(CONVERT)
}

/// The data of a Secret; keys that cannot be read are missing.
fn data_of(secret: &Value) -> BTreeMap<String, Vec<u8>> {
    let data = secret["data"].as_object().into_iter().flatten();
    data.filter_map(|(key, value)| Some((key.clone(), BASE64_STANDARD.decode(value.as_str()?).ok()?))).collect()
}
