//! The issuers whose tokens a Receiver accepts, and their conditions for claims.
//!
//! Invariant: a token without a provider is refused, and a provider has at least one condition besides the audience.
//! Invariant: the expressions about a token share the steps of its delivery.
//!
//! Not here: the verification of a token (`id_token`), and requests to issuers (`issuers`).

use std::collections::BTreeSet;

use reqwest::Url;
use serde_json::{Map, Value};

use super::id_token::TokenFlaw;
use mainstay_api::receiver::OidcProvider;
use mainstay_object::expression::{Budget, Expression, ExpressionError};
use mainstay_object::printable;

/// The audience of tokens if the provider names none.
const AUDIENCE: &str = "notification-controller";
/// Both names of Google's issuer, and the address of its keys.
const GOOGLE: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];
pub(super) const GOOGLE_KEYS: &str = "https://www.googleapis.com/oauth2/v3/certs";
/// The path of an issuer's configuration.
const CONFIGURATION: &str = "/.well-known/openid-configuration";
/// Maximum number of providers, and of variables and validations of each.
const MOST: usize = 10;
const MOST_EXPRESSIONS: usize = 20;
/// Maximum total size of the expressions of a Receiver, in bytes.
const ALL_BYTES: usize = 16 << 10;

/// An issuer whose tokens are accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Provider {
    /// The issuer, as tokens name it.
    pub(super) issuer: String,
    /// The location of its keys.
    pub(super) keys: KeysAt,
    /// The audience of its tokens.
    pub(super) audience: String,
    conditions: Conditions,
}

/// The location of the keys of an issuer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeysAt {
    /// The configuration of this issuer names them.
    Discovered {
        /// The issuer.
        issuer: String,
        /// The URL of its configuration.
        configuration: Url,
    },
    /// Google's keys of ID tokens.
    Google,
}

#[derive(Debug, PartialEq, Eq)]
enum Conditions {
    /// The service account has this verified address.
    Email(String),
    /// All validations are true.
    Expressions { variables: Vec<(String, Expression)>, validations: Vec<(Expression, String)> },
}

impl KeysAt {
    /// Returns the host for messages.
    pub(super) fn host(&self) -> &str {
        match self {
            Self::Discovered { configuration, .. } => configuration.host_str().unwrap_or_default(),
            Self::Google => "www.googleapis.com",
        }
    }
}

impl Provider {
    /// Checks the claims of a verified token.
    pub(super) fn accept(&self, claims: Map<String, Value>, budget: &mut Budget) -> Result<(), TokenFlaw> {
        match &self.conditions {
            Conditions::Email(email) => {
                let is_verified = claims.get("email_verified").and_then(Value::as_bool) == Some(true);
                let is_same = claims.get("email").and_then(Value::as_str) == Some(email.as_str());
                if is_verified && is_same { Ok(()) } else { Err(TokenFlaw::Email) }
            }
            Conditions::Expressions { variables, validations } => validate(variables, validations, claims, budget),
        }
    }
}

/// Evaluates the variables in their order, and then all validations.
fn validate(
    variables: &[(String, Expression)],
    validations: &[(Expression, String)],
    claims: Map<String, Value>,
    budget: &mut Budget,
) -> Result<(), TokenFlaw> {
    let (claims, mut vars) = (Value::Object(claims), Value::Object(Map::new()));
    for (number, (name, expression)) in variables.iter().enumerate() {
        let value = expression.result_within(budget, &|variable| of(variable, &claims, &vars));
        let unevaluated =
            |error: ExpressionError| TokenFlaw::Unevaluated { field: "variables", number, why: error.to_string() };
        vars[name] = value.map_err(unevaluated)?;
    }
    let mut failed = Vec::new();
    for (number, (expression, message)) in validations.iter().enumerate() {
        match expression.holds_within(budget, &|variable| of(variable, &claims, &vars)) {
            Ok(true) => {}
            Ok(false) => failed.push(message.as_str()),
            Err(error) => {
                return Err(TokenFlaw::Unevaluated { field: "validations", number, why: error.to_string() });
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(TokenFlaw::Invalid(failed.join("; "))) }
}

/// Returns the value of a variable of an expression.
fn of<'v>(variable: &str, claims: &'v Value, vars: &'v Value) -> Option<&'v Value> {
    match variable {
        "claims" => Some(claims),
        "vars" => Some(vars),
        _ => None,
    }
}

/// Returns the providers of a push subscription of Google: one for each name of Google's issuer.
pub(super) fn of_google(email: &str, audience: &str) -> Vec<Provider> {
    let one = |issuer: &str| Provider {
        issuer: issuer.to_owned(),
        keys: KeysAt::Google,
        audience: audience.to_owned(),
        conditions: Conditions::Email(email.to_owned()),
    };
    GOOGLE.map(one).into()
}

/// Returns the providers in a spec, or its error.
pub(super) fn of_spec(spec: &[OidcProvider]) -> Result<Vec<Provider>, String> {
    if spec.is_empty() || spec.len() > MOST {
        return Err(format!("spec.oidcProviders must have 1 to {MOST} issuers for the type generic-oidc"));
    }
    let expressions = |one: &OidcProvider| {
        let variables = one.variables.iter().map(|variable| variable.expression.len());
        variables.chain(one.validations.iter().map(|validation| validation.expression.len())).sum::<usize>()
    };
    if spec.iter().map(expressions).sum::<usize>() > ALL_BYTES {
        return Err(format!("spec.oidcProviders has more than {ALL_BYTES} bytes of expressions"));
    }
    let mut issuers = BTreeSet::new();
    let mut providers = Vec::new();
    for (number, one) in spec.iter().enumerate() {
        if !issuers.insert(&one.issuer_url) {
            return Err(format!("spec.oidcProviders[{number}].issuerURL is that of an earlier provider: merge both"));
        }
        providers.push(provider(one).map_err(|why| format!("spec.oidcProviders[{number}].{why}"))?);
    }
    Ok(providers)
}

fn provider(spec: &OidcProvider) -> Result<Provider, String> {
    let configuration = configuration(&spec.issuer_url).ok_or(
        "issuerURL must have the form https://HOST or https://HOST/PATH, without a user, `?` or `#`: the agent reads \
         keys over HTTPS only",
    )?;
    let (variables, validations) = (&spec.variables, &spec.validations);
    if validations.is_empty() {
        return Err("validations must have at least one expression: otherwise, every client of the issuer could send \
                    deliveries"
            .to_owned());
    }
    if variables.len().max(validations.len()) > MOST_EXPRESSIONS {
        return Err(format!("variables and validations must have at most {MOST_EXPRESSIONS} expressions each"));
    }
    let parsed = |field: &str, number: usize, source: &str| {
        let parsed = Expression::parse(source, Some(&["claims", "vars"]));
        parsed.map_err(|error| format!("{field}[{number}].expression: {error}; correct the expression"))
    };
    let variables = variables.iter().enumerate().map(|(number, variable)| -> Result<_, String> {
        if !is_name(&variable.name) {
            return Err(format!("variables[{number}].name must consist of letters, digits and `_`"));
        }
        Ok((variable.name.clone(), parsed("variables", number, &variable.expression)?))
    });
    let variables = variables.collect::<Result<_, _>>()?;
    let validations = validations.iter().enumerate().map(|(number, validation)| -> Result<_, String> {
        let expression = parsed("validations", number, &validation.expression)?;
        Ok((expression, printable(&validation.message).into_owned()))
    });
    let validations = validations.collect::<Result<_, _>>()?;
    Ok(Provider {
        issuer: spec.issuer_url.clone(),
        keys: KeysAt::Discovered { issuer: spec.issuer_url.clone(), configuration },
        audience: spec.audience.clone().filter(|audience| !audience.is_empty()).unwrap_or_else(|| AUDIENCE.to_owned()),
        conditions: Conditions::Expressions { variables, validations },
    })
}

/// Returns the URL of an issuer's configuration; `None` if the issuer is not a plain URL of HTTPS.
fn configuration(issuer: &str) -> Option<Url> {
    let mut url = keys_url(issuer)?;
    if url.query().is_some() {
        return None;
    }
    let path = format!("{}{CONFIGURATION}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Some(url)
}

/// Parses a URL that the agent may read keys from; `None` if it is not a plain URL of HTTPS.
pub(super) fn keys_url(text: &str) -> Option<Url> {
    let url: Url = text.parse().ok()?;
    let has_user = !url.username().is_empty() || url.password().is_some();
    (url.scheme() == "https" && url.has_host() && !has_user && url.fragment().is_none()).then_some(url)
}

/// Whether a text is an identifier of CEL.
fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn accepted(providers: &[Provider], claims: &Value) -> String {
        accepted_within(providers, claims, &mut Budget::new(100_000))
    }

    fn accepted_within(providers: &[Provider], claims: &Value, budget: &mut Budget) -> String {
        match providers[0].accept(claims.as_object().unwrap().clone(), budget) {
            Ok(()) => "accepted".to_owned(),
            Err(flaw) => flaw.to_string(),
        }
    }

    #[test]
    fn a_token_of_google_has_the_verified_address_of_the_subscription() {
        let google = of_google("push@shop.iam.gserviceaccount.com", "us");
        let wrong = TokenFlaw::Email.to_string();
        let wrong = wrong.as_str();
        for (claims, expected) in [
            (json!({"email": "push@shop.iam.gserviceaccount.com", "email_verified": true}), "accepted"),
            (json!({"email": "push@evil.iam.gserviceaccount.com", "email_verified": true}), wrong),
            (json!({"email": "Push@shop.iam.gserviceaccount.com", "email_verified": true}), wrong),
            (json!({"email": "push@shop.iam.gserviceaccount.com", "email_verified": false}), wrong),
            (json!({"email": "push@shop.iam.gserviceaccount.com", "email_verified": "true"}), wrong),
            (json!({"email": "push@shop.iam.gserviceaccount.com"}), wrong),
            (json!({"email": ["push@shop.iam.gserviceaccount.com"], "email_verified": true}), wrong),
            (json!({}), wrong),
        ] {
            assert_eq!(accepted(&google, &claims), expected, "{claims}");
        }
    }

    #[test]
    fn all_validations_hold_for_an_accepted_token() {
        let spec = json!([{
            "issuerURL": "https://ci.example.com",
            "variables": [
                {"name": "allowed", "expression": "['team/shop', 'team/web']"},
                {"name": "is_allowed", "expression": "claims.repository in vars.allowed"},
            ],
            "validations": [
                {"expression": "vars.is_allowed", "message": "the repository is\nunknown"},
                {"expression": "claims.ref == 'refs/heads/main' || claims.?admin.orValue(false)", "message": "not main"},
            ],
        }]);
        let spec: Vec<OidcProvider> = serde_json::from_value(spec).unwrap();
        let providers = of_spec(&spec).unwrap();
        let check = |claims: Value, expected: &str| assert_eq!(accepted(&providers, &claims), expected, "{claims}");
        check(json!({"repository": "team/shop", "ref": "refs/heads/main"}), "accepted");
        check(json!({"repository": "team/shop", "ref": "refs/heads/dev", "admin": true}), "accepted");
        let unknown = "the token is refused: the repository is\\nunknown";
        check(json!({"repository": "evil/shop", "ref": "refs/heads/main"}), unknown);
        check(json!({"repository": "evil/shop", "ref": "a"}), &format!("{unknown}; not main"));
        check(
            json!({"ref": "refs/heads/main"}),
            "the token is refused: spec.oidcProviders[].variables[1] cannot be evaluated: line 1, column 8: there is no \
             field `repository`",
        );
        check(
            json!({"repository": "team/shop"}),
            "the token is refused: spec.oidcProviders[].validations[1] cannot be evaluated: line 1, column 8: there is no \
             field `ref`",
        );
    }

    #[test]
    fn all_expressions_of_a_token_take_a_bounded_number_of_steps_together() {
        let costly = json!({"expression": "claims.l.all(x, x == 'a')", "message": "no"});
        let spec = json!([{"issuerURL": "https://ci.example.com", "validations": vec![costly; 20]}]);
        let spec: Vec<OidcProvider> = serde_json::from_value(spec).unwrap();
        let (providers, claims) = (of_spec(&spec).unwrap(), json!({"l": vec!["a"; 2000]}));
        let said = |steps| accepted_within(&providers, &claims, &mut Budget::new(steps));
        assert_eq!(said(u32::MAX), "accepted");
        let refused = said(100_000);
        assert!(refused.ends_with("the expressions take more than 100000 steps together"), "{refused}");
    }
}
