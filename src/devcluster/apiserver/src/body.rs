//! Bodies of answers.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use std::convert::Infallible;

/// Body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;
