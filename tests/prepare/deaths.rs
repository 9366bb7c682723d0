//! Whoever dies with something borrowed, somebody gives it back; after a boot there is nothing to give.

use crate::board::{BORROWED, Board, DROPPING, KEEPER, PERFORMANCE};
use crate::lab::{User, eventually};
use std::fs::{self, File};
use std::io::Read;
use std::process::Child;

/// A night that has borrowed everything, and executes its only job.
pub fn night() -> Option<(Board, Child)> {
    let board = Board::of(User::Caller)?;
    board.campaign(&[PERFORMANCE]);
    let controller = board.start();
    assert_eq!(board.policies(), BORROWED);
    Some((board, controller))
}

#[test]
fn a_keeper_whose_controller_was_killed_gives_back_when_nobody_comes() {
    let Some(board) = Board::of(User::Caller) else { return };
    board.campaign(&[PERFORMANCE]);
    let mut controller = board.start_with(&[("ISOTHERM_LINGER_MS", "1")]);
    controller.kill().unwrap();
    controller.wait().unwrap();
    assert_eq!(board.policies(), BORROWED, "not while its run goes on");
    board.open(&[0]);
    board.is_as_it_was();
    board.run(&["run", "c.yaml"]).expect(0);
    assert_eq!((board.seen().len(), board.lab.events("c", "collected").len()), (1, 1));
}

#[test]
fn what_a_killed_keeper_had_borrowed_is_given_back_by_the_next_one_before_it_borrows() {
    let Some((board, controller)) = night() else { return };
    board.kill(&board.lab.pids_of(KEEPER));
    board.executing(2);
    assert_eq!((board.policies(), board.lab.events("c", "given_back").len()), (BORROWED.map(String::from), 1));
    board.open(&[0]);
    crate::lab::Ran::of(controller).expect(0);
    assert_eq!(board.lab.events("c", "given_back").len(), 2);
    // Once more from what was there before anybody borrowed.
    assert_eq!(board.steps(), [["governor done", "frequency done"]]);
    board.is_as_it_was();
}

/// A campaign whose second job hangs in a step with everything borrowed: what empties the cache is a pipe that nobody reads.
struct Hung {
    board: Board,
    controller: Child,
}

fn hung() -> Option<Hung> {
    let board = Board::of(User::Caller)?;
    let pipe = std::ffi::CString::new(board.lab.path("drop_caches").display().to_string()).unwrap();
    // SAFETY: a valid C string and a mode.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    board.campaign(&[PERFORMANCE, &format!("drop_caches: each, {PERFORMANCE}")]);
    board.open(&[0]);
    let controller = board.start();
    eventually("it hangs in the step", || (!board.lab.pids_of(DROPPING).is_empty()).then_some(()));
    Some(Hung { board, controller })
}

impl Hung {
    /// Let the step end.
    fn release(&self) {
        let mut text = String::new();
        File::open(self.board.lab.path("drop_caches")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "3\n");
    }
}

#[test]
fn a_step_that_outlives_its_keeper_quarantines_the_device_until_it_ends() {
    let Some(mut hung) = hung() else { return };
    let board = &hung.board;
    board.kill(&[board.lab.pids_of(KEEPER), vec![hung.controller.id() as i32]].concat());
    hung.controller.wait().unwrap();
    assert_eq!(board.lab.pids_of(DROPPING).len(), 1, "nobody ends it in the middle");
    assert_eq!(board.policies(), BORROWED);
    let refused = board.run(&["run", "c.yaml"]).expect(4);
    assert!(refused.stderr().contains("drop_caches, begun earlier, has not ended"), "{}", refused.stderr());
    hung.release();
    eventually("it has ended", || board.lab.pids_of(DROPPING).is_empty().then_some(()));
    // Nobody reads a pipe; a file may be written.
    fs::remove_file(board.lab.path("drop_caches")).unwrap();
    board.lab.write("drop_caches", "");
    board.open(&[1]);
    board.run(&["run", "c.yaml"]).expect(0);
    board.is_as_it_was();
}

#[test]
fn a_cancel_in_a_step_is_heard_when_the_step_has_ended_and_everything_is_given_back() {
    let Some(hung) = hung() else { return };
    let board = &hung.board;
    let cancel = board.command(&["cancel", "c.yaml"]).spawn().unwrap();
    eventually("it has come", || (board.lab.pids_of(" serve --nonce ").len() == 2).then_some(()));
    hung.release();
    crate::lab::Ran::of(cancel).expect(0);
    let Hung { board, controller } = hung;
    crate::lab::Ran::of(controller).expect(1);
    // The workload would never have ended. Had it been started already when the cancel came, the other steps would be there.
    assert_eq!(board.records()[1]["reason"], "interrupted");
    let step = &board.records()[1]["prepare"][0];
    assert!(step["reason"].as_str().is_none_or(|why| why.contains("did not shrink")), "{step}");
    board.is_as_it_was();
}

#[test]
fn whoever_dies_while_the_device_is_prepared_every_job_gets_one_record_and_the_board_back() {
    const SERVE: &str = " serve --nonce ";
    const CONTROLLER: &str = "isotherm run";
    for victims in [&[CONTROLLER][..], &[SERVE], &[KEEPER], &[CONTROLLER, SERVE, KEEPER]] {
        let Some(Hung { board, mut controller }) = hung() else { return };
        board.kill(&victims.iter().flat_map(|text| board.lab.pids_of(text)).collect::<Vec<_>>());
        // From now on somebody reads the pipe, whoever writes to it.
        let _reader = File::options().read(true).write(true).open(board.lab.path("drop_caches")).unwrap();
        board.open(&[1]);
        // Whether it goes on, and to which end, is its own affair.
        eventually("the controller has ended", || controller.try_wait().unwrap());
        eventually("the step has ended", || board.lab.pids_of(DROPPING).is_empty().then_some(()));
        board.run(&["run", "c.yaml"]).expect(0);
        let jobs: Vec<_> = board.records().iter().map(|r| (r["ids"]["point"]["axes"]["job"].clone(), r["status"].clone())).collect();
        assert_eq!(jobs, [(0.into(), "ok".into()), (1.into(), "ok".into())], "{victims:?}");
        board.is_as_it_was();
    }
}
