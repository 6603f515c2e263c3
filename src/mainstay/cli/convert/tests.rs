//! Each tool's objects, with what is printed for them and the report.

use super::*;
use crate::cli::convert::report::Conversion;

const FLUX: &str = include_str!("tests/flux.yaml");
const ARGO_CD: &str = include_str!("tests/argocd.yaml");

fn documents(text: &str, tool: Tool) -> Vec<Document> {
    document::read("all.yaml", text, &[tool.group()], &Limits::new(thread_time)).unwrap()
}

fn printed(conversion: &Conversion) -> String {
    let objects: Vec<_> = conversion.objects.iter().map(|object| object.yaml().unwrap()).collect();
    format!("{}---\n{}", objects.join("---\n"), conversion.text())
}

/// Compares with a file beside this one; `UPDATE_GOLDEN=1` writes it.
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
    assert!(spec.get("verify").is_none() && spec.get("provider").is_none(), "{spec}");
    let spec = &sync.object["spec"];
    assert_eq!(spec["sourceRef"], serde_json::json!({"kind": "OCIRepository", "name": "web"}));
    assert!(spec.get("gitRepository").is_none() && spec["baseDir"] == "/deploy", "{spec}");
    let report = conversion.text();
    assert!(report.contains("spec.provider: there is no login by the identity of aws"), "{report}");
    assert!(report.contains("spec.verify: signatures of artifacts are not verified"), "{report}");
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
    let text = sequence::text(&documents(FLUX, Tool::Flux));
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(
        at("patch kustomizations.kustomize.toolkit.fluxcd.io apps -n team")
            < at("delete kustomizations.kustomize.toolkit.fluxcd.io apps")
    );
    assert!(sequence::text(&documents(ARGO_CD, Tool::Argocd)).contains("\"finalizers\":null"));
}
