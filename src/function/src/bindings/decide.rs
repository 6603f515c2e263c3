//! Decides what happens to a ServiceBindingUsage.

use std::time::Duration;

use jiff::Timestamp;

use super::usage::{Binding, FUNCTIONS, Usage};
use mainstay_object::syntax;

/// How long a usage without a status is left to another controller, if one may exist.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(60);

/// Maximum bytes of a prefix.
const MAX_PREFIX: usize = 256;

/// The known facts besides a usage and its binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Whether another controller serves the usages of the namespace.
    pub(super) is_elsewhere: bool,
    /// Whether another controller may exist.
    pub(super) may_be_elsewhere: bool,
}

/// The decision about a usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Another controller serves the usage.
    LeftAlone,
    /// The usage is left to another controller until this time.
    LeftUntil(Timestamp),
    /// The usage cannot be used.
    Fails(Failure),
    /// The Function gets the keys of this Secret.
    Binds(String),
}

/// Why a usage cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

impl Failure {
    /// Returns the failure for a binding that does not exist.
    pub(super) fn no_binding(namespace: &str, name: &str) -> Self {
        let detail = format!(
            "while getting ServiceBinding \"{name}\" from namespace \"{namespace}\": \
             servicebinding.servicecatalog.k8s.io \"{name}\" not found"
        );
        Self { reason: "ServiceBindingGetError", detail }
    }

    /// Returns the failure for a Function that does not exist.
    pub(super) fn no_function(name: &str) -> Self {
        let detail = format!(
            "while ensuring proper labels on kind {FUNCTIONS}: functions.serverless.kyma-project.io \"{name}\" not found"
        );
        Self { reason: "EnsureLabelsAppliedError", detail }
    }

    /// Returns the failure for a Secret that the pods must not have.
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self { reason: "PodPresetUpsertError", detail: why.into() }
    }

    /// Returns the failure for a binding that could not be made the usage's owner.
    pub(super) fn no_owner(why: impl Into<String>) -> Self {
        Self { reason: "AddOwnerReferenceError", detail: why.into() }
    }
}

/// Decides what happens to a usage of this namespace.
pub(super) fn decide(
    namespace: &str,
    usage: &Usage,
    binding: Option<&Binding>,
    facts: Facts,
    now: Timestamp,
) -> Decision {
    if usage.kind != FUNCTIONS || usage.is_terminating || facts.is_elsewhere {
        return Decision::LeftAlone;
    }
    let until = usage.created.and_then(|created| created.checked_add(LEFT_TO_OTHERS).ok());
    if let Some(until) = until.filter(|until| facts.may_be_elsewhere && usage.said.is_none() && now < *until) {
        return Decision::LeftUntil(until);
    }
    let Some(binding) = binding else {
        return Decision::Fails(Failure::no_binding(namespace, &usage.binding));
    };
    // A usage stays in use while its binding is being updated, because the Secret exists.
    let is_used = usage.is_true() && usage.owners.contains(&binding.uid);
    let subject = format!("cannot use ServiceBinding \"{namespace}/{}\" which", usage.binding);
    if binding.is_busy && !is_used {
        let detail = format!("{subject} has ongoing asynchronous operation");
        return Decision::Fails(Failure { reason: "ServiceBindingAsyncOperationInProgressError", detail });
    }
    if (!binding.is_ready || binding.is_terminating) && !is_used {
        let detail = format!("{subject} is not in ready state");
        return Decision::Fails(Failure { reason: "ServiceBindingNotReadyError", detail });
    }
    let is_odd = usage.prefix.len() > MAX_PREFIX || !syntax::env_name(&usage.prefix).is_empty();
    if !usage.prefix.is_empty() && is_odd {
        let shown: String = usage.prefix.chars().take(64).collect();
        let detail = format!(
            "spec.parameters.envPrefix.name: {shown:?} cannot begin the name of an environment variable; letters, digits and \
             underscores can, up to {MAX_PREFIX}"
        );
        return Decision::Fails(Failure::refused(detail));
    }
    if let Some(words) = syntax::subdomain(&binding.secret) {
        let detail = format!("spec.secretName of ServiceBinding \"{namespace}/{}\": {words}", usage.binding);
        return Decision::Fails(Failure::refused(detail));
    }
    Decision::Binds(binding.secret.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2026-01-01T00:01:00Z";
    const NOBODY: Facts = Facts { is_elsewhere: false, may_be_elsewhere: false };

    fn usage(change: Value) -> Usage {
        let mut live = json!({
            "metadata": {"name": "u", "uid": "1", "creationTimestamp": "2026-01-01T00:00:30Z"},
            "spec": {
                "serviceBindingRef": {"name": "redis"}, "usedBy": {"kind": FUNCTIONS, "name": "f"},
                "parameters": {"envPrefix": {"name": "REDIS_"}},
            },
        });
        json_patch::merge(&mut live, &change);
        Usage::of(&live)
    }

    fn binding(change: Value) -> Binding {
        let mut live = json!({
            "metadata": {"name": "redis", "uid": "b"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        json_patch::merge(&mut live, &change);
        Binding::of(&live)
    }

    fn decided(usage: &Usage, binding: Option<&Binding>, facts: Facts) -> Decision {
        decide("ns", usage, binding, facts, NOW.parse().unwrap())
    }

    fn reason(usage: &Usage, binding: &Binding) -> (&'static str, String) {
        match decided(usage, Some(binding), NOBODY) {
            Decision::Fails(failure) => (failure.reason, failure.detail),
            other => ("", format!("{other:?}")),
        }
    }

    #[test]
    fn binds_what_is_ready() {
        assert_eq!(decided(&usage(json!({})), Some(&binding(json!({}))), NOBODY), Decision::Binds("redis".into()));
        let Decision::Fails(missing) = decided(&usage(json!({})), None, NOBODY) else { panic!("there is none") };
        assert_eq!(missing.reason, "ServiceBindingGetError");
    }

    #[test]
    fn says_why_a_binding_cannot_be_used() {
        let (fresh, busy) = (usage(json!({})), binding(json!({"status": {"asyncOpInProgress": true}})));
        let text = "cannot use ServiceBinding \"ns/redis\" which has ongoing asynchronous operation";
        assert_eq!(reason(&fresh, &busy), ("ServiceBindingAsyncOperationInProgressError", text.to_owned()));
        let not_ready = binding(json!({"status": {"conditions": []}}));
        let text = "cannot use ServiceBinding \"ns/redis\" which is not in ready state";
        assert_eq!(reason(&fresh, &not_ready), ("ServiceBindingNotReadyError", text.to_owned()));
        let odd = usage(json!({"spec": {"parameters": {"envPrefix": {"name": "a b"}}}}));
        assert_eq!(reason(&odd, &binding(json!({}))).0, "PodPresetUpsertError");
        let long = usage(json!({"spec": {"parameters": {"envPrefix": {"name": "A".repeat(5000)}}}}));
        assert_eq!(reason(&long, &binding(json!({}))).0, "PodPresetUpsertError");
        assert_eq!(reason(&fresh, &binding(json!({"spec": {"secretName": "No/No"}}))).0, "PodPresetUpsertError");
    }

    #[test]
    fn a_usage_stays_in_use_while_its_binding_is_processed() {
        let used = usage(json!({
            "metadata": {"ownerReferences": [{"uid": "b"}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
        let busy = binding(json!({"status": {"asyncOpInProgress": true, "conditions": []}}));
        assert_eq!(decided(&used, Some(&busy), NOBODY), Decision::Binds("redis".into()));
        let other = binding(json!({"metadata": {"uid": "c"}, "status": {"conditions": []}}));
        assert_eq!(reason(&used, &other).0, "ServiceBindingNotReadyError", "another binding was never ready");
    }

    #[test]
    fn usages_of_others_are_left_alone() {
        let ready = binding(json!({}));
        let of = |change: Value, facts: Facts| decided(&usage(change), Some(&ready), facts);
        assert_eq!(of(json!({"spec": {"usedBy": {"kind": "deployment"}}}), NOBODY), Decision::LeftAlone);
        assert_eq!(of(json!({"metadata": {"deletionTimestamp": NOW}}), NOBODY), Decision::LeftAlone);
        assert_eq!(of(json!({}), Facts { is_elsewhere: true, ..NOBODY }), Decision::LeftAlone);
        let perhaps = Facts { may_be_elsewhere: true, ..NOBODY };
        let until = "2026-01-01T00:01:30Z".parse().unwrap();
        assert_eq!(of(json!({}), perhaps), Decision::LeftUntil(until));
        let old = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(of(old, perhaps), Decision::Binds("redis".into()));
    }
}
