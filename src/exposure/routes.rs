//! All objects of an APIRule in a cluster, in the order to apply them.

use super::child::{Child, ChildKind};
use super::express::{Expressed, express};
use super::resolve::Resolved;
use super::served::{Means, RouteFeatures};
use super::{access_rule, http_route, virtual_service};

/// The objects, and why not every path is routed.
pub(super) struct Routes {
    pub(super) children: Vec<Child>,
    pub(super) problem: Option<String>,
}

/// Builds them. A route to Oathkeeper answers 404 until its Rule is there, so routes come first.
pub(super) fn build(resolved: &Resolved, means: Means, features: RouteFeatures) -> Routes {
    let Expressed { guards, problem } = express(resolved, means);
    let mut children: Vec<Child> = match means.routes() {
        ChildKind::HttpRoute => http_route::build(resolved, &guards, features),
        _ => virtual_service::build(resolved, &guards).into_iter().collect(),
    };
    children.append(&mut access_rule::build(resolved, &guards));
    Routes { children, problem }
}
