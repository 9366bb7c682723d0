//! Where a keeper is started so that a logout leaves it alone: in a scope of its user's manager, by `systemd-run`.
//!
//! logind may end all processes of a session with it, those of a user who lingers, too; what the user's manager holds it doesn't touch then.

use crate::sys;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Such a place.
#[derive(Debug, PartialEq)]
pub struct Scope {
    systemd_run: PathBuf,
    runtime_dir: PathBuf,
}

/// For us, on this machine.
pub fn here() -> Option<Scope> {
    look(Path::new("/"), sys::uid(), &std::env::var_os("PATH")?)
}

/// `None` where there is none, or none is needed: logind leaves root's processes alone, unless it is told otherwise.
pub fn look(root: &Path, uid: u32, path: &OsStr) -> Option<Scope> {
    let user = user_name(&fs::read_to_string(root.join("etc/passwd")).ok()?, uid)?;
    let runtime_dir = Path::new("run/user").join(uid.to_string());
    let lingers = root.join("var/lib/systemd/linger").join(user).exists();
    // sd_booted(3); and the manager of the user, which listens there.
    let has_manager = root.join("run/systemd/system").exists() && root.join(&runtime_dir).join("systemd/private").exists();
    if uid == 0 || !lingers || !has_manager {
        return None;
    }
    let below = |dir: PathBuf| root.join(dir.strip_prefix("/").unwrap_or(&dir)).join("systemd-run");
    let systemd_run = std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(below).find(|program| program.is_file())?;
    Some(Scope { systemd_run, runtime_dir: root.join(runtime_dir) })
}

impl Scope {
    /// A program that is started there, its arguments still to come.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.systemd_run);
        command.args(["--user", "--scope", "--quiet", "--collect", "--description=keeper of isotherm", "--"]).arg(program);
        // Of a session without PAM it isn't set.
        command.env("XDG_RUNTIME_DIR", &self.runtime_dir);
        command
    }
}

/// By a machine's `passwd`.
pub fn user_name(passwd: &str, uid: u32) -> Option<String> {
    let mut users = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    users.find(|fields| fields.get(2).and_then(|id| id.parse().ok()) == Some(uid)).map(|fields| fields[0].to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const FILES: [(&str, &str); 5] = [
        ("etc/passwd", "root:x:0:0::/root:/bin/sh\npi:x:1000:1000::/home/pi:/bin/sh\n"),
        ("run/systemd/system/x", ""),
        ("run/user/1000/systemd/private", ""),
        ("var/lib/systemd/linger/pi", ""),
        ("usr/bin/systemd-run", ""),
    ];

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn there_is_one_where_the_user_lingers_and_its_manager_listens() {
        let found = |files: &[(&str, &str)], uid: u32, path: &str| {
            let root = tree(files);
            look(root.path(), uid, OsStr::new(path)).map(|scope| (scope, root.path().to_owned()))
        };
        let (scope, root) = found(&FILES, 1000, "relative:/nowhere:/usr/bin").unwrap();
        assert_eq!(scope, Scope { systemd_run: root.join("usr/bin/systemd-run"), runtime_dir: root.join("run/user/1000") });
        for (without, _) in FILES {
            let files: Vec<_> = FILES.into_iter().filter(|(file, _)| *file != without).collect();
            assert!(found(&files, 1000, "/usr/bin").is_none(), "{without}");
        }
        assert!(found(&FILES, 1000, "/nowhere").is_none() && found(&FILES, 1001, "/usr/bin").is_none());
        let of_root = [("run/user/0/systemd/private", ""), ("var/lib/systemd/linger/root", "")];
        assert!(found(&[&FILES[..], &of_root].concat(), 0, "/usr/bin").is_none(), "root's are left alone");
    }
}
