//! Conditions that a campaign declares and that are not the same in all runs of a device: those a reader has to know.

use super::gather::{Point, Run};
use std::collections::{BTreeMap, BTreeSet};

/// Fill in what each point's runs were made under, where runs of its device differ.
pub(super) fn tell(points: &mut [Point<'_>]) {
    let mut values: BTreeMap<(String, String), BTreeSet<Option<String>>> = BTreeMap::new();
    let names: BTreeSet<String> = points.iter().flat_map(Point::own_runs).flat_map(|run| run.record.device.conditions.keys().cloned()).collect();
    for point in &*points {
        for (name, run) in names.iter().flat_map(|name| point.own_runs().map(move |run| (name, run))) {
            values.entry((point.ids.device.clone(), name.clone())).or_default().insert(declared(run, name).map(str::to_owned));
        }
    }
    for point in points {
        let differs = |name: &&String| values.get(&(point.ids.device.clone(), (*name).clone())).is_some_and(|values| values.len() > 1);
        let told = |name: &String| {
            let of_point: BTreeSet<&str> = point.own_runs().map(|run| declared(run, name).unwrap_or("not declared")).collect();
            (!of_point.is_empty()).then(|| format!("{name} {}", of_point.into_iter().collect::<Vec<_>>().join(" and ")))
        };
        point.conditions = names.iter().filter(differs).filter_map(told).collect::<Vec<_>>().join(", ");
    }
}

fn declared<'a>(run: &Run<'a>, name: &str) -> Option<&'a str> {
    run.record.device.conditions.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use crate::config::model::AxisValue;
    use crate::report::gather::gather;
    use crate::report::input::ReportInput;
    use crate::report::records::{point, run};
    use crate::store::record::Record;

    /// threads, repetition, name and value of each condition.
    type Declared<'a> = (i64, u32, &'a [(&'a str, &'a str)]);

    fn told(runs: &[Declared<'_>]) -> Vec<String> {
        let record = |(threads, repetition, conditions): &Declared<'_>| -> (String, Record) {
            let (path, mut record) = run(&point(&[("threads", AxisValue::Int(*threads))]), *repetition).stored();
            record.device.conditions = conditions.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            (path, record)
        };
        let input = ReportInput { records: runs.iter().map(record).collect(), ..ReportInput::default() };
        gather(&input).points.iter().map(|point| point.conditions.clone()).collect()
    }

    #[test]
    fn what_all_runs_share_is_not_told_and_what_differs_is() {
        assert_eq!(told(&[(1, 0, &[("psu", "27 W")]), (2, 0, &[("psu", "27 W")])]), ["", ""]);
        let (warm, cool) = ([("ambient_c", "31"), ("psu", "27 W")], [("ambient_c", "22"), ("psu", "27 W")]);
        assert_eq!(told(&[(1, 0, &cool), (1, 1, &warm), (2, 0, &cool)]), ["ambient_c 22 and 31", "ambient_c 22"]);
        assert_eq!(told(&[(1, 0, &cool[1..]), (2, 0, &[])]), ["psu 27 W", "psu not declared"]);
    }
}
