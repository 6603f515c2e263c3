//! The rules of Functions for the web page: the runtimes, and what a change builds.
//!
//! Invariant: the rules are those of `function apply`, so both report the same problems.

use std::sync::Arc;

use serde_json::Value;

use super::objects::settings;
use mainstay_api::Function;
use mainstay_console::FunctionRules;
use mainstay_function::tag::{BuildCause, causes_of_change};
use mainstay_function::{runtimes, text};

/// Returns the rules.
pub(in crate::cli) fn page_rules() -> FunctionRules {
    let runtimes = runtimes::all().iter().map(|runtime| runtime.name).collect();
    FunctionRules { runtimes, changed_inputs: Arc::new(changed_inputs) }
}

fn changed_inputs(before: Option<&Value>, after: &Value) -> Result<Vec<&'static str>, String> {
    let function = |value: &Value| serde_json::from_value::<Function>(value.clone()).map_err(|error| error.to_string());
    let before = before.and_then(|before| function(before).ok());
    let causes = causes_of_change(before.as_ref(), &function(after)?, &settings());
    Ok(causes.map_err(|violations| text(&violations))?.into_iter().map(noun).collect())
}

fn noun(cause: BuildCause) -> &'static str {
    match cause {
        BuildCause::Source => "the code",
        BuildCause::Deps => "the dependencies",
        BuildCause::Runtime => "the runtime",
        BuildCause::Base => "the base image",
        BuildCause::Registry => "the registry",
        BuildCause::Requested => "the requested build",
        BuildCause::Retry => "the failed build",
    }
}
