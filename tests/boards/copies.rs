//! Agents that older isotherms have left on a board.

use crate::boards::Setup;
use crate::rig::{Rig, end};
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

#[test]
fn agents_that_nobody_has_used_for_a_day_make_room_but_for_the_last_ones() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let place = rig.bench.lab.path("board/home/.cache/isotherm");
    fs::create_dir_all(&place).unwrap();
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let leave = |name: &str, hours: u64| {
        let at = SystemTime::now() - Duration::from_secs(hours * 3600);
        File::create(place.join(name)).unwrap().set_times(FileTimes::new().set_accessed(at).set_modified(at)).unwrap();
    };
    let names = || fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>();
    for (name, hours) in [("agent-aaaaaaaaaaaa", 1), ("agent-bbbbbbbbbbbb", 48), ("agent-cccccccccccc", 72), ("agent-dddddddddddd", 96)] {
        leave(&format!("isotherm-{name}"), hours);
    }
    for (name, hours) in [("companion-aaaaaaaaaaaa", 300), ("companion-bbbbbbbbbbbb", 400), ("agent-notes", 500)] {
        leave(&format!("isotherm-{name}"), hours);
    }
    let before = names();
    rig.open(1);
    rig.run().expect(0);
    rig.settled([1, 1], 0);
    let (after, gone): (BTreeSet<String>, BTreeSet<String>) = (names(), before.difference(&names()).cloned().collect());
    // Ours is the third of those that stay.
    assert_eq!(after.difference(&before).count(), 1, "{after:?}");
    assert_eq!(gone, ["isotherm-agent-cccccccccccc", "isotherm-agent-dddddddddddd"].map(str::to_owned).into());
    // A use is noted, and not by the time of the copy.
    let ours = place.join(after.difference(&before).next().unwrap());
    let long_ago = SystemTime::now() - Duration::from_secs(1000 * 3600);
    File::open(&ours).unwrap().set_times(FileTimes::new().set_accessed(long_ago).set_modified(long_ago)).unwrap();
    rig.bench.run(&["run", "c.yaml", "--fresh"]).expect(0);
    let meta = fs::metadata(&ours).unwrap();
    assert!(meta.accessed().unwrap() > long_ago + Duration::from_secs(3600) && meta.modified().unwrap() == long_ago);
}

#[test]
fn a_use_is_noted_ahead_of_what_a_run_writes_and_by_nobody_in_its_window() {
    let Some(rig) = Rig::new(&Setup::default()) else { return };
    let controller = rig.start();
    let times = |name: &str| {
        let files = rig.bench.lab.all_files().into_iter();
        let found = files.filter(|file| file.file_name().is_some_and(|is| is.to_string_lossy().starts_with(name))).collect::<Vec<_>>();
        let [file] = &found[..] else { panic!("{found:?}") };
        fs::metadata(file).unwrap()
    };
    let [agent, entry] = ["isotherm-agent-", "run.json"].map(times);
    assert!((agent.ctime(), agent.ctime_nsec()) <= (entry.mtime(), entry.mtime_nsec()), "{agent:?} {entry:?}");
    // The run was begun by executing it, and the kernel had nothing to note.
    assert!((agent.atime(), agent.atime_nsec()) > (agent.ctime(), agent.ctime_nsec()), "{agent:?}");
    rig.open(1);
    end(controller, 0);
    rig.settled([1, 1], 0);
}
