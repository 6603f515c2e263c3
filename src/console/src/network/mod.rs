//! The network of an application: routes, the Services that they name, and the pods behind the Services.
//!
//! `route` and `object` reduce live objects to values of limited size. `seen` keeps these values, and what could not be
//! read. `endpoints` knows which endpoints are ready. `picture` arranges the rest: one flow for each Service, with its
//! problems.

mod endpoints;
mod object;
mod picture;
mod route;
mod seen;

pub(crate) use endpoints::{Behind, Endpoint};
pub(crate) use object::{Policy, Service};
pub(crate) use picture::{Arrivals, Flow, Picture, Target, picture};
pub(crate) use seen::{Listed, Part, Seen, Subject};
