//! What a run took beyond what the device takes anyway: a figure less the mean power of the wait before it.

use super::ladder::{Channel, Instrument};
use crate::store::energy::{EnergyFigure, NetEnergy};
use isotherm_wire::telemetry::Series;

/// A mean over less is that of whatever the device happened to do.
const LEAST_IDLE_NS: u64 = 10_000_000_000;

/// # Errors
/// Why nothing can be said of it, in words.
pub fn net(instrument: &Instrument<'_>, gross: &EnergyFigure, idle: Option<&Series>) -> Result<NetEnergy, String> {
    let (joules, mean_w) = gross.joules.zip(gross.mean_w).ok_or("there is no gross energy")?;
    let idle = idle.ok_or("it was not read while the device waited for the run")?;
    let means = instrument.channels.iter().map(|channel| mean(channel, idle)).collect::<Result<Vec<_>, _>>()?;
    let idle_w: f64 = means.iter().map(|(watts, _)| watts).sum();
    let idle_ns = means.iter().map(|(_, ns)| *ns).min().unwrap_or(0);
    if idle_w >= mean_w {
        return Err(format!("the device took {idle_w:.2} W while it waited and {mean_w:.2} W in the window"));
    }
    let window_s = gross.window.integrated_ns as f64 / 1e9;
    Ok(NetEnergy { joules: joules - idle_w * window_s, mean_w: mean_w - idle_w, idle_w, idle_ns })
}

/// Mean power of a channel, W, and over how long.
fn mean(channel: &Channel<'_>, idle: &Series) -> Result<(f64, u64), String> {
    let same = |other: &&isotherm_wire::telemetry::Column| other.metric == channel.column.metric && other.subject == channel.column.subject;
    let column = idle.columns.iter().find(same).ok_or_else(|| format!("{} was not read while the device waited", channel.subject()))?;
    let trace = channel.trace(&idle.monotonic_ns, &column.values)?;
    let (first_ns, last_ns) = trace.span_ns().ok_or_else(|| format!("{} was not read while the device waited", channel.subject()))?;
    let span_ns = last_ns - first_ns;
    if span_ns < LEAST_IDLE_NS {
        return Err(format!("it was read for {:.1} s while the device waited, less than {} s", span_ns as f64 / 1e9, LEAST_IDLE_NS / 1_000_000_000));
    }
    let joules = trace.joules(first_ns, last_ns).ok_or("its readings have a gap")?;
    Ok((joules / (span_ns as f64 / 1e9), span_ns))
}
