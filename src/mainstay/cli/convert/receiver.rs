//! A Receiver of Flux becomes a Receiver of Mainstay.

use serde_json::{Value, json};

use super::converted::{Converted, Printed};
use super::document::Document;
use super::fields::Fields;
use super::known::{annotations, labels};
use super::report::{Conversion, Judged};
use mainstay_api::ReceiverType;

/// Types of Git hosts, whose deliveries name a pushed repository.
const PUSHES: [&str; 3] = ["github", "gitlab", "bitbucket"];
/// Kinds that a delivery wakes in both.
const KINDS: [&str; 4] = ["GitRepository", "OCIRepository", "HelmChart", "ImageRepository"];
/// Kinds whose names `repositories` takes.
const REPOSITORIES: [&str; 2] = ["GitRepository", "OCIRepository"];

pub(super) fn convert(document: &Document, namespace: &str, conversion: &mut Conversion) {
    let mut fields = Fields::new(&document.object);
    let mut made = Converted::in_place_of(document, Printed::Receiver, namespace, document.name());
    made.put_metadata("labels", labels(&mut fields));
    made.put_metadata("annotations", annotations(&mut fields));
    let kind = fields.text("spec.type").unwrap_or_default();
    if ReceiverType::parse(&kind).is_none() {
        return conversion.judged.push(Judged::lost(document, format!("deliveries of type {kind} are not supported")));
    }
    made.set("type", kind, document, "spec.type");
    for field in ["events", "secretRef", "suspend", "oidcProviders"] {
        if let Some(value) = fields.take(&format!("spec.{field}")) {
            made.set(field, value, document, &format!("spec.{field}"));
        }
    }
    report_issuers(document, &mut fields);
    convert_resources(document, namespace, &mut fields, &mut made);
    if let Some(filter) = fields.take("spec.resourceFilter").filter(|filter| filter != "") {
        made.set("resourceFilter", filter, document, "spec.resourceFilter");
    }
    fields.drop_different("spec.interval", "it has no effect: a Receiver is read again when it changes");
    fields.ask("", "the webhook URL changes: copy it from `status.url` to the webhook settings of the sender");
    conversion.add(made, document, fields.finish());
}

/// Reports issuers without encryption, which have no counterpart. They are kept, so that the agent refuses the object.
fn report_issuers(document: &Document, fields: &mut Fields) {
    let providers = document.object["spec"]["oidcProviders"].as_array();
    for (number, provider) in providers.into_iter().flatten().enumerate() {
        let issuer = provider["issuerURL"].as_str().unwrap_or_default();
        if issuer.starts_with("http://") {
            let text = "the agent reads keys over HTTPS only, so it refuses the object: serve the issuer with TLS";
            fields.lost(&format!("spec.oidcProviders[{number}].issuerURL"), text);
        }
    }
}

/// Converts `spec.resources`. A Receiver none of whose resources is converted looks up nothing, not everything.
fn convert_resources(document: &Document, namespace: &str, fields: &mut Fields, made: &mut Converted) {
    let resources = fields.list("spec.resources");
    let mut kept = Vec::new();
    for resource in &resources {
        let shown = format!("{} {}", resource["kind"], resource["name"]).replace('"', "");
        let is_elsewhere =
            resource["namespace"].as_str().is_some_and(|other| other != namespace && other != document.namespace());
        if !KINDS.iter().any(|kind| resource["kind"] == *kind) {
            let text = if PUSHES.contains(&document.field("/spec/type")) {
                format!("a delivery triggers the objects that follow the pushed repository, not {shown}")
            } else {
                format!("{shown} is not looked up: a delivery triggers sources, and the objects that follow them")
            };
            fields.differs("spec.resources", text);
        } else if is_elsewhere || !resource["filter"].is_null() {
            let text = format!("{shown}: name each object of this namespace, and use resourceFilter instead of filter");
            fields.lost("spec.resources", text);
        } else {
            kept.push(entry(resource, &shown, fields));
        }
    }
    if kept.is_empty() {
        fields.lost(
            "spec.resources",
            "no resource is converted, so no delivery has an effect: name sources in `repositories`",
        );
        return made.set("repositories", json!([]), document, "spec.resources");
    }
    // `repositories` selects objects of any kind, which a filter would judge, too. Without a filter, it reports missing ones.
    let has_filter = !document.field("/spec/resourceFilter").is_empty();
    let is_named = |entry: &Value| entry["name"] != "*" && REPOSITORIES.iter().any(|kind| entry["kind"] == *kind);
    if !has_filter && kept.iter().all(is_named) {
        let names: Vec<_> = kept.iter().map(|entry| entry["name"].clone()).collect();
        made.set("repositories", names, document, "spec.resources");
    } else {
        made.set("resources", kept, document, "spec.resources");
    }
}

/// Returns an entry of `spec.resources` with the fields that have an effect in Flux.
fn entry(resource: &Value, shown: &str, fields: &mut Fields) -> Value {
    let mut entry = json!({"kind": resource["kind"], "name": resource["name"]});
    let labels = &resource["matchLabels"];
    match (resource["name"] == "*", labels.is_null()) {
        (true, false) => entry["matchLabels"] = labels.clone(),
        (true, true) => {
            let text = format!("{shown}: all objects of the kind are looked up; Flux refuses `*` without matchLabels");
            fields.differs("spec.resources", text);
        }
        (false, false) => {
            let text = format!("{shown}: matchLabels is left out; Flux ignores it without the name `*`");
            fields.differs("spec.resources", text);
        }
        (false, true) => {}
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::convert::fields::Fate;
    use crate::cli::convert::flux;

    /// Converts a Receiver with these fields. Returns its spec, the number of lost fields, and the report.
    fn converted(spec: &Value) -> (Value, usize, String) {
        let mut object = json!({
            "apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": "Receiver",
            "metadata": {"name": "hook", "namespace": "shop"}, "spec": spec,
        });
        object["spec"]["type"] = "generic".into();
        object["spec"]["secretRef"] = json!({"name": "hook"});
        let conversion = flux::convert(&[Document::of(object)], None);
        let [made] = &conversion.objects[..] else { panic!("{}", conversion.text()) };
        assert_eq!(made.problem(), None);
        (made.object["spec"].clone(), conversion.count(Fate::Lost), conversion.text())
    }

    #[test]
    fn labels_and_a_filter_are_carried_over() {
        let resources = json!([
            {"kind": "GitRepository", "name": "*", "matchLabels": {"app": "web"}},
            {"kind": "ImageRepository", "name": "web"},
        ]);
        let filter = "req.tag.split('/').last().value() == res.metadata.name";
        let (spec, lost, text) = converted(&json!({"resources": resources, "resourceFilter": filter}));
        assert_eq!((&spec["resources"], &spec["resourceFilter"], lost), (&resources, &filter.into(), 0), "{text}");
        let named = json!([{"kind": "GitRepository", "name": "web", "matchLabels": {"app": "web"}}]);
        let (spec, lost, text) =
            converted(&json!({"resources": named, "resourceFilter": "timestamp(req.at) > timestamp(res.at)"}));
        let kept = json!([{"kind": "GitRepository", "name": "web"}]);
        assert_eq!((&spec["resources"], spec.get("repositories"), lost), (&kept, None, 0), "{text}");
        assert!(text.contains("Flux ignores it") && text.contains("there is no function `timestamp`"), "{text}");
    }

    #[test]
    fn a_filter_keeps_the_kinds_of_named_objects() {
        let named = json!([{"kind": "GitRepository", "name": "web"}, {"kind": "OCIRepository", "name": "web"}]);
        let (spec, _, text) = converted(&json!({"resources": named}));
        assert_eq!((&spec["repositories"], spec.get("resources")), (&json!(["web", "web"]), None), "{text}");
        let (spec, _, text) = converted(&json!({"resources": named, "resourceFilter": ""}));
        assert_eq!((&spec["repositories"], spec.get("resources")), (&json!(["web", "web"]), None), "{text}");
        let (spec, _, text) = converted(&json!({"resources": named, "resourceFilter": "req.tag == '1'"}));
        assert_eq!((&spec["resources"], spec.get("repositories")), (&named, None), "{text}");
    }

    #[test]
    fn other_kinds_are_reported_in_the_words_of_the_sender() {
        let (_, _, text) = converted(&json!({"resources": [{"kind": "ImagePolicy", "name": "p"}], "interval": "10m"}));
        assert!(text.contains("ImagePolicy p is not looked up") && !text.contains("pushed repository"), "{text}");
        assert!(text.contains("spec.interval: it has no effect"), "{text}");
    }

    #[test]
    fn a_receiver_without_a_converted_resource_looks_up_nothing() {
        for resource in [
            json!({"kind": "GitRepository", "name": "web", "namespace": "other"}),
            json!({"kind": "GitRepository", "name": "*", "namespace": "other", "matchLabels": {"app": "web"}}),
            json!({"kind": "Kustomization", "name": "web"}),
        ] {
            let (spec, lost, text) = converted(&json!({"resources": [resource]}));
            assert_eq!((&spec["repositories"], spec.get("resources")), (&json!([]), None), "{text}");
            assert!(lost > 0 && text.contains("no delivery has an effect"), "{text}");
        }
        let (spec, _, text) = converted(&json!({"resources": [{"kind": "OCIRepository", "name": "*"}]}));
        assert_eq!(spec["resources"], json!([{"kind": "OCIRepository", "name": "*"}]), "{text}");
    }
}
