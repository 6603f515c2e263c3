//! Adoption of objects that other tools applied: in the end they match the repository completely.

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::kubectl::Kubectl;
use mainstay_testkit::world::{NAMESPACE, World};

/// A user other than the agent.
pub(super) const PERSON: &str = "jane";
/// The kinds of a case.
pub(super) const KINDS: [(&str, &str); 5] = [
    ("v1", "configmaps"),
    ("v1", "services"),
    ("apps/v1", "deployments"),
    ("batch/v1", "cronjobs"),
    ("networking.k8s.io/v1", "networkpolicies"),
];

/// The history of objects before their adoption.
enum Former {
    /// The objects did not exist.
    Absent,
    /// Created by these `kubectl` commands. `SOME` and `ALL` are the files of `some` and `all`.
    Kubectl(&'static [&'static [&'static str]]),
    /// Created from `some` and replaced by `all`, as this field manager.
    Replaced(&'static str),
    /// Applied as this field manager.
    Applied(&'static str),
    /// Created, then all field managers were removed.
    Wiped,
}
use Former::{Absent, Applied, Kubectl as By, Replaced, Wiped};

const FORMERS: [(&str, Former); 21] = [
    ("absent", Absent),
    ("client-side", By(&[&["apply", "-f", "ALL"]])),
    ("server-side", By(&[&["apply", "--server-side", "-f", "ALL"]])),
    ("both-sides", By(&[&["apply", "-f", "ALL"], &["apply", "--server-side", "-f", "ALL"]])),
    ("created", By(&[&["create", "-f", "ALL"]])),
    ("saved", By(&[&["create", "--save-config", "-f", "ALL"]])),
    ("replaced", By(&[&["create", "-f", "SOME"], &["replace", "-f", "ALL"]])),
    ("edited", Replaced("kubectl-edit")),
    ("patched", Replaced("kubectl-patch")),
    ("forced", Applied("kubectl")),
    ("by-function", Applied("mainstay-function")),
    ("flux", Applied("kustomize-controller")),
    ("flux-command", Applied("flux")),
    ("argo-server-side", Applied("argocd-controller")),
    ("argo-client-side", Replaced("argocd-controller")),
    ("argo-application", Replaced("argocd-application-controller")),
    ("helm-4", Applied("helm")),
    ("helm-3", Replaced("helm")),
    ("helm-capital", Replaced("Helm")),
    ("helm-controller", Replaced("helm-controller")),
    ("wiped", Wiped),
];

/// Returns the final content of the repository.
pub(super) fn some(name: &str) -> Vec<Value> {
    let pods = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "web", "image": "nginx:1", "ports": [{"containerPort": 80}]}]},
    });
    let mut job = pods.clone();
    job["spec"]["restartPolicy"] = "Never".into();
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "1"}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
               "spec": {"selector": {"app": name}, "ports": [{"name": "http", "port": 80}]}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
               "spec": {"selector": {"matchLabels": {"app": name}}, "template": pods}}),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
               "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": {"template": job}}}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
               "spec": {"podSelector": {}, "ingress": [{}]}}),
    ]
}

/// Returns the same objects with everything else that users write.
pub(super) fn all(name: &str) -> Vec<Value> {
    let pods = json!({
        "metadata": {"labels": {"old": "1"}, "annotations": {"old": "1"}},
        "spec": {
            "hostNetwork": true, "serviceAccountName": "nope", "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "a", "operator": "Exists"}],
            "initContainers": [{"name": "init", "image": "busybox:1"}],
            "volumes": [{"name": "host", "hostPath": {"path": "/var/lib"}}],
            "securityContext": {"runAsUser": 0},
            "containers": [
                {"name": "web", "image": "nginx:1", "args": ["--old"], "env": [{"name": "OLD", "value": "1"}],
                 "ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 81}], "securityContext": {"privileged": true},
                 "volumeMounts": [{"name": "host", "mountPath": "/host"}]},
                {"name": "sidecar", "image": "busybox:1"},
            ],
        },
    });
    let more = [
        json!({"data": {"old": "1"}}),
        json!({"spec": {"type": "NodePort", "externalTrafficPolicy": "Local",
                        "ports": [{"name": "http", "port": 80}, {"name": "old", "port": 81}]}}),
        json!({"spec": {"minReadySeconds": 7, "template": pods}}),
        json!({"spec": {"jobTemplate": {"metadata": {"labels": {"old": "1"}}, "spec": {"template": pods}}}}),
        json!({"spec": {"egress": [{"to": [{"podSelector": {}}]}]}}),
    ];
    let mut all = some(name);
    for (object, more) in all.iter_mut().zip(more) {
        json_patch::merge(object, &more);
        object["metadata"]["labels"] = json!({"old": "1"});
        object["metadata"]["annotations"] = json!({"old": "1"});
    }
    all
}

pub(super) fn file(objects: &[Value]) -> String {
    let documents: Vec<_> = objects.iter().map(|object| serde_yaml::to_string(object).unwrap()).collect();
    documents.join("---\n")
}

pub(super) fn call(object: &Value, name: &str, action: Action) -> Call {
    let api_version = object["apiVersion"].as_str().unwrap();
    let kinds = ["ConfigMap", "Service", "Deployment", "CronJob", "NetworkPolicy"];
    let at = kinds.iter().position(|kind| object["kind"] == *kind).unwrap();
    Call::new(api_version, KINDS[at].1, NAMESPACE, name, action)
}

/// Creates the objects of a case.
async fn create(world: &World, kubectl: &Kubectl, name: &str, former: &Former) {
    let (some, all) = (some(name), all(name));
    match former {
        Absent => {}
        By(commands) => {
            let files = [kubectl.file("some.yaml", &file(&some)), kubectl.file("all.yaml", &file(&all))];
            for command in *commands {
                let arguments = command.iter().map(|argument| match *argument {
                    "SOME" => files[0].as_str(),
                    "ALL" => files[1].as_str(),
                    other => other,
                });
                kubectl.run(&arguments.collect::<Vec<_>>()).await;
            }
        }
        Replaced(manager) => {
            for (some, all) in some.iter().zip(&all) {
                world.write_as("kubectl-create", call(some, "", Action::Create(some.clone())));
                let (api_version, resource) =
                    (some["apiVersion"].as_str().unwrap(), call(some, "", Action::Get).resource);
                world.server.rewrite(manager, (api_version, &resource), NAMESPACE, name, |live| {
                    for part in ["spec", "data"] {
                        if let Some(value) = all.get(part) {
                            json_patch::merge(&mut live[part], value);
                        }
                    }
                    live["metadata"]["labels"] = all["metadata"]["labels"].clone();
                    live["metadata"]["annotations"] = all["metadata"]["annotations"].clone();
                });
            }
        }
        Applied(manager) => {
            for all in &all {
                world.write_as(manager, call(all, name, Action::Patch(Form::Apply, all.clone())));
            }
        }
        Wiped => {
            for all in &all {
                world.write_as("unknown", call(all, "", Action::Create(all.clone())));
                let wiped = Action::Patch(Form::Merge, json!({"metadata": {"managedFields": [{}]}}));
                world.write_as("unknown", call(all, name, wiped));
            }
        }
    }
}

/// Returns the part of a live object that a manifest can contain.
pub(super) fn content(world: &World, (api_version, resource): (&str, &str), name: &str) -> Value {
    let live = world.get(api_version, resource, name).unwrap_or_else(|| panic!("{resource} {name}"));
    let mut annotations = live["metadata"]["annotations"].clone();
    if let Some(all) = annotations.as_object_mut() {
        all.retain(|name, _| !name.starts_with("deployment.kubernetes.io/"));
    }
    let annotations = Some(annotations).filter(|all| all.as_object().is_some_and(|all| !all.is_empty()));
    let mut content = json!({"labels": live["metadata"]["labels"], "annotations": annotations, "spec": live["spec"],
                             "data": live["data"]});
    if resource == "services" {
        let spec = content["spec"].as_object_mut().unwrap();
        spec.retain(|name, _| !["clusterIP", "clusterIPs"].contains(&name.as_str()));
        for port in spec["ports"].as_array_mut().unwrap() {
            // The node port differs in each Service.
            port.as_object_mut().unwrap().entry("nodePort").and_modify(|port| *port = json!("some"));
        }
    }
    serde_json::from_str(&content.to_string().replace(&format!("\"{name}\""), "\"NAME\"")).unwrap()
}

fn check_all(world: &World, formers: &[(&str, Former)]) {
    for kind in KINDS {
        let fresh = content(world, kind, "absent");
        for (name, _) in formers {
            assert_eq!(content(world, kind, name), fresh, "{} {name}", kind.1);
        }
    }
}

fn commit(world: &mut World, formers: &[(&str, Former)], objects: impl Fn(&str) -> Vec<Value>) {
    for (name, _) in formers {
        world.remote.file(&format!("{name}.yaml"), file(&objects(name)));
    }
    world.remote.commit("objects");
}

async fn world_with(formers: &[(&str, Former)]) -> World {
    let world = World::new().await;
    let kubectl = Kubectl::of_user(&world.server, NAMESPACE, PERSON).await;
    for (name, former) in formers {
        create(&world, &kubectl, name, former).await;
    }
    world
}

/// Returns the ReplicaSets: their names and pod templates.
pub(super) fn replica_sets(world: &World) -> Vec<(String, Value)> {
    let all = world.server.objects("apps/v1", "replicasets", Some(NAMESPACE));
    let mut all = all
        .iter()
        .map(|set| (set["metadata"]["name"].as_str().unwrap().to_owned(), set["spec"]["template"].clone()))
        .filter(|(name, _)| !name.starts_with("absent-"))
        .collect::<Vec<_>>();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

/// Waits until every Deployment has its ReplicaSet.
pub(super) async fn rolled_out(world: &World) {
    let is_seen = |live: &Value| live["status"]["observedGeneration"] == live["metadata"]["generation"];
    let all = |w: &World| w.server.objects("apps/v1", "deployments", Some(NAMESPACE)).iter().all(|live| is_seen(live));
    world.until("the controller has seen every Deployment", all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_a_former_applier_wrote_goes_at_adoption() {
    let mut world = world_with(&FORMERS).await;
    commit(&mut world, &FORMERS, some);
    world.synced(json!({"wait": false})).await;
    check_all(&world, &FORMERS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_that_changes_nothing_restarts_no_pod_and_the_next_commit_removes_everything() {
    let mut world = world_with(&FORMERS).await;
    rolled_out(&world).await;
    let before = replica_sets(&world);
    commit(&mut world, &FORMERS, all);
    world.synced(json!({"wait": false})).await;
    rolled_out(&world).await;
    assert_eq!(replica_sets(&world), before);
    check_all(&world, &FORMERS);
    commit(&mut world, &FORMERS, some);
    world.look();
    world.ready("demo").await;
    check_all(&world, &FORMERS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_leaves_what_controllers_and_people_who_restart_or_pause_wrote() {
    let mut world = World::new().await;
    let mut web = some("web").remove(2);
    web["spec"]["replicas"] = 3.into();
    web["metadata"]["finalizers"] = json!(["example.org/keep"]);
    world.write_as("kubectl-create", call(&web, "", Action::Create(web.clone())));
    let annotations = |at: &str| json!({"annotations": {at: "1"}});
    let edits = [
        (
            "kubectl-rollout",
            json!({"spec": {"template": {"metadata": annotations("kubectl.kubernetes.io/restartedAt")}}}),
        ),
        ("kubectl-annotate", json!({"metadata": annotations("mainstay.dev/prune")})),
        ("some-controller", json!({"metadata": {"labels": {"theirs": "1"}}, "spec": {"minReadySeconds": 7}})),
    ];
    for (manager, edit) in edits {
        world.write_as(manager, call(&web, "web", Action::Patch(Form::Merge, edit)));
    }
    world.remote.file("web.yaml", file(&some("web")[2..3])).commit("one");
    world.synced(json!({"wait": false})).await;
    let live = world.get("apps/v1", "deployments", "web").unwrap();
    let (metadata, spec) = (&live["metadata"], &live["spec"]);
    assert_eq!((&spec["replicas"], &spec["minReadySeconds"]), (&json!(3), &json!(7)));
    assert_eq!(metadata["labels"]["theirs"], "1");
    assert_eq!(metadata["annotations"]["mainstay.dev/prune"], "1");
    assert_eq!(metadata["finalizers"], json!(["example.org/keep"]));
    assert_eq!(
        spec["template"]["metadata"],
        json!({"labels": {"app": "web"},
        "annotations": {"kubectl.kubernetes.io/restartedAt": "1"}})
    );
    // Otherwise the deletion of the namespace would wait for the finalizer.
    world.write_as("t", call(&web, "web", Action::Patch(Form::Merge, json!({"metadata": {"finalizers": null}}))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_container_takes_the_place_of_the_former_one() {
    let mut world = World::new().await;
    let renamed = |name: &str| {
        let mut web = some(name).remove(2);
        web["spec"]["template"]["spec"]["containers"][0]["name"] = "former".into();
        web
    };
    let kubectl = Kubectl::of_user(&world.server, NAMESPACE, PERSON).await;
    let client_side = kubectl.file("client-side.yaml", &file(&[renamed("client-side")]));
    kubectl.run(&["apply", "-f", &client_side]).await;
    let updated = renamed("argo-client-side");
    world.write_as("argocd-controller", call(&updated, "", Action::Create(updated.clone())));
    let appliers = ["kubectl", "kustomize-controller", "argocd-controller", "helm"];
    for manager in appliers {
        let web = renamed(manager);
        world.write_as(manager, call(&web, manager, Action::Patch(Form::Apply, web.clone())));
    }
    let names = [&appliers[..], &["client-side", "argo-client-side"]].concat();
    for name in &names {
        world.remote.file(&format!("{name}.yaml"), file(&some(name)[2..3]));
    }
    world.remote.commit("another name");
    world.synced(json!({"wait": false})).await;
    for name in names {
        let live = world.get("apps/v1", "deployments", name).unwrap();
        let containers = live["spec"]["template"]["spec"]["containers"].as_array().unwrap().iter();
        assert_eq!(containers.map(|one| one["name"].as_str().unwrap()).collect::<Vec<_>>(), ["web"], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_that_leaves_with_its_alias_costs_one_apply() {
    let mut world = World::new().await;
    let kubectl = Kubectl::of_user(&world.server, NAMESPACE, PERSON).await;
    let all = kubectl.file("all.yaml", &file(&all("adopted")));
    kubectl.run(&["apply", "-f", &all]).await;
    let with_aliases = |name: &str| {
        let mut objects = some(name);
        objects[2]["spec"]["template"]["spec"]["serviceAccountName"] = "nope".into();
        objects[3]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["serviceAccount"] = "nope".into();
        objects[4]["spec"]["egress"] = json!([{}]);
        objects
    };
    world.remote.file("ours.yaml", file(&with_aliases("ours"))).file("ended.yaml", file(&with_aliases("ended")));
    world.remote.commit("one");
    world.synced(json!({"wait": false})).await;
    let generations = |world: &World, name: &str| {
        KINDS[2..]
            .iter()
            .map(|kind| world.get(kind.0, kind.1, name).unwrap()["metadata"]["generation"].clone())
            .collect::<Vec<_>>()
    };
    let without_aliases = |name: &str| {
        let mut objects = some(name);
        objects[2]["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:2".into();
        objects[3]["spec"]["schedule"] = "1 0 1 1 *".into();
        objects[4]["spec"]["podSelector"] = json!({"matchLabels": {"app": name}});
        objects
    };
    assert_eq!(generations(&world, "ours"), [1, 1, 1]);
    world.remote.file("ours.yaml", file(&without_aliases("ours")));
    world.remote.file("adopted.yaml", file(&without_aliases("adopted")));
    world.commit("demo", "the accounts and the rules leave").await;
    assert_eq!(generations(&world, "ours"), [2, 2, 2]);
    assert_eq!(generations(&world, "adopted"), [2, 2, 2]);
    world.kill().await;
    world.remote.file("ended.yaml", file(&without_aliases("ended"))).commit("while no agent runs");
    world.start();
    world.until("the next agent applies it", |w| generations(w, "ended") != [1, 1, 1]).await;
    world.ready_at("demo", &world.remote.head()).await;
    assert_eq!(generations(&world, "ended"), [2, 2, 2]);
    for kind in KINDS {
        let fresh = content(&world, kind, "ours");
        assert_eq!(
            (content(&world, kind, "adopted"), content(&world, kind, "ended")),
            (fresh.clone(), fresh),
            "{}",
            kind.1
        );
    }
}
