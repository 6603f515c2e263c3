//! A client of `mainstay ui` that keeps its cookie, as a browser does.

use mainstay_testkit::program::{Program, Running};
use reqwest::{Client, Method, RequestBuilder, redirect::Policy};

use crate::page_answer::Answer;

/// A browser with a session, and the running command.
pub(super) struct Browser {
    pub(super) client: Client,
    /// `http://mainstay-console.localhost:PORT`.
    pub(super) base: String,
    /// The link that was used.
    pub(super) link: String,
    pub(super) cookie: String,
    _command: Running,
}

impl Browser {
    /// Starts the command with these arguments, without opening the link.
    pub(super) async fn start(program: &Program, arguments: &[&str]) -> Self {
        let mut command = program.start(&[&["ui", "--no-open"], arguments].concat());
        let line = command.line("Open http").await;
        let link = line.trim().strip_prefix("Open ").unwrap().to_owned();
        let (base, _) = link.split_once("/open/").unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (host, loopback) = ("mainstay-console.localhost", ([127, 0, 0, 1], 0).into());
        assert!(base.starts_with(&format!("http://{host}:")), "{base}");
        let client = Client::builder().no_proxy().resolve(host, loopback).redirect(Policy::none()).build().unwrap();
        Self { client, base: base.to_owned(), link, cookie: String::new(), _command: command }
    }

    /// Starts the command and opens its link.
    pub(super) async fn open(program: &Program, arguments: &[&str]) -> Self {
        let mut browser = Self::start(program, arguments).await;
        let opened = browser.open_link().await;
        assert_eq!((opened.code, opened.headers["location"].to_str().unwrap()), (303, "/"));
        let cookie = opened.headers["set-cookie"].to_str().unwrap().to_owned();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        cookie.split(';').next().unwrap().clone_into(&mut browser.cookie);
        browser
    }

    /// Opens the link.
    pub(super) async fn open_link(&self) -> Answer {
        Answer::read(self.client.get(&self.link).send().await.unwrap()).await
    }

    /// Returns a request with the cookie.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base)).header("cookie", &self.cookie)
    }

    /// Sends a request.
    pub(super) async fn send(&self, request: RequestBuilder) -> Answer {
        Answer::read(request.send().await.unwrap()).await
    }

    /// Reads a page.
    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// Reads a page until `holds` accepts it.
    pub(super) async fn until(&self, path: &str, holds: impl Fn(&Answer) -> bool) -> Answer {
        loop {
            let answer = self.get(path).await;
            if holds(&answer) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Sends a form of this page.
    pub(super) async fn post(&self, form: &str) -> Answer {
        let request = self.request(Method::POST, "/act").header("origin", &self.base);
        self.send(request.header("content-type", "application/x-www-form-urlencoded").body(form.to_owned())).await
    }

    /// Opens the page that asks before an action, and returns its form with these values.
    pub(super) async fn form(&self, action: &str, more: &str) -> String {
        let page = self.get(&format!("/act?{action}")).await;
        assert_eq!(page.code, 200, "{}", page.text);
        let value = |name: &str| {
            let (_, rest) = page.text.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        format!("{action}&csrf={}&commit={}{more}", value("csrf"), value("commit"))
    }
}
