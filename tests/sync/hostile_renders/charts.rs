//! Charts that read the cluster, the machine or foreign files, and hostile packed charts.

use std::net::TcpListener;

use flate2::{Compression, write::GzEncoder};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookup_and_chance() {
    let mut attacked = Attacked::new().await;
    attacked.world.set_secret("hidden", json!({"password": SECRET}));
    // Functions that query the cluster, the resolver or files outside of the chart return nothing.
    let nothing = "\"{{ (lookup \"v1\" \"Secret\" \"mainstay-tests\" \"hidden\").data }}{{ len (lookup \"v1\" \"Secret\" \"\" \"\") }}\
        {{ getHostByName \"localhost\" }}{{ .Files.Get \"../other/other.yaml\" }}{{ .Files.Get \"/etc/passwd\" }}\
        {{ range $path, $_ := .Files.Glob \"**/../../**\" }}{{ $path }}{{ end }}\"";
    attacked.stage(&[CHART, ("app/templates/a.yaml", &template(nothing))]);
    attacked.world.remote.remove("app/kept.yaml");
    attacked.stage(&[("app/templates/kept.yaml", config_map("kept", "1").as_bytes())]);
    attacked.applies("looks around").await;
    assert_eq!(attacked.world.data("made"), "0");
    attacked.clear();
    attacked.applies("without").await;
    attacked.world.until("it is gone", |w| w.config_maps() == ["kept", "other"]).await;
    for function in [
        "env \"HOME\"",
        "expandenv \"$HOME\"",
        "exec \"id\"",
        "readFile \"/etc/passwd\"",
        "fromURL \"http://127.0.0.1\"",
    ] {
        let text = template(&format!("{{{{ {function} }}}}"));
        attacked
            .refuses(&[CHART, ("app/templates/a.yaml", &text)], &["app/templates/a.yaml, line 6: Helm has no function"])
            .await;
    }
    for function in [
        "randAlphaNum 8",
        "uuidv4",
        "now | unixEpoch",
        "shuffle \"abcdefghijklmnopqrstuvwxyz\"",
        "tpl (printf \"{{ %s 8 }}\" \"randAlphaNum\") .",
        "genPrivateKey \"ecdsa\" | b64enc",
        "genCA \"hush-hush\" 1 | toJson | b64enc",
    ] {
        let text = template(&format!("\"{{{{ {function} }}}}\""));
        let expected = "app/templates/a.yaml: each rendering of the chart gives different values: ConfigMap made";
        attacked.refuses(&[CHART, ("app/templates/a.yaml", &text)], &[expected]).await;
    }
}

/// Returns a packed chart with these files.
fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        // Written directly, as a hostile archive would.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// A file of a packed chart in `charts/`.
const DATABASE: (&str, &[u8]) = ("db/Chart.yaml", b"apiVersion: v2\nname: db\nversion: 0.1.0\n");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_charts() {
    let mut attacked = Attacked::new().await;
    let text = template("one");
    let chart: [(&str, &[u8]); 2] = [CHART, ("app/templates/a.yaml", &text)];
    // Archives that unpack to gigabytes.
    let bomb = super::bombs::gigabytes(3, b"\x1f\x8b\x08\0\0\0\0\0\0\xff", b"");
    assert!(bomb.len() < 4 << 20);
    let many: Vec<u8> = packed(&[DATABASE, ("db/files/zeros", &vec![0; 9 << 20])]);
    for archives in [&[("app/charts/db.tgz", &bomb)][..], &[("app/charts/db/charts/a.tgz", &bomb)]] {
        let named: Vec<(&str, &[u8])> = archives.iter().map(|(path, content)| (*path, content.as_slice())).collect();
        let expected = format!("{}: the packed charts are larger than 64 MiB together", archives[0].0);
        attacked.refuses(&[&chart[..], &named].concat(), &[&expected]).await;
    }
    let names: Vec<String> = (0..8).map(|number| format!("app/charts/db{number}.tgz")).collect();
    let together: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), many.as_slice())).collect();
    attacked
        .refuses(
            &[&chart[..], &together].concat(),
            &["app/charts/db7.tgz: the packed charts are larger than 64 MiB together"],
        )
        .await;
    // Archives that would be unpacked outside of the chart.
    for path in ["../../../etc/evil", "db/../../evil", "db\\..\\..\\evil", "db/templates/../../../evil"] {
        let archive = packed(&[DATABASE, (path, b"hush-hush")]);
        let said =
            attacked.refuses(&[&chart[..], &[("app/charts/db.tgz", &archive)]].concat(), &["app/Chart.yaml: "]).await;
        assert!(said.contains("helm refuses it"), "{path}: {said}");
    }
    let mut cut = packed(&[DATABASE, ("db/templates/a.yaml", &template("two"))]);
    cut.truncate(cut.len() - 20);
    for unreadable in [&cut[..], b"hush-hush"] {
        attacked
            .refuses(
                &[&chart[..], &[("app/charts/db.tgz", unreadable)]].concat(),
                &["app/charts/db.tgz: the packed chart cannot be read"],
            )
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas() {
    let mut attacked = Attacked::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let own = format!("http://{}/hush-hush", listener.local_addr().unwrap());
    let schema = format!("{{\"properties\": {{\"a\": {{\"$ref\": \"{own}\"}}}}}}");
    let text = template("one");
    let chart: [(&str, &[u8]); 3] = [CHART, ("app/templates/a.yaml", &text), ("app/values.yaml", b"a: 1\n")];
    let refers = "app/values.schema.json: the schema refers to another schema, which is not fetched";
    let unreadable = "app/values.schema.json: the schema is not JSON, or is nested too deeply";
    for (schema, expected) in [
        (schema.clone(), refers),
        (format!("{{\"$ref\": \"file:///etc/passwd\", \"x\": \"{own}\"}}"), refers),
        (format!("{{\"$schema\": \"{own}\"}}"), refers),
        (format!("{schema} trailing"), unreadable),
        (format!("{}{schema}{}", "[".repeat(150), "]".repeat(150)), unreadable),
        (schema.replace("\"a\"", "\"\\ud800\""), unreadable),
    ] {
        attacked.refuses(&[&chart[..], &[("app/values.schema.json", schema.as_bytes())]].concat(), &[expected]).await;
    }
    let archive = packed(&[DATABASE, ("db/values.schema.json", schema.as_bytes())]);
    let outer = packed(&[DATABASE, ("db\\charts\\db.tgz", &archive)]);
    for (path, archive) in [("app/charts/db.tgz", &archive), ("app/charts/out.tgz", &outer)] {
        let expected = format!("{path}: a schema in the packed chart is not JSON, or refers to another schema");
        attacked.refuses(&[&chart[..], &[(path, archive)]].concat(), &[&expected]).await;
    }
    let unpacked = [
        &chart[..],
        &[("app/charts/db/Chart.yaml", DATABASE.1), ("app/charts/db/values.schema.json", schema.as_bytes())],
    ]
    .concat();
    attacked.refuses(&unpacked, &["app/charts/db/values.schema.json: the schema refers to another schema"]).await;
    assert!(listener.accept().is_err(), "somebody asked");
}
