//! Lookups and fetches of references, commits and trees.

use mainstay_git::EntryKind;

use super::*;

#[tokio::test]
async fn follows_a_branch_from_commit_to_commit() {
    let mut bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    assert_eq!(files(&first, "/").await, expected(&[("a.yaml", "a: 1\n"), ("apps/b.yaml", "b: 1\n")]));
    assert_eq!(&*first.header.subject, "first");

    let second = bench.origin.file("apps/b.yaml", "b: 2\n").remove("a.yaml").commit("second");
    let snapshot = bench.sync("main").await.unwrap();
    assert_eq!(snapshot.commit.to_string(), second);
    assert_eq!(files(&snapshot, "apps").await, expected(&[("apps/b.yaml", "b: 2\n")]));
    assert_eq!(files(&first, "/").await.len(), 2, "a snapshot is immutable");
}

#[tokio::test]
async fn an_unchanged_remote_costs_one_small_request() {
    let bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    bench.server.take_counts();
    let again = bench.sync("main").await.unwrap();
    assert_eq!(again.commit, first.commit);
    let counts = bench.server.take_counts();
    assert_eq!((counts.requests, counts.packs), (1, 0));
    assert!(counts.bytes_in + counts.bytes_out < 500, "{counts:?}");
}

#[tokio::test]
async fn a_changed_file_among_many_is_all_that_is_sent() {
    let mut origin = Origin::new();
    for number in 0..500 {
        origin.file(&format!("d{}/{number}.yaml", number % 10), format!("n: {number} {}\n", "x".repeat(200)));
    }
    origin.commit("many");
    let mut bench = Bench::new(origin).await;
    bench.sync("main").await.unwrap();
    let whole = bench.server.take_counts().bytes_out;
    bench.origin.file("d3/3.yaml", "n: changed\n").commit("one");
    let snapshot = bench.sync("main").await.unwrap();
    let changed = bench.server.take_counts().bytes_out;
    assert!(changed < 3000 && whole > 5 * changed, "{whole} then {changed}");
    assert_eq!(files(&snapshot, "d3").await["d3/3.yaml"], "n: changed\n");
    assert_eq!(files(&snapshot, "/").await.len(), 500);
}

#[tokio::test]
async fn history_is_not_fetched() {
    let mut origin = Origin::new();
    // Incompressible bytes.
    let mut noise = fastrand::Rng::with_seed(7);
    for number in 0..8 {
        let bytes = (0..256 << 10).map(|_| noise.u8(..)).collect::<Vec<_>>();
        origin.file("video.bin", bytes).file("a.yaml", format!("a: {number}\n")).commit("large");
    }
    origin.remove("video.bin").commit("small again");
    let bench = Bench::new(origin).await;
    for version in ["2", "0"] {
        if version == "0" {
            bench.server.speak_version_zero();
            // Another source has no state of the first source.
            let mirrors = tempfile::tempdir().unwrap();
            let source = Source::new(settings(mirrors.path()));
            sync(&source, &bench.remote(), "main").await.unwrap();
        } else {
            bench.sync("main").await.unwrap();
        }
        let brought = bench.server.take_counts().bytes_out;
        assert!(brought < 3000, "{brought} bytes were sent in version {version}");
    }
}

#[tokio::test]
async fn references_are_tried_as_full_name_commit_branch_and_tag() {
    let mut origin = small();
    let first = origin.tag("light").annotated_tag("heavy").branch("v1").commit("on v1");
    let old = origin.branch("main").tag("v1").commit("old");
    let new = origin.commit("new");
    let bench = Bench::new(origin).await;
    for version in ["2", "0"] {
        let commit = async |reference: &str| match bench.sync(reference).await {
            Ok(snapshot) => snapshot.commit.to_string(),
            Err(error) => panic!("version {version}, {reference}: {}", chain(&error)),
        };
        assert_eq!(commit("main").await, new);
        assert_eq!(commit("HEAD").await, new);
        assert_eq!(commit("v1").await, first, "a branch before a tag");
        assert_eq!(commit("refs/tags/v1").await, commit("light").await);
        assert_eq!(commit("heavy").await, commit("light").await, "annotated tags are followed");
        assert_eq!(commit(&old).await, old);
        assert_eq!(commit(&old.to_uppercase()).await, old);
        forget(&bench.source, &bench.remote());
        bench.server.speak_version_zero();
    }
}

#[tokio::test]
async fn a_commit_that_is_on_no_branch_tip_is_found_where_the_server_has_only_version_0() {
    let mut origin = small();
    let old = origin.file("a.yaml", "old\n").commit("old");
    origin.file("a.yaml", "new\n").commit("new");
    let mut bench = Bench::new(origin).await;
    bench.server.speak_version_zero();
    let snapshot = bench.sync(&old).await.unwrap();
    assert_eq!(files(&snapshot, "/").await["a.yaml"], "old\n");
    let (class, text) = bench.failure(&"a".repeat(40)).await;
    assert_eq!(class, Class::Invalid, "{text}");
    assert!(text.contains("no such commit"), "{text}");

    forget(&bench.source, &bench.remote());
    bench.origin.configure("uploadpack.allowAnySHA1InWant", "true");
    bench.server.take_counts();
    assert!(bench.sync(&old).await.is_ok());
    assert_eq!(bench.server.take_counts().packs, 1, "the server gives any commit by its id");
}

#[tokio::test]
async fn version_0_is_incremental_too() {
    let mut bench = Bench::new(small()).await;
    bench.server.speak_version_zero();
    bench.sync("main").await.unwrap();
    let second = bench.origin.file("a.yaml", "a: 2\n").commit("second");
    assert_eq!(bench.sync("main").await.unwrap().commit.to_string(), second);
}

#[tokio::test]
async fn follows_a_force_push_to_an_unrelated_commit_and_back() {
    let mut bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    bench.origin.clear().file("c.yaml", "c\n").orphan("rewritten");
    let rewritten = bench.sync("main").await.unwrap();
    assert_eq!(files(&rewritten, "/").await, expected(&[("c.yaml", "c\n")]));
    bench.origin.force(&first.commit.to_string());
    bench.server.take_counts();
    assert_eq!(bench.sync("main").await.unwrap().commit, first.commit);
    assert_eq!(bench.server.take_counts().packs, 0, "it was in the mirror");
}

#[tokio::test]
async fn tree_ids_change_with_their_directory_only() {
    let mut bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    bench.origin.file("a.yaml", "a: 2\n").commit("outside");
    let second = bench.sync("main").await.unwrap();
    let id = async |snapshot: &Snapshot, path: &str| {
        let base_dir = BaseDir::parse(path).unwrap();
        snapshot.tree(&base_dir).await.unwrap()
    };
    assert_eq!(id(&first, "apps").await, id(&second, "/apps/").await);
    assert_ne!(id(&first, "/").await, id(&second, "/").await);
    assert_eq!(id(&second, "nothing").await, None);
    assert_eq!(id(&second, "a.yaml").await, None, "a file is no directory");
    let error = second.entries(&BaseDir::parse("nothing").unwrap()).unwrap_err();
    assert_eq!((error.class(), chain(&error).contains("no such directory")), (Class::Invalid, true));
}

#[tokio::test]
async fn links_and_submodules_are_entries_and_never_followed() {
    let mut origin = small();
    origin.symlink("link.yaml", "/etc/passwd").submodule("sub").commit("more");
    let bench = Bench::new(origin).await;
    let snapshot = bench.sync("main").await.unwrap();
    let kinds: Vec<_> = snapshot.entries(&BaseDir::root()).unwrap();
    let kind = |path: &str| kinds.iter().find(|entry| entry.path == path).unwrap();
    assert_eq!(kind("link.yaml").kind, EntryKind::Symlink);
    assert_eq!(snapshot.read(kind("link.yaml")).unwrap(), b"/etc/passwd");
    assert_eq!(kind("sub").kind, EntryKind::Submodule);
    assert_eq!((kind("a.yaml").kind, kind("a.yaml").size), (EntryKind::File, 5));
}

#[tokio::test]
async fn one_lookup_serves_concurrent_requests() {
    let mut origin = small();
    origin.branch("dev").commit("dev");
    let bench = Bench::new(origin).await;
    bench.sync("main").await.unwrap();
    bench.sync("dev").await.unwrap();
    bench.server.take_counts();
    let remote = bench.remote();
    let ask =
        async |reference: &str| bench.source.lookup(&remote, &Reference::parse(reference).unwrap(), NOW).await.unwrap();
    let (main, dev, _) = tokio::join!(ask("main"), ask("dev"), ask("main"));
    assert_ne!(main.commit, dev.commit);
    assert!(bench.server.take_counts().requests <= 2);
    let aged = Duration::from_secs(60);
    bench.source.lookup(&bench.remote(), &Reference::parse("dev").unwrap(), aged).await.unwrap();
    assert_eq!(bench.server.take_counts().requests, 0, "a fresh answer is used again");
}

#[tokio::test]
async fn a_missing_reference_is_reported_with_the_existing_ones() {
    let mut bench = Bench::new(small()).await;
    bench.origin.branch("dev");
    assert!(bench.sync("dev").await.is_ok());
    bench.origin.drop_branch("dev");
    let (class, text) = bench.failure("dev").await;
    assert_eq!(class, Class::Invalid);
    assert!(text.contains("look up dev") && text.contains("default branch is main"), "{text}");
    let empty = Bench::new(Origin::new()).await;
    for _ in 0..2 {
        let (class, text) = empty.failure("main").await;
        assert!(class == Class::Invalid && text.contains("empty"), "{text}");
        empty.server.speak_version_zero();
    }
    let gone = anonymous(&bench.server.url("nothing.git"));
    assert_eq!(sync(&bench.source, &gone, "main").await.unwrap_err().class(), Class::Invalid);
    for closed in ["http://127.0.0.1:1/x.git", "https://127.0.0.1:1/x.git"] {
        let error = sync(&bench.source, &anonymous(closed), "main").await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable);
        assert!(chain(&error).contains("no connection"), "{}", chain(&error));
    }
    let plain = bench.server.url(NAME).replace("http://", "https://");
    let error = sync(&bench.source, &anonymous(&plain), "main").await.unwrap_err();
    assert_eq!(error.class(), Class::Unavailable, "TLS that is none: {}", chain(&error));
    assert_eq!(bench.source.default_branch(&bench.remote()).await.unwrap().to_string(), "main");
}

#[tokio::test]
async fn a_lookup_among_20000_references_receives_little() {
    let bench = Bench::new(small()).await;
    bench.origin.packed_tags(20_000);
    for reference in ["main", "tag-12345", "refs/tags/tag-00007", "HEAD"] {
        let reference = Reference::parse(reference).unwrap();
        bench.server.take_counts();
        bench.source.lookup(&bench.remote(), &reference, NOW).await.unwrap();
        let bytes = bench.server.take_counts().bytes_out;
        assert!(bytes < 10_000, "{reference}: {bytes} bytes");
    }
}
