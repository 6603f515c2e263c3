//! The conversation with a Git host that keeps one comment on a pull request: it reads the user of the token and the
//! comments, and then edits the comment of an earlier message, or creates one.
//!
//! A marker at the beginning of a comment is a digest of the Provider and the resource.
//!
//! Invariant: only a comment of the token's own user that begins with the marker is edited. Anyone can copy a marker,
//! and a token may have the permission to edit the comments of other users.
//! Invariant: the number of requests and the bytes of each response are bounded. If the comment may be beyond these
//! bounds, no second one is created.
//! Invariant: each address is that of the Provider, with a number. No link of a response is followed.
//!
//! Not here: the text of the comment (`format`), and the connection, which the agent opens.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer as _, SeqAccess, Visitor};

use crate::outcome::Outcome;
use crate::provider_type::ProviderType;
use crate::request::Request;

/// Number of comments on a page.
pub(crate) const PER_PAGE: usize = 50;
/// Maximum number of pages.
const PAGES: u64 = 20;

/// A comment on a pull request, with the next step of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment {
    kind: ProviderType,
    /// Number of the pull request.
    number: u64,
    marker: String,
    requests: Requests,
    step: Step,
}

/// The requests at the API of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Requests {
    /// Reads the user of the token.
    pub(crate) user: Request,
    /// Lists comments, the oldest first. If the host has pages, the address ends before the number of the page.
    pub(crate) list: Request,
    /// Creates the comment.
    pub(crate) create: Request,
    /// Edits the comment. The address ends before the id of the comment.
    pub(crate) edit: Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Read the user of the token.
    User,
    /// Read a page. `is_cut` is true if an earlier page was longer than the bound.
    Page { author: u64, page: u64, is_cut: bool },
    /// Edit the comment with this id.
    Edit(u64),
    /// Create the comment.
    Create,
}

/// A user in responses of the API.
#[derive(Deserialize)]
struct User {
    id: u64,
}

/// A comment in responses of the API. GitLab calls the user the author.
#[derive(Deserialize)]
struct Listed {
    id: u64,
    body: Option<String>,
    #[serde(alias = "author")]
    user: Option<User>,
}

/// The search for the comment on a page. It keeps its result even if the end of the page is cut off.
struct Search<'m> {
    author: u64,
    marker: &'m str,
    found: Option<u64>,
    /// Number of comments that were read.
    count: usize,
}

impl<'de> Visitor<'de> for &mut Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of comments")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(listed) = list.next_element::<Listed>()? {
            let is_own = listed.user.is_some_and(|user| user.id == self.author);
            if is_own && listed.body.is_some_and(|body| body.starts_with(self.marker)) {
                self.found.get_or_insert(listed.id);
            }
            self.count += 1;
        }
        Ok(())
    }
}

impl Comment {
    /// Maximum number of bytes of a page that are read.
    pub(crate) const ANSWER_BYTES: usize = 512 << 10;

    pub(crate) fn new(kind: ProviderType, number: u64, marker: String, requests: Requests) -> Self {
        Self { kind, number, marker, requests, step: Step::User }
    }

    /// Returns the request of the next step.
    pub fn request(&self) -> Request {
        match self.step {
            Step::User => self.requests.user.clone(),
            Step::Page { page, .. } if self.has_pages() => self.requests.list.numbered(page),
            Step::Page { .. } => self.requests.list.clone(),
            Step::Edit(id) => self.requests.edit.numbered(id),
            Step::Create => self.requests.create.clone(),
        }
    }

    /// Returns the maximum number of bytes of the response to [`request`](Self::request) that are read.
    pub const fn answer_bytes(&self) -> usize {
        match self.step {
            Step::Page { .. } => Self::ANSWER_BYTES,
            Step::User | Step::Edit(_) | Step::Create => 16 << 10,
        }
    }

    /// Goes to the next step after a response to [`request`](Self::request), with at most
    /// [`answer_bytes`](Self::answer_bytes) of its body. Returns the outcome after the last step.
    pub fn answered(&mut self, status: u16, after: Option<Duration>, body: &[u8]) -> Option<Outcome> {
        let next = match (self.step, status) {
            (Step::User, 200..=299) => read_user(body),
            (Step::Page { author, page, is_cut }, 200..=299) => self.search(author, page, is_cut, body),
            // The comment was deleted in the meantime.
            (Step::Edit(_), 404 | 410) if after.is_none() => Ok(Step::Create),
            (Step::Page { .. } | Step::Create, 404 | 410) => {
                Err(self.refused("is not found with this token (status 404); correct change_request or the address"))
            }
            // A host that limits the rate says when the next request may be sent.
            (Step::Edit(_) | Step::Create, 403) if after.is_none() => Err(self
                .refused("accepts no comment with this token (status 403); it is locked, or the token may only read")),
            _ => Err(Outcome::of(self.kind, status, after, body)),
        };
        match next {
            Ok(step) => {
                self.step = step;
                None
            }
            Err(outcome) => Some(outcome),
        }
    }

    /// Returns whether the host lists comments in pages. Gitea lists all comments in one response.
    fn has_pages(&self) -> bool {
        self.kind != ProviderType::GiteaComment
    }

    /// Searches a page for the comment.
    fn search(&self, author: u64, page: u64, was_cut: bool, body: &[u8]) -> Result<Step, Outcome> {
        let mut search = Search { author, marker: &self.marker, found: None, count: 0 };
        let read = serde_json::Deserializer::from_slice(body).deserialize_seq(&mut search);
        let (found, count) = (search.found, search.count);
        if let Some(id) = found {
            return Ok(Step::Edit(id));
        }
        let is_cut = match read {
            Ok(()) => false,
            Err(error) if error.is_eof() && body.len() >= Self::ANSWER_BYTES => true,
            Err(_) => return Err(unlike("comments")),
        };
        // GitLab leaves notes out of a page that the user may not read, so a short page may have a successor.
        let shortest = if self.kind == ProviderType::GitlabComment { 1 } else { PER_PAGE };
        let is_last = !self.has_pages() || (!is_cut && count < shortest);
        let is_cut = is_cut || was_cut;
        match (is_last, is_cut) {
            (true, false) => Ok(Step::Create),
            (false, _) if page < PAGES => Ok(Step::Page { author, page: page + 1, is_cut }),
            _ => Err(self.refused("has more or longer comments than are read, so an earlier one is not found")),
        }
    }

    /// Returns the outcome of a message that this pull request cannot get. Messages about others are still sent.
    fn refused(&self, why: &str) -> Outcome {
        Outcome::Refused(format!("pull request {} {why}", self.number))
    }
}

fn read_user(body: &[u8]) -> Result<Step, Outcome> {
    let user: User = serde_json::from_slice(body).map_err(|_| unlike("the user of the token"))?;
    Ok(Step::Page { author: user.id, page: 1, is_cut: false })
}

/// Returns the outcome of a response that is not one of the API.
fn unlike(expected: &str) -> Outcome {
    Outcome::Retry { why: format!("the service does not answer with {expected}; correct the address"), after: None }
}
