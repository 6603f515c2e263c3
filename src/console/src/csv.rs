//! Tables for spreadsheets.
//!
//! Invariant: no program reads a cell as a formula.

/// Returns rows as CSV. Each cell is quoted.
pub(crate) fn csv(rows: &[Vec<String>]) -> String {
    let line = |row: &Vec<String>| row.iter().map(|text| cell(text)).collect::<Vec<_>>().join(",") + "\r\n";
    rows.iter().map(line).collect()
}

/// Returns a quoted cell. Spreadsheets read cells with these beginnings as formulas; an apostrophe turns such cells
/// into text.
fn cell(text: &str) -> String {
    let is_formula = text.trim_start().starts_with(['=', '+', '-', '@']) || text.starts_with(['\t', '\r', '\n']);
    let text = text.replace('"', "\"\"");
    if is_formula { format!("\"'{text}\"") } else { format!("\"{text}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_become_texts_and_quotes_stay_within_their_cell() {
        let rows = ["=1+1", "+1", "-2", "@sum(a)", "\tx", " =1", "a\"b", "a,b", "plain"].map(str::to_owned).to_vec();
        assert_eq!(
            csv(&[rows]),
            "\"'=1+1\",\"'+1\",\"'-2\",\"'@sum(a)\",\"'\tx\",\"' =1\",\"a\"\"b\",\"a,b\",\"plain\"\r\n"
        );
    }
}
