//! The task of one APIRule. The task writes the desired objects and reports the outcome in the status.
//!
//! Invariant: while an APIRule is invalid or another owner holds its host, its last valid version stays in effect, as
//! long as the URLs of that version are permitted. After a restart, that version is unknown. In that case, the objects
//! of an APIRule with a forbidden target are deleted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::checks::Failure;
use super::context::Context;
use super::decide::{guard_as_long_as_routed, made_elsewhere, not_served, outcome, virtual_service, worst};
use super::guarded;
use super::known::{Facts, Full};
use super::perform::{Objects, place};
use super::refusals::{FAR, NotDone};
use super::report::Reporter;
use super::resolve::{Identity, Resolved, identity, is_still_permitted, resolve};
use super::routes::{Routes, build};
use super::served::{Means, Served};
use super::services::Services;
use super::status::{Elsewhere, Outcome};
use super::workload::Workloads;
use mainstay_api::ApiRule;
use mainstay_object::Owner;
use mainstay_object::failure::{Class, caught};

/// The newest state of one APIRule; `None` after its deletion.
pub type Input = watch::Receiver<Option<Arc<ApiRule>>>;

/// Serves one APIRule until it is deleted or `stop` is cancelled.
pub async fn run(context: Arc<Context>, namespace: String, name: String, mut input: Input, stop: CancellationToken) {
    let owner = Owner::api_rule(&namespace, &name);
    let notify = context.enter(&owner);
    let mut task = Task {
        good: None,
        services: Services::default(),
        objects: Objects::new(Arc::clone(&context), owner.clone()),
        reporter: Reporter::new(Arc::clone(&context), owner.clone()),
        context: Arc::clone(&context),
        owner,
    };
    loop {
        let Some(rule) = input.borrow_and_update().clone() else { break };
        let turn: std::pin::Pin<Box<dyn Future<Output = Duration> + Send + '_>> = Box::pin(task.reconcile(&rule));
        let again = tokio::select! {
            () = stop.cancelled() => return,
            done = caught(context.liveness.track(turn)) => done,
        };
        let wait = again.unwrap_or_else(|panicked| {
            tracing::error!(apirule = task.owner.resource().as_str(), why = panicked.to_string(), "not reconciled");
            task.objects.refusals.failures.add(Class::Bug, None, fastrand::f64())
        });
        tokio::select! {
            () = stop.cancelled() => return,
            changed = input.changed() => if changed.is_err() { return },
            () = notify.notified() => {}
            () = sleep_until((Instant::now() + wait).into()) => {}
        }
    }
    context.leave(&task.owner);
}

struct Task {
    context: Arc<Context>,
    owner: Owner,
    /// The last valid version.
    good: Option<Resolved>,
    /// The Services that the policies need.
    services: Services,
    objects: Objects,
    reporter: Reporter,
}

/// The outcome of a reconcile, and when to reconcile again at the latest.
struct Attempt {
    outcome: Outcome,
    wait: Duration,
}

impl Attempt {
    fn of(outcome: Outcome) -> Self {
        Self { outcome, wait: FAR }
    }

    fn not_written(NotDone { why, wait }: NotDone) -> Self {
        Self { outcome: Outcome::NotWritten(why), wait }
    }

    /// Limits the wait.
    fn within(self, wait: Duration) -> Self {
        Self { wait: self.wait.min(wait), ..self }
    }
}

impl Task {
    /// Reconciles the APIRule. Returns the wait before the next attempt.
    async fn reconcile(&mut self, rule: &ApiRule) -> Duration {
        // The garbage collector deletes the objects of a deleted APIRule.
        if rule.metadata.deletion_timestamp.is_some() {
            return FAR;
        }
        let Some(attempt) = self.attempt(rule).await else { return FAR };
        match self.reporter.report(rule, &attempt.outcome).await {
            Ok(()) => attempt.wait,
            Err(wait) => attempt.wait.min(wait),
        }
    }

    async fn attempt(&mut self, rule: &ApiRule) -> Option<Attempt> {
        let means = match self.context.facts() {
            Facts::NotYet => return None,
            Facts::Failing(why) => return Some(Attempt::of(Outcome::Unreadable(why))),
            Facts::Known(means) => means,
        };
        let identity = identity(rule);
        let children = self.context.children(&self.owner, &identity.uid);
        if let Some(child) = made_elsewhere(&children) {
            self.give_up();
            let left = self.objects.prune(&identity, &[]).await;
            let wait = left.map_or_else(|refused| refused.wait, |()| FAR);
            return Some(Attempt { outcome: Outcome::ManagedElsewhere(Elsewhere::Made(child)), wait });
        }
        if self.reporter.reported.is_elsewhere(rule) {
            // The other controller may use the objects that this agent created.
            self.objects.forget();
            return Some(Attempt::of(Outcome::ManagedElsewhere(Elsewhere::Reported)));
        }
        let Some((means, served)) = means else {
            self.give_up();
            return Some(Attempt::of(Outcome::NoRouteApi));
        };
        let problem = self.resolve(rule, &identity, means, !children.is_empty());
        let Some(good) = self.good.clone() else {
            let (outcome, is_forbidden) = problem?;
            let left = if is_forbidden { self.objects.prune(&identity, &[]).await } else { Ok(()) };
            return Some(Attempt { outcome, wait: left.map_or_else(|refused| refused.wait, |()| FAR) });
        };
        let attempt = self.serve(&good, means, &served).await;
        Some(match problem {
            Some((outcome, _)) => Attempt { outcome, wait: attempt.wait },
            None => attempt,
        })
    }

    /// Stops serving: forgets the last valid version and the written objects, and releases all hosts.
    fn give_up(&mut self) {
        self.good = None;
        self.objects.forget();
        self.context.withdraw(&self.owner);
        self.context.release(&self.owner);
        self.context.keep_only(&self.owner, None);
    }

    /// Makes this version the served one if it is valid and its host is free. Otherwise returns the outcome.
    /// `is_served` is whether another version is served. The second returned value is whether the target is forbidden
    /// and no valid version is known.
    fn resolve(
        &mut self,
        rule: &ApiRule,
        identity: &Identity,
        means: Means,
        is_served: bool,
    ) -> Option<(Outcome, bool)> {
        let (context, owner, uid) = (&self.context, &self.owner, &identity.uid);
        let is_occupied = |host: &str| context.is_occupied(owner, uid, identity.created, host);
        let is_namespace = |name: &str| context.has_services(name);
        let occupied = Failure::occupied(identity.is_newer);
        let failures = match resolve(rule, &context.settings, &is_namespace, is_occupied) {
            Ok(resolved) => match self.take(&resolved, means) {
                None => {
                    self.good = Some(resolved);
                    return None;
                }
                Some(failure) => vec![failure],
            },
            Err(failures) => failures,
        };
        // URLs of the last valid version may no longer be permitted.
        self.good.take_if(|good| !is_still_permitted(good, &context.settings, &is_namespace));
        if self.good.is_none() {
            context.release(owner);
        }
        let is_forbidden = self.good.is_none() && failures.iter().any(Failure::is_forbidden);
        let outcome = not_served(&failures, &occupied, is_served && !is_forbidden);
        if !matches!(outcome, Outcome::Occupied(..)) {
            context.withdraw(owner);
        }
        Some((outcome, is_forbidden))
    }

    /// Takes the host, and room for the paths that Oathkeeper guards. Returns why this fails.
    fn take(&self, resolved: &Resolved, means: Means) -> Option<Failure> {
        let Identity { uid, namespace, is_newer, .. } = &resolved.identity;
        let paths = if means == Means::Oathkeeper { guarded::count(resolved) } else { 0 };
        match self.context.take(&self.owner, uid, resolved.host.as_str(), paths).err()? {
            Full::Host => Some(Failure::occupied(*is_newer)),
            Full::Namespace(others) => Some(Failure::new(".spec.rules", guarded::message(paths, others, namespace))),
        }
    }

    /// Writes the desired objects.
    async fn serve(&mut self, good: &Resolved, means: Means, served: &Served) -> Attempt {
        let workloads = match self.services.workloads(&self.context, good, means, self.objects.clock()).await {
            Ok(workloads) => workloads,
            Err(NotDone { why, wait }) => return Attempt { outcome: Outcome::Unreadable(why), wait },
        };
        let services = good.rules.iter().map(|rule| rule.service().to_owned()).collect();
        let no_targets = self.context.no_targets(&self.owner, services);
        let Routes { mut children, problem } = build(good, means, served.features, &workloads, &no_targets);
        let route = virtual_service(&children).and_then(|route| self.context.seen(&place(good, route)));
        let whose = (&self.owner, good.identity.uid.as_str());
        guard_as_long_as_routed(&mut children, route.as_ref(), whose, &served.kind.api_version());
        self.objects.refusals.keep(|request| request.is_of(&children));
        let guarded = self.objects.guard(good, &children).await;
        if guarded.is_err() {
            // Routes that need a check are excluded, as if the pods had no proxy. Existing policies stay.
            let bare = build(good, means, served.features, &Workloads::default(), &no_targets).children;
            children.retain(|child| child.kind.guards());
            children.extend(bare);
        }
        let wait = match (self.objects.route(good, &children).await, &guarded) {
            (Ok(wait), _) => wait,
            (Err(failed), Ok(())) => return Attempt::not_written(failed),
            (Err(failed), Err(unguarded)) => return Attempt::not_written(failed).within(unguarded.wait),
        };
        self.context.keep_only(&self.owner, Some(good.host.as_str()));
        if let Err(unguarded) = guarded {
            let failed = unguarded.with("; until then, no path that asks for a token is routed");
            return Attempt::not_written(failed).within(wait);
        }
        self.objects.refusals.clear();
        let verdicts = children.iter().map(|child| self.context.seen(&place(good, child)).map(|seen| seen.verdict));
        Attempt { outcome: outcome(good.host.as_str(), problem, worst(verdicts), no_targets), wait }
    }
}
