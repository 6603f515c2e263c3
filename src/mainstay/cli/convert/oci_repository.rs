//! An OCIRepository of Flux becomes an OCIRepository of Mainstay.

use serde_json::Value;

use super::converted::{Converted, Printed};
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

/// The parts of a trust policy of notation that the agent refuses, or that refuse more than in Flux.
const TRUST_POLICY: &str = "check the Secret, which the agent reads more strictly: set `override.revocation` of the trust policy to `log` or `skip` if \
                            certificates name a CRL or an OCSP responder; remove stores `tsa:NAME`; sign without plugins; write \
                            `registryScopes` as `HOST/PATH`; and store one certificate in each value";

/// Takes the field with the required signature.
///
/// Invariant: a requirement that has no counterpart is kept, so that the agent refuses the object instead of reading
/// artifacts without a signature.
pub(super) fn signatures(fields: &mut Fields, path: &str) -> Option<Value> {
    let mut verify = fields.take(path)?;
    let is_notation = verify["provider"] == "notation";
    if !is_notation && !matches!(verify["provider"].as_str(), None | Some("cosign")) {
        let remedy = "sign with `cosign sign --key`, and name the keys in `verify.secretRef`";
        let text = "only signatures of cosign and notation are verified, so the agent refuses the object";
        fields.lost(path, format!("{text}: {remedy}"));
        return Some(verify);
    }
    if is_notation && verify["secretRef"].is_null() {
        let remedy = "name a Secret with `trustpolicy.json` and the certificates in `verify.secretRef`";
        fields.lost(path, format!("it has no trust policy, so the agent refuses the object: {remedy}"));
        return Some(verify);
    }
    if is_notation {
        fields.ask(path, TRUST_POLICY);
    }
    if verify["secretRef"].is_null() {
        if verify["matchOIDCIdentity"].as_array().is_none_or(Vec::is_empty) {
            let remedy = "list the accepted ones in `verify.matchOIDCIdentity`";
            let text = "Flux accepts the signature of any identity here, so the agent refuses the object";
            fields.lost(path, format!("{text}: {remedy}"));
        }
        return Some(verify);
    }
    for field in ["matchOIDCIdentity", "trustedRootSecretRef"] {
        let removed = verify.as_object_mut().and_then(|verify| verify.remove(field));
        if removed.is_some_and(|value| !value.is_null()) {
            fields.differs(path, format!("`{field}` is left out: Flux, too, ignores it next to `secretRef`"));
        }
    }
    Some(verify)
}

/// Takes the fields of the identity of a cloud.
pub(super) fn identity(fields: &mut Fields, made: &mut Converted, document: &Document) {
    const PROVIDER: &str = "spec.provider";
    const ACCOUNT: &str = "spec.serviceAccountName";
    let provider = fields.text(PROVIDER).filter(|provider| provider != "generic");
    let Some(provider) = provider else {
        return fields.drop_lost(ACCOUNT, "name a Secret with a login in `secretRef`");
    };
    let account = fields.text(ACCOUNT);
    if !can_have_identity(fields, made, PROVIDER) {
        if account.is_some() {
            fields.differs(ACCOUNT, "it is left out, because the Secret in `secretRef` has the login");
        }
        return;
    }
    made.set("provider", provider, document, PROVIDER);
    match account {
        Some(account) => made.set("serviceAccountName", account, document, ACCOUNT),
        None => fields.ask(PROVIDER, OWN_IDENTITY),
    }
}

/// Whether an object may have the identity of a cloud. Leaves out what contradicts it; notes have this `path`.
pub(super) fn can_have_identity(fields: &mut Fields, made: &mut Converted, path: &str) -> bool {
    if !made.object["spec"]["secretRef"].is_null() {
        // Flux, too, uses the Secret if there is one.
        fields.differs(path, "`provider` is left out, because the Secret in `secretRef` has the login");
        return false;
    }
    let Some(spec) = made.object["spec"].as_object_mut() else { return false };
    for field in ["certSecretRef", "insecure"] {
        if spec.remove(field).is_some_and(|value| value != false) {
            fields.differs(path, format!("`{field}` is left out: hosts of clouds have public certificates"));
        }
    }
    true
}

/// The remedy if an object used the identity of Flux's controller.
pub(super) const OWN_IDENTITY: &str = "let the ServiceAccount of the agent have the identity at the cloud that Flux's controller \
                                       had, and allow the namespace (`--allow-namespace`); or name a ServiceAccount in `serviceAccountName`";

pub(super) fn convert(document: &Document, namespace: &str, conversion: &mut Conversion) {
    let mut fields = Fields::new(&document.object);
    let mut made = Converted::in_place_of(document, Printed::OciRepository, namespace, document.name());
    made.put_metadata("labels", fields.map("metadata.labels"));
    made.put_metadata("annotations", annotations(&mut fields));
    for name in SAME {
        let path = format!("spec.{name}");
        if let Some(value) = fields.take(&path) {
            made.set(name, value, document, &path);
        }
    }
    identity(&mut fields, &mut made, document);
    if let Some(verify) = signatures(&mut fields, "spec.verify") {
        made.set("verify", verify, document, "spec.verify");
    }
    conversion.add(made, document, fields.finish());
}
