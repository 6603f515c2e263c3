//! A GitRepository of Flux becomes a GitRepository of Mainstay.

use serde_json::json;

use super::converted::{Converted, Printed};
use super::document::Document;
use super::fields::Fields;
use super::known::{annotations, labels};
use super::oci_repository::OWN_IDENTITY;
use super::report::Conversion;

/// Adds a GitRepository in a namespace. If a source results in several GitRepositories, notes are created only for the
/// first.
pub(super) fn convert(document: &Document, namespace: &str, is_first: bool, conversion: &mut Conversion) {
    let mut fields = Fields::new(&document.object);
    let mut made = Converted::in_place_of(document, Printed::GitRepository, namespace, document.name());
    made.put_metadata("labels", labels(&mut fields));
    made.put_metadata("annotations", annotations(&mut fields));
    let url = fields.text("spec.url").unwrap_or_default();
    let is_ssh = url.starts_with("ssh://");
    made.set("url", url, document, "spec.url");
    if let Some(secret) = fields.text("spec.secretRef.name") {
        let kind = if is_ssh { "key" } else { "basic" };
        made.set("auth", json!({"type": kind, "secretName": secret.as_str()}), document, "spec.secretRef");
    }
    if fields.flag("spec.recurseSubmodules") == Some(true) {
        made.set("submodules", true, document, "spec.recurseSubmodules");
    }
    if let Some(proxy) = fields.take("spec.proxySecretRef") {
        made.set("proxySecretRef", proxy, document, "spec.proxySecretRef");
    }
    if let Some(mut verify) = fields.take("spec.verify") {
        if verify["mode"] == "head" {
            verify["mode"] = "HEAD".into();
        }
        made.set("verify", verify, document, "spec.verify");
    }
    match fields.text("spec.provider") {
        Some(provider) if provider != "generic" => {
            let account = fields.text("spec.serviceAccountName");
            let is_cloud = provider != "github";
            if account.is_none() && is_cloud {
                fields.ask("spec.provider", OWN_IDENTITY);
            }
            if is_cloud && made.object["spec"].as_object_mut().and_then(|spec| spec.remove("auth")).is_some() {
                fields.differs("spec.secretRef", "it is left out: hosts of clouds have public certificates");
            }
            made.set("provider", provider, document, "spec.provider");
            if let Some(account) = account {
                made.set("serviceAccountName", account, document, "spec.serviceAccountName");
            }
        }
        _ => {}
    }
    fields.drop_unneeded(&["spec.ref", "spec.interval", "spec.suspend"]);
    fields.drop_different("spec.timeout", "the timeout cannot be set: the agent has fixed timeouts");
    fields.drop_different("spec.sparseCheckout", "only files below `baseDir` of the GitSyncs are read");
    fields.drop_lost("spec.ignore", "put it into a file .mainstayignore of the repository");
    fields.drop_lost("spec.include", "use submodules, or bases and components of the same repository");
    if is_first {
        conversion.add(made, document, fields.finish());
    } else {
        conversion.objects.push(made);
    }
}
