//! `mainstay pause` and `mainstay resume`: break glass on one live object.
//!
//! Invariant: only the two break-glass annotations are written, by a merge patch of the metadata.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Error, Exit, connection::Connection, output};
use crate::{
    api::{Span, names},
    cluster::{Cluster, Kind, Part},
};

/// Which object.
#[derive(clap::Args, Debug)]
pub(super) struct Target {
    /// Kind as kubectl takes it: Deployment, deployments, deploy, deployments.apps
    kind: String,
    /// Name of the object
    name: String,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `pause`.
#[derive(clap::Args, Debug)]
pub(super) struct Pause {
    #[command(flatten)]
    target: Target,
    /// End by itself after this long, such as 30m or 2h; without it, `mainstay resume` ends it
    #[arg(long = "for", value_name = "DURATION")]
    length: Option<Span>,
}

pub(super) async fn pause(arguments: &Pause) -> Result<Exit, Error> {
    let until = arguments.length.map(|Span(length)| {
        let end = jiff::Timestamp::now().saturating_add(length).unwrap_or(jiff::Timestamp::MAX);
        end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    });
    let found = Found::locate(&arguments.target).await?;
    let live = found.annotate(Some(names::DISABLED), until.as_deref()).await?;
    let mut text = format!("{} is paused", found.what());
    match until {
        Some(until) => text.push_str(&format!(" until {until}\n")),
        None => text.push_str(&format!(" until `mainstay resume {}`\n", found.words())),
    }
    if live["metadata"]["labels"][names::SYNC_LABEL].is_null() {
        text.push_str("No GitSync manages it, so nothing would have changed it back.\n");
    }
    output::print(&text)?;
    Ok(Exit::Fine)
}

pub(super) async fn resume(target: &Target) -> Result<Exit, Error> {
    let found = Found::locate(target).await?;
    found.annotate(None, None).await?;
    output::print(&format!("{} follows its repository again\n", found.what()))?;
    Ok(Exit::Fine)
}

/// The object, located but not read.
struct Found {
    cluster: Cluster,
    kind: Arc<Kind>,
    namespace: String,
    name: String,
}

impl Found {
    async fn locate(target: &Target) -> Result<Self, Error> {
        let cluster = target.connection.connect().await?;
        let namespace = target.connection.namespace(&cluster);
        let kind = cluster.kind_called(&target.kind).await?;
        let kind = kind.ok_or_else(|| Error::UnknownKind(target.kind.clone()))?;
        Ok(Self { cluster, kind, namespace, name: target.name.clone() })
    }

    fn what(&self) -> String {
        self.kind.key(Some(&self.namespace), &self.name).to_string()
    }

    /// The arguments that name it.
    fn words(&self) -> String {
        let namespace = if self.kind.namespaced { format!(" -n {}", self.namespace) } else { String::new() };
        format!("{} {}{namespace}", self.kind.resource, self.name)
    }

    /// Sets or, with `None`, removes the two annotations; returns the live object.
    async fn annotate(&self, reconcile: Option<&str>, until: Option<&str>) -> Result<Value, Error> {
        let patch = json!({ "metadata": { "annotations": { names::RECONCILE: reconcile, names::UNTIL: until } } });
        let answer = self.cluster.patch_merge(&self.kind, Some(&self.namespace), &self.name, Part::Main, &patch).await;
        match answer {
            Err(error) if error.is_not_found() => Err(Error::Missing { what: self.what() }),
            answer => Ok(answer?),
        }
    }
}
