//! A laboratory of its own for each test: directories, home and lease apart, so that tests can run beside each other and beside a
//! real campaign of this machine. The real binary, the real agent, real processes.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Who runs the campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Caller,
    /// uid 65534, without any privilege. Only root can become that.
    Ordinary,
}

/// One laboratory; everything in it is removed with it.
pub struct Lab {
    dir: tempfile::TempDir,
    user: User,
    isotherm: PathBuf,
}

impl Lab {
    pub fn new() -> Lab {
        Lab::of(User::Caller)
    }

    /// A lab whose campaigns are run by this user.
    pub fn of(user: User) -> Lab {
        // Not below the target folder: an ordinary user has to reach it, and state must not be on a tmpfs.
        let dir = tempfile::Builder::new().prefix("isotherm-lab-").tempdir_in("/var/tmp").expect("/var/tmp can be written");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("our own directory");
        let mut isotherm = PathBuf::from(env!("CARGO_BIN_EXE_isotherm"));
        for place in ["home", "state", "cache"] {
            fs::create_dir(dir.path().join(place)).expect("our own directory");
        }
        if user == User::Ordinary {
            let copy = dir.path().join("isotherm");
            copy_executable(&isotherm, &copy);
            isotherm = copy;
            for place in ["", "home", "state", "cache"] {
                chown(dir.path().join(place), Some(65534), Some(65534)).expect("root may give it away");
            }
        }
        Lab { dir, user, isotherm }
    }

    /// `Caller`, and `Ordinary` too where the tests run as root; what is left out is said.
    pub fn users() -> Vec<User> {
        if is_root() {
            vec![User::Caller, User::Ordinary]
        } else {
            eprintln!("skipped: the same as root (these tests run as an ordinary user)");
            vec![User::Caller]
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Results directory of a campaign.
    pub fn results(&self, campaign: &str) -> PathBuf {
        self.path("results").join(campaign)
    }

    /// Write a file, with its directories; `#!` makes it executable.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the lab")).expect("our own directory");
        // By rename, as editors and package managers do: a running script keeps its old content.
        let temporary = path.with_extension("new");
        fs::write(&temporary, &content).expect("our own directory");
        if content.as_ref().starts_with(b"#!") {
            fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)).expect("our own file");
        }
        fs::rename(&temporary, &path).expect("our own file");
        path
    }

    /// Write a file that somebody has open or that lies over another: in place, and never shorter meanwhile. What is always of one length
    /// is read whole, the old or the new.
    pub fn write_in_place(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("below the lab")).expect("our own directory");
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        file.and_then(|mut file| file.write_all(content.as_ref())).expect("our own file");
        path
    }

    /// Set the clocks of a device whose controller is started with [`Lab::clock`].
    pub fn set_clocks(&self, clocks: Clocks) {
        self.write_in_place("clock", clocks.bytes());
    }

    /// The variable by which an agent's clocks are those that were set.
    pub fn clock(&self) -> (&'static str, PathBuf) {
        ("ISOTHERM_CLOCK", self.path("clock"))
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// `isotherm ARGS` in the lab, not started yet. The working directory is the lab, so `results/` is in it.
    pub fn isotherm(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.isotherm);
        // Called by its name, as from a PATH: that is how it names itself in what it says to do next.
        command.arg0("isotherm").args(args).current_dir(self.dir.path()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("USER", "tester").env("ISOTHERM_LEASE", self.lease());
        for (name, place) in [("HOME", "home"), ("XDG_STATE_HOME", "state"), ("XDG_CACHE_HOME", "cache")] {
            command.env(name, self.path(place));
        }
        // Tests that run beside each other disturb each other, and short runs of theirs are about something else.
        command.env("ISOTHERM_JUDGED_FROM_S", "5");
        command.stdin(Stdio::null());
        if self.user == User::Ordinary {
            command.uid(65534).gid(65534);
        }
        command
    }

    /// `isotherm ARGS` in the lab as the last arguments of another program, which root starts: `unshare`, say.
    pub fn isotherm_inside(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let isotherm = self.isotherm(args);
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]);
        if self.user == User::Ordinary {
            command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        command.arg(isotherm.get_program()).args(isotherm.get_args()).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_clear().envs(isotherm.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    /// Run it to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::by(&mut self.isotherm(args))
    }

    /// With these variables in isotherm's environment.
    pub fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = self.isotherm(args);
        command.envs(variables.iter().copied());
        Ran::by(&mut command)
    }

    /// Every file of the lab: results, home, state, cache.
    pub fn all_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut dirs = vec![self.dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                    Ok(kind) if kind.is_file() => files.push(entry.path()),
                    _ => {}
                }
            }
        }
        files
    }

    /// Start it, and let it go on.
    pub fn start(&self, args: &[&str]) -> Child {
        spawn(&mut self.isotherm(args))
    }

    fn lease(&self) -> String {
        self.dir.path().file_name().expect("it has a name").to_string_lossy().into_owned()
    }

    /// Live processes that belong to this lab: keepers, agents and workloads, found by the lab's path in their environment.
    /// Zombies have none and don't count.
    pub fn processes(&self) -> Vec<i32> {
        let marker = self.dir.path().to_string_lossy().into_owned().into_bytes();
        let pids = fs::read_dir("/proc").expect("/proc").flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| env.windows(marker.len()).any(|w| w == marker))).collect()
    }

    /// Pids of the lab whose command line contains a text, such as `keep` or `init`.
    pub fn pids_of(&self, text: &str) -> Vec<i32> {
        let line = |pid: &i32| String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ");
        self.processes().into_iter().filter(|pid| line(pid).contains(text)).collect()
    }

    /// The only record of a campaign.
    #[track_caller]
    pub fn only_record(&self, campaign: &str) -> serde_json::Value {
        let mut records = self.records(campaign);
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0).1
    }

    /// All records of a campaign with their paths, without `superseded/`.
    pub fn records(&self, campaign: &str) -> Vec<(PathBuf, serde_json::Value)> {
        let mut found = Vec::new();
        walk(&self.results(campaign), &mut found);
        found.retain(|path| !path.components().any(|c| c.as_os_str() == "superseded" || c.as_os_str() == "devices"));
        found.retain(|path| path.file_name().is_some_and(|n| ["timing-", "power-"].iter().any(|kind| n.to_string_lossy().starts_with(kind))));
        found.sort();
        let read = |path: PathBuf| {
            let record = serde_json::from_slice(&fs::read(&path).expect("a record")).expect("a record is JSON");
            (path, record)
        };
        found.into_iter().map(read).collect()
    }

    /// Events of this name in a campaign's journal, in order.
    pub fn events(&self, campaign: &str, name: &str) -> Vec<Value> {
        let journal = self.read(&format!("results/{campaign}/journal.ndjson"));
        let events = journal.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["event"] == name).collect()
    }

    /// Jobs 1 to `jobs` of each of these devices have one good answer, which is returned; so many failed attempts are kept beside them.
    #[track_caller]
    pub fn answered(&self, campaign: &str, devices: &[&str], jobs: i64, attempts: usize) -> Vec<Value> {
        let records = self.records(campaign);
        let run_ids: BTreeSet<&str> = records.iter().map(|(_, record)| record["ids"]["run_id"].as_str().unwrap()).collect();
        assert_eq!(run_ids.len(), records.len(), "run ids are unique");
        let is_attempt = |path: &Path| path.display().to_string().contains(".attempt");
        let (failed, answers): (Vec<_>, Vec<_>) = records.into_iter().partition(|(path, _)| is_attempt(path));
        let job_of = |record: &Value| (record["device"]["id"].as_str().unwrap().to_owned(), record["ids"]["point"]["axes"]["job"].as_i64().unwrap());
        let mut answered: Vec<(String, i64)> = answers.iter().map(|(_, record)| job_of(record)).collect();
        answered.sort();
        let mut wanted: Vec<(String, i64)> = devices.iter().flat_map(|device| (1..=jobs).map(|job| ((*device).to_owned(), job))).collect();
        wanted.sort();
        assert_eq!((answered, failed.len()), (wanted, attempts), "{answers:?} {failed:?}");
        for (_, answer) in &answers {
            assert_eq!(answer["status"], "ok", "{answer}");
            assert_eq!(answer["raw"]["stdout"]["head"]["data"], format!("done {}\n", answer["ids"]["point"]["axes"]["job"]));
        }
        self.run(&["verify", &format!("results/{campaign}")]).expect(0);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A test that fails half-way leaves nothing running.
        for pid in self.processes() {
            // SAFETY: plain integers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// How far each clock of a device is off, seconds.
#[derive(Clone, Copy, Default)]
pub struct Clocks {
    pub realtime_s: i64,
    pub monotonic_s: i64,
    pub boottime_s: i64,
}

impl Clocks {
    /// So much time has passed, and the machine was awake.
    pub fn passed(seconds: i64) -> Clocks {
        Clocks { monotonic_s: seconds, boottime_s: seconds, ..Clocks::default() }
    }

    /// As the clock parameter's file has them.
    pub fn bytes(self) -> Vec<u8> {
        [self.realtime_s, self.monotonic_s, self.boottime_s].map(|seconds| (seconds * 1_000_000_000).to_ne_bytes()).concat()
    }
}

/// Start a command, and let it go on; what it says is kept for its end.
pub fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// The test for each user, at the same time: many wait for a grace period.
pub fn for_each_user(test: impl Fn(User) + Sync) {
    std::thread::scope(|scope| {
        for user in Lab::users() {
            let test = &test;
            scope.spawn(move || test(user));
        }
    });
}

/// What a finished `isotherm` left.
pub struct Ran(pub Output);

/// No campaign of a test takes so long: whoever is still there hangs.
const LONGEST: Duration = Duration::from_secs(600);

impl Ran {
    /// Start it, and wait for its end.
    #[track_caller]
    pub fn by(command: &mut Command) -> Ran {
        Ran::of(spawn(command))
    }

    /// Wait for the end of what was started; what hangs is ended, and fails with what it had said.
    #[track_caller]
    pub fn of(child: Child) -> Ran {
        let pid = child.id() as i32;
        let (ended, is_ended) = mpsc::channel::<()>();
        let watchman = std::thread::spawn(move || {
            let hangs = is_ended.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout);
            if hangs {
                // SAFETY: plain integers; nobody has waited for it yet.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            hangs
        });
        let ran = Ran(child.wait_with_output().expect("it was started"));
        drop(ended);
        assert!(!watchman.join().expect("it only waits"), "it hung; stdout:\n{}\nstderr:\n{}", ran.stdout(), ran.stderr());
        ran
    }

    pub fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Fail with everything that was printed unless the exit code is this one.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ran {
        assert_eq!(self.code(), Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout(), self.stderr());
        self
    }
}

/// Copy by a process of its own: while this one has a file open for writing, what another thread starts at that moment has it open, too,
/// and the kernel executes no file that somebody may write.
pub fn copy_executable(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--").args([from, to]).status().expect("cp starts");
    assert!(copied.success(), "{} can be copied", from.display());
    fs::set_permissions(to, fs::Permissions::from_mode(0o755)).expect("our own file");
}

pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

/// Look again and again until something is so; fail with `what` after a minute. Not a measurement of time: it only bounds a hang.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "never happened: {what}");
        // Yields the processor between looks; no test depends on how long.
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|e| e == "json") {
            found.push(path);
        }
    }
}
