//! Grants of the operator. A subscriber receives events that were published for its own namespace, and events of other
//! namespaces only with a grant. Grants to publish events for another namespace have the same form.
//!
//! Events at Kyma's endpoints, such as `/publish`, contain no namespace. These events belong to the namespace of the
//! eventing component.

use std::fmt;
use std::str::FromStr;

use mainstay_api::names::EVENTING_NAMESPACE;
use mainstay_object::names::DnsLabel;

/// Matches every namespace.
const ANY: &str = "*";

/// The namespace of the publisher if a request contains no namespace.
pub(super) const SHARED: &str = EVENTING_NAMESPACE;

/// A grant `WHO=WHOSE`, in which each side is a namespace or `*`. Subscribers of the namespace WHO may receive events
/// of the namespace WHOSE, or ServiceAccounts of WHO may publish events for WHOSE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    subscribers: Namespaces,
    publishers: Namespaces,
}

/// A string is not a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write WHO=WHOSE, each the name of a namespace or *, such as team={SHARED}")]
pub struct InvalidGrant;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Namespaces {
    Any,
    One(DnsLabel),
}

impl Namespaces {
    fn parse(text: &str) -> Result<Self, InvalidGrant> {
        if text == ANY { Ok(Self::Any) } else { DnsLabel::parse(text).map(Self::One).map_err(|_| InvalidGrant) }
    }

    fn has(&self, namespace: &str) -> bool {
        match self {
            Self::Any => true,
            Self::One(one) => one.as_str() == namespace,
        }
    }
}

impl fmt::Display for Namespaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str(ANY),
            Self::One(one) => one.fmt(f),
        }
    }
}

impl FromStr for Grant {
    type Err = InvalidGrant;

    fn from_str(text: &str) -> Result<Self, InvalidGrant> {
        let (subscribers, publishers) = text.split_once('=').ok_or(InvalidGrant)?;
        Ok(Self { subscribers: Namespaces::parse(subscribers)?, publishers: Namespaces::parse(publishers)? })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.subscribers, self.publishers)
    }
}

impl Grant {
    /// Allows every subscriber to receive every event, for local development.
    pub const ALL: Self = Self { subscribers: Namespaces::Any, publishers: Namespaces::Any };
}

/// Whether a subscriber of one namespace may receive events that were published for another namespace.
pub(super) fn may_receive(grants: &[Grant], subscriber: &str, publisher: &str) -> bool {
    let is_granted = |grant: &Grant| grant.subscribers.has(subscriber) && grant.publishers.has(publisher);
    subscriber == publisher || grants.iter().any(is_granted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscriber_receives_events_of_its_own_namespace_and_of_those_that_are_granted() {
        let check = |grants: &[&str], subscriber: &str, publisher: &str, expected: bool| {
            let grants: Vec<Grant> = grants.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(may_receive(&grants, subscriber, publisher), expected, "{grants:?} {subscriber} {publisher}");
        };
        check(&[], "team", "team", true);
        for publisher in ["other", SHARED, "*", ""] {
            check(&[], "team", publisher, false);
        }
        check(&["team=other"], "team", "other", true);
        check(&["team=other"], "other", "team", false);
        check(&["team=other"], "team", SHARED, false);
        check(&["*=kyma-system"], "team", SHARED, true);
        check(&["*=kyma-system"], "team", "other", false);
        check(&["team=*"], "team", "other", true);
        check(&["team=*"], "other", "team", false);
    }

    #[test]
    fn grants_are_read_strictly() {
        for good in ["a=b", "*=b", "a=*", "*=*"] {
            assert_eq!(good.parse::<Grant>().unwrap().to_string(), good);
        }
        for bad in ["", "a", "a=", "=b", "a=b=c", "A=b", "a*=b", "a=b,c"] {
            assert_eq!(bad.parse::<Grant>(), Err(InvalidGrant), "{bad}");
        }
    }
}
