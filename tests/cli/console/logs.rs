//! Logs on the pages of pods and of objects that have pods, in a browser: pods run as processes of this machine.

use std::{fs::OpenOptions, io::Write as _, path::Path};

use devcluster::{NodeOptions, Options};
use mainstay_testkit::world::NAMESPACE;
use serde_json::{Value, json};

use super::{
    FORM, READS,
    pages::{Desk, HOSTILE, looks_right},
    users::{URL, Users},
};

/// The image whose programs are those of this machine.
const HOST: &str = "host";
/// The first instance ends. The second one prints all lines that the test writes to a file.
const MAIN: &str = r#"if mkdir "$DIRECTORY/begun"; then echo "the first instance"; exit 1; fi
printf 'second \033[31mred\033[0m \377\376 %s\n' "$HOSTILE"; exec tail -n +1 -f "$DIRECTORY/lines""#;

fn page(kind: &str, group: &str, name: &str) -> String {
    format!("{URL}/object?group={group}&kind={kind}&namespace={NAMESPACE}&name={name}")
}

fn deployment(directory: &Path) -> Value {
    let env = json!([{"name": "HOSTILE", "value": HOSTILE}, {"name": "DIRECTORY", "value": directory}]);
    let container =
        |name: &str, script: &str| json!({"name": name, "image": HOST, "command": ["sh", "-c", script], "env": env});
    let containers = [container("main", MAIN), container("side", "echo beside; exec sleep 1000")];
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": containers},
        }},
    })
}

/// A desk with a Deployment whose container has restarted once. Its files end with the directory.
async fn running() -> (Desk, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("lines"), "").unwrap();
    let node = NodeOptions::new(directory.path().join("node")).host_image(HOST, []);
    let desk = Desk::of(Users::with(Options { node: Some(node), ..Options::default() }).await).await;
    desk.users.world.create("apps/v1", "deployments", NAMESPACE, deployment(directory.path()));
    let has_restarted = |live: &Value| {
        let statuses = live["status"]["containerStatuses"].as_array().into_iter().flatten();
        statuses
            .into_iter()
            .any(|one| one["name"] == "main" && one["restartCount"] == 1 && !one["state"]["running"].is_null())
    };
    let world = &desk.users.world;
    world
        .until("it has restarted", |w| w.server.objects("v1", "pods", None).iter().any(|live| has_restarted(live)))
        .await;
    (desk, directory)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_and_its_deployment_show_the_log_of_each_container_and_of_its_previous_instance() {
    let (desk, directory) = running().await;
    let pod = desk.users.world.server.objects("v1", "pods", None)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let say = |text: &str| {
        let mut lines = OpenOptions::new().append(true).open(directory.path().join("lines")).unwrap();
        writeln!(lines, "{text}").unwrap();
    };
    let token = desk.users.account(NAMESPACE, "reader", READS);
    let [of_deployment, of_pod] = [desk.user(&token).await, desk.user(&token).await];
    for (tab, url) in [(&of_deployment, page("Deployment", "apps", "web")), (&of_pod, page("Pod", "", &pod))] {
        tab.open(&url).await;
        for text in [&format!("Log of {pod}, main"), "Following the log.", "second red"] {
            tab.shows(text).await;
        }
        tab.value("window.isSame = true").await;
    }
    say("written later");
    for tab in [&of_deployment, &of_pod] {
        tab.shows("written later").await;
        let strange = "document.querySelectorAll('script:not([src]), img, svg, [onerror]').length";
        assert_eq!((tab.value(strange).await, tab.value("typeof window.ran").await), (json!(0), json!("undefined")));
        assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");
        let log = tab.value("document.querySelector('pre.log').innerText").await.as_str().unwrap().to_owned();
        assert!(!log.contains('\u{1b}') && log.contains(HOSTILE), "{log}");
    }
    looks_right(&of_deployment, "object-log").await;

    for tab in [&of_deployment, &of_pod] {
        tab.click("td a", "side").await;
        tab.shows("Following the log.").await;
        tab.shows("beside").await;
        tab.click("td a", "log before it\nof main").await;
        tab.shows(&format!("Log of {pod}, main, previous instance")).await;
        tab.shows("the first instance").await;
        let text = tab.value("document.querySelector('main').innerText").await.as_str().unwrap().to_owned();
        assert!(!text.contains("Following") && !text.contains("second red"), "{text}");
    }
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cron_job_shows_the_logs_of_its_jobs_and_of_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let node = NodeOptions::new(directory.path().join("node")).host_image(HOST, []);
    let users = Users::with(Options { node: Some(node), ..Options::default() }).await;
    let template = |text: &str| {
        let container = json!({"name": "main", "image": HOST, "command": ["sh", "-c", format!("echo {text}")]});
        json!({"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}})
    };
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "backup"},
        "spec": {"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": template("unused")}},
    });
    let cron_job = users.world.create("batch/v1", "cronjobs", NAMESPACE, cron_job);
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "backup", "uid": cron_job["metadata"]["uid"]});
    for (name, owners) in [("backup-1", json!([owner])), ("backup-2", json!([owner])), ("other", json!([]))] {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "ownerReferences": owners},
            "spec": template(&format!("it is {name}")),
        });
        users.world.create("batch/v1", "jobs", NAMESPACE, job);
    }
    let has_ended = |live: &Value| live["status"]["phase"] == "Succeeded";
    users
        .world
        .until("the jobs have run", |w| {
            w.server.objects("v1", "pods", None).iter().filter(|live| has_ended(live)).count() == 3
        })
        .await;
    let console = users.console(FORM).await;
    let rules = json!([{"apiGroups": ["", "batch"], "resources": ["*"], "verbs": READS}]);
    let cookie = console.sign_in(&users.account_with(NAMESPACE, "reader", &rules)).await;
    let page = format!("/object?group=batch&kind=CronJob&namespace={NAMESPACE}&name=backup");
    let newest = console.get(&page, &cookie).await;
    assert!(newest.text.contains("it is backup-2") && newest.text.contains(">backup-1-"), "{}", newest.text);
    assert!(!newest.text.contains("other"), "{}", newest.text);
    let (_, rest) = newest.text.split_once("pod=backup-1-").unwrap();
    let older = format!("{page}&pod=backup-1-{}", rest.split(['&', '"', '#']).next().unwrap());
    let older = console.get(&older, &cookie).await;
    assert!(older.text.contains("it is backup-1") && !older.text.contains("it is backup-2"), "{}", older.text);
    // A user who may not list Jobs sees why.
    let rules = json!([
        {"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": READS}, {"apiGroups": [""], "resources": ["*"], "verbs": READS},
    ]);
    let cookie = console.sign_in(&users.account_with(NAMESPACE, "narrow", &rules)).await;
    let page = console.get(&page, &cookie).await;
    assert!(page.text.contains("jobs.batch is forbidden") && !page.text.contains("it is backup"), "{}", page.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_right_to_logs_sees_why_and_no_line() {
    let (desk, _directory) = running().await;
    let pod = desk.users.world.server.objects("v1", "pods", None)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let rules = json!([
        {"apiGroups": ["mainstay.dev", "serverless.kyma-project.io"], "resources": ["*"], "verbs": READS},
        {"apiGroups": ["", "apps"], "resources": ["pods", "deployments"], "verbs": READS},
    ]);
    let tab = desk.user(&desk.users.account_with(NAMESPACE, "narrow", &rules)).await;
    for url in [page("Deployment", "apps", "web"), page("Pod", "", &pod)] {
        tab.open(&url).await;
        tab.shows("You may not read this log: that needs the verb `get` on pods/log.").await;
        assert_eq!(tab.value("document.querySelectorAll('pre.log').length").await, 0);
    }
    // A stream refuses the log as well, and a pod that another object selects.
    let wide = desk.user(&desk.users.account(NAMESPACE, "wide", READS)).await;
    desk.users.world.create(
        "apps/v1",
        "deployments",
        NAMESPACE,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "other"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "other"}}, "template": {
                "metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "main", "image": HOST}]},
            }},
        }),
    );
    for (tab, name, why) in [(&tab, "web", "pods/log"), (&wide, "other", "The pod does not exist any more.")] {
        let stream = format!(
            "/events?log-group=apps&log-kind=Deployment&log-namespace={NAMESPACE}&log-name={name}&pod={pod}&container=main"
        );
        let text = first(tab, &stream).await;
        assert!(text.contains(why) && !text.contains("second"), "{text}");
    }
}

/// Reads a stream until its log has ended.
async fn first(tab: &super::chromium::Tab, stream: &str) -> String {
    let read = format!(
        "fetch('{stream}').then(async (answer) => {{ const reader = answer.body.getReader(); let text = answer.status + ' '; \
         for (;;) {{ const {{ done, value }} = await reader.read(); if (value) text += new TextDecoder().decode(value); \
         if (done || text.includes('log-end')) return text; }} }})"
    );
    tab.value(&read).await.as_str().unwrap().to_owned()
}
