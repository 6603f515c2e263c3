//! The place of a new Function's code in Git: the fields of the form, and the part of the spec that they describe.

use serde_json::{Value, json};

use mainstay_object::syntax;

/// The word in the form for code in Git, and all places of code with their labels.
pub(crate) const GIT: &str = "git";
pub(crate) const PLACES: [(&str, &str); 2] = [("inline", "In this form"), (GIT, "In a Git repository")];

/// The types of a login with their labels.
pub(crate) const LOGINS: [(&str, &str); 2] = [("basic", "password or token"), ("key", "SSH key")];

/// The place of code in Git, as the user wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GitPlace {
    /// Whether the code is in Git.
    pub(crate) is_chosen: bool,
    /// The name of a GitRepository; empty for a repository of the Function's own.
    pub(crate) repository: String,
    pub(crate) url: String,
    /// The type of the login: a word of [`LOGINS`].
    pub(crate) login: String,
    /// The name of the Secret with the login; empty without one.
    pub(crate) secret: String,
}

impl GitPlace {
    /// Reads the fields. `field` returns the line of a field.
    pub(crate) fn read(field: impl Fn(&str) -> String) -> Self {
        Self {
            is_chosen: field("place") == GIT,
            repository: field("repository"),
            url: field("url"),
            login: field("login"),
            secret: field("secret"),
        }
    }

    /// Returns the spec of a Function with code at this place. It has no reference and no directory yet.
    ///
    /// # Errors
    /// Fails with the problem of the first invalid field.
    pub(crate) fn spec(&self) -> Result<Value, String> {
        if self.repository.is_empty() == self.url.is_empty() {
            return Err("GitRepository: write its name, or else the URL of a repository.".to_owned());
        }
        if !self.repository.is_empty() {
            if let Some(words) = syntax::subdomain(&self.repository) {
                return Err(format!("GitRepository: {words}."));
            }
            if !self.secret.is_empty() {
                return Err("Secret with the login: the GitRepository names its own. Leave the field empty.".to_owned());
            }
            return Ok(json!({"type": GIT, "source": self.repository}));
        }
        if has_login(&self.url) {
            return Err("URL of a repository: it contains a login. Write the login into a Secret, and its name below."
                .to_owned());
        }
        let mut own = json!({"url": self.url});
        if !self.secret.is_empty() {
            if let Some(words) = syntax::subdomain(&self.secret) {
                return Err(format!("Secret with the login: {words}."));
            }
            if !LOGINS.iter().any(|(word, _)| *word == self.login) {
                return Err("Type of the login: select one.".to_owned());
            }
            own["auth"] = json!({"type": self.login, "secretName": self.secret});
        }
        Ok(json!({"type": GIT, "source": "", "gitRepository": own}))
    }
}

/// Returns whether a URL contains a password, or a token in place of a user. The user of an SSH URL is no secret.
pub(crate) fn has_login(url: &str) -> bool {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let is_http = ["http", "https"].iter().any(|http| scheme.eq_ignore_ascii_case(http));
    let Some((user, _)) = rest.rsplit_once('@') else { return false };
    is_http || (!scheme.is_empty() && user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(fields: &[(&str, &str)]) -> Result<Value, String> {
        let field = |name: &str| fields.iter().find(|(one, _)| *one == name).map_or("", |(_, value)| *value).to_owned();
        GitPlace::read(field).spec()
    }

    #[test]
    fn a_place_is_a_git_repository_or_a_url_with_its_login() {
        assert_eq!(place(&[("repository", "shop")]), Ok(json!({"type": "git", "source": "shop"})));
        let url = ("url", "https://git.example.com/team/shop.git");
        assert_eq!(place(&[url]), Ok(json!({"type": "git", "source": "", "gitRepository": {"url": url.1}})));
        let own = json!({"url": url.1, "auth": {"type": "basic", "secretName": "login"}});
        assert_eq!(
            place(&[url, ("login", "basic"), ("secret", "login")]),
            Ok(json!({"type": "git", "source": "", "gitRepository": own}))
        );
        assert!(place(&[("url", "git@example.com:team/shop.git")]).is_ok());
        assert!(place(&[("url", "ssh://git@example.com:2222/team/shop.git")]).is_ok());
        assert!(GitPlace::read(|name| if name == "place" { "git".to_owned() } else { String::new() }).is_chosen);
    }

    #[test]
    fn a_wrong_field_is_named_and_a_login_in_the_url_is_refused() {
        let url = ("url", "https://git.example.com/shop");
        for (fields, expected) in [
            (vec![], "GitRepository: write its name"),
            (vec![("repository", "shop"), url], "GitRepository: write its name"),
            (vec![("repository", "a b")], "GitRepository: "),
            (vec![("repository", "shop"), ("secret", "login")], "Secret with the login: the GitRepository"),
            (vec![("url", "https://token@git.example.com/shop")], "URL of a repository: it contains a login"),
            (vec![("url", "HTTPS://a:hunter2@git.example.com/shop")], "URL of a repository: it contains a login"),
            (vec![("url", "ssh://git:hunter2@example.com/shop")], "URL of a repository: it contains a login"),
            (vec![url, ("secret", "a/b"), ("login", "basic")], "Secret with the login: "),
            (vec![url, ("secret", "login"), ("login", "other")], "Type of the login: "),
        ] {
            let problem = place(&fields).unwrap_err();
            assert!(problem.starts_with(expected) && !problem.contains("hunter2"), "{fields:?}: {problem}");
        }
    }
}
