//! The work for a usage. The work follows from the decision and from whether its Function accepted the binding.

use jiff::Timestamp;

use super::bound::{Bound, Function, MAX_USAGES, Name, Taken};
use super::decide::{Decision, Failure};
use super::usage::{Binding, Usage};

/// The work for a usage.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// None for now.
    Nothing,
    /// Reconcile the usage again at this time.
    Wait(Timestamp),
    /// Report that the usage cannot be used.
    Fail(Usage, Failure),
    /// Check whether this Function exists.
    Find(Usage, String),
    /// Set this binding as the owner of the usage, and report that the usage is in use.
    Succeed(Usage, String),
}

/// Returns the work for a usage of this name. `function` is the Function that the usage refers to, if known, and
/// `binding` the usage's binding.
pub(super) fn task(
    key: &Name,
    usage: Usage,
    decision: Decision,
    function: Option<&Function>,
    binding: Option<&Binding>,
) -> Task {
    let secret = match decision {
        Decision::LeftAlone => return Task::Nothing,
        Decision::LeftUntil(until) => return Task::Wait(until),
        Decision::Fails(failure) => return Task::Fail(usage, failure),
        Decision::Binds(secret) => secret,
    };
    let Some(function) = function else {
        let user = usage.user.clone();
        return Task::Find(usage, user);
    };
    let bound = Bound::of(key, &usage, secret);
    if let Some((_, taken)) = function.taken.iter().find(|(known, _)| *known == bound) {
        return match (taken, binding) {
            (Taken::Bound, Some(binding)) => Task::Succeed(usage, binding.uid.clone()),
            (Taken::Refused(why), _) => Task::Fail(usage, Failure::refused(why)),
            (Taken::Bound, None) => Task::Nothing,
        };
    }
    if function.bound.len() >= MAX_USAGES && !function.bound.contains(&bound) {
        let why = format!("Function \"{}\" has {MAX_USAGES} usages already, and may have no more", usage.user);
        return Task::Fail(usage, Failure::refused(why));
    }
    Task::Nothing
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_function_has_taken_as_it_is_now_is_in_use() {
        let key = ("ns".to_owned(), "redis".to_owned());
        let usage = Usage::of(&json!({"metadata": {"uid": "u"}, "spec": {"usedBy": {"name": "f"}}}));
        let binding = Binding::of(&json!({"metadata": {"name": "redis", "uid": "b"}}));
        let taken = |secret: &str, taken: Taken| Function {
            taken: vec![(Bound::of(&key, &usage, secret.to_owned()), taken)],
            ..Function::default()
        };
        let check = |function: Option<&Function>, expected: Task| {
            let decision = Decision::Binds("redis".to_owned());
            assert_eq!(task(&key, usage.clone(), decision, function, Some(&binding)), expected);
        };
        check(None, Task::Find(usage.clone(), "f".to_owned()));
        check(Some(&Function::default()), Task::Nothing);
        check(Some(&taken("redis", Taken::Bound)), Task::Succeed(usage.clone(), "b".to_owned()));
        check(Some(&taken("before", Taken::Bound)), Task::Nothing);
        let refused = Taken::Refused("it is another Function's".to_owned());
        check(
            Some(&taken("redis", refused.clone())),
            Task::Fail(usage.clone(), Failure::refused("it is another Function's")),
        );
        check(Some(&taken("before", refused)), Task::Nothing);
    }
}
