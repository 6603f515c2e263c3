//! `mainstay ui`: sessions, refusals, each page, and the actions, as a browser sees them.

mod browser;
mod files;
mod remote_clusters;

use devcluster::{Action, Call, Cluster, Options, verbs::patch::Form};
use futures::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};

use self::browser::Browser;
use mainstay_testkit::{
    program::Program,
    world::{NAMESPACE, World, config_map, deployment},
};

const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");
const FUNCTIONS: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "functions");
/// A string that would start a script or end an attribute.
const HOSTILE: &str = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>";

fn set_status(world: &World, (api_version, resource): (&str, &str), name: &str, status: &Value) {
    let patch = Action::Patch(Form::Merge, json!({"status": status}));
    world.write_as("test", Call::new(api_version, resource, NAMESPACE, name, patch).on("status"));
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// A GitSync whose status has an entry in each list.
fn troubled(world: &World, name: &str, text: &str) {
    world.sync(name, json!({}));
    let when = "2026-01-01T00:00:00Z";
    let status = json!({
        "appliedCommit": "a".repeat(40), "attemptedCommit": "b".repeat(40), "objects": 3, "healthy": 1, "failed": 1,
        "conditions": [condition("Ready", "False", "ApplyFailed", text)],
        "failures": [{"object": format!("Service shop/{text}"), "reason": "ApplyFailed", "message": text}],
        "held": [format!("ConfigMap shop/{text}")], "heldObjects": 3,
        "paused": [{"object": "Deployment.apps shop/web", "until": text}],
        "drifted": [{"object": "Service shop/api", "fields": [text], "who": text, "since": when, "reason": "Paused"}],
        "lastReverts": [{
            "object": "Deployment.apps shop/web", "fields": ["spec.replicas"], "who": text, "when": when, "latencyMs": 7,
            "changes": [{"field": "spec.replicas", "found": text, "restored": "2"}],
        }],
    });
    set_status(world, SYNCS, name, &status);
}

/// Returns the number of requests for GitSyncs, without watches.
fn lists(world: &World) -> u64 {
    let counts = world.server.embedded().faults().counts();
    let asked = counts.iter().filter(|count| count.verb != "watch" && count.resource.starts_with("gitsyncs"));
    asked.map(|count| count.count).sum()
}

async fn quiet_world() -> (World, Program) {
    let world = World::new().await;
    let program = Program::of(&world).await;
    (world, program)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_opens_one_session_and_other_requests_are_refused() {
    let (_world, program) = quiet_world().await;
    let browser = Browser::start(&program, &[]).await;
    let wrong = browser.send(browser.client.get(format!("{}/open/{}", browser.base, "0".repeat(64)))).await;
    assert_eq!((wrong.code, wrong.headers.get("set-cookie")), (403, None));
    for path in [
        "/",
        "/sources",
        "/served",
        "/drift",
        "/drift.csv",
        "/events",
        "/object?kind=Secret&name=a",
        "/act?action=sync",
    ] {
        assert_eq!(browser.get(path).await.code, 401, "{path}");
    }
    let browser = Browser::open(&program, &[]).await;
    assert_eq!(browser.get("/").await.code, 200);
    assert_eq!(browser.open_link().await.code, 403);
    let get = |name: &'static str, value: String| browser.request(Method::GET, "/").header(name, value);
    for (name, value) in [
        ("host", "evil.example".to_owned()),
        ("host", "127.0.0.1:1".to_owned()),
        ("origin", "http://evil.example".to_owned()),
        ("origin", "null".to_owned()),
        ("sec-fetch-site", "cross-site".to_owned()),
        ("sec-fetch-site", "same-site".to_owned()),
    ] {
        let refused = browser.send(get(name, value.clone())).await;
        assert_eq!(refused.code, 403, "{name}: {value}");
        assert!(!refused.text.contains("Fleet"), "{}", refused.text);
    }
    let page = browser.get("/").await;
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    // With `no-referrer`, a browser would send its own forms with `Origin: null`, which is refused.
    assert_eq!(page.headers["referrer-policy"], "same-origin");
    for asset in ["/style.css", "/live.js", "/copy.js", "/icon.svg"] {
        assert_eq!(browser.get(asset).await.code, 200, "{asset}");
    }
    assert!(!page.text.contains("style=\"") && !page.text.contains("<style") && !page.text.contains("://"));
    assert_eq!(browser.get("/../etc/passwd").await.code, 404);
    assert_eq!(browser.send(browser.request(Method::DELETE, "/")).await.code, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_needs_the_token_of_its_session_and_the_origin_of_its_page() {
    let (world, program) = quiet_world().await;
    world.sync("demo", json!({}));
    let browser = Browser::open(&program, &[]).await;
    let action = format!("action=suspend&group=mainstay.dev&kind=GitSync&namespace={NAMESPACE}&name=demo");
    let form = browser.form(&action, "").await;
    let other = Browser::open(&program, &[]).await;
    let stolen = other.form(&action, "").await;
    for wrong in [action.as_str(), &stolen, &format!("{action}&csrf=")] {
        assert_eq!(browser.post(wrong).await.code, 403, "{wrong}");
    }
    for origin in ["http://evil.example", "null", other.base.as_str()] {
        let request = browser.request(Method::POST, "/act").header("origin", origin).body(form.clone());
        assert_eq!(browser.send(request).await.code, 403, "{origin}");
    }
    let without = browser.request(Method::POST, "/act").body(form.clone());
    assert_eq!(browser.send(without).await.code, 403);
    assert!(world.get(SYNCS.0, SYNCS.1, "demo").unwrap()["spec"]["suspend"] != true);
    assert_eq!(browser.post(&form).await.code, 200);
    assert_eq!(world.get(SYNCS.0, SYNCS.1, "demo").unwrap()["spec"]["suspend"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_tenants_stay_texts_on_every_page() {
    let (world, program) = quiet_world().await;
    troubled(&world, "hostile", HOSTILE);
    let function = json!({
        "apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": {"name": "hostile", "namespace": NAMESPACE},
        "spec": {"runtime": "nodejs22", "source": HOSTILE, "env": [{"name": "A", "value": HOSTILE}]},
    });
    world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, function);
    let failed = json!({"conditions": [condition("BuildReady", "False", "JobFailed", HOSTILE)], "warnings": [HOSTILE]});
    set_status(&world, FUNCTIONS, "hostile", &failed);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hostile", "annotations": {"a": HOSTILE}},
        "data": {"a": HOSTILE, "b": "\u{1b}[31mred\u{1b}[0m\u{202e}"},
    });
    world.create("v1", "configmaps", NAMESPACE, map);
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "hostile"}, "type": "Warning", "reason": HOSTILE,
        "message": HOSTILE, "involvedObject": {"kind": "ConfigMap", "namespace": NAMESPACE, "name": "hostile"},
    });
    world.create("v1", "events", NAMESPACE, event);
    let browser = Browser::open(&program, &[]).await;
    let map = format!("/object?kind=ConfigMap&namespace={NAMESPACE}&name=hostile");
    let query = "%22%27%3E%3Cscript%3Ealert(1)%3C/script%3E";
    let sync = format!("action=allow-prune&group=mainstay.dev&kind=GitSync&namespace={NAMESPACE}&name=hostile");
    for path in [
        "/".to_owned(),
        format!("/gitsync/{NAMESPACE}/hostile"),
        format!("/function/{NAMESPACE}/hostile"),
        map.clone(),
        format!("/sources?q={query}"),
        "/drift".to_owned(),
        format!("/act?{sync}"),
        format!("/?q={query}&label={query}"),
        format!("/drift?who={query}"),
        format!("/gitsync/{query}/{query}"),
        format!("/object?kind={query}&name={query}"),
    ] {
        let page = browser.get(&path).await;
        let text = page.text.to_lowercase();
        assert!(!text.contains("<script>") && !text.contains("<img"), "{path}: {text}");
        assert!(text.contains("&lt;script") || page.code != 200, "{path}: {text}");
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{path}");
    }
    let csv = browser.get("/drift.csv").await;
    assert!(csv.headers["content-disposition"].to_str().unwrap().starts_with("attachment"));
    assert_eq!(csv.headers["content-type"], "text/csv; charset=utf-8");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_shows_what_its_object_says() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("web.yaml", deployment("web", "web:1", 1));
    let commit = world.remote.commit("one");
    world.synced(json!({"drift": "Report"})).await;
    world.set_secret("key", json!({"password": "hunter2-canary"}));
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "by hand"}}));
    world.condition_is("demo", "Drifted", "True").await;
    // A running agent would overwrite the status of the other GitSync.
    world.stop().await;
    troubled(&world, "other", "a text");
    let program = Program::of(&world).await;
    let browser = Browser::open(&program, &[]).await;
    let fleet = browser.get("/").await.text;
    assert!(
        fleet.contains(&commit[..12]) && fleet.contains("GitRepository") && fleet.contains("ApplyFailed"),
        "{fleet}"
    );
    assert!(fleet.contains("The kind") || fleet.contains("Function"), "{fleet}");
    let sync = browser.get(&format!("/gitsync/{NAMESPACE}/demo")).await.text;
    for text in
        [&commit[..12], "ConfigMap", "Deployment.apps", "Drifted", "kubectl-edit", "Suspend", "</span> drifted</span>"]
    {
        assert!(sync.contains(text), "{text}: {sync}");
    }
    let attention = sync.split("id=\"attention\"").nth(1).and_then(|rest| rest.split("</section>").next()).unwrap();
    assert!(attention.contains("<code>data.key</code>") && attention.contains("by hand"), "{attention}");
    let other = browser.get(&format!("/gitsync/{NAMESPACE}/other")).await.text;
    let resume =
        "Run <code data-copy=\"the command\">mainstay resume Deployment.apps web -n shop</code> to end the pause.";
    for text in ["Held from deletion", "Paused", "reverted after 7 ms", "Approve the held deletions", resume] {
        assert!(other.contains(text), "{text}: {other}");
    }
    // Hand edits have a list apart from the commits.
    let of_section =
        |id: &str| other.split(&format!("id=\"{id}\"")).nth(1).and_then(|rest| rest.split("</section>").next());
    assert!(of_section("edits").unwrap().contains("reverted after 7 ms"), "{other}");
    assert!(!of_section("history").unwrap().contains("reverted after 7 ms"), "{other}");
    let map = browser.get(&format!("/object?kind=ConfigMap&namespace={NAMESPACE}&name=a")).await.text;
    assert!(map.contains("by hand") && map.contains("/gitsync/") && map.contains("Pause"), "{map}");
    let secret = browser.get(&format!("/object?kind=Secret&namespace={NAMESPACE}&name=key")).await.text;
    assert!(secret.contains("password: (hidden)") && !secret.contains("hunter2"), "{secret}");
    let encoded = "aHVudGVyMi1jYW5hcnk";
    assert!(!secret.contains(encoded), "{secret}");
    let drift = browser.get("/drift?who=kubectl").await.text;
    // The filter offers all field managers.
    let shown = drift.rsplit("</form>").next().unwrap();
    assert!(shown.contains("data.key") && shown.contains("remains: Report") && !shown.contains("a text"), "{drift}");
    let csv = browser.get("/drift.csv").await.text;
    assert!(csv.starts_with("\"time\",\"gitsync\"") && csv.contains("kubectl-edit"), "{csv}");
    assert_eq!(browser.get(&format!("/gitsync/{NAMESPACE}/none")).await.code, 404);
    assert_eq!(browser.get("/object?kind=Nothing&name=a").await.code, 404);
    assert_eq!(browser.get("/nothing").await.code, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_is_suspended_resumed_and_synced_from_its_page() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    let program = Program::of(&world).await;
    let browser = Browser::open(&program, &[]).await;
    let of = |action: &str| format!("action={action}&group=mainstay.dev&kind=GitSync&namespace={NAMESPACE}&name=demo");
    let wrong = browser.post(&browser.form(&of("suspend"), "&for=soon").await).await;
    assert_eq!(wrong.code, 422, "{}", wrong.text);
    let done = browser.post(&browser.form(&of("suspend"), "&for=1h").await).await;
    assert!(done.code == 200 && done.text.contains("Suspended. "), "{}", done.text);
    world.condition_is("demo", "Suspended", "True").await;
    let page = browser.until(&format!("/gitsync/{NAMESPACE}/demo"), |page| page.text.contains("Suspended until")).await;
    assert!(page.text.contains("action=resume"), "{}", page.text);
    assert_eq!(browser.post(&browser.form(&of("resume"), "").await).await.code, 200);
    world
        .until("the GitSync is not suspended", |world| !world.condition("demo", "Suspended").starts_with("True"))
        .await;
    let commit = world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    assert_eq!(browser.post(&browser.form(&of("sync"), "").await).await.code, 200);
    world.ready_at("demo", &commit).await;
    let pause = format!("action=pause&group=&kind=ConfigMap&namespace={NAMESPACE}&name=a");
    assert_eq!(browser.post(&browser.form(&pause, "").await).await.code, 200);
    let map = world.get("v1", "configmaps", "a").unwrap();
    assert_eq!(map["metadata"]["annotations"]["mainstay.dev/reconcile"], "disabled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_arrives_on_the_stream_of_a_page() {
    let (world, program) = quiet_world().await;
    world.sync("demo", json!({}));
    world.sync("other", json!({}));
    let browser = Browser::open(&program, &[]).await;
    let path = format!("/events?kind=GitSync&namespace={NAMESPACE}&name=demo");
    let response = browser.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.bytes_stream();
    let opened = stream.next().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&opened).contains("event: fresh"));
    let status = json!({"conditions": [condition("Ready", "True", "Applied", "applied")]});
    set_status(&world, SYNCS, "demo", &status);
    let mut seen = String::new();
    while !seen.contains("event: change") {
        seen.push_str(&String::from_utf8_lossy(&stream.next().await.unwrap().unwrap()));
    }
    let page = browser.get(&format!("/gitsync/{NAMESPACE}/demo")).await.text;
    assert!(page.contains("Applied"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_users_see_and_change_what_their_rights_permit() {
    let world = World::of(Cluster::new(Options { rbac: true, ..Options::default() }));
    world.sync("demo", json!({}));
    world.create(
        "v1",
        "namespaces",
        "",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}),
    );
    let veiled = json!({
        "apiVersion": SYNCS.0, "kind": "GitSync", "metadata": {"name": "veiled"}, "spec": {"gitRepository": "repo"},
    });
    world.create(SYNCS.0, SYNCS.1, "elsewhere", veiled);
    let rbac = "rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": rbac, "kind": "Role", "metadata": {"name": "reads"},
        "rules": [{"apiGroups": ["mainstay.dev"], "resources": ["gitsyncs"], "verbs": ["get", "list", "watch"]}],
    });
    world.create(rbac, "roles", NAMESPACE, role);
    let binding = json!({
        "apiVersion": rbac, "kind": "RoleBinding", "metadata": {"name": "reads"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    world.create(rbac, "rolebindings", NAMESPACE, binding);
    let program = Program::of(&world).await;
    let admin = Browser::open(&program, &[]).await;
    let alice = Browser::open(&program, &["--as", "alice", "-n", NAMESPACE]).await;
    let all = admin.get("/").await.text;
    assert!(all.contains("veiled") && all.contains("demo"), "{all}");
    let hers = alice.get("/").await.text;
    assert!(hers.contains("demo") && !hers.contains("veiled") && hers.contains("alice"), "{hers}");
    assert!(hers.contains("only: you may not list them") && hers.contains("cannot be read"), "{hers}");
    assert_eq!(alice.get("/gitsync/elsewhere/veiled").await.code, 403);
    let page = alice.get(&format!("/gitsync/{NAMESPACE}/demo")).await.text;
    assert!(page.contains("You may not change this object") && page.contains("aria-disabled"), "{page}");
    let action = format!("action=suspend&group=mainstay.dev&kind=GitSync&namespace={NAMESPACE}&name=demo");
    let refused = alice.post(&alice.form(&action, "").await).await;
    assert!(refused.code == 409 && refused.text.contains("Nothing was changed"), "{}", refused.text);
    assert!(world.get(SYNCS.0, SYNCS.1, "demo").unwrap()["spec"]["suspend"] != true);
    // The cookie of one console is not a session of the other console.
    let foreign = alice.client.get(format!("{}/", admin.base)).header("cookie", &alice.cookie);
    assert_eq!(alice.send(foreign).await.code, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_git_syncs_cost_one_list_for_all_pages() {
    let (world, program) = quiet_world().await;
    for at in 0..2000 {
        world.sync(&format!("sync-{at:04}"), json!({}));
    }
    set_status(&world, SYNCS, "sync-1234", &json!({"conditions": [condition("Ready", "False", "ApplyFailed", "m")]}));
    let browser = Browser::open(&program, &[]).await;
    let first = browser.until("/", |page| page.text.contains("2001 objects")).await.text;
    assert!(first.find("1234").unwrap() < first.find("0000").unwrap(), "the failed one comes first");
    assert_eq!(first.matches("<th scope=\"row\"").count(), 100);
    assert!(first.contains("Page 1 of 21") && first.len() < 200_000, "{}", first.len());
    let before = lists(&world);
    let last = browser.get("/?page=21").await.text;
    assert_eq!(last.matches("<th scope=\"row\"").count(), 1);
    let found = browser.get("/?q=sync-12&state=Failed").await.text;
    assert!(found.contains("1 object<") && found.contains("sync%2D1234"), "{found}");
    let after = lists(&world);
    assert_eq!(after, before, "a page of the fleet costs no request");
}
