//! The inputs of the build stage.

use jiff::Timestamp;

use crate::stage::observed::{Observed, Resolved};
use crate::tag::BuildCause;
use mainstay_api::function_conditions::Type;

pub(super) const SUBJECT: Type = Type::BuildReady;

/// The Function, its observed state, and the time.
#[derive(Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) resolved: &'a Resolved<'a>,
    pub(super) observed: &'a Observed<'a>,
    pub(super) now: Timestamp,
    /// Why the image has to be built.
    pub(super) causes: &'a [BuildCause],
}
