//! A results directory as a stranger makes one who can seal: a real one, with whatever a test puts into it.

use crate::lab::{Lab, Ran};
use isotherm::digest::sha256_hex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One of every kind: erases a screen, makes a link, sets the clipboard, colours by C1, goes back, overwrites a line, reverses, runs in a page,
/// in a spreadsheet, in Markdown and in LaTeX.
pub const TEXT: &str = "=cmd|' /C calc'!A0\u{1b}[2J\u{1b}]8;;http://x\u{7}l\u{1b}]8;;\u{7}\u{1b}]52;c;eA==\u{7}\u{9b}31m\u{8}\u{8}\r\n\t\u{202e}\
    <script>alert(1)</script><img src=x onerror=y>`c`**b**[l](http://x)\n# h\n| $m$ \\input{x}%_^~\u{0}";

/// A directory with the records of one point.
pub struct Stranger {
    pub lab: Lab,
    pub dir: PathBuf,
}

/// Where the records of [`Stranger::new`] lie.
pub const POINT: &str = "here/level=1";

impl Stranger {
    /// Four good records of one point, with their plan, journal and device report.
    pub fn new() -> Stranger {
        let lab = Lab::new();
        let dir = lab.results("c");
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/reference");
        // Its directory there ends with digits of its identity, which are others each time the reference is made.
        let mut points = fs::read_dir(shipped.join("here")).unwrap().flatten().map(|entry| entry.path());
        let of_level_1 = points.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("level=1-")).unwrap();
        for (from, place) in [(of_level_1, POINT), (shipped.join("devices"), "devices")] {
            fs::create_dir_all(dir.join(place)).unwrap();
            for entry in fs::read_dir(from).unwrap().flatten() {
                fs::copy(entry.path(), dir.join(place).join(entry.file_name())).unwrap();
            }
        }
        for name in ["plan.json", "journal.ndjson", "campaign.yaml"] {
            fs::copy(shipped.join(name), dir.join(name)).unwrap();
        }
        fs::write(
            dir.join(".isotherm-id"),
            r#"{"id_version":1,"results_id":"a30c8d65-e2f7-4b0f-9e92-7f1b4ab86cb8","salt":"00","campaign":"c","campaign_file":"../../c.yaml"}"#,
        )
        .unwrap();
        Stranger { lab, dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The first record, whole.
    pub fn record(&self) -> Value {
        let mut record: Value = serde_json::from_slice(&fs::read(self.path(POINT).join("timing-r0.json")).unwrap()).unwrap();
        record.as_object_mut().unwrap().remove("seal");
        record
    }

    /// Put it in the place of the first record, with a seal that fits.
    pub fn put(&self, record: &Value) {
        fs::write(self.path(POINT).join("timing-r0.json"), sealed(record)).unwrap();
    }

    /// Every command that reads such a directory, the one that writes into it last.
    pub fn every_command(&self) -> Vec<Ran> {
        let dir = self.dir.to_str().unwrap();
        let copy = self.lab.path("copy");
        let copy = copy.to_str().unwrap();
        let commands: &[&[&str]] = &[
            &["report", dir],
            &["report", dir, "--include", "degraded"],
            &["report", dir, "--format", "markdown"],
            &["report", dir, "--format", "csv"],
            &["report", dir, "--json"],
            &["status", dir],
            &["status", dir, "--json"],
            &["verify", dir],
            &["verify", dir, "--json"],
            &["export", dir, "--public", copy],
            &["export", dir, "--public", copy, "--json"],
            &["reparse", dir, "--dry-run"],
            &["reparse", dir, "--json", "--dry-run"],
            &["reparse", dir],
        ];
        commands.iter().map(|args| self.run(args)).collect()
    }

    /// What the command prints can be shown, and nothing outside of the directories that are its own was written.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Ran {
        let before = self.outside();
        let ran = self.lab.run(args);
        is_harmless(args, &ran);
        assert_eq!(self.outside(), before, "{args:?} wrote elsewhere");
        ran
    }

    /// Files of the lab that no command has any business with: size and content.
    fn outside(&self) -> BTreeMap<PathBuf, (u64, String)> {
        let own = [self.dir.clone(), self.lab.path("copy"), self.lab.path("state"), self.lab.path("cache")];
        let files = self.lab.all_files().into_iter().filter(|path| !own.iter().any(|dir| path.starts_with(dir)));
        files.map(|path| (path.clone(), (fs::metadata(&path).unwrap().ino(), sha256_hex(&fs::read(&path).unwrap())))).collect()
    }
}

/// A record's file.
pub fn sealed(record: &Value) -> Vec<u8> {
    let text = record.to_string();
    let content = format!("{},\n", text.strip_suffix('}').unwrap());
    format!("{content}\"seal\":\"{}\"}}\n", sha256_hex(content.as_bytes())).into_bytes()
}

/// No control and no format character reaches the terminal, and nothing broke.
#[track_caller]
pub fn is_harmless(args: &[&str], ran: &Ran) {
    for (stream, bytes) in [("stdout", &ran.0.stdout), ("stderr", &ran.0.stderr)] {
        let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{args:?}: {stream}: {error}"));
        let steers =
            |c: &char| c.is_control() && *c != '\n' || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        let found = text.char_indices().find(|(_, c)| steers(c)).map(|(at, c)| (c, text[..at].lines().last().unwrap_or_default()));
        assert_eq!(found, None, "{args:?}: {stream}");
        assert!(!text.contains("panicked"), "{args:?}: {text}");
    }
    assert!(ran.code().is_some_and(|code| code <= 5), "{args:?}: {:?}", ran.0.status);
}
