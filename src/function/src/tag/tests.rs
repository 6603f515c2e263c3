//! Tests which changes alter a tag, and their causes.

use super::*;
use crate::{BaseImage, Credentials, Settings, resolve};
use mainstay_api::{Function, FunctionSpec};

const INLINE: &str = "{source: 's', deps: '{\"a\": 1}', runtime: nodejs22}";
const GIT: &str = "{type: git, source: r, runtime: nodejs22, baseDir: /, reference: main}";
const PLATFORM: &str = "linux/amd64";

fn resolved(spec: &str, change: impl FnOnce(&mut Function)) -> ResolvedFunction {
    let spec: FunctionSpec = serde_yaml::from_str(spec).unwrap();
    let mut function = Function::new("hello", spec);
    function.metadata.namespace = Some("default".into());
    change(&mut function);
    let settings = Settings { base_images: [("*".to_owned(), BaseImage::Scratch)].into(), ..Settings::default() };
    resolve(&function, &settings, &Credentials::new(&settings, [])).unwrap()
}

fn of(spec: &str) -> Recipe {
    recipe(&resolved(spec, |_| ()), None, PLATFORM, None)
}

fn built(recipe: &Recipe) -> Built {
    Built {
        base: String::new(),
        repository: "r/default-hello".into(),
        tag: recipe.tag.clone(),
        digest: "sha256:x".into(),
        dependencies: String::new(),
        inputs: recipe.inputs.clone(),
    }
}

fn why(old: &Recipe, new: &Recipe) -> String {
    let causes = causes(new, "r/default-hello", Some(&built(old)));
    causes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[test]
fn equal_inputs_give_equal_tags_of_64_digits() {
    let tag = of(INLINE).tag;
    assert_eq!(tag, of(INLINE).tag);
    assert!(tag.len() == 64 && tag.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(why(&of(INLINE), &of(INLINE)), "");
}

#[test]
fn every_input_changes_the_tag_and_says_why() {
    let first = of(INLINE);
    let own_base = format!(
        "{{source: 's', deps: '{{\"a\": 1}}', runtime: nodejs22, runtimeImageOverride: 'a/b@sha256:{}'}}",
        "0".repeat(64)
    );
    for (spec, cause) in [
        ("{source: 't', deps: '{\"a\": 1}', runtime: nodejs22}", "SOURCE"),
        ("{source: 's', deps: '{\"a\": 2}', runtime: nodejs22}", "DEPS"),
        ("{source: 's', deps: '{\"a\": 1}', runtime: python312}", "RUNTIME"),
        (&own_base, "BASE"),
        ("{source: 't', runtime: nodejs22}", "SOURCE,DEPS"),
    ] {
        let next = of(spec);
        assert_ne!(first.tag, next.tag, "{spec}");
        assert_eq!(why(&first, &next), cause, "{spec}");
    }
    let again = recipe(&resolved(INLINE, annotate("1")), None, PLATFORM, None);
    assert_eq!(why(&first, &again), "REQUESTED");
    let other = recipe(&resolved(INLINE, annotate("2")), None, PLATFORM, None);
    assert_eq!((why(&again, &other), again.tag == other.tag), ("REQUESTED".into(), false));
    let arm = recipe(&resolved(INLINE, |_| ()), None, "linux/arm64", None);
    assert_eq!((why(&first, &arm), first.tag == arm.tag), ("BASE".into(), false));
    assert_eq!(causes(&first, "other/default-hello", Some(&built(&first))), [BuildCause::Registry]);
    assert_eq!(causes(&first, "r/default-hello", None), [BuildCause::Source]);
}

fn annotate(value: &str) -> impl FnOnce(&mut Function) {
    let pair = (mainstay_api::names::REBUILD.to_owned(), value.to_owned());
    move |function| function.metadata.annotations = Some([pair].into())
}

#[test]
fn inputs_that_are_not_in_the_image_change_nothing() {
    let first = of(INLINE);
    for more in ["env: [{name: A, value: b}]", "labels: {a: b}", "minReplicas: 2", "resources: {limits: {cpu: 1}}"] {
        let spec = INLINE.replace('}', "").replace("'{\"a\": 1", "'{\"a\": 1}") + ", " + more + "}";
        assert_eq!(of(&spec), first, "{more}");
    }
    let labelled = resolved(INLINE, |function| {
        function.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        function.metadata.uid = Some("u".into());
        function.metadata.generation = Some(9);
    });
    assert_eq!(recipe(&labelled, None, PLATFORM, None), first);
}

#[test]
fn the_source_of_a_git_function_is_its_tree_not_its_location() {
    let tree = |spec: &str, tree: &str| recipe(&resolved(spec, |_| ()), Some(tree), PLATFORM, None);
    let first = tree(GIT, "aaaa");
    assert_eq!(why(&first, &tree(GIT, "bbbb")), "SOURCE");
    assert_eq!(tree(&GIT.replace("main", "other"), "aaaa"), first);
    assert_eq!(tree(&GIT.replace("baseDir: /", "baseDir: /moved"), "aaaa"), first);
    assert_eq!(tree(&GIT.replace("source: r", "source: mirror"), "aaaa"), first);
}

#[test]
fn different_sequences_of_parts_have_different_encodings() {
    let a = of("{source: 'a-b', deps: 'c', runtime: python312}");
    assert_ne!(a.tag, of("{source: 'a', deps: 'b-c', runtime: python312}").tag);
    assert_ne!(a.tag, of("{source: 'a-bc', runtime: python312}").tag);
    let placed = |namespace: &str, name: &str| {
        let place = |function: &mut Function| {
            function.metadata.namespace = Some(namespace.into());
            function.metadata.name = Some(name.into());
        };
        recipe(&resolved(INLINE, place), None, PLATFORM, None).tag
    };
    // In earlier releases, both Functions have the repository `a-b-c`.
    assert_ne!(placed("a-b", "c"), placed("a", "b-c"));
    let inline = recipe(&resolved("{source: aaaa, runtime: python312}", |_| ()), None, PLATFORM, None);
    let git = recipe(&resolved(&GIT.replace("nodejs22", "python312"), |_| ()), Some("aaaa"), PLATFORM, None);
    assert_ne!(inline.tag, git.tag);
}

#[test]
fn an_edited_status_does_not_keep_an_old_image() {
    let first = of(INLINE);
    let mut built = built(&first);
    built.tag = "0".repeat(64);
    assert_eq!(causes(&first, "r/default-hello", Some(&built)), [BuildCause::Source]);
}

#[test]
fn a_change_names_what_it_builds_again() {
    let settings = Settings { base_images: [("*".to_owned(), BaseImage::Scratch)].into(), ..Settings::default() };
    let function = |spec: &str| {
        let mut function = Function::new("hello", serde_yaml::from_str::<FunctionSpec>(spec).unwrap());
        function.metadata.namespace = Some("default".into());
        function
    };
    let check = |before: &str, after: &str, expected: &[BuildCause]| {
        let before = (!before.is_empty()).then(|| function(before));
        let found = causes_of_change(before.as_ref(), &function(after), &settings);
        assert_eq!(found.as_deref(), Ok(expected), "{after}");
    };
    let with = |from: &str, to: &str| INLINE.replace(from, to);
    check("", INLINE, &[BuildCause::Source]);
    check(INLINE, INLINE, &[]);
    check(INLINE, &with("}'", "}', env: [{name: A, value: x}], minReplicas: 2, maxReplicas: 3"), &[]);
    check(INLINE, &with("source: 's'", "source: 't'"), &[BuildCause::Source]);
    check(INLINE, &with("{\"a\": 1}", "{}"), &[BuildCause::Deps]);
    check(INLINE, &with("nodejs22", "nodejs24"), &[BuildCause::Runtime]);
    check(GIT, &GIT.replace("baseDir: /", "baseDir: /b"), &[BuildCause::Source]);
    check(GIT, &GIT.replace("main", "next"), &[BuildCause::Source]);
    assert!(causes_of_change(None, &function(&with("nodejs22", "cobol60")), &settings).is_err());
    check(&with("nodejs22", "cobol60"), INLINE, &[BuildCause::Source]);
}
