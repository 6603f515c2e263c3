//! Writes the results of usages: the status, and the owner reference to the binding.
//!
//! Invariant: failures back off. A change triggers a retry, but at most every few seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::bound::Name;
use super::context::Bindings;
use super::decide::Failure;
use super::status;
use super::task::Task;
use super::usage::Usage;
use mainstay_api::Function;
use mainstay_api::names::BINDINGS_MANAGER;
use mainstay_cluster::{Apply, Cluster, Error, Kind, Part};
use mainstay_object::failure::{Backoff, caught, chain};

const RETRY: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(120));
const FAR: Duration = Duration::from_secs(86_400);
/// Minimum time between two attempts after a failure.
const LEAST: Duration = Duration::from_secs(5);

/// Reconciles usages until `stop`.
pub async fn run(bindings: Arc<Bindings>, cluster: Cluster, stop: CancellationToken) {
    let mut running = Running { bindings, cluster, failures: HashMap::new(), due: HashMap::new() };
    stop.run_until_cancelled(running.run()).await;
}

struct Running {
    bindings: Arc<Bindings>,
    cluster: Cluster,
    /// Number of consecutive failures of each usage, and the time of the last failure.
    failures: HashMap<Name, (u32, Instant)>,
    /// When to reconcile a usage again.
    due: HashMap<Name, Instant>,
}

impl Running {
    async fn run(&mut self) {
        let bindings = Arc::clone(&self.bindings);
        loop {
            let now = Instant::now();
            let mut names = bindings.take_dirty();
            names.retain(|name| self.is_ripe(name, now));
            names.extend(self.due.iter().filter(|(_, due)| **due <= now).map(|(name, _)| name.clone()));
            if names.is_empty() {
                let next = self.due.values().min().copied().unwrap_or(now + FAR);
                tokio::select! {
                    () = bindings.changed.notified() => {}
                    () = sleep_until(next.into()) => {}
                }
                continue;
            }
            for name in names {
                self.due.remove(&name);
                match caught(bindings.liveness.track(self.reconcile(&name))).await {
                    Ok(Ok(wait)) => {
                        self.failures.remove(&name);
                        if let Some(wait) = wait {
                            self.due.insert(name, Instant::now() + wait);
                        }
                    }
                    Ok(Err(error)) if error.is_not_found() => _ = self.failures.remove(&name),
                    Ok(Err(error)) => {
                        let (namespace, name_of) = (&name.0, &name.1);
                        tracing::warn!(
                            namespace,
                            usage = name_of,
                            why = chain(&error),
                            "ServiceBindingUsage not reported"
                        );
                        self.retry(name, error.retry_after());
                    }
                    Err(panicked) => {
                        tracing::error!(
                            usage = name.1,
                            why = panicked.to_string(),
                            "ServiceBindingUsage not reconciled"
                        );
                        self.retry(name, None);
                    }
                }
            }
        }
    }

    /// Whether a changed usage can be reconciled now. Otherwise schedules the reconcile.
    fn is_ripe(&mut self, name: &Name, now: Instant) -> bool {
        let Some(soon) = self.failures.get(name).map(|(_, last)| *last + LEAST).filter(|soon| *soon > now) else {
            return true;
        };
        let due = self.due.entry(name.clone()).or_insert(soon);
        *due = soon.min(*due);
        false
    }

    fn retry(&mut self, name: Name, at_least: Option<Duration>) {
        let now = Instant::now();
        let failures = self.failures.get(&name).map_or(1, |(failures, _)| failures.saturating_add(1));
        let wait = RETRY.jittered(failures, fastrand::f64()).max(at_least.unwrap_or_default());
        self.failures.insert(name.clone(), (failures, now));
        self.due.insert(name, now + wait);
    }

    /// Reconciles a usage. Returns when to reconcile it again at the latest.
    async fn reconcile(&self, name: &Name) -> Result<Option<Duration>, Error> {
        let now = Timestamp::now();
        match self.bindings.task(name, now) {
            Task::Nothing => {}
            Task::Wait(until) => {
                let wait = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                return Ok(Some(wait + Duration::from_millis(1)));
            }
            Task::Fail(usage, failure) => self.report(name, &usage, Err(&failure)).await?,
            Task::Find(usage, function) => {
                // The Function may exist although its task has not started yet.
                let functions = Kind::of::<Function>();
                if self.cluster.get_metadata(&functions, Some(&name.0), &function).await?.is_none() {
                    self.report(name, &usage, Err(&Failure::no_function(&function))).await?;
                }
            }
            Task::Succeed(usage, binding) => {
                if let Err(error) = self.own(name, &usage, &binding).await {
                    let failure = Failure::no_owner(error.cause_text());
                    self.report(name, &usage, Err(&failure)).await?;
                    return Err(error);
                }
                self.report(name, &usage, Ok(())).await?;
            }
        }
        Ok(None)
    }

    /// Sets the binding as an owner of the usage.
    async fn own(&self, (namespace, name): &Name, usage: &Usage, binding: &str) -> Result<(), Error> {
        let Some(kind) = self.bindings.kind().filter(|_| !usage.owners.iter().any(|owner| owner == binding)) else {
            return Ok(());
        };
        let owner = json!({
            "apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceBinding", "name": usage.binding, "uid": binding,
        });
        let body = json!({
            "apiVersion": kind.api_version(), "kind": &*kind.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": usage.uid, "ownerReferences": [owner]},
        });
        let how = Apply::forced(BINDINGS_MANAGER);
        self.cluster.apply(&kind, Some(namespace), name, &body, how).await.map(drop)
    }

    /// Writes the status if it changed.
    async fn report(&self, name: &Name, usage: &Usage, outcome: Result<(), &Failure>) -> Result<(), Error> {
        let Some(status) = status::after(usage, outcome, Timestamp::now()) else { return Ok(()) };
        let Some(kind) = self.bindings.kind() else { return Ok(()) };
        let part = if kind.has_status { Part::Status } else { Part::Main };
        let patch = json!({"metadata": {"uid": usage.uid}, "status": status});
        self.cluster.patch_merge(&kind, Some(&name.0), &name.1, part, &patch).await.map(drop)
    }
}
