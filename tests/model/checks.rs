//! The invariants of each write of the agent. The first violation ends the schedule.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mainstay_engine::managed::inventory::Inventory;
use mainstay_testkit::server::TestServer;
use parking_lot::Mutex;
use serde_json::Value;

use super::reference::{Commit, Reference, label_of, uid_of};
use super::schedule::{HOME, OBJECTS, OWNERS};
use super::virtual_time::elapsed;
use super::wire::Sent;

const SECOND: u64 = 1_000_000_000;
/// Time for which writes are tolerated after a pause or suspension, until watches have certainly delivered it.
const HEARD: u64 = 150 * SECOND;
/// Number of successive failures from which the wait between two writes is checked.
const SOME_FAILURES: u32 = 3;

/// Successive failed writes of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    count: u32,
    last: u64,
}

#[derive(Default)]
struct State {
    /// Objects with a write in progress, and the agent that writes.
    under_way: HashMap<String, u32>,
    /// UIDs in the responses to applies of an agent.
    proven: BTreeSet<String>,
    failures: BTreeMap<usize, Failures>,
    /// Number of applies of each object that another client keeps changing.
    fought: BTreeMap<usize, u32>,
    /// Desired objects whose applies got a response.
    tried: BTreeSet<usize>,
    writes: u64,
    violations: Vec<String>,
    log: Vec<String>,
}

/// The checks of one schedule. Clones share their state.
#[derive(Clone)]
pub(crate) struct Checks {
    pub(crate) reference: Arc<Mutex<Reference>>,
    state: Arc<Mutex<State>>,
}

/// A write in progress.
pub(crate) struct UnderWay(Option<(Arc<Mutex<State>>, String)>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some((state, what)) = self.0.take() {
            state.lock().under_way.remove(&what);
        }
    }
}

/// The object before a write.
pub(crate) struct Before(Option<Arc<Value>>);

impl Checks {
    pub(crate) fn new(reference: Arc<Mutex<Reference>>) -> Self {
        Self { reference, state: Arc::default() }
    }

    /// Adds a line to the log of the schedule.
    pub(crate) fn log(&self, what: &str) {
        let seconds = elapsed() as f64 / 1e9;
        self.state.lock().log.push(format!("{seconds:10.3} {what}"));
    }

    pub(crate) fn whole_log(&self) -> String {
        self.state.lock().log.join("\n")
    }

    pub(crate) fn violate(&self, what: &str) {
        self.log(&format!("VIOLATION {what}"));
        self.state.lock().violations.push(what.to_owned());
    }

    pub(crate) fn violation(&self) -> Option<String> {
        self.state.lock().violations.first().cloned()
    }

    /// Returns the number of writes of objects and inventories so far.
    pub(crate) fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// Resets the failures, because an event may be a reason to retry immediately.
    pub(crate) fn stir(&self) {
        self.state.lock().failures.clear();
    }

    /// Marks the objects that are not desired at present as untried, in case they are desired again.
    pub(crate) fn forget_tried(&self, is_wanted: impl Fn(usize) -> bool) {
        self.state.lock().tried.retain(|object| is_wanted(*object));
    }

    /// Starts to count the applies of an object. Returns the number so far.
    pub(crate) fn count_fight(&self, object: usize) -> u32 {
        self.state.lock().fought.insert(object, 0).unwrap_or_default()
    }

    /// Records the start of a request of the agent, and checks it.
    pub(crate) fn begin(&self, server: &TestServer, sent: &Sent) -> UnderWay {
        if !sent.is_write() || matches!(&*sent.resource, "leases" | "events") {
            return UnderWay(None);
        }
        self.log(&format!("agent {}: {}", sent.agent, sent.text()));
        let what = format!("{}/{} {}/{}", sent.resource, sent.subresource, sent.namespace, sent.name);
        let mut state = self.state.lock();
        state.writes += u64::from(sent.object().is_some() || is_inventory(sent));
        let before = state.under_way.insert(what.clone(), sent.agent);
        drop(state);
        if before == Some(sent.agent) {
            self.violate(&format!("two writes at once: {what}"));
        }
        if let Some(object) = sent.object() {
            let live = live(server, object);
            self.check_holds(server, sent, object, live.as_deref());
            if sent.verb == "apply" {
                self.check_backoff(object);
                self.check_stages(server, sent, object, live.as_deref());
                self.count_revert(sent);
            }
        }
        UnderWay(Some((Arc::clone(&self.state), what)))
    }

    /// Counts an apply of an object that another client may keep changing.
    pub(crate) fn count_revert(&self, sent: &Sent) {
        let mut state = self.state.lock();
        if let Some(count) = sent.object().and_then(|object| state.fought.get_mut(&object)) {
            *count += 1;
        }
    }

    /// Checks that a suspended owner writes nothing, and that no paused object is written.
    fn check_holds(&self, server: &TestServer, sent: &Sent, object: usize, live: Option<&Value>) {
        let (name, text) = (OBJECTS[object].name, sent.text());
        let owner = label_of(&sent.body).or_else(|| label_of(live?));
        if let Some(owner) = owner
            && (is_suspended(server, owner) || self.reference.lock().is_suspended(owner, elapsed(), HEARD))
        {
            self.violate(&format!("{text}: GitSync {} is suspended", OWNERS[owner]));
        }
        let is_paused =
            live.is_some_and(|live| live["metadata"]["annotations"]["mainstay.dev/reconcile"] == "disabled");
        if is_paused && self.reference.lock().is_paused(object, elapsed(), HEARD) {
            self.violate(&format!("{text}: {name} is paused"));
        }
    }

    fn check_backoff(&self, object: usize) {
        let failures = self.state.lock().failures.get(&object).copied().unwrap_or_default();
        if failures.count < SOME_FAILURES {
            return;
        }
        let least = (SECOND << failures.count.min(7)) / 5;
        let waited = elapsed() - failures.last;
        if waited < least.min(40 * SECOND) {
            let name = OBJECTS[object].name;
            let waited = waited / 1_000_000;
            self.violate(&format!("{name} is applied {waited} ms after failure {} in a row", failures.count));
        }
    }

    /// Checks that new objects of earlier stages were tried before.
    fn check_stages(&self, server: &TestServer, sent: &Sent, object: usize, is_live: Option<&Value>) {
        let Some(owner) = label_of(&sent.body).filter(|_| is_live.is_none()) else { return };
        let reference = self.reference.lock();
        // One of these commits added the new object.
        let states = &reference.states[(reference.settled + 1).min(reference.states.len())..];
        let is_owned = |state: &Commit, one| state.wanted.get(&one).is_some_and(|owners| owners.keys().eq([&owner]));
        let is_of_all = |one: usize| !states.is_empty() && states.iter().all(|state| is_owned(state, one));
        let was_wanted = reference.states[reference.settled].wanted.contains_key(&object);
        if was_wanted || !is_of_all(object) {
            return;
        }
        let listed = inventories(server);
        for (earlier, one) in OBJECTS.iter().enumerate().filter(|(_, one)| one.stage < OBJECTS[object].stage) {
            let others_list = || listed.iter().enumerate().any(|(of, names)| of != owner && names.contains(one.name));
            let is_tried = self.state.lock().tried.contains(&earlier);
            if is_of_all(earlier) && !is_tried && live(server, earlier).is_none() && !others_list() {
                self.violate(&format!("{} is created before {}", OBJECTS[object].name, one.name));
            }
        }
    }

    pub(crate) fn before(server: &TestServer, sent: &Sent) -> Before {
        Before(sent.object().and_then(|object| live(server, object)))
    }

    /// Checks a write of the agent that has succeeded.
    pub(crate) fn carried_out(&self, server: &TestServer, sent: &Sent, before: &Before) {
        if is_inventory(sent) {
            self.check_coverage(server, sent);
        }
        let Some(object) = sent.object() else { return };
        let after = live(server, object);
        match (sent.verb, &before.0, &after) {
            ("apply" | "create", before, Some(after)) => {
                self.state.lock().proven.insert(uid_of(after).to_owned());
                if before.is_none() && !inventories(server).iter().any(|names| names.contains(OBJECTS[object].name)) {
                    self.violate(&format!("{}: no inventory lists what it creates", sent.text()));
                }
            }
            ("delete", Some(before), _) => self.check_deletion(sent, object, before),
            _ => {}
        }
    }

    fn check_deletion(&self, sent: &Sent, object: usize, before: &Value) {
        let text = sent.text();
        let conditions = &sent.body["preconditions"];
        if !conditions["uid"].is_string() || !conditions["resourceVersion"].is_string() {
            self.violate(&format!("{text}: names no uid and resourceVersion"));
        }
        let Some(owner) = label_of(before) else {
            return self.violate(&format!("{text}: does not carry our label"));
        };
        if !self.state.lock().proven.contains(uid_of(before)) {
            self.violate(&format!("{text}: was never applied by an agent"));
        }
        if let Some(why) = self.reference.lock().forbids_deletion(object, owner, elapsed(), HEARD) {
            self.violate(&format!("{text}: {why}"));
        }
    }

    /// Checks that inventories list all live objects that Mainstay applied.
    fn check_coverage(&self, server: &TestServer, sent: &Sent) {
        let listed = inventories(server);
        for (object, one) in OBJECTS.iter().enumerate() {
            let Some(live) = live(server, object) else { continue };
            let is_proven = self.state.lock().proven.contains(uid_of(&live));
            let touched = self.reference.lock().touched_of(&live);
            let is_ours = label_of(&live).is_some() && is_proven && !touched.label && !touched.managers;
            if is_ours && !listed.iter().any(|names| names.contains(one.name)) {
                self.violate(&format!("{}: no inventory lists {}, which is there", sent.text(), one.name));
            }
        }
    }

    /// Records the response to a request of the agent; code 0 if there is none.
    pub(crate) fn answered(&self, sent: &Sent, code: u16) {
        if !sent.is_write() || matches!(&*sent.resource, "leases" | "events") {
            return;
        }
        if code != 200 && code != 201 {
            self.log(&format!("agent {}: {} is answered {code}", sent.agent, sent.text()));
        }
        let Some(object) = sent.object().filter(|_| sent.verb == "apply") else { return };
        let mut state = self.state.lock();
        state.tried.insert(object);
        match code {
            200 | 201 => drop(state.failures.remove(&object)),
            // The agent retries soon.
            409 | 429 => {}
            _ => {
                let one = state.failures.entry(object).or_default();
                *one = Failures { count: one.count + 1, last: elapsed() };
            }
        }
    }
}

pub(crate) fn is_inventory(sent: &Sent) -> bool {
    sent.resource == "configmaps" && sent.name.starts_with("mainstay-inventory-")
}

pub(crate) fn live(server: &TestServer, object: usize) -> Option<Arc<Value>> {
    let one = &OBJECTS[object];
    server.object(one.version, one.resource, one.namespace, one.name)
}

pub(crate) fn git_sync(server: &TestServer, owner: usize) -> Option<Arc<Value>> {
    server.object("mainstay.dev/v1alpha1", "gitsyncs", HOME, OWNERS[owner])
}

/// Whether an owner is suspended, and its status reports it.
fn is_suspended(server: &TestServer, owner: usize) -> bool {
    git_sync(server, owner).is_some_and(|sync| {
        let conditions = sync["status"]["conditions"].as_array().into_iter().flatten();
        let says = conditions.into_iter().any(|one| one["type"] == "Suspended" && one["status"] == "True");
        says && sync["spec"]["suspend"] == true
    })
}

/// Returns the names that each owner's inventory lists.
pub(crate) fn inventories(server: &TestServer) -> [BTreeSet<String>; OWNERS.len()] {
    OWNERS.map(|owner| {
        let map = server.object("v1", "configmaps", HOME, &format!("mainstay-inventory-{owner}-0"));
        let content = map.and_then(|map| STANDARD.decode(map["binaryData"]["inventory"].as_str()?).ok());
        let Some(content) = content else { return BTreeSet::new() };
        let inventory = Inventory::decode([content.as_slice()]).unwrap();
        inventory.0.keys().map(|key| key.name.to_string()).collect()
    })
}
