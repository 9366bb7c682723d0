//! What `ssh` says when it can't connect, as one sentence and what to do about it. Pure: its words in, ours out.

use crate::shell;
use std::io;

/// Why a device can't be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreachable {
    pub reason: String,
    pub hint: String,
    /// It may be over by itself.
    pub passing: bool,
}

/// From why there is no client that could say anything.
#[must_use]
pub fn not_started(error: &io::Error, destination: &str) -> Unreachable {
    if error.kind() == io::ErrorKind::NotFound {
        let hint = "install OpenSSH's client: apt install openssh-client".into();
        return Unreachable { reason: "there is no program `ssh` here".into(), hint, passing: false };
    }
    Unreachable { reason: format!("ssh: {error}"), hint: format!("try `ssh {destination}`"), passing: true }
}

/// From the words of OpenSSH's client; `destination` is how it is called for this device: `-F FILE user@host`.
#[must_use]
pub fn unreachable(said: &str, destination: &str) -> Unreachable {
    let said = said.trim();
    let lines = |said: &str| said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let try_it = format!("try `ssh {destination}`");
    // Who carries the connection, such as a jump host's client, has spoken and let go of it: nobody has an address then.
    if let Some((before, _)) = said.split_once("kex_exchange_identification: ")
        && !before.trim().is_empty()
        && said.contains(" by UNKNOWN port ")
    {
        return Unreachable { reason: format!("on the way there: {}", lines(before)), hint: try_it, ..unreachable(before, destination) };
    }
    let has = |text: &str| said.contains(text);
    let lasting = |reason: String, hint: String| Unreachable { reason, hint, passing: false };
    if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        // `Offending ED25519 key in /home/me/.ssh/known_hosts:3`
        let offending = said.lines().find_map(|line| Some(line.trim().strip_prefix("Offending ")?.split_once(" key in ")?.1));
        let place = offending.unwrap_or("known_hosts");
        let (file, line) = place.rsplit_once(':').unwrap_or((place, ""));
        return lasting(
            format!("its host key is another one than in {place}"),
            format!(
                "was it set up anew? then `sed -i {line}d {} && ssh {destination}`, and compare the fingerprint it shows; else somebody else answers",
                shell::word(file)
            ),
        );
    }
    if has("Host key verification failed") || has(" host key is known for ") {
        return lasting(
            "its host key is not known here".into(),
            format!("call `ssh {destination}` once and compare the fingerprint it shows with the device's"),
        );
    }
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("ssh said nothing");
    let reason = last.trim().trim_start_matches("ssh: ").to_owned();
    if has("Permission denied") || has("Too many authentication failures") {
        let hint = format!("ssh-copy-id {destination}   # a key with a passphrase has to be in ssh-agent: nothing is asked for here");
        return lasting(reason, hint);
    }
    if has("Could not resolve hostname") && !has("Temporary failure") {
        return lasting(reason, "correct `host` of the device, or give it a `HostName` in ~/.ssh/config".into());
    }
    let hint = if has("Could not resolve hostname") {
        "is this machine in a network? else correct `host` of the device, or give it a `HostName` in ~/.ssh/config".into()
    } else if has("Connection refused") {
        "is sshd running there, and on this port? `port` of the device is another one".into()
    } else if has("during banner exchange") {
        "it accepts connections and says nothing: does it hang, or have no memory left? if it doesn't recover, switch it off and on".into()
    } else if has("timed out") || has("No route to host") || has("Network is unreachable") {
        "is it switched on and in this network?".into()
    } else {
        // Nothing that is known: all of it.
        let reason = if said.is_empty() { reason } else { lines(said) };
        let lasts = has("onfiguration option") || has("config file") || has("Invalid -J argument");
        return Unreachable { reason, hint: try_it, passing: !lasts };
    };
    Unreachable { reason, hint, passing: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_says_becomes_one_sentence_and_something_to_do() {
        for (said, reason, hint, passing) in [
            (
                "ssh: connect to host 10.0.0.9 port 22: Connection refused\n",
                "connect to host 10.0.0.9 port 22: Connection refused",
                "sshd running",
                true,
            ),
            (
                "ssh: connect to host 10.0.0.9 port 22: Connection timed out",
                "connect to host 10.0.0.9 port 22: Connection timed out",
                "switched on",
                true,
            ),
            (
                "Connection timed out during banner exchange\nConnection to 10.0.0.9 port 22 timed out",
                "Connection to 10.0.0.9 port 22 timed out",
                "says nothing",
                true,
            ),
            ("ssh: connect to host 10.0.0.9 port 22: No route to host", "connect to host 10.0.0.9 port 22: No route to host", "switched on", true),
            (
                "ssh: Could not resolve hostname nosuch: Name or service not known",
                "Could not resolve hostname nosuch: Name or service not known",
                "HostName",
                false,
            ),
            ("pi@10.0.0.9: Permission denied (publickey).", "pi@10.0.0.9: Permission denied (publickey).", "ssh-copy-id pi@board", false),
            (
                "No ED25519 host key is known for 10.0.0.9 and you have requested strict checking.\nHost key verification failed.\n",
                "its host key is not known here",
                "ssh pi@board",
                false,
            ),
            (
                "@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@\nAdd correct host key in /k to get rid of this message.\n\
                 Offending ED25519 key in /home/me/.ssh/known_hosts:3\nHost key verification failed.\n",
                "its host key is another one than in /home/me/.ssh/known_hosts:3",
                "sed -i 3d /home/me/.ssh/known_hosts",
                false,
            ),
            (
                "kex_exchange_identification: read: Connection reset by peer",
                "kex_exchange_identification: read: Connection reset by peer",
                "try `ssh",
                true,
            ),
            (
                "/l/ssh_config: line 3: Bad configuration option: hots\r\n/l/ssh_config: terminating, 1 bad configuration options",
                "/l/ssh_config: line 3: Bad configuration option: hots; /l/ssh_config: terminating, 1 bad configuration options",
                "try `ssh pi@board`",
                false,
            ),
            (
                "Can't open user config file /nowhere: No such file or directory",
                "Can't open user config file /nowhere: No such file or directory",
                "try",
                false,
            ),
            (
                "root@10.0.0.1: Permission denied (publickey).\r\nkex_exchange_identification: Connection closed by remote host\r\n\
                 Connection closed by UNKNOWN port 65535\r\n",
                "on the way there: root@10.0.0.1: Permission denied (publickey).",
                "try `ssh pi@board`",
                false,
            ),
            (
                "channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\n\
                 kex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535",
                "on the way there: channel 0: open failed: connect failed: No route to host; stdio forwarding failed",
                "try `ssh pi@board`",
                true,
            ),
            ("Invalid -J argument\r\n", "Invalid -J argument", "try `ssh pi@board`", false),
            ("", "ssh said nothing", "try `ssh pi@board`", true),
        ] {
            let told = unreachable(said, "pi@board");
            assert_eq!((told.reason.as_str(), told.passing), (reason, passing));
            assert!(told.hint.contains(hint), "{}", told.hint);
        }
    }
}
