//! The registry of `mainstay install`. The agent creates its own login and the logins of namespaces, builds push
//! through the guard with these logins, and other logins are refused.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::time::timeout;

use mainstay_testkit::{
    functions::{API, DEPLOYMENTS, inline},
    image::{Build, outcome, run},
    logs,
    registry::{DockerRegistry, PASSWORD, Served, USER},
    world::{NAMESPACE, World, free_address},
};

const ASKING: &str = "serverless-docker-registry";
const DEFAULT: &str = "serverless-registry-config-default";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Helpers of these tests.
trait LoginWorld {
    /// Creates the Secret of `manifests/registry` that requests a login, for a registry at this address.
    fn ask_for_login(&self, address: &str);
    /// Creates such a Secret with separate addresses for builds and nodes.
    fn ask_for_login_at(&self, push: &str, pull: &str);
    /// Returns the value of a Secret's key in base64; `absent` if the key is missing.
    fn stored(&self, secret: &str, key: &str) -> String;
    fn decoded(&self, secret: &str, key: &str) -> String;
}

impl LoginWorld for World {
    fn ask_for_login(&self, address: &str) {
        self.ask_for_login_at(address, address);
    }

    fn ask_for_login_at(&self, push: &str, pull: &str) {
        let text = include_str!("../../manifests/registry/registry.yaml");
        let mut secret = Value::deserialize(serde_yaml::Deserializer::from_str(text).next().unwrap()).unwrap();
        secret["metadata"]["namespace"] = NAMESPACE.into();
        for (annotation, address) in [("mainstay.dev/push-address", push), ("mainstay.dev/pull-address", pull)] {
            secret["metadata"]["annotations"][annotation] = address.into();
        }
        self.create("v1", "secrets", NAMESPACE, secret);
    }

    fn stored(&self, secret: &str, key: &str) -> String {
        let found = self.get("v1", "secrets", secret);
        found.and_then(|secret| Some(secret["data"][key].as_str()?.to_owned())).unwrap_or_else(|| "absent".to_owned())
    }

    fn decoded(&self, secret: &str, key: &str) -> String {
        use base64::prelude::{BASE64_STANDARD, Engine as _};
        String::from_utf8(BASE64_STANDARD.decode(self.stored(secret, key)).unwrap()).unwrap()
    }
}

/// The registry with the containers of `manifests/registry`: the guard in front of Docker's registry.
struct Installed {
    /// The Secret's files, as a kubelet mounts them, and the registry's data.
    directory: tempfile::TempDir,
    address: SocketAddr,
    containers: Vec<Child>,
}

impl Installed {
    /// Runs both containers with the files of the Secret that requests a login.
    async fn run(world: &World, address: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut installed = Self { directory, address, containers: Vec::new() };
        installed.mount(world);
        let text = include_str!("../../manifests/registry/registry.yaml");
        let mut documents = serde_yaml::Deserializer::from_str(text).map(|one| Value::deserialize(one).unwrap());
        let deployment = documents.find(|document| document["kind"] == "Deployment").unwrap();
        let behind = free_address().to_string();
        for container in deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap() {
            installed.begin(container, &behind);
        }
        for listening in [address, behind.parse().unwrap()] {
            let listens = async {
                while tokio::net::TcpStream::connect(listening).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(mainstay_testkit::PATIENCE, listens).await.expect("it listens in time");
        }
        installed
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Writes the files in the Secret's volume, like a kubelet.
    fn mount(&self, world: &World) {
        for key in ["username", "password", "namespaceKey", "tls.crt", "tls.key"] {
            std::fs::write(self.path(key), world.decoded(ASKING, key)).unwrap();
        }
    }

    fn begin(&mut self, container: &Value, behind: &str) {
        let placed = |text: &Value| {
            text.as_str()
                .unwrap()
                .replace("/etc/registry", &self.directory.path().display().to_string())
                .replace("/etc/docker/registry/config.yml", &self.path("config.yml"))
                .replace("/var/lib/registry", &self.path("images"))
                .replace("0.0.0.0:5000", &self.address.to_string())
                .replace("127.0.0.1:5001", behind)
        };
        // The configuration in the image.
        let configuration = "version: 0.1\nstorage: {filesystem: {}}\nhttp: {addr: ':5000'}\n";
        std::fs::write(self.path("config.yml"), configuration).unwrap();
        let texts = |field: &str| container[field].as_array().into_iter().flatten().map(placed).collect::<Vec<_>>();
        let mut command = texts("command");
        command.extend(texts("args"));
        let mut process = match &*container["name"].as_str().unwrap().to_owned() {
            "guard" => mainstay_testkit::isolated_async(env!("CARGO_BIN_EXE_mainstay")),
            _ => mainstay_testkit::isolated_async(command.remove(0).replace("registry", "docker-registry")),
        };
        let env = container["env"].as_array().into_iter().flatten();
        let env = env.map(|one| (one["name"].as_str().unwrap().to_owned(), placed(&one["value"])));
        self.containers.push(process.args(&command).envs(env).kill_on_drop(true).spawn().unwrap());
    }

    /// Returns the peak memory of the guard in bytes.
    fn peak_of_guard(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.containers[0].id().unwrap())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Ends both containers like a kubelet.
    async fn end(self) {
        for container in self.containers {
            let id = container.id().unwrap().to_string();
            assert!(mainstay_testkit::isolated_async("kill").args(["-TERM", &id]).status().await.unwrap().success());
            let mut container = container;
            timeout(mainstay_testkit::PATIENCE, container.wait()).await.expect("it ends when it is told to").unwrap();
        }
    }
}

/// A client with a login.
struct Visitor {
    client: reqwest::Client,
    address: SocketAddr,
    login: Option<(String, String)>,
}

impl Visitor {
    /// Returns a client with this login, which trusts the CA of builds.
    fn with(world: &World, address: SocketAddr, login: Option<(String, String)>) -> Self {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        for authority in reqwest::Certificate::from_pem_bundle(world.decoded(DEFAULT, "ca.crt").as_bytes()).unwrap() {
            client = client.add_root_certificate(authority);
        }
        Self { client: client.build().unwrap(), address, login }
    }

    fn request(&self, scheme: &str, method: &str, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method.parse().unwrap(), format!("{scheme}://{}{path}", self.address));
        match &self.login {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        }
    }

    /// Returns the status of a request.
    async fn asks(&self, method: &str, path: &str) -> u16 {
        self.request("https", method, path).send().await.unwrap().status().as_u16()
    }
}

/// Returns the digest of a blob in an image of a Function's pod.
async fn a_blob(visitor: &Visitor, image: &str) -> String {
    let (repository, digest) = image.split_once('/').unwrap().1.split_once('@').unwrap();
    let repository = repository.split(':').next().unwrap();
    let manifest = visitor.request("https", "GET", &format!("/v2/{repository}/manifests/{digest}"));
    let manifest = manifest.header("accept", MANIFEST).send().await.unwrap();
    let manifest: Value = serde_json::from_slice(&manifest.bytes().await.unwrap()).unwrap();
    manifest["config"]["digest"].as_str().unwrap().to_owned()
}

const TEAMS: [&str; 2] = ["team-a", "team-b"];

/// Returns a world with two more namespaces, and the installed registry over TLS.
async fn with_registry() -> (World, Installed) {
    logs::keep();
    let mut world = World::with_processes().await;
    world.delete("v1", "secrets", DEFAULT);
    for name in TEAMS {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        world.create("v1", "namespaces", "", namespace);
    }
    let address = free_address();
    world.ask_for_login_at(&format!("https://{address}"), &address.to_string());
    world.start();
    world.until("copies", |w| TEAMS.iter().all(|team| w.server.object("v1", "secrets", team, DEFAULT).is_some())).await;
    let installed = Installed::run(&world, address).await;
    (world, installed)
}

/// Returns the value of a key in a namespace's copy.
fn copied(world: &World, namespace: &str, key: &str) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    let secret = world.server.object("v1", "secrets", namespace, DEFAULT).unwrap();
    String::from_utf8(BASE64_STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
}

/// Runs a Function in a namespace, and returns the image of its pods.
async fn runs_in(world: &World, namespace: &str, function: &str, source: &str) -> String {
    world.function_in(namespace, function, inline(source));
    let is_running = |w: &World| {
        let function = w.server.object(API, "functions", namespace, function).unwrap();
        let conditions = function["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Running" && one["status"] == "True")
    };
    world.until_function(&format!("{namespace}/{function} runs"), is_running).await;
    let deployments = world.server.objects(DEPLOYMENTS.0, DEPLOYMENTS.1, Some(namespace));
    let label = "serverless.kyma-project.io/function-name";
    let deployment = deployments.iter().find(|one| one["metadata"]["labels"][label] == function).unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_reads_and_writes_its_own_images_only() {
    let (world, installed) = with_registry().await;
    let address = installed.address;
    let [mine, theirs] = [runs_in(&world, TEAMS[0], "fn", "1").await, runs_in(&world, TEAMS[1], "fn", "2").await];
    assert!(mine.starts_with(&format!("{address}/team-a_fn")) && theirs.contains("/team-b_fn"), "{mine} {theirs}");
    let login = |namespace| (copied(&world, namespace, "username"), copied(&world, namespace, "password"));
    let visitor = |login| Visitor::with(&world, address, login);
    let (team, other) = (visitor(Some(login(TEAMS[0]))), visitor(Some(login(TEAMS[1]))));
    let registry = visitor(Some((world.decoded(ASKING, "username"), world.decoded(ASKING, "password"))));
    let list = "/v2/team-b_fn/tags/list";
    assert_eq!([team.asks("GET", "/v2/team-a_fn/tags/list").await, team.asks("GET", list).await], [200, 403]);
    assert_eq!([other.asks("GET", list).await, registry.asks("GET", list).await], [200, 200]);
    assert_eq!([team.asks("GET", "/v2/_catalog").await, registry.asks("GET", "/v2/_catalog").await], [403, 200]);
    assert_eq!(team.asks("PUT", "/v2/team-b_fn/manifests/latest").await, 403);
    assert_eq!(team.asks("POST", "/v2/team-b_fn/blobs/uploads/").await, 403);
    let stolen = visitor(Some(("team-b".to_owned(), login(TEAMS[0]).1)));
    assert_eq!([visitor(None).asks("GET", list).await, stolen.asks("GET", list).await], [401, 401]);
    // The registry itself would mount a blob from any repository, by query or by form.
    let blob = a_blob(&other, &theirs).await;
    let own = format!("/v2/team-a_fn/blobs/{blob}");
    let mount = format!("mount={blob}&from=team-b_fn");
    assert_eq!(team.asks("POST", &format!("/v2/team-a_fn/blobs/uploads/?{mount}")).await, 202);
    let form = team.request("https", "POST", "/v2/team-a_fn/blobs/uploads/");
    let form = form.header("content-type", "application/x-www-form-urlencoded").body(mount.clone());
    assert_eq!(form.send().await.unwrap().status().as_u16(), 202);
    // If a POST goes to a started upload, Docker's registry starts another upload.
    let begun = team.request("https", "POST", "/v2/team-a_fn/blobs/uploads/").send().await.unwrap();
    let begun = begun.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(team.asks("POST", &format!("{begun}&{mount}")).await, 405);
    assert_eq!(team.asks("HEAD", &own).await, 404, "it has not been taken over");
    let taken = registry.asks("POST", &format!("/v2/team-a_fn/blobs/uploads/?{mount}")).await;
    assert_eq!((taken, team.asks("HEAD", &own).await), (201, 200), "the registry can");
    // The requests of an older containerd on a node.
    let plainly = async |method: &str, path: &str| {
        let request = team.request("http", method, path).header("accept", MANIFEST);
        request.send().await.unwrap().status().as_u16()
    };
    let manifest = format!("/v2/team-a_fn/manifests/{}", mine.split_once('@').unwrap().1);
    assert_eq!(plainly("GET", &manifest).await, 200);
    assert_eq!(plainly("POST", "/v2/team-a_fn/blobs/uploads/").await, 400);
    let elsewhere = team.request("http", "GET", "/v2/").header("host", "registry.example:5000").send().await.unwrap();
    assert_eq!(elsewhere.status().as_u16(), 400);
    // A request with a missing body, from any client, does not block a connection.
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n").await.unwrap();
    let mut answer = [0; 15];
    timeout(mainstay_testkit::PATIENCE, stream.read_exact(&mut answer)).await.expect("it is answered in time").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    // A large layer does not increase the guard's memory.
    let before = installed.peak_of_guard();
    let begun = team.request("https", "POST", "/v2/team-a_fn/blobs/uploads/").send().await.unwrap();
    let place = begun.headers()["location"].to_str().unwrap().to_owned();
    let sent = team.request("https", "PATCH", &place).body(vec![7; 64 << 20]).send().await.unwrap();
    assert_eq!(sent.status().as_u16(), 202);
    let more = installed.peak_of_guard() - before;
    assert!(more < 24 << 20, "{more} bytes for 64 MiB");
    for secret in [login(TEAMS[0]).1, world.decoded(ASKING, "password"), world.decoded(ASKING, "namespaceKey")] {
        let found = world.whereabouts(&secret);
        assert!(found.is_empty(), "{found:?}");
    }
    installed.end().await;
}

/// Returns a build in a namespace, with its copy of the Secret.
fn build_in(world: &World, namespace: &str) -> Build {
    let build = Build::new();
    for key in ["registryAddress", "registryLogins", "username", "password", "ca.crt", "isInternal"] {
        build.write(&format!("registry/{key}"), &copied(world, namespace, key));
    }
    // Each Function has a different source.
    build.write("workspace/src/handler.js", namespace);
    build
}

/// A base image in a directory.
struct Layout {
    directory: tempfile::TempDir,
    name: String,
}

impl Layout {
    async fn new() -> Self {
        let registry = DockerRegistry::start(Served::Plainly).await;
        let build = Build::new().registry(&registry.host());
        let image = format!("{}/node:22", registry.host());
        let mut request = build.request(&image);
        // Another runtime, so that it shares no layer with the Functions.
        request.runtime = mainstay_function::runtimes::find("python312").unwrap();
        let digest = outcome(&request).await;
        let directory = tempfile::tempdir().unwrap();
        let place = format!("oci:{}", directory.path().display());
        let login = format!("{USER}:{PASSWORD}");
        let (from, to) = (format!("docker://{image}"), format!("{place}:it"));
        run(
            "skopeo",
            &["--insecure-policy", "copy", "-q", "--src-creds", &login, "--src-tls-verify=false", &from, &to],
        )
        .await;
        Self { directory, name: format!("{place}@{digest}") }
    }

    /// Hides the layers. The documents stay.
    fn hide_layers(&self) {
        let manifest = self.name.rsplit_once(':').unwrap().1;
        let path = |hex: &str| self.directory.path().join("blobs/sha256").join(hex);
        let manifest: Value = serde_json::from_slice(&std::fs::read(path(manifest)).unwrap()).unwrap();
        std::fs::create_dir_all(self.directory.path().join("hidden")).unwrap();
        for layer in manifest["layers"].as_array().unwrap() {
            let hex = layer["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
            std::fs::rename(path(hex), self.directory.path().join("hidden").join(hex)).unwrap();
        }
    }

    fn show_layers(&self) {
        for entry in std::fs::read_dir(self.directory.path().join("hidden")).unwrap() {
            let entry = entry.unwrap();
            std::fs::rename(entry.path(), self.directory.path().join("blobs/sha256").join(entry.file_name())).unwrap();
        }
    }
}

/// Returns the digests of the layers of an image, from bottom to top.
async fn layers(visitor: &Visitor, repository: &str) -> Vec<String> {
    let manifest = visitor.request("https", "GET", &format!("/v2/{repository}/manifests/t"));
    let manifest = manifest.header("accept", MANIFEST).send().await.unwrap().bytes().await.unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    layers.iter().map(|layer| layer["digest"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_of_a_base_image_are_uploaded_once_for_all_namespaces_and_no_others_are_shared() {
    let (world, installed) = with_registry().await;
    let base = Layout::new().await;
    let push = async |namespace: &str, function: &str, shares_base: bool| {
        let build = build_in(&world, namespace);
        let mut request = build.request(&format!("{}/{namespace}_{function}:t", installed.address));
        (request.base, request.shares_base) = (base.name.parse().unwrap(), shares_base);
        outcome(&request).await
    };
    // Missing layers cannot be uploaded.
    let pushed = push("team-a", "first", false).await;
    assert!(pushed.starts_with("sha256:"), "{pushed}");
    base.hide_layers();
    let pushed = push("team-b", "second", true).await;
    assert!(pushed.contains("could not read the image to push"), "a base that its user has named: {pushed}");
    base.show_layers();
    let pushed = push("team-b", "second", true).await;
    assert!(pushed.starts_with("sha256:"), "{pushed}");
    base.hide_layers();
    let pushed = push("team-a", "third", true).await;
    assert!(pushed.starts_with("sha256:"), "{pushed}");
    let login = |namespace| (copied(&world, namespace, "username"), copied(&world, namespace, "password"));
    let [team, other] = TEAMS.map(|namespace| Visitor::with(&world, installed.address, Some(login(namespace))));
    let share = async |digest: &str, from: &str| {
        team.asks("POST", &format!("/v2/mainstay/base-layers/blobs/uploads/?mount={digest}&from={from}")).await
    };
    let shared = async |digest: &str| team.asks("HEAD", &format!("/v2/mainstay/base-layers/blobs/{digest}")).await;
    let layers = layers(&other, "team-b_second").await;
    let (of_base, of_other) = (&layers[0], &layers[layers.len() - 1]);
    assert_eq!([shared(of_base).await, shared(of_other).await], [200, 404]);
    // A namespace can neither detect nor mount the blobs of another namespace.
    assert_eq!([share(of_other, "team-b_second").await, share(of_other, "team-a_first").await], [403, 404]);
    let absent = format!("sha256:{}", "0".repeat(64));
    assert_eq!([share(&absent, "team-b_second").await, share(&absent, "team-a_first").await], [403, 404]);
    let taken =
        team.asks("POST", &format!("/v2/team-a_first/blobs/uploads/?mount={of_other}&from=mainstay/base-layers")).await;
    assert_eq!((taken, team.asks("HEAD", &format!("/v2/team-a_first/blobs/{of_other}")).await), (202, 404));
    let uploads =
        installed.directory.path().join("images/docker/registry/v2/repositories/mainstay/base-layers/_uploads");
    let left = std::fs::read_dir(uploads).map_or(0, Iterator::count);
    assert_eq!(left, 0, "no upload begins there");
    installed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_takes_up_the_next_certificate_while_it_serves() {
    let (world, installed) = with_registry().await;
    world.function("hello", inline("1"));
    world.runs("hello").await;
    // Simulates an expired certificate.
    let before = (world.stored(ASKING, "tls.crt"), world.stored(DEFAULT, "ca.crt"));
    let former = world.decoded(DEFAULT, "ca.crt");
    world.edit("v1", "secrets", ASKING, json!({"data": {"tls.json": null}}));
    let next = "another certificate, whose authority builds know";
    world.until(next, |w| w.stored(ASKING, "tls.crt") != before.0 && w.stored(DEFAULT, "ca.crt") != before.1).await;
    assert!(!world.decoded(DEFAULT, "ca.crt").contains(former.trim()), "the former authority is not trusted any more");
    installed.mount(&world);
    let visitor = Visitor::with(&world, installed.address, None);
    let served = async {
        while visitor.request("https", "GET", "/").send().await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(mainstay_testkit::PATIENCE, served).await.expect("it serves the next certificate in time");
    world.function("other", inline("2"));
    world.runs("other").await;
    let found = world.whereabouts(&world.decoded(ASKING, "tls.key"));
    assert!(found.is_empty(), "{found:?}");
    installed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_made_once_and_the_secret_with_it_comes_back() {
    let mut world = World::new().await;
    world.ask_for_login("127.0.0.1:32137");
    world.start();
    world.until("a login", |w| w.stored(DEFAULT, "password") != "absent").await;
    let password = world.stored(DEFAULT, "password");
    assert_eq!(world.stored(ASKING, "password"), password);
    world.stop().await;
    world.start();
    world.delete("v1", "secrets", DEFAULT);
    world.until("it is back", |w| w.stored(DEFAULT, "password") == password).await;
    // The operator sets another login.
    world.edit("v1", "secrets", ASKING, json!({"stringData": {"username": "me", "password": "mine"}}));
    world.until("it is taken over", |w| w.stored(DEFAULT, "password") == w.stored(ASKING, "password")).await;
    assert_eq!(world.decoded(DEFAULT, "password"), "mine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_secret_of_somebody_else_stays_as_it_is() {
    let mut world = World::new().await;
    world.registry_for(NAMESPACE, "registry.example.org", "theirs", "theirs");
    let before = world.get("v1", "secrets", DEFAULT).unwrap();
    world.ask_for_login("127.0.0.1:32137");
    world.start();
    world.until("a login", |w| w.stored(ASKING, "namespaceKey") != "absent").await;
    world.quiet().await;
    assert_eq!(world.get("v1", "secrets", DEFAULT).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_changes_of_the_default_secret_are_reverted_ever_less_often() {
    let mut world = World::new().await;
    // Copies follow every change of the default Secret, so this namespace gets none.
    world.functions.excluded_namespaces.push("default".to_owned());
    world.ask_for_login("127.0.0.1:32137");
    world.start();
    world.until("a login", |w| w.stored(DEFAULT, "password") != "absent").await;
    let password = world.stored(DEFAULT, "password");
    let applies = |world: &World| {
        let requests = world.requests();
        requests.iter().filter(|(what, _)| what == "apply secrets").map(|(_, count)| *count).sum::<u64>()
    };
    let (before, began) = (applies(&world), std::time::Instant::now());
    for number in 0..60 {
        world.edit("v1", "secrets", DEFAULT, json!({"stringData": {"password": format!("changed-{number}")}}));
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    world.until("it is reverted", |w| w.stored(DEFAULT, "password") == password).await;
    let put_back = applies(&world) - before;
    // The delays are 1 s, 2 s, 4 s …
    let most = 1.0 + (1.0 + began.elapsed().as_secs_f64()).log2();
    assert!((1.0..=most).contains(&(put_back as f64)), "{put_back} writes for 60 changes in {:?}", began.elapsed());
}
