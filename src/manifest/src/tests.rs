//! Tests of decoded objects, and of problems.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::*;
use mainstay_git::{BlobId, Entry, EntryKind};

mod encrypted;
mod left_out;
mod recognise;

/// Limits with a stopped clock, so that a slow machine does not affect the results.
fn limits() -> Limits {
    Limits::new(|| Duration::ZERO)
}

fn id(bytes: &[u8]) -> BlobId {
    format!("{}00000000", mainstay_object::Digest::of(bytes)).parse().unwrap()
}

fn listing(files: &[(&str, &[u8])]) -> Vec<Entry> {
    files
        .iter()
        .map(|(path, text)| Entry {
            path: (*path).to_owned(),
            id: id(text),
            size: text.len() as u64,
            kind: EntryKind::File,
            executable: false,
            flaw: None,
        })
        .collect()
}

fn decode_bytes(files: &[(&str, &[u8])], cache: &DecodeCache, limits: &Limits) -> Decoded {
    let mut read = |entry: &Entry| Ok(files.iter().find(|(path, _)| *path == entry.path).unwrap().1.to_vec());
    decode(&listing(files), "", &mut read, cache, limits).unwrap()
}

fn decode_files(files: &[(&str, &str)]) -> Decoded {
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
    decode_bytes(&files, &DecodeCache::default(), &limits())
}

/// Returns objects with their locations, followed by problems, one per line.
fn shown(decoded: &Decoded) -> String {
    let objects = decoded.objects.iter().map(|object| format!("{} @ {}", object.key, object.place));
    objects.chain(decoded.problems.iter().map(ToString::to_string)).collect::<Vec<_>>().join("\n")
}

fn check(files: &[(&str, &str)], expected: &str) {
    assert_eq!(shown(&decode_files(files)), expected.trim());
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

#[test]
fn rules_that_are_not_fetched_are_a_problem() {
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n";
    let files = [(".mainstayignore", pointer), ("a.yaml", &config_map("a"))];
    let problems: Vec<_> = decode_files(&files).problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains(".mainstayignore") && problems[0].contains("Git LFS"), "{problems:?}");
}

/// Returns the only object of a document.
fn value_of(text: &str) -> Value {
    let decoded = decode_files(&[("a.yaml", text)]);
    assert_eq!(decoded.problems, [], "{text}");
    assert_eq!(decoded.objects.len(), 1, "{text}");
    decoded.objects[0].value()
}

#[test]
fn reads_documents_in_order_with_their_places() {
    let two = format!("# first\n---\n{}---\n# nothing\n---\n\n{}...\n", config_map("a"), config_map("b"));
    check(
        &[
            ("b/x.yml", &two),
            ("a.json", r#" {"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"c","namespace":"n"}}"#),
            ("README.md", "---\nnot a manifest"),
            ("empty.yaml", ""),
            ("comment.yaml", "# nothing\n---\n---\n"),
            ("bom.yaml", &format!("\u{feff}{}", config_map("bom"))),
            ("crlf.yaml", &format!("---\r\n{}---\r\n", config_map("crlf").replace('\n', "\r\n"))),
        ],
        "
Deployment.apps n/c @ a.json, document 1, line 1, column 2
ConfigMap a @ b/x.yml, document 1, line 3, column 1
ConfigMap b @ b/x.yml, document 3, line 11, column 1
ConfigMap bom @ bom.yaml, document 1, line 1, column 1
ConfigMap crlf @ crlf.yaml, document 1, line 2, column 1",
    );
}

#[test]
fn a_document_may_say_its_version_of_yaml() {
    let (a, b) = (config_map("a"), config_map("b"));
    check(
        &[
            ("a.yaml", &format!("%YAML 1.1\n---\n{a}...\n# next\n%YAML 1.2\n---\n{b}")),
            ("b.yaml", &format!("# a comment\r\n%YAML 1.2\r\n---\r\n{}", config_map("c").replace('\n', "\r\n"))),
            ("c.yaml", &format!("%TAG ! tag:example.org,2000:\n---\n{}", config_map("d"))),
            ("d.yaml", &format!("%YAML 2.0\n---\n{}", config_map("e"))),
        ],
        "
ConfigMap a @ a.yaml, document 1, line 3, column 1
ConfigMap b @ a.yaml, document 2, line 11, column 1
ConfigMap c @ b.yaml, document 1, line 4, column 1
ConfigMap d @ c.yaml, document 2, line 3, column 1
ConfigMap e @ d.yaml, document 2, line 3, column 1
c.yaml, document 1, line 2, column 1: invalid YAML: there is no document after a directive (remove the line that begins with `%`)
d.yaml, document 1, line 1, column 1: invalid YAML: unsupported YAML major version",
    );
}

#[test]
fn extensions_count_in_either_case() {
    let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}"#;
    check(
        &[("A.YAML", &config_map("a")), ("B.Yml", &config_map("b")), ("C.JSON", json), ("D.YAML.bak", "x")],
        "
ConfigMap a @ A.YAML, document 1, line 1, column 1
ConfigMap b @ B.Yml, document 1, line 1, column 1
ConfigMap c @ C.JSON, document 1, line 1, column 1",
    );
}

#[test]
fn no_path_can_end_its_line_or_turn_it_round() {
    let decoded = decode_files(&[("\u{202e}lmay.bew\u{2066}.yaml", "a: ["), ("a\nGitSync a/b: applied.yaml", "a: [")]);
    let said = shown(&decoded);
    assert!(said.starts_with("a\\nGitSync a/b: applied.yaml, document 1"), "{said}");
    assert!(said.contains("\n\\u{202e}lmay.bew\\u{2066}.yaml, document 1"), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn unpacks_lists() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n- kind: ConfigMapList\n  apiVersion: v1\n  items:\n  - metadata: {name: b}\n---\nkind: List\napiVersion: v1\n";
    let json = r#"{"apiVersion":"v1","kind":"List","items":[
{"apiVersion":"v1","kind":"Secret","metadata":{"name":"c"}}]}
{"apiVersion":"v1","kind":"Secret","metadata":{"name":"d"}}"#;
    check(
        &[("a.yaml", list), ("b.json", json)],
        "
ConfigMap a @ a.yaml, document 1, line 4, column 3
ConfigMap b @ a.yaml, document 1, line 7, column 3
Secret c @ b.json, document 1, line 2, column 1
Secret d @ b.json, document 2, line 3, column 1",
    );
    // A kind that ends in List and has a name is a normal object.
    check(
        &[("a.yaml", "apiVersion: x/v1\nkind: AllowList\nmetadata: {name: a}\nitems: [1]\n")],
        "AllowList.x a @ a.yaml, document 1, line 1, column 1",
    );
}

#[test]
fn reports_everything_at_once() {
    let one = "apiVersion: v1\nkind: Pod\nmetadata:\n  generateName: x-\n---\nkind: Pod\nmetadata: {name: a}\n---\nreplicas: 3\n---\n- a\n---\njust text\n";
    let two = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    app: web\n    on: true\n    version: 1.0\ndata:\n  a: b\n  a: c\n";
    let three = "kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata:\n    name: 7\n- text\n- a: b\n";
    check(
        &[
            ("1.yaml", one),
            ("2.yaml", two),
            ("3.yaml", three),
            ("4.yaml", "a: [b\n---\na: b: c\n--- text\nx: y\n---\na:\n\t- b\n"),
        ],
        r#"
1.yaml, document 1, line 4, column 3: metadata.generateName cannot be synced (give the object a metadata.name: an object without one cannot be kept in sync)
1.yaml, document 2, line 6, column 1: apiVersion is missing (every manifest needs apiVersion, kind and metadata.name)
1.yaml, document 3, line 9, column 1: the document has neither apiVersion nor kind (if it is not a manifest, list it in .mainstayignore)
1.yaml, document 4, line 11, column 1: the document is not an object (if it is not a manifest, list it in .mainstayignore)
1.yaml, document 5, line 13, column 1: the document is not an object (if it is not a manifest, list it in .mainstayignore)
2.yaml, document 1, line 7, column 5: metadata.labels.true is a boolean, not a string (put the value in quotes)
2.yaml, document 1, line 8, column 5: metadata.labels.version is a number, not a string (put the value in quotes)
2.yaml, document 1, line 11, column 3: the key "a" is defined twice; first on line 10 (keep one of the two)
3.yaml, document 1, line 7, column 5: metadata.name is a number, not a string (put the value in quotes)
3.yaml, document 1, line 8, column 3: items[1] is not an object
3.yaml, document 1, line 9, column 3: items[2] has neither apiVersion nor kind (if it is not a manifest, list it in .mainstayignore)
4.yaml, document 1, line 1, column 4: invalid YAML: unclosed bracket '['
4.yaml, document 2, line 3, column 5: invalid YAML: mapping values are not allowed in this context (quote values that contain `: `, and check the indentation)
4.yaml, document 3, line 4, column 4: there is text after the document separator `---` (put it on the next line)
4.yaml, document 4, line 8, column 2: YAML does not allow a tab here (indent with spaces)"#,
    );
}

#[test]
fn says_which_labels_to_quote() {
    check(
        &[(
            "a.yaml",
            "apiVersion: v1\nkind: X\nmetadata:\n  name: a\n  labels:\n    app: web\n    on: true\n    version: 1.0\n  annotations:\n    empty:\n",
        )],
        "
a.yaml, document 1, line 7, column 5: metadata.labels.true is a boolean, not a string (put the value in quotes)
a.yaml, document 1, line 8, column 5: metadata.labels.version is a number, not a string (put the value in quotes)
a.yaml, document 1, line 10, column 5: metadata.annotations.empty is null, not a string (put the value in quotes)",
    );
}

#[test]
fn names_both_places_of_an_object_that_is_written_twice() {
    let other_version = "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: a, namespace: shop}\n";
    check(
        &[("a.yaml", &other_version.replace("beta1", "")), ("b/c.yaml", &format!("# x\n{other_version}"))],
        "
Deployment.apps shop/a @ a.yaml, document 1, line 1, column 1
Deployment.apps shop/a @ b/c.yaml, document 1, line 2, column 1
b/c.yaml, document 1, line 2, column 1: Deployment.apps shop/a is defined twice; first at a.yaml, document 1, line 1, column 1 (keep one of the two)",
    );
}

#[test]
fn leaves_out_what_ignore_files_and_flux_annotations_name() {
    let ignored = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: {fluxcd.io/ignore: 'true'}\n";
    check(
        &[
            ("app/.mainstayignore", "values.yaml\n/chart\n"),
            ("app/values.yaml", "replicas: 1\n"),
            ("app/chart/kustomization.yaml", "resources: []\n"),
            ("app/chart/broken.yaml", "{{"),
            ("app/a.yaml", ignored),
            ("app/b.yaml", &config_map("b")),
        ],
        "ConfigMap b @ app/b.yaml, document 1, line 1, column 1",
    );
}

#[test]
fn kustomizations_are_named_and_links_and_submodules_are_not_followed() {
    let files: &[(&str, &[u8])] =
        &[("a/kustomization.yaml", b"x"), ("a/base/Kustomization", b"x"), ("a/b.yaml", b"x"), ("c", b"d"), ("e", b"")];
    let mut entries = listing(files);
    entries[3].kind = EntryKind::Symlink;
    entries[4].kind = EntryKind::Submodule;
    let mut read = |entry: &Entry| -> Result<Vec<u8>, mainstay_git::Error> {
        assert_eq!(entry.kind, EntryKind::Symlink, "{} is read", entry.path);
        Ok(files.iter().find(|(path, _)| *path == entry.path).unwrap().1.to_vec())
    };
    let decoded = decode(&entries, "", &mut read, &DecodeCache::default(), &limits()).unwrap();
    assert_eq!(decoded.kustomizations, ["a/kustomization.yaml"]);
    assert_eq!(
        shown(&decoded),
        "\
c: symbolic links are not followed (put the files themselves there, or list it in .mainstayignore)
e: the submodule is not fetched (set `submodules: true` in the GitRepository and list the submodule in .gitmodules, or list it in .mainstayignore)"
    );
}

#[test]
fn links_beside_manifests_are_left_out_unless_they_are_named_like_manifests() {
    let map = config_map("a");
    let files: &[(&str, &[u8])] = &[
        ("app/CHANGES.md", b"missing.md"),
        ("app/Kustomization.yml", b"README.md"),
        ("app/README.md", b"../README.md"),
        ("app/a.yaml", map.as_bytes()),
        ("app/b.yaml", b"README.md"),
        ("app/c.JSON", b"a.yaml"),
        ("app/sub", b"../base"),
        ("base/b.yaml", b""),
    ];
    let mut entries = listing(files);
    entries
        .iter_mut()
        .filter(|entry| !["app/a.yaml", "base/b.yaml"].contains(&&*entry.path))
        .for_each(|entry| entry.kind = EntryKind::Symlink);
    let mut read = |entry: &Entry| Ok(files.iter().find(|(path, _)| *path == entry.path).unwrap().1.to_vec());
    let decoded = decode(&entries, "", &mut read, &DecodeCache::default(), &limits()).unwrap();
    let hint = "symbolic links are not followed (put the files themselves there, or list it in .mainstayignore)";
    assert_eq!(
        shown(&decoded),
        format!(
            "ConfigMap a @ app/a.yaml, document 1, line 1, column 1\napp/Kustomization.yml: {hint}\napp/b.yaml: {hint}\n\
             app/c.JSON: {hint}\napp/sub: {hint}"
        )
    );
}

#[test]
fn refuses_bytes_that_are_not_text() {
    let files: &[(&str, &[u8])] = &[
        ("a.yaml", b"a: b\nc: \xff"),
        ("b.yaml", b"a: \0b"),
        ("c.yaml", b"\xff\xfea\0"),
        ("d.yaml", b"a: b\n---\na: \x07\n"),
    ];
    let decoded = decode_bytes(files, &DecodeCache::default(), &limits());
    assert_eq!(
        shown(&decoded),
        "\
a.yaml, line 2, column 4: the file is not UTF-8 text (save it as UTF-8)
b.yaml, line 1, column 4: the file has a NUL byte (save it as UTF-8)
c.yaml: it is UTF-16 text (save it as UTF-8)
d.yaml, document 1, line 1, column 1: the document has neither apiVersion nor kind (if it is not a manifest, list it in .mainstayignore)
d.yaml, document 2, line 3, column 4: a control character is not allowed (write it as an escape in double quotes)"
    );
}

#[test]
fn never_shows_a_value() {
    let secrets = [
        "hunter2",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {p: hunter2}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  p: \"hunter2\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  p: {hunter2: hunter2\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  p: [hunter2]\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  p: a\n  p: hunter2\n  q: hunter2: b\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  p: !!int hunter2\n  q: *hunter2\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: hunter2\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: [hunter2], namespace: hunter2/, labels: {a: [hunter2]}}\n",
        "apiVersion: hunter2!\nkind: hunter2!\n",
        "{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"data\": {\"p\": \"hunter2",
        "--- hunter2\n",
        "a: hunter2\n%hunter2\n",
    ];
    for text in secrets {
        for path in ["a.yaml", "a.json"] {
            let decoded = decode_files(&[(path, text)]);
            assert_ne!(decoded.problems, [], "{text}");
            assert!(!shown(&decoded).contains("hunter2"), "{text}: {}", shown(&decoded));
        }
    }
}

#[test]
fn hostile_documents_end_in_a_problem_within_the_limits() {
    let bomb = (0..9).fold("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
        let next = n + 1;
        let aliases = vec![format!("*a{n}"); 10].join(",");
        format!("{text}a{next}: &a{next} [{aliases}]\n")
    });
    let merges = format!("a: &a {{x: y}}\nb:\n{}", "  <<: *a\n".repeat(200_000));
    let deep_alias = (0..60).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
        let next = n + 1;
        format!("{text}a{next}: &a{next} [[*a{n}]]\n")
    });
    let cases = [
        (bomb, "the document takes too much memory"),
        (format!("a: {}", "[".repeat(200_000)), "the document is nested too deeply"),
        (format!("{}a", "- ".repeat(200_000)), "line 1, column 201: the document is nested more than 100 deep"),
        (format!("{{\"a\":{}", "[".repeat(200_000)), "nested more than 100 deep"),
        ((0..1000).fold(String::new(), |text, n| text + &" ".repeat(n) + "a:\n"), "nested more than 100 deep"),
        (deep_alias, "nested more than 100 deep"),
        (format!("a: {}\n", "x".repeat(4 << 20)), "the document is larger than 3 MiB"),
        (format!("{{\"a\": \"{}\"}}", "x".repeat(4 << 20)), "larger than 3 MiB"),
        ("a: &a [*a]\n".into(), "the alias is inside the value that it refers to"),
        (merges, "the document takes too much memory"),
        (format!("[{}]", "1,".repeat(1_500_000)), "the document takes too much memory"),
        ("? [a]\n: b\n".into(), "a key must be a string, a number or a boolean"),
        ("a: .inf\n".into(), "infinity"),
        ("a: 1\n...\nb: 2\n".into(), "content after the end of the document"),
        ("%TAG ! a:b\n---\na: b\n".into(), "no document after a directive"),
        ("a: ]\n".into(), "invalid YAML"),
        (format!("kind: List\napiVersion: v1\nitems: [{}]\n", "1,".repeat(300_000)), "items[0] is not an object"),
    ];
    for (text, expected) in cases {
        let decoded = decode_files(&[("a.yaml", &text)]);
        assert!(shown(&decoded).contains(expected), "{}: {}", &text[..text.len().min(50)], shown(&decoded));
    }
}

#[test]
fn documents_that_others_have_read_count_as_well() {
    let (cache, limits) = (DecodeCache::default(), Limits { documents: 3, ..limits() });
    let two = |name: &str| format!("{}---\n{}", config_map(&format!("{name}1")), config_map(&format!("{name}2")));
    let (a, b, c) = (two("a"), two("b"), config_map("c"));
    let files = [("a.yaml", a.as_bytes()), ("b.yaml", b.as_bytes()), ("c.yaml", c.as_bytes())];
    let alone: Vec<_> = files.iter().map(|file| decode_bytes(&[*file], &cache, &limits)).collect();
    assert!(alone.iter().all(|decoded| decoded.problems.is_empty()));
    let problems = decode_bytes(&files, &cache, &limits).problems;
    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, ["b.yaml: there are more than 3 documents (split the repository)"]);
}

#[test]
fn a_million_documents_are_too_many() {
    let limits = Limits { documents: 1000, ..limits() };
    let many = "a: b\n---\n".repeat(1_000_000);
    let decoded = decode_bytes(&[("a.yaml", many.as_bytes())], &DecodeCache::default(), &limits);
    assert!(decoded.problems.len() <= 1001);
    let fine = (0..600).fold(String::new(), |text, n| format!("{text}---\n{}", config_map(&format!("a{n}"))));
    let more = (0..600).fold(String::new(), |text, n| format!("{text}---\n{}", config_map(&format!("b{n}"))));
    let decoded =
        decode_bytes(&[("a.yaml", fine.as_bytes()), ("b.yaml", more.as_bytes())], &DecodeCache::default(), &limits);
    assert_eq!(
        decoded.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["b.yaml: there are more than 1000 documents (split the repository)"]
    );
}

#[test]
fn a_file_that_takes_too_long_is_a_problem() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let ticks = AtomicU64::new(0);
    let limits = Limits::new(move || Duration::from_millis(100 * ticks.fetch_add(1, Ordering::Relaxed)));
    let slow = format!("apiVersion: v1\nkind: X\nmetadata: {{name: a}}\nspec: [{}]\n", "a, ".repeat(20_000));
    let decoded = decode_bytes(&[("a.yaml", slow.as_bytes())], &DecodeCache::default(), &limits);
    assert!(shown(&decoded).contains("timed out while reading the file (split the file)"), "{}", shown(&decoded));
}

#[test]
fn files_too_large_are_not_even_read() {
    let mut entries = listing(&[("a.yaml", b"")]);
    entries[0].size = 17 << 20;
    let mut read = |entry: &Entry| -> Result<Vec<u8>, mainstay_git::Error> { panic!("{} is read", entry.path) };
    let decoded = decode(&entries, "", &mut read, &DecodeCache::default(), &limits()).unwrap();
    assert_eq!(shown(&decoded), "a.yaml: the file is larger than 16 MiB (split it)");
}

#[test]
fn reads_only_files_that_are_not_cached() {
    let cache = DecodeCache::default();
    let (a, b, c) = (config_map("a"), config_map("b"), config_map("c"));
    let first: Vec<(&str, &[u8])> = vec![("a.yaml", a.as_bytes()), ("b.yaml", b.as_bytes())];
    let second: Vec<(&str, &[u8])> = vec![("a.yaml", a.as_bytes()), ("b.yaml", c.as_bytes())];
    let held = decode_bytes(&first, &cache, &limits());
    assert_eq!(cache.files(), 2);

    let mut reads = Vec::new();
    let mut read = |entry: &Entry| {
        reads.push(entry.path.clone());
        Ok(c.as_bytes().to_vec())
    };
    let next = decode(&listing(&second), "", &mut read, &cache, &limits()).unwrap();
    assert_eq!(reads, ["b.yaml"]);
    assert!(std::sync::Arc::ptr_eq(&held.objects[0], &next.objects[0]));

    drop(held);
    let again = decode_bytes(&second, &cache, &limits());
    assert_eq!(cache.files(), 2, "what only the first holder used is gone");
    drop((next, again));
    decode_bytes(&[], &cache, &limits());
    assert_eq!(cache.files(), 0);
}

#[test]
fn means_what_yaml_means_to_kubectl() {
    // The integration tests pass the same inputs to kubectl itself.
    let value = value_of(
        "apiVersion: x/v1\nkind: X\nmetadata: {name: a}\nspec:\n  a: 0777\n  b: on\n  c: 12e34567\n  d: 1_000\n  <<: {a: 1, z: 2}\n  d2: 1e3\n",
    );
    assert_eq!(value["spec"], serde_json::json!({"a":1,"b":true,"c":"12e34567","d":1000,"z":2,"d2":1000}));
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    fn small() -> Limits {
        Limits { document: 4096, file: 8192, depth: 10, documents: 20, file_memory: 1 << 20, ..limits() }
    }

    fn json(depth: u32) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9f64).prop_map(|f| if f.fract() == 0.0 { 0.5 } else { f }).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[a-z0-9_.:#&*!|>'\"%@`~+-]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(depth, 64, 8, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let found = decode_bytes(&[("a.yaml", &bytes), ("b.json", &bytes)], &DecodeCache::default(), &small());
            prop_assert!(found.problems.len() <= 1001);
        }

        #[test]
        fn no_soup_of_yaml_makes_it_panic(
            words in proptest::collection::vec(prop_oneof![
                "[\\[\\]{},:?|>&*!%@`\"'#~<\\-]{1,3}", "[ \\t]{1,4}", "\r?\n *", "\n---\n", "\n\\.\\.\\.\n", "<<: ", "&a ", "\\*a",
                "!!(str|int|binary|null|seq|merge) ", "\\\\[xuU/0n]", "[0-9._eEx+-]{1,6}", "(apiVersion|kind|metadata|name|items|List|v1)(: )?",
                "[\u{80}-\u{a0}\u{2028}\u{feff}]"
            ], 0..80)
        ) {
            let text = words.concat();
            let found = decode_bytes(&[("a.yaml", text.as_bytes()), ("b.json", text.as_bytes())], &DecodeCache::default(), &small());
            for problem in &found.problems {
                prop_assert!(problem.place.line as usize <= text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() + 1, "{problem}");
            }
        }

        #[test]
        fn json_documents_round_trip(spec in json(4), pretty in any::<bool>()) {
            let value = serde_json::json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": spec});
            let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            let found = decode_bytes(&[("a.json", text.as_bytes())], &DecodeCache::default(), &limits());
            prop_assert_eq!(&found.problems, &[]);
            prop_assert_eq!(found.objects[0].value(), value);
        }
    }
}

#[test]
fn a_commit_that_takes_too_long_is_given_up_and_says_where() {
    let seconds = Arc::new(AtomicU64::new(0));
    let ticking = Arc::clone(&seconds);
    let mut limits = Limits::new(move || Duration::from_secs(ticking.load(Ordering::Relaxed)));
    limits.time = Duration::from_secs(3);
    let names = ["a", "b", "c", "d", "e", "f"].map(|name| (format!("{name}.yaml"), config_map(name)));
    let files = names.each_ref().map(|(path, text)| (&**path, text.as_bytes()));
    let decode_in = |seconds_each: u64| {
        let mut read = |entry: &Entry| {
            seconds.fetch_add(seconds_each, Ordering::Relaxed);
            Ok(files.iter().find(|(path, _)| *path == entry.path).unwrap().1.to_vec())
        };
        decode(&listing(&files), "", &mut read, &DecodeCache::default(), &limits).unwrap()
    };
    let cut_short = decode_in(1);
    assert_eq!(cut_short.objects.len(), 4, "{:?}", cut_short.problems);
    assert_eq!(
        shown(&cut_short).lines().last().unwrap(),
        "e.yaml: timed out while reading the files, at this one (spread the files over several GitSyncs, each \
         with a baseDir of its own)"
    );
    assert_eq!(cut_short.problems.len(), 1);
    assert_eq!(decode_in(0).problems, []);
}
