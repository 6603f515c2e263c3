//! ServiceAccounts: their tokens, and the users that the tokens authenticate.

use base64::Engine as _;
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{World, claim};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Creates a ServiceAccount and returns a token of it.
pub(crate) async fn token(w: &World, name: &str) -> String {
    let accounts = w.path("v1", "serviceaccounts");
    w.post(&accounts, json!({"metadata": {"name": name}})).await.code(201);
    let request = w.post(&format!("{accounts}/{name}/token"), json!({})).await.code(201).body;
    request["status"]["token"].as_str().expect("a TokenRequest is answered with a token").to_owned()
}

#[test]
fn the_token_subresource_is_in_discovery() {
    claim(async |w| {
        let list = w.get("/api/v1").await.ok();
        let resources = list["resources"].as_array().unwrap();
        let token = resources.iter().find(|r| r["name"] == "serviceaccounts/token").expect("it is listed");
        assert_eq!((&token["group"], &token["version"]), (&json!("authentication.k8s.io"), &json!("v1")));
        assert_eq!((&token["kind"], &token["verbs"]), (&json!("TokenRequest"), &json!(["create"])));
        assert_eq!(token["namespaced"], true);
    });
}

#[test]
fn a_token_request_is_answered_with_a_token() {
    claim(async |w| {
        let accounts = w.path("v1", "serviceaccounts");
        let account = w.post(&accounts, json!({"metadata": {"name": "a"}})).await.code(201).body;
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["here", "there"], "expirationSeconds": 1200},
        });
        let answer = w.post(&format!("{accounts}/a/token"), body).await.code(201).body;
        assert_eq!(
            (&answer["kind"], &answer["apiVersion"]),
            (&json!("TokenRequest"), &json!("authentication.k8s.io/v1"))
        );
        assert_eq!(answer["spec"]["audiences"], json!(["here", "there"]));
        assert_eq!(answer["spec"]["expirationSeconds"], 1200);
        assert_eq!(answer["metadata"]["name"], "a");
        assert_eq!(answer["metadata"]["uid"], account["metadata"]["uid"]);
        assert!(answer["status"]["expirationTimestamp"].is_string());
        let token = answer["status"]["token"].as_str().unwrap();
        assert_eq!(token.split('.').count(), 3, "{token}");
    });
}

#[test]
fn a_bearer_is_his_service_account() {
    claim(async |w| {
        let token = token(w, "a").await;
        let me = w.bear(&token, Method::POST, SELF, json!({})).await.code(201).body;
        let user = &me["status"]["userInfo"];
        assert_eq!(user["username"], format!("system:serviceaccount:{}:a", w.ns));
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", w.ns),
            "system:authenticated".to_owned(),
        ];
        assert_eq!(user["groups"], json!(groups));
        let account = w.get(&format!("{}/a", w.path("v1", "serviceaccounts"))).await.ok();
        assert_eq!(user["uid"], account["metadata"]["uid"]);
        let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap_or_default();
        assert!(id.starts_with("JTI="), "{me}");
    });
}

#[test]
fn a_token_is_for_its_audiences_only() {
    claim(async |w| {
        let accounts = w.path("v1", "serviceaccounts");
        w.post(&accounts, json!({"metadata": {"name": "a"}})).await.code(201);
        let request = json!({"spec": {"audiences": ["elsewhere"]}});
        let answer = w.post(&format!("{accounts}/a/token"), request).await.code(201).body;
        let token = answer["status"]["token"].as_str().unwrap();
        w.bear(token, Method::GET, &w.maps(""), Value::Null).await.refused(401, "Unauthorized", "Unauthorized");
        let review = w.post(REVIEWS, json!({"spec": {"token": token}})).await.code(201).body;
        assert_ne!(review["status"]["authenticated"], true, "{review}");
        let spec = json!({"token": token, "audiences": ["elsewhere", "nowhere"]});
        let review = w.post(REVIEWS, json!({"spec": spec})).await.code(201).body;
        assert_eq!(review["status"]["authenticated"], true, "{review}");
        assert_eq!(review["status"]["audiences"], json!(["elsewhere"]));
        assert_eq!(review["status"]["user"]["username"], format!("system:serviceaccount:{}:a", w.ns));
    });
}

#[test]
fn a_token_ends_with_its_account() {
    claim(async |w| {
        let token = token(w, "a").await;
        w.bear(&token, Method::POST, SELF, json!({})).await.code(201);
        w.delete(&format!("{}/a", w.path("v1", "serviceaccounts")), json!({})).await.code(200);
        // A real server caches successful authentications for some seconds.
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        while w.bear(&token, Method::POST, SELF, json!({})).await.code != 401 {
            assert!(tokio::time::Instant::now() < deadline, "the token of a deleted account is refused");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let review = w.post(REVIEWS, json!({"spec": {"token": token}})).await.code(201).body;
        assert_ne!(review["status"]["authenticated"], true, "{review}");
        assert!(review["status"]["error"].is_string(), "{review}");
    });
}

#[test]
fn a_token_can_be_bound_to_a_secret() {
    claim(async |w| {
        let accounts = w.path("v1", "serviceaccounts");
        w.post(&accounts, json!({"metadata": {"name": "a"}})).await.code(201);
        let bound = |name: &str| {
            let object = json!({"apiVersion": "v1", "kind": "Secret", "name": name});
            json!({"spec": {"boundObjectRef": object}})
        };
        let path = format!("{accounts}/a/token");
        w.post(&path, bound("s")).await.refused(404, "NotFound", "secrets \"s\" not found");
        w.post(&w.path("v1", "secrets"), json!({"metadata": {"name": "s"}})).await.code(201);
        let answer = w.post(&path, bound("s")).await.code(201).body;
        let token = answer["status"]["token"].as_str().unwrap();
        let review = w.post(REVIEWS, json!({"spec": {"token": token}})).await.code(201).body;
        assert_eq!(review["status"]["authenticated"], true, "{review}");
    });
}

#[test]
fn a_token_request_can_be_refused() {
    claim(async |w| {
        let accounts = w.path("v1", "serviceaccounts");
        w.post(&format!("{accounts}/none/token"), json!({})).await.refused(
            404,
            "NotFound",
            "serviceaccounts \"none\" not found",
        );
        w.post(&accounts, json!({"metadata": {"name": "a"}})).await.code(201);
        let path = format!("{accounts}/a/token");
        let message = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes";
        w.post(&path, json!({"spec": {"expirationSeconds": 60}})).await.refused(422, "Invalid", message);
        w.post(&path, json!({"metadata": {"name": "b"}})).await.invalid("FieldValueInvalid", "metadata.name");
        w.get(&path).await.code(405);
    });
}

#[test]
fn a_forged_token_is_refused() {
    claim(async |w| {
        let token = token(w, "a").await;
        let mut parts: Vec<&str> = token.split('.').collect();
        let other = self::token(w, "b").await;
        parts[1] = other.split('.').nth(1).unwrap();
        let forged = parts.join(".");
        w.bear(&forged, Method::GET, &w.maps(""), Value::Null).await.refused(401, "Unauthorized", "Unauthorized");
    });
}

#[test]
fn the_key_of_tokens_is_public() {
    claim(async |w| {
        let issuer = w.get("/.well-known/openid-configuration").await.ok();
        assert_eq!(issuer["response_types_supported"], json!(["id_token"]));
        assert_eq!(issuer["subject_types_supported"], json!(["public"]));
        assert!(issuer["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"), "{issuer}");
        let answer = w.get("/openid/v1/jwks").await.code(200);
        assert_eq!(answer.headers["content-type"], "application/jwk-set+json");
        let token = token(w, "a").await;
        let decoded = |place: usize| {
            let part = token.split('.').nth(place).unwrap();
            base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap()
        };
        let (head, claims): (Value, Value) =
            (serde_json::from_slice(&decoded(0)).unwrap(), serde_json::from_slice(&decoded(1)).unwrap());
        assert_eq!(claims["iss"], issuer["issuer"]);
        let keys = answer.body["keys"].as_array().unwrap();
        let key = keys.iter().find(|key| key["kid"] == head["kid"]).expect("the key of the token is among them");
        assert_eq!((&key["use"], &key["alg"]), (&json!("sig"), &head["alg"]));
        if key["kty"] == "EC" {
            let coordinate = |field: &str| {
                base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(key[field].as_str().unwrap()).unwrap()
            };
            let point = [vec![4], coordinate("x"), coordinate("y")].concat();
            let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point);
            let signed = token.rsplit_once('.').unwrap().0;
            key.verify(signed.as_bytes(), &decoded(2)).expect("the key verifies the token");
        }
    });
}

#[test]
fn accounts_may_see_the_key_of_tokens_and_others_may_not() {
    claim(async |w| {
        let token = token(w, "a").await;
        w.bear(&token, Method::GET, "/openid/v1/jwks", Value::Null).await.code(200);
        let message = "forbidden: User \"jane\" cannot get path \"/openid/v1/jwks\"";
        let jane = [("Impersonate-User", "jane")];
        w.send(Method::GET, "/openid/v1/jwks", &jane, "").await.refused(403, "Forbidden", message);
    });
}

#[test]
fn a_token_can_be_bound_to_a_pod() {
    claim(async |w| {
        let accounts = w.path("v1", "serviceaccounts");
        w.post(&accounts, json!({"metadata": {"name": "a"}})).await.code(201);
        let spec = json!({"serviceAccountName": "a", "containers": [{"name": "c", "image": "busybox:1"}]});
        let pod = w.post(&w.path("v1", "pods"), json!({"metadata": {"name": "p"}, "spec": spec})).await.code(201).body;
        w.until(&w.path("v1", "pods/p"), "the pod is placed", |a| a.body["spec"]["nodeName"].is_string()).await;
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]});
        let request = json!({"spec": {"boundObjectRef": bound}});
        let answer = w.post(&format!("{accounts}/a/token"), request).await.code(201).body;
        let token = answer["status"]["token"].as_str().unwrap();
        let me = w.bear(token, Method::POST, SELF, json!({})).await.code(201).body;
        let extra = &me["status"]["userInfo"]["extra"];
        assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
        assert_eq!(extra["authentication.kubernetes.io/pod-uid"], json!([pod["metadata"]["uid"]]));
        assert!(extra["authentication.kubernetes.io/node-name"][0].is_string(), "{me}");
        let other = format!("{accounts}/default/token");
        w.until(&format!("{accounts}/default"), "the account is there", |a| a.code == 200).await;
        let message =
            "cannot bind token for serviceaccount \"default\" to pod running with different serviceaccount name.";
        let request = json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}}});
        w.post(&other, request).await.refused(400, "BadRequest", message);
    });
}

#[test]
fn a_pod_whose_account_does_not_exist_is_forbidden() {
    claim(async |w| {
        let pod = |name: &str| json!({"metadata": {name: "p"}, "spec": {"serviceAccountName": "none", "containers": [{"name": "c", "image": "i"}]}});
        let why = format!("error looking up service account {}/none: serviceaccount \"none\" not found", w.ns);
        for field in ["name", "generateName"] {
            let answer = w.post(&w.path("v1", "pods"), pod(field)).await;
            assert_eq!(answer.body["details"], json!({"name": "p", "kind": "pods"}));
            answer.refused(403, "Forbidden", &format!("pods \"p\" is forbidden: {why}"));
        }
    });
}
