//! Checks an image by its name alone.
//!
//! Not here: requests to a registry. An image with a valid name and a possible host counts as available.

/// Maximum length of a name without tag and digest, in bytes.
const LONGEST: usize = 255;

/// Why a node cannot pull an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The name is invalid.
    InvalidName(&'static str),
    /// The registry's host does not exist.
    NoHost(String),
}

/// Finds the fault of an image name by the grammar of container runtimes.
pub(super) fn fault(image: &str) -> Option<Fault> {
    match host(image) {
        Err(why) => Some(Fault::InvalidName(why)),
        Ok(host) => {
            let domain = host.split(':').next().unwrap_or_default();
            // RFC 6761: no name below `.invalid` exists.
            let is_none = domain == "invalid" || domain.ends_with(".invalid");
            is_none.then(|| Fault::NoHost(domain.to_owned()))
        }
    }
}

/// Returns the registry host of an image name, empty for the default; `Err` if the name is invalid.
fn host(image: &str) -> Result<&str, &'static str> {
    const FORMAT: &str = "invalid reference format";
    if is_hex(image, 64) && image.len() == 64 {
        return Err("invalid repository name, cannot specify 64-byte hexadecimal strings");
    }
    let (rest, digest) = image.split_once('@').map_or((image, None), |(rest, digest)| (rest, Some(digest)));
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Err(FORMAT);
    }
    // A first component with a dot, a port or an upper-case letter is a host.
    let is_host = |part: &str| part.contains(['.', ':']) || part == "localhost" || part.to_lowercase() != part;
    let (host, path) = match rest.split_once('/') {
        Some((first, path)) if is_host(first) => (first, path),
        _ => ("", rest),
    };
    let (path, tag) = path.split_once(':').map_or((path, None), |(path, tag)| (path, Some(tag)));
    if path.to_lowercase() != path {
        return Err("invalid reference format: repository name must be lowercase");
    }
    let is_whole = (host.is_empty() || is_domain(host) || is_component(host))
        && path.split('/').all(is_component)
        && tag.is_none_or(is_tag)
        && host.len() + 1 + path.len() <= LONGEST;
    if is_whole { Ok(host) } else { Err(FORMAT) }
}

fn is_hex(text: &str, least: usize) -> bool {
    text.len() >= least && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether a text is a digest: an algorithm and hexadecimal digits.
fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    match algorithm {
        "sha256" => hex.len() == 64 && is_hex(hex, 64),
        "sha384" => hex.len() == 96 && is_hex(hex, 96),
        "sha512" => hex.len() == 128 && is_hex(hex, 128),
        _ => false,
    }
}

/// Whether a text is a host with an optional port.
fn is_domain(text: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let is_address = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let is_label = |label: &str| {
        let inside = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !label.is_empty() && label.bytes().all(inside) && !label.starts_with('-') && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Whether a text is lower-case letters and digits, separated by `.`, `_`, `__` or any number of `-`.
fn is_component(part: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut separators = part.split(alphanumeric).filter(|separator| !separator.is_empty());
    part.starts_with(alphanumeric)
        && part.ends_with(alphanumeric)
        && separators.all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_names_of_images() {
        let digest = format!("nginx@sha256:{}", "a".repeat(64));
        let tagged = format!("ghcr.io/o/r:v1.2-x_3@sha256:{}", "0".repeat(64));
        for image in [
            "nginx",
            "nginx:1.27-alpine",
            "library/nginx",
            "nginxinc/nginx-unprivileged:1",
            "registry.example.com:5000/a/b__c/d---e:1",
            "localhost/a",
            "localhost:5000/a:1",
            "127.0.0.1:32137/web/a:T1",
            "[::1]:5000/a",
            "Host/a",
            "a.b_c-d/e",
            &digest,
            &tagged,
        ] {
            assert_eq!(fault(image), None, "{image}");
        }
    }

    #[test]
    fn refuses_what_names_no_image() {
        let hex = "0".repeat(64);
        let long = "a".repeat(256);
        for image in [
            "",
            "Nginx",
            "library/Nginx:1",
            "nginx:",
            "nginx:1:2",
            "nginx: 1",
            "nginx:-1",
            "-nginx",
            "nginx-",
            "a..b",
            "a___b",
            "a//b",
            "/a",
            "a/",
            "https://nginx",
            "nginx@sha256:1",
            "nginx@md5:0",
            "nginx@",
            "${IMAGE}",
            "{{ .Values.image }}",
            "nginx 1",
            "host.example.com:port/a",
            "[::1/a",
            "-h.example.com/a",
            "näme",
            &hex,
            &long,
        ] {
            assert!(matches!(fault(image), Some(Fault::InvalidName(_))), "{image}: {:?}", fault(image));
        }
    }

    #[test]
    fn knows_hosts_that_do_not_exist() {
        for image in ["registry.invalid/app:1", "registry.invalid:5000/app"] {
            assert_eq!(fault(image), Some(Fault::NoHost("registry.invalid".to_owned())), "{image}");
        }
        for image in ["invalid/app", "example.invalid.com/app", "app.invalid"] {
            assert_eq!(fault(image), None, "{image}");
        }
    }
}
