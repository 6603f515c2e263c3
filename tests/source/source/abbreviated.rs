//! Abbreviated commit IDs: found among the branch heads, in the history, or not at all.

use git2::{ObjectType, Oid, Repository};
use mainstay_git::Commit;

use super::mirrors::packs;
use super::*;

/// Returns a repository with a megabyte of history per commit, and the commit IDs.
fn heavy() -> (Origin, Vec<String>) {
    let mut origin = Origin::new();
    let mut random = fastrand::Rng::with_seed(1);
    let commits = ["first", "second", "third"].map(|name| {
        let noise: Vec<u8> = (0..1 << 20).map(|_| random.u8(..)).collect();
        origin.file("noise", noise).commit(name)
    });
    (origin, commits.to_vec())
}

#[tokio::test]
async fn the_tip_of_a_branch_or_tag_is_found_without_its_history() {
    let mut origin = small();
    let tagged = origin.annotated_tag("v1").commit("tagged");
    origin.annotated_tag("v2");
    let tip = origin.commit("tip");
    let bench = Bench::new(origin).await;
    for short in [&tip[..7], &tip[..39], &tip[..10].to_uppercase(), &tagged[..7]] {
        bench.server.take_counts();
        let reference = Reference::parse(short).unwrap();
        let found = bench.source.lookup(&bench.remote(), &reference, NOW).await.unwrap();
        assert!(found.commit.to_string().starts_with(&short.to_lowercase()));
        assert_eq!(found.name, found.commit.to_string(), "it is followed as the whole id would be");
        assert_eq!(bench.server.take_counts().packs, 0);
    }
    assert_eq!(files(&bench.sync(&tip[..7]).await.unwrap(), "/").await["a.yaml"], "a: 1\n");
}

#[tokio::test]
async fn a_commit_in_the_history_is_found_whatever_the_server_can_leave_out() {
    let (mut origin, commits) = heavy();
    origin.clear().file("a.yaml", "a: 1\n").commit("light");
    let mut bench = Bench::new(origin).await;
    let look = async |bench: &Bench, short: &str| {
        forget(&bench.source, &bench.remote());
        bench.server.take_counts();
        let reference = Reference::parse(short).unwrap();
        let found = bench.source.lookup(&bench.remote(), &reference, NOW).await.unwrap();
        assert_eq!(packs(bench.mirrors.path()).len(), 0, "what was fetched to look is not kept");
        (found.commit.to_string(), bench.server.take_counts().bytes_out)
    };
    let (found, bytes) = look(&bench, &commits[0][..7]).await;
    assert!(found == commits[0] && bytes > 3 << 20, "the server gives the history with its files only: {bytes}");

    bench.origin.configure("uploadpack.allowFilter", "true");
    let (found, bytes) = look(&bench, &commits[1][..8]).await;
    assert!(found == commits[1] && bytes < 10_000, "commits alone: {bytes}");

    bench.origin.configure("uploadpackfilter.allow", "false");
    assert_eq!(look(&bench, &commits[1][..8]).await.0, commits[1], "what it offers it refuses");

    bench.server.speak_version_zero();
    assert_eq!(look(&bench, &commits[0][..12]).await.0, commits[0]);
    assert_eq!(bench.sync(&commits[0][..12]).await.unwrap().commit.to_string(), commits[0]);
}

#[tokio::test]
async fn a_found_commit_is_not_searched_again() {
    let (mut origin, commits) = heavy();
    origin.commit("tip");
    let mut bench = Bench::new(origin).await;
    let (reference, remote) = (Reference::parse(&commits[0][..7]).unwrap(), bench.remote());
    let all = (0..8).map(|_| bench.source.lookup(&remote, &reference, NOW));
    for found in futures::future::join_all(all).await {
        assert_eq!(found.unwrap().commit.to_string(), commits[0]);
    }
    assert_eq!(bench.server.take_counts().packs, 1, "all who ask at the same time have one answer");
    bench.origin.commit("another");
    bench.source.lookup(&remote, &reference, NOW).await.unwrap();
    let counts = bench.server.take_counts();
    assert_eq!((counts.requests, counts.packs), (1, 0), "whether a branch has come that is called so");

    // Another process gets a hint with the commit.
    let source = Source::new(settings(&bench.mirrors.path().join("other")));
    source.hint(&remote, &reference, commits[0].parse().unwrap());
    assert_eq!(source.lookup(&remote, &reference, NOW).await.unwrap().commit.to_string(), commits[0]);
    assert_eq!(bench.server.take_counts().packs, 0);

    // A hint may be wrong.
    let source = Source::new(settings(&bench.mirrors.path().join("third")));
    let wrong: Commit = format!("{:0<40}", &commits[0][..7]).parse().unwrap();
    source.hint(&remote, &reference, wrong);
    let found = source.lookup(&remote, &reference, NOW).await.unwrap();
    assert_eq!(found.commit, wrong);
    assert!(chain(&source.fetch(&remote, &found).await.unwrap_err()).contains("no such commit"));
    assert_eq!(source.lookup(&remote, &reference, NOW).await.unwrap().commit.to_string(), commits[0]);
}

#[tokio::test]
async fn a_branch_or_tag_of_this_name_comes_first() {
    let mut origin = small();
    let old = origin.commit("old");
    let tip = origin.commit("tip");
    let bench = Bench::new(origin).await;
    let short = &old[..7];
    assert_eq!(bench.sync(short).await.unwrap().commit.to_string(), old);
    bench.origin.refer(&format!("refs/tags/{short}"), Oid::from_str(&tip).unwrap());
    assert_eq!(bench.sync(short).await.unwrap().commit.to_string(), tip, "also when it comes later");
}

#[tokio::test]
async fn an_ambiguous_abbreviation_is_refused_with_the_candidates() {
    let origin = small();
    let (one, two) = origin.twins(ObjectType::Commit);
    origin.refer("refs/heads/one", one);
    origin.refer("refs/heads/two", two);
    let short = one.to_string()[..7].to_owned();
    let check = async |bench: &Bench| {
        let (class, text) = bench.failure(&short).await;
        assert_eq!(class, Class::Invalid);
        let names = |id: Oid| text.contains(&id.to_string());
        assert!(names(one) && names(two) && text.contains("write all 40 digits"), "{text}");
        assert_eq!(bench.sync(&one.to_string()[..12]).await.unwrap().commit.to_string(), one.to_string());
    };
    let at_the_tips = Bench::new(origin).await;
    check(&at_the_tips).await;
    let Bench { origin: mut deeper, .. } = at_the_tips;
    deeper.branch("one").commit("later");
    deeper.branch("two").commit("later");
    let in_the_history = Bench::new(deeper).await;
    check(&in_the_history).await;
    let counts = in_the_history.server.take_counts();
    assert!(counts.packs > 0);
    assert_eq!(in_the_history.failure(&short).await.0, Class::Invalid);
    assert_eq!(in_the_history.server.take_counts().packs, 0, "the same history says the same");
}

#[tokio::test]
async fn a_file_whose_id_begins_alike_does_not_matter() {
    let mut origin = small();
    let (commit, file) = origin.twins(ObjectType::Blob);
    let content = Repository::open_bare(origin.path()).unwrap().find_blob(file).unwrap().content().to_owned();
    origin.refer("refs/heads/main", commit);
    origin.file("twin", content).commit("tip");
    let mut allowing = settings(origin.root());
    allowing.allow_local = true;
    let local = Source::new(allowing);
    let bench = Bench::new(origin).await;
    let short = &commit.to_string()[..7];
    assert_eq!(bench.sync(short).await.unwrap().commit.to_string(), commit.to_string());
    let path = anonymous(bench.origin.path().to_str().unwrap());
    assert_eq!(sync(&local, &path, short).await.unwrap().commit.to_string(), commit.to_string());
    assert_eq!(sync(&local, &path, "abcdef0").await.unwrap_err().class(), Class::Invalid);
}

#[tokio::test]
async fn an_unknown_abbreviation_is_searched_again_when_the_remote_has_changed() {
    let mut origin = small();
    origin.branch("dev");
    let absent = origin.commit("to come");
    origin.branch("main").drop_branch("dev");
    let mut bench = Bench::new(origin).await;
    let (class, text) = bench.failure(&absent[..9]).await;
    assert_eq!(class, Class::Invalid);
    for words in ["no branch or tag with this name", "write all 40 digits", "default branch is main"] {
        assert!(text.contains(words), "{text}");
    }
    bench.server.take_counts();
    bench.failure(&absent[..9]).await;
    assert_eq!(bench.server.take_counts().packs, 0, "the same history says the same");

    bench.origin.branch("dev").force(&absent).commit("on top of it");
    assert_eq!(bench.sync(&absent[..9]).await.unwrap().commit.to_string(), absent);
    let empty = Bench::new(Origin::new()).await;
    assert!(empty.failure("abcdef0").await.1.contains("the repository is empty"));
}

#[tokio::test]
async fn the_history_is_not_fetched_again_for_a_commit_that_is_not_in_it() {
    let (origin, _) = heavy();
    let mut bench = Bench::new(origin).await;
    let absent = "a".repeat(40);
    for version in ["2", "0"] {
        bench.server.take_counts();
        assert!(bench.failure(&absent).await.1.contains("no such commit"));
        assert!(bench.server.take_counts().bytes_out > 3 << 20, "{version}");
        assert!(bench.failure(&absent).await.1.contains("no such commit"));
        assert!(bench.server.take_counts().bytes_out < 10_000, "{version}");
        bench.origin.commit("another");
        bench.failure(&absent).await;
        assert!(bench.server.take_counts().bytes_out > 3 << 20, "it could be in the new one");
        forget(&bench.source, &bench.remote());
        bench.server.speak_version_zero();
    }
}

#[tokio::test]
async fn a_history_beyond_the_limits_is_not_fetched_twice_and_the_whole_id_works() {
    let (mut origin, commits) = heavy();
    origin.clear().file("a.yaml", "a: 1\n").commit("light");
    let mut bench = Bench::with(origin, |settings| settings.limits.pack_bytes = 2 << 20).await;
    let (class, text) = bench.failure(&commits[0][..7]).await;
    assert_eq!(class, Class::Invalid);
    assert!(text.contains("too large") && text.contains("write all 40 digits"), "{text}");
    bench.origin.commit("another");
    bench.server.take_counts();
    bench.failure(&commits[0][..7]).await;
    assert_eq!(bench.server.take_counts().packs, 0);
    assert_eq!(bench.sync(&commits[0]).await.unwrap().commit.to_string(), commits[0]);
}
