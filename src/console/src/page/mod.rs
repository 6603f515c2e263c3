//! The pages. The templates escape every string, except for `DOCTYPE`.

mod act;
mod belonging;
mod call;
mod drift;
mod files;
mod fleet;
mod form;
mod frame;
mod function;
mod git_repository;
mod git_sync;
mod history;
mod lanes;
mod object;
mod origin;
mod parts;
mod pods;
mod sign_in;
mod source;
mod windows;

pub(crate) use act::{Confirmation, confirmation, outcome};
pub(crate) use call::{CallPage, Methods, call};
pub(crate) use drift::{Drift, drift};
pub(crate) use files::{FilesPage, files};
pub(crate) use fleet::{Fleet, fleet};
pub(crate) use form::{FormPage, Review, create_link, form, written};
pub(crate) use frame::{Live, Page, SessionEnd, Visitor, message, render};
pub(crate) use function::{FunctionPage, function};
pub(crate) use git_repository::{GitRepositoryPage, followers, git_repository};
pub(crate) use git_sync::{GitSyncPage, git_sync};
pub(crate) use object::{ObjectPage, object};
pub(crate) use parts::Right;
pub(crate) use pods::{Container, Log, Pod};
pub(crate) use sign_in::{leaving, opened_again, sign_in};
