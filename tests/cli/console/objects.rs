//! The page of an object in a browser: its origin, its difference from the repository, and the owners of its fields.

use devcluster::{Action, Call, verbs::patch::Form};
use mainstay_testkit::world::{NAMESPACE, deployment};
use serde_json::{Value, json};

use super::{
    READS, WRITES,
    pages::{Desk, looks_right},
    users::{ELSEWHERE, URL},
};

const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: key\nstringData:\n  password: hunter2\n";
/// `hunter2` in base64.
const ENCODED: &str = "aHVudGVyMg";

fn page(kind: &str, group: &str, name: &str) -> String {
    format!("{URL}/object?group={group}&kind={kind}&namespace={NAMESPACE}&name={name}")
}

fn scale(desk: &Desk, manager: &str, replicas: u32) {
    let patch = Action::Patch(Form::Merge, json!({"spec": {"replicas": replicas}}));
    desk.users.world.write_as(manager, Call::new("apps/v1", "deployments", NAMESPACE, "web", patch));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_shows_its_origin_its_difference_and_the_owners_of_its_fields() {
    let mut desk = Desk::new().await;
    let world = &mut desk.users.world;
    let web = format!("# the shop\n{}", deployment("web", "example.org/web:1", 2));
    world.remote.file("apps/web.yaml", web).file("apps/key.yaml", SECRET);
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps", "drift": "Report"})).await;
    scale(&desk, "kubectl-scale", 5);
    desk.users.world.until("the drift is known", |w| w.status("demo")["driftedObjects"] == 1).await;

    let tab = desk.user(&desk.users.account(NAMESPACE, "writer", WRITES)).await;
    tab.open(&format!("{URL}/gitsync/{NAMESPACE}/demo")).await;
    tab.shows("applied: 2 created").await;
    tab.click(".tree a", &format!("Deployment.apps {NAMESPACE}/web")).await;
    tab.until("document.querySelector('h1')?.innerText.startsWith('Deployment web')").await;
    for text in [
        "What happens next: the agent reports changes of its fields and leaves them",
        "apps/web.yaml",
        "line 2",
        "kubectl-scale",
        "spec.replicas",
        "remains: Report",
        "reported a change by kubectl-scale and left it: drift is Report",
    ] {
        tab.shows(text).await;
    }
    let text = |selector: &'static str| {
        let tab = &tab;
        async move {
            tab.value(&format!("document.querySelector({selector:?}).innerText")).await.as_str().unwrap().to_owned()
        }
    };
    let (desired, live) = (text("#desired ~ pre").await, text("#yaml ~ pre").await);
    assert!(desired.contains("replicas: 2") && !desired.contains("uid") && !desired.contains("status"), "{desired}");
    assert!(live.contains("replicas: 5") && live.contains("uid") && !live.contains("managedFields"), "{live}");
    let lines = text("pre.lines").await;
    assert!(lines.contains("−   replicas: 5") && lines.contains("+   replicas: 2"), "{lines}");
    looks_right(&tab, "object-drift").await;

    // The page follows the status of its GitSync.
    tab.value("window.isSame = true").await;
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    desk.users.world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"drift": "Revert"}}));
    tab.shows("None. Each field that the manifest sets has the value of the repository.").await;
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");

    // A child links to its manager, and a deleted object has a page, too.
    let pods = desk.users.world.server.objects("v1", "pods", None);
    tab.open(&page("Pod", "", pods[0]["metadata"]["name"].as_str().unwrap())).await;
    tab.until("document.querySelector('h1')?.innerText.startsWith('Pod web')").await;
    tab.shows("apps/web.yaml").await;
    tab.shows(&format!("Deployment.apps {NAMESPACE}/web")).await;
    desk.users.world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"suspend": true}}));
    desk.users.world.until("it is suspended", |w| w.condition("demo", "Suspended").starts_with("True")).await;
    desk.users.world.delete("apps/v1", "deployments", "web");
    tab.open(&page("Deployment", "apps", "web")).await;
    tab.shows("The object does not exist in the cluster.").await;
    tab.shows("its GitSync is suspended").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_and_an_object_of_another_user_show_no_value() {
    let mut desk = Desk::new().await;
    let world = &mut desk.users.world;
    world.remote.file("apps/key.yaml", SECRET);
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps", "drift": "Report"})).await;
    let patch = Action::Patch(Form::Merge, json!({"data": {"password": "c3dvcmRmaXNo"}}));
    world.write_as("intruder", Call::new("v1", "secrets", NAMESPACE, "key", patch));
    world.until("the drift is known", |w| w.status("demo")["driftedObjects"] == 1).await;
    desk.users.namespace(ELSEWHERE);

    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    tab.open(&page("Secret", "", "key")).await;
    for text in ["intruder", "data.password", "(hidden)", "The values of a Secret are never shown."] {
        tab.shows(text).await;
    }
    let html = tab.value("document.documentElement.outerHTML").await.as_str().unwrap().to_owned();
    for value in ["hunter2", ENCODED, "swordfish", "c3dvcmRmaXNo"] {
        assert!(!html.contains(value), "{value}");
    }
    let stranger = desk.user(&desk.users.account(ELSEWHERE, "stranger", READS)).await;
    stranger.open(&page("Secret", "", "key")).await;
    stranger.shows("403 Forbidden").await;
    let html = stranger.value("document.documentElement.outerHTML").await.as_str().unwrap().to_owned();
    assert!(!html.contains("intruder") && !html.contains("apps/key.yaml"), "{html}");
}
