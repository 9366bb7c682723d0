//! Boards that a test makes for itself: each a network namespace with mounts, host name, processes, home and boot id of its own, and a real
//! sshd as its first process. Ending that one process is what a power cut is.

use crate::lab::{Lab, Ran, eventually, is_root};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Address of the board, and of the controller on the other end of the wire.
const BOARD: &str = "10.79.0.2";
const CONTROLLER: &str = "10.79.0.1";
/// Of the controller's end.
const WIRE: &str = "wire";

/// What is particular about a board.
pub struct Setup<'a> {
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
        Setup { uid: 0, login_shell: "/bin/sh", sshd: "", before: "" }
    }
}

/// A controller with one board on a wire. What is the board's stands below `board/` of the lab, its home in `board/home/`.
pub struct Bench {
    pub lab: Lab,
    /// Holds the controller's network; ends with its input.
    network: Child,
    board: Option<Child>,
    before: String,
}

impl Bench {
    /// `None`, and said so, where a board can't be made; in CI it has to be.
    pub fn new(setup: &Setup<'_>) -> Option<Bench> {
        let has = |program: &str| ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
        let missing: Vec<&str> = ["sshd", "ssh", "ssh-keygen", "ip", "unshare", "nsenter", "setpriv"].into_iter().filter(|name| !has(name)).collect();
        let shell_is_there = setup.login_shell.starts_with("/mnt/") || Path::new(setup.login_shell).exists();
        if !is_root() || !missing.is_empty() || !shell_is_there {
            assert!(std::env::var_os("CI").is_none(), "boards are required in CI: root, {missing:?}, {}", setup.login_shell);
            eprintln!("skipped: a board (needs root, sshd, ip, unshare and {}; missing: {missing:?})", setup.login_shell);
            return None;
        }
        let lab = Lab::new();
        for dir in ["run", "board/home", "board/tmp"] {
            fs::create_dir_all(lab.path(dir)).unwrap();
        }
        fs::set_permissions(lab.path("board/tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        std::os::unix::fs::chown(lab.path("board/home"), Some(setup.uid), Some(setup.uid)).unwrap();
        for key in ["key", "board/host_key"] {
            done(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(lab.path(key)));
        }
        let Setup { uid, login_shell, sshd, before } = setup;
        let name = if *uid == 0 { "root" } else { "pi" };
        let passwd =
            format!("{name}:x:{uid}:{uid}::/home:{login_shell}\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nnobody:x:65534:65534::/:/bin/sh\n");
        lab.write("board/passwd", passwd);
        lab.write("board/authorized_keys", lab.read("key.pub"));
        lab.write(
            "board/sshd_config",
            format!(
                "ListenAddress {BOARD}\nHostKey /mnt/host_key\nAuthorizedKeysFile /mnt/authorized_keys\nPidFile none\nUsePAM no\nStrictModes no\nUseDNS no\n\
                 PasswordAuthentication no\nKbdInteractiveAuthentication no\n{sshd}\n"
            ),
        );
        let lab_dir = lab.path("").display().to_string();
        lab.write(
            "ssh_config",
            format!(
                "Host board\n  HostName {BOARD}\n  User {name}\n  IdentityFile {lab_dir}key\n  IdentitiesOnly yes\n  UserKnownHostsFile {lab_dir}known_hosts\n  \
                 GlobalKnownHostsFile /dev/null\n"
            ),
        );
        let network = in_namespaces(&["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut bench = Bench { lab, network, board: None, before: (*before).to_owned() };
        bench.know_its_key();
        // The holder has a network of its own as soon as it isn't ours any more.
        eventually("the controller has its network", || {
            (fs::read_link(bench.network_file()).ok()? != fs::read_link("/proc/self/ns/net").ok()?).then_some(())
        });
        bench.boot();
        Some(bench)
    }

    /// Its host key is the one that the controller knows.
    pub fn know_its_key(&self) {
        self.lab.write("known_hosts", format!("{BOARD} {}", self.lab.read("board/host_key.pub")));
    }

    /// Switch it on, with a boot id that it never had.
    pub fn boot(&mut self) {
        self.lab.write("board/boot_id", format!("{}\n", uuid::Uuid::new_v4()));
        let script = format!(
            "set -e
            hostname board
            mount --bind \"$1\" /mnt
            mount --bind /mnt/home /home
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
            self.before
        );
        let board = self.lab.path("board");
        let _ = fs::remove_file(board.join("sshd.log"));
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
        command.arg(&board).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let pid = child.id().to_string();
        let own = format!("/proc/{pid}/ns/net");
        eventually("the board has its network", || (fs::read_link(&own).ok()? != fs::read_link("/proc/self/ns/net").ok()?).then_some(()));
        // The other end of an earlier wire may not be gone yet.
        let _ = self.ip(&["link", "del", WIRE]).stderr(Stdio::null()).status();
        done(&mut self.ip(&["link", "add", WIRE, "type", "veth", "peer", "name", "eth0", "netns", &pid]));
        done(&mut self.ip(&["addr", "add", &format!("{CONTROLLER}/24"), "dev", WIRE]));
        done(&mut self.ip(&["link", "set", WIRE, "up"]));
        let inside = |args: &[&str]| done(Command::new("nsenter").arg(format!("--net={own}")).arg("ip").args(args));
        inside(&["addr", "add", &format!("{BOARD}/24"), "dev", "eth0"]);
        inside(&["link", "set", "eth0", "up"]);
        inside(&["link", "set", "lo", "up"]);
        // Writing the line and closing the pipe: sshd's own input is /dev/null.
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"wired\n").unwrap();
        eventually("sshd listens", || self.lab.read("board/sshd.log").contains("Server listening").then_some(()));
        self.board = Some(child);
    }

    /// All of it is gone at once.
    pub fn power_cut(&mut self) {
        if let Some(mut board) = self.board.take() {
            board.kill().unwrap();
            board.wait().unwrap();
            // The kernel takes its time with a network whose last process is gone.
            let _ = self.ip(&["link", "del", WIRE]).stderr(Stdio::null()).status();
        }
    }

    /// Cut the wire.
    pub fn cut(&self) {
        done(&mut self.ip(&["link", "set", WIRE, "down"]));
    }

    pub fn mend(&self) {
        done(&mut self.ip(&["link", "set", WIRE, "up"]));
    }

    /// Let a megabyte take a second to the board, until it is switched off. False where that can't be had.
    pub fn slow_down(&self) -> bool {
        let mut tc = Command::new("nsenter");
        tc.arg(format!("--net={}", self.network_file().display())).args(["tc", "qdisc", "add", "dev", WIRE, "root", "tbf"]);
        tc.args(["rate", "8mbit", "burst", "32kbit", "latency", "400ms"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// `isotherm ARGS` on the controller, not started yet.
    pub fn isotherm(&self, args: &[&str]) -> Command {
        self.inside(&[], args)
    }

    /// The same, by another program.
    pub fn inside(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let network = format!("--net={}", self.network_file().display());
        let mut command = self.lab.isotherm_inside(&[&["/usr/bin/nsenter", &network], wrapper].concat(), args);
        command.env("XDG_RUNTIME_DIR", self.lab.path("run"));
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran(self.isotherm(args).output().expect("isotherm starts"))
    }

    /// Processes of the board with their command lines, without the first two: its namespaces' and sshd.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let parent = |pid: &str| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<i32>().ok()
        };
        let pids = || fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().into_string().ok()?.parse::<i32>().ok());
        let all: Vec<(i32, i32)> = pids().filter_map(|pid| Some((pid, parent(&pid.to_string())?))).collect();
        let children = |of: i32| all.iter().filter(move |(_, parent)| *parent == of).map(|(pid, _)| *pid);
        let Some(board) = &self.board else { return Vec::new() };
        let sshd = children(board.id() as i32).next();
        let mut found: Vec<i32> = sshd.into_iter().flat_map(children).collect();
        let mut next = 0;
        while next < found.len() {
            found.extend(children(found[next]).collect::<Vec<_>>());
            next += 1;
        }
        let line = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        // A zombie has no command line; who has ended meanwhile none either.
        found.into_iter().filter_map(|pid| Some((pid, line(pid).ok().filter(|line| !line.is_empty())?))).collect()
    }

    /// KILL, and wait until they are gone.
    #[track_caller]
    pub fn kill(&self, pids: &[i32]) {
        assert!(!pids.is_empty(), "nobody to kill: {:?}", self.processes());
        for &pid in pids {
            // SAFETY: plain integers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        eventually("they are gone", || self.processes().iter().all(|(pid, _)| !pids.contains(pid)).then_some(()));
    }

    #[track_caller]
    pub fn nothing_is_left(&self) {
        eventually("no process is left on the board", || self.processes().is_empty().then_some(()));
    }

    fn network_file(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.network.id()).into()
    }

    fn ip(&self, args: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.network_file().display())).arg("ip").args(args);
        command
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for child in self.board.iter_mut().chain([&mut self.network]) {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
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
