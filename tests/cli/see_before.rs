//! Previews of a work tree or a revision before it is committed or merged. A preview writes nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

use devcluster::{Action, Call, fault_injection::Fault, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::{
    git_server::GitServer,
    kubectl::Kubectl,
    program::{Program, mainstay},
    remote::NAME,
    server::TestServer,
    sops::{AgeKey, Sops},
    world::{NAMESPACE, World, config_map, deployment, open_definition},
};

/// A Secret value that no output may contain.
const CANARY: &str = "heron-teapot-7741";
/// The same value in base64.
const CANARY_BASE64: &str = "aGVyb24tdGVhcG90LTc3NDE=";

/// A clone of the repository.
struct Clone {
    directory: tempfile::TempDir,
}

impl Clone {
    fn of(world: &World) -> Self {
        let clone = Self { directory: tempfile::tempdir().unwrap() };
        clone.git(&["clone", "--quiet", &world.remote.path().to_string_lossy(), "."]);
        clone
    }

    fn git(&self, arguments: &[&str]) {
        let mut command = mainstay_testkit::isolated("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(arguments);
        let output = command.current_dir(self.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn text(&self) -> String {
        self.path().display().to_string()
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn remove(&self, name: &str) -> &Self {
        fs::remove_file(self.path().join(name)).unwrap();
        self
    }
}

/// Kinds of the tests' objects, which are compared on a real API server.
const KINDS: [(&str, &str); 4] =
    [("v1", "configmaps"), ("v1", "secrets"), ("apps/v1", "deployments"), ("mainstay.dev/v1alpha1", "gitsyncs")];

/// Records writes to the cluster from now on.
enum Writes {
    /// The embedded server reports every write.
    Told(devcluster::Subscription),
    /// On a real server, the earlier objects are compared, without the fields that its controllers write.
    Compared(Vec<Value>),
}

fn written(world: &World) -> Vec<Value> {
    let objects = KINDS.iter().flat_map(|(version, plural)| world.server.objects(version, plural, Some(NAMESPACE)));
    let parts = |object: &Value| {
        let metadata = &object["metadata"];
        json!([metadata["uid"], metadata["generation"], metadata["labels"], object["data"], object["spec"]])
    };
    objects.map(|object| parts(&object)).collect()
}

impl Writes {
    fn of(world: &World) -> Self {
        if let TestServer::External(_) = &world.server {
            return Self::Compared(written(world));
        }
        let mut events = world.server.embedded().subscribe();
        events.take();
        Self::Told(events)
    }

    fn are_none(&mut self, world: &World) {
        let events = match self {
            Self::Compared(before) => return assert_eq!(written(world), *before),
            Self::Told(events) => events,
        };
        let batch = events.take();
        // Controllers of the cluster continue to write Events, for example about pods that cannot be created.
        let storages = batch.events.iter().map(|event| event.storage.to_string());
        let written: Vec<_> = storages.filter(|storage| storage != "events").collect();
        assert!(!batch.missed && written.is_empty(), "{written:?}");
    }
}

/// Returns the number of requests so far by verb and resource.
fn requests(world: &World) -> std::collections::BTreeMap<String, u64> {
    let counts = world.server.embedded().faults().counts();
    let mut all = std::collections::BTreeMap::new();
    for count in counts {
        *all.entry(format!("{} {}", count.verb, count.resource)).or_default() += count.count;
    }
    all
}

/// Returns the requests since `before`.
fn since(world: &World, before: &std::collections::BTreeMap<String, u64>) -> Vec<String> {
    let all = requests(world).into_iter();
    all.filter(|(asked, count)| before.get(asked) != Some(count)).map(|(asked, _)| asked).collect()
}

/// A world whose agent applied the GitSync `demo` and then stopped.
async fn applied(mut world: World, files: &[(&str, String)], spec: Value) -> World {
    for (path, text) in files {
        world.remote.file(path, text);
    }
    world.remote.commit("one");
    world.synced(spec).await;
    world.stop().await;
    world
}

async fn world(files: &[(&str, String)], spec: Value) -> World {
    applied(World::new().await, files, spec).await
}

/// Returns the lines that begin with `+` or `-`, sorted, without generations and with uniform quotes.
fn changed_lines(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with(['+', '-']));
    let lines = lines.filter(|line| !["+++", "---"].iter().any(|head| line.starts_with(head)));
    let mut lines: Vec<_> =
        lines.filter(|line| !line.contains("generation:")).map(|line| line.replace('\'', "\"")).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_work_tree_is_compared_by_what_the_server_would_make_of_it_and_nothing_is_written() {
    let files = [
        ("apps/a.yaml", config_map("a", "1")),
        ("apps/web.yaml", deployment("web", "nginx:1", 1)),
        ("apps/old.yaml", config_map("old", "1")),
        ("apps/same.yaml", config_map("same", "1")),
    ];
    let world = world(&files, json!({"baseDir": "/apps"})).await;
    let clone = Clone::of(&world);
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert_eq!((code, &*out), (0, "GitSync mainstay-tests/demo: the work tree against the cluster\n4 unchanged\n"));

    let web = deployment("web", "nginx:2", 1).replace("name: A, value: \"1\"", "name: A, value: \"${A}\"");
    clone
        .file("apps/a.yaml", config_map("a", "2"))
        .file("apps/web.yaml", web)
        .file("apps/new.yaml", config_map("new", "1"))
        .file("apps/.gitignore", "ignored.yaml\n")
        .file("apps/ignored.yaml", config_map("ignored", "1"))
        .file("elsewhere.yaml", config_map("elsewhere", "1"))
        .remove("apps/old.yaml");
    let (before, mut writes) = (requests(&world), Writes::of(&world));
    let below = clone.path().join("apps").display().to_string();
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &below]).await;
    assert_eq!(code, 1, "{out}");
    for line in [
        "created    ConfigMap mainstay-tests/new (apps/new.yaml:1",
        "changed    ConfigMap mainstay-tests/a (apps/a.yaml:1",
        "deleted    ConfigMap mainstay-tests/old\n",
        "  -  key: '1'\n  +  key: '2'\n",
        "  @@ spec.template.spec.containers[0].env[0] @@",
        "1 created, 2 changed, 1 deleted, 1 unchanged\n",
    ] {
        assert!(out.contains(line), "{line:?} is not in\n{out}");
    }
    assert!(!out.contains("ignored") && !out.contains("elsewhere"), "{out}");
    writes.are_none(&world);
    let asked = since(&world, &before);
    assert!(asked.iter().any(|asked| asked.starts_with("apply ")), "{asked:?}");
    let may_write = |asked: &&String| !["get ", "list ", "apply "].iter().any(|verb| asked.starts_with(verb));
    assert_eq!(asked.iter().find(may_write), None);

    // `kubectl` finds the same differences in the present state.
    let kubectl = Kubectl::of_world(&world.server, NAMESPACE).await;
    let label = "mainstay.dev/sync: mainstay-tests.demo";
    let labelled = |name: &str| {
        let text = fs::read_to_string(clone.path().join("apps").join(name)).unwrap();
        text.replacen("metadata:\n", &format!("metadata:\n  labels: {{{label}}}\n"), 1)
    };
    let whole = clone.path().join("whole.yaml");
    fs::write(&whole, format!("{}---\n{}", labelled("a.yaml"), labelled("web.yaml"))).unwrap();
    let judged = kubectl
        .differences(&[
            "diff",
            "--server-side",
            "--force-conflicts",
            "--field-manager=mainstay",
            "-f",
            &whole.to_string_lossy(),
        ])
        .await;
    let (_, own, _) =
        Program::of(&world).await.run(&["diff", "demo", "--path", &below, "-n", NAMESPACE, "-o", "json"]).await;
    let own: Value = serde_json::from_str(&own).unwrap();
    let own = own["objects"].as_array().unwrap().iter().filter(|object| object["change"] == "changed");
    let own = own.map(|object| object["diff"].as_str().unwrap()).collect::<Vec<_>>().join("\n");
    assert_eq!(changed_lines(&own), changed_lines(&judged), "{own}\n{judged}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revision_is_fetched_as_the_agent_fetches_it_and_a_dry_run_of_a_sync_looks_at_the_tip() {
    let mut world = world(&[("a.yaml", config_map("a", "1"))], json!({})).await;
    let server = GitServer::start(world.remote.root()).await;
    server.require("me", CANARY);
    world.set_secret("git", json!({"username": "me", "password": CANARY}));
    let spec = json!({"spec": {"url": server.url(NAME), "auth": {"type": "basic", "secretName": "git"}}});
    world.edit("serverless.kyma-project.io/v1alpha1", "gitrepositories", "repo", spec);
    let (code, out) = mainstay(&world, &["sync", "demo", "--dry-run"]).await;
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("of main against the cluster\n1 unchanged\n"), "{out}");

    let proposed = world.remote.branch("proposed").file("b.yaml", config_map("b", "1")).commit("proposed");
    let repository = git2::Repository::open(world.remote.path()).unwrap();
    repository.reference("refs/pull/7/head", git2::Oid::from_str(&proposed).unwrap(), true, "").unwrap();
    world.remote.branch("main").file("a.yaml", config_map("a", "2")).commit("two");
    let mut writes = Writes::of(&world);
    for reference in ["proposed", "refs/pull/7/head", &proposed] {
        let (code, out) = mainstay(&world, &["diff", "demo", "--revision", reference]).await;
        assert_eq!(code, 1, "{out}");
        let found = ["created    ConfigMap mainstay-tests/b (b.yaml:1", "1 created, 1 unchanged"];
        assert!(found.iter().all(|line| out.contains(line)) && out.contains(&proposed[..8]), "{out}");
    }
    let program = Program::of(&world).await;
    let (code, out, error) = program.run(&["sync", "demo", "--dry-run", "-n", NAMESPACE, "-o", "json"]).await;
    assert_eq!((code, &*error), (1, ""));
    let facts: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        facts["counts"],
        json!({"created": 0, "changed": 1, "replaced": 0, "deleted": 0, "waiting": 0, "leftAlone": 0, "failed": 0, "unchanged": 0})
    );
    assert_eq!((&facts["commit"], &facts["objects"][0]["change"]), (&json!(world.remote.head()), &json!("changed")));
    writes.are_none(&world);
    assert_eq!(world.data("a"), "1");

    let (code, out) = mainstay(&world, &["diff", "demo", "--revision", "main~1"]).await;
    assert!(code == 0 && out.contains("1 unchanged"), "{out}");
    let (code, out) = mainstay(&world, &["diff", "demo", "--revision", "HEAD", "--against", "HEAD^"]).await;
    assert!(code == 1 && out.contains("-  key: '1'"), "{out}");
    let (code, out) = mainstay(&world, &["diff", "demo", "--revision", "HEAD~9"]).await;
    assert!(code == 2 && out.contains("the history does not go back that far"), "{out}");
    let (code, out) = mainstay(&world, &["diff", "demo", "--revision", "nowhere"]).await;
    assert!(code == 2 && out.contains("nowhere"), "{out}");
    // Reasons that block the agent are shown.
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"suspend": true}}));
    let (code, out) = mainstay(&world, &["sync", "demo", "--dry-run"]).await;
    assert!(code == 1 && out.contains("note: it is suspended"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_deletions_are_shown_with_the_reason() {
    let keeps =
        config_map("kept", "1").replace("metadata:\n", "metadata:\n  annotations: {mainstay.dev/prune: disabled}\n");
    let files = [
        ("a.yaml", config_map("a", "1")),
        ("b.yaml", config_map("b", "1")),
        ("kept.yaml", keeps),
        ("gone.yaml", config_map("gone", "1")),
    ];
    let world = world(&files, json!({})).await;
    let clone = Clone::of(&world);
    clone.remove("kept.yaml").remove("b.yaml").remove("gone.yaml");
    world.delete("v1", "configmaps", "gone");
    let preview = ["diff", "demo", "--path", &clone.text()];
    let (code, out) = mainstay(&world, &preview).await;
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("left alone ConfigMap mainstay-tests/kept\n  mainstay.dev/prune: disabled; to delete it:"),
        "{out}"
    );
    assert!(
        out.contains("deleted    ConfigMap mainstay-tests/b\n") && out.contains("1 deleted, 1 left alone, 1 unchanged"),
        "{out}"
    );

    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"prune": false}}));
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 0 && out.contains("spec.prune is false"), "{out}");
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"prune": true}}));
    clone.remove("a.yaml");
    let (code, out) = mainstay(&world, &preview).await;
    // A work tree has no commit that `allow-prune` could name.
    let allowed = "mainstay.dev/allow-prune=$(git rev-parse HEAD) # once it is committed";
    assert!(code == 0 && out.contains("held by a guard") && out.contains(allowed), "{out}");
    assert_eq!(out.matches("allow-prune=").count(), out.matches(allowed).count(), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_secrets_are_in_no_output() {
    let of = |value: &str, text: &str| {
        let secret = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{key: {value}, same: {CANARY}}}\n"
        );
        [
            ("s.yaml", secret),
            ("web.yaml", deployment("web", "nginx", 1).replace("value: \"1\"", &format!("value: \"{text}\""))),
            ("a.yaml", config_map("a", text)),
        ]
    };
    let from = json!([{"kind": "Secret", "name": "values"}]);
    let world = World::new().await;
    world.set_secret("values", json!({"PASSWORD": CANARY}));
    let world = applied(world, &of("first-value", "${PASSWORD}"), json!({"substituteFrom": from})).await;
    let clone = Clone::of(&world);
    let program = Program::of(&world).await;
    // First another Secret value, then a plain value.
    for text in ["x${PASSWORD}", "plain"] {
        for (path, text) in of("second-value", text) {
            clone.file(path, text);
        }
        for output in ["text", "wide", "json", "yaml", "markdown"] {
            let path = clone.text();
            let preview = ["diff", "demo", "--path", &path, "-o", output, "-n", NAMESPACE];
            let (code, out, error) = program.run(&preview).await;
            assert_eq!((code, &*error), (1, ""), "{out}");
            let base64 = ["Zmlyc3QtdmFsdWU", "c2Vjb25kLXZhbHVl"];
            for secret in [CANARY, CANARY_BASE64, "first-value", "second-value", base64[0], base64[1]] {
                assert!(!out.contains(secret), "{secret} is in {out}");
            }
            for seen in ["key: (masked, before)", "key: (masked, after)", "same: (masked)"] {
                assert!(out.contains(seen), "{seen} is not in {out}");
            }
            assert!(!out.contains("plain"), "what is there now is of a Secret: {out}");
        }
    }
    // The Secret has a different value than the cluster's object, and the commit no longer refers to it.
    world.set_secret("values", json!({"PASSWORD": "another-value"}));
    for (path, text) in of("second-value", "plain") {
        clone.file(path, text);
    }
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert!(code == 1 && !out.contains(CANARY) && out.contains("3 changed"), "{out}");
    let shallow = tempfile::tempdir().unwrap();
    for (path, text) in of("second-value", "plain") {
        fs::write(shallow.path().join(path), text).unwrap();
    }
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &shallow.path().display().to_string()]).await;
    assert!(code == 1 && !out.contains(CANARY) && out.contains("note: values are masked"), "{out}");
    world.delete("v1", "secrets", "values");
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert!(code == 2 && out.contains("spec.substituteFrom[0]: Secret values does not exist"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_whose_namespace_or_definition_comes_along_are_no_failure_and_refused_ones_are() {
    let world = world(&[("a.yaml", config_map("a", "1"))], json!({})).await;
    let clone = Clone::of(&world);
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-later}\n";
    let within = config_map("within", "1").replace("metadata:\n", "metadata:\n  namespace: mainstay-tests-later\n");
    let widget = "apiVersion: mainstay-tests.example.org/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n";
    clone
        .file("n.yaml", namespace)
        .file("within.yaml", within)
        .file("d.yaml", open_definition())
        .file("w.yaml", widget);
    let preview = ["diff", "demo", "--path", &clone.text()];
    let (code, out) = mainstay(&world, &preview).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("its namespace does not exist yet") && out.contains("its kind does not exist yet"), "{out}");
    assert!(out.contains("4 created, 1 unchanged"), "{out}");

    clone.file("a.yaml", config_map("a", "1").replace("\ndata:", "\nunknown: {a: 1}\ndata:"));
    let (code, out) = mainstay(&world, &preview).await;
    assert!(
        code == 2 && out.contains("failed     ConfigMap mainstay-tests/a (a.yaml:1") && out.contains("unknown"),
        "{out}"
    );
    clone.file("a.yaml", "a: [\n").file("w.yaml", "apiVersion: v1\nkind: ConfigMap\n");
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 2 && out.contains("a.yaml") && out.contains("w.yaml"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_objects_of_people_and_other_git_syncs_are_compared_as_the_agent_adopts_them() {
    let files = [("one/a.yaml", config_map("a", "1")), ("two/b.yaml", config_map("b", "1"))];
    let mut world = World::new().await;
    for (path, text) in &files {
        world.remote.file(path, text);
    }
    world.remote.commit("one");
    world.sync("other", json!({"baseDir": "/two"}));
    world.synced(json!({"baseDir": "/one"})).await;
    world.ready("other").await;
    world.stop().await;
    let by_hand: Value = serde_yaml::from_str(&config_map("hand", "1")).unwrap();
    world.create("v1", "configmaps", NAMESPACE, by_hand);
    world.delete("v1", "configmaps", "a");
    let clone = Clone::of(&world);
    clone.file("one/b.yaml", config_map("b", "2")).file("one/hand.yaml", config_map("hand", "1"));
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert_eq!(code, 2, "{out}");
    assert!(
        out.contains(
            "failed     ConfigMap mainstay-tests/b (one/b.yaml:1 (document 1))\n  GitSync mainstay-tests/other manages it\n"
        ),
        "{out}"
    );
    assert!(
        out.contains("changed    ConfigMap mainstay-tests/hand") && out.contains("+    mainstay.dev/sync"),
        "{out}"
    );
    assert!(out.contains("created    ConfigMap mainstay-tests/a "), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_go_at_an_adoption_are_shown_before_they_go() {
    let world = world(&[("a.yaml", config_map("a", "1"))], json!({})).await;
    let git = deployment("web", "nginx:1", 1);
    let mut theirs: Value = serde_yaml::from_str(&git).unwrap();
    theirs["metadata"]["labels"] = json!({"stale": "x"});
    let pods = &mut theirs["spec"]["template"]["spec"];
    pods["serviceAccountName"] = "nobody".into();
    pods["containers"].as_array_mut().unwrap().push(json!({"name": "sidecar", "image": "busybox:1"}));
    let call = |name: &str, action| Call::new("apps/v1", "deployments", NAMESPACE, name, action);
    world.write_as("kubectl-create", call("", Action::Create(theirs)));
    let controller = json!({"spec": {"minReadySeconds": 7}});
    world.write_as("some-controller", call("web", Action::Patch(Form::Merge, controller)));
    let clone = Clone::of(&world);
    clone.file("web.yaml", git);
    let mut writes = Writes::of(&world);
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("their fields that are not in the manifest are removed"), "{out}");
    let removed = out.lines().filter(|line| line.trim_start().starts_with('-')).collect::<Vec<_>>().join("\n");
    for part in ["stale: x", "sidecar", "busybox:1", "serviceAccount: nobody", "serviceAccountName: nobody"] {
        assert!(removed.contains(part), "{part}: {out}");
    }
    assert!(!removed.contains("minReadySeconds"), "{out}");
    writes.are_none(&world);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_revisions_are_compared_without_the_objects_of_the_cluster() {
    let world = world(&[("a.yaml", config_map("a", "1")), ("b.yaml", config_map("b", "1"))], json!({})).await;
    let clone = Clone::of(&world);
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "by hand"}}));
    clone.git(&["checkout", "--quiet", "-b", "proposed"]);
    clone.file("a.yaml", config_map("a", "2")).file("c.yaml", config_map("c", "1")).remove("b.yaml");
    let before = requests(&world);
    let (code, saved) = mainstay(&world, &["diff", "demo", "--path", &clone.text(), "--against", "main"]).await;
    assert_eq!(code, 1, "{saved}");
    assert!(
        saved.contains("the work tree against commit ")
            && saved.contains("1 created, 1 changed, 1 deleted, 0 unchanged"),
        "{saved}"
    );
    assert!(saved.contains("-  key: '1'") && !saved.contains("by hand"), "{saved}");
    clone.git(&["add", "."]);
    clone.git(&["commit", "--quiet", "-m", "proposed"]);
    let by_name = ["diff", "demo", "--revision", "proposed", "--against", "main", "--repository", &clone.text()];
    let (code, committed) = mainstay(&world, &by_name).await;
    let below = |text: &str| text.split_once('\n').unwrap().1.to_owned();
    assert_eq!((code, below(&committed)), (1, below(&saved)));
    let asked = since(&world, &before);
    assert!(
        !asked.is_empty() && asked.iter().all(|asked| !asked.contains("list ") && !asked.contains("apply ")),
        "{asked:?}"
    );
    let same = ["diff", "demo", "--revision", "main", "--against", "main", "--repository", &clone.text()];
    assert_eq!(mainstay(&world, &same).await.0, 0);
    let before = ["diff", "demo", "--revision", "proposed", "--against", "proposed~1", "--repository", &clone.text()];
    let (code, last) = mainstay(&world, &before).await;
    assert_eq!((code, below(&last)), (1, below(&saved)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_is_taken_from_a_file_and_a_path_of_the_agents_machine_is_not_read() {
    let world =
        world(&[("a.yaml", config_map("a", "1")), ("more/b.yaml", config_map("b", "1"))], json!({"baseDir": "/more"}))
            .await;
    let clone = Clone::of(&world);
    let file: PathBuf = clone.path().join("sync.yaml");
    let sync = json!({"apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "demo"},
        "spec": {"gitRepository": "repo", "baseDir": "/", "interval": "1h"}});
    fs::write(&file, sync.to_string()).unwrap();
    clone.file(".mainstayignore", "sync.yaml\n");
    let (path, file) = (clone.text(), file.display().to_string());
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &path, "--git-sync", &file]).await;
    assert!(
        code == 1 && out.contains("created    ConfigMap mainstay-tests/a ") && out.contains("1 unchanged"),
        "{out}"
    );
    let (code, out) = mainstay(&world, &["sync", "demo", "--dry-run"]).await;
    assert!(
        code == 2 && out.contains("is a local path of the agent's machine") && out.contains("--repository"),
        "{out}"
    );
    let (code, out) = mainstay(&world, &["diff", "demo", "-o", "markdown"]).await;
    assert!(code == 2 && out.contains("--path"), "{out}");
}

/// Makes the server refuse one request.
fn refuse(world: &World, verb: &str, resource: &str, name: &str) {
    let (verb, resource, name) = (verb.to_owned(), resource.to_owned(), name.to_owned());
    world.server.embedded().faults().fail_next(Fault { verb, resource, name, code: 403, times: 1, ..Fault::default() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_of_the_caller_decide() {
    let world =
        world(&[("a.yaml", config_map("a", "1")), ("web.yaml", deployment("web", "nginx", 1))], json!({})).await;
    let clone = Clone::of(&world);
    refuse(&world, "get", "deployments", "web");
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert_eq!(code, 2, "{out}");
    assert!(out.contains("failed     Deployment.apps mainstay-tests/web (web.yaml:1 ") && out.contains("403"), "{out}");
    assert!(out.contains("1 failed, 1 unchanged"), "{out}");
    refuse(&world, "apply", "configmaps", "a");
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert!(code == 2 && out.contains("failed     ConfigMap mainstay-tests/a (a.yaml:1 "), "{out}");
}

/// Runs the program without a cluster. Returns exit code and output.
fn without_cluster(arguments: &[&str]) -> (i32, String) {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    let output = command.args(arguments).args(["-n", NAMESPACE]).env_clear().output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout) + &text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_cluster_is_compared_as_the_cluster_itself() {
    let labelled = config_map("a", "1").replace("metadata:\n", "metadata:\n  labels: {team: one}\n");
    let widget = |size: u32| {
        format!(
            "apiVersion: mainstay-tests.example.org/v1\nkind: Widget\nmetadata: {{name: w}}\nspec: {{size: {size}}}\n"
        )
    };
    let files = [
        ("a.yaml", labelled),
        ("b.yaml", config_map("b", "n-${N}")),
        ("old.yaml", config_map("old", "1")),
        ("web.yaml", deployment("web", "nginx:1", 1)),
        ("d.yaml", open_definition()),
        ("w.yaml", widget(3)),
    ];
    let world = World::new().await;
    let values = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "values"}, "data": {"N": "1"}});
    world.create("v1", "configmaps", NAMESPACE, values);
    let world = applied(world, &files, json!({"substituteFrom": [{"kind": "ConfigMap", "name": "values"}]})).await;
    world.edit("v1", "configmaps", "b", json!({"data": {"key": "by hand"}}));
    let clone = Clone::of(&world);
    clone
        .file("a.yaml", config_map("a", "1"))
        .file("new.yaml", config_map("new", "n-${N}"))
        .file("web.yaml", deployment("web", "nginx:2", 1))
        .file("w.yaml", widget(4))
        .remove("old.yaml");
    let kinds = "configmaps,secrets,deployments,replicasets,pods,services,customresourcedefinitions,\
        widgets.mainstay-tests.example.org,gitsyncs.mainstay.dev,gitrepositories.serverless.kyma-project.io";
    let kubectl = Kubectl::of_world(&world.server, NAMESPACE).await;
    let place = tempfile::tempdir().unwrap();
    let save = async |name: &str, more: &[&str]| {
        let saved = kubectl.run(&[&["get", kinds, "-A", "-o", "yaml"], more].concat()).await;
        let file = place.path().join(name);
        fs::write(&file, saved).unwrap();
        file.display().to_string()
    };
    let saved = save("saved.yaml", &["--show-managed-fields"]).await;
    let path = clone.text();
    let (code, there) = mainstay(&world, &["diff", "demo", "--path", &path]).await;
    assert!(code == 1 && there.contains("1 created, 4 changed, 1 deleted, 1 unchanged"), "{there}");
    let preview = ["diff", "demo", "--path", &path, "--snapshot"];
    let (code, here) = without_cluster(&[&preview[..], &[&saved]].concat());
    assert_eq!((code, here), (1, there.replace("against the cluster", "against the snapshot")));

    // Without managed fields, the output names the limitation.
    let saved = save("without.yaml", &[]).await;
    let (code, here) = without_cluster(&[&preview[..], &[&saved]].concat());
    assert!(code == 1 && here.contains("note: the snapshot has no managedFields"), "{here}");
    assert!(here.contains("changed    Widget.mainstay-tests.example.org") && !here.contains("deleted    "), "{here}");

    // Missing objects of the snapshot are reported, and no variable remains unsubstituted.
    let text =
        fs::read_to_string(&saved).unwrap().replace("name: values\n    namespace:", "name: others\n    namespace:");
    fs::write(&saved, text).unwrap();
    let (code, here) = without_cluster(&[&preview[..], &[&saved]].concat());
    assert!(code == 2 && here.contains("spec.substituteFrom[0]: ConfigMap values does not exist"), "{here}");
    let unknown = place.path().join("unknown.yaml").display().to_string();
    fs::write(&unknown, "apiVersion: example.org/v1\nkind: Unknown\nmetadata: {name: a}\n").unwrap();
    let (code, here) = without_cluster(&[&preview[..], &[&saved, "--snapshot", &unknown]].concat());
    assert!(
        code == 2 && here.contains("example.org/v1 Unknown") && here.contains("CustomResourceDefinition"),
        "{here}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn immutable_paused_and_scaled_objects_are_shown_as_the_agent_treats_them() {
    let files = [
        ("web.yaml", deployment("web", "nginx:1", 1)),
        ("scaled.yaml", deployment("scaled", "nginx:1", 1)),
        ("paused.yaml", config_map("paused", "1")),
    ];
    let world = world(&files, json!({})).await;
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "scaled"},
        "spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}}});
    world.create("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, scaler);
    world.edit("apps/v1", "deployments", "scaled", json!({"spec": {"replicas": 3}}));
    let pause =
        json!({"metadata": {"annotations": {"mainstay.dev/reconcile": "disabled"}}, "data": {"key": "by hand"}});
    world.edit("v1", "configmaps", "paused", pause);
    let clone = Clone::of(&world);
    clone.file("web.yaml", deployment("web", "nginx:1", 1).replace("app: web", "app: other"));
    let preview = ["diff", "demo", "--path", &clone.text()];
    let before = world.get("apps/v1", "deployments", "web").unwrap();
    let (code, out) = mainstay(&world, &preview).await;
    assert_eq!(code, 2, "{out}");
    for line in [
        "failed     Deployment.apps mainstay-tests/web (web.yaml:1 (document 1))\n  an immutable field differs; ",
        "left alone ConfigMap mainstay-tests/paused (paused.yaml:1 (document 1))\n  it is paused",
        "1 left alone, 1 failed, 1 unchanged\n",
    ] {
        assert!(out.contains(line), "{line:?} is not in\n{out}");
    }
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"replace": ["Deployment.apps"]}}));
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 1 && out.contains("replaced   Deployment.apps mainstay-tests/web"), "{out}");
    assert!(
        out.contains("spec.replace allows the replacement of the object") && out.contains("+      app: other"),
        "{out}"
    );
    let after = world.get("apps/v1", "deployments", "web").unwrap();
    assert_eq!((&after["metadata"]["uid"], &after["spec"]), (&before["metadata"]["uid"], &before["spec"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_objects_are_compared_decrypted_and_not_shown() {
    let (sops, key) = (Sops::new(), AgeKey::new());
    let sealed = |value: &str| {
        let rule = ["--age", key.recipient.as_str(), "--encrypted-regex", "^data$"];
        sops.encrypt("m.yaml", &config_map("m", value), &rule)
    };
    let world = World::new().await;
    world.set_secret("keys", json!({"a.agekey": key.identity.as_str()}));
    let decryption = json!({"provider": "sops", "secretRef": {"name": "keys"}});
    let world = applied(world, &[("m.yaml", sealed(CANARY))], json!({"decryption": decryption})).await;
    assert_eq!(world.data("m"), CANARY);
    let clone = Clone::of(&world);
    let preview = ["diff", "demo", "--path", &clone.text()];
    // The same value is unchanged, although it is encrypted again.
    clone.file("m.yaml", sealed(CANARY));
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 0 && out.contains("1 unchanged"), "{out}");
    for text in [sealed("second-value"), config_map("m", "plain")] {
        clone.file("m.yaml", text);
        let (code, out) = mainstay(&world, &preview).await;
        assert!(code == 1 && out.contains("key: (masked, after)"), "{out}");
        assert!([CANARY, "second-value", "plain"].iter().all(|value| !out.contains(value)), "{out}");
    }
    world.delete("v1", "secrets", "keys");
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 2 && out.contains("Secret keys with the keys that decrypt does not exist"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_removed_for_a_manifest_are_shown() {
    let files = [("apps/web.yaml", deployment("web", "nginx:1", 4))];
    let world = world(&files, json!({"baseDir": "/apps"})).await;
    let clone = Clone::of(&world);
    let web =
        deployment("web", "nginx:1", 4).replace("spec:\n  replicas: 4\n", "spec:\n  strategy: {type: Recreate}\n");
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    clone.file("apps/web.yaml", web).file("apps/hpa.json", hpa.to_string());
    let mut writes = Writes::of(&world);
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert_eq!(code, 1, "{out}");
    for line in ["1 created, 1 changed", "-    rollingUpdate:\n", "-    type: RollingUpdate\n", "+    type: Recreate\n"]
    {
        assert!(out.contains(line), "{line:?} is not in\n{out}");
    }
    assert!(!out.contains("replicas: 4"), "the count stays for the autoscaler: {out}");
    writes.are_none(&world);
}
