//! The scope of match conditions: variables, their fields, and the functions of the authorizer.
//!
//! Not here: the evaluation of conditions (`admission`).

use super::{
    Scope, compile,
    infer::{BOOL, Declared, STRING, Type, Wanted, type_of},
};
use cel::Program;

/// The variables of a condition.
pub(crate) const SCOPE: Scope<'_> = Scope {
    variables: &["object", "oldObject", "request", "namespaceObject", "authorizer"],
    functions: &[
        "path",
        "group",
        "serviceAccount",
        "resource",
        "subresource",
        "namespace",
        "name",
        "check",
        "allowed",
        "reason",
        "errored",
        "error",
    ],
};

/// Fails if an expression is not a valid condition.
pub(crate) fn check(expression: &str) -> Result<(), String> {
    check_type(expression, &compile(expression, SCOPE)?, Wanted::Bool)
}

/// Fails if an expression about a write does not have the expected type.
pub(super) fn check_type(source: &str, program: &Program, wanted: Wanted) -> Result<(), String> {
    let declared = Declared { variable, field, function };
    let found = type_of(source, program, declared)?;
    let (fits, wanted) = match wanted {
        Wanted::Any => return Ok(()),
        Wanted::Bool => (found == BOOL, "bool"),
        Wanted::Text => (found == STRING, "string"),
    };
    if fits || found == Type::Unknown {
        return Ok(());
    }
    Err(format!("must evaluate to {wanted} but got {}", found.spelled()))
}

fn variable(name: &str) -> Option<Type> {
    Some(match name {
        "object" | "oldObject" | "params" => Type::Dyn,
        "request" => Type::Object("kubernetes.AdmissionRequest"),
        "namespaceObject" => Type::Object("kubernetes.Namespace"),
        "authorizer" => Type::Object("kubernetes.authorization.Authorizer"),
        // The declaring expressions determine their types.
        "variables" => Type::Unknown,
        _ => return None,
    })
}

fn field(object: &str, name: &str) -> Option<Type> {
    const KIND: Type = Type::Object("kubernetes.GroupVersionKind");
    const RESOURCE: Type = Type::Object("kubernetes.GroupVersionResource");
    let list = |item: Type| Type::List(Box::new(item));
    let map = |item: Type| Type::Map(Box::new(item));
    Some(match (object.trim_start_matches("kubernetes."), name) {
        ("AdmissionRequest", "kind" | "requestKind") => KIND,
        ("AdmissionRequest", "resource" | "requestResource") => RESOURCE,
        ("AdmissionRequest", "subResource" | "requestSubResource" | "name" | "namespace" | "operation")
        | ("GroupVersionKind", "group" | "version" | "kind")
        | ("GroupVersionResource", "group" | "version" | "resource")
        | ("UserInfo", "username" | "uid")
        | ("NamespaceStatus", "phase")
        | ("NamespaceMetadata", "name" | "generateName" | "namespace" | "UID" | "resourceVersion") => STRING,
        ("AdmissionRequest", "userInfo") => Type::Object("kubernetes.UserInfo"),
        ("AdmissionRequest", "dryRun") => BOOL,
        ("AdmissionRequest", "options") => Type::Dyn,
        ("UserInfo", "groups") | ("NamespaceSpec" | "NamespaceMetadata", "finalizers") => list(STRING),
        ("UserInfo", "extra") => map(list(STRING)),
        ("Namespace", "metadata") => Type::Object("kubernetes.NamespaceMetadata"),
        ("Namespace", "spec") => Type::Object("kubernetes.NamespaceSpec"),
        ("Namespace", "status") => Type::Object("kubernetes.NamespaceStatus"),
        ("NamespaceStatus", "conditions") => list(Type::Unknown),
        ("NamespaceMetadata", "labels" | "annotations") => map(STRING),
        ("NamespaceMetadata", _) => Type::Unknown,
        ("authorization.Authorizer", "requestResource") => Type::Plain("kubernetes.authorization.ResourceCheck"),
        _ => return None,
    })
}

fn function(name: &str) -> Option<Type> {
    Some(match name {
        "path" => Type::Plain("kubernetes.authorization.PathCheck"),
        "group" => Type::Plain("kubernetes.authorization.GroupCheck"),
        "serviceAccount" => Type::Object("kubernetes.authorization.Authorizer"),
        "resource" | "subresource" | "namespace" | "name" => Type::Plain("kubernetes.authorization.ResourceCheck"),
        "check" => Type::Plain("kubernetes.authorization.Decision"),
        "allowed" | "errored" => BOOL,
        "reason" | "error" => STRING,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::check;

    fn refused(expression: &str, why: &str) {
        assert_eq!(check(expression).unwrap_err(), why, "{expression}");
    }

    #[test]
    fn accepts_conditions() {
        for expression in [
            "object.metadata.name == 'x' && !request.dryRun",
            "has(object.spec) || oldObject == null",
            "authorizer.group('apps').resource('deployments').namespace('a').check('create').allowed()",
            "authorizer.requestResource.check('create').allowed()",
            "authorizer.serviceAccount('ns', 'sa').path('/x').check('get').allowed()",
            "request.userInfo.groups.exists(g, g == 'x')",
            "object.metadata.?labels.?x.orValue('') == 'y'",
        ] {
            assert_eq!(check(expression), Ok(()), "{expression}");
        }
    }

    #[test]
    fn refuses_what_is_no_condition() {
        refused("object.spec", "must evaluate to bool but got dyn");
        refused("1", "must evaluate to bool but got int");
        refused("null", "must evaluate to bool but got null_type");
        refused("request.userInfo.extra", "must evaluate to bool but got map(string, list(string))");
        refused(
            "authorizer.requestResource.check('create')",
            "must evaluate to bool but got kubernetes.authorization.Decision",
        );
        assert!(check("self == 1").unwrap_err().contains("undeclared reference to 'self'"));
        assert!(check("request.object == null").unwrap_err().contains("1:8: undefined field 'object'"));
    }
}
