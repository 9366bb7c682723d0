//! One record for others.

use super::gather::Gathered;
use super::secrets::Secrets;
use super::{ExportError, Made, is_superseded, sidecars, variables, walk};
use crate::backend::output;
use crate::config::model::AxisValue;
use crate::digest::sha256_hex;
use crate::plan::identity::point_identity;
use crate::plan::names;
use crate::store::record::{ExportNote, Exported, Identity, PointIds, RawStream, Record, Replaced, Sidecar};
use base64::{Engine, engine::general_purpose::STANDARD};
use indexmap::IndexMap;
use isotherm_wire::inspect::Machine;
use isotherm_wire::result::{Blob, Encoding};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// What a value is that is not given away.
pub const REDACTED: &str = "<redacted>";

/// Words of a kernel command line that say how fast a machine is and nothing of whose it is.
const KERNEL_WORDS: [&str; 33] = [
    "amd_pstate",
    "clocksource",
    "cma",
    "cpufreq.default_governor",
    "cpuidle.off",
    "default_hugepagesz",
    "hugepages",
    "hugepagesz",
    "idle",
    "intel_idle.max_cstate",
    "intel_pstate",
    "iommu",
    "irqaffinity",
    "isolcpus",
    "maxcpus",
    "mem",
    "mitigations",
    "nohz",
    "nohz_full",
    "nosmt",
    "nr_cpus",
    "numa_balancing",
    "pcie_aspm",
    "preempt",
    "processor.max_cstate",
    "psi",
    "quiet",
    "rcu_nocbs",
    "skew_tick",
    "swapaccount",
    "threadirqs",
    "transparent_hugepage",
    "tsc",
];

/// Names that are the same in all files of a copy.
pub struct Names {
    /// Point identity → the one computed anew.
    identities: HashMap<String, String>,
    /// Directories of points, by their names.
    dirs: HashMap<String, String>,
    results_id: String,
    campaign_sha256: Option<(String, String)>,
}

impl Names {
    pub fn of(gathered: &Gathered, secrets: &Secrets, results_id: &str, campaign: &Option<String>) -> Result<Names, ExportError> {
        let mut identities: HashMap<String, String> = HashMap::new();
        let mut came_from: HashMap<String, (&str, &str)> = HashMap::new();
        let mut dirs: HashMap<String, String> = HashMap::new();
        let eight = |text: &str| text.get(..8).unwrap_or_default().to_owned();
        for (path, record) in &gathered.records {
            let old = &record.ids.point_identity;
            // As it is written; one that somebody has renamed since goes by that name.
            let dir = format!("{}-{}", record.ids.point.slug, eight(old));
            let clean = slug(&record.ids.point, secrets);
            if let Some(new) = identities.get(old) {
                dirs.entry(dir).or_insert_with(|| format!("{clean}-{}", eight(new)));
                continue;
            }
            let new =
                point_identity(&identity(record, secrets, &mut Vec::new()).map_err(|reason| ExportError::Shape { file: path.clone(), reason })?);
            if let Some((_, other)) = came_from.insert(new.clone(), (old, path)) {
                return Err(ExportError::Merged { one: other.to_owned(), other: path.clone() });
            }
            dirs.entry(dir).or_insert_with(|| format!("{clean}-{}", eight(&new)));
            identities.insert(old.clone(), new);
        }
        let sha256 = |text: &String| sha256_hex(text.as_bytes());
        let campaign_sha256 = gathered.campaign.as_ref().map(sha256).zip(campaign.as_ref().map(sha256));
        Ok(Names { identities, dirs, results_id: results_id.to_owned(), campaign_sha256 })
    }

    /// `None` for an identity that no record has: what it was made of isn't known here.
    pub fn identity(&self, old: &str) -> Option<&str> {
        self.identities.get(old).map(String::as_str)
    }

    /// Of the text of the campaign as it is in the copy.
    pub fn campaign_sha256(&self, old: &str) -> String {
        match &self.campaign_sha256 {
            Some((of, new)) if of == old => new.clone(),
            _ => old.to_owned(),
        }
    }

    /// Where a record lies in the copy.
    pub fn place(&self, path: &str, secrets: &Secrets) -> String {
        let part = |(i, part): (usize, &str)| match self.dirs.get(part) {
            Some(dir) if i == 1 && !is_superseded(path) => dir.clone(),
            _ => secrets.text(part),
        };
        path.split('/').enumerate().map(part).collect::<Vec<_>>().join("/")
    }

    /// A text of the journal with such paths in it. A point's directory that no record tells of has no name in the copy.
    pub fn places(&self, text: &str) -> String {
        let is_one = |part: &str, next: Option<&&str>| {
            let digits = part.rsplit_once('-').map_or("", |(_, digits)| digits);
            next.is_some_and(|file| file.ends_with(".json")) && digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit())
        };
        let parts: Vec<&str> = text.split('/').collect();
        let place = |(i, part): (usize, &&str)| match self.dirs.get(*part) {
            Some(dir) => dir.clone(),
            None if is_one(part, parts.get(i + 1)) => "unknown".to_owned(),
            None => (*part).to_owned(),
        };
        parts.iter().enumerate().map(place).collect::<Vec<_>>().join("/")
    }
}

/// The name of a point for people: made of its axes anew if any of them is another in the copy, because it has them in other letters.
pub fn slug(point: &PointIds, secrets: &Secrets) -> String {
    let clean = |value: &AxisValue| match value {
        AxisValue::Text(text) => AxisValue::Text(secrets.text(text)),
        AxisValue::List(list) => AxisValue::List(list.iter().map(|text| secrets.text(text)).collect()),
        other => other.clone(),
    };
    let axes: IndexMap<String, AxisValue> = point.axes.iter().map(|(name, value)| (secrets.text(name), clean(value))).collect();
    let same = axes == point.axes && secrets.text(&point.slug) == point.slug && secrets.find_in_name(point.slug.as_bytes()).is_none();
    if same {
        return point.slug.clone();
    }
    // Which axes are swept stands in the plan alone; those that are have their names in it.
    let is_swept = |name: &String| point.slug.contains(&format!("{}=", names::in_slug(name.strip_prefix("env.").unwrap_or(name))));
    let swept: Vec<String> = point.axes.keys().filter(|name| is_swept(name)).map(|name| secrets.text(name)).collect();
    names::slug(&swept, &axes, &secrets.text(&point.backend))
}

/// The identity without what is private: different ones stay different.
fn identity(record: &Record, secrets: &Secrets, replaced: &mut Vec<Replaced>) -> Result<Identity, String> {
    let mut identity = record.ids.identity.clone();
    let mut note = |field: &str, what: &str| replaced.push(Replaced { field: format!("ids.identity.{field}"), what: what.to_owned() });
    for (name, value) in identity.spec.get_mut("env").and_then(Value::as_object_mut).into_iter().flatten() {
        if let Value::String(text) = value
            && !variables::is_public(name)
            && !variables::is_axis(name, &record.ids.point)
        {
            *text = format!("<redacted:{}>", &secrets.pseudonym(text)["hmac:".len()..]);
            note(&format!("spec.env.{name}"), "value of a variable");
        }
    }
    if let Some(Value::String(key)) = identity.facts.pointer_mut("/machine/machine_key") {
        *key = secrets.pseudonym(key);
        note("facts.machine.machine_key", "machine key");
    }
    let mut value = serde_json::to_value(&identity).map_err(|e| e.to_string())?;
    walk::scrub(&mut value, secrets, "ids.identity", replaced);
    serde_json::from_value(value).map_err(|e| e.to_string())
}

/// A machine without what tells which one it is.
pub fn machine(machine: &mut Machine, secrets: &Secrets, field: &str, replaced: &mut Vec<Replaced>) {
    let mut note = |name: &str, what: String| replaced.push(Replaced { field: format!("{field}.{name}"), what });
    machine.hostname = secrets.pseudonym(&machine.hostname);
    note("hostname", "host name".into());
    machine.machine_key = secrets.pseudonym(&machine.machine_key);
    note("machine_key", "machine key".into());
    if let Some(id) = &mut machine.boot_id {
        *id = secrets.pseudonym(id);
        note("boot_id", "boot id".into());
    }
    if let Some(line) = &machine.kernel_cmdline {
        let words: Vec<&str> = line.split_whitespace().collect();
        let kept: Vec<&str> = words.iter().copied().take_while(|word| *word != "--").filter(|word| is_harmless(word)).collect();
        if kept.len() < words.len() {
            note("kernel_cmdline", "words of the kernel command line".into());
        }
        machine.kernel_cmdline = (!kept.is_empty()).then(|| kept.join(" "));
    }
}

fn is_harmless(word: &str) -> bool {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    KERNEL_WORDS.contains(&name) && value.bytes().all(|b| b.is_ascii_alphanumeric() || b",._:-".contains(&b))
}

/// A record with everything private replaced, declared, and ready to be sealed. `dir`: where its sidecars lie.
pub fn public(old: &Record, dir: &Path, secrets: &Secrets, names: &Names, note: &ExportNote) -> Result<Made, String> {
    let mut record = old.clone();
    let mut replaced = Vec::new();
    let mut files = sidecars(old, dir)?;
    record.ids.identity = identity(old, secrets, &mut replaced)?;
    if let Some(of) = &mut record.device.machine {
        machine(of, secrets, "device.machine", &mut replaced);
    }
    for (name, value) in record.backend.executed.iter_mut().flat_map(|executed| &mut executed.env) {
        if !variables::is_public(name) && !variables::is_axis(name, &old.ids.point) {
            REDACTED.clone_into(value);
            replaced.push(Replaced { field: format!("backend.executed.env.{name}"), what: "value of a variable".into() });
        }
    }
    let raw = &mut record.raw;
    let mut streams: Vec<(String, &mut RawStream)> = vec![("raw.stdout".into(), &mut raw.stdout), ("raw.stderr".into(), &mut raw.stderr)];
    streams.extend(raw.files.iter_mut().map(|(name, stream)| (format!("raw.files.{}", secrets.text(name)), stream)));
    for (i, invocation) in raw.warmup.iter_mut().enumerate() {
        streams.push((format!("raw.warmup.{i}.stdout"), &mut invocation.stdout));
        streams.push((format!("raw.warmup.{i}.stderr"), &mut invocation.stderr));
    }
    for (field, stream) in streams {
        scrub_stream(stream, &field, dir, secrets, &mut files, &mut replaced)?;
    }

    let mut value = serde_json::to_value(&record).map_err(|e| e.to_string())?;
    walk::scrub(&mut value, secrets, "", &mut replaced);
    let mut record: Record = serde_json::from_value(value).map_err(|e| e.to_string())?;
    record.ids.point.slug = slug(&old.ids.point, secrets);
    let ids = &mut record.ids;
    ids.point_identity = point_identity(&ids.identity);
    ids.results_id.clone_from(&names.results_id);
    ids.campaign_sha256 = names.campaign_sha256(&ids.campaign_sha256);
    for (field, changed, what) in [
        ("ids.point_identity", ids.point_identity != old.ids.point_identity, "point identity, computed anew"),
        ("ids.results_id", true, "id of the results directory"),
        ("ids.campaign_sha256", ids.campaign_sha256 != old.ids.campaign_sha256, "sha256 of the campaign file, computed anew"),
    ] {
        replaced.extend(changed.then(|| Replaced { field: field.into(), what: what.into() }));
    }
    if ids.point.slug != old.ids.point.slug {
        replaced.push(Replaced { field: "ids.point.slug".into(), what: "values in the name of a directory".into() });
    }
    if (&ids.point.device, &ids.point.slug) != (&old.ids.point.device, &old.ids.point.slug) {
        // It is a hash of these.
        ids.job_id = secrets.pseudonym(&ids.job_id)["hmac:".len()..].to_owned();
        replaced.push(Replaced { field: "ids.job_id".into(), what: "job id".into() });
    }
    // A copy of a copy says what the first one did, too.
    replaced.extend(old.exported.iter().flat_map(|exported| exported.replaced.iter().cloned()));
    replaced.sort();
    replaced.dedup();
    record.exported = Some(Exported { at: note.at.clone(), isotherm: note.isotherm.clone(), replaced });
    Ok(Made { record, sidecars: files.into_iter().collect() })
}

/// Search a stream wherever it lies, and make its length and hash those of what is left.
fn scrub_stream(
    stream: &mut RawStream,
    field: &str,
    dir: &Path,
    secrets: &Secrets,
    files: &mut BTreeMap<String, Vec<u8>>,
    replaced: &mut Vec<Replaced>,
) -> Result<(), String> {
    let content = output::kept(stream, dir)?;
    // Beginning and end each by itself: what stands between them is not there.
    let cut = stream.kept_head_bytes.and_then(|bytes| usize::try_from(bytes).ok()).map(|at| at.min(content.len()));
    let (head, tail) = content.split_at(cut.unwrap_or(content.len()));
    let (head, mut what) = secrets.scrub(head);
    let (tail, more) = secrets.scrub(tail);
    what.extend(more);
    if what.is_empty() {
        return Ok(());
    }
    replaced.extend(what.into_iter().map(|what| Replaced { field: field.to_owned(), what: what.to_owned() }));
    let whole = [&head[..], &tail[..]].concat();
    match cut {
        None => (stream.bytes, stream.sha256) = (whole.len() as u64, sha256_hex(&whole)),
        Some(_) => {
            stream.kept_head_bytes = Some(head.len() as u64);
            // Of all of it as it was; names could be tried with it.
            stream.sha256 = String::new();
            replaced.push(Replaced { field: format!("{field}.sha256"), what: "hash of a stream of which only the ends are kept".into() });
        }
    }
    match &mut stream.sidecar {
        Some(sidecar) => {
            let bytes = zstd::bulk::compress(&whole, 3).map_err(|e| e.to_string())?;
            *sidecar = Sidecar { bytes: bytes.len() as u64, sha256: sha256_hex(&bytes), ..sidecar.clone() };
            files.insert(sidecar.name.clone(), bytes);
        }
        None => {
            stream.head = Some(blob(&head));
            stream.tail = cut.map(|_| blob(&tail));
        }
    }
    Ok(())
}

fn blob(bytes: &[u8]) -> Blob {
    match std::str::from_utf8(bytes) {
        Ok(text) => Blob { encoding: Encoding::Utf8, data: text.to_owned() },
        Err(_) => Blob { encoding: Encoding::Base64, data: STANDARD.encode(bytes) },
    }
}
