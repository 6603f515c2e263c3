//! Tables for people: columns as wide as their longest cell, within the width of a line.

/// Width of a table unless told otherwise.
pub(super) const WIDTH: usize = 120;
/// Blanks between two columns.
const GAP: usize = 2;
/// Widest column that is not the last one.
const WIDEST: usize = 40;

/// Rows under a heading.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(super) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&title| title.to_owned()).collect()] }
    }

    /// Adds a row with as many cells as there are columns. Only the first line of a cell is shown.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| mainstay_object::printable(first_line(cell)).into_owned()).collect());
    }

    /// The lines; with `width`, cells are cut so that none is longer.
    pub(super) fn render(&self, width: Option<usize>) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let longest = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..columns).map(longest).collect();
        if let (Some(width), Some((last, others))) = (width, widths.split_last_mut()) {
            for other in &mut *others {
                *other = (*other).min(WIDEST);
            }
            // The last column has what the others leave; where that is too little, the widest of them give way.
            let least = (*last).min(WIDEST / 2);
            while others.iter().map(|other| other + GAP).sum::<usize>() + least > width {
                let Some(widest) = others.iter_mut().max() else { break };
                *widest = widest.saturating_sub(1);
            }
            *last = (*last).min(width - others.iter().map(|other| other + GAP).sum::<usize>());
        }
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (cell, &width) in row.iter().zip(&widths) {
                line.push_str(&format!("{:<1$}", cut(cell, width), width + GAP));
            }
            format!("{}\n", line.trim_end())
        };
        self.rows.iter().map(line).collect()
    }
}

fn first_line(text: &str) -> &str {
    text.split('\n').next().unwrap_or_default()
}

/// The text in at most `width` characters.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_the_last_column_first_and_then_the_widest() {
        let mut table = Table::new(&["NAME", "READY", "MESSAGE"]);
        table.row(vec!["shop".into(), "True".into(), "all is well\nand more".into()]);
        assert_eq!(table.render(Some(30)), "NAME  READY  MESSAGE\nshop  True   all is well\n");
        table.row(vec!["a-name-of-many-characters".into(), "False".into(), "x".repeat(200)]);
        for width in [30, 60, 120] {
            let text = table.render(Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert_eq!(text.lines().count(), 3);
        }
        assert!(table.render(None).contains(&"x".repeat(200)));
    }
}
