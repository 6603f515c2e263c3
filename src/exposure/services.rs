//! Reads the Services of one APIRule that Istio's policies are for, each once for each of its versions.
//!
//! Invariant: one that cannot be read is asked for again when its time has come, whatever wakes the APIRule: its own status does,
//! and the text of a refusal may be another every time.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde_json::Value;

use super::context::Context;
use super::denied::explain;
use super::resolve::Resolved;
use super::served::Means;
use super::token::is_wanted;
use super::workload::{Workloads, labels};
use crate::cluster::{Error, Kind, Scope};
use crate::managed::attempts::Ground;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Services {
    /// The version of each, and the labels that it selects pods by.
    known: HashMap<String, (Box<str>, Option<Value>)>,
    failing: Option<Failing>,
}

/// A read that failed.
#[derive(Debug)]
struct Failing {
    /// In a row.
    times: u32,
    /// When it is tried again, on the clock of who asks.
    until: f64,
    /// Texts may be others every time: the first one for this reason is said.
    ground: Ground,
    why: String,
}

/// A Service could not be read: why, and how long to wait.
pub(super) struct Unread {
    pub(super) why: String,
    pub(super) wait: Duration,
}

impl Services {
    /// What Istio's policies need to know of the pods; nothing where there are none. `now` is in seconds of any clock.
    pub(super) async fn workloads(
        &mut self,
        context: &Context,
        good: &Resolved,
        means: Means,
        now: f64,
    ) -> Result<Workloads, Unread> {
        let mut workloads = Workloads::default();
        let asking = good.rules.iter().filter(|rule| means == Means::IstioPolicies && is_wanted(rule));
        let names: BTreeSet<&String> = asking.map(|rule| &rule.service).collect();
        self.known.retain(|name, _| names.contains(name));
        if names.is_empty() {
            return Ok(workloads);
        }
        let namespace = &good.identity.namespace;
        workloads.have_proxies = context.have_proxies(namespace);
        for name in names {
            let Some(version) = context.service_version(namespace, name) else { continue };
            let known = self.known.get(name).filter(|(known, _)| *known == version);
            let labels = if let Some((_, labels)) = known {
                labels.clone()
            } else {
                let labels = self.read(context, namespace, name, now).await?.as_ref().and_then(labels);
                self.known.insert(name.clone(), (version, labels.clone()));
                labels
            };
            if let Some(labels) = labels {
                workloads.labels.insert(name.clone(), labels);
            }
        }
        Ok(workloads)
    }

    async fn read(
        &mut self,
        context: &Context,
        namespace: &str,
        name: &str,
        now: f64,
    ) -> Result<Option<Value>, Unread> {
        if let Some(failing) = self.failing.as_ref().filter(|failing| now < failing.until) {
            return Err(Unread { why: failing.why.clone(), wait: Duration::from_secs_f64(failing.until - now) });
        }
        let kind = Kind::fixed("v1", "Service", "services", Scope::Namespaced);
        let found = context.writer.cluster().get(&kind, Some(namespace), name).await;
        let found = found.map_err(|error| self.fail(&error, now))?;
        self.failing = None;
        Ok(found)
    }

    fn fail(&mut self, error: &Error, now: f64) -> Unread {
        let (known, ground) = (self.failing.take(), Ground::of(error));
        let times = known.as_ref().map_or(0, |known| known.times) + 1;
        let wait = error.class().status_delay(times, error.retry_after(), fastrand::f64());
        let why = known.filter(|known| known.ground == ground).map_or_else(|| explain(error), |known| known.why);
        self.failing = Some(Failing { times, until: now + wait.as_secs_f64(), ground, why: why.clone() });
        Unread { why, wait }
    }
}
