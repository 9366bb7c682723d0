//! YAML text → a tree with positions. Nothing outside this file knows YAML.
//!
//! The tree is built from the parser's events and not through serde: serde hands over `0o17` as 15 and forgets quotes,
//! and stops at the first value that doesn't fit.

use super::diagnose::{Diagnostics, Span, tick};
use serde_saphyr::granit_parser::{self as granit, ErrorKind, Event, Parser, ScalarStyle, ScanError};
use std::collections::HashMap;

/// Nodes of a whole file after its aliases were followed. A nest of aliases that doubles at every level ends here.
const MAX_NODES: usize = 200_000;

/// Of a text that is copied as often as a short one.
const WEIGHT_BYTES: usize = 256;

const NUL: &str = "a NUL character";
const NO_NUL: &str = "no path, argument or variable can contain one: remove it";

/// A value and where it stands. Behind an alias, the value itself stands where the alias is, what is inside of it where it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub span: Span,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Scalar(Scalar),
    Seq(Vec<Node>),
    /// In file order, no key twice.
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scalar {
    /// As written, after quotes and escapes.
    pub text: String,
    /// Quoted, a block scalar or tagged `!!str`: text whatever it looks like.
    pub quoted: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: Key,
    pub value: Node,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub text: String,
    pub span: Span,
}

/// What a scalar is by the core schema of YAML 1.2, except that octal and hexadecimal forms stay text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Core {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A number that no `i64` or finite `f64` holds.
    Unfit,
    Text,
}

impl Scalar {
    #[must_use]
    pub fn core(&self) -> Core {
        if self.quoted {
            return Core::Text;
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => return Core::Null,
            "true" | "True" | "TRUE" => return Core::Bool(true),
            "false" | "False" | "FALSE" => return Core::Bool(false),
            _ => {}
        }
        let unsigned = self.text.strip_prefix(['+', '-']).unwrap_or(&self.text);
        if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(self.text.as_str(), ".nan" | ".NaN" | ".NAN") {
            return Core::Unfit;
        }
        if !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit()) {
            return self.text.parse().map_or(Core::Unfit, Core::Int);
        }
        if is_decimal(unsigned) {
            return self.text.parse().ok().filter(|value: &f64| value.is_finite()).map_or(Core::Unfit, Core::Float);
        }
        Core::Text
    }
}

/// `12`, `1.5`, `.5`, `2.`, each with an exponent or not.
fn is_decimal(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let exponent_fits = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent_fits
}

impl Node {
    #[must_use]
    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.kind {
            Kind::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    #[must_use]
    pub fn is_null(&self) -> bool {
        self.scalar().is_some_and(|scalar| scalar.core() == Core::Null)
    }

    /// What it is, for a message.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            Kind::Seq(_) => "a list",
            Kind::Map(_) => "a map",
            Kind::Scalar(scalar) if scalar.quoted => "quoted text",
            Kind::Scalar(scalar) => match scalar.core() {
                Core::Null => "nothing",
                Core::Bool(_) => "true or false",
                Core::Int(_) => "a whole number",
                Core::Float(_) | Core::Unfit => "a number",
                Core::Text => "text",
            },
        }
    }

    /// The same node in a longer text, where its own begins at `base`.
    fn moved(mut self, base: usize) -> Node {
        self.span = self.span.moved(base);
        match &mut self.kind {
            Kind::Scalar(_) => {}
            Kind::Seq(items) => *items = std::mem::take(items).into_iter().map(|item| item.moved(base)).collect(),
            Kind::Map(entries) => {
                let moved = |entry: Entry| Entry { key: Key { span: entry.key.span.moved(base), ..entry.key }, value: entry.value.moved(base) };
                *entries = std::mem::take(entries).into_iter().map(moved).collect();
            }
        }
        self
    }

    /// What a copy of it costs: its values; a long text counts as several.
    #[must_use]
    pub fn weight(&self) -> usize {
        match &self.kind {
            Kind::Scalar(scalar) => weight(&scalar.text),
            Kind::Seq(items) => 1 + items.iter().map(Node::weight).sum::<usize>(),
            Kind::Map(entries) => 1 + entries.iter().map(|entry| entry.value.weight() + entry.key.text.len() / WEIGHT_BYTES).sum::<usize>(),
        }
    }
}

fn weight(text: &str) -> usize {
    1 + text.len() / WEIGHT_BYTES
}

/// The tree of a file; likewise, and nothing isn't one. `has`: what such a file has.
pub fn read_file(source: &str, base: usize, has: &str, out: &mut Diagnostics) -> Option<Node> {
    let before = out.count();
    let root = read(source, base, out).filter(|root| !root.is_null());
    if root.is_none() && out.count() == before {
        out.error(Span { start: base, end: base }, "there is nothing in this file").hint(has);
    }
    root
}

/// The tree of a text that holds one document and begins at `base` of all texts; `None` when it has none or a fault.
pub fn read(source: &str, base: usize, out: &mut Diagnostics) -> Option<Node> {
    let mut own = Diagnostics::default();
    let root = parsed(source, &mut own);
    out.absorb(own, base);
    root.map(|root| root.moved(base))
}

fn parsed(source: &str, out: &mut Diagnostics) -> Option<Node> {
    // Ahead of the parser, which tells of those in a text without quotes only where that text begins.
    if let Some((start, c)) = source.char_indices().find(|(_, c)| is_never_raw(*c)) {
        let code = u32::from(c);
        let (message, hint) = match c {
            '\0' => (NUL.to_owned(), NO_NUL.to_owned()),
            _ => (
                format!("U+{code:04X}, a character that YAML takes only as an escape"),
                format!("remove it, or write `\\u{code:04x}` in double quotes"),
            ),
        };
        out.error(Span { start, end: start + c.len_utf8() }, message).label("here").hint(hint);
        return None;
    }
    let options = granit::options! { emit_comments: false, emit_unresolved_aliases: true };
    let mut reader = Reader { source, out, open: Vec::new(), anchors: HashMap::new(), n_nodes: 0, root: None, n_documents: 0, unmerged: false };
    for next in Parser::new_from_str_with_options(source, options) {
        match next {
            Ok((event, span)) => {
                reader.event(event, span)?;
            }
            Err(error) => {
                reader.syntax_error(&error);
                return None;
            }
        }
    }
    if reader.unmerged {
        return None;
    }
    reader.root.take()
}

/// A collection whose end hasn't come yet.
struct Open {
    start: usize,
    anchor: usize,
    content: Content,
}

enum Content {
    Seq(Vec<Node>),
    /// `key` is the one whose value comes next; `None` in it stands for a key that was reported and is left out.
    Map {
        entries: Vec<Entry>,
        key: Option<Option<Key>>,
    },
}

struct Reader<'a> {
    source: &'a str,
    out: &'a mut Diagnostics,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    n_nodes: usize,
    root: Option<Node>,
    n_documents: usize,
    /// A map lacks what it should have been given by `<<`: what is missing in it says nothing.
    unmerged: bool,
}

impl Reader<'_> {
    /// `None` ends the reading.
    fn event(&mut self, event: Event<'_>, span: granit::Span) -> Option<()> {
        let tag = event.tag().map(|tag| (tag.is_yaml_core_schema_tag("str"), tag.original()));
        if let Some((false, name)) = &tag {
            let place = span.tag_span().map_or_else(|| here(span), here);
            self.out.error(place, format!("the tag {} is not understood", tick(name))).hint("leave the tag out; quote a value to make it text");
        }
        match event {
            Event::DocumentStart(..) => {
                self.n_documents += 1;
                if self.n_documents > 1 {
                    self.out.error(here(span), "a second document starts here").hint("one file is one campaign: split it, or remove the `---`");
                    return None;
                }
            }
            Event::Scalar(text, style, anchor, _) => {
                if text.contains('\0') {
                    self.out.error(here(span), NUL).hint(NO_NUL).conclusive();
                }
                let quoted = style != ScalarStyle::Plain || tag.is_some_and(|(is_text, _)| is_text);
                let node = Node { span: here(span), kind: Kind::Scalar(Scalar { text: text.into_owned(), quoted }) };
                self.finished(node, anchor)?;
            }
            Event::SequenceStart(_, anchor, _) => self.open.push(Open { start: here(span).start, anchor, content: Content::Seq(Vec::new()) }),
            Event::MappingStart(_, anchor, _) => {
                self.open.push(Open { start: here(span).start, anchor, content: Content::Map { entries: Vec::new(), key: None } });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let open = self.open.pop()?;
                let end = here(span).end.max(open.start);
                let end = open.start + self.source.get(open.start..end).unwrap_or_default().trim_end().len();
                let kind = match open.content {
                    Content::Seq(items) => Kind::Seq(items),
                    Content::Map { entries, .. } => Kind::Map(self.checked(entries)),
                };
                self.finished(Node { span: Span { start: open.start, end }, kind }, open.anchor)?;
            }
            Event::Alias(anchor) => {
                let place = here(span);
                // An anchor that isn't complete yet stands around its own alias.
                let Some((cost, kind)) = self.anchors.get(&anchor).map(|node| (node.weight(), &node.kind)) else {
                    self.out.error(place, "an alias inside of what it stands for").hint("a value cannot contain itself: write the part out");
                    return None;
                };
                let kind = if self.n_nodes + cost <= MAX_NODES { Some(kind.clone()) } else { None };
                self.n_nodes += cost;
                self.within_budget(place)?;
                self.placed(Node { span: place, kind: kind? })?;
            }
            Event::UnresolvedAlias(name) => {
                let place = here(span);
                let text = format!("nothing is anchored as {}", tick(&format!("&{name}")));
                self.out.error(place, text).hint("an anchor stands before its aliases; a value that starts with `*` needs quotes").conclusive();
                self.placed(Node { span: place, kind: Kind::Scalar(Scalar { text: format!("*{name}"), quoted: true }) })?;
            }
            _ => {}
        }
        Some(())
    }

    /// A node is complete: remembered under its anchor, then put in its place.
    fn finished(&mut self, node: Node, anchor: usize) -> Option<()> {
        self.n_nodes += node.scalar().map_or(1, |scalar| weight(&scalar.text));
        if anchor != 0 {
            self.n_nodes += node.weight();
            self.anchors.insert(anchor, node.clone());
        }
        self.within_budget(node.span)?;
        self.placed(node)
    }

    fn placed(&mut self, node: Node) -> Option<()> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(Content::Seq(items)) => items.push(node),
            Some(Content::Map { entries, key }) => match key.take() {
                Some(Some(key)) => entries.push(Entry { key, value: node }),
                Some(None) => {}
                None => match node.kind {
                    Kind::Scalar(scalar) if scalar.quoted || !scalar.text.is_empty() => {
                        *key = Some(Some(Key { text: scalar.text, span: node.span }));
                    }
                    _ => {
                        *key = Some(None);
                        self.out
                            .error(node.span, "a key must be a name")
                            .label(format!("this is {}", node.describe()))
                            .hint("quote a value that starts with `{` or `[`");
                    }
                },
            },
        }
        Some(())
    }

    fn within_budget(&mut self, place: Span) -> Option<()> {
        if self.n_nodes <= MAX_NODES {
            return Some(());
        }
        let text = format!("the file grows beyond {MAX_NODES} values here");
        self.out.error(place, text).hint("aliases of aliases multiply: write a smaller file, or sweep an axis with fewer values");
        None
    }

    /// A map's entries with `<<` followed and repeated keys reported.
    fn checked(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut first: HashMap<String, Span> = HashMap::new();
        let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Some(earlier) = first.get(&entry.key.text) {
                let text = format!("the key {} is there twice", tick(&entry.key.text));
                self.out.error(entry.key.span, text).label("again here").also(*earlier, "first here").hint("keep one of them");
                continue;
            }
            first.insert(entry.key.text.clone(), entry.key.span);
            kept.push(entry);
        }
        if !first.contains_key("<<") {
            return kept;
        }
        let mut merged = Vec::with_capacity(kept.len());
        for entry in kept {
            if entry.key.text != "<<" {
                merged.push(entry);
                continue;
            }
            // Written keys win over merged ones, an earlier map over a later one.
            for from in self.merge_sources(entry) {
                if !first.contains_key(&from.key.text) {
                    first.insert(from.key.text.clone(), from.key.span);
                    merged.push(from);
                }
            }
        }
        merged
    }

    fn merge_sources(&mut self, entry: Entry) -> Vec<Entry> {
        let sources = match entry.value.kind {
            Kind::Seq(items) => items,
            _ => vec![entry.value],
        };
        let mut entries = Vec::new();
        for source in sources {
            match source.kind {
                Kind::Map(map) => entries.extend(map),
                _ => {
                    self.unmerged = true;
                    self.out
                        .error(source.span, "`<<` takes a map, or a list of maps")
                        .label(format!("this is {}", source.describe()))
                        .hint("write `<<: *name`");
                }
            }
        }
        entries
    }

    fn syntax_error(&mut self, error: &ScanError) {
        let at = error.marker().byte_offset().unwrap_or(0).min(self.source.len());
        let (message, hint) = explained(error.kind());
        let place = self.visible(at);
        self.out.error(place, message).label("here").hint(hint);
    }

    /// A character to point at: the end of a file is no place to look, the end of its last line is.
    fn visible(&self, at: usize) -> Span {
        match self.source.get(at..).and_then(|rest| rest.chars().next()) {
            Some(c) => Span { start: at, end: at + c.len_utf8() },
            None => {
                let end = self.source.trim_end().len();
                Span { start: end, end }
            }
        }
    }
}

/// No YAML has it as it is: it is none of what YAML 1.2.2 calls printable (5.1).
fn is_never_raw(c: char) -> bool {
    c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}') || matches!(c, '\u{fffe}' | '\u{ffff}')
}

fn here(span: granit::Span) -> Span {
    let range = span.byte_range().unwrap_or(0..0);
    Span { start: range.start, end: range.end.max(range.start) }
}

/// A fault of the syntax in plain words, and what to do.
fn explained(kind: &ErrorKind) -> (String, &'static str) {
    use ErrorKind as E;
    let (message, hint) = match kind {
        E::TabNotAllowed | E::TabInBlockIndentation | E::TabInIndentation | E::TabAtBlockScalarStart | E::TabInPlainScalar => {
            ("a tab where YAML allows only spaces", "indent with spaces")
        }
        E::UnclosedQuotedScalar => ("a quote is not closed", "add the closing quote; inside double quotes write `\\\"` for a quote"),
        E::UnclosedFlowCollection { .. } | E::UnexpectedEofFlowSequence | E::UnexpectedEofFlowMapping | E::UnexpectedEofImplicitFlowMapping => {
            ("a bracket is not closed", "close each `[` with `]` and each `{` with `}`")
        }
        E::MismatchedFlowCollectionEnd { .. } | E::MisplacedFlowCollectionEnd => {
            ("a closing bracket without the one that opens it", "close each `[` with `]` and each `{` with `}`")
        }
        E::ExpectedFlowMappingSeparator | E::ExpectedFlowSequenceSeparator => {
            ("a comma or a closing bracket is missing", "separate values in brackets with `,`, and close each `[` with `]` and each `{` with `}`")
        }
        E::MappingValueNotAllowed | E::InvalidColonPlacement => ("a `:` in the middle of a value", "quote a value that contains `: `"),
        E::UnexpectedCharacter { .. } => ("a value cannot start with this character", "quote the value"),
        E::RecursionLimitExceeded => ("too many levels of nesting", "a campaign needs no more than a handful"),
        E::SimpleKeyExpected | E::ExpectedBlockMappingKey | E::InvalidSimpleKey => {
            ("a key without its `:`, or a line that is indented wrongly", "write `key: value`, each key of a map in the same column")
        }
        E::InvalidIndentation
        | E::ExpectedBlockSequenceEntry
        | E::InvalidFlowScalarIndent
        | E::InvalidQuotedScalarIndent
        | E::BlockSequenceEntryNotAllowed => ("a line that is indented wrongly", "put keys of one map, and the `-` of one list, in the same column"),
        E::UnknownQuotedScalarEscape => ("an unknown escape in double quotes", "write `\\\\` for a backslash, or use single quotes"),
        _ => return (format!("not YAML: {kind}"), "check the line and the one before it"),
    };
    (message.to_owned(), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(source: &str) -> Node {
        let mut out = Diagnostics::default();
        let node = read(source, 0, &mut out);
        let (errors, _) = out.finish();
        assert!(errors.is_empty(), "{errors:?}");
        node.expect("a tree")
    }

    fn faults(source: &str) -> Vec<String> {
        let mut out = Diagnostics::default();
        read_file(source, 0, "", &mut out);
        out.finish().0.into_iter().map(|d| d.message).collect()
    }

    fn entries(node: &Node) -> Vec<(&str, String)> {
        let Kind::Map(entries) = &node.kind else { panic!("{node:?}") };
        entries.iter().map(|e| (e.key.text.as_str(), e.value.scalar().map_or_else(|| e.value.describe().to_owned(), |s| s.text.clone()))).collect()
    }

    #[test]
    fn scalars_keep_their_text_and_have_the_type_of_the_core_schema() {
        for (text, core) in [
            ("on", Core::Text),
            ("off", Core::Text),
            ("none", Core::Text),
            ("yes", Core::Text),
            ("0o17", Core::Text),
            ("0x1F", Core::Text),
            ("1_000", Core::Text),
            ("12:30:45", Core::Text),
            ("2024-01-01", Core::Text),
            ("1.2.3", Core::Text),
            ("-", Core::Text),
            (".", Core::Text),
            ("e5", Core::Text),
            ("1e", Core::Text),
            ("inf", Core::Text),
            ("nan", Core::Text),
            ("true", Core::Bool(true)),
            ("False", Core::Bool(false)),
            ("~", Core::Null),
            ("null", Core::Null),
            ("", Core::Null),
            ("7", Core::Int(7)),
            ("-7", Core::Int(-7)),
            ("+7", Core::Int(7)),
            ("007", Core::Int(7)),
            ("9223372036854775807", Core::Int(i64::MAX)),
            ("9223372036854775808", Core::Unfit),
            ("1.5", Core::Float(1.5)),
            (".5", Core::Float(0.5)),
            ("2.", Core::Float(2.0)),
            ("1e3", Core::Float(1000.0)),
            ("-1.5E-2", Core::Float(-0.015)),
            ("1e999", Core::Unfit),
            (".inf", Core::Unfit),
            ("-.inf", Core::Unfit),
            (".nan", Core::Unfit),
        ] {
            assert_eq!(Scalar { text: text.into(), quoted: false }.core(), core, "{text}");
            assert_eq!(Scalar { text: text.into(), quoted: true }.core(), Core::Text, "quoted {text}");
        }
    }

    #[test]
    fn spans_cover_what_was_written() {
        let source = "a: [1, \"x y\"]\nb:\n  c: plain\n  d: *z\n".replace("*z", "'z'");
        let node = tree(&source);
        let Kind::Map(entries) = &node.kind else { panic!() };
        let text = |span: Span| &source[span.start..span.end];
        assert_eq!(text(entries[0].key.span), "a");
        assert_eq!(text(entries[0].value.span), "[1, \"x y\"]");
        assert_eq!(text(entries[1].value.span), "c: plain\n  d: 'z'");
        let Kind::Map(inner) = &entries[1].value.kind else { panic!() };
        assert_eq!(text(inner[0].value.span), "plain");
        assert_eq!(text(inner[1].value.span), "'z'");
    }

    #[test]
    fn aliases_and_merge_keys_are_followed() {
        let node = tree("x-a: &a { p: 1, q: 2 }\nb:\n  q: 3\n  <<: *a\n  r: 4\nc: *a\n");
        let Kind::Map(top) = &node.kind else { panic!() };
        assert_eq!(entries(&top[1].value), [("q", "3".into()), ("p", "1".into()), ("r", "4".into())]);
        assert_eq!(entries(&top[2].value), [("p", "1".into()), ("q", "2".into())]);
        let list = tree("a: &a {p: 1}\nb: &b {p: 2, q: 2}\nc: {<<: [*a, *b]}\n");
        let Kind::Map(top) = &list.kind else { panic!() };
        assert_eq!(entries(&top[2].value), [("p", "1".into()), ("q", "2".into())]);
    }

    #[test]
    fn line_ends_and_explicit_text_are_understood() {
        assert_eq!(entries(&tree("a: 1\r\nb: x\r\n")), [("a", "1".into()), ("b", "x".into())]);
        let node = tree("---\na: !!str 5\nb: |\n  two\n  lines\n...\n");
        let Kind::Map(top) = &node.kind else { panic!() };
        assert!(top.iter().all(|entry| entry.value.scalar().is_some_and(|s| s.quoted)));
    }

    #[test]
    fn a_nest_of_aliases_ends_at_the_budget() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..20 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("a{level}: &a{level} [{aliases}]\n");
        }
        assert_eq!(faults(&bomb), [format!("the file grows beyond {MAX_NODES} values here")]);
    }

    #[test]
    fn each_fault_of_the_file_as_a_whole_has_its_own_message() {
        for (source, message) in [
            ("", "there is nothing in this file"),
            ("# only a comment\n", "there is nothing in this file"),
            ("---\n", "there is nothing in this file"),
            ("a: 1\n---\nb: 2\n", "a second document starts here"),
            ("a: 1\na: 2\n", "the key `a` is there twice"),
            ("a:\n\tb: 1\n", "a tab where YAML allows only spaces"),
            ("a: [1, 2\n", "a bracket is not closed"),
            ("a: \"x\n", "a quote is not closed"),
            ("a: *b\n", "nothing is anchored as `&b`"),
            ("a: &a [*a]\n", "an alias inside of what it stands for"),
            ("a: !cpu 5\n", "the tag `!cpu` is not understood"),
            ("[a]: 5\n", "a key must be a name"),
            ("a: { <<: 5 }\n", "`<<` takes a map, or a list of maps"),
            ("a: b: c\n", "a `:` in the middle of a value"),
            ("a: @x\n", "a value cannot start with this character"),
        ] {
            assert_eq!(faults(source), [message], "{source:?}");
        }
    }

    #[test]
    fn a_character_that_yaml_does_not_take_is_named_by_its_code_where_it_stands() {
        for (c, code) in [('\u{7f}', "U+007F"), ('\u{9b}', "U+009B"), ('\u{1b}', "U+001B"), ('\u{ffff}', "U+FFFF")] {
            for text in ["a: \"x y^z\"", "a: 'x^'", "a: b ^c", "a: |\n  b\n  c^\n", "a: 1 # b^\n", "a^: 1", "^"] {
                let source = text.replace('^', &c.to_string());
                let mut out = Diagnostics::default();
                assert!(read(&source, 0, &mut out).is_none());
                let (errors, _) = out.finish();
                assert_eq!(errors.len(), 1, "{source:?}");
                assert!(errors[0].message.starts_with(code), "{source:?}: {}", errors[0].message);
                assert_eq!(Some(errors[0].labels[0].0.start), text.find('^'), "{source:?}");
            }
        }
        assert_eq!(faults("a: 1\n\0b: 2\n"), [NUL]);
        assert_eq!(entries(&tree("a: \"\\u007f\"\nb: \u{85}c\td\n")), [("a", "\u{7f}".into()), ("b", "\u{85}c\td".into())]);
    }

    #[test]
    fn any_text_gives_a_tree_or_a_fault() {
        let pieces = ["a", ":", " ", "\n", "-", "[", "]", "{", "}", "&x", "*x", "|", "\"", "'", "#", "\t", "é", "<<", "!", "%", "?", ","];
        let mut state = 7_u64;
        for _ in 0..5000 {
            let mut source = String::new();
            for _ in 0..12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                source += pieces[(state >> 33) as usize % pieces.len()];
            }
            let mut out = Diagnostics::default();
            let node = read_file(&source, 0, "", &mut out);
            assert!(node.is_some() || !out.finish().0.is_empty(), "{source:?}");
        }
    }
}
