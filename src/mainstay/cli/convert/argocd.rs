//! Applications of Argo CD become GitRepositories and GitSyncs.

use std::collections::BTreeMap;

use super::application;
use super::application_set::{self, Tree};
use super::document::Document;
use super::report::{Conversion, Judged};
use super::repositories::Repositories;

/// The API group of Argo CD.
pub(super) const GROUP: &str = "argoproj.io";

/// Converts objects of Argo CD, into the namespace `target`, if given, instead of their own namespaces. `tree` is the
/// repository that the generators of ApplicationSets read.
pub(super) fn convert(documents: &[Document], target: Option<&str>, tree: &Tree) -> Conversion {
    let of = |kind: &'static str| documents.iter().filter(move |document| document.kind() == kind);
    let projects: BTreeMap<&str, &Document> = of("AppProject").map(|project| (project.name(), project)).collect();
    let mut repositories = Repositories::default();
    let mut syncs = Conversion::default();
    for document in documents {
        match document.kind() {
            "Application" => application::convert(document, target, &projects, &mut repositories, &mut syncs),
            "ApplicationSet" => match application_set::applications(document, tree) {
                Ok((applications, judged)) => {
                    syncs.judged.push(judged);
                    for application in &applications {
                        application::convert(application, target, &projects, &mut repositories, &mut syncs);
                    }
                }
                Err(why) => syncs.judged.push(Judged::lost(document, why)),
            },
            "AppProject" => syncs.judged.push(application::project(document)),
            kind => syncs.judged.push(Judged::lost(document, format!("{kind} has no counterpart"))),
        }
    }
    let mut conversion = repositories.into_conversion();
    conversion.objects.extend(syncs.objects);
    conversion.judged.extend(syncs.judged);
    conversion
}
