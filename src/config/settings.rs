//! What a block runs with: built-in values, then `defaults`, then the block, leaf by leaf.

use super::{
    diagnose::Diagnostics,
    fields::{Fields, Slot},
    model::{
        Dominance, FatalReason, Frequency, Limits, MOST_IN_WINDOW, MOST_REPETITIONS, OnSensorLoss, OnTimeout, Order, Power, Preparation, Quiet,
        Settings, Settle, Slo, When, Window,
    },
    vocabulary,
    yaml::Kind,
};

use indexmap::IndexMap;

/// A repetition count from which the meaning is probably another one.
const MANY_REPETITIONS: u32 = 20;

/// Overlays what a block says, with what it inherits. A value with an error leaves what was there.
pub fn apply(settings: &mut Settings, fields: &Fields<'_>, out: &mut Diagnostics) {
    for entry in fields.iter() {
        let slot = Slot::of(entry);
        match slot.name {
            "repetitions" => {
                set(&mut settings.repetitions, slot.count(1, MOST_REPETITIONS, out));
                if settings.repetitions >= MANY_REPETITIONS {
                    let warning = out.warning(slot.place, format!("{} repetitions of every point", settings.repetitions));
                    warning.label("each repetition is a fresh process; did you mean `iterations`?");
                    warning.hint("`iterations` repeats inside a process of `builtin`; a command needs an option of its own");
                }
            }
            "timeout" => {
                set(&mut settings.timeout, slot.duration(out));
                if settings.timeout.is_zero() {
                    slot.refuse("`timeout` is zero".to_owned(), "write how long a run may take, like `timeout: 1h`", out);
                }
            }
            "startup_timeout" => {
                set(&mut settings.startup_timeout, slot.duration(out));
                if settings.startup_timeout.is_zero() {
                    slot.refuse(
                        "`startup_timeout` is zero".to_owned(),
                        "write how long a server may take to be ready, like `startup_timeout: 10m`",
                        out,
                    );
                }
            }
            "slo" => set(&mut settings.slo, slo(slot, out).map(Some)),
            "prepare" => {
                let Some(inner) = slot.fields(&vocabulary::PREPARE, "prepare: { settle: 10s }", out) else { continue };
                prepare(&mut settings.prepare, &inner, out);
                if let Some(slot) = inner.get("settle") {
                    set(&mut settings.settle, settle(slot, out));
                }
            }
            "measure" => {
                let inner = slot.fields(&vocabulary::MEASURE, "measure: { sample_hz: 10 }", out);
                let Some(inner) = inner else { continue };
                if let Some(rate) = inner.get("sample_hz") {
                    set(&mut settings.sample_hz, rate.number_within(0.0, 100.0, out));
                }
                if let Some(power) = inner.get("power") {
                    let words =
                        [("off", Power::Off), ("auto", Power::Auto), ("split", Power::Split), ("together", Power::Together), ("only", Power::Only)];
                    set(&mut settings.power, power.choice(&words, &[], out));
                }
                if let Some(slot) = inner.get("window") {
                    window(&mut settings.window, slot, out);
                }
            }
            "limits" => set(&mut settings.limits, limits(slot, out)),
            "order" => {
                let orders = [("interleaved", Order::Interleaved), ("sequential", Order::Sequential)];
                set(&mut settings.order, slot.choice(&orders, &["shuffled"], out));
            }
            "interleave" => {
                let axes = slot.list("interleave: [model]", out).map(|items| items.into_iter().filter_map(|item| item.some_text(out)).collect());
                set(&mut settings.interleave, axes);
            }
            "retry_contaminated" => set(&mut settings.retry_contaminated, slot.count(0, 10, out)),
            "dominance" => set(&mut settings.dominance, dominance(slot, out).map(Some)),
            "conditions" => settings.conditions.extend(conditions(slot, out)),
            "warmup" => set(&mut settings.warmup, slot.count(0, 1_000_000, out)),
            "rounds" => set(&mut settings.rounds, slot.count(1, 1_000_000, out)),
            "iterations" => set(&mut settings.iterations, slot.count(1, 1_000_000, out)),
            "cooldown" => set(&mut settings.cooldown, slot.duration(out)),
            _ => {}
        }
    }
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}

/// name → value, both as written.
pub fn conditions(slot: Slot<'_>, out: &mut Diagnostics) -> IndexMap<String, String> {
    let entries = slot.named_entries("conditions: { ambient_c: 22, cooling: fan }", out).unwrap_or_default();
    entries.iter().filter_map(|entry| Some((entry.key.text.clone(), Slot::of(entry).text(out)?))).collect()
}

fn prepare(settings: &mut Preparation, fields: &Fields<'_>, out: &mut Diagnostics) {
    let often = [("on_model_change", Some(When::OnModelChange)), ("each", Some(When::Each)), ("off", None)];
    if let Some(slot) = fields.get("reset_swap") {
        set(&mut settings.reset_swap, slot.choice(&often, &[], out));
    }
    if let Some(slot) = fields.get("drop_caches") {
        set(&mut settings.drop_caches, slot.choice(&often, &[], out));
    }
    if let Some(slot) = fields.get("governor") {
        let name = slot.some_text(out).filter(|name| {
            let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            if !is_name {
                slot.refuse(format!("`{name}` is no governor's name"), "write one that `isotherm probe` names, like `governor: performance`", out);
            }
            is_name
        });
        set(&mut settings.governor, name.map(Some));
    }
    if let Some(slot) = fields.get("frequency") {
        let word = slot.node.scalar().and_then(|scalar| match scalar.text.as_str() {
            "max" => Some(Frequency::Max),
            "min" => Some(Frequency::Min),
            _ => None,
        });
        set(&mut settings.frequency, word.or_else(|| slot.frequency(out).map(Frequency::Khz)).map(Some));
    }
}

/// Of a device, or of a block.
pub fn limits(slot: Slot<'_>, out: &mut Diagnostics) -> Option<Limits> {
    let fields = slot.fields(&vocabulary::LIMITS, "limits: { temp_max: 85C }", out)?;
    let losses = [("continue", OnSensorLoss::Continue), ("stop", OnSensorLoss::Stop)];
    Some(Limits {
        temp_max_c: fields.get("temp_max").and_then(|slot| slot.temperature(out)),
        on_sensor_loss: fields.get("on_sensor_loss").and_then(|slot| slot.choice(&losses, &[], out)),
    })
}

/// A duration, or a map whose keys have values of their own.
fn settle(slot: Slot<'_>, out: &mut Diagnostics) -> Option<Settle> {
    if !matches!(slot.node.kind, Kind::Map(_)) {
        return slot.duration(out).map(Settle::Fixed);
    }
    let fields = slot.fields(&vocabulary::SETTLE, "settle: { temp_within: 3C, timeout: 3m }", out)?;
    let mut quiet = Quiet::BUILTIN;
    let durations = [("min", &mut quiet.min), ("timeout", &mut quiet.timeout)];
    durations.into_iter().for_each(|(key, duration)| set(duration, fields.get(key).and_then(|slot| slot.duration(out))));
    if let Some(slot) = fields.get("temp_within") {
        set(&mut quiet.temp_within_c, slot.temperature(out));
        if quiet.temp_within_c < 0.0 {
            slot.refuse("`temp_within` is below zero".into(), "write how far above its reference a temperature may be, like `temp_within: 3C`", out);
        }
    }
    if let Some(slot) = fields.get("on_timeout") {
        let words = [("flag", OnTimeout::Flag), ("fail", OnTimeout::Fail), ("skip", OnTimeout::Skip)];
        set(&mut quiet.on_timeout, slot.choice(&words, &[], out));
    }
    if quiet.min > quiet.timeout {
        let slot = fields.get("timeout").or_else(|| fields.get("min")).unwrap_or(slot);
        let [min, timeout] = [quiet.min, quiet.timeout].map(humantime::format_duration);
        slot.refuse(format!("the longest wait ({timeout}) is shorter than the shortest ({min})"), "raise `timeout`, or lower `min`", out);
    }
    Some(Settle::Quiet(quiet))
}

fn window(settings: &mut Window, slot: Slot<'_>, out: &mut Diagnostics) {
    let Some(fields) = slot.fields(&vocabulary::WINDOW, "window: { target: 10s }", out) else { return };
    if let Some(mode) = fields.get("mode") {
        set(&mut settings.fills, mode.choice(&[("auto", true), ("fixed", false)], &[], out));
    }
    if let Some(target) = fields.get("target") {
        set(&mut settings.target, target.duration(out).map(Some));
        if settings.target.is_some_and(|target| target.is_zero()) {
            target.refuse("`target` is zero".to_owned(), "write how long a power run is to measure, like `target: 10s`", out);
        }
    }
    for (name, bound) in [("min", &mut settings.min), ("max", &mut settings.max)] {
        if let Some(slot) = fields.get(name) {
            set(bound, slot.count(1, MOST_IN_WINDOW, out));
        }
    }
    if settings.min > settings.max {
        let message = format!("`min` {} is more than `max` {}", settings.min, settings.max);
        slot.refuse(message, "raise `max`, or lower `min`", out);
    }
    let of_auto = ["target", "min", "max"].into_iter().find_map(|name| fields.get(name));
    if let Some(slot) = of_auto.filter(|_| !settings.fills) {
        let message = format!("`{}` means nothing with `mode: fixed`", slot.name);
        slot.refuse(message, "a fixed window has as many inferences as a timing run; leave one of both out", out);
    }
}

fn slo(slot: Slot<'_>, out: &mut Diagnostics) -> Option<Slo> {
    let fields = slot.fields(&vocabulary::SLO, "slo: { ttft: 500ms, tpot: 50ms }", out)?;
    let limit = |name: &str, out: &mut Diagnostics| fields.get(name).and_then(|slot| slot.duration(out));
    let slo = Slo { ttft: limit("ttft", out), tpot: limit("tpot", out) };
    if fields.iter().next().is_none() {
        slot.refuse("`slo` says nothing".to_owned(), "write what a request may take, like `slo: { ttft: 500ms, tpot: 50ms }`", out);
    }
    Some(slo)
}

fn dominance(slot: Slot<'_>, out: &mut Diagnostics) -> Option<Dominance> {
    let fields = slot.fields(&vocabulary::DOMINANCE, "dominance: { axis: depth, on: oom }", out)?;
    let hint = "write it like `dominance: { axis: depth, on: [oom, timeout] }`";
    let axis = fields.need("axis", "`dominance`", hint, out).and_then(|slot| slot.some_text(out));
    let on = fields.need("on", "`dominance`", hint, out).and_then(|slot| slot.one_or_many("on: [oom, timeout]", out));
    let words = [("oom", FatalReason::Oom), ("memory_thrash", FatalReason::MemoryThrash), ("timeout", FatalReason::Timeout)];
    let on = on.map(|(items, _)| items.into_iter().filter_map(|item| item.choice(&words, &[], out)).collect());
    Some(Dominance { axis: axis?, on: on? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        units,
        vocabulary::{DEFAULTS, MEASURE, PREPARE, SETTLE},
    };

    #[test]
    fn the_reference_says_what_the_built_in_values_are() {
        let builtin = Settings::builtin_defaults("builtin");
        let command = Settings::builtin_defaults("command");
        let default = |key: &str| DEFAULTS.key(key).expect("a key").default;
        let duration = |text: &str| units::duration(text).expect("a duration");
        assert_eq!(default("repetitions"), builtin.repetitions.to_string());
        assert_eq!(duration(default("timeout")), builtin.timeout);
        assert_eq!(Settle::Quiet(Quiet::BUILTIN), builtin.settle);
        let parts = SETTLE.keys.iter().map(|key| format!("{}: {}", key.name, key.default)).collect::<Vec<_>>().join(", ");
        assert_eq!(PREPARE.key("settle").expect("a key").default, format!("{{ {parts} }}"));
        let settle = |key: &str| SETTLE.key(key).expect("a key").default;
        assert_eq!((duration(settle("min")), duration(settle("timeout"))), (Quiet::BUILTIN.min, Quiet::BUILTIN.timeout));
        assert_eq!(units::temperature(settle("temp_within")), Ok(Quiet::BUILTIN.temp_within_c));
        assert_eq!((settle("on_timeout"), Quiet::BUILTIN.on_timeout), ("flag", OnTimeout::Flag));
        assert_eq!(MEASURE.key("sample_hz").expect("a key").default, builtin.sample_hz.to_string());
        assert_eq!((MEASURE.key("power").expect("a key").default, builtin.power), ("off", Power::Off));
        assert_eq!((default("order"), builtin.order), ("interleaved", Order::Interleaved));
        assert_eq!(default("retry_contaminated"), builtin.retry_contaminated.to_string());
        assert_eq!(default("warmup"), format!("builtin: {}, command and llama-server: {}", builtin.warmup, command.warmup));
        assert_eq!(default("rounds"), builtin.rounds.to_string());
        let [bench, server] = ["llama-bench", "llama-server"].map(Settings::builtin_defaults);
        let expected = format!("builtin: {}, llama-bench: {}, llama-server: {}", builtin.iterations, bench.iterations, server.iterations);
        assert_eq!(default("iterations"), expected);
        assert_eq!(duration(default("startup_timeout")), server.startup_timeout);
        assert_eq!(duration(default("cooldown")), builtin.cooldown);
    }
}
