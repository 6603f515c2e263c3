//! The children of Functions: their fields, that a cluster accepts them, and that their pods are restricted.

use devcluster::{Action, Call, Caller, Cluster as EmbeddedCluster, Options, verbs::patch::Form};
use mainstay_api::function::{FunctionSpec, FunctionStatus};
use mainstay_api::git_repository::AuthType;
use mainstay_api::{Function, names};
use mainstay_function::children::{autoscaler, build_job, config_map, deployment, job, name, service};
use mainstay_function::registry::Transport;
use mainstay_function::tag::BuildCause;
use mainstay_function::{BaseImage, Builder, Credentials, ResolvedFunction, Settings, resolve, text};
use serde_json::{Value, json};

use mainstay_testkit::golden::check_golden;
use mainstay_testkit::pod_security::{broken_controls, containers};

const TAG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const DIGEST: &str = "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
const UID: &str = "11111111-2222-3333-4444-555555555555";

/// A Function, its settings, and the source of its build.
struct Case {
    name: &'static str,
    spec: &'static str,
    labels: &'static [(&'static str, &'static str)],
    base: &'static str,
    origin: job::Origin<'static>,
    previous: Option<job::Previous<'static>>,
    accounts: bool,
}

const GIT: job::Origin<'static> = job::Origin::Git {
    url: "https://git.example.com/team/functions.git",
    commit: "1111111111111111111111111111111111111111",
    tree: "2222222222222222222222222222222222222222",
    auth: None,
    proxy: None,
    known_hosts: None,
    submodules: false,
    lfs: false,
};

const CASES: [Case; 4] = [
    Case {
        name: "inline-nodejs",
        spec: "source: \"module.exports = { main: () => 'hello' }\\n\"\nruntime: nodejs22\nlabels: {app: hello}\n\
               annotations: {team: a}\nsecretMounts: [{secretName: keys, mountPath: /keys}]",
        labels: &[("team", "a")],
        base: "scratch",
        origin: job::Origin::ConfigMap("hello-x"),
        previous: None,
        accounts: false,
    },
    Case {
        name: "inline-python",
        spec: "source: \"def main(event, context):\\n    return 'hello'\\n\"\nruntime: python38\ndeps: \"requests==2.25.1\\n\"\n\
               minReplicas: 2\nmaxReplicas: 5\nenv: [{name: KEY, valueFrom: {secretKeyRef: {name: keys, key: one}}}, \
               {name: PLAIN, value: '$(KEY)'}]",
        labels: &[],
        base: "registry.example.com/python@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        origin: job::Origin::ConfigMap("hello-x"),
        previous: None,
        accounts: true,
    },
    Case {
        name: "git-nodejs",
        spec: "type: git\nsource: functions\nbaseDir: /hello $(HOME)\nreference: main\nruntime: nodejs22",
        labels: &[],
        base: "registry.example.com/node@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
        origin: job::Origin::Git {
            url: "https://git.example.com/team/functions.git",
            commit: "1111111111111111111111111111111111111111",
            tree: "2222222222222222222222222222222222222222",
            auth: Some((AuthType::Basic, "git-secret")),
            proxy: None,
            known_hosts: None,
            submodules: false,
            lfs: false,
        },
        previous: Some(job::Previous {
            image: "registry.push:5000/default-hello@sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc",
            dependencies: "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd",
        }),
        accounts: false,
    },
    Case {
        name: "git-python",
        spec: "type: git\nsource: functions\nbaseDir: /\nreference: v1.0\nruntime: python312",
        labels: &[],
        base: "oci:/images/python",
        origin: GIT,
        previous: None,
        accounts: false,
    },
];

fn settings(case: &Case) -> Settings {
    Settings {
        base_images: [("*".to_owned(), BaseImage::parse(case.base).unwrap())].into(),
        builder_image: "registry.example.com/mainstay:1".into(),
        service_account: case.accounts.then(|| "serverless-function".to_owned()),
        build_service_account: case.accounts.then(|| "serverless-build".to_owned()),
        ..Settings::default()
    }
}

fn resolved(case: &Case) -> ResolvedFunction {
    let spec: FunctionSpec = serde_yaml::from_str(case.spec).unwrap();
    let mut function = Function::new("hello", spec);
    function.metadata.namespace = Some("default".into());
    function.metadata.uid = Some(UID.into());
    function.metadata.labels = Some(case.labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect());
    function.status = Some(FunctionStatus::default());
    resolve(&function, &settings(case), &Credentials::default())
        .unwrap_or_else(|all| panic!("{}: {}", case.name, text(&all)))
}

fn build(case: &Case) -> job::Build<'_> {
    job::Build {
        tag: TAG,
        attempt: 1,
        causes: &[BuildCause::Source, BuildCause::Deps],
        repository: "registry.push:5000/default-hello",
        registry_secret: "serverless-registry-config-default",
        transport: Transport::OwnAuthority,
        from: case.origin,
        previous: case.previous,
    }
}

/// Returns the command of the container `install` of the inline Function with a package from pip.
pub(crate) fn install_command() -> Vec<String> {
    let job = build_job::build(&resolved(&CASES[1]), &build(&CASES[1]), &settings(&CASES[1]));
    let command = job["spec"]["template"]["spec"]["initContainers"][0]["command"].as_array().unwrap();
    // The API expands variables in a command, and `$$` escapes them.
    command.iter().map(|word| word.as_str().unwrap().replace("$$(", "$(")).collect()
}

/// Returns all children in the order of their writes.
fn children(case: &Case) -> Vec<Value> {
    let (function, settings, build) = (resolved(case), settings(case), build(case));
    let own = name(&function);
    let image = format!("registry.pull/default-hello:{TAG}@{DIGEST}");
    let mut all = Vec::new();
    all.extend(config_map::build(&function, &own));
    all.push(build_job::build(&function, &build, &settings));
    all.push(deployment::build(&function, &own, &image, "serverless-registry-config-default", &settings));
    all.push(service::build(&function));
    all.extend(autoscaler::build(&function, &own, &own, settings.target_cpu_percentage));
    all
}

fn child<'a>(all: &'a [Value], kind: &str) -> &'a Value {
    all.iter().find(|child| child["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// Returns metadata and specification of the children's pods.
fn pods(all: &[Value]) -> Vec<(Value, Value)> {
    let templates = all.iter().filter(|child| !child["spec"]["template"].is_null());
    templates.map(|child| &child["spec"]["template"]).map(|t| (t["metadata"].clone(), t["spec"].clone())).collect()
}

#[test]
fn children_look_as_they_should() {
    for case in &CASES {
        let documents: Vec<_> = children(case).iter().map(|child| serde_yaml::to_string(child).unwrap()).collect();
        check_golden(&format!("function/{}.yaml", case.name), &documents.join("---\n"));
    }
}

/// Returns the Job for Kaniko.
fn built_by_kaniko(case: &Case, transport: Transport) -> Value {
    let settings = Settings {
        builder: Builder::Kaniko,
        executor_image: Some("ghcr.io/osscontainertools/kaniko:v1.28.5".into()),
        ..settings(case)
    };
    let build = job::Build { transport, ..build(case) };
    build_job::build(&resolved(case), &build, &settings)
}

#[test]
fn jobs_of_kaniko_look_as_they_should() {
    for (case, transport) in [(&CASES[1], Transport::PlainHttp), (&CASES[2], Transport::OwnAuthority)] {
        let job = built_by_kaniko(case, transport);
        check_golden(&format!("function/kaniko-{}.yaml", case.name), &serde_yaml::to_string(&job).unwrap());
        let (metadata, spec) = pods(&[job]).pop().unwrap();
        let baseline = ["run as non-root user", "run as non-root", "capabilities"];
        assert!(broken_controls(&metadata, &spec).iter().all(|control| baseline.contains(&control.as_str())));
        let restricted = json!({"containers": spec["initContainers"], "securityContext": spec["securityContext"]});
        assert_eq!(broken_controls(&metadata, &restricted), Vec::<String>::new(), "all but the executor");
    }
}

#[test]
fn only_root_may_read_the_login_beside_kaniko_and_no_registry_is_trusted_for_nothing() {
    let job = built_by_kaniko(&CASES[1], Transport::PublicAuthority);
    let pod = &job["spec"]["template"]["spec"];
    assert!(pod["securityContext"]["fsGroup"].is_null(), "it would let others read what is of mode 0400");
    let login = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "credentials").unwrap();
    assert_eq!(login["secret"]["defaultMode"], 0o400);
    for container in containers(pod) {
        let mounts = container["volumeMounts"].as_array().unwrap();
        let has_login = mounts.iter().any(|mount| mount["name"] == "credentials");
        assert_eq!(has_login, container["name"] == "executor");
        let writes = mounts.iter().any(|mount| mount["name"] == "workspace" && mount["readOnly"] != true);
        assert_eq!(writes, container["name"] == "fetch");
    }
    let args = pod["containers"][0]["args"].to_string();
    for trust in ["insecure", "skip-tls", "certificate"] {
        assert!(!args.contains(trust), "{args}");
    }
}

#[test]
fn equal_functions_have_equal_children() {
    for case in &CASES {
        assert_eq!(children(case), children(case), "{}", case.name);
    }
}

#[test]
fn every_child_is_owned_and_found_by_its_labels() {
    for case in &CASES {
        for child in children(case) {
            let metadata = &child["metadata"];
            assert_eq!(metadata["ownerReferences"][0]["uid"], UID);
            assert_eq!(metadata["ownerReferences"][0]["controller"], true);
            assert_eq!(metadata["labels"][names::FUNCTION_NAME], "hello");
            assert_eq!(metadata["labels"][names::MANAGED_BY], "function-controller");
            assert_eq!(metadata["labels"][names::FUNCTION_UID], UID);
            assert!(metadata["labels"][names::RESOURCE].is_null());
            let name = metadata["name"].as_str().unwrap();
            assert!(name.len() <= 63, "{name}");
        }
    }
}

#[test]
fn the_service_finds_the_pods_that_serve_and_never_those_that_build() {
    for case in &CASES {
        let all = children(case);
        let selector = child(&all, "Service")["spec"]["selector"].as_object().unwrap();
        let finds = |labels: &Value| selector.iter().all(|(key, value)| &labels[key] == value);
        assert!(finds(&child(&all, "Deployment")["spec"]["template"]["metadata"]["labels"]));
        assert!(!finds(&child(&all, "Job")["spec"]["template"]["metadata"]["labels"]));
        let port = &child(&all, "Service")["spec"]["ports"][0]["targetPort"];
        let container = &child(&all, "Deployment")["spec"]["template"]["spec"]["containers"][0];
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            assert_eq!(&container[probe]["httpGet"]["port"], port);
        }
        let env = container["env"].as_array().unwrap();
        assert!(env.iter().any(|v| v["name"] == "FUNC_PORT" && v["value"].as_str() == Some(&*port.to_string())));
    }
}

#[test]
fn the_number_of_pods_is_ours_only_while_it_is_fixed() {
    for case in &CASES {
        let all = children(case);
        let scaled = all.iter().any(|child| child["kind"] == "HorizontalPodAutoscaler");
        assert_eq!(scaled, child(&all, "Deployment")["spec"]["replicas"].is_null(), "{}", case.name);
    }
}

#[test]
fn credentials_are_mounted_only_where_no_third_party_code_runs() {
    for case in &CASES {
        let all = children(case);
        let pod = &child(&all, "Job")["spec"]["template"]["spec"];
        let secret_of = |volume: &Value| {
            let all = pod["volumes"].as_array().unwrap();
            all.iter().find(|known| known["name"] == *volume).unwrap()["secret"]["secretName"]
                .as_str()
                .map(str::to_owned)
        };
        let mut seen = Vec::new();
        for container in containers(pod) {
            let mounts = container["volumeMounts"].as_array().unwrap().iter();
            let secrets: Vec<_> = mounts.filter_map(|mount| secret_of(&mount["name"])).collect();
            assert!(container["envFrom"].is_null());
            seen.push((container["name"].as_str().unwrap(), secrets));
        }
        let git: Vec<String> = if case.name == "git-nodejs" { vec!["git-secret".into()] } else { vec![] };
        let push = ("push", vec!["serverless-registry-config-default".into()]);
        let install = ("install", vec!["serverless-package-registry-config".into()]);
        let expected = match case.name {
            // This Function has neither an external source nor dependencies.
            "inline-nodejs" => vec![("install", vec![]), push],
            "inline-python" => vec![install, push],
            _ => vec![("fetch", git), install, push],
        };
        assert_eq!(seen, expected, "{}", case.name);
        assert_eq!(pod["automountServiceAccountToken"], false);
    }
}

#[test]
fn a_value_in_an_argument_is_neither_an_option_nor_a_variable() {
    let all = children(&CASES[2]);
    let args = all[0]["spec"]["template"]["spec"]["initContainers"][0]["args"].as_array().unwrap();
    assert!(args.iter().any(|arg| arg == "--base-dir=/hello $$(HOME)"), "{args:?}");
    for container in containers(&all[0]["spec"]["template"]["spec"]) {
        for arg in container["args"].as_array().into_iter().flatten() {
            let arg = arg.as_str().unwrap();
            assert!(arg.starts_with("--") && arg.contains('=') || arg == "--share-base", "{arg}");
        }
    }
}

#[test]
fn an_inline_function_with_dependencies_fetches_only_if_some_may_be_reused() {
    let case = &CASES[1];
    let names = |previous| {
        let function = resolved(case);
        let build = job::Build { previous, ..build(case) };
        let job = build_job::build(&function, &build, &settings(case));
        let pod = job["spec"]["template"]["spec"].clone();
        let names: Vec<_> = containers(&pod).map(|container| container["name"].as_str().unwrap().to_owned()).collect();
        (pod, names)
    };
    let (pod, first) = names(None);
    assert_eq!(first, ["install", "push"]);
    // Code from packages can write only the directory of the dependencies.
    let writable: Vec<_> = pod["initContainers"][0]["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|mount| mount["readOnly"] != true)
        .map(|mount| (mount["mountPath"].as_str().unwrap(), mount["subPath"].as_str()))
        .collect();
    assert_eq!(writable, [("/workspace/deps", Some("deps")), ("/tmp", None)]);
    assert_eq!(names(CASES[2].previous).1, ["fetch", "install", "push"]);
}

#[test]
fn every_pod_keeps_the_restricted_standard_and_a_read_only_root() {
    for case in &CASES {
        for (metadata, spec) in pods(&children(case)) {
            assert_eq!(broken_controls(&metadata, &spec), Vec::<String>::new(), "{}", case.name);
            for container in containers(&spec) {
                assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
                let tmp =
                    container["volumeMounts"].as_array().unwrap().iter().find(|m| m["mountPath"] == "/tmp").unwrap();
                let volumes = spec["volumes"].as_array().unwrap();
                let volume = volumes.iter().find(|volume| volume["name"] == tmp["name"]).unwrap();
                assert!(volume["emptyDir"]["sizeLimit"].is_string());
            }
        }
    }
}

#[test]
fn the_rules_of_the_standard_find_every_pod_that_breaks_them() {
    const CONTAINER: &str = "/containers/0";
    let all = children(&CASES[0]);
    let (metadata, spec) = pods(&all).pop().unwrap();
    for (path, value, control) in [
        ("/hostNetwork", json!(true), "host namespaces"),
        ("/hostPID", json!(true), "host namespaces"),
        ("/hostIPC", json!(true), "host namespaces"),
        ("/volumes/0", json!({ "name": "tmp-dir", "hostPath": { "path": "/" } }), "volume types"),
        ("/volumes/0", json!({ "name": "tmp-dir", "nfs": { "server": "s", "path": "/" } }), "volume types"),
        ("/securityContext/sysctls", json!([{ "name": "kernel.msgmax", "value": "1" }]), "sysctls"),
        ("/securityContext/runAsUser", json!(0), "run as non-root user"),
        ("/securityContext/runAsNonRoot", json!(false), "run as non-root"),
        ("/securityContext/seccompProfile", json!(null), "seccomp"),
        ("/securityContext/seccompProfile/type", json!("Unconfined"), "seccomp"),
        ("/securityContext/seLinuxOptions", json!({ "type": "spc_t" }), "SELinux"),
        ("/securityContext/seLinuxOptions", json!({ "user": "root" }), "SELinux"),
        ("/securityContext/appArmorProfile", json!({ "type": "Unconfined" }), "AppArmor"),
        ("/securityContext/windowsOptions", json!({ "hostProcess": true }), "host process"),
        ("/containers/0/securityContext/privileged", json!(true), "privileged"),
        ("/containers/0/securityContext/allowPrivilegeEscalation", json!(null), "privilege escalation"),
        ("/containers/0/securityContext/capabilities/drop", json!(["NET_RAW"]), "capabilities"),
        ("/containers/0/securityContext/capabilities/add", json!(["SYS_ADMIN"]), "capabilities"),
        ("/containers/0/securityContext/runAsUser", json!(0), "run as non-root user"),
        ("/containers/0/securityContext/runAsNonRoot", json!(false), "run as non-root"),
        ("/containers/0/securityContext/seccompProfile", json!({ "type": "Unconfined" }), "seccomp"),
        ("/containers/0/securityContext/procMount", json!("Unmasked"), "proc mount"),
        ("/containers/0/ports", json!([{ "containerPort": 8080, "hostPort": 80 }]), "host ports"),
        ("/containers/0/livenessProbe/httpGet/host", json!("10.0.0.1"), "probe hosts"),
        ("/ephemeralContainers", json!([{ "name": "x", "image": "x" }]), "capabilities"),
        ("/initContainers", json!([{ "name": "x", "image": "x" }]), "privilege escalation"),
    ] {
        assert!(spec.pointer(CONTAINER).is_some());
        let mut worse = spec.clone();
        let (parent, field) = path.rsplit_once('/').unwrap();
        let place = worse.pointer_mut(parent).unwrap();
        match place.as_array_mut() {
            Some(list) => list[field.parse::<usize>().unwrap()] = value.clone(),
            None => place[field] = value.clone(),
        }
        assert!(broken_controls(&metadata, &worse).iter().any(|one| one == control), "{path} = {value}: {control}");
    }
    let annotated =
        json!({ "annotations": { "container.apparmor.security.beta.kubernetes.io/function": "unconfined" } });
    assert_eq!(broken_controls(&annotated, &spec), ["AppArmor"]);
}

#[test]
fn a_cluster_takes_every_child_as_it_is_and_changes_nothing_when_it_comes_again() {
    for case in &CASES {
        let server = EmbeddedCluster::new(Options::default());
        for child in children(case) {
            let (version, name) = (child["apiVersion"].as_str().unwrap(), child["metadata"]["name"].as_str().unwrap());
            let resource = format!("{}s", child["kind"].as_str().unwrap().to_lowercase());
            let apply = || {
                let form = Form::Apply;
                let call = Call::new(version, &resource, "default", name, Action::Patch(form, child.clone()));
                server
                    .call(&Caller::new("mainstay"), call)
                    .unwrap_or_else(|error| panic!("{resource} {name}: {error:?}"))
            };
            let first = apply();
            assert_eq!(
                apply()["metadata"]["resourceVersion"],
                first["metadata"]["resourceVersion"],
                "{resource} {name}"
            );
            let body = serde_json::from_value::<Value>(child.clone()).unwrap();
            assert_eq!(lost(&body, &first, String::new()), Vec::<String>::new(), "{resource} {name}");
        }
    }
}

/// Returns the paths of sent fields that are missing.
fn lost(sent: &Value, kept: &Value, path: String) -> Vec<String> {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(_)) => {
            sent.iter().flat_map(|(key, value)| lost(value, &kept[key], format!("{path}/{key}"))).collect()
        }
        (Value::Array(sent), Value::Array(all)) if sent.len() == all.len() => {
            sent.iter().enumerate().flat_map(|(at, value)| lost(value, &all[at], format!("{path}/{at}"))).collect()
        }
        _ if sent == kept => Vec::new(),
        _ => vec![format!("{path}: {sent} became {kept}")],
    }
}
