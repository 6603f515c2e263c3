//! Refuses unknown environment variables that look like settings of the agent, because they would have no effect.
//!
//! Invariant: variables that Kubernetes sets for Services are ignored. A Service `mainstay-x` adds
//! `MAINSTAY_X_SERVICE_HOST`, `MAINSTAY_X_PORT_80_TCP_ADDR` and more to every pod in its namespace.

use super::table::VARIABLES;

/// Prefixes of variables that must be known.
const OURS: [&str; 4] = ["MAINSTAY_", "APP_", "WEBHOOK_VALIDATION_", "WEBHOOK_DEFAULTING_"];

/// Variables with these prefixes that the command line reads.
const COMMAND_LINE: [&str; 17] = [
    "MAINSTAY_ALLOW_DOMAINS",
    "MAINSTAY_ALLOW_GATEWAYS",
    "MAINSTAY_ALLOW_ISSUERS",
    "MAINSTAY_ALLOW_WRITTEN_ENDPOINTS",
    "MAINSTAY_AUDIT_INTERVAL",
    "MAINSTAY_DEFAULT_DOMAIN",
    "MAINSTAY_EVENTING_DATA",
    "MAINSTAY_IDENTITY",
    "MAINSTAY_NATS_CREDENTIALS",
    "MAINSTAY_NATS_URL",
    "MAINSTAY_POD",
    "MAINSTAY_MEMORY",
    "MAINSTAY_RECEIVER_URL",
    "MAINSTAY_RENDERER",
    "MAINSTAY_SWEEP",
    "MAINSTAY_DEV_TOKEN",
    "MAINSTAY_LIBRARIES",
];

/// Known variables without an effect, and why.
pub(super) const REFUSED: [(&str, &str); 4] = [
    ("MAINSTAY_TRUST_REGISTRY", "only an image whose digest a build reported is run, whatever the registry holds"),
    (
        "MAINSTAY_PACKAGE_REGISTRY",
        "package registries are configured in the Secret that APP_FUNCTION_PACKAGE_REGISTRY_CONFIG_SECRET_NAME names",
    ),
    ("MAINSTAY_TERMINATION_LOG", "only the containers of build Jobs write a termination log"),
    ("APP_FUNCTION_FUNCTION_READY_REQUEUE_DURATION", "a Function is reconciled on changes, not periodically"),
];

/// Minimum similarity (0 to 1) at which a name counts as a typo of another name.
const ALIKE: f64 = 0.7;

/// Returns an error for an unknown variable that looks like a setting.
pub(super) fn refuse(name: &str, value: &str) -> Result<(), String> {
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        let why = format!("it is not a setting of Mainstay; remove it: {why}");
        return if value.is_empty() { Ok(()) } else { Err(why) };
    }
    let is_unknown = OURS.iter().any(|prefix| name.starts_with(prefix)) && !COMMAND_LINE.contains(&name);
    if !is_unknown || is_service_link(name, value) {
        return Ok(());
    }
    let known = VARIABLES.iter().map(|known| known.name).chain(COMMAND_LINE);
    Err(match nearest(name, known.map(str::to_owned)) {
        Some(known) => format!("it is not a setting of Mainstay; did you mean {known}?"),
        None => "it is not a setting of Mainstay; remove it, or correct its name".to_owned(),
    })
}

/// Returns the most similar known name, if a name is similar enough.
pub(super) fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let likeness = known.map(|known| (strsim::normalized_damerau_levenshtein(name, &known), known));
    likeness.filter(|(alike, _)| *alike >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// Whether the kubelet set the variable for a Service.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let is_of_a_port = name.split("_PORT_").skip(1).any(|end| {
        let mut words = end.split('_');
        words.next().is_some_and(|port| port.parse::<u16>().is_ok())
            && words.next().is_some_and(|protocol| matches!(protocol, "TCP" | "UDP" | "SCTP"))
    });
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && is_address)
        || is_of_a_port
}
