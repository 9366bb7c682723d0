//! What a block runs with: built-in values, then `defaults`, then the block, leaf by leaf.

use super::{
    diagnose::{Diagnostics, tick},
    fields::{Fields, Slot, not_yet},
    model::{Order, Settings},
    vocabulary,
    yaml::Kind,
};

/// A repetition count from which the meaning is probably another one.
const MANY_REPETITIONS: u32 = 20;

/// One line of the reference: key, type, built-in value, meaning.
pub type SettingRow = (&'static str, &'static str, &'static str, &'static str);

/// The settings that `defaults` and every block take.
#[must_use]
pub fn settings_table() -> Vec<SettingRow> {
    vec![
        ("repetitions", "whole number, 1 to 10000", "4", "runs of every point, each a fresh process"),
        ("timeout", "duration", "1h", "longest time from spawn of the workload to its exit"),
        ("prepare.settle", "duration", "10s", "fixed wait before each run"),
        ("measure.sample_hz", "number, above 0, at most 100", "10", "telemetry samples per second"),
        ("order", "interleaved, sequential", "interleaved", "how the arms of a group follow each other"),
        ("warmup", "whole number", "builtin: 10, command: 1", "inferences or invocations before the measured ones"),
        ("rounds", "whole number, at least 1", "12", "`builtin` only: blocks of iterations in a run"),
        ("iterations", "whole number, at least 1", "60", "`builtin` only: timed inferences in a round"),
        ("cooldown", "duration", "500ms", "`builtin` only: pause between rounds"),
    ]
}

/// Settings that only backend `builtin` has.
pub const BUILTIN_ONLY: [&str; 3] = ["rounds", "iterations", "cooldown"];

/// Overlays what `defaults` or a block says. `null` goes back to the built-in value, and a value with an error leaves what was there.
pub fn apply(settings: &mut Settings, fields: &Fields<'_>, backend: &str, out: &mut Diagnostics) {
    let builtin = Settings::builtin_defaults(backend);
    for entry in fields.iter() {
        let slot = Slot::of(entry);
        let reset = slot.node.is_null();
        match slot.name {
            "repetitions" => {
                set(&mut settings.repetitions, builtin.repetitions, reset, || slot.count(1, 10_000, out));
                if !reset && settings.repetitions >= MANY_REPETITIONS {
                    let warning = out.warning(slot.place, format!("{} repetitions of every point", settings.repetitions));
                    warning.label("each repetition is a fresh process; did you mean `iterations`?");
                    warning.hint("`iterations` repeats inside a process of `builtin`; a command needs an option of its own");
                }
            }
            "timeout" => {
                set(&mut settings.timeout, builtin.timeout, reset, || slot.duration(out));
                if settings.timeout.is_zero() {
                    slot.refuse("`timeout` is zero".to_owned(), "write how long a run may take, like `timeout: 1h`", out);
                }
            }
            "prepare" if reset => settings.settle = builtin.settle,
            "prepare" => {
                let inner = slot.fields(&vocabulary::PREPARE, "prepare: { settle: 10s }", out);
                if let Some(settle) = inner.and_then(|inner| inner.get("settle")) {
                    if matches!(settle.node.kind, Kind::Map(_)) {
                        not_yet(settle.key, "`prepare.settle` as a map", "write a fixed wait: `settle: 10s`", out);
                    } else {
                        set(&mut settings.settle, builtin.settle, settle.node.is_null(), || settle.duration(out));
                    }
                }
            }
            "measure" if reset => settings.sample_hz = builtin.sample_hz,
            "measure" => {
                let inner = slot.fields(&vocabulary::MEASURE, "measure: { sample_hz: 10 }", out);
                if let Some(rate) = inner.and_then(|inner| inner.get("sample_hz")) {
                    set(&mut settings.sample_hz, builtin.sample_hz, rate.node.is_null(), || sample_hz(rate, out));
                }
            }
            "order" => {
                let orders = [("interleaved", Order::Interleaved), ("sequential", Order::Sequential)];
                set(&mut settings.order, builtin.order, reset, || slot.choice(&orders, vocabulary::LATER_ORDERS, out));
            }
            "warmup" => set(&mut settings.warmup, builtin.warmup, reset, || slot.count(0, 1_000_000, out)),
            "rounds" => set(&mut settings.rounds, builtin.rounds, reset, || slot.count(1, 1_000_000, out)),
            "iterations" => set(&mut settings.iterations, builtin.iterations, reset, || slot.count(1, 1_000_000, out)),
            "cooldown" => set(&mut settings.cooldown, builtin.cooldown, reset, || slot.duration(out)),
            _ => {}
        }
    }
}

fn set<T>(setting: &mut T, builtin: T, reset: bool, read: impl FnOnce() -> Option<T>) {
    if reset {
        *setting = builtin;
    } else if let Some(value) = read() {
        *setting = value;
    }
}

fn sample_hz(slot: Slot<'_>, out: &mut Diagnostics) -> Option<f64> {
    let rate = slot.number("sample_hz: 10", out)?;
    if rate > 0.0 && rate <= 100.0 {
        return Some(rate);
    }
    slot.refuse(format!("{} is out of range", tick(slot.name)), "more than 0, at most 100 samples per second", out);
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{units, vocabulary::DEFAULTS};
    use std::time::Duration;

    #[test]
    fn the_table_says_what_the_built_in_values_are() {
        let builtin = Settings::builtin_defaults("builtin");
        let command = Settings::builtin_defaults("command");
        let default = |key: &str| settings_table().into_iter().find(|row| row.0 == key).expect("a row").2;
        let duration = |key: &str| units::duration(default(key)).expect("a duration");
        assert_eq!(default("repetitions"), builtin.repetitions.to_string());
        assert_eq!(duration("timeout"), builtin.timeout);
        assert_eq!(duration("prepare.settle"), builtin.settle);
        assert_eq!(default("measure.sample_hz"), builtin.sample_hz.to_string());
        assert_eq!(builtin.order, Order::Interleaved);
        assert_eq!(default("warmup"), format!("builtin: {}, command: {}", builtin.warmup, command.warmup));
        assert_eq!(default("rounds"), builtin.rounds.to_string());
        assert_eq!(default("iterations"), builtin.iterations.to_string());
        assert_eq!(duration("cooldown"), Duration::from_millis(500));
    }

    #[test]
    fn every_row_is_a_key_of_defaults() {
        for (key, ..) in settings_table() {
            let top = key.split('.').next().expect("a part");
            assert!(DEFAULTS.keys.contains(&top), "{key}");
        }
        assert!(BUILTIN_ONLY.iter().all(|key| DEFAULTS.keys.contains(key)));
    }
}
