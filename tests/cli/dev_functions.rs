//! `mainstay dev` with Functions: builds and serves the example with the Node.js and Python of this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::Value;

use mainstay_testkit::dev::{Dev, copy, git, wait_until};

/// Deadline of the example's four builds together.
const BUILDS: Duration = Duration::from_mins(4);

/// Path of the example in a clone of this repository.
const EXAMPLE: &str = "examples/functions";

/// Copies the example into a new repository at `home` and returns its directory.
fn example(home: &Path) -> PathBuf {
    let work = home.join(EXAMPLE);
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(EXAMPLE), &work);
    git(home, &["init", "-q", "-b", "main"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "functions"]);
    work
}

fn commit(work: &Path, message: &str) {
    git(work, &["commit", "-qam", message]);
}

/// Waits until all three conditions of these Functions are true.
fn ready(dev: &Dev, names: &[&str]) {
    let end = Instant::now() + BUILDS;
    for name in names {
        for condition in ["ConfigurationReady", "BuildReady", "Running"] {
            let left = end.saturating_duration_since(Instant::now()).as_secs().max(1);
            let (wanted, timeout) = (format!("--for=condition={condition}"), format!("--timeout={left}s"));
            dev.kubectl(&["wait", &wanted, &format!("function/{name}"), &timeout]);
        }
    }
}

fn status(dev: &Dev, name: &str) -> Value {
    let shown = dev.kubectl(&["get", "function", name, "-o", "json"]);
    serde_json::from_str::<Value>(&shown).unwrap()["status"].take()
}

/// Returns the URL of a Function's Service. Without permission for port 80, the Service has a different port.
fn url(dev: &Dev, name: &str) -> String {
    let shown = dev.kubectl(&["get", "service", name, "-o", "json"]);
    let service: Value = serde_json::from_str(&shown).unwrap();
    let said = service["metadata"]["annotations"]["devcluster.dev/url"].as_str().map(str::to_owned);
    said.unwrap_or_else(|| format!("http://{}/", service["spec"]["clusterIP"].as_str().unwrap()))
}

fn get(url: &str) -> String {
    let answer = mainstay_testkit::isolated("curl").args(["-sS", "-m", "10", url]).output();
    let answer = answer.expect("curl is needed: apt-get install curl");
    assert!(answer.status.success(), "{url}: {}", String::from_utf8_lossy(&answer.stderr));
    String::from_utf8(answer.stdout).unwrap()
}

#[test]
fn builds_the_example_runs_it_and_rebuilds_only_what_a_commit_changes() {
    let home = tempfile::tempdir().unwrap();
    let work = example(home.path());
    let dev = Dev::start(home.path(), &[EXAMPLE]);
    wait_until("the Functions are there", || dev.kubectl(&["get", "functions", "-o", "name"]).lines().count() == 4);
    // The repository is applied when its Functions run.
    dev.kubectl(&["wait", "--for=condition=Ready", "gitsyncs", "--all", &format!("--timeout={}s", BUILDS.as_secs())]);
    for name in ["hello", "quote", "shout", "totals"] {
        let status = status(&dev, name);
        let conditions = status["conditions"].as_array().unwrap();
        assert!(conditions.len() == 3 && conditions.iter().all(|said| said["status"] == "True"), "{name}: {status}");
    }

    assert_eq!(get(&format!("{}?name=Ada", url(&dev, "hello"))), "Hello, Ada!\n");
    assert_eq!(
        get(&url(&dev, "quote")),
        r#"{"quote":"What is on the branch is what is in the cluster.","signed":true}"#
    );
    assert!(get(&url(&dev, "shout")).contains("NOTHING!"));
    let total: Value = serde_json::from_str(&get(&url(&dev, "totals"))).unwrap();
    assert_eq!((&total["total"], &total["currency"]), (&"0.00".into(), &"EUR".into()));
    let columns = dev.kubectl(&["get", "functions"]);
    let header: Vec<_> = columns.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "CONFIGURED", "BUILT", "RUNNING", "RUNTIME", "VERSION", "AGE", "SERVES"]);

    // A recreated Service has a new address, which is reported.
    let old = url(&dev, "hello");
    dev.kubectl(&["delete", "service", "hello"]);
    let moved = dev.event("moved");
    assert_eq!((&moved["namespace"], &moved["name"]), (&"default".into(), &"hello".into()));
    let new = moved["url"].as_str().unwrap();
    assert_ne!(new.trim_end_matches('/'), old.trim_end_matches('/'));
    assert_eq!(get(&format!("{new}/?name=Ada")), "Hello, Ada!\n");

    // Change the handler of one Function.
    let images = |name| status(&dev, name)["image"].clone();
    let before = ["hello", "quote", "shout", "totals"].map(images);
    let handler = work.join("code/quote/handler.js");
    let code = fs::read_to_string(&handler).unwrap().replace("quote: ", "motto: ");
    fs::write(&handler, code).unwrap();
    commit(&work, "a motto");
    wait_until("the new version answers", || get(&url(&dev, "quote")).starts_with(r#"{"motto""#));
    ready(&dev, &["quote"]);
    let after = ["hello", "quote", "shout", "totals"].map(images);
    assert_ne!(before[1], after[1]);
    assert_eq!([&before[0], &before[2], &before[3]], [&after[0], &after[2], &after[3]]);

    // A changed environment is rolled out without a build.
    let manifest = fs::read_to_string(work.join("shout.yaml")).unwrap();
    fs::write(
        work.join("shout.yaml"),
        manifest.replace("  source: |", "  env: [{name: LOUD, value: \"1\"}]\n  source: |"),
    )
    .unwrap();
    commit(&work, "louder");
    let env = "jsonpath={.items[0].spec.template.spec.containers[0].env[0].name}";
    let label = "serverless.kyma-project.io/function-name=shout";
    wait_until("the environment is rolled out", || {
        dev.kubectl(&["get", "deployments", "-l", label, "-o", env]) == "LOUD"
    });
    ready(&dev, &["shout"]);
    assert_eq!(images("shout"), after[2]);

    // A manual change of a child is reverted.
    let deployment = dev.kubectl(&["get", "deployments", "-l", label, "-o", "name"]);
    dev.kubectl(&["set", "env", deployment.trim(), "FUNC_RUNTIME=cobol"]);
    let runtime = "jsonpath={.spec.template.spec.containers[0].env[?(@.name=='FUNC_RUNTIME')].value}";
    wait_until("the environment is back", || dev.kubectl(&["get", deployment.trim(), "-o", runtime]) == "python312");

    assert!(dev.kubectl(&["logs", deployment.trim()]).contains("Listening"));
    assert_eq!(dev.interrupt().code(), Some(0));
}

/// Returns status, reason and message of a condition.
fn condition(dev: &Dev, name: &str, kind: &str) -> (String, String) {
    let status = status(dev, name);
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), format!("{}: {}", text("reason"), text("message")))
}

#[test]
fn the_documented_samples_run_or_report_their_problem() {
    let home = tempfile::tempdir().unwrap();
    let work = home.path().join("samples");
    fs::create_dir_all(&work).unwrap();
    let variables = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: my-vars-cm, namespace: default}\n\
                     data: {my-var: from the ConfigMap}\n";
    fs::write(work.join("variables.yaml"), variables).unwrap();
    git(home.path(), &["init", "-q", "-b", "main", "samples"]);
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-qm", "variables"]);
    let dev = Dev::start(home.path(), &["samples"]);
    dev.event("commitApplied");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let apply = |sample: &str| dev.kubectl(&["apply", "-n", "default", "-f", samples.join(sample).to_str().unwrap()]);

    for sample in ["env-from-config-map.yaml", "env-nodejs.yaml", "complete.yaml", "repository.yaml"] {
        apply(sample);
    }
    ready(&dev, &["sample-cm-env-values", "sample-fn-with-envs"]);
    assert_eq!(get(&url(&dev, "sample-cm-env-values")), "from the ConfigMap");
    assert_eq!(get(&url(&dev, "sample-fn-with-envs")), "Hello World!");

    // The packages of the sample come from npm's registry, which may be unreachable.
    wait_long("the complete sample is built, or npm says why not", || {
        let (built, why) = condition(&dev, "my-test-function", "BuildReady");
        built == "True" || why.contains("npm")
    });
    if condition(&dev, "my-test-function", "BuildReady").0 == "True" {
        ready(&dev, &["my-test-function"]);
        assert_eq!(get(&url(&dev, "my-test-function")), "Hello John");
    }

    // A Python syntax error, without a runtime: the previous version keeps serving.
    apply("env-python.yaml");
    wait_long("the slip is named", || condition(&dev, "sample-fn-with-envs", "BuildReady").1.contains("SyntaxError"));
    assert_eq!(get(&url(&dev, "sample-fn-with-envs")), "Hello World!");

    // The GitRepository is missing.
    dev.kubectl(&["delete", "function", "my-test-function"]);
    apply("git.yaml");
    wait_long("the missing GitRepository is named", || {
        let (status, why) = condition(&dev, "my-test-function", "ConfigurationReady");
        status == "False" && why.starts_with("SourceUpdateFailed") && why.contains("auth-basic")
    });
    assert_eq!(dev.interrupt().code(), Some(0));
}

/// Waits until `holds` returns true, with the deadline of builds.
fn wait_long(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + BUILDS;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
