//! The steps that deliver a notice, as values.

use serde_json::Value;

use crate::comment::Comment;
use crate::login::Login;
use crate::nats::Publication;
use crate::request::Request;

/// The steps that deliver a notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// One request.
    Http(Request),
    /// One request, after its login is known.
    Authorized(Login, Request),
    /// A request that is needed only if the service does not have the status yet.
    Unless(LookUp, Request),
    /// The requests that edit or create a comment on a pull request.
    Comment(Box<Comment>),
    /// One message at a server of NATS.
    Nats(Publication),
}

/// A request for the status that the service has. A response with status 404 means that it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUp {
    pub(crate) request: Request,
    /// The fields of the status that would be sent.
    pub(crate) wanted: Vec<(&'static str, Value)>,
}

impl LookUp {
    /// Returns the request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns whether the body of a successful response is the status that would be sent.
    ///
    /// # Errors
    /// The body is not a JSON object.
    pub fn finds(&self, body: &[u8]) -> Result<bool, String> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(found)) => Ok(self.wanted.iter().all(|(field, wanted)| found.get(*field) == Some(wanted))),
            _ => Err("the service does not answer with a build status; correct the address".to_owned()),
        }
    }
}
