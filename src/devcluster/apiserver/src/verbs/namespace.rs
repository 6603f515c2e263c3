//! Namespaces: objects cannot be created in a missing or terminating namespace.
//!
//! Not here: removal of a terminating namespace's contents, which a controller does.

use super::{Target, text};
use crate::{
    server::Server,
    status::{Cause, GroupResource, Status},
    store::Key,
};

/// Namespaces that cannot be deleted.
pub(crate) const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Fails with 404 if the namespace of a new object is missing, with 403 if it is terminating.
pub(crate) fn admit_create(server: &Server, target: &Target) -> Result<(), Status> {
    if !target.kind.namespaced {
        return Ok(());
    }
    let Some(namespace) = server.store().get("namespaces", &Key::new("", &target.namespace)) else {
        let namespaces = GroupResource { group: String::new(), resource: "namespaces".to_owned() };
        return Err(Status::not_found(&namespaces, &target.namespace));
    };
    if text(&namespace.value(), "/metadata/deletionTimestamp").is_empty() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {} because it is being terminated", target.namespace);
    let cause = Cause::new(
        "NamespaceTerminating",
        "metadata.namespace",
        format!("namespace {} is being terminated", target.namespace),
    );
    Err(Status::forbidden(&target.kind.group_resource(), &target.name, &why).because(cause))
}
