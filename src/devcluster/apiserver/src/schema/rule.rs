//! One rule in the Common Expression Language, as a definition declares it.
//!
//! Not here: the evaluation of rules (`rules`).

use std::sync::Arc;

use cel::Program;
use serde_json::Value;

use crate::expression::{Scope, compile};
use crate::status::Cause;

/// The variables of a rule.
const SCOPE: Scope<'_> = Scope { variables: &["self", "oldSelf"], functions: &[] };

/// One rule of a schema node.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// Path of the rule in the definition.
    pub(super) place: String,
    /// The rule as errors show it.
    pub(super) shown: String,
    pub(super) text: String,
    pub(super) message: Option<String>,
    pub(super) message_expression: Option<Arc<Program>>,
    pub(super) reason: String,
    pub(super) field_path: String,
    pub(super) program: Arc<Program>,
    /// Whether the rule refers to `oldSelf`, so that it applies to updates only.
    pub(super) transition: bool,
    /// Whether the rule also runs without an old value, which is then null.
    pub(super) optional_old: bool,
}

impl Rule {
    /// Compiles a declared rule. `path` is its path in the definition.
    pub(crate) fn compile(declared: &Value, path: &str) -> Result<Self, Cause> {
        let text = |key: &str| declared.get(key).and_then(Value::as_str).map(str::to_owned);
        let rule = text("rule").unwrap_or_default();
        let at = format!("{path}.rule");
        if rule.trim().is_empty() {
            return Err(Cause::required(at, "rule is not specified"));
        }
        let shown = shown(declared);
        let program = compile(&rule, SCOPE)
            .map_err(|why| Cause::new("FieldValueInvalid", &at, format!("Invalid value: {shown}: {why}")))?;
        let message_expression = match text("messageExpression") {
            None => None,
            Some(source) => {
                let at = format!("{path}.messageExpression");
                Some(Arc::new(
                    compile(&source, SCOPE).map_err(|why| Cause::invalid(at, &source.as_str().into(), &why))?,
                ))
            }
        };
        let transition = program.references().variables().contains(&"oldSelf");
        Ok(Self {
            place: at,
            shown,
            text: rule,
            message: text("message"),
            message_expression,
            reason: text("reason").unwrap_or_else(|| "FieldValueInvalid".to_owned()),
            field_path: text("fieldPath").unwrap_or_default(),
            program: Arc::new(program),
            transition,
            optional_old: declared.get("optionalOldSelf").and_then(Value::as_bool) == Some(true),
        })
    }
}

/// Formats a rule like a real server's errors: the fields of its Go type.
fn shown(declared: &Value) -> String {
    let text = |key: &str| declared.get(key).cloned().unwrap_or_else(|| "".into());
    let or_null = |key: &str| declared.get(key).cloned().unwrap_or_default();
    let escape =
        |value: Value| value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let fields = [
        ("Rule", text("rule")),
        ("Message", text("message")),
        ("MessageExpression", text("messageExpression")),
        ("Reason", or_null("reason")),
        ("FieldPath", text("fieldPath")),
        ("OptionalOldSelf", or_null("optionalOldSelf")),
    ];
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{}", escape(value))).collect();
    format!("{{{}}}", fields.join(","))
}
