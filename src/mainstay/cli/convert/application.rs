//! An Application of Argo CD becomes a GitSync.

use std::collections::BTreeMap;

use globset::Glob;
use serde_json::{Map, Value, json};

use super::converted::{Converted, Printed};
use super::document::Document;
use super::fields::Fields;
use super::helm_values;
use super::kustomization::base_dir;
use super::report::{Conversion, Judged, refused};
use super::repositories::{Repositories, is_ssh};

/// The finalizer that makes Argo CD delete the objects together with their Application.
const FINALIZER: &str = "resources-finalizer.argocd.argoproj.io";
/// The names of the cluster in which Argo CD runs.
const HERE: [&str; 2] = ["https://kubernetes.default.svc", "in-cluster"];
/// Options of a sync that need no counterpart.
const OPTIONS: [&str; 7] = [
    "ApplyOutOfSyncOnly=true",
    "FailOnSharedResource=true",
    "PruneLast=true",
    "RespectIgnoreDifferences=true",
    "ServerSideApply=true",
    "ServerSideApply=false",
    "SkipDryRunOnMissingResource=true",
];

pub(super) fn convert(
    document: &Document,
    target: Option<&str>,
    projects: &BTreeMap<&str, &Document>,
    repositories: &mut Repositories,
    conversion: &mut Conversion,
) {
    let mut fields = Fields::new(&document.object);
    if document.object["spec"]["source"].is_null() {
        match &fields.list("spec.sources")[..] {
            [only] => {
                let mut one = document.clone();
                one.object["spec"]["source"] = only.clone();
                one.object["spec"].as_object_mut().map(|spec| spec.remove("sources"));
                return convert(&one, target, projects, repositories, conversion);
            }
            sources => {
                let text = format!("it has {} sources: make an Application of each", sources.len());
                return conversion.judged.push(Judged::lost(document, text));
            }
        }
    }
    for (field, text) in [
        ("chart", "charts from Helm repositories are not converted: put the chart into Git, or write a HelmChart"),
        ("plugin", "plugins are not supported: commit the output of the plugin to Git"),
    ] {
        if !document.object["spec"]["source"][field].is_null() {
            return conversion.judged.push(Judged::lost(document, text));
        }
    }
    let namespace = target.unwrap_or(document.namespace());
    let mut made = Converted::in_place_of(document, Printed::GitSync, namespace, document.name());
    made.put_metadata("labels", fields.map("metadata.labels"));
    metadata(&mut made, &mut fields);
    let url = fields.text("spec.source.repoURL").unwrap_or_default();
    made.set("gitRepository", repositories.name_of(namespace, &url), document, "spec.source.repoURL");
    for problem in repositories.problems(namespace, &url) {
        fields.ask("spec.source.repoURL", refused(&problem));
    }
    let login = if is_ssh(&url) { "the Secret that its GitRepository names" } else { "`auth` of its GitRepository" };
    fields.ask("spec.source.repoURL", format!("a private repository needs {login}: mainstay identity shows how"));
    reference(&mut made, &mut fields, document);
    made.set("baseDir", base_dir(&fields.text("spec.source.path").unwrap_or_default()), document, "spec.source.path");
    helm_values::convert(&mut made, &mut fields, document);
    kustomize(&mut made, &mut fields, document);
    directory(&mut fields, document);
    destination(&mut made, &mut fields, document);
    sync_policy(&mut made, &mut fields, document);
    ignored(&mut made, &mut fields, document);
    windows(&mut made, &mut fields, document, projects);
    fields.drop_unneeded(&[
        "spec.project",
        "spec.revisionHistoryLimit",
        "spec.source.ref",
        "spec.source.name",
        "operation",
    ]);
    fields.drop_unneeded(&["spec.info"]);
    conversion.add(made, document, fields.finish());
}

fn metadata(made: &mut Converted, fields: &mut Fields) {
    let finalizers = fields.list("metadata.finalizers");
    if finalizers.iter().filter_map(Value::as_str).any(|finalizer| finalizer.starts_with(FINALIZER)) {
        made.prune_on_delete();
    }
    if fields.take_at(&["metadata", "annotations", "argocd.argoproj.io/sync-wave"]).is_some() {
        fields.lost(
            "metadata.annotations.argocd.argoproj.io/sync-wave",
            "name the GitSyncs that come first in `dependsOn`",
        );
    }
    fields.take_at(&["metadata", "annotations", "argocd.argoproj.io/refresh"]);
}

fn reference(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let from = "spec.source.targetRevision";
    let revision = fields.text(from).unwrap_or_else(|| "HEAD".to_owned());
    let is_range = revision.contains(['*', '^', '~', '<', '>']) || revision.rsplit('.').next() == Some("x");
    if is_range {
        made.set("semver", revision, document, from);
    } else {
        made.set("reference", revision, document, from);
    }
}

fn kustomize(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let at = |field: &str| format!("spec.source.kustomize.{field}");
    for (field, from) in [
        ("namePrefix", "namePrefix"),
        ("nameSuffix", "nameSuffix"),
        ("overrideNamespace", "namespace"),
        ("components", "components"),
    ] {
        if let Some(value) = fields.take(&at(from)) {
            made.set(field, value, document, &at(from));
        }
    }
    for (field, from) in
        [("commonMetadata.labels", "commonLabels"), ("commonMetadata.annotations", "commonAnnotations")]
    {
        if let Some(value) = fields.take(&at(from)) {
            made.set(field, value, document, &at(from));
            if from == "commonLabels" {
                fields.differs(&at(from), "selectors do not get the labels");
            }
        }
    }
    let images: Vec<Value> = fields.list(&at("images")).iter().filter_map(Value::as_str).map(image).collect();
    if !images.is_empty() {
        made.set("images", images, document, &at("images"));
    }
    let (inline, files): (Vec<Value>, Vec<Value>) =
        fields.list(&at("patches")).into_iter().partition(|patch| patch["patch"].is_string());
    if !files.is_empty() {
        fields.lost(
            &at("patches"),
            "only inline patches are converted: list patch files in a kustomization of the directory",
        );
    }
    if !inline.is_empty() {
        made.set("patches", inline, document, &at("patches"));
    }
    fields.drop_different(&at("version"), "the version of kustomize cannot be selected: the agent has only one");
    fields.drop_lost(&at("replicas"), "write the number as a patch in `patches`");
    fields.drop_unneeded(&[&at("forceCommonLabels"), &at("forceCommonAnnotations"), &at("labelWithoutSelector")]);
}

/// Converts an image override: `name=new:tag`, `name:tag` or `name@digest`.
fn image(text: &str) -> Value {
    let (name, new) = text.split_once('=').map_or((None, text), |(name, new)| (Some(name), new));
    let (new, digest) = new.split_once('@').map_or((new, None), |(new, digest)| (new, Some(digest)));
    // The port of a registry is not a tag.
    let tag = new.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'));
    let (new, tag) = tag.map_or((new, None), |(new, tag)| (new, Some(tag)));
    let mut image = json!({"name": name.unwrap_or(new)});
    let new_name = name.map(|_| new).filter(|new| !new.is_empty());
    let parts = [("newName", new_name), ("newTag", tag.filter(|_| digest.is_none())), ("digest", digest)];
    for (field, value) in parts {
        if let Some(value) = value {
            image[field] = value.into();
        }
    }
    image
}

fn directory(fields: &mut Fields, document: &Document) {
    for field in ["spec.source.directory.exclude", "spec.source.directory.include"] {
        fields.drop_lost(field, "name the files in a file .mainstayignore of the repository");
    }
    fields.drop_lost("spec.source.directory.jsonnet", "commit the output of Jsonnet to Git");
    let is_rendered = ["helm", "kustomize"].iter().any(|tool| document.object["spec"]["source"][tool].is_object());
    if fields.flag("spec.source.directory.recurse") != Some(true) && !is_rendered {
        fields.differs(
            "spec.source.directory.recurse",
            "subdirectories of plain manifests are applied, too; to exclude them, list them in .mainstayignore",
        );
    }
}

fn destination(made: &mut Converted, fields: &mut Fields, document: &Document) {
    if let Some(namespace) = fields.text("spec.destination.namespace") {
        made.set("targetNamespace", namespace, document, "spec.destination.namespace");
    }
    for field in ["spec.destination.server", "spec.destination.name"] {
        let other = fields.text(field).filter(|cluster| !HERE.contains(&cluster.as_str()));
        if other.is_some() {
            fields.lost(field, "name a Secret with a kubeconfig of that cluster in `kubeConfig.secretRef`");
            // The GitSync is suspended, so that its objects are not applied to this cluster instead.
            made.put("suspend", true);
        }
    }
}

fn sync_policy(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let automated = "spec.syncPolicy.automated";
    let is_automated = document.object["spec"]["syncPolicy"]["automated"].is_object();
    let is_enabled = fields.flag(&format!("{automated}.enabled")) != Some(false);
    if !is_automated || !is_enabled {
        made.set("suspend", true, document, automated);
        fields.differs(automated, "nothing is applied until `mainstay resume`; drift is not reverted either");
    }
    let prunes = fields.flag(&format!("{automated}.prune")) == Some(true);
    made.set("prune", prunes, document, &format!("{automated}.prune"));
    let heals = fields.flag(&format!("{automated}.selfHeal")) == Some(true);
    made.set("drift", if heals { "Revert" } else { "Report" }, document, &format!("{automated}.selfHeal"));
    fields
        .drop_different(&format!("{automated}.allowEmpty"), "a commit that removes all objects waits for an approval");
    fields.drop_unneeded(&[automated]);
    fields.drop_different(
        "spec.syncPolicy.retry",
        "failed objects are tried again after 1 s at first and at least every 2 minutes",
    );
    fields.drop_lost("spec.syncPolicy.managedNamespaceMetadata", "put the Namespace into Git");
    for option in fields.list("spec.syncPolicy.syncOptions") {
        let field = "spec.syncPolicy.syncOptions";
        match option.as_str().unwrap_or_default() {
            known if OPTIONS.contains(&known) => {}
            "CreateNamespace=true" => fields.lost(field, "CreateNamespace=true: put the Namespace into Git"),
            "CreateNamespace=false" | "Replace=false" | "Force=false" | "Validate=true" | "Prune=true" => {}
            "Replace=true" | "Force=true" => fields.lost(field, "name the kinds that may be replaced in `replace`"),
            "Prune=false" => made.put("prune", false),
            other if other.starts_with("PrunePropagationPolicy=") => {
                fields.differs(field, "removed objects are deleted in the background");
            }
            other => fields.lost(field, format!("{other} has no counterpart")),
        }
    }
}

fn ignored(made: &mut Converted, fields: &mut Fields, document: &Document) {
    let from = "spec.ignoreDifferences";
    let mut rules = Vec::new();
    for rule in fields.list(from) {
        for other in ["jqPathExpressions", "managedFieldsManagers"] {
            if !rule[other].is_null() {
                fields.lost(&format!("{from}.{other}"), "name the fields in `ignore[].paths`");
            }
        }
        let mut target = Map::new();
        for key in ["group", "kind", "name", "namespace"] {
            if let Some(value) =
                rule.get(key).filter(|value| value.as_str().is_some_and(|text| !text.is_empty() && text != "*"))
            {
                target.insert(key.to_owned(), value.clone());
            }
        }
        if rule["jsonPointers"].as_array().is_some_and(|paths| !paths.is_empty()) {
            rules.push(json!({"paths": rule["jsonPointers"], "target": target}));
        }
    }
    if !rules.is_empty() {
        made.set("ignore", rules, document, from);
        let options = document.object["spec"]["syncPolicy"]["syncOptions"].as_array();
        if !options.into_iter().flatten().any(|option| option == "RespectIgnoreDifferences=true") {
            fields.differs(from, "the fields are not applied either, once the object exists");
        }
    }
}

/// Converts the windows of the project that match this Application.
fn windows(made: &mut Converted, fields: &mut Fields, document: &Document, projects: &BTreeMap<&str, &Document>) {
    let name = document.field("/spec/project");
    let Some(project) = projects.get(name) else {
        // The project `default` usually has neither windows nor limits.
        if !["", "default"].contains(&name) {
            let text = format!("the AppProject {name} was not read: convert it together with its Applications");
            fields.lost("spec.project", text);
        }
        return;
    };
    let all = project.object["spec"]["syncWindows"].as_array().into_iter().flatten();
    let concerning: Vec<&Value> = all.filter(|window| concerns(window, document)).collect();
    if concerning.iter().any(|window| window["manualSync"] == true) {
        fields.differs("spec.project", "a manual sync waits for a window, too, unless it overrides the window");
    }
    if !concerning.is_empty() {
        made.put("windows", concerning.into_iter().map(window).collect::<Vec<_>>());
    }
}

/// Whether a window of a project concerns an Application: one of its lists matches, or each with `andOperator`.
fn concerns(window: &Value, document: &Document) -> bool {
    let mut clusters = vec![document.field("/spec/destination/server"), document.field("/spec/destination/name")];
    if clusters.iter().any(|cluster| HERE.contains(cluster)) {
        clusters.extend(HERE);
    }
    let lists = [
        ("applications", vec![document.name()]),
        ("namespaces", vec![document.field("/spec/destination/namespace")]),
        ("clusters", clusters),
    ];
    let matches = lists.iter().filter_map(|(list, values)| {
        let patterns = window[*list].as_array().filter(|patterns| !patterns.is_empty())?;
        let globs = patterns.iter().filter_map(|pattern| Some(Glob::new(pattern.as_str()?).ok()?.compile_matcher()));
        let values: Vec<_> = values.iter().filter(|value| !value.is_empty()).collect();
        Some(globs.into_iter().any(|glob| values.iter().any(|value| glob.is_match(value))))
    });
    let matches: Vec<bool> = matches.collect();
    if window["andOperator"] == true {
        !matches.is_empty() && !matches.contains(&false)
    } else {
        matches.contains(&true)
    }
}

fn window(window: &Value) -> Value {
    let kind = if window["kind"] == "deny" { "Deny" } else { "Allow" };
    let mut made = json!({"kind": kind, "schedule": window["schedule"], "duration": window["duration"]});
    if let Some(zone) = window["timeZone"].as_str().filter(|zone| !zone.is_empty()) {
        made["timeZone"] = zone.into();
    }
    made
}

/// Returns the report about an AppProject. Its windows are converted with its Applications, and RBAC replaces its other
/// fields.
pub(super) fn project(document: &Document) -> Judged {
    let mut fields = Fields::new(&document.object);
    fields.drop_unneeded(&["spec.syncWindows", "spec.description", "metadata.labels", "metadata.finalizers"]);
    let limits = [
        "clusterResourceBlacklist",
        "clusterResourceWhitelist",
        "destinations",
        "namespaceResourceBlacklist",
        "namespaceResourceWhitelist",
        "sourceRepos",
        "sourceNamespaces",
    ];
    for field in limits {
        let field = format!("spec.{field}");
        let allows_all = |value: &Value| {
            let all = |value: &Value| value.as_str().is_none_or(|text| text == "*");
            match value {
                Value::Object(map) => map.values().all(all),
                other => other == "*",
            }
        };
        let list = fields.list(&field);
        if !list.is_empty() && !list.iter().all(allows_all) {
            fields.lost(&field, "give the GitSyncs a `serviceAccountName` whose permissions are limited by RBAC");
        }
    }
    fields.drop_lost("spec.roles", "use RBAC of Kubernetes for GitSyncs");
    fields.drop_lost("spec.orphanedResources", "`mainstay tree` shows the managed objects");
    fields.drop_lost("spec.signatureKeys", "name the keys in `verify` of the GitRepository");
    Judged::new(document, fields.finish())
}
