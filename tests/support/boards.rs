//! Boards that a test makes for itself: each a network namespace with mounts, host name, processes, home and boot id of its own, and a real
//! sshd as its first process. Ending that one process is what a power cut is.

use crate::lab::{Lab, Ran, eventually, is_root};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What is particular about a board.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Its host name, what the client knows it by, and where it stands in the lab.
    pub name: &'a str,
    /// Directory of the lab that is its home; below `NAME/` unless it is given.
    pub home: Option<&'a str>,
    /// Who logs in; all others are nobody to it.
    pub uid: u32,
    pub login_shell: &'a str,
    /// Lines of `sshd_config`.
    pub sshd: &'a str,
    /// Commands of the first process before it becomes sshd, such as mounts over `/home`.
    pub before: &'a str,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup { name: "board", home: None, uid: 0, login_shell: "/bin/sh", sshd: "", before: "" }
    }
}

/// A controller with a wire to each of its boards. Where none is named, the first one is meant.
pub struct Bench {
    pub lab: Lab,
    /// Holds the controller's network; ends with its input.
    network: Child,
    pub boards: Vec<Board>,
}

/// One board. What is its own stands below `NAME/` of the lab, its home in `NAME/home/`.
pub struct Board {
    /// Its number: of its network 10.79.N.0/24, and of the controller's end of its wire, `wireN`.
    number: usize,
    pub name: String,
    dir: PathBuf,
    home: PathBuf,
    before: String,
    /// Who is in the controller's network.
    controller: u32,
    process: Option<Child>,
}

impl Bench {
    /// With these boards; `None`, and said so, where one can't be made; in CI it has to be.
    pub fn of(setups: &[Setup<'_>]) -> Option<Bench> {
        let has = |program: &str| ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
        let missing: Vec<&str> = ["sshd", "ssh", "ssh-keygen", "ip", "unshare", "nsenter", "setpriv"].into_iter().filter(|name| !has(name)).collect();
        let shell_is_there = |shell: &str| shell.starts_with("/mnt/") || Path::new(shell).exists();
        let shells: Vec<&str> = setups.iter().map(|setup| setup.login_shell).filter(|shell| !shell_is_there(shell)).collect();
        if !is_root() || !missing.is_empty() || !shells.is_empty() {
            assert!(std::env::var_os("CI").is_none(), "boards are required in CI: root, {missing:?}, {shells:?}");
            eprintln!("skipped: a board (needs root, sshd, ip, unshare; missing: {missing:?} {shells:?})");
            return None;
        }
        let lab = Lab::new();
        generate_key(&lab.path("key"));
        let network = in_namespaces(&["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut bench = Bench { lab, network, boards: Vec::new() };
        // The holder has a network of its own as soon as it isn't ours any more.
        eventually("the controller has its network", || has_a_network(bench.network.id()));
        bench.boards = setups.iter().enumerate().map(|(number, setup)| Board::new(&bench, number, setup)).collect();
        let lab_dir = bench.lab.path("").display().to_string();
        let hosts = bench.boards.iter().zip(setups).map(|(board, setup)| {
            format!(
                "Host {}\n  HostName {}\n  User {}\n  IdentityFile {lab_dir}key\n  IdentitiesOnly yes\n  UserKnownHostsFile {lab_dir}known_hosts\n  \
                 GlobalKnownHostsFile /dev/null\n",
                board.name,
                board.address(),
                setup.user()
            )
        });
        bench.lab.write("ssh_config", hosts.collect::<String>());
        let keys = bench.boards.iter().map(|board| format!("{} {}", board.address(), fs::read_to_string(board.dir.join("host_key.pub")).unwrap()));
        bench.lab.write("known_hosts", keys.collect::<String>());
        bench.boards.iter_mut().for_each(Board::boot);
        Some(bench)
    }

    /// `isotherm ARGS` on the controller, not started yet.
    pub fn isotherm(&self, args: &[&str]) -> Command {
        self.inside(&[], args)
    }

    /// The same, by another program.
    pub fn inside(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let network = network_of(self.network.id());
        self.lab.isotherm_inside(&[&["/usr/bin/nsenter", &network], wrapper].concat(), args)
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::by(&mut self.isotherm(args))
    }

    #[track_caller]
    pub fn nothing_is_left(&self) {
        for board in &self.boards {
            eventually(&format!("no process is left on {}", board.name), || board.processes().is_empty().then_some(()));
        }
    }
}

impl std::ops::Deref for Bench {
    type Target = Board;

    fn deref(&self) -> &Board {
        &self.boards[0]
    }
}

impl std::ops::DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Board {
        &mut self.boards[0]
    }
}

impl Setup<'_> {
    /// In the lab.
    pub fn home(&self) -> String {
        self.home.map_or_else(|| format!("{}/home", self.name), str::to_owned)
    }

    fn user(&self) -> &'static str {
        if self.uid == 0 { "root" } else { "pi" }
    }
}

impl Board {
    fn new(bench: &Bench, number: usize, setup: &Setup<'_>) -> Board {
        let Setup { name, home: _, uid, login_shell, sshd, before } = setup;
        let lab = &bench.lab;
        let dir = lab.path(name);
        let home = lab.path(&setup.home());
        for dir in [&home, &dir.join("tmp")] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::set_permissions(dir.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        std::os::unix::fs::chown(&home, Some(*uid), Some(*uid)).unwrap();
        generate_key(&dir.join("host_key"));
        let board =
            Board { number, name: (*name).to_owned(), dir, home, before: (*before).to_owned(), controller: bench.network.id(), process: None };
        let passwd = format!(
            "{}:x:{uid}:{uid}::/home:{login_shell}\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/:/bin/sh\n",
            setup.user()
        );
        lab.write(&format!("{name}/passwd"), passwd);
        lab.write(&format!("{name}/authorized_keys"), lab.read("key.pub"));
        lab.write(
            &format!("{name}/sshd_config"),
            format!(
                "ListenAddress {}\nHostKey /mnt/host_key\nAuthorizedKeysFile /mnt/authorized_keys\nPidFile none\nUsePAM no\nStrictModes no\nUseDNS no\n\
                 PasswordAuthentication no\nKbdInteractiveAuthentication no\n{sshd}\n",
                board.address()
            ),
        );
        board
    }

    fn address(&self) -> String {
        format!("10.79.{}.2", self.number)
    }

    /// The controller's end.
    fn wire(&self) -> String {
        format!("wire{}", self.number)
    }

    /// Switch it on, with a boot id that it never had.
    pub fn boot(&mut self) {
        fs::write(self.dir.join("boot_id"), format!("{}\n", uuid::Uuid::new_v4())).unwrap();
        let script = format!(
            "set -e
            hostname {}
            mount --bind \"$1\" /mnt
            mount --bind \"$2\" /home
            mount --bind /mnt/tmp /var/tmp
            mount --bind /mnt/passwd /etc/passwd
            mount --bind /mnt/boot_id /proc/sys/kernel/random/boot_id
            mount -t tmpfs -o mode=0755 tmpfs /run
            mount -t tmpfs -o mode=1777 tmpfs /dev/shm
            mkdir -p /run/sshd
            {}
            # Until it has its wire.
            read -r wired
            exec /usr/sbin/sshd -D -f /mnt/sshd_config -E /mnt/sshd.log",
            self.name, self.before
        );
        let log = self.dir.join("sshd.log");
        let _ = fs::remove_file(&log);
        let mut command = in_namespaces(&[
            "--net",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
            "sh",
        ]);
        command.args([&self.dir, &self.home]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let own = child.id();
        eventually("the board has its network", || has_a_network(own));
        // The other end of an earlier wire may not be gone yet.
        self.unplug();
        let wire = self.wire();
        // No word crosses it but of those who talk: no IPv6, and each end knows the other.
        let no_ipv6 = "for all in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e $all ] || echo 1 > $all; done";
        for network in [self.controller, own] {
            done(within(network, "sh").args(["-c", no_ipv6]));
        }
        let [near, far] = [1, 2].map(|end| format!("02:00:00:00:{:02x}:{end:02x}", self.number));
        let add = ["link", "add", &wire, "address", &near, "type", "veth", "peer", "name", "eth0", "address", &far, "netns", &own.to_string()];
        done(&mut self.ip(&add));
        let [controller, board] = [1, 2].map(|end| format!("10.79.{}.{end}", self.number));
        for (network, device, address, peer, far) in [(self.controller, &*wire, &controller, &board, &far), (own, "eth0", &board, &controller, &near)]
        {
            let ip = |args: &[&str]| done(within(network, "ip").args(args));
            ip(&["addr", "add", &format!("{address}/24"), "dev", device]);
            ip(&["link", "set", device, "up"]);
            ip(&["neigh", "replace", peer, "lladdr", far, "nud", "permanent", "dev", device]);
        }
        done(within(own, "ip").args(["link", "set", "lo", "up"]));
        // Writing the line and closing the pipe: sshd's own input is /dev/null.
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"wired\n").unwrap();
        eventually("sshd listens", || fs::read_to_string(&log).is_ok_and(|log| log.contains("Server listening")).then_some(()));
        self.process = Some(child);
    }

    /// All of it is gone at once.
    pub fn power_cut(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
            // The kernel takes its time with a network whose last process is gone.
            self.unplug();
        }
    }

    fn unplug(&self) {
        let _ = self.ip(&["link", "del", &self.wire()]).stderr(Stdio::null()).status();
    }

    /// Cut the wire.
    pub fn cut(&self) {
        done(&mut self.ip(&["link", "set", &self.wire(), "down"]));
    }

    pub fn mend(&self) {
        done(&mut self.ip(&["link", "set", &self.wire(), "up"]));
    }

    /// A slow wire, both ways, until the board is switched off: `rate` as `tc` has it. False where that can't be had.
    pub fn slow_down(&self, rate: &str) -> bool {
        let slowed = |network: u32, device: &str| {
            let mut tc = within(network, "tc");
            tc.args(["qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms"]);
            tc.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        slowed(self.controller, &self.wire()) && slowed(self.id(), "eth0")
    }

    /// The sshd that listens, first process of the board.
    pub fn listener(&self) -> i32 {
        self.pids()[0]
    }

    /// Processes of the board with their command lines, without the first two: its namespaces' and sshd.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let line = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        // A zombie has no command line; who has ended meanwhile none either.
        self.pids().into_iter().skip(1).filter_map(|pid| Some((pid, line(pid).ok().filter(|line| !line.is_empty())?))).collect()
    }

    /// sshd, and all that come from it.
    fn pids(&self) -> Vec<i32> {
        let parent = |pid: i32| stat(pid)?.get(1)?.parse::<i32>().ok();
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().into_string().ok()?.parse::<i32>().ok());
        let all: Vec<(i32, i32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
        let children = |of: i32| all.iter().filter(move |(_, parent)| *parent == of).map(|(pid, _)| *pid);
        let mut found: Vec<i32> = self.process.iter().filter_map(|board| children(board.id() as i32).next()).collect();
        let mut next = 0;
        while next < found.len() {
            found.extend(children(found[next]).collect::<Vec<_>>());
            next += 1;
        }
        found
    }

    /// KILL, and wait until they are gone.
    #[track_caller]
    pub fn kill(&self, pids: &[i32]) {
        assert!(!pids.is_empty(), "nobody to kill: {:?}", self.processes());
        signal(pids, libc::SIGKILL);
        eventually("they are gone", || self.processes().iter().all(|(pid, _)| !pids.contains(pid)).then_some(()));
    }

    /// From now on nothing on the board goes on. Its kernel still takes what comes over the wire.
    #[track_caller]
    pub fn hang(&self) {
        let is_still = |pid: &i32| stat(*pid).is_none_or(|stat| matches!(&*stat[0], "T" | "Z"));
        eventually("all of it stands still", || {
            signal(&self.pids(), libc::SIGSTOP);
            self.pids().iter().all(is_still).then_some(())
        });
    }

    pub fn go_on(&self) {
        signal(&self.pids(), libc::SIGCONT);
    }

    /// Bytes that have come to the controller over the wire.
    pub fn received(&self) -> u64 {
        self.crossed()[0]
    }

    /// What has crossed the wire, as the controller's end counts it: bytes and packets received, bytes and packets sent.
    pub fn crossed(&self) -> [u64; 4] {
        let table = fs::read_to_string(format!("/proc/{}/net/dev", self.controller)).unwrap();
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{}:", self.wire()))).unwrap();
        let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        [numbers[0], numbers[1], numbers[8], numbers[9]]
    }

    /// Is the board sending again what nobody has answered?
    pub fn sends_in_vain(&self) -> bool {
        let table = fs::read_to_string(format!("/proc/{}/net/tcp", self.id())).unwrap();
        let again = |line: &str| line.split_whitespace().nth(6).is_some_and(|again| again.bytes().any(|digit| digit != b'0'));
        table.lines().skip(1).any(again)
    }

    /// Who is in its network.
    fn id(&self) -> u32 {
        self.process.as_ref().expect("it is switched on").id()
    }

    /// `ip ARGS` on the controller.
    fn ip(&self, args: &[&str]) -> Command {
        let mut command = within(self.controller, "ip");
        command.args(args);
        command
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for child in self.boards.iter_mut().filter_map(|board| board.process.as_mut()).chain([&mut self.network]) {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// Fields of a process's `stat` behind its name: state, parent, and so on.
fn stat(pid: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect())
}

fn signal(pids: &[i32], signal: i32) {
    for &pid in pids {
        // SAFETY: plain integers.
        unsafe { libc::kill(pid, signal) };
    }
}

/// A program in somebody's network.
fn within(pid: u32, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.args([&network_of(pid), program]);
    command
}

fn network_of(pid: u32) -> String {
    format!("--net=/proc/{pid}/ns/net")
}

/// Is its network one of its own?
fn has_a_network(pid: u32) -> Option<()> {
    (fs::read_link(format!("/proc/{pid}/ns/net")).ok()? != fs::read_link("/proc/self/ns/net").ok()?).then_some(())
}

fn generate_key(file: &Path) {
    done(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file));
}

/// `unshare ARGS`, which ends with the test however that ends.
fn in_namespaces(args: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare"]).args(args);
    command
}

#[track_caller]
fn done(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
