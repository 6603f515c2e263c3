//! Plans a pip installation from a `requirements.txt`, and finds the files that it reads.
//!
//! Not here: resolving versions, which pip does.

use std::collections::BTreeSet;

use super::{Inputs, Plan, Reader, parent};
use crate::build::fetch::{Error, Finding, Place, Tree};

/// Options whose value is a file or directory, and the kind of that file or directory.
const NAMING: [(&[&str], Names); 4] = [
    (&["-r", "--requirement"], Names::Requirements),
    (&["-c", "--constraint"], Names::Constraints),
    (&["-f", "--find-links"], Names::Links),
    (&["-e", "--editable"], Names::Editable),
];
/// Maximum number of paths.
const FILES: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// A package to install.
    Package,
    Requirements,
    Constraints,
    /// A directory of packages.
    Links,
    Editable,
}

/// Reads the `requirements.txt` named `file` at `at`, and the files that it refers to.
pub(super) fn plan(tree: &Tree, file: &str, at: &str, read: &mut Reader) -> Result<Plan, Error> {
    let mut paths = BTreeSet::from([file.to_owned()]);
    let mut open = vec![(file.to_owned(), at.to_owned())];
    let mut wanted = false;
    while let Some((file, at)) = open.pop() {
        if paths.len() > FILES {
            return Err(Finding::dependencies("more than 1000 files and packages of the source are named").into());
        }
        let bytes = read(&at)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let line = String::from_utf8_lossy(&bytes[..error.valid_up_to()]).matches('\n').count() + 1;
            Finding::dependencies(format!("{file} is not UTF-8 text: line {line}"))
        })?;
        for (number, line) in logical_lines(text.trim_start_matches('\u{feff}')) {
            let place = format!("{file}, line {number}");
            let Some((path, names)) = named(&line) else {
                wanted |= !line.starts_with('-');
                continue;
            };
            wanted |= names == Names::Package;
            if names == Names::Editable {
                let text = format!("{place}: an editable install cannot be put into an image; leave out `-e`");
                return Err(Finding::dependencies(text).into());
            }
            if path.contains("://") && !path.starts_with("file:") {
                wanted |= names == Names::Requirements;
                continue;
            }
            // pip resolves file names relative to the referring file, and packages relative to its working directory.
            let base = if names == Names::Package { "" } else { parent(&file) };
            let (path, at) = find(tree, &place, base, &path)?;
            if paths.insert(path.clone()) && names == Names::Requirements && !tree.is_directory(&at) {
                open.push((path, at));
            }
        }
    }
    Ok(if wanted { Plan::Pip { inputs: Inputs(tree.closure(paths)) } } else { Plan::Nothing })
}

/// Returns the path from the root of the source, and the target of that path.
fn find(tree: &Tree, place: &str, base: &str, path: &str) -> Result<(String, String), Finding> {
    let path = path.strip_prefix("file:").unwrap_or(path);
    let path = path.strip_prefix("//localhost").or_else(|| path.strip_prefix("//")).unwrap_or(path);
    let full = if base.is_empty() || path.starts_with('/') { path.to_owned() } else { format!("{base}/{path}") };
    match tree.resolve(&full) {
        Place::At(at) => Ok((full, at)),
        Place::Nowhere => {
            Err(Finding::source(format!("{place}: there is no file or directory `{path}` in the source")))
        }
        Place::Outside | Place::Loop => Err(Finding::source(format!(
            "{place}: `{path}` is outside of the Function's directory; move it there, or let `baseDir` name a directory \
             that holds both"
        ))),
    }
}

/// Returns the logical lines without comments, each with the number of its first physical line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut pending: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let is_comment = line.trim_start().starts_with('#');
        let (number, mut joined) = pending.take().unwrap_or((index + 1, String::new()));
        if let Some(start) = line.strip_suffix('\\').filter(|_| !is_comment) {
            joined.push_str(start);
            pending = Some((number, joined));
        } else {
            joined.push_str(line);
            lines.push((number, joined));
        }
    }
    lines.extend(pending);
    let bare = |line: String| {
        let comment =
            line.match_indices('#').find(|(at, _)| line[..*at].chars().next_back().is_none_or(char::is_whitespace));
        comment.map_or(line.as_str(), |(at, _)| &line[..at]).trim().to_owned()
    };
    lines.into_iter().map(|(number, line)| (number, bare(line))).filter(|(_, line)| !line.is_empty()).collect()
}

/// Returns the path in a line, if any, and its kind.
fn named(line: &str) -> Option<(String, Names)> {
    option(line).or_else(|| if line.starts_with('-') { None } else { Some((local(line)?, Names::Package)) })
}

/// Parses an option with a file: `-r x`, `-rx`, `--requirement x`, `--requirement=x`.
fn option(line: &str) -> Option<(String, Names)> {
    for (spellings, names) in NAMING {
        for spelling in spellings {
            let Some(rest) = line.strip_prefix(spelling) else { continue };
            let is_long = spelling.starts_with("--");
            let value = rest.trim_start_matches(['=', ' ', '\t']);
            if is_long && rest.len() == value.len() {
                continue;
            }
            return Some((value.trim().trim_matches(['"', '\'']).to_owned(), names));
        }
    }
    None
}

/// Returns the path of a requirement; `None` if it is a name or a URL.
fn local(line: &str) -> Option<String> {
    let line = line.split(" --").next().unwrap_or(line);
    let line = line.split_once(" ;").or_else(|| line.split_once("; ")).map_or(line, |(line, _)| line).trim();
    if let Some((_, address)) = line.split_once('@').filter(|(name, _)| !name.contains([':', '/'])) {
        let address = address.trim();
        return address.starts_with("file:").then(|| address.to_owned());
    }
    if line.starts_with("file:") {
        return Some(line.split('#').next().unwrap_or(line).to_owned());
    }
    if line.contains("://") {
        return None;
    }
    let path = match line.split_once('[') {
        Some((path, _)) if line.ends_with(']') => path.trim(),
        _ => line,
    };
    let lower = path.to_ascii_lowercase();
    let is_archive =
        [".whl", ".zip", ".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz"].iter().any(|end| lower.ends_with(end));
    (path.starts_with('.') || path.contains('/') || is_archive).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;

    #[test]
    fn comments_and_options_need_no_pip() {
        for text in
            ["", "\n\n", "# a\n  # b", "--index-url https://example.org/simple\n--pre\n-c https://example.org/c"]
        {
            check("requirements.txt", &[("requirements.txt", text)], "nothing");
        }
        let remote = [("requirements.txt", "-r https://example.org/requirements.txt")];
        check("requirements.txt", &remote, "pip: requirements.txt");
    }

    #[test]
    fn takes_files_that_are_named() {
        let files = [
            ("requirements.txt", "requests==2.32.3 # why\n-r more/base.txt\n--constraint=limits.txt\n"),
            ("more/base.txt", "-r other.txt\nflask \\\n  >=3\n"),
            ("more/other.txt", "-r base.txt"),
            ("limits.txt", "idna<4"),
            ("handler.py", ""),
        ];
        let expected = "pip: limits.txt more more/base.txt more/other.txt requirements.txt";
        check("requirements.txt", &files, expected);
    }

    #[test]
    fn takes_local_packages() {
        let text = "./a-1-py3-none-any.whl ; python_version > '3'\nwheels/b-1-py3-none-any.whl --hash=sha256:00\nc @ file:./pkg\n\
                    ./pkg[extra]\n-f wheels\ngit+https://example.org/x.git@main\nd @ https://example.org/d-1.tar.gz\n";
        let files = [
            ("requirements.txt", text),
            ("a-1-py3-none-any.whl", ""),
            ("wheels/b-1-py3-none-any.whl", ""),
            ("pkg/setup.py", ""),
            ("handler.py", ""),
        ];
        let expected = "pip: a-1-py3-none-any.whl pkg pkg/setup.py requirements.txt wheels wheels/b-1-py3-none-any.whl";
        check("requirements.txt", &files, expected);
    }

    #[test]
    fn says_which_line_cannot_be() {
        check(
            "requirements.txt",
            &[("requirements.txt", "a\n-e ./pkg"), ("pkg/setup.py", "")],
            "DependencyInvalid: requirements.txt, line 2: an editable install cannot be put into an image; leave out `-e`",
        );
        check(
            "requirements.txt",
            &[("requirements.txt", "\n./gone.whl")],
            "SourceInvalid: requirements.txt, line 2: there is no file or directory `./gone.whl` in the source",
        );
        for path in ["../x", "/x", "file:///x", "./a/../../x", "-r ../x", "x @ file:///x"] {
            let shown = path.trim_start_matches("-r ").trim_start_matches("x @ ").trim_start_matches("file://");
            let expected = format!(
                "SourceInvalid: requirements.txt, line 1: `{shown}` is outside of the Function's directory; move it \
                 there, or let `baseDir` name a directory that holds both"
            );
            check("requirements.txt", &[("requirements.txt", path)], &expected);
        }
    }
}
