//! The lease on this machine: an abstract socket, so that it dies with its keeper and is never stale. Connecting to it names the holder.

use isotherm_wire::session::Holder;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

const NAME: &str = "isotherm-lease";
/// Who holds the lease says so within this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often, every [`LOOK_AGAIN`], one that holds the lease and says nothing is looked at: two seconds.
const MOST_LOOKS: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Pause after an asker who could not be accepted: there are no descriptors left, say.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Gives the lease another name: for several devices that share one network namespace, and for tests beside each other.
pub const NAME_VARIABLE: &str = "ISOTHERM_LEASE";

/// What a lease answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Held {
    #[serde(flatten)]
    pub holder: Holder,
    /// Where that keeper keeps its state: another place means another keeper, also for the same campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
}

pub enum Refused {
    Held(Held),
    Failed(io::Error),
}

/// The lease while this lives.
pub struct Lease {
    listener: UnixListener,
    answering: thread::JoinHandle<()>,
}

fn name() -> String {
    std::env::var(NAME_VARIABLE).unwrap_or_else(|_| NAME.to_owned())
}

/// Who holds the lease of this machine, without taking it; `None` = nobody.
pub fn holder() -> io::Result<Option<Holder>> {
    let name = name();
    match who_holds(SocketAddr::from_abstract_name(name.as_bytes())?) {
        Ok(held) => Ok(Some(held.holder)),
        // Nobody, or one that is just giving it back.
        Err(e) if is_silence(&e) => Ok(None),
        Err(e) => Err(io::Error::other(format!("something that is no keeper of isotherm holds the socket @{name}: {e}"))),
    }
}

/// Take the lease of this machine, for a keeper with its state at `state_dir`.
pub fn take(holder: &Holder, state_dir: &str) -> Result<Lease, Refused> {
    let name = name();
    let address = SocketAddr::from_abstract_name(name.as_bytes()).map_err(Refused::Failed)?;
    let listener = bind(&address, &name)?;
    let held = Held { holder: holder.clone(), state_dir: Some(state_dir.to_owned()) };
    let line = serde_json::to_string(&held).map_err(|e| Refused::Failed(e.into()))? + "\n";
    let answer = listener.try_clone().map_err(Refused::Failed)?;
    let answering = thread::Builder::new()
        .name("lease".into())
        .spawn(move || {
            loop {
                match answer.accept() {
                    Ok((mut asker, _)) => {
                        let _ = asker.set_write_timeout(Some(Duration::from_secs(1)));
                        let _ = asker.write_all(line.as_bytes());
                    }
                    // Shut down: it has been given back.
                    Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return,
                    Err(_) => thread::sleep(ACCEPT_AGAIN),
                }
            }
        })
        .map_err(Refused::Failed)?;
    Ok(Lease { listener, answering })
}

/// Listen on the name, or say who does.
fn bind(address: &SocketAddr, name: &str) -> Result<UnixListener, Refused> {
    let mut looks = 0;
    loop {
        match UnixListener::bind_addr(address) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            other => return other.map_err(Refused::Failed),
        }
        match who_holds(address.clone()) {
            Ok(held) => return Err(Refused::Held(held)),
            // One that is giving it back, or dying, says nothing any more and still has the name for a moment.
            Err(e) if is_silence(&e) && looks < MOST_LOOKS => {
                looks += 1;
                thread::sleep(LOOK_AGAIN);
            }
            Err(e) => {
                return Err(Refused::Failed(io::Error::other(format!("something that is no keeper of isotherm holds the socket @{name}: {e}"))));
            }
        }
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
}

/// On a thread of its own: what holds the name may be anything, and may accept nobody or go on for ever.
fn who_holds(address: SocketAddr) -> io::Result<Held> {
    let ask = move || -> io::Result<Held> {
        let mut line = Vec::new();
        UnixStream::connect_addr(&address)?.take(64 << 10).read_to_end(&mut line)?;
        if line.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it says nothing"));
        }
        serde_json::from_slice(&line).map_err(|e| io::Error::other(format!("its answer is not understood: {e}")))
    };
    let (told, answer) = std::sync::mpsc::channel();
    thread::Builder::new().name("asking".into()).spawn(move || told.send(ask()))?;
    answer.recv_timeout(ANSWER_TIMEOUT).unwrap_or_else(|_| Err(io::Error::other("it does not answer")))
}

impl Lease {
    /// Give it back: when this returns, another keeper can take it.
    pub fn give_back(self) {
        use std::os::fd::AsRawFd;
        // SAFETY: our own listening socket; shutting it down ends the accept in the other thread.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        let _ = self.answering.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_keeper_is_told_who_holds_the_machine_until_it_is_given_back() {
        // SAFETY: no other test of this binary reads or writes the environment.
        unsafe { std::env::set_var(NAME_VARIABLE, format!("isotherm-test-{}", std::process::id())) };
        let holder = |id: &str| Holder { results_id: id.into(), campaign: "c".into(), controller: "me".into(), since: "now".into() };
        assert!(matches!(super::holder(), Ok(None)));
        let Ok(lease) = take(&holder("first"), "/s") else { panic!("free") };
        assert!(matches!(super::holder(), Ok(Some(h)) if h.results_id == "first"));
        assert!(
            matches!(take(&holder("second"), "/s"), Err(Refused::Held(h)) if h.holder.results_id == "first" && h.state_dir.as_deref() == Some("/s"))
        );
        lease.give_back();
        assert!(take(&holder("second"), "/s").is_ok());
    }
}
