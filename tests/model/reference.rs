//! The reference model: the content of the branch, the GitSyncs and the hand edits, and the state that follows from
//! them. The model knows neither requests nor tasks nor the design of the product.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::schedule::{Edit, HOME, OBJECTS, OWNERS, Spec, object_of, owner_of};

/// The owners that want each object, each with the desired value.
pub(crate) type Wanted = BTreeMap<usize, BTreeMap<usize, u16>>;

/// A state of the branch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commit {
    pub(crate) id: String,
    pub(crate) wanted: Wanted,
    /// Owners whose directory cannot be decoded.
    pub(crate) broken: BTreeSet<usize>,
}

/// The state of a GitSync.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    /// Start of the suspension, in nanoseconds.
    pub(crate) suspended: Option<u64>,
    /// Whether the GitSync was suspended at some time since everything was applied. Meanwhile, other GitSyncs did not
    /// wait for it.
    was_suspended: bool,
    /// Time since which the GitSync deletes nothing, in nanoseconds.
    keeps: Option<u64>,
    /// Commits with permitted deletions.
    allowed: BTreeSet<String>,
}

/// Hand edits of the object with a UID.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Touched {
    /// Whether Mainstay's label was removed. An object that then leaves the repository stays in the cluster.
    pub(crate) label: bool,
    /// Whether `managedFields` were wiped. Without a recorded UID, there is no proof that Mainstay applied the object.
    pub(crate) managers: bool,
}

/// The state of the model.
#[derive(Debug)]
pub(crate) struct Reference {
    /// The content of the next commit.
    pub(crate) next: Commit,
    /// The states of the branch, the newest last.
    pub(crate) states: Vec<Commit>,
    /// The newest state that every owner has applied in full.
    pub(crate) settled: usize,
    pub(crate) owners: [Owner; OWNERS.len()],
    pub(crate) touched: BTreeMap<String, Touched>,
    /// Labels that users added: object, UID of the object, label.
    pub(crate) added: Vec<(usize, String, String)>,
    /// Start and end of the pause of an object, in nanoseconds.
    pub(crate) paused: BTreeMap<usize, (u64, u64)>,
}

impl Reference {
    pub(crate) fn new() -> Self {
        let owner = || Owner { suspended: None, was_suspended: false, keeps: None, allowed: BTreeSet::default() };
        Self {
            next: Commit::default(),
            states: Vec::new(),
            settled: 0,
            owners: [owner(), owner(), owner()],
            touched: BTreeMap::new(),
            added: Vec::new(),
            paused: BTreeMap::new(),
        }
    }

    /// Changes the next commit.
    pub(crate) fn edit(&mut self, edit: &Edit) {
        let wanted = &mut self.next.wanted;
        match *edit {
            Edit::Put(object, owner, value) => {
                wanted.insert(object_of(object), BTreeMap::from([(owner_of(owner), value)]));
            }
            Edit::Share(object, owner, value) => {
                wanted.entry(object_of(object)).or_default().insert(owner_of(owner), value);
            }
            Edit::Move(object, owner) => {
                if let Some(owners) = wanted.get_mut(&object_of(object)) {
                    let value = owners.values().next().copied().unwrap_or_default();
                    *owners = BTreeMap::from([(owner_of(owner), value)]);
                }
            }
            Edit::Remove(object) => drop(wanted.remove(&object_of(object))),
            Edit::Fill(owner) => {
                for object in 0..OBJECTS.len() {
                    wanted.entry(object).or_insert_with(|| BTreeMap::from([(owner_of(owner), 1)]));
                }
            }
            Edit::Empty(owner) => {
                for owners in wanted.values_mut() {
                    owners.remove(&owner_of(owner));
                }
                wanted.retain(|_, owners| !owners.is_empty());
            }
        }
    }

    pub(crate) fn set(&mut self, owner: usize, spec: Spec, now: u64) {
        let owner = &mut self.owners[owner];
        match spec {
            Spec::Suspend(on) => {
                owner.suspended = on.then(|| owner.suspended.unwrap_or(now));
                owner.was_suspended |= on;
            }
            Spec::Prune(on) => owner.keeps = (!on).then(|| owner.keeps.unwrap_or(now)),
            Spec::Report(_) | Spec::Freeze(_) | Spec::Additions(_) => {}
        }
    }

    pub(crate) fn allow(&mut self, owner: usize, commit: &str) {
        self.owners[owner].allowed.insert(commit.to_owned());
    }

    /// Makes the next commit decodable, with one owner of each object.
    pub(crate) fn calm(&mut self) {
        self.next.broken.clear();
        for owners in self.next.wanted.values_mut() {
            let first = owners.pop_first();
            *owners = first.into_iter().collect();
        }
    }

    /// Records that every owner has applied the newest state completely.
    pub(crate) fn settle(&mut self) {
        self.settled = self.states.len() - 1;
        for owner in &mut self.owners {
            owner.was_suspended = owner.suspended.is_some();
        }
    }

    pub(crate) fn head(&self) -> &Commit {
        self.states.last().unwrap()
    }

    /// Returns why an object of this owner must not be deleted; `None` if a commit that may be in progress removes it.
    pub(crate) fn forbids_deletion(&self, object: usize, owner: usize, now: u64, at_least: u64) -> Option<String> {
        if self.owners[owner].keeps.is_some_and(|since| since + at_least < now) {
            return Some("spec.prune is false".to_owned());
        }
        let states = &self.states[self.settled..];
        let waits = |state: &Commit| {
            let owners = state.wanted.get(&object);
            owners.is_some_and(|owners| owners.keys().any(|one| *one == owner || !self.owners[*one].was_suspended))
        };
        let left = states.iter().filter(|state| !waits(state)).collect::<Vec<_>>();
        if left.is_empty() {
            return Some("every commit since all was applied wants it".to_owned());
        }
        let readable = left.into_iter().filter(|state| !state.broken.contains(&owner)).collect::<Vec<_>>();
        if readable.is_empty() {
            return Some("it left with a commit that cannot be decoded".to_owned());
        }
        let allowed = &self.owners[owner].allowed;
        let is_held = |state: &&&Commit| {
            let is_empty = !state.wanted.values().any(|owners| owners.contains_key(&owner));
            (is_empty || OBJECTS[object].is_protected) && !allowed.contains(&state.id)
        };
        let all = readable.len();
        (readable.iter().filter(is_held).count() == all).then(|| "a guard holds it".to_owned())
    }

    /// Whether an object is paused at `now`, and has been for `at_least`, so that the agent knows it.
    pub(crate) fn is_paused(&self, object: usize, now: u64, at_least: u64) -> bool {
        self.paused.get(&object).is_some_and(|(since, until)| since + at_least < now && now < *until)
    }

    /// Whether an owner is suspended at `now`, and has been for `at_least`, so that the agent knows it.
    pub(crate) fn is_suspended(&self, owner: usize, now: u64, at_least: u64) -> bool {
        self.owners[owner].suspended.is_some_and(|since| since + at_least < now)
    }

    /// Returns the desired value ([`value_of`]) of an object for each owner that may have it.
    fn may_be(&self, object: usize) -> BTreeMap<usize, String> {
        let owners = self.head().wanted.get(&object);
        owners.into_iter().flatten().map(|(owner, value)| (*owner, wanted_value(object, *value))).collect()
    }

    /// Returns how an object differs from its state when everything is settled.
    pub(crate) fn difference(&self, object: usize, live: Option<&Value>) -> Option<String> {
        let (name, may_be) = (OBJECTS[object].name, self.may_be(object));
        match live {
            None if may_be.is_empty() => None,
            None => Some(format!("{name} is missing")),
            Some(live) if may_be.is_empty() => {
                let touched = self.touched_of(live);
                let is_ours = label_of(live).is_some();
                (is_ours || !(touched.label || touched.managers))
                    .then(|| format!("{name} is still there: {}", live["metadata"]))
            }
            Some(live) => {
                let (found, label) = (value_of(object, live), label_of(live));
                let is_right = label.is_some_and(|owner| may_be.get(&owner).is_some_and(|wanted| *wanted == found));
                (!is_right).then(|| format!("{name} is {found}, owned by {label:?}, instead of one of {may_be:?}"))
            }
        }
    }

    /// Returns how the inventory of an owner differs from the objects that the owner wants.
    pub(crate) fn inventory_difference(&self, owner: usize, listed: &BTreeSet<String>) -> Option<String> {
        let wanted = self.head().wanted.iter().filter(|(_, owners)| owners.contains_key(&owner));
        let wanted: BTreeSet<String> = wanted.map(|(object, _)| OBJECTS[*object].name.to_owned()).collect();
        (*listed != wanted)
            .then(|| format!("the inventory of {} lists {listed:?} instead of {wanted:?}", OWNERS[owner]))
    }

    pub(crate) fn touched_of(&self, live: &Value) -> Touched {
        self.touched.get(uid_of(live)).copied().unwrap_or_default()
    }
}

pub(crate) fn uid_of(live: &Value) -> &str {
    live["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Returns the owner that the label of an object names.
pub(crate) fn label_of(live: &Value) -> Option<usize> {
    let label = live["metadata"]["labels"]["mainstay.dev/sync"].as_str()?;
    OWNERS.iter().position(|owner| label == format!("{HOME}.{owner}"))
}

/// Returns the manifest of an object with a value.
pub(crate) fn document(object: usize, value: u16) -> String {
    let one = &OBJECTS[object];
    let namespace = if one.namespace.is_empty() { String::new() } else { format!(", namespace: {}", one.namespace) };
    let head = format!("apiVersion: {}\nkind: {}\nmetadata: {{name: {}{namespace}", one.version, one.kind, one.name);
    match one.kind {
        "ConfigMap" => format!("{head}}}\ndata: {{key: \"{value}\", other: same}}\n"),
        "Secret" => format!("{head}}}\nstringData: {{key: \"{value}\"}}\n"),
        "Namespace" => format!("{head}, labels: {{team: v{value}}}}}\n"),
        _ => format!(
            "{head}}}\nspec:\n  schedule: 0 0 1 1 *\n  suspend: true\n  startingDeadlineSeconds: {value}\n  \
             jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: a, image: a}}]}}}}}}}}\n"
        ),
    }
}

/// Returns the merge patch of a hand edit.
pub(crate) fn edited(object: usize) -> Value {
    use serde_json::json;
    match OBJECTS[object].kind {
        "ConfigMap" => json!({"data": {"key": "edited"}}),
        "Secret" => json!({"data": {"key": "ZWRpdGVk"}}),
        "Namespace" => json!({"metadata": {"labels": {"team": "edited"}}}),
        _ => json!({"spec": {"startingDeadlineSeconds": 12_345}}),
    }
}

/// Returns the fields of a live object that hold its document's value.
pub(crate) fn value_of(object: usize, live: &Value) -> String {
    match OBJECTS[object].kind {
        "ConfigMap" => format!("{}{}", live["data"]["key"], live["data"]["other"]),
        "Secret" => live["data"]["key"].to_string(),
        "Namespace" => live["metadata"]["labels"]["team"].to_string(),
        _ => live["spec"]["startingDeadlineSeconds"].to_string(),
    }
}

fn wanted_value(object: usize, value: u16) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    match OBJECTS[object].kind {
        "ConfigMap" => format!("\"{value}\"\"same\""),
        "Secret" => format!("\"{}\"", STANDARD.encode(value.to_string())),
        "Namespace" => format!("\"v{value}\""),
        _ => value.to_string(),
    }
}

/// Returns [`value_of`] an object after a merge patch.
pub(crate) fn value_after(object: usize, patch: &Value) -> String {
    let mut live = serde_json::json!({"data": {"other": "same"}});
    json_patch::merge(&mut live, patch);
    value_of(object, &live)
}
