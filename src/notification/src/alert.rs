//! Turns the spec of an Alert into a [`Selection`].

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::{RegexSet, RegexSetBuilder};

use crate::identity::Identity;
use crate::notice::{Notice, Severity};
use crate::provider_type::ProviderType;
use mainstay_api::AlertSpec;
use mainstay_api::alert::EventSeverity;
use mainstay_api::conditions::cut;
use mainstay_object::pattern_fault;

/// Maximum memory of the compiled expressions of a list, in bytes.
const COMPILED: usize = 128 << 10;
/// Maximum memory of the cache with which the expressions of a list are matched, in bytes. Each [`Expressions`] that
/// matches has one for each list and thread.
const CACHED: usize = 64 << 10;
/// Maximum length of the text that expressions match, in bytes. It bounds the time of a match. Messages are not longer.
const MATCHED: usize = 4 << 10;
/// Maximum length of an Alert as JSON, in bytes. Messages of a longer one have its metadata only, without labels if these
/// are too long.
const OBJECT: usize = 4 << 10;
/// Kinds about which there are messages.
const KINDS: [&str; 10] = [
    "GitSync",
    "Function",
    "GitRepository",
    "OCIRepository",
    "HelmChart",
    "ImageRepository",
    "ImagePolicy",
    "ImageUpdateAutomation",
    "Receiver",
    "APIRule",
];
const ALL: &str = "*";

/// A valid Alert.
#[derive(Clone, Debug)]
pub struct Selection {
    sources: Vec<Source>,
    severity: EventSeverity,
    expressions: Expressions,
    metadata: BTreeMap<String, String>,
    name: String,
    /// The Alert as JSON, for expressions.
    object: Arc<str>,
    /// Why some sources never match a message; empty if all may match.
    pub without_effect: Vec<String>,
}

/// The expressions of an Alert. A clone shares the programs, and has caches of its own, which end with it.
#[derive(Clone, Debug)]
pub struct Expressions {
    included: Option<RegexSet>,
    excluded: RegexSet,
}

impl Expressions {
    /// Returns whether the Alert selects a text. May take long, because users write the expressions.
    fn select(&self, text: &str) -> bool {
        let text = cut(text, MATCHED);
        self.included.as_ref().is_none_or(|list| list.is_match(text)) && !self.excluded.is_match(text)
    }
}

#[derive(Clone, Debug)]
struct Source {
    kind: &'static str,
    /// Name of the objects; `None` for all objects.
    name: Option<String>,
    namespace: String,
    labels: BTreeMap<String, String>,
}

/// Returns Mainstay's kind for the kind of a source.
fn kind_of(kind: &str) -> Option<&'static str> {
    if matches!(kind, "Kustomization" | "HelmRelease") {
        return Some("GitSync");
    }
    KINDS.into_iter().find(|known| *known == kind)
}

impl Selection {
    /// Reads the spec of an Alert. `may_cross` allows it to select objects of other namespaces.
    ///
    /// # Errors
    /// All problems of the spec.
    pub fn new(spec: &AlertSpec, alert: &Identity<'_>, may_cross: bool) -> Result<Self, Vec<String>> {
        let namespace = alert.namespace;
        let (mut sources, mut problems, mut without_effect) = (Vec::new(), Vec::new(), Vec::new());
        for (at, source) in spec.event_sources.iter().enumerate() {
            let place = format!("spec.eventSources[{at}]");
            let in_namespace = source.namespace.as_deref().filter(|own| !own.is_empty()).unwrap_or(namespace);
            if in_namespace != namespace && !may_cross {
                problems.push(format!(
                    "{place}.namespace: an Alert of this namespace selects only objects of its own; create it in a namespace \
                     that the agent trusts (--allow-namespace), or remove the field"
                ));
            }
            if source.name != ALL && !source.match_labels.is_empty() {
                problems.push(format!("{place}.matchLabels: needs the name \"*\""));
            }
            let Some(kind) = kind_of(&source.kind) else {
                without_effect.push(format!("{place}: there are no messages about the kind {}", source.kind));
                continue;
            };
            let name = (source.name != ALL).then(|| source.name.clone());
            let labels = source.match_labels.clone();
            sources.push(Source { kind, name, namespace: in_namespace.to_owned(), labels });
        }
        if sources.is_empty() {
            problems.push(format!("spec.eventSources: no source sends messages; use {}", KINDS.join(", ")));
        }
        let mut compiled = |list: &[String], field: &str| {
            let set = RegexSetBuilder::new(list).size_limit(COMPILED).dfa_size_limit(CACHED).build();
            set.map_err(|_| problems.push(invalid(list, field))).unwrap_or_else(|()| RegexSet::empty())
        };
        let included = compiled(&spec.inclusion_list, "inclusionList");
        let excluded = compiled(&spec.exclusion_list, "exclusionList");
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut metadata = spec.event_metadata.clone();
        if let Some(summary) = spec.summary.as_ref().filter(|summary| !summary.is_empty()) {
            metadata.insert("summary".to_owned(), summary.clone());
        }
        let included = (!spec.inclusion_list.is_empty()).then_some(included);
        let expressions = Expressions { included, excluded };
        let (severity, name, object) = (spec.event_severity, alert.name.to_owned(), object(spec, alert));
        Ok(Self { sources, severity, expressions, metadata, name, object, without_effect })
    }

    /// Returns whether a resource with these labels is among the sources.
    pub fn has(&self, kind: &str, namespace: &str, name: &str, labels: &BTreeMap<String, String>) -> bool {
        self.sources.iter().any(|source| {
            source.kind == kind
                && source.namespace == namespace
                && source.name.as_ref().is_none_or(|own| own == name)
                && source.labels.iter().all(|(label, value)| labels.get(label) == Some(value))
        })
    }

    /// Returns whether a source is in another namespace than this one, which is that of the Alert.
    pub fn crosses(&self, namespace: &str) -> bool {
        self.sources.iter().any(|source| source.namespace != namespace)
    }

    /// Returns whether the Alert selects the severity and the resource of a notice. Matches no expression.
    pub fn concerns(&self, notice: &Notice, labels: &BTreeMap<String, String>) -> bool {
        self.is_severe(notice) && self.has(&notice.kind, &notice.namespace, &notice.name, labels)
    }

    /// Returns expressions for [`Self::select`], with empty caches. Drop them after some notices: the Alert itself keeps no
    /// caches, so that the memory of all Alerts does not grow with the messages.
    pub fn expressions(&self) -> Expressions {
        self.expressions.clone()
    }

    /// Returns the notice with the fields of the Alert for a Provider of this type, if the Alert selects its severity and
    /// text. May take long, so call it without a lock, and not in an asynchronous task.
    pub fn select(&self, notice: &Notice, kind: ProviderType, expressions: &Expressions) -> Option<Notice> {
        (self.is_severe(notice) && expressions.select(&notice.message)).then(|| self.marked(notice, kind))
    }

    /// Returns a notice with the fields of the Alert for a Provider of this type.
    pub fn marked(&self, notice: &Notice, kind: ProviderType) -> Notice {
        let mut marked = notice.clone();
        marked.key = format!("{} {}", self.name, notice.key);
        // As in Flux, the Alert wins over the resource.
        marked.metadata.extend(self.metadata.clone());
        // Only the names of commit statuses are computed.
        marked.alert = kind.is_commit_status().then(|| Arc::clone(&self.object));
        marked
    }

    fn is_severe(&self, notice: &Notice) -> bool {
        self.severity == EventSeverity::Info || notice.severity == Severity::Error
    }
}

/// Returns an Alert as JSON, without the parts for which it has no room.
fn object(spec: &AlertSpec, alert: &Identity<'_>) -> Arc<str> {
    let whole = alert.object("Alert", spec).to_string();
    if whole.len() <= OBJECT {
        return whole.into();
    }
    let metadata = alert.object("Alert", &()).to_string();
    if metadata.len() <= OBJECT {
        return metadata.into();
    }
    Identity { labels: None, ..*alert }.object("Alert", &()).to_string().into()
}

/// Returns the problem of an invalid list: the invalid expression, or that the list as a whole is too large.
fn invalid(list: &[String], field: &str) -> String {
    let wrong = list.iter().position(|one| RegexSetBuilder::new([one]).size_limit(COMPILED).build().is_err());
    match wrong.map(|at| (at, pattern_fault(&list[at]))) {
        Some((at, Some(fault))) => format!("spec.{field}[{at}]: is not a regular expression (RE2 syntax): {fault}"),
        Some((at, None)) => format!("spec.{field}[{at}]: needs more than 128 KiB; shorten the expression"),
        None => format!("spec.{field}: needs more than 128 KiB; shorten the expressions"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::queue::tests::notice;

    fn read(spec: serde_json::Value, may_cross: bool) -> Result<Selection, Vec<String>> {
        let alert = Identity { namespace: "shop", name: "alert", ..Identity::default() };
        Selection::new(&serde_json::from_value(spec).unwrap(), &alert, may_cross)
    }

    #[test]
    fn a_selection_takes_severity_lists_names_and_labels_into_account() {
        let spec = json!({
            "providerRef": {"name": "chat"}, "eventSeverity": "error", "summary": "production", "eventMetadata": {"team": "a"},
            "eventSources": [
                {"kind": "Kustomization", "name": "api"}, {"kind": "GitSync", "name": "*", "matchLabels": {"team": "a"}},
                {"kind": "Bucket", "name": "*"},
            ],
            "inclusionList": [".*failed.*"], "exclusionList": ["(?i)TIMEOUT"],
        });
        let selection = read(spec, false).unwrap();
        assert_eq!(selection.without_effect, ["spec.eventSources[2]: there are no messages about the kind Bucket"]);
        let labels = |team: &str| BTreeMap::from([("team".to_owned(), team.to_owned())]);
        let has =
            |kind: &str, namespace: &str, name: &str, team: &str| selection.has(kind, namespace, name, &labels(team));
        assert!(has("GitSync", "shop", "api", "b") && has("GitSync", "shop", "web", "a"));
        assert!(!has("GitSync", "shop", "web", "b") && !has("GitSync", "other", "api", "a"));
        assert!(!has("Function", "shop", "api", "a"));
        let with = |severity, message: &str| {
            let notice = Notice { severity, message: message.to_owned(), ..notice("a", crate::Priority::State) };
            selection.select(&notice, ProviderType::Github, &selection.expressions())
        };
        let taken = with(Severity::Error, "it failed").unwrap();
        assert_eq!(taken.ordered()[0], ("summary", "production"));
        assert_eq!(taken.metadata["team"], "a");
        let alert: serde_json::Value = serde_json::from_str(&taken.alert.unwrap()).unwrap();
        assert_eq!((&alert["metadata"]["name"], &alert["spec"]["summary"]), (&json!("alert"), &json!("production")));
        assert!(with(Severity::Info, "it failed").is_none() && with(Severity::Error, "it works").is_none());
        assert!(with(Severity::Error, "it failed: timeout").is_none());
    }

    #[test]
    fn expressions_match_the_first_four_kib_of_a_text() {
        let spec = json!({
            "providerRef": {"name": "chat"}, "eventSources": [{"kind": "GitSync", "name": "*"}], "inclusionList": ["found"],
        });
        let expressions = read(spec, false).unwrap().expressions();
        assert!(expressions.select(&format!("{}found", "ä".repeat((MATCHED - 5) / 2))));
        assert!(!expressions.select(&format!("{}found", "ä".repeat(MATCHED / 2))));
    }

    #[test]
    fn only_messages_that_set_commit_statuses_have_the_alert_and_share_it() {
        let spec = json!({"providerRef": {"name": "chat"}, "eventSources": [{"kind": "GitSync", "name": "*"}]});
        let selection = read(spec, false).unwrap();
        let offered = notice("a", crate::Priority::State);
        let of = |kind| selection.select(&offered, kind, &selection.expressions()).unwrap();
        assert_eq!(of(ProviderType::Slack).alert, None);
        let [one, other] = [of(ProviderType::Github), of(ProviderType::AzureDevops)];
        assert!(Arc::ptr_eq(one.alert.as_ref().unwrap(), other.alert.as_ref().unwrap()));
        assert_eq!(one.bytes(), Notice { alert: None, ..one.clone() }.bytes(), "no message is charged for it");
    }

    #[test]
    fn a_long_alert_has_no_spec_and_one_with_long_labels_has_no_labels() {
        let metadata = |summary: usize, label: usize| -> serde_json::Value {
            let spec = json!({
                "providerRef": {"name": "chat"}, "eventSources": [{"kind": "GitSync", "name": "*"}],
                "summary": "s".repeat(summary),
            });
            let labels = BTreeMap::from([("team".to_owned(), "a".repeat(label))]);
            let alert = Identity { namespace: "shop", name: "alert", labels: Some(&labels), ..Identity::default() };
            let text = object(&serde_json::from_value(spec).unwrap(), &alert);
            assert!(text.len() <= OBJECT, "{} bytes", text.len());
            serde_json::from_str(&text).unwrap()
        };
        let has = |alert: serde_json::Value| (alert["spec"].is_object(), alert["metadata"]["labels"].is_object());
        assert_eq!(has(metadata(10, 10)), (true, true));
        assert_eq!(has(metadata(OBJECT, 10)), (false, true));
        assert_eq!(has(metadata(OBJECT, OBJECT)), (false, false));
        assert_eq!(metadata(OBJECT, OBJECT)["metadata"]["name"], "alert");
    }

    #[test]
    fn a_selection_of_another_namespace_is_refused_without_trust() {
        let spec = |list: &str| {
            json!({
                "providerRef": {"name": "chat"}, "inclusionList": [list],
                "eventSources": [{"kind": "GitSync", "name": "*", "namespace": "other"}],
            })
        };
        assert!(read(spec("a"), true).unwrap().has("GitSync", "other", "x", &BTreeMap::new()));
        let problems = read(spec("("), false).unwrap_err();
        assert!(problems[0].starts_with("spec.eventSources[0].namespace: an Alert of this namespace"), "{problems:?}");
        let why = "spec.inclusionList[0]: is not a regular expression (RE2 syntax): line 1, column 1: unclosed group";
        assert_eq!(problems[1], why);
        let problems = read(spec(&"(a{1000}){1000}".repeat(2)), true).unwrap_err();
        assert!(problems[0].contains("128 KiB"), "{problems:?}");
    }
}
