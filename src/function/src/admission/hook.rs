//! The webhooks: names, paths, and the functions that decide.

use std::collections::BTreeSet;

use serde_json::Value;

use super::registry_secret::{self, RegistrySecret};
use super::review::{Review, Unreadable, Verdict};
use super::{default, validate};
use crate::Settings;
use mainstay_api::{Function, GitRepository};

/// Path of the conversion webhook.
pub(super) const CONVERT: &str = "/convert";

/// A webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hook {
    /// Sets defaults of Functions.
    DefaultFunction,
    /// Completes registry Secrets.
    DefaultSecret,
    /// Validates Functions.
    ValidateFunction,
    /// Explains how a new registry Secret replaces an existing copy.
    ExplainCopy,
    /// Validates GitRepositories.
    ValidateRepository,
    /// Converts Functions.
    ConvertFunction,
}

impl Hook {
    const ALL: [(Self, &str, &str); 6] = [
        (Self::DefaultFunction, "/defaulting/functions", "default-function"),
        (Self::DefaultSecret, "/defaulting/registry-config-secrets", "default-secret"),
        (Self::ValidateFunction, "/validation/function", "validate-function"),
        (Self::ExplainCopy, "/validation/registry-config-secret", "explain-copy"),
        (Self::ValidateRepository, "/validation/gitrepository", "validate-gitrepository"),
        (Self::ConvertFunction, CONVERT, "convert-function"),
    ];

    /// Returns the admission webhooks.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn of_writes() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().map(|(hook, ..)| hook).filter(|hook| *hook != Self::ConvertFunction)
    }

    /// Returns the webhook at a path, and its name in metrics.
    pub(super) fn at(path: &str) -> Option<(Self, &'static str)> {
        let found = Self::ALL.into_iter().find(|(_, of, _)| *of == path);
        found.map(|(hook, _, label)| (hook, label))
    }

    /// Whether the webhook is needed only with Functions.
    pub(super) fn is_of_functions(self) -> bool {
        self != Self::ValidateRepository
    }

    /// Returns the webhooks that a webhook configuration or the CRD of Function uses.
    pub(super) fn configured(live: &Value) -> BTreeSet<Self> {
        let webhooks = live["webhooks"].as_array().into_iter().flatten().map(|webhook| &webhook["clientConfig"]);
        let webhooks = webhooks.filter_map(Self::led_to).filter(|hook| *hook != Self::ConvertFunction);
        let conversion = &live["spec"]["conversion"];
        let conversion = Some(&conversion["webhook"]["clientConfig"]).filter(|_| conversion["strategy"] == "Webhook");
        webhooks.chain(conversion.and_then(Self::led_to).filter(|hook| *hook == Self::ConvertFunction)).collect()
    }

    /// Returns the webhook at the path of a `clientConfig`. A URL may have a prefix before the path.
    fn led_to(client: &Value) -> Option<Self> {
        let path = client["service"]["path"].as_str().or_else(|| client["url"].as_str())?;
        Self::ALL.into_iter().find(|(_, of, _)| path.ends_with(of)).map(|(hook, ..)| hook)
    }

    /// Decides about a write. Objects of an unexpected type are accepted, because their schema validates them.
    pub(super) fn verdict(self, review: &Review<'_>, settings: &Settings) -> Result<Verdict, Unreadable> {
        let decided = match self {
            Self::DefaultFunction => review
                .object::<Function>()?
                .map(|new| default::function(&new, review.old_object::<Function>().as_ref(), settings)),
            Self::DefaultSecret => review.object::<RegistrySecret>()?.map(|secret| registry_secret::secret(&secret)),
            Self::ExplainCopy => {
                review.object::<RegistrySecret>()?.map(|secret| registry_secret::explain_copy(&secret, settings))
            }
            Self::ValidateFunction => review.object::<Function>()?.map(|new| {
                let old = review.old_object::<Function>();
                validate::function(&new, old.as_ref(), review.written_in.as_deref(), settings)
            }),
            // Conversion uses ConversionReviews, not AdmissionReviews.
            Self::ConvertFunction => None,
            Self::ValidateRepository => review
                .object::<GitRepository>()?
                .map(|new| validate::repository(&new, review.old_object::<GitRepository>().as_ref())),
        };
        Ok(decided.unwrap_or(Verdict::Allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hooks_are_those_that_a_configuration_leads_to() {
        let at = |path: &str| json!({"clientConfig": {"service": {"name": "mainstay-admission", "path": path}}});
        let webhooks = json!({"webhooks": [at("/validation/function"), at("/convert"), at("/other"), {}]});
        assert_eq!(Hook::configured(&webhooks), [Hook::ValidateFunction].into());
        let url = json!({"clientConfig": {"url": "https://h:1/mainstay/defaulting/functions"}});
        assert_eq!(Hook::configured(&json!({"webhooks": [url]})), [Hook::DefaultFunction].into());
        let definition =
            |strategy: &str| json!({"spec": {"conversion": {"strategy": strategy, "webhook": at("/convert")}}});
        assert_eq!(Hook::configured(&definition("Webhook")), [Hook::ConvertFunction].into());
        assert_eq!(Hook::configured(&definition("None")), BTreeSet::new());
        assert_eq!(Hook::configured(&json!({"webhooks": "x", "spec": []})), BTreeSet::new());
    }
}
