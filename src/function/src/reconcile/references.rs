//! The references of a Function: its Secrets, its ServiceBindingUsages and its GitRepository.

use crate::Settings;
use crate::bindings::{Bound, Taken};
use crate::child_set::Children;
use crate::child_state::{Job, Progress};
use crate::credentials::{self, Credentials};
use crate::refusals::RefusedWrite;
use crate::resolve::BoundSecret;
use crate::stage::{RetryCause, RetryNow};
use mainstay_api::Function;
use mainstay_api::git_repository::{GitRepositorySpec, PinnedHostKey};
use mainstay_cluster::Error;
use mainstay_cluster::secrets::Purpose;

use super::Task;

impl Task {
    /// Follows the Secrets that the settings reference.
    pub(super) fn follow_secrets(&mut self, settings: &Settings) {
        for (followed, name) in self.secrets.iter_mut().zip(settings.secrets()) {
            if followed.of().1 != name {
                *followed = self.context.secrets.follow(&self.namespace, name, Purpose::ImageRegistry);
            }
        }
    }

    /// Updates the Secrets that ServiceBindingUsages bind to the Function.
    pub(super) fn follow_bindings(&mut self, name: &str, function: &Function) {
        let labels = function.spec.labels.iter().flatten().map(|(key, _)| key);
        self.bound = self.context.bindings.of(&self.namespace, name, labels);
    }

    /// Returns the bound Secrets that the code may read, and reports the refused ones.
    pub(super) fn take_bound(&self, credentials: &Credentials) -> Vec<BoundSecret> {
        let refusal = |bound: &Bound| credentials.refusal_of_bound(&bound.secret);
        let judge = |bound: &Bound| (bound.clone(), refusal(bound).map_or(Taken::Bound, Taken::Refused));
        let taken: Vec<(Bound, Taken)> = self.bound.iter().map(judge).collect();
        let allowed = taken.iter().filter(|(_, taken)| *taken == Taken::Bound);
        let secrets = allowed
            .map(|(bound, _)| BoundSecret { prefix: bound.prefix.clone(), secret: bound.secret.clone() })
            .collect();
        self.context.bindings.taken(&self.namespace, self.owner.resource().name(), taken);
        secrets
    }

    /// Returns the GitRepository of a Git Function and its pinned host keys. Fails if its existence is unknown.
    pub(super) fn repository_of(
        &self,
        function: &Function,
    ) -> Result<Option<(GitRepositorySpec, Vec<PinnedHostKey>)>, String> {
        let is_git = function.spec.kind.as_deref() == Some("git") && function.spec.own_repository().is_none();
        let Some(source) = Some(function.spec.source.trim()).filter(|_| is_git) else { return Ok(None) };
        let repositories = &self.context.repositories;
        match (repositories.get(&self.namespace, source), repositories.problem(&self.namespace, source)) {
            (Some(repository), _) => {
                let pinned = repository.status.as_ref().map(|status| status.pinned_host_keys.clone());
                Ok(Some((repository.spec.clone(), pinned.unwrap_or_default())))
            }
            (None, Some(why)) => Err(why),
            (None, None) => Ok(None),
        }
    }

    /// Returns the Secrets that the Function's code and its own repository must not use, if the Function references
    /// Secrets at all. Fails if these Secrets are unknown.
    pub(super) fn credentials_for(&self, function: &Function) -> Result<Credentials, String> {
        let (settings, repositories) = (self.context.settings(), &self.context.repositories);
        if credentials::named(&function.spec).next().is_none() && self.bound.is_empty() {
            return Ok(Credentials::default());
        }
        if let Some(why) = repositories.unknown() {
            return Err(format!("GitRepositories cannot be read: {why}"));
        }
        if let Some(name) = repositories.unreadable_in(&self.namespace) {
            return Err(format!("GitRepository {name} cannot be read"));
        }
        let registered = self.context.secrets.purposes(&self.namespace);
        let registered = registered.map_err(|referrer| format!("{} have not been listed yet", referrer.plural()))?;
        let all = repositories.in_namespace(&self.namespace);
        let of_repositories = Credentials::new(&settings, all.iter().map(|repository| &repository.spec));
        Ok(of_repositories.and_registered(registered))
    }

    /// Adds the referenced Secrets that are credentials according to their own metadata.
    pub(super) async fn all_credentials(
        &mut self,
        function: &Function,
        by_name: &Result<Credentials, String>,
    ) -> Result<Credentials, String> {
        let cluster = self.context.writer.cluster();
        let by_name = by_name.as_ref().map_err(Clone::clone)?;
        let found = self.named_secrets.look(cluster, &self.namespace, &function.spec, &self.bound).await;
        self.state.missing_secrets.clone_from(self.named_secrets.missing());
        let unread = |(name, error): (String, Error)| format!("Secret {name} cannot be read: {}", error.cause_text());
        found.map(|found| by_name.clone().and(found)).map_err(unread)
    }

    /// Retries a failed build immediately after a change that may fix the cause. A running build that fails later is
    /// retried as well.
    pub(super) fn note_credentials(&mut self, children: &Children, changed: bool) {
        let known = self.secrets.iter().chain(self.polling.secrets()).map(|secret| secret.taken().clone());
        let known = known.collect::<Vec<_>>();
        let first = self.credentials.is_empty();
        let differ = std::mem::replace(&mut self.credentials, known) != self.credentials;
        if differ || changed {
            // The refused write may succeed now.
            self.state.refused.iter_mut().for_each(RefusedWrite::reset_backoff);
        }
        if !first && (differ || changed) {
            // A running build started with the old credentials and may fail because of these.
            let may_fail = |job: &&Job| match job.progress {
                Progress::Failed { .. } => true,
                Progress::Running => differ,
                Progress::Complete => false,
            };
            let newest = children.jobs.iter().filter(may_fail).max_by_key(|job| (job.created, job.attempt));
            let cause = if differ { RetryCause::Credentials } else { RetryCause::Spec };
            self.state.retry_now = newest.map(|job| RetryNow { job: job.identity.name.clone(), cause });
        }
    }
}
