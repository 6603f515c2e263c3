//! `spec.dependsOn[].readyExpr`: an expression about two GitSyncs that decides whether one is ready for the other.
//!
//! Not here: the time of the evaluation (`dependencies`).

use serde_json::Value;

use mainstay_api::GitSync;
use mainstay_api::git_sync::GitSyncSpec;
use mainstay_object::expression::{Expression, ExpressionError};
use mainstay_object::failure::caught_now;

/// Maximum total size of the expressions of a GitSync, in bytes.
const ALL_BYTES: usize = 64 * 1024;

/// Parses an expression.
pub(super) fn parse(source: &str) -> Result<Expression, ExpressionError> {
    Expression::parse(source, Some(&["self", "dep"]))
}

/// Returns the errors in the expressions of a GitSync, without those of health expressions.
pub(super) fn wrong(spec: &GitSyncSpec) -> Option<String> {
    let ready = || spec.depends_on.iter().enumerate().filter_map(|(at, one)| Some((at, one.ready_expr.as_deref()?)));
    let of_health = spec.health_check_exprs.iter().map(|expr| {
        expr.current.len() + [&expr.in_progress, &expr.failed].into_iter().flatten().map(String::len).sum::<usize>()
    });
    let bytes = of_health.chain(ready().map(|(_, source)| source.len())).sum::<usize>();
    if bytes > ALL_BYTES {
        return Some(format!(
            "spec.healthCheckExprs and spec.dependsOn[].readyExpr have {bytes} bytes of expressions together; at most {ALL_BYTES} are allowed"
        ));
    }
    ready().find_map(|(at, source)| {
        let error = parse(source).err()?;
        Some(format!("spec.dependsOn[{at}].readyExpr: {error}; correct the expression"))
    })
}

/// Returns why a GitSync is not ready for its dependant; `None` if it is.
pub(super) fn unready(expression: &Expression, dependant: &GitSync, dependency: &GitSync) -> Option<String> {
    let answer = caught_now(|| {
        let json = |sync: &GitSync| serde_json::to_value(sync).unwrap_or(Value::Null);
        let (own, dep) = (json(dependant), json(dependency));
        expression.holds(&|name| match name {
            "self" => Some(&own),
            "dep" => Some(&dep),
            _ => None,
        })
    });
    match answer {
        Ok(Ok(true)) => None,
        Ok(Ok(false)) => Some("is not true".to_owned()),
        Ok(Err(error)) => Some(format!("cannot be evaluated: {error}")),
        Err(panicked) => Some(format!("cannot be evaluated: {panicked}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sync(spec: Value, label: &str) -> GitSync {
        let mut whole = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "spec": {"gitRepository": "repo"},
            "metadata": {"name": "a", "namespace": "shop", "labels": {"version": label}},
            "status": {"appliedCommit": "c1", "conditions": [{
                "type": "Ready", "status": "True", "reason": "Any", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        json_patch::merge(&mut whole["spec"], &spec);
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn whole_git_syncs_are_asked_about() {
        let (own, dep) = (sync(json!({"wait": false}), "2"), sync(json!({}), "1"));
        let unready = |source: &str| unready(&parse(source).unwrap(), &own, &dep);
        assert_eq!(unready("dep.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')"), None);
        assert_eq!(
            unready("dep.kind == 'GitSync' && !self.spec.wait && dep.spec.wait && dep.status.appliedCommit == 'c1'"),
            None
        );
        let same = "dep.metadata.labels['version'] == self.metadata.labels['version']";
        assert_eq!(unready(same).unwrap(), "is not true");
        let missing = "cannot be evaluated: line 1, column 14: there is no field `annotations`";
        assert_eq!(unready("dep.metadata.annotations.a == 'b'").unwrap(), missing);
    }

    #[test]
    fn an_invalid_expression_is_refused_with_its_position() {
        let on = |exprs: &[&str]| {
            let on: Vec<_> = exprs.iter().map(|expr| json!({"name": "a", "readyExpr": expr})).collect();
            wrong(&sync(json!({"dependsOn": on}), "1").spec)
        };
        assert_eq!(on(&["dep.a == self.a"]), None);
        assert_eq!(
            on(&["true", "dep.status = 1"]).unwrap(),
            "spec.dependsOn[1].readyExpr: line 1, column 12: `=` is not an operator; `==` compares; correct the \
             expression"
        );
        assert_eq!(
            on(&["deb.status == 1"]).unwrap(),
            "spec.dependsOn[0].readyExpr: line 1, column 1: there is no variable `deb`; there is `self` and `dep`; correct the expression"
        );
        let long = format!("true // {}", "a".repeat(4000));
        let many: Vec<&str> = std::iter::repeat_n(&*long, 20).collect();
        assert!(on(&many).unwrap().ends_with("together; at most 65536 are allowed"));
    }
}
