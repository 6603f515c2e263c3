//! Requests to Google: tokens for ServiceAccounts of workload identity pools, and for the agent itself.
//!
//! The requests are those of `golang.org/x/oauth2/google` (`externalaccount`, `stsexchange`, `impersonate`) and
//! `cloud.google.com/go/compute/metadata`.

use form_urlencoded::Serializer;
use http::{Method, Request, header};
use jiff::Timestamp;
use serde_json::{Value, json as object};
use zeroize::Zeroizing;

use super::settings::GCE_METADATA_HOST;
use super::{Account, CloudSettings, json};

/// The user of a registry's tokens.
pub(super) const USER: &str = "oauth2accesstoken";
const EMAIL: &str = "iam.gke.io/gcp-service-account";
/// The provider of a workload identity pool, for clusters that are not at Google. Flux reads the same annotation.
pub(super) const PROVIDER: &str = "gcp.auth.fluxcd.io/workload-identity-provider";
const STS: &str = "https://sts.googleapis.com/v1/token";
/// Its name could be defined by a Service of the cluster, so the address is used, as in the SDK.
const METADATA: &str = "169.254.169.254";
const SCOPES: [&str; 2] =
    ["https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"];
/// Maximum length of a part of a name, in bytes.
const PART_BYTES: usize = 100;

/// The cluster at Google in which the agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GkeCluster {
    pub(super) project: String,
    pub(super) location: String,
    pub(super) name: String,
}

/// The paths of a cluster's project, location and name at the metadata server.
pub(super) const CLUSTER_PATHS: [&str; 3] =
    ["project/project-id", "instance/attributes/cluster-location", "instance/attributes/cluster-name"];
/// The path of the agent's own token at the metadata server.
pub(super) const TOKEN_PATH: &str = "instance/service-accounts/default/token?scopes=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform%2C\
                                     https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fuserinfo.email";

/// The audiences of a ServiceAccount's token, and of its exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Audiences {
    pub(super) token: String,
    pub(super) exchange: String,
}

impl Audiences {
    /// Returns the audiences in the annotation of a ServiceAccount; `None` without the annotation.
    pub(super) fn of_account(account: &Account) -> Result<Option<Self>, String> {
        let Some(provider) = account.annotation(PROVIDER) else { return Ok(None) };
        let parts: Vec<&str> = provider.split('/').collect();
        let is_provider = match parts[..] {
            ["projects", number, "locations", "global", "workloadIdentityPools", pool, "providers", name] => {
                is_digits(number) && is_part(pool) && is_part(name)
            }
            _ => false,
        };
        if !is_provider {
            return Err(format!(
                "the annotation {PROVIDER} must have the form \
                 projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/NAME"
            ));
        }
        let audience = format!("//iam.googleapis.com/{provider}");
        Ok(Some(Self { token: audience.clone(), exchange: audience }))
    }

    /// Returns the audiences of a cluster at Google.
    pub(super) fn of_cluster(cluster: &GkeCluster) -> Self {
        let GkeCluster { project, location, name } = cluster;
        let pool = format!("{project}.svc.id.goog");
        let provider =
            format!("https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{name}");
        Self { exchange: format!("identitynamespace:{pool}:{provider}"), token: pool }
    }
}

/// Returns the service account at Google in the annotation of a ServiceAccount; `None` without the annotation.
pub(super) fn email_of_account(account: &Account) -> Result<Option<String>, String> {
    let Some(email) = account.annotation(EMAIL) else { return Ok(None) };
    let parts = email.strip_suffix(".iam.gserviceaccount.com").and_then(|rest| rest.split_once('@'));
    match parts {
        Some((name, project)) if is_part(name) && is_part(project) => Ok(Some(email.to_owned())),
        _ => Err(format!("the annotation {EMAIL} must have the form NAME@PROJECT.iam.gserviceaccount.com")),
    }
}

fn is_part(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= PART_BYTES
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.len() <= 30 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the request that exchanges a token of a ServiceAccount. A token that only impersonates has one scope.
pub(super) fn exchange_request(audience: &str, token: &str, email: Option<&str>) -> Option<Request<Vec<u8>>> {
    let scope = if email.is_some() { SCOPES[0].to_owned() } else { SCOPES.join(" ") };
    let form = Serializer::new(String::new())
        .append_pair("audience", audience)
        .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange")
        .append_pair("requested_token_type", "urn:ietf:params:oauth:token-type:access_token")
        .append_pair("scope", &scope)
        .append_pair("subject_token", token)
        .append_pair("subject_token_type", "urn:ietf:params:oauth:token-type:jwt")
        .finish();
    let request = Request::builder().method(Method::POST).uri(STS);
    request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.into_bytes()).ok()
}

/// Returns the request for a token of a service account at Google.
pub(super) fn impersonation_request(email: &str, token: &str) -> Option<Request<Vec<u8>>> {
    let host = "https://iamcredentials.googleapis.com";
    let body = object!({"lifetime": "3600s", "scope": SCOPES});
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{host}/v1/projects/-/serviceAccounts/{email}:generateAccessToken"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::AUTHORIZATION, format!("Bearer {token}"));
    request.body(body.to_string().into_bytes()).ok()
}

/// Returns a request to the metadata server, whose host comes from the agent's own settings.
pub(super) fn metadata_request(settings: &CloudSettings, path: &str) -> Option<Request<Vec<u8>>> {
    let host = settings.variable(GCE_METADATA_HOST).unwrap_or(METADATA);
    let request = Request::builder().uri(format!("http://{host}/computeMetadata/v1/{path}"));
    request.header("metadata-flavor", "Google").body(Vec::new()).ok()
}

/// Reads a part of a cluster's name.
pub(super) fn read_part(answer: &[u8]) -> Option<String> {
    // Projects of organizations have the form `example.com:name`.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
    let text = std::str::from_utf8(answer).ok()?.trim();
    (!text.is_empty() && text.len() <= PART_BYTES && text.bytes().all(is_plain)).then(|| text.to_owned())
}

/// Reads an access token, with the seconds until it ends.
pub(super) fn read_token(answer: &[u8]) -> Result<(Zeroizing<String>, i64), &'static str> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| "it is not JSON")?;
    let token = answer["access_token"].as_str().and_then(json::token).ok_or("access_token is missing")?;
    let seconds = json::seconds(&answer["expires_in"]).ok_or("expires_in is missing")?;
    Ok((token, seconds))
}

/// Reads a token of a service account at Google, with its end.
pub(super) fn read_impersonated(answer: &[u8]) -> Result<(Zeroizing<String>, Timestamp), &'static str> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| "it is not JSON")?;
    let token = answer["accessToken"].as_str().and_then(json::token).ok_or("accessToken is missing")?;
    let end = answer["expireTime"].as_str().and_then(|end| end.parse().ok()).ok_or("expireTime is missing")?;
    Ok((token, end))
}

/// Returns the code of an error: of STS a word, of other services a status.
pub(super) fn read_code(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let error = &answer["error"];
    json::code(error.as_str().or_else(|| error["status"].as_str())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "projects/1/locations/global/workloadIdentityPools/pool/providers/cluster";

    fn body(request: &Request<Vec<u8>>) -> &str {
        std::str::from_utf8(request.body()).unwrap()
    }

    #[test]
    fn reads_annotations_and_refuses_everything_else() {
        let of = |name: &str, value: &str| Account::with(&[(name, value)]);
        let audience = format!("//iam.googleapis.com/{POOL}");
        let audiences = Audiences { token: audience.clone(), exchange: audience };
        assert_eq!(Audiences::of_account(&of(PROVIDER, POOL)), Ok(Some(audiences)));
        assert_eq!(Audiences::of_account(&Account::with(&[])), Ok(None));
        for bad in [
            "https://evil.example",
            &POOL.replace("global", "eu"),
            &format!("{POOL}/x"),
            &POOL.replace("pool/", "a@b/"),
        ] {
            assert!(Audiences::of_account(&of(PROVIDER, bad)).unwrap_err().contains("must have the form"), "{bad}");
        }
        let email = "puller@shop-1.iam.gserviceaccount.com";
        assert_eq!(email_of_account(&of(EMAIL, email)), Ok(Some(email.to_owned())));
        for bad in ["puller@evil.example", "a/b@shop.iam.gserviceaccount.com", "@shop.iam.gserviceaccount.com"] {
            assert!(email_of_account(&of(EMAIL, bad)).unwrap_err().contains("must have the form"), "{bad}");
        }
        let [project, location, name] = ["shop-1", "europe-west1", "c"].map(str::to_owned);
        let audiences = Audiences::of_cluster(&GkeCluster { project, location, name });
        assert_eq!(audiences.token, "shop-1.svc.id.goog");
        assert_eq!(
            audiences.exchange,
            "identitynamespace:shop-1.svc.id.goog:https://container.googleapis.com/v1/projects/shop-1/locations/europe-west1/clusters/c"
        );
    }

    #[test]
    fn asks_for_tokens_as_the_library_does() {
        let request = exchange_request("aud", "a.b.c", None).unwrap();
        assert_eq!(request.uri(), "https://sts.googleapis.com/v1/token");
        assert_eq!(
            body(&request),
            "audience=aud&grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange\
             &requested_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token\
             &scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform+https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fuserinfo.email\
             &subject_token=a.b.c&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt"
        );
        let request = exchange_request("aud", "a.b.c", Some("x")).unwrap();
        assert!(body(&request).contains("&scope=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fcloud-platform&"));
        let request = impersonation_request("puller@shop.iam.gserviceaccount.com", "token").unwrap();
        let path = "/v1/projects/-/serviceAccounts/puller@shop.iam.gserviceaccount.com:generateAccessToken";
        assert_eq!(request.uri().to_string(), format!("https://iamcredentials.googleapis.com{path}"));
        let scope =
            "[\"https://www.googleapis.com/auth/cloud-platform\",\"https://www.googleapis.com/auth/userinfo.email\"]";
        assert_eq!(body(&request), format!("{{\"lifetime\":\"3600s\",\"scope\":{scope}}}"));
        let request = metadata_request(&CloudSettings::default(), TOKEN_PATH).unwrap();
        assert_eq!(
            request.uri(),
            "http://169.254.169.254/computeMetadata/v1/instance/service-accounts/default/token?scopes=https%3A%2F%2Fwww.\
             googleapis.com%2Fauth%2Fcloud-platform%2Chttps%3A%2F%2Fwww.googleapis.com%2Fauth%2Fuserinfo.email"
        );
    }

    #[test]
    fn reads_responses() {
        let (token, end) = read_impersonated(br#"{"accessToken":"ya29","expireTime":"2026-01-02T03:04:05Z"}"#).unwrap();
        assert_eq!((token.as_str(), end.to_string().as_str()), ("ya29", "2026-01-02T03:04:05Z"));
        assert_eq!(read_impersonated(b"{}").unwrap_err(), "accessToken is missing");
        assert_eq!(read_token(br#"{"access_token":"ya29"}"#).unwrap_err(), "expires_in is missing");
        assert_eq!(
            read_code(br#"{"error":"invalid_grant","error_description":"x"}"#).as_deref(),
            Some("invalid_grant")
        );
        let error = br#"{"error":{"code":403,"status":"PERMISSION_DENIED","message":"hunter2"}}"#;
        assert_eq!(read_code(error).as_deref(), Some("PERMISSION_DENIED"));
        assert_eq!(read_part(b"shop-1\n").as_deref(), Some("shop-1"));
        assert_eq!(read_part(b"a/b"), None);
    }
}
