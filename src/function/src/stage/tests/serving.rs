//! Serving, and the Running condition.

use super::*;
use mainstay_api::function_failure::is_lasting;

#[test]
fn a_deployment_is_ready_only_if_its_status_is_of_its_newest_generation() {
    let ready = json!([
        {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ]);
    let message = |generation, observed, conditions: Value| {
        let mut case = Case::new();
        case.deployment(generation, observed, conditions);
        words(&case.decide()).pop().unwrap()
    };
    assert_eq!(message(2, 2, ready.clone()), "True DeploymentReady");
    assert_eq!(message(2, 1, ready), "Unknown DeploymentWaiting");
    assert_eq!(message(1, 1, json!([])), "Unknown DeploymentWaiting", "no condition says nothing");
    let of = |available: &str, progressing: &str, reason: &str| {
        json!([
            {"type": "Available", "status": available, "reason": "x"},
            {"type": "Progressing", "status": progressing, "reason": reason},
        ])
    };
    assert_eq!(message(1, 1, of("False", "True", "ReplicaSetUpdated")), "Unknown DeploymentWaiting");
    assert_eq!(message(1, 1, of("False", "False", "ProgressDeadlineExceeded")), "False DeploymentFailed");
    assert_eq!(message(1, 1, of("False", "True", "NewReplicaSetAvailable")), "Unknown MinReplicasNotAvailable");
    let refused = json!([
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetCreated"},
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"},
    ]);
    assert_eq!(message(1, 1, refused.clone()), "False DeploymentFailed");
    let mut case = Case::new();
    case.deployment(1, 1, refused);
    let said = super::message(&case.decide(), Reason::DeploymentFailed);
    assert!(!is_lasting(Reason::DeploymentFailed.name(), &said), "{said}");
}

#[test]
fn the_cause_of_a_failed_rollout_is_before_the_conditions_of_the_deployment() {
    let mut case = Case::new();
    let long = "x".repeat(1000);
    let version = format!("ReplicaSet \"hello-1\" has timed out progressing. {long}");
    case.deployment(
        1,
        1,
        json!([
            {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": long},
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": version},
        ]),
    );
    case.children.pods = vec![crashing("hello-1", "SyntaxError")];
    let message = message(&case.decide(), Reason::DeploymentFailed);
    assert!(is_lasting(Reason::DeploymentFailed.name(), &message));
    let (cause, conditions) = (message.find("SyntaxError").unwrap(), message.find("type: \"Available\"").unwrap());
    assert!(cause < conditions, "{message}");
}

#[test]
fn a_missing_secret_of_a_mount_is_named_while_the_pods_wait_for_it() {
    let mut case = Case::new();
    let mount = |name: &str| json!({"secretName": name, "mountPath": format!("/{name}")});
    case.function.spec.secret_mounts = serde_json::from_value(json!([mount("keys"), mount("words")])).unwrap();
    let conditions = json!([
        {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
        {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": "ReplicaSet \"hello-1\" is progressing."},
    ]);
    case.deployment(1, 1, conditions);
    let said = message(&case.decide(), Reason::DeploymentWaiting);
    assert!(said.ends_with("is not ready yet"), "{said}");
    case.state.missing_secrets = ["words".to_owned(), "another".to_owned()].into();
    let said = message(&case.decide(), Reason::DeploymentWaiting);
    let why =
        "is not ready yet: Secret \"words\" of spec.secretMounts does not exist; the pods start when it is created";
    assert!(said.ends_with(why), "{said}");
    // The problem of a container takes precedence, because it is more precise.
    case.children.pods = vec![crashing("hello-1", "SyntaxError")];
    let said = message(&case.decide(), Reason::DeploymentWaiting);
    assert!(said.contains("SyntaxError") && !said.contains("words"), "{said}");
}

#[test]
fn without_pods_it_is_as_it_should_be_only_if_somebody_wants_that() {
    let word = |set: Option<i64>, may_rest: bool| {
        let mut case = Case::new();
        (case.function.spec.replicas, case.may_rest) = (set, may_rest);
        case.deployment(1, 1, json!([{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}]));
        case.children.deployments[0].replicas = 0;
        words(&case.decide()).pop().unwrap()
    };
    assert_eq!(word(None, false), "False MinReplicasNotAvailable");
    assert_eq!(word(Some(0), false), "True DeploymentReady");
    assert_eq!(word(None, true), "True DeploymentReady");
}

#[test]
fn an_autoscaler_goes_with_the_number_of_pods_that_replaces_it() {
    let mut case = Case::new();
    case.function.spec.replicas = Some(3);
    case.children.autoscalers =
        vec![ChildIdentity { name: "hello-hpa".into(), uid: "u".into(), ..ChildIdentity::default() }];
    let word = "delete Autoscaler hello-hpa".to_owned();
    assert!(words(&case.decide()).contains(&word), "nothing serves");
    case.deployment(1, 1, json!([]));
    assert!(!words(&case.decide()).contains(&word), "the new image is not built yet");
    case.decide();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    let all = words(&case.decide());
    assert!(all.contains(&word) && all.contains(&"put Deployment".to_owned()), "{all:?}");
}

#[test]
fn replicas_are_handed_over_before_they_are_dropped() {
    let mut case = Case::new();
    case.function.spec.max_replicas = Some(5);
    let inputs = case.decide().record;
    assert_eq!(inputs.built, None);
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    case.deployment(1, 1, json!([]));
    case.children.deployments[0].owns_replicas_alone = true;
    let all = words(&case.decide());
    let at = |word: &str| all.iter().position(|w| w == word).unwrap_or_else(|| panic!("{word}: {all:?}"));
    assert!(at("hand over 2") < at("put Deployment") && at("put Deployment") < at("put Autoscaler"));
    case.children.deployments[0].owns_replicas_alone = false;
    assert!(!words(&case.decide()).contains(&"hand over 2".to_owned()));
}

/// Sets the condition Running to True, as if the Function had run before.
fn ran(case: &mut Case) {
    let running = ConditionUpdate::new(Type::Running, Status::True, Reason::DeploymentReady, "m");
    let reconciled = crate::status::Reconciled { updates: vec![running], ..Default::default() };
    (case.status, _) = crate::status::after(&case.status, &case.function, &reconciled, case.now);
}

#[test]
fn a_function_stays_running_during_a_rollout_while_the_previous_version_serves() {
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
            let decision = case.decide();
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

/// Returns a pod of a ReplicaSet that cannot load its code.
fn crashing(set: &str, why: &str) -> child_state::Pod {
    child_state::pod(&json!({
        "metadata": {
            "name": format!("{set}-x"),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set, "uid": set, "controller": true}],
        },
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "function", "lastState": {"terminated": {"exitCode": 1, "message": why}}},
        ]},
    }))
}

#[test]
fn running_names_the_error_of_its_own_version_only() {
    let progressing = |set: &str| {
        let message = format!("ReplicaSet \"{set}\" is progressing.");
        json!([{"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "message": message}])
    };
    let message = |generation: i64, set: &str, pods: &[child_state::Pod]| {
        let mut case = Case::new();
        case.deployment(generation, 2, progressing(set));
        case.children.pods = pods.to_vec();
        case.decide()
            .steps
            .iter()
            .find_map(|step| match step {
                Step::SetConditionUnlessWritten(update) if update.condition == Type::Running => {
                    Some(update.message.clone())
                }
                _ => None,
            })
            .unwrap()
    };
    let (first, second) = (crashing("web-1", "first error"), crashing("web-2", "second error"));
    let both = [first.clone(), second];
    assert!(message(2, "web-1", &both).contains("first error"));
    let of_second = message(2, "web-2", &both);
    assert!(of_second.contains("second error") && !of_second.contains("first error"), "{of_second}");
    assert!(is_lasting(Reason::DeploymentWaiting.name(), &of_second), "{of_second}");
    for (generation, set) in [(2, "web-2"), (3, "web-1")] {
        let text = message(generation, set, std::slice::from_ref(&first));
        assert!(text.ends_with("is not ready yet"), "no pod of this version is known: {text}");
        assert!(!is_lasting(Reason::DeploymentWaiting.name(), &text), "{text}");
    }
}

#[test]
fn the_version_that_serves_is_that_of_the_last_image_that_was_ready() {
    let served = |generation: i64, old: Option<i64>, record: Record| {
        let mut case = Case::new();
        case.function.metadata.generation = Some(generation);
        case.status.served_generation = old;
        let reconciled = crate::status::Reconciled { record: Some(record), ..Default::default() };
        crate::status::after(&case.status, &case.function, &reconciled, case.now).0.served_generation
    };
    let ready = |serves_current| Record { image: Some("i".into()), serves_current, ..Record::default() };
    assert_eq!(served(4, None, ready(true)), Some(4));
    assert_eq!(served(5, Some(4), ready(false)), Some(4), "a rollout");
    assert_eq!(served(5, Some(4), ready(true)), Some(5));
    assert_eq!(served(5, Some(4), Record::default()), None, "nothing serves");
    let mut case = Case::new();
    case.deployment(
        1,
        1,
        json!([
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        ]),
    );
    assert!(!case.decide().record.serves_current, "its image is not known yet");
}

#[test]
fn writing_another_child_does_not_change_running() {
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
        let decision = case.decide();
        let put = decision.steps.iter().find_map(|step| match step {
            Step::Put(put) if put.child_kind == ChildKind::Autoscaler => Some(put.serves && put.outdated),
            _ => None,
        });
        put.unwrap()
    };
    assert!(!serves(&case), "it has never run");
    ran(&mut case);
    assert!(serves(&case));
    case.children.deployments[0].conditions.clear();
    assert!(!serves(&case));
}

#[test]
fn a_refused_pull_says_that_nodes_do_not_use_the_secret() {
    let no_pull = Some("the Secret s is of type Opaque".to_owned());
    let repository = Repository {
        push: "r/x".into(),
        pull: "p/x".into(),
        secret: "s".into(),
        transport: Transport::default(),
        no_pull,
        is_limited: false,
    };
    let explain =
        |repository: &Repository, reason: &str, text: &str| repository.explain(&(reason.to_owned(), text.to_owned()));
    for refused in ["failed to authorize: 401 Unauthorized", "pull access denied", "no basic auth credentials"] {
        let words = explain(&repository, "ImagePullBackOff", refused);
        assert_eq!(words, format!("ImagePullBackOff: {refused}; the Secret s is of type Opaque"));
    }
    assert_eq!(explain(&repository, "ImagePullBackOff", "not found"), "ImagePullBackOff: not found");
    assert_eq!(explain(&repository, "CrashLoopBackOff", "denied"), "CrashLoopBackOff: denied");
    let typed = Repository { no_pull: None, ..repository };
    assert_eq!(explain(&typed, "ImagePullBackOff", "denied"), "ImagePullBackOff: denied");
}
