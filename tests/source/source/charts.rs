//! Rendered charts equal the output of `helm template`, byte for byte.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mainstay_api::render::{Helm as Options, Hooks};
use mainstay_manifest::Limits;
use mainstay_manifest::render::chart_objects::chart_objects;
use mainstay_manifest::render::{Capabilities, ChartKey, ChartOptions, Helm, Kustomize, RenderedChart};
use serde_json::{Value, json};

use super::*;
use mainstay_testkit::files::files_below;

const HOOK: &str = "helm.sh/hook";

/// A mirror and a renderer.
struct Renderer {
    source: Source,
    helm: Helm,
    remote: Remote,
    mirrors: tempfile::TempDir,
}

impl Renderer {
    fn new(origin: &Origin, path: &OsStr) -> Self {
        let mirrors = tempfile::tempdir().unwrap();
        let mut allowing = settings(mirrors.path());
        allowing.allow_local = true;
        let kustomize = Kustomize::new(None, mirrors.path().join("render"));
        let helm = Helm::beside(&kustomize, Some(path));
        Self { source: Source::new(allowing), helm, remote: anonymous(origin.path().to_str().unwrap()), mirrors }
    }

    async fn render(
        &self,
        file: &str,
        options: &Options,
        cluster: &Capabilities,
        known: Option<ChartKey>,
    ) -> RenderedChart {
        let options =
            ChartOptions { name: "web".to_owned(), namespace: "shop".to_owned(), helm: options.clone(), decoy: None };
        let snapshot = sync(&self.source, &self.remote, "main").await.unwrap();
        let rendered = self.helm.render("shop", &snapshot, file, &options, cluster, known).await.unwrap();
        let scratch = self.mirrors.path().join("render");
        assert!(!scratch.exists() || std::fs::read_dir(&scratch).unwrap().count() == 0, "nothing stays behind");
        rendered
    }
}

fn cluster() -> Capabilities {
    let served = ["apps/v1", "apps/v1/Deployment", "networking.k8s.io/v1", "networking.k8s.io/v1/Ingress", "v1"];
    Capabilities { kube_version: "v1.32.4".to_owned(), api_versions: served.map(str::to_owned).to_vec() }
}

fn path() -> std::ffi::OsString {
    std::env::var_os("PATH").unwrap()
}

/// Returns a repository with the charts of `tests/charts`.
fn charts() -> Origin {
    let mut origin = small();
    for (path, content) in files_below(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/charts")) {
        origin.file(&format!("charts/{path}"), content);
    }
    origin.commit("charts");
    origin
}

/// Normalises an object for comparison: removes hooks, and encodes strings of Secrets.
fn normalised(mut object: Value) -> Option<(String, String)> {
    if object.is_null() || object["metadata"]["annotations"].get(HOOK).is_some() {
        return None;
    }
    if let Some(texts) = object.as_object_mut().unwrap().remove("stringData") {
        for (key, value) in texts.as_object().unwrap() {
            object["data"][key] = json!(STANDARD.encode(value.as_str().unwrap()));
        }
    }
    let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
    Some((name, serde_json::to_string(&object).unwrap()))
}

/// Returns the output of the tool itself for a checkout.
fn judged(origin: &Origin, chart: &str, more: &[&str]) -> BTreeMap<String, String> {
    let checkout = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = mainstay_testkit::isolated(program).args(arguments).current_dir(checkout.path()).output();
        let output =
            output.unwrap_or_else(|error| panic!("{program}: {error}; install it, or run .ci/test, which does"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run("git", &["clone", "--quiet", &origin.path().to_string_lossy(), "."]);
    let mut arguments = vec!["template", "web", chart, "--namespace", "shop", "--kube-version", "1.32.4"];
    arguments.extend(["--api-versions", "networking.k8s.io/v1/Ingress", "--include-crds"]);
    arguments.extend(more);
    let printed = run("helm", &arguments);
    // The last line of a document may end a string that includes the newline.
    let documents = printed.split("\n---\n").map(|text| serde_yaml::from_str::<Value>(&format!("{text}\n")).unwrap());
    documents.filter_map(normalised).collect()
}

fn made(file: &str, rendered: RenderedChart, hooks: Hooks) -> BTreeMap<String, String> {
    let (outputs, _) = rendered.outputs.expect("it is new").unwrap();
    let limits = Limits::new(|| Duration::ZERO);
    let objects = chart_objects(file, &rendered.files, &outputs, hooks, &limits).unwrap();
    objects.iter().filter_map(|object| normalised(object.value())).collect()
}

#[tokio::test]
async fn charts_become_what_the_official_tool_makes_of_them() {
    let mut origin = charts();
    origin
        .file(
            "values/more.yaml",
            "replicas: 5\nlabels: {tier: front}\ningress: {host: eu.example.com}\nmotd: '{{ .Release.Name }}'\n",
        )
        .commit("values");
    let renderer = Renderer::new(&origin, &path());
    let more = Options {
        values_files: vec!["/values/more.yaml".to_owned()],
        values: json!({"replicas": 6, "sessions": {"enabled": false}, "image": {"tag": "1,2=3"}}).as_object().cloned(),
        ..Options::default()
    };
    let omit = Options { hooks: Hooks::Omit, ..Options::default() };
    let flags = "--values=values/more.yaml --set-json=replicas=6,sessions.enabled=false --set-literal=image.tag=1,2=3";
    let flags: Vec<&str> = flags.split(' ').collect();
    for (chart, options, flags, count) in [
        ("charts/shop", &Options::default(), &[][..], 5),
        ("charts/shop", &more, &flags, 4),
        ("charts/operator", &Options::default(), &[], 5),
        ("charts/platform", &omit, &[], 5),
    ] {
        let expected = judged(&origin, chart, flags);
        assert_eq!(expected.len(), count, "{chart}");
        let file = format!("{chart}/Chart.yaml");
        let rendered = renderer.render(&file, options, &cluster(), None).await;
        let made = made(&file, rendered, options.hooks);
        assert_eq!(made.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{chart}");
        for (name, object) in &expected {
            assert_eq!(made[name], *object, "{chart}: {name}");
        }
    }
}

#[tokio::test]
async fn a_chart_is_rendered_only_if_something_that_it_reads_has_changed() {
    let mut origin = charts();
    let renderer = Renderer::new(&origin, &path());
    let file = "charts/operator/Chart.yaml";
    let options = Options::default();
    let rendered = renderer.render(file, &options, &cluster(), None).await;
    let key = rendered.outputs.unwrap().unwrap().1;
    origin.file("charts/other.txt", "x").commit("not read");
    assert!(renderer.render(file, &options, &cluster(), Some(key)).await.outputs.is_none());
    // This chart does not use the cluster's capabilities.
    let newer = Capabilities { kube_version: "v1.33.0".to_owned(), ..cluster() };
    assert!(renderer.render(file, &options, &newer, Some(key)).await.outputs.is_none());
    let named = Options { release_name: Some("other".to_owned()), ..Options::default() };
    assert!(renderer.render(file, &named, &cluster(), Some(key)).await.outputs.is_some());
    origin.file("charts/operator/values.yaml", "serviceAccount: {create: false}\n").commit("read");
    let rendered = renderer.render(file, &options, &cluster(), Some(key)).await;
    assert_eq!(made(file, rendered, Hooks::Refuse).len(), 1);
    // This chart uses the cluster's capabilities.
    let file = "charts/shop/Chart.yaml";
    let key = renderer.render(file, &options, &cluster(), None).await.outputs.unwrap().unwrap().1;
    assert!(renderer.render(file, &options, &cluster(), Some(key)).await.outputs.is_none());
    let fewer = Capabilities { api_versions: vec!["v1".to_owned()], ..cluster() };
    let rendered = renderer.render(file, &options, &fewer, Some(key)).await;
    assert!(made(file, rendered, Hooks::Refuse).keys().any(|name| name.contains("Deployment")));

    let none = Renderer::new(&origin, OsStr::new("/nothing"));
    let problems = none.render(file, &options, &cluster(), None).await.outputs.unwrap().unwrap_err();
    assert!(problems[0].what.contains("the program `helm`, which renders charts, was not found"), "{problems:?}");
    assert!(problems[0].hint.as_ref().unwrap().contains("go install helm.sh/helm"), "{problems:?}");
}

/// Writes a chart with one template, and a values file beside it.
fn chart(origin: &mut Origin, template: &str, values: &str) {
    origin
        .file("app/Chart.yaml", "apiVersion: v2\nname: small\nversion: 0.1.0\n")
        .file("app/values.yaml", values)
        .file("app/templates/map.yaml", template)
        .commit("a chart");
}

async fn said(renderer: &Renderer, options: &Options) -> String {
    let file = "app/Chart.yaml";
    let rendered = renderer.render(file, options, &cluster(), None).await;
    let problems = match rendered.outputs.expect("it is new") {
        Err(problems) => problems,
        Ok((outputs, _)) => {
            let limits = Limits::new(|| Duration::ZERO);
            let made = chart_objects(file, &rendered.files, &outputs, options.hooks, &limits);
            match made {
                Ok(objects) => return objects.iter().map(|o| String::from_utf8_lossy(o.json()).into_owned()).collect(),
                Err(problems) => problems,
            }
        }
    };
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn map(value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{key: {value}}}\n")
}

#[tokio::test]
async fn a_chart_that_renders_differently_each_time_is_refused_with_the_object() {
    let mut origin = small();
    let renderer = Renderer::new(&origin, &path());
    for random in [
        "{{ randAlphaNum 8 }}",
        "{{ uuidv4 }}",
        "{{ now | unixEpoch | quote }}",
        "{{ now | date \"2006-01-02\" | quote }}",
        "{{ date \"2006\" .Values.key }}",
        "{{ (genCA \"a\" 1).Cert | b64enc }}",
        "{{ htpasswd \"a\" \"hush\" | quote }}",
        "{{ tpl .Values.random . }}",
        "{{ list 1 2 3 4 5 6 7 8 9 10 11 12 13 | toStrings | join \"\" | shuffle | quote }}",
    ] {
        chart(&mut origin, &map(random), "key: hush\nrandom: '{{ randNumeric 9 | quote }}'\n");
        let said = said(&renderer, &Options::default()).await;
        let why = "app/templates/map.yaml: each rendering of the chart gives different values: ConfigMap a (";
        assert!(said.starts_with(why) && !said.contains("hush"), "{random}: {said}");
    }
    // These functions give the same result each time. There is neither a cluster nor a network.
    for (same, expected) in [
        ("{{ lookup \"v1\" \"Secret\" \"shop\" \"a\" | toJson | quote }}", r#""key":"{}""#),
        ("{{ getHostByName \"localhost\" | quote }}", r#""key":"""#),
        ("{{ .Values.key | default (randAlphaNum 8) }}", r#""key":"one""#),
        ("{{ dateInZone \"2006\" (toDate \"2006-01-02\" \"2024-05-06\") \"UTC\" | quote }}", r#""key":"2024""#),
        ("{{ .Files.Get \"../../../../etc/passwd\" | quote }}{{ .Files.Get \"/etc/passwd\" }}", r#""key":"""#),
        ("x # {{ randAlphaNum 8 }}", ""),
    ] {
        let template =
            if same.starts_with("x #") { format!("{}\n# {{{{ randAlphaNum 8 }}}}\n", map("one")) } else { map(same) };
        chart(&mut origin, &template, "key: one\n");
        let said = said(&renderer, &Options::default()).await;
        assert!(said.starts_with("{\"apiVersion\"") && said.contains(expected), "{same}: {said}");
    }
}

#[tokio::test]
async fn hostile_charts_end_in_a_problem_within_their_bounds() {
    let mut origin = small();
    let renderer = Renderer::new(&origin, &path());
    let endless = "{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}";
    let long = format!("{}{{{{ range until 40000 }}}}# {}\n{{{{ end }}}}", map("x"), "x".repeat(1000));
    let bomb = "{{ $x := \"xxxxxxxxxxxxxxxx\" }}{{ range until 40 }}{{ $x = print $x $x }}{{ end }}";
    for (template, expected) in [
        (endless, "templates include each other recursively"),
        (&long, "its output is larger than 16 MiB"),
        (bomb, "the tool used more memory than it may"),
        ("{{ range untilStep 0 2000000000 1 }}{{ end }}", "the tool used more memory than it may"),
        ("{{ env \"HOME\" }}", "app/templates/map.yaml, line 1: Helm has no function env"),
        (
            "{{ fail \"it is off\" }}",
            "app/templates/map.yaml, line 1, column 4: the chart refuses the values: it is off",
        ),
        ("{{ fail .Values.key }}", "app/templates/map.yaml, line 1, column 4: the chart refuses the values (set"),
        ("{{ .Values.none.key }}", "it uses a value that is not there: .Values.none.key"),
        ("a: {{ .Values.key", "app/templates/map.yaml, line 1: the template is not valid for Helm"),
        ("a: b: {{ .Values.key }}", "app/templates/map.yaml: its output is not valid YAML"),
        (
            "kind: ConfigMap\nmetadata: {name: a, name: b}\napiVersion: v1\ndata: {a: hush}\n",
            "app/templates/map.yaml: ",
        ),
    ] {
        chart(&mut origin, template, "key: hush\n");
        let begun = std::time::Instant::now();
        let said = said(&renderer, &Options::default()).await;
        let start: String = template.chars().take(60).collect();
        assert!(said.contains(expected) && !said.contains("hush") && said.len() < 600, "{start}: {said}");
        assert!(begun.elapsed() < mainstay_testkit::PATIENCE, "{start}");
    }
    let aliases: String = std::iter::once("a0: &a0 [hush, hush, hush]\n".to_owned())
        .chain((1..12).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", "))))
        .collect();
    for (values, expected) in [
        ("- a\n", "app/values.yaml: it is not a map of values"),
        ("a: [\n", "app/values.yaml, line 1: the file is not valid YAML"),
        (&aliases, "app/values.yaml: its aliases expand to more than Helm takes"),
    ] {
        chart(&mut origin, &map("x"), values);
        let said = said(&renderer, &Options::default()).await;
        assert!(said.starts_with(expected) && !said.contains("hush"), "{said}");
    }
}

#[tokio::test]
async fn paths_out_of_the_chart_are_refused_before_the_tool_runs() {
    let mut origin = small();
    let renderer = Renderer::new(&origin, &path());
    chart(&mut origin, &map("{{ .Values.key }}"), "key: one\n");
    let named = |file: &str| Options { values_files: vec![file.to_owned()], ..Options::default() };
    origin.file("bad values,--post-renderer=x.yaml", "key: named\n").file("list.yaml", "- a\n").commit("odd names");
    for (file, expected) in [
        ("--post-renderer=/bin/sh", "names --post-renderer=/bin/sh, which is not there"),
        ("../../../etc/passwd", "names ../../../etc/passwd, which is not in the repository"),
        ("https://u:hush@example.com/v.yaml", "references a remote"),
        ("../list.yaml", "list.yaml: it is not a map of values"),
        ("../bad values,--post-renderer=x.yaml", r#""key":"named""#),
    ] {
        let said = said(&renderer, &named(file)).await;
        assert!(said.contains(expected) && !said.contains("hush"), "{file}: {said}");
    }
    for release in ["--debug", "-f", "A", "a/b", ""] {
        let options = Options { release_name: Some(release.to_owned()), ..Options::default() };
        let said = said(&renderer, &options).await;
        assert!(said.contains("is not a valid name of a release"), "{release}: {said}");
    }
    // Dependencies are not downloaded, and messages do not contain their addresses.
    let dependencies = "dependencies:\n- {name: db, version: 1.x, repository: \"https://u:hush@example.com\"}\n";
    origin.file("app/Chart.yaml", format!("apiVersion: v2\nname: small\nversion: 0.1.0\n{dependencies}")).commit("db");
    let missing = said(&renderer, &Options::default()).await;
    let expected =
        "app/Chart.yaml: it depends on charts that are not in its directory charts/: db (run `helm dependency";
    assert!(missing.starts_with(expected), "{missing}");
    chart(&mut origin, &map("{{ .Values.key }}"), "key: one\n");
    let schema = "{\"properties\": {\"key\": {\"$ref\": \"http://127.0.0.1:8080/hush\"}}}";
    origin.file("app/values.schema.json", schema).commit("a schema");
    let refused = said(&renderer, &Options::default()).await;
    assert!(
        refused.starts_with("app/values.schema.json: the schema refers to another schema") && !refused.contains("hush"),
        "{refused}"
    );
    origin.file("app/values.schema.json", "{\"properties\": {\"key\": {\"type\": \"integer\"}}}").commit("a schema");
    let refused = said(&renderer, &Options::default()).await;
    assert!(refused.contains("do not match the chart's values.schema.json at /key (correct"), "{refused}");
    assert!(Path::new("/etc/passwd").exists());
    origin.symlink("app/templates/link.yaml", "/etc/passwd").commit("a link");
    let refused = said(&renderer, &Options::default()).await;
    assert!(refused.starts_with("app/templates/link.yaml: it is a symbolic link in a chart"), "{refused}");
}

#[tokio::test]
async fn a_chart_is_rendered_twice_only_if_its_results_can_differ() {
    let mut origin = charts();
    let renderer = Renderer::new(&origin, &path());
    let file = "app/Chart.yaml";
    for (template, runs) in [("{{ .Values.key | quote }}", 1), ("{{ derivePassword 1 \"long\" \"a\" \"b\" \"c\" }}", 2)]
    {
        chart(&mut origin, &map(template), "key: hush\n");
        let rendered = renderer.render(file, &Options::default(), &cluster(), None).await;
        let (outputs, _) = rendered.outputs.unwrap().unwrap();
        assert_eq!(1 + usize::from(outputs.second.is_some()), runs, "{template}");
    }
    let rendered = renderer.render("charts/operator/Chart.yaml", &Options::default(), &cluster(), None).await;
    assert!(rendered.outputs.unwrap().unwrap().0.second.is_none());
}

#[tokio::test]
async fn an_output_is_kept_for_the_same_inputs_and_capabilities() {
    let origin = charts();
    let kept = tempfile::tempdir().unwrap();
    let started = || {
        let mut renderer = Renderer::new(&origin, &path());
        let kustomize = Kustomize::new(None, renderer.mirrors.path().join("render"));
        let kustomize = kustomize.keeping(kept.path().join("outputs"), Some(&path()));
        renderer.helm = Helm::beside(&kustomize, Some(&path()));
        (renderer, kustomize)
    };
    let file = "charts/shop/Chart.yaml";
    let (first, counting) = started();
    let before = made(file, first.render(file, &Options::default(), &cluster(), None).await, Hooks::Omit);
    assert_eq!(counting.renders(), 1);
    let (second, counting) = started();
    let after = made(file, second.render(file, &Options::default(), &cluster(), None).await, Hooks::Omit);
    assert_eq!((counting.renders(), &after), (0, &before));
    // This chart reads the cluster's capabilities.
    let newer = Capabilities { kube_version: "v1.33.0".to_owned(), ..cluster() };
    second.render(file, &Options::default(), &newer, None).await.outputs.unwrap().unwrap();
    assert_eq!(counting.renders(), 1);
    let other = Options { release_name: Some("other".to_owned()), ..Options::default() };
    let named = made(file, second.render(file, &other, &newer, None).await, Hooks::Omit);
    assert!(counting.renders() == 2 && named != before);
}
