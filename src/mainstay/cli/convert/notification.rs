//! A Provider and an Alert of Flux become a Provider and an Alert of Mainstay, with the same fields.

use reqwest::Url;
use serde_json::Value;

use super::converted::{Converted, Printed};
use super::document::Document;
use super::fields::Fields;
use super::images::KINDS as IMAGES;
use super::known::{Known, annotations, labels};
use super::oci_repository::OWN_IDENTITY;
use super::report::{Conversion, Judged};
use mainstay_notification::ProviderType;

/// Fields of a Provider that are taken as they are.
const PROVIDER: [&str; 10] = [
    "type",
    "address",
    "channel",
    "username",
    "secretRef",
    "certSecretRef",
    "proxySecretRef",
    "timeout",
    "suspend",
    "interval",
];
/// Types whose Providers may have an identity of a cloud.
const IDENTITIES: [&str; 3] = ["azuredevops", "azureeventhub", "googlepubsub"];
/// Fields of an Alert that are taken as they are.
const ALERT: [&str; 7] =
    ["providerRef", "eventSeverity", "inclusionList", "exclusionList", "eventMetadata", "summary", "suspend"];
/// Kinds of sources that become GitSyncs.
const SYNCS: [&str; 2] = ["Kustomization", "HelmRelease"];

fn begun(document: &Document, kind: Printed, namespace: &str, fields: &mut Fields) -> Converted {
    let mut made = Converted::in_place_of(document, kind, namespace, document.name());
    made.put_metadata("labels", labels(fields));
    made.put_metadata("annotations", annotations(fields));
    made
}

fn take(made: &mut Converted, fields: &mut Fields, document: &Document, names: &[&str]) {
    for name in names {
        let path = format!("spec.{name}");
        if let Some(value) = fields.take(&path) {
            made.set(name, value, document, &path);
        }
    }
}

pub(super) fn provider(document: &Document, namespace: &str, conversion: &mut Conversion) {
    let kind = document.object["spec"]["type"].as_str().unwrap_or_default();
    if ProviderType::parse(kind).is_none() {
        return conversion.judged.push(Judged::lost(document, format!("Providers of type {kind} are not supported")));
    }
    let mut fields = Fields::new(&document.object);
    let mut made = begun(document, Printed::Provider, namespace, &mut fields);
    take(&mut made, &mut fields, document, &PROVIDER);
    let proxy = document.field("/spec/proxy");
    if proxy.contains('@') {
        let text =
            "its login is left out: put address, username and password into a Secret, and name it in `proxySecretRef`";
        fields.drop_lost("spec.proxy", text);
        made.set("proxy", without_login(proxy), document, "spec.proxy");
    }
    take(&mut made, &mut fields, document, &["proxy", "commitStatusExpr"]);
    identity(kind, &mut made, &mut fields, document);
    conversion.add(made, document, fields.finish());
}

/// The address of a proxy that the agent refuses.
const UNUSABLE: &str = "http:";

/// Returns the address of a proxy without its login. Without a proxy, messages would be sent directly. The result for an
/// address that is not a URL is refused by the agent.
fn without_login(proxy: &str) -> String {
    let Ok(mut url) = Url::parse(proxy) else { return UNUSABLE.to_owned() };
    match url.set_username("").and_then(|()| url.set_password(None)) {
        Ok(()) => url.to_string(),
        Err(()) => UNUSABLE.to_owned(),
    }
}

/// Takes the ServiceAccount of a Provider, and says what the user has to do if the Provider had Flux's own identity.
fn identity(kind: &str, made: &mut Converted, fields: &mut Fields, document: &Document) {
    if !IDENTITIES.contains(&kind) {
        return fields
            .drop_lost("spec.serviceAccountName", "this type has no identities of clouds: name a Secret with a token");
    }
    take(made, fields, document, &["serviceAccountName"]);
    let spec = &document.object["spec"];
    let has_key = spec["address"].as_str().is_some_and(|address| address.contains("SharedAccessKey"));
    if kind == "azureeventhub" && has_key {
        fields.ask(
            "spec.address",
            "put the address with its key into a Secret, as `address`, and name it in `secretRef`",
        );
    } else if spec["serviceAccountName"].is_null() && spec["secretRef"].is_null() {
        fields.ask("spec.serviceAccountName", OWN_IDENTITY);
    }
}

pub(super) fn alert(known: &Known<'_>, document: &Document, conversion: &mut Conversion) {
    let namespace = known.namespace(document.namespace());
    let mut fields = Fields::new(&document.object);
    let mut made = begun(document, Printed::Alert, namespace, &mut fields);
    take(&mut made, &mut fields, document, &ALERT);
    let mut sources = Vec::new();
    for mut source in fields.list("spec.eventSources") {
        let kind = source["kind"].as_str().unwrap_or_default().to_owned();
        if SYNCS.contains(&kind.as_str()) {
            source["kind"] = "GitSync".into();
        } else if kind == "GitRepository" {
            fields.differs(
                "spec.eventSources",
                "a failure to read the repository is a message about the GitSync: select that, too",
            );
        } else if !IMAGES.contains(&kind.as_str()) {
            fields.differs(
                "spec.eventSources",
                format!("there are no messages about the kind {kind}: the source is dropped"),
            );
            continue;
        }
        let place = source["namespace"].as_str().map(|place| known.namespace(place).to_owned());
        if place.as_deref() == Some(namespace) {
            source["namespace"] = Value::Null;
        } else if let Some(place) = place {
            source["namespace"] = place.into();
            let text = "only an Alert in a namespace that the agent trusts selects objects of other namespaces";
            fields.differs("spec.eventSources", text);
        }
        if let Some(fields) = source.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    if sources.is_empty() {
        let text = "there are no messages about its sources; select GitSyncs or Functions";
        return conversion.judged.push(Judged::lost(document, text.to_owned()));
    }
    made.set("eventSources", Value::Array(sources), document, "spec.eventSources");
    conversion.add(made, document, fields.finish());
}
