//! Requests to AWS: temporary keys of STS or of the pod's credential server, logins of ECR, passwords of `CodeCommit`.
//!
//! The requests are those of `sts`, `ecr`, `ecrpublic` and `endpointcreds` of the SDK for Go; passwords are those of
//! `git-remote-codecommit`.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use form_urlencoded::Serializer;
use http::{Method, Request, header};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::logins::Login;
use super::place::{Place, Region};
use super::settings::AWS_ROLE_ARN;
use super::signature::{Keys, Unsigned};
use super::{Account, CloudSettings, json};

/// The audience of ServiceAccount tokens.
pub(super) const AUDIENCE: &str = "sts.amazonaws.com";
const ROLE: &str = "eks.amazonaws.com/role-arn";
/// The region of the public registry's API.
const PUBLIC_REGION: &str = "us-east-1";
/// Maximum length of a role, in bytes, and of a session's name.
const ROLE_BYTES: usize = 2048;
const SESSION_BYTES: usize = 64;

/// Returns the role in the annotation of a ServiceAccount. It becomes part of a form, never of a host.
pub(super) fn role_of_account(account: &Account) -> Result<String, String> {
    read_role(account.annotation(ROLE), &format!("the annotation {ROLE}"))
}

/// Returns the role in the environment of the agent.
pub(super) fn role_of_agent(settings: &CloudSettings) -> Result<String, String> {
    read_role(settings.variable(AWS_ROLE_ARN), &format!("the variable {AWS_ROLE_ARN}"))
}

fn read_role(value: Option<&str>, place: &str) -> Result<String, String> {
    const FORM: &str = "arn:aws:iam::ACCOUNT:role/NAME";
    let value = value.ok_or_else(|| format!("{place} is missing; set it to a role such as {FORM}"))?;
    let mut parts = value.splitn(6, ':');
    let is_role = parts.next() == Some("arn")
        && parts.next().is_some_and(|partition| partition.starts_with("aws"))
        && parts.next() == Some("iam")
        && parts.next() == Some("")
        && parts.next().is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
        && parts.next().is_some_and(|role| role.len() > "role/".len() && role.starts_with("role/"));
    let is_plain = value.len() <= ROLE_BYTES && value.bytes().all(|byte| byte.is_ascii_graphic());
    if is_role && is_plain { Ok(value.to_owned()) } else { Err(format!("{place} is not a role; write {FORM}")) }
}

/// Returns the name of a session, which the provider's audit log shows.
pub(super) fn session(account: Option<&Account>) -> String {
    let mut name = account
        .map_or_else(|| "mainstay".to_owned(), |account| format!("mainstay.{}.{}", account.namespace, account.name));
    name.retain(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    name.truncate(SESSION_BYTES);
    name
}

/// Returns the region for a place.
pub(super) fn region(place: &Place) -> Option<Region> {
    match place {
        Place::Ecr(region) | Place::CodeCommit { region, .. } => Some(region.clone()),
        Place::PublicEcr => Region::read(PUBLIC_REGION),
        Place::Acr { .. } | Place::DevOps | Place::GoogleRegistry | Place::EventHubs | Place::PubSub => None,
    }
}

/// Returns the request that exchanges a ServiceAccount token for the keys of a role.
pub(super) fn keys_request(region: &Region, role: &str, session: &str, token: &str) -> Option<Request<Vec<u8>>> {
    let form = Serializer::new(String::new())
        .append_pair("Action", "AssumeRoleWithWebIdentity")
        .append_pair("RoleArn", role)
        .append_pair("RoleSessionName", session)
        .append_pair("Version", "2011-06-15")
        .append_pair("WebIdentityToken", token)
        .finish();
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("https://sts.{}.{}/", region.name, region.domain))
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    request.body(form.into_bytes()).ok()
}

/// Reads the keys of a role, with their end.
pub(super) fn read_keys(answer: &[u8]) -> Result<(Keys, Timestamp), &'static str> {
    let text = std::str::from_utf8(answer).map_err(|_| "it is not text")?;
    let token = |name| element(text, name).and_then(json::token);
    let id = token("AccessKeyId").ok_or("AccessKeyId is missing")?.to_string();
    let secret = token("SecretAccessKey").ok_or("SecretAccessKey is missing")?;
    let session = Some(token("SessionToken").ok_or("SessionToken is missing")?);
    let end = element(text, "Expiration").and_then(|end| end.parse().ok()).ok_or("Expiration is missing")?;
    Ok((Keys { id, secret, session }, end))
}

/// Returns the text of an XML element without children. The values in question contain no entities.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (value, _) = rest.split_once(&format!("</{name}>"))?;
    Some(value.trim()).filter(|value| !value.contains(['<', '&']))
}

/// Reads the keys of the pod's credential server, with their end.
pub(super) fn read_pod_keys(answer: &[u8]) -> Result<(Keys, Timestamp), &'static str> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| "it is not JSON")?;
    let token = |name: &str| answer[name].as_str().and_then(json::token);
    let id = token("AccessKeyId").ok_or("AccessKeyId is missing")?.to_string();
    let secret = token("SecretAccessKey").ok_or("SecretAccessKey is missing")?;
    let session = Some(token("Token").ok_or("Token is missing")?);
    let end = answer["Expiration"].as_str().and_then(|end| end.parse().ok()).ok_or("Expiration is missing")?;
    Ok((Keys { id, secret, session }, end))
}

/// Returns the request for the login of a registry.
pub(super) fn login_request(place: &Place, keys: &Keys, now: Timestamp) -> Option<Request<Vec<u8>>> {
    const BODY: &str = "{}";
    let region = region(place)?;
    let (host, service, target) = if *place == Place::PublicEcr {
        (format!("api.ecr-public.{}.{}", region.name, region.domain), "ecr-public", "SpencerFrontendService")
    } else {
        let target = "AmazonEC2ContainerRegistry_V20150921";
        (format!("api.ecr.{}.{}", region.name, region.domain), "ecr", target)
    };
    let (time, target) = (now.strftime("%Y%m%dT%H%M%SZ").to_string(), format!("{target}.GetAuthorizationToken"));
    let mut headers =
        vec![("content-type", "application/x-amz-json-1.1"), ("host", host.as_str()), ("x-amz-date", time.as_str())];
    if let Some(session) = &keys.session {
        headers.push(("x-amz-security-token", session.as_str()));
    }
    headers.push(("x-amz-target", &target));
    let payload = hex::encode(Sha256::digest(BODY));
    let unsigned = Unsigned {
        method: "POST",
        path: "/",
        headers: &headers,
        payload: &payload,
        time: &time,
        region: &region.name,
        service,
    };
    let mut request = Request::builder().method(Method::POST).uri(format!("https://{host}/"));
    for (name, value) in headers.iter().filter(|(name, _)| *name != "host") {
        request = request.header(*name, *value);
    }
    request.header(header::AUTHORIZATION, unsigned.authorization(keys)).body(BODY.into()).ok()
}

/// Reads the login of a registry, with its end in seconds since 1970.
pub(super) fn read_login(answer: &[u8]) -> Result<(Login, i64), &'static str> {
    let answer: Value = serde_json::from_slice(answer).map_err(|_| "it is not JSON")?;
    // A private registry answers with a list, the public one with an object.
    let data = &answer["authorizationData"];
    let data = if data.is_array() { &data[0] } else { data };
    let encoded = data["authorizationToken"].as_str().ok_or("authorizationToken is missing")?;
    let decoded = BASE64_STANDARD.decode(encoded).ok().map(Zeroizing::new);
    let pair = decoded.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok()?.split_once(':'));
    let (username, password) = pair.ok_or("authorizationToken is not a login")?;
    let (username, secret) = json::token(username).zip(json::token(password)).ok_or("the login is not plain text")?;
    let end = data["expiresAt"].as_f64().filter(|end| (0.0..1e11).contains(end)).ok_or("expiresAt is missing")?;
    Ok((Login { username: Some(username.to_string()), secret }, json::whole(end)))
}

/// Returns the login for a Git repository, which is valid for 15 minutes.
pub(super) fn git_login(host: &str, path: &str, region: &Region, keys: &Keys, now: Timestamp) -> Login {
    let time = now.strftime("%Y%m%dT%H%M%S").to_string();
    let unsigned = Unsigned {
        method: "GIT",
        path,
        headers: &[("host", host)],
        payload: "",
        time: &time,
        region: &region.name,
        service: "codecommit",
    };
    let secret = Zeroizing::new(format!("{time}Z{}", unsigned.signature(keys)));
    let session = keys.session.as_ref().map(|session| format!("%{}", session.as_str())).unwrap_or_default();
    Login { username: Some(format!("{}{session}", keys.id)), secret }
}

/// Returns the code of an error: of STS in XML, of registries in JSON.
pub(super) fn read_code(answer: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(answer).ok()?;
    if let Ok(answer) = serde_json::from_str::<Value>(text) {
        return json::code(answer["__type"].as_str()?.rsplit('#').next()?);
    }
    element(text, "Code").and_then(json::code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        let token = |text: &str| Zeroizing::new(text.to_owned());
        Keys { id: "AKID".to_owned(), secret: token("SECRET"), session: Some(token("SESSION")) }
    }

    #[test]
    fn reads_roles_and_refuses_everything_else() {
        let role = |value: &str| role_of_account(&Account::with(&[(ROLE, value)]));
        assert_eq!(role("arn:aws:iam::123456789012:role/a/b").unwrap(), "arn:aws:iam::123456789012:role/a/b");
        assert!(role("arn:aws-cn:iam::123456789012:role/a").is_ok());
        for bad in
            ["arn:aws:iam::123456789012:role/", "arn:aws:s3:::bucket", "https://evil.example", "arn:aws:iam::1:user/a"]
        {
            assert!(role(bad).unwrap_err().contains("is not a role"), "{bad}");
        }
        assert!(role("").unwrap_err().contains("the annotation eks.amazonaws.com/role-arn is missing"));
        assert_eq!(session(Some(&Account::with(&[]))), "mainstay.shop.puller");
        let mut long = Account::with(&[]);
        long.name = "a".repeat(253);
        assert_eq!(session(Some(&long)).len(), 64);
    }

    #[test]
    fn asks_for_keys_as_the_sdk_does_and_reads_them() {
        let region = Region::read("eu-west-1").unwrap();
        let request = keys_request(&region, "arn:aws:iam::1:role/a", "mainstay.shop.puller", "a.b.c").unwrap();
        assert_eq!(request.uri(), "https://sts.eu-west-1.amazonaws.com/");
        let form = "Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fa\
                    &RoleSessionName=mainstay.shop.puller&Version=2011-06-15&WebIdentityToken=a.b.c";
        assert_eq!(request.body(), form.as_bytes());
        let answer = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
                      <AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>se/cret+</SecretAccessKey>\
                      <SessionToken>to/ken==</SessionToken><Expiration>2026-01-02T03:04:05Z</Expiration>\
                      </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";
        let (keys, end) = read_keys(answer.as_bytes()).unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.as_str()), ("ASIA1", "se/cret+"));
        assert_eq!(end.to_string(), "2026-01-02T03:04:05Z");
        assert_eq!(read_keys(b"<AccessKeyId>a<b/></AccessKeyId>").unwrap_err(), "AccessKeyId is missing");
        let error = b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>x</Message></Error></ErrorResponse>";
        assert_eq!(read_code(error).as_deref(), Some("AccessDenied"));
        let error = br#"{"__type":"com.amazonaws.ecr#InvalidSignatureException","message":"hunter2"}"#;
        assert_eq!(read_code(error).as_deref(), Some("InvalidSignatureException"));
    }

    #[test]
    fn reads_the_login_of_private_and_public_registries() {
        let token = BASE64_STANDARD.encode("AWS:pass:word");
        for answer in [
            format!(r#"{{"authorizationData":[{{"authorizationToken":"{token}","expiresAt":1.7e9}}]}}"#),
            format!(r#"{{"authorizationData":{{"authorizationToken":"{token}","expiresAt":1700000000.5}}}}"#),
        ] {
            let (login, end) = read_login(answer.as_bytes()).unwrap();
            assert_eq!(
                (login.username.as_deref(), login.secret.as_str(), end),
                (Some("AWS"), "pass:word", 1_700_000_000)
            );
        }
        assert_eq!(read_login(br#"{"authorizationData":[]}"#).err(), Some("authorizationToken is missing"));
    }

    /// The requests that `botocore` sends at this time with these keys.
    #[test]
    fn signs_requests_for_logins_as_the_sdk_does() {
        let now: Timestamp = "2026-11-29T06:36:14Z".parse().unwrap();
        for (place, uri, target, scope, signature) in [
            (
                Place::Ecr(Region::read("eu-west-1").unwrap()),
                "https://api.ecr.eu-west-1.amazonaws.com/",
                "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
                "20261129/eu-west-1/ecr",
                "109e80f2673eff3aad0cbc29174c6c8cdb3cf60b4dfe9f673cd608d644ab2d5c",
            ),
            (
                Place::PublicEcr,
                "https://api.ecr-public.us-east-1.amazonaws.com/",
                "SpencerFrontendService.GetAuthorizationToken",
                "20261129/us-east-1/ecr-public",
                "cf9b1e077e387fb493a483cec82f3259e590635392d6eec1c348e29614e0f742",
            ),
        ] {
            let request = login_request(&place, &keys(), now).unwrap();
            assert_eq!((request.method(), request.uri().to_string().as_str()), (&Method::POST, uri));
            let authorization = format!(
                "AWS4-HMAC-SHA256 Credential=AKID/{scope}/aws4_request, \
                 SignedHeaders=content-type;host;x-amz-date;x-amz-security-token;x-amz-target, Signature={signature}"
            );
            for (name, expected) in [
                ("x-amz-target", target),
                ("content-type", "application/x-amz-json-1.1"),
                ("x-amz-date", "20261129T063614Z"),
                ("x-amz-security-token", "SESSION"),
                ("authorization", &authorization),
            ] {
                assert_eq!(request.headers()[name], expected, "{name}");
            }
            assert_eq!(request.body(), b"{}");
        }
    }

    /// The login that `git-remote-codecommit` makes at this time with these keys.
    #[test]
    fn signs_passwords_as_the_git_remote_helper_does() {
        let region = Region::read("us-east-1").unwrap();
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let host = "git-codecommit.us-east-1.amazonaws.com";
        let login = git_login(host, "/v1/repos/test-repo", &region, &keys(), now);
        assert_eq!(login.username.as_deref(), Some("AKID%SESSION"));
        let signature = "76ea64e6591e85a0887f4ee5280399b6fe59c5bb5467a0608748a4b60f64b74f";
        assert_eq!(*login.secret, format!("20260102T030405Z{signature}"));
    }
}
