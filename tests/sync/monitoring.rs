//! The alert rules and the dashboard in `manifests/monitoring`, and the metrics that they use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use mainstay_testkit::drift::revert_of;
use mainstay_testkit::listener::{metrics, metrics_are};
use mainstay_testkit::ownership::{delete_sync, sync_is_gone};
use mainstay_testkit::world::{NAMESPACE, World, config_map, deployment, free_address};

/// Alerts and the series that fire them, in the notation of `promtool test rules`. A series has a value each minute.
const FIRING: [(&str, &str, &str, &str); 11] = [
    ("MainstayNoLeader", "mainstay_leader", "0x1500", ""),
    ("MainstaySyncNotReady", "mainstay_sync_ready{sync=\"shop/web\"}", "0x1500", "shop/web"),
    ("MainstaySyncStale", "mainstay_sync_last_success_timestamp_seconds{sync=\"shop/web\"}", "0x1500", "shop/web"),
    ("MainstayCommitNotApplied", "mainstay_sync_lag_seconds{sync=\"shop/web\"}", "1000x1500", "shop/web"),
    ("MainstayObjectsFailed", "mainstay_objects_by_health{sync=\"shop/web\",health=\"failed\"}", "2x1500", "shop/web"),
    ("MainstayDriftRemains", "mainstay_drifted_objects{sync=\"shop/web\"}", "2x1500", "shop/web"),
    ("MainstayDriftMissed", "mainstay_drifts_missed_total{sync=\"shop/web\"}", "0+1x1500", "shop/web"),
    ("MainstayObjectsContended", "mainstay_contended_objects{sync=\"shop/web\"}", "2x1500", "shop/web"),
    ("MainstayObjectsPaused", "mainstay_paused_objects{sync=\"shop/web\"}", "2x1500", "shop/web"),
    ("MainstayBuildsHeldUp", "mainstay_function_builds_held_up", "2x1500", ""),
    ("MainstayImagesNotRemoved", "mainstay_image_sweep_failures_total", "0+1x1500", ""),
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/monitoring")
}

fn rules() -> Vec<Value> {
    let text = std::fs::read_to_string(directory().join("alerts.yaml")).unwrap();
    let file: Value = serde_yaml::from_str(&text).unwrap();
    let groups = file["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
}

/// Returns the expressions of the dashboard's panels.
fn panels() -> Vec<String> {
    let text = std::fs::read_to_string(directory().join("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

/// Returns the metrics in an expression.
fn named(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("mainstay_")).map(str::to_owned).collect()
}

/// Runs promtool, which validates input like Prometheus.
fn promtool(arguments: &[&str]) -> (bool, String) {
    let output = mainstay_testkit::isolated("promtool").args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("promtool: {e} (apt-get install prometheus)"));
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text.into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_and_dashboard_read_metrics_that_the_agent_has() {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    revert_of(&mut world, "a").await;
    metrics_are(&world, "the revert is counted", |text| text.contains("mainstay_revert_latency_seconds_count 1")).await;
    let text = metrics(&world).await;
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let exposed = samples.filter_map(|line| line.split(['{', ' ']).next()).collect::<BTreeSet<_>>();
    let expressions = rules().into_iter().map(|rule| rule["expr"].as_str().unwrap().to_owned()).chain(panels());
    let read = expressions.flat_map(|expression| named(&expression)).collect::<BTreeSet<_>>();
    assert!(read.len() > 15, "{read:?}");
    let unknown = read.iter().filter(|name| !exposed.contains(&***name)).collect::<Vec<_>>();
    assert_eq!(unknown, Vec::<&String>::new(), "{text}");
}

#[test]
fn promtool_reads_the_rules_and_each_alert_fires() {
    let file = directory().join("alerts.yaml");
    let (is_fine, said) = promtool(&["check", "rules", "--lint-fatal", file.to_str().unwrap()]);
    assert!(is_fine, "{said}");
    let named = rules().iter().map(|rule| rule["alert"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(named, FIRING.map(|(alert, ..)| alert.to_owned()));
    let cases = FIRING.iter().map(|(alert, series, values, sync)| {
        let suspended = json!({"series": "mainstay_sync_suspended{sync=\"shop/web\"}", "values": "0x1500"});
        let leads = json!({"series": "mainstay_leader{pod=\"other\"}", "values": "1x1500"});
        let mut all = vec![json!({"series": series, "values": values}), suspended];
        if *alert != "MainstayNoLeader" {
            all.push(leads);
        }
        let rule = rules().into_iter().find(|rule| rule["alert"] == *alert).unwrap();
        let labels = if sync.is_empty() { json!({}) } else { json!({"sync": sync}) };
        // Only the firing and its labels are tested, not the text of the alert.
        let fires = json!({"expr": format!("count by (alertname, sync) (ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})"),
            "eval_time": "1500m", "exp_samples": [{"labels": series_of(alert, &labels), "value": 1}]});
        let quiet = json!({"expr": format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}"), "eval_time": "1m", "exp_samples": []});
        assert!(rule["annotations"]["summary"].is_string() && rule["labels"]["severity"].is_string(), "{rule}");
        json!({"name": alert, "interval": "1m", "input_series": all, "promql_expr_test": [fires, quiet]})
    });
    let tests = json!({"rule_files": [file], "evaluation_interval": "1m", "tests": cases.collect::<Vec<_>>()});
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tests.yaml");
    std::fs::write(&path, tests.to_string()).unwrap();
    let (is_fine, said) = promtool(&["test", "rules", path.to_str().unwrap()]);
    assert!(is_fine, "{said}");
}

fn series_of(alert: &str, labels: &Value) -> String {
    let sync = labels["sync"].as_str().map(|sync| format!(", sync=\"{sync}\"")).unwrap_or_default();
    format!("{{alertname=\"{alert}\"{sync}}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_success_health_and_remaining_drift_are_gauges_that_go_with_the_sync() {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world.remote.file("a.yaml", config_map("a", "1")).file("web.yaml", deployment("web", "nginx:1", 1)).commit("one");
    world.synced(json!({"drift": "Report"})).await;
    let has = |text: &str, name: &str, labels: &str, value: &str| {
        let line = format!("mainstay_{name}{{sync=\"{NAMESPACE}/demo\"{labels}}} {value}");
        text.lines().any(|known| known == line)
    };
    metrics_are(&world, "all is well", |text| {
        has(text, "sync_ready", "", "1.0")
            && has(text, "sync_suspended", "", "0.0")
            && has(text, "objects_by_health", ",health=\"healthy\"", "2.0")
            && has(text, "objects_by_health", ",health=\"missing\"", "0.0")
            && has(text, "drifted_objects", "", "0.0")
    })
    .await;
    let success = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("mainstay_sync_last_success_timestamp_seconds{"))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let (first, now) = (success(&metrics(&world).await).unwrap(), jiff::Timestamp::now().as_second());
    assert!((first - now as f64).abs() < 120.0, "{first}");
    world.delete("v1", "configmaps", "a");
    metrics_are(&world, "its absence is told", |text| {
        has(text, "objects_by_health", ",health=\"healthy\"", "1.0")
            && has(text, "objects_by_health", ",health=\"missing\"", "1.0")
            && has(text, "drifted_objects", "", "1.0")
            && has(text, "sync_ready", "", "1.0")
    })
    .await;
    world.remote.file("a.yaml", "kind: [").commit("broken");
    world.request("demo");
    metrics_are(&world, "it is not Ready", |text| has(text, "sync_ready", "", "0.0")).await;
    let failed = success(&metrics(&world).await).unwrap();
    world.request("demo");
    world.change("demo", json!({"suspend": true})).await;
    metrics_are(&world, "it is suspended", |text| has(text, "sync_suspended", "", "1.0")).await;
    assert_eq!(success(&metrics(&world).await), Some(failed), "neither of them is a success");
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    metrics_are(&world, "nothing is left of it", |text| {
        text.contains("# EOF") && !text.contains(&format!("{NAMESPACE}/demo"))
    })
    .await;
}
