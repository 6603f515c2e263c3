//! The task of one Receiver: watches its Secret and the sources that it names, serves the Receiver, and writes its
//! status.
//!
//! Invariant: a changed or deleted token takes effect before the status shows it.
//! Invariant: a status is written only when it changes; refused writes back off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::context::{BaseUrl, Context};
use super::resolve::{Problem, Resolved, resolve};
use super::sources::Sources;
use super::status;
use mainstay_api::Receiver;
use mainstay_api::conditions::Reason;
use mainstay_api::receiver::ReceiverStatus;
use mainstay_cluster::secrets::{Followed, Known, Purpose};
use mainstay_cluster::{Error, Kind, Part};
use mainstay_object::Owner;
use mainstay_object::failure::{Class, caught};

const FAR: Duration = Duration::from_secs(86_400);

/// The newest state of one Receiver; `None` once it is gone.
pub type Input = watch::Receiver<Option<Arc<Receiver>>>;

/// The kind of Receivers.
pub fn receivers() -> Kind {
    Kind::of::<Receiver>()
}

/// Serves one Receiver until it is gone or `stop` is cancelled.
pub async fn run(context: Arc<Context>, namespace: String, name: String, mut input: Input, stop: CancellationToken) {
    let owner = Owner::receiver(&namespace, &name);
    let mut secret: Option<Followed> = None;
    let mut written: Option<ReceiverStatus> = None;
    let mut failed_writes = 0;
    let mut changes = context.repositories.listen();
    loop {
        let Some(receiver) = input.borrow_and_update().clone() else { break };
        let named = receiver.spec.secret_ref.as_ref().map(|secret| (&*namespace, &*secret.name));
        if secret.as_ref().map(Followed::of) != named {
            secret = named.map(|(namespace, name)| context.secrets.follow(namespace, name, Purpose::Receiver));
        }
        changes.mark_unchanged();
        let missing = missing(&context, &receiver);
        let turn = async {
            let known = match &mut secret {
                Some(secret) => secret.known().await,
                None => Known::Nothing,
            };
            let resolved = resolve(&receiver, &known);
            context.set(&owner, resolved.clone().ok().filter(|_| context.served_at.is_some()));
            context.resolved(&owner);
            report(&context, &receiver, resolved, missing.as_deref(), &mut written).await
        };
        let again = tokio::select! {
            () = stop.cancelled() => return,
            reported = caught(context.liveness.track(turn)) => match reported {
                Err(panicked) => {
                    tracing::error!(receiver = owner.resource().as_str(), why = panicked.to_string(), "not reconciled");
                    failed_writes += 1;
                    Instant::now() + Class::Bug.status_delay(failed_writes, None, fastrand::f64())
                }
                Ok(Ok(())) => {
                    failed_writes = 0;
                    Instant::now() + FAR
                }
                Ok(Err(error)) => {
                    failed_writes += 1;
                    let delay = error.class().status_delay(failed_writes, error.retry_after(), fastrand::f64());
                    Instant::now() + delay
                }
            },
        };
        tokio::select! {
            () = stop.cancelled() => return,
            changed = input.changed() => if changed.is_err() { return },
            () = Followed::any_changed(secret.iter_mut()) => {}
            () = missing_changed(&context, &receiver, missing.as_ref(), &mut changes) => {}
            () = sleep_until(again.into()) => {}
        }
    }
    context.set(&owner, None);
    context.resolved(&owner);
}

/// Returns the objects that the Receiver names and that do not exist, with their kind if the spec has it; `None` while the
/// objects are unknown.
fn missing(context: &Context, receiver: &Receiver) -> Option<Vec<String>> {
    let namespace = receiver.metadata.namespace.as_deref().unwrap_or_default();
    if receiver.spec.resources.is_some() {
        // Without a valid spec, the status has another message.
        let Ok(sources) = Sources::of_spec(receiver) else { return Some(Vec::new()) };
        let absent = sources.named().map(|(kind, name)| {
            let exists = context.repositories.has(kind.registered(), namespace, name)?;
            Some((!exists).then(|| format!("{} {name}", kind.as_str())))
        });
        return Some(absent.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect());
    }
    context.repositories.missing(namespace, receiver.spec.repositories.as_deref().unwrap_or_default())
}

/// Waits until other sources are missing than in `known`.
async fn missing_changed(
    context: &Context,
    receiver: &Receiver,
    known: Option<&Vec<String>>,
    changes: &mut watch::Receiver<u64>,
) {
    while changes.changed().await.is_ok() {
        if missing(context, receiver).as_ref() != known {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Writes the status if it changed.
async fn report(
    context: &Context,
    receiver: &Receiver,
    resolved: Result<Resolved, Problem>,
    missing: Option<&[String]>,
    written: &mut Option<ReceiverStatus>,
) -> Result<(), Error> {
    let resolved = match (resolved, &context.served_at) {
        (Ok(_), None) => {
            let message = "this agent receives no deliveries: start it with --receive ADDR".to_owned();
            Err(Problem { reason: Reason::NotServed, message, is_stalled: false })
        }
        (resolved, _) => resolved,
    };
    let base = context.served_at.as_ref().and_then(BaseUrl::known);
    let old = written.clone().or_else(|| receiver.status.clone()).unwrap_or_default();
    let new = status::after(&old, resolved.as_ref(), missing, base, receiver.metadata.generation, Timestamp::now());
    if new == old {
        *written = Some(old);
        return Ok(());
    }
    let metadata = &receiver.metadata;
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref().unwrap_or_default());
    let patch = json!({"status": {
        "observedGeneration": new.observed_generation, "webhookPath": new.webhook_path, "url": new.url,
        "conditions": new.conditions,
    }});
    match context.cluster.patch_merge(&receivers(), namespace, name, Part::Status, &patch).await {
        Ok(_) => {
            *written = Some(new);
            Ok(())
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => {
            tracing::warn!(receiver = name, why = mainstay_object::failure::chain(&error), "status not written");
            Err(error)
        }
    }
}
