//! Watches the ConfigMap with the operator's settings for Functions.
//!
//! Invariant: Functions are not reconciled before it is known what it says: settings that are missing for a moment would roll
//! every Function out twice.
//! Invariant: a mistake changes nothing: what was valid last stays, also over a restart, because the ConfigMap remembers it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::notify::Notifier;
use mainstay_api::names::{LAST_VALID_SETTINGS, SETTINGS};
use mainstay_cluster::reflector::{Cache, Change, Reflector};
use mainstay_cluster::{Cluster, Event, EventType, Kind, Part, Priority, Regarding, Scope, Selection};
use mainstay_function::{Context, InvalidVariable, Settings};
use mainstay_object::failure::chain;
use mainstay_object::printable;

/// Longest text that is remembered of a ConfigMap, in bytes: an object has room for 256 KiB of annotations.
const REMEMBERED: usize = 64 << 10;
/// Mistakes that an Event names.
const SHOWN: usize = 5;

/// What a ConfigMap sets.
type Data = BTreeMap<String, String>;

/// Watches the ConfigMap in this namespace until `stop`: what it says holds over the settings that the agent has. `excluded` is
/// the part of the settings that others need, once they are known.
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

/// Watches the ConfigMap until `stop` for the webhooks, which every replica answers: `set` gets the settings that the leader has.
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
        // The leader reports a ConfigMap that cannot be read.
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

/// The ConfigMap after a change, `None` inside if there is none; `None` as long as nothing new is known.
fn found(change: Change<Data>, known: &Cache<Data>) -> Option<Option<Value>> {
    match change {
        Change::Changed { live, .. } => Some(Some(live)),
        Change::Gone { .. } => Some(None),
        Change::Complete { .. } if known.iter().next().is_none() => Some(None),
        Change::Complete { .. } | Change::Failed(_) | Change::Unreadable { .. } | Change::Resumed => None,
    }
}

/// What the ConfigMap remembers of when it was valid.
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
    /// What was read last; `None` inside while there is no ConfigMap.
    seen: Option<Option<Data>>,
    /// Valid settings have been set from a ConfigMap that is still there.
    is_valid: bool,
}

impl Followed {
    /// The settings that hold from now on; `None` if they are those that held before.
    async fn read(&mut self, map: Option<&Value>) -> Option<Settings> {
        let data = map.map(data_of);
        if self.seen.as_ref() == Some(&data) {
            return None;
        }
        let is_first = self.seen.replace(data.clone()).is_none();
        let (Some(map), Some(data)) = (map, data) else {
            self.is_valid = false;
            if !is_first {
                tracing::info!("without the ConfigMap {SETTINGS}, the agent's own settings hold");
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
                self.emit(map, EventType::Normal, "SettingsApplied", format!("{} settings hold{more}", data.len()));
                self.remember(map, &data).await;
                Some(settings)
            }
            Err(mistakes) => self.refuse(map, &mistakes),
        }
    }

    /// Tells of mistakes. What was valid last, if an earlier agent knew it.
    fn refuse(&self, map: &Value, mistakes: &[InvalidVariable]) -> Option<Settings> {
        for mistake in mistakes {
            tracing::warn!("{SETTINGS}: {}", printable(&mistake.to_string()));
        }
        let shown = mistakes.iter().take(SHOWN).map(|mistake| printable(&mistake.to_string()).into_owned());
        let shown = shown.collect::<Vec<_>>().join("; ");
        let before = if self.is_valid { None } else { Some(last_valid(&self.base, map)) };
        let stays = match &before {
            None | Some(Some(_)) => "what was valid last holds",
            Some(None) => "the agent's own settings hold",
        };
        let note = format!("{} mistakes, so {stays}: {shown}", mistakes.len());
        self.emit(map, EventType::Warning, "SettingsInvalid", note);
        before.map(|before| before.unwrap_or_else(|| self.base.clone()))
    }

    /// Has the ConfigMap remember what is valid.
    async fn remember(&self, map: &Value, data: &Data) {
        let text = json!(data).to_string();
        if text.len() > REMEMBERED || map["metadata"]["annotations"][LAST_VALID_SETTINGS] == *text {
            return;
        }
        let patch = json!({"metadata": {"annotations": {LAST_VALID_SETTINGS: text}}});
        let written = self.cluster.patch_merge(&self.kind, Some(&self.namespace), SETTINGS, Part::Main, &patch).await;
        if let Err(error) = written {
            tracing::warn!(why = chain(&error), "{SETTINGS}: what is valid is not remembered");
        }
    }

    fn emit(&self, map: &Value, kind: EventType, reason: &str, note: String) {
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
            reason: reason.to_owned(),
            action: "ReadSettings".to_owned(),
            note,
            aggregation_key: String::new(),
        });
    }
}
