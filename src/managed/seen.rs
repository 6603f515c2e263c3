//! What was seen of a live object and waits to be acted on.
//!
//! Invariant: hundreds of states may wait, so each takes little memory.

use std::borrow::Cow;
use std::time::Instant;

use serde_json::Value;

/// Largest state, in bytes, of which many may wait.
pub(crate) const SMALL: usize = 8 << 10;

/// States of any size that wait, at most.
const WAITING_WHOLE: usize = 32;
/// Queued objects of which the small states are kept as they are, not as compact JSON.
const WAITING_WITH_VALUE: usize = 128;
/// Queued objects of which the small states are kept. Beyond that number the state is dropped, and the object is read again
/// when its revert begins.
const WAITING_WITH_STATE: usize = 1000;

/// Something that was seen of an object and waits to be acted on.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The object as it was seen; `None` when it vanished from the watch, or is to be read again.
    pub(crate) live: Option<Sight>,
    /// At which resource version it was not there; `None` when it has to be read whatever is known of it by then.
    pub(crate) gone_at: Option<Box<str>>,
    /// When.
    pub(crate) at: Instant,
}

/// A live object that waits to be acted on. Hundreds of them may wait: one that is small, or next, is kept as it is; the
/// others as compact JSON, which is several times smaller.
pub(crate) enum Sight {
    Whole(Value),
    Json(Box<[u8]>),
}

impl Sight {
    /// What is small stays as it is.
    pub(crate) fn of(live: Value) -> Option<Self> {
        if is_light(&live, &mut { SMALL }) { Some(Self::Whole(live)) } else { Self::json(&live) }
    }

    fn json(live: &Value) -> Option<Self> {
        serde_json::to_vec(live).ok().map(|json| Self::Json(json.into()))
    }

    pub(crate) fn value(&self) -> Option<Cow<'_, Value>> {
        match self {
            Self::Whole(value) => Some(Cow::Borrowed(value)),
            Self::Json(json) => serde_json::from_slice(json).ok().map(Cow::Owned),
        }
    }

    pub(crate) fn into_value(self) -> Option<Value> {
        match self {
            Self::Whole(value) => Some(value),
            Self::Json(json) => serde_json::from_slice(&json).ok(),
        }
    }

    /// The same as JSON, if it has at most so many bytes.
    pub(crate) fn within(self, bytes: usize) -> Option<Self> {
        let sight = match self {
            Self::Whole(value) => Self::json(&value)?,
            json @ Self::Json(_) => json,
        };
        (sight.size() <= bytes).then_some(sight)
    }

    /// As much of it as may wait where so many others do.
    pub(crate) fn beside(self, others: usize) -> Option<Self> {
        match others {
            ..WAITING_WHOLE => Some(self),
            WAITING_WHOLE..WAITING_WITH_VALUE => (self.size() <= SMALL).then_some(self),
            WAITING_WITH_VALUE..WAITING_WITH_STATE => self.within(SMALL),
            _ => None,
        }
    }

    /// In bytes; what is kept as it is is small.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Whole(_) => SMALL,
            Self::Json(json) => json.len(),
        }
    }
}

/// Whether a value takes less than so much memory; what is left of it.
fn is_light(value: &Value, left: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len(),
        _ => 0,
    };
    let Some(rest) = left.checked_sub(own + size_of::<Value>()) else { return false };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| is_light(item, left)),
        Value::Object(fields) => fields.iter().all(|(name, field)| {
            *left = left.saturating_sub(name.len() + size_of::<String>());
            is_light(field, left)
        }),
        _ => true,
    }
}

/// It may be a Secret.
impl std::fmt::Debug for Sight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sight({} bytes)", self.size())
    }
}

impl Seen {
    pub(crate) fn of(live: Value, at: Instant) -> Self {
        Self { live: Sight::of(live), gone_at: None, at }
    }
}
