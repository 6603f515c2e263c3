//! Returns the defaults of a Function as a JSON patch.
//!
//! Invariant: the patch sets only `spec.runtime`, the replicas, and CPU and memory of pods and builds.
//! Invariant: an object with all of these fields is not changed.
//!
//! Not here: the values (`function::complete`).

use serde_json::{Value, json};

use super::review::Verdict;
use crate::{Settings, complete};
use mainstay_api::function::Resources;
use mainstay_api::{Amounts, Function};

/// Sets the defaults of a Function. `old` is the object that it replaces.
pub(super) fn function(new: &Function, old: Option<&Function>, settings: &Settings) -> Verdict {
    if new.metadata.deletion_timestamp.is_some() {
        return Verdict::Allowed;
    }
    let (given, complete) = (&new.spec, complete(new, old, settings));
    let mut operations = Vec::new();
    let mut put = |path: String, differs: bool, value: Value| {
        if differs {
            operations.push(json!({"op": "add", "path": path, "value": value}));
        }
    };
    put("/spec/runtime".into(), given.runtime != complete.runtime, json!(complete.runtime));
    put("/spec/minReplicas".into(), given.min_replicas != complete.min_replicas, json!(complete.min_replicas));
    put("/spec/maxReplicas".into(), given.max_replicas != complete.max_replicas, json!(complete.max_replicas));
    let sections = [
        ("resources", &given.resources, &complete.resources),
        ("buildResources", &given.build_resources, &complete.build_resources),
    ];
    for (section, given, complete) in sections {
        let path = format!("/spec/{section}");
        put(path.clone(), given.is_none(), json!({}));
        let none = Resources::default();
        let (given, complete) = (given.as_ref().unwrap_or(&none), complete.as_ref().unwrap_or(&none));
        for (part, given, complete) in
            [("requests", &given.requests, &complete.requests), ("limits", &given.limits, &complete.limits)]
        {
            put(format!("{path}/{part}"), given.is_none(), json!({}));
            for (name, amount) in complete.iter().flat_map(Amounts::iter) {
                let before = given.as_ref().and_then(|given| given.get(name));
                // The names are `cpu` and `memory`, which need no escaping in a JSON pointer.
                put(format!("{path}/{part}/{name}"), before != Some(amount), json!(amount));
            }
        }
    }
    if operations.is_empty() { Verdict::Allowed } else { Verdict::Patched(operations) }
}
