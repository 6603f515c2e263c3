//! The cost of the web page: a console, and its viewers of many GitSyncs.

mod situations;
mod viewer;

pub(crate) use self::viewer::Viewer;
use super::{Error, Product, counters, stand, table};

/// Promised maximum memory of the console in MiB, before its first user.
const AT_REST: f64 = 40.0;

/// Measures all situations with this many GitSyncs.
pub(super) async fn measure(product: &Product, count: u32, idle_seconds: u64) -> Result<Vec<table::Row>, Error> {
    let mut stand = stand::Stand::start(product, None, AT_REST).await?;
    situations::all(&mut stand, count, idle_seconds).await
}
