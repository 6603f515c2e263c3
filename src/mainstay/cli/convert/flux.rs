//! Objects of Flux become GitRepositories, OCIRepositories, HelmCharts, GitSyncs, Receivers, Providers,
//! Alerts and the kinds of image automation.

use std::collections::BTreeSet;

use super::document::Document;
use super::known::{Known, counterpart};
use super::report::{Conversion, Judged};
use super::{
    helm_chart, helm_release, images, kustomization, notification, oci_repository, receiver, references, repository,
};

/// The suffix of the API groups of Flux.
pub(super) const GROUP: &str = "toolkit.fluxcd.io";

/// Converts objects of Flux, into the namespace `target`, if given, instead of their own namespaces.
pub(super) fn convert(documents: &[Document], target: Option<&str>) -> Conversion {
    let mut documents = documents.to_vec();
    if let Some(target) = target {
        references::separate(&mut documents, target);
    }
    let documents = &documents[..];
    let mut known = Known::new(documents, target);
    let mut syncs = Conversion::default();
    let mut used = BTreeSet::new();
    for document in documents {
        match document.kind() {
            "GitRepository" | "HelmRepository" => {}
            "OCIRepository" => oci_repository::convert(document, known.namespace(document.namespace()), &mut syncs),
            "Kustomization" => kustomization::convert(&mut known, document, &mut syncs),
            "HelmChart" => helm_chart::convert(&mut known, document, &mut syncs),
            "HelmRelease" => helm_release::convert(&mut known, document, &mut syncs),
            kind if images::KINDS.contains(&kind) => images::convert(&mut known, document, &mut syncs),
            "Receiver" => receiver::convert(document, known.namespace(document.namespace()), &mut syncs),
            "Provider" => notification::provider(document, known.namespace(document.namespace()), &mut syncs),
            "Alert" => notification::alert(&known, document, &mut syncs),
            kind => syncs.judged.push(Judged::lost(document, counterpart(kind))),
        }
    }
    let mut conversion = Conversion::default();
    let needed = std::mem::take(&mut known.needed);
    for (own, namespace, name) in &needed {
        if let Some(source) = known.sources.get(&(*namespace, *name)) {
            repository::convert(source, own, used.insert((*namespace, *name)), &mut conversion);
        }
    }
    for ((namespace, name), source) in &known.sources {
        if !used.contains(&(*namespace, *name)) {
            repository::convert(source, known.namespace(namespace), true, &mut conversion);
        }
    }
    for (document, is_used) in known.charts.values() {
        let judged = if *is_used {
            Judged::new(document, Vec::new())
        } else {
            Judged::lost(document, counterpart("HelmRepository"))
        };
        conversion.judged.push(judged);
    }
    conversion.objects.extend(syncs.objects);
    conversion.judged.extend(syncs.judged);
    conversion
}
