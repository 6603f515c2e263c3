//! A user of the page with a session of its own, as a browser has it.

use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder, Response, header, redirect::Policy};

use super::Error;

/// The host at which users open the page; an address of this machine is none of its names.
const HOST: &str = "mainstay-console.localhost:8080";

/// A signed-in user.
pub(crate) struct Viewer {
    client: Client,
    address: String,
    cookie: String,
    /// The open stream of changes.
    stream: Option<Response>,
}

impl Viewer {
    /// Signs in with a token.
    pub(crate) async fn sign_in(address: &str, token: &str) -> Result<Self, Error> {
        let client = Client::builder().no_proxy().redirect(Policy::none()).build().map_err(Error::Page)?;
        let form = client.post(format!("http://{address}/sign-in")).header(header::HOST, HOST);
        let form = form.header(header::ORIGIN, format!("http://{HOST}"));
        let form = form.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = form.body(format!("token={token}&next=/")).send().await.map_err(Error::Page)?;
        let cookie = answer.headers().get(header::SET_COOKIE).and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.and_then(|cookie| cookie.split(';').next()).ok_or(Error::NotStarted)?.to_owned();
        Ok(Self { client, address: address.to_owned(), cookie, stream: None })
    }

    fn request(&self, path: &str) -> RequestBuilder {
        let request = self.client.get(format!("http://{}{path}", self.address)).header(header::HOST, HOST);
        request.header(header::COOKIE, &self.cookie)
    }

    /// Reads a page. Returns its text, and the time until its last byte.
    pub(crate) async fn read(&self, path: &str) -> Result<(String, Duration), Error> {
        let start = Instant::now();
        let answer = self.request(path).send().await.and_then(Response::error_for_status).map_err(Error::Page)?;
        let text = answer.text().await.map_err(Error::Page)?;
        Ok((text, start.elapsed()))
    }

    /// Opens the stream of changes.
    pub(crate) async fn listen(&mut self) -> Result<(), Error> {
        let answer = self.request("/events").send().await.and_then(Response::error_for_status);
        self.stream = Some(answer.map_err(Error::Page)?);
        Ok(())
    }

    /// Waits for the next change.
    pub(crate) async fn changed(&mut self) -> Result<(), Error> {
        let Some(stream) = &mut self.stream else { return Err(Error::NotStarted) };
        while let Some(chunk) = stream.chunk().await.map_err(Error::Page)? {
            if chunk.starts_with(b"event: change") {
                return Ok(());
            }
        }
        Err(Error::NotStarted)
    }
}
