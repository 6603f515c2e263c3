//! Parses a kubeconfig from a Secret: the cluster and the user of its current context.
//!
//! A kubeconfig can reference programs, files and proxies, which would be those of the agent. Only fields that are
//! known to be harmless are accepted. An error lists the others.
//!
//! Invariant: no file is read, no program is run, and the environment is not used.
//! Invariant: errors and `Debug` show only the server URL and the names of contexts, clusters and users.
//!
//! Not here: the connection (`remote`), and the check of the address.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde_json::{Map, Value};

use mainstay_object::{Secret, printable, yaml_excess};

/// Maximum size in bytes. A kubeconfig with the CAs of a hundred clusters fits.
const MAX_BYTES: usize = 256 << 10;
/// Maximum number of values. The parser takes up to 1 KiB of memory for each, and time for each open bracket.
const MAX_VALUES: usize = 10_000;
/// The remedy of a kubeconfig that is too large or is not YAML.
const MINIFY: &str = "paste the output of `kubectl config view --raw --minify`";
/// Maximum number of characters of a name in a message.
const SHOWN: usize = 80;

/// The cluster of a kubeconfig with inline credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    pub(super) server: Uri,
    /// CA certificates (DER); `None` stands for those of the machine.
    pub(super) authorities: Option<Vec<Vec<u8>>>,
    pub(super) server_name: Option<String>,
    pub(super) token: Option<Secret<String>>,
    /// A client certificate and its key, each in base64-encoded PEM.
    pub(super) identity: Option<(String, Secret<String>)>,
}

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Whether a server without TLS is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainHttp {
    /// The server is accepted: the agent runs on a developer's machine, where it also reads local directories as
    /// repositories.
    Allowed,
    /// The server is refused, as in all other cases.
    Refused,
}

/// Known fields of a cluster. Refused fields have a reason.
const OF_CLUSTER: [(&str, Option<&str>); 8] = [
    ("server", None),
    ("certificate-authority-data", None),
    ("tls-server-name", None),
    ("disable-compression", None),
    ("extensions", None),
    (
        "certificate-authority",
        Some("it names a file; put the certificate itself into certificate-authority-data (base64)"),
    ),
    (
        "insecure-skip-tls-verify",
        Some(
            "anyone on the network path could read the credentials; put the server's CA into \
             certificate-authority-data instead",
        ),
    ),
    ("proxy-url", Some("the agent connects to clusters without a proxy; remove it")),
];

/// Known fields of a user. Refused fields have a reason.
const OF_USER: [(&str, Option<&str>); 15] = [
    ("token", None),
    ("client-certificate-data", None),
    ("client-key-data", None),
    ("extensions", None),
    ("exec", Some(PROGRAM)),
    ("auth-provider", Some(PROGRAM)),
    ("tokenFile", Some("it names a file; put the token itself into token")),
    ("token-file", Some("it names a file; put the token itself into token")),
    ("client-certificate", Some("it names a file; put the certificate itself into client-certificate-data (base64)")),
    ("client-key", Some("it names a file; put the key itself into client-key-data (base64)")),
    ("username", Some("API servers no longer accept passwords; use a token or a client certificate")),
    ("password", Some("API servers no longer accept passwords; use a token or a client certificate")),
    ("as", Some(IMPERSONATION)),
    ("as-uid", Some(IMPERSONATION)),
    ("as-groups", Some(IMPERSONATION)),
];

const PROGRAM: &str = "it would run a program in the agent; use the token of a ServiceAccount of that cluster instead";
const IMPERSONATION: &str = "the agent impersonates only the ServiceAccount of spec.serviceAccountName; remove it";

const TEXT: &str = "must be a string";

impl Kubeconfig {
    /// Parses a kubeconfig.
    ///
    /// # Errors
    /// The first problem, with its path in the kubeconfig and advice.
    pub fn parse(content: &[u8], plain: PlainHttp) -> Result<Self, String> {
        if content.len() > MAX_BYTES {
            return Err(format!("has more than {} KiB; remove all other clusters from it", MAX_BYTES >> 10));
        }
        if let Some(excess) = yaml_excess(content, MAX_VALUES) {
            return Err(format!("{excess}; {MINIFY}"));
        }
        // Error messages of the parser quote the content, so only the line is shown.
        let place = |error: &serde_yaml::Error| error.location().map(|at| format!(" (line {})", at.line()));
        let whole: Value = serde_yaml::from_slice(content)
            .map_err(|error| format!("is not valid YAML{}; {MINIFY}", place(&error).unwrap_or_default()))?;
        let whole =
            whole.as_object().ok_or("is not a kubeconfig: it must be a mapping with clusters, users and contexts")?;
        let current =
            text(whole, "", "current-context")?.ok_or("current-context: is missing; name the context to use")?;
        let (at, context) = named(whole, "contexts", "context", current, "current-context")?;
        let cluster =
            text(&context, &at, "cluster")?.ok_or_else(|| format!("{at}.cluster: is missing; name a cluster"))?;
        let user = text(&context, &at, "user")?.ok_or_else(|| format!("{at}.user: is missing; name a user"))?;
        let (of_cluster, cluster) = named(whole, "clusters", "cluster", cluster, &format!("{at}.cluster"))?;
        let (of_user, user) = named(whole, "users", "user", user, &format!("{at}.user"))?;
        allowed(&cluster, &of_cluster, &OF_CLUSTER)?;
        allowed(&user, &of_user, &OF_USER)?;
        let server = server(&cluster, &of_cluster, plain)?;
        let authorities = authorities(&cluster, &of_cluster)?;
        let server_name = text(&cluster, &of_cluster, "tls-server-name")?.map(str::to_owned);
        let token = text(&user, &of_user, "token")?.map(|token| token.trim().to_owned());
        if token.as_ref().is_some_and(|token| token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(format!("{of_user}.token: is not a token; paste it in one line, without quotes around it"));
        }
        let identity = identity(&user, &of_user)?;
        if token.is_none() && identity.is_none() {
            return Err(format!(
                "{of_user}: has no credentials; give it a token, or client-certificate-data and client-key-data"
            ));
        }
        Ok(Self { server, authorities, server_name, token: token.map(Secret::new), identity })
    }

    /// Returns the server's host, without brackets, and its port.
    pub fn address(&self) -> (&str, u16) {
        let host = self.server.host().unwrap_or_default().trim_matches(['[', ']']);
        let default = if self.server.scheme_str() == Some("http") { 80 } else { 443 };
        (host, self.server.port_u16().unwrap_or(default))
    }
}

fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN).collect();
    printable(&cut).into_owned()
}

fn text<'m>(map: &'m Map<String, Value>, place: &str, field: &str) -> Result<Option<&'m str>, String> {
    let dot = if place.is_empty() { "" } else { "." };
    match map.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{place}{dot}{field}: {TEXT}")),
    }
}

/// Returns the entry of a list with this name, and its path.
fn named(
    whole: &Map<String, Value>,
    list: &str,
    field: &str,
    name: &str,
    by: &str,
) -> Result<(String, Map<String, Value>), String> {
    let entries =
        whole.get(list).and_then(Value::as_array).ok_or_else(|| format!("{list}: is missing, or is not a list"))?;
    let is_it = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(name);
    let mut found = entries.iter().enumerate().filter(|(_, entry)| is_it(entry));
    let (Some((at, entry)), None) = (found.next(), found.next()) else {
        let how_many = if entries.iter().any(|entry| is_it(&entry)) { "more than one entry" } else { "no entry" };
        return Err(format!("{by}: {list} has {how_many} with the name {:?}", shown(name)));
    };
    let place = format!("{list}[{at}].{field}");
    match entry.get(field) {
        Some(Value::Object(found)) => Ok((place, found.clone())),
        _ => Err(format!("{place}: is missing, or is not a mapping")),
    }
}

/// Refuses each field that is not known to be harmless. Empty values count as unset.
fn allowed(map: &Map<String, Value>, place: &str, known: &[(&str, Option<&str>)]) -> Result<(), String> {
    for (field, value) in map {
        let is_unset = match value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        match known.iter().find(|(name, _)| name == field) {
            _ if is_unset => {}
            Some((_, None)) => {}
            Some((_, Some(why))) => return Err(format!("{place}.{field}: is not allowed: {why}")),
            None if field.starts_with("as-") => {
                return Err(format!("{place}.{}: is not allowed: {IMPERSONATION}", shown(field)));
            }
            None => {
                return Err(format!("{place}.{}: is not known, and not allowed; remove it", shown(field)));
            }
        }
    }
    Ok(())
}

fn server(cluster: &Map<String, Value>, place: &str, plain: PlainHttp) -> Result<Uri, String> {
    let text = text(cluster, place, "server")?
        .ok_or_else(|| format!("{place}.server: is missing; give the URL of the API server"))?;
    let wrong = |why: &str| format!("{place}.server: {why}");
    // A URL of a host that only looks like the intended one would receive the credentials.
    if !text.is_ascii() || text.contains(['@', '?', '#', '%', '\\']) {
        return Err(wrong(
            "is not the URL of an API server; write https://host:port, without a user, a query or letters of other \
             scripts",
        ));
    }
    let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| wrong("is not a URL; write https://host:port"))?;
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if plain == PlainHttp::Allowed => {}
        _ => return Err(wrong("must begin with https://, or anyone on the network path could read the credentials")),
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(wrong("has no host; write https://host:port"));
    }
    Ok(uri)
}

/// Decodes a base64 field.
fn decoded(map: &Map<String, Value>, place: &str, field: &str) -> Result<Option<Vec<u8>>, String> {
    let Some(encoded) = text(map, place, field)? else { return Ok(None) };
    let encoded: String = encoded.split_ascii_whitespace().collect();
    let decoded = STANDARD.decode(encoded);
    decoded.map(Some).map_err(|_| format!("{place}.{field}: is not base64; encode it with `base64 -w0 FILE`"))
}

/// Returns the certificates of a PEM file, if there is one.
pub(super) fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
    (!found.is_empty()).then_some(found)
}

fn authorities(cluster: &Map<String, Value>, place: &str) -> Result<Option<Vec<Vec<u8>>>, String> {
    let field = "certificate-authority-data";
    let Some(pem) = decoded(cluster, place, field)? else { return Ok(None) };
    let wrong = || format!("{place}.{field}: does not contain a usable certificate in PEM format");
    let found = certificates(&pem).ok_or_else(wrong)?;
    let mut store = rustls::RootCertStore::empty();
    for certificate in &found {
        store.add(certificate.clone()).map_err(|_| wrong())?;
    }
    Ok(Some(found.into_iter().map(|certificate| certificate.to_vec()).collect()))
}

fn identity(user: &Map<String, Value>, place: &str) -> Result<Option<(String, Secret<String>)>, String> {
    let (certificate, key) = ("client-certificate-data", "client-key-data");
    let (chain, private) = match (decoded(user, place, certificate)?, decoded(user, place, key)?) {
        (None, None) => return Ok(None),
        (Some(_), None) => {
            return Err(format!("{place}.{key}: is missing; the key of the client certificate belongs there"));
        }
        (None, Some(_)) => {
            return Err(format!("{place}.{certificate}: is missing; the certificate of the key belongs there"));
        }
        (Some(chain), Some(private)) => (chain, private),
    };
    let chain_der = certificates(&chain)
        .ok_or_else(|| format!("{place}.{certificate}: does not contain a certificate in PEM format"))?;
    let private_der = PrivateKeyDer::from_pem_slice(&private)
        .map_err(|_| format!("{place}.{key}: does not contain a private key in PEM format (without a passphrase)"))?;
    CertifiedKey::from_der(chain_der, private_der, &rustls::crypto::ring::default_provider())
        .map_err(|_| format!("{place}.{key}: cannot be used with the certificate in {certificate}"))?;
    Ok(Some((STANDARD.encode(&chain), Secret::new(STANDARD.encode(&private)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "canary-secret-value";

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\nclusters:\n- name: other\n  cluster: {{server: \
             \"https://192.0.2.9\"}}\n- name: it\n  cluster: {{{cluster}}}\nusers:\n- name: it\n  user: \
             {{{user}}}\ncontexts:\n- name: \
             it\n  context: {{cluster: it, user: it, namespace: shop}}\n"
        )
    }

    const SERVER: &str = "server: 'https://api.example.org:6443'";
    const TOKEN: &str = "token: canary-secret-value";

    fn refusal(text: &str) -> String {
        let refused = Kubeconfig::parse(text.as_bytes(), PlainHttp::Refused).unwrap_err();
        assert!(!refused.contains(SECRET), "{refused}");
        refused
    }

    fn check(cluster: &str, user: &str, expected: &str) {
        let refused = refusal(&kubeconfig(cluster, user));
        assert!(refused.starts_with(expected), "{refused}\n{expected}");
    }

    #[test]
    fn reads_the_server_and_the_credentials_of_the_current_context() {
        let read = Kubeconfig::parse(kubeconfig(SERVER, TOKEN).as_bytes(), PlainHttp::Refused).unwrap();
        assert_eq!(read.address(), ("api.example.org", 6443));
        assert_eq!(read.token.as_ref().map(|token| &**token.expose()), Some(SECRET));
        assert_eq!(format!("{read:?}"), "Kubeconfig { server: https://api.example.org:6443/, .. }");
        let bare = kubeconfig("server: 'https://[2001:db8::1]'", TOKEN);
        assert_eq!(Kubeconfig::parse(bare.as_bytes(), PlainHttp::Refused).unwrap().address(), ("2001:db8::1", 443));
        let unset = format!("{SERVER}, insecure-skip-tls-verify: false, proxy-url: '', certificate-authority: null");
        assert!(Kubeconfig::parse(kubeconfig(&unset, TOKEN).as_bytes(), PlainHttp::Refused).is_ok());
    }

    #[test]
    fn fields_that_run_a_program_read_a_file_or_use_a_proxy_are_refused_by_name() {
        for (field, value) in [
            ("exec", "{command: sh}"),
            ("auth-provider", "{name: gcp}"),
            ("tokenFile", "/var/run/secrets/token"),
            ("client-certificate", "/a"),
            ("client-key", "/a"),
            ("username", "canary-secret-value"),
            ("password", "canary-secret-value"),
            ("as", "system:admin"),
            ("as-uid", "x"),
            ("as-groups", "['system:masters']"),
            ("as-user-extra", "{a: [b]}"),
        ] {
            check(SERVER, &format!("{TOKEN}, {field}: {value}"), &format!("users[0].user.{field}: is not allowed: "));
        }
        for (field, value) in
            [("certificate-authority", "/a"), ("insecure-skip-tls-verify", "true"), ("proxy-url", "'http://x'")]
        {
            let fields = format!("{SERVER}, {field}: {value}");
            check(&fields, TOKEN, &format!("clusters[1].cluster.{field}: is not allowed: "));
        }
        check(
            SERVER,
            &format!("{TOKEN}, something-new: canary-secret-value"),
            "users[0].user.something-new: is not known, and not allowed",
        );
    }

    #[test]
    fn says_where_something_is_missing_or_wrong() {
        check("server: 'http://api.example.org'", TOKEN, "clusters[1].cluster.server: must begin with https://");
        check(
            "server: 'https://user:canary-secret-value@x'",
            TOKEN,
            "clusters[1].cluster.server: is not the URL of an API server",
        );
        check(
            "server: 'https://аpi.example.org'",
            TOKEN,
            "clusters[1].cluster.server: is not the URL of an API server",
        );
        check("server: 'https://'", TOKEN, "clusters[1].cluster.server: ");
        check("server: [1]", TOKEN, "clusters[1].cluster.server: must be a string");
        check("", TOKEN, "clusters[1].cluster.server: is missing");
        check(SERVER, "", "users[0].user: has no credentials");
        check(SERVER, "token: 'two words'", "users[0].user.token: is not a token");
        check(
            SERVER,
            "client-key-data: Y2FuYXJ5LXNlY3JldC12YWx1ZQ==",
            "users[0].user.client-certificate-data: is missing",
        );
        check(SERVER, "client-certificate-data: '***'", "users[0].user.client-certificate-data: is not base64");
        let both = "client-certificate-data: Y2E=, client-key-data: Y2FuYXJ5LXNlY3JldC12YWx1ZQ==";
        check(SERVER, both, "users[0].user.client-certificate-data: does not contain a certificate");
        let authority = format!("{SERVER}, certificate-authority-data: Y2E=");
        check(
            &authority,
            TOKEN,
            "clusters[1].cluster.certificate-authority-data: does not contain a usable certificate",
        );
        for (text, expected) in [
            ("", "is not a kubeconfig"),
            ("canary-secret-value", "is not a kubeconfig"),
            ("a: [canary-secret-value", "is not valid YAML"),
            ("clusters: []", "current-context: is missing"),
            ("current-context: it", "contexts: is missing"),
            ("current-context: it\ncontexts: []", "current-context: contexts has no entry with the name \"it\""),
            (
                "current-context: it\ncontexts: [{name: it}, {name: it}]",
                "current-context: contexts has more than one entry",
            ),
            ("current-context: it\ncontexts: [{name: it}]", "contexts[0].context: is missing"),
            (
                "current-context: it\ncontexts: [{name: it, context: {user: it}}]",
                "contexts[0].context.cluster: is missing",
            ),
        ] {
            let refused = refusal(text);
            assert!(refused.starts_with(expected), "{refused}\n{expected}");
        }
    }

    #[test]
    fn a_kubeconfig_that_is_made_to_harm_costs_little() {
        let long = format!("a: {}", "x".repeat(MAX_BYTES));
        assert!(refusal(&long).starts_with("has more than 256 KiB"));
        let bomb = (0..40).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
            let next = n + 1;
            format!("{text}a{next}: &a{next} [*a{n}, *a{n}, *a{n}, *a{n}]\n")
        });
        let many = ["[", "{", "- ", "? ", "a,", "- a:\n"].map(|opening| opening.repeat(MAX_BYTES / opening.len()));
        let nested = "[".repeat(MAX_VALUES);
        let many =
            many.iter().map(|text| (text, "has more than 10000 values; paste the output of `kubectl config view"));
        for (text, expected) in many.chain([
            (&bomb, "has an alias (`*name`) in line 2; paste the output of `kubectl config view --raw --minify`"),
            (&nested, "is not valid YAML"),
        ]) {
            let begun = std::time::Instant::now();
            let refused = refusal(text);
            assert!(refused.starts_with(expected), "{refused}\n{expected}");
            assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{refused}");
        }
    }

    #[test]
    fn a_kubeconfig_whose_aliases_repeat_a_long_value_is_refused() {
        let repeated = |value: &str, times: usize| format!("a: &a {value}\nb:\n{}", "- *a\n".repeat(times));
        let (list, text) = (format!("[{}]", "0,".repeat(5_000)), "x".repeat(200 << 10));
        for text in [repeated(&list, 4_000), repeated(&text, 9_000)] {
            assert!(text.len() <= MAX_BYTES);
            assert!(refusal(&text).starts_with("has an alias (`*name`) in line 3; "));
        }
    }

    #[test]
    fn a_kubeconfig_of_a_hundred_clusters_is_read() {
        let authority = "A".repeat(1_500);
        let listed = |one: &dyn Fn(&str) -> String| {
            (0..100).map(|at| one(&format!("arn:aws:eks:eu-west-1:123456789012:cluster/{at}"))).collect::<String>()
        };
        let clusters = listed(&|name| {
            format!(
                "- name: {name}\n  cluster:\n    certificate-authority-data: {authority}\n    server: \
                 https://api.example.org:6443\n"
            )
        });
        let contexts = listed(&|name| format!("- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n"));
        let users = listed(&|name| format!("- name: {name}\n  user:\n    token: a&b-*b\n"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\nclusters:\n- name: it\n  cluster: \
             {{{SERVER}}}\n{clusters}contexts:\n- name: it\n  context: {{cluster: it, user: \
             it}}\n{contexts}users:\n- name: it\n  user: {{{TOKEN}}}\n{users}"
        );
        assert_eq!(Kubeconfig::parse(text.as_bytes(), PlainHttp::Refused).map(|read| read.token.is_some()), Ok(true));
    }

    #[test]
    fn without_tls_only_where_local_things_are_allowed() {
        let text = kubeconfig("server: 'http://127.0.0.1:8001'", TOKEN);
        assert!(Kubeconfig::parse(text.as_bytes(), PlainHttp::Allowed).is_ok());
        assert!(Kubeconfig::parse(text.as_bytes(), PlainHttp::Refused).is_err());
    }
}
