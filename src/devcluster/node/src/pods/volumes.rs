//! The volumes of a pod as directories.
//!
//! ConfigMaps and Secrets are written as the kubelet does: the link `..data` points to a directory with the files, so
//! all files change atomically. A claim is a directory that outlives the pod.
//!
//! Invariant: a Secret or token is on disk only while a container that mounts it runs, because other containers of the
//! pod could read it.
//!
//! Not here: host paths and network storage, which are refused with an error, and `readOnly`, which is not enforced.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use serde_json::Value;

use super::environment::{ValueSources, field};
use super::paths::Paths;
use super::tokens::Tokens;
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::text;

/// A volume of a pod.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) place: PathBuf,
    /// Size limit of an emptyDir in bytes.
    pub(super) limit: Option<u64>,
    /// The files of a Secret at the pod's start.
    secret: Option<BTreeMap<String, File>>,
}

/// Creates a pod's volumes below `directory`, and claims below `claims`. `Err` is the message of the Event.
pub(super) fn lay_out(
    directory: &Path,
    claims: &Path,
    values: &ValueSources<'_>,
    tokens: &Tokens,
) -> Result<Vec<Volume>, String> {
    let volumes = values.pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.map(|volume| lay_out_one(directory, claims, volume, values, tokens)).collect()
}

fn lay_out_one(
    directory: &Path,
    claims: &Path,
    volume: &Value,
    values: &ValueSources<'_>,
    tokens: &Tokens,
) -> Result<Volume, String> {
    let name = text(volume, "/name").to_owned();
    let failed = |why: String| format!("MountVolume.SetUp failed for volume \"{name}\" : {why}");
    let mut place = directory.join(&name);
    let (mut limit, mut secret) = (None, None);
    if volume["emptyDir"].is_object() {
        let most = hooks::quantity(&volume["emptyDir"]["sizeLimit"]).filter(|limit| *limit > 0);
        limit = most.and_then(|limit| u64::try_from(limit / 1_000_000_000).ok());
        make_open(&place).map_err(|e| failed(e.to_string()))?;
    } else if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
        if claim.contains('/') || matches!(claim, "." | "..") {
            return Err(failed(format!("persistentvolumeclaim \"{claim}\" not found")));
        }
        place = claims.join(text(values.pod, "/metadata/namespace")).join(claim);
        make_open(&place).map_err(|e| failed(e.to_string()))?;
    } else if let Some(files) = files(volume, values, tokens).map_err(failed)? {
        if is_secret(volume) {
            secret = Some(files);
        } else {
            write(&place, &files).map_err(|e| failed(e.to_string()))?;
        }
    } else {
        let kinds = volume.as_object().into_iter().flat_map(|v| v.keys());
        let kind = kinds.filter(|key| *key != "name").map(String::as_str).next().unwrap_or("unknown");
        return Err(failed(format!("volumes of type {kind} are not supported by this node")));
    }
    Ok(Volume { name, place, limit, secret })
}

fn make_open(place: &Path) -> io::Result<()> {
    fs::create_dir_all(place)?;
    fs::set_permissions(place, fs::Permissions::from_mode(0o777))
}

/// Content and mode of a file.
type File = (Vec<u8>, u32);

/// Whether a volume holds secret data.
fn is_secret(volume: &Value) -> bool {
    let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
    volume["secret"].is_object() || sources.any(|s| s["secret"].is_object() || s["serviceAccountToken"].is_object())
}

/// Whether a volume's files come from API objects and follow their changes.
pub(super) fn follows_objects(volume: &Value) -> bool {
    ["configMap", "secret", "projected"].into_iter().any(|kind| volume[kind].is_object())
}

/// Returns the files of a volume from API objects; `None` for other kinds of volumes.
fn files(volume: &Value, values: &ValueSources<'_>, tokens: &Tokens) -> Result<Option<BTreeMap<String, File>>, String> {
    let projected = &volume["projected"];
    if !projected.is_object() {
        return of_object(volume, values);
    }
    let mut all = BTreeMap::new();
    for source in projected["sources"].as_array().into_iter().flatten() {
        if let Some(token) = source.get("serviceAccountToken") {
            let mode = u32::try_from(projected["defaultMode"].as_u64().unwrap_or(0o644)).unwrap_or(0o644) & 0o777;
            all.insert(text(token, "/path").to_owned(), (tokens.token(token)?.into_bytes(), mode));
            continue;
        }
        let mut one = source.clone();
        if let Some(name) = source["secret"].get("name") {
            one["secret"]["secretName"] = name.clone();
        }
        for kind in ["configMap", "secret"] {
            if one[kind].is_object() {
                one[kind]["defaultMode"] = projected["defaultMode"].clone();
            }
        }
        all.extend(of_object(&one, values)?.unwrap_or_default());
    }
    Ok(Some(all))
}

/// Returns the files of one ConfigMap or Secret, or of the pod's own fields.
fn of_object(volume: &Value, values: &ValueSources<'_>) -> Result<Option<BTreeMap<String, File>>, String> {
    if volume["downwardAPI"].is_object() {
        return Ok(Some(downward(&volume["downwardAPI"], values)));
    }
    let (source, name, kind, object) = if volume["configMap"].is_object() {
        let name = text(volume, "/configMap/name");
        (&volume["configMap"], name, "configmap", (values.config_map)(name))
    } else if volume["secret"].is_object() {
        let name = text(volume, "/secret/secretName");
        (&volume["secret"], name, "secret", (values.secret)(name))
    } else {
        return Ok(None);
    };
    let optional = source["optional"] == true;
    let Some(object) = object else {
        return if optional { Ok(Some(BTreeMap::new())) } else { Err(format!("{kind} \"{name}\" not found")) };
    };
    let mode = |item: &Value| {
        let mode = item["mode"].as_u64().or_else(|| source["defaultMode"].as_u64());
        u32::try_from(mode.unwrap_or(0o644)).unwrap_or(0o644) & 0o777
    };
    let mut all = BTreeMap::new();
    for (list, encoded) in [("data", kind == "secret"), ("binaryData", true)] {
        for (key, value) in object[list].as_object().into_iter().flatten() {
            let Some(text) = value.as_str() else { continue };
            let decoded = encoded.then(|| base64::engine::general_purpose::STANDARD.decode(text));
            let bytes = decoded.map_or_else(|| Some(text.as_bytes().to_vec()), Result::ok);
            all.extend(bytes.map(|bytes| (key.clone(), bytes)));
        }
    }
    let Some(items) = source["items"].as_array() else {
        return Ok(Some(all.into_iter().map(|(key, bytes)| (key, (bytes, mode(&Value::Null)))).collect()));
    };
    let mut chosen = BTreeMap::new();
    for item in items {
        match all.get(text(item, "/key")) {
            Some(bytes) => {
                chosen.insert(text(item, "/path").to_owned(), (bytes.clone(), mode(item)));
            }
            None if optional => {}
            None => {
                return Err(format!(
                    "references non-existent {} key: {}",
                    if kind == "secret" { "secret" } else { "config" },
                    text(item, "/key")
                ));
            }
        }
    }
    Ok(Some(chosen))
}

fn downward(source: &Value, values: &ValueSources<'_>) -> BTreeMap<String, File> {
    let items = source["items"].as_array().into_iter().flatten();
    items
        .map(|item| {
            let path = text(item, "/fieldRef/fieldPath");
            let list = path.strip_prefix("metadata.").filter(|list| matches!(*list, "labels" | "annotations"));
            let value = match list {
                Some(list) => {
                    let all = values.pod["metadata"][list].as_object().into_iter().flatten();
                    let lines = all.map(|(key, value)| format!("{key}={:?}", value.as_str().unwrap_or_default()));
                    lines.collect::<Vec<_>>().join("\n")
                }
                None => field(path, values),
            };
            (text(item, "/path").to_owned(), (value.into_bytes(), 0o644))
        })
        .collect()
}

/// Replaces the files of a volume atomically.
pub(super) fn write(place: &Path, files: &BTreeMap<String, File>) -> io::Result<()> {
    fs::create_dir_all(place)?;
    fs::set_permissions(place, fs::Permissions::from_mode(0o755))?;
    let fresh = format!("..{:016x}", fastrand::u64(..));
    let inside = place.join(&fresh);
    fs::create_dir(&inside)?;
    let mut tops = Vec::new();
    for (name, (bytes, mode)) in files {
        let relative = Path::new(name);
        let plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || name.is_empty() || name.starts_with("..") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("invalid path {name:?}")));
        }
        let file = inside.join(relative);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, bytes)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(*mode))?;
        tops.extend(relative.iter().next().map(std::ffi::OsStr::to_os_string));
    }
    let before = fs::read_link(place.join("..data")).ok();
    let link = place.join(format!("{fresh}.link"));
    symlink(&fresh, &link)?;
    fs::rename(&link, place.join("..data"))?;
    for top in &tops {
        let link = place.join(top);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(top), link)?;
        }
    }
    for entry in fs::read_dir(place)?.flatten() {
        let name = entry.file_name();
        if !tops.contains(&name) && !name.to_string_lossy().starts_with("..") {
            fs::remove_file(entry.path())?;
        }
    }
    // Only a directory that was created here is removed: the container may have replaced the link.
    let made_here = |name: &Path| name.components().count() == 1 && name.to_string_lossy().starts_with("..");
    if let Some(before) = before.filter(|name| made_here(name) && name.as_os_str() != "..") {
        fs::remove_dir_all(place.join(before))?;
    }
    Ok(())
}

/// Writes the Secrets that these containers mount, and removes all others.
pub(super) fn settle_secrets(
    volumes: &[Volume],
    containers: &[&Value],
    values: &ValueSources<'_>,
    tokens: &Tokens,
) -> io::Result<()> {
    let mounts = || containers.iter().flat_map(|c| c["volumeMounts"].as_array().into_iter().flatten());
    for volume in volumes {
        let Some(before) = &volume.secret else { continue };
        let is_there = fs::symlink_metadata(&volume.place).is_ok();
        let is_wanted = mounts().any(|mount| mount["name"] == volume.name.as_str());
        if is_there && !is_wanted {
            fs::remove_dir_all(&volume.place)?;
        } else if is_wanted && !is_there {
            let spec = values.pod["spec"]["volumes"].as_array().into_iter().flatten();
            let spec = spec.into_iter().find(|spec| spec["name"] == volume.name.as_str());
            // If the Secret is deleted by now, use its content at the pod's start.
            let now = spec.and_then(|spec| files(spec, values, tokens).ok().flatten());
            write(&volume.place, now.as_ref().unwrap_or(before))?;
        }
    }
    Ok(())
}

/// Updates changed files of ConfigMaps and Secrets. A missing object keeps its files.
pub(super) fn refresh(directory: &Path, values: &ValueSources<'_>, tokens: &Tokens) -> io::Result<()> {
    for volume in values.pod["spec"]["volumes"].as_array().into_iter().flatten() {
        let place = directory.join(text(volume, "/name"));
        if fs::symlink_metadata(&place).is_ok()
            && let Ok(Some(files)) = files(volume, values, tokens)
            && !holds(&place, &files)
        {
            write(&place, &files)?;
        }
    }
    Ok(())
}

/// Whether a directory contains exactly these files.
fn holds(place: &Path, files: &BTreeMap<String, File>) -> bool {
    let same = files.iter().all(|(name, (bytes, _))| fs::read(place.join(name)).is_ok_and(|known| known == *bytes));
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let known = |name: &str| name.starts_with("..") || files.keys().any(|file| file.split('/').next() == Some(name));
    same && entries.into_iter().all(|entry| known(&entry.file_name().to_string_lossy()))
}

/// Returns the path mapping of a container's mounts.
pub(super) fn mounts(container: &Value, volumes: &[Volume], expand: impl Fn(&str) -> String) -> Result<Paths, String> {
    let mut paths = Paths::default();
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let volume = volumes.iter().find(|volume| mount["name"] == volume.name.as_str());
        let Some(volume) = volume else { continue };
        let inside = match text(mount, "/subPathExpr") {
            "" => text(mount, "/subPath").to_owned(),
            expression => expand(expression),
        };
        let inside = Path::new(&inside);
        if !inside.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(format!("failed to prepare subPath for volumeMount \"{}\"", volume.name));
        }
        let whole = inside.as_os_str().is_empty();
        let place = if whole { volume.place.clone() } else { volume.place.join(inside) };
        if !place.exists() {
            make_open(&place)
                .map_err(|_| format!("failed to create subPath directory for volumeMount \"{}\"", volume.name))?;
        }
        paths.add(text(mount, "/mountPath"), place);
    }
    Ok(paths)
}
