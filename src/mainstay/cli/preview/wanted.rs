//! The two sides of a preview, and their comparison.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

use super::markdown;
use super::remote::{self, Git};
use super::report::{Named, PreviewOutput, Report};
use crate::cli::connection::{Connection, own_kind};
use crate::cli::dev_run::DevRun;
use crate::cli::{Error, Exit, logs, output, syncs};
use mainstay_api::GitSync;
use mainstay_cluster::Cluster;
use mainstay_git::{Expression, Remote};
use mainstay_gitsync::{Preview, Revision};
use mainstay_object::Owner;
use mainstay_object::egress::Egress;
use mainstay_object::failure::chain;

/// Flags that compare something else than what the agent has found.
#[derive(clap::Args, Debug, Default)]
pub(in crate::cli) struct Wanted {
    /// Preview the changes of the GitSync for the saved files of the work tree that contains DIR; files that Git
    /// ignores are skipped
    #[arg(long, value_name = "DIR", requires = "name", conflicts_with = "revision", help_heading = "Before a commit")]
    path: Option<PathBuf>,
    /// Preview the changes of a revision of the GitSync's repository: a branch, tag, commit, reference such as
    /// refs/pull/7/head, or an ancestor of one, such as HEAD~3
    #[arg(long, value_name = "REF", requires = "name", value_parser = expression, help_heading = "Before a commit")]
    revision: Option<Expression>,
    /// Local repository to read revisions from, instead of the GitSync's
    #[arg(long, value_name = "DIR", requires = "name", help_heading = "Before a commit")]
    repository: Option<PathBuf>,
    /// Revision to compare with instead of the cluster, whose objects are then not read
    #[arg(long, value_name = "REF", requires = "name", value_parser = expression, help_heading = "Before a commit")]
    against: Option<Expression>,
    /// File with the GitSync to use, instead of the one in the cluster
    #[arg(long, value_name = "FILE", requires = "name", help_heading = "Before a commit")]
    git_sync: Option<PathBuf>,
    /// File with saved objects to compare with, without contacting a cluster: YAML or JSON, as from `kubectl get KINDS
    /// -A -o yaml --show-managed-fields`. It includes the GitSync and the objects that it names; may be repeated
    #[cfg(feature = "dev")]
    #[arg(
        long,
        value_name = "FILE",
        requires = "name",
        conflicts_with = "kubeconfig",
        help_heading = "Before a commit"
    )]
    snapshot: Vec<PathBuf>,
}

fn expression(text: &str) -> Result<Expression, String> {
    Expression::parse(text).map_err(|error| chain(&error))
}

impl Wanted {
    /// Returns whether a flag asks for a preview.
    pub(in crate::cli) fn is_any(&self) -> bool {
        self.is_offline()
            || self.path.is_some()
            || self.revision.is_some()
            || self.repository.is_some()
            || self.against.is_some()
            || self.git_sync.is_some()
    }

    #[cfg(feature = "dev")]
    fn is_offline(&self) -> bool {
        !self.snapshot.is_empty()
    }

    #[cfg(not(feature = "dev"))]
    fn is_offline(&self) -> bool {
        false
    }

    /// Connects to the cluster, or loads a snapshot of one. The strings are notes about data that the snapshot lacks.
    #[cfg(feature = "dev")]
    async fn cluster(&self, connection: &Connection) -> Result<(Cluster, Vec<String>), Error> {
        if self.snapshot.is_empty() {
            return Ok((connection.connect().await?, Vec::new()));
        }
        let snapshot = crate::cli::dev::snapshot::load(&self.snapshot).await?;
        Ok((snapshot.cluster, snapshot.notes))
    }

    #[cfg(not(feature = "dev"))]
    async fn cluster(&self, connection: &Connection) -> Result<(Cluster, Vec<String>), Error> {
        Ok((connection.connect().await?, Vec::new()))
    }
}

/// Compares the two sides and prints the differences.
pub(in crate::cli) async fn diff(
    wanted: &Wanted,
    name: &str,
    connection: &Connection,
    output: PreviewOutput,
) -> Result<Exit, Error> {
    // The agent's log lines are no part of a preview.
    logs::start(logs::Format::Text, "off");
    let (cluster, notes) = wanted.cluster(connection).await?;
    let namespace = connection.namespace(&cluster);
    let sync = find(&cluster, &namespace, name, wanted.git_sync.as_deref()).await?;
    let run = connection.dev_run();
    let report = Box::pin(Comparison { cluster: &cluster, run: &run, wanted, notes }.report(sync)).await?;
    match output.plain() {
        Some(plain) => plain.print(&report.facts(), || report.text())?,
        None => output::print(&markdown::comment(&report))?,
    }
    Ok(report.exit())
}

/// Previews a sync of the revision that the GitSync follows.
pub(in crate::cli) async fn dry_run(cluster: &Cluster, run: &DevRun, sync: GitSync) -> Result<Report, Error> {
    logs::start(logs::Format::Text, "off");
    Box::pin(Comparison { cluster, run, wanted: &Wanted::default(), notes: Vec::new() }.report(sync)).await
}

/// Reads the GitSync from the file, or from the cluster if no file is given.
async fn find(cluster: &Cluster, namespace: &str, name: &str, file: Option<&Path>) -> Result<GitSync, Error> {
    let Some(file) = file else {
        let kind = own_kind::<GitSync>(cluster).await?;
        return syncs::read(cluster, &kind, namespace, name).await;
    };
    let text = fs::read_to_string(file).map_err(|cause| Error::ReadFile { path: file.to_owned(), cause })?;
    let documents = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    let is_named = |value: &Value| {
        let metadata = &value["metadata"];
        let is_here = metadata["namespace"].as_str().is_none_or(|there| there == namespace);
        value["kind"] == "GitSync" && metadata["name"] == name && is_here
    };
    let documents: Vec<Value> =
        documents.collect::<Result<_, _>>().map_err(|cause| Error::ReadYaml { path: file.to_owned(), cause })?;
    let found = documents.into_iter().find(is_named);
    let missing = || Error::Missing { what: format!("GitSync {namespace}/{name} in {}", file.display()) };
    let mut written: GitSync = syncs::understand(found.ok_or_else(missing)?)?;
    written.metadata.namespace = Some(namespace.to_owned());
    // Adds data of the live GitSync, which contains the objects that it has applied.
    if let Some(kind) = cluster.kind("mainstay.dev/v1alpha1", "GitSync").await?
        && let Some(live) = cluster.get(&kind, Some(namespace), name).await?
    {
        let live: GitSync = syncs::understand(live)?;
        (written.metadata.uid, written.status) = (live.metadata.uid, live.status);
    }
    Ok(written)
}

/// A comparison of two sides.
struct Comparison<'a> {
    cluster: &'a Cluster,
    /// The `mainstay dev` to which the cluster belongs, if any.
    run: &'a DevRun,
    wanted: &'a Wanted,
    /// Notes about data that the loaded cluster lacks.
    notes: Vec<String>,
}

impl Comparison<'_> {
    /// Returns the addresses that the kubeconfig of a remote cluster may lead to. A snapshot may be of any cluster.
    fn egress(&self) -> Egress {
        if self.wanted.is_offline() { Egress::OffMachine } else { self.run.egress() }
    }

    async fn report(&self, sync: GitSync) -> Result<Report, Error> {
        let Self { cluster, wanted, notes, .. } = self;
        let git = Git::new(cluster).await?;
        let path = std::env::var_os("PATH");
        let renderers = Preview::renderers(path.as_deref(), &git.scratch());
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let owner = Owner::git_sync(&text(&sync.metadata.namespace), &text(&sync.metadata.name));
        let source = git.source.clone();
        let mut preview = Preview::of(Cluster::clone(cluster), source, renderers, sync.clone(), self.egress()).await?;
        let (remote, reference, refused) = if let Some(directory) = &wanted.path {
            let (mut remote, reference) = git.work_tree(directory)?;
            remote.submodules = remote::has_submodules(cluster, &sync).await;
            (remote, reference, None)
        } else {
            let (remote, refused) = self.remote(&preview, &sync).await?;
            let reference = match &wanted.revision {
                Some(expression) => git.resolve(&remote, expression).await?,
                None => preview.followed().clone(),
            };
            (remote, reference, refused)
        };
        let revision = preview.read(&remote, &reference).await?;
        let revision = if wanted.path.is_some() { revision.of_work_tree() } else { revision };
        let named = if wanted.path.is_some() { Named::work_tree() } else { Named::revision(&revision) };
        let mut masked = None;
        let (mut changes, against) = match &wanted.against {
            None => {
                let against = if wanted.is_offline() { "the snapshot" } else { "the cluster" };
                masked = preview.look_at_applied(&remote, &revision).await;
                (preview.against_cluster(&revision).await?, against.to_owned())
            }
            Some(expression) => {
                let (remote, _) = self.remote(&preview, &sync).await?;
                let reference = git.resolve(&remote, expression).await?;
                let before: Revision = preview.read(&remote, &reference).await?;
                (Preview::between(&before, &revision), Named::revision(&before).what)
            }
        };
        changes.notes.extend(refused.map(|why| format!("the agent would refuse this commit: {why}")));
        changes.notes.extend(revision.notes.iter().cloned());
        changes.notes.extend(masked);
        if wanted.against.is_none() {
            changes.notes.extend(preview.held_back());
            changes.notes.extend(notes.iter().cloned());
        }
        Ok(Report::of(owner, named, against, changes, &preview.secret_values()))
    }

    /// Returns the repository of the revisions, and the reason if the agent cannot use that repository.
    async fn remote(&self, preview: &Preview, sync: &GitSync) -> Result<(Remote, Option<String>), Error> {
        match self.wanted.repository.as_ref().or(self.wanted.path.as_ref()) {
            Some(directory) => {
                let mut remote = remote::of_this_machine(directory)?;
                remote.submodules = remote::has_submodules(self.cluster, sync).await;
                Ok((remote, None))
            }
            None => remote::of_sync(self.cluster, self.run, preview, sync).await,
        }
    }
}
