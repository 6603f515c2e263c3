//! What is said when a Secret that a repository names cannot be used.

use super::attempt::Refused;
use crate::api::conditions::Reason;
use crate::failure::Class;
use crate::secrets::Known;

/// Why nothing is known of a Secret and what it is there for; `None` when it is.
pub(super) fn without_secret(name: &str, what: &str, known: &Known) -> Option<Refused> {
    let (class, problem) = known.problem()?;
    let reason = if class == Class::Unavailable { Reason::ClusterUnavailable } else { Reason::SpecInvalid };
    let message = format!("Secret {name} with the {what} {problem}");
    Some(Refused { class, reason, message, retry_after: None })
}
