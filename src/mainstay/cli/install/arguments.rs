//! The flags of `install`.

use std::path::PathBuf;

use super::choice::Choice;
use super::nats_flags::EventFlags;
use super::pod_flags::Pods;
use crate::cli::connection::{ClusterArguments, DEFAULT_NAMESPACE};
use mainstay_api::Span;
use mainstay_gitsync::receiver::BaseUrl;

/// Arguments of `install`.
#[derive(clap::Args, Clone, Debug, Default)]
pub(in crate::cli) struct Arguments {
    /// Address of the repository: git@host:path, ssh://user@host:port/path or https://host/path
    #[arg(long, value_name = "URL", required_unless_present = "values")]
    pub(super) git_url: Option<String>,
    /// YAML file with values of the Helm chart, for these and all other choices; `-` is standard input. Later files
    /// override earlier ones, and flags override files. May be repeated
    #[arg(long, value_name = "FILE")]
    pub(super) values: Vec<PathBuf>,
    /// Branch to follow [default: main]
    #[arg(long, value_name = "BRANCH")]
    pub(super) git_branch: Option<String>,
    /// Directory of the repository to apply; by default all of it. Separate several by commas, or repeat the flag
    #[arg(long, visible_alias = "git-paths", value_name = "DIR", value_delimiter = ',')]
    pub(super) git_path: Vec<String>,
    /// Secret in the namespace with `username` and `password` (https), or with your own SSH key
    #[arg(long, value_name = "SECRET")]
    pub(super) git_secret: Option<String>,
    /// File with the host keys of the Git server, as `ssh-keyscan` prints them; not needed for github.com, gitlab.com,
    /// bitbucket.org and ssh.dev.azure.com
    #[arg(long, value_name = "FILE")]
    pub(super) known_hosts: Option<PathBuf>,
    /// Namespace of the agent and of the GitSync
    #[arg(short, long, value_name = "NS", default_value = DEFAULT_NAMESPACE)]
    pub(super) namespace: String,
    /// Namespace for objects of the repository that name none [default: default]
    #[arg(long, value_name = "NS")]
    pub(super) target_namespace: Option<String>,
    /// Name of the GitRepository and the GitSync; by default the last part of the address
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Interval at which the repository is checked for a new commit
    #[arg(long, value_name = "DURATION")]
    pub(super) interval: Option<Span>,
    /// URL at which Git hosts reach the Service mainstay-receivers, such as https://hooks.example.com; shown in the
    /// status of Receivers
    #[arg(long, value_name = "URL")]
    pub(super) receiver_url: Option<BaseUrl>,
    /// URL at which users open the console, such as https://console.example.com; may be repeated [default:
    /// http://mainstay-console.localhost:8080, for `kubectl port-forward`]
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub(super) console_url: Vec<String>,
    /// Name of the cluster on each page of the console, such as production
    #[arg(long, value_name = "NAME")]
    pub(super) console_cluster_name: Option<String>,
    /// Origin of the tokens of the console's users: `form`, `proxy` for one that sends them, or `oidc` for an issuer of
    /// OpenID Connect that the API server trusts [default: form]
    #[arg(long, value_name = "form|proxy|oidc")]
    pub(super) console_sign_in: Option<String>,
    #[command(flatten)]
    pub(super) oidc: ConsoleOidc,
    /// Base images of Functions, by runtime and digest, as JSON:
    /// `{"nodejs22": "docker.io/library/node@sha256:…"}`
    #[arg(long, value_name = "JSON")]
    pub(super) base_images: Option<String>,
    /// Secret in the namespace with the CA bundle of the registries of base images; by default its key is ca.crt
    #[arg(long, value_name = "SECRET[/KEY]")]
    pub(super) base_ca: Option<String>,
    #[command(flatten)]
    pub(super) choice: Choice,
    /// Registry for the images of Functions: `internal` installs one, `none` installs none. For the address of another,
    /// such as ghcr.io/team, the command prints how to store its login [default: internal, where there are Functions]
    #[arg(long, value_name = "internal|none|ADDRESS")]
    pub(super) registry: Option<String>,
    /// Network of the nodes, such as 10.20.0.0/16; a NetworkPolicy then lets only nodes and pods connect to the
    /// installed registry. May be repeated
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub(super) registry_network: Vec<String>,
    #[arg(long, value_name = "IMAGE", help = IMAGE_HELP)]
    pub(super) image: Option<String>,
    /// Secret in the namespace, of type kubernetes.io/dockerconfigjson, with which nodes pull that image
    #[arg(long, value_name = "SECRET")]
    pub(super) image_pull_secret: Option<String>,
    /// Omit the CustomResourceDefinitions
    #[arg(long)]
    pub(super) no_crds: bool,
    /// Also serve Functions in v1alpha2, the version of Kyma 2.6 and later; kubectl prefers it
    #[arg(long, conflicts_with = "no_crds")]
    pub(super) v1alpha2: bool,
    /// Accepted for compatibility with fluxctl; nothing is written to Git
    #[arg(long, value_name = "NAME", help_heading = WITHOUT_EFFECT)]
    pub(super) git_user: Option<String>,
    /// Accepted for compatibility with fluxctl; nothing is written to Git
    #[arg(long, value_name = "EMAIL", help_heading = WITHOUT_EFFECT)]
    pub(super) git_email: Option<String>,
    /// Accepted for compatibility with fluxctl; nothing is written to Git
    #[arg(long, value_name = "LABEL", help_heading = WITHOUT_EFFECT)]
    pub(super) git_label: Option<String>,
    /// Accepted for compatibility with fluxctl; only image updates write to Git, with another Secret
    #[arg(long, help_heading = WITHOUT_EFFECT)]
    pub(super) git_readonly: bool,
    /// Accepted for compatibility with fluxctl; no images are scanned
    #[arg(long, help_heading = WITHOUT_EFFECT)]
    pub(super) registry_disable_scanning: bool,
    #[command(flatten)]
    pub(super) nats: EventFlags,
    #[command(flatten)]
    pub(super) pods: Pods,
    /// The cluster whose installation is compared with this one, if it can be reached.
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
}

/// The issuer that signs users of the console in.
#[derive(clap::Args, Clone, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "the names of the flags follow from those of the fields")]
pub(super) struct ConsoleOidc {
    /// URL of the issuer of --console-sign-in oidc, exactly as in the settings of the API server
    #[arg(long, value_name = "URL")]
    pub(super) console_oidc_issuer: Option<String>,
    /// ID of the client at that issuer, which is the audience of its ID tokens
    #[arg(long, value_name = "ID")]
    pub(super) console_oidc_client_id: Option<String>,
    /// Scope to request beside `openid`, such as email or groups; may be repeated
    #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
    pub(super) console_oidc_scope: Vec<String>,
    /// Secret in the namespace with the keys client-secret and ca.crt, both optional
    #[arg(long, value_name = "SECRET")]
    pub(super) console_oidc_secret: Option<String>,
}

const IMAGE_HELP: &str =
    concat!("Image of the agent, which you have built and pushed [default: mainstay:", env!("CARGO_PKG_VERSION"), "]");
const WITHOUT_EFFECT: &str = "Flags without effect";
