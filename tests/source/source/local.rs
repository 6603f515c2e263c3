//! Repositories on this machine.

use mainstay_git::watch_local;

use super::*;

#[tokio::test]
async fn local_repositories_are_read_where_that_is_allowed_and_watched() {
    let mut origin = small();
    let mirrors = tempfile::tempdir().unwrap();
    let remote = anonymous(origin.path().to_str().unwrap());
    let error = sync(&Source::new(settings(mirrors.path())), &remote, "main").await.unwrap_err();
    assert_eq!(error.class(), Class::Invalid);
    let file = anonymous(&format!("file://{}", origin.path().display()));
    assert!(sync(&Source::new(settings(mirrors.path())), &file, "main").await.is_err());

    let mut allowing = settings(mirrors.path());
    allowing.allow_local = true;
    let source = Source::new(allowing);
    let first = sync(&source, &remote, "main").await.unwrap();
    assert_eq!(files(&first, "apps").await, expected(&[("apps/b.yaml", "b: 1\n")]));
    assert_eq!(sync(&source, &file, "HEAD").await.unwrap().commit, first.commit);
    assert_eq!(sync(&source, &remote, &first.commit.to_string()).await.unwrap().commit, first.commit);
    assert_eq!(sync(&source, &remote, &"a".repeat(40)).await.unwrap_err().class(), Class::Invalid);
    let error = sync(&source, &anonymous(mirrors.path().to_str().unwrap()), "main").await.unwrap_err();
    assert_eq!((error.class(), chain(&error).contains("no Git repository")), (Class::Invalid, true));

    let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
    let watch = watch_local(&origin.path(), move || told.send(()).unwrap_or_default()).unwrap();
    let second = origin.file("a.yaml", "a: 2\n").annotated_tag("v1").commit("second");
    tokio::time::timeout(mainstay_testkit::PATIENCE, tells.recv()).await.unwrap().unwrap();
    assert_eq!(sync(&source, &remote, "main").await.unwrap().commit.to_string(), second);
    assert_eq!(sync(&source, &remote, "v1").await.unwrap().commit, first.commit);
    drop(watch);
    let ended = tokio::time::timeout(mainstay_testkit::PATIENCE, async { while tells.recv().await.is_some() {} }).await;
    assert!(ended.is_ok(), "the watch ends when it is dropped");
}

#[tokio::test]
async fn commits_of_git_in_a_work_tree_are_detected() {
    let directory = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str], at: &Path| {
        let mut command = mainstay_testkit::isolated("git");
        command.args(["-c", "user.name=x", "-c", "user.email=x@example.org"]).args(arguments).current_dir(at);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let tree = directory.path().join("tree");
    let linked = directory.path().join("linked");
    std::fs::create_dir(&tree).unwrap();
    git(&["init", "-q", "-b", "trunk"], &tree);
    git(&["commit", "-q", "--allow-empty", "-m", "first"], &tree);
    git(&["worktree", "add", "-q", "-b", "side", "../linked"], &tree);

    let mut allowing = settings(&directory.path().join("mirrors"));
    allowing.allow_local = true;
    let source = Source::new(allowing);
    for (path, branch) in [(&tree, "trunk"), (&linked, "side")] {
        let remote = anonymous(path.to_str().unwrap());
        let before = sync(&source, &remote, "HEAD").await.unwrap();
        assert_eq!(source.default_branch(&remote).await.unwrap().to_string(), branch);
        let (told, mut tells) = tokio::sync::mpsc::unbounded_channel();
        let _watch = watch_local(path, move || told.send(()).unwrap_or_default()).unwrap();
        std::fs::write(path.join("a.yaml"), "a: 1").unwrap();
        git(&["add", "a.yaml"], path);
        git(&["commit", "-q", "-m", "second"], path);
        let after = loop {
            tokio::time::timeout(mainstay_testkit::PATIENCE, tells.recv()).await.unwrap().unwrap();
            let now = sync(&source, &remote, branch).await.unwrap();
            if now.commit != before.commit {
                break now;
            }
        };
        assert_eq!(files(&after, "/").await, expected(&[("a.yaml", "a: 1")]));
        git(&["pack-refs", "--all"], path);
        assert_eq!(sync(&source, &remote, branch).await.unwrap().commit, after.commit);
    }
}
