//! Tests with files encrypted by the official `sops`. The keys are only for these tests.

use base64::Engine as _;

use super::*;
use crate::render::Origins;
use crate::sops::{Keys, Sealed};
use mainstay_object::Object;

const IDENTITY: &str = "AGE-SECRET-KEY-1VJ8FSJRQU3QGLWZ6USVC7YYUK5F07QF7DAUZF5WWXRDGTLKK86KSM6DVM0";
const OTHER: &str = "AGE-SECRET-KEY-1KZ47MGYRQEKZRLAK3NR3CHZ8U5VN392VJ9RTFT36F2ECZ7L4480Q9V7Q3V";
const ENCRYPTED: &str = include_str!("../sops/fixtures/secret.yaml");
/// `hunter2` in base64.
const PASSWORD: &str = "aHVudGVyMg==";

fn keys(identity: &str) -> Arc<Keys> {
    Arc::new(Keys::of([("a.agekey", identity.as_bytes())].into_iter()).unwrap())
}

fn with(identity: &str) -> Limits {
    Limits { decryption: Decryption::Keys(keys(identity)), ..limits() }
}

fn sealed(text: &str) -> Vec<Arc<Sealed>> {
    verified(&Arc::from("web/db.yaml"), text.as_bytes(), &keys(IDENTITY), &limits()).unwrap()
}

/// Returns the data of objects and whether the objects are confidential, or the problems.
fn said(objects: &[Arc<Object>], problems: &[Problem]) -> String {
    if !problems.is_empty() {
        return problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    }
    let object = |object: &Arc<Object>| {
        let value = object.value();
        assert!(value.get("sops").is_none(), "{value}");
        format!("{} {}{}", object.key, value["data"], if object.is_from_secret() { " confidential" } else { "" })
    };
    objects.iter().map(object).collect::<Vec<_>>().join("; ")
}

/// Decrypts decoded files, and returns the result.
fn finally(decoded: Decoded, limits: &Limits) -> String {
    if !decoded.problems.is_empty() {
        return said(&[], &decoded.problems);
    }
    let found = decrypted(decoded.objects, &decoded.sealed, limits);
    said(&found.objects, &found.problems)
}

fn read(text: &str, limits: &Limits) -> String {
    finally(decode_bytes(&[("a.yaml", text.as_bytes())], &DecodeCache::default(), limits), limits)
}

/// Decrypts the output of a tool that read a verified file, and returns the result.
fn built(text: &str) -> String {
    let limits = with(IDENTITY);
    let decoded = decode_rendered(&Origins::of_file("web/kustomization.yaml"), text.as_bytes(), &limits);
    finally(Decoded { sealed: sealed(ENCRYPTED), ..decoded }, &limits)
}

#[test]
fn decrypted_objects_of_any_kind_are_confidential() {
    let files =
        [("a.yaml", ENCRYPTED.as_bytes()), ("b.yaml", b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n")];
    let decoded = decode_bytes(&files, &DecodeCache::default(), &with(IDENTITY));
    assert!(decoded.objects.iter().all(|object| !String::from_utf8_lossy(object.json()).contains("hunter2")));
    assert_eq!(
        finally(decoded, &with(IDENTITY)),
        format!(
            "Secret db {{\"password\":\"{PASSWORD}\"}} confidential; ConfigMap open {{\"key\":\"hunter2\"}} confidential; \
             ConfigMap b null"
        )
    );
    let without = read(ENCRYPTED, &limits());
    assert!(without.starts_with("a.yaml, document 1, line 1, column 1: it is encrypted with SOPS"), "{without}");
    assert!(without.contains("spec.decryption: {provider: sops, secretRef: {name: …}}"), "{without}");
    let other = read(ENCRYPTED, &with(OTHER));
    assert!(other.starts_with("a.yaml, document 1, line 7, column 1: no key decrypts it"), "{other}");
}

#[test]
fn a_file_verified_with_one_key_is_not_cached_for_another() {
    let (cache, files) = (DecodeCache::default(), [("a.yaml", ENCRYPTED.as_bytes())]);
    let mine = decode_bytes(&files, &cache, &with(IDENTITY));
    assert_eq!((mine.objects.len(), mine.sealed.len()), (2, 1));
    for foreign in [limits(), with(OTHER)] {
        let theirs = decode_bytes(&files, &cache, &foreign);
        assert!(theirs.sealed.is_empty() && said(&[], &theirs.problems).contains("a.yaml, document 1"));
    }
    let again = decode_bytes(&files, &cache, &with(IDENTITY));
    assert!(Arc::ptr_eq(&mine.objects[0], &again.objects[0]), "it is verified once");
    assert!(Arc::ptr_eq(&mine.sealed[0], &again.sealed[0]));
    // A value without metadata is a problem only if decryption is configured.
    let cut = ENCRYPTED.split("sops:").next().unwrap();
    let files = [("cut.yaml", cut.as_bytes())];
    let undecrypted = decode_bytes(&files, &cache, &limits());
    assert_eq!((undecrypted.objects.len(), undecrypted.problems.len()), (1, 0));
    let cut = said(&[], &decode_bytes(&files, &cache, &with(IDENTITY)).problems);
    assert!(
        cut.contains("line 6, column 5: stringData.password: it was encrypted by SOPS") && cut.contains("cut short")
    );
}

#[test]
fn only_output_made_from_a_verified_file_is_decrypted() {
    let rendered = ENCRYPTED.replace("name: db", "name: prod-db").replace("stringData:", "stringData:\n    more: open");
    let own = "Secret prod-db {\"more\":\"b3Blbg==\",\"password\":\"aHVudGVyMg==\"} confidential";
    assert!(built(&rendered).contains(own), "{}", built(&rendered));
    let moved = built(&ENCRYPTED.replace("password:", "username:"));
    assert!(moved.contains("Secret db: stringData.username cannot be decrypted"), "{moved}");
    let foreign = built(&ENCRYPTED.replace("mac: ENC[AES256_GCM,data:", "mac: ENC[AES256_GCM,data:AAAA"));
    assert!(foreign.contains("match none of the encrypted files"), "{foreign}");
    let kind = built(&ENCRYPTED.replace("kind: Secret", "kind: Deployment").replace("v1", "apps/v1"));
    assert!(kind.contains("Deployment.apps db: its kind differs from the kind in the encrypted file"), "{kind}");
    let without = built(ENCRYPTED.split("sops:").next().unwrap());
    assert!(without.contains("stringData.password: it was encrypted by SOPS, and the metadata"), "{without}");
    let outside =
        built(&ENCRYPTED.replace("    name: db", "    name: db\n    labels: {a: \"ENC[AES256_GCM,data:x]\"}"));
    assert!(
        outside.contains("metadata.labels.a is encrypted, but the rules of its file do not encrypt it"),
        "{outside}"
    );
    let whole = base64::engine::general_purpose::STANDARD.encode(ENCRYPTED);
    let generated = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: g}}\ndata: {{a.yaml: {whole}}}\n");
    let refused = built(&generated);
    assert!(refused.contains("data[\"a.yaml\"] is a file that SOPS encrypted"), "{refused}");
    let env = "apiVersion: v1\nkind: Secret\nmetadata: {name: g}\ndata: {A: YQ==, sops_mac: YQ==}\n";
    assert!(built(env).contains("data.sops_mac is a file that SOPS encrypted"), "{}", built(env));
    // Decryption can be disabled.
    let disabled = "{name: g, annotations: {kustomize.toolkit.fluxcd.io/decrypt: Disabled}}";
    assert_eq!(built(&generated.replace("{name: g}", disabled)), format!("Secret g {{\"a.yaml\":\"{whole}\"}}"));
    let disabled = ENCRYPTED.replace("metadata:\n    name: db", &format!("metadata: {disabled}"));
    assert!(built(&disabled).contains("says not to decrypt it"), "{}", built(&disabled));
    // Decryption can also be disabled after decoding.
    let mut late = decode_rendered(&Origins::of_file("web/kustomization.yaml"), ENCRYPTED.as_bytes(), &with(IDENTITY));
    let mut value = late.objects[0].value();
    value["metadata"]["annotations"] = serde_json::json!({"kustomize.toolkit.fluxcd.io/decrypt": "disabled"});
    late.objects[0] = Arc::new(Object::from_value(&value, late.objects[0].place.clone()).unwrap());
    assert!(finally(late, &with(IDENTITY)).contains("Secret db: it is encrypted with SOPS, and kustomize.toolkit"));
    // The MAC of the file itself is verified before the build.
    let tampered = ENCRYPTED.replace("name: db", "name: admin");
    let tampered = verified(&Arc::from("web/db.yaml"), tampered.as_bytes(), &keys(IDENTITY), &limits()).unwrap_err();
    let tampered = tampered[0].to_string();
    assert!(
        tampered.starts_with("web/db.yaml, document 1, line 7") && tampered.contains("the MAC does not match"),
        "{tampered}"
    );
}

#[test]
fn the_identity_of_an_object_may_not_be_encrypted() {
    let value = "ENC[AES256_GCM,data:a,iv:a,tag:a,type:str]";
    for (field, changed) in [
        ("kind", ENCRYPTED.replace("kind: Secret", &format!("kind: {value}"))),
        ("apiVersion", ENCRYPTED.replace("apiVersion: v1", &format!("apiVersion: {value}"))),
        ("metadata.name", ENCRYPTED.replace("name: db", &format!("name: {value}"))),
        ("metadata.namespace", ENCRYPTED.replace("name: db", &format!("name: db\n    namespace: {value}"))),
    ] {
        let refused = read(&changed, &with(IDENTITY));
        assert!(refused.contains(&format!("{field} is encrypted, but the identity")), "{refused}");
        assert!(refused.contains("--encrypted-regex '^(data|stringData)$'"), "{refused}");
    }
    let list = format!("apiVersion: v1\nkind: List\nitems: []\nsops: {{mac: \"{value}\"}}\n");
    assert!(read(&list, &with(IDENTITY)).contains("a list that was encrypted as a whole"));
    let none = format!("values: 1\nsops: {{mac: \"{value}\"}}\n");
    assert!(read(&none, &with(IDENTITY)).contains("it is not a manifest: it has neither apiVersion nor kind"));
}

#[test]
fn encrypted_files_in_a_chart_are_not_decrypted_and_a_problem_with_decryption() {
    let said = |text: &str, limits: &Limits| {
        let limits = Limits { decryption: limits.decryption.in_chart(), ..limits.clone() };
        finally(decode_manifests("Chart.yaml", text.as_bytes(), &limits), &limits)
    };
    let whole = said(ENCRYPTED, &with(IDENTITY));
    assert!(whole.contains("it is encrypted with SOPS, which is not decrypted in charts"), "{whole}");
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: \"ENC[AES256_GCM,data:x]\"}\n";
    assert!(said(map, &with(IDENTITY)).contains("data.k is encrypted with SOPS, which is not decrypted in charts"));
    assert!(said(map, &limits()).starts_with("ConfigMap a"), "as before for everybody else");
    let for_an_operator = ENCRYPTED.replace("v1", "isindir.github.com/v1").replace("kind: Secret", "kind: SopsSecret");
    assert_eq!(decode_manifests("Chart.yaml", for_an_operator.as_bytes(), &limits()).problems.len(), 0);
    let refused = said(&for_an_operator, &with(IDENTITY));
    assert!(refused.contains("it is encrypted with SOPS, which is not decrypted in charts"), "{refused}");
}
