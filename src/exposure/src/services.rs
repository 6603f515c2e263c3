//! Reads the Services that Istio's policies of one APIRule need, once per version of each Service.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::context::Context;
use super::refusals::{NotDone, Refusals, Request};
use super::resolve::{Resolved, Rule};
use super::served::Means;
use super::token::is_wanted;
use super::workload::{Workloads, labels};
use mainstay_cluster::{Kind, Scope};

/// The Services that were read.
#[derive(Debug, Default)]
pub(super) struct Services {
    /// The version and the pod selector of each Service, by its name.
    known: HashMap<String, (Box<str>, Option<Value>)>,
    refusals: Refusals,
}

impl Services {
    /// Returns the pods' facts that Istio's policies need; empty without policies. `now` is the time in seconds on any
    /// clock.
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
