//! A HelmRelease becomes a GitSync that renders the chart.

use serde_json::{Value, json};

use super::converted::Converted;
use super::document::Document;
use super::fields::Fields;
use super::helm_chart;
use super::known::{Known, common, counterpart};
use super::kustomization::base_dir;
use super::report::{Conversion, Judged};

/// Fields that concern Helm releases. A GitSync creates no releases, so these fields need no counterpart.
const RELEASES: [&str; 9] = [
    "spec.install.disableHooks",
    "spec.install.disableWait",
    "spec.install.remediation",
    "spec.maxHistory",
    "spec.rollback",
    "spec.storageNamespace",
    "spec.test",
    "spec.uninstall",
    "spec.upgrade",
];

pub(super) fn convert<'a>(known: &mut Known<'a>, document: &'a Document, conversion: &mut Conversion) {
    let of = (document.field("/spec/chart/spec/sourceRef/kind"), document.field("/spec/chartRef/kind"));
    let mut fields = Fields::new(&document.object);
    let mut made = known.git_sync(document);
    common(&mut made, &mut fields, document);
    match of {
        ("GitRepository", _) => {
            known.follow(&mut made, &mut fields, document, "spec.chart.spec.sourceRef");
            let chart = fields.text("spec.chart.spec.chart").unwrap_or_default();
            made.set("baseDir", base_dir(&chart), document, "spec.chart.spec.chart");
        }
        ("HelmRepository", _) => {
            if let Err(text) = helm_chart::of_release(known, &mut made, &mut fields, document, conversion) {
                return conversion.judged.push(Judged::lost(document, text));
            }
            if let Some(interval) = fields.text("spec.interval") {
                made.set("interval", interval, document, "spec.interval");
            }
        }
        ("", "OCIRepository" | "HelmChart") => {
            known.follow_chart(&mut made, &mut fields, document);
        }
        ("", "") => {
            let text = "it does not specify a chart: build its kustomization first";
            return conversion.judged.push(Judged::lost(document, text));
        }
        ("", kind) | (kind, _) => return conversion.judged.push(Judged::lost(document, counterpart(kind))),
    }
    let namespace = fields.text("spec.targetNamespace");
    fields.drop_unneeded(&["spec.releaseName"]);
    made.set("render.helm.releaseName", release_name(document), document, "spec.releaseName");
    let namespace = namespace.unwrap_or_else(|| document.namespace().to_owned());
    if !namespace.is_empty() {
        made.set("targetNamespace", namespace, document, "spec.targetNamespace");
    }
    values(&mut made, &mut fields, document);
    known.depend(&mut made, &mut fields, document);
    if let Some(timeout) = fields.take("spec.timeout") {
        made.set("timeout", timeout, document, "spec.timeout");
    }
    definitions(&mut made, &mut fields, document);
    post_renderers(&mut made, &mut fields, document);
    drift(&mut made, &mut fields, document);
    // helm-controller uninstalls the release of a deleted HelmRelease.
    made.prune_on_delete();
    fields.drop_lost("spec.install.createNamespace", "put the Namespace into Git");
    fields.drop_unneeded(&["spec.chart.spec.interval", "spec.chart.spec.reconcileStrategy", "spec.chart.spec.version"]);
    for field in RELEASES {
        fields.drop_different(field, "there is no release of Helm; to roll back, revert the commit");
    }
    fields.differs("", "a chart with hooks is refused; to apply it without its hooks, set `render.helm.hooks: Omit`");
    conversion.add(made, document, fields.finish());
}

/// Returns the name of the release that helm-controller creates.
pub(super) fn release_name(document: &Document) -> String {
    match (document.field("/spec/releaseName"), document.field("/spec/targetNamespace")) {
        ("", "") => document.name().to_owned(),
        ("", namespace) => format!("{namespace}-{}", document.name()),
        (name, _) => name.to_owned(),
    }
}

fn values(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let files = fields.list("spec.chart.spec.valuesFiles");
    if !files.is_empty() {
        // The paths of values files are relative to the root of the source.
        let from_root = |file: &Value| match file.as_str() {
            Some(file) => Value::from(base_dir(file)),
            None => file.clone(),
        };
        let files: Vec<Value> = files.iter().map(from_root).collect();
        made.set("render.helm.valuesFiles", files, document, "spec.chart.spec.valuesFiles");
    }
    if let Some(values) = fields.take("spec.values") {
        if values.to_string().contains("${") {
            let text = "the Kustomization that applies the HelmRelease substitutes its variables: give the GitSync the same `substitute`";
            fields.ask("spec.values", text);
        }
        made.set("render.helm.values", values, document, "spec.values");
    }
    values_from(made, fields, document);
}

/// Converts the sources of values.
fn values_from(made: &mut Converted, fields: &mut Fields, document: &Document) {
    const FIELD: &str = "spec.valuesFrom";
    let kept = fields.list(FIELD);
    let is_indexed = |from: &Value| from["targetPath"].as_str().is_some_and(|path| path.contains(['[', '{']));
    for from in kept.iter().filter(|from| is_indexed(from)) {
        let text = format!("{} is in a list: write it into `render.helm.values`", from["targetPath"]);
        fields.lost(FIELD, text.replace('"', ""));
    }
    let kept: Vec<Value> = kept.into_iter().filter(|from| !is_indexed(from)).collect();
    if !kept.is_empty() {
        made.set("render.helm.valuesFrom", kept, document, FIELD);
    }
}

/// Converts the settings for the CRDs of the chart.
fn definitions(made: &mut Converted, fields: &mut Fields, document: &Document) {
    match fields.text("spec.install.crds").as_deref() {
        Some("Skip") => made.set("render.helm.includeCRDs", false, document, "spec.install.crds"),
        _ => match fields.text("spec.upgrade.crds").as_deref() {
            Some("CreateReplace") => {}
            _ => fields.differs("spec.upgrade.crds", "a commit updates the chart's CustomResourceDefinitions, too"),
        },
    }
    fields.drop_unneeded(&["spec.upgrade.crds"]);
}

fn post_renderers(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let (mut patches, mut images) = (Vec::new(), Vec::new());
    for renderer in fields.list("spec.postRenderers") {
        let list = |name: &str| renderer["kustomize"][name].as_array().cloned().unwrap_or_default();
        patches.extend(list("patches"));
        images.extend(list("images"));
        let known = ["patches", "images"];
        let others = renderer["kustomize"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        for other in others.filter(|name| !known.contains(name)) {
            fields.lost(&format!("spec.postRenderers.kustomize.{other}"), "write it as a patch in `patches`");
        }
    }
    let from = made.object.pointer("/spec/render/helm/valuesFrom").and_then(Value::as_array);
    let has_secrets = from.into_iter().flatten().any(|from| from["kind"] == "Secret");
    for (field, list) in [("patches", patches), ("images", images)] {
        if has_secrets && !list.is_empty() {
            let text =
                "objects with values of Secrets cannot be changed after rendering: change them by values of the chart";
            fields.lost(&format!("spec.postRenderers.kustomize.{field}"), text);
        } else if !list.is_empty() {
            made.set(field, list, document, "spec.postRenderers");
        }
    }
}

/// Converts the drift detection. helm-controller reverts drift only with `mode: enabled`.
fn drift(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let policy = match fields.text("spec.driftDetection.mode").as_deref() {
        Some("enabled") => "Revert",
        Some("warn") => "Report",
        _ => {
            fields.differs(
                "spec.driftDetection",
                "Flux does not revert drift of this release, so `drift: Ignore` is set; to revert drift, set `drift: Revert`",
            );
            "Ignore"
        }
    };
    made.set("drift", policy, document, "spec.driftDetection.mode");
    let ignored: Vec<Value> = fields
        .list("spec.driftDetection.ignore")
        .into_iter()
        .map(|rule| json!({"paths": rule["paths"], "target": rule["target"]}))
        .map(|mut rule| {
            if rule["target"].is_null() {
                rule.as_object_mut().map(|rule| rule.remove("target"));
            }
            rule
        })
        .collect();
    if !ignored.is_empty() {
        made.set("ignore", ignored, document, "spec.driftDetection.ignore");
    }
}
