//! A Kustomization of Flux becomes a GitSync.

use std::time::Duration;

use mainstay_api::Span;

use super::converted::Converted;
use super::document::Document;
use super::fields::Fields;
use super::known::{Known, common, counterpart};
use super::report::{Conversion, Judged};

/// Fields with the same name and meaning in a GitSync.
const SAME: [&str; 10] = [
    "commonMetadata",
    "components",
    "decryption",
    "healthCheckExprs",
    "ignore",
    "images",
    "namePrefix",
    "nameSuffix",
    "patches",
    "timeout",
];
/// By default, Flux checks health for its interval minus this time, and at least for this time.
const RESERVE: Duration = Duration::from_secs(30);

pub(super) fn convert<'a>(known: &mut Known<'a>, document: &'a Document, conversion: &mut Conversion) {
    let kind = document.field("/spec/sourceRef/kind");
    if kind != "GitRepository" && kind != "OCIRepository" {
        let text = if kind.is_empty() {
            "it does not specify a source: build its kustomization first"
        } else {
            counterpart(kind)
        };
        return conversion.judged.push(Judged::lost(document, text));
    }
    let mut fields = Fields::new(&document.object);
    let mut made = known.git_sync(document);
    common(&mut made, &mut fields, document);
    known.follow(&mut made, &mut fields, document, "spec.sourceRef");
    let path = fields.text("spec.path").unwrap_or_default();
    made.set("baseDir", base_dir(&path), document, "spec.path");
    for field in SAME {
        if let Some(value) = fields.take(&format!("spec.{field}")) {
            made.set(field, value, document, &format!("spec.{field}"));
        }
    }
    if made.object["spec"]["decryption"].get("serviceAccountName").is_some() {
        made.object["spec"]["decryption"].as_object_mut().map(|map| map.remove("serviceAccountName"));
        fields.lost(
            "spec.decryption.serviceAccountName",
            "only keys in the Secret of `decryption.secretRef` are supported",
        );
    }
    known.depend(&mut made, &mut fields, document);
    if let Some(namespace) = fields.text("spec.targetNamespace") {
        made.set("overrideNamespace", namespace, document, "spec.targetNamespace");
    }
    substitute(&mut made, &mut fields, document);
    health(&mut made, &mut fields, document);
    deletion(&mut made, &mut fields, document);
    if fields.flag("spec.force") == Some(true) {
        fields.lost("spec.force", "name the kinds that may be replaced in `replace`");
    }
    fields.drop_different("spec.ignoreMissingComponents", "a missing component is a problem");
    fields.drop_unneeded(&["spec.buildMetadata"]);
    conversion.add(made, document, fields.finish());
}

/// Converts a path such as `./apps` into the base directory of a GitSync.
pub(super) fn base_dir(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    format!("/{}", parts.join("/"))
}

fn substitute(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let substitutes = !document.object["spec"]["postBuild"].is_null();
    for (field, from) in [
        ("substitute", "spec.postBuild.substitute"),
        ("substituteFrom", "spec.postBuild.substituteFrom"),
        ("substituteStrategy", "spec.postBuild.substituteStrategy"),
    ] {
        if let Some(value) = fields.take(from) {
            made.set(field, value, document, from);
        }
    }
    if substitutes {
        // Flux substitutes an empty string for a variable without a value.
        made.put("substituteUndefined", "Empty");
    }
}

/// Converts the health checks. Flux waits for objects only with `wait: true` or `healthChecks`.
fn health(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let waits = fields.flag("spec.wait") == Some(true);
    let checks = fields.list("spec.healthChecks");
    if !checks.is_empty() && !waits {
        fields.differs("spec.healthChecks", "`wait` covers all objects");
    }
    made.set("wait", waits || !checks.is_empty(), document, "spec.wait");
    let has_timeout = made.object["spec"].get("timeout").is_some();
    let interval = document.field("/spec/interval").parse::<Span>();
    if let Some(interval) = interval.ok().filter(|_| !has_timeout) {
        made.put("timeout", Span(interval.0.saturating_sub(RESERVE).max(RESERVE)).to_string());
    }
}

/// Converts the behaviour at a deletion. Flux deletes the objects of a deleted Kustomization that prunes.
fn deletion(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let prunes = fields.flag("spec.prune") == Some(true);
    made.set("prune", prunes, document, "spec.prune");
    let policy = fields.text("spec.deletionPolicy");
    let deletes = match policy.as_deref() {
        Some("Orphan") => false,
        Some("Delete" | "WaitForTermination") => true,
        _ => prunes,
    };
    if deletes {
        made.prune_on_delete();
    }
    if policy.as_deref() == Some("Delete") {
        fields.differs("spec.deletionPolicy", "the GitSync is deleted after its objects");
    }
}
