//! A registry address from a Secret becomes a prefix of image names.

use std::fmt;

use super::image_ref::{self, ImageRef, ParseImageRefError};

const DOCKER_HUB: &str = "docker.io";

/// The address that images are pushed to or pulled from: a host and a path prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host and port.
    host: String,
    /// Empty, or a path without leading and trailing slashes.
    path: String,
}

impl Address {
    /// Reads an address. A scheme and slashes at the end are tolerated; an address without a host, such as `user`, is
    /// one on Docker Hub.
    pub fn parse(text: &str) -> Result<Self, ParseImageRefError> {
        let text = text.trim();
        let text = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or(text);
        let text = text.trim_end_matches('/');
        let (host, path) = text.split_once('/').unwrap_or((text, ""));
        let (host, path) = if image_ref::names_host(host) { (host, path) } else { (DOCKER_HUB, text) };
        // Docker's configuration names Docker Hub like this.
        let (host, path) = match (host, path) {
            ("index.docker.io" | "registry-1.docker.io", "v1" | "v2") => (DOCKER_HUB, ""),
            ("index.docker.io" | "registry-1.docker.io", path) => (DOCKER_HUB, path),
            other => other,
        };
        if !image_ref::is_host(host) {
            return Err(ParseImageRefError::Host);
        }
        if !path.is_empty() && !image_ref::is_repository(path) || text.is_empty() {
            return Err(ParseImageRefError::Repository);
        }
        Ok(Self { host: host.to_owned(), path: path.to_owned() })
    }

    /// Host and port.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// The image repository of a Function, with the name that Kyma gives it.
    ///
    /// Two Functions may share a repository (`a-b/c` and `a/b-c`); their tags differ, and images run by digest.
    pub fn image(&self, namespace: &str, function: &str, tag: &str) -> Result<ImageRef, ParseImageRefError> {
        format!("{self}/{namespace}-{function}:{tag}").parse()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let got = Address::parse(text).and_then(|address| address.image("ns", "fn", "t"));
        assert_eq!(got.map_or_else(|error| format!("{error:?}"), |image| image.to_string()), expected, "{text}");
    }

    #[test]
    fn names_the_image_of_a_function() {
        check("gcr.io/project", "gcr.io/project/ns-fn:t");
        check("localhost:32137", "localhost:32137/ns-fn:t");
        check("https://x.azurecr.io/", "x.azurecr.io/ns-fn:t");
        check("docker.io/user", "docker.io/user/ns-fn:t");
        check("user", "docker.io/user/ns-fn:t");
        check("https://index.docker.io/v1/", "docker.io/library/ns-fn:t");
        check(" registry.svc.cluster.local:5000 \n", "registry.svc.cluster.local:5000/ns-fn:t");
        for text in ["", "/", "https://", "User", "a//b", "h.io/../x", "h.io/a?b", "h.io/a:tag"] {
            check(text, "Repository");
        }
        check("u:p@h.io", "Host");
    }

    #[test]
    fn two_functions_may_share_a_repository_and_no_image() {
        let address = Address::parse("h.io").unwrap();
        let (one, two) = (address.image("a-b", "c", "1").unwrap(), address.image("a", "b-c", "2").unwrap());
        assert_eq!(one.repository, two.repository);
        assert_ne!(one, two);
    }
}
