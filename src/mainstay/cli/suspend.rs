//! `mainstay suspend` and `mainstay resume` for one or several GitSyncs.
//!
//! A suspension stops applies, deletions, reverts and the prevention of manual changes for all objects of a GitSync.
//! The objects and the GitSync's claims on them stay. At `spec.suspendUntil`, the agent ends the suspension, unless
//! `spec.suspend` is true.
//!
//! Invariant: only `spec.suspend` and `spec.suspendUntil` are written, by a merge patch.

use std::sync::Arc;

use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};

use super::{
    Error, Exit, completion,
    connection::{WideConnection, own_kind},
    get::resource::{GIT_SYNCS, Resource, counterpart_hint},
    length::at_least_a_second,
    object_name,
    output::{OutputArgument, note, print},
    syncs,
};
use mainstay_api::{GitSync, Span, requests};
use mainstay_cluster::{Cluster, Kind, Part};

/// Arguments of `suspend`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    chosen: Choice,
    /// Duration of the suspension, such as 30m or 2h; by default until `mainstay resume`
    #[arg(long = "for", value_name = "DURATION", value_parser = at_least_a_second)]
    length: Option<Span>,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: WideConnection,
}

/// The arguments that select GitSyncs.
#[derive(clap::Args, Debug)]
pub(super) struct Choice {
    /// Name of the GitSync: shop, gitsync/shop or gitsync shop
    #[arg(id = "name", value_name = "NAME", num_args = 1..=2, required_unless_present_any = ["all", "all_namespaces"], add = ArgValueCompleter::new(completion::git_syncs))]
    words: Vec<String>,
    /// All GitSyncs of the namespace
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// The object or objects that the arguments specify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen<'a> {
    /// The GitSync with this name.
    GitSync(&'a str),
    /// An object of another kind: its kind and its name.
    Object(&'a str, &'a str),
    /// All GitSyncs of the namespace, or of the cluster.
    All,
}

impl Choice {
    /// Parses the arguments.
    pub(super) fn chosen(&self) -> Result<Chosen<'_>, Error> {
        chosen(&self.words)
    }
}

/// Parses the arguments: none, `shop`, `gitsync/shop`, `gitsync shop`, `deploy/web`, or `deploy web`.
pub(super) fn chosen(words: &[String]) -> Result<Chosen<'_>, Error> {
    let (first, second) = match words {
        [] => return Ok(Chosen::All),
        [name] if !name.contains('/') => return Ok(Chosen::GitSync(name)),
        [first, rest @ ..] => (first, rest.first()),
    };
    let (kind, name) = object_name::kind_and_name(first, second.map(String::as_str))
        .ok_or_else(|| Error::NotAnObject { kind: first.clone(), name: second.cloned() })?;
    let is_git_sync = Resource::named(kind) == Some(GIT_SYNCS);
    Ok(if is_git_sync { Chosen::GitSync(name) } else { Chosen::Object(kind, name) })
}

/// Parses the name of a GitSync from `shop`, `gitsync/shop` or `gs/shop`, for commands that accept no other kind.
pub(super) fn git_sync_name(text: &str) -> Result<String, String> {
    match chosen(&[text.to_owned()]) {
        Ok(Chosen::GitSync(name)) if !name.is_empty() => Ok(name.to_owned()),
        Ok(Chosen::Object(kind, name)) => Err(counterpart_hint(&format!("{kind}/{name}"))
            .unwrap_or_else(|| "write the name of a GitSync: shop or gitsync/shop".to_owned())),
        _ => Err("write the name of a GitSync: shop or gitsync/shop".to_owned()),
    }
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let until = arguments.length.map(|Span(length)| requests::end_of(jiff::Timestamp::now(), length));
    let patch = requests::suspend(until.as_deref());
    let changed = change(&arguments.connection, arguments.chosen.chosen()?, &patch).await?;
    let end = until.as_ref().map_or_else(|| "`mainstay resume`".to_owned(), Clone::clone);
    report(arguments.output, &changed, &json!({ "suspended": true, "until": until }), |sync| {
        format!("{} is suspended until {end}\n", syncs::name(sync))
    })
}

/// Ends the suspension and the pause of GitSyncs.
pub(super) async fn resume(
    connection: &WideConnection,
    chosen: Chosen<'_>,
    output: OutputArgument,
) -> Result<Exit, Error> {
    let changed = change(connection, chosen, &requests::resume()).await?;
    report(output, &changed, &json!({ "suspended": false, "until": null }), |sync| {
        format!("{} follows its repository again\n", syncs::name(sync))
    })
}

/// The GitSyncs that were changed, and those whose change was refused.
struct Changed {
    changed: Vec<GitSync>,
    refused: Vec<(String, Error)>,
}

/// Patches the GitSyncs. A GitSync that is named must exist. If one of several is refused, the others are changed
/// nevertheless.
async fn change(connection: &WideConnection, chosen: Chosen<'_>, patch: &Value) -> Result<Changed, Error> {
    let cluster = connection.connection.connect().await?;
    let kind = own_kind::<GitSync>(&cluster).await?;
    let namespace = connection.connection.namespace(&cluster);
    let name = match chosen {
        Chosen::GitSync(name) => Some(name),
        Chosen::All => None,
        Chosen::Object(kind, name) => return Err(Error::NotAGitSync { what: format!("{kind}/{name}") }),
    };
    if let Some(name) = name {
        let changed = vec![write(&cluster, &kind, &namespace, name, patch).await?];
        return Ok(Changed { changed, refused: Vec::new() });
    }
    let (mut changed, mut refused) = (Vec::new(), Vec::new());
    for sync in syncs::select(&cluster, &kind, &connection.selection(&cluster, None)).await? {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or(&namespace);
        match write(&cluster, &kind, namespace, sync.metadata.name.as_deref().unwrap_or_default(), patch).await {
            Ok(sync) => changed.push(sync),
            Err(error) => refused.push((syncs::name(&sync), error)),
        }
    }
    Ok(Changed { changed, refused })
}

async fn write(
    cluster: &Cluster,
    kind: &Arc<Kind>,
    namespace: &str,
    name: &str,
    patch: &Value,
) -> Result<GitSync, Error> {
    match cluster.patch_merge(kind, Some(namespace), name, Part::Main, patch).await {
        Err(error) if error.is_not_found() => Err(Error::Missing { what: format!("GitSync {namespace}/{name}") }),
        answer => syncs::understand(answer?),
    }
}

/// Prints a line per GitSync, or the facts. Prints refusals to standard error.
fn report(
    output: OutputArgument,
    Changed { changed, refused }: &Changed,
    facts: &Value,
    line: impl Fn(&GitSync) -> String,
) -> Result<Exit, Error> {
    if output.is_text() {
        print(&changed.iter().map(line).collect::<String>())?;
    } else {
        let fact = |sync: &GitSync| {
            json!({
                "namespace": sync.metadata.namespace, "name": sync.metadata.name,
                "suspended": facts["suspended"], "until": facts["until"],
            })
        };
        output.print(&json!({ "items": changed.iter().map(fact).collect::<Vec<_>>() }), String::new)?;
    }
    note(&syncs::failures(refused));
    Ok(if refused.is_empty() { Exit::Fine } else { Exit::Failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_git_sync_may_follow_its_kind() {
        for text in ["shop", "gitsync/shop", "gs/shop", "GitSync/shop", "gitsyncs.mainstay.dev/shop"] {
            assert_eq!(git_sync_name(text).as_deref(), Ok("shop"), "{text}");
        }
        for text in ["", "deploy/web", "gitsync/", "/shop", "apps/shop/x"] {
            assert!(git_sync_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn words_name_a_git_sync_or_another_object() {
        let check = |line: &str, expected: Option<Chosen<'_>>| {
            let words = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(Choice { words, all: false }.chosen().ok(), expected, "{line}");
        };
        for line in ["shop", "gitsync/shop", "gs/shop", "gitsyncs.mainstay.dev/shop", "gitsync shop"] {
            check(line, Some(Chosen::GitSync("shop")));
        }
        check("", Some(Chosen::All));
        check("deploy/web", Some(Chosen::Object("deploy", "web")));
        check("deploy web", Some(Chosen::Object("deploy", "web")));
        for line in ["deploy/", "/web", "a/b/c", "deploy/web web"] {
            check(line, None);
        }
    }
}
