//! The deletion of an object: what goes with it, and which object would recreate it.

use std::sync::Arc;

use serde_json::Value;

use crate::belonging::Belonging;
use crate::facts::Facts;
use crate::field::text_at;
use crate::row::Row;
use crate::text::SHORT;
use mainstay_object::{Key, split_api_version};

/// What goes with a deleted object.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    /// The objects that belong to a Function.
    Function(Belonging),
    /// The GitSyncs and Functions that follow a GitRepository.
    GitRepository(Vec<Arc<Row>>),
    /// The addresses of an APIRule.
    ApiRule(Facts),
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
    use crate::row::FleetKind;

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
