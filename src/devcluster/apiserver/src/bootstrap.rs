//! The initial objects of every cluster: namespaces, the Service of the API, priority classes.
//!
//! With RBAC they include the roles and bindings from the test data of `k8s.io/kubernetes` 1.36.
//!
//! Not here: the ServiceAccounts of namespaces, which a controller creates.

use crate::{
    admission::Stop,
    server::{Options, Server, stamp},
    verbs::{Settings, Target, create},
};
use serde_json::{Value, json};

impl Server {
    /// Creates an API server with the initial objects of a real one.
    pub fn new(options: Options) -> Self {
        let server = Self::empty(options);
        fill(&server);
        server
    }
}

fn fill(server: &Server) {
    let settings = Settings { manager: "kube-apiserver".to_owned(), now: stamp(server.now()), ..Settings::default() };
    let roles = if server.options().rbac { roles() } else { Vec::new() };
    for (api_version, plural, namespace, object) in initial().into_iter().chain(roles) {
        let table = server.table();
        let Some(kind) = table.find_resource(api_version, plural) else { continue };
        let target = Target { kind: kind.clone(), namespace, name: String::new(), subresource: String::new() };
        if let Err(status) = create::create(server, &target, &settings, object).map_err(Stop::refusal) {
            tracing::error!(message = status.message, plural, "an initial object was refused");
        }
    }
}

/// API version, plural name, namespace and content of an initial object.
type Initial = (&'static str, &'static str, String, Value);

/// Returns the initial roles and bindings.
fn roles() -> Vec<Initial> {
    let recorded: Vec<Value> =
        serde_json::from_str(include_str!("data/roles.json")).expect("the roles are part of the program and parse");
    let of = |mut role: Value| {
        let plural = match role["kind"].as_str().unwrap_or_default() {
            "ClusterRole" => "clusterroles",
            "ClusterRoleBinding" => "clusterrolebindings",
            "Role" => "roles",
            _ => "rolebindings",
        };
        role["metadata"]["labels"]["kubernetes.io/bootstrapping"] = "rbac-defaults".into();
        role["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = "true".into();
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        ("rbac.authorization.k8s.io/v1", plural, namespace, role)
    };
    recorded.into_iter().map(of).collect()
}

fn initial() -> Vec<Initial> {
    let mut objects = Vec::new();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        objects.push(("v1", "namespaces", String::new(), json!({"metadata": {"name": name}})));
    }
    objects.push((
        "v1",
        "services",
        "default".to_owned(),
        json!({
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {
                "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"],
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
            },
        }),
    ));
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        objects.push((
            "scheduling.k8s.io/v1",
            "priorityclasses",
            String::new(),
            json!({"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"}),
        ));
    }
    objects
}
