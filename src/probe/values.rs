//! Values in words.

use crate::energy::polling;
use isotherm_wire::probe::{Capability, Family, Present};

/// What the firmware's bits 0–3 (now) and 16–19 (since boot) stand for.
const THROTTLE_BITS: [&str; 4] = ["under-voltage", "frequency capped", "throttled", "soft temperature limit"];

/// The present value of a capability, where one helps; empty otherwise.
pub fn value(capability: &Capability, present: &Present) -> String {
    let fact = |name: &str| present.facts.get(name).map(String::as_str);
    let number = number(capability.unit.as_deref(), present.value);
    let mut parts: Vec<String> = number.into_iter().collect();
    match (capability.family, capability.unit.as_deref()) {
        (Family::Throttling, Some("state")) => {
            if let (Some(number), Some(most)) = (parts.last_mut(), fact("max_state")) {
                *number = format!("{number} of {most}");
            }
        }
        (Family::Clock, _) => parts.extend(fact("governor").map(|governor| format!("governor {governor}"))),
        (Family::Energy, Some("mj")) => parts.push("counter".into()),
        (Family::Energy, Some("uj")) => {
            parts.push("counter".into());
            let range = fact("wraps_at_uj").and_then(|uj| uj.parse::<f64>().ok());
            parts.extend(range.map(|uj| format!("wraps at {:.0} J", uj / 1e6)));
        }
        (Family::Energy, _) => parts.extend(fact("rails").map(|rails| format!("{rails} rails"))),
        (Family::PowerSource, _) => {
            parts.extend(fact("status").map(str::to_lowercase));
            parts.extend(fact("capacity_pct").map(|pct| format!("{pct} %")));
        }
        (Family::Gpu, _) => {
            parts.extend(["name", "says", "devices", "driver", "pci_id", "engines"].into_iter().filter_map(|name| fact(name).map(str::to_owned)));
            parts.extend(
                fact("memory_bytes").and_then(|bytes| bytes.parse::<f64>().ok()).map(|bytes| format!("{:.1} GiB", bytes / f64::from(1 << 30))),
            );
            parts.extend(fact("compute_capability").map(|version| format!("compute capability {version}")));
            parts.extend(fact("power_limit_w").map(|watts| format!("limit {watts} W")));
        }
        (Family::Inference, _) => {
            parts.extend(fact("engine").map(str::to_owned));
            parts.extend(fact("version").map(|version| format!("version {version}")));
            parts.extend(fact("says").map(str::to_owned));
        }
        (Family::Permission, _) => {
            parts.extend(fact("areas").map(|n| if n == "0" { "no swap configured".into() } else { format!("swap areas: {n}") }));
            parts.extend(fact("governors").map(str::to_owned));
        }
        (Family::Cgroup, _) => parts.extend(fact("cgroup").map(str::to_owned)),
        _ => {}
    }
    parts.extend(present.polled.as_ref().and_then(|_| polling::verdict(capability)).map(|verdict| verdict.to_string()));
    parts.extend(present.flaky.as_ref().map(|flaky| format!("unreliable: {flaky}")));
    parts.join(", ")
}

/// A number in the unit that people use for it; none for counters, whose level says nothing.
fn number(unit: Option<&str>, value: Option<f64>) -> Option<String> {
    let value = value?;
    Some(match unit? {
        "millicelsius" => format!("{:.1} °C", value / 1e3),
        "celsius" => format!("{value:.0} °C"),
        "mhz" => format!("{value:.0} MHz"),
        "reasons" => format!("{:#x}", value as u64),
        "bytes" => format!("{:.0} MiB", value / f64::from(1 << 20)),
        "khz" => format!("{:.0} MHz", value / 1e3),
        "hz" => format!("{:.0} MHz", value / 1e6),
        "uw" => format!("{:.2} W", value / 1e6),
        "mw" => format!("{:.2} W", value / 1e3),
        "pct" => format!("{value} %"),
        "per_mille" => format!("{} %", value / 10.0),
        "online" => if value == 0.0 { "off" } else { "on" }.into(),
        "bits" => throttled(value),
        "state" | "count" => value.to_string(),
        _ => return None,
    })
}

/// `0x50000` is history, `0x50005` is now.
fn throttled(value: f64) -> String {
    let bits = value as u32;
    let or_nothing = |text: String| if text.is_empty() { "nothing".to_owned() } else { text };
    format!("{bits:#x}: now {}; since boot {}", or_nothing(throttle_words(bits)), or_nothing(throttle_words(bits >> 16)))
}

/// What the lowest four bits of the firmware stand for; empty if none is set.
#[must_use]
pub fn throttle_words(bits: u32) -> String {
    let set = THROTTLE_BITS.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sticky_throttle_bits_are_not_taken_for_live_ones() {
        assert_eq!(throttled(f64::from(0x50000)), "0x50000: now nothing; since boot under-voltage, throttled");
        assert_eq!(throttled(f64::from(0x50005)), "0x50005: now under-voltage, throttled; since boot under-voltage, throttled");
        assert_eq!(throttled(0.0), "0x0: now nothing; since boot nothing");
    }

    #[test]
    fn units_are_those_of_people_and_counters_have_no_level() {
        assert_eq!(number(Some("millicelsius"), Some(48_312.0)).as_deref(), Some("48.3 °C"));
        assert_eq!(number(Some("khz"), Some(2_400_000.0)).as_deref(), Some("2400 MHz"));
        assert_eq!(number(Some("uw"), Some(-3_210_000.0)).as_deref(), Some("-3.21 W"));
        assert_eq!(number(Some("uj"), Some(5.0)), None);
        assert_eq!(number(Some("khz"), None), None);
    }
}
