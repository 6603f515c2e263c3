//! Problems of a manifest.

use std::fmt;

use mainstay_object::Place;

/// A problem that the user must fix in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The location in the repository.
    pub place: Place,
    /// The description. It quotes keys, never values.
    pub what: String,
    /// The remedy.
    pub hint: Option<String>,
}

impl Problem {
    /// Returns a problem at a location.
    pub fn new(place: Place, what: impl Into<String>, hint: Option<&str>) -> Self {
        Self { place, what: what.into(), hint: hint.map(str::to_owned) }
    }
}

/// Prints one line: `apps/web.yaml, document 2, line 14, column 3: kind is missing (…)`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}
