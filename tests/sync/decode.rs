//! Manifests mean the same to Mainstay and `kubectl`: both read the same text.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_git::{Entry, EntryKind};
use mainstay_manifest::{DecodeCache, Decoded, Limits, decode};
use mainstay_object::Digest;
use serde_json::Value;

fn decoded(files: &[(String, String)]) -> Decoded {
    let listing: Vec<Entry> = files
        .iter()
        .map(|(path, text)| Entry {
            path: path.clone(),
            id: format!("{}00000000", Digest::of(text.as_bytes())).parse().unwrap(),
            size: text.len() as u64,
            kind: EntryKind::File,
            executable: false,
            flaw: None,
        })
        .collect();
    let mut read = |entry: &Entry| {
        let (_, text) = files.iter().find(|(path, _)| *path == entry.path).unwrap();
        Ok(text.clone().into_bytes())
    };
    // The clock stands still, so that a busy machine does not affect decoding.
    decode(&listing, "", &mut read, &DecodeCache::default(), &Limits::new(|| Duration::ZERO)).unwrap()
}

fn decoded_text(text: &str) -> Decoded {
    decoded(&[("a.yaml".to_owned(), text.to_owned())])
}

/// Returns the objects that kubectl reads from a file, or its error.
fn kubectl(path: &Path) -> Result<Vec<Value>, String> {
    let output = mainstay_testkit::isolated("kubectl")
        .args(["label", "--local", "--overwrite", "-o", "json", "read-by=kubectl", "-f"])
        .arg(path)
        .output()
        .expect("kubectl is needed: https://kubernetes.io/docs/tasks/tools/");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    Ok(documents
        .map(Result::unwrap)
        .flat_map(|document| match document["kind"].as_str() {
            Some("List") => document["items"].as_array().unwrap().clone(),
            _ => vec![document],
        })
        .collect())
}

fn kubectl_text(text: &str) -> Result<Vec<Value>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, text).unwrap();
    kubectl(&path)
}

/// Compares values; numbers by value, so that `1e+21` equals `1000000000000000000000.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

fn without_metadata(value: &Value) -> Value {
    let mut value = value.clone();
    value.as_object_mut().unwrap().remove("metadata");
    value
}

/// The content after the head of one document each.
const MEANS_THE_SAME: &[&str] = &[
    "v: [on, On, ON, off, yes, No, y, n, Y, N, true, False, TRUE, tRue, oN]",
    "v: [~, null, Null, NULL, nULL, '', \"\"]",
    "v:\nw: ~\nx: ''",
    "v: [0777, 0o777, 0O17, 0x1F, 0X1f, 0b11, 0B11, -0b11, -0x1F, -0777, 1_000, 1__0, 1_, _1, 0_7, 0x_1, +1, -0, 012, 00]",
    "v: [08, 09, -08, 0o8, 0b2, 0xg, 0x, 0b, 0o, '0777']",
    "v: [1e3, 1.0, 1., .1, 1.e3, -.5e3, +.5, 1e+3, 1E3, 1e-7, 0.1e1, 1_000.5, .5_0, ._1, .5_, .e3, e3, 1e, 1.2.3, '1.0']",
    "v: [12e34567, 1e400, -1e400, 1e21, 1e20, 0.0000001, 1.7976931348623157e308, 5e-324, 0x1p4]",
    "v: [9223372036854775807, -9223372036854775808, 9223372036854775808, 18446744073709551615, 18446744073709551616, -9223372036854775809]",
    "v: [2001-01-01, 2001-01-01T00:00:00Z, 12:30:45, 1:2, 0.1.2, 1-2, +, -a, '-', .]",
    "v: [nan, .na, inf, .Infx, NaN]",
    "v: {1: a, 1.5: b, on: c, 0x10: d, 1e3: e, 2001-01-01: f, 1e21: g, 0777: h, ! 7: i, 10000000.0: j, 1234567.5: k, 0.00001: l, 'x y': m}",
    "v: [!!str 1, !!str on, !!str ~, ! 12, !custom 1, !!int \"12\", !!bool \"yes\", !!null \"\", !!float 1, !!float 1.5, !!binary aGVsbG8=, !!timestamp 2001-01-01]",
    "v: {a: !!seq {}, b: !!map [], c: !!set {a, b}, d: !custom {a: b}}",
    "v: {<<: {a: 1, b: 2}, b: 3}",
    "v: {b: 3, <<: {a: 1, b: 2}}",
    "v: {<<: [{a: 1, b: 2}, {b: 4, c: 5}], c: 6}",
    "v: {\"<<\": {a: 1}, !!merge <<: {b: 2}}",
    "base: &base {a: 1, b: {c: 2}}\nv: {<<: *base, a: 3}\nw: *base",
    "v: [&a x, *a, &b [1], *b, &a y, *a]",
    "v: {&a key: 1, other: *a}",
    "v: |\n  a\n   b\n\n  c\nw: |-\n  a\n\nx: |+\n  a\n\ny: >\n  a\n  b\n\n  c\n   d\nz: >-\n  a\n  b",
    "v: |2\n   a\n  b\nw: |\n\n\n  a\nx: |",
    "v: 'it''s'\nw: \"a\\tb\\x41\\u00e9\\U0001F600\\n\\\\ \\\" \\0 \\a \\e \\N \\_ \\L \\P\"\nx: \"a\\\n  b\"\ny: \"a\n  b\n\n  c\"\nz: 'a\n\n  b'",
    "v: plain text\n  on two lines\n\n  and a third\nw: a#b\nx: a #b\ny: http://x:80/?a=b\nz: a'b\"c",
    "v: {a:b, \"c\":d, e: , f, g: [a, b: c, {d: e}, [f,], ]}",
    "v: [a,b, c ,'d' , \"e\"]\nw: [\n  a, # comment\n  b\n]\nx: {\n  a: 1,\n  b: 2\n  }",
    "v:\n- a\n- - b\n  - c\n-\n  d: e\n- f: g\n  h: i\n-",
    "v:\n  ? a\n  : b\n  ? c\n  ? |\n    d\n  : e",
    "v: é 日本 😀\n\"ключ\": значение",
    "? v\n: w",
    "v: {a: [], b: {}, c: [[]], d: [{}]}",
    "v: \"trailing spaces   \"   \nw: a   \nx:    b",
    "v: a@b %c `d`
w: -a
x: ?a
y: :a
z: a-b-",
];

/// Texts that kubectl refuses.
const REFUSED: &[&str] = &[
    "v: .inf",
    "v: [-.INF, .nan]",
    "v: {~: a}",
    "v: {18446744073709551615: a}",
    "v: {? [1] : a}",
    "v: !!int abc",
    "v: !!bool 1",
    "v: !!float abc",
    "v: !!binary '*'",
    "v: *unknown",
    "v: &a [*a]",
    "v: {<<: 1}",
    "v: {<<: [1]}",
    "v: @a",
    "v: `a",
    "v: %a",
    "v: [a",
    "v: {a: b",
    "v: 'a",
    "v: \"a\\q\"",
    "v: a: b",
    "v:\n\ta: b",
    "v: a\n w: b",
    "v: \u{7f}",
    "v: \"\\ud83d\"",
    "v: b\n--- c: d",
    "%YAML 1.2\n---\nv: a",
    "- v\nw: a",
    "v: |0\n a",
    "v: [a]]",
];

/// Texts that kubectl accepts and Mainstay refuses, each with the reason.
const STRICTER: &[(&str, &str)] = &[
    ("v: a\nv: b", "a key that is written twice: kubectl silently keeps the last"),
    ("v: a\n...\nw: b", "content after the end of a document: kubectl silently drops it"),
];

const HEAD: &str = "apiVersion: example.com/v1\nkind: Example\nmetadata: {name: a}\n";

#[test]
fn values_mean_what_they_mean_to_kubectl() {
    // One call of kubectl for all cases.
    let number = |n: usize| HEAD.replace("name: a", &format!("name: a{n}"));
    let text: String = MEANS_THE_SAME.iter().enumerate().map(|(n, case)| number(n) + case + "\n---\n").collect();
    let theirs = kubectl_text(&text).unwrap();
    let ours = decoded_text(&text);
    assert_eq!(ours.problems, []);
    assert_eq!((ours.objects.len(), theirs.len()), (MEANS_THE_SAME.len(), MEANS_THE_SAME.len()));
    let different: Vec<String> = MEANS_THE_SAME
        .iter()
        .zip(ours.objects.iter().zip(&theirs))
        .map(|(case, (ours, theirs))| (case, without_metadata(&ours.value()), without_metadata(theirs)))
        .filter(|(_, ours, theirs)| !same(ours, theirs))
        .map(|(case, ours, theirs)| format!("{case}\n  ours    {ours}\n  kubectl {theirs}"))
        .collect();
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn manifests_that_kubectl_refuses_are_problems() {
    for case in REFUSED {
        let text =
            if case.starts_with('%') || case.starts_with("- ") { case.to_string() } else { format!("{HEAD}{case}\n") };
        let theirs = kubectl_text(&text);
        assert!(theirs.is_err(), "kubectl takes {case:?}: {theirs:?}");
        assert_ne!(decoded_text(&text).problems, [], "{case:?}");
    }
    for (case, why) in STRICTER {
        let text = format!("{HEAD}{case}\n");
        assert!(kubectl_text(&text).is_ok(), "{why}");
        assert_ne!(decoded_text(&text).problems, [], "{why}");
    }
}

#[test]
fn documents_are_split_as_by_kubectl() {
    let (a, b) = (HEAD, HEAD.replace("name: a", "name: b"));
    let json = |name: &str| {
        format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"a":1.0,"b":1e3,"c":18446744073709551615,"d":"\u007f/\u00e9","e":-0.0}}}}"#
        )
    };
    let cases = [
        format!("---\n---\n--- # x\n{a}---\n# only a comment\n---\n{b}---"),
        format!("{a}...\n---\n{b}...\n"),
        format!("\u{feff}---\r\n{}", a.replace('\n', "\r\n")),
        format!("{a}v: |\n  ---\n  x\n--- \t\n{b}"),
        format!("{}\n\t{}", json("a"), json("b")),
        format!(
            "kind: ConfigMapList\napiVersion: v1\nitems: [{{metadata: {{name: a}}}}, {{metadata: {{name: b}}}}]\n---\n{a}"
        ),
        format!("kind: List\napiVersion: v1\nitems:\n- {}\n", json("a")),
    ];
    for text in cases {
        let theirs: Vec<Value> = kubectl_text(&text).unwrap().iter().map(without_metadata).collect();
        let ours = decoded_text(&text);
        assert_eq!(ours.problems, [], "{text}");
        let ours: Vec<Value> = ours.objects.iter().map(|object| without_metadata(&object.value())).collect();
        assert!(same(&Value::from(ours.clone()), &Value::from(theirs.clone())), "{text}\n{ours:?}\n{theirs:?}");
    }
}

/// Real manifests that a developer may have beside the repository.
#[test]
fn real_manifests_decode_as_kubectl_reads_them() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    for (folder, count) in [("online-boutique", 35), ("crds-and-crs", 9), ("guestbook", 2), ("podinfo", 3)] {
        let Ok(entries) = std::fs::read_dir(data.join(folder)) else {
            println!("{folder} was not there");
            continue;
        };
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| !path.ends_with("kustomization.yaml"));
        paths.sort();
        let files: Vec<_> = paths
            .iter()
            .map(|path| {
                (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
            })
            .collect();
        let ours = decoded(&files);
        assert_eq!(ours.problems, [], "{folder}");
        assert_eq!(ours.objects.len(), count, "{folder}");
        let theirs: Vec<Value> = paths.iter().flat_map(|path| kubectl(path).unwrap()).collect();
        assert_eq!(theirs.len(), count, "{folder}");
        for (ours, theirs) in ours.objects.iter().zip(&theirs) {
            assert_eq!(*ours.key.name, theirs["metadata"]["name"]);
            let (value, theirs) = (without_metadata(&ours.value()), without_metadata(theirs));
            assert!(same(&value, &theirs), "{}", ours.key);
        }
    }
}
