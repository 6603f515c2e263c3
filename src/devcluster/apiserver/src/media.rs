//! The header `Accept`: which of the forms that a client offers to take is the one it gets.
//!
//! The clauses are ordered as a real server orders them: by their `q`, at the same `q` the named types before the open
//! ones, and then as they were sent.
//!
//! Deliberately absent: what the parameters of a clause mean for objects (`present`).

/// One clause of the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    /// `application/json`, `*/*`.
    pub(crate) media: String,
    /// `as=Table`, `v=v1`; without `q`.
    parameters: Vec<String>,
}

impl Clause {
    /// A parameter, empty when it was not given.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.iter().find_map(|p| p.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
    }

    /// Whether this server writes such an answer.
    pub(crate) fn is_met(&self) -> bool {
        match self.media.as_str() {
            "application/json" | "*/*" | "application/*" => true,
            // Nothing is streamed as YAML.
            "application/yaml" => self.parameter("stream").is_empty(),
            _ => false,
        }
    }

    fn is_open(&self) -> bool {
        self.media.contains('*')
    }
}

/// The clauses of the header, the most wanted first.
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

/// Whether the client wants YAML more than the other forms.
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
