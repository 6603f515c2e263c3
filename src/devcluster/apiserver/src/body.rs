//! Response bodies.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use std::convert::Infallible;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;
