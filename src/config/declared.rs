//! Variables of workloads as a campaign's text declares them, with their places: for whoever has to take them out of the text.

use super::diagnose::{Diagnostics, Span};
use super::yaml::{self, Entry, Kind, Node};

/// A variable that has one value; a list would be an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    /// After quotes and escapes; as written, with placeholders.
    pub value: String,
    /// Of the value, with its quotes; of what a block scalar says, the lines. Behind an alias, the alias.
    pub span: Span,
}

/// Variables of a campaign's text, or of a file that it uses, in file order; what anchors under `x-…` hold is among them. `None` if it is
/// no YAML.
#[must_use]
pub fn variables_of(text: &str) -> Option<Vec<Declared>> {
    let mut out = Diagnostics::default();
    let root = yaml::read(text, 0, &mut out)?;
    let mut found = Vec::new();
    look(&root, &mut found);
    let values: Vec<(String, String)> = found.iter().map(|one| (one.name.clone(), one.value.clone())).collect();
    if let Kind::Map(entries) = &root.kind {
        for entry in entries.iter().filter(|entry| entry.key.text.starts_with("x-")) {
            anchored(&entry.value, &values, &mut found);
        }
    }
    found.sort_by_key(|one| one.span.start);
    found.dedup();
    Some(found)
}

/// Hosts and users by which a campaign's text, or a file that it uses, reaches its devices. A host that is called like its device is none:
/// the device's name is no secret.
#[must_use]
pub fn reached_by(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut hosts, mut users) = (Vec::new(), Vec::new());
    let Some(root) = yaml::read(text, 0, &mut Diagnostics::default()) else { return (hosts, users) };
    for device in entries(&root).iter().filter(|entry| entry.key.text == "devices").flat_map(|devices| entries(&devices.value)) {
        let ssh = entries(&device.value).iter().filter(|entry| entry.key.text == "ssh").flat_map(|ssh| entries(&ssh.value));
        let text = |key: &str| ssh.clone().find(|entry| entry.key.text == key).and_then(|entry| Some(entry.value.scalar()?.text.clone()));
        hosts.extend(text("host").filter(|host| *host != device.key.text));
        users.extend(text("user"));
        for jump in text("proxy_jump").iter().flat_map(|jumps| jumps.split(',')) {
            let (user, host) = jump.split_once('@').map_or((None, jump), |(user, host)| (Some(user), host));
            users.extend(user.map(str::to_owned));
            hosts.push(host.split(':').next().unwrap_or(host).to_owned());
        }
    }
    (hosts, users)
}

fn entries(node: &Node) -> &[Entry] {
    if let Kind::Map(entries) = &node.kind { entries } else { &[] }
}

fn look(node: &Node, found: &mut Vec<Declared>) {
    match &node.kind {
        Kind::Scalar(_) => {}
        Kind::Seq(items) => items.iter().for_each(|item| look(item, found)),
        Kind::Map(entries) => {
            for Entry { key, value } in entries {
                match (&value.kind, key.text.as_str()) {
                    (Kind::Map(variables), "env") => found.extend(variables.iter().filter_map(declared)),
                    _ => look(value, found),
                }
            }
        }
    }
}

fn declared(entry: &Entry) -> Option<Declared> {
    let scalar = entry.value.scalar().filter(|_| !entry.value.is_null())?;
    Some(Declared { name: entry.key.text.clone(), value: scalar.text.clone(), span: entry.value.span })
}

/// A value that a variable takes by an alias stands here.
fn anchored(node: &Node, values: &[(String, String)], found: &mut Vec<Declared>) {
    match &node.kind {
        Kind::Scalar(scalar) => {
            let of = values.iter().find(|(_, value)| *value == scalar.text);
            found.extend(of.map(|(name, value)| Declared { name: name.clone(), value: value.clone(), span: node.span }));
        }
        Kind::Seq(items) => items.iter().for_each(|item| anchored(item, values, found)),
        Kind::Map(entries) => entries.iter().for_each(|entry| anchored(&entry.value, values, found)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_variable_stands_where_its_value_does_however_it_is_written() {
        let text = "x-pin: &pin 1234\nmatrix:\n  - env:\n      A: &a \"4321\"\n      B: |\n        two\n        lines\n      C: *pin\n      D: [1, 2]\n      E: null\n      F:\n        plain\ndevices: { d: { env: { G: 'it''s' } } }\n";
        let found = variables_of(text).unwrap();
        let shown: Vec<(&str, &str, &str)> =
            found.iter().map(|one| (one.name.as_str(), one.value.as_str(), text[one.span.start..one.span.end].trim())).collect();
        assert_eq!(
            shown,
            [
                ("C", "1234", "1234"),
                ("A", "4321", "\"4321\""),
                ("B", "two\nlines\n", "two\n        lines"),
                ("C", "1234", "*pin"),
                ("F", "plain", "plain"),
                ("G", "it's", "'it''s'"),
            ]
        );
        assert_eq!(variables_of("a: [1"), None);
    }
}
