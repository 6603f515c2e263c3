//! The header `Accept` and the media type that a response uses.
//!
//! Clauses are ordered as a real server orders them: by `q`, then exact types before wildcards, then as sent.
//!
//! Not here: the effect of a clause's parameters on objects (`present`).

/// One clause of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    /// Media type, such as `application/json` or `*/*`.
    pub(crate) media: String,
    /// Parameters without `q`, such as `as=Table` or `v=v1`.
    parameters: Vec<String>,
}

impl Clause {
    /// Returns a parameter; empty if it is missing.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find_map(|p| p.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    }

    /// Returns whether this server can produce the media type.
    pub(crate) fn is_met(&self) -> bool {
        match self.media.as_str() {
            "application/json" | "*/*" | "application/*" => true,
            // YAML cannot be streamed.
            "application/yaml" => self.parameter("stream").is_empty(),
            _ => false,
        }
    }

    fn is_open(&self) -> bool {
        self.media.contains('*')
    }
}

/// Returns the clauses of the header, in descending preference.
pub(crate) fn clauses(accept: &str) -> Vec<Clause> {
    let mut weighed: Vec<(f64, Clause)> = accept.split(',').map(clause).collect();
    weighed.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.is_open().cmp(&other.is_open())));
    weighed.into_iter().map(|(_, clause)| clause).collect()
}

fn clause(text: &str) -> (f64, Clause) {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default().to_owned();
    let (weights, parameters): (Vec<&str>, Vec<&str>) = parts.partition(|part| part.starts_with("q="));
    let weight = weights.first().and_then(|q| q[2..].parse().ok()).unwrap_or(1.0);
    (weight, Clause { media, parameters: parameters.into_iter().map(ToOwned::to_owned).collect() })
}

/// Returns whether the client prefers YAML to the other supported forms.
pub(crate) fn wants_yaml(accept: &str) -> bool {
    clauses(accept).iter().find(|clause| clause.is_met()).is_some_and(|clause| clause.media == "application/yaml")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, yaml: bool) {
        assert_eq!(wants_yaml(accept), yaml, "{accept}");
    }

    #[test]
    fn knows_who_wants_yaml() {
        check("", false);
        check("*/*", false);
        check("application/yaml", true);
        check("*/*, application/yaml", true);
        check("application/json,application/yaml", false);
        check("application/json;q=0.5,application/yaml", true);
        check("application/yaml;q=0.2, application/json;q=0.3", false);
        check("application/yaml;stream=watch,application/json", false);
        check("text/plain, application/yaml;as=Table;v=v1;g=meta.k8s.io", true);
    }
}
