//! Formats a report as a pull request comment, for hosts with GitHub's Markdown.
//!
//! Invariant: the comment has at most [`LONGEST`] characters, and says which parts are cut. Invariant: no string from a
//! repository or a cluster acts as markup. In prose, special characters become entities. The fence around lines is
//! longer than any run of backticks in these lines.

use super::report::{Report, Shown};
use mainstay_object::printable;

/// Maximum length of a comment, in characters. Hosts accept 65 536.
const LONGEST: usize = 60_000;
/// Maximum length of one object's lines, in characters.
const LONGEST_OBJECT: usize = 20_000;
/// Maximum length of a note, in characters.
const LONGEST_NOTE: usize = 2_000;
/// Maximum number of notes about the whole report.
const NOTES: usize = 10;
/// Number of characters reserved for the last sentence of the comment.
const FOR_THE_END: usize = 400;

/// Returns the comment for a report.
pub(super) fn comment(report: &Report) -> String {
    let mut text = format!("### What GitSync {} would change\n\n", code(&report.sync()));
    let what = |text: &str| prose(text);
    text.push_str(&format!("{}, against {}\n\n", capital(&what(&report.what)), what(&report.against)));
    text.push_str(&table(report));
    for note in report.notes.iter().take(NOTES) {
        text.push_str(&format!("> {}\n\n", prose(cut(note, LONGEST_NOTE))));
    }
    let more_notes = report.notes.len().saturating_sub(NOTES);
    let mut left = LONGEST.saturating_sub(characters(&text) + FOR_THE_END);
    let (mut without_lines, mut without_anything) = (0, 0);
    for shown in &report.objects {
        let whole = details(shown, LONGEST_OBJECT.min(left));
        if let Some(whole) = whole.as_ref().filter(|whole| characters(&whole.text) <= left) {
            left -= characters(&whole.text);
            text.push_str(&whole.text);
            without_lines += usize::from(whole.is_cut);
            continue;
        }
        let short = format!("{}\n\n", summary(shown));
        if characters(&short) <= left {
            left -= characters(&short);
            text.push_str(&short);
            without_lines += 1;
        } else {
            without_anything += 1;
        }
    }
    let mut cut = Vec::new();
    if without_anything > 0 {
        cut.push(format!("{without_anything} more objects"));
    }
    if without_lines > 0 {
        cut.push(format!("parts of {without_lines} objects"));
    }
    if more_notes > 0 {
        cut.push(format!("{more_notes} more notes"));
    }
    if !cut.is_empty() {
        let cut = cut.join(" and ");
        text.push_str(&format!(
            "To stay within {LONGEST} characters, this comment leaves out {cut}; <code>mainstay diff</code> shows everything.\n"
        ));
    }
    text
}

fn table(report: &Report) -> String {
    let mut counts = report.counts();
    counts.retain(|(word, count)| *count > 0 || matches!(*word, "created" | "changed" | "deleted"));
    counts.push(("unchanged", report.unchanged));
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let names = row(counts.iter().map(|(word, _)| capital(word)).collect());
    let rule = row(counts.iter().map(|_| "---:".to_owned()).collect());
    let numbers = row(counts.iter().map(|(_, count)| count.to_string()).collect());
    format!("{names}{rule}{numbers}\n")
}

/// An object with its differing lines.
struct Details {
    text: String,
    /// Whether lines were cut.
    is_cut: bool,
}

/// Returns an object as Markdown with at most `most` characters; `None` if even its frame does not fit.
fn details(shown: &Shown, most: usize) -> Option<Details> {
    let note = shown.note.as_ref().map(|note| format!("{}\n\n", prose(cut(note, LONGEST_NOTE)))).unwrap_or_default();
    if shown.lines.is_empty() && note.is_empty() {
        return Some(Details { text: format!("{}\n\n", summary(shown)), is_cut: false });
    }
    let lines: Vec<_> = shown.lines.iter().map(|line| printable(line)).collect();
    let fence = fence(lines.iter().map(|line| &**line));
    let mut text = format!("<details><summary>{}</summary>\n\n{note}", summary(shown));
    let end = "\n</details>\n\n";
    let around = characters(&text) + 2 * fence.len() + "diff\n\n".len() + end.len() + 40;
    let mut room = most.checked_sub(around)?;
    let mut is_cut = false;
    if !lines.is_empty() {
        text.push_str(&format!("{fence}diff\n"));
        for (at, line) in lines.iter().enumerate() {
            let needed = characters(line) + 1;
            if needed > room {
                is_cut = true;
                text.push_str(&format!("… {} more lines\n", lines.len() - at));
                break;
            }
            room -= needed;
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(&format!("{fence}\n"));
    }
    Some(Details { text: text + end, is_cut })
}

fn summary(shown: &Shown) -> String {
    let place = shown.place.as_ref().map(|place| format!(" ({})", code(place))).unwrap_or_default();
    format!("{} {}{place}", shown.word, code(&shown.name))
}

/// Returns a fence longer than any run of backticks in these lines.
fn fence<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let run = |line: &str| line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(lines.map(run).max().unwrap_or(0).max(2) + 1)
}

/// Escapes a string so that it contains no markup, mentions, references or links.
fn prose(text: &str) -> String {
    let mut shown = String::new();
    for c in printable(&text.replace('\n', " ")).chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | ' ' | ',' | ';' => shown.push(c),
            c if c.is_alphanumeric() => shown.push(c),
            c => shown.push_str(&format!("&#{};", u32::from(c))),
        }
    }
    shown
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", prose(text))
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().collect::<String>() + characters.as_str()).unwrap_or_default()
}

fn cut(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(at, _)| &text[..at])
}

fn characters(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn is_a_table_and_the_lines_of_each_object() {
        assert_eq!(
            comment(&report(1, "a", "x")),
            "### What GitSync <code>shop&#47;demo</code> would change

Commit 1a2b3c4d5e6f of main, against the cluster

| Created | Changed | Deleted | Unchanged |
| ---: | ---: | ---: | ---: |
| 0 | 1 | 0 | 0 |

> x

<details><summary>changed <code>ConfigMap shop&#47;a</code> (<code>a</code>)</summary>

x

```diff
@@ data @@
 data:
-  a: b
+  a: x
```

</details>

"
        );
    }

    #[test]
    fn hostile_texts_are_no_markup_and_cannot_end_what_they_are_in() {
        let text = "x\n```\n</details>\n<img src=x onerror=1> @everyone #1 [a](http://b) | ````\n\u{202e}";
        let comment = comment(&report(1, "a</code><script>`*", text));
        let (prose, lines): (Vec<&str>, Vec<&str>) = {
            let mut is_within = false;
            comment.lines().partition(|line| {
                is_within ^= line.starts_with("`````");
                !is_within
            })
        };
        assert!(
            lines.iter().any(|line| line.contains("@everyone")) && lines.iter().any(|line| line.contains("````")),
            "{comment}"
        );
        for markup in ["<img", "<script", "@", "[a]", "http:", "```\n", "\u{202e}"] {
            assert!(!prose.join("\n").replace("`````\n", "").contains(markup), "{markup:?} in {prose:#?}");
        }
        assert_eq!(comment.matches("\n`````diff\n").count() + comment.matches("\n`````\n").count(), 2);
        assert!(!comment.contains('\u{202e}'));
    }

    #[test]
    fn is_never_too_long_and_says_what_is_cut() {
        for (count, length) in [(1, 200_000), (3, 30_000), (2_000, 10), (100, 5_000), (3_000, 1)] {
            let lines = "0123456789012345678\n".repeat(length / 20 + 1);
            let comment = comment(&report(count, "a", &lines));
            let end = comment.lines().last().unwrap();
            assert!(characters(&comment) <= LONGEST, "{count} {length}: {}", characters(&comment));
            assert!(
                end.contains("this comment leaves out") && end.contains("mainstay diff"),
                "{count} {length}: {end}"
            );
            assert_eq!(comment.matches("<details>").count(), comment.matches("</details>").count());
            assert_eq!(comment.matches("```").count() % 2, 0);
        }
    }
}
