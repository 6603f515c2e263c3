//! `mainstay get`, `suspend`, `resume`, `version` and `logs`, compared with kubectl.

use std::time::Duration;

use devcluster::{
    Action, Call,
    verbs::{delete::DeleteOptions, patch::Form},
};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::inline,
    kubectl::Kubectl,
    program::Program,
    world::{NAMESPACE, World, config_map},
};

const SYNCS: &str = "mainstay.dev/v1alpha1";

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A world with a ready GitSync.
async fn world() -> (World, String) {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    let commit = world.remote.commit("one");
    world.synced(json!({})).await;
    (world, commit)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prints_what_kubectl_prints() {
    let (mut world, commit) = world().await;
    // The objects must not change between the two commands, so the agent ends after its last write.
    let is_reported = |w: &World| {
        let repository = w.get("serverless.kyma-project.io/v1alpha1", "gitrepositories", "repo").unwrap();
        repository["status"]["observedGeneration"] == repository["metadata"]["generation"]
    };
    world.until("the repository has a status", is_reported).await;
    world.stop().await;
    let program = Program::of(&world).await;
    let kubectl = Kubectl::of_world(&world.server, NAMESPACE).await;
    let by_default = program.run(&["get", "-n", NAMESPACE, "-o", "name"]).await;
    assert_eq!(by_default.1, kubectl.run(&["get", "gitsyncs", "-o", "name"]).await, "{by_default:?}");
    for kind in ["gitsyncs", "gitrepositories"] {
        let (code, ours, error) = program.run(&["get", kind, "-n", NAMESPACE, "-o", "wide"]).await;
        assert_eq!((code, error.as_str()), (0, ""), "{ours}");
        let theirs = kubectl.run(&["get", kind, "-o", "wide"]).await;
        // The age may differ by now.
        let shape = |text: &str| text.lines().map(|line| words(line).len()).collect::<Vec<_>>();
        assert_eq!(ours.lines().next().map(words), theirs.lines().next().map(words));
        assert_eq!(shape(&ours), shape(&theirs), "{ours}{theirs}");
        let (_, ours, _) = program.run(&["get", kind, "-n", NAMESPACE, "-o", "name"]).await;
        assert_eq!(ours, kubectl.run(&["get", kind, "-o", "name"]).await);
        for format in ["json", "yaml"] {
            let (_, ours, _) = program.run(&["get", kind, "-n", NAMESPACE, "-o", format]).await;
            let theirs = kubectl.run(&["get", kind, "-o", format]).await;
            let read = |text: &str| serde_yaml::from_str::<Value>(text).unwrap();
            assert_eq!(read(&ours), read(&theirs));
        }
    }
    let (_, text, _) = program.run(&["get", "gs", "demo", "-n", NAMESPACE]).await;
    assert_eq!(words(text.lines().next().unwrap())[..4], ["NAME", "READY", "SUSPENDED", "COMMIT"]);
    assert_eq!(words(text.lines().nth(1).unwrap())[..4], ["demo", "True", "False", &commit[..12]], "{text}");
    assert!(!text.contains(&commit) && text.matches(&commit[..12]).count() == 1, "an id is said once: {text}");
    let table = kubectl.run(&["get", "gitsync", "demo"]).await;
    assert_eq!(words(table.lines().nth(1).unwrap())[3], commit[..12], "{table}");
    let table = kubectl.run(&["get", "gitrepositories"]).await;
    assert!(table.contains(&format!("main@sha1:{} ", &commit[..12])) && !table.contains(&commit), "{table}");
    for template in [
        r#"{.items[*].metadata.name}{"\n"}"#,
        r#"{range .items[*]}{.metadata.name}{'\t'}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#,
        "{.items[0].spec.none}x{.kind}",
        "{.items[0].spec}",
    ] {
        let format = format!("jsonpath={template}");
        let (code, ours, error) = program.run(&["get", "gitsyncs", "-n", NAMESPACE, "-o", &format]).await;
        assert_eq!((code, error.as_str()), (0, ""));
        assert_eq!(ours, kubectl.run(&["get", "gitsyncs", "-o", &format]).await, "{template}");
    }
    let (_, ready, _) = program.run(&["get", "gs", "demo", "-n", NAMESPACE, "-o", "jsonpath={.metadata.name}"]).await;
    assert_eq!(ready, "demo");
    let one = program.json(&["get", "gitsync/demo", "-n", NAMESPACE]).await;
    assert_eq!((&one["kind"], &one["metadata"]["name"]), (&json!("GitSync"), &json!("demo")));
    assert!(one["metadata"]["managedFields"].is_null());

    let (code, all, error) = program.run(&["get", "all", "-A"]).await;
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(all.contains("gitsync.mainstay.dev/demo ") && all.contains("\n\nNAMESPACE "), "{all}");
    assert!(all.contains("gitrepository.serverless.kyma-project.io/repo "), "{all}");
    let (code, out, error) = program.run(&["get", "functions", "-n", NAMESPACE]).await;
    assert_eq!((code, out.as_str(), error), (0, "", format!("No resources found in {NAMESPACE} namespace.\n")));
    let (code, out, error) = program.run(&["get", "gitsyncs", "demo", "nobody", "-n", NAMESPACE]).await;
    assert!(code == 2 && out.contains("demo") && error.contains(&format!("GitSync {NAMESPACE}/nobody does not exist")));
    let (code, _, error) = program.run(&["get", "pods"]).await;
    assert!(code == 2 && error.contains("`kubectl get` prints other kinds"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_hides_the_login_of_an_address_and_an_object_is_printed_whole() {
    let world = World::new().await;
    world.repository("private", "https://user:hunter2@git.example.com/shop");
    let program = Program::of(&world).await;
    for format in ["yaml", "json", "jsonpath={.spec.url}", "text", "wide"] {
        let (code, said, error) =
            program.run(&["get", "gitrepositories", "private", "-n", NAMESPACE, "-o", format]).await;
        assert_eq!(code, 0, "{format}: {said}{error}");
        let is_whole = !["text", "wide"].contains(&format);
        assert_eq!(said.contains("https://user:hunter2@git.example.com/shop"), is_whole, "{format}: {said}");
        assert!(is_whole || !said.contains("hunter2"), "{format}: {said}");
        assert!(!error.contains("hunter2"), "{format}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_git_sync_stays_ready_until_it_is_resumed() {
    let (mut world, commit) = world().await;
    world.sync("other", json!({"baseDir": "/none"}));
    let program = Program::of(&world).await;
    let (code, said, error) = program.run(&["suspend", "demo", "-n", NAMESPACE]).await;
    assert_eq!(
        (code, said, error.as_str()),
        (0, format!("GitSync {NAMESPACE}/demo is suspended until `mainstay resume`\n"), "")
    );
    world.condition_is("demo", "Suspended", "True Suspended: suspended: nothing is applied").await;
    assert!(world.condition("demo", "Ready").starts_with("True Applied: "), "{}", world.condition("demo", "Ready"));
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    world.look();
    let (code, table, _) = program.run(&["status", "-A"]).await;
    let row = table.lines().find(|line| line.contains(" demo ")).unwrap();
    assert_eq!(
        (code, &words(row)[2..5]),
        (1, &["True".to_owned(), "True".to_owned(), commit[..12].to_owned()][..]),
        "{table}"
    );
    let kubectl = Kubectl::of_world(&world.server, NAMESPACE).await;
    let table = kubectl.run(&["get", "gitsync", "demo"]).await;
    assert_eq!(words(table.lines().nth(1).unwrap())[..3], ["demo", "True", "True"], "{table}");

    let (code, said, _) = program.run(&["resume", "gitsync/demo", "-n", NAMESPACE]).await;
    assert_eq!((code, said), (0, format!("GitSync {NAMESPACE}/demo follows its repository again\n")));
    world.condition_is("demo", "Suspended", "False NotSuspended").await;
    world.until("the commit is applied", |w| w.data("a") == "2").await;

    let facts = program.json(&["suspend", "--all", "--for", "2h", "-n", NAMESPACE]).await;
    assert_eq!(facts["items"].as_array().unwrap().len(), 2, "{facts}");
    let until = facts["items"][0]["until"].as_str().unwrap();
    let live = world.get(SYNCS, "gitsyncs", "demo").unwrap();
    assert_eq!((&live["spec"]["suspend"], &live["spec"]["suspendUntil"]), (&json!(false), &json!(until)));
    world.condition_is("demo", "Suspended", &format!("True Suspended: suspended until {until}: ")).await;
    let (code, said, _) = program.run(&["resume", "-A"]).await;
    assert_eq!((code, said.lines().count()), (0, 2), "{said}");
    world.condition_is("demo", "Suspended", "False NotSuspended").await;

    for (line, expected) in [
        ("suspend deploy/web", "deploy/web is not a GitSync"),
        ("suspend ks demo", "the counterpart of ks is a GitSync: gitsync/demo"),
        ("resume kustomizations.example.org/demo", "is a GitSync: gitsync/NAME"),
        ("sync ks/demo", "the counterpart of ks is a GitSync: gitsync/demo"),
        ("reconcile ks demo", "mainstay sync"),
        ("suspend nobody", "GitSync default/nobody does not exist"),
        ("suspend", "<NAME>"),
        ("resume", "<NAME>"),
    ] {
        let (code, _, error) = program.run(&line.split(' ').collect::<Vec<_>>()).await;
        assert!(code == 2 && error.contains(expected), "{line}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspends_one_git_sync_those_of_a_namespace_or_all_of_the_cluster() {
    const OTHER: &str = "mainstay-tests-other";
    let (world, _) = world().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}});
    world.create("v1", "namespaces", "", namespace);
    world.sync("second", json!({"baseDir": "/none"}));
    let metadata = json!({"name": "third", "namespace": OTHER});
    let third =
        json!({"apiVersion": SYNCS, "kind": "GitSync", "metadata": metadata, "spec": {"gitRepository": "repo"}});
    world.create(SYNCS, "gitsyncs", OTHER, third);
    let program = Program::of(&world).await;
    let run = async |line: &str| program.run(&line.split(' ').collect::<Vec<_>>()).await;
    let suspended = || {
        let syncs = world.server.objects(SYNCS, "gitsyncs", None);
        let mut names: Vec<_> = syncs.iter().filter(|sync| sync["spec"]["suspend"] == true).collect();
        names.sort_by_key(|sync| sync["metadata"]["name"].to_string());
        names.iter().map(|sync| sync["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (line, expected) in [
        (format!("suspend --all -n {NAMESPACE}"), &["demo", "second"][..]),
        (format!("resume second -n {NAMESPACE}"), &["demo"]),
        ("suspend -A".to_owned(), &["demo", "second", "third"]),
        (format!("resume --all -n {NAMESPACE}"), &["third"]),
        (format!("suspend second -n {NAMESPACE}"), &["second", "third"]),
        ("resume -A".to_owned(), &[]),
    ] {
        let (code, said, error) = run(&line).await;
        assert_eq!((code, error.as_str()), (0, ""), "{line}: {said}");
        assert_eq!(suspended(), expected, "{line}: {said}");
    }

    // A refused change does not keep the others from theirs.
    let (version, policy) = ("admissionregistration.k8s.io/v1", "mainstay-tests-suspends");
    let (policies, bindings) = ("validatingadmissionpolicies", "validatingadmissionpolicybindings");
    let rule = json!({"operations": ["UPDATE"], "apiGroups": ["mainstay.dev"], "apiVersions": ["*"], "resources": ["gitsyncs"]});
    let spec = json!({
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name != 'second' || !(has(object.spec.suspend) && object.spec.suspend)"}],
    });
    world.create(version, policies, "", json!({"metadata": {"name": policy}, "spec": spec}));
    let binding = json!({"policyName": policy, "validationActions": ["Deny"]});
    world.create(version, bindings, "", json!({"metadata": {"name": policy}, "spec": binding}));
    let suspend = Action::Patch(Form::Merge, json!({"spec": {"suspend": true}}));
    let call = || Call::new(SYNCS, "gitsyncs", NAMESPACE, "second", suspend.clone());
    world.until("the policy is in effect", |w| w.try_as("t", call()).is_err()).await;
    assert_eq!(run("resume -A").await.0, 0);
    let (code, said, error) = run("suspend -A").await;
    assert_eq!((code, suspended()), (2, vec!["demo".to_owned(), "third".to_owned()]), "{said}{error}");
    assert!(said.lines().count() == 2 && !said.contains("second"), "{said}");
    assert!(error.starts_with(&format!("GitSync {NAMESPACE}/second:\n")) && !error.contains("demo"), "{error}");
    assert_eq!(run("resume -A").await.0, 0);
    for resource in [bindings, policies] {
        let delete = Action::Delete(DeleteOptions::default());
        world.write_as("t", Call::new(version, resource, "", policy, delete));
    }

    let begun = jiff::Timestamp::now();
    let (code, said, _) = run(&format!("suspend demo --for 90m -n {NAMESPACE}")).await;
    let until = world.get(SYNCS, "gitsyncs", "demo").unwrap()["spec"]["suspendUntil"].as_str().unwrap().to_owned();
    assert_eq!((code, said), (0, format!("GitSync {NAMESPACE}/demo is suspended until {until}\n")));
    let length = until.parse::<jiff::Timestamp>().unwrap().duration_since(begun).as_secs();
    assert!((5399..5700).contains(&length), "{length} s");
    world.condition_is("demo", "Suspended", &format!("True Suspended: suspended until {until}: ")).await;
    let (code, _, _) = run(&format!("suspend demo --for 1s -n {NAMESPACE}")).await;
    assert_eq!(code, 0);
    world.condition_is("demo", "Suspended", "False NotSuspended").await;

    for (line, expected) in [
        ("suspend demo --all", "--all"),
        ("suspend demo -A", "--all-namespaces"),
        ("resume demo -A", "--all-namespaces"),
        ("suspend -A -n x", "--namespace"),
        ("suspend demo --for 0s", "--for"),
        ("suspend demo --for soon", "--for"),
    ] {
        let (code, said, error) = run(line).await;
        assert!(code == 2 && said.is_empty() && error.contains(expected), "{line}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_goes_through_all_namespaces_and_says_each_failure_once() {
    let (mut world, commit) = world().await;
    world.hold_lease();
    let program = Program::of(&world).await;
    let (code, said, error) = program.run(&["sync", "-A"]).await;
    let expected =
        format!("GitSync {NAMESPACE}/demo: commit {}, as before, 1 object, 1 healthy, 0 failed\n", &commit[..12]);
    assert_eq!((code, said, error.as_str()), (0, expected, ""));
    let wrong = "apiVersion: v1\nkind: Service\nmetadata: {name: api}\nspec: {ports: [{port: 0}]}\n";
    world.remote.file("b.yaml", wrong);
    world.try_commit("demo", "two").await;
    let (code, said, error) = program.run(&["sync", "-A"]).await;
    assert_eq!(code, 1, "{said}{error}");
    assert_eq!(error.matches("spec.ports[0].port").count(), 1, "{error}");
    assert!(said.contains("is not applied in full; before it: "), "{said}");
    let (_, shown, _) = program.run(&["status", "demo", "-n", NAMESPACE]).await;
    assert_eq!(shown.matches("spec.ports[0].port").count(), 1, "{shown}");
    assert!(!shown.contains(&commit), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_is_that_of_the_program_and_of_the_agent_that_leads() {
    let mut world = World::new().await;
    let program = Program::of(&world).await;
    let own = env!("CARGO_PKG_VERSION");
    let (code, said, _) = program.run(&["version", "-n", NAMESPACE]).await;
    assert_eq!((code, said), (1, format!("client: {own}\nagent:  none leads in the namespace {NAMESPACE}\n")));
    world.start_as("one", true);
    world.until("it leads", |w| w.get("coordination.k8s.io/v1", "leases", "mainstay").is_some()).await;
    let (code, said, _) = program.run(&["version", "-n", NAMESPACE]).await;
    assert_eq!((code, said), (0, format!("client: {own}\nagent:  {own} (namespace {NAMESPACE})\n")));
    let facts = program.json(&["version", "-n", NAMESPACE]).await;
    assert_eq!((&facts["client"]["version"], &facts["agent"]["identity"]), (&json!(own), &json!("one")));
    let (code, said, _) = program.run(&["version", "--client"]).await;
    assert_eq!((code, said), (0, format!("client: {own}\n")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_those_of_the_pods_of_the_agent() {
    let (world, _) = world().await;
    let program = Program::of(&world).await;
    let (code, _, error) = program.run(&["logs", "--agent-namespace", NAMESPACE]).await;
    assert!(
        code == 2 && error.contains(&format!("no pod of the agent has started in the namespace {NAMESPACE}")),
        "{error}"
    );
    let labels = json!({"app.kubernetes.io/name": "mainstay"});
    let spec = json!({"containers": [{"name": "mainstay", "image": "mainstay:1"}]});
    let create = async |name: &str, labels: Value| {
        let metadata = json!({"name": name, "labels": labels});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        world.create("v1", "pods", NAMESPACE, pod);
        world.until("it runs", |w| w.get("v1", "pods", name).unwrap()["status"]["phase"] == "Running").await;
    };
    create("other", json!({})).await;
    let (code, _, _) = program.run(&["logs", "--agent-namespace", NAMESPACE]).await;
    assert_eq!(code, 2, "the pod of another program");
    create("agent", labels).await;
    let kubectl = Kubectl::of_world(&world.server, NAMESPACE).await;
    let theirs = kubectl.run(&["logs", "agent"]).await;
    let (code, ours, error) = program.run(&["logs", "--agent-namespace", NAMESPACE]).await;
    assert_eq!((code, ours.as_str(), error.as_str()), (0, theirs.as_str(), ""));
    assert!(!ours.is_empty());
    let flags = ["logs", "demo", "-n", NAMESPACE, "--agent-namespace", NAMESPACE, "--tail", "5", "--since", "1h"];
    let (code, ours, error) = program.run(&flags).await;
    assert_eq!((code, ours.as_str(), error.as_str()), (0, "", ""), "no line is about it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colours_are_for_terminals_and_for_who_asks() {
    let (world, _) = world().await;
    let program = Program::of(&world).await;
    let green = "\u{1b}[32mTrue\u{1b}[0m";
    for (flags, expected) in [(&[][..], false), (&["--color", "always"], true), (&["--color=never"], false)] {
        let (_, out, _) = program.run(&[&["get", "gitsyncs", "-A"], flags].concat()).await;
        assert_eq!(out.contains(green), expected, "{flags:?}: {out}");
    }
    let shown = program.run_on_terminal(80, &["get", "gitsyncs", "-A"]).await;
    assert!(shown.contains(green), "{shown:?}");
    let shown = program.run_on_terminal(80, &["get", "gitsyncs", "-A", "--color", "never"]).await;
    assert!(!shown.contains('\u{1b}') && shown.contains("True"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_as_wide_as_the_terminal_and_whole_in_a_pipe() {
    let (world, _) = world().await;
    let missing = "r".repeat(150);
    world.sync("long", json!({"gitRepository": missing}));
    world.condition_is("long", "Ready", "False SourceNotFound").await;
    let program = Program::of(&world).await;
    for command in ["get gitsyncs -A", "status -A"] {
        let line: Vec<_> = command.split(' ').collect();
        let (_, whole, _) = program.run(&line).await;
        assert!(whole.contains(&missing) && !whole.contains('…'), "{command}: {whole}");
        let line = [&line[..], &["--color", "never"]].concat();
        for columns in [140, 180] {
            let shown = program.run_on_terminal(columns, &line).await;
            let longest = shown.lines().map(|line| line.chars().count()).max();
            assert_eq!(longest, Some(columns), "{command}: {shown}");
            assert!(shown.contains('…') && !shown.contains(&missing), "{command}: {shown}");
        }
        let shown = program.run_on_terminal(1000, &line).await;
        assert!(shown.contains(&missing) && !shown.contains('…'), "{command}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_show_the_version_that_serves() {
    let world = World::running(inline("exports.main = () => 1")).await;
    world.builds_end("push", 1, r#"{"reason":"DependencyInvalid","message":"no"}"#, Duration::ZERO);
    world.edit_function("hello", json!({"spec": {"source": "exports.main = () => 2"}}));
    world.says("hello", "BuildReady", "False").await;
    let newest = world.function_now("hello").unwrap()["metadata"]["generation"].as_i64().unwrap();
    let kubectl = Kubectl::of_world(&world.server, NAMESPACE).await;
    let table = kubectl.run(&["get", "functions"]).await;
    let cell = |title: &str| {
        let at = words(table.lines().next().unwrap()).iter().position(|word| word == title).unwrap();
        words(table.lines().nth(1).unwrap())[at].clone()
    };
    assert_eq!(cell("VERSION"), newest.to_string(), "{table}");
    assert_eq!(cell("SERVES"), (newest - 1).to_string(), "{table}");
    let (_, ours, _) = Program::of(&world).await.run(&["get", "functions", "-n", NAMESPACE]).await;
    assert_eq!(words(ours.lines().nth(1).unwrap())[..5], words(table.lines().nth(1).unwrap())[..5], "{ours}");
    assert_eq!(words(&ours)[7], "SERVES", "{ours}");
    assert_eq!(words(ours.lines().nth(1).unwrap())[7], (newest - 1).to_string(), "{ours}");
}
