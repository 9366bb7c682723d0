//! The readers of what others have written, each as a function of bytes: takes any input, says whether it was understood, and panics where a
//! reader breaks a promise. Both drivers call these; they must not know which one does.

use isotherm::config::model::{Block, Campaign, Linked};
use isotherm::config::{self, ConfigErrors, Outside};
use isotherm::hidden::is_hidden;
use isotherm::plan::{Work, expand};
use isotherm::report::{self, Model, ReportInput, ReportOptions, StatusMatrix};
use isotherm::run::{self, manifest::Manifest};
use isotherm::store::journal::{self, Journal};
use isotherm::store::plan_file::StoredPlan;
use isotherm::store::record::Record;
use isotherm::store::{StoreError, formats, index, seal, sidecar};
use isotherm_wire::codec::{Frame, read_frame, write_bytes, write_message};
use isotherm_wire::result::RunResult;
use isotherm_wire::session::{Call, FromAgent, RunState};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

use crate::{corpus, memory};

/// One reader.
pub struct Target {
    pub name: &'static str,
    /// Was the input understood?
    read: fn(&[u8]) -> bool,
    real: fn() -> Vec<Vec<u8>>,
    /// Memory that it may hold: so many bytes, and so many for each byte of input.
    memory: (usize, usize),
}

pub const TARGETS: [Target; 6] = [
    Target { name: "frames", read: frames, real: corpus::frames, memory: (1 << 20, 100) },
    Target { name: "campaign", read: campaign, real: corpus::campaigns, memory: (32 << 20, 1000) },
    Target { name: "record", read: record, real: corpus::records, memory: (1 << 20, 100) },
    Target { name: "journal", read: journal, real: corpus::journals, memory: (1 << 20, 100) },
    Target { name: "index", read: index, real: corpus::indexes, memory: (1 << 20, 100) },
    Target { name: "plan", read: plan, real: corpus::plans, memory: (4 << 20, 4000) },
];

impl Target {
    pub fn named(name: &str) -> &'static Target {
        TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target {name:?}: {:?}", TARGETS.map(|t| t.name)))
    }

    /// Real inputs, and such as once broke something.
    pub fn seeds(&self) -> Vec<Vec<u8>> {
        (self.real)().into_iter().chain(corpus::found(self.name)).collect()
    }

    /// Read an input, and see that the memory for it is in proportion. Was it understood?
    pub fn execute(&self, input: &[u8]) -> bool {
        let (understood, most) = memory::most_during(|| (self.read)(input));
        let (base, of_byte) = self.memory;
        let may = base + of_byte * input.len();
        assert!(most <= may, "{} bytes of input took {most} bytes of memory, more than {may}", input.len());
        understood
    }
}

/// As a keeper and as a controller read what comes; the input is a stream, and the payload of one frame.
fn frames(input: &[u8]) -> bool {
    let mut framed = Vec::new();
    let length = u32::try_from(input.len()).unwrap_or(u32::MAX).to_be_bytes();
    framed.extend_from_slice(&length);
    framed.push(b'J');
    framed.extend_from_slice(input);
    let understood = stream_of_frames(input);
    stream_of_frames(&framed) || understood
}

fn stream_of_frames(mut stream: &[u8]) -> bool {
    let mut understood = false;
    while let Ok(Some(frame)) = read_frame(&mut stream) {
        match &frame {
            Frame::Bytes(chunk) => round_trip(&frame, |out| write_bytes(out, chunk)),
            Frame::Json(payload) => {
                understood |= message::<Call>(&frame) || message::<FromAgent>(&frame);
                let run_id = serde_json::from_slice::<RunResult>(payload).map(|result| result.run_id);
                if let Ok(result) = run::assemble::result(payload, &run_id.unwrap_or_default()) {
                    understood |= sealed(result);
                }
            }
        }
    }
    understood
}

fn round_trip(frame: &Frame, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) {
    let mut written = Vec::new();
    write(&mut written).expect("what was read can be written");
    assert_eq!(read_frame(&mut written.as_slice()).expect("what was written can be read").as_ref(), Some(frame));
}

fn message<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(frame: &Frame) -> bool {
    let Ok(message) = frame.message::<T>() else { return false };
    let mut written = Vec::new();
    write_message(&mut written, &message).expect("a message can be written");
    let again = read_frame(&mut written.as_slice()).expect("what was written can be read").expect("one frame");
    assert_eq!(again.message::<T>().expect("of the same shape"), message);
    true
}

/// A sealed result from a device becomes a record, whatever it says.
fn sealed(result: RunResult) -> bool {
    let sealed = RunState::Sealed { bytes: 0, sha256: String::new() };
    let Ok(manifest) = Manifest::of(result.manifest.clone(), &sealed) else { return false };
    let mut record = run::assemble::record(result, manifest, "salt", None);
    let _ = sidecar::take_out(&mut record, "timing-r0");
    reads_the_same(&record);
    true
}

/// What is read is what was written.
fn reads_the_same(record: &Record) {
    let written = seal::seal(record);
    let read = seal::open(&written).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&written)));
    assert_eq!(read, *record);
}

/// The whole reader and the expansion; what is behind a NUL is one `--set`.
fn campaign(input: &[u8]) -> bool {
    let text = String::from_utf8_lossy(input);
    let (file, set) = text.split_once('\0').map_or((&*text, None), |(file, set)| (file, Some(set.to_owned())));
    let set: Vec<String> = set.into_iter().collect();
    let read = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
        Some("devices.yaml") => Ok(b"devices: { here: { local: {}, builds: { old: { bench: /x } } } }\nmodels: { digits: { path: x } }\n".to_vec()),
        Some(name) => fs::read(corpus::root().join("configs/shared").join(name)),
        None => Err(io::Error::from(io::ErrorKind::NotFound)),
    };
    let variable = |name: &str| match name {
        "HOME" => Some("/home/{x}".to_owned()),
        "TOKEN" => Some("0123456789".to_owned()),
        _ => None,
    };
    let outside = Outside { read: &read, variable: &variable, set: &set, dir: None };
    let draft = match config::understand(file, Path::new("/c/x.yaml"), &outside) {
        Err(errors) => {
            has_places(&errors);
            return false;
        }
        Ok(draft) => draft,
    };
    draft.later.iter().for_each(has_places);
    draft.campaign.warnings.iter().for_each(|warning| is_harmless(warning));
    // A short file may well ask for a million points; they are as many as the reader allows, and take their time.
    if n_points(&draft.campaign) > 2000 {
        return true;
    }
    let Ok(plan) = expand::expand(&draft.campaign, &BTreeMap::new()) else { return true };
    // What isn't later has everything that a run needs.
    assert!(draft.later.is_some() || plan.points.iter().all(|point| !matches!(point.work, Work::Later)));
    true
}

fn n_points(campaign: &Campaign) -> usize {
    let product = |lengths: &mut dyn Iterator<Item = usize>| lengths.fold(1, usize::saturating_mul);
    let of_block = |block: &Block| {
        let included = block.include.iter().map(|map| product(&mut map.values().map(Vec::len))).fold(1, usize::saturating_add);
        product(&mut block.sweep.iter().map(Linked::len).chain([block.devices.len(), included]))
    };
    campaign.blocks.iter().map(of_block).fold(0, usize::saturating_add)
}

/// Every remark has its place inside of the texts, and says what to do.
fn has_places(errors: &ConfigErrors) {
    assert!(!errors.diagnostics.is_empty());
    let text = errors.sources.text();
    for error in &errors.diagnostics {
        for (span, _) in &error.labels {
            assert!(text.get(span.start..span.end).is_some(), "{} is at {span:?} of {}", error.message, text.len());
        }
        assert!(error.hint.is_some(), "{}", error.message);
    }
    let rendered = errors.render(false);
    assert!(rendered.contains("error:"));
    is_harmless(&rendered);
}

const PLACE: &str = "here/point-aaaaaaaa/timing-r0.json";

/// A results directory with one record; what was written into it before is gone.
struct Room(TempDir);

impl Room {
    fn with(record: &[u8]) -> Room {
        // In memory, where that is possible: a disk would be what is waited for.
        let in_memory = TempDir::new_in("/dev/shm");
        let room = Room(in_memory.or_else(|_| TempDir::new()).expect("a directory for temporary files"));
        let id = r#"{"id_version":1,"results_id":"r","salt":"00","campaign":"c","campaign_file":"(collected)"}"#;
        fs::create_dir_all(room.path(PLACE).parent().expect("it has one")).expect("a directory of our own");
        room.write(".isotherm-id", id.as_bytes());
        room.write(PLACE, record);
        room
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("a directory of our own");
    }

    /// All that a report is made from.
    fn tables(&self, plan: Option<StoredPlan>) {
        let all = index::read_all(self.0.path()).expect("a directory of our own");
        let input = ReportInput::new("c".into(), plan, all.records, all.broken);
        let model = Model::of(&input, ReportOptions { include_degraded: true });
        for text in [report::terminal(&model, Some(80), false), report::markdown(&model), report::csv(&model), report::json(&model)] {
            is_harmless(&text);
        }
        let matrix = StatusMatrix::of(&input);
        is_harmless(&matrix.terminal(Some(80), false));
        is_harmless(&matrix.json());
    }
}

/// Nothing that steers a terminal.
fn is_harmless(text: &str) {
    assert!(!text.chars().any(|c| is_hidden(c) && c != '\n'), "{text:?}");
}

/// The input is a record without its seal.
fn record(input: &[u8]) -> bool {
    let _ = seal::open(input);
    let sealed = corpus::sealed(input);
    let Ok(record) = seal::open(&sealed) else { return false };
    reads_the_same(&record);
    let room = Room::with(&sealed);
    room.tables(None);
    run::reparse(room.0.path(), None, "fuzz", true).expect("a directory of our own");
    true
}

fn journal(input: &[u8]) -> bool {
    let room = Room::with(b"");
    room.write("journal.ndjson", input);
    let (events, _) = match journal::read(room.0.path()) {
        Err(StoreError::Newer { .. }) => return false,
        read => read.expect("a file of our own"),
    };
    Journal::open(room.0.path()).and_then(|mut journal| journal.append(&serde_json::json!({"event": "next"}))).expect("it can be written");
    let (after, _) = journal::read(room.0.path()).expect("a file of our own");
    // One more, and one that says what was cut off.
    let torn = usize::from(room.path("journal.torn.0").exists());
    assert_eq!(after.len(), events.len() + 1 + torn);
    assert_eq!(after[..events.len()], events);
    !events.is_empty()
}

/// Whatever an index says, the records that are there are found.
fn index(input: &[u8]) -> bool {
    thread_local!(static ROOM: Room = Room::with(&corpus::reference()));
    ROOM.with(|room| {
        room.write("index.ndjson", input);
        let scan = index::scan(room.0.path()).expect("a directory of our own");
        assert_eq!(scan.entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), [PLACE]);
        index::write_index(room.0.path(), scan.entries.iter().chain(&scan.gone)).expect("a directory of our own");
        let again = index::scan(room.0.path()).expect("a directory of our own");
        assert_eq!((again.entries, again.gone, again.read), (scan.entries, scan.gone.clone(), 0));
        !scan.gone.is_empty()
    })
}

/// `plan.json`, and a device's report.
fn plan(input: &[u8]) -> bool {
    thread_local!(static ROOM: Room = Room::with(&corpus::reference()));
    let Ok(plan) = formats::PLAN.read(input) else { return false };
    ROOM.with(|room| room.tables(Some(plan)));
    true
}
