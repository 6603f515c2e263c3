//! The expressions of a GitSync that define the health of some kinds: `spec.healthCheckExprs`.
//!
//! The expressions replace all other rules for the kind, with two exceptions: a terminating object is not healthy, nor
//! is one that its controller has not observed. They are evaluated in the order of Flux: `inProgress`, `failed`,
//! `current`; the first one that is true decides. If none is true, or one has no result, such as for a missing field,
//! the object is not healthy yet.
//!
//! Invariant: an object is evaluated when it is seen, so no whole object is stored for the expressions.
//!
//! Not here: health by kind (`health` of the crate `object`).

use serde_json::Value;

use mainstay_api::git_sync::HealthCheckExpr;
use mainstay_object::expression::Expression;
use mainstay_object::{Health, Key, Object, health_of, split_api_version, unsettled};

/// The health expressions of a GitSync.
#[derive(Debug, Default, PartialEq)]
pub struct HealthRules(Vec<Rule>);

/// The expressions for a kind.
#[derive(Debug, PartialEq)]
struct Rule {
    group: String,
    /// `None` stands for all kinds of the group without a rule of their own.
    kind: Option<String>,
    /// In the order of evaluation.
    checks: Vec<Check>,
}

#[derive(Debug, PartialEq)]
struct Check {
    says: Says,
    /// Field of the spec that contains the expression, for messages.
    field: String,
    expression: Expression,
}

/// The health of an object for which the expression is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    InProgress,
    Failed,
    Current,
}

impl HealthRules {
    /// Parses the field of a GitSync.
    ///
    /// # Errors
    /// The first invalid field, with the reason.
    pub fn parse(exprs: &[HealthCheckExpr]) -> Result<Self, String> {
        let mut rules: Vec<Rule> = Vec::with_capacity(exprs.len());
        for (at, expr) in exprs.iter().enumerate() {
            let place = format!("spec.healthCheckExprs[{at}]");
            let (group, version) = split_api_version(&expr.api_version);
            if version.is_empty() || version.contains('/') {
                return Err(format!("{place}.apiVersion: write the group and a version, such as `example.org/v1`"));
            }
            let kind = expr.kind.clone().filter(|kind| !kind.is_empty());
            if let Some(same) = rules.iter().position(|rule| rule.group == group && rule.kind == kind) {
                let of =
                    kind.map_or_else(|| format!("group `{group}`"), |kind| format!("kind `{kind}` of group `{group}`"));
                return Err(format!("{place}: spec.healthCheckExprs[{same}] is for the same {of}; remove one of them"));
            }
            let asked = [
                (Says::InProgress, "inProgress", expr.in_progress.as_deref()),
                (Says::Failed, "failed", expr.failed.as_deref()),
                (Says::Current, "current", Some(&*expr.current)),
            ];
            let mut checks = Vec::new();
            for (says, field, source) in asked {
                // An empty string counts as a missing expression, as in Flux; `current` is required.
                let Some(source) = source.filter(|source| !source.is_empty() || says == Says::Current) else {
                    continue;
                };
                let field = format!("{place}.{field}");
                let read = Expression::parse(source, None);
                let expression = read.map_err(|error| format!("{field}: {error}; correct the expression"))?;
                checks.push(Check { says, field, expression });
            }
            rules.push(Rule { group: group.to_owned(), kind, checks });
        }
        Ok(Self(rules))
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the `other` rules may give objects of this kind a different health.
    pub(crate) fn differs_for(&self, other: &Self, group: &str, kind: &str) -> bool {
        self.rule(group, kind) != other.rule(group, kind)
    }

    /// Whether expressions decide the health of this kind.
    pub fn is_about(&self, group: &str, kind: &str) -> bool {
        self.rule(group, kind).is_some()
    }

    fn rule(&self, group: &str, kind: &str) -> Option<&Rule> {
        let of_group = || self.0.iter().filter(|rule| rule.group == group);
        of_group()
            .find(|rule| rule.kind.as_deref() == Some(kind))
            .or_else(|| of_group().find(|rule| rule.kind.is_none()))
    }

    /// Returns the health of a live object by the expressions for its kind; `None` if there are none.
    pub fn health(&self, key: &Key, live: &Value) -> Option<Health> {
        let rule = self.rule(&key.group, &key.kind)?;
        if let Some(waits) = unsettled(live) {
            return Some(Health::Progressing(waits));
        }
        for Check { says, field, expression } in &rule.checks {
            match (expression.holds(&|name| live.get(name)), says) {
                (Ok(false), _) => {}
                (Ok(true), Says::InProgress) => return Some(Health::Progressing(format!("{field} is true"))),
                (Ok(true), Says::Failed) => return Some(Health::Failed(format!("{field} is true"))),
                (Ok(true), Says::Current) => return Some(Health::Healthy),
                (Err(error), _) => return Some(Health::Progressing(format!("{field} cannot be evaluated: {error}"))),
            }
        }
        let current = rule.checks.last().map_or("", |check| &*check.field);
        Some(Health::Progressing(format!("{current} is not true")))
    }
}

/// Returns the health of a live object: by the rules of its GitSync, else by its kind.
pub(crate) fn health(rules: Option<&HealthRules>, key: &Key, desired: &Object, live: &Value) -> Health {
    let by_rules = rules.and_then(|rules| rules.health(key, live));
    by_rules.unwrap_or_else(|| health_of(key, desired, live))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expr(value: Value) -> HealthCheckExpr {
        let mut whole = json!({"apiVersion": "example.org/v1", "kind": "Db", "current": "status.phase == 'Running'"});
        json_patch::merge(&mut whole, &value);
        serde_json::from_value(whole).unwrap()
    }

    fn said(exprs: &[HealthCheckExpr], kind: &str, live: &Value) -> String {
        match HealthRules::parse(exprs).unwrap().health(&Key::new("example.org", kind, Some("shop"), "db"), live) {
            None => "no rule".to_owned(),
            Some(Health::Healthy) => "healthy".to_owned(),
            Some(Health::Progressing(why)) => format!("progressing: {why}"),
            Some(Health::Failed(why)) => format!("failed: {why}"),
        }
    }

    #[test]
    fn the_first_true_expression_decides_and_an_error_means_unhealthy() {
        let all =
            [expr(json!({"inProgress": "status.phase == 'Creating'", "failed": "status.phase.startsWith('Err')"}))];
        let phase = |phase: &str| json!({"status": {"phase": phase}});
        let place = "spec.healthCheckExprs[0]";
        assert_eq!(said(&all, "Db", &phase("Running")), "healthy");
        assert_eq!(said(&all, "Db", &phase("Creating")), format!("progressing: {place}.inProgress is true"));
        assert_eq!(said(&all, "Db", &phase("Error")), format!("failed: {place}.failed is true"));
        assert_eq!(said(&all, "Db", &phase("Other")), format!("progressing: {place}.current is not true"));
        let missing =
            format!("progressing: {place}.inProgress cannot be evaluated: line 1, column 8: there is no field `phase`");
        assert_eq!(said(&all, "Db", &json!({"status": {}})), missing);
        let both = [expr(json!({"inProgress": "true", "failed": "true", "current": "true"}))];
        assert_eq!(said(&both, "Db", &phase("")), format!("progressing: {place}.inProgress is true"));
        let failed = [expr(json!({"inProgress": "", "failed": "true", "current": "true"}))];
        assert_eq!(said(&failed, "Db", &phase("")), format!("failed: {place}.failed is true"));
    }

    #[test]
    fn health_rules_skip_deleted_and_unseen_objects() {
        let all = [expr(json!({"current": "true"}))];
        let behind = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}});
        assert_eq!(said(&all, "Db", &behind), "progressing: its controller has not seen generation 2");
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(said(&all, "Db", &deleted), "progressing: it is being deleted");
        assert_eq!(
            said(&all, "Db", &json!({"status": {"conditions": [{"type": "Stalled", "status": "True"}]}})),
            "healthy"
        );
    }

    #[test]
    fn the_kind_comes_before_the_group_and_the_version_does_not_count() {
        let all = [
            expr(json!({"kind": null, "current": "true"})),
            expr(json!({"apiVersion": "example.org/v9", "current": "false"})),
            expr(json!({"apiVersion": "v1", "kind": "ConfigMap", "current": "data.ready == 'yes'"})),
        ];
        assert_eq!(said(&all, "Other", &json!({})), "healthy");
        assert_eq!(said(&all, "Db", &json!({})), "progressing: spec.healthCheckExprs[1].current is not true");
        let rules = HealthRules::parse(&all).unwrap();
        let map = Key::new("", "ConfigMap", Some("shop"), "a");
        assert_eq!(rules.health(&map, &json!({"data": {"ready": "yes"}})), Some(Health::Healthy));
        assert_eq!(rules.health(&Key::new("", "Secret", Some("shop"), "a"), &json!({})), None);
        assert!(rules.differs_for(&HealthRules::default(), "example.org", "Any"));
        assert!(!rules.differs_for(&HealthRules::default(), "apps", "Deployment"));
        let but_one = HealthRules::parse(&all[..2]).unwrap();
        assert!(rules.differs_for(&but_one, "", "ConfigMap") && !rules.differs_for(&but_one, "example.org", "Db"));
    }

    #[test]
    fn an_invalid_rule_is_refused_with_its_position() {
        let refused = |exprs: &[HealthCheckExpr]| HealthRules::parse(exprs).unwrap_err();
        assert_eq!(
            refused(&[expr(json!({})), expr(json!({"kind": "Other", "failed": "a ==\n  (b"}))]),
            "spec.healthCheckExprs[1].failed: line 2, column 5: expected `)`, found the end; correct the expression"
        );
        assert_eq!(
            refused(&[expr(json!({"current": ""}))]),
            "spec.healthCheckExprs[0].current: line 1, column 1: the expression is empty; correct the expression"
        );
        assert_eq!(
            refused(&[expr(json!({})), expr(json!({"apiVersion": "example.org/v2"}))]),
            "spec.healthCheckExprs[1]: spec.healthCheckExprs[0] is for the same kind `Db` of group `example.org`; \
             remove one of them"
        );
        assert_eq!(
            refused(&[expr(json!({"apiVersion": ""}))]),
            "spec.healthCheckExprs[0].apiVersion: write the group and a version, such as `example.org/v1`"
        );
    }
}
