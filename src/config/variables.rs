//! `${VAR}` and `${VAR:-otherwise}` in texts of the file, from the environment of who runs the campaign; `${secret:VAR}` in `env`.

use super::{
    diagnose::{Diagnostics, Span, tick},
    merge::Assignment,
    model::Secret,
    units,
    yaml::{Entry, Kind, Node},
};
use indexmap::IndexMap;

/// Shorter ones would be found, and taken out, all over the output.
const SHORTEST_SECRET: usize = 8;

/// Parts of names that say what is in a variable.
const TELLTALE: [&str; 7] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "PRIVATE_KEY"];

/// Where variables come from.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces the variables of all values of a file. Descriptions and patterns are left as they are.
pub fn replace(entries: &mut [Entry], lookup: Lookup<'_>, out: &mut Diagnostics) -> IndexMap<String, Secret> {
    let mut walk = Walk { lookup, secrets: IndexMap::new(), out };
    walk.entries(entries, Place::File);
    walk.secrets
}

/// Those of what the command line sets.
pub fn replace_set(assignments: &mut [Assignment], lookup: Lookup<'_>, out: &mut Diagnostics) -> IndexMap<String, Secret> {
    let mut walk = Walk { lookup, secrets: IndexMap::new(), out };
    for assignment in assignments {
        let place = assignment.path.iter().try_fold(Place::Block, |place, key| place.behind(&key.text));
        place.into_iter().for_each(|place| walk.node(&mut assignment.value, place));
    }
    walk.secrets
}

/// What a text is read as, which says what a value put into it must not be taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Plain,
    /// Braces are placeholders.
    Template,
    /// So they are, and secrets are allowed.
    Env,
    /// The file, a used one.
    File,
    Devices,
    Device,
    /// `defaults`, a block, a group of `zip`.
    Block,
    /// Maps of `exclude` and `include`, with axes as keys.
    Axes,
    Metrics,
    /// What reads a text, or has something inside that does.
    Rule,
}

impl Place {
    /// The place of what stands behind a key; `None` = it is left as it is.
    fn behind(self, key: &str) -> Option<Place> {
        Some(match (self, key) {
            (Place::File, "description") | (Place::Rule, "regex") => return None,
            (Place::File, "devices") => Place::Devices,
            (Place::File, "defaults" | "matrix") | (Place::Block, "zip") => Place::Block,
            (Place::Devices, _) => Place::Device,
            (Place::Device | Place::Block, "env") => Place::Env,
            (Place::Block, "argv" | "flags") => Place::Template,
            (Place::Block, "include" | "exclude") => Place::Axes,
            (Place::Axes, axis) if axis.starts_with("env.") => Place::Env,
            (Place::Axes, axis) if axis.starts_with("flags.") => Place::Template,
            (Place::Block, "metrics") => Place::Metrics,
            (Place::Block, "success") | (Place::Metrics, _) | (Place::Rule, "output_digest") => Place::Rule,
            (Place::Template | Place::Env, _) => self,
            _ => Place::Plain,
        })
    }

    fn has_placeholders(self) -> bool {
        matches!(self, Place::Template | Place::Env)
    }
}

/// Braces that are no placeholders.
fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

struct Walk<'a> {
    lookup: Lookup<'a>,
    secrets: IndexMap<String, Secret>,
    out: &'a mut Diagnostics,
}

impl Walk<'_> {
    fn entries(&mut self, entries: &mut [Entry], place: Place) {
        for entry in entries {
            if let Some(place) = place.behind(&entry.key.text) {
                self.node(&mut entry.value, place);
            }
        }
    }

    fn node(&mut self, node: &mut Node, place: Place) {
        let span = node.span;
        match &mut node.kind {
            Kind::Seq(items) => items.iter_mut().for_each(|item| self.node(item, place)),
            Kind::Map(entries) => self.entries(entries, place),
            Kind::Scalar(scalar) => {
                if scalar.text.contains("${") {
                    // What has a fault is left as it is, and means nothing else.
                    let text = self.text(&scalar.text, span, place);
                    let text = text.unwrap_or_else(|| if place.has_placeholders() { literal(&scalar.text) } else { scalar.text.clone() });
                    // What comes from outside is text, whatever it looks like.
                    scalar.quoted |= text != scalar.text;
                    scalar.text = text;
                }
            }
        }
    }

    fn text(&mut self, source: &str, span: Span, place: Place) -> Option<String> {
        let mut text = String::new();
        let mut rest = source;
        while let Some(at) = rest.find("${") {
            let (before, after) = (&rest[..at], &rest[at + 2..]);
            // `$${` is a literal `${`; a pattern of a shell, like `${#x}`, is none of ours.
            if let Some(before) = before.strip_suffix('$') {
                text.push_str(before);
                text.push_str(if place.has_placeholders() { "${{" } else { "${" });
                rest = after;
                if place.has_placeholders() {
                    // Its closing brace is literal, too.
                    if let Some(end) = rest.find('}') {
                        text.push_str(&rest[..end]);
                        text.push_str("}}");
                        rest = &rest[end + 1..];
                    }
                }
                continue;
            }
            text.push_str(before);
            // `${{` is a brace of a template behind a dollar sign.
            if after.starts_with('{') {
                text.push_str("${");
                rest = after;
                continue;
            }
            let Some(end) = after.find('}') else {
                self.out.error(span, "`${` without its `}`").hint("write `${NAME}` for a variable, `$${` for a literal `${`").conclusive();
                return None;
            };
            text.push_str(&self.value(&after[..end], span, place)?);
            rest = &after[end + 1..];
        }
        text.push_str(rest);
        Some(text)
    }

    fn value(&mut self, inside: &str, span: Span, place: Place) -> Option<String> {
        if let Some(name) = inside.strip_prefix("secret:") {
            return self.secret(name, span, place);
        }
        let (name, otherwise) = inside.split_once(":-").map_or((inside, None), |(name, otherwise)| (name, Some(otherwise)));
        if !units::is_identifier(name) {
            let text = format!("{} is no variable", tick(&format!("${{{inside}}}")));
            self.out.error(span, text).hint("write `${NAME}`, `${NAME:-otherwise}` or `${secret:NAME}`; `$${` is a literal `${`").conclusive();
            return None;
        }
        if TELLTALE.iter().any(|part| name.to_uppercase().contains(part)) {
            self.out
                .error(span, format!("{} looks like a secret", tick(name)))
                .label("it would stand in records, journal and plan")
                .hint(format!("write `${{secret:{name}}}`, in `env`; give the variable another name if it is none"))
                .conclusive();
            return None;
        }
        if otherwise.is_some_and(|otherwise| otherwise.contains("${")) {
            self.out
                .error(span, format!("a variable inside of what {} falls back to", tick(&format!("${{{name}}}"))))
                .hint("a fallback is plain text: `${NAME:-text}`")
                .conclusive();
            return None;
        }
        let found = (self.lookup)(name).filter(|value| otherwise.is_none() || !value.is_empty());
        let Some(value) = found.or_else(|| otherwise.map(str::to_owned)) else {
            self.out
                .error(span, format!("the variable {} is not set", tick(name)))
                .label("from the environment of this command")
                .hint(format!("`export {name}=…`, or give it a value to fall back to: `${{{name}:-value}}`"))
                .conclusive()
                .only_if_used();
            return None;
        };
        if value.contains('\0') || value.contains('\n') {
            self.out
                .error(span, format!("the variable {} has more than one line", tick(name)))
                .hint("a value of the file is one line of text")
                .conclusive();
            return None;
        }
        Some(if place.has_placeholders() { literal(&value) } else { value })
    }

    fn secret(&mut self, name: &str, span: Span, place: Place) -> Option<String> {
        let token = format!("${{secret:{name}}}");
        if !units::is_identifier(name) {
            self.out.error(span, format!("{} is no secret", tick(&token))).hint("write `${secret:NAME}` with the name of a variable");
            return None;
        }
        if place != Place::Env {
            self.out
                .error(span, "a secret in a place that everybody sees")
                .hint(format!("secrets stand in `env` only: `env: {{ {name}: \"{token}\" }}`; arguments of a process are public on its machine"))
                .conclusive();
            return None;
        }
        match (self.lookup)(name) {
            None => {
                self.out
                    .error(span, format!("the secret {} is not set", tick(name)))
                    .label("from the environment of this command")
                    .hint(format!("`export {name}=…` before you start isotherm"))
                    .conclusive()
                    .only_if_used();
                None
            }
            Some(value) if value.len() < SHORTEST_SECRET => {
                self.out
                    .error(span, format!("the secret {} has fewer than {SHORTEST_SECRET} bytes", tick(name)))
                    .hint("it is taken out of everything that is recorded, which a short one would tear apart: use `${NAME}` if it is none")
                    .conclusive();
                None
            }
            Some(value) => {
                self.secrets.insert(name.to_owned(), Secret::new(value));
                Some(token)
            }
        }
    }
}
