//! The functions of expressions.

/// A function. The receiver of a method is its first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    Int,
    Uint,
    Double,
    Text,
    Bool,
    Dyn,
    Contains,
    StartsWith,
    EndsWith,
    LowerAscii,
    UpperAscii,
    Trim,
    Split,
    Join,
    Substring,
    IndexOf,
    LastIndexOf,
    Replace,
    CharAt,
    OptionalOf,
    OptionalNone,
    OptionalOfNonZero,
    HasValue,
    Value,
    Or,
    OrValue,
    SetsContains,
    SetsEquivalent,
    SetsIntersects,
    First,
    Last,
}

/// How a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// `size(x)`
    Globally,
    /// `x.trim()`
    OnObject,
}

use Called::{Globally, OnObject};
use Function as F;

/// Name, call style, minimum and maximum number of arguments including the receiver, and the function.
const TABLE: [(&str, Called, usize, usize, Function); 33] = [
    ("size", Globally, 1, 1, F::Size),
    ("size", OnObject, 1, 1, F::Size),
    ("int", Globally, 1, 1, F::Int),
    ("uint", Globally, 1, 1, F::Uint),
    ("double", Globally, 1, 1, F::Double),
    ("string", Globally, 1, 1, F::Text),
    ("bool", Globally, 1, 1, F::Bool),
    ("dyn", Globally, 1, 1, F::Dyn),
    ("contains", OnObject, 2, 2, F::Contains),
    ("startsWith", OnObject, 2, 2, F::StartsWith),
    ("endsWith", OnObject, 2, 2, F::EndsWith),
    ("lowerAscii", OnObject, 1, 1, F::LowerAscii),
    ("upperAscii", OnObject, 1, 1, F::UpperAscii),
    ("trim", OnObject, 1, 1, F::Trim),
    ("split", OnObject, 2, 2, F::Split),
    ("join", OnObject, 1, 2, F::Join),
    ("substring", OnObject, 2, 3, F::Substring),
    ("indexOf", OnObject, 2, 2, F::IndexOf),
    ("lastIndexOf", OnObject, 2, 2, F::LastIndexOf),
    ("replace", OnObject, 3, 3, F::Replace),
    ("charAt", OnObject, 2, 2, F::CharAt),
    ("optional.of", Globally, 1, 1, F::OptionalOf),
    ("optional.none", Globally, 0, 0, F::OptionalNone),
    ("optional.ofNonZeroValue", Globally, 1, 1, F::OptionalOfNonZero),
    ("hasValue", OnObject, 1, 1, F::HasValue),
    ("value", OnObject, 1, 1, F::Value),
    ("or", OnObject, 2, 2, F::Or),
    ("orValue", OnObject, 2, 2, F::OrValue),
    ("sets.contains", Globally, 2, 2, F::SetsContains),
    ("sets.equivalent", Globally, 2, 2, F::SetsEquivalent),
    ("sets.intersects", Globally, 2, 2, F::SetsIntersects),
    ("first", OnObject, 1, 1, F::First),
    ("last", OnObject, 1, 1, F::Last),
];

/// Why a call is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Uncallable {
    Unknown,
    /// Minimum and maximum number of arguments, without the receiver.
    Takes(usize, usize),
}

/// Returns the function with this name and number of arguments, including the receiver.
pub(super) fn find(name: &str, called: Called, count: usize) -> Result<Function, Uncallable> {
    let row = TABLE.iter().find(|(known, how, ..)| *known == name && *how == called);
    let (.., least, most, function) = *row.ok_or(Uncallable::Unknown)?;
    let object = usize::from(called == OnObject);
    if (least..=most).contains(&count) { Ok(function) } else { Err(Uncallable::Takes(least - object, most - object)) }
}

/// Returns whether the name is that of a namespace of functions.
pub(super) fn is_space(name: &str) -> bool {
    matches!(name, "optional" | "sets")
}
