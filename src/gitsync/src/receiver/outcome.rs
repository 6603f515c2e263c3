//! The result of a delivery: status and body of the response, and the label for metrics.
//!
//! Invariant: a response quotes no part of the request, and all unknown paths have the same response.

use std::collections::BTreeSet;
use std::fmt;

use super::payload::Malformed;
use super::signature::Refusal;
use mainstay_git::{Consumer, ConsumerKind};

/// Maximum number of names in one response.
const SHOWN: usize = 20;

/// Why the labels and the filter of a Receiver select no object for a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoneSelected {
    /// No object has the labels.
    Labels,
    /// No named object exists.
    Names,
    /// The filter is false for all objects.
    Filter {
        /// Their number.
        objects: usize,
        /// Whether `req` is empty although there is a body.
        is_unread: bool,
    },
}

impl NoneSelected {
    /// Follows a message about a filter whose body was not read.
    pub(super) const UNREAD: &'static str = "; `req` is empty, because the Content-Type of the delivery is not JSON: \
                                             send the header `Content-Type: application/json`";
}

impl fmt::Display for NoneSelected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Labels => f.write_str(
                "no object of this namespace has the labels (or a name) in spec.resources: label the object, or correct \
                 spec.resources",
            ),
            Self::Names => f.write_str("none of the objects that the Receiver names exists in this namespace"),
            Self::Filter { objects, is_unread } => {
                let objects = if *objects == 1 { "the only object".to_owned() } else { format!("all {objects} objects") };
                let unread = if *is_unread { Self::UNREAD } else { "" };
                write!(f, "spec.resourceFilter is false for {objects} of this Receiver{unread}")
            }
        }
    }
}

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
    /// The labels and the filter of the Receiver select no object.
    NoneSelected(NoneSelected),
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
            Self::Woken(_)
            | Self::NobodyWoken { .. }
            | Self::NoneSelected(_)
            | Self::NoRepository
            | Self::Ping
            | Self::PassedOver => 200,
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
            Self::NobodyWoken { .. } | Self::NoneSelected(_) | Self::NoRepository => "nobody",
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
            Self::NoneSelected(none) => format!("nothing to do: {none}"),
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

    #[test]
    fn says_why_no_object_is_selected() {
        let check = |none: NoneSelected, expected: &str| {
            let outcome = Outcome::NoneSelected(none);
            assert_eq!(
                (outcome.status(), outcome.label(), outcome.text()),
                (200, "nobody", format!("nothing to do: {expected}"))
            );
        };
        check(
            NoneSelected::Labels,
            "no object of this namespace has the labels (or a name) in spec.resources: label the object, or correct \
             spec.resources",
        );
        check(NoneSelected::Names, "none of the objects that the Receiver names exists in this namespace");
        check(
            NoneSelected::Filter { objects: 3, is_unread: false },
            "spec.resourceFilter is false for all 3 objects of this Receiver",
        );
        check(
            NoneSelected::Filter { objects: 1, is_unread: true },
            "spec.resourceFilter is false for the only object of this Receiver; `req` is empty, because the Content-Type of \
             the delivery is not JSON: send the header `Content-Type: application/json`",
        );
    }
}
