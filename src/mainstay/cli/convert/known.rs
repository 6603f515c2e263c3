//! The references between objects of Flux, and the fields that several kinds share.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::converted::{Converted, Printed};
use super::document::Document;
use super::fields::Fields;
use super::references::copies;

/// The branch that Flux follows by default.
pub(super) const BRANCH: &str = "master";
/// Prefixes of the labels with which Flux marks the objects that it applied.
const MARKS: [&str; 2] = ["kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"];
/// GitRepositories by namespace and name.
type Sources<'a> = BTreeMap<(&'a str, &'a str), &'a Document>;

/// The objects to which other objects of Flux refer.
pub(super) struct Known<'a> {
    pub(super) sources: Sources<'a>,
    /// HelmRepositories by namespace and name, and whether one of their charts was converted.
    pub(super) charts: BTreeMap<(&'a str, &'a str), (&'a Document, bool)>,
    /// OCIRepositories by namespace and name.
    artifacts: Sources<'a>,
    /// The names of the GitSyncs, by kind, namespace and name of the objects that they replace.
    names: BTreeMap<(&'a str, &'a str, &'a str), String>,
    /// The namespace for all new objects, if one is given.
    target: Option<&'a str>,
    /// GitRepositories that are needed: namespace of the GitSync, then namespace and name of the source.
    pub(super) needed: BTreeSet<(String, &'a str, &'a str)>,
}

impl<'a> Known<'a> {
    pub(super) fn new(documents: &'a [Document], target: Option<&'a str>) -> Self {
        let of = |kind: &'static str| documents.iter().filter(move |document| document.kind() == kind);
        let key = |document: &'a Document| (document.namespace(), document.name());
        let sources = of("GitRepository").map(|document| (key(document), document)).collect();
        let charts = of("HelmRepository").map(|document| (key(document), (document, false))).collect();
        let artifacts = of("OCIRepository").map(|document| (key(document), document)).collect();
        let mut names = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for document in of("Kustomization").chain(of("HelmRelease")) {
            let namespace = target.unwrap_or(document.namespace());
            let plain = document.name().to_owned();
            let candidates = [plain.clone(), format!("{plain}-release"), format!("{}-{plain}", document.namespace())];
            let free = candidates.into_iter().find(|name| taken.insert((namespace, name.clone())));
            names.insert((document.kind(), document.namespace(), document.name()), free.unwrap_or(plain));
        }
        Self { sources, charts, artifacts, names, target, needed: BTreeSet::new() }
    }

    /// Returns the namespace of a new object that replaces an object in `namespace`.
    pub(super) fn namespace<'n>(&self, namespace: &'n str) -> &'n str
    where
        'a: 'n,
    {
        self.target.unwrap_or(namespace)
    }

    /// Returns the GitSync that replaces an object of Flux.
    pub(super) fn git_sync(&self, document: &'a Document) -> Converted {
        let (namespace, name) = (document.namespace(), document.name());
        let known = self.names.get(&(document.kind(), namespace, name)).map_or(name, String::as_str);
        Converted::in_place_of(document, Printed::GitSync, self.namespace(namespace), known)
    }

    /// Sets the repository, the reference and the interval of a GitSync.
    pub(super) fn follow(&mut self, sync: &mut Converted, fields: &mut Fields, document: &'a Document, path: &str) {
        let interval = fields.text("spec.interval");
        let reference = document.object.pointer(&format!("/{}", path.replace('.', "/"))).unwrap_or(&Value::Null);
        let name = reference["name"].as_str().unwrap_or_default();
        let namespace = reference["namespace"].as_str().unwrap_or(document.namespace());
        fields.drop_unneeded(&[path]);
        if reference["kind"] == "OCIRepository" {
            return self.follow_artifact(sync, fields, document, (path, namespace, name));
        }
        sync.set("gitRepository", name, document, path);
        let own = self.namespace(document.namespace()).to_owned();
        let Some(source) = self.sources.get(&(namespace, name)) else {
            let text =
                format!("GitRepository {namespace}/{name} is not among the objects: `reference` is the default, main");
            if let Some(interval) = interval {
                sync.set("interval", interval, document, "spec.interval");
            }
            return fields.lost(path, text);
        };
        if own != self.namespace(namespace) {
            let place = if own.is_empty() { "the namespace of the GitSync" } else { &own };
            let text = format!(
                "a GitSync and its GitRepository have one namespace: the GitRepository is printed in {place}, too"
            );
            fields.differs(path, text);
        }
        let is_new = self.needed.insert((own.clone(), namespace, name));
        for note in copies(source, &own).into_iter().filter(|_| is_new) {
            fields.ask(path, note.text);
        }
        let at = |pointer: &str| source.field(&format!("/spec/ref/{pointer}"));
        match (at("commit"), at("name"), at("semver"), at("tag"), at("branch")) {
            ("", "", "", "", "") => sync.put("reference", BRANCH),
            ("", "", "", "", branch) => sync.put("reference", branch),
            ("", "", "", tag, _) => sync.put("reference", format!("refs/tags/{tag}")),
            ("", "", range, ..) => sync.put("semver", range),
            ("", name, ..) => sync.put("reference", name),
            (commit, ..) => sync.put("reference", commit),
        }
        // The reference is looked up at the interval of Flux's source.
        let interval = source.field("/spec/interval");
        if !interval.is_empty() {
            sync.set("interval", interval, source, "spec.interval");
        }
        if document.object["spec"].get("interval").is_some() {
            fields
                .differs("spec.interval", "drift is reverted immediately, and `interval` is that of the GitRepository");
        }
        if source.object["spec"]["suspend"] == true {
            sync.put("suspend", true);
            fields.differs(
                path,
                "its GitRepository is suspended, so the GitSync is suspended, too: drift is not reverted either",
            );
        }
    }

    /// Sets the OCIRepository of a GitSync.
    fn follow_artifact(
        &self,
        sync: &mut Converted,
        fields: &mut Fields,
        document: &Document,
        (path, namespace, name): (&str, &str, &str),
    ) {
        sync.set("sourceRef", json!({"kind": "OCIRepository", "name": name}), document, path);
        if self.namespace(namespace) != self.namespace(document.namespace()) {
            fields.lost(path, format!("a GitSync reads OCIRepositories of its namespace: create {name} there, too"));
        }
        if let Some(interval) = fields.text("spec.interval") {
            sync.set("interval", interval, document, "spec.interval");
        }
    }

    /// Returns a HelmRepository for the conversion of one of its charts.
    pub(super) fn use_charts(&mut self, namespace: &str, name: &str) -> Option<&'a Document> {
        let (_, (document, is_used)) =
            self.charts.iter_mut().find(|((of, named), _)| *of == namespace && *named == name)?;
        *is_used = true;
        Some(*document)
    }

    /// Sets the OCIRepository or the HelmChart that a HelmRelease names in `chartRef`.
    pub(super) fn follow_chart(&self, sync: &mut Converted, fields: &mut Fields, document: &Document) {
        const PATH: &str = "spec.chartRef";
        let reference = fields.take(PATH).unwrap_or_default();
        let name = reference["name"].as_str().unwrap_or_default();
        let namespace = reference["namespace"].as_str().unwrap_or(document.namespace());
        if reference["kind"] == "OCIRepository" {
            let source = self.artifacts.iter().find(|((of, named), _)| *of == namespace && *named == name);
            // The directory of a packed chart has its name, and so has its repository in a registry.
            let url = source.map_or("", |(_, source)| source.field("/spec/url"));
            match url.trim_end_matches('/').rsplit_once('/') {
                Some((_, chart)) => sync.put("baseDir", format!("/{chart}")),
                None => fields.lost(
                    PATH,
                    format!(
                        "OCIRepository {namespace}/{name} is not among the objects: `baseDir` is the name of its chart"
                    ),
                ),
            }
            return self.follow_artifact(sync, fields, document, (PATH, namespace, name));
        }
        sync.set("sourceRef", json!({"kind": "HelmChart", "name": name}), document, PATH);
        if self.namespace(namespace) != self.namespace(document.namespace()) {
            fields.lost(PATH, format!("a GitSync reads HelmCharts of its namespace only: create {name} there, too"));
        }
        if let Some(interval) = fields.text("spec.interval") {
            sync.set("interval", interval, document, "spec.interval");
        }
    }

    /// Sets the dependencies of a GitSync. In Flux, an object depends only on objects of its own kind.
    pub(super) fn depend(&self, sync: &mut Converted, fields: &mut Fields, document: &Document) {
        let mut depends_on = fields.list("spec.dependsOn");
        for other in &mut depends_on {
            let namespace = other["namespace"].as_str().unwrap_or(document.namespace()).to_owned();
            let name = other["name"].as_str().unwrap_or_default().to_owned();
            if let Some(known) = self.names.get(&(document.kind(), &*namespace, &*name)) {
                other["name"] = known.as_str().into();
            }
            let is_own = self.namespace(&namespace) == self.namespace(document.namespace());
            let Some(other) = other.as_object_mut() else { continue };
            other.remove("namespace");
            if !is_own {
                other.insert("namespace".to_owned(), self.namespace(&namespace).into());
            }
        }
        if !depends_on.is_empty() {
            sync.set("dependsOn", depends_on, document, "spec.dependsOn");
        }
    }
}

/// Returns the message about a kind without a counterpart, with a remedy if there is one.
pub(super) fn counterpart(kind: &str) -> &'static str {
    match kind {
        "HelmRepository" => "none of the objects uses a chart from it: create a HelmChart with its URL in `repository`",
        "HelmChart" | "OCIRepository" => "the kind is not a source of this object",
        "Bucket" | "ExternalArtifact" => "sources other than Git and registries are not supported",
        _ => "the kind has no counterpart",
    }
}

/// Returns the annotations of an object that keep their meaning.
pub(super) fn annotations(fields: &mut Fields) -> Map<String, Value> {
    let mut annotations = fields.map("metadata.annotations");
    annotations.retain(|key, _| !key.ends_with(".fluxcd.io/requestedAt") && !key.contains("reconcile.fluxcd.io/"));
    annotations
}

/// Returns the labels of an object, without the labels with which Flux marks objects that it applied.
pub(super) fn labels(fields: &mut Fields) -> Map<String, Value> {
    let mut labels = fields.map("metadata.labels");
    let is_mark = |key: &str| MARKS.iter().any(|group| key.strip_prefix(group).is_some_and(|key| key.starts_with('/')));
    labels.retain(|key, _| !is_mark(key));
    labels
}

/// Sets fields that a Kustomization and a HelmRelease have in common.
pub(super) fn common(made: &mut Converted, fields: &mut Fields, document: &Document) {
    if document.namespace().is_empty() {
        let text = "the manifest has no namespace: build its kustomization first, as in `kubectl kustomize DIR | mainstay convert flux -`";
        fields.ask("metadata.namespace", text);
    }
    made.put_metadata("labels", labels(fields));
    made.put_metadata("annotations", annotations(fields));
    for field in ["suspend", "serviceAccountName"] {
        if let Some(value) = fields.take(&format!("spec.{field}")).filter(|value| *value != false) {
            made.set(field, value, document, &format!("spec.{field}"));
        }
    }
    if let Some(secret) = fields.take("spec.kubeConfig.secretRef") {
        made.set("kubeConfig", json!({"secretRef": secret}), document, "spec.kubeConfig");
    }
    if let Some(map) = fields.take("spec.kubeConfig.configMapRef") {
        let text = "name a Secret with a kubeconfig in `kubeConfig.secretRef`: without it, the objects of another cluster \
                    would be applied to this one";
        fields.lost("spec.kubeConfig.configMapRef", text);
        // A kubeConfig without a Secret is refused, so the GitSync is not printed.
        made.put("kubeConfig.configMapRef", map);
    }
    fields.drop_different(
        "spec.retryInterval",
        "failed objects are tried again after 1 s at first and at least every 2 minutes",
    );
}
