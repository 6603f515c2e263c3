//! `mainstay pause` and `mainstay resume`: break glass on one live object.
//!
//! Invariant: only the two break-glass annotations are written, by a merge patch of the metadata.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Error, Exit,
    object_name::{self, ObjectArguments},
};
use mainstay_api::{NotADuration, Span, names};
use mainstay_cluster::{Cluster, Kind, Part};
use mainstay_object::Key;

/// Arguments of `pause`.
#[derive(clap::Args, Debug)]
pub(super) struct PauseArguments {
    #[command(flatten)]
    target: ObjectArguments,
    /// End the break glass after this time, such as 30m or 2h; by default it lasts until `mainstay resume`
    #[arg(long = "for", value_name = "DURATION", value_parser = at_least_a_second)]
    length: Option<Span>,
}

pub(super) async fn pause(arguments: &PauseArguments) -> Result<Exit, Error> {
    let until = arguments.length.map(|Span(length)| end(jiff::Timestamp::now(), length));
    let found = FoundObject::locate(&arguments.target).await?;
    let live = found.annotate(Some(names::DISABLED), until.as_deref()).await?;
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
        text.push_str("No GitSync manages it, so nothing would have changed it back.\n");
    }
    arguments.target.output.print(&facts, || text)?;
    Ok(Exit::Fine)
}

/// An end that is over before anybody can see it is a mistake.
fn at_least_a_second(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: NotADuration| error.to_string())?;
    if span.0 < Duration::from_secs(1) { Err("at least 1s".to_owned()) } else { Ok(span) }
}

/// When a length of time is over, in whole seconds and not sooner.
fn end(now: Timestamp, length: Duration) -> String {
    let end = now.saturating_add(length).and_then(|end| end.saturating_add(Duration::from_nanos(999_999_999)));
    end.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(super) async fn resume(arguments: &ObjectArguments) -> Result<Exit, Error> {
    let found = FoundObject::locate(arguments).await?;
    found.annotate(None, None).await?;
    let facts = json!({ "object": object_name::facts(&found.key()), "paused": false });
    arguments.output.print(&facts, || format!("{} follows its repository again\n", found.key()))?;
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
        let (called, name) = arguments.kind_and_name()?;
        let cluster = arguments.connection.connect().await?;
        let namespace = arguments.connection.namespace(&cluster);
        let kind = cluster.kind_called(called).await?;
        let kind = kind.ok_or_else(|| Error::UnknownKind(called.to_owned()))?;
        Ok(Self { cluster, kind, namespace, name: name.to_owned() })
    }

    fn key(&self) -> Key {
        self.kind.key(Some(&self.namespace), &self.name)
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
            Err(error) if error.is_not_found() => Err(Error::Missing { what: self.key().to_string() }),
            answer => Ok(answer?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_in_whole_seconds_and_not_sooner() {
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!(end(at(0), Duration::from_secs(60)), "1970-01-01T00:01:00Z");
        assert_eq!(end(at(900), Duration::from_secs(1)), "1970-01-01T00:00:02Z");
    }

    #[test]
    fn a_length_of_nothing_is_refused() {
        for text in ["0s", "0h0m", "999ms", "", "tomorrow"] {
            assert!(at_least_a_second(text).is_err(), "{text}");
        }
        assert_eq!(at_least_a_second("1h30m").map(|span| span.0.as_secs()), Ok(5400));
    }
}
