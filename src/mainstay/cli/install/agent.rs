//! Arguments and environment of the agent, from the flags of `install`.

use clap::builder::Resettable;
use serde_json::{Value, json};

use super::choice::{Choice, Restricted};
use super::values::Values;
use crate::Component;
use mainstay_gitsync::receiver::BaseUrl;
use mainstay_object::egress::Network;

/// The agent's Deployment and Service.
pub(super) const MANIFEST: &str = include_str!("../../../../manifests/deployment.yaml");
/// Environment variable of `mainstay agent --receiver-url`.
const RECEIVER_URL: &str = "MAINSTAY_RECEIVER_URL";
/// Environment variable with the base images of Functions.
const BASE_IMAGES: &str = "MAINSTAY_BASE_IMAGES";
/// Environment variable with the Secret that contains the CAs for the registries of base images.
const BASE_CA: &str = "MAINSTAY_BASE_CA";
/// Environment variable with the Secret for pulling the image of builds.
const IMAGE_PULL_SECRET: &str = "MAINSTAY_IMAGE_PULL_SECRET";

/// Returns the arguments of the agent, in addition to those in `manifests/`.
pub(super) fn arguments(named: &[Component], restricted: Option<&Restricted>, values: &Values) -> Vec<String> {
    let mut arguments = Choice::agent_arguments(named, restricted);
    arguments.extend((values.shards > 0).then(|| format!("--shards={}", values.shards)));
    arguments.extend(values.allow_networks.iter().map(|network| format!("--allow-network={network}")));
    arguments.extend(values.extra_args.iter().cloned());
    arguments
}

/// Returns the environment variables of the agent, in addition to those in `manifests/`.
pub(super) fn environment(receiver_url: Option<&BaseUrl>, values: &Values) -> Vec<Value> {
    let url = receiver_url.and_then(BaseUrl::known).unwrap_or_default();
    let own = [(RECEIVER_URL, url.to_owned())].into_iter().chain(own_variables(values));
    let own = own.filter(|(_, value)| !value.is_empty()).map(|(name, value)| json!({"name": name, "value": value}));
    let extra = values.extra_env.iter().map(|(name, value)| match value {
        Value::String(_) => json!({"name": name, "value": value}),
        source => json!({"name": name, "valueFrom": source}),
    });
    own.chain(extra).collect()
}

fn own_variables(values: &Values) -> [(&'static str, String); 3] {
    let images = if values.base_images.is_empty() { String::new() } else { json!(values.base_images).to_string() };
    [(BASE_IMAGES, images), (BASE_CA, values.base_ca.clone()), (IMAGE_PULL_SECRET, values.image_pull_secret.clone())]
}

/// Returns the problems that would prevent the agent from starting. Each one begins with its flag.
pub(super) fn problems(values: &Values) -> Vec<String> {
    let mut problems = Vec::new();
    let texts = values.extra_env.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let own = own_variables(values).into_iter().map(|(name, value)| (name.to_owned(), value));
    let settings = mainstay_function::Settings::from_env(
        mainstay_function::Settings::default(),
        own.chain(texts).collect::<Vec<_>>(),
    );
    problems.extend(settings.err().into_iter().flatten().map(|refused| match &*refused.name {
        BASE_IMAGES => format!("--base-images: {}", refused.why),
        BASE_CA => format!("--base-ca: {}", refused.why),
        // A problem of this variable is reported for its own flag.
        IMAGE_PULL_SECRET => String::new(),
        name => format!("--extra-env {name}: {}", refused.why),
    }));
    for (flag, networks) in
        [("--allow-network", &values.allow_networks), ("--registry-network", &values.registry_networks)]
    {
        for network in networks {
            if let Err(error) = network.parse::<Network>() {
                problems.push(format!("{flag} {network}: {error}"));
            }
        }
    }
    problems
        .extend(refused_arguments(&values.extra_args).map(|why| format!("--extra-arg: the agent refuses it: {why}")));
    problems.retain(|problem| !problem.is_empty());
    problems
}

/// Returns why the agent would not start with these arguments, which follow those in `manifests/`.
fn refused_arguments(extra: &[String]) -> Option<String> {
    let deployment: Value = serde_yaml::Deserializer::from_str(MANIFEST)
        .next()
        .and_then(|one| serde::Deserialize::deserialize(one).ok())?;
    let given = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array()?;
    let given = given.iter().filter_map(Value::as_str).chain(extra.iter().map(String::as_str));
    let command = <crate::cli::agent::Arguments as clap::Args>::augment_args(clap::Command::new("agent"));
    // The environment of this machine is ignored, because the agent has its own.
    let command = command.disable_help_flag(true).mut_args(|argument| argument.env(Resettable::Reset));
    let error = command.try_get_matches_from(given).err()?;
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    Some(first.trim_start_matches("error: ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::install::{arguments::Arguments, values::of_flags};

    #[track_caller]
    fn check(change: impl FnOnce(&mut Values), expected: &[&str]) {
        let mut values = of_flags(&Arguments::default()).unwrap().values;
        change(&mut values);
        let problems = problems(&values);
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}");
        }
    }

    #[test]
    fn refuses_what_the_agent_would_not_start_with() {
        check(|_| {}, &[]);
        let args = |args: &[&str]| args.iter().map(ToString::to_string).collect::<Vec<_>>();
        check(|v| v.extra_args = args(&["--audit-interval=2h", "--allow-namespace=team"]), &[]);
        check(
            |v| v.extra_args = args(&["--audit=2h"]),
            &["--extra-arg: the agent refuses it: unexpected argument '--audit'"],
        );
        check(
            |v| v.extra_args = args(&["--listen=0.0.0.0:1"]),
            &["--extra-arg: the agent refuses it: the argument '--listen"],
        );
        check(
            |v| v.extra_args = args(&["--audit-interval=1s"]),
            &["--extra-arg: the agent refuses it: invalid value '1s'"],
        );
        check(|v| v.allow_networks = args(&["10.0.0.0/8", "10.0.0.0/99"]), &["--allow-network 10.0.0.0/99: "]);
        let env = |name: &str, value: Value| [(name.to_owned(), value)].into();
        check(|v| v.extra_env = env("HTTPS_PROXY", json!("http://p:3128")), &[]);
        check(|v| v.extra_env = env("MAINSTAY_GIT_INTERVAL", json!({"secretKeyRef": {}})), &[]);
        check(|v| v.extra_env = env("MAINSTAY_GIT_INTERVAL", json!("soon")), &["--extra-env MAINSTAY_GIT_INTERVAL: "]);
        check(|v| v.extra_env = env("MAINSTAY_GIT_INTERVALL", json!("1m")), &["--extra-env MAINSTAY_GIT_INTERVALL: "]);
    }
}
