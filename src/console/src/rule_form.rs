//! The form that exposes a Service: the fields of a new APIRule with one path, and the object that they describe.
//!
//! Not here: changes of an APIRule, which may have more fields than the form. Its author changes the manifest.

use std::num::NonZeroU16;

use serde_json::{Value, json};

use crate::field::text_at;
use crate::filter::Query;
use crate::form::{ObjectForm, line, new, set};
use crate::readers::Readers;
use crate::row::FleetKind;
use crate::text::SHORT;

/// The methods of HTTP that the form offers.
pub(crate) const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// The word in the form for requests with a token.
const TOKEN: &str = "jwt";
/// The access strategies that the form offers, with their labels.
pub(crate) const ACCESS: [(&str, &str); 3] = [
    ("noop", "everybody, with the methods below"),
    ("allow", "everybody, with all methods"),
    (TOKEN, "requests with a token of an issuer"),
];

/// The gateway of an installation without settings. The operator may permit others.
const GATEWAY: &str = "kyma-system/kyma-gateway";
/// All paths.
const ALL: &str = "/.*";

/// The fields, as the user wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleFields {
    pub(crate) name: String,
    pub(crate) service: String,
    pub(crate) port: String,
    pub(crate) gateway: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) methods: Vec<String>,
    /// The access strategy: a word of [`ACCESS`].
    pub(crate) access: String,
    pub(crate) issuer: String,
    /// The URL of the issuer's keys; empty if the issuer names it.
    pub(crate) keys: String,
}

impl RuleFields {
    /// Returns the access strategy.
    fn strategy(&self) -> Result<Value, String> {
        if !ACCESS.iter().any(|(word, _)| *word == self.access) {
            return Err("Access: select who reaches the Service.".to_owned());
        }
        if self.access != TOKEN {
            let is_alone = self.issuer.is_empty() && self.keys.is_empty();
            let why = "Issuer: only requests with a token have one. Leave the fields empty, or select that access.";
            return if is_alone { Ok(json!({"handler": self.access})) } else { Err(why.to_owned()) };
        }
        if self.issuer.is_empty() {
            return Err("Issuer: write its URL, as the tokens name it.".to_owned());
        }
        let mut config = json!({"trusted_issuers": [self.issuer]});
        if !self.keys.is_empty() {
            config["jwks_urls"] = json!([self.keys]);
        }
        Ok(json!({"handler": TOKEN, "config": config}))
    }
}

impl ObjectForm for RuleFields {
    const KIND: FleetKind = FleetKind::ApiRule;
    const PLURAL: &'static str = "apirules";
    const PATH: &'static str = "/expose";

    fn blank(url: &Query) -> Self {
        let (service, port) = (line(url.get("service")), line(url.get("port")));
        Self {
            name: service.clone(),
            host: service.clone(),
            service,
            port: if port.is_empty() { "80".to_owned() } else { port },
            gateway: GATEWAY.to_owned(),
            path: ALL.to_owned(),
            methods: vec!["GET".to_owned()],
            ..Self::default()
        }
    }

    fn read(form: &Query) -> Self {
        let one = |name: &str| line(form.get(name));
        Self {
            name: one("name"),
            service: one("service"),
            port: one("port"),
            gateway: one("gateway"),
            host: one("host"),
            path: one("path"),
            methods: METHODS
                .iter()
                .filter(|method| form.all("method").any(|one| one == **method))
                .map(|method| (*method).to_owned())
                .collect(),
            access: one("access"),
            issuer: one("issuer"),
            keys: one("keys"),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn wanted(&self, _live: Option<&Value>, namespace: &str) -> Result<Value, String> {
        let mut rule = new(Self::KIND, &self.name, namespace)?;
        for (text, label) in
            [(&self.service, "Service"), (&self.host, "Host"), (&self.path, "Path"), (&self.gateway, "Gateway")]
        {
            if text.is_empty() {
                return Err(format!("{label}: it is empty."));
            }
        }
        let port: NonZeroU16 = self.port.parse().map_err(|_| "Port: write a number from 1 to 65535.".to_owned())?;
        if self.methods.is_empty() {
            return Err("Methods: select at least one.".to_owned());
        }
        let path = json!({"path": self.path, "methods": self.methods, "accessStrategies": [self.strategy()?]});
        let spec = json!({
            "gateway": self.gateway, "host": self.host, "service": {"name": self.service, "port": port.get()}, "rules": [path],
        });
        set(&mut rule, "/spec", Some(spec));
        Ok(rule)
    }

    fn effect(readers: &Readers, _live: Option<&Value>, wanted: &Value) -> Result<String, String> {
        (readers.rules.api_rule)(wanted)?;
        let host = text_at(wanted, "/spec/host", SHORT);
        let handler = text_at(wanted, "/spec/rules/0/accessStrategies/0/handler", SHORT);
        let who = if handler == TOKEN { "Requests with a valid token of the issuer" } else { "All clients" };
        Ok(format!(
            "{who} reach the Service at the host {host}. The operator of the agent permits hosts, gateways and issuers in \
             the cluster; the condition Exposed of the APIRule says if one is refused."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> RuleFields {
        let blank = RuleFields::blank(&Query::parse(b"service=greeter"));
        RuleFields { host: "greeter.example.com".into(), access: "noop".into(), ..blank }
    }

    #[test]
    fn a_rule_has_the_newest_form_of_its_host() {
        let rule = fields().wanted(None, "shop").unwrap();
        assert_eq!(
            (&rule["apiVersion"], &rule["metadata"]["name"]),
            (&json!("gateway.kyma-project.io/v1beta1"), &json!("greeter"))
        );
        let expected = json!({
            "gateway": "kyma-system/kyma-gateway", "host": "greeter.example.com", "service": {"name": "greeter", "port": 80},
            "rules": [{"path": "/.*", "methods": ["GET"], "accessStrategies": [{"handler": "noop"}]}],
        });
        assert_eq!(rule["spec"], expected);
        let (issuer, keys) = ("https://login.example.com", "https://login.example.com/keys");
        let with_token = RuleFields { access: "jwt".into(), issuer: issuer.into(), keys: keys.into(), ..fields() };
        let rule = with_token.wanted(None, "shop").unwrap();
        let strategy = json!({"handler": "jwt", "config": {"trusted_issuers": [issuer], "jwks_urls": [keys]}});
        assert_eq!(rule["spec"]["rules"][0]["accessStrategies"], json!([strategy]));
    }

    #[test]
    fn a_wrong_field_is_named_and_access_is_not_given_by_default() {
        let check = |change: &dyn Fn(&mut RuleFields), expected: &str| {
            let mut fields = fields();
            change(&mut fields);
            let problem = fields.wanted(None, "shop").unwrap_err();
            assert!(problem.starts_with(expected), "{problem}");
        };
        check(&|fields| fields.access.clear(), "Access: ");
        check(&|fields| fields.access = "cookie_session".into(), "Access: ");
        check(&|fields| fields.issuer = "https://login.example.com".into(), "Issuer: ");
        check(&|fields| fields.access = "jwt".into(), "Issuer: ");
        check(&|fields| fields.methods.clear(), "Methods: ");
        check(&|fields| fields.host.clear(), "Host: ");
        check(&|fields| fields.service.clear(), "Service: ");
        for port in ["", "0", "65536", "http"] {
            check(&|fields| fields.port = port.into(), "Port: ");
        }
        check(&|fields| fields.name = "<b>".into(), "Name: ");
    }

    #[test]
    fn only_methods_of_the_list_are_read() {
        let read = RuleFields::read(&Query::parse(b"method=POST&method=GET&method=TRACE&method=GET"));
        assert_eq!(read.methods, ["GET", "POST"]);
    }
}
