//! Heat: a run is ended before it makes its device hotter than it may become.
//!
//! Takes the last value of the headline sensor with its time, gives whether the run has to end; must not know what is running.

use crate::sampler::{self, Sensors};
use crate::sys;
use isotherm_wire::limits::{Limits, OnSensorLoss, SILENT_NS};
use std::sync::Mutex;

/// Between two looks, ns. A value that the sampler has read is not read again.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// Why a run has to end.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    TooHot {
        sensor: String,
        celsius: f64,
    },
    /// The sensor says nothing any more.
    SensorLost,
}

/// Looks at one sensor while an invocation executes.
pub struct Watch<'a> {
    sensors: &'a Mutex<Sensors>,
    heat: Heat,
    look_at_ns: u64,
}

impl<'a> Watch<'a> {
    /// `None` where no sensor speaks for the CPU.
    pub fn open(sensors: &'a Mutex<Sensors>, limits: Limits) -> Option<Watch<'a>> {
        let sensor = sampler::lock(sensors).headline()?;
        let now_ns = sys::monotonic_ns();
        Some(Watch { sensors, heat: Heat { sensor, limits, heard_ns: now_ns, asked: false, is_lost: false }, look_at_ns: now_ns })
    }

    /// Time until the next look, ns.
    pub fn pause_ns(&self) -> u64 {
        self.look_at_ns.saturating_sub(sys::monotonic_ns())
    }

    /// Look, if it is time to.
    pub fn look(&mut self) -> Option<Stop> {
        let now_ns = sys::monotonic_ns();
        if now_ns < self.look_at_ns {
            return None;
        }
        self.look_at_ns = now_ns + LOOK_EVERY_NS;
        let mut sensors = sampler::lock(self.sensors);
        let (stop, ask) = self.heat.look(now_ns, sensors.latest(&self.heat.sensor));
        if ask {
            // Without waiting for the answer: the next look finds it.
            sensors.ask_for(&self.heat.sensor);
        }
        stop
    }

    /// The sensor, if it was silent for too long.
    pub fn lost(&self) -> Option<&str> {
        self.heat.is_lost.then_some(&self.heat.sensor)
    }
}

struct Heat {
    sensor: String,
    limits: Limits,
    /// When the last value was read; before there is one, the beginning.
    heard_ns: u64,
    /// It was asked at the last look.
    asked: bool,
    is_lost: bool,
}

impl Heat {
    /// A look at the last value and when it was read; why the run has to end, and whether the sensor has to be asked.
    fn look(&mut self, now_ns: u64, latest: Option<(f64, u64)>) -> (Option<Stop>, bool) {
        // What was read before the beginning is of an earlier run.
        if let Some((celsius, at_ns)) = latest.filter(|(_, at_ns)| *at_ns > self.heard_ns) {
            (self.heard_ns, self.asked) = (at_ns, false);
            if celsius > self.limits.temp_max_c {
                return (Some(Stop::TooHot { sensor: self.sensor.clone(), celsius }), false);
            }
        }
        let silent_ns = now_ns.saturating_sub(self.heard_ns);
        // Not when nobody has asked it, as on a machine that had no time for us.
        self.is_lost |= silent_ns >= SILENT_NS && self.asked;
        let stop = (self.is_lost && self.limits.on_sensor_loss == OnSensorLoss::Stop).then_some(Stop::SensorLost);
        self.asked = silent_ns >= LOOK_EVERY_NS || self.asked;
        (stop, self.asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const BEGAN: u64 = 500 * S;

    fn heat(on_sensor_loss: OnSensorLoss) -> Heat {
        Heat { sensor: "cpu-thermal".into(), limits: Limits { temp_max_c: 85.0, on_sensor_loss }, heard_ns: BEGAN, asked: false, is_lost: false }
    }

    /// Second and reason of the end of a run, looked at for two minutes; `latest` by second.
    fn ended(heat: &mut Heat, latest: impl Fn(u64) -> Option<(f64, u64)>) -> Option<(u64, Stop)> {
        (1..120).find_map(|s| Some((s, heat.look(BEGAN + s * S, latest(s)).0?)))
    }

    #[test]
    fn a_run_ends_above_the_limit_and_not_at_it() {
        let read = |s: u64, celsius| Some((celsius, BEGAN + s * S - 1));
        assert_eq!(
            ended(&mut heat(OnSensorLoss::Continue), |s| read(s, 80.0 + s as f64 / 10.0)),
            Some((51, Stop::TooHot { sensor: "cpu-thermal".into(), celsius: 85.1 }))
        );
        assert_eq!(ended(&mut heat(OnSensorLoss::Stop), |s| read(s, 85.0)), None);
    }

    #[test]
    fn what_an_earlier_run_has_left_is_no_heat_of_this_one() {
        assert_eq!(ended(&mut heat(OnSensorLoss::Continue), |_| Some((99.0, BEGAN - 1))), None);
    }

    #[test]
    fn a_sensor_is_lost_after_ten_silent_seconds_and_ends_a_run_only_if_it_is_to() {
        let silent_from = |from: u64| move |s: u64| Some((60.0, BEGAN + s.min(from) * S));
        let mut going_on = heat(OnSensorLoss::Continue);
        assert_eq!(ended(&mut going_on, silent_from(20)), None);
        assert!(going_on.is_lost);
        assert_eq!(ended(&mut heat(OnSensorLoss::Stop), silent_from(20)), Some((30, Stop::SensorLost)));
        assert_eq!(ended(&mut heat(OnSensorLoss::Stop), |_| None), Some((10, Stop::SensorLost)));
        // Every five seconds a value.
        let mut slow = heat(OnSensorLoss::Stop);
        assert_eq!(ended(&mut slow, |s| Some((60.0, BEGAN + s / 5 * 5 * S))), None);
        assert!(!slow.is_lost);
    }

    #[test]
    fn a_sensor_that_nobody_has_asked_is_not_lost() {
        let mut heat = heat(OnSensorLoss::Stop);
        // The machine stood still for a minute.
        assert_eq!(heat.look(BEGAN + 60 * S, None), (None, true));
        assert_eq!(heat.look(BEGAN + 61 * S, Some((60.0, BEGAN + 60 * S + 1))), (None, false));
        assert!(!heat.is_lost);
    }

    #[test]
    fn what_the_sampler_has_read_is_not_asked_for_again() {
        let mut heat = heat(OnSensorLoss::Stop);
        assert!((1..50).all(|s| !heat.look(BEGAN + s * S, Some((60.0, BEGAN + s * S - S / 10))).1));
    }
}
