//! Resolves the environment of a Function's pods: the user's variables, followed by Mainstay's.

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::{Credentials, Findings, Settings};
use crate::runtimes::Runtime;
use crate::violation::{Violation, shown};
use mainstay_api::events::Reason;
use mainstay_api::function::{EnvVar, Resources};
use mainstay_api::{Function, FunctionSpec};
use mainstay_object::syntax;

/// Maximum size in bytes of one `NAME=value` in the kernel, including the terminating zero.
const VARIABLE_ROOM: usize = 128 * 1024;

/// Resolves the environment of the serving pods, in order, with unique names.
pub(super) fn env(
    spec: &FunctionSpec,
    (settings, credentials): (&Settings, &Credentials),
    mut ours: Vec<EnvVar>,
    found: &mut Findings,
) -> Vec<EnvVar> {
    let given = spec.env.as_deref().unwrap_or_default();
    // The user may override the URLs for events and traces, and the reported memory limit.
    ours.retain(|variable| !DEFAULTS.contains(&&*variable.name) || !given.iter().any(|own| own.name == variable.name));
    let mut seen: BTreeSet<&str> = ours.iter().map(|variable| variable.name.as_str()).collect();
    let mut reported = BTreeSet::new();
    let mut kept = Vec::new();
    for variable in given.iter().rev() {
        let name = variable.name.as_str();
        check_variable(variable, settings, found);
        check_secret(variable, credentials, found);
        if seen.insert(name) {
            kept.push(variable.clone());
        } else if !settings.reserved_env.iter().any(|reserved| reserved == name) && reported.insert(name) {
            let winner =
                if ours.iter().any(|v| v.name == name) { "Mainstay sets it itself" } else { "the last one counts" };
            let message = format!("the environment variable {} is ignored or defined twice: {winner}", shown(name));
            found.warn(Reason::EnvIgnored, message);
        }
    }
    kept.reverse();
    kept.extend(ours);
    kept
}

/// Mainstay's variables that a Function may override.
const DEFAULTS: [&str; 4] =
    ["FUNC_MEMORY_LIMIT", "SERVICE_NAMESPACE", "PUBLISHER_PROXY_ADDRESS", "TRACE_COLLECTOR_ENDPOINT"];

/// Returns Mainstay's variables for this runtime, in Kyma's order.
pub(super) fn ours(
    function: &Function,
    settings: &Settings,
    runtime: Option<&'static Runtime>,
    resources: &Resources,
) -> Vec<EnvVar> {
    let of = |name: &str, value: String| EnvVar { name: name.to_owned(), value: Some(value), value_from: None };
    let mut all: Vec<_> = runtime.iter().flat_map(|r| r.pod_env()).map(|(name, value)| of(name, value)).collect();
    let memory = resources.limits.as_ref().and_then(|limits| limits.get("memory"));
    all.extend(memory.map(|memory| of("FUNC_MEMORY_LIMIT", memory.0.clone())));
    all.extend([
        of("SERVICE_NAMESPACE", function.namespace().unwrap_or_default()),
        of("PUBLISHER_PROXY_ADDRESS", settings.publisher.clone()),
        of("TRACE_COLLECTOR_ENDPOINT", settings.trace_collector.clone()),
    ]);
    all.extend(
        [("FUNC_HANDLER", "main"), ("MOD_NAME", "handler"), ("FUNC_PORT", "8080")].map(|(k, v)| of(k, v.to_owned())),
    );
    all
}

fn check_secret(variable: &EnvVar, credentials: &Credentials, found: &mut Findings) {
    let Some(secret) = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref()) else { return };
    let reader = format!("env {}", shown(&variable.name));
    found.violations.extend(credentials.refusal(&reader, &secret.name, "spec.env"));
}

fn check_variable(variable: &EnvVar, settings: &Settings, found: &mut Findings) {
    const PATH: &str = "spec.env";
    let name = variable.name.as_str();
    let words = syntax::env_name(name);
    if !words.is_empty() {
        found.wrong(Violation::key(name, PATH, words.join(", ")));
    }
    if settings.reserved_env.iter().any(|reserved| reserved == name) {
        found.wrong(Violation::key(name, PATH, "env name is reserved for the serverless domain".to_owned()));
    }
    let value = variable.value.as_deref().unwrap_or_default();
    if name.len() + value.len() + 2 > VARIABLE_ROOM {
        let what = format!("the value of env {} has {} bytes", shown(name), value.len());
        let why = "programs cannot be started with a variable of 128 KiB or more";
        found.wrong(Violation::invalid(what, PATH).because(why));
    }
    let Some(from) = &variable.value_from else { return };
    let sources = usize::from(from.config_map_key_ref.is_some())
        + usize::from(from.secret_key_ref.is_some())
        + usize::from(from.field_ref.is_some())
        + usize::from(from.resource_field_ref.is_some());
    if sources != 1 {
        let what = format!("env {} has {sources} sources in valueFrom instead of one", shown(name));
        found.wrong(Violation::invalid(what, PATH));
    }
    if !value.is_empty() {
        found.wrong(Violation::invalid(format!("env {} has both value and valueFrom", shown(name)), PATH));
    }
}
