//! Images that are in use, held, young or foreign are never removed, and the intended images are removed.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const RULES: Rules = Rules { builds: 2, grace: Duration::from_secs(24 * 3600) };

fn now() -> Timestamp {
    "2026-11-24T12:00:00Z".parse().unwrap()
}

fn hours(count: i64) -> SignedDuration {
    SignedDuration::from_hours(count)
}

fn digest(number: u64) -> Digest {
    Digest::of(&number.to_be_bytes())
}

/// Returns a manifest that was pushed this many hours ago.
fn stored(number: u64, age: i64, content: Content) -> Stored {
    Stored {
        digest: digest(number),
        pushed: now() - hours(age),
        content,
        needs: vec![digest(number), digest(number + 1000)],
    }
}

/// Returns a repository in which each manifest has a tag of a build.
fn repository(name: &str, manifests: Vec<Stored>) -> Repository {
    let tags = manifests
        .iter()
        .map(|stored| (Digest::of(stored.digest.hex().as_bytes()).hex().to_owned(), stored.digest.clone()));
    Repository { name: name.to_owned(), tags: tags.collect(), manifests: Some(manifests) }
}

fn used(numbers: &[u64]) -> Used {
    let mut used = Used::default();
    for number in numbers {
        used.add(&json!({"spec": {"image": format!("r.io/x@{}", digest(*number))}}));
    }
    used
}

fn function(namespace: &str, name: &str) -> LivingFunction {
    LivingFunction { namespace: namespace.into(), name: name.into(), uid: format!("{namespace}/{name}"), generation: 1 }
}

fn policy(functions: &[LivingFunction], in_use: &[u64], before: &[u64]) -> Policy {
    let before = Policy::new("0".into(), now() - hours(24), RULES, observed(&[], used(before)), None);
    Policy::new("1".into(), now(), RULES, observed(functions, used(in_use)), Some(&before))
}

fn observed(functions: &[LivingFunction], in_use: Used) -> Observed {
    Observed { functions: functions.to_vec(), of_functions: in_use.clone(), in_use }
}

/// Returns the numbers of the removed manifests by repository, and `all` if the repository becomes empty.
fn goes(repositories: &[Repository], policy: &Policy) -> String {
    let number = |one: &Digest| (0..2000).find(|number| digest(*number) == *one).unwrap().to_string();
    let sweep = decide(repositories, policy, now());
    let removal = |removal: &Removal| {
        let mut numbers: Vec<_> = removal.manifests.iter().map(number).collect();
        numbers.sort();
        let rest = if removal.is_all { " all" } else { "" };
        assert_eq!(removal.tags.len(), numbers.len(), "each had a tag");
        format!("{} {}{rest}", removal.repository, numbers.join(","))
    };
    sweep.removals.iter().map(removal).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_living_function_keeps_its_newest_builds_and_what_runs() {
    let builds = (1..=6).map(|number| stored(number, 30 * i64::try_from(number).unwrap(), Content::Function)).collect();
    let repositories = [repository("shop-quote", builds)];
    assert_eq!(goes(&repositories, &policy(&[function("shop", "quote")], &[5], &[])), "shop-quote 3,4,6");
    assert_eq!(goes(&repositories, &policy(&[function("shop", "quote")], &[5], &[6, 3])), "shop-quote 4");
    // These repositories have the names of earlier releases.
    let sharing = [repository("a-b-c", (1..=6).map(|number| stored(number, 30, Content::Function)).collect())];
    let two = [function("a", "b-c"), function("a-b", "c")];
    assert_eq!(decide(&sharing, &policy(&two, &[], &[]), now()).removals[0].manifests.len(), 2, "each keeps two");
}

#[test]
fn images_of_a_deleted_function_go_at_the_second_sweep() {
    let repositories =
        [repository("shop-quote", vec![stored(1, 48, Content::Function), stored(2, 47, Content::Function)])];
    assert_eq!(goes(&repositories, &policy(&[], &[], &[2])), "shop-quote 1");
    assert_eq!(decide(&repositories, &policy(&[], &[], &[2]), now()).next, Some(now()));
    assert_eq!(goes(&repositories, &policy(&[], &[], &[])), "shop-quote 1,2 all");
}

#[test]
fn young_foreign_and_tagged_images_stay() {
    let mut of_people = repository("team-app", vec![stored(1, 900, Content::Image), stored(2, 900, Content::Other)]);
    let young = repository("shop-quote", vec![stored(3, 23, Content::Function), stored(4, 25, Content::Function)]);
    let all = |one: &Repository| [one.clone(), young.clone()];
    assert_eq!(goes(&all(&of_people), &policy(&[], &[], &[])), "shop-quote 4");
    assert_eq!(decide(&all(&of_people), &policy(&[], &[], &[]), now()).next, Some(now() + hours(1)));
    // A user tagged an image of a Function.
    of_people.manifests = Some(vec![stored(5, 900, Content::Function)]);
    of_people.tags = BTreeMap::from([("v1".to_owned(), digest(5))]);
    assert_eq!(goes(&all(&of_people), &policy(&[], &[], &[])), "shop-quote 4");
    // A user's index needs the image.
    let mut index = stored(6, 900, Content::Other);
    index.needs.push(digest(5));
    let indexed = repository("team-app", vec![stored(5, 900, Content::Function), index]);
    assert_eq!(goes(&all(&indexed), &policy(&[], &[], &[])), "shop-quote 4");
    let torn = Repository { manifests: None, ..of_people };
    let sweep = decide(&all(&torn), &policy(&[], &[], &[]), now());
    assert_eq!((sweep.not_understood, sweep.removals.len()), (vec!["team-app".to_owned()], 1));
}

#[test]
fn a_cache_goes_when_old_or_with_its_function() {
    let images = |age| repository("shop-quote", vec![stored(1, age, Content::Function)]);
    let cache = |age| repository("shop-quote/cache", vec![stored(2, age, Content::Image)]);
    let living = policy(&[function("shop", "quote")], &[], &[]);
    assert_eq!(goes(&[images(900), cache(300)], &living), "");
    assert_eq!(goes(&[images(900), cache(337)], &living), "shop-quote/cache 2");
    assert_eq!(goes(&[images(900), cache(30)], &policy(&[], &[], &[])), "shop-quote 1 all; shop-quote/cache 2 all");
    // The image that marks the cache as Mainstay's stays until then.
    assert_eq!(goes(&[images(900), cache(3)], &policy(&[], &[], &[])), "");
    assert_eq!(goes(&[cache(900)], &policy(&[], &[], &[])), "");
    let of_people = repository("shop-quote", vec![stored(1, 900, Content::Image)]);
    assert_eq!(goes(&[of_people, cache(900)], &policy(&[], &[], &[])), "");
}

#[test]
fn a_policy_is_for_one_sweep_and_for_now() {
    let policy = policy(&[function("shop", "quote")], &[1], &[2]);
    let read = Policy::read(&policy.text().unwrap()).unwrap();
    assert_eq!(read, policy);
    let minutes = SignedDuration::from_mins;
    assert_eq!((read.check("1", now() + minutes(30)), read.check("1", now() - minutes(30))), (Ok(()), Ok(())));
    for (id, time) in [("", now()), ("2", now()), ("1", now() + minutes(31)), ("1", now() - minutes(31))] {
        assert!(read.check(id, time).is_err(), "{id} {time}");
    }
    for wrong in ["", "{}", "[]", &policy.text().unwrap().replace("\"version\":1", "\"version\":2")] {
        assert!(Policy::read(wrong).is_err(), "{wrong}");
    }
    let many: Vec<_> = (0..40_000).map(|number| function("shop", &format!("function-{number:020}"))).collect();
    let refused = Policy::new("1".into(), now(), RULES, observed(&many, used(&[])), None).text().unwrap_err();
    assert!(refused.to_string().contains("there are too many images in use"), "{refused}");
}

/// Returns a Pod with very many digests in its environment.
fn pod_of_digests(namespace: &str, numbers: std::ops::Range<u64>) -> serde_json::Value {
    let variables: Vec<_> = numbers.map(|number| json!({"name": "A", "value": digest(number).as_str()})).collect();
    json!({"metadata": {"namespace": namespace}, "spec": {"containers": [{"image": "a", "env": variables}]}})
}

#[test]
fn digests_in_strings_of_one_namespace_stop_no_removal_in_others() {
    let old = |name: &str, first: u64| {
        repository(name, (first..first + 2).map(|number| stored(number, 900, Content::Function)).collect())
    };
    let repositories = [old("evil-gone", 1), old("shop-gone", 3), old("shop-quote", 5)];
    let images = || {
        let mut all = used(&[5]);
        all.add(&pod_of_digests("evil", 0..45_000));
        all.add(&pod_of_digests("evil", 45_000..90_000));
        all
    };
    let before = Policy::new("0".into(), now() - hours(24), RULES, observed(&[], images()), None);
    let policy = Policy::new("1".into(), now(), RULES, observed(&[], images()), Some(&before));
    let read = Policy::read(&policy.text().unwrap()).unwrap();
    assert_eq!(goes(&repositories, &read), "shop-gone 3,4 all; shop-quote 6");
}

#[test]
fn a_policy_of_an_earlier_release_is_read() {
    let written = policy(&[], &[1], &[2]).text().unwrap();
    assert!(!written.contains("whole"), "{written}");
    assert!(Policy::read(&written).is_ok());
}

#[test]
fn a_sweep_is_worth_it_only_if_something_has_changed_or_is_due() {
    let before = policy(&[function("shop", "quote")], &[1], &[]);
    let same = Policy { id: "2".into(), at: now() + hours(24), ..before.clone() };
    let done = Report { policy: "1".into(), ..Report::default() };
    assert!(!same.is_worth_a_sweep(&before, Some(&done)));
    assert!(same.is_worth_a_sweep(&before, None), "nobody knows what became of it");
    assert!(same.is_worth_a_sweep(&before, Some(&Report { policy: "0".into(), ..done.clone() })));
    assert!(same.is_worth_a_sweep(&before, Some(&Report { problem: Some("x".into()), ..done.clone() })));
    let due = |at| Report { next: Some(at), ..done.clone() };
    assert!(same.is_worth_a_sweep(&before, Some(&due(now() + hours(24)))));
    assert!(!same.is_worth_a_sweep(&before, Some(&due(now() + hours(25)))));
    let mut others = observed(&[function("shop", "quote")], used(&[1]));
    others.in_use = used(&[1, 7]);
    let others = Policy::new("2".into(), now(), RULES, others, Some(&before));
    assert!(!others.is_worth_a_sweep(&before, Some(&done)), "somebody runs something else");
    let edited = [LivingFunction { generation: 2, ..function("shop", "quote") }];
    assert!(policy(&edited, &[1], &[]).is_worth_a_sweep(&before, Some(&done)));
    assert!(policy(&[function("shop", "quote")], &[1, 2], &[]).is_worth_a_sweep(&before, Some(&done)));
}

#[test]
fn manifests_are_known_by_what_is_in_them() {
    let digest = digest(1);
    let read = |document: &serde_json::Value| {
        Parsed::read(document.to_string().as_bytes()).map(|read| (read.content, read.needs.len()))
    };
    let layer = |annotations: serde_json::Value| json!({"digest": digest, "annotations": annotations});
    let image = |layer: serde_json::Value| json!({"config": {"digest": digest}, "layers": [layer]});
    assert_eq!(read(&image(layer(json!({"dev.mainstay.layer": "server"})))), Some((Content::Function, 2)));
    assert_eq!(read(&image(layer(json!({"dev.mainstay.layer": "another"})))), Some((Content::Image, 2)));
    assert_eq!(read(&json!({"manifests": [{"digest": digest}]})), Some((Content::Other, 1)));
    assert_eq!(read(&json!({"fsLayers": [{"blobSum": digest}]})), Some((Content::Other, 1)));
    for wrong in [json!(1), json!({}), json!({"layers": [{"digest": "sha512:0"}]}), image(json!({"digest": 1}))] {
        assert_eq!(read(&wrong), None, "{wrong}");
    }
    assert!(is_of_function(br#"{"config": {"Labels": {"dev.mainstay.image": "function"}}}"#));
    assert!(!is_of_function(b"{") && !is_of_function(br#"{"config": {"Labels": {"dev.mainstay.image": "x"}}}"#));
}

fn content() -> impl Strategy<Value = Content> {
    prop_oneof![5 => Just(Content::Function), 2 => Just(Content::Image), 1 => Just(Content::Other)]
}

/// A repository with a few manifests. Some manifests are also in other repositories, with tags of builds and of users.
fn any_repository() -> impl Strategy<Value = Repository> {
    let names = prop::sample::select(vec!["a-b", "a-b/cache", "c-d", "c-d/cache", "e"]);
    let manifest = (0u64..12, 0i64..900, content(), prop::option::of(0u64..12), 0u8..4);
    (names, prop::collection::vec(manifest, 0..6), 0u8..8).prop_map(|(name, manifests, torn)| {
        let mut tags = BTreeMap::new();
        let mut all: BTreeMap<u64, Stored> = BTreeMap::new();
        for (number, age, content, child, tag) in manifests {
            let mut one = stored(number, age, content);
            one.needs.extend(child.map(digest));
            match tag {
                0 => _ = tags.insert(format!("v{number}"), digest(number)),
                1 => {}
                _ => _ = tags.insert(Digest::of(one.digest.hex().as_bytes()).hex().to_owned(), digest(number)),
            }
            all.insert(number, one);
        }
        let manifests = (torn > 0).then(|| all.into_values().collect());
        Repository { name: name.to_owned(), manifests, tags }
    })
}

proptest! {
    #[test]
    fn keeps_images_in_use_held_young_foreign_or_newest_and_a_second_sweep_removes_none(
        repositories in prop::collection::vec(any_repository(), 0..6),
        in_use in prop::collection::vec(0u64..12, 0..4), held in prop::collection::vec(0u64..12, 0..4),
        lives in any::<bool>(), late in -20i64..20,
    ) {
        let repositories: BTreeMap<String, Repository> = repositories.into_iter().map(|one| (one.name.clone(), one)).collect();
        let mut repositories: Vec<Repository> = repositories.into_values().collect();
        let functions = if lives { vec![function("a", "b")] } else { Vec::new() };
        let policy = policy(&functions, &in_use, &held);
        let at = now() + SignedDuration::from_mins(late);
        let sweep = decide(&repositories, &policy, at);
        for removal in &sweep.removals {
            let of = repositories.iter().find(|one| one.name == removal.repository).unwrap();
            let manifests = of.manifests.as_ref().expect("what is not understood stays");
            let needed: Vec<&Digest> = manifests.iter().filter(|one| one.content == Content::Other).flat_map(|one| &one.needs).collect();
            for gone in &removal.manifests {
                let one = manifests.iter().find(|one| one.digest == *gone).unwrap();
                prop_assert!(!in_use.iter().chain(&held).any(|number| digest(*number) == *gone), "in use");
                prop_assert!(now().duration_since(one.pushed) >= hours(24), "young");
                prop_assert!(one.content != Content::Other && !needed.contains(&gone), "of an index");
                prop_assert!(one.content == Content::Function || of.name.ends_with("/cache"), "foreign");
                prop_assert!(!of.tags.iter().any(|(tag, digest)| digest == gone && tag.starts_with('v')), "named by somebody");
                let newer = manifests.iter().filter(|other| other.content == Content::Function && other.pushed > one.pushed);
                prop_assert!(of.name != "a-b" || !lives || newer.count() >= 1, "the newest");
            }
            for tag in &removal.tags {
                prop_assert!(removal.manifests.contains(&of.tags[tag]), "a tag of what stays");
            }
            if removal.is_all {
                prop_assert_eq!(removal.manifests.len(), manifests.len());
            }
        }
        for removal in &sweep.removals {
            let of = repositories.iter_mut().find(|one| one.name == removal.repository).unwrap();
            of.manifests.iter_mut().for_each(|all| all.retain(|one| !removal.manifests.contains(&one.digest)));
            of.tags.retain(|tag, _| !removal.tags.contains(tag));
        }
        let vanished = |one: &Repository| sweep.removals.iter().any(|removal| removal.is_all && removal.repository == one.name);
        repositories.retain(|one| !vanished(one));
        prop_assert_eq!(decide(&repositories, &policy, at).removals, Vec::new());
    }

    #[test]
    fn reads_any_manifest_and_policy_without_panic(text in "\\PC{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Parsed::read(&bytes);
        let _ = Parsed::read(format!("{{\"layers\": [{{\"digest\": {text:?}}}]}}").as_bytes());
        let _ = (Policy::read(&text), is_of_function(&bytes));
        Used::default().add(&json!({"spec": {"image": text}, "status": [format!("sha256:{text}")]}));
    }
}
