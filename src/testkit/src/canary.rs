//! Checks that secrets are not shown anywhere.

use std::path::Path;

use super::{listener::metrics, logs, world::World};

const SERVERLESS: &str = "serverless.kyma-project.io/v1alpha1";

/// Checks that none of these words appears in objects, messages, requests, metrics, or (after [`logs::keep`]) logs and
/// panics of the agent. A world with secrets needs `listen`, or its metrics are not checked.
#[expect(clippy::print_stderr, reason = "what a panic says is looked through by other canaries")]
pub async fn nothing_is_shown(world: &mut World, words: &[&str]) {
    // Waits for Events, because the agent writes them last.
    world.until("there are Events to look through", |w| !w.server.objects("v1", "events", None).is_empty()).await;
    let mut shown: Vec<String> = world.requests().into_iter().map(|(asked, _)| asked).collect();
    let kinds = [
        ("mainstay.dev/v1alpha1", "gitsyncs"),
        ("mainstay.dev/v1alpha1", "receivers"),
        ("mainstay.dev/v1alpha1", "providers"),
        ("mainstay.dev/v1alpha1", "alerts"),
        (SERVERLESS, "gitrepositories"),
        (SERVERLESS, "functions"),
        ("v1", "events"),
        ("v1", "configmaps"),
        ("batch/v1", "jobs"),
        ("apps/v1", "deployments"),
    ];
    for (api_version, resource) in kinds {
        shown.extend(world.server.objects(api_version, resource, None).iter().map(ToString::to_string));
    }
    let mut messages = 0;
    while let Ok(message) = world.messages.try_recv() {
        shown.push(format!("{message} {message:?}"));
        messages += 1;
    }
    assert!(messages > 0, "there are messages to look through");
    if world.listen.is_some() {
        shown.push(metrics(world).await);
    }
    shown.extend(logs::text().lines().map(str::to_owned));
    for text in shown {
        for word in words {
            if text.contains(word) {
                eprintln!("{word}: {text}");
                panic!("a secret is shown");
            }
        }
    }
}

/// Checks that none of these words is in a file below a directory. Returns the number of directories.
pub fn nothing_is_on_disk(directory: &Path, words: &[&str]) -> usize {
    let mut open = vec![directory.to_owned()];
    let mut directories = 0;
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                directories += 1;
                continue;
            }
            let Ok(content) = std::fs::read(&path) else { continue };
            for word in words {
                use base64::Engine as _;
                // The word is searched as plain text, and base64-encoded as in a Secret.
                let encoded = base64::engine::general_purpose::STANDARD.encode(word);
                for word in [*word, &encoded] {
                    let is_there = content.windows(word.len()).any(|part| part == word.as_bytes());
                    assert!(!is_there, "{word} is in {}", path.display());
                }
            }
        }
    }
    directories
}
