//! The children of one Function. If two states of a child are known, the newer state is kept.
//!
//! Not here: the children of all Functions, and notifications; see [`observe`](super::observe).

use std::sync::Arc;

use serde_json::Value;

use super::child_kind::ChildKind;
use super::child_state::{self, ChildIdentity, Deployment, Job, Pod, Role};
use super::flavour::Flavour;
use super::knative_state::{self, KnativeService};

/// The version of a state from before the API server was restored from a backup. Each state of the restored server is
/// newer. No object has this version, so a request with it as a precondition is refused.
const FORGOTTEN: &str = "1";

/// The children of one Function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Children {
    /// ConfigMaps.
    pub config_maps: Vec<ChildIdentity>,
    /// Jobs.
    pub jobs: Vec<Job>,
    /// Pods of builds, and serving pods that have a problem.
    pub pods: Vec<Pod>,
    /// Deployments.
    pub deployments: Vec<Deployment>,
    /// Services.
    pub services: Vec<ChildIdentity>,
    /// Autoscalers.
    pub autoscalers: Vec<ChildIdentity>,
    /// Knative Services.
    pub knative_services: Vec<KnativeService>,
}

impl Children {
    pub(super) fn identities(&self, child_kind: ChildKind) -> Box<dyn Iterator<Item = &ChildIdentity> + '_> {
        match child_kind {
            ChildKind::ConfigMap => Box::new(self.config_maps.iter()),
            ChildKind::Job => Box::new(self.jobs.iter().map(|job| &job.identity)),
            ChildKind::Pod => Box::new(self.pods.iter().map(|pod| &pod.identity)),
            ChildKind::Deployment => Box::new(self.deployments.iter().map(|deployment| &deployment.identity)),
            ChildKind::Service => Box::new(self.services.iter()),
            ChildKind::Autoscaler => Box::new(self.autoscalers.iter()),
            ChildKind::KnativeService => Box::new(self.knative_services.iter().map(|service| &service.identity)),
        }
    }

    /// Returns the record of the digests of Secrets of the child that runs the pods; empty without one.
    pub(super) fn recorded_secrets(&self, flavour: Flavour) -> String {
        let of_deployments = self.deployments.iter().map(|deployment| &deployment.secrets);
        let of_services = self.knative_services.iter().map(|service| &service.secrets);
        let all: Vec<&String> = match flavour {
            Flavour::Deployment => of_deployments.chain(of_services).collect(),
            Flavour::Knative => of_services.chain(of_deployments).collect(),
        };
        all.into_iter().find(|record| !record.is_empty()).cloned().unwrap_or_default()
    }

    /// Returns why a pod of a version cannot run.
    ///
    /// Invariant: pods of other versions, which may still exist, do not affect the result.
    pub(super) fn problem_of(&self, version: Option<&str>) -> Option<&(String, String)> {
        let version = version.filter(|version| !version.is_empty())?;
        let serving = |pod: &&Pod| pod.role == Role::Serving && pod.version == version && !pod.identity.terminating;
        self.pods.iter().filter(serving).find_map(|pod| pod.problem.as_ref())
    }

    /// Inserts or updates a child, unless the known state is newer.
    pub(super) fn put(&mut self, child: Child) {
        match child {
            Child::Plain(ChildKind::ConfigMap, identity) => upsert(&mut self.config_maps, identity, |i| i),
            Child::Plain(ChildKind::Service, identity) => upsert(&mut self.services, identity, |i| i),
            Child::Plain(_, identity) => upsert(&mut self.autoscalers, identity, |i| i),
            Child::KnativeService(service) => upsert(&mut self.knative_services, service, |s| &s.identity),
            Child::Deployment(deployment) => upsert(&mut self.deployments, deployment, |d| &d.identity),
            Child::Pod(pod) => {
                // Serving pods without a problem are not kept.
                if pod.role == Role::Serving && pod.problem.is_none() {
                    self.pods.retain(|known| known.identity.name != pod.identity.name);
                } else {
                    upsert(&mut self.pods, pod, |p| &p.identity);
                }
            }
            Child::Job(job) => upsert(&mut self.jobs, job, |j| &j.identity),
        }
    }

    /// Removes and returns the matching children of a kind.
    pub(super) fn remove(&mut self, child_kind: ChildKind, is_gone: impl Fn(&ChildIdentity) -> bool) -> Vec<Child> {
        let plain = |list: &mut Vec<ChildIdentity>| {
            list.extract_if(.., |i| is_gone(i)).map(|i| Child::Plain(child_kind, i)).collect()
        };
        match child_kind {
            ChildKind::ConfigMap => plain(&mut self.config_maps),
            ChildKind::Service => plain(&mut self.services),
            ChildKind::Autoscaler => plain(&mut self.autoscalers),
            ChildKind::Deployment => {
                self.deployments.extract_if(.., |d| is_gone(&d.identity)).map(Child::Deployment).collect()
            }
            ChildKind::KnativeService => {
                self.knative_services.extract_if(.., |s| is_gone(&s.identity)).map(Child::KnativeService).collect()
            }
            ChildKind::Pod => self.pods.extract_if(.., |pod| is_gone(&pod.identity)).map(Child::Pod).collect(),
            ChildKind::Job => self.jobs.extract_if(.., |job| is_gone(&job.identity)).map(Child::Job).collect(),
        }
    }

    /// Forgets the resource versions of a kind, so that the lower ones of a restored server are not older.
    pub(super) fn forget_versions(&mut self, child_kind: ChildKind) {
        let forget = |identity: &mut ChildIdentity| FORGOTTEN.clone_into(&mut identity.version);
        match child_kind {
            ChildKind::ConfigMap => self.config_maps.iter_mut().for_each(forget),
            ChildKind::Service => self.services.iter_mut().for_each(forget),
            ChildKind::Autoscaler => self.autoscalers.iter_mut().for_each(forget),
            ChildKind::Job => self.jobs.iter_mut().for_each(|job| forget(&mut job.identity)),
            ChildKind::Pod => self.pods.iter_mut().for_each(|pod| forget(&mut pod.identity)),
            ChildKind::Deployment => self.deployments.iter_mut().for_each(|one| forget(&mut one.identity)),
            ChildKind::KnativeService => self.knative_services.iter_mut().for_each(|one| forget(&mut one.identity)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The state of one child.
pub(super) enum Child {
    Plain(ChildKind, ChildIdentity),
    Job(Job),
    Pod(Pod),
    Deployment(Deployment),
    KnativeService(KnativeService),
}

impl Child {
    pub(super) fn identity(&self) -> &ChildIdentity {
        match self {
            Self::Plain(_, identity) => identity,
            Self::Job(job) => &job.identity,
            Self::Pod(pod) => &pod.identity,
            Self::Deployment(deployment) => &deployment.identity,
            Self::KnativeService(service) => &service.identity,
        }
    }
}

/// Returns the key of a Function's children: its namespace and UID.
pub(super) fn children_key(namespace: &str, uid: &str) -> Arc<str> {
    format!("{namespace}/{uid}").into()
}

/// Returns the key of the Function that an object belongs to.
pub(super) fn function_of(child_kind: ChildKind, live: &Value) -> Option<Arc<str>> {
    let namespace = live.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    let uid = match child_kind {
        ChildKind::Pod => child_state::function_of_pod(live),
        _ => child_state::function_of(live),
    };
    Some(children_key(namespace, uid?))
}

/// Returns the key of the Function that an object belongs to, and its state.
pub(super) fn read(child_kind: ChildKind, live: &Value) -> Option<(Arc<str>, Child)> {
    let children = function_of(child_kind, live)?;
    let child = match child_kind {
        ChildKind::Pod => Child::Pod(child_state::pod(live)),
        ChildKind::Job => Child::Job(child_state::job(live)),
        ChildKind::Deployment => Child::Deployment(child_state::deployment(live)),
        ChildKind::KnativeService => Child::KnativeService(knative_state::knative_service(live)),
        plain => Child::Plain(plain, child_state::identity(live)),
    };
    Some((children, child))
}

/// Inserts or updates an element, unless the known state is newer.
fn upsert<T>(list: &mut Vec<T>, new: T, identity: impl Fn(&T) -> &ChildIdentity) {
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
