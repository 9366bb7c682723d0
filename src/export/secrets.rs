//! What must not be in a public copy: known names and places, and what is told by its form. One table for taking it out and for finding it.

use super::gather::Gathered;
use super::variables;
use crate::plan::names;
use crate::run::assemble::pseudonym;
use regex::bytes::{Captures, Regex};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A name of at least so many characters is looked for inside of other words, too, at the end.
const LONG_NAME: usize = 5;
/// What a text is called that a person named.
pub const NAMED_TEXT: &str = "text named by --redact";
/// What may stand right in front of a name and ends in a letter: a colour of a terminal, as it is or as a program writes it; an escaped
/// line break; an escaped character of an address.
const ESCAPE: &str = r"(?:\x1b|\\(?:u001b|x1b|033|e))\[[0-9;:?]*[A-Za-z]|\\[abefnrtv]|%[0-9A-F]{2}";

/// A text that is known.
struct Literal {
    /// Taken out wherever this matches.
    pattern: Regex,
    /// Found by this, which may match more.
    strict: Regex,
    replacement: String,
    what: &'static str,
    /// In bytes.
    length: usize,
    /// As a directory of a point would have it in its name; `None` if that is what is found anyway, or too short to tell anything.
    in_slug: Option<String>,
}

/// A text that is told by its form.
struct Form {
    pattern: Regex,
    /// With `$1`.
    replacement: &'static str,
    what: &'static str,
    /// Of what the pattern's last group took: is it one?
    takes: fn(&Secrets, &str) -> bool,
}

/// Everything that is taken out.
pub struct Secrets {
    /// Of pseudonyms; forgotten with this value.
    key: String,
    literals: Vec<Literal>,
    forms: Vec<Form>,
    /// UUIDs that are ours: runs and epochs.
    ids: BTreeSet<String>,
    pub variables: variables::Private,
    pub warnings: Vec<String>,
}

impl Secrets {
    pub fn of(gathered: &Gathered, redact: &[String]) -> Secrets {
        let key = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let variables = variables::Private::of(gathered);
        let short = |name: &str| pseudonym(&key, name)["hmac:".len()..][..8].to_owned();
        let mut literals = Vec::new();
        for text in redact.iter().filter(|text| !text.is_empty()) {
            literals.extend(literal(text, "<redacted>".into(), NAMED_TEXT, Around::Anything));
        }
        for (place, token) in &gathered.places {
            let what = match *token {
                "$CAMPAIGN" => "campaign directory",
                "$RESULTS" => "results directory",
                "$STATE" => "state directory",
                _ => "home directory",
            };
            literals.extend(literal(place, (*token).into(), what, Around::Path));
        }
        for value in variables.searched() {
            let around = if value.parse::<f64>().is_ok() { Around::Number } else { Around::Anything };
            literals.extend(literal(value, "<redacted>".into(), "value of a variable", around));
        }
        // The longest first: one may be a part of another.
        literals.sort_by_key(|literal| std::cmp::Reverse(literal.length));
        for host in gathered.hosts.iter().rev() {
            literals.extend(literal(host, format!("host-{}", short(host)), "host name", Around::Word));
        }
        for user in gathered.users.iter().rev() {
            literals.extend(literal(user, format!("user-{}", short(user)), "user name", Around::Word));
        }
        let machines = gathered.records.iter().filter_map(|(_, r)| r.device.machine.as_ref()).chain(gathered.reports.iter().map(|(_, r)| &r.machine));
        let mut facts: BTreeSet<(&str, &'static str)> = BTreeSet::new();
        let mut gpus: BTreeSet<(&str, &str)> = BTreeSet::new();
        for machine in machines {
            gpus.extend(machine.gpus.iter().filter_map(|gpu| Some((gpu.subject.as_str(), gpu.uuid.as_deref()?))));
            facts.insert((&machine.machine_key, "machine key"));
            facts.extend(machine.boot_id.as_deref().map(|id| (id, "boot id")));
        }
        for (fact, what) in facts {
            literals.extend(literal(fact, pseudonym(&key, fact), what, Around::Word));
        }
        // The whole of it first: columns are called by its beginning, which stays one name for one GPU.
        for (subject, uuid) in gpus {
            let replacement = format!("GPU-{}", short(uuid));
            literals.extend(literal(uuid, replacement.clone(), "GPU id", Around::Word));
            literals.extend(literal(subject, replacement, "GPU id", Around::Word));
        }

        let mut warnings = Vec::new();
        if gathered.unknown_hosts > 0 {
            let (n, s) = (gathered.unknown_hosts, if gathered.unknown_hosts == 1 { "" } else { "s" });
            warnings.push(format!(
                "{n} machine{s} of these records has a host name that is not known here, so it was not looked for: name it with `--redact NAME`"
            ));
        }
        let events = gathered.journal.iter().flat_map(|event| [&event["run_id"], &event["epoch"]]).filter_map(serde_json::Value::as_str);
        let ids = gathered.records.iter().flat_map(|(_, r)| [r.ids.run_id.as_str(), r.ids.epoch.as_str()]).chain(events).map(str::to_owned).collect();
        let mut forms = forms();
        forms.extend(variables.names().filter_map(assignment));
        Secrets { key, literals, forms, ids, variables, warnings }
    }

    /// Another name for a private one: the same for the same within one copy, and meaningless outside of it.
    pub fn pseudonym(&self, name: &str) -> String {
        pseudonym(&self.key, name)
    }

    /// The text without anything private; what was taken out.
    pub fn scrub<'t>(&self, text: &'t [u8]) -> (Cow<'t, [u8]>, BTreeSet<&'static str>) {
        let mut text = Cow::Borrowed(text);
        let mut what = BTreeSet::new();
        for literal in &self.literals {
            if literal.pattern.is_match(&text) {
                text = Cow::Owned(literal.replaced(&text));
                what.insert(literal.what);
            }
        }
        for form in &self.forms {
            if !form.pattern.captures_iter(&text).any(|found| self.takes(form, &found)) {
                continue;
            }
            what.insert(form.what);
            let replace = |found: &Captures<'_>| {
                let mut with = Vec::new();
                if self.takes(form, found) {
                    found.expand(form.replacement.as_bytes(), &mut with)
                } else {
                    with.extend_from_slice(&found[0])
                }
                with
            };
            text = Cow::Owned(form.pattern.replace_all(&text, replace).into_owned());
        }
        (text, what)
    }

    /// The same for a text.
    pub fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.scrub(text.as_bytes()).0).into_owned()
    }

    /// A text without what a person named, if that is in it.
    pub fn without_named(&self, text: &str) -> Option<String> {
        let named = self.literals.iter().filter(|literal| literal.what == NAMED_TEXT);
        let clean = named.fold(text.as_bytes().to_owned(), |text, literal| literal.replaced(&text));
        (clean != text.as_bytes()).then(|| String::from_utf8_lossy(&clean).into_owned())
    }

    /// Something private in the name of a file, also in the letters of a point's directory.
    pub fn find_in_name(&self, name: &[u8]) -> Option<&'static str> {
        let lower = String::from_utf8_lossy(name).to_lowercase();
        let in_slug = |literal: &&Literal| literal.in_slug.as_ref().is_some_and(|text| lower.contains(text));
        self.find(name).or_else(|| self.literals.iter().find(in_slug).map(|literal| literal.what))
    }

    /// Something private in a text, if there is anything; stricter than taking out.
    pub fn find(&self, text: &[u8]) -> Option<&'static str> {
        let known = self.literals.iter().find(|literal| literal.strict.is_match(text)).map(|literal| literal.what);
        known.or_else(|| {
            let form = self.forms.iter().find(|form| form.pattern.captures_iter(text).any(|found| self.takes(form, &found)));
            form.map(|form| form.what)
        })
    }

    fn takes(&self, form: &Form, found: &Captures<'_>) -> bool {
        let last = found.iter().flatten().last().map_or(&b""[..], |group| group.as_bytes());
        (form.takes)(self, &String::from_utf8_lossy(last))
    }
}

/// What may stand beside a literal.
#[derive(Clone, Copy, PartialEq)]
enum Around {
    Anything,
    /// No letter, digit or `_`, unless it is part of an [`ESCAPE`].
    Word,
    /// No digit.
    Number,
    /// Behind it no character of a file's name.
    Path,
}

fn literal(text: &str, replacement: String, what: &'static str, around: Around) -> Option<Literal> {
    let escaped = regex::escape(text);
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let edge = |c: Option<char>| if word(c) { r"\b" } else { "" };
    let (first, last) = (edge(text.chars().next()), edge(text.chars().last()));
    let pattern = match around {
        Around::Anything => escaped.clone(),
        Around::Word if first.is_empty() => format!("{escaped}{last}"),
        Around::Word => format!("(?:({ESCAPE})|{first}){escaped}{last}"),
        Around::Number => format!(r"\b{escaped}\b"),
        Around::Path => format!("{escaped}{last}"),
    };
    let strict = match around {
        Around::Path | Around::Number => pattern.clone(),
        // A short name inside of a word is chance.
        Around::Word if text.chars().count() < LONG_NAME => pattern.clone(),
        Around::Word | Around::Anything => escaped,
    };
    let compiled = |pattern: &str| Regex::new(&format!("(?i){pattern}")).ok();
    let in_slug = Some(names::in_slug(text)).filter(|slug| slug.len() >= LONG_NAME && *slug != text.to_lowercase());
    let length = text.len();
    Some(Literal { pattern: compiled(&pattern)?, strict: compiled(&strict)?, replacement, what, length, in_slug })
}

impl Literal {
    fn replaced(&self, text: &[u8]) -> Vec<u8> {
        let with = |found: &Captures<'_>| {
            let escape = found.get(1).map_or(&b""[..], |escape| escape.as_bytes());
            [escape, self.replacement.as_bytes()].concat()
        };
        self.pattern.replace_all(text, with).into_owned()
    }
}

/// What is told by its form. The last group of each pattern is what a form may still decline.
fn forms() -> Vec<Form> {
    let always: fn(&Secrets, &str) -> bool = |_, _| true;
    let form = |pattern: &str, replacement, what, takes| {
        let pattern = Regex::new(pattern).expect("a pattern of ours");
        Form { pattern, replacement, what, takes }
    };
    vec![
        form(r"(?-u)(?:/[^\s/:=]+)+/(scratch/[0-9a-f]{8}-[0-9a-f-]{27})", "$$STATE/$1", "state directory", always),
        form(r#"(?-u)/(?:home|Users)/[^/\s:;,"'<>|()\\]+"#, "~", "home directory", always),
        form(r"(?-u)(^|[^A-Za-z0-9_.~/-])/root($|[^A-Za-z0-9_.-])", "$1~$2", "home directory", always),
        // As ssh tells of hosts, whose names may stand in its configuration alone.
        form(r"(?-u)\b((?:connect to host|resolve hostname|Timeout, server) )([^\s:,<>]+)", "$1<host>", "host name", |_, name| {
            !name.starts_with("host-")
        }),
        form(r"(?-u)([^\s<>]+@[^\s<>:]+)(: Permission denied)", "<user>@<host>$2", "host name", always),
        form(r"(?-u)\b((?:[0-9]{1,3}\.){3}[0-9]{1,3})\b", "<address>", "address", |_, text| is_address(text)),
        form(r"(?i-u)((?:[0-9a-f]{1,4}|:)(?::[0-9a-f]{0,4}){2,7})", "<address>", "address", |_, text| is_address(text)),
        form(r"(?i-u)\b(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b", "<mac>", "MAC address", always),
        form(r"(?i-u)\b((?:PART)?UUID=)([^\s,;<>]+)", "$1<id>", "disk id", always),
        form(r"(?-u)/dev/disk/by-([a-z]+)/([^\s,;:<>]+)", "/dev/disk/by-$1/<id>", "disk id", always),
        form(r"(?i-u)\b([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\b", "<uuid>", "UUID", |secrets, id| !secrets.ids.contains(id)),
        form(
            r#"(?i-u)\b(serial(?:[ _-]?(?:number|no|num))?\.?["']?\s*[:=]\s*["']?)([A-Za-z0-9._-]{6,})"#,
            "$1<serial>",
            "serial number",
            // `serial: 12.5` may well be a time.
            |_, value| value.bytes().any(|b| b.is_ascii_digit()) && value.parse::<f64>().is_err(),
        ),
    ]
}

/// One that says where a machine is: neither itself nor everything.
fn is_address(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok_and(|address| !address.is_loopback() && !address.is_unspecified())
}

/// `NAME=value` on a line of its own, as `env` prints it.
fn assignment(name: &str) -> Option<Form> {
    let pattern = Regex::new(&format!(r"(?m-u)((?:^|\x00){}=)([^\n\x00]+)", regex::escape(name))).ok()?;
    Some(Form { pattern, replacement: "$1<redacted>", what: "value of a variable", takes: |_, value| value != "<redacted>" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let gathered = Gathered {
            places: vec![("/srv/bench/pi".into(), "$CAMPAIGN")],
            users: ["annabel".to_owned(), "pi".to_owned()].into(),
            hosts: ["gustav".to_owned(), "vm".to_owned()].into(),
            ..Gathered::default()
        };
        Secrets::of(&gathered, &["Project X".to_owned()])
    }

    #[track_caller]
    fn scrubbed(text: &str, expected: &str) {
        let secrets = secrets();
        let short = |name: &str| pseudonym(&secrets.key, name)["hmac:".len()..][..8].to_owned();
        let expected = expected.replace("GUSTAV", &format!("host-{}", short("gustav"))).replace("ANNABEL", &format!("user-{}", short("annabel")));
        let expected = expected.replace("VM", &format!("host-{}", short("vm"))).replace("PI", &format!("user-{}", short("pi")));
        assert_eq!(secrets.text(text), expected);
        assert_eq!(secrets.find(secrets.text(text).as_bytes()), None, "{text}");
    }

    #[test]
    fn names_and_places_are_taken_out_whole() {
        scrubbed("at gustav: annabel", "at GUSTAV: ANNABEL");
        scrubbed("Gustav.local", "GUSTAV.local");
        scrubbed("/srv/bench/pi/run.sh /srv/bench/pip", "$CAMPAIGN/run.sh /srv/bench/pip");
        scrubbed("/proc/vmstat pi5 3.14", "/proc/vmstat pi5 3.14");
        scrubbed("of project x", "of <redacted>");
        scrubbed("\u{1b}[1;32mgustav\u{1b}[0m \\u001b[1mvm", "\u{1b}[1;32mGUSTAV\u{1b}[0m \\u001b[1mVM");
        scrubbed(r#"{"u": "a\npi\tpi"}, x%2Fpi"#, r#"{"u": "a\nPI\tPI"}, x%2FPI"#);
    }

    #[test]
    fn what_is_told_by_its_form_is_taken_out() {
        scrubbed("/home/someone/x:/Users/other", "~/x:~");
        scrubbed("cd /root; ls /root/.cache /rootfs", "cd ~; ls ~/.cache /rootfs");
        scrubbed("eth0 52:54:00:AB:cd:ef up", "eth0 <mac> up");
        scrubbed("root=UUID=1234-ABCD ro", "root=UUID=<id> ro");
        scrubbed("/dev/disk/by-id/nvme-Samsung_S4X on /", "/dev/disk/by-id/<id> on /");
        scrubbed("ssh: connect to host lab7.example.org port 22: refused", "ssh: connect to host <host> port 22: refused");
        scrubbed("anna@10.0.0.7: Permission denied (publickey).", "<user>@<host>: Permission denied (publickey).");
        scrubbed("Timeout, server 10.0.0.7 not responding.", "Timeout, server <host> not responding.");
        scrubbed("from 192.168.1.20 and fe80::12:ab4f at 12:34:56", "from <address> and <address> at 12:34:56");
        scrubbed("on 127.0.0.1 and ::1, version 1.24.4", "on 127.0.0.1 and ::1, version 1.24.4");
        scrubbed("disk 0f9a3c1e-2b4d-4e6f-8a1b-2c3d4e5f6a7b", "disk <uuid>");
        scrubbed("Serial Number: S4X9NF0M1", "Serial Number: <serial>");
        scrubbed("serial: 12.500 parallel: 3.5", "serial: 12.500 parallel: 3.5");
        scrubbed("tmp /var/tmp/x/74f7813568b0/scratch/01a22aca-528e-7228-8a2e-dce5c97feaea/f", "tmp $STATE/scratch/<uuid>/f");
    }

    #[test]
    fn a_long_name_inside_of_a_word_is_not_taken_out_and_is_found() {
        let secrets = secrets();
        assert_eq!(secrets.text("/opt/annabels/x"), "/opt/annabels/x");
        assert_eq!(secrets.find(b"/opt/annabels/x"), Some("user name"));
        assert_eq!(secrets.find(b"/proc/vmstat"), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_searched_too() {
        let secrets = secrets();
        let (text, what) = secrets.scrub(b"\xff gustav \xfe");
        assert!(text.starts_with(b"\xff host-") && text.ends_with(b" \xfe"));
        assert_eq!(what, BTreeSet::from(["host name"]));
    }
}
