//! A Receiver of Flux becomes a Receiver of Mainstay.

use super::converted::{Converted, OURS};
use super::document::Document;
use super::fields::Fields;
use super::known::{annotations, labels};
use super::report::{Conversion, Judged};

/// Types that Flux and Mainstay both have.
const TYPES: [&str; 5] = ["github", "gitlab", "bitbucket", "generic", "generic-hmac"];

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
    let resources = fields.list("spec.resources");
    let is_repository = |resource: &&serde_json::Value| resource["kind"] == "GitRepository";
    for other in resources.iter().filter(|resource| !is_repository(resource)) {
        let (kind, name) = (&other["kind"], &other["name"]);
        let text = format!("a delivery triggers the objects that follow the pushed repository, not {kind} {name}");
        fields.differs("spec.resources", text.replace('"', ""));
    }
    let named = resources.iter().filter(is_repository).map(|resource| resource["name"].clone());
    let named: Vec<_> = named.collect();
    if named.iter().any(|name| *name == "*") {
        fields.differs("spec.resources", "all GitRepositories of the namespace that the delivery names are looked up");
    } else if !named.is_empty() {
        made.set("repositories", named, document, "spec.resources");
    }
    fields.drop_unneeded(&["spec.interval"]);
    for field in ["spec.resourceFilter", "spec.filter"] {
        fields.drop_lost(field, "deliveries are not filtered by expressions");
    }
    fields.ask("", "the webhook URL changes: copy it from `status.url` to the webhook settings of the Git host");
    conversion.add(made, document, fields.finish());
}
