//! Parses the fenced blocks of a Markdown file, and the commands of `sh` blocks.

/// A block between fences.
#[derive(Debug)]
pub struct Block {
    /// The word after the fence.
    pub language: String,
    pub text: String,
}

/// Returns the blocks in order.
pub fn blocks(markdown: &str) -> Vec<Block> {
    let mut all = Vec::new();
    let mut open: Option<Block> = None;
    for line in markdown.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some(Block { language: language.to_owned(), text: String::new() }),
            (Some(_), Some("")) => all.extend(open.take()),
            (Some(block), _) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "the last block has no end: {open:?}");
    all
}

/// Splits lines into commands without comments. Quotes, lines that end with `\`, `|` or `&&`, and here-documents
/// continue a command.
pub fn commands(lines: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut command = String::new();
    let mut quote = None;
    let mut end_of_document: Option<&str> = None;
    for line in lines.lines() {
        if end_of_document.is_some() {
            command.push_str(line);
            end_of_document = end_of_document.filter(|end| line != *end);
        } else {
            let line = without_comment(line, &mut quote);
            command.push_str(line);
            end_of_document = document_of(line);
        }
        let goes_on = quote.is_some() || end_of_document.is_some() || goes_on(&command);
        if goes_on {
            command.push('\n');
        } else if !command.is_empty() {
            commands.push(std::mem::take(&mut command));
        }
    }
    assert!(command.is_empty(), "a command without an end: {command}");
    commands
}

fn goes_on(command: &str) -> bool {
    command.ends_with(['\\', '|']) || command.ends_with("&&")
}

/// Returns the end marker of a here-document that begins on this line: `<<EOF` or `<<'EOF'`.
fn document_of(line: &str) -> Option<&str> {
    let rest = line.split("<<").nth(1)?;
    if let Some(quoted) = rest.strip_prefix('\'') {
        return quoted.split('\'').next();
    }
    // `<<< 'text'` is not a here-document.
    rest.split(|letter: char| !letter.is_ascii_alphanumeric()).next().filter(|word| !word.is_empty())
}

/// Returns the line up to its comment. `quote` is the open quote before and after the line.
fn without_comment<'a>(line: &'a str, quote: &mut Option<char>) -> &'a str {
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        match (*quote, letter) {
            (None, '#') if before == ' ' => return line[..at].trim_end(),
            (None, '\'' | '"') => *quote = Some(letter),
            (Some(open), _) if letter == open => *quote = None,
            _ => {}
        }
        before = letter;
    }
    line.trim_end()
}

#[test]
fn commands_are_split_as_a_shell_would() {
    let lines = "a 'b # c' # d\nb \\\n  c\n\nd <<'EOF'\n  x # y\nEOF\ne 'f\ng'\n# only a comment\nh |  # i\n  j\n\
                 k <<EOF | l\n  x 'y\nEOF\nm <<< 'n'\no &&\n  p\n";
    let split = [
        "a 'b # c'",
        "b \\\n  c",
        "d <<'EOF'\n  x # y\nEOF",
        "e 'f\ng'",
        "h |\n  j",
        "k <<EOF | l\n  x 'y\nEOF",
        "m <<< 'n'",
        "o &&\n  p",
    ];
    assert_eq!(commands(lines), split);
}

#[test]
fn blocks_have_their_language_and_their_order() {
    let found = blocks("a\n```sh\nb\n```\nc\n```\nd\n\n```\n");
    let found: Vec<_> = found.iter().map(|block| (block.language.as_str(), block.text.as_str())).collect();
    assert_eq!(found, [("sh", "b\n"), ("", "d\n\n")]);
}
