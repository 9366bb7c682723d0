//! Steps and the restore journal on an authored board: a tree of files, and a stand-in for the kernel that does to them what it is told.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::act::Action;
use super::*;
use isotherm_wire::task::{Frequency, ProcessTask, Task};
use std::fs;
use std::sync::{Arc, Mutex};

const BOOT: &str = "0b3e7c1a-5d0e-4c57-9a59-1f3f4e2b8a11";
const CPUFREQ: &str = "sys/devices/system/cpu/cpufreq";

struct Board {
    dir: tempfile::TempDir,
    did: Arc<Mutex<Vec<String>>>,
    /// Actions whose words contain the first text come to this.
    refuses: Arc<Mutex<Vec<(&'static str, Stop)>>>,
}

/// What the kernel does to the files of a board.
struct Kernel {
    root: PathBuf,
    state: PathBuf,
    did: Arc<Mutex<Vec<String>>>,
    refuses: Arc<Mutex<Vec<(&'static str, Stop)>>>,
}

impl Act for Kernel {
    fn unfinished(&self) -> Option<String> {
        let hangs = |(_, stop): &(&str, Stop)| if let Stop::Hangs(what) = stop { Some(what.clone()) } else { None };
        self.refuses.lock().unwrap().iter().find_map(hangs)
    }

    fn act(&mut self, action: &Action) -> Result<(), Stop> {
        let words = action.to_string().replace(&format!("{}/", self.root.display()), "");
        self.did.lock().unwrap().push(words.clone());
        let refused = self.refuses.lock().unwrap().iter().find(|(text, _)| words.contains(text)).map(|(_, stop)| stop.clone());
        if let Some(stop) = refused {
            return Err(stop);
        }
        let journal = fs::read_to_string(self.state.join(journal::FILE)).unwrap_or_default();
        let swaps = self.root.join("proc/swaps");
        match action {
            Action::Sync => {}
            Action::Write { path, .. } if path.ends_with("drop_caches") => {
                let meminfo = self.root.join("proc/meminfo");
                fs::write(&meminfo, fs::read_to_string(&meminfo).unwrap().replace("Cached: 900000 kB", "Cached: 90000 kB")).unwrap();
            }
            Action::Write { path, value } => {
                let policy = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
                assert!(journal.contains(policy), "{action} before it was noted: {journal}");
                fs::write(path, format!("{value}\n")).unwrap();
            }
            Action::SwapOff { area } => {
                assert!(journal.contains(area), "{action} before it was noted: {journal}");
                let text = fs::read_to_string(&swaps).unwrap();
                fs::write(&swaps, text.lines().filter(|line| !line.starts_with(area)).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
            }
            Action::SwapOn { area, priority } => {
                let line = format!("{area} file 2048 0 {}\n", priority.map_or(-2, i32::from));
                fs::write(&swaps, fs::read_to_string(&swaps).unwrap() + &line).unwrap();
            }
        }
        Ok(())
    }

    fn pause(&mut self) {}
}

impl Board {
    /// Two policies, one swap area in use with a priority and an idle one.
    fn new() -> Board {
        let board = Board { dir: tempfile::tempdir_in("/var/tmp").unwrap(), did: Arc::default(), refuses: Arc::default() };
        board.write("proc/sys/kernel/random/boot_id", BOOT);
        board.write("proc/sys/vm/drop_caches", "");
        board.write("proc/meminfo", "MemAvailable: 4000 kB\nBuffers: 1 kB\nCached: 900000 kB\nShmem: 1000 kB\nMapped: 2000 kB\n");
        board.write("var/a", "");
        board.write("var/b", "");
        board.write("proc/swaps", "Filename Type Size Used Priority\n/var/a file 2048 1024 5\n/var/b file 2048 0 -2\n");
        for (policy, max) in [("policy0", "1500000"), ("policy4", "2400000")] {
            for (file, value) in [
                ("scaling_governor", "ondemand"),
                ("scaling_available_governors", "ondemand performance powersave"),
                ("scaling_min_freq", "600000"),
                ("scaling_max_freq", max),
                ("cpuinfo_min_freq", "600000"),
                ("cpuinfo_max_freq", max),
                ("scaling_cur_freq", max),
            ] {
                board.write(&format!("{CPUFREQ}/{policy}/{file}"), value);
            }
        }
        fs::create_dir(board.state()).unwrap();
        board
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{}\n", text.trim_end())).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap().trim_end().to_owned()
    }

    fn governors(&self) -> [String; 2] {
        ["policy0", "policy4"].map(|policy| self.read(&format!("{CPUFREQ}/{policy}/scaling_governor")))
    }

    fn refuse(&self, words: &'static str, stop: Stop) {
        self.refuses.lock().unwrap().push((words, stop));
    }

    fn obey(&self) {
        self.refuses.lock().unwrap().clear();
    }

    fn did(&self) -> Vec<String> {
        std::mem::take(&mut self.did.lock().unwrap())
    }

    /// A keeper's: with what is in the journal.
    fn preparation(&self) -> Preparation {
        let kernel = Kernel { root: self.root(), state: self.state(), did: self.did.clone(), refuses: self.refuses.clone() };
        Preparation::with(&self.root(), &self.state(), Box::new(kernel))
    }

    fn journal(&self) -> Option<serde_json::Value> {
        Some(serde_json::from_slice(&fs::read(self.state().join(journal::FILE)).ok()?).unwrap())
    }
}

fn spec(model: &str, prepare: Vec<Prepare>) -> RunSpec {
    RunSpec {
        task: Task::Process(ProcessTask { argv: vec!["x".into()], warmup: 0, collect: vec![], stamp_lines: false }),
        prepare,
        model: Some(model.into()),
        settle_ms: 0,
        settle: None,
        limits: None,
        timeout_ms: 1,
        grace_ms: 1,
        sample_hz: 1.0,
        instruments: Default::default(),
        env: Default::default(),
        secrets: Default::default(),
        needs_bytes: None,
        cpus: None,
        cwd: "/".into(),
        watched: vec![],
    }
}

/// Outcomes of a run's steps.
fn run(preparation: &mut Preparation, model: &str, prepare: &[Prepare]) -> Vec<(Step, StepOutcome)> {
    let mut steps = Vec::new();
    if preparation.has_work(&spec(model, prepare.to_vec())) {
        preparation.before_run(prepare, || false, &mut steps).unwrap();
    }
    steps.iter().map(|step| (step.step, step.outcome)).collect()
}

fn only(preparation: &mut Preparation, prepare: Prepare) -> PrepareStep {
    let mut steps = Vec::new();
    let _ = preparation.before_run(&[prepare], || false, &mut steps);
    steps.pop().unwrap()
}

fn governor(name: &str) -> Prepare {
    Prepare::Governor(name.into())
}

#[test]
fn a_governor_stays_as_long_as_runs_ask_for_it_and_is_given_back_as_it_was() {
    let board = Board::new();
    board.write(&format!("{CPUFREQ}/policy4/scaling_governor"), "powersave");
    let mut preparation = board.preparation();
    assert_eq!(run(&mut preparation, "m", &[governor("performance")]), [(Step::Governor, StepOutcome::Done)]);
    assert_eq!(board.governors(), ["performance", "performance"]);
    assert_eq!(run(&mut preparation, "m", &[governor("performance")]), [(Step::Governor, StepOutcome::Skipped)]);
    assert_eq!(run(&mut preparation, "m", &[governor("ondemand")]), [(Step::Governor, StepOutcome::Done)]);
    let given_back = preparation.give_back();
    assert_eq!(given_back.restored, ["governor of policy4: powersave", "governor of policy0: ondemand"]);
    assert_eq!((board.governors(), board.journal()), (["ondemand".into(), "powersave".into()], None));
}

#[test]
fn a_run_that_does_not_ask_for_what_is_borrowed_gets_it_given_back_first() {
    let board = Board::new();
    let mut preparation = board.preparation();
    run(&mut preparation, "m", &[governor("performance"), Prepare::Frequency(Frequency::Min)]);
    assert_eq!(run(&mut preparation, "m", &[governor("performance")]), [(Step::GiveBack, StepOutcome::Done), (Step::Governor, StepOutcome::Skipped)]);
    assert_eq!(board.read(&format!("{CPUFREQ}/policy4/scaling_max_freq")), "2400000");
    assert_eq!(run(&mut preparation, "m", &[]), [(Step::GiveBack, StepOutcome::Done)]);
    assert_eq!((board.governors(), board.journal()), (["ondemand".into(), "ondemand".into()], None));
    assert_eq!(run(&mut preparation, "m", &[]), []);
}

#[test]
fn frequency_limits_are_each_policys_own_and_read_back() {
    let board = Board::new();
    let mut preparation = board.preparation();
    let limits = || ["policy0", "policy4"].map(|p| ["min", "max"].map(|l| board.read(&format!("{CPUFREQ}/{p}/scaling_{l}_freq"))).join("–"));
    assert_eq!(only(&mut preparation, Prepare::Frequency(Frequency::Max)).outcome, StepOutcome::Done);
    assert_eq!(limits(), ["1500000–1500000", "2400000–2400000"]);
    assert_eq!(only(&mut preparation, Prepare::Frequency(Frequency::Khz(1_200_000))).outcome, StepOutcome::Done);
    assert_eq!(limits(), ["1200000–1200000", "1200000–1200000"]);
    let too_much = only(&mut preparation, Prepare::Frequency(Frequency::Khz(2_000_000)));
    assert_eq!((too_much.outcome, too_much.reason.as_deref()), (StepOutcome::Unsupported, Some("policy0 goes from 600000 to 1500000 kHz")));
    assert_eq!(limits(), ["1200000–1200000", "1200000–1200000"], "before anything is written");
    preparation.give_back();
    assert_eq!(limits(), ["600000–1500000", "600000–2400000"]);
}

#[test]
fn what_does_not_take_is_seen() {
    let board = Board::new();
    let mut preparation = board.preparation();
    board.write(&format!("{CPUFREQ}/policy4/scaling_cur_freq"), "600000");
    let step = only(&mut preparation, governor("performance"));
    assert_eq!(step.outcome, StepOutcome::Failed);
    assert_eq!(step.reason.unwrap(), "policy4 reads performance, and its clock stays at 600000 kHz, the lower limit");
    assert_eq!(step.before.unwrap()["policy4"]["governor"], "ondemand");
    assert_eq!(step.after.unwrap()["policy4"], json!({"governor": "performance", "min_khz": 600_000, "max_khz": 2_400_000, "clock_khz": 600_000}));
    let unknown = only(&mut preparation, governor("schedutil"));
    assert_eq!(unknown.reason.unwrap(), "policy0 has no governor schedutil: ondemand performance powersave");
    fs::remove_dir_all(board.root().join(CPUFREQ)).unwrap();
    let none = only(&mut preparation, governor("performance"));
    assert_eq!((none.outcome, none.reason.as_deref(), none.before), (StepOutcome::Unsupported, Some("no cpufreq"), None));
}

#[test]
fn a_refusal_half_way_leaves_nothing_changed_in_the_end() {
    let board = Board::new();
    let mut preparation = board.preparation();
    board.refuse("performance to sys/devices/system/cpu/cpufreq/policy4", Stop::Denied("no".into()));
    assert_eq!(run(&mut preparation, "m", &[governor("performance")]), [(Step::Governor, StepOutcome::Denied)]);
    assert_eq!(board.governors(), ["performance", "ondemand"]);
    assert_eq!(preparation.give_back().failed, [""; 0]);
    assert_eq!((board.governors(), board.journal()), (["ondemand".into(), "ondemand".into()], None));
}

#[test]
fn what_can_not_be_read_is_not_borrowed_and_given_back_all_the_same() {
    let board = Board::new();
    let mut preparation = board.preparation();
    run(&mut preparation, "m", &[governor("performance"), Prepare::Frequency(Frequency::Min)]);
    for file in ["scaling_governor", "scaling_min_freq"] {
        board.write(&format!("{CPUFREQ}/policy0/{file}"), "");
    }
    assert_eq!(only(&mut preparation, governor("powersave")).outcome, StepOutcome::Unsupported);
    assert_eq!(preparation.give_back().failed, [""; 0]);
    assert_eq!(
        (board.governors(), board.read(&format!("{CPUFREQ}/policy0/scaling_min_freq"))),
        (["ondemand".into(), "ondemand".into()], "600000".into())
    );
}

#[test]
fn swap_areas_in_use_are_off_and_on_again_with_their_priority() {
    let board = Board::new();
    let step = only(&mut board.preparation(), Prepare::ResetSwap(When::Each));
    assert_eq!((step.outcome, board.did()), (StepOutcome::Done, vec!["swapoff /var/a".into(), "swapon /var/a".into()]));
    assert_eq!(step.before.unwrap()["swap_used_bytes"], 1024 * 1024);
    assert_eq!(step.after.unwrap()["areas"], json!(["/var/b", "/var/a"]));
    assert!(board.read("proc/swaps").ends_with("/var/a file 2048 0 5"), "{}", board.read("proc/swaps"));
    assert_eq!(board.journal(), None);
    let again = only(&mut board.preparation(), Prepare::ResetSwap(When::Each));
    assert_eq!((again.outcome, again.reason.as_deref()), (StepOutcome::Skipped, Some("no swap is in use")));
    board.write("proc/swaps", "Filename Type Size Used Priority\n/var/a file 9999 3300 5\n");
    let too_much = only(&mut board.preparation(), Prepare::ResetSwap(When::Each));
    assert_eq!((too_much.outcome, board.did()), (StepOutcome::Skipped, vec![]));
}

#[test]
fn an_area_that_could_not_be_switched_on_again_is_tried_until_it_is() {
    let board = Board::new();
    let mut preparation = board.preparation();
    board.refuse("swapon", Stop::Denied("no".into()));
    assert_eq!(only(&mut preparation, Prepare::ResetSwap(When::Each)).outcome, StepOutcome::Denied);
    assert_eq!(board.journal().unwrap()["borrowed"], json!([{"kind": "swap_area", "subject": "/var/a", "original": "5"}]));
    assert_eq!(run(&mut preparation, "m", &[]), [(Step::GiveBack, StepOutcome::Failed)]);
    assert_eq!(preparation.give_back().failed, ["swap area /var/a: no"]);
    // Another keeper, which is allowed to.
    board.obey();
    assert_eq!(board.preparation().give_back().restored, ["swap area /var/a"]);
    assert!(board.read("proc/swaps").ends_with("/var/a file 2048 0 5"));
    assert_eq!(board.journal(), None);
}

#[test]
fn a_swapoff_that_does_not_end_ends_the_run_and_its_area_stays_noted() {
    let board = Board::new();
    let mut preparation = board.preparation();
    board.refuse("swapoff", Stop::Hangs("swapoff /var/a has not ended".into()));
    let mut steps = Vec::new();
    let ended = preparation.before_run(&[Prepare::ResetSwap(When::Each), Prepare::DropCaches(When::Each)], || false, &mut steps);
    assert_eq!(ended, Err(Ended::Hangs("swapoff /var/a has not ended".into())));
    assert_eq!((steps.len(), steps[0].outcome), (1, StepOutcome::Failed));
    assert!(board.journal().unwrap().to_string().contains("/var/a"));
    // The kernel lists it as long as its swapoff is at it: that it is on now means nothing.
    assert_eq!(preparation.give_back().failed, ["swapoff /var/a has not ended"]);
    assert!(board.journal().unwrap().to_string().contains("/var/a"));
    // Nor does a run begin beside a swapon that doesn't end.
    board.obey();
    board.write("proc/swaps", "Filename Type Size Used Priority");
    board.refuse("swapon", Stop::Hangs("swapon /var/a has not ended".into()));
    assert_eq!(preparation.before_run(&[], || false, &mut steps), Err(Ended::Hangs("swapon /var/a has not ended".into())));
    board.obey();
    assert_eq!(run(&mut preparation, "m", &[]), [(Step::GiveBack, StepOutcome::Done)]);
    board.write("proc/swaps", "Filename Type Size Used Priority\n/var/a file 2048 1024 5");
    // One that fails leaves it on, which is seen.
    board.obey();
    board.refuse("swapoff", Stop::Failed("Cannot allocate memory".into()));
    assert_eq!(only(&mut preparation, Prepare::ResetSwap(When::Each)).reason.as_deref(), Some("Cannot allocate memory"));
    assert_eq!(board.journal(), None);
}

#[test]
fn caches_are_written_back_and_dropped_and_that_is_seen() {
    let board = Board::new();
    let mut preparation = board.preparation();
    let step = only(&mut preparation, Prepare::DropCaches(When::Each));
    assert_eq!((step.outcome, board.did()), (StepOutcome::Done, vec!["sync".into(), "writing 3 to proc/sys/vm/drop_caches".into()]));
    assert_eq!((step.before.unwrap(), step.after.unwrap()), (json!({"cached_bytes": 921_600_000}), json!({"cached_bytes": 92_160_000})));
    // Taken without an effect, as in some containers.
    board.write("proc/meminfo", "Cached: 900001 kB\n");
    assert_eq!(only(&mut preparation, Prepare::DropCaches(When::Each)).outcome, StepOutcome::Failed);
    fs::remove_file(board.root().join("proc/sys/vm/drop_caches")).unwrap();
    assert_eq!(only(&mut preparation, Prepare::DropCaches(When::Each)).outcome, StepOutcome::Unsupported);
}

#[test]
fn on_model_change_is_once_for_a_model_until_another_one_comes_or_it_failed() {
    let board = Board::new();
    let mut preparation = board.preparation();
    let once = [Prepare::DropCaches(When::OnModelChange)];
    let outcome = |preparation: &mut Preparation, model| run(preparation, model, &once)[0].1;
    assert_eq!(outcome(&mut preparation, "a"), StepOutcome::Done);
    assert_eq!(outcome(&mut preparation, "a"), StepOutcome::Skipped);
    assert_eq!(outcome(&mut preparation, "b"), StepOutcome::Done);
    // Run without being prepared, and yet another model.
    run(&mut preparation, "c", &[]);
    board.refuse("drop_caches", Stop::Denied("no".into()));
    assert_eq!(outcome(&mut preparation, "b"), StepOutcome::Denied);
    board.obey();
    assert_eq!(outcome(&mut preparation, "b"), StepOutcome::Done);
    assert_eq!(outcome(&mut board.preparation(), "b"), StepOutcome::Done, "another keeper doesn't know what ran");
}

#[test]
fn a_cancel_is_heard_between_steps_and_what_was_borrowed_stays_noted() {
    let board = Board::new();
    let mut preparation = board.preparation();
    let (mut steps, did) = (Vec::new(), board.did.clone());
    let is_cancelled = || !did.lock().unwrap().is_empty();
    let ended = preparation.before_run(&[governor("performance"), Prepare::DropCaches(When::Each)], is_cancelled, &mut steps);
    assert_eq!((ended, steps.len()), (Err(Ended::Cancelled), 1));
    assert_eq!(preparation.give_back().restored.len(), 2);
    assert_eq!(board.governors(), ["ondemand", "ondemand"]);
}

#[test]
fn after_a_boot_nothing_is_written_and_swap_is_only_looked_at() {
    let board = Board::new();
    run(&mut board.preparation(), "m", &[governor("performance")]);
    let mut journal = board.journal().unwrap();
    for area in ["/var/a", "/var/off"] {
        journal["borrowed"].as_array_mut().unwrap().push(json!({"kind": "swap_area", "subject": area, "original": "-2"}));
    }
    fs::write(board.state().join(journal::FILE), journal.to_string()).unwrap();
    board.did();
    board.write("proc/sys/kernel/random/boot_id", "another");
    let given_back = board.preparation().give_back();
    assert_eq!(given_back.failed, ["swap area /var/off: it was on, and is not since the machine was booted"]);
    assert_eq!((given_back.restored, board.did(), board.journal()), (vec![], vec![], None));
}

/// Written by an agent of version 0.1.0.
const GOLDEN_V1: &str = include_str!("../../../tests/recorded/formats/v1/restore-journal.json");

#[test]
fn a_journal_of_version_1_is_given_back_from_and_still_written_like_that() {
    let board = Board::new();
    let golden: serde_json::Value = serde_json::from_str(GOLDEN_V1).unwrap();
    board.write("proc/sys/kernel/random/boot_id", golden["boot_id"].as_str().unwrap());
    board.write("swap.img", "");
    for (policy, khz) in [("policy0", "1500000"), ("policy4", "2400000")] {
        for (file, value) in [("scaling_governor", "performance"), ("scaling_min_freq", khz), ("scaling_max_freq", khz)] {
            board.write(&format!("{CPUFREQ}/{policy}/{file}"), value);
        }
    }
    let mut journal = Journal::open(&board.state(), &board.root()).unwrap();
    for entry in golden["borrowed"].as_array().unwrap() {
        let kind = serde_json::from_value(entry["kind"].clone()).unwrap();
        let text = |field: &str| entry[field].as_str().unwrap().to_owned();
        journal.borrow(kind, &[(text("subject"), text("original"))]).unwrap();
    }
    assert_eq!(fs::read_to_string(board.state().join(journal::FILE)).unwrap(), GOLDEN_V1);

    fs::write(board.state().join(journal::FILE), GOLDEN_V1).unwrap();
    let given_back = board.preparation().give_back();
    assert_eq!((given_back.restored.len(), given_back.failed), (5, vec![]));
    assert_eq!(board.governors(), ["ondemand", "powersave"]);
    let limits = ["policy0", "policy4"].map(|p| ["min", "max"].map(|l| board.read(&format!("{CPUFREQ}/{p}/scaling_{l}_freq"))).join("–"));
    assert_eq!(limits, ["600000–1500000", "600000–2400000"]);
    assert!(board.read("proc/swaps").ends_with("/swap.img file 2048 0 -2"));
    assert_eq!(board.journal(), None);
}

#[test]
fn a_journal_that_is_not_understood_is_named_and_left_and_nothing_is_borrowed_beside_it() {
    for (text, words) in [
        ("{\"journal_version\":1,\"boot_id\":null,\"borr", "is damaged (EOF while parsing"),
        ("", "is damaged (EOF while parsing"),
        ("{\"journal_version\":7,\"entries\":{}}", "has version 7, this agent knows 1: use the isotherm that wrote it"),
        (
            "{\"journal_version\":1,\"boot_id\":null,\"borrowed\":[{\"kind\":\"fan\",\"subject\":\"fan0\",\"original\":\"1\"}]}",
            "unknown variant `fan`",
        ),
    ] {
        let board = Board::new();
        fs::write(board.state().join(journal::FILE), text).unwrap();
        let mut preparation = board.preparation();
        let error = preparation.give_back().failed.join("");
        assert!(error.contains(words) && error.contains(&board.state().join(journal::FILE).display().to_string()), "{error}");
        let outcomes = run(&mut preparation, "m", &[Prepare::ResetSwap(When::Each), Prepare::DropCaches(When::Each), governor("performance")]);
        let outcomes: Vec<StepOutcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
        assert_eq!(outcomes, [StepOutcome::Failed, StepOutcome::Done, StepOutcome::Failed]);
        assert_eq!(board.did(), ["sync", "writing 3 to proc/sys/vm/drop_caches"]);
        assert_eq!(fs::read_to_string(board.state().join(journal::FILE)).unwrap(), text);
    }
}

#[test]
fn a_subject_that_is_no_name_is_not_touched() {
    let board = Board::new();
    let entry = |kind: &str, subject: &str, original: &str| json!({"kind": kind, "subject": subject, "original": original});
    let borrowed = [
        entry("governor", "policy0/../../../../../../etc/shadow", "x"),
        entry("swap_area", "-a", "0"),
        entry("swap_area", "/var/../var/b", "0"),
        entry("frequency_limits", "policy0", "high"),
    ];
    fs::write(board.state().join(journal::FILE), json!({"journal_version": 1, "boot_id": BOOT, "borrowed": borrowed}).to_string()).unwrap();
    let given_back = board.preparation().give_back();
    assert_eq!((given_back.restored.len(), given_back.failed.len(), board.did()), (0, 4, vec![]));
}
