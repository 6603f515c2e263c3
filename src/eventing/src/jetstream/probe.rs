//! Checks at intervals that the server responds, for the readiness of the process.

use std::time::Duration;

use tokio::sync::watch;

use super::roll_call::Announcement;
use super::streams::JetStream;
use mainstay_object::failure::chain;

/// Intervals of checks: after a response, and after a failure.
const USUAL: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_millis(500);
/// Timeout of a response.
const ANSWER: Duration = Duration::from_secs(3);

/// Whether the server responds, or why not.
pub(crate) type Answers = Result<(), String>;

impl JetStream {
    /// Updates `found` with the result of each check. Logs each change. A process that accepts events is announced with
    /// each check, so it is announced before it is ready.
    pub(crate) async fn probe(self, announcement: Option<Announcement>, found: watch::Sender<Answers>) {
        let mut losses = self.losses();
        loop {
            losses.mark_unchanged();
            let checking = async {
                if let Some(announcement) = &announcement {
                    announcement.send().await.map_err(|error| error.to_string())?;
                }
                self.0.context.query_account().await.map_err(|error| chain(&error))
            };
            let answer = match self.response(ANSWER, checking).await {
                Some(Ok(_)) => Ok(()),
                Some(Err(why)) => Err(format!("NATS does not respond, or refuses the login: {why}")),
                None => Err("NATS does not respond".to_owned()),
            };
            let wait = if answer.is_ok() { USUAL } else { SOON };
            found.send_if_modified(|known| {
                let is_other = *known != answer;
                match &answer {
                    Ok(()) if is_other => tracing::info!("NATS responds"),
                    Err(why) if is_other => tracing::warn!(why, "this process is not ready"),
                    _ => {}
                }
                *known = answer;
                is_other
            });
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                Ok(()) = losses.changed() => {}
            }
        }
    }
}
