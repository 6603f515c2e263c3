//! Users and their groups.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The user name of clients without credentials.
pub const ADMIN: &str = "admin";
/// The group with all permissions.
pub const MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The prefix of ServiceAccount user names.
pub const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The user of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name.
    pub name: String,
    /// Unique id; empty for none.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Additional attributes from authentication.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Returns the user of a token that another issuer has signed.
pub type Authenticator = fn(&str) -> Option<User>;

impl Default for User {
    /// Returns the administrator, the user of clients without credentials.
    fn default() -> Self {
        Self {
            name: ADMIN.to_owned(),
            uid: String::new(),
            groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
            extra: BTreeMap::new(),
        }
    }
}

impl User {
    /// Creates the user of a ServiceAccount.
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        Self {
            name: format!("{SERVICE_ACCOUNT}{namespace}:{name}"),
            uid: uid.to_owned(),
            groups: service_account_groups(namespace),
            extra: BTreeMap::new(),
        }
    }

    /// Returns whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Returns the `userInfo` of reviews.
    pub fn info(&self) -> Value {
        let mut info = Map::new();
        info.insert("username".to_owned(), self.name.clone().into());
        if !self.uid.is_empty() {
            info.insert("uid".to_owned(), self.uid.clone().into());
        }
        if !self.groups.is_empty() {
            info.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(info)
    }
}

/// Returns the groups of a ServiceAccount.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}"), AUTHENTICATED.to_owned()]
}

/// Splits the user name of a ServiceAccount into namespace and name.
pub fn service_account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}
