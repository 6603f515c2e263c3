//! `mainstay status`: repository, commits, failures, reverts and pauses of a GitSync; several GitSyncs as a table.

mod overview;

use std::{collections::BTreeMap, sync::Arc};

use clap_complete::engine::ArgValueCompleter;

use super::{
    Error, Exit, completion,
    connection::{WideConnection, own_kind},
    drift,
    follow::{Syncs, follow},
    ids,
    output::{Format, OutputArgument},
    shard,
    suspend::git_sync_name,
    syncs::{self, address, ago},
};
use mainstay_api::{
    GitRepository, GitSync, GitSyncStatus, conditions,
    git_sync::{Pause, Terminating, UNKNOWN, WHOLE_OBJECT, WindowOverride},
    names,
};
use mainstay_cluster::shards::Member;
use mainstay_cluster::{Cluster, Kind};
use mainstay_engine::notification::waits_for;
use mainstay_object::{hide_logins, printable};

/// Arguments of `status`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitSync; by default all in the namespace
    #[arg(value_parser = git_sync_name, add = ArgValueCompleter::new(completion::git_syncs))]
    name: Option<String>,
    /// Print again after each change, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: WideConnection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connection.connect().await?;
    let kind = own_kind::<GitSync>(&cluster).await?;
    let selection = arguments.connection.selection(&cluster, arguments.name.as_deref());
    let status =
        StatusCommand { arguments, repositories: own_kind::<GitRepository>(&cluster).await?, cluster: &cluster };
    let found = syncs::select(&cluster, &kind, &selection).await?;
    if !arguments.watch {
        let shown = status.report(&found.iter().collect::<Vec<_>>()).await?;
        arguments.output.print(&shown.facts, || shown.text)?;
        return Ok(shown.exit);
    }
    let mut exit = Exit::Fine;
    follow(&cluster, &kind, selection, async |syncs: &Syncs| {
        let shown = status.report(&syncs.values().collect::<Vec<_>>()).await?;
        exit = shown.exit;
        arguments.output.print_next(&shown.facts, || shown.text + "\n")
    })
    .await?;
    Ok(exit)
}

/// The command with its arguments and its cluster.
struct StatusCommand<'a> {
    arguments: &'a Arguments,
    cluster: &'a Cluster,
    repositories: Arc<Kind>,
}

/// The output and the exit code.
struct Shown {
    facts: serde_json::Value,
    text: String,
    exit: Exit,
}

impl StatusCommand<'_> {
    async fn report(&self, syncs: &[&GitSync]) -> Result<Shown, Error> {
        let now = jiff::Timestamp::now();
        let repositories = self.repositories(syncs).await?;
        let of = |sync: &GitSync| {
            let namespace = sync.metadata.namespace.clone().unwrap_or_default();
            repositories.get(&(namespace, sync.spec.git_repository.clone()))
        };
        let is_fine = syncs.iter().all(|sync| is_in_sync(sync, now)) && !syncs.is_empty();
        let mut items = Vec::new();
        for sync in syncs {
            items.push(overview::facts(sync, of(sync), is_in_sync(sync, now), now)?);
        }
        // With a name, the result is one object. Otherwise, the result is a list of any length.
        let facts = match &items[..] {
            [one] if self.arguments.name.is_some() => one.clone(),
            _ => overview::list(items),
        };
        let shard = match syncs {
            [one] if !self.arguments.connection.all_namespaces => shard::of(self.cluster, one).await,
            _ => None,
        };
        let text = match syncs {
            [] => "no GitSync\n".to_owned(),
            [one] if !self.arguments.connection.all_namespaces => {
                describe(one, of(one), shard, (self.arguments.output, now))
            }
            _ => overview::table(syncs, of, self.arguments.output, self.arguments.connection.all_namespaces, now),
        };
        Ok(Shown { facts, text, exit: if is_fine { Exit::Fine } else { Exit::Differs } })
    }

    /// Reads the GitRepositories of the GitSyncs, by namespace and name.
    async fn repositories(&self, syncs: &[&GitSync]) -> Result<BTreeMap<(String, String), GitRepository>, Error> {
        let mut found = BTreeMap::new();
        for sync in syncs.iter().filter(|sync| sync.spec.source_ref.is_none()) {
            let namespace = sync.metadata.namespace.clone().unwrap_or_default();
            let key = (namespace, sync.spec.git_repository.clone());
            if found.contains_key(&key) {
                continue;
            }
            let repository = self.cluster.get(&self.repositories, Some(&key.0), &key.1).await?;
            if let Some(repository) = repository {
                found.insert(key, syncs::understand(repository)?);
            }
        }
        Ok(found)
    }
}

fn is_in_sync(sync: &GitSync, now: jiff::Timestamp) -> bool {
    let status = sync.status.as_ref();
    let ready = status.and_then(|status| conditions::status(&status.conditions, conditions::Type::Ready));
    ready.is_some_and(|ready| ready.status == "True" && ready.reason != conditions::Reason::Suspended.as_str())
        && sync.spec.suspended(now).is_none()
        && status.is_none_or(|status| status.frozen.is_none() && status.drifted_objects == 0)
}

/// Returns the report about one GitSync.
fn describe(
    sync: &GitSync,
    repository: Option<&GitRepository>,
    shard: Option<Member>,
    (output, now): (OutputArgument, jiff::Timestamp),
) -> String {
    let spec = &sync.spec;
    let status = sync.status.clone().unwrap_or_default();
    let mut text = format!("{}\n", syncs::name(sync));
    let mut row = |label: &str, value: String| text.push_str(&format!("  {label:<11} {value}\n"));
    let address = match repository {
        None if spec.source_ref.is_some() => format!("{} {}", spec.source().0, spec.source().1),
        None => format!("(GitRepository {} does not exist)", spec.git_repository),
        Some(repository) => address(repository).unwrap_or_else(|| "(the address cannot be read)".to_owned()),
    };
    row("repository", format!("{address}, {}, {}", spec.followed_reference(), spec.base_dir));
    row("commit", commits(&status, output));
    if let Some(config) = &spec.kube_config {
        let id = status.cluster.as_deref().map(|id| format!(", {id}")).unwrap_or_default();
        row("cluster", format!("remote cluster, from Secret {}{}", config.secret_ref.name, printable(&id)));
    }
    if let Some(shard) = shard {
        row("agent", shard.to_string());
    }
    row("objects", format!("{}{}", counts(&status), drift::count(&status)));
    row("reverted", times(status.reverted));
    if let Some(until) = spec.suspended(now) {
        let until = until.map_or_else(|| "yes".to_owned(), |until| format!("until {until}"));
        row("suspended", format!("{until}: nothing is applied, nothing is reverted"));
        if let Some(commit) = waiting(sync, repository) {
            row("waiting", format!("commit {}, which is applied after the suspension", ids::short(commit)));
        }
    }
    if let Some(over) = &status.window_override {
        let ago = ago(now.duration_since(over.when.0).as_secs());
        row(
            "override",
            format!("{} was applied {ago} ago although {}, by {}", ids::short(&over.commit), over.window, who(over)),
        );
    }
    for (label, value) in shown_conditions(&status) {
        row(&label, value);
    }
    text.push_str(&failures(&status));
    let drifted = status.drifted.iter().map(|drifted| drift::row(drifted, now));
    text.push_str(&section("Drifted, and not reverted", status.drifted_objects, drifted));
    text.push_str(&reverts(&status, now));
    let replaced = status.last_replacements.iter().map(|one| {
        let ago = ago(now.duration_since(one.when.0).as_secs());
        format!("{ago} ago {}: {}", one.object, drift::fields(&one.fields))
    });
    text.push_str(&section("Replaced, newest first", status.replaced, replaced));
    text.push_str(&section("Paused", status.paused_objects, status.paused.iter().map(paused)));
    text.push_str(&section("Held back from deletion", status.held_objects, status.held.iter().cloned()));
    let terminating = status.terminating.iter().map(|one| deleting(one, now));
    text.push_str(&section("Still being deleted", status.terminating_objects, terminating));
    hide_logins(&text).into_owned()
}

/// Returns who overrode a window. `mainstay sync` writes with the field manager of the agent.
fn who(over: &WindowOverride) -> String {
    match &over.claimed_user {
        Some(user) if over.who == names::AGENT_MANAGER => format!("`mainstay sync` of the user {}", printable(user)),
        Some(user) => format!("{} of the user {}", over.who, printable(user)),
        None => over.who.clone(),
    }
}

/// Returns Ready and the conditions that add information to it, with their names.
fn shown_conditions(status: &GitSyncStatus) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let ready = conditions::status(&status.conditions, conditions::Type::Ready).map(|ready| ready.message.clone());
    for condition in &status.conditions {
        // A condition with the same message as Ready is not repeated. Prevented exists only if the spec enables
        // prevention. Its status False is shown too, because it means that manual changes are not refused.
        let is_telling = if condition.type_ == "Prevented" {
            condition.status != "Unknown"
        } else {
            condition.status == "True" && !["Healthy", "Drifted", "Suspended"].contains(&&*condition.type_)
        };
        let is_shown = is_telling && Some(&condition.message) != ready.as_ref();
        if condition.type_ == "Ready" || is_shown {
            let message = syncs::rest(&condition.message, status).map(|message| format!(": {message}"));
            let message = message.unwrap_or_default().replace('\n', "\n              ");
            rows.push((condition.type_.to_lowercase(), format!("{}, {}{message}", condition.status, condition.reason)));
        }
    }
    rows
}

fn paused(pause: &Pause) -> String {
    match (&pause.until, &pause.problem) {
        (_, Some(problem)) => format!("{}: {problem}", pause.object),
        (Some(until), None) => format!("{} until {until}", pause.object),
        (None, None) => format!("{} until it is resumed", pause.object),
    }
}

/// Returns the newest commit of the branch, if it is not applied.
fn waiting<'a>(sync: &GitSync, repository: Option<&'a GitRepository>) -> Option<&'a str> {
    let revision = repository?.status.as_ref()?.revision.as_deref()?;
    // The status contains only the branch of HEAD.
    let (branch, commit) = revision.rsplit_once("@sha1:")?;
    let applied = sync.status.as_ref().and_then(|status| status.applied_commit.as_deref());
    let followed = sync.spec.followed_reference();
    let is_followed = followed == "HEAD" || followed.strip_prefix("refs/heads/").unwrap_or(&followed) == branch;
    (is_followed && applied != Some(commit)).then_some(commit)
}

fn deleting(object: &Terminating, now: jiff::Timestamp) -> String {
    let since = ago(now.duration_since(object.since.0).as_secs());
    format!("{} for {since}: it {}", object.object, waits_for(&object.finalizers))
}

fn counts(status: &GitSyncStatus) -> String {
    format!("{} managed, {} healthy, {} failed", status.objects, status.healthy, status.failed)
}

fn commits(status: &GitSyncStatus, output: OutputArgument) -> String {
    let short = |id: &str| if output.output == Format::Wide { id.to_owned() } else { ids::short(id) };
    match (&status.applied_commit, &status.attempted_commit) {
        (Some(applied), Some(attempted)) if applied != attempted => {
            format!("{} applied; {} {}", short(applied), short(attempted), fate(status, attempted))
        }
        (Some(applied), _) => short(applied),
        (None, Some(attempted)) => format!("{} {}", short(attempted), fate(status, attempted)),
        (None, None) => "none yet".into(),
    }
}

/// Returns what became of an attempted commit that is not the applied one.
fn fate(status: &GitSyncStatus, attempted: &str) -> &'static str {
    if syncs::waits_for_window(status, attempted) {
        "held back by a window"
    } else {
        "attempted and not applied in full"
    }
}

fn failures(status: &GitSyncStatus) -> String {
    // Absent objects are not counted here, because they are listed as drift.
    let absent = status.drifted.iter().filter(|drifted| drifted.is_absent()).count();
    let count = status.failed + (status.objects - status.healthy) - i64::try_from(absent).unwrap_or(0);
    section("Failing", count, status.failures.iter().map(|f| format!("{}: {}: {}", f.object, f.reason, f.message)))
}

fn reverts(status: &GitSyncStatus, now: jiff::Timestamp) -> String {
    section(
        "Reverted, newest first",
        status.reverted,
        status.last_reverts.iter().map(|revert| {
            let ago = ago(now.duration_since(revert.when.0).as_secs());
            let who = if revert.who == UNKNOWN { "somebody" } else { &revert.who };
            let mut text = format!("{ago} ago, {} ms after {who} ", revert.latency_ms);
            if revert.fields == [WHOLE_OBJECT] {
                text.push_str(&format!("deleted {}", revert.object));
            } else {
                text.push_str(&format!("changed {}: {}", revert.object, drift::fields(&revert.fields)));
            }
            for change in &revert.changes {
                text.push_str(&format!("\n      {}", drift::change(change)));
            }
            text
        }),
    )
}

/// Formats a list and its total count. The count may exceed the list, because the status lists only the first items.
fn section(title: &str, count: i64, rows: impl Iterator<Item = String>) -> String {
    let rows: Vec<String> = rows.map(|row| format!("    {row}\n")).collect();
    let shown = i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let part = if count > shown { format!(", {shown} of {count}") } else { String::new() };
    if rows.is_empty() { String::new() } else { format!("  {title}{part}:\n{}", rows.concat()) }
}

fn times(number: i64) -> String {
    match number {
        0 => "never".into(),
        1 => "once".into(),
        n => format!("{n} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use mainstay_api::GitRepositoryStatus;
    use serde_json::json;

    /// The time 2030-01-01T00:00:00Z.
    const NOW: jiff::Timestamp = jiff::Timestamp::constant(1_893_456_000, 0);

    fn sync(status: serde_json::Value) -> GitSync {
        let object = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
            "metadata": { "name": "shop", "namespace": "apps" },
            "spec": { "gitRepository": "shop" },
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn repository(url: &str) -> GitRepository {
        GitRepository::new("shop", mainstay_api::GitRepositorySpec { url: url.into(), ..Default::default() })
    }

    #[test]
    fn shows_failures_reverts_pauses_and_held_objects() {
        let sync = sync(json!({
            "appliedCommit": "1111111111111111111111111111111111111111",
            "attemptedCommit": "2222222222222222222222222222222222222222",
            "objects": 9, "healthy": 8, "failed": 1, "reverted": 2, "driftedObjects": 23,
            "drifted": [{
                "object": "Service shop/web", "fields": ["(object)"], "who": "unknown", "reason": "Report",
                "since": "2030-01-01T00:01:00Z",
            }, {
                "object": "ConfigMap shop/web", "fields": ["data.color"], "who": "kubectl-edit", "reason": "Backoff",
                "changes": [{ "field": "data.color", "found": "\"red\"", "restored": "\"blue\"" }],
                "since": "2030-01-01T00:04:00Z", "nextAttempt": "2030-01-01T00:05:30Z",
            }, {
                "object": "Secret shop/key", "who": "unknown", "reason": "Paused", "since": "2030-01-01T00:00:00Z",
            }],
            "lastReverts": [{
                "object": "Deployment.apps shop/web", "fields": [".spec.replicas"], "who": "kubectl-edit",
                "when": "2030-01-01T00:00:00Z", "latencyMs": 4,
                "changes": [{ "field": ".spec.replicas", "found": "5", "restored": "2" }],
            }],
            "replaced": 11,
            "lastReplacements": [{
                "object": "Job.batch shop/migrate", "fields": ["spec.template"], "uid": "u", "allowedBy": "Spec",
                "when": "2030-01-01T00:03:00Z",
            }],
            "failures": [{ "object": "Service shop/api", "reason": "Invalid", "message": "spec.ports: Required value" }],
            "paused": [{ "object": "ConfigMap shop/web", "until": "2030-01-01T00:30:00Z" }],
            "held": ["Namespace shop"],
            "terminating": [{
                "object": "ConfigMap shop/old", "finalizers": ["example.org/wait"], "since": "2030-01-01T00:01:00Z",
            }],
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "ApplyFailed", "message": "1 of 9 objects failed",
                "lastTransitionTime": "2030-01-01T00:00:00Z",
            }, {
                "type": "Drifted", "status": "False", "reason": "NotDrifted", "message": "",
                "lastTransitionTime": "2030-01-01T00:00:00Z",
            }, {
                "type": "Prevented", "status": "False", "reason": "NotSupported", "message": "this API server is too old",
                "lastTransitionTime": "2030-01-01T00:00:00Z",
            }],
        }));
        let now = "2030-01-01T00:05:00Z".parse().unwrap();
        let text = describe(
            &sync,
            Some(&repository("https://u:hunter2@git.example.org/shop.git")),
            None,
            (OutputArgument::default(), now),
        );
        let expected = "\
GitSync apps/shop
  repository  https://git.example.org/shop.git, main, /
  commit      111111111111 applied; 222222222222 attempted and not applied in full
  objects     9 managed, 8 healthy, 1 failed, 23 drifted
  reverted    2 times
  ready       False, ApplyFailed: 1 of 9 objects failed
  prevented   False, NotSupported: this API server is too old
  Failing:
    Service shop/api: Invalid: spec.ports: Required value
  Drifted, and not reverted, 3 of 23:
    Service shop/web does not exist, for 4 min: spec.drift is Report
    ConfigMap shop/web: data.color, for 60 s, by kubectl-edit: it keeps being changed; next attempt in 30 s
      data.color: \"red\" → \"blue\"
    Secret shop/key, for 5 min: paused
  Reverted, newest first, 1 of 2:
    5 min ago, 4 ms after kubectl-edit changed Deployment.apps shop/web: .spec.replicas
      .spec.replicas: 5 → 2
  Replaced, newest first, 1 of 11:
    2 min ago Job.batch shop/migrate: spec.template
  Paused:
    ConfigMap shop/web until 2030-01-01T00:30:00Z
  Held back from deletion:
    Namespace shop
  Still being deleted:
    ConfigMap shop/old for 4 min: it waits for the finalizer example.org/wait, which only its controller should take off
";
        assert_eq!(text, expected);
        assert!(!is_in_sync(&sync, now));
    }

    #[test]
    fn a_status_of_an_earlier_agent_shows_no_login_of_a_url() {
        let (field, at) = (r#"spec.urls[="https://u:pa hunter2@h"]"#, "2030-01-01T00:00:00Z");
        let change =
            json!({ "field": field, "found": "\"https://u:hunter2@h\"", "restored": "\"https://u:hunter3@h\"" });
        let sync = sync(json!({
            "driftedObjects": 1, "reverted": 1, "replaced": 1, "failed": 1,
            "drifted": [{ "object": "ConfigMap shop/a", "fields": [field], "who": "kubectl", "reason": "Report", "since": at, "changes": [change] }],
            "lastReverts": [{
                "object": "ConfigMap shop/a", "fields": [field], "who": "kubectl", "when": at, "latencyMs": 1, "changes": [change],
            }],
            "lastReplacements": [{ "object": "ConfigMap shop/a", "fields": [field], "uid": "u", "allowedBy": "Spec", "when": at }],
            "failures": [{ "object": "ConfigMap shop/b", "reason": "Invalid", "message": "no https://u:hunter2@h" }],
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "X", "message": "no https://u:hunter2@h", "lastTransitionTime": at,
            }],
        }));
        let output = OutputArgument { output: Format::Wide };
        let text = describe(&sync, None, None, (output, NOW));
        let facts = overview::facts(&sync, None, false, NOW).unwrap().to_string();
        let table = overview::table(&[&sync], |_| None, output, false, NOW);
        for shown in [text, facts, table] {
            assert!(shown.contains("https://(hidden)@h") && !shown.contains("hunter"), "{shown}");
        }
    }

    #[test]
    fn a_commit_that_a_window_holds_back_is_not_called_a_failure() {
        let (old, new) = ("1".repeat(40), "2".repeat(40));
        let said = |applied: Option<&str>, held: &str| {
            let frozen = json!({"commit": held, "by": "a window"});
            let status = json!({"appliedCommit": applied, "attemptedCommit": new, "frozen": frozen});
            commits(&serde_json::from_value(status).unwrap(), OutputArgument::default())
        };
        assert_eq!(said(Some(old.as_str()), &new), "111111111111 applied; 222222222222 held back by a window");
        assert_eq!(said(None, &new), "222222222222 held back by a window");
        assert_eq!(said(None, &old), "222222222222 attempted and not applied in full");
    }

    #[test]
    fn drift_that_remains_is_a_difference_although_ready_is_true() {
        let ready = json!([{
            "type": "Ready", "status": "True", "reason": "Applied", "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }]);
        assert!(is_in_sync(&sync(json!({ "conditions": ready.clone() })), NOW));
        assert!(!is_in_sync(&sync(json!({ "conditions": ready.clone(), "driftedObjects": 1 })), NOW));
    }

    #[test]
    fn a_suspension_is_a_difference_and_shows_the_commit_that_waits() {
        let ready = json!([{
            "type": "Ready", "status": "True", "reason": "Applied", "message": "",
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }]);
        let (old, new) = ("1".repeat(40), "2".repeat(40));
        let mut suspended = sync(json!({ "appliedCommit": old, "conditions": ready }));
        let mut repository = repository("https://example.org/shop");
        let shown = |sync: &GitSync, repository: &GitRepository| {
            describe(sync, Some(repository), None, (OutputArgument::default(), NOW))
        };
        let until = "2030-01-01T02:00:00Z".parse().unwrap();
        suspended.spec.suspend_until = Some(Time(until));
        assert!(!is_in_sync(&suspended, NOW) && is_in_sync(&suspended, until));
        for (revision, is_told) in [
            (format!("main@sha1:{new}"), true),
            (format!("main@sha1:{old}"), false),
            (format!("next@sha1:{new}"), false),
        ] {
            repository.status = Some(GitRepositoryStatus { revision: Some(revision.clone()), ..Default::default() });
            let text = shown(&suspended, &repository);
            assert_eq!(text.contains("waiting     commit 222222222222, "), is_told, "{revision}: {text}");
        }
        for (reference, is_told) in [("HEAD", true), ("refs/heads/next", true), ("refs/heads/main", false)] {
            suspended.spec.reference = reference.to_owned();
            assert_eq!(shown(&suspended, &repository).contains("  waiting "), is_told, "{reference}");
        }
        assert!(!shown(&sync(json!({})), &repository).contains("waiting"));
    }

    #[test]
    fn shows_a_missing_repository_and_an_empty_status() {
        let text = describe(
            &sync(serde_json::Value::Null),
            None,
            None,
            (OutputArgument::default(), jiff::Timestamp::UNIX_EPOCH),
        );
        let expected = "\
GitSync apps/shop
  repository  (GitRepository shop does not exist), main, /
  commit      none yet
  objects     0 managed, 0 healthy, 0 failed
  reverted    never
";
        assert_eq!(text, expected);
    }

    #[test]
    fn an_override_names_the_user() {
        let text = |who: &str, user: Option<&str>| {
            let over = json!({ "commit": "c", "window": "w", "who": who, "claimedUser": user, "when": "2030-01-01T00:00:00Z" });
            super::who(&serde_json::from_value(over).unwrap())
        };
        assert_eq!(text(names::AGENT_MANAGER, Some("admin")), "`mainstay sync` of the user admin");
        assert_eq!(text("kubectl-annotate", None), "kubectl-annotate");
    }
}
