//! How a device is reached: its `local`, `ssh` or `pod`.

use super::{
    diagnose::{Diagnostics, Span, tick},
    fields::{Fields, Slot},
    vocabulary,
};
use std::path::{Path, PathBuf};

/// How a device is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    Local(Local),
    Ssh(Ssh),
    /// Known by name: a campaign with it can be planned, and is refused before it runs.
    Later(&'static str),
}

impl Transport {
    /// `local`; as it stands in records.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Transport::Local(_) => "local",
            Transport::Ssh(_) => "ssh",
            Transport::Later(name) => name,
        }
    }

    /// Where the keeper keeps spool, socket and journal; `None` = its standard places.
    #[must_use]
    pub fn state_dir(&self) -> Option<&str> {
        match self {
            Transport::Local(Local { state_dir, .. }) | Transport::Ssh(Ssh { state_dir, .. }) => state_dir.as_deref(),
            Transport::Later(_) => None,
        }
    }
}

/// A machine that OpenSSH reaches: what isn't said here is for its configuration to say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ssh {
    /// An alias of the configuration, a name or an address; never an option.
    pub host: String,
    pub user: Option<String>,
    pub port: Option<u16>,
    /// Private key on this machine, absolute or `~/…`; the only one that is tried.
    pub identity_file: Option<PathBuf>,
    /// `[user@]host[:port]`, several with commas.
    pub proxy_jump: Option<String>,
    /// In place of the user's configuration and the system's; likewise.
    pub config: Option<PathBuf>,
    /// Where the agent is installed there; `None` = its standard places. Of letters, digits and `._/+-`, absolute or `~/…`.
    pub bin_dir: Option<String>,
    /// Where the keeper keeps spool, socket and journal; likewise.
    pub state_dir: Option<String>,
}

/// This machine, through an agent process like any other device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Local {
    /// Where the agent is installed; `None` = its standard places.
    pub bin_dir: Option<String>,
    /// Where the keeper keeps spool, socket and journal; `None` = its standard places.
    pub state_dir: Option<String>,
}

/// Of a device, whose key stands at `place`. `dir`: where relative paths of this machine start.
pub fn decode(id: &str, place: Span, fields: &Fields<'_>, dir: &Path, out: &mut Diagnostics) -> Transport {
    let (local_slot, ssh_slot) = (fields.get("local"), fields.get("ssh"));
    let pod = fields.later.iter().find(|entry| entry.key.text == "pod").map(|entry| entry.key.span);
    let all = [("local", local_slot.map(|slot| slot.key)), ("ssh", ssh_slot.map(|slot| slot.key)), ("pod", pod)];
    let all: Vec<(&str, Span)> = all.into_iter().filter_map(|(name, place)| Some((name, place?))).collect();
    if let [(first, place), (second, _), ..] = all[..] {
        out.error(place, format!("device {} has two transports", tick(id))).hint(format!("remove `{first}` or `{second}`"));
    }
    // All of them are looked at: what is wrong with one is wrong beside another, too.
    let (local, ssh) = (local_slot.map(|slot| local(slot, out)), ssh_slot.map(|slot| ssh(slot, dir, out)));
    match (local, ssh, pod) {
        (Some(local), _, _) => Transport::Local(local),
        (_, Some(ssh), _) => Transport::Ssh(ssh),
        (_, _, Some(_)) => Transport::Later("pod"),
        _ => {
            if !["local", "ssh", "pod"].iter().any(|key| fields.is_meant(key)) {
                let hint =
                    format!("say how it is reached: `{id}: {{ local: {{}} }}` is this machine, `{id}: {{ ssh: {{ host: {id} }} }}` another one");
                out.error(place, format!("device {} without a transport", tick(id))).hint(hint);
            }
            Transport::Local(Local::default())
        }
    }
}

fn local(slot: Slot<'_>, out: &mut Diagnostics) -> Local {
    let Some(fields) = slot.fields(&vocabulary::LOCAL, "local: {}", out) else { return Local::default() };
    Local { bin_dir: directory(&fields, "bin_dir", out), state_dir: directory(&fields, "state_dir", out) }
}

fn ssh(slot: Slot<'_>, dir: &Path, out: &mut Diagnostics) -> Ssh {
    const EXAMPLE: &str = "ssh: { host: pi5 }";
    let Some(fields) = slot.fields(&vocabulary::SSH, EXAMPLE, out) else { return Ssh::default() };
    let host = fields.need("host", "`ssh`", &format!("write `{EXAMPLE}`: a name of ~/.ssh/config, or a host name"), out);
    let host = host.and_then(|slot| word(slot, ".:%", "user, port and options have keys of their own", out));
    let mut word = |key: &str, others: &str, hint: &str| fields.get(key).and_then(|slot| word(slot, others, hint, out));
    let user = word("user", ".@+", "letters, digits and `._@+-`");
    let proxy_jump = word("proxy_jump", ".:%@,[]", "write `[user@]host[:port]`, several with commas");
    let port = fields.get("port").and_then(|slot| slot.whole(1..=65_535, "port: 2222", out)).and_then(|port| u16::try_from(port).ok());
    let mut file = |key: &str| fields.get(key).and_then(|slot| slot.some_text(out)).map(|path| here(&path, dir));
    let (identity_file, config) = (file("identity_file"), file("config"));
    let (bin_dir, state_dir) = (directory(&fields, "bin_dir", out), directory(&fields, "state_dir", out));
    Ssh { host: host.unwrap_or_default(), user, port, identity_file, proxy_jump, config, bin_dir, state_dir }
}

/// What is handed to `ssh` as an argument: letters, digits, `_`, `-` and these others, and no `-` in front, which would make an option of it.
fn word(slot: Slot<'_>, others: &str, hint: &str, out: &mut Diagnostics) -> Option<String> {
    let text = slot.some_text(out)?;
    let fits = !text.starts_with('-') && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c) || others.contains(c));
    if !fits {
        out.error(slot.place, format!("{} can not be {} of `ssh`", tick(&text), tick(slot.name))).hint(hint);
    }
    fits.then_some(text)
}

/// A directory on the device.
fn directory(fields: &Fields<'_>, key: &str, out: &mut Diagnostics) -> Option<String> {
    let slot = fields.get(key)?;
    let text = slot.some_text(out)?;
    // It is used on the device, where there is no directory that it could be relative to, and in a shell there.
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/+-".contains(c);
    let fits = text.strip_prefix("~/").or_else(|| text.strip_prefix('/')).is_some_and(|rest| rest.chars().all(plain));
    if !fits {
        out.error(slot.place, format!("{} is no directory that a device can be given", tick(&text)))
            .hint("write an absolute path, or one that begins with `~/`; letters, digits and `._/+-` only");
    }
    fits.then_some(text)
}

/// A file of this machine, absolute or `~/…`.
fn here(path: &str, dir: &Path) -> PathBuf {
    if path.starts_with("~/") { path.into() } else { dir.join(path) }
}
