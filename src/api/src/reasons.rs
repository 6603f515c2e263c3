//! Reasons of conditions and of Events, each with its meaning and its remedy. `mainstay explain` prints them.

/// Defines an enum of reasons. Each variant has a meaning, which is also its documentation, and a remedy. The remedy is
/// empty if no user needs to act.
macro_rules! reasons {
    (
        $(#[$attribute:meta])*
        pub enum Reason {
            $($name:ident: $meaning:literal, $remedy:literal;)*
        }
    ) => {
        $(#[$attribute])*
        pub enum Reason {
            $(#[doc = $meaning] $name,)*
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the reason as one CamelCase word.
            pub fn as_str(self) -> String {
                self.name().to_owned()
            }

            /// Returns the reason as one CamelCase word.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Returns a sentence that describes what has happened.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }

            /// Returns what a user can do; empty if no user needs to act.
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)*
                }
            }
        }
    };
}

pub(super) use reasons;
