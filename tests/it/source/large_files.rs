//! Files in Git LFS, with the pointers that git-lfs makes.

use super::*;
use crate::support::large_files::LargeFile;

fn pointer(content: &str) -> (String, String) {
    let LargeFile { pointer, oid } = LargeFile::of(content);
    (pointer, oid)
}

fn with_lfs(remote: Remote) -> Remote {
    Remote { lfs: true, ..remote }
}

/// The files of the newest commit that are manifests, with those in Git LFS.
async fn got(source: &Source, remote: &Remote) -> Result<BTreeMap<String, String>, Error> {
    let snapshot = sync(source, remote, "main").await?;
    let is_read = mainstay::manifest::reads;
    let snapshot = source.fetch_large_files(remote, snapshot, &BaseDir::root(), is_read).await?;
    let entries = snapshot.listing(&BaseDir::root(), is_read)?;
    entries
        .iter()
        .map(|entry| {
            let content = snapshot.read(entry)?;
            assert_eq!(content.len() as u64, entry.size, "{}", entry.path);
            Ok((entry.path.clone(), String::from_utf8(content).unwrap()))
        })
        .collect()
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

/// Where a mirror keeps a file.
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
    assert!(text.contains("link-local addresses are not connected to"), "{text}");
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
async fn what_a_server_of_large_files_does_wrong_is_a_named_failure() {
    let large = "a: 1\n".repeat(100);
    let (text, oid) = pointer(&large);
    let mut origin = Origin::new();
    origin.file("a.yaml", &text).commit("one");
    let bench = Bench::with(origin, |settings| settings.limits.file_bytes = 10_000).await;
    let remote = with_lfs(bench.remote());
    let failure = async |class: Class, words: &str| {
        let error = got(&bench.source, &remote).await.unwrap_err();
        let text = chain(&error);
        assert!(text.starts_with("fetch a.yaml, which is kept in Git LFS: ") && text.contains(words), "{text}");
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(error.class(), class, "{text}");
    };
    failure(Class::Unavailable, "the server does not have the file; push it again").await;
    bench.server.keep(&oid, "b: 1\n".repeat(100).as_bytes());
    failure(Class::Unavailable, "the server sent another file than the pointer names").await;
    bench.server.keep(&oid, large.repeat(2).as_bytes());
    failure(Class::Invalid, "the server's answer in bytes is larger than the limit of 500").await;
    for (fault, class, words) in [
        (Fault::Status(500), Class::Unavailable, "the server answered 500"),
        (Fault::Status(401), Class::Denied, "the server answered 401"),
        (Fault::Html, Class::Denied, "web page"),
        (Fault::Redirect("http://127.0.0.1:1".into()), Class::Invalid, "which is not followed"),
    ] {
        bench.server.fail(On::Packs, fault);
        failure(class, words).await;
        bench.server.heal();
    }
    bench.server.keep(&oid, large.as_bytes());
    assert!(got(&bench.source, &remote).await.is_ok(), "and recovers");
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
