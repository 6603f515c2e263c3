//! Random schedules of commits, hand edits, faults and kills. In the end the cluster holds exactly the content of the
//! branch, and nothing else was touched.
//!
//! `MAINSTAY_SCHEDULES` is the number of schedules (default 100), `MAINSTAY_SEED` the first seed (default 1). A failure
//! prints its seed and its steps. `MAINSTAY_SCHEDULES=1 MAINSTAY_SEED=<seed>` repeats them, as far as threads allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use devcluster::{Action, Call, fault_injection::Fault, verbs::delete::DeleteOptions, verbs::patch::Form};
use mainstay_engine::managed::inventory::Inventory;
use parking_lot::Mutex;
use serde_json::{Value, json};

use mainstay_testkit::world::{NAMESPACE, World};

/// Number of concurrent schedules.
const AT_ONCE: usize = 12;
const STEPS: u64 = 14;
/// The two GitSyncs and the directories that they follow.
const SYNCS: [&str; 2] = ["one", "two"];
/// Objects by name. The first letter determines the kind.
const POOL: [&str; 12] = ["c0", "c1", "c2", "c3", "c4", "c5", "s0", "s1", "s2", "w0", "w1", "c6"];

/// The SplitMix64 generator: random enough, and the same on all platforms.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }

    fn sometimes(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// The place and value of an object.
#[derive(Clone, Debug, PartialEq)]
struct Placed {
    sync: &'static str,
    file: u64,
    value: u64,
}

/// The content of a commit: objects by name.
type Branch = BTreeMap<&'static str, Placed>;

fn served(name: &str) -> (&'static str, &'static str) {
    match name.as_bytes()[0] {
        b'c' => ("v1", "configmaps"),
        b's' => ("v1", "secrets"),
        _ => ("apps/v1", "deployments"),
    }
}

fn document(name: &str, value: u64) -> String {
    match name.as_bytes()[0] {
        b'c' => format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{key: \"{value}\", other: same}}\n"
        ),
        b's' => format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{key: \"{value}\"}}\n"),
        _ => format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec:\n  replicas: 1\n  \
             selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    \
             spec: {{containers: [{{name: web, image: \"nginx:{value}\", env: [{{name: A}}, {{name: B}}]}}]}}\n"
        ),
    }
}

/// Returns the value of a live object.
fn value_of(name: &str, live: &Value) -> String {
    match name.as_bytes()[0] {
        b'c' => format!("{}{}", live["data"]["key"], live["data"]["other"]),
        b's' => live["data"]["key"].to_string(),
        _ => {
            let container = &live["spec"]["template"]["spec"]["containers"][0];
            let env = container["env"].as_array().into_iter().flatten().map(|e| e["name"].to_string());
            format!("{}{}{}", live["spec"]["replicas"], container["image"], env.collect::<String>())
        }
    }
}

fn wanted_value(name: &str, value: u64) -> String {
    match name.as_bytes()[0] {
        b'c' => format!("\"{value}\"\"same\""),
        b's' => format!("\"{}\"", STANDARD.encode(value.to_string())),
        _ => format!("1\"nginx:{value}\"\"A\"\"B\""),
    }
}

/// A running schedule.
struct Schedule {
    random: Random,
    world: World,
    branch: Branch,
    /// The commits so far, with their content.
    history: Vec<(String, Branch)>,
    broken: bool,
    running: bool,
    /// Whether the agent's requests hang, or will after some writes.
    gated: bool,
    bystanders: Vec<Value>,
    /// Labels added by other users: object, UID, label.
    added: Vec<(&'static str, String, String)>,
    /// UIDs of objects whose label was removed. If they leave the repository, they stay in the cluster.
    unlabelled: BTreeSet<String>,
    /// UIDs of objects whose managedFields were wiped. An agent killed before it recorded the UID leaves them to users.
    wiped: BTreeSet<String>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Schedule {
    async fn new(seed: u64, log: Arc<Mutex<Vec<String>>>) -> Self {
        let world = World::new().await;
        let bystander = |name: &str, labels: Value| {
            let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "theirs"}})
        };
        for (name, labels) in [("by0", json!({})), ("by1", json!({"mainstay.dev/sync": "mainstay-tests.other"}))] {
            world.create("v1", "configmaps", NAMESPACE, bystander(name, labels));
        }
        let mut schedule = Self {
            random: Random(seed),
            bystanders: ["by0", "by1"].map(|name| (*world.get("v1", "configmaps", name).unwrap()).clone()).into(),
            world,
            branch: Branch::new(),
            history: Vec::new(),
            broken: false,
            running: false,
            gated: false,
            added: Vec::new(),
            unlabelled: BTreeSet::new(),
            wiped: BTreeSet::new(),
            log,
        };
        for _ in 0..6 {
            schedule.change();
        }
        schedule.commit();
        for sync in SYNCS {
            schedule.world.sync(sync, json!({"baseDir": format!("/{sync}"), "wait": false}));
        }
        schedule.start();
        schedule
    }

    fn say(&self, what: impl Into<String>) {
        self.log.lock().push(what.into());
    }

    fn start(&mut self) {
        self.world.start();
        (self.running, self.gated) = (true, false);
    }

    /// Changes an object in the next commit.
    fn change(&mut self) {
        let name = self.random.one(&POOL);
        let placed =
            Placed { sync: self.random.one(&SYNCS), file: self.random.below(3), value: self.random.below(1000) };
        let is_there = self.branch.contains_key(name);
        match self.random.below(4) {
            0 if is_there => {
                self.branch.remove(name);
            }
            // It moves, perhaps to the other GitSync, with the same value.
            1 if is_there => {
                let value = self.branch[name].value;
                self.branch.insert(name, Placed { value, ..placed });
            }
            2 if is_there => self.branch.get_mut(name).unwrap().value = placed.value,
            _ => {
                self.branch.insert(name, placed);
            }
        }
    }

    fn commit(&mut self) {
        let remote = &mut self.world.remote;
        remote.clear();
        // The directories always exist, even without objects.
        remote.file("one/README.md", "").file("two/README.md", "");
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        for (name, placed) in &self.branch {
            let text = files.entry(format!("{}/f{}.yaml", placed.sync, placed.file)).or_default();
            *text += &format!("---\n{}", document(name, placed.value));
        }
        if self.broken {
            files.insert("one/bad.yaml".to_owned(), "a: [".to_owned());
        }
        for (path, text) in files {
            remote.file(&path, text);
        }
        let commit = remote.commit("next");
        self.say(format!(
            "commit {commit}: {:?}{}",
            self.branch,
            if self.broken { " and a file that is no YAML" } else { "" }
        ));
        self.history.push((commit, self.branch.clone()));
        self.world.look();
    }

    fn allow_prune(&self) {
        let head = self.world.remote.head();
        for sync in SYNCS {
            self.world.annotate_sync(sync, "mainstay.dev/allow-prune", &head);
        }
    }

    fn by_hand(&mut self) {
        let name = self.random.one(&POOL);
        let (version, resource) = served(name);
        let Some(live) = self.world.get(version, resource, name) else { return };
        let uid = live["metadata"]["uid"].as_str().unwrap().to_owned();
        let (what, patch) = match self.random.below(6) {
            0 if name.starts_with('w') => ("scale", json!({"spec": {"replicas": 4}})),
            0 => ("edit", json!({"data": {"key": STANDARD.encode("edited")}})),
            1 => ("delete", Value::Null),
            2 => ("unlabel", json!({"metadata": {"labels": {"mainstay.dev/sync": null}}})),
            3 => {
                let label = format!("added-{}", self.random.below(100));
                let patch = json!({"metadata": {"labels": {&label: "theirs"}}});
                self.added.push((name, uid.clone(), label));
                ("add a label to", patch)
            }
            4 => ("wipe managedFields of", json!({"metadata": {"managedFields": [{}]}})),
            _ => ("relabel", json!({"metadata": {"labels": {"mainstay.dev/sync": "somebody.else"}}})),
        };
        self.say(format!("{what} {name}"));
        if what == "unlabel" || what == "relabel" {
            self.unlabelled.insert(uid);
        } else if what.starts_with("wipe") {
            self.wiped.insert(uid);
        }
        let action =
            if what == "delete" { Action::Delete(DeleteOptions::default()) } else { Action::Patch(Form::Merge, patch) };
        // Not a field manager of a user tool: adoption removes the additions of those.
        let _ = self.world.try_as("somebody", Call::new(version, resource, NAMESPACE, name, action));
    }

    fn fault(&mut self) {
        let fault = Fault {
            verb: self.random.one(&["apply", "get", "list", "watch", "patch", "delete", "create", ""]).into(),
            resource: self
                .random
                .one(&["configmaps", "secrets", "deployments.apps", "", "gitsyncs.mainstay.dev/status"])
                .into(),
            code: self.random.one(&[409, 429, 500, 503, 504]),
            times: u32::try_from(1 + self.random.below(2)).unwrap(),
            after: self.random.sometimes(2),
            ..Fault::default()
        };
        self.say(format!("{fault:?}"));
        self.world.levers().fail_next(fault);
    }

    async fn step(&mut self) {
        match self.random.below(20) {
            0..=5 => {
                for _ in 0..=self.random.below(4) {
                    self.change();
                }
                self.commit();
            }
            6..=10 => {
                for _ in 0..=self.random.below(3) {
                    self.by_hand();
                }
            }
            11 | 12 => self.fault(),
            13 => {
                self.broken = !self.broken;
                self.commit();
            }
            14 => {
                let (commit, branch) =
                    self.history[usize::try_from(self.random.below(self.history.len() as u64)).unwrap()].clone();
                self.say(format!("force push of {commit}"));
                self.world.remote.force(&commit);
                self.branch = branch;
                self.world.look();
            }
            15 if self.random.sometimes(3) => {
                self.branch.clear();
                self.commit();
                self.allow_prune();
            }
            16 => {
                self.say("watches are dropped");
                self.world.server.embedded().store().end_watches(None);
                if self.random.sometimes(2) {
                    self.say("history is compacted");
                    self.world.server.embedded().store().compact();
                }
            }
            17 if self.running => {
                let writes = self.random.below(6);
                self.say(format!("nothing gets through after {writes} writes"));
                self.world.gate.shut_after(writes);
                self.gated = true;
            }
            _ if self.running => {
                self.say("kill");
                self.world.kill().await;
                self.running = false;
            }
            _ => {
                self.say("start");
                self.world.gate.open();
                self.start();
            }
        }
        // Waits for some events, or for a short time.
        let (mut events, patience) =
            (self.world.server.embedded().subscribe(), Duration::from_millis(self.random.below(60)));
        let some = self.random.below(6);
        let passed = async {
            for _ in 0..some {
                events.next().await;
            }
        };
        let _ = tokio::time::timeout(patience, passed).await;
    }

    /// Ends all faults and waits for the final state.
    async fn heal(&mut self) {
        self.say("heal");
        self.world.levers().clear_faults();
        // Requests that hang at a gate hang until the agent restarts.
        if !self.running || self.gated || self.random.sometimes(2) {
            self.say("start anew");
            self.world.kill().await;
            self.world.gate.open();
            self.start();
        }
        self.broken = false;
        self.change();
        self.commit();
        self.allow_prune();
        for sync in SYNCS {
            self.world.ask(sync).await;
        }
        for sync in SYNCS {
            self.world.ready(sync).await;
        }
        let reached = self.world.until("the cluster is what the branch says", |_| {
            self.take_advice();
            self.differences().is_empty()
        });
        if tokio::time::timeout(Duration::from_secs(30), reached).await.is_err() {
            let status = SYNCS.map(|sync| self.world.status(sync));
            panic!("{:#?}\n{status:#?}", self.differences());
        }
    }

    /// Deletes objects as the agent advises: those that left the repository without proof of ownership.
    fn take_advice(&self) {
        let held: Vec<Value> = SYNCS.iter().filter_map(|sync| self.world.status(sync).get("held").cloned()).collect();
        for said in held.iter().flat_map(|held| held.as_array().into_iter().flatten().filter_map(Value::as_str)) {
            for name in POOL.iter().filter(|name| said.contains(&format!("{NAMESPACE}/{name}: it carries our label"))) {
                let (version, resource) = served(name);
                let live = self.world.get(version, resource, name);
                if live.is_some_and(|live| self.wiped.contains(live["metadata"]["uid"].as_str().unwrap())) {
                    self.say(format!("delete {name}, as is advised"));
                    let action = Action::Delete(DeleteOptions::default());
                    let _ = self.world.try_as("somebody", Call::new(version, resource, NAMESPACE, name, action));
                }
            }
        }
    }

    /// Returns all differences from the expected state.
    fn differences(&self) -> Vec<String> {
        let mut all = Vec::new();
        for name in POOL {
            let (version, resource) = served(name);
            let live = self.world.get(version, resource, name);
            match (self.branch.get(name), live) {
                (Some(_), None) => all.push(format!("{name} is missing")),
                (Some(placed), Some(live)) => {
                    let (found, wanted) = (value_of(name, &live), wanted_value(name, placed.value));
                    if found != wanted {
                        all.push(format!("{name} is {found} instead of {wanted}"));
                    }
                    let label = format!("mainstay-tests.{}", placed.sync);
                    if live["metadata"]["labels"]["mainstay.dev/sync"] != label {
                        all.push(format!("{name} is labelled {}", live["metadata"]["labels"]));
                    }
                }
                (None, Some(live)) => {
                    let ours = SYNCS.iter().any(|sync| {
                        live["metadata"]["labels"]["mainstay.dev/sync"] == format!("mainstay-tests.{sync}")
                    });
                    if ours || !self.unlabelled.contains(live["metadata"]["uid"].as_str().unwrap()) {
                        all.push(format!("{name} is still there: {}", live["metadata"]));
                    }
                }
                (None, None) => {}
            }
        }
        for (name, uid, label) in &self.added {
            let (version, resource) = served(name);
            let live = self.world.get(version, resource, name);
            let same = live.filter(|live| live["metadata"]["uid"] == **uid);
            if same.is_some_and(|live| live["metadata"]["labels"][label] != "theirs") {
                all.push(format!("{name} lost {label}"));
            }
        }
        for before in &self.bystanders {
            let name = before["metadata"]["name"].as_str().unwrap();
            if self.world.get("v1", "configmaps", name).is_none_or(|now| *now != *before) {
                all.push(format!("bystander {name} was touched"));
            }
        }
        all.extend(SYNCS.iter().filter_map(|sync| self.inventory_differs(sync)));
        all
    }

    fn inventory_differs(&self, sync: &str) -> Option<String> {
        let wanted: BTreeSet<String> =
            self.branch.iter().filter(|(_, placed)| placed.sync == sync).map(|(name, _)| (*name).to_owned()).collect();
        let map = self.world.get("v1", "configmaps", &format!("mainstay-inventory-{sync}-0"));
        let content = map.and_then(|map| STANDARD.decode(map["binaryData"]["inventory"].as_str()?).ok());
        let listed: BTreeSet<String> = match content.map(|content| Inventory::decode([content.as_slice()])) {
            Some(Ok(inventory)) => inventory.0.keys().map(|key| key.name.to_string()).collect(),
            Some(Err(error)) => return Some(format!("the inventory of {sync}: {error}")),
            None => BTreeSet::new(),
        };
        (listed != wanted).then(|| format!("the inventory of {sync} lists {listed:?} instead of {wanted:?}"))
    }
}

async fn run(seed: u64, log: Arc<Mutex<Vec<String>>>) {
    let mut schedule = Schedule::new(seed, log).await;
    for _ in 0..STEPS {
        schedule.step().await;
    }
    schedule.heal().await;
    schedule.world.stop().await;
    let differences = schedule.differences();
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Runs a schedule. Returns the failure and the steps, if it fails.
fn failure_of(seed: u64) -> Option<String> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let told = Arc::clone(&log);
    let result = catch_unwind(AssertUnwindSafe(move || runtime.block_on(run(seed, told))));
    let why = result.err()?;
    let why = why.downcast_ref::<String>().cloned().unwrap_or_else(|| "no words".to_owned());
    let log = log.lock();
    Some(format!("MAINSTAY_SEED={seed} MAINSTAY_SCHEDULES=1\n{}\n{why}", log.join("\n")))
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn random_schedules_converge_to_the_branch() {
    let (first, count) = (number("MAINSTAY_SEED", 1), number("MAINSTAY_SCHEDULES", 100));
    let next = AtomicU64::new(first);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let failure = failure_of(seed);
                    failures.lock().extend(failure);
                }
            });
        }
    });
    let failures = failures.into_inner();
    assert!(failures.is_empty(), "{} of {count} schedules failed:\n{}", failures.len(), failures.join("\n\n"));
}
