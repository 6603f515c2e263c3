//! A repository with its own GitSync, its own GitRepository and the installation of its agent, as printed by `mainstay
//! install`. Such a repository works, and no commit stops its own reconciles unless asked to.

use std::time::Instant;

use devcluster::{Action, Call, verbs::patch::Form};
use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_testkit::PATIENCE;
use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::ownership::{delete_sync, label_of, sync_is_gone};
use mainstay_testkit::remote::NAME;
use mainstay_testkit::world::{NAMESPACE, World, config_map};

const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");
const REPOSITORIES: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "gitrepositories");
const DEPLOYMENTS: (&str, &str) = ("apps/v1", "deployments");
/// The file with the installation in the repository.
const INSTALLATION: &str = "mainstay.yaml";

/// The Secret with the login of the installed registry.
const LOGIN: &str = "serverless-registry-config-default";

/// Returns the documents of a YAML stream.
fn documents(text: &str) -> Vec<Value> {
    serde_yaml::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap()).collect()
}

fn stream(documents: &[Value]) -> String {
    documents.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n---\n")
}

/// Returns the output of `mainstay install` for a GitSync `demo` of the repository at this URL.
fn installation(url: &str, more: &[&str]) -> String {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    command.args(["install", "--git-url", url, "--name", "demo", "--namespace", NAMESPACE, "--interval", "1h"]);
    let output = command.args(more).env_clear().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the GitRepository and the GitSync that the agent has to create.
fn followed(installation: &str) -> String {
    let all = documents(installation);
    let bootstrap = all.iter().find(|object| object["metadata"]["name"] == "mainstay-bootstrap").unwrap();
    bootstrap["data"]["objects.yaml"].as_str().unwrap().to_owned()
}

/// A world in which a user has applied the output of `mainstay install`, to follow a repository that contains it, too.
struct Installed {
    world: World,
    git: GitServer,
    printed: String,
}

impl Installed {
    async fn new(more: &[&str]) -> Self {
        let mut world = World::new().await;
        let git = GitServer::start(world.remote.root()).await;
        let printed = installation(&git.url(NAME), more);
        for document in documents(&printed) {
            apply(&world, document);
        }
        world.remote.file(INSTALLATION, &printed).file("own.yaml", followed(&printed));
        world.remote.file("a.yaml", map("a", "1")).commit("one");
        world.start();
        world.ready("demo").await;
        Self { world, git, printed }
    }

    /// Commits the installation without some of its documents.
    async fn leave_out(&mut self, leaves: impl Fn(&Value) -> bool) -> String {
        let mut kept = documents(&self.printed);
        kept.retain(|document| !leaves(document));
        self.world.remote.file(INSTALLATION, stream(&kept));
        self.world.commit("demo", "something of it leaves").await;
        self.world.remote.head()
    }
}

/// Applies a document like a user.
fn apply(world: &World, document: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&document["kind"]).to_lowercase();
    let resource = match &*kind {
        "networkpolicy" => "networkpolicies".to_owned(),
        kind => format!("{kind}s"),
    };
    let (api_version, name) = (text(&document["apiVersion"]), text(&document["metadata"]["name"]));
    let namespace = text(&document["metadata"]["namespace"]);
    let action = Action::Patch(Form::Apply, document);
    world.try_as("kubectl", Call::new(&api_version, &resource, &namespace, &name, action)).unwrap();
}

/// Returns a ConfigMap in the GitSync's own namespace, regardless of its target.
fn map(name: &str, value: &str) -> String {
    config_map(name, value).replace("metadata:", &format!("metadata:\n  namespace: {NAMESPACE}"))
}

fn own(world: &World) -> Value {
    Value::clone(&world.get(SYNCS.0, SYNCS.1, "demo").unwrap())
}

/// Returns the parts of an object that change only on a write. A rollout only changes the status.
fn as_applied(object: &Value) -> (Value, Value) {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let ours = entries.iter().find(|entry| entry["manager"] == "mainstay" && entry["operation"] == "Apply").unwrap();
    (object["metadata"]["generation"].clone(), ours.clone())
}

fn held(world: &World) -> String {
    world.status("demo")["held"].to_string()
}

/// Commits the staged files, and waits until these GitSyncs have applied them.
async fn commit_for(world: &mut World, syncs: &[&str], message: &str) {
    world.remote.commit(message);
    world.look();
    for sync in syncs {
        world.ready(sync).await;
    }
}

/// Waits for the registry login. The agent creates it a second after the request.
async fn login_is_there(world: &World) {
    world.until("there is a login", |w| w.get("v1", "secrets", LOGIN).is_some()).await;
}

/// Returns the agent's requests during two syncs without changes, once there are only reports of these syncs.
async fn asked_for_nothing(world: &World) -> Vec<String> {
    login_is_there(world).await;
    let end = Instant::now() + PATIENCE;
    loop {
        world.gate.record();
        world.ask("demo").await;
        // The record of the second sync has the end of the first one.
        world.ask("demo").await;
        let asked = world.gate.heard().into_iter().map(|heard| heard.asked);
        // Copies of the login go to namespaces.
        let is_other = |asked: &str| {
            let others = ["watch=", "/leases/", LOGIN, "fieldManager=mainstay-propagation"];
            others.iter().any(|other| asked.contains(other))
        };
        let asked: Vec<String> = asked.filter(|asked| !is_other(asked)).collect();
        // Events, statuses and a discovery of earlier changes may still be under way.
        if asked.iter().all(|asked| asked.contains("/gitsyncs/demo/status")) || Instant::now() > end {
            return asked;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_that_finds_itself_its_repository_and_its_agent_in_its_repository_is_at_rest() {
    let Installed { world, .. } = Installed::new(&[]).await;
    let labels = |of: (&str, &str), name: &str| world.get(of.0, of.1, name).unwrap()["metadata"]["labels"].to_string();
    for (of, name) in
        [(SYNCS, "demo"), (REPOSITORIES, "demo"), (DEPLOYMENTS, "mainstay"), (("v1", "services"), "mainstay-admission")]
    {
        assert!(labels(of, name).contains(&format!("{NAMESPACE}.demo")), "{name}: {}", labels(of, name));
    }
    let before = [own(&world), Value::clone(&world.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").unwrap())];
    assert_eq!(before[1]["metadata"]["generation"], 1, "that it is taken over starts no new pods");
    let asked = asked_for_nothing(&world).await;
    assert!(asked.iter().all(|asked| asked.contains("/gitsyncs/demo/status")), "{asked:#?}");
    assert_eq!(own(&world)["metadata"]["generation"], before[0]["metadata"]["generation"]);
    let deployment = world.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").unwrap();
    assert_eq!(as_applied(&deployment), as_applied(&before[1]));
    assert_eq!(world.status("demo")["reverted"].as_i64().unwrap_or_default(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_that_the_agent_fills_stays_its_own_although_the_repository_holds_the_request_for_it() {
    let mut installed = Installed::new(&["--registry", "internal"]).await;
    let secret = |world: &World| Value::clone(&world.get("v1", "secrets", "serverless-docker-registry").unwrap());
    let world = &installed.world;
    world.until("it holds a login", |w| !secret(w)["data"]["password"].is_null()).await;
    let before = secret(world);
    assert!(before["metadata"]["labels"].get("mainstay.dev/sync").is_none(), "{before:#}");
    installed
        .leave_out(|document| {
            document["kind"] == "Secret" && document["metadata"]["name"] == "serverless-docker-registry"
        })
        .await;
    assert_eq!(secret(&installed.world)["data"], before["data"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_the_agent_itself_are_held_until_that_commit_is_allowed() {
    let mut installed = Installed::new(&[]).await;
    let left = |document: &Value| {
        let name = document["metadata"]["name"].as_str().unwrap_or_default();
        matches!(
            (document["kind"].as_str().unwrap_or_default(), name),
            ("Deployment" | "ServiceAccount" | "Namespace", _)
                | ("ClusterRoleBinding", "mainstay-applies")
                | ("Service", "mainstay-admission")
                | ("CustomResourceDefinition", "gitsyncs.mainstay.dev")
        )
    };
    let commit = installed.leave_out(left).await;
    let world = &installed.world;
    let (said, why) = (
        held(world),
        "it is part of the running installation of Mainstay; deleting it may stop the agent; to delete it: kubectl \
         annotate",
    );
    for object in [
        format!("Deployment.apps {NAMESPACE}/mainstay"),
        format!("ServiceAccount {NAMESPACE}/mainstay"),
        "ClusterRoleBinding.rbac.authorization.k8s.io mainstay-applies".to_owned(),
        format!("Service {NAMESPACE}/mainstay-admission"),
    ] {
        assert!(said.contains(&format!("{object}: {why}")), "{object}: {said}");
    }
    assert!(
        said.contains("CustomResourceDefinition.apiextensions.k8s.io gitsyncs.mainstay.dev: deleting it deletes"),
        "{said}"
    );
    assert!(said.contains(&format!("Namespace {NAMESPACE}: deleting a Namespace")) && said.contains(&commit), "{said}");
    assert!(world.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").is_some());

    let mut some = documents(&installed.printed);
    some.retain(|document| document["kind"] != "Deployment");
    installed.world.remote.file(INSTALLATION, stream(&some));
    let world = &mut installed.world;
    let commit = world.try_commit("demo", "only the Deployment leaves").await;
    world.until("only that is held", |w| held(w).contains("Deployment") && !held(w).contains("ServiceAccount")).await;
    assert!(world.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").is_some());
    world.allow_prune("demo", &commit).await;
    world.until("that was allowed", |w| w.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_account_of_the_agents_pod_and_its_rights_are_held_with_any_labels_and_names() {
    let mut world = World::new().await;
    world.in_pods = true;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "agent", "namespace": NAMESPACE,
        },
        "spec": {"serviceAccountName": "syncer", "containers": [{"name": "agent", "image": "mainstay:1"}]},
    });
    let account =
        |name: &str| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}).to_string();
    let bind = |name: &str, account: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
        })
        .to_string()
    };
    world.remote.file("fence.yaml", config_map("fence", "1")).file("keep.yaml", config_map("keep", "1"));
    world.remote.file("agent/account.yaml", account("syncer")).file("agent/other.yaml", account("other"));
    world.remote.file("agent/binding.yaml", bind("mainstay-tests-a", "syncer"));
    world.remote.file("agent/binding-b.yaml", bind("mainstay-tests-b", "other")).commit("one");
    let made =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "syncer", "namespace": NAMESPACE}});
    world.create("v1", "serviceaccounts", NAMESPACE, made);
    world.create("v1", "pods", NAMESPACE, pod);
    world.synced(json!({})).await;
    world.remote.remove("agent");
    world.commit("demo", "they leave").await;
    let said = held(&world);
    assert!(said.contains(&format!("ServiceAccount {NAMESPACE}/syncer: it is part of")), "{said}");
    assert!(said.contains("ClusterRoleBinding.rbac.authorization.k8s.io mainstay-tests-a: it is part of"), "{said}");
    assert_eq!(world.status("demo")["heldObjects"], 2, "{said}");
    assert!(world.get("v1", "serviceaccounts", "other").is_none(), "somebody else's");
    assert!(
        world.server.object("rbac.authorization.k8s.io/v1", "clusterrolebindings", "", "mainstay-tests-b").is_none()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_of_the_agent_is_not_deleted_to_be_created_again() {
    let mut installed = Installed::new(&[]).await;
    let uid = installed.world.uid(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay");
    let mut changed = documents(&installed.printed);
    let deployment = changed.iter_mut().find(|document| document["kind"] == "Deployment").unwrap();
    deployment["metadata"]["annotations"] = json!({"mainstay.dev/replace": "enabled"});
    deployment["spec"]["selector"]["matchLabels"]["part"] = "agent".into();
    deployment["spec"]["template"]["metadata"]["labels"]["part"] = "agent".into();
    let world = &mut installed.world;
    world.remote.file(INSTALLATION, stream(&changed));
    world.try_commit("demo", "another selector").await;
    let failure = world.failure("demo", &format!("Deployment.apps {NAMESPACE}/mainstay"));
    assert!(
        failure.contains("it is part of the running installation of Mainstay, so Mainstay never replaces it"),
        "{failure}"
    );
    assert_eq!(world.uid(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay"), uid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_to_delete_what_its_git_sync_applied_does_not_delete_itself() {
    let Installed { world, git: _git, .. } = Installed::new(&[]).await;
    world.annotate_sync("demo", "mainstay.dev/on-delete", "prune");
    let finalizers = |w: &World| own(w)["metadata"]["finalizers"].to_string();
    world.until("its objects go with it", |w| finalizers(w).contains("mainstay.dev/git-sync")).await;
    assert_eq!(world.data("a"), "1");
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    assert_eq!(world.data("a"), "absent");
    let deployment = world.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").unwrap();
    assert!(deployment["metadata"]["labels"].get("mainstay.dev/sync").is_none(), "it is nobody's");
    assert!(world.get("v1", "serviceaccounts", "mainstay").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_in_the_repository_is_applied_by_the_old_agent_and_the_next_one_has_nothing_to_do() {
    let mut installed = Installed::new(&[]).await;
    let url = installed.git.url(NAME);
    let mut next = documents(&installation(&url, &["--image", "registry.example.com/mainstay:0.2.0"]));
    let definition = next.iter_mut().find(|document| document["metadata"]["name"] == "gitsyncs.mainstay.dev").unwrap();
    // A version of the definition that the old agent does not know.
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    definition.pointer_mut(properties).unwrap()["futureField"] = json!({"type": "string"});
    let mut own_documents = documents(&followed(&installed.printed));
    own_documents.iter_mut().find(|document| document["kind"] == "GitSync").unwrap()["spec"]["futureField"] =
        "x".into();
    let world = &mut installed.world;
    world.remote.file(INSTALLATION, stream(&next)).file("own.yaml", stream(&own_documents));
    world.commit("demo", "the next version").await;
    let deployment = world.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "registry.example.com/mainstay:0.2.0");
    assert_eq!(own(world)["spec"]["futureField"], "x");
    assert_eq!(deployment["metadata"]["generation"], 2);
    let applies =
        |w: &World| -> Vec<_> { w.requests().into_iter().filter(|(what, _)| what.starts_with("apply ")).collect() };
    login_is_there(world).await;
    let before = (applies(world), as_applied(&deployment));
    world.stop().await;
    world.start_as("next", false);
    world.ask("demo").await;
    world.ready("demo").await;
    let deployment = world.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").unwrap();
    assert_eq!((applies(world), as_applied(&deployment)), before, "nothing is applied twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_ends_in_the_middle_of_its_own_upgrade_leaves_the_rest_to_the_next_one() {
    let mut installed = Installed::new(&[]).await;
    let url = installed.git.url(NAME);
    let next = installation(&url, &["--image", "registry.example.com/mainstay:0.2.0"]);
    let world = &mut installed.world;
    world.remote.file(INSTALLATION, &next).file("a.yaml", map("a", "2")).file("b.yaml", map("b", "1"));
    let commit = world.remote.commit("the next version");
    // The inventory, a and b, and the Deployment, whose pods replace this agent before it gets the response.
    world.gate.shut_after(4);
    world.request("demo");
    let was_cut_off = world.cut_off_or(async |w| w.ready_at("demo", &commit).await).await;
    assert!(was_cut_off);
    let image = |w: &World| {
        let deployment = w.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").unwrap();
        deployment["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    assert_eq!(image(world), "registry.example.com/mainstay:0.2.0");
    assert_eq!((world.data("a").as_str(), world.data("b").as_str()), ("2", "1"));
    let deployment = world.get(DEPLOYMENTS.0, DEPLOYMENTS.1, "mainstay").unwrap();
    assert_eq!(deployment["metadata"]["generation"], 2, "its pods are replaced once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_of_a_git_sync_are_held_while_it_reads_with_them() {
    let mut world = World::new().await;
    let url = world.remote.path().display().to_string();
    let repository = |secret: Option<&str>| {
        let mut object = json!({"apiVersion": REPOSITORIES.0, "kind": "GitRepository", "metadata": {"name": "repo"}, "spec": {"url": url}});
        if let Some(secret) = secret {
            object["spec"]["proxySecretRef"] = json!({"name": secret});
        }
        object.to_string()
    };
    let secret = |name: &str| {
        let metadata = json!({"name": name});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"address": "http://127.0.0.1:9"}}).to_string()
    };
    world.remote.file("apps/a.yaml", config_map("a", "1")).file("all/repo.yaml", repository(Some("one")));
    world.remote.file("all/one.yaml", secret("one")).file("all/two.yaml", secret("two")).commit("one");
    world.sync("reader", json!({"baseDir": "/apps"}));
    world.synced(json!({"baseDir": "/all"})).await;
    world.ready("reader").await;
    let exists = |w: &World, name: &str| w.get("v1", "secrets", name).is_some();

    world.remote.remove("all/one.yaml").remove("all/two.yaml");
    commit_for(&mut world, &["demo", "reader"], "credentials leave").await;
    let said = held(&world);
    assert!(
        said.contains(&format!(
            "Secret {NAMESPACE}/one: GitSync {NAMESPACE}/demo uses it to read its repository; to delete it:"
        )),
        "{said}"
    );
    assert!(exists(&world, "one") && !exists(&world, "two"), "the other one was of no use");

    world.remote.file("all/repo.yaml", repository(None));
    commit_for(&mut world, &["demo", "reader"], "it is read without them").await;
    world.until("nobody reads with it any more", |w| !exists(w, "one")).await;
    world.until("nothing is held", |w| w.status("demo")["held"].is_null()).await;

    world.remote.remove("all/repo.yaml").file("all/b.yaml", config_map("b", "1"));
    commit_for(&mut world, &["demo", "reader"], "the repository leaves").await;
    let said = held(&world);
    assert!(
        said.contains(&format!(
            "GitRepository.serverless.kyma-project.io {NAMESPACE}/repo: GitSync {NAMESPACE}/demo uses it to"
        )),
        "{said}"
    );
    world.remote.file("apps/a.yaml", config_map("a", "2"));
    commit_for(&mut world, &["demo", "reader"], "work goes on").await;
    assert_eq!(world.data("a"), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_leaves_the_repository_of_another_one_together_with_what_it_reads_with() {
    let mut world = World::new().await;
    let url = world.remote.path().display().to_string();
    let repository = json!({"apiVersion": REPOSITORIES.0, "kind": "GitRepository", "metadata": {"name": "theirs"}, "spec": {"url": url}});
    let child = json!({
        "apiVersion": SYNCS.0, "kind": "GitSync", "metadata": {"name": "child"},
        "spec": {"gitRepository": "theirs", "interval": "1h", "baseDir": "/child"},
    });
    world.remote.file("root/child.yaml", stream(&[repository, child])).file("root/a.yaml", config_map("a", "1"));
    world.remote.file("child/b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({"baseDir": "/root"})).await;
    world.ready("child").await;
    world.remote.remove("root/child.yaml");
    world.remote.commit("the child leaves");
    world.look();
    sync_is_gone(&world, "child").await;
    world.until("its repository goes with it", |w| w.get(REPOSITORIES.0, REPOSITORIES.1, "theirs").is_none()).await;
    assert_eq!(world.data("b"), "1", "what it applied stays");
}

/// Returns a document of a GitSync of the GitRepository `repo`.
fn sync_document(name: &str, base_dir: &str, more: &Value) -> String {
    let mut spec = json!({"gitRepository": "repo", "interval": "1h", "baseDir": base_dir});
    json_patch::merge(&mut spec, more);
    json!({"apiVersion": SYNCS.0, "kind": "GitSync", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// Creates a GitSync `demo` that manages itself and the ConfigMap `a`.
async fn managing_itself(spec: Value) -> World {
    let mut world = World::new().await;
    world.remote.file("own.yaml", sync_document("demo", "/", &spec)).file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(spec).await;
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_that_is_renamed_is_held_until_that_is_allowed_and_then_nothing_is_deleted() {
    let mut world = managing_itself(json!({})).await;
    let uid = world.uid("v1", "configmaps", "a");
    world.remote.file("own.yaml", sync_document("renamed", "/", &json!({})));
    let commit = world.try_commit("demo", "another name").await;
    world.until("the old one is held", |w| held(w).contains("/demo: deleting the GitSync itself ends its work")).await;
    world.until("the new one waits for it", |w| w.condition("renamed", "Ready").contains("OwnershipConflict")).await;
    world.annotate_sync("demo", "mainstay.dev/allow-prune", &commit);
    sync_is_gone(&world, "demo").await;
    world.ready("renamed").await;
    assert_eq!(world.uid("v1", "configmaps", "a"), uid);
    assert_eq!(label_of(&world, "a"), format!("{NAMESPACE}.renamed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_that_moves_to_the_directory_of_another_one_is_handed_over() {
    let mut world = World::new().await;
    world
        .remote
        .file("left/own.yaml", sync_document("left", "/left", &json!({})))
        .file("left/l.yaml", config_map("l", "1"));
    world.remote.file("right/r.yaml", config_map("r", "1")).commit("one");
    world.sync("left", json!({"baseDir": "/left"}));
    world.sync("right", json!({"baseDir": "/right"}));
    world.start();
    world.ready("left").await;
    world.ready("right").await;
    let uid = world.uid(SYNCS.0, SYNCS.1, "left");
    world.remote.remove("left/own.yaml").file("right/left.yaml", sync_document("left", "/left", &json!({})));
    world.remote.commit("moved");
    world.look();
    let label = |w: &World| w.get(SYNCS.0, SYNCS.1, "left").unwrap()["metadata"]["labels"]["mainstay.dev/sync"].clone();
    world.until("the other one keeps it", |w| label(w) == format!("{NAMESPACE}.right")).await;
    world.ready("left").await;
    world.ready("right").await;
    assert_eq!(world.uid(SYNCS.0, SYNCS.1, "left"), uid);
    assert!(world.status("left")["held"].is_null());
    world.delete(SYNCS.0, SYNCS.1, "left");
    world
        .until("it is made anew", |w| {
            w.get(SYNCS.0, SYNCS.1, "left").is_some_and(|sync| sync["metadata"]["uid"] != *uid)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_changes_the_spec_of_its_own_git_sync_works_and_a_bad_one_keeps_what_was_applied() {
    let mut world = managing_itself(json!({})).await;
    world.remote.file("own.yaml", sync_document("demo", "/", &json!({"interval": "2h", "targetNamespace": NAMESPACE})));
    world.commit("demo", "another interval").await;
    assert_eq!(own(&world)["spec"]["interval"], "2h");
    world.remote.file("own.yaml", sync_document("demo", "/nowhere", &json!({}))).file("a.yaml", config_map("a", "2"));
    world.remote.commit("a mistake");
    world.request("demo");
    world.condition_is("demo", "Ready", "False SourceInvalid").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("what was applied stays", |w| w.data("a") == "2").await;
    world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"baseDir": "/"}}));
    world.remote.file("own.yaml", sync_document("demo", "/", &json!({})));
    world.commit("demo", "it is right again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_that_a_commit_suspends_is_resumed_by_hand_and_stays_so() {
    let mut world = managing_itself(json!({})).await;
    world.remote.file("own.yaml", sync_document("demo", "/", &json!({"suspend": true})));
    world.remote.commit("it suspends itself");
    world.request("demo");
    world.condition_is("demo", "Suspended", "True Suspended").await;
    world
        .until("that is told", |w| {
            w.status("demo")["unread"][0]["object"] == *format!("GitSync.mainstay.dev {NAMESPACE}/demo")
        })
        .await;
    // The manual change is kept after a restart, too.
    world.stop().await;
    world.start();
    world.remote.file("a.yaml", config_map("a", "2")).commit("work goes on");
    world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"suspend": false}}));
    world.until("it is resumed", |w| w.data("a") == "2").await;
    world.ask("demo").await;
    assert_eq!(own(&world)["spec"]["suspend"], false);
    world.remote.file("own.yaml", sync_document("demo", "/", &json!({})));
    world.commit("demo", "the repository says so, too").await;
    world.until("it is kept like any other object", |w| w.status("demo")["unread"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspension_by_hand_is_not_reverted() {
    let mut world = managing_itself(json!({"suspend": false, "additions": true})).await;
    world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"suspend": true}}));
    world.condition_is("demo", "Suspended", "True Suspended").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    assert_eq!(own(&world)["spec"]["suspend"], true);
    world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"suspend": false}}));
    world.until("it is resumed", |w| w.data("a") == "1").await;
    // Other changes of the GitSync by users are reverted.
    world.edit(
        SYNCS.0,
        SYNCS.1,
        "demo",
        json!({"spec": {"interval": "3h"}, "metadata": {"annotations": {"mainstay.dev/note": "x"}}}),
    );
    world.until("it is reverted", |w| own(w)["spec"]["interval"] == "1h").await;
    assert_eq!(own(&world)["metadata"]["annotations"]["mainstay.dev/note"], "x");
    world.remote.file("a.yaml", config_map("a", "2"));
    world.commit("demo", "and commits are applied").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_that_is_deleted_by_hand_stays_deleted_and_its_repository_is_created_again() {
    let mut world = World::new().await;
    let url = world.remote.path().display().to_string();
    let repository = json!({"apiVersion": REPOSITORIES.0, "kind": "GitRepository", "metadata": {"name": "repo"}, "spec": {"url": url}});
    world.remote.file("own.yaml", sync_document("demo", "/", &json!({}))).file("repo.yaml", repository.to_string());
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    world.delete(REPOSITORIES.0, REPOSITORIES.1, "repo");
    world.until("the GitRepository is back", |w| w.get(REPOSITORIES.0, REPOSITORIES.1, "repo").is_some()).await;
    world.ready("demo").await;
    delete_sync(&world, "demo");
    world.until("its objects are nobody's", |w| label_of(w, "a").is_null()).await;
    // The watch has shown the deletion, so the agent would have restored the GitSync by now.
    world.sync("other", json!({"baseDir": "/", "suspend": true}));
    world.condition_is("other", "Suspended", "True Suspended").await;
    assert!(world.get(SYNCS.0, SYNCS.1, "demo").is_none());
    assert_eq!(world.data("a"), "1");
}
