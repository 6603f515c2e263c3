//! Names that no Git client writes. On manifests they are problems of the commit; on other files they are ignored.

use serde_json::json;

use mainstay_testkit::{
    git_server::GitServer,
    remote::NAME,
    world::{World, config_map},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_with_a_name_that_no_repository_may_hold_is_a_problem_that_names_it() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("over-http", &server.url(NAME));
    world.synced(json!({"gitRepository": "over-http"})).await;

    let map = |world: &World, name: &str| world.remote.blob(config_map(name, "1").as_bytes());
    let (b, c, d) = (map(&world, "b"), map(&world, "c"), map(&world, "d"));
    let within = world.remote.tree_of(&[("100644", b"b.yaml", b), ("100644", b"config", c)]);
    let only_config = world.remote.tree_of(&[("100644", b"config", c)]);
    let check = async |world: &mut World, entries: &[(&str, &[u8], git2::Oid)], expected: &[&str]| {
        let commit = world.remote.forged_of(entries);
        world.ask("demo").await;
        let said = world.condition("demo", "Ready");
        if expected.is_empty() {
            assert!(said.starts_with(&format!("True Applied: applied commit {commit}")), "{said}");
        } else {
            assert!(said.starts_with("False ManifestInvalid: "), "{said}");
        }
        for problem in expected {
            assert!(said.contains(problem), "{problem}: {said}");
        }
        for name in ["b", "c", "d"] {
            assert_eq!(world.data(name), "absent");
        }
        assert_eq!(world.data("a"), "1");
        world.remote.commit("without");
    };
    let text = ": the name is not plain UTF-8 text (";
    let both: [(&str, &[u8], _); 2] = [("100644", b"\xfe.yaml", b), ("100644", b"\xff.yaml", c)];
    check(&mut world, &both, &[&format!("\\xfe.yaml{text}"), &format!("\\xff.yaml{text}")]).await;
    check(&mut world, &[("40000", b"d\xff", within)], &[&format!("d\\xff/b.yaml{text}")]).await;
    check(&mut world, &[("100644", b"e\x1b[31m\n.yaml", b)], &[&format!("e\\u{{1b}}[31m\\n.yaml{text}")]).await;
    let reserved = ": the name is reserved by Git (";
    check(&mut world, &[("40000", b".git", within)], &[&format!(".git/b.yaml{reserved}")]).await;
    check(&mut world, &[("40000", b".GIT", within)], &[&format!(".GIT/b.yaml{reserved}")]).await;
    check(&mut world, &[("40000", b"..", within)], &[&format!("../b.yaml{reserved}")]).await;
    check(&mut world, &[("100644", b"x/b.yaml", b)], &[&format!("x/b.yaml{reserved}")]).await;
    let twice = ": the name is there twice in its directory (";
    check(&mut world, &[("100644", b"a.yaml", d)], &[&format!("a.yaml{twice}")]).await;
    let halves: [(&str, &[u8], _); 2] = [("40000", b"x", within), ("40000", b"x", within)];
    check(&mut world, &halves, &[&format!("x/b.yaml{twice}")]).await;
    // These files are not read.
    check(&mut world, &[("40000", b".git", only_config), ("100644", b"\xff.txt", b)], &[]).await;
}
