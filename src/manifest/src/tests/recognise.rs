//! Tests of the problems of files that are not manifests. Manifests that only resemble such files are applied.

use super::*;

/// Returns the only problem of a file.
fn said(path: &str, content: impl AsRef<[u8]>) -> String {
    let decoded = decode_bytes(&[(path, content.as_ref())], &DecodeCache::default(), &limits());
    assert_eq!(decoded.problems.len(), 1, "{}", shown(&decoded));
    assert!(!shown(&decoded).contains("hunter2"), "{}", shown(&decoded));
    decoded.problems[0].to_string()
}

fn is_applied(path: &str, content: &str) {
    let decoded = decode_files(&[(path, content)]);
    assert_eq!(decoded.problems, [], "{content}");
    assert_eq!(decoded.objects.len(), 1, "{content}");
}

const SOPS: &str = "sops:\n  age:\n  - recipient: age1\n    enc: hunter2\n  lastmodified: '2026-01-01T00:00:00Z'\n  \
                    mac: ENC[AES256_GCM,data:hunter2,type:str]\n  version: 3.9.0\n";

#[test]
fn a_file_encrypted_by_sops_is_one_problem() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, labels: {on: 3}}\nstringData:\n  p: \
                  ENC[AES256_GCM,data:hunter2,type:str]\n";
    let hint =
        "(name a Secret with the private key in the GitSync: spec.decryption: {provider: sops, secretRef: {name: …}})";
    assert_eq!(
        said("db.yaml", format!("# database\n{secret}{SOPS}---\n{secret}{SOPS}")),
        format!(
            "db.yaml, document 1, line 2, column 1: it is encrypted with SOPS, and spec.decryption is not set {hint}"
        )
    );
    for other in [
        format!("password: ENC[hunter2]\n{SOPS}"),
        format!("apiVersion: ENC[hunter2]\nkind: ENC[hunter2]\n{SOPS}"),
        format!("apiVersion: v1\nkind: List\nitems: []\n{SOPS}"),
        r#"{"data": "ENC[hunter2]", "sops": {"mac": "ENC[hunter2]"}}"#.to_owned(),
    ] {
        assert!(said("a.yaml", &other).contains("it is encrypted with SOPS"), "{other}");
    }
}

#[test]
fn an_object_that_only_mentions_sops_is_applied() {
    // A controller in the cluster decrypts the object.
    is_applied(
        "a.yaml",
        &format!("apiVersion: isindir.github.com/v1alpha3\nkind: SopsSecret\nmetadata: {{name: a}}\n{SOPS}"),
    );
    is_applied("a.yaml", &format!("{}data:\n  a.yaml: |\n    {}", config_map("a"), SOPS.replace('\n', "\n    ")));
    is_applied("a.yaml", "apiVersion: v1\nkind: X\nmetadata: {name: a}\nsops: on\n");
    let left_out = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, annotations: {fluxcd.io/ignore: 'true'}}\n";
    assert_eq!(shown(&decode_files(&[("a.yaml", &format!("{left_out}{SOPS}"))])), "");
}

#[test]
fn a_helm_chart_is_recognised_in_every_form_of_yaml() {
    for chart in [
        "{apiVersion: v2, name: web, version: 1.2.3}",
        "'name': web\n\"version\": 1.2.3\n",
        "---\nname : web\nversion : 1.2.3\n",
        "\u{feff}name: web\nversion: 1.2.3\n",
        // Helm reports the error in the file.
        "name: web\nversion: 1.2.3\nmaintainers: [\n",
    ] {
        assert_eq!(decode_files(&[("web/Chart.yaml", chart)]).charts, ["web/Chart.yaml"], "{chart}");
    }
    for other in [
        "{name: web, version: 1.2.3, kind: X}",
        "{name: web}",
        "[name: web, version: 1.2.3]",
        "a: {name: web, version: 1}",
    ] {
        assert!(decode_files(&[("web/Chart.yaml", other)]).charts.is_empty(), "{other}");
    }
}

#[test]
fn a_helm_chart_is_named_and_nothing_in_it_is_read() {
    let chart = "apiVersion: v2\nname: web\nversion: 1.2.3\n";
    let template = "{{- if .Values.enabled }}\napiVersion: apps/v1\n  kind: Deployment\n{{- end }}\n";
    let ready = config_map("b");
    let files = [
        ("charts/web/Chart.yaml", chart),
        ("charts/web/values.yaml", "replicas: 1\n"),
        ("charts/web/charts/db/Chart.yaml", chart),
        ("charts/web/ci/kustomization.yaml", "resources: []\n"),
        ("charts/web/templates/deployment.yaml", template),
        ("charts/web-more.yaml", &ready),
        ("overlay/kustomization.yaml", "resources: []\n"),
        ("overlay/chart/Chart.yaml", chart),
    ];
    check(&files, "ConfigMap b @ charts/web-more.yaml, document 1, line 1, column 1");
    let decoded = decode_files(&files);
    assert_eq!(decoded.charts, ["charts/web/Chart.yaml"]);
    assert_eq!(decoded.kustomizations, ["overlay/kustomization.yaml"]);
    assert_eq!(decode_files(&[("Chart.yaml", chart), ("templates/a.yaml", template)]).charts, ["Chart.yaml"]);
    // An ignored `Chart.yaml` defines no chart. A HelmChart is an object.
    let object = "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata:\n  name: a\n";
    check(
        &[
            ("a/.mainstayignore", "Chart.yaml\n"),
            ("a/Chart.yaml", chart),
            ("a/b.yaml", &ready),
            ("c/Chart.yaml", object),
        ],
        "
ConfigMap b @ a/b.yaml, document 1, line 1, column 1
HelmChart.helm.cattle.io a @ c/Chart.yaml, document 1, line 1, column 1",
    );
}

#[test]
fn a_template_is_one_line_with_its_place() {
    let hint =
        "(put the chart's Chart.yaml above it, with a name and a version, or name the template in .mainstayignore)";
    let helm = "it is a template of a Helm chart, and in no directory with a Chart.yaml";
    for (template, line) in [
        ("{{- if .Values.on }}\napiVersion: v1\nkind: ConfigMap\n{{- end }}\n", 1),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-a\n  labels:\n    {{- include \
             \"a\" . | nindent 4 }}\n",
            4,
        ),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: \"{{ .Release.Name }}/a\"\n", 4),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    {{- toYaml .Values.labels | \
             nindent 4 }}\n",
            6,
        ),
    ] {
        assert_eq!(said("a.yaml", template), format!("a.yaml, line {line}: {helm} {hint}"), "{template}");
    }
    let jinja = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ name }}\n";
    assert_eq!(
        said("a.yaml", jinja),
        "a.yaml, line 4: it is a template, which is not rendered (commit the rendered output, and name the template \
         in .mainstayignore)"
    );
}

#[test]
fn a_manifest_that_holds_templates_or_conflicts_is_applied_or_has_its_own_problems() {
    let data = "data:\n  rule: |\n    {{ define \"a\" }}\n    {{ .Values.a }}\n    <<<<<<< HEAD\n    =======\n    \
                >>>>>>> x\n  b: '{{ a }}'\n  c: a{{ b }}c\n";
    is_applied("templates/a.yaml", &format!("{}{data}", config_map("a")));
    let wrong = format!("{}  labels:\n    a: 3\n{data}", config_map("a"));
    let problem =
        "a.yaml, document 1, line 6, column 5: metadata.labels.a is a number, not a string (put the value in quotes)";
    assert_eq!(said("a.yaml", wrong), problem);
    let json = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"a":3}},"data":{"a":"{{ .Values.a }}"}}"#;
    assert!(said("a.json", json).contains("metadata.labels.a is a number"), "{}", said("a.json", json));
}

#[test]
fn a_merge_conflict_is_one_line_with_its_place() {
    let conflict = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n<<<<<<< HEAD\n  a: \
                    hunter2\n=======\n  a: c\n>>>>>>> other\n";
    let expected =
        "a.yaml, line 6: a merge conflict is not resolved (`<<<<<<<`) (resolve the conflict, and commit the result)";
    assert_eq!(said("a.yaml", conflict), expected);
    assert_eq!(said("a.yaml", conflict.replace('\n', "\r\n")), expected);
}

#[test]
fn other_files_are_named() {
    let utf16: Vec<u8> = config_map("a").bytes().flat_map(|byte| [byte, 0]).collect();
    let tar = [vec![b'a'; 257], b"ustar\0hunter2".to_vec()].concat();
    let cases: &[(&[u8], &str)] = &[
        (&[&b"\xff\xfe"[..], &utf16].concat(), "it is UTF-16 text (save it as UTF-8)"),
        (&utf16, "it is UTF-16 text (save it as UTF-8)"),
        (b"\x1f\x8b\x08hunter2", "it is compressed with gzip"),
        (b"PK\x03\x04hunter2", "it is a zip archive"),
        (&tar, "it is a tar archive"),
        (b"\n <!DOCTYPE html><html>hunter2", "it is an HTML page (download the manifest again"),
        (b"<?xml version='1.0'?>", "it is XML"),
        (b"$ANSIBLE_VAULT;1.1;AES256\nhunter2", "it is encrypted with Ansible Vault"),
        (b"\0GITCRYPT\0hunter2", "it is encrypted with git-crypt"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2", "take it out of the repository"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
            "is kept in Git LFS, which is not fetched (set `spec.lfs: true` in the GitRepository, or list",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\r\noid sha256:00\r\nsize 3\r\n",
            "the pointer is not as Git LFS writes it",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\next-0-a sha256:00\noid sha256:00\nsize 3\n",
            "extensions of Git LFS are not supported",
        ),
        (
            b"services:\n  web: {image: hunter2}\n",
            "it is a Docker Compose file, not a manifest (list it in .mainstayignore)",
        ),
        (b"on: push\njobs: {}\n", "it is a workflow of GitHub Actions"),
        (b"{\"$schema\": \"http://json-schema.org/draft-07/schema#\"}", "it is a JSON Schema"),
        (b"apiVersion: v1\nkind: Config\nclusters: []\nusers: [{user: {token: hunter2}}]\n", "it is a kubeconfig"),
        (b"apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\n", "it is the configuration of kind"),
    ];
    for (content, expected) in cases {
        let said = said("a.yaml", content);
        assert!(said.contains(expected), "{said}");
    }
    assert!(said("app/values-prod.yaml", "replicas: 3\n").contains("it is the values of a Helm chart"));
    is_applied("values.yaml", &config_map("a"));
    is_applied("a.yaml", &format!("{}services: {{a: {{image: b}}}}\n", config_map("a")));
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), begin in 0..20_usize) {
            let beginnings: [&[u8]; 4] = [b"<<<<<<< ", b"{{ .Values", b"\xff\xfe", b"version https://git-lfs.github.com/spec/v1"];
            let content = [beginnings.get(begin).copied().unwrap_or_default(), &bytes].concat();
            decode_bytes(&[("templates/a.yaml", &content), ("b/Chart.yaml", &content)], &DecodeCache::default(), &limits());
        }
    }
}
