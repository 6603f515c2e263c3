//! Tables for people: columns as wide as their longest cell, within the width of the terminal.
//!
//! Invariant: names and short cells are not cut. If a table does not fit without such cuts, it is wider than the
//! terminal. Invariant: without a terminal no cell is cut, because a program may read the output.

use std::io;

use rustix::termios::tcgetwinsize;

use super::style::{Style, paint};

/// Assumed width of a terminal whose width is unknown.
const WIDTH: usize = 80;
/// Spaces between two columns, as in kubectl.
const GAP: usize = 3;
/// Maximum width of a column other than the last if cells have to be cut.
const WIDEST: usize = 40;
/// Width up to which a column is not cut: the width of a short commit ID.
const UNCUT: usize = 12;

/// Returns the terminal width of standard output; `None` without a terminal.
pub(super) fn width() -> Option<usize> {
    columns(io::stdout())
}

/// Returns the terminal width of standard error; `None` without a terminal.
pub(super) fn width_of_notes() -> Option<usize> {
    columns(io::stderr())
}

fn columns(stream: impl io::IsTerminal + std::os::fd::AsFd) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col));
    Some(size.filter(|columns| *columns > 0).unwrap_or(WIDTH))
}

/// A table: rows under a heading.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns.
    pub(super) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&title| title.to_owned()).collect()] }
    }

    /// Adds a row with a cell per column. Only the first line of a cell is shown.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| mainstay_object::printable(&first_line(cell)).into_owned()).collect());
    }

    /// Returns the lines of the table. With `width`, cells are cut until the lines fit, if possible.
    pub(super) fn render(&self, width: Option<usize>) -> String {
        let titles = self.rows.first().map(Vec::as_slice).unwrap_or_default();
        let columns = titles.len();
        let longest = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..columns).map(longest).collect();
        let sum = |widths: &[usize]| widths.iter().map(|width| width + GAP).sum::<usize>();
        if let Some(width) = width
            && sum(&widths) > width + GAP
            && let Some((last, others)) = widths.split_last_mut()
        {
            let names = usize::from(titles.first().is_some_and(|title| title == "NAMESPACE")) + 1;
            for other in others.iter_mut().skip(names) {
                *other = (*other).min(WIDEST);
            }
            // The last column gets the remaining width. If that is too little, the widest of the other columns shrink.
            let least = (*last).min(WIDEST / 2);
            while sum(others) + least > width {
                let Some(widest) = others.iter_mut().skip(names).max().filter(|widest| **widest > UNCUT) else { break };
                *widest -= 1;
            }
            *last = (*last).min(width.saturating_sub(sum(others)).max(least));
        }
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            let mut blanks = 0;
            for ((cell, &width), title) in row.iter().zip(&widths).zip(titles) {
                let cell = cut(cell, width);
                if cell.is_empty() {
                    blanks += width + GAP;
                    continue;
                }
                line.push_str(&" ".repeat(blanks));
                line.push_str(&style(title, &cell).map_or_else(|| cell.clone(), |style| paint(style, &cell)));
                blanks = width + GAP - cell.chars().count();
            }
            format!("{line}\n")
        };
        self.rows.iter().map(line).collect()
    }
}

/// Returns the colour of a cell, by the title of its column.
fn style(title: &str, cell: &str) -> Option<Style> {
    match (title, cell) {
        _ if title == cell => Some(Style::Title),
        ("READY", "True") => Some(Style::Good),
        ("READY", "False") => Some(Style::Bad),
        ("READY", "Unknown") | ("SUSPENDED", "True") => Some(Style::Doubtful),
        _ => None,
    }
}

/// Returns the first line; `…` stands for the other lines.
fn first_line(text: &str) -> String {
    match text.split_once('\n') {
        Some((first, rest)) if !rest.trim().is_empty() => format!("{first}…"),
        Some((first, _)) => first.to_owned(),
        None => text.to_owned(),
    }
}

/// Cuts a string to at most `width` characters.
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
    use crate::cli::style::written;

    fn render(table: &Table, width: Option<usize>) -> String {
        written(&table.render(width), false, str::to_owned)
    }

    #[test]
    fn cuts_the_last_column_first_and_then_the_widest() {
        let mut table = Table::new(&["NAME", "READY", "MESSAGE"]);
        table.row(vec!["shop".into(), "True".into(), "all is well\nand more".into()]);
        assert_eq!(render(&table, Some(30)), "NAME   READY   MESSAGE\nshop   True    all is well…\n");
        table.row(vec!["a-name-of-many-characters".into(), "False".into(), "x".repeat(200)]);
        for width in [60, 120] {
            let text = render(&table, Some(width));
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert_eq!(text.lines().count(), 3);
        }
        assert!(render(&table, None).contains(&"x".repeat(200)));
    }

    #[test]
    fn cuts_nothing_that_fits_and_no_width_is_too_small() {
        let mut table = Table::new(&["NAME", "READY", "MESSAGE"]);
        table.row(vec!["n".repeat(40), String::new(), "m".repeat(30)]);
        let whole = render(&table, None);
        assert_eq!(render(&table, Some(81)), whole);
        assert!(whole.lines().nth(1).unwrap().ends_with(&format!("n{}{}", " ".repeat(11), "m".repeat(30))), "{whole}");
        assert!(render(&table, Some(80)).contains('…'));
        for width in 0..40 {
            assert_eq!(render(&table, Some(width)).lines().count(), 2);
        }
    }

    #[test]
    fn names_and_short_cells_are_not_cut() {
        let mut table = Table::new(&["NAMESPACE", "NAME", "REASON", "SUSPENDED", "MESSAGE"]);
        let (namespace, name) = ("n".repeat(16), "m".repeat(63));
        table.row(vec![namespace.clone(), name.clone(), "r".repeat(30), "False".into(), "x".repeat(100)]);
        for width in [0, 40, 60, 80] {
            let text = render(&table, Some(width));
            assert!(
                [&*namespace, &name, "False", "SUSPENDED", "REASON"].iter().all(|cell| text.contains(cell)),
                "{text}"
            );
            assert!(text.contains(&format!("{}…", "r".repeat(11))) && text.contains(&format!("{}…", "x".repeat(19))));
        }
    }

    #[test]
    fn colours_say_what_is_ready() {
        let mut table = Table::new(&["NAME", "READY"]);
        table.row(vec!["True".into(), "True".into()]);
        table.row(vec!["a".into(), "False".into()]);
        let text = written(&table.render(None), true, str::to_owned);
        assert!(
            text.contains("\nTrue   \u{1b}[32mTrue\u{1b}[0m\n") && text.contains("\u{1b}[31mFalse\u{1b}[0m"),
            "{text:?}"
        );
    }
}
