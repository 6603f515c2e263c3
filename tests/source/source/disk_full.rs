//! A full volume: a small file system in its own mount namespace.

use super::*;

/// Environment variable of the child process with its mirrors' directory on a small file system.
const DIRECTORY: &str = "MAINSTAY_TEST_SMALL_DISK";
const NAME_HERE: &str = "source::disk_full::a_full_volume_is_a_named_error_that_damages_nothing_and_heals";

#[test]
fn a_full_volume_is_a_named_error_that_damages_nothing_and_heals() {
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(on_small_disk(Path::new(&directory)));
    }
    let directory = tempfile::tempdir().unwrap();
    let output = mainstay_testkit::isolated("unshare")
        .args(["--map-root-user", "--mount", "sh", "-ec"])
        .arg("mount -t tmpfs -o size=3m none \"$0\"; exec \"$@\"")
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME_HERE, "--nocapture"])
        .env(DIRECTORY, directory.path())
        .output()
        .expect("unshare is needed: apt-get install util-linux");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{} {out} {error}", output.status);
}

async fn on_small_disk(directory: &Path) {
    let mut bench = Bench::new(small()).await;
    let source = Source::new(settings(directory));
    drop(sync(&source, &bench.remote(), "main").await.unwrap());
    // The volume cannot hold both mirrors, although the budget allows both. The unused first mirror is evicted.
    for _ in 0..2 {
        let mut half = Origin::new();
        half.file("noise", budget::noise(1300 << 10)).commit("half of the volume");
        let server = GitServer::start(half.root()).await;
        drop(sync(&source, &anonymous(&server.url(NAME)), "main").await.unwrap());
        assert_eq!(server.take_counts().packs, 1);
    }
    // Each size exceeds the volume: the received pack, the indexed pack or its index does not fit.
    for (round, kibibytes) in [4000, 2900, 2600, 2000, 1600].into_iter().enumerate() {
        let mut large = Origin::new();
        large.file("noise", budget::noise(kibibytes << 10)).commit("large");
        let server = GitServer::start(large.root()).await;
        let remote = anonymous(&server.url(NAME));
        let error = sync(&source, &remote, "main").await.unwrap_err();
        let text = chain(&error);
        assert_eq!(error.class(), Class::Unavailable, "{kibibytes} KiB: {text}");
        assert!(text.contains("the volume of the mirrors is full; enlarge it"), "{kibibytes} KiB: {text}");
        assert_eq!(server.take_counts().packs, 1, "{kibibytes} KiB: it is asked for once");
        bench.origin.file("a.yaml", format!("a: {}\n", round + 2)).commit("next");
        let snapshot = sync(&source, &bench.remote(), "main").await.unwrap();
        assert_eq!(files(&snapshot, "/").await["a.yaml"], format!("a: {}\n", round + 2), "others go on");
        if kibibytes == 1600 {
            remount(directory, "16m");
            let snapshot = sync(&source, &remote, "main").await.unwrap();
            assert_eq!(snapshot.entries(&BaseDir::root()).unwrap().len(), 1, "it heals");
        }
    }
}

fn remount(directory: &Path, size: &str) {
    let status =
        mainstay_testkit::isolated("mount").args(["-o", &format!("remount,size={size}")]).arg(directory).status();
    assert!(status.unwrap().success());
}
