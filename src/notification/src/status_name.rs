//! The name of a commit status, which `spec.commitStatusExpr` computes for each message.
//!
//! Invariant: an evaluation takes a bounded number of steps, and an error of an expression contains no value.

use mainstay_object::expression::Expression;
use mainstay_object::{Secret, is_unprintable};
use serde_json::Value;

const FIELD: &str = "spec.commitStatusExpr";
/// The variables of an expression, as in Flux.
const VARIABLES: [&str; 3] = ["event", "provider", "alert"];

/// The expression of a Provider.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StatusName {
    expression: Expression,
    /// The Provider. Its address may be secret.
    provider: Secret<Value>,
}

impl StatusName {
    /// Parses an expression.
    ///
    /// # Errors
    /// The field with the problem.
    pub(crate) fn parse(source: &str, provider: Value) -> Result<Self, String> {
        let expression = Expression::parse(source, Some(&VARIABLES));
        let expression = expression.map_err(|error| format!("{FIELD}: {error}; correct the expression"))?;
        Ok(Self { expression, provider: Secret::new(provider) })
    }

    /// Returns the name for an event, without control characters and invisible ones. `alert` is the Alert that selected
    /// the message, as JSON.
    ///
    /// # Errors
    /// Why the expression has no name for this event.
    pub(crate) fn of(&self, event: &Value, alert: Option<&str>) -> Result<String, String> {
        let alert: Option<Value> = alert.and_then(|alert| serde_json::from_str(alert).ok());
        let result = self.expression.result(&|variable| match variable {
            "event" => Some(event),
            "provider" => Some(self.provider.expose()),
            "alert" => alert.as_ref(),
            _ => None,
        });
        let result = result.map_err(|error| format!("{FIELD}: {error}; correct the expression"))?;
        let text =
            result.as_str().ok_or_else(|| format!("{FIELD}: the result must be a string; correct the expression"))?;
        let name: String = text.chars().filter(|c| !is_unprintable(*c)).collect();
        match name.trim() {
            "" => Err(format!("{FIELD}: the result is empty; correct the expression")),
            name => Ok(name.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(source: &str) -> Result<String, String> {
        let provider = json!({"metadata": {"uid": "0b9a8c1d-1111"}, "spec": {"address": "https://canary"}});
        let name = StatusName::parse(source, provider)?;
        assert!(!format!("{name:?}").contains("canary"));
        let event = json!({
            "involvedObject": {"kind": "GitSync", "name": "demo"}, "metadata": {"team": "A\u{202e}\nb", "empty": " \u{200b}"},
        });
        name.of(&event, Some(r#"{"metadata":{"name":"tick"}}"#))
    }

    #[test]
    fn an_expression_names_a_status_by_event_provider_and_alert() {
        for (source, expected) in [
            ("'fleet'", "fleet"),
            ("event.involvedObject.kind + '/' + event.involvedObject.name", "GitSync/demo"),
            (
                "(event.involvedObject.kind + '/' + provider.metadata.uid.split('-')[0]).lowerAscii()",
                "gitsync/0b9a8c1d",
            ),
            ("alert.metadata.name + event.metadata.?missing.orValue('-none')", "tick-none"),
            ("event.metadata.team", "Ab"),
        ] {
            assert_eq!(of(source).as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn an_expression_without_a_name_says_why_and_shows_no_value() {
        for (source, expected) in [
            ("event.", "spec.commitStatusExpr: line 1, column"),
            ("secret.token", "spec.commitStatusExpr: line 1, column"),
            ("event.metadata.missing", "spec.commitStatusExpr: line 1, column"),
            ("event.metadata", "spec.commitStatusExpr: the result must be a string"),
            ("event.metadata.empty", "spec.commitStatusExpr: the result is empty"),
        ] {
            let why = of(source).unwrap_err();
            assert!(why.starts_with(expected) && why.ends_with("correct the expression"), "{source}: {why}");
            assert!(!why.contains("canary") && !why.contains("demo"), "{source}: {why}");
        }
        let why = of(&format!("['a']{}[0]", ".map(x, x + x)".repeat(40))).unwrap_err();
        assert!(why.contains("steps"), "{why}");
    }
}
