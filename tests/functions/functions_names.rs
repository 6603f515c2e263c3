//! Functions that call each other by their Service names, with all methods.

use devcluster::{Gateway, gateway};
use reqwest::Method;
use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{SERVICES, inline},
    machine::REGISTRY_PASSWORD,
    world::{NAMESPACE, World},
};

const OTHER: &str = "mainstay-tests-other";

/// Answers with the response of the host in its query, or with the error.
const NODE: &str = "exports.main = async (event) => {
    try { return await (await fetch(`http://${event.extensions.request.query.host}/`)).text(); }
    catch (error) { return error.cause ? error.cause.code : String(error); }
}";
const PYTHON: &str = "import urllib.error, urllib.request
def main(event, context):
    try:
        return urllib.request.urlopen('http://%s/' % event['extensions']['request'].query.host, timeout=20).read().decode()
    except urllib.error.URLError as error:
        return str(error.reason)
";

fn python(source: &str) -> Value {
    json!({"runtime": "python312", "source": source, "minReplicas": 1, "maxReplicas": 1})
}

/// Returns the names of files below a directory. The node deletes images that no pod uses while this reads: an
/// absent directory has no names.
fn files_below(directory: std::path::PathBuf) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![directory];
    while let Some(directory) = open.pop() {
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            entries => entries.unwrap(),
        };
        for entry in entries.map(Result::unwrap) {
            names.push(entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
        }
    }
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_call_each_other_by_the_names_of_their_services() {
    let mut world = World::with_processes().await;
    world.create("v1", "namespaces", "", json!({"metadata": {"name": OTHER}}));
    world.registry_for(OTHER, &world.machine().registry(), "mainstay", REGISTRY_PASSWORD);
    world.start();
    world.function("a", inline(NODE));
    world.function("p", python(PYTHON));
    world.function("b", inline("exports.main = () => 'first'"));
    world.function_in(OTHER, "b", python("def main(event, context): return 'elsewhere'"));
    world.answers("b", "200 first").await;
    world.answers_in(OTHER, "b", "200 elsewhere").await;
    let own = ["b".to_owned(), format!("b.{NAMESPACE}"), format!("b.{NAMESPACE}.svc.cluster.local")];
    for caller in ["a", "p"] {
        for host in &own {
            world.answers(&format!("{caller}/?host={host}"), "200 first").await;
        }
        for host in [format!("b.{OTHER}"), format!("b.{OTHER}.svc"), format!("b.{OTHER}.svc.cluster.local.")] {
            world.answers(&format!("{caller}/?host={host}"), "200 elsewhere").await;
        }
    }
    for host in [format!("nobody.{NAMESPACE}.svc.cluster.local"), "b.nowhere.svc".to_owned()] {
        assert_eq!(world.call(&format!("a/?host={host}")).await, "200 ENOTFOUND", "{host}");
        let unknown = "200 [Errno -2] Name or service not known";
        assert_eq!(world.call(&format!("p/?host={host}")).await, unknown, "{host}");
    }

    // Other pods of the same Service.
    world.edit_function("b", json!({"spec": {"source": "exports.main = () => 'second'"}}));
    world.answers("b", "200 second").await;
    for caller in ["a", "p"] {
        world.answers(&format!("{caller}/?host=b"), "200 second").await;
    }
    // Another Service of the same name.
    world.delete(SERVICES.0, SERVICES.1, "b");
    world.answers("b", "200 second").await;
    for caller in ["a", "p"] {
        world.answers(&format!("{caller}/?host={}", own[2]), "200 second").await;
    }
    world.delete_function("b");
    world.answers(&format!("a/?host={}", own[2]), "200 ENOTFOUND").await;

    let node = std::fs::read_dir(world.machine().node()).unwrap().next().unwrap().unwrap().path();
    let unpacked = files_below(node.join("images"));
    assert!(unpacked.iter().any(|name| name == "server.js") && unpacked.iter().any(|name| name == "server.py"));
    let ours = ["names.js", "sitecustomize.py"];
    assert!(!unpacked.iter().any(|name| ours.contains(&name.as_str())), "images are as they were");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_reaches_the_handlers_of_both_runtimes() {
    let mut world = World::with_processes().await;
    for one in serde_yaml::Deserializer::from_str(gateway::DEFINITIONS) {
        let definition = Value::deserialize(one).unwrap();
        world.create("apiextensions.k8s.io/v1", "customresourcedefinitions", "", definition);
    }
    let gateway = Gateway::start(world.server.embedded(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    world.start();
    let node = "exports.main = ({ extensions: { request, response } }) => { response.set('x-method', request.method); return \
                `${request.method} ${request.body && request.body.length || 0}` }";
    let bottle = "from bottle import HTTPResponse\ndef main(event, context):\n    request = event['extensions']['request']\n    \
                  return HTTPResponse('%s %d' % (request.method, len(request.body.read())), X_Method=request.method)\n";
    world.function("js", inline(node));
    world.function("py", python(bottle));
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let methods =
        [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS, Method::HEAD];
    for name in ["js", "py"] {
        let host = format!("{name}.kyma.local");
        let api = "networking.istio.io/v1beta1";
        let spec = json!({"hosts": [host], "http": [{"route": [{"destination": {"host": name}}]}]});
        let route = json!({"apiVersion": api, "kind": "VirtualService", "metadata": {"name": name}, "spec": spec});
        world.create(api, "virtualservices", NAMESPACE, route);
        world.answers(name, "200 GET 0").await;
        let service = world.server.embedded().service_urls(NAMESPACE, name).remove(0);
        for (way, url) in [("the Service", service), ("the gateway", format!("http://{}/", gateway.address()))] {
            for method in &methods {
                let body = if [Method::POST, Method::PUT, Method::PATCH].contains(method) { "abc" } else { "" };
                let request = client.request(method.clone(), &url).header("host", &host);
                let answer = request.header("content-type", "text/plain").body(body).send().await.unwrap();
                let said = answer.headers().get("x-method").map(|value| value.to_str().unwrap().to_owned());
                let (status, read) = (answer.status().as_u16(), answer.text().await.unwrap());
                let text = if method == Method::HEAD { String::new() } else { format!("{method} {}", body.len()) };
                assert_eq!((status, said.as_deref(), read), (200, Some(method.as_str()), text), "{name} by {way}");
            }
        }
    }
}
