//! Watches the ConfigMap with the operator's settings for Functions.
//!
//! Invariant: Functions are not reconciled before the settings are known. Otherwise every Function would be rolled out
//! twice. Invariant: an invalid value changes nothing. The last valid settings stay, also after a restart: the
//! ConfigMap stores them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::notify::Notifier;
use mainstay_api::events::Reason;
use mainstay_api::names::{LAST_VALID_SETTINGS, SETTINGS};
use mainstay_cluster::reflector::{Cache, Change, Reflector};
use mainstay_cluster::{Cluster, Event, EventType, Kind, Part, Priority, Regarding, Scope, Selection};
use mainstay_function::{Context, InvalidVariable, Settings};
use mainstay_object::failure::chain;
use mainstay_object::printable;

/// Maximum size of the stored data, in bytes. An object may have 256 KiB of annotations.
const REMEMBERED: usize = 64 << 10;
/// Maximum number of invalid values in an Event.
const SHOWN: usize = 5;

/// The data of a ConfigMap.
type Data = BTreeMap<String, String>;

/// Watches the ConfigMap in this namespace until `stop`. The ConfigMap's data override the agent's settings. Once the
/// settings are known, `excluded` is set to the part of them that other tasks need.
pub(super) async fn follow(
    functions: Arc<Context>,
    excluded: watch::Sender<Option<Vec<String>>>,
    notifier: Notifier,
    cluster: Cluster,
    namespace: String,
    stop: CancellationToken,
) {
    let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
    let mut reflector = reflect(&cluster, &kind, &namespace);
    let base = Settings::clone(&functions.settings());
    let mut followed = Followed { base, cluster, kind, namespace, notifier, seen: None, is_valid: false };
    while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
        if let Change::Failed(error) = &change {
            tracing::warn!(why = chain(error), "the ConfigMap {SETTINGS} cannot be read");
        }
        let Some(found) = found(change, reflector.cache()) else { continue };
        if let Some(settings) = followed.read(found.as_ref()).await {
            let namespaces = Some(settings.excluded_namespaces.clone());
            functions.set_settings(settings);
            excluded.send_if_modified(|old| {
                let differ = *old != namespaces;
                *old = namespaces;
                differ
            });
        }
    }
}

/// Watches the ConfigMap until `stop` for the webhooks of every replica. `set` receives the settings that the leader
/// uses.
pub(super) async fn follow_for_webhooks(
    base: Settings,
    set: impl Fn(Settings),
    cluster: Cluster,
    namespace: String,
    stop: CancellationToken,
) {
    let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
    let (mut reflector, mut has_valid) = (reflect(&cluster, &kind, &namespace), false);
    while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
        // The leader reports an unreadable ConfigMap.
        let Some(found) = found(change, reflector.cache()) else { continue };
        let Some(map) = found else {
            has_valid = false;
            set(base.clone());
            continue;
        };
        let data = data_of(&map);
        match Settings::from_config_map(base.clone(), &data) {
            Ok((settings, _)) => {
                has_valid = true;
                set(settings);
            }
            Err(_) if has_valid => {}
            Err(_) => set(last_valid(&base, &map).unwrap_or_else(|| base.clone())),
        }
    }
}

fn reflect(cluster: &Cluster, kind: &Arc<Kind>, namespace: &str) -> Reflector<Data> {
    cluster.reflect(kind, Selection::named(Some(namespace), SETTINGS), |map| Ok(Some(data_of(map))))
}

fn data_of(map: &Value) -> Data {
    serde_json::from_value(map["data"].clone()).unwrap_or_default()
}

/// Returns the ConfigMap after a change; `Some(None)` if the ConfigMap does not exist, and `None` if nothing changed.
fn found(change: Change<Data>, known: &Cache<Data>) -> Option<Option<Value>> {
    match change {
        Change::Changed { live, .. } => Some(Some(live)),
        Change::Gone { .. } => Some(None),
        Change::Complete { .. } if known.iter().next().is_none() => Some(None),
        Change::Complete { .. } | Change::Failed(_) | Change::Unreadable { .. } | Change::Resumed => None,
    }
}

/// Returns the last valid settings that the ConfigMap stores.
fn last_valid(base: &Settings, map: &Value) -> Option<Settings> {
    let text = map["metadata"]["annotations"][LAST_VALID_SETTINGS].as_str()?;
    let data = serde_json::from_str::<Data>(text).ok()?;
    Settings::from_config_map(base.clone(), &data).ok().map(|(settings, _)| settings)
}

struct Followed {
    base: Settings,
    cluster: Cluster,
    kind: Arc<Kind>,
    namespace: String,
    notifier: Notifier,
    /// The last known data; `Some(None)` while the ConfigMap does not exist.
    seen: Option<Option<Data>>,
    /// Whether valid settings of the existing ConfigMap are in effect.
    is_valid: bool,
}

impl Followed {
    /// Returns the new settings; `None` if they are unchanged.
    async fn read(&mut self, map: Option<&Value>) -> Option<Settings> {
        let data = map.map(data_of);
        if self.seen.as_ref() == Some(&data) {
            return None;
        }
        let is_first = self.seen.replace(data.clone()).is_none();
        let (Some(map), Some(data)) = (map, data) else {
            self.is_valid = false;
            if !is_first {
                tracing::info!("without the ConfigMap {SETTINGS}, the agent's own settings apply");
            }
            return Some(self.base.clone());
        };
        match Settings::from_config_map(self.base.clone(), &data) {
            Ok((settings, without_effect)) => {
                self.is_valid = true;
                for ignored in &without_effect {
                    tracing::info!("{SETTINGS}: {} has no effect: {}", printable(&ignored.key), ignored.why);
                }
                let more = match without_effect.first() {
                    None => String::new(),
                    Some(first) => format!(
                        "; {} of them without effect, such as {}: {}",
                        without_effect.len(),
                        printable(&first.key),
                        first.why
                    ),
                };
                self.emit(
                    map,
                    EventType::Normal,
                    Reason::SettingsApplied,
                    format!("{} settings apply{more}", data.len()),
                );
                self.remember(map, &data).await;
                Some(settings)
            }
            Err(mistakes) => self.refuse(map, &mistakes),
        }
    }

    /// Reports invalid values. Returns the last valid settings if this agent does not know any, but an earlier agent
    /// stored them.
    fn refuse(&self, map: &Value, mistakes: &[InvalidVariable]) -> Option<Settings> {
        for mistake in mistakes {
            tracing::warn!("{SETTINGS}: {}", printable(&mistake.to_string()));
        }
        let shown = mistakes.iter().take(SHOWN).map(|mistake| printable(&mistake.to_string()).into_owned());
        let shown = shown.collect::<Vec<_>>().join("; ");
        let before = if self.is_valid { None } else { Some(last_valid(&self.base, map)) };
        let stays = match &before {
            None | Some(Some(_)) => "the last valid settings stay",
            Some(None) => "the agent's own settings apply",
        };
        let note = format!("{} mistakes, so {stays}: {shown}", mistakes.len());
        self.emit(map, EventType::Warning, Reason::SettingsInvalid, note);
        before.map(|before| before.unwrap_or_else(|| self.base.clone()))
    }

    /// Stores the valid data in the ConfigMap.
    async fn remember(&self, map: &Value, data: &Data) {
        let text = json!(data).to_string();
        if text.len() > REMEMBERED || map["metadata"]["annotations"][LAST_VALID_SETTINGS] == *text {
            return;
        }
        let patch = json!({"metadata": {"annotations": {LAST_VALID_SETTINGS: text}}});
        let written = self.cluster.patch_merge(&self.kind, Some(&self.namespace), SETTINGS, Part::Main, &patch).await;
        if let Err(error) = written {
            tracing::warn!(why = chain(&error), "{SETTINGS}: the valid settings could not be stored");
        }
    }

    fn emit(&self, map: &Value, kind: EventType, reason: Reason, note: String) {
        let uid = map["metadata"]["uid"].as_str().map(str::to_owned);
        self.notifier.publish(Event {
            regarding: Regarding {
                key: self.kind.key(Some(&self.namespace), SETTINGS),
                api_version: self.kind.api_version(),
                uid,
            },
            related: None,
            kind,
            priority: Priority::of(kind),
            about: None,
            reason: reason.into(),
            action: "ReadSettings".to_owned(),
            note,
            aggregation_key: String::new(),
        });
    }
}
