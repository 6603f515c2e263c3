//! Sends users to the issuer of OpenID Connect, and opens a session when they return.
//!
//! The issuer's redirect comes from another site, so the browser sends no `SameSite=Strict` cookie with it. The response
//! to it is the page that opens its own URL again (`guard`), and the browser sends the cookie with this second request.
//!
//! Invariant: a code opens a session only in the browser that began the attempt. Invariant: the page shows errors of
//! the issuer only if they belong to an attempt of the browser, so that no link can show a text on it.

use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;

use super::answer;
use super::entry::{CALLBACK, UNKNOWN, digest, no_random_numbers, sent_cookies, set_cookie};
use super::issuer::Prompt;
use super::session::token;
use super::shared::{Nobody, Shared, SignIn};
use crate::attempt::Attempt;
use crate::filter::Query;
use crate::page;
use crate::session::TokenDigest;
use crate::text::{MESSAGE, plain};
use crate::web_origin::WebOrigin;
use mainstay_object::printable;

const NOT_BEGUN: &str =
    "This browser did not begin this sign-in, or began it more than ten minutes ago. Sign in again.";
const NOT_TRUSTED: &str = "The API server does not accept the ID token of this issuer. Its settings must name the same \
                           issuer and client ID as this page, or an audience that the token has.";

/// The errors by which an issuer refuses to sign a user in without a prompt.
const NEEDS_USER: [&str; 4] =
    ["login_required", "interaction_required", "consent_required", "account_selection_required"];
const ENDED: &str = "Your session has ended. Sign in again.";

impl Shared {
    /// Begins an attempt, and sends the browser to the issuer. Without a page to open afterwards, the page that has sent
    /// the form is opened.
    pub(super) async fn begin_attempt(&self, by: &SignIn, request: &mut Request, origin: &WebOrigin) -> Response {
        if request.method() != Method::POST {
            return self.sign_in_page(StatusCode::OK, "/", "", origin);
        }
        let form = match self.form(request).await {
            Ok(form) => form,
            Err(response) => return response,
        };
        let sender = request.headers().get(header::REFERER).and_then(|sender| sender.to_str().ok());
        let sender = sender.and_then(|sender| sender.strip_prefix(&*origin.text()));
        let next = Some(form.get("next")).filter(|next| !next.is_empty()).or(sender).unwrap_or("/");
        self.leave(by, next, Prompt::Allowed, StatusCode::OK, origin).await
    }

    /// Sends a browser whose session has ended to the issuer. If the issuer still knows the user, the browser returns to
    /// the page with a new session; otherwise, it returns to the page that signs users in.
    pub(super) async fn renew(&self, by: &SignIn, next: &str, origin: &WebOrigin) -> Response {
        self.leave(by, next, Prompt::Refused, StatusCode::UNAUTHORIZED, origin).await
    }

    async fn leave(&self, by: &SignIn, next: &str, prompt: Prompt, status: StatusCode, origin: &WebOrigin) -> Response {
        let Ok(random) = token() else { return no_random_numbers() };
        let attempt = Attempt::begin(&by.key, &origin.text(), &random, next, Timestamp::now());
        let url = match by.issuer.sign_in_url(&attempt, &callback(origin), prompt).await {
            Ok(url) => url,
            Err(why) => return self.failed(by, StatusCode::BAD_GATEWAY, &attempt.next, &why, origin),
        };
        let mut response = answer::page(status, page::leaving(by.issuer.host(), &url));
        // The security policy forbids that a form leads to another site, so this page opens the issuer's.
        if let Ok(refresh) = HeaderValue::from_str(&format!("0;url={url}")) {
            response.headers_mut().insert(HeaderName::from_static("refresh"), refresh);
        }
        set_cookie(&mut response, &self.attempt_name(origin), &attempt.cookie, origin);
        response
    }

    /// Ends an attempt when the browser returns from the issuer.
    pub(super) async fn end_attempt(&self, by: &SignIn, request: &mut Request, origin: &WebOrigin) -> Response {
        let query = Query::parse(request.uri().query().unwrap_or_default().as_bytes());
        let Some(attempt) = self.attempt_of(by, request, &query, origin) else {
            return self.sign_in_page(StatusCode::FORBIDDEN, "/", NOT_BEGUN, origin);
        };
        let mut response = self.exchange(by, &attempt, &query, request.headers(), origin).await;
        set_cookie(&mut response, &self.attempt_name(origin), "", origin);
        let is_open =
            response.status() == StatusCode::SEE_OTHER || self.open_session(request.headers(), origin).is_some();
        // Without the cookie of its session that has ended, the browser is not sent to the issuer again.
        if is_open { response } else { self.with_cookie(response, "", origin) }
    }

    /// Returns the attempt to which an answer of the issuer belongs.
    fn attempt_of(&self, by: &SignIn, request: &Request, query: &Query, origin: &WebOrigin) -> Option<Attempt> {
        let (name, origin, now) = (self.attempt_name(origin), origin.text(), Timestamp::now());
        let attempt = |cookie: &str| Attempt::of_cookie(&by.key, &origin, cookie, now);
        let mut attempts = sent_cookies(request.headers(), &name).filter_map(attempt);
        // Digests are compared, so that the duration reveals nothing about the state.
        let state = TokenDigest::of(query.get("state"));
        let attempt = attempts.find(|attempt| TokenDigest::of(&attempt.state) == state)?;
        (request.method() == Method::GET).then_some(attempt)
    }

    async fn exchange(
        &self,
        by: &SignIn,
        attempt: &Attempt,
        query: &Query,
        headers: &HeaderMap,
        origin: &WebOrigin,
    ) -> Response {
        let failed = |status, why: &str| self.failed(by, status, &attempt.next, why, origin);
        if NEEDS_USER.contains(&query.get("error")) {
            return self.sign_in_page(StatusCode::UNAUTHORIZED, &attempt.next, ENDED, origin);
        }
        if !query.get("error").is_empty() {
            let why = format!("the issuer refused: {} {}", query.get("error"), query.get("error_description"));
            return failed(StatusCode::FORBIDDEN, why.trim_end());
        }
        let text = match by.issuer.id_token(attempt, query.get("code"), &callback(origin)).await {
            Ok(text) => text,
            Err(why) => return failed(StatusCode::BAD_GATEWAY, &why),
        };
        let (Ok(secret), Ok(csrf)) = (token(), token()) else { return no_random_numbers() };
        // Forms that the user has open stay valid if the session is renewed.
        let before = self.open_session(headers, origin);
        let of_user = |user: &str| before.as_ref().filter(|before| user != UNKNOWN && before.is_of(user));
        let csrf = |user: &str| of_user(user).map_or(csrf, |before| before.csrf.clone());
        match self.begin(&by.server, &text, digest(&secret, origin), csrf).await {
            Ok(_) => self.signed_in(headers, &attempt.next, &secret, origin),
            Err(Nobody::Failed(why)) => failed(StatusCode::BAD_GATEWAY, &why),
            Err(Nobody::Unjudged(unjudged)) => failed(unjudged.status(), unjudged.message().trim_end()),
            Err(Nobody::Refused | Nobody::NoSession) => failed(StatusCode::UNAUTHORIZED, NOT_TRUSTED),
        }
    }

    /// Returns the page that says why no session was opened, and logs it, at most once in a minute.
    fn failed(&self, by: &SignIn, status: StatusCode, next: &str, why: &str, origin: &WebOrigin) -> Response {
        let why = plain(why, MESSAGE);
        if let Some(omitted) = by.failures.lock().next(Timestamp::now()) {
            tracing::warn!(why = &*printable(&why), omitted, "a sign-in with the issuer failed");
        }
        self.sign_in_page(status, next, &why, origin)
    }

    /// Returns the name of the cookie of an attempt.
    fn attempt_name(&self, origin: &WebOrigin) -> String {
        format!("{}_sign_in", self.cookie_name(origin))
    }
}

/// Returns the URL to which the issuer returns users.
fn callback(origin: &WebOrigin) -> String {
    format!("{}{CALLBACK}", origin.text())
}
