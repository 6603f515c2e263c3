//! The deletion of an object: what goes with it, and which object would recreate it.

use serde_json::Value;

use crate::belonging::Belonging;
use crate::facts::Facts;
use crate::field::text_at;
use crate::row::FleetKind;
use crate::text::SHORT;
use mainstay_object::{Key, split_api_version};

/// The effect of a deletion on other objects.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    /// The objects that belong to a Function.
    Function(Belonging),
    /// The objects that follow a GitRepository.
    GitRepository(Followers),
    /// The addresses of an APIRule.
    ApiRule(Facts),
}

/// The kinds of objects that follow a GitRepository of their namespace.
pub(crate) const FOLLOWING: [FleetKind; 3] =
    [FleetKind::GitSync, FleetKind::Function, FleetKind::ImageUpdateAutomation];

/// The objects that follow a GitRepository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followers {
    pub(crate) keys: Vec<Key>,
    /// Why not all of them are known; empty if they are.
    pub(crate) unread: Vec<String>,
}

/// Returns whether an object of this kind and of the same namespace follows a GitRepository.
pub(crate) fn follows(kind: FleetKind, live: &Value, repository: &Key) -> bool {
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
    let name = match kind {
        FleetKind::GitSync => text("/spec/gitRepository"),
        FleetKind::Function if text("/spec/type") == Some("git") => text("/spec/source"),
        FleetKind::ImageUpdateAutomation if text("/spec/sourceRef/kind").is_none_or(|kind| kind == "GitRepository") => {
            text("/spec/sourceRef/name")
        }
        _ => None,
    };
    name == Some(&*repository.name)
}

/// Returns the object that controls this one.
pub(crate) fn controller(key: &Key, live: &Value) -> Option<Key> {
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
    let owner = owners.iter().find(|owner| owner.get("controller") == Some(&Value::Bool(true)))?;
    let [api_version, kind, name] = ["/apiVersion", "/kind", "/name"].map(|pointer| text_at(owner, pointer, SHORT));
    let group = split_api_version(&api_version).0;
    Some(Key::new(group, kind.as_str(), key.namespace.as_deref(), name.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_git_repository_is_followed_by_its_name() {
        let repository = FleetKind::GitRepository.key("shop", "web");
        let check = |kind: FleetKind, spec: Value, expected: bool| {
            assert_eq!(follows(kind, &json!({ "spec": spec }), &repository), expected, "{spec}");
        };
        check(FleetKind::GitSync, json!({"gitRepository": "web"}), true);
        check(FleetKind::GitSync, json!({"sourceRef": {"kind": "HelmChart", "name": "web"}}), false);
        check(FleetKind::Function, json!({"type": "git", "source": "web"}), true);
        check(FleetKind::Function, json!({"source": "web"}), false);
        check(FleetKind::ImageUpdateAutomation, json!({"sourceRef": {"name": "web"}}), true);
        check(FleetKind::ImageUpdateAutomation, json!({"sourceRef": {"kind": "GitRepository", "name": "web"}}), true);
        check(FleetKind::ImageUpdateAutomation, json!({"sourceRef": {"kind": "OCIRepository", "name": "web"}}), false);
        check(FleetKind::ImageUpdateAutomation, json!({"sourceRef": {"name": "other"}}), false);
        for strange in [json!(null), json!(7), json!({"gitRepository": ["web"]})] {
            check(FleetKind::GitSync, strange, false);
        }
    }

    #[test]
    fn an_owner_that_does_not_control_is_no_controller() {
        let key = FleetKind::Function.key("shop", "web");
        let of = |owners: Value| controller(&key, &json!({"metadata": {"ownerReferences": owners}}));
        let owner = |is_controller: Value| json!([{"apiVersion": "example.com/v1", "kind": "App", "name": "a", "controller": is_controller}]);
        assert_eq!(of(owner(json!(true))), Some(Key::new("example.com", "App", Some("shop"), "a")));
        for owners in [json!(null), json!([]), json!([7]), json!("x"), owner(json!(false)), owner(json!(null))] {
            assert_eq!(of(owners), None);
        }
    }
}
