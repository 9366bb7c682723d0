//! Precedence, leaf by leaf: `defaults`, then the block, then what the command line sets. Works on the tree, so that every value keeps
//! the place where it was written.

use super::{
    diagnose::{Diagnostics, Span, listed, nearest, tick},
    level::Level,
    sources::Sources,
    vocabulary::{self, ANY_BLOCK, DEFAULTS},
    yaml::{self, Entry, Key, Kind, Node, Scalar},
};

/// A `--set KEY=VALUE`.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// `prepare.settle` is two keys.
    pub path: Vec<Key>,
    pub value: Node,
}

/// Understands the `--set`s; each becomes a text of its own.
pub fn assignments(given: &[String], sources: &mut Sources, out: &mut Diagnostics) -> Vec<Assignment> {
    given.iter().filter_map(|text| assignment(text, sources, out)).collect()
}

fn assignment(text: &str, sources: &mut Sources, out: &mut Diagnostics) -> Option<Assignment> {
    let base = sources.add("--set", text);
    let whole = Span { start: base, end: base + text.len() };
    let Some((keys, value)) = text.split_once('=').filter(|(keys, _)| !keys.trim().is_empty()) else {
        out.error(whole, "`--set` takes a key and a value").hint("write it like `--set repetitions=2` or `--set prepare.settle=1s`");
        return None;
    };
    let mut path = Vec::new();
    let mut start = base;
    // The name of an option may have dots of its own.
    let n_keys = if keys.starts_with("flags.") { 2 } else { usize::MAX };
    for key in keys.splitn(n_keys, '.') {
        path.push(Key { text: key.to_owned(), span: Span { start, end: start + key.len() } });
        start += key.len() + 1;
    }
    let name = &path[0].text;
    if ANY_BLOCK.key(name).is_none() {
        let error = out.error(path[0].span, format!("unknown key {}", tick(name)));
        if let Some(near) = nearest(name, ANY_BLOCK.names()) {
            error.label(format!("did you mean `{near}`?"));
        }
        error.hint(format!("`--set` takes the keys of a block: {}", listed(ANY_BLOCK.names())));
        return None;
    }
    let at = base + keys.len() + 1;
    let before = out.count();
    let nothing = || Node { span: Span { start: at, end: at + value.len() }, kind: Kind::Scalar(Scalar { text: String::new(), quoted: false }) };
    let value = match yaml::read(value, at, out) {
        None if out.count() == before => nothing(),
        found => found?,
    };
    Some(Assignment { path, value })
}

/// A block's entries with what it inherits and what the command line sets, for a level of known backend.
pub fn block(own: &[Entry], defaults: &[Entry], set: &[Assignment], level: &'static Level, out: &mut Diagnostics) -> Vec<Entry> {
    let linked = linked_keys(own);
    let mut entries = own.to_vec();
    for default in defaults {
        let name = default.key.text.as_str();
        let takes = DEFAULTS.key(name).is_some() && level.key(name).is_some_and(|key| key.is_on(level.backend));
        if takes && !linked.iter().any(|path| path.len() == 1 && path[0] == name) {
            inherit(&mut entries, default, &linked, &mut vec![name.to_owned()]);
        }
    }
    for assignment in set {
        let key = level.key(&assignment.path[0].text);
        if key.is_some_and(|key| key.is_on(level.backend)) {
            assign(&mut entries, &assignment.path, &assignment.value, out);
        }
    }
    entries
}

/// `--set`s that no block takes.
pub fn report_unused(set: &[Assignment], backends: &[&str], out: &mut Diagnostics) {
    for assignment in set {
        let Some(key) = ANY_BLOCK.key(&assignment.path[0].text) else { continue };
        if !backends.is_empty() && !backends.iter().any(|backend| key.is_on(Some(backend))) {
            out.error(assignment.path[0].span, format!("{} has no effect", tick(key.name)))
                .label(format!("this is for backend {}", listed(key.on.iter().map(|backend| tick(backend)))))
                .hint("no block of the campaign uses that backend");
        }
    }
}

/// Axes that the block's `zip` has: they replace those of `defaults`.
fn linked_keys(block: &[Entry]) -> Vec<Vec<String>> {
    let zip = block.iter().find(|entry| entry.key.text == "zip").map(|entry| &entry.value.kind);
    let Some(Kind::Seq(groups)) = zip else { return Vec::new() };
    let mut keys = Vec::new();
    for entry in groups.iter().filter_map(|group| if let Kind::Map(entries) = &group.kind { Some(entries) } else { None }).flatten() {
        match &entry.value.kind {
            Kind::Map(inner) => keys.extend(inner.iter().map(|inner| vec![entry.key.text.clone(), inner.key.text.clone()])),
            _ => keys.push(vec![entry.key.text.clone()]),
        }
    }
    keys
}

/// `null` in the block goes back to the built-in value: neither its own nor the default's is left.
fn inherit(entries: &mut Vec<Entry>, default: &Entry, linked: &[Vec<String>], path: &mut Vec<String>) {
    let Some(at) = entries.iter().position(|entry| entry.key.text == default.key.text) else {
        let mut default = default.clone();
        if let Kind::Map(inner) = &mut default.value.kind {
            inner.retain(|entry| !linked.iter().any(|linked| linked.len() == 2 && linked[0] == path[0] && linked[1] == entry.key.text));
        }
        entries.push(default);
        return;
    };
    if entries[at].value.is_null() {
        entries.remove(at);
        return;
    }
    if let (Kind::Map(own), Kind::Map(inherited)) = (&mut entries[at].value.kind, &default.value.kind) {
        for entry in inherited {
            path.push(entry.key.text.clone());
            if !linked.contains(path) {
                inherit(own, entry, linked, path);
            }
            path.pop();
        }
    }
}

fn assign(entries: &mut Vec<Entry>, path: &[Key], value: &Node, out: &mut Diagnostics) {
    let Some((key, rest)) = path.split_first() else { return };
    let at = entries.iter().position(|entry| entry.key.text == key.text);
    if rest.is_empty() {
        match at {
            _ if value.is_null() => entries.retain(|entry| entry.key.text != key.text),
            Some(at) => entries[at] = Entry { key: key.clone(), value: value.clone() },
            None => entries.push(Entry { key: key.clone(), value: value.clone() }),
        }
        return;
    }
    let at = at.unwrap_or_else(|| {
        entries.push(Entry { key: key.clone(), value: Node { span: key.span, kind: Kind::Map(Vec::new()) } });
        entries.len() - 1
    });
    if entries[at].value.is_null() {
        entries[at].value.kind = Kind::Map(Vec::new());
    }
    match &mut entries[at].value.kind {
        Kind::Map(inner) => assign(inner, rest, value, out),
        _ => {
            let text = format!("{} has no keys of its own here", tick(&key.text));
            out.error(rest[0].span, text).also(entries[at].value.span, "its value").hint(format!("set it as a whole: `--set {}=…`", key.text));
        }
    }
}

/// Keys of `defaults` that reach no block, because none uses a backend that has them.
pub fn without_effect<'a>(defaults: &'a [Entry], backends: &[&str]) -> Vec<&'a Entry> {
    let reaches =
        |entry: &&Entry| vocabulary::DEFAULTS.key(&entry.key.text).is_none_or(|key| backends.iter().any(|backend| key.is_on(Some(backend))));
    defaults.iter().filter(|entry| !reaches(entry)).collect()
}
