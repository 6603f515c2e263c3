//! Shows the files of a Function with code in Git.
//!
//! Invariant: the Function is read with the permissions of the user before its repository is read.

use axum::Extension;
use axum::extract::Path;
use axum::response::Response;
use http::Uri;

use super::function::{read, remote_of};
use super::page_memory::Heavy;
use super::pages::{heavy, not_shown, query, respond};
use super::session::{Its, Session};
use crate::page::{self, FilesPage};
use crate::row::FleetKind;
use crate::source::is_git;
use crate::text::{MESSAGE, SHORT, plain};

const INLINE: &str = "The code of this Function is not in Git. The page of the Function shows it.";
const NO_READER: &str = "This console does not connect to Git hosts. Run `mainstay ui`, whose page shows the files.";

pub(super) async fn files(
    Extension(session): Its,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Response {
    heavy(&session, Heavy::Single, Box::pin(files_page(&session, &namespace, &name, &uri))).await
}

async fn files_page(session: &Session, namespace: &str, name: &str, uri: &Uri) -> Response {
    let key = FleetKind::Function.key(namespace, name);
    let live = match not_shown(session, &key, read(&session.cluster, &key).await) {
        Ok(live) => live,
        Err(response) => return response,
    };
    let wanted = query(uri).get("file").to_owned();
    let files = match &session.readers.files {
        _ if !is_git(&live) => Err(INLINE.to_owned()),
        None => Err(NO_READER.to_owned()),
        Some(read) => read(session.cluster.clone(), live.clone(), wanted.clone()).await,
    };
    let remote = remote_of(&session.cluster, namespace, &live).await;
    let files = files.map_err(|why| plain(&why, MESSAGE));
    let body = page::files(&FilesPage { key: &key, wanted: &wanted, files: &files, remote: remote.as_deref() });
    respond(session, &format!("Files of {}", plain(name, SHORT)), (None, 0), body)
}
