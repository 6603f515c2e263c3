//! The webhooks: their names, their paths, and who decides.

use super::registry_secret::{self, RegistrySecret};
use super::review::{Review, Unreadable, Verdict};
use super::{default, validate};
use crate::Settings;
use mainstay_api::{Function, GitRepository};

/// Where Functions are converted.
pub(super) const CONVERT: &str = "/convert";

/// A webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// Completes Functions.
    DefaultFunction,
    /// Completes registry Secrets.
    DefaultSecret,
    /// Judges Functions.
    ValidateFunction,
    /// Judges GitRepositories.
    ValidateRepository,
    /// Converts Functions.
    ConvertFunction,
}

impl Hook {
    const ALL: [(Self, &str, &str); 5] = [
        (Self::DefaultFunction, "/defaulting/functions", "default-function"),
        (Self::DefaultSecret, "/defaulting/registry-config-secrets", "default-secret"),
        (Self::ValidateFunction, "/validation/function", "validate-function"),
        (Self::ValidateRepository, "/validation/gitrepository", "validate-gitrepository"),
        (Self::ConvertFunction, CONVERT, "convert-function"),
    ];

    /// The one at a path, and its name for metrics.
    pub(super) fn at(path: &str) -> Option<(Self, &'static str)> {
        let found = Self::ALL.into_iter().find(|(_, of, _)| *of == path);
        found.map(|(hook, _, label)| (hook, label))
    }

    /// Whether it is about Functions, and not needed where there are none.
    pub(super) fn is_of_functions(self) -> bool {
        self != Self::ValidateRepository
    }

    /// The decision. What is not of the kind that the webhook is for is let through: its schema judges it.
    pub(super) fn verdict(self, review: &Review<'_>, settings: &Settings) -> Result<Verdict, Unreadable> {
        let decided = match self {
            Self::DefaultFunction => review
                .object::<Function>()?
                .map(|new| default::function(&new, review.old_object::<Function>().as_ref(), settings)),
            Self::DefaultSecret => review.object::<RegistrySecret>()?.map(|secret| registry_secret::secret(&secret)),
            Self::ValidateFunction => review.object::<Function>()?.map(|new| {
                let old = review.old_object::<Function>();
                validate::function(&new, old.as_ref(), review.written_in.as_deref(), settings)
            }),
            // It has reviews of its own.
            Self::ConvertFunction => None,
            Self::ValidateRepository => review
                .object::<GitRepository>()?
                .map(|new| validate::repository(&new, review.old_object::<GitRepository>().as_ref())),
        };
        Ok(decided.unwrap_or(Verdict::Allowed))
    }
}
