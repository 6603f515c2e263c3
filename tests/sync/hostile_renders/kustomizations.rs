//! Kustomizations that refer to remote resources or run programs.

use std::net::TcpListener;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

const ELSEWHERE: &str = "it references a remote resource, which is not fetched";
const FILE: &str = "app/kustomization.yaml";

/// A listener on this machine that must not receive a connection.
struct Listening(TcpListener);

impl Listening {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn address(&self) -> String {
        format!("http://{}/{SECRET}.yaml", self.0.local_addr().unwrap())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        assert!(std::thread::panicking() || self.0.accept().is_err(), "somebody asked");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_bases() {
    let mut attacked = Attacked::new().await;
    let listening = Listening::new();
    let own = listening.address();
    let mut forms = [
        "git::https://example.com/hush-hush",
        "gh:hush-hush/a",
        "ssh://git@example.com/hush-hush",
        "https://user:hush-hush@example.com/x.yaml",
        "git@example.com:hush-hush/a.git",
        "github.com:hush-hush/a",
        "github.com/hush-hush/a?ref=main",
        "file:///etc/hush-hush",
        "s3::hush-hush",
        "http:hush-hush",
        " https://example.com/hush-hush",
    ]
    .map(str::to_owned)
    .to_vec();
    forms.push(own.clone());
    let odd = forms.iter().map(|form| form.replacen('g', "G", 1).replacen('h', "H", 1)).collect::<Vec<_>>();
    forms.extend(odd);
    // Each form is reported with its line.
    let lines = forms.iter().map(|form| format!("- '{form}'\n")).collect::<Vec<_>>().concat();
    let said = attacked.refuses(&[(FILE, format!("resources:\n{lines}").as_bytes())], &[]).await;
    // With changed letter case, some forms are not remote, such as `Git@`. Each form is reported or is a missing file.
    let told = said.matches(ELSEWHERE).count();
    assert!(told >= 20 || said.contains("and ") && said.contains(" more"), "{told}: {said}");
    for number in 0..18 {
        assert!(said.contains(&format!("{FILE}, line {}: {ELSEWHERE}", number + 2)), "{number}: {said}");
    }
    // Remote resources are refused in every field.
    let fields = [
        "bases: ['@']",
        "components: ['@']",
        "crds: ['@']",
        "configurations: ['@']",
        "generators: ['@']",
        "transformers: ['@']",
        "validators: ['@']",
        "openapi: {path: '@'}",
        "patches: [{path: '@'}]",
        "patchesStrategicMerge: ['@']",
        "patchesJson6902: [{path: '@', target: {kind: a, name: b}}]",
        "replacements: [{path: '@'}]",
        "configMapGenerator: [{name: a, files: ['@']}, {name: b, files: ['k=@']}, {name: c, envs: ['@']}, {name: d, env: '@'}]",
        "secretGenerator: [{name: a, files: ['@']}, {name: b, files: ['k=@']}, {name: c, envs: ['@']}, {name: d, env: '@'}]",
    ];
    let text = fields.join("\n").replace('@', &own);
    let said = attacked.refuses(&[(FILE, text.as_bytes())], &[]).await;
    assert_eq!(said.matches(ELSEWHERE).count(), 20, "{said}");
    let charts = format!("helmCharts: [{{name: a, repo: '{own}', version: 1.0.0}}]\n");
    attacked.refuses(&[(FILE, charts.as_bytes())], &[&format!("{FILE}, line 1: it inflates Helm charts")]).await;
}

/// On a machine with a network, the tool itself would follow each of these remote bases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_bases_in_disguise() {
    let mut attacked = Attacked::new().await;
    let listening = Listening::new();
    let own = listening.address();
    let binary = STANDARD.encode(&own);
    let spelled = "which is misspelled";
    let cases = [
        (format!("Resources: ['{own}']\n"), spelled),
        (format!("re\u{17f}ources: ['{own}']\n"), spelled),
        (format!("HELMCHARTS: [{{name: a, repo: '{own}'}}]\n"), spelled),
        (format!("resources: [kept.yaml]\npatches: [{{Path: '{own}'}}]\n"), spelled),
        (format!("resources: [kept.yaml]\nopenapi: {{PATH: '{own}'}}\n"), spelled),
        (format!("configMapGenerator: [{{name: a, File\u{17f}: ['a={own}']}}]\n"), spelled),
        (format!("<<: {{resources: ['{own}']}}\n"), ELSEWHERE),
        (format!("resources: [!!binary {binary}]\n"), ELSEWHERE),
        (format!("resources: [!!bin%61ry {binary}]\n"), "a YAML tag in escaped"),
        (format!("# a\u{85}resources: ['{own}']\n"), "a line break that not all readers of YAML know"),
        (format!("resources: [kept.yaml]\n# a\u{2028}resources: ['{own}']\n"), "a line break that not all"),
        (format!("resources: [kept.yaml]\nresources: ['{own}']\n"), "the key \"resources\" is defined twice"),
        (format!("configMapGenerator: [{{name: a, envs: ['{own}?a=kept.yaml']}}]\n"), ELSEWHERE),
        (format!("generators: ['{own}#: y']\n"), ELSEWHERE),
        (
            format!(
                "generators:\n- |\n  apiVersion: builtin\n  kind: ConfigMapGenerator\n  metadata: {{name: x}}\n  files: [k={own}]\n"
            ),
            ELSEWHERE,
        ),
        (
            format!(
                "resources: [kept.yaml]\ntransformers:\n- |\n  {{apiVersion: builtin, kind: PatchTransformer, metadata: {{name: x}}, path: '{own}'}}\n"
            ),
            ELSEWHERE,
        ),
        (format!("generators: ['{{password: {SECRET}}}']\n"), "one of its generators is neither a path nor an object"),
    ];
    for (text, expected) in cases {
        let said = attacked.refuses(&[(FILE, text.as_bytes())], &[FILE, expected]).await;
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    // Remote resources in a base of a base are refused, too.
    attacked
        .refuses(
            &[
                (FILE, b"resources: [../base]\n"),
                ("base/kustomization.yaml", b"bases: [below]\n"),
                ("base/below/kustomization.yml", format!("# x\nRESOURCES: ['{own}']\n").as_bytes()),
            ],
            &["base/below/kustomization.yml, line 2: the kustomization has the field RESOURCES"],
        )
        .await;
}

/// Patches decide the references of a generator. Only the tool knows them, and it has no network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_remote_bases_are_refused() {
    let mut attacked = Attacked::new().await;
    let listening = Listening::new();
    let own = listening.address();
    let generator = "apiVersion: builtin\nkind: ConfigMapGenerator\nmetadata: {name: x}\n";
    let patch = format!(
        "resources: [x.yaml]\npatches:\n- target: {{kind: ConfigMapGenerator}}\n  patch: |-\n    - op: add\n      path: /files\n      \
         value: [\"k={own}\"]\n"
    );
    let named = format!("{generator}files: ['k={own}']\n");
    let expected = format!("{FILE}: {ELSEWHERE}");
    for files in [
        [("app/generators/kustomization.yaml", patch.as_bytes()), ("app/generators/x.yaml", generator.as_bytes())],
        [
            ("app/generators/kustomization.yaml", b"resources: [x.yaml]\n".as_slice()),
            ("app/generators/x.yaml", named.as_bytes()),
        ],
    ] {
        let kustomization: (&str, &[u8]) = (FILE, b"generators: [generators]\n");
        attacked.refuses(&[&[kustomization], &files[..]].concat(), &[&expected]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugins_and_functions() {
    let mut attacked = Attacked::new().await;
    let room = tempfile::tempdir().unwrap();
    let trace = room.path().join("trace");
    let script = format!("#!/bin/sh\necho ran > {}\n", trace.display());
    let function = |how: &str| {
        format!(
            "|\n  apiVersion: example.org/v1\n  kind: Evil\n  metadata:\n    name: x\n    annotations: {{config.kubernetes.io/function: '{how}'}}\n"
        )
    };
    let mut cases = Vec::new();
    for field in ["generators", "transformers", "validators"] {
        for how in [
            "exec: {path: ./run.sh}",
            "exec: {path: /bin/sh, args: [run.sh]}",
            "container: {image: example.com/hush-hush}",
            "starlark: {path: run.sh}",
        ] {
            cases.push((
                format!("resources: [kept.yaml]\n{field}:\n- {}", function(how)),
                "it asks for the plug-in Evil",
            ));
        }
        let helm = "apiVersion: builtin\n  kind: HelmChartInflationGenerator\n  metadata: {name: x}\n  name: small\n  releaseName: x";
        cases.push((format!("resources: [kept.yaml]\n{field}:\n- |\n  {helm}\n"), "app/kustomization.yaml: "));
    }
    for (text, expected) in &cases {
        attacked.refuses(&[(FILE, text.as_bytes()), ("app/run.sh", script.as_bytes())], &[expected]).await;
    }
    // Files that the tools look for in the home directory and beside charts.
    let preferences = "apiVersion: kubectl.config.k8s.io/v1beta1\nkind: Preference\ndefaults:\n- command: kustomize\n  options:\n  \
        - {name: enable-helm, default: \"true\"}\n  - {name: helm-command, default: /bin/sh}\n";
    let kubeconfig =
        "apiVersion: v1\nkind: Config\nusers: [{name: u, user: {exec: {command: /bin/sh, args: [run.sh]}}}]\n";
    let home: [(&str, &[u8]); 6] = [
        (".kube/kuberc", preferences.as_bytes()),
        (".kube/config", kubeconfig.as_bytes()),
        ("app/.kube/kuberc", preferences.as_bytes()),
        ("app/.kube/config", kubeconfig.as_bytes()),
        ("app/run.sh", script.as_bytes()),
        (
            "app/plugins/evil/plugin.yaml",
            b"name: evil\nversion: 0.1.0\ncommand: /bin/sh run.sh\nhooks: {install: /bin/sh run.sh}\n",
        ),
    ];
    attacked.stage(&home);
    attacked
        .refuses(
            &[(FILE, b"resources: [kept.yaml, .kube/kuberc, nothing.yaml]\n")],
            &["nothing.yaml, which is not there"],
        )
        .await;
    attacked.stage(&home);
    attacked.stage(&[CHART, ("app/templates/a.yaml", b"{{ nothing }}")]);
    attacked.is_refused(&["app/templates/a.yaml, line 1: Helm has no function nothing"]).await;
    assert!(!trace.exists(), "something was run");
}
