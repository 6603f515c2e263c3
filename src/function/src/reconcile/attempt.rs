//! One reconcile of a Function: it validates the spec, reads the registry and the source, decides, and performs the
//! decision.

use std::time::Duration;

use crate::build_queue::Admission;
use crate::child_kind::ChildKind;
use crate::child_set::Children;
use crate::context::no_memory;
use crate::credentials::Credentials;
use crate::flavour::Flavour;
use crate::knative_presence::Presence;
use crate::polling::Source;
use crate::registry::{self, ImageRef, SecretData};
use crate::resolve::{ResolvedFunction, reason, resolve, text};
use crate::stage::{self, ConditionUpdate, Decision, Observed, Resolved};
use crate::status::Reconciled;
use crate::{Settings, perform, repository, tag};
use mainstay_api::Function;
use mainstay_api::function_conditions::Reason;
use mainstay_cluster::secrets::Purpose;

use super::{Task, not_ready};

impl Task {
    pub(super) async fn attempt(
        &mut self,
        function: &Function,
        credentials: &Result<Credentials, String>,
        changed: bool,
    ) -> Reconciled {
        // Settings may change at any time. One reconcile uses the same settings throughout.
        let settings = self.context.settings();
        let (spec, withheld) = match self.resolved(function, credentials, &settings).await {
            Ok(resolved) => resolved,
            Err(refusal) => return Reconciled { updates: vec![refusal], ..Reconciled::default() },
        };
        let (runtime, warnings) = (Some(spec.runtime.name.to_owned()), Some(spec.warnings.clone()));
        let carried_out = self.carry_out(&spec, withheld, &settings, changed).await;
        let reconciled =
            carried_out.unwrap_or_else(|refusal| Reconciled { updates: vec![refusal], ..Reconciled::default() });
        Reconciled { runtime, warnings, ..reconciled }
    }

    /// Returns the valid Function. If its code must not read a Secret, returns the Function without that Secret, and the
    /// reason.
    async fn resolved(
        &mut self,
        function: &Function,
        credentials: &Result<Credentials, String>,
        settings: &Settings,
    ) -> Result<(ResolvedFunction, Option<ConditionUpdate>), ConditionUpdate> {
        if let Some(bytes) = self.context.refused(&self.owner) {
            self.context.cache.withdraw(&self.owner);
            return Err(not_ready(Reason::SourceTooLarge, no_memory(bytes)));
        }
        let credentials = match self.all_credentials(function, credentials).await {
            Ok(credentials) => credentials,
            Err(why) => {
                self.requeue_within(Duration::from_secs(10));
                let place = if function.spec.own_secret().is_some() { "its spec" } else { "spec.env" };
                let unknown = format!("it is unknown which Secrets in {place} hold credentials");
                return Err(not_ready(Reason::SourceUpdateFailed, format!("{unknown}: {why}")));
            }
        };
        self.follow_secrets(settings);
        let bound_secrets = self.take_bound(&credentials);
        let (mut spec, withheld) = match resolve(function, settings, &credentials) {
            Ok(spec) => (spec, None),
            Err(violations) => {
                let why = not_ready(reason(&violations), text(&violations));
                // Pods that start later must not read a Secret that has become a credential.
                let rest = credentials.without_withheld(function).filter(|_| self.serves());
                let Some(spec) = rest.and_then(|rest| resolve(&rest, settings, &credentials).ok()) else {
                    self.context.cache.withdraw(&self.owner);
                    return Err(why);
                };
                (spec, Some(why))
            }
        };
        self.uses_knative = spec.flavour == Flavour::Knative || self.status.serving.is_some();
        if self.uses_knative {
            self.context.cache.knative().set_used();
        }
        spec.bound_secrets = bound_secrets;
        let (cache, namespace, uid) = (&self.context.cache, &self.namespace, &self.uid);
        self.pod_secrets.restore(|| cache.children(namespace, uid).recorded_secrets(spec.flavour));
        spec.secrets_digest = match self.pod_secrets.digest(&self.context.secrets, &spec).await {
            Ok(digest) => digest,
            Err(why) => {
                self.requeue_within(Duration::from_secs(10));
                return Err(not_ready(Reason::SourceUpdateFailed, why));
            }
        };
        Ok((spec, withheld))
    }

    /// Reads the registry and the source, decides, and performs the decision.
    async fn carry_out(
        &mut self,
        spec: &ResolvedFunction,
        withheld: Option<ConditionUpdate>,
        settings: &Settings,
        changed: bool,
    ) -> Result<Reconciled, ConditionUpdate> {
        let [external, default, packages] = &mut self.secrets;
        let (external, default, _) = tokio::join!(external.known(), default.known(), packages.known());
        let repository = match repository::choose(settings, &external, &default, spec) {
            Ok(repository) => repository,
            Err(why) => {
                self.context.cache.withdraw(&self.owner);
                self.polling.set_remote(&self.context, spec).await;
                return Err(not_ready(Reason::RegistryNotConfigured, why));
            }
        };
        let children = self.context.cache.children(&self.namespace, &self.uid);
        let source = match self.polling.source(&self.context, spec, &children).await {
            Ok(source) => source,
            Err(unread) => {
                self.context.cache.withdraw(&self.owner);
                return Err(not_ready(unread.reason, unread.message));
            }
        };
        self.note_credentials(&children, changed);
        let (tree, access) = match &source {
            Source::Inline => (None, None),
            Source::Git(found) => (Some(&found.0), Some(&found.1)),
        };
        let content = tree.map(crate::git::Tree::content);
        let since = tag::resolved_since(&spec.base, settings, jiff::Timestamp::now());
        let recipe = tag::recipe(spec, content.as_deref(), &settings.platform, since);
        let repository = repository.keeping(self.status.built.as_ref(), &recipe, spec);
        let git = tree.zip(access);
        let resolved = Resolved { function: spec, recipe: &recipe, repository: &repository, git, settings };
        let mut decision = self.decide_in_turn(&resolved, &children);
        self.attribute(&mut decision, tree.is_some(), withheld);
        // Boxed, so that reconciles that wait for their source use less memory.
        let outcome = Box::pin(self.perform(&decision)).await;
        let data = external.data().or(default.data());
        self.await_registry(&decision, &repository.push, data).await;
        let source = tree.map(|tree| (tree.commit.clone(), tree.tree.clone()));
        let Reconciled { record, updates, confirmed, .. } = outcome.reconciled;
        Ok(Reconciled { updates, confirmed, record, source, ..Reconciled::default() })
    }

    /// Decides. A Function that must build enters the queue of builds.
    fn decide_in_turn(&self, resolved: &Resolved<'_>, children: &Children) -> Decision {
        let cache = &self.context.cache;
        let admission = cache.admission(&self.owner);
        let decision = self.decide(resolved, children, admission);
        if decision.in_queue && admission == Admission::Absent {
            return self.decide(resolved, children, cache.enqueue(&self.owner, &self.namespace));
        }
        decision
    }

    fn decide(&self, resolved: &Resolved<'_>, children: &Children, admission: Admission) -> Decision {
        let writer = &self.context.writer;
        let knative = self.context.cache.knative().presence().borrow().clone();
        if knative == Presence::Absent {
            // Without Knative, the Knative Service cannot be reverted.
            let kind = ChildKind::KnativeService.kind();
            writer.remove(&self.owner, &kind.key(Some(&self.namespace), &resolved.function.name));
        }
        let observed = Observed {
            knative: &knative,
            children,
            status: &self.status,
            kept: &|key| writer.kept_source(&self.owner, key),
            may_rest: &|name| writer.may_rest(&ChildKind::Deployment.kind().key(Some(&self.namespace), name)),
            admission,
            must_yield: &|job| self.context.cache.must_yield(job),
            state: &self.state,
        };
        stage::decide(resolved, &observed, self.context.now())
    }

    /// Adds what else prevents the spec from taking effect to the conditions of a decision.
    fn attribute(&self, decision: &mut Decision, is_git: bool, withheld: Option<ConditionUpdate>) {
        if let Some(unread) = self.polling.unread().filter(|_| is_git) {
            decision.attribute(not_ready(unread.reason, &unread.message));
        }
        if let Some(withheld) = withheld {
            decision.attribute(withheld);
        }
        for update in self.not_put_back.iter().filter_map(|(key, why)| perform::not_put_back(key, why)) {
            decision.attribute(update);
        }
    }

    /// Waits for the registry if a build failed because of it and the operator owns the registry.
    async fn await_registry(&mut self, decision: &Decision, repository: &str, data: Option<&SecretData>) {
        let (Some(job), Some(data)) = (&decision.waits_for_registry, data) else {
            self.registry.0 = None;
            if decision.record.building.is_none() {
                self.registry.1 = 0;
            }
            return;
        };
        if self.registry.0.as_ref().is_some_and(|waiting| waiting.job() == job) {
            return;
        }
        let (context, settings) = (&self.context, self.context.settings());
        let (namespace, name) = (&context.own_namespace, &settings.default_registry_secret);
        let operators = context.secrets.follow(namespace, name, Purpose::ImageRegistry).known().await;
        let chosen = registry::choose(None, operators.data()).ok();
        let image = format!("{repository}:latest").parse::<ImageRef>().ok();
        let is_operators = |image: &ImageRef| chosen.is_some_and(|chosen| chosen.push.host() == image.registry);
        let waits = &context.registry_waits;
        self.registry.0 = image.filter(is_operators).map(|image| waits.wait(&image, data, job, self.registry.1));
    }

    /// Whether the Function has serving children.
    fn serves(&self) -> bool {
        let children = self.context.cache.children(&self.namespace, &self.uid);
        !(children.deployments.is_empty() && children.knative_services.is_empty())
    }
}
