//! When a Git Function's remote is looked at, and what is known of its source between two looks.
//!
//! Invariant: while Git cannot be read, what was found last will do.
//! Invariant: a remote is asked when it is time to, when somebody wants to know, and when a build found its branch
//! elsewhere; everything else takes what is known.
//!
//! Deliberately absent: how Git is read; that is `git`'s.

use std::time::{Duration, Instant};

use super::context::Context;
use super::facts::{Job, Role};
use super::family::Family;
use super::git::{self, Access, Tree, Unread, Wanted};
use super::retry::Retry;
use super::{Code, ResolvedFunction};
use crate::api::build::{FailureReason, Termination};
use crate::api::function::FunctionStatus;
use crate::failure::{Class, jitter};
use crate::secrets::Followed;
use crate::source::{Reader, ReaderKind, Remote};

/// Where the source is, for the stages.
pub(super) enum Source {
    /// In the Function itself.
    Inline,
    /// In Git.
    Git(Box<(Tree, Access)>),
}

/// What is known of one Function's remote.
pub(super) struct Polling {
    reader: Reader,
    /// The Secret that opens the remote, where there is one.
    secret: Option<Followed>,
    /// The remote as it was last known; `None`: it is not known.
    remote: Option<Remote>,
    /// What was last found.
    tree: Option<Tree>,
    /// Why it could not be read the last time.
    unread: Option<Unread>,
    retry: Retry,
    next: Instant,
    /// Whether somebody wants to know what is at the remote now, rather than it being time to look.
    anew: bool,
    /// The Job for whose sake the reference was looked up again.
    resolved_for: Option<String>,
}

impl Polling {
    /// Begins with what the status says was found last.
    pub(super) fn new(namespace: &str, name: &str, status: &FunctionStatus) -> Self {
        Self {
            secret: None,
            remote: None,
            tree: git::remembered(namespace, status),
            reader: Reader::new(ReaderKind::Function, namespace, name),
            unread: None,
            retry: Retry::default(),
            next: Instant::now(),
            anew: true,
            resolved_for: None,
        }
    }

    /// Somebody wants to know what is at the remote now.
    pub(super) fn look_now(&mut self) {
        self.anew = true;
        self.next = Instant::now();
    }

    /// When it is time to look; `None` when there is nothing to look at.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.tree.is_some() || self.unread.is_some()).then_some(self.next)
    }

    /// Why Git could not be read the last time.
    pub(super) fn unread(&self) -> Option<&Unread> {
        self.unread.as_ref()
    }

    /// The Secret that opens the remote, where there is one.
    pub(super) fn secret(&self) -> Option<&Followed> {
        self.secret.as_ref()
    }

    /// The same, to wait for it.
    pub(super) fn secret_mut(&mut self) -> Option<&mut Followed> {
        self.secret.as_mut()
    }

    /// The Function reads nothing any more.
    pub(super) fn end(&mut self, context: &Context) {
        (self.secret, self.remote) = (None, None);
        context.source.reads(&self.reader, None);
    }

    /// Says what the Function reads, as far as it can be told.
    pub(super) async fn tell(&mut self, context: &Context, function: &ResolvedFunction) {
        if let Some(wanted) = wanted(function)
            && let Ok((remote, _)) = git::remote(context, &mut self.secret, &wanted).await
        {
            context.source.reads(&self.reader, Some(&remote));
        }
    }

    /// After a pass: whoever wants to know what the Function reads need not wait for another one, unless that can be
    /// told later and cannot now.
    pub(super) fn tried(&self, context: &Context) {
        let may_tell = self.unread.as_ref().is_some_and(|unread| unread.class == Class::Unavailable);
        if !may_tell && self.secret.as_ref().is_none_or(|secret| secret.taken().is_settled()) {
            context.source.heard(&self.reader);
        }
    }

    /// Where the code is: for a Git Function the tree that its reference leads to, looked up if it is time to.
    pub(super) async fn source(
        &mut self,
        context: &Context,
        function: &ResolvedFunction,
        family: &Family,
    ) -> Result<Source, Unread> {
        let Some(wanted) = wanted(function) else {
            self.end(context);
            (self.tree, self.unread) = (None, None);
            return Ok(Source::Inline);
        };
        self.tree = self.tree.take().filter(|tree| tree.wanted == wanted);
        let moved = moved(family).filter(|job| self.resolved_for.as_deref() != Some(&job.identity.uid));
        let found = match git::remote(context, &mut self.secret, &wanted).await {
            Ok((remote, access)) => {
                context.source.reads(&self.reader, Some(&remote));
                if let (None, Some(tree)) = (&self.remote, &self.tree) {
                    git::remind(context, &remote, tree);
                }
                if self.remote.as_ref() != Some(&remote) {
                    // Another address or a corrected password may be what helps.
                    self.look_now();
                    self.remote = Some(remote.clone());
                }
                let found = self.look(context, &remote, &wanted, moved).await;
                found.map(|tree| (tree, access.clone())).map_err(|unread| (unread, Some(access)))
            }
            Err(unread) => {
                self.remote = None;
                self.failed(context.settings.git_fetch_requeue, &unread);
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
                (Some(tree), Some(access)) => Ok(Source::Git(Box::new((tree, access)))),
                _ => Err(unread),
            },
        }
    }

    /// The tree that the reference leads to: what is known, or what is there now when it is time to look or when a build
    /// says that the branch has moved.
    async fn look(
        &mut self,
        context: &Context,
        remote: &Remote,
        wanted: &Wanted,
        moved: Option<&Job>,
    ) -> Result<Tree, Unread> {
        let due = self.next <= Instant::now() || moved.is_some();
        match (&self.tree, &self.unread) {
            (Some(tree), _) if !due => return Ok(tree.clone()),
            // A server that wants to be left alone is, whatever else happens here.
            (None, Some(unread)) if !due => return Err(unread.clone()),
            _ => {}
        }
        // A poll takes what another Function's poll of the same remote has just found.
        let anew = self.anew || self.retry.is_due() || moved.is_some();
        let interval = context.settings.git_interval;
        let max_age = if anew { Duration::ZERO } else { interval.mul_f64(0.8) };
        let found = git::tree(context, remote, wanted, self.tree.as_ref(), max_age).await;
        match &found {
            Ok(_) => {
                self.retry.succeeded();
                (self.unread, self.anew) = (None, false);
                self.next = Instant::now() + jitter(interval, fastrand::f64());
            }
            Err(unread) => self.failed(context.settings.git_fetch_requeue, unread),
        }
        found
    }

    fn failed(&mut self, first: Duration, unread: &Unread) {
        self.next = Instant::now() + self.retry.failed(unread, first, fastrand::f64());
        self.unread = Some(unread.clone());
    }
}

/// What a Git Function is to be built from; `None` for an inline one.
fn wanted(function: &ResolvedFunction) -> Option<Wanted> {
    let Code::Git { repository, reference, base_dir } = &function.code else { return None };
    Some(Wanted {
        namespace: function.namespace.clone(),
        repository: repository.clone(),
        reference: reference.to_string(),
        base_dir: base_dir.to_string(),
    })
}

/// The Job that failed because its branch has moved on.
fn moved(family: &Family) -> Option<&Job> {
    family.jobs.iter().find(|job| {
        let pods = family.pods.iter().filter(|pod| pod.role == Role::Build(job.identity.uid.clone()));
        let mut ends = pods.filter_map(|pod| pod.end.as_ref());
        ends.any(
            |end| matches!(&end.said, Termination::Failed(failure) if failure.reason == FailureReason::BranchMoved),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::function_conditions::Reason;

    /// So long that what the test itself takes is nothing beside it.
    const FIRST: Duration = Duration::from_secs(1_000_000);

    /// How long Pollings that fail together wait, in hundredths of the first wait, after each of their failures.
    fn waits(failures: usize) -> Vec<Vec<u64>> {
        let (class, message) = (Class::Unavailable, String::new());
        let unread = Unread { reason: Reason::SourceUpdateFailed, message, class, retry_after: None };
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
    fn those_who_failed_together_wait_longer_each_time_and_do_not_come_back_together() {
        let all = waits(6);
        for (at, wait) in [100, 200, 400, 800, 1000, 1000].into_iter().enumerate() {
            let each = || all.iter().map(|waits| waits[at]);
            let (least, most) = (each().min().unwrap(), each().max().unwrap());
            assert!(least >= wait * 9 / 10 && most <= wait * 11 / 10 + 1, "{least} to {most} where it is {wait}");
            assert!(least < wait * 95 / 100 && most > wait * 105 / 100, "{least} to {most} where it is {wait}");
        }
    }
}
