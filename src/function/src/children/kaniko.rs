//! The pod of a build by Kaniko: `fetch` writes the build context, `check` checks the handler, `executor` builds and
//! pushes.
//!
//! Kaniko runs the Dockerfile's commands in its own container, beside the registry's login. The commands run as a user
//! who cannot read the login, and their inputs are mounted read-only.
//!
//! Invariant: only the executor needs more permissions than Pod Security `restricted` allows. `baseline` allows them.
//! Invariant: every certificate is verified, and plain HTTP is used only where Mainstay's own builder uses it, unless
//! the operator's arguments list such a registry.

use serde_json::{Value, json};

use super::job::{self, Build, DESTINATION, EXECUTOR, container, mount, read_only};
use super::pod::{literal, root_security};
use crate::registry::{ImageRef, Transport};
use crate::{ResolvedFunction, Settings};

/// Directory of Docker's configuration.
const DOCKER_CONFIG: &str = "/docker/.docker/";
/// Directory with the registry's CA certificate.
const AUTHORITY: &str = "/registry-authority";

/// Returns the specification of the pod.
pub(super) fn pod(function: &ResolvedFunction, build: &Build<'_>, settings: &Settings, image: &str) -> Value {
    let (source, code_mounts) = job::code(build.from);
    let mut mounts = vec![mount("workspace", "/workspace")];
    mounts.extend(code_mounts);
    let mut args = job::fetch_args(function, build, settings);
    args.push("--kaniko".to_owned());
    let fetch = job::fetch(function, settings, &args, mounts);
    let script = ["sh", "/workspace/check.sh"].map(str::to_owned).to_vec();
    let base = function.base.to_string();
    let mut check = container("check", &base, script, &[], vec![read_only("workspace", "/workspace")], function);
    if job::is_tagged(function) {
        check["imagePullPolicy"] = "Always".into();
    }
    let mut volumes = volumes(build, settings);
    volumes.extend(source);
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "containers": [executor(function, build, settings, image)],
        "enableServiceLinks": false,
        "imagePullSecrets": settings.pull_secrets(build.registry_secret),
        "initContainers": [fetch, check],
        "restartPolicy": "Never",
        "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
        "volumes": volumes
    });
    if let Some(account) = &settings.build_service_account {
        pod["serviceAccountName"] = account.as_str().into();
    }
    pod
}

fn volumes(build: &Build<'_>, settings: &Settings) -> Vec<Value> {
    let keys = |key: &str, path: &str| json!([{ "key": key, "path": path }]);
    let mut volumes = vec![
        json!({ "name": "workspace", "emptyDir": { "sizeLimit": job::WORKSPACE_SIZE } }),
        json!({ "name": "tmp", "emptyDir": { "sizeLimit": job::TMP_SIZE } }),
        json!({
            "name": "credentials",
            "secret": {
                "secretName": build.registry_secret,
                "items": keys(".dockerconfigjson", ".docker/config.json"),
                // Root can read the login, but code from packages cannot. An `fsGroup` would make the login readable
                // for that code.
                "defaultMode": 0o400,
                "optional": true
            }
        }),
        json!({
            "name": "package-registry",
            "secret": { "secretName": settings.package_registry_secret, "optional": true }
        }),
    ];
    if build.transport == Transport::OwnAuthority {
        let secret = json!({ "secretName": build.registry_secret, "items": keys("ca.crt", "ca.crt") });
        volumes.push(json!({ "name": "registry-authority", "secret": secret }));
    }
    volumes.extend(job::base_ca(settings));
    volumes
}

fn executor(function: &ResolvedFunction, build: &Build<'_>, settings: &Settings, image: &str) -> Value {
    let mut mounts = vec![
        read_only("workspace", "/workspace"),
        read_only("credentials", "/docker"),
        // The path at which the install script finds the configuration in builds of Mainstay's own builder. A mount is
        // not part of a layer.
        read_only("package-registry", "/package-registry"),
    ];
    if build.transport == Transport::OwnAuthority {
        mounts.push(read_only("registry-authority", AUTHORITY));
    }
    if settings.base_ca.is_some() {
        mounts.push(read_only(job::BASE_CA, job::BASE_CA_DIR));
    }
    let mut executor = container(EXECUTOR, image, Vec::new(), &args(function, build, settings), mounts, function);
    if let Some(fields) = executor.as_object_mut() {
        fields.remove("command");
    }
    executor["env"] = json!([{ "name": "DOCKER_CONFIG", "value": literal(DOCKER_CONFIG) }]);
    executor["securityContext"] = root_security();
    executor
}

/// Returns the operator's arguments, followed by those of this build.
fn args(function: &ResolvedFunction, build: &Build<'_>, settings: &Settings) -> Vec<String> {
    let mut args = settings.executor_args.clone();
    args.extend([
        format!("{DESTINATION}{}:{}", build.repository, build.tag),
        "--context=dir:///workspace".to_owned(),
        format!("--digest-file={}", mainstay_api::build::TERMINATION_LOG),
        format!("--custom-platform={}", settings.platform),
    ]);
    let host = build.repository.split('/').next().unwrap_or_default();
    match build.transport {
        Transport::PlainHttp => args.push(format!("--insecure-registry={host}")),
        Transport::OwnAuthority => args.push(format!("--registry-certificate={host}={AUTHORITY}/ca.crt")),
        Transport::PublicAuthority => {}
    }
    let base = function.base.to_string().parse::<ImageRef>().ok().filter(|base| base.registry != host);
    if let (Some(base), Some(_)) = (base, &settings.base_ca) {
        args.push(format!("--registry-certificate={}={}/{}", base.registry, job::BASE_CA_DIR, job::BASE_CA_FILE));
    }
    args
}
