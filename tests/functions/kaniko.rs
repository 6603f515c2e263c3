//! Kaniko as the builder: its context, its Jobs, and refusals by Pod Security. Kaniko itself is simulated.

use std::{collections::BTreeMap, time::Duration};

use devcluster::{Action, Call, Caller, fault_injection::Fault, fault_injection::Simulation, verbs::patch::Form};
use mainstay_api::build::FetchReport;
use mainstay_function::{BaseImage, Builder};
use serde_json::{Value, json};

use mainstay_testkit::{
    build::{Job, Origin},
    functions::{JOBS, inline},
    server::TestServer,
    world::{NAMESPACE, World},
};

const EXECUTOR: &str = "ghcr.io/osscontainertools/kaniko:v1.28.5";
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn base() -> String {
    format!("registry.example.org/node@sha256:{}", "a".repeat(64))
}

/// Returns a world that builds with Kaniko, whose executor ends this way.
async fn world(exit_code: i32, message: &str) -> World {
    let mut world = World::with_functions().await;
    let base = base();
    world.functions.base_images = [("*".to_owned(), BaseImage::parse(&base).unwrap())].into();
    world.functions.builder = Builder::Kaniko;
    world.functions.executor_image = Some(EXECUTOR.into());
    world.functions.requeue = Duration::from_secs(3600);
    executor_ends(&world, exit_code, message);
    world
}

fn executor_ends(world: &World, exit_code: i32, message: &str) {
    let simulation = Simulation { exit_code, termination_message: Some(message.to_owned()), after: Duration::ZERO };
    world.server.simulate(EXECUTOR, "executor", simulation);
}

fn jobs(world: &World, function: &str) -> BTreeMap<String, String> {
    let container = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["name"].as_str().unwrap().to_owned();
    let jobs = world.children(function, JOBS);
    jobs.iter().map(|job| (job["metadata"]["name"].as_str().unwrap().to_owned(), container(job))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kaniko_builds_and_a_change_of_the_builder_builds_nothing_again() {
    let mut world = world(0, DIGEST).await;
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    assert_eq!(jobs(&world, "hello").values().collect::<Vec<_>>(), ["executor"]);
    let image = world.function_status("hello")["image"].clone();
    assert!(image.as_str().unwrap().ends_with(DIGEST), "{image}");
    world.stop().await;
    world.functions.builder = Builder::Own;
    world.start();
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["image"], image);
    assert_eq!(jobs(&world, "hello").values().collect::<Vec<_>>(), ["executor"]);
    // The default builder builds the next source.
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world
        .until_function("another image", |w| w.is_running("hello") && w.function_status("hello")["image"] != image)
        .await;
    assert_eq!(jobs(&world, "hello").values().collect::<Vec<_>>(), ["push"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cause_of_a_failure_of_kaniko_is_reported_without_credentials() {
    let log = "//r.example/:_authToken=hunter2\nerror checking push permissions: UNAUTHORIZED: authentication required";
    let mut world = world(1, log).await;
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False JobFailed").await;
    let said = world.said("hello", "BuildReady");
    assert!(said.contains("RegistryAuthorization: the registry refused the login"), "{said}");
    assert!(said.contains("executor ended with exit code 1") && !said.contains("hunter2"), "{said}");
    executor_ends(&world, 0, DIGEST);
    let secret = "serverless-registry-config-default";
    world.edit("v1", "secrets", secret, json!({"stringData": {"password": "better"}}));
    world.runs("hello").await;
}

/// Sets the Pod Security level of the tests' namespace; `None` removes it. The embedded cluster does not implement it,
/// so a fault simulates it there.
fn enforce(world: &World, level: Option<&str>) {
    let TestServer::Embedded(cluster) = &world.server else {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        let action = Action::Patch(Form::Merge, json!({"metadata": {"labels": labels}}));
        let call = Call::new("v1", "namespaces", "", NAMESPACE, action);
        world.server.call(&Caller::new("kubectl"), call).unwrap();
        return;
    };
    cluster.faults().clear_faults();
    if level == Some("restricted") {
        cluster.faults().fail_next(Fault {
            verb: "create".into(),
            resource: "pods".into(),
            namespace: NAMESPACE.into(),
            code: 403,
            reason: "Forbidden".into(),
            message: "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": runAsNonRoot != true (container \
                      \"executor\" must not set securityContext.runAsNonRoot=false), runAsUser=0 (container \"executor\" must not \
                      set runAsUser=0)"
                .into(),
            times: 10_000,
            ..Fault::default()
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_condition_names_both_remedies_when_pod_security_refuses_kaniko_and_each_heals() {
    let mut world = world(0, DIGEST).await;
    enforce(&world, Some("restricted"));
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "False ApplyFailed: Pod Security of namespace").await;
    let said = world.said("hello", "BuildReady");
    for part in [
        "needs the level baseline",
        &format!("`kubectl label --overwrite namespace {NAMESPACE} pod-security.kubernetes.io/enforce=baseline`"),
        "MAINSTAY_BUILDER=mainstay",
        "violates PodSecurity \"restricted:latest\"",
        "must not set runAsUser=0",
    ] {
        assert!(said.contains(part), "{said}");
    }
    enforce(&world, Some("baseline"));
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["builds"], 1, "it is the same attempt");
    // The other solution: the default builder, whose pods are restricted.
    enforce(&world, Some("restricted"));
    world.function("other", inline("1"));
    world.says("other", "BuildReady", "False ApplyFailed: Pod Security of namespace").await;
    world.stop().await;
    world.functions.builder = Builder::Own;
    if let TestServer::Embedded(cluster) = &world.server {
        cluster.faults().clear_faults();
    }
    world.start();
    world.runs("other").await;
    assert_eq!(jobs(&world, "other").values().collect::<Vec<_>>(), ["push"]);
    enforce(&world, None);
}

#[tokio::test]
async fn the_context_of_kaniko_installs_the_same_as_our_own_builder_and_writes_nothing_beside() {
    let origin = Origin::new(|remote| {
        remote.file("handler.js", "module.exports = { main: () => 1 };");
        remote.file("package.json", r#"{"dependencies": {"greeting": "file:./libs/greeting"}}"#);
        remote.file("libs/greeting/package.json", r#"{"name": "greeting", "version": "1.0.0"}"#);
        remote.file("libs/greeting/index.js", "module.exports = 'hello'");
    })
    .await;
    let job = Job::new();
    let mut arguments = origin.resolved("/");
    let base = base();
    arguments.extend(["--base".to_owned(), base.clone(), "--kaniko".to_owned()]);
    let FetchReport { dependencies, .. } = job.fetch("nodejs22", &arguments).await;
    let dockerfile = job.read("workspace/Dockerfile");
    assert!(dockerfile.starts_with(&format!("FROM {base}\n")), "{dockerfile}");
    let install = format!("RUN DEPENDENCIES={dependencies} MAINSTAY_DEPS=/kubeless sh /workspace/install.sh\n");
    assert!(dockerfile.contains(&install), "{dockerfile}");
    assert!(job.exists("workspace/server/server.js") && job.exists("workspace/server/node_modules/cookie"));
    let check = job.command("sh").arg(job.path("workspace/check.sh")).output().unwrap();
    assert!(check.status.success());
    let before = job.listing("workspace");
    std::fs::create_dir(job.path("kubeless")).unwrap();
    let mut command = job.command("sh");
    command.arg(job.path("workspace/install.sh")).env("MAINSTAY_DEPS", job.path("kubeless"));
    let installed = command.output().unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    assert_eq!(job.listing("workspace"), before);
    let elsewhere = job.listing("kubeless");
    assert!(!elsewhere.is_empty());
    job.install_well().await;
    assert_eq!(job.listing("workspace/deps"), elsewhere);
}

#[tokio::test]
async fn a_handler_that_cannot_be_parsed_ends_before_anything_is_built() {
    let job = Job::new();
    job.put("sources/source", "module.exports = {").put("sources/dependencies", "");
    let mut arguments = job.inline_arguments(None);
    arguments.extend(["--base".to_owned(), base(), "--kaniko".to_owned()]);
    job.fetch("nodejs22", &arguments).await;
    assert!(!job.read("workspace/Dockerfile").contains("RUN"));
    let check = job.command("sh").arg(job.path("workspace/check.sh")).output().unwrap();
    assert!(!check.status.success() && String::from_utf8_lossy(&check.stderr).contains("SyntaxError"));
}
