//! The reference: temperatures of the device at rest, kept on its disk for each results directory, whatever becomes of keepers.
//!
//! Takes the readings of the first contact and of waits, gives what the next wait is judged by; must not know why a wait ended as it did.

use crate::{spool, sys};
use isotherm_wire::columns::ColumnName;
use isotherm_wire::format::{Format, Unread};
use isotherm_wire::settle::{Reference, TIMEOUTS_THAT_RAISE};
use isotherm_wire::telemetry::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Versions of the file.
const REFERENCE: Format = Format::new("reference_version", &[]);
/// Directory of the references, in a state directory.
pub const DIRECTORY: &str = "references";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    reference_version: u32,
    reference: Reference,
    /// Temperatures with which the last waits ended that found the device too warm, without another one in between.
    too_warm: Vec<BTreeMap<String, f64>>,
}

/// The reference of one results directory.
#[derive(Debug)]
pub struct Kept {
    dir: PathBuf,
    file: String,
    /// Why there is none.
    stored: Result<Stored, String>,
}

impl Kept {
    /// What is on the disk of a state directory; at first contact, which is when nothing is there, the readings that `first` gives.
    pub fn open(state: &Path, results_id: &str, first: impl FnOnce() -> Vec<Reading>) -> Kept {
        let (dir, file) = (state.join(DIRECTORY), format!("{results_id}.json"));
        if !spool::is_run_id(results_id) {
            return Kept { dir, file, stored: Err(format!("{results_id:?} is no id of a results directory")) };
        }
        let path = dir.join(&file);
        let stored = match fs::read(&path) {
            Ok(bytes) => REFERENCE.read(&bytes).map_err(|why| match why {
                Unread::Newer { .. } => format!("{}: {why}", path.display()),
                Unread::Shape(why) => format!("{} is damaged ({why}): remove it while the device is at rest", path.display()),
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let kept = Kept { dir, file, stored: Ok(contact(&first())) };
                kept.write();
                return kept;
            }
            Err(e) => Err(format!("{}: {e}", path.display())),
        };
        Kept { dir, file, stored }
    }

    /// # Errors
    /// In words: what is there can't be read. It stays as it is.
    pub fn reference(&self) -> Result<&Reference, &str> {
        self.stored.as_ref().map(|stored| &stored.reference).map_err(String::as_str)
    }

    /// The device has settled at these temperatures.
    pub fn settled(&mut self, values: &BTreeMap<String, f64>) {
        self.change(|stored| {
            stored.too_warm.clear();
            for (sensor, known) in &mut stored.reference.values {
                *known = values.get(sensor).map_or(*known, |value| known.min(*value));
            }
        });
    }

    /// A wait ended without that, with these temperatures, of which `too_warm` kept it from ending. A sensor of which that was so too often
    /// has its reference raised to the coolest of these ends; their values then, else nothing.
    pub fn timed_out(&mut self, values: &BTreeMap<String, f64>, too_warm: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
        let mut raised_to = BTreeMap::new();
        self.change(|stored| {
            // A sensor that is lost, or work beside it, says nothing of how warm the device is at rest.
            if values.is_empty() {
                return;
            }
            if too_warm.is_empty() {
                return stored.too_warm.clear();
            }
            stored.too_warm.push(too_warm.clone());
            if stored.too_warm.len() < TIMEOUTS_THAT_RAISE {
                return;
            }
            let ends = std::mem::take(&mut stored.too_warm);
            for (sensor, known) in &mut stored.reference.values {
                // One of several sensors may have been cool enough at times.
                let Some(of_ends) = ends.iter().map(|end| end.get(sensor).copied()).collect::<Option<Vec<f64>>>() else { continue };
                let coolest = of_ends.into_iter().fold(f64::INFINITY, f64::min);
                if coolest > *known {
                    *known = coolest;
                    raised_to.insert(sensor.clone(), coolest);
                }
            }
            stored.reference.raised += u32::from(!raised_to.is_empty());
        });
        raised_to
    }

    fn change(&mut self, change: impl FnOnce(&mut Stored)) {
        let Ok(stored) = &mut self.stored else { return };
        let before = stored.clone();
        change(stored);
        if *stored != before || !self.dir.join(&self.file).exists() {
            self.write();
        }
    }

    /// Where it can't be written, this keeper knows it all the same, and tries again with the next change.
    fn write(&self) {
        let Ok(stored) = &self.stored else { return };
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.dir)?;
            spool::write_durably(&self.dir, &self.file, &serde_json::to_vec(stored)?)?;
            fs::File::open(self.dir.parent().unwrap_or(&self.dir))?.sync_all()
        };
        if let Err(e) = write() {
            eprintln!("the reference {} can't be written: {e}", self.dir.join(&self.file).display());
        }
    }
}

fn contact(readings: &[Reading]) -> Stored {
    let mut reference = Reference { taken_unix_ns: sys::realtime_ns(), ..Reference::default() };
    for reading in readings.iter().filter(|reading| reading.metric == ColumnName::Temperature.entry().name) {
        let Some(sensor) = reading.subject.clone() else { continue };
        match reading.value {
            Some(value) => _ = reference.values.insert(sensor, value),
            None => _ = reference.absent.insert(sensor, reading.absent.clone().unwrap_or_else(|| "it gave no value".into())),
        }
    }
    Stored { reference_version: REFERENCE.version(), reference, too_warm: Vec::new() }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const ID: &str = "4e93e5f1-6f2a-4f29-b8c3-3fee8d5886c1";

    fn reading(sensor: &str, value: Option<f64>) -> Reading {
        let entry = ColumnName::Temperature.entry();
        let absent = value.is_none().then(|| "no answer within 250 ms".to_owned());
        Reading { metric: entry.name.into(), unit: "c".into(), subject: Some(sensor.into()), source: String::new(), value, absent }
    }

    fn at(value: f64) -> BTreeMap<String, f64> {
        [("cpu-thermal".to_owned(), value)].into()
    }

    fn opened(state: &Path, first: f64) -> Kept {
        Kept::open(state, ID, || vec![reading("cpu-thermal", Some(first)), reading("gpu-thermal", None)])
    }

    #[test]
    fn the_first_contact_is_the_only_one() {
        let state = tempfile::tempdir().unwrap();
        let first = opened(state.path(), 44.0).reference().unwrap().clone();
        assert_eq!(first.values, at(44.0));
        assert_eq!(first.absent["gpu-thermal"], "no answer within 250 ms");
        // A keeper that comes to a board which another one has heated up and left.
        let again = Kept::open(state.path(), ID, || panic!("nothing is read"));
        assert_eq!(again.reference(), Ok(&first));
        let other = Kept::open(state.path(), "other-id", || panic!("nothing is read"));
        assert!(other.reference().unwrap_err().contains("no id"));
    }

    #[test]
    fn a_lower_settled_reading_takes_its_place_and_a_higher_one_does_not() {
        let state = tempfile::tempdir().unwrap();
        let mut kept = opened(state.path(), 44.0);
        kept.settled(&at(46.5));
        assert_eq!(kept.reference().unwrap().values, at(44.0));
        kept.settled(&at(41.25));
        drop(kept);
        assert_eq!(opened(state.path(), 90.0).reference().unwrap().values, at(41.25));
    }

    #[test]
    fn three_time_outs_in_a_row_raise_it_to_the_coolest_of_their_ends() {
        let state = tempfile::tempdir().unwrap();
        assert!(opened(state.path(), 40.0).timed_out(&at(51.0), &at(51.0)).is_empty());
        // Whichever keeper sees them.
        assert!(opened(state.path(), 0.0).timed_out(&at(50.0), &at(50.0)).is_empty());
        let mut kept = opened(state.path(), 0.0);
        assert_eq!(kept.timed_out(&at(52.0), &at(52.0)), at(50.0));
        let reference = kept.reference().unwrap();
        assert_eq!((&reference.values, reference.raised), (&at(50.0), 1));
        assert!(kept.timed_out(&at(60.0), &at(60.0)).is_empty(), "they are counted anew");
    }

    #[test]
    fn only_a_sensor_that_was_too_warm_each_time_is_raised() {
        let state = tempfile::tempdir().unwrap();
        let both = |cpu: f64, gpu: f64| [("cpu-thermal".to_owned(), cpu), ("GPU-5b3c7f00".to_owned(), gpu)].into();
        let first = || vec![reading("cpu-thermal", Some(40.0)), reading("GPU-5b3c7f00", Some(35.0))];
        let mut kept = Kept::open(state.path(), ID, first);
        // A GPU that stays hot beside a CPU which is a little above its own reference, and too warm but once.
        for (cpu, gpu) in [(41.0, 61.0), (52.0, 60.0)] {
            let too_warm = if cpu > 43.0 { both(cpu, gpu) } else { [("GPU-5b3c7f00".to_owned(), gpu)].into() };
            assert!(kept.timed_out(&both(cpu, gpu), &too_warm).is_empty());
        }
        let too_warm = [("GPU-5b3c7f00".to_owned(), 62.0)].into();
        assert_eq!(kept.timed_out(&both(42.0, 62.0), &too_warm), [("GPU-5b3c7f00".to_owned(), 60.0)].into());
        assert_eq!(kept.reference().unwrap().values, both(40.0, 60.0));
    }

    #[test]
    fn only_time_outs_of_a_board_that_is_too_warm_count_and_only_in_a_row() {
        let state = tempfile::tempdir().unwrap();
        let mut kept = opened(state.path(), 40.0);
        let too_warm = |kept: &mut Kept| kept.timed_out(&at(51.0), &at(51.0));
        assert!(too_warm(&mut kept).is_empty() && too_warm(&mut kept).is_empty());
        kept.settled(&at(42.0));
        assert!(too_warm(&mut kept).is_empty() && too_warm(&mut kept).is_empty());
        // Somebody else was at work on a board that was cool.
        assert!(kept.timed_out(&at(41.0), &BTreeMap::new()).is_empty());
        assert!(too_warm(&mut kept).is_empty() && too_warm(&mut kept).is_empty());
        // Its sensor was lost: nobody knows.
        assert!(kept.timed_out(&BTreeMap::new(), &BTreeMap::new()).is_empty());
        assert_eq!(too_warm(&mut kept), at(51.0));
    }

    /// As a keeper left it after two time-outs.
    const GOLDEN_V1: &str = include_str!("../../../tests/recorded/formats/v1/reference.json");

    #[test]
    fn what_an_earlier_version_has_kept_goes_on() {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(state.path().join(DIRECTORY)).unwrap();
        fs::write(state.path().join(DIRECTORY).join(format!("{ID}.json")), GOLDEN_V1).unwrap();
        let mut kept = Kept::open(state.path(), ID, || panic!("nothing is read"));
        let reference = kept.reference().unwrap();
        assert_eq!((reference.taken_unix_ns, &reference.values, reference.raised), (1_796_038_481_551_593_052, &at(48.312), 0));
        assert!(reference.absent["gpu-thermal"].contains("-256000"));
        assert_eq!(kept.timed_out(&at(70.0), &at(70.0)), at(58.0));
    }

    #[test]
    fn one_that_can_not_be_read_stays_and_is_not_replaced_by_what_is_there_now() {
        for content in [r#"{"reference_version": 2, "warmth": 1}"#, r#"{"reference_version": 1, "refer"#] {
            let state = tempfile::tempdir().unwrap();
            let path = state.path().join(DIRECTORY).join(format!("{ID}.json"));
            fs::create_dir(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            let mut kept = Kept::open(state.path(), ID, || panic!("nothing is read"));
            assert!(kept.reference().is_err());
            kept.settled(&at(20.0));
            assert!(kept.timed_out(&at(90.0), &at(90.0)).is_empty());
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn where_nothing_can_be_written_it_lasts_as_long_as_its_keeper() {
        let state = tempfile::tempdir().unwrap();
        // A file where the directory belongs.
        fs::write(state.path().join(DIRECTORY), "").unwrap();
        let mut kept =
            Kept { dir: state.path().join(DIRECTORY), file: format!("{ID}.json"), stored: Ok(contact(&[reading("cpu-thermal", Some(44.0))])) };
        kept.settled(&at(40.0));
        assert_eq!(kept.reference().unwrap().values, at(40.0));
        fs::remove_file(state.path().join(DIRECTORY)).unwrap();
        kept.settled(&at(41.0));
        assert_eq!(opened(state.path(), 0.0).reference().unwrap().values, at(40.0));
    }
}
