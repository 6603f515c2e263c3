//! Previews of a work tree or a revision before it is committed or merged. A preview writes nothing.

mod outcomes;
mod revisions;
mod secret_values;
mod snapshots;

use std::fs;
use std::path::Path;

use devcluster::fault_injection::Fault;
use serde_json::{Value, json};

use mainstay_testkit::kubectl::Kubectl;
use mainstay_testkit::program::{Program, mainstay};
use mainstay_testkit::server::TestServer;
use mainstay_testkit::world::{NAMESPACE, World, config_map, deployment, open_definition};

/// A Secret value that no output may contain.
const CANARY: &str = "heron-teapot-7741";

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
