//! Text that is formatted into a URL or a host outside the types of `mainstay_object::names`.
//!
//! A name of a spec in an address could add a host, port, user or path. The types therefore build addresses. The files
//! below are the only exceptions.

use super::{PRODUCT, production, sources};

/// Files that build an address from a string: the file, the literal, and why it is safe.
const PERMITTED: &[(&str, &str, &str)] = &[
    ("src/object/src/names/address.rs", "{}.{}.svc.{CLUSTER_DOMAIN}", "the types themselves"),
    ("src/object/src/names/address.rs", "{}://{}", "the types themselves"),
    ("src/object/src/names/address.rs", "{}://{}{path}", "the types themselves"),
    (
        "src/exposure/src/access_rule.rs",
        "<http|https>://{}<{}>",
        "a pattern of requests: a HostName and an anchored path",
    ),
    ("src/cluster/src/connect.rs", "http://{proxy}", "a variable of the operator's environment, parsed afterwards"),
    ("src/git/src/address.rs", "{}://{}{port}", "parts of a parsed URL, for a comparison"),
    ("src/git/src/address.rs", "{scheme}://{host}{path}", "the URL of an artifact, to be shown"),
    (
        "src/object/src/egress/policy.rs",
        "http://{value}",
        "a variable of the operator's environment, parsed afterwards",
    ),
    ("src/git/src/git_address.rs", "http://{rest}", "the parser of git:// addresses; egress judges the result"),
    ("src/git/src/git_address.rs", "git://{}{path}", "the parser of git:// addresses; egress judges the result"),
    ("src/git/src/lfs.rs", "https://{host}/{}.git/info/lfs", "parts of a parsed SSH address; egress judges the result"),
    ("src/git/src/proxy.rs", "{scheme}://{}", "parts of a parsed URL of a proxy; egress judges the result"),
    ("src/git/src/ssh_address.rs", "ssh://{}@{host}{port}{slash}{}", "parts of a parsed SSH address, to be shown"),
    ("src/function/src/registry/client/mod.rs", "{scheme}://{host}/", "the registry of a Secret, parsed and compared"),
    ("src/function/src/resolve.rs", "docker://{name}`", "a command that is printed"),
    ("src/function/src/variables/unknown.rs", "tcp://", "forms of variables that are left out"),
    ("src/function/src/variables/unknown.rs", "udp://", "forms of variables that are left out"),
    ("src/function/src/variables/unknown.rs", "sctp://", "forms of variables that are left out"),
    ("src/function/src/stage/knative.rs", "{name}.{namespace}.svc.", "a comparison with a host that Knative wrote"),
    (
        "src/eventing/src/seen.rs",
        "http://eventing-publisher-proxy.kyma-system.svc.cluster.local/brokers/{namespace}/{name}",
        "the status of a Broker: names of objects that the API server checked",
    ),
    (
        "src/mainstay/agent/listening.rs",
        "{ADMISSION}.{namespace}.svc",
        "the agent's own namespace, for its certificate",
    ),
    ("src/mainstay/cli/deploy_key.rs", "https://github.com/{owner}/{name}/settings/keys/new", "a link that is printed"),
    ("src/mainstay/cli/deploy_key.rs", "https://gitlab.com/{path}/-/settings/repository", "a link that is printed"),
    (
        "src/mainstay/cli/deploy_key.rs",
        "https://bitbucket.org/{owner}/{name}/admin/access-keys/",
        "a link that is printed",
    ),
    ("src/mainstay/cli/deploy_key.rs", "https://codeberg.org/{owner}/{name}/settings/keys", "a link that is printed"),
    (
        "src/mainstay/cli/deploy_key.rs",
        "https://dev.azure.com/{organisation}/_usersSettings/keys",
        "a link that is printed",
    ),
    ("src/git/src/cloud/aws.rs", "https://sts.{}.{}/", "a region and a domain from lists"),
    ("src/git/src/cloud/aws.rs", "https://{host}/", "a region and a domain from lists"),
    (
        "src/git/src/cloud/azure.rs",
        "https://{host}/oauth2/exchange?api-version=2021-07-01",
        "the host of a registry, of plain labels below a domain of Azure",
    ),
    ("src/git/src/cloud/azure.rs", "https://{host}/.default", "the scope of a token, to which nothing is sent"),
    ("src/git/src/cloud/google.rs", "{project}.svc.id.goog", "an audience"),
    (
        "src/git/src/cloud/google.rs",
        "https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{name}",
        "an audience",
    ),
    (
        "src/git/src/cloud/google.rs",
        "http://{host}/computeMetadata/v1/{path}",
        "a host of the agent's own settings, with paths that are constants",
    ),
    ("src/mainstay/agent/images/repository.rs", "oci://{}", "the image, as the subject of deliveries"),
    ("src/console/src/remote.rs", "{scheme}://{host}{}", "parts of a known URL, to be shown without its login"),
    ("src/console/src/remote.rs", "{scheme}://{name}:{port}", "parts of a known URL, to be shown as a link"),
    ("src/console/src/remote.rs", "{scheme}://{name}", "parts of a known URL, to be shown as a link"),
    ("src/console/src/remote.rs", "https://{name}", "parts of a known URL, to be shown as a link"),
    ("src/console/src/facts.rs", "{}://{name}/", "a checked HostName, to be shown as a link"),
    ("src/console/src/web_origin.rs", "{}://{}", "the origin that the operator names"),
    ("src/mainstay/cli/dev/eventing.rs", "http://{}/publish", "a loopback address of this process"),
    ("src/mainstay/cli/dev/eventing.rs", "{applications}.{NAMESPACE}.svc.cluster.local", "two constants"),
    ("src/mainstay/cli/dev/install.rs", "https://{address}{path}", "a loopback address of this process"),
    ("src/mainstay/cli/dev/messages.rs", "http://{}", "a loopback address of this process"),
    ("src/mainstay/cli/dev/messages.rs", "https://{}", "a loopback address of this process"),
    ("src/mainstay/cli/dev/messages.rs", "http://HOST.localhost:{port}", "a hint that is printed"),
    ("src/mainstay/cli/dev/messages.rs", "https://HOST.localhost:{secure}", "a hint that is printed"),
    ("src/mainstay/cli/dev/mod.rs", "http://{at}", "a loopback address of this process"),
    ("src/mainstay/agent/nats_login.rs", "{NATS}.{EVENTING_NAMESPACE}.svc", "two constants"),
    (
        "src/mainstay/cli/install/nats.rs",
        "tls://{NATS}-{number}.{NATS}.{EVENTING_NAMESPACE}.svc:4222",
        "two constants and a number",
    ),
    ("src/mainstay/cli/install/objects.rs", ".{}.svc.", "replaces the namespace in the agent's own manifests"),
    (
        "src/mainstay/cli/install/objects.rs",
        ".{MANIFEST_NAMESPACE}.svc.",
        "replaces the namespace in the agent's own manifests",
    ),
    (
        "src/mainstay/cli/function/companions.rs",
        "http://{name}.{namespace}.svc.cluster.local",
        "an object of the user's",
    ),
];

/// Calls that only read a string.
const READERS: &[&str] = &[
    "contains(",
    "split_once(",
    "rsplit_once(",
    "strip_prefix(",
    "strip_suffix(",
    "starts_with(",
    "ends_with(",
    "find(",
    "split(",
];

#[test]
fn addresses_are_built_from_types() {
    let mut found = Vec::new();
    for path in PRODUCT.into_iter().flat_map(sources) {
        let name = path.to_str().unwrap();
        if !name.ends_with("tests.rs") && !name.contains("/tests/") {
            found.extend(built(&production(&path)).into_iter().map(|literal| (name.to_owned(), literal)));
        }
    }
    let is_permitted =
        |(file, literal): &(String, String)| PERMITTED.iter().any(|one| (one.0, one.1) == (file, literal));
    let new: Vec<_> = found.iter().filter(|found| !is_permitted(found)).collect();
    assert!(
        new.is_empty(),
        "text becomes part of an address; build it from the types of mainstay_object::names: {new:#?}"
    );
    let is_there =
        |(file, literal, _): &&(&str, &str, &str)| found.iter().any(|one| (&*one.0, &*one.1) == (*file, *literal));
    let gone: Vec<_> = PERMITTED.iter().filter(|one| !is_there(one)).collect();
    assert!(gone.is_empty(), "these places are gone; remove them from the list: {gone:#?}");
}

#[test]
fn addresses_of_text_are_found_in_code() {
    for code in [
        r#"format!("http://{}:{}", spec.name, spec.port)"#,
        r#"write!(f, "{name}.{namespace}.svc.cluster.local")"#,
        r#"let host = name.to_owned() + ".svc";"#,
        r#"url.push_str("://"); url.push_str(name);"#,
        r#"format!("see {} at https://{host}/keys", 1)"#,
        "format!(\n    \"https://{}\\\n    /path\", a)",
    ] {
        assert_eq!(built(code).len(), 1, "{code}");
    }
    for code in [
        r#"host.strip_suffix(".svc.cluster.local")"#,
        r#"url.split_once("://")"#,
        r#"format!("{field} begins with http:// or https://")"#,
        r#"const PROXY: &str = "http://proxy.kyma-system.svc.cluster.local/x";"#,
        r#"let character = '"'; format!("{a}: {b}")"#,
    ] {
        assert_eq!(built(code), Vec::<String>::new(), "{code}");
    }
}

/// Returns the words of literals that have a scheme or a cluster name and a placeholder or a text added.
fn built(code: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (before, literal) in literals(code) {
        let is_read = READERS.iter().any(|reader| before.trim_end().ends_with(reader));
        for word in literal.split_whitespace() {
            let is_address = word.contains("://") || word.contains(".svc");
            let has_place = word.contains('{') && is_address;
            let is_part = literal == word && (word.ends_with("://") || word.starts_with(".svc"));
            if has_place || is_part && !is_read {
                words.push(word.trim_end_matches("\\n").trim_end_matches('\\').to_owned());
            }
        }
    }
    words
}

/// Returns the string literals of code, each with the code before it.
fn literals(code: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let (mut from, mut escaped) = (None, false);
    for (at, character) in code.char_indices() {
        match (from, character) {
            (None, '"') if !code[..at].ends_with('\'') && !code[..at].ends_with("'\\") => from = Some(at + 1),
            (Some(start), '"') if !escaped => {
                found.push((&code[..start - 1], &code[start..at]));
                from = None;
            }
            _ => {}
        }
        escaped = from.is_some() && character == '\\' && !escaped;
    }
    found
}
