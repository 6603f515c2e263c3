//! The message of a commit: a template with a subset of Go's templates, or the list of the changes.
//!
//! The subset has fields (`.Values.NAME`), variables, `range`, `if` with `else`, `end`, comments, and `-` to trim white
//! space. Invariant: a template that needs more is refused with its line, and the length of a message is bounded.

use std::collections::BTreeMap;

use mainstay_manifest::MarkedChange;

/// Maximum length of a message, in bytes.
const LONGEST: usize = 16 << 10;
/// Maximum number of evaluated parts of a template.
const STEPS: usize = 20_000;
/// Maximum number of changes that the default message lists.
const LISTED: usize = 50;

/// A value in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Text(String),
    /// Fields, and the text of the whole.
    Fields(BTreeMap<String, Data>, String),
    /// Keys and items.
    List(Vec<(Data, Data)>),
}

/// A change with its file.
pub(super) type Change = (String, MarkedChange);

/// Returns the data of a template.
pub(super) fn data(automation: &str, values: &BTreeMap<String, String>, changes: &[Change]) -> Data {
    let text = |text: &str| Data::Text(text.to_owned());
    let fields = |all: &[(&str, Data)]| {
        Data::Fields(all.iter().map(|(name, data)| ((*name).to_owned(), data.clone())).collect(), String::new())
    };
    let change = |change: &MarkedChange| {
        fields(&[("OldValue", text(&change.old)), ("NewValue", text(&change.new)), ("Setter", text(&change.marker))])
    };
    let numbered = |all: Vec<Data>| {
        Data::List((0..).zip(all).map(|(at, item): (usize, Data)| (Data::Text(at.to_string()), item)).collect())
    };
    let object = |change: &MarkedChange| {
        let [kind, namespace, name] = &change.object;
        let named = [("Kind", text(kind)), ("Namespace", text(namespace)), ("Name", text(name))];
        let Data::Fields(fields, _) = fields(&named) else { return text("") };
        Data::Fields(fields, format!("{kind}/{namespace}/{name}"))
    };
    let of_objects = |changes: &[&Change]| {
        let mut objects: BTreeMap<&[String; 3], Vec<&MarkedChange>> = BTreeMap::new();
        for (_, one) in changes.iter().copied() {
            objects.entry(&one.object).or_default().push(one);
        }
        let of = |all: Vec<&MarkedChange>| (object(all[0]), numbered(all.into_iter().map(change).collect()));
        Data::List(objects.into_values().map(of).collect())
    };
    let mut files: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
    for one in changes {
        files.entry(&one.0).or_default().push(one);
    }
    let files = Data::List(files.into_iter().map(|(file, changes)| (text(file), of_objects(&changes))).collect());
    let all: Vec<&Change> = changes.iter().collect();
    let list = numbered(changes.iter().map(|(_, one)| change(one)).collect());
    let changed = fields(&[("FileChanges", files), ("Objects", of_objects(&all)), ("Changes", list)]);
    let values = values.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    fields(&[
        ("AutomationObject", text(automation)),
        ("Values", Data::Fields(values, String::new())),
        ("Changed", changed),
    ])
}

/// Returns the message without a template.
pub(super) fn listed(changes: &[Change]) -> String {
    let mut message = format!("Update {} image{}\n\n", changes.len(), if changes.len() == 1 { "" } else { "s" });
    for (file, change) in changes.iter().take(LISTED) {
        message += &format!("{file}:{}: {} -> {}\n", change.line, change.old, change.new);
    }
    if let Some(more) = changes.len().checked_sub(LISTED).filter(|more| *more > 0) {
        message += &format!("and {more} more\n");
    }
    message
}

/// A parsed template.
#[derive(Clone, Debug)]
pub(super) struct Template(Vec<Node>);

#[derive(Clone, Debug)]
enum Node {
    Text(String),
    Print(Path),
    /// The variables for key and item, the list, the body, and the body for an empty list.
    Range([Option<String>; 2], Path, Vec<Node>, Vec<Node>),
    If(Path, Vec<Node>, Vec<Node>),
}

/// A variable, or the present item, and fields below it.
#[derive(Clone, Debug)]
struct Path {
    variable: Option<String>,
    fields: Vec<String>,
}

/// The end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Text,
    Else,
    Close,
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// Fails with the line and the part that is not supported.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { text, at: 0, trims: false, depth: 0 };
        match parser.block()? {
            (nodes, End::Text) => Ok(Self(nodes)),
            (_, End::Else | End::Close) => Err(parser.fault("there is no block that ends here")),
        }
    }

    /// Returns the message. A field that does not exist is empty.
    ///
    /// # Errors
    /// The message is too long.
    pub(super) fn render(&self, data: &Data) -> Result<String, String> {
        let mut out = Output { text: String::new(), steps: 0 };
        let mut variables = vec![("$".to_owned(), data)];
        out.nodes(&self.0, data, &mut variables)?;
        Ok(out.text)
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// Whether white space at the beginning of the next text is dropped.
    trims: bool,
    depth: usize,
}

impl Parser<'_> {
    fn fault(&self, why: &str) -> String {
        let line = self.text[..self.at].matches('\n').count() + 1;
        format!("line {line}: {why}")
    }

    fn block(&mut self) -> Result<(Vec<Node>, End), String> {
        self.depth += 1;
        if self.depth > 10 {
            return Err(self.fault("blocks are nested too deeply"));
        }
        let read = self.nodes();
        self.depth -= 1;
        read
    }

    fn nodes(&mut self) -> Result<(Vec<Node>, End), String> {
        let mut nodes = Vec::new();
        loop {
            let Some(action) = self.action(&mut nodes)? else { return Ok((nodes, End::Text)) };
            let words: Vec<&str> = action.split_whitespace().collect();
            match &words[..] {
                ["end"] => return Ok((nodes, End::Close)),
                ["else"] => return Ok((nodes, End::Else)),
                ["if", path] => {
                    let path = self.path(path)?;
                    let (body, other) = self.bodies()?;
                    nodes.push(Node::If(path, body, other));
                }
                ["range", rest @ ..] => {
                    let (names, path) = match rest {
                        [key, item, ":=", path] => {
                            let key = key.strip_suffix(',').ok_or_else(|| self.unsupported(&action))?;
                            ([Some(self.variable(key)?), Some(self.variable(item)?)], path)
                        }
                        [item, ":=", path] => ([None, Some(self.variable(item)?)], path),
                        [path] => ([None, None], path),
                        _ => return Err(self.unsupported(&action)),
                    };
                    let path = self.path(path)?;
                    let (body, other) = self.bodies()?;
                    nodes.push(Node::Range(names, path, body, other));
                }
                [path] => nodes.push(Node::Print(self.path(path)?)),
                _ => return Err(self.unsupported(&action)),
            }
        }
    }

    /// Returns the body of a block, and that after its `else`.
    fn bodies(&mut self) -> Result<(Vec<Node>, Vec<Node>), String> {
        let (body, end) = self.block()?;
        let (other, end) = if end == End::Else { self.block()? } else { (Vec::new(), end) };
        if end == End::Close { Ok((body, other)) } else { Err(self.fault("a block has no {{ end }}")) }
    }

    /// Adds the text before the next action, and returns the action; `None` at the end. Comments are dropped.
    fn action(&mut self, nodes: &mut Vec<Node>) -> Result<Option<String>, String> {
        loop {
            let rest = &self.text[self.at..];
            let begin = rest.find("{{");
            let mut text = &rest[..begin.unwrap_or(rest.len())];
            if self.trims {
                text = text.trim_start();
            }
            let Some(begin) = begin else {
                self.at = self.text.len();
                nodes.push(Node::Text(text.to_owned()));
                return Ok(None);
            };
            self.at += begin;
            let end = self.text[self.at..].find("}}").ok_or_else(|| self.fault("{{ has no }}"))?;
            let inner = &self.text[self.at + 2..self.at + end];
            let (trims_before, inner) =
                match inner.strip_prefix('-').filter(|rest| rest.starts_with(char::is_whitespace)) {
                    Some(rest) => (true, rest),
                    None => (false, inner),
                };
            let (trims, inner) = match inner.strip_suffix('-').filter(|rest| rest.ends_with(char::is_whitespace)) {
                Some(rest) => (true, rest),
                None => (false, inner),
            };
            nodes.push(Node::Text(if trims_before { text.trim_end() } else { text }.to_owned()));
            (self.at, self.trims) = (self.at + end + 2, trims);
            let inner = inner.trim();
            if !(inner.starts_with("/*") && inner.ends_with("*/")) {
                return Ok(Some(inner.to_owned()));
            }
        }
    }

    fn unsupported(&self, action: &str) -> String {
        let shown: String = action.chars().filter(|c| !c.is_control()).take(60).collect();
        let has = "fields, variables, range, if, else and end";
        self.fault(&format!("{{{{ {shown} }}}} is not supported; a message has {has}"))
    }

    fn variable(&self, text: &str) -> Result<String, String> {
        let name = text.strip_prefix('$').filter(|name| is_name(name));
        name.map(|_| text.to_owned()).ok_or_else(|| self.unsupported(text))
    }

    fn path(&self, text: &str) -> Result<Path, String> {
        let (variable, fields) = match text.strip_prefix('$') {
            Some(rest) => {
                let (name, fields) = rest.find('.').map_or((rest, ""), |at| rest.split_at(at));
                if !(name.is_empty() || is_name(name)) {
                    return Err(self.unsupported(text));
                }
                (Some(format!("${name}")), fields)
            }
            None if text.starts_with('.') => (None, text),
            None => return Err(self.unsupported(text)),
        };
        let fields: Vec<String> = fields.split('.').skip(1).map(str::to_owned).collect();
        let fields = if fields == [""] { Vec::new() } else { fields };
        if fields.iter().all(|field| is_name(field)) {
            Ok(Path { variable, fields })
        } else {
            Err(self.unsupported(text))
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

struct Output {
    text: String,
    steps: usize,
}

impl Output {
    fn nodes<'d>(
        &mut self,
        nodes: &[Node],
        dot: &'d Data,
        variables: &mut Vec<(String, &'d Data)>,
    ) -> Result<(), String> {
        for node in nodes {
            self.steps += 1;
            if self.steps > STEPS || self.text.len() > LONGEST {
                return Err(format!(
                    "the message has more than {LONGEST} bytes; shorten spec.git.commit.messageTemplate"
                ));
            }
            match node {
                Node::Text(text) => self.text.push_str(text),
                Node::Print(path) => match found(path, dot, variables) {
                    Some(Data::Text(text) | Data::Fields(_, text)) => self.text.push_str(text),
                    Some(Data::List(_)) | None => {}
                },
                Node::If(path, body, other) => {
                    let holds = match found(path, dot, variables) {
                        Some(Data::Text(text)) => !text.is_empty(),
                        Some(Data::List(items)) => !items.is_empty(),
                        Some(Data::Fields(fields, _)) => !fields.is_empty(),
                        None => false,
                    };
                    self.nodes(if holds { body } else { other }, dot, variables)?;
                }
                Node::Range(names, path, body, other) => {
                    let items = match found(path, dot, variables) {
                        Some(Data::List(items)) => &items[..],
                        _ => &[],
                    };
                    if items.is_empty() {
                        self.nodes(other, dot, variables)?;
                    }
                    for (key, item) in items {
                        let known = variables.len();
                        for (name, data) in names.iter().zip([key, item]) {
                            variables.extend(name.iter().map(|name| (name.clone(), data)));
                        }
                        self.nodes(body, item, variables)?;
                        variables.truncate(known);
                    }
                }
            }
        }
        Ok(())
    }
}

fn found<'d>(path: &Path, dot: &'d Data, variables: &[(String, &'d Data)]) -> Option<&'d Data> {
    let begin = match &path.variable {
        Some(name) => variables.iter().rev().find(|(known, _)| known == name).map(|(_, data)| *data)?,
        None => dot,
    };
    path.fields.iter().try_fold(begin, |data, field| match data {
        Data::Fields(fields, _) => fields.get(field),
        Data::Text(_) | Data::List(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<Change> {
        let change = |file: &str, line, name: &str| {
            let object = ["Deployment".to_owned(), "shop".to_owned(), name.to_owned()];
            let [marker, old, new] = ["shop:web:tag", "1.0", "1.1"].map(str::to_owned);
            (file.to_owned(), MarkedChange { line, marker, old, new, object })
        };
        vec![change("a.yaml", 3, "web"), change("a.yaml", 9, "web"), change("b.yaml", 1, "api")]
    }

    fn rendered(template: &str) -> String {
        let values = BTreeMap::from([("cluster".to_owned(), "prod".to_owned())]);
        let data = data("shop/images", &values, &changes());
        Template::parse(template).unwrap().render(&data).unwrap()
    }

    #[test]
    fn renders_the_template_of_flux() {
        let template = "Automated image update\n\nAutomation name: {{ .AutomationObject }}\n\nFiles:\n\
            {{ range $filename, $_ := .Changed.FileChanges -}}\n- {{ $filename }}\n{{ end -}}\n\nObjects:\n\
            {{ range $resource, $changes := .Changed.Objects -}}\n- {{ $resource.Kind }} {{ $resource.Name }}\n  Changes:\n\
            {{- range $_, $change := $changes }}\n    - {{ $change.OldValue }} -> {{ $change.NewValue }}\n{{ end -}}\n{{ end -}}\n";
        let expected = "Automated image update\n\nAutomation name: shop/images\n\nFiles:\n- a.yaml\n- b.yaml\nObjects:\n\
            - Deployment api\n  Changes:\n    - 1.0 -> 1.1\n- Deployment web\n  Changes:\n    - 1.0 -> 1.1\n\n    - 1.0 -> 1.1\n";
        assert_eq!(rendered(template), expected);
    }

    #[test]
    fn renders_values_conditions_and_missing_fields() {
        assert_eq!(
            rendered("[{{ .Values.cluster }}]{{/* a comment */}} {{ .Values.other }}{{ $.Values.cluster }}"),
            "[prod] prod"
        );
        assert_eq!(
            rendered("{{ if .Values.cluster }}a{{ else }}b{{ end }}{{ if .Values.x }}a{{ else }}b{{ end }}"),
            "ab"
        );
        assert_eq!(rendered("{{ range .Changed.Changes }}{{ .Setter }} {{ end }}"), "shop:web:tag ".repeat(3));
        assert_eq!(rendered("{{ range .Values.x }}a{{ else }}none{{ end }}"), "none");
        assert_eq!(
            rendered("{{ range $o, $_ := .Changed.Objects }}{{ $o }} {{ end }}"),
            "Deployment/shop/api Deployment/shop/web "
        );
    }

    #[test]
    fn refuses_other_templates_with_their_line() {
        for (template, part) in [
            ("a\n{{ printf \"%s\" .Values.a }}", "line 2: {{ printf \"%s\" .Values.a }} is not supported"),
            ("{{ .Values.a | quote }}", "line 1: "),
            ("{{ range .A }}", "a block has no {{ end }}"),
            ("{{ end }}", "there is no block"),
            ("{{ .A", "{{ has no }}"),
            ("{{ template \"a\" }}", "is not supported"),
            ("{{ .A.b-c }}", "is not supported"),
        ] {
            let why = Template::parse(template).unwrap_err();
            assert!(why.contains(part), "{template}: {why}");
        }
        let deep = "{{ if .A }}".repeat(30);
        assert!(Template::parse(&deep).unwrap_err().contains("too deeply"));
        let long = "{{ range .Changed.Changes }}".repeat(5) + &"x".repeat(900) + &"{{ end }}".repeat(5);
        let data = data("a/b", &BTreeMap::new(), &changes());
        // Inner ranges have no such field, so only the outer one repeats.
        assert!(Template::parse(&long).unwrap().render(&data).is_ok());
        let wide = "{{ range .Changed.Changes }}{{ range $.Changed.Changes }}{{ range $.Changed.Changes }}".to_owned()
            + &"x".repeat(900)
            + "{{ end }}{{ end }}{{ end }}";
        assert!(Template::parse(&wide).unwrap().render(&data).unwrap_err().contains("more than 16384 bytes"));
    }

    #[test]
    fn lists_the_changes_without_a_template() {
        assert_eq!(listed(&changes()[..1]), "Update 1 image\n\na.yaml:3: 1.0 -> 1.1\n");
        let many: Vec<Change> = changes().into_iter().cycle().take(60).collect();
        assert!(listed(&many).ends_with("and 10 more\n"));
    }
}
