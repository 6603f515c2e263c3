//! The types of Providers.

use crate::notice::{Notice, Priority, Severity};

/// A supported type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderType {
    /// Any server, which receives the event as JSON.
    Generic,
    /// Same as `Generic`, with a signature.
    GenericHmac,
    /// Slack, by a webhook or with a token.
    Slack,
    /// Microsoft Teams, by a workflow.
    MsTeams,
    /// Discord.
    Discord,
    /// Google Chat.
    GoogleChat,
    /// Rocket.Chat.
    Rocket,
    /// Telegram.
    Telegram,
    /// Matrix.
    Matrix,
    /// Webex.
    Webex,
    /// Lark and Feishu.
    Lark,
    /// PagerDuty.
    PagerDuty,
    /// Opsgenie.
    Opsgenie,
    /// Annotations of Grafana.
    Grafana,
    /// Prometheus Alertmanager.
    Alertmanager,
    /// Sentry.
    Sentry,
    /// Events of Datadog.
    Datadog,
    /// Commit status of GitHub.
    Github,
    /// Dispatch events of GitHub.
    GithubDispatch,
    /// Commit status of GitLab.
    Gitlab,
    /// Commit status of Gitea and Forgejo.
    Gitea,
    /// Commit status of Bitbucket Cloud.
    Bitbucket,
    /// Commit status of Bitbucket Server and Data Center.
    BitbucketServer,
    /// Commit status of Azure DevOps.
    AzureDevops,
    /// Comments on pull requests of GitHub.
    GithubComment,
    /// Comments on merge requests of GitLab.
    GitlabComment,
    /// Comments on pull requests of Gitea and Forgejo.
    GiteaComment,
    /// A subject of NATS, which receives the event as JSON.
    Nats,
    /// A topic of Google Pub/Sub, which receives the event as JSON.
    GooglePubSub,
    /// A hub of Azure Event Hubs, which receives the event as JSON.
    AzureEventHub,
}

use ProviderType as P;

/// All types with the values of `spec.type`.
const WORDS: &[(P, &str)] = &[
    (P::Generic, "generic"),
    (P::GenericHmac, "generic-hmac"),
    (P::Slack, "slack"),
    (P::MsTeams, "msteams"),
    (P::Discord, "discord"),
    (P::GoogleChat, "googlechat"),
    (P::Rocket, "rocket"),
    (P::Telegram, "telegram"),
    (P::Matrix, "matrix"),
    (P::Webex, "webex"),
    (P::Lark, "lark"),
    (P::PagerDuty, "pagerduty"),
    (P::Opsgenie, "opsgenie"),
    (P::Grafana, "grafana"),
    (P::Alertmanager, "alertmanager"),
    (P::Sentry, "sentry"),
    (P::Datadog, "datadog"),
    (P::Github, "github"),
    (P::GithubDispatch, "githubdispatch"),
    (P::Gitlab, "gitlab"),
    (P::Gitea, "gitea"),
    (P::Bitbucket, "bitbucket"),
    (P::BitbucketServer, "bitbucketserver"),
    (P::AzureDevops, "azuredevops"),
    (P::GithubComment, "githubpullrequestcomment"),
    (P::GitlabComment, "gitlabmergerequestcomment"),
    (P::GiteaComment, "giteapullrequestcomment"),
    (P::Nats, "nats"),
    (P::GooglePubSub, "googlepubsub"),
    (P::AzureEventHub, "azureeventhub"),
];

impl ProviderType {
    /// Returns the type with this value of `spec.type`.
    pub fn parse(word: &str) -> Option<Self> {
        WORDS.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    }

    /// Returns all values of `spec.type`.
    pub fn words() -> impl Iterator<Item = &'static str> {
        WORDS.iter().map(|(_, word)| *word)
    }

    /// Returns whether the type reports only the state of commits.
    pub(crate) const fn is_commit_status(self) -> bool {
        matches!(self, P::Github | P::Gitlab | P::Gitea | P::Bitbucket | P::BitbucketServer | P::AzureDevops)
    }

    /// Returns whether the type comments on pull requests.
    pub(crate) const fn is_comment(self) -> bool {
        matches!(self, P::GithubComment | P::GitlabComment | P::GiteaComment)
    }

    /// Returns whether the type can send a notice. A comment shows the newest state of a resource, so routine notices
    /// about managed objects do not replace it.
    pub fn takes(self, notice: &Notice) -> bool {
        match self {
            _ if self.is_commit_status() => notice.commit.is_some(),
            _ if self.is_comment() => notice.priority != Priority::Routine && notice.change_request().is_some(),
            P::Sentry => notice.severity == Severity::Error || notice.commit.is_some(),
            _ => true,
        }
    }

    /// Returns the default address of the type, if it has one.
    pub(crate) const fn default_address(self) -> Option<&'static str> {
        match self {
            P::Telegram => Some("https://api.telegram.org"),
            P::PagerDuty => Some("https://events.pagerduty.com"),
            P::Opsgenie => Some("https://api.opsgenie.com/v2/alerts"),
            P::Webex => Some("https://webexapis.com/v1/messages"),
            _ => None,
        }
    }

    /// Returns the meaning of `spec.channel` if the type requires it.
    pub(crate) const fn channel(self) -> Option<&'static str> {
        match self {
            P::Telegram => Some("the id of the chat"),
            P::Matrix | P::Webex => Some("the id of the room"),
            P::PagerDuty => Some("the routing key"),
            P::Nats => Some("the subject"),
            _ => None,
        }
    }

    /// Returns whether the keys `username` and `password` of the Secret may take the place of a required `token`.
    pub(crate) const fn takes_login(self) -> bool {
        matches!(self, P::BitbucketServer)
    }

    /// Returns whether the key `token` of the Secret is required.
    pub(crate) const fn needs_token(self) -> bool {
        let is_named = matches!(
            self,
            P::GenericHmac | P::Telegram | P::Matrix | P::Webex | P::Opsgenie | P::Datadog | P::GithubDispatch
        );
        // Without a token, Azure DevOps gets one of an identity.
        is_named || (self.is_commit_status() && !matches!(self, P::AzureDevops)) || self.is_comment()
    }
}
