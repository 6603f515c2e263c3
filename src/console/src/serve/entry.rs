//! Opens, finds and closes sessions. A session is opened by a link, by a form with a token, by an issuer of OpenID
//! Connect, or by the token that a proxy sends.
//!
//! Invariant: the API server has accepted the token of a session before the session responds to a request. Invariant:
//! no token is logged, shown or stored. Invariant: a cookie gives access to its session only at the host at which it
//! was set.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use jiff::Timestamp;
use ring::hmac;

use super::answer;
use super::held::held;
use super::session::{Session, token};
use super::shared::{Entry, Nobody, Shared};
use super::watched::said;
use crate::guard;
use crate::page::{self, SessionEnd};
use crate::session::{self, Owner, TokenDigest, cookies};
use crate::web_origin::WebOrigin;
use crate::{address, bearer};
use mainstay_cluster::{ApiServer, Cluster};
use mainstay_object::{Secret, printable};

/// The paths of the form, and of the button that closes a session.
const SIGN_IN: &str = "/sign-in";
const SIGN_OUT: &str = "/sign-out";
/// The path to which an issuer returns its users.
pub(super) const CALLBACK: &str = "/sign-in/callback";
/// The name of a user whose name the API server does not report.
pub(super) const UNKNOWN: &str = "unknown user";

impl Shared {
    /// Responds to requests that open or close a session.
    pub(super) async fn enter(&self, path: &str, request: &mut Request, origin: &WebOrigin) -> Option<Response> {
        match &self.entry {
            Entry::Link(cluster) => {
                let link = path.strip_prefix(guard::OPEN)?;
                Some(self.open(cluster, link, request.headers(), origin).await)
            }
            Entry::Form(server) if path == SIGN_IN => Some(self.sign_in(server, request, origin).await),
            Entry::Issuer(by) if path == SIGN_IN => Some(self.begin_attempt(by, request, origin).await),
            Entry::Issuer(by) if path == CALLBACK => Some(self.end_attempt(by, request, origin).await),
            Entry::Form(_) | Entry::Issuer(_) if path == SIGN_OUT && request.method() == Method::POST => {
                Some(self.sign_out(request, origin).await)
            }
            Entry::Form(_) | Entry::Issuer(_) | Entry::Proxy { .. } => None,
        }
    }

    /// Returns the session of a request, whose token may have been refused meanwhile.
    pub(super) async fn find(
        &self,
        headers: &HeaderMap,
        origin: &WebOrigin,
    ) -> Result<(TokenDigest, Arc<Session>), Nobody> {
        let now = Timestamp::now();
        let digest = match &self.entry {
            Entry::Proxy { .. } => bearer::of_headers(headers).map(TokenDigest::of),
            Entry::Link(_) | Entry::Form(_) | Entry::Issuer(_) => self.cookie(headers, origin),
        };
        let digest = digest.ok_or(Nobody::NoSession)?;
        let found = self.sessions.lock().of(digest, now);
        let session = match (found, &self.entry) {
            (Some(session), _) => session,
            (None, Entry::Proxy { server, key }) => {
                let text = bearer::of_headers(headers).ok_or(Nobody::NoSession)?;
                let csrf = |user: &str| form_token(key, user, digest);
                self.begin(server, text, digest, csrf).await?
            }
            (None, _) => return Err(Nobody::NoSession),
        };
        Ok((digest, session))
    }

    /// Ends a session whose token the API server refuses. The API server is asked if the last answer is old.
    pub(super) async fn check(&self, digest: TokenDigest, session: &Session) -> Result<(), Nobody> {
        if matches!(self.entry, Entry::Link(_)) || !session.is_refused(Timestamp::now()).await {
            return Ok(());
        }
        self.sessions.lock().end(digest);
        Err(if self.entry.has_sign_in() { Nobody::NoSession } else { Nobody::Refused })
    }

    /// Opens a session with a token, after the API server has accepted the token.
    pub(super) async fn begin(
        &self,
        server: &ApiServer,
        text: &str,
        digest: TokenDigest,
        csrf: impl FnOnce(&str) -> String,
    ) -> Result<Arc<Session>, Nobody> {
        let (expiry, now) = (bearer::expiry(text), Timestamp::now());
        if expiry.is_some_and(|expiry| expiry <= now) {
            return Err(Nobody::Refused);
        }
        let cluster = server.as_user(&Secret::new(text.to_owned())).map_err(|error| Nobody::Failed(said(&error)))?;
        let user = match self.openings.ask(cluster.user_name()).await? {
            Ok(Some(user)) => user,
            Err(error) if error.code() == Some(401) => return Err(Nobody::Refused),
            // The server has accepted the token, but the user may not ask for the name, or the server does not support
            // the question.
            Err(error) if matches!(error.code(), Some(403 | 404)) => UNKNOWN.to_owned(),
            Err(error) => return Err(Nobody::Failed(said(&error))),
            Ok(None) => UNKNOWN.to_owned(),
        };
        let owner = if user == UNKNOWN { Owner::unknown(text) } else { Owner::of(&user) };
        let session = self.session_of(&cluster, (&user, &owner), csrf(&user));
        let is_renewable = matches!(self.entry, Entry::Issuer(_));
        let end = SessionEnd { at: session::end(expiry, now), is_renewable };
        let session = Arc::new(session.with_end(self.entry.has_sign_in().then_some(end)));
        let stop = session.stop.clone();
        let opened = self.sessions.lock().open(digest, owner, (session, stop), expiry, now);
        tracing::info!(user = &*printable(&user), "a session was opened");
        Ok(opened)
    }

    fn session_of(&self, cluster: &Cluster, user: (&str, &Owner), csrf: String) -> Session {
        Session::begin(cluster, user, &self.namespace, &self.readers, csrf, &self.memory, &self.stop)
            .with_cluster_name(&self.cluster_name)
    }

    /// Turns a link into a session, and redirects to a URL without the token.
    async fn open(&self, cluster: &Cluster, link: &str, headers: &HeaderMap, origin: &WebOrigin) -> Response {
        if !self.sessions.lock().take_link(TokenDigest::of(link)) {
            let now = Timestamp::now();
            if self.cookie(headers, origin).is_some_and(|digest| self.sessions.lock().of(digest, now).is_some()) {
                return answer::see_other("/");
            }
            return answer::message(
                StatusCode::FORBIDDEN,
                "The link was used",
                "This link opens one session, and it was used or is wrong. Run `mainstay ui` again for a new one.",
            );
        }
        let (Ok(token), Ok(csrf)) = (token(), token()) else { return no_random_numbers() };
        // The page opens even if the server does not report the name of the user or refuses the question.
        let user = cluster.user_name().await.ok().flatten().unwrap_or_else(|| UNKNOWN.to_owned());
        let owner = Owner::of(&user);
        let session = Arc::new(self.session_of(cluster, (&user, &owner), csrf).with_kubeconfig());
        let stop = session.stop.clone();
        self.sessions.lock().open(digest(&token, origin), owner, (session, stop), None, Timestamp::now());
        self.with_cookie(answer::see_other("/"), &token, origin)
    }

    /// Responds to the form with a token. Each success opens a new session with a new cookie.
    async fn sign_in(&self, server: &ApiServer, request: &mut Request, origin: &WebOrigin) -> Response {
        if request.method() != Method::POST {
            return self.sign_in_page(StatusCode::OK, "/", "", origin);
        }
        let form = match self.form(request).await {
            Ok(form) => form,
            Err(response) => return response,
        };
        let next = address::within(form.get("next"));
        let refused = |status, why: &str| self.sign_in_page(status, next, why, origin);
        let Some(text) = bearer::token(form.get("token")) else {
            return refused(
                StatusCode::UNPROCESSABLE_ENTITY,
                "This is not a token: paste it in one line, without quotes around it.",
            );
        };
        let (Ok(secret), Ok(csrf)) = (token(), token()) else { return no_random_numbers() };
        match self.begin(server, text, digest(&secret, origin), |_| csrf).await {
            Ok(_) => self.signed_in(request.headers(), next, &secret, origin),
            Err(Nobody::Failed(why)) => refused(StatusCode::BAD_GATEWAY, &why),
            Err(Nobody::Unjudged(unjudged)) => refused(unjudged.status(), unjudged.message().trim_end()),
            Err(Nobody::Refused | Nobody::NoSession) => refused(
                StatusCode::UNAUTHORIZED,
                "The API server does not accept this token: it has expired, or is not of this cluster.",
            ),
        }
    }

    /// Returns the page on which users sign in.
    pub(super) fn sign_in_page(&self, status: StatusCode, next: &str, problem: &str, origin: &WebOrigin) -> Response {
        let issuer = if let Entry::Issuer(by) = &self.entry { Some(by.issuer.host()) } else { None };
        answer::page(status, page::sign_in(issuer, next, problem, self.better(origin).as_deref()))
    }

    /// Gives the browser the cookie of its new session, and opens a page.
    pub(super) fn signed_in(&self, headers: &HeaderMap, next: &str, secret: &str, origin: &WebOrigin) -> Response {
        // The browser's previous sessions would come before the new one, or are no longer reachable, so they are closed.
        self.end_named(headers, origin);
        self.with_cookie(answer::see_other(next), secret, origin)
    }

    async fn sign_out(&self, request: &mut Request, origin: &WebOrigin) -> Response {
        let digest = self.cookie(request.headers(), origin);
        let Some(session) = digest.and_then(|digest| self.sessions.lock().of(digest, Timestamp::now())) else {
            return answer::see_other("/");
        };
        // The form may wait for the session's other forms, so it has a permit like each request.
        match session.connections.try_request(request.method()) {
            Ok(permit) => held(self.end_sessions(&session, request, origin).await, permit),
            Err(full) => answer::busy(full.of_requests(request.method())),
        }
    }

    /// Ends the sessions of the browser if a page of its session has sent the form.
    async fn end_sessions(&self, session: &Session, request: &mut Request, origin: &WebOrigin) -> Response {
        if let Err(response) = session.form(request).await {
            return response;
        }
        self.end_named(request.headers(), origin);
        let mut response = self.with_cookie(answer::see_other("/"), "", origin);
        let name = self.cookie_name(origin);
        if sent_cookies(request.headers(), &name).nth(1).is_some() {
            expire_foreign(&mut response, &name, origin);
        }
        response
    }

    /// Ends all sessions that the cookies of the browser name.
    fn end_named(&self, headers: &HeaderMap, origin: &WebOrigin) {
        let name = self.cookie_name(origin);
        let mut sessions = self.sessions.lock();
        for token in sent_cookies(headers, &name) {
            sessions.end(digest(token, origin));
        }
    }

    /// Returns the name of the cookie of an origin. Ports of a machine share their cookies, so the name contains the
    /// port. With TLS, the prefix `__Host-` is used: a browser accepts such a cookie only from this host and only over
    /// TLS.
    pub(super) fn cookie_name(&self, origin: &WebOrigin) -> String {
        if origin.is_secure() { "__Host-mainstay".to_owned() } else { format!("mainstay_ui_{}", self.port) }
    }

    /// Returns the URL of this server whose cookie no other port receives, unless `origin` itself is such a URL.
    pub(super) fn better(&self, origin: &WebOrigin) -> Option<String> {
        let better = self.gate.origins.iter().find(|other| !other.shares_cookies());
        better.filter(|_| origin.shares_cookies()).map(WebOrigin::text)
    }

    /// Returns the open session of the browser.
    pub(super) fn open_session(&self, headers: &HeaderMap, origin: &WebOrigin) -> Option<Arc<Session>> {
        let digest = self.cookie(headers, origin)?;
        self.sessions.lock().of(digest, Timestamp::now())
    }

    /// Returns the digest of the first cookie with an open session; without one, that of the first cookie.
    pub(super) fn cookie(&self, headers: &HeaderMap, origin: &WebOrigin) -> Option<TokenDigest> {
        let name = self.cookie_name(origin);
        let all: Vec<TokenDigest> = sent_cookies(headers, &name).map(|token| digest(token, origin)).collect();
        let (mut sessions, now) = (self.sessions.lock(), Timestamp::now());
        let open = all.iter().find(|digest| sessions.of(**digest, now).is_some());
        open.or(all.first()).copied()
    }

    /// Sets the cookie; an empty token removes the cookie.
    pub(super) fn with_cookie(&self, mut response: Response, token: &str, origin: &WebOrigin) -> Response {
        set_cookie(&mut response, &self.cookie_name(origin), token, origin);
        response
    }
}

/// Returns the values of the cookies with a name that the browser sends. A page of another port of the same host can set one
/// that comes before that of this server.
pub(super) fn sent_cookies<'h>(headers: &'h HeaderMap, name: &'h str) -> impl Iterator<Item = &'h str> {
    headers.get_all(header::COOKIE).iter().flat_map(move |header| cookies(header.as_bytes(), name))
}

/// Returns the token of the forms of a user behind a proxy. Users whose name the API server does not report share none, so
/// theirs depends on the token that the proxy sends.
fn form_token(key: &hmac::Key, user: &str, digest: TokenDigest) -> String {
    let owner = if user == UNKNOWN { format!("token {digest:?}") } else { format!("user {user}") };
    hex::encode(hmac::sign(key, owner.as_bytes()))
}

/// Sets a cookie of this server; an empty value removes it.
pub(super) fn set_cookie(response: &mut Response, name: &str, value: &str, origin: &WebOrigin) {
    let secure = if origin.is_secure() { "; Secure" } else { "" };
    let end = if value.is_empty() { "; Max-Age=0" } else { "" };
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{end}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Removes the cookies with a name that pages of other ports or other paths have set, as far as the browser sends them to
/// [`SIGN_OUT`]. A browser accepts the cookies of an encrypted origin from this server only.
fn expire_foreign(response: &mut Response, name: &str, origin: &WebOrigin) {
    if origin.is_secure() {
        return;
    }
    let domains: Vec<String> = origin.cookie_domains().map(|domain| format!("; Domain={domain}")).collect();
    for path in ["/", SIGN_OUT] {
        for domain in std::iter::once("").chain(domains.iter().map(String::as_str)) {
            let cookie = format!("{name}=; Path={path}{domain}; HttpOnly; Max-Age=0");
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                response.headers_mut().append(header::SET_COOKIE, cookie);
            }
        }
    }
}

/// Returns the digest of a cookie, which is valid only at its own origin.
pub(super) fn digest(token: &str, origin: &WebOrigin) -> TokenDigest {
    TokenDigest::of(&format!("{} {token}", origin.text()))
}

pub(super) fn no_random_numbers() -> Response {
    answer::message(StatusCode::INTERNAL_SERVER_ERROR, "No session", "The system provides no random numbers.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_of_other_paths_and_domains_are_removed() {
        let removed = |origin: &str| {
            let mut response = answer::see_other("/");
            expire_foreign(&mut response, "a", &origin.parse().unwrap());
            let all = response.headers().get_all(header::SET_COOKIE).iter();
            all.map(|cookie| cookie.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let all = removed("http://mainstay-console.localhost:8080");
        for part in ["/;", "/; Domain=mainstay-console.localhost;", "/; Domain=localhost;", "/sign-out;"] {
            let expected = format!("a=; Path={part} HttpOnly; Max-Age=0");
            assert!(all.contains(&expected), "{expected}: {all:?}");
        }
        assert_eq!((all.len(), removed("https://console.example.com").len()), (6, 0));
    }

    #[test]
    fn users_without_a_name_share_no_token_of_forms() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]);
        let of = |user: &str, token: &str| form_token(&key, user, TokenDigest::of(token));
        assert_eq!(of("ann", "1"), of("ann", "2"), "the token of a user is renewed");
        assert_ne!(of("ann", "1"), of("bob", "1"));
        assert_eq!(of(UNKNOWN, "1"), of(UNKNOWN, "1"));
        assert_ne!(of(UNKNOWN, "1"), of(UNKNOWN, "2"));
    }
}
