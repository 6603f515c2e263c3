//! A printed object is not less strict than the object of Flux that it replaces, and its notes do not contradict.

use super::*;

#[test]
fn a_required_signature_without_a_counterpart_is_kept_for_the_agent_to_refuse() {
    let text = r"
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: any, namespace: shop}
spec: {interval: 5m, url: 'oci://ghcr.io/acme/any', verify: {provider: cosign, matchOIDCIdentity: []}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: notation, namespace: shop}
spec: {interval: 5m, url: 'oci://ghcr.io/acme/web', verify: {provider: notation}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: shop}
spec: {type: oci, url: 'oci://ghcr.io/acme/charts'}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: redis, namespace: shop}
spec:
  interval: 5m
  chart: {spec: {chart: redis, sourceRef: {kind: HelmRepository, name: charts}, verify: {provider: cosign}}}
";
    let conversion = flux::convert(&documents(text, Tool::Flux), None);
    let verify = |kind: &str, name: &str| {
        let found = conversion.objects.iter().find(|made| {
            made.object["kind"] == kind && made.object["metadata"]["name"] == name && made.problem().is_none()
        });
        found.unwrap_or_else(|| panic!("{kind} {name}: {}", printed(&conversion))).object["spec"]["verify"].clone()
    };
    let cosign = serde_json::json!({"provider": "cosign"});
    assert_eq!(verify("OCIRepository", "any")["provider"], "cosign");
    assert_eq!(verify("OCIRepository", "notation"), serde_json::json!({"provider": "notation"}));
    assert_eq!(verify("HelmChart", "redis"), cosign);
    let report = conversion.text();
    assert_eq!(conversion.count(Fate::Lost), 3, "{report}");
    assert_eq!(report.matches("so the agent refuses the object").count(), 3, "{report}");
}

#[test]
fn a_signature_of_notation_is_required_by_the_same_secret() {
    let text = r"
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: web, namespace: shop}
spec: {interval: 5m, url: 'oci://ghcr.io/acme/web', verify: {provider: notation, secretRef: {name: certificates}}}
";
    let conversion = flux::convert(&documents(text, Tool::Flux), None);
    let report = conversion.text();
    let [made] = &conversion.objects[..] else { panic!("{report}") };
    assert_eq!(made.problem(), None);
    let verify = serde_json::json!({"provider": "notation", "secretRef": {"name": "certificates"}});
    assert_eq!(made.object["spec"]["verify"], verify);
    assert_eq!((conversion.count(Fate::Lost), conversion.count(Fate::ToDo)), (0, 1), "{report}");
    for part in ["spec.verify: check the Secret", "`override.revocation`", "`tsa:NAME`", "plugins", "one certificate"] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn a_git_sync_for_another_cluster_is_not_printed_for_this_one() {
    let text = r"
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: web, namespace: shop}
spec:
  interval: 1h
  path: ./deploy
  prune: true
  sourceRef: {kind: OCIRepository, name: web}
  kubeConfig: {configMapRef: {name: other-cluster}}
";
    let conversion = flux::convert(&documents(text, Tool::Flux), None);
    let report = conversion.text();
    assert!(conversion.objects.is_empty(), "{}", printed(&conversion));
    assert!(report.contains("spec.kubeConfig.configMapRef: name a Secret with a kubeconfig"), "{report}");
}

#[test]
fn a_proxy_loses_only_its_login() {
    let text = "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {name: chat, namespace: a}\n\
                spec: {type: slack, address: 'https://a.example.org', proxy: 'http://user:canary@proxy.example.org'}\n";
    let conversion = flux::convert(&documents(text, Tool::Flux), None);
    let report = conversion.text();
    assert!(
        report.contains("spec.proxy: its login is left out: put address") && !report.contains("canary"),
        "{report}"
    );
    let [made] = &conversion.objects[..] else { panic!("{report}") };
    assert_eq!(made.object["spec"]["proxy"], "http://proxy.example.org/", "the proxy is not bypassed");
    assert!(!made.yaml().unwrap().contains("canary"));
}

#[test]
fn a_service_account_that_is_left_out_is_not_to_be_created() {
    let text = r"
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: tick, namespace: shop}
spec: {type: github, address: 'https://github.com/shop/web', secretRef: {name: token}, serviceAccountName: sender}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: web, namespace: shop}
spec: {interval: 5m, url: 'oci://ghcr.io/acme/web', provider: aws, secretRef: {name: login}, serviceAccountName: puller}
";
    let report = flux::convert(&documents(text, Tool::Flux), Some("one")).text();
    assert!(report.contains("spec.serviceAccountName: this type has no identities of clouds"), "{report}");
    assert!(report.contains("spec.serviceAccountName: it is left out, because the Secret"), "{report}");
    assert!(!report.contains("create ServiceAccount"), "{report}");
    assert_eq!(report.matches("spec.secretRef: copy Secret").count(), 2, "{report}");
}
