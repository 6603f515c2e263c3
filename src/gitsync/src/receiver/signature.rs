//! Checks that the sender of a delivery knows the token in the Receiver's Secret.
//!
//! Invariant: a comparison takes constant time, because it compares HMACs.
//! Invariant: a check reads headers and the raw body, and never parses the body.
//! Invariant: the published path of a Receiver is not a valid signature of any body.
//!
//! Not here: the path, which is checked first; tokens of issuers (`id_token`).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::{HeaderMap, header};
use ring::hmac;

use super::id_token::TokenFlaw;
use mainstay_api::ReceiverType;
use mainstay_object::Secret;

/// Maximum length of a signature in hexadecimal digits: SHA-512.
const MAX_DIGITS: usize = 128;
/// Derives the key of paths from the token.
const PATH_KEY: &[u8] = b"mainstay receiver path v1";

/// The reason why a delivery is not authentic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The header is missing.
    #[error("the header {0} is missing: set the Receiver's token as the secret of the webhook")]
    Missing(&'static str),
    /// The header cannot be parsed.
    #[error("the header {0} does not match the format of this Receiver type")]
    Form(&'static str),
    /// The header was made with another token.
    #[error("the header {0} does not match the token of the Receiver")]
    Wrong(&'static str),
    /// The token of an issuer is refused.
    #[error(transparent)]
    Token(TokenFlaw),
}

/// The form of a header.
#[derive(Clone, Copy)]
enum Proof {
    /// `algorithm=digits`.
    Named,
    /// `sha256=digits`.
    Sha256,
    /// `sha1=digits`.
    Sha1,
    /// The digits of an HMAC-SHA-256.
    Digits,
    /// The digits of an HMAC-SHA-1.
    Sha1Digits,
    /// The token itself.
    Token,
    /// The token as the password of basic authentication, or as a bearer token.
    Login,
}

/// Returns the headers of a host by preference. The first one in the delivery decides.
const fn proofs(kind: ReceiverType) -> &'static [(&'static str, Proof)] {
    match kind {
        ReceiverType::Github => &[("X-Hub-Signature-256", Proof::Sha256), ("X-Hub-Signature", Proof::Sha1)],
        ReceiverType::Gitea => &[
            ("X-Hub-Signature-256", Proof::Sha256),
            ("X-Forgejo-Signature", Proof::Digits),
            ("X-Gitea-Signature", Proof::Digits),
        ],
        ReceiverType::Gitlab => &[("X-Gitlab-Token", Proof::Token)],
        ReceiverType::Bitbucket => &[("X-Hub-Signature", Proof::Sha256)],
        ReceiverType::AzureDevops => &[("Authorization", Proof::Login)],
        // `Issuers` has checked the tokens of `gcr` and `generic-oidc` before.
        ReceiverType::Generic
        | ReceiverType::Dockerhub
        | ReceiverType::Quay
        | ReceiverType::Acr
        | ReceiverType::Cdevents
        | ReceiverType::Gcr
        | ReceiverType::GenericOidc => &[],
        ReceiverType::GenericHmac => &[("X-Signature", Proof::Named)],
        ReceiverType::Harbor => &[("Authorization", Proof::Token)],
        ReceiverType::Nexus => &[("X-Nexus-Webhook-Signature", Proof::Sha1Digits)],
    }
}

/// Checks a delivery. For types without a proof or a token of an issuer, the path is the only secret.
pub(super) fn check(
    kind: ReceiverType,
    token: &Secret<Vec<u8>>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(), Refusal> {
    let proofs = proofs(kind);
    let Some((first, _)) = proofs.first() else { return Ok(()) };
    let sent = proofs.iter().find_map(|(name, proof)| Some((*name, *proof, headers.get(*name)?)));
    let (name, proof, value) = sent.ok_or(Refusal::Missing(first))?;
    // If a header occurs twice, a proxy may have checked the other occurrence.
    if headers.get_all(name).iter().count() != 1 {
        return Err(Refusal::Form(name));
    }
    let form = || Refusal::Form(name);
    let token = token.expose().as_slice();
    let is_right = match proof {
        Proof::Token => is_equal(token, value.as_bytes()),
        Proof::Login => {
            let text = value.to_str().map_err(|_| form())?;
            is_equal(token, &password(text).ok_or_else(form)?)
        }
        Proof::Named | Proof::Sha256 | Proof::Sha1 | Proof::Digits | Proof::Sha1Digits => {
            let text = value.to_str().map_err(|_| form())?;
            let (algorithm, digits) = match (proof, text.split_once('=')) {
                (Proof::Digits, None) => ("sha256", text),
                (Proof::Sha1Digits, None) => ("sha1", text),
                (Proof::Named, Some(parts)) => parts,
                (Proof::Sha256, Some(("sha256", digits))) => ("sha256", digits),
                (Proof::Sha1, Some(("sha1", digits))) => ("sha1", digits),
                _ => return Err(form()),
            };
            let algorithm = algorithm_of(algorithm).ok_or_else(form)?;
            let tag =
                Some(digits).filter(|digits| digits.len() <= MAX_DIGITS).and_then(|digits| hex::decode(digits).ok());
            hmac::verify(&hmac::Key::new(algorithm, token), body, &tag.ok_or_else(form)?).is_ok()
        }
    };
    if is_right { Ok(()) } else { Err(Refusal::Wrong(name)) }
}

fn algorithm_of(name: &str) -> Option<hmac::Algorithm> {
    match name {
        "sha1" => Some(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        "sha256" => Some(hmac::HMAC_SHA256),
        "sha512" => Some(hmac::HMAC_SHA512),
        _ => None,
    }
}

/// Compares a given string with the token. The HMACs of both are compared, so that not even the length leaks.
fn is_equal(token: &[u8], given: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token);
    hmac::verify(&key, given, hmac::sign(&key, token).as_ref()).is_ok()
}

/// Returns the password of `Basic …`, or the token of `Bearer …`.
fn password(authorization: &str) -> Option<Vec<u8>> {
    let (scheme, value) = authorization.split_once(' ')?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.as_bytes().to_vec());
    }
    let login = scheme.eq_ignore_ascii_case("basic").then(|| BASE64_STANDARD.decode(value).ok())??;
    let colon = login.iter().position(|byte| *byte == b':')?;
    Some(login[colon + 1..].to_vec())
}

/// Returns the path of a Receiver. The path cannot be guessed without the token, and changes with the token. With an empty
/// token, it is no secret.
pub(super) fn path(token: &Secret<Vec<u8>>, namespace: &str, name: &str) -> String {
    // If the token itself were the key, the path would be a valid signature of its input.
    let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, token.expose()), PATH_KEY);
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
    // Neither a namespace nor a name contains a `/`.
    let tag = hmac::sign(&key, format!("receiver/{namespace}/{name}").as_bytes());
    format!("/hook/{}", hex::encode(tag))
}

/// Returns the event in the headers, for hosts that send the event there.
pub(super) fn event(kind: ReceiverType, headers: &HeaderMap) -> Option<&str> {
    let names: &[&str] = match kind {
        ReceiverType::Github => &["X-GitHub-Event"],
        ReceiverType::Gitea => &["X-Forgejo-Event", "X-Gitea-Event", "X-GitHub-Event"],
        ReceiverType::Gitlab => &["X-Gitlab-Event"],
        ReceiverType::Bitbucket => &["X-Event-Key"],
        ReceiverType::Cdevents => &["Ce-Type"],
        ReceiverType::AzureDevops
        | ReceiverType::Generic
        | ReceiverType::GenericHmac
        | ReceiverType::GenericOidc
        | ReceiverType::Dockerhub
        | ReceiverType::Quay
        | ReceiverType::Acr
        | ReceiverType::Gcr
        | ReceiverType::Harbor
        | ReceiverType::Nexus => &[],
    };
    names.iter().find_map(|name| headers.get(*name)?.to_str().ok())
}

/// Whether the body is a form.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    content_type(headers).eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// Whether the body is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = content_type(headers).to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

fn content_type(headers: &HeaderMap) -> &str {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    sent.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"{\"ref\":\"refs/heads/main\"}";

    fn token() -> Secret<Vec<u8>> {
        Secret::new(b"it is a secret".to_vec())
    }

    fn signed(algorithm: hmac::Algorithm, token: &[u8]) -> String {
        hex::encode(hmac::sign(&hmac::Key::new(algorithm, token), BODY))
    }

    #[track_caller]
    fn given(kind: ReceiverType, headers: &[(&'static str, String)], expected: Result<(), Refusal>) {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(*name, value.parse().unwrap());
        }
        assert_eq!(check(kind, &token(), &all, BODY), expected, "{kind:?} {headers:?}");
    }

    #[test]
    fn signatures_of_the_body_hold_for_the_token_alone() {
        let right = signed(hmac::HMAC_SHA256, b"it is a secret");
        let wrong = signed(hmac::HMAC_SHA256, b"another");
        let named = |digits: &str| format!("sha256={digits}");
        for (kind, header) in [
            (ReceiverType::Github, "X-Hub-Signature-256"),
            (ReceiverType::Gitea, "X-Hub-Signature-256"),
            (ReceiverType::Bitbucket, "X-Hub-Signature"),
            (ReceiverType::GenericHmac, "X-Signature"),
        ] {
            given(kind, &[(header, named(&right))], Ok(()));
            given(kind, &[(header, named(&wrong))], Err(Refusal::Wrong(header)));
            given(kind, &[(header, named(&right[..62]))], Err(Refusal::Wrong(header)));
            given(kind, &[(header, named(""))], Err(Refusal::Wrong(header)));
            given(kind, &[(header, named("zz"))], Err(Refusal::Form(header)));
            given(kind, &[(header, named(&"ab".repeat(10_000)))], Err(Refusal::Form(header)));
            given(kind, &[(header, right.clone())], Err(Refusal::Form(header)));
            given(kind, &[(header, named(&wrong)), (header, named(&right))], Err(Refusal::Form(header)));
            given(kind, &[], Err(Refusal::Missing(header)));
        }
        given(ReceiverType::Gitea, &[("X-Gitea-Signature", right.clone())], Ok(()));
        given(ReceiverType::Gitea, &[("X-Forgejo-Signature", wrong)], Err(Refusal::Wrong("X-Forgejo-Signature")));
    }

    #[test]
    fn the_better_of_two_signatures_decides() {
        let old = format!("sha1={}", signed(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"it is a secret"));
        given(ReceiverType::Github, &[("X-Hub-Signature", old.clone())], Ok(()));
        let both = [("X-Hub-Signature", old.clone()), ("X-Hub-Signature-256", "sha256=00".to_owned())];
        given(ReceiverType::Github, &both, Err(Refusal::Wrong("X-Hub-Signature-256")));
        given(ReceiverType::Bitbucket, &[("X-Hub-Signature", old)], Err(Refusal::Form("X-Hub-Signature")));
        let long = format!("sha512={}", signed(hmac::HMAC_SHA512, b"it is a secret"));
        given(ReceiverType::GenericHmac, &[("X-Signature", long)], Ok(()));
        given(ReceiverType::GenericHmac, &[("X-Signature", "md5=00".into())], Err(Refusal::Form("X-Signature")));
        let nexus = |digits: String, expected| {
            given(ReceiverType::Nexus, &[("X-Nexus-Webhook-Signature", digits)], expected);
        };
        nexus(signed(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"it is a secret"), Ok(()));
        nexus(
            signed(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"another"),
            Err(Refusal::Wrong("X-Nexus-Webhook-Signature")),
        );
        nexus("sha1=00".to_owned(), Err(Refusal::Form("X-Nexus-Webhook-Signature")));
    }

    #[test]
    fn a_token_that_is_sent_along_is_compared() {
        let gitlab = |token: &str, expected| given(ReceiverType::Gitlab, &[("X-Gitlab-Token", token.into())], expected);
        gitlab("it is a secret", Ok(()));
        gitlab("it is a secre", Err(Refusal::Wrong("X-Gitlab-Token")));
        gitlab("", Err(Refusal::Wrong("X-Gitlab-Token")));
        let azure = |value: String, expected| given(ReceiverType::AzureDevops, &[("Authorization", value)], expected);
        let basic = |login: &str| format!("Basic {}", BASE64_STANDARD.encode(login));
        azure(basic("anybody:it is a secret"), Ok(()));
        azure("bearer it is a secret".into(), Ok(()));
        azure(basic("it is a secret:"), Err(Refusal::Wrong("Authorization")));
        azure(basic("it is a secret"), Err(Refusal::Form("Authorization")));
        azure("Digest it is a secret".into(), Err(Refusal::Form("Authorization")));
        azure("Basic %%%".into(), Err(Refusal::Form("Authorization")));
        let harbor = |token: &str, expected| given(ReceiverType::Harbor, &[("Authorization", token.into())], expected);
        harbor("it is a secret", Ok(()));
        harbor("Bearer it is a secret", Err(Refusal::Wrong("Authorization")));
        for kind in [
            ReceiverType::Generic,
            ReceiverType::Dockerhub,
            ReceiverType::Quay,
            ReceiverType::Acr,
            ReceiverType::Cdevents,
        ] {
            given(kind, &[], Ok(()));
        }
    }

    #[test]
    fn a_path_is_that_of_one_receiver_and_one_token() {
        let one = path(&token(), "shop", "web");
        assert_eq!((one.len(), &one[..6]), (70, "/hook/"));
        assert_ne!(one, path(&token(), "shopw", "eb"));
        assert_ne!(one, path(&Secret::new(b"it is a secret2".to_vec()), "shop", "web"));
    }

    #[test]
    fn a_path_is_no_signature() {
        let path = path(&token(), "shop", "web");
        let digits = path.strip_prefix("/hook/").unwrap();
        for kind in [ReceiverType::GenericHmac, ReceiverType::Github, ReceiverType::Gitea, ReceiverType::Bitbucket] {
            let (name, _) = proofs(kind)[0];
            let mut headers = HeaderMap::new();
            headers.insert(name, format!("sha256={digits}").parse().unwrap());
            for body in ["receiver/shop/web", "mainstay receiver path v1"] {
                assert_eq!(
                    check(kind, &token(), &headers, body.as_bytes()),
                    Err(Refusal::Wrong(name)),
                    "{kind:?} {body}"
                );
            }
        }
    }
}
