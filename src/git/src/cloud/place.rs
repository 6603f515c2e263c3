//! The registries, Git servers and services of each provider.
//!
//! Invariant: a host in a [`Place`] belongs to its provider. Regions have the form of the provider's own lists, because
//! they become part of the host that receives tokens.

use reqwest::Url;

/// A cloud.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Provider {
    Aws,
    Azure,
    Google,
}

impl Provider {
    pub(super) fn read(name: &str) -> Option<Self> {
        [Self::Aws, Self::Azure, Self::Google].into_iter().find(|provider| provider.name() == name)
    }

    /// Returns the value of `spec.provider`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Azure => "azure",
            Self::Google => "gcp",
        }
    }

    fn registries(self) -> &'static str {
        match self {
            Self::Aws => "ACCOUNT.dkr.ecr.REGION.amazonaws.com and public.ecr.aws",
            Self::Azure => "NAME.azurecr.io, NAME.azurecr.cn and NAME.azurecr.us",
            Self::Google => "LOCATION-docker.pkg.dev and gcr.io",
        }
    }
}

/// A region of AWS, with the domain of its services.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Region {
    pub(super) name: String,
    pub(super) domain: &'static str,
}

impl Region {
    /// Returns a region; `None` if no partition has such regions.
    pub(super) fn read(name: &str) -> Option<Self> {
        let (rest, number) = name.rsplit_once('-')?;
        let (prefix, direction) = rest.rsplit_once('-')?;
        let is_number = (1..=2).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_direction = !direction.is_empty() && direction.bytes().all(|byte| byte.is_ascii_lowercase());
        let (_, domain) = PARTITIONS.into_iter().find(|(prefixes, _)| prefixes.contains(&prefix))?;
        (is_number && is_direction).then(|| Self { name: name.to_owned(), domain })
    }
}

/// The partitions of AWS: what their regions begin with, and their domain, as in the SDK.
const PARTITIONS: [(&[&str], &str); 4] = [
    (&["us", "eu", "ap", "sa", "ca", "me", "af", "il", "mx"], "amazonaws.com"),
    (&["us-gov"], "amazonaws.com"),
    (&["cn"], "amazonaws.com.cn"),
    (&["eusc-de"], "amazonaws.eu"),
];

/// The registry, the repository or the service that an identity opens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Place {
    /// A private registry of AWS.
    Ecr(Region),
    /// The public registry of AWS.
    PublicEcr,
    /// A repository of AWS `CodeCommit`.
    CodeCommit { region: Region, host: String, path: String },
    /// A registry of Azure.
    Acr { host: String },
    /// Azure `DevOps`.
    DevOps,
    /// A registry of Google.
    GoogleRegistry,
    /// Azure Event Hubs.
    EventHubs,
    /// Google Pub/Sub.
    PubSub,
}

impl Place {
    /// Returns the registry with this host, if it belongs to the provider.
    ///
    /// # Errors
    /// The registry does not belong to the provider.
    pub(super) fn registry(provider: Provider, host: &str) -> Result<Self, String> {
        let is_plain = host.len() <= 253 && host.split('.').all(is_label);
        let found = match provider {
            _ if !is_plain => None,
            Provider::Aws => ecr(host),
            Provider::Azure => {
                let name = [".azurecr.io", ".azurecr.cn", ".azurecr.us"].iter().find_map(|end| host.strip_suffix(end));
                name.map(|_| Self::Acr { host: host.to_owned() })
            }
            Provider::Google => {
                let is_own = host == "gcr.io" || host.ends_with(".gcr.io") || host.ends_with("-docker.pkg.dev");
                is_own.then_some(Self::GoogleRegistry)
            }
        };
        found.ok_or_else(|| {
            let (name, registries) = (provider.name(), provider.registries());
            format!("spec.provider: {host} is not a registry of {name}; {name} is for {registries}, and other registries need a login in spec.secretRef")
        })
    }

    /// Returns the Git repository at this address, if it belongs to the provider.
    ///
    /// # Errors
    /// The repository does not belong to the provider, or TLS does not protect it.
    pub(super) fn repository(provider: Provider, url: &Url) -> Result<Self, String> {
        let host = url.host_str().unwrap_or_default();
        if url.scheme() != "https" || url.port().is_some() {
            let name = provider.name();
            return Err(format!("spec.provider: {name} needs an address that begins with https:// and has no port"));
        }
        let found = match provider {
            Provider::Aws => code_commit(host, url.path()),
            Provider::Azure => {
                // Deeper names belong to other services.
                let is_organization = host.strip_suffix(".visualstudio.com").is_some_and(is_label);
                (host == "dev.azure.com" || is_organization).then_some(Self::DevOps)
            }
            Provider::Google => None,
        };
        found.ok_or_else(|| match provider {
            Provider::Aws => format!(
                "spec.provider: {host} is not a Git server of aws; aws is for https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME"
            ),
            Provider::Azure => format!(
                "spec.provider: {host} is not a Git server of azure; azure is for https://dev.azure.com/ORGANIZATION/PROJECT/_git/NAME"
            ),
            Provider::Google => "spec.provider: gcp is for registries only; name a Secret in spec.auth".to_owned(),
        })
    }

    /// Returns the parts that distinguish places with different logins.
    pub(super) fn parts(&self) -> Vec<&str> {
        match self {
            Self::Ecr(region) => vec!["ecr", &region.name],
            Self::PublicEcr => vec!["public-ecr"],
            Self::CodeCommit { region, .. } => vec!["codecommit", &region.name],
            Self::Acr { host } => vec!["acr", host],
            Self::DevOps => vec!["devops"],
            Self::GoogleRegistry => vec!["google"],
            Self::EventHubs => vec!["event-hubs"],
            Self::PubSub => vec!["pub-sub"],
        }
    }
}

fn is_label(label: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !label.is_empty() && label.bytes().all(is_plain) && !label.starts_with('-')
}

fn ecr(host: &str) -> Option<Place> {
    if host == "public.ecr.aws" || host == "ecr-public.aws.com" {
        return Some(Place::PublicEcr);
    }
    let (account, rest) = host.split_once('.')?;
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    // Hosts with both IPv4 and IPv6 have the second form.
    let (rest, dual) = match rest.strip_prefix("dkr.") {
        Some(rest) => (rest, None),
        None => (rest.strip_prefix("dkr-")?, Some("on.aws")),
    };
    let rest = rest.strip_prefix("ecr.").or_else(|| rest.strip_prefix("ecr-fips."))?;
    let (region, domain) = rest.split_once('.')?;
    let is_in = |region: &Region| match dual {
        Some(dual) => region.domain == "amazonaws.com" && domain == dual,
        None => region.domain == domain,
    };
    Region::read(region).filter(|region| is_account && is_in(region)).map(Place::Ecr)
}

fn code_commit(host: &str, path: &str) -> Option<Place> {
    let rest = host.strip_prefix("git-codecommit.").or_else(|| host.strip_prefix("git-codecommit-fips."))?;
    let (region, domain) = rest.split_once('.')?;
    let region = Region::read(region).filter(|region| region.domain == domain)?;
    let name = path.strip_prefix("/v1/repos/")?.trim_end_matches('/');
    // Other characters would be encoded twice in a signature.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !name.is_empty() && name.chars().all(is_plain);
    is_name.then(|| Place::CodeCommit { region, host: host.to_owned(), path: format!("/v1/repos/{name}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str) -> Region {
        Region::read(name).unwrap()
    }

    #[test]
    fn registries_of_a_provider_are_known_by_their_host() {
        let account = "123456789012";
        for (provider, host, expected) in [
            (Provider::Aws, format!("{account}.dkr.ecr.eu-west-1.amazonaws.com"), Place::Ecr(region("eu-west-1"))),
            (
                Provider::Aws,
                format!("{account}.dkr.ecr-fips.us-gov-west-1.amazonaws.com"),
                Place::Ecr(region("us-gov-west-1")),
            ),
            (Provider::Aws, format!("{account}.dkr.ecr.cn-north-1.amazonaws.com.cn"), Place::Ecr(region("cn-north-1"))),
            (Provider::Aws, format!("{account}.dkr-ecr.eu-west-1.on.aws"), Place::Ecr(region("eu-west-1"))),
            (Provider::Aws, format!("{account}.dkr-ecr-fips.us-east-1.on.aws"), Place::Ecr(region("us-east-1"))),
            (Provider::Aws, "public.ecr.aws".to_owned(), Place::PublicEcr),
            (Provider::Azure, "shop.azurecr.io".to_owned(), Place::Acr { host: "shop.azurecr.io".to_owned() }),
            (Provider::Google, "europe-docker.pkg.dev".to_owned(), Place::GoogleRegistry),
            (Provider::Google, "eu.gcr.io".to_owned(), Place::GoogleRegistry),
        ] {
            assert_eq!(Place::registry(provider, &host).unwrap(), expected, "{host}");
        }
        assert_eq!(region("cn-north-1").domain, "amazonaws.com.cn");
    }

    #[test]
    fn foreign_hosts_are_refused_by_name() {
        for (provider, host) in [
            (Provider::Aws, "ghcr.io"),
            (Provider::Aws, "123456789012.dkr.ecr.s3.amazonaws.com"),
            (Provider::Aws, "123456789012.dkr.ecr.eu-west-1.amazonaws.com.evil.example"),
            (Provider::Aws, "123456789012.dkr.ecr.eu-west-1.evil.example"),
            (Provider::Aws, "123456789012.dkr.ecr.cn-north-1.amazonaws.com"),
            (Provider::Aws, "123456789012.dkr.ecr.eu-west-1.amazonaws.com:8443"),
            (Provider::Aws, "123456789012.dkr-ecr.eu-west-1.amazonaws.com"),
            (Provider::Aws, "123456789012.dkr.ecr.eu-west-1.on.aws"),
            (Provider::Aws, "123456789012.dkr-ecr.cn-north-1.on.aws"),
            (Provider::Aws, "12.dkr.ecr.eu-west-1.amazonaws.com"),
            (Provider::Aws, "x.123456789012.dkr.ecr.eu-west-1.amazonaws.com"),
            (Provider::Azure, "azurecr.io"),
            (Provider::Azure, ".azurecr.io"),
            (Provider::Azure, "shop.azurecr.io.evil.example"),
            (Provider::Azure, "evil.example/x.azurecr.io"),
            (Provider::Azure, "shop.azurecr.io:8443"),
            (Provider::Google, "evilgcr.io"),
            (Provider::Google, "gcr.io.evil.example"),
            (Provider::Google, "docker.pkg.dev"),
        ] {
            let why = Place::registry(provider, host).unwrap_err();
            assert!(
                why.starts_with(&format!("spec.provider: {host} is not a registry of {}", provider.name())),
                "{why}"
            );
        }
    }

    #[test]
    fn git_servers_of_a_provider_are_known_by_their_address() {
        let at = |provider, url: &str| Place::repository(provider, &Url::parse(url).unwrap());
        let repository =
            at(Provider::Aws, "https://git-codecommit.us-east-1.amazonaws.com/v1/repos/test-repo").unwrap();
        let host = "git-codecommit.us-east-1.amazonaws.com".to_owned();
        let path = "/v1/repos/test-repo".to_owned();
        assert_eq!(repository, Place::CodeCommit { region: region("us-east-1"), host, path });
        assert_eq!(at(Provider::Azure, "https://dev.azure.com/org/project/_git/name"), Ok(Place::DevOps));
        assert_eq!(at(Provider::Azure, "https://org.visualstudio.com/project/_git/name"), Ok(Place::DevOps));
        for (provider, url) in [
            (Provider::Aws, "http://git-codecommit.us-east-1.amazonaws.com/v1/repos/test-repo"),
            (Provider::Aws, "https://git-codecommit.us-east-1.amazonaws.com:8443/v1/repos/test-repo"),
            (Provider::Aws, "https://git-codecommit.s3.amazonaws.com/v1/repos/test-repo"),
            (Provider::Aws, "https://git-codecommit.us-east-1.amazonaws.com/v1/repos/a%20b"),
            (Provider::Aws, "https://git-codecommit.us-east-1.amazonaws.com/other"),
            (Provider::Aws, "https://github.com/org/repo"),
            (Provider::Azure, "https://dev.azure.com.evil.example/org/project/_git/name"),
            (Provider::Azure, "https://a.b.visualstudio.com/project/_git/name"),
            (Provider::Azure, "https://github.com/org/repo"),
            (Provider::Google, "https://source.developers.google.com/p/x/r/y"),
        ] {
            let why = at(provider, url).unwrap_err();
            assert!(why.starts_with("spec.provider: "), "{why}");
        }
    }
}
