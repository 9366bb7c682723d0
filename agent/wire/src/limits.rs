//! Limits of a run that are watched while it executes.

use serde::{Deserialize, Serialize};

/// A sensor without a value for this long is lost, ns.
pub const SILENT_NS: u64 = 10_000_000_000;

/// How warm a device may become.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Above it on the headline sensor, the workload is ended, °C.
    pub temp_max_c: f64,
    pub on_sensor_loss: OnSensorLoss,
}

/// What becomes of a run whose sensor falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnSensorLoss {
    /// It goes on without a watch.
    Continue,
    /// It is ended; where there is no sensor at all, it isn't started.
    Stop,
}
