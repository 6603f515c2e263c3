//! Parses the addresses of services of clouds, which are not URLs: topics of Google Pub/Sub, and hubs of Azure Event
//! Hubs as connection strings or names.
//!
//! Invariant: the host of a result belongs to the cloud.
//! Invariant: no message contains a part of an address, which may be secret.
//! Invariant: a key in `spec.address`, which is not secret, is refused.

use reqwest::Url;

use crate::address::Place;
use crate::login::SharedKey;
use mainstay_object::Secret;

/// The domains of Event Hubs: the public cloud, and those of China and of the government of the United States.
const DOMAINS: [&str; 3] = [".servicebus.windows.net", ".servicebus.chinacloudapi.cn", ".servicebus.usgovcloudapi.net"];
const HUBS: &str = "https://servicebus.windows.net/";
const TOPICS: &str = "https://pubsub.googleapis.com/v1/projects";
/// Maximum length of a name, in bytes.
const NAME_BYTES: usize = 256;
const FORM: &str = "spec.address: must be Endpoint=sb://NAMESPACE.servicebus.windows.net/;EntityPath=HUB with or without a \
                    SharedAccessKey, sb://NAMESPACE.servicebus.windows.net with the hub in spec.channel, or the name of a \
                    hub with its namespace in spec.channel";
const NO_HUB: &str = "spec.channel: is missing; it is the hub, unless the address contains EntityPath=HUB";
const NO_NAME: &str = "spec.channel: the hub, which spec.channel or the address names, must be a name of letters, digits, -, _ \
                       and .";
const KEY_IN_SPEC: &str = "spec.address: contains a SharedAccessKey, which all readers of the Provider see; put the address \
                           into the Secret, as address, and renew the key";
const HALF_A_KEY: &str = "spec.address: SharedAccessKeyName and SharedAccessKey belong together; the address has only one of \
                          them";

/// A hub, with the key that its address contains.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hub {
    /// The address that receives events.
    pub(crate) url: Url,
    pub(crate) key: Option<SharedKey>,
}

/// Returns the address that publishes to a topic. `project` is the address of the Provider, `topic` its channel.
///
/// # Errors
/// The invalid field, and what to do.
pub(crate) fn topic(project: &str, topic: &str) -> Result<Url, String> {
    let is_in = |text: &str, others: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
        text.len() <= NAME_BYTES && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_plain)
    };
    // Projects of organizations have the form `example.com:name`.
    if !is_in(project, "-.:") {
        return Err("spec.address: must be the id of a project at Google, such as my-project".to_owned());
    }
    if !is_in(topic, "-_.~+%") {
        return Err("spec.channel: must be the id of a topic, such as my-topic, without its project".to_owned());
    }
    let url = Url::parse(TOPICS).ok().and_then(|mut url| {
        url.path_segments_mut().ok()?.extend([project, "topics", &format!("{topic}:publish")]);
        Some(url)
    });
    url.ok_or_else(|| "spec.address: cannot become a part of a URL".to_owned())
}

/// The fields of a connection string.
#[derive(Default)]
struct Fields<'a> {
    endpoint: Option<&'a str>,
    name: Option<&'a str>,
    key: Option<&'a str>,
    hub: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// Reads a connection string. Names of its fields are compared without case, as by the libraries of Azure.
    fn read(address: &'a str) -> Option<Self> {
        let mut fields = Self::default();
        for part in address.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=')?;
            let field = match name.trim().to_ascii_lowercase().as_str() {
                "endpoint" => &mut fields.endpoint,
                "sharedaccesskeyname" => &mut fields.name,
                "sharedaccesskey" => &mut fields.key,
                "entitypath" => &mut fields.hub,
                _ => return None,
            };
            let value = Some(value.trim()).filter(|value| !value.is_empty() && field.is_none())?;
            *field = Some(value);
        }
        fields.endpoint.is_some().then_some(fields)
    }
}

/// Parses the address of a hub. `channel` is the hub, or its namespace if the address is the hub, as in Flux.
///
/// # Errors
/// The invalid field, and what to do.
pub(crate) fn hub(address: &str, channel: &str, place: Place) -> Result<Hub, String> {
    let channel = Some(channel).filter(|channel| !channel.is_empty());
    if address.contains(['=', ';']) {
        if place == Place::Spec && address.to_ascii_lowercase().contains("sharedaccess") {
            return Err(KEY_IN_SPEC.to_owned());
        }
        let fields = Fields::read(address).ok_or(FORM)?;
        let host = fields.endpoint.and_then(|endpoint| endpoint.strip_prefix("sb://"));
        let host = host.and_then(|host| full_host(host.trim_end_matches('/'))).ok_or(FORM)?;
        let url = url(&host, fields.hub.or(channel).ok_or(NO_HUB)?)?;
        return match (fields.name, fields.key) {
            (Some(name), Some(key)) => Ok(signed(url, name, key)),
            (None, None) => Ok(Hub { url: messages(url), key: None }),
            _ => Err(HALF_A_KEY.to_owned()),
        };
    }
    let rest = address.strip_prefix("sb://").or_else(|| address.strip_prefix("https://"));
    let rest = rest.unwrap_or(address).trim_end_matches('/');
    let (host, hub) = match full_host(rest) {
        Some(host) => (host, channel.ok_or(NO_HUB)?),
        None if address.contains("://") => return Err(FORM.to_owned()),
        None => {
            let namespace =
                channel.ok_or("spec.channel: is missing; it is the namespace of the hub in spec.address")?;
            let host = full_host(namespace).or_else(|| full_host(&format!("{namespace}{}", DOMAINS[0])));
            let form = "spec.channel: must be the name of a namespace of Event Hubs, such as my-namespace";
            (host.ok_or(form)?, address)
        }
    };
    Ok(Hub { url: messages(url(&host, hub)?), key: None })
}

/// Returns a host below a domain of Event Hubs, in lower case; `None` for another one.
fn full_host(host: &str) -> Option<String> {
    let host = host.to_ascii_lowercase();
    let namespace = DOMAINS.iter().find_map(|domain| host.strip_suffix(domain))?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_label = (1..=63).contains(&namespace.len()) && namespace.bytes().all(is_plain);
    (is_label && !namespace.starts_with('-') && !namespace.ends_with('-')).then_some(host)
}

/// Returns the URL of a hub.
fn url(host: &str, hub: &str) -> Result<Url, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = hub.len() <= NAME_BYTES
        && hub.bytes().all(is_plain)
        && hub.starts_with(|c: char| c.is_ascii_alphanumeric())
        && hub.ends_with(|c: char| c.is_ascii_alphanumeric());
    if !is_name {
        return Err(NO_NAME.to_owned());
    }
    let mut url = Url::parse(HUBS).map_err(|_| FORM)?;
    url.set_host(Some(host)).map_err(|_| FORM)?;
    url.set_path(hub);
    Ok(url)
}

/// Returns the address that receives the events of a hub.
fn messages(mut hub: Url) -> Url {
    let path = format!("{}/messages", hub.path());
    hub.set_path(&path);
    hub
}

fn signed(hub: Url, name: &str, key: &str) -> Hub {
    let [resource, name, key] = [hub.as_str(), name, key].map(|text| Secret::new(text.to_owned()));
    Hub { url: messages(hub), key: Some(SharedKey { resource, name, key }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://shop.servicebus.windows.net/events/messages";

    #[test]
    fn a_hub_is_named_by_a_connection_string_or_by_two_names() {
        for (address, channel) in [
            ("Endpoint=sb://shop.servicebus.windows.net/;EntityPath=events", ""),
            ("endpoint=sb://Shop.servicebus.windows.net;entitypath=events;", "other"),
            ("Endpoint=sb://shop.servicebus.windows.net/", "events"),
            ("sb://shop.servicebus.windows.net/", "events"),
            ("https://shop.servicebus.windows.net", "events"),
            ("shop.servicebus.windows.net", "events"),
            ("events", "shop"),
            ("events", "shop.servicebus.windows.net"),
        ] {
            for place in [Place::Spec, Place::Secret] {
                let found = hub(address, channel, place).unwrap();
                assert_eq!((found.url.as_str(), found.key), (URL, None), "{address}");
            }
        }
    }

    #[test]
    fn a_shared_access_key_is_read_from_the_secret_only() {
        let address =
            "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=a+b/canary==";
        let found = hub(&format!("{address};EntityPath=events"), "", Place::Secret).unwrap();
        let key = found.key.unwrap();
        assert_eq!(found.url.as_str(), URL);
        let parts = [&key.resource, &key.name, &key.key].map(|part| part.expose().as_str());
        assert_eq!(parts, ["https://shop.servicebus.windows.net/events", "send", "a+b/canary=="]);
        for text in [address, "sharedACCESSkey=canary", "x;SharedAccessSignature=canary"] {
            let why = hub(text, "events", Place::Spec).unwrap_err();
            assert!(why.contains("put the address into the Secret") && !why.contains("canary"), "{why}");
        }
    }

    #[test]
    fn hostile_addresses_of_hubs_are_refused_without_their_text() {
        let host = "Endpoint=sb://shop.servicebus.windows.net/";
        for (address, channel, expected) in [
            ("", "shop", "spec.channel: the hub"),
            ("canary", "", "spec.channel: is missing; it is the namespace"),
            ("canary", "evil.example", "spec.channel: must be the name of a namespace"),
            ("canary", "evil.example/x", "spec.channel: must be the name of a namespace"),
            ("canary/../x", "shop", "spec.channel: the hub"),
            ("canary?x", "shop", "spec.channel: the hub"),
            (host, "", "spec.channel: is missing; it is the hub"),
            (host, "canary/publishers/x", "spec.channel: the hub"),
            ("sb://canary.example/", "events", FORM),
            ("sb://shop.servicebus.windows.net.canary.example/", "events", FORM),
            ("sb://canary.example/.servicebus.windows.net", "events", FORM),
            ("sb://canary@shop.servicebus.windows.net", "events", FORM),
            ("https://a.canary.servicebus.windows.net", "events", FORM),
            ("http://shop.servicebus.windows.net", "events", FORM),
            ("Endpoint=https://shop.servicebus.windows.net/", "events", FORM),
            ("Endpoint=sb://canary.example/;EntityPath=events", "", FORM),
            (format!("{host};Endpoint=sb://canary.servicebus.windows.net/").as_str(), "events", FORM),
            (format!("{host};canary").as_str(), "events", FORM),
            (format!("{host};SharedAccessSignature=canary").as_str(), "events", FORM),
            (format!("{host};EntityPath=").as_str(), "events", FORM),
            (format!("{host};SharedAccessKey=canary").as_str(), "events", "spec.address: SharedAccessKeyName and"),
            (format!("{host};SharedAccessKeyName=canary").as_str(), "events", "spec.address: SharedAccessKeyName and"),
            ("=;=", "events", FORM),
        ] {
            let why = hub(address, channel, Place::Secret).unwrap_err();
            assert!(why.starts_with(expected) && !why.contains("canary"), "{address}: {why}");
        }
    }

    #[test]
    fn a_topic_belongs_to_a_project() {
        let of = |project: &str, name: &str| topic(project, name).map(String::from);
        let url = |rest: &str| Ok(format!("https://pubsub.googleapis.com/v1/projects/{rest}"));
        assert_eq!(of("my-project", "my-topic"), url("my-project/topics/my-topic:publish"));
        assert_eq!(of("example.com:shop", "a_b.c"), url("example.com:shop/topics/a_b.c:publish"));
        assert_eq!(of("123", "a%2F"), url("123/topics/a%252F:publish"));
        for (project, name, expected) in [
            ("", "t", "spec.address: must be the id of a project"),
            ("https://canary.example", "t", "spec.address: must be the id of a project"),
            ("..", "t", "spec.address: must be the id of a project"),
            ("canary/topics/x", "t", "spec.address: must be the id of a project"),
            ("p", "", "spec.channel: must be the id of a topic"),
            ("p", "projects/canary/topics/t", "spec.channel: must be the id of a topic"),
            ("p", "../canary", "spec.channel: must be the id of a topic"),
            ("p", "canary?x", "spec.channel: must be the id of a topic"),
        ] {
            let why = of(project, name).unwrap_err();
            assert!(why.starts_with(expected) && !why.contains("canary"), "{why}");
        }
    }
}
