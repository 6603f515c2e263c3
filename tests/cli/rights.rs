//! `mainstay install` with fewer components, permissions and connections: the objects, and the permissions of the
//! agent's ServiceAccount. The cluster is embedded, or that of `MAINSTAY_TEST_KUBECONFIG`.

use std::fs;

use serde_json::{Value, json};

use mainstay_testkit::{
    remote::{NAME, Remote},
    shell::Shell,
    ssh_server::SshServer,
};

const HOME: &str = "mainstay-tests-rights";
/// Namespaces in which the repository may apply objects, and in which it may not.
const SHOP: &str = "mainstay-tests-rights-shop";
const OTHER: &str = "mainstay-tests-rights-other";

/// Installs with the flags of the first time.
const INSTALL: &str = "sh install.sh | kubectl apply -f -";

/// A ConfigMap manifest.
fn map(namespace: &str, name: &str, tea: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\ndata: {{tea: '{tea}'}}\n"
    )
}

fn service(namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web, namespace: {namespace}}}\nspec: {{ports: [{{port: 80}}]}}\n"
    )
}

/// Installs with these flags, starts an agent with its ServiceAccount's token, and authorizes it to read the
/// repository.
async fn installed(shell: &Shell, server: &SshServer, flags: &str) -> mainstay_testkit::shell::Agent {
    fs::write(shell.path("known_hosts"), server.known_hosts(&["ed25519", "ecdsa", "rsa"])).unwrap();
    let install = format!(
        "mainstay install --git-url {} --name shop --known-hosts known_hosts --interval 1h --namespace {HOME} {flags}",
        server.url(NAME)
    );
    for namespace in [SHOP, OTHER] {
        shell.run(&format!("kubectl create namespace {namespace}")).await;
    }
    fs::write(shell.path("install.sh"), &install).unwrap();
    shell.run(INSTALL).await;
    shell.run("kubectl delete clusterrolebinding mainstay-impersonates --ignore-not-found").await;
    let agent = shell.agent("agent").await;
    server.authorize(shell.run(&format!("mainstay identity -n {HOME}")).await.out.trim());
    agent
}

/// Waits until the GitSync's message contains a text.
async fn until_said(shell: &Shell, sync: &str, text: &str) {
    let path = "{.status.conditions[?(@.type==\"Ready\")].message}";
    shell
        .until(&format!("kubectl get gitsync {sync} -n {HOME} -o jsonpath='{path}' | tee said | grep -F '{text}'"))
        .await;
}

/// Returns the agent's log lines about missing permissions.
fn denials(shell: &Shell) -> Vec<String> {
    let log = fs::read_to_string(shell.path("agent.log")).unwrap();
    let denied =
        |line: &&str| ["forbidden", "may not", "cannot be watched", "cannot be read"].iter().any(|d| line.contains(d));
    // A real API server answers with 429 while it sets up a new definition.
    let is_early = |line: &&str| line.contains("429 TooManyRequests");
    log.lines().filter(denied).filter(|line| !is_early(line)).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_component_sync_has_nothing_of_functions_and_works_with_the_rights_of_its_roles() {
    let shell = Shell::new(HOME, &[SHOP, OTHER]).await;
    let mut remote = Remote::new();
    remote.file("map.yaml", map(SHOP, "prices", "3")).commit("one");
    let server = SshServer::start(remote.root()).await;
    let _agent = installed(&shell, &server, "--components sync").await;
    // The GitSync's records need only the roles; the objects that it applies need more.
    shell.run(&format!("mainstay sync -n {HOME}")).await;
    assert_eq!(shell.object(&format!("configmap prices -n {SHOP}")).await["data"]["tea"], "3");
    let said =
        shell.run("kubectl get crd,clusterrole,clusterrolebinding,mutatingwebhookconfiguration -o name").await.out;
    for word in
        ["functions", "triggers", "subscriptions", "apirules", "mainstay-exposes", "mainstay-delivers", "mutating"]
    {
        assert!(!said.contains(word), "{word}: {said}");
    }
    assert!(said.contains("gitrepositories.serverless.kyma-project.io"), "{said}");
    let all = shell.run(&format!("kubectl get deployments,secrets,services -n {HOME} -o name")).await.out;
    assert!(!all.contains("docker-registry"), "{all}");
    let webhooks = shell.object("validatingwebhookconfiguration mainstay-admission").await;
    assert_eq!(webhooks["webhooks"].as_array().unwrap().len(), 1, "{webhooks}");
    let checked = shell.run(&format!("mainstay check -n {HOME}")).await.out;
    assert!(checked.lines().all(|line| line.starts_with("ok ")) && !checked.contains("Function"), "{checked}");
    assert_eq!(denials(&shell), Vec::<String>::new());
}

/// Reviews the permissions of accounts in the agent's namespace in one kubectl request.
async fn may(shell: &Shell, asked: &[(&str, Value)]) -> Vec<bool> {
    let reviews = asked.iter().map(|(account, attributes)| {
        let groups =
            ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{HOME}"), "system:authenticated".to_owned()];
        json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": format!("system:serviceaccount:{HOME}:{account}"), "groups": groups, "resourceAttributes": attributes},
        })
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": reviews.collect::<Vec<_>>()});
    fs::write(shell.path("reviews.json"), list.to_string()).unwrap();
    let answers = shell.run("kubectl create -f reviews.json -o json").await.out;
    let answers = serde_json::Deserializer::from_str(&answers).into_iter::<Value>();
    let answers: Vec<bool> = answers.map(|review| review.unwrap()["status"]["allowed"] == true).collect();
    assert_eq!(answers.len(), asked.len());
    answers
}

/// Parses `verb group/resource/subresource namespace name`; `-` means empty.
fn attributes(text: &str) -> Value {
    let [verb, group, resource, subresource, namespace, name] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let given = |word: &str| if word == "-" { String::new() } else { word.to_owned() };
    json!({
        "verb": verb, "group": given(group), "resource": resource, "subresource": given(subresource),
        "namespace": given(namespace), "name": given(name),
    })
}

/// Requests that neither account may make, in any namespace.
const DENIED: [&str; 34] = [
    "get - secrets - SHOP any",
    "list - secrets - SHOP -",
    "list - secrets - OTHER -",
    "list - secrets - kube-system -",
    "list - secrets - - -",
    "watch - secrets - - -",
    "create - secrets - kube-system -",
    "impersonate - serviceaccounts - SHOP default",
    "impersonate - serviceaccounts - kube-system any",
    "impersonate - serviceaccounts - HOME default",
    "impersonate - serviceaccounts - HOME mainstay",
    "impersonate - users - - admin",
    "impersonate - groups - - system:masters",
    "impersonate authentication.k8s.io uids - - any",
    "impersonate authentication.k8s.io userextras scopes - any",
    "create rbac.authorization.k8s.io clusterrolebindings - - -",
    "create rbac.authorization.k8s.io rolebindings - SHOP -",
    "update rbac.authorization.k8s.io clusterroles - - mainstay-agent",
    "bind rbac.authorization.k8s.io clusterroles - - cluster-admin",
    "escalate rbac.authorization.k8s.io clusterroles - - any",
    "escalate rbac.authorization.k8s.io roles - SHOP any",
    "create - pods exec SHOP any",
    "create - pods exec HOME any",
    "create - pods attach SHOP any",
    "create - pods - HOME -",
    "create apps deployments - HOME -",
    "create apps deployments - OTHER -",
    "create apps deployments - kube-system -",
    "create - serviceaccounts token HOME mainstay",
    "create - serviceaccounts token SHOP default",
    "update - configmaps - kube-system any",
    "create admissionregistration.k8s.io mutatingwebhookconfigurations - - -",
    "create admissionregistration.k8s.io validatingadmissionpolicies - - -",
    "get - nodes proxy - any",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_restricted_profile_applies_what_was_asked_for_and_nothing_else() {
    let shell = Shell::new(HOME, &[SHOP, OTHER]).await;
    let mut remote = Remote::new();
    remote.file("map.yaml", map(SHOP, "prices", "3")).commit("one");
    let server = SshServer::start(remote.root()).await;
    let flags =
        format!("--profile restricted --kinds ConfigMap,apps/Deployment --namespaces {SHOP} --target-namespace {SHOP}");
    let _agent = installed(&shell, &server, &flags).await;
    shell.run(&format!("mainstay sync -n {HOME}")).await;
    let tea = format!("kubectl get configmap prices -n {SHOP} -o jsonpath='{{.data.tea}}' | grep -x 3");
    shell.run(&tea).await;
    assert!(
        !shell
            .run("kubectl get clusterrolebindings -o yaml")
            .await
            .out
            .contains("cluster-admin\n  subjects:\n  - kind: ServiceAccount")
    );

    // The watch of that namespace reports a manual change and a deletion.
    shell
        .run(&format!("kubectl patch configmap prices -n {SHOP} --type merge -p '{{\"data\":{{\"tea\":\"9\"}}}}'"))
        .await;
    shell.until(&tea).await;
    shell.run(&format!("kubectl delete configmap prices -n {SHOP}")).await;
    shell.until(&tea).await;
    let log = denials(&shell);
    assert_eq!(log, Vec::<String>::new(), "a right that nothing asks for is not missed");

    // Another kind, and another namespace.
    remote.file("service.yaml", service(SHOP)).commit("two");
    let refused = shell.try_run(&format!("mainstay sync -n {HOME}")).await;
    assert_ne!(refused.code, 0, "{}", refused.out);
    until_said(&shell, "shop", &format!("ServiceAccount {HOME}/mainstay-applies may not ")).await;
    until_said(&shell, "shop", &format!("services in namespace {SHOP}")).await;
    remote.remove("service.yaml").file("other.yaml", map(OTHER, "prices", "3")).commit("three");
    shell.try_run(&format!("mainstay sync -n {HOME}")).await;
    until_said(&shell, "shop", &format!("namespace {OTHER} is not among the namespaces of the agent ({HOME}, {SHOP})"))
        .await;

    // A GitSync without a ServiceAccount, and a GitSync with a foreign ServiceAccount.
    for (name, account) in [("bare", Value::Null), ("thief", json!("mainstay"))] {
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": name, "namespace": HOME},
            "spec": {"gitRepository": "shop", "reference": "main", "serviceAccountName": account, "prune": false},
        });
        fs::write(shell.path("sync.json"), sync.to_string()).unwrap();
        shell.run("kubectl apply -f sync.json").await;
    }
    until_said(&shell, "bare", "spec.serviceAccountName is required").await;
    remote.remove("other.yaml").file("thief.yaml", map(SHOP, "stolen", "1")).commit("four");
    shell.try_run(&format!("mainstay sync thief -n {HOME}")).await;
    until_said(&shell, "thief", &format!("may not act as ServiceAccount {HOME}/mainstay")).await;

    let place = |text: &str| text.replace("SHOP", SHOP).replace("OTHER", OTHER).replace("HOME", HOME);
    let both = ["mainstay", "mainstay-applies"];
    let denied: Vec<_> =
        DENIED.iter().flat_map(|text| both.map(|account| (account, attributes(&place(text))))).collect();
    for ((account, asked), allowed) in denied.iter().zip(may(&shell, &denied).await) {
        assert!(!allowed, "{account} {asked}");
    }
    // Control: the reviews return true for granted permissions.
    let allowed = [
        ("mainstay", "impersonate - serviceaccounts - HOME mainstay-applies"),
        ("mainstay", "list apps deployments - SHOP -"),
        ("mainstay-applies", "create apps deployments - SHOP -"),
    ];
    let allowed = allowed.map(|(account, text)| (account, attributes(&place(text))));
    assert_eq!(may(&shell, &allowed).await, [true; 3]);

    let removed = shell.run(&format!("mainstay uninstall -n {HOME} --yes")).await.out;
    let left =
        "kubectl get roles,rolebindings,clusterroles,clusterrolebindings -A -l app.kubernetes.io/name=mainstay -o name";
    assert_eq!(shell.run(left).await.out, "", "{removed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_egress_policy_allows_dns_api_servers_git_and_registries() {
    let shell = Shell::embedded(HOME).await;
    shell.run(&format!("kubectl create namespace {HOME}")).await;
    let policy = "kubectl apply --dry-run=server -o json -f -";
    let install = format!("mainstay install --git-url ssh://git@git.corp:2222/shop -n {HOME}");
    assert!(!shell.run(&install).await.out.contains("mainstay-egress"), "off by default");
    let take =
        "python3 -c \"import sys;print([d for d in sys.stdin.read().split('---\\n') if 'mainstay-egress' in d][0])\"";
    let said = shell.run(&format!("{install} --egress-policy | {take} | {policy}")).await.out;
    let policy: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(policy["spec"]["policyTypes"], json!(["Egress"]));
    let rules = policy["spec"]["egress"].as_array().unwrap();
    let ports =
        |rule: &Value| rule["ports"].as_array().unwrap().iter().map(|port| port["port"].clone()).collect::<Vec<_>>();
    assert_eq!(ports(&rules[0]), [53, 53, 5353, 5353]);
    assert_eq!(ports(&rules[1]), [5000]);
    assert_eq!(ports(&rules[2]), [22, 443, 6443, 2222]);
    let except = rules[2]["to"][0]["ipBlock"]["except"].to_string();
    assert!(
        except.contains("169.254.0.0/16") && except.contains("168.63.129.16/32"),
        "no metadata of clouds: {except}"
    );
}

#[test]
fn refuses_choices_that_contradict_each_other() {
    for (flags, expected) in [
        ("--components functions", "--components: name sync as well"),
        ("--components sync --registry internal", "--registry is for Functions"),
        ("--components sync --v1alpha2", "--v1alpha2 is for Functions"),
        ("--kinds Service", "--kinds needs --profile restricted"),
        ("--namespaces a", "--namespaces needs --profile restricted"),
        ("--profile restricted", "name the kinds of the repository with --kinds"),
        ("--profile restricted --kinds *", "is not a known kind"),
        ("--profile restricted --kinds pods/exec", "is not a known kind"),
        ("--profile restricted --kinds Secret", "--kinds Secret needs --namespaces"),
        ("--profile restricted --kinds Service --namespaces mainstay-system,default", "is the agent's namespace"),
        (
            "--profile restricted --kinds Service --namespaces shop",
            "--target-namespace default is not among --namespaces",
        ),
        (
            "--profile restricted --kinds Service --components sync,functions",
            "the component functions writes to all namespaces",
        ),
        ("--profile restricted --kinds Service --service-account mainstay", "mainstay is the agent's own"),
    ] {
        let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
        let output = command.args(["install", "--git-url=https://h/x"]).args(flags.split(' ')).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(expected), "{flags}: {said}");
        assert!(output.stdout.is_empty(), "{flags}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_namespace_of_the_restricted_profile_keeps_the_agent_from_no_other() {
    let shell = Shell::new(HOME, &[SHOP, OTHER]).await;
    let mut remote = Remote::new();
    remote.file("map.yaml", map(SHOP, "prices", "3")).commit("one");
    let server = SshServer::start(remote.root()).await;
    let flags = format!("--profile restricted --kinds ConfigMap --namespaces {SHOP},{OTHER} --target-namespace {SHOP}");
    let agent = installed(&shell, &server, &flags).await;
    shell.run(&format!("mainstay sync -n {HOME}")).await;
    let is_reverted = async || {
        let edit = format!("kubectl patch configmap prices -n {SHOP} --type merge -p '{{\"data\":{{\"tea\":\"9\"}}}}'");
        shell.run(&edit).await;
        shell.until(&format!("kubectl get configmap prices -n {SHOP} -o jsonpath='{{.data.tea}}' | grep -x 3")).await;
    };
    shell.run(&format!("kubectl delete namespace {OTHER} --wait")).await;
    is_reverted().await;
    drop(agent);

    // A new agent does not know that the namespace existed.
    let agent = shell.agent("second").await;
    is_reverted().await;
    shell.until("grep -F 'does not exist; the agent continues with the others' second.log").await;
    remote.file("other.yaml", map(OTHER, "prices", "3")).commit("two");
    let refused = shell.try_run(&format!("mainstay sync -n {HOME}")).await;
    assert_ne!(refused.code, 0, "{}", refused.out);
    is_reverted().await;

    // The namespace is created again, and its Roles after it.
    shell.run(&format!("kubectl create namespace {OTHER}")).await;
    shell.until("grep -F 'exists again, and the agent has no permissions in it' second.log").await;
    shell.run(INSTALL).await;
    shell.until("grep -F 'the namespace is read again' second.log").await;
    shell.until(&format!("kubectl get configmap prices -n {OTHER}")).await;
    shell.run(&format!("kubectl delete configmap prices -n {OTHER}")).await;
    shell.until(&format!("kubectl get configmap prices -n {OTHER}")).await;
    is_reverted().await;
    drop(agent);
}
