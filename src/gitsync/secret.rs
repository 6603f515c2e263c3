//! What is said when the Secret with a repository's credentials cannot be used.

use super::attempt::Refused;
use crate::api::conditions::Reason;
use crate::failure::Class;
use crate::secrets::Known;

/// Why there are no credentials, for people; `None` when there are.
pub(super) fn without_secret(name: &str, known: &Known) -> Option<Refused> {
    let (class, problem) = known.problem()?;
    let reason = if class == Class::Unavailable { Reason::ClusterUnavailable } else { Reason::SpecInvalid };
    let message = format!("Secret {name} with the credentials {problem}");
    Some(Refused { class, reason, message, retry_after: None })
}
