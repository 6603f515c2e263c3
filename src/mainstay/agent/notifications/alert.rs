//! The known Alerts and their statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;
use tokio::time::Instant;

use super::context::{Context, MOST};
use super::status;
use crate::agent::kept::Name;
use crate::agent::leading::Reporting;
use crate::agent::own_kinds::{self, Object, State};
use crate::agent::status_write::{Refusals, StatusWrite};
use mainstay_api::AlertSpec;
use mainstay_api::conditions::Reason;
use mainstay_cluster::Kind;
use mainstay_notification::Selection;
use mainstay_object::Digest;

/// An Alert, as read from the watch.
#[derive(Clone, PartialEq)]
pub(super) struct Known {
    pub(super) object: Object<AlertSpec>,
    /// Digest of the conditions. Those that another agent has written are a change, so they are known before this agent
    /// leads.
    conditions: Digest,
}

/// Reads an Alert of a watch.
pub(super) fn read(live: &Value) -> Result<Option<Known>, String> {
    let conditions = Digest::of(live["status"]["conditions"].to_string().as_bytes());
    Ok(own_kinds::read(live)?.map(|object| Known { object, conditions }))
}

struct Entry {
    provider: String,
    generation: Option<i64>,
    /// The state, under the assumption that the Alert's Provider exists.
    state: State,
    conditions: Vec<Condition>,
    /// The refused writes of the status.
    refusals: Refusals,
}

impl Entry {
    fn has_room(&self) -> bool {
        self.state.reason != Reason::MemoryExhausted
    }
}

/// All Alerts.
pub(super) struct Alerts {
    context: Arc<Context>,
    kind: Kind,
    entries: BTreeMap<Name, Entry>,
    /// The Alerts whose status may have to be written.
    due: BTreeSet<Name>,
    reporting: Reporting,
}

impl Alerts {
    pub(super) fn new(context: Arc<Context>) -> Self {
        let (kind, reporting) = (Kind::of::<mainstay_api::Alert>(), Reporting::new(&context.leads));
        Self { context, kind, entries: BTreeMap::new(), due: BTreeSet::new(), reporting }
    }

    /// Waits until the agent begins to lead, and the statuses have to be compared. Cancel-safe.
    pub(super) async fn begins_to_report(&mut self) {
        self.reporting.begins().await;
    }

    /// Sets an Alert. `conditions` are the conditions of the live object.
    pub(super) fn set(&mut self, name: &Name, alert: &Object<AlertSpec>, conditions: Vec<Condition>) {
        let (selection, state) = self.selected(name, alert);
        let provider = alert.spec.provider_ref.name.clone();
        self.context.notifier.outbox().set_alert(name, selection.map(|selection| (provider.clone(), selection)));
        let refusals = self.entries.get(name).map(|entry| entry.refusals).unwrap_or_default();
        let entry = Entry { provider, generation: alert.generation, state, conditions, refusals };
        self.entries.insert(name.clone(), entry);
        self.due.insert(name.clone());
    }

    /// Sets the conditions of an Alert that is otherwise unchanged.
    pub(super) fn set_conditions(&mut self, name: &Name, conditions: Vec<Condition>) {
        // Once they are compared, this agent is the writer, and the watch shows its earlier writes.
        if self.reporting.is_on() && !self.reporting.must_read() {
            return;
        }
        if let Some(entry) = self.entries.get_mut(name) {
            entry.conditions = conditions;
            self.due.insert(name.clone());
        }
    }

    fn selected(&self, name: &Name, alert: &Object<AlertSpec>) -> (Option<Selection>, State) {
        let spec = &alert.spec;
        if spec.suspend {
            return (None, State::not_ready(Reason::Suspended, "suspended: nothing is sent"));
        }
        let others =
            self.entries.iter().filter(|(other, entry)| other.0 == name.0 && *other != name && entry.has_room());
        if others.count() >= MOST {
            let message = format!("this namespace has {MOST} Alerts, and the agent keeps no more; delete one");
            return (None, State::not_ready(Reason::MemoryExhausted, message));
        }
        match Selection::new(spec, &alert.identity(name), self.context.trusted.contains(&name.0)) {
            Err(problems) => (None, State::invalid(Reason::SpecInvalid, &problems)),
            Ok(selection) => {
                let mut parts = vec![format!("sends to Provider {}", spec.provider_ref.name)];
                parts.extend(selection.without_effect.iter().cloned());
                (Some(selection), State::ready(Reason::Sending, parts.join("; ")))
            }
        }
    }

    /// Returns an Alert of the namespace that exceeded the maximum number, with its conditions.
    pub(super) fn without_room(&self, namespace: &str) -> Option<(Name, Vec<Condition>)> {
        let waiting = self.entries.iter().find(|(name, entry)| name.0 == namespace && !entry.has_room());
        waiting.map(|(name, entry)| (name.clone(), entry.conditions.clone()))
    }

    pub(super) fn remove(&mut self, name: &Name) {
        self.context.notifier.outbox().set_alert(name, None);
        self.entries.remove(name);
        self.due.remove(name);
    }

    /// Schedules a check of the Alerts of a Provider that appeared or disappeared.
    pub(super) fn provider_changed(&mut self, (namespace, provider): &Name) {
        let of = |(name, entry): &(&Name, &Entry)| name.0 == *namespace && entry.provider == *provider;
        let due: Vec<Name> = self.entries.iter().filter(of).map(|(name, _)| name.clone()).collect();
        self.due.extend(due);
    }

    /// Writes the statuses that changed if this agent leads. All Alerts are due until then. Returns when the first refused
    /// write may be repeated.
    pub(super) async fn report<T>(&mut self, providers: &BTreeMap<Name, T>, now: Timestamp) -> Option<Instant> {
        if !self.reporting.is_on() {
            return None;
        }
        // The watch shows the conditions that the former leader has written.
        self.reporting.set_current();
        let (mut failed, mut again) = (BTreeSet::new(), None::<Instant>);
        for name in std::mem::take(&mut self.due) {
            let Some(entry) = self.entries.get_mut(&name) else { continue };
            let is_orphan = entry.state.reason == Reason::Sending
                && !providers.contains_key(&(name.0.clone(), entry.provider.clone()));
            let missing = || {
                let message = format!("Provider {} does not exist in this namespace", entry.provider);
                State::not_ready(Reason::ProviderNotFound, message)
            };
            let state = if is_orphan { missing() } else { entry.state.clone() };
            let new = state.conditions(&entry.conditions, entry.generation, now);
            if new == entry.conditions {
                entry.refusals.end();
                continue;
            }
            let (at, patch) = ((&self.context.cluster, &self.kind), status::patch(&new, entry.generation));
            if entry.refusals.write(at, &name, &patch).await == StatusWrite::Refused {
                again = again.into_iter().chain(entry.refusals.until()).min();
                failed.insert(name);
            } else {
                entry.conditions = new;
            }
        }
        self.due.extend(failed);
        again
    }
}
