//! Decides when the remote of a Git Function is polled, and keeps the last result.
//!
//! Invariant: while Git cannot be read, the last result is used. Invariant: the remote is polled at its interval, on
//! request, and when a build found that its branch had moved. Otherwise the last result is used.
//!
//! Not here: access to Git; see `git`.

use std::time::{Duration, Instant};

use super::child_set::Children;
use super::child_state::{Job, Role};
use super::context::Context;
use super::git::{self, Access, GitLocation, SourceError, Tree};
use super::resolve::Origin;
use super::retry::Retry;
use super::{Code, ResolvedFunction};
use mainstay_api::build::{FailureReason, Termination};
use mainstay_api::function::FunctionStatus;
use mainstay_cluster::secrets::{Followed, RepositorySecrets};
use mainstay_git::{Commit, Consumer, ConsumerKind, Followed as FollowedRemote, LookupDue, Reference, Remote};
use mainstay_object::failure::{Class, jitter};

/// The source of a Function.
pub(super) enum Source {
    /// The source is inline.
    Inline,
    /// The source is in Git.
    Git(Box<(Tree, Access)>),
}

/// The state of polling one Function's remote.
pub(super) struct Polling {
    consumer: Consumer,
    /// The Secrets of the remote.
    secrets: RepositorySecrets,
    /// The remote, if known.
    remote: Option<Remote>,
    /// The last result.
    tree: Option<Tree>,
    /// The error of the last poll.
    unread: Option<SourceError>,
    retry: Retry,
    next: Instant,
    /// Time of the scheduled lookup after a push, or after another consumer found a newer commit.
    pushed: Option<LookupDue>,
    /// Time of the last push that has not been looked up yet.
    current_push: Option<Instant>,
    /// End of the server's `Retry-After`.
    not_before: Option<Instant>,
    /// Whether the next poll was requested, so that cached lookups are not used.
    anew: bool,
    /// The Job whose failure caused a poll, because its branch had moved.
    resolved_for: Option<String>,
}

impl Polling {
    /// Returns the state with the result in the status as the last result.
    pub(super) fn new(namespace: &str, name: &str, status: &FunctionStatus) -> Self {
        Self {
            secrets: RepositorySecrets::default(),
            remote: None,
            tree: git::last_resolved(namespace, status),
            consumer: Consumer::new(ConsumerKind::Function, namespace, name),
            unread: None,
            retry: Retry::default(),
            next: Instant::now(),
            pushed: None,
            current_push: None,
            not_before: None,
            anew: true,
            resolved_for: None,
        }
    }

    /// Requests a poll now.
    pub(super) fn poll_now(&mut self) {
        self.anew = true;
        self.next = Instant::now();
    }

    /// Starts a reconcile. A due push stays pending until a reconcile reaches the remote.
    pub(super) fn begin(&mut self) {
        let due = self.push_due().filter(|due| *due <= Instant::now());
        if let Some(due) = due.and_then(|_| self.pushed.take()).filter(|due| !due.is_known(self.commit())) {
            self.current_push = self.current_push.max(Some(due.after));
        }
    }

    /// Schedules a lookup after a push, or after another consumer found a commit that this Function does not know.
    pub(super) fn pushed(&mut self, due: Option<LookupDue>) {
        let due = due.filter(|due| !due.is_known(self.commit()));
        self.pushed = due.map(|due| due.and(self.pushed)).or(self.pushed);
    }

    /// Returns the newest known commit.
    fn commit(&self) -> Option<Commit> {
        self.tree.as_ref()?.head.parse().ok()
    }

    /// Returns when the scheduled lookup is due.
    fn push_due(&self) -> Option<Instant> {
        self.pushed.map(|due| due.at).max(self.not_before.filter(|_| self.pushed.is_some()))
    }

    /// Polls again after a change of the host keys. A failed poll may succeed with the new keys, and a pinned key may
    /// have become wrong.
    pub(super) fn host_keys_changed(&mut self) {
        if self.unread.is_some() || self.remote.as_ref().is_some_and(|remote| remote.pinned_host_key().is_some()) {
            self.poll_now();
        }
    }

    /// Returns the time of the next poll; `None` for an inline Function.
    pub(super) fn due(&self) -> Option<Instant> {
        let next = (self.tree.is_some() || self.unread.is_some()).then_some(self.next);
        next.into_iter().chain(self.push_due()).min()
    }

    /// Returns the error of the last poll.
    pub(super) fn unread(&self) -> Option<&SourceError> {
        self.unread.as_ref()
    }

    /// Returns the Secrets of the remote.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &Followed> {
        self.secrets.iter()
    }

    /// Returns the Secrets of the remote, to wait for their changes.
    pub(super) fn secrets_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.secrets.iter_mut()
    }

    /// Releases the remote after the Function's deletion.
    pub(super) fn end(&mut self, context: &Context) {
        (self.secrets, self.remote) = (RepositorySecrets::default(), None);
        context.source.set_remote(&self.consumer, None);
        context.pushes.set(&self.consumer, None);
    }

    /// Sets the remote that the Function uses, if it can be determined.
    pub(super) async fn set_remote(&mut self, context: &Context, function: &ResolvedFunction) {
        if let Some((location, origin)) = location(function)
            && let Ok((remote, _)) = git::remote(context, &mut self.secrets, &location.namespace, origin).await
        {
            self.uses(context, &remote, &location);
        }
    }

    fn uses(&self, context: &Context, remote: &Remote, location: &GitLocation) {
        context.source.set_remote(&self.consumer, Some(remote));
        let followed = Reference::parse(&location.reference).ok().map(|reference| FollowedRemote {
            repository: location.repository.clone(),
            url: remote.url.clone(),
            reference,
        });
        context.pushes.set(&self.consumer, followed);
    }

    /// Ends a reconcile. Marks the remote as resolved, unless a later attempt may still succeed.
    pub(super) fn attempted(&self, context: &Context) {
        let may_succeed_later = self.unread.as_ref().is_some_and(|unread| unread.class == Class::Unavailable);
        if !may_succeed_later && self.secrets.are_settled() {
            context.source.resolved(&self.consumer);
        }
    }

    /// Returns the source. For a Git Function, resolves the reference if a poll is due.
    pub(super) async fn source(
        &mut self,
        context: &Context,
        function: &ResolvedFunction,
        children: &Children,
    ) -> Result<Source, SourceError> {
        let Some((location, origin)) = location(function) else {
            self.end(context);
            (self.tree, self.unread) = (None, None);
            return Ok(Source::Inline);
        };
        self.tree = self.tree.take().filter(|tree| tree.location == location);
        let moved = moved(children).filter(|job| self.resolved_for.as_deref() != Some(&job.identity.uid));
        let found = match git::remote(context, &mut self.secrets, &location.namespace, origin).await {
            Ok((remote, access)) => {
                self.uses(context, &remote, &location);
                if let (None, Some(tree)) = (&self.remote, &self.tree) {
                    git::hint(context, &remote, tree);
                }
                if self.remote.as_ref() != Some(&remote) {
                    // A different URL or a corrected password may fix the error.
                    self.poll_now();
                    self.remote = Some(remote.clone());
                }
                if let Some(at) = self.current_push.take() {
                    context.source.expire(&remote, at);
                    self.next = Instant::now();
                }
                let found = self.poll(context, &remote, &location, moved).await;
                found.map(|tree| (tree, access.clone())).map_err(|unread| (unread, Some(access)))
            }
            Err(unread) => {
                self.remote = None;
                self.failed(context.settings().git_fetch_requeue, &unread);
                Err((unread, None))
            }
        };
        if let Some(job) = moved {
            self.resolved_for = Some(job.identity.uid.clone());
        }
        match found {
            Ok((tree, access)) => {
                self.tree = Some(tree.clone());
                Ok(Source::Git(Box::new((tree, access))))
            }
            Err((unread, access)) => match (self.tree.clone(), access) {
                // An incomplete tree would result in a different build.
                (Some(tree), Some(access)) if self.remote.as_ref().is_some_and(|remote| tree.is_complete(remote)) => {
                    Ok(Source::Git(Box::new((tree, access))))
                }
                _ => Err(unread),
            },
        }
    }

    /// Resolves the reference to a tree: the last result, or a new one if a poll is due or a build found that the
    /// branch moved.
    async fn poll(
        &mut self,
        context: &Context,
        remote: &Remote,
        location: &GitLocation,
        moved: Option<&Job>,
    ) -> Result<Tree, SourceError> {
        let due = self.next <= Instant::now() || moved.is_some();
        match (&self.tree, &self.unread) {
            (Some(tree), _) if !due && tree.is_complete(remote) => return Ok(tree.clone()),
            // Honours the server's `Retry-After` in any case.
            (_, Some(unread)) if !due => return Err(unread.clone()),
            _ => {}
        }
        // A regular poll accepts the lookup of another Function with the same remote.
        let anew = self.anew || self.retry.is_due() || moved.is_some();
        let interval = context.settings().git_interval;
        let max_age = if anew { Duration::ZERO } else { interval.mul_f64(0.8) };
        let found = git::tree(context, remote, location, self.tree.as_ref(), max_age).await;
        match &found {
            Ok(_) => {
                self.retry.succeeded();
                (self.unread, self.anew) = (None, false);
                self.next = Instant::now() + jitter(interval, fastrand::f64());
            }
            Err(unread) => self.failed(context.settings().git_fetch_requeue, unread),
        }
        found
    }

    fn failed(&mut self, first: Duration, unread: &SourceError) {
        self.not_before = unread.retry_after.map(|wait| Instant::now() + wait);
        self.next = Instant::now() + self.retry.failed(unread, first, fastrand::f64());
        self.unread = Some(unread.clone());
    }
}

/// Returns the Git source in the spec; `None` for an inline Function.
fn location(function: &ResolvedFunction) -> Option<(GitLocation, &Origin)> {
    let Code::Git { repository, reference, base_dir } = &function.code else { return None };
    let location = GitLocation {
        namespace: function.namespace.clone(),
        repository: repository.to_string(),
        reference: reference.to_string(),
        base_dir: base_dir.to_string(),
    };
    Some((location, repository))
}

/// Returns the Job that failed because its branch moved.
fn moved(children: &Children) -> Option<&Job> {
    children.jobs.iter().find(|job| {
        let pods = children.pods.iter().filter(|pod| pod.role == Role::Build(job.identity.uid.clone()));
        let mut ends = pods.filter_map(|pod| pod.end.as_ref());
        ends.any(
            |end| matches!(&end.termination, Termination::Failed(failure) if failure.reason == FailureReason::BranchMoved),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::function_conditions::Reason;

    /// The delay is so long that the duration of the test does not matter.
    const FIRST: Duration = Duration::from_secs(1_000_000);

    /// Returns the delays of several Functions that fail together, in hundredths of the first delay, per failure.
    fn waits(failures: usize) -> Vec<Vec<u64>> {
        let (class, message) = (Class::Unavailable, String::new());
        let unread = SourceError { reason: Reason::SourceUpdateFailed, message, class, retry_after: None };
        let wait = |polling: &mut Polling| {
            polling.failed(FIRST, &unread);
            polling.next.duration_since(Instant::now()).as_secs().div_ceil(10_000)
        };
        let waits = |_| {
            let mut polling = Polling::new("default", "hello", &FunctionStatus::default());
            (0..failures).map(|_| wait(&mut polling)).collect()
        };
        (0..200).map(waits).collect()
    }

    #[test]
    fn functions_that_fail_together_back_off_and_do_not_retry_together() {
        let all = waits(6);
        for (at, wait) in [100, 200, 400, 800, 1000, 1000].into_iter().enumerate() {
            let each = || all.iter().map(|waits| waits[at]);
            let (least, most) = (each().min().unwrap(), each().max().unwrap());
            assert!(least >= wait * 9 / 10 && most <= wait * 11 / 10 + 1, "{least} to {most} where it is {wait}");
            assert!(least < wait * 95 / 100 && most > wait * 105 / 100, "{least} to {most} where it is {wait}");
        }
    }
}
