//! Takes over fields of former field managers: before the first apply of an object, and after it for fields that
//! remain. Takes over aliases (fields that the server derives from a removed field) before each apply.
//!
//! Invariant: `managedFields` are rewritten only at the resource version that was read.
//! Invariant: fields that the server refuses to remove return to their former manager. The rest of the object is
//! applied.
//! Invariant: if no field is left, the takeover costs no extra request.
//!
//! Not here: which fields are taken over (`adoption`, `aliases`).

use serde_json::{Value, json};

use super::Writer;
use super::edit::{few, shown_fields};
use super::ignored::GivenUp;
use super::put::{Expect, Step};
use super::server_side::{Collisions, InPlace, RACES};
use crate::managed::adoption::{self, Moment, TakeOver, Taken};
use crate::managed::desired::Desired;
use crate::managed::fields::{Fields, add, applied_by, entries};
use crate::managed::verdict::{resource_version, uid};
use crate::managed::{aliases, ownership};
use crate::notification::Message;
use mainstay_api::names::MANAGER;
use mainstay_cluster::{Error, Part, Persistence};
use mainstay_object::Owner;

/// Maximum number of applies after the first one. Fields of each API version are taken over separately.
const ROUNDS: usize = 4;
/// Fields of an object that a preview does not compare.
const NO_CONTENT: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];
/// Fields of the metadata that a preview compares.
const METADATA: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];

/// Fields that an apply left in the object and that a further apply removes.
struct Left {
    /// The rewritten `managedFields`, with which the next apply removes the fields.
    entries: Value,
    /// The fields.
    fields: Fields,
    /// The part that former managers own.
    taken: Option<TakeOver>,
}

impl Left {
    fn of(step: &Step, body: &Value, live: &Value, with_aliases: bool, now: &str) -> Option<Self> {
        let desired = &step.desired;
        let managed_fields = live.pointer("/metadata/managedFields")?;
        let taken = adoption::take_over(managed_fields, desired, body, &step.appliers, Moment::After, now);
        let stale = if with_aliases { aliases::stale(&desired.key, body, live) } else { Fields::new() };
        if taken.is_none() && stale.is_empty() {
            return None;
        }
        let mut fields = taken.as_ref().map(|taken| taken.taken.clone()).unwrap_or_default();
        add(&mut fields, &stale);
        let entries = taken.as_ref().map_or(managed_fields, |taken| &taken.entries);
        let entries = ownership::claimed_in(entries, &desired.object.api_version, &stale);
        Some(Self { entries, fields, taken })
    }
}

impl Writer {
    /// Takes over the fields of former managers before the first apply. Returns the new resource version if the step
    /// expects a version.
    pub(super) async fn take_over(&self, step: &Step, body: &Value) -> Result<Option<String>, Error> {
        let (version, managed_fields) = match &step.expect {
            Expect::Ours | Expect::Absent => return Ok(None),
            Expect::Withdrawn { version, uid } => {
                return self.change_version(&step.desired, version, uid).await.map(Some);
            }
            Expect::Version { version, managed_fields } | Expect::Offered { version, managed_fields } => {
                (version, managed_fields)
            }
        };
        let (desired, now) = (&step.desired, self.now().to_string());
        let taken = adoption::take_over(managed_fields, desired, body, &step.appliers, Moment::Before, &now);
        let Some(what) = taken else { return Ok(Some(version.clone())) };
        let before = self.rewrite(desired, version, &what.entries).await?;
        let version = resource_version(&before).to_owned();
        self.store().begin_takeover(&desired.key, Taken::new(what, before));
        Ok(Some(version))
    }

    /// Claims the aliases that become stale by the apply of `body`, so that this apply removes them. Returns the
    /// versions before and after. If the object changes in the meantime, the aliases are removed after the apply
    /// instead.
    pub(super) async fn claim_aliases(&self, desired: &Desired, body: &Value) -> Result<Option<GivenUp>, Error> {
        if !aliases::are_in(&desired.key) || !self.store().may_leave_aliases(&desired.key, body) {
            return Ok(None);
        }
        let Some(live) = self.read(desired).await? else { return Ok(None) };
        let stale = aliases::stale_after(&desired.key, body, &live);
        let managed_fields = live.pointer("/metadata/managedFields").unwrap_or(&Value::Null);
        let claimed = ownership::claimed_in(managed_fields, &desired.object.api_version, &stale);
        if claimed == *managed_fields {
            return Ok(None);
        }
        let before = resource_version(&live).to_owned();
        match self.rewrite(desired, &before, &claimed).await {
            Ok(after) => {
                let (rewritten, after) = (before.clone(), resource_version(&after).to_owned());
                Ok(Some(GivenUp { before, rewritten, after }))
            }
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Applies after the takeover, and repeats while fields remain. If the server refuses to remove taken fields, their
    /// managers get them back.
    pub(super) async fn apply_all(&self, owner: &Owner, step: &Step, body: &mut Value) -> Result<InPlace, Error> {
        let desired = &step.desired;
        let applied = self.apply(desired, body, None, Collisions::MakeWay).await;
        let taken = self.store().takeover(&desired.key);
        let (mut error, taken) = match (applied, taken) {
            (Ok(applied), _) => {
                self.end_takeover(owner, desired, body, &applied.answer);
                return self.take_over_left(owner, step, body, applied).await;
            }
            (Err(error), Some(taken)) if error.is_invalid() => (error, taken),
            (Err(error), _) => return Err(error),
        };
        let causes = error.refusal().map(|refusal| refusal.causes.clone()).unwrap_or_default();
        let causes = causes.iter().map(|cause| cause.field.as_str()).collect::<Vec<_>>();
        for causes in [&*causes, &[]] {
            let at = step.expect.is_fenced().then(|| resource_version(body).to_owned());
            let Some(version) = self.give_back(desired, &taken.what, causes, at.as_deref()).await? else { continue };
            if body.pointer("/metadata/resourceVersion").is_some() {
                body["metadata"]["resourceVersion"] = json!(version);
            }
            match self.apply(desired, body, None, Collisions::Stay).await {
                Err(again) if again.is_invalid() => error = again,
                Err(again) => return Err(again),
                Ok(applied) => {
                    self.store().end_takeover(&desired.key);
                    self.announce_left(owner, desired, &error);
                    return Ok(applied);
                }
            }
        }
        self.store().end_takeover(&desired.key);
        Err(error)
    }

    /// Returns fields to their former managers: those at the paths in `causes`, or all. Returns the new version of the
    /// object. Changes nothing if the object does not have the version `at`.
    async fn give_back(
        &self,
        desired: &Desired,
        taken: &TakeOver,
        causes: &[&str],
        at: Option<&str>,
    ) -> Result<Option<String>, Error> {
        let live = self.read(desired).await?.filter(|live| at.is_none_or(|at| at == resource_version(live)));
        let Some(live) = live else { return Ok(None) };
        let managed_fields = live.pointer("/metadata/managedFields").unwrap_or(&Value::Null);
        let Some(entries) = adoption::put_back(managed_fields, taken, causes) else { return Ok(None) };
        let rewritten = self.rewrite(desired, resource_version(&live), &entries).await?;
        Ok(Some(resource_version(&rewritten).to_owned()))
    }

    /// Takes over stale aliases and the fields that remain after an apply, then applies again.
    async fn take_over_left(
        &self,
        owner: &Owner,
        step: &Step,
        body: &Value,
        mut applied: InPlace,
    ) -> Result<InPlace, Error> {
        let desired = &step.desired;
        let (mut read, mut with_aliases, mut conflicts) = (None, true, 0);
        for _ in 0..ROUNDS {
            let (left, before) = loop {
                let live = read.as_ref().unwrap_or(&applied.answer);
                let Some(left) = Left::of(step, body, live, with_aliases, &self.now().to_string()) else {
                    return Ok(applied);
                };
                match self.rewrite(desired, resource_version(live), &left.entries).await {
                    Err(error) if error.is_conflict() && conflicts < RACES => conflicts += 1,
                    rewritten => break (left, rewritten?),
                }
                read = self.read(desired).await?.filter(|live| uid(live) == uid(&applied.answer));
                if read.is_none() {
                    return Ok(applied);
                }
            };
            if let Some(what) = left.taken {
                self.store().begin_takeover(&desired.key, Taken::new(what, before));
            }
            let mut body = body.clone();
            body["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
            body["metadata"]["uid"] = json!(uid(&applied.answer));
            let again = self.apply(desired, &mut body, None, Collisions::Stay).await;
            let taken = self.store().takeover(&desired.key);
            match (again, taken) {
                (Ok(again), _) => {
                    self.end_takeover(owner, desired, &body, &again.answer);
                    applied = again;
                }
                (Err(error), Some(taken)) if error.is_invalid() => {
                    self.give_back(desired, &taken.what, &[], None).await?;
                    self.store().end_takeover(&desired.key);
                    self.announce_left(owner, desired, &error);
                    return Ok(applied);
                }
                (Err(error), _) => return Err(error),
            }
            // A field that reappears after its removal is set by the server or a webhook at each write.
            (read, with_aliases) = (None, false);
        }
        Ok(applied)
    }

    /// Dry-runs the removal of fields that remain in `after`, the result of a dry-run apply, and returns the object.
    pub(super) async fn without_left(&self, step: &Step, body: &Value, before: &Value, after: Value) -> Value {
        let desired = &step.desired;
        let Some(left) = Left::of(step, body, &after, true, "") else { return after };
        let mut keep = applied_by(&after, MANAGER).cloned().unwrap_or_default();
        let rewritten = json!({"metadata": {"managedFields": left.entries}});
        for entry in entries(&rewritten).filter(|entry| entry.manager != MANAGER) {
            add(&mut keep, entry.fields);
        }
        let rest = adoption::without(after, &left.fields, &keep);
        let operations = operations(before, &rest);
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let how = Persistence::DryRun;
        // If the dry run fails, the preview lacks the defaults of removed fields.
        self.cluster().patch_json(&desired.kind, namespace, name, Part::Main, &operations, how).await.unwrap_or(rest)
    }

    /// Announces the fields that an apply of `body` removed.
    fn end_takeover(&self, owner: &Owner, desired: &Desired, body: &Value, after: &Value) {
        let Some(taken) = self.store().end_takeover(&desired.key) else { return };
        let Some(removed) = taken.removed(body, after) else { return };
        let (subject, object, from) = (owner.clone(), desired.key.to_string(), taken.what.from.clone());
        let fields = few(shown_fields(desired, removed));
        self.announce(owner, None, &Message::TakenOver { subject, object, from, fields });
    }

    fn announce_left(&self, owner: &Owner, desired: &Desired, error: &Error) {
        let (subject, object) = (owner.clone(), desired.key.to_string());
        let message = Message::NotRemoved { subject, object, cause: error.cause_text() };
        self.announce(owner, None, &message);
    }
}

/// Returns the JSON patch that changes the content of `before` into that of `after`.
fn operations(before: &Value, after: &Value) -> Value {
    let names = |object: &Value, skip: &[&str]| {
        let names = object.as_object().into_iter().flatten().map(|(name, _)| name.clone());
        names.filter(|name| !skip.contains(&name.as_str())).collect::<Vec<_>>()
    };
    let mut operations = Vec::new();
    let mut change = |path: &str, name: &str, before: Option<&Value>, after: Option<&Value>| {
        let path = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
        match (before, after) {
            (before, Some(after)) if before != Some(after) => {
                operations.push(json!({"op": "add", "path": path, "value": after}));
            }
            (Some(_), None) => operations.push(json!({"op": "remove", "path": path})),
            _ => {}
        }
    };
    let mut all = names(before, &NO_CONTENT);
    all.extend(names(after, &NO_CONTENT).into_iter().filter(|name| before.get(name).is_none()));
    for name in all {
        change("", &name, before.get(&name), after.get(&name));
    }
    for name in METADATA {
        change("/metadata", name, before["metadata"].get(name), after["metadata"].get(name));
    }
    Value::Array(operations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_turns_the_content_of_one_object_into_another() {
        let before =
            json!({"kind": "A", "metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"a": 1}, "data": {}});
        let after =
            json!({"kind": "A", "metadata": {"name": "a", "annotations": {"y": "1"}}, "spec": {"a": 2}, "b/c": 1});
        let expected = json!([
            {"op": "remove", "path": "/data"},
            {"op": "add", "path": "/spec", "value": {"a": 2}},
            {"op": "add", "path": "/b~1c", "value": 1},
            {"op": "remove", "path": "/metadata/labels"},
            {"op": "add", "path": "/metadata/annotations", "value": {"y": "1"}},
        ]);
        assert_eq!(operations(&before, &after), expected);
        assert_eq!(operations(&after, &after), json!([]));
    }
}
