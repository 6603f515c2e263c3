//! Lists the tags of a repository.

use reqwest::header::{self, HeaderMap};
use reqwest::{Method, Url};
use serde::Deserialize;

use super::send::{Ask, allowed, location_in};
use super::{Client, Error, Fault};

/// Maximum size of a page in bytes.
const MAX_PAGE: u64 = 4 << 20;
/// Maximum number of pages, and of tags.
const MAX_PAGES: usize = 100;
const MAX_TAGS: usize = 100_000;

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

impl Client {
    /// Returns the tags of the repository, in the order of the registry; `None` if the repository does not exist.
    pub async fn tags(&self) -> Result<Option<Vec<String>>, Error> {
        self.list_tags().await.map_err(self.failed("could not list the tags at"))
    }

    async fn list_tags(&self) -> Result<Option<Vec<String>>, Fault> {
        let mut url = self.address("tags", "list");
        let mut all = Vec::new();
        for _ in 0..MAX_PAGES {
            let response = match self.ask(&Ask::accepting(Method::GET, "application/json"), &url).await {
                Ok(response) => response,
                Err(Fault::Status { status: 404, .. }) => return Ok(None),
                Err(fault) => return Err(fault),
            };
            let next = next(response.headers(), &url);
            let page = self.body(response, "the list of tags", MAX_PAGE).await?;
            let page: Page =
                serde_json::from_slice(&page).map_err(|_| Fault::Protocol { why: "its list of tags is invalid" })?;
            all.extend(page.tags.unwrap_or_default());
            if all.len() > MAX_TAGS {
                return Err(Fault::TooLarge { what: "the number of tags", limit: MAX_TAGS as u64 });
            }
            let Some(next) = next else { return Ok(Some(all)) };
            allowed(&url, &next)?;
            url = next;
        }
        Err(Fault::TooLarge { what: "the number of pages with tags", limit: MAX_PAGES as u64 })
    }
}

/// Returns the URL of the next page.
pub(super) fn next(headers: &HeaderMap, base: &Url) -> Option<Url> {
    let links = headers.get_all(header::LINK).iter().filter_map(|value| value.to_str().ok());
    let next = links.flat_map(|links| links.split(',')).find(|link| link.contains("rel=\"next\""))?;
    let (_, rest) = next.split_once('<')?;
    location_in(rest.split_once('>')?.0, base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_link_to_the_next_page_and_no_other() {
        let base: Url = "https://r.example.org/v2/shop/tags/list".parse().unwrap();
        let check = |link: &'static str, expected: Option<&str>| {
            let headers = [(header::LINK, header::HeaderValue::from_static(link))].into_iter().collect();
            assert_eq!(next(&headers, &base).map(String::from).as_deref(), expected, "{link}");
        };
        let page = "https://r.example.org/v2/shop/tags/list?n=2&last=b";
        check("</v2/shop/tags/list?n=2&last=b>; rel=\"next\"", Some(page));
        check("<https://u:p@r.example.org/v2/shop/tags/list?n=2&last=b>; rel=\"next\"", Some(page));
        check("</other>; rel=\"prev\"", None);
        check("no link", None);
    }
}
