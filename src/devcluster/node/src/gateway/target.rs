//! Targets and CORS policies, which all kinds of routes have.

use serde_json::{Map, Value};

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) service: String,
    pub(super) port: u16,
}

impl Target {
    pub(super) fn new(namespace: &str, service: &str, port: u16) -> Self {
        Self { namespace: namespace.to_owned(), service: service.to_owned(), port }
    }

    /// Parses a name in the cluster: `service`, or `service.namespace` with the suffix `.svc` or `.svc.cluster.local`.
    pub(super) fn named(host: &str, port: u16, namespace: &str) -> Option<Self> {
        let host = host.trim_end_matches('.');
        let short = host.strip_suffix(".svc.cluster.local").or_else(|| host.strip_suffix(".svc"));
        let (service, namespace) = match (short, short.unwrap_or(host).split_once('.')) {
            (_, Some((service, namespace))) if short.is_some() && !namespace.contains('.') => (service, namespace),
            (None, None) => (host, namespace),
            _ => return None,
        };
        (!service.is_empty() && !namespace.is_empty()).then(|| Self::new(namespace, service, port))
    }

    /// Returns the Service's name and port in the cluster.
    pub(super) fn host(&self) -> String {
        format!("{}.{}.svc.cluster.local:{}", self.service, self.namespace, self.port)
    }
}

/// A CORS policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cors {
    /// Regular expressions for a whole origin.
    pub(super) origins: Vec<String>,
    pub(super) methods: String,
    pub(super) headers: String,
}

/// Returns `None` if an object has an unknown field.
pub(super) fn only(fields: &Map<String, Value>, known: &[&str]) -> Option<()> {
    fields.keys().all(|field| known.contains(&field.as_str())).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_service_has_several_forms() {
        let check = |host: &str, expected: Option<(&str, &str)>| {
            let expected = expected.map(|(namespace, service)| Target::new(namespace, service, 80));
            assert_eq!(Target::named(host, 80, "shop"), expected, "{host}");
        };
        check("web", Some(("shop", "web")));
        check("web.prod.svc.cluster.local", Some(("prod", "web")));
        check("web.prod.svc.cluster.local.", Some(("prod", "web")));
        check("web.prod.svc", Some(("prod", "web")));
        for other in ["example.com", "a.b.c.svc", "", ".svc", "169.254.169.254"] {
            check(other, None);
        }
    }
}
