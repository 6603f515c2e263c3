//! Source, dependencies, runtimes and base images.

use super::*;

#[test]
fn refuses_a_blank_source_and_reports_all_missing_fields_in_one_line() {
    assert_eq!(refused("source: \"  \\n\"\nruntime: nodejs22"), "missing field(s): spec.source");
    assert_eq!(
        refused("type: git\nsource: ''\nruntime: nodejs22\nbaseDir: '  '"),
        "missing field(s): spec.baseDir, spec.reference, spec.source"
    );
    assert_eq!(refused(GIT), "missing field(s): spec.baseDir, spec.reference");
}

#[test]
fn accepts_all_names_of_inline_and_refuses_other_types() {
    for kind in ["", "type: ''\n", "type: inline\n"] {
        assert!(!ok(&format!("{NODE}{kind}")).is_git());
    }
    assert_eq!(
        refused(&format!("{NODE}type: oci")),
        "invalid value: type \"oci\" is neither \"inline\" nor \"git\": spec.type"
    );
}

#[test]
fn refuses_deps_that_are_not_a_json_object() {
    let with = |deps: &str| refused(&format!("{NODE}deps: {deps}"));
    let braces = "invalid value: deps should start with '{' and end with '}': spec.deps";
    assert_eq!(with("'{'"), braces);
    assert_eq!(with("'lodash'"), braces);
    assert_eq!(with("'[]'"), braces);
    assert!(with("'{ test }'").starts_with("invalid value: deps is not JSON: "));
    assert!(with("'{ test }'").ends_with(" at line 1 column 3; npm refuses it (EJSONPARSE): spec.deps"));
    // npm accepts any nesting depth too.
    ok(&format!("{NODE}deps: '{{\"a\":{}1{}}}'", "[".repeat(5000), "]".repeat(5000)));
}

#[test]
fn all_ways_to_have_no_dependencies_are_the_same() {
    for deps in ["''", "'{}'", "' {} '", "\"{\\n}\"", "\" \\n\\t\"", "null"] {
        let found = ok(&format!("{NODE}deps: {deps}"));
        assert_eq!(found.code, ok(NODE).code, "{deps}");
    }
    let python = "source: 'def main(event, context): pass'\nruntime: python312\n";
    for deps in ["''", "\" \\n\\t\"", "null"] {
        assert_eq!(ok(&format!("{python}deps: {deps}")).code, ok(python).code, "{deps}");
    }
}

#[test]
fn accepts_any_deps_for_python() {
    let found = ok("source: x\nruntime: python312\ndeps: \"requests==2.25.1\\n\"");
    assert_eq!(found.code, Code::Inline { source: "x".into(), dependencies: "requests==2.25.1\n".into() });
}

#[test]
fn accepts_source_and_deps_of_one_mebibyte_and_refuses_more() {
    let python = |bytes: usize| {
        let mut function = function("source: x\nruntime: python312\ndeps: requests", &[]);
        function.spec.source = "#".repeat(bytes - "requests".len());
        function
    };
    resolve(&python(1024 * 1024), &settings(), &Credentials::new(&settings(), [])).unwrap();
    let update = refusal(&python(1024 * 1024 + 1));
    assert!(
        update.starts_with("invalid value: source and deps have 1048577 bytes together: spec.deps, spec.source"),
        "{update}"
    );
    // The `{}` of a Node.js Function without dependencies counts towards the size.
    let mut node = function(NODE, &[]);
    node.spec.source = "/".repeat(1024 * 1024 - 1);
    assert!(refusal(&node).contains("1048577 bytes"));
}

#[test]
fn refuses_an_unknown_runtime() {
    let found = resolve(&function("source: x\nruntime: cobol85", &[]), &settings(), &Credentials::new(&settings(), []))
        .unwrap_err();
    let update = text(&found);
    assert!(
        update.starts_with("invalid value: cannot find runtime: cobol85: spec.deps\nspec.runtime must be one of "),
        "{update}"
    );
    assert_eq!(reason(&found), mainstay_api::function_conditions::Reason::RuntimeNotSupported);
    let git = refused("type: git\nsource: r\nruntime: cobol85\nbaseDir: /\nreference: main");
    assert!(git.starts_with("invalid value: cannot find runtime: cobol85: spec.runtime\n"), "{git}");
}

#[test]
fn a_deprecated_runtime_keeps_its_name_and_warns() {
    let found = ok("source: x\nruntime: nodejs12");
    assert_eq!(found.runtime.name, "nodejs12");
    assert!(found.runtime.runs_as != "nodejs12");
    assert_eq!(warnings(&found), ["RuntimeDeprecated"]);
    let variable = found.env.iter().find(|variable| variable.name == "FUNC_RUNTIME").unwrap();
    assert_eq!(variable.value.as_deref(), Some("nodejs12"));
}

#[test]
fn keeps_the_runtime_of_the_status_when_the_default_changes() {
    let settings = Settings { default_runtime: "python312".into(), ..settings() };
    let mut built = function("source: x", &[]);
    assert_eq!(resolve(&built, &settings, &Credentials::new(&settings, [])).unwrap().runtime.name, "python312");
    built.status = serde_yaml::from_str("runtime: nodejs22").unwrap();
    assert_eq!(resolve(&built, &settings, &Credentials::new(&settings, [])).unwrap().runtime.name, "nodejs22");
    built.status = serde_yaml::from_str("runtime: gone1").unwrap();
    assert_eq!(resolve(&built, &settings, &Credentials::new(&settings, [])).unwrap().runtime.name, "python312");
    built.spec.runtime = Some("nodejs22".into());
    built.status = serde_yaml::from_str("runtime: python312").unwrap();
    assert_eq!(resolve(&built, &settings, &Credentials::new(&settings, [])).unwrap().runtime.name, "nodejs22");
}

#[test]
fn a_runtime_has_a_base_image_without_any_setting() {
    for runtime in crate::runtimes::all() {
        let function = function(&format!("source: x\nruntime: {}", runtime.name), &[]);
        let found = resolve(&function, &Settings::default(), &Credentials::default()).unwrap();
        assert_eq!(found.base, BaseImage::parse(runtime.base_image()).unwrap(), "{}", runtime.name);
    }
}

#[test]
fn prefers_the_base_image_of_the_runtime_to_the_general_one() {
    let mut settings = settings();
    let base = BaseImage::parse(&format!("registry.local/node@sha256:{}", "0".repeat(64))).unwrap();
    settings.base_images.insert("nodejs22".into(), base.clone());
    assert_eq!(resolve(&function(NODE, &[]), &settings, &Credentials::new(&settings, [])).unwrap().base, base);
    let python = function("source: x\nruntime: python312", &[]);
    assert_eq!(resolve(&python, &settings, &Credentials::new(&settings, [])).unwrap().base, BaseImage::Scratch);
}

#[test]
fn an_ended_runtime_runs_on_the_nearest_row_that_has_a_base_image_and_says_which() {
    let python = function("source: x\nruntime: python38", &[]);
    let image = |name: &str| BaseImage::parse(&format!("registry.local/{name}@sha256:{}", "0".repeat(64))).unwrap();
    for (configured, expected, row) in [
        (&["python311", "python312", "*"][..], "python311", "python311"),
        (&["python314", "python312", "nodejs22"], "python312", "python312"),
        (&["python312", "*"], "*", "python311"),
        (&["python38", "python311"], "python38", "python311"),
    ] {
        let images = configured.iter().map(|name| ((*name).to_owned(), image(&name.replace('*', "all"))));
        let settings = Settings { base_images: images.collect(), ..Settings::default() };
        let found = resolve(&python, &settings, &Credentials::new(&settings, [])).unwrap();
        assert_eq!(found.base, image(&expected.replace('*', "all")), "{configured:?}");
        let warning = format!("runtime python38 is deprecated: the Function runs on {row}");
        assert_eq!(found.warnings[0].message, warning, "{configured:?}");
        assert_eq!(found.runtime.name, "python38");
    }
    let settings = Settings { base_images: [("nodejs22".into(), image("node"))].into(), ..Settings::default() };
    let shipped = |runtime: &str| BaseImage::parse(crate::runtimes::find(runtime).unwrap().base_image()).unwrap();
    let found = resolve(&python, &settings, &Credentials::new(&settings, [])).unwrap();
    assert_eq!(found.base, shipped("python311"));
    let current = function("source: x\nruntime: python311", &[]);
    let settings = Settings { base_images: [("python312".into(), image("3.12"))].into(), ..Settings::default() };
    let found = resolve(&current, &settings, &Credentials::new(&settings, [])).unwrap();
    assert_eq!(found.base, shipped("python311"), "it asked for that very version");
}

#[test]
fn accepts_the_functions_own_base_image_and_refuses_invalid_ones() {
    for name in ["registry.local/own", "registry.local/own:v2", "localhost:5000/a/b"] {
        let image = format!("{name}@sha256:{}", "0a".repeat(32));
        assert_eq!(ok(&format!("{NODE}runtimeImageOverride: '{image}'")).base, BaseImage::Image(image));
    }
    for tagged in ["registry.local/own:v2", "localhost:5000/a/b:3.12-slim", "node:22"] {
        let base = ok(&format!("{NODE}runtimeImageOverride: '{tagged}'")).base;
        assert_eq!(base, BaseImage::Tagged(tagged.to_owned()));
        assert!(BaseImage::parse(tagged).is_err(), "the operator's are for all, and are what they are");
    }
    for wrong in ["scratch", "oci:/etc", "--registry=/x", "a b", "a//b", "../x", "$(HOME)"] {
        assert_eq!(
            refused(&format!("{NODE}runtimeImageOverride: '{wrong}'")),
            format!("invalid value: \"{wrong}\" is not the name of an image: spec.runtimeImageOverride")
        );
    }
}

#[test]
fn warns_of_a_base_image_where_code_runs_on_the_node_and_refuses_invalid_ones_there_too() {
    let programs = NodePrograms { nodejs: Some("22.4.1".to_owned()), python: None };
    let settings = Settings { node_programs: Some(programs), ..settings() };
    let resolved = |image: &str| {
        let function = function(&format!("{NODE}runtimeImageOverride: '{image}'"), &[]);
        resolve(&function, &settings, &Credentials::new(&settings, []))
    };
    let found = resolved("registry.local/own:v2").unwrap();
    assert_eq!((&found.base, found.has_own_base), (&BaseImage::Scratch, true));
    let said: Vec<_> =
        found.warnings.iter().map(|warning| (warning.reason.as_str(), warning.message.as_str())).collect();
    let message = "registry.local/own:v2, which spec.runtimeImageOverride names, is not used here: Functions of this cluster run \
                   on the Node.js and Python of its node";
    assert_eq!(said, [("RuntimeImageNotUsed", message)]);
    assert!(resolved("a b").is_err());
}

#[test]
fn warns_of_a_runtime_in_another_version_than_the_node_has() {
    let programs = |nodejs: &str, python: &str| NodePrograms {
        nodejs: Some(nodejs.to_owned()).filter(|version| !version.is_empty()),
        python: Some(python.to_owned()).filter(|version| !version.is_empty()),
    };
    let warned = |runtime: &str, programs: NodePrograms| {
        let settings = Settings { node_programs: Some(programs), ..settings() };
        let function = function(&format!("source: x\nruntime: {runtime}"), &[]);
        let found = resolve(&function, &settings, &Credentials::new(&settings, [])).unwrap();
        assert_eq!(found.base, BaseImage::Scratch, "{runtime}");
        let said = found.warnings.iter().map(|warning| format!("{}: {}", warning.reason, warning.message));
        said.collect::<Vec<_>>().join("\n")
    };
    for runtime in ["nodejs22", "python312"] {
        assert_eq!(warned(runtime, programs("22.4.1", "3.12.4")), "", "{runtime}");
    }
    assert_eq!(
        warned("nodejs22", programs("20.11.0", "3.12.4")),
        "RuntimeVersionDiffers: runtime nodejs22 names Node.js 22: this Function runs on Node.js 20.11.0, the version on its node"
    );
    assert_eq!(
        warned("python311", programs("22.4.1", "3.1.1")),
        "RuntimeVersionDiffers: runtime python311 names Python 3.11: this Function runs on Python 3.1.1, the version on its node"
    );
    assert_eq!(
        warned("nodejs18", programs("22.4.1", "")),
        "RuntimeVersionDiffers: runtime nodejs18 names Node.js 18: this Function runs on Node.js 22.4.1, the version on its node"
    );
    assert_eq!(
        warned("python312", programs("22.4.1", "")),
        "RuntimeMissing: runtime python312 needs Python 3.12: its node has no Python on its PATH"
    );
}

#[test]
fn refuses_a_base_image_without_digest_and_tag_and_says_what_to_write() {
    let short = format!("registry.local/own@sha256:{}", "0".repeat(63));
    let name = "registry.local:5000/own";
    for (image, named) in [(name, name), ("registry.local/own", "registry.local/own"), (&*short, "registry.local/own")]
    {
        assert_eq!(
            refused(&format!("{NODE}runtimeImageOverride: '{image}'")),
            format!(
                "invalid value: \"{image}\" is named by neither a digest nor a tag: spec.runtimeImageOverride\nwrite it with \
                 its digest, as {named}@sha256:…, or with a tag, as {named}:TAG, which each build resolves; `skopeo inspect \
                 docker://{named}` prints the digest"
            )
        );
    }
}

#[test]
fn git_functions_name_a_repository_a_directory_and_a_reference() {
    let found = ok(&format!("{GIT}baseDir: /fn//hello/\nreference: feature/x\ndeps: '{{}}'"));
    let Code::Git { repository, reference, base_dir } = &found.code else { panic!("{:?}", found.code) };
    assert_eq!(
        (repository, reference.to_string(), base_dir.to_string()),
        (&Origin::Named("repo".into()), "feature/x".into(), "/fn/hello".into())
    );
    assert_eq!(warnings(&found), ["DepsIgnored"]);
}

#[test]
fn refuses_invalid_references_and_directories() {
    let with = |base_dir: &str, reference: &str| refused(&format!("{GIT}baseDir: {base_dir}\nreference: {reference}"));
    assert!(with("../x", "main").contains("`..` is not allowed: spec.baseDir"), "{}", with("../x", "main"));
    assert!(with("/a/../../b", "main").ends_with(": spec.baseDir"));
    assert!(with("\"a\\nb\"", "main").contains("has control characters: spec.baseDir"));
    assert!(with("/", "a..b").ends_with(": spec.reference"), "{}", with("/", "a..b"));
    assert!(with("/", "'--upload-pack=x'").ends_with(": spec.reference"));
    let inline = refused("type: git\nsource: 'module.exports = 1'\nruntime: nodejs22\nbaseDir: /\nreference: main");
    assert!(inline.starts_with("invalid value: source is not the name of a GitRepository: spec.source\n"), "{inline}");
}

/// Returns a Function that declares this repository itself.
fn own(repository: &str) -> String {
    format!("type: git\nsource: ''\nruntime: nodejs22\nreference: main\nbaseDir: /\ngitRepository: {repository}")
}

#[test]
fn a_function_may_have_a_repository_of_its_own() {
    let address = |repository: &str| {
        let Code::Git { repository, .. } = ok(&own(repository)).code else { panic!("{repository}") };
        assert!(matches!(repository, Origin::Own(..)));
        repository.to_string()
    };
    assert_eq!(address("{url: ' https://h.example/r.git '}"), "https://h.example/r.git");
    let auth = |kind: &str| format!("auth: {{type: {kind}, secretName: git}}");
    assert_eq!(address(&format!("{{url: 'https://me@h.example/r', {}}}", auth("basic"))), "https://h.example/r");
    assert_eq!(address(&format!("{{url: 'git@h.example:o/r.git', {}}}", auth("key"))), "git@h.example:o/r.git");
    // An empty repository counts as missing, and inline code ignores it.
    let Code::Git { repository, .. } = ok(&format!("{GIT}baseDir: /\nreference: main\ngitRepository: {{}}")).code
    else {
        panic!("it is in Git")
    };
    assert_eq!(repository, Origin::Named("repo".into()));
    ok(&format!("{NODE}gitRepository: {{url: 'no address'}}"));
}

#[test]
fn refuses_a_repository_of_its_own_that_cannot_be_read() {
    let key = "auth: {type: key, secretName: git}";
    for (repository, expected) in [
        ("{}".to_owned(), "missing field(s): spec.source"),
        ("{url: ' '}".to_owned(), "missing field(s): spec.gitRepository.url"),
        (format!("{{{key}}}"), "missing field(s): spec.gitRepository.url"),
        (
            "{url: 'https://h/r', auth: {type: basic, secretName: ' '}}".to_owned(),
            "missing field(s): spec.gitRepository.auth.secretName",
        ),
        (
            "{url: 'https://h/r', auth: {type: basic, secretName: a/b}}".to_owned(),
            "secretName is not the name of a Secret",
        ),
        ("{url: 'ftp://h/r'}".to_owned(), "use https:// or ssh://: spec.gitRepository.url"),
        ("{url: no address}".to_owned(), "or user@host:path: spec.gitRepository.url"),
        ("{url: 'git@h:o/r.git'}".to_owned(), ": spec.gitRepository"),
        (format!("{{url: 'https://h/r', {key}}}"), ": spec.gitRepository"),
        ("{url: 'https://me:hunter2@h/r'}".to_owned(), "and name the Secret in auth: spec.gitRepository"),
    ] {
        let said = refused(&own(&repository));
        assert!(said.contains(expected) && !said.contains("hunter2"), "{repository}: {said}");
    }
    let both = refused(&own("{url: 'https://h/r'}").replace("source: ''", "source: repo"));
    let expected = "invalid value: the repository has both an address and the name of a GitRepository: spec.gitRepository, \
                    spec.source\nremove either of them";
    assert_eq!(both, expected);
}
