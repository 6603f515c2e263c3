//! Tests of dependencies: who is woken, and what is awaited.

use futures::FutureExt;
use serde_json::{Value, json};

use super::*;

fn owner(number: usize) -> Owner {
    Owner::git_sync("shop", &format!("sync-{number}"))
}

#[test]
fn a_change_of_one_of_many_wakes_those_alone_that_depend_on_it() {
    const ALL: usize = 300;
    let dependencies = Dependencies::default();
    let woken = |dependencies: &Dependencies| {
        let is_woken = |number: &usize| dependencies.listen(&owner(*number)).notified().now_or_never().is_some();
        (0..ALL).filter(is_woken).collect::<Vec<_>>()
    };
    (0..ALL).for_each(|number| dependencies.enter(&owner(number)));
    // Every GitSync but the first depends on the first. The last ones also depend on each other.
    for number in 1..ALL {
        let next = (number >= ALL - 3 && number + 1 < ALL).then(|| owner(number + 1));
        let on = std::iter::once(owner(0)).chain(next).collect::<Vec<_>>();
        dependencies.change(&owner(number), |node| node.depends_on = on);
        let by = woken(&dependencies);
        assert!(by.contains(&number) && by.len() <= 3, "{number}: {by:?}");
    }
    dependencies.change(&owner(5), |node| node.state = State::Refused);
    assert_eq!(woken(&dependencies), [0; 0]);
    dependencies.change(&owner(ALL - 1), |node| node.depends_on.push(owner(ALL - 3)));
    assert_eq!(woken(&dependencies), [ALL - 3, ALL - 2, ALL - 1], "a ring is closed");
    dependencies.change(&owner(ALL - 2), |node| node.depends_on.clear());
    assert_eq!(woken(&dependencies), [ALL - 3, ALL - 2, ALL - 1], "and open again");
    dependencies.change(&owner(0), |node| node.state = State::Refused);
    assert_eq!(woken(&dependencies).len(), ALL - 2);
    (0..ALL).for_each(|number| dependencies.remove(&owner(number)));
    let nodes = dependencies.nodes.lock();
    assert!(nodes.by_owner.is_empty() && nodes.dependants.is_empty());
}

#[test]
fn a_git_sync_of_another_agent_without_memory_is_awaited_by_its_status_only() {
    let dependencies = Dependencies::default();
    let sync = |spec: Value, status: Value| {
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": "sync", "namespace": "shop", "generation": 1}, "spec": spec, "status": status,
        });
        Arc::new(serde_json::from_value::<GitSync>(sync).unwrap())
    };
    let status = |ready: &str, reason: String| {
        json!({"observedGeneration": 1, "conditions": [{
            "type": "Ready", "status": ready, "reason": reason, "message": "",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }]})
    };
    let (own, other) = (owner(1), owner(2));
    let dependant = |ready_expr: Value| {
        let on = json!({"name": "sync-2", "readyExpr": ready_expr});
        sync(json!({"gitRepository": "own", "dependsOn": [on]}), Value::Null)
    };
    dependencies.read(&own, &dependant(Value::Null), vec![other.clone()]);
    let unmet = || match dependencies.unmet(&own, "c1").now_or_never().unwrap() {
        None => String::new(),
        Some(Unmet::Waits(what) | Unmet::Ring(what)) => what,
    };
    let refuse = |ready: &str, reason: String| {
        let sync = sync(json!({"gitRepository": "other"}), status(ready, reason));
        dependencies.refuse_of_other_agent(&other, Some((&*sync, Vec::new())));
    };
    dependencies.enter(&other);
    dependencies.refuse_of_other_agent(&other, None);
    assert_eq!(unmet(), "GitSync shop/sync-2, which cannot be read");
    refuse("False", "ApplyFailed".to_owned());
    assert_eq!(unmet(), "GitSync shop/sync-2, which is not ready (ApplyFailed)");
    refuse("True", "Applied".to_owned());
    assert_eq!(unmet(), "");
    dependencies.refuse_of_other_agent(&other, None);
    assert_eq!(unmet(), "", "its last state is kept");
    refuse("True", "a".repeat(SMALL + 1));
    assert_eq!(unmet(), "GitSync shop/sync-2, which cannot be read", "its state is too large");
    refuse("True", "Applied".to_owned());
    dependencies.read(&own, &dependant("dep.metadata.name == 'a'".into()), vec![other.clone()]);
    assert_eq!(unmet(), "GitSync shop/sync-2, which cannot be read", "an expression reads the whole object");
    assert!(dependencies.of_other_agents().is_empty());
}

#[test]
fn a_status_is_read_by_dependants_of_other_agents_and_by_expressions() {
    let (dependencies, read, other) = (Dependencies::default(), owner(1), owner(2));
    let dependant = |ready_expr: Value| {
        let on = json!({"name": "sync-1", "readyExpr": ready_expr});
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"name": "sync-2", "namespace": "shop"}, "spec": {"gitRepository": "own", "dependsOn": [on]},
        });
        Arc::new(serde_json::from_value::<GitSync>(sync).unwrap())
    };
    dependencies.enter(&read);
    assert!(!dependencies.is_status_read(&read));
    dependencies.read(&other, &dependant(Value::Null), vec![read.clone()]);
    assert!(!dependencies.is_status_read(&read), "its agent receives the status before it is written");
    dependencies.read(&other, &dependant("dep.metadata.name == 'a'".into()), vec![read.clone()]);
    assert!(dependencies.is_status_read(&read));
    dependencies.read_of_other_agent(&other, &dependant(Value::Null), vec![read.clone()]);
    assert!(dependencies.is_status_read(&read) && !dependencies.is_status_read(&other));
    dependencies.remove(&other);
    assert!(!dependencies.is_status_read(&read));
}
