//! Located remarks about a campaign file: collected while it is decoded, shown all at once.

use super::sources::Sources;
use crate::hidden::visible;
use indexmap::IndexMap;
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};
use std::{cell::Cell, collections::HashSet, fmt, fmt::Write as _};

/// Columns that a report is wrapped at where nobody says otherwise.
const WIDTH: usize = 100;

/// More than these are counted, not shown: a file with that many faults has one cause.
const SHOWN: usize = 200;

/// What a remark about later builds ends with.
pub(super) const NOT_YET: &str = " is not in this build yet";

/// Bytes of a line that is shown whole.
const LONGEST_LINE: usize = 400;

/// Bytes in front of and behind a place in a longer one.
const AROUND: usize = 60;

/// In front of a hint.
const HINT: &str = "  hint: ";

/// A place in the file: byte offsets into its text, `end` exclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    /// The same place in a longer text, where this one begins at `base`.
    #[must_use]
    pub fn moved(self, base: usize) -> Span {
        Span { start: self.start + base, end: self.end + base }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// One remark. Without a label it is about the file as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Lowercase fragment.
    pub message: String,
    /// The first one is where it is; the others are what it refers to.
    pub labels: Vec<(Span, String)>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Says all there is to say about its place: other remarks on the same place are dropped.
    conclusive: bool,
    /// About something that this build only knows by name: it stops a run, and not the plan.
    pub later: bool,
    /// Likewise, and only of blocks whose backend it lacks: the other blocks can run.
    pub of_later_block: bool,
    /// About what a device or model that no block names may lack.
    only_if_used: bool,
}

impl Diagnostic {
    fn new(severity: Severity, message: String) -> Diagnostic {
        Diagnostic { severity, message, labels: Vec::new(), hint: None, conclusive: false, later: false, of_later_block: false, only_if_used: false }
    }

    /// Says something at the place itself.
    pub fn label(&mut self, text: impl Into<String>) -> &mut Diagnostic {
        if let Some(first) = self.labels.first_mut() {
            first.1 = text.into();
        }
        self
    }

    /// Points at a second place.
    pub fn also(&mut self, span: Span, text: impl Into<String>) -> &mut Diagnostic {
        self.labels.push((span, text.into()));
        self
    }

    pub fn hint(&mut self, text: impl Into<String>) -> &mut Diagnostic {
        self.hint = Some(text.into());
        self
    }

    pub fn conclusive(&mut self) -> &mut Diagnostic {
        self.conclusive = true;
        self
    }

    pub fn later(&mut self) -> &mut Diagnostic {
        self.later = true;
        self
    }

    pub fn only_if_used(&mut self) -> &mut Diagnostic {
        self.only_if_used = true;
        self
    }

    fn place(&self) -> Option<Span> {
        self.labels.first().map(|label| label.0)
    }

    fn is_inside(&self, place: Span) -> bool {
        self.place().is_some_and(|own| own.start >= place.start && own.end <= place.end)
    }
}

/// Where the decoders leave what they find.
#[derive(Debug, Default)]
pub struct Diagnostics {
    found: Vec<Diagnostic>,
    /// How many are counted, and how many of these are errors: all but the last, which may still be changed.
    counted: Cell<(usize, usize)>,
}

impl Diagnostics {
    pub fn error(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Error, Some(span), message.into())
    }

    pub fn warning(&mut self, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Warning, Some(span), message.into())
    }

    /// An error about the file as a whole.
    pub fn file_error(&mut self, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Severity::Error, None, message.into())
    }

    fn push(&mut self, severity: Severity, span: Option<Span>, message: String) -> &mut Diagnostic {
        let mut diagnostic = Diagnostic::new(severity, message);
        diagnostic.labels.extend(span.map(|span| (span, String::new())));
        let index = self.found.len();
        self.found.push(diagnostic);
        &mut self.found[index]
    }

    /// What was found in a text that begins at `base` of all texts.
    pub fn absorb(&mut self, other: Diagnostics, base: usize) {
        let moved = other.found.into_iter().map(|mut diagnostic| {
            diagnostic.labels.iter_mut().for_each(|(span, _)| *span = span.moved(base));
            diagnostic
        });
        self.found.extend(moved);
    }

    /// Drops what was said about later builds, and about variables that aren't set, inside of a place.
    pub fn forget_unused(&mut self, inside: Span) {
        let unset = self.found.iter().filter(|d| d.only_if_used && d.is_inside(inside));
        let without_value: HashSet<Span> = unset.filter_map(Diagnostic::place).collect();
        self.counted.set((0, 0));
        self.found.retain(|d| !(d.is_inside(inside) && (d.later || d.place().is_some_and(|place| without_value.contains(&place)))));
    }

    /// How many remarks there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found.len()
    }

    /// What was said about later builds inside of a place, from the `first` remark on, is of blocks whose backend this build lacks.
    pub fn of_later_block(&mut self, inside: Span, first: usize) {
        self.found[first..].iter_mut().filter(|d| d.later && d.is_inside(inside)).for_each(|d| d.of_later_block = true);
    }

    /// Errors so far, without those about later builds.
    #[must_use]
    pub fn count(&self) -> usize {
        let is_error = |d: &Diagnostic| d.severity == Severity::Error && !d.later;
        let (mut n_counted, mut n_errors) = self.counted.get();
        while n_counted + 1 < self.found.len() {
            n_errors += usize::from(is_error(&self.found[n_counted]));
            n_counted += 1;
        }
        self.counted.set((n_counted, n_errors));
        n_errors + self.found[n_counted..].iter().filter(|d| is_error(d)).count()
    }

    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.count() > 0
    }

    /// In file order; what was found twice (through an alias, or for every block that a default reaches) once.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        // Of the same remark, the one that is about more than some blocks.
        self.found.sort_by_key(|d| d.of_later_block);
        let concluded: HashSet<Span> = self.found.iter().filter(|d| d.conclusive).filter_map(Diagnostic::place).collect();
        let mut seen = HashSet::new();
        let mut kept: Vec<Diagnostic> = self
            .found
            .into_iter()
            .filter(|d| d.conclusive || d.place().is_none_or(|place| !concluded.contains(&place)))
            .filter(|d| seen.insert((d.place(), d.message.clone())))
            .collect();
        kept.sort_by_key(Diagnostic::place);
        kept.into_iter().partition(|d| d.severity == Severity::Error)
    }
}

/// Why a file is no campaign, or none that can run: everything that is wrong with it.
pub struct ConfigErrors {
    /// What the places are in.
    pub sources: Sources,
    /// At least one, in file order.
    pub diagnostics: Vec<Diagnostic>,
}

impl ConfigErrors {
    /// All of them as text for a terminal, with their lines of the file.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        self.render_at(WIDTH, color)
    }

    /// [`render`](Self::render) for a terminal of that many columns.
    #[must_use]
    pub fn render_at(&self, width: usize, color: bool) -> String {
        let sources = self.sources.printable();
        let shown = self.diagnostics.iter().take(SHOWN);
        let mut text = shown.map(|d| render_one(d, &sources, width, color)).collect::<Vec<_>>().join("\n");
        let n_errors = self.diagnostics.len();
        let (file, ..) = sources.around(0);
        if n_errors > SHOWN {
            let _ = writeln!(text, "\n{} more errors in {file}", n_errors - SHOWN);
        } else if n_errors > 1 {
            let _ = writeln!(text, "\n{n_errors} errors in {file}");
        }
        text
    }
}

impl ConfigErrors {
    /// The same with another hint each.
    #[must_use]
    pub fn hinting(mut self, hint: &str) -> ConfigErrors {
        self.diagnostics.iter_mut().for_each(|diagnostic| diagnostic.hint = Some(hint.to_owned()));
        self
    }

    /// Each thing once, with the lines that ask for it: for a campaign whose only faults are that this build can't do it yet.
    #[must_use]
    pub fn later_list(&self) -> String {
        let mut asked: IndexMap<&str, Vec<String>> = IndexMap::new();
        for diagnostic in &self.diagnostics {
            let place = diagnostic.place().map_or(0, |place| place.start);
            let what = diagnostic.message.strip_suffix(NOT_YET).unwrap_or(&diagnostic.message);
            asked.entry(what).or_default().push(format!("{}:{}", self.sources.around(place).0, self.sources.line(place)));
        }
        let mut text = format!("{} asks for what this build can't do yet, so `run` will refuse it:\n", self.sources.around(0).0);
        let widest = asked.keys().map(|what| what.chars().count()).max().unwrap_or(0);
        for (what, places) in asked {
            let more = if places.len() > 1 { format!(" and {} more", places.len() - 1) } else { String::new() };
            let _ = writeln!(text, "  {what:widest$}  {}{more}", places[0]);
        }
        text
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl fmt::Debug for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for ConfigErrors {}

/// Remarks that stop nothing, as texts without colour.
#[must_use]
pub fn render_warnings(warnings: &[Diagnostic], sources: &Sources) -> Vec<String> {
    let sources = sources.printable();
    let mut texts: Vec<String> = warnings.iter().take(SHOWN).map(|warning| render_one(warning, &sources, WIDTH, false)).collect();
    if warnings.len() > SHOWN {
        texts.push(format!("{} more warnings\n", warnings.len() - SHOWN));
    }
    texts
}

fn render_one(diagnostic: &Diagnostic, sources: &Sources, width: usize, color: bool) -> String {
    let (word, paint) = match diagnostic.severity {
        Severity::Error => ("error", "31"),
        Severity::Warning => ("warning", "33"),
    };
    let painted = |text: &str, paint: &str| if color { format!("\u{1b}[{paint}m{text}\u{1b}[0m") } else { text.to_owned() };
    let mut text = painted(&format!("{word}:"), paint) + " " + &visible(&diagnostic.message) + "\n";
    text += &render_snippets(diagnostic, sources, width, color);
    if let Some(hint) = &diagnostic.hint {
        let lines: Vec<String> = hint.lines().flat_map(|line| wrapped(&visible(line), width.saturating_sub(HINT.len()))).collect();
        let _ = writeln!(text, "  {} {}", painted("hint:", "36"), lines.join(&format!("\n{}", " ".repeat(HINT.len()))));
    }
    text
}

/// Lines of at most `width` characters, broken at blanks; a longer word keeps its own line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().filter(|line| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// One snippet for each file that the labels are in, and for labels that are far from each other.
fn render_snippets(diagnostic: &Diagnostic, sources: &Sources, width: usize, color: bool) -> String {
    let mut snippets: Vec<(usize, Vec<(Span, &str)>)> = Vec::new();
    for (span, text) in &diagnostic.labels {
        let start = sources.around(span.start).1;
        let local = Span { start: span.start.saturating_sub(start), end: span.end.saturating_sub(start) };
        let beside = |labels: &[(Span, &str)]| labels.iter().all(|(other, _)| other.start.abs_diff(local.start) <= LONGEST_LINE);
        match snippets.iter_mut().find(|(of, labels)| *of == start && beside(labels)) {
            Some((_, labels)) => labels.push((local, text)),
            None => snippets.push((start, vec![(local, text)])),
        }
    }
    let render = |(start, labels): &(usize, Vec<(Span, &str)>)| {
        let (file, _, source) = sources.around(*start);
        render_snippet(labels, file, source, width, color)
    };
    snippets.iter().map(render).collect()
}

/// The lines that the labels are on, with the labels. miette always puts a headline first: it is given an empty one, and that line is dropped.
fn render_snippet(labels: &[(Span, &str)], file: &str, source: &str, width: usize, color: bool) -> String {
    let labels = labels.iter().enumerate().map(|(index, (span, text))| {
        let span = within_its_line(*span, source);
        let text = (!text.is_empty()).then(|| visible(text));
        if index == 0 { LabeledSpan::new_primary_with_span(text, span) } else { LabeledSpan::new_with_span(text, span) }
    });
    let snippet = Snippet { labels: labels.collect(), lines: Lines { name: file.to_owned(), text: source } };
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let mut text = String::new();
    let handler = GraphicalReportHandler::new_themed(theme).with_width(width).with_links(false).with_context_lines(0);
    if handler.without_syntax_highlighting().render_report(&mut text, &snippet).is_err() {
        return format!("   at {file}\n");
    }
    text.lines().skip(1).fold(String::new(), |all, line| all + line.trim_end() + "\n")
}

/// What spans lines is marked on its first one, without the blanks at its end, and not for longer than a line is shown.
fn within_its_line(span: Span, source: &str) -> SourceSpan {
    let start = span.start.min(source.len());
    let end = span.end.clamp(start, source.len());
    let marked = source.get(start..end).unwrap_or_default();
    let marked = marked.split(['\n', '\r']).next().unwrap_or_default().trim_end();
    SourceSpan::new(start.into(), floor(marked, LONGEST_LINE))
}

/// The largest place in a text that is not behind `at` and between two characters.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[derive(Debug)]
struct Snippet<'s> {
    labels: Vec<LabeledSpan>,
    lines: Lines<'s>,
}

impl fmt::Display for Snippet<'_> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl std::error::Error for Snippet<'_> {}

impl miette::Diagnostic for Snippet<'_> {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.lines)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// Whole lines around a span, a long one cut, columns counted in characters. (miette's own sources cut every line at the span when asked
/// for no context.)
#[derive(Debug)]
struct Lines<'s> {
    name: String,
    text: &'s str,
}

impl SourceCode for Lines<'_> {
    fn read_span<'a>(&'a self, span: &SourceSpan, _: usize, _: usize) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let text = self.text;
        let (before, after) = (text.get(..span.offset()), text.get(span.offset() + span.len()..));
        let (Some(before), Some(after)) = (before, after) else { return Err(MietteError::OutOfBounds) };
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let behind = after.find('\n').map_or(after.len(), |at| at + 1);
        let is_long = before.len() - line_start + span.len() + behind > LONGEST_LINE;
        let start = if is_long { line_start.max(floor(text, span.offset().saturating_sub(AROUND))) } else { line_start };
        let end = span.offset() + span.len() + if is_long { behind.min(floor(after, AROUND)) } else { behind };
        let line = before.bytes().filter(|b| *b == b'\n').count();
        let column = text[line_start..span.offset()].chars().count();
        let n_lines = text[start..end].lines().count();
        let data = &text.as_bytes()[start..end];
        Ok(Box::new(MietteSpanContents::new_named(self.name.clone(), data, (start, end - start).into(), line, column, n_lines)))
    }
}

/// The candidate that a mistyped name most likely means.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let scored = candidates.into_iter().map(|candidate| (strsim::damerau_levenshtein(&name, &candidate.to_lowercase()), candidate));
    let (distance, candidate) = scored.min_by_key(|scored| scored.0)?;
    // A third of the letters may be wrong; a short name may still miss one.
    (distance <= (name.chars().count() / 3).max(1) && distance < candidate.chars().count()).then_some(candidate)
}

/// A name or value from the file, fit for a message: in backticks, one line, not too long.
#[must_use]
pub fn tick(text: &str) -> String {
    let mut shown = visible(&text.chars().take(60).collect::<String>());
    if text.chars().count() > 60 {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// `a, b, c`; a long list is cut.
#[must_use]
pub fn listed<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<T> = names.into_iter().collect();
    let mut text = names.iter().take(40).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > 40 {
        let _ = write!(text, " … ({} in all)", names.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_only_when_it_is_near() {
        let keys = ["repetitions", "timeout", "threads", "model"];
        for (name, found) in [
            ("repetitons", Some("repetitions")),
            ("thread", Some("threads")),
            ("Model", Some("model")),
            ("modle", Some("model")),
            ("voltage", None),
            ("x", None),
        ] {
            assert_eq!(nearest(name, keys), found, "{name}");
        }
    }

    #[test]
    fn a_remark_found_twice_is_shown_once_and_in_file_order() {
        let mut out = Diagnostics::default();
        out.error(Span { start: 9, end: 10 }, "second");
        out.error(Span { start: 1, end: 2 }, "first");
        out.error(Span { start: 9, end: 10 }, "second");
        out.warning(Span { start: 0, end: 1 }, "mind");
        let (errors, warnings) = out.finish();
        assert_eq!(errors.iter().map(|d| d.message.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn a_conclusive_remark_silences_the_others_on_its_place() {
        let place = Span { start: 3, end: 7 };
        let mut out = Diagnostics::default();
        out.error(place, "not a number");
        out.error(place, "variables are not in this build yet").conclusive();
        let (errors, _) = out.finish();
        assert_eq!(errors.len(), 1);
        assert!(errors[0].message.starts_with("variables"));
    }

    #[test]
    fn hints_are_wrapped_at_blanks() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one `a long pasteable` x", 4), ["one", "`a", "long", "pasteable`", "x"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn columns_count_characters_and_control_characters_stay_out() {
        let source = "a: é\u{1b}[31mx: y\n";
        let mut out = Diagnostics::default();
        let at = source.find("x: y").expect("there");
        out.error(Span { start: at, end: at + 1 }, "odd").label("here");
        let errors = ConfigErrors { sources: Sources::of("f.yaml", source), diagnostics: out.finish().0 };
        let text = errors.render(false);
        assert!(text.contains("f.yaml:1:10"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(errors.render(true).contains("\u{1b}[31merror:\u{1b}[0m odd"));
    }
}
