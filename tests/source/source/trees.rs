//! Trees that no client writes: too deep, too large, or containing themselves.

use std::sync::Arc;

use git2::Oid;

use super::{hostile::band, *};

/// Returns the result of listing the newest commit's files.
async fn listed(bench: &Bench) -> String {
    let snapshot = bench.sync("main").await.unwrap();
    let listed = snapshot.blocking(|snapshot| snapshot.entries(&BaseDir::root()).map(|entries| entries.len()));
    match listed.await.unwrap() {
        Ok(entries) => format!("{entries} entries"),
        Err(error) => {
            assert_eq!(error.class(), Class::Invalid, "{}", chain(&error));
            error.fault().to_string()
        }
    }
}

#[tokio::test]
async fn directories_are_read_to_a_limited_depth_and_length_of_path() {
    let mut bench = Bench::new(small()).await;
    bench.origin.file(&format!("{}a.yaml", "d/".repeat(100)), "a: 1\n").commit("as deep as may be");
    assert_eq!(listed(&bench).await, "3 entries");
    let deep = "the depth of directories is larger than the limit of 100";
    bench.origin.file(&format!("{}a.yaml", "d/".repeat(101)), "a: 1\n").commit("deeper");
    assert_eq!(listed(&bench).await, deep);
    bench.origin.file(&format!("{}a.yaml", "d/".repeat(1000)), "a: 1\n").commit("much deeper");
    assert_eq!(listed(&bench).await, deep);

    bench.origin.clear();
    let name = "n".repeat(255);
    bench.origin.file(&format!("{}a.yaml", format!("{name}/").repeat(15)), "a: 1\n").commit("as long as may be");
    assert_eq!(listed(&bench).await, "1 entries");
    bench.origin.file(&format!("{}a.yaml", format!("{name}/").repeat(16)), "a: 1\n").commit("longer");
    assert_eq!(listed(&bench).await, "a path in bytes is larger than the limit of 4096");
}

#[tokio::test]
async fn a_few_directories_that_are_in_each_other_many_times_are_not_all_listed() {
    let mut origin = Origin::new();
    let mut within = origin.tree_of(&[("100644", b"a.yaml", origin.blob(b"a: 1\n"))]);
    let names: Vec<String> = (0..10).map(|number| format!("d{number}")).collect();
    for _ in 0..10 {
        let entries: Vec<_> = names.iter().map(|name| ("40000", name.as_bytes(), within)).collect();
        within = origin.tree_of(&entries);
    }
    let commit = origin.commit_tree(within);
    let bench = Bench::new(origin).await;
    let limit = "the number of files and directories is larger than the limit of 100000";
    assert_eq!(listed(&bench).await, limit, "ten thousand million files in eleven objects");
    // One of its directories is small enough, and there are few objects.
    let snapshot = bench.sync(&commit).await.unwrap();
    let base_dir = BaseDir::parse(&"d0/".repeat(7)).unwrap();
    assert_eq!(snapshot.entries(&base_dir).unwrap().len(), 1000);
}

fn is_yaml(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "yaml")
}

/// Returns the listing of the newest commit, which reads only YAML files.
async fn listed_with(source: &Source, remote: &Remote, skipped: &Arc<SkippedTrees>) -> Result<Vec<String>, String> {
    let (snapshot, skipped) = (sync(source, remote, "main").await.unwrap(), Arc::clone(skipped));
    let listed = snapshot.blocking(move |snapshot| snapshot.listing(&BaseDir::root(), &skipped));
    let entries = listed.await.unwrap().map_err(|error| error.fault().to_string())?;
    Ok(entries.into_iter().map(|entry| entry.path).collect())
}

#[tokio::test]
async fn directories_without_files_that_are_read_are_looked_at_once_and_count_for_limits() {
    let mut origin = Origin::new();
    origin.file("a.yaml", "a: 1\n").file("src/one/x.txt", "x").file("src/two/y.txt", "y").file("src/z.txt", "z");
    let first = origin.commit("first");
    let mirrors = tempfile::tempdir().unwrap();
    let mut bounded = settings(mirrors.path());
    bounded.allow_local = true;
    bounded.limits.entries = 8;
    let (source, remote) = (Source::new(bounded), anonymous(origin.path().to_str().unwrap()));
    let (skipped, fresh) = (Arc::new(SkippedTrees::new(is_yaml)), || Arc::new(SkippedTrees::new(is_yaml)));
    assert_eq!(listed_with(&source, &remote, &skipped).await.unwrap(), ["a.yaml"]);

    // A skipped directory may be missing.
    origin.file("src/two/b.yaml", "b: 1\n").commit("a file that is read, beside those that are not");
    let git = git2::Repository::open_bare(origin.path()).unwrap();
    let root = git.find_commit(Oid::from_str(&first).unwrap()).unwrap().tree().unwrap();
    let one = root.get_path(Path::new("src/one")).unwrap().id().to_string();
    std::fs::remove_file(origin.path().join("objects").join(&one[..2]).join(&one[2..])).unwrap();
    assert_eq!(listed_with(&source, &remote, &skipped).await.unwrap(), ["a.yaml", "src/two/b.yaml"]);
    let missing = listed_with(&source, &remote, &fresh()).await.unwrap_err();
    assert!(missing.contains("is missing"), "{missing}");

    // Eight files and directories exist. Another one anywhere exceeds the limit.
    origin.file("src/one/x.txt", "x").file("more.txt", "").commit("nine");
    let limit = Err("the number of files and directories is larger than the limit of 8".to_owned());
    assert_eq!(listed_with(&source, &remote, &skipped).await, limit);
    assert_eq!(listed_with(&source, &remote, &fresh()).await, limit);
}

#[tokio::test]
async fn a_directory_that_was_skipped_counts_where_it_is_moved_to() {
    let mut bench = Bench::new(small()).await;
    let (skipped, name) = (Arc::new(SkippedTrees::new(is_yaml)), "n".repeat(255));
    let listed = async |bench: &Bench| listed_with(&bench.source, &bench.remote(), &skipped).await;
    bench.origin.clear().file(&format!("{}x.txt", "d/".repeat(60)), "").commit("deep");
    assert_eq!(listed(&bench).await, Ok(vec![]));
    bench.origin.clear().file(&format!("{}x.txt", "d/".repeat(101)), "").commit("too deep");
    assert_eq!(listed(&bench).await, Err("the depth of directories is larger than the limit of 100".to_owned()));
    bench.origin.clear().file(&format!("{}x.txt", format!("{name}/").repeat(15)), "").commit("long");
    assert_eq!(listed(&bench).await, Ok(vec![]));
    bench.origin.clear().file(&format!("b/{}x.txt", format!("{name}/").repeat(16)), "").commit("too long");
    assert_eq!(listed(&bench).await, Err("a path in bytes is larger than the limit of 4096".to_owned()));
}

#[tokio::test]
async fn a_tree_that_its_commit_names_and_that_has_another_id_is_missing() {
    let mut origin = small();
    // A tree that claims to contain itself. Only an object with a wrong ID can do that.
    let said = Oid::from_bytes(&[7; 20]).unwrap();
    let true_one = origin.tree_of(&[("40000", b"again", said)]);
    let commit = origin.commit_tree(said);
    let pack = origin.pack_of(&[Oid::from_str(&commit).unwrap(), true_one]);
    let bench = Bench::new(origin).await;
    let answer = [b"000dpackfile\n", &*band(1, &pack), b"0000"].concat();
    bench.server.fail(On::Packs, Fault::Answer(answer));
    let snapshot = bench.sync("main").await.unwrap();
    let error = snapshot.entries(&BaseDir::root()).unwrap_err();
    let left_out = format!("the server omitted objects of the commit (object {said} is missing)");
    let (class, text) = (error.class(), error.fault().to_string());
    assert!(class == Class::Unavailable && text.starts_with(&left_out), "{class:?} {text}");
}

/// Returns a pack of such objects: each object is a delta of the next object, and the last is a delta of the first.
fn cyclic_pack(ids: &[Oid]) -> Vec<u8> {
    let count = u32::try_from(ids.len()).unwrap();
    let mut pack = [&b"PACK"[..], &2_u32.to_be_bytes(), &count.to_be_bytes()].concat();
    for (number, _) in ids.iter().enumerate() {
        // A delta: sizes before and after, and one instruction that copies five bytes.
        let delta = [5, 5, 0b1001_0000, 5];
        pack.push(0b0111_0000 | 4);
        pack.extend(ids[(number + 1) % ids.len()].as_bytes());
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, &delta).unwrap();
        pack.extend(packed.finish().unwrap());
    }
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &pack);
    [pack, digest.as_ref().to_vec()].concat()
}

#[tokio::test]
async fn a_pack_of_differences_from_each_other_is_refused() {
    let mut bench = Bench::new(small()).await;
    let ids = [7, 8, 9].map(|byte| Oid::from_bytes(&[byte; 20]).unwrap());
    for length in 1..=3 {
        let answer = [b"000dpackfile\n", &*band(1, &cyclic_pack(&ids[..length])), b"0000"].concat();
        bench.server.fail(On::Packs, Fault::Answer(answer));
        let (class, text) = bench.failure("main").await;
        assert!(class == Class::Unavailable && text.contains("damaged pack"), "{length}: {text}");
    }
    // A new commit is needed: after three failures, the same commit is not fetched again for an hour.
    bench.origin.commit("next");
    bench.server.heal();
    bench.sync("main").await.unwrap();
}

#[tokio::test]
async fn a_tree_on_disk_that_is_said_to_be_in_itself_is_damage() {
    let mut origin = small();
    let said = Oid::from_bytes(&[7; 20]).unwrap();
    origin.lie(said, "tree", &[b"40000 again\0", said.as_bytes()].concat());
    origin.commit_tree(said);
    let mirrors = tempfile::tempdir().unwrap();
    let mut allowing = settings(mirrors.path());
    allowing.allow_local = true;
    let remote = anonymous(origin.path().to_str().unwrap());
    let snapshot = sync(&Source::new(allowing), &remote, "main").await.unwrap();
    let error = snapshot.entries(&BaseDir::root()).unwrap_err();
    assert!(chain(&error).contains("damaged"), "{}", chain(&error));
}
