//! Additions of other clients to a Function's children. Those that change how its code runs or is called are removed,
//! all others stay.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use devcluster::{Action, Call, Caller, fault_injection::Fault, verbs::patch::Form};
use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{AUTOSCALERS, DEPLOYMENTS, JOBS, Kind, SERVICES, inline, scaled},
    world::{NAMESPACE, World},
};

/// Patches a child of `hello` with a strategic merge patch as a field manager.
#[track_caller]
fn patch(world: &World, manager: &str, kind: Kind, patch: &Value) -> Value {
    let name = world.child_name("hello", kind);
    let call = Call::new(kind.0, kind.1, NAMESPACE, &name, Action::Patch(Form::Strategic, patch.clone()));
    world.try_as(manager, call).unwrap()
}

/// Returns a change of a Deployment's pods.
fn pods(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

/// Returns a change of the container that runs the code.
fn container(mut fields: Value) -> Value {
    fields["name"] = json!("function");
    pods(json!({"containers": [fields]}))
}

fn spec(world: &World, kind: Kind) -> Value {
    world.child("hello", kind)["spec"].clone()
}

/// Waits until all earlier events of these kinds are handled. Changes each child of the Function `fence` twice and
/// waits for the reverts.
async fn fence(world: &World, kinds: &[Kind]) {
    for _ in 0..2 {
        for &kind in kinds {
            let edit = match kind {
                DEPLOYMENTS => container(json!({"command": ["sleep", "1d"]})),
                SERVICES => json!({"spec": {"sessionAffinity": "ClientIP"}}),
                _ => json!({"spec": {"maxReplicas": 9}}),
            };
            let before = world.child("fence", kind)["spec"].clone();
            let name = world.child_name("fence", kind);
            let call = Call::new(kind.0, kind.1, NAMESPACE, &name, Action::Patch(Form::Strategic, edit));
            // The change may be reverted before it can be read.
            assert_ne!(world.try_as("kubectl-edit", call).unwrap()["spec"], before);
            world.until_function("the fence is reverted", |w| w.child("fence", kind)["spec"] == before).await;
        }
    }
}

/// Returns object, fields and author of the reverts since the last call, up to and including `kind`.
async fn put_back(world: &mut World, kind: &str) -> (Vec<String>, String) {
    loop {
        let message = tokio::time::timeout(world.patience, world.messages.recv());
        let message = message.await.expect("what is reverted is told").unwrap();
        if let Message::Reverted { object, fields, who, .. } = message
            && object.starts_with(kind)
        {
            return (fields, who);
        }
    }
}

/// Returns additions of users and tools to a Deployment, and the reported fields.
fn additions() -> [(Value, Vec<&'static str>); 4] {
    let [sidecar, first] =
        ["sidecar", "first"].map(|name| json!({"name": name, "image": "registry.example.org/more:1"}));
    [
        (
            json!({"spec": {"paused": true, "minReadySeconds": 300, "strategy": {"type": "Recreate", "rollingUpdate": null}}}),
            vec!["spec.paused", "spec.minReadySeconds", "spec.strategy.type"],
        ),
        (
            container(json!({
                "command": ["sleep", "1d"], "args": ["x"], "workingDir": "/tmp",
                "env": [{"name": "NODE_OPTIONS", "value": "--inspect"}], "envFrom": [{"configMapRef": {"name": "more"}}],
                "ports": [{"containerPort": 9229, "protocol": "TCP"}],
                "lifecycle": {"preStop": {"exec": {"command": ["sleep", "30"]}}},
                "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
                "readinessProbe": {"initialDelaySeconds": 600},
            })),
            vec![
                "…command",
                "…args",
                "…workingDir",
                "…env[name=\"NODE_OPTIONS\"]",
                "…envFrom",
                "…ports",
                "…lifecycle",
                "…securityContext.capabilities.add",
                "…readinessProbe.initialDelaySeconds",
            ],
        ),
        (
            pods(json!({
                "containers": [sidecar], "initContainers": [first], "nodeSelector": {"disk": "ssd"},
                "hostNetwork": true, "dnsPolicy": "Default",
            })),
            vec![
                "spec.template.spec.containers[name=\"sidecar\"]",
                "spec.template.spec.initContainers",
                "spec.template.spec.nodeSelector",
                "spec.template.spec.hostNetwork",
                "spec.template.spec.dnsPolicy",
            ],
        ),
        (
            pods(json!({"volumes": [{"name": "more", "emptyDir": {}}], "containers": [{
                "name": "function", "volumeMounts": [{"name": "more", "mountPath": "/more"}]}]})),
            vec!["spec.template.spec.volumes[name=\"more\"]", "…volumeMounts[mountPath=\"/more\"]"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_fields_that_change_how_the_code_runs_are_removed_at_once() {
    let mut world = World::running(inline("1")).await;
    let before = spec(&world, DEPLOYMENTS);
    // Tools of users, and unknown clients.
    for (manager, (addition, told)) in
        ["kubectl-rollout", "kubectl-edit", "some-script", "kubectl"].into_iter().zip(additions())
    {
        let written = patch(&world, manager, DEPLOYMENTS, &addition);
        assert_ne!(written["spec"], before, "{addition}");
        world.until_function(&format!("without {addition}"), |w| spec(w, DEPLOYMENTS) == before).await;
        let (fields, who) = put_back(&mut world, "Deployment").await;
        assert_eq!(who, manager, "{addition}");
        for field in told {
            let field = field.replace('…', "spec.template.spec.containers[name=\"function\"].");
            assert!(fields.iter().any(|told| told.starts_with(&field)), "{field}: {fields:?}");
        }
        let live = world.child("hello", DEPLOYMENTS);
        let entries = live["metadata"]["managedFields"].as_array().unwrap();
        assert!(entries.iter().all(|entry| entry["manager"] != manager), "{addition}: {entries:#?}");
    }
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing was built again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_fields_that_change_how_the_code_is_called_are_removed_at_once() {
    let mut world = World::running(inline("1")).await;
    let before = spec(&world, SERVICES);
    for (addition, field) in [
        (json!({"spec": {"publishNotReadyAddresses": true}}), "spec.publishNotReadyAddresses"),
        (json!({"spec": {"sessionAffinity": "ClientIP"}}), "spec.sessionAffinity"),
        (json!({"spec": {"externalIPs": ["192.0.2.1"]}}), "spec.externalIPs"),
        (json!({"spec": {"ports": [{"name": "debug", "port": 9229, "targetPort": 9229}]}}), "spec.ports[port=9229"),
    ] {
        let written = patch(&world, "kubectl-edit", SERVICES, &addition);
        assert_ne!(written["spec"], before, "{addition}");
        world.until_function(&format!("without {addition}"), |w| spec(w, SERVICES) == before).await;
        let (fields, who) = put_back(&mut world, "Service").await;
        assert_eq!(who, "kubectl-edit", "{addition}");
        assert!(fields.iter().any(|told| told.starts_with(field)), "{field}: {fields:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harmless_foreign_fields_stay_without_requests() {
    let world = World::running(scaled("1")).await;
    world.function("fence", scaled("1"));
    world.runs("fence").await;
    world.quiet().await;
    let metadata = json!({"labels": {"team": "a"}, "annotations": {"example.org/seen": "1"}});
    world.levers().reset_counts();
    for kind in [DEPLOYMENTS, SERVICES, AUTOSCALERS] {
        patch(&world, "kubectl-edit", kind, &json!({"metadata": metadata}));
    }
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": "now"});
    let template = json!({"metadata": {"annotations": annotations, "labels": {"team": "a"}}});
    let edit = json!({"spec": {"revisionHistoryLimit": 3, "template": template}});
    patch(&world, "kubectl-rollout", DEPLOYMENTS, &edit);
    let scale = |manager: &str, replicas: i64| {
        let name = world.child_name("hello", DEPLOYMENTS);
        let patch = Action::Patch(Form::Merge, json!({"spec": {"replicas": replicas}}));
        let call = Call::new(DEPLOYMENTS.0, DEPLOYMENTS.1, NAMESPACE, &name, patch).on("scale");
        world.try_as(manager, call).unwrap();
    };
    scale("kube-controller-manager", 2);
    world.runs("hello").await;
    let kinds = [DEPLOYMENTS, SERVICES, AUTOSCALERS];
    fence(&world, &kinds).await;
    let applies = world.requests().into_iter().filter(|(asked, _)| asked.starts_with("apply ")).collect::<Vec<_>>();
    assert_eq!(applies.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [2; 3], "only of the fence: {applies:?}");
    // A rollout does not remove the additions either.
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.until_function("the variable is there", |w| spec(w, DEPLOYMENTS).to_string().contains(r#""name":"A""#)).await;
    world.runs("hello").await;
    for kind in [DEPLOYMENTS, SERVICES, AUTOSCALERS] {
        let live = world.child("hello", kind);
        assert_eq!(live["metadata"]["labels"]["team"], "a", "{kind:?}");
        assert_eq!(live["metadata"]["annotations"]["example.org/seen"], "1", "{kind:?}");
    }
    let live = spec(&world, DEPLOYMENTS);
    assert_eq!(live["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"], "now");
    assert_eq!(live["template"]["metadata"]["labels"]["team"], "a");
    assert_eq!((&live["replicas"], &live["revisionHistoryLimit"]), (&json!(2), &json!(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_were_added_while_no_agent_ran_are_removed_by_the_next_one() {
    let mut world = World::running(inline("1")).await;
    let before = spec(&world, DEPLOYMENTS);
    world.stop().await;
    patch(&world, "kubectl-rollout", DEPLOYMENTS, &json!({"spec": {"paused": true}}));
    patch(&world, "kubectl-edit", DEPLOYMENTS, &container(json!({"command": ["sleep", "1d"]})));
    world.start();
    world.until_function("both are gone", |w| spec(w, DEPLOYMENTS) == before).await;
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing was built again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_without_a_manager_are_removed_by_the_next_agent() {
    let mut world = World::running(inline("1")).await;
    let before = spec(&world, DEPLOYMENTS);
    world.stop().await;
    let mut edit = container(json!({"command": ["sleep", "1d"]}));
    edit["metadata"] = json!({"managedFields": [{}]});
    let edited = patch(&world, "kubectl-edit", DEPLOYMENTS, &edit);
    assert_ne!(edited["spec"], before);
    assert!(edited["metadata"]["managedFields"].as_array().is_none_or(Vec::is_empty), "{edited:#}");
    world.start();
    world.until_function("it is gone", |w| spec(w, DEPLOYMENTS) == before).await;
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_were_added_under_break_glass_stay_until_it_ends() {
    let world = World::running(inline("1")).await;
    world.function("fence", inline("1"));
    world.runs("fence").await;
    let before = spec(&world, DEPLOYMENTS);
    let glass = |state: Value| json!({"metadata": {"annotations": {"mainstay.dev/reconcile": state}}});
    patch(&world, "kubectl-annotate", DEPLOYMENTS, &glass(json!("disabled")));
    patch(&world, "kubectl-edit", DEPLOYMENTS, &container(json!({"command": ["sleep", "1d"]})));
    fence(&world, &[DEPLOYMENTS]).await;
    assert_ne!(spec(&world, DEPLOYMENTS), before);
    patch(&world, "kubectl-annotate", DEPLOYMENTS, &glass(Value::Null));
    world.until_function("it is gone", |w| spec(w, DEPLOYMENTS) == before).await;
}

/// An admission webhook refuses every apply that removes this addition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_removal_is_retried_with_backoff() {
    let world = World::running(inline("1")).await;
    let before = spec(&world, DEPLOYMENTS);
    world.levers().reset_counts();
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: "deployments".into(),
        code: 403,
        reason: "Forbidden".into(),
        message: "admission webhook \"no.example.org\" denied the request: request {nth}".into(),
        times: 1_000_000,
        ..Fault::default()
    });
    let asked = |world: &World, what: &str| {
        world.requests().into_iter().find(|(asked, _)| asked == what).map_or(0, |(_, count)| count)
    };
    let statuses = |world: &World| asked(world, "patch functions.serverless.kyma-project.io/status");
    let began = Instant::now();
    patch(&world, "kubectl-edit", DEPLOYMENTS, &json!({"spec": {"paused": true}}));
    world.says("hello", "Running", "False ").await;
    world.until_function("it is tried again", |w| asked(w, "apply deployments.apps") > 2).await;
    let said = statuses(&world);
    world.until_function("and again", |w| asked(w, "apply deployments.apps") > 3).await;
    let tries = asked(&world, "apply deployments.apps");
    let passed = began.elapsed().as_secs_f64();
    // After 1 s, 2 s, 4 s …, with up to 10 % less.
    let most = 1.0 + (1.0 + passed / 0.9).log2();
    assert!((4.0..=most).contains(&(tries as f64)), "{tries} tries in {passed} s");
    // Each attempt takes ownership of the addition, and returns it because the apply is refused. If the Deployment's
    // controller writes in between, ownership stays, or the object is read again. One more attempt may have started.
    let (writes, reads) = (asked(&world, "patch deployments.apps"), asked(&world, "get deployments.apps"));
    assert!(writes <= 2 * (tries + 1) && reads <= tries, "{tries} tries: {:?}", world.requests());
    // The server's message differs every time; the failure is the same.
    assert_eq!(statuses(&world), said, "{:?}", world.requests());
    world.levers().clear_faults();
    world.until_function("it is gone at last", |w| spec(w, DEPLOYMENTS) == before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_additions_are_removed_with_backoff() {
    let mut world = World::running(inline("1")).await;
    let before = spec(&world, DEPLOYMENTS);
    world.levers().reset_counts();
    let (stop, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let writer = {
        let (server, stop, name) = (world.server.clone(), Arc::clone(&stop), world.child_name("hello", DEPLOYMENTS));
        tokio::spawn(async move {
            let mut every = tokio::time::interval(Duration::from_millis(10));
            while !stop.load(Ordering::Relaxed) {
                every.tick().await;
                let paused = Action::Patch(Form::Merge, json!({"spec": {"paused": true}}));
                // A concurrent write may cause a conflict.
                let call = Call::new(DEPLOYMENTS.0, DEPLOYMENTS.1, NAMESPACE, &name, paused);
                let _ = server.call(&Caller::new("autopilot"), call);
            }
        })
    };
    let contended = async {
        loop {
            if let Ok(Message::Contended { fields, who, .. }) = world.messages.recv().await {
                return (fields, who);
            }
        }
    };
    let (fields, who) = tokio::time::timeout(mainstay_testkit::PATIENCE, contended).await.expect("it is a fight");
    assert_eq!((fields, who.as_str()), (vec!["spec.paused".to_owned()], "autopilot"));
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    // From the fifth revert on, the delays double: 0.25 s, 0.5 s, 1 s …
    let requests = world.requests();
    let applies = requests.iter().find(|(asked, _)| asked == "apply deployments.apps").map_or(0, |(_, count)| *count);
    let most = 5.0 + (1.0 + began.elapsed().as_secs_f64() / 0.25).log2().ceil() + 1.0;
    assert!((5.0..=most).contains(&(applies as f64)), "{applies} applies in {:?}", began.elapsed());
    world.until_function("it is gone in the end", |w| spec(w, DEPLOYMENTS) == before).await;
}
