//! A lab whose `isotherm` finds files of its own below `/etc`, `/run`, `/sys` …, in a mount namespace, and a login session around it.

use crate::lab::{Lab, Ran, User, is_root};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// Joins a group that is called like that of a login session, then lays `over/…` over the machine's directories, as far as it is there.
const SCRIPT: &str = r#"
if [ -e "$0/session" ]; then
    for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        group="$hierarchy/$(cat "$0/session")"
        [ -e "$hierarchy/cgroup.procs" ] && mkdir -p "$group" && echo $$ > "$group/cgroup.procs" && joined="$group" && break
    done 2> /dev/null
    [ "$joined" ] || exit 77
    echo "$joined" > "$0/joined"
fi
for dir in etc run usr/bin var/lib sys; do
    [ ! -e "$0/over/$dir" ] || mount -t overlay ovl -o lowerdir="$0/over/$dir":/$dir /$dir 2> /dev/null || exit 77
done
[ ! -e "$0/cpufreq" ] || mount --bind "$0/cpufreq" /sys/devices/system/cpu/cpufreq 2> /dev/null || exit 77
[ ! -e "$0/image" ] || mount -o loop "$0/image" "$0/disk" 2> /dev/null || exit 77
[ ! -e "$0/tmpfs" ] || mount -t tmpfs -o "size=$(cat "$0/tmpfs")" isotherm-lab "$0/tmp" 2> /dev/null || exit 77
exec "$@"
"#;

pub struct Machine {
    pub lab: Lab,
}

impl Machine {
    /// `None`, and a word, where only root may do that.
    pub fn of(user: User) -> Option<Machine> {
        if !is_root() {
            eprintln!("skipped: files laid over those of the machine (only root may mount)");
            return None;
        }
        let machine = Machine { lab: Lab::of(user) };
        machine.campaign("");
        Some(machine)
    }

    /// A campaign of one point, with these settings.
    pub fn campaign(&self, prepare: &str) {
        let block = format!("  - {{ devices: here, backend: command, argv: [\"true\"], prepare: {{ settle: 0ms{prepare} }} }}\n");
        self.lab.write("c.yaml", format!("campaign: c\ndevices: {{ here: {{ local: {{}} }} }}\nmatrix:\n{block}"));
    }

    /// A file of the machine's, in the place of its own.
    pub fn lay(&self, path: &str, text: &str) -> PathBuf {
        self.lab.write(&format!("over/{path}"), text)
    }

    /// What the doctor says; `None`, and a word, where the machine can't be had.
    pub fn doctor(&self, args: &[&str]) -> Option<Ran> {
        let lab = self.lab.path("").display().to_string();
        let lab = lab.trim_end_matches('/');
        let mut command = self.lab.isotherm_inside(&["unshare", "-m", "sh", "-c", SCRIPT, lab], &[&["doctor", "c.yaml"], args].concat());
        command.env("PATH", format!("{lab}/bin:/usr/local/bin:/usr/bin:/bin"));
        let ran = Ran(command.output().unwrap());
        if ran.code() == Some(77) {
            eprintln!("skipped: files laid over those of the machine (not permitted here)");
            return None;
        }
        Some(ran)
    }

    /// Findings of one check: outcome, what, remedy. The exit code has to be this one.
    #[track_caller]
    pub fn findings(&self, check: &str, code: i32) -> Option<Vec<(String, String, String)>> {
        Some(of(&self.doctor(&["--json"])?.expect(code), check))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let group = PathBuf::from(self.lab.read("joined").trim());
        for dir in [Some(group.as_path()), group.parent()].into_iter().flatten().filter(|dir| dir.starts_with("/sys/fs/cgroup")) {
            // Only an empty one goes.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Findings of one check: outcome, what, remedy.
pub fn of(ran: &Ran, check: &str) -> Vec<(String, String, String)> {
    let document: Value = serde_json::from_str(&ran.stdout()).unwrap();
    let findings = document["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check && finding["device"] != Value::Null);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    findings.map(|finding| (text(&finding["outcome"]), text(&finding["what"]), text(&finding["remedy"]))).collect()
}
