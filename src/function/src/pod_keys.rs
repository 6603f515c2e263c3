//! Decides which labels and annotations a Function may put on its pods. Admission webhooks, network plugins and
//! container runtimes read these keys, and some add a volume, replace the image, or assign an identity or a network.
//!
//! Invariant: only listed keys are allowed, because the keys of all possible webhooks are unknown.
//!
//! Not here: Mainstay's own keys, which `resolve` removes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::violation::{Violation, shown};
use mainstay_object::syntax;

/// The setting with additional allowed keys.
pub(crate) const SETTING: &str = "MAINSTAY_POD_KEYS";
/// Allowed prefixes. Keys with these prefixes describe a pod, or control its metrics or scaling.
const HARMLESS: [&str; 14] = [
    "app.kubernetes.io",
    "argocd.argoproj.io",
    "autoscaling.knative.dev",
    "backstage.io",
    "checksum",
    "cluster-autoscaler.kubernetes.io",
    "helm.sh",
    "helm.toolkit.fluxcd.io",
    "kubectl.kubernetes.io",
    "kustomize.toolkit.fluxcd.io",
    "kyma-project.io",
    "meta.helm.sh",
    "prometheus.io",
    "serverless.kyma-project.io",
];
/// Keys that are allowed only with these values. Kyma's own pods use them to opt out of or into the proxy.
const HARMLESS_VALUES: [(&str, [&str; 2]); 1] = [("sidecar.istio.io/inject", ["true", "false"])];
/// Keys without a prefix that are not allowed, because they give a pod an identity.
const NOT_HARMLESS: [&str; 1] = ["aadpodidbinding"];
/// Maximum number of keys that a message lists.
const NAMED: usize = 5;

/// The keys that an operator allows, in addition to the harmless ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodKeys(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    /// `*`: allows every key.
    Any,
    /// `example.com/`: allows all keys with this prefix.
    Prefix(String),
    /// `*.example.com/`: allows all keys with this prefix or a subdomain of it.
    Domain(String),
    /// Allows one key.
    Key(String),
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        let is_domain = |text: &str| syntax::subdomain(text).is_none();
        if text == "*" {
            return Some(Self::Any);
        }
        match text.strip_suffix('/') {
            Some(prefix) => match prefix.strip_prefix("*.") {
                Some(domain) => is_domain(domain).then(|| Self::Domain(domain.to_owned())),
                None => is_domain(prefix).then(|| Self::Prefix(prefix.to_owned())),
            },
            None => syntax::label(&text.to_lowercase(), "").is_empty().then(|| Self::Key(text.to_owned())),
        }
    }

    fn allows(&self, key: &str) -> bool {
        let prefix = key.split_once('/').map(|(prefix, _)| prefix);
        match self {
            Self::Any => true,
            Self::Key(allowed) => key == allowed,
            Self::Prefix(allowed) => prefix == Some(allowed),
            Self::Domain(domain) => {
                let above = prefix.and_then(|prefix| prefix.strip_suffix(domain.as_str()));
                above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
            }
        }
    }
}

impl PodKeys {
    /// Allows every key. Commands use this value, because they do not know the operator's settings.
    pub fn any() -> Self {
        Self(vec![Entry::Any])
    }

    /// Parses a comma-separated list. Fails with a message about the invalid entry.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let read = entries.map(|entry| {
            Entry::parse(entry).ok_or_else(|| {
                let entry = shown(entry);
                format!(
                    "\"{entry}\" is not a key (example.com/team), a prefix (example.com/), a domain (*.example.com/) \
                     or *"
                )
            })
        });
        read.collect::<Result<_, _>>().map(Self)
    }

    /// Whether a pod may have this label or annotation.
    pub(crate) fn allow(&self, key: &str, value: &str) -> bool {
        is_harmless(key, value) || self.0.iter().any(|entry| entry.allows(key))
    }

    /// Returns the violation for the keys of `all` that are not allowed. `what` is `label` or `annotation`.
    pub(crate) fn violation<'a>(
        &self,
        what: &str,
        path: &str,
        all: impl Iterator<Item = (&'a String, &'a String)>,
    ) -> Option<Violation> {
        let refused: Vec<&str> = all.filter(|(key, value)| !self.allow(key, value)).map(|(key, _)| &**key).collect();
        let first = refused.first()?;
        let mut names = refused.iter().take(NAMED).map(|key| shown(key)).collect::<Vec<_>>().join(", ");
        if refused.len() > NAMED {
            let _ = write!(names, " and {} more", refused.len() - NAMED);
        }
        let plural = if refused.len() > 1 { "s" } else { "" };
        let entry = shown(first.split_inclusive('/').next().filter(|prefix| prefix.ends_with('/')).unwrap_or(first));
        let message = format!("the operator of this cluster has not allowed the {what}{plural} {names} on pods");
        let details = format!(
            "admission webhooks and container runtimes may act on such keys; an operator allows them with {SETTING}={entry} in \
             the ConfigMap mainstay-settings"
        );
        Some(Violation::invalid(message, path).because(details))
    }

    /// Returns the allowed labels or annotations.
    pub(crate) fn allowed(&self, all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let kept = all.iter().filter(|(key, value)| self.allow(key, value));
        kept.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

fn is_harmless(key: &str, value: &str) -> bool {
    match key.split_once('/') {
        // Kubernetes reserves keys without a prefix for users. Container runtimes read some that contain dots.
        None => !key.contains('.') && !NOT_HARMLESS.contains(&key),
        Some((prefix, _)) => {
            HARMLESS.contains(&prefix)
                || HARMLESS_VALUES.iter().any(|(known, values)| *known == key && values.contains(&value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> PodKeys {
        PodKeys::parse(text).unwrap()
    }

    /// Examples of keys that affect a webhook, a network plugin or a container runtime.
    const STEERING: [&str; 25] = [
        "sidecar.istio.io/userVolume",
        "sidecar.istio.io/proxyImage",
        "proxy.istio.io/config",
        "inject.istio.io/templates",
        "traffic.sidecar.istio.io/excludeOutboundPorts",
        "istio.io/rev",
        "vault.hashicorp.com/agent-inject",
        "consul.hashicorp.com/connect-inject",
        "azure.workload.identity/use",
        "aadpodidbinding",
        "iam.gke.io/gcp-service-account",
        "eks.amazonaws.com/role-arn",
        "container.apparmor.security.beta.kubernetes.io/function",
        "seccomp.security.alpha.kubernetes.io/pod",
        "linkerd.io/inject",
        "config.linkerd.io/proxy-image",
        "k8s.v1.cni.cncf.io/networks",
        "cni.projectcalico.org/ipAddrs",
        "dapr.io/sidecar-image",
        "kuma.io/sidecar-injection",
        "instrumentation.opentelemetry.io/inject-nodejs",
        "io.katacontainers.config.hypervisor.path",
        "io.kubernetes.cri-o.Devices",
        "run.oci.handler",
        "hooks.nri.io/pod",
    ];

    #[test]
    fn keys_that_steer_webhooks_and_runtimes_need_the_operators_word() {
        for key in STEERING {
            assert!(!PodKeys::default().allow(key, "true"), "{key}");
            assert!(keys(key).allow(key, "true"), "{key} by its name");
            assert!(keys("*").allow(key, "true"), "{key} among all");
        }
    }

    #[test]
    fn keys_that_describe_a_pod_are_allowed() {
        for key in [
            "app",
            "Team_1",
            "app.kubernetes.io/name",
            "prometheus.io/scrape",
            "checksum/config",
            "serverless.kyma-project.io/function-name",
            "autoscaling.knative.dev/target",
            "kubectl.kubernetes.io/default-container",
        ] {
            assert!(PodKeys::default().allow(key, "x"), "{key}");
        }
        let inject = |value| PodKeys::default().allow("sidecar.istio.io/inject", value);
        assert_eq!([inject("false"), inject("true"), inject("other-template")], [true, true, false]);
    }

    #[test]
    fn an_entry_allows_a_key_a_prefix_or_a_domain() {
        let allowed = |list: &str, key: &str| keys(list).allow(key, "");
        assert!(allowed("example.com/", "example.com/a") && !allowed("example.com/", "a.example.com/a"));
        assert!(allowed("*.istio.io/", "istio.io/rev") && allowed("*.istio.io/", "proxy.istio.io/config"));
        assert!(!allowed("*.istio.io/", "notistio.io/rev") && !allowed("*.istio.io/", "istio.io.evil.com/rev"));
        assert!(allowed(" a.b/c , d.e/ ,", "d.e/f") && !allowed("a.b/c", "a.b/cd") && !allowed("a.b/C", "a.b/c"));
        assert!(!allowed("*.katacontainers/", "io.katacontainers.config"), "a key without a prefix is named whole");
        for wrong in ["-", "a b/", "*.", "*/", "*.a/b", "a/b/c", "/", "*a/"] {
            assert!(PodKeys::parse(wrong).unwrap_err().contains("is not a key"), "{wrong}");
        }
    }

    #[test]
    fn a_violation_names_a_few_keys_and_the_setting() {
        let all: BTreeMap<String, String> = (0..9).map(|n| (format!("a{n}.example/k"), String::new())).collect();
        let text = PodKeys::default().violation("label", "spec.labels", all.iter()).unwrap().to_string();
        assert_eq!(
            text,
            "invalid value: the operator of this cluster has not allowed the labels a0.example/k, a1.example/k, a2.example/k, \
             a3.example/k, a4.example/k and 4 more on pods: spec.labels\nadmission webhooks and container runtimes may act on \
             such keys; an operator allows them with MAINSTAY_POD_KEYS=a0.example/ in the ConfigMap mainstay-settings"
        );
        assert_eq!(keys("*").violation("label", "spec.labels", all.iter()), None);
    }
}
