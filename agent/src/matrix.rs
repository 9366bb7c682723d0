//! Whatever reads a machine, over every authored one: a new tree, source or sensor is covered without a line here.
//!
//! Nobody hangs or panics, whatever is absent says why, and whatever is there can be true.
#![expect(clippy::unwrap_used, reason = "tests")]

use crate::inspect::machine;
use crate::load::Census;
use crate::probe::{self, trial::Prober};
use crate::sampler::{self, Sensors};
use crate::trees::{self, Tree};
use isotherm_wire::columns::{ColumnEntry, ColumnName};
use isotherm_wire::inspect::{ContainmentCapability, Machine};
use isotherm_wire::load::CpuTime;
use isotherm_wire::probe::{Capability, Family, Found};
use isotherm_wire::readiness::{May, Readiness};
use isotherm_wire::unit::Unit;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

const ANY: RangeInclusive<f64> = f64::MIN..=f64::MAX;
const FROM_ZERO: RangeInclusive<f64> = 0.0..=f64::MAX;

/// What a reading in this unit can be, as docs/probe.md has it.
fn of_unit(unit: Unit) -> RangeInclusive<f64> {
    match unit {
        Unit::DegreesCelsius => -55.0..=200.0,
        Unit::Kilohertz => 1e3..=2e7,
        Unit::Hertz => 0.0..=2e10,
        Unit::Watts => -1e4..=1e4,
        _ => FROM_ZERO,
    }
}

/// The same in the units that a probe reads.
fn of_raw_unit(unit: &str) -> RangeInclusive<f64> {
    match unit {
        "millicelsius" => -55e3..=200e3,
        "khz" => 1e3..=2e7,
        "hz" => 0.0..=2e10,
        "uw" => -1e10..=1e10,
        "mw" => -1e7..=1e7,
        "pct" => 0.0..=100.0,
        "per_mille" => 0.0..=1000.0,
        "online" => 0.0..=2.0,
        "uj" | "bits" | "count" | "state" => FROM_ZERO,
        _ => ANY,
    }
}

/// With every machine, one after the other. The limit is for what would never end, not for what is slow.
fn with_each(look: fn(&Tree)) {
    for tree in trees::all() {
        let (done, is_done) = channel();
        let name = tree.name.clone();
        let looking = std::thread::spawn(move || {
            look(&tree);
            let _ = done.send(());
        });
        if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = is_done.recv_timeout(Duration::from_secs(300)) {
            panic!("{name}: it hangs");
        }
        if let Err(panic) = looking.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A value is one of its column's.
#[track_caller]
fn is_plausible(what: &str, column: &ColumnEntry, value: f64) {
    assert!(of_unit(column.unit).contains(&value), "{what}: {} is {value}", column.name);
}

#[test]
fn every_source_has_values_that_can_be_true() {
    with_each(|tree| {
        let prober = Prober::with_deadlines(&tree.root, Duration::from_secs(60), Duration::from_secs(600));
        for opener in sampler::openers(&tree.root) {
            let what = format!("{}: {}", tree.name, opener.name);
            let read = prober.within(move || {
                Ok(match (opener.open)() {
                    Ok(mut source) => {
                        let definitions = source.definitions();
                        let mut values = vec![Some(f64::NAN); definitions.len()];
                        source.read(&mut values);
                        (definitions, values, None)
                    }
                    Err((definitions, why)) => (definitions, Vec::new(), Some(why)),
                })
            });
            let (definitions, values, why) = read.unwrap();
            assert!(!definitions.is_empty() && why.is_none_or(|why| !why.is_empty()), "{what}");
            for (definition, value) in definitions.iter().zip(values) {
                value.into_iter().for_each(|value| is_plausible(&what, definition.column.entry(), value));
            }
        }
    });
}

#[test]
fn every_sensor_has_a_value_that_can_be_true_or_says_why_there_is_none() {
    with_each(|tree| {
        let (found, absent) = sampler::sensors::of(&tree.root, &probe::sensors(&tree.root));
        let readings = Sensors::find(&tree.root).readings();
        assert_eq!(readings.len(), found.len() + absent.len(), "{}", tree.name);
        for reading in readings {
            let column = ColumnName::ALL.iter().map(|column| column.entry()).find(|entry| entry.name == reading.metric).unwrap();
            assert_eq!(reading.unit, column.unit.symbol(), "{}: {reading:?}", tree.name);
            reading.value.into_iter().for_each(|value| is_plausible(&tree.name, column, value));
            let said = reading.absent.as_deref().is_some_and(|why| !why.trim().is_empty());
            assert!(reading.value.is_some() != said, "{}: {reading:?}", tree.name);
        }
    });
}

#[test]
fn every_machine_says_of_itself_what_can_be_true() {
    with_each(|tree| {
        let prober = Prober::with_deadlines(&tree.root, Duration::from_secs(60), Duration::from_secs(600));
        let root = tree.root.clone();
        let machine = prober.within(move || Ok(machine::inspect(&root, &ContainmentCapability::default()))).unwrap();
        let limits = &machine.limits;
        assert!(limits.quota_cpus.is_none_or(|cpus| cpus > 0.0 && cpus < 1e6), "{}: {limits:?}", tree.name);
        assert!([limits.cpuset_cpus, machine.online_cpus, machine.physical_cores].into_iter().flatten().all(|n| n > 0), "{}: {machine:?}", tree.name);
        assert!(limits.unknown.values().all(|why| !why.is_empty()), "{}: {limits:?}", tree.name);
        let text = serde_json::to_string(&machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine, "{}", tree.name);
    });
}

#[test]
fn the_probe_of_every_machine_answers() {
    with_each(|tree| check(&probe::look_by(Prober::new(&tree.root)), &tree.name));
}

#[test]
fn the_processes_of_every_machine_are_counted() {
    with_each(|tree| {
        let Some(before) = Census::take(&tree.root) else { return };
        let used = std::iter::repeat_with(|| Census::take(&tree.root)?.since(&before)).flatten().next().unwrap();
        assert!(used.span_ns > 0 && used.others.iter().all(|other| other.processes > 0), "{}: {used:?}", tree.name);
        let text = serde_json::to_string(&used).unwrap();
        assert_eq!(serde_json::from_str::<CpuTime>(&text).unwrap(), used, "{}", tree.name);
    });
}

#[test]
fn the_readiness_of_every_machine_is_told_in_words() {
    with_each(|tree| {
        let readiness = probe::readiness_by(&Prober::new(&tree.root));
        for step in &readiness.steps {
            let said = match &step.may {
                May::Directly | May::BySudo => continue,
                May::Unsupported(why) | May::Denied(why) => why,
            };
            assert!(!said.trim().is_empty(), "{}: {step:?}", tree.name);
        }
        for point in &readiness.trip_points {
            let plausible = |millicelsius: i64| (-55_000..=200_000).contains(&millicelsius);
            assert!(plausible(point.millicelsius) && point.now_millicelsius.is_none_or(plausible), "{}: {point:?}", tree.name);
        }
        let text = serde_json::to_string(&readiness).unwrap();
        assert_eq!(serde_json::from_str::<Readiness>(&text).unwrap(), readiness, "{}", tree.name);
    });
}

/// What has to be so of a probe whatever is read.
#[track_caller]
pub fn check(capabilities: &[Capability], what: &str) {
    let ids: BTreeSet<&str> = capabilities.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids.len(), capabilities.len(), "{what}: an id stands twice");
    for capability in capabilities {
        assert!(!capability.id.is_empty() && !capability.name.is_empty(), "{what}: {capability:?}");
        match &capability.found {
            Found::Absent(absent) => assert!(!absent.reason.trim().is_empty(), "{what}: {} is absent without a reason", capability.id),
            Found::Present(present) => {
                let Some(value) = present.value else { continue };
                let unit = capability.unit.as_deref().unwrap_or_else(|| panic!("{what}: a number without a unit: {capability:?}"));
                assert!(of_raw_unit(unit).contains(&value), "{what}: {capability:?}");
            }
        }
    }
    // Each family says something, if only why there is nothing.
    let families: BTreeSet<Family> = capabilities.iter().map(|c| c.family).collect();
    assert_eq!(families.len(), 12, "{what}: {families:?}");
    let text = serde_json::to_string(capabilities).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Capability>>(&text).unwrap(), capabilities, "{what}");
}

/// The limits of containers are those that they run under, whatever of the hierarchy they see.
#[test]
fn a_container_knows_its_quota_its_cpus_and_its_memory() {
    let limits = |name: &str| {
        let tree = trees::tree(name);
        let limits = crate::inspect::cgroup::limits(&tree.root);
        (limits.cgroup.unwrap(), limits.quota_cpus, limits.cpuset_cpus, limits.memory_bytes)
    };
    assert_eq!(limits("container-v1"), ("v1".into(), Some(2.5), Some(16), Some(4 << 30)));
    assert_eq!(limits("container-v2"), ("v2".into(), Some(1.5), Some(4), Some(2 << 30)));
    assert_eq!(limits("jetson-nano"), ("v1".into(), None, Some(4), None));
    let hostile = crate::inspect::cgroup::limits(Path::new(&trees::tree("hostile").root));
    assert_eq!((hostile.quota_cpus, hostile.cpuset_cpus, hostile.memory_bytes), (None, None, None));
    assert!(["quota_cpus", "cpuset_cpus", "memory_bytes"].iter().all(|field| hostile.unknown.contains_key(*field)), "{hostile:?}");
}
