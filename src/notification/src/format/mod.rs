//! The requests for each type of service: a notice becomes the JSON that the service expects.

mod bitbucket_server;
mod chat;
mod comment;
mod commit;
mod datadog;
mod encoding;
mod event;
mod incident;
mod markup;
#[cfg(test)]
mod tests;

use self::encoding::basic;
use self::markup::Marked;
use crate::delivery::Delivery;
use crate::nats::Publication;
use crate::notice::Notice;
use crate::provider_type::ProviderType as P;
use crate::request::Request;
use crate::target::Target;

impl Target {
    /// Returns the steps that deliver a notice.
    ///
    /// # Errors
    /// The reason why the notice cannot be sent to this address.
    pub fn delivery(&self, notice: &Notice) -> Result<Delivery, String> {
        let request = match self.kind {
            P::Nats => return Ok(Delivery::Nats(Publication::new(self, &event::of(&Marked::of(notice))))),
            P::GithubComment | P::GitlabComment | P::GiteaComment => {
                return comment::comment(self, &Marked::of(notice));
            }
            P::BitbucketServer => return bitbucket_server::status(self, &Marked::of(notice)),
            P::Generic | P::GenericHmac => event::generic(self, &Marked::of(notice)),
            P::GooglePubSub => event::to_topic(self, &Marked::of(notice)),
            P::AzureEventHub => event::to_hub(self, &Marked::of(notice)),
            P::GithubDispatch => commit::dispatch(self, &Marked::of(notice))?,
            P::Slack => chat::slack(self, &Marked::of(notice)),
            P::Discord => chat::discord(self, &Marked::of(notice)),
            P::Rocket => chat::rocket(self, &Marked::of(notice)),
            P::MsTeams => chat::teams(self, &Marked::of(notice)),
            P::GoogleChat => chat::google(self, &Marked::of(notice)),
            P::Telegram => chat::telegram(self, &Marked::of(notice)),
            P::Matrix => chat::matrix(self, &Marked::of(notice)),
            P::Webex => chat::webex(self, &Marked::of(notice)),
            P::Lark => chat::lark(self, &Marked::of(notice)),
            P::PagerDuty => incident::pager_duty(self, &Marked::of(notice)),
            P::Opsgenie => incident::opsgenie(self, &Marked::of(notice)),
            P::Grafana => incident::grafana(self, &Marked::of(notice)),
            P::Alertmanager => incident::alertmanager(self, &Marked::of(notice)),
            P::Sentry => incident::sentry(self, &Marked::of(notice)),
            P::Datadog => datadog::event(self, &Marked::of(notice)),
            P::Github | P::Gitlab | P::Gitea | P::Bitbucket | P::AzureDevops => {
                commit::status(self, &Marked::of(notice))?
            }
        };
        let request = self.with_own(request);
        Ok(match &self.login {
            Some(login) => Delivery::Authorized(login.clone(), request),
            None => Delivery::Http(request),
        })
    }

    /// Adds the headers of the Secret.
    fn with_own(&self, request: Request) -> Request {
        let are_headers = self.kind != P::GooglePubSub;
        let own = self.headers.iter().filter(|_| are_headers).cloned();
        own.fold(request, |request, (name, value)| request.header(&name, value.expose().as_str()))
    }

    fn url(&self) -> &str {
        self.address.expose().as_str()
    }

    /// Returns the URL of a path below the address.
    fn below(&self, path: &str) -> String {
        let mut url = self.address.expose().clone();
        url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        url.into()
    }

    /// Returns the address without path.
    fn origin(&self) -> String {
        self.address.expose().origin().ascii_serialization()
    }

    fn secret_token(&self) -> &str {
        self.token.as_ref().map_or("", |token| token.expose().as_str())
    }

    /// Adds the token, or user name and password.
    fn authorized(&self, request: Request) -> Request {
        match (&self.token, &self.password) {
            (Some(token), _) => request.bearer(token.expose()),
            (None, Some(password)) => request.header("authorization", basic(&self.username, password.expose())),
            (None, None) => request,
        }
    }
}
