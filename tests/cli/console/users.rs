//! A cluster with users, and a running console. The cluster is embedded, or that of `MAINSTAY_TEST_KUBECONFIG`.

use std::time::Duration;

use devcluster::{Action, Call, Cluster, Options};
use mainstay_testkit::{
    PATIENCE,
    external::External,
    program::{Program, Running},
    world::{NAMESPACE, World},
};
use reqwest::{Client, Method, RequestBuilder, redirect::Policy};
use serde_json::{Value, json};

use crate::page_answer::Answer;

/// The origin of the tests, whose pages are encrypted by a proxy.
pub(super) const URL: &str = "https://console.example.com";
/// A namespace beside that of the tests.
pub(super) const ELSEWHERE: &str = "mainstay-tests-elsewhere";
pub(super) const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// A cluster that authorises requests.
pub(super) struct Users {
    pub(super) world: World,
    pub(super) program: Program,
}

impl Users {
    pub(super) async fn new() -> Self {
        if External::is_named() { Self::of(World::new().await).await } else { Self::with(Options::default()).await }
    }

    /// Starts an embedded cluster with these options.
    pub(super) async fn with(options: Options) -> Self {
        Self::of(World::of(Cluster::new(Options { rbac: true, ..options }))).await
    }

    async fn of(world: World) -> Self {
        let program = Program::of(&world).await;
        Self { world, program }
    }

    /// Grants what `system:basic-user` grants on other clusters: every user may request their own name.
    pub(super) fn let_all_ask_who_they_are(&self) {
        if External::is_named() {
            return;
        }
        let (group, name) = ("rbac.authorization.k8s.io", "asks-who-it-is");
        let rules =
            json!([{"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]}]);
        let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
        self.world.create(RBAC, "clusterroles", "", role);
        let binding = json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:authenticated"}],
        });
        self.world.create(RBAC, "clusterrolebindings", "", binding);
    }

    /// Creates a namespace.
    pub(super) fn namespace(&self, name: &str) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.world.create("v1", "namespaces", "", namespace);
    }

    /// Creates a ServiceAccount with these verbs on Mainstay's objects in its namespace. Returns its token.
    pub(super) fn account(&self, namespace: &str, name: &str, verbs: &[&str]) -> String {
        let groups = ["mainstay.dev", "serverless.kyma-project.io", "", "apps"];
        self.account_with(namespace, name, &json!([{"apiGroups": groups, "resources": ["*"], "verbs": verbs}]))
    }

    /// Creates a ServiceAccount with these rules in its namespace. Returns its token.
    pub(super) fn account_with(&self, namespace: &str, name: &str, rules: &Value) -> String {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        self.world.create("v1", "serviceaccounts", namespace, account);
        let role = json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": name}, "rules": rules});
        self.world.create(RBAC, "roles", namespace, role);
        let binding = json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        });
        self.world.create(RBAC, "rolebindings", namespace, binding);
        self.world.until_allowed((namespace, name), namespace, rules);
        self.token(namespace, name)
    }

    /// Gives a user who is no ServiceAccount these verbs on Mainstay's objects in a namespace.
    pub(super) fn permit(&self, namespace: &str, user: &str, verbs: &[&str]) {
        let (group, name) = ("rbac.authorization.k8s.io", "of-user");
        let rules = json!([{"apiGroups": ["mainstay.dev", ""], "resources": ["*"], "verbs": verbs}]);
        let role = json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": name}, "rules": rules});
        self.world.create(RBAC, "roles", namespace, role);
        let binding = json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        self.world.create(RBAC, "rolebindings", namespace, binding);
    }

    /// Returns a new token of a ServiceAccount.
    pub(super) fn token(&self, namespace: &str, name: &str) -> String {
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let call = Call::new("v1", "serviceaccounts", namespace, name, Action::Create(wanted)).on("token");
        self.world.write_as("test", call)["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Creates a GitSync in a namespace.
    pub(super) fn sync(&self, namespace: &str, name: &str) {
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": name},
            "spec": {"gitRepository": "repo"},
        });
        self.world.create("mainstay.dev/v1alpha1", "gitsyncs", namespace, sync);
    }

    /// Returns a field of a GitSync of the namespace.
    pub(super) fn spec(&self, name: &str) -> Value {
        self.world.get("mainstay.dev/v1alpha1", "gitsyncs", name).unwrap()["spec"].clone()
    }

    /// Starts the console.
    pub(super) async fn console(&self, arguments: &[&str]) -> Console {
        let port = ["console", "--listen=127.0.0.1:0", "--namespace", NAMESPACE];
        let mut command = self.program.start(&[&port[..], arguments].concat());
        let line = command.line("Listening at ").await;
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Console { client, address, _command: command }
    }
}

/// A running console.
pub(super) struct Console {
    pub(super) client: Client,
    pub(super) address: String,
    _command: Running,
}

impl Console {
    /// Returns a request as the proxy of [`URL`] forwards it.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let host = URL.strip_prefix("https://").unwrap();
        self.client.request(method, format!("http://{}{path}", self.address)).header("host", host)
    }

    pub(super) async fn send(&self, request: RequestBuilder) -> Answer {
        Answer::read(request.send().await.unwrap()).await
    }

    /// Reads a page with a cookie.
    pub(super) async fn get(&self, path: &str, cookie: &str) -> Answer {
        self.send(self.request(Method::GET, path).header("cookie", cookie)).await
    }

    /// Sends a form of a page of this server.
    pub(super) async fn post(&self, path: &str, cookie: &str, fields: &[(&str, &str)]) -> Answer {
        let form = reqwest::Url::parse_with_params(URL, fields).unwrap().query().unwrap_or_default().to_owned();
        let request = self.request(Method::POST, path).header("cookie", cookie).header("origin", URL);
        self.send(request.header("content-type", "application/x-www-form-urlencoded").body(form)).await
    }

    /// Waits until a deleted ServiceAccount's token opens no session. A real API server remembers tokens for some seconds.
    pub(super) async fn refuses(&self, token: &str) {
        let refused = async {
            while self.post("/sign-in", "", &[("token", token), ("next", "/")]).await.code != 401 {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        tokio::time::timeout(PATIENCE, refused).await.expect("the token opens sessions");
    }

    /// Signs in. Returns the cookie.
    pub(super) async fn sign_in(&self, token: &str) -> String {
        let answer = self.post("/sign-in", "", &[("token", token), ("next", "/")]).await;
        assert_eq!((answer.code, answer.headers["location"].to_str().unwrap()), (303, "/"), "{}", answer.text);
        answer.cookie()
    }
}
