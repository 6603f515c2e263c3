//! `mainstay logs`: prints the agent's log, or its lines about one object.
//!
//! Not here: the logs of managed objects, which `kubectl logs` prints.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::PathBuf;

use futures::stream::{self, BoxStream};
use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    Error, Exit,
    connection::{Connection, DEFAULT_NAMESPACE},
    lease::Lease,
    log_file, output, stop,
    suspend::{Chosen, chosen},
};
use mainstay_api::{Span, names};
use mainstay_cluster::{Cluster, LogOptions, Selection};
use mainstay_object::Key;

/// Arguments of `logs`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Object to print lines about: a GitSync, or deploy/web, or deploy web; by default all lines
    #[arg(id = "name", value_name = "OBJECT", num_args = 0..=2)]
    words: Vec<String>,
    /// Continue with new lines, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Number of last lines to print; by default all
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
    /// Maximum age of lines, such as 30m
    #[arg(long, value_name = "DURATION")]
    since: Option<Span>,
    /// Namespace of the agent, as for `mainstay install`
    #[arg(long, value_name = "NS", default_value = DEFAULT_NAMESPACE)]
    agent_namespace: String,
    #[command(flatten)]
    connection: Connection,
}

/// The agent's container in its pod.
const CONTAINER: &str = "mainstay";

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connect().await?;
    let about = about(arguments, &cluster).await?;
    let pods = pods(&cluster, &arguments.agent_namespace).await?;
    let since = arguments.since.map(|Span(since)| Timestamp::now().saturating_sub(since)).transpose();
    let since = since.unwrap_or_default();
    if pods.is_empty() {
        let namespace = arguments.agent_namespace.clone();
        if !Lease::find(&cluster, &namespace).await?.is_of_dev() {
            return Err(Error::NoAgentPod { namespace });
        }
        let path = arguments.connection.dev_run().log.ok_or(Error::AgentOfDev)?;
        let mut logs = [Log::new(path.display().to_string(), about)];
        let open = async |path: &str, follow| {
            let path = PathBuf::from(path);
            let unread = |path: PathBuf| move |cause| Error::ReadFile { path: path.clone(), cause };
            Ok(log_file::lines(path.clone(), follow, since).map_err(unread(path)).boxed())
        };
        return print_until_stopped(&mut logs, arguments.tail, arguments.follow, open).await;
    }
    // Without permission to read Leases, the note is left out.
    let holder = Lease::find(&cluster, &arguments.agent_namespace).await.ok().and_then(|lease| lease.holder);
    if let Some(note) = not_of_a_pod(holder.as_deref(), &pods) {
        output::note(&note);
    }
    let options = LogOptions {
        container: Some(CONTAINER.to_owned()),
        tail: arguments.tail.filter(|_| about.is_none()).map(|lines| u32::try_from(lines).unwrap_or(u32::MAX)),
        since,
        ..LogOptions::default()
    };
    let mut logs: Vec<_> = pods.into_iter().map(|pod| Log::new(pod.name, about.clone())).collect();
    // With a filter for one object, the last lines are counted after filtering.
    let tail = arguments.tail.filter(|_| options.tail.is_none());
    let open = async |pod: &str, follow: bool| {
        let options = LogOptions { follow, ..options.clone() };
        Ok(cluster.pod_log(&arguments.agent_namespace, pod, &options).await?.map_err(Error::from).boxed())
    };
    print_until_stopped(&mut logs, tail, arguments.follow, open).await
}

/// The note if the leading agent runs outside of the cluster, beside pods that do not lead.
fn not_of_a_pod(holder: Option<&str>, pods: &[Pod]) -> Option<String> {
    let holder = holder?;
    (!pods.iter().any(|pod| pod.uid == holder || pod.name == holder))
        .then(|| format!("the agent {holder} has no pod in this namespace: look for its log where it was started\n"))
}

async fn print_until_stopped(
    logs: &mut [Log],
    tail: Option<usize>,
    follow: bool,
    open: impl AsyncFn(&str, bool) -> Result<Lines, Error>,
) -> Result<Exit, Error> {
    let stop = stop::on_signal()?;
    let printed = print(logs, tail, follow, open, output::print_line);
    stop.run_until_cancelled(printed).await.unwrap_or(Ok(()))?;
    Ok(Exit::Fine)
}

type Lines = BoxStream<'static, Result<String, Error>>;

/// Prints the lines of all pods, or only the last lines. With `follow`, prints new lines, too.
async fn print(
    logs: &mut [Log],
    tail: Option<usize>,
    follow: bool,
    open: impl AsyncFn(&str, bool) -> Result<Lines, Error>,
    mut print: impl FnMut(&str) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    if let Some(most) = tail {
        // Only at the end of the log is it known which lines are the last. New lines are read from there.
        let mut last = VecDeque::new();
        for log in &mut *logs {
            let mut lines = open(&log.pod, false).await?;
            while let Some(line) = lines.try_next().await? {
                log.read += 1;
                if log.filter.shows(&line) {
                    last.push_back(line);
                    if last.len() > most {
                        last.pop_front();
                    }
                }
            }
        }
        for line in last {
            if print(&line)?.is_break() {
                return Ok(());
            }
        }
        if !follow {
            return Ok(());
        }
    }
    let mut all = Vec::new();
    for log in logs {
        let lines = open(&log.pod, follow).await?.skip(log.read);
        let filter = &mut log.filter;
        all.push(lines.map_ok(move |line| filter.shows(&line).then_some(line)).boxed());
    }
    let mut lines = stream::select_all(all);
    while let Some(line) = lines.try_next().await? {
        if let Some(line) = line
            && print(&line)?.is_break()
        {
            break;
        }
    }
    Ok(())
}

/// The log of one pod.
struct Log {
    pod: String,
    filter: Filter,
    /// Number of lines that were read.
    read: usize,
}

impl Log {
    fn new(pod: String, about: Option<Key>) -> Self {
        Self { pod, filter: Filter { about, ..Filter::default() }, read: 0 }
    }
}

/// Returns the object to filter by.
async fn about(arguments: &Arguments, cluster: &Cluster) -> Result<Option<Key>, Error> {
    let namespace = arguments.connection.namespace(cluster);
    Ok(match chosen(&arguments.words)? {
        Chosen::All => None,
        Chosen::GitSync(name) => Some(Key::new("mainstay.dev", "GitSync", Some(&namespace), name)),
        Chosen::Object(kind, name) => {
            let kind = cluster.kind_called(kind).await?.ok_or_else(|| Error::UnknownKind(kind.to_owned()))?;
            Some(kind.key(Some(&namespace), name))
        }
    })
}

/// A pod of the agent. The installed agent leads with the uid of its pod.
#[derive(Debug)]
struct Pod {
    name: String,
    uid: String,
}

/// Returns the pods of the agent.
async fn pods(cluster: &Cluster, namespace: &str) -> Result<Vec<Pod>, Error> {
    let pods = cluster.kind("v1", "Pod").await?.ok_or_else(|| Error::UnknownKind("Pod".to_owned()))?;
    let selection = Selection::labelled("app.kubernetes.io/name", names::LEASE).within(namespace);
    let found: Vec<Value> = cluster.list(&pods, selection).try_collect().await?;
    let has_begun = |pod: &&Value| pod["status"]["phase"] != "Pending";
    let text = |pod: &Value, field: &str| pod["metadata"][field].as_str().map(str::to_owned);
    let pods = found.iter().filter(has_begun);
    Ok(pods.filter_map(|pod| Some(Pod { name: text(pod, "name")?, uid: text(pod, "uid")? })).collect())
}

/// Selects the lines to print.
#[derive(Default)]
struct Filter {
    about: Option<Key>,
    /// Whether the last line was printed. Indented lines belong to the line before them.
    is_shown: bool,
}

impl Filter {
    fn shows(&mut self, line: &str) -> bool {
        let Some(key) = &self.about else { return true };
        if !line.starts_with("    ") {
            self.is_shown = is_about(line, key);
        }
        self.is_shown
    }
}

/// Returns whether a line contains the object, by its kind or in a separate field.
fn is_about(line: &str, key: &Key) -> bool {
    let place = key.namespace.as_deref().map_or_else(|| key.name.to_string(), |place| format!("{place}/{}", key.name));
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '/' | '_');
    line.match_indices(&place).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + place.len()..]);
        // A period after the name may end a sentence.
        let mut rest = after.chars();
        let ends = match rest.next() {
            Some('.') => rest.next().is_none_or(|c| !is_part(c)),
            Some(c) => !is_part(c),
            None => true,
        };
        let word = before.trim_end_matches(' ').rsplit(|c: char| !is_part(c)).next().unwrap_or_default();
        let is_field = before.ends_with(['=', '"']);
        let kind = word.split('.').next().unwrap_or_default();
        ends && (is_field || before.ends_with(' ') && kind == &*key.kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_lines_about_an_object() {
        let sync = Key::new("mainstay.dev", "GitSync", Some("apps"), "shop");
        let web = Key::new("apps", "Deployment", Some("shop"), "web");
        for (line, key, expected) in [
            ("INFO mainstay::agent::notify::log: GitSync apps/shop: commit 1 applied", &sync, true),
            ("INFO GitSync.mainstay.dev apps/shop: commit 1 applied", &sync, true),
            ("WARN waits for GitSync apps/shop.", &sync, true),
            ("INFO GitSync apps/shop-2: commit 1 applied", &sync, false),
            ("INFO GitSync apps/shop.old: commit 1 applied", &sync, false),
            ("INFO GitSync my-apps/shop: commit 1 applied", &sync, false),
            ("INFO Function apps/shop: built", &sync, false),
            ("INFO GitSync apps/shop  Running  Ready", &sync, true),
            ("INFO pinned repository=\"apps/shop\"", &sync, true),
            ("INFO pinned repository=apps/shop host=x", &sync, true),
            ("{\"fields\":{\"message\":\"GitSync apps/shop: commit 1\"}}", &sync, true),
            ("INFO GitSync apps/shop: Deployment.apps shop/web: reverted", &web, true),
            ("INFO GitSync shop/web: commit 1 applied", &web, false),
        ] {
            assert_eq!(is_about(line, key), expected, "{line}");
        }
        let mut filter = Filter { about: Some(sync), is_shown: false };
        let shown = ["INFO GitSync apps/shop: reverted", "    data.a: 1 → 2", "INFO GitSync a/b: x", "    y"]
            .map(|line| filter.shows(line));
        assert_eq!(shown, [true, true, false, false]);
    }

    #[test]
    fn an_agent_beside_the_pods_is_noted() {
        let pods = [Pod { name: "mainstay-1".to_owned(), uid: "u1".to_owned() }];
        assert_eq!(not_of_a_pod(Some("u1"), &pods), None);
        assert_eq!(not_of_a_pod(None, &pods), None);
        let note = not_of_a_pod(Some("laptop-7"), &pods).unwrap();
        assert!(note.starts_with("the agent laptop-7 has no pod in this namespace"), "{note}");
    }

    #[tokio::test]
    async fn the_last_lines_about_an_object_are_printed_once_and_new_ones_after_them() {
        let sync = Key::new("mainstay.dev", "GitSync", Some("apps"), "shop");
        let printed = async |tail: Option<usize>, follow: bool| {
            let mut logs = [Log::new("a".to_owned(), Some(sync.clone())), Log::new("b".to_owned(), Some(sync.clone()))];
            let open = async |pod: &str, follow: bool| {
                let about = |number: usize| format!("INFO GitSync apps/shop: {pod}{number}");
                let mut lines = vec![about(1), "INFO other".to_owned(), about(2), "    of 2".to_owned(), about(3)];
                if follow {
                    lines.extend(["    of 3".to_owned(), "INFO other".to_owned(), about(4)]);
                }
                Ok(stream::iter(lines.into_iter().map(Ok)).boxed())
            };
            let mut shown = Vec::new();
            let print_line = |line: &str| {
                shown.push(line.trim_start().replace("INFO GitSync apps/shop: ", ""));
                Ok(ControlFlow::Continue(()))
            };
            print(&mut logs, tail, follow, open, print_line).await.unwrap();
            shown.join(" ").replace("of ", "of-")
        };
        assert_eq!(printed(Some(3), false).await, "b2 of-2 b3");
        assert_eq!(printed(Some(0), false).await, "");
        let followed = printed(Some(2), true).await;
        assert!(followed.starts_with("of-2 b3 "), "{followed}");
        let mut new: Vec<_> = followed.split(' ').skip(2).collect();
        new.sort_unstable();
        assert_eq!(new, ["a4", "b4", "of-3", "of-3"], "a line that belongs to one that was read is shown, too");
        assert_eq!(printed(None, true).await.split(' ').count(), 12);
    }
}
