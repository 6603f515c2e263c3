//! The children of one Function, as far as they count: which kinds there are, what of an object is remembered, and how
//! the newest of two states of it is told.
//!
//! Deliberately absent: all Functions together, and who is told what changed; that is [`observe`](super::observe)'s.

use std::sync::Arc;

use serde_json::Value;

use super::facts::{self, Deployment, Identity, Job, Pod, Role};
use crate::cluster::{Kind, Scope};

/// A kind of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum What {
    /// ConfigMaps with inline sources.
    ConfigMap,
    /// Build Jobs.
    Job,
    /// Pods of builds, and pods that serve.
    Pod,
    /// Deployments.
    Deployment,
    /// Services.
    Service,
    /// Autoscalers.
    Autoscaler,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::ConfigMap, Self::Job, Self::Pod, Self::Deployment, Self::Service, Self::Autoscaler];

    /// As the cluster knows it.
    pub fn kind(self) -> Arc<Kind> {
        let (version, kind, plural) = match self {
            Self::ConfigMap => ("v1", "ConfigMap", "configmaps"),
            Self::Job => ("batch/v1", "Job", "jobs"),
            Self::Pod => ("v1", "Pod", "pods"),
            Self::Deployment => ("apps/v1", "Deployment", "deployments"),
            Self::Service => ("v1", "Service", "services"),
            Self::Autoscaler => ("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
        };
        Arc::new(Kind::fixed(version, kind, plural, Scope::Namespaced))
    }
}

/// What is there of one Function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    /// ConfigMaps.
    pub config_maps: Vec<Identity>,
    /// Jobs.
    pub jobs: Vec<Job>,
    /// Pods of its builds, and those pods that serve and have trouble.
    pub pods: Vec<Pod>,
    /// Deployments.
    pub deployments: Vec<Deployment>,
    /// Services.
    pub services: Vec<Identity>,
    /// Autoscalers.
    pub autoscalers: Vec<Identity>,
}

impl Family {
    pub(super) fn identities(&self, what: What) -> Box<dyn Iterator<Item = &Identity> + '_> {
        match what {
            What::ConfigMap => Box::new(self.config_maps.iter()),
            What::Job => Box::new(self.jobs.iter().map(|job| &job.identity)),
            What::Pod => Box::new(self.pods.iter().map(|pod| &pod.identity)),
            What::Deployment => Box::new(self.deployments.iter().map(|deployment| &deployment.identity)),
            What::Service => Box::new(self.services.iter()),
            What::Autoscaler => Box::new(self.autoscalers.iter()),
        }
    }

    /// Puts a child in its place, unless something newer is there.
    pub(super) fn put(&mut self, child: Child) {
        match child {
            Child::Plain(What::ConfigMap, identity) => upsert(&mut self.config_maps, identity, |i| i),
            Child::Plain(What::Service, identity) => upsert(&mut self.services, identity, |i| i),
            Child::Plain(_, identity) => upsert(&mut self.autoscalers, identity, |i| i),
            Child::Deployment(deployment) => upsert(&mut self.deployments, deployment, |d| &d.identity),
            Child::Pod(pod) => {
                // A pod that serves without trouble is not worth a word.
                if pod.role == Role::Serving && pod.trouble.is_none() {
                    self.pods.retain(|known| known.identity.name != pod.identity.name);
                } else {
                    upsert(&mut self.pods, pod, |p| &p.identity);
                }
            }
            Child::Job(job) => upsert(&mut self.jobs, job, |j| &j.identity),
        }
    }

    /// Takes out those of a kind that are gone.
    pub(super) fn remove(&mut self, what: What, is_gone: impl Fn(&Identity) -> bool) -> Vec<Child> {
        let plain =
            |list: &mut Vec<Identity>| list.extract_if(.., |i| is_gone(i)).map(|i| Child::Plain(what, i)).collect();
        match what {
            What::ConfigMap => plain(&mut self.config_maps),
            What::Service => plain(&mut self.services),
            What::Autoscaler => plain(&mut self.autoscalers),
            What::Deployment => {
                self.deployments.extract_if(.., |d| is_gone(&d.identity)).map(Child::Deployment).collect()
            }
            What::Pod => self.pods.extract_if(.., |pod| is_gone(&pod.identity)).map(Child::Pod).collect(),
            What::Job => self.jobs.extract_if(.., |job| is_gone(&job.identity)).map(Child::Job).collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One child, as it was read from the object.
pub(super) enum Child {
    Plain(What, Identity),
    Job(Job),
    Pod(Pod),
    Deployment(Deployment),
}

impl Child {
    pub(super) fn identity(&self) -> &Identity {
        match self {
            Self::Plain(_, identity) => identity,
            Self::Job(job) => &job.identity,
            Self::Pod(pod) => &pod.identity,
            Self::Deployment(deployment) => &deployment.identity,
        }
    }
}

/// Which family it is: namespace and UID of the Function.
pub(super) fn family_of(namespace: &str, uid: &str) -> Arc<str> {
    format!("{namespace}/{uid}").into()
}

/// Which family an object belongs to, and what of it counts.
pub(super) fn read(what: What, live: &Value) -> Option<(Arc<str>, Child)> {
    let namespace = live.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    if what == What::Pod {
        return Some((family_of(namespace, facts::function_of_pod(live)?), Child::Pod(facts::pod(live))));
    }
    let family = family_of(namespace, facts::function_of(live)?);
    let child = match what {
        What::Job => Child::Job(facts::job(live)),
        What::Deployment => Child::Deployment(facts::deployment(live)),
        plain => Child::Plain(plain, facts::identity(live)),
    };
    Some((family, child))
}

/// Puts what was read in its place, unless something newer is there.
fn upsert<T>(list: &mut Vec<T>, new: T, identity: impl Fn(&T) -> &Identity) {
    let Some(old) = list.iter_mut().find(|old| identity(old).name == identity(&new).name) else {
        list.push(new);
        return;
    };
    let number = |of: &T| identity(of).version.parse::<u64>().ok();
    match (number(old), number(&new)) {
        (Some(known), Some(seen)) if seen < known => {}
        _ => *old = new,
    }
}
