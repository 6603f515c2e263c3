//! Injected faults, simulated containers and request counts, which a real server lacks.
//!
//! Not here: the status of a simulated container, which the controllers write.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::sync::watch;

/// Maximum number of counted combinations: invented names must not fill the memory.
const MAX_COUNTS: usize = 10_000;

/// Maximum number of pending faults.
const MAX_FAULTS: usize = 1_000;

/// Maximum number of simulated images.
const MAX_SIMULATIONS: usize = 10_000;

/// An injected response to a matching request.
///
/// Controllers do not use HTTP and are exempt, with one exception. A fault that names both `create` and `pods` refuses
/// the pods that controllers create, as a quota or policy does.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Fault {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `apply`, `delete` or `deletecollection`; empty: any.
    pub verb: String,
    /// Plural name, with or without its group, with `/status` for a subresource; empty: any.
    pub resource: String,
    /// Namespace; empty: any.
    pub namespace: String,
    /// Name of the object; empty: any.
    pub name: String,
    /// A substring of the query, such as `sendInitialEvents=true`; empty: any.
    pub query: String,
    /// HTTP status code; 0: delay only.
    pub code: u16,
    /// `reason` of the Status; empty: the usual one of the code.
    pub reason: String,
    /// `message` of the Status. `{nth}` becomes the number of matches so far, for messages that never repeat.
    pub message: String,
    /// The body, instead of a Status. A string is sent as plain text.
    pub body: Option<Value>,
    /// Seconds for the header `Retry-After`.
    pub retry_after: Option<u32>,
    /// Delay before the response, in milliseconds.
    pub delay_millis: u64,
    /// Number of matching requests to fail; 0: one.
    pub times: u32,
    /// Whether the request is executed and only its response is lost.
    pub after: bool,
}

impl Fault {
    /// Returns the delay before the response.
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_millis)
    }

    fn hits(&self, asked: &Asked<'_>) -> bool {
        let any = |wanted: &str, given: &str| wanted.is_empty() || wanted == given;
        let qualified = if asked.group.is_empty() {
            asked.resource.to_owned()
        } else {
            format!("{}.{}", asked.resource, asked.group)
        };
        let (wanted, wanted_sub) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let resource = wanted.is_empty() || wanted == asked.resource || wanted == qualified;
        any(&self.verb, asked.verb)
            && resource
            && (wanted.is_empty() || wanted_sub == asked.subresource)
            && any(&self.namespace, asked.namespace)
            && any(&self.name, asked.name)
            && asked.query.contains(&self.query)
    }
}

/// The attributes of a request that faults match.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Verb as in [`Fault::verb`].
    pub verb: &'a str,
    /// Group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// Subresource.
    pub subresource: &'a str,
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Query, without decoding.
    pub query: &'a str,
}

/// The number of similar requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Count {
    /// Verb as in [`Fault::verb`].
    pub verb: String,
    /// Plural name with its group and subresource, or the path of a request without a resource.
    pub resource: String,
    /// `User-Agent`, up to the first slash.
    pub user_agent: String,
    /// Number of requests.
    pub count: u64,
}

/// The outcome of a simulated container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simulation {
    /// Exit code. An init container with exit code 0 ends immediately.
    pub exit_code: i32,
    /// Termination message. `{digest}` becomes `sha256:` and the SHA-256 of the `args`, joined by NUL.
    pub termination_message: Option<String>,
    /// Time from the pod's placement to the end of the container. A later change applies to running containers, too.
    pub after: Duration,
}

/// The injected faults, simulations and request counts of one cluster.
#[derive(Debug, Default)]
pub struct FaultInjection {
    simulations: Mutex<BTreeMap<(String, String), Simulation>>,
    changed: watch::Sender<()>,
    /// Faults, each with the number of its matches.
    faults: Mutex<Vec<(Fault, u32)>>,
    counts: Mutex<BTreeMap<(String, String, String), u64>>,
    /// Namespaces and names of CronJobs that have to create a Job now.
    fired: Mutex<BTreeSet<(String, String)>>,
}

impl FaultInjection {
    /// Makes the next matching requests fail.
    ///
    /// Beyond 1000 pending faults, the oldest is dropped.
    pub fn fail_next(&self, fault: Fault) {
        let mut faults = self.faults.lock();
        if faults.len() >= MAX_FAULTS {
            faults.remove(0);
        }
        faults.push((Fault { times: fault.times.max(1), ..fault }, 0));
    }

    /// Drops all pending faults.
    pub fn clear_faults(&self) {
        self.faults.lock().clear();
    }

    /// Takes the first fault that matches a request.
    pub fn fault(&self, asked: &Asked<'_>) -> Option<Fault> {
        self.take(|fault| fault.hits(asked))
    }

    /// Takes the first fault that refuses a controller's pod in a namespace.
    pub(crate) fn refused_pod(&self, namespace: &str) -> Option<Fault> {
        let asked =
            Asked { verb: "create", group: "", resource: "pods", subresource: "", namespace, name: "", query: "" };
        self.take(|f| f.code != 0 && !f.verb.is_empty() && !f.resource.is_empty() && f.hits(&asked))
    }

    fn take(&self, hits: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let mut faults = self.faults.lock();
        let at = faults.iter().position(|(fault, _)| hits(fault))?;
        let (waiting, met) = &mut faults[at];
        *met += 1;
        let fault = Fault { message: waiting.message.replace("{nth}", &met.to_string()), ..waiting.clone() };
        if *met >= waiting.times {
            faults.remove(at);
        }
        Some(fault)
    }

    /// Sets the outcome of an image's containers. `container` is a container name; empty: all containers.
    pub fn simulate(&self, image: &str, container: &str, simulation: Simulation) {
        let mut simulations = self.simulations.lock();
        let key = (image.to_owned(), container.to_owned());
        if simulations.len() < MAX_SIMULATIONS || simulations.contains_key(&key) {
            simulations.insert(key, simulation);
            self.changed.send_replace(());
        }
    }

    /// Notifies of each change to the simulations and of each fired CronJob.
    pub fn simulations(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Drops all simulations. Containers that run or have ended keep their outcome.
    pub fn clear_simulations(&self) {
        self.simulations.lock().clear();
    }

    /// Returns the simulated outcome of an image's container.
    pub fn simulation(&self, image: &str, container: &str) -> Option<Simulation> {
        let simulations = self.simulations.lock();
        if simulations.is_empty() {
            return None;
        }
        let named = |container: &str| simulations.get(&(image.to_owned(), container.to_owned())).cloned();
        named(container).or_else(|| named(""))
    }

    /// Returns whether a container of a pod has a simulated outcome.
    pub fn simulates(&self, pod: &Value) -> bool {
        let lists = ["initContainers", "containers"].into_iter();
        let mut all = lists.flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
        let field = |container: &Value, name: &str| container[name].as_str().unwrap_or_default().to_owned();
        all.any(|container| self.simulation(&field(container, "image"), &field(container, "name")).is_some())
    }

    /// Makes a CronJob create a Job now, regardless of its schedule. A suspended CronJob does so, too.
    pub fn fire(&self, namespace: &str, name: &str) {
        let mut fired = self.fired.lock();
        if fired.len() < MAX_FAULTS {
            fired.insert((namespace.to_owned(), name.to_owned()));
            self.changed.send_replace(());
        }
    }

    /// Takes the request for an immediate Job of a CronJob.
    pub fn take_fired(&self, namespace: &str, name: &str) -> bool {
        self.fired.lock().remove(&(namespace.to_owned(), name.to_owned()))
    }

    /// Counts a request.
    pub fn count(&self, verb: &str, resource: &str, user_agent: &str) {
        let agent = user_agent.split('/').next().unwrap_or_default();
        let key = (verb.to_owned(), resource.to_owned(), agent.to_owned());
        let mut counts = self.counts.lock();
        if counts.len() < MAX_COUNTS || counts.contains_key(&key) {
            *counts.entry(key).or_insert(0) += 1;
        }
    }

    /// Returns all counts.
    pub fn counts(&self) -> Vec<Count> {
        let counts = self.counts.lock();
        let count = |((verb, resource, user_agent), count): (&(String, String, String), &u64)| Count {
            verb: verb.clone(),
            resource: resource.clone(),
            user_agent: user_agent.clone(),
            count: *count,
        };
        counts.iter().map(count).collect()
    }

    /// Resets all counts.
    pub fn reset_counts(&self) {
        self.counts.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meets_the_wanted_requests_as_often_as_wanted() {
        let faults = FaultInjection::default();
        faults.fail_next(Fault {
            verb: "delete".into(),
            resource: "deployments.apps".into(),
            times: 2,
            ..Fault::default()
        });
        let mut asked = Asked {
            verb: "get",
            group: "apps",
            resource: "deployments",
            subresource: "",
            namespace: "a",
            name: "b",
            query: "",
        };
        assert!(faults.fault(&asked).is_none());
        asked.verb = "delete";
        assert!(faults.fault(&asked).is_some() && faults.fault(&asked).is_some() && faults.fault(&asked).is_none());
    }

    #[test]
    fn a_text_may_be_another_one_each_time() {
        let faults = FaultInjection::default();
        faults.fail_next(Fault { code: 403, message: "denied, request {nth}".into(), times: 2, ..Fault::default() });
        let asked =
            Asked { verb: "get", group: "", resource: "pods", subresource: "", namespace: "a", name: "b", query: "" };
        let texts = [(); 3].map(|()| faults.fault(&asked).map(|fault| fault.message));
        assert_eq!(texts, [Some("denied, request 1".to_owned()), Some("denied, request 2".to_owned()), None]);
    }
}
