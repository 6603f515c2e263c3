//! A Receiver of Flux becomes a Receiver of Mainstay.

use serde_json::{Value, json};

use super::converted::{Converted, OURS};
use super::document::Document;
use super::fields::Fields;
use super::known::{annotations, labels};
use super::report::{Conversion, Judged};

/// Types that Flux and Mainstay both have.
const TYPES: [&str; 13] = [
    "github",
    "gitlab",
    "bitbucket",
    "generic",
    "generic-hmac",
    "generic-oidc",
    "dockerhub",
    "quay",
    "acr",
    "gcr",
    "harbor",
    "nexus",
    "cdevents",
];
/// Kinds that a delivery wakes in both.
const SOURCES: [&str; 2] = ["GitRepository", "OCIRepository"];
const IMAGES: &str = "ImageRepository";

pub(super) fn convert(document: &Document, namespace: &str, conversion: &mut Conversion) {
    let mut fields = Fields::new(&document.object);
    let mut made = Converted::in_place_of(document, OURS, "Receiver", namespace, document.name());
    made.put_metadata("labels", labels(&mut fields));
    made.put_metadata("annotations", annotations(&mut fields));
    let kind = fields.text("spec.type").unwrap_or_default();
    if !TYPES.contains(&kind.as_str()) {
        return conversion.judged.push(Judged::lost(document, format!("deliveries of type {kind} are not supported")));
    }
    made.set("type", kind, document, "spec.type");
    for field in ["events", "secretRef", "suspend"] {
        if let Some(value) = fields.take(&format!("spec.{field}")) {
            made.set(field, value, document, &format!("spec.{field}"));
        }
    }
    if let Some(providers) = fields.take("spec.oidcProviders") {
        for provider in providers.as_array().into_iter().flatten() {
            let issuer = provider["issuerURL"].as_str().unwrap_or_default();
            if !issuer.starts_with("https://") {
                let text =
                    format!("the issuer {issuer} must be a URL of HTTPS: its keys are not read without encryption");
                fields.lost("spec.oidcProviders", text);
            }
        }
        made.set("oidcProviders", providers, document, "spec.oidcProviders");
    }
    let resources = fields.list("spec.resources");
    let is_known =
        |resource: &&Value| resource["kind"] == IMAGES || SOURCES.iter().any(|kind| resource["kind"] == *kind);
    for other in resources.iter().filter(|resource| !is_known(resource)) {
        let (kind, name) = (&other["kind"], &other["name"]);
        let text = format!("a delivery triggers the objects that follow the pushed repository, not {kind} {name}");
        fields.differs("spec.resources", text.replace('"', ""));
    }
    let (known, others): (Vec<_>, Vec<_>) =
        resources.iter().filter(is_known).partition(|resource| is_plain(resource, namespace));
    for other in others {
        let (kind, name) = (&other["kind"], &other["name"]);
        let text = format!("{kind} {name}: name each object of this namespace, without labels and expressions");
        fields.lost("spec.resources", text.replace('"', ""));
    }
    let named: Vec<_> = known.iter().map(|resource| resource["name"].clone()).collect();
    if known.iter().any(|resource| resource["kind"] == IMAGES) {
        let own = known.iter().map(|resource| json!({"kind": resource["kind"], "name": resource["name"]}));
        made.set("resources", own.collect::<Vec<_>>(), document, "spec.resources");
    } else if named.iter().any(|name| *name == "*") {
        fields.differs("spec.resources", "all sources of the namespace that the delivery names are looked up");
    } else if !named.is_empty() {
        made.set("repositories", named, document, "spec.resources");
    }
    fields.drop_unneeded(&["spec.interval"]);
    for field in ["spec.resourceFilter", "spec.filter"] {
        fields.drop_lost(field, "deliveries are not filtered by expressions");
    }
    fields.ask("", "the webhook URL changes: copy it from `status.url` to the webhook settings of the sender");
    conversion.add(made, document, fields.finish());
}

/// Whether the resource is named alone, in the namespace of the Receiver.
fn is_plain(resource: &Value, namespace: &str) -> bool {
    let is_here = resource["namespace"].as_str().is_none_or(|other| other == namespace);
    is_here && resource["matchLabels"].is_null() && resource["filter"].is_null()
}
