//! The style, the script and the icon. They are part of the program, and the same for all users.

use axum::response::Response;
use http::StatusCode;

use super::answer::of_type;

/// Returns the asset at a path.
pub(super) fn asset(path: &str) -> Option<Response> {
    let (content_type, text) = match path {
        "/style.css" => ("text/css; charset=utf-8", include_str!("../../assets/style.css")),
        "/live.js" => ("text/javascript; charset=utf-8", include_str!("../../assets/live.js")),
        "/copy.js" => ("text/javascript; charset=utf-8", include_str!("../../assets/copy.js")),
        "/open.js" => ("text/javascript; charset=utf-8", include_str!("../../assets/open.js")),
        "/icon.svg" => ("image/svg+xml", include_str!("../../assets/icon.svg")),
        _ => return None,
    };
    Some(of_type(StatusCode::OK, content_type, text))
}
