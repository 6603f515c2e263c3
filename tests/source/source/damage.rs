//! Damaged files on disk are fetched again. Files that the remote damaged are not.

use super::*;

/// Returns the directory of a mirror's generation.
fn generation(bench: &Bench) -> std::path::PathBuf {
    mirrors::packs(bench.mirrors.path())[0].ancestors().nth(3).unwrap().to_owned()
}

#[tokio::test]
async fn a_mirror_that_was_damaged_while_no_agent_ran_is_fetched_again() {
    type Damage = fn(&Path);
    let cases: [(&str, Damage); 6] = [
        ("garbage list", |generation| std::fs::write(generation.join("held"), "garbage\n").unwrap()),
        ("empty list", |generation| std::fs::write(generation.join("held"), "").unwrap()),
        ("binary list", |generation| std::fs::write(generation.join("held"), [0xff, 0, 0xfe]).unwrap()),
        ("cut pack", |generation| cut(&mirrors::packs(generation)[0])),
        ("cut index", |generation| cut(&mirrors::packs(generation)[0].with_extension("idx"))),
        ("no pack and no index", |generation| {
            let pack = &mirrors::packs(generation)[0];
            std::fs::remove_file(pack).unwrap();
            std::fs::remove_file(pack.with_extension("idx")).unwrap();
        }),
    ];
    for (name, damage) in cases {
        let bench = Bench::new(small()).await;
        drop(bench.sync("main").await.unwrap());
        damage(&generation(&bench));
        let source = Source::new(settings(bench.mirrors.path()));
        bench.server.take_counts();
        // Some damage is detected only when a file is read.
        let mut attempts = 0;
        let read = loop {
            attempts += 1;
            let snapshot = sync(&source, &bench.remote(), "main").await.unwrap();
            match snapshot.entries(&BaseDir::root()) {
                Ok(entries) => break entries.len(),
                Err(error) => {
                    assert!(chain(&error).contains("the mirror is damaged"), "{name}: {}", chain(&error));
                    assert!(attempts < 2, "{name}: it is said once");
                }
            }
        };
        assert_eq!((read, bench.server.take_counts().packs), (2, 1), "{name}");
    }
}

fn cut(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

#[tokio::test]
async fn a_file_that_was_lost_on_the_disk_is_fetched_again() {
    let mut bench = Bench::new(small()).await;
    drop(bench.sync("main").await.unwrap());
    let first = mirrors::packs(bench.mirrors.path());
    bench.origin.file("a.yaml", "a: 2\n").commit("second");
    drop(bench.sync("main").await.unwrap());
    for path in &first {
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(path.with_extension("idx")).unwrap();
    }
    let source = Source::new(settings(bench.mirrors.path()));
    bench.server.take_counts();
    assert_eq!(files(&sync(&source, &bench.remote(), "main").await.unwrap(), "/").await.len(), 2);
    assert_eq!(bench.server.take_counts().packs, 1);
}

/// Returns a response with a pack.
fn band(pack: &[u8]) -> Fault {
    Fault::Answer([format!("000dpackfile\n{:04x}\x01", pack.len() + 5).as_bytes(), pack, b"0000"].concat())
}

#[tokio::test]
async fn a_directory_that_the_remote_damaged_is_fetched_once() {
    // Modes that do not exist.
    for mode in ["000000", "777777", "1"] {
        let mut origin = small();
        let commit = origin.forged_as(mode, "x");
        let pack = origin.pack_without("");
        let bench = Bench::new(origin).await;
        // Git itself refuses to send some of these modes.
        bench.server.fail(On::Packs, band(&pack));
        for attempt in 0..4 {
            let snapshot = bench.sync("main").await.unwrap();
            let error = snapshot.entries(&BaseDir::root()).unwrap_err();
            let text = chain(&error);
            assert_eq!(error.class(), Class::Invalid, "{mode}: {text}");
            let expected = format!(
                "read / of commit {commit}: the repository itself is damaged (an invalid directory); `git fsck` finds \
                 it, and a new commit without it is applied"
            );
            assert_eq!(text, expected, "{mode}");
            assert_eq!(bench.server.take_counts().packs, usize::from(attempt == 0), "{mode}");
        }
    }
}

#[tokio::test]
async fn a_file_that_the_server_leaves_out_is_not_asked_for_at_each_attempt() {
    let mut origin = Origin::new();
    origin.file("a.yaml", "a: 1\n").file("b.yaml", "b: 1\n").commit("first");
    let pack = origin.pack_without("b.yaml");
    let bench = Bench::new(origin).await;
    bench.server.fail(On::Packs, band(&pack));
    for attempt in 0..4 {
        let snapshot = bench.sync("main").await.unwrap();
        let error = snapshot.entries(&BaseDir::root()).unwrap_err();
        let text = chain(&error);
        assert_eq!(error.class(), Class::Unavailable, "{text}");
        assert!(text.contains("the server omitted objects of the commit (a file is missing)"), "{text}");
        assert_eq!(bench.server.take_counts().packs, usize::from(attempt == 0), "a clone for each attempt");
    }
}

#[tokio::test]
async fn a_server_whose_packs_do_not_fit_is_not_cloned_at_each_attempt() {
    let mut bench = Bench::new(small()).await;
    drop(bench.sync("main").await.unwrap());
    bench.origin.file("a.yaml", "a: 2\n").commit("second");
    bench.server.fail(On::Packs, Fault::Answer(b"000dpackfile\n0009\x01junk0000".to_vec()));
    let mut packs = Vec::new();
    for _ in 0..4 {
        bench.server.take_counts();
        let (class, text) = bench.failure("main").await;
        assert!(class == Class::Unavailable && text.contains("damaged pack"), "{text}");
        packs.push(bench.server.take_counts().packs);
    }
    assert_eq!(packs, [2, 1, 1, 1], "everything is asked for once");
    bench.server.heal();
    assert_eq!(files(&bench.sync("main").await.unwrap(), "/").await["a.yaml"], "a: 2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_never_fits_is_not_cloned_at_each_attempt() {
    let mut bench = Bench::new(small()).await;
    bench.server.fail(On::Packs, Fault::Answer(b"000dpackfile\n0009\x01junk0000".to_vec()));
    let mut packs = Vec::new();
    for _ in 0..5 {
        bench.server.take_counts();
        let (class, text) = bench.failure("main").await;
        assert!(class == Class::Unavailable && text.contains("damaged pack"), "{text}");
        packs.push(bench.server.take_counts().packs);
    }
    assert_eq!(packs, [1, 1, 1, 0, 0]);
    bench.server.heal();
    bench.origin.file("a.yaml", "a: 2\n").commit("second");
    assert_eq!(files(&bench.sync("main").await.unwrap(), "/").await["a.yaml"], "a: 2\n", "the branch has moved");
}
