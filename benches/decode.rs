//! Benchmark of decoding manifests: time and memory of N ConfigMaps of 1 KiB, 100 per file.
//!
//! `cargo bench --bench decode [-- N]`
#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::time::Instant;

use mainstay_git::{Entry, EntryKind};
use mainstay_manifest::{DecodeCache, Limits, decode};
use mainstay_object::Digest;

fn file(number: usize, objects: usize) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for object in 0..objects {
        let name = number * 100 + object;
        writeln!(
            text,
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config-{name}\n  namespace: load\n  labels:\n    app: load\ndata:\n  payload: {}",
            format!("{name:08}").repeat(128)
        )
        .expect("writing to a string does not fail");
    }
    text
}

/// Returns the resident memory of this process in KiB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

#[expect(clippy::print_stdout, reason = "a bench prints its numbers")]
fn main() {
    let count: usize = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(10_000);
    let files: Vec<String> =
        (0..count.div_ceil(100)).map(|number| file(number, 100.min(count - number * 100))).collect();
    let listing: Vec<Entry> = files
        .iter()
        .enumerate()
        .map(|(number, text)| Entry {
            path: format!("load/{number:05}.yaml"),
            id: format!("{}00000000", Digest::of(text.as_bytes())).parse().expect("40 hexadecimal digits"),
            size: text.len() as u64,
            kind: EntryKind::File,
            executable: false,
            flaw: None,
        })
        .collect();
    let bytes: usize = files.iter().map(String::len).sum();
    let start = Instant::now();
    let limits = Limits::new(move || start.elapsed());
    let memory = DecodeCache::default();
    let mut read = |entry: &Entry| {
        let at = listing.binary_search_by(|other| other.path.cmp(&entry.path)).expect("the entry is of the listing");
        Ok(files[at].clone().into_bytes())
    };

    let before = resident();
    let begun = Instant::now();
    let decoded = decode(&listing, "", &mut read, &memory, &limits).expect("reading from memory does not fail");
    let first = begun.elapsed();
    let held = resident().saturating_sub(before);
    let begun = Instant::now();
    let again = decode(&listing, "", &mut read, &memory, &limits).expect("reading from memory does not fail");
    let second = begun.elapsed();

    let json: usize = decoded.objects.iter().map(|object| object.json().len()).sum();
    println!("objects               {}", decoded.objects.len());
    println!("problems              {}", decoded.problems.len() + again.problems.len());
    println!("text                  {:.1} MB", bytes as f64 / 1e6);
    println!("decoded               {first:?}, {:.1} MB/s", bytes as f64 / 1e6 / first.as_secs_f64());
    println!("decoded from memory   {second:?}");
    println!("JSON kept             {:.1} MB", json as f64 / 1e6);
    println!("resident              {:.1} MB more", held as f64 * 1024.0 / 1e6);
}
