//! Colours in output for people: whether to use them, and where they begin and end.
//!
//! A painted string contains marks. `written` replaces the marks with escape sequences, and escapes everything else.
//!
//! Invariant: a string from a repository or a server cannot forge a mark, because its author would have to guess the
//! random number of this process.

use std::{
    io::{self, IsTerminal as _},
    sync::OnceLock,
};

/// When output has colours.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Color {
    /// On a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Good.
    Good,
    /// Wrong.
    Bad,
    /// Needs a look.
    Doubtful,
    /// A heading.
    Title,
}

/// The output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Error,
}

/// The value that was chosen on the command line.
static CHOSEN: OnceLock<Color> = OnceLock::new();
/// The beginning of every mark.
static MARK: OnceLock<String> = OnceLock::new();
const PLAIN: char = '0';

impl Style {
    const ALL: [Self; 4] = [Self::Good, Self::Bad, Self::Doubtful, Self::Title];

    fn letter(self) -> char {
        match self {
            Self::Good => 'g',
            Self::Bad => 'b',
            Self::Doubtful => 'd',
            Self::Title => 't',
        }
    }

    fn sequence(self) -> &'static str {
        match self {
            Self::Good => "\u{1b}[32m",
            Self::Bad => "\u{1b}[31m",
            Self::Doubtful => "\u{1b}[33m",
            Self::Title => "\u{1b}[1m",
        }
    }
}

/// Sets the chosen value for the process.
pub(super) fn choose(color: Color) {
    // A second call would fail, but the command line is parsed only once.
    let _ = CHOSEN.set(color);
}

/// Reads `--color` before the command line is parsed, since errors and help have colours, too.
pub(super) fn given<'a>(words: impl Iterator<Item = &'a str>) -> Color {
    let mut color = Color::default();
    let mut is_next = false;
    for word in words {
        let value = if is_next { Some(word) } else { word.strip_prefix("--color=") };
        is_next = word == "--color";
        color = match value {
            Some("always") => Color::Always,
            Some("never") => Color::Never,
            Some("auto") => Color::Auto,
            _ => color,
        };
    }
    color
}

impl Color {
    /// Returns the corresponding value for clap.
    pub(super) fn of_clap(self) -> clap::ColorChoice {
        match self {
            Self::Auto => clap::ColorChoice::Auto,
            Self::Always => clap::ColorChoice::Always,
            Self::Never => clap::ColorChoice::Never,
        }
    }

    /// Returns whether output has colours, if the stream is a terminal or not, and with these environment variables.
    fn is_on(self, is_terminal: bool, no_color: Option<&str>, term: Option<&str>) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && no_color.unwrap_or_default().is_empty() && term != Some("dumb"),
        }
    }
}

/// Returns whether this stream has colours.
pub(super) fn is_on(stream: Stream) -> bool {
    let is_terminal = match stream {
        Stream::Out => io::stdout().is_terminal(),
        Stream::Error => io::stderr().is_terminal(),
    };
    let variable = |name: &str| std::env::var(name).ok();
    let color = CHOSEN.get().copied().unwrap_or_default();
    color.is_on(is_terminal, variable("NO_COLOR").as_deref(), variable("TERM").as_deref())
}

fn mark() -> &'static str {
    MARK.get_or_init(|| format!("\u{1}{:016x}", fastrand::u64(..)))
}

/// Paints a string.
pub(super) fn paint(style: Style, text: &str) -> String {
    let mark = mark();
    format!("{mark}{}{text}{mark}{PLAIN}", style.letter())
}

/// Escapes a string, and replaces its marks with escape sequences or removes them.
pub(super) fn written(text: &str, with_colors: bool, escape: impl Fn(&str) -> String) -> String {
    let mut parts = text.split(mark());
    let mut written = escape(parts.next().unwrap_or_default());
    for part in parts {
        let mut rest = part.chars();
        let letter = rest.next();
        let style = Style::ALL.into_iter().find(|style| letter == Some(style.letter()));
        if with_colors {
            written.push_str(style.map_or("\u{1b}[0m", Style::sequence));
        }
        written.push_str(&escape(rest.as_str()));
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_unless_somebody_says_otherwise() {
        for (color, is_terminal, no_color, term, expected) in [
            (Color::Auto, true, None, None, true),
            (Color::Auto, true, Some(""), Some("xterm"), true),
            (Color::Auto, true, Some("1"), None, false),
            (Color::Auto, true, None, Some("dumb"), false),
            (Color::Auto, false, None, None, false),
            (Color::Always, false, Some("1"), None, true),
            (Color::Never, true, None, None, false),
        ] {
            assert_eq!(
                color.is_on(is_terminal, no_color, term),
                expected,
                "{color:?} {is_terminal} {no_color:?} {term:?}"
            );
        }
        for (line, expected) in [
            ("status", Color::Auto),
            ("--color never status", Color::Never),
            ("status --color=always", Color::Always),
            ("status --color never --color", Color::Never),
        ] {
            assert_eq!(given(line.split(' ')), expected, "{line}");
        }
    }

    #[test]
    fn escapes_everything_but_its_own_marks() {
        let escape = |text: &str| text.replace('\u{1b}', "ESC").replace('\u{1}', "SOH");
        let hostile = "\u{1b}[31m\u{1}0000000000000000g";
        let text = format!("{} and {}", paint(Style::Bad, hostile), paint(Style::Good, "ü"));
        let plain = "ESC[31mSOH0000000000000000g and ü";
        assert_eq!(written(&text, false, escape), plain);
        let colored = written(&text, true, escape);
        assert_eq!(colored, "\u{1b}[31mESC[31mSOH0000000000000000g\u{1b}[0m and \u{1b}[32mü\u{1b}[0m");
    }
}
