//! Resolves the command and arguments of a pod and its image to a program of this machine.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::context::Context;
use super::environment::{ValueSources, Variable, expand, resolve};
use super::image::Image;
use super::options::HostImage;
use super::paths::Paths;
use super::process::Program;
use super::slot::HOST;
use super::volumes::{Volume, mounts};
use devcluster_apiserver::object::text;

/// The paths of a container.
#[derive(Clone, Debug)]
pub(super) struct Sandbox {
    /// The container's own directory.
    pub(super) directory: PathBuf,
    /// File of the termination message.
    pub(super) termination: PathBuf,
    /// The pod's home directory and directory for temporary files.
    pub(super) home: PathBuf,
    pub(super) temporary: PathBuf,
    pub(super) address: Ipv4Addr,
}

/// Builds the program of a container. `Err` is the reason why it cannot start.
pub(super) fn program(
    ctx: &Context,
    pod: &Value,
    container: &Value,
    sandbox: &Sandbox,
    volumes: &[Volume],
    image: &Image,
) -> Result<Program, String> {
    let namespace = text(pod, "/metadata/namespace");
    let config_map = |name: &str| ctx.server.object("v1", "configmaps", namespace, name);
    let secret = |name: &str| ctx.server.object("v1", "secrets", namespace, name);
    let host = HOST.to_string();
    let values =
        ValueSources { pod, address: sandbox.address.to_string(), host, config_map: &config_map, secret: &secret };
    let variables = resolve(container, &values)?;
    let mut paths = mounts(container, volumes, |text| expand(text, &variables))?;
    paths.add(text(container, "/terminationMessagePath"), sandbox.termination.clone());
    image.add_to(&mut paths);
    let own = |list: &str| -> Vec<String> {
        let words = container[list].as_array().into_iter().flatten().filter_map(Value::as_str);
        words.map(|word| expand(word, &variables)).collect()
    };
    let mut words = own("command");
    let args = own("args");
    if words.is_empty() {
        words.clone_from(&image.entrypoint);
        words.extend(if args.is_empty() { image.command.clone() } else { args });
    } else {
        words.extend(args);
    }
    if words.is_empty() {
        return Err("no command specified".to_owned());
    }
    let mut env = environment(ctx, pod, container, sandbox, &variables, image, &paths);
    let name = words.remove(0);
    let host_image = ctx.node().host_image(text(container, "/image"));
    if host_image.is_none() {
        ctx.node().names.add_to(&mut env, namespace).map_err(|e| format!("the names of Services: {e}"))?;
    }
    let search = env.get("PATH").cloned().unwrap_or_default();
    // A program that is not found fails when it is started.
    let path = find(&name, host_image, &paths, &search).unwrap_or_else(|| PathBuf::from(&name));
    let directory = match text(container, "/workingDir") {
        "" => image.directory.as_str(),
        given => given,
    };
    let directory = paths.place(directory).unwrap_or_else(|| sandbox.home.clone());
    fs::create_dir_all(&directory).map_err(|e| format!("the working directory: {e}"))?;
    let args = words.iter().map(|word| paths.rewrite(word)).collect();
    Ok(Program { path, name, args, env: env.into_iter().collect(), directory })
}

/// Builds the environment. Precedence from low to high: defaults, image, node, pod.
fn environment(
    ctx: &Context,
    pod: &Value,
    container: &Value,
    sandbox: &Sandbox,
    variables: &[Variable],
    image: &Image,
    paths: &Paths,
) -> BTreeMap<String, String> {
    let shown = |path: &Path| path.to_string_lossy().into_owned();
    let options = &ctx.node().options;
    let temporary = paths.place("/tmp").unwrap_or_else(|| sandbox.temporary.clone());
    let mut env: BTreeMap<String, String> = BTreeMap::from([
        ("TMPDIR".to_owned(), shown(&temporary)),
        ("HOSTNAME".to_owned(), text(pod, "/metadata/name").to_owned()),
    ]);
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    for (name, value) in &image.env {
        set(name, paths.rewrite(value));
    }
    let termination = shown(&sandbox.termination);
    for (name, value) in &options.env {
        let value = paths.rewrite(value);
        // These values contain paths of this machine already.
        set(name, value.replace("{podIP}", &sandbox.address.to_string()).replace("{terminationLog}", &termination));
    }
    for (name, value) in &options.host_env {
        set(name, value.clone());
    }
    if let Some((front, socket)) = ctx.node().front(text(container, "/image"), sandbox.address) {
        set(&front.variable, shown(&socket));
    }
    for variable in variables {
        // A path in a Secret is data and is not rewritten.
        let value = if variable.secret { variable.value.clone() } else { paths.rewrite(&variable.value) };
        set(&variable.name, value);
    }
    let configured = |name: &str| {
        let variable = variables.iter().find(|variable| variable.name == name).map(|v| v.value.clone());
        variable.or_else(|| image.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
    };
    // The image's home directory may belong to a user of this machine.
    let home = configured("HOME").and_then(|home| paths.place(&home)).unwrap_or_else(|| sandbox.home.clone());
    env.insert("HOME".to_owned(), shown(&home));
    let search = configured("PATH").map(|list| {
        let places = list.split(':').filter_map(|entry| paths.place(entry)).map(|place| shown(&place) + ":");
        places.collect::<String>()
    });
    let programs = image.programs.as_deref().map(|place| shown(place) + ":");
    let search = [search, programs].into_iter().flatten().collect::<String>();
    env.insert("PATH".to_owned(), search + &options.path);
    env
}

/// Finds a program: in the host image, in the image, or on the search path.
fn find(name: &str, host_image: Option<&HostImage>, paths: &Paths, search: &str) -> Option<PathBuf> {
    if let Some(path) = host_image.and_then(|image| image.commands.get(name)) {
        return Some(path.clone());
    }
    let runs = |path: &Path| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if name.contains('/') {
        let place = paths.place(name).filter(|place| runs(place));
        return place.or_else(|| Some(PathBuf::from(name)).filter(|path| path.is_absolute() && runs(path)));
    }
    search.split(':').filter(|entry| !entry.is_empty()).map(|entry| Path::new(entry).join(name)).find(|path| runs(path))
}
