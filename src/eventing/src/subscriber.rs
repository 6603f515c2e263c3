//! A subscriber: the events that it receives, and its target.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use reqwest::Url;

use super::cloud_event::CloudEvent;
use super::event_type::{standard_source, standard_type};
use super::ordering::Ordering;
use mainstay_object::names::{ServiceAddress, ServiceHost, UrlPath};

/// Default number of concurrent deliveries to one subscriber.
pub(super) const IN_FLIGHT: usize = 10;
/// Maximum number of concurrent deliveries that a subscriber can set.
pub(super) const MOST_IN_FLIGHT: usize = 100;

/// Kind, namespace and name of a subscriber, for example `trigger/default/mine`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriberId(Arc<str>);

impl SubscriberId {
    pub(super) fn new(kind: SubscriberKind, namespace: &str, name: &str) -> Self {
        Self(format!("{}/{namespace}/{name}", kind.word()).into())
    }

    /// Parses the displayed form.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let is_kind = matches!(parts.next(), Some("trigger" | "subscription"));
        let is_name = |part: Option<&str>| {
            part.is_some_and(|part| {
                let is_of_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
                !part.is_empty() && part.bytes().all(is_of_name) && !part.starts_with('.')
            })
        };
        (is_kind && is_name(parts.next()) && is_name(parts.next()) && parts.next().is_none()).then(|| Self(text.into()))
    }

    /// Returns kind, namespace and name.
    pub(super) fn parts(&self) -> (SubscriberKind, &str, &str) {
        let (kind, rest) = self.0.split_once('/').unwrap_or_default();
        let (namespace, name) = rest.split_once('/').unwrap_or_default();
        let kind = if kind == "trigger" { SubscriberKind::Trigger } else { SubscriberKind::Subscription };
        (kind, namespace, name)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the subscriber's file.
    pub(super) fn file_name(&self) -> String {
        self.0.replace('/', "_")
    }
}

impl fmt::Display for SubscriberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SubscriberKind {
    Trigger,
    Subscription,
}

impl SubscriberKind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Subscription => "subscription",
        }
    }
}

/// A port and path of a Service, and the parts of requests to it, which do not change from one delivery to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) address: ServiceAddress,
    request: Arc<RequestParts>,
}

#[derive(Debug, PartialEq, Eq)]
struct RequestParts {
    text: String,
    url: Result<Url, String>,
    authority: String,
}

impl Target {
    pub(super) fn new(address: ServiceAddress, path: &UrlPath) -> Self {
        let (text, authority) = (address.url(path), address.authority());
        let url = text.parse::<Url>().map_err(|error| format!("{text}: {error}"));
        Self { address, request: Arc::new(RequestParts { text, url, authority }) }
    }

    /// Returns the URL of the target in the cluster, without a default port.
    pub(super) fn url(&self) -> &str {
        &self.request.text
    }

    /// Returns the parsed URL, or why it is not valid.
    pub(super) fn parsed(&self) -> Result<&Url, &str> {
        self.request.url.as_ref().map_err(String::as_str)
    }

    /// Returns host and port. The default port is omitted.
    pub(super) fn authority(&self) -> &str {
        &self.request.authority
    }

    /// Returns the host of the target's Service.
    pub(super) fn host(&self) -> &ServiceHost {
        &self.address.host
    }
}

/// The filter for the events that a subscriber receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// Events with these attributes. An empty string matches any value.
    Attributes(BTreeMap<String, String>),
    /// Events of these cleaned types.
    Types(BTreeSet<String>),
    /// Events of this source and these types, all in the form of the matching `standard`.
    Sourced { source: String, types: BTreeSet<String> },
}

impl Filter {
    /// Whether an event matches. For a filter by types, the event's type has to be a cleaned one.
    pub(super) fn passes(&self, event: &CloudEvent) -> bool {
        match self {
            Self::Attributes(wanted) => wanted.iter().all(|(name, value)| {
                let found = if name == "specversion" { Some("1.0") } else { event.attribute(name) };
                found.is_some_and(|found| value.is_empty() || found == value)
            }),
            Self::Types(types) => types.contains(event.event_type()),
            Self::Sourced { source, types } => {
                types.contains(&standard_type(event.event_type()))
                    && standard_source(event.attribute("source").unwrap_or_default()) == *source
            }
        }
    }
}

/// A subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Subscriber {
    pub(super) id: SubscriberId,
    pub(super) uid: String,
    /// The generation of the object.
    pub(super) generation: i64,
    /// The Broker of a Trigger.
    pub(super) broker: Option<String>,
    /// The subscriber's filter and target; `None` while the subscriber is not valid. In that case the subscriber keeps
    /// its waiting events and receives no new ones.
    pub(super) route: Option<(Filter, Target)>,
    /// Maximum number of concurrent deliveries.
    pub(super) in_flight: usize,
    /// The order of deliveries.
    pub(super) ordering: Ordering,
}

/// The version of a subscriber that other processes are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) id: SubscriberId,
    pub(super) uid: String,
    pub(super) generation: i64,
}

impl Version {
    /// Parses the displayed form.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let [id, generation, uid] = [parts.next()?, parts.next()?, parts.next()?];
        let is_whole = parts.next().is_none();
        let id = SubscriberId::parse(id).filter(|_| is_whole)?;
        Some(Self { id, uid: uid.to_owned(), generation: generation.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.id, self.generation, self.uid)
    }
}

impl Subscriber {
    /// Returns the version of a subscriber that receives events.
    pub(super) fn version(&self) -> Option<Version> {
        let of = |_| Version { id: self.id.clone(), uid: self.uid.clone(), generation: self.generation };
        self.route.as_ref().map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_to_be_there_and_equal() {
        let attributes = [("type", "user.created"), ("source", "mock"), ("ext", "")];
        let event = CloudEvent {
            attributes: attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..CloudEvent::default()
        };
        let check = |wanted: &[(&str, &str)], expected: bool| {
            let wanted = wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(Filter::Attributes(wanted).passes(&event), expected);
        };
        check(&[], true);
        check(&[("type", "user.created"), ("source", "mock")], true);
        check(&[("type", "User.created")], false);
        check(&[("type", "")], true);
        check(&[("absent", "")], false);
        check(&[("ext", "")], true);
        check(&[("specversion", "1.0")], true);
    }

    #[test]
    fn ids_are_read_as_they_are_shown() {
        let id = SubscriberId::new(SubscriberKind::Subscription, "default", "mine");
        assert_eq!(SubscriberId::parse(&id.to_string()), Some(id.clone()));
        assert_eq!(
            (id.parts(), id.file_name()),
            ((SubscriberKind::Subscription, "default", "mine"), "subscription_default_mine".into())
        );
        let version = Version { id, uid: "7".to_owned(), generation: 3 };
        assert_eq!(Version::parse(&version.to_string()), Some(version.clone()));
        assert_eq!(Version::parse(&format!("{version} more")), None);
        for text in ["", "trigger/a", "trigger/a/b/c", "other/a/b", "trigger/../b", "trigger//b", "trigger/a/B_"] {
            assert_eq!(SubscriberId::parse(text), None, "{text}");
        }
    }
}
