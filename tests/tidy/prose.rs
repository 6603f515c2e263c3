//! Comments, messages and test names follow the rules of the book: standard nouns, the subject first, short blocks.

use std::{fs, path::Path, sync::LazyLock};

use regex::Regex;

use super::book::{OPENINGS, WORDS, markdown};
use super::{EMBEDDED, PRODUCT, production, sources};

/// Longest block of comments that is not the front page of a file, in lines.
const BLOCK_LINES: usize = 8;
/// First words of no test name: the subject comes first.
const TEST_OPENINGS: [&str; 18] = [
    "what",
    "who",
    "whoever",
    "whatever",
    "whose",
    "whom",
    "which",
    "whichever",
    "nobody",
    "nothing",
    "of",
    "by",
    "that",
    "where",
    "wherever",
    "nor",
    "somebody",
    "everybody",
];

/// Wordings of messages and pages that a newcomer has to read twice, with the words of the field.
const WORDINGS: [(&str, &str); 13] = [
    (r"\b(?:is|are) no [a-z]", "is not a, must be a"),
    (r"\bdoes not read(?:$|[:;]| as\b)", "is invalid, cannot be parsed"),
    (r"\bhas (?:not )?the form\b", "must have the form"),
    (r"\bleads? (?:to|out|from|back|into|above)\b", "points to, is outside, routes to"),
    (r"\b(?:created?|creates|buil[td]s?) (?:it )?again\b", "recreated, rebuilt, replaced"),
    (r"\bat once\b", "immediately, concurrently"),
    (r"\bours?\b", "Mainstay's"),
    (r"\b(?:is|has|of|names) another (?:one|form|digest|value|type|version)\b|\banother place\b", "a different"),
    (r"\broom\b", "memory, space"),
    (r"\bwhole numbers?\b", "integer"),
    (r"\b(?:a|no) text\b|\btexts\b", "string"),
    (r"\b(?:the|an|no|its|this) answers?\b", "response"),
    (r"\brights\b", "permissions"),
];
/// Phrases that contain such a wording and are plain.
const PLAIN: &str = r"\bthere (?:is|are) no\b|\b(?:is|are) no (?:longer|more)\b|\bid of the room\b|\bchannel, room\b";

/// A name in code, which counts as a noun.
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new("`[^`]*`").unwrap());
/// The patterns of [`WORDINGS`], with the words to write.
static WORDING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    WORDINGS.iter().map(|(pattern, plainly)| (Regex::new(&format!("(?i){pattern}")).unwrap(), *plainly)).collect()
});
/// Code, placeholders and the phrases of [`PLAIN`].
static EXEMPT: LazyLock<Regex> = LazyLock::new(|| Regex::new(&format!("(?i)`[^`]*`|\\{{[^}}]*\\}}|{PLAIN}")).unwrap());
/// The end of a sentence.
static END: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[.!?:]\s+").unwrap());

/// A block of comments of one kind.
struct Block {
    line: usize,
    is_front_page: bool,
    lines: Vec<String>,
}

/// The blocks of lines that are comments as a whole.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<(&str, Block)> = Vec::new();
    let mut before = "";
    for (at, line) in text.lines().map(str::trim_start).enumerate() {
        let kind = ["//!", "///", "//"].into_iter().find(|kind| line.starts_with(kind)).unwrap_or_default();
        if !kind.is_empty() {
            if kind != before {
                blocks.push((kind, Block { line: at + 1, is_front_page: kind == "//!", lines: Vec::new() }));
            }
            let (_, block) = blocks.last_mut().expect("one was pushed");
            block.lines.push(line[kind.len()..].trim().to_owned());
        }
        before = kind;
    }
    blocks.into_iter().map(|(_, block)| block).collect()
}

/// The words and openings in a text that the rules exclude.
fn flaws(text: &str) -> Vec<String> {
    let plain = CODE.replace_all(text, "x");
    let lower = format!(" {} ", words(&plain.to_lowercase()));
    let mut flaws: Vec<String> = WORDS
        .iter()
        .filter(|(word, _)| lower.contains(&format!(" {word} ")))
        .map(|(word, plainly)| format!("{word:?} (write: {plainly})"))
        .collect();
    for sentence in END.split(&plain) {
        let first = sentence.split_whitespace().next().unwrap_or_default();
        let is_adverb = sentence.starts_with("By default");
        if OPENINGS.contains(&first) && !is_adverb && sentence.split_whitespace().count() > 3 {
            flaws.push(format!("a sentence begins with {first:?}"));
        }
    }
    flaws
}

/// The wordings in a message, or in a line of a page, for which the field has a plain one.
fn wordings(text: &str) -> Vec<String> {
    let plain = EXEMPT.replace_all(text, "x");
    let found = WORDING.iter().filter_map(|(pattern, plainly)| Some((pattern.find(&plain)?.as_str(), plainly)));
    found.map(|(words, plainly)| format!("{words:?} (write: {plainly})")).collect()
}

/// The words of a text, separated by single blanks.
fn words(text: &str) -> String {
    let parts = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ")
}

/// The paragraphs of a block, without its code.
fn paragraphs(block: &Block) -> Vec<String> {
    let (mut paragraphs, mut is_code) = (vec![String::new()], false);
    for line in &block.lines {
        is_code ^= line.starts_with("```");
        if is_code || line.starts_with("```") {
            continue;
        }
        if line.is_empty() || line.starts_with(['-', '*', '|']) {
            paragraphs.push(String::new());
        }
        let paragraph = paragraphs.last_mut().expect("there is one");
        *paragraph += line.trim_start_matches(['-', '*', '|']);
        paragraph.push(' ');
    }
    paragraphs
}

#[test]
fn blocks_of_comments_are_short() {
    let mut long = Vec::new();
    for path in ["src", "tests", "benches"].into_iter().flat_map(sources) {
        let blocks = blocks(&fs::read_to_string(&path).unwrap());
        let of = blocks.into_iter().filter(|block| !block.is_front_page && block.lines.len() > BLOCK_LINES);
        long.extend(of.map(|block| format!("{}:{}: {} lines", path.display(), block.line, block.lines.len())));
    }
    assert_eq!(long, Vec::<String>::new(), "a comment gives the reason, in at most {BLOCK_LINES} lines");
}

#[test]
fn comments_are_plain() {
    let mut wrong = Vec::new();
    for path in ["src", "tests", "benches"].into_iter().flat_map(sources) {
        // This file and `book.rs` contain the forbidden words.
        if path.starts_with("tests/tidy") {
            continue;
        }
        for block in blocks(&fs::read_to_string(&path).unwrap()) {
            let flaws = paragraphs(&block).iter().flat_map(|paragraph| flaws(paragraph)).collect::<Vec<_>>();
            wrong.extend(flaws.into_iter().map(|flaw| format!("{}:{}: {flaw}", path.display(), block.line)));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn messages_are_plain() {
    let mut wrong = Vec::new();
    for path in PRODUCT.into_iter().chain(EMBEDDED).flat_map(sources) {
        let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs" || part == "fuzz.rs");
        if is_test {
            continue;
        }
        // A text of several lines is a script or a document.
        for text in strings(&production(&path)).iter().filter(|text| !text.contains('\n') && text.contains(' ')) {
            wrong.extend(flaws(text).into_iter().map(|flaw| format!("{}: {flaw}: {text}", path.display())));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn messages_use_the_words_of_the_field() {
    let mut wrong = Vec::new();
    for path in PRODUCT.into_iter().flat_map(sources) {
        if path.iter().any(|part| part == "tests" || part == "tests.rs" || part == "fuzz.rs") {
            continue;
        }
        for text in strings(&production(&path)).iter().filter(|text| !text.contains('\n') && text.contains(' ')) {
            wrong.extend(wordings(text).into_iter().map(|flaw| format!("{}: {flaw}: {text}", path.display())));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The generated pages have the texts of help, custom resources, metrics and reasons.
#[test]
fn pages_use_the_words_of_the_field() {
    let mut wrong = Vec::new();
    for path in markdown(Path::new("docs")).into_iter().chain(["README.md".into(), "SECURITY.md".into()]) {
        let mut is_code = false;
        for (at, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code {
                wrong.extend(wordings(line).into_iter().map(|flaw| format!("{}:{}: {flaw}", path.display(), at + 1)));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The texts in quotes, without the line breaks that the compiler removes.
fn strings(code: &str) -> Vec<String> {
    let token = Regex::new(r##"(?s)r#"(.*?)"#|'(?:\\.[^']*|[^\\'])'|"((?:[^"\\]|\\.)*)""##).unwrap();
    let continued = Regex::new(r"\\\n\s*").unwrap();
    let texts = token.captures_iter(code).filter_map(|found| found.get(1).or(found.get(2)));
    texts.map(|text| continued.replace_all(text.as_str(), "").into_owned()).collect()
}

#[test]
fn names_of_tests_begin_with_their_subject() {
    let mut wrong = Vec::new();
    for path in ["src", "tests", "benches"].into_iter().flat_map(sources) {
        for name in tests(&fs::read_to_string(&path).unwrap()) {
            let first = name.split('_').next().unwrap_or_default();
            let spaced = format!(" {} ", name.replace('_', " "));
            let word = WORDS.iter().find(|(word, _)| spaced.contains(&format!(" {word} ")));
            if TEST_OPENINGS.contains(&first) || word.is_some() {
                wrong.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert_eq!(
        wrong,
        Vec::<String>::new(),
        "a test name is a sentence with the subject first, in the words of the book"
    );
}

/// The names of the tests in a file.
fn tests(text: &str) -> Vec<String> {
    let (mut names, mut is_test) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")
            && std::mem::take(&mut is_test)
        {
            names.push(rest.split('(').next().unwrap_or_default().to_owned());
        }
    }
    names
}

#[test]
fn flaws_blocks_texts_and_names_are_found() {
    let text = "//! Front.\n//!\n//! Page.\n\n/// A `whoever` of\n/// the API. What it is and does.\nfn a() {} // \
                whoever\n// one\n";
    let found = blocks(text);
    assert_eq!(found.iter().map(|block| (block.line, block.lines.len())).collect::<Vec<_>>(), [(1, 3), (5, 2), (8, 1)]);
    assert_eq!(paragraphs(&found[0]), ["Front. ", " Page. "]);
    assert_eq!(flaws(&paragraphs(&found[1])[0]), ["a sentence begins with \"What\""]);
    assert_eq!(flaws("it is told, and made anew").len(), 2);
    assert_eq!(wordings("{at}: it is no list"), ["\"is no l\" (write: is not a, must be a)"]);
    assert_eq!(wordings("it has the form a=b, and leads out; The answer reverts it at once").len(), 4);
    assert_eq!(wordings("there is no `room`, {ours} is no longer there, and the id of the room is 1"), [] as [&str; 0]);
    assert_eq!(strings("f(\"a \\\"b\\\" \\\n   c\", '\"', r#\"d \"e\"\"#)"), ["a \\\"b\\\" c", "d \"e\""]);
    assert_eq!(tests("#[test]\nfn a_b() {}\nfn c() {}\n#[tokio::test(x)]\nasync fn d() {"), ["a_b", "d"]);
}
