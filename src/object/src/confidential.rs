//! Decides whether a value in a server's message may be a secret, by the path of its field and by its form.
//!
//! Invariant: a value that is long or consists of several fields cannot be classified, and counts as secret.
//!
//! Not here: Secrets themselves. No value of a Secret is shown.

/// Maximum length of a shown value, in bytes.
const MAX_VALUE: usize = 120;
/// Minimum length of a run of letters and digits that counts as a key or token rather than a name.
const RUN: usize = 20;
/// Words in the name of a field, or of one of its parents, that mark the content as secret.
const WORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "credential",
    "apikey",
    "api_key",
    "api-key",
    "privatekey",
    "private_key",
    "private-key",
    "accesskey",
    "access_key",
    "access-key",
    "bearer",
];
/// Words that mark a field as secret only in its own name, or in the name of an environment variable.
const LAST_WORDS: &[&str] = &["secret", "token", "auth", "dsn", "cert", "pem", "signature", "connectionstring"];
/// Prefixes of tokens.
const TOKENS: &[&str] =
    &["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xox", "eyj", "sk-", "akia", "hvs.", "basic ", "bearer "];

/// Returns whether a value, in the form in which a server writes it, may be a secret in the field with this path.
pub(super) fn may_be_secret(path: &str, value: &str) -> bool {
    let value = value.trim();
    if value.is_empty() || value.len() > MAX_VALUE {
        return !value.is_empty();
    }
    is_secret_field(path) || is_secret_value(value)
}

fn is_secret_field(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let steps: Vec<&str> = path.split(['.', '[', ']', '"', '=', '/']).filter(|step| !step.is_empty()).collect();
    // Names of Secrets are not secret.
    let is_name = |step: &str| step.ends_with("name") || step.ends_with("ref") || step.ends_with("secrets");
    let has = |step: &str, words: &[&str]| !is_name(step) && words.iter().any(|word| step.contains(word));
    let last = steps.iter().rfind(|step| !step.bytes().all(|byte| byte.is_ascii_digit())).copied().unwrap_or_default();
    // In `env[name="DB_TOKEN"].value`, the variable's name decides.
    let is_of_variable = path.contains("env[name=");
    let is_unnamed = last == "value" && path.contains("env[") && !is_of_variable;
    is_unnamed
        || has(last, LAST_WORDS)
        || steps.iter().any(|step| has(step, WORDS) || is_of_variable && has_variable_word(step))
}

/// Returns whether a path step is the name of an environment variable with a secret.
fn has_variable_word(step: &str) -> bool {
    LAST_WORDS.iter().chain(&["key", "pass", "pw", "url", "uri"]).any(|word| step.contains(word))
}

fn is_secret_value(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let text = lower.trim_start_matches(['"', '\'', '`']);
    let is_structured = value.starts_with(['{', '[']) || value.contains('{');
    TOKENS.iter().any(|beginning| text.starts_with(beginning))
        || WORDS.iter().any(|word| lower.contains(word))
        || ["secret=", "token=", "-----begin"].iter().any(|word| lower.contains(word))
        || lower.contains("://") && lower.contains('@')
        || is_structured && (lower.contains("value\"") || lower.contains("value:") || lower.contains("secret\""))
        || value.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '/' | '_')).any(is_random)
}

/// Returns whether a run of characters looks random: it is long, with letters of both cases and digits.
fn is_random(run: &str) -> bool {
    let has = |is: fn(&u8) -> bool| run.as_bytes().iter().any(is);
    run.len() >= RUN && has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_unless_their_field_or_their_form_says_that_they_may_be_secret() {
        let shown = [
            ("data.replicas", "5"),
            ("spec.ports[0].port", "0"),
            ("metadata.labels", "\"a b\""),
            ("spec.selector", "{\"matchLabels\":{\"app\":\"zz\"}}"),
            ("spec.template.spec.containers[name=\"a\"].env[name=\"PORT\"].value", "8080"),
            ("spec.template.spec.volumes[0].secret.secretName", "\"A b\""),
            ("spec.imagePullSecrets[0].name", "\"\""),
            (
                "spec.template.spec.containers[0].image",
                "\"registry.example.com/team/web@sha256:0123456789abcdef0123456789abcdef\"",
            ),
            ("spec.schedule", "\"61 * * * *\""),
            ("spec.ports[1]", "{\"port\":80,\"protocol\":\"TCP\"}"),
        ];
        for (path, value) in shown {
            assert!(!may_be_secret(path, value), "{path} {value}");
        }
        let masked = [
            ("spec.password", "\"hunter2\""),
            ("data.db-password", "12345"),
            ("spec.auth.token", "\"hunter2\""),
            ("spec.credentials.a", "\"hunter2\""),
            ("spec.containers[0].env[1].value", "\"hunter2\""),
            ("spec.containers[name=\"a\"].env[name=\"DB_KEY\"].value", "5"),
            ("spec.a", "\"postgres://u:hunter2@db/x\""),
            ("spec.a", "\"--password=hunter2\""),
            ("spec.a", "\"AKIAIOSFODNN7EXAMPLE\""),
            ("spec.a", "\"aGVsbG8gd29ybGQhIHNlY3JldA0\""),
            ("spec.a", "core.PodTemplateSpec{Env:[]core.EnvVar{core.EnvVar{Name:\"A\", Value:\"hunter2\"}}}"),
            ("spec.a", "{\"name\":\"A\",\"value\":\"hunter2\"}"),
            ("spec.a", &"x".repeat(200)),
        ];
        for (path, value) in masked {
            assert!(may_be_secret(path, value), "{path} {value}");
        }
    }
}
