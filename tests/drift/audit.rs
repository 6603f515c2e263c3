//! The audit: a regular dry run of each object finds and reverts drift that no watch has shown. The embedded cluster
//! can suppress watch events.

use std::collections::BTreeMap;
use std::time::Duration;

use devcluster::fault_injection::Fault;
use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::listener::metrics_are;
use mainstay_testkit::world::{NAMESPACE, World, config_map, deployment, free_address};

/// Long enough for one dry run of every object, even on a busy machine.
const INTERVAL: Duration = Duration::from_secs(2);

/// Creates a world with an auditing agent and these files. `before` runs before the agent starts.
async fn audited(files: &[(&str, String)], spec: Value, before: impl Fn(&World)) -> World {
    let mut world = World::new().await;
    before(&world);
    world.audit = INTERVAL;
    world.listen = Some(free_address());
    for (path, content) in files {
        world.remote.file(path, content);
    }
    world.remote.commit("one");
    world.synced(spec).await;
    world
}

/// Suppresses all watches and lists of managed ConfigMaps from before the agent starts. An existing watch could already
/// have shown more.
fn blind(world: &World) {
    for verb in ["watch", "list"] {
        world.levers().fail_next(Fault {
            verb: verb.into(),
            resource: "configmaps".into(),
            query: "mainstay.dev%2Fsync".into(),
            delay_millis: 600_000,
            times: 10_000,
            ..Fault::default()
        });
    }
}

/// Returns the number of dry runs by object, since the gate records.
fn dry_runs(world: &World) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for heard in world.gate.heard() {
        if let Some((path, query)) = heard.asked.strip_prefix("PATCH ").and_then(|asked| asked.split_once('?'))
            && query.contains("dryRun=All")
        {
            *runs.entry(path.rsplit('/').next().unwrap().to_owned()).or_default() += 1;
        }
    }
    runs
}

/// Waits until each of this many objects had this many dry runs.
async fn rounds(world: &World, objects: usize, least: usize) {
    let all = |w: &World| {
        let runs = dry_runs(w);
        runs.len() >= objects && runs.values().all(|count| *count >= least)
    };
    world.until_or("every object was audited", all, || format!("{:#?}", dry_runs(world))).await;
}

/// Waits for the first message that `wanted` accepts. Other messages are discarded.
async fn told<T>(world: &mut World, wanted: impl Fn(&Message) -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = wanted(&world.messages.recv().await.unwrap()) {
                return found;
            }
        }
    };
    tokio::time::timeout(mainstay_testkit::PATIENCE, waiting).await.expect("it is not told")
}

fn missed(message: &Message, name: &str) -> Option<(Vec<String>, String)> {
    match message {
        Message::DriftMissed { object, fields, who, .. } if object.ends_with(name) => {
            Some((fields.clone(), who.clone()))
        }
        _ => None,
    }
}

/// Returns a pending message about missed drift.
fn any_missed(world: &mut World) -> Option<Message> {
    std::iter::from_fn(|| world.messages.try_recv().ok()).find(|m| matches!(m, Message::DriftMissed { .. }))
}

fn has_event(world: &World, reason: &str, kind: &str) -> bool {
    let events = world.server.objects("v1", "events", None);
    events.iter().any(|event| event["reason"] == reason && event["involvedObject"]["kind"] == kind)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_missed_by_the_watch_is_found_reported_and_reverted() {
    let files = [("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1")), ("c.yaml", config_map("c", "1"))];
    let mut world = audited(&files, json!({}), blind).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    assert_eq!(told(&mut world, |m| missed(m, "/a")).await, (vec!["data.key".to_owned()], "kubectl-edit".to_owned()));
    world.until("it is reverted", |w| w.data("a") == "1").await;
    world.delete("v1", "configmaps", "b");
    assert_eq!(told(&mut world, |m| missed(m, "/b")).await.0, ["(object)"]);
    world.until("it is there again", |w| w.data("b") == "1").await;
    // Additions of other clients are not drift: a new resource version alone is not a finding.
    world.edit("v1", "configmaps", "c", json!({"data": {"theirs": "x"}}));
    world.gate.record();
    rounds(&world, 3, 2).await;
    assert_eq!(any_missed(&mut world), None);
    world.until("the status counts it", |w| w.status("demo")["reverted"] == 2).await;
    world.until("an Event of the object tells", |w| has_event(w, "DriftMissed", "ConfigMap")).await;
    world.until("an Event of the GitSync tells", |w| has_event(w, "DriftMissed", "GitSync")).await;
    metrics_are(&world, "both are counted", |text| {
        text.contains(r#"mainstay_drifts_missed_total{sync="mainstay-tests/demo"} 2"#)
            && text.contains(r#"mainstay_audits_total{outcome="different"} 2"#)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_only_reports_under_the_policy_report() {
    let mut world = audited(&[("a.yaml", config_map("a", "1"))], json!({"drift": "Report"}), blind).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    assert_eq!(told(&mut world, |m| missed(m, "/a")).await.0, ["data.key"]);
    world.until("the status shows it", |w| w.status("demo")["drifted"][0]["fields"] == json!(["data.key"])).await;
    assert_eq!(world.data("a"), "changed");
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "1"}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_object_costs_one_dry_run_in_an_interval_and_nothing_is_written() {
    let files = (0..20).map(|number| (format!("{number}.yaml"), config_map(&format!("map-{number}"), "1")));
    let files = files.collect::<Vec<_>>();
    let files = files.iter().map(|(path, content)| (path.as_str(), content.clone())).collect::<Vec<_>>();
    let mut world = audited(&files, json!({}), |_| ()).await;
    let objects = |w: &World| {
        let all = w.server.objects("v1", "configmaps", Some(NAMESPACE));
        let ours = all.into_iter().filter(|map| map["metadata"]["name"].as_str().unwrap().starts_with("map-"));
        ours.map(|map| Value::clone(&map)).collect::<Vec<_>>()
    };
    let before = objects(&world);
    world.gate.record();
    rounds(&world, 20, 3).await;
    let runs = dry_runs(&world);
    let (least, most) = (runs.values().min().unwrap(), runs.values().max().unwrap());
    assert!(most - least <= 1, "they take turns: {runs:?}");
    assert_eq!(objects(&world), before, "with their managedFields");
    let of_maps =
        world.gate.heard().into_iter().map(|heard| heard.asked).filter(|asked| asked.contains("/configmaps/map-"));
    assert_eq!(of_maps.filter(|asked| !asked.contains("dryRun=All")).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(any_missed(&mut world), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_others_and_ignored_fields_are_no_finding() {
    let ignore = json!([{"paths": ["/data/key"], "target": {"kind": "ConfigMap", "name": "ignored"}}]);
    let files = [
        ("web.yaml", deployment("web", "nginx:1", 3)),
        ("ignored.yaml", config_map("ignored", "1").replace("  key:", "  other: x\n  key:")),
        ("paused.yaml", config_map("paused", "1")),
        ("a.yaml", config_map("a", "1")),
    ];
    let mut world = audited(&files, json!({"wait": false, "ignore": ignore}), |_| ()).await;
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"minReplicas": 1, "maxReplicas": 10, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    world.create("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, autoscaler);
    world
        .until("the count is no longer ours", |w| {
            let web = w.get("apps/v1", "deployments", "web").unwrap();
            let fields = web["metadata"]["managedFields"].as_array().unwrap().clone();
            fields.iter().all(|e| e["manager"] != "mainstay" || e["fieldsV1"]["f:spec"].get("f:replicas").is_none())
        })
        .await;
    world.edit("v1", "configmaps", "ignored", json!({"data": {"key": "theirs"}}));
    let glass =
        json!({"metadata": {"annotations": {"mainstay.dev/reconcile": "disabled"}}, "data": {"key": "by hand"}});
    world.edit("v1", "configmaps", "paused", glass);
    world.until("it is paused", |w| w.status("demo")["pausedObjects"] == 1).await;
    world.gate.record();
    rounds(&world, 3, 2).await;
    assert!(!dry_runs(&world).contains_key("paused"), "{:?}", dry_runs(&world));
    assert_eq!(any_missed(&mut world), None);
    assert_eq!((world.data("ignored").as_str(), world.data("paused").as_str()), ("theirs", "by hand"));

    world.change("demo", json!({"suspend": true})).await;
    world.condition_is("demo", "Suspended", "True Suspended").await;
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": NAMESPACE}});
    world.create("v1", "configmaps", NAMESPACE, other);
    world.gate.record();
    world.change("demo", json!({"suspend": false})).await;
    rounds(&world, 3, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_dry_run_is_reported_once_for_a_kind_and_waits_for_its_next_turn() {
    let files = [("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))];
    let mut world = audited(&files, json!({}), |_| ()).await;
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: "configmaps".into(),
        query: "dryRun=All".into(),
        code: 400,
        reason: "BadRequest".into(),
        message: "admission webhook \"x.example.org\" does not support dry run".into(),
        times: 10_000,
        ..Fault::default()
    });
    world.gate.record();
    rounds(&world, 2, 3).await;
    let runs = dry_runs(&world);
    assert!(runs["a"].abs_diff(runs["b"]) <= 1, "none is tried again before the other: {runs:?}");
    let causes = std::iter::from_fn(|| world.messages.try_recv().ok()).filter_map(|message| match message {
        Message::AuditRefused { cause, .. } => Some(cause),
        _ => None,
    });
    let causes = causes.collect::<Vec<_>>();
    assert!(matches!(&causes[..], [cause] if cause.contains("does not support dry run")), "{causes:?}");
    world.ready("demo").await;
    metrics_are(&world, "they are counted", |text| text.contains(r#"mainstay_audits_total{outcome="refused"} "#)).await;
    // Watches still work.
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("it is reverted", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_that_differs_without_a_hand_edit_is_reported_and_applied_again() {
    let mut world = audited(&[("a.yaml", config_map("a", "1"))], json!({}), |_| ()).await;
    // The response of a webhook that was added later.
    let mut answer = Value::clone(&world.get("v1", "configmaps", "a").unwrap());
    answer["data"]["key"] = "rewritten".into();
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: "configmaps".into(),
        query: "dryRun=All".into(),
        code: 200,
        body: Some(answer),
        // The agent repeats the dry run to confirm each finding.
        times: 2,
        ..Fault::default()
    });
    assert_eq!(told(&mut world, |m| missed(m, "/a")).await.0, ["data.key"]);
    let applies =
        |w: &World| w.requests().iter().filter(|(what, _)| what == "apply configmaps").map(|(_, n)| *n).sum::<u64>();
    let before = applies(&world);
    world.until("it is applied again", |w| applies(w) > before).await;
    assert_eq!(world.data("a"), "1");
    world.gate.record();
    rounds(&world, 1, 2).await;
    assert_eq!(any_missed(&mut world), None, "that is settled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_that_admission_changes_each_time_is_reported_and_not_applied_for_ever() {
    let mut world = audited(&[("a.yaml", config_map("a", "1"))], json!({}), |_| ()).await;
    let live = Value::clone(&world.get("v1", "configmaps", "a").unwrap());
    for count in 0..100 {
        let mut answer = live.clone();
        answer["data"]["key"] = format!("stamp {count}").into();
        world.levers().fail_next(Fault {
            verb: "apply".into(),
            resource: "configmaps".into(),
            query: "dryRun=All".into(),
            code: 200,
            body: Some(answer),
            ..Fault::default()
        });
    }
    let cause = told(&mut world, |message| match message {
        Message::AuditRefused { cause, .. } => Some(cause.clone()),
        Message::DriftMissed { .. } => Some("it is taken for drift".to_owned()),
        _ => None,
    });
    assert_eq!(cause.await, "every dry run returns different values (data.key), so an apply cannot converge");
    world.gate.record();
    rounds(&world, 1, 4).await;
    assert_eq!(any_missed(&mut world), None);
    let live_now = world.get("v1", "configmaps", "a").unwrap();
    assert_eq!(live_now["metadata"]["managedFields"], live["metadata"]["managedFields"], "nothing was written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_does_not_answer_is_no_load_of_the_server() {
    let mut world = audited(&[("a.yaml", config_map("a", "1"))], json!({}), |_| ()).await;
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: "configmaps".into(),
        query: "dryRun=All".into(),
        code: 500,
        reason: "InternalError".into(),
        message: "failed calling webhook \"x.example.org\": connection refused".into(),
        times: 10_000,
        ..Fault::default()
    });
    let cause = told(&mut world, |message| match message {
        Message::AuditRefused { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    assert!(cause.await.contains("failed calling webhook"));
    metrics_are(&world, "it counts as refused alone", |text| {
        text.contains(r#"mainstay_audits_total{outcome="unanswered"} 0"#)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_too_much_to_do_is_asked_later_and_is_no_finding() {
    let mut world = audited(&[("a.yaml", config_map("a", "1"))], json!({}), |_| ()).await;
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: "configmaps".into(),
        query: "dryRun=All".into(),
        code: 429,
        retry_after: Some(1),
        times: 2,
        ..Fault::default()
    });
    metrics_are(&world, "it did not answer twice", |text| {
        text.contains(r#"mainstay_audits_total{outcome="unanswered"} 2"#)
    })
    .await;
    world.gate.record();
    rounds(&world, 1, 1).await;
    assert_eq!(any_missed(&mut world), None);
}
