//! The result of a delivery: status and body of the response, and the label for metrics.
//!
//! Invariant: a response quotes no part of the request, and all unknown paths have the same response.

use std::collections::BTreeSet;

use super::payload::Malformed;
use super::signature::Refusal;
use mainstay_git::{Consumer, ConsumerKind};

/// Maximum number of names in one response.
const SHOWN: usize = 20;

/// The result of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// These consumers look up their remote.
    Woken(Vec<Consumer>),
    /// No consumer follows the named repository.
    NobodyWoken {
        /// Number of consumers that follow the repository at a commit id.
        fixed: usize,
    },
    /// The body names no repository.
    NoRepository,
    /// The host tests the connection.
    Ping,
    /// The event is ignored.
    PassedOver,
    /// The delivery is not authentic.
    Refused(Refusal),
    /// The body cannot be parsed.
    Malformed(Malformed),
    /// The body is too large.
    TooLarge,
    /// The body does not arrive in time.
    TooSlow,
    /// The client closed the connection.
    Broken,
    /// The method is not POST.
    WrongMethod,
    /// No Receiver has this path.
    NotFound,
    /// The Receiver is suspended.
    Suspended,
    /// Too many bodies are in memory.
    NoRoom,
    /// The keys of the token's issuer cannot be read now.
    IssuerAway,
    /// The objects that the Receiver selects cannot be listed now.
    ObjectsAway,
    /// The filter has no result for some objects.
    Unevaluated {
        /// The consumers that look up their remote nevertheless.
        woken: Vec<Consumer>,
        /// The error, without content of the delivery.
        why: String,
    },
    /// Another agent is the leader.
    NotLeading,
}

impl Outcome {
    /// Returns the HTTP status of the response.
    pub(super) fn status(&self) -> u16 {
        match self {
            // An ignored event is no error: hosts disable a webhook after several errors.
            Self::Woken(_) | Self::NobodyWoken { .. } | Self::NoRepository | Self::Ping | Self::PassedOver => 200,
            Self::Refused(_) | Self::Malformed(_) | Self::Broken => 400,
            Self::NotFound => 404,
            Self::WrongMethod => 405,
            Self::TooSlow => 408,
            Self::TooLarge => 413,
            // As in Flux.
            Self::Unevaluated { .. } => 500,
            Self::Suspended | Self::NoRoom | Self::IssuerAway | Self::ObjectsAway | Self::NotLeading => 503,
        }
    }

    /// Returns the label for metrics.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Woken(_) => "woken",
            Self::NobodyWoken { .. } | Self::NoRepository => "nobody",
            Self::Ping => "ping",
            Self::PassedOver => "passed_over",
            Self::Refused(_) => "refused",
            Self::Malformed(_) => "malformed",
            Self::TooLarge => "too_large",
            Self::TooSlow | Self::Broken => "incomplete",
            Self::WrongMethod => "wrong_method",
            Self::NotFound => "not_found",
            Self::Suspended => "suspended",
            Self::NoRoom => "no_room",
            Self::IssuerAway => "issuer_away",
            Self::ObjectsAway => "objects_away",
            Self::Unevaluated { .. } => "unevaluated",
            Self::NotLeading => "not_leading",
        }
    }

    /// Returns the body of the response.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Woken(woken) => format!("looking up the remote for {}", listed(woken)),
            Self::Unevaluated { woken, why } if woken.is_empty() => why.clone(),
            Self::Unevaluated { woken, why } => format!("looking up the remote for {}; {why}", listed(woken)),
            Self::NobodyWoken { fixed: 0 } => {
                "nothing to do: no GitSync, Function or artifact of this Receiver follows the repository and reference that the \
                 delivery names"
                    .to_owned()
            }
            Self::NobodyWoken { fixed } => {
                let number = if *fixed == 1 { "one follows".to_owned() } else { format!("{fixed} follow") };
                format!(
                    "nothing to do: no GitSync, Function or artifact of this Receiver follows the reference that the delivery names; \
                     {number} a fixed commit of the repository, which a push does not change"
                )
            }
            Self::NoRepository => {
                "nothing to do: the delivery names no repository (Azure DevOps names it if `All` resource details are sent)"
                    .to_owned()
            }
            Self::Ping => "pong".to_owned(),
            Self::PassedOver => "ignored: the Receiver does not select this event type".to_owned(),
            Self::Refused(refusal) => refusal.to_string(),
            Self::Malformed(malformed) => malformed.to_string(),
            Self::TooLarge => "the body is larger than 3 MiB".to_owned(),
            Self::TooSlow => "timed out after 10 s while reading the body".to_owned(),
            Self::Broken => "the body is incomplete".to_owned(),
            Self::WrongMethod => "deliveries are sent with POST".to_owned(),
            Self::NotFound => "not found".to_owned(),
            Self::Suspended => "this Receiver is suspended".to_owned(),
            Self::NoRoom => "too many deliveries are coming in; redeliver the webhook".to_owned(),
            Self::IssuerAway => {
                "the keys of the token's issuer cannot be read now; an Event of the Receiver has the reason; redeliver the \
                 webhook"
                    .to_owned()
            }
            Self::ObjectsAway => {
                "the objects that the Receiver selects cannot be listed now; an Event of the Receiver has the reason; redeliver \
                 the webhook"
                    .to_owned()
            }
            Self::NotLeading => "this agent is not the leader; redeliver the webhook".to_owned(),
        }
    }
}

/// Returns the names of consumers, but not of thousands.
fn listed(woken: &[Consumer]) -> String {
    let names: BTreeSet<String> = woken.iter().map(shown).collect();
    let more = names.len().saturating_sub(SHOWN);
    let mut names: Vec<String> = names.into_iter().take(SHOWN).collect();
    names.extend((more > 0).then(|| format!("and {more} more")));
    names.join(", ")
}

fn shown(consumer: &Consumer) -> String {
    let kind = match consumer.kind {
        ConsumerKind::GitSync => "GitSync",
        ConsumerKind::Function => "Function",
        ConsumerKind::GitRepository => "GitRepository",
        ConsumerKind::OciRepository => "OCIRepository",
        ConsumerKind::HelmChart => "HelmChart",
        ConsumerKind::ImageRepository => "ImageRepository",
        ConsumerKind::ImageUpdateAutomation => "ImageUpdateAutomation",
    };
    // The name of an artifact is followed by the number of its task.
    format!("{kind} {}", consumer.name.split('/').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_whom_it_woke_but_not_thousands() {
        let woken = (0..30).map(|number| Consumer::new(ConsumerKind::Function, "shop", &format!("f{number:02}")));
        let text = Outcome::Woken(woken.collect()).text();
        assert!(text.starts_with("looking up the remote for Function f00, Function f01"), "{text}");
        assert!(text.ends_with("Function f19, and 10 more"), "{text}");
    }
}
