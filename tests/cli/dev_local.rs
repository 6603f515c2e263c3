//! Local attackers of `mainstay dev`: another user of the machine, a web page, a checkout with links, and the author of a
//! remote repository.
//!
//! The other user is a process with the ID of `nobody`, which only root can start. Without root, the tables in
//! `loopback` cover the kernel's decisions, and these tests check that the same user has access.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::symlink,
    path::Path,
};

use mainstay_testkit::{
    dev::{Dev, copy, git, wait_until},
    git_server::GitServer,
    remote::{NAME, Remote},
};
use serde_json::json;

const EXAMPLE: &str = "examples/functions";

/// Returns the status of a request; 000 if the connection was closed without a response.
fn status(program: &mut std::process::Command, url: &str, more: &[&str]) -> String {
    let common = ["-sk", "--noproxy", "*", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}"];
    let output = program.args(common).args(more).arg(url).output();
    String::from_utf8(output.expect("curl is needed: https://curl.se/download.html").stdout).unwrap()
}

fn own(url: &str, more: &[&str]) -> String {
    status(&mut mainstay_testkit::isolated("curl"), url, more)
}

/// Returns the status for another user; `None` if this process cannot switch users.
fn other_user(url: &str, more: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let mut other = mainstay_testkit::isolated("setpriv");
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "curl"]);
    Some(status(&mut other, url, more))
}

/// Checks that only this user gets a response, and that pages of foreign sites get none.
fn is_guarded(what: &str, url: &str, more: &[&str]) {
    let answered = own(url, more);
    assert!(answered.starts_with('2'), "{what} {url}: {answered}");
    if let Some(other) = other_user(url, more) {
        assert_eq!(other, "000", "{what} {url}: another user");
    }
    let foreign = [more, &["-H", "Origin: https://evil.example"]].concat();
    assert_eq!(own(url, &foreign), "403", "{what} {url}: a page");
    let image = [more, &["-H", "Sec-Fetch-Site: cross-site"]].concat();
    assert_eq!(own(url, &image), "403", "{what} {url}: a page");
}

/// Checks that a foreign host name that resolves to this machine is refused.
fn is_no_stranger(what: &str, url: &str, more: &[&str]) {
    let foreign = [more, &["-H", "Host: evil.example"]].concat();
    assert_eq!(own(url, &foreign), "403", "{what} {url}");
}

#[test]
fn every_port_of_dev_is_for_its_user_and_for_no_page_of_a_foreign_site() {
    let home = tempfile::tempdir().unwrap();
    let work = home.path().join(EXAMPLE);
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(EXAMPLE), &work);
    git(home.path(), &["init", "-q", "-b", "main"]);
    git(&work, &["add", "."]);
    git(&work, &["commit", "-qm", "functions"]);
    let dev = Dev::start(home.path(), &[EXAMPLE]);
    wait_until("the Function is there", || dev.try_kubectl(&["get", "function", "quote"]).is_ok());
    dev.kubectl(&["wait", "--for=condition=Running", "function/quote", "--timeout=240s"]);

    let service = dev.kubectl(&[
        "get",
        "service",
        "quote",
        "-o",
        "jsonpath={.spec.clusterIP} {.metadata.annotations.devcluster\\.dev/url}",
    ]);
    let (address, moved) = service.split_once(' ').unwrap();
    let url = if moved.trim().is_empty() { format!("http://{address}/") } else { moved.trim().to_owned() };
    is_guarded("the Service of a Function", &url, &[]);
    is_no_stranger("the Service of a Function", &url, &[]);
    assert_eq!(own(&url, &["-H", "Host: quote.default"]), "200", "a Service is called by its name");
    assert_eq!(own(&url, &["-H", "Origin: http://localhost:3000"]), "200", "a page of this machine");
    let pods = [
        "get",
        "pods",
        "-l",
        "serverless.kyma-project.io/resource=deployment",
        "-o",
        "jsonpath={.items[*].status.podIP}",
    ];
    let pod = dev.kubectl(&pods).split_whitespace().next().unwrap().to_owned();
    is_guarded("the pod of a Function", &format!("http://{pod}:8080/"), &[]);
    is_no_stranger("the pod of a Function", &format!("http://{pod}:8080/"), &[]);

    let publisher = dev.kubectl(&[
        "-n",
        "kyma-system",
        "get",
        "pod",
        "mainstay-eventing",
        "-o",
        "jsonpath={.spec.containers[0].ports[0].containerPort}",
    ]);
    let publisher = format!("http://127.0.0.1:{publisher}/publish");
    let event =
        r#"{"specversion":"1.0","id":"1","source":"test","type":"sap.kyma.custom.test.order.created.v1","data":{}}"#;
    let event = ["-H", "Content-Type: application/cloudevents+json", "-d", event];
    is_guarded("the publisher", &publisher, &event);
    is_no_stranger("the publisher", &publisher, &event);

    let ask = ["-H", "Host: gateway.localhost", "-d", "{}"];
    assert_eq!(
        own(&format!("{}/app/v1/events", dev.gateway), &[&ask[..], &["-H", "Origin: https://evil.example"]].concat()),
        "403"
    );
    let (keys, issuer) = (format!("{}/keys", dev.gateway), ["-H", "Host: issuer.localhost"]);
    assert_eq!(own(&keys, &issuer), "200");
    assert_eq!(
        own(&keys, &[&issuer[..], &["-H", "Origin: https://evil.example"]].concat()),
        "403",
        "the gateway's issuer"
    );
    if let Some(other) = other_user(&dev.gateway, &[]) {
        assert_eq!(other, "000", "the gateway");
        let server = fs::read_to_string(&dev.kubeconfig).unwrap();
        let server = server.split_once("server: \"").unwrap().1.split_once('"').unwrap().0.to_owned();
        assert_eq!(other_user(&format!("{server}/version"), &[]).unwrap(), "000", "the API server");
        assert_eq!(own(&format!("{server}/version"), &[]), "401");
    }
    assert_eq!(dev.interrupt().code(), Some(0));
}

/// Returns the error of `dev` when it refuses to start.
fn refusal(home: &Path) -> String {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    let output = command.args(["dev"]).current_dir(home).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_checkout_with_links_in_its_directory_changes_and_removes_no_file_elsewhere() {
    for (link, to) in [
        (".mainstay", "kept"),
        (".mainstay/.gitignore", "kept/file"),
        (".mainstay/lock", "kept/file"),
        (".mainstay/cluster", "kept"),
        (".mainstay/eventing", "kept"),
        (".mainstay/work-tree.git", "kept"),
        (".mainstay/mirrors", "kept"),
        (".mainstay/demo", "kept"),
        (".mainstay/demo/web", "kept"),
        (".mainstay/kubeconfig", "kept/file"),
        (".mainstay/issuer.key", "kept/file"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let (kept, checkout) = (home.path().join("kept"), home.path().join("checkout"));
        for folder in ["images/a", "node", "journal"] {
            fs::create_dir_all(kept.join(folder)).unwrap();
            fs::write(kept.join(folder).join("file"), "mine").unwrap();
        }
        fs::write(kept.join("file"), "mine").unwrap();
        let path = checkout.join(link);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(home.path().join(to), &path).unwrap();
        let said = refusal(&checkout);
        assert!(said.contains(link) && said.contains("symbolic link") && said.contains("remove"), "{link}: {said}");
        for file in ["file", "images/a/file", "node/file", "journal/file"] {
            assert_eq!(fs::read_to_string(kept.join(file)).unwrap(), "mine", "{link}: {file}");
        }
        assert_eq!(fs::read_dir(&kept).unwrap().count(), 4, "{link}");
        // The same directory is also refused if a Git repository tracks it.
        git(&checkout, &["init", "-q", "-b", "main"]);
        git(&checkout, &["add", "--force", "."]);
        let said = refusal(&checkout);
        assert!(
            said.contains("tracked by the Git repository") && said.contains("git rm -r --cached"),
            "{link}: {said}"
        );
    }
}

/// Untrusted manifests: repositories of this machine and of its network, a Service that routes to this machine, and a
/// webhook with a URL of this machine.
fn manifests_of_a_stranger(private: &Path, webhook: SocketAddr) -> String {
    let repository = |name: &str, url: &str| {
        format!(
            "apiVersion: serverless.kyma-project.io/v1alpha1\nkind: GitRepository\nmetadata: {{name: {name}}}\nspec: {{url: '{url}'}}\n\
             ---\napiVersion: mainstay.dev/v1alpha1\nkind: GitSync\nmetadata: {{name: {name}}}\n\
             spec: {{gitRepository: {name}, reference: main}}\n---\n"
        )
    };
    let local = repository("local", &format!("file://{}", private.display()));
    let inside = repository("inside", "http://127.0.0.2:9/private.git");
    let exposed = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "written"}, "spec": {"ports": [{"port": 80}]}}
---
{"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "written"},
 "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 9}]}]}
---
{"apiVersion": "eventing.knative.dev/v1alpha1", "kind": "Trigger", "metadata": {"name": "written"}, "spec": {
 "broker": "default", "subscriber": {"ref": {"apiVersion": "v1", "kind": "Service", "name": "written"}}}}
---
{"apiVersion": "gateway.kyma-project.io/v1beta1", "kind": "APIRule", "metadata": {"name": "written"}, "spec": {
 "gateway": "kyma-gateway.kyma-system.svc.cluster.local", "host": "written", "service": {"name": "written", "port": 80},
 "rules": [{"path": "/.*", "methods": ["GET"], "accessStrategies": [{"handler": "noop"}]}]}}
"#;
    let hook = format!(
        "---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: stranger}}\n\
         webhooks:\n- name: a.example.com\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  failurePolicy: Fail\n  \
         clientConfig: {{url: 'https://{webhook}/x'}}\n  objectSelector: {{matchLabels: {{probe: 'true'}}}}\n  \
         rules: [{{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}}]\n"
    );
    format!("{local}{inside}{exposed}{hook}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_a_remote_repository_read_no_local_path_and_reach_no_internal_address() {
    let home = tempfile::tempdir().unwrap();
    let private = home.path().join("private");
    fs::create_dir(&private).unwrap();
    let stolen = "{apiVersion: v1, kind: ConfigMap, metadata: {name: stolen}}";
    fs::write(private.join("map.yaml"), stolen).unwrap();
    git(&private, &["init", "-q", "-b", "main"]);
    git(&private, &["add", "."]);
    git(&private, &["commit", "-q", "-m", "private"]);
    let mut remote = Remote::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let webhook = listener.local_addr().unwrap();
    remote.file("all.yaml", manifests_of_a_stranger(&private, webhook)).commit("one");
    let server = GitServer::start(remote.root()).await;
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    let dev = Dev::start(&work, &[&server.url(NAME)]);
    let said = |kind: &str, name: &str| {
        let found = dev.try_kubectl(&["get", kind, name, "-o", "jsonpath={.status}"]);
        found.unwrap_or_default()
    };
    for (kind, name, refusal) in [
        ("gitsync", "local", "local paths are read by `mainstay dev` only"),
        ("gitsync", "inside", "or of a private network"),
        ("apirules.v1beta1.gateway.kyma-project.io", "written", "it has no selector"),
        ("triggers.eventing.knative.dev", "written", "has no selector"),
    ] {
        wait_until(&format!("{kind} {name}: {refusal}"), || said(kind, name).contains(refusal));
    }
    assert!(dev.try_kubectl(&["get", "configmap", "stolen"]).unwrap_err().contains("not found"));
    let has_hook = || dev.try_kubectl(&["get", "validatingwebhookconfiguration", "stranger"]).is_ok();
    wait_until("the webhook is configured", has_hook);
    let labelled =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "labels": {"probe": "true"}}});
    fs::write(work.join("probe.json"), labelled.to_string()).unwrap();
    let probe = work.join("probe.json").display().to_string();
    let refused = dev.try_kubectl(&["create", "-f", &probe]).unwrap_err();
    assert!(
        refused.contains("webhooks of a remote repository are not called") && refused.contains("--run-code"),
        "{refused}"
    );
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
