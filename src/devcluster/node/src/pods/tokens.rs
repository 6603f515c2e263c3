//! Service account tokens in a pod's volumes.
//!
//! Invariant: a token is renewed when most of its lifetime is over, not earlier.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};

use devcluster_apiserver::call::{Action, Call, Caller};
use devcluster_apiserver::object::text;
use devcluster_apiserver::server::Server;

/// Default lifetime of a token in seconds.
const USUAL: i64 = 3600;

/// The tokens of a pod.
pub(super) struct Tokens {
    server: Server,
    namespace: String,
    account: String,
    pod: Value,
    /// Token and renewal time, by audience and lifetime.
    known: Mutex<HashMap<(String, i64), (String, Timestamp)>>,
}

impl Tokens {
    pub(super) fn new(server: &Server, pod: &Value) -> Self {
        let metadata = &pod["metadata"];
        Self {
            server: server.clone(),
            namespace: text(pod, "/metadata/namespace").to_owned(),
            account: text(pod, "/spec/serviceAccountName").to_owned(),
            pod: json!({"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}),
            known: Mutex::default(),
        }
    }

    /// Returns the token of a projected source. `Err` is the reason why there is none.
    pub(super) fn token(&self, source: &Value) -> Result<String, String> {
        let key = (text(source, "/audience").to_owned(), source["expirationSeconds"].as_i64().unwrap_or(USUAL));
        let now = self.server.now();
        if let Some((token, _)) = self.known.lock().get(&key).filter(|(_, renewal)| now < *renewal) {
            return Ok(token.clone());
        }
        let mut request = json!({"spec": {"expirationSeconds": key.1, "boundObjectRef": self.pod}});
        if !key.0.is_empty() {
            request["spec"]["audiences"] = json!([key.0]);
        }
        let call = Call::new("v1", "serviceaccounts", &self.namespace, &self.account, Action::Create(request));
        let answer = self.server.call(&Caller::new("kubelet"), call.on("token"));
        let answer = answer.map_err(|refusal| format!("failed to fetch token: {}", refusal.message))?;
        let token = text(&answer, "/status/token").to_owned();
        let renewal = now.saturating_add(SignedDuration::from_secs(key.1 / 5 * 4)).unwrap_or(now);
        self.known.lock().insert(key, (token.clone(), renewal));
        Ok(token)
    }
}
