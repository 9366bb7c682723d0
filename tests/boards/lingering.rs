//! A user who lingers: the keeper is started in a scope of the user's manager, which a logout leaves alone.
//!
//! No systemd runs on these boards. What tells that one does are files that stand where it would have them, and `systemd-run` is a stand-in
//! that notes its arguments and becomes what is behind `--`, as the real one does once its scope is there.

use crate::boards::Setup;
use crate::rig::Rig;
use std::path::Path;

const LINGERS: &str = "mkdir -p /run/systemd/system /run/user/1777/systemd && touch /run/user/1777/systemd/private
    mkdir -p /var/lib/systemd && mount -t tmpfs tmpfs /var/lib/systemd && mkdir /var/lib/systemd/linger && touch /var/lib/systemd/linger/pi";

/// A board whose user `pi` lingers, with this `systemd-run`.
fn board(systemd_run: &str) -> Option<Rig> {
    let setup = Setup { uid: 1777, before: LINGERS, sshd: "SetEnv PATH=/mnt/bin:/usr/bin:/bin", ..Setup::default() };
    let rig = Rig::new(&setup)?;
    rig.bench.lab.write("board/bin/systemd-run", systemd_run);
    Some(rig)
}

#[test]
fn the_keeper_of_a_user_who_lingers_is_started_by_systemd_run() {
    let stand_in = "#!/bin/sh\necho \"$XDG_RUNTIME_DIR $*\" > /home/scope\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n";
    let Some(rig) = board(stand_in) else { return };
    let controller = rig.start();
    let noted = rig.bench.lab.read("board/home/scope");
    let words: Vec<&str> = noted.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "--").unwrap();
    assert!(words[..at].starts_with(&["/run/user/1777", "--user", "--scope"]), "{noted}");
    assert!(
        words[at + 1].starts_with("/home/.cache/isotherm/isotherm-agent-")
            && words[at + 2..] == ["keep", "--state-dir", "/home/.local/state/isotherm"],
        "{noted}"
    );
    assert!(
        rig.bench
            .processes()
            .iter()
            .any(|(_, line)| Path::new(line.split(' ').next().unwrap()) == Path::new(words[at + 1]) && line.contains(" keep "))
    );
    rig.open(1);
    let told = crate::rig::end(controller, 0).stderr();
    assert!(!told.contains("systemd-run"), "{told}");
    rig.settled([1, 1], 0);
    let doctor = rig.bench.run(&["doctor", "c.yaml"]).stdout();
    assert!(doctor.contains("user pi lingers: its keeper is started in a scope of its own (systemd-run)"), "{doctor}");
}

#[test]
fn where_systemd_run_fails_the_keeper_is_started_all_the_same_and_that_is_said() {
    let Some(rig) = board("#!/bin/sh\ncat > /dev/null\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n") else { return };
    rig.open(1);
    // What stands in its log from earlier is nothing of this.
    rig.run().expect(0);
    let told = rig.bench.run(&["run", "c.yaml", "--fresh"]).expect(0).stderr();
    let words = "device `board`: a logout there may end its keeper, which systemd-run did not start: Failed to connect to bus: No medium found";
    assert_eq!(told.matches(words).count(), 1, "{told}");
    assert_eq!(told.matches("Failed to connect").count(), 1, "{told}");
    rig.bench.nothing_is_left();
}
