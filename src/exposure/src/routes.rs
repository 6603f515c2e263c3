//! Builds all objects of an APIRule, in the order in which they are applied.

use super::child::{Child, ChildKind};
use super::express::{Expressed, express};
use super::no_target::NoTargets;
use super::resolve::Resolved;
use super::served::{Means, RouteFeatures};
use super::workload::Workloads;
use super::{access_rule, http_route, policies, virtual_service};

/// The objects, and why some paths are not routed.
pub(super) struct Routes {
    pub(super) children: Vec<Child>,
    pub(super) problem: Option<String>,
}

/// Returns the guards, then the routes, then the Rules. Until its Rule exists, a route to Oathkeeper results in 404.
pub(super) fn build(
    resolved: &Resolved,
    means: Means,
    features: RouteFeatures,
    workloads: &Workloads,
    no_targets: &NoTargets,
) -> Routes {
    let Expressed { guards, problem } = express(resolved, means, workloads, no_targets);
    let mut children = policies::build(resolved, &guards, workloads);
    match means.routes() {
        ChildKind::HttpRoute => children.append(&mut http_route::build(resolved, &guards, features)),
        _ => children.extend(virtual_service::build(resolved, &guards)),
    }
    children.append(&mut access_rule::build(resolved, &guards));
    Routes { children, problem }
}
