//! Access to a registry, from the Secret of a build: scheme, login and certificates.

use super::Address;
use super::choice::{self, Problem, SecretData};
use super::docker_config::{self, Login};
use super::image_ref::ImageRef;
use mainstay_object::Secret;

/// The scheme of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP, only for registries inside the cluster or on this machine.
    Http,
    /// HTTPS.
    Https,
}

/// How to connect to a registry, and which CA signs its certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Plain HTTP.
    PlainHttp,
    /// HTTPS with a certificate of a public CA.
    #[default]
    PublicAuthority,
    /// HTTPS with a certificate that is signed by a CA in `ca.crt`.
    OwnAuthority,
}

/// Access to the registry of one image.
#[derive(Clone, Debug)]
pub struct Access {
    /// The scheme.
    pub scheme: Scheme,
    /// User name and password; `None` for anonymous access.
    pub login: Option<Login>,
    /// Additional CA certificates in PEM format; empty for none.
    pub authorities: Vec<u8>,
}

impl Access {
    /// Returns the access to the registry of `image`, from the Secret for that registry.
    ///
    /// The login comes from `.dockerconfigjson`, or from `username` and `password` if the Secret specifies this
    /// registry. `ca.crt` contains a private CA. Plain HTTP is used with `isInternal: "true"` and on the local host,
    /// unless there is a `ca.crt` or the registry's address begins with `https://`.
    pub fn own(data: &SecretData, image: &ImageRef) -> Result<Self, Problem> {
        let authorities = data.get("ca.crt").map(|pem| pem.0.clone()).unwrap_or_default();
        let address = ["registryAddress", "pushRegAddr"].iter().find_map(|key| choice::text(data, key));
        let asked = address.and_then(|address| address.split_once("://")).map(|(scheme, _)| scheme);
        let may_be_plain = choice::is_internal(data) || is_loopback(&image.registry);
        let scheme = match asked {
            Some("https") => Scheme::Https,
            _ if !authorities.is_empty() => Scheme::Https,
            _ if may_be_plain => Scheme::Http,
            Some("http") => {
                return Err(Problem {
                    what: "the address of the registry begins with http://".to_owned(),
                    hint: "plain HTTP is for registries with isInternal: \"true\" or on this machine".to_owned(),
                });
            }
            _ => Scheme::Https,
        };
        let login = listed(data, image).or_else(|| given(data, image));
        Ok(Self { scheme, login, authorities })
    }

    /// Returns how to connect to the registry.
    pub fn transport(&self) -> Transport {
        match self.scheme {
            Scheme::Http => Transport::PlainHttp,
            Scheme::Https if self.authorities.is_empty() => Transport::PublicAuthority,
            Scheme::Https => Transport::OwnAuthority,
        }
    }

    /// Returns the access to the registry of a base image. Only a login for exactly its host is used. `ca.crt` applies
    /// here too, and `isInternal` applies if the Secret specifies the base image's host. `bundle` contains further CAs
    /// in PEM format. The bundle does not switch an internal registry to HTTPS.
    pub fn foreign(data: &SecretData, image: &ImageRef, bundle: &[u8]) -> Self {
        let mut authorities = data.get("ca.crt").map(|pem| pem.0.clone()).unwrap_or_default();
        let is_plain = authorities.is_empty()
            && (is_loopback(&image.registry) && bundle.is_empty()
                || choice::is_internal(data) && is_named(data, image));
        let scheme = if is_plain { Scheme::Http } else { Scheme::Https };
        if !authorities.is_empty() && !bundle.is_empty() {
            // The file may lack a newline at the end.
            authorities.push(b'\n');
        }
        authorities.extend_from_slice(bundle);
        Self { scheme, login: listed(data, image), authorities }
    }
}

fn listed(data: &SecretData, image: &ImageRef) -> Option<Login> {
    docker_config::login(&data.get(".dockerconfigjson")?.0, image)
}

/// Returns `username` and `password` if the Secret specifies the image's registry.
fn given(data: &SecretData, image: &ImageRef) -> Option<Login> {
    if !is_named(data, image) {
        return None;
    }
    let line = |key| choice::text(data, key).filter(|text| !text.is_empty() && !text.chars().any(char::is_control));
    let (username, password) = (line("username")?.to_owned(), line("password")?.to_owned());
    Some(Login { username, password: Secret::new(password) })
}

/// Whether the Secret specifies the image's registry.
fn is_named(data: &SecretData, image: &ImageRef) -> bool {
    let address = |key| choice::text(data, key).and_then(|text| Address::parse(text).ok());
    let mut addresses = ["registryAddress", "pushRegAddr", "serverAddress"].into_iter().filter_map(address);
    addresses.any(|address| address.host() == image.registry)
}

/// Whether a host with or without a port is the local host.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    #[track_caller]
    fn check(pairs: &[(&str, &str)], image: &str, expected: &str) {
        let data =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
        let got = match Access::own(&data, &image.parse().unwrap()) {
            Ok(access) => format!("{:?} {}", access.scheme, access.login.map_or("-".into(), |login| login.username)),
            Err(problem) => problem.what,
        };
        assert_eq!(got, expected, "{pairs:?}");
    }

    #[test]
    fn speaks_plain_http_to_internal_registries_and_this_machine_only() {
        check(&[], "h.io/a", "Https -");
        check(&[], "localhost:5000/a", "Http -");
        check(&[], "127.0.0.1.evil.io/a", "Https -");
        check(&[("isInternal", "true")], "r.svc:5000/a", "Http -");
        check(&[("isInternal", "false")], "r.svc:5000/a", "Https -");
        check(&[("isInternal", "true"), ("ca.crt", "x")], "r.svc:5000/a", "Https -");
        check(&[("registryAddress", "https://localhost:1")], "localhost:1/a", "Https -");
        let refused = "the address of the registry begins with http://";
        check(&[("registryAddress", "http://h.io")], "h.io/a", refused);
    }

    #[test]
    fn sends_a_login_where_the_secret_says() {
        let with = |address| [("username", "u"), ("password", "p\n"), ("registryAddress", address)];
        check(&with("h.io/path"), "h.io/path/a", "Https u");
        check(&with("user"), "docker.io/user/a", "Https u");
        check(&with("h.io"), "h.io:444/a", "Https -");
        check(&with("other.io"), "h.io/a", "Https -");
    }

    #[test]
    fn a_login_for_a_base_image_is_listed_or_there_is_none() {
        let listed =
            docker_config::docker_config("base.io", &Login { username: "b".into(), password: Secret::new("p".into()) });
        let data = [("username", "u"), ("password", "p"), (".dockerconfigjson", &listed)]
            .map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec())))
            .into();
        let base = |image: &str| Access::foreign(&data, &image.parse().unwrap(), b"").login.map(|login| login.username);
        assert_eq!(base("base.io/a").as_deref(), Some("b"));
        assert_eq!(base("other.io/a"), None);
    }

    #[test]
    fn a_base_image_is_fetched_as_the_secret_says() {
        let with_bundle = |pairs: &[(&str, &str)], image: &str, bundle: &str| {
            let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
            let access = Access::foreign(&data.collect(), &image.parse().unwrap(), bundle.as_bytes());
            (access.scheme, access.authorities.len())
        };
        let scheme = |pairs: &[(&str, &str)], image: &str| with_bundle(pairs, image, "");
        let named = ("serverAddress", "r.svc:5000");
        assert_eq!(scheme(&[], "h.io/a"), (Scheme::Https, 0));
        assert_eq!(scheme(&[], "localhost:5000/a"), (Scheme::Http, 0));
        assert_eq!(scheme(&[("ca.crt", "pem")], "h.io/a"), (Scheme::Https, 3));
        assert_eq!(scheme(&[("isInternal", "true"), named], "r.svc:5000/a"), (Scheme::Http, 0));
        assert_eq!(scheme(&[("isInternal", "true"), named, ("ca.crt", "pem")], "r.svc:5000/a"), (Scheme::Https, 3));
        assert_eq!(scheme(&[("isInternal", "true"), named], "h.io/a"), (Scheme::Https, 0));
        assert_eq!(with_bundle(&[], "h.io/a", "more"), (Scheme::Https, 4));
        assert_eq!(with_bundle(&[("ca.crt", "pem")], "h.io/a", "more"), (Scheme::Https, 8));
        assert_eq!(with_bundle(&[("isInternal", "true"), named], "r.svc:5000/a", "more"), (Scheme::Http, 4));
    }
}
