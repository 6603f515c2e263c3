//! `mainstay explain`: the meaning of a reason of a condition or an Event, and its remedy.

use serde_json::{Value, json};

use super::{
    Error, Exit,
    output::OutputArgument,
    table::{Table, width},
};
use mainstay_api::{conditions, events, function_conditions};

/// Arguments of `explain`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Reason of a condition or an Event, such as ApplyFailed; by default a table of all reasons
    #[arg(value_name = "REASON", value_parser = known)]
    reason: Option<String>,
    /// Explain all reasons, with their remedies
    #[arg(long, conflicts_with = "reason")]
    all: bool,
    #[command(flatten)]
    output: OutputArgument,
}

/// A reason of a condition or an Event.
struct Explanation {
    reason: String,
    /// The kinds whose conditions have this reason, or `Event`.
    of: &'static str,
    meaning: &'static str,
    /// The remedy; empty if nothing needs to be done.
    remedy: &'static str,
}

const FUNCTIONS: &str = "Function";
const SYNCS: &str = "GitSync";
const EVENTS: &str = "Event";

/// Returns the kinds whose conditions have a reason.
fn kinds(reason: conditions::Reason) -> &'static str {
    use conditions::Reason as R;
    match reason {
        R::SpecInvalid | R::Suspended => {
            "GitSync, OCIRepository, HelmChart, ImageRepository, ImagePolicy, ImageUpdateAutomation, Receiver, Provider, Alert"
        }
        R::SecretNotFound => {
            "GitSync, GitRepository, OCIRepository, HelmChart, ImageRepository, ImageUpdateAutomation, Provider"
        }
        R::MemoryExhausted => "GitSync, OCIRepository, HelmChart, ImageRepository, ImagePolicy, ImageUpdateAutomation",
        R::TagsListed => "ImageRepository",
        R::TagChosen => "ImagePolicy",
        R::ImagesUpdated | R::PushDisabled | R::UpdateFailed => "ImageUpdateAutomation",
        R::ImageFailed => "ImageRepository, ImagePolicy",
        R::SourceNotFound => "GitSync, ImagePolicy, ImageUpdateAutomation",
        R::ArtifactStored | R::ArtifactFailed => "OCIRepository, HelmChart",
        R::GitAuthorizationFailed | R::SourceUnavailable => "GitSync, GitRepository",
        R::ClusterUnavailable => "GitSync, APIRule",
        R::Resolved | R::Authenticated | R::PinnedAtFirstUse => "GitRepository",
        R::Receiving | R::TokenNotFound | R::TokenInvalid | R::NotServed => "Receiver",
        R::Sending => "Provider, Alert",
        R::TypeNotSupported | R::NotDelivered => "Provider",
        R::ProviderNotFound => "Alert",
        R::Served
        | R::Invalid
        | R::HostOccupied
        | R::ServiceNotFound
        | R::ServiceNotAllowed
        | R::NoRouteApi
        | R::AuthNotSupported
        | R::NotAccepted
        | R::ManagedElsewhere => "APIRule",
        _ => SYNCS,
    }
}

fn all() -> Vec<Explanation> {
    let others = conditions::Reason::ALL.iter().map(|reason| Explanation {
        reason: reason.as_str(),
        of: kinds(*reason),
        meaning: reason.meaning(),
        remedy: reason.remedy(),
    });
    let functions = function_conditions::Reason::ALL.iter().map(|reason| Explanation {
        reason: reason.as_str(),
        of: FUNCTIONS,
        meaning: reason.meaning(),
        remedy: reason.remedy(),
    });
    let events = events::Reason::ALL.iter().map(|reason| Explanation {
        reason: reason.as_str(),
        of: EVENTS,
        meaning: reason.meaning(),
        remedy: reason.remedy(),
    });
    let mut all: Vec<_> = others.chain(functions).chain(events).collect();
    // Groups the reasons of the same kinds. The groups are in the order of their first reason.
    let order = all.iter().map(|one| one.of).collect::<Vec<_>>();
    all.sort_by_key(|one| order.iter().position(|of| *of == one.of));
    all
}

/// Parses an existing reason, ignoring case.
fn known(text: &str) -> Result<String, String> {
    let found = all().into_iter().find(|one| one.reason.eq_ignore_ascii_case(text));
    found
        .map(|one| one.reason)
        .ok_or_else(|| "it is not the reason of a condition or an Event; `mainstay explain` lists them".to_owned())
}

pub(super) fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let wanted = |one: &Explanation| arguments.reason.as_ref().is_none_or(|reason| *reason == one.reason);
    let found: Vec<_> = all().into_iter().filter(wanted).collect();
    let facts: Vec<Value> = found
        .iter()
        .map(|one| json!({ "reason": one.reason, "of": one.of, "meaning": one.meaning, "remedy": one.remedy }))
        .collect();
    let is_detailed = arguments.all || arguments.reason.is_some();
    let text = || if is_detailed { details(&found) } else { list(&found) };
    arguments.output.print(&json!({ "items": facts }), text)?;
    Ok(Exit::Fine)
}

fn details(found: &[Explanation]) -> String {
    let text = |one: &Explanation| {
        let remedy = if one.remedy.is_empty() { "No action is needed." } else { one.remedy };
        format!("{} ({})\n  {}\n  {remedy}\n", one.reason, one.of, one.meaning)
    };
    found.iter().map(text).collect::<Vec<_>>().join("\n")
}

fn list(found: &[Explanation]) -> String {
    let mut table = Table::new(&["REASON", "OF", "MEANING"]);
    for one in found {
        table.row(vec![one.reason.clone(), one.of.to_owned(), one.meaning.to_owned()]);
    }
    table.render(width())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_meaning_and_each_failure_a_remedy() {
        for one in all() {
            let is_sentence =
                |text: &str| text.starts_with(|c: char| c.is_uppercase() || c == '`') && text.ends_with('.');
            assert!(is_sentence(one.meaning), "{}: {}", one.reason, one.meaning);
            assert!(one.remedy.is_empty() || is_sentence(one.remedy), "{}: {}", one.reason, one.remedy);
            let is_failure = ["Failed", "Invalid", "NotFound", "Unavailable", "Conflict", "Exhausted"];
            let needs_remedy = is_failure.iter().any(|word| one.reason.contains(word));
            assert!(!needs_remedy || !one.remedy.is_empty(), "{} needs a remedy", one.reason);
        }
    }

    #[test]
    fn a_reason_is_known_in_any_case() {
        assert_eq!(known("applyfailed").as_deref(), Ok("ApplyFailed"));
        assert!(known("Frobnicated").unwrap_err().contains("`mainstay explain` lists them"));
    }

    #[test]
    fn a_reason_of_an_event_is_no_reason_of_another_kind() {
        for event in all().iter().filter(|one| one.of == EVENTS) {
            assert!(all().iter().all(|one| one.of == EVENTS || one.reason != event.reason), "{}", event.reason);
        }
        assert_eq!(known("reverted").as_deref(), Ok("Reverted"));
    }

    #[test]
    fn the_kinds_of_a_reason_are_those_that_have_it() {
        for (reason, of) in [("ManifestInvalid", "GitSync"), ("NotDelivered", "Provider"), ("HostOccupied", "APIRule")]
        {
            assert_eq!(all().iter().find(|one| one.reason == reason).unwrap().of, of);
        }
    }

    #[test]
    fn a_reason_of_two_kinds_is_explained_for_both() {
        let both: Vec<_> = all().into_iter().filter(|one| one.reason == "ApplyFailed").collect();
        let text = details(&both);
        assert!(text.starts_with("ApplyFailed (GitSync)") && text.contains("\n\nApplyFailed (Function)\n"), "{text}");
    }
}
