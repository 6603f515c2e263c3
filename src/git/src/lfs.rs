//! Git LFS: pointers, `.lfsconfig`, and the messages of the batch API.
//!
//! Invariant: a pointer must match the specification exactly, so no other file is mistaken for one.
//! Not here: requests (`lfs_fetch`), transfers other than `basic`, uploads and locks.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::error::Fault;
use super::ssh_address::SshAddress;
use super::{RemoteUrl, gitmodules, private_host, submodules};
use mainstay_object::egress::{METADATA_REFUSED, is_metadata_host};

/// First line of a pointer.
const VERSION: &str = "version https://git-lfs.github.com/spec/v1\n";
/// Upper bound for the size of a pointer, in bytes.
pub(super) const POINTER_BYTES: u64 = 1024;
/// Name of the file with settings of a repository.
pub(super) const CONFIG_FILE: &str = ".lfsconfig";
/// Maximum number of objects per request.
pub(super) const AT_ONCE: usize = 100;
/// Maximum size of a response, in bytes.
pub(super) const ANSWER_BYTES: u64 = 512 << 10;

/// The content of a file in a commit that stands for a file in Git LFS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Pointer {
    /// SHA-256 of the file, as 64 hexadecimal digits.
    pub(super) oid: String,
    /// The size of the file, in bytes.
    pub(super) size: u64,
}

impl Pointer {
    /// Parses a pointer; `None` if the content is not one.
    pub(super) fn read(content: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(content).ok()?.strip_prefix(VERSION)?;
        let mut found = (None, None);
        for line in text.lines() {
            let (key, value) = line.split_once(' ')?;
            match key {
                "oid" => found.0 = Some(value.strip_prefix("sha256:").filter(|oid| is_oid(oid))?.to_owned()),
                "size" => found.1 = Some(value.parse().ok()?),
                // An extension's program would have to convert the content.
                _ if key.starts_with("ext-") => return None,
                _ => {}
            }
        }
        Some(Self { oid: found.0?, size: found.1? })
    }
}

/// Validates an object id, which becomes a file name.
pub(super) fn is_oid(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// An LFS server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct LfsServer {
    pub(super) url: Url,
    /// Whether the LFS server is the repository's own server, which may receive the repository's credentials.
    pub(super) is_own: bool,
    /// Whether URLs from the server may point to hosts of a private network. The repository must be on a private host,
    /// and the server must not be chosen by a commit.
    pub(super) leads_inside: bool,
    /// Headers to send to the server.
    pub(super) header: BTreeMap<String, String>,
}

/// Omits the headers, which are credentials.
impl fmt::Debug for LfsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, is_own, .. } = self;
        f.debug_struct("LfsServer").field("host", &url.host_str()).field("is_own", is_own).finish_non_exhaustive()
    }
}

/// The location of a repository's LFS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerPlace {
    At(LfsServer),
    /// The repository's own SSH server returns the LFS server on request.
    Asked {
        about: RemoteUrl,
        leads_inside: bool,
    },
}

impl ServerPlace {
    /// Returns a name of the server. Equal servers have equal names.
    pub(super) fn name(&self) -> String {
        match self {
            Self::At(server) => server.url.to_string(),
            Self::Asked { about, .. } => about.to_string(),
        }
    }
}

/// Returns the LFS server of a repository. `config` is the content of its `.lfsconfig`.
pub(super) fn server(repository: &RemoteUrl, config: Option<&str>) -> Result<ServerPlace, Fault> {
    const FORM: Fault = Fault::Malformed { why: "`lfs.url` in .lfsconfig must have the form https://host/path" };
    if let Some(text) = config.map(configured).transpose()?.flatten() {
        let url = RemoteUrl::parse(&text).map_err(|_| FORM)?;
        if url.holds_credentials() {
            return Err(Fault::Malformed { why: "`lfs.url` in .lfsconfig must not contain a user name or password" });
        }
        if url.ssh().is_some() {
            let is_own = submodules::is_same_server(repository, &url);
            let why = "`lfs.url` in .lfsconfig must not name a different SSH server than that of the repository";
            let place = ServerPlace::Asked { about: url, leads_inside: false };
            return if is_own { Ok(place) } else { Err(Fault::Malformed { why }) };
        }
        let http = url.http().ok_or(FORM)?.clone();
        if is_public(repository) && !is_public(&url) {
            return Err(Fault::Malformed {
                why: "a repository on a public host cannot use an LFS server on a private host",
            });
        }
        let is_own = repository.http().is_some_and(|own| is_same(own, &http));
        return Ok(ServerPlace::At(LfsServer { url: http, is_own, leads_inside: false, header: BTreeMap::new() }));
    }
    let leads_inside = !is_public(repository);
    if repository.ssh().is_some() {
        return Ok(ServerPlace::Asked { about: repository.clone(), leads_inside });
    }
    let Some(own) = repository.http() else {
        return Err(Fault::Unsupported {
            what: "Git LFS of a repository that is reached neither over HTTP nor over SSH",
            instead: "write the https:// address of its LFS server into .lfsconfig as `lfs.url`",
        });
    };
    let mut url = own.clone();
    let path = own.path().trim_end_matches('/');
    url.set_path(&format!("{}.git/info/lfs", path.strip_suffix(".git").unwrap_or(path)));
    Ok(ServerPlace::At(LfsServer { url, is_own: true, leads_inside, header: BTreeMap::new() }))
}

fn is_public(url: &RemoteUrl) -> bool {
    url.host().is_some_and(|host| !private_host::is_private(host))
}

/// Returns the LFS server in the output of `git-lfs-authenticate` for a repository.
pub(super) fn asked(repository: &RemoteUrl, leads_inside: bool, answer: &[u8]) -> Result<LfsServer, Fault> {
    const DAMAGED: Fault = Fault::Lfs { why: "the response of git-lfs-authenticate cannot be read" };
    let named: Named = serde_json::from_slice(answer).map_err(|_| DAMAGED)?;
    let href = match (named.href.filter(|href| !href.is_empty()), repository.ssh()) {
        (Some(href), _) => href,
        (None, Some(SshAddress { host, path, .. })) => {
            let path = path.trim_start_matches('/');
            format!("https://{host}/{}.git/info/lfs", path.strip_suffix(".git").unwrap_or(path))
        }
        (None, None) => return Err(DAMAGED),
    };
    let url = Url::parse(&href).map_err(|_| DAMAGED)?;
    let is_http = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    let host = url.host_str().filter(|_| is_http).ok_or(DAMAGED)?;
    if is_metadata_host(host) {
        return Err(Fault::Lfs { why: METADATA_REFUSED });
    }
    let is_same_host = repository.host().is_some_and(|own| own.eq_ignore_ascii_case(host));
    if private_host::is_private(host) && !leads_inside && !is_same_host {
        return Err(Fault::Lfs { why: INSIDE });
    }
    Ok(LfsServer { url, is_own: true, leads_inside, header: named.header })
}

/// The error for a host of a private network that is not the server's own host.
const INSIDE: &str = "the LFS server redirects to a private host; only a repository on a private host may use one";

/// The output of `git-lfs-authenticate`.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    href: Option<String>,
    #[serde(default)]
    header: BTreeMap<String, String>,
}

/// Returns whether both URLs have the same origin, so that credentials for one may be sent to the other.
pub(super) fn is_same(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// Returns the address that the file configures, by the rules of git-lfs.
fn configured(text: &str) -> Result<Option<String>, Fault> {
    const UNREAD: Fault = Fault::Malformed { why: ".lfsconfig must be a valid Git configuration file" };
    let mut found = [None, None];
    for setting in gitmodules::Settings::of(text) {
        let setting = setting.map_err(|_| UNREAD)?;
        match (setting.section.as_str(), setting.key.as_str()) {
            ("lfs", "url") => found[0] = Some(setting.value.ok_or(UNREAD)?),
            ("remote.origin", "lfsurl") => found[1] = Some(setting.value.ok_or(UNREAD)?),
            _ => {}
        }
    }
    let [general, of_origin] = found;
    Ok(general.or(of_origin))
}

/// The response omits the object.
pub(super) const UNSAID: Fault = Fault::Lfs { why: "the response of the LFS server does not list the file" };

/// The server lacks the object.
pub(super) const MISSING: Fault = Fault::Lfs { why: "the server does not have the file; push it again" };

/// The received content is not the requested object.
pub(super) const OTHER: Fault = Fault::Lfs { why: "the server sent a different file than the pointer specifies" };

/// A request for objects.
#[derive(Serialize)]
struct Request<'a> {
    operation: &'static str,
    transfers: [&'static str; 1],
    objects: &'a [Pointer],
}

/// Returns the body of a request for these objects.
pub(super) fn request(objects: &[Pointer]) -> Vec<u8> {
    let request = Request { operation: "download", transfers: ["basic"], objects };
    serde_json::to_vec(&request).unwrap_or_default()
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    transfer: Option<String>,
    objects: Vec<Answered>,
}

#[derive(Deserialize)]
struct Answered {
    oid: String,
    #[serde(default)]
    actions: Option<Actions>,
    #[serde(default)]
    error: Option<Refusal>,
}

#[derive(Deserialize)]
struct Actions {
    download: Option<Download>,
}

#[derive(Deserialize)]
struct Refusal {
    code: u16,
}

/// The location of an object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Download {
    pub(super) href: String,
    #[serde(default)]
    pub(super) header: BTreeMap<String, String>,
}

/// Parses a response: for each object its location, or why there is none. Server messages are not shown, because they
/// may contain anything.
pub(super) fn answer(body: &[u8]) -> Result<HashMap<String, Result<Download, Fault>>, Fault> {
    let damaged = |why| Fault::Lfs { why };
    let answer: Answer =
        serde_json::from_slice(body).map_err(|_| damaged("the server returned an invalid response"))?;
    if answer.transfer.is_some_and(|transfer| transfer != "basic") {
        return Err(damaged("the server offers a transfer other than `basic`"));
    }
    let mut found = HashMap::new();
    for object in answer.objects {
        let place = match (object.error, object.actions.and_then(|actions| actions.download)) {
            (Some(Refusal { code: 404 | 410 }), _) => Err(MISSING),
            (Some(_), _) => Err(damaged("the server refuses the file")),
            (None, Some(download)) => Ok(download),
            (None, None) => Err(UNSAID),
        };
        found.insert(object.oid, place);
    }
    Ok(found)
}

/// Returns the URL of a download. The server is untrusted unless it is the repository's own, because a commit can
/// choose the server.
pub(super) fn download_url(href: &str, server: &LfsServer) -> Result<Url, Fault> {
    let refused = |why| Fault::Lfs { why };
    let url = Url::parse(href).map_err(|_| refused("the server returned an invalid URL"))?;
    match url.scheme() {
        "https" => {}
        "http" if server.url.scheme() == "http" => {}
        _ => return Err(refused("the server returned a download address with a different scheme than its own")),
    }
    let host = url.host_str().filter(|host| !is_metadata_host(host)).ok_or(refused(METADATA_REFUSED))?;
    if private_host::is_private(host) && !server.leads_inside && server.url.host_str() != Some(host) {
        return Err(refused(INSIDE));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OID: &str = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";

    #[test]
    fn reads_pointers_and_nothing_else() {
        let text = format!("{VERSION}oid sha256:{OID}\nsize 12345\n");
        assert_eq!(Pointer::read(text.as_bytes()), Some(Pointer { oid: OID.into(), size: 12345 }));
        for bad in [
            String::new(),
            VERSION.to_owned(),
            format!("{VERSION}oid sha256:{OID}\n"),
            format!("{VERSION}oid md5:{OID}\nsize 1\n"),
            format!("{VERSION}oid sha256:../../{}\nsize 1\n", &OID[6..]),
            format!("{VERSION}oid sha256:{OID}\nsize -1\n"),
            format!("# comment\n{text}"),
            format!("{VERSION}ext-0-foo sha256:{OID}\noid sha256:{OID}\nsize 1\n"),
        ] {
            assert_eq!(Pointer::read(bad.as_bytes()), None, "{bad}");
        }
    }

    #[track_caller]
    fn serves(repository: &str, config: Option<&str>, expected: &str) {
        let found = server(&RemoteUrl::parse(repository).unwrap(), config);
        let got = match found {
            Ok(ServerPlace::At(found)) => format!("{} {}", found.url, found.is_own),
            Ok(ServerPlace::Asked { about, .. }) => format!("asked about {about}"),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(got, expected, "{repository} {config:?}");
    }

    #[test]
    fn finds_the_server() {
        let https = "https://h.example/org/app";
        serves(https, None, "https://h.example/org/app.git/info/lfs true");
        serves("https://h.example:8443/org/app.git", None, "https://h.example:8443/org/app.git/info/lfs true");
        serves(
            https,
            Some("[core]\nurl = x\n[lfs]\n\turl = \"https://h.example/lfs\"\n"),
            "https://h.example/lfs true",
        );
        serves(https, Some("[lfs]\nurl = https://other.example/lfs"), "https://other.example/lfs false");
        serves(https, Some("[lfs]\nurl = http://h.example/lfs"), "http://h.example/lfs false");
        let form = "`lfs.url` in .lfsconfig must have the form https://host/path";
        for bad in ["file:///etc", "/etc", "http://169.254.169.254/x", "--x"] {
            serves(https, Some(&format!("[lfs]\nurl = {bad}")), form);
        }
        serves(https, Some("[remote \"origin\"]\nlfsurl = https://h.example/a\n"), "https://h.example/a true");
        let both = "[LFS] URL = https://h.example/b ; here\n[remote \"origin\"]\nlfsurl = https://h.example/a\n";
        serves(https, Some(both), "https://h.example/b true");
        serves(https, Some("[lfs \"x\"]\nurl = https://x.example"), "https://h.example/org/app.git/info/lfs true");
        serves(https, Some("[lfs"), ".lfsconfig must be a valid Git configuration file");
        let public = "a repository on a public host cannot use an LFS server on a private host";
        for private in ["http://127.0.0.1:1/x", "http://vault.ops.svc/x", "https://[fd00::1]/x", "http://localhost/x"] {
            let config = format!("[lfs]\nurl = {private}");
            serves(https, Some(&config), public);
            serves("git@h.example:a.git", Some(&config), public);
            serves("http://forge/a", Some(&config), &format!("{private} false"));
        }
        serves(
            https,
            Some("[lfs]\nurl = https://u:p@h.example/lfs"),
            "`lfs.url` in .lfsconfig must not contain a user name or password",
        );
        serves(
            "git://h.example/org/app.git",
            None,
            "Git LFS of a repository that is reached neither over HTTP nor over SSH is not supported; write the https:// \
             address of its LFS server into .lfsconfig as `lfs.url`",
        );
        serves("git@h.example:org/app.git", None, "asked about git@h.example:org/app.git");
        let ssh = "[lfs]\nurl = ssh://git@h.example/org/files.git";
        serves("git@h.example:org/app.git", Some(ssh), "asked about ssh://git@h.example/org/files.git");
        let other = "`lfs.url` in .lfsconfig must not name a different SSH server than that of the repository";
        for repository in [https, "me@h.example:org/app.git", "ssh://git@h.example:2222/org/app.git"] {
            serves(repository, Some(ssh), other);
        }
        serves("git@h.example:a.git", Some("[lfs]\nurl = https://h.example/lfs"), "https://h.example/lfs false");
    }

    #[test]
    fn reads_what_the_ssh_server_says() {
        let check = |answer: &str, expected: &str| {
            let found = asked(&RemoteUrl::parse("git@h.example:org/app.git").unwrap(), false, answer.as_bytes());
            let got = match found {
                Ok(found) => {
                    assert!(!format!("{found:?}").contains("canary"));
                    format!("{} {} {:?}", found.url, found.is_own, found.header)
                }
                Err(fault) => fault.to_string(),
            };
            assert_eq!(got, expected, "{answer}");
        };
        check(
            r#"{"href": "https://l.example/x", "header": {"A": "canary"}, "expires_in": 60}"#,
            r#"https://l.example/x true {"A": "canary"}"#,
        );
        check("{}", "https://h.example/org/app.git/info/lfs true {}");
        check(r#"{"href": "http://169.254.169.254/x"}"#, METADATA_REFUSED);
        check(r#"{"href": "http://vault.ops.svc/x"}"#, INSIDE);
        for bad in ["", "<html>", r#"{"href": "file:///etc"}"#, r#"{"href": "https://u:canary@h.example/"}"#] {
            check(bad, "the response of git-lfs-authenticate cannot be read");
        }
    }

    #[test]
    fn reads_answers() {
        let check = |body: &str, expected: &str| {
            let place = answer(body.as_bytes()).and_then(|mut found| found.remove(OID).unwrap_or(Err(UNSAID)));
            let got = place.map_or_else(|fault| fault.to_string(), |place| place.href);
            assert!(got.contains(expected), "{body}: {got}");
        };
        let with = |rest: &str| format!("{{\"objects\": [{{\"oid\": \"{OID}\", \"size\": 1, {rest}}}]}}");
        check(&with("\"actions\": {\"download\": {\"href\": \"https://x/y\"}}"), "https://x/y");
        check(&with("\"error\": {\"code\": 404, \"message\": \"secret\"}"), "does not have the file");
        check(&with("\"error\": {\"code\": 422, \"message\": \"secret\"}"), "refuses the file");
        check(&with("\"actions\": {}"), "does not list the file");
        check("{\"objects\": []}", "does not list the file");
        check("{\"transfer\": \"tus\", \"objects\": []}", "a transfer other than");
        check("<html>", "invalid response");
    }

    #[test]
    fn downloads_from_where_the_server_may_lead() {
        let led = |repository: &str, config: Option<&str>, href: &str| match server(
            &RemoteUrl::parse(repository).unwrap(),
            config,
        )
        .unwrap()
        {
            ServerPlace::At(server) => download_url(href, &server).is_ok(),
            ServerPlace::Asked { .. } => panic!("it is not asked"),
        };
        let (public, inside) = ("https://h.example/a", "http://10.0.0.2/a");
        let own = Some("[lfs]\nurl = https://h.example/lfs");
        for config in [None, own, Some("[lfs]\nurl = https://other.example/lfs")] {
            for bad in [
                "http://h.example/x",
                "file:///etc",
                "https://169.254.169.254/x",
                "https://[::ffff:a9fe:a9fe]/",
                "x",
                "https://10.0.0.1/x",
                "https://vault.ops.svc/x",
                "https://2130706433/x",
            ] {
                assert!(!led(public, config, bad), "{bad}");
            }
            assert!(led(public, config, "https://storage.example/x?signature=1"));
        }
        assert!(led(inside, None, "http://10.0.0.1/x"));
        let chosen = Some("[lfs]\nurl = http://10.0.0.2/lfs");
        assert!(led(inside, chosen, "http://10.0.0.2/x") && !led(inside, chosen, "http://10.0.0.1/x"));
    }

    proptest! {
        #[test]
        fn reads_any_bytes_to_an_end(bytes: Vec<u8>, text: String) {
            let _ = Pointer::read(&bytes);
            let _ = Pointer::read(format!("{VERSION}{text}").as_bytes());
            let _ = answer(&bytes);
            let _ = asked(&RemoteUrl::parse("git@h.example:x").unwrap(), false, &bytes);
            let _ = server(&RemoteUrl::parse("https://h.example/x").unwrap(), Some(&text));
        }
    }
}
