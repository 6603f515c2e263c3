//! The routing kinds that the cluster serves, from their CRDs.

use std::sync::Arc;

use serde_json::Value;

use super::child::ChildKind;
use mainstay_cluster::Kind;
use mainstay_object::is_established;

/// Returns the supported versions, newest first.
const fn versions(kind: ChildKind) -> &'static [&'static str] {
    match kind {
        ChildKind::VirtualService => &["v1", "v1beta1", "v1alpha3"],
        ChildKind::AccessRule => &["v1alpha1"],
        ChildKind::HttpRoute | ChildKind::RequestAuthentication | ChildKind::AuthorizationPolicy => &["v1", "v1beta1"],
    }
}

/// The components that route and check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Istio routes, Oathkeeper checks.
    Oathkeeper,
    /// Istio alone, without its policies.
    Istio,
    /// Istio routes, and its proxies check.
    IstioPolicies,
    /// A Gateway of the Gateway API routes.
    Gateway,
}

impl Means {
    /// Returns the components, and the served kind of their routes, from all served kinds.
    pub(super) fn of(served: impl Fn(ChildKind) -> Option<Served>) -> Option<(Self, Served)> {
        let serves = |kind| served(kind).is_some();
        let has_policies = || serves(ChildKind::RequestAuthentication) && serves(ChildKind::AuthorizationPolicy);
        match (served(ChildKind::VirtualService), served(ChildKind::HttpRoute)) {
            (Some(routes), _) if serves(ChildKind::AccessRule) => Some((Self::Oathkeeper, routes)),
            (Some(routes), _) if has_policies() => Some((Self::IstioPolicies, routes)),
            (Some(routes), _) => Some((Self::Istio, routes)),
            (None, routes) => routes.map(|routes| (Self::Gateway, routes)),
        }
    }

    /// Returns the name for messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Oathkeeper => "Istio with Oathkeeper",
            Self::Istio | Self::IstioPolicies => "Istio without Oathkeeper",
            Self::Gateway => "the Gateway API",
        }
    }

    /// Returns the kind of the routes of these components.
    pub(super) const fn routes(self) -> ChildKind {
        match self {
            Self::Oathkeeper | Self::Istio | Self::IstioPolicies => ChildKind::VirtualService,
            Self::Gateway => ChildKind::HttpRoute,
        }
    }
}

/// Optional features of HTTPRoutes in this cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RouteFeatures {
    pub(super) timeouts: bool,
    pub(super) cors: bool,
}

/// A served kind.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) kind: Arc<Kind>,
    pub(super) features: RouteFeatures,
}

/// Returns the newest supported version that a CRD serves; `None` if no served version is supported.
pub(super) fn served(of: ChildKind, definition: &Value) -> Option<Served> {
    if !is_established(definition) {
        return None;
    }
    let all = definition["spec"]["versions"].as_array()?;
    let find = |wanted: &&str| all.iter().find(|known| known["name"] == **wanted && known["served"] == true);
    let version = versions(of).iter().find_map(find)?;
    let (group, kind, plural) = of.names();
    let has_status = version["subresources"]["status"].is_object();
    let name = version["name"].as_str()?;
    let kind = Arc::new(Kind::custom(group, name, kind, plural, has_status));
    Some(Served { kind, features: features(&version["schema"]["openAPIV3Schema"]["properties"]["spec"]) })
}

fn features(spec: &Value) -> RouteFeatures {
    let rule = &spec["properties"]["rules"]["items"]["properties"];
    RouteFeatures {
        timeouts: rule["timeouts"]["properties"]["request"].is_object(),
        cors: rule["filters"]["items"]["properties"]["cors"].is_object(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definition(versions: &Value) -> Value {
        let established =
            json!([{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}]);
        json!({"spec": {"versions": versions}, "status": {"conditions": established}})
    }

    #[test]
    fn takes_the_newest_version_that_is_served() {
        let version = |name: &str, served: bool| json!({"name": name, "served": served});
        let of = |versions: Value| {
            served(ChildKind::VirtualService, &definition(&versions)).map(|served| served.kind.version.to_string())
        };
        assert_eq!(
            of(json!([version("v1alpha3", true), version("v1beta1", true), version("v1", false)])).unwrap(),
            "v1beta1"
        );
        assert_eq!(of(json!([version("v7", true)])), None);
        let mut fresh = definition(&json!([version("v1", true)]));
        fresh["status"] = Value::Null;
        assert!(served(ChildKind::VirtualService, &fresh).is_none(), "it is not served yet");
    }

    #[test]
    fn sees_what_a_route_may_have() {
        let rule = json!({"timeouts": {"properties": {"request": {"type": "string"}}}, "filters": {"items": {"properties": {}}}});
        let spec = json!({"properties": {"rules": {"items": {"properties": rule}}}});
        assert_eq!(features(&spec), RouteFeatures { timeouts: true, cors: false });
        assert_eq!(features(&Value::Null), RouteFeatures::default());
    }
}
