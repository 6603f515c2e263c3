//! The addresses of Services and APIRules, and the containers of pods.

use mainstay_testkit::{
    definitions::of_stream,
    world::{NAMESPACE, deployment},
};
use serde_json::json;

use super::{FORM, READS, users::Users};

const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  selector:\n    app: web\n  ports:\n    - port: 80\n";
const RULES: (&str, &str) = ("gateway.kyma-project.io/v1alpha1", "apirules");
const EXPOSURE: &str = include_str!("../../../manifests/exposure/crd.yaml");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_and_an_object_show_addresses_and_containers() {
    let mut users = Users::new().await;
    let world = &mut users.world;
    world.remote.file("apps/web.yaml", deployment("web", "example.org/web:1", 1)).file("apps/service.yaml", SERVICE);
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps"})).await;
    world.until("the pod is ready", |w| w.status("demo")["healthy"] == 2).await;
    let console = users.console(FORM).await;
    let reader = console.sign_in(&users.account(NAMESPACE, "reader", READS)).await;
    let get = async |path: &str| console.get(path, &reader).await.text;
    let address = format!("<code data-copy=\"the address\">web.{NAMESPACE}.svc.cluster.local:80</code>");
    let tree = get(&format!("/gitsync/{NAMESPACE}/demo")).await;
    assert!(tree.contains(&address) && tree.contains("1/1 ready"), "{tree}");
    let service = get(&format!("/object?kind=Service&namespace={NAMESPACE}&name=web")).await;
    assert!(service.contains(&address), "{service}");
    let web = get(&format!("/object?group=apps&kind=Deployment&namespace={NAMESPACE}&name=web")).await;
    for cell in
        ["<td data-label=\"Ready\">1/1</td>", "<td data-label=\"Restarts\">0</td>", "<td data-label=\"Age\"><time"]
    {
        assert!(web.contains(cell), "{cell}: {web}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_valid_host_of_an_api_rule_is_a_link() {
    let users = Users::new().await;
    users.world.define(of_stream("apirules.gateway.kyma-project.io", EXPOSURE));
    let rule = json!({"path": "/.*", "methods": ["GET"], "accessStrategies": [{"handler": "allow"}]});
    for (name, host) in [("good", "shop.example.com"), ("short", "shop"), ("number", "127.0.0.1")] {
        let spec = json!({
            "gateway": "kyma-gateway.kyma-system.svc.cluster.local", "rules": [rule],
            "service": {"name": "web", "port": 80, "host": host},
        });
        let object = json!({"apiVersion": RULES.0, "kind": "APIRule", "metadata": {"name": name}, "spec": spec});
        users.world.create(RULES.0, RULES.1, NAMESPACE, object);
    }
    let console = users.console(FORM).await;
    let rules =
        json!([{"apiGroups": ["gateway.kyma-project.io", "mainstay.dev", ""], "resources": ["*"], "verbs": READS}]);
    let reader = console.sign_in(&users.account_with(NAMESPACE, "reader", &rules)).await;
    let page = async |name: &str| {
        let path = format!("/object?group=gateway.kyma-project.io&kind=APIRule&namespace={NAMESPACE}&name={name}");
        console.get(&path, &reader).await.text
    };
    let good = page("good").await;
    let link = "<a href=\"https://shop.example.com/\" rel=\"noopener noreferrer\">shop.example.com</a>";
    assert!(good.contains(link), "{good}");
    for name in ["short", "number"] {
        let text = page(name).await;
        assert!(text.contains("<dt>Address</dt>") && !text.contains("noopener"), "{text}");
    }
}
