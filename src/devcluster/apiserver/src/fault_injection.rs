//! What a real server lacks: faults on demand, containers that end as told, and counts of what was asked.
//!
//! Deliberately absent: what a simulated container's end looks like, which belongs to the controllers.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::sync::watch;

/// Combinations that are counted at most, so that nobody fills the memory with made-up names.
const MAX_COUNTS: usize = 10_000;

/// Faults that wait at most.
const MAX_FAULTS: usize = 1_000;

/// Images whose containers are simulated at most.
const MAX_SIMULATIONS: usize = 10_000;

/// An answer to give instead of doing what is asked.
///
/// Controllers ask without HTTP and meet no faults but one: where both `create` and `pods` are named, the pods that they
/// create are refused with its code, reason and message, as a quota or a policy refuses them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Fault {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `apply`, `delete`, `deletecollection`; empty: any.
    pub verb: String,
    /// Plural name, qualified with its group or not, with `/status` for a subresource; empty: any.
    pub resource: String,
    /// Namespace; empty: any.
    pub namespace: String,
    /// Name of the object; empty: any.
    pub name: String,
    /// Text that the query holds, such as `sendInitialEvents=true`; empty: any.
    pub query: String,
    /// HTTP status code; 0: only delay.
    pub code: u16,
    /// `reason` of the Status; empty: what the code usually has.
    pub reason: String,
    /// `message` of the Status; `{nth}` in it becomes how often the fault has been met, for texts that never repeat.
    pub message: String,
    /// The body instead of a Status: a text is sent as plain text.
    pub body: Option<Value>,
    /// Seconds for the header `Retry-After`.
    pub retry_after: Option<u32>,
    /// Wait before answering, in milliseconds.
    pub delay_millis: u64,
    /// How often; 0: once.
    pub times: u32,
    /// Whether the request is carried out all the same and only its answer lost.
    pub after: bool,
}

impl Fault {
    /// The wait before answering.
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
    /// Query, undecoded.
    pub query: &'a str,
}

/// How often something was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Count {
    /// Verb as in [`Fault::verb`].
    pub verb: String,
    /// Plural name, qualified with its group, with its subresource; or the path of a request about no resource.
    pub resource: String,
    /// `User-Agent` up to the first slash.
    pub user_agent: String,
    /// Requests.
    pub count: u64,
}

/// How a container ends that is only simulated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simulation {
    /// Its exit code. An init container that is told to end with 0 does so at once.
    pub exit_code: i32,
    /// Its termination message; `{digest}` becomes `sha256:` and the SHA-256 of its `args`, joined by NUL.
    pub termination_message: Option<String>,
    /// When it ends, after the pod was placed. What is told while it runs counts too.
    pub after: Duration,
}

/// The faults of one cluster.
#[derive(Debug, Default)]
pub struct FaultInjection {
    simulations: Mutex<BTreeMap<(String, String), Simulation>>,
    changed: watch::Sender<()>,
    /// With how often each has been met.
    faults: Mutex<Vec<(Fault, u32)>>,
    counts: Mutex<BTreeMap<(String, String, String), u64>>,
    /// CronJobs that are to make a Job now, by namespace and name.
    fired: Mutex<BTreeSet<(String, String)>>,
}

impl FaultInjection {
    /// Makes the next matching requests fail.
    ///
    /// Beyond 1000 that wait, the oldest is forgotten.
    pub fn fail_next(&self, fault: Fault) {
        let mut faults = self.faults.lock();
        if faults.len() >= MAX_FAULTS {
            faults.remove(0);
        }
        faults.push((Fault { times: fault.times.max(1), ..fault }, 0));
    }

    /// Forgets all faults that have not happened yet.
    pub fn clear_faults(&self) {
        self.faults.lock().clear();
    }

    /// Takes the fault that a request meets.
    pub fn fault(&self, asked: &Asked<'_>) -> Option<Fault> {
        self.take(|fault| fault.hits(asked))
    }

    /// Takes the fault that a pod meets that a controller creates.
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

    /// Makes the containers of an image end as told; `container` is a name, empty for all of them.
    pub fn simulate(&self, image: &str, container: &str, simulation: Simulation) {
        let mut simulations = self.simulations.lock();
        let key = (image.to_owned(), container.to_owned());
        if simulations.len() < MAX_SIMULATIONS || simulations.contains_key(&key) {
            simulations.insert(key, simulation);
            self.changed.send_replace(());
        }
    }

    /// Wakes when it is told how containers end.
    pub fn simulations(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Forgets all simulations; what was told of containers that run or have ended stays.
    pub fn clear_simulations(&self) {
        self.simulations.lock().clear();
    }

    /// How a container of an image is to end.
    pub fn simulation(&self, image: &str, container: &str) -> Option<Simulation> {
        let simulations = self.simulations.lock();
        if simulations.is_empty() {
            return None;
        }
        let named = |container: &str| simulations.get(&(image.to_owned(), container.to_owned())).cloned();
        named(container).or_else(|| named(""))
    }

    /// Whether a container of a pod is to end as told.
    pub fn simulates(&self, pod: &Value) -> bool {
        let lists = ["initContainers", "containers"].into_iter();
        let mut all = lists.flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
        let field = |container: &Value, name: &str| container[name].as_str().unwrap_or_default().to_owned();
        all.any(|container| self.simulation(&field(container, "image"), &field(container, "name")).is_some())
    }

    /// Makes a CronJob make a Job now, whatever its schedule says; also a suspended one.
    pub fn fire(&self, namespace: &str, name: &str) {
        let mut fired = self.fired.lock();
        if fired.len() < MAX_FAULTS {
            fired.insert((namespace.to_owned(), name.to_owned()));
            self.changed.send_replace(());
        }
    }

    /// Takes the wish that a CronJob makes a Job now.
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

    /// All counts.
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

    /// Sets all counts to zero.
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
