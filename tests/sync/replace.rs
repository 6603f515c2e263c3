//! Immutable fields: an object is replaced only on request, after dry runs prove that nothing else helps. Otherwise the
//! conflict is reported with instructions.

use devcluster::fault_injection::Fault;
use devcluster::{Action, Call, Caller, verbs::delete::DeleteOptions};
use serde_json::{Value, json};

use mainstay_testkit::gate::after_every_write;
use mainstay_testkit::world::{NAMESPACE, World, config_map};

const JOBS: (&str, &str) = ("batch/v1", "jobs");
const SERVICES: (&str, &str) = ("v1", "services");
const MAPS: (&str, &str) = ("v1", "configmaps");
const ENABLED: &str = "annotations: {mainstay.dev/replace: enabled}";

/// Returns a Job `work` that never ends.
fn job(command: &str, metadata: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: work\n  {metadata}\nspec:\n  template:\n    spec:\n      restartPolicy: \
         Never\n      containers: [{{name: main, image: 'example.org/server:1', command: [{command}]}}]\n"
    )
}

/// Returns a Service `api` with or without an address, which is immutable.
fn service(has_address: bool, metadata: &str) -> String {
    let address = if has_address { "" } else { "  clusterIP: None\n" };
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: api\n  {metadata}\nspec:\n{address}  selector: {{app: api}}\n  ports: \
         [{{port: 80}}]\n"
    )
}

/// Returns a ConfigMap `fixed` with immutable content.
fn fixed(value: &str, metadata: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: fixed\n  {metadata}\nimmutable: true\ndata: {{key: '{value}'}}\n"
    )
}

/// Creates a world with a manifest `it.yaml`.
async fn with(manifest: &str, spec: Value) -> World {
    let mut world = World::new().await;
    world.remote.file("it.yaml", manifest).file("map.yaml", config_map("map", "1")).commit("one");
    // Running Jobs are not healthy yet.
    let mut whole = json!({"wait": false});
    json_patch::merge(&mut whole, &spec);
    world.synced(whole).await;
    world
}

fn command(world: &World) -> Value {
    let job = world.get(JOBS.0, JOBS.1, "work");
    job.map(|job| job["spec"]["template"]["spec"]["containers"][0]["command"][0].clone()).unwrap_or_default()
}

fn replacements(world: &World) -> i64 {
    world.status("demo")["replaced"].as_i64().unwrap_or(0)
}

/// Returns the messages of Events about the GitSync with this reason.
fn events(world: &World, reason: &str) -> Vec<String> {
    let events = world.server.objects("v1", "events", Some(NAMESPACE));
    let about =
        |event: &&std::sync::Arc<Value>| event["reason"] == reason && event["involvedObject"]["kind"] == "GitSync";
    events.iter().filter(about).map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Deletes the ConfigMap `fixed`, and creates another ConfigMap of that name right before the agent does, this many
/// times.
async fn put_in_its_place(world: &World, times: u32, manifest: &str) {
    let server = world.server.clone();
    let mut theirs: Value = serde_yaml::from_str(manifest).unwrap();
    theirs["metadata"]["namespace"] = NAMESPACE.into();
    world.gate.before(["apply", "configmaps", "fixed"], times, move || {
        // The creation fails while such an object exists.
        let create = Call::new(MAPS.0, MAPS.1, NAMESPACE, "", Action::Create(theirs.clone()));
        let _ = server.call(&Caller::new("kubectl"), create);
    });
    world.delete(MAPS.0, MAPS.1, "fixed");
    world.until("all was done", |w| w.gate.interferences_left() == 0).await;
}

/// Commits `it.yaml` and waits until it is refused as immutable. Returns the message.
async fn refused(world: &mut World, manifest: &str, object: &str) -> String {
    world.remote.file("it.yaml", manifest);
    world.try_commit("demo", "another one").await;
    world.until("it is refused", |w| w.failure("demo", object).starts_with("Immutable")).await;
    world.failure("demo", object)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_with_another_template_is_replaced_once_where_its_manifest_asks_for_it() {
    let mut world = with(&job("one", ""), json!({})).await;
    world.until("its pod is there", |w| !w.server.objects("v1", "pods", Some(NAMESPACE)).is_empty()).await;
    let first = world.uid(JOBS.0, JOBS.1, "work");
    let said = refused(&mut world, &job("two", ""), "Job.batch mainstay-tests/work").await;
    let snippets =
        ["mainstay.dev/rerun", "annotations: {mainstay.dev/replace: enabled}", "replace: [Job.batch]", "spec.template"];
    assert!(snippets.iter().all(|snippet| said.contains(snippet)), "{said}");
    assert_eq!((world.uid(JOBS.0, JOBS.1, "work"), replacements(&world)), (first.clone(), 0));

    let mut changes = world.server.changes(JOBS.0, JOBS.1);
    world.remote.file("it.yaml", job("two", ENABLED));
    world.commit("demo", "asked for").await;
    assert_eq!(command(&world), "two");
    let in_foreground = async {
        let is_going = |job: &Value| job["metadata"]["finalizers"].to_string().contains("foregroundDeletion");
        while !changes.next().await.iter().any(is_going) {}
    };
    tokio::time::timeout(world.patience, in_foreground).await.expect("the old one waited for its pods");
    let second = world.uid(JOBS.0, JOBS.1, "work");
    assert_ne!(second, first);
    let status = world.status("demo");
    let recorded = &status["lastReplacements"][0];
    assert_eq!(
        (&status["replaced"], &recorded["uid"], &recorded["allowedBy"]),
        (&json!(1), &json!(first), &json!("Annotation"))
    );
    assert_eq!(
        (&recorded["object"], &recorded["fields"]),
        (&json!("Job.batch mainstay-tests/work"), &json!(["spec.template"]))
    );
    assert_eq!((&status["reverted"], &status["failed"]), (&json!(0), &json!(0)), "{status:#}");
    world.until("an Event tells", |w| events(w, "Replaced").iter().any(|text| text.contains("spec.template"))).await;
    let orphans = |w: &World| {
        let pods = w.server.objects("v1", "pods", Some(NAMESPACE));
        pods.iter().any(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == *first)
    };
    assert!(!orphans(&world), "its pods went before it");
    world.remote.file("map.yaml", config_map("map", "2"));
    world.commit("demo", "something else").await;
    assert_eq!((world.uid(JOBS.0, JOBS.1, "work"), replacements(&world)), (second, 1));
    // The count survives a restart.
    world.stop().await;
    world.start();
    world.remote.file("map.yaml", config_map("map", "3"));
    world.commit("demo", "after a restart").await;
    assert_eq!(replacements(&world), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_deleted_by_hand_is_created_as_in_the_newest_commit() {
    let mut world = with(&fixed("1", ""), json!({})).await;
    let said = refused(&mut world, &fixed("2", ""), "ConfigMap mainstay-tests/fixed").await;
    assert!(said.contains("delete the object to have it recreated"), "{said}");
    world.delete(MAPS.0, MAPS.1, "fixed");
    world.until("it is created", |w| w.data("fixed") == "2").await;
    world.ready("demo").await;
    assert_eq!((replacements(&world), &world.status("demo")["reverted"]), (0, &json!(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_goes_while_its_update_is_refused_is_created_as_the_commit_wants_it() {
    let mut world = with(&fixed("1", ""), json!({})).await;
    let server = world.server.clone();
    // Deletes the object after the refused update, before the agent's next request, like the garbage collector.
    world.gate.before(["create", "configmaps", ""], 1, move || {
        let delete = Action::Delete(DeleteOptions::default());
        server.must_call("test", Call::new(MAPS.0, MAPS.1, NAMESPACE, "fixed", delete));
    });
    world.remote.file("it.yaml", fixed("2", ""));
    world.commit("demo", "another one").await;
    assert_eq!((world.gate.interferences_left(), world.data("fixed"), replacements(&world)), (0, "2".to_owned(), 0));
    assert_eq!(world.status("demo")["reverted"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kinds_of_the_spec_are_replaced_at_once_and_no_others() {
    let role = |name: &str, to: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: {name}}}\nroleRef: {{apiGroup: \
             rbac.authorization.k8s.io, kind: Role, name: {to}}}\n"
        )
    };
    let secret = |kind: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: pass}}\ntype: {kind}\nstringData: {{k: hunter2}}\n")
    };
    let deployment = |label: &str| mainstay_testkit::world::deployment("web", "web:1", 0).replace("app: web", label);
    let mut world = World::new().await;
    let write = |world: &mut World, round: usize| {
        let pick = |values: [&str; 2]| values[round].to_owned();
        world.remote.file("service.yaml", service(round == 0, ""));
        world.remote.file("fixed.yaml", fixed(&pick(["1", "2"]), ""));
        world.remote.file("role.yaml", role("binding", &pick(["a", "b"])));
        world.remote.file("secret.yaml", secret(&pick(["example.org/a", "example.org/b"])));
        world.remote.file("web.yaml", deployment(&pick(["app: web", "app: other"])));
    };
    write(&mut world, 0);
    world.remote.commit("one");
    world.synced(json!({"wait": false})).await;
    write(&mut world, 1);
    world.try_commit("demo", "all differ").await;
    world.until("all are refused", |w| w.status("demo")["failed"] == 5).await;
    let failures = world.status("demo")["failures"].clone();
    assert!(failures.as_array().unwrap().iter().all(|failure| failure["reason"] == "Immutable"), "{failures:#}");
    assert!(!failures.to_string().contains("hunter2"));
    let of = |w: &World| {
        [
            SERVICES,
            MAPS,
            ("rbac.authorization.k8s.io/v1", "rolebindings"),
            ("v1", "secrets"),
            ("apps/v1", "deployments"),
        ]
        .into_iter()
        .zip(["api", "fixed", "binding", "pass", "web"])
        .map(|((version, plural), name)| w.get(version, plural, name).map(|one| one["metadata"]["uid"].clone()))
        .collect::<Vec<_>>()
    };
    let first = of(&world);
    world.change("demo", json!({"replace": ["Service", "Deployment.apps"]})).await;
    world.until("two are replaced", |w| replacements(w) == 2 && w.status("demo")["failed"] == 3).await;
    let second = of(&world);
    let is_new = first.iter().zip(&second).map(|(a, b)| a != b).collect::<Vec<_>>();
    assert_eq!(is_new, [true, false, false, false, true]);
    assert_eq!(world.get(SERVICES.0, SERVICES.1, "api").unwrap()["spec"]["clusterIP"], "None");
    let all = ["Service", "Deployment.apps", "ConfigMap", "Secret", "RoleBinding.rbac.authorization.k8s.io"];
    world.change("demo", json!({"replace": all})).await;
    world.ready("demo").await;
    assert!(first.iter().zip(of(&world)).all(|(a, b)| *a != b && b.is_some()));
    assert_eq!(replacements(&world), 5, "{:#?} {:#}", events(&world, "Replaced"), world.status("demo"));
    assert!(!world.status("demo").to_string().contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_with_data_are_replaced_only_if_their_own_manifest_allows_it() {
    let set = |claim: &str, metadata: &str| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata:\n  name: db\n  {metadata}\nspec:\n  replicas: 0\n  serviceName: db\n  \
             selector: {{matchLabels: {{app: db}}}}\n  template:\n    metadata: {{labels: {{app: db}}}}\n    spec: {{containers: \
             [{{name: db, image: 'db:1'}}]}}\n  volumeClaimTemplates:\n  - metadata: {{name: {claim}}}\n    spec: {{accessModes: \
             [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
        )
    };
    let of = ("apps/v1", "statefulsets");
    let mut world = with(&set("data", ""), json!({"replace": ["StatefulSet.apps"]})).await;
    let first = world.uid(of.0, of.1, "db");
    let said = refused(&mut world, &set("other", ""), "StatefulSet.apps mainstay-tests/db").await;
    assert!(said.contains("it has volume claims, and so data, so spec.replace does not apply to it"), "{said}");
    assert_eq!(world.uid(of.0, of.1, "db"), first);
    world.remote.file("it.yaml", set("other", ENABLED));
    world.commit("demo", "named").await;
    assert_ne!(world.uid(of.0, of.1, "db"), first);
    // Kinds that are never replaced are refused before anything happens.
    world.remote.file("map.yaml", config_map("map", "2")).commit("waits");
    world.change("demo", json!({"replace": ["StatefulSet.apps", "Namespace", "Job"]})).await;
    let ready = world.condition("demo", "Ready");
    let said = ["False SpecInvalid", "spec.replace[1]: \"Namespace\": deleting a Namespace", "write Job.batch"];
    assert!(said.iter().all(|text| ready.contains(text)), "{ready}");
    assert_eq!(world.data("map"), "1");
    world.edit(MAPS.0, MAPS.1, "map", json!({"data": {"key": "by hand"}}));
    world.until("what was applied stays enforced", |w| w.data("map") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_not_replaced_for_another_reason_or_when_the_new_one_would_be_refused() {
    let mut world = with(&job("one", ENABLED), json!({"replace": ["Service"]})).await;
    let first = world.uid(JOBS.0, JOBS.1, "work");
    let name = "Job.batch mainstay-tests/work";
    // The object is invalid for a create and an update: alone, and together with an immutable field.
    for (command, parallelism) in [("one", -1), ("two", -1)] {
        let manifest = job(command, ENABLED)
            .replace("spec:\n  template", &format!("spec:\n  parallelism: {parallelism}\n  template"));
        world.remote.file("it.yaml", manifest);
        world.try_commit("demo", "not valid").await;
        let said = |w: &World| w.failure("demo", name);
        world.until("it is refused", |w| said(w).starts_with("ApplyFailed") && said(w).contains("parallelism")).await;
        assert_eq!(world.uid(JOBS.0, JOBS.1, "work"), first);
    }
    // The quota is exhausted: a new object would be refused.
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": NAMESPACE},
        "spec": {"hard": {"count/jobs.batch": "1"}}});
    world.create("v1", "resourcequotas", NAMESPACE, quota);
    world
        .until("it counts", |w| {
            w.get("v1", "resourcequotas", "q").is_some_and(|q| q["status"]["used"]["count/jobs.batch"] == "1")
        })
        .await;
    world.remote.file("it.yaml", job("two", ENABLED));
    world.try_commit("demo", "no room").await;
    world.until("it is refused", |w| w.failure("demo", name).contains("spec.template")).await;
    assert_eq!((world.uid(JOBS.0, JOBS.1, "work"), replacements(&world)), (first, 0));
    world.delete("v1", "resourcequotas", "q");
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!((command(&world), replacements(&world)), (json!("two"), 1));
    // An invalid value of the annotation is a problem of the commit.
    world.remote.file("it.yaml", job("three", "annotations: {mainstay.dev/replace: 'yes'}"));
    world.try_commit("demo", "neither").await;
    let problem = "metadata.annotations[\"mainstay.dev/replace\"] is neither enabled nor disabled";
    world.until("that is a problem", |w| w.condition("demo", "Ready").contains(problem)).await;
    assert!(world.condition("demo", "Ready").starts_with("False ManifestInvalid"));
}

/// The dry runs before a deletion, whose response a test changes.
#[derive(Clone, Copy, Debug)]
enum Proof {
    /// The update would succeed.
    Update,
    /// The object as in Git would be accepted: fields of other clients are the cause.
    Alone,
    /// A new object would be refused.
    New,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_replaced_only_if_every_dry_run_proves_it_necessary() {
    for (proof, expected) in [
        (Proof::Update, "ApplyFailed"),
        (Proof::Alone, "ApplyFailed"),
        (Proof::New, "Immutable: an immutable field differs; it is not deleted"),
    ] {
        let mut world = with(&fixed("1", ENABLED), json!({})).await;
        let first = world.uid(MAPS.0, MAPS.1, "fixed");
        let answer = |verb: &str, code: u16| Fault {
            verb: verb.into(),
            resource: "configmaps".into(),
            query: "dryRun=All".into(),
            code,
            body: (code == 200).then(|| json!({})),
            times: 1000,
            ..Fault::default()
        };
        match proof {
            Proof::Update => world.levers().fail_next(answer("apply", 200)),
            Proof::Alone => world.levers().fail_next(answer("update", 200)),
            Proof::New => {
                // The creation with the object's own name was tried before.
                let (gate, refusal) = (world.gate.clone(), Fault { times: 1, ..answer("create", 403) });
                world.gate.before(["update", "configmaps", "fixed"], 1000, move || {
                    gate.levers().fail_next(refusal.clone());
                });
            }
        }
        world.remote.file("it.yaml", fixed("2", ENABLED));
        world.try_commit("demo", "another value").await;
        let said = |w: &World| w.failure("demo", "ConfigMap mainstay-tests/fixed");
        world.until("it is refused", |w| said(w).starts_with(expected)).await;
        assert_eq!((world.uid(MAPS.0, MAPS.1, "fixed"), replacements(&world)), (first, 0), "{proof:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_on_the_live_object_count() {
    let mut world = with(&fixed("1", ENABLED), json!({})).await;
    let first = world.uid(MAPS.0, MAPS.1, "fixed");
    let annotate = |world: &World, name: &str, value: Value| {
        world.edit(MAPS.0, MAPS.1, "fixed", json!({"metadata": {"annotations": {name: value}}}));
    };
    for (name, value) in [("mainstay.dev/prune", "disabled"), ("mainstay.dev/replace", "disabled")] {
        annotate(&world, name, value.into());
        let said = refused(&mut world, &fixed("2", ENABLED), "ConfigMap mainstay-tests/fixed").await;
        assert!(said.contains(&format!("{name}: {value}")), "{said}");
        annotate(&world, name, if name.ends_with("replace") { "enabled".into() } else { Value::Null });
        world.remote.file("it.yaml", fixed("1", ENABLED));
        world.commit("demo", "as before").await;
    }
    annotate(&world, "mainstay.dev/reconcile", "disabled".into());
    world.until("the pause is seen", |w| w.status("demo")["pausedObjects"] == 1).await;
    world.remote.file("it.yaml", fixed("2", ENABLED));
    world.try_commit("demo", "it is paused").await;
    assert_eq!((world.uid(MAPS.0, MAPS.1, "fixed"), replacements(&world)), (first, 0));
    annotate(&world, "mainstay.dev/reconcile", Value::Null);
    world.ready("demo").await;
    world.until("it is replaced when that is over", |w| w.data("fixed") == "2" && replacements(w) == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_were_never_ours_are_not_deleted_on_any_request() {
    let mut world = World::new().await;
    let mut theirs: Value = serde_yaml::from_str(&fixed("theirs", "")).unwrap();
    theirs["metadata"]["namespace"] = NAMESPACE.into();
    world.try_as("kubectl-create", Call::new(MAPS.0, MAPS.1, NAMESPACE, "", Action::Create(theirs))).unwrap();
    world.remote.file("it.yaml", fixed("1", ENABLED)).commit("one");
    world.sync("demo", json!({"replace": ["ConfigMap"]}));
    world.start();
    let said = |w: &World| w.failure("demo", "ConfigMap mainstay-tests/fixed");
    world.until("it is refused", |w| said(w).contains("without proof that Mainstay applied it")).await;
    assert!(said(&world).starts_with("Immutable"), "{}", said(&world));
    assert_eq!((world.data("fixed").as_str(), replacements(&world)), ("theirs", 0));
    world.delete(MAPS.0, MAPS.1, "fixed");
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(world.data("fixed"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_stuck_in_deletion_is_named_and_becomes_that_of_the_newest_commit() {
    let mut world = with(&service(true, ENABLED), json!({"timeout": "1s", "drift": "Ignore"})).await;
    world.edit(SERVICES.0, SERVICES.1, "api", json!({"metadata": {"finalizers": ["example.org/wait"]}}));
    world.remote.file("it.yaml", service(false, ENABLED));
    world.try_commit("demo", "without an address").await;
    let said = |w: &World| w.failure("demo", "Service mainstay-tests/api");
    world.until("the finalizer is named", |w| said(w).contains("example.org/wait")).await;
    world.until("an Event says that it is stuck", |w| !events(w, "DeletionStuck").is_empty()).await;
    // A commit in the meantime determines the new object.
    world.remote.file("it.yaml", service(false, ENABLED).replace("port: 80", "port: 81"));
    world.try_commit("demo", "another port").await;
    world.until("it still waits", |w| said(w).contains("example.org/wait")).await;
    world.edit(SERVICES.0, SERVICES.1, "api", json!({"metadata": {"finalizers": null}}));
    world
        .until("it is created", |w| {
            w.get(SERVICES.0, SERVICES.1, "api").is_some_and(|s| s["spec"]["clusterIP"] == "None")
        })
        .await;
    world.ready("demo").await;
    assert_eq!(world.get(SERVICES.0, SERVICES.1, "api").unwrap()["spec"]["ports"][0]["port"], 81);
    assert_eq!((replacements(&world), events(&world, "DeletionStuck").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_is_replaced_too_unless_a_controller_owns_it() {
    let world = with(&fixed("1", ""), json!({})).await;
    put_in_its_place(&world, 1, &fixed("theirs", "")).await;
    let said = |w: &World| w.condition("demo", "Ready");
    world.until("Ready says what to do", |w| said(w).contains("replace: [ConfigMap]")).await;
    assert!(said(&world).starts_with("False RevertFailed"), "{}", said(&world));
    assert_eq!(world.data("fixed"), "theirs");
    world.change("demo", json!({"replace": ["ConfigMap"]})).await;
    world.until("it is reverted at once", |w| w.data("fixed") == "1").await;
    world.ready("demo").await;
    let status = world.status("demo");
    assert_eq!((replacements(&world), &status["reverted"]), (1, &json!(0)));
    assert_eq!(status["lastReplacements"][0]["allowedBy"], "Spec");
    // Another client is faster again, between the agent's deletion and its creation: after its apply and that apply's
    // dry run.
    put_in_its_place(&world, 3, &fixed("faster", "")).await;
    world.until("ours wins", |w| w.data("fixed") == "1" && replacements(w) == 3).await;
    world.ready("demo").await;
    // An object that a controller owns stays.
    let owner = "ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: map, uid: UID, controller: true}]";
    let owner = owner.replace("UID", &world.uid(MAPS.0, MAPS.1, "map"));
    put_in_its_place(&world, 1, &fixed("owned", &owner)).await;
    world.edit(MAPS.0, MAPS.1, "map", json!({"data": {"key": "changed"}}));
    world.until("another one is reverted", |w| w.data("map") == "1").await;
    assert_eq!((world.data("fixed").as_str(), replacements(&world)), ("owned", 3));
}

/// Kills the agent after this many writes while it replaces a Job. Returns whether it was killed.
async fn killed_after(writes: u64) -> bool {
    let mut world = with(&job("one", ENABLED), json!({})).await;
    world.remote.file("it.yaml", job("two", ENABLED)).commit("two");
    world.gate.shut_after(writes);
    world.request("demo");
    let cut = world.cut_off_or(async |w| w.ready("demo").await).await;
    world.ready("demo").await;
    assert_eq!(command(&world), "two", "killed after write {writes}");
    world.kill().await;
    cut
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_between_any_two_writes_ends_with_the_new_one() {
    after_every_write(killed_after, 6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_was_grown_by_hand_is_answered_with_the_size_to_commit() {
    let claim = |size: &str, label: &str| {
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: disk, labels: {{commit: {label}}}}}\nspec:\n  \
             accessModes: [ReadWriteOnce]\n  storageClassName: mainstay-tests-grows\n  \
             resources: {{requests: {{storage: {size}}}}}\n"
        )
    };
    let mut world = World::new().await;
    // Without such a class, no claim can grow.
    let class = json!({
        "metadata": {"name": "mainstay-tests-grows"}, "provisioner": "example.org/none", "allowVolumeExpansion": true,
    });
    let classes = ("storage.k8s.io/v1", "storageclasses");
    world.create(classes.0, classes.1, "", class);
    world.remote.file("it.yaml", claim("1Gi", "one")).commit("one");
    world.synced(json!({})).await;
    let is_bound = |w: &World| w.get("v1", "persistentvolumeclaims", "disk").unwrap()["status"]["phase"] == "Bound";
    world.until("the claim is bound", is_bound).await;
    let grown = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
    world.edit("v1", "persistentvolumeclaims", "disk", grown);
    world.remote.file("it.yaml", claim("1Gi", "two"));
    world.try_commit("demo", "less than it has").await;
    let advice =
        "it was grown to 3Gi, and a claim cannot shrink: commit the size, `spec.resources.requests.storage: 3Gi`";
    world.until("Ready names the size", |w| w.condition("demo", "Ready").contains(advice)).await;
    let said = world.status("demo").to_string();
    assert!(!said.contains("delete the object") && !said.contains("mainstay.dev/replace"), "{said}");
    world.remote.file("it.yaml", claim("3Gi", "three"));
    world.commit("demo", "the size").await;
    let delete = Action::Delete(DeleteOptions::default());
    world.write_as("t", Call::new(classes.0, classes.1, "", "mainstay-tests-grows", delete));
}
