//! The expressions of a ValidatingAdmissionPolicy, which share variables: `variables.x` is the value of the expression
//! named `x`, evaluated on use.
//!
//! Invariant: an expression sees exactly the variables that are declared before it.
//!
//! Not here: evaluation (`admission`).

use super::{
    Scope, at_field, compile,
    condition::{self, SCOPE},
    infer::Wanted,
    located, walk,
};
use cel::common::ast::IdedExpr;
use serde_json::Value;

/// The name of the variables in expressions.
const VARIABLES: &str = "variables";

/// The name of the parameters in expressions.
const PARAMETERS: &str = "params";
/// The names that a policy's expressions may use. Variables and parameters are available only if the policy has any.
const NAMES: &[&[&str]] = &[
    SCOPE.variables,
    &["object", "oldObject", "request", "namespaceObject", "authorizer", VARIABLES],
    &["object", "oldObject", "request", "namespaceObject", "authorizer", PARAMETERS],
    &["object", "oldObject", "request", "namespaceObject", "authorizer", VARIABLES, PARAMETERS],
];

/// An expression with its variables substituted.
#[derive(Clone, Debug)]
pub(crate) struct Composed {
    /// The substituted expression.
    pub(crate) expression: IdedExpr,
    /// The used variables with their substituted expressions, in the order of declaration.
    pub(crate) variables: Vec<(String, IdedExpr)>,
}

/// The variables of a policy, in the order of declaration.
#[derive(Clone, Debug)]
pub(crate) struct Composition {
    scope: Scope<'static>,
    variables: Vec<(String, Result<IdedExpr, String>)>,
}

impl Composition {
    /// Creates a composition without variables for a policy.
    pub(crate) fn begin(spec: &Value) -> Self {
        let has_variables = spec["variables"].as_array().is_some_and(|variables| !variables.is_empty());
        let names = NAMES[usize::from(has_variables) + 2 * usize::from(!spec["paramKind"].is_null())];
        Self { scope: Scope { variables: names, functions: SCOPE.functions }, variables: Vec::new() }
    }

    /// Declares the variables of a policy's spec.
    pub(crate) fn of(spec: &Value) -> Self {
        let mut composition = Self::begin(spec);
        for variable in spec["variables"].as_array().into_iter().flatten() {
            let text = |field: &str| variable[field].as_str().unwrap_or_default();
            // A variable that does not compile was refused when the policy was written.
            let _ = composition.declare(text("name"), text("expression"));
        }
        composition
    }

    /// Declares a variable. Errors are those of a real server.
    pub(crate) fn declare(&mut self, name: &str, source: &str) -> Result<(), String> {
        let checked = self.check(source, Wanted::Any);
        let compiled = checked.clone().and_then(|()| self.compile(source)).map(|composed| composed.expression);
        self.variables.push((name.to_owned(), compiled));
        checked
    }

    /// Fails if an expression is invalid in this policy.
    pub(crate) fn check(&self, source: &str, wanted: Wanted) -> Result<(), String> {
        let program = compile(source, self.scope)?;
        if let Some(unknown) = walk::selections(program.expression(), VARIABLES).iter().find(|name| !self.has(name)) {
            return Err(located(source, at_field(source, unknown), &format!("undefined field '{unknown}'")));
        }
        condition::check_type(source, &program, wanted)
    }

    fn has(&self, name: &str) -> bool {
        self.variables.iter().any(|(known, _)| known == name)
    }

    /// Compiles an expression and substitutes its variables.
    pub(crate) fn compile(&self, source: &str) -> Result<Composed, String> {
        let program = compile(source, self.scope)?;
        let mut expression = program.expression().clone();
        let used = walk::selections(&expression, VARIABLES);
        let mut variables = Vec::new();
        for (name, variable) in self.variables.iter().filter(|(name, _)| used.contains(name)) {
            let variable = variable.clone()?;
            walk::replace_selection(&mut expression, VARIABLES, name, &variable.expr);
            variables.push((name.clone(), variable));
        }
        Ok(Composed { expression, variables })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn composition() -> Composition {
        Composition::of(&json!({"variables": [
            {"name": "a", "expression": "object.a"},
            {"name": "b", "expression": "variables.a == 1"},
        ]}))
    }

    #[test]
    fn an_expression_sees_the_variables_before_it() {
        let composition = composition();
        assert_eq!(composition.check("variables.b && variables.a == 1", Wanted::Bool), Ok(()));
        let why = composition.check("variables.c", Wanted::Any).unwrap_err();
        assert!(why.starts_with("compilation failed: ERROR: <input>:1:10: undefined field 'c'"), "{why}");
        let mut first = Composition::begin(&json!({"variables": [{}]}));
        assert!(first.declare("x", "variables.x").unwrap_err().contains("undefined field 'x'"));
        let none = Composition::begin(&json!({}));
        assert!(none.check("variables.x", Wanted::Any).unwrap_err().contains("undeclared reference to 'variables'"));
        assert!(first.check("params.x == 1", Wanted::Bool).unwrap_err().contains("undeclared reference to 'params'"));
    }

    #[test]
    fn variables_are_replaced_through_each_other() {
        let composed = composition().compile("has(object.x) || variables.b").unwrap();
        assert_eq!(walk::selections(&composed.expression, VARIABLES), Vec::<String>::new());
        let names: Vec<&str> = composed.variables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b"]);
    }

    #[test]
    fn the_type_of_an_expression_is_checked_where_it_is_known() {
        let composition = composition();
        assert_eq!(composition.check("object.x", Wanted::Bool).unwrap_err(), "must evaluate to bool but got dyn");
        assert_eq!(composition.check("'text ' + object.x", Wanted::Text), Ok(()));
        assert_eq!(composition.check("1 + 1", Wanted::Text).unwrap_err(), "must evaluate to string but got int");
    }
}
