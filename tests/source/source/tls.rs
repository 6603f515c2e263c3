//! Repositories behind TLS: private CAs, client certificates, tokens, and messages for failed handshakes.

use axum::Router;
use k8s_openapi::ByteString;
use mainstay_api::git_repository::{AuthType, RepositoryAuth};
use mainstay_git::access;
use rustls::ServerConfig;

use super::*;
use mainstay_testkit::tls::{PrivateCa, TlsListener};

/// A repository behind TLS, with the data of a Secret.
pub(super) struct TlsBench {
    pub(super) ca: PrivateCa,
    origin: Origin,
    pub(super) server: GitServer,
    pub(super) source: Source,
    #[expect(dead_code, reason = "the mirrors are there")]
    mirrors: TempDir,
}

pub(super) fn secret(data: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
    data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
}

pub(super) fn remote(url: &str, data: &[(&str, &str)]) -> Result<Remote, Error> {
    let auth = RepositoryAuth { kind: AuthType::Basic, secret_name: "git".into() };
    let access = access(Some(&auth), Some(&secret(data)))?;
    Ok(Remote {
        url: RemoteUrl::parse(url)?,
        credentials: access.credentials,
        connection: access.connection,
        verification: None,
        submodules: false,
        lfs: false,
    })
}

impl TlsBench {
    pub(super) async fn new(config: impl FnOnce(&PrivateCa) -> ServerConfig) -> Self {
        Self::beside(config, Router::new()).await
    }

    /// Serves the repository beside other paths.
    pub(super) async fn beside(config: impl FnOnce(&PrivateCa) -> ServerConfig, others: Router) -> Self {
        let (ca, origin) = (PrivateCa::new(), small());
        let server = GitServer::start_tls_with(origin.root(), config(&ca), others).await;
        let mirrors = tempfile::tempdir().unwrap();
        Self { source: Source::new(settings(mirrors.path())), ca, origin, server, mirrors }
    }

    async fn sync(&self, data: &[(&str, &str)]) -> Result<Snapshot, Error> {
        sync(&self.source, &remote(&self.server.url(NAME), data)?, "main").await
    }

    /// Returns why the attempt fails.
    async fn refused(&self, data: &[(&str, &str)]) -> (Class, String) {
        let error = self.sync(data).await.expect_err("it fails");
        (error.class(), error.fault().to_string())
    }
}

const UNTRUSTED: &str = "TLS: no CA that is trusted has signed the server's certificate; put the certificate of the CA that \
                         did into the Secret under ca.crt";

#[tokio::test]
async fn a_private_ca_is_trusted_for_its_repository_and_for_no_other() {
    let bench = TlsBench::new(|ca| ca.server("127.0.0.1")).await;
    bench.server.require("robot", "s3cret-token");
    let login = [("username", "robot"), ("password", "s3cret-token")];
    assert_eq!(bench.refused(&login).await, (Class::Denied, UNTRUSTED.to_owned()));
    let other = PrivateCa::new().pem();
    assert_eq!(bench.refused(&[login[0], login[1], ("ca.crt", &other)]).await.1, UNTRUSTED);
    assert_eq!(bench.server.take_counts().requests, 0, "nothing is sent to a server that is not trusted");
    let ca = bench.ca.pem();
    assert!(bench.sync(&[login[0], login[1], ("ca.crt", &ca)]).await.is_ok());
    assert!(bench.sync(&[login[0], login[1], ("caFile", &format!("{other}{ca}"))]).await.is_ok(), "Flux's old name");
    assert_eq!(bench.refused(&login).await.1, UNTRUSTED, "without the CA it is not trusted after that either");
    let (class, said) = bench.refused(&[("ca.crt", &ca)]).await;
    let expected = "the server answered 401: it asks for credentials; add username and password, or bearerToken, to the \
                    Secret";
    assert_eq!((class, said.as_str()), (Class::Denied, expected));
}

#[tokio::test]
async fn a_bearer_token_opens_a_repository_and_is_shown_nowhere() {
    let bench = TlsBench::new(|ca| ca.server("127.0.0.1")).await;
    bench.server.require_authorization("Bearer s3cret-token");
    let ca = bench.ca.pem();
    let with = async |token: &str| bench.sync(&[("bearerToken", token), ("ca.crt", &ca)]).await;
    assert!(with("s3cret-token\n").await.is_ok());
    let error = with("wr0ng-token").await.unwrap_err();
    let expected = "the server answered 401: it does not accept the credentials; correct them in the Secret";
    assert_eq!((error.class(), error.fault().to_string().as_str()), (Class::Denied, expected));
    bench.server.fail(On::References, Fault::Answer(b"0017ERR it is s3cret-tok".to_vec()));
    let error = with("s3cret-token").await.unwrap_err();
    assert!(!format!("{} {error:?}", chain(&error)).contains("s3cret"), "{error:?}");
}

#[tokio::test]
async fn a_bearer_token_and_a_client_certificate_do_not_follow_a_redirect_to_another_host() {
    let bench = TlsBench::new(|ca| ca.server_for_clients("127.0.0.1")).await;
    let other = GitServer::start_tls(bench.origin.root(), bench.ca.server_for_clients("127.0.0.1")).await;
    bench.server.fail(On::Advertisement, Fault::Redirect(other.base()));
    let pair = bench.ca.issue("robot");
    let ca = bench.ca.pem();
    let data =
        [("ca.crt", &*ca), ("tls.crt", &*pair.certificate), ("tls.key", &*pair.key), ("bearerToken", "s3cret-token")];
    let (class, said) = bench.refused(&data).await;
    assert_eq!(class, Class::Denied);
    assert!(said.starts_with("TLS: the server requires a valid client certificate"), "{said}");
    assert_eq!(other.take_counts().requests, 0);
    let open = GitServer::start_tls(bench.origin.root(), bench.ca.server("127.0.0.1")).await;
    bench.server.fail(On::Advertisement, Fault::Redirect(open.base()));
    assert!(bench.sync(&data).await.is_ok());
    let counts = open.take_counts();
    assert!(counts.requests >= 2 && counts.with_credentials == 0, "{counts:?}");
}

#[tokio::test]
async fn a_client_certificate_opens_a_repository() {
    let bench = TlsBench::new(|ca| ca.server_for_clients("127.0.0.1")).await;
    let (ca, good, foreign) = (bench.ca.pem(), bench.ca.issue("robot"), PrivateCa::new().issue("robot"));
    let wants = "TLS: the server requires a valid client certificate";
    let (class, said) = bench.refused(&[("ca.crt", &ca), ("username", "robot"), ("password", "x")]).await;
    assert!(class == Class::Denied && said.starts_with(wants), "{said}");
    let with =
        |pair: &mainstay_testkit::tls::Pair| [("tls.crt", pair.certificate.clone()), ("tls.key", pair.key.clone())];
    let [certificate, key] = with(&foreign);
    let data = [("ca.crt", &*ca), (certificate.0, &*certificate.1), (key.0, &*key.1)];
    let (class, said) = bench.refused(&data).await;
    assert!(class == Class::Denied && said.starts_with(wants), "{said}");
    let [certificate, key] = with(&good);
    assert!(bench.sync(&[("ca.crt", &*ca), (certificate.0, &*certificate.1), (key.0, &*key.1)]).await.is_ok());
}

#[tokio::test]
async fn reports_why_a_handshake_failed() {
    let other_name = TlsBench::new(|ca| ca.server("git.example.org")).await;
    let (class, said) = other_name.refused(&[("ca.crt", &other_name.ca.pem())]).await;
    assert_eq!(class, Class::Denied);
    assert!(
        said.starts_with("TLS: the server's certificate is for a different name (") && said.contains("git.example.org"),
        "{said}"
    );

    let expired = TlsBench::new(|ca| {
        let past = |parameters: &mut rcgen::CertificateParams| {
            parameters.not_before = rcgen::date_time_ymd(2001, 1, 1);
            parameters.not_after = rcgen::date_time_ymd(2002, 1, 1);
        };
        PrivateCa::server_with(&ca.issue_with("127.0.0.1", past))
    });
    let expired = expired.await;
    let said = expired.refused(&[("ca.crt", &expired.ca.pem())]).await;
    let expected = "TLS: the server's certificate has expired; its operator has to renew it";
    assert_eq!(said, (Class::Denied, expected.to_owned()));

    // An HTTP server at an address with https.
    let plain = Bench::new(small()).await;
    let url = plain.server.url(NAME).replace("http://", "https://");
    let error = sync(&plain.source, &anonymous(&url), "main").await.unwrap_err();
    let said = (error.class(), error.fault().to_string());
    assert_eq!(said, (Class::Unavailable, "TLS: the server does not speak TLS at this port".to_owned()));

    // A server that accepts connections without answering, and a name that does not exist.
    let silent = TlsListener::bind(expired.ca.server("127.0.0.1")).await;
    let address = axum::serve::Listener::local_addr(&silent).unwrap();
    let mut settings = settings(plain.mirrors.path());
    settings.deadlines.connect = Duration::from_millis(200);
    let source = Source::new(settings);
    let error = sync(&source, &anonymous(&format!("https://{address}/x")), "main").await.unwrap_err();
    assert_eq!(error.fault().to_string(), "no connection: timed out");
    let error = sync(&plain.source, &anonymous("https://nobody.invalid/x"), "main").await.unwrap_err();
    let said = error.fault().to_string();
    assert!(said.starts_with("no connection: the name nobody.invalid is not found ("), "{said}");
}
