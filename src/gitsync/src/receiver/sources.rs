//! The objects that a Receiver names: GitRepositories, OCIRepositories, HelmCharts and ImageRepositories.
//!
//! Invariant: labels and filters select objects only, not the repository inside a Function.
//!
//! Not here: the labels of the objects (`listing`), and the expression about them (`filter`).

use std::collections::{BTreeMap, BTreeSet};

use mainstay_api::Receiver;
use mainstay_api::receiver::ReceiverResource;
use mainstay_git::ConsumerKind;
use mainstay_object::{printable, syntax};

/// Labels by their names.
pub(super) type Labels = BTreeMap<String, String>;

/// A kind of objects that deliveries wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SourceKind {
    GitRepository,
    OciRepository,
    HelmChart,
    ImageRepository,
}

/// Kinds of Flux, and of Mainstay, that a spec may name without an effect: their objects follow a source.
const FOLLOWERS: [&str; 9] = [
    "Bucket",
    "ExternalArtifact",
    "Function",
    "GitSync",
    "HelmRelease",
    "HelmRepository",
    "ImagePolicy",
    "ImageUpdateAutomation",
    "Kustomization",
];

/// The objects that deliveries may look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sources {
    /// All of the namespace.
    All,
    /// Those with one of these names, of any kind.
    Named(Vec<String>),
    /// Some of each kind.
    OfKinds(BTreeMap<SourceKind, Wanted>),
}

/// The objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    is_all: bool,
    names: BTreeSet<String>,
    /// Objects with all labels of one of these sets.
    labels: Vec<Labels>,
}

impl SourceKind {
    pub(super) const ALL: [Self; 4] =
        [Self::GitRepository, Self::OciRepository, Self::HelmChart, Self::ImageRepository];

    /// Returns the name of the kind.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::GitRepository => "GitRepository",
            Self::OciRepository => "OCIRepository",
            Self::HelmChart => "HelmChart",
            Self::ImageRepository => "ImageRepository",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::GitRepository => "GitRepositories",
            Self::OciRepository => "OCIRepositories",
            Self::HelmChart => "HelmCharts",
            Self::ImageRepository => "ImageRepositories",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Returns the kind for the register of objects.
    pub(super) const fn registered(self) -> ConsumerKind {
        match self {
            Self::GitRepository => ConsumerKind::GitRepository,
            Self::OciRepository => ConsumerKind::OciRepository,
            Self::HelmChart => ConsumerKind::HelmChart,
            Self::ImageRepository => ConsumerKind::ImageRepository,
        }
    }

    /// Returns the kind of the object that a consumer follows.
    pub(super) const fn of(consumer: ConsumerKind) -> Self {
        match consumer {
            ConsumerKind::GitSync
            | ConsumerKind::Function
            | ConsumerKind::GitRepository
            | ConsumerKind::ImageUpdateAutomation => Self::GitRepository,
            ConsumerKind::OciRepository => Self::OciRepository,
            ConsumerKind::HelmChart => Self::HelmChart,
            ConsumerKind::ImageRepository => Self::ImageRepository,
        }
    }
}

impl Wanted {
    fn includes(&self, name: &str, labels: Option<&Labels>) -> bool {
        let has = |wanted: &Labels| {
            labels.is_some_and(|labels| wanted.iter().all(|(name, value)| labels.get(name) == Some(value)))
        };
        self.is_all || self.names.contains(name) || self.labels.iter().any(has)
    }
}

impl Sources {
    /// Returns the objects in a spec, or its error.
    pub(super) fn of_spec(receiver: &Receiver) -> Result<Self, String> {
        let spec = &receiver.spec;
        let Some(resources) = &spec.resources else {
            return Ok(spec.repositories.clone().map_or(Self::All, Self::Named));
        };
        if spec.repositories.is_some() {
            return Err("spec.repositories and spec.resources exclude each other: remove one of them".to_owned());
        }
        let own = receiver.metadata.namespace.as_deref().unwrap_or_default();
        let mut kinds = BTreeMap::<SourceKind, Wanted>::new();
        for (number, resource) in resources.iter().enumerate() {
            check(resource, own).map_err(|why| format!("spec.resources[{number}].{why}"))?;
            let Some(kind) = SourceKind::parse(&resource.kind) else { continue };
            let wanted = kinds.entry(kind).or_default();
            if !resource.match_labels.is_empty() {
                wanted.labels.push(resource.match_labels.clone());
            } else if resource.name == "*" {
                wanted.is_all = true;
            } else {
                wanted.names.insert(resource.name.clone());
            }
        }
        if kinds.is_empty() {
            return Err(
                "spec.resources must name a GitRepository, an OCIRepository, a HelmChart or an ImageRepository"
                    .to_owned(),
            );
        }
        Ok(Self::OfKinds(kinds))
    }

    /// Returns the kinds in a spec that have no effect.
    pub(super) fn without_effect(receiver: &Receiver) -> Vec<&'static str> {
        let named = |kind: &&str| receiver.spec.resources.iter().flatten().any(|resource| resource.kind == **kind);
        FOLLOWERS.into_iter().filter(named).collect()
    }

    /// Returns the objects that are named with their kind.
    pub(super) fn named(&self) -> impl Iterator<Item = (SourceKind, &str)> {
        let kinds = if let Self::OfKinds(kinds) = self { Some(kinds) } else { None };
        let names = kinds.into_iter().flatten();
        names.flat_map(|(kind, wanted)| wanted.names.iter().map(move |name| (*kind, name.as_str())))
    }

    /// Returns the number of the objects; `None` if they are not all named.
    pub(super) fn number(&self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Named(names) => Some(names.len()),
            Self::OfKinds(kinds) if kinds.values().any(|wanted| wanted.is_all || !wanted.labels.is_empty()) => None,
            Self::OfKinds(_) => Some(self.named().count()),
        }
    }

    /// Returns exactly these objects.
    pub(super) fn exactly(objects: impl IntoIterator<Item = (SourceKind, String)>) -> Self {
        let mut kinds = BTreeMap::<SourceKind, Wanted>::new();
        for (kind, name) in objects {
            kinds.entry(kind).or_default().names.insert(name);
        }
        Self::OfKinds(kinds)
    }

    /// Whether an object is one of them. Without its labels, it is not selected by labels.
    pub(super) fn include(&self, kind: SourceKind, name: &str, labels: Option<&Labels>) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|named| named == name),
            Self::OfKinds(kinds) => kinds.get(&kind).is_some_and(|wanted| wanted.includes(name, labels)),
        }
    }

    /// Whether labels select some of them.
    pub(super) fn have_labels(&self) -> bool {
        matches!(self, Self::OfKinds(kinds) if kinds.values().any(|wanted| !wanted.labels.is_empty()))
    }

    /// Returns the kinds of the objects, each with the labels that all its objects have.
    pub(super) fn kinds(&self) -> Vec<(SourceKind, Option<&Labels>)> {
        let Self::OfKinds(kinds) = self else { return SourceKind::ALL.iter().map(|kind| (*kind, None)).collect() };
        let has_labels_only = |wanted: &Wanted| !wanted.is_all && wanted.names.is_empty();
        kinds
            .iter()
            .map(|(kind, wanted)| match wanted.labels.as_slice() {
                [labels] if has_labels_only(wanted) => (*kind, Some(labels)),
                _ => (*kind, None),
            })
            .collect()
    }

    /// Returns the objects for the status.
    pub(super) fn shown(&self) -> String {
        let kinds = match self {
            Self::All => return "all sources and ImageRepositories of this namespace".to_owned(),
            Self::Named(names) => {
                return match &names[..] {
                    [] => "no source: spec.repositories is empty".to_owned(),
                    [one] => one.clone(),
                    all => format!("{} objects", all.len()),
                };
            }
            Self::OfKinds(kinds) => kinds,
        };
        if let (Some(1), Some((kind, name))) = (self.number(), self.named().next()) {
            return format!("{} {name}", kind.as_str());
        }
        let kinds: Vec<_> = kinds.keys().map(|kind| kind.plural()).collect();
        format!("the {} that spec.resources selects", kinds.join(", "))
    }

    /// Whether GitRepositories may be among them.
    pub(super) fn have_repositories(&self) -> bool {
        match self {
            Self::All | Self::Named(_) => true,
            Self::OfKinds(kinds) => kinds.contains_key(&SourceKind::GitRepository),
        }
    }
}

/// Checks an entry of `spec.resources`.
fn check(resource: &ReceiverResource, own: &str) -> Result<(), String> {
    let kind = resource.kind.as_str();
    if SourceKind::parse(kind).is_none() && !FOLLOWERS.contains(&kind) {
        let known = SourceKind::ALL.map(SourceKind::as_str).join(", ");
        return Err(format!("kind is {}, which does not exist: write one of {known}", printable(kind)));
    }
    if resource.filter.is_some() {
        return Err("filter is not supported: use spec.resourceFilter".to_owned());
    }
    if let Some(other) = resource.namespace.as_ref().filter(|other| *other != own) {
        return Err(format!("namespace must be {own}: create a Receiver in the namespace {}", printable(other)));
    }
    if !resource.match_labels.is_empty() && resource.name != "*" {
        return Err(
            "matchLabels selects among all objects of the kind, so name must be \"*\": correct name, or remove \
                    matchLabels"
                .to_owned(),
        );
    }
    match resource.match_labels.iter().find(|(name, value)| !syntax::label(name, value).is_empty()) {
        Some((name, _)) => Err(format!(
            "matchLabels: {} is not the name of a label, or its value is not one of a label",
            printable(name)
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: &Value) -> Result<Sources, String> {
        let mut whole = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "Receiver", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"type": "github", "secretRef": {"name": "hook"}},
        });
        json_patch::merge(&mut whole["spec"], spec);
        Sources::of_spec(&serde_json::from_value(whole).unwrap())
    }

    fn source(kind: &str, name: &str) -> Value {
        json!({"kind": kind, "name": name})
    }

    fn labelled(kind: &str, labels: Value) -> Value {
        json!({"kind": kind, "name": "*", "matchLabels": labels})
    }

    #[test]
    fn a_wrong_spec_is_refused_with_its_field() {
        for (spec, expected) in [
            (
                json!({"resources": [source("Kustomization", "a")]}),
                "spec.resources must name a GitRepository, an OCIRepository, a HelmChart or an ImageRepository",
            ),
            (
                json!({"resources": [source("GitRepository", "a"), source("GitRepositry", "b")]}),
                "spec.resources[1].kind is GitRepositry, which does not exist: write one of GitRepository, OCIRepository, \
                 HelmChart, ImageRepository",
            ),
            (
                json!({"resources": [{"kind": "GitRepository", "name": "a", "namespace": "other"}]}),
                "spec.resources[0].namespace must be shop: create a Receiver in the namespace other",
            ),
            (
                json!({"resources": [source("GitRepository", "a"), {"kind": "GitRepository", "name": "a", "matchLabels": {"a": "b"}}]}),
                "spec.resources[1].matchLabels selects among all objects of the kind, so name must be \"*\": correct name, \
                 or remove matchLabels",
            ),
            (
                json!({"resources": [labelled("GitRepository", json!({"a,b": "c"}))]}),
                "spec.resources[0].matchLabels: a,b is not the name of a label, or its value is not one of a label",
            ),
            (
                json!({"resources": [{"kind": "GitRepository", "name": "*", "filter": "true"}]}),
                "spec.resources[0].filter is not supported: use spec.resourceFilter",
            ),
            (
                json!({"resources": [], "repositories": []}),
                "spec.repositories and spec.resources exclude each other: remove one of them",
            ),
        ] {
            assert_eq!(read(&spec), Err(expected.to_owned()), "{spec}");
        }
    }

    #[test]
    fn objects_are_selected_by_kind_and_name_or_labels() {
        let labels = |labels: &[(&str, &str)]| -> Labels {
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let web = labels(&[("app", "web"), ("tier", "front")]);
        let (git, chart, image) = (SourceKind::GitRepository, SourceKind::HelmChart, SourceKind::ImageRepository);
        for (spec, included, excluded) in [
            (json!({}), vec![(git, "a", None), (image, "a", None)], vec![]),
            (json!({"repositories": ["a"]}), vec![(git, "a", None), (chart, "a", None)], vec![(git, "b", None)]),
            (json!({"repositories": []}), vec![], vec![(git, "a", Some(&web))]),
            (
                json!({"resources": [source("GitRepository", "a"), source("Kustomization", "b"), source("HelmChart", "*")]}),
                vec![(git, "a", None), (chart, "b", None)],
                vec![(git, "b", None), (image, "a", None)],
            ),
            (
                json!({"resources": [labelled("GitRepository", json!({"app": "web", "tier": "front"}))]}),
                vec![(git, "a", Some(&web))],
                vec![(chart, "a", Some(&web)), (git, "a", None)],
            ),
            (
                json!({"resources": [labelled("GitRepository", json!({"app": "web", "tier": "back"}))]}),
                vec![],
                vec![(git, "a", Some(&web))],
            ),
        ] {
            let sources = read(&spec).unwrap();
            let is_included = |(kind, name, labels): &(_, &str, _)| sources.include(*kind, name, *labels);
            assert!(included.iter().all(is_included), "{spec}");
            assert!(!excluded.iter().any(is_included), "{spec}");
        }
    }

    #[test]
    fn labels_are_left_to_the_server_if_all_objects_of_a_kind_have_them() {
        let app = || labelled("GitRepository", json!({"app": "web"}));
        let asked = |resources: Value| {
            let sources = read(&json!({"resources": resources})).unwrap();
            assert!(sources.have_labels());
            sources.kinds().into_iter().map(|(kind, labels)| (kind.as_str(), labels.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(asked(json!([app()])), [("GitRepository", true)]);
        assert_eq!(asked(json!([app(), source("HelmChart", "a")])), [("GitRepository", true), ("HelmChart", false)]);
        assert_eq!(asked(json!([app(), source("GitRepository", "a")])), [("GitRepository", false)]);
        assert_eq!(asked(json!([app(), app()])), [("GitRepository", false)]);
        assert_eq!(Sources::All.kinds().len(), 4);
    }

    #[test]
    fn the_status_names_a_single_object_or_the_kinds() {
        let check = |resources: Value, expected: &str, has_repositories: bool| {
            let sources = read(&json!({"resources": resources})).unwrap();
            assert_eq!((sources.shown().as_str(), sources.have_repositories()), (expected, has_repositories));
        };
        let selected = |kinds: &str| format!("the {kinds} that spec.resources selects");
        check(json!([source("GitRepository", "a"), source("Bucket", "b")]), "GitRepository a", true);
        let both = selected("GitRepositories, HelmCharts");
        check(json!([source("HelmChart", "a"), source("GitRepository", "a")]), &both, true);
        check(json!([source("GitRepository", "a"), source("HelmChart", "*")]), &both, true);
        check(json!([source("ImageRepository", "*")]), &selected("ImageRepositories"), false);
        check(json!([labelled("OCIRepository", json!({"a": "b"}))]), &selected("OCIRepositories"), false);
        assert!(read(&json!({})).unwrap().have_repositories());
    }
}
