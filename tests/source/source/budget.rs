//! All mirrors share a budget. The least recently used mirrors are evicted.

use std::fs::File;
use std::time::SystemTime;

use super::*;

/// Bytes of the incompressible file in each repository.
const FILE: usize = 400 << 10;
/// Budget for two mirrors.
const TWO: u64 = 1 << 20;

/// Returns incompressible bytes.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(bytes)
    .collect()
}

/// Some remotes with a mirror each, for a source with a budget.
struct Shelf {
    bench: Bench,
}

impl Shelf {
    async fn new() -> Self {
        let mut origin = Origin::new();
        origin.file("noise", noise(FILE)).commit("first");
        Self { bench: Bench::with(origin, |settings| settings.budget = TWO).await }
    }

    fn remote(&self, name: &str) -> Remote {
        basic(&self.bench.server.url(NAME), name, "password")
    }

    /// Fetches, and returns the number of packs.
    async fn fetched(&self, source: &Source, name: &str) -> usize {
        self.bench.server.take_counts();
        drop(sync(source, &self.remote(name), "main").await.unwrap());
        self.bench.server.take_counts().packs
    }

    async fn get(&self, name: &str) -> usize {
        self.fetched(&self.bench.source, name).await
    }

    fn mirrors(&self) -> usize {
        mirrors::packs(self.bench.mirrors.path()).len()
    }

    /// Returns a source on the same directory, as after a restart.
    fn restarted(&self) -> Source {
        let mut settings = settings(self.bench.mirrors.path());
        settings.budget = TWO;
        Source::new(settings)
    }
}

#[tokio::test]
async fn the_mirror_that_was_used_longest_ago_goes() {
    let shelf = Shelf::new().await;
    assert_eq!((shelf.get("a").await, shelf.get("b").await), (1, 1));
    assert_eq!((shelf.get("a").await, shelf.mirrors()), (0, 2));
    assert_eq!((shelf.get("c").await, shelf.mirrors()), (1, 2));
    assert_eq!(shelf.get("a").await, 0, "it was used after b");
    assert_eq!(shelf.get("b").await, 1, "it had gone");
    assert_eq!((shelf.get("a").await, shelf.get("c").await), (0, 1));
}

#[tokio::test]
async fn recency_survives_a_restart() {
    let shelf = Shelf::new().await;
    shelf.get("a").await;
    let of_a = lists(shelf.bench.mirrors.path());
    shelf.get("b").await;
    for list in lists(shelf.bench.mirrors.path()) {
        let age = if of_a.contains(&list) { 2 } else { 3 };
        let time = SystemTime::now() - Duration::from_secs(age * 3600);
        File::options().write(true).open(list).unwrap().set_modified(time).unwrap();
    }
    let source = shelf.restarted();
    assert_eq!(shelf.fetched(&source, "c").await, 1);
    assert_eq!(shelf.fetched(&source, "a").await, 0, "it was used after b");
    assert_eq!(shelf.fetched(&source, "b").await, 1, "it had gone");
}

#[tokio::test]
async fn a_use_is_written_down_once_an_hour() {
    let shelf = Shelf::new().await;
    shelf.get("a").await;
    let list = &lists(shelf.bench.mirrors.path())[0];
    let written = || std::fs::metadata(list).unwrap().modified().unwrap();
    let old = SystemTime::now() - Duration::from_secs(2 * 3600);
    File::options().write(true).open(list).unwrap().set_modified(old).unwrap();
    let source = shelf.restarted();
    shelf.fetched(&source, "a").await;
    let first = written();
    assert!(first > old + Duration::from_secs(3600));
    for _ in 0..5 {
        shelf.fetched(&source, "a").await;
    }
    assert_eq!(written(), first);
}

#[tokio::test]
async fn mirrors_in_use_stay_and_what_does_not_fit_beside_them_is_a_named_error() {
    let shelf = Shelf::new().await;
    let source = &shelf.bench.source;
    let a = sync(source, &shelf.remote("a"), "main").await.unwrap();
    let b = sync(source, &shelf.remote("b"), "main").await.unwrap();
    let error = sync(source, &shelf.remote("c"), "main").await.unwrap_err();
    assert_eq!(error.class(), Class::Unavailable);
    let text = chain(&error);
    assert!(
        text.contains("no space for this Git mirror: mirrors in use and the shares of other namespaces leave too little of the 1 MiB for all mirrors"),
        "{text}"
    );
    assert!(text.contains("raise `--mirror-budget` of the agent, and the volume with it"), "{text}");
    for snapshot in [&a, &b] {
        let entries = snapshot.entries(&BaseDir::root()).unwrap();
        assert_eq!(snapshot.read(&entries[0]).unwrap().len(), FILE, "others are unaffected");
    }
    assert_eq!((shelf.get("a").await, shelf.get("b").await), (0, 0));
    drop(a);
    assert_eq!(shelf.get("c").await, 1);
    assert_eq!(shelf.get("b").await, 0, "it is still read");
    drop(b);
}

#[tokio::test]
async fn fetches_of_one_namespace_do_not_evict_mirrors_of_others() {
    let shelf = Shelf::new().await;
    let (shop, greedy) = (shelf.bench.source.for_namespace("shop"), shelf.bench.source.for_namespace("greedy"));
    assert_eq!(shelf.fetched(&shop, "a").await, 1);
    for name in ["b", "c", "d"] {
        assert_eq!(shelf.fetched(&greedy, name).await, 1, "in place of its own");
    }
    assert_eq!(shelf.fetched(&shop, "a").await, 0, "it is still there");

    let mut large = Origin::new();
    large.file("noise", noise(2 << 20)).commit("more than all room");
    let server = GitServer::start(large.root()).await;
    let error = sync(&greedy, &anonymous(&server.url(NAME)), "main").await.unwrap_err();
    assert!(chain(&error).contains("no space for this Git mirror: "), "{}", chain(&error));
    assert_eq!(shelf.fetched(&shop, "a").await, 0, "it is still there");
}

#[tokio::test]
async fn leftovers_of_a_killed_process_are_no_mirror_and_go_first() {
    let shelf = Shelf::new().await;
    shelf.get("a").await;
    let directory = shelf.bench.mirrors.path();
    let unread = directory.join(format!("{}.unread/1", "0".repeat(32)));
    let unfinished = directory.join(format!("{}.git/1/objects/pack", "1".repeat(32)));
    for half in [&unread, &unfinished] {
        std::fs::create_dir_all(half).unwrap();
    }
    std::fs::write(unread.join("pack"), noise(200 << 10)).unwrap();
    std::fs::write(unfinished.join("pack_x7Kq"), noise(200 << 10)).unwrap();
    // A fetch into the existing mirror.
    let interrupted = mirrors::packs(directory)[0].with_file_name("pack_a1B2");
    std::fs::write(&interrupted, noise(100 << 10)).unwrap();

    let source = shelf.restarted();
    assert_eq!(shelf.fetched(&source, "a").await, 0);
    assert!(!interrupted.exists());
    assert_eq!(shelf.fetched(&source, "b").await, 1);
    assert!(!unread.exists() && !unfinished.exists(), "they made room");
    assert_eq!(shelf.fetched(&source, "a").await, 0, "which was enough");
}

/// Returns the lists of commits of all mirrors.
fn lists(directory: &Path) -> Vec<std::path::PathBuf> {
    let generation = |pack: std::path::PathBuf| pack.ancestors().nth(3).unwrap().join("held");
    mirrors::packs(directory).into_iter().map(generation).collect()
}
