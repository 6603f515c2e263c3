//! The variable `authorizer` of match conditions, which checks permissions.
//!
//! Not here: field and label selectors of a check.

use crate::{
    access::{Place, Request, User, rbac},
    server::Server,
};
use cel::{
    Context, DeclarationError, ExecutionError, Value,
    extractors::This,
    objects::{Opaque, ResolveResult},
};
use std::sync::Arc;

/// A check under construction, or its result.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// A check without a target.
    Nothing,
    /// A check of an API group.
    Group(String),
    /// A check of a path or a resource.
    Place(Place),
    /// The result of a check.
    Decision(rbac::Decision),
}

/// The value of the authorizer in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Authorizer {
    user: User,
    asked: Asked,
}

impl Opaque for Authorizer {
    fn runtime_type_name(&self) -> &str {
        match &self.asked {
            Asked::Nothing => "kubernetes.authorization.Authorizer",
            Asked::Group(_) => "kubernetes.authorization.GroupCheck",
            Asked::Place(Place::Path(_)) => "kubernetes.authorization.PathCheck",
            Asked::Place(Place::Resource { .. }) => "kubernetes.authorization.ResourceCheck",
            Asked::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

type Target = This<Arc<dyn Opaque>>;

/// Returns the receiver of a function call.
fn on(This(target): &Target) -> Result<&Authorizer, ExecutionError> {
    target.downcast_ref().ok_or_else(unfit)
}

fn unfit() -> ExecutionError {
    ExecutionError::no_such_overload("authorizer", Vec::new())
}

fn value(user: &User, asked: Asked) -> Value {
    Value::Opaque(Arc::new(Authorizer { user: user.clone(), asked }))
}

/// Restricts a check of a resource.
fn narrowed(target: &Target, narrow: impl FnOnce(&mut Place)) -> ResolveResult {
    let on = on(target)?;
    let Asked::Place(place @ Place::Resource { .. }) = &on.asked else { return Err(unfit()) };
    let mut place = place.clone();
    narrow(&mut place);
    Ok(value(&on.user, Asked::Place(place)))
}

fn decision(target: &Target) -> Result<&rbac::Decision, ExecutionError> {
    match &on(target)?.asked {
        Asked::Decision(decision) => Ok(decision),
        _ => Err(unfit()),
    }
}

/// Adds the variables `authorizer` and `authorizer.requestResource` and their functions.
pub(super) fn add(
    context: &mut Context<'_, '_>,
    server: &Server,
    user: &User,
    request: Place,
) -> Result<(), DeclarationError> {
    context.add_variable_from_value("authorizer", value(user, Asked::Nothing));
    context.add_variable_from_value("authorizer.requestResource", value(user, Asked::Place(request)));
    add_questions(context)?;
    let server = server.clone();
    context.add_function("check", move |target: Target, verb: Arc<String>| -> ResolveResult {
        let on = on(&target)?;
        let Asked::Place(place) = &on.asked else { return Err(unfit()) };
        let request = Request { verb: verb.to_string(), place: place.clone() };
        Ok(value(&on.user, Asked::Decision(rbac::decide(&server, &on.user, &request))))
    })?;
    context.add_function("allowed", |target: Target| decision(&target).map(|made| Value::Bool(made.allowed)))?;
    context.add_function("reason", |target: Target| decision(&target).map(|made| Value::from(made.reason.clone())))?;
    context.add_function("errored", |target: Target| decision(&target).map(|_| Value::Bool(false)))?;
    context.add_function("error", |target: Target| decision(&target).map(|_| Value::from("")))
}

fn add_questions(context: &mut Context<'_, '_>) -> Result<(), DeclarationError> {
    context.add_function("path", |target: Target, path: Arc<String>| -> ResolveResult {
        let on = on(&target)?;
        Ok(value(&on.user, Asked::Place(Place::Path(path.to_string()))))
    })?;
    context.add_function("group", |target: Target, group: Arc<String>| -> ResolveResult {
        let on = on(&target)?;
        Ok(value(&on.user, Asked::Group(group.to_string())))
    })?;
    context.add_function(
        "serviceAccount",
        |target: Target, namespace: Arc<String>, name: Arc<String>| -> ResolveResult {
            on(&target)?;
            Ok(value(&User::service_account(&namespace, &name, ""), Asked::Nothing))
        },
    )?;
    context.add_function("resource", |target: Target, wanted: Arc<String>| -> ResolveResult {
        let on = on(&target)?;
        let Asked::Group(group) = &on.asked else { return Err(unfit()) };
        let none = String::new;
        let (group, resource) = (group.clone(), wanted.to_string());
        let place = Place::Resource { group, resource, subresource: none(), namespace: none(), name: none() };
        Ok(value(&on.user, Asked::Place(place)))
    })?;
    context.add_function("subresource", |target: Target, wanted: Arc<String>| -> ResolveResult {
        narrowed(&target, |place| {
            if let Place::Resource { subresource, .. } = place {
                wanted.to_string().clone_into(subresource);
            }
        })
    })?;
    context.add_function("namespace", |target: Target, wanted: Arc<String>| -> ResolveResult {
        narrowed(&target, |place| {
            if let Place::Resource { namespace, .. } = place {
                wanted.to_string().clone_into(namespace);
            }
        })
    })?;
    context.add_function("name", |target: Target, wanted: Arc<String>| -> ResolveResult {
        narrowed(&target, |place| {
            if let Place::Resource { name, .. } = place {
                wanted.to_string().clone_into(name);
            }
        })
    })
}
