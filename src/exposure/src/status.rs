//! The status of an APIRule: Kyma's three codes, and the condition `Exposed`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::no_target::{NoTarget, NoTargets};
use mainstay_api::api_rule::{ApiRuleCode, ApiRuleStatus};
use mainstay_api::conditions::{self, Reason, Type};

const OK: &str = "OK";
const ERROR: &str = "ERROR";
const SKIPPED: &str = "SKIPPED";

/// The evidence of another controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Elsewhere {
    /// The other controller created this object.
    Made(String),
    /// The other controller wrote the status.
    Reported,
}

/// The outcome of an APIRule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The APIRule is served at this host.
    Served(String),
    /// Some paths are not routed, because these Services are not valid targets.
    NoTargets(NoTargets),
    /// The APIRule is invalid. The flag is whether its last valid version is served.
    Invalid(String, bool),
    /// Another owner uses the APIRule's host. The flag is whether the last valid version is served.
    Occupied(String, bool),
    /// The cluster has no routing API.
    NoRouteApi,
    /// Some paths are not routed.
    AuthNotSupported(String),
    /// The router has not accepted the objects yet, or has refused them for this reason.
    NotAccepted(Option<String>),
    /// Another controller serves the APIRule, according to this evidence.
    ManagedElsewhere(Elsewhere),
    /// The cluster cannot be read.
    Unreadable(String),
    /// A write failed.
    NotWritten(String),
}

impl Outcome {
    /// Returns status, reason and message of the condition.
    pub(super) fn condition(&self) -> (&'static str, Reason, String) {
        let kept = |text: &str, is_served: bool| {
            if is_served { format!("{text}\nThe last valid version is still served.") } else { text.to_owned() }
        };
        match self {
            Self::Served(host) => ("True", Reason::Served, format!("served at {host}")),
            Self::NoTargets(all) => no_targets(all),
            Self::Invalid(text, is_served) => ("False", Reason::Invalid, kept(text, *is_served)),
            Self::Occupied(text, is_served) => ("False", Reason::HostOccupied, kept(text, *is_served)),
            Self::NoRouteApi => ("False", Reason::NoRouteApi, "no Istio and no Gateway API in this cluster".to_owned()),
            Self::AuthNotSupported(text) => ("False", Reason::AuthNotSupported, text.clone()),
            Self::NotAccepted(None) => {
                ("Unknown", Reason::NotAccepted, "no gateway has accepted the route yet".to_owned())
            }
            Self::NotAccepted(Some(why)) => ("False", Reason::NotAccepted, format!("the route is not accepted: {why}")),
            Self::ManagedElsewhere(Elsewhere::Reported) => {
                let text = "another controller serves this APIRule and writes its status (lastProcessedTime); the objects \
                            that this agent created for the APIRule stay until the APIRule changes";
                ("Unknown", Reason::ManagedElsewhere, text.to_owned())
            }
            Self::ManagedElsewhere(Elsewhere::Made(child)) => {
                let text = format!(
                    "another controller serves this APIRule: it created {child}; if that controller is gone, delete its \
                     objects"
                );
                ("Unknown", Reason::ManagedElsewhere, text)
            }
            Self::Unreadable(text) => ("Unknown", Reason::ClusterUnavailable, text.clone()),
            Self::NotWritten(text) => ("False", Reason::ApplyFailed, text.clone()),
        }
    }

    /// Returns the codes of the APIRule, its routes and its access rules.
    fn codes(&self) -> [&'static str; 3] {
        match self {
            Self::Served(_) | Self::ManagedElsewhere(_) => [OK, OK, OK],
            Self::AuthNotSupported(_) => [ERROR, OK, ERROR],
            Self::NotAccepted(_) => [ERROR, ERROR, OK],
            Self::NotWritten(_) => [ERROR, ERROR, ERROR],
            Self::NoTargets(_) | Self::Invalid(..) | Self::Occupied(..) | Self::NoRouteApi | Self::Unreadable(_) => {
                [ERROR, SKIPPED, SKIPPED]
            }
        }
    }

    /// Returns the description of an error.
    fn description(&self) -> Option<String> {
        match self {
            Self::Invalid(text, _) | Self::Occupied(text, _) => Some(text.clone()),
            _ if self.codes()[0] == OK => None,
            _ => Some(self.condition().2),
        }
    }
}

/// The remedy for a Service whose endpoints a user wrote.
const WAY_OUT: &str =
    "expose a Service with a selector, or have the operator permit this namespace (--allow-written-endpoints)";

/// Returns status, reason and message of the condition for invalid targets.
fn no_targets(all: &NoTargets) -> (&'static str, Reason, String) {
    let refused = all.iter().find(|(_, why)| **why != NoTarget::NotFound);
    let Some((name, why)) = refused.or_else(|| all.iter().next()) else {
        return ("False", Reason::ServiceNotFound, "no Service is named".to_owned());
    };
    let more = if all.len() > 1 { format!(" and {} more", all.len() - 1) } else { String::new() };
    let why = match why {
        NoTarget::NotFound => {
            return ("False", Reason::ServiceNotFound, format!("Service {name}{more} not found in this namespace"));
        }
        NoTarget::Type => {
            "its type is ExternalName or unknown, so traffic could leave the namespace; expose a Service of type \
             ClusterIP"
                .to_owned()
        }
        NoTarget::NoSelector => format!("it has no selector, so its endpoints may be anywhere; {WAY_OUT}"),
        NoTarget::Written(slice) => format!(
            "it has the EndpointSlice {slice}, which does not result from its selector and may point anywhere; delete \
             the EndpointSlice, or {WAY_OUT}"
        ),
    };
    ("False", Reason::ServiceNotAllowed, format!("Service {name}{more} cannot be exposed: {why}"))
}

/// Returns the status after a reconcile.
pub(super) fn after(old: &ApiRuleStatus, outcome: &Outcome, generation: Option<i64>, now: Timestamp) -> ApiRuleStatus {
    let mut new = old.clone();
    let (status, reason, message) = outcome.condition();
    conditions::set(&mut new.conditions, Type::Exposed, status, reason, &message, generation, now);
    // The other controller owns all other fields.
    if !matches!(outcome, Outcome::ManagedElsewhere(_)) {
        let codes = outcome.codes();
        let description = outcome.description();
        let code = |at: usize, desc: Option<&String>| {
            let desc = desc.map(|text| conditions::cut(text, 32 << 10).to_owned());
            Some(ApiRuleCode { code: Some(codes[at].to_owned()), desc })
        };
        new.api_rule_status = code(0, description.as_ref());
        let of_writes = description.as_ref().filter(|_| matches!(outcome, Outcome::NotWritten(_)));
        new.virtual_service_status = code(1, of_writes);
        new.access_rule_status = code(2, of_writes);
        new.observed_generation = generation;
        if new != *old {
            new.last_processed_time = Some(Time(now));
        }
    }
    new
}

/// Returns the patch of the status. The patch removes old descriptions.
pub(super) fn patch(status: &ApiRuleStatus, outcome: &Outcome) -> Value {
    if matches!(outcome, Outcome::ManagedElsewhere(_)) {
        return json!({"status": {"conditions": status.conditions}});
    }
    let code = |code: &Option<ApiRuleCode>| {
        json!({
            "code": code.as_ref().and_then(|code| code.code.clone()), "desc": code.as_ref().and_then(|code| code.desc.clone()),
        })
    };
    json!({"status": {
        "lastProcessedTime": status.last_processed_time,
        "observedGeneration": status.observed_generation,
        "APIRuleStatus": code(&status.api_rule_status),
        "virtualServiceStatus": code(&status.virtual_service_status),
        "accessRuleStatus": code(&status.access_rule_status),
        "conditions": status.conditions,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(outcome: &Outcome, codes: [&str; 3], description: Option<&str>, condition: &str) {
        let now = Timestamp::UNIX_EPOCH;
        let status = after(&ApiRuleStatus::default(), outcome, Some(2), now);
        let value = patch(&status, outcome)["status"].take();
        let fields = ["APIRuleStatus", "virtualServiceStatus", "accessRuleStatus"];
        assert_eq!(fields.map(|field| value[field]["code"].as_str().unwrap()), codes);
        assert_eq!(value["APIRuleStatus"]["desc"].as_str(), description);
        let said = &status.conditions[0];
        assert_eq!(format!("{} {}: {}", said.status, said.reason, said.message), condition);
        assert_eq!(after(&status, outcome, Some(2), Timestamp::MAX), status, "nothing changes by itself");
    }

    #[test]
    fn says_what_became_of_it() {
        check(&Outcome::Served("a.b".into()), ["OK", "OK", "OK"], None, "True Served: served at a.b");
        let missing = [("api".to_owned(), NoTarget::NotFound), ("web".to_owned(), NoTarget::NotFound)];
        let text = "Service api and 1 more not found in this namespace";
        let outcome = Outcome::NoTargets(missing.clone().into());
        check(&outcome, ["ERROR", "SKIPPED", "SKIPPED"], Some(text), &format!("False ServiceNotFound: {text}"));
        let mut all = NoTargets::from(missing);
        all.insert("web".to_owned(), NoTarget::Type);
        let said = Outcome::NoTargets(all).condition();
        assert_eq!((said.0, said.1.as_str().as_str()), ("False", "ServiceNotAllowed"));
        assert!(said.2.starts_with("Service web and 1 more cannot be exposed: its type is ExternalName"), "{}", said.2);
        for (why, part) in [
            (NoTarget::NoSelector, "it has no selector"),
            (NoTarget::Written("mine".to_owned()), "it has the EndpointSlice mine"),
        ] {
            let said = Outcome::NoTargets(NoTargets::from([("web".to_owned(), why)])).condition();
            assert_eq!((said.0, said.1.as_str().as_str()), ("False", "ServiceNotAllowed"));
            assert!(said.2.contains(part) && said.2.contains("--allow-written-endpoints"), "{}", said.2);
        }
        let invalid = Outcome::Invalid("Validation error".into(), true);
        let text = "False Invalid: Validation error\nThe last valid version is still served.";
        check(&invalid, ["ERROR", "SKIPPED", "SKIPPED"], Some("Validation error"), text);
        let text = "no Istio and no Gateway API in this cluster";
        check(&Outcome::NoRouteApi, ["ERROR", "SKIPPED", "SKIPPED"], Some(text), &format!("False NoRouteApi: {text}"));
        let why = Outcome::NotAccepted(Some("NoMatchingParent".into()));
        let text = "the route is not accepted: NoMatchingParent";
        check(&why, ["ERROR", "ERROR", "OK"], Some(text), &format!("False NotAccepted: {text}"));
        let failed = Outcome::NotWritten("no".into());
        check(&failed, ["ERROR", "ERROR", "ERROR"], Some("no"), "False ApplyFailed: no");
    }

    #[test]
    fn a_rule_of_another_controller_keeps_its_status_codes() {
        let elsewhere = Outcome::ManagedElsewhere(Elsewhere::Made("VirtualService web-x".into()));
        let status = after(&ApiRuleStatus::default(), &elsewhere, Some(2), Timestamp::UNIX_EPOCH);
        assert_eq!((&status.api_rule_status, status.observed_generation), (&None, None));
        assert_eq!(patch(&status, &elsewhere)["status"].as_object().unwrap().len(), 1);
    }
}
