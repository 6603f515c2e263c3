//! Names of event types in Kyma, `sap.kyma.custom.{application}.{object …}.{operation}.{version}`, and their cleaned
//! form.

use std::fmt;

/// The common prefix without the following dot.
pub(super) const PREFIX: &str = "sap.kyma.custom";

/// Why a name cannot be cleaned. The messages are Kyma's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unclean {
    /// The name has a different prefix.
    NoPrefix(String),
    /// The part after the prefix has fewer than four segments, or a segment without letters and digits.
    InvalidFormat(String),
}

impl fmt::Display for Unclean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPrefix(name) => write!(f, "parse event-type [{name}] failed, prefix [{PREFIX}] not found"),
            Self::InvalidFormat(rest) => write!(f, "parse event-type [{rest}] failed, invalid format"),
        }
    }
}

/// Returns the cleaned name for matching. Segments between application and operation are joined, and only letters and
/// digits remain.
pub(super) fn cleaned(name: &str) -> Result<String, Unclean> {
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('.'));
    let rest = rest.ok_or_else(|| Unclean::NoPrefix(name.to_owned()))?;
    let segments: Vec<String> = rest.split('.').map(without_marks).collect();
    match segments.as_slice() {
        [application, object @ .., operation, version]
            if !object.is_empty() && segments.iter().all(|segment| !segment.is_empty()) =>
        {
            Ok(format!("{PREFIX}.{application}.{}.{operation}.{version}", object.concat()))
        }
        _ => Err(Unclean::InvalidFormat(rest.to_owned())),
    }
}

/// Returns the ASCII letters and digits of a string.
pub(super) fn without_marks(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// Returns a source as Subscriptions with the matching `standard` compare it.
pub(super) fn standard_source(source: &str) -> String {
    source.chars().filter(|c| !c.is_whitespace() && !matches!(c, '.' | '>' | '*')).collect()
}

/// Returns a type as Subscriptions with the matching `standard` compare it.
pub(super) fn standard_type(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace() && !matches!(c, '>' | '*')).collect()
}

/// Returns application, `object.operation` and version of a cleaned name.
pub(super) fn parts(cleaned: &str) -> Option<(&str, &str, &str)> {
    let rest = cleaned.strip_prefix(PREFIX)?.strip_prefix('.')?;
    let (application, rest) = rest.split_once('.')?;
    let (name, version) = rest.rsplit_once('.')?;
    Some((application, name, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cleaned() {
        let check = |name: &str, expected: &str| {
            let once = cleaned(name).unwrap();
            assert_eq!(once, expected);
            assert_eq!(cleaned(&once).unwrap(), once, "cleaning again changes nothing");
        };
        check("sap.kyma.custom.commerce.Account.Root.Created.v1", "sap.kyma.custom.commerce.AccountRoot.Created.v1");
        check("sap.kyma.custom.my-app.order.payment-success.v1", "sap.kyma.custom.myapp.order.paymentsuccess.v1");
        check("sap.kyma.custom.my_app.order.created.v1", "sap.kyma.custom.myapp.order.created.v1");
    }

    #[test]
    fn other_names_are_refused_in_kymas_words() {
        let check = |name: &str, expected: &str| assert_eq!(cleaned(name).unwrap_err().to_string(), expected);
        check("order.created", "parse event-type [order.created] failed, prefix [sap.kyma.custom] not found");
        check(
            "sap.kyma.customs.a.b.c.d",
            "parse event-type [sap.kyma.customs.a.b.c.d] failed, prefix [sap.kyma.custom] not found",
        );
        check("sap.kyma.custom.order.created.v1", "parse event-type [order.created.v1] failed, invalid format");
        check("sap.kyma.custom.a..c.v1", "parse event-type [a..c.v1] failed, invalid format");
    }

    #[test]
    fn a_cleaned_name_has_parts() {
        assert_eq!(parts("sap.kyma.custom.myapp.order.created.v1"), Some(("myapp", "order.created", "v1")));
    }
}
