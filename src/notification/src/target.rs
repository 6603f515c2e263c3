//! Turns the spec and the Secret of a Provider into a [`Target`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use k8s_openapi::ByteString;
use reqwest::Url;

use crate::address::{self, Place, is_subject};
use crate::cloud_address;
use crate::identity::Identity;
use crate::login::{Login, Service, SharedKey};
use crate::provider_type::ProviderType;
use crate::status_name::StatusName;
use mainstay_api::ProviderSpec;
use mainstay_object::{Secret, yaml_excess};

/// Maximum number of values in the YAML of `headers`. Names and values each count.
const MOST_HEADERS: usize = 1000;
/// Maximum length of a value of the Secret, in bytes.
const LONGEST: usize = 8 << 10;
const TIMEOUT: Duration = Duration::from_secs(15);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Headers that only the HTTP client may set.
const RESERVED: [&str; 5] = ["host", "content-length", "transfer-encoding", "connection", "upgrade"];

/// A valid Provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Type of the Provider.
    pub kind: ProviderType,
    /// Maximum time of a request.
    pub timeout: Duration,
    /// The uid of the Provider.
    pub(crate) uid: String,
    pub(crate) address: Secret<Url>,
    pub(crate) channel: String,
    pub(crate) username: String,
    pub(crate) token: Option<Secret<String>>,
    pub(crate) password: Option<Secret<String>>,
    /// The headers of requests; attributes of messages at Google Pub/Sub.
    pub(crate) headers: Vec<(String, Secret<String>)>,
    /// The name of commit statuses, if an expression computes it.
    pub(crate) status_name: Option<Arc<StatusName>>,
    pub(crate) login: Option<Login>,
}

impl Target {
    /// Reads a Provider, and the data of the Secret in its `secretRef`.
    ///
    /// # Errors
    /// All problems, without values of the Secret.
    pub fn new(
        spec: &ProviderSpec,
        provider: &Identity<'_>,
        secret: Option<&BTreeMap<String, ByteString>>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let Some(kind) = ProviderType::parse(&spec.kind) else { return Err(vec![unsupported(&spec.kind)]) };
        refused(spec, &mut problems);
        let status_name = status_name(kind, spec, provider).map_err(|problem| problems.push(problem)).ok().flatten();
        let mut value = |key: &str| -> Option<String> {
            let value = secret.and_then(|data| data.get(key))?;
            let text = std::str::from_utf8(&value.0).ok().map(str::trim);
            // At Google Pub/Sub, the token is JSON.
            let has_lines = key == "headers" || (key == "token" && kind == ProviderType::GooglePubSub);
            let text = text.filter(|text| text.len() <= LONGEST && (has_lines || !text.contains(char::is_control)));
            if text.is_none() {
                problems.push(format!("{key} of the Secret: must be one line of at most 8 KiB"));
            }
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let (token, password, login) = (value("token"), value("password"), value("username"));
        let (in_secret, headers) = (value("address"), value("headers"));
        let headers = headers.map(|text| headers_of(kind, &text, &mut problems)).unwrap_or_default();
        let channel = spec.channel.clone().unwrap_or_default();
        let address = address_of(kind, in_secret.as_deref(), spec.address.as_deref(), &channel);
        let (address, key) = address.map_err(|why| problems.push(why)).ok().unzip();
        let (token_text, address_and_key) = (token.as_deref(), (address.as_ref(), key.flatten()));
        let cloud = cloud_login(kind, spec, token_text, address_and_key, !headers.is_empty(), &mut problems);
        if let Some(meaning) = kind.channel().filter(|_| channel.is_empty()) {
            problems.push(format!("spec.channel: is missing; {} needs {meaning}", spec.kind));
        }
        if kind == ProviderType::Nats && !channel.is_empty() && !is_subject(&channel) {
            problems.push("spec.channel: must be a subject without wildcards, such as mainstay.events".to_owned());
        }
        let username = login.or_else(|| spec.username.clone()).unwrap_or_default();
        let has_login = kind.takes_login() && password.is_some() && !username.is_empty();
        if kind.needs_token() && token.is_none() && !has_login {
            let keys = if kind.takes_login() { "token, or username and password" } else { "token" };
            problems.push(format!("spec.secretRef: {} needs a Secret with the key {keys}", spec.kind));
        }
        let timeout = spec.timeout.map_or(TIMEOUT, |span| span.0);
        if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
            problems.push("spec.timeout: must be between 1ms and 60s".to_owned());
        }
        let Some(address) = address.filter(|_| problems.is_empty()) else { return Err(problems) };
        Ok(Self {
            kind,
            timeout,
            uid: provider.uid.to_owned(),
            address: Secret::new(address),
            channel,
            username,
            token: token.map(Secret::new),
            password: password.map(Secret::new),
            headers,
            status_name,
            login: cloud,
        })
    }

    /// Returns the login that requests need; `None` if they need none besides the Secret.
    pub fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Returns the host of the address. Unlike the rest of the address, it may be shown.
    pub fn host(&self) -> &str {
        self.address.expose().host_str().unwrap_or_default()
    }
}

/// Returns the address of the Secret, of the spec, or of the type, with the key that it contains.
fn address_of(
    kind: ProviderType,
    in_secret: Option<&str>,
    in_spec: Option<&str>,
    channel: &str,
) -> Result<(Url, Option<SharedKey>), String> {
    let in_spec = in_spec.filter(|address| !address.is_empty()).or(kind.default_address());
    let (address, place) = match (in_secret, in_spec) {
        (Some(address), _) => (address, Place::Secret),
        (None, Some(address)) => (address, Place::Spec),
        (None, None) => return Err("spec.address: is missing, also in the Secret".to_owned()),
    };
    match kind {
        ProviderType::GooglePubSub => cloud_address::topic(address, channel).map(|url| (url, None)),
        ProviderType::AzureEventHub => cloud_address::hub(address, channel, place).map(|hub| (hub.url, hub.key)),
        _ => match address::parse(kind, address, place) {
            Ok(url) => Ok((url, None)),
            Err(why) => Err(format!("spec.address: {why}")),
        },
    }
}

/// Returns the login at a cloud. Refuses to send a token of an identity to a host that need not belong to the cloud. The
/// addresses of the types other than `azuredevops` are always hosts of their cloud. A Secret without a login is refused,
/// too, because the identity of the agent would take its place unnoticed.
fn cloud_login(
    kind: ProviderType,
    spec: &ProviderSpec,
    token: Option<&str>,
    (address, key): (Option<&Url>, Option<SharedKey>),
    has_headers: bool,
    problems: &mut Vec<String>,
) -> Option<Login> {
    let login = Login::of(kind, spec, token, key).map_err(|why| problems.push(why)).ok().flatten();
    let is_of_agent = matches!(login, Some(Login::Identity { account: None, .. }));
    if is_of_agent && spec.secret_ref.is_some() && !has_headers && problems.is_empty() {
        problems.push(
            "token of the Secret: is missing; add it, or remove spec.secretRef to send with the identity of the agent"
                .to_owned(),
        );
    }
    let (Some(address), Some(Login::Identity { service: Service::AzureDevops, .. })) = (address, &login) else {
        return login;
    };
    let is_own = address.scheme() == "https" && address.host_str() == Some("dev.azure.com") && address.port().is_none();
    if !is_own {
        problems.push(
            "spec.address: must begin with https://dev.azure.com/ for an identity; for another server, name a Secret with \
             the key token in spec.secretRef"
                .to_owned(),
        );
    }
    login
}

fn unsupported(kind: &str) -> String {
    let known: Vec<_> = ProviderType::words().collect();
    format!(
        "spec.type: {kind:?} is not supported; use one of {}, or `generic` with a relay that speaks to the service",
        known.join(", ")
    )
}

/// Returns the expression in `spec.commitStatusExpr`.
fn status_name(
    kind: ProviderType,
    spec: &ProviderSpec,
    provider: &Identity<'_>,
) -> Result<Option<Arc<StatusName>>, String> {
    let Some(source) = spec.commit_status_expr.as_deref().filter(|source| !source.is_empty()) else { return Ok(None) };
    if !kind.is_commit_status() {
        return Err(format!("spec.commitStatusExpr: {} sets no commit status; remove the field", spec.kind));
    }
    let name = StatusName::parse(source, provider.object("Provider", spec))?;
    Ok(Some(Arc::new(name)))
}

/// Returns the address of the proxy in a spec. `proxySecretRef` takes precedence.
pub fn proxy_of(spec: &ProviderSpec) -> Option<&str> {
    spec.proxy.as_deref().filter(|proxy| spec.proxy_secret_ref.is_none() && !proxy.is_empty())
}

/// Reports fields of Flux that cannot be used.
fn refused(spec: &ProviderSpec, problems: &mut Vec<String>) {
    if let Some(Err(why)) = proxy_of(spec).map(address::check_proxy) {
        problems.push(format!("spec.proxy: {why}"));
    }
}

/// Reads a map of headers, or of attributes.
fn headers_of(kind: ProviderType, text: &str, problems: &mut Vec<String>) -> Vec<(String, Secret<String>)> {
    if let Some(excess) = yaml_excess(text.as_bytes(), MOST_HEADERS) {
        problems.push(format!("headers of the Secret: the map {excess}; write each value out"));
        return Vec::new();
    }
    let Ok(map) = serde_yaml::from_str::<BTreeMap<String, String>>(text) else {
        problems.push("headers of the Secret: must be a YAML map of strings".to_owned());
        return Vec::new();
    };
    if kind == ProviderType::GooglePubSub {
        let is_attribute = |(name, value): (&String, &String)| {
            (1..=256).contains(&name.len()) && !name.starts_with("goog") && value.len() <= 1024
        };
        if map.len() > 100 || !map.iter().all(is_attribute) {
            problems.push(
                "headers of the Secret: become attributes; a message has at most 100, with names of at most 256 bytes that \
                 do not begin with goog, and values of at most 1024 bytes"
                    .to_owned(),
            );
        }
        return map.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
    }
    for name in map.keys() {
        let known = HeaderName::try_from(name.as_str()).ok();
        if known.is_none_or(|name| RESERVED.contains(&name.as_str())) {
            // The name is not shown, because it may be a part of a value that was pasted into the wrong field.
            problems.push("headers of the Secret: a name is invalid, or the client sets this header itself".to_owned());
        }
    }
    if map.values().any(|value| value.contains(char::is_control)) {
        problems.push("headers of the Secret: a value has a line break or another control character".to_owned());
    }
    map.into_iter().map(|(name, value)| (name, Secret::new(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: serde_json::Value, secret: &[(&str, &str)]) -> Result<Target, Vec<String>> {
        let data =
            secret.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
        Target::new(&serde_json::from_value(spec).unwrap(), &Identity::default(), Some(&data))
    }

    #[test]
    fn the_address_of_the_secret_wins_and_is_not_shown() {
        let target = read(
            json!({"type": "slack", "address": "https://other.example.com"}),
            &[("address", "https://hooks.slack.com/services/canary\n"), ("headers", "X-A: canary")],
        )
        .unwrap();
        assert_eq!(target.host(), "hooks.slack.com");
        assert!(!format!("{target:?}").contains("canary"), "{target:?}");
    }

    #[test]
    fn a_plain_proxy_is_used_unless_a_secret_names_one() {
        let spec = |fields: serde_json::Value| -> ProviderSpec {
            let mut whole = json!({"type": "generic", "address": "https://h"});
            whole.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            serde_json::from_value(whole).unwrap()
        };
        let proxy = "http://proxy.example:3128";
        assert_eq!(proxy_of(&spec(json!({"proxy": proxy}))), Some(proxy));
        assert_eq!(proxy_of(&spec(json!({"proxy": ""}))), None);
        let both = spec(json!({"proxy": "http://u:p@proxy.example", "proxySecretRef": {"name": "proxy"}}));
        assert_eq!(proxy_of(&both), None);
        assert!(Target::new(&both, &Identity::default(), None).is_ok());
    }

    #[test]
    fn the_login_of_a_cloud_is_that_of_the_secret_or_an_identity() {
        let hub = json!({"type": "azureeventhub", "address": "events", "channel": "shop"});
        let topic = json!({"type": "googlepubsub", "address": "shop", "channel": "events"});
        let devops = json!({"type": "azuredevops", "address": "https://dev.azure.com/o/p/_git/r"});
        let by = |spec: &serde_json::Value, account: Option<&str>| {
            let mut spec = spec.clone();
            spec["serviceAccountName"] = json!(account);
            read(spec, &[]).unwrap().login
        };
        for (spec, service) in [(&hub, Service::EventHubs), (&topic, Service::PubSub), (&devops, Service::AzureDevops)]
        {
            for account in [None, Some("sender")] {
                let expected = Login::Identity { service, account: account.map(str::to_owned) };
                assert_eq!(by(spec, account), Some(expected));
            }
        }
        assert_eq!(read(hub, &[("token", "a.b.c")]).unwrap().login, None);
        assert_eq!(read(devops, &[("token", "a.b.c")]).unwrap().login, None);
        let key = read(topic, &[("token", "{\n\"canary\": 1\n}")]).unwrap();
        assert!(matches!(key.login, Some(Login::GoogleKey(_))) && !format!("{key:?}").contains("canary"), "{key:?}");
        let shared =
            "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=canary;EntityPath=e";
        let key = read(json!({"type": "azureeventhub"}), &[("address", shared)]).unwrap();
        assert!(matches!(key.login, Some(Login::SharedKey(_))) && !format!("{key:?}").contains("canary"), "{key:?}");
        assert_eq!(key.host(), "shop.servicebus.windows.net");
    }

    #[test]
    fn logins_that_contradict_each_other_are_refused() {
        let shared =
            "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=canary;EntityPath=e";
        let account = json!("sender");
        for (spec, secret, expected) in [
            (
                json!({"type": "generic", "address": "https://h", "serviceAccountName": account}),
                vec![],
                "spec.serviceAccountName: has an effect only for azuredevops, azureeventhub and googlepubsub",
            ),
            (
                json!({"type": "googlepubsub", "address": "p", "channel": "t", "serviceAccountName": account}),
                vec![("token", "canary")],
                "spec.serviceAccountName: must not be set with a token in the Secret",
            ),
            (
                json!({"type": "azureeventhub", "serviceAccountName": account}),
                vec![("address", shared)],
                "spec.serviceAccountName: must not be set with a SharedAccessKey in the Secret",
            ),
            (
                json!({"type": "azureeventhub"}),
                vec![("address", shared), ("token", "canary")],
                "token of the Secret: must not be set with a SharedAccessKey",
            ),
            (json!({"type": "azureeventhub", "address": shared}), vec![], "spec.address: contains a SharedAccessKey"),
            (
                json!({"type": "googlepubsub", "address": "p", "channel": "t", "certSecretRef": {"name": "ca"}}),
                vec![],
                "spec.certSecretRef: must not be set with an identity",
            ),
            (
                json!({"type": "azuredevops", "address": "https://canary.example/o/p/_git/r"}),
                vec![],
                "spec.address: must begin with https://dev.azure.com/ for an identity",
            ),
            (
                json!({"type": "azuredevops", "address": "https://dev.azure.com:8443/o/p/_git/r"}),
                vec![],
                "spec.address: must begin with https://dev.azure.com/ for an identity",
            ),
            (
                json!({"type": "googlepubsub", "address": "p", "channel": "t"}),
                vec![("headers", "googcanary: x")],
                "headers of the Secret: become attributes",
            ),
        ] {
            let problems = read(spec.clone(), &secret).unwrap_err();
            assert!(problems[0].starts_with(expected), "{spec}: {problems:?}");
            assert!(!problems.concat().contains("canary"), "{problems:?}");
        }
    }

    #[test]
    fn a_secret_without_a_login_does_not_select_the_identity_of_the_agent() {
        let shared = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=k;EntityPath=e";
        for base in [
            json!({"type": "azureeventhub", "address": "events", "channel": "shop"}),
            json!({"type": "googlepubsub", "address": "shop", "channel": "events"}),
            json!({"type": "azuredevops", "address": "https://dev.azure.com/o/p/_git/r"}),
        ] {
            let mut spec = base.clone();
            spec["secretRef"] = json!({"name": "login"});
            for secret in [vec![], vec![("password", "canary")], vec![("token", " ")], vec![("headers", "{}")]] {
                let problems = read(spec.clone(), &secret).unwrap_err();
                assert!(problems[0].starts_with("token of the Secret: is missing; add it"), "{spec}: {problems:?}");
                assert_eq!(problems.len(), 1, "{problems:?}");
            }
            assert!(read(spec.clone(), &[("headers", "team: web")]).is_ok(), "{spec}");
            assert!(read(spec.clone(), &[("token", "t")]).is_ok(), "{spec}");
            spec["serviceAccountName"] = json!("sender");
            assert!(read(spec, &[]).is_ok(), "the ServiceAccount is named");
            assert!(read(base, &[]).is_ok(), "no Secret is named");
        }
        let spec = json!({"type": "azureeventhub", "secretRef": {"name": "login"}});
        assert!(read(spec.clone(), &[("address", shared)]).is_ok());
        let problems =
            read(spec, &[("address", "Endpoint=sb://shop.servicebus.windows.net/;EntityPath=e")]).unwrap_err();
        assert!(problems[0].starts_with("token of the Secret: is missing"), "{problems:?}");
    }

    #[test]
    fn problems_name_the_field_and_no_value() {
        for (spec, secret, expected) in [
            (json!({"type": "zoom"}), vec![], "spec.type: \"zoom\" is not supported; use one of generic,"),
            (json!({"type": "generic"}), vec![], "spec.address: is missing"),
            (
                json!({"type": "generic", "address": "ftp://canary"}),
                vec![],
                "spec.address: must be an http or https URL",
            ),
            (
                json!({"type": "generic", "address": "https://u:canary@host"}),
                vec![],
                "spec.address: credentials belong",
            ),
            (json!({"type": "telegram", "channel": "1"}), vec![], "spec.secretRef: telegram needs a Secret"),
            (json!({"type": "telegram"}), vec![("token", "canary")], "spec.channel: is missing; telegram needs the id"),
            (json!({"type": "sentry", "address": "https://host/1"}), vec![], "spec.address: must be a Sentry DSN"),
            (json!({"type": "generic", "address": "https://h", "proxy": "canary"}), vec![], "spec.proxy: must be http"),
            (
                json!({"type": "generic", "address": "https://h", "proxy": "http://u:canary@proxy"}),
                vec![],
                "spec.proxy: credentials belong into a Secret",
            ),
            (
                json!({"type": "github", "address": "https://github.com/canary"}),
                vec![("token", "t")],
                "spec.address: is not the address of a repository",
            ),
            (
                json!({"type": "github", "address": "https://h/o/r", "commitStatusExpr": "event."}),
                vec![("token", "t")],
                "spec.commitStatusExpr: line 1, column",
            ),
            (
                json!({"type": "generic", "address": "https://h", "commitStatusExpr": "'a'"}),
                vec![],
                "spec.commitStatusExpr: generic sets no commit status",
            ),
            (json!({"type": "datadog", "address": "https://h"}), vec![], "spec.secretRef: datadog needs a Secret"),
            (
                json!({"type": "generic", "address": "https://h", "timeout": "2m"}),
                vec![],
                "spec.timeout: must be between",
            ),
            (json!({"type": "generic", "address": "https://h"}), vec![("headers", "Host: canary")], "headers of the"),
            (
                json!({"type": "generic", "address": "https://h"}),
                vec![("headers", "A: &a canary\nB: *a\n")],
                "headers of the Secret: the map has an alias (`*name`) in line 2; write each value out",
            ),
            (
                json!({"type": "generic", "address": "https://h"}),
                vec![("headers", "[canary]")],
                "headers of the Secret: must be",
            ),
            (
                json!({"type": "generic", "address": "https://h"}),
                vec![("headers", "A: \"a\\ncanary\"")],
                "headers of the",
            ),
            (
                json!({"type": "generic", "address": "https://h"}),
                vec![("token", "a\ncanary")],
                "token of the Secret: must be one line",
            ),
        ] {
            let problems = read(spec.clone(), &secret).unwrap_err();
            assert!(problems[0].starts_with(expected), "{spec}: {problems:?}");
            assert!(!problems.concat().contains("canary"), "{problems:?}");
        }
    }
}
