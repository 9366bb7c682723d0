//! Backend `command`: what is executed, and how numbers are read from what it leaves.

use super::{
    diagnose::{Diagnostics, listed, tick},
    fields::{Fields, Slot, report_repeats},
    model::{Better, Command, DigestRule, MetricRule, Pick, Success, Take, Template, TextSource},
    template::{self, Names},
    units, vocabulary,
    yaml::{Core, Entry},
};
use indexmap::IndexMap;
use regex::Regex;
use std::path::{Component, Path};

const SOURCES: [&str; 4] = ["stdout", "stdout_last_line", "stderr", "file:NAME"];

/// The parts of a block that only this backend has. `None` when `argv` cannot be read.
pub fn command(fields: &Fields<'_>, names: &Names, source: &str, out: &mut Diagnostics) -> Option<Command> {
    let argv = fields.need("argv", "backend `command`", "write the program and its arguments: `argv: [./bench, --size, \"{size}\"]`", out);
    let argv = argv.and_then(|slot| argv_of(slot, names, source, out));
    let inputs = fields.get("inputs").map(|slot| inputs_of(slot, out)).unwrap_or_default();
    let mut metrics = IndexMap::new();
    if let Some(slot) = fields.get("metrics") {
        for entry in slot
            .named_entries("metrics: { latency_ms: { from: stdout_last_line, json: /latency, unit: ms, better: lower } }", out)
            .unwrap_or_default()
        {
            metrics.extend(metric(entry, out).map(|rule| (entry.key.text.clone(), rule)));
        }
    }
    let success = fields.get("success").map(|slot| success_of(slot, out)).unwrap_or_default();
    Some(Command { argv: argv?, inputs, metrics, success })
}

fn argv_of(slot: Slot<'_>, names: &Names, source: &str, out: &mut Diagnostics) -> Option<Vec<Template>> {
    const EXAMPLE: &str = "argv: [./bench, --size, \"{size}\"]";
    let items = slot.list(EXAMPLE, out)?;
    let mut argv = Vec::with_capacity(items.len());
    for item in &items {
        let Some(scalar) = item.node.scalar() else {
            out.error(item.place, "an element of `argv` is one text")
                .label(format!("this is {}", item.node.describe()))
                .hint(format!("write it like `{EXAMPLE}`; quote what starts with `{{` or `[`"));
            continue;
        };
        if scalar.core() == Core::Null {
            item.refuse("an element of `argv` is missing".to_owned(), "write `\"\"` for an empty argument, `\"null\"` for the word", out);
            continue;
        }
        if argv.is_empty() && scalar.text.trim().is_empty() {
            item.refuse("the program's name is empty".to_owned(), format!("write it like `{EXAMPLE}`"), out);
        }
        argv.extend(template::decode(&scalar.text, item.node.span, source, names, out));
    }
    (argv.len() == items.len()).then_some(argv)
}

fn inputs_of(slot: Slot<'_>, out: &mut Diagnostics) -> Vec<String> {
    let items = slot.one_or_many("inputs: [\"data/*.bin\"]", out).map(|found| found.0).unwrap_or_default();
    let mut patterns = Vec::new();
    let mut places = Vec::new();
    for item in items {
        if let Some(pattern) = item.some_text(out) {
            patterns.push(pattern);
            places.push(item.place);
        }
    }
    report_repeats("inputs", Clone::clone, patterns.iter().cloned().zip(places), out);
    patterns
}

fn metric(entry: &Entry, out: &mut Diagnostics) -> Option<MetricRule> {
    let name = entry.key.text.as_str();
    if !units::is_identifier(name) {
        out.error(entry.key.span, format!("{} cannot be the name of a metric", tick(name)))
            .hint("letters, digits and `_`, no digit in front, like `latency_ms`");
    }
    let example = format!("{name}: {{ from: stdout_last_line, json: /latency, unit: ms, better: lower }}");
    let fields = Slot::of(entry).fields(&vocabulary::METRIC, &example, out)?.at(entry.key.span);
    let of = format!("metric {}", tick(name));
    let from = fields.need("from", &of, &format!("say where it is looked for: `from: stdout_last_line`; choices: {}", listed(SOURCES)), out);
    let from = from.and_then(|slot| text_source(slot, out));
    let pick = pick(&fields, &of, out);
    let unit = fields.need("unit", &of, "say what it is counted in: `unit: ms`", out).and_then(|slot| slot.some_text(out));
    let directions = [("lower", Better::Lower), ("higher", Better::Higher)];
    let better = fields.need("better", &of, "say which direction is good: `better: lower` or `better: higher`", out);
    let better = better.and_then(|slot| slot.choice(&directions, &[], out));
    Some(MetricRule { from: from?, pick: pick?, unit: unit?, better: better? })
}

/// `stdout`, `stdout_last_line`, `stderr`, `file:NAME`.
fn text_source(slot: Slot<'_>, out: &mut Diagnostics) -> Option<TextSource> {
    let Some(text) = slot.node.scalar().filter(|scalar| scalar.core() != Core::Null).map(|scalar| scalar.text.as_str()) else {
        slot.mismatch(&format!("one of {}", listed(SOURCES)), "from: stdout_last_line", out);
        return None;
    };
    let Some(file) = text.strip_prefix("file:") else {
        let fixed = [("stdout", 0), ("stdout_last_line", 1), ("stderr", 2)];
        if let Some((_, index)) = fixed.iter().find(|known| known.0 == text) {
            return Some([TextSource::Stdout, TextSource::StdoutLastLine, TextSource::Stderr][*index].clone());
        }
        let error = out.error(slot.place, format!("unknown source {}", tick(text)));
        if let Some(near) = super::diagnose::nearest(text, SOURCES) {
            error.label(format!("did you mean `{near}`?"));
        }
        error.hint(format!("choices: {}", listed(SOURCES)));
        return None;
    };
    let inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if file.is_empty() || !inside {
        slot.refuse(format!("{} is no file in the working directory", tick(text)), "write a relative path without `..`, like `file:out.txt`", out);
        return None;
    }
    Some(TextSource::File(file.to_owned()))
}

/// Exactly one of `json` and `regex`; `take` only with `regex`.
fn pick(fields: &Fields<'_>, of: &str, out: &mut Diagnostics) -> Option<Pick> {
    const HOW: &str = "write `json: /pointer/to/value`, or `regex: 'pattern with ([0-9.]+)'`";
    let (json, regex) = (fields.get("json"), fields.get("regex"));
    let take_slot = fields.get("take");
    if let (Some(take), None) = (take_slot, regex) {
        let error = out.error(take.key, "`take` goes with `regex`");
        error.hint("remove it: a JSON pointer names one value, and an array's elements are all samples");
    }
    match (json, regex) {
        (Some(json), Some(regex)) => {
            out.error(regex.key, format!("{of} with both `json` and `regex`"))
                .label("and here `regex`")
                .also(json.key, "here `json`")
                .hint("keep one of them");
            None
        }
        (None, None) => {
            out.error(fields.place, format!("{of} without `json` or `regex`")).hint(HOW);
            None
        }
        (Some(json), None) => pointer(json, out).map(Pick::Json),
        (None, Some(regex)) => {
            let takes = [("first", Take::First), ("last", Take::Last), ("all", Take::All)];
            let take = take_slot.map_or(Some(Take::default()), |slot| slot.choice(&takes, &[], out));
            let pattern = pattern(regex, out);
            Some(Pick::Regex { pattern: pattern?, take: take? })
        }
    }
}

/// An RFC 6901 pointer.
fn pointer(slot: Slot<'_>, out: &mut Diagnostics) -> Option<String> {
    let text = slot.text(out)?;
    if !text.is_empty() && !text.starts_with('/') {
        slot.refuse(
            format!("{} is no JSON pointer", tick(&text)),
            format!("write `json: /{}`: a `/` in front of every name or index", text.replace('.', "/")),
            out,
        );
        return None;
    }
    if text.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1'])) {
        slot.refuse(format!("{} is no JSON pointer", tick(&text)), "a `~` in a name is written `~0`, a `/` in a name `~1`", out);
        return None;
    }
    Some(text)
}

/// A regular expression with one capture group.
fn pattern(slot: Slot<'_>, out: &mut Diagnostics) -> Option<String> {
    let text = slot.text(out)?;
    let regex = match Regex::new(&text) {
        Ok(regex) => regex,
        Err(error) => {
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned();
            out.error(slot.place, "`regex` is no regular expression")
                .label(reason)
                .hint("use single quotes in YAML, and `\\` in front of a character that means itself");
            return None;
        }
    };
    let n_groups = regex.captures_len() - 1;
    if n_groups != 1 {
        let message = format!("`regex` needs one capture group, and has {}", if n_groups == 0 { "none".to_owned() } else { n_groups.to_string() });
        slot.refuse(message, "put `( )` around the number, and `(?: )` around what is only grouped", out);
        return None;
    }
    Some(text)
}

fn success_of(slot: Slot<'_>, out: &mut Diagnostics) -> Success {
    let mut success = Success::default();
    let Some(fields) = slot.fields(&vocabulary::SUCCESS, "success: { exit: [0] }", out) else { return success };
    if let Some(slot) = fields.get("exit") {
        let items = slot.one_or_many("exit: [0]", out).map(|found| found.0).unwrap_or_default();
        let codes: Vec<(i64, _)> = items.iter().filter_map(|item| Some((item.whole(0..=255, "exit: [0]", out)?, item.place))).collect();
        report_repeats("exit", i64::to_string, codes.iter().copied(), out);
        success.exit = codes.iter().filter_map(|code| i32::try_from(code.0).ok()).collect();
    }
    if let Some(slot) = fields.get("output_digest") {
        success.output_digest = digest_rule(slot, out);
    }
    success
}

fn digest_rule(slot: Slot<'_>, out: &mut Diagnostics) -> Option<DigestRule> {
    let fields = slot.fields(&vocabulary::OUTPUT_DIGEST, "output_digest: { json: /tokens }", out)?.at(slot.key);
    let from = fields.get("from").map_or(Some(TextSource::StdoutLastLine), |slot| text_source(slot, out));
    let pick = pick(&fields, "`output_digest`", out);
    Some(DigestRule { from: from?, pick: pick? })
}
