//! The Job of a build, for the operator's builder.

use serde_json::Value;

use super::job::{self, Build};
use super::kaniko;
use crate::{ResolvedFunction, Settings};

/// Returns the Job.
pub fn build(function: &ResolvedFunction, build: &Build<'_>, settings: &Settings) -> Value {
    let pod = match settings.executor() {
        Some(image) => kaniko::pod(function, build, settings, image),
        None => job::pod(function, build, settings),
    };
    job::around(function, build, settings, pod)
}
