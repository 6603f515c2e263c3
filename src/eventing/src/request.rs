//! Parses the purpose of a request from its method, path and host.

use http::Method;

/// The purpose of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked<'r> {
    /// A CloudEvent, without a namespace.
    Publish,
    /// A CloudEvent for the subscribers of a namespace.
    PublishIn(&'r str),
    /// A CloudEvent of an application.
    Events(&'r str),
    /// An event of an application, in the older format.
    Legacy(&'r str),
    /// A question which events of an application have subscribers.
    Subscribed(&'r str),
    /// A CloudEvent for a Broker, by its namespace and name.
    Broker(&'r str, &'r str),
    /// A check of the liveness of the process.
    Alive,
    /// A check whether events are accepted.
    Ready,
    /// None: the path does not exist.
    Nowhere,
    /// None: the method is not supported for the path.
    WrongMethod,
}

impl Asked<'_> {
    /// Returns the pattern of the path, for metrics.
    pub(super) fn pattern(&self) -> &'static str {
        match self {
            Self::Publish => "/publish",
            Self::PublishIn(_) => "/namespaces/{namespace}/publish",
            Self::Events(_) => "/{application}/events",
            Self::Legacy(_) => "/{application}/v1/events",
            Self::Subscribed(_) => "/{application}/v1/events/subscribed",
            Self::Broker(..) => "/brokers/{namespace}/{broker}",
            Self::Alive => "/healthz",
            Self::Ready => "/readyz",
            Self::Nowhere | Self::WrongMethod => "other",
        }
    }
}

/// Returns the purpose of a request. `host` is the request's header `Host`.
pub(super) fn asked<'r>(method: &Method, path: &'r str, query: Option<&str>, host: &'r str) -> Asked<'r> {
    if query.is_some() {
        return Asked::Nowhere;
    }
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    let (wanted, found) = match parts.as_slice() {
        ["publish"] => (Method::POST, Asked::Publish),
        ["namespaces", namespace, "publish"] if is_name(namespace) => (Method::POST, Asked::PublishIn(namespace)),
        ["healthz"] => (Method::GET, Asked::Alive),
        ["readyz"] => (Method::GET, Asked::Ready),
        ["brokers", namespace, name] if is_name(namespace) && is_name(name) => {
            (Method::POST, Asked::Broker(namespace, name))
        }
        [""] => match broker(host) {
            Some((namespace, name)) => (Method::POST, Asked::Broker(namespace, name)),
            None => return Asked::Nowhere,
        },
        [application, "events"] | [application, "v2", "events"] if is_application(application) => {
            (Method::POST, Asked::Events(application))
        }
        [application, "v1", "events"] if is_application(application) => (Method::POST, Asked::Legacy(application)),
        [application, "v1", "events", "subscribed"] if is_application(application) => {
            (Method::GET, Asked::Subscribed(application))
        }
        _ => return Asked::Nowhere,
    };
    if wanted == *method { found } else { Asked::WrongMethod }
}

/// Returns namespace and name of the Broker in a host such as `default-broker.team.svc.cluster.local`.
fn broker(host: &str) -> Option<(&str, &str)> {
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_end_matches('.');
    let (service, rest) = host.split_once('.')?;
    let short = rest.strip_suffix(".svc.cluster.local").or_else(|| rest.strip_suffix(".svc")).unwrap_or(rest);
    let name = service.strip_suffix("-broker")?;
    (is_name(name) && is_name(short)).then_some((short, name))
}

/// Whether a string may be the name of a namespace.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn is_application(text: &str) -> bool {
    let is_of_it = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= 253 && text.bytes().all(is_of_it) && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_kyma_and_knative() {
        let check = |method: Method, path: &str, expected: Asked<'_>| {
            assert_eq!(asked(&method, path, None, "localhost:3000"), expected, "{method} {path}");
        };
        check(Method::POST, "/publish", Asked::Publish);
        check(Method::GET, "/publish", Asked::WrongMethod);
        check(Method::POST, "/namespaces/team/publish", Asked::PublishIn("team"));
        check(Method::POST, "/namespaces/../publish", Asked::Nowhere);
        check(Method::POST, "/publish/", Asked::Nowhere);
        check(Method::POST, "/mock/events", Asked::Events("mock"));
        check(Method::POST, "/mock/v2/events", Asked::Events("mock"));
        check(Method::POST, "/mock/v1/events", Asked::Legacy("mock"));
        check(Method::GET, "/mock/v1/events", Asked::WrongMethod);
        check(Method::GET, "/mock/v1/events/subscribed", Asked::Subscribed("mock"));
        check(Method::POST, "/brokers/team/default", Asked::Broker("team", "default"));
        check(Method::GET, "/healthz", Asked::Alive);
        check(Method::GET, "/readyz", Asked::Ready);
        for path in ["/", "", "//events", "/a b/events", "/../events", "/mock/v3/events", "/brokers/A/default"] {
            check(Method::POST, path, Asked::Nowhere);
        }
        assert_eq!(asked(&Method::POST, "/publish", Some("a"), ""), Asked::Nowhere);
    }

    #[test]
    fn a_broker_is_known_by_its_host() {
        let check =
            |host: &str, expected: Asked<'_>| assert_eq!(asked(&Method::POST, "/", None, host), expected, "{host}");
        for host in ["default-broker.team", "default-broker.team.svc:80", "default-broker.team.svc.cluster.local"] {
            check(host, Asked::Broker("team", "default"));
        }
        for host in ["default.team", "-broker.team", "default-broker.a.b", "default-broker"] {
            check(host, Asked::Nowhere);
        }
    }
}
