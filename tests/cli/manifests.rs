//! `kubectl apply -k manifests`: checks the objects with kubectl, and their references.

use std::path::Path;

use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_testkit::dev::copy;

/// Returns the documents that `kubectl kustomize` prints for a directory.
fn built(directory: &str) -> Vec<Value> {
    let output = mainstay_testkit::isolated("kubectl")
        .args(["kustomize", directory])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .expect("kubectl is needed: https://kubernetes.io/docs/tasks/tools/");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap()).collect()
}

/// Creates a directory with a copy of `manifests`.
fn beside_manifests() -> tempfile::TempDir {
    let room = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests"), &room.path().join("manifests"));
    room
}

fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    documents
        .iter()
        .find(|document| document["kind"] == kind && document["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn install_in_one_namespace_with_a_service_account_that_may_act() {
    let documents = built("manifests");
    find(&documents, "Namespace", "mainstay-system");
    find(&documents, "CustomResourceDefinition", "gitsyncs.mainstay.dev");
    find(&documents, "CustomResourceDefinition", "gitrepositories.serverless.kyma-project.io");
    let deployment = find(&documents, "Deployment", "mainstay");
    let account = deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
    find(&documents, "ServiceAccount", account);
    for binding in documents.iter().filter(|d| d["kind"].as_str().unwrap().ends_with("RoleBinding")) {
        assert_eq!(binding["subjects"][0]["name"], account);
        assert_eq!(binding["subjects"][0]["namespace"], "mainstay-system");
        if binding["roleRef"]["name"] != "cluster-admin" {
            let role = &binding["roleRef"];
            find(&documents, role["kind"].as_str().unwrap(), role["name"].as_str().unwrap());
        }
    }
}

/// With the arguments and the environment of its container, the agent gets as far as the API server.
#[test]
fn start_the_agent_with_the_environment_that_it_is_given() {
    let documents = built("manifests");
    let container = &find(&documents, "Deployment", "mainstay")["spec"]["template"]["spec"]["containers"][0];
    let home = tempfile::tempdir().unwrap();
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    command.env_clear().current_dir(home.path());
    // A directory of the pod that does not exist here.
    let here = format!("{}/var/", home.path().display());
    command.args(container["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().replace("/var/", &here)));
    command.args(["--kubeconfig", "nowhere-at-all"]);
    for variable in container["env"].as_array().unwrap() {
        // The kubelet sets a name, a UID or a number of bytes.
        let value = variable["value"].as_str().unwrap_or("167772160");
        command.env(variable["name"].as_str().unwrap(), value);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("nowhere-at-all") && !said.contains("MAINSTAY_"), "{said}");
}

#[test]
fn leave_room_on_the_volume_beside_the_mirrors() {
    let documents = built("manifests");
    let pod = &find(&documents, "Deployment", "mainstay")["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().unwrap();
    let budget = mainstay_git::Settings::new("").budget;
    assert!(arguments.contains(&format!("--mirror-budget={}Mi", budget >> 20).into()), "{arguments:?}");
    let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "data").unwrap();
    assert_eq!(volume["emptyDir"]["sizeLimit"], format!("{}Gi", (budget + (256 << 20)) >> 30));
    assert!(mainstay_git::Limits::default().mirror_bytes < budget);
}

#[test]
fn run_the_agent_within_its_limits_and_without_privileges() {
    let documents = built("manifests");
    let pod = &find(&documents, "Deployment", "mainstay")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["resources"]["limits"]["memory"], "160Mi");
    assert_eq!(container["resources"]["limits"]["cpu"], "500m");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
    let named =
        |name: &str| container["env"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone();
    let identity = named("MAINSTAY_IDENTITY")["valueFrom"]["fieldRef"]["fieldPath"].clone();
    assert_eq!(identity, "metadata.uid", "a container that is restarted in its pod is the holder of its Lease");
    assert_eq!(named("MAINSTAY_POD")["valueFrom"]["fieldRef"]["fieldPath"], "metadata.name");
    let port = &container["ports"][0]["name"];
    assert_eq!(&container["livenessProbe"]["httpGet"]["port"], port);
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert_eq!(&container["readinessProbe"]["httpGet"]["port"], port);
}

#[test]
fn render_in_a_container_that_has_no_credentials_and_writes_no_files() {
    let documents = built("manifests");
    let pod = &find(&documents, "Deployment", "mainstay")["spec"]["template"]["spec"];
    let [agent, renderer] = pod["containers"].as_array().unwrap().as_slice() else { panic!("{pod}") };
    let mounted = |container: &Value, path: &str| {
        container["volumeMounts"].as_array().unwrap().iter().find(|mount| mount["mountPath"] == path).cloned()
    };
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    assert_eq!(pod["automountServiceAccountToken"], false, "else every container has one");
    assert!(mounted(agent, token).is_some() && mounted(renderer, token).is_none());
    assert_eq!((&renderer["env"], &renderer["ports"]), (&Value::Null, &Value::Null));
    assert_eq!((&renderer["image"], &renderer["securityContext"]), (&agent["image"], &agent["securityContext"]));
    let shared = "/var/run/mainstay/renderer";
    assert_eq!(mounted(renderer, &format!("{shared}/files")).unwrap()["readOnly"], true);
    assert_eq!(mounted(agent, &format!("{shared}/files")).unwrap()["readOnly"], Value::Null);
    let volumes = renderer["volumeMounts"].as_array().unwrap();
    assert!(volumes.iter().all(|mount| mount["mountPath"].as_str().unwrap().starts_with(shared)), "{volumes:?}");
    let argument = |container: &Value, wanted: &str| container["args"].as_array().unwrap().contains(&json!(wanted));
    assert!(argument(agent, &format!("--renderer={shared}")) && argument(renderer, &format!("--shared={shared}")));
}

#[test]
fn let_only_those_in_who_have_something_to_ask() {
    let documents = built("manifests");
    let policy = &find(&documents, "NetworkPolicy", "mainstay")["spec"];
    let pod = &find(&documents, "Deployment", "mainstay")["spec"]["template"];
    assert_eq!(policy["podSelector"]["matchLabels"], pod["metadata"]["labels"]);
    assert_eq!(policy["policyTypes"], json!(["Ingress"]));
    let [webhooks, metrics] = policy["ingress"].as_array().unwrap().as_slice() else { panic!("{policy}") };
    assert_eq!(
        (&webhooks["ports"], &webhooks["from"]),
        (&json!([{"port": "receivers", "protocol": "TCP"}, {"port": "admission", "protocol": "TCP"}]), &Value::Null)
    );
    assert_eq!(metrics["ports"], json!([{"port": "http", "protocol": "TCP"}]));
    let labelled = json!({"namespaceSelector": {"matchLabels": {"mainstay.dev/metrics": "true"}}});
    assert_eq!(metrics["from"], json!([{"podSelector": {}}, labelled]));
    let ports: Vec<_> = pod["spec"]["containers"][0]["ports"].as_array().unwrap().iter().collect();
    let named = ["http", "receivers", "admission"];
    assert!(ports.iter().all(|port| named.iter().any(|name| port["name"] == *name)), "each is in the policy");
}

/// An unavailable agent must not block writes.
#[test]
fn register_webhooks_that_stop_nothing() {
    let documents = built("manifests");
    let service = find(&documents, "Service", "mainstay-admission");
    let pod = &find(&documents, "Deployment", "mainstay")["spec"]["template"];
    // Every replica serves webhooks.
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    let container = &pod["spec"]["containers"][0];
    let ports = container["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == service["spec"]["ports"][0]["targetPort"]).unwrap();
    let argument = format!("--admit=0.0.0.0:{}", port["containerPort"]);
    assert!(container["args"].as_array().unwrap().contains(&argument.into()));
    assert!(
        find(&documents, "Secret", "mainstay-admission")["data"].is_null(),
        "applied again, it keeps the certificates"
    );
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        for webhook in find(&documents, kind, "mainstay-admission")["webhooks"].as_array().unwrap() {
            assert_eq!((&webhook["failurePolicy"], &webhook["sideEffects"]), (&json!("Ignore"), &json!("None")));
            assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= 3);
            assert!(webhook["clientConfig"]["caBundle"].is_null(), "the agent's");
            let reached = &webhook["clientConfig"]["service"];
            assert_eq!(
                (&reached["name"], &reached["namespace"]),
                (&service["metadata"]["name"], &service["metadata"]["namespace"])
            );
            let rules = webhook["rules"].as_array().unwrap();
            // One webhook handles only the creation of Secrets whose name the agent copies.
            let is_named = !webhook["matchConditions"].is_null();
            let operations = if is_named { json!(["CREATE"]) } else { json!(["CREATE", "UPDATE"]) };
            assert!(rules.iter().all(|rule| rule["operations"] == operations));
            // The agent writes statuses itself. The webhook covers only labelled Secrets and Secrets with such a name.
            let secrets = rules.iter().any(|rule| rule["resources"] == json!(["secrets"]));
            assert_eq!(secrets, !webhook["objectSelector"].is_null());
            assert!(rules.iter().all(|rule| !rule["resources"].to_string().contains(['/', '*'])));
        }
    }
    let rules = find(&documents, "ClusterRole", "mainstay-agent")["rules"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["apiGroups"] == json!(["admissionregistration.k8s.io"])).unwrap();
    assert_eq!(rule["resourceNames"], json!(["mainstay-admission"]));
}

/// With the component both versions are served and converted by the agent. Without it only the stored version is
/// served.
#[test]
fn serve_the_other_version_of_functions_where_it_is_converted() {
    let name = "functions.serverless.kyma-project.io";
    let flags = |documents: &[Value]| {
        let spec = &find(documents, "CustomResourceDefinition", name)["spec"];
        let versions = spec["versions"].as_array().unwrap().iter();
        let flags: Vec<_> = versions.map(|v| json!([v["name"], v["served"], v["storage"]])).collect();
        (flags, spec["conversion"].clone())
    };
    let documents = built("manifests");
    let alone = json!([["v1alpha1", true, true], ["v1alpha2", false, false]]);
    assert_eq!(flags(&documents), (alone.as_array().unwrap().clone(), Value::Null));
    let room = beside_manifests();
    let kustomization = "resources: [manifests]\ncomponents: [manifests/v1alpha2]\n";
    std::fs::write(room.path().join("kustomization.yaml"), kustomization).unwrap();
    let documents = built(room.path().to_str().unwrap());
    let (versions, conversion) = flags(&documents);
    assert_eq!(json!(versions), json!([["v1alpha1", true, true], ["v1alpha2", true, false]]));
    let service = find(&documents, "Service", "mainstay-admission");
    let client = &conversion["webhook"]["clientConfig"];
    assert_eq!(
        (&client["service"]["name"], &client["service"]["path"]),
        (&service["metadata"]["name"], &json!("/convert"))
    );
    assert_eq!(client["service"]["namespace"], service["metadata"]["namespace"]);
    assert!(client["caBundle"].is_null(), "the agent's");
    let rule = &find(&documents, "ClusterRole", "mainstay-converts")["rules"][0];
    assert_eq!((&rule["resourceNames"], &rule["verbs"]), (&json!([name]), &json!(["patch"])));

    // `mainstay install --v1alpha2` prints the same.
    let install = |more: &[&str]| {
        let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
        let output = command.args(["install", "--git-url=https://h/x"]).args(more).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        serde_yaml::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap()).collect::<Vec<_>>()
    };
    let printed = install(&["--v1alpha2"]);
    for (kind, name) in [
        ("CustomResourceDefinition", name),
        ("ClusterRole", "mainstay-converts"),
        ("ClusterRoleBinding", "mainstay-converts"),
    ] {
        assert_eq!(find(&printed, kind, name), find(&documents, kind, name));
    }
    let elsewhere = install(&["--v1alpha2", "--namespace=flux"]);
    assert_eq!(flags(&elsewhere).1["webhook"]["clientConfig"]["service"]["namespace"], "flux");
    assert_eq!(find(&elsewhere, "ClusterRoleBinding", "mainstay-converts")["subjects"][0]["namespace"], "flux");
    assert_eq!(flags(&install(&[])).1, Value::Null);
}

#[test]
fn let_nodes_be_drained_one_agent_at_a_time() {
    let documents = built("manifests");
    let budget = find(&documents, "PodDisruptionBudget", "mainstay");
    assert_eq!(budget["metadata"]["namespace"], "mainstay-system");
    let pod = &find(&documents, "Deployment", "mainstay")["spec"]["template"];
    assert_eq!(budget["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"]);
    // With `minAvailable` a single replica would block every drain.
    assert_eq!((&budget["spec"]["maxUnavailable"], &budget["spec"]["minAvailable"]), (&json!(1), &Value::Null));
}

#[test]
fn route_webhooks_to_the_agent() {
    let documents = built("manifests");
    let service = &find(&documents, "Service", "mainstay-receivers")["spec"];
    let pod = &find(&documents, "Deployment", "mainstay")["spec"]["template"];
    let mut labels = pod["metadata"]["labels"].clone();
    // The leader sets this label on itself.
    labels["mainstay.dev/leader"] = "true".into();
    assert_eq!(service["selector"], labels);
    let container = &pod["spec"]["containers"][0];
    let ports = container["ports"].as_array().unwrap();
    let port = ports.iter().find(|port| port["name"] == service["ports"][0]["targetPort"]).unwrap();
    let argument = format!("--receive=0.0.0.0:{}", port["containerPort"]);
    assert!(container["args"].as_array().unwrap().contains(&argument.into()));
}

#[test]
fn install_the_built_in_host_keys() {
    let documents = built("manifests");
    let config_map = find(&documents, "ConfigMap", "mainstay-known-hosts");
    assert_eq!(config_map["metadata"]["namespace"], "mainstay-system");
    assert_eq!(config_map["data"]["known_hosts"], include_str!("../../src/git/src/known_hosts.txt"));
}

#[test]
fn keep_the_mirrors_on_a_claim_with_the_patch_of_the_book() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/gitops/mirrors.md")).unwrap();
    let between = |begin: &str, end: &str| page.split_once(begin).unwrap().1.split_once(end).unwrap().0.to_owned();
    let patch = between("patch deployment mainstay --patch '", "'\n");
    let claim: Value = serde_yaml::from_str(&between("apply -f - <<'EOF'\n", "EOF\n")).unwrap();
    assert_eq!(claim["kind"], "PersistentVolumeClaim");
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("deployment.yaml");
    let documents = built("manifests");
    std::fs::write(&path, find(&documents, "Deployment", "mainstay").to_string()).unwrap();
    let mut command = mainstay_testkit::isolated("kubectl");
    command.args(["patch", "--local", "-o", "json", "--patch", &patch, "-f"]).arg(&path);
    let output = command.env("HOME", room.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let patched: Value = serde_json::from_slice(&output.stdout).unwrap();
    let data = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}});
    let volumes = patched["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    assert_eq!((volumes.len(), volumes.iter().find(|volume| volume["name"] == "data")), (5, Some(&data)));
    assert_eq!(patched["spec"]["strategy"], json!({"type": "Recreate"}), "two pods would not share the claim");
}

/// APIRules are a component: without it none of its objects exists.
#[test]
fn apirules_are_served_where_that_is_chosen() {
    let name = "apirules.gateway.kyma-project.io";
    let is_there = |documents: &[Value]| documents.iter().any(|document| document["metadata"]["name"] == name);
    assert!(!is_there(&built("manifests")));
    let room = beside_manifests();
    let kustomization = "resources: [manifests]\ncomponents: [manifests/exposure]\n";
    std::fs::write(room.path().join("kustomization.yaml"), kustomization).unwrap();
    let documents = built(room.path().to_str().unwrap());
    assert!(is_there(&documents));
    let binding = find(&documents, "ClusterRoleBinding", "mainstay-exposes");
    assert_eq!(binding["subjects"], find(&documents, "ClusterRoleBinding", "mainstay-agent")["subjects"]);
}

/// ServiceBindingUsages are a component, too.
#[test]
fn usages_of_bindings_are_served_where_that_is_chosen() {
    let room = beside_manifests();
    let kustomization = "resources: [manifests]\ncomponents: [manifests/bindings]\n";
    std::fs::write(room.path().join("kustomization.yaml"), kustomization).unwrap();
    let documents = built(room.path().to_str().unwrap());
    let binding = find(&documents, "ClusterRoleBinding", "mainstay-binds");
    assert_eq!(binding["subjects"], find(&documents, "ClusterRoleBinding", "mainstay-agent")["subjects"]);
    let is_there =
        |documents: &[Value]| documents.iter().any(|document| document["metadata"]["name"] == "mainstay-binds");
    assert!(!is_there(&built("manifests")));
}

/// Event delivery is a component with a volume and its own ServiceAccount. It uses the agent's image.
#[test]
fn events_are_delivered_where_that_is_chosen() {
    let name = "triggers.eventing.knative.dev";
    let is_there = |documents: &[Value]| documents.iter().any(|document| document["metadata"]["name"] == name);
    assert!(!is_there(&built("manifests")));
    let room = beside_manifests();
    let kustomization = "resources: [manifests]\ncomponents: [manifests/eventing]\n\
                         images: [{name: mainstay, newName: registry.example.com/mainstay, newTag: v1}]\n";
    std::fs::write(room.path().join("kustomization.yaml"), kustomization).unwrap();
    let documents = built(room.path().to_str().unwrap());
    assert!(is_there(&documents));
    let deployment = find(&documents, "Deployment", "mainstay-eventing");
    let (pod, place) = (&deployment["spec"]["template"], &deployment["metadata"]["namespace"]);
    assert_eq!(pod["spec"]["containers"][0]["image"], "registry.example.com/mainstay:v1");
    assert_eq!(
        deployment["spec"]["strategy"],
        json!({"type": "Recreate"}),
        "two processes would not share the journal"
    );
    let claim = &pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"];
    assert_eq!(find(&documents, "PersistentVolumeClaim", claim.as_str().unwrap())["metadata"]["namespace"], *place);
    let binding = find(&documents, "ClusterRoleBinding", "mainstay-delivers");
    assert_eq!(binding["subjects"][0]["name"], pod["spec"]["serviceAccountName"]);
    assert_eq!(binding["subjects"][0]["namespace"], *place);
    for name in ["eventing-event-publisher-proxy", "eventing-publisher-proxy"] {
        let service = find(&documents, "Service", name);
        assert_eq!(
            (&service["metadata"]["namespace"], &service["spec"]["selector"]),
            (place, &pod["metadata"]["labels"])
        );
    }
    // Functions publish to one of these two Services.
    let publisher = mainstay_function::Settings::default().publisher;
    assert_eq!(publisher, "http://eventing-publisher-proxy.kyma-system.svc.cluster.local/publish");
}

/// Publishers and dispatchers keep everything on NATS, so each may have any number of pods.
#[test]
fn events_on_nats_need_no_volume_and_no_single_pod() {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    command.args(["install", "--git-url=https://h/x", "--image=registry.example.com/mainstay:v1"]);
    command.args(["--components=sync,eventing", "--nats-url=tls://nats:4222", "--nats-credentials=login"]);
    let output = command.args(["--event-publishers=3", "--event-dispatchers=4"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents: Vec<Value> =
        serde_yaml::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap()).collect();
    let is_of_journal =
        |one: &&Value| one["metadata"]["name"] == "mainstay-eventing" && one["kind"] != "ServiceAccount";
    assert_eq!(documents.iter().find(is_of_journal), None);
    assert!(documents.iter().all(|one| one["kind"] != "PersistentVolumeClaim"), "{text}");
    for (part, replicas) in [("publisher", 3), ("dispatcher", 4)] {
        let name = format!("mainstay-eventing-{part}");
        let deployment = find(&documents, "Deployment", &name);
        let (spec, labels) = (&deployment["spec"], &deployment["spec"]["template"]["metadata"]["labels"]);
        let pod = &spec["template"]["spec"];
        assert_eq!((&spec["replicas"], &spec["strategy"]), (&json!(replicas), &Value::Null), "pods are rolled");
        assert_eq!(pod["volumes"][0]["secret"]["secretName"], "login");
        assert_eq!(pod["containers"][0]["volumeMounts"][0]["readOnly"], true);
        assert_eq!(pod["containers"][0]["image"], "registry.example.com/mainstay:v1");
        for kind in ["PodDisruptionBudget", "NetworkPolicy"] {
            let selector = &find(&documents, kind, &name)["spec"];
            let selector = if kind == "NetworkPolicy" { &selector["podSelector"] } else { &selector["selector"] };
            assert_eq!(selector["matchLabels"], *labels, "{kind} {name}");
        }
        let account = pod["serviceAccountName"].as_str().unwrap();
        assert_eq!(find(&documents, "ServiceAccount", account)["metadata"]["namespace"], "kyma-system");
        starts(&pod["containers"][0]);
    }
    let ingress = &find(&documents, "NetworkPolicy", "mainstay-eventing-dispatcher")["spec"]["ingress"];
    assert_eq!((ingress[0]["ports"][0]["port"].as_str(), ingress.as_array().unwrap().len()), (Some("metrics"), 1));
    for name in ["eventing-event-publisher-proxy", "eventing-publisher-proxy"] {
        let service = find(&documents, "Service", name);
        assert_eq!(service["spec"]["selector"]["app.kubernetes.io/name"], "mainstay-eventing-publisher");
    }
}

/// With its arguments and its environment, a container gets as far as the API server.
fn starts(container: &Value) {
    let home = tempfile::tempdir().unwrap();
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    command.env_clear().current_dir(home.path());
    let arguments = container["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap());
    let on_loopback = |one: &str| one.replace("0.0.0.0:8080", "127.0.0.1:0").replace("0.0.0.0:9090", "127.0.0.1:0");
    command.args(arguments.map(on_loopback));
    command.args(["--kubeconfig", "nowhere-at-all"]);
    for variable in container["env"].as_array().unwrap() {
        command.env(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap_or("a-pod"));
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("nowhere-at-all"), "{said}");
}
