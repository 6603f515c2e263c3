//! The tokens of an expression.

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'s> {
    /// A name, or `true`, `false`, `null`, `in`.
    Name(&'s str),
    /// A field in backquotes.
    Quoted(&'s str),
    Int(u64),
    Uint(u64),
    Double(f64),
    Text(String),
    Sign(&'static str),
    End,
}

/// A token with its byte offset.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed<'s> {
    pub(super) at: usize,
    pub(super) token: Token<'s>,
}

impl Token<'_> {
    /// Returns the name of the token for messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Name(name) | Self::Quoted(name) => format!("`{name}`"),
            Self::Int(_) | Self::Uint(_) | Self::Double(_) => "a number".to_owned(),
            Self::Text(_) => "a string".to_owned(),
            Self::Sign(sign) => format!("`{sign}`"),
            Self::End => "the end".to_owned(),
        }
    }
}
