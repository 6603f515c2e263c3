//! The object argument of a command, in kubectl's notation: `deploy/web` or `deploy web`.

use serde_json::{Value, json};

use super::{Error, connection::Connection, output::OutputArgument};
use mainstay_object::Key;

/// The object of a command.
#[derive(clap::Args, Debug)]
pub(super) struct ObjectArguments {
    /// Kind as in kubectl: Deployment, deployments, deploy or deployments.apps; or kind and name: deploy/web
    kind: String,
    /// Name of the object, unless KIND includes it
    name: Option<String>,
    #[command(flatten)]
    pub(super) output: OutputArgument,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl ObjectArguments {
    /// Returns the kind and the name.
    pub(super) fn kind_and_name(&self) -> Result<(&str, &str), Error> {
        let both = kind_and_name(&self.kind, self.name.as_deref());
        both.ok_or_else(|| Error::NotAnObject { kind: self.kind.clone(), name: self.name.clone() })
    }
}

/// Returns the identity of an object for JSON and YAML.
pub(super) fn facts(key: &Key) -> Value {
    json!({ "group": &*key.group, "kind": &*key.kind, "namespace": key.namespace.as_deref(), "name": &*key.name })
}

/// Parses kind and name in `deploy/web` or `deploy web`.
pub(super) fn kind_and_name<'a>(kind: &'a str, name: Option<&'a str>) -> Option<(&'a str, &'a str)> {
    let (kind, name) = match name {
        None => kind.split_once('/')?,
        Some(name) => (kind, name),
    };
    (!kind.is_empty() && !name.is_empty() && !format!("{kind}{name}").contains('/')).then_some((kind, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_kubectl_takes() {
        assert_eq!(kind_and_name("deploy/web", None), Some(("deploy", "web")));
        assert_eq!(kind_and_name("deployments.apps", Some("web")), Some(("deployments.apps", "web")));
        for (kind, name) in
            [("deploy", None), ("deploy/", None), ("/web", None), ("a/b/c", None), ("deploy/web", Some("web"))]
        {
            assert_eq!(kind_and_name(kind, name), None, "{kind} {name:?}");
        }
    }
}
