//! `mainstay sync`: requests a sync, waits until the objects of the GitSync are healthy, and prints the result.
//!
//! Invariant: the command sends all requests before it waits for a GitSync.
//!
//! Not here: the sync itself. An annotation requests the sync, and the status contains its result. `settled` decides
//! whether the sync has ended.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use clap_complete::engine::ArgValueCompleter;

use super::{
    Error, Exit, completion,
    connection::{WideConnection, own_kind},
    ids::short,
    lease::{self, is_held},
    output::{self, OutputArgument},
    preview,
    progress::Progress,
    settled::{Settled, Wait, settled},
    suspend::git_sync_name,
    syncs,
};
use mainstay_api::{GitSync, Span, conditions, names, requests};
use mainstay_cluster::reflector::{Delta, Name, Shown, name_of};
use mainstay_cluster::{Cluster, Kind, Part, Selection, WatchEvent};
use mainstay_object::counted;

/// The maximum timeout; longer timeouts are reduced to it.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Arguments of `sync`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitSync; by default all in the namespace
    #[arg(value_parser = git_sync_name, add = ArgValueCompleter::new(completion::git_syncs))]
    name: Option<String>,
    /// Timeout, such as 90s or 10m
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    timeout: Span,
    /// Do not wait until the applied objects are healthy
    #[arg(long)]
    no_wait: bool,
    /// Only show the changes that a sync would make now, object by object, and write nothing; exit code 1 if there are
    /// any
    #[arg(long, conflicts_with_all = ["timeout", "no_wait", "override_window"])]
    dry_run: bool,
    /// Apply the newest commit even if a window holds it back; the status records it
    #[arg(long)]
    override_window: bool,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: WideConnection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connection.connect().await?;
    let kind = own_kind::<GitSync>(&cluster).await?;
    let now = Instant::now();
    let end = now.checked_add(arguments.timeout.0).unwrap_or(now + FOR_EVER);
    let all = match &arguments.name {
        Some(name) => {
            vec![syncs::read(&cluster, &kind, &arguments.connection.connection.namespace(&cluster), name).await?]
        }
        None => syncs::select(&cluster, &kind, &arguments.connection.selection(&cluster, None)).await?,
    };
    if arguments.dry_run {
        return dry_run(arguments, &cluster, all).await;
    }
    if !an_agent_works(&cluster).await {
        output::note(NO_AGENT);
    }
    let progress = Progress::begin();
    let synced = all.iter().map(async |before| {
        let asked = Asked { arguments, cluster: &cluster, kind: &kind, progress: &progress };
        (before, asked.sync(before, end).await)
    });
    let mut synced = std::pin::pin!(stream::iter(synced).buffered(all.len()));
    let mut worst = Exit::Fine;
    let mut failed = Vec::new();
    let mut items = Vec::new();
    while let Some((before, synced)) = synced.next().await {
        match synced {
            Ok((after, end)) => {
                progress.clear();
                worst = worst.max(if end == End::Succeeded { Exit::Fine } else { Exit::Differs });
                items.push(facts(before, &after, end)?);
                if arguments.output.is_text() {
                    print(before, &after, end)?;
                }
            }
            // The results of the other GitSyncs are printed nevertheless.
            Err(error) => failed.push((syncs::name(before), error)),
        }
    }
    progress.clear();
    if !arguments.output.is_text() {
        // With a name, the result is one object. Otherwise, the result is a list of any length.
        let facts = match &items[..] {
            [one] if arguments.name.is_some() => one.clone(),
            _ => json!({ "items": items }),
        };
        arguments.output.print(&facts, String::new)?;
    }
    if all.len() == 1
        && let Some((_, error)) = failed.pop()
    {
        return Err(error);
    }
    output::note(&syncs::failures(&failed));
    Ok(if failed.is_empty() { worst } else { Exit::Failed })
}

/// The note if no agent holds a Lease.
const NO_AGENT: &str =
    "no agent is running in this cluster; the request is performed once one runs; `mainstay check` shows the problem\n";

/// Returns whether an agent holds its Lease. Returns true without permission to read Leases, so that no note is
/// printed.
async fn an_agent_works(cluster: &Cluster) -> bool {
    let leases = Arc::new(lease::kind());
    let found: Result<Vec<Value>, _> = cluster.list(&leases, Selection::named(None, names::LEASE)).try_collect().await;
    let now = jiff::Timestamp::now();
    found.map_or(true, |leases| leases.iter().any(|lease| is_held(&lease["spec"], now)))
}

/// Previews a sync of each GitSync.
async fn dry_run(arguments: &Arguments, cluster: &Cluster, all: Vec<GitSync>) -> Result<Exit, Error> {
    let run = arguments.connection.connection.dev_run();
    let mut reports = Vec::with_capacity(all.len());
    for sync in all {
        reports.push(preview::dry_run(cluster, &run, sync).await?);
    }
    let facts = match &reports[..] {
        [one] if arguments.name.is_some() => one.facts(),
        all => json!({ "items": all.iter().map(preview::Report::facts).collect::<Vec<_>>() }),
    };
    arguments.output.print(&facts, || preview::text_of(&reports))?;
    Ok(reports.iter().map(preview::Report::exit).max().unwrap_or(Exit::Fine))
}

/// The end of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The sync succeeded.
    Succeeded,
    /// The sync failed, and waiting does not help.
    Failed,
    /// The agent has handled the request, but the objects were not healthy in time.
    TimedOut(Duration),
}

/// Values that all requests of the command share.
struct Asked<'a> {
    arguments: &'a Arguments,
    cluster: &'a Cluster,
    kind: &'a Arc<Kind>,
    progress: &'a Progress,
}

impl Asked<'_> {
    /// Requests a sync of one GitSync and waits for its end.
    async fn sync(&self, before: &GitSync, end: Instant) -> Result<(GitSync, End), Error> {
        let Self { arguments, cluster, kind, progress } = *self;
        let mut request = Request::begin(cluster, kind, before, None, progress).await?;
        let wait = if arguments.no_wait { Wait::UntilApplied } else { Wait::UntilHealthy };
        let mut ended = request.end(wait, end, arguments.timeout.0).await?;
        if let Some(frozen) = ended.0.status.as_ref().and_then(|status| status.frozen.as_ref())
            && arguments.override_window
        {
            let user = cluster.user_name().await.ok().flatten();
            request = Request::begin(cluster, kind, before, Some((&frozen.commit, user)), progress).await?;
            ended = request.end(wait, end, arguments.timeout.0).await?;
        }
        Ok(ended)
    }
}

/// A request for a sync, and a watch of its GitSync.
struct Request {
    what: String,
    token: String,
    events: BoxStream<'static, WatchEvent>,
    shown: Shown<Name>,
    last: Option<GitSync>,
    progress: Progress,
}

impl Request {
    /// Sets the annotation. The commit in `overridden` is applied even if a window holds it back.
    async fn begin(
        cluster: &Cluster,
        kind: &Arc<Kind>,
        before: &GitSync,
        overridden: Option<(&str, Option<String>)>,
        progress: &Progress,
    ) -> Result<Self, Error> {
        let name = before.metadata.name.as_deref().unwrap_or_default();
        let namespace = before.metadata.namespace.as_deref();
        let token = jiff::Timestamp::now().to_string();
        let patch = match overridden {
            Some((commit, user)) => requests::sync_overriding(&token, commit, user.as_deref()),
            None => requests::sync(&token),
        };
        cluster.patch_merge(kind, namespace, name, Part::Main, &patch).await?;
        let events = cluster.watch(kind, Selection::named(namespace, name));
        progress.say(&format!("{}: waiting for an agent", syncs::name(before)));
        let (what, progress) = (syncs::name(before), progress.clone());
        Ok(Self { what, token, events, shown: Shown::default(), last: None, progress })
    }

    /// Waits until the sync has ended, or until `deadline`. The error message contains `timeout`.
    async fn end(&mut self, wait: Wait, deadline: Instant, timeout: Duration) -> Result<(GitSync, End), Error> {
        if let Ok(ended) = tokio::time::timeout_at(deadline.into(), self.settled(wait)).await {
            return ended;
        }
        let last = self.last.take().ok_or(Error::NotAnswered { seconds: timeout.as_secs() })?;
        Ok((last, End::TimedOut(timeout)))
    }

    async fn settled(&mut self, wait: Wait) -> Result<(GitSync, End), Error> {
        while let Some(event) = self.events.next().await {
            match self.shown.take(event, name_of) {
                Some(Delta::Listed(_, value) | Delta::Changed(_, value)) => {
                    let sync = syncs::understand::<GitSync>(value)?;
                    self.progress.say(&waiting(&sync));
                    match settled(&sync, &self.token, wait, jiff::Timestamp::now()) {
                        Settled::Succeeded => return Ok((sync, End::Succeeded)),
                        Settled::Failed => return Ok((sync, End::Failed)),
                        Settled::Waiting => self.last = Some(sync),
                        Settled::Unanswered => {}
                    }
                }
                Some(Delta::Gone(..)) => return Err(Error::Missing { what: self.what.clone() }),
                Some(Delta::Unreadable(_, _, error)) => return Err(error.into()),
                // The watch retries by itself; the caller sets a deadline.
                Some(Delta::Complete(_) | Delta::Failed(_) | Delta::Resumed) | None => {}
            }
        }
        Err(Error::NotAnswered { seconds: 0 })
    }
}

/// Describes the progress of a sync.
fn waiting(sync: &GitSync) -> String {
    let status = sync.status.clone().unwrap_or_default();
    let reconciling = conditions::status(&status.conditions, conditions::Type::Reconciling);
    let why = reconciling.filter(|condition| condition.status == "True").map(|condition| condition.message.as_str());
    let why = why.and_then(|message| message.lines().next()).unwrap_or("waiting for an agent");
    let (objects, healthy, failed) = (counted(status.objects, "object"), status.healthy, status.failed);
    format!("{}: {objects}, {healthy} healthy, {failed} failed; {why}", syncs::name(sync))
}

/// Returns the result of a sync for JSON and YAML.
fn facts(before: &GitSync, after: &GitSync, end: End) -> Result<Value, Error> {
    let status = serde_json::to_value(&after.status).map_err(Error::WriteJson)?;
    let result = match end {
        _ if after.spec.suspended(jiff::Timestamp::now()).is_some() => "Suspended",
        End::Succeeded => "Succeeded",
        End::Failed => "Failed",
        End::TimedOut(_) => "TimedOut",
    };
    Ok(json!({
        "namespace": after.metadata.namespace, "name": after.metadata.name, "result": result,
        "commitBefore": before.status.as_ref().and_then(|status| status.applied_commit.as_deref()),
        "commit": status["appliedCommit"], "status": status,
    }))
}

/// Prints the result of a sync on standard output, and problems on standard error.
fn print(before: &GitSync, after: &GitSync, end: End) -> Result<(), Error> {
    let (result, wrong) = texts(before, after, end);
    output::print(&result)?;
    output::note(&wrong);
    Ok(())
}

/// Returns the result of the sync, and the problems.
fn texts(before: &GitSync, after: &GitSync, end: End) -> (String, String) {
    let name = syncs::name(after);
    if after.spec.suspended(jiff::Timestamp::now()).is_some() {
        return (format!("{name}: suspended, nothing was done\n"), String::new());
    }
    let status = after.status.clone().unwrap_or_default();
    let old = before.status.as_ref().and_then(|status| status.applied_commit.as_deref());
    let new = status.applied_commit.as_deref();
    let failed = status.attempted_commit.as_deref().filter(|failed| end != End::Succeeded && Some(*failed) != new);
    let fate = |commit: &str| {
        if syncs::waits_for_window(&status, commit) { "is held back by a window" } else { "is not applied in full" }
    };
    let mut result = match (failed, old, new) {
        (Some(failed), _, Some(kept)) => {
            format!("{name}: commit {} {}; before it: {}", short(failed), fate(failed), short(kept))
        }
        (Some(failed), _, None) => format!("{name}: commit {} {}", short(failed), fate(failed)),
        (None, Some(old), Some(new)) if old == new => format!("{name}: commit {}, as before", short(new)),
        (None, Some(old), Some(new)) => format!("{name}: commit {} (was {})", short(new), short(old)),
        (None, None, Some(new)) => format!("{name}: commit {}", short(new)),
        (None, _, None) => format!("{name}: nothing applied yet"),
    };
    let _ = writeln!(
        result,
        ", {}, {} healthy, {} failed",
        counted(status.objects, "object"),
        status.healthy,
        status.failed
    );
    let mut wrong = String::new();
    if let End::TimedOut(timeout) = end {
        let _ = writeln!(wrong, "{name} is not Ready after {} s", timeout.as_secs());
    }
    let shown = if end == End::Succeeded { &mut result } else { &mut wrong };
    let condition = |kind| conditions::status(&status.conditions, kind);
    let ready = condition(conditions::Type::Ready);
    // Ready may describe an earlier commit.
    let reconciling = condition(conditions::Type::Reconciling).filter(|condition| condition.status == "True");
    let reconciling = reconciling.filter(|_| end != End::Succeeded);
    let reconciling = reconciling.filter(|other| ready.is_none_or(|ready| ready.message != other.message));
    for condition in ready.into_iter().chain(reconciling) {
        if let Some(message) = syncs::rest(&condition.message, &status) {
            let _ = writeln!(shown, "  {}: {message}", condition.reason);
        }
    }
    for failure in &status.failures {
        let _ = writeln!(shown, "  {}: {}: {}", failure.object, failure.reason, failure.message);
    }
    // The status lists only some failures, but counts all failures.
    let unnamed =
        status.failed + (status.objects - status.healthy) - i64::try_from(status.failures.len()).unwrap_or(i64::MAX);
    if unnamed > 0 && !status.failures.is_empty() {
        let _ = writeln!(shown, "  and {unnamed} more");
    }
    (result, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_objects_and_names_the_failed_ones() {
        let sync = |status: serde_json::Value| -> GitSync {
            serde_json::from_value(json!({
                "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
                "metadata": { "name": "shop", "namespace": "apps" },
                "spec": { "gitRepository": "shop" }, "status": status,
            }))
            .unwrap()
        };
        let (old, new) = ("1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222");
        let before = sync(json!({ "appliedCommit": old }));
        let after = sync(json!({
            "appliedCommit": old, "attemptedCommit": new, "objects": 9, "healthy": 9, "failed": 3,
            "failures": [{ "object": "Service shop/api", "reason": "Invalid", "message": "spec.ports: Required value" }],
        }));
        let (result, wrong) = texts(&before, &after, End::Failed);
        assert_eq!(
            result,
            "GitSync apps/shop: commit 222222222222 is not applied in full; before it: 111111111111, 9 objects, 9 healthy, 3 failed\n"
        );
        assert_eq!(wrong, "  Service shop/api: Invalid: spec.ports: Required value\n  and 2 more\n");
        let frozen = json!({ "commit": new, "by": "the window" });
        let held = sync(json!({ "appliedCommit": old, "attemptedCommit": new, "frozen": frozen }));
        let (result, _) = texts(&before, &held, End::Failed);
        let expected = "GitSync apps/shop: commit 222222222222 is held back by a window; before it: 111111111111, ";
        assert!(result.starts_with(expected), "{result}");
    }

    #[test]
    fn says_once_what_two_conditions_say() {
        let condition = |kind: &str, status: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": "SourceUnavailable", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let wrong = |ready: &str, reconciling: &str| {
            let conditions = [condition("Ready", "False", ready), condition("Reconciling", "True", reconciling)];
            let sync: GitSync = serde_json::from_value(json!({
                "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
                "metadata": { "name": "shop", "namespace": "apps" },
                "spec": { "gitRepository": "shop" }, "status": { "conditions": conditions },
            }))
            .unwrap();
            texts(&sync, &sync, End::Failed).1
        };
        assert_eq!(wrong("no answer", "no answer"), "  SourceUnavailable: no answer\n");
        assert_eq!(wrong("no answer", "it waits"), "  SourceUnavailable: no answer\n  SourceUnavailable: it waits\n");
    }
}
