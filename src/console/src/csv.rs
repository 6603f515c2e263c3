//! Tables for spreadsheets.
//!
//! Invariant: no program reads a cell as a formula, also if it separates cells by semicolons or tabs. Invariant: a table has a
//! maximum size.

/// Characters with which formulas begin. Some programs also read the wide forms as formulas.
const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
/// Characters that separate cells in some programs, even within quotes that such a program reads in another way.
const SEPARATORS: [char; 4] = [';', '\t', '\r', '\n'];

/// Returns rows as CSV of at most about this size in bytes. Each cell is quoted. If rows are missing, the last line says so.
pub(crate) fn csv(rows: impl IntoIterator<Item = Vec<String>>, most: usize) -> String {
    let mut text = String::new();
    for row in rows {
        let line = line(&row);
        if text.len() + line.len() > most {
            let note = format!("(the file has at most {} KiB, so further rows are missing: filter them)", most >> 10);
            return text + &cell(&note) + "\r\n";
        }
        text += &line;
    }
    text
}

fn line(row: &[String]) -> String {
    row.iter().map(|text| cell(text)).collect::<Vec<_>>().join(",") + "\r\n"
}

/// Returns a quoted cell. An apostrophe turns a formula into text, at the beginning and after each separator.
fn cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len() + 2);
    cell.push('"');
    if text.starts_with(['\t', '\r', '\n']) {
        cell.push('\'');
    }
    for part in text.split_inclusive(SEPARATORS) {
        let begin = part.trim_start_matches(|c: char| c.is_whitespace() || c == '"');
        if begin.starts_with(FORMULA) {
            cell.push('\'');
        }
        cell += &part.replace('"', "\"\"");
    }
    cell.push('"');
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cells: &[&str]) -> String {
        csv([cells.iter().map(|&text| text.to_owned()).collect()], 1 << 20)
    }

    #[test]
    fn formulas_become_texts_and_quotes_stay_within_their_cell() {
        assert_eq!(
            of(&["=1+1", "+1", "-2", "@sum(a)", "\tx", " =1", "a\"b", "a,b", "plain"]),
            "\"'=1+1\",\"'+1\",\"'-2\",\"'@sum(a)\",\"'\tx\",\"' =1\",\"a\"\"b\",\"a,b\",\"plain\"\r\n"
        );
    }

    #[test]
    fn formulas_become_texts_after_separators_of_other_programs_and_in_wide_forms() {
        for (text, expected) in [
            ("a;=1", "a;'=1"),
            ("a; =1;+2", "a;' =1;'+2"),
            ("a\t@x", "a\t'@x"),
            ("a\r\n-1\n=2", "a\r\n'-1\n'=2"),
            ("a;\"=1", "a;'\"\"=1"),
            ("＝1", "'＝1"),
            ("a;＋1", "a;'＋1"),
            ("－1", "'－1"),
            ("a\n＠x", "a\n'＠x"),
            ("a-b=c;d-e", "a-b=c;d-e"),
            ("", ""),
        ] {
            assert_eq!(of(&[text]), format!("\"{expected}\"\r\n"), "{text:?}");
        }
    }

    #[test]
    fn a_large_table_ends_with_a_line_about_missing_rows() {
        let rows = || std::iter::repeat_n(vec!["x".repeat(100)], 1000);
        let text = csv(rows(), 10 << 10);
        assert!(text.len() < 11 << 10, "{}", text.len());
        let last = text.lines().last().unwrap();
        assert!(last.starts_with("\"(the file has at most 10 KiB"), "{last}");
        assert_eq!(text.lines().count(), (10 << 10) / 104 + 1);
        let whole = csv(rows(), 1 << 20);
        assert!(whole.lines().count() == 1000 && !whole.contains("missing"));
    }
}
