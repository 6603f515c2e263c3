//! The container `push`: images in independent registries, checked by independent programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use devcluster::{Cluster as EmbeddedCluster, Options, RegistryOptions, registry::Lookup};
use mainstay_api::build::{Termination, parse_termination};
use mainstay_function::build::image::Bounds;
use mainstay_function::build::push::push;
use serde_json::{Value, json};

use mainstay_testkit::image::{Build, outcome, run};
use mainstay_testkit::registry::{DockerRegistry, Fault, Front, PASSWORD, Served, USER};

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_with_tls_and_a_password_gets_an_image_that_others_can_read() {
    let registry = DockerRegistry::start(Served::Safely).await;
    let build = Build::new().registry(&registry.host());
    build.write("registry/ca.crt", registry.authority());
    fs::set_permissions(build.path("workspace/src/handler.js"), fs::Permissions::from_mode(0o700)).unwrap();
    let name = format!("{}/default-hello:v1", registry.host());
    let digest = outcome(&build.request(&name)).await;
    assert!(digest.starts_with("sha256:"), "{digest}");

    let credentials = format!("{USER}:{PASSWORD}");
    let (remote, certificates) = (format!("docker://{name}"), registry.certificates());
    let inspect = ["inspect", "--creds", &credentials, "--cert-dir", &certificates, &remote];
    let inspected: Value = serde_json::from_str(&run("skopeo", &inspect).await).unwrap();
    assert_eq!(inspected["Digest"], json!(digest));
    let with_config = [&inspect[..], &["--config"]].concat();
    let config: Value = serde_json::from_str(&run("skopeo", &with_config).await).unwrap();
    let expected = json!({
        "User": "1000:1000",
        "Env": ["KUBELESS_INSTALL_VOLUME=/kubeless"],
        "Entrypoint": ["node", "--max-semi-space-size=2", "/kubeless_rt/server.js"],
        "WorkingDir": "/kubeless",
    });
    assert_eq!(config["config"], expected);

    let root = unpacked(&build, &["--src-creds", &credentials, "--src-cert-dir", &certificates, &remote]).await;
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(read("kubeless/handler.js"), "module.exports = { main: () => 'hello' }");
    assert_eq!(read("kubeless/node_modules/.bin/greet"), "module.exports = 'hello'");
    assert!(root.join("kubeless_rt/server.js").is_file());
    let mode = fs::metadata(root.join("kubeless/handler.js")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755, "executable stays executable, for everyone");
}

/// Copies an image with skopeo, unpacks it with umoci, and returns the root of its files.
async fn unpacked(build: &Build, from: &[&str]) -> std::path::PathBuf {
    let layout = build.path("copy").display().to_string();
    let to = format!("oci:{layout}:it");
    let copy = [&["--insecure-policy", "copy", "-q"], from, &[&to]].concat();
    run("skopeo", &copy).await;
    let bundle = build.path("bundle");
    run("umoci", &["unpack", "--rootless", "--image", &format!("{layout}:it"), bundle.to_str().unwrap()]).await;
    bundle.join("rootfs")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_registry_keeps_what_is_pushed_for_its_node() {
    let build = Build::new();
    let registry = Some(RegistryOptions { directory: build.path("images") });
    let server = EmbeddedCluster::new(Options { registry, ..Options::default() });
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), Some(PASSWORD.to_owned())).await.unwrap();
    let build = build.registry(&serving.address().to_string());
    let name = format!("{}/ns-fn:t", serving.address());
    let digest = outcome(&build.request(&name)).await;
    assert_eq!(outcome(&build.request(&name)).await, format!("{digest} reused"));
    let Lookup::Found(image) = server.images().unwrap().image(&name).await else { panic!("{digest} is not there") };
    assert_eq!((&image.digest, image.layers.len()), (&digest, 3));
    let remote = format!("docker://{name}");
    let credentials = format!("anyone:{PASSWORD}");
    let root = unpacked(&build, &["--src-tls-verify=false", "--src-creds", &credentials, &remote]).await;
    assert!(root.join("kubeless/handler.js").is_file());
    build.write("registry/password", "wrong");
    assert!(outcome(&build.request(&name)).await.starts_with("RegistryAuthorization: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_inputs_give_the_same_image_and_are_not_sent_twice() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let front = Front::of(&registry).await;
    let name = format!("{}/ns-fn:t", front.host());
    let (one, two) = (Build::new().registry(&front.host()), Build::new().registry(&front.host()));
    // Simulates another machine, time and umask.
    fs::set_permissions(two.path("workspace/src/package.json"), fs::Permissions::from_mode(0o600)).unwrap();
    let digest = outcome(&one.request(&name)).await;
    front.take_seen();
    assert_eq!(outcome(&two.request(&name)).await, format!("{digest} reused"));
    let is_write = |line: &str| !line.starts_with("HEAD") && !line.starts_with("GET");
    let written =
        || front.take_seen().into_iter().map(|seen| seen.line).filter(|line| is_write(line)).collect::<Vec<_>>();
    // Only the manifest is sent again, so that retention does not remove the image as old.
    let again = written();
    assert_eq!((again.len(), again[0].starts_with("PUT /v2/ns-fn/manifests/t")), (1, true), "{again:?}");
    // For another tag, only the tag is sent.
    assert_eq!(outcome(&two.request(&name.replace(":t", ":u"))).await, digest);
    let other = written();
    assert_eq!((other.len(), other[0].starts_with("PUT /v2/ns-fn/manifests/u")), (1, true), "{other:?}");

    two.write("workspace/src/handler.js", "module.exports = { main: () => 'bye' }");
    let other = outcome(&two.request(&name)).await;
    assert!(other.starts_with("sha256:") && other != digest, "{other}");
    let uploads = front.take_seen().iter().filter(|seen| seen.line.starts_with("PATCH")).count();
    assert_eq!(uploads, 2, "the source and the configuration changed, nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_that_somebody_else_planted_is_not_trusted() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let name = format!("{}/ns-fn:t", registry.host());
    let (mine, theirs) = (Build::new().registry(&registry.host()), Build::new().registry(&registry.host()));
    theirs.write("workspace/src/handler.js", "planted");
    let planted = outcome(&theirs.request(&name)).await;
    let digest = outcome(&mine.request(&name)).await;
    assert!(digest.starts_with("sha256:") && digest != planted);
    let inspected = run("skopeo", &["inspect", "--tls-verify=false", &format!("docker://{name}")]).await;
    assert!(inspected.contains(&digest), "the tag points to what was built");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_server_lets_the_build_in() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let front = Front::of(&registry).await;
    front.want_tokens();
    let build = Build::new().registry(&front.host());
    let digest = outcome(&build.request(&format!("{}/ns-fn:t", front.host()))).await;
    assert!(digest.starts_with("sha256:"), "{digest}");
    let seen = front.take_seen();
    let asked = seen.iter().find(|seen| seen.line.starts_with("GET /token")).unwrap();
    assert!(asked.line.contains("service=tests&scope=repository%3Ans-fn%3Apull%2Cpush"), "{}", asked.line);
    for seen in seen.iter().filter(|seen| !seen.line.starts_with("GET /token")) {
        let given = seen.authorization.as_deref().unwrap_or("Bearer");
        assert!(given.starts_with("Bearer"), "the registry itself never sees the password: {}", seen.line);
    }
    // Without a password there is no token.
    let stranger = Build::new();
    let refused = outcome(&stranger.request(&format!("{}/ns-fn:u", front.host()))).await;
    assert!(
        refused.starts_with("RegistryAuthorization: ") && refused.contains("token server answered 401"),
        "{refused}"
    );
}

/// Creates an independent image for this platform in a layout and returns its directory.
async fn foreign_base(build: &Build) -> String {
    let layout = build.path("base").display().to_string();
    let image = format!("{layout}:one");
    build.write("greeting", "hello");
    run("umoci", &["init", "--layout", &layout]).await;
    run("umoci", &["new", "--image", &image]).await;
    let config = ["config", "--image", &image, "--architecture", "amd64", "--os", "linux", "--config.env", "LANG=C"];
    run("umoci", &config).await;
    let file = build.path("greeting").display().to_string();
    run("umoci", &["insert", "--rootless", "--image", &image, &file, "/etc/greeting"]).await;
    layout
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_comes_from_a_layout_from_another_registry_or_from_the_same_one() {
    let (registry, other) =
        (DockerRegistry::start(Served::Plainly).await, DockerRegistry::start(Served::Plainly).await);
    let front = Front::of(&registry).await;
    let build = Build::new().registry(&front.host());
    let layout = foreign_base(&build).await;
    let mut request = build.request(&format!("{}/ns-one:t", front.host()));
    request.base = format!("oci:{layout}").parse().unwrap();
    let digest = outcome(&request).await;
    assert!(digest.starts_with("sha256:"), "{digest}");
    let remote = format!("docker://{}/ns-one:t", registry.host());
    let root = unpacked(&build, &["--src-tls-verify=false", &remote]).await;
    assert_eq!(fs::read_to_string(root.join("etc/greeting")).unwrap(), "hello");
    let config = run("skopeo", &["inspect", "--config", "--tls-verify=false", &remote]).await;
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["config"]["Env"], json!(["LANG=C", "KUBELESS_INSTALL_VOLUME=/kubeless"]));

    for host in [other.host(), front.host()] {
        let copy = ["--insecure-policy", "copy", "-q", "--dest-tls-verify=false", &format!("oci:{layout}:one")];
        run("skopeo", &[&copy[..], &[&format!("docker://{host}/bases/node:1")]].concat()).await;
        let tagged = format!("docker://{host}/bases/node:1");
        let base = run("skopeo", &["inspect", "--tls-verify=false", "--format", "{{.Digest}}", &tagged]).await;
        let mut request = build.request(&format!("{}/ns-{}:t", front.host(), host.replace([':', '.'], "-")));
        request.base = format!("{host}/bases/node:1@{}", base.trim()).parse().unwrap();
        front.take_seen();
        assert_eq!(outcome(&request).await, digest, "the same base from elsewhere is the same image");
        let mounts = front.take_seen().iter().filter(|seen| seen.line.contains("mount=sha256")).count();
        assert_eq!(mounts, usize::from(host == front.host()), "blobs are shared within a registry only");
        // A tag resolves to the same image, and the report names it.
        request.base = format!("{host}/bases/node:1").parse().unwrap();
        let report = push(&request).await.unwrap();
        assert_eq!((report.digest, report.base), (digest.clone(), format!("{host}/bases/node:1@{}", base.trim())));
        request.base = format!("{host}/bases/node:none").parse().unwrap();
        let missing = outcome(&request).await;
        assert!(missing.contains("its registry knows no digest of that tag"), "{missing}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_comes_from_a_registry_with_a_private_authority() {
    let (registry, other) = (DockerRegistry::start(Served::Safely).await, DockerRegistry::start(Served::Safely).await);
    let build = Build::new().registry(&registry.host());
    let login = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let logins = [registry.host(), other.host()].map(|host| (host, json!({"auth": login})));
    build.write("registry/.dockerconfigjson", &json!({"auths": Value::from_iter(logins)}).to_string());
    let layout = foreign_base(&build).await;
    let base = format!("docker://{}/bases/node:1", other.host());
    let access = ["--creds", &format!("{USER}:{PASSWORD}"), "--cert-dir", &other.certificates()].map(str::to_owned);
    let to = access.each_ref().map(|argument| argument.replace("--", "--dest-"));
    let copy = ["--insecure-policy", "copy", "-q", &to[0], &to[1], &to[2], &to[3], &format!("oci:{layout}:one"), &base];
    run("skopeo", &copy).await;
    let mut request = build.request(&format!("{}/ns-one:t", registry.host()));
    request.base = format!("{}/bases/node:1", other.host()).parse().unwrap();
    build.write("registry/ca.crt", registry.authority());
    let unknown = outcome(&request).await;
    assert!(unknown.contains("certificate"), "{unknown}");
    build.write("registry/ca.crt", &format!("{}{}", registry.authority(), other.authority()));
    let digest = outcome(&request).await;
    assert!(digest.starts_with("sha256:"), "{digest}");

    // The in-cluster registry's Secret contains only its own CA. The operator's bundle is for base images.
    build.write("registry/ca.crt", registry.authority());
    let unknown = outcome(&request).await;
    assert!(unknown.starts_with("BaseImage, again: could not use the base image: "), "{unknown}");
    assert!(unknown.contains(&format!(" {}: its certificate is refused: ", other.host())), "{unknown}");
    assert!(unknown.ends_with("MAINSTAY_BASE_CA (mainstay install --base-ca SECRET)"), "{unknown}");
    request.base_ca = Some(build.path("base-ca/ca.crt"));
    let missing = outcome(&request).await;
    assert!(missing.contains("the Secret or the key of MAINSTAY_BASE_CA is not in this namespace"), "{missing}");
    build.write("base-ca/ca.crt", "no certificate");
    let none = outcome(&request).await;
    assert_eq!(none, "BaseImage, again: the CA bundle of MAINSTAY_BASE_CA holds no certificates in PEM");
    build.write("base-ca/ca.crt", DockerRegistry::start(Served::Safely).await.authority());
    let wrong = outcome(&request).await;
    assert!(
        wrong.ends_with("; the CA bundle of MAINSTAY_BASE_CA does not hold the CA of the registry's certificate"),
        "{wrong}"
    );
    build.write("base-ca/ca.crt", other.authority());
    assert_eq!(outcome(&request).await, format!("{digest} reused"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dependencies_of_the_previous_image_are_used_again() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let front = Front::of(&registry).await;
    let build = Build::new().registry(&front.host());
    let name = format!("{}/ns-fn:one", front.host());
    let first = outcome(&build.request(&name)).await;
    // The source changes, `fetch` finds the same dependencies, and `install` does nothing.
    fs::remove_dir_all(build.path("workspace/deps")).unwrap();
    build.write("workspace/deps.reused", &"ab".repeat(32));
    build.write("workspace/src/handler.js", "module.exports = { main: () => 'bye' }");
    let mut request = build.request(&name.replace(":one", ":two"));
    request.previous = Some(name.parse::<mainstay_function::registry::ImageRef>().unwrap().at(first.parse().unwrap()));
    let digest = outcome(&request).await;
    assert!(digest.starts_with("sha256:"), "{digest}");
    let remote = format!("docker://{}/ns-fn:two", registry.host());
    let root = unpacked(&build, &["--src-tls-verify=false", &remote]).await;
    assert!(root.join("kubeless/node_modules/greeting/index.js").is_file());
    assert!(fs::read_to_string(root.join("kubeless/handler.js")).unwrap().contains("bye"));

    build.write("workspace/deps.reused", &"cd".repeat(32));
    let other = outcome(&request).await;
    assert!(other.starts_with("PreviousGone, again: ") && other.contains("other dependencies"), "{other}");
    build.write("workspace/deps.reused", &"ab".repeat(32));
    front.fail(http::Method::GET, "/manifests/", Fault::Code(404, "MANIFEST_UNKNOWN"), 1);
    let gone = outcome(&request).await;
    assert!(gone.starts_with("PreviousGone, again: "), "{gone}");
    request.previous = None;
    assert!(outcome(&request).await.starts_with("PreviousGone, again: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_workspace_gets_no_secret_into_the_image() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let build = Build::new().registry(&registry.host());
    let name = format!("{}/ns-fn:t", registry.host());
    let secret = build.path("registry");
    build.link("workspace/deps/node_modules/leak", &secret);
    let refused = outcome(&build.request(&name)).await;
    assert!(refused.starts_with("DependencyInvalid: ") && refused.contains("leak"), "{refused}");
    // A directory that is a link counts as missing.
    fs::remove_dir_all(build.path("workspace/deps")).unwrap();
    build.link("workspace/deps", build.path("elsewhere"));
    build.write("elsewhere/node_modules/x", "x");
    assert!(outcome(&build.request(&name)).await.starts_with("sha256:"));
    let remote = format!("docker://{name}");
    let root = unpacked(&build, &["--src-tls-verify=false", &remote]).await;
    assert!(!root.join("kubeless/node_modules").exists());
    fs::remove_dir_all(build.path("workspace/src")).unwrap();
    build.link("workspace/src", &secret);
    let refused = outcome(&build.request(&name)).await;
    assert!(refused.starts_with("Internal: ") && refused.contains("no source"), "{refused}");
    fs::remove_file(build.path("workspace/dependencies")).unwrap();
    fs::remove_file(build.path("workspace/src")).unwrap();
    build.write("workspace/src/handler.js", "x");
    build.link("workspace/dependencies", secret.join("password"));
    let report = mainstay_function::build::push::push(&build.request(&name)).await.unwrap();
    assert_eq!(report.dependencies, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn giants_and_special_files_are_refused() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let build = Build::new().registry(&registry.host());
    let name = format!("{}/ns-fn:t", registry.host());
    let mut request = build.request(&name);
    request.bounds = Bounds { entries: 2, ..Bounds::default() };
    let refused = outcome(&request).await;
    assert!(refused.starts_with("TooLarge: ") && refused.contains("more than 2 files"), "{refused}");
    fs::File::create(build.path("workspace/src/giant")).unwrap().set_len(1 << 40).unwrap();
    let refused = outcome(&build.request(&name)).await;
    assert!(refused.starts_with("TooLarge: ") && refused.contains("bytes"), "{refused}");
    fs::remove_file(build.path("workspace/src/giant")).unwrap();
    run("mkfifo", &[build.path("workspace/src/pipe").to_str().unwrap()]).await;
    let refused = outcome(&build.request(&name)).await;
    assert!(refused.starts_with("SourceInvalid: ") && refused.contains("pipe is a named pipe"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_reports_in_its_termination_message() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let build = Build::new().registry(&registry.host());
    let name = format!("{}/ns-fn:t", registry.host());
    let (code, message) = program(&build, &name).await;
    let Termination::Built(report) = parse_termination(&message) else { panic!("{message}") };
    assert_eq!((code, report.dependencies), (0, "ab".repeat(32)));
    assert!(report.digest.starts_with("sha256:") && !report.reused && report.seconds > 0.0);
    let (code, message) = program(&build, "127.0.0.1:1/ns-fn:t").await;
    let Termination::Failed(failure) = parse_termination(&message) else { panic!("{message}") };
    assert_eq!((code, failure.retry), (2, true));
    assert!(failure.message.starts_with("could not look for a layer at 127.0.0.1:1: no connection"), "{message}");
}

/// Returns exit code and termination message of `mainstay build push`.
async fn program(build: &Build, image: &str) -> (i32, String) {
    let mut child = command(build, image).spawn().unwrap();
    let ended = tokio::time::timeout(mainstay_testkit::PATIENCE, child.wait()).await.expect("it ends in time").unwrap();
    (ended.code().unwrap(), fs::read_to_string(build.path("termination")).unwrap())
}

fn command(build: &Build, image: &str) -> tokio::process::Command {
    let mut command = mainstay_testkit::isolated_async(env!("CARGO_BIN_EXE_mainstay"));
    command
        .args(["build", "push", "--runtime", "nodejs22", "--image", image, "--base", "scratch", "--workspace"])
        .arg(build.path("workspace"))
        .arg("--registry")
        .arg(build.path("registry"))
        .env_clear()
        .env("MAINSTAY_TERMINATION_LOG", build.path("termination"))
        .env("MAINSTAY_LIBRARIES", mainstay_testkit::libraries::place())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_does_not_grow_with_what_is_pushed() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let build = Build::new().registry(&registry.host());
    let small = peak(&build, &format!("{}/ns-small:t", registry.host())).await;
    let mut random = fastrand::Rng::with_seed(7);
    let mut noise = vec![0; 24 << 20];
    random.fill(&mut noise);
    fs::write(build.path("workspace/deps/node_modules/greeting/blob"), noise).unwrap();
    for number in 0..4000 {
        build.write(&format!("workspace/deps/node_modules/greeting/lib/{number}.js"), "x");
    }
    let large = peak(&build, &format!("{}/ns-large:t", registry.host())).await;
    assert!(large < small + (8 << 20), "{small} bytes for little, {large} for 24 MiB and 4000 files");
}

/// Returns the peak memory of a push in bytes.
async fn peak(build: &Build, image: &str) -> u64 {
    let mut child = command(build, image).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id().unwrap());
    let mut peak = 0;
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let ended = async {
        loop {
            if let Some(ended) = child.try_wait().unwrap() {
                return ended;
            }
            peak = peak.max(high_water(Path::new(&status)).unwrap_or_default());
            ticks.tick().await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(120), ended).await.expect("it ends in time");
    assert!(ended.success(), "{}", fs::read_to_string(build.path("termination")).unwrap_or_default());
    peak
}

fn high_water(status: &Path) -> Option<u64> {
    let text = fs::read_to_string(status).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}
