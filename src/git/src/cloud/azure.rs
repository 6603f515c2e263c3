//! Requests to Microsoft Entra ID and to registries of Azure, and their responses.
//!
//! The requests are those of `azidentity` (client assertion) and `azcontainerregistry` of the SDK for Go.

use form_urlencoded::Serializer;
use http::{Method, Request, header};
use reqwest::Url;
use serde_json::Value;
use zeroize::Zeroizing;

use super::json;
use super::place::Place;
use super::settings::{AZURE_AUTHORITY_HOST, AZURE_CLIENT_ID, AZURE_TENANT_ID};
use super::{Account, CloudSettings};

/// The audience of ServiceAccount tokens.
pub(super) const AUDIENCE: &str = "api://AzureADTokenExchange";
/// The user of a registry's tokens.
pub(super) const USER: &str = "00000000-0000-0000-0000-000000000000";
const CLIENT: &str = "azure.workload.identity/client-id";
const TENANT: &str = "azure.workload.identity/tenant-id";
const PUBLIC_AUTHORITY: &str = "https://login.microsoftonline.com/";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const DEVOPS_SCOPE: &str = "499b84ac-1321-427f-aa17-267ca6975798/.default";
/// The two slashes are those of the SDK: the audience of its tokens ends with a slash.
const EVENT_HUBS_SCOPE: &str = "https://eventhubs.azure.net//.default";
const REGISTRY_SCOPE: &str = "https://containerregistry.azure.net/.default";
/// Maximum length of an id, in bytes.
const ID_BYTES: usize = 253;

/// An application of Entra ID, or a managed identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Application {
    tenant: String,
    client: String,
}

impl Application {
    /// Reads the annotations of a ServiceAccount. They become part of a path and of a form, never of a host.
    pub(super) fn of_account(account: &Account) -> Result<Self, String> {
        let id = |name: &str| read_id(account.annotation(name), &format!("the annotation {name}"));
        Ok(Self { tenant: id(TENANT)?, client: id(CLIENT)? })
    }

    /// Reads the environment of the agent.
    pub(super) fn of_agent(settings: &CloudSettings) -> Result<Self, String> {
        let id = |name: &str| read_id(settings.variable(name), &format!("the variable {name}"));
        Ok(Self { tenant: id(AZURE_TENANT_ID)?, client: id(AZURE_CLIENT_ID)? })
    }
}

fn read_id(value: Option<&str>, place: &str) -> Result<String, String> {
    let value = value.ok_or_else(|| format!("{place} is missing; set it to the id of the application or tenant"))?;
    let is_plain = value.len() <= ID_BYTES
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
        && value.bytes().any(|byte| byte.is_ascii_alphanumeric());
    if is_plain { Ok(value.to_owned()) } else { Err(format!("{place} is not an id of letters, digits, - and .")) }
}

/// Returns the token endpoint's server, from the agent's own settings.
pub(super) fn authority(settings: &CloudSettings) -> Result<Url, String> {
    let text = settings.variable(AZURE_AUTHORITY_HOST).unwrap_or(PUBLIC_AUTHORITY);
    let url = Url::parse(&format!("{}/", text.trim_end_matches('/'))).ok().filter(|url| url.scheme() == "https");
    url.ok_or_else(|| format!("the variable {AZURE_AUTHORITY_HOST} of the agent must begin with https://"))
}

/// Returns the scope of a token for a place.
pub(super) fn scope(place: &Place) -> &'static str {
    match place {
        Place::DevOps => DEVOPS_SCOPE,
        Place::EventHubs => EVENT_HUBS_SCOPE,
        _ => REGISTRY_SCOPE,
    }
}

/// Returns the request for an access token.
pub(super) fn token_request(
    authority: &Url,
    application: &Application,
    scope: &str,
    assertion: &str,
) -> Option<Request<Vec<u8>>> {
    let url = authority.join(&format!("{}/oauth2/v2.0/token", application.tenant)).ok()?;
    let form = Serializer::new(String::new())
        .append_pair("client_assertion", assertion)
        .append_pair("client_assertion_type", ASSERTION_TYPE)
        .append_pair("client_id", &application.client)
        .append_pair("grant_type", "client_credentials")
        .append_pair("scope", scope)
        .finish();
    post(url.as_str(), form)
}

/// Returns the request that exchanges an access token for a login at a registry.
pub(super) fn login_request(host: &str, token: &str) -> Option<Request<Vec<u8>>> {
    let form = Serializer::new(String::new())
        .append_pair("access_token", token)
        .append_pair("grant_type", "access_token")
        .append_pair("service", host)
        .finish();
    post(&format!("https://{host}/oauth2/exchange?api-version=2021-07-01"), form)
}

fn post(url: &str, form: String) -> Option<Request<Vec<u8>>> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(url)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::ACCEPT, "application/json");
    request.body(form.into_bytes()).ok()
}

/// Reads an access token, with the seconds until it ends.
pub(super) fn read_token(answer: &[u8]) -> Result<(Zeroizing<String>, i64), &'static str> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| "it is not JSON")?;
    let token = answer["access_token"].as_str().and_then(json::token).ok_or("access_token is missing")?;
    let seconds = json::seconds(&answer["expires_in"]).ok_or("expires_in is missing")?;
    Ok((token, seconds))
}

/// Reads the password of a registry, with its end in seconds since 1970.
pub(super) fn read_login(answer: &[u8]) -> Result<(Zeroizing<String>, i64), &'static str> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| "it is not JSON")?;
    let token = answer["refresh_token"].as_str().and_then(json::token).ok_or("refresh_token is missing")?;
    let end = json::expiry(&token).ok_or("refresh_token has no expiry")?;
    Ok((token, end))
}

/// Returns the code of an error: of Entra ID such as `invalid_client AADSTS700213`, of a registry such as `UNAUTHORIZED`.
pub(super) fn read_code(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    if let Some(code) = answer["errors"][0]["code"].as_str() {
        return json::code(code);
    }
    let error = json::code(answer["error"].as_str()?)?;
    let number = answer["error_codes"][0].as_u64().map(|number| format!(" AADSTS{number}"));
    Some(error + &number.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(request: &Request<Vec<u8>>) -> &str {
        std::str::from_utf8(request.body()).unwrap()
    }

    /// The request of `NewClientAssertionCredential(…).GetToken`, without `client_info` and the scopes of users, which
    /// have no effect for applications.
    #[test]
    fn asks_for_a_token_as_the_sdk_does() {
        let application =
            Application::of_account(&Account::with(&[(TENANT, "contoso.example"), (CLIENT, "c-1")])).unwrap();
        let authority = authority(&CloudSettings::default()).unwrap();
        let request = token_request(&authority, &application, scope(&Place::DevOps), "a.b.c").unwrap();
        assert_eq!(request.uri(), "https://login.microsoftonline.com/contoso.example/oauth2/v2.0/token");
        assert_eq!(
            body(&request),
            "client_assertion=a.b.c&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer\
             &client_id=c-1&grant_type=client_credentials&scope=499b84ac-1321-427f-aa17-267ca6975798%2F.default"
        );
        let request = login_request("shop.azurecr.io", "a.b.c").unwrap();
        assert_eq!(request.uri(), "https://shop.azurecr.io/oauth2/exchange?api-version=2021-07-01");
        assert_eq!(body(&request), "access_token=a.b.c&grant_type=access_token&service=shop.azurecr.io");
    }

    #[test]
    fn annotations_name_no_host() {
        for (tenant, client, problem) in [
            ("", "c", "the annotation azure.workload.identity/tenant-id is missing"),
            ("t", "", "the annotation azure.workload.identity/client-id is missing"),
            ("//evil.example/t", "c", "tenant-id is not an id"),
            ("..", "c", "tenant-id is not an id"),
            ("t?x=", "c", "tenant-id is not an id"),
            ("t", "c&scope=x", "client-id is not an id"),
        ] {
            let refused = Application::of_account(&Account::with(&[(TENANT, tenant), (CLIENT, client)])).unwrap_err();
            assert!(refused.contains(problem), "{refused}");
        }
        let mut settings = CloudSettings::default();
        settings.environment.insert(AZURE_AUTHORITY_HOST.to_owned(), "http://login.example/".to_owned());
        assert!(authority(&settings).unwrap_err().contains("must begin with https://"));
        settings.environment.insert(AZURE_AUTHORITY_HOST.to_owned(), "https://login.microsoftonline.us".to_owned());
        assert_eq!(authority(&settings).unwrap().as_str(), "https://login.microsoftonline.us/");
    }

    #[test]
    fn reads_responses_and_shows_only_codes_of_errors() {
        let (token, seconds) =
            read_token(br#"{"token_type":"Bearer","expires_in":3599,"access_token":"eyJ0"}"#).unwrap();
        assert_eq!((token.as_str(), seconds), ("eyJ0", 3599));
        for (answer, problem) in [
            ("<html>", "it is not JSON"),
            (r#"{"expires_in":3599}"#, "access_token is missing"),
            (r#"{"access_token":"a b","expires_in":3599}"#, "access_token is missing"),
            (r#"{"access_token":"a"}"#, "expires_in is missing"),
        ] {
            assert_eq!(read_token(answer.as_bytes()).unwrap_err(), problem);
        }
        let error = br#"{"error":"invalid_client","error_description":"AADSTS700213: hunter2","error_codes":[700213]}"#;
        assert_eq!(read_code(error).as_deref(), Some("invalid_client AADSTS700213"));
        assert_eq!(
            read_code(br#"{"errors":[{"code":"UNAUTHORIZED","message":"hunter2"}]}"#).as_deref(),
            Some("UNAUTHORIZED")
        );
        assert_eq!(read_code(br#"{"error":"hunter2 is wrong"}"#), None);
        assert_eq!(read_login(br#"{"refresh_token":"abc"}"#).unwrap_err(), "refresh_token has no expiry");
    }
}
