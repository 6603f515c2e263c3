//! The Helm chart in `manifests/chart` renders the objects that `mainstay install` prints, for the same choices.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    path::Path,
    process::Output,
};

use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_testkit::{golden::check_golden, shell::Shell};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/chart");
/// The repository for choices that name none.
const URL: &str = "https://git.example.com/team/shop";
/// The annotation that makes Helm keep an object that is no longer in its release.
const KEEP: &str = "helm.sh/resource-policy";
/// Namespace of the releases.
const HOME: &str = "mainstay-tests-helm";
/// Values of the releases.
const VALUES: &str = "git.url=git@git.example.com:team/shop.git,v1alpha2=true";
/// Values without a flag.
const WITHOUT_FLAG: [&str; 2] = ["createNamespace", "global"];

/// Flags without a value. The permissions of the first four depend on the named objects; the others are about the
/// command itself.
const WITHOUT_VALUE: [&str; 12] = [
    "--profile",
    "--kinds",
    "--namespaces",
    "--service-account",
    "--values",
    "--kubeconfig",
    "--context",
    "--cluster",
    "--user",
    "--as",
    "--as-group",
    "--request-timeout",
];

/// A choice: flags of `mainstay install`, and values for the chart and for `mainstay install --values`.
type Choice = (&'static [&'static str], &'static str);

/// Choices that cover every flag of `mainstay install` and every value. `KEYS` stands for a file with host keys, and in
/// values for its content.
const CHOICES: &[Choice] = &[
    (&[], "{}"),
    (&["--git-url=git@github.com:team/My_Shop.v2.git"], "git: {url: 'git@github.com:team/My_Shop.v2.git'}"),
    (&["--git-url=ssh://me@git.corp/~a/b.git/"], "git: {url: 'ssh://me@git.corp/~a/b.git/'}"),
    (&["--git-url=git://git.corp/a/__"], "git: {url: 'git://git.corp/a/__'}"),
    (&["--git-url=https://git.corp:8443"], "git: {url: 'https://git.corp:8443'}"),
    (
        &["--git-url=https://h/A-name_Of.more-than_Forty--Characters_in-it"],
        "git: {url: 'https://h/A-name_Of.more-than_Forty--Characters_in-it'}",
    ),
    (
        &["--git-url=ssh://git@git.corp:2222/shop", "--known-hosts=KEYS"],
        "git: {url: 'ssh://git@git.corp:2222/shop', knownHosts: KEYS}",
    ),
    (&["--git-secret=login"], "git: {secret: login}"),
    (
        &["--git-url=git@ssh.dev.azure.com:v3/o/p/r", "--git-secret=mine"],
        "git: {url: 'git@ssh.dev.azure.com:v3/o/p/r', secret: mine}",
    ),
    (&["--git-branch=1.0"], "git: {branch: '1.0'}"),
    (&["--git-path=/apps/"], "git: {paths: [/apps/]}"),
    (&["--git-path=apps,./infra//Größe"], "git: {paths: [apps, ./infra//Größe]}"),
    (&["--target-namespace=0123"], "git: {targetNamespace: '0123'}"),
    (&["--git-url=git@github.com:a/b", "--name=on"], "git: {url: 'git@github.com:a/b', name: 'on'}"),
    (&["--interval=90s"], "git: {interval: 90s}"),
    (&["--interval=61m1500ms"], "git: {interval: 61m1500ms}"),
    (&["--namespace=flux"], "{}"),
    (&["--namespace=0123", "--v1alpha2"], "v1alpha2: true"),
    (&["--image=registry.example.com/mainstay:9"], "image: registry.example.com/mainstay:9"),
    (&["--image-pull-secret=harbor"], "imagePullSecret: harbor"),
    (&["--image-pull-secret=harbor", "--registry=none"], "{imagePullSecret: harbor, registry: none}"),
    (&["--registry-network=10.0.0.0/8,fd00::/8"], "registryNetworks: [10.0.0.0/8, 'fd00::/8']"),
    (&["--registry=ghcr.io/team"], "registry: ghcr.io/team"),
    (
        &[
            "--base-images",
            r#"{"nodejs24":"r.io/n@sha256:0000000000000000000000000000000000000000000000000000000000000000"}"#,
        ],
        "baseImages: {nodejs24: 'r.io/n@sha256:0000000000000000000000000000000000000000000000000000000000000000'}",
    ),
    (&["--base-ca=corporate"], "baseCA: corporate"),
    (
        &["--base-ca=corporate/bundle.pem", "--image-pull-secret=harbor", "--extra-env=A=b"],
        "{baseCA: corporate/bundle.pem, imagePullSecret: harbor, extraEnv: {A: b}}",
    ),
    (&["--receiver-url=https://hooks.example.com/a/"], "receiverURL: https://hooks.example.com/a/"),
    (&["--components=sync"], "components: [sync]"),
    (&["--components=sync,functions"], "components: [sync, functions]"),
    (
        &["--components=sync,exposure,eventing", "--image-pull-secret=harbor"],
        "{components: [sync, exposure, eventing], imagePullSecret: harbor}",
    ),
    (&["--components=sync,console"], "components: [sync, console]"),
    (
        &[
            "--components=sync,console",
            "--console-url=https://console.example.com,https://a:8443",
            "--console-cluster-name=production: eu-west/1",
            "--console-sign-in=proxy",
            "--resources=console.limits.memory=200Mi",
        ],
        "{components: [sync, console], console: {urls: ['https://console.example.com', 'https://a:8443'], clusterName: \
         'production: eu-west/1', signIn: proxy}, \
         resources: {console: {limits: {memory: 200Mi}}}}",
    ),
    (
        &[
            "--components=sync,console",
            "--console-sign-in=oidc",
            "--console-oidc-issuer=https://login.example.com/realms/a",
            "--console-oidc-client-id=kubernetes:\"a\"",
        ],
        "{components: [sync, console], console: {signIn: oidc, oidc: {issuer: 'https://login.example.com/realms/a', \
         clientID: 'kubernetes:\"a\"'}}}",
    ),
    (
        &[
            "--components=sync,console",
            "--console-sign-in=oidc",
            "--console-oidc-issuer=https://login.example.com",
            "--console-oidc-client-id=kubernetes",
            "--console-oidc-scope=email,groups",
            "--console-oidc-secret=issuer",
        ],
        "{components: [sync, console], console: {signIn: oidc, oidc: {issuer: 'https://login.example.com', clientID: kubernetes, \
         scopes: [email, groups], secret: issuer}}}",
    ),
    (
        &["--components=sync,eventing", "--nats-url=nats://nats.messaging:4222", "--drain-journal"],
        "{components: [sync, eventing], nats: {url: 'nats://nats.messaging:4222', drainJournal: true}}",
    ),
    (
        &[
            "--components=sync,eventing",
            "--nats-url=tls://one:4222,tls://two:4222",
            "--nats-credentials=login",
            "--nats-share=1Gi",
            "--nats-replicas=3",
            "--event-publishers=3",
            "--event-dispatchers=5",
            "--drain-journal",
            "--image-pull-secret=harbor",
            "--pod-label=team=platform",
        ],
        "{components: [sync, eventing], imagePullSecret: harbor, podLabels: {team: platform}, nats: {url: \
         'tls://one:4222,tls://two:4222', credentials: login, share: 1Gi, replicas: 3, publishers: 3, dispatchers: 5, drainJournal: \
         true}}",
    ),
    (
        &["--components=sync,eventing", "--nats=embedded", "--namespace=flux"],
        "{components: [sync, eventing], nats: {server: embedded}}",
    ),
    (
        &[
            "--components=sync,eventing",
            "--nats=embedded",
            "--nats-image=r.io/nats@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "--nats-replicas=3",
            "--drain-journal",
            "--image-pull-secret=harbor",
            "--image-pull-policy=Always",
            "--pod-label=team=platform",
            "--resources=nats.limits.memory=1Gi",
        ],
        "{components: [sync, eventing], imagePullSecret: harbor, imagePullPolicy: Always, podLabels: {team: platform}, resources: \
         {nats: {limits: {memory: 1Gi}}}, nats: {server: embedded, image: \
         'r.io/nats@sha256:0000000000000000000000000000000000000000000000000000000000000000', replicas: 3, drainJournal: true}}",
    ),
    (&["--components=sync,exposure,eventing", "--no-crds"], "{components: [sync, exposure, eventing], crds: false}"),
    (&["--egress-policy"], "egressPolicy: true"),
    (
        &["--egress-policy", "--git-url=ssh://git@git.corp:2222/shop", "--known-hosts=KEYS"],
        "{egressPolicy: true, git: {url: 'ssh://git@git.corp:2222/shop', knownHosts: KEYS}}",
    ),
    (
        &["--egress-policy", "--git-url=http://git.corp/shop"],
        "{egressPolicy: true, git: {url: 'http://git.corp/shop'}}",
    ),
    (&["--no-crds"], "crds: false"),
    (&["--v1alpha2"], "v1alpha2: true"),
    (&["--git-user=Ada"], "{}"),
    (&["--git-email=ada@example.com"], "{}"),
    (&["--git-label=flux"], "{}"),
    (&["--git-readonly"], "{}"),
    (&["--registry-disable-scanning"], "{}"),
    (&["--replicas=2"], "replicas: 2"),
    (&["--shards=3"], "shards: 3"),
    (&["--shards=2", "--replicas=4", "--components=sync"], "{shards: 2, replicas: 4, components: [sync]}"),
    (
        &[
            "--resources=mainstay.limits.memory=320Mi,guard.limits.cpu=none",
            "--resources=renderer.requests.nvidia.com/gpu=1",
        ],
        "resources: {mainstay: {limits: {memory: 320Mi}}, guard: {limits: {cpu: null}}, renderer: {requests: {nvidia.com/gpu: '1'}}}",
    ),
    (&["--expect-gitsyncs=4000"], "expect: {gitSyncs: 4000}"),
    (
        &["--expect-gitsyncs=10", "--expect-objects=60001", "--resources=mainstay.limits.cpu=2"],
        "{expect: {gitSyncs: 10, objects: 60001}, resources: {mainstay: {limits: {cpu: '2'}}}}",
    ),
    (&["--expect-objects=100"], "expect: {objects: 100}"),
    (
        &[
            "--components=sync,functions,eventing",
            "--resources=registry.limits.memory=1Gi,sweep.limits.cpu=1,collect.limits.cpu=1,eventing.requests.cpu=5m",
        ],
        "{components: [sync, functions, eventing], resources: {registry: {limits: {memory: 1Gi}}, sweep: {limits: {cpu: '1'}}, \
         collect: {limits: {cpu: '1'}}, eventing: {requests: {cpu: 5m}}}}",
    ),
    (
        &[
            "--components=sync,functions,eventing",
            "--node-selector=kubernetes.io/os=linux,pool=true",
            "--priority-class=high",
        ],
        "{components: [sync, functions, eventing], nodeSelector: {kubernetes.io/os: linux, pool: 'true'}, priorityClassName: high}",
    ),
    (
        &[
            "--components=sync,functions,eventing",
            "--toleration=dedicated=infra:NoSchedule",
            "--toleration=*:NoExecute",
        ],
        "{components: [sync, functions, eventing], tolerations: [{key: dedicated, operator: Equal, value: infra, effect: NoSchedule}, \
         {operator: Exists, effect: NoExecute}]}",
    ),
    (
        &[
            r#"--affinity={"nodeAffinity": {"x": [1, "2"]}}"#,
            r#"--topology-spread=[{"maxSkew": 1, "topologyKey": "zone"}]"#,
        ],
        "{affinity: {nodeAffinity: {x: [1, '2']}}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone}]}",
    ),
    (
        &["--components=sync,functions,eventing", "--pod-label=team=platform", "--pod-label=on=1"],
        "{components: [sync, functions, eventing], podLabels: {team: platform, 'on': '1'}}",
    ),
    (
        &["--pod-annotation=prometheus.io/scrape=false", "--pod-annotation=a=b, {c: d}"],
        "podAnnotations: {prometheus.io/scrape: 'false', a: 'b, {c: d}'}",
    ),
    (&["--image-pull-policy=Always"], "imagePullPolicy: Always"),
    (
        &["--components=sync", "--allow-network=10.20.0.0/16,fd00::/8", "--extra-arg=--audit-interval=2h"],
        "{components: [sync], allowNetworks: [10.20.0.0/16, 'fd00::/8'], extraArgs: [--audit-interval=2h]}",
    ),
    (
        &["--extra-arg=--allow-namespace=team", "--extra-arg=--default-service-account=tenant"],
        "extraArgs: [--allow-namespace=team, --default-service-account=tenant]",
    ),
    (
        &["--extra-env=NO_PROXY=10.0.0.0/8,.svc", "--extra-env=MAINSTAY_GIT_INTERVAL=2m"],
        "extraEnv: {NO_PROXY: '10.0.0.0/8,.svc', MAINSTAY_GIT_INTERVAL: 2m}",
    ),
];

/// Runs Helm without the user's configuration.
fn helm(arguments: &[&str], values: &[impl AsRef<OsStr>]) -> Output {
    let mut command = mainstay_testkit::isolated("helm");
    command.args(arguments).args(values).output().expect("helm is needed: https://helm.sh/docs/intro/install")
}

/// Renders the chart with its namespace.
fn chart(values: &[impl AsRef<OsStr>]) -> Objects {
    let arguments = ["template", "mainstay", CHART, "--namespace=mainstay-system", "--set=createNamespace=true"];
    objects(&printed(&helm(&arguments, values)))
}

/// Returns the output of `mainstay install`.
fn install(flags: &[impl AsRef<OsStr>]) -> String {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    printed(&command.arg("install").args(flags).output().unwrap())
}

/// Returns the objects of `mainstay install`.
fn installed(flags: &[impl AsRef<OsStr>]) -> Objects {
    objects(&install(flags))
}

/// Returns the output of a program, which must succeed.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// Parses a stream of objects. The objects that the agent should create are compared as parsed YAML, not as text.
fn objects(stream: &str) -> Objects {
    let mut objects = Objects::new();
    for document in serde_yaml::Deserializer::from_str(stream) {
        let mut object = Value::deserialize(document).unwrap();
        if object.is_null() {
            continue;
        }
        if let Some(Value::String(text)) = object.pointer_mut("/data/objects.yaml") {
            let followed: Vec<_> =
                serde_yaml::Deserializer::from_str(text).map(|one| Value::deserialize(one).unwrap()).collect();
            object["data"]["objects.yaml"] = json!(followed);
        }
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let key = format!("{} {namespace}/{}", object["kind"].as_str().unwrap(), metadata["name"].as_str().unwrap());
        assert!(objects.insert(key.clone(), object).is_none(), "{key} is there twice");
    }
    objects
}

/// Removes the annotation that keeps objects. Returns the keys of objects that had it.
fn take_keep(objects: &mut Objects) -> BTreeSet<String> {
    let mut kept = BTreeSet::new();
    for (key, object) in objects {
        let metadata = object["metadata"].as_object_mut().unwrap();
        let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else { continue };
        if let Some(policy) = annotations.remove(KEEP) {
            assert_eq!(policy, "keep", "{key}");
            kept.insert(key.clone());
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    kept
}

#[track_caller]
fn assert_same(chart: &Objects, install: &Objects, choice: &str) {
    let keys = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(chart), keys(install), "{choice}");
    // Equal objects have the same text. Printing all of them takes longer than the comparison.
    for (key, expected) in install.iter().filter(|(key, expected)| chart[*key] != **expected) {
        let yaml = |object: &Value| serde_yaml::to_string(object).unwrap();
        let (expected, actual) = (yaml(expected), yaml(&chart[key]));
        let difference = similar::TextDiff::from_lines(&expected, &actual);
        assert!(expected == actual, "{choice}: {key} of the chart differs:\n{}", difference.unified_diff());
    }
}

#[test]
fn renders_the_objects_of_install_for_each_choice() {
    let keys = tempfile::NamedTempFile::new().unwrap();
    // The file has no final line feed, as some editors write it.
    let line = "[git.corp]:2222 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    fs::write(keys.path(), line).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("values.yaml");
    for (flags, values) in CHOICES {
        let mut flags: Vec<String> =
            flags.iter().map(|flag| flag.replace("KEYS", keys.path().to_str().unwrap())).collect();
        let mut values: Value = serde_yaml::from_str(&values.replace("KEYS", &format!("'{line}'"))).unwrap();
        if values["git"]["url"].is_null() {
            flags.push(format!("--git-url={URL}"));
            values["git"]["url"] = json!(URL);
        }
        // JSON, because Helm reads YAML 1.1, in which a bare `on` is a boolean.
        fs::write(&file, values.to_string()).unwrap();
        let namespace = flags.iter().find(|flag| flag.starts_with("--namespace")).cloned();
        let from_file = [format!("--values={}", file.display())].into_iter().chain(namespace).collect::<Vec<_>>();
        let (printed, printed_from_file) = (install(&flags), install(&from_file));
        let expected = objects(&printed);
        let mut actual = chart(&from_file);
        take_keep(&mut actual);
        assert_same(&actual, &expected, &flags.join(" "));
        // The same text has the same objects. Parsing it is most of this test's work.
        if printed_from_file != printed {
            assert_same(&objects(&printed_from_file), &expected, &format!("--values of {}", flags.join(" ")));
        }
    }
}

#[test]
fn every_flag_has_a_value_and_every_value_a_flag() {
    let help = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay")).args(["install", "--help"]).output().unwrap();
    let help = printed(&help);
    let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let mut flags: BTreeSet<&str> =
        options.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--"))).collect();
    flags.remove("--help");
    flags.remove("--color");
    for flag in WITHOUT_VALUE {
        assert!(flags.remove(flag), "{flag} is no flag");
    }
    let words = CHOICES.iter().flat_map(|(flags, _)| flags.iter()).filter(|word| word.starts_with("--"));
    let chosen: BTreeSet<&str> = words.map(|word| word.split('=').next().unwrap()).collect();
    assert_eq!(chosen, flags, "each flag needs a value of the chart, and a line in CHOICES");

    let chosen: Vec<Value> = CHOICES.iter().map(|(_, values)| serde_yaml::from_str(values).unwrap()).collect();
    let is_set = |path: &&str| {
        let pointer = format!("/{}", path.replace('.', "/"));
        chosen.iter().any(|values| values.pointer(&pointer).is_some())
    };
    let (values, _) = values_of_schema();
    let set: BTreeSet<&str> = values.keys().map(String::as_str).filter(is_set).collect();
    let mut expected: BTreeSet<&str> = values.keys().map(String::as_str).collect();
    for value in WITHOUT_FLAG {
        assert!(expected.remove(value), "{value} is no value");
    }
    assert_eq!(set, expected, "each value needs a flag of `mainstay install`, or a place in WITHOUT_FLAG");
}

/// Returns the leaves of the schema by path, and its objects.
fn values_of_schema() -> (BTreeMap<String, Value>, Vec<Value>) {
    let text = fs::read_to_string(Path::new(CHART).join("values.schema.json")).unwrap();
    let (mut leaves, mut parents) = (BTreeMap::new(), Vec::new());
    let mut open = vec![(String::new(), serde_json::from_str::<Value>(&text).unwrap())];
    while let Some((path, schema)) = open.pop() {
        let Some(properties) = schema["properties"].as_object() else {
            leaves.insert(path, schema);
            continue;
        };
        let dot = if path.is_empty() { "" } else { "." };
        open.extend(properties.iter().map(|(name, schema)| (format!("{path}{dot}{name}"), schema.clone())));
        parents.push(schema);
    }
    (leaves, parents)
}

#[test]
fn the_schema_describes_every_value_with_its_default() {
    let text = fs::read_to_string(Path::new(CHART).join("values.yaml")).unwrap();
    let defaults: Value = serde_yaml::from_str(&text).unwrap();
    let readme = fs::read_to_string(Path::new(CHART).join("README.md")).unwrap();
    let (leaves, parents) = values_of_schema();
    for parent in parents {
        assert_eq!(parent["additionalProperties"], false, "{parent}");
    }
    for (path, schema) in leaves {
        assert!(schema["description"].as_str().is_some_and(|text| text.ends_with('.')), "{path}: {schema}");
        if path == "global" {
            continue;
        }
        let default = defaults.pointer(&format!("/{}", path.replace('.', "/")));
        assert_eq!(default, Some(&schema["default"]), "{path} in values.yaml");
        let has_row = |path: &str| readme.contains(&format!("\n| `{path}` | "));
        let is_below = path.rsplit_once('.').is_some_and(|(parent, _)| has_row(parent));
        assert!(has_row(&path) || is_below, "{path} is missing in README.md");
    }
}

/// The numbers exist twice: for kustomize and for Helm.
#[test]
fn the_default_resources_are_those_of_the_manifests() {
    let text = fs::read_to_string(Path::new(CHART).join("values.yaml")).unwrap();
    let defaults: Value = serde_yaml::from_str(&text).unwrap();
    let mut found = BTreeMap::new();
    let files = [
        "deployment.yaml",
        "registry/registry.yaml",
        "eventing/deployment.yaml",
        "eventing/nats.yaml",
        "eventing/nats-server.yaml",
        "eventing/drain.yaml",
        "console/deployment.yaml",
    ];
    for file in files {
        let text = fs::read_to_string(Path::new(CHART).parent().unwrap().join(file)).unwrap();
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document = Value::deserialize(document).unwrap();
            let pod = &document["spec"]["template"]["spec"];
            for container in ["initContainers", "containers"].iter().filter_map(|list| pod[list].as_array()).flatten() {
                found.insert(container["name"].as_str().unwrap().to_owned(), container["resources"].clone());
            }
        }
    }
    assert_eq!(defaults["resources"], json!(found));
}

/// Variables of the agent's container cannot be set again, because duplicate names are refused.
#[test]
fn no_value_sets_a_variable_of_the_agent_twice() {
    let (values, _) = values_of_schema();
    let refused = values["extraEnv"]["propertyNames"]["not"]["enum"].as_array().unwrap();
    let flags = [
        "--receiver-url=https://h",
        "--base-ca=a",
        "--image-pull-secret=a",
        r#"--base-images={"nodejs24":"r.io/n@sha256:0000000000000000000000000000000000000000000000000000000000000000"}"#,
        "--git-url=https://h/x",
    ];
    let all = installed(&flags);
    let container = &all["Deployment mainstay-system/mainstay"]["spec"]["template"]["spec"]["containers"][0];
    let mut set: Vec<&Value> = container["env"].as_array().unwrap().iter().map(|variable| &variable["name"]).collect();
    set.sort_by_key(|name| name.as_str());
    assert_eq!(refused.iter().collect::<Vec<_>>(), set);
}

#[test]
fn refuses_wrong_values_by_name() {
    for (values, expected) in [
        (&["--set=imgae=a/b"][..], "additional properties 'imgae' not allowed"),
        (&["--set=git.URL=https://h/x"], "additional properties 'URL' not allowed"),
        (&["--set=crds=yes"], "got string, want boolean"),
        (&["--set=baseImages.nodejs24=node:24"], "does not match pattern"),
        (&["--set=git.name=a/b"], "does not match pattern"),
        (&["--set=registry=ghcr"], "does not match pattern"),
        (&["--set=registry=me@ghcr.io/team"], "does not match pattern"),
        (&["--set=crds=false,v1alpha2=true"], "v1alpha2 needs crds"),
        (&["--set=components={functions}"], "components: name sync as well"),
        (&["--set=components={sync,builds}"], "value must be one of"),
        (&["--set=components={sync},v1alpha2=true"], "v1alpha2 needs the component functions"),
        (&["--set=components={sync},registry=ghcr.io/team"], "registry needs the component functions"),
        (
            &[
                "--set=components={sync},baseImages.nodejs24=r.io/n@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            ],
            "baseImages needs the component functions",
        ),
        (&["--set=components={sync},baseCA=a"], "baseCA needs the component functions"),
        (&["--set=nats.url=tls://h"], "nats.url needs the component eventing"),
        (&["--set=nats.credentials=a"], "nats.credentials needs nats.url"),
        (&["--set=console.signIn=oidc,console.oidc.clientID=a"], "console.signIn oidc needs console.oidc.issuer"),
        (&["--set=console.oidc.clientID=a"], "console.oidc needs console.signIn oidc"),
        (&["--set=nats.server=embedded"], "nats.server needs the component eventing"),
        (&["--set=nats.server=yes"], "value must be one of"),
        (&["--set=nats.image=r.io/nats:2"], "does not match pattern"),
        (
            &["--set=nats.server=embedded,nats.url=tls://h,components={sync,eventing}"],
            "nats.url is the address of an existing NATS",
        ),
        (
            &["--set=nats.server=embedded,nats.credentials=a,components={sync,eventing}"],
            "nats.credentials is for an existing NATS",
        ),
        (
            &["--set=nats.server=embedded,nats.replicas=2,components={sync,eventing}"],
            "nats.replicas is also the number of servers",
        ),
        (
            &["--set=nats.url=tls://me:hunter2@h,components={sync,eventing}"],
            "nats.url: an address with a login would be stored in the open",
        ),
        (&["--set=nats.url=http://h,components={sync,eventing}"], "nats.url: an address has the form"),
        (&["--set=replicas=0"], "minimum"),
        (&["--set=imagePullPolicy=always"], "value must be one of"),
        (&["--set=tolerations[0].efect=NoSchedule"], "value must be one of"),
        (&["--set=extraEnv.MAINSTAY_POD=x"], "'not' failed"),
        (&["--set=podLabels.team=true"], "got boolean, want string"),
        (&["--set=git.url=https://me:hunter2@h/x"], "would be stored in the open"),
        (&["--set=git.url=ssh://me:hunter2@h/x"], "would be stored in the open"),
        (&["--set=git.url=/srv/shop"], "git.url: the URL must have the form"),
        (&["--set=git.url=https://h/x?token=hunter2"], "git.url: the URL must not contain `?`"),
        (&["--set=git.url=https://h/gr%C3%B6"], "git.name: set a name"),
        (&["--set=git.url=git://h/x,git.secret=mine"], "authentication at a git:// address is not supported"),
        (&["--set=git.url=https://h/x,git.knownHosts=h"], "git.knownHosts is for SSH addresses"),
        (&["--set=git.url=git@ssh.dev.azure.com:v3/o/p/r"], "Azure DevOps takes RSA keys only"),
        (&["--set=git.url=https://h/x,git.paths={../x}"], "`..` is not allowed"),
        (&["--set=git.url=https://h/x,git.paths={a,/a/}"], "git.paths names /a twice"),
        (&["--set=git.url=https://h/x,git.paths={a/b,a-b}"], "would make a second GitSync x-a-b"),
        (&["--set=git.url=https://h/x,git.interval=1.5h"], "does not match pattern"),
        (&["--set=git.url=https://h/x,git.interval=87601h"], "git.interval: it is at most ten years"),
    ] {
        let output = helm(&["template", "mainstay", CHART], values);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(expected), "{values:?}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

/// The definitions and data are kept when the release is uninstalled, and when values exclude them.
#[test]
fn keeps_definitions_and_data_when_a_release_goes() {
    let mut all = chart(&["--set=git.url=git@github.com:team/shop.git,v1alpha2=true"]);
    let kept = take_keep(&mut all);
    let names_data = |key: &&String| {
        let (kind, name) = (key.split(' ').next().unwrap(), key.rsplit('/').next().unwrap());
        matches!(kind, "CustomResourceDefinition" | "Namespace")
            || matches!(name, "serverless-docker-registry" | "shop-git")
    };
    assert_eq!(kept, all.keys().filter(names_data).cloned().collect::<BTreeSet<_>>());
    assert!(kept.len() > 8, "{kept:?}");
}

#[test]
fn leaves_out_the_namespace_and_the_repository_by_default() {
    let mut alone = objects(&printed(&helm(&["template", "mainstay", CHART], &["--namespace=flux"])));
    take_keep(&mut alone);
    let mut all = installed(&["--git-url=https://h/x", "--namespace=flux"]);
    all.remove("Namespace /flux").unwrap();
    all.remove("ConfigMap flux/mainstay-bootstrap").unwrap();
    assert_same(&alone, &all, "the agent alone");
}

#[test]
fn passes_the_linter_with_the_version_of_the_program() {
    printed(&helm(&["lint", "--strict"], &[CHART]));
    let text = fs::read_to_string(Path::new(CHART).join("Chart.yaml")).unwrap();
    let chart: Value = serde_yaml::from_str(&text).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
    // Mainstay's own renderer refuses links, hooks, and output that varies.
    let render = || printed(&helm(&["template", "mainstay", CHART], &["--set=git.url=git@h:x"]));
    let once = render();
    assert!(once == render() && !once.contains("helm.sh/hook"));
}

/// A template that is generated from a manifest.
struct Template {
    manifest: &'static str,
    name: &'static str,
    /// Condition on the values.
    condition: Option<&'static str>,
    /// Texts of the manifest with their replacements.
    replacements: &'static [(&'static str, &'static str)],
}

/// Replacements in all templates.
const EVERYWHERE: [(&str, &str); 4] = [
    ("{{", "{{ \"{{\" }}"),
    (": mainstay-system\n", ": {{ .Release.Namespace | quote }}\n"),
    (".mainstay-system.svc.", ".{{ .Release.Namespace }}.svc."),
    (concat!(": mainstay:", env!("CARGO_PKG_VERSION"), "\n"), ": {{ .Values.image | quote }}\n"),
];

const fn template(manifest: &'static str, name: &'static str) -> Template {
    Template { manifest, name, condition: None, replacements: &[] }
}

/// Conditions of components that are installed only on request.
const EXPOSURE: Option<&str> = Some("has \"exposure\" .Values.components");
const EVENTING: Option<&str> = Some("has \"eventing\" .Values.components");
const WITH_JOURNAL: Option<&str> =
    Some("and (has \"eventing\" .Values.components) (not (include \"mainstay.onNats\" .))");
const ON_NATS: Option<&str> = Some("include \"mainstay.onNats\" .");
const KEPT_EVENTS: (&str, &str) = (
    "kind: PersistentVolumeClaim\nmetadata:\n",
    "kind: PersistentVolumeClaim\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n",
);

/// Labels and annotations of pods.
const METADATA: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay\n      annotations:\n        prometheus.io/scrape: \"true\"\n        \
     prometheus.io/port: \"8080\"\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay\" (dict \"prometheus.io/scrape\" \"true\" \"prometheus.io/port\" \
     \"8080\")) }}\n    spec:\n",
);
const METADATA_OF_REGISTRY: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: serverless-docker-registry\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"serverless-docker-registry\" (dict)) }}\n    spec:\n",
);
const METADATA_OF_CONSOLE: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-console\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-console\" (dict)) }}\n    spec:\n",
);
const METADATA_OF_PUBLISHER: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-eventing-publisher\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-eventing-publisher\" (dict)) }}\n    spec:\n",
);
const METADATA_OF_DISPATCHER: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-eventing-dispatcher\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-eventing-dispatcher\" (dict)) }}\n    spec:\n",
);
const METADATA_OF_NATS: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-nats\n    spec:\n      automount",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-nats\" (dict)) }}\n    spec:\n      automount",
);
const METADATA_OF_EVENTING: (&str, &str) = (
    "      labels:\n        app.kubernetes.io/name: mainstay-eventing\n    spec:\n",
    "{{- include \"mainstay.podMetadata\" (list . \"mainstay-eventing\" (dict)) }}\n    spec:\n",
);

/// The choices for NATS.
const SHARE_ON_NATS: (&str, &str) = ("--nats-share=64Mi\n", "--nats-share={{ .Values.nats.share }}\n");
const REPLICAS_ON_NATS: (&str, &str) = ("--nats-replicas=1\n", "--nats-replicas={{ .Values.nats.replicas }}\n");
const URL_OF_NATS: (&str, &str) = ("value: tls://nats:4222\n", "value: {{ include \"mainstay.natsURL\" . | quote }}\n");
const LOGIN_OF_NATS: (&str, &str) = (
    "            - name: MAINSTAY_NATS_CREDENTIALS\n              value: /etc/nats\n",
    "{{- if include \"mainstay.natsSecret\" . }}\n            - name: MAINSTAY_NATS_CREDENTIALS\n              value: /etc/nats\n{{- end }}\n",
);

const TEMPLATES: [Template; 20] = [
    Template {
        replacements: &[(
            "    resources: [leases]\n    verbs: [get, create, update]\n",
            "    resources: [leases]\n    verbs: [get, {{ if .Values.shards }}list, watch, {{ end }}create, update]\n",
        )],
        ..template("rbac.yaml", "rbac.yaml")
    },
    template("network-policy.yaml", "network-policy.yaml"),
    template("disruption-budget.yaml", "disruption-budget.yaml"),
    Template {
        replacements: &[
            (
                "  - name: validation.webhook.serverless.kyma-project.io\n",
                "{{- if include \"mainstay.has\" (list . \"functions\") }}\n  - name: \
                 validation.webhook.serverless.kyma-project.io\n",
            ),
            (
                "  - name: gitrepository.validation.webhook.serverless.kyma-project.io\n",
                "{{- end }}\n  - name: gitrepository.validation.webhook.serverless.kyma-project.io\n",
            ),
        ],
        ..template("webhooks.yaml", "webhooks.yaml")
    },
    Template {
        condition: Some(".Values.egressPolicy"),
        replacements: &[(
            "        - port: 6443\n          protocol: TCP\n",
            "        - port: 6443\n          protocol: TCP\n{{- include \"mainstay.egressPort\" . }}\n",
        )],
        ..template("egress/network-policy.yaml", "egress.yaml")
    },
    Template {
        condition: Some("and (has \"exposure\" .Values.components) .Values.crds"),
        replacements: &[("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n")],
        ..template("exposure/crd.yaml", "exposure-crd.yaml")
    },
    Template { condition: EXPOSURE, ..template("exposure/rbac.yaml", "exposure-rbac.yaml") },
    Template {
        condition: Some("and (has \"eventing\" .Values.components) .Values.crds"),
        replacements: &[("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n")],
        ..template("eventing/crd.yaml", "eventing-crd.yaml")
    },
    Template {
        condition: Some("and (has \"eventing\" .Values.components) (ne .Release.Namespace \"kyma-system\")"),
        replacements: &[("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n")],
        ..template("eventing/namespace.yaml", "eventing-namespace.yaml")
    },
    Template { condition: EVENTING, ..template("eventing/rbac.yaml", "eventing-rbac.yaml") },
    Template {
        condition: WITH_JOURNAL,
        replacements: &[KEPT_EVENTS, METADATA_OF_EVENTING],
        ..template("eventing/deployment.yaml", "eventing-deployment.yaml")
    },
    Template { condition: WITH_JOURNAL, ..template("eventing/network-policy.yaml", "eventing-network-policy.yaml") },
    Template {
        condition: ON_NATS,
        replacements: &[
            METADATA_OF_PUBLISHER,
            METADATA_OF_DISPATCHER,
            (
                "spec:\n  replicas: 2\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: mainstay-eventing-publisher\n",
                "spec:\n  replicas: {{ .Values.nats.publishers }}\n  selector:\n    matchLabels:\n      \
                 app.kubernetes.io/name: mainstay-eventing-publisher\n",
            ),
            (
                "spec:\n  replicas: 2\n  selector:\n    matchLabels:\n      app.kubernetes.io/name: mainstay-eventing-dispatcher\n",
                "spec:\n  replicas: {{ .Values.nats.dispatchers }}\n  selector:\n    matchLabels:\n      \
                 app.kubernetes.io/name: mainstay-eventing-dispatcher\n",
            ),
            SHARE_ON_NATS,
            REPLICAS_ON_NATS,
            URL_OF_NATS,
            LOGIN_OF_NATS,
            (
                "          volumeMounts:\n            - name: credentials\n",
                "{{- if include \"mainstay.natsSecret\" . }}\n          volumeMounts:\n            - name: credentials\n",
            ),
            (
                "secretName: nats\n            defaultMode: 288\n",
                "secretName: {{ include \"mainstay.natsSecret\" . | quote }}\n            defaultMode: 288\n{{- include \"mainstay.natsItems\" . }}\n{{- end }}\n",
            ),
        ],
        ..template("eventing/nats.yaml", "eventing-nats.yaml")
    },
    Template {
        condition: Some("and (include \"mainstay.onNats\" .) .Values.nats.drainJournal"),
        replacements: &[
            KEPT_EVENTS,
            METADATA_OF_EVENTING,
            SHARE_ON_NATS,
            REPLICAS_ON_NATS,
            ("--nats-url=tls://nats:4222\n", "--nats-url={{ include \"mainstay.natsURL\" . }}\n"),
            (
                "            - --nats-credentials=/etc/nats\n",
                "{{- if include \"mainstay.natsSecret\" . }}\n            - --nats-credentials=/etc/nats\n{{- end }}\n",
            ),
            (
                "            - name: credentials\n              mountPath: /etc/nats\n              readOnly: true\n",
                "{{- if include \"mainstay.natsSecret\" . }}\n            - name: credentials\n              mountPath: /etc/nats\n              \
                 readOnly: true\n{{- end }}\n",
            ),
            (
                "        - name: credentials\n          secret:\n            secretName: nats\n            defaultMode: 288\n",
                "{{- if include \"mainstay.natsSecret\" . }}\n        - name: credentials\n          secret:\n            secretName: \
                 {{ include \"mainstay.natsSecret\" . | quote }}\n            defaultMode: 288\n{{- include \"mainstay.natsItems\" . \
                 }}\n{{- end }}\n",
            ),
        ],
        ..template("eventing/drain.yaml", "eventing-drain.yaml")
    },
    Template {
        condition: Some("and (include \"mainstay.onNats\" .) .Values.nats.server"),
        replacements: &[
            METADATA_OF_NATS,
            ("  replicas: 3\n  serviceName:", "  replicas: {{ .Values.nats.replicas }}\n  serviceName:"),
            (
                "sync_interval: \"2m\"\n",
                "sync_interval: {{ ternary \"\\\"2m\\\"\" \"always\" (gt (int .Values.nats.replicas) 1) }}\n",
            ),
            ("    cluster {\n", "{{- if gt (int .Values.nats.replicas) 1 }}\n    cluster {\n"),
            (
                "    }\n---\napiVersion: apps/v1\nkind: StatefulSet\n",
                "    }\n{{- end }}\n---\napiVersion: apps/v1\nkind: StatefulSet\n",
            ),
            (
                "          image: docker.io/library/nats:",
                "          image: {{ .Values.nats.image | default \"docker.io/library/nats:",
            ),
            (
                "\n          command:\n            - nats-server\n",
                "\" | quote }}\n          command:\n            - nats-server\n",
            ),
        ],
        ..template("eventing/nats-server.yaml", "eventing-nats-server.yaml")
    },
    Template {
        condition: Some("has \"console\" .Values.components"),
        replacements: &[
            METADATA_OF_CONSOLE,
            (
                "            - --log-format=json\n          env:\n",
                "            - --log-format=json\n{{- range .Values.console.urls }}\n            - --url={{ . }}\n{{- end }}\n{{- with \
                 .Values.console.clusterName }}\n            - {{ printf \"--cluster-name=%s\" . | quote }}\n{{- end }}\n{{- if ne \
                 .Values.console.signIn \"form\" }}\n            - --sign-in={{ .Values.console.signIn }}\n{{- end }}\n{{- if eq \
                 .Values.console.signIn \"oidc\" }}\n            - {{ printf \"--oidc-issuer=%s\" .Values.console.oidc.issuer | quote }}\n            - \
                 {{ printf \"--oidc-client-id=%s\" .Values.console.oidc.clientID | quote }}\n{{- range .Values.console.oidc.scopes }}\n            - {{ \
                 printf \"--oidc-scope=%s\" . | quote }}\n{{- end }}\n{{- if .Values.console.oidc.secret }}\n            - \
                 --oidc-credentials=/etc/oidc\n{{- end }}\n{{- end }}\n          env:\n",
            ),
            (
                "              mountPath: /etc/cluster\n              readOnly: true\n",
                "              mountPath: /etc/cluster\n              readOnly: true\n{{- if and (eq .Values.console.signIn \"oidc\") \
                 .Values.console.oidc.secret }}\n            - name: oidc\n              mountPath: /etc/oidc\n              readOnly: \
                 true\n{{- end }}\n",
            ),
            (
                "            name: kube-root-ca.crt\n",
                "            name: kube-root-ca.crt\n{{- if and (eq .Values.console.signIn \"oidc\") .Values.console.oidc.secret }}\n        - \
                 name: oidc\n          secret:\n            secretName: {{ .Values.console.oidc.secret | quote }}\n            defaultMode: \
                 288\n{{- end }}\n",
            ),
        ],
        ..template("console/deployment.yaml", "console.yaml")
    },
    Template { condition: Some(".Values.v1alpha2"), ..template("v1alpha2/rbac.yaml", "v1alpha2.yaml") },
    Template {
        replacements: &[
            (
                "          # Build it from this repository, push it to your registry, and name it here or in a \
                 kustomization's `images`.\n",
                "",
            ),
            METADATA,
            (
                "\nspec:\n  replicas: 1\n",
                "\nspec:\n  replicas: {{ max (int .Values.replicas) (int .Values.shards) }}\n",
            ),
            (
                "      serviceAccountName: mainstay\n",
                "{{- include \"mainstay.agentPod\" . }}\n      serviceAccountName: mainstay\n",
            ),
            (
                "            # The same image: builds of Functions run `mainstay build` in it.\n            - name: \
                 MAINSTAY_BUILDER_IMAGE\n              value: {{ .Values.image | quote }}\n",
                "{{- if include \"mainstay.has\" (list . \"functions\") }}\n            # The same image: builds of Functions run \
                 `mainstay build` in it.\n            - name: MAINSTAY_BUILDER_IMAGE\n              value: \
                 {{ .Values.image | quote }}\n{{- end }}\n{{- include \"mainstay.environment\" . }}\n",
            ),
            (
                "            - --log-format=json\n          env:\n",
                "            - --log-format=json\n{{- include \"mainstay.arguments\" . }}\n          env:\n",
            ),
        ],
        ..template("deployment.yaml", "deployment.yaml")
    },
    Template {
        condition: Some("eq (include \"mainstay.registry\" .) \"internal\""),
        replacements: &[
            ("  annotations:\n", "  annotations:\n    helm.sh/resource-policy: keep\n"),
            (
                "    app.kubernetes.io/name: mainstay\nspec:\n",
                "    app.kubernetes.io/name: mainstay\n  annotations:\n    helm.sh/resource-policy: keep\nspec:\n",
            ),
            METADATA_OF_REGISTRY,
            (
                "  ingress:\n    - ports:\n        - port: registry\n          protocol: TCP\n",
                "  ingress:\n    - ports:\n        - port: registry\n          protocol: TCP\n{{- include \
                 \"mainstay.registryClients\" . }}\n",
            ),
        ],
        ..template("registry/registry.yaml", "registry.yaml")
    },
    Template {
        condition: Some(".Values.crds"),
        replacements: &[
            ("\nmetadata:\n", "\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n"),
            ("    served: false\n", "    served: {{ .Values.v1alpha2 }}\n"),
            (
                FUNCTIONS_BEGIN,
                "{{- if include \"mainstay.has\" (list . \"functions\") }}\n---\napiVersion: apiextensions.k8s.io/v1\nkind: \
                 CustomResourceDefinition\nmetadata:\n  annotations:\n    helm.sh/resource-policy: keep\n  name: \
                 functions.serverless.kyma-project.io\n",
            ),
            (
                "spec:\n  group: serverless.kyma-project.io\n  names:\n    kind: Function\n",
                "spec:\n{{- include \"mainstay.conversion\" . }}\n  group: serverless.kyma-project.io\n  names:\n    \
                 kind: Function\n",
            ),
        ],
        ..template("crds.yaml", "crds.yaml")
    },
];

/// The head of the Functions CRD, which is the last one, after the keep annotation was added.
const FUNCTIONS_BEGIN: &str = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  annotations:\n    \
                               helm.sh/resource-policy: keep\n  name: functions.serverless.kyma-project.io\n";

/// Adds a condition around each document with the label of a component.
fn with_conditions(text: &str) -> String {
    let mut documents = Vec::new();
    for document in text.split_inclusive("---\n") {
        let label = document.split_once("    mainstay.dev/component: ").map(|(_, rest)| rest.lines().next().unwrap());
        let condition = label.map(|label| format!("{{{{- if include \"mainstay.has\" (list . \"{label}\") }}}}\n"));
        documents.push(match (condition, document.strip_suffix("---\n")) {
            (None, _) => document.to_owned(),
            // The separator remains before the next document.
            (Some(condition), Some(body)) => format!("{condition}{body}{{{{- end }}}}\n---\n"),
            (Some(condition), None) => format!("{condition}{document}{{{{- end }}}}\n"),
        });
    }
    documents.concat()
}

/// Adds the choices for pods and containers: scheduling, pull policy, and the resources of each container.
fn with_choices(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let (mut container, mut is_resources) = ("", false);
    for line in text.lines() {
        container = line.strip_prefix("        - name: ").unwrap_or(container);
        is_resources &= line.starts_with("            ");
        if is_resources {
            continue;
        }
        is_resources = line == "          resources:";
        lines.push(if is_resources && container == "mainstay" {
            "          resources: {{- include \"mainstay.agentResources\" . | nindent 12 }}".to_owned()
        } else if is_resources {
            format!(
                "          resources: {{{{- default (dict) .Values.resources.{container} | toYaml | nindent 12 }}}}"
            )
        } else {
            line.to_owned()
        });
        if line.starts_with("          image: ") {
            lines.push("{{- include \"mainstay.imagePullPolicy\" . }}".to_owned());
        }
        if line == "    spec:" {
            lines.push("{{- include \"mainstay.pod\" . }}".to_owned());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn templates_are_generated_from_the_manifests() {
    let manifests = Path::new(CHART).parent().unwrap();
    for Template { manifest, name, condition, replacements } in TEMPLATES {
        // Not read from the file, because another test may rewrite it concurrently.
        let mut text = match manifest {
            "crds.yaml" => {
                printed(&mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay")).arg("crd").output().unwrap())
            }
            _ => fs::read_to_string(manifests.join(manifest)).unwrap(),
        };
        for (from, to) in EVERYWHERE {
            text = text.replace(from, to);
        }
        text = with_conditions(&text);
        for (from, to) in replacements {
            assert!(text.contains(from), "manifests/{manifest} has no {from:?} any more");
            text = text.replace(from, to);
        }
        if text.contains("\nkind: Deployment\n") || text.contains("\nkind: StatefulSet\n") {
            text = with_choices(&text);
        }
        if manifest == "crds.yaml" {
            // Functions is the last CRD.
            text.push_str("{{- end }}\n");
        }
        if let Some(condition) = condition {
            text = format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n");
        }
        let header = format!(
            "{{{{- /* Generated from manifests/{manifest}; `UPDATE_GOLDEN=1 cargo test chart` rewrites it. */}}}}\n"
        );
        check_golden(&format!("../../manifests/chart/templates/{name}"), &format!("{header}{text}"));
    }
    check_golden("../../manifests/chart/files/known_hosts.txt", mainstay_git::PUBLISHED);
}

/// Waits until the agent has generated all keys, certificates and logins, and returns them.
async fn generated(shell: &Shell) -> String {
    let mut all = String::new();
    for (what, path) in [
        ("secret shop-git", ".data"),
        ("secret mainstay-admission", ".data"),
        ("secret serverless-docker-registry", ".data"),
        ("crd functions.serverless.kyma-project.io", ".spec.conversion.webhook.clientConfig.caBundle"),
        ("mutatingwebhookconfiguration mainstay-admission", ".webhooks[*].clientConfig.caBundle"),
        ("validatingwebhookconfiguration mainstay-admission", ".webhooks[*].clientConfig.caBundle"),
    ] {
        let get = format!("kubectl get {what} -n {HOME} -o jsonpath='{{{path}}}'");
        all.push_str(&shell.until(&format!("{get} | grep .")).await.out);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_keeps_generated_secrets_and_an_uninstall_keeps_what_others_need() {
    let shell = Shell::embedded(HOME).await;
    let install = format!("helm install mainstay {CHART} -n {HOME} --create-namespace --set {VALUES}");
    let notes = shell.run(&install).await.out;
    for expected in [
        format!("\n  mainstay identity -n {HOME}\n"),
        "\nWARNING: git.knownHosts has no key of git.example.com, ".to_owned(),
        concat!("\nWARNING: the image mainstay:", env!("CARGO_PKG_VERSION"), " is in no registry").to_owned(),
    ] {
        assert!(notes.contains(&expected), "{notes}");
    }
    let agent = shell.agent("agent").await;
    let made = generated(&shell).await;
    shell.until(&format!("kubectl get gitsync shop -n {HOME}")).await;

    let upgrade = format!("helm upgrade mainstay {CHART} -n {HOME} --reset-then-reuse-values --set git.interval=90s");
    shell.run(&upgrade).await;
    let interval = format!("kubectl get gitsync shop -n {HOME} -o jsonpath='{{.spec.interval}}' | grep -x 1m30s");
    shell.until(&interval).await;
    assert_eq!(generated(&shell).await, made);

    drop(agent);
    shell.run(&format!("helm uninstall mainstay -n {HOME}")).await;
    assert_eq!(shell.run(&format!("helm list -q -n {HOME}")).await.out, "");
    shell.run(&format!("! kubectl get deployment mainstay -n {HOME}")).await;
    shell.run(&format!("kubectl get gitsync/shop gitrepository/shop secret/shop-git -n {HOME}")).await;
    let registry = format!("kubectl get deployment,service,secret,pvc serverless-docker-registry -n {HOME}");
    shell.run(&registry).await;
    shell.run("mainstay crd | kubectl get -f -").await;

    // A release of the same name adopts them again.
    shell.run(&install).await;
    let key = format!("kubectl get secret shop-git -n {HOME} -o jsonpath='{{.data}}'");
    assert!(made.starts_with(&shell.run(&key).await.out));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_takes_over_what_install_has_made() {
    let shell = Shell::embedded(HOME).await;
    let flags = format!("-n {HOME} --git-url git@git.example.com:team/shop.git --v1alpha2");
    shell.run(&format!("mainstay install {flags} | kubectl apply -f -")).await;
    let _agent = shell.agent("agent").await;
    let made = generated(&shell).await;
    let install = format!("helm install mainstay {CHART} -n {HOME} --set {VALUES}");
    let refused = shell.try_run(&install).await;
    assert!(
        refused.code != 0 && refused.err.contains("cannot be imported into the current release"),
        "{}",
        refused.err
    );
    shell.run(&format!("{install} --take-ownership")).await;
    assert_eq!(generated(&shell).await, made);
    let pods = format!("kubectl get replicasets -n {HOME} -o name | wc -l");
    assert_eq!(shell.run(&pods).await.out.trim(), "2", "no pod is replaced");
}
