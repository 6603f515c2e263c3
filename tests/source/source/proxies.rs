//! Repositories behind HTTP and SOCKS proxies, over HTTP, HTTPS and SSH.

use super::ssh::SshBench;
use super::tls::{TlsBench, remote, secret};
use super::*;
use mainstay_testkit::proxy::Proxy;

pub(super) const LOGIN: [(&str, &str); 2] = [("username", "walker"), ("password", "pr0xy-word")];

/// Returns the remote with a proxy.
pub(super) fn through(proxy: &Proxy, remote: Remote, login: &[(&str, &str)]) -> Result<Remote, Error> {
    through_address(proxy.address(), remote, login)
}

/// Returns the remote with the proxy at an address.
pub(super) fn through_address(address: &str, mut remote: Remote, login: &[(&str, &str)]) -> Result<Remote, Error> {
    let data = [&[("address", address)], login].concat();
    let access = mainstay_git::Access { credentials: remote.credentials, connection: remote.connection };
    let access = access.through_proxy(&secret(&data))?;
    (remote.credentials, remote.connection) = (access.credentials, access.connection);
    Ok(remote)
}

const DENIED: &str = "the proxy requires a valid user name and password";

/// Checks that the remote is reached only through the proxy.
async fn check(source: &Source, mut proxy: Proxy, remote: &Remote, wrong_login: &str) {
    let attempt = async |proxy: &Proxy, login: &[(&str, &str)]| {
        let remote = through(proxy, remote.clone(), login).unwrap();
        match sync(source, &remote, "main").await {
            Ok(_) => (None, "done".to_owned()),
            Err(error) => {
                assert!(!format!("{} {error:?} {remote:?}", chain(&error)).contains("pr0xy"), "{error:?}");
                (Some(error.class()), error.fault().to_string())
            }
        }
    };
    assert_eq!(attempt(&proxy, &LOGIN).await, (None, "done".to_owned()));
    let denied = format!(
        "{DENIED}; correct username and password in the Secret that `proxySecretRef` names, or else the agent's HTTPS_PROXY"
    );
    let wrong = [LOGIN[0], ("password", "wr0ng")];
    let (_, said) = attempt(&proxy, &wrong).await;
    assert!(said.starts_with(wrong_login), "{said}");
    assert_eq!(attempt(&proxy, &[]).await, (Some(Class::Denied), denied));
    proxy.stop();
    // Another identity has its own connections. A kept connection would hide that the proxy is gone.
    let (class, said) = attempt(&proxy, &[LOGIN[0], ("password", "an0ther")]).await;
    let shown = proxy.address().replace("socks5:", "socks5h:");
    assert_eq!(class, Some(Class::Unavailable), "{said}");
    let expected = format!("the connection through the proxy failed: {shown}: no connection: ");
    assert!(said.starts_with(&expected), "{said}");
}

/// Checks remotes of every kind with proxies from `open`. `wrong_logins` are the messages for HTTP, HTTPS and SSH.
async fn check_all(open: fn(&str, &str) -> Proxy, wrong_logins: [&str; 3]) {
    let open = || open("walker", "pr0xy-word");
    let plain = Bench::new(small()).await;
    plain.server.require("robot", "s3cret-token");
    let opened = basic(&plain.server.url(NAME), "robot", "s3cret-token");
    check(&plain.source, open(), &opened, wrong_logins[0]).await;
    let tls = TlsBench::new(|ca| ca.server("127.0.0.1")).await;
    let opened = remote(&tls.server.url(NAME), &[("ca.crt", &tls.ca.pem())]).unwrap();
    check(&tls.source, open(), &opened, wrong_logins[1]).await;
    let ssh = SshBench::new().await;
    let key = ssh.key("key", "ed25519", &[]);
    check(&ssh.source, open(), &ssh.remote(&[("key", &*key)]), wrong_logins[2]).await;
}

#[tokio::test]
async fn an_http_proxy_leads_to_repositories_of_every_kind() {
    // For a wrong login, tinyproxy answers 401 like a server.
    let wrong_logins = [
        "the server answered 401",
        "the connection through the proxy failed: it cannot connect to the host, or does not accept this user name and password for it",
        DENIED,
    ];
    check_all(Proxy::http, wrong_logins).await;
}

#[tokio::test]
async fn a_socks_proxy_leads_to_repositories_of_every_kind() {
    check_all(Proxy::socks, [DENIED; 3]).await;
}

#[tokio::test]
async fn a_proxy_cannot_lead_to_a_host_key_that_is_not_known() {
    let (ssh, other) = (SshBench::new().await, SshBench::new().await);
    let key = ssh.key("key", "ed25519", &[]);
    let known = format!("{} {}", ssh.server.name(), other.server.host_key("ed25519"));
    let remote = SshBench::try_remote(&ssh.server.url(NAME), &[("key", &key), ("known_hosts", &known)]).unwrap();
    let proxy = Proxy::socks("walker", "pr0xy-word");
    let remote = through(&proxy, remote, &LOGIN).unwrap();
    let error = sync(&ssh.source, &remote, "main").await.unwrap_err();
    assert!(error.fault().to_string().contains("has changed"), "{}", error.fault());
}

#[tokio::test]
async fn link_local_addresses_are_not_connected_to() {
    let bench = Bench::new(small()).await;
    bench.server.fail(On::Advertisement, Fault::Redirect("http://169.254.169.254".to_owned()));
    let (class, said) = bench.failure("main").await;
    assert_eq!(class, Class::Invalid);
    assert!(
        said.contains("the server redirects to 169.254.169.254, which is not followed: connections to link-local"),
        "{said}"
    );
}
