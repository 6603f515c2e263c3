//! Previews of a revision, of the difference between two revisions, and of a GitSync in a file.

use std::path::PathBuf;

use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::remote::NAME;

use super::*;

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
