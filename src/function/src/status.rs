//! Computes the status of a Function after a reconcile, and which updates are emitted as messages.
//!
//! Invariant: equal inputs result in an equal status, so an unchanged status is not written. Invariant:
//! `observedGeneration` changes together with the conditions of that generation.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::resolve::Warning;
use super::stage::{ConditionUpdate, Record};
use mainstay_api::Function;
use mainstay_api::function::FunctionStatus;
use mainstay_api::function_conditions::{self as conditions, Reason, Status, Type};

/// The result of a reconcile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reconciled {
    /// The condition updates, in order.
    pub updates: Vec<ConditionUpdate>,
    /// Conditions that are unchanged and confirmed for this generation.
    pub confirmed: Vec<Type>,
    /// The build record; `None` if the reconcile ended before the build record was determined.
    pub record: Option<Record>,
    /// Commit and tree of a Git Function.
    pub source: Option<(String, String)>,
    /// The runtime.
    pub runtime: Option<String>,
    /// The warnings; `None` if the reconcile ended before the warnings were determined.
    pub warnings: Option<Vec<Warning>>,
}

/// Returns the warnings that were not emitted yet. The status lists the emitted warnings.
pub fn unreported<'p>(old: &FunctionStatus, reconciled: &'p Reconciled) -> impl Iterator<Item = &'p Warning> {
    let reported = old.warnings.clone();
    reconciled.warnings.iter().flatten().filter(move |warning| !reported.contains(&warning.to_string()))
}

/// Returns the status after a reconcile, and the updates to emit, in order.
pub fn after(
    old: &FunctionStatus,
    function: &Function,
    reconciled: &Reconciled,
    now: Timestamp,
) -> (FunctionStatus, Vec<ConditionUpdate>) {
    let generation = function.metadata.generation;
    let mut new = old.clone();
    let mut emitted = Vec::new();
    for update in &reconciled.updates {
        if set_condition(&mut new, update, generation, now) || update.done {
            emitted.push(update.clone());
        }
    }
    for kind in &reconciled.confirmed {
        if let Some(condition) = new.conditions.iter_mut().find(|condition| condition.type_ == kind.as_str()) {
            condition.observed_generation = generation;
        }
    }
    if old.observed_generation != generation {
        let message = match reconciled.record {
            None => "not evaluated: the configuration is invalid",
            Some(_) => "not evaluated: an earlier step is incomplete",
        };
        mark_unknown(&mut new, message, generation, now);
    }
    new.observed_generation = generation;
    set_source(&mut new, function, reconciled);
    if let Some(record) = &reconciled.record {
        set_builds(&mut new, record, function.metadata.generation);
    }
    (new, emitted)
}

/// Marks conditions that the reconcile did not evaluate for a new generation as unknown. `Running` stays as it is.
fn mark_unknown(status: &mut FunctionStatus, message: &str, generation: Option<i64>, now: Timestamp) {
    let first = status.conditions.first().map(|condition| condition.type_.clone());
    for kind in [Type::ConfigurationReady, Type::BuildReady] {
        let is_stale = conditions::find(&status.conditions, kind).is_some_and(|condition| {
            condition.observed_generation != generation && condition.status != Status::Unknown.as_str()
        });
        if is_stale {
            set_condition(
                status,
                &ConditionUpdate::new(kind, Status::Unknown, Reason::Pending, message),
                generation,
                now,
            );
        }
    }
    // The condition that changed last is listed first.
    status.conditions.sort_by_key(|condition| Some(&condition.type_) != first.as_ref());
}

/// Sets a condition. Returns whether it changed.
fn set_condition(
    status: &mut FunctionStatus,
    update: &ConditionUpdate,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let old = conditions::find(&status.conditions, update.condition).cloned();
    let same = old.as_ref().is_some_and(|old| {
        old.status == update.status.as_str() && old.reason == update.reason.as_str() && old.message == update.message
    });
    let speaks_of = if update.outdated { old.and_then(|old| old.observed_generation) } else { generation };
    if same {
        if let Some(condition) = status.conditions.iter_mut().find(|c| c.type_ == update.condition.as_str()) {
            condition.observed_generation = speaks_of;
        }
        return false;
    }
    conditions::set(
        &mut status.conditions,
        update.condition,
        update.status,
        update.reason,
        &update.message,
        speaks_of,
        now,
    )
}

/// Maximum size in bytes of a spec field that the status repeats. An inline source may use most of an object's maximum
/// size, so a second copy would not fit and no status could be written.
const MAX_COPY: usize = 64 << 10;

fn copied(text: Option<&String>) -> Option<String> {
    text.filter(|text| text.len() <= MAX_COPY).cloned()
}

fn set_source(status: &mut FunctionStatus, function: &Function, reconciled: &Reconciled) {
    let spec = &function.spec;
    let source = super::git::said(spec);
    if reconciled.source.is_none() && status.source.as_deref() != Some(&source) {
        // The tree belongs to a different repository.
        status.tree = None;
    }
    status.source = Some(source).filter(|text| text.len() <= MAX_COPY).map(Cow::into_owned);
    if reconciled.runtime.is_some() {
        status.runtime.clone_from(&reconciled.runtime);
    }
    if let Some(warnings) = &reconciled.warnings {
        status.warnings = warnings.iter().map(ToString::to_string).collect();
    }
    status.runtime_image_override = copied(spec.runtime_image_override.as_ref());
    if let Some((commit, tree)) = &reconciled.source {
        status.commit = Some(commit.clone());
        status.tree = Some(tree.clone());
        status.reference.clone_from(&spec.reference);
        status.base_dir.clone_from(&spec.base_dir);
    } else if reconciled.record.is_some() {
        // The source is no longer in Git.
        (status.commit, status.tree, status.reference, status.base_dir) = (None, None, None, None);
    }
}

fn set_builds(status: &mut FunctionStatus, record: &Record, generation: Option<i64>) {
    status.built.clone_from(&record.built);
    status.image.clone_from(&record.image);
    status.served_generation =
        if record.serves_current { generation } else { status.served_generation.filter(|_| record.image.is_some()) };
    status.serving = record.has_knative_service.then(|| "knative".to_owned());
    let (pods, selector) = &record.pods;
    (status.replicas, status.pod_selector) = (Some(*pods), Some(selector.clone()));
    status.queue = record.queue.and_then(|queue| i64::try_from(queue).ok());
    status.retry_at = record.retry_at.map(Time);
    status.moves_at = record.moves_at.map(Time);
    match &record.building {
        Some((tag, attempt)) => {
            status.building = Some(tag.clone());
            status.builds = Some(*attempt);
        }
        // The number of attempts stays visible.
        None => status.building = None,
    }
}

/// Returns a merge patch from `old` to `new`. Removed fields are null.
pub fn patch(old: &FunctionStatus, new: &FunctionStatus) -> Value {
    let value = |status: &FunctionStatus| serde_json::to_value(status).unwrap_or_default();
    let (old, mut new) = (value(old), value(new));
    set_null(&old, &mut new);
    if let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) {
        new.retain(|key, value| old.get(key) != Some(value));
    }
    serde_json::json!({ "status": new })
}

/// Sets fields of `old` that `new` lacks to null, at every depth. A merge patch removes a field only if its value is
/// null.
fn set_null(old: &Value, new: &mut Value) {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) else { return };
    for (key, old) in old {
        set_null(old, new.entry(key.clone()).or_insert(Value::Null));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mainstay_api::function::{Built, Inputs};
    use mainstay_api::{FunctionSpec, events};

    #[test]
    fn a_warning_is_emitted_until_the_status_has_it() {
        let warning =
            |reason: events::Reason, message: &str| Warning { reason: reason.into(), message: message.to_owned() };
        let with = |warnings: Option<Vec<Warning>>| Reconciled { warnings, ..Reconciled::default() };
        let function = Function::new("hello", FunctionSpec::default());
        let mut status = FunctionStatus::default();
        let mut reported = |reconciled: Reconciled| {
            let emitted = unreported(&status, &reconciled).map(|warning| warning.message.clone()).collect::<Vec<_>>();
            (status, _) = after(&status, &function, &reconciled, Timestamp::UNIX_EPOCH);
            (emitted.concat(), status.warnings.join("|"))
        };
        let (a, b) = (warning(events::Reason::EnvIgnored, "a"), warning(events::Reason::PresetUnknown, "b"));
        let mut check = |reconciled: Option<Vec<Warning>>, emitted: &str, held: &str| {
            assert_eq!(reported(with(reconciled)), (emitted.to_owned(), held.to_owned()));
        };
        check(Some(vec![a.clone()]), "a", "EnvIgnored: a");
        check(Some(vec![a.clone(), b.clone()]), "b", "EnvIgnored: a|PresetUnknown: b");
        check(None, "", "EnvIgnored: a|PresetUnknown: b");
        check(Some(vec![b.clone()]), "", "PresetUnknown: b");
        check(Some(vec![]), "", "");
        check(Some(vec![b]), "b", "PresetUnknown: b");
    }

    /// Returns the conditions after a reconcile of generation 2. Before this reconcile, all conditions are True for
    /// generation 1.
    fn next(reconciled: &Reconciled) -> [String; 3] {
        let mut function = Function::new("hello", FunctionSpec::default());
        function.metadata.generation = Some(1);
        let all = Type::ALL.map(|kind| ConditionUpdate::new(kind, Status::True, Reason::JobFinished, "m"));
        let first = Reconciled { updates: all.to_vec(), record: Some(Record::default()), ..Reconciled::default() };
        let (old, _) = after(&FunctionStatus::default(), &function, &first, Timestamp::UNIX_EPOCH);
        function.metadata.generation = Some(2);
        let (new, _) = after(&old, &function, reconciled, Timestamp::UNIX_EPOCH);
        assert_eq!(new.observed_generation, Some(2));
        Type::ALL.map(|kind| {
            let condition = conditions::find(&new.conditions, kind).expect("all are said");
            format!("{} of {}", condition.status, condition.observed_generation.unwrap_or_default())
        })
    }

    #[test]
    fn conditions_that_were_not_evaluated_are_unknown_for_a_new_generation() {
        let updates = |kind, status| vec![ConditionUpdate::new(kind, status, Reason::ApplyFailed, "m")];
        let record = Some(Record::default());
        let (wrong, runs) = ("False of 2", "True of 1");
        assert_eq!(Type::ALL.map(Type::as_str), ["ConfigurationReady", "BuildReady", "Running"]);
        let refused = Reconciled { updates: updates(Type::ConfigurationReady, Status::False), ..Reconciled::default() };
        assert_eq!(next(&refused), [wrong, "Unknown of 2", runs]);
        // The reconcile ended before the build or at its start.
        assert_eq!(next(&Reconciled { record: record.clone(), ..refused }), [wrong, "Unknown of 2", runs]);
        let nothing = Reconciled { record: record.clone(), ..Reconciled::default() };
        assert_eq!(next(&nothing), ["Unknown of 2", "Unknown of 2", runs]);
        // The old image serves requests. The condition describes the old generation.
        let mut serves = updates(Type::Running, Status::True);
        serves[0].outdated = true;
        let confirmed = vec![Type::ConfigurationReady, Type::BuildReady];
        let both = Reconciled {
            updates: serves,
            confirmed: confirmed.clone(),
            record: record.clone(),
            ..Reconciled::default()
        };
        assert_eq!(next(&both), ["True of 2", "True of 2", runs]);
        let both =
            Reconciled { updates: updates(Type::Running, Status::True), confirmed, record, ..Reconciled::default() };
        assert_eq!(next(&both), ["True of 2"; 3]);
    }

    #[test]
    fn fields_that_a_build_no_longer_has_are_removed() {
        let built = |dependencies: &str, requested: &str| {
            let inputs = Inputs { source: "s".into(), requested: requested.into(), ..Inputs::default() };
            let built = Built { dependencies: dependencies.into(), inputs, ..Built::default() };
            FunctionStatus { built: Some(built), ..FunctionStatus::default() }
        };
        let patch = patch(&built("d", "r"), &built("", ""));
        let expected = json!({"dependencies": null, "inputs": {"source": "s", "requested": null}});
        let sent = &patch["status"]["built"];
        assert_eq!((&sent["dependencies"], &sent["inputs"]), (&expected["dependencies"], &expected["inputs"]));
        assert_eq!(super::patch(&built("d", "r"), &built("d", "r")), json!({"status": {}}));
    }

    #[test]
    fn a_large_source_is_not_repeated() {
        let source = |bytes: usize| {
            let spec = FunctionSpec { source: "x".repeat(bytes), ..FunctionSpec::default() };
            let function = Function::new("hello", spec);
            let (status, _) =
                after(&FunctionStatus::default(), &function, &Reconciled::default(), Timestamp::UNIX_EPOCH);
            status.source.map(|source| source.len())
        };
        assert_eq!([source(10), source(1 << 20)], [Some(10), None]);
    }
}
