//! `.dockerconfigjson`: the logins for registries, in the format of Docker and the kubelet.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ImageRef;
use mainstay_object::Secret;

/// User name and password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// User name.
    pub username: String,
    /// Password or token.
    pub password: Secret<String>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// Returns the file for one registry, in the format of Kyma's webhook.
pub fn docker_config(server: &str, login: &Login) -> String {
    docker_config_of([server], login)
}

/// Returns the file for a registry with several addresses.
pub(super) fn docker_config_of<'a>(servers: impl IntoIterator<Item = &'a str>, login: &Login) -> String {
    let auth = BASE64_STANDARD.encode(format!("{}:{}", login.username, login.password.expose()));
    let auths: BTreeMap<&str, Value> = servers.into_iter().map(|server| (server, json!({"auth": auth}))).collect();
    json!({"auths": auths}).to_string()
}

/// Returns the login for an image: that of the entry with the image's host and the longest matching path prefix.
///
/// Invalid entries are skipped. An invalid file contains no login.
pub fn login(file: &[u8], image: &ImageRef) -> Option<Login> {
    let file: File = serde_json::from_slice(file).ok()?;
    let fits = |(key, entry): (&String, &Entry)| Some((path_for(key, image)?, entry.login()?));
    file.auths.iter().filter_map(fits).max_by_key(|(path, _)| *path).map(|(_, login)| login)
}

/// Returns the length of a key's path if the key matches the image.
fn path_for(key: &str, image: &ImageRef) -> Option<usize> {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest).trim_end_matches('/');
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    let path = if matches!(path, "v1" | "v2") { "" } else { path };
    let rest = image.repository.strip_prefix(path)?;
    let whole = path.is_empty() || rest.is_empty() || rest.starts_with('/');
    (whole && canonical(host) == canonical(&image.registry)).then_some(path.len())
}

/// Returns the canonical name of Docker Hub.
fn canonical(host: &str) -> &str {
    if matches!(host, "index.docker.io" | "registry-1.docker.io") { "docker.io" } else { host }
}

impl Entry {
    fn login(&self) -> Option<Login> {
        let (username, password) = if self.auth.is_empty() {
            (self.username.clone(), self.password.clone())
        } else {
            let text = String::from_utf8(BASE64_STANDARD.decode(self.auth.trim()).ok()?).ok()?;
            let (username, password) = text.split_once(':')?;
            (username.to_owned(), password.trim_end_matches('\0').to_owned())
        };
        let readable = !username.is_empty() && !format!("{username}{password}").chars().any(char::is_control);
        readable.then(|| Login { username, password: Secret::new(password) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(keys: &[&str], image: &str, expected: Option<&str>) {
        let auths: BTreeMap<_, _> = keys.iter().map(|key| (key, json!({"username": key, "password": "p"}))).collect();
        let file = json!({"auths": auths}).to_string();
        let got = login(file.as_bytes(), &image.parse().unwrap()).map(|login| login.username);
        assert_eq!(got.as_deref(), expected, "{image} in {keys:?}");
    }

    #[test]
    fn finds_the_login_of_the_host_and_of_no_other() {
        check(&["gcr.io"], "gcr.io/p/a", Some("gcr.io"));
        check(&["https://gcr.io/v2/"], "gcr.io/p/a", Some("https://gcr.io/v2/"));
        check(&["gcr.io", "gcr.io/p", "gcr.io/pp"], "gcr.io/p/a", Some("gcr.io/p"));
        check(&["gcr.io:444", "evil.gcr.io", "gcr.io.evil", "gcr.io/q"], "gcr.io/p/a", None);
        check(&["https://index.docker.io/v1/"], "user/app", Some("https://index.docker.io/v1/"));
    }

    #[test]
    fn reads_what_it_writes() {
        let written = Login { username: "u".into(), password: Secret::new("p:q".into()) };
        let file = docker_config("https://h.io", &written);
        assert_eq!(file, r#"{"auths":{"https://h.io":{"auth":"dTpwOnE="}}}"#);
        assert_eq!(login(file.as_bytes(), &"h.io/a".parse().unwrap()), Some(written));
    }

    #[test]
    fn passes_over_what_cannot_be_read() {
        for file in ["", "[]", "{}", r#"{"auths":{"h.io":{"auth":"!"}}}"#, r#"{"auths":{"h.io":{"auth":"dQ=="}}}"#] {
            assert_eq!(login(file.as_bytes(), &"h.io/a".parse().unwrap()), None, "{file}");
        }
    }
}
