//! Executes the steps of a schedule: in the world, and in the reference model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use devcluster::verbs::{delete::DeleteOptions, patch::Form};
use devcluster::{Action, Call, Caller, Cluster as EmbeddedCluster, Options};
use mainstay::{Component, Components};
use mainstay_testkit::server::TestServer;
use mainstay_testkit::world::World;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::broken::Rule;
use super::checks::{Checks, git_sync, inventories, live};
use super::reference::{Commit, Reference, document, edited, uid_of};
use super::schedule::{AWAY, HOME, Hand, OBJECTS, OWNERS, Schedule, Spec, Step, object_of, owner_of, seconds};
use super::virtual_time::elapsed;
use super::wire::{Shared, Wire};

/// Longest wait until everything is settled: longer than any backoff.
const PATIENCE: Duration = Duration::from_secs(900);
/// Time without writes that is required once everything is settled.
const IDLE: Duration = Duration::from_secs(130);
const FINALIZER: &str = "example.org/keeps";

struct Machine {
    world: World,
    shared: Arc<Shared>,
    checks: Checks,
    reference: Arc<Mutex<Reference>>,
    agents: u32,
    is_running: bool,
    is_readable: bool,
    /// ConfigMaps of other users; one has a label like Mainstay's.
    bystanders: [Value; 2],
    /// Whether all fights have to end.
    calm: Arc<AtomicBool>,
}

/// Executes a schedule. Returns the first violation, and the log.
pub(crate) async fn run(schedule: &Schedule, breaks: Option<Rule>) -> (Option<String>, String) {
    let mut machine = Machine::new(schedule, breaks).await;
    let violated = machine.run(schedule).await;
    (violated, machine.checks.whole_log())
}

impl Machine {
    async fn new(schedule: &Schedule, breaks: Option<Rule>) -> Self {
        let mut world = World::of(EmbeddedCluster::new(Options::default()));
        world.components = Components::of(&[Component::Sync]).unwrap();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": AWAY}});
        world.create("v1", "namespaces", "", namespace);
        let bystanders = [("by0", json!({})), ("by1", json!({"mainstay.dev/sync": format!("{HOME}.other")}))];
        let bystanders = bystanders.map(|(name, labels)| {
            let metadata = json!({"name": name, "namespace": HOME, "labels": labels});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "theirs"}});
            world.create("v1", "configmaps", HOME, map)
        });
        let reference = Arc::new(Mutex::new(Reference::new()));
        let checks = Checks::new(Arc::clone(&reference));
        let shared = Shared::new(world.server.clone(), checks.clone(), (schedule.seed, schedule.noise), breaks);
        let (calm, agents, is_running, is_readable) = (Arc::default(), 0, false, true);
        let mut machine = Self { world, shared, checks, reference, agents, is_running, is_readable, bystanders, calm };
        for owner in OWNERS {
            let spec = json!({"baseDir": format!("/{owner}"), "wait": false, "interval": "1m"});
            machine.world.sync(owner, spec);
        }
        machine.commit();
        machine.start();
        machine.settles().await;
        machine
    }

    async fn run(&mut self, schedule: &Schedule) -> Option<String> {
        for (step, wait) in &schedule.steps {
            self.checks.log(&format!("{step:?}"));
            self.take(step).await;
            if *wait > 0 {
                sleep(Duration::from_millis((*wait).into())).await;
            }
            self.note_settled();
            if let Some(violation) = self.checks.violation() {
                return Some(violation);
            }
        }
        if let Err(why) = self.heal().await {
            self.checks.violate(&why);
        }
        self.world.kill().await;
        self.checks.violation()
    }

    fn start(&mut self) {
        self.agents += 1;
        let (shared, agent) = (Arc::clone(&self.shared), self.agents);
        self.world.wire = Some(Arc::new(move |cluster| Wire::client(cluster, &shared, agent)));
        self.shared.live();
        self.world.start_as("agent", true);
        self.is_running = true;
    }

    async fn kill(&mut self) {
        self.world.kill().await;
        self.is_running = false;
    }

    fn commit(&mut self) {
        let was_readable = self.is_readable;
        self.move_remote(true);
        let mut reference = self.reference.lock();
        let remote = &mut self.world.remote;
        remote.clear();
        for (number, owner) in OWNERS.iter().enumerate() {
            // The directory always exists, even without objects.
            remote.file(&format!("{owner}/README.md"), "");
            for (object, owners) in &reference.next.wanted {
                if let Some(value) = owners.get(&number) {
                    remote.file(&format!("{owner}/{}.yaml", OBJECTS[*object].name), document(*object, *value));
                }
            }
            if reference.next.broken.contains(&number) {
                remote.file(&format!("{owner}/bad.yaml"), "a: [");
            }
        }
        let id = remote.commit("next");
        let commit = Commit { id, ..reference.next.clone() };
        self.checks.log(&format!("{commit:?}"));
        reference.states.push(commit);
        drop(reference);
        self.move_remote(was_readable);
        self.pushed();
    }

    fn pushed(&self) {
        let reference = self.reference.lock();
        self.checks.forget_tried(|object| reference.head().wanted.contains_key(&object));
        drop(reference);
        self.checks.stir();
        if self.shared.breaks == Some(Rule::Guards) {
            for owner in OWNERS {
                self.world.annotate_sync(owner, "mainstay.dev/allow-prune", &self.world.remote.head());
            }
        }
        self.world.look();
    }

    fn rewind(&mut self, back: u8) {
        let was_readable = self.is_readable;
        self.move_remote(true);
        let mut reference = self.reference.lock();
        let at = reference.states.len().saturating_sub(1 + usize::from(back));
        let commit = reference.states[at].clone();
        self.world.remote.force(&commit.id);
        reference.next = Commit { id: String::new(), ..commit.clone() };
        reference.states.push(commit);
        drop(reference);
        self.move_remote(was_readable);
        self.pushed();
    }

    async fn take(&mut self, step: &Step) {
        match *step {
            Step::Commit(ref edits) => {
                let mut reference = self.reference.lock();
                for edit in edits {
                    reference.edit(edit);
                }
                drop(reference);
                self.commit();
            }
            Step::Break(owner, is_broken) => {
                let broken = &mut self.reference.lock().next.broken;
                if is_broken {
                    broken.insert(owner_of(owner))
                } else {
                    broken.remove(&owner_of(owner))
                };
            }
            Step::Rewind(back) => self.rewind(back),
            Step::Hand(object, hand) => self.hand(object_of(object), hand),
            Step::Fight(object, lasts) => self.fight(object_of(object), seconds(lasts)),
            Step::Spec(owner, spec) => self.set(owner_of(owner), spec),
            Step::Allow(owner) => self.allow(owner_of(owner)),
            Step::Refuse(object, code, lasts) => {
                self.shared.refuse(object_of(object), code, elapsed() + nanos(seconds(lasts)));
            }
            Step::Fail(verb, code, is_done) => self.shared.fail(verb, code, is_done),
            Step::Throttle(lasts) => self.shared.throttle(elapsed() + nanos(seconds(lasts))),
            Step::CutWatches(forgets) => {
                self.world.server.embedded().store().end_watches(None);
                if forgets {
                    self.world.server.embedded().store().compact();
                }
            }
            Step::Kill(requests, is_done) => {
                if self.is_running {
                    self.shared.kill_after(requests, is_done);
                    let mut died = self.shared.died.subscribe();
                    let _ = timeout(seconds(20_u8), died.wait_for(|died| *died)).await;
                    self.kill().await;
                }
            }
            Step::Start => {
                if !self.is_running {
                    self.checks.stir();
                    self.start();
                }
            }
            Step::LoseLease(lasts) => self.lose_lease(lasts),
            Step::Remote(is_readable) => {
                self.move_remote(is_readable);
                self.checks.stir();
            }
            Step::Ask(owner) => {
                self.checks.stir();
                self.world.request(OWNERS[owner_of(owner)]);
            }
            Step::Nothing => {}
        }
    }

    fn move_remote(&mut self, is_readable: bool) {
        let (here, away) = (self.world.remote.path(), self.world.remote.root().join("away"));
        if self.is_readable && !is_readable {
            std::fs::rename(here, away).unwrap();
        } else if !self.is_readable && is_readable {
            std::fs::rename(away, here).unwrap();
        }
        self.is_readable = is_readable;
    }

    fn lose_lease(&self, lasts: u8) {
        let now = jiff::Timestamp::now();
        let spec = json!({
            "holderIdentity": "another", "leaseDurationSeconds": lasts,
            "renewTime": format!("{now:.6}"), "acquireTime": format!("{now:.6}"),
        });
        let action = Action::Patch(Form::Merge, json!({"spec": spec}));
        let _ = self.try_by("another", Call::new("coordination.k8s.io/v1", "leases", HOME, "mainstay", action));
        self.checks.stir();
    }

    fn set(&self, owner: usize, spec: Spec) {
        self.reference.lock().set(owner, spec, elapsed());
        let patch = match spec {
            Spec::Suspend(on) => json!({"suspend": on}),
            Spec::Report(on) => json!({"drift": if on { "Report" } else { "Revert" }}),
            Spec::Prune(on) => json!({"prune": on}),
            Spec::Additions(on) => json!({"additions": on}),
            Spec::Freeze(true) => json!({"windows": [{"kind": "Deny", "schedule": "* * * * *", "duration": "1h"}]}),
            Spec::Freeze(false) => json!({"windows": []}),
        };
        self.checks.stir();
        self.world.edit("mainstay.dev/v1alpha1", "gitsyncs", OWNERS[owner], json!({"spec": patch}));
    }

    fn allow(&self, owner: usize) {
        let mut reference = self.reference.lock();
        let commit = reference.head().id.clone();
        reference.allow(owner, &commit);
        drop(reference);
        self.world.annotate_sync(OWNERS[owner], "mainstay.dev/allow-prune", &commit);
    }

    fn try_by(&self, manager: &str, call: Call) -> Option<Value> {
        try_by(&self.world.server, manager, call)
    }

    fn hand(&self, object: usize, hand: Hand) {
        let Some(live) = live(&self.world.server, object) else { return };
        let uid = uid_of(&live).to_owned();
        self.checks.stir();
        let label = |value: Value| json!({"metadata": {"labels": {"mainstay.dev/sync": value}}});
        let patch = match hand {
            Hand::Edit => edited(object),
            Hand::Delete => return drop(self.try_by("somebody", call(object, delete()))),
            Hand::Unlabel | Hand::Relabel => {
                self.reference.lock().touched.entry(uid).or_default().label = true;
                label(if hand == Hand::Unlabel { Value::Null } else { "somebody.else".into() })
            }
            Hand::AddLabel => {
                let name = format!("added-{}", elapsed());
                let patch = json!({"metadata": {"labels": {&name: "theirs"}}});
                self.reference.lock().added.push((object, uid, name));
                patch
            }
            Hand::WipeManagers => {
                self.reference.lock().touched.entry(uid).or_default().managers = true;
                json!({"metadata": {"managedFields": [{}]}})
            }
            Hand::Forge => return self.forge(object, &live),
            Hand::Terminate(lasts) => return self.terminate(object, seconds(lasts)),
            Hand::Pause(lasts) => {
                let until = jiff::Timestamp::now() + seconds(lasts);
                self.reference.lock().paused.insert(object, (elapsed(), elapsed() + nanos(seconds(lasts))));
                json!({"metadata": {"annotations": {
                    "mainstay.dev/reconcile": "disabled", "mainstay.dev/until": until.to_string(),
                }}})
            }
            Hand::Resume => {
                self.reference.lock().paused.remove(&object);
                json!({"metadata": {"annotations": {"mainstay.dev/reconcile": null, "mainstay.dev/until": null}}})
            }
        };
        self.try_by("somebody", call(object, Action::Patch(Form::Merge, patch)));
    }

    /// Replaces an object by another user's object with the same name and label.
    fn forge(&self, object: usize, live: &Value) {
        self.try_by("somebody", call(object, delete()));
        let mut forged = live.clone();
        let labels = live["metadata"]["labels"].clone();
        let (name, namespace) = (OBJECTS[object].name, OBJECTS[object].namespace);
        forged["metadata"] = json!({"name": name, "namespace": namespace, "labels": labels});
        if let Some(made) = self.try_by("somebody", call(object, Action::Create(forged))) {
            self.reference.lock().touched.entry(uid_of(&made).to_owned()).or_default().managers = true;
        }
    }

    /// Deletes an object that a finalizer keeps for a while.
    fn terminate(&self, object: usize, lasts: Duration) {
        if OBJECTS[object].kind == "Namespace" {
            return;
        }
        self.try_by("somebody", call(object, finalizers(json!([FINALIZER]))));
        self.try_by("somebody", call(object, delete()));
        let server = self.world.server.clone();
        tokio::spawn(async move {
            sleep(lasts).await;
            try_by(&server, "somebody", call(object, finalizers(Value::Null)));
        });
    }

    /// Starts a controller that keeps changing an object.
    fn fight(&self, object: usize, lasts: Duration) {
        let (server, checks) = (self.world.server.clone(), self.checks.clone());
        let (end, calm) = (elapsed() + nanos(lasts), Arc::clone(&self.calm));
        checks.count_fight(object);
        tokio::spawn(async move {
            let theirs = super::reference::value_after(object, &edited(object));
            while elapsed() < end && !calm.load(Ordering::SeqCst) {
                if live(&server, object).is_some_and(|live| super::reference::value_of(object, &live) != theirs) {
                    try_by(&server, "controller", call(object, Action::Patch(Form::Merge, edited(object))));
                }
                sleep(Duration::from_millis(20)).await;
            }
            let (count, most) = (checks.count_fight(object), 15 + lasts.as_secs());
            if u64::from(count) > most {
                checks.violate(&format!("{} was applied {count} times in a fight of {lasts:?}", OBJECTS[object].name));
            }
        });
    }

    /// Records the newest commit if every owner has applied it completely.
    fn note_settled(&self) {
        let mut reference = self.reference.lock();
        let head = reference.head().id.clone();
        // If a commit occurs twice in the branch, an earlier status may report the same commit.
        let comes_again = reference.states.iter().filter(|state| state.id == head).count() > 1;
        let is_settled = !comes_again && (0..OWNERS.len()).all(|owner| is_ready(&self.world.server, owner, &head));
        if is_settled {
            reference.settle();
        }
    }

    async fn settles(&self) {
        let head = self.reference.lock().head().id.clone();
        let ready = async {
            while !(0..OWNERS.len()).all(|owner| is_ready(&self.world.server, owner, &head)) {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let _ = timeout(PATIENCE, ready).await;
        self.note_settled();
    }

    /// Repairs everything, and waits until everything is settled.
    async fn heal(&mut self) -> Result<(), String> {
        self.shared.calm();
        self.calm.store(true, Ordering::SeqCst);
        self.move_remote(true);
        if !self.is_running {
            self.start();
        }
        for object in 0..OBJECTS.len() {
            self.hand(object, Hand::Resume);
            self.try_by("somebody", call(object, finalizers(Value::Null)));
        }
        for owner in 0..OWNERS.len() {
            for spec in [Spec::Suspend(false), Spec::Report(false), Spec::Prune(true), Spec::Freeze(false)] {
                self.set(owner, spec);
            }
        }
        self.reference.lock().calm();
        self.commit();
        for (owner, name) in OWNERS.iter().enumerate() {
            self.allow(owner);
            self.world.request(name);
        }
        self.checks.log("healed");
        let settled = async {
            loop {
                self.take_advice();
                let head = self.reference.lock().head().id.clone();
                let is_ready = (0..OWNERS.len()).all(|owner| is_ready(&self.world.server, owner, &head));
                if is_ready && self.differences().is_empty() {
                    return;
                }
                sleep(Duration::from_millis(250)).await;
            }
        };
        if timeout(PATIENCE, settled).await.is_err() {
            let statuses = (0..OWNERS.len()).filter_map(|owner| git_sync(&self.world.server, owner));
            let statuses = statuses.map(|sync| sync["status"].to_string()).collect::<Vec<_>>().join("\n");
            return Err(format!("does not settle: {:?}\n{statuses}", self.differences()));
        }
        self.note_settled();
        self.checks.log("settled");
        sleep(seconds(30_u8)).await;
        let writes = self.checks.writes();
        sleep(IDLE).await;
        let more = self.checks.writes() - writes;
        if more > 0 {
            return Err(format!("{more} writes although nothing happened"));
        }
        let differences = self.differences();
        if differences.is_empty() { Ok(()) } else { Err(format!("does not stay settled: {differences:?}")) }
    }

    /// Deletes the objects that the agent reports as held because their ownership is not proven.
    fn take_advice(&self) {
        let held = (0..OWNERS.len()).filter_map(|owner| git_sync(&self.world.server, owner));
        let held = held.flat_map(|sync| sync["status"]["held"].as_array().cloned().unwrap_or_default());
        for said in held.filter_map(|said| said.as_str().map(str::to_owned)) {
            for (object, one) in OBJECTS.iter().enumerate() {
                let is_said = said.contains(&format!("{}: it carries Mainstay's label", one.name));
                let Some(live) = live(&self.world.server, object).filter(|_| is_said) else { continue };
                if self.reference.lock().touched_of(&live).managers {
                    self.try_by("somebody", call(object, delete()));
                    // The object stays listed until the next sync.
                    for owner in OWNERS {
                        self.world.request(owner);
                    }
                }
            }
        }
    }

    fn differences(&self) -> Vec<String> {
        let (reference, server) = (self.reference.lock(), &self.world.server);
        let mut all = Vec::new();
        for object in 0..OBJECTS.len() {
            all.extend(reference.difference(object, live(server, object).as_deref()));
        }
        for (object, uid, label) in &reference.added {
            let same = live(server, *object).filter(|live| uid_of(live) == uid);
            if same.is_some_and(|live| live["metadata"]["labels"][label] != "theirs") {
                all.push(format!("{} lost {label}", OBJECTS[*object].name));
            }
        }
        for before in &self.bystanders {
            let name = before["metadata"]["name"].as_str().unwrap();
            if self.world.get("v1", "configmaps", name).is_none_or(|now| *now != *before) {
                all.push(format!("bystander {name} was touched"));
            }
        }
        for (owner, listed) in inventories(server).iter().enumerate() {
            all.extend(reference.inventory_difference(owner, listed));
        }
        all
    }
}

fn is_ready(server: &TestServer, owner: usize, commit: &str) -> bool {
    git_sync(server, owner).is_some_and(|sync| {
        let status = &sync["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
        is_ready && status["appliedCommit"] == commit && sync["spec"]["suspend"] != true
    })
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

fn finalizers(all: Value) -> Action {
    Action::Patch(Form::Merge, json!({"metadata": {"finalizers": all}}))
}

fn delete() -> Action {
    Action::Delete(DeleteOptions::default())
}

fn call(object: usize, action: Action) -> Call {
    let one = &OBJECTS[object];
    Call::new(one.version, one.resource, one.namespace, one.name, action)
}

fn try_by(server: &TestServer, manager: &str, call: Call) -> Option<Value> {
    server.call(&Caller::new(manager), call).ok()
}
