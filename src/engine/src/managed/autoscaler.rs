//! Autoscalers: the owner of a workload's replica count.
//!
//! An autoscaler owns the count while it scales. It does not scale a workload that is at 0. The count of such a
//! workload is that of the manifest, or else the autoscaler's minimum.
//!
//! Not here: the handover of the count (`apply::replicas`).

use serde_json::Value;

use mainstay_object::{Key, split_api_version};

/// API group prefix of controllers that scale to 0 themselves, while their autoscaler scales from 1.
const SCALES_TO_ZERO: &str = "keda.sh/";

/// The autoscaler of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Autoscaler {
    /// Minimum number of replicas.
    least: i64,
}

impl Autoscaler {
    /// Reads a HorizontalPodAutoscaler. Returns the workload that it scales, and the autoscaler.
    pub(crate) fn read(live: &Value) -> Option<(Key, Self)> {
        let target = live.pointer("/spec/scaleTargetRef")?;
        let text = |name: &str| target.get(name).and_then(Value::as_str);
        let group = text("apiVersion").unwrap_or_default().rsplit_once('/').map_or("", |(group, _)| group);
        let namespace = live.pointer("/metadata/namespace").and_then(Value::as_str)?;
        let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let scales_to_zero = |owner: &Value| {
            owner["controller"] == true && owner["apiVersion"].as_str().is_some_and(|v| v.starts_with(SCALES_TO_ZERO))
        };
        let least = match live.pointer("/spec/minReplicas").and_then(Value::as_i64) {
            _ if owners.into_iter().flatten().any(scales_to_zero) => 0,
            least => least.unwrap_or(1),
        };
        Some((Key::new(group, text("kind")?, Some(namespace), text("name")?), Self { least }))
    }

    /// Returns the target of an autoscaler in a manifest: a HorizontalPodAutoscaler, or a ScaledObject of KEDA.
    pub(crate) fn target(key: &Key, document: impl FnOnce() -> Value) -> Option<Key> {
        let defaults = match (&*key.group, &*key.kind) {
            ("autoscaling", "HorizontalPodAutoscaler") => ("", ""),
            ("keda.sh", "ScaledObject") => ("apps/v1", "Deployment"),
            _ => return None,
        };
        let document = document();
        let target = document.pointer("/spec/scaleTargetRef")?;
        let text = |name: &str| target.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (group, _) = split_api_version(text("apiVersion").unwrap_or(defaults.0));
        let kind = text("kind").unwrap_or(defaults.1);
        Some(Key::new(group, kind, key.namespace.as_deref(), text("name")?))
    }

    /// Whether the autoscaler may scale to 0.
    pub(crate) fn may_rest(self) -> bool {
        self.least == 0
    }

    /// Returns the replica count for a workload that is at 0, for an apply of `document`; `None` if it stays at 0.
    pub(crate) fn woken(self, document: &Value, live: &Value) -> Option<i64> {
        let git = document.pointer("/spec/replicas").and_then(Value::as_i64);
        (is_at_zero(live) && self.least > 0 && git != Some(0)).then(|| git.unwrap_or(self.least))
    }
}

/// Whether the workload is scaled to 0.
pub(crate) fn is_at_zero(live: &Value) -> bool {
    live.pointer("/spec/replicas").and_then(Value::as_i64) == Some(0)
}

/// Whether the server sets a default count. A Function without a count scales by itself.
pub(crate) fn has_default_count(key: &Key) -> bool {
    matches!(&*key.group, "" | "apps")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn woken(min: Value, controller: &str, git: Value, live: i64) -> Option<i64> {
        let autoscaler = json!({
            "metadata": {"namespace": "shop", "ownerReferences": [{"controller": true, "apiVersion": controller}]},
            "spec": {"minReplicas": min, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
        });
        let (key, autoscaler) = Autoscaler::read(&autoscaler).unwrap();
        assert_eq!(key, Key::new("apps", "Deployment", Some("shop"), "web"));
        autoscaler.woken(&json!({"spec": {"replicas": git}}), &json!({"spec": {"replicas": live}}))
    }

    #[test]
    fn autoscalers_in_manifests_name_their_targets() {
        let target = |api_version: &str, kind: &str, spec: Value| {
            let key = Key::new(split_api_version(api_version).0, kind, Some("shop"), "a");
            Autoscaler::target(&key, || json!({"spec": spec})).map(|key| key.to_string())
        };
        let of = |target: Value| json!({"scaleTargetRef": target});
        let web = || json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"});
        let set = || Some("StatefulSet.apps shop/web".to_owned());
        assert_eq!(target("autoscaling/v2", "HorizontalPodAutoscaler", of(web())), set());
        assert_eq!(target("autoscaling/v1", "HorizontalPodAutoscaler", of(web())), set());
        assert_eq!(target("keda.sh/v1alpha1", "ScaledObject", of(web())), set());
        let short = target("keda.sh/v1alpha1", "ScaledObject", of(json!({"name": "web"})));
        assert_eq!(short.as_deref(), Some("Deployment.apps shop/web"));
        assert_eq!(target("keda.sh/v1alpha1", "ScaledJob", of(web())), None);
        assert_eq!(target("autoscaling/v2", "HorizontalPodAutoscaler", json!({"scaleTargetRef": "web"})), None);
    }

    #[test]
    fn a_count_of_zero_returns_to_the_manifest_or_the_minimum_of_the_autoscaler() {
        let cases = [
            (json!(2), "x/v1", json!(3), 0, Some(3)),
            (json!(2), "x/v1", Value::Null, 0, Some(2)),
            (Value::Null, "x/v1", Value::Null, 0, Some(1)),
            (json!(2), "x/v1", json!(0), 0, None),
            (json!(0), "x/v1", json!(3), 0, None),
            (json!(1), "keda.sh/v1alpha1", json!(3), 0, None),
            (json!(2), "x/v1", json!(3), 1, None),
        ];
        for (min, controller, git, live, expected) in cases {
            assert_eq!(woken(min.clone(), controller, git.clone(), live), expected, "{min} {controller} {git} {live}");
        }
    }
}
