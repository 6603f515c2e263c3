//! Reads the Services of one APIRule that Istio's policies are for, each once for each of its versions.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::context::Context;
use super::refusals::{NotDone, Refusals, Request};
use super::resolve::{Resolved, Rule};
use super::served::Means;
use super::token::is_wanted;
use super::workload::{Workloads, labels};
use mainstay_cluster::{Kind, Scope};

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Services {
    /// The version of each, and the labels that it selects pods by.
    known: HashMap<String, (Box<str>, Option<Value>)>,
    refusals: Refusals,
}

impl Services {
    /// What Istio's policies need to know of the pods; nothing where there are none. `now` is in seconds of any clock.
    pub(super) async fn workloads(
        &mut self,
        context: &Context,
        good: &Resolved,
        means: Means,
        now: f64,
    ) -> Result<Workloads, NotDone> {
        let mut workloads = Workloads::default();
        let asking = good.rules.iter().filter(|rule| means == Means::IstioPolicies && is_wanted(rule));
        let names: BTreeSet<&str> = asking.map(Rule::service).collect();
        self.known.retain(|name, _| names.contains(name.as_str()));
        self.refusals.keep(|request| matches!(request, Request::Read(name) if names.contains(name.as_str())));
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
                self.known.insert(name.to_owned(), (version, labels.clone()));
                labels
            };
            if let Some(labels) = labels {
                workloads.labels.insert(name.to_owned(), labels);
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
    ) -> Result<Option<Value>, NotDone> {
        let request = Request::Read(name.to_owned());
        self.refusals.may_try(&request, now)?;
        let kind = Kind::fixed("v1", "Service", "services", Scope::Namespaced);
        let found = context.writer.cluster().get(&kind, Some(namespace), name).await;
        match found {
            Ok(found) => {
                self.refusals.succeeded(&request);
                Ok(found)
            }
            Err(error) => Err(self.refusals.refuse(request, &error, now, fastrand::f64())),
        }
    }
}
