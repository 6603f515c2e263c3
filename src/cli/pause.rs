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

/// The object, for `pause` and `resume`.
#[derive(clap::Args, Debug)]
pub(super) struct ObjectArguments {
    /// Kind as kubectl takes it: Deployment, deployments, deploy, deployments.apps
    kind: String,
    /// Name of the object
    name: String,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `pause`.
#[derive(clap::Args, Debug)]
pub(super) struct PauseArguments {
    #[command(flatten)]
    target: ObjectArguments,
    /// End the break glass after this time, such as 30m or 2h; by default it lasts until `mainstay resume`
    #[arg(long = "for", value_name = "DURATION")]
    length: Option<Span>,
}

pub(super) async fn pause(arguments: &PauseArguments) -> Result<Exit, Error> {
    let until = arguments.length.map(|Span(length)| {
        let end = jiff::Timestamp::now().saturating_add(length).unwrap_or(jiff::Timestamp::MAX);
        end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    });
    let found = FoundObject::locate(&arguments.target).await?;
    let live = found.annotate(Some(names::DISABLED), until.as_deref()).await?;
    let mut text = format!("{} is paused", found.key());
    match until {
        Some(until) => text.push_str(&format!(" until {until}\n")),
        None => text.push_str(&format!(" until `mainstay resume {}`\n", found.command_arguments())),
    }
    if live["metadata"]["labels"][names::SYNC_LABEL].is_null() {
        text.push_str("No GitSync manages it, so nothing would have changed it back.\n");
    }
    output::print(&text)?;
    Ok(Exit::Fine)
}

pub(super) async fn resume(arguments: &ObjectArguments) -> Result<Exit, Error> {
    let found = FoundObject::locate(arguments).await?;
    found.annotate(None, None).await?;
    output::print(&format!("{} follows its repository again\n", found.key()))?;
    Ok(Exit::Fine)
}

/// The object, located but not read.
struct FoundObject {
    cluster: Cluster,
    kind: Arc<Kind>,
    namespace: String,
    name: String,
}

impl FoundObject {
    async fn locate(arguments: &ObjectArguments) -> Result<Self, Error> {
        let cluster = arguments.connection.connect().await?;
        let namespace = arguments.connection.namespace(&cluster);
        let kind = cluster.kind_called(&arguments.kind).await?;
        let kind = kind.ok_or_else(|| Error::UnknownKind(arguments.kind.clone()))?;
        Ok(Self { cluster, kind, namespace, name: arguments.name.clone() })
    }

    fn key(&self) -> String {
        self.kind.key(Some(&self.namespace), &self.name).to_string()
    }

    /// The arguments that name it.
    fn command_arguments(&self) -> String {
        let namespace = if self.kind.namespaced { format!(" -n {}", self.namespace) } else { String::new() };
        format!("{} {}{namespace}", self.kind.resource, self.name)
    }

    /// Sets or, with `None`, removes the two annotations; returns the live object.
    async fn annotate(&self, reconcile: Option<&str>, until: Option<&str>) -> Result<Value, Error> {
        let patch = json!({ "metadata": { "annotations": { names::RECONCILE: reconcile, names::UNTIL: until } } });
        let answer = self.cluster.patch_merge(&self.kind, Some(&self.namespace), &self.name, Part::Main, &patch).await;
        match answer {
            Err(error) if error.is_not_found() => Err(Error::Missing { what: self.key() }),
            answer => Ok(answer?),
        }
    }
}
