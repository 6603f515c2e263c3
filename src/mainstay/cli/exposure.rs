//! Arguments for APIRules that `agent` and `dev` share.

use mainstay_exposure::{IssuerOrigin, Settings};
use mainstay_object::names::{DomainName, GatewayRef};

/// Hosts, gateways and issuers that APIRules may name.
#[derive(clap::Args, Debug)]
pub(super) struct Exposure {
    /// Domain, besides the default domain, below which APIRules may have hosts; may be repeated; by default none
    #[arg(long = "allow-domain", value_name = "DOMAIN", env = "MAINSTAY_ALLOW_DOMAINS", value_delimiter = ',', value_parser = DomainName::parse)]
    domains: Vec<DomainName>,
    /// Gateway, besides kyma-system/kyma-gateway, that APIRules may use; may be repeated; by default none
    #[arg(long = "allow-gateway", value_name = "NS/NAME", env = "MAINSTAY_ALLOW_GATEWAYS", value_delimiter = ',', value_parser = GatewayRef::parse)]
    gateways: Vec<GatewayRef>,
    /// Issuer inside of the cluster, such as http://dex.kyma-system.svc.cluster.local:5556, that handlers of APIRules
    /// may query for keys and token introspection; may be repeated; by default public issuers only
    #[arg(long = "allow-issuer", value_name = "URL", env = "MAINSTAY_ALLOW_ISSUERS", value_delimiter = ',')]
    issuers: Vec<IssuerOrigin>,
    /// Namespace, or *, whose APIRules may expose Services with endpoints that somebody wrote: Services without a selector, or
    /// with EndpointSlices of another author; may be repeated; by default none, but all with `mainstay dev` unless it
    /// follows a remote repository without --run-code
    #[arg(
        long = "allow-written-endpoints",
        value_name = "NS",
        env = "MAINSTAY_ALLOW_WRITTEN_ENDPOINTS",
        value_delimiter = ','
    )]
    written_endpoints: Vec<String>,
}

impl Exposure {
    /// Returns the allowed issuers as URLs.
    #[cfg(feature = "dev")]
    pub(super) fn issuers(&self) -> Vec<String> {
        self.issuers.iter().map(ToString::to_string).collect()
    }

    /// Returns the settings of the controller of APIRules.
    pub(super) fn settings(self, default_domain: Option<DomainName>) -> Settings {
        Settings {
            default_domain,
            allowed_domains: self.domains,
            allowed_gateways: self.gateways,
            allowed_issuers: self.issuers,
            written_endpoints: self.written_endpoints,
        }
    }
}
