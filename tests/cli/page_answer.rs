//! A response of the web page of `mainstay ui` or `mainstay console`.

use reqwest::{Response, header::HeaderMap};

/// A response whose body was read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn read(response: Response) -> Self {
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        Self { code, headers, text: response.text().await.unwrap() }
    }

    /// Returns the value of a hidden field.
    pub(crate) fn field(&self, name: &str) -> String {
        let (_, rest) = self.text.split_once(&format!("name=\"{name}\" value=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    /// Returns the cookie that the response sets.
    pub(crate) fn cookie(&self) -> String {
        self.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
    }
}
