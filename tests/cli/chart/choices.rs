//! The choices of an installation: each is a flag of `mainstay install` and a value of the chart, with the same objects.

use super::*;

/// The repository for choices that name none.
const URL: &str = "https://git.example.com/team/shop";
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
