//! From nothing to a followed repository and back, by the book's commands. Each step is a shell command.
//!
//! `kubectl` and `sshd` are real. The agent is the program itself, with the ServiceAccount that `mainstay install`
//! creates. The cluster is embedded, or that of `MAINSTAY_TEST_KUBECONFIG`.

mod samples;

use std::fs;

use serde_json::json;

use mainstay_testkit::{
    remote::{NAME, Remote},
    shell::Shell,
    ssh_server::{SshServer, fingerprint},
};

/// Namespaces of the agent and of the repository's objects.
const HOME: &str = "mainstay-tests-flux";
const SHOP: &str = "mainstay-tests-shop";
/// Creates a repository with a namespace and its contents.
fn shop() -> Remote {
    let mut remote = Remote::new();
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {SHOP}}}\n");
    let map =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: prices, namespace: {SHOP}}}\ndata: {{tea: '3'}}\n");
    let web = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: {SHOP}}}\nspec:\n  selector: \
         {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    spec: {{containers: \
         [{{name: web, image: 'web:1'}}]}}\n"
    );
    remote.file("apps/namespace.yaml", namespace).file("apps/map.yaml", map).file("apps/web.yaml", web);
    remote.file("README.md", "not applied").commit("one");
    remote
}

/// Returns the install command.
fn install(server: &SshServer) -> String {
    format!(
        "mainstay install --git-url {} --git-user Ada --git-email ada@example.com --git-path=apps --name shop \
         --known-hosts known_hosts --interval 1h --namespace {HOME}",
        server.url(NAME)
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pipe_installs_an_agent_that_follows_a_private_repository_once_its_key_is_added() {
    let shell = Shell::new(HOME, &[SHOP]).await;
    let mut remote = shop();
    let server = SshServer::start(remote.root()).await;
    fs::write(shell.path("known_hosts"), server.known_hosts(&["ed25519", "ecdsa", "rsa"])).unwrap();
    let install = install(&server);

    // The output is deterministic and contains no key.
    let printed = shell.run(&install).await;
    assert_eq!(printed.out, shell.run(&install).await.out);
    assert!(!printed.out.contains("PRIVATE KEY"));
    assert!(printed.err.contains(&format!("mainstay identity -n {HOME}")), "{}", printed.err);
    assert!(printed.err.contains("--git-user, --git-email has no effect"), "{}", printed.err);

    let applied = shell.run(&format!("{install} | kubectl apply -f -")).await;
    assert!(applied.out.lines().all(|line| line.ends_with(" created")), "{}", applied.out);
    // For its key and sources, the agent needs only its own role.
    shell.run("kubectl delete clusterrolebinding mainstay-applies").await;
    let first = shell.agent("first").await;
    let second = shell.agent("second").await;
    let identity = shell.run(&format!("mainstay identity -n {HOME}")).await;
    let public = identity.out.trim().to_owned();
    assert!(public.starts_with("ssh-ed25519 ") && public.ends_with(&format!(" mainstay/{HOME}/shop-git")), "{public}");
    assert_eq!(public.lines().count(), 1);
    fs::write(shell.path("key.pub"), &public).unwrap();
    let print = fingerprint(&shell.path("key.pub"));
    assert!(identity.err.starts_with(&format!("{print} for GitRepository {HOME}/shop\n")), "{}", identity.err);
    let said = shell.run(&format!("mainstay identity shop -n {HOME} --fingerprint")).await.out;
    assert_eq!(said.trim(), print.split(' ').next().unwrap());

    // The key is not authorized at the host yet: the condition names the refused key.
    let refused = format!(
        "kubectl get gitsync shop -n {HOME} -o jsonpath='{{.status.conditions[?(@.type==\"Ready\")].message}}' | grep -F '{print}'"
    );
    shell.until(&refused).await;

    // A reinstallation restores removed objects and keeps the key.
    let again = shell.run(&format!("{install} | kubectl apply -f -")).await.out;
    // kubectl replaces the selector of a PodDisruptionBudget each time.
    let is_same =
        |line: &&str| line.ends_with(" unchanged") || *line == "poddisruptionbudget.policy/mainstay configured";
    let (same, other): (Vec<_>, Vec<_>) = again.lines().partition(is_same);
    assert_eq!(other, ["clusterrolebinding.rbac.authorization.k8s.io/mainstay-applies created"], "{same:?}");
    assert_eq!(shell.run(&format!("mainstay identity -n {HOME}")).await.out.trim(), public);

    server.authorize(&public);
    let synced = shell.run(&format!("mainstay sync -n {HOME}")).await.out;
    assert!(
        synced.starts_with(&format!("GitSync {HOME}/shop: commit "))
            && synced.contains("3 objects, 3 healthy, 0 failed"),
        "{synced}"
    );
    shell.run(&format!("kubectl wait -n {HOME} --for=condition=Ready gitsync/shop --timeout=60s")).await;
    assert_eq!(shell.object(&format!("configmap prices -n {SHOP}")).await["data"]["tea"], "3");

    // Another agent uses the same key, and a restart changes nothing.
    drop(first);
    drop(second);
    let _third = shell.agent("third").await;
    let map =
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: prices, namespace: {SHOP}}}\ndata: {{tea: '4'}}\n");
    remote.file("apps/map.yaml", map).commit("two");
    shell.run(&format!("mainstay sync -n {HOME}")).await;
    assert_eq!(shell.object(&format!("configmap prices -n {SHOP}")).await["data"]["tea"], "4");
    assert_eq!(shell.run(&format!("mainstay identity -n {HOME}")).await.out.trim(), public);

    // The check succeeds.
    let checked = shell.run(&format!("mainstay check -n {HOME}")).await.out;
    assert!(checked.lines().all(|line| line.starts_with("ok ")), "{checked}");
    assert!(
        checked.contains(&format!("GitRepository {HOME}/shop: {} answers: main is at ", server.url(NAME))),
        "{checked}"
    );

    // A new key only on explicit request.
    let asked = shell.try_run(&format!("mainstay identity -n {HOME} --regenerate")).await;
    assert_eq!((asked.code, asked.out.as_str()), (2, ""), "{}", asked.err);
    let other = shell.run(&format!("mainstay identity -n {HOME} --regenerate --yes")).await.out;
    assert!(other.starts_with("ssh-ed25519 ") && other.trim() != public);
    // Answering the prompt later than `--wait` is not an error.
    let slowly = format!("mainstay identity -n {HOME} --regenerate --wait 30s");
    let third = shell.run(&format!("(sleep 31; echo y) | script -qec '{slowly}' /dev/null")).await.out;
    assert!(third.contains("ssh-ed25519 ") && !third.contains(other.trim()), "{third}");

    // The check reports the error and the key.
    let checked = shell.try_run(&format!("mainstay check -n {HOME}")).await;
    assert_eq!(checked.code, 2, "{}", checked.out);
    let line = checked.out.lines().find(|line| line.starts_with("wrong")).unwrap();
    assert!(line.contains("the server does not accept the key SHA256:"), "{line}");
    let one = format!("mainstay check -n {HOME} --git-url {} --secret nothing", server.url(NAME));
    let checked = shell.try_run(&one).await;
    assert_eq!(checked.code, 2);
    assert!(checked.out.starts_with(&format!("wrong  Secret {HOME}/nothing does not exist\n")), "{}", checked.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uninstalling_keeps_applied_objects_and_leaves_no_finalizers() {
    let shell = Shell::new(HOME, &[SHOP]).await;
    let checked = shell.try_run(&format!("mainstay check -n {HOME}")).await;
    assert_eq!(checked.code, 2);
    let hint = "wrong  the cluster does not know the kind GitSync\n       mainstay install --git-url URL | kubectl apply -f -\n";
    assert!(checked.out.contains(hint), "{}", checked.out);
    for is_led in [true, false] {
        let remote = shop();
        let server = SshServer::start(remote.root()).await;
        fs::write(shell.path("known_hosts"), server.known_hosts(&["ed25519"])).unwrap();
        shell.run(&format!("{} | kubectl apply -f -", install(&server))).await;
        let agent = shell.agent("agent").await;
        server.authorize(&shell.run(&format!("mainstay identity -n {HOME}")).await.out);
        shell.run(&format!("mainstay sync -n {HOME}")).await;
        // Changes of the GitSync's objects are refused.
        shell
            .run(&format!("kubectl patch gitsync shop -n {HOME} --type=merge -p '{{\"spec\":{{\"prevent\":true}}}}'"))
            .await;
        shell.run(&format!("kubectl wait gitsync shop -n {HOME} --for=condition=Prevented --timeout=60s")).await;
        // The deletion of the GitSync would prune its objects, so the GitSync has a finalizer.
        shell.run(&format!("kubectl annotate gitsync shop -n {HOME} mainstay.dev/on-delete=prune")).await;
        let finalizer = format!("kubectl get gitsync shop -n {HOME} -o yaml | grep mainstay.dev/git-sync");
        shell.until(&finalizer).await;
        let agent = if is_led {
            Some(agent)
        } else {
            drop(agent);
            None
        };
        // The agents of an installation with shards create such Leases.
        shell.run(&format!("kubectl get lease mainstay -n {HOME} -o yaml | sed 's/name: mainstay$/name: mainstay-shard-1/' | kubectl create -f -")).await;
        let what = format!("deployment web -n {SHOP}");
        let uid = shell.object(&what).await["metadata"]["uid"].clone();

        let refused = shell.try_run(&format!("mainstay uninstall -n {HOME}")).await;
        assert_eq!(refused.code, 2);
        assert!(
            refused.out.contains(&format!("GitSync {HOME}/shop will be deleted, its objects stay\n")),
            "{}",
            refused.out
        );
        let planned = shell.run(&format!("mainstay uninstall -n {HOME} --dry-run")).await.out;
        assert_eq!(planned, refused.out);
        shell.run(&format!("kubectl get gitsync shop -n {HOME}")).await;
        let done = shell.run(&format!("mainstay uninstall -n {HOME} --yes")).await;
        drop(agent);

        let live = shell.object(&what).await;
        assert_eq!(live["metadata"]["uid"], uid, "{}", done.out);
        assert!(live["metadata"]["deletionTimestamp"].is_null());
        if is_led {
            assert!(
                live["metadata"]["labels"]["mainstay.dev/sync"].is_null(),
                "{live}\n{}\n{}",
                done.out,
                fs::read_to_string(shell.path("agent.log")).unwrap()
            );
        }
        assert_eq!(shell.object(&format!("configmap prices -n {SHOP}")).await["data"]["tea"], "3");
        let gone = [
            format!("kubectl get namespace {HOME}"),
            "kubectl get crd gitsyncs.mainstay.dev".to_owned(),
            "kubectl get crd gitrepositories.serverless.kyma-project.io".to_owned(),
            "kubectl get crd functions.serverless.kyma-project.io".to_owned(),
            "kubectl get clusterrole mainstay-agent".to_owned(),
            "kubectl get clusterrolebinding mainstay-applies".to_owned(),
            format!("kubectl get validatingadmissionpolicybinding mainstay-{HOME}.shop"),
            format!("kubectl get validatingadmissionpolicy mainstay-{HOME}.shop"),
        ];
        for get in gone {
            shell.until(&format!("! {get} 2> error && grep -q NotFound error")).await;
        }
        shell.run(&format!("kubectl delete namespace {SHOP}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uninstalling_keeps_functions_with_their_definition_and_a_namespace_that_others_use() {
    let shell = Shell::new(HOME, &[SHOP]).await;
    let install = "mainstay install --git-url https://git.example.com/shop.git --v1alpha2";
    shell.run(&format!("{install} --namespace {HOME} | kubectl apply -f -")).await;
    let strategy = "kubectl get crd functions.serverless.kyma-project.io -o \
                    jsonpath='{.spec.conversion.strategy} {.spec.versions[*].served}'";
    assert_eq!(shell.run(strategy).await.out, "Webhook true true");
    let function = "apiVersion: serverless.kyma-project.io/v1alpha1\nkind: Function\nmetadata: {name: hello, namespace: default}\n\
                    spec: {runtime: nodejs22, source: 'module.exports = {}'}\n";
    fs::write(shell.path("function.yaml"), function).unwrap();
    shell.until("kubectl apply -f function.yaml").await;
    // A common label does not prove ownership.
    shell.run(&format!("kubectl create configmap theirs -n {HOME}")).await;
    shell.run(&format!("kubectl label configmap theirs -n {HOME} app.kubernetes.io/name=mainstay")).await;
    let elsewhere = shell.try_run("mainstay uninstall -n default --yes").await;
    let expected = format!("nothing was changed: Mainstay is not installed in the namespace default, but in {HOME}");
    assert!(elsewhere.code == 2 && elsewhere.err.contains(&expected), "{}", elsewhere.err);
    let planned = shell.run(&format!("mainstay uninstall -n {HOME} --dry-run")).await.out;
    let stays = "the registry serverless-docker-registry if there is one, stay: Functions exist (1)";
    assert!(planned.contains(stays) && !planned.contains("its registry"), "{planned}");
    let done = shell.run(&format!("mainstay uninstall -n {HOME} --yes")).await.out;
    let held = format!("Namespace {HOME} stays: it holds ConfigMap theirs, Deployment serverless-docker-registry, ");
    assert!(done.contains(&held), "{done}");
    assert!(done.contains(stays), "{done}");
    assert!(
        done.contains("functions.serverless.kyma-project.io stays: objects of it exist (1, such as default/hello)"),
        "{done}"
    );
    // After the uninstall no webhook converts the version that kubectl prefers.
    assert!(done.contains("functions.serverless.kyma-project.io is now served in v1alpha1 only"), "{done}");
    assert_eq!(shell.run(strategy).await.out, "None true false");
    shell.run("kubectl get function hello -n default --cache-dir fresh").await;
    shell.run("kubectl get functions.v1alpha1.serverless.kyma-project.io hello -n default").await;
    shell.run(&format!("kubectl get configmap theirs -n {HOME}")).await;
    let again = shell.run(&format!("mainstay uninstall -n {HOME} --yes")).await.out;
    assert!(!again.contains(" deleted\n"), "{again}");
    shell.run(&format!("kubectl delete -f function.yaml && kubectl delete namespace {HOME}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_somebody_stored_is_never_replaced_and_opens_nothing_for_other_namespaces() {
    let shell = Shell::new(HOME, &[SHOP]).await;
    let remote = shop();
    let server = SshServer::start(remote.root()).await;
    fs::write(shell.path("known_hosts"), server.known_hosts(&["ed25519"])).unwrap();
    shell.run(&format!("{} | kubectl apply -f -", install(&server))).await;
    shell.run("ssh-keygen -q -t ed25519 -N '' -C mine -f mine").await;
    let key = fs::read_to_string(shell.path("mine")).unwrap();
    fs::write(shell.path("patch.json"), json!({"stringData": {"identity": key}}).to_string()).unwrap();
    shell.run(&format!("kubectl patch secret shop-git -n {HOME} --patch-file patch.json")).await;
    let _agent = shell.agent("only").await;
    let mine = fs::read_to_string(shell.path("mine.pub")).unwrap();
    assert_eq!(shell.run(&format!("mainstay identity -n {HOME}")).await.out, mine);
    let fields = shell.object(&format!("secret shop-git -n {HOME}")).await["data"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect::<Vec<_>>();
    assert_eq!(fields, ["identity"]);

    // A tenant's GitRepository cannot use the Secret of another namespace.
    server.authorize(&mine);
    let tenant = format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {SHOP}}}\n---\napiVersion: serverless.kyma-project.io/v1alpha1\n\
         kind: GitRepository\nmetadata: {{name: stolen, namespace: {SHOP}}}\nspec: {{url: '{}', auth: {{type: key, secretName: \
         shop-git}}}}\n---\napiVersion: mainstay.dev/v1alpha1\nkind: GitSync\nmetadata: {{name: stolen, namespace: {SHOP}}}\nspec: \
         {{gitRepository: stolen}}\n",
        server.url(NAME)
    );
    fs::write(shell.path("tenant.yaml"), tenant).unwrap();
    // The agent applies the namespace from the repository at the same time.
    shell.run("kubectl apply --server-side -f tenant.yaml").await;
    shell
        .until(&format!(
            "kubectl get gitsync stolen -n {SHOP} -o jsonpath='{{.status.conditions[?(@.type==\"Ready\")].message}}' | grep \
             'Secret shop-git with the credentials does not exist in this namespace'"
        ))
        .await;
}
