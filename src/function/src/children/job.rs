//! The Job that builds a Function's image: `fetch`, `install`, `push`.
//!
//! The kubelet polls once a second, so each container starts about a second after the previous one. An inline Function
//! therefore has no `fetch`, unless packages of an earlier image may be reused: `install` and `push` read the source
//! from a ConfigMap. Without dependencies, neither container runs code of the Function or of a package.
//!
//! Invariant: only `install` runs code from packages, and only the credentials of package registries are mounted there.
//!
//! Not here: the pod for Kaniko (`kaniko`).

use serde_json::{Value, json};

use super::pod::{container_security, literal, security};
use super::{metadata, named};
use crate::build::install::{self, Inline};
use crate::registry::Transport;
use crate::runtimes::Language;
use crate::settings::SecretKey;
use crate::tag::BuildCause;
use crate::{BaseImage, Builder, Code, ResolvedFunction, Settings};
use mainstay_api::git_repository::AuthType;
use mainstay_api::names;

/// Maximum size of the workspace: the source, the dependencies and the image's layers.
pub(super) const WORKSPACE_SIZE: &str = "4Gi";
/// Maximum size of `/tmp` for package managers.
pub(super) const TMP_SIZE: &str = "2Gi";
/// Volume, directory and file of the CA bundle for registries of base images.
pub(super) const BASE_CA: &str = "base-ca";
pub(super) const BASE_CA_DIR: &str = "/base-ca";
pub(super) const BASE_CA_FILE: &str = "ca.crt";
/// Name of the container that fetches the source.
pub(crate) const FETCH: &str = "fetch";
/// Name of the container that runs code from packages.
pub(crate) const INSTALL: &str = "install";
/// Name of the container that reports the digest.
pub const PUSH: &str = "push";
/// Name of Kaniko's container, which also reports the digest.
pub const EXECUTOR: &str = "executor";
/// Kaniko's option before the image. The corresponding option of Mainstay's own program is `--image=`.
pub(crate) const DESTINATION: &str = "--destination=";

/// One attempt to build an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build<'a> {
    /// Tag of the image.
    pub tag: &'a str,
    /// The number of this attempt to build the tag, from 1.
    pub attempt: i64,
    /// Causes of the build.
    pub causes: &'a [BuildCause],
    /// Repository that the image is pushed to, without tag.
    pub repository: &'a str,
    /// Secret with the registry's credentials.
    pub registry_secret: &'a str,
    /// How to connect to the registry.
    pub transport: Transport,
    /// The source.
    pub from: Origin<'a>,
    /// The last image of this Function, whose dependencies may be reused.
    pub previous: Option<Previous<'a>>,
}

/// The source of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// A ConfigMap with this name.
    ConfigMap(&'a str),
    /// A Git repository.
    Git {
        /// The repository's URL, without credentials.
        url: &'a str,
        /// Commit to build.
        commit: &'a str,
        /// Git tree of `baseDir` in that commit.
        tree: &'a str,
        /// Type of authentication, and the Secret with the credentials.
        auth: Option<(AuthType, &'a str)>,
        /// The Secret with the proxy's URL.
        proxy: Option<&'a str>,
        /// Host keys of this host that apply to all repositories.
        known_hosts: Option<&'a str>,
        /// Whether submodules are fetched too.
        submodules: bool,
        /// Whether files in Git LFS are fetched.
        lfs: bool,
    },
}

/// An image whose dependencies may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Previous<'a> {
    /// The image, `repository@sha256:…`.
    pub image: &'a str,
    /// Digest of the inputs of its dependencies.
    pub dependencies: &'a str,
}

/// Returns the name of the Job: `{function}-build-{5 characters}`. Every attempt and every tag has its own name.
pub fn name(function: &ResolvedFunction, build: &Build<'_>) -> String {
    named(&function.name, "-build", &[&function.uid, build.repository, build.tag, &build.attempt.to_string()])
}

/// Returns the Job with the given pod specification.
pub(super) fn around(function: &ResolvedFunction, build: &Build<'_>, settings: &Settings, pod: Value) -> Value {
    let mut metadata = metadata(function, &name(function, build));
    let causes: Vec<_> = build.causes.iter().map(ToString::to_string).collect();
    metadata["annotations"] = json!({
        names::BUILD_TAG: build.tag,
        names::BUILD_ATTEMPT: build.attempt.to_string(),
        names::BUILD_CAUSE: causes.join(",")
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "activeDeadlineSeconds": settings.build_deadline.as_secs(),
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            // Set explicitly, so that a suspension by another client is reverted. A suspended Job would block the build
            // queue forever.
            "suspend": false,
            "ttlSecondsAfterFinished": settings.build_ttl.as_secs(),
            "template": {
                "metadata": {
                    "annotations": { "sidecar.istio.io/inject": "false" },
                    "labels": function.build_labels
                },
                "spec": pod
            }
        }
    })
}

/// Returns the pod specification of Mainstay's own builder.
pub(super) fn pod(function: &ResolvedFunction, build: &Build<'_>, settings: &Settings) -> Value {
    let (source, code_mounts) = code(build.from);
    let inline = without_fetch(function, build, settings);
    let has_fetch = inline.is_none();
    let mut init = Vec::new();
    let mut push_args = push_args(function, build, settings);
    let mut push_mounts = vec![read_only("workspace", "/workspace"), read_only("registry", "/registry")];
    if has_fetch {
        let mut mounts = vec![mount("workspace", "/workspace")];
        mounts.extend(code_mounts.iter().cloned());
        init.push(fetch(function, settings, &fetch_args(function, build, settings), mounts));
    } else {
        push_mounts[0] = mount("workspace", "/workspace");
        push_mounts.extend(code_mounts.iter().cloned());
        push_args.push("--inline=/sources".to_owned());
        push_args.extend(matches!(inline, Some(Inline::Install(_))).then(|| "--installed".to_owned()));
    }
    let mut volumes = volumes(build, settings, !matches!(inline, Some(Inline::Check(_))), source);
    if let Some(volume) = base_ca(settings) {
        volumes.push(volume);
        push_mounts.push(read_only(BASE_CA, BASE_CA_DIR));
    }
    init.push(install(function, settings, inline, code_mounts));
    let push = container(PUSH, &settings.builder_image, program("push"), &push_args, push_mounts, function);
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "containers": [push],
        "enableServiceLinks": false,
        "imagePullSecrets": settings.pull_secrets(build.registry_secret),
        "initContainers": init,
        "restartPolicy": "Never",
        "securityContext": security(),
        "volumes": volumes
    });
    if let Some(account) = &settings.build_service_account {
        pod["serviceAccountName"] = account.as_str().into();
    }
    pod
}

fn volumes(build: &Build<'_>, settings: &Settings, has_packages: bool, source: Vec<Value>) -> Vec<Value> {
    let mut volumes = vec![
        json!({ "name": "workspace", "emptyDir": { "sizeLimit": WORKSPACE_SIZE } }),
        json!({ "name": "registry", "secret": { "secretName": build.registry_secret } }),
    ];
    if has_packages {
        let secret = json!({ "secretName": settings.package_registry_secret, "optional": true });
        volumes.push(json!({ "name": "package-registry", "secret": secret }));
    }
    volumes.push(json!({ "name": "tmp", "emptyDir": { "sizeLimit": TMP_SIZE } }));
    volumes.extend(source);
    volumes
}

/// Returns the container that runs code from packages. The container runs the script for an inline source, or the
/// script that `fetch` wrote.
fn install(function: &ResolvedFunction, settings: &Settings, inline: Option<Inline>, code_mounts: Vec<Value>) -> Value {
    let image = match &function.base {
        BaseImage::Image(image) | BaseImage::Tagged(image) => image,
        BaseImage::Scratch | BaseImage::Layout(_) => &settings.builder_image,
    };
    // Code from packages can write only to the dependency directory, so other parts of the workspace stay intact.
    let dependencies = json!({ "name": "workspace", "mountPath": "/workspace/deps", "subPath": "deps" });
    let packages = read_only("package-registry", "/package-registry");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (command, mounts) = match inline {
        None => (
            words(&["sh", "/workspace/install.sh"]),
            vec![read_only("workspace", "/workspace"), dependencies, packages],
        ),
        Some(Inline::Install(script)) => {
            let mut mounts = vec![dependencies, packages];
            mounts.extend(code_mounts);
            (words(&["sh", "-c", &literal(&script), "install", "/sources", "/tmp", "/workspace/deps"]), mounts)
        }
        Some(Inline::Check(script)) => {
            let mut command = words(&["sh", "-c", &literal(&script), "check", "/sources", "/tmp"]);
            let mut mounts = code_mounts;
            if function.runtime.language == Language::Python {
                command.push("/workspace".to_owned());
                mounts.insert(0, mount("workspace", "/workspace"));
            }
            (command, mounts)
        }
    };
    let mut install = container(INSTALL, image, command, &[], mounts, function);
    if is_tagged(function) {
        // The node may have cached an older image of the tag than the image that `push` uses.
        install["imagePullPolicy"] = "Always".into();
    }
    install
}

/// Returns the script of an inline source that needs no `fetch`. Only `fetch` decides whether dependencies are reused.
fn without_fetch(function: &ResolvedFunction, build: &Build<'_>, settings: &Settings) -> Option<Inline> {
    let Code::Inline { dependencies, .. } = &function.code else { return None };
    let inline = install::inline(function.runtime, dependencies)?;
    let may_reuse = previous(function, build, settings).is_some();
    (!may_reuse || matches!(inline, Inline::Check(_))).then_some(inline)
}

/// Returns the container that fetches the source. The container has the agent's proxy settings.
pub(super) fn fetch(function: &ResolvedFunction, settings: &Settings, args: &[String], mounts: Vec<Value>) -> Value {
    let mut fetch = container(FETCH, &settings.builder_image, program("fetch"), args, mounts, function);
    for (name, value) in &settings.proxies {
        if let Some(env) = fetch["env"].as_array_mut() {
            env.push(json!({ "name": name, "value": literal(value) }));
        }
    }
    fetch
}

/// Returns the volumes with the source or its Secrets, and their mounts.
pub(super) fn code(from: Origin<'_>) -> (Vec<Value>, Vec<Value>) {
    match from {
        Origin::ConfigMap(name) => {
            (vec![json!({ "name": "sources", "configMap": { "name": name } })], vec![read_only("sources", "/sources")])
        }
        Origin::Git { auth, proxy, .. } => {
            let secrets = [("git-credentials", auth.map(|(_, secret)| secret)), ("git-proxy", proxy)];
            let named = secrets.into_iter().filter_map(|(volume, secret)| Some((volume, secret?)));
            named
                .map(|(volume, secret)| {
                    let source = json!({ "name": volume, "secret": { "secretName": secret } });
                    (source, read_only(volume, &format!("/{volume}")))
                })
                .unzip()
        }
    }
}

fn program(step: &str) -> Vec<String> {
    ["mainstay", "build", step].map(str::to_owned).to_vec()
}

/// Joins each option and its value into one argument, so that a value cannot be read as an option.
pub(super) fn fetch_args(function: &ResolvedFunction, build: &Build<'_>, settings: &Settings) -> Vec<String> {
    let mut args = vec![
        format!("--runtime={}", function.runtime.name),
        "--workspace=/workspace".to_owned(),
        // A different base image may result in different dependencies.
        format!("--base={}", function.base),
        format!("--platform={}", settings.platform),
    ];
    match build.from {
        Origin::ConfigMap(_) => args.push("--inline=/sources".to_owned()),
        Origin::Git { url, commit, tree, auth, proxy, known_hosts, submodules, lfs } => {
            args.extend([format!("--url={url}"), format!("--commit={commit}"), format!("--tree={tree}")]);
            // The agent accepted this local repository, so the build may read it too.
            args.extend(url.starts_with("file://").then(|| "--allow-local".to_owned()));
            if let Code::Git { reference, base_dir, .. } = &function.code {
                args.extend([format!("--reference={reference}"), format!("--base-dir={base_dir}")]);
            }
            match auth {
                Some((AuthType::Basic, _)) => args.push("--auth=basic".to_owned()),
                Some((AuthType::Key, _)) => args.push("--auth=key".to_owned()),
                None => {}
            }
            if auth.is_some() {
                args.push("--credentials=/git-credentials".to_owned());
            }
            if proxy.is_some() {
                args.push("--proxy=/git-proxy".to_owned());
            }
            args.extend(known_hosts.map(|lines| format!("--known-hosts={lines}")));
            args.extend(submodules.then(|| "--submodules".to_owned()));
            args.extend(lfs.then(|| "--lfs".to_owned()));
        }
    }
    let previous = previous(function, build, settings);
    args.extend(previous.map(|previous| format!("--known-dependencies={}", previous.dependencies)));
    args
}

/// Returns the image whose dependencies may be reused. With a base image tag, the dependencies may have been installed
/// for a different base image, so they are not reused. Kaniko has its own cache.
fn previous<'a>(function: &ResolvedFunction, build: &Build<'a>, settings: &Settings) -> Option<Previous<'a>> {
    build.previous.filter(|_| !is_tagged(function) && settings.builder == Builder::Own)
}

pub(super) fn is_tagged(function: &ResolvedFunction) -> bool {
    matches!(function.base, BaseImage::Tagged(_))
}

fn push_args(function: &ResolvedFunction, build: &Build<'_>, settings: &Settings) -> Vec<String> {
    let mut args = vec![
        format!("--runtime={}", function.runtime.name),
        "--workspace=/workspace".to_owned(),
        "--registry=/registry".to_owned(),
        format!("--image={}:{}", build.repository, build.tag),
        format!("--base={}", function.base),
        format!("--platform={}", settings.platform),
    ];
    args.extend(settings.base_ca.as_ref().map(|_| format!("--base-ca={BASE_CA_DIR}/{BASE_CA_FILE}")));
    args.extend(previous(function, build, settings).map(|previous| format!("--previous={}", previous.image)));
    // Layers of a base image from the Function's spec may be private.
    args.extend((!function.has_own_base).then(|| "--share-base".to_owned()));
    args
}

/// Returns the volume with the CA bundle for registries of base images. The Secret is optional, because other
/// registries need no bundle.
pub(super) fn base_ca(settings: &Settings) -> Option<Value> {
    let SecretKey { secret, key } = settings.base_ca.as_ref()?;
    let items = json!([{ "key": key, "path": BASE_CA_FILE }]);
    Some(json!({ "name": BASE_CA, "secret": { "secretName": secret, "items": items, "optional": true } }))
}

/// Returns a container with the build's resources. Init containers run one after the other, so the pod needs the
/// resources of only one container.
pub(super) fn container(
    name: &str,
    image: &str,
    command: Vec<String>,
    args: &[String],
    mut mounts: Vec<Value>,
    function: &ResolvedFunction,
) -> Value {
    mounts.push(mount("tmp", "/tmp"));
    let mut container = json!({
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": [{ "name": "HOME", "value": "/tmp" }],
        "resources": function.build_resources,
        "securityContext": container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts
    });
    if !args.is_empty() {
        container["args"] = args.iter().map(|arg| literal(arg)).collect();
    }
    container
}

pub(super) fn mount(volume: &str, path: &str) -> Value {
    json!({ "name": volume, "mountPath": path })
}

pub(super) fn read_only(volume: &str, path: &str) -> Value {
    json!({ "name": volume, "mountPath": path, "readOnly": true })
}
