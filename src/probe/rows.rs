//! Rows of the probe, in sections: what is recorded, what is there for later, what can run, what isn't there, what may be done.

use super::values::value;
use isotherm_wire::inspect::Machine;
use isotherm_wire::probe::{Capability, Cause, Family, Present, Probed};

/// More of one kind than this share a row.
const MOST_ROWS_OF_A_KIND: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Recorded with every run.
    CanMeasure,
    CanRun,
    /// There, and no part of a record in this build.
    NotYet,
    Cannot,
    MayDo,
}

/// One line. Everything is text from elsewhere, to be escaped where it is printed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    pub name: String,
    pub source: String,
    /// Cost of one read, ns; of a shared row that of all its sources together.
    pub cost_ns: Option<u64>,
    /// The value, or the reason.
    pub text: String,
    pub remedy: Option<String>,
}

/// All rows by section; sections without a row are left out.
#[must_use]
pub fn sections(probed: &Probed) -> Vec<(Section, Vec<Row>)> {
    let of = |wanted: Section| -> Vec<&Capability> { probed.capabilities.iter().filter(|c| section(c) == wanted).collect() };
    let machine = &probed.machine;
    let sections = [
        (Section::CanMeasure, recorded(&of(Section::CanMeasure))),
        (Section::CanRun, of(Section::CanRun).into_iter().map(present_row).collect()),
        (Section::NotYet, shared(&of(Section::NotYet))),
        (Section::Cannot, cannot(&probed.capabilities, &of(Section::Cannot), machine)),
        (Section::MayDo, permissions(&of(Section::MayDo), machine)),
    ];
    sections.into_iter().filter(|(_, rows)| !rows.is_empty()).collect()
}

fn section(capability: &Capability) -> Section {
    match (capability.family, capability.absent()) {
        (Family::Permission, _) => Section::MayDo,
        (_, Some(_)) => Section::Cannot,
        _ if capability.recorded => Section::CanMeasure,
        // What this build has a backend for.
        (Family::Inference, _) if ["inference.builtin", "inference.llama-bench", "inference.llama-server"].contains(&capability.id.as_str()) => {
            Section::CanRun
        }
        _ => Section::NotYet,
    }
}

/// One row for each family of the machine as a whole, then the sensors.
fn recorded(capabilities: &[&Capability]) -> Vec<Row> {
    let families = [
        (Family::Load, "cpu load"),
        (Family::Memory, "memory, swap, faults"),
        (Family::Pressure, "pressure"),
        (Family::Cgroup, "cgroup limits, throttling"),
    ];
    let row = |(family, name): (Family, &str)| {
        let all: Vec<(&Capability, &Present)> = capabilities.iter().filter(|c| c.family == family).filter_map(|c| Some((*c, c.present()?))).collect();
        let mut sources: Vec<String> = all.iter().map(|(c, _)| directory(&c.source, family)).collect();
        sources.dedup();
        let texts: Vec<String> = all.iter().map(|(c, p)| value(c, p)).filter(|text| !text.is_empty()).collect();
        let cost_ns = all.iter().filter_map(|(_, p)| p.cost_ns).reduce(|a, b| a + b);
        (!all.is_empty()).then(|| Row { name: name.into(), source: sources.join(", "), cost_ns, text: texts.join("; "), remedy: None })
    };
    let sensors: Vec<&Capability> = capabilities.iter().copied().filter(|c| families.iter().all(|(family, _)| *family != c.family)).collect();
    families.iter().copied().filter_map(row).chain(shared(&sensors)).collect()
}

/// Where several files of one directory are read, the directory.
fn directory(source: &str, family: Family) -> String {
    match (family, source.rsplit_once('/')) {
        (Family::Pressure, Some((dir, _))) => dir.to_owned(),
        // The directory of our own group can be long, and is nobody's interest.
        (Family::Cgroup, _) => "/sys/fs/cgroup".into(),
        _ => source.to_owned(),
    }
}

fn present_row(capability: &Capability) -> Row {
    let present = capability.present().cloned().unwrap_or_default();
    let mut text = value(capability, &present);
    if let Some(backend @ ("llama-bench" | "llama-server")) = capability.id.strip_prefix("inference.") {
        text += if text.is_empty() { "" } else { ", " };
        text += &format!("with backend `{backend}`");
    }
    Row { name: title(capability), source: capability.source.clone(), cost_ns: present.cost_ns, text, remedy: None }
}

fn title(capability: &Capability) -> String {
    let name = &capability.name;
    match capability.family {
        Family::Temperature => format!("temperature {name}"),
        Family::Clock => format!("clock {name}"),
        Family::Energy if name.starts_with("RAPL") || capability.unit.as_deref() == Some("mj") => format!("energy {name}"),
        Family::Energy => format!("power {name}"),
        Family::PowerSource if capability.id != "power_source.any" => format!("power source {name}"),
        Family::Gpu => {
            let gpu = if name.starts_with("GPU") { name.clone() } else { format!("GPU {name}") };
            // Several things are read of one.
            let what = capability.unit.as_ref().and_then(|_| capability.id.rsplit('.').next());
            what.map_or_else(|| gpu.clone(), |what| format!("{gpu} {what}"))
        }
        Family::Inference if capability.id == "inference.builtin" => "builtin inference".into(),
        _ => name.clone(),
    }
}

/// Of one kind, more than a few share a row, and so do those that nothing tells apart.
fn shared(capabilities: &[&Capability]) -> Vec<Row> {
    let mut kinds: Vec<(String, Vec<&Capability>)> = Vec::new();
    for capability in capabilities {
        let kind = kind(capability);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, all)) => all.push(capability),
            None => kinds.push((kind, vec![capability])),
        }
    }
    let rows = kinds.into_iter().flat_map(|(_, all)| {
        let alike = all.len() > 1 && all.iter().all(|c| c.name == all[0].name);
        if all.len() > MOST_ROWS_OF_A_KIND || alike && all[0].family != Family::Inference {
            vec![one_for_all(&all)]
        } else {
            all.into_iter().map(present_row).collect()
        }
    });
    rows.collect()
}

fn kind(capability: &Capability) -> String {
    let word = match capability.family {
        Family::Clock => "",
        Family::Temperature | Family::Energy | Family::Throttling => word(capability),
        _ => capability.id.as_str(),
    };
    format!("{:?} {:?} {word}", capability.family, capability.unit)
}

/// What those of a kind have in common: the driver of sensors, the whole name of others.
fn word(capability: &Capability) -> &str {
    match capability.family {
        Family::Temperature | Family::Energy => capability.name.split(' ').next().unwrap_or_default(),
        _ => &capability.name,
    }
}

/// `clock policies ×64`: the least and the most of their values, the cost of all.
fn one_for_all(all: &[&Capability]) -> Row {
    let by_value = |c: &&&Capability| c.present().and_then(|p| p.value);
    let least =
        all.iter().filter(|c| by_value(c).is_some()).min_by(|a, b| by_value(a).partial_cmp(&by_value(b)).unwrap_or(std::cmp::Ordering::Equal));
    let most = all.iter().filter(|c| by_value(c).is_some()).max_by(|a, b| by_value(a).partial_cmp(&by_value(b)).unwrap_or(std::cmp::Ordering::Equal));
    let words = |c: Option<&&Capability>| c.map(|c| present_row(c).text).unwrap_or_default();
    let (low, high) = (words(least), words(most));
    let cost_ns = all.iter().filter_map(|c| c.present()?.cost_ns).reduce(|a, b| a + b);
    let first = all[0];
    let name = match first.family {
        Family::Clock => "policies".to_owned(),
        _ => word(first).to_owned(),
    };
    let name = format!("{} ×{}", title(&Capability { name, ..first.clone() }), all.len());
    let text = if low == high { low } else { format!("{low} … {high}") };
    Row { name, source: format!("{} …", first.source), cost_ns, text, remedy: None }
}

/// Of a family that has something, a class without a member isn't missing.
fn cannot(all: &[Capability], absent: &[&Capability], machine: &Machine) -> Vec<Row> {
    let is_class = |c: &Capability| {
        let classes = ["temperature.thermal", "temperature.hwmon", "energy.rapl", "gpu.nvidia", "gpu.drm", "throttling.any", "power_source.any"];
        classes.contains(&c.id.as_str()) && c.absent().is_some_and(|a| a.cause == Cause::NotThere)
    };
    let has_other = |c: &Capability| all.iter().any(|other| other.family == c.family && other.present().is_some());
    let mut rows: Vec<Row> = Vec::new();
    for capability in absent.iter().filter(|c| !(is_class(c) && has_other(c))) {
        let Some(why) = capability.absent() else { continue };
        let text = match capability.family {
            _ if capability.source.is_empty() => why.reason.clone(),
            Family::Inference if why.cause == Cause::NotThere => why.reason.clone(),
            Family::Gpu if capability.id == "gpu.nvidia" => why.reason.clone(),
            _ => format!("{}: {}", capability.source, why.reason),
        };
        let row = Row { name: title(capability), source: String::new(), cost_ns: None, text, remedy: super::remedy(capability, machine) };
        // One cure for several of a kind is said once.
        match rows.iter_mut().find(|other| other.remedy.is_some() && other.remedy == row.remedy) {
            Some(other) => other.name = format!("{}, {}", other.name, row.name),
            None => rows.push(row),
        }
    }
    rows
}

fn permissions(capabilities: &[&Capability], machine: &Machine) -> Vec<Row> {
    // Of a copy of a machine's files, one line says it of all.
    let untried = capabilities.first().and_then(|c| c.absent()).filter(|why| why.cause == Cause::NotTried);
    if let Some(why) = untried.filter(|why| capabilities.iter().all(|c| c.absent() == Some(*why))) {
        return vec![Row { name: "not tried".into(), text: why.reason.clone(), ..Row::default() }];
    }
    capabilities.iter().map(|c| permission(c, machine)).collect()
}

fn permission(capability: &Capability, machine: &Machine) -> Row {
    let text = match (capability.present(), capability.absent()) {
        (Some(present), _) => {
            let more = value(capability, present);
            if more.is_empty() { "yes".into() } else { format!("yes ({more})") }
        }
        (_, Some(why)) if why.cause == Cause::NotTried => format!("not tried: {}", why.reason),
        (_, Some(why)) => format!("no: {}", why.reason),
        _ => String::new(),
    };
    Row { name: capability.name.clone(), source: String::new(), cost_ns: None, text, remedy: super::remedy(capability, machine) }
}
