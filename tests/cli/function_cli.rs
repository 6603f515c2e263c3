//! `mainstay function`: from a directory to a Function and back.

use std::{collections::BTreeMap, fs, path::Path};

use devcluster::fault_injection::Fault;
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{API, inline},
    kubectl::Kubectl,
    program::Program,
    world::{NAMESPACE, World, condition_of},
};

/// A world with an agent, the program, and a directory.
struct Desk {
    world: World,
    program: Program,
    home: tempfile::TempDir,
}

impl Desk {
    async fn new() -> Self {
        let mut world = World::with_functions().await;
        world.start();
        let program = Program::of(&world).await;
        Self { world, program, home: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.home.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a command that must succeed, and returns its standard output.
    async fn run(&self, arguments: &[&str]) -> String {
        let (code, out, error) = self.program.run(arguments).await;
        assert_eq!(code, 0, "{arguments:?}: {out}{error}");
        out
    }

    /// Runs a command that must fail, and returns its standard error.
    async fn refused(&self, arguments: &[&str]) -> String {
        let (code, out, error) = self.program.run(arguments).await;
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {error}");
        error
    }

    /// Creates a workspace of the Function `hello`.
    async fn init(&self, name: &str, more: &[&str]) -> String {
        let directory = self.path(name);
        self.run(&[&["function", "init", "--name", "hello", "-n", NAMESPACE, "--dir", &directory], more].concat())
            .await;
        directory
    }

    async fn sync(&self, name: &str) -> String {
        let directory = self.path(name);
        let said = self.run(&["function", "sync", "hello", "-n", NAMESPACE, "--dir", &directory]).await;
        assert_eq!(said, format!("- Function synchronised in {directory}\n"));
        directory
    }

    fn generation(&self) -> Value {
        self.world.function_now("hello").unwrap()["metadata"]["generation"].clone()
    }
}

fn config(directory: &str) -> String {
    format!("{directory}/config.yaml")
}

/// Appends lines to the configuration of a workspace.
fn extend(directory: &str, lines: &str) {
    let text = fs::read_to_string(config(directory)).unwrap();
    fs::write(config(directory), text + lines).unwrap();
}

/// Reads the files of a directory.
fn files(directory: &str) -> BTreeMap<String, String> {
    let all = fs::read_dir(directory).unwrap().map(Result::unwrap);
    all.map(|file| (file.file_name().into_string().unwrap(), fs::read_to_string(file.path()).unwrap())).collect()
}

fn apply<'a>(config: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["function", "apply", "--filename", config], more].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_becomes_a_function_and_the_function_the_same_directory() {
    for runtime in ["nodejs22", "python312"] {
        let desk = Desk::new().await;
        let first = desk.init("first", &["--runtime", runtime]).await;
        extend(
            &first,
            "labels:\n    app: shop\nresource:\n    limits:\n        memory: \"128Mi\"\nenv:\n    - name: GREETING\n      value: \
             \"Hello, {{ .World }}\"\n",
        );
        // Text that template engines, YAML or terminals would interpret.
        let handler = fs::read_dir(&first).unwrap().map(|file| file.unwrap().path());
        let handler = handler.into_iter().find(|path| path.file_stem().unwrap() == "handler").unwrap();
        let code = "  # {{ .Values }} \u{e4}\t\r\n\u{2028}\u{1b}[1m --- \n: *x\n\n";
        fs::write(&handler, fs::read_to_string(&handler).unwrap() + code).unwrap();

        let said = desk.run(&apply(&config(&first), &["--watch", "--timeout", "5m"])).await;
        assert!(said.starts_with("- Function - hello created\n"), "{said}");
        assert!(said.contains("\n  Running  True  DeploymentReady  "), "{said}");
        assert!(desk.world.is_running("hello"));

        let second = desk.sync("second").await;
        // Only the order of the added fields may differ.
        let written = files(&second);
        assert_eq!(written[handler.file_name().unwrap().to_str().unwrap()], fs::read_to_string(&handler).unwrap());
        let third = desk.sync("third").await;
        assert_eq!(files(&third), written);
        let before = desk.generation();
        for directory in [&first, &second, &third] {
            assert_eq!(desk.run(&apply(&config(directory), &[])).await, "- Function - hello unchanged\n");
        }
        assert_eq!(desk.generation(), before);
        let own = files(&first);
        desk.sync("first").await;
        assert_eq!(files(&first), own, "what already says so stays as it was");

        // Without additions the files are identical byte for byte.
        desk.world.delete_function("hello");
        let fresh = desk.init("fresh", &["--runtime", runtime]).await;
        desk.run(&apply(&config(&fresh), &[])).await;
        let back = desk.sync("back").await;
        assert_eq!(files(&back), files(&fresh));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_function_comes_with_its_repository_and_back() {
    let mut desk = Desk::new().await;
    desk.world.remote.file("hello/handler.js", "module.exports = { main: () => 1 }\n").commit("one");
    let url = desk.world.remote.path().display().to_string();
    let first = desk.init("first", &["--url", &url, "--base-dir", "/hello", "--repository-name", "code"]).await;
    assert_eq!(files(&first).keys().collect::<Vec<_>>(), ["config.yaml"]);
    let said = desk.run(&apply(&config(&first), &["-w", "-t", "5m"])).await;
    assert!(said.starts_with("- GitRepository - code created\n- Function - hello created\n"), "{said}");
    assert!(desk.world.is_running("hello"));
    let second = desk.sync("second").await;
    assert_eq!(files(&second), files(&first));
    let again = desk.run(&apply(&config(&second), &[])).await;
    assert_eq!(again, "- GitRepository - code unchanged\n- Function - hello unchanged\n");
}

/// A Function whose repository is its own, as `kubectl apply` created it, is written into a directory and applied
/// from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_with_a_repository_of_its_own_is_synchronised_and_applied() {
    let mut desk = Desk::new().await;
    desk.world.remote.file("hello/handler.js", "module.exports = { main: () => 1 }\n").commit("one");
    let url = desk.world.remote.path().display().to_string();
    let spec = json!({"type": "git", "source": "", "runtime": "nodejs22", "reference": "main", "baseDir": "/hello",
        "gitRepository": {"url": url}});
    desk.world.function("hello", spec);
    desk.world.until("it runs", |w| w.is_running("hello")).await;
    let directory = desk.sync("ws").await;
    let written = files(&directory)["config.yaml"].clone();
    assert!(written.contains("repository: \"\"") || written.contains("repository: ''"), "{written}");
    let again = desk.run(&apply(&config(&directory), &[])).await;
    assert_eq!(again, "- Function - hello unchanged\n");
    assert_eq!(desk.world.get(API, "gitrepositories", "hello"), None);
    assert_eq!(files(&desk.sync("ws").await)["config.yaml"], written);
    fs::write(config(&directory), written.replace("url: ", "uri: ")).unwrap();
    let refused = desk.refused(&apply(&config(&directory), &[])).await;
    assert!(refused.contains("url is missing"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_prints_what_is_applied_by_us_by_kubectl_and_from_git() {
    let mut desk = Desk::new().await;
    let directory = desk.init("ws", &["--runtime", "python312"]).await;
    fs::write(format!("{directory}/requirements.txt"), "requests==2.32.3\n").unwrap();
    extend(&directory, "env:\n- {name: A, value: 007}\nlabels: {team: \"on\"}\nresources: {limits: {cpu: 1}}\n");
    let config = config(&directory);
    let printed = desk.run(&apply(&config, &["--dry-run", "-o", "yaml"])).await;
    let as_json = desk.run(&apply(&config, &["--dry-run", "-o", "json"])).await;
    assert_eq!(desk.world.function_now("hello"), None);
    let document: Value = serde_yaml::from_str(&printed).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&as_json).unwrap(), document);
    let spec = |desk: &Desk| desk.world.function_now("hello").map(|function| function["spec"].clone());

    assert_eq!(desk.run(&apply(&config, &["-o", "yaml"])).await, printed);
    assert_eq!(spec(&desk).unwrap(), document["spec"]);
    desk.world.delete_function("hello");

    let kubectl = Kubectl::of(desk.world.server.embedded(), NAMESPACE).await;
    fs::write(format!("{directory}/printed.yaml"), &printed).unwrap();
    kubectl.run(&["apply", "-f", &format!("{directory}/printed.yaml")]).await;
    assert_eq!(spec(&desk).unwrap(), document["spec"]);
    desk.world.delete_function("hello");

    for (file, text) in [("f.yaml", &printed), ("f.json", &as_json)] {
        desk.world.remote.file(file, text).commit("printed");
        if file == "f.yaml" {
            desk.world.sync("demo", json!({}));
        } else {
            desk.world.remote.remove("f.yaml").commit("the same as JSON");
            desk.world.look();
        }
        let head = desk.world.remote.head();
        desk.world.ready_at("demo", &head).await;
        assert_eq!(spec(&desk).unwrap(), document["spec"], "{file}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_of_a_git_sync_is_changed_only_by_force_and_reverted() {
    let mut desk = Desk::new().await;
    let directory = desk.init("ws", &[]).await;
    let config = config(&directory);
    // Applied first, then committed with fewer fields.
    extend(&directory, "env:\n    - name: TRIED\n      value: \"1\"\n");
    desk.run(&apply(&config, &[])).await;
    fs::write(&config, fs::read_to_string(&config).unwrap().split("env:").next().unwrap()).unwrap();
    let printed = desk.run(&apply(&config, &["--dry-run", "-o", "yaml"])).await;
    desk.world.remote.file("f.yaml", &printed).commit("a Function");
    desk.world.sync("demo", json!({}));
    desk.world.ready("demo").await;
    assert_eq!(desk.world.function_now("hello").unwrap()["spec"].get("env"), None, "the branch decides");
    assert_eq!(files(&desk.sync("synced").await), files(&directory));

    let before = desk.world.function_now("hello").unwrap()["spec"].clone();
    fs::write(format!("{directory}/handler.js"), "module.exports = { main: () => 2 }\n").unwrap();
    let refused = desk.refused(&apply(&config, &[])).await;
    assert!(refused.contains("nothing was changed") && refused.contains("GitSync mainstay-tests/demo"), "{refused}");
    assert!(refused.contains("hint: commit the output"), "{refused}");
    assert_eq!(desk.world.function_now("hello").unwrap()["spec"], before);

    let (code, out, error) = desk.program.run(&apply(&config, &["--force"])).await;
    assert_eq!((code, out.as_str()), (0, "- Function - hello updated\n"), "{error}");
    assert!(error.contains("the GitSync mainstay-tests/demo reverts this"), "{error}");
    desk.world.until_function("it is reverted", |w| w.function_now("hello").unwrap()["spec"] == before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_of_others_are_named_and_taken_by_force_only() {
    let desk = Desk::new().await;
    desk.world.function("hello", inline("by hand"));
    let directory = desk.init("ws", &[]).await;
    let refused = desk.refused(&apply(&config(&directory), &[])).await;
    assert!(refused.contains(".spec.source: ") && refused.contains("hint: --force"), "{refused}");
    assert_eq!(desk.world.function_now("hello").unwrap()["spec"]["source"], "by hand");
    let said = desk.run(&apply(&config(&directory), &["--force"])).await;
    assert_eq!(said, "- Function - hello updated\n");
    let live = desk.world.function_now("hello").unwrap();
    assert_eq!(live["spec"]["source"], fs::read_to_string(format!("{directory}/handler.js")).unwrap());
    assert_eq!(live["spec"]["maxReplicas"], 1, "what the directory does not say stays");
    let (_, _, error) = desk.program.run(&["function", "sync", "hello", "-n", NAMESPACE, "-d", &directory]).await;
    assert_eq!(
        error,
        "! config.yaml does not contain, and `apply` does not change: spec.maxReplicas, spec.minReplicas\n"
    );
}

/// The first version is the storage version.
fn definition(group: &str, versions: &[&str], kind: &str, plural: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions = versions.iter().enumerate().map(
        |(at, name)| json!({"name": name, "served": true, "storage": at == 0, "schema": {"openAPIV3Schema": schema}}),
    );
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": versions.collect::<Vec<_>>(),
        },
    })
}

fn trigger_definition(versions: &[&str]) -> Value {
    definition("eventing.knative.dev", versions, "Trigger", "triggers")
}

const TRIGGERS: &str = "eventing.knative.dev/v1alpha1";
const NEWER_TRIGGERS: &str = "eventing.knative.dev/v1";
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
const TWO_TRIGGERS: &str = "triggers:\n    - eventTypeVersion: v1\n      source: orders\n      type: created\n    - eventTypeVersion: v1\n      \
     source: carts\n      type: created\n";

impl Desk {
    /// Creates CRDs and waits until they are served.
    async fn define(&self, definitions: Vec<Value>) {
        let names: Vec<_> =
            definitions.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect();
        for definition in definitions {
            self.world.create(DEFINITIONS.0, DEFINITIONS.1, "", definition);
        }
        let established = |w: &World, name: &str| {
            let definition = w.server.object(DEFINITIONS.0, DEFINITIONS.1, "", name);
            definition.is_some_and(|definition| condition_of(&definition["status"], "Established").starts_with("True"))
        };
        self.world.until("they are served", |w| names.iter().all(|name| established(w, name))).await;
    }

    /// Returns the output lines of a command, sorted.
    async fn lines(&self, arguments: &[&str]) -> Vec<String> {
        let said = self.run(arguments).await;
        let mut lines: Vec<_> = said.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    /// Returns the JSON objects that a command prints, sorted by name.
    async fn objects(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.run(arguments).await;
        let mut all: Vec<Value> = serde_json::Deserializer::from_str(&text).into_iter().map(Result::unwrap).collect();
        all.sort_by_key(|object| object["metadata"]["name"].to_string());
        all
    }
}

fn api_versions(objects: &[Value]) -> Vec<&str> {
    let of = objects.iter().filter(|object| object["kind"] == "Trigger");
    of.map(|object| object["apiVersion"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_and_api_rules_come_and_go_with_the_configuration() {
    let desk = Desk::new().await;
    let directory = desk.init("ws", &[]).await;
    let config = config(&directory);
    let bare = fs::read_to_string(&config).unwrap();
    let rules = "apiRules:\n    - service:\n          host: hello.example.org\n      rules:\n          - methods:\n                - GET\n";
    extend(&directory, &format!("{TWO_TRIGGERS}{rules}"));
    let refused = desk.refused(&apply(&config, &[])).await;
    let missing = format!(
        "nothing was changed: {config} cannot be applied here:\n  triggers: the cluster does not serve Trigger \
         (eventing.knative.dev/v1alpha1 or v1)\n  apiRules: the cluster does not serve APIRule \
         (gateway.kyma-project.io/v1alpha1)\n"
    );
    assert!(refused.contains(&missing), "{refused}");
    assert!(refused.contains("hint: triggers need Knative Eventing"), "{refused}");
    assert_eq!(desk.world.function_now("hello"), None, "nothing was applied");

    let rules = definition("gateway.kyma-project.io", &["v1alpha1"], "APIRule", "apirules");
    // If both versions are served, the older one is used.
    desk.define(vec![trigger_definition(&["v1alpha1", "v1"]), rules]).await;
    let said = desk.run(&apply(&config, &[])).await;
    let all = "- Function - hello created\n- Trigger - hello-orders created\n- Trigger - hello-carts created\n- APIRule - hello created\n";
    assert_eq!(said, all);
    let trigger = desk.world.get(TRIGGERS, "triggers", "hello-orders").unwrap();
    assert_eq!(trigger["spec"]["subscriber"]["ref"]["name"], "hello");
    assert_eq!(trigger["metadata"]["ownerReferences"][0]["uid"], desk.world.uid(API, "functions", "hello"));
    assert_eq!(desk.run(&apply(&config, &[])).await, all.replace("created", "unchanged"));
    assert_eq!(api_versions(&desk.objects(&apply(&config, &["-o", "json"])).await), [TRIGGERS; 2]);
    let synced = self::config(&desk.sync("synced").await);
    let printed = desk.objects(&apply(&synced, &["--dry-run", "-o", "json"])).await;
    assert_eq!(printed, desk.objects(&apply(&config, &["--dry-run", "-o", "json"])).await);

    // A user's own object also refers to the Function.
    let mut own = (*trigger).clone();
    own["metadata"] = json!({"name": "own", "namespace": NAMESPACE});
    desk.world.create(TRIGGERS, "triggers", NAMESPACE, own);
    fs::write(&config, &bare).unwrap();
    assert_eq!(
        desk.lines(&apply(&config, &[])).await,
        [
            "- APIRule - hello deleted",
            "- Function - hello unchanged",
            "- Trigger - hello-carts deleted",
            "- Trigger - hello-orders deleted"
        ]
    );
    assert!(desk.world.get(TRIGGERS, "triggers", "own").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_serves_triggers_of_v1_only_gets_those() {
    let desk = Desk::new().await;
    let directory = desk.init("ws", &[]).await;
    let config = config(&directory);
    let bare = fs::read_to_string(&config).unwrap();
    extend(&directory, TWO_TRIGGERS);
    desk.define(vec![trigger_definition(&["v1"])]).await;
    let printed = desk.objects(&apply(&config, &["--dry-run", "-o", "json"])).await;
    assert_eq!(api_versions(&printed), [TRIGGERS; 2], "no cluster is asked");

    let said = desk.run(&apply(&config, &[])).await;
    assert_eq!(said, "- Function - hello created\n- Trigger - hello-orders created\n- Trigger - hello-carts created\n");
    let live = desk.world.get(NEWER_TRIGGERS, "triggers", "hello-orders").unwrap();
    let expected = printed.iter().find(|object| object["metadata"]["name"] == "hello-orders").unwrap();
    assert_eq!(live["spec"], expected["spec"]);
    assert_eq!(api_versions(&desk.objects(&apply(&config, &["-o", "json"])).await), [NEWER_TRIGGERS; 2]);
    let own = files(&directory);
    desk.sync("ws").await;
    assert_eq!(files(&directory), own, "what already says so stays as it was");
    let synced = self::config(&desk.sync("synced").await);
    assert_eq!(desk.objects(&apply(&synced, &["--dry-run", "-o", "json"])).await, printed);
    assert!(desk.run(&apply(&synced, &[])).await.lines().all(|line| line.ends_with(" unchanged")));

    fs::write(&config, &bare).unwrap();
    let gone = ["- Function - hello unchanged", "- Trigger - hello-carts deleted", "- Trigger - hello-orders deleted"];
    assert_eq!(desk.lines(&apply(&config, &[])).await, gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_of_a_version_that_is_not_served_any_more_are_read_and_deleted_in_the_other() {
    let desk = Desk::new().await;
    let directory = desk.init("ws", &[]).await;
    let config = config(&directory);
    let bare = fs::read_to_string(&config).unwrap();
    extend(&directory, TWO_TRIGGERS);
    desk.define(vec![trigger_definition(&["v1alpha1", "v1"])]).await;
    desk.run(&apply(&config, &[])).await;

    let mut versions = trigger_definition(&["v1alpha1", "v1"])["spec"]["versions"].clone();
    versions[0]["served"] = false.into();
    let patch = Action::Patch(Form::Merge, json!({"spec": {"versions": versions}}));
    let call = Call::new(DEFINITIONS.0, DEFINITIONS.1, "", "triggers.eventing.knative.dev", patch);
    desk.world.try_as("kubectl-edit", call).unwrap();
    let is_served = |w: &World| w.get(TRIGGERS, "triggers", "hello-orders").is_some();
    desk.world.until("the older version is not served", |w| !is_served(w)).await;
    let printed = desk.objects(&apply(&config, &["-o", "json"])).await;
    assert_eq!(api_versions(&printed), [NEWER_TRIGGERS; 2]);
    let synced = self::config(&desk.sync("synced").await);
    assert!(desk.run(&apply(&synced, &[])).await.lines().all(|line| line.ends_with(" unchanged")));
    fs::write(&config, &bare).unwrap();
    let gone = ["- Function - hello unchanged", "- Trigger - hello-carts deleted", "- Trigger - hello-orders deleted"];
    assert_eq!(desk.lines(&apply(&config, &[])).await, gone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_on_the_way_purges_what_was_created_if_it_shall() {
    let desk = Desk::new().await;
    let directory = desk.init("ws", &["--url", "https://example.org/code.git"]).await;
    let config = config(&directory);
    // The dry run succeeds; the apply of the Function is refused.
    let fail = |code| {
        let fault =
            Fault { verb: "apply".into(), resource: "functions".into(), name: "hello".into(), ..Fault::default() };
        let faults = desk.world.server.embedded().faults();
        faults.fail_next(Fault { query: "dryRun=All".into(), ..fault.clone() });
        faults.fail_next(Fault { code, ..fault });
    };
    let repository = || desk.world.get(API, "gitrepositories", "hello");
    fail(503);
    let (code, out, _) = desk.program.run(&apply(&config, &[])).await;
    assert_eq!(code, 2);
    assert_eq!(out, "- GitRepository - hello created\nX Function - hello can't be applied\n");
    assert!(repository().is_some());

    fail(503);
    let (code, out, _) = desk.program.run(&apply(&config, &["--onerror", "purge"])).await;
    assert_eq!(code, 2);
    assert_eq!(out, "- GitRepository - hello unchanged\nX Function - hello can't be applied\n", "it was there before");
    assert!(repository().is_some());

    desk.world.delete(API, "gitrepositories", "hello");
    fail(503);
    let (code, out, _) = desk.program.run(&apply(&config, &["--on-error=purge"])).await;
    assert_eq!(code, 2);
    let all = "- GitRepository - hello created\nX Function - hello can't be applied\n- GitRepository - hello deleted\n";
    assert_eq!(out, all);
    desk.world.until("it is gone", |w| w.get(API, "gitrepositories", "hello").is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_something_else_are_not_replaced() {
    let desk = Desk::new().await;
    let first = desk.init("first", &[]).await;
    desk.run(&apply(&config(&first), &[])).await;
    let other = desk.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(format!("{other}/handler.js"), "mine").unwrap();
    let sync = ["function", "sync", "hello", "-n", NAMESPACE, "--dir", &other];
    let refused = desk.refused(&sync).await;
    assert!(refused.contains(&format!("nothing was written: handler.js in {other} would be lost")), "{refused}");
    assert_eq!(files(&other).len(), 1);
    desk.run(&[&sync[..], &["--overwrite"]].concat()).await;
    assert_eq!(files(&other), files(&first));

    // `sync` updates a workspace of this Function at the paths of its files.
    fs::create_dir(format!("{other}/src")).unwrap();
    fs::rename(format!("{other}/handler.js"), format!("{other}/src/main.js")).unwrap();
    let text = fs::read_to_string(config(&other)).unwrap();
    let text = format!("# mine\n{text}    sourceHandlerName: src/main.js\n");
    fs::write(config(&other), &text).unwrap();
    desk.world.edit_function("hello", json!({"spec": {"source": "changed"}}));
    desk.sync("other").await;
    assert_eq!(fs::read_to_string(format!("{other}/src/main.js")).unwrap(), "changed");
    assert_eq!(fs::read_to_string(config(&other)).unwrap(), text, "with its comments");
    assert!(!Path::new(&format!("{other}/handler.js")).exists());

    let refused = desk.refused(&["sync", "function", "nobody", "-n", NAMESPACE, "-d", &other]).await;
    assert!(
        refused.starts_with("error: Function.serverless.kyma-project.io mainstay-tests/nobody does not exist\n"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_does_not_come_to_run_ends_the_wait() {
    let desk = Desk::new().await;
    let directory = desk.init("ws", &[]).await;
    let config = config(&directory);
    desk.world.builds_wait();
    let (code, out, error) =
        desk.program.run(&apply(&config, &["--watch", "--timeout", "1s", "--output", "none"])).await;
    assert_eq!((code, out.as_str()), (1, ""), "{error}");
    assert!(error.contains("timed out"), "{error}");
    fs::write(format!("{directory}/handler.js"), "2").unwrap();
    desk.world.builds_end("push", 1, r#"{"message": "no room"}"#, std::time::Duration::ZERO);
    let (code, out, _) = desk.program.run(&apply(&config, &["--watch"])).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("  BuildReady  False  JobFailed  "), "{out}");
}
