//! Converts the objects of each tool, and compares the printed objects and the report.

use super::*;
use crate::cli::convert::report::Conversion;
use crate::cli::private_directory;

mod strict;

const FLUX: &str = include_str!("tests/flux.yaml");
const ARGO_CD: &str = include_str!("tests/argocd.yaml");

fn documents(text: &str, tool: Tool) -> Vec<Document> {
    document::read("all.yaml", text, &[tool.group()], &Limits::new(thread_time)).unwrap()
}

fn printed(conversion: &Conversion) -> String {
    let objects: Vec<_> = conversion.objects.iter().map(|object| object.yaml().unwrap()).collect();
    format!("{}---\n{}", objects.join("---\n"), conversion.text())
}

/// Compares a result with a file beside this one; `UPDATE_GOLDEN=1` writes that file.
fn check(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mainstay/cli/convert/tests").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), found, "{file}");
}

#[test]
fn objects_of_flux_are_converted_field_by_field() {
    check("flux.out", &printed(&flux::convert(&documents(FLUX, Tool::Flux), None)));
}

#[test]
fn an_oci_repository_keeps_its_fields_and_a_kustomization_follows_it() {
    let text = r#"
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: web, namespace: shop}
spec:
  interval: 5m
  url: oci://ghcr.io/acme/web
  ref: {semver: ">=1 <2"}
  provider: aws
  secretRef: {name: login}
  verify: {provider: cosign}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: web, namespace: shop}
spec: {interval: 1h, path: ./deploy, prune: true, wait: true, sourceRef: {kind: OCIRepository, name: web}}
"#;
    let conversion = flux::convert(&documents(text, Tool::Flux), None);
    let [repository, sync] = &conversion.objects[..] else { panic!("{}", printed(&conversion)) };
    assert_eq!(repository.problem().or(sync.problem()), None);
    let spec = &repository.object["spec"];
    assert_eq!((&spec["url"], &spec["ref"]["semver"]), (&"oci://ghcr.io/acme/web".into(), &">=1 <2".into()));
    assert_eq!(spec["verify"], serde_json::json!({"provider": "cosign"}));
    assert!(spec.get("provider").is_none(), "{spec}");
    let spec = &sync.object["spec"];
    assert_eq!(spec["sourceRef"], serde_json::json!({"kind": "OCIRepository", "name": "web"}));
    assert!(spec.get("gitRepository").is_none() && spec["baseDir"] == "/deploy", "{spec}");
    let report = conversion.text();
    assert!(
        report.contains("spec.provider: `provider` is left out, because the Secret in `secretRef` has the login"),
        "{report}"
    );
    assert!(report.contains("spec.verify: Flux accepts the signature of any identity here"), "{report}");
}

#[test]
fn keyless_signatures_keep_their_identities() {
    let text = r"
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: web, namespace: shop}
spec:
  interval: 5m
  url: oci://ghcr.io/acme/web
  verify:
    provider: cosign
    matchOIDCIdentity: [{issuer: '^https://ci\.example\.org$', subject: web}]
    trustedRootSecretRef: {name: root}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: keys, namespace: shop}
spec:
  interval: 5m
  url: oci://ghcr.io/acme/keys
  verify:
    provider: cosign
    secretRef: {name: keys}
    matchOIDCIdentity: [{issuer: a, subject: b}]
";
    let conversion = flux::convert(&documents(text, Tool::Flux), None);
    let verify = |name: &str| {
        let made = conversion.objects.iter().find(|made| made.object["metadata"]["name"] == name).unwrap();
        assert_eq!(made.problem(), None);
        made.object["spec"]["verify"].clone()
    };
    assert_eq!(verify("web")["matchOIDCIdentity"][0]["issuer"], "^https://ci\\.example\\.org$");
    assert_eq!(verify("web")["trustedRootSecretRef"]["name"], "root");
    assert_eq!(verify("keys"), serde_json::json!({"provider": "cosign", "secretRef": {"name": "keys"}}));
    let report = conversion.text();
    assert!(report.contains("`matchOIDCIdentity` is left out: Flux, too, ignores it"), "{report}");
}

#[test]
fn identities_of_clouds_keep_their_fields() {
    let text = r"
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: web, namespace: shop}
spec: {interval: 5m, url: 'oci://shop.azurecr.io/web', provider: azure, serviceAccountName: puller}
---
apiVersion: image.toolkit.fluxcd.io/v1
kind: ImageRepository
metadata: {name: web, namespace: shop}
spec: {interval: 5m, image: europe-docker.pkg.dev/shop/web, provider: gcp}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: web, namespace: shop}
spec: {interval: 5m, url: 'https://dev.azure.com/shop/infra/_git/web', provider: azure, serviceAccountName: puller}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: web, namespace: shop}
spec: {interval: 1h, path: ./deploy, prune: true, wait: true, sourceRef: {kind: GitRepository, name: web}}
";
    let conversion = flux::convert(&documents(text, Tool::Flux), None);
    let spec = |kind: &str| {
        let found = conversion.objects.iter().find(|made| made.object["kind"] == kind);
        let made = found.unwrap_or_else(|| panic!("{kind}: {}", printed(&conversion)));
        assert_eq!(made.problem(), None, "{kind}");
        let spec = &made.object["spec"];
        (spec["provider"].as_str().map(str::to_owned), spec["serviceAccountName"].as_str().map(str::to_owned))
    };
    let of = |provider: &str, account: Option<&str>| (Some(provider.to_owned()), account.map(str::to_owned));
    assert_eq!(spec("OCIRepository"), of("azure", Some("puller")));
    assert_eq!(spec("GitRepository"), of("azure", Some("puller")));
    assert_eq!(spec("ImageRepository"), of("gcp", None));
    let report = conversion.text();
    assert_eq!(report.matches("let the ServiceAccount of the agent have the identity").count(), 1, "{report}");
}

#[test]
fn a_provider_keeps_its_identity_at_a_cloud_and_its_key_moves_into_a_secret() {
    let text = r"
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: statuses, namespace: shop}
spec: {type: azuredevops, address: 'https://dev.azure.com/o/p/_git/r', serviceAccountName: sender}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: hub, namespace: shop}
spec: {type: azureeventhub, address: 'Endpoint=sb://a.servicebus.windows.net/;SharedAccessKey=k'}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Provider
metadata: {name: hook, namespace: shop}
spec: {type: generic, address: 'https://hooks.example.com', serviceAccountName: sender}
";
    let conversion = flux::convert(&documents(text, Tool::Flux), None);
    let accounts: Vec<_> =
        conversion.objects.iter().map(|made| made.object["spec"]["serviceAccountName"].as_str()).collect();
    assert_eq!(accounts, [Some("sender"), None, None]);
    let report = conversion.text();
    for part in [
        "spec.address: put the address with its key into a Secret, as `address`",
        "spec.serviceAccountName: this type has no identities of clouds",
    ] {
        assert_eq!(report.matches(part).count(), 1, "{part}: {report}");
    }
}

#[test]
fn a_helm_release_of_a_helm_repository_becomes_a_helm_chart_and_a_git_sync() {
    let text = r"
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: flux-system}
spec: {interval: 5m, url: 'https://charts.example.org', secretRef: {name: login}, passCredentials: true}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: unused, namespace: flux-system}
spec: {interval: 5m, url: 'oci://ghcr.io/acme/charts', type: oci}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: redis, namespace: shop}
spec:
  interval: 10m
  chart: {spec: {chart: redis, version: 1.x, valuesFiles: [values-prod.yaml], sourceRef: {kind: HelmRepository, name: charts, namespace: flux-system}}}
  valuesFrom: [{kind: ConfigMap, name: a, valuesKey: b.yaml}, {kind: Secret, name: s}, {kind: ConfigMap, name: c, targetPath: 'hosts[0]'}]
  postRenderers: [{kustomize: {images: [{name: redis, newTag: '8'}]}}]
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: podinfo, namespace: shop}
spec:
  interval: 5m
  url: oci://ghcr.io/stefanprodan/charts/podinfo
  ref: {semver: 6.x}
  layerSelector: {mediaType: application/vnd.cncf.helm.chart.content.v1.tar+gzip, operation: copy}
  verify: {provider: cosign, secretRef: {name: image-keys}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: podinfo, namespace: shop}
spec: {interval: 10m, chartRef: {kind: OCIRepository, name: podinfo}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: own, namespace: flux-system}
spec: {interval: 5m, chart: own, version: '*', sourceRef: {kind: HelmRepository, name: charts}, verify: {secretRef: {name: keys}}}
";
    let conversion = flux::convert(&documents(text, Tool::Flux), Some("one"));
    let made = |kind: &str, name: &str| {
        let found = conversion.objects.iter().find(|made| {
            made.object["kind"] == kind && made.object["metadata"]["name"] == name && made.problem().is_none()
        });
        found.unwrap_or_else(|| panic!("{kind} {name}: {}", printed(&conversion))).object["spec"].clone()
    };
    let chart = serde_json::json!({
        "repository": "https://charts.example.org", "name": "redis", "version": "1.x", "secretRef": {"name": "login"},
        "interval": "5m",
    });
    assert_eq!(made("HelmChart", "redis"), chart);
    let sync = made("GitSync", "redis");
    assert_eq!(sync["sourceRef"], serde_json::json!({"kind": "HelmChart", "name": "redis"}));
    assert_eq!(sync["render"]["helm"]["valuesFiles"], serde_json::json!(["/values-prod.yaml"]));
    let from = serde_json::json!([
        {"kind": "ConfigMap", "name": "a", "valuesKey": "b.yaml"}, {"kind": "Secret", "name": "s"},
    ]);
    assert_eq!(sync["render"]["helm"]["valuesFrom"], from);
    assert_eq!(sync["images"], serde_json::Value::Null);
    for part in [
        "spec.postRenderers.kustomize.images: objects with values of Secrets cannot be changed after rendering",
        "hosts[0] is in a list",
        "copy ConfigMap a from the namespace shop to one",
        "copy Secret s from the namespace shop to one",
    ] {
        assert!(conversion.text().contains(part), "{part}: {}", conversion.text());
    }
    assert!(sync.get("baseDir").is_none() && sync.get("gitRepository").is_none(), "{sync}");
    assert_eq!(made("HelmChart", "own")["name"], "own");
    assert_eq!(made("HelmChart", "own")["verify"], serde_json::json!({"secretRef": {"name": "keys"}}));
    let verify = serde_json::json!({"provider": "cosign", "secretRef": {"name": "image-keys"}});
    assert_eq!(made("OCIRepository", "podinfo")["verify"], verify);
    let sync = made("GitSync", "podinfo");
    assert_eq!((&sync["baseDir"], &sync["sourceRef"]["kind"]), (&"/podinfo".into(), &"OCIRepository".into()));
    let report = conversion.text();
    for part in [
        "the login of the HelmRepository is sent to the host of the repository only",
        "copy Secret login from the namespace flux-system to one",
        "HelmRepository flux-system/unused (all.yaml)\n  lost     none of the objects uses a chart from it",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn objects_of_argo_cd_are_converted_field_by_field() {
    let tree =
        Tree { directories: ["apps", "apps/one", "apps/two", "apps/one/deep", "apps/old"].map(str::to_owned).to_vec() };
    check("argocd.out", &printed(&argocd::convert(&documents(ARGO_CD, Tool::Argocd), Some("mainstay-system"), &tree)));
}

#[test]
fn other_documents_need_not_be_yaml() {
    let text = "{{ if x }}\na: b\n{{ end }}\n---\n# kustomize.toolkit.fluxcd.io is only named\napiVersion: v1\nkind: ConfigMap\n";
    assert!(documents(text, Tool::Flux).is_empty());
    let broken = "kind: [\napiVersion: kustomize.toolkit.fluxcd.io/v1\n";
    let error = document::read("a.yaml", broken, &[Tool::Flux.group()], &Limits::new(thread_time)).unwrap_err();
    assert!(error.starts_with("document 1: "), "{error}");
}

#[test]
fn two_objects_of_one_name_become_two_git_syncs() {
    let text = FLUX.replace(
        "metadata: {name: podinfo, namespace: flux-system}\nspec:\n  interval: 10m",
        "metadata: {name: infra, namespace: flux-system}\nspec:\n  interval: 10m",
    );
    let conversion = flux::convert(&documents(&text, Tool::Flux), Some("one"));
    let syncs = conversion.objects.iter().filter(|made| made.object["kind"] == "GitSync");
    let names: Vec<_> = syncs
        .map(|made| format!("{}/{}", made.object["metadata"]["namespace"], made.object["metadata"]["name"]))
        .collect();
    assert_eq!(names, [r#""one"/"infra""#, r#""one"/"apps""#, r#""one"/"infra-release""#]);
}

#[test]
fn the_sequence_suspends_before_it_deletes() {
    let read = documents(FLUX, Tool::Flux);
    let text = sequence::text(&read, &flux::convert(&read, None));
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(
        at("patch kustomizations.kustomize.toolkit.fluxcd.io apps -n team")
            < at("delete kustomizations.kustomize.toolkit.fluxcd.io apps")
    );
    let read = documents(ARGO_CD, Tool::Argocd);
    let text = sequence::text(&read, &argocd::convert(&read, None, &Tree::default()));
    assert!(text.contains("\"finalizers\":null"), "{text}");
}

/// A fleet as it exists in a cluster: the Kustomization `root` has applied the other objects.
const FLEET: &str = "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: fleet, namespace: flux-system}
spec: {url: 'ssh://git@a.example/fleet', interval: 1m, secretRef: {name: fleet-key}, proxySecretRef: {name: proxy}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  name: apps
  namespace: flux-system
  labels: {team: shop, kustomize.toolkit.fluxcd.io/name: root, kustomize.toolkit.fluxcd.io/namespace: flux-system}
spec:
  interval: 10m
  path: ./apps
  sourceRef: {kind: GitRepository, name: fleet}
  dependsOn: [{name: infra}]
  decryption: {provider: sops, secretRef: {name: sops-age}}
  serviceAccountName: deployer
  postBuild: {substituteFrom: [{kind: ConfigMap, name: settings}]}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata:
  name: infra
  namespace: flux-system
  labels: {kustomize.toolkit.fluxcd.io/name: root, kustomize.toolkit.fluxcd.io/namespace: flux-system}
spec: {interval: 10m, path: ./infra, sourceRef: {kind: GitRepository, name: fleet}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: root, namespace: flux-system, labels: {kustomize.toolkit.fluxcd.io/name: root, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec: {interval: 10m, path: ./clusters, sourceRef: {kind: GitRepository, name: fleet}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: web, namespace: shop, labels: {kustomize.toolkit.fluxcd.io/name: apps, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec:
  chart: {spec: {chart: ./web, sourceRef: {kind: GitRepository, name: fleet, namespace: flux-system}}}
  targetNamespace: front
  values: {host: 'web.${domain}'}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: redis, namespace: shop}
spec: {chart: {spec: {chart: redis, sourceRef: {kind: HelmRepository, name: bitnami}}}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata:
  name: charts
  namespace: shop
  labels: {kustomize.toolkit.fluxcd.io/name: apps, kustomize.toolkit.fluxcd.io/namespace: flux-system}
spec: {interval: 5m, url: 'https://charts.example.org'}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta3
kind: Alert
metadata: {name: all, namespace: flux-system}
spec: {providerRef: {name: chat}, eventSources: [{kind: Kustomization, name: '*'}, {kind: HelmRelease, name: '*', namespace: shop}]}
";

#[test]
fn the_sequence_follows_dependencies_and_keeps_what_is_not_converted() {
    let read = documents(FLEET, Tool::Flux);
    let text = sequence::text(&read, &flux::convert(&read, Some("mainstay-system")));
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let deleted = ["infra -n flux-system\n", "apps -n flux-system\n", "root -n flux-system\n"]
        .map(|name| at(&format!("kubectl delete kustomizations.kustomize.toolkit.fluxcd.io {name}")));
    assert!(deleted.is_sorted(), "{text}");
    assert!(at("root -n flux-system --type") < at("apps -n flux-system --type"), "{text}");
    assert!(at("kubectl delete secret -n shop -l owner=helm,name=front-web\n") < deleted[1], "{text}");
    assert!(text.contains("\n  HelmRelease shop/web, applied by Kustomization apps\n"), "{text}");
    assert!(!text.contains("helmreleases.helm.toolkit.fluxcd.io redis"), "{text}");
    assert!(text.contains("\n  HelmRepository shop/charts, applied by Kustomization apps\n"), "{text}");
    assert!(text.contains("`spec.patches` of its GitSync"), "{text}");
    assert!(text.ends_with("leave them as they are: HelmRelease shop/redis\n"), "{text}");
}

#[test]
fn another_namespace_needs_copies_of_all_that_an_object_names() {
    let read = documents(FLEET, Tool::Flux);
    let conversion = flux::convert(&read, Some("mainstay-system"));
    let text = conversion.text();
    for (name, count) in [
        ("copy Secret fleet-key from the namespace flux-system to mainstay-system", 1),
        ("copy Secret proxy from", 1),
        ("spec.decryption.secretRef: copy Secret sops-age from", 1),
        ("spec.postBuild.substituteFrom: copy ConfigMap settings from", 1),
        ("spec.serviceAccountName: create ServiceAccount deployer in the namespace mainstay-system", 1),
        ("spec.values: the Kustomization that applies the HelmRelease substitutes its variables", 1),
    ] {
        assert_eq!(text.matches(name).count(), count, "{name}: {text}");
    }
    assert!(!flux::convert(&read, None).text().contains("copy Secret sops-age"));
}

#[test]
fn equal_names_in_two_namespaces_get_a_copy_each() {
    let text = r"
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: fleet, namespace: flux-system}
spec: {url: 'https://a.example/fleet', interval: 1m, secretRef: {name: creds}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: other, namespace: a}
spec: {url: 'https://b.example/other', interval: 1m, secretRef: {name: creds}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: web, namespace: flux-system}
spec:
  interval: 1h
  path: ./deploy
  prune: true
  serviceAccountName: deployer
  sourceRef: {kind: GitRepository, name: fleet}
  postBuild: {substituteFrom: [{kind: ConfigMap, name: settings}]}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shop, namespace: a}
spec:
  interval: 1h
  path: ./deploy
  prune: true
  serviceAccountName: deployer
  sourceRef: {kind: GitRepository, name: other}
  postBuild: {substituteFrom: [{kind: ConfigMap, name: settings}]}
";
    let conversion = flux::convert(&documents(text, Tool::Flux), Some("mainstay-system"));
    let made = |name: &str, field: &str| {
        let found = conversion.objects.iter().find(|made| made.object["metadata"]["name"] == name).unwrap();
        found.object.pointer(field).unwrap().as_str().unwrap().to_owned()
    };
    assert_eq!(made("other", "/spec/auth/secretName"), "creds");
    assert_eq!(made("fleet", "/spec/auth/secretName"), "flux-system-creds");
    assert_eq!(made("web", "/spec/substituteFrom/0/name"), "flux-system-settings");
    assert_eq!(made("web", "/spec/serviceAccountName"), "flux-system-deployer");
    assert_eq!(made("shop", "/spec/serviceAccountName"), "deployer");
    let report = conversion.text();
    for part in [
        "copy Secret creds from the namespace a to mainstay-system\n",
        "copy Secret creds from the namespace flux-system to mainstay-system, as flux-system-creds: another Secret has the name creds",
        "create ServiceAccount flux-system-deployer in the namespace mainstay-system, with the permissions of deployer in flux-system",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn the_second_object_of_one_name_is_lost() {
    let provider = |namespace: &str| {
        format!(
            "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {{name: chat, namespace: {namespace}}}\n\
             spec: {{type: slack, address: 'https://{namespace}.example.org', channel: x}}\n"
        )
    };
    let text = format!("{}---\n{}", provider("a"), provider("b"));
    let conversion = flux::convert(&documents(&text, Tool::Flux), Some("one"));
    assert_eq!(conversion.objects.len(), 1);
    let report = conversion.text();
    assert!(report.contains("Provider b/chat (all.yaml)\n  lost     another object gets the same kind"), "{report}");
    assert_eq!(flux::convert(&documents(&text, Tool::Flux), None).objects.len(), 2);
}

#[test]
fn plain_manifests_that_only_a_parent_applies_are_named() {
    let fleet = private_directory::create().unwrap();
    let kustomization = |name: &str, path: &str| {
        format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: flux-system}}\n\
             spec: {{interval: 1m, path: {path}, prune: true, sourceRef: {{kind: GitRepository, name: flux-system}}}}\n"
        )
    };
    let map =
        |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: flux-system}}\n");
    for (file, text) in [
        (".git/HEAD", String::new()),
        ("clusters/one/sync.yaml", kustomization("flux-system", "./clusters/one")),
        ("clusters/one/apps.yaml", kustomization("apps", "./apps/one")),
        ("clusters/one/vars/vars.yaml", map("cluster-vars")),
        ("clusters/one/kustomization.yaml", "resources: [sync.yaml]\n".to_owned()),
        ("apps/one/web.yaml", map("web")),
        ("apps/base/web.yaml", map("base")),
    ] {
        let path = fleet.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for directory in ["clusters/one", ""] {
        let plain = read(&fleet.path().join(directory), Tool::Flux).unwrap().plain;
        let [one] = &plain[..] else { panic!("{directory}: {plain:?}") };
        assert_eq!(one.subject, "ConfigMap flux-system/cluster-vars");
        assert_eq!(
            one.file,
            Path::new("clusters/one/vars/vars.yaml").strip_prefix(directory).unwrap().to_str().unwrap()
        );
        let text = "not of Flux: move it to the directory of the GitSyncs, because only Kustomization flux-system/flux-system applies it";
        assert_eq!(one.notes[0].text, text);
    }
}

#[test]
fn marks_of_flux_and_repeated_sources_are_left_out() {
    let read = documents(FLEET, Tool::Flux);
    let text = printed(&flux::convert(&read, Some("mainstay-system")));
    assert!(!text.contains("toolkit.fluxcd.io/name") && text.contains("    team: shop\n"), "{text}");
    assert_eq!(text.matches("  - kind: GitSync\n    name: '*'\n").count(), 1, "{text}");
}

#[test]
fn confined_git_syncs_are_named() {
    let read = documents(FLEET, Tool::Flux);
    let text = flux::convert(&read, None).confinement();
    assert!(
        text.contains("This concerns flux-system, shop.") && text.contains("--allow-namespace=flux-system"),
        "{text}"
    );
}

#[test]
fn a_manifest_without_a_namespace_is_to_be_built_first() {
    let text = FLEET.replace("metadata: {name: web, namespace: shop, ", "metadata: {name: web, ");
    let text = flux::convert(&documents(&text, Tool::Flux), None).text();
    assert!(text.contains("to do    metadata.namespace: the manifest has no namespace"), "{text}");
    assert!(!text.contains("printed in ,") && !text.contains(" to \n"), "{text}");
}

/// Returns the conversion of an Application of the project `prod` with these fields.
fn application(windows: &str, destination: &str, source: &str) -> Conversion {
    let project = format!(
        "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {{name: prod, namespace: argocd}}\nspec: \
         {{syncWindows: [{windows}]}}\n---\n"
    );
    let project = if windows.is_empty() { String::new() } else { project };
    let text = format!(
        "{project}apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {{name: web, namespace: argocd}}\nspec:\n  \
         project: prod\n  source: {{repoURL: https://github.com/acme/shop.git, path: web, {source}}}\n  destination: \
         {{namespace: shop, {destination}}}\n"
    );
    argocd::convert(&documents(&text, Tool::Argocd), None, &Tree::default())
}

#[test]
fn a_window_concerns_an_application_by_each_name_of_its_cluster() {
    let window = |lists: &str| format!("{{kind: deny, schedule: '0 0 * * 6', duration: 48h, {lists}}}");
    let (by_name, by_server) = ("name: in-cluster", "server: 'https://kubernetes.default.svc'");
    for (lists, destination, concerns) in [
        ("clusters: [in-cluster]", by_name, true),
        ("clusters: [in-cluster]", by_server, true),
        ("clusters: ['https://kubernetes*']", by_name, true),
        ("clusters: [other]", by_name, false),
        ("clusters: [other], namespaces: [shop]", by_name, true),
        ("clusters: [other], namespaces: [shop], andOperator: true", by_name, false),
        ("clusters: [in-cluster], namespaces: [shop], andOperator: true", by_name, true),
        ("andOperator: true", by_name, false),
    ] {
        let conversion = application(&window(lists), destination, "directory: {recurse: true}");
        let sync = conversion.objects.iter().find(|object| object.object["kind"] == "GitSync").unwrap();
        assert_eq!(sync.object["spec"].get("windows").is_some(), concerns, "{lists} {destination}");
    }
    let manual = application(&window("namespaces: [shop], manualSync: true"), by_name, "directory: {recurse: true}");
    assert!(manual.text().contains("differs  spec.project: a manual sync"), "{}", manual.text());
}

#[test]
fn a_missing_project_and_subdirectories_are_reported() {
    let missing = application("", "name: in-cluster", "directory: {recurse: true}").text();
    assert!(missing.contains("lost     spec.project: the AppProject prod was not read"), "{missing}");
    let recurse = "differs  spec.source.directory.recurse: subdirectories of plain manifests are applied, too";
    for (source, is_reported) in [
        ("", true),
        ("directory: {recurse: false}", true),
        ("directory: {recurse: true}", false),
        ("kustomize: {}", false),
    ] {
        let text = application("", "name: in-cluster", source).text();
        assert_eq!(text.contains(recurse), is_reported, "{source}: {text}");
    }
}
