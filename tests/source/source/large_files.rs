//! Files in Git LFS, with pointers as git-lfs writes them.

use super::*;
use mainstay_testkit::large_files::{Fault as Large, LargeFile};

fn pointer(content: &str) -> (String, String) {
    let LargeFile { pointer, oid } = LargeFile::of(content);
    (pointer, oid)
}

fn with_lfs(remote: Remote) -> Remote {
    Remote { lfs: true, ..remote }
}

/// Returns the manifests of the newest commit, including those in Git LFS.
async fn got(source: &Source, remote: &Remote) -> Result<BTreeMap<String, String>, Error> {
    got_below(source, remote, "/").await
}

async fn got_below(source: &Source, remote: &Remote, base_dir: &str) -> Result<BTreeMap<String, String>, Error> {
    let base_dir = BaseDir::parse(base_dir).unwrap();
    let list = move |snapshot: &Snapshot| {
        let listing = snapshot.listing(&base_dir, &SkippedTrees::new(mainstay_manifest::reads))?;
        let mut read = |entry: &mainstay_git::Entry| snapshot.read(entry);
        mainstay_manifest::not_ignored(
            listing,
            base_dir.path(),
            &mut read,
            &mainstay_manifest::Limits::new(|| Duration::ZERO),
        )
    };
    let snapshot = sync(source, remote, "main").await?;
    let snapshot = source.fetch_large_files(remote, snapshot, list.clone()).await?;
    let entries = list(&snapshot)?;
    entries
        .iter()
        .map(|entry| {
            let content = snapshot.read(entry)?;
            assert_eq!(content.len() as u64, entry.size, "{}", entry.path);
            Ok((entry.path.clone(), String::from_utf8(content).unwrap()))
        })
        .collect()
}

/// Returns the files of Git LFS in the mirrors, complete or not.
fn kept(mirrors: &Path) -> Vec<String> {
    let below = |directory: &Path| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
        entries.collect::<Vec<_>>()
    };
    let generations = below(mirrors).iter().flat_map(|mirror| below(mirror)).collect::<Vec<_>>();
    let files = generations.iter().flat_map(|generation| below(&generation.join("lfs")));
    let mut names: Vec<_> = files.map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn files_that_are_read_are_fetched_once_and_checked() {
    let large = "a: 1\n".repeat(1000);
    let (text, oid) = pointer(&large);
    let (other, _) = pointer("never read");
    let mut origin = Origin::new();
    origin
        .file("a.yaml", &text)
        .file("again.yaml", &text)
        .file("b.yaml", "b: 1\n")
        .file("model.bin", other)
        .commit("one");
    let bench = Bench::new(origin).await;
    bench.server.keep(&oid, large.as_bytes());
    bench.server.require("me", "correct horse battery");
    let remote = with_lfs(basic(&bench.server.url(NAME), "me", "correct horse battery"));
    let all = expected(&[("a.yaml", large.as_str()), ("again.yaml", large.as_str()), ("b.yaml", "b: 1\n")]);
    assert_eq!(got(&bench.source, &remote).await.unwrap(), all);
    assert_eq!(bench.server.take_large_requests(), (1, 1), "one content");
    assert_eq!(got(&bench.source, &remote).await.unwrap(), all);
    assert_eq!(got(&Source::new(settings(bench.mirrors.path())), &remote).await.unwrap(), all);
    assert_eq!(bench.server.take_large_requests(), (0, 0), "it is kept in the mirror");

    let kept = lfs_file(bench.mirrors.path(), &oid);
    std::fs::write(&kept, "b: 2\n".repeat(1000)).unwrap();
    let text = chain(&got(&bench.source, &remote).await.unwrap_err());
    assert!(text.contains("the mirror is damaged (a file in Git LFS); the next fetch replaces it"), "{text}");
    assert_eq!(got(&bench.source, &remote).await.unwrap(), all);
    assert_eq!(bench.server.take_large_requests(), (1, 1));

    let plain = Remote { lfs: false, ..remote };
    assert_eq!(got(&bench.source, &plain).await.unwrap()["a.yaml"], pointer(&large).0, "a pointer stays one");
}

/// Returns the path of a file in a mirror.
fn lfs_file(mirrors: &Path, oid: &str) -> std::path::PathBuf {
    let pack = mirrors::packs(mirrors)[0].clone();
    pack.ancestors().nth(3).unwrap().join("lfs").join(oid)
}

#[tokio::test]
async fn credentials_do_not_go_to_the_server_that_lfsconfig_names() {
    let large = "a: 1\n".repeat(100);
    let (text, oid) = pointer(&large);
    let elsewhere = Bench::new(small()).await;
    elsewhere.server.keep(&oid, large.as_bytes());
    let mut origin = Origin::new();
    let config = format!("[lfs]\n\turl = {}/info/lfs\n", elsewhere.server.url(NAME));
    origin.file("a.yaml", &text).file(".lfsconfig", config).commit("one");
    let bench = Bench::new(origin).await;
    bench.server.require("me", "correct horse battery");
    let remote = with_lfs(basic(&bench.server.url(NAME), "me", "correct horse battery"));
    elsewhere.server.take_counts();
    assert_eq!(got(&bench.source, &remote).await.unwrap(), expected(&[("a.yaml", large.as_str())]));
    assert_eq!(elsewhere.server.take_large_requests(), (1, 1));
    assert_eq!(elsewhere.server.take_counts().with_credentials, 0);
}

#[tokio::test]
async fn credentials_do_not_go_to_where_the_files_are() {
    let large = "a: 1\n".repeat(100);
    let (text, oid) = pointer(&large);
    let elsewhere = Bench::new(small()).await;
    elsewhere.server.keep(&oid, large.as_bytes());
    let mut origin = Origin::new();
    origin.file("a.yaml", &text).commit("one");
    let bench = Bench::new(origin).await;
    bench.server.keep(&oid, b"");
    bench.server.require("me", "correct horse battery");
    let remote = with_lfs(basic(&bench.server.url(NAME), "me", "correct horse battery"));
    elsewhere.server.take_counts();
    bench.server.keep_at("http://169.254.169.254");
    let text = chain(&got(&bench.source, &remote).await.unwrap_err());
    assert!(text.contains("connections to link-local and metadata addresses are refused"), "{text}");
    bench.server.keep_at(&elsewhere.server.url(NAME));
    assert_eq!(got(&bench.source, &remote).await.unwrap(), expected(&[("a.yaml", large.as_str())]));
    assert_eq!(elsewhere.server.take_large_requests(), (0, 1));
    assert_eq!(elsewhere.server.take_counts().with_credentials, 0);
    elsewhere.server.require("other", "password");
    std::fs::remove_file(lfs_file(bench.mirrors.path(), &oid)).unwrap();
    let text = chain(&got(&bench.source, &remote).await.unwrap_err());
    assert!(text.contains("those of the repository are sent to its own server only"), "{text}");
}

#[tokio::test]
async fn faults_of_a_large_file_server_are_named_failures() {
    let large = "a: 1\n".repeat(100);
    let (text, oid) = pointer(&large);
    let mut origin = Origin::new();
    origin.file("a.yaml", &text).commit("one");
    let bench = Bench::with(origin, |settings| {
        settings.limits.file_bytes = 10_000;
        settings.deadlines.silence = Duration::from_secs(2);
    })
    .await;
    let elsewhere = GitServer::start(bench.origin.root()).await;
    elsewhere.keep(&oid, large.as_bytes());
    let remote = with_lfs(bench.remote());
    let failure = async |class: Class, words: &str| {
        let error = got(&bench.source, &remote).await.unwrap_err();
        let text = chain(&error);
        assert!(text.starts_with("fetch a.yaml, which is kept in Git LFS: ") && text.contains(words), "{text}");
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(error.class(), class, "{text}");
        assert!(kept(bench.mirrors.path()).is_empty(), "{text}");
    };
    failure(Class::Unavailable, "the server does not have the file; push it again").await;
    bench.server.keep(&oid, "b: 1\n".repeat(100).as_bytes());
    failure(Class::Unavailable, "the server sent a different file than the pointer specifies").await;
    bench.server.keep(&oid, &large.as_bytes()[..499]);
    failure(Class::Unavailable, "the server sent a different file than the pointer specifies").await;
    bench.server.keep(&oid, large.repeat(2).as_bytes());
    failure(Class::Unavailable, "the server sent a different file than the pointer specifies").await;
    for (fault, class, words) in [
        (Fault::Status(500), Class::Unavailable, "the server answered 500"),
        (Fault::Status(401), Class::Denied, "the server answered 401"),
        (Fault::Status(404), Class::Unavailable, "no LFS server grants read access"),
        (Fault::Html, Class::Denied, "web page"),
        (Fault::Redirect(elsewhere.base()), Class::Invalid, "which is not followed"),
    ] {
        bench.server.fail(On::Packs, fault);
        failure(class, words).await;
        bench.server.heal();
    }
    let action = |href: &str, header: serde_json::Value| {
        let actions = serde_json::json!({"download": {"href": href, "header": header}});
        serde_json::json!({"objects": [{"oid": &oid, "size": 1, "actions": actions}]})
    };
    let other = "0".repeat(64);
    let other = serde_json::json!({"objects": [{"oid": other, "actions": {"download": {"href": elsewhere.base()}}}]});
    let no_header = "the server requires request headers that are invalid or too many";
    for (fault, class, words) in [
        (Large::Batch(other), Class::Unavailable, "the response of the LFS server does not list the file"),
        (
            Large::Batch(serde_json::json!({"message": "canary"})),
            Class::Unavailable,
            "the server returned an invalid response",
        ),
        (Large::Batch(action("http://169.254.169.254/", serde_json::json!({}))), Class::Unavailable, "link-local"),
        (Large::Batch(action("gopher://canary/", serde_json::json!({}))), Class::Unavailable, "a different scheme"),
        (
            Large::Batch(action(&bench.server.base(), serde_json::json!({"a b": "canary"}))),
            Class::Unavailable,
            no_header,
        ),
        (
            Large::Batch(action(&bench.server.base(), serde_json::json!({"a": "canary\r\nb: c"}))),
            Class::Unavailable,
            no_header,
        ),
        (Large::EndlessBatch, Class::Invalid, "the server's response in bytes is larger than the limit of 524288"),
        (Large::EndlessFile, Class::Unavailable, "the server sent a different file than the pointer specifies"),
        (Large::StalledFile, Class::Unavailable, "timed out after 2 s while waiting for a response"),
        (Large::FileStatus(401), Class::Denied, "the server answered 401"),
        (Large::FileStatus(404), Class::Unavailable, "the server does not have the file; push it again"),
        (Large::FileStatus(503), Class::Unavailable, "the server answered 503"),
        (Large::FileRedirect(elsewhere.base()), Class::Invalid, "which is not followed"),
    ] {
        bench.server.fail_large(fault);
        failure(class, words).await;
    }
    bench.server.fail_large(None);
    bench.server.keep(&oid, large.as_bytes());
    assert!(got(&bench.source, &remote).await.is_ok(), "and recovers");
    assert_eq!(kept(bench.mirrors.path()), [oid]);
    assert_eq!(elsewhere.take_counts().requests, 0);
}

#[tokio::test]
async fn files_of_one_repository_are_not_served_to_another() {
    let large = "a: secret\n".repeat(100);
    let (text, oid) = pointer(&large);
    let bench_with = async || {
        let mut origin = Origin::new();
        origin.file("a.yaml", &text).commit("one");
        Bench::new(origin).await
    };
    let (owner, thief) = (bench_with().await, bench_with().await);
    owner.server.keep(&oid, large.as_bytes());
    owner.server.require("me", "correct horse battery");
    let (mine, theirs) = (owner.source.for_namespace("mine"), owner.source.for_namespace("theirs"));
    let remote = with_lfs(basic(&owner.server.url(NAME), "me", "correct horse battery"));
    assert_eq!(got(&mine, &remote).await.unwrap()["a.yaml"], large);

    // A pointer in another repository with a known digest does not give access.
    let text = chain(&got(&theirs, &with_lfs(thief.remote())).await.unwrap_err());
    assert!(text.contains("the server does not have the file"), "{text}");
    thief.server.keep(&oid, b"guess");
    assert!(got(&theirs, &with_lfs(thief.remote())).await.is_err());
    for remote in [anonymous(&owner.server.url(NAME)), basic(&owner.server.url(NAME), "me", "guess")] {
        assert_eq!(got(&theirs, &with_lfs(remote)).await.unwrap_err().class(), Class::Denied);
    }
    assert_eq!(kept(owner.mirrors.path()), [oid], "once");
}

#[tokio::test]
async fn all_files_of_a_commit_have_a_limit_together() {
    let files: Vec<_> = ["a", "b", "c"].iter().map(|letter| letter.repeat(40_000)).collect();
    let mut origin = Origin::new();
    for (name, content) in ["a.yaml", "b.yaml", "c.yaml"].iter().zip(&files) {
        origin.file(name, pointer(content).0);
    }
    origin.commit("one");
    let bench = Bench::with(origin, |settings| settings.limits.mirror_bytes = 100_000).await;
    for content in &files {
        bench.server.keep(&pointer(content).1, content.as_bytes());
    }
    let remote = with_lfs(bench.remote());
    let error = got(&bench.source, &remote).await.unwrap_err();
    let text = chain(&error);
    assert!(
        text.contains("the repository with all files in Git LFS in bytes is larger than the limit of 100000"),
        "{text}"
    );
    assert_eq!((error.class(), bench.server.take_large_requests()), (Class::Invalid, (0, 0)));
}

#[tokio::test]
async fn files_that_are_left_out_are_not_fetched() {
    let (text, oid) = pointer("a: 1\n");
    let mut origin = Origin::new();
    origin
        .file("apps/a.yaml", &text)
        .file("apps/.mainstayignore", "ignored.yaml\n")
        .file("other/b.yaml", pointer("b").0);
    origin.file("apps/ignored.yaml", pointer("c").0).commit("one");
    let bench = Bench::new(origin).await;
    bench.server.keep(&oid, b"a: 1\n");
    let found = got_below(&bench.source, &with_lfs(bench.remote()), "/apps").await.unwrap();
    assert_eq!(found["apps/a.yaml"], "a: 1\n");
    assert_eq!(kept(bench.mirrors.path()), [oid]);
}

#[tokio::test]
async fn consumers_that_come_together_fetch_once() {
    let (text, oid) = pointer("a: 1\n");
    let mut origin = Origin::new();
    origin.file("a.yaml", &text).commit("one");
    let bench = Bench::new(origin).await;
    bench.server.keep(&oid, b"a: 1\n");
    let remote = with_lfs(bench.remote());
    for found in futures::future::join_all((0..8).map(|_| got(&bench.source, &remote))).await {
        assert_eq!(found.unwrap()["a.yaml"], "a: 1\n");
    }
    assert_eq!(bench.server.take_large_requests(), (1, 1));
}

#[tokio::test]
async fn a_wait_for_a_file_holds_up_no_other_namespace() {
    let [(kept, oid), (stalled, _)] = ["a: 1\n", "b: 1\n"].map(pointer);
    let mut origin = Origin::new();
    origin.file("kept/a.yaml", &kept).file("stalled/b.yaml", &stalled).commit("one");
    let bench = Bench::new(origin).await;
    bench.server.keep(&oid, b"a: 1\n");
    bench.server.keep(&pointer("b: 1\n").1, b"b: 1\n");
    let remote = with_lfs(bench.remote());
    let (mine, theirs) = (bench.source.for_namespace("mine"), bench.source.for_namespace("theirs"));
    got_below(&mine, &remote, "/kept").await.unwrap();
    bench.server.take_large_requests();
    bench.server.fail_large(Large::StalledFile);
    let others = async {
        let mut downloads = 0;
        while downloads < 2 {
            downloads += bench.server.take_large_requests().1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Stored files need no server.
        for source in [&mine, &theirs] {
            assert_eq!(got_below(source, &remote, "/kept").await.unwrap()["kept/a.yaml"], "a: 1\n");
        }
    };
    tokio::select! {
        () = others => {}
        _ = got_below(&mine, &remote, "/stalled") => panic!("it has no answer"),
        _ = got_below(&theirs, &remote, "/stalled") => panic!("it has no answer"),
    }
}

#[tokio::test]
async fn rules_in_git_lfs_are_rules() {
    let (rules, oid) = pointer("left-out.yaml\n.mainstayignore\n");
    let mut origin = Origin::new();
    origin.file("a.yaml", "a: 1\n").file("left-out.yaml", "b: 1\n").file(".mainstayignore", &rules).commit("one");
    let bench = Bench::new(origin).await;
    bench.server.keep(&oid, b"left-out.yaml\n.mainstayignore\n");
    let found = got(&bench.source, &with_lfs(bench.remote())).await.unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), [".mainstayignore", "a.yaml"]);
}

#[tokio::test]
async fn files_of_submodules_come_from_the_server_of_these() {
    let contents = ["own: 1\n", "lib: 1\n"];
    let [own, of_lib] = contents.map(LargeFile::of);
    let mut lib = Origin::new();
    let commit = lib.file("lib.yaml", &of_lib.pointer).commit("lib");
    let libs = GitServer::start(lib.root()).await;
    libs.keep(&of_lib.oid, contents[1].as_bytes());
    let mut origin = Origin::new();
    let modules = format!("[submodule \"lib\"]\n\tpath = sub/lib\n\turl = {}\n", libs.url(NAME));
    origin.file("a.yaml", &own.pointer).file(".gitmodules", modules).submodule_at("sub/lib", &commit).commit("one");
    let bench = Bench::new(origin).await;
    bench.server.keep(&own.oid, contents[0].as_bytes());
    bench.server.require("me", "correct horse battery");
    let remote = basic(&bench.server.url(NAME), "me", "correct horse battery");
    let remote = Remote { submodules: true, ..with_lfs(remote) };
    let all = expected(&[("a.yaml", contents[0]), ("sub/lib/lib.yaml", contents[1])]);
    assert_eq!(got(&bench.source, &remote).await.unwrap(), all);
    for base_dir in ["/sub", "/sub/lib"] {
        let below = expected(&[("sub/lib/lib.yaml", contents[1])]);
        assert_eq!(got_below(&bench.source, &remote, base_dir).await.unwrap(), below);
    }
    assert_eq!((bench.server.take_large_requests(), libs.take_large_requests()), ((1, 1), (1, 1)));
    assert_eq!(libs.take_counts().with_credentials, 0);

    let commit = lib.file("lib.yaml", LargeFile::of("gone").pointer).commit("two");
    bench.server.let_everyone_in();
    let mut origin = bench.origin;
    origin.submodule_at("sub/lib", &commit).commit("two");
    let text = chain(&got(&bench.source, &remote).await.unwrap_err());
    let expected =
        "fetch the submodule sub/lib: fetch lib.yaml, which is kept in Git LFS: the server does not have the";
    assert!(text.starts_with(expected), "{text}");
}

#[tokio::test]
async fn the_ssh_server_of_a_repository_says_where_the_files_are() {
    let (text, oid) = pointer("a: 1\n");
    let mut bench = ssh::SshBench::new().await;
    bench.origin.file("a.yaml", &text).commit("large");
    let files = GitServer::start(bench.origin.root()).await;
    files.keep(&oid, b"a: 1\n");
    files.require_authorization("RemoteAuth canary");
    let path = bench.path("key");
    mainstay_testkit::ssh_server::generate(&path, "ed25519", &[]);
    let key = std::fs::read_to_string(&path).unwrap();
    let remote = with_lfs(bench.remote(&[("key", &key)]));
    let serve = bench.origin.root().join("serve.sh");
    let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
    bench.server.authorize_for(&public, "exec sh ./serve.sh \\\"$SSH_ORIGINAL_COMMAND\\\"");
    let answer = |script: &str| {
        let script = format!("case \"$1\" in git-lfs-authenticate*) {script};; *) exec git-shell -c \"$1\";; esac\n");
        std::fs::write(&serve, script).unwrap();
    };
    let failure = async |words: &str| {
        let text = chain(&got(&bench.source, &remote).await.unwrap_err());
        assert!(text.starts_with("fetch a.yaml, which is kept in Git LFS: ") && text.contains(words), "{text}");
        assert!(!text.contains("canary"), "{text}");
    };
    let none =
        "the server does not run git-lfs-authenticate; write the https:// address of its LFS server into .lfsconfig";
    for script in ["exit 127", "echo canary >&2; exit 1", "exec git-shell -c \"$1\""] {
        answer(script);
        failure(none).await;
    }
    for script in ["echo canary", "true", "echo '{\"href\": \"file:///canary\"}'"] {
        answer(script);
        failure("the response of git-lfs-authenticate cannot be read").await;
    }
    let said = |authorization: &str| {
        let href = format!("{}/info/lfs", files.url(NAME));
        let said = serde_json::json!({"href": href, "header": {"Authorization": authorization}, "expires_in": 60});
        format!("case \"$1\" in \"git-lfs-authenticate '\"*\"{NAME}' download\") echo '{said}';; esac")
    };
    answer(&said("RemoteAuth wrong canary"));
    failure("the server answered 401").await;
    answer("while true; do echo '                                                                '; done");
    failure("the server's response in bytes is larger than the limit of 524288").await;
    answer(&said("RemoteAuth canary"));
    assert_eq!(got(&bench.source, &remote).await.unwrap()["a.yaml"], "a: 1\n");
    assert_eq!(files.take_large_requests(), (1, 1));
}

/// Runs git with git-lfs in its own home.
async fn git(home: &Path, directory: &Path, arguments: &[&str]) {
    let mut command = mainstay_testkit::isolated_async("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]);
    command.args(arguments).current_dir(directory).env("HOME", home).env("GIT_CONFIG_GLOBAL", home.join("config"));
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_of_git_lfs_has_the_files_that_git_lfs_checks_out() {
    let (room, bench) = (tempfile::tempdir().unwrap(), Bench::new(small()).await);
    let (home, work, judge) = (room.path(), room.path().join("work"), room.path().join("judge"));
    let url = bench.server.url(NAME);
    git(home, home, &["lfs", "install", "--skip-repo"]).await;
    git(home, home, &["clone", "--quiet", &url, "work"]).await;
    git(home, &work, &["lfs", "track", "*.yaml", "*.bin"]).await;
    std::fs::create_dir_all(work.join("deep/er")).unwrap();
    for (name, content) in
        [("a.yaml", "a: 2\n".repeat(5000)), ("deep/er/b.yaml", "b: 2\n".into()), ("e.yaml", String::new())]
    {
        std::fs::write(work.join(name), content).unwrap();
    }
    std::fs::write(work.join("deep/model.bin"), vec![255; 100_000]).unwrap();
    git(home, &work, &["add", "--all"]).await;
    git(home, &work, &["commit", "--quiet", "-m", "large"]).await;
    git(home, &work, &["-c", "lfs.locksverify=false", "lfs", "push", "--all", "origin"]).await;
    git(home, &work, &["push", "--quiet", "--no-verify", bench.origin.path().to_str().unwrap(), "HEAD:main"]).await;
    git(home, home, &["clone", "--quiet", &url, "judge"]).await;

    let remote = with_lfs(bench.remote());
    let all = |snapshot: &Snapshot| snapshot.entries(&BaseDir::root());
    let snapshot = sync(&bench.source, &remote, "main").await.unwrap();
    let snapshot = bench.source.fetch_large_files(&remote, snapshot, all).await.unwrap();
    let entries = all(&snapshot).unwrap();
    assert_eq!(entries.len(), 6, "{entries:?}");
    for entry in entries {
        let content = snapshot.read(&entry).unwrap();
        assert!(content == std::fs::read(judge.join(&entry.path)).unwrap(), "{}", entry.path);
        assert!(!content.starts_with(b"version https://git-lfs"), "{}", entry.path);
    }
}

#[tokio::test]
async fn a_file_larger_than_the_limit_is_not_asked_for() {
    let (text, oid) = pointer(&"a: 1\n".repeat(100));
    let mut origin = Origin::new();
    origin.file("a.yaml", &text).commit("one");
    let bench = Bench::with(origin, |settings| settings.limits.file_bytes = 499).await;
    bench.server.keep(&oid, b"x");
    let text = chain(&got(&bench.source, &with_lfs(bench.remote())).await.unwrap_err());
    assert!(text.contains("the file in bytes is larger than the limit of 499"), "{text}");
    assert_eq!(bench.server.take_large_requests(), (0, 0));
}
