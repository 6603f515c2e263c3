//! The form of a GitRepository: its address, its authentication, and the object that they describe.
//!
//! Invariant: an address with a part that is hidden, such as a login, is not in the form. The user writes another one, or keeps
//! it, unless it has a password, with which the agent accepts no address.

use serde_json::{Value, json};

use crate::filter::Query;
use crate::form::{EditForm, ObjectForm, Suggested, line, new, set};
use crate::git_place::{LOGINS, has_login};
use crate::readers::Readers;
use crate::remote::{hide_login, is_http, without_login};
use crate::row::FleetKind;
use mainstay_object::syntax;

/// The word in the form for a repository without authentication.
pub(crate) const PUBLIC: &str = "public";

/// The fields, as the user wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RepositoryFields {
    pub(crate) name: String,
    pub(crate) url: String,
    /// Whether the address of the live object stays if `url` is empty and a part of the address is hidden.
    pub(crate) is_kept: bool,
    /// The authentication: [`PUBLIC`], or a word of [`LOGINS`].
    pub(crate) auth: String,
    /// The name of the Secret; empty without authentication.
    pub(crate) secret: String,
}

/// The part of an address that the form does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HiddenPart {
    /// A password, or a part that cannot be told from one. The agent refuses the address.
    Password,
    /// A user, a query or a fragment. With a Secret, the agent accepts the address.
    Other,
}

/// Returns the hidden part of an address; `None` if the form shows the address.
fn hidden_part(url: &str) -> Option<HiddenPart> {
    if !is_http(url) && !has_login(url) {
        return None;
    }
    let bare = without_login(url);
    if bare.as_deref() == Some(url) {
        return None;
    }
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let has_password = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    Some(if bare.is_none() || has_password { HiddenPart::Password } else { HiddenPart::Other })
}

/// Returns the address of an object in one line.
fn url_of(live: &Value) -> String {
    line(live.pointer("/spec/url").and_then(Value::as_str).unwrap_or_default())
}

impl RepositoryFields {
    /// Returns the part of the address of an object that the form does not show.
    pub(crate) fn hidden_part(live: &Value) -> Option<HiddenPart> {
        hidden_part(&url_of(live))
    }

    /// Returns `spec.auth`.
    fn authentication(&self) -> Result<Option<Value>, String> {
        if self.auth == PUBLIC {
            let is_alone = self.secret.is_empty();
            let why = "Secret: a public repository needs none. Leave the field empty, or select an authentication.";
            return if is_alone { Ok(None) } else { Err(why.to_owned()) };
        }
        if !LOGINS.iter().any(|(word, _)| *word == self.auth) {
            return Err("Authentication: select one.".to_owned());
        }
        if let Some(words) = syntax::subdomain(&self.secret) {
            return Err(format!("Secret: {words}."));
        }
        Ok(Some(json!({"type": self.auth, "secretName": self.secret})))
    }
}

impl ObjectForm for RepositoryFields {
    const KIND: FleetKind = FleetKind::GitRepository;
    const PLURAL: &'static str = "gitrepositories";
    const PATH: &'static str = "/connect";
    const SUGGESTED: Suggested = Suggested::Secrets;

    fn blank(_url: &Query) -> Self {
        Self { auth: PUBLIC.to_owned(), ..Self::default() }
    }

    fn read(form: &Query) -> Self {
        let one = |name: &str| line(form.get(name));
        let is_kept = !form.get("keep").is_empty();
        Self { name: one("name"), url: one("url"), is_kept, auth: one("auth"), secret: one("secret") }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn wanted(&self, live: Option<&Value>, namespace: &str) -> Result<Value, String> {
        let (mut wanted, before) = match live {
            Some(live) => (live.clone(), Self::of(live)),
            None => (new(Self::KIND, &self.name, namespace)?, Self::blank(&Query::default())),
        };
        let keeps_hidden = self.is_kept && live.is_some_and(|live| Self::hidden_part(live).is_some());
        if self.url.is_empty() && !keeps_hidden {
            return Err("URL: write the address of the repository.".to_owned());
        }
        if self.url != before.url {
            set(&mut wanted, "/spec/url", Some(json!(self.url)));
        }
        if (&self.auth, &self.secret) != (&before.auth, &before.secret) {
            set(&mut wanted, "/spec/auth", self.authentication()?);
        }
        Ok(wanted)
    }

    fn hide(object: &mut Value) -> bool {
        hide_login(object, "/spec/url")
    }

    fn effect(readers: &Readers, live: Option<&Value>, wanted: &Value) -> Result<String, String> {
        (readers.rules.git_repository)(wanted)?;
        Ok(match live {
            None => "The agent looks it up as soon as a GitSync or a Function follows it.",
            Some(_) => "The GitSyncs and Functions that follow it read the repository at this address from now on.",
        }
        .to_owned())
    }
}

impl EditForm for RepositoryFields {
    fn of(live: &Value) -> Self {
        let text = |pointer: &str| line(live.pointer(pointer).and_then(Value::as_str).unwrap_or_default());
        let (auth, hidden) = (text("/spec/auth/type"), Self::hidden_part(live));
        Self {
            name: text("/metadata/name"),
            url: if hidden.is_some() { String::new() } else { url_of(live) },
            is_kept: hidden == Some(HiddenPart::Other),
            auth: if auth.is_empty() { PUBLIC.to_owned() } else { auth },
            secret: text("/spec/auth/secretName"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::patch;

    const URL: &str = "https://git.example.com/team/shop.git";

    fn fields(url: &str, auth: &str, secret: &str) -> RepositoryFields {
        let [name, url, auth, secret] = ["shop", url, auth, secret].map(str::to_owned);
        RepositoryFields { name, url, is_kept: false, auth, secret }
    }

    #[test]
    fn a_new_repository_has_its_address_and_its_secret() {
        let wanted = fields(URL, PUBLIC, "").wanted(None, "team").unwrap();
        assert_eq!(wanted["metadata"], json!({"name": "shop", "namespace": "team"}));
        assert_eq!(wanted["spec"], json!({"url": URL}));
        let ssh = "git@git.example.com:team/shop.git";
        let wanted = fields(ssh, "key", "login").wanted(None, "team").unwrap();
        assert_eq!(wanted["spec"], json!({"url": ssh, "auth": {"type": "key", "secretName": "login"}}));
    }

    #[test]
    fn a_wrong_field_is_named() {
        for (url, auth, secret, expected) in [
            ("", PUBLIC, "", "URL: "),
            (URL, PUBLIC, "login", "Secret: a public repository"),
            (URL, "basic", "", "Secret: "),
            (URL, "key", "a/b", "Secret: "),
            (URL, "other", "login", "Authentication: "),
        ] {
            let problem = fields(url, auth, secret).wanted(None, "team").unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        }
        let unnamed = RepositoryFields { name: "A b".into(), ..fields(URL, PUBLIC, "") };
        assert!(unnamed.wanted(None, "team").unwrap_err().starts_with("Name: "));
    }

    #[test]
    fn a_change_keeps_the_fields_that_the_form_has_not() {
        let auth = json!({"type": "basic", "secretName": "login"});
        let live = json!({
            "metadata": {"name": "shop"}, "spec": {"url": URL, "auth": auth, "verify": {"secretRef": {"name": "keys"}}},
        });
        let change = |change: &dyn Fn(&mut RepositoryFields)| {
            let mut fields = RepositoryFields::of(&live);
            change(&mut fields);
            fields.wanted(Some(&live), "team").map(|wanted| patch(&live, &wanted))
        };
        assert_eq!(change(&|_| ()), Ok(None));
        let public = change(&|fields| (fields.auth, fields.secret) = (PUBLIC.into(), String::new()));
        assert_eq!(public, Ok(Some(json!({"spec": {"auth": null}}))));
        let secret = change(&|fields| fields.secret = "other".into());
        assert_eq!(secret, Ok(Some(json!({"spec": {"auth": {"secretName": "other"}}}))));
        let moved = change(&|fields| fields.url = "https://new.example.com/shop".into());
        assert_eq!(moved, Ok(Some(json!({"spec": {"url": "https://new.example.com/shop"}}))));
    }

    #[test]
    fn a_hidden_part_of_an_address_is_kept_or_removed() {
        for (url, bare, hidden) in [
            ("https://user:hunter2@git.example.com/shop?a=b", "https://git.example.com/shop", HiddenPart::Password),
            ("ssh://git:hunter2@git.example.com/shop", "ssh://git@git.example.com/shop", HiddenPart::Password),
            ("https://user@git.example.com/shop", "https://git.example.com/shop", HiddenPart::Other),
            ("https://git.example.com/shop?a=b:c@d", "https://git.example.com/shop", HiddenPart::Other),
            ("https://git.example.com/shop#b", "https://git.example.com/shop", HiddenPart::Other),
        ] {
            let live = json!({"spec": {"url": url}});
            let change = |fields: &RepositoryFields| {
                fields
                    .wanted(Some(&live), "team")
                    .map(|wanted| patch(&live, &wanted))
                    .map_err(|why| why[..5].to_owned())
            };
            let untouched = RepositoryFields::of(&live);
            assert_eq!(RepositoryFields::hidden_part(&live), Some(hidden), "{url}");
            assert_eq!((&*untouched.url, untouched.is_kept), ("", hidden == HiddenPart::Other), "{url}");
            let unwritten = RepositoryFields { is_kept: false, ..untouched.clone() };
            assert_eq!(change(&unwritten), Err("URL: ".to_owned()), "{url}");
            let kept = RepositoryFields { is_kept: true, ..untouched };
            assert_eq!(change(&kept), Ok(None), "{url}");
            // The address without the hidden part is another one.
            let clean = RepositoryFields { url: bare.into(), auth: "basic".into(), secret: "login".into(), ..kept };
            let auth = json!({"type": "basic", "secretName": "login"});
            assert_eq!(change(&clean), Ok(Some(json!({"spec": {"url": bare, "auth": auth}}))), "{url}");
        }
        assert_eq!(RepositoryFields::of(&json!({"spec": {"url": URL}})).url, URL);
        let new = RepositoryFields { is_kept: true, ..fields("", PUBLIC, "") };
        assert!(new.wanted(None, "team").unwrap_err().starts_with("URL: "));
        let ssh = json!({"spec": {"url": "git@git.example.com:team/shop.git"}});
        assert_eq!(RepositoryFields::of(&ssh).url, "git@git.example.com:team/shop.git");
        let unclear = json!({"spec": {"url": "https://user:hunter2/x@git.example.com/shop"}});
        let fields = RepositoryFields::of(&unclear);
        assert!(fields.url.is_empty() && fields.wanted(Some(&unclear), "team").unwrap_err().starts_with("URL: "));
        let path = "https://evil.example.com/@github.com/team/shop";
        assert_eq!(RepositoryFields::of(&json!({"spec": {"url": path}})).url, path);
        for strange in [json!(null), json!({"spec": 7}), json!({"spec": {"url": [], "auth": "x"}})] {
            assert!(RepositoryFields::of(&strange).wanted(Some(&strange), "team").is_err());
        }
    }
}
