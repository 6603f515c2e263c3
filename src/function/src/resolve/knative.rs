//! Refuses Functions that Knative would refuse, before an image is built.

use kube::ResourceExt as _;

use super::{Findings, Settings};
use crate::flavour::{self, Flavour};
use crate::violation::{Violation, shown};
use mainstay_api::{Function, names};

/// Variables that Knative sets itself.
const RESERVED: [&str; 4] = ["PORT", "K_SERVICE", "K_REVISION", "K_CONFIGURATION"];

/// Resolves how the Function is run, and reports violations of Knative's rules.
pub(super) fn flavour(function: &Function, settings: &Settings, found: &mut Findings) -> Flavour {
    let flavour = match flavour::of(function, settings.serving) {
        Ok(flavour) => flavour,
        Err(why) => {
            let what = format!("the label {}: {why}", names::SERVING);
            found.wrong(Violation::invalid(what, "metadata.labels"));
            return settings.serving;
        }
    };
    if flavour == Flavour::Knative {
        refused(function, found);
    }
    flavour
}

fn refused(function: &Function, found: &mut Findings) {
    let name = function.name_any();
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        let what = format!("\"{}\" begins with a digit, which Knative does not allow", shown(&name));
        found.wrong(Violation::invalid(what, "metadata.name"));
    }
    for variable in function.spec.env.iter().flatten() {
        let name = shown(&variable.name);
        if RESERVED.contains(&&*variable.name) {
            found.wrong(Violation::invalid(format!("env {name} is set by Knative"), "spec.env"));
        }
        let from = variable.value_from.as_ref();
        if from.is_some_and(|from| from.field_ref.is_some() || from.resource_field_ref.is_some()) {
            let what =
                format!("env {name} refers to a field of the pod or of its resources, which Knative does not allow");
            found.wrong(Violation::invalid(what, "spec.env"));
        }
    }
}
