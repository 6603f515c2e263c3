//! `mainstay pause` and `mainstay resume`: pause reconciliation of one live object.
//!
//! Invariant: only the two pause annotations are written, by a merge patch of the metadata.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Error, Exit,
    connection::{Connection, WideConnection},
    length::at_least_a_second,
    object_name::{self, ObjectArguments},
    output::OutputArgument,
    suspend::{self, Choice, Chosen},
};
use mainstay_api::{Span, names, requests};
use mainstay_cluster::{Cluster, Kind, Part};
use mainstay_object::Key;

/// Arguments of `pause`.
#[derive(clap::Args, Debug)]
pub(super) struct PauseArguments {
    #[command(flatten)]
    target: ObjectArguments,
    /// Duration of the pause, such as 30m or 2h; by default until `mainstay resume`
    #[arg(long = "for", value_name = "DURATION", value_parser = at_least_a_second)]
    length: Option<Span>,
}

pub(super) async fn pause(arguments: &PauseArguments) -> Result<Exit, Error> {
    let until = arguments.length.map(|Span(length)| requests::end_of(jiff::Timestamp::now(), length));
    let (kind, name) = arguments.target.kind_and_name()?;
    let found = FoundObject::locate(kind, name, &arguments.target.connection).await?;
    let live = found.annotate(&requests::pause(until.as_deref())).await?;
    let is_managed = !live["metadata"]["labels"][names::SYNC_LABEL].is_null();
    let facts = json!({
        "object": object_name::facts(&found.key()), "paused": true, "until": until, "managed": is_managed,
    });
    let mut text = format!("{} is paused", found.key());
    match until {
        Some(until) => text.push_str(&format!(" until {until}\n")),
        None => text.push_str(&format!(" until `mainstay resume {}`\n", found.command_arguments())),
    }
    if !is_managed {
        text.push_str("No GitSync manages it, so nothing would have reverted it.\n");
    }
    arguments.target.output.print(&facts, || text)?;
    Ok(Exit::Fine)
}

/// Arguments of `resume`.
#[derive(clap::Args, Debug)]
pub(super) struct ResumeArguments {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: WideConnection,
}

pub(super) async fn resume(arguments: &ResumeArguments) -> Result<Exit, Error> {
    let (kind, name) = match arguments.choice.chosen()? {
        Chosen::Object(kind, name) => (kind, name),
        chosen => return suspend::resume(&arguments.connection, chosen, arguments.output).await,
    };
    let found = FoundObject::locate(kind, name, &arguments.connection.connection).await?;
    found.annotate(&requests::end_pause()).await?;
    let facts = json!({ "object": object_name::facts(&found.key()), "paused": false });
    arguments.output.print(&facts, || format!("{} follows its repository again\n", found.key()))?;
    Ok(Exit::Fine)
}

/// The object, whose kind, namespace and name are known, but which was not read.
struct FoundObject {
    cluster: Cluster,
    kind: Arc<Kind>,
    namespace: String,
    name: String,
}

impl FoundObject {
    async fn locate(called: &str, name: &str, connection: &Connection) -> Result<Self, Error> {
        let cluster = connection.connect().await?;
        let namespace = connection.namespace(&cluster);
        let kind = cluster.kind_called(called).await?;
        let kind = kind.ok_or_else(|| Error::UnknownKind(called.to_owned()))?;
        Ok(Self { cluster, kind, namespace, name: name.to_owned() })
    }

    fn key(&self) -> Key {
        self.kind.key(Some(&self.namespace), &self.name)
    }

    /// Returns the arguments that specify the object in a command.
    fn command_arguments(&self) -> String {
        let namespace = if self.kind.namespaced { format!(" -n {}", self.namespace) } else { String::new() };
        format!("{} {}{namespace}", self.kind.resource, self.name)
    }

    /// Patches the two pause annotations. Returns the live object.
    async fn annotate(&self, patch: &Value) -> Result<Value, Error> {
        let answer = self.cluster.patch_merge(&self.kind, Some(&self.namespace), &self.name, Part::Main, patch).await;
        match answer {
            Err(error) if error.is_not_found() => Err(Error::Missing { what: self.key().to_string() }),
            answer => Ok(answer?),
        }
    }
}
