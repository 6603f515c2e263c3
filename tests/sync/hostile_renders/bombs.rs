//! Small inputs that expand to large ones.

use std::time::{Duration, Instant};

use flate2::{Compress, Compression, FlushCompress};

use super::*;

const FILE: &str = "app/kustomization.yaml";
/// Maximum delay that an attack may cause for other GitSyncs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns gigabytes of zeros after `head`, compressed to 3 MiB as one MiB repeated. `begin` precedes the compressed
/// data.
pub(super) fn gigabytes(count: usize, begin: &[u8], head: &[u8]) -> Vec<u8> {
    let compressed = |bytes: &[u8]| {
        let mut out = Vec::with_capacity(bytes.len() + 1024);
        Compress::new(Compression::best(), false).compress_vec(bytes, &mut out, FlushCompress::Full).unwrap();
        out
    };
    let piece = compressed(&vec![0; 1 << 20]);
    let mut all = [begin, &compressed(head)].concat();
    (0..(count << 10)).for_each(|_| all.extend(&piece));
    // The final block, which is empty.
    all.extend([3, 0]);
    all
}

/// Files, the path of an additional large file, and the expected message.
type Case<'c> = (&'c [(&'c str, &'c [u8])], &'c str, &'c str);

/// The object id of a file of 3 GiB of zeros.
const ZEROS: &str = "1077662767e8de998abc7dbe3649b8df9a2baf72";

/// Writes the file of zeros into the repository.
fn write_zeros(world: &World) {
    let head = format!("blob {}\0", 3u64 << 30);
    let mut whole = gigabytes(3, &[0x78, 0x01], head.as_bytes());
    let (mut a, mut b) = (1u64, 0u64);
    for byte in head.bytes() {
        a = (a + u64::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b = (b + (3u64 << 30) % 65_521 * a) % 65_521;
    whole.extend(u32::try_from((b << 16) | a).unwrap().to_be_bytes());
    let path = world.remote.path().join("objects").join(&ZEROS[..2]);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join(&ZEROS[2..]), whole).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sparse_gigabytes() {
    let mut attacked = Attacked::new().await;
    write_zeros(&attacked.world);
    let text = template("one");
    let chart: [(&str, &[u8]); 2] = [CHART, ("app/templates/a.yaml", &text)];
    let cases: [Case<'_>; 10] = [
        (&[], "app/big.yaml", "app/big.yaml: the file is larger than 16 MiB"),
        (&[], FILE, "app/kustomization.yaml: the kustomization is larger than 1 MiB"),
        (&[], "app/.mainstayignore", "app/.mainstayignore: the file is too large"),
        (&[], "app/Chart.yaml", "app/Chart.yaml: the file is larger than 16 MiB"),
        (
            &[(FILE, b"resources: [big.yaml]\n")],
            "app/big.yaml",
            "line 1: the kustomization reads more than 5000 files, or more than 32 MiB",
        ),
        (&[(FILE, b"configMapGenerator: [{name: a, files: [big.bin]}]\n")], "app/big.bin", "or more than 32 MiB"),
        (
            &[(FILE, b"resources: [../base]\n")],
            "base/kustomization.yaml",
            "base/kustomization.yaml: the kustomization is larger than 1 MiB",
        ),
        (&chart, "app/files/big.bin", "app/Chart.yaml: the chart has more than 5000 files, or more than 32 MiB"),
        (&chart, "app/charts/db.tgz", "app/Chart.yaml: the chart has more than 5000 files, or more than 32 MiB"),
        (&chart, "app/values.schema.json", "app/Chart.yaml: the chart has more than 5000 files, or more than 32 MiB"),
    ];
    for (files, big, expected) in cases {
        let begun = Instant::now();
        attacked.stage(files);
        attacked.world.remote.object(big, ZEROS);
        attacked.is_refused(&[expected]).await;
        attacked.clear();
        assert!(begun.elapsed() < PATIENCE, "{big}: {:?}", begun.elapsed());
    }
    let begun = Instant::now();
    attacked.stage(&chart);
    attacked.world.remote.object("values.yaml", ZEROS);
    attacked.world.edit(
        "mainstay.dev/v1alpha1",
        "gitsyncs",
        "demo",
        json!({"spec": {"render": {"helm": {"valuesFiles": ["/values.yaml"]}}}}),
    );
    attacked.is_refused(&["values.yaml: the file with values is larger than 1 MiB"]).await;
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn template_bombs() {
    let mut attacked = Attacked::new().await;
    for (text, expected) in [
        (
            "{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}",
            "templates include each other recursively",
        ),
        ("{{ range untilStep 0 2000000000 1 }}{{ end }}", "the tool used more memory than it may"),
        ("{{ $x := repeat 1000000000 \"hush-hush\" }}{{ $x }}", "the tool "),
        (
            "{{ $x := \"hush-hush\" }}{{ range until 40 }}{{ $x = print $x $x }}{{ end }}",
            "the tool used more memory than it may",
        ),
    ] {
        let begun = Instant::now();
        attacked.refuses(&[CHART, ("app/templates/a.yaml", text.as_bytes())], &["app/", expected]).await;
        assert!(begun.elapsed() < PATIENCE, "{text}: {:?}", begun.elapsed());
    }
    let aliases = aliases("");
    let deep = format!("a: {}{}\n", "[".repeat(20_000), "]".repeat(20_000));
    for (values, expected) in [
        (aliases.as_bytes(), "app/values.yaml: its aliases expand to more than Helm takes"),
        (deep.as_bytes(), "app/values.yaml"),
    ] {
        attacked
            .refuses(
                &[CHART, ("app/templates/a.yaml", &template("{{ .Values }}")), ("app/values.yaml", values)],
                &[expected],
            )
            .await;
    }
}

/// Returns a value that expands to 9^11 words.
fn aliases(before: &str) -> String {
    let first = format!("{before}a0: &a0 [{SECRET}, {SECRET}, {SECRET}]\n");
    let next = |n: usize| format!("{before}a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", "));
    std::iter::once(first).chain((1..12).map(next)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_of_kustomizations() {
    let mut attacked = Attacked::new().await;
    let bomb = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: bomb}}\ndata:\n{}", aliases("  "));
    let deep = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: deep}}\ndata: {}{}\n",
        "{a: ".repeat(20_000),
        "}".repeat(20_000)
    );
    let plain = "resources: [a.yaml]\n".to_owned();
    for (kustomization, resource, expected) in [
        (&plain, &bomb, "app/kustomization.yaml: the tool used more memory than it may (400 MiB)"),
        (&plain, &deep, "app/"),
        (&format!("commonAnnotations:\n{}", aliases("  ")), &plain, "app/kustomization.yaml, line "),
        (
            &format!("vars: {}{}\n", "[".repeat(20_000), "]".repeat(20_000)),
            &plain,
            "app/kustomization.yaml, line 1: the kustomization is not valid YAML",
        ),
    ] {
        let begun = Instant::now();
        attacked.refuses(&[(FILE, kustomization.as_bytes()), ("app/a.yaml", resource.as_bytes())], &[expected]).await;
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }
    // The same documents are now manifests, which no tool reads.
    for resource in [&bomb, &deep] {
        attacked.refuses(&[("app/a.yaml", resource.as_bytes())], &["app/a.yaml, document 1, line "]).await;
    }
    // A base that refers to itself, and two that refer to each other.
    attacked.refuses(&[(FILE, b"resources: ['.', ../app]\n")], &["app/kustomization.yaml: "]).await;
    attacked
        .refuses(
            &[(FILE, b"resources: [../base]\n"), ("base/kustomization.yaml", b"resources: [../app]\n")],
            &["refers to itself in a cycle"],
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_output() {
    let mut attacked = Attacked::new().await;
    let lines = format!("{{{{ range until 20000 }}}}# {}\n{{{{ end }}}}", "x".repeat(1000));
    let gigabyte = "{{ range until 1024 }}# {{ repeat 1048576 \"x\" }}\n{{ end }}";
    for (text, expected) in [(lines.as_str(), "its output is larger than 16 MiB"), (gigabyte, "app/Chart.yaml: ")] {
        let begun = Instant::now();
        attacked.refuses(&[CHART, ("app/templates/a.yaml", text.as_bytes())], &[expected]).await;
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }
    let large = "x".repeat(9 << 20);
    let twice = b"configMapGenerator: [{name: a, files: [large.txt]}, {name: b, files: [large.txt]}]\n";
    attacked
        .refuses(
            &[(FILE, twice), ("app/large.txt", large.as_bytes())],
            &["app/kustomization.yaml: its output is larger than 16 MiB"],
        )
        .await;
}
