//! Adds the apply of a child to a decision.

use std::sync::Arc;

use serde_json::Value;

use super::decision::Decision;
use super::observed::{Observed, Resolved};
use super::rollout::goes_on;
use super::step::{Put, Step};
use crate::child_kind::ChildKind;
use crate::child_state::ChildIdentity;
use crate::{ResolvedFunction, children};
use mainstay_api::function_conditions::{Reason, Type};
use mainstay_api::names::MANAGED_BY;
use mainstay_engine::managed::{Desired, Mark};
use mainstay_object::{Object, Place};

/// Builds the desired object from a document.
pub(super) fn desired(child_kind: ChildKind, function: &ResolvedFunction, document: &Value) -> Option<Arc<Desired>> {
    let place = Place::file(format!("Function {}/{}", function.namespace, function.name));
    let object = Object::from_value(document, place).ok()?;
    let kind = child_kind.kind();
    let key = kind.key(Some(&function.namespace), &object.key.name);
    let reserved = children::reserved(child_kind);
    let mark = Mark::Controller { uid: function.uid.as_str().into(), watched_by: MANAGED_BY, reserved };
    Some(Arc::new(Desired { key, kind, object: Arc::new(object), mark, ignored: None }))
}

/// Adds the apply of a document. Returns whether a write is needed.
pub(super) fn put(
    decision: &mut Decision,
    observed: &Observed<'_>,
    resolved: &Resolved<'_>,
    child_kind: ChildKind,
    document: &Value,
    there: &[&ChildIdentity],
    update: (Type, [Reason; 2]),
) -> bool {
    let Some(desired) = desired(child_kind, resolved.function, document) else { return false };
    let known = there.iter().find(|identity| *identity.name == *desired.key.name);
    if (observed.kept)(&desired.key) == Some(desired.source()) {
        return false;
    }
    let (condition, reasons) = update;
    let version = known.map(|identity| identity.version.clone());
    let last_applied = known.and_then(|identity| Some((identity.uid.clone(), identity.last_applied?)));
    let serves = condition == Type::Running && goes_on(resolved, observed);
    // Without a new image the old image keeps serving requests, so the condition still describes an earlier generation.
    let outdated = condition == Type::Running && (serves || decision.image.is_none());
    let (moves, note) = (observed.status.serving.is_some(), String::new());
    let put = Put { child_kind, desired, version, last_applied, condition, reasons, outdated, serves, moves, note };
    decision.steps.push(Step::Put(Box::new(put)));
    true
}
