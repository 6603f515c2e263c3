//! The logins of namespaces. They are derived from a key, and stored only in the copies of the registry's Secret.
//!
//! Invariant: logins of namespaces reveal neither the key, nor the registry's own login, nor the logins of other
//! namespaces.

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use ring::hmac;
use serde_json::{Map, Value};

use crate::registry::Address;
use crate::registry::docker_config::{Login, docker_config_of};
use mainstay_api::names::PER_NAMESPACE;
use mainstay_object::Secret;

/// Key in the Secret's data with the key for logins of namespaces.
pub(in crate::registry) const NAMESPACE_KEY: &str = "namespaceKey";
/// Key in the data of a copy whose login is limited to the repositories of its namespace.
pub(in crate::registry) const LOGINS: &str = "registryLogins";
/// Prefix of the authenticated message, before the name of a namespace.
const CONTEXT: &[u8] = b"mainstay registry login of the namespace ";
/// Keys of the data that differ per namespace.
const OWN: [&str; 3] = ["username", "password", ".dockerconfigjson"];

/// The key for logins of namespaces. A login is the HMAC-SHA-256 of the namespace's name.
pub(super) struct NamespaceKey(hmac::Key);

impl NamespaceKey {
    /// Returns the key that is derived from this string.
    pub(super) fn new(text: &Secret<String>) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, text.expose().as_bytes()))
    }

    /// Returns the login of a namespace. The user name is the name of the namespace.
    pub(super) fn login(&self, namespace: &str) -> Login {
        let tag = hmac::sign(&self.0, &message(namespace));
        let password = Secret::new(BASE64_URL_SAFE_NO_PAD.encode(tag.as_ref()));
        Login { username: namespace.to_owned(), password }
    }

    /// Whether the login is correct for the namespace in its user name.
    pub(super) fn lets_in(&self, login: &Login) -> bool {
        let tag = BASE64_URL_SAFE_NO_PAD.decode(login.password.expose());
        tag.is_ok_and(|tag| hmac::verify(&self.0, &message(&login.username), &tag).is_ok())
    }
}

fn message(namespace: &str) -> Vec<u8> {
    [CONTEXT, namespace.as_bytes()].concat()
}

/// Returns the `data` of a namespace's copy of the default registry Secret; `None` if all namespaces share one login.
///
/// The copy contains the login of its namespace and no key. Without valid addresses the copy contains no login.
pub fn of_namespace(data: &Value, namespace: &str) -> Option<Value> {
    let key = data.get(NAMESPACE_KEY)?;
    let text = |value: &Value| {
        let bytes = BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).ok()?;
        Some(String::from_utf8(bytes).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let mut copy: Map<String, Value> = data.as_object().cloned().unwrap_or_default();
    copy.retain(|name, _| name != NAMESPACE_KEY && !OWN.contains(&&**name));
    let addresses: Vec<Address> = ["registryAddress", "serverAddress"]
        .iter()
        .filter_map(|name| Address::parse(&text(&data[*name])?).ok())
        .collect();
    if let (Some(key), false) = (text(key), addresses.is_empty()) {
        let login = NamespaceKey::new(&Secret::new(key)).login(namespace);
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let config = docker_config_of(hosts.iter().map(String::as_str), &login);
        let own = [&login.username, login.password.expose(), &config];
        copy.insert(LOGINS.to_owned(), BASE64_STANDARD.encode(PER_NAMESPACE).into());
        copy.extend(OWN.iter().zip(own).map(|(name, text)| ((*name).to_owned(), BASE64_STANDARD.encode(text).into())));
    }
    Some(Value::Object(copy))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key() -> NamespaceKey {
        NamespaceKey::new(&Secret::new("k".repeat(43)))
    }

    #[test]
    fn a_login_is_that_of_one_namespace() {
        let (one, other) = (key().login("team-a"), key().login("team-b"));
        assert!(key().lets_in(&one) && key().lets_in(&other));
        let stolen = Login { username: "team-b".into(), password: one.password.clone() };
        assert!(!key().lets_in(&stolen));
        let short = one.password.expose()[..20].to_owned();
        assert!(!key().lets_in(&Login { username: "team-a".into(), password: Secret::new(short) }));
        assert!(!key().lets_in(&Login { username: "team-a".into(), password: Secret::new(String::new()) }));
        assert!(!NamespaceKey::new(&Secret::new("other".into())).lets_in(&one));
    }

    #[test]
    fn a_copy_has_its_own_login_and_not_the_key() {
        let encoded = |text: &str| Value::from(BASE64_STANDARD.encode(text));
        let mut data = json!({
            "username": encoded("admin"), "password": encoded("hunter2"), ".dockerconfigjson": encoded("{}"),
            "registryAddress": encoded("r.svc:5000"), "serverAddress": encoded("127.0.0.1:32137"),
            "isInternal": encoded("true"), "ca.crt": encoded("pem"),
        });
        assert_eq!(of_namespace(&data, "shop"), None, "all namespaces have one login");
        data[NAMESPACE_KEY] = encoded(&"k".repeat(43));
        let copy = of_namespace(&data, "shop").unwrap();
        let names: Vec<&String> = copy.as_object().unwrap().keys().collect();
        let expected = [
            ".dockerconfigjson",
            "ca.crt",
            "isInternal",
            "password",
            "registryAddress",
            "registryLogins",
            "serverAddress",
            "username",
        ];
        assert_eq!(names, expected);
        assert_eq!(copy["username"], encoded("shop"));
        let login = key().login("shop");
        assert_eq!(copy["password"], encoded(login.password.expose()));
        let config = docker_config_of(["r.svc:5000", "127.0.0.1:32137"], &login);
        assert_eq!(copy[".dockerconfigjson"], encoded(&config));
        assert!(!copy.to_string().contains("hunter2") && copy["password"] != data["password"]);
        data["registryAddress"] = Value::Null;
        data["serverAddress"] = encoded("a b");
        assert_eq!(of_namespace(&data, "shop").unwrap()["password"], Value::Null, "no login without an address");
    }
}
