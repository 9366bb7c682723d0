//! The campaign file: what is understood, and what is said about what isn't.

use isotherm::config::{self, ConfigErrors};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

#[path = "config/expansion.rs"]
mod expansion;
#[path = "config/language.rs"]
mod language;
#[path = "config/support.rs"]
mod support;
#[path = "config/traps.rs"]
mod traps;
#[path = "config/valid.rs"]
mod valid;

const INVALID: &str = "tests/configs/invalid";

fn invalid_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(INVALID).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a stem").to_string_lossy().replace(' ', "_")
}

fn errors_of(source: &str) -> ConfigErrors {
    config::parse(source, Path::new("x.yaml")).expect_err("a file with faults")
}

#[test]
fn every_invalid_file_has_its_errors_in_a_snapshot() {
    for file in invalid_files() {
        let errors = config::load(&file, &[]).expect_err(&file.display().to_string());
        assert!(!errors.diagnostics.is_empty(), "{}", file.display());
        let name = stem(&file);
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false, snapshot_path => "configs/snapshots" }, {
            insta::assert_snapshot!(name, errors.render(false));
        });
    }
}

#[test]
fn no_snapshot_is_without_its_file() {
    let files: BTreeSet<String> = invalid_files().iter().map(|file| stem(file)).collect();
    let snapshots = fs::read_dir("tests/configs/snapshots").expect("a directory").map(|entry| entry.expect("an entry").path());
    for snapshot in snapshots.filter(|path| path.extension().is_some_and(|extension| extension == "snap")) {
        assert!(files.contains(&stem(&snapshot)), "{}", snapshot.display());
    }
}

#[test]
fn every_error_has_a_hint_and_is_a_fragment() {
    for file in invalid_files() {
        let errors = config::load(&file, &[]).expect_err("faults");
        for error in &errors.diagnostics {
            assert!(error.hint.is_some(), "{}: {}", file.display(), error.message);
            assert!(!error.message.ends_with('.'), "{}", error.message);
            assert!(!error.message.starts_with(|c: char| c.is_uppercase() && c != 'Y'), "{}", error.message);
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_names_itself() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = dir.path().join("none.yaml");
    let text = config::load(&missing, &[]).expect_err("missing").render(false);
    assert!(text.contains(&format!("error: cannot read {}: no such file or directory", missing.display())), "{text}");
    let text = config::load(dir.path(), &[]).expect_err("a directory").render(false);
    assert!(text.contains("is a directory"), "{text}");
}

#[test]
fn a_file_that_is_too_large_is_not_read_to_its_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let large = dir.path().join("large.yaml");
    fs::File::create(&large).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    let text = config::load(&large, &[]).expect_err("too large").render(false);
    assert!(text.contains("has more than 4 MiB"), "{text}");
}

#[test]
fn a_byte_that_is_not_utf_8_is_located() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("latin1.yaml");
    fs::write(&file, b"campaign: x\ndescription: caf\xe9\n").expect("written");
    let text = config::load(&file, &[]).expect_err("latin 1").render(false);
    assert!(text.contains("error: not UTF-8 text"), "{text}");
    assert!(text.contains("latin1.yaml:2:17") && text.contains("iconv -f latin1"), "{text}");
    fs::write(&file, b"\xff\xfed\0e\0").expect("written");
    let text = config::load(&file, &[]).expect_err("UTF-16").render(false);
    assert!(text.contains("iconv -f utf-16"), "{text}");
}

#[test]
fn places_hold_with_a_byte_order_mark_and_dos_line_ends() {
    let unix = "campaign: x\ndevices: { here: { local: {} } }\nmatrix:\n  - { devices: here, backend: command, argv: [x], wamup: 1 }\n";
    let expected = errors_of(unix).render(false);
    assert!(expected.contains("x.yaml:4:51"), "{expected}");
    assert_eq!(errors_of(&format!("\u{feff}{unix}")).render(false), expected);
    assert_eq!(errors_of(&unix.replace('\n', "\r\n")).render(false), expected);
}

#[test]
fn colour_is_only_where_it_is_asked_for() {
    let errors = errors_of("devices: 1\n");
    assert!(!errors.render(false).contains('\u{1b}'));
    assert!(errors.render(true).contains('\u{1b}'));
}

#[test]
fn no_file_makes_the_reader_panic() {
    let pieces = [
        "devices:",
        "matrix:",
        "models:",
        "defaults:",
        " here:",
        " { local: {} }",
        "\n",
        "  ",
        "- ",
        "backend: command",
        "backend: builtin",
        "model: ",
        "argv: ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "threads: ",
        "1",
        "\"{a}\"",
        "env:",
        "params: ",
        "exclude: ",
        "metrics: ",
        "success: ",
        "x",
        "*a",
        "&a ",
        "<<: ",
        "~",
        "é",
        ": ",
        "regex: '(a)'",
        "json: /a",
    ];
    let mut state = 11_u64;
    for _ in 0..4000 {
        let mut source = String::new();
        for _ in 0..25 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            source += pieces[usize::try_from(state >> 33).expect("31 bits") % pieces.len()];
        }
        if let Err(errors) = config::parse(&source, Path::new("x.yaml")) {
            assert!(errors.render(false).contains("error:"), "{source}");
        }
    }
}

#[test]
fn the_example_of_the_documentation_is_understood_and_can_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/campaign.md")).expect("the page is there");
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the page has an example");
    let campaign = config::parse(example, Path::new("/c/x.yaml")).unwrap_or_else(|e| panic!("{e}"));
    assert!(campaign.warnings.is_empty(), "{:?}", campaign.warnings);
    let plan = isotherm::plan::expand::expand(&campaign, &BTreeMap::new()).unwrap_or_else(|e| panic!("{e}"));
    assert!(!plan.points.is_empty());
}

/// Points as counted by hand in the comments of each file, and whether this build can run it.
const SHIPPED: [(&str, usize, bool); 9] = [
    // 2 models × 2 thread counts
    ("smoke", 4, true),
    // 2 models × 2 thread counts × 2 depths
    ("llama-smoke", 2 * 2 * 2 + 2 * 2, true),
    // 2 levels
    ("command", 2, true),
    // 2 sizes of a piece
    ("board", 2, true),
    // 2 models × 2 thread counts, 2 levels
    ("reference", 2 * 2 + 2, true),
    // 3 × 4 threads, 7 formats, 4 linked lengths, 4 depths, 2 × 3 latencies, 4 × 2 of images
    ("pi-overnight", 12 + 7 + 4 + 4 + 6 + 8, false),
    // 5 × 5 threads, 10 formats, 7 linked lengths, 2 × 4 depths, 3 × 4 latencies, 4 × 3 and 3 of images
    ("laptop-overnight", 25 + 10 + 7 + 8 + 12 + 12 + 3, false),
    // 2 devices × 8 models × 2 builds × 2 thread counts
    ("int8-study", 64, false),
    // 3 models × (11 thread counts on all CPUs + 7 that fit on fast cores + 5 that fit on slow ones)
    ("thread-cliff", 3 * (11 + 7 + 5), false),
];

#[test]
fn every_shipped_campaign_has_the_points_that_its_comments_count() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let files = fs::read_dir(&root).expect("configs/ is there").flatten().map(|entry| entry.path());
    let there: BTreeSet<String> = files.filter(|path| path.extension().is_some_and(|e| e == "yaml")).map(|path| stem(&path)).collect();
    for name in &there {
        assert!(SHIPPED.iter().any(|(known, ..)| known == name), "{name} is shipped and not counted");
    }
    for (name, n_points, can_run) in SHIPPED {
        let draft = config::draft(&root.join(format!("{name}.yaml")), &[]).unwrap_or_else(|e| panic!("{e}"));
        assert!(draft.campaign.warnings.is_empty(), "{name}: {:?}", draft.campaign.warnings);
        let plan = isotherm::plan::expand::expand(&draft.campaign, &BTreeMap::new()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(plan.points.len(), n_points, "{name}");
        assert_eq!(draft.later.is_none(), can_run, "{name}");
        // But for images, the two nights run.
        assert_eq!(draft.runs_in_part(), can_run || name.ends_with("-overnight"), "{name}");
        assert!(draft.later.is_none_or(|errors| errors.diagnostics.iter().all(|error| error.message.ends_with("is not in this build yet"))));
    }
}
