//! Lists the tags of a repository.
//!
//! Invariant: the tags of all pages together take bounded memory, and no tag beyond the limits is kept.

use std::fmt;

use reqwest::header::{self, HeaderMap};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::send::{Ask, allowed, location_in};
use super::{Client, Error, Fault};

/// Maximum size of a page in bytes.
const MAX_PAGE: u64 = 4 << 20;
/// Maximum number of pages, and of tags.
const MAX_PAGES: usize = 100;
const MAX_TAGS: usize = 100_000;
/// Maximum total size of all tags in bytes.
const MAX_BYTES: usize = 8 << 20;
/// Maximum length of a tag in bytes, by the specification. Longer ones are left out.
const MAX_TAG: usize = 128;

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    tags: Option<Tags>,
}

/// Tags in the order of the registry.
#[derive(Debug, Default)]
struct Tags {
    all: Vec<String>,
    bytes: usize,
}

impl Tags {
    /// Adds the tags of a page.
    ///
    /// # Errors
    /// The page is invalid, or all tags together exceed a limit.
    fn add_page(&mut self, page: &[u8]) -> Result<(), Fault> {
        let page: Page =
            serde_json::from_slice(page).map_err(|_| Fault::Protocol { why: "its list of tags is invalid" })?;
        let tags = page.tags.unwrap_or_default();
        self.bytes += tags.bytes;
        self.all.extend(tags.all);
        self.excess().map_or(Ok(()), Err)
    }

    /// Returns the limit that the tags exceed.
    fn excess(&self) -> Option<Fault> {
        if self.all.len() > MAX_TAGS {
            return Some(Fault::TooLarge { what: "the number of tags", limit: MAX_TAGS as u64 });
        }
        (self.bytes > MAX_BYTES).then_some(Fault::TooLarge { what: "the list of all tags", limit: MAX_BYTES as u64 })
    }
}

impl<'de> Deserialize<'de> for Tags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(List)
    }
}

/// Reads a list of tags. Further tags are read and not kept after a limit is exceeded.
struct List;

impl<'de> Visitor<'de> for List {
    type Value = Tags;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of tags")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tags, A::Error> {
        let mut tags = Tags::default();
        while let Some(Tag(tag)) = list.next_element()? {
            if let Some(tag) = tag.filter(|_| tags.excess().is_none()) {
                tags.bytes += tag.len();
                tags.all.push(tag);
            }
        }
        Ok(tags)
    }
}

/// A tag; `None` if it is too long.
struct Tag(Option<String>);

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

/// Reads a tag.
struct Text;

impl Visitor<'_> for Text {
    type Value = Tag;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a tag")
    }

    fn visit_str<E>(self, text: &str) -> Result<Tag, E> {
        Ok(Tag((text.len() <= MAX_TAG).then(|| text.to_owned())))
    }
}

impl Client {
    /// Returns the tags of the repository, in the order of the registry; `None` if the repository does not exist.
    pub async fn tags(&self) -> Result<Option<Vec<String>>, Error> {
        self.list_tags().await.map_err(self.failed("could not list the tags at"))
    }

    async fn list_tags(&self) -> Result<Option<Vec<String>>, Fault> {
        let mut url = self.address("tags", "list");
        let mut tags = Tags::default();
        for _ in 0..MAX_PAGES {
            let response = match self.ask(&Ask::accepting(Method::GET, "application/json"), &url).await {
                Ok(response) => response,
                Err(Fault::Status { status: 404, .. }) => return Ok(None),
                Err(fault) => return Err(fault),
            };
            let next = next(response.headers(), &url);
            tags.add_page(&self.body(response, "the list of tags", MAX_PAGE).await?)?;
            let Some(next) = next else { return Ok(Some(tags.all)) };
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
    use serde_json::json;

    use super::*;

    #[test]
    fn tags_longer_than_128_characters_are_left_out() {
        let mut tags = Tags::default();
        let (longest, longer) = ("a".repeat(MAX_TAG), "a".repeat(MAX_TAG + 1));
        tags.add_page(json!({"name": "shop", "tags": ["1.0", longer, longest]}).to_string().as_bytes()).unwrap();
        tags.add_page(br#"{"tags": ["\u0031.1"]}"#).unwrap();
        tags.add_page(br#"{"tags": null}"#).unwrap();
        tags.add_page(b"{}").unwrap();
        assert_eq!(tags.all, ["1.0", longest.as_str(), "1.1"]);
        for invalid in [r#"{"tags": [1]}"#, r#"{"tags": "a"}"#, r#"{"tags": [null]}"#, "["] {
            let said = tags.add_page(invalid.as_bytes()).unwrap_err().to_string();
            assert!(said.contains("its list of tags is invalid"), "{said}");
        }
    }

    #[test]
    fn the_pages_of_a_list_are_bounded_together() {
        let page = |first: usize| {
            let tags: Vec<_> = (first..first + 25_000).map(|number| format!("{number:0128}")).collect();
            json!({"tags": tags}).to_string()
        };
        let mut tags = Tags::default();
        let added: Vec<_> = (0..3).map(|number| tags.add_page(page(number * 25_000).as_bytes()).is_ok()).collect();
        assert_eq!(added, [true, true, false]);
        assert!(matches!(tags.excess(), Some(Fault::TooLarge { limit, .. }) if limit == MAX_BYTES as u64));
    }

    #[test]
    fn no_tag_beyond_the_limits_is_kept() {
        let mut tags = Tags::default();
        let many = format!("{{\"tags\": [{}\"\"]}}", "\"\",".repeat(1_000_000));
        assert!(
            matches!(tags.add_page(many.as_bytes()), Err(Fault::TooLarge { limit, .. }) if limit == MAX_TAGS as u64)
        );
        assert_eq!(tags.all.len(), MAX_TAGS + 1);
    }

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
