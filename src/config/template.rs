//! Text with `{name}` placeholders: split into parts, and the names checked against what a block offers.

use super::{
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    model::{Template, TemplatePart},
};
use indexmap::IndexMap;

/// In front of the name of a secret; it stays in the text.
const SECRET: &str = "${secret:";

/// Why a text is no template. Offsets are into the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    #[error("`{{` without its `}}`")]
    Unclosed { at: usize },
    #[error("`}}` without its `{{`")]
    Unopened { at: usize },
    #[error("a placeholder without a name")]
    Nameless { at: usize },
}

impl Template {
    /// Splits a text at its placeholders. Neighbouring literals are one part; an empty text has no parts.
    ///
    /// # Errors
    /// A brace that isn't part of a placeholder and isn't doubled.
    pub fn parse(source: &str) -> Result<Template, TemplateFault> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut at = 0;
        while let Some(c) = source[at..].chars().next() {
            let rest = &source[at..];
            if let Some(end) = rest.strip_prefix(SECRET).and_then(|rest| rest.find('}')) {
                if !literal.is_empty() {
                    parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
                }
                parts.push(TemplatePart::Secret(rest[SECRET.len()..SECRET.len() + end].to_owned()));
                at += SECRET.len() + end + 1;
            } else if rest.starts_with("{{") || rest.starts_with("}}") {
                literal.push(c);
                at += 2;
            } else if c == '}' {
                return Err(TemplateFault::Unopened { at });
            } else if c == '{' {
                let end = rest[1..].find(['{', '}']).map(|end| end + 1).filter(|end| rest[*end..].starts_with('}'));
                let end = end.ok_or(TemplateFault::Unclosed { at })?;
                let name = &rest[1..end];
                if name.trim().is_empty() {
                    return Err(TemplateFault::Nameless { at });
                }
                if !literal.is_empty() {
                    parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
                }
                parts.push(TemplatePart::Name(name.to_owned()));
                at += end + 1;
            } else {
                literal.push(c);
                at += c.len_utf8();
            }
        }
        if !literal.is_empty() {
            parts.push(TemplatePart::Literal(literal));
        }
        Ok(Template { source: source.to_owned(), parts })
    }

    /// Names of its placeholders, in order, with repeats.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Name(name) => Some(name.as_str()),
            TemplatePart::Literal(_) | TemplatePart::Secret(_) => None,
        })
    }

    /// The text with every placeholder replaced by what `value_of` gives for its name; `Err` has the first name without a value.
    ///
    /// # Errors
    /// `value_of` gives `None`.
    pub fn fill(&self, mut value_of: impl FnMut(&str) -> Option<String>) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                TemplatePart::Literal(literal) => text += literal,
                TemplatePart::Name(name) => text += &value_of(name).ok_or_else(|| name.clone())?,
                TemplatePart::Secret(name) => text += &format!("{SECRET}{name}}}"),
            }
        }
        Ok(text)
    }
}

/// Names of a placeholder that come from the point's model.
const MODEL_NAMES: [&str; 3] = ["model.path", "model.id", "model.quantization"];

/// What the templates of one place may refer to.
#[derive(Debug, Clone)]
pub struct Names {
    available: Vec<String>,
    model: Model,
    build: Build,
}

/// What is known of a block's models.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub has_model: bool,
    /// Those without a quantization.
    pub unquantized: Vec<String>,
}

/// What is known of a block's builds.
#[derive(Debug, Clone, Default)]
pub struct Build {
    /// tool → builds without it.
    pub tools: IndexMap<String, Vec<String>>,
    /// Which builds there are has a fault of its own.
    pub unread: bool,
}

impl Names {
    /// Where nothing is known but the device.
    #[must_use]
    pub fn of_device() -> Names {
        Names::of_block([], Model::default(), Build::default())
    }

    #[must_use]
    pub fn of_block(axes: impl IntoIterator<Item = String>, model: Model, build: Build) -> Names {
        let mut available: Vec<String> = axes.into_iter().collect();
        available.extend(build.tools.iter().filter(|(_, without)| without.is_empty()).map(|(tool, _)| format!("build.{tool}")));
        if model.has_model {
            available.extend(MODEL_NAMES.map(str::to_owned));
        }
        available.push("device.id".to_owned());
        Names { available, model, build }
    }
}

/// A template whose every name has a value at every point.
pub fn decode(text: &str, span: Span, source: &str, names: &Names, out: &mut Diagnostics) -> Option<Template> {
    let template = match Template::parse(text) {
        Ok(template) => template,
        Err(fault) => {
            out.error(span, fault.to_string()).hint("write `{name}` for a placeholder, `{{` and `}}` for literal braces");
            return None;
        }
    };
    let mut all_known = true;
    for name in template.names() {
        if names.available.iter().any(|available| available == name) {
            if name == "model.quantization" && !names.model.unquantized.is_empty() {
                let models = listed(names.model.unquantized.iter().map(|id| tick(id)));
                out.error(located(span, source, name), "`{model.quantization}` has no value at every point")
                    .hint(format!("declare `quantization` for {models}"));
                all_known = false;
            }
            continue;
        }
        all_known = false;
        let place = located(span, source, name);
        let tool = name.strip_prefix("build.");
        if tool.is_some() && names.build.unread {
            continue;
        }
        if let Some(without) = tool.and_then(|tool| names.build.tools.get(tool)) {
            let builds = listed(without.iter().map(|id| tick(id)));
            out.error(place, format!("{} has no value at every point", tick(&format!("{{{name}}}"))))
                .hint(format!("add the tool to `builds` of the devices: it is missing in {builds}"));
            continue;
        }
        if MODEL_NAMES.contains(&name) && !names.model.has_model {
            let text = format!("`{{{name}}}` in a place without a model");
            out.error(place, text).hint("add `model` to the block, or take the placeholder out; a device's own `env` knows only `{device.id}`");
            continue;
        }
        let error = out.error(place, format!("unknown placeholder {}", tick(&format!("{{{name}}}"))));
        if let Some(near) = nearest(name.trim(), names.available.iter().map(String::as_str)) {
            error.label(format!("did you mean `{{{near}}}`?"));
        } else if name == "model" {
            error.label("did you mean `{model.path}` or `{model.id}`?");
        }
        let listed = listed(names.available.iter().map(|name| format!("`{{{name}}}`")));
        error.hint(format!("placeholders here: {listed}; literal braces are `{{{{` and `}}}}`"));
    }
    all_known.then_some(template)
}

/// The placeholder inside of its scalar, where it can be found there as written.
fn located(span: Span, source: &str, name: &str) -> Span {
    let placeholder = format!("{{{name}}}");
    match source.get(span.start..span.end).and_then(|text| text.find(&placeholder)) {
        Some(at) => Span { start: span.start + at, end: span.start + at + placeholder.len() },
        None => span,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(source: &str) -> Vec<String> {
        let template = Template::parse(source).expect("a template");
        template
            .parts
            .iter()
            .map(|part| match part {
                TemplatePart::Literal(text) => format!("'{text}'"),
                TemplatePart::Name(name) => name.clone(),
                TemplatePart::Secret(name) => format!("secret {name}"),
            })
            .collect()
    }

    #[test]
    fn a_text_is_split_at_its_placeholders() {
        for (source, expected) in [
            ("", vec![]),
            ("plain", vec!["'plain'"]),
            ("{a}", vec!["a"]),
            ("--x={a}{b}.{model.path}", vec!["'--x='", "a", "b", "'.'", "model.path"]),
            ("{{a}}", vec!["'{a}'"]),
            ("{{{a}}}", vec!["'{'", "a", "'}'"]),
            ("{ a }", vec![" a "]),
            ("é{a}é", vec!["'é'", "a", "'é'"]),
            ("Bearer ${secret:TOKEN}!", vec!["'Bearer '", "secret TOKEN", "'!'"]),
        ] {
            assert_eq!(parts(source), expected, "{source}");
        }
    }

    #[test]
    fn a_lonely_brace_is_a_fault() {
        for (source, fault) in [
            ("{a", TemplateFault::Unclosed { at: 0 }),
            ("x{", TemplateFault::Unclosed { at: 1 }),
            ("{a{b}}", TemplateFault::Unclosed { at: 0 }),
            ("a}", TemplateFault::Unopened { at: 1 }),
            ("{}", TemplateFault::Nameless { at: 0 }),
            ("{ }", TemplateFault::Nameless { at: 0 }),
            ("{a}}", TemplateFault::Unopened { at: 3 }),
        ] {
            assert_eq!(Template::parse(source), Err(fault), "{source}");
        }
        assert_eq!(TemplateFault::Unclosed { at: 0 }.to_string(), "`{` without its `}`");
    }

    #[test]
    fn filling_replaces_names_and_never_reads_values_again() {
        let template = Template::parse("{{{a}}}-{b}").expect("a template");
        let filled = template.fill(|name| Some(if name == "a" { "{b}".to_owned() } else { "2".to_owned() }));
        assert_eq!(filled.as_deref(), Ok("{{b}}-2"));
        assert_eq!(template.fill(|name| (name == "a").then(String::new)), Err("b".to_owned()));
    }
}
