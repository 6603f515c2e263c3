//! Registry and package Secrets of the agent's namespace are copied to all others, kept up to date, and removed again.
//! Objects of other owners stay unchanged.

use std::sync::Arc;

use devcluster::{Action, Call, verbs::delete::DeleteOptions, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{DEPLOYMENTS, inline},
    world::{NAMESPACE, World},
};

const NAME: &str = "serverless-registry-config";
const DEFAULT: &str = "serverless-registry-config-default";
const A: &str = "mainstay-tests-a";
const B: &str = "mainstay-tests-b";
const PACKAGES: &str = "serverless-package-registry-config";

/// Helpers of these tests.
trait PropagationWorld {
    /// Returns a world with two more namespaces. Only the tests' namespaces get copies.
    async fn with_namespaces() -> Self;
    fn namespace(&self, name: &str, labels: Value);
    fn secret_in(&self, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// Returns `registryAddress` of a Secret in base64; `absent` without the Secret.
    fn address_in(&self, namespace: &str, name: &str) -> String;
    /// Creates a Secret with these labels.
    fn secret_with(&self, namespace: &str, name: &str, labels: Value, data: Value);
    /// Creates a cluster-wide registry Secret.
    fn base(&self, name: &str, address: &str);
    fn edit_in(&self, namespace: &str, name: &str, patch: Value);
    fn delete_in(&self, namespace: &str, name: &str);
    async fn until_addresses(&self, name: &str, expected: [&str; 2]);
    /// Returns the notes of Warnings about a Secret in the agent's namespace.
    fn warned(&self, name: &str) -> Vec<String>;
}

impl PropagationWorld for World {
    async fn with_namespaces() -> Self {
        let mut world = Self::with_functions().await;
        world.functions.excluded_namespaces.push("default".to_owned());
        for name in [A, B] {
            world.namespace(name, json!({}));
        }
        world
    }

    fn namespace(&self, name: &str, labels: Value) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.create("v1", "namespaces", "", namespace);
    }

    fn secret_in(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.server.object("v1", "secrets", namespace, name)
    }

    fn address_in(&self, namespace: &str, name: &str) -> String {
        let secret = self.secret_in(namespace, name);
        secret.map_or("absent".to_owned(), |s| s["data"]["registryAddress"].as_str().unwrap_or_default().to_owned())
    }

    fn secret_with(&self, namespace: &str, name: &str, labels: Value, data: Value) {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
        self.create("v1", "secrets", namespace, secret);
    }

    fn base(&self, name: &str, address: &str) {
        let labels = json!({
            "serverless.kyma-project.io/config": "credentials", "serverless.kyma-project.io/remote-registry": "config",
            "argocd.argoproj.io/instance": "platform", "serverless.kyma-project.io/managed-by": "somebody",
        });
        let data = json!({"registryAddress": address, "username": "u", "password": "p"});
        self.secret_with(NAMESPACE, name, labels, data);
    }

    fn edit_in(&self, namespace: &str, name: &str, patch: Value) {
        let call = Call::new("v1", "secrets", namespace, name, Action::Patch(Form::Merge, patch));
        self.write_as("kubectl-edit", call);
    }

    fn delete_in(&self, namespace: &str, name: &str) {
        let call = Call::new("v1", "secrets", namespace, name, Action::Delete(DeleteOptions::default()));
        self.write_as("kubectl", call);
    }

    async fn until_addresses(&self, name: &str, expected: [&str; 2]) {
        let is = |w: &Self| [A, B].iter().zip(expected).all(|(at, expected)| w.address_in(at, name) == expected);
        let shown = || format!("{:?}", [A, B].map(|at| self.secret_in(at, name)));
        self.until_or(&format!("{name} to be {expected:?}"), is, shown).await;
    }

    fn warned(&self, name: &str) -> Vec<String> {
        let events = self.server.objects("v1", "events", Some(NAMESPACE));
        let about = |e: &&Arc<Value>| e["involvedObject"]["name"] == name && e["reason"] == "NotPropagated";
        events.iter().filter(about).map(|e| e["message"].as_str().unwrap().to_owned()).collect()
    }
}

/// Returns the number of requests for Secrets, without lists and watches.
fn asked(world: &World) -> u64 {
    let of_secrets = |what: &str| what.ends_with(" secrets") && !what.starts_with("list");
    world.requests().iter().filter(|(what, _)| of_secrets(what)).map(|(_, count)| count).sum()
}

/// `x` in base64.
const X: &str = "eA==";
/// `y` in base64.
const Y: &str = "eQ==";
/// `mine` in base64.
const MINE: &str = "bWluZQ==";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_reaches_all_namespaces_follows_its_base_and_goes_with_it() {
    let mut world = World::with_namespaces().await;
    world.base(NAME, "x");
    world.secret_with(NAMESPACE, "private", json!({}), json!({"registryAddress": "x"}));
    world.start();
    world.until_addresses(NAME, [X, X]).await;
    let copy = world.secret_in(A, NAME).unwrap();
    let labels = copy["metadata"]["labels"].as_object().unwrap();
    assert_eq!(
        labels.keys().collect::<Vec<_>>(),
        [
            "mainstay.dev/propagated-from",
            "serverless.kyma-project.io/config",
            "serverless.kyma-project.io/remote-registry"
        ]
    );
    assert_eq!(copy["data"]["username"], "dQ==");
    assert!(world.secret_in(A, "private").is_none(), "a Secret that nobody has labelled");
    assert!(world.secret_in("kube-system", NAME).is_none());
    // A namespace that is created later, and one that opts out.
    let (late, never) = ("mainstay-tests-late", "mainstay-tests-never");
    world.namespace(never, json!({"mainstay.dev/propagate": "disabled"}));
    world.namespace(late, json!({}));
    world.until("the new namespace has it", |w| w.address_in(late, NAME) == X).await;
    assert!(world.secret_in(never, NAME).is_none());
    // Manual edits and deletions are reverted.
    world.edit_in(A, NAME, json!({"data": {"registryAddress": MINE}}));
    world.until_addresses(NAME, [X, X]).await;
    world.delete_in(B, NAME);
    world.until_addresses(NAME, [X, X]).await;
    // A key that the base loses is removed from the copies.
    world.edit_in(NAMESPACE, NAME, json!({"data": {"registryAddress": Y, "username": null}}));
    world.until_addresses(NAME, [Y, Y]).await;
    world.until("a key is gone", |w| w.secret_in(A, NAME).is_some_and(|s| s["data"].get("username").is_none())).await;
    // Unrelated changes cause no requests.
    world.quiet().await;
    let before = world.requests();
    let label = json!({"metadata": {"labels": {"team": "x"}}});
    world.try_as("kubectl", Call::new("v1", "namespaces", "", A, Action::Patch(Form::Merge, label))).unwrap();
    world.edit_in(A, NAME, json!({"metadata": {"annotations": {"note": "mine"}}}));
    world.quiet().await;
    assert_eq!(world.requests(), before);
    // A namespace that opts out later loses its copy.
    let out = json!({"metadata": {"labels": {"mainstay.dev/propagate": "disabled"}}});
    world.try_as("kubectl", Call::new("v1", "namespaces", "", A, Action::Patch(Form::Merge, out))).unwrap();
    world.until_addresses(NAME, ["absent", Y]).await;
    // A Secret without its label is not a base any more.
    world.edit_in(NAMESPACE, NAME, json!({"metadata": {"labels": {"serverless.kyma-project.io/config": null}}}));
    world.until_addresses(NAME, ["absent", "absent"]).await;
    assert_eq!(world.address_in(NAMESPACE, NAME), Y);
    assert_eq!(world.warned(NAME), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_a_namespace_itself_are_never_written_to_and_never_deleted() {
    let mut world = World::with_namespaces().await;
    let c = "mainstay-tests-c";
    world.namespace(c, json!({}));
    let mine = json!({"registryAddress": "mine"});
    world.secret_with(A, NAME, json!({}), mine.clone());
    // The Secret has all labels of a copy and of a base.
    let forged = json!({
        "mainstay.dev/propagated-from": NAMESPACE, "serverless.kyma-project.io/config": "credentials",
        "serverless.kyma-project.io/remote-registry": "config",
    });
    world.secret_with(B, NAME, forged.clone(), mine.clone());
    world.secret_with(B, "forged", forged.clone(), mine.clone());
    let before = [(A, NAME), (B, NAME), (B, "forged")].map(|(at, name)| world.secret_in(at, name).unwrap());
    world.base(NAME, "x");
    world.start();
    world.until("another namespace has it", |w| w.address_in(c, NAME) == X).await;
    assert!(world.secret_in(A, "forged").is_none() && world.secret_in(c, "forged").is_none());
    // A user keeps a copy unchanged.
    let keep = json!({"metadata": {"labels": {"serverless.kyma-project.io/managed-by": "user"}}});
    world.edit_in(c, NAME, keep);
    world.edit_in(c, NAME, json!({"data": {"registryAddress": MINE}}));
    world.edit_in(NAMESPACE, NAME, json!({"data": {"registryAddress": Y}}));
    let other = "mainstay-tests-d";
    world.namespace(other, json!({}));
    world.until("the change is seen", |w| w.address_in(other, NAME) == Y).await;
    assert_eq!(world.address_in(c, NAME), MINE);
    world.delete("v1", "secrets", NAME);
    world.until("the copies are gone", |w| w.secret_in(other, NAME).is_none()).await;
    world.quiet().await;
    assert_eq!(world.address_in(c, NAME), MINE);
    let after = [(A, NAME), (B, NAME), (B, "forged")].map(|(at, name)| world.secret_in(at, name).unwrap());
    assert_eq!(after, before);
    // A namespace whose own Secret is deleted gets a copy.
    world.base(NAME, "x");
    world.until("copied anew", |w| w.address_in(other, NAME) == X).await;
    world.delete_in(A, NAME);
    world.until("copied where nothing is any more", |w| w.address_in(A, NAME) == X).await;
    assert_eq!(world.secret_in(B, NAME).unwrap(), before[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_away_holds_nothing_up_and_finds_what_has_to_go() {
    let mut world = World::with_namespaces().await;
    world.base(NAME, "x");
    world.base(PACKAGES, "y");
    let finalizer =
        json!({"metadata": {"finalizers": ["serverless.kyma-project.io/finalizer-registry-config", "a/b"]}});
    world.edit_in(NAMESPACE, PACKAGES, finalizer);
    world.start();
    world.until_addresses(NAME, [X, X]).await;
    world.until_addresses(PACKAGES, [Y, Y]).await;
    let finalizers = |w: &World| w.secret_in(NAMESPACE, PACKAGES).unwrap()["metadata"]["finalizers"].clone();
    world.until("Kyma's finalizer is gone", |w| finalizers(w) == json!(["a/b"])).await;
    assert_eq!(world.secret_in(NAMESPACE, NAME).unwrap()["metadata"]["finalizers"], Value::Null);
    world.kill().await;
    world.delete("v1", "secrets", NAME);
    assert!(world.secret_in(NAMESPACE, NAME).is_none(), "nothing waits for the agent");
    // Another base is replaced with another type in the meantime.
    world.edit_in(NAMESPACE, PACKAGES, json!({"metadata": {"finalizers": null}}));
    world.delete("v1", "secrets", PACKAGES);
    let metadata = json!({
        "name": PACKAGES, "namespace": NAMESPACE, "labels": {"serverless.kyma-project.io/config": "credentials"},
    });
    let of_type = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "example.org/packages",
        "stringData": {"registryAddress": "x"},
    });
    world.create("v1", "secrets", NAMESPACE, of_type);
    world.start();
    world.until_addresses(NAME, ["absent", "absent"]).await;
    world.until_addresses(PACKAGES, [X, X]).await;
    assert_eq!(world.secret_in(A, PACKAGES).unwrap()["type"], "example.org/packages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_refuses_holds_up_no_other_and_is_reported() {
    let mut world = World::with_namespaces().await;
    world.base(NAME, "x");
    let refuse = |verb: &str, times| devcluster::fault_injection::Fault {
        verb: verb.into(),
        resource: "secrets".into(),
        namespace: A.into(),
        code: 403,
        times,
        ..Default::default()
    };
    world.levers().fail_next(refuse("create", 2));
    world.start();
    world.until_addresses(NAME, ["absent", X]).await;
    world
        .until("it is told", |w| w.warned(NAME).iter().any(|note| note.contains("1 namespaces; mainstay-tests-a: ")))
        .await;
    world.until_addresses(NAME, [X, X]).await;
    // A refused change is retried.
    world.levers().fail_next(refuse("patch", 1));
    world.edit_in(NAMESPACE, NAME, json!({"data": {"registryAddress": Y, "username": null}}));
    world.until_addresses(NAME, [Y, Y]).await;
    world.until("a key is gone", |w| w.secret_in(A, NAME).is_some_and(|s| s["data"].get("username").is_none())).await;
    world.delete("v1", "secrets", NAME);
    world.until_addresses(NAME, ["absent", "absent"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_keys_are_not_copied_whatever_their_labels_say() {
    let mut world = World::with_namespaces().await;
    let labels = json!({"serverless.kyma-project.io/config": "credentials", "mainstay.dev/generate": "ssh-key"});
    world.secret_with(NAMESPACE, "shop-git", labels, json!({"key": "k"}));
    world.base(NAME, "x");
    world.start();
    world.until_addresses(NAME, [X, X]).await;
    world.until("it is told", |w| w.warned("shop-git").iter().any(|note| note.contains("for a Git repository"))).await;
    assert!(world.secret_in(A, "shop-git").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_accounts_are_copied_with_what_they_pull_with() {
    let mut world = World::with_namespaces().await;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {
            "name": "serverless-function", "namespace": NAMESPACE,
            "labels": {"serverless.kyma-project.io/config": "service-account"},
            "annotations": {"eks.amazonaws.com/role-arn": "arn:x"},
        },
        "automountServiceAccountToken": false, "imagePullSecrets": [{"name": NAME}, {"name": DEFAULT}],
        "secrets": [{"name": "token"}],
    });
    world.create("v1", "serviceaccounts", NAMESPACE, account);
    world.start();
    let copy = |w: &World| w.server.object("v1", "serviceaccounts", A, "serverless-function");
    world.until("it is copied", |w| copy(w).is_some()).await;
    let copied = copy(&world).unwrap();
    assert_eq!(copied["imagePullSecrets"], json!([{"name": NAME}, {"name": DEFAULT}]));
    assert_eq!((&copied["automountServiceAccountToken"], &copied["secrets"]), (&json!(false), &Value::Null));
    let annotations = copied["metadata"]["annotations"].as_object().unwrap();
    assert!(annotations.keys().all(|key| key.starts_with("mainstay.dev/")), "{annotations:?}");
    world.delete("v1", "serviceaccounts", "serverless-function");
    world.until("it is gone", |w| copy(w).is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_code_of_a_function_may_not_read_what_is_for_all_namespaces() {
    let mut world = World::with_namespaces().await;
    world.base("shared", "x");
    world.start();
    world.until_addresses("shared", [X, X]).await;
    let mut spec = inline("1");
    spec["env"] = json!([{"name": "LOGIN", "valueFrom": {"secretKeyRef": {"name": "shared", "key": "password"}}}]);
    world.function("here", spec.clone());
    world.function_in(A, "there", spec);
    let refused = |w: &World, namespace: &str, name: &str| {
        let function = w.server.object("serverless.kyma-project.io/v1alpha1", "functions", namespace, name);
        let said = function.map(|f| f["status"]["conditions"].to_string()).unwrap_or_default();
        said.contains("reads Secret \\\"shared\\\", which holds the credentials for all namespaces")
    };
    let both = |w: &World| refused(w, NAMESPACE, "here") && refused(w, A, "there");
    world.until_function("both are refused", both).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_of_any_namespace_moves_with_the_login_of_the_cluster_and_back() {
    let mut world = World::with_namespaces().await;
    world.delete("v1", "secrets", DEFAULT);
    world.base(DEFAULT, "first.example.org");
    world.start();
    world.function_in(A, "hello", inline("1"));
    let image = |w: &World| {
        let all = w.server.objects(DEPLOYMENTS.0, DEPLOYMENTS.1, Some(A));
        let first = all.first().map(|d| d["spec"]["template"]["spec"]["containers"][0]["image"].clone());
        first.and_then(|image| image.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let at = async |world: &World, registry: &str| {
        let shown = || world.server.objects("serverless.kyma-project.io/v1alpha1", "functions", None);
        let what = format!("the image to be in {registry}");
        world
            .until_or(
                &what,
                |w| image(w).starts_with(&format!("{registry}/mainstay-tests-a_hello")),
                || format!("{:?}", shown()),
            )
            .await;
    };
    at(&world, "first.example.org").await;
    world.base(NAME, "second.example.org");
    at(&world, "second.example.org").await;
    // The namespace's own Secret takes precedence.
    world.delete("v1", "secrets", NAME);
    at(&world, "first.example.org").await;
    world.secret_with(A, NAME, json!({}), json!({"registryAddress": "own.example.org"}));
    at(&world, "own.example.org").await;
    world.base(NAME, "second.example.org");
    world.until("others have it", |w| w.secret_in(B, NAME).is_some()).await;
    world.quiet().await;
    at(&world, "own.example.org").await;
    world.delete_in(A, NAME);
    at(&world, "second.example.org").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_whose_admission_hangs_delays_no_other() {
    let mut world = World::with_namespaces().await;
    world.base(NAME, "x");
    world.start();
    world.until_addresses(NAME, [X, X]).await;
    let hang = devcluster::fault_injection::Fault {
        verb: "create".into(),
        resource: "secrets".into(),
        namespace: A.into(),
        delay_millis: 60_000,
        code: 500,
        ..Default::default()
    };
    world.levers().fail_next(hang);
    world.base(PACKAGES, "x");
    let all = |w: &World, address: &str| w.address_in(B, PACKAGES) == address;
    world.until("the other has it", |w| all(w, X)).await;
    // Pending writes do not delay later ones.
    world.edit_in(NAMESPACE, PACKAGES, json!({"data": {"registryAddress": Y}}));
    world.until("the other has the change", |w| all(w, Y)).await;
    world.edit_in(A, NAME, json!({"data": {"registryAddress": MINE}}));
    world.until_addresses(NAME, [X, X]).await;
    assert_eq!(world.address_in(A, PACKAGES), "absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_keeps_being_changed_is_reverted_less_and_less_often() {
    let mut world = World::with_namespaces().await;
    world.base(NAME, "x");
    world.start();
    world.until_addresses(NAME, [X, X]).await;
    let before = asked(&world);
    let said = |w: &World| w.warned(NAME).iter().filter(|note| note.contains(&format!("its copy in {A}"))).count();
    let mut edits = 0;
    while said(&world) == 0 && edits < 1000 {
        world.edit_in(A, NAME, json!({"data": {"registryAddress": MINE}}));
        edits += 1;
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let written = asked(&world) - before;
    assert!((5..50).contains(&written), "{written} requests for {edits} edits");
    assert_eq!(said(&world), 1);
    world.until_addresses(NAME, [X, X]).await;
    // The next change of the base is not delayed either.
    world.edit_in(A, NAME, json!({"data": {"registryAddress": MINE}}));
    world.edit_in(NAMESPACE, NAME, json!({"data": {"registryAddress": Y}}));
    world.until_addresses(NAME, [Y, Y]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_copy_costs_no_request_and_a_change_costs_one() {
    let mut world = World::with_namespaces().await;
    for number in 0..50 {
        world.secret_with(
            A,
            &format!("forged-{number}"),
            json!({"mainstay.dev/propagated-from": NAMESPACE}),
            json!({}),
        );
    }
    world.start();
    world.base(PACKAGES, "x");
    world.until_addresses(PACKAGES, [X, X]).await;
    world.quiet().await;
    assert_eq!(asked(&world), 2, "{:?}", world.requests());
    let before = asked(&world);
    // One request for each new copy.
    world.base(NAME, "x");
    world.until_addresses(NAME, [X, X]).await;
    world.quiet().await;
    assert_eq!(asked(&world) - before, 2, "{:?}", world.requests());
    // The first change of each copy also takes over its fields.
    world.edit_in(NAMESPACE, NAME, json!({"data": {"registryAddress": Y}}));
    world.until_addresses(NAME, [Y, Y]).await;
    world.quiet().await;
    let before = asked(&world);
    world.edit_in(NAMESPACE, NAME, json!({"data": {"registryAddress": X}}));
    world.until_addresses(NAME, [X, X]).await;
    world.quiet().await;
    assert_eq!(asked(&world) - before, 2, "{:?}", world.requests());
    // A replaced base keeps its copies in the meantime.
    let uid = world.secret_in(A, NAME).unwrap()["metadata"]["uid"].clone();
    world.delete("v1", "secrets", NAME);
    world.quiet().await;
    world.base(NAME, "y");
    world.until_addresses(NAME, [Y, Y]).await;
    assert_eq!(world.secret_in(A, NAME).unwrap()["metadata"]["uid"], uid);
    // A deletion takes one request, too.
    world.quiet().await;
    let before = asked(&world);
    world.delete("v1", "secrets", NAME);
    world.until_addresses(NAME, ["absent", "absent"]).await;
    world.quiet().await;
    assert_eq!(asked(&world) - before, 2, "{:?}", world.requests());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_follows_a_base_that_changes_right_after_an_agent_has_created_it() {
    let mut world = World::with_namespaces().await;
    world.base(NAME, "x");
    world.start();
    world.until_addresses(NAME, [X, X]).await;
    world.kill().await;
    world.edit_in(NAMESPACE, NAME, json!({"data": {"registryAddress": Y, "username": null}}));
    world.start();
    world.until_addresses(NAME, [Y, Y]).await;
    world.until("a key is gone", |w| w.secret_in(A, NAME).is_some_and(|s| s["data"].get("username").is_none())).await;
    // A user made one copy immutable.
    world.edit_in(A, NAME, json!({"immutable": true}));
    world.edit_in(NAMESPACE, NAME, json!({"data": {"registryAddress": X}}));
    world.until_addresses(NAME, [X, X]).await;
    world.edit_in(NAMESPACE, NAME, json!({"immutable": true}));
    world.quiet().await;
    assert!([A, B].iter().all(|at| world.secret_in(at, NAME).unwrap()["immutable"].is_null()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_glass_that_ends_is_looked_at_and_a_copy_is_no_base() {
    let mut world = World::with_namespaces().await;
    world.base(NAME, "x");
    world.base(PACKAGES, "x");
    let labels =
        json!({"serverless.kyma-project.io/config": "credentials", "mainstay.dev/propagated-from": "old-home"});
    world.secret_with(NAMESPACE, "copied", labels, json!({"registryAddress": "x"}));
    world.start();
    world.until_addresses(NAME, [X, X]).await;
    world.until_addresses(PACKAGES, [X, X]).await;
    world
        .until("it is told", |w| w.warned("copied").iter().any(|note| note.contains("its label marks it as a copy")))
        .await;
    assert!(world.secret_in(A, "copied").is_none());
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(8);
    let pause = json!({"mainstay.dev/reconcile": "disabled", "mainstay.dev/until": end.to_string()});
    for name in [NAME, PACKAGES] {
        let edit = json!({"metadata": {"annotations": pause}, "data": {"registryAddress": MINE}});
        world.edit_in(A, name, edit);
    }
    world.delete("v1", "secrets", PACKAGES);
    world.until_addresses(PACKAGES, [MINE, "absent"]).await;
    assert_eq!(world.address_in(A, NAME), MINE);
    world.until_addresses(NAME, [X, X]).await;
    world.until_addresses(PACKAGES, ["absent", "absent"]).await;
    assert!(jiff::Timestamp::now() >= end);
}
