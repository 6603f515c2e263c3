//! Trees of users with rights in one namespace, and in all.

use mainstay_testkit::world::{NAMESPACE, deployment};
use serde_json::json;

use super::{
    FORM, READS,
    users::{ELSEWHERE, RBAC, Users},
};

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n";
const CLASS: &str = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata:\n  name: mainstay-tests-urgent\nvalue: 1\ndescription: x\n";

/// Returns the token of a ServiceAccount that reads all namespaces.
pub(super) fn overseer(users: &Users) -> String {
    let token = users.account(NAMESPACE, "overseer", READS);
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": READS}]);
    let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "mainstay-tests-overseer"}, "rules": rules});
    users.world.create(RBAC, "clusterroles", "", role);
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": "mainstay-tests-overseer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "mainstay-tests-overseer"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "overseer"}],
    });
    users.world.create(RBAC, "clusterrolebindings", "", binding);
    users.world.until_allowed((NAMESPACE, "overseer"), "", &rules);
    token
}

/// Returns the health, the name and the state of an object in the tree.
fn line(page: &str, object: &str) -> String {
    let tree = page.split("class=\"tree\"").nth(1).unwrap_or_else(|| panic!("there is no tree: {page}"));
    let name = tree.find(object).unwrap_or_else(|| panic!("{object} is not in the tree: {tree}"));
    let begin = tree[..name].rfind("<span class=\"state").unwrap();
    let ends = ["</li>", "<details"].map(|end| tree[name..].find(end).unwrap_or(tree.len() - name));
    tree[begin..name + ends[0].min(ends[1])].to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_one_namespace_sees_its_health_and_pods_beside_a_user_of_all() {
    let mut users = Users::new().await;
    users.namespace(ELSEWHERE);
    let world = &mut users.world;
    world.remote.file("apps/web.yaml", deployment("web", "example.org/web:1", 2)).file("apps/map.yaml", MAP);
    world
        .remote
        .file("apps/urgent.yaml", CLASS)
        .file("apps/other.yaml", MAP.replace("settings", &format!("settings\n  namespace: {ELSEWHERE}")));
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps"})).await;
    let pods = world.server.objects("v1", "pods", Some(NAMESPACE));
    let pod = pods[0]["metadata"]["name"].as_str().unwrap().to_owned();

    let console = users.console(FORM).await;
    let reader = console.sign_in(&users.account(NAMESPACE, "reader", READS)).await;
    let overseer = console.sign_in(&overseer(&users)).await;
    let page = format!("/gitsync/{NAMESPACE}/demo");
    let (narrow, wide) = (console.get(&page, &reader).await.text, console.get(&page, &overseer).await.text);
    for page in [&narrow, &wide] {
        for object in [
            &format!("Deployment.apps {NAMESPACE}/web"),
            &format!("ConfigMap {NAMESPACE}/settings"),
            &format!("Pod {NAMESPACE}/{pod}"),
        ] {
            let line = line(page, object);
            assert!(line.contains("healthy") && !line.contains("forbidden"), "{line}");
        }
    }
    let missing = "Children of these kinds are missing, because you may not list them in";
    assert!(
        narrow.contains(&format!("{missing} {NAMESPACE}: jobs.batch, endpointslices.discovery.k8s.io")),
        "{narrow}"
    );
    assert!(!wide.contains(missing), "{wide}");
    // Neither page of differences says that there is none among objects that were not checked.
    let page = format!("{page}/differences");
    let [of_reader, of_overseer] = [console.get(&page, &reader).await.text, console.get(&page, &overseer).await.text];
    assert!(of_reader.contains("Not checked: ") && of_reader.contains("forbidden"), "{of_reader}");
    assert!(!of_reader.contains("None. Each object"), "{of_reader}");
    assert!(!of_overseer.contains("Not checked: "), "{of_overseer}");
    for object in
        [format!("ConfigMap {ELSEWHERE}/settings").as_str(), "PriorityClass.scheduling.k8s.io mainstay-tests-urgent"]
    {
        let [narrow, wide] = [&narrow, &wide].map(|page| line(page, object));
        assert!(narrow.contains("forbidden"), "{narrow}");
        assert!(!wide.contains("forbidden"), "{wide}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_does_not_connect_to_a_remote_cluster_that_a_tenant_names() {
    let users = Users::new().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "far",
        "clusters": [{"name": "far", "cluster": {"server": server}}],
        "users": [{"name": "far", "user": {"token": "t"}}],
        "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}],
    });
    users.world.set_secret("far", json!({"value": kubeconfig.to_string()}));
    users.world.sync("far", json!({"kubeConfig": {"secretRef": {"name": "far"}}}));
    let console = users.console(FORM).await;
    let reader = console.sign_in(&users.account(NAMESPACE, "reader", READS)).await;
    for page in ["", "/differences"] {
        let text = console.get(&format!("/gitsync/{NAMESPACE}/far{page}"), &reader).await.text;
        let note = "are in another cluster (spec.kubeConfig), to which this console does not connect";
        assert!(text.contains(note), "{page}: {text}");
    }
    let text = console.get(&format!("/gitsync/{NAMESPACE}/far/network"), &reader).await.text;
    assert!(text.contains("This page reads the network of its own cluster only."), "{text}");
    let connected = listener.accept().map(|(_, from)| from).map_err(|error| error.kind());
    assert_eq!(connected, Err(std::io::ErrorKind::WouldBlock));
}
