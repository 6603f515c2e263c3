//! Compares health with kstatus for a few hundred objects. `tests/kstatus` generates the fixture, see
//! `docs/develop/tests.md`.

use serde_json::Value;

use super::{Health, health};
use crate::{Key, split_api_version};

const FIXTURE: &str = include_str!("../../../../tests/golden/kstatus.jsonl");

/// Returns the reason for a deliberate difference from kstatus.
fn differs(key: &Key, live: &Value, theirs: &str) -> Option<&'static str> {
    let text = |pointer: &str| live.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match (&*key.kind, theirs) {
        ("Job", "Current") => Some("Progressing: as in Flux, a Job has to complete"),
        ("Job", "InProgress") if live.pointer("/spec/suspend") == Some(&Value::Bool(true)) => {
            Some("Healthy: as in Flux")
        }
        ("Pod", "Current") if text("/status/phase") == "Failed" => {
            Some("Failed: a Pod that failed never becomes healthy")
        }
        ("Pod", "Failed") if text("/status/phase") == "Pending" => Some("Progressing: health has no time"),
        ("PersistentVolumeClaim", "InProgress") if text("/status/phase") == "Lost" => Some("Failed: it stays lost"),
        ("DaemonSet", "InProgress") if text("/spec/updateStrategy/type") == "OnDelete" => {
            Some("Healthy: no controller proceeds")
        }
        ("Widget", "Current") if is_ready_of_generation(live, 1) => {
            Some("Progressing: Ready is of an older generation")
        }
        ("APIService", "Current") => Some("Progressing: it is not available"),
        ("HorizontalPodAutoscaler", "Current") => Some("Progressing: it finds nothing to scale"),
        _ => None,
    }
}

/// Returns whether the condition `Ready` of an object belongs to this generation.
fn is_ready_of_generation(live: &Value, generation: i64) -> bool {
    let conditions = live["status"]["conditions"].as_array().unwrap();
    conditions.iter().any(|one| one["type"] == "Ready" && one["observedGeneration"] == generation)
}

#[test]
fn kstatus_says_the_same_but_for_what_is_listed() {
    let (mut count, mut wrong, mut on_purpose) = (0, Vec::new(), std::collections::BTreeMap::new());
    for line in FIXTURE.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (live, theirs) = (&line["object"], line["status"].as_str().unwrap());
        let (group, _) = split_api_version(live["apiVersion"].as_str().unwrap());
        let key = Key::new(group, live["kind"].as_str().unwrap(), Some("shop"), "web");
        let ours = match health(&key, live) {
            Health::Healthy => "Current",
            Health::Progressing(_) => "InProgress",
            Health::Failed(_) => "Failed",
        };
        count += 1;
        if ours == theirs {
            continue;
        }
        let meant = |why: &str| ours == ["Current", "InProgress", "Failed"]["HPF".find(&why[..1]).unwrap()];
        match differs(&key, live, theirs).filter(|why| meant(why)) {
            Some(why) => *on_purpose.entry(why).or_insert(0) += 1,
            None => wrong.push(format!("Mainstay {ours}, kstatus {theirs}: {live}")),
        }
    }
    assert!(count > 300, "{count} objects");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(on_purpose.len(), 9, "each difference is seen, and no other: {on_purpose:#?}");
}
