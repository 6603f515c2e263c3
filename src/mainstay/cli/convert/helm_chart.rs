//! The chart of a HelmRepository of Flux becomes a HelmChart.

use serde_json::json;

use super::converted::{Converted, Printed};
use super::document::Document;
use super::fields::Fields;
use super::known::{Known, annotations, counterpart, labels};
use super::oci_repository::{OWN_IDENTITY, can_have_identity, signatures};
use super::references::copies;
use super::refused::{field_of, problems};
use super::report::{Conversion, Judged, refused};

/// Converts a HelmChart of Flux.
pub(super) fn convert<'a>(known: &mut Known<'a>, document: &'a Document, conversion: &mut Conversion) {
    let namespace = known.namespace(document.namespace()).to_owned();
    let mut made = Converted::in_place_of(document, Printed::HelmChart, &namespace, document.name());
    let mut fields = Fields::new(&document.object);
    made.put_metadata("labels", labels(&mut fields));
    made.put_metadata("annotations", annotations(&mut fields));
    if let Err(text) = chart(known, &mut made, &mut fields, document, "spec") {
        return conversion.judged.push(Judged::lost(document, text));
    }
    fields.drop_lost("spec.valuesFiles", "name them in `render.helm.valuesFiles` of the GitSync");
    conversion.add(made, document, fields.finish());
}

/// Adds a HelmChart for the chart that a HelmRelease names, and sets it as the source of the GitSync.
///
/// # Errors
/// The reason why the chart has no counterpart.
pub(super) fn of_release<'a>(
    known: &mut Known<'a>,
    sync: &mut Converted,
    fields: &mut Fields,
    document: &'a Document,
    conversion: &mut Conversion,
) -> Result<(), String> {
    let at = |field: &str| sync.object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (at("namespace"), at("name"));
    let mut made = Converted::new(Printed::HelmChart, &namespace, &name);
    chart(known, &mut made, fields, document, "spec.chart.spec")?;
    if let Some(problem) = made.problem() {
        return Err(problem);
    }
    let has_lost = fields.has_lost("spec.chart.spec.verify");
    for problem in problems(&made).iter().filter(|problem| !(has_lost && problem.starts_with("spec.verify"))) {
        let (field, why) = field_of(problem);
        fields.ask("spec.chart", format!("HelmChart {name}: {field}: {}", refused(why)));
    }
    conversion.objects.push(made);
    sync.set("sourceRef", json!({"kind": "HelmChart", "name": name}), document, "spec.chart");
    Ok(())
}

/// Sets the fields of a HelmChart from those of a chart at `path`, and from its HelmRepository.
fn chart<'a>(
    known: &mut Known<'a>,
    made: &mut Converted,
    fields: &mut Fields,
    document: &'a Document,
    path: &str,
) -> Result<(), String> {
    let at = |field: &str| format!("{path}.{field}");
    let reference = fields.take(&at("sourceRef")).unwrap_or_default();
    if reference["kind"] != "HelmRepository" {
        return Err(counterpart(reference["kind"].as_str().unwrap_or_default()).to_owned());
    }
    let name = reference["name"].as_str().unwrap_or_default();
    let namespace = reference["namespace"].as_str().unwrap_or(document.namespace());
    let Some(source) = known.use_charts(namespace, name) else {
        return Err(format!(
            "HelmRepository {namespace}/{name} is not among the objects: convert it together with the chart"
        ));
    };
    let url = source.field("/spec/url");
    made.set("repository", url, source, "spec.url");
    for (field, from) in [("name", "chart"), ("version", "version"), ("interval", "interval")] {
        if let Some(value) = fields.take(&at(from)) {
            made.set(field, value, document, &at(from));
        }
    }
    for field in ["secretRef", "certSecretRef", "interval", "timeout", "suspend"] {
        let value = &source.object["spec"][field];
        if made.object["spec"].get(field).is_none() && !value.is_null() {
            made.set(field, value.clone(), source, &format!("spec.{field}"));
        }
    }
    if source.object["spec"]["insecure"] == true || url.starts_with("http://") {
        made.put("insecure", true);
    }
    let own = made.object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    for note in copies(source, &own) {
        fields.ask(&at("sourceRef"), note.text);
    }
    if source.object["spec"]["passCredentials"] == true {
        fields.lost(&at("sourceRef"), "the login of the HelmRepository is sent to the host of the repository only");
    }
    let provider = source.field("/spec/provider");
    // Flux has no identities for other repositories either.
    let is_cloud = !matches!(provider, "" | "generic") && url.starts_with("oci://");
    if is_cloud && can_have_identity(fields, made, &at("sourceRef")) {
        made.set("provider", provider, source, "spec.provider");
        fields.ask(&at("sourceRef"), OWN_IDENTITY);
    }
    if let Some(verify) = signatures(fields, &at("verify")) {
        made.set("verify", verify, document, &at("verify"));
    }
    fields.drop_unneeded(&[&at("reconcileStrategy")]);
    fields.drop_different(&at("ignoreMissingValuesFiles"), "a missing file with values is an error");
    Ok(())
}
