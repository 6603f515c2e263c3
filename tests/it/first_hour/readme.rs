//! The commands of the README: the blocks marked `sh`, split as a shell would, without comments.

/// The README's commands, in order.
pub(super) fn commands() -> Vec<String> {
    let text = include_str!("../../../README.md");
    let mut all = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        match &mut block {
            None if line == "```sh" => block = Some(String::new()),
            Some(lines) if line == "```" => {
                all.extend(split(lines));
                block = None;
            }
            Some(lines) => lines.extend([line, "\n"]),
            None => {}
        }
    }
    assert!(block.is_none(), "the last block of the README has no end");
    all
}

/// The block marked `yaml` with this in it.
pub(super) fn manifest(with: &str) -> String {
    let blocks = include_str!("../../../README.md").split("```yaml\n").skip(1);
    let block = blocks.map(|block| block.split("```").next().unwrap()).find(|block| block.contains(with));
    block.unwrap_or_else(|| panic!("no manifest of the README has {with}")).to_owned()
}

/// Splits lines into commands: quotes, a line that ends with `\` or `|`, and here-documents go on over lines.
fn split(lines: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut command = String::new();
    let mut quote = None;
    let mut end_of_document: Option<&str> = None;
    for line in lines.lines() {
        if end_of_document.is_some() {
            command.push_str(line);
            end_of_document = end_of_document.filter(|end| line != *end);
        } else {
            command.push_str(without_comment(line, &mut quote));
            end_of_document = line.split_once("<<'").and_then(|(_, rest)| rest.split('\'').next());
        }
        let goes_on = quote.is_some() || end_of_document.is_some() || command.ends_with(['\\', '|']);
        if goes_on {
            command.push('\n');
        } else if !command.is_empty() {
            commands.push(std::mem::take(&mut command));
        }
    }
    assert!(command.is_empty(), "a command without an end: {command}");
    commands
}

/// The line up to its comment; `quote` is the quote that is open before and after it.
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
    let lines = "a 'b # c' # d\nb \\\n  c\n\nd <<'EOF'\n  x # y\nEOF\ne 'f\ng'\n# only a comment\nh |  # i\n  j\n";
    assert_eq!(split(lines), ["a 'b # c'", "b \\\n  c", "d <<'EOF'\n  x # y\nEOF", "e 'f\ng'", "h |\n  j"]);
}
