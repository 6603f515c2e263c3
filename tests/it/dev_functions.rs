//! `mainstay dev` with Functions: the example is built and answers, with the Node.js and Python of this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::support::dev::{Dev, copy, git, wait_until};

/// How long the four builds of the example may take together.
const BUILDS: Duration = Duration::from_mins(4);

/// The example in a repository of its own.
fn example(home: &Path) -> PathBuf {
    let work = home.join("functions");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/functions"), &work);
    git(home, &["init", "-q", "-b", "main", "functions"]);
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-qm", "functions"]);
    work
}

fn commit(work: &Path, message: &str) {
    git(work, &["commit", "-qam", message]);
}

/// Waits until Functions are ready in all three conditions; what the last one said where, as URLs.
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

/// The Service of a Function; port 80 may not be ours to bind.
fn url(dev: &Dev, name: &str) -> String {
    let shown = dev.kubectl(&["get", "service", name, "-o", "json"]);
    let service: Value = serde_json::from_str(&shown).unwrap();
    let said = service["metadata"]["annotations"]["devcluster.dev/url"].as_str().map(str::to_owned);
    said.unwrap_or_else(|| format!("http://{}/", service["spec"]["clusterIP"].as_str().unwrap()))
}

fn get(url: &str) -> String {
    let answer = std::process::Command::new("curl").args(["-sS", "-m", "10", url]).output();
    let answer = answer.expect("curl is needed: apt-get install curl");
    assert!(answer.status.success(), "{url}: {}", String::from_utf8_lossy(&answer.stderr));
    String::from_utf8(answer.stdout).unwrap()
}

#[test]
fn builds_the_example_runs_it_and_rebuilds_only_what_a_commit_changes() {
    let home = tempfile::tempdir().unwrap();
    let work = example(home.path());
    let dev = Dev::start(home.path(), &["functions"]);
    wait_until("the Functions are there", || dev.kubectl(&["get", "functions", "-o", "name"]).lines().count() == 4);
    ready(&dev, &["hello", "quote", "shout", "totals"]);

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
    assert_eq!(header, ["NAME", "CONFIGURED", "BUILT", "RUNNING", "RUNTIME", "VERSION", "AGE"]);

    // Another handler of one Function.
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

    // Another environment is rolled out and not built.
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

    // A child that is changed by hand goes back.
    let deployment = dev.kubectl(&["get", "deployments", "-l", label, "-o", "name"]);
    dev.kubectl(&["set", "env", deployment.trim(), "FUNC_RUNTIME=cobol"]);
    let runtime = "jsonpath={.spec.template.spec.containers[0].env[?(@.name=='FUNC_RUNTIME')].value}";
    wait_until("the environment is back", || dev.kubectl(&["get", deployment.trim(), "-o", runtime]) == "python312");

    assert!(dev.kubectl(&["logs", deployment.trim()]).contains("Listening"));
    assert_eq!(dev.interrupt().code(), Some(0));
}
