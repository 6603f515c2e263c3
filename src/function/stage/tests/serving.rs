//! What serves, and when it is said to run.

use super::*;

#[test]
fn a_deployment_is_ready_only_when_its_status_speaks_of_its_newest_generation() {
    let ready = json!([
        {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ]);
    let said = |generation, observed, conditions: Value| {
        let mut case = Case::new();
        case.deployment(generation, observed, conditions);
        words(&case.drive()).pop().unwrap()
    };
    assert_eq!(said(2, 2, ready.clone()), "True DeploymentReady");
    assert_eq!(said(2, 1, ready), "Unknown DeploymentWaiting");
    assert_eq!(said(1, 1, json!([])), "Unknown DeploymentWaiting", "no condition says nothing");
    let of = |available: &str, progressing: &str, reason: &str| {
        json!([
            {"type": "Available", "status": available, "reason": "x"},
            {"type": "Progressing", "status": progressing, "reason": reason},
        ])
    };
    assert_eq!(said(1, 1, of("False", "True", "ReplicaSetUpdated")), "Unknown DeploymentWaiting");
    assert_eq!(said(1, 1, of("False", "False", "ProgressDeadlineExceeded")), "False DeploymentFailed");
    assert_eq!(said(1, 1, of("False", "True", "NewReplicaSetAvailable")), "Unknown MinReplicasNotAvailable");
    let refused = json!([
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetCreated"},
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"},
    ]);
    assert_eq!(said(1, 1, refused), "False DeploymentFailed");
}

#[test]
fn the_number_of_pods_is_handed_over_before_it_is_dropped() {
    let mut case = Case::new();
    case.function.spec.max_replicas = Some(5);
    let inputs = case.drive().record;
    assert_eq!(inputs.built, None);
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    case.deployment(1, 1, json!([]));
    case.family.deployments[0].owns_replicas_alone = true;
    let all = words(&case.drive());
    let at = |word: &str| all.iter().position(|w| w == word).unwrap_or_else(|| panic!("{word}: {all:?}"));
    assert!(at("hand over 2") < at("put Deployment") && at("put Deployment") < at("put Autoscaler"));
    case.family.deployments[0].owns_replicas_alone = false;
    assert!(!words(&case.drive()).contains(&"hand over 2".to_owned()));
}

/// A Function that has run before.
fn ran(case: &mut Case) {
    let running = Said::new(Type::Running, Status::True, Reason::DeploymentReady, "m");
    let pass = crate::function::status::Pass { said: vec![running], ..Default::default() };
    (case.status, _) = crate::function::status::after(&case.status, &case.function, &pass, case.now);
}

#[test]
fn a_function_goes_on_running_while_another_version_is_rolled_out_and_the_one_before_serves() {
    let of = |available: bool, progressing: &str, reason: &str| {
        let available = if available { ("True", "MinimumReplicasAvailable") } else { ("False", "x") };
        json!([
            {"type": "Available", "status": available.0, "reason": available.1},
            {"type": "Progressing", "status": progressing, "reason": reason},
        ])
    };
    let check = |observed: i64, conditions: &Value, expected: [&str; 2]| {
        for (has_run, expected) in [false, true].into_iter().zip(expected) {
            let mut case = Case::new();
            case.deployment(2, observed, conditions.clone());
            if has_run {
                ran(&mut case);
            }
            let decision = case.drive();
            assert_eq!(words(&decision).pop().unwrap(), expected, "{conditions} {has_run}");
        }
    };
    let (waits, runs) = ("Unknown DeploymentWaiting", "True DeploymentWaiting");
    check(1, &of(true, "True", "NewReplicaSetAvailable"), [waits, runs]);
    check(2, &of(true, "True", "ReplicaSetUpdated"), [waits, runs]);
    check(2, &of(false, "True", "ReplicaSetUpdated"), [waits; 2]);
    check(2, &of(true, "False", "ProgressDeadlineExceeded"), ["False DeploymentFailed"; 2]);
    let mut refused = of(true, "True", "ReplicaSetUpdated");
    let failure = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"});
    refused.as_array_mut().unwrap().push(failure);
    check(2, &refused, [waits, runs]);
}

#[test]
fn another_child_of_a_function_that_runs_is_no_reason_to_doubt_it() {
    let mut case = Case::new();
    case.function.spec.max_replicas = Some(3);
    case.deployment(
        1,
        1,
        json!([
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        ]),
    );
    let serves = |case: &Case| {
        let decision = case.drive();
        let put = decision.steps.iter().find_map(|step| match step {
            Step::Put(put) if put.what == What::Autoscaler => Some(put.serves && put.outdated),
            _ => None,
        });
        put.unwrap()
    };
    assert!(!serves(&case), "it has never run");
    ran(&mut case);
    assert!(serves(&case));
    case.family.deployments[0].conditions.clear();
    assert!(!serves(&case));
}
