//! An OCIRepository of Flux becomes an OCIRepository of Mainstay.

use serde_json::Value;

use super::converted::{Converted, OURS};
use super::document::Document;
use super::fields::Fields;
use super::known::annotations;
use super::report::Conversion;

/// Fields that are taken as they are.
const SAME: [&str; 11] = [
    "url",
    "ref",
    "layerSelector",
    "secretRef",
    "certSecretRef",
    "proxySecretRef",
    "insecure",
    "interval",
    "timeout",
    "ignore",
    "suspend",
];

/// Takes the field with the required signature. Returns it if it has a counterpart.
pub(super) fn signatures(fields: &mut Fields, path: &str) -> Option<Value> {
    let verify = fields.take(path)?;
    if !matches!(verify["provider"].as_str(), None | Some("cosign")) {
        fields.lost(path, "only signatures of cosign are verified: sign with `cosign sign --key`");
    } else if verify["secretRef"].is_null() || !verify["matchOIDCIdentity"].is_null() {
        fields.lost(
            path,
            "keyless signatures are not verified: sign with `cosign sign --key`, and set `verify.secretRef`",
        );
    } else {
        return Some(verify);
    }
    None
}

pub(super) fn convert(document: &Document, namespace: &str, conversion: &mut Conversion) {
    let mut fields = Fields::new(&document.object);
    let mut made = Converted::in_place_of(document, OURS, "OCIRepository", namespace, document.name());
    made.put_metadata("labels", fields.map("metadata.labels"));
    made.put_metadata("annotations", annotations(&mut fields));
    for name in SAME {
        let path = format!("spec.{name}");
        if let Some(value) = fields.take(&path) {
            made.set(name, value, document, &path);
        }
    }
    match fields.text("spec.provider").as_deref() {
        None | Some("generic") => {}
        Some(other) => {
            fields.lost("spec.provider", format!("login with the workload identity of {other} is not supported"));
        }
    }
    fields.drop_lost("spec.serviceAccountName", "name a Secret with a login in `secretRef`");
    if let Some(verify) = signatures(&mut fields, "spec.verify") {
        made.set("verify", verify, document, "spec.verify");
    }
    conversion.add(made, document, fields.finish());
}
