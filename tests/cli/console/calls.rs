//! Calls of a Function and its log in a browser: pods run as processes of this machine.

use devcluster::{NodeOptions, Options};
use mainstay_testkit::world::NAMESPACE;
use serde_json::{Value, json};

use super::{
    READS,
    chromium::Tab,
    pages::{Desk, HOSTILE, looks_right},
    users::{ELSEWHERE, URL, Users},
};

const FUNCTIONS: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "functions");
/// The verbs of a user who calls Functions.
pub(super) const CALLS: &[&str] = &["get", "list", "watch", "create"];
/// The image whose programs are those of this machine.
const HOST: &str = "host";

/// A server that prints each request, and answers with the request, a hostile string or a long string. Requests wait for
/// another one.
const SERVER: &str = r"
import http.server, json, os, threading
waiting, released = [], threading.Event()
class Answer(http.server.BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get('content-length') or 0)).decode()
        print('called by', self.command, self.path, body, flush=True)
        hostile = os.environ['HOSTILE']
        if self.path == '/wait':
            waiting.append(self)
            released.wait()
        if self.path == '/release':
            released.set()
        if self.path == '/hostile':
            text, kind = hostile, 'text/html'
        elif self.path == '/long':
            text, kind = 'x' * 500000, 'text/plain'
        else:
            seen = {'method': self.command, 'path': self.path, 'body': body, 'type': self.headers.get('content-type')}
            seen['waiting'] = len(waiting)
            text, kind = json.dumps(seen), 'application/json'
        self.send_response(418 if self.path == '/teapot' else 200)
        self.send_header('content-type', kind)
        self.send_header('x-hostile', hostile)
        self.send_header('content-length', str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    do_GET = do_POST = answer
    def log_message(self, *args):
        pass
print('first line', os.environ['HOSTILE'], '\x1b[31mred\x1b[0m', flush=True)
http.server.ThreadingHTTPServer((os.environ['POD_ADDRESS'], 8080), Answer).serve_forever()
";

fn function(desk: &Desk, name: &str) -> Value {
    let function = json!({
        "apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"runtime": "nodejs22", "source": "x"},
    });
    desk.users.world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, function)
}

fn service(desk: &Desk, name: &str, owners: Value) {
    let labels = json!({"serverless.kyma-project.io/function-name": name});
    let spec = json!({"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    let metadata = json!({"name": name, "ownerReferences": owners});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
    desk.users.world.create("v1", "services", NAMESPACE, service);
}

/// A desk with the served Function `greeter`, which prints a hostile string.
async fn serving() -> (Desk, tempfile::TempDir) {
    serving_with(HOSTILE).await
}

/// A desk with the served Function `greeter`, which prints this text. Its files end with the directory.
pub(super) async fn serving_with(text: &str) -> (Desk, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let mut node = NodeOptions::new(directory.path().join("node")).host_image(HOST, []);
    node.env.push(("POD_ADDRESS".into(), "{podIP}".into()));
    let desk = Desk::of(Users::with(Options { node: Some(node), ..Options::default() }).await).await;
    let uid = function(&desk, "greeter")["metadata"]["uid"].clone();
    service(&desk, "greeter", json!([{"apiVersion": FUNCTIONS.0, "kind": "Function", "name": "greeter", "uid": uid}]));
    let container = json!({
        "name": "function", "image": HOST, "command": ["python3", "-c", SERVER], "env": [{"name": "HOSTILE", "value": text}],
        "readinessProbe": {"tcpSocket": {"port": 8080}},
    });
    let labels = json!({"serverless.kyma-project.io/function-name": "greeter"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greeter-1", "labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    });
    desk.users.world.create("v1", "pods", NAMESPACE, pod);
    let is_ready = |live: &Value| {
        let conditions = live["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    desk.users
        .world
        .until("the pod serves", |w| w.get("v1", "pods", "greeter-1").is_some_and(|live| is_ready(&live)))
        .await;
    (desk, directory)
}

/// Fills in the form of the call page, and sends it.
pub(super) async fn call(tab: &Tab, method: &str, path: &str, body: &str) {
    let field = |name: &str, value: &str| format!("document.querySelector('[name={name}]').value = {};", json!(value));
    tab.until("Boolean(document.querySelector('[name=path]'))").await;
    tab.value(&[field("method", method), field("path", path), field("body", body)].concat()).await;
    tab.value("window.isOld = true; document.querySelector('main button').click()").await;
    tab.until("!window.isOld && document.readyState === 'complete'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_is_called_through_the_api_server_and_its_log_follows() {
    let (desk, _directory) = serving().await;
    let token = desk.users.account(NAMESPACE, "caller", CALLS);
    let log = desk.user(&token).await;
    log.open(&format!("{URL}/function/{NAMESPACE}/greeter")).await;
    for text in ["Following the log.", "first line", " red"] {
        log.shows(text).await;
    }
    log.value("window.isSame = true").await;

    let tab = desk.user(&token).await;
    tab.open(&format!("{URL}/function/{NAMESPACE}/greeter")).await;
    tab.click("a.button", "Call").await;
    call(&tab, "POST", "/hello?a=1", "a body").await;
    for text in ["Response: 200", "\"path\": \"/hello?a=1\"", "\"body\": \"a body\"", "\"type\": \"application/json\""]
    {
        tab.shows(text).await;
    }
    looks_right(&tab, "answer").await;
    log.shows("called by POST /hello?a=1 a body").await;
    call(&tab, "GET", "/teapot", "").await;
    tab.shows("Response: 418").await;
    call(&tab, "GET", "/hostile", "").await;
    tab.shows("text/html").await;
    call(&tab, "GET", "/long", "").await;
    tab.shows("The body is longer. Only its first 128 KiB were read.").await;
    for tab in [&tab, &log] {
        let strange = "document.querySelectorAll('script:not([src]), img, svg, [onerror]').length";
        assert_eq!((tab.value(strange).await, tab.value("typeof window.ran").await), (json!(0), json!("undefined")));
    }
    assert_eq!(log.value("window.isSame").await, true, "it was not loaded again");
    looks_right(&log, "log").await;

    // The end of the container is the end of its log.
    desk.users.world.delete("v1", "pods", "greeter-1");
    log.until("/has ended|does not exist|cannot be read/.test(document.body.innerText)").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_leads_to_the_service_of_its_function_and_needs_the_rights_of_the_user() {
    let (desk, _directory) = serving().await;
    function(&desk, "lonely");
    function(&desk, "stolen");
    service(&desk, "stolen", json!([]));
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    let page = |name: &str| format!("{URL}/function/{NAMESPACE}/{name}/call");
    for (name, text) in [
        ("lonely", "This Function has no Service"),
        ("stolen", "is not the one of this Function"),
        ("absent", "The object does not exist"),
    ] {
        tab.open(&page(name)).await;
        tab.shows(text).await;
        assert_eq!(tab.value("document.querySelectorAll('main form').length").await, 0, "{name}");
    }
    tab.open(&page("greeter")).await;
    assert_eq!(
        tab.value("Array.from(document.querySelector('[name=method]').options).map((one) => one.value).join()").await,
        "GET"
    );
    for path in [
        "/../../../secrets",
        "/%2e%2e/%2e%2e/secrets",
        "/%252e%252e/secrets",
        "//evil.example/",
        "http://evil.example/",
    ] {
        call(&tab, "GET", path, "").await;
        tab.shows("Path: ").await;
        assert_eq!(tab.value("Boolean(document.getElementById('answer'))").await, false, "{path}");
    }
    // A forged form has no more permissions than the user.
    let send = |fields: &str| {
        let fetch = format!(
            "fetch(location.pathname, {{method: 'POST', body: new URLSearchParams({fields})}}).then(async (answer) => \
             answer.status + ' ' + await answer.text())"
        );
        let tab = &tab;
        async move { tab.value(&fetch).await.as_str().unwrap().to_owned() }
    };
    let own = "{csrf: document.querySelector('main [name=csrf]').value, method: 'POST', path: '/', body: 'x'}";
    let refused = send(own).await;
    assert!(refused.contains("own errors") && refused.contains("forbidden"), "{refused}");
    assert!(send("{csrf: '0', method: 'GET', path: '/'}").await.starts_with("403 "));
    assert!(send("{method: 'GET', path: '/'}").await.starts_with("403 "));

    desk.users.namespace(ELSEWHERE);
    let stranger = desk.user(&desk.users.account(ELSEWHERE, "stranger", CALLS)).await;
    stranger.open(&page("greeter")).await;
    stranger.shows("403 Forbidden").await;
    let stream = format!(
        "/events?log-group=serverless.kyma-project.io&log-kind=Function&log-namespace={NAMESPACE}&log-name=greeter\
         &pod=greeter-1&container=function"
    );
    // The stream continues after the end of its log, for the changes of the page.
    let first = format!(
        "fetch('{stream}').then(async (answer) => {{ const reader = answer.body.getReader(); let text = answer.status + ' '; \
         for (;;) {{ const {{ done, value }} = await reader.read(); if (value) text += new TextDecoder().decode(value); \
         if (done || text.includes('log-end')) return text; }} }})"
    );
    let text = stranger.value(&first).await.as_str().unwrap().to_owned();
    assert!(text.contains("403 Forbidden") && !text.contains("first line"), "{text}");
}
