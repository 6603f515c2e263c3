//! Mirrors on disk: growth, damage, and removal.

use super::*;

#[tokio::test]
async fn a_mirror_that_grew_is_cloned_again_and_old_readers_go_on() {
    let mut bench = Bench::with(small(), |settings| settings.limits.mirror_packs = 3).await;
    let first = bench.sync("main").await.unwrap();
    for number in 0..8 {
        bench.origin.file("a.yaml", format!("a: {number}\n")).commit("next");
        let snapshot = bench.sync("main").await.unwrap();
        assert_eq!(files(&snapshot, "/").await["a.yaml"], format!("a: {number}\n"));
        assert!(packs(bench.mirrors.path()).len() <= 6, "one generation that is read and one that grows");
    }
    assert_eq!(files(&first, "/").await["a.yaml"], "a: 1\n");
}

#[tokio::test]
async fn a_restart_finds_its_mirror() {
    let bench = Bench::new(small()).await;
    let found = bench.source.lookup(&bench.remote(), &Reference::head(), NOW).await.unwrap();
    bench.source.fetch(&bench.remote(), &found).await.unwrap();
    bench.server.take_counts();
    let source = Source::new(settings(bench.mirrors.path()));
    let snapshot = source.fetch(&bench.remote(), &found).await.unwrap();
    assert_eq!(files(&snapshot, "/").await.len(), 2);
    assert_eq!(bench.server.take_counts().requests, 0);
}

#[tokio::test]
async fn a_damaged_mirror_is_cloned_again() {
    type Damage = fn(&Path);
    let overwrite: Damage = |pack| {
        let length = std::fs::metadata(pack).unwrap().len();
        let mut permissions = std::fs::metadata(pack).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
        std::fs::set_permissions(pack, permissions).unwrap();
        std::fs::write(pack, vec![0xa5; usize::try_from(length).unwrap()]).unwrap();
    };
    let remove: Damage = |pack| std::fs::remove_file(pack).unwrap();
    let remove_index: Damage = |pack| std::fs::remove_file(pack.with_extension("idx")).unwrap();
    for damage in [overwrite, remove, remove_index] {
        let mut bench = Bench::new(small()).await;
        bench.sync("main").await.unwrap();
        for pack in packs(bench.mirrors.path()) {
            damage(&pack);
        }
        let snapshot = bench.sync("main").await.unwrap();
        assert_eq!(files(&snapshot, "/").await.len(), 2, "the commit that it held");

        for pack in packs(bench.mirrors.path()) {
            damage(&pack);
        }
        bench.origin.file("a.yaml", "a: 2\n").commit("second");
        let half = bench.sync("main").await.unwrap();
        if let Err(error) = half.entries(&BaseDir::root()) {
            assert_eq!(error.class(), Class::Unavailable, "what was sent is good, what it builds on is not");
        }
        let snapshot = bench.sync("main").await.unwrap();
        assert_eq!(files(&snapshot, "/").await["a.yaml"], "a: 2\n", "a commit that builds on it");
    }
}

#[tokio::test]
async fn a_mirror_whose_files_turn_out_damaged_is_cloned_again_by_the_next_fetch() {
    let bench = Bench::new(small()).await;
    let first = bench.sync("main").await.unwrap();
    let entries = first.entries(&BaseDir::root()).unwrap();
    let second = bench.sync("main").await.unwrap();
    for pack in packs(bench.mirrors.path()) {
        std::fs::remove_file(pack).unwrap();
    }
    let third = bench.sync("main").await.unwrap();
    assert_eq!(third.read(&entries[0]).unwrap(), b"a: 1\n");
    drop((first, second));
}

pub(super) fn packs(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(packs(&path));
        } else if path.extension().is_some_and(|extension| extension == "pack") {
            found.push(path);
        }
    }
    found
}

#[tokio::test]
async fn unused_mirrors_are_removed_from_the_disk() {
    let bench = Bench::new(small()).await;
    let consumer = |kind| Consumer { kind, namespace: "shop".into(), name: "web".into() };
    let (sync, function) = (consumer(ConsumerKind::GitSync), consumer(ConsumerKind::Function));
    bench.source.set_remote(&sync, Some(&bench.remote()));
    bench.source.set_remote(&function, Some(&bench.remote()));
    drop(bench.sync("main").await.unwrap());
    assert_eq!(packs(bench.mirrors.path()).len(), 1);
    bench.source.set_remote(&function, None);
    assert_eq!(packs(bench.mirrors.path()).len(), 1, "the other one reads it");
    bench.source.set_remote(&sync, None);
    assert_eq!(packs(bench.mirrors.path()).len(), 0);
    assert!(bench.sync("main").await.is_ok(), "and can be used again");
}

#[tokio::test]
async fn mirrors_unused_since_a_restart_go_once_all_consumers_are_known() {
    let bench = Bench::new(small()).await;
    let (read, unread) = (bench.remote(), basic(&bench.server.url(NAME), "u", "old"));
    for remote in [&read, &unread] {
        drop(sync(&bench.source, remote, "main").await.unwrap());
    }
    let half_gone = bench.mirrors.path().join(format!("{}.unread", "0".repeat(32)));
    let not_ours = ["notes.git", "salted"].map(|name| bench.mirrors.path().join(name));
    for directory in not_ours.iter().chain([&half_gone]) {
        std::fs::create_dir_all(directory.join("1")).unwrap();
    }

    let source = Source::new(settings(bench.mirrors.path()));
    let consumer = |kind| Consumer { kind, namespace: "shop".into(), name: "web".into() };
    source.register(&consumer(ConsumerKind::GitSync));
    source.register(&consumer(ConsumerKind::Function));
    let mut sweeping = Box::pin(source.sweep());
    source.set_remote(&consumer(ConsumerKind::GitSync), Some(&read));
    source.all_registered(ConsumerKind::GitSync);
    assert!(futures::poll!(&mut sweeping).is_pending(), "not all Functions are known");
    source.all_registered(ConsumerKind::Function);
    assert!(futures::poll!(&mut sweeping).is_pending(), "one Function has not said what it reads");
    assert_eq!(packs(bench.mirrors.path()).len(), 2);
    source.resolved(&consumer(ConsumerKind::Function));

    assert_eq!(sweeping.await, 2);
    assert_eq!(packs(bench.mirrors.path()).len(), 1);
    assert!(not_ours.iter().all(|directory| directory.exists()) && !half_gone.exists());
    let found = source.lookup(&read, &Reference::head(), NOW).await.unwrap();
    bench.server.take_counts();
    source.fetch(&read, &found).await.unwrap();
    assert_eq!(bench.server.take_counts().requests, 0, "what is read is the mirror that there was");
}
